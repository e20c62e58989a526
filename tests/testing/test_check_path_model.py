"""`check_path_model` passes on `PathsOf`, and each law is broken by a planted fault."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from selectrie.core.model import chain
from selectrie.core.path_model import Cancellation, PathLimits, RowQuery
from selectrie.core.rows import DenseRows
from selectrie.core.types import ROOT, Limits, ModelKind
from selectrie.errors import CancelledError, ClosedError, OptionError, TokenRangeError
from selectrie.testing import HashModel, LawBroken, PathsOf, check_path_model

NARROW = PathLimits(named_ids=7, top_ids=3, queries_per_request=2, requests_in_flight=2, path_tokens=9)


def ids(*values):
    return np.array(values, dtype=np.int32)


class Faulty:
    """A path model whose answers go through a function; it can stall, and counts the queries that it answers."""

    def __init__(self, model, spoil=lambda _queries, rows: rows, *, asks_first=False, is_deaf=False):
        self.model, self.spoil, self.asks_first, self.is_deaf = model, spoil, asks_first, is_deaf
        self.n_asked, self.is_stalled = 0, False

    def __getattr__(self, name):
        return getattr(self.model, name)

    def rows(self, queries, cancellation):
        if self.asks_first:
            self.n_asked += 1
        if self.is_stalled:
            self.is_stalled = False
            cancelled = threading.Event()
            cancellation.when_cancelled(cancelled.set)
            cancelled.wait()
        rows = self.model.rows(queries, Cancellation() if self.is_deaf else cancellation)
        self.n_asked += len(queries)
        return self.spoil(queries, rows)

    def stall(self):
        self.is_stalled = True


def check(faulty, **options):
    return check_path_model(faulty, seed=3, n_asked=lambda: faulty.n_asked, stall_next=faulty.stall, **options)


@pytest.mark.parametrize("hides_rest", [False, True])
@pytest.mark.parametrize("limits", [None, NARROW])
def test_the_adapter_keeps_to_the_laws(hides_rest, limits):
    """With wide and narrow limits, whether it tells the rest or hides it; a row is the same to the last bit."""
    options = {} if limits is None else {"limits": limits}
    report = check(Faulty(PathsOf(HashModel(1), hides_rest=hides_rest, **options)))
    assert report.rows_compared > 50
    assert report.refusals > 10
    assert report.worst_nats == 0.0


def test_a_model_in_small_calls_keeps_to_the_laws():
    """Paths longer than a call, and a memory that keeps little."""
    limits = Limits(nodes=9, sequences=2, rows_per_call=2, kind=ModelKind.RECURRENT, max_idle_rows=4)
    report = check(Faulty(PathsOf(HashModel(2, limits=limits))), longest=9)
    assert report.worst_nats == 0.0


def by_row(change):
    return lambda queries, rows: [change(query, row) for query, row in zip(queries, rows, strict=True)]


def by_call(change):
    return lambda queries, rows: [change(row) if len(queries) > 1 else row for row in rows]


def without_last(row):
    return replace(row, ids=row.ids[:-1], logp=row.logp[:-1])


def off(row, nats):
    return replace(row, log_rest=(row.log_rest[0] + nats, row.log_rest[1] + nats))


FAULTS = {
    "a row changes in company": (1, by_call(lambda row: replace(row, logp=row.logp - 1e-9))),
    "rows in another order": (2, lambda queries, rows: rows if queries[0].top else rows[::-1]),
    "a row too few": (2, lambda _, rows: rows[1:]),
    "a named token is missing": (2, by_row(lambda query, row: without_last(row) if len(query.named) else row)),
    "ids descend": (2, by_row(lambda _, row: replace(row, ids=row.ids[::-1], logp=row.logp[::-1]))),
    "an id twice": (
        2,
        by_row(lambda _, row: replace(row, ids=np.repeat(row.ids, 2), logp=np.repeat(row.logp, 2))),
    ),
    "the most probable are others": (2, by_row(lambda query, row: replace(row, rest_max=0.0) if query.top else row)),
    "the rest is too small": (3, by_row(lambda _, row: off(row, -0.1))),
    "the rest is too large": (3, by_row(lambda _, row: off(row, 0.1))),
    "the rest has no order": (
        3,
        by_row(
            lambda _, row: (
                replace(row, log_rest=row.log_rest[::-1])
                if row.log_rest[0] < row.log_rest[1]
                else replace(row, log_rest=(0.0, -1.0))
            )
        ),
    ),
    "an unknown token is more probable": (3, by_row(lambda _, row: replace(row, rest_max=row.rest_max - 0.1))),
}


@pytest.mark.parametrize(("law", "spoil"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_breaks_its_law(law, spoil):
    """Answers that are wrong in one way."""
    with pytest.raises(LawBroken) as broken:
        check(Faulty(PathsOf(HashModel(1)), spoil))
    assert broken.value.law == law


class Silent(Faulty):
    """Closed, or asked what breaks a limit, it answers as if nothing were wrong."""

    def __init__(self, model, answers):
        super().__init__(model)
        self.answers = answers

    def rows(self, queries, cancellation):
        try:
            return super().rows(queries, cancellation)
        except self.answers:
            return []


@pytest.mark.parametrize(("law", "model"), [
    (4, lambda: Silent(PathsOf(HashModel(1)), OptionError)),
    (4, lambda: Silent(PathsOf(HashModel(1)), TokenRangeError)),
    (4, lambda: Faulty(PathsOf(HashModel(1)), asks_first=True)),
    (5, lambda: Silent(PathsOf(HashModel(1)), CancelledError)),
    (5, lambda: Silent(PathsOf(HashModel(1)), ClosedError)),
    (5, lambda: Faulty(PathsOf(HashModel(1)), is_deaf=True)),
])  # fmt: skip
def test_a_call_that_must_fail_and_does_not_breaks_its_law(law, model):
    """Limits, tokens, cancelling and closing."""
    with pytest.raises(LawBroken) as broken:
        check(model())
    assert broken.value.law == law


def test_the_tolerance_is_the_models_own():
    """What moves by less than the model says is no fault."""

    def spoil(queries, rows):
        return [replace(row, logp=row.logp - 1e-4 * (len(queries) > 1)) for row in rows]

    report = check(Faulty(PathsOf(HashModel(1), tolerance=1e-3), spoil))
    assert 9e-5 < report.worst_nats < 1.1e-4
    with pytest.raises(LawBroken, match=r"law [13]"):
        check(Faulty(PathsOf(HashModel(1), tolerance=1e-5), spoil))


def test_rows_are_those_of_the_model():
    """Each value has the bits of the row that `extend` gives; hidden rests are 1 minus what is known."""
    model = HashModel(5)
    path = ids(1, 4, 2)
    expected = DenseRows(np.array([HashModel(5).row(path)]))
    query = RowQuery(path, ids(9, 3), top=2)
    (row,) = PathsOf(model).rows([query], Cancellation())
    top = expected.top(0, 2)[0]
    assert row.ids.tolist() == sorted({9, 3, *top.tolist()})
    assert row.logp.tolist() == expected.logp(0, row.ids).tolist()
    assert row.log_rest == (expected.log_rest(0, row.ids),) * 2
    others = np.setdiff1d(np.arange(len(model.vocabulary.pieces)), row.ids)
    assert row.rest_max == expected.logp(0, others).max()
    (hidden,) = PathsOf(HashModel(5), hides_rest=True).rows([query], Cancellation())
    assert hidden.rest_max == expected.top(0, 2)[1][1]
    assert hidden.log_rest[0] < row.log_rest[0] < hidden.log_rest[1] < row.log_rest[0] + 1e-4
    (named,) = PathsOf(HashModel(5), hides_rest=True).rows([replace(query, top=0)], Cancellation())
    assert named.rest_max == named.log_rest[1]


def test_prefixes_are_evaluated_once():
    """Paths that share a beginning share its rows, which stay cached."""
    model = HashModel(5)
    paths = PathsOf(model)
    queries = [RowQuery(ids(1, 4, 2, 5, token), ids(1)) for token in (3, 6, 7)]
    paths.rows(queries, Cancellation())
    assert model.rows == 4 + 3
    assert paths.identity.precision == "remote"
    parents = chain(ROOT, 2)
    everything = np.ones(2, dtype=np.bool_)
    assert model.extend(parents, ids(1, 4), everything & False, everything).rows_evaluated == 0
