"""Questions about a state: which option, is it true, how much.

A question is a frozen record that checks itself when it is made. What the model scores
are texts; what the caller gets back are the values to which they belong. Each class
knows all that its kind has of its own: how it is asked, which option wins, its answer,
and the columns of a table that the answer fills.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, EnumMeta
from functools import cache
from hashlib import sha256
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, final, overload

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
from selectrie.options.checks import at_least
from selectrie.options.checks import text as require_text
from selectrie.results.advice import warn

T = TypeVar("T")
A = TypeVar("A", bound=Hashable)

Examples: TypeAlias = Sequence[tuple[State, Any]]
"""Pairs of a state and the value, or the text, of the option that answers for it."""

_MEMBERS = PythonOnly(", an Enum member, or an Option with a text")
_VALUES = MessageText("a text, a truth value or a whole number", _MEMBERS)
_INT64 = range(-(1 << 63), 1 << 63)


def _layout_of_options(n_questions: int) -> str:
    return "questions first" if n_questions == 1 else "options last"


def _most_probable(probabilities: Mapping[Any, float], _threshold: float) -> Any:
    return max(probabilities, key=probabilities.__getitem__)


def text_of(value: object) -> str | None:
    """Return the text by which a value is scored, or None if it has none of its own.

    A str is its own text, an Enum member has that of its value, a bool is "true" or
    "false", and an int is written in digits.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int):
        return None
    try:
        return str(value)
    except ValueError:  # more digits than Python writes
        return None


