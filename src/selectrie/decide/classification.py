"""Turns labels into the questions of `Engine.classify`, and decisions into labels."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from selectrie.core.types import FloatArray
from selectrie.decide.answers import ChoiceAnswer, Decision, DecisionUsage, is_answer
from selectrie.decide.calibration import Calibration
from selectrie.decide.columns import columns_of, pandas_type
from selectrie.decide.params import DEFAULT_DECISION, DecisionParams
from selectrie.decide.questions import (
    INT64,
    Choice,
    Examples,
    Option,
    Predicate,
    Question,
    described_options,
    example_pairs,
    option_named,
)
from selectrie.errors import IncompatibleOptionsError, MissingExtraError, OptionError, OptionRef, SelectrieError
from selectrie.options.checks import flag, record
from selectrie.options.checks import text as require_text
from selectrie.results.plain import JsonRecord, jsonable

if TYPE_CHECKING:
    import pandas as pd

LABEL = "label"
"""Name of the question of which label fits."""
STATEMENT = "The text is about {label}."
"""The statement that is asked of each label with `multi_label`."""
_PLACE = "{label}"
_PLACES = re.compile(r"\{(?:label|labels|choices|text|state|input)\}")
"""What looks like a place for the label or the text."""
_N_SHOWN = 5
_N_NAMED = 20
"""Maximum number of labels that an error names."""

LabelAnswer: TypeAlias = ChoiceAnswer[Any] | Decision
"""The label of a text, or with `multi_label` an answer for each label."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelQuestions:
    """The questions that decide which labels a text has.

    Attributes:
        questions: One `Choice` with the name "label", or with `is_multi` a `Predicate`
            for each label, by its text.
        labels: The value of each label in the caller's order; None is last if no label
            needs to fit.
        is_multi: Whether a text may have any number of labels.
    """

    questions: Mapping[str, Question]
    labels: tuple[Any, ...]
    is_multi: bool

    def answer(self, decision: Decision) -> LabelAnswer:
        """Return the answer of a decision; raise its error if it has one."""
        if self.is_multi:
            if decision.error is not None:
                raise decision.error
            return decision
        return decision.choices[LABEL]


def label_questions(
    labels: Any,
    *,
    multi_label: bool = False,
    none: str | None = None,
    instructions: str | None = None,
    cue: str | None = None,
    examples: Examples = (),
    params: DecisionParams | None = None,
) -> LabelQuestions:
    """Return the questions that decide which labels a text has.

    The arguments are those of `Engine.classify`. Raises `OptionError` for labels that
    are no options of a `Choice`, and for arguments that exclude each other.
    """
    flag("multi_label", multi_label)
    require_text("none", none, optional=True)
    require_text("instructions", instructions, optional=True)
    for name, value in (("instructions", instructions), ("cue", cue)):
        check_places(name, value, multi_label=multi_label)
    if isinstance(examples, Iterator):
        examples = tuple(examples)  # each of several labels reads them
    mapped = isinstance(labels, Mapping)
    options = described_options(labels, "labels") if mapped else Choice("", labels).options
    if none is not None:
        if multi_label:
            remedy = "a text that no label fits has none that is true"
            raise IncompatibleOptionsError("none", OptionRef("multi_label", value=True), remedy)
        if not none.strip():
            raise OptionError("none", none, "a text such as 'none of these'")
        options = (*options, Option(None, none))
    values = tuple(one.value for one in options)
    if not multi_label:
        question = Choice(instructions or "", options, cue=cue, examples=examples)
        return LabelQuestions({LABEL: question}, values, is_multi=False)
    if cue is not None:
        raise IncompatibleOptionsError("cue", OptionRef("multi_label", value=True), "write a statement as instructions")
    _check_prior(params)
    statement = STATEMENT if instructions is None else instructions
    if _PLACE not in statement:
        raise OptionError("instructions", statement, f"a statement about each {_PLACE}, such as {STATEMENT!r}")
    Choice("", options)  # labels without text, or twice
    return LabelQuestions(_predicates(options, statement, examples), values, is_multi=True)


def check_places(name: str, value: object, *, multi_label: bool) -> None:
    """Raise `OptionError` if a text of the question has a place that nothing fills."""
    for found in _PLACES.findall(value) if isinstance(value, str) else ():
        if found == _PLACE and multi_label:
            continue
        allowed = f"words without {found}, since the prompt shows text and labels anyway"
        if found == _PLACE:
            allowed += f"; with multi_label=True, {_PLACE} stands for each label"
        raise OptionError(name, value, allowed)


