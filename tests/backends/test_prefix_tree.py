"""The context tree against a slow twin that keeps whole paths."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.backends.prefix_tree import PrefixTree
from selectrie.core.types import ROOT
from selectrie.errors import CapacityError, NodeError, ProtocolError, TokenRangeError
from tests.support.arrays import ints
from tests.support.n_examples import n_examples

Path = tuple[int, ...]
V = 4


def call(tree: PrefixTree, parents, tokens, wanted=None):
    """A plan from lists."""
    n = len(tokens)
    flags = np.zeros(n, dtype=bool) if wanted is None else np.array(wanted, dtype=bool)
    return tree.plan(
        np.array(parents, dtype=np.int32), np.array(tokens, dtype=np.int32), flags, np.zeros(n, dtype=bool)
    )


def add(tree: PrefixTree, parents, tokens) -> list[int]:
    """Plan and commit; the nodes."""
    return tree.commit(call(tree, parents, tokens), len(tokens)).tolist()


class Twin:
    """Paths instead of nodes: what is live, how often it is held, when it was used, and what shall be forgotten."""

    def __init__(self) -> None:
        self.held: dict[Path, int] = {}
        self.used: dict[Path, int] = {}
        self.forgotten: set[Path] = set()
        self.clock = 0

    @property
    def live(self) -> set[Path]:
        return set(self.held)

    def children(self, path: Path) -> list[Path]:
        return [p for p in self.held if p[:-1] == path and p]

    def leaves(self) -> set[Path]:
        return {p for p in self.held if not self.children(p)}

    def is_held(self, path: Path) -> bool:
        return any(count and p[: len(path)] == path for p, count in self.held.items())

    def add(self, paths: list[Path], touched: set[Path], rows: int) -> None:
        for path in paths:
            self.held[path] = self.held.get(path, 0) + 1
            self.forgotten.discard(path)
        self.clock += rows
        for path in touched | set(paths):
            if path:
                self.used[path] = self.clock

    def release(self, paths: list[Path], *, forget: bool) -> None:
        for path in paths:
            self.held[path] -= 1
            self.used[path] = self.clock
        if forget:
            self.forgotten |= {p for p in paths if not self.held[p]}
            while gone := [p for p in self.forgotten if p in self.held and not self.children(p)]:
                self.drop(gone[0])

    def drop(self, path: Path) -> None:
        used = self.used.pop(path)
        del self.held[path]
        self.forgotten.discard(path)
        if path[:-1]:
            self.used[path[:-1]] = max(self.used[path[:-1]], used)

    def evictable(self) -> list[Path]:
        return [p for p in self.leaves() if not self.held[p]]


class Both:
    """Tree and twin side by side, put through the same random work."""

    def __init__(self, data) -> None:
        self.data = data
        self.tree, self.twin = PrefixTree(V), Twin()
        self.node_of: dict[Path, int] = {(): ROOT}

    def step(self) -> None:
        """One random operation, then every count and every path is compared."""
        verbs = (self.add, self.add, self.release, self.evict, self.trim, self.find)
        self.data.draw(st.sampled_from(verbs))()
        self.check()

    def held(self) -> list[Path]:
        return [p for p, count in self.twin.held.items() if count]

    def add(self) -> None:
        starts = [(), *self.held()]
        parents, paths = [], []
        for i in range(self.data.draw(st.integers(1, 6))):
            if i and self.data.draw(st.booleans()):
                j = self.data.draw(st.integers(0, i - 1))
                parents.append(~j)
                above = paths[j]
            else:
                above = self.data.draw(st.sampled_from(starts))
                parents.append(self.node_of[above])
            paths.append((*above, self.data.draw(st.integers(0, V - 1))))
        plan = call(self.tree, parents, [path[-1] for path in paths])
        new = set(paths) - self.twin.live
        assert plan.n_new == len(new)
        assert plan.n_new_leaves == sum(not any(q[:-1] == p for q in new) for p in new)
        touched = {path[:-1] for path in paths} & self.twin.live
        nodes = self.tree.commit(plan, plan.n_new)
        self.twin.add(paths, touched, plan.n_new)
        self.node_of.update(zip(paths, nodes.tolist(), strict=True))

    def release(self) -> None:
        held = self.held()
        paths = self.data.draw(st.lists(st.sampled_from(held), max_size=4, unique=True)) if held else []
        forget = self.data.draw(st.booleans())
        before = self.twin.live
        gone = self.tree.release(ints(*(self.node_of[p] for p in paths)), forget=forget)
        self.twin.release(paths, forget=forget)
        assert {self.node_of[p] for p in before - self.twin.live} == set(gone)
        self.tree.drop(gone)

    def evict(self) -> None:
        """Some victims in order: each is the least recently used of the leaves that nobody holds."""
        eviction_order = list(self.tree.eviction_order())
        for node, ends_branch in eviction_order[: self.data.draw(st.integers(0, len(eviction_order)))]:
            path = next(p for p in self.twin.live if self.node_of[p] == node)
            candidates = self.twin.evictable()
            assert path in candidates
            assert self.twin.used[path] == min(self.twin.used[p] for p in candidates)
            assert ends_branch == (len(path) == 1 or len(self.twin.children(path[:-1])) > 1)
            self.tree.drop([node])
            self.twin.drop(path)

    def trim(self) -> None:
        rows = self.data.draw(st.integers(0, 8))
        self.tree.drop(self.tree.idle(rows))
        while gone := [p for p in self.twin.evictable() if self.twin.clock - self.twin.used[p] >= rows]:
            self.twin.drop(gone[0])

    def find(self) -> None:
        path = self.data.draw(st.sampled_from([(), *sorted(self.twin.live)]))
        node, depth = self.tree.match_prefix(ints(*path, V - 1, V - 1, V - 1))
        assert depth >= len(path)
        self.tree.inc_ref(node)
        if node != ROOT:
            self.twin.add([tuple(self.tree.path(node).tolist())], set(), 0)

    def check(self) -> None:
        tree, twin = self.tree, self.twin
        held = {p for p in twin.live if twin.is_held(p)}
        assert tree.n_nodes == len(twin.live)
        assert tree.n_leaves == len(twin.leaves())
        assert tree.n_held == len(held)
        assert tree.n_held_leaves == sum(not any(c in held for c in twin.children(p)) for p in held)
        for path in twin.live:
            node, depth = tree.match_prefix(ints(*path))
            assert (node, depth) == (self.node_of[path], len(path))
            assert tuple(tree.path(node).tolist()) == path
            assert tree.references[node] == twin.held[path]
            assert tree.used[node] == twin.used[path]
        live = {self.node_of[p] for p in twin.live}
        for node in set(self.node_of.values()) - live - {ROOT}:
            with pytest.raises(NodeError):
                tree.path(node)


@settings(max_examples=n_examples(80))
@given(data=st.data())
def test_random_work_equals_a_tree_of_whole_paths(data):
    """Calls with in-call parents and repeats, releases, forgetting, eviction and trimming keep the books right."""
    both = Both(data)
    for _ in range(data.draw(st.integers(3, 14))):
        both.step()


def test_a_call_is_resolved_by_hand():
    """Element 3 repeats element 1, element 4 exists already, and element 5 stands on it."""
    tree = PrefixTree(10)
    (old,) = add(tree, [ROOT], [7])
    plan = call(tree, [ROOT, ~0, ~1, ~0, ROOT, ~4], [1, 2, 3, 2, 7, 8], [0, 0, 0, 1, 0, 1])
    assert plan.entry == [0, 1, 2, 1, 3, 4]
    assert plan.parent == [ROOT, ~0, ~1, ROOT, old]
    assert plan.token == [1, 2, 3, 7, 8]
    assert plan.depth == [1, 2, 3, 1, 2]
    assert plan.node == [-1, -1, -1, old, -1]
    assert [bool(w) for w in plan.wanted] == [False, True, False, False, True]
    assert (plan.n_new, plan.n_new_leaves) == (4, 2)
    assert plan.live_parents() == {ROOT, old}


def test_a_bad_call_is_refused_and_changes_nothing():
    """Dead parents, `~j` that looks ahead, unknown tokens and lengths that differ are named."""
    tree = PrefixTree(10)
    (node,) = add(tree, [ROOT], [7])
    for parents, tokens, error in (
        ([node + 1], [1], NodeError),
        ([ROOT, ~1], [1, 2], NodeError),
        ([ROOT, ~2], [1, 2], NodeError),
        ([ROOT], [10], TokenRangeError),
        ([ROOT], [-1], TokenRangeError),
        ([ROOT, ROOT], [1], ProtocolError),
    ):
        with pytest.raises(error):
            call(tree, parents, tokens)
    assert tree.n_nodes == 1


def test_releasing_more_than_is_held_is_refused_and_changes_nothing():
    """Two references given back where one is held."""
    tree = PrefixTree(10)
    a, b = add(tree, [ROOT, ROOT], [1, 2])
    with pytest.raises(NodeError, match="2 references released, 1 held"):
        tree.release(ints(b, a, a))
    assert tree.references[a] == tree.references[b] == 1


def test_room_is_made_of_the_oldest_leaves_and_never_of_what_the_call_stands_on():
    """Of three cached branches the oldest goes; the one that the call extends stays, though it is older still."""
    tree = PrefixTree(10)
    nodes = [add(tree, [ROOT], [token])[0] for token in (1, 2, 3)]
    for node in nodes:
        tree.release(ints(node))
    plan = call(tree, [nodes[0]], [5])
    assert tree.make_room(plan, nodes=4, sequences=3) == []
    assert tree.make_room(plan, nodes=3, sequences=3) == [nodes[1]]
    assert tree.make_room(plan, nodes=4, sequences=2) == [nodes[1]]
    assert tree.make_room(plan, nodes=4, sequences=3, extra_sequences=2) == nodes[1:]
    with pytest.raises(CapacityError) as caught:
        tree.make_room(plan, nodes=1, sequences=3)
    assert (caught.value.required, caught.value.available) == (1, 0)
    with pytest.raises(CapacityError):
        tree.make_room(plan, nodes=4, sequences=0)
    assert tree.n_nodes == 3


def worn_tree() -> PrefixTree:
    """An empty tree whose next ids descend: a chain is dropped from its leaf upwards, again and again."""
    tree = PrefixTree(V)
    for _ in range(4):
        tree.release(ints(*add(tree, [ROOT] + [~i for i in range(1199)], [0] * 1200)))
        tree.drop(tree.idle(0))
    return tree


WORN = worn_tree()


@settings(max_examples=n_examples(60))
@given(
    before=st.lists(st.tuples(st.integers(0, 5), st.integers(0, V - 1)), max_size=40),
    after=st.lists(st.tuples(st.integers(0, 5), st.integers(0, V - 1), st.booleans()), min_size=1, max_size=30),
)
def test_what_goes_first_does_not_depend_on_ids(before, after):
    """A tree that held other nodes before, whose ids are used again, drops the same paths as a new one."""
    worn = copy.deepcopy(WORN)
    for pick, token in before:
        held = add(worn, [ROOT] + [~i for i in range(pick)], [token] * (pick + 1))
        worn.release(ints(*held))
        worn.drop(worn.idle(0)[: pick + 1])
    worn.drop(worn.idle(0))
    orders = []
    for tree in (PrefixTree(V), worn):
        nodes = [ROOT]
        for pick, token, is_wide in after:
            below = nodes[pick % len(nodes)]
            nodes += add(tree, [below] * V, range(V)) if is_wide else add(tree, [below], [token])
        tree.release(ints(*nodes[1:]))
        orders.append([tree.path(node).tolist() for node, _ in tree.eviction_order()])
    assert orders[0] == orders[1]


def test_a_parent_left_without_children_is_continued_and_needs_no_branch():
    """A cached child that goes leaves its parent a leaf: the call's node takes that branch over."""
    tree = PrefixTree(10)
    parent, child = add(tree, [ROOT, ~0], [1, 2])
    tree.release(ints(child))
    assert tree.make_room(call(tree, [parent], [3]), nodes=9, sequences=1) == [child]


