"""Choices and Python types as grammars."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import partial
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, Union

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import GrammarError
from selectrie.grammar.readers.types import list_of_choices, rules_of_type
from selectrie.grammar.rules import RuleSet, TextList
from tests.support.n_examples import n_examples
from tests.support.slow_language import accepts


class Colour(Enum):
    RED = "red"
    BLUE = "blue"
    CRIMSON = "red"  # noqa: PIE796 - another name of RED
    NONE = None


class Level(IntEnum):
    LOW = 1
    HIGH = 10


class Empty(Enum):
    pass


class Bad(Enum):
    PAIR = (1, 2)


UserId = NewType("UserId", int)


@dataclass
class Point:
    x: int
    y: float = 0.0
    colour: Colour = Colour.RED
    next: Optional[Point] = None  # noqa: UP045 - both spellings are read
    size: int = field(init=False, default=1)


class Options(TypedDict, total=False):
    names: list[str]
    pair: tuple[int, bool]
    many: tuple[int, ...]
    table: dict[str, Literal[1, "one"]]
    tags: set[str]
    points: list[Point]
    anything: Any


class Part:
    """Speaks like a pydantic model that contains itself."""

    @classmethod
    def model_json_schema(cls, ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
        own = {"$ref": ref_template.format(model="Part")}
        properties = {"n": {"type": "integer", "minimum": 1}, "parts": {"type": "array", "items": own, "default": []}}
        return {**own, "$defs": {"Part": {"type": "object", "properties": properties, "required": ["n"]}}}


@dataclass
class Holder:
    part: Part
    options: Options


@pytest.mark.parametrize(
    ("kind", "accepted", "rejected"),
    [
        (Colour, ["red", "blue", "null"], ["RED", "CRIMSON", '"red"', ""]),
        (Level, ["1", "10"], ["0", "LOW"]),
        (Literal["a b", 1, True, None, Colour.BLUE], ["a b", "1", "true", "null", "blue"], ["True", "a", '"a b"']),  # noqa: PYI061 - read too
        (bool, ["true", "false"], ["True", ""]),
        (int, ["0", "-12", "907"], ["", "-", "01", "1.0", "+1", "1e3"]),
        (float, ["0", "-1.5", "2e10", "1.25E-3"], [".5", "1.", "nan", "01.5"]),
        (str, ["", "anything\n😀"], []),
        (None, ["null"], ["None", ""]),
        (int | None, ["null", "3"], ["", "x"]),
        (Optional[Union[Literal["auto"], float, Level]], ["auto", "10", "0.5", "null"], [""]),  # noqa: UP007, UP045 - read too
        (Annotated[Literal["x"] | UserId, "documented"], ["x", "5"], ["y"]),
    ],
)
def test_plain_types_are_plain_text(kind, accepted, rejected):
    """Strings without quotes, everything else as JSON writes it; a list where each value has one text."""
    found = rules_of_type(kind)
    rules = found.rules if isinstance(found, TextList) else found
    assert isinstance(rules, RuleSet)
    assert [text for text in [*accepted, *rejected] if accepts(rules, text)] == accepted
    if isinstance(found, TextList):
        assert sorted(found.texts) == sorted(accepted)


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
@settings(max_examples=n_examples(60))
def test_numbers_are_those_of_json(number):
    """Every number that Python writes as JSON is one of ours."""
    assert accepts(rules_of_type(type(number)), json.dumps(number))


@pytest.mark.parametrize(
    ("kind", "valid", "invalid"),
    [
        (
            Point,
            [{"x": 1}, {"x": 1, "y": 2, "next": {"x": 3, "next": None}, "colour": None}],
            [{}, {"x": 1, "size": 2}, {"x": "1"}],
        ),
        (
            Options,
            [{}, {"pair": [1, True], "many": [1, 2], "tags": ["a"], "table": {"k": "one"}}],
            [{"pair": [1]}, {"tags": ["a", "a"]}],
        ),
        (list[Level], [[], [1, 10]], [[2], 1]),
        (int | list[Point], [1, [{"x": 1}]], [[1], {"x": 1}]),
        (Part, [{"n": 1}, {"n": 2, "parts": [{"n": 1}]}], [{"n": 0}, {"n": 1, "parts": [{"n": 0}]}]),
        (
            Holder,
            [{"part": {"n": 1, "parts": [{"n": 3}]}, "options": {"anything": [None]}}],
            [{"part": {"n": 0}, "options": {}}],
        ),
    ],
)
def test_types_with_parts_are_json_schemas(kind, valid, invalid):
    """The schema of a type takes its values and no others."""
    schema = rules_of_type(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert [value for value in [*valid, *invalid] if validator.is_valid(value)] == valid


def test_models_of_pydantic_say_what_they_take():
    """A model alone is its own schema; inside other types its definitions come along, recursive ones too."""
    pydantic = pytest.importorskip("pydantic")
    simple = pydantic.create_model("Simple", a=(int, ...), b=(str, "x"))
    assert rules_of_type(simple) == {**simple.model_json_schema(), "additionalProperties": False}
    limited = pydantic.create_model("Limited", n=(Annotated[int, pydantic.Field(ge=1)], ...), inner=(simple, ...))
    validator = jsonschema.Draft202012Validator(rules_of_type(dict[str, limited]))
    assert validator.is_valid({"k": {"n": 1, "inner": {"a": 1}}})
    assert not validator.is_valid({"k": {"n": 0, "inner": {"a": 1}}})
    assert not validator.is_valid({"k": {"n": 1, "inner": {}}})


def objects_with_a_key_more(value):
    """The value with a key more in one of its objects, for each of them."""
    if isinstance(value, dict):
        yield {**value, "not a field": 1}
        for key, inner in value.items():
            yield from ({**value, key: one} for one in objects_with_a_key_more(inner))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from ([*value[:place], one, *value[place + 1 :]] for one in objects_with_a_key_more(inner))


@pytest.mark.parametrize("extra", ["ignore", "allow", "forbid"])
def test_a_model_of_pydantic_is_its_fields(extra):
    """No object of its texts has a key that is no field, through nested models, unions and tables, whatever `extra` says."""
    pydantic = pytest.importorskip("pydantic")
    config = pydantic.ConfigDict(extra=extra)
    made = partial(pydantic.create_model, __config__=config)
    leaf = made("Leaf", n=(int, ...))
    cat, dog = (made(kind.title(), kind=(Literal[kind], ...), leaf=(leaf, ...)) for kind in ("cat", "dog"))
    tree = made(
        "Tree",
        leaf=(leaf, ...),
        leaves=(list[leaf], ...),
        maybe=(leaf | None, None),
        pet=(Annotated[cat | dog, pydantic.Field(discriminator="kind")], ...),
        table=(dict[str, leaf], ...),
        pair=(tuple[leaf, int], ...),
        nothing=(made("Nothing"), ...),
    )
    value = {
        "leaf": {"n": 1},
        "leaves": [{"n": 2}, {"n": 3}],
        "maybe": {"n": 4},
        "pet": {"kind": "dog", "leaf": {"n": 5}},
        "table": {},
        "pair": [{"n": 7}, 8],
        "nothing": {},
    }
    validator = jsonschema.Draft202012Validator(rules_of_type(tree))
    more = list(objects_with_a_key_more(value))
    assert validator.is_valid(value)
    assert validator.is_valid({**value, "table": {"any name": {"n": 6}}})
    assert not validator.is_valid({**value, "table": {"any name": {"n": 6, "not a field": 1}}})
    assert len(more) == 10
    assert [one for one in more if validator.is_valid(one)] == []


def test_a_small_data_class_is_a_schema_to_check_by_hand():
    """Fields in order, those without default required, nothing else allowed."""

    @dataclass
    class Person:
        name: str
        age: int = 0

    assert rules_of_type(Person) == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": False,
    }


def test_classes_of_one_name_stay_apart():
    """Two classes that are called the same are two definitions."""

    def made(kind: type) -> type:
        @dataclass
        class Inner:
            value: kind

        Inner.__annotations__["value"] = kind
        return Inner

    schema = rules_of_type(tuple[made(int), made(str)])
    assert set(schema["$defs"]) == {"Inner", "Inner-2"}
    assert jsonschema.Draft202012Validator(schema).is_valid([{"value": 1}, {"value": "1"}])
    assert not jsonschema.Draft202012Validator(schema).is_valid([{"value": "1"}, {"value": 1}])


def test_marks_of_keys_count(monkeypatch):
    """Required and NotRequired say which keys are needed, also where annotations are strings."""
    typing_extensions = pytest.importorskip("typing_extensions")
    monkeypatch.setitem(globals(), "te", typing_extensions)
    marked = typing_extensions.TypedDict(
        "marked", {"a": "te.Required[int]", "b": "int", "c": "te.NotRequired[str]"}, total=False
    )
    monkeypatch.setattr(marked, "__module__", __name__)
    assert rules_of_type(marked)["required"] == ["a"]


def nested(depth: int) -> Any:
    kind: Any = int
    for _ in range(depth):
        kind = list[kind]
    return kind


@dataclass
class Held:
    value: int


@dataclass
class Lost:
    value: NotThere  # noqa: F821 - that is the point


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (complex, "the type complex is not supported"),
        (5, "the type '5' is not supported"),
        ([int], "is not supported"),
        (Held(1), "an object of Held was given in place of a type; give the class Held itself"),
        (Empty, "Empty has no members"),
        (Bad, r"Bad has the value '\(1, 2\)'"),
        (dict[int, str], "keys other than str"),
        (list[complex], "the type complex is not supported"),
        (Annotated[int, slice(3)], "has metadata that is not supported"),
        (Literal[b"x"], "has the value"),
        (nested(100), "nested more than"),
        (Lost, "annotations of Lost cannot be resolved"),
        (slice(3), "is not supported"),
    ],
)
def test_other_types_are_refused_by_name(kind, name):
    """The message says which type and what there is instead."""
    with pytest.raises(GrammarError, match=name):
        rules_of_type(kind)


def test_choices_are_exactly_these_texts():
    """In order, each once, the empty text among them."""
    found = list_of_choices(["b", "a", "", "b", "aé"])
    assert found.texts == ("b", "a", "", "aé")
    assert [text for text in ("", "a", "b", "aé", "ab", "c") if accepts(found.rules, text)] == ["", "a", "b", "aé"]
    assert len(found.rules.rules["root"].options) == 4
    assert accepts(list_of_choices(iter(["one"])).rules, "one")


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        ([], "the list of choices is empty"),
        ("ab", "a single text"),
        (int, "give a list of texts"),
        (["a", 5], "choice 1 is '5'"),
        (["a", "\ud800"], "choice 1 contains the surrogate"),
    ],
)
def test_what_are_no_choices_is_refused(texts, name):
    """None, one text alone, and what is no text, each by name."""
    with pytest.raises(GrammarError, match=name):
        list_of_choices(texts)
