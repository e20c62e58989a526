"""What a beam search knows of its paths: the tree they make, and the texts that were finished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT
from selectrie.decoding.healed_bytes import NOTHING_HEALED, Healed

_NO_STATE = -1


class PathTree:
    """Every path that was taken up, as one tree in flat columns; a node is the path to
    it. Node 0 is the prompt's end.

    up: number of the parent. token. depth: tokens. n_healed: healed bytes still to be
    spelt; n_text: tokens that spell more than such bytes. edge: log-probability of the
    token after its parent. logp: float, sum of the edges from the root on. state: of
    the automaton. rank: place among the paths of its step in the order of their tokens,
    so that what is compared token by token is compared by (rank of the parent, token).
    """

    def __init__(self, state: int, healed: Healed = NOTHING_HEALED) -> None:
        self.up, self.token, self.depth = [NO_NODE], [NO_TOKEN], [0]
        self._healed, self.n_healed, self.n_text = healed, [healed.n_bytes], [0]
        self.edge, self.logp, self.state, self.rank = [0.0], [0.0], [state], [0]
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.up)

    def find(self, parent: int, token: int) -> int:
        """The node of a token after a node, or NO_NODE."""
        return self._children.get((parent, token), NO_NODE)

    def add(self, parent: int, token: int, logp: float, state: int) -> int:
        """A new node; logp: of the token after the parent."""
        node = self.add_outside(parent, token, logp)
        self._children[parent, token] = node
        self.state[node] = state
        return node

    def add_outside(self, parent: int, token: int, logp: float) -> int:
        """A new node that the automaton does not lead to; it is not found as a child, and has no state."""
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
        """Distinct nodes of one step in the order of their tokens; their ranks are set."""
        ordered = sorted(set(nodes), key=lambda node: (self.rank[self.up[node]] if node else 0, self.token[node]))
        for rank, node in enumerate(ordered):
            self.rank[node] = rank
        return ordered

    def way(self, node: int) -> list[int]:
        """The nodes from the first token to this one."""
        found: list[int] = []
        while node != ROOT:
            found.append(node)
            node = self.up[node]
        return found[::-1]

    def path(self, node: int) -> tuple[int, ...]:
        """The tokens of a path."""
        return tuple(self.token[step] for step in self.way(node))


Key = tuple[bytes | int, ...]
"""What makes two paths one text: their bytes, and the control tokens between them."""


@dataclass(slots=True, eq=False)
class Finished:
    """One text that was finished. paths: their nodes, and the joint of each. logp: of the text."""

    key: Key
    paths: dict[int, float] = field(default_factory=dict)
    logp: float = -np.inf
    best: int = NO_NODE
    score: float = -np.inf


class Pool:
    """The texts that were finished so far, and when the first n of them are certain.

    merges: joints of the paths of a text are added up; else the best path stands for it. Ties go by the order of tokens.
    """

    def __init__(self, tree: PathTree, n: int, length_penalty: float, *, merges: bool) -> None:
        self._tree, self._n, self._penalty, self.merges = tree, n, length_penalty, merges
        self.texts: dict[Key, Finished] = {}
        self._kth: float | None = None

    def add(self, node: int, logp: float, key: Key) -> None:
        """Take in a finished path of this joint; a path that is there already changes nothing."""
        text = self.texts.setdefault(key, Finished(key))
        if node in text.paths:
            return
        text.paths[node] = logp
        if text.best == NO_NODE or self._place(text, node) < self._place(text, text.best):
            text.best = node
        # Sorted, so that the sum does not depend on the order in which paths were finished.
        text.logp = add_up(sorted(text.paths.values())) if self.merges else text.paths[text.best]
        text.score = self.score(text.logp, self._tree.n_text[text.best])
        self._kth = None

    def _place(self, text: Finished, node: int) -> tuple[float, tuple[int, ...]]:
        """Ascending: which path of a text comes first. Where they are added up, the most probable one; else the best."""
        logp = text.paths[node]
        return -(logp if self.merges else self.score(logp, self._tree.n_text[node])), self._tree.path(node)

    def score(self, logp: float, n_tokens: int) -> float:
        """By which texts are ordered: logp / n_tokens ** length_penalty, a path of no token counted as one."""
        return logp / max(1, n_tokens) ** self._penalty if self._penalty else logp

    @property
    def kth(self) -> float:
        """Score of the n-th best text; -inf where there are fewer."""
        if self._kth is None:
            scores = sorted((text.score for text in self.texts.values()), reverse=True)
            self._kth = scores[self._n - 1] if len(scores) >= self._n else -np.inf
        return self._kth

    @property
    def n_paths(self) -> int:
        return sum(len(text.paths) for text in self.texts.values())

    def ranked(self) -> list[Finished]:
        """All texts, best first."""
        return sorted(self.texts.values(), key=lambda text: (-text.score, self._tree.path(text.best)))

    def is_settled(self, bound: float, log_open: float, longest: int) -> bool:
        """Can nothing unfinished change which texts are the first n?

        bound: the best score that an unfinished path can reach. log_open: log of the summed probability of all of them, of
        which any text may gain everything where paths are added up. longest: tokens of a path.
        """
        if self.kth == -np.inf:
            return bound == -np.inf
        if not self.merges:
            return self.kth >= bound
        rivals = [log_open, *(float(np.logaddexp(t.logp, log_open)) for t in self.ranked()[self._n :])]
        return self.kth >= max(self.bound(rival, 0, longest) for rival in rivals)

    def bound(self, logp: float, depth: int, longest: int) -> float:
        """The best score that a path of this joint can reach: it may grow to the longest, and becomes no more probable."""
        return self.score(logp, longest if logp <= 0 else depth)


def add_up(logps: Iterable[float]) -> float:
    """Log of the summed probability; -inf for none."""
    total = -np.inf
    for logp in logps:
        total = float(np.logaddexp(total, logp))
    return total
