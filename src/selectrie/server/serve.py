"""Runs the application with uvicorn, until a signal ends it without losing work.

uvicorn limits the time between requests, and the gate that of a body that is wanted.
What they leave open is closed here, by our protocol of connections: headers that never
end, bodies that are not read, and clients that do not take their response. Errors of
HTTP itself have the shape of all other errors.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
from selectrie.server.allocator import limit_arenas, settle
from selectrie.server.application import App, app
from selectrie.server.exchange import Exchange, id_of
from selectrie.server.http_errors import HttpError, draining, headers_of
from selectrie.server.options import ServerOptions
from selectrie.version import __version__

MAX_HEAD_BYTES = 1 << 16
"""Maximum size of a request line and its headers, in bytes."""
_ABSOLUTE = re.compile(rb"https?://(?P<host>[^/?]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection, in seconds.

    Attributes:
        header_s: Time in which the headers of a request must arrive, from their first
            byte on, or from the beginning of the connection.
        rest_s: Time in which the rest of a body may arrive after its response was sent.
            It is read and dropped: a connection that is closed over it would be reset,
            and the client could lose the response.
        stall_s: Time in which a client takes nothing of what is sent to it.
    """

    header_s: float = 20.0
    rest_s: float = 30.0
    stall_s: float = 60.0


class _Connection(h11.Connection):
    """h11's connection of a server, which refuses two more kinds of requests.

    h11 reads a body by `Transfer-Encoding` if there is a `Content-Length` too. A proxy
    that goes by the other header takes a part of that body for a second request, so
    both together are refused (RFC 9112, 6.3). h11 limits the head of a request only
    while it is incomplete, and here a whole one is limited too.

    Attributes:
        refusal: The error that answers the client's last one.
        is_head: Whether the last request is one whose response has no body.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self.refusal = HttpError(400, "bad_http", "expected HTTP/1.1")
        self.is_head = False

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        """Return the next event of the client.

        Raises:
            h11.RemoteProtocolError: For what is not HTTP, or is refused. `refusal` has
                the response.
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
    """Raise h11's error for a request that is too large, or says two lengths."""
    size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
    if size > MAX_HEAD_BYTES:
        raise h11.RemoteProtocolError("Headers too large", error_status_hint=431)
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
        raise h11.RemoteProtocolError("it has both Content-Length and Transfer-Encoding")


