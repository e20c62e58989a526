"""`AutomatonTask`, the base of all tasks on the texts of an automaton."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import numpy as np

from selectrie.core.automaton import Automaton, allowed_ids, is_any
from selectrie.core.reads import Reads
from selectrie.core.rows import Rows
from selectrie.core.types import ROOT, Capacity, IntArray
from selectrie.decoding.automaton.records import AutomatonSpec
from selectrie.decoding.healed_mass import HealedMass
from selectrie.decoding.held_nodes import HeldNodes
from selectrie.decoding.path_tree import PathTree
from selectrie.decoding.task import TaskBase
from selectrie.errors import ProtocolError

R = TypeVar("R")


class AutomatonTask(TaskBase[list[int], R]):
    """A task that grows a `PathTree` over an automaton and reads its rows one by one.

    Raises `ProtocolError` for an empty prompt, and `TokenRangeError` for a token of the
    prompt that does not exist.
    """

    def __init__(self, prompt: IntArray, automaton: Automaton, spec: AutomatonSpec) -> None:
        if len(prompt) == 0:
            raise ProtocolError("a search needs a prompt of at least one token")
        spec.vocabulary.check_tokens(prompt)
        floor = Capacity(rows=1, nodes=spec.max_tokens + len(spec.healed), sequences=1)
        super().__init__(prompt, floor, [ROOT])
        self._automaton, self._spec = automaton, spec
        self._tree = PathTree(automaton.start(), spec.healing)
        self._set_ends(ROOT)
        self._live = HeldNodes(self._tree)
        self._healing = HealedMass(spec.vocabulary, spec.healed)

    def _reads(self, nodes: list[int]) -> Reads:
        return Reads.concatenated([self._row_reads(node) for node in nodes])

    def _read(self, nodes: list[int], rows: Rows) -> None:
        for i, node in enumerate(nodes):
            self._tree.evaluated[node] = True
            self._read_row(node, rows, i)

    @abstractmethod
    def _row_reads(self, node: int) -> Reads:
        """Return the `Reads` that `_read_row` needs from a node's row."""

    @abstractmethod
    def _read_row(self, node: int, rows: Rows, i: int) -> None:
        """Read row `i` of `rows`, which is the row of `node`."""

    def _add_child(self, parent: int, token: int, logp: float) -> int:
        """Add the node of an allowed token after its parent, and return its number."""
        tree = self._tree
        node = tree.add(parent, token, logp, self._automaton.advance(tree.state[parent], token))
        self._set_ends(node)
        return node

    def _set_ends(self, node: int) -> None:
        tree, automaton = self._tree, self._automaton
        tree.can_end[node] = automaton.can_end(tree.state[node])
        tree.goes_on[node] = is_any(automaton.allowed(tree.state[node]))

    def _ends_by_row(self, node: int) -> bool:
        """Return whether a text ends at the node and its row says how likely."""
        tree, terminator = self._tree, self._spec.terminator
        return tree.can_end[node] and (terminator == "eog" or (terminator != "none" and tree.goes_on[node]))

    def _ends_at_once(self, node: int) -> bool:
        """Return whether a text ends at the node whatever comes next."""
        return self._tree.can_end[node] and not self._ends_by_row(node)

    def _end_reads(self, node: int) -> Reads:
        """Return the `Reads` of the row of a node for `_end_logp`."""
        allowed = self._tokens_past(node)
        return Reads.of_row(masses=[self._spec.vocabulary.eog]) if allowed is None else Reads.of_row(rests=[allowed])

    def _end_logp(self, node: int, rows: Rows, i: int) -> float:
        """Return the log-probability that a text ends at the node, from its row."""
        allowed = self._tokens_past(node)
        return float(rows.log_mass(i, self._spec.vocabulary.eog) if allowed is None else rows.log_rest(i, allowed))

    def _tokens_past(self, node: int) -> IntArray | None:
        """Return the tokens that continue the text of a node; None if EOG ends it."""
        if self._spec.terminator != "unless-continued" or not self._ends_by_row(node):
            return None
        return allowed_ids(self._automaton.allowed(self._tree.state[node]))

    def _may_go_on(self, node: int) -> bool:
        """Return whether automaton and `max_tokens` allow a token after the node."""
        return self._tree.goes_on[node] and self._tree.n_text[node] < self._spec.max_tokens

    def _ids_after(self, node: int) -> IntArray:
        """Return the tokens that may come after the node, int32[], ascending."""
        if not self._may_go_on(node):
            return np.empty(0, dtype=np.int32)
        return allowed_ids(self._automaton.allowed(self._tree.state[node]))
