"""What types consist of: the fields of classes, and values that can be listed."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import attrs
import hypothesis.strategies as st
import pydantic
import pytest
from hypothesis import given

from selectrie import Grammar
from selectrie.errors import GrammarError
from selectrie.grammar.readers.type_parts import fields_of, metadata_of, values_of

T = TypeVar("T")


class Team(enum.Enum):
    """Two teams."""

    SALES = "sales"
    POST = "post"


class Rights(enum.Flag):
    """Members that may be combined."""

    READ = 1
    WRITE = 2


class Empty(enum.Enum):
    """No members."""


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Team, (Team.SALES, Team.POST)),
        (Literal["a", 1, True] | None, ("a", 1, True, None)),
        (Literal[Team.POST], (Team.POST,)),
        (bool, (True, False)),
        (None, (None,)),
        (Team | None, (Team.SALES, Team.POST, None)),
        (bool | Literal["maybe"], (True, False, "maybe")),
        (Literal["a", "b"] | Literal["b", "c"], ("a", "b", "c")),  # noqa: PYI030 - both name "b"
        (Annotated[Literal["a"], "words", 7], ("a",)),
        (Annotated[int, pydantic.Field(ge=1, le=3)], (1, 2, 3)),
        (pydantic.conint(gt=1, lt=4), (2, 3)),
        (Annotated[int, pydantic.Field(ge=0, le=10, multiple_of=5)], (0, 5, 10)),
        (Annotated[int | None, pydantic.Field(ge=1), pydantic.Field(le=2)], (1, 2, None)),
        (Annotated[int, pydantic.Field(ge=1), pydantic.Field(ge=3), pydantic.Field(le=4)], (3, 4)),
    ],
)
def test_values_in_the_order_of_the_type(kind, values):
    """A type with finitely many scalar values lists them, each once, of the types that they have."""
    found = values_of(kind, 100)
    assert found == values
    assert [type(one) for one in found] == [type(one) for one in values]


@pytest.mark.parametrize(
    "kind",
    [
        str,
        int,
        float,
        Any,
        list[bool],
        tuple[bool, bool],
        str | None,
        Team | int,
        Rights,
        Annotated[int, pydantic.Field(ge=1)],
        Annotated[int, pydantic.Field(ge=1), pydantic.Field(le=101)],
        Annotated[int, pydantic.Field(ge=3), pydantic.Field(le=1)],
        Annotated[int, pydantic.Field(ge=0.5), pydantic.Field(le=2)],
        Annotated[float, pydantic.Field(ge=1), pydantic.Field(le=2)],
    ],
)
def test_open_types_have_no_values(kind):
    """A type whose values cannot be listed, or of more whole numbers than wanted, gives None."""
    assert values_of(kind, 100) is None


def test_an_enum_without_members_is_refused():
    """Nothing can be listed of it, and it is not open either."""
    with pytest.raises(GrammarError, match="Empty has no members"):
        values_of(Empty, 100)


@given(
    st.lists(
        st.tuples(st.sampled_from(["ge", "gt", "le", "lt", "multiple_of"]), st.integers(-6, 6)).filter(
            lambda one: one[0] != "multiple_of" or one[1] > 0
        ),
        max_size=5,
    )
)
def test_whole_numbers_are_those_that_keep_every_bound(bounds):
    """All of -30 to 30 that keep each bound, if there are bounds on both sides."""
    keeps = {
        "ge": lambda n, b: n >= b,
        "gt": lambda n, b: n > b,
        "le": lambda n, b: n <= b,
        "lt": lambda n, b: n < b,
        "multiple_of": lambda n, b: n % b == 0,
    }
    kind = int
    for name, bound in bounds:
        kind = Annotated[kind, pydantic.Field(**{name: bound})]
    names = {name for name, _ in bounds}
    slow = [n for n in range(-30, 31) if all(keeps[name](n, bound) for name, bound in bounds)]
    is_bounded = names & {"ge", "gt"} and names & {"le", "lt"}
    assert values_of(kind, 1000) == (tuple(slow) or None if is_bounded else None)


@dataclass
class Plain(Generic[T]):
    """A data class."""

    team: Team
    what: Annotated[T, "words"]
    angry: bool = field(default=False, metadata={"description": "is angry"})
    made: int = field(init=False, default=0)


@attrs.define
class Attributes:
    """An attrs class."""

    _team: Team
    angry: bool = attrs.field(default=True, metadata={"description": "is angry"})


class Keys(TypedDict, total=False):
    """A typed dictionary."""

    team: Team
    angry: bool


class Items(NamedTuple):
    """A named tuple."""

    team: Team
    angry: bool = False


class Model(pydantic.BaseModel):
    """A pydantic model."""

    model_config = pydantic.ConfigDict(use_attribute_docstrings=True)
    team: Team = pydantic.Field(description="who answers", alias="for")
    angry: Annotated[bool, "words"] = False
    """is angry"""
    urgency: int = pydantic.Field(ge=1, le=5, validation_alias=pydantic.AliasChoices("u", "v"))


@pydantic.dataclasses.dataclass
class Mixed:
    """A data class of pydantic."""

    team: Team
    angry: bool = pydantic.Field(default=False, description="is angry")
    made: int = pydantic.Field(default=0, init=False)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Plain[bool], [("team", "team", "", True), ("what", "what", "", True), ("angry", "angry", "is angry", False)]),
        (Attributes, [("_team", "team", "", True), ("angry", "angry", "is angry", False)]),
        (Keys, [("team", "team", "", False), ("angry", "angry", "", False)]),
        (Items, [("team", "team", "", True), ("angry", "angry", "", False)]),
        (
            Model,
            [
                ("team", "for", "who answers", True),
                ("angry", "angry", "is angry", False),
                ("urgency", "u", "", True),
            ],
        ),
        (Mixed, [("team", "team", "", True), ("angry", "angry", "is angry", False)]),
    ],
)
def test_fields_of_each_kind_of_class(kind, fields):
    """Fields have name, argument and description; the class makes an object of values that they list."""
    found = fields_of(kind)
    assert [(one.name, one.argument, one.description, one.is_required) for one in found] == fields
    values = {one.argument: values_of(one.kind, 100)[-1] for one in found}
    made = kind(**values)
    read = made if isinstance(made, dict) else {one.name: getattr(made, one.name) for one in found}
    assert list(read.values()) == list(values.values())


class Early(pydantic.BaseModel):
    """A model that names a later one."""

    later: Later


class Later(pydantic.BaseModel):
    """The later one."""

    unknown: Unknown  # noqa: F821 - not known


def test_a_model_may_name_a_later_one_but_none_that_is_unknown():
    """Models are completed before they are read; a name that nothing defines is in the error."""
    with pytest.raises(GrammarError, match=r"annotations of Early cannot be resolved.*Unknown"):
        fields_of(Early)
    Later.model_rebuild(_types_namespace={"Unknown": bool})
    assert [one.kind for one in fields_of(Early)] == [Later]


def test_metadata_of_fields():
    """Metadata is that of `Annotated`, for pydantic models too, also within marks such as `Required`."""
    assert [metadata_of(one.kind) for one in fields_of(Plain[bool])] == [(), ("words",), ()]
    assert metadata_of(fields_of(Model)[1].kind) == ("words",)
    assert values_of(fields_of(Model)[2].kind, 5) == (1, 2, 3, 4, 5)


@pytest.mark.parametrize("kind", [str, bool, Team, list[int], dict[str, int], Items | None, Any, None])
def test_other_types_have_no_fields(kind):
    """Only classes with fields have fields."""
    assert fields_of(kind) is None


@pytest.mark.parametrize("kind", [Model, Plain[bool]])
def test_values_of_fields_are_those_of_the_grammar(kind):
    """The texts of the grammar with every field are as many as the products of the fields' values, and have them."""
    fields = fields_of(kind)
    texts = [json.loads(text) for text in Grammar.from_type(kind).expand()]
    whole = [one for one in texts if len(one) == len(fields)]
    assert len(whole) == math.prod(len(values_of(one.kind, 100)) for one in fields)
    for one in fields:
        own = {value.value if isinstance(value, enum.Enum) else value for value in values_of(one.kind, 100)}
        assert {text[one.argument] for text in whole} == own
