"""Awaitable forms of blocking methods.

Each call waits in a separate daemon thread, so any number may wait at once. A waiting
thread costs some kilobytes; a pool would limit how many requests share a model call.
Cancelling the awaiting task cancels the work of the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from selectrie.engine.queue_stream import QueueStream
from selectrie.engine.scheduler.task_group import CancelScope, ScopedThread

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def awaitable(method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return the method as a coroutine function with the same arguments."""

    @wraps(method)
    async def waiting(*args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(lambda: method(*args, **kwargs))

    return _renamed(waiting, method)


def async_stream(method: Callable[P, QueueStream[T]]) -> Callable[P, AsyncGenerator[T, None]]:
    """Return an asynchronous generator function for a method that returns a stream.

    It takes the same arguments, and starts the stream when the first chunk is
    requested. No thread waits while it streams.
    """

    @wraps(method)
    async def streaming(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        stream = await in_thread(lambda: method(*args, **kwargs))
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        with stream:
            stream.listen(lambda: _wake(loop, arrived))
            while not stream.is_finished:
                arrived.clear()
                for chunk in stream.arrived():
                    yield chunk
                if not stream.is_finished:
                    await arrived.wait()

    return _renamed(streaming, method)


async def in_thread(function: Callable[[], R]) -> R:
    """Await the result of `function`, which runs in a daemon thread of its own.

    The function sees the context variables of the awaiting task. If that task is
    cancelled, the function's task groups are cancelled too.
    """
    scope = CancelScope()
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    thread = ScopedThread("selectrie-await", scope, function, lambda: _wake(loop, ended))
    thread.start()
    try:
        await ended.wait()
    except (asyncio.CancelledError, GeneratorExit):
        scope.cancel()
        raise
    return thread.outcome.result()  # raised here, where Python can handle a StopIteration


def _wake(loop: asyncio.AbstractEventLoop, arrived: asyncio.Event) -> None:
    """Set an event of the loop from any thread, unless it is set already.

    The reader looks for new items after it has cleared the event, so it misses none.
    """
    if not arrived.is_set():
        with suppress(RuntimeError):  # the loop was closed, so no task waits
            loop.call_soon_threadsafe(arrived.set)


def _renamed(form: Callable[P, R], method: Callable[P, Any]) -> Callable[P, R]:
    """Name and document the awaitable form, as in `select` -> `aselect`."""
    form.__name__ = "a" + method.__name__
    form.__qualname__ = method.__qualname__[: -len(method.__name__)] + form.__name__
    form.__doc__ = f"`{method.__name__}`, to be awaited. Cancelling it cancels the work."
    return form
