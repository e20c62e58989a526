"""The finished texts of a search, ranked."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class FinishedPath:
    """One finished text.

    Attributes:
        data: Its bytes, without those of the prompt.
        tokens: int32[n], including those that spell healed bytes.
        token_logp: float64[n].
        logp_terminator: The log-probability that the end adds.
        logp: Log-probability of tokens and end together, conditional on the healed
            bytes. It covers all `n_paths` token paths found for this text, of which
            `tokens` is the best.
        score: The score by the rule.
        n_paths: How many token paths of this text were found.
    """

    data: bytes
    tokens: IntArray
    token_logp: FloatArray
    logp_terminator: float
    logp: float
    score: float
    n_paths: int = 1


class FinishedPaths:
    """Finished texts, the k-th best of which is always known.

    Args:
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
        """Return the score of the k-th best text by its best path.

        -inf if fewer than k texts are known.
        """
        return -self._order[self._k - 1][0] if len(self._order) >= self._k else -np.inf

    def mass(self) -> float:
        """Return the summed probability of everything found."""
        return float(np.sum([np.exp(path.logp) for group in self._groups.values() for path in group]))

    def ranked(self) -> tuple[FinishedPath, ...]:
        """Return the texts by the score of their best path, ties by bytes.

        The logp of a text with several paths is that of their sum.
        """
        return tuple(_merged(self._groups[key]) for _, key in self._order)


def _merged(group: list[FinishedPath]) -> FinishedPath:
    best = min(group, key=lambda path: (-path.score, path.tokens.tolist()))
    if len(group) == 1:
        return best
    return replace(best, logp=float(np.logaddexp.reduce([path.logp for path in group])), n_paths=len(group))
