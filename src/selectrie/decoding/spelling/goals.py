"""Says which open probability a search of spellings reads next, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import FloatArray


class Goal(Protocol):
    """What the bounds of a search are wanted for."""

    def weights(self, low: FloatArray, high: FloatArray) -> FloatArray | None:
        """Return the log of the weight of each event's open probability, float64[E].

        None if the bounds are close enough.

        Args:
            low, high: float64[E], bounds on the log-probability of each event.
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

    def weights(self, low: FloatArray, high: FloatArray) -> FloatArray | None:
        if total_gap(low, high) <= float(np.log(self.max_ratio)):
            return None
        result: FloatArray = np.full(len(high), -np.inf)
        is_possible = high > -np.inf
        result[is_possible] = -high[is_possible]
        return result


def total_gap(low: FloatArray, high: FloatArray) -> float:
    """Return the summed nats between the bounds; an event of probability 0 has none."""
    is_possible = high > -np.inf
    return float((high[is_possible] - low[is_possible]).sum())


def share(one: float, of: float) -> float:
    """Return exp(one - of), at most 1; 0 if `one` is -inf."""
    return 0.0 if one == -np.inf else float(numerics.exp(np.array(min(0.0, one - of))))
