"""Runs selections: evaluates requests together and turns scores into decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from selectrie.core import numerics
from selectrie.core.model import ModelDescription
from selectrie.core.numerics import Interval
from selectrie.core.path_model import REMOTE
from selectrie.core.types import NO_TOKEN, Cost, FloatArray, IntArray
from selectrie.decoding.scoring.evaluation import TrieEvaluation
from selectrie.decoding.scoring.paths import posteriors, stack_evaluations
from selectrie.decoding.scoring.rules import Posterior, best_of_paths, is_certain, posterior
from selectrie.decoding.scoring.tolerance import are_clear, near_choices, near_margins
from selectrie.decoding.trie.best_first import BestFirst, SearchOutcome
from selectrie.decoding.trie.exhaustive import ScorePlan, ScoreTask
from selectrie.engine.requests import choice_scores, selection
from selectrie.engine.requests.choice_scores import ChoiceScores, SearchReport
from selectrie.engine.requests.near_ties import EvaluatedSelect, rescore_near_ties
from selectrie.engine.requests.reasons import (
    reason_bounds_overlap,
    reason_heal_in_callable,
    reason_heal_unknown,
    reason_rescored_lower,
    reason_search_ended,
    reason_too_close,
)
from selectrie.engine.requests.selection import Choices, PreparedSelect, ReadChoices, SelectPlan, SelectRequest
from selectrie.engine.requests.session import Session, fix_time
from selectrie.engine.scheduler.model_thread import Handle
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import OptionError, SelectrieError, of_request
from selectrie.options import BASELINE_RULES
from selectrie.results import Certificate, Selection, Signature, TextScore, TokenPlan, TokenScore, view_of
from selectrie.tokenization.prompts import Prompt

_MAX_KEPT = 64
"""Maximum number of cached baselines; a question has one to three."""


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """An evaluated baseline, and the cost that this call paid for it.

    The cost is zero if an earlier call evaluated the baseline.
    """

    evaluation: TrieEvaluation
    cost: Cost

    def result(self) -> TrieEvaluation:
        """Return the evaluation, as the handle of a task does."""
        return self.evaluation


class BaselineStore:
    """Evaluates each baseline once, alone in an empty memory, and caches the result.

    The bits of a baseline therefore do not depend on other requests, or on when it is
    evaluated.

    Args:
        clear: Empties the memory, except for nodes that are held. It is called on the
            model's thread.
    """

    def __init__(self, clear: Callable[[], None]) -> None:
        self._clear = clear
        self._kept: dict[tuple[bytes, ...], TrieEvaluation] = {}

    def of(self, group: TaskGroup, requests: Sequence[PreparedSelect]) -> dict[tuple[bytes, ...], Baseline]:
        """Return the baselines of requests by key; no other task may run meanwhile."""
        found: dict[tuple[bytes, ...], Baseline] = {}
        for one in requests:
            for premise in one.premises:
                key = one.baseline_key(premise)
                if key not in found:
                    found[key] = self._evaluate_once(group, key, ScoreTask(premise, one.trie, one.plain_needs))
        return found

    def _evaluate_once(self, group: TaskGroup, key: tuple[bytes, ...], task: ScoreTask) -> Baseline:
        """Return a baseline from the cache, or evaluate it and clear the memory."""
        if key in self._kept:
            return Baseline(self._kept[key], Cost())
        handle = group.begin(task)
        evaluation = handle.result()
        group.call(self._clear)
        if len(self._kept) < _MAX_KEPT:
            self._kept[key] = evaluation
        return Baseline(evaluation, handle.cost)


def settle_scores(
    session: Session, evaluated: EvaluatedSelect, scored: ChoiceScores
) -> tuple[ChoiceScores, SearchReport, Posterior]:
    """Return the final scores of a request, the search report and the decision.

    Near ties are scored again if the model runs here. After that, only the probability
    of the healed bytes may still be an interval. Mean rules and callable rules depend
    on it.

    Args:
        session: The session of the request.
        evaluated: The evaluated request.
        scored: The scores of its choices.
    """
    prepared, report, slack = evaluated.prepared, evaluated.report, scored.rounding
    if session.model.identity.precision == REMOTE or not scored.scores.is_known:
        tolerances = _score_tolerances(session, evaluated)
        reason = _explain_doubt(prepared, scored, tolerances, session.tolerance or 0.0)
        report = _mark_unproved(replace(report, certificate=replace(report.certificate, rescored=not reason)), reason)
        return scored, report, _compute_decision(evaluated, scored, np.maximum(tolerances, slack))
    before = scored.scores.low
    scored, report = rescore_near_ties(session, evaluated, scored)
    reason, slack = "", scored.rounding
    if not scored.compared.is_known:
        tolerances, path_of = _score_tolerances(session, evaluated), prepared.trie.path_of
        near = near_choices(before, tolerances, path_of, prepared.n_first)
        tolerances = np.where(np.isin(path_of, path_of[near]), 0.0, tolerances)  # these were scored again
        slack = np.maximum(tolerances, slack)
        if not is_certain(scored.compared, path_of, tolerances, prepared.n_first):
            reason = reason_heal_unknown(scored.heal.width)
    elif prepared.custom is not None and scored.heal.width > 0:
        reason = reason_heal_in_callable(scored.heal.width)
    decision = _compute_decision(evaluated, scored, slack)
    if decision.bound_gap <= 0:
        reason = reason or reason_rescored_lower()
    return scored, _mark_unproved(report, reason if report.certificate.proved else ""), decision


def _mark_unproved(report: SearchReport, reason: str) -> SearchReport:
    """Return the report with `proved=False` and this reason, or as it is for ""."""
    return replace(report, certificate=replace(report.certificate, proved=False, reason=reason)) if reason else report


def _score_tolerances(session: Session, evaluated: EvaluatedSelect) -> FloatArray:
    """Return the tolerance of each score, float64[C]."""
    served = session.is_served
    evaluation = None if served else evaluated.evaluation
    return evaluated.prepared.tolerances(session.tolerance or 0.0, evaluation, adds_up=served)


def _compute_decision(evaluated: EvaluatedSelect, scored: ChoiceScores, slack: FloatArray) -> Posterior:
    """Return the decision that scores, or bounds on them, allow.

    `slack` is float64[C], nats by which each score may be wrong.
    """
    prepared, log_open, k = evaluated.prepared, evaluated.report.log_open, evaluated.prepared.search.k
    scores, compared, path_of = scored.scores, scored.compared, prepared.trie.path_of
    if compared.is_known:
        return posterior(compared, path_of, log_open=log_open, slack=slack, k=k)
    left = best_of_paths(compared.high, path_of)[np.isnan(best_of_paths(compared.low, path_of))]
    # The search subtracted a different constant from all of its log-probabilities.
    heals = prepared.healing.log_heal(evaluated.evaluation.edge_logp, evaluated.evaluation.observed), scored.heal
    searched, subtracted = (one.low if one.low > -np.inf else 0.0 for one in heals)
    log_open += searched - subtracted
    if len(left):  # else the open mass belongs to no path of this trie, such as unseen texts of a joint block
        own = numerics.logsumexp(left)
        # Divided by different lengths, a constant moves scores by different amounts.
        log_open = own if prepared.lengths.divides(prepared.rule.name) else min(log_open, own)
    decision = posterior(compared, path_of, ranking=scores.low, log_open=log_open, slack=slack, k=k)
    if not scores.is_known:
        return decision
    shown = posterior(scores, path_of, log_open=evaluated.report.log_open)
    return replace(
        decision,
        probability=shown.probability,
        bounds=Interval(
            np.minimum(shown.bounds.low, decision.bounds.low),
            np.maximum(shown.bounds.high, decision.bounds.high),
        ),
    )


def _explain_doubt(prepared: PreparedSelect, scored: ChoiceScores, tolerances: FloatArray, tolerance: float) -> str:
    """Return why the order of the first k choices is uncertain; "" if it is not."""
    k, gap = prepared.n_first, scored.heal.width
    scores, tolerances, path_of = prepared.items_to_compare(scored.compared, tolerances)
    if not is_certain(scores, path_of, np.zeros(len(path_of)), k):
        return reason_heal_unknown(gap) if scored.scores.is_known and not scores.is_known else reason_bounds_overlap()
    if prepared.custom is not None and gap > 0:
        return reason_heal_in_callable(gap)
    if prepared.custom is not None and tolerance:
        return "a callable rule does not say by how much the tolerance of the model may move a score"
    return "" if is_certain(scores, path_of, tolerances, k) else reason_too_close(tolerance)


_MIN_TOGETHER = 2
"""Minimum size of a group for which scoring its requests together is faster."""
_MAX_GROUPS = 64
"""Maximum number of groups that a request is compared with."""


class Signatures:
    """Creates the signatures of requests; requests with equal settings share one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_key: dict[tuple[object, ...], Signature] = {}

    def of(self, prepared: PreparedSelect) -> Signature:
        """Return the signature of a request."""
        encoded = prepared.encoded
        if prepared.custom is not None:
            return choice_scores.signature(prepared, self._session)
        premises = tuple(one.tobytes() for one in prepared.premises)
        key = (prepared.rule.name, premises, prepared.terminator, encoded.following_bytes, encoded.boundary)
        if key not in self._by_key:
            self._by_key[key] = choice_scores.signature(prepared, self._session)
        return self._by_key[key]


