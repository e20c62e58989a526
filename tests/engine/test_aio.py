"""The awaitable forms: the same answers, any number at once, and cancelling that takes work back."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time

import pytest

from selectrie import SamplingParams, StopParams
from selectrie.engine import aio
from selectrie.engine.aio import MAX_BATCH, Arrivals, open_in_thread
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.scheduler.job import wake_once
from selectrie.errors import CancelledError, ClosedError, OptionError
from selectrie.testing import HashModel

NOTHING_IS_CLOSE = SelfCheck(8, 0.0, 0.0)
EVERYTHING_IS_CLOSE = SelfCheck(8, 1.0, 4.0)
ENDLESS = StopParams(max_tokens=2000, ignore_eog=True)
CHOICES = ["at", " cat", "s", " bat s"]
PATIENCE_S = 20
"""After which a test that hangs has failed."""


def engine_on(model) -> Engine:
    """An engine that measures nothing first."""
    return Engine(model, check=NOTHING_IS_CLOSE)


def run(main):
    """The result of a coroutine in an event loop of its own, within `PATIENCE_S`."""
    return asyncio.run(asyncio.wait_for(main, PATIENCE_S))


def is_idle(engine: Engine) -> bool:
    """Has the model nothing more to do, once it and the threads that wait for it have noticed what was cancelled?"""
    deadline = time.monotonic() + PATIENCE_S
    while not engine._model_thread.call(lambda: engine._model_thread.scheduler.idle):
        if time.monotonic() > deadline:
            return False
    return True


class Gate:
    """Holds the model in the middle of its next decode until it is opened; `reached` is set in the event loop."""

    def __init__(self, model: HashModel) -> None:
        self.reached, self._opened = asyncio.Event(), threading.Event()
        self._loop = asyncio.get_running_loop()
        model.on_decode = self._hold

    def _hold(self) -> None:
        self._loop.call_soon_threadsafe(self.reached.set)
        assert self._opened.wait(PATIENCE_S)

    def open(self) -> None:
        """Let it go on, now and later."""
        self._opened.set()


@pytest.mark.parametrize("name", ["select", "rank", "score", "select_many", "generate", "stream"])
def test_awaitable_forms_take_what_the_plain_ones_take(name):
    """Same parameters, own name, and Python knows them as asynchronous."""
    plain, form = getattr(Engine, name), getattr(Engine, "a" + name)
    assert list(inspect.signature(form).parameters) == list(inspect.signature(plain).parameters)
    assert form.__name__ == "a" + name
    assert form.__qualname__ == plain.__qualname__.replace(f".{name}", f".a{name}")
    assert inspect.isasyncgenfunction(form) if name == "stream" else inspect.iscoroutinefunction(form)


def test_awaited_answers_are_the_plain_ones():
    """Each form gives what its blocking twin gives."""
    with engine_on(HashModel(1)) as engine:
        how = {"n": 2, "seed": 4, "stopping": StopParams(max_tokens=6)}

        async def main():
            chunks = [chunk async for chunk in engine.astream(["a", "b"], **how)]
            return (
                await engine.aselect("a", CHOICES, rule="token_mean"),
                await engine.arank("a", CHOICES),
                await engine.ascore("a", " cat"),
                await engine.aselect_many([("a", CHOICES), ("b", CHOICES)]),
                await engine.agenerate(["a", "b"], **how),
                chunks,
            )

        select, rank, score, many, generation, chunks = run(main())
        assert select.text == engine.select("a", CHOICES, rule="token_mean").text
        assert [c.text for c in rank.ranked] == [c.text for c in engine.rank("a", CHOICES).ranked]
        assert score.logp == engine.score("a", " cat").logp
        assert [s.text for s in many] == [engine.select(prompt, CHOICES).text for prompt in "ab"]
        assert generation == engine.generate(["a", "b"], **how)
        ends = sorted((c.prompt_index, c.index, c.completion) for c in chunks if c.completion is not None)
        assert [end for _, _, end in ends] == list(generation)
        texts = ["".join(c.text for c in chunks if (c.prompt_index, c.index) == key[:2]) for key in ends]
        assert texts == list(generation.texts)


def test_any_number_waits_at_once():
    """Fifty requests are all queued before the first is answered: no pool bounds them, and they share calls."""
    n = 50
    model = HashModel(1)
    with engine_on(model) as engine:
        queue, queued = engine._model_thread.queue, []

        async def main():
            gate = Gate(model)

            def counted(handle) -> None:
                queue(handle)
                queued.append(handle)
                if len(queued) == n:
                    gate.open()

            engine._model_thread.queue = counted
            return await asyncio.gather(*(engine.aselect("a", [*CHOICES, "u" * i]) for i in range(1, n + 1)))

        answers = run(main())
    assert len(answers) == n
    assert model.calls < n / 2


@pytest.mark.parametrize("name", ["select", "generate", "score", "select_many", "stream"])
def test_cancelling_takes_the_work_back(name):
    """The awaiting task ends at once, in the middle of a decode; the model drops the work and holds nothing of it."""
    model = HashModel(1)
    with engine_on(model) as engine:

        async def work():
            if name == "select":
                await engine.aselect("a", CHOICES)
            elif name == "generate":
                await engine.agenerate(["a", "b"], n=3, stopping=ENDLESS)
            elif name == "score":
                await engine.ascore("a", " cat" * 50)
            elif name == "select_many":
                await engine.aselect_many([("a", CHOICES), ("b", CHOICES)])
            else:
                async for _ in engine.astream(["a", "b"], n=3, stopping=ENDLESS):
                    pass

        async def main():
            gate = Gate(model)
            task = asyncio.create_task(work())
            await gate.reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.open()

        run(main())
        model.on_decode = None
        assert is_idle(engine)
        n_calls = model.calls
        assert engine._model_thread.call(lambda: model.calls) == n_calls
        engine.trim()
        assert model.contexts == {0: ()}
        assert engine.select("a", CHOICES).text


def test_events_of_one_loop_are_set_together():
    """Another thread that sets many in one block wakes the loop once; each that waits goes on."""

    async def main():
        loop, calls = asyncio.get_running_loop(), []
        call_soon, events = loop.call_soon_threadsafe, [asyncio.Event() for _ in range(8)]
        loop.call_soon_threadsafe = lambda *args, **named: (calls.append(args), call_soon(*args, **named))

        def work() -> None:
            with wake_once():
                for event in events:
                    aio._wake(loop, event)

        thread = threading.Thread(target=work)
        thread.start()
        await asyncio.gather(*[event.wait() for event in events])
        thread.join()
        assert len(calls) == 1

    run(main())


def test_cancelling_one_changes_no_other():
    """Requests that share calls with one that is cancelled answer as they do alone."""
    with engine_on(HashModel(1)) as engine:
        how = {"seed": 5, "stopping": StopParams(max_tokens=25, ignore_eog=True)}
        expected = engine.generate(["a cat", "b"], **how), engine.select("a cat", CHOICES)
        engine.trim()

        async def main():
            model = engine._model_thread.scheduler.model
            gate = Gate(model)
            leaving = [asyncio.create_task(engine.agenerate("a cat", stopping=ENDLESS)) for _ in range(4)]
            staying = asyncio.gather(engine.agenerate(["a cat", "b"], **how), engine.aselect("a cat", CHOICES))
            await gate.reached.wait()
            for task in leaving:
                task.cancel()
            gate.open()
            found = await asyncio.gather(*leaving, return_exceptions=True)
            assert all(isinstance(error, asyncio.CancelledError) for error in found)
            return await staying

        generation, selection = run(main())
        assert generation == expected[0]
        assert selection.text == expected[1].text
        assert is_idle(engine)


def test_a_call_on_the_models_thread_is_taken_back_too():
    """Near ties that are being settled are left alone when nobody waits for them any more."""
    model = HashModel(1)
    with Engine(model, check=EVERYTHING_IS_CLOSE) as engine:
        in_solo, go_on = threading.Event(), threading.Event()
        make_solo = model.new_context

        def solo(nodes, **how):
            other = make_solo(nodes, **how)
            in_solo.set()
            assert go_on.wait(PATIENCE_S)
            return other

        model.new_context = solo

        async def main():
            task = asyncio.create_task(engine.aselect("a", CHOICES))
            await asyncio.get_running_loop().run_in_executor(None, in_solo.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()

        run(main())
        assert is_idle(engine)
        assert engine.select("a", CHOICES).certificate.rescored


def test_leaving_an_asynchronous_stream_cancels_the_rest():
    """By `break` and `aclose`: the model stops and holds nothing."""
    model = HashModel(1)
    with engine_on(model) as engine:

        async def main():
            stream = engine.astream(["a", "b"], n=2, stopping=ENDLESS)
            async for chunk in stream:
                assert chunk.completion is None
                break
            await stream.aclose()

        run(main())
        assert is_idle(engine)
        engine.trim()
        assert model.contexts == {0: ()}


def test_errors_reach_the_one_who_awaits():
    """Refusals, and what ends a sequence."""

    def fails(text: str) -> bool:
        raise ZeroDivisionError(text)

    with engine_on(HashModel(1)) as engine:

        async def main():
            with pytest.raises(OptionError):
                await engine.aselect("a", CHOICES, rule="no rule")
            with pytest.raises(OptionError):
                async for _ in engine.astream("a", n=0):
                    pass
            with pytest.raises(ZeroDivisionError):
                async for _ in engine.astream("a", n=3, stopping=StopParams(when=fails, ignore_eog=True)):
                    pass
            with pytest.raises(ZeroDivisionError):
                await engine.agenerate("a", n=3, stopping=StopParams(when=fails, ignore_eog=True))
            assert (await engine.agenerate("a", sampling=SamplingParams.GREEDY)).texts

        run(main())
        assert is_idle(engine)
    with pytest.raises(ClosedError):
        run(engine.aselect("a", CHOICES))


def test_an_errand_that_was_cancelled_begins_nothing():
    """Whatever comes after is refused, be it begun before or within the scope that was cancelled."""
    from selectrie.engine.scheduler.task_group import CancelScope, TaskGroup, task_group

    with engine_on(HashModel(1)) as engine:
        with task_group(engine._model_thread) as group:
            assert group.call(lambda: 1) == 1
            group.cancel()
            with pytest.raises(CancelledError):
                group.call(lambda: 1)
        scope = CancelScope()
        scope.cancel()
        with scope.open(), pytest.raises(CancelledError):
            TaskGroup(engine._model_thread).call(lambda: 1)
        assert TaskGroup(engine._model_thread).call(lambda: 1) == 1


def test_what_arrives_meanwhile_is_one_batch():
    """A reader that comes late takes all chunks at once, those before an error first; then the error is raised."""

    def fails(text: str) -> bool:
        if len(text) > 10:
            raise ZeroDivisionError(text)
        return False

    model = HashModel(1)
    with engine_on(model) as engine:

        async def main():
            how = {"seed": 1, "stopping": StopParams(max_tokens=30, ignore_eog=True)}
            expected = engine.generate("a", **how)
            async with open_in_thread(lambda: engine.stream("a", **how)) as stream:
                engine.generate("b", **how)  # ends with it or after it
                batches = [batch async for batch in Arrivals(stream)]
                assert len(batches) == 1
                assert "".join(chunk.text for chunk in batches[0]) == expected.texts[0]
                assert stream.generation() == expected
            many = StopParams(max_tokens=2 * MAX_BATCH + 1, ignore_eog=True)
            async with open_in_thread(lambda: engine.stream("a", seed=1, stopping=many)) as stream:
                assert any(engine._model_thread.call(lambda: engine._model_thread.scheduler.idle) for _ in range(5_000))
                assert [len(batch) async for batch in Arrivals(stream)] == [MAX_BATCH, MAX_BATCH, 1]
            failing = StopParams(max_tokens=30, ignore_eog=True, when=fails)
            async with open_in_thread(lambda: engine.stream("a", seed=1, stopping=failing)) as stream:
                assert any(engine._model_thread.call(lambda: engine._model_thread.scheduler.idle) for _ in range(50))
                arrivals = Arrivals(stream)
                assert await anext(arrivals)
                with pytest.raises(ZeroDivisionError):
                    await anext(arrivals)

        run(main())
        assert is_idle(engine)


def test_a_stream_is_closed_when_its_block_ends():
    """By an error too, and although somebody still holds the stream."""
    with engine_on(HashModel(1)) as engine:
        streams = []

        async def main():
            async with open_in_thread(lambda: engine.stream("a", stopping=ENDLESS)) as stream:
                streams.append(stream)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            run(main())
        assert streams[0].is_finished
        assert is_idle(engine)


@pytest.mark.parametrize("moment", ["while it starts", "when it has started"])
def test_a_stream_that_nobody_awaits_any_more_is_closed(moment):
    """Cancelled before it was there: its work is taken back as soon as it is."""
    model = HashModel(1)
    with engine_on(model) as engine:

        async def main():
            loop, began, go_on, streams = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), []

            def start():
                if moment == "when it has started":
                    streams.append(engine.stream("a", stopping=ENDLESS))
                loop.call_soon_threadsafe(began.set)
                assert go_on.wait(PATIENCE_S)
                if moment == "while it starts":
                    streams.append(engine.stream("a", stopping=ENDLESS))
                return streams[0]

            async def work():
                async with open_in_thread(start):
                    raise AssertionError("it was cancelled")

            task = asyncio.create_task(work())
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()
            return streams

        streams = run(main())
        assert is_idle(engine)
        assert all(stream.is_finished for stream in streams)
