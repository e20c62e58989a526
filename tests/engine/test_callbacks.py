"""What comes out of a caller's own functions, and which request an error belongs to."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import numpy as np
import pytest

from selectrie import SearchParams, StopParams
from selectrie.engine.aio import in_thread
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import ClosedError, ForkedError, NonFiniteLogitsError
from selectrie.testing import HashModel

NOTHING_IS_CLOSE = SelfCheck(8, 0.0, 0.0)
CHOICES = ["at", " cat", "s", " bat s"]
SHORT = StopParams(max_tokens=4, ignore_eog=True)
PATIENCE_S = 20
"""After which a test that hangs has failed."""


def engine_on(model) -> Engine:
    """An engine that measures nothing first."""
    return Engine(model, check=NOTHING_IS_CLOSE)


def outcome_of(work):
    """What a function returns or raises, in a thread of its own; fails where that takes for ever."""
    found = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 - whatever it is
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert found, "it waits for ever"
    return found[0]


class Quit(BaseException):
    """An error that `except Exception` does not catch."""


FORMS = {
    "generate": lambda engine, fail: engine.generate("a", stopping=StopParams(when=fail, ignore_eog=True)),
    "stream": lambda engine, fail: list(engine.stream("a", stopping=StopParams(when=fail, ignore_eog=True))),
    "agenerate": lambda engine, fail: asyncio.run(
        engine.agenerate("a", stopping=StopParams(when=fail, ignore_eog=True))
    ),
    "select": lambda engine, fail: engine.select("a", CHOICES, search=SearchParams(on_progress=fail)),
}


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(3), KeyboardInterrupt(), Quit()], ids=repr)
@pytest.mark.parametrize("form", FORMS)
def test_what_a_callback_raises_is_raised_where_the_answer_is_waited_for(form, error):
    """Also what would end a thread: the model's goes on, and so does another's sequence."""

    def fail(*_):
        raise error

    with engine_on(HashModel(1)) as engine:
        expected = engine.generate("b", seed=1, stopping=SHORT).texts
        other = engine.stream("b", seed=1, stopping=SHORT)
        assert outcome_of(lambda: FORMS[form](engine, fail)) is error
        assert outcome_of(other.generation).texts == expected
        assert outcome_of(lambda: engine.generate("b", seed=1, stopping=SHORT)).texts == expected
        is_idle = threading.Event()
        engine.after_call(is_idle.set)  # the load is that of a step, which ends after the answer is there
        assert is_idle.wait(PATIENCE_S)
        assert (engine.load.n_active, engine.load.nodes_free) == (0, 4096)


@pytest.mark.parametrize("form", FORMS)
def test_a_stop_iteration_ends_no_loop_as_if_all_was_well(form):
    """`next` on what is exhausted, in a callback: a stream does not simply end, an awaited call does not wait for ever."""
    flags = iter([False])
    with engine_on(HashModel(1)) as engine:
        error = outcome_of(lambda: FORMS[form](engine, lambda *_: next(flags)))
        assert isinstance(error, RuntimeError)
        assert isinstance(error.__cause__, StopIteration)


def test_a_stop_iteration_in_the_callers_own_thread_reaches_the_one_who_awaits():
    """An asyncio future refuses it; the coroutine makes it a `RuntimeError`."""
    error = outcome_of(lambda: asyncio.run(in_thread(lambda: next(iter(())))))
    assert isinstance(error, RuntimeError)


def test_context_variables_reach_what_is_awaited():
    """Code of the caller's that runs in the thread, a rule say, finds what the awaiting task has set."""
    who = ContextVar("who", default="nobody")

    async def main() -> list[str]:
        async def ask(name: str) -> str:
            who.set(name)
            return await in_thread(who.get)

        return await asyncio.gather(ask("one"), ask("two"))

    assert asyncio.run(main()) == ["one", "two"]
    assert who.get() == "nobody"


@pytest.mark.parametrize(
    "work",
    [
        lambda engine, prompts: engine.generate(prompts, stopping=SHORT),
        lambda engine, prompts: list(engine.stream(prompts, stopping=SHORT)),
        lambda engine, prompts: engine.select_many([(prompt, CHOICES) for prompt in prompts]),
        lambda engine, prompts: engine.select_many(
            [(p, CHOICES) for p in prompts], search=SearchParams(method="exhaustive")
        ),
    ],
    ids=["generate", "stream", "select_many", "exhaustive"],
)
def test_an_error_names_the_request_it_belongs_to(work):
    """Where there are several; the only one needs no number, and a closed engine is nobody's fault."""
    model = HashModel(1)
    with engine_on(model) as engine:
        ends = {}
        for prompt in "ab":
            engine.trim()
            engine.generate(prompt, stopping=StopParams(max_tokens=1))
            ends[prompt] = max(model.contexts.values(), key=len)
        good = model._row_of
        model._row_of = lambda path: (
            np.full_like(good(path), np.nan) if path[: len(ends["b"])] == ends["b"] else good(path)
        )
        engine.trim()
        for prompts, index in ((["a", "b"], 1), (["b", "a"], 0), (["b"], None)):
            with pytest.raises(NonFiniteLogitsError) as caught:
                work(engine, prompts)
            assert caught.value.request == index
            assert str(caught.value).startswith("the model" if index is None else f"request {index}: the model")


def test_a_closed_engine_is_the_fault_of_no_request():
    """Its errors name none, and each waiter has one of its own."""
    model = HashModel(1)
    with engine_on(model) as engine:
        streams = [engine.stream(["a", "b"], stopping=StopParams(max_tokens=2000, ignore_eog=True)) for _ in range(2)]
        engine.close()
        errors = [outcome_of(stream.generation) for stream in streams]
    assert [(type(error), error.request) for error in errors] == [(ClosedError, None)] * 2
    assert errors[0] is not errors[1]


def test_a_stream_is_refused_in_a_forked_child():
    """The model's thread has stayed with the parent: nothing would ever come."""
    model, opened = HashModel(1), threading.Event()
    model.on_decode = lambda: opened.wait(PATIENCE_S)
    with engine_on(model) as engine:
        stream = engine.stream("a", stopping=SHORT)
        model_thread, process = engine._model_thread, engine._model_thread._process
        model_thread._process = -1
        try:
            assert isinstance(outcome_of(stream._drawings[0].handle.result), ForkedError)
            assert isinstance(outcome_of(lambda: list(stream)), ForkedError)
        finally:
            model_thread._process = process
            opened.set()
