"""Answers questions about states, and about rows of tables one unit at a time.

There is one selection for each prompt, also calibrated. The selections of all prompts
run in one task group. `Ask.answer` computes the answers from their results; nothing is
scored here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from selectrie.core.model import Model
from selectrie.core.numerics import common_length
from selectrie.core.types import ROOT, Cost, IntArray, SelfCheck
from selectrie.core.vocabulary import Vocabulary
from selectrie.decide.answers import Answer, Decision, DecisionSignature, DecisionUsage
from selectrie.decide.calibration import N_LEAST, Calibration, question_calibration, sample_of
from selectrie.decide.params import DecisionParams, is_calibrated
from selectrie.decide.questions import Question
from selectrie.decide.states import State, readable_texts, text_of_state
from selectrie.engine.decision_prompts import DecisionMaker, QuestionKey, TokenizedPrompt, attach_to_errors
from selectrie.engine.requests.canonical_memory import CanonicalMemories, evaluate_and_hold
from selectrie.engine.requests.select import BaselineStore, SelectBatch
from selectrie.engine.requests.select_grammar import PreparedGrammarSelect
from selectrie.engine.requests.selection import PreparedSelect, planned_rows
from selectrie.engine.requests.session import Session
from selectrie.engine.scheduler.model_thread import ModelThread
from selectrie.engine.scheduler.task_group import SecondMemory, SecondMemoryPool, TaskGroup
from selectrie.engine.thinking import DrawnRationales, Thinker
from selectrie.errors import (
    ClosedError,
    ForkedError,
    IncompatibleOptionsError,
    OptionError,
    OptionRef,
    RequestError,
    SelectrieError,
    TooManyRowsError,
)
from selectrie.options.selection import BASELINE_RULES
from selectrie.results import Selection
from selectrie.results.advice import warn
from selectrie.template.analysis.template import Template
from selectrie.tokenization.encoding import encode_prompt
from selectrie.tokenization.prompts import read_prompt

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class DecisionBatch:
    """A batch of questions about several states, checked and tokenized.

    Attributes:
        maker: The maker of the prompts.
        states: The states.
        prompts: The prompts of each question that is asked about each state, one for
            each order.
        errors: The errors found while tokenizing, by the index of the state.
        keep_errors: Whether the error of a state is kept in its decision.
        first_index: Index of the first state in errors; None if there is only one
            state.
    """

    maker: DecisionMaker
    states: Sequence[State]
    prompts: Mapping[QuestionKey, tuple[TokenizedPrompt, ...]]
    errors: Mapping[int, RequestError]
    keep_errors: bool
    first_index: int | None

    @classmethod
    def of(
        cls, maker: DecisionMaker, states: Sequence[State], *, keep_errors: bool, first_index: int | None
    ) -> DecisionBatch:
        """Check and tokenize all questions about several states.

        Raises `RequestError` for an error that can be found without a model call, with
        the index of the state and the name of the question, unless errors are kept.
        """
        prompts: dict[QuestionKey, tuple[TokenizedPrompt, ...]] = {}
        errors: dict[int, RequestError] = {}
        for index, state in enumerate(states):
            request = None if first_index is None else first_index + index
            result = call_or_error(partial(maker.tokenize, state, request), keep_errors=keep_errors)
            if isinstance(result, RequestError):
                errors[index] = result
            else:
                prompts |= {(index, name): by_order for name, by_order in result.items()}
        return cls(maker, states, prompts, errors, keep_errors, first_index)

    def check_rows(self, max_rows: int) -> None:
        """Raise `TooManyRowsError` if the prompts need more than `max_rows` rows."""
        planned = sum(self.planned_rows().values())
        if planned > max_rows:
            raise TooManyRowsError(planned, max_rows)

    def planned_rows(self) -> dict[QuestionKey, int]:
        """Return the rows that each question about each state adds to an empty cache.

        Searches of a grammar take 0, because other limits apply to them. Rationales
        take as many as the longest ones would.
        """
        planned, thinker = dict.fromkeys(self.prompts, 0), self.maker.thinker
        listed = [
            (key, prompt.select)
            for key, prompts in self.prompts.items()
            for prompt in prompts
            if isinstance(prompt.select, PreparedSelect)
        ]
        for (key, _), n in zip(listed, planned_rows(select for _, select in listed), strict=True):
            planned[key] += n
        if thinker is not None:
            for key, select in listed:
                planned[key] += thinker.max_rows(select.needs.n_rows)
        return planned

    def restricted_to(self, keys: Collection[QuestionKey]) -> DecisionBatch:
        """Return a batch that asks only some of the questions about each state."""
        return replace(self, prompts={key: prompts for key, prompts in self.prompts.items() if key in keys})

    def run(self, session: Session) -> list[Decision]:
        """Evaluate all prompts together and return the decisions in order.

        If this fails and errors are kept, each state is evaluated again by itself.
        """
        valid = [index for index in range(len(self.states)) if index not in self.errors]
        results = run_all_or_each(partial(self._run, session), valid, keep_errors=self.keep_errors)
        by_index: dict[int, Decision | RequestError] = {**self.errors, **dict(zip(valid, results, strict=True))}
        ordered = [by_index[index] for index in range(len(self.states))]
        return [Decision({}, one) if isinstance(one, RequestError) else one for one in ordered]

    def _run(self, session: Session, indices: Sequence[int]) -> list[Decision]:
        """Return the decisions on the states of these indices.

        With `permutations="auto"`, there are several rounds. After each, the selections
        so far decide which questions need more orders (`Ask.n_orders_wanted`).
        """
        asks = self.maker.asks
        chosen = frozenset(indices)
        prompts = {key: prompts for key, prompts in self.prompts.items() if key[0] in chosen}
        rationales: dict[QuestionKey, DrawnRationales] = {}
        if self.maker.thinker is not None:
            rationales = self._think(session, self.maker.thinker, prompts)
            prompts = {key: self._prompts_behind(key, self.maker.thinker, rationales[key]) for key in prompts}
        done: dict[QuestionKey, list[Selection]] = {key: [] for key in prompts}
        pending = dict.fromkeys(done, 0)
        while pending := {key: n for key in pending if (n := asks[key[1]].n_orders_wanted(done[key])) > len(done[key])}:
            new = [(key, prompt) for key, n in pending.items() for prompt in prompts[key][len(done[key]) : n]]
            for (key, _), result in zip(new, self._run_selections(session, new), strict=True):
                done[key].append(result)
        return [
            Decision(
                {
                    name: self._make_answer(
                        (index, name), prompts[index, name], tuple(done[index, name]), rationales.get((index, name))
                    )
                    for name in asks
                    if (index, name) in done
                },
                shape=self.maker.shape,
            )
            for index in indices
        ]

    def _run_selections(
        self, session: Session, prompts: Sequence[tuple[QuestionKey, TokenizedPrompt]]
    ) -> list[Selection]:
        """Return the selection after each prompt.

        Prompts with listed choices run together. Then each search of a grammar runs.
        """
        done: dict[int, Selection] = {}
        batch = [(at, one.select) for at, (_, one) in enumerate(prompts) if isinstance(one.select, PreparedSelect)]
        try:
            results = SelectBatch([select for _, select in batch]).run(session)
            done |= zip([at for at, _ in batch], results, strict=True)
        except SelectrieError as error:
            if error.request is None and len(batch) != 1:
                raise
            at, error.request = batch[error.request or 0][0], None
            with self._name_in_errors(prompts[at][0]):
                raise
        for at, (key, one) in enumerate(prompts):
            if isinstance(one.select, PreparedGrammarSelect):
                with self._name_in_errors(key):
                    done[at] = one.select.run(session)
        return [done[at] for at in range(len(prompts))]

    def _think(
        self, session: Session, thinker: Thinker, keys: Collection[QuestionKey]
    ) -> dict[QuestionKey, DrawnRationales]:
        """Return the rationales of questions.

        With `Thinking.shared`, the questions about a state have the same rationales,
        whose cost the first of them has.
        """
        maker = self.maker
        shared = maker.shared_prompt_maker() if thinker.params.shared and len(maker.asks) > 1 else None
        askers = {key: key if shared is None else (key[0], "") for key in keys}
        pages = {
            (index, name): (shared or maker.prompt_makers(name)[0]).write_thinking_page(
                text_of_state(self.states[index]), thinker.markers.start
            )
            for index, name in dict.fromkeys(askers.values())
        }
        drawn = thinker.run(session, pages, maker.prompting_of, self._name_in_errors)
        first_of = {asker: key for key, asker in reversed(askers.items())}
        return {key: replace(drawn[asker], is_counted=first_of[asker] == key) for key, asker in askers.items()}

    def _prompts_behind(
        self, key: QuestionKey, thinker: Thinker, rationales: DrawnRationales
    ) -> tuple[TokenizedPrompt, ...]:
        """Return the prompt of an answer behind each rationale."""
        with self._name_in_errors(key):
            [prompt_maker], state = self.maker.prompt_makers(key[1]), text_of_state(self.states[key[0]])
            return tuple(prompt_maker.tokenize(state, thinker.insert(one)) for one in rationales.completions)

    def _make_answer(
        self,
        key: QuestionKey,
        prompts: tuple[TokenizedPrompt, ...],
        selections: tuple[Selection, ...],
        drawn: DrawnRationales | None,
    ) -> Answer:
        """Return the answer to a question about a state, given its selections."""
        maker, ask, template = self.maker, self.maker.asks[key[1]], self.maker.template
        vocabulary, conditions, is_listed = maker.model.vocabulary, maker.conditions[key[1]], ask.listed
        if prompts[0].is_cut:
            conditions, is_listed = {**conditions, "listed": False}, False
        n_tokens = sum(count_prompt_tokens(vocabulary, prompt) for prompt in prompts[: len(selections)])
        usage = DecisionUsage(len(selections), n_tokens, sum((result.cost for result in selections), Cost()))
        signature = DecisionSignature(
            template=template.name if isinstance(template, Template) else f"{template}.tmpl",
            template_digest=maker.digest,
            layout=ask.layout,
            scoring=maker.params.scoring,
            rule=ask.rule,
            listed=is_listed,
            orders=ask.n_orders,
            selection=selections[0].signature,
            calibration=ask.calibration,
            thinking="" if ask.params.think is None else ask.params.think.describe(),
        )
        answer = ask.answer(
            selections,
            first_token_fits=all(first_token_fits(vocabulary, result) for result in selections),
            signature=signature,
            usage=usage if drawn is None else drawn.usage() + usage,
            conditions=conditions,
        )
        return answer if drawn is None else replace(answer, rationales=drawn.record(ask, answer, selections))

    def _name_in_errors(self, key: QuestionKey) -> AbstractContextManager[None]:
        """Attach the state's index and the question's name to errors in a `with`."""
        index, name = key
        return attach_to_errors(None if self.first_index is None else self.first_index + index, name)


def call_or_error(call: Callable[[], T], *, keep_errors: bool) -> T | RequestError:
    """Return the result of a call, or its `RequestError` if `keep_errors` is True."""
    try:
        return call()
    except RequestError as error:
        if not keep_errors:
            raise
        return error


def run_all_or_each(
    run: Callable[[Sequence[int]], Sequence[T | RequestError]], indices: Sequence[int], *, keep_errors: bool
) -> Sequence[T | RequestError]:
    """Return the results of all indices together, or of each by itself if that fails.

    The latter happens only if errors are kept.
    """
    try:
        return run(indices)
    except RequestError as error:
        if not keep_errors or isinstance(error, ClosedError | ForkedError):
            raise

    def alone(index: int) -> T | RequestError:
        return run([index])[0]

    return [call_or_error(partial(alone, index), keep_errors=True) for index in indices]


def count_prompt_tokens(vocabulary: Vocabulary, one: TokenizedPrompt) -> int:
    """Return the number of tokens of a prompt, without those of the choices."""
    if isinstance(one.select, PreparedSelect):
        return len(one.select.encoded.prompt_tokens)
    return len(encode_prompt(vocabulary, read_prompt(vocabulary, one.prompt, one.request.prompting)))


def first_token_fits(vocabulary: Vocabulary, result: Selection) -> bool:
    """Return whether the most probable token after the context begins a choice.

    That is true if the token is the first of a choice, or if its bytes are a prefix of
    a choice. It is false if the most probable token is not known.
    """
    if not result.top_tokens:
        return False
    table, top = result.choices, result.top_tokens[0]
    if top.id in table.trie.token[table.trie.children(ROOT)].tolist():
        return True
    texts = [result.healed + text.encode() for text in table.texts]
    return bool(top.piece) and any(
        text.startswith(top.piece) or vocabulary.with_added_space(text).startswith(top.piece) for text in texts
    )


def params_to_fit(params: DecisionParams) -> DecisionParams:
    """Return the options of the answers that a calibration is fitted to.

    Raises `IncompatibleOptionsError` for a rule that compares with a baseline itself.
    """
    if params.rule in BASELINE_RULES:
        remedy = "both compare with a baseline; take another rule"
        raise IncompatibleOptionsError("calibration", OptionRef("rule", params.rule), remedy)
    return replace(params, calibration=None, prior=None, top=None)


def without_batch(params: DecisionParams) -> DecisionParams:
    """Return the options as they are checked before `calibration="batch"` is fitted."""
    return replace(params, calibration=None) if params.calibration == "batch" else params


def fit_to_states(
    maker: DecisionMaker, decide: Callable[[Sequence[State]], list[Decision]], states: Iterable[State]
) -> Calibration:
    """Return a calibration of all questions, except those with a grammar.

    Args:
        maker: The maker of the prompts, with the options of `params_to_fit`.
        decide: Returns the decisions on a unit of states. One that cannot be asked has
            an error.
        states: The states, of which a sample is asked about (`sample_of`).

    Raises:
        OptionError: If no state can be asked.
    """
    decisions = decide(sample_of(readable_texts(states)))
    answered = [one for one in decisions if one.error is None]
    if not answered:
        raise OptionError("states", len(decisions), "at least one state that can be asked")
    return Calibration(
        tuple(
            question_calibration(
                ask.bound(maker.digest, maker.model.identity),
                [list(one[name].probabilities.values()) for one in answered],
            )
            for name, ask in maker.asks.items()
            if ask.question.grammar is None
        )
    )


def with_fitted_calibration(
    fit: Callable[..., Calibration],
    states: Iterable[State | RequestError],
    questions: Mapping[str, Question],
    params: DecisionParams,
) -> DecisionParams:
    """Replace `calibration="batch"` by a calibration fitted to the states.

    `fit` is the method `fit_calibration` of an engine or a cascade.

    States that cannot be asked are left out. With fewer than 16 states, the result has
    no calibration, and a warning is issued. Other options are returned unchanged.
    """
    if params.calibration != "batch":
        return params
    params = without_batch(params)
    if not any(is_calibrated(one, params) for one in questions.values()):
        return params
    calibration = Calibration(())
    if sample := sample_of(readable_texts(states)):
        with suppress(OptionError):  # no state can be asked
            calibration = fit(sample, questions, params=params)
    n = min((one.n for one in calibration.questions), default=0)
    if n < N_LEAST:
        need = f"calibration 'batch' needs {N_LEAST} different states of which the question can be asked; there are {n}"
        warn(f"{need}, so the answers are not calibrated")
        return params
    return replace(params, calibration=calibration)


_NODES_SHARE, _SEQUENCES_SHARE = 2, 4
"""Shared prefixes use at most 1/2 of the model's nodes, and 1/4 of its sequences."""


