"""What a job sends with the next call: a chunk of its prompt, what is left of its ask, or rows that were taken from it."""

from __future__ import annotations

import numpy as np

from selectrie.errors import ProtocolError
from selectrie.jobs import Job, Part, RowCache
from selectrie.model import Model, Rows, chain
from selectrie.types import NO_NODE, BoolArray, IntArray, Room


def attach(model: Model, job: Job) -> bool:
    """Find the prompt's node in the cache."""
    node, depth = model.find(job.prompt)
    if depth < len(job.prompt):
        model.release(np.array([node], dtype=np.int32))
        return False
    job.rows.node[0] = node
    return True


def prefill_part(model: Model, row_cache: RowCache, job: Job, most_rows: int, *, want_row: bool) -> Part:
    """The next chunk of the prompt, below the deepest node that is there already. want_row: its end's row is not known."""
    if job.cursor != NO_NODE:
        model.release(np.array([job.cursor], dtype=np.int32))
    job.cursor, job.depth = model.find(job.prompt[:-1])
    n = min(most_rows, len(job.prompt) - job.depth)
    tokens = job.prompt[job.depth : job.depth + n]
    parents = chain(job.cursor, n)
    keep = np.zeros(n, dtype=bool)
    keep[-1] = True
    wanted = keep & (want_row and job.depth + n == len(job.prompt))

    def take(nodes: IntArray, rows: Rows) -> None:
        model.release(np.append(nodes[:-1], job.cursor).astype(np.int32))
        job.depth += n
        if job.depth < len(job.prompt):
            job.cursor = int(nodes[-1])
            return
        job.cursor = NO_NODE
        job.rows.node[0] = nodes[-1]
        if want_row:
            job.task.tell(rows)
            job.told = True
            row_cache.put(job.key, rows.logits(0))

    nothing = np.empty(0, dtype=np.int32)
    return Part(job, parents, tokens, wanted, keep, take, base=nothing, repeats=not want_row)


def ask_part(model: Model, job: Job, room: Room) -> Part:
    """What is left of the ask, or as much of it as a forking model takes at once; what it hangs from goes first."""
    rows, runs = job.rows, job.runs
    if runs is None:
        lost = rows.lost()
        if len(lost):
            return _again_part(model, job, lost[: room.rows], keep=np.ones(len(lost[: room.rows]), dtype=np.bool_))
        return _new_part(model, job, rows.pending, keep=rows.keep[rows.pending])
    places = runs.choose(rows, 1 if job.narrow else room.rows, max(1, room.branches))
    if len(places) or not len(rows.pending):
        return _new_part(model, job, places, keep=rows.keep[places] | runs.carriers(places))
    way = rows.way_to(runs.to_restore(rows), room.rows)
    return _again_part(model, job, way, keep=np.arange(len(way)) == len(way) - 1)


def _new_part(model: Model, job: Job, places: IntArray, *, keep: BoolArray) -> Part:
    """Rows of the ask that were never evaluated."""
    rows, ask, gathered = job.rows, job.ask, job.gathered
    if ask is None or gathered is None:
        raise ProtocolError("nothing was asked for")
    elements = places - rows.asked_from

    def take(nodes: IntArray, told: Rows) -> None:
        rows.done[places] = True
        rows.node[places] = nodes
        if job.runs is not None:  # holding a node is holding its state
            spent = ~rows.keep & ~rows.waited_for()
            model.release(rows.take_away(spent), forget=True)
        everything = gathered.add(elements, told)
        if everything is not None:
            job.ask = None
            job.task.tell(everything)

    base = rows.up[places]
    return Part(job, rows.parents_of(places), rows.token[places], ask.wanted[elements], keep, take, base)


def _again_part(model: Model, job: Job, places: IntArray, *, keep: BoolArray) -> Part:
    """Rows that were evaluated before and taken away, by their path."""
    rows = job.rows

    def take(nodes: IntArray, _told: Rows) -> None:
        rows.node[places[keep]] = nodes[keep]
        model.release(nodes[~keep], forget=True)

    wanted = np.zeros(len(places), dtype=np.bool_)
    base = rows.up[places]
    return Part(job, rows.parents_of(places), rows.token[places], wanted, keep, take, base, repeats=True)
