"""After any failure a llama.cpp model is as it was, and goes on giving the rows of a fresh one."""

from __future__ import annotations

import gc
import threading

import llama_cpp
import numpy as np
import pytest

from selectrie.backends.llama_cpp.library import StopFlag
from selectrie.backends.llama_cpp.model import LlamaModel, open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.types import ROOT
from selectrie.errors import CapacityError, DecodeError, DecodeInterrupted, InternalError, NodeError
from tests.support.arrays import ints
from tests.support.llama_twin import SinglePath
from tests.support.llama_work import KINDS, Work, chain, fan, flags, logp
from tests.support.measured import row_nats

LONG_S = 20
"""Seconds after which something that never happens is given up."""


def opened(path, **options) -> LlamaModel:
    return open_model(path, LlamaOptions(n_threads=1, n_batch=64, **options))


def stop_at(model: LlamaModel, k: int) -> None:
    """Let the next decode stop at the k-th node of its graph."""
    seen = 0

    def callback() -> bool:
        nonlocal seen
        seen += 1
        return seen == k

    model.set_abort_callback(callback)


@pytest.mark.short("attention", "hybrid")
@pytest.mark.parametrize("kind", KINDS)
def test_aborted_decodes_leave_no_trace(model_of, kind):
    """Every third step is stopped at a random graph node; rows before and after are those of each path alone."""
    path = model_of(kind)
    rng = np.random.default_rng(11)
    with opened(path) as model:
        work = Work(model, SinglePath(path), np.random.default_rng(7), tokens=KINDS[kind].tokens)
        for step in range(60):
            if step % 3 == 2:
                stop_at(model, int(rng.integers(1, 60)))
            work.step()
            model.set_abort_callback(None)
        assert work.failures >= 5
        assert work.rows_compared >= 20
        assert work.worst_nats <= row_nats(model_of(kind))
        work.finish()


def test_an_aborted_decode_says_so_and_changes_nothing(any_model):
    """Room, `match_prefix` and the references are as before; the same call then works."""
    with opened(any_model) as model:
        prompt = chain(model, ROOT, range(5, 25))
        room = model.capacity()
        stop_at(model, 9)
        with pytest.raises(DecodeError) as caught:
            chain(model, int(prompt.nodes[-1]), [30, 31])
        assert not isinstance(caught.value, DecodeInterrupted)
        assert caught.value.return_code == 2
        assert model.capacity() == room
        assert model.match_prefix(ints(*range(5, 25), 30)) == (prompt.nodes[-1], 20)
        model.set_abort_callback(None)
        chain(model, int(prompt.nodes[-1]), [30, 31])


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_states_that_a_failure_took_are_evaluated_again(model_of, kind):
    """A prompt with two kept branches: after an abort both branches, the prompt, and a fresh one give the right rows, and
    each lost row is evaluated once more: the prompt's 20 and one branch for the first call, the other branch later."""
    path = model_of(kind)
    twin = SinglePath(path)
    with opened(path) as model:
        prompt = chain(model, ROOT, range(60, 80))
        leaves = fan(model, int(prompt.nodes[-1]), [80, 81], keep=True)
        stop_at(model, 20)
        with pytest.raises(DecodeError):
            fan(model, int(leaves.nodes[0]), [90, 91, 92])
        model.set_abort_callback(None)
        for parent, path, n_lost, n_states in (
            (leaves.nodes[1], (*range(60, 80), 81), 21, 2),
            (prompt.nodes[-1], (*range(60, 80),), 0, 0),
            (leaves.nodes[0], (*range(60, 80), 80), 1, 1),
            (ROOT, (), 0, 0),
        ):
            got = fan(model, int(parent), [95])
            np.testing.assert_allclose(logp(got.rows, 0), twin.row((*path, 95)), rtol=0, atol=row_nats(model_of(kind)))
            assert (got.rows_evaluated, got.rows_repeated) == (n_lost + 1, n_lost)
            assert got.n_programs == n_states + 1  # a decode for each state
        assert model.match_prefix(ints(*range(60, 80), 81)) == (leaves.nodes[1], 21)


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_ways_that_part_where_no_state_was_kept_are_evaluated_once(model_of, kind):
    """A comb of leaves whose forks have no states: after an abort one call from all leaves takes every row once more.

    60 .. 79 ‧ 80
             ‧ 90 ‧ 81
                  ‧ 91 ‧ 82
                       ‧ 92
    """
    path = model_of(kind)
    twin = SinglePath(path)
    with opened(path) as model:
        spine, leaves = [*range(60, 80)], []
        top = chain(model, ROOT, spine).nodes
        model.release(top[:-1])
        for leaf, fork in ((80, 90), (81, 91), (82, 92)):
            pair = fan(model, int(top[-1]), [leaf, fork], keep=True).nodes
            leaves.append((int(pair[0]), (*spine, leaf)))
            model.release(top[-1:], forget=True)
            spine.append(fork)
            top = pair
        leaves.append((int(top[-1]), tuple(spine)))
        room = model.capacity()
        parents = ints(*(node for node, _ in leaves))
        call = (parents, ints(95, 96, 97, 98), flags(4, 0, 1, 2, 3), flags(4))
        stop_at(model, 20)
        with pytest.raises(DecodeError):
            model.extend(*call)
        assert model.capacity() == room
        model.set_abort_callback(None)
        got = model.extend(*call)
        assert (got.rows_evaluated, got.rows_repeated) == (20 + 6 + 4, 20 + 6)
        assert got.n_programs == 4 + 3 + 1  # leaves, forks, and the call
        for i, (_, tokens) in enumerate(leaves):
            np.testing.assert_allclose(
                logp(got.rows, i), twin.row((*tokens, 95 + i)), rtol=0, atol=row_nats(model_of(kind))
            )
        model.release(got.nodes, forget=True)
        assert model.capacity() == room
        assert model.extend(*call).rows_evaluated == 4


