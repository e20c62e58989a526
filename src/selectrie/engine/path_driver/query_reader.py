"""Reads rows from a `PathModel`, by queries that jobs share, and keeps them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from queue import SimpleQueue

import numpy as np

from selectrie.core.partial_rows import BoundedRows, merge_bounds
from selectrie.core.path_model import Answer, Cancellation, PathLimits, PathModel, RowBounds, RowQuery
from selectrie.core.rows import Reads
from selectrie.core.types import Capacity, Cost, IntArray
from selectrie.engine.scheduler.scheduler import copy_error
from selectrie.errors import CancelledError, ClosedError, DecodeError, SelectrieError, WholeRowsError

_NO_IDS: IntArray = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class RowWants:
    """What is wanted of one row.

    Attributes:
        named: int32[m], tokens whose log-probabilities are wanted, ascending.
        top: How many of the most probable tokens are wanted.
        has_best: Whether it is asked again if the most probable token is not certain.
        needs_best: Whether the call fails if it is not certain then.
    """

    named: IntArray
    top: int
    has_best: bool
    needs_best: bool


def row_wants(reads: Reads, limits: PathLimits, n_tokens: int) -> list[RowWants]:
    """Return what is wanted of each row of `reads`.

    Tokens whose log-probabilities are read are always named. The tokens of a mass, of a
    rest, or among which the best are looked for, are named if that takes no further
    query, the smallest sets first. Of larger sets, those among the most probable tokens
    of the row are known, and the others have bounds. One more of the most probable
    tokens is wanted than is read, because the last may be as probable as one that is
    not known.

    Raises:
        WholeRowsError: If whole rows are read.
    """
    if len(reads.whole):
        raise WholeRowsError("this request")
    order = np.argsort(reads.owner, kind="stable")
    bounds = np.searchsorted(reads.owner[order], np.arange(reads.n_rows + 1)).tolist()
    ids = reads.ids[order]
    named = [np.unique(ids[start:stop]) for start, stop in pairwise(bounds)]
    sets: list[list[IntArray]] = [[] for _ in range(reads.n_rows)]
    tops = [2 if reads.best else 0] * reads.n_rows
    has_best = [reads.best] * reads.n_rows
    for one in (*reads.masses, *reads.rests):
        sets[one.row].append(one.ids)
    for top in reads.tops:
        if top.allowed is None:
            tops[top.row] = max(tops[top.row], top.k + 1)
            has_best[top.row] |= top.k == 1
        elif top.k:
            is_mask = top.allowed.dtype == np.bool_
            sets[top.row].append(np.flatnonzero(top.allowed).astype(np.int32) if is_mask else np.unique(top.allowed))
    wants = []
    for own, others, n_top, best in zip(named, sets, tops, has_best, strict=True):
        all_ids, is_whole = _with_sets(own, others, limits.named_ids)
        most = min(limits.top_ids, n_tokens)
        wants.append(RowWants(all_ids, min(n_top, most) if is_whole else most, best, reads.best))
    return wants


def _with_sets(named: IntArray, sets: list[IntArray], max_named: int) -> tuple[IntArray, bool]:
    """Return the tokens to name, int32[], and whether they hold all tokens of the sets.

    They take as many queries as `named` does, or one.
    """
    room = max(1, -(-len(named) // max(1, max_named))) * max_named
    is_whole = True
    for ids in sorted(sets, key=len):
        union = np.union1d(named, ids) if len(ids) <= room else _NO_IDS
        if len(ids) <= room and len(union) <= room:
            named = union
        else:
            is_whole = False
    return named.astype(np.int32), is_whole


_ENTRY_BYTES = 500
"""Bytes that an entry takes beside its arrays."""
NO_IDS: IntArray = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class KnownRow:
    """What is known of a row.

    Attributes:
        row: What all answers say together.
        top: How many of the most probable tokens are certainly in it.
    """

    row: RowBounds
    top: int

    def missing(self, wants: RowWants) -> tuple[IntArray, int]:
        """Return the tokens that are to be named, and the most probable ones, if any.

        Nothing is missing if every other token has probability 0.
        """
        if self.row.log_rest[1] == -np.inf:
            return NO_IDS, 0
        named = np.setdiff1d(wants.named, self.row.ids, assume_unique=True).astype(np.int32)
        return named, wants.top if wants.top > self.top else 0


UNKNOWN = KnownRow(RowBounds(NO_IDS, np.empty(0), (-np.inf, 0.0), 0.0), 0)
"""A row of which nothing is known."""


class RowStore:
    """Keeps what is known of rows, and drops what was not used for the longest time.

    Args:
        max_bytes: Bytes that the rows may take, roughly.
        n_tokens: Number of tokens of the vocabulary.
        tolerance: Nats by which answers about a row may differ.

    Attributes:
        nbytes: Bytes that they take.
    """

    def __init__(self, max_bytes: int, n_tokens: int, tolerance: float) -> None:
        self._max_bytes, self._n_tokens, self._tolerance = max_bytes, n_tokens, tolerance
        self._rows: OrderedDict[bytes, KnownRow] = OrderedDict()
        self.nbytes = 0

    def get(self, key: bytes) -> KnownRow:
        """Return what is known of the row after a path, by its key."""
        known = self._rows.get(key)
        if known is None:
            return UNKNOWN
        self._rows.move_to_end(key)
        return known

    def joined(self, known: KnownRow, row: RowBounds, top: int) -> KnownRow:
        """Return what is known with a further answer, which has the `top` best."""
        if known is UNKNOWN:
            return KnownRow(row, top)
        return KnownRow(merge_bounds([known.row, row], self._n_tokens, self._tolerance), max(known.top, top))

    def put(self, key: bytes, known: KnownRow) -> None:
        """Keep what is known of a row, in place of what was known before."""
        before = self._rows.pop(key, None)
        self.nbytes += _nbytes(known) - (0 if before is None else _nbytes(before))
        self._rows[key] = known
        while self.nbytes > self._max_bytes:
            self.nbytes -= _nbytes(self._rows.popitem(last=False)[1])

    def clear(self) -> None:
        """Drop all rows."""
        self._rows.clear()
        self.nbytes = 0


def _nbytes(known: KnownRow) -> int:
    return _ENTRY_BYTES + known.row.ids.nbytes + known.row.logp.nbytes


def path_key(path: IntArray) -> bytes:
    """Return a key of a path; equal paths have equal keys."""
    return blake2b(path.tobytes(), digest_size=16).digest()


ROW_CACHE_BYTES = 64 << 20
"""Bytes of rows that are kept for later, about 80 000 rows of 20 tokens."""
_ASK_ROWS = 4096
"""Maximum number of rows of one ask of a task: their values are held at once."""
_ANY = 1 << 40
"""More nodes and branches than a task can hold."""

Done = Callable[[Answer | BaseException], None]


@dataclass(slots=True, eq=False)
class _Asked:
    """Rows that were taken up by one call of `start`.

    Attributes:
        paths, wants, done, priority: As they were given, or made of it.
        keys: Key of each path.
        known: What is known of each row.
        queries: Queries that are to be sent in its turn. Those that are sent already,
            that belong to another call, or that nothing waits for, are skipped.
        waits: The queries that it waits for, as (query, number of the row).
        own_rows: Numbers of the rows that queries were made for.
        cost: What the requests that carried these queries took.
        asks_again: Whether the most probable tokens were asked for a second time.
        is_over: Whether `done` was called, or is about to be.
    """

    paths: Sequence[IntArray]
    wants: list[RowWants]
    done: Done
    priority: int
    keys: list[bytes]
    known: list[KnownRow] = field(default_factory=list)
    queries: deque[_Query] = field(default_factory=deque)
    waits: set[tuple[_Query, int]] = field(default_factory=set)
    own_rows: set[int] = field(default_factory=set)
    cost: Cost = field(default_factory=Cost)
    asks_again: bool = False
    is_over: bool = False


@dataclass(slots=True, eq=False)
class _Query:
    """One query, and what waits for its answer.

    Attributes:
        key: Key of the path.
        paths, index: Where the path is made.
        named, top: As in `RowQuery`.
        owner: The call in whose turn it is sent.
        waiting: What waits for it, as (call, number of the row), in order.
        request: The request that carries it; None before it is sent.
        is_alone: Whether it must not share a request with queries of other calls.
    """

    key: bytes
    paths: Sequence[IntArray]
    index: int
    named: IntArray
    top: int
    owner: _Asked
    waiting: list[tuple[_Asked, int]] = field(default_factory=list)
    request: _Request | None = None
    is_alone: bool = False

    def made(self) -> RowQuery:
        """Return the query as the model takes it."""
        return RowQuery(self.paths[self.index], self.named, self.top)


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """Queries that are sent together."""

    queries: list[_Query]
    cancellation: Cancellation = field(default_factory=Cancellation)


class QueryReader:
    """Reads rows from a model that is asked for them by their path (`RowReader`).

    Queries that wait at the same time share requests. What is known of a row is kept,
    and a later call asks only for what is missing. A query that is under way serves
    every call that wants its values, and ends when none of them wants it any more.

    Args:
        model: The model; `close` closes it.
        cache_bytes: Bytes of rows that are kept for later, roughly.
    """

    def __init__(self, model: PathModel, *, cache_bytes: int = ROW_CACHE_BYTES) -> None:
        self._model, self._limits = model, model.limits
        self._n_tokens = len(model.vocabulary.pieces)
        self._store = RowStore(cache_bytes, self._n_tokens, model.tolerance)
        # Taken by this reader's threads and by the one that calls the methods. What is
        # foreign is called without it (`_calls`).
        self._lock = threading.Lock()
        self._turns: list[_Asked] = []
        self._open: dict[bytes, list[_Query]] = {}
        self._in_flight: set[_Request] = set()
        self._inbox: SimpleQueue[_Request | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._calls: deque[Callable[[], None]] = deque()
        self._is_closed = False

    def capacity(self, floor: Capacity) -> Capacity:
        # Nothing is held for a task, so it may hold any number of nodes.
        return Capacity(max(floor.rows, _ASK_ROWS), max(floor.nodes, _ANY), max(floor.sequences, _ANY))

    def start(
        self,
        paths: Sequence[IntArray],
        reads: Reads,
        done: Done,
        cancellation: Cancellation,
        *,
        priority: int = 0,
    ) -> None:
        try:
            wants = row_wants(reads, self._limits, self._n_tokens)
        except SelectrieError as error:
            done(error)
            return
        asked = _Asked(paths, wants, done, priority, [path_key(path) for path in paths])
        with self._lock:
            if self._is_closed:
                self._end(asked, ClosedError("the model"))
            else:
                asked.known = [self._store.get(key) for key in asked.keys]
                for index, want in enumerate(wants):
                    self._want(asked, index, want)
                self._go_on(asked)
        self._make_calls()
        cancellation.when_cancelled(lambda: self._cancel(asked))

    def flush(self) -> None:
        with self._lock:
            self._send()

    def clear(self) -> None:
        with self._lock:
            self._store.clear()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for query in [query for queries in self._open.values() for query in queries]:
                for asked, _ in tuple(query.waiting):
                    self._end(asked, ClosedError("the model"))
        self._make_calls()
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._model.close()

    def _cancel(self, asked: _Asked) -> None:
        with self._lock:
            self._end(asked, CancelledError())
        self._make_calls()

    def _make_calls(self) -> None:
        """Call what became due while the lock was held."""
        while self._calls:
            with suppress(IndexError):  # another thread makes the last call
                self._calls.popleft()()

    # The methods below are called with the lock held.

    def _want(self, asked: _Asked, index: int, want: RowWants) -> None:
        """Wait for queries that are under way, and make those that are still needed."""
        key = asked.keys[index]
        named, top = asked.known[index].missing(want)
        for query in self._open.get(key, ()):
            left = np.setdiff1d(named, query.named, assume_unique=True).astype(np.int32)
            if len(left) < len(named) or 0 < top <= query.top:
                self._wait(asked, index, query)
                named, top = left, 0 if top <= query.top else top
        step = max(1, self._limits.named_ids)
        for start in range(0, max(len(named), min(top, 1)), step):
            query = _Query(key, asked.paths, index, named[start : start + step], top, asked)
            top = 0
            self._open.setdefault(key, []).append(query)
            asked.own_rows.add(index)
            self._wait(asked, index, query)

    def _wait(self, asked: _Asked, index: int, query: _Query) -> None:
        query.waiting.append((asked, index))
        asked.waits.add((query, index))
        if query.request is None and (query.owner is asked or query.owner.priority < asked.priority):
            self._take_turn(asked, query)

    def _take_turn(self, asked: _Asked, query: _Query) -> None:
        """Have a query sent in the turn of a call."""
        query.owner = asked
        asked.queries.append(query)
        if asked not in self._turns:
            self._turns.append(asked)

    def _go_on(self, asked: _Asked) -> None:
        """End a call that waits for nothing more, or ask for what is not certain."""
        if asked.waits or asked.is_over:
            return
        rows = BoundedRows([known.row for known in asked.known], self._n_tokens)
        doubtful = [i for i, want in enumerate(asked.wants) if want.has_best and not len(rows.top(i, 1)[0])]
        if doubtful and not asked.asks_again:
            asked.asks_again = True
            top = min(self._limits.top_ids, self._n_tokens)
            for index in doubtful:
                self._want(asked, index, replace(asked.wants[index], top=top))
        if asked.waits:
            return
        needed = [i for i in doubtful if asked.wants[i].needs_best]
        if needed:
            n_top = asked.known[needed[0]].top
            self._end(asked, DecodeError(f"the most probable token is one of more than {n_top} that are equal"))
        else:
            self._end(asked, Answer(rows, replace(asked.cost, rows=len(asked.own_rows))))

    def _end(self, asked: _Asked, outcome: Answer | BaseException) -> None:
        """Have `done` called, and drop the queries that nothing else waits for."""
        if asked.is_over:
            return
        asked.is_over = True
        self._calls.append(partial(asked.done, outcome))
        if asked in self._turns:
            self._turns.remove(asked)
        for query, index in asked.waits:
            query.waiting.remove((asked, index))
            if not query.waiting:
                self._drop(query)
            elif query.owner is asked and query.request is None:
                self._take_turn(query.waiting[0][0], query)
        asked.waits.clear()

    def _drop(self, query: _Query) -> None:
        """Forget a query, and cancel its request if nothing waits for any of it."""
        queries = self._open.get(query.key, [])
        if query in queries:
            queries.remove(query)
        if not queries:
            self._open.pop(query.key, None)
        request = query.request
        if request in self._in_flight and not any(one.waiting for one in request.queries):
            self._calls.append(request.cancellation.cancel)

    def _send(self) -> None:
        """Send requests while some may be made, and queries wait."""
        while len(self._in_flight) < max(1, self._limits.requests_in_flight):
            queries = self._next_queries()
            if not queries or self._is_closed:
                return
            request = _Request(queries)
            for query in queries:
                query.request = request
            self._in_flight.add(request)
            self._inbox.put(request)
            if len(self._threads) < len(self._in_flight):
                thread = threading.Thread(target=self._work, name="selectrie-request", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _next_queries(self) -> list[_Query]:
        """Return the queries of the next request.

        Calls take turns within a priority.
        """
        queries: list[_Query] = []
        max_queries = max(1, self._limits.queries_per_request)
        for asked in sorted(self._turns, key=lambda one: -one.priority):
            n_before = len(queries)
            while asked.queries and len(queries) < max_queries:
                query = asked.queries[0]
                if (query.is_alone and n_before) or (queries and query.is_alone != queries[0].is_alone):
                    break
                asked.queries.popleft()
                if query.owner is asked and query.request is None and query.waiting:
                    queries.append(query)
            if len(queries) > n_before or not asked.queries:
                self._turns.remove(asked)
                if asked.queries:
                    self._turns.append(asked)
            if len(queries) == max_queries or (queries and queries[0].is_alone):
                break
        return queries

    def _finish(self, request: _Request, outcome: list[RowBounds] | BaseException, seconds: float) -> None:
        self._in_flight.discard(request)
        owners = {query.owner: 0 for query in request.queries}
        for query in request.queries:
            owners[query.owner] += 1
        for owner, n in owners.items():
            owner.cost += Cost(model_calls=1, decode_s=seconds * n / len(request.queries))
        if isinstance(outcome, BaseException):
            self._fail(request, outcome, is_shared=len(owners) > 1)
            return
        for query, row in zip(request.queries, outcome, strict=True):
            if len(np.setdiff1d(query.named, row.ids)):
                self._fail(_Request([query]), DecodeError("the model left out tokens that were named"), is_shared=False)
                continue
            known = self._store.joined(self._store.get(query.key), row, query.top)
            self._store.put(query.key, known)
            waiting, query.waiting = query.waiting, []
            self._drop(query)
            for asked, index in waiting:
                asked.waits.discard((query, index))
                asked.known[index] = self._store.joined(asked.known[index], row, query.top)
            for asked, _ in waiting:
                self._go_on(asked)

    def _fail(self, request: _Request, error: BaseException, *, is_shared: bool) -> None:
        """End what waits for a request that failed.

        If it carried queries of several calls, those of each are sent again by
        themselves, so that one call's query does not fail the others.
        """
        for query in request.queries:
            if is_shared and query.waiting:
                query.request, query.is_alone = None, True
                self._take_turn(query.waiting[0][0], query)
                continue
            for asked, _ in tuple(query.waiting):
                self._end(asked, copy_error(error))

    # In the threads that call the model, without the lock:

    def _work(self) -> None:
        while (request := self._inbox.get()) is not None:
            began = time.perf_counter()
            outcome: list[RowBounds] | BaseException
            try:
                outcome = self._model.rows([query.made() for query in request.queries], request.cancellation)
                if len(outcome) != len(request.queries):
                    outcome = DecodeError(f"the model gave {len(outcome)} rows for {len(request.queries)} queries")
            except BaseException as error:  # noqa: BLE001 - a model is foreign code; the error goes to its callers
                outcome = error
            with self._lock:
                self._finish(request, outcome, time.perf_counter() - began)
                self._send()
            self._make_calls()
            del request, outcome  # nothing is kept while this thread waits
