"""Requests for pages: one, many side by side, one as it comes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from types import TracebackType

from selectrie.engine.rendering.page_writer import Tell
from selectrie.engine.rendering.renderer import PageRequest
from selectrie.engine.scheduler.task_group import Scope
from selectrie.errors import CancelledError, OptionError, of_request
from selectrie.options import Rendering, named, record
from selectrie.results import Event, Page
from selectrie.template.analysis.template import Template

MOST_AT_ONCE = 64
"""Pages of one request that are under way at the same time, a thread each."""

_LOOK_S = 0.05
"""Seconds between two looks at threads of which nothing is heard."""

Make = Callable[[PageRequest, Tell | None], Page]
"""Renders one page in the calling thread; its errand belongs to the scope that is open there."""


def request_of(
    template: Template, values: Mapping[str, object], more: Mapping[str, object], rendering: Rendering
) -> PageRequest:
    """The request for a page, checked as far as that goes without a model. more: values given by name."""
    if not isinstance(template, Template):
        raise OptionError("template", template, "a Template: selectrie.Template(text) or Template.from_file(path)")
    record("rendering", rendering, Rendering)
    given: dict[str, object] = dict(named("values", values))
    for name, value in more.items():
        if name in given:
            raise OptionError(name, value, "a value given once: it is among `values` too")
        given[name] = value
    template.check(given)
    return PageRequest(template, given, rendering)


def requests_of(template: Template, rows: Iterable[Mapping[str, object]], rendering: Rendering) -> list[PageRequest]:
    """A request for each row of values. One that is refused refuses all; the error's `request` is its index."""
    several: object = rows
    if not isinstance(several, Iterable) or isinstance(several, str | bytes | bytearray | Mapping):
        raise OptionError("rows", rows, "mappings from names to values, one for each page")
    made, given = [], list(rows)
    for at, row in enumerate(given):
        with of_request(at if len(given) > 1 else None):
            made.append(request_of(template, row, {}, rendering))
    return made


def make_many(make: Make, requests: Sequence[PageRequest]) -> list[Page]:
    """The pages of many requests, side by side, in their order.

    The first that fails is raised, with its index as `request`, and the others are taken back; so they are by Ctrl-C.
    """
    crew = _Crew(make, requests)
    try:
        crew.work()
    except BaseException:
        crew.cancel()
        crew.wait()
        raise
    return crew.pages()


class _Crew:
    """The threads that make the pages of one request."""

    def __init__(self, make: Make, requests: Sequence[PageRequest]) -> None:
        self._make, self._requests = make, requests
        self._scope = Scope.nested()
        self._waiting: SimpleQueue[int] = SimpleQueue()
        for at in range(len(requests)):
            self._waiting.put(at)
        self._made: dict[int, Page] = {}
        self._failed: dict[int, BaseException] = {}
        self._left: SimpleQueue[threading.Thread] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def work(self) -> None:
        """Begin, and wait for all."""
        for _ in range(min(MOST_AT_ONCE, len(self._requests))):
            thread = threading.Thread(target=copy_context().run, args=(self._run,), name="selectrie-page", daemon=True)
            self._threads.append(thread)
            thread.start()
        self.wait()

    def wait(self) -> None:
        """Wait until every thread has ended. Ctrl-C may come at any point, and may keep one from being heard of."""
        while any(thread.is_alive() for thread in self._threads):
            with suppress(Empty):
                self._left.get(timeout=_LOOK_S).join()

    def cancel(self) -> None:
        """Take everything back; from any thread."""
        self._scope.cancel()

    def pages(self) -> list[Page]:
        """The pages, or what kept one from being made."""
        told = {at: error for at, error in self._failed.items() if not isinstance(error, CancelledError)}
        for at in sorted(told or self._failed):
            with of_request(at if len(self._requests) > 1 else None):
                raise self._failed[at]
        return [self._made[at] for at in range(len(self._requests))]

    def _run(self) -> None:
        """One thread: page after page, until there is none left or one has failed."""
        try:
            with self._scope.open():
                while not self._failed and not self._scope.is_cancelled:
                    self._one(self._waiting.get_nowait())
        except Empty:
            pass
        finally:
            self._left.put(threading.current_thread())

    def _one(self, at: int) -> None:
        try:
            self._made[at] = self._make(self._requests[at], None)
        except BaseException as error:  # noqa: BLE001 - belongs to the thread that waits for the pages
            self._failed[at] = error
            self.cancel()


