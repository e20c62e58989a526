"""The programs of one module: bodies over pools of cells, heads over hidden states."""

from __future__ import annotations

import importlib.util
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.cache_utils import Cache

from selectrie.backends.transformers.attention import CellLayer, TreeCall
from selectrie.backends.transformers.module import PreparedModule
from selectrie.core.files import cache_folder
from selectrie.core.types import BoolArray, LogitArray
from selectrie.errors import (
    LESS_MEMORY,
    DecodeError,
    MessageText,
    ModelError,
    UnsupportedModelError,
    clip,
    remedies,
    words,
)

_OVERLOAD = re.compile(r"\baten\.(\w+)\.(\w+)")
_MIN_COMPILE_S = 0.1
"""Seconds of compilation from which on JAX caches a program on disk."""
_lock = threading.Lock()
_loaded: list[Any] = []


class _Removed:
    """A placeholder for an operator overload that torch no longer has."""


def load_torchax() -> Any:
    """Return the module `torchax`, imported once in a process."""
    with _lock:
        if not _loaded:
            _loaded.append(_import_torchax())
        return _loaded[0]


def _import_torchax() -> Any:
    """Import torchax, patched for this torch, with JAX's cache of programs on disk."""
    spec = importlib.util.find_spec("torchax")
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        for path in Path(folder).rglob("*.py"):
            for operator, overload in _OVERLOAD.findall(path.read_text(encoding="utf-8")):
                packet = getattr(torch.ops.aten, operator, None)
                if packet is not None and not hasattr(packet, overload):
                    setattr(packet, overload, _Removed())
    import jax
    import torchax

    if jax.config.jax_compilation_cache_dir is None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_COMPILE_S)
    # `torch.random.fork_rng` names the device, which this function does not take.
    torchax.device_module.get_rng_state = lambda *_device: []
    torchax.default_env()
    return torchax


torchax = load_torchax()

Pool: TypeAlias = list[tuple[Any, Any]]
"""Keys and values, [1, heads, cells, width], of each layer that stores any."""
Int32s: TypeAlias = NDArray[np.int32]
Compiling: TypeAlias = Callable[[str], AbstractContextManager[None]]
"""Returns a context manager that is entered while the named program is compiled."""

N_RUNS = 5
"""Maximum number of runs by which a program is timed."""
_ENOUGH_S = 0.3
"""Total seconds of runs after which no further run times a program."""
_EXPERTS = "batched_mm"
"""Implementation of a mixture of experts whose shapes do not depend on values."""


class _TracedCall(TreeCall):
    """A tree call whose arrays are already tensors, for recording a program."""

    is_traced = True

    def __init__(self, cells: Tensor, visible: Tensor, positions: Tensor, cell_positions: Tensor) -> None:
        super().__init__(threading.Event(), cells, visible, positions, cell_positions)

    @staticmethod
    def _tensor(values: Any, _device: torch.device) -> Tensor:
        tensor: Tensor = values
        return tensor


class _TracedLayer(CellLayer):
    """The cells of one layer, which are replaced instead of written in place."""

    @staticmethod
    def _put(cells: Tensor, at: Tensor, states: Tensor) -> Tensor:
        return cells.index_copy(2, at, states)


