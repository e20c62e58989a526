"""Several selects of a page, decided together."""

from __future__ import annotations

from dataclasses import dataclass, field

from selectrie.core.types import Cost
from selectrie.errors import OptionError
from selectrie.results.html import joint_html
from selectrie.results.plain import bytes_fields, jsonable, number, plain
from selectrie.results.records import FORMAT_VERSION, Certificate, Signature

_REPR_ROWS = 5
_HTML_ROWS = 20


@dataclass(frozen=True, slots=True)
class Assignment:
    """One option for each slot of a joint block.

    texts, values: of the options, in page order. text: of the whole block, its literals included. logp: joint
    log-probability of that text. probability: of that text among the texts of the block (the middle of what is possible
    where a search left some open); assignments that spell the same text all carry it.
    """

    texts: tuple[str, ...]
    values: tuple[object, ...] = field(hash=False)
    text: str
    logp: float
    probability: float

    def to_dict(self) -> dict[str, object]:
        """JSON-ready; values that JSON does not know as `Page.to_dict` has them."""
        return {
            "texts": list(self.texts),
            "values": [jsonable(value) for value in self.values],
            "text": self.text,
            "logp": number(self.logp),
            "probability": number(self.probability),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JointSelection:
    """The slots of a joint block, decided together: the block's whole text counts. Frozen; equal but for timing.

    names: of the slots, in page order. assignments: the best ones, best first; equal log-probabilities by the bytes of the
    text, then of the options' texts. At least k and two, where there are so many and they were found; the first k are
    certain where the certificate says so, and those after the second where nothing left open can stand between. n_assignments: how many there are.
    margin: log-probability of the best less that of the second assignment (0 where both spell one text, inf where there is
    one; a lower bound where a search left some open); is_tie: it is 0.
    coverage: probability mass of all texts of the block (a lower bound where a search left some open).
    marginals: of each slot, probability of each option, in the order given, among the texts of the block; a text that
    several assignments spell counts in equal parts. None where not all were scored.
    certificate: `proved` is about the first k. terminator: as used, never "auto".
    healed, log_heal, heal_gap: as in `Selection`.
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

    @property
    def best(self) -> Assignment:
        """The assignment decided on."""
        return self.assignments[0]

    @property
    def runner_up(self) -> Assignment | None:
        """The second best; None where there is none, or a budget ended the search before it was found."""
        return self.assignments[1] if len(self.assignments) > 1 else None

    @property
    def text(self) -> str:
        """The block's text, literals included."""
        return self.best.text

    @property
    def logp(self) -> float:
        """Joint log-probability of the block's text."""
        return self.best.logp

    @property
    def probability(self) -> float:
        """Probability of the block's text among all of its texts."""
        return self.best.probability

    def top(self, k: int) -> tuple[Assignment, ...]:
        """The first k, or as many as are listed."""
        return self.assignments[: max(k, 0)]

    def value(self, name: str) -> object:
        """The value decided on for a slot, of the type it was given in. Raises `OptionError` for another name."""
        return self.best.values[self._place(name)]

    def option(self, name: str) -> str:
        """The text decided on for a slot."""
        return self.best.texts[self._place(name)]

    def marginal(self, name: str) -> dict[str, float]:
        """Probability of each option of a slot, summed over what the others may be.

        Raises `OptionError` for another name, and where not all assignments were scored.
        """
        place = self._place(name)
        if self.marginals is None:
            raise OptionError(
                "name", name, "nothing: a search left assignments open, so no sum over all of them is known"
            )
        return dict(self.marginals[place])

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise OptionError("name", name, f"one of {self.names}")
        return self.names.index(name)

    def to_dict(self) -> dict[str, object]:
        """JSON-ready, with `format` and kind "joint". -inf, inf and NaN become None."""
        marginals = self.marginals
        return {
            "format": FORMAT_VERSION,
            "kind": "joint",
            "names": list(self.names),
            "text": self.text,
            "logp": number(self.logp),
            "probability": number(self.probability),
            "margin": number(self.margin),
            "is_tie": self.is_tie,
            "coverage": number(self.coverage),
            "rule": "joint",
            "terminator": self.terminator,
            **bytes_fields("healed", self.healed),
            "log_heal": number(self.log_heal),
            "heal_gap": number(self.heal_gap),
            "certificate": plain(self.certificate),
            "cost": plain(self.cost),
            "signature": plain(self.signature),
            "n_assignments": self.n_assignments,
            "assignments": [assignment.to_dict() for assignment in self.assignments],
            "marginals": None
            if marginals is None
            else {name: dict(of_slot) for name, of_slot in zip(self.names, marginals, strict=True)},
        }

    def __repr__(self) -> str:
        tie = " (tie)" if self.is_tie else ""
        decided = ", ".join(f"{name}={_clip(text)}" for name, text in zip(self.names, self.best.texts, strict=True))
        head = f"JointSelection({decided}, p={self.probability:.4g}, margin={self.margin:.4g} nats{tie}, "
        head += f"coverage={self.coverage:.3g}, terminator={self.terminator!r}, proved={self.certificate.proved})"
        shown = self.assignments[:_REPR_ROWS]
        lines = [
            f"  {place}. {_clip(one.text)}  p={one.probability:.4f}  logp={one.logp:.3f}"
            for place, one in enumerate(shown, start=1)
        ]
        rest = self.n_assignments - len(shown)
        return "\n".join([head, *lines, *([f"  … {rest} more"] if rest > 0 else [])])

    def _repr_html_(self) -> str:
        """A small table with bars, for notebooks."""
        shown = self.assignments[:_HTML_ROWS]
        rows = [(one.texts, one.probability, one.logp) for one in shown]
        proved = "proved" if self.certificate.proved else "not proved"
        caption = f"margin {self.margin:.4g} nats · coverage {self.coverage:.3g} · {self.terminator} · {proved}"
        return joint_html(self.names, rows, hidden=self.n_assignments - len(shown), caption=caption)


def _clip(text: str, limit: int = 48) -> str:
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")
