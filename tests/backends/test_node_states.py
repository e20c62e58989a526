"""The states of nodes: which runs a call takes, and when states are dropped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.backends.node_store import NodeStates, Run
from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.core.types import NO_NODE, ROOT
from selectrie.errors import NodeError
from tests.support.arrays import ints
from tests.support.n_examples import n_examples

V = 3


class Named(NodeStates[str]):
    """States that are strings, and a list of those that were dropped."""

    def __init__(self, tree: PrefixTree, sequences: int = 100) -> None:
        super().__init__(tree, sequences)
        self.dropped: list[str] = []

    def add(self, *nodes: int) -> None:
        for node in nodes:
            self._state[node] = str(node)

    def _drop_state(self, node: int) -> None:
        self.dropped.append(self._state[node])
        super()._drop_state(node)

    def oldest_first(self, protected: set[int]) -> list[int]:
        return sorted(self._droppable(protected), key=self._eviction_key)


def plan_of(tree: PrefixTree, parents, tokens, wanted=(), keep=()) -> CallPlan:
    """A plan whose wanted and kept elements are given by their numbers."""
    n = len(tokens)
    flags = [np.isin(np.arange(n), list(which)) for which in (wanted, keep)]
    return tree.plan(ints(*parents), ints(*tokens), *flags)


def chain(tree: PrefixTree, *tokens: int, base: int = ROOT) -> list[int]:
    """Add nodes one below the other, and return them."""
    parents = [base, *(~i for i in range(len(tokens) - 1))]
    return tree.commit(plan_of(tree, parents, tokens), len(tokens)).tolist()


class Twin:
    """What a call has to evaluate, said entry by entry."""

    def __init__(self, plan: CallPlan, states: set[int]) -> None:
        self.plan, self.states = plan, states

    def needs_state(self, e: int) -> bool:
        return self.plan.keep[e] and self.plan.node[e] not in self.states

    def is_due(self, e: int) -> bool:
        return self.plan.node[e] == NO_NODE or self.plan.wanted[e] or self.needs_state(e)

    def chain_to(self, e: int) -> tuple[int, list[int]]:
        """The node from which entry e can be reached, and the entries on the way, e included."""
        parent = self.plan.parent[e]
        if parent < 0:
            base, above = self.chain_to(~parent)
        elif parent in self.states or parent == ROOT:
            base, above = parent, []
        else:
            base, above = self.chain_to(self.plan.node.index(parent))
        return base, [*above, e]

    def runs(self) -> list[Run]:
        """A run to each entry that needs a state, and to each due one that is on the way to no other due one."""
        due = [e for e in range(len(self.plan.node)) if self.is_due(e)]
        on_the_way = {a for e in due for a in self.chain_to(e)[1][:-1]}
        ends = [e for e in due if self.needs_state(e) or e not in on_the_way]
        return [Run(*self.chain_to(e), self.needs_state(e)) for e in ends]


@settings(max_examples=n_examples(300))
@given(data=st.data())
def test_runs_are_those_of_the_twin(data):
    """A call takes one run to each entry that needs a state, and one to each due entry that no other run passes."""
    tree = PrefixTree(V)
    states = Named(tree)
    nodes = [ROOT]
    for _ in range(data.draw(st.integers(0, 8))):
        nodes += chain(tree, data.draw(st.integers(0, V - 1)), base=data.draw(st.sampled_from(nodes)))
    nodes = sorted(set(nodes))
    states.add(*data.draw(st.sets(st.sampled_from(nodes))) - {ROOT})
    parents, tokens = [], []
    for i in range(data.draw(st.integers(0, 9))):
        known = [one for one in nodes if states.can_extend(one)]
        parents.append(data.draw(st.sampled_from([*known, *(~j for j in range(i))])))
        tokens.append(data.draw(st.integers(0, V - 1)))
    n = len(tokens)
    marked = st.sets(st.integers(0, n - 1)) if n else st.just(set())
    plan = plan_of(tree, parents, tokens, wanted=data.draw(marked), keep=data.draw(marked))
    assert states.plan_runs(plan) == Twin(plan, set(states._state)).runs()


def test_a_parent_in_the_call_gives_its_state_again():
    """A node without a state is evaluated again if the call names it beside its child, and refused if not."""
    tree = PrefixTree(V)
    states = Named(tree)
    first, second = chain(tree, 0, 1)
    states.add(first)
    assert states.plan_runs(plan_of(tree, [first, ~0], [1, 2], wanted=[1])) == [Run(first, [0, 1], keeps=False)]
    with pytest.raises(NodeError, match="made without keep"):
        states.plan_runs(plan_of(tree, [second], [2]))


def test_a_forgotten_node_that_stays_loses_its_state():
    """Forgetting drops the state of an inner node at once, though the node stays; a held node keeps its state."""
    tree = PrefixTree(V)
    states = Named(tree, sequences=5)
    first, second = chain(tree, 0, 1)
    states.add(first, second)
    assert states.free_sequences == 3
    tree.inc_ref(first)
    states.release(ints(first), forget=True)
    assert states.dropped == []
    states.release(ints(first), forget=True)
    assert states.dropped == [str(first)]
    assert (states.can_extend(first), states.can_extend(second)) == (False, True)
    assert states.free_sequences == 4
    states.release(ints(second), forget=True)
    assert states.dropped == [str(first), str(second)]
    assert tree.n_nodes == 0


def test_release_without_forgetting_keeps_states():
    """A node without references stays with its state until it is trimmed, and then counts as dropped."""
    tree = PrefixTree(V)
    states = Named(tree)
    first, second = chain(tree, 0, 1)
    states.add(second)
    states.release(ints(first, second), forget=False)
    assert states.dropped == []
    assert states.free_sequences == 100
    assert states.trim(1) == 0
    assert states.trim(0) == 2
    assert states.dropped == [str(second)]


def test_trim_takes_the_state_of_an_inner_node():
    """A node that stays for one below it loses only its state, which counts as one."""
    tree = PrefixTree(V)
    states = Named(tree)
    first, second = chain(tree, 0, 1)
    states.add(first, second)
    states.release(ints(first), forget=False)
    assert states.trim(0) == 1
    assert states.dropped == [str(first)]
    assert tree.n_nodes == 2


def test_the_least_recently_used_state_goes_first():
    """States go in the order in which nodes were used, the deepest first, and neither held nor protected ones."""
    tree = PrefixTree(V)
    states = Named(tree)
    old = chain(tree, 0, 1)
    new = chain(tree, 2)
    held = chain(tree, 1)
    states.add(*held, *new, *old)
    states.release(ints(*old), forget=False)
    states.release(ints(*new), forget=False)
    tree.used[old[0]] = tree.used[old[1]] = 1
    assert states.oldest_first(set()) == [old[1], old[0], new[0]]
    assert states.oldest_first({old[1]}) == [old[0], new[0]]
