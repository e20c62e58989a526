"""The slow twin of equal bits in any company: paths in whole pages of cells, through plain llama_cpp calls.

A row's logits depend on its tokens alone if (a) its path lies contiguously in whole pages of 16 cells, (b) the pages
of the path ascend in the cache, (c) what shares a page with it is the same, and (d) the rows and the outputs of each
call are filled up to a multiple of 8. Each of the four can be switched off, to see that it is needed.

llama.cpp gives the rows of a call the lowest free cells, in order. So every cell is taken at all times, by a path or
by a dummy that comes from a saved state, except for the cells that the next rows must get, and for the last page,
which the padding gets. Every cell has two ids, because in a model with a sliding window llama.cpp writes over cells
that left the window if they have only one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import llama_cpp
import numpy as np

from selectrie.core.types import FloatArray


@dataclass(frozen=True, slots=True)
class Layout:
    """How paths and calls are laid out; every value but the default breaks the law."""

    page: int = 16
    rows: int = 8
    outputs: int = 8
    ascending: bool = True
    copies: bool = True


@dataclass(slots=True, eq=False)
class Path:
    """Tokens in the cache, with the cell of each; all cells have both ids."""

    ids: tuple[int, int]
    tokens: list[int]
    cells: list[int]


class PagedTwin:
    """Logits of paths that are laid out by the law in a cache with arbitrary other paths."""

    def __init__(
        self, model: Any, *, cells: int = 384, f16: bool = False, layout: Layout | None = None, seed: int = 0
    ) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = cells, 64, 64, 64
        params.n_threads = params.n_threads_batch = 1
        params.kv_unified = params.swa_full = True
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_F16 if f16 else llama_cpp.GGML_TYPE_F32
        self._context = llama_cpp.llama_init_from_model(model, params)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._n_vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self._layout, self._random = layout or Layout(), np.random.default_rng(seed)
        self._padding, self._scratch, *self._dummies = 63, 62, 61, 60
        self._free_ids = [(2 * i, 2 * i + 1) for i in range(30)]
        self._n_pages = (cells - 16) // self._layout.page
        self.paths: list[Path] = []
        self.n_rows = 0
        self._state, self._at = self._page_of_dummies()
        for page in range(self._n_pages):
            self._fill(page)

    def close(self) -> None:
        """Free the context."""
        llama_cpp.llama_free(self._context)

    def score(
        self, prompt: Sequence[int], choices: Sequence[Sequence[int]], *, cut: int = 64, together: bool = False
    ) -> list[tuple[bytes, FloatArray]]:
        """Return the bits of the rows of each choice, hashed, and float64[n], the log-probabilities of its tokens.

        The rest of the prompt comes in calls of `cut` rows, its last token always. The choices come in one call, in
        which each has all its rows, or each in a call of its own, behind what it shares with an earlier one.
        """
        base = self.path(prompt[:-1])
        for start in range(len(base.tokens), len(prompt) - 1, cut):
            self.extend([(base, prompt[start : min(start + cut, len(prompt) - 1)])], wanted=False)
        paths, rows = [base], {}
        [rows[()]] = self.extend([(base, prompt[-1:])])
        if together:
            paths += [self.path(prompt) for _ in choices]
            parts = [(path, choice[:-1]) for path, choice in zip(paths[1:], choices, strict=True)]
            logits = iter(self.extend(parts))
            rows |= {tuple(c[:i]): next(logits) for c in choices for i in range(1, len(c))}
        for choice in [] if together else choices:
            paths.append(path := self.path([*prompt, *choice[:-1]]))
            known = max(len(path.tokens) - len(prompt), 0)
            for i, row in enumerate(self.extend([(path, choice[known:-1])]), start=known + 1):
                rows[tuple(choice[:i])] = row
        for path in paths:
            self.drop(path)
        return [_scored(np.array([rows[tuple(choice[:i])] for i in range(len(choice))]), choice) for choice in choices]

    # Paths

    def path(self, tokens: Sequence[int]) -> Path:
        """Return a new path of the longest beginning of `tokens` that is in the cache."""
        above = max(self.paths, key=lambda one: _common(one.tokens, tokens), default=None)
        path = Path(self._free_ids.pop(), [], [])
        self.paths.append(path)
        if above is not None:
            self._branch(above, path, _common(above.tokens, tokens))
        return path

    def _branch(self, above: Path, path: Path, depth: int) -> None:
        """Let `path` begin with `depth` tokens of `above`, and copy those in the last page unless it is full."""
        n_copied = depth % self._layout.page if self._layout.copies else 0
        shared = depth - n_copied
        path.tokens, path.cells = above.tokens[:depth], above.cells[:shared]
        if shared:
            self._share(above.ids[0], path, 0, shared)
        if n_copied:
            self._copy(above.ids[0], self._scratch, shared, depth)
            state = self._saved(self._scratch)
            self._remove(self._scratch)
            path.cells += self._take(path, n_copied)
            self._load(state)
            self._share(self._scratch, path, shared, depth)
            self._remove(self._scratch)

    def drop(self, path: Path) -> None:
        """Forget a path; pages that no other path uses are dummies again."""
        self.paths.remove(path)
        self._free_ids.append(path.ids)
        for one in path.ids:
            self._remove(one)
        used = {cell // self._layout.page for one in self.paths for cell in one.cells}
        for page in sorted({cell // self._layout.page for cell in path.cells} - used):
            self._open(range(page * self._layout.page, (page + 1) * self._layout.page))
            self._fill(page)

    def extend(self, parts: Sequence[tuple[Path, Sequence[int]]], *, wanted: bool = True) -> FloatArray:
        """Evaluate the next tokens of several paths in one call; float32[n, V], their logits in order, if wanted."""
        rows = []
        for path, tokens in parts:
            cells = self._take(path, len(tokens))
            rows += [(c, t, len(path.tokens) + i, path.ids) for i, (c, t) in enumerate(zip(cells, tokens, strict=True))]
            path.tokens += tokens
            path.cells += cells
        if not rows:
            return np.empty((0, self._n_vocabulary), dtype=np.float32)
        order = np.argsort([cell for cell, *_ in rows])
        logits = self._decode([rows[i][1:] for i in order], n_outputs=len(rows) if wanted else 0)
        return logits[np.argsort(order)] if wanted else logits

    # Cells

    def _take(self, path: Path, n: int) -> list[int]:
        """Free the next `n` cells of a path: the rest of its last page, then other pages."""
        size, cells = self._layout.page, list(path.cells)
        used = {cell for one in self.paths for cell in one.cells}
        for _ in range(n):
            following = cells[-1] + 1 if cells else 0
            while following % size and following in used:  # only where a branch shares a page
                following += 1
            cells.append(following if following % size else size * self._next_page(cells, used))
        new = cells[len(path.cells) :]
        self._open(new)
        return new

    def _next_page(self, cells: list[int], used: set[int]) -> int:
        """Return one of the next four free pages above those of a path, so that paths lie scattered."""
        size = self._layout.page
        taken, last = {cell // size for cell in used.union(cells)}, cells[-1] // size if cells else -1
        if self._layout.ascending:
            return int(self._random.choice([page for page in range(last + 1, self._n_pages) if page not in taken][:4]))
        return max(page for page in range(last if cells else self._n_pages) if page not in taken)

    def _open(self, cells: Sequence[int] | range) -> None:
        for cell in cells:
            for one in self._dummies:
                llama_cpp.llama_memory_seq_rm(self._memory, one, cell, cell + 1)

    def _page_of_dummies(self) -> tuple[np.ndarray, list[int]]:
        """Return the state of a page of cells, and where its cells' positions begin: once in each of its caches."""
        n = self._layout.page
        self._decode([(1, i, (self._scratch,)) for i in range(n)], n_outputs=0)
        state = np.frombuffer(self._saved(self._scratch), dtype=np.int32).copy()
        self._remove(self._scratch)
        head = np.array([n, *(x for i in range(n) for x in (i, 1, self._scratch))], dtype=np.int32)
        at = [i + 1 for i in np.flatnonzero(state == n) if np.array_equal(state[i : i + len(head)], head)]
        return state, at

    def _fill(self, page: int) -> None:
        """Fill a page with dummies, which are known by their positions: those of their cells."""
        n = self._layout.page
        for at in self._at:
            self._state[at : at + 3 * n : 3] = np.arange(page * n, (page + 1) * n)
        self._load(self._state.tobytes())
        for one in self._dummies:
            self._copy(self._scratch, one)
        self._remove(self._scratch)

    # llama.cpp

    def _copy(self, source: int, target: int, start: int = -1, end: int = -1) -> None:
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, start, end)

    def _share(self, source: int, path: Path, start: int, end: int) -> None:
        for one in path.ids:
            self._copy(source, one, start, end)

    def _remove(self, one: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, one, -1, -1)

    def _saved(self, one: int) -> bytes:
        size = llama_cpp.llama_state_seq_get_size(self._context, one)
        state = (ctypes.c_uint8 * size)()
        assert llama_cpp.llama_state_seq_get_data(self._context, state, size, one) == size
        return bytes(state)

    def _load(self, state: bytes) -> None:
        """Load a state under the scratch id; it takes the lowest free cells."""
        data = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        assert llama_cpp.llama_state_seq_set_data(self._context, data, len(state), self._scratch) == len(state)

    def _decode(self, rows: list[tuple[int, int, tuple[int, ...]]], *, n_outputs: int) -> FloatArray:
        """Return float32[n_outputs, V], the logits of the first rows; rows are (token, position, ids)."""
        rows = rows + [(1, i, (self._padding,)) for i in range(-len(rows) % self._layout.rows)]
        n_filled = n_outputs + -n_outputs % self._layout.outputs
        batch = llama_cpp.llama_batch_init(len(rows), 0, 2)
        batch.n_tokens = len(rows)
        for i, (token, position, ids) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, len(ids)
            batch.logits[i] = i < n_filled
            for j, one in enumerate(ids):
                batch.seq_id[i][j] = one
        code = llama_cpp.llama_decode(self._context, batch)
        llama_cpp.llama_batch_free(batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")
        self.n_rows += len(rows)
        shape = (n_filled, self._n_vocabulary)
        logits = np.empty((0, self._n_vocabulary), dtype=np.float32)
        if n_outputs:
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(self._context), shape)[:n_outputs].copy()
        self._remove(self._padding)
        return logits


def _scored(rows: FloatArray, choice: Sequence[int]) -> tuple[bytes, FloatArray]:
    logits = rows.astype(np.float64)
    peak = logits.max(axis=1)
    logp = logits[range(len(choice)), choice] - peak - np.log(np.exp(logits - peak[:, None]).sum(axis=1))
    return blake2b(rows.tobytes()).digest(), logp


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of tokens with which both begin."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