def test_what_fitted_before_a_failure_fits_after_it(model_of):
    """Hybrid: a prompt that takes half the context, and six branches. Evaluating it anew for each would need 768 cells."""
    with opened(model_of("hybrid"), n_ctx=256) as model:
        first = chain(model, ROOT, range(60, 124))
        prompt = chain(model, int(first.nodes[-1]), range(124, 188))
        leaves = fan(model, int(prompt.nodes[-1]), range(200, 206), keep=True).nodes
        call = (leaves, np.full(6, 30, dtype=np.int32), flags(6, 0), flags(6))
        stop_at(model, 1)
        with pytest.raises(DecodeError):
            model.extend(*call)
        model.set_abort_callback(None)
        got = model.extend(*call)
        assert (got.rows_evaluated, got.rows_repeated) == (128 + 6 + 6, 128 + 6)


def test_rows_to_evaluate_again_are_counted_before_anything_changes(model_of):
    """Hybrid: a lost prompt of 64 that no longer fits beside what was made since is refused, and comes back later."""
    with opened(model_of("hybrid"), n_ctx=256) as model:
        top = int(chain(model, ROOT, range(60, 124)).nodes[-1])
        stop_at(model, 1)
        with pytest.raises(DecodeError):
            fan(model, top, [30])
        model.set_abort_callback(None)
        room = model.capacity()
        model._sequences._cells_used = model._context.size.cells - 32
        with pytest.raises(CapacityError, match="needs 65 cells, 32 available"):
            fan(model, top, [30])
        assert model.capacity() == room
        model._sequences._cells_used = 0
        assert fan(model, top, [30]).rows_evaluated == 65


def test_interrupt_stops_a_running_decode_from_another_thread(any_model):
    """A decode that waits for the interrupt gives up; afterwards the model works, with the bits it had."""
    with opened(any_model) as model:
        expected = chain(model, ROOT, range(5, 69)).rows.copy()
        model.trim(0)
        running, told = threading.Event(), threading.Event()

        def interrupt() -> None:
            running.wait(LONG_S)
            model.interrupt()
            told.set()

        def node() -> bool:
            running.set()
            return not told.wait(LONG_S)

        thread = threading.Thread(target=interrupt)
        thread.start()
        model.set_abort_callback(node)
        with pytest.raises(DecodeInterrupted):
            chain(model, ROOT, range(105, 169))
        thread.join()
        model.set_abort_callback(None)
        nodes = chain(model, ROOT, [7]).nodes
        model.release(nodes, forget=True)
        again = chain(model, ROOT, range(5, 69)).rows
        np.testing.assert_allclose(logp(again, 63), logp(expected, 63), rtol=0, atol=row_nats(any_model))


def test_an_interrupt_stops_a_decode_of_a_solo_model(any_model):
    """It reaches what was made by `new_context`, which then goes on working, as does the model."""
    with opened(any_model) as model, model.new_context(64) as solo:
        solo.set_abort_callback(lambda: bool(model.interrupt()))
        with pytest.raises(DecodeInterrupted):
            chain(solo, ROOT, range(5, 69))
        solo.set_abort_callback(None)
        chain(solo, ROOT, range(5, 69))
        chain(model, ROOT, range(5, 69))