class DecisionScorer(AbstractContextManager["DecisionScorer"]):
    """Answers questions about units of states. `Engine.decision_scorer` returns one.

    A scorer is a context manager, and `decisions` may be called from any thread. On a
    local model, concurrent calls have separate key/value caches (`memories_of`).

    Args:
        maker: Makes the prompts of the questions.
        session: Opens the session in which a unit is evaluated.
        close: Frees the memory of all sessions.
        keep: An object that stays alive as long as the scorer.
    """

    def __init__(
        self,
        maker: DecisionMaker,
        session: Callable[[], AbstractContextManager[Session]],
        close: Callable[[], None] = lambda: None,
        *,
        keep: object = None,
    ) -> None:
        """Create a scorer; the class docstring describes the arguments."""
        self._maker, self._session, self._close, self._kept = maker, session, close, keep
        self._is_closed = False

    def __exit__(self, *_error: object) -> None:
        self.close()

    def decisions(self, states: Sequence[State]) -> list[Decision]:
        """Return the decision on each state of a unit, in order.

        A state that cannot be asked has a decision with an `error`. Ctrl-C stops the
        call in the middle of a decode. If the call fails, its memory is freed, and the
        next call uses a new one.

        Raises:
            ModelError: If the model fails.
            ClosedError: If the scorer or the engine was closed.
        """
        return self.run(self.prepare(states))

    def prepare(self, states: Sequence[State]) -> DecisionBatch:
        """Return the prompts of a unit, checked and tokenized."""
        if self._is_closed:
            raise ClosedError("the scorer")
        return DecisionBatch.of(self._maker, states, keep_errors=True, first_index=0)

    def run(self, batch: DecisionBatch) -> list[Decision]:
        """Return the decision on each state of a batch, as `decisions` does."""
        if self._is_closed:
            raise ClosedError("the scorer")
        with self._session() as session:
            return batch.run(session)

    def close(self) -> None:
        """Free the memory. May be called twice, and after the engine was closed."""
        self._is_closed = True
        self._close()