def decide_together(
    session: Session, evaluated: Sequence[EvaluatedSelect], signatures: Signatures
) -> dict[int, Selection]:
    """Return the selections of requests that differ in their prompts alone, by index.

    Their scores are computed together. Requests with a near tie are left out.
    """
    groups: list[list[int]] = []
    for index, one in enumerate(evaluated):
        if one.baseline is not None or one.prepared.method != "exhaustive":
            continue
        recent = groups[-_MAX_GROUPS:]
        group = next((own for own in recent if is_alike(evaluated[own[0]].prepared, one.prepared)), None)
        if group is None:
            groups.append(group := [])
        group.append(index)
    selections: dict[int, Selection] = {}
    for group in groups:
        if len(group) >= _MIN_TOGETHER:
            selections |= _decide_alike(session, {index: evaluated[index] for index in group}, signatures)
    return selections


def _decide_alike(session: Session, group: dict[int, EvaluatedSelect], signatures: Signatures) -> dict[int, Selection]:
    """Return the selections of one group of `decide_together`, by index.

    Requests with a near tie are left out.
    """
    together = _score_together(list(group.values()))
    if together is None:
        return {}
    scored, evaluation = together
    first = next(iter(group.values())).prepared
    decisions = posteriors(scored.scores.low, first.trie.path_of, scored.rounding)
    clear, margins = [True] * len(group), np.zeros(len(group))
    if session.tolerance is not None:
        scores, tolerances, path_of = first.items_to_compare(
            scored.scores, first.tolerances(session.tolerance, evaluation)
        )
        # Where the order of several choices matters, ties among them are looked for one
        # by one.
        asks_one = first.search.k == 1 and first.search.stop != "all"
        is_clear = are_clear(scores.low, tolerances, path_of)
        clear = is_clear.tolist() if asks_one and session.rescores else [False] * len(group)
        margins = near_margins(scores.low, tolerances, path_of)
    selections = {}
    for row, (index, one) in enumerate(group.items()):
        if clear[row]:
            report = one.report
            if session.tolerance is not None:
                certificate = replace(report.certificate, rescored=True, near_margin=float(margins[row]))
                report = SearchReport(certificate, report.cost, report.log_open)
            selections[index] = choice_scores.selection(
                one.prepared, one.evaluation, scored[row], report, signatures.of(one.prepared), decision=decisions[row]
            )
    return selections