class _Recorded(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """A wrapper of a module whose `forward` calls a given function.

    So `functional_call` can replace the module's weights during any function.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


class Programs:
    """The compiled programs of one module, which its contexts share.

    A body runs the layers for a number of rows, and a head computes logits. Only one
    thread may use it at a time.
    """

    def __init__(self, prepared: PreparedModule, *, n_hidden: int, device: Any, compiling: Compiling) -> None:
        """Copy the weights to a device. Nothing is compiled yet.

        Args:
            prepared: The module. No other thread may call it during recording.
            n_hidden: Maximum number of rows of a call, padding included.
            device: The device of JAX.
            compiling: Reports the compilation of each program.

        Raises:
            UnsupportedModelError: The module does not call its language model head.
            ModelError: There is no memory for the weights.
        """
        self._prepared, self._device, self._compiling = prepared, device, compiling
        self._environment = torchax.default_env()
        self._recorded = _Recorded(prepared.module)
        state = {**dict(self._recorded.named_parameters()), **dict(self._recorded.named_buffers())}
        width = _hidden_width(prepared)
        with self._memory_for("its weights"):
            self._state = {name: self._to_device(one) for name, one in state.items()}
            self._hidden_shape = (n_hidden, width)
            self._hidden = self._new_hidden()
        self._compiled: dict[tuple[str, int, int], Any] = {}

    @property
    def n_bodies(self) -> int:
        """Return the number of bodies compiled so far."""
        return sum(kind == "body" for kind, _, _ in self._compiled)

    @property
    def n_heads(self) -> int:
        """Return the number of heads compiled so far."""
        return sum(kind == "head" for kind, _, _ in self._compiled)

    def new_pool(self, n_cells: int) -> Pool:
        """Return a new pool of `n_cells` cells in all layers.

        Raises `ModelError` if there is no memory for them.
        """
        with self._memory_for(f"{n_cells} cells"):
            stored = [states for states in self._prepared.cache_like if states is not None]
            return [(self._zeros(keys, n_cells), self._zeros(values, n_cells)) for keys, values in stored]

    def body(self, pool: Pool, rows: Sequence[NDArray[Any]], first: int) -> tuple[Pool, BoolArray]:
        """Evaluate the layers for R rows, and keep their hidden states for `head`.

        Returns the pool after them, and bool[R], whether all numbers that a row has
        stored are finite. The given pool must not be used again.

        Args:
            pool: The cells.
            rows: int32[R] ids, positions and cells, bool[R, C] visible, and int32[C]
                the position of each cell; see `TreeCall`. R is the size of the program.
            first: Index of row 0 among the hidden states.

        Raises:
            DecodeError: The program failed. The pool may be lost.
            UnsupportedModelError: The module cannot be compiled.
        """
        n_cells = pool[0][0].shape[2]
        arguments = (self._hidden, pool, *rows, np.array(first, dtype=np.int32))
        program = self._get_program("body", len(rows[0]), n_cells, self._body, arguments, n_donated=2)
        try:
            self._hidden, pool, is_finite = self._run(program, arguments)
        except BaseException:
            if self._hidden.is_deleted():
                with self._memory_for("hidden states"):
                    self._hidden = self._new_hidden()
            raise
        flags: BoolArray = np.asarray(is_finite)
        return pool, flags

    def head(self, at: Int32s) -> LogitArray:
        """Return the logits of hidden states, float32[M, V].

        Args:
            at: int32[M], indices of hidden states; M is the size of the program.

        Raises:
            DecodeError: The program failed.
            UnsupportedModelError: The module cannot be compiled.
        """
        arguments = (self._hidden, at)
        program = self._get_program("head", len(at), 0, self._head, arguments, n_donated=0)
        return np.asarray(self._run(program, arguments))

    def seconds_of_head(self, size: int, n_runs: int) -> float:
        """Compile the output head for `size` rows, and return its seconds.

        `n_runs` is the number of runs to measure (`least_seconds`).
        """
        at = np.zeros(size, dtype=np.int32)
        return least_seconds(lambda: self.head(at), n_runs)

    # What is recorded

    def _body(self, hidden: Tensor, pool: list[tuple[Tensor, Tensor]], *rows: Tensor) -> tuple[Tensor, Any, Any]:
        """Return the new hidden states and pool, and which rows are finite."""
        ids, positions, cells, visible, cell_positions, first = rows
        call = _TracedCall(cells, visible, positions, cell_positions)
        layers = self._layers(pool)
        n_rows = len(ids)
        outputs = torch.arange(n_rows, device=ids.device)
        with self._head_input() as given:
            self._prepared.forward_tree(call, ids, positions, outputs, Cache(layers=layers))
        states = given[0].reshape(n_rows, -1).to(hidden.dtype)
        stored = [(one.keys, one.values) for one in layers if one.is_initialized]
        return hidden.index_copy(0, outputs + first, states), stored, call.is_finite

    def _head(self, hidden: Tensor, at: Tensor) -> Tensor:
        """Return the logits of hidden states, which replace the input of the head."""
        n_rows = len(at)
        order = torch.arange(n_rows, device=at.device)
        call = _TracedCall(order, order[:, None] == order, torch.zeros_like(order), torch.zeros_like(order))
        with self._head_input(hidden.index_select(0, at)[None]):
            ids = torch.zeros_like(order)
            cache = Cache(layers=[_TracedLayer(n_rows) for _ in range(self._prepared.n_layers)])
            return self._prepared.forward_tree(call, ids, ids, order, cache).float()

    def _layers(self, pool: list[tuple[Tensor, Tensor]]) -> list[_TracedLayer]:
        """Return the layers of a cache whose cells are those of the pool."""
        states = iter(pool)
        layers = []
        for like in self._prepared.cache_like:
            layer = _TracedLayer(0)
            if like is not None:
                layer.keys, layer.values = next(states)
                layer.is_initialized = True
            layers.append(layer)
        return layers

    @contextmanager
    def _head_input(self, replacement: Tensor | None = None) -> Iterator[list[Tensor]]:
        """Yield a list that gets the input of the head in the `with` block.

        With `replacement`, the head gets that instead.
        """
        seen: list[Tensor] = []

        def hook(_head: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
            seen.append(arguments[0])
            return None if replacement is None else (replacement, *arguments[1:])

        handle = self._prepared.module.get_output_embeddings().register_forward_pre_hook(hook)
        try:
            yield seen
        finally:
            handle.remove()

    # Compiling and running

    def _get_program(
        self,
        kind: str,
        size: int,
        n_cells: int,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        *,
        n_donated: int,
    ) -> Any:
        """Return the compiled program of a function, compiled on first use.

        Args:
            kind: "body" or "head".
            size: Number of rows.
            n_cells: Number of cells of the pool; 0 for a head.
            function: The function of torch.
            arguments: Arguments of the shapes that it is compiled for.
            n_donated: Number of the first arguments whose memory each run takes over.
        """
        key = (kind, size, n_cells)
        if key not in self._compiled:
            name = f"{kind} of {size} row{'s'[: size > 1]}" + (f" over {n_cells} cells" if n_cells else "")
            with self._compiling(f"{self._prepared.name}: {name}"):
                self._compiled[key] = self._compile(function, arguments, n_donated)
        return self._compiled[key]

    def _compile(self, function: Callable[..., Any], arguments: tuple[Any, ...], n_donated: int) -> Any:
        """Record a function of torch for arguments of these shapes, and compile it."""
        environment, recorded = self._environment, self._recorded

        def pure(state: Any, *arrays: Any) -> Any:
            state, arrays = environment.j2t_iso((state, arrays))
            with environment:
                result = torch.func.functional_call(recorded, state, (function, *arrays))
            return environment.t2j_iso(result)

        exact = self._prepared.dtype == torch.float32
        precision = jax.default_matmul_precision("highest") if exact else nullcontext()
        donated = tuple(range(1, 1 + n_donated))
        try:
            with precision, self._traceable_experts(), jax.default_device(self._device), warnings.catch_warnings():
                # The integers of 64 bits that a module makes become those of 32 bits.
                warnings.filterwarnings("ignore", message="Explicitly requested dtype .*int64")
                return jax.jit(pure, donate_argnums=donated).lower(self._state, *arguments).compile()
        except Exception as error:
            if "RESOURCE_EXHAUSTED" in str(error):
                remedy = remedies(operator="ask for a smaller `n_ctx` or smaller buckets")
                raise ModelError(
                    MessageText(self._prepared.name, ": no memory to compile a program; ", remedy)
                ) from error
            cause = error.__cause__ if isinstance(error, DecodeError) and error.__cause__ is not None else error
            remedy = remedies(operator="use `backend='transformers'`")
            reason = words("cannot be compiled by XLA: {}; {}", _describe_error(cause), remedy)
            raise UnsupportedModelError(self._prepared.name, reason) from error

    def _run(self, program: Any, arguments: tuple[Any, ...]) -> Any:
        """Run a program to its end; raise `DecodeError` if it fails."""
        try:
            return jax.block_until_ready(program(self._state, *arguments))
        except Exception as error:
            raise DecodeError(f"{self._prepared.name}: {_describe_error(error)}") from error

    @contextmanager
    def _traceable_experts(self) -> Iterator[None]:
        """Set an implementation of experts that can be recorded in the `with` block."""
        configs = [one for one in self._prepared.configs() if hasattr(one, "_experts_implementation_internal")]
        before = [one._experts_implementation_internal for one in configs]
        for one in configs:
            one._experts_implementation_internal = _EXPERTS
        try:
            yield
        finally:
            for one, name in zip(configs, before, strict=True):
                one._experts_implementation_internal = name

    # Memory

    def _to_device(self, tensor: Tensor) -> Any:
        return jax.device_put(self._environment.t2j_copy(tensor.detach()), self._device)

    def _new_hidden(self) -> Any:
        return jnp.zeros(self._hidden_shape, _jax_type(self._prepared.dtype), device=self._device)

    def _zeros(self, like: Tensor, n_cells: int) -> Any:
        """Return an array of zeros for `n_cells` cells, shaped like the keys `like`."""
        shape = (1, like.shape[1], n_cells, like.shape[3])
        return jnp.zeros(shape, _jax_type(like.dtype), device=self._device)

    @contextmanager
    def _memory_for(self, what: str) -> Iterator[None]:
        """Turn errors of allocating `what` into a `ModelError`."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            lacking = f"{self._prepared.name}: no memory for {what} on {self._device}; "
            raise ModelError(MessageText(lacking, LESS_MEMORY, f" ({clip(str(error), 200)})")) from error


def least_seconds(run: Callable[[], object], n_runs: int) -> float:
    """Return the seconds of the fastest of up to `n_runs` runs.

    One run, which compiles the program, comes before them. With 0 runs, only that is
    done, and infinity is returned.
    """
    run()
    best, spent = np.inf, 0.0
    for _ in range(n_runs):
        begin = time.perf_counter()
        run()
        took = time.perf_counter() - begin
        best, spent = min(best, took), spent + took
        if spent > _ENOUGH_S:
            break
    return float(best)


def is_lost(pool: Pool) -> bool:
    """Return whether the arrays of a pool were deleted by a program that failed."""
    return any(one.is_deleted() for pair in pool for one in pair)


def _hidden_width(prepared: PreparedModule) -> int:
    """Return the width of the hidden state that the head gets for one row.

    Raises `UnsupportedModelError` if the module does not call its head.
    """
    head = prepared.module.get_output_embeddings()
    widths: list[int] = []
    handle = head.register_forward_pre_hook(lambda _head, given: widths.append(int(given[0].shape[-1])))
    try:
        prepared.forward_plain(torch.zeros((1, 1), dtype=torch.long))
    finally:
        handle.remove()
    if not widths:
        raise UnsupportedModelError(
            prepared.name,
            "computes its logits without calling its language model head, so XLA cannot compile it in parts",
        )
    return widths[0]


def _describe_error(error: BaseException) -> str:
    """Return the type of an error and its first line; JAX adds advice in others."""
    return clip(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", 300)


def _jax_type(dtype: torch.dtype) -> Any:
    return jnp.dtype(str(dtype).removeprefix("torch."))
