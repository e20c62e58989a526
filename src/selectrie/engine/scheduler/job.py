"""Defines a job (a task with its rows, its current ask, its result) and its outcome."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from selectrie.core.rows import Reads, Rows
from selectrie.core.types import NO_NODE, BoolArray, Capacity, Cost, IntArray
from selectrie.decoding.task import Ask, Task
from selectrie.decoding.trie.exhaustive import ReadRows
from selectrie.engine.scheduler.node_table import LinearRuns, NodeTable
from selectrie.engine.scheduler.turns import Turn
from selectrie.errors import CancelledError, DeadlineError, ProtocolError

R = TypeVar("R")

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.1
"""Maximum seconds of one wait of the main thread for another thread.

A signal that comes just before the system call does not interrupt it. Python then runs
the signal's handler only after the wait. No handler runs in the other threads, so they
wait without a limit: 1000 threads that woke so often would take a sixth of a core.
"""


class Outcome(Generic[R]):
    """The result or error of work on another thread, set once.

    `concurrent.futures.Future` guards its state with a `threading.Condition`, whose
    methods are Python code. If Ctrl-C is raised in them while the lock is held, the
    lock stays held, and the thread that sets the result waits for it forever. Here
    every shared step is a single operation on a builtin object.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._result: R | None = None
        self._error: BaseException | None = None
        self._callbacks: deque[Callable[[], None]] = deque()

    def done(self) -> bool:
        """Return whether the result or the error was set."""
        return self._is_set

    def set_result(self, result: R) -> None:
        """Set the result and call the callbacks."""
        self._result = result
        self._mark_set()

    def set_exception(self, error: BaseException) -> None:
        """Set the error and call the callbacks."""
        self._error = error
        self._mark_set()

    def _mark_set(self) -> None:
        """Mark the outcome as set and call the callbacks."""
        self._is_set = True
        while self._callbacks:
            with suppress(IndexError):  # its own thread has called the last one meanwhile
                _run_callback(self._callbacks.popleft())

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the outcome is set, or now if it is set already."""
        self._callbacks.append(callback)
        if self._is_set:
            with suppress(ValueError):  # the other thread calls it
                self._callbacks.remove(callback)
                _run_callback(callback)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait up to `timeout_s` seconds for the outcome; return whether it is set."""
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        is_main = threading.current_thread() is threading.main_thread()
        most_s = LOOK_AGAIN_S if is_main else threading.TIMEOUT_MAX
        is_waiting = threading.Lock()
        is_waiting.acquire()
        self.add_done_callback(is_waiting.release)
        while not self._is_set:
            left_s = min(most_s, until - time.monotonic())
            if left_s <= 0:
                break
            is_waiting.acquire(timeout=left_s)
        if not self._is_set:
            with suppress(ValueError):  # the other thread calls it
                self._callbacks.remove(is_waiting.release)
        return self._is_set

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None if there is none.

        Raises `TimeoutError` if the outcome is not set in time.
        """
        if not self._is_set and not self.wait(timeout):
            raise TimeoutError
        return self._error

    def result(self, timeout: float | None = None) -> R:
        """Return the result or raise the error.

        Raises `TimeoutError` if the outcome is not set in time.
        """
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del error  # the traceback refers to this frame
        return cast("R", self._result)


def _run_callback(callback: Callable[[], None]) -> None:
    """Call a callback; log its error, if any."""
    try:
        callback()
    except Exception:
        logger.exception("a callback of a finished task failed")


ROW_CACHE_BYTES = 64 << 20
"""Maximum size of the cached prompt-end rows in bytes: 100 rows of 152k tokens."""


class _Held(threading.local):
    """The functions that `wake_once` holds back on this thread; None outside of it."""

    functions: dict[Callable[[], object], None] | None = None


_HELD = _Held()


@contextmanager
def wake_once() -> Iterator[None]:
    """Call each function that is given to `wake` only once, at the end of the block."""
    held = _HELD.functions = {}
    try:
        yield
    finally:
        _HELD.functions = None
        for function in held:
            function()


def wake(function: Callable[[], object]) -> None:
    """Call a function that wakes another thread, now or at the end of `wake_once`."""
    if _HELD.functions is None:
        function()
    else:
        _HELD.functions[function] = None


@runtime_checkable
class SupportsDeadline(Protocol):
    """A task that can end with a partial result when its deadline passes."""

    def expire(self) -> None:
        """End the task now, so that `result` returns a partial result.

        Pending rows are ignored.
        """
        ...


RowObserver: TypeAlias = Callable[["Ask | None", "Capacity | None", Reads, Rows], None]
"""A callback that gets an ask, the capacity offered for it, `Reads` and the rows.

