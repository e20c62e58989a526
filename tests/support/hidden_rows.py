"""Rows that do not say how probable some of their tokens are, and a model whose rows they are.

Which tokens are hidden, and how much the bounds give away, is hashed from the row: the same row hides the same tokens
wherever it is read. Single tokens can be read as ever; the masses of sets with a hidden token have bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from selectrie.core.model import Extension
from selectrie.core.rows import DenseRows, Reads
from selectrie.core.types import ModelIdentity, SelfCheck
from selectrie.engine.engine import Engine
from selectrie.engine.runtimes import LocalRuntime
from selectrie.errors import UnreadRowError
from selectrie.testing import HashModel

SLACK = 1e-6
"""Nats that bounds leave for rounding: a row sums exponentials of float32, in one order or another."""


class HiddenRows:
    """The rows of `dense`, of which a share of the tokens is hidden.

    Args:
        dense: The rows.
        seed: Decides what is hidden.
        shares: The shares of hidden tokens among which each row takes one.
    """

    def __init__(self, dense: DenseRows, seed: int, shares: Sequence[float]) -> None:
        self._dense, self._seed, self._shares = dense, seed, tuple(shares)
        self.logp, self.top, self.best = dense.logp, dense.top, dense.best
        self.logits, self.check, self.unseen_max = dense.logits, dense.check, dense.unseen_max

    def __len__(self) -> int:
        return len(self._dense)

    @property
    def nbytes(self) -> int:
        return self._dense.nbytes

    def log_mass_bounds(self, i, token_ids) -> tuple[float, float]:
        return self._bounds(i, np.asarray(token_ids, dtype=np.int64), self._dense.log_mass(i, token_ids))

    def log_rest_bounds(self, i, token_ids) -> tuple[float, float]:
        others = np.setdiff1d(np.arange(len(self._dense.logits(i))), token_ids)
        return self._bounds(i, others, self._dense.log_rest(i, token_ids))

    def log_mass(self, i, token_ids) -> float:
        return self._only(i, self.log_mass_bounds(i, token_ids))

    def log_rest(self, i, token_ids) -> float:
        return self._only(i, self.log_rest_bounds(i, token_ids))

    def _only(self, i: int, bounds: tuple[float, float]) -> float:
        if bounds[0] != bounds[1]:
            raise UnreadRowError(i, "a mass of tokens that are hidden")
        return bounds[0]

    def _bounds(self, i: int, ids, exact: float) -> tuple[float, float]:
        """Bounds on the mass of `ids`, which is `exact`; equal if none of them is hidden."""
        digest = blake2b(self._dense.logits(i).tobytes() + bytes([self._seed % 256]), digest_size=8).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "little"))
        is_hidden = rng.random(len(self._dense.logits(i))) < rng.choice(self._shares)
        given_low, given_high = rng.choice([0.0, 0.5, 1.0]), rng.choice([1.0, 1.5, 4.0])
        unknown = ids[is_hidden[ids]]
        if not len(unknown):
            return exact, exact
        known, hidden = (self._dense.log_mass(i, one) for one in (ids[~is_hidden[ids]], unknown))
        with np.errstate(divide="ignore"):
            low = np.logaddexp(known, hidden + np.log(given_low))
        return float(low) - SLACK, min(float(np.logaddexp(known, hidden + np.log(given_high))) + SLACK, SLACK)

    def slice(self, start: int, stop: int) -> HiddenRows:
        return self._of(self._dense.slice(start, stop))

    def take(self, order) -> HiddenRows:
        return self._of(self._dense.take(order))

    def copy(self) -> HiddenRows:
        return self._of(self._dense.copy())

    def stacked(self, others: Sequence[HiddenRows]) -> HiddenRows:
        return self._of(self._dense.stacked([one._dense for one in others]))

    def fetch(self, reads: Callable[[], Reads]) -> HiddenRows:
        return self

    def _of(self, dense: DenseRows) -> HiddenRows:
        return HiddenRows(dense, self._seed, self._shares)


class HidingModel(HashModel):
    """A `HashModel` that hides tokens of its rows, as a server does; `precision` is that of its identity."""

    def __init__(
        self, seed: int, *, shares: Sequence[float] = (0.0, 0.3, 0.9, 1.0), precision: str = "exact", **how
    ) -> None:
        super().__init__(seed, **how)
        self._seed, self._shares, self._precision = seed, shares, precision

    @property
    def identity(self) -> ModelIdentity:
        return replace(super().identity, precision=self._precision)

    def extend(self, parents, tokens, wanted, keep) -> Extension:
        extension = super().extend(parents, tokens, wanted, keep)
        return replace(extension, rows=HiddenRows(extension.rows, self._seed, self._shares))


class _Served(LocalRuntime):
    def session(self, group, model):
        return replace(super().session(group, model), check=self.check)


def served_engine(model, tolerance: float) -> Engine:
    """An engine on a model whose precision is "remote", with the tolerance that was measured of it."""
    runtime = _Served(model)
    runtime.check = SelfCheck(batch_multiple=1, moved=tolerance / 4, tolerance=tolerance)
    return Engine(runtime)
