"""Runs the application with uvicorn, until a signal ends it without losing work."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import uvicorn

from selectrie.decide.questions import Predicate
from selectrie.engine.engine import Engine
from selectrie.engine.pool import ModelPool
from selectrie.errors import IncompatibleOptionsError, InputFileError, OptionError, RequestError, UnsupportedModelError
from selectrie.options.checks import at_least, number
from selectrie.server.allocator import limit_arenas, settle
from selectrie.server.application import App, app
from selectrie.server.http_errors import draining
from selectrie.server.options import ServerOptions
from selectrie.server.protocol import ConnectionLimits, HttpProtocol
from selectrie.version import __version__

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
