"""Answer questions.

Their tasks run together on the model's thread; then follow scores, near ties and
records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from selectrie.core.model import Model
from selectrie.core.types import FloatArray, IntArray
from selectrie.decoding import scoring
from selectrie.decoding.trie.best_first import BestFirst, SearchOutcome
from selectrie.decoding.trie.exhaustive import ScoreTask
from selectrie.engine.requests import selection
from selectrie.engine.requests.near_ties import EvaluatedSelect, rescore_near_ties
from selectrie.engine.requests.selection import PreparedSelect, SearchReport, SelectRequest
from selectrie.engine.requests.unproved import search_ended
from selectrie.engine.scheduler.model_thread import Handle
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import OptionError, SelectrieError, of_request
from selectrie.results import Certificate, Selection, TextScore, TokenPlan, TokenScore, view_of
from selectrie.tokenization.prompts import Prompt

Progress = Callable[[int, int], None]
"""Called with (amount done, total amount)."""
PLAN_NODES = 200
"""Maximum number of trie nodes that a `TokenPlan` shows."""


def prepare_all(
    model: Model, requests: Sequence[tuple[Prompt, Sequence[str]]], asked: SelectRequest
) -> list[PreparedSelect]:
    """Return the requests as questions.

    If any request is invalid, none runs; the error's `request` is the index of the
    first invalid one.
    """
    questions = [_prepare(model, i, request, asked, of=len(requests)) for i, request in enumerate(requests)]
    _check_batch(questions)
    return questions


def _prepare(
    model: Model, index: int, request: tuple[Prompt, Sequence[str]], asked: SelectRequest, *, of: int
) -> PreparedSelect:
    try:
        prompt, choices = request
    except (TypeError, ValueError):
        raise OptionError(f"requests[{index}]", request, "a pair of prompt and choices") from None
    try:
        return selection.prepare(model.vocabulary, model.limits, prompt, choices, asked)
    except SelectrieError as error:
        error.request = index if of > 1 else None
        raise


def _check_batch(questions: list[PreparedSelect]) -> None:
    """Check that all requests of rule "batch" have the same choices."""
    for i, question in enumerate(questions):
        if question.rule.name == "batch" and question.texts != questions[0].texts:
            error = OptionError("rule", "batch", "the same choices in every request of the batch")
            error.request = i
            raise error


def answer(
    group: TaskGroup, questions: list[PreparedSelect], tolerance: float | None, on_evaluated: Progress | None = None
) -> list[Selection]:
    """Evaluate all questions together, settle near ties and answer each.

    Args:
        group: The group that the tasks belong to.
        questions: The questions.
        tolerance: Nats per row by which layout may change a log-probability; None if
            it was not measured.
        on_evaluated: Called in this thread with (questions evaluated, number of
            questions); the `SearchParams.on_progress` of each is then not called.
    """
    selections = []
    for i, found in enumerate(_evaluate(group, questions, tolerance or 0.0, on_evaluated)):
        with _of(questions, i):
            selections.append(_decide(group, found, tolerance))
    return selections


def _of(questions: list[PreparedSelect], i: int) -> AbstractContextManager[None]:
    """Assign errors of the block to this request, if there are several."""
    return of_request(i if len(questions) > 1 else None)


def _evaluate(
    group: TaskGroup, questions: list[PreparedSelect], tolerance: float, on_evaluated: Progress | None
) -> list[EvaluatedSelect]:
    """Evaluate questions: baselines and exhaustive scoring together, then searches.

    The searches need the baselines for their bounds.
    """
    # All questions have the same search options.
    tell = questions[0].search.on_progress if questions and on_evaluated is None else None
    baselines = [[group.begin(ScoreTask(p, q.trie, q.plain_needs)) for p in q.premises] for q in questions]
    mains: dict[int, Handle[scoring.TrieEvaluation]] = {
        i: group.begin_told(ScoreTask(q.encoded.context, q.trie, q.needs), tell, q.needs.n_rows)
        for i, q in enumerate(questions)
        if q.method == "exhaustive"
    }
    means = []
    for i, question in enumerate(questions):
        with _of(questions, i):
            means.append(_mean(question, baselines[i]))
    searches: dict[int, Handle[SearchOutcome]] = {
        i: group.begin_told(_best_first(q, means[i], tolerance), tell, q.needs.n_rows)
        for i, q in enumerate(questions)
        if i not in mains
    }
    found = []
    for i, question in enumerate(questions):
        with _of(questions, i):
            evaluation, report = _exhausted(question, mains[i]) if i in mains else _searched(question, searches[i])
        cost = sum((handle.cost for handle in baselines[i]), report.cost)
        report = replace(report, cost=replace(cost, rows_naive=question.rows_naive))
        found.append(EvaluatedSelect(question, evaluation, means[i], report))
        if on_evaluated is not None:
            on_evaluated(len(found), len(questions))
    return _with_batch_means(found)


def _mean(question: PreparedSelect, group: list[Handle[scoring.TrieEvaluation]]) -> FloatArray | None:
    if not group:
        return None
    return scoring.mean_joint([selection.joints(question, handle.result()) for handle in group])


def _decide(group: TaskGroup, found: EvaluatedSelect, tolerance: float | None) -> Selection:
    question = found.question
    scored = selection.score(question, found.evaluation, found.baseline)
    scored, report = rescore_near_ties(group, found, scored, tolerance)
    signature = selection.signature(question, group.owner.scheduler.model.identity, group.owner.check)
    return selection.selection(question, found.evaluation, scored, report, signature)


def _best_first(question: PreparedSelect, baseline: FloatArray | None, tolerance: float) -> BestFirst:
    objective = question.objective(baseline, tolerance)
    if objective is None:
        raise OptionError("method", "best_first", "'exhaustive': this request has no bound to search by")
    healing = question.healing
    return BestFirst(
        question.encoded.context,
        question.trie,
        question.needs,
        question.terminator,
        objective=objective,
        search=question.search,
        heal=(lambda edge_logp, observed: healing.log_heal(edge_logp, observed)[0]) if len(healing.nodes) else None,
    )


def _exhausted(
    question: PreparedSelect, handle: Handle[scoring.TrieEvaluation]
) -> tuple[scoring.TrieEvaluation, SearchReport]:
    evaluation = handle.result()
    certificate = Certificate(
        proved=True,
        bound_gap=np.inf,
        open_mass=0.0,
        nodes_evaluated=evaluation.n_evaluated,
        nodes_inner=question.needs.n_rows,
        rescored=False,
        n_rescored=0,
        method="exhaustive",
    )
    return evaluation, SearchReport(certificate, handle.cost)


def _searched(question: PreparedSelect, handle: Handle[SearchOutcome]) -> tuple[scoring.TrieEvaluation, SearchReport]:
    outcome = handle.result()
    certificate = Certificate(
        proved=outcome.proved,
        bound_gap=outcome.bound_gap,
        open_mass=outcome.open_mass,
        nodes_evaluated=outcome.n_evaluated,
        nodes_inner=outcome.n_needed,
        rescored=False,
        n_rescored=0,
        method="best_first",
        reason="" if outcome.proved else search_ended(question.search, outcome.n_evaluated),
    )
    return outcome.evaluation, SearchReport(certificate, handle.cost, outcome.log_open)


def _with_batch_means(found: list[EvaluatedSelect]) -> list[EvaluatedSelect]:
    """Set the baselines of rule "batch": each choice's mean joint over all prompts."""
    batch = [one for one in found if one.question.rule.name == "batch"]
    if not batch:
        return found
    mean = scoring.mean_joint([selection.conditional_joints(one.question, one.evaluation) for one in batch])
    return [replace(one, baseline=mean) for one in found]


