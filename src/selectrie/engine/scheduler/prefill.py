"""Evaluates prompts, and decides how much of each goes into the next call."""

from __future__ import annotations

from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby

from selectrie.core.model import Model
from selectrie.core.rows import Rows
from selectrie.core.types import NO_NODE
from selectrie.engine.scheduler.job import BatchPart, Job, RowCache
from selectrie.engine.scheduler.node_table import as_ids
from selectrie.engine.scheduler.turns import ROUNDING, shares_of

_MIN_CHUNK = 32
"""Rows below which a prompt's share of a call is not worthwhile.

Rather than cutting shares smaller, fewer prompts take part and the others wait.
"""


def allocate_prefill(jobs: Sequence[Job], budget: int, *, is_recurrent: bool) -> list[tuple[Job, int]]:
    """Return each job with the number of prompt tokens it evaluates in the next call.

    Jobs that are left out wait. Higher priorities get as many rows as they can use.
    Equal priorities have their shares (`turns.shares_of`), and rows that one cannot use
    go to others. A token that another job evaluates in the same call takes no further
    row (this is not relied on in a recurrent-state model). Of equal prompts one is
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
    evaluated, n_rows = _Evaluated(), budget
    for _, group in groupby(leaders, key=lambda job: job.priority):
        taking = _worth_taking(list(group), budget, shares)
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


def _worth_taking(jobs: list[Job], budget: int, shares: Mapping[Job, float]) -> list[Job]:
    """Return the first jobs that can each get a chunk of a worthwhile size.

    They are sorted by the part of their share that they need, smallest first.
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
        budget: Number of rows of the call, beyond which no token is looked at.
    """

    def __init__(self, job: Job, budget: int) -> None:
        self.job, self.n, self.n_left = job, 0, job.n_prompt_left
        self.to_come: list[int] = job.prompt[job.depth : job.depth + budget].tolist()


class _Evaluated:
    """The tokens that the chunks of a call evaluate, sorted, by their cursors.

    The one that shares the longest beginning with others is a neighbour of theirs.
    """

    def __init__(self) -> None:
        self._paths: defaultdict[int, list[list[int]]] = defaultdict(list)

    def n_shared(self, chunk: _Chunk) -> int:
        """Return how many of a chunk's next tokens are evaluated."""
        paths, mine = self._paths[chunk.job.cursor], chunk.to_come
        at = bisect(paths, mine)
        return max([_n_common(mine, path) for path in paths[max(0, at - 1) : at + 1]], default=0)

    def add(self, chunk: _Chunk) -> None:
        """Add the tokens that a chunk evaluates."""
        insort(self._paths[chunk.job.cursor], chunk.to_come[: chunk.n])


def _n_common(one: list[int], other: list[int]) -> int:
    """Return the number of tokens with which both begin."""
    n = min(len(one), len(other))
    if one[:n] == other[:n]:
        return n
    return next(i for i, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs)


def find_cursor(model: Model, job: Job) -> None:
    """Set `job.cursor` and `job.depth` to where the job's prompt continues.

    The cursor is the deepest cached node on the prompt's path, and below it the prompt
    is still to be evaluated.
    """
    before = job.cursor
    job.cursor, job.depth = model.match_prefix(job.prompt[:-1])
    if before != NO_NODE:
        model.release(as_ids([before]))


def prefill_part(model: Model, row_cache: RowCache, job: Job, n: int) -> BatchPart:
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
            row_cache.put(job.key, rows)

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
