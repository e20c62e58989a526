"""The layouts of calls in which the engine may evaluate the same tokens.

Selection evaluates paths side by side after their prompt. Healing takes tokens of the
prompt back, a page appends to a prompt that is cached, and other requests own cells in
between. Generation evaluates one row per sequence and call, for one sequence or for
many. A benchmark puts a whole unit of sequences into an empty memory. llama.cpp by
itself pads no call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selectrie.core.model import Model, chain
from selectrie.core.reads import Reads
from selectrie.core.rows import Rows
from selectrie.core.types import ROOT, FloatArray, IntArray
from selectrie.decoding.task import extend_in_rounds

HEALED_TOKENS = 2
"""Number of prompt tokens that `reopened` evaluates with the paths."""

ALONE = 2
"""Number of paths evaluated alone. Each costs its prompt, or a call for every token."""


@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """Tokens that are evaluated in several layouts.

    Attributes:
        foreign: int32[F], tokens of another request; empty to leave it out.
        prompt: int32[P], P >= 1, the tokens before the paths.
        paths: int32[N, L], L >= 2, continuations of the prompt.
    """

    foreign: IntArray
    prompt: IntArray
    paths: NDArray[np.int32]

    @property
    def n_nodes(self) -> int:
        """Return the number of nodes that the largest layout holds."""
        return len(self.foreign) + len(self.prompt) + self.paths.size


Layout = Callable[[Model, Passage], FloatArray]
"""Evaluates a passage on an empty model and leaves it empty.

Returns float64[N, L-1], the log-probability of every token of a path but its first; NaN
for paths that the layout leaves out.
"""


def beside(model: Model, passage: Passage) -> FloatArray:
    """Evaluate the prompt in one run, then all paths together, as selection does."""
    with_prompt = _Held(model)
    end = with_prompt.run(ROOT, passage.prompt)
    return with_prompt.done(_branches(with_prompt, end, passage.prompt[:0], passage.paths))


def reopened(model: Model, passage: Passage) -> FloatArray:
    """Evaluate the prompt in pieces among cells of another request, as healing does.

    The last tokens of the prompt are evaluated together with the paths. Pages do the
    same.
    """
    held, end, other = _Held(model), ROOT, ROOT
    n_kept = max(1, len(passage.prompt) - HEALED_TOKENS)
    pieces = np.array_split(passage.prompt[:n_kept], 3), np.array_split(passage.foreign, 3)
    for piece, foreign in zip(*pieces, strict=True):
        other = held.run(other, foreign)
        end = held.run(end, piece)
    return held.done(_branches(held, end, passage.prompt[n_kept:], passage.paths[::-1])[::-1])


def unit(model: Model, passage: Passage) -> FloatArray:
    """Evaluate prompt and paths together in an empty memory, as benchmarks do."""
    held = _Held(model)
    return held.done(_branches(held, ROOT, passage.prompt, passage.paths))


def alone(model: Model, passage: Passage) -> FloatArray:
    """Evaluate some paths, each with its prompt in one run, as scoring a text does.

    Each run starts from an empty memory.
    """
    result = np.full((len(passage.paths), passage.paths.shape[1] - 1), np.nan)
    for i, path in enumerate(passage.paths[:ALONE]):
        held = _Held(model)
        tokens = np.concatenate([passage.prompt, path[:-1]])
        rows = held.rows_of_run(ROOT, tokens)
        result[i] = held.done(_logp(rows, np.arange(len(passage.prompt), len(tokens)), path[1:]))
    return result


def drawn(model: Model, passage: Passage, width: int) -> FloatArray:
    """Evaluate paths token by token, `width` at a time, as generation does.

    With width 1, only some paths are evaluated.
    """
    n, length = passage.paths.shape
    result = np.full((n, length - 1), np.nan)
    width = min(width, model.limits.rows_per_call)
    for start in range(0, min(ALONE, n) if width == 1 else n, width):
        held = _Held(model)
        paths = passage.paths[start : start + width]
        tips: IntArray = np.full(len(paths), held.run(ROOT, passage.prompt), dtype=np.int32)
        every = np.ones(len(paths), dtype=np.bool_)
        for j in range(length - 1):
            extension = model.extend(tips, paths[:, j].copy(), every, every)
            if j:
                model.release(tips, forget=True)
            tips = extension.nodes
            result[start : start + width, j] = _logp(extension.rows, np.arange(len(paths)), paths[:, j + 1])
        model.release(tips, forget=True)
        held.done(result)
    return result


def drawn_alone(model: Model, passage: Passage) -> FloatArray:
    """Evaluate as `drawn` does, one path at a time."""
    return drawn(model, passage, 1)


def unpadded(layout: Layout) -> Layout:
    """Return the layout without padding of calls, as llama.cpp evaluates by itself.

    It is for models whose batch sizes are not fixed.
    """

    def evaluate(model: Model, passage: Passage) -> FloatArray:
        batch_multiple = model.limits.batch_sizes.multiple
        model.set_batch_multiple(1)
        try:
            return layout(model, passage)
        finally:
            model.set_batch_multiple(batch_multiple)

    return evaluate


class _Held:
    """Nodes of a model that are held until `done` releases them."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._tips: set[int] = set()  # ends of runs, which later runs may extend
        self._nodes: list[IntArray] = []

    def run(self, parent: int, tokens: IntArray) -> int:
        """Evaluate a run of tokens below a node, and return the last node of the run.

        The calls are as large as allowed. The node `parent` is no longer held.
        """
        return self._run(parent, tokens, wanted=False)[0]

    def rows_of_run(self, parent: int, tokens: IntArray) -> Rows:
        """Evaluate a run of tokens below a node, and return its rows."""
        first, *others = self._run(parent, tokens, wanted=True)[1]
        return first.stacked(others)

    def _run(self, parent: int, tokens: IntArray, *, wanted: bool) -> tuple[int, list[Rows]]:
        rows, max_rows = [], self.model.limits.rows_per_call
        for start in range(0, len(tokens), max_rows):
            piece = tokens[start : start + max_rows]
            n = len(piece)
            extension = self.model.extend(chain(parent, n), piece, np.full(n, wanted), np.arange(n) == n - 1)
            if wanted:
                rows.append(extension.rows.copy())
            self.model.release(extension.nodes[:-1])
            if parent in self._tips:
                self._tips.remove(parent)
                self.model.release(np.array([parent], dtype=np.int32))
            parent = int(extension.nodes[-1])
            self._tips.add(parent)
        return parent, rows

    def extend(self, parents: IntArray, tokens: IntArray, wanted: NDArray[np.bool_]) -> Rows:
        """Evaluate nodes that no later call extends, and return their rows.

        The call is made in the rounds that a recurrent-state model needs.
        """
        nodes, rows = extend_in_rounds(self.model, parents, tokens, wanted, np.zeros(len(tokens), dtype=np.bool_))
        self._nodes.append(nodes)
        return rows

    def done(self, result: FloatArray) -> FloatArray:
        """Release all nodes held, and return `result` unchanged."""
        nodes = [np.array(sorted(self._tips), dtype=np.int32), *self._nodes]
        self.model.release(np.concatenate(nodes), forget=True)
        self.model.trim(0)
        self._tips, self._nodes = set(), []
        return result


