"""A module that several models share: who may call it, and who copies it, while it is checked."""

from __future__ import annotations

import copy
import linecache
import sys
import threading

import pytest

for _name in ("torch", "transformers"):
    pytest.importorskip(_name)

from selectrie.backends.transformers import module as module_file
from selectrie.backends.transformers.module import PreparedModule, copy_sharing_weights
from tests.support.transformers_models import make_module, opened

PATIENCE_S = 60


@pytest.fixture
def prepared():
    """A prepared module without a model that uses it."""
    return PreparedModule(make_module("llama"), "tiny")


def in_thread(run):
    """Run in another thread, which must end; return what it returned."""
    results = []
    thread = threading.Thread(target=lambda: results.append(run()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert results, "the thread waits for ever"
    return results[0]


def can_enter(prepared):
    """Return whether another thread could begin a call now."""

    def enter():
        is_free = prepared._callers_changed.acquire(blocking=False)
        if is_free:
            prepared._callers_changed.release()
        return is_free

    return in_thread(enter)


def call(prepared):
    with prepared._count_caller():
        return True


def test_calls_of_other_threads_wait_while_a_thread_is_alone(prepared):
    """The thread that is alone calls the module, also twice; others cannot before it has left."""
    assert can_enter(prepared)
    with prepared.alone():
        assert call(prepared)
        assert call(prepared)
        assert not can_enter(prepared)
    assert in_thread(lambda: call(prepared))


def test_a_thread_is_alone_only_after_running_calls_have_ended(prepared):
    """It waits for a call that has begun; a call that begins later comes after it."""
    order, is_inside, may_end = [], threading.Event(), threading.Event()

    def long_call():
        with prepared._count_caller():
            is_inside.set()
            assert may_end.wait(PATIENCE_S)
            order.append("call")

    def alone():
        with prepared.alone():
            order.append("alone")

    threads = [threading.Thread(target=run, daemon=True) for run in (long_call, alone)]
    threads[0].start()
    assert is_inside.wait(PATIENCE_S)
    threads[1].start()
    while True:  # until the second thread waits
        with prepared._callers_changed:
            if prepared._claimants or order:
                break
    may_end.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == ["call", "alone"]


def test_ctrl_c_while_a_thread_waits_to_be_alone_leaves_no_claim(prepared):
    """It may come at any line before the block begins; other threads call the module afterwards."""

    def interrupted_at(line):
        n_lines = 0

        def trace(frame, event, _argument):
            nonlocal n_lines
            if frame.f_code is not PreparedModule.alone.__wrapped__.__code__:
                return None
            is_line = event == "line" and linecache.getline(module_file.__file__, frame.f_lineno).strip() != "try:"
            n_lines += is_line  # nothing is done at `try:`, and no signal is handled
            if is_line and n_lines == line:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with prepared.alone():
                sys.settrace(before)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    line = 1
    while interrupted_at(line):
        assert in_thread(lambda: call(prepared)), line
        line += 1
    assert line > 5


def test_a_module_is_copied_while_no_other_thread_changes_it(monkeypatch):
    """`probe_behind` makes windows narrower for a while, and a copy made then would keep them so."""
    tiny = make_module("mistral")
    seen = []
    right = copy.deepcopy

    def watched(value, memo=None):
        if isinstance(value, PreparedModule):
            seen.append(can_enter(value))
        return right(value, memo)

    with opened(tiny):
        monkeypatch.setattr(module_file.copy, "deepcopy", watched)
        twin = copy_sharing_weights(tiny)
    assert seen == [False]
    assert twin.config.sliding_window == tiny.config.sliding_window
    assert id(tiny) not in module_file._prepared
    assert not any(part._forward_pre_hooks for part in twin.modules())
