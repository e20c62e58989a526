"""The methods of an engine that decide: typed questions about states.

They are apart from `Engine` because of their size. What a question is, and how answers
are made, is in `decide/`; `decisions.py` beside this file asks the model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

from selectrie.core.model import ModelDescription
from selectrie.engine.aio import awaitable, in_thread
from selectrie.engine.requests.session import Prepared
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef
from selectrie.options.argument_names import named_arguments
from selectrie.options.checks import at_least, one_of, record

if TYPE_CHECKING:
    from selectrie.decide.answers import Answer, ChoiceAnswer, Decision, PredicateAnswer, ScoreAnswer
    from selectrie.decide.params import Calibration, DecisionParams
    from selectrie.decide.questions import Choice, Predicate, Question, Score
    from selectrie.decide.states import State
    from selectrie.decide.templates import DecisionPrompt
    from selectrie.engine.decision_scorer import DecidesUnits, ScoresDecisions
    from selectrie.engine.decisions import DecisionMaker

T = TypeVar("T")
R = TypeVar("R")
TableT = TypeVar("TableT")

WINDOW = 64
"""Number of questions that `decide_iter` has under way, at least one state's."""


class _Runs(Protocol):
    """What the methods need of an engine."""

    def _run(self, prepare: Callable[[ModelDescription], Prepared[R]]) -> R: ...
    def _prepare_only(self, prepare: Callable[[ModelDescription], R]) -> R: ...
    def _decision_scorer(self, maker: DecisionMaker) -> ScoresDecisions: ...


