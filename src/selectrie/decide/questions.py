"""Defines the kinds of questions about a state: `Choice`, `Predicate` and `Score`.

A question is a frozen record, whose constructor checks the arguments. The model scores
the texts of its options; the caller gets their values. All differences between kinds
are here: wording and layout of the prompt, winner, answer, and columns of a table.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast, final, overload

from selectrie.core.vocabulary import to_bytes
from selectrie.decide.answers import (
    ChoiceAnswer,
    Column,
    Evidence,
    KindColumns,
    PredicateAnswer,
    ScoreAnswer,
    expected,
    expected_bounds,
)
from selectrie.decide.states import State, text_of_state
from selectrie.errors import (
    ChoiceError,
    IncompatibleOptionsError,
    MessageText,
    OptionError,
    OptionRef,
    PythonOnly,
    of_value,
    words,
)
from selectrie.grammar import Grammar
from selectrie.options.arguments import named_arguments, named_record
from selectrie.options.checks import at_least, listed, text_of
from selectrie.options.checks import text as require_text
from selectrie.results.advice import warn

T = TypeVar("T")
A = TypeVar("A", bound=Hashable)
R_co = TypeVar("R_co", covariant=True)

Examples: TypeAlias = Sequence[tuple[State, Any]]
"""Pairs of a state and its answer, given as the value or the text of an option."""

_PYTHON_VALUES = PythonOnly(", an Enum member, or an Option with a text")
_ALLOWED_VALUES = MessageText("a text, a truth value or a whole number", _PYTHON_VALUES)
INT64 = range(-(1 << 63), 1 << 63)
"""The whole numbers that columns of tables and arrays hold."""


def _resolve_auto_layout(n_questions: int) -> str:
    """Return the layout that "auto" means for a choice or score."""
    return "questions first" if n_questions == 1 else "options last"


def _find_most_probable(probabilities: Mapping[Any, float], _threshold: float) -> Any:
    """Return the value of the highest probability, the first of several."""
    return max(probabilities, key=probabilities.__getitem__)


# Generic records have no slots: `Option[int](…)` sets an attribute, for which a frozen
# record with slots raises TypeError instead of the AttributeError that typing expects.
@final
@named_record
@dataclass(frozen=True)
class Option(Generic[T]):
    """A possible answer to a question: a value, and the text that the model scores.

    Attributes:
        value: The value that answers return unchanged. It must be hashable.
        text: The text that is scored. None means the text of the value: a str itself,
            "true" or "false" for a bool, the digits of an int.
        description: The meaning of the option. The prompt shows it; it is not scored.
        texts: Several texts in place of `text`, whose probabilities add up. The prompt
            lists the first. They become a tuple without duplicates.
    """

    value: T
    text: str | None = None
    description: str | None = None
    texts: Sequence[str] | None = None

    def __post_init__(self) -> None:
        require_text("text", self.text, optional=True)
        require_text("description", self.description, optional=True)
        if self.texts is not None:
            object.__setattr__(self, "texts", _check_texts(self.texts, self.text))
        elif self.text is None and text_of(self.value) is None:
            raise OptionError("value", self.value, _ALLOWED_VALUES)
        try:
            hash(self.value)
        except TypeError:
            raise OptionError("value", self.value, "a hashable value, since answers are looked up by it") from None

    @property
    def scored(self) -> str:
        """Return the text that is scored, the first if there are several."""
        return self.spellings[0]

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return all texts that are scored, at least one."""
        if self.texts is not None:
            return tuple(self.texts)
        return ((text_of(self.value) or "") if self.text is None else self.text,)


def _check_texts(texts: object, text: str | None) -> tuple[str, ...]:
    """Return the texts of an option as a tuple without duplicates.

    Raises unless `texts` is a non-empty sequence of texts and `text` is None.
    """
    if text is not None:
        raise IncompatibleOptionsError("text", OptionRef("texts"), "the first of the texts is the one that is listed")
    if not isinstance(texts, Sequence) or isinstance(texts, str | bytes) or not texts:
        raise OptionError("texts", texts, "a sequence of at least one text")
    for index, one in enumerate(texts):
        require_text(f"texts[{index}]", one)
    return tuple(dict.fromkeys(texts))


