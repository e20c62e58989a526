"""Which model answers a request: one engine, or those of a pool, by name."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import time

from selectrie.engine.aio import in_thread
from selectrie.engine.engine import Engine
from selectrie.engine.pool import ModelPool
from selectrie.errors import MemoryBudgetError, of_value
from selectrie.server.http_errors import HttpError, busy
from selectrie.server.options import ServerOptions

_SUFFIX = ".gguf"
_LOOK_S = 1.0
"""Seconds between two looks for memory, which others than the server may free."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelLease:
    """A model for the time of one request.

    Attributes:
        engine: The engine.
        name: Name of the model in the answer.
        warning: What is wrong with the name that the client gave; "" for nothing.
    """

    engine: Engine
    name: str
    warning: str = ""


class Models:
    """The models of a server.

    All methods but the constructor are called on the event loop.

    Args:
        source: An engine, a pool of models, or None for one that `set_source` gives
            later.
        options: Names, and whether unknown ones are refused.
    """

    def __init__(self, source: Engine | ModelPool | None, options: ServerOptions) -> None:
        self._pool: ModelPool | None = None
        self._engine: Engine | None = None
        self.set_source(source)
        self._names, self._strict = tuple(options.model_names), options.strict_model
        self.created = int(time())
        self._queue: deque[asyncio.Future[None]] = deque()
        self._loaded: dict[str, Engine] = {}
        self._changed = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Return whether requests can be answered."""
        return self._pool is not None or self._engine is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all models, the one that answers by default first."""
        if self._pool is not None:
            return tuple(self._pool)
        if self._names or self._engine is None:
            return self._names
        return (name_of(self._engine.identity.name),)

    @property
    def engine(self) -> Engine | None:
        """Return the engine of a server with one model, once it is loaded."""
        return self._engine

    @property
    def engines(self) -> dict[str, Engine]:
        """Return the engines of the models that are loaded, by name."""
        if self._engine is not None:
            return {} if self._engine.closed else {self.names[0]: self._engine}
        return {name: engine for name, engine in self._loaded.items() if not engine.closed}

    def set_source(self, source: Engine | ModelPool | None) -> None:
        """Set the engine or pool that answers requests; None if none is loaded yet."""
        self._pool = source if isinstance(source, ModelPool) else None
        self._engine = source if isinstance(source, Engine) else None

    def check_name(self, name: str | None) -> None:
        """Raise `HttpError` unless there is a model of this name."""
        if name not in self.names:
            listed = ", ".join(map(repr, self.names))
            raise HttpError(404, "model_not_found", f"model={of_value(name)}: expected one of {listed}", "model")

    @asynccontextmanager
    async def lease(self, name: str | None) -> AsyncIterator[ModelLease]:
        """Yield the model for a request.

        Requests for models of a pool are served first come, first served: one that
        needs memory which others use holds up those behind it until it is free.

        Args:
            name: The field `model` of the request.

        Raises:
            HttpError: 404 for an unknown name, 503 while the model is being loaded.
        """
        if not self.is_ready:
            raise busy("the model is being loaded", status=503, code="loading")
        known = name in self.names or (self._pool is None and name is None)
        if not known and (self._pool is not None or self._strict):
            self.check_name(name)
        if self._pool is not None:
            async with self._lease_of_pool(self._pool, str(name)) as lease:
                yield lease
        elif self._engine is not None:
            answers = str(name) if known and name is not None else self.names[0]
            yield ModelLease(self._engine, answers, "" if known else f"unknown model; {answers} answers")

    @asynccontextmanager
    async def _lease_of_pool(self, pool: ModelPool, name: str) -> AsyncIterator[ModelLease]:
        place = await self._turn()
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            try:
                engine = await self._entered(
                    lambda: pool.use(name, on_room=lambda: _call(loop, partial(self._leave, place))), stack
                )
            finally:
                self._leave(place)
            self._loaded[name] = engine
            stack.callback(self._changed.set)
            yield ModelLease(engine, name)

    async def _entered(self, use: Callable[[], AbstractContextManager[Engine]], stack: ExitStack) -> Engine:
        """Return the engine of a model, loading it as soon as there is memory.

        If the request is given up meanwhile, the model is loaded all the same, and then
        given back.
        """
        while True:
            self._changed.clear()
            own = ExitStack()
            entering = asyncio.ensure_future(in_thread(partial(own.enter_context, use())))
            try:
                engine = await asyncio.shield(entering)
            except MemoryBudgetError as error:
                if not error.held:
                    raise
            except asyncio.CancelledError:
                entering.add_done_callback(partial(self._give_back, own))
                raise
            else:
                stack.push(own.pop_all())
                return engine
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LOOK_S)

    def _give_back(self, own: ExitStack, entering: asyncio.Future[Engine]) -> None:
        """Free a model that was loaded for a request that is over."""
        if not entering.cancelled():
            entering.exception()  # it is read, so it is not logged
        own.close()
        self._changed.set()

    async def _turn(self) -> asyncio.Future[None]:
        """Wait until no request that came before waits for memory; return the place."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            if self._queue[0] is not place:
                await place
        except asyncio.CancelledError:
            self._leave(place)
            raise
        return place

    def _leave(self, place: asyncio.Future[None]) -> None:
        """Take a place out of the queue, if it is there, and let the next one go on."""
        if place not in self._queue:
            return
        was_first = self._queue[0] is place
        self._queue.remove(place)
        if was_first and self._queue and not self._queue[0].done():
            self._queue[0].set_result(None)


def _call(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call on the event loop from another thread, unless the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


def name_of(source: str) -> str:
    """Return the name of a model: that of its file or folder, or the end of `hf:…`."""
    last = Path(source.rstrip("/")).name or source
    return last.removesuffix(_SUFFIX)