def is_alike(one: PreparedSelect, other: PreparedSelect) -> bool:
    """Return whether two requests of a `SelectPlan` differ in their prompts alone."""
    return (
        one.trie is other.trie
        and one.healing is other.healing
        and one.encoded.first_scored is other.encoded.first_scored
        and one.log_prior is other.log_prior
        and one.search is other.search
        and (one.rule, one.terminator) == (other.rule, other.terminator)
    )


def _score_together(group: Sequence[EvaluatedSelect]) -> tuple[ChoiceScores, TrieEvaluation] | None:
    """Return the scores of requests that are alike, and their evaluations stacked.

    Return None if the scores cannot be computed together: for a callable rule, a
    baseline, rows that were not all evaluated, or scores that are intervals.
    """
    first = group[0].prepared
    if first.custom is not None or first.rule.name in BASELINE_RULES or first.encoded.first_scored.any():
        return None
    evaluation = stack_evaluations([one.evaluation for one in group])
    if evaluation is None:
        return None
    heals = [one.prepared.healing.log_heal(one.evaluation.edge_logp, one.evaluation.observed) for one in group]
    scored = choice_scores.score_together(first, evaluation, heals)
    is_known = scored.compared.is_known and not np.isnan(scored.logp.low).any()
    return (scored, evaluation) if is_known else None