def score_text(group: TaskGroup, question: PreparedSelect, text: str, tolerance: float | None) -> TextScore:
    """Return the log-probability of a question's only choice, token by token."""
    question = replace(question, needs=replace(question.needs, best=question.needs.row))
    handle = group.begin(ScoreTask(question.encoded.context, question.trie, question.needs))
    evaluation = handle.result()
    scored = selection.score(question, evaluation, None)
    first = int(question.encoded.first_scored[0])
    tokens = question.trie.token[1 + first :]
    return TextScore(
        text=text,
        logp=float(scored.logp[0]),
        tokens=tuple(
            TokenScore.of(question.vocabulary, int(token), float(logp))
            for token, logp in zip(tokens, evaluation.edge_logp[1 + first :], strict=True)
        ),
        is_greedy=bool((evaluation.best_token[first:-1] == tokens).all()),
        healed=question.encoded.healed,
        log_heal=scored.log_heal,
        heal_gap=scored.heal_gap,
        cost=replace(handle.cost, rows_naive=question.rows_naive),
        signature=selection.signature(
            question, group.owner.scheduler.model.identity, None if tolerance is None else group.owner.check
        ),
        notes=question.notes,
    )


def token_plan(question: PreparedSelect) -> TokenPlan:
    """Return how a question is tokenized and what its evaluation takes."""
    encoded, trie, vocabulary = question.encoded, question.trie, question.vocabulary

    def spelled(ids: IntArray) -> tuple[tuple[int, str], ...]:
        return tuple((int(token), vocabulary.show(int(token))) for token in ids)

    paths = np.split(encoded.tokens, encoded.offsets[1:-1])
    return TokenPlan(
        bos=vocabulary.bos,
        prompt=spelled(encoded.prompt_tokens),
        context=spelled(encoded.context),
        healed=encoded.healed,
        boundary=encoded.boundary,
        terminator=question.terminator,
        choices=tuple(spelled(path) for path in paths),
        boundary_shift=tuple(encoded.boundary_shift.tolist()),
        n_trie_nodes=len(trie.token) - 1,
        rows_prompt=len(encoded.context),
        rows_inner=question.needs.n_rows - 1,
        rows_naive=question.rows_naive,
        trie=view_of(trie, vocabulary.pieces, limit=PLAN_NODES),
    )
