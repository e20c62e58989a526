"""The first text of a search on an automaton: masked greedy decoding, and the tokenizer's own tokens of what that writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT
from selectrie.decoding.automaton.path_tree import PathNodes

Grow = Callable[[int, int, float], int]
"""(parent, token, logp) -> the node of the token after its parent."""
LogpOf = Callable[[int, int], float | None]
"""(evaluated parent, token) -> log-probability of the token, None where it was forgotten."""


class FirstPath:
    """Follows masked greedy decoding through the nodes that were evaluated, to a text that others are compared with early.

    It ends where no allowed token is as probable as the end of generation. Where its tokens are not those that count
    (`own` has others for its text), these are followed then.

    greedy: the last node of it so far. greedy_ended: it is a text.
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
        """The node that it was followed to."""
        return self._at

    def follow(self, *, ends_by_token: bool) -> int:
        """The last node of the path; where it is not evaluated, it is the one that is needed. `NO_NODE`: it leads nowhere."""
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
        """Follow these tokens from here on, wherever it was."""
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
