"""Simple, slow versions of algorithms of the library, for comparison in tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, fsum, inf, log
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from selectrie.core.model import Model, chain, rounds
from selectrie.core.rows import DenseRows, Reads, Rows
from selectrie.core.types import NO_NODE, ROOT, BoolArray, Capacity, IntArray
from selectrie.decoding.task import Task
from selectrie.errors import ProtocolError
from selectrie.testing.fakes import FakeModel

R = TypeVar("R")


def run(task: Task[R], model: Model) -> R:
    """Run one task to its end on a model, release its nodes, and return its result.

    Nothing else may use the model. This is a short version of the scheduler, for tests.
    Raises the errors of the model, and `ProtocolError` if the task asks for parents
    that it does not hold.
    """
    limits = model.limits
    n_states = 1 if limits.kind.is_recurrent else 0  # a recurrent-state model keeps the prompt's state too
    capacity = Capacity(limits.rows_per_call, limits.nodes - len(task.prompt), limits.sequences - n_states)
    held, rows = _prefill(task.prompt, model)
    local = held[-1:]  # node of each local row
    try:
        if len(task.prompt):
            task.tell(rows.fetch(task.reads))
        while (ask := task.ask(capacity)) is not None:
            _release_rows(ask.release, local, model)
            nodes, rows = extend_in_rounds(model, _to_nodes(ask.parents, local), ask.tokens, ask.wanted, ask.keep)
            local.extend(nodes.tolist())
            _release_rows(ask.spent, local, model)
            task.tell(rows.fetch(task.reads))
        return task.result()
    finally:
        model.release(np.array([*held[:-1], *(node for node in local if node != NO_NODE)], dtype=np.int32), forget=True)


def extend_in_rounds(
    model: Model, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray
) -> tuple[IntArray, Rows]:
    """Evaluate a call of `Model.extend`, in several rounds for a recurrent-state model.

    `model.rounds` splits the call; nodes that carry later rounds are kept for them. If
    a round fails, the nodes of earlier rounds are released.

    Returns:
        The nodes and copies of the wanted rows, both in the order of the call.
    """
    in_round = rounds(parents, keep) if model.limits.kind.is_recurrent else np.zeros(len(parents), dtype=np.int32)
    if not in_round.any():
        extension = model.extend(parents, tokens, wanted, keep)
        return extension.nodes, extension.rows
    carries = _carriers(parents, keep, in_round)
    nodes = np.full(len(parents), NO_NODE, dtype=np.int32)
    parts, order = [], []
    try:
        for turn in range(int(in_round.max()) + 1):
            elements = np.flatnonzero(in_round == turn)
            up = _within_round(parents, elements, nodes)
            extension = model.extend(up, tokens[elements], wanted[elements], carries[elements])
            nodes[elements] = extension.nodes
            parts.append(extension.rows.copy())
            order.append(elements[wanted[elements]])
    except BaseException:
        model.release(nodes[nodes != NO_NODE], forget=True)
        raise
    return nodes, parts[0].stacked(parts[1:]).take(np.argsort(np.concatenate(order)))


def _carriers(parents: IntArray, keep: BoolArray, in_round: IntArray) -> BoolArray:
    """Return bool[B], the elements whose nodes must be kept.

    An element is kept if the caller asks for it, or if it is the parent of an element
    of a later round.
    """
    inside = np.flatnonzero(parents < 0)
    result: BoolArray = keep.copy()
    result[~parents[inside[in_round[inside] != in_round[~parents[inside]]]]] = True
    return result


def _within_round(parents: IntArray, elements: NDArray[np.int64], nodes: IntArray) -> IntArray:
    """Return the parents of some elements of a call, as int32[].

    A parent is its node if that was evaluated in an earlier round, else `~k` for the
    k-th of these elements.
    """
    up: IntArray = parents[elements].copy()
    inside = np.flatnonzero(up < 0)
    targets = ~up[inside]
    known = nodes[targets]
    up[inside] = np.where(known != NO_NODE, known, ~np.searchsorted(elements, targets).astype(np.int32))
    return up


def _release_rows(rows: IntArray, local: list[int], model: Model) -> None:
    """Release the nodes of the given local rows that were not released before.

    `local` has the node of each local row, and gets NO_NODE in their place. A node with
    children stays in the model until these are dropped.
    """
    nodes = [local[row] for row in rows.tolist() if local[row] != NO_NODE]
    for row in rows.tolist():
        local[row] = NO_NODE
    model.release(np.array(nodes, dtype=np.int32), forget=True)


def _to_nodes(parents: IntArray, local: list[int]) -> IntArray:
    """Return `parents` with local rows replaced by their nodes; `~j` stays."""
    result: IntArray = parents.copy()
    outside = parents >= 0
    if outside.any() and int(parents.max()) >= len(local):
        raise ProtocolError(f"asked for a child of row {int(parents.max())}; there are {len(local)}")
    result[outside] = np.array(local, dtype=np.int32)[parents[outside]]
    if (result[outside] == NO_NODE).any():
        raise ProtocolError("asked for a child of a row that was released")
    return result


def _prefill(prompt: IntArray, model: Model) -> tuple[list[int], Rows]:
    """Evaluate the prompt in calls of at most the model's rows per call.

    Returns the nodes held, of which the last is the end of the prompt, and the row of
    that node.
    """
    node, depth = model.match_prefix(prompt[:-1])
    held = [node]
    rows_per_call = model.limits.rows_per_call
    rows: Rows = DenseRows(np.empty((0, 0), dtype=np.float32))
    try:
        for start in range(depth, len(prompt), rows_per_call):
            part = prompt[start : start + rows_per_call]
            parents = chain(held[-1], len(part))
            is_last = np.arange(len(part)) == len(part) - 1
            extension = model.extend(parents, part, is_last & (start + len(part) == len(prompt)), is_last)
            held.extend(extension.nodes.tolist())
            rows = extension.rows
    except BaseException:
        model.release(np.array(held, dtype=np.int32), forget=True)
        raise
    return held, rows


Path = tuple[int, ...]


@dataclass(slots=True)
class NestedTrie:
    """A counterpart of `TokenTrie` made of nested dictionaries.

    Attributes:
        children: Children by token id.
        ends: Indices of the given sequences that end here.
    """

    children: dict[int, NestedTrie] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]]) -> NestedTrie:
        """Return the trie of some sequences."""
        root = cls()
        for index, sequence in enumerate(sequences):
            node = root
            for token in sequence:
                node = node.children.setdefault(int(token), cls())
            node.ends.append(index)
        return root

    def walk(self, prefix: Path = ()) -> list[tuple[Path, NestedTrie]]:
        """Return every node with its path, depth-first, children by token id."""
        nodes = [(prefix, self)]
        for token in sorted(self.children):
            nodes += self.children[token].walk((*prefix, token))
        return nodes


def score_paths_alone(model: Model, context: Sequence[int], paths: Iterable[Sequence[int]]) -> list[list[float]]:
    """Return the log-probabilities of each path's tokens after the context.

    Each path is evaluated alone from the empty tree with the port's `extend`, one
    unbranched run per call, and forgotten afterwards. The model must be empty.
    """
    return [_score_alone(model, [int(t) for t in context], [int(t) for t in path]) for path in paths]


def _score_alone(model: Model, context: list[int], path: list[int]) -> list[float]:
    """Return the log-probability of each token of one path, as `score_paths_alone`."""
    run, held = (context + path)[:-1], [ROOT]
    logp: list[float] = []
    step = model.limits.rows_per_call
    for start in range(0, len(run), step):
        part = run[start : start + step]
        parents = np.array([held[-1], *(~i for i in range(len(part) - 1))], dtype=np.int32)
        wanted = [start + i >= len(context) - 1 for i in range(len(part))]
        is_last = [i == len(part) - 1 for i in range(len(part))]
        extension = model.extend(parents, np.array(part, dtype=np.int32), np.array(wanted), np.array(is_last))
        held += extension.nodes.tolist()
        n = sum(wanted)
        rows = extension.rows.fetch(partial(Reads.everything, n))
        logp += [float(rows.logp(i, path[len(logp) + i])) for i in range(n)]
    model.release(np.array(held[1:], dtype=np.int32), forget=True)
    return logp


def probabilities(model: FakeModel, path: Sequence[int]) -> list[float]:
    """Return the softmax of the row after a token path, V floats."""
    logits = [float(x) for x in model.row(path)]
    peak = max(logits)
    weights = [exp(x - peak) for x in logits]
    total = fsum(weights)
    return [w / total for w in weights]


@dataclass(frozen=True, slots=True)
class ExactTexts:
    """The exact probabilities of paths, as `enumerate_table` computes them.

    Attributes:
        joint: Probability that the text starts with each path.
        longest: Probability that each path is the longest one that the text starts
            with.
        none: Probability that the text starts with no path.
    """

    joint: tuple[float, ...]
    longest: tuple[float, ...]
    none: float


def enumerate_table(model: FakeModel, context: Sequence[int], paths: Sequence[Sequence[int]]) -> ExactTexts:
    """Return the exact probabilities of `paths`, by enumerating texts.

    All texts of the longest path's length are compared with the paths, and each counts
    with its probability. Equal paths each get the full probability. There are V **
    length texts, of which those of probability 0 are skipped, so this is for short
    paths.
    """
    targets = [tuple(int(t) for t in path) for path in paths]
    texts = _all_texts(model, tuple(int(t) for t in context), max(map(len, targets)))
    joint, longest, none = [[0.0] for _ in targets], [[0.0] for _ in targets], [0.0]
    for text, p in texts:
        matches = [i for i, path in enumerate(targets) if text[: len(path)] == path]
        for i in matches:
            joint[i].append(p)
        longest_match = max((len(targets[i]) for i in matches), default=None)
        if longest_match is None:
            none.append(p)
        for i in matches:
            if len(targets[i]) == longest_match:
                longest[i].append(p)
    return ExactTexts(tuple(map(fsum, joint)), tuple(map(fsum, longest)), fsum(none))


def _all_texts(model: FakeModel, context: Path, length: int) -> list[tuple[Path, float]]:
    """Return every path of `length` tokens after a context, with its probability."""
    if length == 0:
        return [((), 1.0)]
    texts = []
    for token, p in enumerate(probabilities(model, context)):
        if p > 0:
            texts += [((token, *rest), p * q) for rest, q in _all_texts(model, (*context, token), length - 1)]
    return texts


def naive_joint(model: FakeModel, context: Sequence[int], paths: Iterable[Sequence[int]]) -> list[float]:
    """Return for each path the sum of its tokens' log-probabilities.

    Each token is evaluated with its full context.
    """
    return [
        fsum(_log(probabilities(model, [*context, *path[:i]])[path[i]]) for i in range(len(path))) for path in paths
    ]


def naive_local(model: FakeModel, context: Sequence[int], paths: Sequence[Sequence[int]]) -> list[float]:
    """Return the log-probability of each path under masked step-by-step choice.

    At each step the probabilities are renormalised over the tokens that the set of
    paths allows there. If a path ends where others continue, ending gets the
    probability of all tokens that continue none of them.
    """
    logp = [-inf] * len(paths)
    _walk_local(model, tuple(context), NestedTrie.of(paths), 0.0, logp)
    return logp


def _walk_local(model: FakeModel, context: Path, node: NestedTrie, so_far: float, logp: list[float]) -> None:
    """Set `logp` of the paths that end at or below `node`, as `naive_local` defines it.

    `so_far` is the log-probability of the path up to `node`.
    """
    p = probabilities(model, context) if node.children else []
    goes_on = fsum(p[token] for token in node.children)
    ends = fsum(p[token] for token in range(len(p)) if token not in node.children) if node.children else 1.0
    allowed = goes_on + (ends if node.ends else 0.0)
    for index in node.ends:
        logp[index] = so_far + _log(ends / allowed if allowed else 0.0)
    for token, child in node.children.items():
        step = _log(p[token] / allowed if allowed else 0.0)
        _walk_local(model, (*context, token), child, so_far + step, logp)


def naive_unless_continued(model: FakeModel, context: Sequence[int], paths: Sequence[Sequence[int]]) -> list[float]:
    """Return for each path the log-probability that no longer path continues it.

    That is, the log of the probability that, among the paths that the text starts with,
    this one is the longest. It is computed by recursion over the set of paths.
    """
    logp = [-inf] * len(paths)
    _walk_continued(model, tuple(context), NestedTrie.of(paths), 0.0, logp)
    return logp


def _walk_continued(model: FakeModel, context: Path, node: NestedTrie, so_far: float, logp: list[float]) -> float:
    """Set `logp` of the paths that end at or below `node`.

    `so_far` is the log-probability of the tokens up to `node`. Returns the conditional
    probability, given `node`, that the text goes on to no path that ends below it.
    """
    p = probabilities(model, context) if node.children else [1.0]
    leaves = [p[token] for token in range(len(p)) if token not in node.children]
    for token, child in node.children.items():
        below = _walk_continued(model, (*context, token), child, so_far + _log(p[token]), logp)
        if not child.ends:
            leaves.append(p[token] * below)
    for index in node.ends:
        logp[index] = so_far + _log(fsum(leaves))
    return fsum(leaves)


def naive_spelled(model: FakeModel, context: Sequence[int], text: bytes, *, ends: bool) -> float:
    """Return the probability of a text over all token sequences that spell it.

    They are enumerated. Tokens without bytes, control tokens and end-of-generation
    tokens spell nothing.

    Args:
        model: The model.
        context: The tokens before the text.
        text: The bytes to spell.
        ends: Whether the tokens spell exactly the text and an end-of-generation token
            follows. Otherwise their bytes begin with the text.
    """
    vocabulary, path = model.vocabulary, tuple(int(t) for t in context)
    p = probabilities(model, path)
    if not text:
        return fsum(p[token] for token in set(vocabulary.eog.tolist())) if ends else 1.0
    silent = {*vocabulary.eog.tolist(), *vocabulary.control.tolist()}
    parts = []
    for token, piece in enumerate(vocabulary.pieces):
        if not piece or token in silent or not p[token]:
            continue
        if not ends and piece.startswith(text):
            parts.append(p[token])
        elif text.startswith(piece):
            parts.append(p[token] * naive_spelled(model, (*path, token), text[len(piece) :], ends=ends))
    return fsum(parts)


def _log(p: float) -> float:
    return log(p) if p > 0 else -inf
