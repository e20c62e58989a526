"""Several models, of which a larger one answers what a smaller one abstains from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from selectrie.decide.answers import NO_USAGE, Answer, DecidedBy, Decision, DecisionUsage
from selectrie.decide.calibration import Calibration
from selectrie.decide.params import DecisionParams, questions_and_params
from selectrie.decide.states import State
from selectrie.decide.templates import DecisionPrompt
from selectrie.decide.threshold import Threshold
from selectrie.engine.deciding import Decider, DecisionRequest, iterate_states
from selectrie.engine.decision_prompts import QuestionKey
from selectrie.engine.decisions import DecisionBatch, DecisionScorer
from selectrie.engine.engine import Engine
from selectrie.errors import (
    CancelledError,
    ClosedError,
    ForkedError,
    IncompatibleOptionsError,
    OptionError,
    OptionRef,
    SelectrieError,
    words,
)
from selectrie.options.arguments import missing_attribute, named_arguments

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from selectrie.options import keywords

Run = Callable[[DecisionBatch], list[Decision]]
"""Evaluates the prompts of one model."""


@named_arguments
def cascade(engines: Iterable[Engine], *, min_confidence: Any = 0.8, threshold: Any = None) -> Cascade:
    """Return models that decide one after the other, each what those before it do not.

    Args:
        engines: The engines, the one to be asked first at the beginning. They stay
            open: the cascade does not close them.
        min_confidence: The confidence below which an answer of any model but the last
            goes to the next one, as in `DecisionParams`.
        threshold: Another name of `min_confidence`.

    Raises:
        OptionError: If there is no engine, or another value.
    """
    if threshold is not None and min_confidence != 0.8:
        raise IncompatibleOptionsError("threshold", OptionRef("min_confidence"), "they are one option")
    return Cascade(engines, min_confidence if threshold is None else threshold)


def engines_of(llm: Engine | Cascade) -> tuple[Engine, ...]:
    """Return the engines of a cascade, or an engine itself."""
    return llm.engines if isinstance(llm, Cascade) else (llm,)


def _list_engines(engines: object) -> tuple[Engine, ...]:
    """Return the engines of a cascade; raise `OptionError` for anything else."""
    if not isinstance(engines, Iterable):
        raise OptionError("engines", engines, "a list of engines, the smallest first")
    listed = tuple(engines)
    if not listed:
        raise OptionError("engines", [], "at least one engine")
    for index, engine in enumerate(listed):
        if not isinstance(engine, Engine):
            raise OptionError(f"engines[{index}]", engine, "an engine of `load` or `connect`")
    return listed


class Cascade(Decider):
    """Models that decide one after the other, as `selectrie.cascade` makes them.

    The methods are those of `Engine`, with the same arguments. Every question is asked
    of the first model. If its answer abstains, by the cascade's `min_confidence` or by
    an option of the call, the next model is asked. An answer is that of the model in
    its `decided_by`. Its `usage` has the rows of all the models that were asked.
    `max_rows` of `decide` limits the rows that each model alone may plan.

    A request that one of the models cannot be asked is refused before any model call.

    Args:
        engines: The engines, at least one.
        min_confidence: Confidence below which an answer goes to the next model.
        names: Names of the models in answers and errors; those of their files if they
            are left out.
    """

    _is_cascade = True

    @named_arguments
    def __init__(
        self, engines: Iterable[Engine], min_confidence: Any = 0.8, names: Sequence[str] | None = None
    ) -> None:
        self._engines = _list_engines(engines)
        self._names = tuple(one.identity.name for one in self._engines) if names is None else tuple(names)
        self._least = DecisionParams(min_confidence=min_confidence).min_confidence

    def __repr__(self) -> str:
        return f"Cascade([{', '.join(map(repr, self._names))}], min_confidence={self._least!r})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise missing_attribute(self, name)

    @property
    def engines(self) -> tuple[Engine, ...]:
        """Return the engines, the one that is asked first at the beginning."""
        return self._engines

    @property
    def min_confidence(self) -> float | Threshold:
        """Return the confidence below which an answer goes to the next model."""
        return self._least

    @named_arguments
    def fit_calibration(
        self,
        states: Iterable[State],
        questions: Any,
        *,
        params: DecisionParams | None = None,
        **_keywords: Unpack[keywords.DecisionKeywords],
    ) -> Calibration:
        """Return the calibrations of all models in one object."""
        several = list(iterate_states(states))
        fitted = [one.fit_calibration(several, questions, params=params) for one in self._engines]
        return Calibration(tuple(question for one in fitted for question in one.questions))

    @named_arguments
    def decision_prompts(
        self,
        state: State,
        questions: Any,
        *,
        params: DecisionParams | None = None,
        **_keywords: Unpack[keywords.DecisionKeywords],
    ) -> list[dict[str, tuple[DecisionPrompt, ...]]]:
        """Return the prompts of each model, as `Engine.decision_prompts` does."""
        return [one.decision_prompts(state, questions, params=params) for one in self._engines]

    @named_arguments
    def decision_scorer(
        self,
        questions: Mapping[str, Any] | type,
        *,
        params: DecisionParams | None = None,
        **_keywords: Unpack[keywords.DecisionKeywords],
    ) -> CascadeScorer:
        """Return a scorer of units of states, as `Engine.decision_scorer` does."""
        named, options = questions_and_params(questions, params)
        return CascadeScorer(
            [
                engine.decision_scorer(named, params=own)
                for engine, own in zip(self._engines, self._params_of_each(options), strict=True)
            ],
            self._names,
        )

    def _params_of_each(self, params: DecisionParams) -> list[DecisionParams]:
        """Return the options with which each model is asked.

        Raises `IncompatibleOptionsError` for a confidence of the call that cannot be
        compared with the cascade's.
        """
        given: Any = params.min_confidence  # a number or a threshold
        least: Any = self._least
        if not given:
            highest = least
        elif isinstance(given, float | int) and isinstance(least, float | int):
            highest = max(given, least)
        else:
            remedy = "the cascade has one; give the last model's abstentions `min_label_mass`, or both as numbers"
            raise IncompatibleOptionsError("min_confidence", words("a cascade with `min_confidence`"), remedy)
        return [replace(params, min_confidence=highest)] * (len(self._engines) - 1) + [params]

    def _prepare(self, request: DecisionRequest) -> list[DecisionBatch]:
        """Return the prompts of all questions about all states, for each model."""
        batches = []
        params_of_each = self._params_of_each(request.params)
        for engine, name, params in zip(self._engines, self._names, params_of_each, strict=True):
            with _name_model(name):
                batches.append(engine._prepare(replace(request, params=params)))
        return batches

    def _decide(self, request: DecisionRequest) -> list[Decision]:
        batches = self._prepare(request)
        if request.max_rows is not None:
            for name, batch in zip(self._names, batches, strict=True):
                with _name_model(name):
                    batch.check_rows(request.max_rows)
        return _decide_in_turn(batches, self._names, [_run_on(engine) for engine in self._engines])


class CascadeScorer(AbstractContextManager["CascadeScorer"]):
    """Answers questions about units of states by a cascade of models.

    Args:
        scorers: The scorer of each model.
        names: The name of each model.
    """

    def __init__(self, scorers: Sequence[DecisionScorer], names: Sequence[str]) -> None:
        self._scorers, self._names = scorers, names

    def __exit__(self, *_error: object) -> None:
        self.close()

    def decisions(self, states: Sequence[State]) -> list[Decision]:
        """Return the decision on each state of a unit."""
        batches = [one.prepare(states) for one in self._scorers]
        return _decide_in_turn(batches, self._names, [one.run for one in self._scorers])

    def close(self) -> None:
        """Free the memory. May be called twice."""
        with ExitStack() as stack:
            for one in self._scorers:
                stack.callback(one.close)


def _run_on(engine: Engine) -> Run:
    """Return the function that evaluates prompts on an engine."""
    return lambda batch: engine._run(lambda _: batch)


def _decide_in_turn(batches: Sequence[DecisionBatch], names: Sequence[str], runs: Sequence[Run]) -> list[Decision]:
    """Return the decisions of several models, each asked what those before left open.

    Args:
        batches: The prompts of all questions about all states, for each model.
        names: The name of each model.
        runs: What evaluates the prompts of each model.
    """
    errors: dict[int, SelectrieError] = {}
    for name, batch in reversed([*zip(names, batches, strict=True)]):
        for refusal in batch.errors.values():
            _add_model(refusal, name)
        errors |= batch.errors
    keys = [key for key in batches[0].prompts if key[0] not in errors]
    rows_alone = batches[-1].restricted_to(keys).planned_rows()
    usages: dict[QuestionKey, list[DecisionUsage]] = {key: [] for key in keys}
    answers: dict[QuestionKey, Answer] = {}
    left_open = keys
    for index, (batch, name, run) in enumerate(zip(batches, names, runs, strict=True)):
        if not left_open:
            break
        with _name_model(name):
            decisions = run(batch.restricted_to(left_open))
        for key in left_open:
            error = decisions[key[0]].error
            if error is not None:
                if key[0] not in errors:
                    _add_model(error, name)
                    errors[key[0]] = error
                continue
            answer = decisions[key[0]][key[1]]
            usages[key].append(answer.usage)
            usage = _add_usages(usages[key], len(names), rows_alone[key])
            answers[key] = replace(answer, usage=usage, decided_by=DecidedBy(index, name))
        left_open = [key for key in left_open if key[0] not in errors and answers[key].abstained]
    maker = batches[0].maker
    return [
        Decision({}, errors[index])
        if index in errors
        else Decision({name: answers[index, name] for name in maker.asks}, shape=maker.shape)
        for index in range(len(batches[0].states))
    ]


def _add_usages(usages: Sequence[DecisionUsage], n_models: int, rows_alone: int) -> DecisionUsage:
    """Return the work of the models that were asked, one after the other."""
    rows = [one.cost.rows for one in usages]
    rows += [0] * (n_models - len(rows))
    total = sum(usages, NO_USAGE)
    return replace(total, rows_by_model=tuple(rows), rows_alone=rows_alone)


@contextmanager
def _name_model(name: str) -> Iterator[None]:
    """Say in errors raised in the block which model they are about."""
    try:
        yield
    except SelectrieError as error:
        _add_model(error, name)
        raise


def _add_model(error: SelectrieError, name: str) -> None:
    """Name the model in an error, unless the error is that the call could not run."""
    if not isinstance(error, ClosedError | ForkedError | CancelledError):
        error.slot = f"model {name!r}" + ("" if error.slot is None else f", {error.slot}")