def _predicates(options: Sequence[Option[Any]], statement: str, examples: Examples) -> dict[str, Question]:
    """Return for the text of each label the question of whether it fits."""
    shown = example_pairs(examples)
    fitting = [_fitting_labels(labels, options, f"examples[{index}][1]") for index, (_, labels) in enumerate(shown)]
    return {
        option.scored: Predicate(
            statement.replace(_PLACE, option.scored),
            yes_when=option.description,
            examples=[(state, option.scored in labels) for (state, _), labels in zip(shown, fitting, strict=True)],
        )
        for option in options
    }


def _fitting_labels(labels: object, options: Sequence[Option[Any]], name: str) -> set[str]:
    """Return the texts of the labels of an example."""
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise OptionError(name, labels, "a list of the labels that are true, which may be empty")
    more = ", …" if len(options) > _N_NAMED else ""
    allowed = f"labels among {', '.join(repr(option.value) for option in options[:_N_NAMED])}{more}"
    return {option_named(label, options, name, allowed).scored for label in labels}


def _check_prior(params: DecisionParams | None) -> None:
    """Raise `OptionError` for a calibration of predicates that would do nothing."""
    options = DEFAULT_DECISION if params is None else params
    record("params", options, DecisionParams)
    fitted = options.calibration
    is_labelled = isinstance(fitted, Calibration) and fitted.labels_kind("predicate")
    if fitted is not None and options.prior is None and not is_labelled:
        shares = "how often a label is true, as prior={True: 0.2, False: 0.8}; a calibration of several labels needs it"
        raise OptionError("prior", None, shares)