class _Outlet:
    """Where the thread of a page puts what there is to read; None at its end. It holds nothing of the stream."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Event | None] = SimpleQueue()
        self.listener: Callable[[], None] = _nobody
        self.page: Page | None = None
        self.error: BaseException | None = None

    def put(self, item: Event | None) -> None:
        """Let it be read."""
        self.queue.put(item)
        self.listener()

    def work(self, make: Make, request: PageRequest, scope: Scope) -> None:
        """Make the page, in a thread of its own."""
        try:
            with scope.open():
                self.page = make(request, self.put)
        except BaseException as error:  # noqa: BLE001 - belongs to who reads
            self.error = error
        self.put(None)


def _nobody() -> None:
    pass


class PageStream(Iterator[Event]):
    """The events of a page as they come; made by `Engine.stream`.

    `TextEvent`s as text comes, `SlotEvent`s when a slot is decided; the texts of all events joined are the page's text. The page
    grows whether or not somebody reads. `close`, leaving a `with` block, an error, and forgetting the stream take back what
    has not ended. What fails is raised to the reader. One thread at a time reads.
    """

    def __init__(self, make: Make, request: PageRequest, check_process: Callable[[], None]) -> None:
        """Begins at once. check_process: raises in a forked child, where nothing will come."""
        self._check_process = check_process
        self._outlet = outlet = _Outlet()
        self._scope = scope = Scope.nested()
        self._is_finished = self._is_closed = False
        self._finalizer = weakref.finalize(self, scope.cancel)
        context = copy_context()
        threading.Thread(
            target=context.run, args=(outlet.work, make, request, scope), name="selectrie-page", daemon=True
        ).start()

    def __iter__(self) -> PageStream:
        return self

    def __enter__(self) -> PageStream:  # noqa: PYI034 - Self is not in typing before Python 3.11, and the class is final
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> Event:
        """Wait for the next event. Ctrl-C takes the page back and is raised again. `ForkedError` in a child process."""
        if self.is_finished:
            raise StopIteration
        try:
            self._check_process()
            event = self._read(self._outlet.queue.get())
        except BaseException:
            self.close()
            raise
        if event is None:
            raise StopIteration
        return event

    @property
    def is_finished(self) -> bool:
        """No event will come any more."""
        return self._is_closed or self._is_finished

    @property
    def page(self) -> Page:
        """The whole page. Reads the rest of the stream first; raises what it ended in, `CancelledError` where it was closed before its end."""
        for _ in self:
            pass
        if self._is_finished and self._outlet.error is not None:
            raise self._outlet.error
        if self._outlet.page is None or not self._is_finished:
            raise CancelledError
        return self._outlet.page

    def close(self) -> None:
        """Take back what has not ended. Closing twice is fine."""
        self._is_closed = True
        self._outlet.listener = _nobody
        self._finalizer()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called, in a thread of the stream's, whenever something may be read by `arrived`."""
        self._outlet.listener = listener

    def arrived(self) -> Iterator[Event]:
        """The events that are there, without waiting."""
        while not self.is_finished:
            try:
                event = self._read(self._outlet.queue.get_nowait())
            except Empty:
                return
            if event is not None:
                yield event

    def _read(self, item: Event | None) -> Event | None:
        """What was put in; at the end, what failed is raised."""
        if item is None:
            self._is_finished = True
            if self._outlet.error is not None:
                raise self._outlet.error
        return item
