"""Merges the asks of many tasks into few model calls: admission, fair turns, cutting to size, cancellation, row cache.

One step is one `extend`, and more only where that failed. Tasks of any kind come and go at any time. Higher priorities are
admitted first and go into a call first; among equals, who went first last time goes last. What tasks ask for goes into a call
before prompts do, and prompts share what is left (`prefill.share_out`), so a long prompt holds nobody up for more than a
chunk of it.

Every admitted task has reserved what it may still need, so most asks fit. Where one does not after all (nodes that several
tasks hold are not free when one of them gives them back), the others go on; where nobody can, the last in rank gives up its
nodes and queues again, to extend them by path later. The first is never evicted, so no two half-done tasks wait for each
other. Not thread-safe: one thread owns it together with its model (`owner.Owner`).
"""

from __future__ import annotations

import logging
import time
from bisect import insort
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace

from selectrie.core.model import Model, Rows
from selectrie.core.types import NO_NODE, Room
from selectrie.engine.scheduler.batch import ask_part, attach
from selectrie.engine.scheduler.job import ROW_CACHE_BYTES, Expiring, Job, Part, RowCache
from selectrie.engine.scheduler.model_calls import extend, shares
from selectrie.engine.scheduler.node_table import as_ids
from selectrie.engine.scheduler.prefill import PREFILL_ROWS, find_cursor, prefill_part, share_out
from selectrie.errors import (
    CancelledError,
    CapacityError,
    ClosedError,
    DeadlineError,
    DecodeInterrupted,
    NodeError,
    ProtocolError,
    SelectrieError,
)

