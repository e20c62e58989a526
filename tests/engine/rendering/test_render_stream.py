"""`Engine.stream_render`, and the awaitable forms: events as they come, leaving early, many pages at once."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import threading
from queue import SimpleQueue

import pytest

import selectrie
from selectrie import RenderParams, Template
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.requests.generate import Stream
from selectrie.errors import CancelledError, ClosedError, DecodeError, OptionError, TemplateError
from selectrie.results import SlotEvent, TextEvent
from selectrie.testing import HashModel, make_vocabulary
from selectrie.testing.fakes import DEFAULT_PIECES

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
SEED = RenderParams(seed=1)
SHEET = Template(
    "a cat <<select 'x' options=texts>>\n<<gen 'y' max_tokens=6>> <<select 'z' options=texts hidden=true>>s."
)
ENDLESS = Template("a<<#each waits>><<gen 'x' max_tokens=90 hidden=true>><</each>>")
"""A page that no test waits for."""
LONG = {"waits": range(5000)}
TEXTS = {"texts": ["a", "b", "ca"]}
PATIENCE_S = 20
WHOLE = make_vocabulary([piece for piece in DEFAULT_PIECES if piece.isascii()])
"""Tokens of whole characters: what is generated can be encoded again."""


@pytest.fixture
def model():
    """A hashed model."""
    return HashModel(4, vocabulary=WHOLE)


@pytest.fixture
def engine(model):
    """An engine on it, closed at the end."""
    with Engine(model, check=EXACT) as engine:
        yield engine


def is_idle(engine):
    """Has the model nothing more to do, after the few steps in which it notices what was cancelled?"""
    return any(engine._model_thread.call(lambda: engine._model_thread.scheduler.idle) for _ in range(5))


def threads_of_pages():
    """Threads that make pages."""
    return [thread for thread in threading.enumerate() if thread.name == "selectrie-page"]


def wait_for_threads():
    """Let the threads of pages that were taken back end."""
    for thread in threads_of_pages():
        thread.join(PATIENCE_S)
    assert not threads_of_pages()


def test_events_come_in_the_order_of_the_page(engine):
    """Text of the template, what was chosen, a gen's text piece by piece; a hidden slot adds nothing."""
    with engine.stream_render(SHEET, TEXTS, rendering=SEED) as stream:
        events = list(stream)
    page = engine.render(SHEET, TEXTS, rendering=SEED)
    slots = [event for event in events if isinstance(event, SlotEvent)]
    assert [(slot.name, slot.hidden) for slot in slots] == [("x", False), ("y", False), ("z", True)]
    assert events[0] == TextEvent("a cat ")
    assert [event.slot for event in events if isinstance(event, TextEvent) and event.slot] == ["y"] * sum(
        isinstance(event, TextEvent) and event.slot == "y" for event in events
    )
    told = "".join(event.text for event in events if isinstance(event, TextEvent) and event.slot == "y")
    assert told + slots[1].text == page["y"] == slots[1].value
    assert "".join(event.text for event in events) == page.text


def test_generated_text_comes_token_by_token(engine):
    """More than one event before the slot is finished, where it has more than one token."""
    events = list(engine.stream_render(Template("a<<gen 'x' max_tokens=30>>"), rendering=SEED))
    slot = events[-1]
    pieces = [event for event in events if isinstance(event, TextEvent) and event.slot == "x"]
    assert len(slot.record[0].tokens) > 3
    assert len(pieces) > 3
    assert "".join(piece.text for piece in pieces) + slot.text == slot.value


def test_the_whole_page_is_there_at_the_end(engine):
    """As `render` gives it; what was not read is read first."""
    stream = engine.stream_render(SHEET, TEXTS, rendering=SEED)
    next(stream)
    assert stream.page.text == engine.render(SHEET, TEXTS, rendering=SEED).text
    assert stream.is_finished
    assert list(stream) == []
    assert stream.page is stream.page


def test_leaving_a_stream_takes_the_page_back(engine):
    """The model has nothing more to do; reading on brings nothing, and there is no page."""
    with engine.stream_render(ENDLESS, LONG, rendering=SEED) as stream:
        next(stream)
    wait_for_threads()
    assert is_idle(engine)
    assert list(stream) == []
    with pytest.raises(CancelledError):
        _ = stream.page


def test_forgetting_a_stream_takes_the_page_back(engine):
    """Its thread does not hold it."""
    stream = engine.stream_render(ENDLESS, LONG, rendering=SEED)
    next(stream)
    del stream
    gc.collect()
    wait_for_threads()
    assert is_idle(engine)


def test_mistakes_are_told_before_the_stream_begins(engine, model):
    """By the call itself."""
    with pytest.raises(TemplateError, match="texts"):
        engine.stream_render(SHEET)
    with pytest.raises(OptionError, match="RenderParams"):
        engine.stream_render(SHEET, TEXTS, rendering=3)
    with pytest.raises(TypeError, match="n"):
        engine.stream("a", values={})
    assert model.calls == 0


def test_what_fails_is_raised_to_the_reader(engine, model):
    """After the events that came before it; the engine goes on working."""
    model.fail_next(DecodeError("out of memory"))
    stream = engine.stream_render(SHEET, TEXTS, rendering=SEED)
    with pytest.raises(DecodeError, match=r"^select 'x' at <template>:1:7: out of memory"):
        list(stream)
    assert stream.is_finished
    assert list(stream) == []
    with pytest.raises(DecodeError):
        _ = stream.page
    assert engine.render(SHEET, TEXTS).text


