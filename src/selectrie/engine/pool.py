"""Several models under one memory budget.

A model is loaded when it is first used. If memory is short, the least recently used
model is unloaded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType
from typing import Any, TypeAlias, TypeGuard, TypeVar

from selectrie.backends.table import backend_named
from selectrie.core.types import Precision
from selectrie.engine.engine import Engine, OneProcess
from selectrie.engine.load import load
from selectrie.engine.sources import NAME, PATH, check_names, is_server, resolve
from selectrie.errors import (
    ClosedError,
    ForkedError,
    IncompatibleOptionsError,
    MemoryBudgetError,
    OptionError,
    SelectrieError,
)
from selectrie.options import at_least, flag, number
from selectrie.options.arguments import named_arguments
from selectrie.options.checks import named as options_by_name
from selectrie.results.models import RegisteredModel

ModelSource: TypeAlias = str | os.PathLike[str] | None
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Use:
    """An open `with pool.use(...)` block, and the thread that entered it."""

    thread: int = field(default_factory=threading.get_ident)


@dataclass(slots=True, eq=False)
class _Entry:
    """A model of the pool and its state.

    Attributes:
        name: Name of the model.
        source: Its source, as for `load`.
        backend: Name of its back end, or None for the one that recognises the source.
        options: Options with which it is loaded.
        engine: The engine, or None if the model is not loaded.
        memory_bytes: Bytes that the model takes, or None if that is not known yet.
        worker: The thread that loads (if `engine` is None) or unloads the model; None
            if no thread does.
        uses: The `use` blocks that hold it.
        turn: Number of its last use, for the order of unloading.
        idle_since: Time of its last use on the monotonic clock, in seconds.
    """

    name: str
    source: ModelSource
    backend: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: Engine | None = None
    memory_bytes: int | None = None
    worker: int | None = None
    uses: list[_Use] = field(default_factory=list)
    turn: int = 0
    idle_since: float = 0.0

    @property
    def reserved_bytes(self) -> int:
        """Return the bytes of the budget that the model takes; 0 if it is not loaded.

        A model that is being loaded counts too.
        """
        return (self.memory_bytes or 0) if self.engine is not None or self.worker is not None else 0


class ModelPool(OneProcess):
    """Models by name, of which as many are loaded as the budget allows.

    A context manager; may be used from any thread.

    >>> sources = {"small": "a.gguf", "big": "hf:owner/repo/b.gguf"}
    >>> models = ModelPool(sources, budget_bytes=8 << 30)  # doctest: +SKIP
    >>> with models.use("small") as llm:  # doctest: +SKIP
    ...     llm.select("The capital of France is", [" Paris", " London"])

    An engine may be used only within its `use` block, because the pool may unload it
    afterwards. `models["small"]` is therefore a `RegisteredModel`, which describes the
    model and loads nothing.

    The pool must not be used by code that runs while it loads a model, for example a
    signal handler.
    """

    @named_arguments
    def __init__(
        self,
        sources: Mapping[str, ModelSource] | Sequence[ModelSource],
        *,
        budget_bytes: int | None = None,
        backend: str | Mapping[str, str] | None = None,
        untrusted: bool = False,
        model_options: Mapping[str, Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Register models; nothing is loaded or looked for on disk before it is used.

        Args:
            sources: The sources by name, as `selectrie.load` takes them except an open
                model. In a list, the name of a source is the source as written, and
                "embedded.gguf" for None, the embedded model. The address of a server
                is opened by `connect` with its defaults and takes no memory.
            budget_bytes: Bytes for all loaded models together; None for no limit.
            backend: As for `load`, the same for every model; or a mapping from names of
                models to their back ends, where the others are known by their content.
                A server has none.
            untrusted: As for `load`.
            model_options: Options of single models by their names, which replace those
                of the same name in `options`.
            options: Options of the back ends, as for `load`: n_ctx, n_threads … They
                are for every model that runs here.

        Raises:
            OptionError: If an option is invalid.
            IncompatibleOptionsError: If a back end is named for a server.
        """
        at_least("budget_bytes", budget_bytes, 1)
        flag("untrusted", untrusted)
        named = _name_sources(sources)
        backends = _name_backends(backend, named)
        by_model = _check_models("model_options", options_by_name("model_options", model_options or {}), named)
        for one in set(backends.values()):
            check_names(one, options)
        for name, given in by_model.items():
            check_names(backends[name], options_by_name(f"model_options[{name!r}]", given))
        self._untrusted = untrusted
        self._entries = {
            name: _Entry(
                name, source, backends[name], {**({} if is_server(source) else options), **by_model.get(name, {})}
            )
            for name, source in named.items()
        }
        self._budget = budget_bytes
        self._turn = 0
        self._closed = False
        self._process = os.getpid()
        self._changed = threading.Condition()

    def __enter__(self) -> ModelPool:  # noqa: PYI034 - Self is not in typing before Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> RegisteredModel:
        with self._locked():
            return self._describe(self._entries[name])

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        loaded = [name for name, entry in self._entries.items() if entry.engine is not None]
        return f"ModelPool({list(self._entries)}, budget_bytes={self._budget}, loaded={loaded})"

    @property
    def budget_bytes(self) -> int | None:
        """Return the maximum bytes of all loaded models together; None for no limit."""
        return self._budget

    @property
    def used_bytes(self) -> int:
        """Return the bytes taken by models that are loaded or being loaded."""
        with self._locked():
            return sum(entry.reserved_bytes for entry in self._entries.values())

    @property
    def engines(self) -> dict[str, Engine]:
        """Return the engines of the loaded models by name, which may be unloaded."""
        with self._locked():
            return {one.name: one.engine for one in self._entries.values() if one.engine is not None}

    def loaded(self) -> tuple[RegisteredModel, ...]:
        """Return the loaded models, most recently used first.

        The last one that is not in use is unloaded first.
        """
        with self._locked():
            loaded = [entry for entry in self._entries.values() if entry.engine is not None]
            return tuple(self._describe(entry) for entry in sorted(loaded, key=lambda entry: -entry.turn))

    def check_sources(self, together: Mapping[str, Collection[str]] = MappingProxyType({})) -> None:
        """Look for every model's file, and compare its memory with the budget.

        Files of the hub are downloaded. Servers are not asked.

        Args:
            together: Names of models that will be used at the same time, by a name for
                errors. Their memory is added.

        Raises:
            MemoryBudgetError: If a model, or those of `together`, is larger than the
                budget.
            SelectrieError: If a file is missing or cannot be read.
        """
        needed = {name: self._memory_of(entry) for name, entry in self._entries.items()}
        for name, members in together.items():
            required = sum(needed[one] for one in members)
            if self._is_too_large(required):
                budget = self._budget or 0
                raise MemoryBudgetError(name, required=required, available=budget, budget=budget, held={})

    @contextmanager
    def use(self, name: str, *, wait_s: float = 0.0, on_room: Callable[[], None] | None = None) -> Iterator[Engine]:
        """Yield the engine of a model, which stays loaded until the `with` block ends.

        A model that is not loaded is loaded first. If it does not fit, idle models are
        unloaded, the least recently used first. If unloading all of those would not be
        enough, none is unloaded. `MemoryBudgetError` is then raised at once, or after
        `wait_s` seconds in which too few models became idle. A thread that already uses
        a model never waits for another: two threads that each held the memory that the
        other needs would wait forever. Uses of loaded models do not queue behind a
        thread that waits.

        A model larger than the budget is refused before anything is unloaded. If
        loading fails, models in use are as before; idle ones may have been unloaded and
        are loaded again when used. Do not close the engine, since the pool does; a
        model whose engine was closed is loaded again.

        Args:
            name: Name of the model.
            wait_s: Seconds to wait for memory.
            on_room: Called, perhaps several times, as soon as the call no longer waits
                for memory: before the model is loaded. Its exception ends the call.

        Raises:
            OptionError: If there is no model of this name.
            MemoryBudgetError: If the model does not fit.
            ClosedError: If the pool was closed.
            ForkedError: In a child process.
            SelectrieError: If `load` fails.
        """
        if name not in self._entries:
            raise OptionError("name", name, "one of " + ", ".join(map(repr, self._entries)))
        number("wait_s", wait_s, min_value=0, remedy="seconds to wait, 0 for none")
        entry, use = self._entries[name], _Use()
        try:
            yield self._acquire(entry, use, monotonic() + wait_s, on_room or (lambda: None))
        finally:
            self._release(entry, use)

    def close(self) -> None:
        """Close every engine; work that runs on one ends with `ClosedError`.

        May be called twice. An engine that another thread is loading is closed by that
        thread when it is loaded.
        """
        if self._process != os.getpid():
            return
        with self._changed:
            self._closed = True
            engines = [entry.engine for entry in self._entries.values() if entry.engine is not None]
            self._changed.notify_all()
        for engine in engines:
            engine.close()
        with self._changed:
            for entry in self._entries.values():
                entry.engine = None

    # The lock is held only for bookkeeping, never while a model is loaded or closed.

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the pool's lock in the `with` block.

        Raises `ForkedError` in a child process, since a fork may have copied the lock
        locked.
        """
        if self._process != os.getpid():
            raise ForkedError
        with self._changed:
            yield

    def _describe(self, entry: _Entry) -> RegisteredModel:
        """Return the public record of a model of the pool."""
        is_loaded = entry.engine is not None
        idle_s = None if not is_loaded else 0.0 if entry.uses else monotonic() - entry.idle_since
        source = str(PATH) if entry.source is None else os.fspath(entry.source)
        return RegisteredModel(entry.name, source, entry.memory_bytes, is_loaded, len(entry.uses), idle_s)

    def _acquire(self, entry: _Entry, use: _Use, until: float, on_room: Callable[[], None]) -> Engine:
        """Return the entry's engine for `use`, loading the model if necessary."""
        while True:
            engine = self._lend(entry, use, on_room)
            if engine is not None:
                on_room()
                return engine
            # This may download the file, so the lock is not held.
            n_bytes = self._memory_of(entry)
            try:
                idle = self._reserve(entry, use, n_bytes, until)
                if idle is not None:
                    on_room()
                    return self._load(entry, use, idle)
            except BaseException:
                self._give_up(use.thread)
                raise

    def _memory_of(self, entry: _Entry) -> int:
        """Return a model's memory in bytes; raise an error if the budget is less."""
        n_bytes = memory_needed(entry.source, entry.backend, entry.options)
        if self._is_too_large(n_bytes):
            resolved = resolve(entry.source, entry.backend, entry.options)
            in_fast = self._memory_in_fast(entry, resolved.options)
            raise self._budget_error(entry, n_bytes, in_fast, resolved.backend.less_memory)
        return n_bytes

    def _lend(self, entry: _Entry, use: _Use, on_room: Callable[[], None]) -> Engine | None:
        """Return the entry's engine and record `use`; None if it is not loaded.

        Waits while another thread loads or unloads the model.
        """
        with self._locked():
            while True:
                if self._closed:
                    raise ClosedError("the model pool")
                if entry.worker is None:
                    break
                if entry.engine is None:  # it is being loaded
                    on_room()
                self._changed.wait()
            if entry.engine is not None and entry.engine.closed:
                entry.engine = None
            if entry.engine is not None:
                entry.uses.append(use)
            return entry.engine

    def _reserve(self, entry: _Entry, use: _Use, required: int, until: float) -> list[_Entry] | None:
        """Reserve `required` bytes for a model, which this thread will then load.

        Returns the idle models to unload first, marked with this thread as `worker`.
        Returns None if another thread has begun to load the model.
        """
        with self._locked():
            while True:
                if self._closed or entry.worker is not None or entry.engine is not None:
                    return None
                if any(one.worker is not None and one.engine is not None for one in self._entries.values()):
                    self._changed.wait()  # being unloaded: how much room it leaves is known soon
                    continue
                idle, available = self._choose_idle(required)
                if available >= required:
                    break
                left = until - monotonic()
                holds = any(one.thread == use.thread for other in self._entries.values() for one in other.uses)
                if holds or left <= 0:
                    raise self._budget_error(entry, required)
                self._changed.wait(left)
            entry.memory_bytes, entry.worker = required, use.thread
            for one in idle:
                one.worker = use.thread
            return idle

    def _choose_idle(self, required: int) -> tuple[list[_Entry], float]:
        """Return the idle models to unload for `required` bytes, in their order of use.

        The second value is the number of bytes that are then free.
        """
        if self._budget is None:
            return [], float("inf")
        available = self._budget - sum(entry.reserved_bytes for entry in self._entries.values())
        idle = []
        for entry in sorted(self._entries.values(), key=lambda entry: entry.turn):
            if available < required and entry.engine is not None and not entry.uses:
                idle.append(entry)
                available += entry.reserved_bytes
        return idle, available

    def _is_too_large(self, required: int) -> bool:
        return self._budget is not None and required > self._budget

    def _memory_in_fast(self, entry: _Entry, options: Any) -> int | None:
        """Return the memory of a model in `fast` precision, if that fits the budget.

        None if `options`, with which it would be opened, have that precision already.
        """
        if options.precision is not Precision.EXACT:
            return None
        try:
            fast = memory_needed(entry.source, entry.backend, {**entry.options, "precision": "fast"})
        except SelectrieError:
            return None
        return None if self._is_too_large(fast) else fast

    def _budget_error(
        self, entry: _Entry, required: int, required_fast: int | None = None, less_memory: str = ""
    ) -> MemoryBudgetError:
        """Return the error for a model that does not fit beside those in use."""
        budget = self._budget or 0
        held = {one.name: one.reserved_bytes for one in self._entries.values() if one.uses or one.worker is not None}
        return MemoryBudgetError(
            entry.name,
            required=required,
            available=budget - sum(held.values()),
            budget=budget,
            held={} if self._is_too_large(required) else held,
            required_fast=required_fast,
            less_memory=less_memory,
        )

    def _load(self, entry: _Entry, use: _Use, idle: list[_Entry]) -> Engine:
        """Unload the models of `idle`, then load the model of `entry`.

        All these entries have this thread as `worker`, so no other thread changes them.
        """
        for one in idle:
            engine = one.engine
            if engine is not None:
                engine.close()
            with self._changed:
                one.engine = one.worker = None
                self._changed.notify_all()
        engine = load(entry.source, backend=entry.backend, untrusted=self._untrusted, **entry.options)
        with self._changed:
            is_closed = self._closed
            if not is_closed:
                entry.engine, entry.worker = engine, None
                entry.uses.append(use)
                self._changed.notify_all()
        if is_closed:
            engine.close()
            raise ClosedError("the model pool")
        return engine

    def _give_up(self, thread: int) -> None:
        """Remove a thread as `worker` from all entries.

        The model that it was loading counts as not loaded; models that it has not
        unloaded yet stay loaded.
        """
        with self._changed:
            for entry in self._entries.values():
                if entry.worker == thread:
                    entry.worker = None
            self._changed.notify_all()

    def _release(self, entry: _Entry, use: _Use) -> None:
        """End a use of a model, which other threads may wait for."""
        if self._process != os.getpid():
            return  # the process was forked within the block
        with self._changed:
            if use in entry.uses:
                entry.uses.remove(use)
                self._turn += 1
                entry.turn, entry.idle_since = self._turn, monotonic()
            self._changed.notify_all()