def memories_of(thread: ModelThread, model: Model, maker: DecisionMaker) -> SecondMemoryPool[DecisionMemory]:
    """Return a pool of key/value caches, one for each unit that is evaluated at a time.

    Prefixes that the prompts of all states share are evaluated once for each cache and
    stay in it. In the layout "questions first", these are the question and its list of
    options. After a unit, everything except the shared prefixes is dropped.
    """
    shared, limits = _find_shared_paths(model, maker), model.limits

    def open_memory() -> DecisionMemory:
        n_shared = sum(map(len, shared))  # nodes in addition to those of the model's own limit
        model_context = model.new_context(limits.nodes + n_shared, limits.sequences)
        try:
            for path in shared:
                evaluate_and_hold(model_context, path)
            model_context.trim(0)
        except BaseException:
            model_context.close()
            raise
        return DecisionMemory(model_context, CanonicalMemories(len(shared) + 1))

    return SecondMemoryPool(thread, open_memory)


class DecisionMemory(SecondMemory):
    """The key/value caches of a unit: its own, and those that settle near ties.

    It also keeps the baselines of the scoring rule, so each is evaluated only once for
    all units.

    Args:
        model: A model made by `Model.new_context`.
        kept: The caches in which near ties are evaluated again.
    """

    def __init__(self, model: Model, kept: CanonicalMemories) -> None:
        super().__init__(model)
        self._kept, self._baselines = kept, BaselineStore(self.clear)

    def session(self, group: TaskGroup, check: SelfCheck | None) -> Session:
        """Return the session in which a unit is evaluated."""
        return Session(group, self.model, check, kept=self._kept, baselines=self._baselines)

    def close(self) -> None:
        """Free the caches."""
        try:
            self._kept.close()
        finally:
            super().close()


def _find_shared_paths(model: Model, maker: DecisionMaker) -> tuple[IntArray, ...]:
    """Return the token prefixes that the prompts of all states share, longest first.

    A prefix is found by comparing the prompts of two different states. Each prompt of a
    question has one, as long as the model has room for it (`_NODES_SHARE`).
    """
    found: dict[bytes, IntArray] = {}
    for one, other in zip(maker.context_tokens("0"), maker.context_tokens("A b"), strict=True):
        path = one[: common_length(one, other)]
        if len(path):
            found.setdefault(path.tobytes(), path)
    limits = model.limits
    n_nodes, n_paths = limits.nodes // _NODES_SHARE, limits.sequences // _SEQUENCES_SHARE
    held: list[IntArray] = []
    for path in sorted(found.values(), key=len, reverse=True):
        if len(path) <= n_nodes and len(held) < n_paths:
            held.append(path)
            n_nodes -= len(path)
    return tuple(held)
