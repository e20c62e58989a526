"""A server whose answers to `/v1/…` a test writes while the page waits for them.

Everything else, and each call that no test expects, is answered by the real application. A test speaks from a thread of
its own; what it says is done on the server's event loop, so that nothing depends on how long anything takes.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.serving import PATIENCE_S, event_of

Message = Mapping[str, Any]


class Dropped(Exception):
    """Ends an answer in the middle, which closes its connection."""


_DONE = b"data: [DONE]\n\n"
"""The end of a stream."""
LAYOUT_ERROR = 0.02
"""By how many nats a text's number may differ between two requests, whose calls are laid out otherwise: four times the
tolerance of a row of the embedded model. A probability differs by less."""


class Call:
    """One request of the page, and what a test does with it.

    Attributes:
        body: The body of the request, once it has arrived.
        headers: Its headers, with names in small letters.
        arrived: Set when the request is there.
        left: Set when the page has given it up before it was answered whole.
    """

    def __init__(self) -> None:
        self.body: Any = None
        self.headers: dict[str, str] = {}
        self.arrived, self.left = threading.Event(), threading.Event()
        self._steps: list[Callable[[_Answer], Any]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._more: asyncio.Event | None = None
        self._lock = threading.Lock()

    def wait(self) -> Call:
        """Wait until the page has asked."""
        assert self.arrived.wait(PATIENCE_S), "the page did not ask"
        return self

    def wait_left(self) -> None:
        """Wait until the page has given the request up."""
        assert self.left.wait(PATIENCE_S), "the page did not leave"

    def answer(self, body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Call:
        """Answer as a whole, with JSON."""
        data = json.dumps(body, ensure_ascii=False).encode()
        return self._do(lambda to: to.whole(status, data, {"content-type": "application/json", **(headers or {})}))

    def fail(
        self, status: int, code: str, message: str, param: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Call:
        """Answer with an error in the server's shape."""
        error = {"message": message, "type": "scripted", "param": param, "code": code}
        return self.answer({"error": error}, status, headers)

    def stream(self) -> Call:
        """Begin a stream of events."""
        return self._do(lambda to: to.begin(200, {"content-type": "text/event-stream; charset=utf-8"}))

    def event(self, event: Mapping[str, Any], cut: int | None = None) -> Call:
        """Send one event of a stream; with `cut`, in two pieces of which the first has so many bytes."""
        named = f"event: {event['type']}\n" if "type" in event else ""
        frame = f"{named}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
        for piece in (frame,) if cut is None else (frame[:cut], frame[cut:]):
            self.send(piece)
        return self

    def send(self, data: bytes) -> Call:
        """Send bytes of a stream as they are."""
        return self._do(lambda to: to.part(data))

    def end(self, *, is_whole: bool = True) -> Call:
        """End a stream as the server does, or without what says that it is whole."""
        if is_whole:
            self.send(_DONE)
        return self._do(lambda to: to.end())

    def drop(self) -> Call:
        """Lose the connection: before the end of a stream, or after the first byte of a longer body."""
        return self._do(lambda to: to.drop())

    def pass_on(self) -> Call:
        """Let the real application answer."""
        return self._do(lambda to: to.pass_on())

    def _do(self, step: Callable[[_Answer], Any]) -> Call:
        with self._lock:
            self._steps.append(step)
            if self._loop is not None and self._more is not None:
                self._loop.call_soon_threadsafe(self._more.set)
        return self

    async def serve(self, answer: _Answer) -> None:
        """Do what the test says, as it says it, until the answer is whole or the page has left."""
        with self._lock:
            self._loop, self._more = asyncio.get_running_loop(), asyncio.Event()
        self.body, self.headers = answer.json, answer.headers
        self.arrived.set()
        n_done = 0
        while not answer.is_whole:
            self._more.clear()
            while n_done < len(self._steps):
                await self._steps[n_done](answer)
                n_done += 1
            if answer.is_whole:
                return
            more = asyncio.ensure_future(self._more.wait())
            gone = asyncio.ensure_future(answer.gone())
            await asyncio.wait({more, gone}, return_when=asyncio.FIRST_COMPLETED)
            more.cancel()
            if gone.done():
                self.left.set()
                return
            gone.cancel()