def test_what_hangs_on_a_prompt_counts_as_its_use():
    """When the end of a prompt goes, the rest is as recent as that was: another prompt, older than it, goes first."""
    tree = PrefixTree(10)
    prompt = add(tree, [ROOT, ~0], [1, 2])
    tree.release(ints(*prompt))
    other = add(tree, [ROOT], [5])
    tree.release(ints(*other))
    add(tree, [ROOT], [6])
    tree.inc_ref(prompt[1])
    tree.release(ints(prompt[1]))
    assert [node for node, _ in tree.eviction_order()] == [other[0], prompt[1], prompt[0]]
    tree.drop([prompt[1]])
    assert [node for node, _ in tree.eviction_order()] == [other[0], prompt[0]]


def test_idle_nodes_are_those_beside_which_enough_rows_were_evaluated():
    """Two prompts of two rows, then four rows: the first is idle for six, the second for four."""
    tree = PrefixTree(10)
    first = add(tree, [ROOT, ~0], [1, 2])
    tree.release(ints(*first))
    second = add(tree, [ROOT, ~0], [3, 4])
    tree.release(ints(*second))
    last = add(tree, [ROOT, ~0, ~1, ~2], [5, 6, 7, 8])
    assert tree.idle(7) == []
    assert set(tree.idle(6)) == set(first)
    assert set(tree.idle(4)) == {*first, *second}
    tree.release(ints(*last))
    assert set(tree.idle(0)) == {*first, *second, *last}


