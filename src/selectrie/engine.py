"""The facade: select, rank, score, tokens. A model behind it is worked by one thread; calls from any thread queue to it."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np

from selectrie import scoring, selecting
from selectrie.errors import DecodeInterrupted, ModelError, OptionError, SelectrieError
from selectrie.model import Model
from selectrie.options import DEFAULT_PROMPTING, DEFAULT_SEARCH, Prompting, Rule, Search
from selectrie.owner import Handle, Owner
from selectrie.prompts import Prompt
from selectrie.results import Certificate, Selection, TextScore, TokenPlan, view_of
from selectrie.selecting import Asked, CustomRule, Finding, Question, Scored
from selectrie.selfcheck import SelfCheck, self_check
from selectrie.settle import can_settle, settle
from selectrie.tasks.best_first import BestFirst, SearchOutcome
from selectrie.tasks.score import ScoreTask
from selectrie.types import FloatArray, IntArray, Precision
from selectrie.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

PLAN_NODES = 200
"""Trie nodes that a `TokenPlan` shows."""


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A question's evaluation with its baseline, float64[C] or None."""

    question: Question
    evaluation: scoring.TrieEvaluation
    baseline: FloatArray | None
    finding: Finding


class Engine:
    """Scores sets of texts on one model. Made by `selectrie.load`; a context manager.

    Methods may be called from any thread. After an error, Ctrl-C included, it goes on working.
    """

    def __init__(
        self, model: Model, *, check: SelfCheck | None = None, on_check: Callable[[SelfCheck], None] | None = None
    ) -> None:
        """check: a self-check made before on this model, build and processor; else it is made before the first answer
        in `exact` precision, and handed to `on_check`."""
        self._model = model
        self._check = check
        self._on_check = on_check
        if check is not None and check.granule <= model.limits.rows_per_call:
            model.granule = check.granule
        self._owner = Owner(model)
        self._finalizer = weakref.finalize(self, self._owner.close)

    def __enter__(self) -> Engine:  # noqa: PYI034 - Self is not in typing before Python 3.11, and the class is final
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        identity = self._model.identity
        state = ", closed" if self._owner.closed else ""
        return f"Engine({identity.name!r}, precision={identity.precision!r}{state})"

    def close(self) -> None:
        """Free the model; work under way ends with `ClosedError`. Closing twice is fine."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._owner.closed

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary."""
        return self._model.vocabulary

    @property
    def tolerance(self) -> float | None:
        """Nats a row by which layout can move a log-probability; None in `fast` precision, where it is not measured."""
        if self._model.identity.precision != Precision.EXACT.value:
            return None
        check = self._check if self._check is not None else self._owner.call(self._make_check)
        return check.tolerance

    def _make_check(self) -> SelfCheck:
        """The self-check, on the model's thread, where a second caller finds that of the first."""
        if self._check is None:
            self._check = self_check(self._model)
            if self._on_check is not None:
                self._on_check(self._check)
        return self._check

    def trim(self) -> None:
        """Drop every cached prompt and row."""
        self._owner.call(self._owner.scheduler.forget_all)

    def select(
        self,
        prompt: Prompt,
        choices: Sequence[str],
        *,
        rule: str | Rule | CustomRule = "joint",
        terminator: str = "auto",
        following: str = "",
        prior: Mapping[str, float] | Sequence[float] | None = None,
        search: Search = DEFAULT_SEARCH,
        prompting: Prompting = DEFAULT_PROMPTING,
    ) -> Selection:
        """Decide which of the choices the prompt goes on with, by joint log-probability.

        prompt: text, token ids, or chat messages. choices: taken as they are (mind leading spaces; `prompting.delimiter`
        adds one). rule: a name, a `Rule`, or a callable from `ChoiceScore` to a number. terminator: what ends a choice;
        "auto" decides by `following`, the text after it, and by whether one choice continues another. prior: weight of each
        choice. search: how, and how many places must be certain. prompting: boundary, delimiter, chat, truncation.

        Raises errors of `RequestError` for what the caller can mend, before any model call, and of `ModelError`.
        """
        return self._answer([(prompt, choices)], Asked(rule, terminator, following, prior, search, prompting))[0]

    def rank(
        self,
        prompt: Prompt,
        choices: Sequence[str],
        *,
        rule: str | Rule | CustomRule = "joint",
        terminator: str = "auto",
        following: str = "",
        prior: Mapping[str, float] | Sequence[float] | None = None,
        search: Search | None = None,
        prompting: Prompting = DEFAULT_PROMPTING,
    ) -> Selection:
        """As `select`, with more places certain: all, or the first `search.k`. Read them off `.ranked` or `.top(k)`."""
        search = Search(stop="all") if search is None else search
        return self._answer([(prompt, choices)], Asked(rule, terminator, following, prior, search, prompting))[0]

    def select_many(
        self,
        requests: Iterable[tuple[Prompt, Sequence[str]]],
        *,
        rule: str | Rule | CustomRule = "joint",
        terminator: str = "auto",
        following: str = "",
        prior: Mapping[str, float] | Sequence[float] | None = None,
        search: Search = DEFAULT_SEARCH,
        prompting: Prompting = DEFAULT_PROMPTING,
    ) -> list[Selection]:
        """As `select` for many (prompt, choices) at once: they share model calls and prefixes. Results in order.

        A request that is refused refuses all, before any model call; the error's `request` is its index.
        """
        if not isinstance(requests, Iterable):
            raise OptionError("requests", requests, "pairs of prompt and choices")
        return self._answer(list(requests), Asked(rule, terminator, following, prior, search, prompting))

    def score(
        self, prompt: Prompt, text: str, *, following: str = "", prompting: Prompting = DEFAULT_PROMPTING
    ) -> TextScore:
        """Log-probability of one text after a prompt, token by token.

        following: text after it, of which the first tokens are scored too, up to a boundary (terminator "text").
        """
        if not text:
            raise OptionError("text", text, "some text to score")
        asked = Asked(terminator="text" if following else "none", following=following, prompting=prompting)
        with self._owner.using():
            return self._score(prompt, text, asked)

    def _score(self, prompt: Prompt, text: str, asked: Asked) -> TextScore:
        question = selecting.prepare(self._model.vocabulary, self._model.limits, prompt, [text], asked)
        question = replace(question, needs=replace(question.needs, best=question.needs.row))
        tau = self.tolerance
        handle = self._owner.submit(ScoreTask(question.encoded.context, question.trie, question.needs))
        evaluation = handle.result()
        scored = selecting.score(question, evaluation, None)
        first = int(question.encoded.first_scored[0])
        tokens = question.trie.token[1 + first :]
        return TextScore(
            text=text,
            logp=float(scored.logp[0]),
            tokens=tuple(
                question.token_score(int(token), float(logp))
                for token, logp in zip(tokens, evaluation.edge_logp[1 + first :], strict=True)
            ),
            is_greedy=bool((evaluation.best_token[first:-1] == tokens).all()),
            healed=question.encoded.healed,
            log_heal=scored.log_heal,
            heal_gap=scored.heal_gap,
            cost=replace(handle.cost, rows_naive=question.rows_naive),
            signature=selecting.signature(question, self._model.identity, tau),
        )

    def tokens(
        self,
        prompt: Prompt,
        choices: Sequence[str],
        *,
        terminator: str = "auto",
        following: str = "",
        prompting: Prompting = DEFAULT_PROMPTING,
    ) -> TokenPlan:
        """How a request becomes tokens and what would be evaluated; no model call is made."""
        vocabulary = self._model.vocabulary
        asked = Asked(terminator=terminator, following=following, prompting=prompting)
        with self._owner.using():
            question = selecting.prepare(vocabulary, self._model.limits, prompt, choices, asked)
        encoded, trie = question.encoded, question.trie

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

    def _answer(self, requests: Sequence[tuple[Prompt, Sequence[str]]], asked: Asked) -> list[Selection]:
        """Prepare all, evaluate all together, settle and answer each."""
        with self._owner.using():
            questions = [self._prepare(i, request, asked, of=len(requests)) for i, request in enumerate(requests)]
            _check_batch(questions)
            tau = self.tolerance
            found = self._evaluate(questions, tau or 0.0)
            return [self._decide(one, tau) for one in found]

    def _prepare(self, index: int, request: tuple[Prompt, Sequence[str]], asked: Asked, *, of: int) -> Question:
        try:
            prompt, choices = request
        except (TypeError, ValueError):
            raise OptionError(f"requests[{index}]", request, "a pair of prompt and choices") from None
        try:
            return selecting.prepare(self._model.vocabulary, self._model.limits, prompt, choices, asked)
        except SelectrieError as error:
            error.request = index if of > 1 else None
            raise

    def _evaluate(self, questions: list[Question], tau: float) -> list[_Found]:
        """Baselines and exhaustive scoring side by side, then the searches that need a baseline for their bounds."""
        handles: list[Handle[Any]] = []

        def submit(task: ScoreTask | BestFirst, question: Question | None = None) -> Handle[Any]:
            handle = self._owner.handle(task, _reporter(task, question))
            handles.append(handle)  # before it starts: Ctrl-C may come as soon as it runs
            handle.start()
            return handle

        try:
            baselines = [[submit(ScoreTask(p, q.trie, q.plain_needs)) for p in q.premises] for q in questions]
            mains: dict[int, Handle[scoring.TrieEvaluation]] = {
                i: submit(ScoreTask(q.encoded.context, q.trie, q.needs), q)
                for i, q in enumerate(questions)
                if q.method == "exhaustive"
            }
            means = [self._mean(q, group) for q, group in zip(questions, baselines, strict=True)]
            searches: dict[int, Handle[SearchOutcome]] = {
                i: submit(_best_first(q, means[i], tau), q) for i, q in enumerate(questions) if i not in mains
            }
            found = []
            for i, question in enumerate(questions):
                evaluation, finding = _exhausted(question, mains[i]) if i in mains else _searched(searches[i])
                cost = sum((handle.cost for handle in baselines[i]), finding.cost)
                finding = replace(finding, cost=replace(cost, rows_naive=question.rows_naive))
                found.append(_Found(question, evaluation, means[i], finding))
        except BaseException:
            for handle in handles:
                handle.cancel()
            raise
        return _with_batch_means(found)

    def _mean(self, question: Question, group: list[Handle[scoring.TrieEvaluation]]) -> FloatArray | None:
        if not group:
            return None
        return scoring.mean_joint([selecting.joints(question, handle.result()) for handle in group])

    def _decide(self, found: _Found, tau: float | None) -> Selection:
        question = found.question
        scored = selecting.score(question, found.evaluation, found.baseline)
        scored, finding = self._settle(found, scored, tau)
        signature = selecting.signature(question, self._model.identity, tau)
        return selecting.selection(question, found.evaluation, scored, finding, signature)

    def _settle(self, found: _Found, scored: Scored, tau: float | None) -> tuple[Scored, Finding]:
        """Score the near ties among the first k again in the canonical layout."""
        question, finding = found.question, found.finding
        if tau is None or not can_settle(question):
            return scored, finding
        k = len(question.texts) if question.search.stop == "all" else question.search.k
        finalists, settled = scoring.finalists(scored.scores, question.tolerances(tau), question.trie.path_of, k)
        if not len(finalists) or not settled:
            return scored, replace(finding, certificate=replace(finding.certificate, settled=settled))
        contexts = (question.encoded.context, *question.premises)
        try:
            answers = self._owner.call(
                lambda: [settle(self._model, question, context, finalists) for context in contexts]
            )
        except DecodeInterrupted:
            raise
        except ModelError as error:  # no memory for a second context, say: the answer stands, not settled
            logger.debug("%d near ties are not settled: %s", len(finalists), error)
            return scored, finding
        values = [value for value, _ in answers if value is not None]
        finding = replace(finding, cost=sum((cost for _, cost in answers), finding.cost))
        if len(values) < len(contexts):
            return scored, finding
        baseline = found.baseline
        if baseline is not None:
            baseline = _replaced(baseline, question, finalists, np.mean(np.stack(values[1:]), axis=0))
        scored = replace(scored, logp=_replaced(scored.logp, question, finalists, values[0]))
        scored = replace(scored, upper=np.where(np.isnan(scored.logp), scored.upper, scored.logp))
        scored = selecting.rescore(question, found.evaluation, scored, baseline)
        certificate = replace(finding.certificate, settled=True, n_settled=len(finalists))
        return scored, replace(finding, certificate=certificate)


