"""Finds a first text of a search on an automaton.

It is the text of masked greedy decoding, first on that path and then on the canonical
path of the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT
from selectrie.decoding.path_tree import PathTree

Grow = Callable[[int, int, float], int]
"""Maps (parent, token, logp) to the node of the token after its parent."""
LogpOf = Callable[[int, int], float | None]
"""Maps (evaluated parent, token) to the token's log-probability, None if forgotten."""


class RowEnds(NamedTuple):
    """The probabilities of a row with which masked greedy decoding ends or goes on.

    Attributes:
        end_logp: Log-probability of the end of the text: of the end of generation, or
            of no continuation.
        token, logp: The most probable allowed token, and its log-probability. NO_TOKEN
            if there is none, or if none was read; the second is then a bound.
    """

    end_logp: float
    token: int
    logp: float


class FirstPath:
    """Follows masked greedy decoding through evaluated nodes to an early text.

    The path ends where no allowed token is more probable than the end of the text. If
    `canonical_path` returns other tokens for its text, those are followed next.

    Attributes:
        greedy: The last node of the greedy path so far.
        greedy_ended: Whether the greedy path is a text.
        at: The last node of the path that is followed now.
    """

    def __init__(
        self,
        tree: PathTree,
        rows: Mapping[int, RowEnds],
        logp_of: LogpOf,
        grow: Grow,
        canonical_path: Callable[[Sequence[int]], Sequence[int]] | None = None,
    ) -> None:
        self._tree, self._rows, self._logp_of, self._grow = tree, rows, logp_of, grow
        self._canonical_path = canonical_path
        self.greedy, self.greedy_ended = ROOT, False
        self._others: Sequence[int] | None = None
        self.at = ROOT

    def follow(self, *, ends_by_token: bool) -> int:
        """Return the last node of the path, or `NO_NODE` if it leads nowhere.

        If the node is not evaluated, its row is needed to go on.
        """
        if not self.greedy_ended and self._others is None:
            self.at = self._follow_greedy(ends_by_token=ends_by_token)
            if not self.greedy_ended:
                return self.at
        if self._others is None:
            path = list(self._tree.tokens(self.greedy))
            canonical = path if self._canonical_path is None else list(self._canonical_path(path))
            self._others, self.at = (canonical, ROOT) if canonical != path else ((), self.greedy)
        return self._follow_others(self._others)

    def turn_to(self, tokens: Sequence[int]) -> None:
        """Follow these tokens from now on, starting at the root."""
        self._others, self.at = tokens, ROOT

    def _follow_greedy(self, *, ends_by_token: bool) -> int:
        tree = self._tree
        while not self.greedy_ended and tree.evaluated[self.greedy]:
            node, row = self.greedy, self._rows[self.greedy]
            if tree.can_end[node] and row.end_logp >= row.logp:
                self.greedy_ended = True
            elif row.token == NO_TOKEN:
                return NO_NODE
            else:
                self.greedy = self._grow(node, row.token, row.logp)
                if tree.can_end[self.greedy] and not tree.goes_on[self.greedy] and not ends_by_token:
                    self.greedy_ended = True
        return self.greedy

    def _follow_others(self, tokens: Sequence[int]) -> int:
        tree = self._tree
        while tree.evaluated[self.at] and tree.depth[self.at] < len(tokens):
            token = tokens[tree.depth[self.at]]
            logp = self._logp_of(self.at, token)
            if logp is None:  # too improbable to be remembered
                return NO_NODE
            self.at = self._grow(self.at, token, logp)
        return self.at
