"""The first text of a search on an automaton.

It is the text of masked greedy decoding, then the tokenizer's own tokens for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT
from selectrie.decoding.automaton.path_tree import PathNodes

Grow = Callable[[int, int, float], int]
"""Maps (parent, token, logp) to the node of the token after its parent."""
LogpOf = Callable[[int, int], float | None]
"""Maps (evaluated parent, token) to the token's log-probability, None if forgotten."""


class FirstPath:
    """Follows masked greedy decoding through evaluated nodes to an early text.

    Other texts are compared with that text. The path ends where no allowed token is as
    probable as the end of generation. If its tokens are not those that count
    (`canonical_path` gives others for its text), those are followed next.

    Attributes:
        greedy: The last node of the greedy path so far.
        greedy_ended: Whether the greedy path is a text.
    """

    def __init__(
        self, nodes: PathNodes, logp_of: LogpOf, grow: Grow, own: Callable[[Sequence[int]], Sequence[int]] | None
    ) -> None:
        self._nodes, self._logp_of, self._grow, self._own = nodes, logp_of, grow, own
        self.greedy, self.greedy_ended = ROOT, False
        self._others: Sequence[int] | None = None
        self._at = ROOT

    @property
    def at(self) -> int:
        """Return the last node that the path was followed to."""
        return self._at

    def follow(self, *, ends_by_token: bool) -> int:
        """Return the last node of the path, or `NO_NODE` if it leads nowhere.

        If the node is not evaluated, its row is needed to go on.
        """
        if not self.greedy_ended and self._others is None:
            self._at = self._follow_greedy(ends_by_token=ends_by_token)
            if not self.greedy_ended:
                return self._at
        if self._others is None:
            path = self._nodes.tokens(self.greedy)
            own = path if self._own is None else list(self._own(path))
            self._others, self._at = (own, ROOT) if own != path else ((), self.greedy)
        return self._follow_others(self._others)

    def turn_to(self, tokens: Sequence[int]) -> None:
        """Follow these tokens from now on, starting at the root."""
        self._others, self._at = tokens, ROOT

    def _follow_greedy(self, *, ends_by_token: bool) -> int:
        nodes = self._nodes
        while not self.greedy_ended and nodes.evaluated[self.greedy]:
            node = self.greedy
            if nodes.can_end[node] and nodes.eog_logp[node] >= nodes.best_logp[node]:
                self.greedy_ended = True
            elif nodes.best_token[node] == NO_TOKEN:
                return NO_NODE
            else:
                self.greedy = self._grow(node, int(nodes.best_token[node]), float(nodes.best_logp[node]))
                if nodes.can_end[self.greedy] and not nodes.goes_on[self.greedy] and not ends_by_token:
                    self.greedy_ended = True
        return self.greedy

    def _follow_others(self, tokens: Sequence[int]) -> int:
        nodes = self._nodes
        while nodes.evaluated[self._at] and nodes.depth[self._at] < len(tokens):
            token = tokens[int(nodes.depth[self._at])]
            logp = self._logp_of(self._at, token)
            if logp is None:  # too improbable to be remembered
                return NO_NODE
            self._at = self._grow(self._at, token, logp)
        return self._at
