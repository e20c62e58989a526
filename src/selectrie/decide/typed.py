"""Types as questions: reads what a caller asks, and what the answers' values make.

Questions are given as records (`Choice`, `Predicate`, `Score`), as types with finitely
many values, as classes whose fields have such types, or as options. All of them become
questions by name here, so the rest of the package knows only these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import Enum
from inspect import cleandoc
from types import UnionType
from typing import Annotated, Any, get_origin

from selectrie.decide.answers import ValueShape
from selectrie.decide.questions import KINDS, KINDS_IN_WORDS, MAX_NUMBERS, Choice, Option, Predicate, Question, Score
from selectrie.errors import OptionError, of_slot, of_value
from selectrie.grammar import Grammar
from selectrie.grammar.readers.type_parts import (
    TypeField,
    fields_of,
    find_words,
    metadata_of,
    parts_of_union,
    type_name,
    values_of,
)

MAX_NESTING = 16
"""Maximum nesting of classes in classes."""
NONE = "none"
"""The text that is scored for None."""
_GIVEN = f"{KINDS_IN_WORDS}, a type, a list of options, or a mapping from names to these"


class Questions(dict[str, Question]):
    """Questions by name, and what the values of their answers make.

    Attributes:
        shape: The object that the values make; None for a dictionary of them.
    """

    shape: ValueShape | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where something is asked: a field of a class, or a key of a mapping.

    Attributes:
        where: What it is called in errors; "" for all that was given.
        path: The name of the question.
        name: The name of the field, key or class; "" for none.
        description: What the class says about the field, or "".
        lead: What is said about the classes around it.
    """

    where: str = ""
    path: str = ""
    name: str = ""
    description: str = ""
    lead: tuple[str, ...] = ()

    def within(self, field: TypeField, lead: tuple[str, ...], owner: str) -> _Place:
        """Return the place of a field of the class at this place."""
        path = f"{self.path}.{field.name}" if self.path else field.name
        where = f"{self.where}.{field.name}" if self.path else f"{owner}.{field.name}"
        return _Place(where, path, field.name, field.description.strip(), lead)

    def question(self, description: str = "") -> str:
        """Return the question: the description, or one made of the name."""
        asked = f"What is the {_split_name(self.name)}?" if self.name.isidentifier() else self.name
        return ": ".join((*self.lead, description or asked))

    def statement(self, description: str) -> str:
        """Return the statement: the description, or one made of the name."""
        stated = f"{_split_name(self.name).capitalize()}." if self.name.isidentifier() else self.name
        return ": ".join((*self.lead, description or stated))


def parse_questions(given: object, *, may_be_one: bool = False) -> Questions:
    """Return the questions that a caller gave, by name.

    A class gives a question for each field, under the name of the field. Those of a
    class within it have names such as "customer.plan".

    Args:
        given: A question, a type, or options; a mapping from names to these; or what
            this function returned.
        may_be_one: Whether it may be one question without a name, which is named "".

    Raises:
        OptionError: For anything else. A field whose values cannot be listed is named.
    """
    if isinstance(given, Questions):
        return given
    questions = Questions()
    if not isinstance(given, Mapping):
        part = _add(questions, given, _Place())
        if isinstance(part, ValueShape):
            questions.shape = part
        elif not may_be_one:
            raise OptionError("questions", given, "a mapping from names to questions, or a class with fields")
        return questions
    if not given:
        raise OptionError("questions", dict(given), "at least one question")
    parts = []
    for name, one in given.items():
        if not isinstance(name, str) or not name.strip():
            raise OptionError("questions", name, "names that are texts, and not blank")
        parts.append((name, _add(questions, one, _Place(f"questions[{name!r}]", name, name))))
    if any(isinstance(part, ValueShape) for _, part in parts):
        questions.shape = ValueShape(dict, tuple(parts))
    return questions


def _add(questions: Questions, given: Any, place: _Place) -> str | ValueShape:
    """Add the questions about a place; return their name, or the object they make."""
    is_question = isinstance(given, KINDS)
    is_type = not is_question and _is_type(given)
    fields = fields_of(_strip_metadata(given)) if is_type and _find_question(given) is None else None
    if fields is not None:
        return _add_fields(questions, given, fields, place)
    if not (is_question or is_type):
        _refuse_objects(given, place.where or "questions")
    is_listed = isinstance(given, Iterable | Grammar) and not isinstance(given, bytes | bytearray)
    if not (is_question or is_type or is_listed):
        raise OptionError(place.where or "questions", given, _GIVEN)
    if isinstance(given, list | tuple) and _are_questions(given):
        raise OptionError(place.where or "questions", given, "a mapping from names to questions")
    if place.path in questions:
        raise OptionError("questions", place.path, "names that differ; a field has this one too")
    with of_slot(place.where) if place.where else nullcontext():
        if is_type:
            questions[place.path] = _make_question(given, place)
        else:
            questions[place.path] = given if is_question else Choice(place.question(), given)
    return place.path


def _refuse_objects(given: object, where: str) -> None:
    """Raise `OptionError` for a question as a text, and for an object of a class."""
    if isinstance(given, str):
        said = of_value(given)
        allowed = f"Predicate({said}) for yes or no, Choice({said}, options), or Score({said}, low=1, high=5)"
        raise OptionError(where, given, allowed)
    if fields_of(type(given)) is not None and not isinstance(given, Grammar):
        name = type(given).__name__
        raise OptionError(where, given, f"the class {name} itself, not an object of it: its fields are asked")