__all__ = ["ROW_CACHE_BYTES", "Job", "Load", "RowCache", "Scheduler"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a model is, as of its last call.

    n_active: tasks under way. n_waiting: tasks that wait to begin. nodes_free, branches_free: neither held nor reserved.
    """

    n_active: int
    n_waiting: int
    nodes_free: int
    branches_free: int


class Scheduler:
    """Runs jobs on one model. `submit`, then `step` until `idle`.

    n_interrupted: calls that will be made again. calling: jobs in the call that is being made. load: as of the last step; any
    thread may read it.
    """

    def __init__(
        self,
        model: Model,
        row_cache_bytes: int = ROW_CACHE_BYTES,
        *,
        prefill_rows: int = PREFILL_ROWS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """prefill_rows: most rows of prompts in a call while more than one task is under way, and most rows of one ask
        then. clock: seconds, what deadlines are held against."""
        self.model = model
        self._forks = model.limits.kind.forks
        self.row_cache = RowCache(row_cache_bytes)
        self._prefill_rows, self._clock = prefill_rows, clock
        self._waiting: list[Job] = []
        self._active: deque[Job] = deque()
        self._refused: list[tuple[Part, CapacityError]] = []
        self._moved = False
        self._n_submitted = self.n_interrupted = 0
        self.calling: tuple[Job, ...] = ()
        limits = model.limits
        self.load = Load(0, 0, limits.nodes, limits.branches)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._active

    def submit(self, job: Job) -> None:
        """Queue a job. One that cannot fit even alone fails at once with `CapacityError`, one without a prompt with
        `ProtocolError`."""
        if not len(job.prompt):
            self._answer(job, error=ProtocolError("a task needs a prompt of at least one token"))
            return
        limits, floor = self.model.limits, job.floor
        for what, needed, available in (
            ("nodes", len(job.prompt) + floor.nodes, limits.nodes),
            ("branches", 2 if self._forks else floor.branches + 1, limits.branches),
            ("rows in one call", floor.rows, limits.rows_per_call),
        ):
            if needed > available:
                self._answer(job, error=CapacityError(what, needed=needed, available=available))
                return
        job.order = self._n_submitted
        self._n_submitted += 1
        insort(self._waiting, job, key=_rank)

    def fail_all(self, error: BaseException) -> None:
        """End every job with this error. Never raises: whoever waits must hear of it, whatever state the model is in."""
        jobs = [*self._active, *self._waiting]
        self._active.clear()
        self._waiting.clear()
        for job in jobs:  # each has an error of its own, which may come to name its request
            self._fail(job, _own(error))
        self.load = replace(self.load, n_active=0, n_waiting=0)

    def _fail(self, job: Job, error: BaseException) -> None:
        try:
            self._end(job, error=error)
        except Exception:  # its future is set by now, and the next job's must be too
            logger.exception("nodes of a failed job could not be given back")

    def forget_all(self) -> None:
        """Drop every cached node and row."""
        self.row_cache.clear()
        self.model.trim(0)

    def step(self) -> None:
        """Let every job that can go on do so in one model call."""
        self._end_early()
        if not (self._refused and self._active):  # what did not fit goes before what has not begun
            self._admit()
        self._refused, self._moved = [], False
        parts, free = self._collect()
        self._measure(free)
        if parts:
            self._extend(parts)
        if self._refused and not self._moved:
            self._relieve(*self._refused[0])
        self._active.rotate(-1)
        if self.idle:  # nobody comes by here soon
            self._measure(self._free())

    def _measure(self, free: Room) -> None:
        """What `load` says from now on."""
        self.load = Load(len(self._active), len(self._waiting), max(0, free.nodes), max(0, free.branches))

    def _end_early(self) -> None:
        """End what was cancelled, and what has no time left."""
        now = self._clock()
        for job in [*self._active, *self._waiting]:
            if job.cancelled:
                self._end(job, error=CancelledError())
            elif job.deadline is not None and now >= job.deadline:
                self._expire(job, now - job.deadline)

    def _expire(self, job: Job, late_s: float) -> None:
        if not isinstance(job.task, Expiring):
            self._end(job, error=DeadlineError(late_s))
            return
        try:
            job.task.expire()
            result = job.task.result()
        except BaseException as error:  # noqa: BLE001 - as in _next
            self._end(job, error=error)
        else:
            self._end(job, result=result)

    def _admit(self) -> None:
        """Take waiting jobs in order while what all admitted ones may still need fits."""
        if not self._waiting:
            return
        free = self._free()
        while self._waiting:
            need = self._waiting[0].need(forks=self._forks)
            if self._active and (need.nodes > free.nodes or need.branches > free.branches):
                return
            job = self._waiting.pop(0)
            self._active.append(job)
            job.leave_queue()
            free = Room(free.rows, free.nodes - need.nodes, free.branches - need.branches)

    def _free(self) -> Room:
        """Room that is neither held nor reserved for an admitted job."""
        room = self.model.room()
        nodes, branches = room.nodes, room.branches
        for job in self._active:
            need = job.need(forks=self._forks)
            nodes -= need.nodes
            branches -= need.branches
        return Room(self.model.limits.rows_per_call, nodes, branches)

    def _collect(self) -> tuple[list[Part], Room]:
        """A part from every active job that finds room in the call, and what room is left."""
        jobs = sorted(self._active, key=_priority)
        unread = {job for job in jobs if not job.told and job.key not in self.row_cache}
        free = self._free()
        kept_rows = min(self._prefill_rows, free.rows // 2, sum(job.rest for job in unread))
        parts: list[Part] = []
        filling: list[Job] = []
        taken: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        n_left = len(jobs) - len(unread)
        for job in jobs:
            if job in unread:
                filling.append(job)
                continue
            if job.part is None:
                offered = (free.rows - kept_rows) // max(1, n_left)
                free = self._next(job, free, max(1, offered if len(jobs) == 1 else min(offered, self._prefill_rows)))
            n_left -= 1
            part = job.part
            if part is None:
                filling += [] if job.answered else [job]
                continue
            key = part.key
            if key not in taken and len(part) > free.rows > 0 and job.priority < jobs[0].priority:
                free = self._next(job, free, free.rows)  # its turn to be first never comes, so it goes bit by bit
                part = job.part
                if part is None:
                    continue
                key = part.key
            if key not in taken:
                if len(part) > free.rows:
                    continue
                taken.add(key)
                free = Room(free.rows - len(part), free.nodes, free.branches)
            parts.append(part)
        return parts + self._prefills(filling, free.rows), free

    def _next(self, job: Job, free: Room, rows: int) -> Room:
        """Find the job's next part, in at most so many rows; the room that is left to others.

        No part: it waits for its prompt, or has ended. A task that raises ends its own job and no other, `sys.exit` in a
        callback too: it is raised where the answer is waited for."""
        reserved = job.need(forks=self._forks)
        room = Room(rows, free.nodes + reserved.nodes, free.branches + reserved.branches)
        try:
            job.part = self._next_part(job, room)
        except BaseException as error:  # noqa: BLE001 - a task is foreign code: whatever it raises is its caller's answer
            self._end(job, error=error)
        if job.answered:
            return replace(self._free(), rows=free.rows)
        promised = job.need(forks=self._forks)
        return Room(free.rows, room.nodes - promised.nodes, room.branches - promised.branches)

    def _next_part(self, job: Job, room: Room) -> Part | None:
        if not job.told:
            row = self.row_cache.get(job.key)
            if row is None:
                return None
            job.task.tell(Rows(row[None]))
            job.told = True
            if job.on_step is not None:  # a stream has its first token before any call
                job.on_step()
        if job.ask is None and not self._ask(job, room):
            self._end(job, result=job.task.result())
            return None
        if job.prompt_node == NO_NODE and not attach(self.model, job):
            return None
        return ask_part(self.model, job, room)

    def _prefills(self, jobs: list[Job], rows: int) -> list[Part]:
        """Chunks of these jobs' prompts, within so many rows of the call."""
        if not jobs or rows <= 0:
            return []
        if len(self._active) > 1:
            used = self.model.limits.rows_per_call - rows
            whole = -(-(used + self._prefill_rows) // self.model.granule) * self.model.granule  # padding is no use
            rows = min(rows, whole - used)
        chunks = share_out([job for job in jobs if self._is_placed(job)], rows, forks=self._forks)
        return [prefill_part(self.model, self.row_cache, job, n) for job, n in chunks]

    def _is_placed(self, job: Job) -> bool:
        """Find where the job's prompt goes on; what it held may be lost, after a failure."""
        try:
            find_cursor(self.model, job)
        except NodeError as error:
            self._end(job, error=error)
        return not job.answered

    def _ask(self, job: Job, room: Room) -> bool:
        """Ask the task within what it holds and what is free, and give back what it releases; False = it has finished."""
        offer = job.room_to_ask(room, forks=self._forks)
        ask = job.task.ask(offer)
        if ask is None:
            return False
        if len(ask.tokens) > offer.rows:
            raise ProtocolError(f"asked for {len(ask.tokens)} rows, offered {offer.rows}")
        gone = job.begin(ask, forks=self._forks)
        if gone:
            self.model.release(as_ids(gone), forget=not job.linger)
        return True

    def _extend(self, parts: list[Part]) -> None:
        """One call for all parts. What does not fit together is tried with fewer; what fails alone fails its own job."""
        self.calling = tuple(part.job for part in parts)
        try:
            extension = extend(self.model, parts)
        except DecodeInterrupted:
            self._moved = True  # it would have been
            self.n_interrupted += 1
            return
        except SelectrieError as error:
            if len(parts) > 1:
                logger.debug("a call of %d parts failed (%s); splitting it", len(parts), error)
                half = len(parts) // 2
                self._extend(parts[:half])
                self._extend([part for part in parts[half:] if part.job.part is part])
            elif isinstance(error, CapacityError):
                parts[0].job.part = None  # to be cut to what is free then
                self._refused.append((parts[0], error))
            else:
                self._end(parts[0].job, error=error)
            return
        finally:
            self.calling = ()
        self._moved = True
        for part, nodes, rows, cost in shares(parts, extension):
            job = part.job
            job.part = None
            job.cost += cost
            try:
                part.take(nodes, rows)
                if job.on_step is not None:
                    job.on_step()
            except BaseException as error:  # noqa: BLE001 - as in _next
                self._end(job, error=error)

    def _relieve(self, part: Part, error: CapacityError) -> None:
        """Nobody could go on: the last in rank gives everything back and queues again, never the first; a job alone makes do
        with less, and fails where there is nothing less."""
        if len(self._active) > 1:
            last = max(self._active, key=_rank)
            logger.debug("job %d gives its nodes back: %s", last.order, error)
            self._active.remove(last)
            self._give_back(last)
            insort(self._waiting, last, key=_rank)
        elif not self._shrink(part):
            self._end(part.job, error=error)

    def _shrink(self, part: Part) -> bool:
        """Let a job that is alone go on with less: one run at a time, then without states that this part does not start
        from, then without anything cached."""
        job, rows = part.job, part.job.rows
        if self._forks:
            if not job.narrow:
                job.narrow = True
                return True
            spare = next((row for row in rows.holding() if row not in part.base), None)
            if spare is not None:
                self.model.release(as_ids([rows.take_away(spare)]), forget=True)
                return True
        return self.model.trim(0) > 0

    def _end(self, job: Job, *, result: object = None, error: BaseException | None = None) -> None:
        """Give the job's nodes back and answer, whatever becomes of the nodes."""
        if job in self._active:
            self._active.remove(job)
        elif job in self._waiting:
            self._waiting.remove(job)
        try:
            self._give_back(job, forget=not job.linger)
            self._tolerant(lambda: self.model.trim(self.model.limits.idle_rows))
        finally:
            self._answer(job, result=result, error=error)

    def _answer(self, job: Job, *, result: object = None, error: BaseException | None = None) -> None:
        job.leave_queue()
        job.answer(result, error)

    def _give_back(self, job: Job, *, forget: bool = True) -> None:
        """Release everything that a job holds. Its prompt stays as cache; its branches go, or stay as cache too."""
        branches, ends = job.let_go()
        self._tolerant(lambda: self.model.release(as_ids(branches), forget=forget))
        self._tolerant(lambda: self.model.release(as_ids(ends)))

    def _tolerant(self, give_back: Callable[[], object]) -> None:
        """A model that was closed, or dropped every node after a failure, holds nothing more to give back."""
        try:
            give_back()
        except (NodeError, ClosedError) as error:
            logger.debug("nothing was given back: %s", error)


def _own(error: BaseException) -> BaseException:
    """An error for one job of many."""
    if not isinstance(error, SelectrieError):
        return error
    own = copy(error).with_traceback(error.__traceback__)
    own.__cause__ = error.__cause__
    return own


def _rank(job: Job) -> tuple[int, int]:
    return job.rank


def _priority(job: Job) -> int:
    """Ascending: higher priorities first."""
    return -job.priority