def _check_answer(value: object) -> None:
    """Raise `OptionError` for a label where an answer is looked for."""
    if not is_answer(value) and not isinstance(value, Decision):
        raise OptionError("answer", value, "one of the answers; the labels are `.values`")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Classification(JsonRecord, Sequence[LabelAnswer]):
    """The labels of several texts, as `Engine.classify_many` returns them.

    `len`, iteration and `result[i]` give the answers. `numpy.asarray(result)` gives the
    labels: an array of n values, or with `multi_label` of n rows of truth values. There
    and in iteration, a text without an answer has None; `result[i]` raises its error.
    `==` with an array
    or a pandas Series compares the labels one by one; labels in a list, and a single
    one, are compared with `values`.

    Attributes:
        asked: The questions.
        decisions: The decision on each text.
        pandas_index: The index of the pandas Series that had the texts, or None.
    """

    asked: LabelQuestions
    decisions: tuple[Decision, ...]
    pandas_index: Any = field(default=None)
    __pandas_priority__ = 5000
    """Leaves `series == result` to this class, as it is more than that of a Series."""

    def __len__(self) -> int:
        return len(self.decisions)

    @overload
    def __getitem__(self, at: int) -> LabelAnswer: ...
    @overload
    def __getitem__(self, at: slice) -> Classification: ...
    def __getitem__(self, at: int | slice) -> LabelAnswer | Classification:
        if isinstance(at, slice):
            index = None if self.pandas_index is None else self.pandas_index[at]
            return Classification(self.asked, self.decisions[at], index)
        return self.asked.answer(self.decisions[at])

    def __iter__(self) -> Iterator[Any]:
        """Yield the answer to each text; None for a text without one."""
        return (self.asked.answer(one) if one.error is None else None for one in self.decisions)

    def __contains__(self, answer: object) -> bool:
        _check_answer(answer)
        return any(one == answer for one in self)

    def index(self, answer: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the index of the first equal answer; raise `ValueError` for none.

        Raises `OptionError` for a label: `values.index(label)` finds it.
        """
        _check_answer(answer)
        return [*self].index(answer, start, sys.maxsize if stop is None else stop)

    def count(self, answer: Any) -> int:
        """Return the number of equal answers; raise `OptionError` for a label."""
        _check_answer(answer)
        return sum(one == answer for one in self)

    def __eq__(self, other: object) -> Any:
        if hasattr(other, "__array__") and not isinstance(other, Classification):
            return np.asarray(self) == other
        if isinstance(other, str | list | tuple):
            raise OptionError("other", other, "an array or a Series; `.values` is the list of labels")
        return NotImplemented

    def __ne__(self, other: object) -> Any:
        is_equal = self == other
        return ~is_equal if hasattr(is_equal, "__array__") else not is_equal

    __hash__ = object.__hash__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:  # noqa: FBT001
        """Return the labels (`numpy.asarray`)."""
        if copy is False:
            raise ValueError("the labels are not kept as an array, so they are copied")
        return np.asarray(self._array(), dtype=dtype)

    def __repr__(self) -> str:
        names = Counter(one for decision in self.decisions for one in self._names(decision))
        shown = ", ".join(f"{name} {n}" for name, n in names.most_common(_N_SHOWN))
        more = ", …" if len(names) > _N_SHOWN else ""
        return f"Classification({len(self)} texts: {shown}{more})" if names else f"Classification({len(self)} texts)"

    @property
    def classes(self) -> tuple[Any, ...]:
        """Return the values of the labels, in the order of `probabilities`' columns."""
        return self.asked.labels

    @property
    def values(self) -> list[Any]:
        """Return the label of each text, with `multi_label` a list of labels.

        A text that could not be asked has None, and its error is in `errors`. A text
        whose answer is that none of the labels fits has None too, or an empty list.
        """
        return [None if one.error is not None else self._value(one) for one in self.decisions]

    @property
    def probabilities(self) -> FloatArray:
        """Return the probability of each label as a float64 array [n texts, n labels].

        Rows sum to 1, but with `multi_label` each label has its own probability. NaN
        stands for a text without an answer, and for what `top` left open.
        """
        return np.array([self._row(one) for one in self.decisions], np.float64).reshape(len(self), len(self.classes))

    @property
    def errors(self) -> tuple[SelectrieError | None, ...]:
        """Return for each text why it has no answer, or None."""
        return tuple(one.error for one in self.decisions)

    @property
    def usage(self) -> DecisionUsage:
        """Return the total work done."""
        usages = [one.usage for one in self.decisions]
        return sum(usages[1:], usages[0]) if usages else Decision({}).usage

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary that JSON can represent, with kind "classification"."""
        return {
            "kind": "classification",
            "classes": [jsonable(one) for one in self.classes],
            "decisions": [one.to_dict() for one in self.decisions],
        }

    def to_pandas(self, *, probabilities: str = "none") -> pd.DataFrame:
        """Return a data frame with a row for each text (extra `pandas`).

        The columns are `label`, `probability`, `confidence`, `label_mass`, `margin`,
        `abstained` and `error`, as in tables. With `multi_label`, each label has its
        own. The index is that of the texts if they were a pandas Series.

        Args:
            probabilities: "json" adds a column with the probabilities of all labels as
                a JSON object, "wide" a column for each label.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise MissingExtraError("a table of labels", "pandas") from error
        columns = columns_of(self.asked.questions, probabilities=probabilities, bare=not self.asked.is_multi)
        cells = zip(*map(columns.row, self.decisions), strict=True) if self.decisions else ([] for _ in columns.columns)
        series = {
            column.name: pd.Series(list(own), dtype=pandas_type(pd, column), index=self.pandas_index)
            for column, own in zip(columns.columns, cells, strict=True)
        }
        return pd.DataFrame(series)

    def _array(self) -> np.ndarray[Any, Any]:
        """Return the labels, of a plain type where all values have one."""
        has_errors = any(one.error is not None for one in self.decisions)
        if self.asked.is_multi:
            truths = np.full((len(self), len(self.classes)), None, object if has_errors else bool)
            for at, one in enumerate(self.decisions):
                if one.error is None:
                    truths[at] = [answer.value for answer in one.predicates.values()]
            return truths
        values, types = self.values, {type(one) for one in self.classes}
        is_plain = types in ({str}, {bool}) or (types == {int} and all(one in INT64 for one in self.classes))
        if is_plain and not has_errors:
            return np.array(values, types.pop())
        found = np.empty(len(self), object)
        found[:] = values
        return found

    def _value(self, decision: Decision) -> Any:
        """Return the label of a text, or with `multi_label` a list of its labels."""
        if not self.asked.is_multi:
            return decision.choices[LABEL].value
        answers = decision.predicates.values()
        return [label for label, answer in zip(self.classes, answers, strict=True) if answer.value]

    def _names(self, decision: Decision) -> list[str]:
        """Return the texts of a text's labels."""
        if decision.error is not None:
            return ["error"]
        if self.asked.is_multi:
            return [repr(name) for name, answer in decision.predicates.items() if answer.value]
        return [repr(decision.choices[LABEL].text)]

    def _row(self, decision: Decision) -> list[float]:
        """Return the probability of each label of a text."""
        if decision.error is not None:
            return [np.nan] * len(self.classes)
        if self.asked.is_multi:
            return [answer.probability for answer in decision.predicates.values()]
        probabilities = decision.choices[LABEL].probabilities
        return [probabilities.get(label, np.nan) for label in self.classes]
