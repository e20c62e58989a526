"""The finished texts of a search, and how many of the best are known."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class FoundPath:
    """One finished text. data: its bytes, those of the prompt not among them. tokens: int32[n], those that spell healed
    bytes included; token_logp: float64[n]. logp_terminator: what the end adds.

    logp: log-probability of tokens and end together, conditional on the healed bytes; of all `n_paths` token paths that were
    found of this text, of which `tokens` is the most probable. score: by the rule.
    """

    data: bytes
    tokens: IntArray
    token_logp: FloatArray
    logp_terminator: float
    logp: float
    score: float
    n_paths: int = 1


class FoundPaths:
    """Finished texts, the k-th best of which is always known.

    merges: paths of one text are one text, which counts with its best path; else each path is one of its own.
    """

    def __init__(self, k: int, *, merges: bool) -> None:
        self._k, self._merges = k, merges
        self._groups: dict[tuple[bytes, ...], list[FoundPath]] = {}
        self._order: list[tuple[float, tuple[bytes, ...]]] = []  # (minus best score, key), ascending

    def __len__(self) -> int:
        """Texts so far."""
        return len(self._order)

    def add(self, path: FoundPath) -> bool:
        """Take a path in; is it the best so far?"""
        key = (path.data,) if self._merges else (path.data, path.tokens.tobytes())
        group = self._groups.setdefault(key, [])
        best = max((one.score for one in group), default=-np.inf)
        is_first = not self._order or path.score > -self._order[0][0]
        if path.score > best:
            if group:
                del self._order[bisect_left(self._order, (-best, key))]
            insort(self._order, (-path.score, key))
        group.append(path)
        return is_first

    def kth(self) -> float:
        """Score of the k-th best text by its best path; -inf where fewer are known."""
        return -self._order[self._k - 1][0] if len(self._order) >= self._k else -np.inf

    def mass(self) -> float:
        """Summed probability of everything found."""
        return float(np.sum([np.exp(path.logp) for group in self._groups.values() for path in group]))

    def ranked(self) -> tuple[FoundPath, ...]:
        """The texts by the score of their best path, ties by bytes; those with several paths have their sum as logp."""
        return tuple(_merged(self._groups[key]) for _, key in self._order)


def _merged(group: list[FoundPath]) -> FoundPath:
    best = min(group, key=lambda path: (-path.score, path.tokens.tolist()))
    if len(group) == 1:
        return best
    return replace(best, logp=float(np.logaddexp.reduce([path.logp for path in group])), n_paths=len(group))