def test_forgotten_nodes_that_carry_others_go_with_the_last_of_them():
    """A forgotten prompt stays for its branch, and goes when the branch does; one that is found again stays."""
    tree = PrefixTree(10)
    prompt, branch = add(tree, [ROOT, ~0], [1, 2])
    assert tree.release(ints(prompt), forget=True) == []
    assert tree.release(ints(branch), forget=True) == [branch, prompt]
    tree.drop([branch, prompt])
    assert tree.n_nodes == 0
    prompt, branch = add(tree, [ROOT, ~0], [1, 2])
    tree.release(ints(prompt), forget=True)
    tree.inc_ref(prompt)
    tree.release(ints(prompt))
    assert tree.release(ints(branch), forget=True) == [branch]


def test_a_stale_id_is_noticed_for_a_long_time():
    """An id is used again only after a thousand others, and a cleared tree knows none of its own."""
    tree = PrefixTree(10)
    (gone,) = add(tree, [ROOT], [1])
    tree.drop(tree.release(ints(gone), forget=True))
    for _ in range(1000):
        nodes = add(tree, [ROOT], [1])
        assert nodes != [gone]
        tree.drop(tree.release(ints(*nodes), forget=True))
    (live,) = add(tree, [ROOT], [2])
    tree.clear()
    assert (tree.n_nodes, tree.n_leaves, tree.n_held) == (0, 0, 0)
    for node in (gone, live):
        with pytest.raises(NodeError):
            tree.path(node)
    assert add(tree, [ROOT, ROOT], [1, 2])[0] != live
    assert tree.match_prefix(ints(1))[1] == 1


