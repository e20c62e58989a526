"""Reads rows from a `PathModel`, by queries that jobs share, and caches them."""

from __future__ import annotations

import threading
import time
from collections import deque
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
from selectrie.core.sized_cache import SizedCache
from selectrie.core.types import Capacity, Cost, IntArray
from selectrie.engine.scheduler.scheduler import copy_error
from selectrie.errors import CancelledError, ClosedError, DecodeError, SelectrieError, WholeRowsError

_NO_IDS: IntArray = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class RowWants:
    """The values that a task wants of one row.

    Attributes:
        named: int32[m], tokens whose log-probabilities are wanted, ascending.
        top: Number of most probable tokens that are wanted.
        has_best: Whether to ask again if the most probable token is not certain.
        needs_best: Whether the call fails if it is still not certain then.
    """

    named: IntArray
    top: int
    has_best: bool
    needs_best: bool


def row_wants(reads: Reads, limits: PathLimits, n_tokens: int) -> list[RowWants]:
    """Return the wanted values of each row of `reads`.

    Tokens whose log-probabilities are read are always named. The token sets of
    `masses`, `rests` and restricted `tops` are named if that takes no further query,
    the smallest sets first. For larger sets, the most probable tokens of the row are
    wanted, and the others have bounds. One most probable token more is wanted than is
    read, because the last one may be as probable as an unknown token.

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
        all_ids, is_whole = _add_sets(own, others, limits.named_ids)
        most = min(limits.top_ids, n_tokens)
        wants.append(RowWants(all_ids, min(n_top, most) if is_whole else most, best, reads.best))
    return wants


def _add_sets(named: IntArray, sets: list[IntArray], max_named: int) -> tuple[IntArray, bool]:
    """Add token sets to the tokens to name, as long as no further query is needed.

    Returns the tokens, int32[], and whether they include all sets.
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
"""Approximate size of a cache entry without its arrays, in bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownRow:
    """The known values of a row.

    Attributes:
        row: The values and bounds of all answers, merged.
        top: Number of most probable tokens that are certainly among the values.
    """

    row: RowBounds
    top: int

    @property
    def nbytes(self) -> int:
        """Return the approximate size of the values in bytes."""
        return _ENTRY_BYTES + self.row.ids.nbytes + self.row.logp.nbytes

    def missing(self, wants: RowWants) -> tuple[IntArray, int]:
        """Return the wanted tokens that are unknown, int32[], and the `top` to ask for.

        `top` is 0 if enough of the most probable tokens are known. Nothing is missing
        if every unknown token has probability 0.
        """
        if self.row.log_rest[1] == -np.inf:
            return _NO_IDS, 0
        named = np.setdiff1d(wants.named, self.row.ids, assume_unique=True).astype(np.int32)
        return named, wants.top if wants.top > self.top else 0


UNKNOWN = KnownRow(RowBounds(_NO_IDS, np.empty(0), (-np.inf, 0.0), 0.0), 0)
"""A row without known values."""


def path_key(path: IntArray) -> bytes:
    """Return the cache key of a path; equal paths have equal keys."""
    return blake2b(path.tobytes(), digest_size=16).digest()


ROW_CACHE_BYTES = 64 << 20
"""Maximum size of the row cache in bytes, about 80 000 rows of 20 tokens."""
_ASK_ROWS = 4096
"""Maximum number of rows of one ask of a task, whose values are all in memory."""
_UNLIMITED = 1 << 40
"""A number of nodes and branches beyond the needs of any task."""

Done = Callable[[Answer | BaseException], None]


@dataclass(slots=True, eq=False)
class _RowCall:
    """One call of `start`: the rows to read, and the state of the reading.

    Attributes:
        paths, done, priority: The arguments of `start`.
        wants: The wanted values of each row.
        keys: Key of each path.
        known: The known values of each row.
        queries: Queries to send in the turn of this call. Some may be obsolete when the
            turn comes: sent already, owned by another call, or no longer needed.
        waits: The queries whose answers are missing, as (query, index of the row).
        own_rows: Indices of the rows that this call created queries for.
        cost: This call's share of the cost of the requests.
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
    """A query, and the calls that wait for its answer.

    Attributes:
        key: Key of the path.
        paths, index: The path, as an element of a sequence; it is built when sent.
        named, top: As in `RowQuery`.
        owner: The call in whose turn the query is sent.
        waiting: The calls that wait for it, as (call, index of the row), in order.
        request: The request that carries the query; None before it is sent.
        is_alone: Whether the query must not share a request with other calls' queries.
    """

    key: bytes
    paths: Sequence[IntArray]
    index: int
    named: IntArray
    top: int
    owner: _RowCall
    waiting: list[tuple[_RowCall, int]] = field(default_factory=list)
    request: _Request | None = None
    is_alone: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """Queries that are sent together."""

    queries: list[_Query]
    cancellation: Cancellation = field(default_factory=Cancellation)


