"""Merges the asks of many tasks into few model calls: admission, fair turns, cutting to size, cancellation, row cache.

One step is one `extend` at most. Every admitted task has its floor reserved, and no task is given room that another's
floor needs; so each can always go on, and no two half-done tasks wait for each other. Not thread-safe: one thread owns
it together with its model (`owner.Owner`).
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selectrie.errors import CancelledError, CapacityError, ClosedError, DecodeInterrupted, NodeError, SelectrieError
from selectrie.model import Extension, Model, Rows, rounds
from selectrie.tasks import Ask, Task, carriers, within_round
from selectrie.types import NO_NODE, BoolArray, Cost, IntArray, LogitArray, Room

logger = logging.getLogger(__name__)

ROW_CACHE_BYTES = 64 << 20
"""Rows of prompt ends kept for the next request: about 100 at a vocabulary of 152k."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One job's share of a call. parents are nodes, or ~j within the part."""

    job: Job
    parents: IntArray
    tokens: IntArray
    wanted: BoolArray
    keep: BoolArray
    take: Callable[[IntArray, Rows], None]

    def __len__(self) -> int:
        return len(self.tokens)


class Job:
    """A task on its way: its nodes, what it has cost, and the future that will hold its result."""

    def __init__(self, task: Task[Any], on_step: Callable[[], None] | None = None) -> None:
        self.task = task
        self.on_step = on_step
        self.future: Future[Any] = Future()
        self.cost = Cost()
        self.cancelled = False
        self.prompt: IntArray = np.ascontiguousarray(task.prompt, dtype=np.int32)
        self.key = self.prompt.tobytes()
        self.told = False
        self.prompt_node = NO_NODE
        self.cursor = NO_NODE
        self.depth = 0
        self.nodes: IntArray = np.full(1, NO_NODE, dtype=np.int32)
        self.parents: IntArray = np.full(1, NO_NODE, dtype=np.int32)
        self.part: _Part | None = None
        self.rounds: _Rounds | None = None
        self.ask: Ask | None = None

    @property
    def held(self) -> IntArray:
        """Local rows alive below row 0."""
        return np.flatnonzero(self.nodes[1:] != NO_NODE).astype(np.int32) + 1

    def branches(self) -> int:
        """Leaves among the local rows alive."""
        held = self.held
        inner = np.zeros(len(self.nodes), dtype=bool)
        inner[self.parents[held]] = True
        return int(np.count_nonzero(~inner[held]))

    def need(self, *, forks: bool) -> Room:
        """What is reserved for it beyond what it holds: the rest of its prompt and its floor.

        forks: every node may own a state, and a long prompt holds two on its way.
        """
        floor = self.task.floor
        rest = 0 if self.prompt_node != NO_NODE else len(self.prompt) - self.depth
        asked = len(self.part) if self.part is not None else 0
        held = self.held.size
        below = max(asked, floor.nodes - held, 0)
        if forks:
            return Room(floor.rows, rest + below, below + 2 * (rest > 0))
        return Room(floor.rows, rest + below, max(asked, floor.branches + (held == 0)))


class _Rounds:
    """An ask that a forking model takes in several calls: one round after the other, rows copied until the last."""

    def __init__(self, ask: Ask, parents: IntArray) -> None:
        """parents: those of the ask as nodes, or ~j within the ask."""
        self.ask, self._parents = ask, parents
        self._in_round = rounds(parents, ask.keep)
        self._keep = carriers(parents, ask.keep, self._in_round)
        self._at = 0
        self.nodes: IntArray = np.full(len(ask.tokens), NO_NODE, dtype=np.int32)
        self._elements = np.flatnonzero(self._in_round == 0)
        self._parts: list[Rows] = []
        self._order: list[NDArray[np.int64]] = []

    def elements(self) -> tuple[IntArray, IntArray, BoolArray, BoolArray]:
        """Parents (nodes, or ~k within the round), tokens, wanted and keep of the current round's elements."""
        ask, now = self.ask, self._elements
        return within_round(self._parents, now, self.nodes), ask.tokens[now], ask.wanted[now], self._keep[now]

    def take(self, nodes: IntArray, rows: Rows) -> Rows | None:
        """Note a round's nodes and rows; all wanted rows in the order of the ask after the last one, else None."""
        now, last = self._elements, self._at == self._in_round.max()
        self.nodes[now] = nodes
        self._parts.append(rows if last and not self._parts else rows.copy())
        self._order.append(now[self.ask.wanted[now]])
        self._at += 1
        self._elements = np.flatnonzero(self._in_round == self._at)
        if not last:
            return None
        if len(self._parts) == 1:
            return rows
        return Rows.stack(self._parts).take(np.argsort(np.concatenate(self._order)))


