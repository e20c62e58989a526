"""Answers requests for pages: one page, many side by side, or one as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from selectrie.engine.queue_stream import Outlet, QueueStream
from selectrie.engine.rendering.page_writer import Tell
from selectrie.engine.rendering.renderer import PageRequest
from selectrie.engine.scheduler.task_group import CancelScope, ScopedThread
from selectrie.errors import CancelledError, OptionError, of_request
from selectrie.options import RenderParams, named, record
from selectrie.results import Event, Page
from selectrie.template.analysis.template import Template

MAX_THREADS = 64
"""Maximum pages of one request that are rendered at once, one thread each."""

Make = Callable[[PageRequest, Tell | None], Page]
"""Renders one page in the calling thread; its tasks belong to the open scope."""


def request_of(
    template: Template, values: Mapping[str, object], more: Mapping[str, object], rendering: RenderParams
) -> PageRequest:
    """Return the request for a page, checked as far as possible without a model.

    `more` holds further values, which the caller gave as keyword arguments.
    """
    if not isinstance(template, Template):
        raise OptionError("template", template, "a Template: selectrie.Template(text) or Template.from_file(path)")
    record("rendering", rendering, RenderParams)
    all_values: dict[str, object] = dict(named("values", values))
    for name in more:
        if name in all_values:
            raise OptionError(name, more[name], "a value given once: it is among `values` too")
    all_values |= more
    template.check(all_values)
    return PageRequest(template, all_values, rendering)


def requests_of(template: Template, rows: Iterable[Mapping[str, object]], rendering: RenderParams) -> list[PageRequest]:
    """Return a request for each row of values.

    If any row is invalid, its error is raised; the error's `request` is the index of
    the first invalid row.
    """
    several: object = rows
    if not isinstance(several, Iterable) or isinstance(several, str | bytes | bytearray | Mapping):
        raise OptionError("rows", rows, "mappings from names to values, one for each page")
    requests, all_rows = [], list(rows)
    for index, row in enumerate(all_rows):
        with of_request(index if len(all_rows) > 1 else None):
            requests.append(request_of(template, row, {}, rendering))
    return requests


def make_many(make: Make, requests: Sequence[PageRequest]) -> list[Page]:
    """Return the pages of many requests, rendered side by side, in request order.

    The first failure is raised, with its index as `request`, and the other pages are
    cancelled. Ctrl-C cancels them too. No thread is left when this returns. The threads
    are daemons, which those of a `ThreadPoolExecutor` are not: an interpreter that
    exits does not wait for pages.
    """
    scope = CancelScope.nested()
    waiting: SimpleQueue[int] = SimpleQueue()
    for index in range(len(requests)):
        waiting.put(index)
    made: dict[int, Page] = {}
    failed: dict[int, BaseException] = {}

    def work() -> None:
        """Make one page after the other until none is left or one has failed."""
        with suppress(Empty):
            while not failed and not scope.is_cancelled:
                index = waiting.get_nowait()
                try:
                    made[index] = make(requests[index], None)
                except BaseException as error:  # noqa: BLE001 - belongs to the thread that waits for the pages
                    failed[index] = error
                    scope.cancel()

    n_threads = min(MAX_THREADS, len(requests))
    threads = [ScopedThread("selectrie-page", scope, work) for _ in range(n_threads)]
    try:
        for thread in threads:
            thread.start()
        _join(threads)
    except BaseException:
        scope.cancel()
        _join(threads)
        raise
    causes = [index for index, error in failed.items() if not isinstance(error, CancelledError)]
    for index in sorted(causes or failed):
        with of_request(index if len(requests) > 1 else None):
            raise failed[index]
    return [made[index] for index in range(len(requests))]


def _join(threads: Iterable[ScopedThread[None]]) -> None:
    """Wait until every thread that was started has ended.

    For its outcome first: a `Thread.join` that Ctrl-C interrupts takes a thread that
    runs for one that has ended (CPython 3.10 to 3.12, issue 90882).
    """
    for thread in threads:
        if thread.ident is not None:
            thread.outcome.wait()
            thread.join()


class PageStream(QueueStream[Event]):
    """An iterator over the events of a page; made by `Engine.stream_render`.

    There is a `TextEvent` for each text as it is written, and a `SlotEvent` for each
    slot when it is decided. The texts of all events joined are the page's text. The
    page is rendered whether or not the stream is read. `close`, leaving a `with` block,
    an error, and garbage collection of the stream cancel the page. Errors are raised to
    the reader. Only one thread may read at a time.
    """

    def __init__(self, make: Make, request: PageRequest, check_process: Callable[[], None]) -> None:
        """Start to render the page.

        `check_process` raises `ForkedError` in a child process, where no event arrives.
        """
        outlet: Outlet[Event] = Outlet()
        scope = CancelScope.nested()
        super().__init__(outlet, 1, check_process, scope.cancel)
        thread = ScopedThread("selectrie-page", scope, lambda: make(request, outlet.put), lambda: outlet.put(0))
        self._outcome = thread.outcome
        thread.start()

    @property
    def page(self) -> Page:
        """Return the whole page.

        Reads the rest of the stream first. Raises the error that ended the page, and
        `CancelledError` if the stream was closed before its end.
        """
        for _ in self:
            pass
        if self._n_running:
            raise CancelledError
        return self._outcome.result()

    def _ended(self, _number: int) -> None:
        """Raise the error of the page, if any."""
        self._n_running = 0
        self._outcome.result()
