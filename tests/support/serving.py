"""A server for tests: the application under uvicorn on a free port, or asked without a network."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def running(application: Any, **limits: float) -> Iterator[str]:
    """Serve an application from a thread, as `selectrie serve` does; yield its URL. limits: of connections."""
    import uvicorn

    from selectrie.server.serve import ConnectionLimits, uvicorn_config

    # asyncio switches Nagle's algorithm off where the protocol is named; with it, answers on a kept connection wait 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    config = uvicorn_config(application, ConnectionLimits(**limits))
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


PATIENCE_S = 60
"""After which a test that hangs has failed."""


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time a test can move on, so that a deadline passes when everything before it has happened."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped_s = 0.0

    def time(self) -> float:
        """Return the time, with what was skipped."""
        return super().time() + self._skipped_s

    def skip(self, seconds: float) -> None:
        """Let the time pass at once."""
        self._skipped_s += seconds


def run_skipping(main: Callable[[SkippingLoop], Awaitable[T]]) -> T:
    """The result of a coroutine that may skip time."""
    loop = SkippingLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def within_patience(main: Awaitable[T]) -> T:
    """The result of a coroutine, which must not take longer; cancelling it would let some that hang go on."""
    task = asyncio.ensure_future(main)
    done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
    assert done, "it hangs"
    return task.result()


class Reply:
    """A response that an application sent."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.data = b""

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.data)

    @property
    def events(self) -> list[Any]:
        """The events of a stream, each of JSON, without the `[DONE]` that must end them."""
        assert self.data.endswith(b"data: [DONE]\n\n"), "the stream has no end"
        frames = [one for one in self.data.split(b"\n\n")[:-2] if not one.startswith(b":")]
        return [event_of(one) for one in frames]

    @property
    def error(self) -> dict[str, Any]:
        """The error of a body in OpenAI's shape."""
        found: dict[str, Any] = self.json["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return found


def event_of(frame: bytes) -> Any:
    """The JSON of an event, behind a line with its type if it has one."""
    *named, data = frame.split(b"\n")
    assert data.startswith(b"data: ")
    event = json.loads(data.removeprefix(b"data: "))
    assert named == ([f"event: {event['type']}".encode()] if "type" in event else [])
    return event


async def asked(
    application: Any,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    *,
    data: bytes | None = None,
    leave: asyncio.Event | None = None,
    stall: bool = False,
    on_send: Callable[[Reply, Mapping[str, Any]], Awaitable[None]] | None = None,
    query: str = "",
) -> Reply:
    """Ask an application as an ASGI server would.

    body: sent as JSON. data: sent as it is. leave: when set, the client has left. stall: the body never ends.
    on_send: awaited before each message of the response is taken, as by a slow reader.
    query: what follows the question mark.
    """
    sent = data if data is not None else b"" if body is None else json.dumps(body).encode()
    named = {
        "host": "127.0.0.1",
        **({"content-type": "application/json"} if method == "POST" else {}),
        **(headers or {}),
    }
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    parts = [sent[: len(sent) // 2], sent[len(sent) // 2 :]]
    reply = Reply()

    async def receive() -> dict[str, Any]:
        if parts:
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts) or stall}
        if leave is None:
            await asyncio.get_running_loop().create_future()
        else:
            await leave.wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        if on_send is not None:
            await on_send(reply, message)
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            reply.data += message.get("body", b"")

    await application(scope, receive, send)
    return reply


def ask(application: Any, method: str, path: str, body: object = None, **named: Any) -> Reply:
    """Ask an application once, in a loop of its own."""
    return asyncio.run(asked(application, method, path, body, **named))
