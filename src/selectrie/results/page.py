"""Defines the result of rendering a template, a page with the results of its slots."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import groupby
from typing import Any, Protocol

from selectrie.core.notation import cut, nats, percent, quoted, write_logp, written_tolerance
from selectrie.core.types import Cost, ModelIdentity
from selectrie.errors import OptionError
from selectrie.options.checks import ReadOnlyDict
from selectrie.results.advice import Advice, notes_advice
from selectrie.results.drawing.bars import draw_bars, make_bar, more_words
from selectrie.results.drawing.sentences import coverage_words, joint_error
from selectrie.results.drawing.shapes import to_html
from selectrie.results.plain import (
    REPR_CELLS,
    JsonRecord,
    fields_of,
    jsonable,
    listing,
    truth_error,
)
from selectrie.results.records import Certificate, Signature, result_fields
from selectrie.results.selection import Selection
from selectrie.version import __version__

_REPR_ROWS = 5
_HTML_ROWS = 20


@dataclass(frozen=True, slots=True)
class Assignment(JsonRecord):
    """One option for each slot of a joint block.

    Attributes:
        texts: Texts of the options, in page order.
        values: Values of the options, in page order.
        text: The text of the whole block, literals included.
        logp: Joint log-probability of `text`; a lower bound if rows are known only in
            part.
        probability: Probability of `text` among the texts of the block. It is the
            midpoint of its bounds if a search left texts open or rows are known only in
            part. Assignments of the same text have the same probability.
        logp_upper: Upper bound of the log-probability if `logp` is a lower bound, else
            None.
    """

    texts: tuple[str, ...]
    values: tuple[object, ...] = field(hash=False)
    text: str
    logp: float
    probability: float
    logp_upper: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON.

        Values that JSON cannot represent are converted as by `Page.to_dict`.
        """
        values = [jsonable(value) for value in self.values]
        return {"texts": list(self.texts), "values": values, **fields_of(self, "text logp probability logp_upper?")}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JointSelection(JsonRecord):
    """The result of deciding all slots of a joint block together.

    Assignments are compared by the probability of the block's whole text. Equality
    ignores timing. A row is partial if only its most probable tokens are known, as from
    a served model.

    Attributes:
        names: Names of the slots, in page order.
        assignments: The best assignments, best first. Equal log-probabilities are
            ordered by the bytes of the text, then of the options' texts. There are at
            least k and at least two, if that many exist and were found. `certificate`
            says whether the first k are proved. From the third on, an assignment is
            listed only if no unscored assignment can rank before it.
        n_assignments: Number of assignments of the block.
        margin: Log-probability of the best assignment minus that of the second. 0 if
            both have the same text, inf if there is only one. A lower bound if a search
            left assignments open or rows are partial.
        is_tie: Whether the margin is 0. With a served model or partial rows, as in
            `Selection`.
        coverage: Total probability of all texts of the block. A lower bound if a search
            left texts open or rows are partial.
        marginals: For each slot, the probability of each option in the caller's order,
            summed over the other slots. The probability of a text is divided equally
            among its assignments. None if not all texts were scored, or if a
            probability is not known exactly.
        terminator: The terminator used, never "auto".
        healed: As in `Selection`.
        log_heal: As in `Selection`.
        heal_gap: As in `Selection`.
        certificate: Whether the first k assignments are proved to be the best.
        cost: The model work done for the block.
        signature: Model, software and options that determine the scores.
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
        raise truth_error(self, "`.value(name)`")

    def __iter__(self) -> Iterator[Assignment]:
        """Iterate over the assignments that are listed, best first."""
        return iter(self.assignments)

    def __len__(self) -> int:
        """Return the number of assignments that are listed."""
        return len(self.assignments)

    @property
    def best(self) -> Assignment:
        """Return the best assignment, which is on the page."""
        return self.assignments[0]

    @property
    def runner_up(self) -> Assignment | None:
        """Return the second best assignment.

        None if the block has only one assignment, or if a budget ended the search
        before the second was found.
        """
        return self.assignments[1] if len(self.assignments) > 1 else None

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on this result."""
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
        """Return the first k assignments, or all if fewer are listed."""
        return self.assignments[: max(k, 0)]

    def value(self, name: str) -> object:
        """Return the value of the option chosen for a slot, as the caller gave it.

        Raises `OptionError` for an unknown name.
        """
        return self.best.values[self._find_index(name)]

    def option(self, name: str) -> str:
        """Return the text of the option chosen for a slot.

        Raises `OptionError` for an unknown name.
        """
        return self.best.texts[self._find_index(name)]

    def marginal(self, name: str) -> dict[str, float]:
        """Return the probability of each option of a slot, summed over the other slots.

        Raises `OptionError` for an unknown name, and if not all assignments were
        scored.
        """
        index = self._find_index(name)
        if self.marginals is None:
            raise OptionError(
                "name", name, "a slot of a block whose assignments were all scored; a search left some open"
            )
        return dict(self.marginals[index])

    def _find_index(self, name: str) -> int:
        """Return the index of a slot; raise `OptionError` for an unknown name."""
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
        pairs = zip(self.names, self.best.texts, strict=True)
        decided = ", ".join(f"{name}={quoted(text, REPR_CELLS)}" for name, text in pairs)
        tolerance = written_tolerance(self.signature)
        head = f"JointSelection({decided}, p {percent(self.probability, tolerance)}, margin {self.margin_words()}{tie}"
        head += f", coverage {self.coverage_words()}, terminator={self.terminator!r}, proved={self.certificate.proved})"
        lines = [
            f"  {rank}. {quoted(assignment.text, REPR_CELLS)}  p {percent(assignment.probability, tolerance)}"
            f"  logp {write_logp(assignment.logp, tolerance, assignment.logp_upper)}"
            for rank, assignment in enumerate(self.assignments[:_REPR_ROWS], start=1)
        ]
        return listing(head, lines, self.n_assignments)

    def margin_words(self) -> str:
        """Return the margin as text: "0.5 nats" or "at least 0.5 nats"."""
        is_bound = self.certificate.open_mass > 0 or self.coverage_high is not None
        return nats(self.margin, joint_error(self), is_least=is_bound)

    def coverage_words(self) -> str:
        """Return the coverage as text, or its bounds."""
        return coverage_words(self)

    def _repr_html_(self) -> str:
        """Return the best assignments with bars, for notebooks."""
        shown = self.assignments[:_HTML_ROWS]
        marks = [("win", ("★", "winner")), *(len(shown) - 1) * [("", ("", ""))]]
        tolerance = written_tolerance(self.signature)
        bars = [
            make_bar(" · ".join(found.texts), found.probability, found.logp, *mark, tolerance=tolerance)
            for found, mark in zip(shown, marks, strict=False)
        ]
        proved = "proved" if self.certificate.proved else "not proved"
        caption = f"margin {self.margin_words()} · coverage {self.coverage_words()} · {self.terminator} · {proved}"
        heads = (" · ".join(self.names), "share of the set", "log-probability")
        drawing = draw_bars(bars, title=caption, heads=heads, rest=more_words(self.n_assignments - len(shown)))
        return to_html(drawing, before=[caption])


