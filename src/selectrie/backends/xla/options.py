"""The options of the back end, importable without its packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from selectrie.core.types import Precision
from selectrie.errors import MessageText, OptionError, PythonOnly
from selectrie.options import at_least, flag, one_of

BUCKETS = (512, 64, 8, 1)
"""Default numbers of rows of the programs."""
MAX_BUCKETS = 16
MAX_ROWS = 8192
"""Maximum number of programs, and of the rows of one."""


@dataclass(frozen=True, slots=True)
class XlaOptions:
    """Options for compiling a model of Transformers by XLA.

    Attributes:
        n_ctx: Maximum number of tokens held at once. None: as many as the model has
            positions, at most 8192. Every call reads the cells of all these tokens, so
            a smaller number is faster.
        buckets: Numbers of rows of the programs that are compiled, all different. A
            call is split among programs and padded so that it takes the least time. A
            call takes at least as long as the smallest program, so some should be
            small.
        precision: `exact` computes float32 weights with the full precision of float32.
            `fast` computes in bfloat16.
        device: The device that programs run on: "cpu", "tpu", "cuda", or with a number,
            such as "tpu:1". None: JAX's default.
        tokenizer: A loaded fast tokenizer of Transformers, or the path of a folder with
            one. None: the checkpoint's own.
        verbose: Whether Transformers shows its warnings, and a line on stderr reports
            each compiled program.
    """

    n_ctx: int | None = None
    buckets: tuple[int, ...] = BUCKETS
    precision: Precision = Precision.EXACT
    device: str | None = None
    tokenizer: Any = None
    verbose: bool = False

    def __post_init__(self) -> None:
        at_least("n_ctx", self.n_ctx, 8)
        one_of("precision", self.precision, tuple(p.value for p in Precision))
        object.__setattr__(self, "precision", Precision(self.precision))
        flag("verbose", self.verbose)
        if self.device is not None and not isinstance(self.device, str):
            raise OptionError(
                "device", self.device, MessageText("a device of JAX as 'cpu' or 'tpu:0'", PythonOnly(", or None"))
            )
        self._check_buckets()

    def _check_buckets(self) -> None:
        """Raise `OptionError` for invalid `buckets`, or sort them, largest first."""
        expected = f"1 to {MAX_BUCKETS} different whole numbers of rows from 1 to {MAX_ROWS}"
        if not isinstance(self.buckets, (list, tuple)):
            raise OptionError("buckets", self.buckets, expected)
        sizes = list(self.buckets)
        for size in sizes:
            if type(size) is not int or not 1 <= size <= MAX_ROWS:
                raise OptionError("buckets", size, expected)
        if not 1 <= len(sizes) <= MAX_BUCKETS or len(set(sizes)) < len(sizes):
            raise OptionError("buckets", sizes, expected)
        object.__setattr__(self, "buckets", tuple(sorted(sizes, reverse=True)))
