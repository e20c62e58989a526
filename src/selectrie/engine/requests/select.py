"""Selects among choices: runs the task, and decides among scores, for many at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from selectrie.core import numerics
from selectrie.core.model import ModelDescription
from selectrie.core.path_model import REMOTE
from selectrie.core.types import NO_TOKEN, Cost, FloatArray, IntArray
from selectrie.decoding import scoring
from selectrie.decoding.scoring import TrieEvaluation
from selectrie.decoding.trie.best_first import BestFirst, SearchOutcome
from selectrie.decoding.trie.exhaustive import ScorePlan, ScoreTask
from selectrie.engine.requests import choice_scores, selection
from selectrie.engine.requests.choice_scores import ChoiceScores, MeanBaseline, SearchReport, moves_apart
from selectrie.engine.requests.near_ties import EvaluatedSelect, rescore_near_ties
from selectrie.engine.requests.reasons import bounds_touch, heal_in_callable, heal_unknown, search_ended, too_close
from selectrie.engine.requests.selection import Choices, PreparedSelect, SelectRequest
from selectrie.engine.requests.session import Session, at_one_time
from selectrie.engine.scheduler.model_thread import Handle
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import OptionError, SelectrieError, of_request
from selectrie.results import Certificate, Selection, Signature, TextScore, TokenPlan, TokenScore, view_of
from selectrie.tokenization.prompts import Prompt

_MAX_KEPT = 64
"""Number of baselines that are kept; a question has one to three."""


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """A baseline that was evaluated, with the cost that it had for this call."""

    evaluation: TrieEvaluation
    cost: Cost

    def result(self) -> TrieEvaluation:
        """Return what was evaluated, as the handle of a task does."""
        return self.evaluation


class KeptBaselines:
    """Evaluates each baseline once, alone in a memory that is cleared afterwards.

    So its bits do not depend on what else is asked, or on when it is evaluated.

    Args:
        clear: Drops everything from the memory but what is held. It is called on the
            model's thread.
    """

    def __init__(self, clear: Callable[[], None]) -> None:
        self._clear = clear
        self._kept: dict[tuple[bytes, ...], TrieEvaluation] = {}

    def of(self, group: TaskGroup, requests: Sequence[PreparedSelect]) -> dict[tuple[bytes, ...], Baseline]:
        """Return the baselines of requests by their keys; no other task may run."""
        found: dict[tuple[bytes, ...], Baseline] = {}
        for one in requests:
            for premise in one.premises:
                key = one.baseline_key(premise)
                if key not in found:
                    found[key] = self._baseline(group, key, ScoreTask(premise, one.trie, one.plain_needs))
        return found

    def _baseline(self, group: TaskGroup, key: tuple[bytes, ...], task: ScoreTask) -> Baseline:
        if key in self._kept:
            return Baseline(self._kept[key], Cost())
        handle = group.begin(task)
        evaluation = handle.result()
        group.call(self._clear)
        if len(self._kept) < _MAX_KEPT:
            self._kept[key] = evaluation
        return Baseline(evaluation, handle.cost)


def settled(
    session: Session, evaluated: EvaluatedSelect, scored: ChoiceScores
) -> tuple[ChoiceScores, SearchReport, scoring.Posterior | None]:
    """Return final scores, what is proved about them, and the decision if it is made.

    Args:
        session: The session of the request.
        evaluated: The evaluated request.
        scored: The scores of its choices.
    """
    prepared = evaluated.prepared
    rows_known = scored.bounds is None or scored.bounds.rows_known
    if session.model.identity.precision != REMOTE and rows_known:
        return _rescored(session, evaluated, scored)
    report, tolerances = evaluated.report, _tolerances(session, evaluated)
    decision = _decision(prepared, scored, report, tolerances)
    reason = _doubt(prepared, scored, tolerances, session.tolerance or 0.0)
    certificate = replace(report.certificate, rescored=not reason)
    if reason:
        certificate = replace(certificate, proved=False, reason=reason)
    return scored, replace(report, certificate=certificate), decision


def _rescored(
    session: Session, evaluated: EvaluatedSelect, scored: ChoiceScores
) -> tuple[ChoiceScores, SearchReport, scoring.Posterior | None]:
    """Return what `settled` does for a model that runs here.

    Near ties are scored again. Then only the probability of the healed bytes may be
    known within bounds, which matters to means and callable rules.
    """
    prepared, before = evaluated.prepared, scored
    scored, report = rescore_near_ties(session, evaluated, scored)
    certificate = report.certificate
    if scored.bounds is None:
        if prepared.custom is not None and scored.heal_gap > 0 and certificate.proved:
            reason = heal_in_callable(scored.heal_gap)
            report = replace(report, certificate=replace(certificate, proved=False, reason=reason))
        return scored, report, None
    tolerances, path_of = _tolerances(session, evaluated), prepared.trie.path_of
    near = scoring.finalists(before.scores, tolerances, path_of, prepared.n_first)
    tolerances = np.where(np.isin(path_of, path_of[near]), 0.0, tolerances)  # `rescored` speaks of these
    if certificate.proved and not scoring.is_certain(
        scored.bounds.low, scored.bounds.high, path_of, tolerances, prepared.n_first
    ):
        certificate = replace(certificate, proved=False, reason=heal_unknown(scored.heal_gap))
    return scored, replace(report, certificate=certificate), _decision(prepared, scored, report, tolerances)


def _tolerances(session: Session, evaluated: EvaluatedSelect) -> FloatArray:
    """Return the tolerance of each score, float64[C]."""
    served = session.is_served
    evaluation = None if served else evaluated.evaluation
    return evaluated.prepared.tolerances(session.tolerance or 0.0, evaluation, adds_up=served)


def _decision(
    prepared: PreparedSelect, scored: ChoiceScores, report: SearchReport, tolerances: FloatArray
) -> scoring.Posterior:
    """Return what scores or their bounds decide."""
    path_of, bounds = prepared.trie.path_of, scored.bounds
    if bounds is None:
        decision = _by_scores(prepared, scored, report)
        low, high = scored.scores, scored.score_upper
        is_tie = decision.is_tie or scoring.has_near_tie(low, high, path_of, tolerances, decision.winner)
        return replace(decision, is_tie=is_tie)
    log_open = report.log_open + bounds.open_shift
    left = scoring.best_of_paths(bounds.high, path_of)[np.isnan(scoring.best_of_paths(bounds.low, path_of))]
    own = numerics.logsumexp(left)
    # A shift moves all log-probabilities alike, but not what is divided by lengths.
    log_open = own if prepared.lengths.divides(prepared.rule.name) else min(log_open, own)
    slack = np.maximum(tolerances, scored.rounding)
    bounded = scoring.bounded_posterior(
        bounds.low, bounds.high, path_of, slack, ranking=scored.scores, log_open=log_open
    )
    if not bounds.rows_known:
        return bounded
    shown = _by_scores(prepared, scored, report)
    return replace(
        bounded,
        probability=shown.probability,
        probability_low=np.minimum(shown.probability_low, bounded.probability_low),
        probability_high=np.maximum(shown.probability_high, bounded.probability_high),
    )


def _by_scores(prepared: PreparedSelect, scored: ChoiceScores, report: SearchReport) -> scoring.Posterior:
    """Return what the scores decide, without their bounds."""
    return scoring.posterior(
        scored.scores,
        prepared.trie.path_of,
        upper=scored.score_upper,
        log_open=report.log_open,
        rounding=scored.rounding,
    )


def _doubt(prepared: PreparedSelect, scored: ChoiceScores, tolerances: FloatArray, tolerance: float) -> str:
    """Return why the order of the first k is not certain; "" if it is."""
    low, high, bounds = scored.scores, scored.score_upper, scored.bounds
    if bounds is not None:
        low, high = bounds.low, bounds.high
    k, high = prepared.n_first, prepared.compared(high, tolerances)[0]
    low, tolerances, path_of = prepared.compared(low, tolerances)
    if not scoring.is_certain(low, high, path_of, np.zeros(len(low)), k):
        return bounds_touch() if bounds is None or not bounds.rows_known else heal_unknown(scored.heal_gap)
    if prepared.custom is not None and scored.heal_gap > 0:
        return heal_in_callable(scored.heal_gap)
    if prepared.custom is not None and tolerance:
        return "a callable rule does not say by how much the tolerance of the model may move a score"
    return "" if scoring.is_certain(low, high, path_of, tolerances, k) else too_close(tolerance)


_MIN_TOGETHER = 2
"""Number of requests that are alike from which scoring them together is faster."""
_MAX_GROUPS = 64
"""Number of groups with which a request is compared."""
_APART = ("pmi", "calibrated", "batch")
"""Rules whose scores depend on more than the prompt's own evaluation."""