Ask and capacity are None for row 0. It is called before the task reads the rows. They
stay valid during the call.
"""


class Observer(Protocol):
    """Observes the tasks of an engine, for example to record a trace.

    Attributes:
        read_rows: Replaces the engine's cache of row values.
    """

    read_rows: ReadRows

    def begin(self, task: Task[Any], *, is_canonical: bool = False) -> RowObserver:
        """Return the callback that observes a new task.

        `is_canonical` says whether the task scores near ties in a separate memory.
        Raises `RequestError` if the task must not run while it is observed.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class BatchPart:
    """The rows of one job in one call, as plain lists that are joined to arrays.

    Attributes:
        job: The job that the rows belong to.
        parents: Parent of each row: a node, or ~j for the j-th row of the part.
        tokens: Token of each row.
        wanted: Whether the logits of each row are wanted.
        keep: Whether the node of each row may be a parent later.
        take: Called with the part's nodes and its wanted rows after the call.
        base: Numbers of the job's rows whose nodes the part extends.
        n_again: Number of rows that were evaluated before and then lost.
    """

    job: Job
    parents: list[int]
    tokens: list[int]
    wanted: list[bool]
    keep: list[bool]
    take: Callable[[list[int], Rows], None]
    base: list[int]
    n_again: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return a key; parts with the same rows have equal keys."""
        return tuple(self.parents), tuple(self.tokens)


class Account(Protocol):
    """Receives the cost of a request's tasks as soon as it arises.

    The methods are called on the model's thread and must not raise.
    """

    def note_admission(self) -> None:
        """Note that a task no longer waits for memory."""

    def add_cost(self, cost: Cost) -> None:
        """Add a task's share of the cost of a model call."""

    def add_reused(self, n_tokens: int) -> None:
        """Add the number of prompt tokens that a task found in the cache."""


_ACCOUNT: ContextVar[Account | None] = ContextVar("selectrie_account", default=None)


def charge_to(account: Account) -> None:
    """Let an account receive the cost of all jobs that are created in this context.

    The context is that of a thread or of an asyncio task.
    """
    _ACCOUNT.set(account)


def charge(cost: Cost) -> None:
    """Add the cost of model work outside jobs to the account of this context."""
    account = _ACCOUNT.get()
    if account is not None:
        account.note_admission()
        account.add_cost(cost)


def discount_reuse(n_tokens: int) -> None:
    """Correct the account for cached tokens whose evaluation it has paid for."""
    account = _ACCOUNT.get()
    if account is not None:
        account.add_reused(-n_tokens)


class RowCollector:
    """Collects the rows of an ask that is evaluated in several calls."""

    def __init__(self, wanted: BoolArray, reads: Callable[[], Reads]) -> None:
        """Start without rows.

        Args:
            wanted: bool[n], the wanted rows of the whole ask.
            reads: Returns the `Reads` of the task for these rows.
        """
        self._wanted, self._missing, self._reads = wanted, len(wanted), reads
        self._parts: list[Rows] = []
        self._order: list[NDArray[np.int64]] = []

    def add(self, elements: list[int], rows: Rows) -> Rows | None:
        """Add the rows of some elements of the ask, given in ascending order.

        Returns all wanted rows in the order of the ask once no element is missing, else
        None.
        """
        self._missing -= len(elements)
        if not self._missing and not self._parts:
            return rows.fetch(self._reads)
        chosen = np.array(elements, dtype=np.int64)
        numbers = (np.cumsum(self._wanted) - 1)[chosen[self._wanted[chosen]]]
        self._parts.append(rows.fetch(lambda: self._reads().take(numbers)).copy())
        self._order.append(numbers)
        if self._missing:
            return None
        return self._parts[0].stacked(self._parts[1:]).take(np.argsort(np.concatenate(self._order)))


