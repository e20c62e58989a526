"""A page: a template rendered, with everything that the model decided on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from types import MappingProxyType
from typing import Any, Protocol

from selectrie.core.types import Cost, ModelIdentity
from selectrie.results.plain import jsonable, plain
from selectrie.results.records import FORMAT_VERSION
from selectrie.version import __version__

_REPR_SLOTS = 12
_CLIP = 60


class Record(Protocol):
    """What a slot's decision says of itself: a `Selection`, `JointSelection`, `Generation`, `BeamResult` or `Draws`."""

    @property
    def cost(self) -> Cost: ...
    def to_dict(self) -> dict[str, object]: ...


@dataclass(frozen=True, slots=True)
class TextEvent:
    """Text that now stands on the page. slot: name of the slot that is being generated, None for text of the template."""

    text: str
    slot: str | None = None

    def to_dict(self) -> dict[str, object]:
        """JSON-ready, with kind "text"."""
        return {"kind": "text", "text": self.text, **({} if self.slot is None else {"slot": self.slot})}


@dataclass(frozen=True, slots=True)
class SlotEvent:
    """A slot that was decided.

    name: as the template calls it. path: where its value is among the page's: `armor`, in loops `food[1]`, `items[0].name`. kind: "select", "gen", "beam", "joint" (a select of a joint block) or "geneach" (whether a
    loop ends here: the value is true where it does). value: what was stored. text: what it adds to the page, "" where hidden; in a
    stream without what came as `TextEvent`s before. record: the whole decision; the selects of a joint block share one.
    place: file:line:column of its tag.
    """

    name: str
    kind: str
    value: object
    text: str
    hidden: bool
    record: Record = field(repr=False)
    place: str = ""
    path: str = ""

    def to_dict(self) -> dict[str, object]:
        """JSON-ready; `record` as its own `to_dict` has it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "path": self.path,
            "value": jsonable(self.value),
            "text": self.text,
            "hidden": self.hidden,
            "place": self.place,
            "record": self.record.to_dict(),
        }


Event = TextEvent | SlotEvent


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Page:
    """A rendered template. Equality leaves out `cost`.

    text: the page. values: what the template named, by name: of a slot what was chosen or generated, of `set` the value, of a
    named block its text; of a slot in a loop a list, an entry an iteration, None where it was not decided in one. `page["armor"]` looks here.
    selections: the same of the slots alone, with the full record in place of each value. pieces: the page from its beginning to its end, as
    `events` gives it. seed: of the page; the same template, values and seed give the same page. template: its name. cost: of all slots.
    identity, tolerance: of the model; nats a row, None where not measured.
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by its fields, since a `MappingProxyType` cannot be."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return _restored, ({**fields, "values": dict(self.values), "selections": dict(self.selections)},)

    def __getitem__(self, name: str) -> object:
        """Value of a slot, `set` or named block; `KeyError` that lists the names there are."""
        try:
            return self.values[name]
        except KeyError:
            raise KeyError(f"the page names no value {name!r}, but {', '.join(self.values) or 'none'}") from None

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        """The names of the values."""
        return iter(self.values)

    @property
    def slots(self) -> tuple[SlotEvent, ...]:
        """Every slot that was decided, in that order, hidden ones too."""
        return tuple(piece for piece in self.pieces if isinstance(piece, SlotEvent))

    def events(self) -> tuple[Event, ...]:
        """The page from its beginning to its end: text of the template, and slots where they stand. Their texts joined are
        `text`."""
        return self.pieces

    def to_dict(self) -> dict[str, object]:
        """JSON-ready: `format`, kind "page", text, values, slots (each with its record), seed, model, cost.

        Values that JSON does not know: Enum members become their value, other objects their `repr`.
        """
        return {
            "format": FORMAT_VERSION,
            "kind": "page",
            "template": self.template,
            "text": self.text,
            "values": jsonable(self.values),
            "slots": _slots(self.slots),
            "seed": self.seed,
            "model": plain(self.identity),
            "tolerance": self.tolerance,
            "version": self.version,
            "cost": plain(self.cost),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def __repr__(self) -> str:
        lines = [f"  {slot.path or slot.name} = {_clip(slot.value)}{_tail(slot)}" for slot in self.slots[:_REPR_SLOTS]]
        rest = len(self.slots) - len(lines)
        head = f"Page({self.template!r}, {len(self.text)} characters, {len(self.slots)} slots, {self.cost.rows} rows)"
        return "\n".join([head, *lines, *([f"  … {rest} more"] if rest > 0 else [])])

    def _repr_html_(self) -> str:
        """The page, what was decided marked; the names of the slots, and how probable each was, where the mouse points."""
        return f'<div style="white-space:pre-wrap">{"".join(map(_html, self.pieces))}</div>'


def _slots(slots: Sequence[SlotEvent]) -> list[dict[str, object]]:
    """Each slot; the selects of one joint block name its record once, with the first of them."""
    made = []
    for _, group in groupby(slots, key=lambda slot: id(slot.record)):
        first, *others = group
        made += [first.to_dict(), *({**slot.to_dict(), "record": None} for slot in others)]
    return made


def _restored(fields: dict[str, Any]) -> Page:
    return Page(**fields)


def _probability(slot: SlotEvent) -> float | None:
    found = getattr(slot.record, "probability", None)
    return found if isinstance(found, float) else None


def _tail(slot: SlotEvent) -> str:
    p = _probability(slot)
    return ("" if p is None else f"  p={p:.4f}") + ("  hidden" if slot.hidden else "")


def _html(piece: Event) -> str:
    if isinstance(piece, TextEvent):
        return escape(piece.text)
    if piece.hidden:
        return ""
    p = _probability(piece)
    title = escape(f"{piece.kind} {piece.path or piece.name}" + ("" if p is None else f", p={p:.4f}"), quote=True)
    return f'<span title="{title}" style="background:#4c8bf533;border-radius:2px">{escape(piece.text)}</span>'


def _clip(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _CLIP else text[: _CLIP - 1] + "…"
