"""Methods of `Engine` that decide, classify and extract.

They turn arguments into one request about states and run it as the engine runs others.
"""
# mypy: disable-error-code="overload-overlap"
# Of several signatures of `decide` that fit, the first is meant.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, overload

from selectrie.core.model import ModelDescription
from selectrie.core.types import Limits, ModelIdentity, SelfCheck
from selectrie.engine.aio import WindowItems, async_iterator, awaitable, by_windows
from selectrie.engine.precision_check import assumed
from selectrie.engine.requests.session import Prepared
from selectrie.engine.runtimes import Runtime
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef
from selectrie.options import BeamSearchParams, SearchParams, at_least, one_of
from selectrie.options.arguments import named_arguments
from selectrie.options.checks import callback, is_table

if TYPE_CHECKING:  # the modules of requests are imported on first use: a `select` needs few of them
    from typing_extensions import TypeForm, Unpack

    from selectrie.decide.answers import ChoiceAnswer, Decision, PredicateAnswer
    from selectrie.decide.calibration import Calibration
    from selectrie.decide.classification import Classification, LabelAnswer, LabelQuestions
    from selectrie.decide.extraction import ExtractedType
    from selectrie.decide.params import DecisionParams
    from selectrie.decide.questions import Asking, Question
    from selectrie.decide.states import State
    from selectrie.decide.templates import DecisionPrompt
    from selectrie.decide.typed import Questions
    from selectrie.engine.decision_prompts import DecisionMaker
    from selectrie.engine.decisions import DecisionBatch, DecisionScorer
    from selectrie.options import keywords
    from selectrie.results import Extraction

    States: TypeAlias = Iterable[State]

    class _One(keywords.DecisionKeywords, total=False):
        """The keywords of `decide`."""

        params: DecisionParams | None
        max_rows: int | None

    class _Many(keywords.DecisionKeywords, total=False):
        """The keywords of `decide_iter`."""

        params: DecisionParams | None
        on_error: str

    class _AllAtOnce(_Many, total=False):
        """The keywords of `decide_many`."""

        max_rows: int | None


T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", bound=Enum)
TableT = TypeVar("TableT")

