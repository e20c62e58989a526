"""`QueryReader`: which queries are made, shared, kept and cancelled, and that rows are those of the model."""

from __future__ import annotations

import queue

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.path_model import Answer, Cancellation
from selectrie.core.rows import DenseRows, Reads, TokenSet, TopTokens
from selectrie.core.types import Capacity
from selectrie.engine.path_driver.query_reader import QueryReader
from selectrie.errors import CancelledError, ClosedError, DecodeError, WholeRowsError
from selectrie.testing import HashModel
from tests.support.gated_paths import LONG_S, GatedPaths, NotedPaths, limits
from tests.support.n_examples import n_examples

V = len(HashModel(1).vocabulary.pieces)


def ids(*values):
    return np.array(values, dtype=np.int32)


def paths_of(*paths):
    return [ids(*path) for path in paths]


class Asker:
    """Starts to read rows, and waits for what becomes of it."""

    def __init__(self, model, **options):
        self.model, self.reader = model, QueryReader(model, **options)

    def start(self, paths, reads, *, priority=0):
        """Start one reading; return the queue of its answers, and what cancels it."""
        answers, cancellation = queue.SimpleQueue(), Cancellation()
        self.reader.start(paths, reads, answers.put, cancellation, priority=priority)
        return answers, cancellation

    def read(self, paths, reads):
        """Read rows to the end."""
        answers, _ = self.start(paths, reads)
        self.reader.flush()
        return result(answers)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if isinstance(self.model, GatedPaths):
            self.model.open()
        self.reader.close()


def result(answers):
    """The one answer, or its error; there is no second one."""
    answer = answers.get(timeout=LONG_S)
    assert answers.empty()
    if isinstance(answer, Answer):
        return answer
    raise answer


def named(*tokens):
    return Reads.of_row(ids(*tokens))


def random_reads(rng, n):
    def some(k):
        return rng.choice(V, size=k, replace=False).astype(np.int32)

    def allowed():
        return [None, some(5), rng.random(V) < 0.5][rng.integers(3)]

    m = int(rng.integers(0, 9))
    return Reads(
        n,
        rng.integers(n, size=m),
        rng.integers(V, size=m).astype(np.int32),
        masses=tuple(TokenSet(int(rng.integers(n)), some(int(rng.integers(1, 12)))) for _ in range(2)),
        rests=tuple(TokenSet(int(rng.integers(n)), some(3)) for _ in range(2)),
        tops=tuple(TopTokens(int(rng.integers(n)), int(rng.integers(1, 6)), allowed()) for _ in range(2)),
        best=bool(rng.integers(2)),
    )


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 7, 100]), st.booleans())
@settings(max_examples=n_examples(40))
def test_rows_are_those_of_the_model(seed, named_ids, hides_rest):
    """Named tokens have their bits, bounds hold the values, and the most probable token is certain if it is read."""
    rng, plain = np.random.default_rng(seed), HashModel(seed % 100)
    model = NotedPaths(
        HashModel(seed % 100),
        limits=limits(named_ids=named_ids, top_ids=6, queries_per_request=3),
        hides_rest=hides_rest,
    )
    with Asker(model, cache_bytes=int(rng.choice([0, 1000, 1 << 20]))) as asker:
        for _ in range(4):
            n = int(rng.integers(1, 5))
            paths = paths_of(*((0, *rng.integers(2, 5, size=int(rng.integers(1, 3))).tolist()) for _ in range(n)))
            reads = random_reads(rng, n)
            rows = asker.read(paths, reads).rows
            dense = DenseRows(np.array([plain.row(path) for path in paths]))
            check(rows, dense, reads)
    assert all(len(query.named) <= named_ids and query.top <= 6 for query in model.queries)
    assert all(len(request) <= 3 for request in model.requests)
    assert model.n_at_once <= 2


def check(rows, dense, reads):
    assert rows.logp(reads.owner, reads.ids).tolist() == dense.logp(reads.owner, reads.ids).tolist()
    for one in reads.masses:
        low, high = rows.log_mass_bounds(one.row, one.ids)
        assert low <= dense.log_mass(one.row, one.ids) <= high
    for one in reads.rests:
        low, high = rows.log_rest_bounds(one.row, one.ids)
        assert low <= dense.log_rest(one.row, one.ids) <= high
    for one in reads.tops:
        top, expected = rows.top(one.row, one.k, one.allowed)[0], dense.top(one.row, V, one.allowed)
        assert top.tolist() == expected[0][: len(top)].tolist()
        assert rows.unseen_max(one.row, one.k, one.allowed) >= expected[1][len(top) :].max(initial=-np.inf)
        if one.allowed is None and one.k < 6:  # one more than is read can be asked for
            assert len(top) == one.k
    if reads.best:
        assert rows.best().tolist() == dense.best().tolist()