def _best_first(question: Question, baseline: FloatArray | None, tau: float) -> BestFirst:
    objective = question.objective(baseline, tau)
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


def _exhausted(question: Question, handle: Handle[scoring.TrieEvaluation]) -> tuple[scoring.TrieEvaluation, Finding]:
    evaluation = handle.result()
    certificate = Certificate(
        proved=True,
        bound_gap=np.inf,
        open_mass=0.0,
        nodes_evaluated=evaluation.n_evaluated,
        nodes_inner=question.needs.n_rows,
        settled=False,
        n_settled=0,
        method="exhaustive",
    )
    return evaluation, Finding(certificate, handle.cost)


def _searched(handle: Handle[SearchOutcome]) -> tuple[scoring.TrieEvaluation, Finding]:
    outcome = handle.result()
    certificate = Certificate(
        proved=outcome.proved,
        bound_gap=outcome.bound_gap,
        open_mass=outcome.open_mass,
        nodes_evaluated=outcome.n_evaluated,
        nodes_inner=outcome.n_needed,
        settled=False,
        n_settled=0,
        method="best_first",
    )
    return outcome.evaluation, Finding(certificate, handle.cost, outcome.log_open)


def _check_batch(questions: list[Question]) -> None:
    """All requests have one rule, so one look at it is enough."""
    for i, question in enumerate(questions):
        if question.rule.name == "batch" and question.texts != questions[0].texts:
            error = OptionError("rule", "batch", "the same choices in every request of the batch")
            error.request = i
            raise error


def _with_batch_means(found: list[_Found]) -> list[_Found]:
    """Baselines of rule "batch": the mean joint of each choice over all prompts."""
    batch = [one for one in found if one.question.rule.name == "batch"]
    if not batch:
        return found
    mean = scoring.mean_joint([selecting.joints(one.question, one.evaluation) for one in batch])
    return [replace(one, baseline=mean) for one in found]


def _replaced(values: FloatArray, question: Question, choices: IntArray, new: FloatArray) -> FloatArray:
    """float64[C] with these choices set anew, and all that have the same path scored from the same token."""
    path_of, first = question.trie.path_of, question.encoded.first_scored
    result: FloatArray = values.copy()
    for choice, value in zip(choices, new, strict=True):
        result[(path_of == path_of[choice]) & (first == first[choice])] = value
    return result


def _reporter(task: ScoreTask | BestFirst, question: Question | None) -> Callable[[], None] | None:
    """What tells a caller about progress after each model call."""
    if question is None or question.search.on_progress is None:
        return None
    tell, total = question.search.on_progress, question.needs.n_rows
    return lambda: tell(task.n_evaluated, total)