class Signatures:
    """The signatures of requests, each of equal ones made once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._made: dict[tuple[object, ...], Signature] = {}

    def of(self, prepared: PreparedSelect) -> Signature:
        """Return the signature of a request."""
        encoded = prepared.encoded
        if prepared.custom is not None:
            return choice_scores.signature(prepared, self._session)
        premises = tuple(one.tobytes() for one in prepared.premises)
        key = (prepared.rule.name, premises, prepared.terminator, encoded.following_bytes, encoded.boundary)
        if key not in self._made:
            self._made[key] = choice_scores.signature(prepared, self._session)
        return self._made[key]


def decided_together(
    session: Session, evaluated: Sequence[EvaluatedSelect], signatures: Signatures
) -> dict[int, Selection]:
    """Return the selections of requests that differ in their prompts alone, by index.

    Their scores are computed together. Those with a near tie are left out.
    """
    groups: list[list[int]] = []
    for index, one in enumerate(evaluated):
        if one.baseline is not None or one.prepared.method != "exhaustive":
            continue
        group = next((own for own in groups[-_MAX_GROUPS:] if _alike(evaluated[own[0]], one)), None)
        if group is None:
            groups.append(group := [])
        group.append(index)
    made: dict[int, Selection] = {}
    for group in groups:
        if len(group) >= _MIN_TOGETHER:
            made |= _decided_alike(session, {index: evaluated[index] for index in group}, signatures)
    return made


def _alike(one: EvaluatedSelect, other: EvaluatedSelect) -> bool:
    return is_alike(one.prepared, other.prepared)


def _decided_alike(session: Session, group: dict[int, EvaluatedSelect], signatures: Signatures) -> dict[int, Selection]:
    requests = [one.prepared for one in group.values()]
    together = score_together(requests, [one.evaluation for one in group.values()])
    if together is None:
        return {}
    scored, decisions, evaluation = together
    first = requests[0]
    clear, margins = [True] * len(group), np.zeros(len(group))
    if session.tolerance is not None:
        scores = np.stack([one.scores for one in scored])
        scores, tolerances, path_of = first.compared(scores, first.tolerances(session.tolerance, evaluation))
        asks_one = first.search.k == 1 and first.search.stop != "all"
        is_clear = scoring.are_clear(scores, tolerances, path_of)
        clear = is_clear.tolist() if asks_one else [False] * len(group)
        margins = scoring.near_margins(scores, tolerances, path_of)
    made = {}
    for row, (index, one) in enumerate(group.items()):
        if clear[row]:
            report = one.report
            if session.tolerance is not None:
                certificate = replace(report.certificate, rescored=True, near_margin=float(margins[row]))
                report = SearchReport(certificate, report.cost, report.log_open)
            made[index] = choice_scores.selection(
                one.prepared, one.evaluation, scored[row], report, signatures.of(one.prepared), decision=decisions[row]
            )
    return made


def is_alike(one: PreparedSelect, other: PreparedSelect) -> bool:
    """Return whether two requests differ in their prompts alone (`SelectPlan`)."""
    return (
        one.trie is other.trie
        and one.healing is other.healing
        and one.encoded.first_scored is other.encoded.first_scored
        and one.log_prior is other.log_prior
        and one.search is other.search
        and (one.rule, one.terminator) == (other.rule, other.terminator)
    )


def score_together(
    requests: Sequence[PreparedSelect], evaluations: Sequence[scoring.TrieEvaluation]
) -> tuple[list[ChoiceScores], scoring.Posteriors, scoring.TrieEvaluation] | None:
    """Return what `score` and `scoring.posterior` return for requests that are alike.

    The third value is all evaluations as one.

    None if their scores cannot be computed together: for a callable rule, a baseline,
    rows that were not all evaluated, or scores that have bounds.
    """
    first = requests[0]
    if first.custom is not None or first.rule.name in _APART or first.encoded.first_scored.any():
        return None
    evaluation = scoring.stacked(evaluations)
    if evaluation is None:
        return None
    heals = [
        one.healing.log_heal(each.edge_logp, each.observed) for one, each in zip(requests, evaluations, strict=True)
    ]
    if any(moves_apart(first, gap) for _, gap in heals):
        return None
    paths = scoring.path_scores(first.trie, evaluation, first.terminator, np.array([heal for heal, _ in heals]))
    if np.isnan(paths.logp).any():
        return None
    path_of = first.trie.path_of
    logp, upper, terminator, local = (
        np.ascontiguousarray(one[:, path_of])
        for one in (paths.logp, paths.logp_upper, paths.logp_terminator, paths.logp_local)
    )
    scores, score_upper = (
        scoring.score_choices(first.rule, one, first.lengths, log_prior=first.log_prior) for one in (logp, upper)
    )
    rounding = scoring.rounding_of(first.rule, logp, first.lengths, log_prior=first.log_prior)
    coverage, greedy = scoring.coverages(paths.logp).tolist(), paths.greedy_path.tolist()
    scored = [
        ChoiceScores(
            logp=logp[row],
            upper=upper[row],
            terminator=terminator[row],
            local=local[row],
            scores=scores[row],
            score_upper=score_upper[row],
            greedy_path=greedy[row],
            coverage=coverage[row],
            path_logp=paths.logp[row],
            rounding=rounding[row],
            log_heal=heal,
            heal_gap=gap,
        )
        for row, (heal, gap) in enumerate(heals)
    ]
    return scored, scoring.posteriors(scores, path_of, rounding), evaluation


Evaluated: TypeAlias = Handle[scoring.TrieEvaluation] | Baseline
"""A baseline: the handle of its task, or what is known of it."""
Progress = Callable[[int, int], None]
"""Called with (amount done, total amount)."""
PLAN_NODES = 200
"""Maximum number of trie nodes that a `TokenPlan` shows."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectBatch:
    """Requests for selections that are evaluated together.

    Attributes:
        requests: The requests, checked and tokenized.
        on_evaluated: Called in the caller's thread with (requests evaluated, number of
            requests); the `SearchParams.on_progress` of each is then not called.
    """

    requests: Sequence[PreparedSelect]
    on_evaluated: Progress | None = None

    def run(self, session: Session) -> list[Selection]:
        """Evaluate all requests together, rescore near ties and return the results."""
        evaluated, signatures = self._evaluate(session), Signatures(session)
        made = decided_together(session, evaluated, signatures)
        selections = []
        for index, one in enumerate(evaluated):
            if index in made:
                selections.append(made[index])
                continue
            with self._errors_of(index):
                selections.append(_decide(session, one, signatures))
        return selections

    def _evaluate(self, session: Session) -> list[EvaluatedSelect]:
        """Evaluate the baselines and exhaustive scoring together, then the searches.

        The searches need the baselines for their bounds.
        """
        group, requests = session.group, self.requests
        # All requests have the same search options.
        on_progress = requests[0].search.on_progress if requests and self.on_evaluated is None else None
        known = {} if session.baselines is None else session.baselines.of(group, requests)
        placed = session.copy_prompts([one.encoded.context for one in requests])
        with group.together():
            baselines, own = self._begin_baselines(group, known)
            exhaustive: dict[int, Handle[scoring.TrieEvaluation]] = {
                i: group.begin_counted(
                    ScoreTask(one.encoded.context, one.trie, one.needs, one.plan),
                    on_progress,
                    one.plan.n_rows,
                )
                for i, one in enumerate(requests)
                if one.method == "exhaustive"
            }
        means: list[MeanBaseline | None] = [None] * len(requests)
        for i, one in enumerate(requests):
            if baselines[i]:
                with self._errors_of(i):
                    means[i] = _mean(one, baselines[i])
        with group.together():
            searches: dict[int, Handle[SearchOutcome]] = {
                i: group.begin_counted(_best_first(session, one, means[i]), on_progress, one.plan.n_rows)
                for i, one in enumerate(requests)
                if i not in exhaustive
            }
        evaluated = []
        for i, one in enumerate(requests):
            try:
                evaluation, report = _exhausted(one, exhaustive[i]) if i in exhaustive else _searched(one, searches[i])
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
        return _with_batch_means(evaluated)

    def _begin_baselines(
        self, group: TaskGroup, known: Mapping[tuple[bytes, ...], Evaluated]
    ) -> tuple[list[list[Evaluated]], list[list[Evaluated]]]:
        """Begin the baselines of all requests, each of equal ones once.

        `known` are baselines that were evaluated before. Returns for each request the
        handles of its baselines, and of those the ones that were begun for it, whose
        cost it bears.
        """
        begun: dict[tuple[bytes, ...], Evaluated] = {}
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
        """Return a context manager that names this request in errors.

        It does nothing if there is one request.
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
    with suppress(TypeError, IndexError):  # such requests are refused below
        prompts = [one[0] for one in requests]
        options = replace(options, prompting=at_one_time(model.vocabulary, options.prompting, *prompts))
    prepared = [_prepare(model, i, one, options, several=several) for i, one in enumerate(requests)]
    for i, one in enumerate(prepared):
        if one.rule.name == "batch" and one.texts != prepared[0].texts:
            error = OptionError("rule", "batch", "the same choices in every request of the batch")
            error.request = i
            raise error
    return SelectBatch(prepared, on_evaluated)


def _prepare(
    model: ModelDescription, index: int, request: tuple[Prompt, Choices], options: SelectRequest, *, several: bool
) -> PreparedSelect:
    try:
        prompt, choices = request
    except (TypeError, ValueError):
        raise OptionError(f"requests[{index}]", request, "a pair of prompt and choices") from None
    try:
        return selection.prepare_selection(model, prompt, choices, options)
    except SelectrieError as error:
        error.request = index if several else None
        raise


def _mean(prepared: PreparedSelect, handles: list[Evaluated]) -> MeanBaseline:
    pairs = [choice_scores.joints(prepared, handle.result()) for handle in handles]
    grouped, groups = choice_scores.grouped, prepared.groups
    return choice_scores.mean_baseline([(grouped(low, groups), grouped(high, groups)) for low, high in pairs])


def _decide(session: Session, evaluated: EvaluatedSelect, signatures: Signatures) -> Selection:
    prepared = evaluated.prepared
    scored = choice_scores.score(prepared, evaluated.evaluation, evaluated.baseline)
    scored, report, decision = settled(session, evaluated, scored)
    signature = signatures.of(prepared)
    return choice_scores.selection(prepared, evaluated.evaluation, scored, report, signature, decision=decision)


def _best_first(session: Session, prepared: PreparedSelect, baseline: MeanBaseline | None) -> BestFirst:
    objective = prepared.objective(None if baseline is None else baseline.high, session.tolerance or 0.0)
    if objective is None:
        raise OptionError("method", "best_first", "'exhaustive': this request has no bound to search by")
    if baseline is not None and not baseline.is_known:
        objective = replace(objective, moves=baseline.width)
    healing = prepared.healing
    return BestFirst(
        prepared.encoded.context,
        prepared.trie,
        prepared.needs,
        prepared.terminator,
        objective=objective,
        search=prepared.search,
        heal=healing.bounds if len(healing.nodes) else None,
        fill_rows=session.fill_rows,
    )


def _exhausted(
    prepared: PreparedSelect, handle: Handle[scoring.TrieEvaluation]
) -> tuple[scoring.TrieEvaluation, SearchReport]:
    evaluation = handle.result()
    certificate = _certificate(evaluation.n_evaluated, prepared.plan.n_rows)
    return evaluation, SearchReport(certificate, handle.cost.with_rows_naive(prepared.rows_naive))


_certificate = lru_cache(maxsize=64)(Certificate.exhaustive)
"""The requests of a batch mostly have equal ones."""


def _searched(prepared: PreparedSelect, handle: Handle[SearchOutcome]) -> tuple[scoring.TrieEvaluation, SearchReport]:
    outcome = handle.result()
    certificate = Certificate.best_first(
        bound_gap=outcome.bound_gap,
        open_mass=outcome.open_mass,
        nodes_evaluated=outcome.n_evaluated,
        nodes_inner=outcome.n_required,
        reason="" if outcome.proved else search_ended(prepared.search, outcome.n_evaluated),
    )
    cost = handle.cost.with_rows_naive(prepared.rows_naive)
    return outcome.evaluation, SearchReport(certificate, cost, outcome.log_open)


def _with_batch_means(evaluated: list[EvaluatedSelect]) -> list[EvaluatedSelect]:
    """Set the baseline of rule "batch", each choice's mean joint over all prompts."""
    batch = [one for one in evaluated if one.prepared.rule.name == "batch"]
    if not batch:
        return evaluated
    joints = [choice_scores.conditional_joints(one.prepared, one.evaluation) for one in batch]
    mean = choice_scores.mean_baseline(joints)
    return [replace(one, baseline=mean) for one in evaluated]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedScore:
    """A text to score, as the only choice of a request."""

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
            logp=float(scored.logp[0]),
            logp_upper=None if scored.bounds is None and not scored.gap_left else float(scored.upper[0]),
            tokens=TokenScore.along(prepared.vocabulary, tokens, evaluation.edge_logp[1 + first :]),
            is_greedy=_is_greedy(evaluation.best_token[first:-1], tokens),
            healed=prepared.encoded.healed,
            log_heal=scored.log_heal,
            heal_gap=scored.heal_gap,
            cost=replace(handle.cost, rows_naive=prepared.rows_naive),
            signature=choice_scores.signature(prepared, session),
            notes=(*prepared.notes, *scored.notes),
            logp_lower=float(scored.logp[0] - scored.gap_left) if scored.logp[0] > -np.inf else -np.inf,
        )


def _is_greedy(best: IntArray, tokens: IntArray) -> bool | None:
    """Return whether all tokens are the most probable ones; None if not known."""
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
    """Return how the request is tokenized and which rows its evaluation takes."""
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
