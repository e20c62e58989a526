"""Types that people write: what a grammar of a type produces is a value of it, and a value of it is a text of the grammar."""

from __future__ import annotations

import json
import random
import re
import sys
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, make_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, Optional, TypeVar, Union
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from json_schemas import piece_vocabulary, walk
from selectrie.errors import GrammarError
from selectrie.grammar import Grammar
from selectrie.grammar.readers.types import rules_of_type
from tests.support.n_examples import n_examples

annotated_types = pytest.importorskip("annotated_types")
attrs = pytest.importorskip("attrs")
pydantic = pytest.importorskip("pydantic")
BYTES = piece_vocabulary()
ANY_CASE = re.compile("^abc$", re.IGNORECASE)
T = TypeVar("T")
N = TypeVar("N", bound=int)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"
    GREY = "grey"


class Pair(NamedTuple):
    left: int
    right: Optional[Colour] = None  # noqa: UP045 - both spellings are read


@dataclass
class Box(Generic[T]):
    item: T
    more: list[T] = field(default_factory=list)


@dataclass
class NamedBox(Box[Colour]):
    name: Literal["a", "b"] = "a"


@dataclass
class Counted(Generic[N]):
    n: N
    inner: Optional[Box[tuple[N, bool]]] = None  # noqa: UP045 - as above


@dataclass
class Rows(Box[list[N]], Generic[N]):
    pass


@dataclass
class Event:
    day: date
    at: datetime
    hour: time
    lasts: timedelta
    key: UUID
    price: Decimal
    file: Path
    data: bytes
    posix: PurePosixPath


class EventModel(pydantic.BaseModel):
    day: date
    at: datetime
    hour: time
    lasts: timedelta
    key: UUID
    price: Decimal
    bounded: Annotated[Decimal, pydantic.Field(ge=0, le=9)]
    file: Path
    data: bytes
    maybe: Optional[datetime] = None  # noqa: UP045 - as above


@dataclass
class Cat:
    kind: Literal["cat"]
    lives: Annotated[int, annotated_types.Interval(ge=1, le=9)]


@dataclass
class Dog:
    kind: Literal["dog"]
    tricks: list[str]


class CatModel(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: pydantic.PositiveInt


class DogModel(pydantic.BaseModel):
    kind: Literal["dog"]
    colours: set[Colour]


class Owner(pydantic.BaseModel):
    pet: Annotated[Union[CatModel, DogModel], pydantic.Field(discriminator="kind")]  # noqa: UP007 - as above


@pydantic.dataclasses.dataclass
class Checked:
    n: int = pydantic.Field(ge=0, lt=5)
    word: Annotated[str, pydantic.StringConstraints(pattern="^[a-z]+$", max_length=3)] = "x"


@dataclass
class Constrained:
    percent: Annotated[int, pydantic.Field(ge=0, le=100, description="of all")]
    share: Annotated[float, annotated_types.Gt(0), annotated_types.Lt(1)]
    even: Annotated[int, annotated_types.MultipleOf(2)]
    code: Annotated[str, pydantic.StringConstraints(pattern="^[A-Z]", min_length=2, max_length=4)]
    name: Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=1)]
    marks: Annotated[list[Annotated[int, annotated_types.Le(6)]], annotated_types.Len(1, 3)]
    maybe: Annotated[Union[int, None], annotated_types.Ge(3)]  # noqa: UP007 - as above
    table: Annotated[dict[str, bool], annotated_types.MinLen(1)]


@attrs.define
class Part:
    size: int
    _hidden: bool
    colour: Colour = Colour.RED
    made: int = attrs.field(init=False, default=3)


class Link(pydantic.BaseModel):
    url: pydantic.HttpUrl
    key: pydantic.UUID4
    price: pydantic.condecimal(max_digits=4, decimal_places=1, ge=0)
    seen: deque[Colour]
    tags: set[str]


TYPES = [
    *(Event, EventModel, Pair, Box[Colour], Box[list[Pair]], NamedBox, Counted[bool], Counted, Box),
    *(Owner, Annotated[Union[Cat, Dog], pydantic.Field(discriminator="kind")], Checked, Constrained),  # noqa: UP007
    *(set[Colour], frozenset[Literal["a", 2]], Annotated[set[Colour], annotated_types.Len(1, 2)], dict[Colour, int]),
    *(list[date], dict[str, Union[time, Pair]], Annotated[int, annotated_types.Interval(gt=0, lt=4)]),  # noqa: UP007
    *(pydantic.HttpUrl, pydantic.WebsocketUrl, pydantic.UUID1, pydantic.UUID4, IPv4Address, IPv6Address, pydantic.SecretStr),
    *(pydantic.condecimal(max_digits=5, decimal_places=2), pydantic.condecimal(gt=0, decimal_places=1), set[str], frozenset[int]),
    *(pydantic.conset(str, min_length=1), deque[Box[Colour]], Link, list[Link]),
]  # fmt: skip


