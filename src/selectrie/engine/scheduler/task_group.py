"""What one request has under way on the model's thread: begun together, taken back together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from selectrie.decoding.task import Task
from selectrie.engine.scheduler.model_thread import Handle, Owner
from selectrie.errors import CancelledError

_MOST_HANDLES = 256
"""Handles that an errand keeps before it looks for those that have ended."""

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Counting(Task[R_co], Protocol[R_co]):
    """A task that counts the rows it has read."""

    @property
    def n_evaluated(self) -> int: ...


class Errand:
    """The tasks and calls of one request. Any thread may cancel it at any point; from then on it begins nothing more.

    priority, deadline_s, linger: of its tasks (`Owner.handle`); the seconds count from when the errand is made.
    """

    def __init__(
        self, owner: Owner, *, priority: int = 0, deadline_s: float | None = None, linger: bool = False
    ) -> None:
        self.owner = owner
        self._priority, self._linger = priority, linger
        self._until = None if deadline_s is None else owner.now() + deadline_s
        self._handles: list[Handle[Any]] = []
        self._most_handles = _MOST_HANDLES
        self._is_cancelled = False
        self._is_calling = False
        self._scope = _SCOPE.get()
        if self._scope is not None:
            self._scope.add(self)

    @property
    def late_s(self) -> float:
        """Seconds since its deadline; 0 before it, or without one."""
        return 0.0 if self._until is None else max(0.0, self.owner.now() - self._until)

    def begin(self, task: Task[R], on_step: Callable[[], None] | None = None) -> Handle[R]:
        """Queue a task (`Owner.handle`)."""
        if len(self._handles) >= self._most_handles:  # a page begins thousands of tasks, one after the other
            self._handles[:] = [handle for handle in self._handles if not handle.is_done]
            self._most_handles = _MOST_HANDLES + 2 * len(self._handles)
        left_s = None if self._until is None else max(math.ulp(0.0), self._until - self.owner.now())
        handle = self.owner.handle(task, on_step, priority=self._priority, deadline_s=left_s, linger=self._linger)
        self._handles.append(handle)  # before it starts: Ctrl-C may come as soon as it runs
        self._check()
        handle.start()
        return handle

    def begin_told(self, task: Counting[R], tell: Callable[[int, int], None] | None, total: int = 0) -> Handle[R]:
        """Queue a task that tells after each model call how many rows it has read, of how many (0: nobody knows)."""
        return self.begin(task, None if tell is None else lambda: tell(task.n_evaluated, total))

    def call(self, function: Callable[[], R]) -> R:
        """Run a function on the model's thread (`Owner.call`)."""
        self._is_calling = True
        try:
            self._check()
            # A decode that `cancel` stops makes the owner call again, to be told that nobody waits any more.
            answer = self.owner.call(lambda: () if self._is_cancelled else (function(),))
        finally:
            self._is_calling = False
        if not answer:
            raise CancelledError
        return answer[0]

    def cancel(self) -> None:
        """Take everything back that has not ended. Whoever waits for it meets `CancelledError`."""
        self._is_cancelled = True
        for handle in tuple(self._handles):
            if not handle.is_done:  # to cancel is to stop the decode, which others share
                handle.cancel()
        if self._is_calling:
            self.owner.scheduler.model.interrupt()

    def leave(self) -> None:
        """Its scope need not know it any more: nobody waits for it there."""
        if self._scope is not None:
            self._scope.drop(self)

    def _check(self) -> None:
        if self._is_cancelled:
            raise CancelledError


@contextmanager
def errand(
    owner: Owner, *, priority: int = 0, deadline_s: float | None = None, linger: bool = False
) -> Iterator[Errand]:
    """An errand that is taken back where the block fails, Ctrl-C included; the model's memory stays until the block ends.

    linger: what its tasks have evaluated stays as cache when they end, for requests that go on from there.

    Raises `ClosedError` or `ForkedError`.
    """
    with owner.using():
        begun = Errand(owner, priority=priority, deadline_s=deadline_s, linger=linger)
        try:
            yield begun
        except BaseException:
            begun.cancel()
            raise
        finally:
            begun.leave()


class Scope:
    """The errands begun within a `with` block, in the same thread or asyncio task: who waits for the block may cancel them."""

    def __init__(self) -> None:
        self._errands: list[Errand | Scope] = []
        self._is_cancelled = False

    @classmethod
    def nested(cls) -> Scope:
        """One that is cancelled with the scope that is open here, if there is one."""
        scope, outer = cls(), _SCOPE.get()
        if outer is not None:
            outer.add(scope)
        return scope

    @property
    def is_cancelled(self) -> bool:
        """Was it cancelled?"""
        return self._is_cancelled

    @contextmanager
    def open(self) -> Iterator[None]:
        """Collect the errands of a block."""
        token = _SCOPE.set(self)
        try:
            yield
        finally:
            _SCOPE.reset(token)

    def add(self, begun: Errand | Scope) -> None:
        """Collect one; it is cancelled at once where the scope is."""
        self._errands.append(begun)
        if self._is_cancelled:
            begun.cancel()

    def drop(self, begun: Errand) -> None:
        """Keep one no longer."""
        self._errands.remove(begun)

    def cancel(self) -> None:
        """Cancel all of them, and those to come; from any thread."""
        self._is_cancelled = True
        for begun in tuple(self._errands):
            begun.cancel()


_SCOPE: ContextVar[Scope | None] = ContextVar("selectrie_scope", default=None)
