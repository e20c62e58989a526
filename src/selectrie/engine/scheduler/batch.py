"""Builds a model call from parts of several jobs, and splits its result among them.

A part holds rows of a job's ask that are still to be evaluated, or rows that the job
lost to preemption.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from selectrie.core.model import Extension, Model
from selectrie.core.rows import Rows
from selectrie.core.types import Capacity, Cost
from selectrie.engine.scheduler.job import BatchPart, Job
from selectrie.engine.scheduler.node_table import as_ids
from selectrie.errors import ProtocolError


def attach(model: Model, job: Job) -> bool:
    """Look up the job's prompt node in the cache; return whether it was found."""
    node, depth = model.match_prefix(job.prompt)
    if depth < len(job.prompt):
        model.release(as_ids([node]))
        return False
    job.rows.node[0] = node
    return True


def ask_part(model: Model, job: Job, capacity: Capacity) -> BatchPart:
    """Return the next part of the job's ask.

    The part has as many rows as the capacity, or a recurrent-state model, takes at
    once. If ancestors of pending rows were lost to preemption, these are evaluated
    again first.
    """
    rows, runs = job.rows, job.runs
    if runs is None:
        lost = rows.lost_above()[: capacity.rows]
        if lost:
            return _again_part(model, job, lost, keep=[True] * len(lost))
        chosen = rows.pending[: max(capacity.rows, job.floor.rows)]
        return _new_part(model, job, chosen, keep=[rows.keep[row] for row in chosen])
    chosen = runs.choose(rows, 1 if job.narrow else capacity.rows, max(1, capacity.sequences))
    if chosen or not rows.pending:
        return _new_part(model, job, chosen, keep=[rows.keep[row] or runs.carries(row) for row in chosen])
    way = rows.way_to(runs.to_restore(rows), capacity.rows)
    return _again_part(model, job, way, keep=[False] * (len(way) - 1) + [True])


def _new_part(model: Model, job: Job, chosen: list[int], *, keep: list[bool]) -> BatchPart:
    """Return a part with the rows `chosen` of the ask, which were never evaluated."""
    rows, ask, collector = job.rows, job.ask, job.collector
    if ask is None or collector is None:
        raise ProtocolError("nothing was asked for")
    elements = [row - rows.first_row for row in chosen]
    base = [rows.up[row] for row in chosen]

    def take(nodes: list[int], read: Rows) -> None:
        rows.evaluated(chosen, nodes)
        if job.runs is not None:  # a held node keeps its state
            gone = rows.drop_states(list(dict.fromkeys([*chosen, *base, *ask.spent.tolist()])))
            model.release(as_ids(gone), forget=True)
        all_rows = collector.add(elements, read)
        if all_rows is not None:
            job.ask = None
            job.tell(all_rows)

    tokens = [rows.token[row] for row in chosen]
    if len(chosen) == len(ask.tokens) and not len(ask.again):
        return BatchPart(job, rows.parents_of(chosen), tokens, ask.wanted.tolist(), keep, take, base)
    wanted: list[bool] = ask.wanted[np.array(elements, dtype=np.int64)].tolist()
    n_again = int(np.count_nonzero(ask.again[np.array(elements, dtype=np.int64)])) if len(ask.again) else 0
    return BatchPart(job, rows.parents_of(chosen), tokens, wanted, keep, take, base, n_again)


def _again_part(model: Model, job: Job, lost: list[int], *, keep: list[bool]) -> BatchPart:
    """Return a part that evaluates the rows `lost` to preemption again."""
    rows = job.rows

    def take(nodes: list[int], _read: Rows) -> None:
        for row, node, is_kept in zip(lost, nodes, keep, strict=True):
            if is_kept:
                rows.restored(row, node)
        model.release(as_ids([node for node, is_kept in zip(nodes, keep, strict=True) if not is_kept]), forget=True)

    wanted = [False] * len(lost)
    tokens = [rows.token[row] for row in lost]
    return BatchPart(job, rows.parents_of(lost), tokens, wanted, keep, take, [rows.up[row] for row in lost], len(lost))


def extend(model: Model, parts: Sequence[BatchPart]) -> Extension:
    """Evaluate all parts, one after the other, in one `Model.extend`."""
    parents: list[int] = []
    tokens: list[int] = []
    wanted: list[bool] = []
    keep: list[bool] = []
    for part in parts:
        start = len(parents)
        parents += [parent if parent >= 0 else parent - start for parent in part.parents]
        tokens += part.tokens
        wanted += part.wanted
        keep += part.keep
    return model.extend(
        as_ids(parents), as_ids(tokens), np.array(wanted, dtype=np.bool_), np.array(keep, dtype=np.bool_)
    )


def shares(parts: Sequence[BatchPart], extension: Extension) -> Iterator[tuple[BatchPart, list[int], Rows, Cost]]:
    """Yield each part with its nodes, its wanted rows and its share of the cost.

    The cost is divided in proportion to the sizes of the parts. Counts are rounded so
    that those of all parts add up to those of the call.
    """
    nodes = extension.nodes.tolist()
    node = row = 0
    for part in parts:
        end, n_rows = node + len(part), sum(part.wanted)
        rows = extension.rows if len(parts) == 1 else extension.rows.slice(row, row + n_rows)
        yield part, nodes[node:end], rows, _cost(extension, node, end, len(part) - part.n_again)
        node, row = end, row + n_rows


def _cost(extension: Extension, start: int, end: int, n_new: int) -> Cost:
    """Return the cost of a part.

    Args:
        extension: The result of the whole call.
        start: Index of the part's first row in the call.
        end: Index after its last row.
        n_new: Rows of the part that were never evaluated for its job.
    """
    n_all = max(1, len(extension.nodes))
    n_rows, n_repeated, n_padded = extension.rows_evaluated, extension.rows_repeated, extension.rows_padded
    rows = n_rows * end // n_all - n_rows * start // n_all
    n_again = max(0, rows - n_new)  # rows that stayed cached were not evaluated
    return Cost(
        model_calls=1 if n_rows else 0,
        rows=rows,
        rows_repeated=min(rows, n_again + n_repeated * end // n_all - n_repeated * start // n_all),
        rows_padded=n_padded * end // n_all - n_padded * start // n_all,
        decode_s=extension.decode_s * (end - start) / n_all,
    )
