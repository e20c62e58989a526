"""Finds in a trace what a task was told, and rows by their token path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from selectrie.core.types import Cost, IntArray
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


class Rescoring(NamedTuple):
    """Near ties of a request that were scored again after a context.

    Attributes:
        cost: The cost of evaluating the context.
        has_failed: Whether the model failed then, so that their scores stayed.
    """

    cost: Cost
    has_failed: bool


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
        without: set[int] = set()
        for request in trace.requests:
            self._requests.setdefault(request.digest, Turns()).several.append(request)
            failed = self._failed_contexts(request)
            # Tasks that went well before another failed are not asked for again.
            without |= {number for number in request.tasks if self._is_after(trace.tasks[number], failed)}
            if request.lookups:
                self._lookups.setdefault(request.digest, Turns()).several.append(request)
        for is_whole in (True, False):
            # A task that failed is replayed as far as it went, unless it was repeated.
            for number, task in enumerate(trace.tasks):
                if number in without:
                    continue
                key = self._key_of(task)
                if is_whole == (task.ending in (Ending.RESULT, Ending.EXPIRED)):
                    if not is_whole and key in self._whole:
                        continue
                    self._tasks.setdefault(key, Turns()).several.append(task)
            if is_whole:
                self._whole = frozenset(self._tasks)

    _whole: frozenset[TaskKey] = frozenset()

    @staticmethod
    def _is_after(task: RecordedTask, contexts: frozenset[bytes]) -> bool:
        """Return whether a task scored near ties again after one of some contexts."""
        return bool(contexts) and task.context is Context.CANONICAL and task.prompt.tobytes() in contexts

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

    def rescorings(self, digest: str, context: IntArray) -> Turns[Rescoring] | None:
        """Return how near ties were scored again after a context; None if never."""
        return self._rescorings.get((digest, context.tobytes()))

    def _failed_contexts(self, request: RecordedRequest) -> frozenset[bytes]:
        """Return the contexts after which the model failed to score near ties again."""
        tasks = [self.trace.tasks[number] for number in request.tasks]
        failed = [task for task in tasks if task.context is Context.CANONICAL and task.ending is Ending.FAILED]
        return frozenset(task.prompt.tobytes() for task in failed)

    @cached_property
    def _rescorings(self) -> dict[tuple[str, bytes], Turns[Rescoring]]:
        found: dict[tuple[str, bytes], Turns[Rescoring]] = {}
        for request in self.trace.requests:
            failed = self._failed_contexts(request)
            for context, costs in request.contexts.items():
                # After a failure there is none in the same request, so it was the last.
                last = len(costs) - 1
                made = [Rescoring(cost, at == last and context in failed) for at, cost in enumerate(costs)]
                found.setdefault((request.digest, context), Turns()).several.extend(made)
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