def test_books_do_not_grow_with_work():
    """A thousand prompts come and go: columns and heap stay as they were."""
    tree = PrefixTree(10)
    kept = add(tree, [ROOT], [9])
    for i in range(3000):
        nodes = add(tree, [kept[0], ~0, ~1], [i % 9, 1, 2])
        tree.release(ints(*nodes))
        tree.inc_ref(nodes[2])
        tree.release(ints(nodes[2]))
        tree.drop(tree.idle(9))
    assert len(tree.parent) <= 4 * 1024
    assert len(tree._idle) <= 200


def test_drop_refuses_what_is_held_or_carries_others():
    """The root, a referenced node and an inner node stay."""
    tree = PrefixTree(10)
    prompt, branch = add(tree, [ROOT, ~0], [1, 2])
    tree.release(ints(prompt))
    for node in (ROOT, prompt, branch):
        with pytest.raises(NodeError):
            tree.drop([node])
    assert tree.n_nodes == 2


def test_elements_and_entries_of_a_plan():
    """Elements of one pair share an entry, its node, and its place among the wanted ones."""
    tree = PrefixTree(V)
    plan = call(tree, [ROOT, ~0, ROOT, ROOT], [1, 2, 1, 3], [False, True, True, True])
    assert plan.entry == [0, 1, 0, 2]
    assert plan.entries_of_wanted(np.array([False, True, True, True])) == [1, 0, 2]
    nodes = tree.commit(plan, 3)
    assert plan.nodes_of_entries(nodes) == [nodes[0], nodes[1], nodes[3]]
    assert nodes[2] == nodes[0]
