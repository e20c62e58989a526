"""Collects the text of a page, its tokens and its events, without the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby

from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.engine.rendering.slots import SlotResult
from selectrie.engine.requests.session import time_args
from selectrie.errors import of_slot
from selectrie.options import RenderParams
from selectrie.results import Event, SlotEvent, TextEvent
from selectrie.template.analysis.static_checks import outside_error
from selectrie.template.analysis.template import Template
from selectrie.template.interpreter import Decide, Hide, Together, TurnStep, Write
from selectrie.template.syntax.ast import Role, Span, error_at, walk_through, where
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