def name_of(kind):
    return getattr(kind, "__name__", str(kind))[:30]


def texts_of(grammar, n, seed=0):
    """Texts by random walks, those that ended."""
    automaton, rng = grammar.automaton(BYTES), random.Random(seed)
    found = [walk(automaton, BYTES, rng) for _ in range(n)]
    return [text.decode() for text in found if text is not None]


@pytest.mark.parametrize("kind", TYPES, ids=name_of)
def test_a_text_of_a_type_is_read_as_it(kind):
    """By pydantic, which reads all of these types."""
    adapter = pydantic.TypeAdapter(kind)
    texts = texts_of(Grammar.from_type(kind), 12)
    assert texts
    for text in texts:
        adapter.validate_json(text)


PLAIN = [date, datetime, time, timedelta, UUID, Decimal, Path, bytes, date | None, Union[UUID, Colour]]  # noqa: UP007


@pytest.mark.parametrize("kind", PLAIN, ids=name_of)
def test_a_plain_text_of_a_type_is_read_as_it(kind):
    """A type without parts is plain text, without quotes."""
    adapter = pydantic.TypeAdapter(kind)
    texts = texts_of(Grammar.from_type(kind), 30)
    assert texts
    for text in texts:
        adapter.validate_python(None if text == "null" else text)


ZONES = st.none() | st.just(timezone.utc) | st.just(timezone(timedelta(hours=-5, minutes=-30)))
LETTERS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=4)
VALUES = {
    date: st.dates(),
    datetime: st.datetimes(timezones=ZONES),
    time: st.times(timezones=ZONES),
    timedelta: st.timedeltas(timedelta(days=-364), timedelta(days=364)),
    UUID: st.uuids(),
    Path: LETTERS.map(Path),
    bytes: LETTERS.map(str.encode),
}


@pytest.mark.parametrize("kind", VALUES, ids=name_of)
def test_a_value_of_a_type_is_a_text(kind):
    """As pydantic writes it: plain, in a data class, and in a model."""
    adapter = pydantic.TypeAdapter(kind)
    holder = pydantic.create_model("Holder", value=(kind, ...))
    plain, inside = Grammar.from_type(kind), [Grammar.from_type(one) for one in (list[kind], holder)]

    @settings(max_examples=n_examples(25))
    @given(value=VALUES[kind])
    def holds(value):
        written = json.loads(adapter.dump_json(value))
        assert plain.accepts(written)
        for grammar, whole in zip(inside, ([written], {"value": written}), strict=True):
            assert grammar.accepts(json.dumps(whole, ensure_ascii=False)), whole

    holds()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (set[Colour], [[], ["red"], ["blue"], ["grey"], ["red", "blue"], ["red", "grey"], ["blue", "grey"], ["red", "blue", "grey"]]),
        (Annotated[frozenset[Literal["a", 2]], annotated_types.MinLen(1)], [["a"], [2], ["a", 2]]),
        (dict[Literal["x", "y"], bool], [{"x": True, "y": True}, {"x": True, "y": False}, {"x": True}, {"x": False, "y": True},
                                        {"x": False, "y": False}, {"x": False}, {"y": True}, {"y": False}, {}]),
        (Annotated[int, annotated_types.Interval(gt=0, lt=4)], [1, 2, 3]),
        (Annotated[int | None, pydantic.Field(ge=2, le=3)], [2, 3, None]),
        (NamedBox, None),
        (Counted[Literal[1, 2]], None),
    ],
    ids=["set", "frozenset", "dict", "interval", "optional", "generic base", "generic"],
)  # fmt: skip
def test_finite_types_by_hand(kind, values):
    """A set has its members in the order of their type, so that each has one text; an endless list makes a type endless."""
    if values is None:
        with pytest.raises(GrammarError, match="llguidance reads"):
            Grammar.from_type(kind).count()
        return
    assert sorted(Grammar.from_type(kind).expand()) == sorted(json.dumps(value) for value in values)


def test_an_attrs_class_is_its_arguments():
    """Under the names that its initialiser takes; what it makes itself has no place."""
    schema = rules_of_type(Part)
    assert list(schema["properties"]) == ["size", "hidden", "colour"]
    assert schema["required"] == ["size", "hidden"]
    for text in texts_of(Grammar.from_type(Part), 10):
        values = json.loads(text)
        made = Part(**{**values, "colour": Colour(values.get("colour", "red"))})
        assert (type(made.size), type(made._hidden), made.made) == (int, bool, 3)


