"""Says which open probability a search of spellings reads next, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Bounds on the log-probability of E events.

    Attributes:
        low, high: float64[E], by the rows as they were read.
        safe_low, safe_high: float64[E], with the tolerance of each row.
    """

    low: FloatArray
    high: FloatArray
    safe_low: FloatArray
    safe_high: FloatArray


class Goal(Protocol):
    """What the bounds of a search are wanted for."""

    def weights(self, bounds: Bounds) -> FloatArray | None:
        """Return the log of the weight of each event's open probability, float64[E].

        None if no more rows are wanted.
        """
        ...

    @property
    def enough(self) -> float:
        """Return the weighted open probability at which `weights` returns None.

        A round reads no more rows than that seems to need. 0 if there is no such bound.
        """
        ...


@dataclass(frozen=True, slots=True)
class CloseBounds:
    """The bounds of all events together are to be close.

    Attributes:
        max_ratio: The upper bound divided by the lower one, multiplied over the events,
            at which the search stops.
    """

    max_ratio: float

    @property
    def enough(self) -> float:
        return 1.0 - 1.0 / self.max_ratio

    def weights(self, bounds: Bounds) -> FloatArray | None:
        high = bounds.high
        if total_gap(bounds.low, high) <= float(np.log(self.max_ratio)):
            return None
        result: FloatArray = np.full(len(high), -np.inf)
        is_possible = high > -np.inf
        result[is_possible] = -high[is_possible]
        return result


@dataclass(frozen=True, slots=True)
class OneWinner:
    """One choice is to have a lower bound above the upper bounds of all others.

    Attributes:
        choices: The event of each choice, an index of the search's events. Choices of
            equal texts have one event.
        log_prior: The log of each choice's prior, which is added to its bounds.
        given: The event that all of these include, or None. Once the winner is certain,
            its bounds are brought as close as `max_ratio`.
        max_ratio: Upper bound divided by the lower one.
    """

    choices: tuple[int, ...]
    log_prior: tuple[float, ...]
    given: int | None
    max_ratio: float

    @property
    def enough(self) -> float:
        return 0.0

    def weights(self, bounds: Bounds) -> FloatArray | None:
        events, prior = np.array(self.choices), np.array(self.log_prior)
        winner, rivals = self.standing(bounds)
        result: FloatArray = np.full(len(bounds.high), -np.inf)
        if rivals.any():
            if self.too_close(bounds).any():
                return None
            undecided = rivals | (np.arange(len(events)) == winner)
            np.maximum.at(result, events[undecided], prior[undecided])
            return result
        if self.given is None:
            return None
        if total_gap(bounds.low[[self.given]], bounds.high[[self.given]]) <= float(np.log(self.max_ratio)):
            return None
        result[self.given] = 0.0
        return result

    def standing(self, bounds: Bounds) -> tuple[int, BoolArray]:
        """Return the choice with the best lower bound, and those that may be better.

        Of equal lower bounds the lowest index is taken. bool[C] marks the choices whose
        upper bound reaches it; choices of the winner's own event are not among them.
        The tolerance of each row is in these bounds.
        """
        events, prior = np.array(self.choices), np.array(self.log_prior)
        lowest, highest = bounds.safe_low[events] + prior, bounds.safe_high[events] + prior
        winner = int(np.argmax(lowest))
        return winner, np.asarray(~(highest < lowest[winner]) & (events != events[winner]))

    def too_close(self, bounds: Bounds) -> BoolArray:
        """Return bool[C], the rivals that no further row can tell from the winner.

        Even if all that is open belonged to the winner, and nothing of it to the rival,
        the tolerance of the rows that were read would be more than their distance.
        """
        events, prior = np.array(self.choices), np.array(self.log_prior)
        winner, rivals = self.standing(bounds)
        with np.errstate(invalid="ignore"):  # of probability 0
            below = np.nan_to_num(bounds.low - bounds.safe_low, nan=0.0)[events]
            above = np.nan_to_num(bounds.safe_high - bounds.high, nan=0.0)[events]
        at_best = (bounds.high[events] + prior - below)[winner]
        return np.asarray(rivals & (below[winner] + above > 0) & (at_best <= bounds.low[events] + prior + above))


def total_gap(low: FloatArray, high: FloatArray) -> float:
    """Return the summed nats between the bounds; an event of probability 0 has none."""
    is_possible = high > -np.inf
    return float((high[is_possible] - low[is_possible]).sum())


def share(one: float, of: float) -> float:
    """Return exp(one - of), at most 1; 0 if `one` is -inf."""
    return 0.0 if one == -np.inf else float(numerics.exp(np.array(min(0.0, one - of))))
