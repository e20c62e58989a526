"""The laws of the port of path models, checked on any of them by random queries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.path_model import Cancellation, PartialRow, PathModel, RowQuery
from selectrie.core.types import FloatArray, IntArray
from selectrie.errors import CancelledError, ClosedError, OptionError, SelectrieError, TokenRangeError
from selectrie.testing.laws import LawBroken, Path

_N_TOKENS = 6
"""Number of distinct tokens of which paths are made, so that equal ones come again."""
_N_ALL = 4096
"""Number of tokens up to which whole rows are asked for, in pieces."""
_SUMMED_NATS = 1e-6
"""What the float32 exponentials of a softmax may move the sum of a row."""
_WAIT_S = 30.0
"""Seconds after which a call that was cancelled counts as going on."""


@dataclass(frozen=True, slots=True)
class PathModelReport:
    """The result of `check_path_model`.

    Attributes:
        rows_compared: Number of rows compared with the same row asked for alone.
        worst_nats: Largest difference of a log-probability.
        refusals: Number of calls that raised an error, as the laws require.
    """

    rows_compared: int
    worst_nats: float
    refusals: int


def check_path_model(
    model: PathModel,
    *,
    seed: int,
    steps: int = 100,
    longest: int = 12,
    n_asked: Callable[[], int] | None = None,
    stall_next: Callable[[], None] | None = None,
) -> PathModelReport:
    """Check the laws of `core.path_model` with random queries. The model is closed.

    Values may differ by the model's own `tolerance`.

    Args:
        model: The model.
        seed: Seed of the random queries.
        steps: Number of random calls.
        longest: Number of tokens of the longest path.
        n_asked: Returns how many queries were asked so far of what answers them, if
            that can be known. Refused calls must not change it.
        stall_next: Makes the next call wait until it is cancelled, if that can be done.

    Raises:
        LawBroken: If a law is broken. Any other error of the model is passed on.
    """
    check = _Check(model, np.random.default_rng(seed), min(longest, model.limits.path_tokens), n_asked)
    try:
        for _ in range(steps):
            check.step()
        check.threads()
        check.cancelled(stall_next)
    finally:
        model.close()
    check.closed()
    return PathModelReport(check.rows_compared, check.worst_nats, check.refusals)


class _Check:
    """The state of one check: what was said about each path."""

    def __init__(
        self, model: PathModel, rng: np.random.Generator, longest: int, n_asked: Callable[[], int] | None
    ) -> None:
        self._model, self._rng, self._longest = model, rng, longest
        self._n_asked: Callable[[], int] = int if n_asked is None else n_asked
        self._n_tokens = len(model.vocabulary.pieces)
        self._tokens = [int(t) for t in rng.choice(self._n_tokens, size=min(_N_TOKENS, self._n_tokens), replace=False)]
        bos = model.vocabulary.bos
        self._start = self._tokens[0] if bos is None else bos
        self._margin = model.tolerance + _SUMMED_NATS
        self._known: dict[Path, dict[int, float]] = {}  # log-probabilities from queries that were asked alone
        self.rows_compared = self.refusals = 0
        self.worst_nats = 0.0

    def step(self) -> None:
        """Make one random call."""
        [self._several, self._several, self._whole, self._refuse][int(self._rng.integers(4))]()

    def _query(self) -> RowQuery:
        limits, n = self._model.limits, int(self._rng.integers(self._longest))
        path = [self._start, *(int(token) for token in self._rng.choice(self._tokens, size=n))]
        n_named = int(self._rng.integers(min(limits.named_ids, self._n_tokens, 20) + 1))
        named = self._rng.choice(self._n_tokens, size=n_named, replace=False)
        top = int(self._rng.integers(2)) * int(self._rng.integers(min(limits.top_ids, self._n_tokens) + 1))
        return RowQuery(_ids(path[: self._longest]), _ids(named), top)

    def _several(self) -> None:
        """Ask several queries at once, and compare each row with it asked alone."""
        n = int(self._rng.integers(1, min(self._model.limits.queries_per_request, 6) + 1))
        queries = [self._query() for _ in range(n)]
        if n > 1 and self._rng.random() < 0.5:  # another query about a path that is in the call
            queries[-1] = replace(queries[-1], path=queries[0].path)
        self._compare(queries, self._ask(queries))

    def _ask(self, queries: list[RowQuery]) -> list[PartialRow]:
        rows = self._model.rows(queries, Cancellation())
        if len(rows) != len(queries):
            raise LawBroken(2, f"{len(queries)} queries gave {len(rows)} rows")
        return rows

    def _compare(self, queries: list[RowQuery], rows: list[PartialRow]) -> None:
        for query, row in zip(queries, rows, strict=True):
            self._check_row(query, row)
            (alone,) = self._ask([query])
            path: Path = tuple(query.path.tolist())
            known = self._known.setdefault(path, {})
            known.update(zip(alone.ids.tolist(), alone.logp.tolist(), strict=True))
            values = np.array([known.get(token, np.nan) for token in row.ids.tolist()])
            self._compare_values(path, row.logp[~np.isnan(values)], values[~np.isnan(values)])
            self.rows_compared += 1

    def _compare_values(self, path: Path, values: FloatArray, expected: FloatArray) -> None:
        moved = np.where(values == expected, 0.0, np.abs(values - expected)).max(initial=0.0)
        self.worst_nats = max(self.worst_nats, float(moved))
        if moved > self._model.tolerance:
            raise LawBroken(1, "a row depends on what else is asked", path=path, difference_nats=float(moved))

    def _check_row(self, query: RowQuery, row: PartialRow) -> None:
        """Check what can be seen of one row."""
        path: Path = tuple(query.path.tolist())
        if len(row.ids) != len(row.logp) or (np.diff(row.ids) <= 0).any():
            raise LawBroken(2, "the tokens of a row are not distinct and ascending", path=path)
        if len(np.setdiff1d(query.named, row.ids)) or len(row.ids) < min(query.top, self._n_tokens):
            raise LawBroken(2, "a row lacks tokens that were asked for", path=path)
        ranked = np.sort(row.logp)[::-1]
        if query.top and query.top <= len(ranked) and row.rest_max > ranked[query.top - 1] + self._margin:
            raise LawBroken(2, f"a token of the {query.top} most probable ones may be missing", path=path)
        low, high = row.log_rest
        if not low <= high:
            raise LawBroken(3, f"the rest is bounded by {low} and {high}", path=path)
        known = numerics.logsumexp(row.logp)
        if np.logaddexp(known, low) > self._margin or np.logaddexp(known, high) < -self._margin:
            raise LawBroken(3, "the probabilities and the rest do not sum to 1", path=path)

    def _whole(self) -> None:
        """Ask for all tokens of a row in pieces; check what a row says about others."""
        query = self._query()
        path: Path = tuple(query.path.tolist())
        if self._n_tokens > _N_ALL or not self._model.limits.named_ids:
            return
        step = min(self._model.limits.named_ids, self._n_tokens)
        pieces = [np.arange(start, min(start + step, self._n_tokens)) for start in range(0, self._n_tokens, step)]
        logp = np.full(self._n_tokens, np.nan)
        for piece in pieces:
            (row,) = self._ask([RowQuery(query.path, _ids(piece))])
            self._check_row(RowQuery(query.path, _ids(piece)), row)
            logp[row.ids] = row.logp
        (row,) = self._ask([query])
        self._check_row(query, row)
        self._compare_values(path, row.logp, logp[row.ids])
        others = np.delete(logp, row.ids)
        if others.max(initial=-np.inf) > row.rest_max + self._margin:
            raise LawBroken(3, "another token is more probable than `rest_max`", path=path)
        rest = numerics.logsumexp(others)
        if not row.log_rest[0] - self._margin <= rest <= row.log_rest[1] + self._margin:
            raise LawBroken(3, f"the rest is {rest}, outside of its bounds {row.log_rest}", path=path)

    def _refuse(self) -> None:
        """Make a call with a query that is not valid."""
        limits, query = self._model.limits, self._query()
        several = _ids(np.arange(limits.named_ids + 1) % self._n_tokens)
        too_long = _ids(np.full(limits.path_tokens + 1, self._start))
        cases: list[tuple[type[SelectrieError], RowQuery]] = [
            (OptionError, replace(query, path=_ids([]))),
            (OptionError, replace(query, path=too_long)),
            (OptionError, replace(query, named=several)),
            (OptionError, replace(query, top=limits.top_ids + 1)),
            (OptionError, replace(query, top=-1)),
            (OptionError, replace(query, named=_ids([self._start, self._start]))),
            (TokenRangeError, replace(query, path=_ids([self._start, self._n_tokens]))),
            (TokenRangeError, replace(query, named=_ids([-1]))),
        ]
        expected, wrong = cases[int(self._rng.integers(len(cases)))]
        before = self._n_asked()
        self._must_raise(4, expected, [self._query(), wrong], Cancellation())
        if self._n_asked() != before:
            raise LawBroken(4, "something was asked before a call was refused")

    def _must_raise(
        self, law: int, expected: type[SelectrieError], queries: list[RowQuery], cancellation: Cancellation
    ) -> None:
        error = self._error_of(queries, cancellation)
        if not isinstance(error, expected):
            raise LawBroken(law, f"a call that must raise {expected.__name__} ended with {error!r}")
        self.refusals += 1

    def _error_of(self, queries: list[RowQuery], cancellation: Cancellation) -> BaseException | None:
        try:
            self._model.rows(queries, cancellation)
        except BaseException as error:  # noqa: BLE001 - the caller compares it
            return error
        return None

    def threads(self) -> None:
        """Ask in several threads at once, and compare the rows."""
        calls = [[self._query() for _ in range(2)] for _ in range(8)]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(self._ask, calls))
        for queries, rows in zip(calls, answers, strict=True):
            self._compare(queries, rows)

    def cancelled(self, stall_next: Callable[[], None] | None) -> None:
        """Cancel a call before it is made, and one that waits."""
        cancellation = Cancellation()
        cancellation.cancel()
        self._must_raise(5, CancelledError, [self._query()], cancellation)
        if stall_next is None:
            return
        cancellation, query = Cancellation(), self._query()
        stall_next()
        errors: list[BaseException | None] = []
        call = threading.Thread(target=lambda: errors.append(self._error_of([query], cancellation)), daemon=True)
        call.start()
        cancellation.cancel()
        call.join(_WAIT_S)
        if not errors or not isinstance(errors[0], CancelledError):
            raise LawBroken(5, f"a call that was cancelled ended so: {errors or 'not at all'}")
        self._compare([query], self._ask([query]))

    def closed(self) -> None:
        """Close the closed model again, and ask it."""
        self._model.close()
        self._must_raise(5, ClosedError, [self._query()], Cancellation())


def _ids(values: object) -> IntArray:
    return np.asarray(values, dtype=np.int32)