@final
@dataclass(frozen=True, init=False)
class Choice(Generic[T]):
    """A question that is answered by one of several options.

    Attributes:
        instructions: The question; it may be empty.
        options: The options, in the caller's order; () with a grammar.
        grammar: The grammar whose texts are the options, or None.
        cue: A text before the answer that replaces a question, such as "Sentiment:", or
            None. It cannot be combined with instructions.
        examples: Pairs of the text of a state and the text of its answer.

    The argument `options` is an iterable of values or of `Option`s, such as a list or a
    column of a data frame, an Enum class, a `Literal` or `bool`, a mapping from texts
    to their descriptions, or a `Grammar`. It may be given alone. Values are str, bool,
    int or Enum members. A set is refused, because it has no order. One option is legal.
    The argument `examples` is a sequence of pairs of a state and its answer, the value
    or the text of an option. The prompt shows them before the state, but for one whose
    text is the same up to white space at its ends.

    Raises `ChoiceError` for no options, an option without text, equal texts and equal
    values, and `OptionError` for anything that is not an option. If some option has
    several texts, a text that two options share is dropped from both, with a warning.
    """

    kind: ClassVar = "choice"
    is_number: ClassVar = False
    lists_probabilities: ClassVar = True
    auto_layout = staticmethod(_resolve_auto_layout)
    winner = staticmethod(_find_most_probable)

    instructions: str
    options: tuple[Option[T], ...]
    grammar: Grammar | None
    cue: str | None
    examples: tuple[tuple[str, str], ...]

    @overload
    def __init__(self: Choice[str], instructions: str = "", options: Grammar = ...) -> None: ...
    @overload
    def __init__(self, instructions: Iterable[T]) -> None: ...
    @overload
    def __init__(
        self, instructions: str = "", options: type[T] = ..., *, cue: str | None = None, examples: Examples = ()
    ) -> None: ...
    @overload
    def __init__(
        self,
        instructions: str = "",
        options: Iterable[Option[T]] = ...,
        *,
        cue: str | None = None,
        examples: Examples = (),
    ) -> None: ...
    @overload
    def __init__(
        self: Choice[str],
        instructions: str = "",
        options: Mapping[str, str | None] = ...,
        *,
        cue: str | None = None,
        examples: Examples = (),
    ) -> None: ...
    @overload
    def __init__(
        self, instructions: str = "", options: Iterable[T] = ..., *, cue: str | None = None, examples: Examples = ()
    ) -> None: ...
    @named_arguments
    def __init__(
        self, instructions: Any = "", options: Any = (), *, cue: str | None = None, examples: Examples = ()
    ) -> None:
        if not isinstance(instructions, str) and isinstance(options, tuple) and not options:
            instructions, options = "", instructions  # options without a question
        require_text("instructions", instructions)
        is_grammar = isinstance(options, Grammar)
        if is_grammar and (cue is not None or examples):
            name = "examples" if examples else "cue"
            raise IncompatibleOptionsError(name, "a grammar", "they go with options that are listed")
        object.__setattr__(self, "instructions", instructions)
        object.__setattr__(self, "options", () if is_grammar else check_distinct(options_of(options)))
        object.__setattr__(self, "grammar", options if is_grammar else None)
        object.__setattr__(self, "cue", _check_cue(cue, instructions))
        object.__setattr__(self, "examples", _read_examples(examples, self.options))

    @property
    def wording(self) -> str:
        """Return the question in the words of the prompt."""
        return self.instructions or "What fits the text?"

    def answer(self, evidence: Evidence) -> ChoiceAnswer[T]:
        """Return the answer, given the probabilities of the options."""
        evaluated = {value: p for value, p in evidence.probabilities.items() if value not in evidence.probability_high}
        return ChoiceAnswer(
            value=evidence.winner,
            text=evidence.texts[evidence.winner],
            probability=evidence.probability,
            probabilities=evaluated,
            probability_high=evidence.probability_high,
            texts=evidence.texts,
            **evidence.trust,
        )

    def columns(self) -> KindColumns:
        """Return the column of the value, and a function to fill it (`KindColumns`).

        The column is of kind "text" for a grammar; "bool" or "int" if all values are;
        "label" if all values are texts. For mixed values it has the options' texts.
        """
        if self.grammar is not None:
            return (Column("label", "text"),), lambda answer: [answer.value, answer.probability]
        values = [_unwrap_enum(one.value) for one in self.options]
        kind = "label" if all(type(value) is str for value in values) else None
        if all(type(value) is bool for value in values):
            kind = "bool"
        elif all(type(value) is int and value in INT64 for value in values):
            kind = "int"
        if kind is None:
            labels = tuple(one.scored for one in self.options)
            return (Column("label", "label", labels),), lambda answer: [answer.text, answer.probability]
        column = Column("label", kind, tuple(map(str, values)) if kind == "label" else ())
        return (column,), lambda answer: [_unwrap_enum(answer.value), answer.probability]