def test_tokens_that_are_too_many_for_a_query_are_asked_for_in_several():
    """Nine tokens, four of which may be named at once: three queries about one path, in one request."""
    model = NotedPaths(HashModel(1), limits=limits(named_ids=4))
    with Asker(model) as asker:
        answer = asker.read(paths_of((0, 5)), named(*range(2, 11)))
    assert [query.named.tolist() for query in model.queries] == [[2, 3, 4, 5], [6, 7, 8, 9], [10]]
    assert len(model.requests) == 1
    assert (answer.cost.model_calls, answer.cost.rows) == (1, 1)


def test_a_set_that_does_not_fit_is_bounded_by_the_most_probable_tokens():
    """A mass of many tokens takes no further query: its tokens are not named, and `top_ids` are asked for."""
    model = NotedPaths(HashModel(1), limits=limits(named_ids=4, top_ids=5))
    reads = Reads.of_row(ids(3), masses=[ids(4, 5), ids(*range(8, 20))])
    with Asker(model) as asker:
        rows = asker.read(paths_of((0,)), reads).rows
    [query] = model.queries
    assert (query.named.tolist(), query.top) == ([3, 4, 5], 5)
    assert rows.log_mass(0, [4, 5]) == DenseRows(HashModel(1).row([0])[None]).log_mass(0, [4, 5])
    low, high = rows.log_mass_bounds(0, np.arange(8, 20))
    assert low < high


def test_what_is_known_is_not_asked_again():
    """A second reading asks for the tokens that are missing alone, and a third for nothing."""
    model = NotedPaths(HashModel(1))
    with Asker(model) as asker:
        asker.read(paths_of((0, 5)), named(2, 3))
        asker.read(paths_of((0, 5)), named(3, 4, 6))
        answer = asker.read(paths_of((0, 5)), Reads.of_row(ids(2, 6), masses=[ids(3, 4)]))
        assert [query.named.tolist() for query in model.queries] == [[2, 3], [4, 6]]
        assert (answer.cost.model_calls, answer.cost.rows) == (0, 0)
        asker.reader.clear()
        asker.read(paths_of((0, 5)), named(2))
        assert len(model.queries) == 3


def test_the_most_probable_tokens_that_are_known_are_not_asked_again():
    """Not after named tokens were asked for in between, and not of a row of which every token is known."""
    model = NotedPaths(HashModel(1))
    best, everything = Reads.of_row(tops=[(3, None)]), named(*range(V))
    last = int(np.argmin(HashModel(1).row([0, 5])))
    with Asker(model) as asker:
        asker.read(paths_of((0, 5)), best)
        asker.read(paths_of((0, 5)), named(last))
        assert len(asker.read(paths_of((0, 5)), best).rows.top(0, 3)[0]) == 3
        assert [query.top for query in model.queries] == [4, 0]
        asker.read(paths_of((0, 6)), everything)
        assert len(asker.read(paths_of((0, 6)), best).rows.top(0, 3)[0]) == 3
        assert len(model.queries) == 3


def test_the_rows_that_are_kept_take_no_more_than_their_bytes():
    """Of three rows, the two that were used last are kept."""
    model = NotedPaths(HashModel(1))
    with Asker(model, cache_bytes=2 * (500 + 12) + 100) as asker:
        for last in (2, 3, 2, 4):
            asker.read(paths_of((0, last)), named(7))
        assert len(model.queries) == 3
        for last in (4, 2):
            asker.read(paths_of((0, last)), named(7))
        assert len(model.queries) == 3
        asker.read(paths_of((0, 3)), named(7))
        assert len(model.queries) == 4


def test_readings_that_wait_share_requests():
    """Nothing is sent before `flush`; then seven queries of three readings take two requests of four at most."""
    model = GatedPaths(HashModel(1))
    model.limits = limits(queries_per_request=4, requests_in_flight=2)
    with Asker(model) as asker:
        readings = [
            asker.start(
                paths_of(*((0, first, second) for second in range(2, 2 + n))), Reads(n, np.arange(n), ids(*[9] * n))
            )
            for first, n in ((2, 1), (3, 2), (4, 4))
        ]
        assert model.requests == []
        asker.reader.flush()
        model.wait_for(2)
        model.open()
        for answers, _ in readings:
            assert isinstance(result(answers), Answer)
    assert sorted(map(len, model.requests)) == [3, 4]


