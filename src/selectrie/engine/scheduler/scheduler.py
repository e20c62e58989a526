"""Merges the asks of many tasks into few model calls.

The scheduler admits jobs, gives them fair turns, cuts asks to size, cancels jobs and
keeps the cache of rows at prompt ends. One step makes one `extend`, and more only if
that failed. Tasks of any kind may come and go at any time.

Higher priorities are admitted first and go into a call first. Among equals, clients
take turns, then the requests of a client, and the jobs of a request (`turns`). While
several clients are under way, each has a share of a call, and calls are short. The asks
of tasks go into a call before prompts do, and prompts share the remaining rows
(`batch.allocate_prefill`), so a long prompt delays other jobs by no more than a chunk
of it.

A client that waits for memory within its share gets it from a client that holds more
than its share. The last job of that client is evicted and queued again. Before a job is
evicted once more, it must evaluate twice the rows that it lost.

Capacity is reserved for all that every admitted task may still need, so most asks fit.
An ask may still fail to fit, because nodes that several tasks hold do not become free
when one task releases them. The other jobs then continue. If no job can continue, the
lowest-ranked one releases its nodes and is queued again, to evaluate them by path
later. The highest-ranked job is never evicted for this reason, so no two unfinished
tasks wait for each other.

The scheduler is not thread-safe: one thread owns it together with its model
(`model_thread.ModelThread`).
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from bisect import insort
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nsmallest
from itertools import chain
from operator import attrgetter

from selectrie.core.model import Model
from selectrie.core.rows import Rows
from selectrie.core.sized_cache import SizedCache
from selectrie.core.types import NO_NODE, Capacity, Cost, Limits
from selectrie.decoding.trie.exhaustive import ReadRows
from selectrie.engine.scheduler.batch import (
    allocate_prefill,
    ask_part,
    attach_prompt,
    extend,
    find_cursor,
    prefill_part,
    split_call,
)
from selectrie.engine.scheduler.job import ROW_CACHE_BYTES, BatchPart, Job, end_early, wake_once
from selectrie.engine.scheduler.node_table import as_ids
from selectrie.engine.scheduler.turns import ROUNDING, CallTimes, Turn, in_turns, move_to_end, shares_of
from selectrie.errors import CapacityError, ClosedError, DecodeInterrupted, NodeError, SelectrieError

logger = logging.getLogger(__name__)

MAX_PASSED = 8
"""Maximum number of jobs admitted before a job that is first but does not fit."""
MAX_TRIED = 256
"""Maximum number of waiting requests that are searched for one that fits."""


@dataclass(frozen=True, slots=True)
class Load:
    """The tasks of a model and its free capacity, as of its last call.

    Attributes:
        n_active: Number of admitted tasks.
        n_waiting: Number of tasks that wait to begin.
        nodes_free: Number of nodes neither held nor reserved.
        sequences_free: Number of branches neither held nor reserved.
        nodes_cached: Number of evaluated tokens in memory, held or not; not compared.
    """

    n_active: int
    n_waiting: int
    nodes_free: int
    sequences_free: int
    nodes_cached: int = field(default=0, compare=False)


class JobScheduler(ABC):
    """Runs jobs. Call `submit` for each job, then `step` until `idle`.

    All methods are called on one thread.

    Attributes:
        load: The load as of the last step; any thread may read it.
        calling: The jobs whose rows are in the running call of a model on this thread;
            any thread may read it.
    """

    _active: Collection[Job]

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        """Create a scheduler without jobs.

        Args:
            limits: The maximum capacity of a job.
            clock: Returns the seconds that deadlines are compared with.
        """
        self._limits, self._clock = limits, clock
        self._waiting: list[Job] = []
        self._n_submitted = 0
        self.calling: tuple[Job, ...] = ()
        self.load = Load(0, 0, limits.nodes, limits.sequences)

    @property
    def idle(self) -> bool:
        """Return whether there are no jobs."""
        return not self._waiting and not self._active

    def submit(self, job: Job) -> None:
        """Queue a job, or fail it at once.

        A job that does not fit even alone fails with `CapacityError`.
        """
        for what, required, available in self._requirements(job):
            if required > available:
                job.answer(None, CapacityError(what, required=required, available=available))
                return
        job.order = self._n_submitted
        self._n_submitted += 1
        insort(self._waiting, job, key=attrgetter("rank"))

    def _requirements(self, job: Job) -> Iterator[tuple[str, int, int]]:
        """Yield what a job needs at least: its name, the need, and what there is."""
        yield "nodes", len(job.prompt) + job.floor.nodes, self._limits.nodes

    @property
    @abstractmethod
    def wait_s(self) -> float | None:
        """Return the seconds for which the thread may wait for items before a step.

        None means that it waits for an item, however long.
        """

    @abstractmethod
    def step(self) -> None:
        """Do one step of the jobs."""

    @abstractmethod
    def fail_all(self, error: BaseException) -> None:
        """End every job with this error. This never raises."""

    @abstractmethod
    def forget_all(self) -> None:
        """Drop everything that is cached."""


class Scheduler(JobScheduler):
    """Runs jobs on one model.

    Attributes:
        read_rows: Cached values of rows, for later requests.
        n_interrupted: Number of calls that were interrupted and made again.
    """

    def __init__(
        self,
        model: Model,
        row_cache_bytes: int = ROW_CACHE_BYTES,
        *,
        prefill_rows: int | None = None,
        takes_turns: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a scheduler without jobs.

        Args:
            model: The model to run on.
            row_cache_bytes: Size of the cache of prompt-end rows, in bytes.
            prefill_rows: Maximum number of rows of prompts in a call, and of rows of
                one ask, while more than one task is active. None:
                `limits.call_cost.prefill_rows` of the model.
            takes_turns: Whether every task has a share of each call. False: earlier
                tasks take all they can use, so tasks have fewer and larger asks, and
                nodes are held for a shorter time. That suits tasks whose results are
                needed together.
            clock: Returns the seconds that deadlines are compared with, and that steps
                take.
        """
        super().__init__(model.limits, clock)
        self.model, limits = model, model.limits
        self._is_recurrent = limits.kind.is_recurrent
        self.row_cache: SizedCache[bytes, Rows] = SizedCache(row_cache_bytes)
        self.read_rows = ReadRows()
        self._prefill_rows = limits.call_cost.prefill_rows if prefill_rows is None else prefill_rows
        self._takes_turns = takes_turns
        self._active: deque[Job] = deque()
        self._refused: list[tuple[BatchPart, CapacityError]] = []
        self._has_advanced = False
        self._reserved = 0, 0
        """Nodes and branches reserved for active jobs, by the last `_free_capacity`.

        It is kept up to date while a batch is scheduled.
        """
        self._call_times = CallTimes()
        self.n_interrupted = self._n_rows = 0
        self._decode_s = 0.0

    @property
    def wait_s(self) -> float | None:
        """Return 0 while there is work, and else None."""
        return None if self.idle else 0.0

    def _requirements(self, job: Job) -> Iterator[tuple[str, int, int]]:
        yield from super()._requirements(job)
        limits, floor = self._limits, job.floor
        yield "sequences", 2 if self._is_recurrent else floor.sequences + 1, limits.sequences
        yield "rows in one call", floor.rows, limits.rows_per_call

    def fail_all(self, error: BaseException) -> None:
        """End every job with this error.

        This never raises: every job must get the error, whatever state the model is in.
        """
        jobs = [*self._active, *self._waiting]
        self._active.clear()
        self._waiting.clear()
        for job in jobs:  # each has its own error, which may later name its request
            self._fail(job, copy_error(error))
        self.load = replace(self.load, n_active=0, n_waiting=0)

    def _fail(self, job: Job, error: BaseException) -> None:
        """End a job with an error; log the error of releasing its nodes, if any."""
        try:
            self._end(job, error=error)
        except Exception:  # its future is set by now, and the next job's must be too
            logger.exception("nodes of a failed job could not be released")

    def forget_all(self) -> None:
        """Drop every cached node and row."""
        self.row_cache.clear()
        self.read_rows.clear()
        self.model.trim(0)
        self._update_load(self._free_capacity())

    def step(self) -> None:
        """Make one model call that advances every job that can continue."""
        began_s, self._n_rows, self._decode_s = self._clock(), 0, 0.0
        end_early([*self._active, *self._waiting], began_s, self._end)
        if not (self._refused and self._active):  # jobs whose parts did not fit go first
            self._admit_waiting()
        self._refused, self._has_advanced = [], False
        parts, free = self._schedule_batch()
        self._update_load(free)
        if parts:
            self._execute(parts)
            move_to_end([part.job for part in parts])
            self._call_times.add(self._n_rows, self._decode_s, self._clock() - began_s)
        if self._refused and not self._has_advanced:
            self._preempt_last(*self._refused[0])
        if self._takes_turns:
            self._active.rotate(-1)
        if self.idle:  # the next step may be much later
            self._update_load(self._free_capacity())

    def _update_load(self, free: Capacity) -> None:
        """Update `load`, given the free capacity."""
        nodes, sequences = max(0, free.nodes), max(0, free.sequences)
        self.load = Load(len(self._active), len(self._waiting), nodes, sequences, free.nodes_cached)

    def _admit_waiting(self) -> None:
        """Admit waiting jobs in turns, as long as all reservations fit.

        A job that does not fit is passed by at most `MAX_PASSED` others that do.
        """
        if not self._waiting:
            return
        lines: defaultdict[Turn, deque[Job]] = defaultdict(deque)
        for job in self._waiting:
            lines[job.request].append(job)
        under_way = {(job.client, job.request) for job in (*self._active, *self._waiting)}
        clients, requests = ({one[at] for one in under_way} for at in (0, 1))
        owner = attrgetter("client" if len(clients) > 1 else "request")
        share = 1 / len(clients if len(clients) > 1 else requests)
        n_admitted = 0
        while any(lines.values()) and self._admit_first_fitting(lines, owner, share):
            n_admitted += 1
        if n_admitted or sum(map(len, lines.values())) > len(self._waiting):
            self._waiting = sorted(chain.from_iterable(lines.values()), key=attrgetter("rank"))

    def _admit_first_fitting(
        self, lines: defaultdict[Turn, deque[Job]], owner: Callable[[Job], Turn], share: float
    ) -> bool:
        """Admit the first waiting job that fits; return whether there was one.

        Args:
            lines: The waiting jobs of each request. The admitted job is removed.
            owner: Returns the client of a job, or its request if there is only one
                client.
            share: The share of memory of each owner under way.
        """
        free, passed = self._free_capacity(), list[Job]()
        for job in self._candidates(lines):
            need = job.need(is_recurrent=self._is_recurrent)
            while not (fits := need.nodes <= free.nodes and need.sequences <= free.sequences) and self._active:
                last = self._choose_eviction(job, owner, share)
                if last is None:
                    break
                logger.debug("job %d releases its nodes for job %d", last.order, job.order)
                last.rows_owed = 2 * self._count_held_nodes(last)
                self._release(last, forget=False)
                self._active.remove(last)
                lines[last.request].appendleft(last)
                free = self._free_capacity()
            if fits or not self._active:
                lines[job.request].remove(job)
                self._active.append(job)
                job.admit()
                for other in passed:
                    other.n_passed += 1
                return True
            if job.n_passed >= MAX_PASSED:
                return False
            passed.append(job)
        return False

    def _candidates(self, lines: Mapping[Turn, deque[Job]]) -> list[Job]:
        """Return the first waiting job of each request, the next to admit first.

        Within a priority, the client with the fewest jobs under way comes first, then
        the request with the fewest, then the oldest request. So a request whose jobs
        come one after the other waits behind newer requests for the first job only.
        """
        n_of = Counter(turn for job in self._active for turn in {job.client, job.request})

        def order(job: Job) -> tuple[int, ...]:
            client, request = job.client, job.request
            return -job.priority, n_of[client], client.place, n_of[request], request.arrival

        return nsmallest(MAX_TRIED, (line[0] for line in lines.values() if line), key=order)

    def _choose_eviction(self, job: Job, owner: Callable[[Job], Turn], share: float) -> Job | None:
        """Return the job to evict so that a waiting job can begin, or None.

        It is the last job of the owner with the most memory. That owner must exceed its
        share, and the owner of `job` must stay within its own. A job that was evicted
        before must have evaluated twice the rows that it lost: as many repeated rows
        and as many new ones. For `owner` and `share` see `_admit_first_fitting`.
        """
        held: defaultdict[Turn, float] = defaultdict(float)
        for active in self._active:
            held[owner(active)] += self._memory_share(active)
        if held[owner(job)] + self._memory_share(job) > share:
            return None
        for holder in sorted(held, key=lambda one: -held[one]):
            if held[holder] > share:
                jobs = [active for active in self._active if owner(active) is holder]
                may = [one for one in jobs if one.priority <= job.priority and one.n_rows_evaluated > one.rows_owed]
                if may:
                    return max(may, key=attrgetter("rank"))
        return None

    def _memory_share(self, job: Job) -> float:
        """Return the share of the model's memory that a job holds and may need."""
        need, limits = job.need(is_recurrent=self._is_recurrent), self._limits
        n_branches = job.rows.n_nodes if self._is_recurrent else job.rows.n_leaves
        nodes = self._count_held_nodes(job) + need.nodes
        return max(nodes / limits.nodes, (n_branches + need.sequences) / limits.sequences)

    def _count_held_nodes(self, job: Job) -> int:
        """Return the number of nodes that a job holds, shared ones included."""
        return (job.depth if job.prompt_node == NO_NODE else len(job.prompt)) + job.rows.n_nodes

    def _free_capacity(self) -> Capacity:
        """Return the capacity that is neither held nor reserved for admitted jobs."""
        needs = [job.need(is_recurrent=self._is_recurrent) for job in self._active]
        self._reserved = sum(need.nodes for need in needs), sum(need.sequences for need in needs)
        return self._unreserved_capacity(self._limits.rows_per_call)

    def _unreserved_capacity(self, rows: int) -> Capacity:
        """Return the capacity that is not in `_reserved`, with this number of rows."""
        capacity, (nodes, branches) = self.model.capacity(), self._reserved
        return Capacity(rows, capacity.nodes - nodes, capacity.sequences - branches, capacity.nodes_cached)

    def _schedule_batch(self) -> tuple[list[BatchPart], Capacity]:
        """Return the parts that fit into the next call, and the remaining capacity.

        Every active job has at most one part.
        """
        jobs = in_turns(self._active)
        unread = {job for job in jobs if not job.has_prompt_row and job.key not in self.row_cache}
        share_of, free = shares_of(jobs), self._free_capacity()
        call_rows = self._max_call_rows(jobs, unread)
        free = replace(free, rows=call_rows)
        kept_rows = self._rows_for_prompts(jobs, unread, share_of, free.rows)
        left = sum(share_of[job] for job in jobs if job not in unread)
        parts: list[BatchPart] = []
        skipped: list[BatchPart] = []
        filling: list[Job] = []
        taken: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        for job in jobs:
            if job in unread:
                filling.append(job)
                continue
            if job.part is None:
                part_of_rows = share_of[job] / left if self._takes_turns else 1
                offered = int((free.rows - kept_rows) * part_of_rows + ROUNDING)
                if offered < 1 and not self._takes_turns:
                    continue  # the call is full
                # While others wait, an ask is short, as a prompt's chunk is.
                free = self._set_next_part(
                    job, free, max(1, offered if len(jobs) == 1 else min(offered, self._prefill_rows))
                )
            left -= share_of[job]
            part = job.part
            if part is None:
                filling += [] if job.answered else [job]
                continue
            key = part.key
            if key not in taken and len(part) > free.rows > 0 and job.priority < jobs[0].priority:
                # A job of lower priority never goes first, so its ask is split.
                free = self._set_next_part(job, free, free.rows)
                part = job.part
                if part is None:
                    continue
                key = part.key
            if key not in taken:  # parts with the same rows are evaluated once
                if parts and len(part) > free.rows - kept_rows:
                    skipped.append(part)
                    continue
                taken.add(key)
                free = replace(free, rows=max(0, free.rows - len(part)))
            parts.append(part)
        prefills = self._prefill_parts(filling, free.rows, call_rows - free.rows)
        # Rows that prompts leave over may still take a part that was skipped for them.
        return parts + prefills + _choose_fitting(skipped, free.rows - sum(map(len, prefills))), free

    def _rows_for_prompts(self, jobs: list[Job], unread: set[Job], share_of: dict[Job, float], rows: int) -> int:
        """Return the number of rows of a call that are set aside for prompts."""
        kept_rows = int(rows * sum(share_of[job] for job in unread) / max(1, sum(share_of.values())))
        if jobs and jobs[0] in unread:  # it has the first turn
            kept_rows = max(1, kept_rows)
        return min(kept_rows, self._prefill_rows, sum(job.n_prompt_left for job in unread))

    def _max_call_rows(self, jobs: list[Job], unread: set[Job]) -> int:
        """Return the maximum number of rows of a call: fewer while others wait."""
        limits = self._limits
        n_requests = len({job.request for group in (self._active, self._waiting) for job in group})
        if n_requests < 2 or not self._takes_turns or not jobs:
            return limits.rows_per_call
        needed: Counter[Turn] = Counter()
        for job in jobs:
            needed[job.request] += job.n_prompt_left if job in unread else 1
        least = max(1, min(needed.values()))
        n_rows = self._call_times.rows_for(least, n_requests, limits.call_cost.min_rows)
        return int(min(n_rows + ROUNDING, limits.rows_per_call))

    def _set_next_part(self, job: Job, free: Capacity, rows: int) -> Capacity:
        """Set `job.part` to its next part, of at most `rows` rows.

        Returns the remaining capacity. The part is None if the job waits for its prompt
        or has ended. An exception of a task ends its own job and no other. This
        includes `sys.exit` in a callback: it is raised by `Handle.result`.
        """
        reserved = job.need(is_recurrent=self._is_recurrent)
        capacity = Capacity(rows, free.nodes + reserved.nodes, free.sequences + reserved.sequences)
        try:
            job.part = self._next_part(job, capacity)
        except BaseException as error:  # noqa: BLE001 - a task is foreign code; the error goes to its caller
            self._end(job, error=error)
        nodes, branches = self._reserved[0] - reserved.nodes, self._reserved[1] - reserved.sequences
        if job.answered:
            self._reserved = nodes, branches
            return self._unreserved_capacity(free.rows)
        promised = job.need(is_recurrent=self._is_recurrent)
        self._reserved = nodes + promised.nodes, branches + promised.sequences
        return replace(free, nodes=capacity.nodes - promised.nodes, sequences=capacity.sequences - promised.sequences)

    def _next_part(self, job: Job, capacity: Capacity) -> BatchPart | None:
        """Return a job's next part; None if it waits for its prompt or has ended."""
        if not job.has_prompt_row:
            row = self.row_cache.get(job.key)
            if row is None:
                return None
            job.tell(row.fetch(job.task.reads))
            job.begin_asks()
            if job.on_step is not None:  # a stream has its first token before any call
                job.on_step()
        if job.ask is None and not self._request_ask(job, capacity):
            self._end(job, result=job.task.result())
            return None
        if job.prompt_node == NO_NODE and not attach_prompt(self.model, job):
            return None
        return ask_part(self.model, job, capacity)

    def _prefill_parts(self, jobs: list[Job], rows: int, used: int) -> list[BatchPart]:
        """Return chunks of the jobs' prompts that fit into `rows` rows of the call.

        `used` is the number of rows already in the call.
        """
        if not jobs or rows <= 0:
            return []
        if len(self._active) > 1:
            # Fill the batch up; the rest would be padding.
            rows = self._limits.batch_sizes.least_padded(used + self._prefill_rows, used + rows) - used
        chunks = allocate_prefill(
            [job for job in jobs if self._place_prompt(job)], rows, is_recurrent=self._is_recurrent
        )
        return [prefill_part(self.model, self.row_cache, job, n) for job, n in chunks]

    def _place_prompt(self, job: Job) -> bool:
        """Set the job's cursor; return False if that failed and ended the job.

        After a failure of the model, the nodes that the job held may be lost.
        """
        try:
            find_cursor(self.model, job)
        except NodeError as error:
            self._end(job, error=error)
        return not job.answered

    def _request_ask(self, job: Job, capacity: Capacity) -> bool:
        """Get the task's next ask, and release the nodes that it gives up.

        Returns False if the task has finished.
        """
        ask = job.next_ask(job.capacity_to_ask(capacity, is_recurrent=self._is_recurrent))
        if ask is None:
            return False
        gone = job.begin(ask, is_recurrent=self._is_recurrent)
        if gone:
            self.model.release(as_ids(gone), forget=not job.keep_cached)
        return True

    def _execute(self, parts: list[BatchPart]) -> None:
        """Evaluate all parts in one call.

        If the call fails, each half of the parts is tried by itself. If a part fails
        alone, its job fails, or is cut to size if it did not fit.
        """
        self.calling = tuple(part.job for part in parts)
        began_s = time.perf_counter()
        try:
            extension = extend(self.model, parts)
        except DecodeInterrupted:
            self._has_advanced = True  # a job would have advanced without the interrupt
            self.n_interrupted += 1
            row_s = (time.perf_counter() - began_s) / sum(map(len, parts))
            for part in parts:
                part.job.spend(Cost(decode_s=row_s * len(part)))
            return
        except SelectrieError as error:
            if len(parts) > 1:
                logger.debug("a call of %d parts failed (%s); splitting it", len(parts), error)
                half = len(parts) // 2
                self._execute(parts[:half])
                self._execute([part for part in parts[half:] if part.job.part is part])
            elif isinstance(error, CapacityError):
                parts[0].job.part = None  # the next part is cut to the capacity then free
                self._refused.append((parts[0], error))
            else:
                self._end(parts[0].job, error=error)
            return
        finally:
            self.calling = ()
        self._has_advanced = True
        self._n_rows += extension.rows_evaluated
        self._decode_s += extension.decode_s
        for part, nodes, rows, cost in split_call(parts, extension):
            job = part.job
            job.part = None
            job.spend(cost)
            self._run_for(job, partial(part.take, nodes, rows))
        with wake_once():  # for the chunks of all streams
            for part in parts:
                if part.job.on_step is not None and not part.job.answered:
                    self._run_for(part.job, part.job.on_step)

    def _run_for(self, job: Job, function: Callable[[], None]) -> None:
        """Call a function of a job, which ends the job if it raises an error."""
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - as in `_set_next_part`
            self._end(job, error=error)

    def _preempt_last(self, part: BatchPart, error: CapacityError) -> None:
        """Free capacity when no job can make progress.

        Preempts the lowest-ranked job and queues it again; the highest-ranked job is
        never preempted. If only one job is active, it continues with less memory
        (`_shrink`), and fails if nothing is left to try.
        """
        if len(self._active) > 1:
            last = max(self._active, key=attrgetter("rank"))
            logger.debug("job %d releases its nodes: %s", last.order, error)
            self._active.remove(last)
            self._release(last)
            insort(self._waiting, last, key=attrgetter("rank"))
        elif not self._shrink(part):
            self._end(part.job, error=error)

    def _shrink(self, part: BatchPart) -> bool:
        """Free memory for the only active job; return whether anything could be done.

        Each call tries one thing: evaluate one run at a time, drop a state that `part`
        does not start from, or drop all cached nodes. The first two apply to
        recurrent-state models.
        """
        job, rows = part.job, part.job.rows
        if self._is_recurrent:
            if not job.narrow:
                job.narrow = True
                return True
            spare = next((row for row in rows.rows_with_node() if row not in part.base), None)
            if spare is not None:
                self.model.release(as_ids([rows.take_away(spare)]), forget=True)
                return True
        return self.model.trim(0) > 0

    def _end(self, job: Job, *, result: object = None, error: BaseException | None = None) -> None:
        """Release the job's nodes and set its future, even if the release fails."""
        if job in self._active:
            self._active.remove(job)
        elif job in self._waiting:
            self._waiting.remove(job)
        try:
            self._release(job, forget=not job.keep_cached)
            if self._limits.max_idle_rows is not None:
                with suppress(NodeError, ClosedError):
                    self.model.trim(self._limits.max_idle_rows)
        finally:
            job.answer(result, error)

    def _release(self, job: Job, *, forget: bool = True) -> None:
        """Release all nodes that a job holds.

        Its prompt stays cached. The nodes below it are dropped with `forget`, else
        cached too. The model may have lost all of them, if it was closed, or failed.
        """
        branches, ends = job.release()
        for nodes, is_forgotten in ((branches, forget), (ends, False)):
            if nodes:
                with suppress(NodeError, ClosedError):
                    self.model.release(as_ids(nodes), forget=is_forgotten)


def _choose_fitting(parts: list[BatchPart], n_rows: int) -> list[BatchPart]:
    """Return the parts that fit into the remaining rows of a call."""
    fitting: list[BatchPart] = []
    taken: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for part in parts:
        if len(part) <= n_rows and part.key not in taken:
            taken.add(part.key)
            fitting.append(part)
            n_rows -= len(part)
    return fitting


def copy_error(error: BaseException) -> BaseException:
    """Return a copy of an error, so that each of many jobs gets a separate object.

    An error of a foreign class is returned as it is.
    """
    if not isinstance(error, SelectrieError):
        return error
    own = copy(error).with_traceback(error.__traceback__)
    own.__cause__ = error.__cause__
    return own
