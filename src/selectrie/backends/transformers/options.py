"""The options of the back end, importable without its packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from selectrie.core.types import Precision
from selectrie.errors import MessageText, OptionError, PythonOnly, words
from selectrie.options import at_least, flag, one_of

DTYPES = ("float32", "bfloat16", "float16")
"""Types that weights can be converted to."""
DEVICES = ("cpu", "cuda", "cuda:0")
"""Examples of devices, for errors."""
PREFIXES = "a DynamicCache of Transformers for one text, or a (key, value) of each layer"
"""What a prefix can be, for errors."""


@dataclass(frozen=True, slots=True)
class TransformersOptions:
    """Options for opening a model by Transformers.

    Attributes:
        n_ctx: Maximum number of tokens held at once. None: as many as the model has
            positions, but not more than 8192.
        n_batch: Maximum number of rows of a call. It is lowered if the logits of the
            rows would take more than 384 MiB.
        n_threads: Number of torch's threads while the model runs on the CPU. None: the
            number that torch is set to.
        precision: `exact` needs float32 weights. Calls are padded to a multiple of 8
            rows, and scores that are too close to call are evaluated again with
            attention whose bits depend on the path alone. `fast` takes the weights as
            they are.
        device: The device that weights are loaded on, such as "cpu" or "cuda:0"; a
            number means that GPU. None: a GPU if there is one.
        dtype: The type that weights are converted to when they are loaded, one of
            `DTYPES`. None: float32 for `exact`, the checkpoint's for `fast`.
        tokenizer: A loaded fast tokenizer of Transformers, or the path of a folder with
            one. None: the checkpoint's own.
        prefix: Keys and values that stand before every context: a `DynamicCache` of
            Transformers for one text, or a sequence with a (key, value) of each layer.
            They are copied when the model is opened. None: nothing.
        verbose: Whether Transformers shows its warnings and progress bars.
    """

    n_ctx: int | None = None
    n_batch: int = 512
    n_threads: int | None = None
    precision: Precision = Precision.EXACT
    device: str | int | None = None
    dtype: str | None = None
    tokenizer: Any = None
    prefix: Any = field(default=None, repr=False)
    verbose: bool = False

    def __post_init__(self) -> None:
        at_least("n_ctx", self.n_ctx, 8)
        at_least("n_batch", self.n_batch, 8, optional=False)
        at_least("n_threads", self.n_threads, 1)
        one_of("precision", self.precision, tuple(p.value for p in Precision))
        object.__setattr__(self, "precision", Precision(self.precision))
        flag("verbose", self.verbose)
        if type(self.device) is int and self.device >= 0:
            object.__setattr__(self, "device", f"cuda:{self.device}")
        if self.device is not None and not isinstance(self.device, str):
            raise OptionError(
                "device",
                self.device,
                MessageText(f"a device as {', '.join(map(repr, DEVICES))}", PythonOnly(", or None")),
            )
        if self.dtype is not None:
            self._check_dtype()
        is_text = isinstance(self.prefix, str | bytes)
        if self.prefix is not None and (is_text or not (isinstance(self.prefix, Sequence) or self._is_cache)):
            raise OptionError("prefix", self.prefix if is_text else type(self.prefix).__name__, PREFIXES)

    @property
    def _is_cache(self) -> bool:
        """Return whether the prefix looks like a cache, without importing torch."""
        return hasattr(self.prefix, "layers")

    def _check_dtype(self) -> None:
        """Raise `OptionError` for an unsuitable `dtype`, or set its plain name."""
        name = str(self.dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise OptionError(
                "dtype", self.dtype, MessageText(f"one of {', '.join(map(repr, DTYPES))}", PythonOnly(", or None"))
            )
        if self.precision is Precision.EXACT and name != "float32":
            remedy = "'float32'{}, as `precision='exact'` computes in float32; or `precision='fast'`"
            raise OptionError("dtype", self.dtype, words(remedy, PythonOnly(" or None")))
        object.__setattr__(self, "dtype", name)
