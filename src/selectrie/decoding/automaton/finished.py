"""Ranks the finished texts of a search on an automaton."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class FinishedPath:
    """A text that a search finished, with its best path.

    Attributes:
        data: The text's bytes, without those of the prompt.
        tokens: int32[n], including those that spell healed bytes.
        token_logp: float64[n], the log-probability of each token.
        logp_terminator: Log-probability of the terminator.
        logp: Log-probability of the text and its terminator, given the healed bytes. It
            is the sum over all `n_paths` token paths found for this text, of which
            `tokens` is the best.
        logp_path: Log-probability of `tokens` and terminator alone, given the healed
            bytes.
        score: The score of the best path by the search's rule.
        n_paths: How many token paths of this text were found.
    """

    data: bytes
    tokens: IntArray
    token_logp: FloatArray
    logp_terminator: float
    logp: float
    logp_path: float
    score: float
    n_paths: int = 1


class FinishedPaths:
    """The finished texts of a search, and the score of the k-th best of them.

    Args:
        k: How many of the best texts are looked for.
        merges: Whether all paths of one text count as one text, with its best path.
            Otherwise each path counts separately.
    """

    def __init__(self, k: int, *, merges: bool) -> None:
        self._k, self._merges = k, merges
        self._groups: dict[tuple[bytes, ...], list[FinishedPath]] = {}
        # (minus best score, key), ascending.
        self._order: list[tuple[float, tuple[bytes, ...]]] = []

    def __len__(self) -> int:
        """Return how many texts there are so far."""
        return len(self._order)

    def add(self, path: FinishedPath) -> bool:
        """Add a path and return whether it is the best so far."""
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
        """Return the score of the k-th best text, which is that of its best path.

        -inf if fewer than k texts are known.
        """
        return -self._order[self._k - 1][0] if len(self._order) >= self._k else -np.inf

    def mass(self) -> float:
        """Return the summed probability of all paths found."""
        return float(np.sum([np.exp(path.logp) for group in self._groups.values() for path in group]))

    def ranked(self) -> tuple[FinishedPath, ...]:
        """Return the texts by the score of their best path, best first, ties by bytes.

        The `logp` of a text with several paths is the log of their summed probability.
        """
        return tuple(_merged(self._groups[key]) for _, key in self._order)


def _merged(group: list[FinishedPath]) -> FinishedPath:
    best = min(group, key=lambda path: (-path.score, path.tokens.tolist()))
    if len(group) == 1:
        return best
    return replace(best, logp=float(np.logaddexp.reduce([path.logp for path in group])), n_paths=len(group))