def _unwrap_enum(value: Any) -> Any:
    """Return the value of an Enum member; return any other value unchanged."""
    return value.value if isinstance(value, Enum) else value


@final
@dataclass(frozen=True, slots=True)
class Predicate:
    """A statement that is either true or false of the state.

    At least one of `statement`, `yes_when` and `no_when` is required.

    Attributes:
        statement: The statement, such as "The customer is angry.".
        yes: The text that affirms the statement.
        no: The text that denies the statement.
        yes_when: When to answer `yes`, or None.
        no_when: When to answer `no`, or None.
        examples: Pairs of the text of a state and the text of its answer, as in
            `Choice`. In the argument, True and False may be the answers.
    """

    kind: ClassVar = "predicate"
    is_number: ClassVar = True
    lists_probabilities: ClassVar = False
    grammar: ClassVar[None] = None

    statement: str = ""
    yes: str = "yes"
    no: str = "no"
    yes_when: str | None = None
    no_when: str | None = None
    examples: tuple[tuple[str, str], ...] = ()

    @named_arguments
    def __init__(
        self,
        statement: str = "",
        *,
        yes: str = "yes",
        no: str = "no",
        yes_when: str | None = None,
        no_when: str | None = None,
        examples: Examples = (),
    ) -> None:
        values = {"statement": statement, "yes": yes, "no": no, "yes_when": yes_when, "no_when": no_when}
        for name, value in values.items():
            require_text(name, value, optional=name in ("yes_when", "no_when"))
            object.__setattr__(self, name, value)
        if not any(given and given.strip() for given in (statement, yes_when, no_when)):
            raise OptionError("statement", statement, words("a statement, or what `yes_when` or `no_when` says"))
        if asks_for_more(statement):
            warn(f"neither yes nor no answers {of_value(statement)}; a Choice asks it, with its options")
        object.__setattr__(self, "examples", _read_examples(examples, check_distinct(self.options)))

    @property
    def options(self) -> tuple[Option[bool], ...]:
        """Return the two options, True with the text `yes` and False with `no`."""
        return Option(value=True, text=self.yes, description=self.yes_when), Option(
            value=False, text=self.no, description=self.no_when
        )

    @property
    def instructions(self) -> str:
        """Return the statement."""
        return self.statement

    @property
    def cue(self) -> None:
        """Return None, since only a `Choice` may have a cue before its answer."""

    @property
    def wording(self) -> str:
        """Return the question in the words of the prompt."""
        return f"Is this true of the text? {self.statement}" if self.statement else "Which answer fits the text?"

    @staticmethod
    def auto_layout(_n_questions: int) -> str:
        """Return the layout that "auto" means for a predicate."""
        return "state first"

    @staticmethod
    def winner(probabilities: Mapping[Any, float], threshold: float) -> bool:
        """Return whether the probability of True is above the threshold."""
        return probabilities[True] > threshold

    @staticmethod
    def answer(evidence: Evidence) -> PredicateAnswer:
        """Return the answer, given the probabilities of the options."""
        return PredicateAnswer(probability=evidence.probabilities[True], threshold=evidence.threshold, **evidence.trust)

    @staticmethod
    def columns() -> KindColumns:
        """Return the column of the value, and a function to fill it (`KindColumns`)."""
        return (Column("value", "bool"),), lambda answer: [answer.value, answer.probability]