def test_ctrl_c_while_reading_takes_the_page_back(engine):
    """It is raised where the stream is read."""

    class Interrupted(SimpleQueue):
        def get(self):
            raise KeyboardInterrupt

    stream = engine.stream_render(ENDLESS, LONG, rendering=SEED)
    next(stream)
    stream._outlet.queue = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)
    wait_for_threads()
    assert is_idle(engine)


def test_closing_the_engine_ends_the_stream(engine):
    """With `ClosedError` to the reader."""
    stream = engine.stream_render(ENDLESS, LONG, rendering=SEED)
    next(stream)
    engine.close()
    with pytest.raises(ClosedError):
        list(stream)
    wait_for_threads()


def test_a_stream_of_prompts_is_what_it_was(engine):
    """By position and by name."""
    assert isinstance(engine.stream("a", n=1), Stream)
    assert isinstance(engine.stream(prompts="a"), Stream)


def test_names_of_values_may_be_those_of_options(engine):
    """What a template reads is a value, whatever prompts would take it for."""
    page = engine.stream_render(Template("a<<seed>><<n>>"), n="b", seed="s").page
    assert page.text == "asb"


# Awaitable forms


def run(main):
    """The result of a coroutine in an event loop of its own."""
    return asyncio.run(asyncio.wait_for(main, PATIENCE_S))


def test_pages_are_awaited(engine):
    """The same pages, any number at once."""

    async def main():
        one = engine.arender(SHEET, TEXTS, rendering=SEED)
        many = engine.arender_many(SHEET, [TEXTS, {"texts": ["s", "t"]}], rendering=SEED)
        return await asyncio.gather(one, many)

    one, many = run(main())
    alone = [engine.render(SHEET, row, rendering=SEED) for row in (TEXTS, {"texts": ["s", "t"]})]
    assert [one.text, *(page.text for page in many)] == [alone[0].text, *(page.text for page in alone)]


def test_events_are_awaited(engine):
    """`astream_render`; the texts joined are the page's."""

    async def main():
        return [event async for event in engine.astream_render(SHEET, TEXTS, rendering=SEED)]

    events = run(main())
    assert "".join(event.text for event in events) == engine.render(SHEET, TEXTS, rendering=SEED).text


@pytest.mark.parametrize("name", ["render", "render_many"])
def test_awaitable_forms_take_what_the_plain_ones_take(name):
    """Same parameters, own name, and Python knows them as asynchronous."""
    plain, form = getattr(Engine, name), getattr(Engine, "a" + name)
    assert inspect.signature(form).parameters == inspect.signature(plain).parameters
    assert inspect.iscoroutinefunction(form)
    assert form.__name__ == "a" + name


@pytest.mark.parametrize("name", ["arender", "arender_many", "astream_render"])
def test_cancelling_takes_pages_back(engine, model, name):
    """One, many, or one that is streamed."""

    async def main():
        loop, reached = asyncio.get_running_loop(), asyncio.Event()
        model.on_decode = lambda: loop.call_soon_threadsafe(reached.set)

        async def ask():
            if name == "astream_render":
                async for _ in engine.astream_render(ENDLESS, LONG, rendering=SEED):
                    pass
            elif name == "arender":
                await engine.arender(ENDLESS, LONG, rendering=SEED)
            else:
                await engine.arender_many(ENDLESS, [LONG] * 3, rendering=SEED)

        task = asyncio.create_task(ask())
        await reached.wait()
        model.on_decode = None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    wait_for_threads()
    assert is_idle(engine)


@pytest.mark.parametrize("n_pages", [1, 5])
def test_ctrl_c_takes_many_pages_back(engine, model, n_pages):
    """All of them, and every thread ends."""
    begun = threading.Event()

    def interrupt():
        if not begun.is_set():
            begun.set()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    model.on_decode = interrupt
    with pytest.raises(KeyboardInterrupt):
        engine.render_many(ENDLESS, [LONG] * n_pages, rendering=SEED)
    model.on_decode = None
    assert not threads_of_pages()
    assert is_idle(engine)


def test_at_most_64_pages_are_under_way(engine, model):
    """However many rows there are."""
    most = 0

    def count():
        nonlocal most
        most = max(most, len(threads_of_pages()))

    model.on_decode = count
    pages = engine.render_many(Template("a<<select 'x' options=['a', 'b']>><<n>>"), [{"n": n} for n in "abcst" * 20])
    assert [page.text[-1] for page in pages] == list("abcst" * 20)
    assert 2 <= most <= 64


def test_pages_share_model_calls(engine, model):
    """What comes while the model is busy goes into its next call together."""
    pause = threading.Event()

    def hold():
        model.on_decode = None
        for _ in range(2000):
            if engine._model_thread._inbox.qsize() >= 5:
                break
            pause.wait(0.005)

    model.on_decode = hold
    template = Template("<<n>> a<<select 'x' options=['a', 'b']>>.")
    pages = engine.render_many(template, [{"n": n} for n in ("a", "b", "s", "t", "ca", "cat")])
    assert max(model.call_sizes[1:]) >= 5
    assert model.calls < sum(page.cost.model_calls for page in pages)


def test_the_embedded_model_streams_a_chat():
    """Control tokens of the turns are text of the page; the answer comes in pieces."""
    template = Template(
        "<<#user>>What is the capital of Italy?<</user>><<#assistant>><<gen 'x' max_tokens=9>><</assistant>>"
    )
    with selectrie.load() as llm, llm.stream_render(template) as stream:
        events = list(stream)
    assert events[0] == TextEvent("<|im_start|>user\n")
    assert stream.page["x"] == "Rome"
    assert "".join(event.text for event in events) == stream.page.text
