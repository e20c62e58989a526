"""Renders pages: one, many side by side, or one as a stream.

The steps of a template are executed in order. Each slot is decided after the page so
far, which grows in one context of the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from math import log
from queue import Empty, SimpleQueue
from typing import Any

from selectrie.core.types import Cost
from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.engine.aio import Outlet, QueueStream
from selectrie.engine.rendering.joint_block import JointRequest, JointSlot, decide_jointly
from selectrie.engine.rendering.slot_ends import default_stops
from selectrie.engine.rendering.slots import (
    AnySlot,
    GenSlot,
    Record,
    SelectSlot,
    SlotArguments,
    SlotContext,
    SlotResult,
    decide_slot,
    slot_of,
)
from selectrie.engine.requests import select
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.requests.session import Session, time_args
from selectrie.engine.scheduler.task_group import CancelScope, ScopedThread, check_cancelled
from selectrie.errors import (
    CancelledError,
    DeadlineError,
    OptionError,
    PromptTooLongError,
    of_request,
    of_slot,
    remedies,
)
from selectrie.options import RenderParams, named, record
from selectrie.results import BeamResult, Event, Generation, Page, SlotEvent, TextEvent
from selectrie.template.analysis.static_checks import outside_error
from selectrie.template.analysis.template import Template
from selectrie.template.interpreter import (
    Continue,
    Decide,
    Following,
    Hide,
    Interpreter,
    Step,
    Together,
    TurnStep,
    Write,
    find_branch,
    find_following,
)
from selectrie.template.syntax import ast
from selectrie.template.syntax.ast import Role, Span, error_at, walk_through, where
from selectrie.template.syntax.tags import TAGS
from selectrie.template.values.arguments import values_at
from selectrie.template.values.scope import text_at
from selectrie.template.values.values import to_plain
from selectrie.tokenization.growing_prompt import GrowingPrompt, Snapshot

MAX_PAGE_BYTES = 16 << 20
"""Maximum size of the text of one page in bytes, hidden text included."""
_BEFORE = 64
"""Number of characters before a slot that `SlotContext.before` has."""

OnEvent = Callable[[Event], None]
"""Called with each event of a page, in the thread that renders it."""


@dataclass(frozen=True, slots=True, eq=False)
class _SavedPage:
    """The state of the page at the start of a `hide` block, restored at its end."""

    mark: Snapshot
    n_written: int
    early: list[Write] | None
    is_chat: bool


class PageWriter:
    """The text of a page that is being rendered.

    Text is turned into tokens (`page`, a `GrowingPrompt`) only when a slot needs them.

    Attributes:
        page: The tokens of the page.
        _written: The texts of the page. Text of a `hide` block is included until the
            block ends.
        _unwritten: Texts that `page` has not received yet.
        _early: White space that may turn out to come before the first role, where it is
            not part of the page; None once that is decided.
        _is_chat: Whether a role was opened.
        _named: For each named block that is open, the index of its first text.
    """

    def __init__(
        self, vocabulary: Vocabulary, template: Template, rendering: RenderParams, tell: OnEvent | None
    ) -> None:
        """Start an empty page; `tell` is called with each event, None reports none."""
        self._tell, self._reads_special = tell, rendering.parse_special
        args = {**time_args(vocabulary), **rendering.template_args}
        self.page = GrowingPrompt(vocabulary, template_args=args, parse_special=rendering.parse_special)
        self._written: list[str] = []
        self._unwritten: list[Write] = []
        segments = walk_through(template.document.body, template.documents)
        self._early: list[Write] | None = [] if any(isinstance(one, Role) for one in segments) else None
        self._is_chat, self._n_open, self._n_bytes = False, 0, 0
        self._hidden: list[_SavedPage] = []
        self._named: list[int] = []
        self._pieces: list[Event] = []

    @property
    def text(self) -> str:
        """Return the text of the page so far."""
        return "".join(self._written)

    @property
    def is_hidden(self) -> bool:
        """Return whether a `hide` block is open."""
        return bool(self._hidden)

    @property
    def end(self) -> str:
        """Return the last `_BEFORE` characters of the page."""
        end = ""
        for text in reversed(self._written):
            end = text + end
            if len(end) >= _BEFORE:
                break
        return end[-_BEFORE:]

    def events(self) -> tuple[Event, ...]:
        """Return all reported events so far, with adjacent text events joined."""
        parts: list[Event] = []
        for is_text, run in groupby(self._pieces, key=lambda piece: isinstance(piece, TextEvent)):
            if is_text:
                parts.append(TextEvent("".join(piece.text for piece in run)))
            else:
                parts += run
        return tuple(parts)

    def write(self, step: Write) -> None:
        """Append text of the template.

        Between and before turns of a chat, white space is dropped and other text is an
        error.
        """
        if self._is_chat and not self._n_open:
            if step.text.strip():
                raise outside_error(step.document, step.span, is_literal=step.is_literal)
            return
        if self._early is not None:
            self._early.append(step)
            if step.text.strip():
                self.finish()
            return
        self._append(step.text, step)
        self._unwritten.append(step)
        self._report(TextEvent(step.text))

    def prepare_slot(self) -> None:
        """Pass all text so far to `page`, because a slot is decided next."""
        self.finish()
        self._flush()

    def finish(self) -> None:
        """Append the white space held back at the beginning of the page.

        It is part of the page now that no role can come first: a slot comes, or the
        page ends.
        """
        early, self._early = self._early or (), None
        for step in early:
            self.write(step)

    def append_slot(self, result: SlotResult, step: Decide) -> None:
        """Append a slot's text; for a gen, `page` keeps the tokens that were drawn."""
        self._append(result.text, step)
        if result.drawn is None:
            self.page.add(result.text)
        else:
            self.page.add_drawn(*result.drawn, result.text.encode())

    def append_part(self, text: str, step: Together, event: SlotEvent | None) -> None:
        """Append a part of a joint block: a slot if `event` is given, else text."""
        self._append(text, step)
        self.page.add(text)
        self._report(TextEvent(text) if event is None else event)

    def report_decided(self, event: SlotEvent, n_reported: int = 0) -> None:
        """Report a decided slot.

        The first `n_reported` characters of its text were reported before.
        """
        self._report(event, n_reported)

    def report_piece(self, text: str, slot: str) -> None:
        """Report a piece of text of a slot that is still being drawn."""
        if self._tell is not None:
            self._tell(TextEvent(text, slot))

    def append_turn(self, step: TurnStep) -> None:
        """Append the text with which the chat template begins or ends a turn."""
        if not self._is_chat:
            self._named = [min(at, len(self._written)) for at in self._named]
        self._early, self._is_chat = None, True
        self._flush()
        with of_slot(f"role {step.role!r} at {where(step.document, step.span)}"):
            text = self.page.open_role(step.role) if step.begins else self.page.close_role()
        self._n_open += 1 if step.begins else -1
        self._append(text, step)
        self._report(TextEvent(text))

    def begin_or_end_hide(self, step: Hide) -> None:
        """Begin a `hide` block, or end it and restore the page before it."""
        if step.begins:
            self._flush()
            early = None if self._early is None else list(self._early)
            self._hidden.append(_SavedPage(self.page.mark(), len(self._written), early, self._is_chat))
            return
        before = self._hidden.pop()
        self._unwritten.clear()
        self.page.back_to(before.mark)
        del self._written[before.n_written :]
        self._early, self._is_chat = before.early, before.is_chat

    def begin_name(self) -> None:
        """Note that a named block begins here."""
        self._named.append(len(self._written) + len(self._early or ()))

    def end_name(self) -> str:
        """End a named block and return its text."""
        written = [*self._written, *(write.text for write in self._early or ())]
        return "".join(written[self._named.pop() :])

    def _append(self, text: str, step: Write | Decide | Together | TurnStep) -> None:
        """Append text to the page; raise `TemplateError` if the page is too large."""
        self._n_bytes += len(to_bytes(text, "text of the page"))
        if self._n_bytes > MAX_PAGE_BYTES:
            reason = f"the page grows beyond {MAX_PAGE_BYTES >> 20} MiB here; render several pages"
            raise error_at(step.document, _span(step), reason)
        self._written.append(text)

    def _report(self, event: Event, n_reported: int = 0) -> None:
        """Add an event and report it, unless it is empty or hidden text."""
        if isinstance(event, TextEvent) and (self._hidden or not event.text):
            return
        if self._tell is not None:
            self._tell(replace(event, text=event.text[n_reported:]) if n_reported else event)
        self._pieces.append(event)

    def _flush(self) -> None:
        """Pass the texts that `page` has not received yet."""
        runs = groupby(self._unwritten, key=lambda write: write.is_literal and self._reads_special)
        for is_literal, run in runs:
            self.page.add("".join(write.text for write in run), literal=is_literal)
        self._unwritten.clear()


