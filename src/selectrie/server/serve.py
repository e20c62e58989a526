"""Runs the application with uvicorn, until a signal ends it without losing work."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import uvicorn

from selectrie.engine.engine import Engine
from selectrie.engine.pool import ModelPool
from selectrie.errors import IncompatibleOptionsError, InputFileError, OptionError
from selectrie.server.application import App, app
from selectrie.server.options import ServerOptions

LOST = 1
"""Exit code if accepted work was not finished."""
_CHECK_S = 0.05
"""Seconds between two looks at the open requests while the server drains."""
_KEEP_ALIVE_S = 75
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Serving:
    """How to serve.

    Attributes:
        host: The address to listen on.
        port: The port; 0 for any free one.
        shutdown_timeout_s: Seconds in which accepted work may finish after a signal.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    shutdown_timeout_s: float = 30.0


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
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(path, str(error)) from error
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
    503, and accepted work finishes; a second signal ends the server at once.

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
    listening = _bound(serving)
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    application = app(None, options)
    return asyncio.run(_Run(application, listening, serving, load, on_ready, f"http://{shown}:{port}").serve())


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `_Run`."""
        yield


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
        self._lost = 0
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            proxy_headers=False,
        )
        self._server = _Server(config)

    async def serve(self) -> int:
        """Serve until the end; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        loader = threading.Thread(target=self._load_in_thread, args=(loop,), name="selectrie-load", daemon=True)
        loader.start()
        try:
            await self._server.serve([self._socket])
        finally:
            if self._loaded is not None:
                self._loaded.close()
        if self._failure is not None:
            raise self._failure
        return LOST if self._lost else 0

    def _load_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loaded = self._load()
        except BaseException as error:  # noqa: BLE001 - it is raised by `serve`
            loop.call_soon_threadsafe(self._failed, error)
            return
        loop.call_soon_threadsafe(self._got, loaded)

    def _got(self, loaded: Engine | ModelPool) -> None:
        self._loaded = loaded
        self._app.state.models.set_source(loaded)
        if self._on_ready is not None:
            try:
                self._on_ready(self._url, self._app)
            except Exception as error:  # noqa: BLE001 - it is raised by `serve`
                self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._failure = error
        self._server.should_exit = True

    def _signalled(self) -> None:
        """Drain after the first signal, end at once after the second."""
        state = self._app.state
        if state.is_draining:
            self._lost = state.n_open
            self._server.force_exit = self._server.should_exit = True
            return
        state.is_draining = True
        self._drain = asyncio.ensure_future(self._drained())

    async def _drained(self) -> None:
        """Wait for accepted work, as long as it may take, then end the server."""
        state, left = self._app.state, self._serving.shutdown_timeout_s
        while state.n_open and left > 0:
            await asyncio.sleep(min(_CHECK_S, left))
            left -= _CHECK_S
        self._lost = state.n_open
        self._server.force_exit = bool(state.n_open)
        self._server.should_exit = True


def _bound(serving: Serving) -> socket.socket:
    """Return a socket that listens."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            serving.host, serving.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError as error:
        where = f"{serving.host}:{serving.port}"
        raise OptionError("host", where, f"an address that can be listened on ({error.strerror or error})") from error
    return made
