"""What a template comes to, step by step: the one thing that who renders must know of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from selectrie.template.syntax.ast import Document, GenEach, Joint, Slot
from selectrie.template.syntax.expressions import Span
from selectrie.template.values.scope import Scope


@dataclass(frozen=True, slots=True)
class Write:
    """Text for the page. is_literal: of the template, not of a value. span: of the tag or text that writes it."""

    text: str
    is_literal: bool
    span: Span
    document: Document


@dataclass(frozen=True, slots=True)
class Decide:
    """A slot that the model decides; `Program.name` tells what it got."""

    slot: Slot
    scope: Scope
    document: Document


@dataclass(frozen=True, slots=True)
class Together:
    """Slots that the model decides together; `Program.name` tells what each got."""

    joint: Joint
    scope: Scope
    document: Document


@dataclass(frozen=True, slots=True)
class Continue:
    """Does a loop go on? Its stop text against what would come; `Program.go_on` tells."""

    loop: GenEach
    stop: str
    document: Document


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a chat begins, or ends."""

    role: str
    begins: bool
    span: Span
    document: Document


@dataclass(frozen=True, slots=True)
class Hide:
    """What is written from here on is no part of the page; or again it is."""

    begins: bool


@dataclass(frozen=True, slots=True)
class Naming:
    """What is written between two of these has a name."""

    name: str
    begins: bool


Step: TypeAlias = Write | Decide | Together | Continue | Turn | Hide | Naming
