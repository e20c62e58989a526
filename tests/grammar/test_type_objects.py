"""Objects of types from values of JSON, and schemas in which every field is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import pydantic
import pytest
from typing_extensions import NotRequired

from selectrie.grammar import Grammar
from selectrie.grammar.readers.model_schemas import open_sets
from selectrie.grammar.readers.types import object_maker, schema_of_type

T = TypeVar("T")


class Team(Enum):
    DELIVERY = "delivery"
    RETURNS = 2


class Size(NamedTuple):
    wide: bool
    high: bool = False


class Note(TypedDict):
    seen: bool
    by: NotRequired[Team]


@dataclass(frozen=True)
class Box(Generic[T]):
    inside: T
    size: Size


@dataclass(frozen=True)
class Chain:
    end: bool
    next: Chain | None = None


class Plan(pydantic.BaseModel):
    name: Literal["free", "pro"]
    seats: Annotated[int, pydantic.Field(ge=1, le=3, description="How many may use it.")] = 1
    team: Team = Team.DELIVERY

    @pydantic.model_validator(mode="after")
    def few_for_free(self) -> Plan:
        if self.name == "free" and self.seats > 1:
            raise ValueError("a free plan has one seat")
        return self


@dataclass(frozen=True)
class Ticket:
    team: Team = field(metadata={"description": "Who should answer."})
    urgent: Annotated[bool, "Whether it cannot wait."] = False
    tags: tuple[Literal["a", "b"], ...] = ()


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        (Team, "delivery", Team.DELIVERY),
        (Literal[1, True, "1"], True, True),
        (Literal[Team.RETURNS], 2, Team.RETURNS),
        (bool | None, None, None),
        (float, 1, 1.0),
        (Decimal, 0.1, Decimal("0.1")),
        (date, "2024-02-29", date(2024, 2, 29)),
        (time, "10:20:30", time(10, 20, 30)),
        (datetime, "2024-02-29T10:20:30Z", datetime(2024, 2, 29, 10, 20, 30, tzinfo=timezone.utc)),
        (timedelta, "-P1DT2H0.5S", -timedelta(days=1, hours=2, seconds=0.5)),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        (PurePosixPath, "a/b", PurePosixPath("a/b")),
        (bytes, "ä", "ä".encode()),
        (list[Team], [2, 2], [Team.RETURNS, Team.RETURNS]),
        (Sequence[int], [1], [1]),
        (frozenset[str], ["a", "a"], frozenset("a")),
        (tuple[date, int], ["2024-01-01", 3], (date(2024, 1, 1), 3)),
        (dict[Literal["x"], Team], {"x": 2}, {"x": Team.RETURNS}),
        (Size, [True], Size(wide=True)),
        (Note, {"seen": True, "by": 2}, {"seen": True, "by": Team.RETURNS}),
        (Box[Team], {"inside": 2, "size": [True, True]}, Box(Team.RETURNS, Size(wide=True, high=True))),
        (Chain, {"end": False, "next": {"end": True, "next": None}}, Chain(end=False, next=Chain(end=True))),
        (Plan, {"name": "pro", "seats": 2, "team": 2}, Plan(name="pro", seats=2, team=Team.RETURNS)),
        (Box[int] | Plan, {"name": "free", "seats": 1, "team": 2}, Plan(name="free", team=Team.RETURNS)),
        (list[Plan], [{"name": "free"}], [Plan(name="free")]),
        (Any, {"a": [1]}, {"a": [1]}),
        (pydantic.HttpUrl, "https://a.example/", pydantic.HttpUrl("https://a.example/")),
    ],
    ids=str,
)
def test_values_of_json_make_objects(kind, value, made):
    """Each value of JSON becomes the object that the type stands for, of the same class."""
    got = object_maker(kind)(value)
    assert got == made
    assert type(got) is type(made)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Team, "other"),
        (Literal[1], True),
        (int, True),
        (date, "2023-02-29"),
        (timedelta, "1 day"),
        (Team | date, "neither"),
        (Plan, {"name": "free", "seats": 2}),
    ],
    ids=str,
)
def test_other_values_are_refused(kind, value):
    """A value that the type does not have, or that its code refuses, raises an error."""
    with pytest.raises((ValueError, TypeError)):
        object_maker(kind)(value)


@pytest.mark.parametrize("kind", [Ticket, Box[Team], Plan, Note, Size], ids=str)
def test_every_text_of_a_whole_schema_makes_one_object(kind):
    """The texts of a type in which every field is written are one for each object."""
    texts = Grammar.from_json_schema(open_sets(schema_of_type(_bounded(kind), is_whole=True))).listed(1000)
    make, values = object_maker(kind), [json.loads(text) for text in texts]
    if kind is Plan:
        values = [one for one in values if one["name"] != "free" or one["seats"] == 1]
    objects = [make(one) for one in values]
    assert len(objects) == {Ticket: 4 * 7, Box[Team]: 8, Plan: 8, Note: 6, Size: 4}[kind]
    assert all(objects.index(one) == at for at, one in enumerate(objects))


def _bounded(kind):
    """`Ticket` with at most two tags, since a tuple of any length has no list of values."""
    if kind is not Ticket:
        return kind

    @dataclass(frozen=True)
    class Bounded(Ticket):
        tags: Annotated[tuple[Literal["a", "b"], ...], pydantic.Field(max_length=2)] = ()

    return Bounded


def test_fields_have_their_descriptions():
    """What a class says about its fields is in the schema, whatever kind of class it is."""
    ticket, plan = (schema_of_type(kind, is_whole=True)["properties"] for kind in (Ticket, Plan))
    assert [one.get("description") for one in ticket.values()] == [
        "Who should answer.",
        "Whether it cannot wait.",
        None,
    ]
    assert plan["seats"]["description"] == "How many may use it."
    assert "description" not in schema_of_type(Ticket)["properties"]["team"]
