"""Runs the application with uvicorn, until a signal ends it without losing work.

uvicorn limits the time between requests, and the gate the time in which a body arrives.
Here, a protocol class of ours closes the connections that they leave open: headers that
never end, bodies that are not read, and clients that do not take their response. Errors
of HTTP itself have the shape of all other errors.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import ipaddress
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from selectrie.decide.questions import Predicate
from selectrie.engine.engine import Engine
from selectrie.engine.pool import ModelPool
from selectrie.errors import (
    MAX_QUOTED,
    IncompatibleOptionsError,
    InputFileError,
    OptionError,
    RequestError,
    UnsupportedModelError,
    clip,
)
from selectrie.options.checks import at_least, number
from selectrie.server.application import App, app
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import HttpError, draining_error, response_headers
from selectrie.server.transport.request_context import Exchange, id_of
from selectrie.version import __version__

MAX_HEAD_BYTES = 1 << 16
"""Maximum size of a request line and its headers, in bytes."""
MAX_ARENAS = 2
"""Arenas of a server: one for the model's thread and one for all others. Python's lock
lets only one thread allocate at a time where it is held."""
_M_ARENA_MAX = -8
"""Number of the option in glibc's <malloc.h>."""
_VARIABLES = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
"""Environment variables with which the operator configures the allocator."""
_ABSOLUTE = re.compile(rb"https?://(?P<host>[^/?]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection, in seconds.

    Attributes:
        header_s: Time in which the headers of a request must arrive, from their first
            byte on, or from the beginning of the connection.
        rest_s: Time in which the rest of a body may arrive after its response was sent.
            The rest is read and dropped: closing a connection with unread bytes would
            reset it, and the client could lose the response.
        stall_s: Time after which a client that takes nothing of its response is cut.
    """

    header_s: float = 20.0
    rest_s: float = 30.0
    stall_s: float = 60.0


class _Connection(h11.Connection):
    """h11's server connection, which also refuses two more kinds of requests.

    h11 reads a body by `Transfer-Encoding` if there is a `Content-Length` too. A proxy
    that goes by the other header takes a part of that body for a second request, so
    both together are refused (RFC 9112, 6.3). h11 limits the head of a request only
    while it is incomplete, and here a whole one is limited too.

    Attributes:
        refusal: The response to the last request that was refused.
        is_head: Whether the last request was HEAD, whose response has no body.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self.refusal = HttpError(400, "bad_http", "expected HTTP/1.1")
        self.is_head = False

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        """Return the next event of the client.

        Raises:
            h11.RemoteProtocolError: If the data is not HTTP, or the request is refused.
                `refusal` then has the response.
        """
        begins_request = self.their_state is h11.IDLE
        if begins_request:
            self.is_head = False  # a line that is no request may follow one for a head
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                self.is_head = event.method == b"HEAD"
                _check_head(event)
                event = _with_origin_form(event)
        except h11.RemoteProtocolError as error:
            if begins_request and error.error_status_hint == 431:
                message = f"request line and headers are larger than {MAX_HEAD_BYTES} bytes: send fewer or shorter ones"
                self.refusal = HttpError(431, "headers_too_large", message)
            else:
                reason = clip(str(error).partition(": bytearray(")[0], MAX_QUOTED)
                self.refusal = HttpError(400, "bad_http", f"not a request of HTTP/1.1: {reason}")
            raise
        return event


def _check_head(request: h11.Request) -> None:
    """Raise h11's error for a head that is too large, or that declares two lengths."""
    size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
    if size > MAX_HEAD_BYTES:
        raise h11.RemoteProtocolError("Headers too large", error_status_hint=431)
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
        raise h11.RemoteProtocolError("it has both Content-Length and Transfer-Encoding")


def _with_origin_form(request: h11.Request) -> h11.Request:
    """Return the request with a path as its target.

    The host of a URL as target replaces the header `Host` (RFC 9112, 3.2.2).
    """
    found = _ABSOLUTE.match(request.target)
    if found is None:
        return request
    path = request.target[found.end() :]
    headers = [(name, value) for name, value in request.headers if name != b"host"]
    return h11.Request(
        method=request.method,
        target=path if path.startswith(b"/") else b"/" + path,
        headers=[(b"host", found["host"]), *headers],
        http_version=request.http_version,
    )


class _Transport:
    """A transport whose `close` lets the client send the rest of its body first.

    uvicorn closes a connection after its last response. Where a body was refused before
    it was read, the client would be reset, and never see the response.
    """

    def __init__(self, transport: asyncio.Transport, protocol: HttpProtocol) -> None:
        self._transport, self._protocol = transport, protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Close the transport, unless a body that was not read is dropped first."""
        if not self._protocol.drop_unread_body():
            self._transport.close()


class HttpProtocol(H11Protocol):
    """uvicorn's protocol of one connection, with limits of time and our error bodies.

    Args:
        limits: The limits of time.
        named: Arguments that uvicorn passes to its protocols.
    """

    def __init__(self, *, limits: ConnectionLimits, **named: Any) -> None:
        super().__init__(**named)
        self.conn: _Connection = _Connection()
        self._limits = limits
        self._is_refused = False
        self._awaited: tuple[str, object] | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    @property
    def has_unsent(self) -> bool:
        """Return whether a response has not been sent to its end."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        is_answering = cycle is not None and not (cycle.response_complete or cycle.disconnected)
        return is_answering or self.transport.get_write_buffer_size() > 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # At 0, writing pauses whenever something was not sent at once.
        """Wrap the transport, and start the timer for the first headers."""
        transport.set_write_buffer_limits(high=0)
        super().connection_made(cast("asyncio.Transport", _Transport(transport, self)))
        self._limit_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        super().connection_lost(exc)
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Handle data, and adapt the timer; data after a refusal is dropped."""
        if self._is_refused:
            return
        super().data_received(data)
        self._limit_reading()

    def on_response_complete(self) -> None:
        """Adapt the timer to the next thing that the connection waits for."""
        super().on_response_complete()
        self._limit_reading()

    def pause_writing(self) -> None:
        """Pause the response, and start the timer for a stalled client."""
        super().pause_writing()
        self._limit_writing()

    def resume_writing(self) -> None:
        """Resume the response, and stop the timer for a stalled client."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer bad HTTP, or a refused request, and close the connection."""
        del msg  # the connection knows more
        self._refuse(self.conn.refusal)

    def shutdown(self) -> None:
        """Close the connection once no response is due."""
        if self._is_refused:
            self.transport.close()
        else:
            super().shutdown()

    def drop_unread_body(self) -> bool:
        """Start to read and drop the body that the client still sends.

        Returns False if there is no such body, or this has already begun.
        """
        has_rest = self.conn.their_state is h11.SEND_BODY and not self._is_refused
        return has_rest and not self.transport.is_closing() and self._drop_rest()

    def _drop_rest(self) -> bool:
        """Stop sending; read and drop data until the client closes the connection.

        Returns False, and does nothing, if the transport cannot close one direction
        only.
        """
        if not self.transport.can_write_eof():
            return False
        self._is_refused = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self._limit_reading()
        return True

    def _limit_reading(self) -> None:
        """Start a timer for the data that the connection now waits for.

        The time is for all headers, or the whole rest of a body, so a client does not
        gain time with every byte.
        """
        awaited = self._awaited_part()
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if awaited is not None:
            seconds = self._limits.header_s if awaited[0] == "headers" else self._limits.rest_s
            self._reading = self.loop.call_later(seconds, self._time_out)

    def _awaited_part(self) -> tuple[str, object] | None:
        """Return "headers" or "rest" and the last cycle; None if neither is awaited.

        "rest" is the rest of a body whose response was sent.
        """
        if self.transport.is_closing():
            return None
        if self._is_refused:
            return ("rest", self.cycle)
        if self.conn.their_state is h11.IDLE:
            return None if self.timeout_keep_alive_task is not None else ("headers", self.cycle)
        is_rest = self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete
        return ("rest", self.cycle) if is_rest else None

    def _time_out(self) -> None:
        """Answer incomplete headers with 408; close the connection in other cases."""
        # Without `trailing_data` no byte of a request has arrived, and none is
        # answered.
        if self._awaited is not None and self._awaited[0] == "headers" and self.conn.trailing_data[0]:
            seconds = self._limits.header_s
            self._refuse(HttpError(408, "header_timeout", f"the headers did not arrive within {seconds:g} s"))
        else:
            self.transport.close()

    def _limit_writing(self) -> None:
        """Start a timer that cuts the connection if the client takes no data."""
        if self._writing is not None:
            self._writing.cancel()
        n_unsent = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(self._limits.stall_s, self._check_stall, n_unsent)

    def _check_stall(self, n_before: int) -> None:
        """Cut the connection if none of the `n_before` unsent bytes has been taken."""
        n_unsent = self.transport.get_write_buffer_size()
        if n_unsent >= n_before:
            self.transport.abort()
        elif n_unsent:
            self._limit_writing()

    def _refuse(self, error: HttpError) -> None:
        """Answer with an error, if no response has begun, and end the connection.

        Data that the client still sends is read and dropped until it closes, at most
        for `rest_s`: closing a connection with unread bytes resets it.
        """
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE) or self._is_refused:
            self.transport.close()
            return
        self._is_refused = True
        if self.cycle is not None:  # the application must not answer too
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = error.to_json()
        headers = [*response_headers(error, body), *Exchange(id_of(""), "other").headers(), (b"connection", b"close")]
        content = h11.Data(b"" if self.conn.is_head else body)
        for event in (h11.Response(status_code=error.status, headers=headers), content, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        if not self._drop_rest():
            self.transport.close()


logger = logging.getLogger("selectrie.server")

LOST = 1
"""Exit code if accepted requests were not answered."""
_CHECK_S = 0.05
"""Seconds between checks for open requests while the server drains."""
_CLOSING_S = 1.0
"""Seconds for clients to close their connections after all work is done."""
_KEEP_ALIVE_S = 75
_BACKLOG = 1024
DEFAULT_LIMITS = ConnectionLimits()


@dataclass(frozen=True, slots=True)
class Serving:
    """Where the server listens, and how long it waits.

    Attributes:
        host: The address to listen on.
        port: The port; 0 for any free one.
        shutdown_timeout_s: Seconds in which accepted work may finish after a signal.
        header_timeout_s: Seconds in which the headers of a request must arrive.
        key_file: File of API keys, which is read again on SIGHUP; None without keys.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    shutdown_timeout_s: float = 30.0
    header_timeout_s: float = 20.0
    key_file: str | None = None

    def __post_init__(self) -> None:
        at_least("port", self.port, 0, max_value=0xFFFF, optional=False)
        number("shutdown_timeout", self.shutdown_timeout_s, min_value=0, remedy="a number of seconds")
        number("header_timeout_s", self.header_timeout_s, min_value=0.001, remedy="a number of seconds above 0")


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def key_digests(path: str) -> tuple[bytes, ...]:
    """Return the SHA-256 digests of the API keys in a file with one key a line.

    Blank lines and lines that begin with `#` are skipped.

    Raises:
        InputFileError: If the file cannot be read or has no key.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputFileError(path, "it is not UTF-8: expected a text with one key a line") from error
    except OSError as error:
        raise InputFileError(path, error.strerror or str(error)) from error
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise InputFileError(path, "it has no key: expected one a line")
    return tuple(sha256(key.encode()).digest() for key in keys)


def check_exposed(host: str, options: ServerOptions, *, without_keys: bool) -> None:
    """Raise an error if others could reach the server without a key, unless intended.

    Args:
        host: The address to listen on.
        options: The options with the key digests.
        without_keys: Whether a server without keys is intended (`--no-auth`).
    """
    if options.key_digests and without_keys:
        raise IncompatibleOptionsError("no_auth", "an API key file", "leave one of them out")
    if not is_loopback(host) and not options.key_digests and not without_keys:
        raise OptionError(
            "host", host, "a loopback address, or keys in --api-key-file; --no-auth serves everybody who can connect"
        )


def serve(
    load: Callable[[], Engine | ModelPool],
    serving: Serving,
    options: ServerOptions,
    *,
    on_ready: Callable[[str, App], None] | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM, and return the exit code.

    The socket is bound before the model loads, so `/health` answers at once, and
    `/ready` when the model, the first of a pool, is loaded. After the first signal,
    `/ready` and new work get 503, and accepted work finishes; a second signal ends the
    server at once. On SIGHUP the file of API keys is read again. Without such a file
    SIGHUP drains too, unless it was ignored when the process began.

    This changes the process: signals are handled, and the C library's allocator is
    limited to few arenas (`limit_arenas`).

    Args:
        load: Loads the model, in a thread of its own.
        serving: Where to listen.
        options: The options of the application.
        on_ready: Called with the URL and the application once the model is loaded.

    Returns:
        0 if all accepted requests were answered, else 1.

    Raises:
        OptionError: If the address cannot be listened on.
        SelectrieError: If the model cannot be loaded.
    """
    limit_arenas()
    listening = _bind(serving)
    run = _Run(app(None, options), listening, serving, load=load, on_ready=on_ready, url=_local_url(listening))
    code = asyncio.run(run.serve())
    _log("the server has ended", code=code)
    return code


def _log(message: str, level: int = logging.INFO, **facts: object) -> None:
    """Log an event of the server itself, not of a request."""
    logger.log(level, message, extra={"line": {"message": message, **facts}})


def limit_arenas() -> bool:
    """Limit the allocator's arenas of this process; return whether that was done.

    Each request waits in a thread of its own (`engine/aio.py`), and glibc lets up to
    eight arenas a core grow for threads that allocate at once. What one arena has free
    is not used by the others, so the memory of a server would grow with the largest
    number of requests that ever ran at once, although no object is kept.

    Nothing is done without glibc, or if an environment variable configures the
    allocator. Arenas that exist already stay.
    """
    if any(name in os.environ for name in _VARIABLES):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - raises where the library is another one
        return bool(library.mallopt(_M_ARENA_MAX, MAX_ARENAS))
    except (AttributeError, OSError, TypeError):
        return False


def freeze_objects() -> None:
    """Exclude all objects that exist now from later garbage collections.

    A collection holds Python's lock while it looks at every object: 0.14 s for the 110
    000 of a server with a model, and less than 0.1 ms for those made since.
    """
    gc.collect()
    gc.freeze()


def uvicorn_config(application: App, limits: ConnectionLimits = DEFAULT_LIMITS) -> uvicorn.Config:
    """Return the configuration under which uvicorn runs the application.

    It uses our protocol and writes no log.
    """
    return uvicorn.Config(
        application,
        http=partial(HttpProtocol, limits=limits),  # type: ignore[arg-type]
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        proxy_headers=False,
    )


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `_Run`."""
        yield

    @property
    def n_unsent(self) -> int:
        """Return the number of connections with a response that is not fully sent."""
        return sum(one.has_unsent for one in self.server_state.connections if isinstance(one, HttpProtocol))

    def abort(self) -> None:
        """Close every connection at once and stop the server."""
        for one in list(self.server_state.connections):
            if isinstance(one, HttpProtocol):
                one.transport.abort()
        self.force_exit = self.should_exit = True


class _Run:
    """One run of the server, from loading the model to the exit code."""

    def __init__(
        self,
        application: App,
        listening: socket.socket,
        serving: Serving,
        *,
        load: Callable[[], Engine | ModelPool],
        on_ready: Callable[[str, App], None] | None,
        url: str,
    ) -> None:
        self._app, self._socket, self._serving = application, listening, serving
        self._load, self._on_ready, self._url = load, on_ready, url
        self._loaded: Engine | ModelPool | None = None
        self._failure: BaseException | None = None
        self._drain: asyncio.Task[None] | None = None
        self._n_lost = 0
        limits = ConnectionLimits(header_s=serving.header_timeout_s, rest_s=application.state.options.body_timeout_s)
        self._server = _Server(uvicorn_config(application, limits))

    async def serve(self) -> int:
        """Serve until the server ends; return the exit code."""
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, self._handle_signal, one)
        # `nohup` ignores it, so that the end of a session does not end the process.
        if self._serving.key_file is not None or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._handle_hangup)
        loader = threading.Thread(target=self._load_in_thread, args=(loop,), name="selectrie-load", daemon=True)
        loader.start()
        try:
            await self._server.serve([self._socket])
        finally:
            if self._loaded is not None:
                self._loaded.close()
        if self._failure is not None:
            raise self._failure
        return LOST if self._n_lost else 0

    def _load_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        """Load the model and hand it to the event loop, or the error if it fails.

        Of a pool, the first model is loaded.
        """
        try:
            loaded = self._load()
            with nullcontext(loaded) if isinstance(loaded, Engine) else loaded.use(next(iter(loaded))) as engine:
                _warm_up(engine)
            freeze_objects()
        except BaseException as error:  # noqa: BLE001 - it is raised by `serve`
            self._call_on_loop(loop, partial(self._fail, error))
            return
        if not self._call_on_loop(loop, partial(self._set_loaded, loaded)):
            loaded.close()

    @staticmethod
    def _call_on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> bool:
        """Schedule a call on the event loop; return False if the loop is closed."""
        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:  # a signal ended the server while the model was being loaded
            return False
        return True

    def _set_loaded(self, loaded: Engine | ModelPool) -> None:
        """Let the application answer with the loaded model, and report readiness."""
        self._loaded = loaded
        self._app.state.models.set_source(loaded)
        _log("the server is ready", url=self._url, models=self._app.state.models.names, version=__version__)
        if self._on_ready is not None:
            try:
                self._on_ready(self._url, self._app)
            except Exception as error:  # noqa: BLE001 - it is raised by `serve`
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._server.abort()

    def _handle_signal(self, number: signal.Signals) -> None:
        """Drain after the first signal, end at once after the second."""
        state = self._app.state
        _log(f"{number.name}: {'ending' if state.is_draining else 'draining'}", open=state.n_open)
        if state.is_draining:
            self._end()
            return
        state.is_draining = True
        state.uploads.refuse(draining_error())
        self._drain = asyncio.ensure_future(self._drain_and_end())

    def _handle_hangup(self) -> None:
        """Read the file of API keys again; drain if there is none."""
        state, path = self._app.state, self._serving.key_file
        if path is None:
            self._handle_signal(signal.SIGHUP)
            return
        if not Path(path).is_file():  # reading a pipe would wait for its writer
            _log(f"SIGHUP: the keys stay as they were: {path} is no file", logging.ERROR)
            return
        try:
            state.options = replace(state.options, key_digests=key_digests(path))
        except InputFileError as error:
            _log(f"SIGHUP: the keys stay as they were: {error}", logging.ERROR)
        else:
            _log("SIGHUP: the keys were read again", keys=len(state.options.key_digests))

    async def _drain_and_end(self) -> None:
        """Wait until accepted requests are answered or the timeout passes, then end.

        A response counts as sent when the connection has taken all of it.
        """
        loop, state = asyncio.get_running_loop(), self._app.state
        until = loop.time() + self._serving.shutdown_timeout_s
        while state.n_open or self._server.n_unsent:
            left = until - loop.time()
            if left <= 0:
                self._end()
                return
            await asyncio.sleep(min(_CHECK_S, left))
        self._server.should_exit = True
        await asyncio.sleep(_CLOSING_S)
        self._server.abort()  # connections whose clients still send, or do not close

    def _end(self) -> None:
        """End at once; requests that are not answered are lost."""
        self._app.state.is_dropping = True
        self._n_lost = max(self._app.state.n_open, self._server.n_unsent)
        if self._n_lost:
            _log(f"{self._n_lost} requests lost", logging.ERROR, lost=self._n_lost)
        self._server.abort()