def test_no_more_requests_are_in_flight_than_are_worth_it():
    """Ten queries, one a request, three at once."""
    model = GatedPaths(HashModel(1))
    model.limits = limits(queries_per_request=1, requests_in_flight=3)
    with Asker(model) as asker:
        answers, _ = asker.start(paths_of(*((0, 2, i) for i in range(10))), Reads(10, np.arange(10), ids(*range(10))))
        asker.reader.flush()
        model.wait_for(3)
        model.open()
        assert result(answers).cost.model_calls == 10
    assert model.n_at_once == 3


def test_a_query_that_is_under_way_is_joined():
    """A second reading of a path waits for the first one's query, and asks only for what that does not bring."""
    model = GatedPaths(HashModel(1))
    with Asker(model) as asker:
        first, _ = asker.start(paths_of((0, 5)), named(2, 3))
        asker.reader.flush()
        model.wait_for(1)
        second, _ = asker.start(paths_of((0, 5)), named(3, 4))
        third, _ = asker.start(paths_of((0, 5), (0, 5)), Reads(2, ids(0, 1), ids(2, 3)))
        asker.reader.flush()
        model.wait_for(2)
        model.open()
        assert result(third).cost.rows == 0
        assert result(first).cost.rows == result(second).cost.rows == 1
    assert [query.named.tolist() for query in model.queries] == [[2, 3], [4]]


def test_cancelling_ends_the_requests_that_nothing_else_waits_for():
    """Of two readings, one of whose queries both wait for, one is cancelled; then the other."""
    model = GatedPaths(HashModel(1))
    model.limits = limits(queries_per_request=1)
    with Asker(model) as asker:
        first, cancel_first = asker.start(paths_of((0, 2), (0, 3)), Reads(2, ids(0, 1), ids(7, 7)))
        asker.reader.flush()
        model.wait_for(2)
        second, cancel_second = asker.start(paths_of((0, 3)), named(7))
        asker.reader.flush()
        cancel_first.cancel()
        with pytest.raises(CancelledError):
            result(first)
        model.wait_for_cancelled(1)
        assert model.cancelled == [[(0, 2)]]
        cancel_second.cancel()
        with pytest.raises(CancelledError):
            result(second)
        model.wait_for_cancelled(2)
        # What was cancelled is asked anew.
        third, _ = asker.start(paths_of((0, 3)), named(7))
        model.open()
        asker.reader.flush()
        assert isinstance(result(third), Answer)


def test_what_waits_passes_to_another_reading():
    """A query that is not sent yet, of a reading that is cancelled, is sent for the other one that waits for it."""
    model = GatedPaths(HashModel(1))
    model.limits = limits(queries_per_request=1, requests_in_flight=1)
    with Asker(model) as asker:
        busy, _ = asker.start(paths_of((0, 9)), named(7))
        asker.reader.flush()
        model.wait_for(1)
        first, cancel_first = asker.start(paths_of((0, 3)), named(7))
        second, _ = asker.start(paths_of((0, 3)), named(7))
        cancel_first.cancel()
        asker.reader.flush()
        model.open()
        assert isinstance(result(busy), Answer)
        assert isinstance(result(second), Answer)
        with pytest.raises(CancelledError):
            result(first)
    assert model.requests == [[(0, 9)], [(0, 3)]]


def test_a_reading_of_a_higher_priority_goes_first():
    """While one request is in flight, the rest waits; a query that both wait for goes with the higher priority."""
    model = GatedPaths(HashModel(1))
    model.limits = limits(queries_per_request=1, requests_in_flight=1)
    with Asker(model) as asker:
        low, _ = asker.start(paths_of(*((0, i) for i in range(2, 6))), Reads(4, np.arange(4), ids(*[7] * 4)))
        asker.reader.flush()
        model.wait_for(1)
        high, _ = asker.start(paths_of((0, 8), (0, 5)), Reads(2, ids(0, 1), ids(7, 7)), priority=1)
        asker.reader.flush()
        model.open()
        for answers in (low, high):
            assert isinstance(result(answers), Answer)
    assert [path for [path] in model.requests] == [(0, 2), (0, 8), (0, 5), (0, 3), (0, 4)]


def test_readings_of_one_priority_take_turns():
    """Two readings of three rows each, one row a request."""
    model = GatedPaths(HashModel(1))
    model.limits = limits(queries_per_request=1, requests_in_flight=1)
    with Asker(model) as asker:
        readings = [
            asker.start(paths_of(*((0, first, i) for i in (2, 3, 4))), Reads(3, np.arange(3), ids(7, 7, 7)))[0]
            for first in (5, 6)
        ]
        asker.reader.flush()
        model.open()
        for answers in readings:
            result(answers)
    assert [path[1] for [path] in model.requests] == [5, 6, 5, 6, 5, 6]