def test_a_callback_outlives_the_solo_models_beside_it(any_model):
    """A flag is shared, what a context calls is its own: making and forgetting a solo model leaves the model's in place."""
    asked = []
    with opened(any_model) as model:
        model.set_abort_callback(lambda: bool(asked.append(1)))
        with model.new_context(8) as solo:
            chain(solo, ROOT, [5])
        assert not asked
        del solo
        gc.collect()
        chain(model, ROOT, [5])
        assert asked


def test_interrupt_has_no_effect_when_idle(any_model):
    """An interrupt between calls is not remembered."""
    with opened(any_model) as model:
        model.interrupt()
        chain(model, ROOT, [5])


def test_a_stop_flag_without_libc_asks_python(any_model, monkeypatch):
    """Where `strlen` cannot be found, a Python callback reads the same byte."""
    monkeypatch.setattr(StopFlag, "_native", staticmethod(lambda: None))
    with opened(any_model) as model:
        chain(model, ROOT, [5])
        stop_at(model, 10_000)
        extend = model._context.decode

        def decode(*args, **kwargs):
            model.interrupt()
            return extend(*args, **kwargs)

        monkeypatch.setattr(model._context, "decode", decode)
        with pytest.raises(DecodeInterrupted):
            chain(model, ROOT, [6])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["prepare", "decode", "commit", "finish"])
def test_an_interrupt_anywhere_in_a_call_is_rolled_back(model_of, monkeypatch, kind, place):
    """KeyboardInterrupt after the copies, after the decode, after the commit and in the settling."""
    path = model_of(kind)
    with opened(path) as model:
        prompt = chain(model, ROOT, range(60, 80))
        top = int(prompt.nodes[-1])
        first = fan(model, top, [70])
        before = logp(first.rows, 0)
        model.release(first.nodes, forget=True)
        room = model.capacity()
        owner = {"decode": model._context, "commit": model._tree}.get(place, model._sequences)
        inner = getattr(owner, place)

        def interrupted(*args, **kwargs):
            inner(*args, **kwargs)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(owner, place, interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.extend(ints(top, top, ROOT), ints(81, 82, 83), flags(3, 0, 1, 2), flags(3, 0))
        assert model.capacity() == room
        after = logp(fan(model, top, [70]).rows, 0)
        np.testing.assert_allclose(after, before, rtol=0, atol=row_nats(model_of(kind)))


@pytest.mark.parametrize(("code", "error"), [(1, CapacityError), (-1, DecodeError), (-3, DecodeError)])
def test_return_codes_are_told_apart(any_model, monkeypatch, code, error):
    """1 is lack of room, everything below zero a failure; the tree stands."""
    with opened(any_model) as model:
        prompt = chain(model, ROOT, range(5, 25))
        room = model.capacity()
        with monkeypatch.context() as patch:
            patch.setattr(llama_cpp, "llama_decode", lambda *_: code)
            with pytest.raises(error) as caught:
                chain(model, int(prompt.nodes[-1]), [30])
        assert getattr(caught.value, "return_code", code) == code
        assert model.capacity() == room
        chain(model, int(prompt.nodes[-1]), [30])


def test_memory_that_cannot_be_cut_back_is_given_up(any_model, monkeypatch):
    """Where llama.cpp's memory is not what it should be, every node is dropped, says so when used, and work goes on."""
    with opened(any_model) as model:
        expected = chain(model, ROOT, range(5, 25)).rows.copy()
        model.trim(0)
        prompt = chain(model, ROOT, range(105, 125))
        stop_at(model, 9)
        with monkeypatch.context() as patch:
            patch.setattr(model._context, "first_position", lambda _: 3)
            with pytest.raises(DecodeError):
                fan(model, ROOT, [30])
        model.set_abort_callback(None)
        with pytest.raises(NodeError):
            fan(model, int(prompt.nodes[-1]), [30])
        with pytest.raises(NodeError):
            model.release(prompt.nodes)
        assert model.match_prefix(ints(*range(105, 125))) == (ROOT, 0)
        assert model.capacity().nodes == model.limits.nodes
        again = chain(model, ROOT, range(5, 25)).rows
        assert float(np.abs(logp(again, 19) - logp(expected, 19)).max()) <= row_nats(any_model)


def test_a_sequence_that_does_not_own_its_cells_is_noticed_before_the_decode(any_model):
    """llama.cpp would answer wrong with rc 0: the last position of an id is checked before anything stands on it."""
    with opened(any_model) as model:
        prompt = chain(model, ROOT, range(5, 25))
        model._context.remove(0, 10)
        with pytest.raises(InternalError, match="ends at position 9"):
            fan(model, int(prompt.nodes[-1]), [30])
