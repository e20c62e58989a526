"""`tasks.run`: one task on a model of its own; and calls cut into rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.rows import Reads, Rows
from selectrie.core.types import ROOT, Capacity, Limits, ModelKind
from selectrie.decoding.task import Ask, check_count
from selectrie.errors import DecodeError, ProtocolError
from selectrie.testing import HashModel
from selectrie.testing.oracles import extend_in_rounds, run
from tests.support.arrays import ints
from tests.support.n_examples import n_examples

BOS = 0
RECURRENT = Limits(nodes=30, sequences=8, rows_per_call=6, kind=ModelKind.RECURRENT, max_idle_rows=10)


def flags(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.bool_)


class Walk:
    """A task of random asks that keeps what it was told of each row, with the row's path."""

    def __init__(self, seed: int, prompt: list[int], n_asks: int = 6) -> None:
        self.prompt, self.floor = ints(*prompt), Capacity(rows=1, nodes=8, sequences=1)
        self.log: list[tuple[tuple[int, ...], list[float]]] = []
        self.left = n_asks
        self._rng = np.random.default_rng(seed)
        self._path = [tuple(prompt)]  # of every local row so far
        self._parent = {0: 0}  # of every local row held
        self._expected = [0]

    def ask(self, capacity: Capacity) -> Ask | None:
        if not self.left:
            return None
        self.left -= 1
        carrying = set(self._parent.values())
        loose = [row for row in self._parent if row not in carrying and self._rng.random() < 0.7]
        for row in loose:
            del self._parent[row]
        held, first = list(self._parent), len(self._path)
        parents, tokens = [], []
        for i in range(int(self._rng.integers(1, min(capacity.rows, 4) + 1))):
            j = int(self._rng.integers(i)) if i and self._rng.random() < 0.6 else None
            row = int(self._rng.choice(held)) if j is None else first + j
            parents.append(row if j is None else ~j)
            tokens.append(int(self._rng.integers(2, 6)))
            self._path.append((*self._path[row], tokens[-1]))
            self._parent[first + i] = row
        wanted = self._rng.random(len(tokens)) < 0.7
        self._expected = (first + np.flatnonzero(wanted)).tolist()
        return Ask(ints(*parents), ints(*tokens), wanted, np.ones(len(tokens), dtype=np.bool_), ints(*loose))

    def reads(self) -> Reads:
        return Reads.everything(len(self._expected))

    def tell(self, rows: Rows) -> None:
        check_count(rows, len(self._expected))
        self.log += [(self._path[row], rows.logits(i).tolist()) for i, row in enumerate(self._expected)]

    def result(self) -> list[tuple[tuple[int, ...], list[float]]]:
        return self.log


@pytest.mark.parametrize("kind", tuple(ModelKind))
@pytest.mark.parametrize("rows_per_call", [4, 64])
@given(seed=st.integers(0, 10_000), prompt=st.lists(st.integers(2, 5), min_size=1, max_size=9))
@settings(max_examples=n_examples(15))
def test_run_tells_every_row_and_leaves_nothing(kind, rows_per_call, seed, prompt):
    """A task is told the row of each wanted node of its asks, in order, on every kind of model; then all is given back."""
    limits = Limits(nodes=60, sequences=30, rows_per_call=rows_per_call, kind=kind, max_idle_rows=10)
    model = HashModel(seed, limits=limits)
    log = run(Walk(seed, [BOS, *prompt]), model)
    assert log[0][0] == (BOS, *prompt)
    assert log == [(path, model.row(path).tolist()) for path, _ in log]
    assert list(model.contexts) == [ROOT]
    assert max(model.call_sizes) <= rows_per_call


@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.HYBRID])
@pytest.mark.parametrize("at", range(4))
def test_run_gives_back_what_it_holds_when_a_call_fails(kind, at):
    """Whichever decode fails, the error comes out and the model is empty again."""
    model = HashModel(1, limits=Limits(60, 30, 4, kind, 10))

    def fail_at() -> None:
        if model.calls == at:
            raise DecodeError("planned")

    model.on_decode = fail_at
    with pytest.raises(DecodeError):
        run(Walk(1, [BOS, 3, 4, 5, 3, 4]), model)
    assert list(model.contexts) == [ROOT]


def test_run_uses_a_prompt_that_is_there():
    """Only what `find` does not have is evaluated, and the last prompt token, for its row."""
    model = HashModel(1)
    held = model.extend(ints(ROOT, ~0, ~1), ints(BOS, 3, 4), flags(0, 0, 0), flags(0, 0, 1)).nodes
    run(Walk(1, [BOS, 3, 4, 5], n_asks=0), model)
    assert model.call_sizes == [3, 1]
    run(Walk(1, [BOS, 3, 4], n_asks=0), model)
    assert model.call_sizes == [3, 1, 1]
    model.release(held, forget=True)
    assert list(model.contexts) == [ROOT]


@pytest.mark.parametrize("parent", [7, 1])
def test_run_refuses_parents_the_task_does_not_hold(parent):
    """A row never given, and a row released, are the task's mistake."""

    class Wrong(Walk):
        def ask(self, capacity: Capacity) -> Ask | None:
            self.left -= 1
            self._expected = []
            if self.left == 5:
                return Ask(ints(0), ints(3), flags(0), flags(1))
            return Ask(ints(parent), ints(3), flags(0), flags(1), ints(1))

    model = HashModel(1)
    with pytest.raises(ProtocolError):
        run(Wrong(1, [BOS]), model)
    assert list(model.contexts) == [ROOT]


def test_rounds_come_back_as_one_call():
    """A call of two rounds gives its nodes and rows in the order of the call.

    element   0      1     2     3     4
    parent    root   ~0    ~0    ~1    ~2      two children below 0, so 1 and 2 start a round of their own
    round     0      1     1     1     1
    """
    model = HashModel(2, limits=RECURRENT)
    parents, tokens = ints(ROOT, ~0, ~0, ~1, ~2), ints(BOS, 3, 4, 5, 6)
    nodes, rows = extend_in_rounds(model, parents, tokens, flags(1, 0, 1, 1, 1), flags(0, 0, 0, 0, 0))
    assert model.call_sizes == [1, 4]
    assert [model.contexts[n] for n in nodes.tolist()] == [(0,), (0, 3), (0, 4), (0, 3, 5), (0, 4, 6)]
    expected = [(0,), (0, 4), (0, 3, 5), (0, 4, 6)]
    assert [rows.logits(i).tolist() for i in range(4)] == [model.row(path).tolist() for path in expected]


def test_a_failed_round_gives_back_the_rounds_before():
    """The second round fails: the nodes of the first are forgotten."""
    model = HashModel(2, limits=RECURRENT)

    def fail_second() -> None:
        if model.calls:
            raise DecodeError("planned")

    model.on_decode = fail_second
    with pytest.raises(DecodeError):
        extend_in_rounds(model, ints(ROOT, ~0, ~0), ints(0, 3, 4), flags(1, 1, 1), flags(0, 0, 0))
    assert list(model.contexts) == [ROOT]