class _Fits(_Runs, Protocol):
    def fit_calibration(
        self, states: Iterable[State], questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> Calibration: ...


class DecisionMethods:
    """Decides about states. `Engine` has these methods.

    `decide` takes one question or a mapping of questions, and its overloads say which
    answer comes back. The other methods take a mapping.
    """

    __slots__ = ()

    @overload
    def decide(
        self: _Runs,
        state: State,
        questions: Choice[T],
        *,
        params: DecisionParams | None = None,
        max_rows: int | None = None,
    ) -> ChoiceAnswer[T]: ...
    @overload
    def decide(
        self: _Runs,
        state: State,
        questions: Predicate,
        *,
        params: DecisionParams | None = None,
        max_rows: int | None = None,
    ) -> PredicateAnswer: ...
    @overload
    def decide(
        self: _Runs,
        state: State,
        questions: Score,
        *,
        params: DecisionParams | None = None,
        max_rows: int | None = None,
    ) -> ScoreAnswer: ...
    @overload
    def decide(
        self: _Runs,
        state: State,
        questions: Mapping[str, Question],
        *,
        params: DecisionParams | None = None,
        max_rows: int | None = None,
    ) -> Decision: ...
    @named_arguments
    def decide(
        self: _Runs,
        state: State,
        questions: Question | Mapping[str, Question],
        *,
        params: DecisionParams | None = None,
        max_rows: int | None = None,
    ) -> Answer | Decision:
        """Answer a question about a state, or several.

        Each question has its own prompt, so its answer does not depend on which others
        are asked beside it; only the layout "auto" is another for one question than for
        several. All prompts are evaluated together and share what they have in common.

        Args:
            state: Text, an object or array of JSON, or messages.
            questions: A `Choice`, `Predicate` or `Score`, or a mapping from names to
                these.
            params: Template, layout, rule and other options.
            max_rows: Maximum number of rows of the model that the prompts and options
                may plan, with nothing cached; None for no limit.

        Returns:
            The answer of the question's kind, or a `Decision` with one answer for each
            name.

        Raises:
            RequestError: If the request is invalid, before any model call.
                `SelectrieError.slot` names the question. `TooManyRowsError` if more
                rows are planned than may be.
            ModelError: If the model fails.
        """
        from selectrie.decide.asks import named_questions
        from selectrie.decide.questions import Choice, Predicate, Score

        at_least("max_rows", max_rows, 1)
        if isinstance(questions, Choice | Predicate | Score):
            return _decisions(self, [state], {"": questions}, params, max_rows=max_rows)[0][""]
        return _decisions(self, [state], named_questions(questions), params, max_rows=max_rows)[0]

    @named_arguments
    def decide_many(
        self: _Fits,
        states: Iterable[State],
        questions: Mapping[str, Question],
        *,
        params: DecisionParams | None = None,
        on_error: str = "raise",
    ) -> list[Decision]:
        """Answer the same questions about many states, all at once.

        Args:
            states: The states.
            questions: The questions by name.
            params: Template, layout, rule and other options.
            on_error: With "raise", nothing runs if any state is invalid; the error's
                `request` is the index of the first such state. With "keep", the
                decision on a state that cannot be asked holds its error.

        Returns:
            One decision for each state, in order.
        """
        from selectrie.decide.asks import named_questions
        from selectrie.decide.params import DecisionParams

        several, named = list(_iterator(states)), named_questions(questions)
        first = 0 if len(several) > 1 else None
        if isinstance(params, DecisionParams) and params.calibration == "batch":
            from selectrie.engine import decisions
            from selectrie.engine.decision_scorer import with_fitted_calibration

            one_of("on_error", on_error, ("raise", "keep"))
            plain, keeps = replace(params, calibration=None), on_error == "keep"
            # Nothing runs if a state is invalid.
            self._prepare_only(lambda model: decisions.prepare(model, several, named, plain, keeps=keeps, first=first))
            params = with_fitted_calibration(self, several, named, params)
        return _decisions(self, several, named, params, on_error, first=first)

    @named_arguments
    def decide_iter(
        self: _Runs,
        states: Iterable[State],
        questions: Mapping[str, Question],
        *,
        params: DecisionParams | None = None,
        on_error: str = "raise",
    ) -> Iterator[Decision]:
        """Answer the same questions about states that are read as they are needed.

        Decisions come in the order of the states. At most `WINDOW` questions are under
        way, so memory does not grow with the number of states. Arguments are those of
        `decide_many`; with "raise", the iterator ends with the error of the first
        window that has an invalid state.
        """
        from selectrie.decide.asks import named_questions

        one_of("on_error", on_error, ("raise", "keep"))
        named = named_questions(questions)
        return _flat(_windows(self, _iterator(states), named, params, on_error))

    @named_arguments
    def decide_table(
        self: DecidesUnits,
        table: TableT,
        questions: Mapping[str, Question],
        *,
        state: str,
        params: DecisionParams | None = None,
        probabilities: str = "none",
        prefix: str = "",
        unit_rows: int = 64,
    ) -> TableT:
        """Answer questions about every row of a data frame (extra `tables`).

        A question `q` adds the columns `q`, `q_probability`, `q_confidence`,
        `q_label_mass`, `q_margin` and `q_abstained`. Columns of labels are categorical.
        The column `error` says why a row has no answers: its state is missing, blank or
        too long.

        The numbers of a row depend on the rows that are decided together with it, not
        on earlier ones or on other work.

        Args:
            table: A data frame of pandas, polars or pyarrow.
            questions: The questions by name.
            state: The name of a column, or a pattern in which `{column}` stands for a
                value and `{{` and `}}` for braces.
            params: Template, layout, rule and other options.
            probabilities: "json" adds `q_probabilities`, a JSON object from options to
                probabilities, and "wide" a column `q_probability_OPTION` for each
                option.
            prefix: Text before the name of every added column.
            unit_rows: Number of rows that are decided together.

        Returns:
            A data frame of the same library: the columns of `table` and the new ones.
            An index of pandas stays.

        Raises:
            RequestError: For an unknown column, a column that exists already, or
                questions that cannot be asked, before any model call.
            MissingExtraError: Without narwhals.
            ModelError: If the model fails. Answers so far are lost; the command
                `selectrie decide --table` keeps them.
        """
        from selectrie.decide.asks import named_questions
        from selectrie.decide.params import DEFAULT_DECISION, DecisionParams
        from selectrie.engine.decision_scorer import decided_table

        options = DEFAULT_DECISION if params is None else params
        record("params", options, DecisionParams)
        named = named_questions(questions)
        made = decided_table(
            self,
            table,
            named,
            state=state,
            params=options,
            probabilities=probabilities,
            prefix=prefix,
            unit_rows=unit_rows,
        )
        return cast("TableT", made)

    @named_arguments
    def decision_scorer(
        self: _Runs, questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> ScoresDecisions:
        """Return a scorer that decides about units of states, as a table has them.

        A unit is decided in a memory of its own, so its bits do not depend on earlier
        units or on other work of the engine. The memory is as large as that of the
        model. It is a context manager that frees this memory.

        Args:
            questions: The questions by name.
            params: Template, layout, rule and other options.

        Raises:
            RequestError: For questions that cannot be asked with these options.
        """
        from selectrie.decide.asks import named_questions
        from selectrie.decide.params import DEFAULT_DECISION, DecisionParams
        from selectrie.engine.decisions import DecisionMaker

        options = DEFAULT_DECISION if params is None else params
        record("params", options, DecisionParams)
        named = named_questions(questions)
        return self._decision_scorer(self._prepare_only(lambda model: DecisionMaker.of(model, named, options)))

    @named_arguments
    def fit_calibration(
        self: _Runs, states: Iterable[State], questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> Calibration:
        """Return a calibration of questions, fitted to the answers about some states.

        It needs no labels, and supposes that the options are about equally frequent
        among the states. It is fitted to the 64 distinct states of smallest SHA-256, so
        their order has no influence; those that cannot be asked are left out.

        Args:
            states: The states.
            questions: The questions by name; grammars have no calibration.
            params: The options that it holds for; calibration and prior are not used.

        Returns:
            One calibration for each question that is no grammar.

        Raises:
            RequestError: If the questions cannot be asked, if no state can be, or if
                the rule compares with a baseline itself ("pmi", "calibrated").
            ModelError: If the model fails.
        """
        from selectrie.decide.asks import named_questions
        from selectrie.decide.params import BASELINE_RULES, DEFAULT_DECISION, DecisionParams, sample_of
        from selectrie.decide.states import text_of_state
        from selectrie.engine.decisions import DecisionMaker

        options = DEFAULT_DECISION if params is None else params
        record("params", options, DecisionParams)
        if options.rule in BASELINE_RULES:
            remedy = "both compare with a baseline; take another rule"
            raise IncompatibleOptionsError("calibration", OptionRef("rule", options.rule), remedy)
        named = named_questions(questions)
        options = replace(options, calibration=None, prior=None, top=None)
        maker = self._prepare_only(lambda model: DecisionMaker.of(model, named, options, fits=True))
        with self._decision_scorer(maker) as scorer:
            decisions = scorer.decisions(sample_of(text_of_state(one) for one in _iterator(states)))
        answered = [one for one in decisions if one.error is None]
        if not answered:
            raise OptionError("states", len(decisions), "at least one state that can be asked")
        return maker.calibration(answered)

    @named_arguments
    def decision_prompts(
        self: _Runs, state: State, questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> dict[str, tuple[DecisionPrompt, ...]]:
        """Return the prompts of questions about a state: one for each order of options.

        No model call is made. Arguments are those of `decide`.
        """
        from selectrie.decide.asks import named_questions
        from selectrie.decide.params import DEFAULT_DECISION, DecisionParams
        from selectrie.engine import decisions

        options = DEFAULT_DECISION if params is None else params
        record("params", options, DecisionParams)
        named = named_questions(questions)
        return self._prepare_only(lambda model: decisions.prompts_of(model, state, named, options))

    adecide = awaitable(decide)
    adecide_many = awaitable(decide_many)
    adecide_table = awaitable(decide_table)

    async def adecide_iter(
        self: _Runs,
        states: Iterable[State],
        questions: Mapping[str, Question],
        *,
        params: DecisionParams | None = None,
        on_error: str = "raise",
    ) -> AsyncIterator[Decision]:
        """`decide_iter`, asynchronously; cancelling it cancels the work."""
        from selectrie.decide.asks import named_questions

        one_of("on_error", on_error, ("raise", "keep"))
        windows = _windows(self, _iterator(states), named_questions(questions), params, on_error)
        while window := await in_thread(lambda: next(windows, [])):
            for decision in window:
                yield decision


def _decisions(
    engine: _Runs,
    states: list[Any],
    questions: Mapping[str, Question],
    params: DecisionParams | None,
    on_error: str = "raise",
    *,
    first: int | None = None,
    max_rows: int | None = None,
) -> list[Decision]:
    """Return the decisions on some states.

    `first` is the index of the first one in errors; None if there is only one.
    """
    from selectrie.decide.params import DEFAULT_DECISION, DecisionParams
    from selectrie.engine import decisions

    options = DEFAULT_DECISION if params is None else params
    record("params", options, DecisionParams)
    one_of("on_error", on_error, ("raise", "keep"))
    keeps = on_error == "keep"

    def prepared(model: ModelDescription) -> decisions.PreparedDecisions:
        made = decisions.prepare(model, states, questions, options, keeps=keeps, first=first)
        if max_rows is not None:
            made.check_rows(max_rows)
        return made

    return engine._run(prepared)


def _iterator(states: object) -> Iterator[State]:
    if not isinstance(states, Iterable) or isinstance(states, str | bytes | bytearray | Mapping):
        raise OptionError("states", states, "several states, such as a list")
    if hasattr(states, "columns") or hasattr(states, "column_names"):  # iterating yields names or columns
        raise OptionError("states", type(states).__name__, "several states; `decide_table` takes a data frame")
    return iter(states)


def _windows(
    engine: _Runs,
    states: Iterator[State],
    questions: Mapping[str, Question],
    params: DecisionParams | None,
    on_error: str,
) -> Iterator[list[Decision]]:
    """Yield the decisions on as many states at a time as make `WINDOW` questions.

    If reading a state fails, the states before it are decided first.
    """
    size, first = max(1, WINDOW // len(questions)), 0
    failed: Exception | None = None
    while failed is None:
        window: list[State] = []
        try:
            window.extend(islice(states, size))
        except Exception as error:  # noqa: BLE001 - whatever the caller's iterator raises
            failed = error
        if not window:
            break
        yield _decisions(engine, window, questions, params, on_error, first=first)
        first += len(window)
    if failed is not None:
        raise failed


def _flat(windows: Iterator[list[Decision]]) -> Iterator[Decision]:
    for window in windows:
        yield from window