def _are_questions(given: Sequence[object]) -> bool:
    """Return whether items are questions, or texts that all ask: no options."""
    if any(isinstance(one, (*KINDS, type)) for one in given):
        return True
    return len(given) > 1 and all(isinstance(one, str) and one.rstrip().endswith("?") for one in given)


def _add_fields(questions: Questions, given: Any, fields: tuple[TypeField, ...], place: _Place) -> ValueShape:
    """Add the questions of a class's fields, and return the shape of its values.

    Raises `OptionError` if there are no fields, or classes are nested too deep.

    Args:
        questions: Receives the questions.
        given: The class, with metadata if it has any.
        fields: Its fields.
        place: Where the class stands in the whole type.
    """
    kind, lead = _strip_metadata(given), place.lead
    if not fields or len(lead) >= MAX_NESTING:
        allowed = "a class with fields" if not fields else f"classes nested at most {MAX_NESTING} deep"
        raise OptionError(place.where or "questions", given, allowed)
    if place.name:
        lead += (place.description or _find_words(given) or _split_name(place.name).capitalize(),)
    parts = [(one.argument, _add(questions, one.kind, place.within(one, lead, type_name(kind)))) for one in fields]
    return ValueShape(kind, tuple(parts))


def _make_question(kind: Any, place: _Place) -> Question:
    """Return the question whose answers are the values of a type."""
    own = _find_question(kind)
    if own is not None:
        return own
    values = values_of(kind, MAX_NUMBERS)
    if values is None:
        raise OptionError(
            "type",
            kind,
            "a type whose values can be listed (Enum, Literal, bool, None, at most"
            f" {MAX_NUMBERS} ints between bounds, unions of these), a class of such fields, or"
            " Annotated[…, Choice(…)]; `extract` finds values of open types",
        )
    bare = _strip_metadata(kind)
    parts = [_strip_metadata(part) for part in parts_of_union(bare)]
    enums = [part for part in parts if isinstance(part, type) and issubclass(part, Enum)]
    said = place.description or _find_words(kind) or (_read_docstring(enums[0]) if len(enums) == 1 else "")
    is_bool = bool in parts
    if is_bool and not place.statement(said):
        allowed = 'a statement: Predicate(…), Annotated[bool, "The customer is angry."], or a name for it'
        raise OptionError("type", kind, allowed)
    given = {one.value: one for one in _iterate_metadata(kind) if isinstance(one, Option)}
    if bare is bool or bare is int:
        question = "Predicate(…), which words yes and no" if is_bool else "Score(…), which has the texts of numbers"
        _check_options(given, (), f"Annotated[{bare.__name__}, {question}]")
        if is_bool:
            return Predicate(place.statement(said))
        return Score(place.question(said), {number: str(number) for number in values})
    _check_options(given, values, f"an Option of a value of {type_name(bare)}")
    options = [given.get(value) or _make_option(value) for value in values]
    if is_bool:
        return Choice(Predicate(place.statement(said)).wording, options)
    name = place.name or (enums[0].__name__ if len(enums) == 1 else "")
    return Choice(replace(place, name=name).question(said), options)


def _check_options(given: Mapping[Any, Option[Any]], values: tuple[Any, ...], allowed: str) -> None:
    """Raise `OptionError` for an `Option` in the metadata that is of no value."""
    for value, one in given.items():
        if value not in values:
            raise OptionError("metadata", one, allowed)


def _make_option(value: Any) -> Option[Any]:
    """Return the option of a listed value; None and Booleans get words as texts."""
    if value is None:
        return Option(None, NONE)
    return Option(value, "yes" if value else "no") if isinstance(value, bool) else Option(value)


def _is_type(given: object) -> bool:
    """Return whether a value is a type, an alias of one, or such as `Literal["a"]`."""
    is_alias = hasattr(given, "__supertype__") or hasattr(given, "__value__")
    return is_alias or isinstance(given, type | UnionType) or get_origin(given) is not None


def _strip_metadata(kind: Any) -> Any:
    """Return a type without metadata, marks and names of its own."""
    parts = parts_of_union(kind)
    if len(parts) > 1:
        return kind.__origin__ if get_origin(kind) is Annotated else kind
    return _strip_metadata(parts[0].__origin__) if get_origin(parts[0]) is Annotated else parts[0]


def _iterate_metadata(kind: Any) -> Iterator[Any]:
    """Iterate over the metadata of a type, then of the parts of a union."""
    yield from metadata_of(kind)
    for part in parts_of_union(kind):
        if part is not kind:
            yield from metadata_of(part)
        if get_origin(part) is Annotated:
            yield from _iterate_metadata(part.__origin__)


def _find_question(kind: Any) -> Question | None:
    """Return the question that is in the metadata of a type, or None."""
    return next((one for one in _iterate_metadata(kind) if isinstance(one, KINDS)), None)


def _find_words(kind: Any) -> str:
    """Return what the metadata of a type, or of the parts of a union, says in words."""
    return find_words(_iterate_metadata(kind)).strip()


def _read_docstring(kind: type[Enum]) -> str:
    """Return the first paragraph of the docstring of an `Enum` class, or ""."""
    own = vars(kind).get("__doc__")
    if not own or own == "An enumeration.":  # what Python 3.10 gives each
        return ""
    return " ".join(cleandoc(own).partition("\n\n")[0].split())


def _split_name(name: str) -> str:
    """Return the words of a name: "order_status" and "OrderStatus" are "order status".

    A text that is no identifier is returned as it is.
    """
    if not name.isidentifier():
        return name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("_", " ").strip().lower()