def memory_needed(source: ModelSource, backend: str | None, options: Mapping[str, Any]) -> int:
    """Return an upper bound on a model's memory in bytes, estimated from its file.

    A file of the hub is downloaded first. 0 for a server's model.

    Args:
        source, backend, options: As for `load`.
    """
    if is_server(source):
        return 0
    resolved = resolve(source, backend, options)
    return resolved.backend.memory_needed(resolved.opened, resolved.options)


def _is_source(source: object) -> TypeGuard[ModelSource]:
    """Return whether a value names a model: a path, a text, or None for the default."""
    if source is None:
        return True
    return isinstance(source, str | os.PathLike) and isinstance(os.fspath(source), str) and bool(os.fspath(source))


def _name_backends(backend: object, sources: Mapping[str, ModelSource]) -> dict[str, str | None]:
    """Return the name of each model's back end; None to recognise it, and for servers.

    Raises `OptionError` for an unknown back end or model, and
    `IncompatibleOptionsError` for a back end of a server.
    """
    if backend is None or isinstance(backend, str):
        return {name: None if is_server(source) else backend for name, source in sources.items()}
    if not isinstance(backend, Mapping):
        raise OptionError("backend", backend, "the name of a back end, or such names by model, or None")
    known: dict[str, str | None] = dict.fromkeys(sources)
    for name, one in _check_models("backend", backend, known).items():
        if is_server(sources[name]):
            raise IncompatibleOptionsError("backend", f"{name!r}, the address of a server", "leave it out there")
        known[name] = backend_named(one).name
    return known


