"""Compiled programs behind the port: how calls are cut, what a failure leaves, and how many programs there are."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.support.xla_extra import require_packages

require_packages()

import torch

from selectrie.core.model import chain
from selectrie.core.types import ROOT, BatchSizes
from selectrie.errors import CapacityError, ClosedError, DecodeError, DecodeInterrupted, ModelError, OptionError
from tests.support import transformers_models
from tests.support.arrays import every, ints
from tests.support.transformers_models import N_TOKENS, make_module, plain_logp
from tests.support.xla_models import SECONDS, fail_next, opened, programs_run


def run(model, parent, tokens):
    """A run of tokens below a node, all wanted and kept."""
    n = len(tokens)
    return model.extend(chain(parent, n), ints(*tokens), every(n), every(n))


def logits(extension):
    return np.stack([extension.rows.logits(i) for i in range(len(extension.rows))])


@pytest.fixture(scope="module")
def module():
    return make_module("llama")


@pytest.fixture(scope="module")
def shared(module):
    """A model of three programs, 24, 4 and 1 rows, whose tests leave it empty."""
    with opened(module) as model:
        yield model


@pytest.fixture
def model(shared):
    """It, empty."""
    empty = shared.capacity()
    yield shared
    references = shared._tree.references
    shared.release(ints(*(node for node in range(1, len(references)) for _ in range(references[node]))))
    shared.trim(0)
    assert shared.capacity() == empty


# How calls are cut


@pytest.mark.parametrize(
    ("n", "sizes"), [(1, [1]), (2, [1, 1]), (3, [4]), (5, [4, 1]), (10, [4, 4, 1, 1]), (20, [24]), (24, [24])]
)
def test_a_call_runs_the_programs_that_its_limits_name(model, n, sizes):
    """In their order, then a head for the wanted rows alone; both also in a new context."""
    assert model.limits.batch_sizes == BatchSizes.fixed(SECONDS)
    solo = model.new_context(64)
    for one in (model, solo):
        with programs_run(one) as seen:
            made = one.extend(chain(ROOT, n), ints(*range(5, 5 + n)), np.arange(n) == n - 1, every(n))
        assert seen == [*(("body", size) for size in sizes), ("head", 1)]
        assert sizes == list(one.limits.batch_sizes.programs(n))
        assert (made.n_programs, made.rows_evaluated, made.rows_padded) == (len(sizes), n, sum(sizes) - n)
        with programs_run(one) as seen:
            again = one.extend(chain(ROOT, n), ints(*range(5, 5 + n)), np.zeros(n, dtype=np.bool_), every(n))
        assert (seen, again.n_programs, len(again.rows)) == ([], 0, 0)
    solo.close()


def test_a_prompt_computes_the_logits_of_no_row_but_its_last(model):
    """Heads are programs of their own: without wanted rows none runs."""
    with programs_run(model) as seen:
        model.extend(chain(ROOT, 20), ints(*range(5, 25)), np.zeros(20, dtype=np.bool_), every(20))
    assert seen == [("body", 24)]


def test_seconds_decide_how_a_call_is_cut(model):
    """The same 20 rows are five programs of 4 where that of 24 is said to be slow, and the rows are the same ones."""
    rows = logits(run(model, ROOT, range(5, 25)))
    source = model.source
    try:
        source.bodies = BatchSizes.fixed({24: 90.0, 4: 2.5, 1: 1.0})
        other = model.new_context(64)
        with programs_run(other) as seen:
            cut = logits(run(other, ROOT, range(5, 25)))
        other.close()
    finally:
        source.bodies = BatchSizes.fixed(SECONDS)
    assert seen == [("body", 4)] * 5 + [("head", 24)]
    np.testing.assert_allclose(cut, rows, rtol=0, atol=5e-5)


def test_rows_are_in_the_order_of_the_call(model):
    """Also where an element comes twice, is known already, or is not wanted."""
    first = run(model, ROOT, [5, 6])
    node = int(first.nodes[1])
    parents, tokens = ints(node, ROOT, node, node), ints(9, 5, 8, 9)
    wanted = np.array([True, True, False, True])
    made = model.extend(parents, tokens, wanted, every(4))
    assert made.nodes[0] == made.nodes[3]
    assert made.nodes[1] == first.nodes[0]
    np.testing.assert_array_equal(made.rows.logits(0), made.rows.logits(2))
    for row, path in ((0, [5, 6, 9]), (1, [5])):
        logp = made.rows.logits(row) - made.rows.logsumexp(row)
        np.testing.assert_allclose(logp, plain_logp(make_module("llama"), path), rtol=0, atol=5e-5)


def test_no_programs_are_made_for_later_calls(model):
    """Two lengths of pools and three sizes: six bodies and three heads at most, whatever is asked for."""
    rng = np.random.default_rng(4)
    bodies, heads = model.n_compiled
    assert (bodies, heads) <= (6, 3)
    for _ in range(30):
        solo = model.new_context(int(rng.integers(1, 90)), rows=int(rng.integers(1, 30)))
        n = min(int(rng.integers(1, 25)), solo.capacity().rows)
        run(solo, ROOT, rng.integers(3, N_TOKENS, n).tolist())
        solo.close()
    assert model.n_compiled <= (6, 3)
    longer = model.new_context(97 + 24 + 24)
    assert longer.limits.nodes == 145
    longer.close()


def test_a_long_context_has_a_pool_that_is_a_multiple(model):
    """Beyond the long pool, whose cells are said by `source.lengths`; a path of twice its length gives right rows."""
    lengths = model.source.lengths
    assert lengths.length_for(lengths.short) == lengths.short
    assert lengths.length_for(lengths.short + 1) == lengths.long
    assert lengths.length_for(lengths.long + 1) == 2 * lengths.long
    long = model.new_context(lengths.long + 10)
    path = np.random.default_rng(3).integers(3, N_TOKENS, lengths.long + 10).tolist()
    end = ROOT
    for start in range(0, len(path), 24):
        made = run(long, end, path[start : start + 24])
        end = int(made.nodes[-1])
    last = made.rows.logits(len(made.rows) - 1) - made.rows.logsumexp(len(made.rows) - 1)
    long.close()
    np.testing.assert_allclose(last, plain_logp(make_module("llama"), path), rtol=0, atol=5e-5)


# Failures


@pytest.mark.parametrize("failing", range(5))
def test_a_call_of_several_programs_commits_after_the_last(model, failing):
    """Whichever of its four bodies or its head fails: tree, capacity and the bits of later rows are as without the call."""
    base = run(model, ROOT, range(5, 11))
    node = int(base.nodes[-1])
    made = run(model, node, [30, 31, 32])
    expected = logits(made)
    model.release(made.nodes, forget=True)
    capacity, n_nodes = model.capacity(), model._tree.n_nodes

    def fail(number):
        if number == failing:
            raise RuntimeError("told to fail")

    with programs_run(model, fail) as seen, pytest.raises(DecodeError, match="tiny: RuntimeError: told to fail"):
        run(model, node, range(40, 50))
    assert len(seen) == failing + 1
    assert (model.capacity(), model._tree.n_nodes) == (capacity, n_nodes)
    assert model.match_prefix(ints(*range(5, 11), 40)) == (node, 6)
    model.release(ints(node))
    made = run(model, node, [30, 31, 32])
    np.testing.assert_array_equal(logits(made), expected)
    made = run(model, node, range(40, 50))
    logp = made.rows.logits(9) - made.rows.logsumexp(9)
    np.testing.assert_allclose(
        logp, plain_logp(make_module("llama"), [*range(5, 11), *range(40, 50)]), rtol=0, atol=5e-5
    )


def test_a_pool_that_a_failed_program_used_up_is_one_clear_error(module):
    """From then on every call says what to do; what is held can be released, and other contexts go on."""
    with opened(module) as model:
        base = run(model, ROOT, range(5, 11))
        solo = model.new_context(20)
        run(solo, ROOT, [5, 6])
        programs = model.source.programs

        def use_up(program, arguments):
            del programs._run
            assert len(arguments) == 8
            donated = [arguments[0], *(one for pair in arguments[1] for one in pair)]

            def broken(*_given):
                for one in donated:
                    one.delete()
                raise RuntimeError("the device is gone")

            return programs._run(broken, arguments)

        programs._run = use_up
        capacity = model.capacity()
        with pytest.raises(DecodeError, match="the device is gone"):
            run(model, int(base.nodes[-1]), [30, 31])
        assert model.capacity() == capacity
        for _ in range(2):
            with pytest.raises(ModelError, match=r"contexts were lost .* load the model again"):
                run(model, int(base.nodes[-1]), [30, 31])
        model.release(base.nodes)
        assert model.trim(0) == 6
        made = run(solo, ROOT, [5, 6, 7])
        logp = made.rows.logits(2) - made.rows.logsumexp(2)
        solo.close()
    np.testing.assert_allclose(logp, plain_logp(make_module("llama"), [5, 6, 7]), rtol=0, atol=5e-5)


@pytest.mark.parametrize("during", range(4))
def test_an_interrupt_ends_a_call_after_the_running_program(model, during):
    """Also on a new context; nothing has changed then, and an interrupt in idle time has no effect."""
    model.interrupt()
    base = run(model, ROOT, [5, 6])
    solo = model.new_context(40)
    for one, parent in ((model, int(base.nodes[-1])), (solo, ROOT)):
        capacity = one.capacity()
        with (
            programs_run(one, lambda number: model.interrupt() if number == during else None) as seen,
            pytest.raises(DecodeInterrupted),
        ):
            run(one, parent, range(40, 50))
        assert seen == [("body", size) for size in (4, 4, 1, 1)[: during + 1]]
        assert one.capacity() == capacity
        assert len(run(one, parent, range(40, 50)).rows) == 10
    solo.close()


def test_an_error_of_the_bookkeeping_takes_everything_back(model, monkeypatch):
    """Ctrl-C after the new nodes were remembered: none is left, no cell is lost, and the next call works."""
    base = run(model, ROOT, range(5, 11))
    capacity, cells = model.capacity(), model._cells
    used = int(cells._is_used.sum())
    finish = type(cells).finish

    def interrupted(*args):
        finish(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(cells), "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(model, int(base.nodes[-1]), [30, 31])
    monkeypatch.undo()
    assert model.capacity() == capacity
    assert int(cells._is_used.sum()) == used
    run(model, int(base.nodes[-1]), [30, 31])


def test_a_text_that_is_not_a_number_fails_alone():
    """A token with a damaged embedding gives NaN below it and nowhere else: not in its call, and not in later ones that
    write its cells again."""
    damaged = make_module("llama")
    with torch.no_grad():
        damaged.get_input_embeddings().weight[40] = torch.nan
    right = make_module("llama")
    with opened(damaged) as model:
        base = run(model, ROOT, range(5, 11))
        node = int(base.nodes[-1])
        for _ in range(2):
            parents = ints(node, ~0, node, ~2)
            made = model.extend(parents, ints(40, 7, 7, 8), every(4), every(4))
            assert [bool(np.isnan(made.rows.logits(i)).all()) for i in range(4)] == [True, True, False, False]
            logp = made.rows.logits(3) - made.rows.logsumexp(3)
            np.testing.assert_allclose(logp, plain_logp(right, [*range(5, 11), 7, 8]), rtol=0, atol=5e-5)
            below = run(model, int(made.nodes[1]), [9])
            assert np.isnan(below.rows.logits(0)).all()
            for one in (below, made):
                model.release(one.nodes, forget=True)
        fresh = run(model, node, [30, 31, 32])
        logp = fresh.rows.logits(2) - fresh.rows.logsumexp(2)
        np.testing.assert_allclose(logp, plain_logp(right, [*range(5, 11), 30, 31, 32]), rtol=0, atol=5e-5)


# Limits


def test_what_does_not_fit_is_refused_before_anything_runs(model):
    """Rows of a call, nodes, and positions of a model with learned ones."""
    with programs_run(model) as seen, pytest.raises(CapacityError, match="25 rows in one call, 24 available"):
        run(model, ROOT, range(5, 30))
    assert seen == []
    with opened(make_module("gpt2", n_positions=24), seconds={24: 1.0}) as other:
        end = int(run(other, ROOT, range(5, 29)).nodes[-1])
        capacity = other.capacity()
        with programs_run(other) as seen, pytest.raises(CapacityError, match="25 positions, 24 available"):
            run(other, end, [5])
        assert (seen, other.capacity()) == ([], capacity)


def test_batch_sizes_cannot_be_set(model):
    """They are those of the programs."""
    for value in (0, 1, 8, 1 << 40):
        with pytest.raises(OptionError, match=r"batch_multiple.*the batch sizes of a compiled model are fixed"):
            model.set_batch_multiple(value)


def test_a_closed_model_says_so(module):
    """Every verb raises `ClosedError`; closing twice is allowed, and frees the cells and, with the last user, the copy."""
    model = opened(module, seconds={4: 1.0})
    solo = model.new_context(8)
    for one in (model, solo):
        one.close()
        one.close()
        for call in (one.capacity, lambda: run(model, ROOT, [5]), lambda: model.new_context(8), lambda: model.trim(0)):
            with pytest.raises(ClosedError, match="the model tiny"):
                call()
        assert one._cells._pool is None


# The user's own module


@pytest.mark.parametrize("name", ["llama", "falcon", "bloom"])
def test_the_module_stays_the_user_s(name):
    """It is not changed, gives the same bits while the model is open and after it is closed, and can be trained then."""
    tiny = make_module(name)
    tiny.train()

    def state():
        return (
            [m.training for m in tiny.modules()],
            [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in tiny.modules()],
            {key: repr(value) for key, value in vars(tiny.config).items()},
            [p.data_ptr() for p in tiny.parameters()],
        )

    def own():
        tiny.eval()
        logp = plain_logp(tiny, range(5, 25))
        tiny.train()
        return logp

    before, logp = state(), own()
    with opened(tiny, seconds={4: 1.0}) as model:
        assert state() == before
        run(model, ROOT, [5, 6])
        np.testing.assert_array_equal(own(), logp)
    gc.collect()
    assert state() == before
    np.testing.assert_array_equal(own(), logp)
    tiny(input_ids=torch.tensor([[5, 6, 7]])).logits.sum().backward()


@pytest.mark.parametrize("is_first", [True, False])
def test_both_back_ends_have_a_module_open_at_once(is_first):
    """Whichever opens it first, both give right rows, also after the other is closed."""
    tiny = make_module("bloom")
    expected = plain_logp(tiny, range(5, 12))
    openers = [lambda: opened(tiny, seconds={8: 1.0}), lambda: transformers_models.opened(tiny)]
    models = [opener() for opener in (openers if is_first else openers[::-1])]

    def right(model):
        made = run(model, ROOT, range(5, 12))
        logp = made.rows.logits(6) - made.rows.logsumexp(6)
        model.release(made.nodes, forget=True)
        return float(np.abs(logp - expected).max()) <= 5e-5

    assert [right(model) for model in models] == [True, True]
    models[0].close()
    assert right(models[1])
    models[1].close()
    np.testing.assert_array_equal(plain_logp(tiny, range(5, 12)), expected)


def test_random_numbers_of_torch_can_be_forked():
    """`torch.random.fork_rng` asks every device that torch knows, that of torchax too."""
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    with torch.random.fork_rng():
        torch.rand(3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_failed_program_is_told_to_fail_once(model):
    """`fail_next`, by which the laws are checked, breaks one program and no later one."""
    fail_next(model)
    with pytest.raises(DecodeError, match="told to fail"):
        run(model, ROOT, [5])
    run(model, ROOT, [5])