def _branches(held: _Held, end: int, tail: IntArray, paths: NDArray[np.int32]) -> FloatArray:
    """Return the log-probabilities of the tokens of `paths`, float64[N, L-1].

    The paths are below the run `tail`, which is below the node `end`. One call is made,
    or as few as possible. L is 2 or no more than the rows of a call; with one row a
    call, the last token of a path is left out.
    """
    n, n_wanted = len(paths), paths.shape[1] - 1
    max_rows = held.model.limits.rows_per_call
    length = min(n_wanted + 1, max_rows)
    if len(tail) + length > max_rows:
        end, tail = held.run(end, tail), tail[:0]
    step = max(1, (max_rows - len(tail)) // length)
    result = np.empty((n, n_wanted))
    for start in range(0, n, step):
        part = paths[start : start + step, :length]
        below = np.arange(len(tail), len(tail) + part.size, dtype=np.int32).reshape(part.shape)
        parents = ~(below - 1)
        parents[:, 0] = ~(len(tail) - 1) if len(tail) else end
        wanted = np.ones(part.shape, dtype=np.bool_)
        wanted[:, n_wanted:] = False
        above = chain(end, len(tail)) if len(tail) else tail
        rows = held.extend(
            np.concatenate([above, parents.ravel()]),
            np.concatenate([tail, part.ravel()]),
            np.concatenate([np.zeros(len(tail), dtype=np.bool_), wanted.ravel()]),
        )
        following = paths[start : start + step, 1:].ravel()
        result[start : start + step] = _logp(rows, np.arange(len(following)), following).reshape(len(part), -1)
    return result


def _logp(rows: Rows, owner: NDArray[np.int64], ids: IntArray) -> FloatArray:
    """Return the log-probabilities of `ids`, each in the row that `owner` names."""
    return rows.fetch(lambda: Reads(len(rows), owner, ids)).logp(owner, ids)
