"""Stores the scores of many choices as arrays; makes a `ChoiceScore` on access."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, BoolArray, FloatArray, IntArray, OffsetArray
from selectrie.errors import InternalError
from selectrie.results.plain import bytes_fields, numbers
from selectrie.results.records import ChoiceScore, TokenScore

_TRIE_COLUMNS = ("token", "parent", "path_node", "path_of")
_COLUMNS = (
    "logp",
    "score",
    "probability",
    "probability_low",
    "probability_high",
    "logp_upper",
    "logp_terminator",
    "logp_local",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ChoiceTable(Sequence[ChoiceScore]):
    """C scored choices in the caller's order, as a `Sequence[ChoiceScore]` over arrays.

    The record of a choice is made when it is accessed. Arrays are not copied; the table
    has read-only views of them. **NaN means "pruned"** (not scored to the end); -inf
    means probability 0. Choices with equal paths have equal values in every column.
    Their probability counts only once in the sum.

    Raises `InternalError` if the lengths of the arguments disagree.

    Attributes:
        texts: The C choices as given.
        trie: The evaluated paths; `trie.path_of` has length C.
        edge_logp: float64[N], log-probability of each node's token given its parent;
            NaN if not evaluated. The value of node 0 is ignored.
        pieces: Bytes of each token id (`Vocabulary.pieces`).
        logp: float64[C], raw joint log-probability, with the terminator, without
            priors, minus the log-probability of the healed bytes. A rescored choice has
            its new value. `logp` and `score` are NaN for exactly the pruned choices.
        logp_upper: float64[C], as in `ChoiceScore`. If rows are not partial and it is
            above the logp of a finished choice, logp is midway to the lower bound.
        logp_terminator: float64[C], the terminator's part of logp.
        score: float64[C], the score by the rule, prior included.
        probability: float64[C], as in `ChoiceScore`.
        probability_low: float64[C], as in `ChoiceScore`.
        probability_high: float64[C], as in `ChoiceScore`.
        logp_local: float64[C], as in `ChoiceScore`; NaN if not evaluated.
        boundary_shift: int32[C], as in `ChoiceScore`.
        heal_gap: Maximum error of the healed bytes' log-probability, by which each logp
            may be too high.
        has_unread: Whether scores depend on rows that are known only in part.
    """

    texts: Sequence[str]
    trie: TokenTrie
    edge_logp: FloatArray
    pieces: Sequence[bytes]
    logp: FloatArray
    logp_upper: FloatArray
    logp_terminator: FloatArray
    score: FloatArray
    probability: FloatArray
    probability_low: FloatArray
    probability_high: FloatArray
    logp_local: FloatArray
    boundary_shift: IntArray
    heal_gap: float = 0.0
    has_unread: bool = False
    _first: IntArray | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        n = len(self.texts)
        columns = {name: getattr(self, name) for name in (*_COLUMNS, "boundary_shift")}
        columns["trie.path_of"] = self.trie.path_of
        wrong = [f"{name}[{len(column)}]" for name, column in columns.items() if len(column) != n]
        if wrong or len(self.edge_logp) != len(self.trie.token):
            raise InternalError(f"{n} choices and {len(self.trie.token)} nodes, but {', '.join(wrong) or 'edge_logp'}")
        for name in (*_COLUMNS, "edge_logp"):
            object.__setattr__(self, name, _make_read_only(np.asarray(getattr(self, name), dtype=np.float64)))
        object.__setattr__(self, "boundary_shift", _make_read_only(np.asarray(self.boundary_shift, dtype=np.int32)))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def logp_lower(self) -> FloatArray:
        """Return float64[C], a lower bound of each log-probability; -inf if pruned."""
        return self._lower(slice(None))

    def _lower(self, at: int | slice) -> FloatArray:
        """Return the elements `at` of `logp_lower`."""
        logp, upper = self.logp[at], self.logp_upper[at]
        with np.errstate(invalid="ignore"):  # -inf - -inf
            below = 0.0 if self.has_unread else upper - logp
            return np.where(logp > -np.inf, logp - below - self.heal_gap, -np.inf)

    @overload
    def __getitem__(self, index: int) -> ChoiceScore: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ChoiceScore, ...]: ...
    def __getitem__(self, index: int | slice) -> ChoiceScore | tuple[ChoiceScore, ...]:
        if isinstance(index, slice):
            return self.pick(range(*index.indices(len(self))))
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"choice {position} of {len(self)}")
        return self._make_record(position % len(self))

    def __eq__(self, other: object) -> bool:
        """Return whether texts, paths and all columns are equal, bit by bit."""
        if not isinstance(other, ChoiceTable):
            return NotImplemented
        mine, theirs = self.trie, other.trie
        return (
            tuple(self.texts) == tuple(other.texts)
            and (self.heal_gap, self.has_unread) == (other.heal_gap, other.has_unread)
            and all(np.array_equal(getattr(mine, name), getattr(theirs, name)) for name in _TRIE_COLUMNS)
            and all(
                np.array_equal(getattr(self, name), getattr(other, name), equal_nan=True)
                for name in (*_COLUMNS, "edge_logp", "boundary_shift")
            )
        )

    def __hash__(self) -> int:
        return hash((len(self), *self.texts[:8]))

    def __repr__(self) -> str:
        return f"<{len(self)} choices, {int(self.finished.sum())} scored>"

    @property
    def first(self) -> IntArray:
        """Return the lowest index of the choices on each path, int32[P]."""
        if self._first is not None:
            return self._first
        first = np.zeros(len(self.trie.path_node), dtype=np.int32)
        # The last assignment to a path wins.
        first[self.trie.path_of[::-1]] = np.arange(len(self) - 1, -1, -1, dtype=np.int32)
        first.flags.writeable = False
        object.__setattr__(self, "_first", first)
        return first

    @property
    def finished(self) -> BoolArray:
        """Return bool[C], the choices that were not pruned."""
        return np.asarray(~np.isnan(self.score))

    @property
    def distinct(self) -> BoolArray:
        """Return bool[C], the choices that are the first on their path."""
        return np.asarray(self.first[self.trie.path_of] == np.arange(len(self)))

    def order(self, k: int | None = None) -> OffsetArray:
        """Return the indices of choices, best first, as int64[min(k, C)].

        Exact ties are ordered by index. Pruned choices come last, by their upper bound.
        """
        n = len(self)
        if k is not None and k < n // 4:
            keys = np.where(np.isnan(self.score), -np.inf, self.score)
            threshold = np.partition(keys, n - max(k, 1))[n - max(k, 1)]
            if threshold > -np.inf:
                near = np.flatnonzero(keys >= threshold)
                return np.asarray(near[np.argsort(-keys[near], kind="stable")][:k], dtype=np.int64)
        pruned = np.isnan(self.score)
        worst_first = np.where(pruned, self.logp_upper, self.score)
        return np.asarray(np.lexsort((-worst_first, pruned))[:k], dtype=np.int64)

    def margin(self, index: int) -> float:
        """Return the score of choice `index` minus the best score on another path.

        Pruned choices are ignored. The result is inf if no other path has a choice.
        """
        path_of = self.trie.path_of
        others = self.score[self.finished & (path_of != path_of[index])]
        best = float(others.max(initial=-np.inf))
        mine = float(self.score[index])
        return 0.0 if mine == best else mine - best

    def duplicates(self, index: int) -> tuple[int, ...]:
        """Return the indices of all choices with the path of choice `index`."""
        return tuple(np.flatnonzero(self.trie.path_of == self.trie.path_of[index]).tolist())

    def pick(self, indices: Iterable[int]) -> tuple[ChoiceScore, ...]:
        """Return the records of the choices with these indices."""
        return tuple(self._make_record(int(i)) for i in indices)

    def _make_record(self, i: int) -> ChoiceScore:
        """Return the record of choice `i`."""
        path = int(self.trie.path_of[i])
        first, text = int(self.first[path]), self.texts[i]
        value = {name: float(getattr(self, name)[i]) for name in _COLUMNS}
        pruned = np.isnan(value["score"])
        return ChoiceScore(
            index=i,
            text=text,
            duplicate_of=None if first == i else first,
            logp=_replace_nan(value["logp"]),
            logp_upper=value["logp_upper"],
            logp_terminator=_replace_nan(value["logp_terminator"]),
            score=_replace_nan(value["score"]),
            probability=_replace_nan(value["probability"]),
            probability_low=value["probability_low"],
            probability_high=value["probability_high"],
            logp_local=_replace_nan(value["logp_local"]),
            tokens=() if pruned else self.tokens(path),
            n_chars=len(text),
            n_bytes=len(text.encode("utf-8", "surrogatepass")),
            boundary_shift=int(self.boundary_shift[i]),
            logp_lower=float(self._lower(i)),
        )

    def tokens(self, path: int) -> tuple[TokenScore, ...]:
        """Return the tokens of one path, with NaN for edges that were not evaluated."""
        nodes = []
        node = int(self.trie.path_node[path])
        while node != ROOT:
            nodes.append(node)
            node = int(self.trie.parent[node])
        ids = self.trie.token[nodes[::-1]].tolist() if nodes else []
        return tuple(
            TokenScore(token, self.pieces[token], logp)
            for token, logp in zip(ids, self.edge_logp[nodes[::-1]].tolist() if nodes else [], strict=True)
        )

    def to_dicts(self) -> list[dict[str, object]]:
        """Return a dictionary ready for JSON for each choice, in the caller's order."""
        first = self.first[self.trie.path_of]
        index = np.arange(len(self))
        columns: dict[str, list[Any]] = {name: numbers(getattr(self, name)) for name in _COLUMNS}
        duplicate_of = first.astype(object)
        duplicate_of[first == index] = None
        if (self.logp_lower < self.logp).any():
            columns["logp_lower"] = numbers(self.logp_lower)
        columns["duplicate_of"] = duplicate_of.tolist()
        columns["boundary_shift"] = self.boundary_shift.tolist()
        rows = zip(*columns.values(), strict=True)
        return [
            {"text": text, **dict(zip(columns, row, strict=True)), "tokens": tokens}
            for text, row, tokens in zip(self.texts, rows, self._make_token_dicts(), strict=True)
        ]

    def _make_token_dicts(self) -> list[list[dict[str, object]]]:
        """Return the tokens of each choice as dictionaries; empty if pruned."""
        nodes, offsets = _list_path_nodes(self.trie)
        shown = self.finished.tolist()
        bounds, path_of = offsets.tolist(), self.trie.path_of.tolist()
        ids, logps = self.trie.token[nodes].tolist(), numbers(self.edge_logp[nodes])
        piece_fields = {token: bytes_fields("piece", self.pieces[token]) for token in set(ids)}
        return [
            [
                {"id": ids[j], "logp": logps[j], **piece_fields[ids[j]]}
                for j in range(bounds[p], bounds[p + 1] if seen else 0)
            ]
            for p, seen in zip(path_of, shown, strict=True)
        ]


def _list_path_nodes(trie: TokenTrie) -> tuple[IntArray, OffsetArray]:
    """Return the nodes of all paths, and the offsets of each path among them.

    The nodes are a flat int32 array, from below the root to the end of each path. Path
    p has the nodes from offset p to offset p + 1; offsets are int64[P+1].
    """
    lengths = trie.depth[trie.path_node].astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    nodes = np.empty(int(offsets[-1]), dtype=np.int32)
    alive = np.flatnonzero(lengths)
    current = trie.path_node[alive]
    at = offsets[1:][alive] - 1
    while len(current):
        nodes[at] = current
        current = trie.parent[current]
        below = current != ROOT
        current, at = current[below], at[below] - 1
    return nodes, offsets


def _make_read_only(array: Any) -> Any:
    """Return a read-only view of an array, or the array if it is read-only."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _replace_nan(x: float) -> float | None:
    """Return a number, or None for NaN."""
    return None if np.isnan(x) else x