class _Answer:
    """The answer to one request, as ASGI sends it."""

    def __init__(
        self, inner: Any, scope: Any, receive: Any, send: Any, data: bytes, *, record: Callable[[bytes], None]
    ) -> None:
        self._inner, self._scope, self._receive, self._send_on, self._data = inner, scope, receive, send, data
        self._record: Callable[[bytes], None] | None = record
        self.json = json.loads(data) if data else None
        self.sent = b""
        self.headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self.is_whole = False

    async def _send(self, message: Message) -> None:
        self.sent += message.get("body", b"")
        is_last = message["type"] == "http.response.body" and not message.get("more_body")
        if self._record and (is_last or self.sent.endswith(_DONE)):  # before the page can have read its end
            self._record(self.sent)
            self._record = None
        await self._send_on(message)

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send status and headers."""
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def part(self, data: bytes) -> None:
        """Send some of the body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """End the body."""
        await self._send({"type": "http.response.body", "body": b""})
        self.is_whole = True

    async def whole(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        """Send everything at once."""
        await self.begin(status, headers)
        await self.part(data)
        await self.end()

    async def drop(self) -> None:
        """Promise more than comes, and close the connection."""
        self.is_whole = True
        try:
            await self.begin(200, {"content-type": "application/json", "content-length": "1000"})
            await self.part(b"{")
        except RuntimeError:  # a stream has begun
            pass
        raise Dropped

    async def pass_on(self) -> None:
        """Let the real application answer."""
        parts = [self._data]

        async def receive() -> Message:
            if parts:
                return {"type": "http.request", "body": parts.pop(), "more_body": False}
            message: Message = await self._receive()
            return message

        await self._inner(self._scope, receive, self._send)
        self.is_whole = True

    async def gone(self) -> None:
        """Return when the page has left."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Double:
    """An ASGI application before the real one: a test expects calls and writes their answers.

    Attributes:
        inner: The real application, which answers all other requests.
        asked: Path and body of every call of the page since the last `reset`.
        answers: Of each answer that was sent whole, in the same order as they ended: the object, or that of the event
            `result` of a stream.
        events: The events of the last answer that was sent whole; [] if it was no stream.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.asked: list[tuple[str, Any]] = []
        self.answers: list[Any] = []
        self.events: list[Any] = []
        self._expected: dict[str, deque[Call]] = defaultdict(deque)

    def reset(self) -> None:
        """Forget what was expected and asked; what still waits is lost."""
        for calls in self._expected.values():
            for call in calls:
                call.drop()
        self._expected.clear()
        self.asked, self.answers, self.events = [], [], []

    def expect(self, path: str) -> Call:
        """Return the next call of a path, which waits for what the test says."""
        call = Call()
        self._expected[path].append(call)
        return call

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["path"] == "/favicon.ico":  # browsers ask for it where a page names no picture, as probes do not
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.inner(scope, receive, send)
            return
        data = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            data += message.get("body", b"")
            if not message.get("more_body"):
                break
        answer = _Answer(self.inner, scope, receive, send, data, record=self._record)
        self.asked.append((scope["path"], answer.json))
        expected = self._expected[scope["path"]]
        if expected:
            await expected.popleft().serve(answer)
        else:
            await answer.pass_on()

    def _record(self, sent: bytes) -> None:
        """Keep an answer that is sent whole."""
        self.events = _events(sent)
        results = [event for event in self.events if event.get("type") == "result"] or [None]
        self.answers.append(results[-1] if self.events else json.loads(sent))


def _events(data: bytes) -> list[Any]:
    """The events of a stream; [] for another answer."""
    if not data.startswith((b"data: ", b"event: ", b":")):
        return []
    frames = [one for one in data.split(b"\n\n") if one and not one.startswith(b":") and one != b"data: [DONE]"]
    return [event_of(one) for one in frames]
