"""A page: a rendered template, with everything that the model decided on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from types import MappingProxyType
from typing import Any, Protocol

from selectrie.core.types import Cost, ModelIdentity
from selectrie.errors import clip
from selectrie.options.checks import copied
from selectrie.results.plain import fields_of, jsonable, listing, plain
from selectrie.results.records import FORMAT_VERSION
from selectrie.version import __version__

_REPR_SLOTS = 12
_CLIP = 60


class Record(Protocol):
    """What a slot's decision tells about itself.

    It is a `Selection`, `JointSelection`, `Generation`, `BeamResult` or `Samples`.
    """

    @property
    def cost(self) -> Cost: ...
    def to_dict(self) -> dict[str, object]: ...


@dataclass(frozen=True, slots=True)
class TextEvent:
    """Text that was added to the page.

    Attributes:
        text: The text.
        slot: Name of the slot that is being generated; None for text of the template.
    """

    text: str
    slot: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with kind "text"."""
        return {"kind": "text", "text": self.text, **({} if self.slot is None else {"slot": self.slot})}


@dataclass(frozen=True, slots=True)
class SlotEvent:
    """A slot that was decided.

    Attributes:
        name: The name in the template.
        kind: "select", "gen", "beam", "joint" (a select of a joint block) or "geneach"
            (whether a loop ends here; the value is true if it does).
        value: The stored value.
        text: What it adds to the page; "" if hidden. In a stream, without what came as
            `TextEvent`s before.
        hidden: Whether its text is left out of the page.
        record: The whole decision; the selects of a joint block share one.
        position: file:line:column of its tag.
        path: Where its value is among the page's: `armor` or, in loops, `food[1]` or
            `items[0].name`.
    """

    name: str
    kind: str
    value: object
    text: str
    hidden: bool
    record: Record = field(repr=False)
    position: str = ""
    path: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON.

        `record` is converted by its own `to_dict`.
        """
        return {
            "kind": self.kind,
            "name": self.name,
            "path": self.path,
            "value": jsonable(self.value),
            "text": self.text,
            "hidden": self.hidden,
            "position": self.position,
            "record": self.record.to_dict(),
        }


Event = TextEvent | SlotEvent


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Page:
    """A rendered template.

    Equality ignores `cost`. The same template, values and seed give the same page.

    Attributes:
        text: The text of the page.
        values: What the template named, by name: for a slot the choice or the generated
            value, for `set` the value, for a named block its text. For a slot in a loop
            it is a list with an entry per iteration, None where it was not decided.
            `page["armor"]` looks here.
        selections: The same for the slots alone, with the full record in place of each
            value.
        pieces: The page from beginning to end, as `events` returns it.
        template: Name of the template.
        seed: Seed of the page.
        identity: The model.
        tolerance: Nats per row; None if not measured.
        cost: What all slots took.
        version: Version of selectrie.
    """

    text: str
    values: Mapping[str, object]
    selections: Mapping[str, Any]
    pieces: tuple[Event, ...]
    template: str
    seed: int
    identity: ModelIdentity
    tolerance: float | None
    cost: Cost = field(compare=False)
    version: str = __version__

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))
        object.__setattr__(self, "selections", MappingProxyType(dict(self.selections)))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return copied(self)

    def __getitem__(self, name: str) -> object:
        """Return the value of a slot, `set` or named block.

        Raises a `KeyError` that lists the existing names.
        """
        try:
            return self.values[name]
        except KeyError:
            raise KeyError(f"the page has no value {name!r}; it has {', '.join(self.values) or 'none'}") from None

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the values."""
        return iter(self.values)

    @property
    def slots(self) -> tuple[SlotEvent, ...]:
        """Return every slot that was decided, in that order, including hidden ones."""
        return tuple(piece for piece in self.pieces if isinstance(piece, SlotEvent))

    def events(self) -> tuple[Event, ...]:
        """Return the page from beginning to end: template text, and slots in place.

        Their joined texts are `text`.
        """
        return self.pieces

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "page".

        It has the text, values, slots (each with its record), seed, model and cost.
        Values that JSON does not know are converted: Enum members to their value, other
        objects to their `repr`.
        """
        return {
            "format": FORMAT_VERSION,
            "kind": "page",
            **fields_of(self, "template", "text"),
            "values": jsonable(self.values),
            "slots": _slots(self.slots),
            "seed": self.seed,
            "model": plain(self.identity),
            **fields_of(self, "tolerance", "version", "cost"),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def __repr__(self) -> str:
        lines = [f"  {slot.path or slot.name} = {_shown(slot)}" for slot in self.slots[:_REPR_SLOTS]]
        head = f"Page({self.template!r}, {len(self.text)} characters, {len(self.slots)} slots, {self.cost.rows} rows)"
        return listing(head, lines, len(self.slots))

    def _repr_html_(self) -> str:
        """Return the page with what was decided marked.

        Tooltips show the names of the slots and how probable each was.
        """
        return f'<div style="white-space:pre-wrap">{"".join(map(_html, self.pieces))}</div>'


def _slots(slots: Sequence[SlotEvent]) -> list[dict[str, object]]:
    """Return each slot as a dictionary.

    Of the selects of one joint block only the first has the record.
    """
    made = []
    for _, group in groupby(slots, key=lambda slot: id(slot.record)):
        first, *others = group
        made += [first.to_dict(), *({**slot.to_dict(), "record": None} for slot in others)]
    return made


def _probability(slot: SlotEvent) -> float | None:
    p = getattr(slot.record, "probability", None)
    return p if isinstance(p, float) else None


def _shown(slot: SlotEvent) -> str:
    p = _probability(slot)
    facts = ("" if p is None else f"  p={p:.4f}") + ("  hidden" if slot.hidden else "")
    return clip(repr(slot.value), _CLIP) + facts


def _html(piece: Event) -> str:
    if isinstance(piece, TextEvent):
        return escape(piece.text)
    if piece.hidden:
        return ""
    p = _probability(piece)
    title = escape(f"{piece.kind} {piece.path or piece.name}" + ("" if p is None else f", p={p:.4f}"), quote=True)
    return f'<span title="{title}" style="background:#4c8bf533;border-radius:2px">{escape(piece.text)}</span>'