_ASKS_FOR_MORE = re.compile(r"\s*(what|which|who|whom|whose|when|where|why|how)\b.*\?\W*", re.IGNORECASE | re.DOTALL)


def asks_for_more(text: str) -> bool:
    """Return whether a text is an English question that neither yes nor no answers."""
    return _ASKS_FOR_MORE.fullmatch(text) is not None


_Levels: TypeAlias = (
    Iterable[str | Option[Any] | int]
    | Mapping[str, str]
    | Mapping[str, str | None]
    | Mapping[float, str]
    | Mapping[int, str]
)


@final
@dataclass(frozen=True, slots=True, init=False)
class Score:
    """A question that is answered by a level of a scale, so by a number.

    Attributes:
        instructions: The question; it may be empty.
        levels: An `Option` for each level, in the caller's order. Its value is the
            number of the level.
        cue: A text before the answer that replaces a question, or None, as in `Choice`.
        examples: Pairs of the text of a state and the text of its answer, as in
            `Choice`.

    The argument `levels` is a sequence of texts, of `Option`s or of whole numbers,
    whose texts are their digits, or a mapping from texts to their descriptions, or from
    numbers to texts. `low=1, high=5` in place of levels, or `Score(question, 1, 5)`,
    means the whole numbers from 1 to 5; there may be at most 101.

    The number of a level is the one that was given: the key of a mapping, the value of
    an `Option`, or the number that its text is, as in "1", "2", "3". Where not all
    levels have one, the numbers are 0, 1, 2 ….
    """

    kind: ClassVar = "score"
    is_number: ClassVar = True
    lists_probabilities: ClassVar = True
    grammar: ClassVar[None] = None
    auto_layout = staticmethod(_resolve_auto_layout)
    winner = staticmethod(_find_most_probable)

    instructions: str
    levels: tuple[Option[float], ...]
    cue: str | None
    examples: tuple[tuple[str, str], ...]

    @named_arguments
    def __init__(
        self,
        instructions: str = "",
        levels: _Levels | int = (),
        high: int | None = None,
        *,
        low: int | None = None,
        cue: str | None = None,
        examples: Examples = (),
    ) -> None:
        require_text("instructions", instructions)
        if isinstance(levels, int) and high is not None and low is None:
            low, levels = levels, ()  # Score(question, 1, 5)
        if low is not None or high is not None:
            levels = _numbers_between(low, high, levels)
        elif isinstance(levels, tuple) and not levels:
            such_as = PythonOnly(", such as ['low', 'high']"), PythonOnly(", as low=1, high=5")
            parts = ("no levels given; give their texts, lowest first", ", or whole numbers by `low` and `high`")
            raise ChoiceError(MessageText(parts[0], such_as[0], parts[1], such_as[1]))
        object.__setattr__(self, "instructions", instructions)
        object.__setattr__(self, "levels", check_distinct(_read_levels(levels), "levels"))
        object.__setattr__(self, "cue", _check_cue(cue, instructions))
        object.__setattr__(self, "examples", _read_examples(examples, self.levels))

    @property
    def options(self) -> tuple[Option[float], ...]:
        """Return the levels."""
        return self.levels

    @property
    def wording(self) -> str:
        """Return the question in the words of the prompt."""
        return self.instructions or "Which level fits the text?"

    @staticmethod
    def answer(evidence: Evidence) -> ScoreAnswer:
        """Return the answer, given the probabilities of the options."""
        values, bounds = list(evidence.probabilities), evidence.trust["bounds"]
        if bounds is not None:
            bounds = replace(bounds, score=expected_bounds(values, list(bounds.probabilities.values())))
        return ScoreAnswer(
            score=expected(values, list(evidence.probabilities.values())),
            level=evidence.texts[evidence.winner],
            value=evidence.winner,
            probabilities=evidence.probabilities,
            legend=evidence.texts,
            **{**evidence.trust, "bounds": bounds},
        )

    def columns(self) -> KindColumns:
        """Return the columns of score and level, and a function to fill them."""
        level = Column("level", "label", tuple(one.scored for one in self.levels))
        return (Column("score", "float"), level), lambda answer: [
            answer.score,
            answer.level,
            answer.probabilities[answer.value],
        ]


