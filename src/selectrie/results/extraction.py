"""The result of extracting a value of a type, and the marginals of its fields."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from selectrie.core.notation import UNKNOWN, percent_at_least, percent_between, written_tolerance
from selectrie.core.types import Cost
from selectrie.errors import InternalError, SelectrieError
from selectrie.results.advice import LOW_COVERAGE, Advice
from selectrie.results.beam import BeamResult, Hypothesis
from selectrie.results.drawing.sentences import coverage_words
from selectrie.results.plain import JsonRecord, fields_of, jsonable, listing, truth_error, value_text
from selectrie.results.records import FORMAT_VERSION
from selectrie.results.selection import Selection

T = TypeVar("T")
_REPR_ROWS = 5


@dataclass(frozen=True, slots=True, repr=False)
class Marginal(JsonRecord, Mapping[Hashable, "float | None"]):
    """The probability of each value of a field, whatever the other fields are.

    It is a mapping from values to probabilities. A probability is exact where `low` and
    `high` are equal, and else an estimate between them. It is None where nothing is
    known but a lower bound, as for fields with any number of values. The probabilities
    of a field that some values do not have sum to less than 1.

    Attributes:
        probabilities: Probability of each value, in the order of the type.
        low: Lower bounds by value.
        high: Upper bounds by value.
        tolerance: The tolerance, in nats, by which probabilities are written
            (`percent`). Not compared.
    """

    probabilities: Mapping[Hashable, float | None] = field(hash=False)
    low: Mapping[Hashable, float] = field(hash=False)
    high: Mapping[Hashable, float] = field(hash=False)
    tolerance: float = field(default=UNKNOWN, compare=False, kw_only=True)

    def __getitem__(self, value: Hashable) -> float | None:
        return self.probabilities[value]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.probabilities)

    def __len__(self) -> int:
        return len(self.probabilities)

    @property
    def value(self) -> Hashable:
        """Return the most probable value, or that of the largest lower bound."""
        return max(self.low, key=lambda value: (self.probabilities[value] or 0.0, self.low[value]))

    @property
    def is_exact(self) -> bool:
        """Return whether every probability is known, up to rounding."""
        return all(self.high[value] - low < EXACT for value, low in self.low.items())

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with a list of the values."""
        return {
            "values": [
                {
                    "value": jsonable(value),
                    "probability": probability,
                    "probability_low": self.low[value],
                    "probability_high": self.high[value],
                }
                for value, probability in self.probabilities.items()
            ]
        }

    def __repr__(self) -> str:
        ranked = sorted(self.low, key=lambda value: (-(self.probabilities[value] or 0.0), -self.low[value]))
        shown = [f"{value_text(value)} {self.share_words(value)}" for value in ranked[:_REPR_ROWS]]
        return f"Marginal({', '.join(shown + (['…'] if len(ranked) > _REPR_ROWS else []))})"

    def share_words(self, value: Hashable) -> str:
        """Return the probability of a value as text, or its bounds."""
        if self.probabilities[value] is None:
            return percent_at_least(self.low[value], self.tolerance)
        return percent_between(self.low[value], self.high[value], self.tolerance)


_UNEXPECTED = (
    "the model expects something else than a value of this type. Usual causes: a model that thinks before it answers;"
    " one that was not trained to write JSON."
)


def _is_unexpected(beam: BeamResult) -> bool:
    """Return whether the model expects other texts than those that were found.

    As for choices, low coverage alone is no sign: every text must also begin or end in
    a way that the model does not expect.
    """
    found = [*beam.hypotheses, *([] if beam.greedy is None else [beam.greedy])]
    return beam.coverage < LOW_COVERAGE and all(_least_edge(text, beam) < math.log(LOW_COVERAGE) for text in found)


def _least_edge(one: Hypothesis, beam: BeamResult) -> float:
    """Return the lower log-probability of a text's first token and of its end."""
    logp, n_healed = -beam.log_heal, len(beam.healed)
    for token in one.tokens:
        logp += token.logp
        n_healed -= len(token.piece)
        if n_healed < 0:
            break
    return min(logp, one.logp_end)


EXACT = 1e-9
"""Largest distance of bounds that rounding explains."""


