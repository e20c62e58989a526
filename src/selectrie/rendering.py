"""One page: the steps of a template done one after the other, its slots decided on a page that grows in one context."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from math import log
from typing import Any

from selectrie import answering, selecting
from selectrie.errand import Errand
from selectrie.errors import DeadlineError, of_slot
from selectrie.filling import Filled, Place, fill
from selectrie.jointly import JointRequest, JointSlot, decide_jointly
from selectrie.model import Model
from selectrie.options import Rendering
from selectrie.pages import GrowingPage, Mark
from selectrie.results import BeamResult, Event, Generation, Page, SlotEvent, TextEvent
from selectrie.selecting import Asked
from selectrie.slots import SelectSlot, slot_of
from selectrie.template import segments
from selectrie.template.expressions import Span
from selectrie.template.following import Following, what_comes, what_follows
from selectrie.template.naming import has_roles
from selectrie.template.places import error_at, line_and_column
from selectrie.template.program import Program
from selectrie.template.scope import evaluate, text_at
from selectrie.template.segments import Document
from selectrie.template.steps import Continue, Decide, Hide, Naming, Step, Together, Turn, Write
from selectrie.template.template import Template
from selectrie.template.values import plain
from selectrie.types import Cost
from selectrie.vocabulary import to_bytes

MOST_SLOTS = 10_000
"""Slots that one page decides."""
MOST_PAGE_BYTES = 16 << 20
"""Of the text of one page, hidden text included."""
_BEFORE = 64
"""Characters before a slot that say how its text may end."""

Tell = Callable[[Event], None]
"""What is called with each event of a page, in the thread that renders it."""


@dataclass(frozen=True, slots=True, eq=False)
class PageRequest:
    """What a page is made of."""

    template: Template
    values: Mapping[str, object]
    rendering: Rendering


def render_page(begun: Errand, model: Model, tau: float | None, request: PageRequest, tell: Tell | None = None) -> Page:
    """Render one page. tau: nats a row that layout may move, None = not measured.

    Raises `TemplateError` for what the template and its values cannot be rendered to, and what its slots raise; that names the
    slot (`SelectrieError.slot`).
    """
    return _Run(begun, model, tau, request, tell).page()


@dataclass(frozen=True, slots=True, eq=False)
class _Hidden:
    """The page where a hidden stretch of it began."""

    mark: Mark
    n_written: int
    early: list[Write] | None
    is_chat: bool


class _Run:
    """One page under way.

    written: its texts, hidden ones included while they count. unwritten: what the growing page has not got yet. early: white
    space that may turn out to stand before the first role, where it is no part of the page; None once that is settled.
    is_chat: a role was opened. named: where each named block that is open began among the texts.
    """

    def __init__(self, begun: Errand, model: Model, tau: float | None, request: PageRequest, tell: Tell | None) -> None:
        self._begun, self._model, self._tau, self._request, self._tell = begun, model, tau, request, tell
        rendering = request.rendering
        self._seed = int.from_bytes(os.urandom(4), "little") if rendering.seed is None else rendering.seed
        self._program = Program(request.template, request.values)
        self._page = GrowingPage(
            model.vocabulary, template_args=rendering.template_args, parse_special=rendering.parse_special
        )
        self._is_chat, self._n_open = False, 0
        self._early: list[Write] | None = [] if has_roles(request.template) else None
        self._unwritten: list[Write] = []
        self._written: list[str] = []
        self._n_bytes = self._n_slots = 0
        self._hidden: list[_Hidden] = []
        self._named: list[int] = []
        self._pieces: list[Event] = []
        self._cost = Cost()

    def page(self) -> Page:
        """Do every step, and say what came of them."""
        while (step := self._program.step()) is not None:
            self._do(step)
        self._show_early()
        named = self._program.page
        return Page(
            text="".join(self._written),
            values=named.values,
            selections=named.records,
            pieces=_joined(self._pieces),
            template=self._request.template.name,
            seed=self._seed,
            identity=self._model.identity,
            tolerance=self._tau,
            cost=self._cost,
        )

    def _do(self, step: Step) -> None:
        if isinstance(step, Write):
            self._write(step)
            return
        if isinstance(step, Decide | Together | Continue):
            self._show_early()
        if isinstance(step, Turn):
            self._turn(step)
        elif isinstance(step, Decide):
            self._decide(step)
        elif isinstance(step, Together):
            self._decide_together(step)
        elif isinstance(step, Continue):
            self._program.go_on(more=self._goes_on(step))
        elif isinstance(step, Hide):
            self._hide(step)
        else:
            self._name(step)

    def _write(self, step: Write) -> None:
        """Text for the page. It becomes tokens where a slot needs them. White space around turns is no part of the page."""
        if self._is_chat and not self._n_open:
            if step.text.strip():
                reason = "this stands outside of every role; on a page with roles only white space can"
                raise error_at(step.document, _first_word(step), reason)
            return
        if self._early is not None:
            self._early.append(step)
            if step.text.strip():
                self._show_early()
            return
        self._put(step.text, step)
        self._unwritten.append(step)
        self._show(TextEvent(step.text))

    def _show_early(self) -> None:
        """What a page with roles in its template begins with is told when it is no white space before the first of them."""
        early, self._early = self._early or (), None
        for step in early:
            self._write(step)

    def _put(self, text: str, step: Write | Decide | Together | Turn) -> None:
        """Text on the page, whoever writes it there."""
        self._n_bytes += len(to_bytes(text, "text of the page"))
        if self._n_bytes > MOST_PAGE_BYTES:
            reason = f"the page grows beyond {MOST_PAGE_BYTES >> 20} MiB here; render several pages"
            raise error_at(step.document, _span(step), reason)
        self._written.append(text)

    def _show(self, event: Event, n_told: int = 0) -> None:
        """An event for the reader: hidden text is none. n_told: characters of its text that were told as they came."""
        if isinstance(event, TextEvent) and (self._hidden or not event.text):
            return
        if self._tell is not None:
            self._tell(replace(event, text=event.text[n_told:]) if n_told else event)
        self._pieces.append(event)

    def _flush(self) -> None:
        """Let the page have what was written since."""
        runs = groupby(self._unwritten, key=lambda write: write.is_literal and self._request.rendering.parse_special)
        for is_literal, run in runs:
            self._page.add("".join(write.text for write in run), literal=is_literal)
        self._unwritten.clear()

    def _place(self, following: Following, document: Document, span: Span) -> Place:
        """Where a slot stands, and the seed of what is drawn there: made of the page's and of how many came before."""
        self._n_slots += 1
        if self._n_slots > MOST_SLOTS:
            reason = f"the page has more than {MOST_SLOTS} slots to decide; loop less, or render several pages"
            raise error_at(document, span, reason)
        self._flush()
        digest = blake2b(f"{self._seed}/{self._n_slots}".encode(), digest_size=4).digest()
        before = ""
        for text in reversed(self._written):
            before = text + before
            if len(before) >= _BEFORE:
                break
        return Place(
            prompt=self._page.prompt,
            following=following.text,
            ends_turn=not following.text and following.ends_role == "assistant" and self._page.ends_turn,
            before=before[-_BEFORE:],
            seed=int.from_bytes(digest, "little"),
        )

    def _decide(self, step: Decide) -> None:
        """A slot of its own. A hidden one is decided as if it were to stand there."""
        slot, document = step.slot, step.document
        where = _where(document, slot.span)
        with of_slot(f"{slot.kind} {slot.name!r} at {where}"):
            asked = slot_of(
                slot,
                step.scope,
                self._request.template,
                document,
                max_tokens=self._request.rendering.max_tokens,
            )
            logprobs = asked.logprobs if isinstance(asked, SelectSlot) else None
            following = what_follows(self._program, slot.name, *([] if logprobs is None else [logprobs]))
            place = self._place(following, document, slot.span)
            told: list[str] = []
            listen = None if self._tell is None or asked.hidden else self._listener(slot.name, told)
            filled = fill(self._begun, self._model, self._tau, asked, place, listen)
            self._check_in_time(filled)
            if not asked.hidden:
                self._grow(filled, step)
        self._cost += filled.record.cost
        self._program.name(slot.name, filled.value, filled.record)
        if logprobs is not None:
            self._program.name(logprobs, filled.logprobs)
        hidden = asked.hidden or bool(self._hidden)
        text = "" if hidden else filled.text
        path = self._program.path_of(slot.name)
        event = SlotEvent(slot.name, slot.kind, filled.value, text, hidden, filled.record, where, path)
        self._show(event, n_told=sum(map(len, told)))

    def _check_in_time(self, filled: Filled) -> None:
        """A text that the deadline broke off is none that the page goes on with."""
        record = filled.record
        is_late = isinstance(record, BeamResult) and record.stopped == "deadline"
        if is_late or (isinstance(record, Generation) and any(one.finish == "deadline" for one in record)):
            raise DeadlineError(self._begun.late_s)

    def _listener(self, name: str, told: list[str]) -> Callable[[str], None]:
        """What takes the text of a gen as it comes."""

        def listen(text: str) -> None:
            if self._tell is not None and not self._hidden:
                told.append(text)
                self._tell(TextEvent(text, name))

        return listen

    def _grow(self, filled: Filled, step: Decide) -> None:
        """What was decided, on the page: of a gen the tokens that were drawn are kept."""
        self._put(filled.text, step)
        if filled.drawn is None:
            self._page.add(filled.text)
        else:
            self._page.add_drawn(*filled.drawn, filled.text.encode())

    def _decide_together(self, step: Together) -> None:
        """The slots of a joint block, at one go."""
        joint, document = step.joint, step.document
        tags = [part for part in joint.body if isinstance(part, segments.Slot)]
        names = [tag.name for tag in tags]
        with of_slot(f"joint {', '.join(map(repr, names))} at {_where(document, joint.span)}"):
            request = _joint_request(step, self._request.template)
            place = self._place(what_follows(self._program, *names), document, joint.span)
            record = decide_jointly(self._begun, self._model, self._tau, request, place)
            self._page.add(record.text)
        self._cost += record.cost
        places = {tag.name: _where(document, tag.span) for tag in tags}
        for part in request.parts:
            if isinstance(part, str):
                self._put(part, step)
                self._show(TextEvent(part))
                continue
            name, text, value = part.name, record.option(part.name), record.value(part.name)
            self._put(text, step)
            self._program.name(name, value, record)
            shown = "" if self._hidden else text
            path = self._program.path_of(name)
            self._show(SlotEvent(name, "joint", value, shown, bool(self._hidden), record, places[name], path))

    def _goes_on(self, step: Continue) -> bool:
        """Whether a loop has another turn: its stop text against what would come, by their joint log-probabilities."""
        loop, document = step.loop, step.document
        where = _where(document, loop.span)
        coming = what_comes(self._program, more=True).text
        if coming == step.stop:
            raise error_at(document, loop.span, f"what an item begins with is the stop text itself: {step.stop!r}")
        with of_slot(f"geneach {loop.name!r} at {where}"):
            place = self._place(Following(), document, loop.span)
            texts = [step.stop, coming] if coming else [step.stop]
            question = selecting.prepare(self._model.vocabulary, self._model.limits, place.prompt, texts, Asked())
            record = answering.answer(self._begun, [question], self._tau)[0]
        self._cost += record.cost
        ends = record.index == 0 if coming else record.logp > log(0.5)
        path = self._program.path_of_loop()
        self._show(SlotEvent(loop.name, "geneach", ends, "", hidden=True, record=record, place=where, path=path))
        return not ends

    def _turn(self, step: Turn) -> None:
        """What the model's chat template writes around a turn."""
        if not self._is_chat:
            self._named = [min(at, len(self._written)) for at in self._named]
        self._early, self._is_chat = None, True
        self._flush()
        with of_slot(f"role {step.role!r} at {_where(step.document, step.span)}"):
            text = self._page.open_role(step.role) if step.begins else self._page.close_role()
        self._n_open += 1 if step.begins else -1
        self._put(text, step)
        self._show(TextEvent(text))

    def _hide(self, step: Hide) -> None:
        """From here on nothing is part of the page; or the page goes back to where that began."""
        self._flush()
        if step.begins:
            early = None if self._early is None else list(self._early)
            self._hidden.append(_Hidden(self._page.mark(), len(self._written), early, self._is_chat))
            return
        before = self._hidden.pop()
        self._page.back_to(before.mark)
        del self._written[before.n_written :]
        self._early, self._is_chat = before.early, before.is_chat

    def _name(self, step: Naming) -> None:
        """The text of a named block is a value."""
        if step.begins:
            self._named.append(len(self._written) + len(self._early or ()))
            return
        written = [*self._written, *(write.text for write in self._early or ())]
        self._program.name(step.name, "".join(written[self._named.pop() :]))