class Job:
    """A task with its rows, its cost so far and the future that receives its result.

    Attributes:
        priority: Jobs with a higher priority go first.
        deadline: Time on the scheduler's clock, in seconds, or None.
        keep_cached: Whether the job's nodes stay cached when it ends, until room is
            needed.
        on_queued_no_more: Called when the job is admitted or ends, possibly twice.
        account: The `Account` that receives the job's cost, or None.
        observer: The callback that observes the task (`Observer.begin`), or None.
        request, client: The turns that the job's rows count for. By default, both
            belong to this job alone.
        rows_before: Number of rows that the job had cost when it was admitted.
        rows_owed: Number of rows that it must evaluate before it may be evicted for
            another client.
        n_passed: Number of jobs that were admitted before it although it was first.
        order: Number of the job in the order of submission.
        prompt, key: int32[T], the tokens of the prompt, and their bytes.
        rows: The task's local rows.
        ask: The ask that is evaluated now, or None.
        offered: The capacity that the task was offered for its last ask, or None.
        collector, runs: The rows of that ask received so far, and its runs; `runs` is
            None unless the model is recurrent.
        part: The job's part of the next call, or None.
        has_prompt_row: Whether the task has received the row of its prompt's end. True
            for an empty prompt, which has no such row.
        cursor, depth: Node up to which the prompt is evaluated, and its number of
            tokens.
        narrow: Whether the runs of a recurrent-state model go one by one, since several
            did not fit.
        cancelled: Whether the job was cancelled; any thread may set it.
        answered: Whether the future is set or about to be set.
    """

    def __init__(
        self,
        task: Task[Any],
        on_step: Callable[[], None] | None = None,
        *,
        priority: int = 0,
        deadline: float | None = None,
        keep_cached: bool = False,
    ) -> None:
        self.task, self.on_step = task, on_step
        self.priority, self.deadline, self.keep_cached = priority, deadline, keep_cached
        self.on_queued_no_more: Callable[[], object] | None = None
        self.account = _ACCOUNT.get()
        self.observer: RowObserver | None = None
        self.request = self.client = Turn()
        self.rows_before = self.rows_owed = self.n_passed = 0
        self.future: Outcome[Any] = Outcome()
        self.cost = Cost()
        self.cancelled = self.answered = self.narrow = False
        self.prompt: IntArray = np.ascontiguousarray(task.prompt, dtype=np.int32)
        self.has_prompt_row = not len(self.prompt)
        self.key = self.prompt.tobytes()
        self.floor = task.floor
        # A task with `states` extends only some of its rows and marks the others as
        # `Ask.spent`: the maximum number of states that it needs at once, in a
        # recurrent-state model. The state of row 0 does not count, but that of a
        # running evaluation does. Any other task may extend every row that it holds.
        # A task with `asks_runs` asks for long unbranched runs, one state each, so only
        # the number of leaves limits its asks.
        self._states: int | None = getattr(task, "states", None)
        self._asks_runs = self._states is not None and hasattr(task, "asks_runs")
        self.order = 0
        self.cursor, self.depth = NO_NODE, 0
        self.rows = NodeTable()
        self.part: BatchPart | None = None
        self.ask: Ask | None = None
        self.offered: Capacity | None = None
        self.collector: RowCollector | None = None
        self.runs: LinearRuns | None = None

    @property
    def rank(self) -> tuple[int, int]:
        """Return the rank: the lowest is admitted first and preempted last."""
        return -self.priority, self.order

    @property
    def prompt_node(self) -> int:
        """Return the node of row 0, the end of the prompt."""
        return self.rows.node[0]

    @property
    def n_prompt_left(self) -> int:
        """Return the number of prompt tokens that are not evaluated yet."""
        return 0 if self.rows.node[0] != NO_NODE else len(self.prompt) - self.depth

    def next_ask(self, offer: Capacity) -> Ask | None:
        """Return the task's next ask within a capacity, or None when it has finished.

        Raises `ProtocolError` if it asks for more rows than that.
        """
        self.offered, ask = offer, self.task.ask(offer)
        if ask is not None and len(ask.tokens) > offer.rows:
            raise ProtocolError(f"asked for {len(ask.tokens)} rows, offered {offer.rows}")
        return ask

    def begin(self, ask: Ask, *, is_recurrent: bool) -> list[int]:
        """Start an ask of the task; return the nodes that the caller must release.

        They are the nodes of the rows in `ask.release`. For a recurrent-state model,
        also find the runs of the ask, and do not keep the states of the rows in
        `ask.spent` any longer than this ask needs them.
        """
        gone = self.rows.apply_ask(ask)
        self.ask, self.collector, self.narrow = ask, RowCollector(ask.wanted, self.task.reads), False
        if is_recurrent:
            self.runs = LinearRuns(self.rows, ask)
            for row in ask.spent.tolist():
                self.rows.keep[row] = False
        return gone

    def tell(self, rows: Rows, ask: Ask | None = None) -> None:
        """Give the task the rows of an ask, with the values that it reads.

        Without an ask, it is row 0.
        """
        if self.observer is not None:
            self.observer(ask, None if ask is None else self.offered, self.task.reads(), rows)
        self.task.tell(rows)

    def need(self, *, is_recurrent: bool) -> Capacity:
        """Return the capacity to reserve for the job beyond what it holds.

        That covers the rest of its prompt, the nodes it lost to preemption and the rest
        of its ask, and never less than `task.floor`. In a recurrent-state model, every
        new row may own a state, unless the task has `states`. A prompt in
        evaluation holds two, the old end and the new one, and so do lost rows that are
        evaluated again.
        """
        rows, floor, n_prompt_left = self.rows, self.floor, self.n_prompt_left
        pending = len(rows.pending)
        to_come = max(pending, floor.nodes - (rows.n_held - pending))
        if is_recurrent:
            lost = min(rows.n_lost, floor.nodes)
            states = to_come if self._states is None else min(to_come, max(0, self._states - rows.n_nodes))
            return Capacity(floor.rows, n_prompt_left + lost + to_come, states + 2 * (n_prompt_left > 0) + min(lost, 2))
        holds_none = rows.n_held - pending == rows.n_lost
        branches = max(pending, floor.sequences + holds_none)
        return Capacity(floor.rows, n_prompt_left + rows.n_lost + to_come, branches + rows.n_lost_leaves)

    def capacity_to_ask(self, capacity: Capacity, *, is_recurrent: bool) -> Capacity:
        """Return the capacity to offer the task for its next ask, at least its floor.

        `capacity` is what the job may use in addition to what it holds.
        """
        held, floor, n_prompt_left = self.rows.n_held, self.floor, self.n_prompt_left
        rows, nodes = capacity.rows, held + capacity.nodes - n_prompt_left
        if is_recurrent:
            states = capacity.sequences - 2 * (n_prompt_left > 0)
            leaves = self.rows.n_leaves + states
            if not self._asks_runs:  # each row of the ask may own a state
                rows, nodes = min(rows, states), min(nodes, held + states)
        else:
            nodes -= self.rows.n_lost
            leaves = self.rows.n_leaves - self.rows.n_lost_leaves + capacity.sequences
        return Capacity(max(floor.rows, rows), max(floor.nodes, nodes), max(floor.sequences, leaves))

    def release(self) -> tuple[list[int], list[int]]:
        """Forget all nodes of the job; return those below the prompt and those on it.

        The caller must release them. The rows that the task has received are kept, so
        that it can continue later.
        """
        ends = [node for node in (self.prompt_node, self.cursor) if node != NO_NODE]
        self.rows.node[0] = self.cursor = NO_NODE
        self.depth, self.part = 0, None
        return self.rows.release(), ends

    @property
    def n_rows_evaluated(self) -> int:
        """Return the number of rows evaluated since the job was admitted."""
        return self.cost.rows - self.rows_before

    def admit(self) -> None:
        """Note that the job was admitted, and leave the queue."""
        self.rows_before = self.cost.rows
        self.leave_queue()
        if self.account is not None:
            self.account.note_admission()

    def spend(self, cost: Cost) -> None:
        """Add to the cost of the job and of its account."""
        self.cost += cost
        if self.account is not None:
            self.account.add_cost(cost)

    def begin_asks(self) -> None:
        """Note that the task has received the row of its prompt's end."""
        self.has_prompt_row = True
        if self.account is not None:
            n_new = self.cost.rows - self.cost.rows_repeated
            self.account.add_reused(max(0, len(self.prompt) - n_new))

    def leave_queue(self) -> None:
        """Call `on_queued_no_more`, because the job was admitted or has ended."""
        if self.on_queued_no_more is not None:
            self.on_queued_no_more()

    def answer(self, result: object, error: BaseException | None) -> None:
        """Set the future to a result or an error, unless it is set already.

        `StopIteration` from a callback becomes a `RuntimeError`, as in a generator (PEP
        479). Otherwise it would silently end a loop that waits for the result, and an
        asyncio future refuses it.
        """
        self.leave_queue()
        if self.answered:
            return
        self.answered = True
        if error is None:
            self.future.set_result(result)
            return
        if isinstance(error, StopIteration):
            stopped, error = error, RuntimeError("a callback raised StopIteration")
            error.__cause__ = stopped
        self.future.set_exception(error)


def end_early(jobs: Iterable[Job], now: float, end: Callable[..., None]) -> None:
    """End the jobs that were cancelled, and those whose deadline has passed.

    Args:
        jobs: The jobs; `end` may change the collection that they come from.
        now: Seconds on the clock that deadlines are compared with.
        end: Ends a job with its `result` or `error`, and frees its nodes.
    """
    for job in tuple(jobs):
        if job.cancelled:
            end(job, error=CancelledError())
        elif job.deadline is not None and now >= job.deadline:
            _expire(job, now - job.deadline, end)


def _expire(job: Job, late_s: float, end: Callable[..., None]) -> None:
    """End a job after its deadline, with a partial result if it supports that."""
    if not isinstance(job.task, SupportsDeadline):
        end(job, error=DeadlineError(late_s))
        return
    try:
        job.task.expire()
        result = job.task.result()
    except BaseException as error:  # noqa: BLE001 - a task is foreign code; the error goes to its caller
        end(job, error=error)
    else:
        end(job, result=result)