KINDS = (Choice, Predicate, Score)
"""The classes of questions. Besides their options, they have in common:

- `kind`: the name of the kind.
- `is_number`: whether the answer is a number computed from the probabilities of all
  options. It then excludes `top`, and a calibration needs a prior.
- `lists_probabilities`: whether tables may have the probability of every option.
- `wording`: the question in the words of the prompt.
- `auto_layout`: returns the layout that "auto" means for a number of questions.
- `winner`: returns the winning value, given the probability of each value and the
  threshold.
- `answer`: returns the answer, given the probabilities of the options (`Evidence`).
- `columns`: returns the columns that only this kind adds to a table (`KindColumns`).
"""
KINDS_IN_WORDS = f"{', '.join(f'a {one.__name__}' for one in KINDS[:-1])} or a {KINDS[-1].__name__}"


class Asking(Protocol[R_co]):
    """A question, by the type of its answers, for type checkers."""

    def answer(self, found: Evidence) -> R_co:
        """Return the answer that selections give."""


Question: TypeAlias = Choice[Any] | Predicate | Score
"""A question of any kind, for annotations: `questions: dict[str, Question] = {…}`."""


def _check_cue(cue: str | None, instructions: str) -> str | None:
    """Return the cue; raise if it is blank or combined with instructions."""
    require_text("cue", cue, optional=True)
    if cue is not None and instructions:
        raise IncompatibleOptionsError("cue", OptionRef("instructions"), "it stands in place of a question")
    if cue is not None and not cue.strip():
        raise OptionError("cue", cue, "a text such as 'Label:'")
    return cue


def _read_examples(given: object, options: Sequence[Option[Any]]) -> tuple[tuple[str, str], ...]:
    """Return a pair of texts for each example: its state and its answer.

    Warns if an option answers no example, because models prefer answers that examples
    show. Raises `OptionError` for anything that is not a pair of a state and an option.
    """
    found = []
    for index, (state, answer) in enumerate(example_pairs(given)):
        name = f"examples[{index}]"
        option = option_named(answer, options, f"{name}[1]", "the value or the text of an option")
        found.append((text_of_state(state, f"{name}[0]"), option.scored))
    answers = {text for _, text in found}
    missing = [option.scored for option in options if option.scored not in answers]
    if found and missing:
        warn(f"no example has the answer {of_value(missing[0])}; give each option some")
    return tuple(found)


def example_pairs(given: object) -> list[tuple[Any, Any]]:
    """Return the state and the answer of each example.

    Raises `OptionError` for anything that is not a sequence of pairs.
    """
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise OptionError("examples", given, "a sequence of pairs of a state and its answer")
    for index, one in enumerate(given):
        if not isinstance(one, Sequence) or isinstance(one, str | bytes) or len(one) != 2:
            raise OptionError(f"examples[{index}]", one, "a pair of a state and its answer")
    return [(state, answer) for state, answer in given]


def option_named(answer: object, options: Sequence[Option[Any]], name: str, allowed: str) -> Option[Any]:
    """Return the option whose value or text is `answer`.

    Raises `OptionError` about the argument `name` unless there is one such option;
    `allowed` describes the answers that are.
    """
    named = [option for option in options if _is_same_value(answer, option.value)]
    named += [option for option in options if isinstance(answer, str) and answer in option.spellings]
    if not named:
        raise OptionError(name, answer, allowed)
    if any(option is not named[0] for option in named):
        remedy = "an answer that names one option; it is the value of one and the text of another"
        raise OptionError(name, answer, remedy)
    return named[0]


