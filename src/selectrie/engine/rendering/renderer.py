"""Renders one page.

The steps of a template are executed in order. Its slots are decided on the page so far,
which grows in one context.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import log
from typing import Any

from selectrie.core.types import Cost
from selectrie.engine.rendering.decide_slot import Record, decide_slot
from selectrie.engine.rendering.joint_block import JointRequest, JointSlot, decide_jointly
from selectrie.engine.rendering.page_writer import PageWriter, Tell
from selectrie.engine.rendering.slots import AnySlot, GenSlot, SelectSlot, SlotArguments, SlotContext, slot_of
from selectrie.engine.rendering.terminators import default_stops
from selectrie.engine.requests import select
from selectrie.engine.requests.selection import SelectRequest
from selectrie.engine.requests.session import Session
from selectrie.errors import DeadlineError, PromptTooLongError, of_slot, ways
from selectrie.options import RenderParams
from selectrie.results import BeamResult, Generation, Page, SlotEvent
from selectrie.template.analysis.template import Template
from selectrie.template.runtime.interpreter import Interpreter
from selectrie.template.runtime.lookahead import Following, what_comes, what_follows
from selectrie.template.runtime.steps import Continue, Decide, Hide, Step, Together, Turn, Write
from selectrie.template.syntax import ast
from selectrie.template.syntax.ast import Document, Span
from selectrie.template.syntax.source_positions import error_at, where
from selectrie.template.syntax.tags import TAGS
from selectrie.template.values.scope import text_at
from selectrie.template.values.tag_values import values_at
from selectrie.template.values.values import plain

_SHORTEN_PAGE = ways("shorten the page before the slot", "lower its `max_tokens`")
MAX_SLOTS = 10_000
"""Maximum number of slots that one page decides."""


@dataclass(frozen=True, slots=True, eq=False)
class PageRequest:
    """The template, values and options of a page."""

    template: Template
    values: Mapping[str, object]
    rendering: RenderParams


def render_page(session: Session, request: PageRequest, tell: Tell | None = None) -> Page:
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
    """Renders one page."""

    def __init__(self, session: Session, request: PageRequest, tell: Tell | None) -> None:
        self._session, self._request = session, request
        rendering = request.rendering
        self._seed = int.from_bytes(os.urandom(4), "little") if rendering.seed is None else rendering.seed
        self._interpreter = Interpreter(request.template, request.values)
        self._writer = PageWriter(session.model.vocabulary, request.template, rendering, tell)
        self._is_streamed = tell is not None
        self._n_slots, self._cost = 0, Cost()

    def page(self) -> Page:
        """Execute every step and return the page."""
        while (step := self._interpreter.step()) is not None:
            self._do(step)
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

    def _do(self, step: Step) -> None:
        if isinstance(step, Write):
            self._writer.write(step)
        elif isinstance(step, Decide):
            self._decide(step)
        elif isinstance(step, Together):
            self._decide_together(step)
        elif isinstance(step, Continue):
            self._interpreter.go_on(more=self._goes_on(step))
        elif isinstance(step, Turn):
            self._writer.turn(step)
        elif isinstance(step, Hide):
            self._writer.hide(step)
        elif step.begins:
            self._writer.begin_name()
        else:
            self._interpreter.name(step.name, self._writer.end_name())

    def _following(self, *names: str) -> Following:
        """Return the text that follows the slots of these names on the page."""
        return what_follows(self._interpreter, *names, cut=self._writer.page.before_control)

    def _context(self, following: Following, document: Document, span: Span) -> SlotContext:
        """Return the `SlotContext` of the next slot.

        Its seed is made from the page's seed and the number of slots before it.
        """
        self._n_slots += 1
        if self._n_slots > MAX_SLOTS:
            reason = f"the page has more than {MAX_SLOTS} slots to decide; loop less, or render several pages"
            raise error_at(document, span, reason)
        self._writer.settle()
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
        """Decide a single slot. A hidden slot is decided as if it were shown."""
        tag, position = step.slot, where(step.document, step.slot.span)
        pieces: list[str] = []
        with _in_slot(tag.kind, repr(tag.name), position):
            max_tokens = self._request.rendering.max_tokens
            slot = slot_of(tag, step.scope, self._request.template, step.document, max_tokens=max_tokens)
            logprobs = slot.logprobs if isinstance(slot, SelectSlot) else None
            following = self._following(tag.name, *([] if logprobs is None else [logprobs]))
            context = self._context(following, step.document, tag.span)
            slot = _ended(slot, following, context.before)
            hidden = slot.hidden or self._writer.is_hidden
            on_text = self._listener(tag.name, pieces) if self._is_streamed and not hidden else None
            result = decide_slot(self._session, slot, context, on_text)
            self._check_in_time(result.record)
            if not slot.hidden:
                self._writer.grow(result, step)
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
        self._writer.decided(event, n_reported=sum(map(len, pieces)))

    def _listener(self, name: str, pieces: list[str]) -> Callable[[str], None]:
        """Return a callback that receives the text of the `gen` slot `name` in pieces.

        Each piece is appended to `pieces` and reported as an event.
        """

        def listen(text: str) -> None:
            pieces.append(text)
            self._writer.coming(text, name)

        return listen

    def _check_in_time(self, record: Record) -> None:
        """Raise `DeadlineError` if the deadline ended a text before it was complete."""
        is_late = isinstance(record, BeamResult) and record.stopped == "deadline"
        if is_late or (isinstance(record, Generation) and any(one.finish == "deadline" for one in record)):
            raise DeadlineError(self._session.group.late_s)

    def _decide_together(self, step: Together) -> None:
        """Decide the slots of a joint block together."""
        joint, document = step.joint, step.document
        positions = {part.name: where(document, part.span) for part in joint.body if isinstance(part, ast.Slot)}
        with _in_slot("joint", ", ".join(map(repr, positions)), where(document, joint.span)):
            self._check_plain(joint, document)
            request = _joint_request(step, self._request.template)
            context = self._context(self._following(*positions), document, joint.span)
            record = decide_jointly(self._session, request, context)
        self._cost += record.cost
        hidden = self._writer.is_hidden
        for part in request.parts:
            if isinstance(part, str):
                self._writer.part(part, step, None)
                continue
            name, text, value = part.name, record.option(part.name), record.value(part.name)
            self._interpreter.name(name, value, record)
            path = self._interpreter.path_of(name)
            shown = "" if hidden else text
            self._writer.part(text, step, SlotEvent(name, "joint", value, shown, hidden, record, positions[name], path))

    def _check_plain(self, joint: ast.Joint, document: Document) -> None:
        """Raise `TemplateError` if a text of the block holds a control token."""
        for part in joint.body:
            if isinstance(part, ast.Literal) and self._writer.page.before_control(part.text) is not None:
                reason = (
                    "this text holds a control token, and a joint compares texts; write it before or after the block"
                )
                raise error_at(document, part.span, reason)

    def _goes_on(self, step: Continue) -> bool:
        """Return whether a loop has another iteration.

        It has one if the text that would come next is more probable than the loop's
        stop text. If that text is not known, the stop text must have at most
        probability 1/2.
        """
        loop, document = step.loop, step.document
        position = where(document, loop.span)
        coming = what_comes(self._interpreter, more=True, cut=self._writer.page.before_control).text
        if coming == step.stop:
            raise error_at(document, loop.span, f"an item begins with the stop text itself: {step.stop!r}")
        with _in_slot("geneach", repr(loop.name), position):
            context = self._context(Following(), document, loop.span)
            texts = [step.stop, coming] if coming else [step.stop]
            prepared = select.prepare_selections(self._session.model, [(context.prompt, texts)], SelectRequest())
            [record] = prepared.run(self._session)
        self._cost += record.cost
        ends = record.index == 0 if coming else record.logp > log(0.5)
        path = self._interpreter.path_of_loop()
        self._writer.decided(SlotEvent(loop.name, "geneach", ends, "", True, record, position, path))  # noqa: FBT003
        return not ends


@contextmanager
def _in_slot(kind: str, name: str, position: str) -> Iterator[None]:
    """Name a slot in errors raised in the block, and the arguments of its tag.

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


def _ended(slot: AnySlot, following: Following, before: str) -> AnySlot:
    """Return the slot, with stop texts if it is a `gen` in a loop that may go on.

    A `gen` that names no stop text ends before either of the texts that may follow it:
    the beginning of the loop's next item, or the text after the loop.
    """
    if not isinstance(slot, GenSlot) or slot.stop is not None or not following.either:
        return slot
    stops = dict.fromkeys(stop for text in following.either for stop in default_stops(text, before))
    return replace(slot, stop=tuple(stops))


def _joint_request(step: Together, template: Template) -> JointRequest:
    """Return the request for a joint block, with its texts, slots and arguments."""
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
    arguments: dict[str, Any] = {name: plain(value) for name, value in values.items()}
    return JointRequest(tuple(parts), k=arguments.get("k", 1), budget=arguments.get("budget"))
