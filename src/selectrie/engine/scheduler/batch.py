"""Builds a model call from parts of several jobs and prompts, and splits the result."""

from __future__ import annotations

from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from selectrie.core.model import Extension, Model
from selectrie.core.rows import Rows
from selectrie.core.sized_cache import SizedCache
from selectrie.core.types import NO_NODE, Capacity, Cost
from selectrie.engine.scheduler.job import BatchPart, Job
from selectrie.engine.scheduler.node_table import as_ids
from selectrie.engine.scheduler.turns import ROUNDING, shares_of
from selectrie.errors import ProtocolError


def attach_prompt(model: Model, job: Job) -> bool:
    """Take a reference to the job's prompt node if cached; return whether it is."""
    node, depth = model.match_prefix(job.prompt)
    if depth < len(job.prompt):
        model.release(as_ids([node]))
        return False
    job.rows.node[0] = node
    return True


def ask_part(model: Model, job: Job, capacity: Capacity) -> BatchPart:
    """Return the next part of the job's ask.

    The part has as many rows as the capacity, or a recurrent-state model, takes at
    once. If ancestors of pending rows were lost to preemption, they are evaluated again
    first.
    """
    rows, runs = job.rows, job.runs
    if runs is None:  # any rows can go into one call; not so with recurrent states
        lost = rows.lost_ancestors()[: capacity.rows]
        if lost:
            return _restoring_part(model, job, lost, keep=[True] * len(lost))
        chosen = rows.pending[: max(capacity.rows, job.floor.rows)]
        return _new_part(model, job, chosen, keep=[rows.keep[row] for row in chosen])
    chosen = runs.choose(rows, 1 if job.narrow else capacity.rows, max(1, capacity.sequences))
    if chosen or not rows.pending:
        return _new_part(model, job, chosen, keep=[rows.keep[row] or runs.starts_run(row) for row in chosen])
    way = rows.path_to(runs.base_to_restore(rows), capacity.rows)
    return _restoring_part(model, job, way, keep=[False] * (len(way) - 1) + [True])


def _new_part(model: Model, job: Job, chosen: list[int], *, keep: list[bool]) -> BatchPart:
    """Return the part of a call with these rows of a job's ask, not yet evaluated.

    Args:
        model: The model.
        job: The job.
        chosen: Numbers of the rows, among the job's local rows.
        keep: Whether each of them may be a parent later.
    """
    rows, ask, collector = job.rows, job.ask, job.collector
    if ask is None or collector is None:
        raise ProtocolError("nothing was asked for")
    elements = [row - rows.first_row for row in chosen]
    base = [rows.up[row] for row in chosen]

    def take(nodes: list[int], read: Rows) -> None:  # called once they are evaluated
        rows.assign_nodes(chosen, nodes)
        if job.runs is not None:  # holding a node would keep its state in memory
            gone = rows.drop_states(list(dict.fromkeys([*chosen, *base, *ask.spent.tolist()])))
            model.release(as_ids(gone), forget=True)
        all_rows = collector.add(elements, read)
        if all_rows is not None:
            job.ask = None
            job.tell(all_rows, ask)

    tokens = [rows.token[row] for row in chosen]
    if len(chosen) == len(ask.tokens) and not len(ask.again):
        return BatchPart(job, rows.parents_of(chosen), tokens, ask.wanted.tolist(), keep, take, base)
    wanted: list[bool] = ask.wanted[np.array(elements, dtype=np.int64)].tolist()
    n_again = int(np.count_nonzero(ask.again[np.array(elements, dtype=np.int64)])) if len(ask.again) else 0
    return BatchPart(job, rows.parents_of(chosen), tokens, wanted, keep, take, base, n_again)