def _span(step: Write | Decide | Together | TurnStep) -> Span:
    """Return the position of a step's tag in the template."""
    if isinstance(step, Decide):
        return step.slot.span
    return step.joint.span if isinstance(step, Together) else step.span


_SHORTEN_PAGE = remedies("shorten the page before the slot", "lower its `max_tokens`")
MAX_SLOTS = 10_000
"""Maximum number of slots that one page decides."""
MAX_THREADS = 64
"""Maximum number of pages that a request renders at once, one thread each."""
_READ_ALL_SCORES = ("temperature", "logprobs")
"""Arguments of a select for which exact scores are read, not only their order."""


@dataclass(frozen=True, slots=True, eq=False)
class PageRequest:
    """The template, values and options of a page."""

    template: Template
    values: Mapping[str, object]
    rendering: RenderParams


def render_page(session: Session, request: PageRequest, tell: OnEvent | None = None) -> Page:
    """Render one page.

    Args:
        session: The model and the task group of the request.
        request: The request for the page.
        tell: Called with each event, in this thread.

    Raises:
        TemplateError: If the template cannot be rendered with its values.
        SelectrieError: If a slot fails; `SelectrieError.slot` names it.
    """
    return _PageRenderer(session, request, tell).page()


class _PageRenderer:
    """Renders one page by executing the steps of its template."""

    def __init__(self, session: Session, request: PageRequest, tell: OnEvent | None) -> None:
        self._session, self._request = session, request
        rendering = request.rendering
        self._seed = int.from_bytes(os.urandom(4), "little") if rendering.seed is None else rendering.seed
        self._interpreter = Interpreter(request.template, request.values, rendering.max_segments)
        self._writer = PageWriter(session.model.vocabulary, request.template, rendering, tell)
        self._is_streamed = tell is not None
        self._n_slots, self._cost = 0, Cost()

    def page(self) -> Page:
        """Execute every step and return the page."""
        while (step := self._interpreter.step()) is not None:
            check_cancelled()  # a page without slots has no task that could be cancelled
            self._execute(step)
        self._writer.finish()
        named = self._interpreter.page
        return Page(
            text=self._writer.text,
            values=named.values,
            selections=named.records,
            pieces=self._writer.events(),
            template=self._request.template.name,
            seed=self._seed,
            identity=self._session.model.identity,
            tolerance=self._session.tolerance,
            cost=self._cost,
            notes=self._request.template.notes,
        )

    def _execute(self, step: Step) -> None:
        """Execute one step of the template."""
        if isinstance(step, Write):
            self._writer.write(step)
        elif isinstance(step, Decide):
            self._decide(step)
        elif isinstance(step, Together):
            self._decide_together(step)
        elif isinstance(step, Continue):
            self._interpreter.go_on(more=self._decide_continuation(step))
        elif isinstance(step, TurnStep):
            self._writer.append_turn(step)
        elif isinstance(step, Hide):
            self._writer.begin_or_end_hide(step)
        elif step.begins:
            self._writer.begin_name()
        else:
            self._interpreter.name(step.name, self._writer.end_name())

    def _text_after(self, *names: str) -> Following:
        """Return the text known to follow the slots with these names on the page."""
        return find_following(self._interpreter, *names, cut=self._writer.page.before_control)

    def _slot_context(self, following: Following, document: ast.Document, span: ast.Span) -> SlotContext:
        """Prepare the page for the next slot and return the slot's context.

        Its seed is derived from the page's seed and the number of slots before it.
        """
        self._n_slots += 1
        if self._n_slots > MAX_SLOTS:
            reason = f"the page has more than {MAX_SLOTS} slots to decide; loop less, or render several pages"
            raise error_at(document, span, reason)
        self._writer.prepare_slot()
        page = self._writer.page
        ends = following.ends or (following.ends_role == "assistant" and page.ends_turn)
        digest = blake2b(f"{self._seed}/{self._n_slots}".encode(), digest_size=4).digest()
        return SlotContext(
            prompt=page.prompt,
            following=following.text,
            ends_turn=not following.text and bool(ends),
            before=self._writer.end,
            seed=int.from_bytes(digest, "little"),
        )

    def _decide(self, step: Decide) -> None:
        """Decide a single slot and append its text, unless it is hidden."""
        tag, position = step.slot, where(step.document, step.slot.span)
        pieces: list[str] = []
        with _errors_name_slot(tag.kind, repr(tag.name), position):
            max_tokens = self._request.rendering.max_tokens
            slot = slot_of(tag, step.scope, self._request.template, step.document, max_tokens=max_tokens)
            logprobs = slot.logprobs if isinstance(slot, SelectSlot) else None
            following = self._text_after(tag.name, *([] if logprobs is None else [logprobs]))
            context = self._slot_context(following, step.document, tag.span)
            slot = _with_loop_stops(slot, following, context.before)
            hidden = slot.hidden or self._writer.is_hidden
            on_text = self._make_listener(tag.name, pieces) if self._is_streamed and not hidden else None
            result = decide_slot(self._session, slot, context, on_text)
            self._check_in_time(result.record)
            if not slot.hidden:
                self._writer.append_slot(result, step)
        self._cost += result.record.cost
        self._interpreter.name(tag.name, result.value, result.record)
        if logprobs is not None:
            self._interpreter.name(logprobs, result.logprobs)
        event = SlotEvent(
            name=tag.name,
            kind=tag.kind,
            value=result.value,
            text="" if hidden else result.text,
            hidden=hidden,
            record=result.record,
            position=position,
            path=self._interpreter.path_of(tag.name),
        )
        self._writer.report_decided(event, n_reported=sum(map(len, pieces)))

    def _make_listener(self, name: str, pieces: list[str]) -> Callable[[str], None]:
        """Return a callback for the pieces of text of the `gen` slot `name`.

        Each piece is appended to `pieces` and reported as an event.
        """

        def listen(text: str) -> None:
            pieces.append(text)
            self._writer.report_piece(text, name)

        return listen

    def _check_in_time(self, record: Record) -> None:
        """Raise `DeadlineError` if the deadline ended a text before it was complete."""
        is_late = isinstance(record, BeamResult) and record.stopped == "deadline"
        if is_late or (isinstance(record, Generation) and any(one.finish == "deadline" for one in record)):
            raise DeadlineError(self._session.group.late_s)

    def _decide_together(self, step: Together) -> None:
        """Decide the slots of a joint block together and append their texts."""
        joint, document = step.joint, step.document
        positions = {part.name: where(document, part.span) for part in joint.body if isinstance(part, ast.Slot)}
        with _errors_name_slot("joint", ", ".join(map(repr, positions)), where(document, joint.span)):
            self._check_plain(joint, document)
            request = _joint_request(step, self._request.template)
            context = self._slot_context(self._text_after(*positions), document, joint.span)
            record = decide_jointly(self._session, request, context)
        self._cost += record.cost
        hidden = self._writer.is_hidden
        for part in request.parts:
            if isinstance(part, str):
                self._writer.append_part(part, step, None)
                continue
            name, text, value = part.name, record.option(part.name), record.value(part.name)
            self._interpreter.name(name, value, record)
            path = self._interpreter.path_of(name)
            shown = "" if hidden else text
            self._writer.append_part(
                text, step, SlotEvent(name, "joint", value, shown, hidden, record, positions[name], path)
            )

    def _check_plain(self, joint: ast.Joint, document: ast.Document) -> None:
        """Raise `TemplateError` if a text of the block holds a control token."""
        for part in joint.body:
            if isinstance(part, ast.Literal) and self._writer.page.before_control(part.text) is not None:
                reason = (
                    "this text holds a control token, and a joint compares texts; write it before or after the block"
                )
                raise error_at(document, part.span, reason)

    def _decide_continuation(self, step: Continue) -> bool:
        """Decide whether a `geneach` loop has another iteration.

        It has one if the next item's text is more probable than the loop's stop text.
        If the next text is not known, the stop text must have at most probability 1/2.
        """
        loop, document = step.loop, step.document
        position = where(document, loop.span)
        coming = find_branch(self._interpreter, more=True, cut=self._writer.page.before_control).text
        if coming == step.stop:
            raise error_at(document, loop.span, f"an item begins with the stop text itself: {step.stop!r}")
        with _errors_name_slot("geneach", repr(loop.name), position):
            context = self._slot_context(Following(), document, loop.span)
            texts = [step.stop, coming] if coming else [step.stop]
            prepared = select.prepare_selections(self._session.model, [(context.prompt, texts)], SelectRequest())
            [record] = prepared.run(self._session)
        self._cost += record.cost
        ends = record.index == 0 if coming else record.logp > log(0.5)
        path = self._interpreter.path_of_loop()
        self._writer.report_decided(SlotEvent(loop.name, "geneach", ends, "", True, record, position, path))  # noqa: FBT003
        return not ends