def _with_origin_form(request: h11.Request) -> h11.Request:
    """Return a request whose target is a path.

    The host of a target in absolute form takes the place of `Host` (RFC 9112, 3.2.2).
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
        if not self._protocol.linger():
            self._transport.close()


class HttpProtocol(H11Protocol):
    """One connection.

    Args:
        limits: Its limits.
        named: What uvicorn gives its protocols.
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
        """Return whether a response was not sent to its end."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        is_answering = cycle is not None and not (cycle.response_complete or cycle.disconnected)
        return is_answering or self.transport.get_write_buffer_size() > 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # At 0, writing pauses whenever something was not sent at once.
        transport.set_write_buffer_limits(high=0)
        super().connection_made(cast("asyncio.Transport", _Transport(transport, self)))
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or is refused, and close the connection."""
        del msg  # the connection knows more
        self._refuse(self.conn.refusal)

    def shutdown(self) -> None:
        """Close the connection when no response is due."""
        if self._is_refused:
            self.transport.close()
        else:
            super().shutdown()

    def linger(self) -> bool:
        """Go on reading what the client still sends of a body, and drop it.

        Returns whether there is such a body, and this was not begun before.
        """
        has_rest = self.conn.their_state is h11.SEND_BODY and not self._is_refused
        return has_rest and not self.transport.is_closing() and self._drop_rest()

    def _drop_rest(self) -> bool:
        """End the responses; read and drop what comes until the client closes.

        Returns False, and does nothing, if the transport cannot end only one direction.
        """
        if not self.transport.can_write_eof():
            return False
        self._is_refused = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self._watch()
        return True

    def _watch(self) -> None:
        """Limit the time of what the connection now waits for.

        The limit holds for all of the headers, or the rest of a body, so a client does
        not gain time with every byte.
        """
        awaited = self._what_is_awaited()
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if awaited is not None:
            seconds = self._limits.header_s if awaited[0] == "headers" else self._limits.rest_s
            self._reading = self.loop.call_later(seconds, self._too_late)

    def _what_is_awaited(self) -> tuple[str, object] | None:
        """Return "headers" or "rest", and the request before; None for neither."""
        if self.transport.is_closing():
            return None
        if self._is_refused:
            return ("rest", self.cycle)
        if self.conn.their_state is h11.IDLE:
            return None if self.timeout_keep_alive_task is not None else ("headers", self.cycle)
        is_rest = self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete
        return ("rest", self.cycle) if is_rest else None

    def _too_late(self) -> None:
        if self._awaited is not None and self._awaited[0] == "headers" and self.conn.trailing_data[0]:
            seconds = self._limits.header_s
            self._refuse(HttpError(408, "header_timeout", f"the headers did not arrive within {seconds:g} s"))
        else:
            self.transport.close()

    def _watch_writing(self) -> None:
        """Close the connection for good if nothing is taken for a while."""
        if self._writing is not None:
            self._writing.cancel()
        n_unsent = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(self._limits.stall_s, self._stalled, n_unsent)

    def _stalled(self, n_before: int) -> None:
        n_unsent = self.transport.get_write_buffer_size()
        if n_unsent >= n_before:
            self.transport.abort()
        elif n_unsent:
            self._watch_writing()

    def _refuse(self, error: HttpError) -> None:
        """Answer with an error, if no response has begun, and end the connection.

        What the client still sends is read and dropped until it closes, or for the time
        of a rest: a connection that is closed over unread bytes is reset.
        """
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE) or self._is_refused:
            self.transport.close()
            return
        self._is_refused = True
        if self.cycle is not None:  # the application must not answer too
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = error.encoded()
        headers = [*headers_of(error, body), *Exchange(id_of(""), "other").headers(), (b"connection", b"close")]
        content = h11.Data(b"" if self.conn.is_head else body)
        for event in (h11.Response(status_code=error.status, headers=headers), content, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        if not self._drop_rest():
            self.transport.close()


logger = logging.getLogger("selectrie.server")

LOST = 1
"""Exit code if accepted work was not finished."""
_CHECK_S = 0.05
"""Seconds between two looks at the open requests while the server drains."""
_CLOSING_S = 1.0
"""Seconds in which clients may close their connections when all work is done."""
_KEEP_ALIVE_S = 75
_BACKLOG = 1024
DEFAULT_LIMITS = ConnectionLimits()


@dataclass(frozen=True, slots=True)
class Serving:
    """How to serve.

    Attributes:
        host: The address to listen on.
        port: The port; 0 for any free one.
        shutdown_timeout_s: Seconds in which accepted work may finish after a signal.
        header_timeout_s: Seconds in which the headers of a request must arrive.
        key_file: The file of the API keys, which SIGHUP has read again, or None.
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
    """Return whether an address is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def key_digests(path: str) -> tuple[bytes, ...]:
    """Return the SHA-256 digests of the API keys of a file, one a line.

    Blank lines and lines that begin with `#` are left out.

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
    """Raise an error for a server that others could reach without a key."""
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
    `/ready` when there is a model. After the first signal, `/ready` and new work get
    503, and accepted work finishes; a second signal ends the server at once. SIGHUP has
    the file of API keys read again, and drains where there is none, unless the process
    began with it ignored.

    The process is taken to be a server's: signals are handled, and the C library's
    allocator is limited to few arenas (`allocator.limit_arenas`).

    Args:
        load: Loads the model, in a thread of its own.
        serving: Where to listen.
        options: The options of the application.
        on_ready: Called with the URL when requests are answered.

    Returns:
        0 if all accepted requests were answered, else 1.

    Raises:
        OptionError: If the address cannot be listened on.
        SelectrieError: If the model cannot be loaded.
    """
    limit_arenas()
    listening = _bound(serving)
    run = _Run(app(None, options), listening, serving, load, on_ready, _url_of(listening))
    code = asyncio.run(run.serve())
    _log("the server has ended", code=code)
    return code


def _log(message: str, level: int = logging.INFO, **facts: object) -> None:
    """Log something that is no request."""
    logger.log(level, message, extra={"line": {"message": message, **facts}})


def uvicorn_config(application: App, limits: ConnectionLimits = DEFAULT_LIMITS) -> uvicorn.Config:
    """Return how uvicorn serves an application: by our protocol, silently."""
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
        """Return the number of connections with a response that was not sent whole."""
        return sum(one.has_unsent for one in self.server_state.connections if isinstance(one, HttpProtocol))

    def abort(self) -> None:
        """Close every connection at once, and end."""
        for one in list(self.server_state.connections):
            if isinstance(one, HttpProtocol):
                one.transport.abort()
        self.force_exit = self.should_exit = True


class _Run:
    """One run of the server."""

    def __init__(  # noqa: PLR0917 - what `serve` was given
        self,
        application: App,
        listening: socket.socket,
        serving: Serving,
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
        """Serve until the end; return the exit code."""
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, self._signalled, one)
        # `nohup` ignores it, so that the end of a session does not end the process.
        if self._serving.key_file is not None or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._hung_up)
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
        try:
            loaded = self._load()
            if isinstance(loaded, Engine):
                _warm(loaded)
            settle()
        except BaseException as error:  # noqa: BLE001 - it is raised by `serve`
            self._tell(loop, partial(self._failed, error))
            return
        if not self._tell(loop, partial(self._got, loaded)):
            loaded.close()

    @staticmethod
    def _tell(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> bool:
        """Call on the event loop; return whether it still runs."""
        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:  # a signal ended the server while the model was being loaded
            return False
        return True

    def _got(self, loaded: Engine | ModelPool) -> None:
        self._loaded = loaded
        self._app.state.models.set_source(loaded)
        _log("the server is ready", url=self._url, models=self._app.state.models.names, version=__version__)
        if self._on_ready is not None:
            try:
                self._on_ready(self._url, self._app)
            except Exception as error:  # noqa: BLE001 - it is raised by `serve`
                self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._failure = error
        self._server.abort()

    def _signalled(self, number: signal.Signals) -> None:
        """Drain after the first signal, end at once after the second."""
        state = self._app.state
        _log(f"{number.name}: {'ending' if state.is_draining else 'draining'}", open=state.n_open)
        if state.is_draining:
            self._end()
            return
        state.is_draining = True
        state.uploads.refuse(draining())
        self._drain = asyncio.ensure_future(self._drained())

    def _hung_up(self) -> None:
        """Read the API keys again; drain if there is no file of them."""
        state, path = self._app.state, self._serving.key_file
        if path is None:
            self._signalled(signal.SIGHUP)
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

    async def _drained(self) -> None:
        """Wait for accepted work, as long as it may take, then end the server.

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
        """End at once; what was accepted and not sent is lost."""
        self._app.state.is_dropping = True
        self._n_lost = max(self._app.state.n_open, self._server.n_unsent)
        if self._n_lost:
            _log(f"{self._n_lost} requests lost", logging.ERROR, lost=self._n_lost)
        self._server.abort()


def _url_of(listening: socket.socket) -> str:
    """Return a URL by which this machine reaches a socket."""
    host, port = listening.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://{host_of(host)}:{port}"


def host_of(address: str) -> str:
    """Return an address as the header `Host` has it, without a port."""
    return f"[{address}]" if ":" in address else address.lower()


def hosts_of(address: str, further: Sequence[str]) -> tuple[str, ...]:
    """Return the values of the header `Host` that a server on an address answers.

    () for any: beyond loopback, unless `further` names some.
    """
    if not is_loopback(address) and not further:
        return ()
    return tuple(dict.fromkeys(["localhost", "127.0.0.1", "[::1]", host_of(address), *map(str.lower, further)]))


def _bound(serving: Serving) -> socket.socket:
    """Return a socket that listens."""
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
        where = f"{serving.host}:{serving.port}"
        raise OptionError("host", where, f"an address that can be listened on ({error.strerror or error})") from error
    return listening


def _warm(engine: Engine) -> None:
    """Decide once, so that no client waits for what the first call has to read.

    A model that cannot decide, or is a server's, is as ready without.
    """
    if engine.identity.precision != "remote":
        with suppress(RequestError, UnsupportedModelError):
            engine.decide("A parcel is late.", Predicate("It is a complaint."))
