"""The weights that contexts share.

They are opened from a file, or borrowed from a `llama_cpp.Llama`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import llama_cpp

from selectrie.backends.llama_cpp.gguf_header import TokenTable, require_gguf, require_sound
from selectrie.backends.llama_cpp.library import delay_interrupt, log, metadata_of, repacks_safely
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.backends.llama_cpp.vocabulary import read_vocabulary
from selectrie.core.files import file_digest
from selectrie.core.types import ModelKind
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import ClosedError, ModelFileError, OptionError, UnsupportedModelError

_ROPE_PARAMS = ("rope_scaling_type", "rope_freq_base", "rope_freq_scale", "yarn_orig_ctx")
"""Context parameters that change a model's rows.

Each has a value that means "as the file says".
"""


@dataclass(frozen=True, slots=True)
class Borrowed:
    """A shared `llama_cpp.Llama`, with the settings of it that change its logits.

    Attributes:
        llama: The `Llama` itself.
        params: The parameters of its context.
        adapters: Its LoRA adapters with their scales.
        changes: The settings that make its logits differ from those of the file, as
            text that is appended to the digest. "" if there are none.
    """

    llama: Any
    params: Any
    adapters: tuple[tuple[Any, float], ...] = ()
    changes: str = ""

    @property
    def is_open(self) -> bool:
        """Return whether the `Llama` is still open. Closing it frees the weights."""
        return getattr(self.llama._model, "model", None) is not None


@dataclass(slots=True)
class _Users:
    """The contexts and other users that keep weights in memory.

    Attributes:
        count: Number of users.
        freed: Whether the weights have been freed.
        frees: Functions that free the users' contexts, by the contexts' addresses.
    """

    count: int = 0
    freed: bool = False
    frees: dict[int, Callable[[], object]] = field(default_factory=dict)

    def free_contexts(self) -> None:
        """Free the contexts of all users."""
        for free in list(self.frees.values()):
            free()


@dataclass(frozen=True, eq=False)
class Weights:
    """A `llama_model *` with the facts that are read from it once.

    The model is freed when its last user has released it, unless a `Llama` owns it.

    Attributes:
        pointer: The `llama_model *`.
        name: Name of the file.
        path: Path of the file.
        borrowed: The `Llama` that owns the pointer; None if it is not shared.
        verbose: Whether to show llama.cpp's log.
        tokens: The table of tokens, until the vocabulary is read; None if it was not
            read from the file.
    """

    pointer: Any
    name: str
    path: Path
    borrowed: Borrowed | None = None
    verbose: bool = False
    tokens: TokenTable | None = None
    _users: _Users = field(default_factory=_Users)

    def acquire(self, address: int | None = None, free: Callable[[], object] | None = None) -> None:
        """Count one more user of the weights.

        A user that has a context passes the context's address and the function that
        frees it. The function is called if a borrowed `Llama` is closed first.
        """
        self._users.count += 1
        if address is not None and free is not None:
            self._users.frees[address] = free

    def release(self, address: int | None = None) -> None:
        """Count one user fewer, and free the weights after the last one.

        Borrowed weights are not freed. `address` is the one passed to `acquire`.
        """
        if address is not None:
            self._users.frees.pop(address, None)
        self._users.count -= 1
        if self._users.count == 0 and self.borrowed is None:
            self._users.freed = True
            with log.our_calls(verbose=self.verbose):
                llama_cpp.llama_model_free(self.pointer)

    def require_open(self) -> None:
        """Raise `ClosedError` if the borrowed `Llama` has been closed."""
        if self.borrowed is not None and not self.borrowed.is_open:
            raise ClosedError("the Llama object whose weights are shared")

    @cached_property
    def n_parameters(self) -> int:
        """Return the number of weights."""
        return int(llama_cpp.llama_model_n_params(self.pointer))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Return the vocabulary.

        Its tokenizer reads the weights' memory, and raises `ClosedError` once that has
        been freed.
        """
        vocabulary = read_vocabulary(self.pointer, None if self._has_other_tokenizer else self.path, self.tokens)
        object.__setattr__(self, "tokens", None)
        encode = vocabulary.tokenize

        def tokenize(text: bytes, /) -> list[int]:
            if self._users.freed:
                raise ClosedError(f"the model {self.name}")
            self.require_open()
            return encode(text)

        return replace(vocabulary, tokenize=tokenize)

    @property
    def _has_other_tokenizer(self) -> bool:
        """Return whether a shared `Llama` overrides the file's tokenizer settings."""
        overrides = getattr(self.borrowed.llama, "kv_overrides", None) if self.borrowed is not None else None
        return any(str(key).startswith("tokenizer.") for key in overrides or ())

    @cached_property
    def digest(self) -> str:
        """Return the digest of the file and of the settings of a shared `Llama`.

        These are RoPE settings and a LoRA adapter. It begins with "unknown:" if there
        is no file.
        """
        suffix = "" if self.borrowed is None else self.borrowed.changes
        return (file_digest(self.path) if self.path.is_file() else "unknown:") + suffix

    @property
    def kind(self) -> ModelKind:
        """Return the kind of the model's memory."""
        if llama_cpp.llama_model_is_recurrent(self.pointer):
            return ModelKind.RECURRENT
        if llama_cpp.llama_model_is_hybrid(self.pointer):
            return ModelKind.HYBRID
        if llama_cpp.llama_model_n_swa(self.pointer) > 0:
            return ModelKind.SLIDING_WINDOW
        return ModelKind.ATTENTION

    def metadata(self, key: str) -> str | None:
        """Return the metadata value of `key` as text; None if it is missing.

        `{arch}` in the key is replaced by the architecture.
        """
        if "{arch}" in key:
            key = key.replace("{arch}", self.metadata("general.architecture") or "")
        return metadata_of(self.pointer, key)

    def metadata_int(self, key: str) -> int | None:
        """Return the integer of `key`; None if it is missing or a list."""
        value = self.metadata(key)
        return int(value) if value is not None and value.isdigit() else None