@contextmanager
def _errors_name_slot(kind: str, name: str, position: str) -> Iterator[None]:
    """Name the slot and its tag's arguments in errors raised in the `with` block.

    A `PromptTooLongError` gets a remedy for pages.
    """
    arguments = {argument: argument for argument in TAGS[kind].arguments}
    if "budget" in arguments:
        arguments["budget_nodes"] = "budget"
    with of_slot(f"{kind} {name} at {position}", arguments):
        try:
            yield
        except PromptTooLongError as error:
            raise error.with_remedy(_SHORTEN_PAGE) from error


def _with_loop_stops(slot: AnySlot, following: Following, before: str) -> AnySlot:
    """Return the slot, with stop texts if it is a `gen` at the end of a loop's body.

    A `gen` that sets no stop text then ends before either of two texts: the beginning
    of the loop's next item, and the text after the loop.
    """
    if not isinstance(slot, GenSlot) or slot.stop is not None or not following.either:
        return slot
    stops = dict.fromkeys(stop for text in following.either for stop in default_stops(text, before))
    return replace(slot, stop=tuple(stops))


def _joint_request(step: Together, template: Template) -> JointRequest:
    """Return the request to decide a joint block."""
    scope, document = step.scope, step.document
    parts: list[str | JointSlot] = []
    for part in step.joint.body:
        if isinstance(part, ast.Slot):
            parts.append(JointSlot(part.name, SlotArguments(part, scope, template, document).options or ()))
        elif isinstance(part, ast.Literal):
            parts.append(part.text)
        elif isinstance(part, ast.Output):
            parts.append(text_at(part.value, scope, document))
    values = values_at(step.joint, scope, document, template)
    arguments: dict[str, Any] = {name: to_plain(value) for name, value in values.items()}
    return JointRequest(tuple(parts), k=arguments.get("k", 1), budget=arguments.get("budget"))


