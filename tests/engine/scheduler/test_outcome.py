"""Results of another thread: Ctrl-C at any instruction of a wait leaves nothing held."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress
from types import SimpleNamespace

import pytest

from selectrie.engine.scheduler.job import Outcome, wake, wake_once
from tests.support.interrupts import Interrupter

WAITS_S = 20.0
"""Far more than setting a result takes; only a thread that hangs waits for so long."""


def interrupted(outcome, n: int, timeout: float | None = None) -> bool:
    """Interrupt `result` at its n-th instruction; False if it has fewer or waits too long."""
    interrupter = Interrupter(n)
    with suppress(KeyboardInterrupt, TimeoutError), interrupter.at_work():
        outcome.result(timeout)
    return interrupter.has_raised


def can_be_set(outcome) -> bool:
    """Whether another thread can set the result now."""
    setting = threading.Thread(target=outcome.set_result, args=(5,), daemon=True)
    setting.start()
    setting.join(0.5 if isinstance(outcome, Future) else WAITS_S)
    return not setting.is_alive()


def test_ctrl_c_at_any_instruction_of_a_wait_leaves_the_result_to_be_set(monkeypatch):
    """An unset result waits in steps, so every instruction comes."""
    monkeypatch.setattr("selectrie.engine.scheduler.job.LOOK_AGAIN_S", 1e-4)
    for n in range(160):
        outcome: Outcome[int] = Outcome()
        assert interrupted(outcome, n)
        assert can_be_set(outcome)
        assert outcome.result() == 5


def test_ctrl_c_at_any_instruction_of_a_read_leaves_the_result_there():
    """The result is set already; all instructions are tried."""
    n = 0
    while True:
        outcome: Outcome[int] = Outcome()
        outcome.set_result(5)
        if not interrupted(outcome, n):
            break
        assert outcome.result() == 5
        n += 1
    assert n > 5


def test_a_future_of_the_standard_library_would_hang():
    """What the law above is for: its lock can stay held, so setting the result waits for ever."""
    outcomes = [Future() for _ in range(60)]
    for n, outcome in enumerate(outcomes):
        if interrupted(outcome, n, timeout=0.05) and not can_be_set(outcome):
            return
    pytest.skip("this version of Python holds no lock there")


def test_callbacks_are_called_once_each():
    """Before and after the result is set; one that fails is logged and keeps no other from being called."""
    outcome: Outcome[int] = Outcome()
    called = []
    outcome.add_done_callback(lambda: called.append(1))
    outcome.add_done_callback(lambda: called.append(1 // 0))
    outcome.add_done_callback(lambda: called.append(2))
    outcome.set_result(0)
    assert called == [1, 2]
    outcome.add_done_callback(lambda: called.append(3))
    assert called == [1, 2, 3]


def test_an_error_is_raised_wherever_the_result_is_read():
    """As often as it is read; `exception` returns it."""
    outcome: Outcome[int] = Outcome()
    error = ValueError("no")
    outcome.set_exception(error)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            outcome.result()
    assert outcome.exception() is error


def test_a_result_that_is_not_set_in_time_is_a_timeout():
    """And can be read later."""
    outcome: Outcome[int] = Outcome()
    with pytest.raises(TimeoutError):
        outcome.result(timeout=0)
    assert not outcome.wait(0.01)
    outcome.set_result(1)
    assert outcome.result(timeout=0) == 1


def test_only_the_main_thread_wakes_to_look_for_signals(monkeypatch):
    """A thousand threads that look ten times a second would slow the model's thread down."""
    waits_s: list[float] = []
    begins_wait = threading.Event()

    class Lock:
        def __init__(self) -> None:
            self._lock = threading.Lock()
            self.release = self._lock.release

        def acquire(self, timeout: float = -1) -> bool:
            if timeout > 0:
                waits_s.append(timeout)
                begins_wait.set()
            return self._lock.acquire(timeout=timeout)

    names = {name: getattr(threading, name) for name in ("current_thread", "main_thread", "TIMEOUT_MAX")}
    monkeypatch.setattr("selectrie.engine.scheduler.job.threading", SimpleNamespace(Lock=Lock, **names))
    outcome: Outcome[int] = Outcome()
    waiting = threading.Thread(target=outcome.result, daemon=True)
    waiting.start()
    assert begins_wait.wait(WAITS_S)
    assert waits_s == [threading.TIMEOUT_MAX]
    outcome.set_result(0)
    waiting.join(WAITS_S)
    assert not waiting.is_alive()
    Outcome().wait(0.11)
    assert max(waits_s[1:]) <= 0.1


def test_many_threads_wait_for_one_result():
    """Each gets it, also those that come after it was set."""
    outcome: Outcome[int] = Outcome()
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(outcome.result())) for _ in range(8)]
    for thread in threads[:6]:
        thread.start()
    outcome.set_result(7)
    for thread in threads[6:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [7] * 8


def test_what_is_woken_in_one_block_is_woken_once():
    """At its end, in order, also if it fails; other threads, and calls outside of it, wait for no block."""
    woken: list[str] = []
    calls = {name: (lambda name=name: woken.append(name)) for name in "abc"}
    wake(calls["a"])
    assert woken == ["a"]

    with suppress(ZeroDivisionError), wake_once():
        for name in "bab":
            wake(calls[name])
        other = threading.Thread(target=wake, args=(calls["c"],))
        other.start()
        other.join()
        assert woken == ["a", "c"]
        raise ZeroDivisionError
    assert woken == ["a", "c", "b", "a"]
    wake(calls["c"])
    assert woken[-1] == "c"