def test_generic_classes_stand_with_their_arguments():
    """Variables are replaced through bases and inner types; one that nothing is given for is its bound."""
    assert rules_of_type(Rows[bool])["properties"]["item"] == {"type": "array", "items": {"type": "boolean"}}
    schema = rules_of_type(tuple[Counted[bool], Counted, NamedBox])
    counted, bare, box = (
        schema["$defs"][one["$ref"].rpartition("/")[2]]["properties"] for one in schema["prefixItems"]
    )
    assert (counted["n"], bare["n"], box["item"]) == (
        {"type": "boolean"},
        {"type": "integer"},
        {"enum": ["red", "blue", "grey"]},
    )
    inner = counted["inner"]["anyOf"][0]["$ref"].rpartition("/")[2]
    assert schema["$defs"][inner]["properties"]["item"]["prefixItems"] == [{"type": "boolean"}] * 2

    @dataclass
    class Twice(Box[list[T]], Generic[T]):
        other: Optional[T] = None  # noqa: UP045 - as above

    with pytest.raises(GrammarError, match="uses ~T for several types"):
        rules_of_type(list[Twice[int]])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Annotated[str, annotated_types.Ge(3)], "has metadata that is not supported, 'Ge"),
        (Annotated[Colour, annotated_types.MinLen(1)], "has metadata that is not supported, 'MinLen"),
        (Annotated[date, annotated_types.Gt(date(2020, 1, 1))], "has metadata that is not supported, 'Gt"),
        (Annotated[int, annotated_types.Predicate(bool)], "has metadata that is not supported, 'Predicate"),
        (Annotated[int, annotated_types.Ge(float("inf"))], "has metadata that is not supported, 'Ge"),
        (Annotated[int, annotated_types.MultipleOf(2), annotated_types.MultipleOf(3)], "has metadata that is not supported, 'MultipleOf"),
        (Annotated[str, pydantic.Field(alias="x")], "has metadata that is not supported"),
        (Annotated[Decimal, pydantic.Field(max_digits=2)], "a Decimal with max_digits needs decimal_places"),
        (Annotated[int, object()], "has metadata that is not supported, '<object"),
        (pydantic.create_model("Money", price=(pydantic.condecimal(max_digits=2, decimal_places=3), ...)), "needs decimal_places, and no more"),
        (Annotated[str, pydantic.StringConstraints(pattern=ANY_CASE)], r"\^abc\$' has the flags re.IGNORECASE, .* as in \[Aa\]"),
        (pydantic.create_model("Word", word=(Annotated[str, pydantic.Field(pattern=ANY_CASE)], ...)), "has the flags re.IGNORECASE"),
        (Annotated[str, pydantic.StringConstraints(pattern=re.compile(b"a"))], "is a pattern of bytes"),
    ],
    ids=range(13),
)  # fmt: skip
def test_constraints_that_a_grammar_cannot_hold_are_refused(kind, message):
    """By the type and what is said of it."""
    with pytest.raises(GrammarError, match=message):
        rules_of_type(kind)


def test_bounds_greater_than_any_double_are_exact_or_refused():
    """The numbers between two of them are listed, and one that no grammar holds is an error by name."""
    wide = Annotated[int, annotated_types.Ge(10**400), annotated_types.Lt(10**400 + 2)]
    assert Grammar.from_type(wide).listed(2) == (str(10**400), str(10**400 + 1))
    with pytest.raises(GrammarError, match=r"maximum at #: 1000.* is beyond"):
        Grammar.from_type(Annotated[int, annotated_types.Le(10**400)])
    with pytest.raises(GrammarError, match=r"minItems at #: 1000.* more than a grammar can spell out"):
        Grammar.from_type(Annotated[list[int], annotated_types.MinLen(10**400)])


@pytest.mark.parametrize(
    ("kind", "read", "refused"),
    [
        (
            pydantic.HttpUrl,
            ["http://a", "https://www.a-b.com:80/x/y?z=%20#e"],
            ["mailto:x", "ftp://a", "http://", "http://1", "HTTP://a"],
        ),
        (pydantic.UUID4, ["12345678-1234-4234-8234-123456789abc"], ["12345678-1234-1234-8234-123456789abc", "x"]),
        (pydantic.condecimal(max_digits=5, decimal_places=2), [0, -1.5, 999.99], [1000, 1.999, -1000]),
        (pydantic.condecimal(decimal_places=0, lt=3), [2, -5], [3, 1.5]),
        (pydantic.conset(str, min_length=1), [["a"], ["a", "a"]], [[]]),
    ],
    ids=["url", "uuid", "decimal", "places", "set"],
)
def test_types_of_pydantic_by_hand(kind, read, refused):
    """As a type, in a list, in a data class and in a model."""
    holder = pydantic.create_model("Holder", value=(kind, ...))
    for grammar, wraps in (
        (Grammar.from_type(kind), lambda value: value),
        (Grammar.from_type(list[kind]), lambda value: [value]),
        (Grammar.from_type(make_dataclass("Held", [("value", kind)])), lambda value: {"value": value}),
        (Grammar.from_type(holder), lambda value: {"value": value}),
    ):
        assert [value for value in (*read, *refused) if grammar.accepts(json.dumps(wraps(value)))] == read


