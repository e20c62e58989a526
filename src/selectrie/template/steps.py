"""What a template comes to, step by step, and the records of one that is under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from selectrie.template.expressions import Span
from selectrie.template.naming import Names
from selectrie.template.scope import Scope
from selectrie.template.segments import Body, Document, Each, GenEach, Joint, Slot


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
Values: TypeAlias = "dict[str, object]"


@dataclass(slots=True)
class Level:
    """One turn of a loop, or the page itself: what is named in it.

    records: beside each value of a slot, what its decision says of itself. assumed: what a look ahead takes for granted.
    """

    scope: Scope
    values: Values = field(default_factory=dict)
    records: Values = field(default_factory=dict)
    assumed: Values = field(default_factory=dict)

    def set(self, name: str, value: object, record: object) -> None:
        """Name a slot's value; `this.field` is a field of what `this` is."""
        self.scope.set(name, value)
        self._put(self.values, name, value)
        if record is not None:
            self._put(self.records, name, record)

    def _put(self, held: Values, name: str, value: object) -> None:
        base, _, inner = name.partition(".")
        held[base] = {**fields_of(held.get(base)), inner: value} if inner else value


def fields_of(held: object) -> dict[str, object]:
    """What `this` has so far, where it is put together from fields."""
    return held if isinstance(held, dict) else {}


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop under way. n_done: turns that began. items: of an `each`; None of a `geneach`. names: that it gives values to.
    bounds: least and most turns of a `geneach`, and what ends it between the two. values, records: of each name, an entry a turn that
    ended; they are shared by what looks ahead, which adds nothing."""

    segment: Each | GenEach
    names: Names
    join: str
    items: Sequence[tuple[object, object]] | None = None
    bounds: tuple[int, int, str | None] = (0, 0, None)
    n_done: int = 0
    values: dict[str, list[object]] = field(default_factory=dict)
    records: dict[str, list[object]] = field(default_factory=dict)


@dataclass(slots=True)
class Frame:
    """A body under way: the next segment, the loop it is a turn of, the steps that follow its end."""

    body: Body
    document: Document
    at: int = 0
    loop: Loop | None = None
    closing: tuple[Step, ...] = ()
