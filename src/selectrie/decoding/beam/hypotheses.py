"""The texts that a beam search has finished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from selectrie.core.types import NO_NODE
from selectrie.decoding.path_tree import PathTree

Key = tuple[bytes | int, ...]
"""What makes two paths the same text: their bytes and control tokens."""


@dataclass(slots=True, eq=False)
class Finished:
    """A text that a beam search finished.

    Attributes:
        key: The text's bytes and control tokens, which identify it.
        paths: The joint of each of its paths, by the path's last node.
        logp: Log-probability of the text.
        best: The last node of its best path.
        score: The score by which texts are ordered.
    """

    key: Key
    paths: dict[int, float] = field(default_factory=dict)
    logp: float = -np.inf
    best: int = NO_NODE
    score: float = -np.inf


class FinishedHypotheses:
    """The texts finished so far, of which the n best are looked for.

    Ties are ordered by their tokens.

    Args:
        merges: Whether the joints of a text's paths are added up. Otherwise the best
            path represents the text.
    """

    def __init__(self, tree: PathTree, n: int, length_penalty: float, *, merges: bool) -> None:
        self._tree, self._n, self._penalty, self.merges = tree, n, length_penalty, merges
        self.texts: dict[Key, Finished] = {}
        self._kth: float | None = None

    def add(self, node: int, logp: float, key: Key) -> None:
        """Add the finished path of `node` with the joint `logp`, unless it is known."""
        text = self.texts.setdefault(key, Finished(key))
        if node in text.paths:
            return
        text.paths[node] = logp
        if text.best == NO_NODE or self._rank_key(text, node) < self._rank_key(text, text.best):
            text.best = node
        # Sorted, so that the sum does not depend on the order in which paths were
        # finished.
        text.logp = add_up(sorted(text.paths.values())) if self.merges else text.paths[text.best]
        text.score = self.score(text.logp, self._tree.n_text[text.best])
        self._kth = None

    def _rank_key(self, text: Finished, node: int) -> tuple[float, tuple[int, ...]]:
        """Return the key by which the paths of a text are sorted, the best one first.

        If joints are added up, the most probable path is the best, else the one with
        the best score.
        """
        logp = text.paths[node]
        return -(logp if self.merges else self.score(logp, self._tree.n_text[node])), self._tree.tokens(node)

    def score(self, logp: float, n_tokens: int) -> float:
        """Return the score of a text: logp / n_tokens ** length_penalty.

        A path without tokens counts as one token.
        """
        return logp / max(1, n_tokens) ** self._penalty if self._penalty else logp

    @property
    def kth(self) -> float:
        """Return the score of the n-th best text; -inf if there are fewer."""
        if self._kth is None:
            scores = sorted((text.score for text in self.texts.values()), reverse=True)
            self._kth = scores[self._n - 1] if len(scores) >= self._n else -np.inf
        return self._kth

    @property
    def n_paths(self) -> int:
        return sum(len(text.paths) for text in self.texts.values())

    def ranked(self) -> list[Finished]:
        """Return all texts, best first."""
        return sorted(self.texts.values(), key=lambda text: (-text.score, self._tree.tokens(text.best)))

    def is_settled(self, bound: float, log_open: float, longest: int) -> bool:
        """Return whether no unfinished path can change which texts are the first n.

        Args:
            bound: The best score that an unfinished path can reach.
            log_open: Log of the summed probability of all unfinished paths. If joints
                are added up, any text may gain all of it.
            longest: Maximum number of tokens of a path.
        """
        if self.kth == -np.inf:
            return bound == -np.inf
        if not self.merges:
            return self.kth >= bound
        rivals = [log_open, *(float(np.logaddexp(t.logp, log_open)) for t in self.ranked()[self._n :])]
        return self.kth >= max(self.bound(rival, 0, longest) for rival in rivals)

    def bound(self, logp: float, depth: int, longest: int) -> float:
        """Return the best score that an unfinished path with joint `logp` can reach.

        It may grow to the longest length, and it cannot become more probable.
        """
        return self.score(logp, longest if logp <= 0 else depth)


def add_up(logps: Iterable[float]) -> float:
    """Return the log of the summed probability of all `logps`; -inf for none."""
    total = -np.inf
    for logp in logps:
        total = float(np.logaddexp(total, logp))
    return total
