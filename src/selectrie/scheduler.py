"""Merges the asks of many tasks into few model calls: admission, fair turns, cutting to size, cancellation, row cache.

One step is one `extend`, and more only where that failed. Every admitted task has reserved what it may still need, so most
asks fit. Where one does not after all (nodes that several tasks hold are not free when one of them gives them back), the
others go on; where nobody can, the youngest gives up its nodes and queues again, to extend them by path later. The oldest is
never evicted, so no two half-done tasks wait for each other. Not thread-safe: one thread owns it together with its model
(`owner.Owner`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from selectrie.errors import (
    CancelledError,
    CapacityError,
    ClosedError,
    DecodeInterrupted,
    NodeError,
    ProtocolError,
    SelectrieError,
)
from selectrie.jobs import ROW_CACHE_BYTES, Job, Part, RowCache
from selectrie.model import Extension, Model, Rows
from selectrie.parts import ask_part, attach, prefill_part
from selectrie.types import NO_NODE, Cost, Room

__all__ = ["ROW_CACHE_BYTES", "Job", "RowCache", "Scheduler"]

logger = logging.getLogger(__name__)


class Scheduler:
    """Runs jobs on one model. `submit`, then `step` until `idle`. n_interrupted: calls that will be made again."""

    def __init__(self, model: Model, row_cache_bytes: int = ROW_CACHE_BYTES) -> None:
        self.model = model
        self._forks = model.limits.kind.forks
        self.row_cache = RowCache(row_cache_bytes)
        self._waiting: deque[Job] = deque()
        self._active: deque[Job] = deque()
        self._refused: list[tuple[Part, CapacityError]] = []
        self._moved = False
        self._n_submitted = self.n_interrupted = 0

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._active

    def submit(self, job: Job) -> None:
        """Queue a job. One that cannot fit even alone fails at once with `CapacityError`."""
        limits, floor = self.model.limits, job.floor
        for what, needed, available in (
            ("nodes", len(job.prompt) + floor.nodes, limits.nodes),
            ("branches", 2 if self._forks else floor.branches + 1, limits.branches),
            ("rows in one call", floor.rows, limits.rows_per_call),
        ):
            if needed > available:
                job.answer(None, CapacityError(what, needed=needed, available=available))
                return
        job.order = self._n_submitted
        self._n_submitted += 1
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
        if not (self._refused and self._active):  # what did not fit goes before what has not begun
            self._admit()
        self._refused, self._moved = [], False
        parts = self._collect()
        if parts:
            self._extend(parts)
        if self._refused and not self._moved:
            self._relieve(*self._refused[0])
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

    def _collect(self) -> list[Part]:
        """A part from every active job, first come first, until the call is full."""
        parts: list[Part] = []
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
            if part.key not in taken:
                if len(part) > free.rows:
                    continue
                taken.add(part.key)
                free = replace(free, rows=free.rows - len(part))
            parts.append(part)
        return parts

    def _guarded(self, job: Job, room: Room) -> Part | None:
        """The job's next part; a task that raises ends its own job and no other."""
        try:
            return self._next_part(job, room)
        except Exception as error:  # noqa: BLE001 - a task is foreign code: whatever it raises is its caller's answer
            self._end(job, error=error)
            return None

    def _next_part(self, job: Job, room: Room) -> Part | None:
        if not job.told:
            row = self.row_cache.get(job.key)
            if row is None:
                return prefill_part(self.model, self.row_cache, job, room.rows, want_row=True)
            job.task.tell(Rows(row[None]))
            job.told = True
        if job.ask is None and not self._ask(job, room):
            self._end(job, result=job.task.result())
            return None
        if job.prompt_node == NO_NODE and not attach(self.model, job):
            return prefill_part(self.model, self.row_cache, job, room.rows, want_row=False)
        return ask_part(self.model, job, room)

    def _ask(self, job: Job, room: Room) -> bool:
        """Ask the task within what it holds and what is free, and give back what it releases; False = it has finished."""
        offer = job.room_to_ask(room, forks=self._forks)
        ask = job.task.ask(offer)
        if ask is None:
            return False
        if len(ask.tokens) > offer.rows:
            raise ProtocolError(f"asked for {len(ask.tokens)} rows, offered {offer.rows}")
        self.model.release(job.begin(ask, forks=self._forks), forget=True)
        return True

    def _extend(self, parts: list[Part]) -> None:
        """One call for all parts. What does not fit together is tried with fewer; what fails alone fails its own job."""
        try:
            extension = self._call(parts)
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
        self._moved = True
        self._distribute(parts, extension)

    def _relieve(self, part: Part, error: CapacityError) -> None:
        """Nobody could go on: the youngest job gives everything back and queues again, never the oldest; a job alone
        makes do with less, and fails where there is nothing less."""
        if len(self._active) > 1:
            youngest = max(self._active, key=lambda job: job.order)
            logger.debug("job %d gives its nodes back: %s", youngest.order, error)
            self._active.remove(youngest)
            self._give_back(youngest)
            self._waiting.appendleft(youngest)
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
            held = np.flatnonzero(rows.node != NO_NODE)
            spare = held[(held > 0) & ~np.isin(held, part.base)][:1]
            if len(spare):
                self.model.release(rows.take_away(spare), forget=True)
                return True
        return self.model.trim(0) > 0

    def _call(self, parts: list[Part]) -> Extension:
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

    def _distribute(self, parts: list[Part], extension: Extension) -> None:
        total = len(extension.nodes)
        node, row = 0, 0
        for part in parts:
            job, n, n_rows = part.job, len(part), int(np.count_nonzero(part.wanted))
            nodes = extension.nodes[node : node + n]
            job.part = None
            job.cost += _share(extension, n / total if total else 0.0, repeats=part.repeats)
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
            job.answer(result, error)

    def _give_back(self, job: Job) -> None:
        """Release everything that a job holds. Its prompt stays as cache, its branches go."""
        branches, ends = job.let_go()
        self._tolerant(lambda: self.model.release(branches, forget=True))
        self._tolerant(lambda: self.model.release(ends))

    def _tolerant(self, give_back: Callable[[], object]) -> None:
        """A model that was closed, or dropped every node after a failure, holds nothing more to give back."""
        try:
            give_back()
        except (NodeError, ClosedError) as error:
            logger.debug("nothing was given back: %s", error)


def _share(extension: Extension, share: float, *, repeats: bool) -> Cost:
    """A part's share of a merged call, by its size (exact for a call of one part)."""
    rows = round(extension.rows_evaluated * share)
    return Cost(
        model_calls=1 if extension.rows_evaluated else 0,
        rows=rows,
        rows_repeated=rows if repeats else round(extension.rows_repeated * share),
        rows_padded=round(extension.rows_padded * share),
        decode_s=extension.decode_s * share,
    )
