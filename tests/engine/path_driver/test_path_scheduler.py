"""`PathThread`: tasks side by side, cancelled, late, failed, waiting and closed."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from selectrie.core.rows import Reads
from selectrie.core.types import Capacity
from selectrie.decoding.task import Ask, TaskBase
from selectrie.engine.engine import Engine
from selectrie.engine.scheduler.task_group import task_group
from selectrie.errors import CancelledError, ClosedError, DeadlineError, DecodeError, QueueFullError
from selectrie.testing import HashModel, PathsOf
from tests.engine.path_driver.test_path_engine import CHOICES, PROMPTS, path_engine, same
from tests.support.gated_paths import LONG_S, GatedPaths, NotedPaths, limits


def in_thread(function):
    pool = ThreadPoolExecutor(1)
    return pool.submit(function)


def test_cancelling_one_request_leaves_the_others():
    """Two requests share nothing; cancelling one aborts what is read for it alone."""
    model = GatedPaths(HashModel(1), limits=limits(queries_per_request=1, requests_in_flight=4))

    async def both():
        gone = asyncio.ensure_future(llm.aselect("a bat", CHOICES))
        stays = asyncio.ensure_future(llm.aselect("ca", CHOICES))
        await asyncio.to_thread(model.wait_for, 2)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        await asyncio.to_thread(model.wait_for_cancelled, 1)
        model.open()
        return await stays

    with path_engine(model) as llm, Engine(HashModel(1)) as local:
        same(asyncio.run(both()), local.select("ca", CHOICES))
    assert len(model.cancelled) == 1


def interrupted(llm, task, after):
    """Begin a task, and press Ctrl-C after what `after` does with its handle."""
    with task_group(llm._model_thread) as group:
        after(group.begin(task))
        raise KeyboardInterrupt


def test_ctrl_c_ends_a_request_and_nothing_else():
    """The handle of a task raises in its thread; what was read for it is aborted, and the engine goes on."""
    model = GatedPaths(HashModel(1))
    with path_engine(model) as llm:
        handles = []
        with pytest.raises(KeyboardInterrupt):
            interrupted(llm, Counts([0, 5], 3), lambda handle: (handles.append(handle), model.wait_for(1)))
        with pytest.raises(CancelledError):
            handles[0].result()
        model.wait_for_cancelled(1)
        model.open()
        assert llm.select("a", ["at", "s"]).index in (0, 1)


def test_a_handle_that_is_dropped_ends_its_task():
    """Nothing waits for the result any more, so nothing is read for it."""
    model = GatedPaths(HashModel(1))
    with path_engine(model) as llm:
        handle = llm._model_thread.submit(Counts([0, 5], 3))
        model.wait_for(1)
        del handle
        gc.collect()
        model.wait_for_cancelled(1)


class Counts(TaskBase):
    """A task that asks for the end of a chain, one token a time."""

    def __init__(self, prompt, n):
        super().__init__(np.array(prompt, dtype=np.int32), Capacity(1, n, 1), [0])
        self.left, self.asked, self.told = n, 0, []

    def _next_ask(self, capacity):
        if not self.left:
            return None
        self.left -= 1
        self.asked += 1
        no = np.array([True])
        return Ask(np.array([self.asked - 1], np.int32), np.array([5], np.int32), no, no), [self.asked]

    def _reads(self, pending):
        return Reads.of_row(np.array([5], dtype=np.int32))

    def _read(self, pending, rows):
        self.told.append(float(rows.logp(0, 5)))

    def _result(self):
        return self.told


class Expires(Counts):
    """A task that can end early."""

    def expire(self):
        self._is_finished = True


def test_deadlines_end_tasks():
    """With what was read until then if the task can end early, and else with an error; requests are aborted."""
    model = GatedPaths(HashModel(1), limits=limits(queries_per_request=1, requests_in_flight=4))
    with path_engine(model) as llm:
        thread, now = llm._model_thread, [0.0]
        thread._clock = thread.scheduler._clock = lambda: now[0]
        handles = [thread.submit(task, deadline_s=5) for task in (Expires([0, 5], 3), Counts([0, 6], 3))]
        model.wait_for(2)
        now[0] = 5.0
        wait_for_a_step(thread)
        assert handles[0].result() == []
        with pytest.raises(DeadlineError):
            handles[1].result()
        model.wait_for_cancelled(2)
        model.open()
        late = llm._model_thread.submit(Counts([0, 5], 2), deadline_s=LONG_S)
        assert len(late.result()) == 3
        generated = llm.prompt_logprobs(["a bat"], deadline_s=LONG_S)
        assert len(generated) == 1


def test_a_task_that_fails_ends_alone():
    """Its error comes to its caller, and another task goes on."""

    class Fails(Counts):
        def _read(self, pending, rows):
            raise ZeroDivisionError

    with path_engine(NotedPaths(HashModel(1))) as llm:
        handles = [llm._model_thread.submit(task) for task in (Fails([0, 5], 1), Counts([0, 5], 1))]
        with pytest.raises(ZeroDivisionError):
            handles[0].result()
        assert len(handles[1].result()) == 2


def test_a_model_that_fails_ends_the_request():
    """With its error; the next request is answered."""
    model = NotedPaths(HashModel(1))
    with path_engine(model) as llm:
        for token in range(26):
            model.failures[token] = DecodeError("the server is gone")
        with pytest.raises(DecodeError, match="the server is gone"):
            llm.select("a bat", CHOICES)
        model.failures.clear()
        assert llm.select("a bat", CHOICES).certificate.proved


def wait_for_a_step(thread):
    """Wait until the thread has taken a step with all that was queued before: calls run before the step of their turn."""
    for _ in range(2):
        thread.call(lambda: None)


def test_tasks_wait_their_turn_and_too_many_are_refused():
    """Two tasks are under way for each query that may be; of one more that waits, the second is refused."""
    model = GatedPaths(HashModel(1), limits=limits(queries_per_request=1, requests_in_flight=1))
    with path_engine(model, max_waiting=1) as llm:
        thread, handles = llm._model_thread, []
        for first in (5, 6):
            handles.append(thread.submit(Counts([0, first], 1)))
            wait_for_a_step(thread)  # it has begun
            assert llm.load.n_waiting == 0
        handles.append(thread.submit(Counts([0, 7], 1)))
        with pytest.raises(QueueFullError):
            thread.submit(Counts([0, 8], 1))
        wait_for_a_step(thread)
        assert (llm.load.n_active, llm.load.n_waiting) == (2, 1)
        model.open()
        for handle in handles:
            assert len(handle.result()) == 2
        assert len(thread.submit(Counts([0, 8], 1)).result()) == 2
        wait_for_a_step(thread)
        assert (llm.load.n_active, llm.load.n_waiting) == (0, 0)


def test_a_task_of_a_higher_priority_does_not_wait():
    """It begins although as many tasks are under way as may be, and its rows are read first."""
    model = GatedPaths(HashModel(1), limits=limits(queries_per_request=1, requests_in_flight=1))
    with path_engine(model) as llm:
        thread = llm._model_thread
        low = [thread.submit(Counts([0, first], 2)) for first in (5, 6, 7, 8)]
        model.wait_for(1)
        high = thread.submit(Counts([0, 9], 2), priority=1)
        wait_for_a_step(thread)
        assert llm.load.n_active == 3
        model.open()
        for handle in (high, *low):
            assert len(handle.result()) == 3
    assert [path[1] for [path] in model.requests[:2]] == [5, 9]


def test_closing_ends_running_requests():
    """With `ClosedError`, once; the requests are aborted, and threads end."""
    model = GatedPaths(HashModel(1))
    llm = path_engine(model)
    running = in_thread(lambda: llm.select("a bat", CHOICES))
    model.wait_for(1)
    llm.close()
    with pytest.raises(ClosedError):
        running.result(LONG_S)
    llm.close()
    with pytest.raises(ClosedError):
        llm.select("a bat", CHOICES)
    assert llm.closed
    assert not [one for one in threading.enumerate() if one.name.startswith("selectrie-request")]


def test_an_engine_that_is_dropped_frees_its_model():
    """Also after requests, whose threads keep nothing of it."""
    model = PathsOf(HashModel(1))
    llm = path_engine(model)
    llm.select("a bat", CHOICES)
    thread, known = llm._model_thread._thread, weakref.ref(llm)
    del llm
    gc.collect()
    assert known() is None
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_many_threads_at_once():
    """Forty requests in eight threads, some of them cancelled: each is right or cancelled."""
    model = NotedPaths(HashModel(1), limits=limits(queries_per_request=3, requests_in_flight=3), hides_rest=True)
    with path_engine(model, cache_bytes=4000) as llm, Engine(HashModel(1)) as local:
        expected = {prompt: local.rank(prompt, CHOICES, terminator="eog") for prompt in PROMPTS}

        def ask(i):
            prompt = PROMPTS[i % len(PROMPTS)]
            if i % 5 == 4:
                with pytest.raises(KeyboardInterrupt):
                    interrupted(llm, Counts([0, 5, i % 7], 3), lambda _: None)
                return
            same(llm.rank(prompt, CHOICES, terminator="eog"), expected[prompt])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(40)))
    assert model.n_at_once <= 3