@pytest.mark.parametrize("kind", [complex, Hashable, Callable, range, slice])
def test_types_of_which_pydantic_says_too_little_are_refused(kind):
    """It has no schema of them, or one that says no more than that they are texts."""
    with pytest.raises(GrammarError, match="is not supported"):
        Grammar.from_type(list[kind])


def test_without_pydantic_its_help_is_not_asked_for(monkeypatch):
    """It is never imported, so a type of the standard library that only it describes is refused."""
    monkeypatch.delitem(sys.modules, "pydantic")
    with pytest.raises(GrammarError, match="the type IPv4Address is not supported"):
        Grammar.from_type(IPv4Address)
    assert "pydantic" not in sys.modules


@pytest.mark.parametrize("values", [(1, "1"), (True, "true"), (None, "null", "x")])
def test_equal_texts_of_a_type_are_an_error(values):
    """As plain text they could not be told apart; as JSON, in a list, they can."""
    kind, members = Literal.__getitem__(values), {f"M{i}": value for i, value in enumerate(values)}
    for one in (kind, Enum("Twice", members)):
        with pytest.raises(GrammarError, match=f"has several values with the text '{values[1]}'; keep one of them"):
            Grammar.from_type(one)
    assert [Grammar.from_type(list[kind]).accepts(json.dumps([value])).verdict for value in values] == ["yes"] * len(
        values
    )


def test_a_grammar_without_rules_says_why_it_is_not_gbnf():
    """A model with few values is; one that llguidance reads names the method."""
    few = pydantic.create_model("Few", a=(bool, ...))
    assert list(Grammar.from_gbnf(Grammar.from_type(few).to_gbnf()).expand()) == ['{"a": true}', '{"a": false}']
    with pytest.raises(GrammarError, match="to_gbnf is not available for Link, because llguidance reads it"):
        Grammar.from_type(Link).to_gbnf()


def test_a_class_is_a_named_tuple_only_where_it_is_a_tuple():
    """A data class may have an attribute of that name."""

    @dataclass
    class Row:
        right: bool
        _fields: ClassVar[tuple[str, ...]] = ("right",)

    assert Grammar.from_type(Row).listed(2) == ('{"right": true}', '{"right": false}')

    class Bare(tuple):
        _fields = ("left",)
        __slots__ = ()

    with pytest.raises(GrammarError, match=r"the type .*Bare is not supported"):
        Grammar.from_type(Bare)


def test_a_pattern_that_was_compiled_is_its_expression():
    """Without flags it says the same as its text."""
    compiled = Annotated[str, pydantic.StringConstraints(pattern=re.compile("^abc$"))]
    assert [text for text in ('"abc"', '"ABC"') if Grammar.from_type(compiled).accepts(text)] == ['"abc"']


def test_a_set_of_bools_is_listed():
    """As one of the members of an `Enum` is: each set has one text, as a type and in a model."""
    texts = ("[]", "[true]", "[false]", "[true, false]")
    assert Grammar.from_type(frozenset[bool]).listed(4) == texts
    model = pydantic.create_model("Seen", seen=(set[bool], ...))
    assert Grammar.from_type(model).listed(4) == tuple(f'{{"seen": {text}}}' for text in texts)


def test_a_set_that_needs_two_members_is_refused():
    """A grammar does not know what it wrote, and one member twice is one."""
    with pytest.raises(GrammarError, match="uniqueItems at #: a grammar can express only unique items of an enum"):
        Grammar.from_type(pydantic.conset(str, min_length=2))


def test_a_trimmed_string_has_no_white_space_at_its_ends():
    """Taking it away would leave a string that may be too short."""
    trimmed = Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=1, pattern="^[a ]*$")]
    grammar = Grammar.from_type(trimmed)
    texts = ['"a"', '"a a"', '"a  a"', '""', '" "', '" a"', '"a "', '"b"']
    assert [text for text in texts if grammar.accepts(text)] == texts[:3]


def test_constraints_meet():
    """Of two bounds the closer one counts; each part of a union takes what is about its type."""
    schema = rules_of_type(
        Annotated[Annotated[int, annotated_types.Ge(1)], annotated_types.Ge(3), annotated_types.Le(9), "documented"]
    )
    assert schema == {"type": "integer", "minimum": 3, "maximum": 9}
    both: Any = Annotated[list[int] | str, annotated_types.MaxLen(2)]
    assert rules_of_type(both) == {
        "anyOf": [{"type": "array", "items": {"type": "integer"}, "maxItems": 2}, {"type": "string", "maxLength": 2}]
    }