BaselineHandle: TypeAlias = Handle[TrieEvaluation] | Baseline
"""A baseline: the handle of its running task, or its known evaluation."""
Progress = Callable[[int, int], None]
"""A callback that gets (amount done, total amount)."""
PLAN_NODES = 200
"""Maximum number of trie nodes that a `TokenPlan` shows."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectBatch:
    """Selections that are evaluated together.

    Attributes:
        requests: The requests, checked and tokenized.
        on_evaluated: Called in the caller's thread with (requests evaluated, number of
            requests). If it is given, `SearchParams.on_progress` is not called.
    """

    requests: Sequence[PreparedSelect]
    on_evaluated: Progress | None = None

    def run(self, session: Session) -> list[Selection]:
        """Evaluate all requests together, rescore near ties and return the results."""
        evaluated, signatures = self._evaluate(session), Signatures(session)
        together = decide_together(session, evaluated, signatures)
        selections = []
        for index, one in enumerate(evaluated):
            if index in together:
                selections.append(together[index])
                continue
            with self._errors_of(index):
                selections.append(_decide(session, one, signatures))
        return selections

    def _evaluate(self, session: Session) -> list[EvaluatedSelect]:
        """Evaluate baselines and exhaustive requests together, then run the searches.

        The searches need the baselines for their bounds.
        """
        group, requests = session.group, self.requests
        # All requests have the same search options.
        on_progress = requests[0].search.on_progress if requests and self.on_evaluated is None else None
        known = {} if session.baselines is None else session.baselines.of(group, requests)
        placed = session.copy_prompts([one.encoded.context for one in requests])
        with group.together():
            baselines, own = self._begin_baselines(group, known)
            exhaustive: dict[int, Handle[TrieEvaluation]] = {
                i: group.begin_counted(
                    ScoreTask(one.encoded.context, one.trie, one.needs, one.plan),
                    on_progress,
                    one.plan.n_rows,
                )
                for i, one in enumerate(requests)
                if one.method == "exhaustive"
            }
        means: list[Interval[FloatArray] | None] = [None] * len(requests)
        for i, one in enumerate(requests):
            if baselines[i]:
                with self._errors_of(i):
                    means[i] = _mean_baseline(one, baselines[i])
        with group.together():
            searches: dict[int, Handle[SearchOutcome]] = {
                i: group.begin_counted(
                    _best_first_task(session, one, means[i], is_alone=len(requests) == 1), on_progress, one.plan.n_rows
                )
                for i, one in enumerate(requests)
                if i not in exhaustive
            }
        evaluated = []
        for i, one in enumerate(requests):
            try:
                evaluation, report = (
                    _wait_exhaustive(one, exhaustive[i]) if i in exhaustive else _wait_search(one, searches[i])
                )
            except SelectrieError:
                with self._errors_of(i):
                    raise
            if own[i]:
                report = replace(report, cost=sum((handle.cost for handle in own[i]), report.cost))
            if not i:
                report = replace(report, cost=report.cost + placed)
            evaluated.append(EvaluatedSelect(one, evaluation, means[i], report))
            if self.on_evaluated is not None:
                self.on_evaluated(len(evaluated), len(requests))
        return _set_batch_baselines(evaluated)

    def _begin_baselines(
        self, group: TaskGroup, known: Mapping[tuple[bytes, ...], BaselineHandle]
    ) -> tuple[list[list[BaselineHandle]], list[list[BaselineHandle]]]:
        """Begin the baselines of all requests, evaluating equal baselines once.

        Args:
            known: Baselines that were evaluated before, by key.

        Returns:
            For each request, the handles of all its baselines, and the handles of those
            that were begun for it. The request bears the cost of the latter.
        """
        begun: dict[tuple[bytes, ...], BaselineHandle] = {}
        baselines, own = [], []
        for one in self.requests:
            keys = [one.baseline_key(premise) for premise in one.premises]
            new = [at for at, key in enumerate(keys) if key not in begun and key not in keys[:at]]
            for at in new:
                key = keys[at]
                begun[key] = known.get(key) or group.begin(ScoreTask(one.premises[at], one.trie, one.plain_needs))
            baselines.append([begun[key] for key in keys])
            own.append([begun[keys[at]] for at in new])
        return baselines, own

    def _errors_of(self, index: int) -> AbstractContextManager[None]:
        """Return a context manager that adds this request's index to errors.

        It does nothing for a single request.
        """
        return of_request(index) if len(self.requests) > 1 else nullcontext()


def prepare_selections(
    model: ModelDescription,
    requests: Sequence[tuple[Prompt, Choices]],
    options: SelectRequest,
    on_evaluated: Progress | None = None,
) -> SelectBatch:
    """Check and tokenize requests that are evaluated together.

    If any request is invalid, none runs; the error's `request` is the index of the
    first invalid one.
    """
    several = len(requests) > 1
    with suppress(TypeError, IndexError):  # `_prepare` refuses requests that are no pairs
        prompts = [one[0] for one in requests]
        options = replace(options, prompting=fix_time(model.vocabulary, options.prompting, *prompts))
    plans: dict[str, SelectPlan] = {}
    prepared = [_prepare(model, i, one, options, plans, several=several) for i, one in enumerate(requests)]
    for i, one in enumerate(prepared):
        if one.rule.name == "batch" and one.texts != prepared[0].texts:
            error = OptionError("rule", "batch", "the same choices in every request of the batch")
            error.request = i
            raise error
    return SelectBatch(prepared, on_evaluated)


def _prepare(
    model: ModelDescription,
    index: int,
    request: tuple[Prompt, Choices],
    options: SelectRequest,
    plans: dict[str, SelectPlan],
    *,
    several: bool,
) -> PreparedSelect:
    """Check and tokenize one request; `plans` has those of choices that all share."""
    try:
        _refuse_text(request)
        prompt, choices = request
    except (TypeError, ValueError):
        allowed = "a pair of prompt and choices; one set for all prompts is given as `choices`"
        raise OptionError(f"requests[{index}]", request, allowed) from None
    try:
        if not isinstance(choices, ReadChoices):
            return selection.prepare_selection(model, prompt, choices, options)
        within = selection.resolve_turn_terminator(model.vocabulary, options, prompt)
        if within.terminator not in plans:
            plans[within.terminator] = SelectPlan(model, choices, within)
        return plans[within.terminator].prepare(prompt)
    except SelectrieError as error:
        error.request = index if several else None
        raise


def _refuse_text(request: object) -> None:
    """Raise `TypeError` for a text, whose characters are no pair."""
    if isinstance(request, str):
        raise TypeError


def _mean_baseline(prepared: PreparedSelect, handles: list[BaselineHandle]) -> Interval[FloatArray]:
    """Return the mean log-probability of each choice over several prompts."""
    joints = [choice_scores.joints(prepared, handle.result()) for handle in handles]
    return choice_scores.mean_baseline(
        [one.map(lambda x: choice_scores.sum_groups(x, prepared.groups)) for one in joints]
    )


def _decide(session: Session, evaluated: EvaluatedSelect, signatures: Signatures) -> Selection:
    """Score one request, score its near ties again and return its selection."""
    prepared = evaluated.prepared
    scored = choice_scores.score(prepared, evaluated.evaluation, evaluated.baseline)
    scored, report, decision = settle_scores(session, evaluated, scored)
    signature = signatures.of(prepared)
    return choice_scores.selection(prepared, evaluated.evaluation, scored, report, signature, decision=decision)


def _best_first_task(
    session: Session, prepared: PreparedSelect, baseline: Interval[FloatArray] | None, *, is_alone: bool
) -> BestFirst:
    """Return the best-first search of a request as a task.

    `is_alone` says whether no other search shares its calls.
    """
    tolerance = (session.tolerance or 0.0) if session.rescores else 0.0
    objective = prepared.objective(None if baseline is None else baseline.high, tolerance)
    if objective is None:
        raise OptionError("method", "best_first", "'exhaustive': this request has no bound to search by")
    if baseline is not None and not baseline.is_known:
        objective = replace(objective, moves=float(baseline.width.max(initial=0.0)))
    healing = prepared.healing
    task = BestFirst(
        prepared.encoded.context,
        prepared.trie,
        prepared.needs,
        prepared.terminator,
        objective=objective,
        search=prepared.search,
        heal=healing.log_heal if len(healing.nodes) else None,
        fill_rows=session.fill_rows,
    )
    task.fills = is_alone or prepared.search.stop != "best"
    return task


def _wait_exhaustive(prepared: PreparedSelect, handle: Handle[TrieEvaluation]) -> tuple[TrieEvaluation, SearchReport]:
    """Wait for an exhaustive evaluation; return it with its report."""
    evaluation = handle.result()
    certificate = _exhaustive_certificate(evaluation.n_evaluated, prepared.plan.n_rows)
    return evaluation, SearchReport(certificate, handle.cost.with_rows_naive(prepared.rows_naive))


_exhaustive_certificate = lru_cache(maxsize=64)(Certificate.exhaustive)
"""Returns the certificate of an exhaustive evaluation, cached, as most are equal."""


def _wait_search(prepared: PreparedSelect, handle: Handle[SearchOutcome]) -> tuple[TrieEvaluation, SearchReport]:
    """Wait for a best-first search; return its evaluation with its report."""
    outcome = handle.result()
    certificate = Certificate.best_first(
        bound_gap=np.inf,  # `choice_scores.selection` sets it from the final scores
        open_mass=outcome.open_mass,
        nodes_evaluated=outcome.n_evaluated,
        nodes_inner=outcome.n_required,
        reason="" if outcome.proved else reason_search_ended(prepared.search, outcome.n_evaluated),
    )
    cost = handle.cost.with_rows_naive(prepared.rows_naive)
    return outcome.evaluation, SearchReport(certificate, cost, outcome.log_open)


def _set_batch_baselines(evaluated: list[EvaluatedSelect]) -> list[EvaluatedSelect]:
    """Set the baseline of rule "batch": each choice's mean joint over all prompts."""
    batch = [one for one in evaluated if one.prepared.rule.name == "batch"]
    if not batch:
        return evaluated
    joints = [choice_scores.conditional_joints(one.prepared, one.evaluation) for one in batch]
    mean = choice_scores.mean_baseline(joints)
    return [replace(one, baseline=mean) for one in evaluated]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedScore:
    """A text to score, prepared as a selection with that text as the only choice."""

    select: PreparedSelect

    def run(self, session: Session) -> TextScore:
        """Return the text's log-probability, token by token."""
        prepared = self.select
        task = ScoreTask(prepared.encoded.context, prepared.trie, prepared.needs, prepared.plan)
        handle = session.group.begin(task)
        evaluation = handle.result()
        scored = choice_scores.score(prepared, evaluation, None)
        first = int(prepared.encoded.first_scored[0])
        tokens = prepared.trie.token[1 + first :]
        return TextScore(
            text=prepared.texts[0],
            logp=float(scored.logp.low[0]),
            logp_upper=None if scored.is_whole else float(scored.logp.high[0]),
            tokens=TokenScore.along(prepared.vocabulary, tokens, evaluation.edge_logp[1 + first :]),
            is_greedy=_is_greedy(evaluation.best_token[first:-1], tokens),
            healed=prepared.encoded.healed,
            log_heal=float(scored.heal.low),
            heal_gap=float(scored.heal.width),
            cost=replace(handle.cost, rows_naive=prepared.rows_naive),
            signature=choice_scores.signature(prepared, session),
            notes=(*prepared.notes, *scored.notes),
            logp_lower=float(scored.logp.low[0] - scored.lower_by) if scored.logp.low[0] > -np.inf else -np.inf,
        )


