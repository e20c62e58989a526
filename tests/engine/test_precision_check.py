"""The self-check in contexts of every size, on every kind of model."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from selectrie.backends.llama_cpp import LlamaOptions, open_model
from selectrie.core.rows import DenseRows
from selectrie.core.types import BatchSizes, Limits, ModelKind, SelfCheck
from selectrie.engine import precision_check
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import MARGIN, MARGIN_RARE, MIN_MOVE, is_plausible, self_check
from selectrie.errors import OptionError, UnsupportedModelError
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE
from tests.support.far_rows import FarModel
from tests.support.measured import CEILING_NATS


@pytest.mark.parametrize("size", [(8, 8), (64, 16), (512, 256)])
@pytest.mark.parametrize("shape", ["tiny", "sliding-window", "recurrent", "hybrid"])
def test_the_smallest_contexts_are_checked_too(tiny_model, monkeypatch, shape, size):
    """However few nodes, rows and states there are, the check fits, leaves the model empty, and finds f32 to move little."""
    monkeypatch.setattr("selectrie.engine.precision_check.MAX_ROWS", 80)
    n_ctx, n_batch = size
    with open_model(tiny_model("f32", shape=shape), LlamaOptions(n_ctx=n_ctx, n_batch=n_batch, n_threads=1)) as model:
        check = self_check(model)
        room, limits = model.capacity(), model.limits
        assert (room.nodes, room.sequences) == (limits.nodes, limits.sequences)
        assert check.batch_multiple == limits.batch_sizes.multiple == (1 if limits.kind.is_recurrent else 8)
        assert check.tolerance / max(check.moved, MIN_MOVE) in (MARGIN, MARGIN_RARE)
        assert check.moved <= CEILING_NATS.get(shape, CEILING_NATS["f32"])
        assert check.n_rows >= 80


@pytest.mark.parametrize(
    ("n_parameters", "quantised", "n_rows"),
    [
        (0, False, 160),
        (260_000, False, 2_000),
        (1_600_000, False, 1_250),
        (3_885_888, False, 514),
        (50_000_000, False, 160),
        (500_000_000, False, 80),
        (260_000, True, 10_000),
        (3_885_888, True, 2_573),
        (500_000_000, True, 80),
    ],
)
def test_small_and_quantised_models_are_checked_longest(n_parameters, quantised, n_rows):
    """Where few rows move, or rarely, many are compared; where every row moves, few show by how much."""
    identity = replace(HashModel(1).identity, n_parameters=n_parameters, quantised=quantised)
    assert precision_check._n_rows(SimpleNamespace(identity=identity)) == n_rows


@pytest.mark.parametrize(
    ("n_rows", "n_near", "margin"),
    [(500, 1, MARGIN_RARE), (500, 50, MARGIN_RARE), (500, 51, MARGIN), (500, 0, MARGIN), (10_000, 1, MARGIN)],
)
def test_a_rare_move_has_the_larger_margin(n_rows, n_near, margin):
    """Few rows move like the largest, few were compared: others may move further."""
    moves = np.full(n_rows, 1e-7)
    moves[:n_near] = 1e-3
    assert precision_check._margin(moves) == margin


@pytest.mark.parametrize(("sizes", "calls"), [((40,), [40]), ((8, 24), [8, 24, 8]), ((8, 16), [8, 16, 8, 8])])
def test_a_run_is_cut_into_calls_by_turns(sizes, calls):
    """Every row is there, in order, whatever the sizes of the calls."""
    model = HashModel(1)
    tokens = np.arange(40, dtype=np.int32) % 7
    rows = precision_check._run(model, tokens, sizes)
    assert model.call_sizes == calls
    assert [row.tolist() for row in rows] == [model.row(tuple(tokens[: i + 1].tolist())).tolist() for i in range(40)]


class Strict(HashModel):
    """A small context of it has no more sequences than the model has, down to one."""

    def new_context(self, nodes, sequences=16, rows=None):
        limits = self.limits
        rows = min(limits.rows_per_call, rows or limits.rows_per_call)
        sequences = min(limits.sequences, sequences)
        return Strict(1, limits=replace(limits, nodes=nodes, sequences=sequences, rows_per_call=rows))


@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.RECURRENT])
@pytest.mark.parametrize("is_fixed", [False, True])
@pytest.mark.parametrize(("rows", "sequences"), [(1, 1), (1, 2), (5, 1), (7, 2), (12, 6)])
def test_few_rows_and_sequences_are_enough(monkeypatch, kind, is_fixed, rows, sequences):
    """Down to one row a call and one sequence (three states): rows are compared, the multiple fits a call, and an engine works with it."""
    monkeypatch.setattr("selectrie.engine.precision_check.MAX_ROWS_FLOAT", 80)
    sequences += 2 * kind.is_recurrent
    sizes = BatchSizes.fixed({1: 0.002, 4: 0.003}) if is_fixed else BatchSizes()
    limits = Limits(100, sequences, rows, kind, max_idle_rows=64, batch_sizes=sizes)
    model = Strict(1, limits=limits)
    check = self_check(model)
    assert (check.moved, check.n_rows >= 80) == (0.0, True)
    assert check.batch_multiple == (0 if is_fixed else 1 if kind.is_recurrent else min(rows, 8))
    assert is_plausible(check, limits)
    assert is_plausible(check, model.limits)
    assert model.capacity().nodes == 100
    with Engine(Strict(1, limits=limits)) as small, Engine(HashModel(1)) as wide:
        assert small.self_check == check
        if sequences > 1:  # scoring holds the prompt beside the text
            assert small.score("a", " cats").logp == pytest.approx(wide.score("a", " cats").logp)


class Excluding(Strict):
    """Tokens 5 to 9 have probability 0, in calls of a row or two only where `is_sometimes`."""

    is_sometimes = False

    def extend(self, *args):
        extension = super().extend(*args)
        rows = [extension.rows.logits(i).copy() for i in range(len(extension.rows))]
        for row in rows if not self.is_sometimes or self.program_sizes[-1] <= 2 else ():
            row[5:10] = -np.inf
        return replace(extension, rows=DenseRows(np.stack(rows))) if rows else extension

    def new_context(self, *args):
        made = Excluding(1, limits=super().new_context(*args).limits)
        made.is_sometimes = self.is_sometimes
        return made


def test_tokens_of_probability_zero_do_not_move(monkeypatch):
    """-inf in every layout is no difference; -inf in one and a number in another is refused, and nothing is NaN."""
    monkeypatch.setattr("selectrie.engine.precision_check.MAX_ROWS_FLOAT", 80)
    model = Excluding(1)
    assert self_check(model).moved == 0.0
    model.is_sometimes = True
    with pytest.raises(UnsupportedModelError, match="probability 0 in one layout of calls and not in another"):
        self_check(model)


@pytest.mark.parametrize("field", ["moved", "tolerance"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_a_tolerance_is_a_number_of_nats(field, value):
    """Comparisons with NaN are false, and would prove anything; no engine can be given one."""
    with pytest.raises(OptionError, match=f"{field}="):
        SelfCheck(**{"batch_multiple": 8, "moved": 0.0, "tolerance": 0.0, field: value})


@pytest.mark.parametrize("n_states", [1, 2])
def test_two_states_are_too_few(n_states):
    """A recurrent-state model with fewer than three states cannot draw below a prompt that is held, and the error says so."""
    limits = Limits(100, n_states, 4, ModelKind.RECURRENT, max_idle_rows=64)
    with pytest.raises(UnsupportedModelError, match=rf"3 states.*limits.sequences is {n_states}"):
        self_check(Strict(1, limits=limits))


class Unsteady(Strict):
    """Its rows depend on the number of rows of the program that computes them."""

    def extend(self, *args):
        extension = super().extend(*args)
        if not len(extension.rows):
            return extension
        rows = np.stack([extension.rows.logits(i) for i in range(len(extension.rows))])
        rows[:, ::2] += np.float32(0.01 * self.program_sizes[-1])
        return replace(extension, rows=DenseRows(rows))

    def new_context(self, *args):
        return Unsteady(1, limits=super().new_context(*args).limits)


@pytest.mark.parametrize("rows", [1, 2, 5, 7])
def test_calls_of_few_rows_are_all_padded_to_the_same_size(monkeypatch, rows):
    """With fewer rows than the smallest multiple, calls have all of them: only calls without padding move rows."""
    monkeypatch.setattr("selectrie.engine.precision_check.MAX_ROWS_FLOAT", 80)
    model = Unsteady(1, limits=Limits(100, 6, rows, ModelKind.ATTENTION, max_idle_rows=64))
    passage = precision_check._passage(model, precision_check._Tokens.of(model), 0)
    check = self_check(model)
    assert check.batch_multiple == rows
    assert precision_check._moves(model, passage, precision_check._layouts(model, 0)).max() == 0.0
    assert (check.moved > 0.001) == (rows > 1)


class TwoKernels(HashModel):
    """Calls of `odd` rows give other rows than calls of any other size."""

    odd = 0

    def extend(self, *args):
        extension = super().extend(*args)
        if len(args[0]) != self.odd or not len(extension.rows):
            return extension
        return replace(extension, rows=DenseRows(np.stack([extension.rows.logits(i) for i in range(self.odd)]) * 1.01))

    def new_context(self, nodes, *args):
        model = TwoKernels(1)
        model.odd = self.odd
        model.set_batch_multiple(self.limits.batch_sizes.multiple)
        return model


@pytest.mark.parametrize(("odd", "batch_multiple"), [(0, 8), (8, 16), (24, 16), (16, 8)])
def test_a_call_of_other_kernels_is_seen(odd, batch_multiple):
    """Rows that move only in calls of one batch_multiple, or only in calls of three, make the check try the next batch_multiple."""
    model = TwoKernels(1)
    model.odd = odd
    assert self_check(model).batch_multiple == batch_multiple


FIXED = BatchSizes.fixed({1: 0.002, 8: 0.003, 64: 0.015})


class TwoPrograms(HashModel):
    """The rows of calls that use the largest program are other ones."""

    moves = 0.0

    def extend(self, *args):
        extension = super().extend(*args)
        if self.program_sizes[-1] != 64 or not len(extension.rows):
            return extension
        rows = np.stack([extension.rows.logits(i) for i in range(len(extension.rows))])
        rows[:, ::2] += np.float32(self.moves)
        return replace(extension, rows=DenseRows(rows))

    def new_context(self, nodes, *args):
        model = TwoPrograms(1, limits=self.limits)
        model.moves = self.moves
        return model


@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.RECURRENT])
@pytest.mark.parametrize("moves", [0.0, 0.01])
def test_fixed_batch_sizes_are_measured_as_they_are(monkeypatch, kind, moves):
    """No multiple is tried or set, and the layouts show how far programs of different sizes move a row."""
    monkeypatch.setattr("selectrie.engine.precision_check.MAX_ROWS_FLOAT", 200)
    model = TwoPrograms(1, limits=replace(WIDE, kind=kind, batch_sizes=FIXED))
    model.moves = moves
    check = self_check(model)
    assert check.batch_multiple == 0
    assert model.limits.batch_sizes == FIXED
    assert (check.moved > 0.001) == (moves > 0)
    assert check.tolerance / max(check.moved, MIN_MOVE) in (MARGIN, MARGIN_RARE)
    assert is_plausible(check, model.limits)
    for multiple in (1, 8):
        assert not is_plausible(replace(check, batch_multiple=multiple), model.limits)
    assert not is_plausible(check, replace(model.limits, batch_sizes=BatchSizes(8)))


@pytest.mark.parametrize("batch_multiple", [0, 8])
def test_a_check_sets_no_multiple_where_sizes_are_fixed(batch_multiple):
    """An engine takes the check that it is given, and leaves the model as it is."""
    model = HashModel(1, limits=replace(WIDE, batch_sizes=FIXED))
    check = SelfCheck(batch_multiple, 0.0, MARGIN * MIN_MOVE, 80)
    with Engine(model, check=check) as engine:
        assert engine.self_check == check
        assert engine.limits.batch_sizes == FIXED


def test_rows_that_have_to_be_fetched_are_checked_too():
    """The self-check of a model whose rows are elsewhere finds what that of a plain one finds."""
    assert self_check(FarModel(HashModel(1))) == self_check(HashModel(1))