def _joint_request(step: Together, template: Template) -> JointRequest:
    """The literals and slots of a joint block, with its arguments."""
    scope, document = step.scope, step.document
    parts: list[str | JointSlot] = []
    for part in step.joint.body:
        if isinstance(part, segments.Slot):
            asked = slot_of(part, scope, template, document)
            if not isinstance(asked, SelectSlot) or asked.options is None:
                reason = "a joint block decides among options: give options=, or list choices"
                raise error_at(document, part.span, reason)
            parts.append(JointSlot(part.name, asked.options))
        elif isinstance(part, segments.Literal):
            parts.append(part.text)
        elif isinstance(part, segments.Output):
            parts.append(text_at(part.value, scope, document))
    given: dict[str, Any] = {name: plain(evaluate(one, scope, document)) for name, one in step.joint.arguments}
    return JointRequest(tuple(parts), k=given.get("k", 1), budget=given.get("budget"))


def _first_word(step: Write) -> Span:
    """Where the text of a literal begins that is no white space."""
    source = step.document.source[step.span.start : step.span.stop]
    return Span(step.span.stop - len(source.lstrip()), step.span.stop) if step.is_literal else step.span


def _span(step: Write | Decide | Together | Turn) -> Span:
    if isinstance(step, Decide):
        return step.slot.span
    return step.joint.span if isinstance(step, Together) else step.span


def _where(document: Document, span: Span) -> str:
    line, column = line_and_column(document.source, span.start)
    return f"{document.name}:{line}:{column}"


def _joined(pieces: list[Event]) -> tuple[Event, ...]:
    """Events with neighbouring texts as one."""
    made: list[Event] = []
    for is_text, run in groupby(pieces, key=lambda piece: isinstance(piece, TextEvent)):
        if not is_text:
            made += run
        elif text := "".join(piece.text for piece in run):
            made.append(TextEvent(text))
    return tuple(made)
