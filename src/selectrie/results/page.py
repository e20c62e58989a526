"""The result of rendering a template: a page with all decisions of the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import groupby
from typing import Any, Protocol

from selectrie.core.types import Cost, ModelIdentity
from selectrie.errors import OptionError, clip
from selectrie.options.checks import ReadOnlyDict
from selectrie.results.advice import Advice, notes_advice
from selectrie.results.plain import bar, cell, fields_of, jsonable, label, listing, no_truth, quoted, row, table
from selectrie.results.records import Certificate, Signature, result_fields
from selectrie.results.selection import Selection
from selectrie.version import __version__

_REPR_ROWS = 5
_HTML_ROWS = 20


@dataclass(frozen=True, slots=True)
class Assignment:
    """One option for each slot of a joint block.

    Attributes:
        texts: Texts of the options, in page order.
        values: Values of the options, in page order.
        text: The whole block, literals included.
        logp: Joint log-probability of that text; a lower bound if rows were not read in
            full.
        probability: Probability of that text among the texts of the block, or the
            middle of its bounds if a search left texts open, or if rows were not read
            in full. Assignments that spell the
            same text have the same one.
        logp_upper: Upper bound of logp if it is a lower bound, else None.
    """

    texts: tuple[str, ...]
    values: tuple[object, ...] = field(hash=False)
    text: str
    logp: float
    probability: float
    logp_upper: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON.

        Values that JSON does not know are converted as by `Page.to_dict`.
        """
        values = [jsonable(value) for value in self.values]
        return {"texts": list(self.texts), "values": values, **fields_of(self, "text logp probability logp_upper?")}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JointSelection:
    """The slots of a joint block, decided together by the text of the whole block.

    Equality ignores timing.

    Attributes:
        names: Names of the slots, in page order.
        assignments: The best assignments, best first. Equal log-probabilities are
            ordered by the bytes of the text, then by those of the options' texts. There
            are at least k, and at least two, if that many exist and were found. The
            first k are certain if the certificate says so. After the second one, an
            assignment is listed only if no open one can rank before it.
        n_assignments: Number of assignments of the block.
        margin: Log-probability of the best minus that of the second assignment: 0 if
            both spell one text, inf if there is only one, a lower bound if a search
            left assignments open or rows were not read in full.
        is_tie: Whether the margin is 0, or as in `Selection`.
        coverage: Probability mass of all texts of the block (a lower bound if a search
            left texts open, or rows were not read in full).
        marginals: For each slot, the probability of each option in the given order,
            among the texts of the block. A text that several assignments spell counts
            in equal parts. None if not all texts were scored, or if the probability of
            one is not known.
        terminator: The terminator used, never "auto".
        healed: As in `Selection`.
        log_heal: As in `Selection`.
        heal_gap: As in `Selection`.
        certificate: Whether the first k assignments are proved to be the best.
        cost: The model work that the decision took.
        signature: Model, software and options that the scores depend on.
        notes: As in `Selection`.
        coverage_high: As in `Selection`.
    """

    names: tuple[str, ...]
    assignments: tuple[Assignment, ...]
    n_assignments: int
    margin: float
    is_tie: bool
    coverage: float
    marginals: tuple[tuple[tuple[str, float], ...], ...] | None
    terminator: str
    healed: bytes
    log_heal: float
    heal_gap: float
    certificate: Certificate
    cost: Cost
    signature: Signature
    notes: tuple[str, ...] = ()
    coverage_high: float | None = None

    def __bool__(self) -> bool:
        """Raise `TypeError`: a selection is neither true nor false."""
        raise no_truth(self, "`.value(name)`")

    @property
    def best(self) -> Assignment:
        """Return the assignment that was chosen."""
        return self.assignments[0]

    @property
    def runner_up(self) -> Assignment | None:
        """Return the second best assignment.

        None if there is none, or if a budget ended the search before it was found.
        """
        return self.assignments[1] if len(self.assignments) > 1 else None

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return what to know before relying on it."""
        tie = (Advice("tie", "another assignment is exactly as probable"),) if self.is_tie else ()
        open_ = () if self.certificate.proved else (Advice("not_proved", self.certificate.reason),)
        return *tie, *open_, *notes_advice(self.notes)

    @property
    def text(self) -> str:
        """Return the block's text, literals included."""
        return self.best.text

    @property
    def logp(self) -> float:
        """Return the joint log-probability of the block's text."""
        return self.best.logp

    @property
    def probability(self) -> float:
        """Return the probability of the block's text among all of its texts."""
        return self.best.probability

    def top(self, k: int) -> tuple[Assignment, ...]:
        """Return the first k assignments, or as many as are listed."""
        return self.assignments[: max(k, 0)]

    def value(self, name: str) -> object:
        """Return the value chosen for a slot, of the type in which it was given.

        Raises `OptionError` for an unknown name.
        """
        return self.best.values[self._index(name)]

    def option(self, name: str) -> str:
        """Return the text chosen for a slot.

        Raises `OptionError` for an unknown name.
        """
        return self.best.texts[self._index(name)]

    def marginal(self, name: str) -> dict[str, float]:
        """Return the probability of each option of a slot, summed over the other slots.

        Raises `OptionError` for an unknown name, and if not all assignments were
        scored.
        """
        index = self._index(name)
        if self.marginals is None:
            raise OptionError(
                "name", name, "a slot of a block whose assignments were all scored; a search left some open"
            )
        return dict(self.marginals[index])

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise OptionError("name", name, f"one of {self.names}")
        return self.names.index(name)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "joint".

        -inf, inf and NaN become None.
        """
        names = "terminator healed log_heal heal_gap certificate cost signature n_assignments assignments"
        return {
            **result_fields(self, "joint", "names text logp probability margin is_tie coverage"),
            "rule": "joint",
            **fields_of(self, names),
            "marginals": None if self.marginals is None else {name: self.marginal(name) for name in self.names},
            **fields_of(self, "coverage_high? notes? warnings?"),
        }

    def __repr__(self) -> str:
        tie = " (tie)" if self.is_tie else ""
        decided = ", ".join(f"{name}={quoted(text)}" for name, text in zip(self.names, self.best.texts, strict=True))
        head = f"JointSelection({decided}, p={self.probability:.4g}, margin={self.margin:.4g} nats{tie}, "
        head += f"coverage={self.coverage:.3g}, terminator={self.terminator!r}, proved={self.certificate.proved})"
        shown = self.assignments[:_REPR_ROWS]
        lines = [
            f"  {rank}. {quoted(one.text)}  p={one.probability:.4f}  logp={one.logp:.3f}"
            for rank, one in enumerate(shown, start=1)
        ]
        return listing(head, lines, self.n_assignments)

    def _repr_html_(self) -> str:
        """Return a small table with bars, for notebooks; the best is bold."""
        shown = self.assignments[:_HTML_ROWS]
        rows = []
        for rank, one in enumerate(shown):
            options = (label(repr(text), bold=rank == 0, of=len(self.names)) for text in one.texts)
            numbers = (cell(f"{one.probability:.4f}"), cell(f"{one.logp:.3f}"))
            rows.append(row(*options, bar(one.probability, strong=rank == 0), *numbers))
        proved = "proved" if self.certificate.proved else "not proved"
        caption = f"margin {self.margin:.4g} nats · coverage {self.coverage:.3g} · {self.terminator} · {proved}"
        return table((*self.names, "", "p", "logp"), rows, caption, hidden=self.n_assignments - len(shown))


_REPR_SLOTS = 12
_CLIP = 60


class Record(Protocol):
    """The result of deciding a slot.

    It is a `Selection`, `SampledChoice`, `JointSelection`, `Generation`, `BeamResult`
    or `Samples`.
    """

    @property
    def cost(self) -> Cost: ...
    @property
    def warnings(self) -> tuple[Advice, ...]: ...
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
        return {"kind": "text", **fields_of(self, "text slot?")}


@dataclass(frozen=True, slots=True)
class SlotEvent:
    """A slot that was decided.

    Attributes:
        name: Name of the slot in the template.
        kind: "select", "gen", "beam", "joint" (a select of a joint block) or "geneach"
            (whether a loop ends here; the value is true if it does).
        value: The stored value.
        text: The text that the slot adds to the page; "" if hidden. In a stream,
            without the part that came before in `TextEvent`s.
        hidden: Whether its text is left out of the page.
        record: The result of the decision; the selects of a joint block share one.
        position: Position of the slot's tag, as file:line:column.
        path: Path to the value within `Page.values`: `armor` or, in loops, `food[1]` or
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

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on the record, as that of a slot on a page."""
        record = getattr(self.record, "selection", self.record)
        on_page = record.advice(on_page=True) if isinstance(record, Selection) else record.warnings
        return tuple(replace(one, where=self.path or self.name) for one in on_page)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON.

        `record` is converted by its own `to_dict`.
        """
        head = {**fields_of(self, "kind name path"), "value": jsonable(self.value)}
        return {**head, **fields_of(self, "text hidden position record")}