# Generic records have no slots: `Option[int](…)` sets an attribute, for which a frozen
# record with slots raises TypeError instead of the AttributeError that typing expects.
@final
@dataclass(frozen=True)
class Option(Generic[T]):
    """A value that an answer may have.

    Attributes:
        value: The value, which comes back as it is. It must be hashable.
        text: The text that is scored. None means the text of the value (`text_of`).
        description: What the option means, for the prompt; it is not scored.
        texts: Several texts of the option in place of `text`, whose probabilities add
            up. The prompt lists the first. They are kept as a tuple, each once.
    """

    value: T
    text: str | None = None
    description: str | None = None
    texts: Sequence[str] | None = None

    def __post_init__(self) -> None:
        require_text("text", self.text, optional=True)
        require_text("description", self.description, optional=True)
        if self.texts is not None:
            object.__setattr__(self, "texts", _texts_of(self.texts, self.text))
        elif self.text is None and text_of(self.value) is None:
            raise OptionError("value", self.value, _VALUES)
        try:
            hash(self.value)
        except TypeError:
            raise OptionError("value", self.value, "a hashable value, since answers are looked up by it") from None

    @property
    def scored(self) -> str:
        """Return the text that is scored, the first one if there are several."""
        return self.spellings[0]

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return all texts that are scored."""
        if self.texts is not None:
            return tuple(self.texts)
        return ((text_of(self.value) or "") if self.text is None else self.text,)


def _texts_of(texts: object, text: str | None) -> tuple[str, ...]:
    """Return the texts of an option, each once; raise unless there are some."""
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
    """A question that one of several options answers.

    Attributes:
        instructions: The question; it may be empty.
        options: The options, in the order in which they were given; () with a grammar.
        grammar: The grammar whose texts are the options, or None.
        cue: What introduces the answer in place of a question, such as "Sentiment:",
            or None. It goes without instructions.
        examples: The text of each example's state, and the text of its answer.

    The argument `options` is a sequence of values or of `Option`s, an Enum class, a
    mapping from texts to their descriptions, or a `Grammar`. Values are str, bool, int
    or Enum members. One option is legal. The argument `examples` is a sequence of pairs
    of a state and its answer, the value or the text of an option. The prompt shows them
    before the state, but for one whose text is the same up to white space at its ends.

    Raises `ChoiceError` for no options, options without text, equal texts and equal
    values, and `OptionError` for anything that is not an option. If an option has
    several texts, those that two options have are dropped from both, with a warning.
    """

    kind: ClassVar = "choice"
    is_number: ClassVar = False
    lists_probabilities: ClassVar = True
    auto_layout = staticmethod(_layout_of_options)
    winner = staticmethod(_most_probable)

    instructions: str
    options: tuple[Option[T], ...]
    grammar: Grammar | None
    cue: str | None
    examples: tuple[tuple[str, str], ...]

    @overload
    def __init__(self: Choice[str], instructions: str = "", options: Grammar = ...) -> None: ...
    @overload
    def __init__(
        self,
        instructions: str = "",
        options: Sequence[Option[T]] = ...,
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
        self, instructions: str = "", options: type[T] = ..., *, cue: str | None = None, examples: Examples = ()
    ) -> None: ...
    @overload
    def __init__(
        self, instructions: str = "", options: Sequence[T] = ..., *, cue: str | None = None, examples: Examples = ()
    ) -> None: ...
    def __init__(
        self, instructions: str = "", options: Any = (), *, cue: str | None = None, examples: Examples = ()
    ) -> None:
        require_text("instructions", instructions)
        is_grammar = isinstance(options, Grammar)
        if is_grammar and (cue is not None or examples):
            name = "examples" if examples else "cue"
            raise IncompatibleOptionsError(name, "a grammar", "they go with options that are listed")
        object.__setattr__(self, "instructions", instructions)
        object.__setattr__(self, "options", () if is_grammar else checked(options_of(options)))
        object.__setattr__(self, "grammar", options if is_grammar else None)
        object.__setattr__(self, "cue", _cue(cue, instructions))
        object.__setattr__(self, "examples", _examples_of(examples, self.options))

    @property
    def wording(self) -> str:
        """Return the question as prompts have it."""
        return self.instructions or "What fits the text?"

    def answer(self, found: Evidence) -> ChoiceAnswer[T]:
        """Return the answer that selections give."""
        evaluated = {value: p for value, p in found.probabilities.items() if value not in found.probability_high}
        return ChoiceAnswer(
            value=found.winner,
            text=found.texts[found.winner],
            probability=found.probability,
            probabilities=evaluated,
            probability_high=found.probability_high,
            **found.trust,
        )

    def columns(self) -> KindColumns:
        """Return the columns of the value and its probability, and what fills them.

        The value's is one of texts for a grammar, and else of the kind that all values
        have; if they have none in common, it has the options' texts.
        """
        if self.grammar is not None:
            return (Column("label", "text"),), lambda answer: [answer.value, answer.probability]
        values = [_plain(one.value) for one in self.options]
        kind = "label" if all(type(value) is str for value in values) else None
        if all(type(value) is bool for value in values):
            kind = "bool"
        elif all(type(value) is int and value in _INT64 for value in values):
            kind = "int"
        if kind is None:
            labels = tuple(one.scored for one in self.options)
            return (Column("label", "label", labels),), lambda answer: [answer.text, answer.probability]
        column = Column("label", kind, tuple(map(str, values)) if kind == "label" else ())
        return (column,), lambda answer: [_plain(answer.value), answer.probability]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


@final
@dataclass(frozen=True, slots=True)
class Predicate:
    """A statement that is true of the state or not.

    At least one of `statement`, `yes_when` and `no_when` is given.

    Attributes:
        statement: The statement, such as "The customer is angry.".
        yes: The text that affirms it.
        no: The text that denies it.
        yes_when: When to answer with `yes`, or None.
        no_when: When to answer with `no`, or None.
        examples: The text of each example's state, and the text of its answer, as in
            `Choice`; the argument may have True and False for the answers.
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
        object.__setattr__(self, "examples", _examples_of(examples, checked(self.options)))

    @property
    def options(self) -> tuple[Option[bool], ...]:
        """Return the two answers: True with the text `yes`, False with `no`."""
        return Option(value=True, text=self.yes, description=self.yes_when), Option(
            value=False, text=self.no, description=self.no_when
        )

    @property
    def instructions(self) -> str:
        """Return the statement."""
        return self.statement

    @property
    def cue(self) -> None:
        """Return None: a statement is not left out."""

    @property
    def wording(self) -> str:
        """Return the question as prompts have it."""
        return f"Is this true of the text? {self.statement}" if self.statement else "Which answer fits the text?"

    @staticmethod
    def auto_layout(_n_questions: int) -> str:
        """Return the layout that "auto" is."""
        return "state first"

    @staticmethod
    def winner(probabilities: Mapping[Any, float], threshold: float) -> bool:
        """Return whether the statement holds, by the probability of each answer."""
        return probabilities[True] > threshold

    @staticmethod
    def answer(found: Evidence) -> PredicateAnswer:
        """Return the answer that selections give."""
        return PredicateAnswer(probability=found.probabilities[True], threshold=found.threshold, **found.trust)

    @staticmethod
    def columns() -> KindColumns:
        """Return the columns of value and probability, and what fills them."""
        return (Column("value", "bool"),), lambda answer: [answer.value, answer.probability]


_Levels: TypeAlias = (
    Sequence[str | Option[Any]] | Mapping[str, str] | Mapping[str, str | None] | Mapping[float, str] | Mapping[int, str]
)


