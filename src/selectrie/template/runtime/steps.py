"""The steps into which an interpreter divides a page.

A renderer needs to know nothing else about a template.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from selectrie.template.syntax.ast import Document, GenEach, Joint, Slot, Span
from selectrie.template.values.scope import Scope


@dataclass(frozen=True, slots=True)
class Write:
    """A step: write text to the page.

    Attributes:
        text: The text.
        is_literal: Whether the text is the template's own, rather than a value's.
        span: The span of the tag or text that writes it.
        document: The document of the span.
    """

    text: str
    is_literal: bool
    span: Span
    document: Document


@dataclass(frozen=True, slots=True)
class Decide:
    """A step: let the model decide a slot; its result goes to `Interpreter.name`."""

    slot: Slot
    scope: Scope
    document: Document


@dataclass(frozen=True, slots=True)
class Together:
    """A step: let the model decide slots together; see `Interpreter.name`."""

    joint: Joint
    scope: Scope
    document: Document


@dataclass(frozen=True, slots=True)
class Continue:
    """A step: let the model decide whether a loop has another item.

    It decides between the loop's stop text and the text that would come next. The
    decision is passed to `Interpreter.go_on`.
    """

    loop: GenEach
    stop: str
    document: Document


@dataclass(frozen=True, slots=True)
class Turn:
    """A step: begin or end a turn of a chat."""

    role: str
    begins: bool
    span: Span
    document: Document


@dataclass(frozen=True, slots=True)
class Hide:
    """A step: begin or end hidden text, which is not part of the page."""

    begins: bool


@dataclass(frozen=True, slots=True)
class Naming:
    """A step that begins or ends the text of a named block."""

    name: str
    begins: bool


Step: TypeAlias = Write | Decide | Together | Continue | Turn | Hide | Naming