def _is_greedy(best: IntArray, tokens: IntArray) -> bool | None:
    """Return whether all tokens are the most probable ones; None if unknown."""
    is_known = best != NO_TOKEN
    if (best != tokens)[is_known].any():
        return False
    return True if is_known.all() else None


def prepare_score(model: ModelDescription, prompt: Prompt, text: str, options: SelectRequest) -> PreparedScore:
    """Check and tokenize a text to score."""
    prepared = selection.prepare_selection(model, prompt, [text], options)
    needs = replace(prepared.needs, best=prepared.needs.row)
    return PreparedScore(replace(prepared, needs=needs, plan=ScorePlan(prepared.trie, needs)))


def token_plan(prepared: PreparedSelect) -> TokenPlan:
    """Return how a request is tokenized and which rows its evaluation takes."""
    encoded, trie, vocabulary = prepared.encoded, prepared.trie, prepared.vocabulary

    def spelled(ids: IntArray) -> tuple[tuple[int, str], ...]:
        return tuple((int(token), vocabulary.show(int(token))) for token in ids)

    paths = np.split(encoded.tokens, encoded.offsets[1:-1])
    return TokenPlan(
        bos=vocabulary.bos if vocabulary.bos in encoded.prompt_tokens[:1] else None,
        prompt=spelled(encoded.prompt_tokens),
        context=spelled(encoded.context),
        healed=encoded.healed,
        boundary=encoded.boundary,
        terminator=prepared.terminator,
        choices=tuple(spelled(path) for path in paths),
        boundary_shift=tuple(encoded.boundary_shift.tolist()),
        n_trie_nodes=len(trie.token) - 1,
        rows_prompt=len(encoded.context),
        rows_inner=prepared.needs.n_rows - 1,
        rows_naive=prepared.rows_naive,
        trie=view_of(trie, vocabulary.pieces, limit=PLAN_NODES),
    )
