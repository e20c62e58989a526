"""Streams of events: their shape, errors within them, silence, readers that are slow, and readers that leave."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.errors import DecodeError, OptionError
from selectrie.server import ServerOptions
from selectrie.server.application import BODIES
from selectrie.server.transport import middleware
from selectrie.server.transport.http_errors import HttpError
from selectrie.server.transport.middleware import Gate
from selectrie.server.transport.models import Models
from selectrie.server.transport.request_context import Events, EventStream
from selectrie.server.transport.state import ServerState
from tests.support.serving import PATIENCE_S, Reply, SkippingLoop, asked, run_skipping, within_patience

PATH = "/v1/chat/completions"


class Served:
    """A gate before a stream of events, and whether the stream was closed."""

    def __init__(self, events: Callable[[], Events], **options: float) -> None:
        made = ServerOptions(**options)
        self.state, self.n_closed, self._events = ServerState(Models(None, made), made), 0, events
        self.gate = Gate(self._inner, self.state, BODIES)

    async def _inner(self, scope, receive, send) -> None:
        await EventStream(self._watched(), self.state.options.ping_interval_s)(scope, receive, send)

    async def _watched(self) -> Events:
        try:
            async for one in self._events():
                yield one
        finally:
            self.n_closed += 1

    async def ask(self, **named) -> Reply:
        """The reply, when the stream is closed and no request is open."""
        reply = await within_patience(asked(self.gate, "POST", PATH, {}, **named))
        assert (self.n_closed, self.state.n_open) == (1, 0)
        return reply


async def numbers(n: int = 3) -> Events:
    """Events 0 … n - 1, the first two together."""
    yield [{"n": 0}, {"n": 1}]
    for number in range(2, n):
        yield [{"n": number}]


def test_events_and_their_end():
    """Each is one line of JSON and an empty one; the last is `[DONE]`. The headers are those of a stream, and of all."""
    reply = asyncio.run(Served(numbers).ask(headers={"x-request-id": "mine"}))
    assert reply.data == b'data: {"n":0}\n\ndata: {"n":1}\n\ndata: {"n":2}\n\ndata: [DONE]\n\n'
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["x-request-id"] == reply.headers["x-typesafe-request-id"] == "mine"
    assert "content-length" not in reply.headers


def test_a_stream_without_events():
    """It has its end all the same."""

    async def none() -> Events:
        for one in ():
            yield one

    assert asyncio.run(Served(none).ask()).events == []


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OptionError("n", 0, "more"), 400, "option"),
        (HttpError(404, "model_not_found", "no"), 404, "model_not_found"),
        (DecodeError("x"), 500, "decode"),
        (ZeroDivisionError("secret"), 500, "internal"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else None,
)
def test_errors_before_and_after_the_first_event(error, status, code, caplog):
    """Before it, a whole response with a status; after it, an event in the same shape, and then the end."""

    async def at_once() -> Events:
        raise error
        yield []

    async def later() -> Events:
        yield [{"n": 0}]
        raise error

    reply = asyncio.run(Served(at_once).ask())
    assert (reply.status, reply.error["code"]) == (status, code)
    assert reply.headers["content-type"] == "application/json"
    caplog.clear()
    with caplog.at_level(logging.INFO, "selectrie.server"):
        late = asyncio.run(Served(later).ask())
    assert (late.status, late.events) == (200, [{"n": 0}, reply.json])
    assert b"secret" not in late.data
    line = json.loads(caplog.records[-1].message)
    assert (line["status"], line["error"]) == (200, code)
    assert (len(caplog.records) == 2) == (status == 500), "what failed is in the log"


def test_silence_is_broken_by_comments():
    """Until the next event comes; a client that reads events sees nothing of them."""
    go_on = asyncio.Event()

    async def silent() -> Events:
        yield [{"n": 0}]
        await go_on.wait()
        yield [{"n": 1}]

    async def listening(reply: Reply, message) -> None:
        if message.get("body") == b": ping\n\n" and reply.data.endswith(b": ping\n\n"):
            go_on.set()

    reply = asyncio.run(Served(silent, ping_interval_s=0.001).ask(on_send=listening))
    assert reply.data.startswith(b'data: {"n":0}\n\n: ping\n\n: ping\n\n')
    assert reply.events == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize("when", ["before the first event", "between events", "while an event is sent"])
def test_a_reader_that_leaves_closes_the_stream(when):
    """Whatever the stream waits for; nothing more is sent, and the counter says why."""

    async def left() -> Reply:
        leave, never = asyncio.Event(), asyncio.Event()

        async def events() -> Events:
            if when == "before the first event":
                leave.set()
                await never.wait()
            yield [{"n": 0}]
            leave.set()
            await never.wait()

        async def stuck(_reply: Reply, message) -> None:
            if when == "while an event is sent" and message.get("body"):
                leave.set()
                await never.wait()

        served = Served(events)
        reply = await served.ask(leave=leave, on_send=stuck)
        assert b'selectrie_cancelled_total{reason="disconnected"} 1.0' in served.state.metrics.render({})
        return reply

    reply = asyncio.run(left())
    assert reply.status == (0 if when == "before the first event" else 200)
    assert reply.data == (b'data: {"n":0}\n\n' if when == "between events" else b"")


async def at_the_deadline(loop: SkippingLoop, last: str) -> Reply:
    """The reply of a stream that stalls after its first event; its deadline passes after a message of this type.

    With "http.response.start", its reader takes nothing more.
    """
    sent = asyncio.Event()

    async def on_send(_reply: Reply, message) -> None:
        if sent.is_set() and last == "http.response.start":
            await asyncio.Event().wait()
        if message["type"] == last:
            sent.set()

    waiting = asyncio.ensure_future(Served(_stalls, deadline_s=PATIENCE_S / 2).ask(on_send=on_send))
    await sent.wait()
    for _ in range(20):  # the message is taken, and the stream waits
        await asyncio.sleep(0)
    loop.skip(PATIENCE_S / 2)
    return await waiting


async def _stalls() -> Events:
    yield [{"n": 0}]
    await asyncio.Event().wait()


def test_the_deadline_of_a_running_stream():
    """It ends with the error as an event; before the first event it is a status of its own."""

    async def never() -> Events:
        await asyncio.Event().wait()
        yield []

    reply = run_skipping(lambda loop: at_the_deadline(loop, "http.response.body"))
    assert [reply.events[0], reply.events[-1]["error"]["code"]] == [{"n": 0}, "deadline"]
    reply = asyncio.run(Served(never, deadline_s=0.01).ask())
    assert (reply.status, reply.error["code"], reply.headers["x-should-retry"]) == (504, "deadline", "false")


def test_a_reader_that_takes_nothing_is_given_up(monkeypatch):
    """At the deadline: it does not get the error either, and the stream is closed."""
    monkeypatch.setattr(middleware, "ENDING_TIMEOUT_S", 0.01)

    assert run_skipping(lambda loop: at_the_deadline(loop, "http.response.start")).data == b""


def test_an_event_is_made_when_the_one_before_was_taken():
    """A slow reader holds up the stream, so nothing piles up in the response."""
    made = []

    async def counted() -> Events:
        for number in range(5):
            made.append(number)
            yield [{"n": number}]

    async def slow(reply: Reply, message) -> None:
        if message.get("body", b"").startswith(b"data: {"):
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(made) == reply.data.count(b"data") + 1

    assert len(asyncio.run(Served(counted).ask(on_send=slow)).events) == 5


def test_a_stream_is_finished_while_the_server_drains():
    """It is accepted work; what comes after it is refused."""

    async def drained() -> None:
        async def draining(_reply: Reply, _message) -> None:
            if not served.state.is_draining:
                served.state.is_draining = True
                late = await asked(served.gate, "POST", PATH, {})
                assert (late.status, late.error["code"]) == (503, "draining")

        served = Served(numbers)
        assert len((await served.ask(on_send=draining)).events) == 3

    asyncio.run(drained())


def test_the_first_event_is_counted():
    """The seconds to it, for streams alone."""
    served = Served(numbers)
    asyncio.run(served.ask())
    assert b"selectrie_first_token_seconds_count 1.0" in served.state.metrics.render({})