RenderPage = Callable[[PageRequest, OnEvent | None], Page]
"""Renders a page in the calling thread; its tasks belong to the current scope."""


def request_of(
    template: Template | str, values: Mapping[str, object], more: Mapping[str, object], rendering: RenderParams
) -> PageRequest:
    """Check a page's template and values, as far as possible without a model.

    Raises `OptionError` or `TemplateError` for invalid ones.

    Args:
        values: Values by name.
        more: Further values, which the caller gave as keyword arguments.
        rendering: Options.
    """
    template = _read_template(template)
    record("rendering", rendering, RenderParams)
    all_values: dict[str, object] = dict(named("values", values))
    for name in more:
        if name in all_values:
            raise OptionError(name, more[name], "a value given once: it is among `values` too")
    all_values |= more
    template.check(all_values)
    return PageRequest(template, all_values, rendering)


def _read_template(template: Template | str) -> Template:
    """Return a template; a text is read as one."""
    if isinstance(template, str):
        return Template(template)
    if not isinstance(template, Template):
        raise OptionError("template", template, "a Template, such as Template.from_file(path), or its text")
    return template


def requests_of(
    template: Template | str, rows: Iterable[Mapping[str, object]], rendering: RenderParams
) -> list[PageRequest]:
    """Return a request for each row of values.

    If any row is invalid, its error is raised; the error's `request` is the index of
    the first invalid row.
    """
    template = _read_template(template)
    requests, all_rows = [], list(iterate_rows(rows))
    for index, row in enumerate(all_rows):
        with of_request(index if len(all_rows) > 1 else None):
            requests.append(request_of(template, row, {}, rendering))
    return requests