Event = TextEvent | SlotEvent


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Page:
    """A rendered template.

    Equality ignores `cost`. The same template, values and seed give the same page.

    Attributes:
        text: The text of the page.
        values: The values by name: for a slot the choice or the generated value, for
            `set` the value, for a named block its text. A slot in a loop has a list
            with an entry per iteration, None where it was not decided. `page["armor"]`
            looks here.
        selections: As `values`, for the slots alone, with the result of the decision in
            place of each value.
        pieces: The page from beginning to end, as `events` returns it.
        template: Name of the template.
        seed: Seed of the page.
        identity: The model.
        tolerance: Nats per row by which the layout of calls may change a
            log-probability; None if not measured.
        cost: The model work that all slots took.
        version: Version of selectrie.
        notes: One sentence on each other language whose markup seems to be in the
            template, where it is text.
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
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", ReadOnlyDict(self.values))
        object.__setattr__(self, "selections", ReadOnlyDict(self.selections))

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
        """Return every slot in the order of decision, including hidden ones."""
        return tuple(piece for piece in self.pieces if isinstance(piece, SlotEvent))

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return its notes, and the advice on its slots, which `Advice.where` names."""
        of_slots = (advice for slot in _first_of_blocks(self.slots) for advice in slot.warnings)
        return *notes_advice(self.notes), *of_slots

    def events(self) -> tuple[Event, ...]:
        """Return the page from beginning to end as events: template text and slots.

        The joined texts of the events are `text`.
        """
        return self.pieces

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "page".

        It has the text, values, slots (each with its record), seed, model and cost.
        Values that JSON does not know are converted: Enum members to their value, other
        objects to their `repr`.
        """
        return {
            **result_fields(self, "page", "template text"),
            "values": jsonable(self.values),
            "slots": _slots(self.slots),
            **fields_of(self, "seed model=identity tolerance version cost notes? warnings?"),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def __repr__(self) -> str:
        lines = [f"  {slot.path or slot.name} = {_shown(slot)}" for slot in self.slots[:_REPR_SLOTS]]
        head = f"Page({self.template!r}, {len(self.text)} characters, {len(self.slots)} slots, {self.cost.rows} rows)"
        return listing(head, lines, len(self.slots))

    def _repr_html_(self) -> str:
        """Return the page as HTML in which the text of slots is marked.

        Tooltips show the slots' names and the probabilities of the choices. Advice is
        below.
        """
        advice = "".join(f"<div>! {escape(str(one))}</div>" for one in self.warnings)
        return f'<div style="white-space:pre-wrap">{"".join(map(_html, self.pieces))}</div>{advice}'


def _first_of_blocks(slots: Sequence[SlotEvent]) -> list[SlotEvent]:
    """Return the slots, and of the selects of one joint block the first."""
    return [next(group) for _, group in groupby(slots, key=lambda slot: id(slot.record))]


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