class RowCache:
    """Rows by token path: what a row predicts depends on nothing else. Least recently used goes first."""

    def __init__(self, most_bytes: int = ROW_CACHE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._rows: OrderedDict[bytes, LogitArray] = OrderedDict()
        self._bytes = 0

    def get(self, key: bytes) -> LogitArray | None:
        row = self._rows.get(key)
        if row is not None:
            self._rows.move_to_end(key)
        return row

    def put(self, key: bytes, row: LogitArray) -> None:
        if key in self._rows or row.nbytes > self._most_bytes:
            return
        self._rows[key] = row.copy()
        self._bytes += row.nbytes
        while self._bytes > self._most_bytes:
            self._bytes -= self._rows.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        self._rows.clear()
        self._bytes = 0


class Scheduler:
    """Runs jobs on one model. `submit`, then `step` until `idle`."""

    def __init__(self, model: Model, row_cache_bytes: int = ROW_CACHE_BYTES) -> None:
        self.model = model
        self._forks = model.limits.kind.forks
        self.row_cache = RowCache(row_cache_bytes)
        self._waiting: deque[Job] = deque()
        self._active: deque[Job] = deque()

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._active

    def submit(self, job: Job) -> None:
        """Queue a job. One that cannot fit even alone fails at once with `CapacityError`."""
        limits, floor = self.model.limits, job.task.floor
        needed = len(job.prompt) + floor.nodes
        if needed > limits.nodes:
            job.future.set_exception(CapacityError("nodes", needed=needed, available=limits.nodes))
        elif floor.branches + 1 > limits.branches:
            job.future.set_exception(CapacityError("branches", needed=floor.branches + 1, available=limits.branches))
        else:
            self._waiting.append(job)

    def fail_all(self, error: BaseException) -> None:
        """End every job with this error. Never raises: whoever waits must hear of it, whatever state the model is in."""
        jobs = [*self._active, *self._waiting]
        self._active.clear()
        self._waiting.clear()
        for job in jobs:
            self._fail(job, error)

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
        self._drop_cancelled()
        self._admit()
        parts = self._collect()
        if parts:
            self._extend(parts)
        if self._active:
            self._active.rotate(-1)

    def _drop_cancelled(self) -> None:
        for job in [j for j in (*self._active, *self._waiting) if j.cancelled]:
            if job in self._waiting:
                self._waiting.remove(job)
            self._end(job, error=CancelledError())

    def _admit(self) -> None:
        """Take waiting jobs in order while what all admitted ones may still need fits."""
        while self._waiting:
            need, free = self._waiting[0].need(forks=self._forks), self._free()
            if self._active and (need.nodes > free.nodes or need.branches > free.branches):
                return
            self._active.append(self._waiting.popleft())

    def _free(self) -> Room:
        """Room that is neither held nor reserved for an admitted job."""
        room = self.model.room()
        needs = [job.need(forks=self._forks) for job in self._active]
        return Room(
            self.model.limits.rows_per_call,
            room.nodes - sum(need.nodes for need in needs),
            room.branches - sum(need.branches for need in needs),
        )

    def _collect(self) -> list[_Part]:
        """A part from every active job, first come first, until the call is full."""
        parts: list[_Part] = []
        taken: set[tuple[bytes, bytes]] = set()
        free = self._free()
        for job in list(self._active):
            if free.rows <= 0:
                break
            if job.part is None:
                reserved = job.need(forks=self._forks)
                room = Room(free.rows, free.nodes + reserved.nodes, free.branches + reserved.branches)
                job.part = self._guarded(job, room)
                if job.part is None:
                    free = self._free()
                    continue
                promised = job.need(forks=self._forks)
                free = Room(
                    free.rows,
                    free.nodes + reserved.nodes - promised.nodes,
                    free.branches + reserved.branches - promised.branches,
                )
            part = job.part
            key = (part.parents.tobytes(), part.tokens.tobytes())
            if key not in taken:
                if len(part) > free.rows:
                    continue
                taken.add(key)
                free = replace(free, rows=free.rows - len(part))
            parts.append(part)
        return parts

    def _guarded(self, job: Job, room: Room) -> _Part | None:
        """The job's next part; a task that raises ends its own job and no other."""
        try:
            return self._next_part(job, room)
        except Exception as error:  # noqa: BLE001 - a task is foreign code: whatever it raises is its caller's answer
            self._end(job, error=error)
            return None

    def _next_part(self, job: Job, room: Room) -> _Part | None:
        if job.rounds is not None:
            return self._round_part(job, job.rounds)
        if not job.told:
            row = self.row_cache.get(job.key)
            if row is None:
                return self._prefill_part(job, room, want_row=True)
            job.task.tell(Rows(row[None]))
            job.told = True
        if job.ask is None:
            job.ask = self._ask(job, room)
            if job.ask is None:
                self._end(job, result=job.task.result())
                return None
        if job.prompt_node == NO_NODE and not self._attach(job):
            return self._prefill_part(job, room, want_row=False)
        return self._ask_part(job, job.ask)

    def _ask(self, job: Job, room: Room) -> Ask | None:
        """Ask the task within what it holds and what is free, and give back what it releases."""
        held, branches, floor = len(job.held), job.branches(), job.task.floor
        rest = 0 if job.prompt_node != NO_NODE else len(job.prompt)
        nodes = max(floor.nodes, held + room.nodes - rest)
        leaves = max(floor.branches, branches + room.branches)
        rows = max(floor.rows, room.rows)
        if self._forks:  # each node asked for may own a state
            rows = max(floor.rows, min(rows, room.branches))
            nodes = max(floor.nodes, min(nodes, held + room.branches))
        ask = job.task.ask(Room(rows, nodes, leaves))
        if ask is not None and len(ask.release):
            gone = job.nodes[ask.release]
            job.nodes[ask.release] = NO_NODE
            self.model.release(gone[gone != NO_NODE], forget=True)
        return ask

    def _attach(self, job: Job) -> bool:
        """Find the prompt's node in the cache."""
        node, depth = self.model.find(job.prompt)
        if depth < len(job.prompt):
            self.model.release(np.array([node], dtype=np.int32))
            return False
        job.prompt_node = job.nodes[0] = node
        return True

    def _prefill_part(self, job: Job, room: Room, *, want_row: bool) -> _Part | None:
        """The next chunk of the prompt, below the deepest node that is there already."""
        if job.cursor != NO_NODE:
            self.model.release(np.array([job.cursor], dtype=np.int32))
        job.cursor, job.depth = self.model.find(job.prompt[:-1])
        n = min(room.rows, len(job.prompt) - job.depth)
        tokens = job.prompt[job.depth : job.depth + n]
        parents = ~np.arange(-1, n - 1, dtype=np.int32)
        parents[0] = job.cursor
        keep = np.zeros(n, dtype=bool)
        keep[-1] = True
        wanted = keep & (want_row and job.depth + n == len(job.prompt))

        def take(nodes: IntArray, rows: Rows) -> None:
            self.model.release(np.append(nodes[:-1], job.cursor).astype(np.int32))
            job.depth += n
            if job.depth < len(job.prompt):
                job.cursor = int(nodes[-1])
                return
            job.cursor = NO_NODE
            job.prompt_node = job.nodes[0] = nodes[-1]
            if want_row:
                job.task.tell(rows)
                job.told = True
                self.row_cache.put(job.key, rows.logits(0))

        return _Part(job, parents, tokens, wanted, keep, take)

    def _ask_part(self, job: Job, ask: Ask) -> _Part:
        inside = ask.parents < 0
        parents = np.where(inside, ask.parents, job.nodes[np.where(inside, 0, ask.parents)]).astype(np.int32)
        if self._forks:
            job.rounds = _Rounds(ask, parents)
            return self._round_part(job, job.rounds)

        def take(nodes: IntArray, rows: Rows) -> None:
            self._adopt(job, ask, nodes)
            job.task.tell(rows)

        return _Part(job, parents, ask.tokens, ask.wanted, ask.keep, take)

    def _round_part(self, job: Job, state: _Rounds) -> _Part:
        """The current round of an ask, whose parents that are no nodes yet stand below nodes that the job holds."""
        parents, tokens, wanted, keep = state.elements()

        def take(nodes: IntArray, rows: Rows) -> None:
            everything = state.take(nodes, rows)
            if everything is not None:
                job.rounds = None
                self._adopt(job, state.ask, state.nodes)
                job.task.tell(everything)

        return _Part(job, parents, tokens, wanted, keep, take)

    def _adopt(self, job: Job, ask: Ask, nodes: IntArray) -> None:
        """Number the new nodes as the task does."""
        first = len(job.nodes)
        job.nodes = np.append(job.nodes, nodes).astype(np.int32)
        local = np.where(ask.parents < 0, first + ~ask.parents, ask.parents)
        job.parents = np.append(job.parents, local).astype(np.int32)
        job.ask = None

    def _extend(self, parts: list[_Part]) -> None:
        """One call for all parts. What does not fit together is tried with fewer; what fails alone fails its own job."""
        try:
            extension = self._call(parts)
        except DecodeInterrupted:
            return
        except SelectrieError as error:
            if len(parts) > 1:
                logger.debug("a call of %d parts failed (%s); splitting it", len(parts), error)
                half = len(parts) // 2
                self._extend(parts[:half])
                self._extend([part for part in parts[half:] if part.job.part is part])
                return
            self._end(parts[0].job, error=error)
            return
        self._distribute(parts, extension)

    def _call(self, parts: list[_Part]) -> Extension:
        starts = np.cumsum([0] + [len(part) for part in parts])
        parents = [
            np.where(part.parents < 0, part.parents - start, part.parents)
            for part, start in zip(parts, starts, strict=False)
        ]
        return self.model.extend(
            np.concatenate(parents).astype(np.int32),
            np.concatenate([part.tokens for part in parts]).astype(np.int32),
            np.concatenate([part.wanted for part in parts]),
            np.concatenate([part.keep for part in parts]),
        )

    def _distribute(self, parts: list[_Part], extension: Extension) -> None:
        total = len(extension.nodes)
        node, row = 0, 0
        for part in parts:
            job, n, n_rows = part.job, len(part), int(np.count_nonzero(part.wanted))
            nodes = extension.nodes[node : node + n]
            job.part = None
            job.cost += _share(extension, n / total)
            try:
                part.take(nodes, extension.rows.slice(row, row + n_rows))
                if job.on_step is not None:
                    job.on_step()
            except Exception as error:  # noqa: BLE001 - as in _guarded
                self._end(job, error=error)
            node, row = node + n, row + n_rows

    def _end(self, job: Job, *, result: object = None, error: BaseException | None = None) -> None:
        """Give the job's nodes back and answer, whatever becomes of the nodes."""
        if job in self._active:
            self._active.remove(job)
        try:
            self._give_back(job)
            self._tolerant(lambda: self.model.trim(self.model.limits.idle_rows))
        finally:
            if not job.future.done():
                if error is None:
                    job.future.set_result(result)
                else:
                    job.future.set_exception(error)

    def _give_back(self, job: Job) -> None:
        """Release everything that a job holds. Its prompt stays as cache, its branches go."""
        loose = [] if job.rounds is None else job.rounds.nodes[job.rounds.nodes != NO_NODE].tolist()
        held = job.nodes[job.held]
        branches = np.concatenate([held, np.array(loose, dtype=np.int32)]).astype(np.int32)
        ends = np.array([n for n in (job.prompt_node, job.cursor) if n != NO_NODE], dtype=np.int32)
        job.nodes, job.prompt_node, job.cursor, job.part, job.rounds = job.nodes[:0], NO_NODE, NO_NODE, None, None
        self._tolerant(lambda: self.model.release(branches, forget=True))
        self._tolerant(lambda: self.model.release(ends))

    def _tolerant(self, give_back: Callable[[], object]) -> None:
        """A model that was closed, or dropped every node after a failure, holds nothing more to give back."""
        try:
            give_back()
        except (NodeError, ClosedError) as error:
            logger.debug("nothing was given back: %s", error)


def _share(extension: Extension, share: float) -> Cost:
    """A part's share of a merged call, by its size (exact for a call of one part)."""
    return Cost(
        model_calls=1 if extension.rows_evaluated else 0,
        rows=round(extension.rows_evaluated * share),
        rows_repeated=round(extension.rows_repeated * share),
        rows_padded=round(extension.rows_padded * share),
        decode_s=extension.decode_s * share,
    )