def _local_url(listening: socket.socket) -> str:
    """Return a URL under which this machine reaches a listening socket."""
    host, port = listening.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://{host_header(host)}:{port}"


def host_header(address: str) -> str:
    """Return the value of the header `Host` for an address, without a port."""
    return f"[{address}]" if ":" in address else address.lower()


def allowed_hosts(address: str, further: Sequence[str]) -> tuple[str, ...]:
    """Return the values of the header `Host` that a server answers.

    () for any value: beyond loopback, if `further` is empty.

    Args:
        address: The address on which it listens.
        further: Additional values to allow.
    """
    if not is_loopback(address) and not further:
        return ()
    return tuple(dict.fromkeys(["localhost", "127.0.0.1", "[::1]", host_header(address), *map(str.lower, further)]))


def _bind(serving: Serving) -> socket.socket:
    """Return a socket that listens on the address; raise `OptionError` if it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            serving.host, serving.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with ExitStack() as stack:
            listening = stack.enter_context(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
            stack.pop_all()
    except OSError as error:
        is_used = error.errno == errno.EADDRINUSE
        name, free = ("port", f"a free port of {serving.host}") if is_used else ("host", "an address")
        allowed = f"{free} that can be listened on ({error.strerror or error})"
        raise OptionError(name, getattr(serving, name), allowed) from error
    return listening


def _warm_up(engine: Engine) -> None:
    """Decide once, so that no client waits for data that the first call reads.

    The cache is empty again afterwards, so the first request is answered with the bits
    of a new engine. Models on another server, and those that cannot decide, are left
    alone.
    """
    if engine.identity.precision != "remote":
        with suppress(RequestError, UnsupportedModelError):
            engine.decide("A parcel is late.", Predicate("It is a complaint."))
        engine.trim()