def iterate_rows(rows: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """Iterate over the values of pages; raise `OptionError` for another object."""
    several: object = rows
    if not isinstance(several, Iterable) or isinstance(several, str | bytes | bytearray | Mapping):
        raise OptionError("rows", rows, "mappings from names to values, one for each page")
    return iter(rows)


def make_many(make: RenderPage, requests: Sequence[PageRequest]) -> list[Page]:
    """Render pages side by side and return them in request order.

    The first failure is raised, with its index as `request`, and the other pages are
    cancelled. Ctrl-C cancels them too. No thread is left when this returns. The threads
    are daemons, unlike those of a `ThreadPoolExecutor`: an interpreter that exits does
    not wait for pages.

    Args:
        make: Renders one page.
        requests: The requests for the pages.
    """
    scope = CancelScope.nested()
    waiting: SimpleQueue[int] = SimpleQueue()
    for index in range(len(requests)):
        waiting.put(index)
    pages: dict[int, Page] = {}
    failed: dict[int, BaseException] = {}

    def work() -> None:
        """Make one page after the other until none is left or one has failed."""
        with suppress(Empty):
            while not failed and not scope.is_cancelled:
                index = waiting.get_nowait()
                try:
                    pages[index] = make(requests[index], None)
                except BaseException as error:  # noqa: BLE001 - belongs to the thread that waits for the pages
                    failed[index] = error
                    scope.cancel()

    n_threads = min(MAX_THREADS, len(requests))
    threads = [ScopedThread("selectrie-page", scope, work) for _ in range(n_threads)]
    try:
        for thread in threads:
            thread.start()
        _wait_for_threads(threads)
    except BaseException:
        scope.cancel()
        _wait_for_threads(threads)
        raise
    causes = [index for index, error in failed.items() if not isinstance(error, CancelledError)]
    for index in sorted(causes or failed):
        with of_request(index if len(requests) > 1 else None):
            raise failed[index]
    return [pages[index] for index in range(len(requests))]


def _wait_for_threads(threads: Iterable[ScopedThread[None]]) -> None:
    """Wait until every thread that was started has ended.

    It waits for the outcome first: after Ctrl-C interrupts `Thread.join`, a running
    thread counts as ended (CPython 3.10 to 3.12, issue 90882).
    """
    for thread in threads:
        if thread.ident is not None:
            thread.outcome.wait()
            thread.join()


class PageStream(QueueStream[Event]):
    """An iterator over the events of a page, returned by `Engine.stream_render`.

    There is a `TextEvent` for each text as it is written, and a `SlotEvent` for each
    slot when it is decided. The texts of all events joined are the page's text. The
    page is rendered whether or not the stream is read. `close`, leaving a `with` block,
    an error, and garbage collection of the stream cancel the page. Errors are raised to
    the reader. Only one thread may read at a time.
    """

    def __init__(self, make: RenderPage, request: PageRequest, check_process: Callable[[], None]) -> None:
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

    def _end_producer(self, _number: int) -> None:
        """Note that the page has ended; raise its error, if any."""
        self._n_running = 0
        self._outcome.result()


def refuse_whole_rows(template: Template, refuse: Callable[[str], None]) -> None:
    """Call `refuse` with the first tag that may read whole rows or exact scores.

    The tags are `gen`, which draws and heals the end of the page, `joint`, a `geneach`
    with `stop`, which compares a probability with 1/2, and a select with `temperature`
    or `logprobs`. Without these, a select compares its texts, and a beam searches them,
    as `Engine.select` and `Engine.beam_search` do.

    Args:
        refuse: Raises an error about the tag that it is called with.
    """
    for segment in walk_through(template.document.body, template.documents):
        if isinstance(segment, ast.Joint):
            refuse("a `joint` block")
        elif isinstance(segment, ast.GenEach) and "stop" in dict(segment.arguments):
            refuse(f"`geneach {segment.name!r}` with `stop`")
        elif isinstance(segment, ast.Slot) and segment.kind == "gen":
            refuse(f"`gen {segment.name!r}`")
        elif isinstance(segment, ast.Slot) and segment.kind == "select":
            for name, _ in segment.arguments:
                if name in _READ_ALL_SCORES:
                    refuse(f"`{name}` of `select {segment.name!r}`")
