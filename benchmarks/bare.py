"""llama.cpp without selectrie: what the benchmarks compare with, and the lower bound of
its time.

A context has the attention and cache types of a precision of selectrie, or llama.cpp's
own, one batch to fill, and one decode to time.
Nothing here is clever; every function says which rows it evaluates.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from selectrie.backends.llama_cpp.gguf_header import read_header
from selectrie.backends.llama_cpp.library import repacks_safely
from selectrie.backends.llama_cpp.library import cell_type
from selectrie.core.model import Model
from selectrie.core.types import Precision

N_SEQUENCES = 256
PADDING = N_SEQUENCES - 1
"""Sequence of the padding rows."""
N_BATCH = 512


@llama_cpp.llama_log_callback
def _silent(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None: ...


def use_safe_kernels() -> None:
    """Load models from now on as selectrie does where repacked weights end the process.

    llama.cpp's AMX kernels do so with quantised weights (`repacks_safely`). Elsewhere
    nothing changes.
    """
    if repacks_safely():
        return
    default = llama_cpp.llama_cpp.llama_model_default_params

    def safe() -> Any:
        params = default()
        params.use_extra_bufts = False
        return params

    llama_cpp.llama_model_default_params = llama_cpp.llama_cpp.llama_model_default_params = safe


@dataclass(frozen=True, slots=True)
class Call:
    """The rows of one `llama_decode`: how many there are, how many have logits, and the
    sequences to which they are assigned in turn.
    """

    n_rows: int
    n_wanted: int
    sequences: Sequence[int] = (0,)


class Bare:
    """A model and one context, driven by hand. Sequence 0 holds the prompt; the last one takes padding rows.

    fast: cells as in `fast` precision. flash: llama.cpp's own attention and cells. clock: seconds that `decode` counts.
    """

    def __init__(
        self,
        path: Path,
        *,
        n_ctx: int,
        n_threads: int,
        fast: bool = False,
        flash: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        use_safe_kernels()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        assert self.model, f"{path} cannot be loaded"
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = n_ctx, N_BATCH, N_BATCH, N_SEQUENCES
        params.n_threads = params.n_threads_batch = n_threads
        params.kv_unified, params.swa_full, params.op_offload = True, True, fast
        if not flash:
            params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
            params.type_k = params.type_v = cell_type(read_header(path), Precision.FAST if fast else Precision.EXACT)
        self.params, self.clock = params, clock
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        assert self.context, "no context"
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocabulary = llama_cpp.llama_vocab_n_tokens(self.vocabulary)
        self.batch = llama_cpp.llama_batch_init(N_BATCH, 0, N_SEQUENCES)
        self.decode_s = 0.0

    def close(self) -> None:
        """Free the batch, the context and the model."""
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)

    def tokenize(self, text: str, *, bos: bool = False) -> list[int]:
        """Return the tokens of plain text; `bos` adds the tokens that the model asks
        for.
        """
        data = text.encode()
        buffer = (llama_cpp.llama_token * (len(data) + 8))()
        n = llama_cpp.llama_tokenize(self.vocabulary, data, len(data), buffer, len(buffer), bos, False)
        return buffer[:n]

    def clear(self) -> None:
        """Forget everything."""
        llama_cpp.llama_memory_clear(self.memory, False)

    def cut(self, sequence: int, length: int) -> None:
        """Forget what a sequence holds beyond a length."""
        assert llama_cpp.llama_memory_seq_rm(self.memory, sequence, length, -1)

    def copy(self, source: int, targets: Iterable[int], length: int) -> None:
        """Let other sequences share the first cells of one."""
        for target in targets:
            llama_cpp.llama_memory_seq_cp(self.memory, source, target, 0, length)

    def fill(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[Sequence[int]],
        wanted: Sequence[bool],
    ) -> None:
        """Lay out a batch: each row has a token, a position, the sequences it belongs
        to, and whether its logits are wanted.
        """
        n = self.batch.n_tokens = len(tokens)
        assert 0 < n <= N_BATCH, n
        np.ctypeslib.as_array(self.batch.token, (n,))[:] = tokens
        np.ctypeslib.as_array(self.batch.pos, (n,))[:] = positions
        np.ctypeslib.as_array(self.batch.n_seq_id, (n,))[:] = [len(ids) for ids in sequences]
        np.ctypeslib.as_array(self.batch.logits, (n,))[:] = wanted
        for i, ids in enumerate(sequences):
            np.ctypeslib.as_array(self.batch.seq_id[i], (len(ids),))[:] = ids

    def fill_run(
        self, tokens: Sequence[int], start: int, sequence: int, n_wanted: int, batch_multiple: int = 1
    ) -> None:
        """Lay out a run of one sequence; its last rows have logits. Padding rows fill
        it up to a multiple of `batch_multiple`.
        """
        n, pad = len(tokens), -len(tokens) % batch_multiple
        self.fill(
            [*tokens, *[tokens[0]] * pad],
            [*range(start, start + n), *range(pad)],
            [[sequence]] * n + [[PADDING]] * pad,
            [False] * (n - n_wanted) + [True] * n_wanted + [False] * pad,
        )

    def decode(self) -> float:
        """Run one `llama_decode` of the batch; return the seconds inside it, which are
        also added to `decode_s`.
        """
        start = self.clock()
        code = llama_cpp.llama_decode(self.context, self.batch)
        seconds = self.clock() - start
        assert code == 0, f"llama_decode returned {code}"
        self.decode_s += seconds
        return seconds

    def prompt(self, tokens: Sequence[int], batch_multiple: int = 1) -> float:
        """Evaluate a prompt on an empty memory as sequence 0, with logits of the last
        row; return the seconds inside `llama_decode`.
        """
        self.clear()
        seconds = 0.0
        for start in range(0, len(tokens), N_BATCH):
            part = tokens[start : start + N_BATCH]
            self.fill_run(part, start, 0, int(start + N_BATCH >= len(tokens)), batch_multiple)
            seconds += self.decode()
            self.cut(PADDING, 0)
        return seconds

    def replay(self, calls: Sequence[Call], context: Sequence[int] = ()) -> list[float]:
        """Return the seconds inside `llama_decode` of each of these calls, one after
        the other.

        The calls run below a context that all sequences share. Every row continues
        where its sequence ends, so the memory grows as it did in the original calls.
        """
        sequences = {sequence for call in calls for sequence in call.sequences}
        self.clear()
        if context:
            self.prompt(context)
            self.copy(0, sorted(sequences - {0}), len(context))
        lengths, seconds = dict.fromkeys(sequences, len(context)), []
        for call in calls:
            owners = sorted(call.sequences[i % len(call.sequences)] for i in range(call.n_rows))
            positions = []
            for owner in owners:
                positions.append(lengths[owner])
                lengths[owner] += 1
            tokens = [7919 * (1 + i) % self.n_vocabulary for i in range(call.n_rows)]
            wanted = [i >= call.n_rows - call.n_wanted for i in range(call.n_rows)]
            self.fill(tokens, positions, [[owner] for owner in owners], wanted)
            seconds.append(self.decode())
        return seconds

    def logp(self, row: int) -> NDArray[np.float32]:
        """Return the log-probabilities of a row of the last decode, by its place in the
        batch; float32[V], a copy.
        """
        pointer = llama_cpp.llama_get_logits_ith(self.context, row)
        logits = np.ctypeslib.as_array(pointer, (self.n_vocabulary,))
        shifted = logits - logits.max()
        return shifted - np.float32(np.log(np.exp(shifted).sum(dtype=np.float64)))


class Recorder:
    """Records the calls that selectrie makes of a model: rows, outputs, seconds inside
    llama.cpp.

    made: calls of the model itself. aside: calls of the contexts that are made from it,
    in which prompts are evaluated apart and near ties are scored again. on_call: called
    on the model's thread with the number of each call of the model that begins, until
    the watch ends.
    """

    def __init__(self, model: Model) -> None:
        self.made: list[tuple[int, int]] = []
        self.aside: list[tuple[int, int]] = []
        self.decode_s = 0.0
        self.on_call: Callable[[int], None] | None = None
        self._record(model, is_aside=False)

    def _record(self, model: Model, *, is_aside: bool) -> None:
        """Record the calls of a model, and of those made from it."""
        extend, new_context = model.extend, model.new_context

        def recorded(parents: Any, tokens: Any, wanted: Any, keep: Any) -> Any:
            if self.on_call is not None and not is_aside:
                self.on_call(len(self.made))
            extension = extend(parents, tokens, wanted, keep)
            if extension.rows_evaluated:
                calls = self.aside if is_aside else self.made
                calls.append((extension.rows_evaluated, int(wanted.sum())))
                self.decode_s += extension.decode_s
            return extension

        def made(*args: Any, **kwargs: Any) -> Model:
            context = new_context(*args, **kwargs)
            self._record(context, is_aside=True)
            return context

        model.extend, model.new_context = recorded, made  # type: ignore[method-assign, assignment]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Start a new record, and stop calling `on_call` at the end."""
        self.made, self.aside, self.decode_s = [], [], 0.0
        yield
        self.on_call = None

    def calls(self, sequences: range) -> list[Call]:
        """Return the calls that were made, to repeat them with their rows assigned to
        these sequences.
        """
        return [Call(n_rows, n_wanted, sequences) for n_rows, n_wanted in self.made]
