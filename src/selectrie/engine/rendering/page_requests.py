"""Requests for pages: one, many side by side, or one as it comes."""

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
from selectrie.engine.scheduler.task_group import CancelScope
from selectrie.errors import CancelledError, OptionError, of_request
from selectrie.options import RenderParams, named, record
from selectrie.results import Event, Page
from selectrie.template.analysis.template import Template

MOST_AT_ONCE = 64
"""Maximum pages of one request that are rendered at once, one thread each."""

_LOOK_S = 0.05
"""Seconds between two checks of threads that have not reported their end."""

Make = Callable[[PageRequest, Tell | None], Page]
"""Renders one page in the calling thread; its tasks belong to the open scope."""


def request_of(
    template: Template, values: Mapping[str, object], more: Mapping[str, object], rendering: RenderParams
) -> PageRequest:
    """Return the request for a page, checked as far as possible without a model.

    `more` holds values given by name.
    """
    if not isinstance(template, Template):
        raise OptionError("template", template, "a Template: selectrie.Template(text) or Template.from_file(path)")
    record("rendering", rendering, RenderParams)
    given: dict[str, object] = dict(named("values", values))
    for name, value in more.items():
        if name in given:
            raise OptionError(name, value, "a value given once: it is among `values` too")
        given[name] = value
    template.check(given)
    return PageRequest(template, given, rendering)


def requests_of(template: Template, rows: Iterable[Mapping[str, object]], rendering: RenderParams) -> list[PageRequest]:
    """Return a request for each row of values.

    If any row is invalid, none is rendered; the error's `request` is the index of the
    first invalid one.
    """
    several: object = rows
    if not isinstance(several, Iterable) or isinstance(several, str | bytes | bytearray | Mapping):
        raise OptionError("rows", rows, "mappings from names to values, one for each page")
    made, given = [], list(rows)
    for at, row in enumerate(given):
        with of_request(at if len(given) > 1 else None):
            made.append(request_of(template, row, {}, rendering))
    return made


def make_many(make: Make, requests: Sequence[PageRequest]) -> list[Page]:
    """Return the pages of many requests, rendered side by side, in request order.

    The first failure is raised, with its index as `request`, and the other pages are
    cancelled. Ctrl-C cancels them too.
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
        self._scope = CancelScope.nested()
        self._waiting: SimpleQueue[int] = SimpleQueue()
        for at in range(len(requests)):
            self._waiting.put(at)
        self._made: dict[int, Page] = {}
        self._failed: dict[int, BaseException] = {}
        self._left: SimpleQueue[threading.Thread] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def work(self) -> None:
        """Start the threads and wait for all."""
        for _ in range(min(MOST_AT_ONCE, len(self._requests))):
            thread = threading.Thread(target=copy_context().run, args=(self._run,), name="selectrie-page", daemon=True)
            self._threads.append(thread)
            thread.start()
        self.wait()

    def wait(self) -> None:
        """Wait until every thread has ended.

        Ctrl-C may come at any point, and may keep a thread from reporting its end.
        """
        while any(thread.is_alive() for thread in self._threads):
            with suppress(Empty):
                self._left.get(timeout=_LOOK_S).join()

    def cancel(self) -> None:
        """Cancel all pages. May be called from any thread."""
        self._scope.cancel()

    def pages(self) -> list[Page]:
        """Return the pages in request order, or raise the first failure."""
        told = {at: error for at, error in self._failed.items() if not isinstance(error, CancelledError)}
        for at in sorted(told or self._failed):
            with of_request(at if len(self._requests) > 1 else None):
                raise self._failed[at]
        return [self._made[at] for at in range(len(self._requests))]

    def _run(self) -> None:
        """Make page after page in one thread, until none is left or one has failed."""
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
    """Receives the events of a page from its thread; None at its end.

    It holds no reference to the stream.
    """

    def __init__(self) -> None:
        self.queue: SimpleQueue[Event | None] = SimpleQueue()
        self.listener: Callable[[], None] = _nobody
        self.page: Page | None = None
        self.error: BaseException | None = None

    def put(self, item: Event | None) -> None:
        """Queue an item for the reader."""
        self.queue.put(item)
        self.listener()

    def work(self, make: Make, request: PageRequest, scope: CancelScope) -> None:
        """Make the page, in a separate thread."""
        try:
            with scope.open():
                self.page = make(request, self.put)
        except BaseException as error:  # noqa: BLE001 - raised to the reader
            self.error = error
        self.put(None)


def _nobody() -> None:
    pass


class PageStream(Iterator[Event]):
    """The events of a page as they come; made by `Engine.stream_render`.

    There is a `TextEvent` for each text as it comes, and a `SlotEvent` for each slot
    when it is decided; the texts of all events joined are the page's text. The page
    grows whether or not it is read. `close`, leaving a `with` block, an error, and
    garbage collection of the stream cancel what has not ended. Errors are raised to the
    reader. Only one thread may read at a time.
    """

    def __init__(self, make: Make, request: PageRequest, check_process: Callable[[], None]) -> None:
        """Start at once.

        `check_process` raises in a forked child, where no event will come.
        """
        self._check_process = check_process
        self._outlet = outlet = _Outlet()
        self._scope = scope = CancelScope.nested()
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
        """Wait for the next event.

        Ctrl-C cancels the page and is raised again. Raises `ForkedError` in a child
        process.
        """
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
        """Return whether no further event will come."""
        return self._is_closed or self._is_finished

    @property
    def page(self) -> Page:
        """Return the whole page.

        Reads the rest of the stream first. Raises the error that ended the page, and
        `CancelledError` if the stream was closed before its end.
        """
        for _ in self:
            pass
        if self._is_finished and self._outlet.error is not None:
            raise self._outlet.error
        if self._outlet.page is None or not self._is_finished:
            raise CancelledError
        return self._outlet.page

    def close(self) -> None:
        """Cancel what has not ended. May be called twice."""
        self._is_closed = True
        self._outlet.listener = _nobody
        self._finalizer()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function whenever `arrived` may have an event.

        It is called on a thread of the stream.
        """
        self._outlet.listener = listener

    def arrived(self) -> Iterator[Event]:
        """Yield the events that are there, without waiting."""
        while not self.is_finished:
            try:
                event = self._read(self._outlet.queue.get_nowait())
            except Empty:
                return
            if event is not None:
                yield event

    def _read(self, item: Event | None) -> Event | None:
        """Return the item; at the end, raise the error of the page, if any."""
        if item is None:
            self._is_finished = True
            if self._outlet.error is not None:
                raise self._outlet.error
        return item
