"""The rows that a job sends with the next call, once its prompt is evaluated.

These are the pending rows of its ask, or rows that it lost to preemption.
"""

from __future__ import annotations

import numpy as np

from selectrie.core.model import Model, Rows
from selectrie.core.types import Capacity
from selectrie.engine.scheduler.job import BatchPart, Job
from selectrie.engine.scheduler.node_table import as_ids
from selectrie.errors import ProtocolError


def attach(model: Model, job: Job) -> bool:
    """Set the job's prompt node from the cache; return whether it was there."""
    node, depth = model.match_prefix(job.prompt)
    if depth < len(job.prompt):
        model.release(as_ids([node]))
        return False
    job.rows.node[0] = node
    return True


def ask_part(model: Model, job: Job, room: Capacity) -> BatchPart:
    """Return the next part of the job's ask.

    The part has as many rows as the capacity, or a recurrent-state model, takes at
    once. Lost rows that pending ones descend from are evaluated again first.
    """
    rows, runs = job.rows, job.runs
    if runs is None:
        lost = rows.lost_above()[: room.rows]
        if lost:
            return _again_part(model, job, lost, keep=[True] * len(lost))
        chosen = rows.pending[: max(room.rows, job.floor.rows)]
        return _new_part(model, job, chosen, keep=[rows.keep[row] for row in chosen])
    chosen = runs.choose(rows, 1 if job.narrow else room.rows, max(1, room.sequences))
    if chosen or not rows.pending:
        return _new_part(model, job, chosen, keep=[rows.keep[row] or runs.carries(row) for row in chosen])
    way = rows.way_to(runs.to_restore(rows), room.rows)
    return _again_part(model, job, way, keep=[False] * (len(way) - 1) + [True])


def _new_part(model: Model, job: Job, chosen: list[int], *, keep: list[bool]) -> BatchPart:
    """Return a part with rows of the ask that were never evaluated."""
    rows, ask, gathered = job.rows, job.ask, job.gathered
    if ask is None or gathered is None:
        raise ProtocolError("nothing was asked for")
    elements = [row - rows.asked_from for row in chosen]
    base = [rows.up[row] for row in chosen]

    def take(nodes: list[int], told: Rows) -> None:
        rows.evaluated(chosen, nodes)
        if job.runs is not None:  # a held node keeps its state
            gone = rows.drop_states(list(dict.fromkeys([*chosen, *base, *ask.spent.tolist()])))
            model.release(as_ids(gone), forget=True)
        everything = gathered.add(elements, told)
        if everything is not None:
            job.ask = None
            job.task.tell(everything)

    wanted: list[bool] = ask.wanted[np.array(elements, dtype=np.int64)].tolist()
    tokens = [rows.token[row] for row in chosen]
    n_again = int(np.count_nonzero(ask.again[np.array(elements, dtype=np.int64)])) if len(ask.again) else 0
    return BatchPart(job, rows.parents_of(chosen), tokens, wanted, keep, take, base, n_again)


def _again_part(model: Model, job: Job, lost: list[int], *, keep: list[bool]) -> BatchPart:
    """Return a part that evaluates lost rows again, by their paths."""
    rows = job.rows

    def take(nodes: list[int], _told: Rows) -> None:
        for row, node, is_kept in zip(lost, nodes, keep, strict=True):
            if is_kept:
                rows.restored(row, node)
        model.release(as_ids([node for node, is_kept in zip(nodes, keep, strict=True) if not is_kept]), forget=True)

    wanted = [False] * len(lost)
    tokens = [rows.token[row] for row in lost]
    return BatchPart(job, rows.parents_of(lost), tokens, wanted, keep, take, [rows.up[row] for row in lost], len(lost))