@final
@dataclass(frozen=True, slots=True, init=False)
class Score:
    """A question that a level of a scale answers.

    Attributes:
        instructions: The question; it may be empty.
        levels: One `Option` for each level, lowest first as given. Its value is the
            number that the level is worth.
        cue: What introduces the answer in place of a question, or None, as in `Choice`.
        examples: The text of each example's state, and the text of its answer, as in
            `Choice`.

    The argument `levels` is a sequence of texts, or of `Option`s whose text is that of
    the level, or a mapping from texts to their descriptions, which are worth 0, 1, 2 …;
    or a mapping from numbers to texts.
    """

    kind: ClassVar = "score"
    is_number: ClassVar = True
    lists_probabilities: ClassVar = True
    grammar: ClassVar[None] = None
    auto_layout = staticmethod(_layout_of_options)
    winner = staticmethod(_most_probable)

    instructions: str
    levels: tuple[Option[float], ...]
    cue: str | None
    examples: tuple[tuple[str, str], ...]

    def __init__(
        self, instructions: str = "", levels: _Levels = (), *, cue: str | None = None, examples: Examples = ()
    ) -> None:
        require_text("instructions", instructions)
        object.__setattr__(self, "instructions", instructions)
        object.__setattr__(self, "levels", checked(_levels_of(levels), "levels"))
        object.__setattr__(self, "cue", _cue(cue, instructions))
        object.__setattr__(self, "examples", _examples_of(examples, self.levels))

    @property
    def options(self) -> tuple[Option[float], ...]:
        """Return the levels."""
        return self.levels

    @property
    def wording(self) -> str:
        """Return the question as prompts have it."""
        return self.instructions or "Which level fits the text?"

    @staticmethod
    def answer(found: Evidence) -> ScoreAnswer:
        """Return the answer that selections give."""
        values, bounds = list(found.probabilities), found.trust["bounds"]
        if bounds is not None:
            bounds = replace(bounds, score=expected_bounds(values, list(bounds.probabilities.values())))
        return ScoreAnswer(
            score=expected(values, list(found.probabilities.values())),
            level=found.texts[found.winner],
            value=found.winner,
            probabilities=found.probabilities,
            legend=found.texts,
            **{**found.trust, "bounds": bounds},
        )

    def columns(self) -> KindColumns:
        """Return the columns of score, level and probability, and what fills them."""
        level = Column("level", "label", tuple(one.scored for one in self.levels))
        return (Column("score", "float"), level), lambda answer: [
            answer.score,
            answer.level,
            answer.probabilities[answer.value],
        ]


KINDS = (Choice, Predicate, Score)
"""The classes of questions. What they have in common, besides their options:

- `kind`: the name of the kind.
- `is_number`: whether the answer is a number made of the probabilities of all options,
  which `top` does not evaluate, and which says little of how frequent they are.
- `lists_probabilities`: whether tables may have the probability of every option.
- `wording`: the question as prompts have it.
- `auto_layout`: the layout that "auto" is for a number of questions.
- `winner`: what the answer is, by the probabilities of the options and the threshold.
- `answer`: the answer, by what selections say about the options.
- `columns`: the columns that it adds to a table, and what fills them.
"""
Question: TypeAlias = Choice[Any] | Predicate | Score
"""A question of any kind, for annotations: `questions: dict[str, Question] = {…}`."""


def _cue(cue: str | None, instructions: str) -> str | None:
    require_text("cue", cue, optional=True)
    if cue is not None and instructions:
        raise IncompatibleOptionsError("cue", OptionRef("instructions"), "it stands in place of a question")
    if cue is not None and not cue.strip():
        raise OptionError("cue", cue, "a text such as 'Label:'")
    return cue


def _examples_of(given: object, options: Sequence[Option[Any]]) -> tuple[tuple[str, str], ...]:
    """Return the text of each example's state, and the text of its answer.

    Options that answer no example are warned about: models lean to answers that they
    were shown.

    Raises `OptionError` for anything that is not a pair of a state and an option.
    """
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise OptionError("examples", given, "a sequence of pairs of a state and its answer")
    found = []
    for index, one in enumerate(given):
        name = f"examples[{index}]"
        if not isinstance(one, Sequence) or isinstance(one, str | bytes) or len(one) != 2:
            raise OptionError(name, one, "a pair of a state and its answer")
        state, answer = one
        named = [option for option in options if _is_same(answer, option.value)]
        named += [option for option in options if isinstance(answer, str) and answer in option.spellings]
        if not named:
            raise OptionError(f"{name}[1]", answer, "the value or the text of an option")
        if any(option is not named[0] for option in named):
            remedy = "an answer that names one option; it is the value of one and the text of another"
            raise OptionError(f"{name}[1]", answer, remedy)
        found.append((text_of_state(state, f"{name}[0]"), named[0].scored))
    answers = {text for _, text in found}
    missing = [option.scored for option in options if option.scored not in answers]
    if found and missing:
        warn(f"no example has the answer {of_value(missing[0])}; give each option some")
    return tuple(found)


