"""What a beam search knows of its paths: their tree, and the finished texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT
from selectrie.decoding.healed_bytes import NOTHING_HEALED, Healed

_NO_STATE = -1


class PathTree:
    """All paths that were taken up, as one tree in flat columns.

    A node represents the path to it. Node 0 is the end of the prompt.

    Attributes:
        up: The number of the parent.
        token, depth: The last token, and the number of tokens.
        n_healed: Healed bytes that are still to be spelt.
        n_text: How many tokens spell more than such bytes.
        edge: Log-probability of the token after its parent.
        logp: Sum of the edges from the root.
        state: State of the automaton.
        rank: Position among the paths of its step in the order of their tokens. Paths
            are compared token by token through (rank of the parent, token).
    """

    def __init__(self, state: int, healed: Healed = NOTHING_HEALED) -> None:
        self.up, self.token, self.depth = [NO_NODE], [NO_TOKEN], [0]
        self._healed, self.n_healed, self.n_text = healed, [healed.n_bytes], [0]
        self.edge, self.logp, self.state, self.rank = [0.0], [0.0], [state], [0]
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.up)

    def find(self, parent: int, token: int) -> int:
        """Return the node of a token after a node, or NO_NODE."""
        return self._children.get((parent, token), NO_NODE)

    def add(self, parent: int, token: int, logp: float, state: int) -> int:
        """Add a node and return its number.

        Args:
            logp: Log-probability of the token after the parent.
        """
        node = self.add_outside(parent, token, logp)
        self._children[parent, token] = node
        self.state[node] = state
        return node

    def add_outside(self, parent: int, token: int, logp: float) -> int:
        """Add a node that the automaton does not lead to.

        It has no state and is not found as a child.
        """
        node = len(self.up)
        self.up.append(parent)
        self.token.append(token)
        self.depth.append(self.depth[parent] + 1)
        left, counts = self._healed.after(self.n_healed[parent], token)
        self.n_healed.append(left)
        self.n_text.append(self.n_text[parent] + counts)
        self.edge.append(logp)
        self.logp.append(self.logp[parent] + logp)
        self.state.append(_NO_STATE)
        self.rank.append(0)
        return node

    def order(self, nodes: Iterable[int]) -> list[int]:
        """Return one step's distinct nodes by their tokens, and set their ranks."""
        ordered = sorted(set(nodes), key=lambda node: (self.rank[self.up[node]] if node else 0, self.token[node]))
        for rank, node in enumerate(ordered):
            self.rank[node] = rank
        return ordered

    def way(self, node: int) -> list[int]:
        """Return the nodes from the first token to this one."""
        found: list[int] = []
        while node != ROOT:
            found.append(node)
            node = self.up[node]
        return found[::-1]

    def path(self, node: int) -> tuple[int, ...]:
        """Return the tokens of a path."""
        return tuple(self.token[step] for step in self.way(node))


Key = tuple[bytes | int, ...]
"""What makes two paths the same text: their bytes and control tokens."""


@dataclass(slots=True, eq=False)
class Finished:
    """One finished text.

    Attributes:
        key: What identifies the text.
        paths: The nodes of its paths, with the joint of each.
        logp: Log-probability of the text.
        best: The node of its best path.
        score: What texts are ordered by.
    """

    key: Key
    paths: dict[int, float] = field(default_factory=dict)
    logp: float = -np.inf
    best: int = NO_NODE
    score: float = -np.inf


class FinishedHypotheses:
    """The texts finished so far, which also tells when the first n are certain.

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
        """Add a finished path with this joint, unless it is already there."""
        text = self.texts.setdefault(key, Finished(key))
        if node in text.paths:
            return
        text.paths[node] = logp
        if text.best == NO_NODE or self._place(text, node) < self._place(text, text.best):
            text.best = node
        # Sorted, so that the sum does not depend on the order in which paths were
        # finished.
        text.logp = add_up(sorted(text.paths.values())) if self.merges else text.paths[text.best]
        text.score = self.score(text.logp, self._tree.n_text[text.best])
        self._kth = None

    def _place(self, text: Finished, node: int) -> tuple[float, tuple[int, ...]]:
        """Return the sort key of a text's paths, the smallest first.

        If joints are added up, the most probable path comes first, else the best.
        """
        logp = text.paths[node]
        return -(logp if self.merges else self.score(logp, self._tree.n_text[node])), self._tree.path(node)

    def score(self, logp: float, n_tokens: int) -> float:
        """Return what texts are ordered by: logp / n_tokens ** length_penalty.

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
        return sorted(self.texts.values(), key=lambda text: (-text.score, self._tree.path(text.best)))

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
        """Return the best score that a path with this joint can reach.

        It may grow to the longest length, and it cannot become more probable.
        """
        return self.score(logp, longest if logp <= 0 else depth)


def add_up(logps: Iterable[float]) -> float:
    """Return the log of the summed probability; -inf for none."""
    total = -np.inf
    for logp in logps:
        total = float(np.logaddexp(total, logp))
    return total