@dataclass(frozen=True, slots=True)
class ExtractedValue(JsonRecord, Generic[T]):
    """A value of a type with its text and its probability.

    Attributes:
        value: The value.
        text: Its JSON text.
        logp: Joint log-probability of the text; None if the search left it open.
        probability: Probability of this value among all values of the type, as in
            `Extraction`.
        probability_low, probability_high: Bounds on that probability.
    """

    value: T = field(hash=False)
    text: str
    logp: float | None
    probability: float | None
    probability_low: float
    probability_high: float

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON."""
        numbers = fields_of(self, "text logp probability probability_low probability_high")
        return {"value": json.loads(self.text), **numbers}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Extraction(JsonRecord, Generic[T]):
    """The most probable value of a type for a state.

    A type of few values is **listed**: all of them are choices of one `selection`, and
    each probability is a share of theirs together (the coverage). A type with open
    fields is searched with a `beam`: probabilities are lower bounds.

    The properties `value`, `text`, `probability`, `probability_low` and
    `probability_high` are those of the most probable value (`ExtractedValue`).

    Attributes:
        marginals: The probabilities of the values of each field, by its name in the
            JSON; that of a field within another one is such as "customer.plan".
        selection: The selection among the texts of the listed values, or None.
        beam: The result of the search of an open type, or None.
        values: The values of the selection's choices; () for an open type.
        ranked: The values that the beam found, best first; () for a listed type.
        error: The error of a state that could not be asked (`on_error="keep"`), or
            None. Reading the value then raises it.
    """

    marginals: Mapping[str, Marginal] = field(hash=False)
    selection: Selection | None
    beam: BeamResult | None
    values: tuple[T, ...] = field(default=(), hash=False)
    ranked: tuple[ExtractedValue[T], ...] = ()
    error: SelectrieError | None = None

    def __post_init__(self) -> None:
        if self.error is None:
            marginals = {name: replace(marginal, tolerance=self.tolerance) for name, marginal in self.marginals.items()}
            object.__setattr__(self, "marginals", marginals)

    def __bool__(self) -> bool:
        """Raise `TypeError`: an extraction is neither true nor false."""
        raise truth_error(self, "its `.value`")

    def __iter__(self) -> Iterator[ExtractedValue[T]]:
        """Iterate over the value and its alternatives, most probable first."""
        return iter((self._best, *self.alternatives))

    def __len__(self) -> int:
        """Return the number of values that iteration yields."""
        return 1 + len(self.alternatives)

    @property
    def value(self) -> T:
        """Return the most probable value, an object of the type."""
        return self._best.value

    @property
    def text(self) -> str:
        """Return the JSON text of the value."""
        return self._best.text

    @property
    def probability(self) -> float | None:
        """Return the probability of the value among all values of the type."""
        return self._best.probability

    @property
    def probability_low(self) -> float:
        """Return a lower bound on the probability of the value."""
        return self._best.probability_low

    @property
    def probability_high(self) -> float:
        """Return an upper bound on the probability of the value."""
        return self._best.probability_high

    @property
    def is_listed(self) -> bool:
        """Return whether all values of the type were choices."""
        return self.selection is not None

    @property
    def is_proved(self) -> bool:
        """Return whether no other value is more probable, but for near ties.

        Of an open type it says so of texts: none that the beam left out is more
        probable than those that it found.
        """
        return self._result().certificate.proved

    @property
    def is_tie(self) -> bool:
        """Return whether another listed value may be as probable as this one.

        That is so if it has the same score, or if a bound on its score is within the
        tolerance of the model and near ties were not scored again.
        """
        if self.selection is None:
            return False
        near, certificate = self.selection.is_tie, self.selection.certificate
        if certificate.rescored or certificate.near_margin is None:
            return near
        return near or self.selection.margin < certificate.near_margin

    @property
    def coverage(self) -> float:
        """Return the total probability of the texts of all values under the model.

        It is a lower bound if not every text was scored, and always for a type that is
        searched because its values are too many to list.
        """
        return self._result().coverage

    @property
    def alternatives(self) -> tuple[ExtractedValue[T], ...]:
        """Return the other values that were evaluated, most probable first."""
        n = len(self.ranked) if self.selection is None else len(self.selection.choices)
        return tuple(value for value in self.top(n)[1:] if value.logp is not None)

    def top(self, k: int) -> tuple[ExtractedValue[T], ...]:
        """Return the k most probable values, best first; open ones come last."""
        if self.selection is None:
            return self._found()[:k]
        return tuple(
            ExtractedValue(
                self.values[choice.index],
                choice.text,
                choice.logp,
                choice.probability,
                choice.probability_low,
                choice.probability_high,
            )
            for choice in self.selection.top(k)
        )

    @property
    def cost(self) -> Cost:
        """Return the model work that the extraction took."""
        return self._result().cost

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return what to know before relying on the value."""
        if self.error is not None:
            return ()
        if self.selection is not None:
            return self.selection.warnings
        return (Advice("coverage", _UNEXPECTED),) if self.beam is not None and _is_unexpected(self.beam) else ()

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with kind "extraction".

        An extraction with an error has `error` in place of the rest.
        """
        head = {"format": FORMAT_VERSION, "kind": "extraction"}
        if self.error is not None:
            return {**head, "error": {"code": self.error.code, "message": str(self.error)}}
        return {
            **head,
            **self._best.to_dict(),
            "marginals": {name: marginal.to_dict() for name, marginal in self.marginals.items()},
            **fields_of(self, "is_listed is_proved is_tie coverage cost warnings?"),
            "signature": self._result().signature.to_dict(),
        }

    def __repr__(self) -> str:
        if self.error is not None:
            return f"Extraction(error={self.error!r})"
        lines = [f"  {name}: {marginal!r}" for name, marginal in self.marginals.items()]
        return listing(f"Extraction({self.value!r}, p {self.share_words(self._best)})", lines, len(lines))

    def share_words(self, value: ExtractedValue[T]) -> str:
        """Return the probability of a value as text, or its bounds."""
        if value.probability is None:
            return percent_at_least(value.probability_low, self.tolerance)
        return percent_between(value.probability_low, value.probability_high, self.tolerance)

    def coverage_words(self) -> str:
        """Return the coverage as text, or its bounds."""
        if self.selection is not None:
            return coverage_words(self.selection)
        return percent_at_least(self.coverage, self.tolerance)

    @property
    def tolerance(self) -> float:
        """Return the tolerance, in nats, by which probabilities are written."""
        return written_tolerance(self._result().signature)

    @property
    def _best(self) -> ExtractedValue[T]:
        return self.top(1)[0]

    def _found(self) -> tuple[ExtractedValue[T], ...]:
        """Return the values that the beam found, or raise the extraction's error."""
        self._result()
        return self.ranked

    def _result(self) -> Selection | BeamResult:
        """Return the selection or the beam, or raise the extraction's error."""
        result = self.beam if self.selection is None else self.selection
        if result is None:
            raise self.error or InternalError("an extraction has neither a selection nor a beam")
        return result