def open_weights(source: object, options: LlamaOptions) -> Weights:
    """Return the weights of a file, or those of a `llama_cpp.Llama`.

    The caller counts as a user of the weights, and must call `release` when done.

    Raises:
        ModelFileError: If the file cannot be loaded.
        UnsupportedModelError: If the model does not predict a next token.
        OptionError: If the source is neither a path nor a `Llama`.
        ClosedError: If the `Llama` has been closed.
    """
    log.install()
    if isinstance(source, (str, os.PathLike)):
        weights = _load(Path(source), options)
    elif isinstance(source, llama_cpp.Llama):
        weights = _borrow(source, options)
    else:
        raise OptionError("model", source, "the path of a GGUF file, or a llama_cpp.Llama")
    weights.acquire()
    try:
        _require_causal(weights)
    except BaseException:
        weights.release()
        raise
    return weights


def _load(path: Path, options: LlamaOptions) -> Weights:
    """Load the weights of a file; raises as `open_weights` does."""
    require_gguf(path)
    if options.n_gpu_layers and not llama_cpp.llama_supports_gpu_offload():
        build = "CMAKE_ARGS='-DGGML_CUDA=on' pip install --force-reinstall --no-cache-dir llama-cpp-python"
        allowed = f"0, because this build of llama.cpp has no GPU; one for CUDA comes with {build}"
        raise OptionError("n_gpu_layers", options.n_gpu_layers, allowed)
    tokens = require_sound(path)
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = options.n_gpu_layers
    # Extra buffer types hold repacked weights.
    params.use_extra_bufts = params.use_extra_bufts and repacks_safely()
    pointer = None
    try:
        with delay_interrupt(), log.our_calls(verbose=options.verbose):
            llama_cpp.llama_backend_init()
            log.forget()
            pointer = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
            reason = log.reason("llama.cpp cannot load it")
    except KeyboardInterrupt:
        if pointer:
            llama_cpp.llama_model_free(pointer)
        raise
    if not pointer:
        raise ModelFileError(
            str(path), f"{reason}; get the file again, or a newer llama-cpp-python if the format is new"
        )
    return Weights(pointer, path.name, path, verbose=options.verbose, tokens=tokens)


def _borrow(llama: Any, options: LlamaOptions) -> Weights:
    """Return the weights of a `Llama`, which stays their owner."""
    path = Path(llama.model_path)
    if getattr(llama._model, "model", None) is None:
        raise ClosedError("the Llama object whose weights are shared")
    if llama.model_params.vocab_only:
        raise UnsupportedModelError(path.name, "this Llama holds a vocabulary without weights (vocab_only=True)")
    plain = llama_cpp.llama_context_default_params()
    changed = [name for name in _ROPE_PARAMS if getattr(llama.context_params, name) != getattr(plain, name)]
    changes = "".join(f"+{name}={getattr(llama.context_params, name):g}" for name in changed)
    borrowed = Borrowed(llama, llama.context_params, changes=changes)
    if llama.lora_path:
        adapter = getattr(llama, "_lora_adapter", None)
        if adapter is None:
            reason = (
                "this Llama has a LoRA adapter that cannot be reached, and without it another model would be scored"
            )
            raise UnsupportedModelError(path.name, f"{reason}; merge the adapter into the weights")
        digest = f"+lora:{llama.lora_scale:g}:{file_digest(Path(llama.lora_path))}"
        borrowed = replace(borrowed, adapters=((adapter, float(llama.lora_scale)),), changes=changes + digest)
    weights = Weights(llama._model.model, path.name, path, borrowed, options.verbose)
    # Closing a Llama frees its weights, and the contexts on them have to go first. Exit
    # stacks run in reverse order, so a callback added last runs first.
    stack = getattr(llama, "_stack", None)
    if stack is not None:
        stack.callback(weights._users.free_contexts)
    return weights


def _require_causal(weights: Weights) -> None:
    """Raise `UnsupportedModelError` for a model that predicts no next token."""
    pointer, name = weights.pointer, weights.name
    if llama_cpp.llama_model_has_encoder(pointer) or not llama_cpp.llama_model_has_decoder(pointer):
        raise UnsupportedModelError(name, "has an encoder; a decoder-only language model is needed")
    if llama_cpp.llama_model_is_diffusion(pointer):
        raise UnsupportedModelError(name, "is a diffusion model, which has no probability of a next token")
    pooling = weights.metadata_int("{arch}.pooling_type") or 0
    if weights.metadata("{arch}.attention.causal") == "false" or pooling > 0:
        raise UnsupportedModelError(name, "is an embedding model, which predicts no next token; use a language model")
