"""One growing tree of the token paths of an automaton that a search has looked at."""

from __future__ import annotations

from collections.abc import Iterable

from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT
from selectrie.decoding.healed_bytes import NOTHING_HEALED, Healed

NO_STATE = -1
"""State of a node that the automaton does not lead to; only its row is of interest."""


class PathTree:
    """A tree of token paths in flat columns, with parents before children.

    A node stands for the path that ends with its token. Node 0 is the end of the
    prompt, in the automaton's first state.

    Attributes:
        parent, token: As in `TokenTrie`.
        depth: Number of tokens of the path.
        n_healed: Number of healed bytes that the path has not spelt yet.
        n_text: Number of tokens that spell more than healed bytes.
        edge: Log-probability of the token after its parent.
        logp: Sum of the edges from the root.
        state: State of the automaton after the path.
        rank: Position among the paths of its step in the order of their tokens. Paths
            are compared token by token through (rank of the parent, token).
        evaluated: Whether the node's row was read. The search sets this and the next
            two.
        can_end: Whether the automaton accepts the path.
        goes_on: Whether the automaton allows another token.
    """

    def __init__(self, state: int, healed: Healed = NOTHING_HEALED) -> None:
        self.parent, self.token, self.depth = [NO_NODE], [NO_TOKEN], [0]
        self._healed, self.n_healed, self.n_text = healed, [healed.n_bytes], [0]
        self.edge, self.logp, self.state, self.rank = [0.0], [0.0], [state], [0]
        self.evaluated, self.can_end, self.goes_on = [False], [False], [False]
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.parent)

    def find(self, parent: int, token: int) -> int:
        """Return the node of a token after a node, or NO_NODE."""
        return self._children.get((parent, token), NO_NODE)

    def add(self, parent: int, token: int, logp: float, state: int) -> int:
        """Add a node and return its number.

        Args:
            logp: Log-probability of the token after the parent.
        """
        node = self._children[parent, token] = self.add_beside(parent, token, logp, state)
        return node

    def add_beside(self, parent: int, token: int, logp: float, state: int = NO_STATE) -> int:
        """Add a node that `find` does not return, and return its number."""
        self.parent.append(parent)
        self.token.append(token)
        self.depth.append(self.depth[parent] + 1)
        left, counts = self._healed.after(self.n_healed[parent], token)
        self.n_healed.append(left)
        self.n_text.append(self.n_text[parent] + counts)
        self.edge.append(logp)
        self.logp.append(self.logp[parent] + logp)
        self.state.append(state)
        for column in (self.evaluated, self.can_end, self.goes_on):
            column.append(False)
        self.rank.append(0)
        return len(self) - 1

    def order(self, nodes: Iterable[int]) -> list[int]:
        """Return distinct nodes of one step ordered by tokens, and set their ranks."""
        ordered = sorted(set(nodes), key=lambda node: (self.rank[self.parent[node]], self.token[node]))
        for rank, node in enumerate(ordered):
            self.rank[node] = rank
        return ordered

    def path(self, node: int) -> list[int]:
        """Return the nodes of the path to `node`, from the first token on."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self.parent[node]
        return nodes[::-1]

    def tokens(self, node: int) -> tuple[int, ...]:
        """Return the tokens of the path to `node`."""
        return tuple(self.token[step] for step in self.path(node))
