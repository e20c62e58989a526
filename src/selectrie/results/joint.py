"""The result of a joint block: several selects of a page, decided together."""

from __future__ import annotations

from dataclasses import dataclass, field

from selectrie.core.types import Cost
from selectrie.errors import OptionError
from selectrie.results.advice import Advice, advice_fields, notes_advice
from selectrie.results.html import joint_html
from selectrie.results.plain import fields_of, jsonable, listing, no_truth, quoted
from selectrie.results.records import FORMAT_VERSION, Certificate, Signature

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
        return {
            "texts": list(self.texts),
            "values": [jsonable(value) for value in self.values],
            **fields_of(self, "text", "logp", "probability"),
            **({} if self.logp_upper is None else fields_of(self, "logp_upper")),
        }


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
        marginals = self.marginals
        return {
            "format": FORMAT_VERSION,
            "kind": "joint",
            **fields_of(self, "names", "text", "logp", "probability", "margin", "is_tie", "coverage"),
            "rule": "joint",
            **fields_of(self, "terminator", "healed", "log_heal", "heal_gap", "certificate", "cost", "signature"),
            **fields_of(self, "n_assignments", "assignments"),
            "marginals": None
            if marginals is None
            else {name: dict(of_slot) for name, of_slot in zip(self.names, marginals, strict=True)},
            **({} if self.coverage_high is None else fields_of(self, "coverage_high")),
            **({"notes": list(self.notes)} if self.notes else {}),
            **advice_fields(self.warnings),
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
        """Return a small table with bars, for notebooks."""
        shown = self.assignments[:_HTML_ROWS]
        rows = [(one.texts, one.probability, one.logp) for one in shown]
        proved = "proved" if self.certificate.proved else "not proved"
        caption = f"margin {self.margin:.4g} nats · coverage {self.coverage:.3g} · {self.terminator} · {proved}"
        return joint_html(self.names, rows, hidden=self.n_assignments - len(shown), caption=caption)