def balanced(examples: Iterable[tuple[str, A]], n_each: int, *, seed: int = 0) -> list[tuple[str, A]]:
    """Return up to `n_each` examples of each answer, in mixed order.

    The result can be the argument `examples` of a question. It depends only on the set
    of examples and the seed, not on the order of `examples`.

    Args:
        examples: Pairs of a text and its answer.
        n_each: Maximum number of examples for each answer.
        seed: Another seed gives other examples.
    """
    at_least("n_each", n_each, 1, optional=False)
    drawn: dict[A, list[tuple[str, A]]] = {}

    def sort_key(example: tuple[str, A]) -> tuple[bytes, str]:
        text, answer = example
        return sha256(to_bytes(f"{seed}\0{text}", "examples")).digest(), repr(answer)

    for text, answer in sorted(set(examples), key=sort_key):
        if len(same_answer := drawn.setdefault(answer, [])) < n_each:
            same_answer.append((text, answer))
    return [pairs[at] for at in range(n_each) for pairs in drawn.values() if at < len(pairs)]


def _is_same_value(answer: object, value: object) -> bool:
    """Return whether two values are equal, and of one type or both int or float."""
    numbers = (isinstance(one, int | float) and not isinstance(one, bool) for one in (answer, value))
    return (type(answer) is type(value) or all(numbers)) and bool(answer == value)


def options_of(given: object) -> tuple[Option[Any], ...]:
    """Return the options of the argument `options` of `Choice`, except for a grammar.

    Raises `OptionError` if it has none of the forms that `Choice` allows.
    """
    if isinstance(given, Mapping):
        return described_options(given, "options")
    values = listed(given, lambda allowed: OptionError("options", given, f"{allowed}, or a mapping or Grammar"))
    return tuple(one if isinstance(one, Option) else _read_option(index, one) for index, one in enumerate(values))


def described_options(given: Mapping[Any, Any], name: str) -> tuple[Option[Any], ...]:
    """Return an option for each text of a mapping from texts to descriptions.

    `name` is the name of the argument in errors. Raises `OptionError` for a key or
    description that is not a text.
    """
    for text, description in given.items():
        if not isinstance(text, str) or isinstance(text, Enum):
            others = PythonOnly("; for other values, Option(value, text=…)")
            raise OptionError(name, text, MessageText("texts as the keys of the mapping", others))
        if not isinstance(description, str | None):
            raise OptionError(f"{name}[{of_value(text)}]", description, "the description of this option, a str")
    return tuple(Option(text, None, description) for text, description in given.items())


def check_distinct(options: tuple[Option[Any], ...], name: str = "options") -> tuple[Option[Any], ...]:
    """Return the options without shared texts; raise `ChoiceError` for duplicates.

    Also raises for no options and for an option without text. `name` is what errors
    call the options.
    """
    if not options:
        raise ChoiceError(f"no {name} given; give at least one")
    for index, one in enumerate(options):
        if not all(text.strip() for text in one.spellings):
            raise ChoiceError("it has no text to score; give it one", index=index, choice=one.scored)
    options = _drop_shared_texts(options)
    once = MessageText("give each label once", PythonOnly(", such as column.unique()"))
    for seen, what, remedy in (
        ([(one.scored, one.value) for one in options], "text", once),
        (
            [one.scored for one in options],
            "text",
            MessageText("give each a text of its own", PythonOnly(": Option(value, text=…)")),
        ),
        ([one.value for one in options], "value", "give each a value of its own (True equals 1)"),
    ):
        double = [key for key, n in Counter(seen).items() if n > 1]
        if double:
            first, second = [index for index, key in enumerate(seen) if key == double[0]][:2]
            reason = MessageText(f"its {what} equals that of choice {first}; ", remedy)
            raise ChoiceError(reason, index=second, choice=options[second].scored)
    return options