def test_a_failure_ends_the_reading_whose_query_fails():
    """Three readings share a request that fails; alone, two of them are answered."""
    model = NotedPaths(HashModel(1))
    model.failures[8] = DecodeError("no luck")
    with Asker(model) as asker:
        readings = [asker.start(paths_of((0, last)), named(7))[0] for last in (2, 8, 3)]
        asker.reader.flush()
        assert isinstance(result(readings[0]), Answer)
        assert isinstance(result(readings[2]), Answer)
        with pytest.raises(DecodeError, match="no luck") as failed:
            result(readings[1])
        assert failed.value is not model.failures[8]
        model.failures.clear()
        assert isinstance(asker.read(paths_of((0, 8)), named(7)), Answer)
    assert sorted(map(len, model.requests)) == [1, 1, 1, 1, 3]


def test_a_model_that_answers_too_little_is_an_error():
    """Rows are missing, or tokens that were named."""

    class Short(NotedPaths):
        def answer(self, queries, cancellation):
            rows = super().answer(queries, cancellation)
            return (
                rows[:-1]
                if len(queries) > 1
                else [type(row)(row.ids[1:], row.logp[1:], row.log_rest, 0.0) for row in rows]
            )

    with Asker(Short(HashModel(1))) as asker:
        with pytest.raises(DecodeError, match="1 rows for 2 queries"):
            asker.read(paths_of((0, 2), (0, 3)), Reads(2, ids(0, 1), ids(7, 7)))
        with pytest.raises(DecodeError, match="left out"):
            asker.read(paths_of((0, 2)), named(7))


def test_the_most_probable_token_is_asked_for_again_until_it_is_certain():
    """Of five tokens that are equally probable, two are not enough; where six are too few, that is an error."""
    logits = np.full(V, -9.0)
    logits[[3, 9, 11, 12, 20]] = 2.0
    planted = {(0, 2): logits, (0, 3): np.zeros(V)}
    model = NotedPaths(HashModel(1, planted=planted), limits=limits(top_ids=6), hides_rest=True)
    with Asker(model) as asker:
        reads = Reads(2, ids(0, 1), ids(3, 3), best=True)
        assert asker.read(paths_of((0, 2), (0, 4)), reads).rows.best().tolist()[0] == 3
        assert [query.top for query in model.queries] == [2, 2, 6]
        with pytest.raises(DecodeError, match="more than 6"):
            asker.read(paths_of((0, 3)), reads.take([0]))


def test_rows_of_which_nothing_is_read_are_not_asked_for():
    """They are there, and unknown; and so it is with no rows at all."""
    model = NotedPaths(HashModel(1))
    with Asker(model) as asker:
        answer = asker.read(paths_of((0, 2), (0, 3)), Reads(2, ids(1), ids(7)))
        assert len(answer.rows) == 2
        assert answer.rows.log_mass_bounds(0, [7])[0] == -np.inf
        assert len(asker.read([], Reads(0)).rows) == 0
    assert model.requests == [[(0, 3)]]


def test_whole_rows_are_refused():
    """Before anything is asked."""
    model = NotedPaths(HashModel(1))
    with Asker(model) as asker, pytest.raises(WholeRowsError):
        asker.read(paths_of((0, 2)), Reads.everything(1))
    assert model.requests == []


def test_closing_ends_what_is_read():
    """Requests that are under way are cancelled, what waits ends too, and so does what comes later."""
    model = GatedPaths(HashModel(1))
    model.limits = limits(queries_per_request=1, requests_in_flight=1)
    asker = Asker(model)
    answers, _ = asker.start(paths_of((0, 2), (0, 3)), Reads(2, ids(0, 1), ids(7, 7)))
    asker.reader.flush()
    model.wait_for(1)
    asker.reader.close()
    asker.reader.close()
    with pytest.raises(ClosedError):
        result(answers)
    assert model.cancelled == [[(0, 2)]]
    with pytest.raises(ClosedError):
        asker.read(paths_of((0, 2)), named(7))
    model.open()
    with pytest.raises(ClosedError):
        model.rows(model.queries[:1], Cancellation())


def test_a_task_is_offered_more_than_its_floor():
    """Nothing is held for it, so its nodes and branches have no bound."""
    with Asker(NotedPaths(HashModel(1))) as asker:
        floor = Capacity(rows=9999, nodes=1 << 50, sequences=3)
        offered = asker.reader.capacity(floor)
    assert offered.rows == 9999
    assert offered.nodes == 1 << 50
    assert offered.sequences > 1 << 30
