"""The cells of nodes against a twin that remembers the whole path written into each cell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.backends.node_store import NodeCells
from selectrie.backends.prefix_tree import PrefixTree
from selectrie.core.types import ROOT
from selectrie.errors import CapacityError, InternalError, ModelError
from tests.support.arrays import ints
from tests.support.n_examples import n_examples

V = 3
NODES = 12
N_CELLS = 32
MULTIPLE = 4

Path = tuple[int, ...]


def plan_of(tree: PrefixTree, parents, tokens, wanted):
    return tree.plan(ints(*parents), ints(*tokens), np.array(wanted, dtype=bool), np.zeros(len(tokens), dtype=bool))


class Pool:
    """A tree with cells, what was written into each cell, and the references that are held."""

    def __init__(self, read_multiple: int) -> None:
        self.tree = PrefixTree(V)
        self.cells = NodeCells(self.tree, nodes=NODES, n_cells=N_CELLS, read_multiple=read_multiple)
        self.read_multiple = read_multiple
        self.written: dict[int, Path] = {}
        self.held: list[int] = []

    def path(self, node: int) -> Path:
        return tuple(self.tree.path(node).tolist())

    def extend(self, parents, tokens, wanted, *, fails: bool) -> None:
        plan = plan_of(self.tree, parents, tokens, wanted)
        rows, n = self.cells.plan_rows(plan)
        assert set(plan.entries_of_wanted(wanted)) <= set(rows.entries)
        paths: list[Path] = []
        for parent, token in zip(plan.parent, plan.token, strict=True):
            paths.append((*(paths[~parent] if parent < 0 else self.path(parent)), token))
        try:
            self.cells.make_room(plan, rows)
        except CapacityError:
            return
        if n:
            self.check(rows, [paths[e] for e in rows.entries], self.cells.lay_out(plan, rows, n + -n % MULTIPLE))
        nodes = self.tree.commit(plan, n)
        self.cells.finish(plan, rows, plan.nodes_of_entries(nodes))
        if fails:
            self.tree.rollback(plan)
            self.cells.restore()
        else:
            self.held += nodes.tolist()

    def check(self, rows, paths: list[Path], layout) -> None:
        """Write the rows, and require that each sees every prefix of its path once, and nothing else."""
        n, n_read = len(paths), layout.visible.shape[1]
        assert layout.cells[:n].tolist() == rows.cells.tolist()
        assert len(set(layout.cells.tolist())) == len(layout.cells) == n + -n % MULTIPLE
        used = {self.cells._cell[node] for node in self.cells._cell}
        assert not used & set(layout.cells.tolist())
        assert n_read % self.read_multiple == 0
        assert n_read >= max(used | set(layout.cells.tolist())) + 1
        assert layout.tokens[:n].tolist() == [path[-1] for path in paths]
        assert layout.positions[:n].tolist() == [len(path) - 1 for path in paths]
        self.written.update(zip(layout.cells[:n].tolist(), paths, strict=True))
        for i, path in enumerate(paths):
            seen = np.flatnonzero(layout.visible[i]).tolist()
            assert sorted(self.written[cell] for cell in seen) == [path[:k] for k in range(1, len(path) + 1)]
            assert sorted(layout.cell_positions[seen].tolist()) == list(range(len(path)))
        for i in range(n, len(layout.cells)):
            assert np.flatnonzero(layout.visible[i]).tolist() == [layout.cells[i]]
            assert (layout.tokens[i], layout.positions[i]) == (0, 0)


@settings(max_examples=n_examples(150), deadline=None)
@given(data=st.data())
def test_a_row_sees_its_path_and_nothing_else(data):
    """Whatever was dropped, wanted again or failed before, a row sees one cell for each prefix of its path."""
    pool = Pool(data.draw(st.sampled_from([8, N_CELLS])))
    for _ in range(data.draw(st.integers(1, 12))):
        if pool.held and data.draw(st.booleans()):
            node = data.draw(st.sampled_from(pool.held))
            pool.held.remove(node)
            pool.cells.release(ints(node), forget=data.draw(st.booleans()))
            continue
        n = data.draw(st.integers(0, 6))
        parents = [data.draw(st.sampled_from([ROOT, *pool.held, *(~j for j in range(i))])) for i in range(n)]
        tokens = [data.draw(st.integers(0, V - 1)) for _ in range(n)]
        wanted = [data.draw(st.booleans()) for _ in range(n)]
        pool.extend(parents, tokens, wanted, fails=data.draw(st.booleans()))
        assert pool.cells.free_sequences == NODES - pool.tree.n_held_leaves
        assert int(pool.cells._is_used.sum()) == pool.tree.n_nodes


def test_cells_above_the_free_ones_are_read():
    """A row in a low cell sees the cells of its path that lie above, and no more cells are read than needed."""
    pool = Pool(8)
    pool.extend([ROOT, *(~i for i in range(8))], [0] * 9, [True] * 9, fails=False)
    pool.extend([ROOT], [1], [True], fails=False)
    high = pool.cells._cell[pool.held[9]]
    for node in pool.held[8:5:-1]:
        pool.cells.release(ints(node), forget=True)
    plan = plan_of(pool.tree, [pool.held[9]], [1], [True])
    rows, _ = pool.cells.plan_rows(plan)
    layout = pool.cells.lay_out(plan, rows, 1)
    assert (layout.cells.tolist(), high) == ([6], 9)
    assert np.flatnonzero(layout.visible[0]).tolist() == [6, 9]
    assert layout.visible.shape == (1, 16)


def test_trim_frees_cells():
    """Cells of unused nodes are free after a trim, and those of held nodes are not."""
    pool = Pool(8)
    pool.extend([ROOT, ~0, ~0], [0, 1, 2], [True] * 3, fails=False)
    pool.cells.release(ints(pool.held[2]), forget=False)
    assert pool.cells.trim(1) == 0
    assert pool.cells.trim(0) == 1
    assert int(pool.cells._is_used.sum()) == 2


def test_too_few_free_cells_are_an_error_of_ours():
    """A pool that was made too small is noticed before anything is written."""
    tree = PrefixTree(V)
    cells = NodeCells(tree, nodes=16, n_cells=8, read_multiple=8)
    plan = plan_of(tree, [ROOT, *(~i for i in range(8))], [0] * 9, [False] * 9)
    rows, n = cells.plan_rows(plan)
    with pytest.raises(InternalError, match="8 cells are free, 9 are needed"):
        cells.lay_out(plan, rows, n)
    assert rows.cells is None


def test_too_many_cells_are_refused_in_words():
    """Where there is no memory for what each row sees, the error says what to ask for instead."""
    with pytest.raises(
        ModelError, match="no memory for the bookkeeping of 1099511627776 cells; ask for a smaller `n_ctx`"
    ):
        NodeCells(PrefixTree(9), nodes=8, n_cells=1 << 40, read_multiple=8)