def _restoring_part(model: Model, job: Job, lost: list[int], *, keep: list[bool]) -> BatchPart:
    """Return a part that evaluates the rows `lost` to preemption once more."""
    rows = job.rows

    def take(nodes: list[int], _read: Rows) -> None:
        for row, node, is_kept in zip(lost, nodes, keep, strict=True):
            if is_kept:
                rows.restore(row, node)
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
        # `~j` counts from the part's first row, in the call from that of the call.
        parents += [parent if parent >= 0 else parent - start for parent in part.parents]
        tokens += part.tokens
        wanted += part.wanted
        keep += part.keep
    return model.extend(
        as_ids(parents), as_ids(tokens), np.array(wanted, dtype=np.bool_), np.array(keep, dtype=np.bool_)
    )


def split_call(parts: Sequence[BatchPart], extension: Extension) -> Iterator[tuple[BatchPart, list[int], Rows, Cost]]:
    """Yield each part with its nodes, its wanted rows and its share of the cost.

    The cost is divided in proportion to the sizes of the parts. Counts are rounded so
    that the counts of all parts add up to those of the call.
    """
    nodes = extension.nodes.tolist()
    node = row = 0
    for part in parts:
        end, n_rows = node + len(part), sum(part.wanted)
        rows = extension.rows if len(parts) == 1 else extension.rows.slice(row, row + n_rows)
        yield part, nodes[node:end], rows, _part_cost(extension, node, end, len(part) - part.n_again)
        node, row = end, row + n_rows