WINDOW = 64
"""Number of requests or questions that iterators like `decide_iter` run at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class DecisionRequest:
    """States, and the same questions about each.

    Attributes:
        states: The states.
        questions: The questions by name.
        params: The options.
        on_error: As in `Decider.decide_many`.
        first: Index of the first state in errors; None if there is only one.
        max_rows: As in `Decider.decide`.
    """

    states: list[Any]
    questions: Mapping[str, Question]
    params: DecisionParams
    on_error: str = "raise"
    first: int | None = None
    max_rows: int | None = None


class Decider(ABC):
    """The methods of `Engine` and `Cascade` that decide about states and classify."""

    _is_cascade = False

    @abstractmethod
    def _decide(self, request: DecisionRequest) -> list[Decision]:
        """Return the decisions on the states of a request."""

    @abstractmethod
    def _prepare(self, request: DecisionRequest) -> Any:
        """Return the prompts of `_decide`; raise the errors that it would raise."""

    @abstractmethod
    def decision_scorer(self, questions: Any, *, params: DecisionParams | None = None) -> Any:
        """Return a scorer that decides about units of states."""

    @abstractmethod
    def decision_prompts(self, state: State, questions: Any, *, params: DecisionParams | None = None) -> Any:
        """Return the prompts of questions about a state."""

    @abstractmethod
    def fit_calibration(
        self, states: Iterable[State], questions: Any, *, params: DecisionParams | None = None
    ) -> Calibration:
        """Return calibrations of questions, fitted to the answers about some states."""

    @overload
    def decide(self, state: State, questions: Asking[R], **kw: Unpack[_One]) -> R: ...
    @overload
    def decide(self, state: State, questions: Mapping[str, Any], **kw: Unpack[_One]) -> Decision: ...
    @overload
    def decide(self, state: State, questions: type[E], **kw: Unpack[_One]) -> ChoiceAnswer[E]: ...
    @overload
    def decide(self, state: State, questions: TypeForm[bool], **kw: Unpack[_One]) -> PredicateAnswer: ...
    @overload
    def decide(self, state: State, questions: type[T], **kw: Unpack[_One]) -> Decision[T]: ...
    @overload
    def decide(self, state: State, questions: Iterable[T], **kw: Unpack[_One]) -> ChoiceAnswer[T]: ...
    @overload
    def decide(self, state: State, questions: TypeForm[T], **kw: Unpack[_One]) -> ChoiceAnswer[T]: ...
    @named_arguments
    def decide(
        self,
        state: State,
        questions: Any,
        *,
        params: DecisionParams | None = None,
        max_rows: int | None = None,
        **_keywords: Unpack[keywords.DecisionKeywords],
    ) -> Any:
        """Answer a question about a state, or several.

        Each question has its own prompt, so its answer does not depend on which others
        are asked beside it; only the layout "auto" is another for one question than for
        several. All prompts are evaluated together and share what they have in common.

        Args:
            state: Text, an object or array of JSON, or messages.
            questions: A `Choice`, `Predicate` or `Score`, a list of options, an `Enum`
                class or a `Literal`; a mapping from names to these; or a class whose
                fields have types with finitely many values: a pydantic model, data
                class, `TypedDict` or `NamedTuple`.
            params: Template, layout, rule and other options; each may be given as a
                keyword too.
            max_rows: Maximum number of rows of the model that the prompts and options
                may plan, with nothing cached; None for no limit.

        Returns:
            The answer of the question's kind, or a `Decision` with one answer for each
            name or field. Its `value` is a dictionary or an object of the class.

        Raises:
            RequestError: If the request is invalid, before any model call.
                `SelectrieError.slot` names the question. `TooManyRowsError` if more
                rows are planned than may be.
            ModelError: If the model fails.
        """
        at_least("max_rows", max_rows, 1)
        named, options = _read_questions(questions, params, may_be_one=True)
        decision = self._decide(DecisionRequest([state], named, options, max_rows=max_rows))[0]
        return decision[""] if "" in named else decision

    @overload
    def decide_many(self, states: States, questions: Asking[R], **kw: Unpack[_AllAtOnce]) -> list[R]: ...
    @overload
    def decide_many(self, states: States, questions: Mapping[str, Any], **kw: Unpack[_AllAtOnce]) -> list[Decision]: ...
    @overload
    def decide_many(self, states: States, questions: type[E], **kw: Unpack[_AllAtOnce]) -> list[ChoiceAnswer[E]]: ...
    @overload
    def decide_many(
        self, states: States, questions: TypeForm[bool], **kw: Unpack[_AllAtOnce]
    ) -> list[PredicateAnswer]: ...
    @overload
    def decide_many(self, states: States, questions: type[T], **kw: Unpack[_AllAtOnce]) -> list[Decision[T]]: ...
    @overload
    def decide_many(
        self, states: States, questions: Iterable[T], **kw: Unpack[_AllAtOnce]
    ) -> list[ChoiceAnswer[T]]: ...
    @overload
    def decide_many(
        self, states: States, questions: TypeForm[T], **kw: Unpack[_AllAtOnce]
    ) -> list[ChoiceAnswer[T]]: ...
    @named_arguments
    def decide_many(
        self,
        states: Iterable[State],
        questions: Any,
        *,
        params: DecisionParams | None = None,
        on_error: str = "raise",
        max_rows: int | None = None,
        **_keywords: Unpack[keywords.DecisionKeywords],
    ) -> Any:
        """Answer the same questions about many states, all at once.

        Args:
            states: The states.
            questions: What is asked about each, as in `decide`.
            params: Template, layout, rule and other options; each may be given as a
                keyword too.
            on_error: With "raise", nothing runs if any state is invalid; the error's
                `request` is the index of the first such state. With "keep", the
                decision on a state that cannot be asked holds its error. This takes
                questions by name, since an answer has no place for an error.
            max_rows: As in `decide`, for all states together.

        Returns:
            What `decide` returns, for each state in order.
        """
        at_least("max_rows", max_rows, 1)
        several, (named, options) = list(iterate_states(states)), _read_questions_of_many(questions, params, on_error)
        request = DecisionRequest(several, named, options, on_error, 0 if len(several) > 1 else None, max_rows)
        if options.calibration == "batch":
            from selectrie.engine.decisions import with_fitted_calibration, without_batch

            # Nothing runs if a state is invalid.
            self._prepare(replace(request, params=without_batch(options)))
            fitted = with_fitted_calibration(self.fit_calibration, several, named, options)
            request = replace(request, params=fitted)
        return _unwrap_answers(named, self._decide(request))

    @overload
    def decide_iter(self, states: States, questions: Asking[R], **kw: Unpack[_Many]) -> Iterator[R]: ...
    @overload
    def decide_iter(self, states: States, questions: Mapping[str, Any], **kw: Unpack[_Many]) -> Iterator[Decision]: ...
    @overload
    def decide_iter(self, states: States, questions: type[E], **kw: Unpack[_Many]) -> Iterator[ChoiceAnswer[E]]: ...
    @overload
    def decide_iter(
        self, states: States, questions: TypeForm[bool], **kw: Unpack[_Many]
    ) -> Iterator[PredicateAnswer]: ...
    @overload
    def decide_iter(self, states: States, questions: type[T], **kw: Unpack[_Many]) -> Iterator[Decision[T]]: ...
    @overload
    def decide_iter(self, states: States, questions: Iterable[T], **kw: Unpack[_Many]) -> Iterator[ChoiceAnswer[T]]: ...
    @overload
    def decide_iter(self, states: States, questions: TypeForm[T], **kw: Unpack[_Many]) -> Iterator[ChoiceAnswer[T]]: ...
    @named_arguments
    def decide_iter(
        self,
        states: Iterable[State],
        questions: Any,
        *,
        params: DecisionParams | None = None,
        on_error: str = "raise",
        **_keywords: Unpack[keywords.DecisionKeywords],
    ) -> Any:
        """Answer the same questions about states that are read as they are needed.

        Decisions come in the order of the states. At most `WINDOW` questions are under
        way, so memory does not grow with the number of states. Arguments are those of
        `decide_many`; with "raise", the iterator ends with the error of the first
        window that has an invalid state.
        """
        return WindowItems(self._decide_windows(states, questions, params, on_error))

    @overload
    def classify(
        self,
        text: State,
        labels: Any,
        *,
        multi_label: Literal[False] = False,
        params: DecisionParams | None = None,
        **_keywords: Unpack[keywords.LabelKeywords],
    ) -> ChoiceAnswer[Any]: ...
    @overload
    def classify(
        self,
        text: State,
        labels: Any,
        *,
        multi_label: Literal[True],
        params: DecisionParams | None = None,
        **_keywords: Unpack[keywords.LabelKeywords],
    ) -> Decision: ...
    @named_arguments
    def classify(
        self,
        text: State,
        labels: Any,
        *,
        multi_label: bool = False,
        params: DecisionParams | None = None,
        **_keywords: Unpack[keywords.LabelKeywords],
    ) -> LabelAnswer:
        """Return the label of a text, or which of several labels it has.

        It is `decide` with a `Choice` of the labels, or with a `Predicate` for each.

        Args:
            text: Text, an object of JSON, messages, or `Json`. Another list is refused,
                because it may mean several texts.
            labels: The options of a `Choice`: values or `Option`s, an Enum class, or a
                mapping from texts to descriptions.
            multi_label: Whether any number of labels may be true of a text. Each label
                is then asked about in a prompt that names it.
            none: The text of one more option, such as "none of these", for a text that
                no label fits. The answer then has the value None.
            instructions: The question. With `multi_label`, a statement in which
                "{label}" stands for a label; "The text is about {label}." if it is
                left out.
            cue: A text before the answer in place of a question, as in `Choice`.
            examples: Pairs of a text and its label, or with `multi_label` of a text and
                the list of its labels.
            params: Template, layout, rule and other options; each may be given as a
                keyword too.

        Returns:
            A `ChoiceAnswer`, or with `multi_label` a `Decision` with the answer for
            each label under its text.

        Raises:
            RequestError: If the request is invalid, before any model call.
            ModelError: If the model fails.
        """
        from selectrie.decide.states import check_one_text

        check_one_text(text)
        asked = _label_questions(labels, params, _keywords, multi_label=multi_label)
        return asked.answer(self.decide(text, asked.questions, params=params))

    @named_arguments
    def classify_many(
        self,
        texts: Iterable[State],
        labels: Any,
        *,
        multi_label: bool = False,
        params: DecisionParams | None = None,
        on_error: str = "raise",
        **_keywords: Unpack[keywords.LabelKeywords],
    ) -> Classification:
        """Return the labels of many texts, all asked about at once.

        It is `decide_many` with the questions of `classify`. The option
        `calibration="batch"` is fitted to these texts.

        Args:
            texts: The texts.
            labels: The labels, and the following, as in `classify`.
            multi_label: Whether any number of labels may be true of a text.
            params: Template, layout, rule and other options; each may be given as a
                keyword too.
            on_error: As in `decide_many`. With "keep", a text that cannot be asked has
                its error in `Classification.errors`.
        """
        from selectrie.decide.classification import Classification

        asked = _label_questions(labels, params, _keywords, multi_label=multi_label)
        decisions = self.decide_many(iterate_states(texts, "texts"), asked.questions, params=params, on_error=on_error)
        index = getattr(texts, "index", None) if hasattr(texts, "iloc") else None  # of a pandas Series
        return Classification(asked, tuple(decisions), index)

    @named_arguments
    def classify_iter(
        self,
        texts: Iterable[State],
        labels: Any,
        *,
        multi_label: bool = False,
        params: DecisionParams | None = None,
        **_keywords: Unpack[keywords.LabelKeywords],
    ) -> Iterator[LabelAnswer]:
        """Return an iterator over the answers to `classify` about texts.

        Texts are read as they are needed, as the states of `decide_iter`. A text that
        cannot be asked ends the iterator with its error.
        """
        asked = _label_questions(labels, params, _keywords, multi_label=multi_label)
        windows = self._decide_windows(iterate_states(texts, "texts"), asked.questions, params, "raise")
        return WindowItems([*map(asked.answer, window)] for window in windows)

    @named_arguments
    def decide_table(
        self,
        table: TableT,
        questions: Mapping[str, Any] | type,
        *,
        state: str,
        params: DecisionParams | None = None,
        probabilities: str = "none",
        prefix: str = "",
        unit_rows: int = 64,
        on_progress: Callable[[int, int], None] | None = None,
        **_keywords: Unpack[keywords.DecisionKeywords],
    ) -> TableT:
        """Answer questions about every row of a data frame (extra `tables`).

        A question `q` adds the columns `q`, `q_probability`, `q_confidence`,
        `q_label_mass`, `q_margin` and `q_abstained`. Columns of labels are categorical.
        A cascade adds `q_model`, the model that answered. The column `error` says why a
        row has no answers: its state is missing, blank or too long.

        The numbers of a row depend on the rows that are decided together with it, not
        on earlier ones or on other work.

        Args:
            table: A data frame of pandas, polars or pyarrow.
            questions: The questions by name, or a class with fields, as in `decide`.
            state: The name of a column, or a pattern in which `{column}` stands for a
                value and `{{` and `}}` for braces.
            params: Template, layout, rule and other options; each may be given as a
                keyword too.
            probabilities: "json" adds `q_probabilities`, a JSON object from options to
                probabilities, and "wide" a column `q_probability_OPTION` for each
                option.
            prefix: Text before the name of every added column.
            unit_rows: Number of rows that are decided together.
            on_progress: Called after each unit with (rows decided, rows in all).

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
        from selectrie.decide.columns import Frame, columns_of
        from selectrie.decide.states import row_states
        from selectrie.engine.decisions import with_fitted_calibration, without_batch

        named, options = _read_questions(questions, params)
        at_least("unit_rows", unit_rows, 1, optional=False)
        callback("on_progress", on_progress, "two numbers")
        frame = Frame(table)
        states = row_states(state, frame.columns)
        columns = columns_of(named, probabilities=probabilities, prefix=prefix, by_model=self._is_cascade)
        columns.check(frame.columns)
        all_states = (one for unit in frame.units(states.columns, unit_rows) for one in states.of_each(unit))
        # Raises if no row can be asked, before a calibration is fitted.
        self.decision_prompts("0", named, params=without_batch(options))
        options = with_fitted_calibration(self.fit_calibration, all_states, named, options)
        rows = []
        with self.decision_scorer(named, params=options) as scorer:
            for unit in frame.units(states.columns, unit_rows):
                rows += columns.rows(scorer.decisions, states.of_each(unit))
                if on_progress is not None:
                    on_progress(len(rows), len(frame))
        return cast("TableT", frame.with_columns(columns.columns, rows))

    def _decide_windows(
        self, states: Iterable[State], questions: Any, params: DecisionParams | None, on_error: str
    ) -> Iterator[list[Any]]:
        """Yield answers about as many states at a time as make `WINDOW` questions."""
        several, (named, options) = iterate_states(states), _read_questions_of_many(questions, params, on_error)

        def run(window: list[State], first: int) -> list[Any]:
            return _unwrap_answers(named, self._decide(DecisionRequest(window, named, options, on_error, first)))

        return by_windows(several, max(1, WINDOW // len(named)), run)

    aclassify = awaitable(classify)
    aclassify_iter = async_iterator(classify_iter)
    aclassify_many = awaitable(classify_many)
    adecide = awaitable(decide)
    adecide_iter = async_iterator(decide_iter)
    adecide_many = awaitable(decide_many)
    adecide_table = awaitable(decide_table)


class DecisionMethods(Decider):
    """The methods of `Engine` that decide about states, classify and extract."""

    _runtime: Runtime

    if TYPE_CHECKING:  # what `Engine` adds

        @property
        def identity(self) -> ModelIdentity: ...
        @property
        def limits(self) -> Limits: ...
        @property
        def self_check(self) -> SelfCheck | None: ...
        def _run(self, prepare: Callable[[ModelDescription], Prepared[R]]) -> R: ...
        def _prepare_only(self, prepare: Callable[[ModelDescription], R]) -> R: ...

    def _decide(self, request: DecisionRequest) -> list[Decision]:
        def prepare(_model: ModelDescription) -> DecisionBatch:
            batch = self._prepare(request)
            if request.max_rows is not None:
                batch.check_rows(request.max_rows)
            return batch

        return self._run(prepare)

    def _prepare(self, request: DecisionRequest) -> DecisionBatch:
        from selectrie.engine.decisions import DecisionBatch

        one_of("on_error", request.on_error, ("raise", "keep"))
        maker = self._decision_maker(request.questions, request.params)
        keeps = request.on_error == "keep"
        return DecisionBatch.of(maker, request.states, keep_errors=keeps, first_index=request.first)

    def _decision_maker(
        self, questions: Mapping[str, Question], params: DecisionParams, *, fits_calibration: bool = False
    ) -> DecisionMaker:
        """Return the maker of the prompts of questions, checked together."""
        from selectrie.engine.decision_prompts import DecisionMaker

        return self._prepare_only(
            lambda model: DecisionMaker.of(
                model,
                questions,
                params,
                draw=None if fits_calibration else self._runtime.prepare_generate,
                fits_calibration=fits_calibration,
            )
        )

    def _decision_scorer(self, maker: DecisionMaker) -> DecisionScorer:
        check = self.self_check
        if check is not None and check.n_rows:  # a process that goes on with a run may not know what was measured
            check = assumed(self.identity, self.limits)
        return self._runtime.decision_scorer(check, maker, keep=self)

    @named_arguments
    def decision_scorer(
        self,
        questions: Mapping[str, Any] | type,
        *,
        params: DecisionParams | None = None,
        **_keywords: Unpack[keywords.DecisionKeywords],
    ) -> DecisionScorer:
        """Return a scorer that decides about units of states, as a table has them.

        A unit is decided in a memory of its own, so its bits do not depend on earlier
        units or on other work of the engine. The memory is as large as that of the
        model. It is a context manager that frees this memory.

        Args:
            questions: The questions by name, or a class with fields, as in `decide`.
            params: Template, layout, rule and other options; each may be given as a
                keyword too.

        Raises:
            RequestError: For questions that cannot be asked with these options.
        """
        return self._decision_scorer(self._decision_maker(*_read_questions(questions, params)))

    @named_arguments
    def fit_calibration(
        self,
        states: Iterable[State],
        questions: Any,
        *,
        params: DecisionParams | None = None,
        **_keywords: Unpack[keywords.DecisionKeywords],
    ) -> Calibration:
        """Return a calibration of questions, fitted to the answers about some states.

        It needs no labels, and supposes that the options are about equally frequent
        among the states. It is fitted to the 64 distinct states of smallest SHA-256, so
        their order has no influence; those that cannot be asked are left out.

        Args:
            states: The states.
            questions: The questions, as in `decide`; grammars have no calibration.
            params: The options that it holds for; calibration and prior are not used.

        Returns:
            One calibration for each question that is no grammar.

        Raises:
            RequestError: If the questions cannot be asked, if no state can be, or if
                the rule compares with a baseline itself ("pmi", "calibrated").
            ModelError: If the model fails.
        """
        from selectrie.decide.calibration import refuse_gold
        from selectrie.engine.decisions import fit_to_states, params_to_fit

        refuse_gold(questions, states)
        named, options = _read_questions(questions, params, may_be_one=True)
        maker = self._decision_maker(named, params_to_fit(options), fits_calibration=True)
        with self._decision_scorer(maker) as scorer:
            return fit_to_states(maker, scorer.decisions, iterate_states(states))

    @named_arguments
    def decision_prompts(
        self,
        state: State,
        questions: Any,
        *,
        params: DecisionParams | None = None,
        **_keywords: Unpack[keywords.DecisionKeywords],
    ) -> dict[str, tuple[DecisionPrompt, ...]]:
        """Return the prompts of questions about a state: one for each order of options.

        No model call is made. Arguments are those of `decide`; a question alone has the
        name "".
        """
        from selectrie.engine.decision_prompts import write_prompts

        named, options = _read_questions(questions, params, may_be_one=True)
        return write_prompts(self._decision_maker(named, options), state)

    @named_arguments
    def extract(
        self,
        state: State,
        kind: type[T] | Mapping[str, Any] | ExtractedType,
        *,
        marginals: bool = True,
        params: DecisionParams | None = None,
        search: SearchParams | None = None,
        beam: BeamSearchParams | None = None,
        **_keywords: Unpack[keywords.ExtractKeywords],
    ) -> Extraction[T]:
        """Return the most probable value of a type for a state.

        The model reads the state and the fields of the type. Each value is scored as a
        whole, by its JSON text. A type of at most 20 000 values is listed, and its best
        value is found for certain. Another type, such as one with a field for a name,
        is searched with a beam.

        Args:
            state: Text, an object or array of JSON, or messages.
            kind: A data class, pydantic model, `TypedDict` or other type
                (`Grammar.from_type`), or a JSON Schema as a mapping, whose values are
                those of JSON.
            instructions: What to extract, before the fields; "" for a default.
            marginals: Whether to go on after the best value, until the values found
                hold half the probability of all, for that of each field.
            params: Template, layout and time of the prompts.
            search: How listed values are searched. With `SearchParams(stop="all")`
                every probability is exact.
            beam: How a type that is not listed is searched. With `marginals`, at most
                64 alternatives of its fields are then searched for one by one, with the
                same options but width 1. All searches share `budget_nodes`.
            rescore: Whether near ties of listed values are scored again, as `select`
                does, so that what else is evaluated cannot change the value. On
                quantised weights this may take ten times as long.

        Raises:
            RequestError: If the request is invalid, before any model call, or if no
                value is found (`NothingFoundError`).
            ModelError: If the model fails.
        """
        options = {**_keywords, "marginals": marginals, "params": params, "search": search, "beam": beam}
        return cast("Extraction[T]", _extractions(self, [state], kind, options)[0])

    @named_arguments
    def extract_many(
        self,
        states: Iterable[State],
        kind: type[T] | Mapping[str, Any] | ExtractedType,
        *,
        marginals: bool = True,
        params: DecisionParams | None = None,
        search: SearchParams | None = None,
        beam: BeamSearchParams | None = None,
        on_error: str = "raise",
        **_keywords: Unpack[keywords.ExtractKeywords],
    ) -> list[Extraction[T]]:
        """Return the most probable value of a type for each of many states.

        All states are asked at once. Arguments are those of `extract`, and `on_error`
        is that of `decide_many`.
        """
        options = {**_keywords, "marginals": marginals, "params": params, "search": search, "beam": beam}
        several = list(iterate_states(states))
        first = 0 if len(several) > 1 else None
        return cast("list[Extraction[T]]", _extractions(self, several, kind, options, on_error, first=first))

    aextract = awaitable(extract)
    aextract_many = awaitable(extract_many)


def _label_questions(
    labels: object, params: DecisionParams | None, wording: Mapping[str, Any], *, multi_label: bool
) -> LabelQuestions:
    """Return the questions of `classify`; `wording` are its `LabelKeywords`."""
    from selectrie.decide.classification import label_questions

    return label_questions(labels, multi_label=multi_label, params=params, **wording)


def _read_questions(
    questions: object, params: DecisionParams | None, *, may_be_one: bool = False
) -> tuple[Questions, DecisionParams]:
    """Return the questions by name, and the options (`questions_and_params`)."""
    from selectrie.decide.params import questions_and_params

    return questions_and_params(questions, params, may_be_one=may_be_one)


def _read_questions_of_many(
    questions: object, params: DecisionParams | None, on_error: str
) -> tuple[Questions, DecisionParams]:
    """Return the questions by name and the options of a decision about many states."""
    one_of("on_error", on_error, ("raise", "keep"))
    named, options = _read_questions(questions, params, may_be_one=True)
    if "" in named and on_error == "keep":
        remedy = "give it a name, {'label': …}: a decision holds the error of its state, an answer does not"
        raise IncompatibleOptionsError(OptionRef("on_error", "keep"), "one question alone", remedy)
    return named, options


def _unwrap_answers(questions: Mapping[str, Question], decisions: list[Decision]) -> list[Any]:
    """Return the decisions, or the answers of a question that was asked alone."""
    return [one[""] for one in decisions] if "" in questions else list[Any](decisions)


def _extractions(
    engine: DecisionMethods,
    states: list[Any],
    kind: object,
    options: Mapping[str, Any],
    on_error: str = "raise",
    *,
    first: int | None = None,
) -> list[Extraction[Any]]:
    """Return the extractions from some states; `first` is as in `DecisionRequest`."""
    from selectrie.decide.extraction import ExtractionOptions, extracted_type
    from selectrie.engine.extraction import Extractor

    one_of("on_error", on_error, ("raise", "keep"))
    read, asked, keeps = ExtractionOptions.of(**options), extracted_type(kind), on_error == "keep"
    return engine._run(lambda model: Extractor.of(model, asked, read).extractions(states, keeps=keeps, first=first))


def iterate_states(states: object, name: str = "states") -> Iterator[State]:
    """Return an iterator over states; raise `OptionError` for a single one."""
    if not isinstance(states, Iterable) or isinstance(states, str | bytes | bytearray | Mapping):
        raise OptionError(name, states, f"several {name}, such as a list")
    if is_table(states):
        allowed = f"several {name}, such as one column of the data frame; `decide_table` takes a whole one"
        raise OptionError(name, type(states).__name__, allowed)
    return iter(states)