class QueryReader:
    """Reads rows from a model that is asked for rows by their path (`RowReader`).

    Queries that wait at the same time share requests. Known values of a row are cached,
    and a later call asks only for missing ones. A query in progress serves every call
    that wants its values, and is cancelled when no call wants them any more.

    Args:
        model: The model; `close` closes it.
        cache_bytes: Approximate maximum size of the row cache in bytes.
    """

    def __init__(self, model: PathModel, *, cache_bytes: int = ROW_CACHE_BYTES) -> None:
        self._model, self._limits = model, model.limits
        self._n_tokens = len(model.vocabulary.pieces)
        self._store: SizedCache[bytes, KnownRow] = SizedCache(cache_bytes)
        # Held by this reader's threads and by callers of its methods. Foreign callbacks
        # are called without it (`_calls`).
        self._lock = threading.Lock()
        self._turns: list[_RowCall] = []  # calls with queries to send, in the order of their turns
        self._open: dict[bytes, list[_Query]] = {}
        self._in_flight: set[_Request] = set()
        self._inbox: SimpleQueue[_Request | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._calls: deque[Callable[[], None]] = deque()
        self._is_closed = False

    def capacity(self, floor: Capacity) -> Capacity:
        """Return the capacity for one ask: its rows are limited, nodes are not.

        Nothing is held for a task, so it may hold any number of nodes.
        """
        return Capacity(max(floor.rows, _ASK_ROWS), max(floor.nodes, _UNLIMITED), max(floor.sequences, _UNLIMITED))

    def start(
        self,
        paths: Sequence[IntArray],
        reads: Reads,
        done: Done,
        cancellation: Cancellation,
        *,
        priority: int = 0,
    ) -> None:
        """Start to read rows; see `RowStarter`. `done` gets the answer or an error."""
        try:
            wants = row_wants(reads, self._limits, self._n_tokens)
        except SelectrieError as error:
            done(error)
            return
        call = _RowCall(paths, wants, done, priority, [path_key(path) for path in paths])
        with self._lock:
            if self._is_closed:
                self._end(call, ClosedError("the model"))
            else:
                call.known = [self._store.get(key) or UNKNOWN for key in call.keys]
                for index, want in enumerate(wants):
                    self._request_row(call, index, want)
                self._continue(call)
        self._make_calls()
        cancellation.when_cancelled(lambda: self._cancel(call))

    def flush(self) -> None:
        """Send the queries that wait, as far as requests may be in flight."""
        with self._lock:
            self._send()

    def clear(self) -> None:
        """Drop all cached rows."""
        with self._lock:
            self._store.clear()

    def close(self) -> None:
        """End all calls with `ClosedError`, end the threads and close the model."""
        with self._lock:
            self._is_closed = True
            for query in [query for queries in self._open.values() for query in queries]:
                for call, _ in tuple(query.waiting):
                    self._end(call, ClosedError("the model"))
        self._make_calls()
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._model.close()

    def _cancel(self, call: _RowCall) -> None:
        """End a call with `CancelledError`."""
        with self._lock:
            self._end(call, CancelledError())
        self._make_calls()

    def _make_calls(self) -> None:
        """Call the callbacks that were collected while the lock was held."""
        while self._calls:
            with suppress(IndexError):  # another thread makes the last call
                self._calls.popleft()()

    # The methods below are called with the lock held.

    def _request_row(self, call: _RowCall, index: int, want: RowWants) -> None:
        """Join open queries for the missing values of a row, and create the others."""
        key = call.keys[index]
        named, top = call.known[index].missing(want)
        for query in self._open.get(key, ()):
            left = np.setdiff1d(named, query.named, assume_unique=True).astype(np.int32)
            if len(left) < len(named) or 0 < top <= query.top:
                self._wait_for(call, index, query)
                named, top = left, 0 if top <= query.top else top
        step = max(1, self._limits.named_ids)
        for start in range(0, max(len(named), min(top, 1)), step):
            query = _Query(key, call.paths, index, named[start : start + step], top, call)
            top = 0
            self._open.setdefault(key, []).append(query)
            call.own_rows.add(index)
            self._wait_for(call, index, query)

    def _wait_for(self, call: _RowCall, index: int, query: _Query) -> None:
        """Let a call wait for a query, whose answer is its row `index`.

        A query that was not sent yet is sent in the turn of its owner: the call that
        made it, then a waiting call of higher priority.
        """
        query.waiting.append((call, index))
        call.waits.add((query, index))
        if query.request is None and (query.owner is call or query.owner.priority < call.priority):
            self._take_turn(call, query)

    def _take_turn(self, call: _RowCall, query: _Query) -> None:
        """Let a query be sent in the turn of this call."""
        query.owner = call
        call.queries.append(query)
        if call not in self._turns:
            self._turns.append(call)

    def _continue(self, call: _RowCall) -> None:
        """End a call that waits for no query, or ask again for uncertain values."""
        if call.waits or call.is_over:
            return
        rows = BoundedRows([known.row for known in call.known], self._n_tokens)
        doubtful = [i for i, want in enumerate(call.wants) if want.has_best and not len(rows.top(i, 1)[0])]
        if doubtful and not call.asks_again:
            call.asks_again = True
            top = min(self._limits.top_ids, self._n_tokens)
            for index in doubtful:
                self._request_row(call, index, replace(call.wants[index], top=top))
        if call.waits:
            return
        needed = [i for i in doubtful if call.wants[i].needs_best]
        if needed:
            n_top = call.known[needed[0]].top
            self._end(call, DecodeError(f"the most probable token is one of more than {n_top} that are equal"))
        else:
            self._end(call, Answer(rows, replace(call.cost, rows=len(call.own_rows))))

    def _end(self, call: _RowCall, outcome: Answer | BaseException) -> None:
        """Schedule `done` of a call, and drop the queries that no other call wants."""
        if call.is_over:
            return
        call.is_over = True
        self._calls.append(partial(call.done, outcome))
        if call in self._turns:
            self._turns.remove(call)
        for query, index in call.waits:
            query.waiting.remove((call, index))
            if not query.waiting:
                self._drop(query)
            elif query.owner is call and query.request is None:
                self._take_turn(query.waiting[0][0], query)
        call.waits.clear()

    def _drop(self, query: _Query) -> None:
        """Forget a query, and cancel its request if no call waits for it any more."""
        queries = self._open.get(query.key, [])
        if query in queries:
            queries.remove(query)
        if not queries:
            self._open.pop(query.key, None)
        request = query.request
        if request in self._in_flight and not any(one.waiting for one in request.queries):
            self._calls.append(request.cancellation.cancel)

    def _send(self) -> None:
        """Send requests while queries wait and more requests may be in flight."""
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

        Within a priority, calls take turns.
        """
        queries: list[_Query] = []
        max_queries = max(1, self._limits.queries_per_request)
        for call in sorted(self._turns, key=lambda one: -one.priority):
            n_before = len(queries)
            while call.queries and len(queries) < max_queries:
                query = call.queries[0]
                if (query.is_alone and n_before) or (queries and query.is_alone != queries[0].is_alone):
                    break
                call.queries.popleft()
                if query.owner is call and query.request is None and query.waiting:
                    queries.append(query)
            if len(queries) > n_before or not call.queries:
                self._turns.remove(call)
                if call.queries:
                    self._turns.append(call)
            if len(queries) == max_queries or (queries and queries[0].is_alone):
                break
        return queries

    def _finish(self, request: _Request, outcome: list[RowBounds] | BaseException, seconds: float) -> None:
        """Store a request's answers, or its error, and continue the waiting calls."""
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
            self._store.put(query.key, self._merge(self._store.get(query.key) or UNKNOWN, row, query.top))
            waiting, query.waiting = query.waiting, []
            self._drop(query)
            for call, index in waiting:
                call.waits.discard((query, index))
                call.known[index] = self._merge(call.known[index], row, query.top)
            for call, _ in waiting:
                self._continue(call)

    def _merge(self, known: KnownRow, row: RowBounds, top: int) -> KnownRow:
        """Return known values merged with another answer, which has the `top` best."""
        if known is UNKNOWN:
            return KnownRow(row, top)
        return KnownRow(merge_bounds([known.row, row], self._n_tokens, self._model.tolerance), max(known.top, top))

    def _fail(self, request: _Request, error: BaseException, *, is_shared: bool) -> None:
        """End the calls that wait for a failed request.

        If the request carried queries of several calls, the queries of each call are
        sent again by themselves, so that one call's query does not fail the others.
        """
        for query in request.queries:
            if is_shared and query.waiting:
                query.request, query.is_alone = None, True
                self._take_turn(query.waiting[0][0], query)
                continue
            for call, _ in tuple(query.waiting):
                self._end(call, copy_error(error))

    # In the threads that call the model, without the lock:

    def _work(self) -> None:
        """Send requests from the inbox to the model until None arrives."""
        while (request := self._inbox.get()) is not None:
            began = time.perf_counter()
            outcome: list[RowBounds] | BaseException
            try:
                outcome = self._model.rows(
                    [RowQuery(one.paths[one.index], one.named, one.top) for one in request.queries],
                    request.cancellation,
                )
                if len(outcome) != len(request.queries):
                    outcome = DecodeError(f"the model gave {len(outcome)} rows for {len(request.queries)} queries")
            except BaseException as error:  # noqa: BLE001 - a model is foreign code; the error goes to its callers
                outcome = error
            with self._lock:
                self._finish(request, outcome, time.perf_counter() - began)
                self._send()
            self._make_calls()
            del request, outcome  # nothing is kept while this thread waits
