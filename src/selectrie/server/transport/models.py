"""Chooses the model that answers a request: one engine, or one of a pool by name."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import time

from selectrie.engine.aio import in_thread
from selectrie.engine.cascade import Cascade
from selectrie.engine.engine import Engine
from selectrie.engine.pool import ModelPool
from selectrie.errors import MemoryBudgetError, OptionError, as_json
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import HttpError, retry_error

_SUFFIX = ".gguf"
_LOOK_S = 1.0
"""Seconds between attempts to get memory, which other processes may free."""
_MAX_PASSED = 8
"""Maximum number of requests that pass the first one, which waits for memory."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelLease:
    """A model that stays loaded for the time of one request.

    Attributes:
        engine: The engine; of a cascade the first one.
        name: Name of the model in the answer.
        warning: Warning about an unknown name that the client gave; "" for none.
        cascade: The cascade, if the request names one.
    """

    engine: Engine
    name: str
    warning: str = ""
    cascade: Cascade | None = None

    @property
    def decider(self) -> Engine | Cascade:
        """Return what answers questions: the cascade, or the engine."""
        return self.cascade or self.engine


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
        self._aliases, self._strict = dict(options.aliases), options.strict_model
        self._cascades = {name: tuple(members) for name, members in options.cascades.items()}
        self._confidence = options.cascade_confidence
        self._names = tuple(options.model_names)
        self.set_source(source)
        self.created = int(time())
        self._queue: deque[asyncio.Future[None]] = deque()
        self._n_passed = 0
        self._changed = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Return whether an engine or a pool is set to answer requests."""
        return self._pool is not None or self._engine is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all models, the one that answers by default first.

        Cascades and aliases come last.
        """
        return (*self._own_names(), *self._cascades, *self._aliases)

    @property
    def engine(self) -> Engine | None:
        """Return the engine of a server with one model, once it is loaded."""
        return self._engine

    @property
    def engines(self) -> dict[str, Engine]:
        """Return the engines of the models that are loaded, by name."""
        one = {} if self._engine is None else {self.names[0]: self._engine}
        engines = one if self._pool is None else self._pool.engines
        return {name: engine for name, engine in engines.items() if not engine.closed}

    def set_source(self, source: Engine | ModelPool | None) -> None:
        """Set the engine or pool that answers requests; None if none is loaded yet."""
        self._pool = source if isinstance(source, ModelPool) else None
        self._engine = source if isinstance(source, Engine) else None
        if source is not None:
            check_names(self._aliases, self._cascades, self._own_names())
        if self._pool is not None and self._cascades:
            self._pool.check_sources(self._cascades)

    def _own_names(self) -> tuple[str, ...]:
        """Return the names of all models without their aliases."""
        if self._pool is not None:
            return tuple(self._pool)
        if self._names or self._engine is None:
            return self._names
        return (name_of(self._engine.identity.name),)

    def resolve(self, name: str) -> str:
        """Return the name of the model of an alias; other names stay as they are."""
        return self._aliases.get(name, name)

    def check_name(self, name: str | None) -> None:
        """Raise `HttpError` unless there is a model of this name."""
        if name not in self.names:
            listed = ", ".join(map(repr, self.names))
            is_wrong = "model is not given; give" if name is None else f"model={as_json(name)}: expected"
            raise HttpError(404, "model_not_found", f"{is_wrong} one of {listed}", "model")

    @asynccontextmanager
    async def lease(self, name: str | None, *, decides: bool = False) -> AsyncIterator[ModelLease]:
        """Yield the model for a request.

        Requests for a pool's models are served in order: one that waits for memory
        holds up those behind it until the memory is free, but for eight whose model is
        loaded.

        Args:
            name: The field `model` of the request; None for the only model.
            decides: Whether a cascade can answer the request.

        Raises:
            HttpError: 404 for an unknown name, 503 while the model is being loaded, 400
                for a cascade that cannot answer.
        """
        if not self.is_ready:
            raise retry_error("the model is being loaded", status=503, code="loading")
        if name is None and self._pool is not None and len(self._pool) == 1:
            name = next(iter(self._pool))
        known = name in self.names or (self._pool is None and name is None)
        if not known and (self._pool is not None or self._strict):
            self.check_name(name)
        if self._pool is not None:
            root = self.resolve(str(name))
            members = self._cascades.get(root, (root,))
            if root in self._cascades and not decides:
                message = f"model={as_json(name)}: expected one of {', '.join(members)}; a cascade answers decisions"
                raise HttpError(400, "option", message, "model")
            async with self._lease_of_pool(self._pool, members) as engines:
                cascade = Cascade(engines, self._confidence, members) if root in self._cascades else None
                yield ModelLease(engines[0], str(name), cascade=cascade)
        elif self._engine is not None:
            answers = str(name) if known and name is not None else self.names[0]
            yield ModelLease(self._engine, answers, "" if known else f"unknown model; {answers} answers")

    @asynccontextmanager
    async def _lease_of_pool(self, pool: ModelPool, names: Sequence[str]) -> AsyncIterator[list[Engine]]:
        """Yield models of the pool, after waiting for the turn and for memory.

        Only the first request in the queue may have some of its models and wait for
        others; the requests that it waits for have all of theirs, so they end.
        """
        place = await self._wait_for_turn(passes=len(names) == 1 and names[0] in pool.engines)
        loop = asyncio.get_running_loop()
        engines: list[Engine] = []
        with ExitStack() as stack:
            stack.callback(self._changed.set)
            try:
                for name in names:
                    leave = partial(_call_on_loop, loop, partial(self._leave_queue, place))
                    use = partial(pool.use, name, on_room=leave if name == names[-1] else None)
                    engines.append(await self._load(use, stack))
            finally:
                self._leave_queue(place)
            yield engines

    async def _load(self, use: Callable[[], AbstractContextManager[Engine]], stack: ExitStack) -> Engine:
        """Return the engine that `use` enters, as soon as there is memory for it.

        If the request is given up meanwhile, the model is loaded all the same, and then
        released.

        Args:
            use: Returns a context that loads the model and keeps it loaded.
            stack: Receives the context.
        """
        while True:
            self._changed.clear()
            own = ExitStack()
            entering = asyncio.ensure_future(in_thread(partial(own.enter_context, use())))
            try:
                engine = await asyncio.shield(entering)
            except MemoryBudgetError as error:
                # No model is in use, so waiting frees no memory.
                if not error.held:
                    raise
            except asyncio.CancelledError:
                # A thread cannot be stopped: release the model when it is loaded.
                entering.add_done_callback(partial(self._release_model, own))
                raise
            else:
                stack.push(own.pop_all())
                return engine
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LOOK_S)

    def _release_model(self, own: ExitStack, entering: asyncio.Future[Engine]) -> None:
        """Release a model that was loaded for a request that is over."""
        if not entering.cancelled():
            entering.exception()  # it is read, so it is not logged
        own.close()
        self._changed.set()

    async def _wait_for_turn(self, *, passes: bool) -> asyncio.Future[None]:
        """Queue behind requests that wait for memory; return the place when first.

        Args:
            passes: Whether the request may pass the first one, which `_MAX_PASSED` do.
        """
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if passes and self._queue and self._n_passed < _MAX_PASSED:
            self._n_passed += 1
            return place
        self._queue.append(place)
        try:
            if self._queue[0] is not place:
                await place
        except asyncio.CancelledError:
            self._leave_queue(place)
            raise
        return place

    def _leave_queue(self, place: asyncio.Future[None]) -> None:
        """Remove a place from the queue, if it is there, and wake the next one."""
        if place not in self._queue:
            return
        was_first = self._queue[0] is place
        self._queue.remove(place)
        self._n_passed = 0 if was_first else self._n_passed
        if was_first and self._queue and not self._queue[0].done():
            self._queue[0].set_result(None)


def _call_on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Schedule a call on the event loop from another thread, unless it is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


def check_names(aliases: Mapping[str, str], cascades: Mapping[str, Sequence[str]], models: Collection[str]) -> None:
    """Raise `OptionError` for what names no model, and for names that are taken."""
    for name, members in cascades.items():
        if len({*members} & {*models}) < max(2, len(members)):
            allowed = "two or more different models: " + ", ".join(map(repr, models))
            raise OptionError(f"cascade[{name}]", ",".join(members), allowed)
        if name in models:
            raise OptionError("cascade", name, "a further name, which no model has")
    names = (*models, *cascades)
    for alias, name in aliases.items():
        if name not in names:
            raise OptionError(f"alias[{alias}]", name, "one of the models: " + ", ".join(map(repr, names)))
        if alias in names:
            raise OptionError("alias", alias, "a further name, which no model has")


def name_of(source: str) -> str:
    """Return a model's name: the end of its path or of `hf:…`, without `.gguf`."""
    last = Path(source.rstrip("/")).name or source
    return last.removesuffix(_SUFFIX)