def _check_models(option: str, given: Mapping[str, T], names: Collection[str]) -> Mapping[str, T]:
    """Return values by model; raise `OptionError` for a model that is not there."""
    for name in given:
        if name not in names:
            raise OptionError(option, name, "models of this pool: " + ", ".join(map(repr, names)))
    return given


def _name_sources(sources: object) -> dict[str, ModelSource]:
    """Return the sources by name; raise `OptionError` for invalid ones."""
    expected = (
        "models by name, or a list of them, each a path, "
        "hf:owner/repo/file.gguf, hf:owner/repo:Q4_K_M, a server's http://host:8000, or None for the embedded one"
    )
    if isinstance(sources, str | bytes) or not isinstance(sources, Mapping | Sequence) or not sources:
        raise OptionError("sources", sources, expected)
    by_name = isinstance(sources, Mapping)
    named: dict[str, ModelSource] = {}
    for key in sources:
        source: object = sources[key] if isinstance(sources, Mapping) else key
        if not _is_source(source):
            raise OptionError(f"sources[{key!r}]" if by_name else "sources", source, expected)
        name = key if by_name else NAME if source is None else os.fspath(source)
        if not isinstance(name, str) or not name or name in named:
            raise OptionError("sources", name, "a name for each model, a text that is not empty, and each once")
        named[name] = source
    return named