def balanced(examples: Iterable[tuple[str, A]], n_each: int, *, seed: int = 0) -> list[tuple[str, A]]:
    """Return some examples of each answer, mixed, for `examples=` of a question.

    Which ones depends on the texts and the seed alone, not on the order of `examples`.

    Args:
        examples: Pairs of a text and its answer.
        n_each: Maximum number of examples for each answer.
        seed: Another number draws others.
    """
    at_least("n_each", n_each, 1, optional=False)
    drawn: dict[A, list[tuple[str, A]]] = {}

    def place(one: tuple[str, A]) -> tuple[bytes, str]:
        return sha256(to_bytes(f"{seed}\0{one[0]}", "examples")).digest(), repr(one[1])

    for text, answer in sorted(set(examples), key=place):
        if len(of_answer := drawn.setdefault(answer, [])) < n_each:
            of_answer.append((text, answer))
    return [ones[at] for at in range(n_each) for ones in drawn.values() if at < len(ones)]


def _is_same(answer: object, value: object) -> bool:
    """Return whether an answer is a value: equal, and of its type or both numbers."""
    numbers = (isinstance(one, int | float) and not isinstance(one, bool) for one in (answer, value))
    return (type(answer) is type(value) or all(numbers)) and bool(answer == value)


def options_of(given: object) -> tuple[Option[Any], ...]:
    """Return the options that a caller gave in any of the forms of `Choice`."""
    if isinstance(given, Mapping):
        if given:
            _warn_of_mapping()
        return described(given, "options")
    if isinstance(given, EnumMeta):
        return tuple(Option(member) for member in list[Any](given))
    if not isinstance(given, Sequence) or isinstance(given, str | bytes | bytearray):
        allowed = "a sequence of options, an Enum class, a mapping from texts to descriptions, or a Grammar"
        raise OptionError("options", given, allowed)
    return tuple(one if isinstance(one, Option) else _option(index, one) for index, one in enumerate(given))


def described(given: Mapping[Any, Any], name: str) -> tuple[Option[Any], ...]:
    """Return an option for each text of a mapping from texts to descriptions."""
    for text, description in given.items():
        if not isinstance(text, str) or isinstance(text, Enum):
            others = PythonOnly("; for other values, Option(value, text=…)")
            raise OptionError(name, text, MessageText("texts as the keys of the mapping", others))
        if not isinstance(description, str | None):
            raise OptionError(f"{name}[{of_value(text)}]", description, "the description of this option, a str")
    return tuple(Option(text, None, description) for text, description in given.items())


@cache
def _warn_of_mapping() -> None:
    """Warn once in a process that mappings have another meaning than in 0.1."""
    warn(
        "a mapping given to Choice has descriptions, which are shown and not scored; before, it had the texts to"
        " score: give these as [Option(value, text=…)]",
        FutureWarning,
    )


def checked(options: tuple[Option[Any], ...], name: str = "options") -> tuple[Option[Any], ...]:
    """Return the options; raise `ChoiceError` if they cannot be told apart.

    `name` is how the caller calls them.
    """
    if not options:
        raise ChoiceError(f"no {name} given; give at least one")
    for index, one in enumerate(options):
        if not all(text.strip() for text in one.spellings):
            raise ChoiceError("it has no text to score; give it one", index=index, choice=one.scored)
    options = _without_shared(options)
    for seen, what, remedy in (
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
            raise ChoiceError(reason, index=second, choice=str(double[0]))
    return options


def _without_shared(options: tuple[Option[Any], ...]) -> tuple[Option[Any], ...]:
    """Return options without the texts that several have, if one has several texts.

    Raises `ChoiceError` for an option that has no other.
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


def _option(index: int, value: object) -> Option[Any]:
    if text_of(value) is None:
        raise OptionError(f"options[{index}]", value, _VALUES)
    return Option(value)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond the largest float
        return False


def _levels_of(given: object) -> tuple[Option[float], ...]:
    if isinstance(given, Mapping) and any(isinstance(key, str) for key in given):
        given = described(given, "levels")
    if isinstance(given, Mapping):
        for number, text in given.items():
            is_number = isinstance(number, int | float) and not isinstance(number, bool)
            if not is_number or not _is_finite(number):
                raise OptionError("levels", number, "finite numbers, or texts, as the keys of the mapping")
            if not isinstance(text, str):
                raise OptionError(f"levels[{of_value(number)}]", text, "the text that is scored for this number, a str")
        return tuple(Option(number, text) for number, text in given.items())
    if not isinstance(given, Sequence) or isinstance(given, str | bytes | bytearray):
        raise OptionError("levels", given, "a sequence of texts or Options, or a mapping from texts or numbers")
    levels: list[Option[float]] = []
    for worth, one in enumerate(given):
        if not isinstance(one, str | Option):
            raise OptionError(f"levels[{worth}]", one, "a text, or an Option with a text")
        own = Option(one) if isinstance(one, str) else one
        levels.append(Option(worth, own.scored if own.texts is None else None, own.description, own.texts))
    return tuple(levels)