_REPR_SLOTS = 12
_SLOT_CELLS = 60


class SlotResult(Protocol):
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
class TextEvent(JsonRecord):
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
class SlotEvent(JsonRecord):
    """The value, text and result of a slot.

    Attributes:
        name: Name of the slot in the template.
        kind: "select", "gen", "beam", "joint" (a select of a joint block) or "geneach"
            (a decision whether a loop ends; the value is true if it ends).
        value: The value of the slot in `Page.values`.
        text: The text that the slot adds to the page; "" if hidden. In a stream, the
            text after that of the preceding `TextEvent`s.
        hidden: Whether the slot's text is left out of the page.
        record: The result of the selection, generation or search. The selects of a
            joint block have the same one.
        position: Position of the slot's tag, as file:line:column.
        path: Path to the value within `Page.values`: `armor` or, in loops, `food[1]` or
            `items[0].name`.
    """

    name: str
    kind: str
    value: object
    text: str
    hidden: bool
    record: SlotResult = field(repr=False)
    position: str = ""
    path: str = ""

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on the slot's result; `Advice.where` is the slot."""
        record = getattr(self.record, "selection", self.record)
        on_page = record.advice(on_page=True) if isinstance(record, Selection) else record.warnings
        return tuple(replace(advice, where=self.path or self.name) for advice in on_page)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON.

        `record` is converted by its own `to_dict`.
        """
        head = {**fields_of(self, "kind name path"), "value": jsonable(self.value)}
        return {**head, **fields_of(self, "text hidden position record")}


Event = TextEvent | SlotEvent


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Page(JsonRecord):
    """A rendered template.

    Equality ignores `cost`. The same template, values and seed give the same page.

    Attributes:
        text: The text of the page.
        values: The values by name: the choice or generated value of a slot, the value
            of a `set`, the text of a named block. A slot in a loop has a list with an
            entry for each iteration; it is None in iterations without the slot.
            `page["armor"]` returns `values["armor"]`.
        selections: The results of the slots, in the structure of `values`.
        pieces: The page from beginning to end, as `events` returns it.
        template: Name of the template.
        seed: Seed of the page.
        identity: The model.
        tolerance: Nats per row by which the batching of calls may change a
            log-probability; None if not measured.
        cost: The model work done for all slots.
        version: Version of selectrie.
        notes: One sentence on each template language whose markup the template seems to
            contain as plain text.
    """

    text: str
    values: Mapping[str, object] = field(hash=False)
    selections: Mapping[str, Any] = field(hash=False)
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
        """Return all slots in the order in which they were decided, hidden ones too."""
        return tuple(piece for piece in self.pieces if isinstance(piece, SlotEvent))

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the notes of the page, and the advice on each slot."""
        of_slots = (advice for slot in _select_first_slots(self.slots) for advice in slot.warnings)
        return *notes_advice(self.notes), *of_slots

    def events(self) -> tuple[Event, ...]:
        """Return the page from beginning to end as events: template text and slots.

        The joined texts of the events are `text`.
        """
        return self.pieces

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "page".

        It has the text, values, slots (each with its record), seed, model and cost.
        Values that JSON cannot represent are converted: Enum members to their value,
        other objects to their `repr`.
        """
        return {
            **result_fields(self, "page", "template text"),
            "values": jsonable(self.values),
            "slots": _make_slot_dicts(self.slots),
            **fields_of(self, "seed model=identity tolerance version cost notes? warnings?"),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def __repr__(self) -> str:
        tolerance = written_tolerance(self)
        lines = [f"  {slot.path or slot.name} = {_format_slot(slot, tolerance)}" for slot in self.slots[:_REPR_SLOTS]]
        head = f"Page({self.template!r}, {len(self.text)} characters, {len(self.slots)} slots, {self.cost.rows} rows)"
        return listing(head, lines, len(self.slots))

    def _repr_html_(self) -> str:
        """Return the page as HTML, with the text of slots marked and advice below.

        Tooltips show the slots' names and the probabilities of the choices.
        """
        advice = "".join(f"<div>! {escape(str(advice))}</div>" for advice in self.warnings)
        pieces = "".join(_make_html(piece, written_tolerance(self)) for piece in self.pieces)
        return f'<div style="white-space:pre-wrap">{pieces}</div>{advice}'


def _select_first_slots(slots: Sequence[SlotEvent]) -> list[SlotEvent]:
    """Return the slots, but only the first slot of each joint block."""
    return [next(group) for _, group in groupby(slots, key=lambda slot: id(slot.record))]


def _make_slot_dicts(slots: Sequence[SlotEvent]) -> list[dict[str, object]]:
    """Return each slot as a dictionary.

    Only the first slot of a joint block has the `record`; the others have None.
    """
    dicts = []
    for _, group in groupby(slots, key=lambda slot: id(slot.record)):
        first, *others = group
        dicts += [first.to_dict(), *({**slot.to_dict(), "record": None} for slot in others)]
    return dicts


def _find_probability(slot: SlotEvent) -> float | None:
    """Return the probability of a slot's choice; None if its result has none."""
    p = getattr(slot.record, "probability", None)
    return p if isinstance(p, float) else None


def _format_slot(slot: SlotEvent, tolerance: float) -> str:
    """Return the value and the probability of a slot, for a `repr`."""
    p = _find_probability(slot)
    facts = ("" if p is None else f"  p {percent(p, tolerance)}") + ("  hidden" if slot.hidden else "")
    return cut(repr(slot.value), _SLOT_CELLS) + facts


def _make_html(piece: Event, tolerance: float) -> str:
    """Return the HTML of a piece of a page; a slot has a tooltip."""
    if isinstance(piece, TextEvent):
        return escape(piece.text)
    if piece.hidden:
        return ""
    p = _find_probability(piece)
    share = "" if p is None else f", p {percent(p, tolerance)}"
    title = escape(f"{piece.kind} {piece.path or piece.name}{share}", quote=True)
    return f'<span title="{title}" style="background:#4c8bf533;border-radius:2px">{escape(piece.text)}</span>'
