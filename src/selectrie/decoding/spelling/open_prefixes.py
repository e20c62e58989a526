"""The prefixes of spellings whose rows were not read yet, as flat arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from selectrie.core import numerics
from selectrie.core.types import BoolArray, FloatArray, IntArray
from selectrie.decoding.spelling.lattice import Lattice


@dataclass(frozen=True, slots=True, eq=False)
class OpenPrefixes:
    """Prefixes of spellings, each a token after a node whose row was read.

    Attributes:
        parent: int32[n], the node before the token.
        token: int32[n].
        state: int32[n], the state of the lattice after the token.
        depth: int32[n], the number of tokens of the prefix.
        logp: float64[n], the log-probability of the prefix.
    """

    parent: IntArray
    token: IntArray
    state: IntArray
    depth: IntArray
    logp: FloatArray

    @classmethod
    def none(cls) -> OpenPrefixes:
        """Return no prefixes."""
        nothing = np.empty(0, dtype=np.int32)
        return cls(nothing, nothing, nothing, nothing, np.empty(0, dtype=np.float64))

    def __len__(self) -> int:
        return len(self.logp)

    def take(self, index: BoolArray | NDArray[np.integer]) -> OpenPrefixes:
        """Return the prefixes that `index` picks."""
        return OpenPrefixes(*(getattr(self, one.name)[index] for one in fields(self)))

    @staticmethod
    def concatenated(parts: list[OpenPrefixes]) -> OpenPrefixes:
        """Return all prefixes of `parts`, in order."""
        return OpenPrefixes(
            *(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(OpenPrefixes))
        )

    def log_mass(self, lattice: Lattice, error: float) -> FloatArray:
        """Return the log of the summed probability of each event's prefixes.

        The result, float64[E], is an upper bound where each row of a prefix may be
        wrong by `error` nats; -inf for an event without a prefix.
        """
        result: FloatArray = np.full(len(lattice.events), -np.inf)
        if not len(self):
            return result
        upper = self.logp + error * self.depth
        order = np.argsort(self.state, kind="stable")
        states, first = np.unique(self.state[order], return_index=True)
        for state, part in zip(states.tolist(), np.split(upper[order], first[1:]), strict=True):
            alive = lattice.alive(state)
            result[alive] = np.logaddexp(result[alive], numerics.logsumexp(part))
        return result

    def urgency(self, lattice: Lattice, log_weight: FloatArray) -> FloatArray:
        """Return the log of each prefix's weighted probability, float64[n].

        A prefix counts once for each event that is alive after it, with its weight.

        Args:
            lattice: The lattice of the states.
            log_weight: float64[E], the log of the weight of each event.
        """
        if not len(self):
            return np.empty(0)
        states, of = np.unique(self.state, return_inverse=True)
        weights = np.array([numerics.logsumexp(log_weight[lattice.alive(one)]) for one in states.tolist()])
        return np.asarray(self.logp + weights[of], dtype=np.float64)
