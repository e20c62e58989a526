"""Threads that wait for calls: any number at once, kept for a short time, none left."""

from __future__ import annotations

import os
import threading
import warnings
import weakref

import pytest

from selectrie.engine import aio
from selectrie.engine.aio import KeptThreads

NAME = "selectrie-kept-test"


def running():
    """The threads of these tests."""
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture
def threads(monkeypatch):
    """Threads that are kept for a short time; at the end of a test all have left."""
    monkeypatch.setattr(aio, "KEEP_S", 0.01)
    yield KeptThreads(NAME)
    for thread in running():
        thread.join(20)
        assert not thread.is_alive()


def ran_by(threads):
    """The thread that ran a function, once it has."""
    ran, found = threading.Event(), []
    threads.run(lambda: (found.append(threading.current_thread()), ran.set()))
    assert ran.wait(20)
    return found[0]


def test_an_idle_thread_is_used_again(threads, monkeypatch):
    """One call after the other needs one thread."""
    monkeypatch.setattr(aio, "KEEP_S", 20)
    first = ran_by(threads)
    while not threads._idle:
        pass
    monkeypatch.setattr(aio, "KEEP_S", 0.01)
    assert ran_by(threads) is first


def test_any_number_of_functions_run_at_once(threads):
    """No function waits for another one; of their threads only some are kept."""
    n = 3 * aio.MAX_IDLE
    together, left = threading.Barrier(n + 1), threading.Barrier(n + 1)
    for _ in range(n):
        threads.run(lambda: (together.wait(20), left.wait(20)))
    together.wait(20)
    assert len(running()) == n
    left.wait(20)
    assert len(threads._idle) <= aio.MAX_IDLE


def test_no_call_is_lost_while_threads_leave(threads, monkeypatch):
    """A thread that is about to leave takes the work that was given to it."""
    monkeypatch.setattr(aio, "KEEP_S", 0)
    done = [threading.Event() for _ in range(300)]
    for one in done:
        threads.run(one.set)
    assert all(one.wait(20) for one in done)


def test_an_idle_thread_holds_nothing_of_its_last_call(threads, monkeypatch):
    """What a request held can be freed while its thread waits for another."""
    monkeypatch.setattr(aio, "KEEP_S", 20)

    class Held:
        pass

    for _ in range(2):  # the first call of a thread, and a later one
        held = Held()
        gone = weakref.ref(held)
        threads.run(lambda held=held: None)
        del held
        while not threads._idle:
            pass
        while gone() is not None:
            pass
    monkeypatch.setattr(aio, "KEEP_S", 0.01)
    ran_by(threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_begins_without_threads(threads):
    """Threads do not live on in a child, so it forgets them."""
    threads._idle.append(object())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from Python 3.12 on: other threads run
            child = os.fork()
        if child == 0:
            os._exit(0 if threads._idle == [] else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        threads._idle.clear()
