"""After any failure a llama.cpp model is as it was, and goes on giving the rows of a fresh one."""

from __future__ import annotations

import threading

import llama_cpp
import numpy as np
import pytest
from llama_twin import SinglePath
from llama_work import KINDS, Work, chain, fan, flags, ints, logp

from selectrie.backends.llama_cpp import LlamaModel, LlamaOptions, open_model
from selectrie.backends.llama_cpp.library import StopFlag
from selectrie.errors import CapacityError, DecodeError, DecodeInterrupted, InternalError, NodeError
from selectrie.types import ROOT

EXACT_BITS = 0.0


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
        assert work.worst_nats <= KINDS[kind].nats
        work.finish()


def test_an_aborted_decode_says_so_and_changes_nothing(any_model):
    """Room, `find` and the references are as before; the same call then works."""
    with opened(any_model) as model:
        prompt = chain(model, ROOT, range(5, 25))
        room = model.room()
        stop_at(model, 9)
        with pytest.raises(DecodeError) as caught:
            chain(model, int(prompt.nodes[-1]), [30, 31])
        assert not isinstance(caught.value, DecodeInterrupted)
        assert caught.value.return_code == 2
        assert model.room() == room
        assert model.find(ints(*range(5, 25), 30)) == (prompt.nodes[-1], 20)
        model.set_abort_callback(None)
        chain(model, int(prompt.nodes[-1]), [30, 31])


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_states_that_a_failure_took_are_evaluated_again(model_of, kind):
    """A prompt with two kept branches: after an abort both branches, the prompt, and a fresh one give the right rows."""
    path = model_of(kind)
    twin = SinglePath(path)
    with opened(path) as model:
        prompt = chain(model, ROOT, range(60, 80))
        leaves = fan(model, int(prompt.nodes[-1]), [80, 81], keep=True)
        stop_at(model, 20)
        with pytest.raises(DecodeError):
            fan(model, int(leaves.nodes[0]), [90, 91, 92])
        model.set_abort_callback(None)
        for parent, tail in ((leaves.nodes[1], (81,)), (prompt.nodes[-1], ()), (leaves.nodes[0], (80,)), (ROOT, None)):
            got = fan(model, int(parent), [95])
            whole = (95,) if tail is None else (*range(60, 80), *tail, 95)
            np.testing.assert_allclose(logp(got.rows, 0), twin.row(whole), atol=KINDS[kind].nats)
        assert model.find(ints(*range(60, 80), 81)) == (leaves.nodes[1], 21)


def test_interrupt_stops_a_running_decode_from_another_thread(any_model):
    """A thread interrupts until the decode gives up; afterwards the model works, with the bits it had."""
    with opened(any_model) as model:
        expected = chain(model, ROOT, range(5, 69)).rows.copy()
        model.trim(0)
        done = threading.Event()

        def keep_interrupting() -> None:
            while not done.is_set():
                model.interrupt()

        thread = threading.Thread(target=keep_interrupting)
        thread.start()
        try:
            with pytest.raises(DecodeInterrupted):
                chain(model, ROOT, range(105, 169))
        finally:
            done.set()
            thread.join()
        nodes = chain(model, ROOT, [7]).nodes
        model.release(nodes, forget=True)
        again = chain(model, ROOT, range(5, 69)).rows
        np.testing.assert_allclose(logp(again, 63), logp(expected, 63), atol=1e-4)


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
@pytest.mark.parametrize("place", ["prepare", "decode", "commit", "settle"])
def test_an_interrupt_anywhere_in_a_call_is_rolled_back(model_of, monkeypatch, kind, place):
    """KeyboardInterrupt after the copies, after the decode, after the commit and in the settling."""
    path = model_of(kind)
    with opened(path) as model:
        prompt = chain(model, ROOT, range(60, 80))
        top = int(prompt.nodes[-1])
        first = fan(model, top, [70])
        before = logp(first.rows, 0)
        model.release(first.nodes, forget=True)
        room = model.room()
        owner = {"decode": model._context, "commit": model._tree}.get(place, model._sequences)
        inner = getattr(owner, place)

        def interrupted(*args, **kwargs):
            inner(*args, **kwargs)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(owner, place, interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.extend(ints(top, top, ROOT), ints(81, 82, 83), flags(3, 0, 1, 2), flags(3, 0))
        assert model.room() == room
        after = logp(fan(model, top, [70]).rows, 0)
        np.testing.assert_allclose(after, before, atol=KINDS[kind].nats)


@pytest.mark.parametrize(("code", "error"), [(1, CapacityError), (-1, DecodeError), (-3, DecodeError)])
def test_return_codes_are_told_apart(any_model, monkeypatch, code, error):
    """1 is lack of room, everything below zero a failure; the tree stands."""
    with opened(any_model) as model:
        prompt = chain(model, ROOT, range(5, 25))
        room = model.room()
        with monkeypatch.context() as patch:
            patch.setattr(llama_cpp, "llama_decode", lambda *_: code)
            with pytest.raises(error) as caught:
                chain(model, int(prompt.nodes[-1]), [30])
        assert getattr(caught.value, "return_code", code) == code
        assert model.room() == room
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
        assert model.find(ints(*range(105, 125))) == (ROOT, 0)
        assert model.room().nodes == model.limits.nodes
        again = chain(model, ROOT, range(5, 25)).rows
        assert float(np.abs(logp(again, 19) - logp(expected, 19)).max()) <= 1e-4


def test_a_sequence_that_does_not_own_its_cells_is_noticed_before_the_decode(any_model):
    """llama.cpp would answer wrong with rc 0: the last position of an id is checked before anything stands on it."""
    with opened(any_model) as model:
        prompt = chain(model, ROOT, range(5, 25))
        model._context.remove(0, 10)
        with pytest.raises(InternalError, match="ends at position 9"):
            fan(model, int(prompt.nodes[-1]), [30])
