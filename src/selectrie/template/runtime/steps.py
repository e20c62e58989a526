"""Define the steps into which a program divides a page.

They are all that a renderer must know about a program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from selectrie.template.syntax.ast import Document, GenEach, Joint, Slot, Span
from selectrie.template.values.scope import Scope


@dataclass(frozen=True, slots=True)
class Write:
    """Text for the page.

    Attributes:
        text: The text.
        is_literal: Whether it belongs to the template, not to a value.
        span: The span of the tag or text that writes it.
        document: The document of the span.
    """

    text: str
    is_literal: bool
    span: Span
    document: Document


@dataclass(frozen=True, slots=True)
class Decide:
    """A slot that the model decides; the result is passed to `Interpreter.name`."""

    slot: Slot
    scope: Scope
    document: Document


@dataclass(frozen=True, slots=True)
class Together:
    """Slots that the model decides together; results go to `Interpreter.name`."""

    joint: Joint
    scope: Scope
    document: Document


@dataclass(frozen=True, slots=True)
class Continue:
    """A loop asks whether it goes on.

    The model decides between its stop text and what would come next; the decision is
    passed to `Interpreter.go_on`.
    """

    loop: GenEach
    stop: str
    document: Document


@dataclass(frozen=True, slots=True)
class Turn:
    """The beginning or the end of a turn of a chat."""

    role: str
    begins: bool
    span: Span
    document: Document


@dataclass(frozen=True, slots=True)
class Hide:
    """The beginning or the end of hidden text, which is not part of the page."""

    begins: bool


@dataclass(frozen=True, slots=True)
class Naming:
    """The beginning or the end of text that has a name."""

    name: str
    begins: bool


Step: TypeAlias = Write | Decide | Together | Continue | Turn | Hide | Naming