def _part_cost(extension: Extension, start: int, end: int, n_new: int) -> Cost:
    """Return the share of a part in the cost of a call.

    Args:
        extension: The result of the whole call.
        start: Index of the part's first row in the call.
        end: Index after its last row.
        n_new: Number of rows of the part that its job evaluates for the first time.
    """
    n_all = max(1, len(extension.nodes))
    n_rows, n_repeated, n_padded = extension.rows_evaluated, extension.rows_repeated, extension.rows_padded
    rows = n_rows * end // n_all - n_rows * start // n_all
    n_again = max(0, rows - n_new)  # cached rows were not evaluated
    return Cost(
        model_calls=1 if n_rows else 0,
        rows=rows,
        rows_repeated=min(rows, n_again + n_repeated * end // n_all - n_repeated * start // n_all),
        rows_padded=n_padded * end // n_all - n_padded * start // n_all,
        decode_s=extension.decode_s * (end - start) / n_all,
    )


_MIN_CHUNK = 32
"""Minimum number of rows of a prompt's share of a call.

If the shares would be smaller, fewer prompts take part and the others wait.
"""


def allocate_prefill(jobs: Sequence[Job], budget: int, *, is_recurrent: bool) -> list[tuple[Job, int]]:
    """Return each job with the number of prompt tokens it evaluates in the next call.

    Jobs that are left out wait. Higher priorities get as many rows as they can use.
    Jobs of equal priority get their shares (`turns.shares_of`), and rows that a job
    cannot use go to others. A token that another job evaluates in the same call takes
    no further row, except in a recurrent-state model. Of equal prompts one is
    evaluated; the others find it in the cache later.

    Args:
        jobs: The jobs to prefill, higher priorities first.
        budget: Number of rows for all prompts together.
        is_recurrent: Whether the model is a recurrent-state model.
    """
    by_prompt: dict[bytes, Job] = {}
    for job in jobs:
        by_prompt.setdefault(job.key, job)
    leaders = list(by_prompt.values())
    shares = shares_of(leaders)
    chunks: list[_Chunk] = []
    evaluated, n_rows = _EvaluatedPaths(), budget
    for _, group in groupby(leaders, key=lambda job: job.priority):
        taking = _choose_worthwhile(list(group), budget, shares)
        left = sum(shares[job] for job in taking)
        for job in taking:
            chunk = _Chunk(job, n_rows)
            n_shared = 0 if is_recurrent else evaluated.n_shared(chunk)
            chunk.n = min(chunk.n_left, n_shared + int(budget * shares[job] / left + ROUNDING))
            left -= shares[job]
            chunks.append(chunk)
            evaluated.add(chunk)
            budget -= chunk.n - n_shared
    if not is_recurrent:
        # An early job may continue along the tokens of later ones, and use the rows
        # that these left over.
        for chunk in chunks:
            if chunk.n < chunk.n_left:
                n_shared = evaluated.n_shared(chunk)
                chunk.n = min(chunk.n_left, n_shared + budget)
                budget -= chunk.n - n_shared
                evaluated.add(chunk)
    return [(chunk.job, chunk.n) for chunk in chunks if chunk.n > 0]


def _choose_worthwhile(jobs: list[Job], budget: int, shares: Mapping[Job, float]) -> list[Job]:
    """Return the first jobs that can each get a chunk of a worthwhile size.

    They are sorted by the tokens that they need, relative to their share, fewest first.
    """
    taking: list[Job] = []
    for job in jobs:
        budget -= min(job.n_prompt_left, _MIN_CHUNK)
        if taking and budget < 0:
            break
        taking.append(job)
    return sorted(taking, key=lambda job: job.n_prompt_left / shares[job])


class _Chunk:
    """The next `n` tokens of a job's prompt to evaluate.

    Args:
        job: The job.
        budget: Number of rows of the call, and so of the tokens to consider.
    """

    def __init__(self, job: Job, budget: int) -> None:
        self.job, self.n, self.n_left = job, 0, job.n_prompt_left
        self.to_come: list[int] = job.prompt[job.depth : job.depth + budget].tolist()


class _EvaluatedPaths:
    """The token paths that the chunks of a call evaluate, sorted, by cursor.

    In sorted order, the path with the longest common prefix is a neighbour.
    """

    def __init__(self) -> None:
        self._paths: defaultdict[int, list[list[int]]] = defaultdict(list)

    def n_shared(self, chunk: _Chunk) -> int:
        """Return how many of a chunk's next tokens another chunk evaluates."""
        paths, mine = self._paths[chunk.job.cursor], chunk.to_come
        at = bisect(paths, mine)
        return max([_common_length(mine, path) for path in paths[max(0, at - 1) : at + 1]], default=0)

    def add(self, chunk: _Chunk) -> None:
        """Add the tokens that a chunk evaluates."""
        insort(self._paths[chunk.job.cursor], chunk.to_come[: chunk.n])


def _common_length(one: list[int], other: list[int]) -> int:
    """Return the length of the common prefix of two token lists."""
    n = min(len(one), len(other))
    if one[:n] == other[:n]:
        return n
    return next(i for i, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs)


def find_cursor(model: Model, job: Job) -> None:
    """Set `job.cursor` and `job.depth` to where the job's prompt continues.

    The cursor is the deepest cached node on the prompt's path. The tokens below it are
    not evaluated yet. They include the last one, even if its node is cached, because
    only evaluating it gives the prompt's row.
    """
    before = job.cursor
    job.cursor, job.depth = model.match_prefix(job.prompt[:-1])
    if before != NO_NODE:
        model.release(as_ids([before]))


def prefill_part(model: Model, row_cache: SizedCache[bytes, Rows], job: Job, n: int) -> BatchPart:
    """Return a part with the next n tokens of the job's prompt, below `job.cursor`."""
    want_row = not job.has_prompt_row
    parents = [job.cursor, *range(-1, -n, -1)]
    is_end = [False] * (n - 1) + [True]
    is_wanted = want_row and job.depth + n == len(job.prompt)

    def take(nodes: list[int], rows: Rows) -> None:
        model.release(as_ids([*nodes[:-1], job.cursor]))
        job.depth += n
        if job.depth < len(job.prompt):
            job.cursor = nodes[-1]
            return
        job.cursor = NO_NODE
        job.rows.node[0] = nodes[-1]
        if want_row:
            job.tell(rows.fetch(job.task.reads))
            job.begin_asks()
            if job.key not in row_cache:
                row_cache.put(job.key, rows.copy())

    job.part = BatchPart(
        job,
        parents,
        job.prompt[job.depth : job.depth + n].tolist(),
        is_end if is_wanted else [False] * n,
        is_end,
        take,
        base=[],
        n_again=0 if want_row else n,
    )
    return job.part
