"""How far rows move: assumed by the weights' type, measured in contexts of every size, on every kind of model."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.types import BatchSizes, Limits, ModelKind, SelfCheck
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import ASSUMED, LEAST_OF_ASSUMED, MIN_MOVE, assumed, is_plausible, measure
from selectrie.errors import DecodeError, OptionError
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE
from tests.support.far_rows import FarModel
from tests.support.measured import CEILING_NATS, self_check
from tests.support.weighed import LETTERS, Weighed

FIXED = BatchSizes.fixed({1: 0.002, 8: 0.003, 64: 0.015})


@pytest.mark.parametrize("size", [(8, 8), (64, 16), (512, 256)])
@pytest.mark.parametrize("shape", ["tiny", "sliding-window", "recurrent", "hybrid"])
def test_the_smallest_contexts_are_checked_too(tiny_model, shape, size):
    """However few nodes, rows and states there are, the check leaves the model empty, and finds f32 to move little."""
    n_ctx, n_batch = size
    with open_model(tiny_model("f32", shape=shape), LlamaOptions(n_ctx=n_ctx, n_batch=n_batch, n_threads=1)) as model:
        check = self_check(model)
        room, limits = model.capacity(), model.limits
        assert (room.nodes, room.sequences) == (limits.nodes, limits.sequences)
        assert check.batch_multiple == (1 if limits.kind.is_recurrent else 8)
        assert check.tolerance == 4 * max(check.moved, MIN_MOVE)
        assert check.moved <= CEILING_NATS.get(shape, CEILING_NATS["f32"])
        assert check.n_rows >= 20 or limits.nodes < 60
        assert is_plausible(check, model.identity, limits) == (check.n_rows > 0)


@pytest.mark.short("1-1-*", "7-2-*-attention")
@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.RECURRENT])
@pytest.mark.parametrize("is_fixed", [False, True])
@pytest.mark.parametrize(("rows", "sequences"), [(1, 1), (1, 2), (5, 1), (7, 2), (12, 6)])
def test_few_rows_and_sequences_are_enough(kind, is_fixed, rows, sequences):
    """Down to one row a call and one sequence; the multiple fits a call, and an engine works with it."""
    sequences += 2 * kind.is_recurrent
    sizes = BatchSizes.fixed({1: 0.002, 4: 0.003}) if is_fixed else BatchSizes()
    limits = Limits(100, sequences, rows, kind, max_idle_rows=64, batch_sizes=sizes)
    model = Weighed(1, limits=limits)
    check = self_check(model)
    assert (check.moved, check.n_rows > 20) == (LEAST_OF_ASSUMED * ASSUMED["f32"], True)
    assert check.batch_multiple == (0 if is_fixed else 1 if kind.is_recurrent else min(rows, 8))
    assert is_plausible(check, model.identity, model.limits)
    assert model.capacity().nodes == 100
    with Engine(Weighed(1, limits=limits), check=check) as small, Engine(Weighed(1)) as wide:
        assert small.self_check == check
        assert small.limits.batch_sizes.multiple == max(1, check.batch_multiple)
        if sequences > 1:  # scoring holds the prompt beside the text
            assert small.score("a", " cats").logp == pytest.approx(wide.score("a", " cats").logp)


@pytest.mark.parametrize("weights", list(ASSUMED))
def test_sigma_is_assumed_by_the_type_of_the_weights(weights):
    """Until it is measured, and without a model call; a model without weights has nothing to round."""
    model = Weighed(1)
    model.weights = weights
    with Engine(model) as engine:
        assert engine.self_check == SelfCheck(8, ASSUMED[weights], 4 * ASSUMED[weights], 0)
    assert not model.call_sizes
    assert assumed(HashModel(1).identity, WIDE).tolerance == 4 * MIN_MOVE


def test_sigma_is_that_of_the_rows_by_their_uncertainty():
    """Calls of few rows scale the logits: scaled half as far, they move half as far."""
    model = Weighed(1)
    model.move = lambda rows, n_rows: rows * np.float32(1.0 if n_rows > 16 else 1.01)
    check = self_check(model)
    assert check.n_rows > 20
    assert check.moved > 10 * ASSUMED["f32"]
    halved = Weighed(1)
    halved.move = lambda rows, n_rows: rows * np.float32(1.0 if n_rows > 16 else 1.005)
    assert self_check(halved).moved == pytest.approx(check.moved / 2, rel=0.02)


def test_moves_of_sure_tokens_do_not_hide_the_others():
    """The sum of squared moves is divided by that of 1 - p, so rows of probability one count on neither side."""
    from selectrie.engine.precision_check import _sigma

    alone, beside = np.log([0.5, 0.5, 1.0, 1.0]), np.log([0.5, 0.5, 1.0, 1.0])
    beside[:2] += [0.03, -0.04]
    assert _sigma(alone, beside) == pytest.approx(np.sqrt((0.03**2 + 0.04**2) / 0.5))
    assert _sigma(np.zeros(3), np.zeros(3)) == 0.0
    assert _sigma(np.array([np.nan, 0.0]), np.zeros(2)) is None
    assert _sigma(np.array([-np.inf, 0.0]), np.zeros(2)) is None


@pytest.mark.parametrize("moved", [1.0, np.nan, -np.inf])
def test_what_cannot_be_measured_is_assumed(moved):
    """Logits that are not finite, and a failure of the model, leave the assumed check; nothing is raised."""
    model = Weighed(1)
    model.move = lambda rows, n_rows: np.where(np.arange(rows.shape[1]) % 3 == 0, np.float32(moved), rows)
    check = self_check(model)
    assert check.n_rows == 0 or moved == 1.0
    failing = Weighed(1)
    failing.fail_next(DecodeError("no"))
    failing.new_context = lambda *_: failing
    assert self_check(failing) == assumed(failing.identity, failing.limits)


@pytest.mark.parametrize("is_fixed", [False, True])
@pytest.mark.parametrize("n_tokens", [0, 1])
def test_a_vocabulary_that_cannot_write_the_text_is_assumed(n_tokens, is_fixed):
    """Two tokens are needed for one row; fewer leave the assumed check without a model call."""
    vocabulary = replace(LETTERS, tokenize=lambda text: list(range(n_tokens)))
    model = Weighed(1, vocabulary=vocabulary, limits=replace(WIDE, batch_sizes=FIXED if is_fixed else BatchSizes()))
    assert self_check(model) == assumed(model.identity, model.limits)
    assert not model.call_sizes


@pytest.mark.parametrize("field", ["moved", "tolerance"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_a_tolerance_is_a_number_of_nats(field, value):
    """Comparisons with NaN are false, and would prove anything; no engine can be given one."""
    with pytest.raises(OptionError, match=f"{field}="):
        SelfCheck(**{"batch_multiple": 8, "moved": 0.0, "tolerance": 0.0, field: value})


def test_what_a_kept_check_says_is_plausible():
    """A measured one is; one of another multiple, factor or kind of weights is not, nor one that compared nothing."""
    model = Weighed(1)
    model.weights = "quantised"
    check = self_check(model)
    assert is_plausible(check, model.identity, model.limits)
    for wrong in (
        replace(check, batch_multiple=16),
        replace(check, tolerance=3 * check.moved),
        replace(check, n_rows=0),
        replace(check, moved=1e-4, tolerance=4e-4),
        replace(check, moved=1e3, tolerance=4e3),
    ):
        assert not is_plausible(wrong, model.identity, model.limits)


@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.RECURRENT])
def test_fixed_batch_sizes_are_left_as_they_are(kind):
    """No multiple is set, and programs of different sizes are compared."""
    model = Weighed(1, limits=replace(WIDE, kind=kind, batch_sizes=FIXED))
    model.move = lambda rows, n_rows: rows * np.float32(1.01 if len(rows) < 64 else 1.0)
    check = self_check(model)
    assert (check.batch_multiple, check.moved > 0.001) == (0, True)
    with Engine(model, check=check) as engine:
        assert engine.self_check == check
        assert engine.limits.batch_sizes == FIXED


class Found(list):
    """Self-checks, and an event for the first of them."""

    def __init__(self):
        self.arrived = threading.Event()

    def append(self, check):
        super().append(check)
        self.arrived.set()


def test_the_check_is_made_once_the_engine_has_answered(monkeypatch):
    """Not before, in steps between requests, and it holds for later engines, which do not make it again."""
    monkeypatch.setattr("selectrie.engine.scheduler.model_thread._IDLE_S", 0.0)
    model, found = Weighed(1), Found()
    with Engine(model, on_check=found.append) as engine:
        assert engine.self_check.n_rows == 0
        engine.select("a", [" b", " c"])
        assert found.arrived.wait(60)
        assert engine.self_check == assumed(engine.identity, engine.limits)
        assert found[0].n_rows > 0
    with Engine(Weighed(1), check=found[0], on_check=found.append) as engine:
        assert engine.select("a", [" b", " c"]).signature.rows_compared == found[0].n_rows
    assert len(found) == 1


def test_an_engine_survives_what_its_check_raises(monkeypatch):
    """An error of `on_check` ends the work for idle times, and no request."""
    monkeypatch.setattr("selectrie.engine.scheduler.model_thread._IDLE_S", 0.0)
    called = threading.Event()

    def fail(check):
        called.set()
        raise RuntimeError(check)

    with Engine(Weighed(1), on_check=fail) as engine:
        first = engine.select("a", [" b", " c"])
        assert called.wait(60)
        assert engine.select("a", [" b", " c"]).choices == first.choices


def test_rows_that_have_to_be_fetched_are_checked_too():
    """The self-check of a model whose rows are elsewhere finds what that of a plain one finds."""
    assert self_check(FarModel(Weighed(1))) == self_check(Weighed(1))


def test_every_step_of_the_check_is_a_few_calls():
    """Requests get their turn in between."""
    *steps, check = measure(Weighed(1))
    assert (steps, check.n_rows > 0) == ([None] * len(steps), True)
    assert len(steps) > 3
