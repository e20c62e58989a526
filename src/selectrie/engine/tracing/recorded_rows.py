"""Finds in a trace what a task was told, and rows by their token path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np

from selectrie.core.types import IntArray
from selectrie.traces.reader import RecordedRequest, RecordedTask, Trace
from selectrie.traces.records import Context, Ending
from selectrie.traces.values import Source

T = TypeVar("T")

_DIGEST_BYTES = 16
TaskKey = tuple[str, Context, str, bytes]
"""Digest of the subject, context, name of the task, and bytes of its prompt."""


class Turns(Generic[T]):
    """What was recorded several times under one key, in order.

    Each call of `take` returns the next one, and after the last the first again. Any
    thread may call it.
    """

    def __init__(self) -> None:
        self.several: list[T] = []
        self._numbers = count()

    def take(self) -> T:
        """Return the next one."""
        return self.several[next(self._numbers) % len(self.several)]


class RecordedRows:
    """The tasks and rows of a trace, by what they are looked up by.

    Args:
        trace: The trace.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.n_tokens = trace.header.n_tokens
        self._tasks: dict[TaskKey, Turns[RecordedTask]] = {}
        self._requests: dict[str, Turns[RecordedRequest]] = {}
        self._lookups: dict[str, Turns[RecordedRequest]] = {}
        for request in trace.requests:
            self._requests.setdefault(request.digest, Turns()).several.append(request)
            if request.lookups:
                self._lookups.setdefault(request.digest, Turns()).several.append(request)
        for is_whole in (True, False):
            # A task that failed is replayed as far as it went, unless it was repeated.
            for task in trace.tasks:
                key = self._key_of(task)
                if is_whole == (task.ending in (Ending.RESULT, Ending.EXPIRED)):
                    if not is_whole and key in self._whole:
                        continue
                    self._tasks.setdefault(key, Turns()).several.append(task)
            if is_whole:
                self._whole = frozenset(self._tasks)

    _whole: frozenset[TaskKey] = frozenset()

    def _key_of(self, task: RecordedTask) -> TaskKey:
        return self.trace.requests[task.request].digest, task.context, task.kind, task.prompt.tobytes()

    def task(self, digest: str, context: Context, kind: str, prompt: IntArray) -> RecordedTask | None:
        """Return the next recorded task of this key, or None if there is none."""
        turns = self._tasks.get((digest, context, kind, prompt.tobytes()))
        return None if turns is None else turns.take()

    def has_request(self, digest: str) -> bool:
        """Return whether a request of this digest was recorded."""
        return digest in self._requests

    def looking_up(self, digest: str) -> RecordedRequest | None:
        """Return the next request of this digest that looked values up, or None."""
        turns = self._lookups.get(digest)
        return None if turns is None else turns.take()

    def context_costs(self, digest: str, context: IntArray) -> Turns[Any] | None:
        """Return the costs of a context before near ties; None if there are none."""
        return self._contexts.get((digest, context.tobytes()))

    @cached_property
    def _contexts(self) -> dict[tuple[str, bytes], Turns[Any]]:
        found: dict[tuple[str, bytes], Turns[Any]] = {}
        for request in self.trace.requests:
            for context, costs in request.contexts.items():
                found.setdefault((request.digest, context), Turns()).several.extend(costs)
        return found

    def sources(self, context: Context, prompt: IntArray, path: IntArray) -> Sequence[Source]:
        """Return where the row after a path was recorded, in order.

        Rows of the main context are taken from log-likelihoods too. A row that was
        scored for a near tie depends on where its context ends.
        """
        found = self._by_path.get(_path_key(context, prompt, path), [])
        if context is Context.MAIN:
            return [*found, *self._by_path.get(_path_key(Context.LOGLIKELIHOOD, prompt, path), [])]
        return found

    @cached_property
    def _by_path(self) -> dict[bytes, list[Source]]:
        found: dict[bytes, list[Source]] = {}
        for task in self.trace.tasks:
            for key, source in _keyed_rows(task):
                found.setdefault(key, []).append(source)
        return found


def _keyed_rows(task: RecordedTask) -> Iterator[tuple[bytes, Source]]:
    """Yield the key of the path and the values of each row that a task was told."""
    states = [_state(task.context, task.prompt)]
    states[0].update(np.ascontiguousarray(task.prompt, dtype=np.int32).tobytes())
    tokens = np.array(task.token, dtype=np.int32).tobytes()
    for row in range(1, len(task.up)):
        state = states[task.up[row]].copy()
        state.update(tokens[4 * row : 4 * row + 4])
        states.append(state)
    for number, values in enumerate(task.steps):
        for index, row in enumerate(task.wanted_rows(number)):
            yield states[row].digest(), (values, index)


def _state(context: Context, prompt: IntArray) -> Any:
    state = blake2b(digest_size=_DIGEST_BYTES)
    state.update(b"%d " % context)
    if context is Context.CANONICAL:
        state.update(b"%d " % len(prompt))
    return state


def _path_key(context: Context, prompt: IntArray, path: IntArray) -> bytes:
    state = _state(context, prompt)
    state.update(np.ascontiguousarray(path, dtype=np.int32).tobytes())
    digest: bytes = state.digest()
    return digest
