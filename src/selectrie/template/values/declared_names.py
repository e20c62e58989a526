"""Finds the names to which a part of a template gives values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from selectrie.template.syntax.ast import Block, Body, Constant, Document, GenEach, Set, Slot
from selectrie.template.syntax.source_positions import error_at
from selectrie.template.syntax.visitors import walk_through
from selectrie.template.values.scope import Scope
from selectrie.template.values.values import shown


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a part of a template declares.

    Each name occurs once, in page order. Names that begin with `this` belong to a
    loop's items and are not included.

    Attributes:
        slots: Names of slots and of `geneach` lists.
        texts: Names of blocks and of `logprobs=`.
        sets: Names of `set` tags.
    """

    slots: tuple[str, ...]
    texts: tuple[str, ...]
    sets: tuple[str, ...]

    @property
    def decided(self) -> tuple[str, ...]:
        """Return the names whose values a loop collects into lists."""
        return tuple(dict.fromkeys((*self.slots, *self.texts)))


def names_in(body: Body, documents: Mapping[str, Document]) -> Names:
    """Return the names that a body declares, including blocks and included files.

    `documents` maps paths to the included files.
    """
    slots: dict[str, None] = {}
    texts: dict[str, None] = {}
    sets: dict[str, None] = {}
    for segment in walk_through(body, documents):
        if isinstance(segment, Slot | GenEach):
            slots[segment.name] = None
        if isinstance(segment, Slot):
            texts.update(dict.fromkeys(logprobs_names(segment)))
        elif isinstance(segment, Block) and segment.name is not None:
            texts[segment.name] = None
        elif isinstance(segment, Set):
            sets[segment.name] = None
    return Names(_of_page(slots), _of_page(texts), tuple(sets))


def logprobs_names(slot: Slot) -> tuple[str, ...]:
    """Return the name that a slot declares by `logprobs=`, if any."""
    argument = dict(slot.arguments).get("logprobs")
    return (argument.value,) if isinstance(argument, Constant) and isinstance(argument.value, str) else ()


def refuse_input_name(segment: Slot | Block | GenEach, scope: Scope, document: Document) -> None:
    """Raise `TemplateError` if a segment declares the name of a given value.

    In the handlebars dialect this is allowed.
    """
    if document.dialect == "handlebars":
        return
    for name in _own_names(segment):
        if scope.is_input(name):
            reason = (
                f"{shown(name)} is decided here, but a value of that name was passed too; "
                "leave it out, or rename the slot"
            )
            raise error_at(document, segment.span, reason)


def _own_names(segment: Slot | Block | GenEach) -> tuple[str, ...]:
    """Return the names that a segment itself declares, without those in its body."""
    if isinstance(segment, Slot):
        return (*_of_page({segment.name: None}), *logprobs_names(segment))
    return () if segment.name is None else (segment.name,)


def _of_page(names: dict[str, None]) -> tuple[str, ...]:
    return tuple(name for name in names if name.partition(".")[0] != "this")
