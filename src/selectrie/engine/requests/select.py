"""Selects among choices.

The tasks of all requests run together on the model's thread. Then scores are computed,
near ties rescored and results made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from selectrie.core.model import ModelDescription
from selectrie.core.types import NO_TOKEN, IntArray
from selectrie.decoding import scoring
from selectrie.decoding.trie.best_first import BestFirst, SearchOutcome
from selectrie.decoding.trie.exhaustive import ScorePlan, ScoreTask
from selectrie.engine.requests import choice_scores, selection
from selectrie.engine.requests.baselines import Baseline
from selectrie.engine.requests.bounded_scores import MeanBaseline
from selectrie.engine.requests.chat_time import at_one_time
from selectrie.engine.requests.choice_scores import SearchReport
from selectrie.engine.requests.near_ties import EvaluatedSelect
from selectrie.engine.requests.select_together import Signatures, decided_together
from selectrie.engine.requests.selection import Choices, PreparedSelect, SelectRequest
from selectrie.engine.requests.session import Session
from selectrie.engine.requests.settled import settled
from selectrie.engine.requests.unproved import search_ended
from selectrie.engine.scheduler.model_thread import Handle
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import OptionError, SelectrieError, of_request
from selectrie.results import Certificate, Selection, TextScore, TokenPlan, TokenScore, view_of
from selectrie.tokenization.prompts import Prompt

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
                    subject=one,
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
                i: group.begin_counted(_best_first(session, one, means[i]), on_progress, one.plan.n_rows, subject=one)
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
                begun[key] = known.get(key) or group.begin(
                    ScoreTask(one.premises[at], one.trie, one.plain_needs), subject=("baseline", key)
                )
            baselines.append([begun[key] for key in keys])
            own.append([begun[keys[at]] for at in new])
        return baselines, own

    def _errors_of(self, index: int) -> AbstractContextManager[None]:
        """Return a context manager that names this request in errors.

        It does nothing if there is one request.
        """
        return of_request(index) if len(self.requests) > 1 else nullcontext()


def prepare(
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
        return selection.prepare(model, prompt, choices, options)
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
        handle = session.group.begin(task, subject=prepared)
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
    prepared = selection.prepare(model, prompt, [text], options)
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
