"""Near ties scored again where nothing else can move them: a small empty model, the prompt once, each path at the same cells.

What is computed there depends on the prompt and the path alone, so the order of the first k choices depends neither on
the rest of the set, its order or waves, nor on what the cache held.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from selectrie import scoring
from selectrie.jobs import Job
from selectrie.model import Model
from selectrie.scheduler import Scheduler
from selectrie.selecting import Question
from selectrie.tasks import Task
from selectrie.tasks.score import ScoreTask
from selectrie.trie import TokenTrie
from selectrie.types import ROOT, BoolArray, Cost, FloatArray, IntArray

R = TypeVar("R")

MOST_ROWS = 2048
"""Rows below the prompt that one finalist may take; an end that half the trie continues is left as it is."""


def can_settle(question: Question) -> bool:
    """Scores that one context decides: not of a callable, not a difference to other prompts of a batch."""
    return question.custom is None and question.rule.name != "batch"


def settle(model: Model, question: Question, context: IntArray, choices: IntArray) -> tuple[FloatArray | None, Cost]:
    """Canonical joint of some choices after a context, float64[n] less the healed bytes, and what it took.

    choices: int32[n], indices. None where a choice's terminator needs more than `MOST_ROWS` rows.
    """
    subs = [_alone(question, int(path)) for path in question.trie.path_of[choices]]
    if max(int(np.count_nonzero(sub.inner)) for sub, _ in subs) > MOST_ROWS:
        return None, Cost()
    room = max(len(sub.token) for sub, _ in subs) + len(question.healing.nodes)
    solo = model.solo(len(context) + room)
    try:
        scheduler = Scheduler(solo)
        healed, cost = _log_heal(scheduler, question, context)
        result = np.empty(len(choices))
        for i, (sub, end) in enumerate(subs):
            needs = scoring.row_needs(sub, question.terminator, (), question.needs.eog_ids)
            evaluation, more = _work(scheduler, ScoreTask(context, sub, needs))
            cost += more
            first = np.full(len(sub.path_of), question.encoded.first_scored[choices[i]], dtype=np.int32)
            paths = scoring.path_scores(sub, evaluation, question.terminator, healed)
            result[i] = paths.first_scored(sub, evaluation, first)[0][sub.end_path[end]]
        return result, cost
    finally:
        solo.close()


def _alone(question: Question, path: int) -> tuple[TokenTrie, int]:
    """The trie of one path and of what its terminator looks at below its end; and its end in that trie."""
    trie = question.trie
    end = int(trie.path_node[path])
    marked: BoolArray = np.zeros(len(trie.token), dtype=np.bool_)
    marked[end] = True
    if question.terminator == "unless-continued":
        owned = scoring.owners(trie) == end
        marked |= owned
        marked[1:] |= owned[trie.parent[1:]]
    sub, old = trie.restrict(marked)
    return sub, int(np.searchsorted(old, end))


def _log_heal(scheduler: Scheduler, question: Question, context: IntArray) -> tuple[float, Cost]:
    """Log-probability of the healed bytes after the context; 0 where nothing was healed or for another context."""
    healing = question.healing
    if not len(healing.nodes) or context is not question.encoded.context:
        return 0.0, Cost()
    marked: BoolArray = np.zeros(len(question.trie.token), dtype=np.bool_)
    marked[healing.nodes] = True
    sub, old = question.trie.restrict(marked)
    observe = [(int(np.searchsorted(old, node)), ids) for node, ids in healing.observations]
    needs = scoring.row_needs(sub, "none", observe, question.needs.eog_ids)
    evaluation, cost = _work(scheduler, ScoreTask(context, sub, needs))
    edges = np.full(len(question.trie.token), np.nan)
    edges[old] = evaluation.edge_logp
    edges[ROOT] = 0.0
    return healing.log_heal(edges, evaluation.observed)[0], cost


def _work(scheduler: Scheduler, task: Task[R]) -> tuple[R, Cost]:
    """The task's answer and what it took. Raises `CancelledError` after an interrupt, where a scheduler would try again."""
    job = Job(task)
    scheduler.submit(job)
    while not job.future.done():
        scheduler.step()
        job.cancelled = scheduler.n_interrupted > 0
    answer: R = job.future.result()
    return answer, job.cost
