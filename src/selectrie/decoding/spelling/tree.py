"""The tree of the prefixes of spellings whose rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from selectrie.core.reads import Reads
from selectrie.core.rows import Rows
from selectrie.core.types import NO_NODE, NO_TOKEN, FloatArray, IntArray
from selectrie.decoding.spelling.lattice import NO_EVENT, Lattice, Step
from selectrie.decoding.spelling.open_prefixes import OpenPrefixes
from selectrie.errors import ProtocolError


@dataclass(frozen=True, slots=True, eq=False)
class StepValues:
    """The values of a step, read from the row of one node.

    Attributes:
        logp: float64[n], the log-probability of each of `Step.tokens`.
        events: int64[m], events that happen right after the node.
        low, high: float64[m], bounds on the log-probability of that. They differ only
            where a row was not wholly read.
        named: The log-probability of each token that was named for the node.
    """

    logp: FloatArray
    events: IntArray
    low: FloatArray
    high: FloatArray
    named: Mapping[int, float]


class SpellingTree:
    """The prefixes whose rows are read, in flat columns, with parents before children.

    Node 0 is the end of the prompt, in state 0 of the lattice.

    Attributes:
        parent, token: As in `TokenTrie`.
        depth: Number of tokens of the prefix.
        state: State of the lattice after the prefix.
        logp: Log-probability of the prefix; NaN until the row of the parent was read.
        evaluated: Whether the row was read.
        values: What was read, None before.
    """

    def __init__(self, lattice: Lattice) -> None:
        self._lattice = lattice
        self.parent, self.token, self.depth, self.state = [NO_NODE], [NO_TOKEN], [0], [0]
        self.logp, self.evaluated = [0.0], [False]
        self.values: list[StepValues | None] = [None]
        self._children: dict[tuple[int, int], int] = {}
        self._named: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self.parent)

    def find(self, parent: int, token: int) -> int:
        """Return the node of a token after a node, or `NO_NODE`."""
        return self._children.get((parent, token), NO_NODE)

    def child(self, parent: int, token: int, logp: float = np.nan) -> int:
        """Return the node of a token after a node; add it if there is none.

        Args:
            parent: The node before the token.
            token: One of the tokens of the parent's step.
            logp: Log-probability of the prefix, if it is known.

        Raises:
            ProtocolError: If no event is alive after the token.
        """
        node = self.find(parent, token)
        if node != NO_NODE:
            return node
        step = self.step(parent)
        index = int(np.searchsorted(step.tokens, token))
        if index == len(step.tokens) or step.tokens[index] != token:
            raise ProtocolError(f"token {token} after node {parent} spells none of the events")
        node = self._children[parent, token] = len(self)
        self.parent.append(parent)
        self.token.append(token)
        self.depth.append(self.depth[parent] + 1)
        self.state.append(int(step.states[index]))
        self.logp.append(logp)
        self.evaluated.append(False)
        self.values.append(None)
        return node

    def step(self, node: int) -> Step:
        """Return what may follow a node."""
        return self._lattice.step(self.state[node])

    def may_carry(self, node: int) -> bool:
        """Return whether a node may be the parent of others."""
        return len(self.step(node).tokens) > 0

    def name(self, node: int, token: int) -> None:
        """Have the log-probability of one more token read from the row of a node."""
        self._named.setdefault(node, []).append(token)

    def reads(self, node: int) -> Reads:
        """Return the `Reads` that `read` needs from the row of a node."""
        step = self.step(node)
        masses = [tokens for _, tokens in step.covering]
        masses += [self._lattice.eog] if step.ended != NO_EVENT else []
        named = np.array(self._named.get(node, ()), dtype=np.int32)
        return Reads.of_row(np.append(step.tokens, named), masses=masses)

    def read(self, node: int, rows: Rows, i: int) -> None:
        """Read row `i`, which is that of a node."""
        step = self.step(node)
        events = [event for event, _ in step.covering]
        bounds = [rows.log_mass_bounds(i, tokens) for _, tokens in step.covering]
        if step.ended != NO_EVENT:
            events.append(step.ended)
            bounds.append(rows.log_mass_bounds(i, self._lattice.eog))
        low, high = np.array(bounds, dtype=np.float64).reshape(len(bounds), 2).T
        named = self._named.get(node, [])
        pairs = zip(named, rows.logp(i, np.array(named, dtype=np.int32)).tolist(), strict=True)
        self.values[node] = StepValues(
            rows.logp(i, step.tokens), np.array(events, dtype=np.int32), low, high, dict(pairs)
        )
        self.evaluated[node] = True

    def read_values(self, node: int) -> StepValues:
        """Return what was read from the row of a node."""
        values = self.values[node]
        if values is None:
            raise ProtocolError(f"the row of node {node} was not read")
        return values

    def prefixes_below(self, node: int) -> OpenPrefixes:
        """Return the possible children of a node that are no nodes themselves.

        The log-probabilities of those that are nodes are set. The row of the node was
        read.
        """
        step, logp = self.step(node), self.logp[node] + self.read_values(node).logp
        is_open = logp > -np.inf
        for index, token in enumerate(step.tokens.tolist()):
            child = self.find(node, token)
            if child != NO_NODE:
                self.logp[child] = float(logp[index])
                is_open[index] = False
        n = int(np.count_nonzero(is_open))
        return OpenPrefixes(
            np.full(n, node, dtype=np.int32),
            step.tokens[is_open],
            step.states[is_open].astype(np.int32),
            np.full(n, self.depth[node] + 1, dtype=np.int32),
            logp[is_open],
        )