def _drop_shared_texts(options: tuple[Option[Any], ...]) -> tuple[Option[Any], ...]:
    """Drop each text that several options share, if some option has several texts.

    Warns about a dropped text. Raises `ChoiceError` for an option without a text left.
    """
    if all(one.texts is None for one in options):
        return options
    owners = Counter(text for one in options for text in one.spellings)
    kept = []
    for index, one in enumerate(options):
        texts = tuple(text for text in one.spellings if owners[text] == 1)
        if not texts:
            reason = "other options have all its texts too, so none is left to score; give it a text that no other has"
            raise ChoiceError(reason, index=index, choice=one.scored)
        kept.append(one if texts == one.spellings else replace(one, texts=texts))
    shared = [text for text, n in owners.items() if n > 1]
    if shared:
        warn(f"several options have the text {of_value(shared[0])}, so it is scored for none")
    return tuple(kept)


def _read_option(index: int, value: object) -> Option[Any]:
    """Return the option of a value; raise `OptionError` if its type has no text."""
    if text_of(value) is None:
        raise OptionError(f"options[{index}]", value, _ALLOWED_VALUES)
    return Option(value)


def is_finite_number(value: object) -> bool:
    """Return whether a value is a number, no bool, that is finite as a float."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int that is too large for a float
        return False


MAX_NUMBERS = 101
"""Maximum number of whole numbers between bounds, such as 0 to 100."""


def _numbers_between(low: object, high: object, levels: object) -> range:
    """Return the numbers of the arguments `low` and `high` of `Score`.

    Raises for one of them alone or beside levels, and for fewer than 2 numbers or more
    than `MAX_NUMBERS`.
    """
    if not isinstance(levels, tuple) or levels:
        raise IncompatibleOptionsError("levels", OptionRef("low" if low is not None else "high"), "give one of the two")
    for name, value in (("low", low), ("high", high)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise OptionError(name, value, "a whole number, as in low=1, high=5")
    numbers = range(cast("int", low), cast("int", high) + 1)
    if not 2 <= len(numbers) <= MAX_NUMBERS:
        raise OptionError("high", high, f"a whole number above low={low}, at most {MAX_NUMBERS} levels")
    return numbers


def _read_levels(given: object) -> tuple[Option[float], ...]:
    """Return the levels of the argument `levels` of `Score`, with their numbers.

    Raises `OptionError` if it has none of the forms that `Score` allows.
    """
    if isinstance(given, Mapping) and any(isinstance(key, str) for key in given):
        return number_levels(described_options(given, "levels"))
    if isinstance(given, Mapping):
        for number, text in given.items():
            if not is_finite_number(number):
                raise OptionError("levels", number, "finite numbers, or texts, as the keys of the mapping")
            if not isinstance(text, str):
                raise OptionError(f"levels[{of_value(number)}]", text, "the text that is scored for this number, a str")
        return tuple(Option(number, text) for number, text in given.items())
    numbers = "; the whole numbers from 1 to 5 are low=1, high=5" if isinstance(given, int) else ""
    values = listed(given, lambda allowed: OptionError("levels", given, f"{allowed}, or a mapping{numbers}"))
    if all(isinstance(one, int) and is_finite_number(one) for one in values):
        if len(values) == 2 and values[1] - values[0] > 1:
            first, last = values
            allowed = f"low={first}, high={last} for the numbers between them too, or {{{first}: text, {last}: text}}"
            raise OptionError("levels", given, allowed)
        return tuple(Option(number, str(number)) for number in values)
    for index, level in enumerate(values):
        if not isinstance(level, str | Option):
            raise OptionError(f"levels[{index}]", level, "a text, or an Option with a text")
    return number_levels([Option(level) if isinstance(level, str) else level for level in values])


_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?")


def number_levels(options: Sequence[Option[Any]]) -> tuple[Option[float], ...]:
    """Return the options of a scale with their numbers as values.

    These are the values if all are numbers, or else the texts if all are, as "1", "2",
    "3". Otherwise they are 0, 1, 2 ….
    """
    values = [one.value for one in options]
    if not all(map(is_finite_number, values)):
        texts = [one.scored for one in options]
        values = [float(one) if "." in one else int(one) for one in texts if _NUMBER.fullmatch(one)]
        values = values if len(values) == len(texts) else [*range(len(texts))]
    return tuple(
        Option(number, one.scored if one.texts is None else None, one.description, one.texts)
        for number, one in zip(values, options, strict=True)
    )
