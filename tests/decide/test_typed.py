"""Types as questions: what is asked of each type, and the object that the answers make."""

from __future__ import annotations

import asyncio
import enum
import pickle
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import attrs
import hypothesis.strategies as st
import numpy as np
import pydantic
import pytest
from hypothesis import given, settings

from selectrie import (
    Choice,
    DecisionParams,
    Grammar,
    Option,
    Predicate,
    Score,
    SelectrieError,
)
from selectrie.decide.typed import parse_questions
from selectrie.errors import IncompatibleOptionsError
from tests.support.deciding import STATE, fake

T = TypeVar("T")
LEVELS = {1: "1", 2: "2", 3: "3"}


class Team(enum.Enum):
    """Which team
    should answer?

    Not read.
    """

    SALES = "sales"
    POST = "post"


class OrderStatus(str, enum.Enum):
    SENT = "sent"
    LOST = "lost"


class Address(pydantic.BaseModel):
    """Where a customer lives."""

    country: Literal["France", "Spain"]


class Model(pydantic.BaseModel):
    """A model."""

    team: Team
    status: OrderStatus = pydantic.Field(description="Where is the parcel?", alias="state of it")
    angry: bool
    urgency: int = pydantic.Field(ge=1, le=3)
    plan: Literal["free", "pro"] | None = None
    address: Address = pydantic.Field(description="Of the sender")


@pydantic.dataclasses.dataclass(kw_only=True)
class Checked:
    """A data class of pydantic."""

    team: Team
    status: OrderStatus = pydantic.Field(description="Where is the parcel?")
    angry: bool
    urgency: int = pydantic.Field(ge=1, le=3)
    plan: Literal["free", "pro"] | None
    address: Annotated[Address, "Of the sender"]


@dataclass
class Plain:
    """A data class."""

    team: Team
    status: OrderStatus = field(metadata={"description": "Where is the parcel?"})
    angry: bool
    urgency: Annotated[int, pydantic.Field(ge=1, le=3)]
    plan: Literal["free", "pro"] | None
    address: Annotated[Address, pydantic.Field(description="Of the sender")]
    made: str = field(init=False, default="")


@attrs.frozen
class Attributes:
    """An attrs class."""

    _team: Team
    status: OrderStatus = attrs.field(metadata={"description": "Where is the parcel?"})
    angry: bool
    urgency: Annotated[int, pydantic.Field(ge=1, le=3)]
    plan: Literal["free", "pro"] | None
    address: Annotated[Address, "Of the sender"]


class Keys(TypedDict, total=False):
    """A typed dictionary."""

    team: Team
    status: Annotated[OrderStatus, "Where is the parcel?"]
    angry: bool
    urgency: Annotated[int, pydantic.Field(ge=1, le=3)]
    plan: Literal["free", "pro"] | None
    address: Annotated[Address, "Of the sender"]


class Items(NamedTuple):
    """A named tuple."""

    team: Team
    status: Annotated[OrderStatus, "Where is the parcel?"]
    angry: bool
    urgency: Annotated[int, pydantic.Field(ge=1, le=3)]
    plan: Literal["free", "pro"] | None
    address: Annotated[Address, "Of the sender"]


CLASSES = [Model, Checked, Plain, Attributes, Keys, Items]
EXPLICIT = {
    "team": Choice("Which team should answer?", [Team.SALES, Team.POST]),
    "status": Choice("Where is the parcel?", [OrderStatus.SENT, OrderStatus.LOST]),
    "angry": Predicate("Angry."),
    "urgency": Score("What is the urgency?", LEVELS),
    "plan": Choice("What is the plan?", ["free", "pro", Option(None, "none")]),
    "address.country": Choice("Of the sender: What is the country?", ["France", "Spain"]),
}


def read(made: Any, name: str) -> Any:
    """The value of a field of an object or dictionary."""
    for step in name.split("."):
        made = made[step] if isinstance(made, dict) else getattr(made, step)
    return made


@pytest.mark.parametrize("kind", CLASSES)
def test_a_class_asks_what_its_fields_say_and_is_made_of_the_answers(kind):
    """Each kind of class asks the same questions; each field has the value of its own answer, to the bit."""
    with fake() as llm:
        decision, explicit = llm.decide(STATE, kind), llm.decide(STATE, EXPLICIT)
    renamed = {name.lstrip("_"): one for name, one in parse_questions(kind).items()}
    assert renamed == EXPLICIT
    assert list(decision.answers.values()) == list(explicit.answers.values())
    made = decision.value
    assert type(made) is (dict if kind is Keys else kind)
    for name, answer in decision.items():
        best = max(answer.probabilities, key=answer.probabilities.__getitem__)
        assert read(made, name) == answer.value == best
        assert type(read(made, name)) is type(answer.value)
    assert isinstance(read(made, "address"), Address)
    assert pickle.loads(pickle.dumps(decision)).value == made  # noqa: S301


def test_questions_by_name_have_a_dictionary_of_values():
    """`value` of a mapping has its keys, with the objects of classes in it."""
    asked = {"who": Team, "where": ["here", "there"], "sender": Address, "score": Score("How?", LEVELS), "angry": bool}
    explicit = {
        "who": Choice("Which team should answer?", Team),
        "where": Choice("What is the where?", ["here", "there"]),
        "sender.country": Choice("Sender: What is the country?", ["France", "Spain"]),
        "score": Score("How?", LEVELS),
        "angry": Predicate("Angry."),
    }
    with fake() as llm:
        decision, plain = llm.decide(STATE, asked), llm.decide(STATE, explicit)
    assert decision.answers == plain.answers
    values = {name: answer.value for name, answer in plain.items()}
    assert plain.value == values
    assert decision.value == {name: values.get(name) for name in asked} | {
        "sender": Address(country=values["sender.country"])
    }


@dataclass
class Box(Generic[T]):
    """A generic class."""

    what: T


Intent = NewType("Intent", OrderStatus)


@pytest.mark.parametrize(
    ("kind", "question"),
    [
        (Team, EXPLICIT["team"]),
        (Team | None, Choice("Which team should answer?", [Team.SALES, Team.POST, Option(None, "none")])),
        (OrderStatus, Choice("What is the order status?", OrderStatus)),
        (Intent, Choice("What is the order status?", OrderStatus)),
        (Literal["a", 2], Choice("", ["a", 2])),
        (Annotated[Literal["a", "b"], "  Which?\n  Say it. "], Choice("Which?\nSay it.", ["a", "b"])),
        (Annotated[Literal["a"], pydantic.Field(description="Which?")], Choice("Which?", ["a"])),
        (Annotated[Literal["a", "b"], Option("b", "B", "the other")], Choice("", ["a", Option("b", "B", "the other")])),
        (Annotated[Team | None, Option(None, "nobody")], Choice("Which team should answer?", [*Team, Option(None, "nobody")])),
        (Annotated[bool, "It is late."], Predicate("It is late.")),
        (Annotated[bool | None, "It is late."], Choice("Is this true of the text? It is late.", [Option(True, "yes"), Option(False, "no"), Option(None, "none")])),
        (Annotated[bool | Literal["maybe"], "It is late."], Choice("Is this true of the text? It is late.", [Option(True, "yes"), Option(False, "no"), "maybe"])),
        (Annotated[bool, Predicate("p", yes="ja", no="nein")], Predicate("p", yes="ja", no="nein")),
        (Annotated[str, Choice("Which?", ["a", "b"])], Choice("Which?", ["a", "b"])),
        (Annotated[int, Score("How?", ["low", "high"])] | None, Score("How?", ["low", "high"])),
        (Annotated[int, "How?", pydantic.Field(ge=1, le=3)], Score("How?", LEVELS)),
        (Annotated[int | None, pydantic.Field(ge=1, le=2)], Choice("", [1, 2, Option(None, "none")])),
        (Literal[1, 2], Choice("", [1, 2])),
        (["a", Option(2, "b")], Choice("", ["a", Option(2, "b")])),
        (("a", "b"), Choice("", ["a", "b"])),
        (np.array(["a", "b"]), Choice("", ["a", "b"])),
        (range(3), Choice("", [0, 1, 2])),
        (Choice("q", ["a"]), Choice("q", ["a"])),
    ],
)  # fmt: skip
def test_what_a_type_alone_asks(kind, question):
    """A question alone has the name "", and each form of it the words that are said about it."""
    assert parse_questions(kind, may_be_one=True) == {"": question}


@pytest.mark.parametrize(
    ("given", "questions"),
    [
        ({"is_late": bool}, {"is_late": Predicate("Is late.")}),
        ({"orderStatus": ["a"]}, {"orderStatus": Choice("What is the order status?", ["a"])}),
        ({"Is it late?": ["a"], "It is late.": bool}, {"Is it late?": Choice("Is it late?", ["a"]), "It is late.": Predicate("It is late.")}),
        ({"late": {"a": "x"}}, {"late": Choice("What is the late?", [Option("a", description="x")])}),
        (Box[Team], {"what": EXPLICIT["team"]}),
        (Box[bool], {"what": Predicate("What.")}),
        ({"box": Box[Box[bool]]}, {"box.what.what": Predicate("Box: What: What.")}),
    ],
)  # fmt: skip
def test_names_are_the_words_where_nothing_else_is_said(given, questions):
    """An identifier is spoken, another text is taken as it is, and classes around a field lead."""
    assert parse_questions(given) == questions


@dataclass
class Open:
    """A class with an open field."""

    team: Team
    name: str


@dataclass
class Outer:
    """A class around it."""

    inner: Open


@dataclass
class Loop:
    """A class that contains itself."""

    loop: Loop


class Pair(NamedTuple):
    """Two numbers, for an object that is also a list."""

    first: int
    second: int


@dataclass
class Sender:
    """A class with a default, for an object of it."""

    country: str = "France"


class Nothing(TypedDict):
    """No fields."""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Open, "Open.name: type=<class 'str'>: expected a type whose values can be listed"),
        (Outer, "Outer.inner.name: type=<class 'str'>"),
        ({"ticket": Open}, "questions['ticket'].name: type=<class 'str'>"),
        ({"x": int}, "questions['x']: type=<class 'int'>"),
        (str, "type=<class 'str'>: expected a type whose values can be listed (Enum,"),
        (str, "`extract` finds values of open types"),
        (list[Team], "type=list[tests.decide.test_typed.Team]: expected a type whose"),
        (Open | None, "type=tests.decide.test_typed.Open | None: expected a type whose"),
        (Annotated[int, pydantic.Field(ge=0, le=101)], "at most 101 ints between bounds"),
        (bool, 'type=<class \'bool\'>: expected a statement: Predicate(…), Annotated[bool, "The customer is angry."]'),
        (bool | None, "type=bool | None: expected a statement"),
        (Annotated[bool, "x", Option(True, "ja")], "expected Annotated[bool, Predicate(…), which words yes and no]"),
        (Annotated[int, pydantic.Field(ge=0, le=1), Option(0, "low")], "expected Annotated[int, Score(…), which has"),
        (Annotated[Team, Option("sales", "x")], "metadata=Option(value='sales'"),
        (Annotated[Literal["a", "none"] | None, "x"], "its text equals that of choice 1"),
        ({"x": "What?"}, "questions['x']='What?': expected Predicate('What?') for yes or no, Choice('What?', options)"),
        ("What?", "questions='What?': expected Predicate('What?') for yes or no"),
        (Sender(), "expected the class Sender itself, not an object of it"),
        (Pair(1, 2), "expected the class Pair itself, not an object of it"),
        (5, "questions=5: expected a Choice"),
        (None, "questions is not given; give a Choice"),
        ([], "no options given"),
        ({"a", "b"}, "such as `sorted(…)` of the set"),
        ([Predicate("x")], "questions=[Predicate("),
        (["Is it rude?", "Is it late?"], "expected a mapping from names to questions"),
        ({"x": [bool]}, "questions['x']=[<class 'bool'>]: expected a mapping from names"),
        ({"x": {"a": bool}}, "questions['x']: options['a']=<class 'bool'>"),
        ({}, "questions={}: expected at least one question"),
        ({" ": bool}, "questions=' ': expected names that are texts"),
        ({1: bool}, "questions=1: expected names that are texts"),
        ({"a.team": bool, "a": Open}, "questions='a.team': expected names that differ"),
        (Loop, "expected classes nested at most 16 deep"),
        (Nothing, "expected a class with fields"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_named(given, message):
    """One error of ours, which names the field and what it may be."""
    with pytest.raises(SelectrieError) as caught:
        parse_questions(given, may_be_one=True)
    assert message in str(caught.value)


def test_a_class_that_refuses_the_values_together_is_an_error_of_the_value():
    """The answers are there all the same; `value` says what the class says."""

    class Strict(pydantic.BaseModel):
        team: Team

        @pydantic.field_validator("team")
        @classmethod
        def refuse(cls, team: Team) -> Team:
            raise ValueError(f"not {team.value}")

    with fake() as llm:
        decision = llm.decide(STATE, Strict)
    assert decision["team"].value in Team
    with pytest.raises(SelectrieError, match=r"value=\{'team': .*expected values that Strict takes; it says: 1 valid"):
        _ = decision.value


def test_all_doors_read_questions_alike():
    """Many, iterated, awaited, scored in units, calibrated, shown and tabled: each as `decide` of the questions."""
    states = [STATE, "Thanks!"]

    async def awaited() -> list[Any]:
        return [await llm.adecide(STATE, Model), *[one async for one in llm.adecide_iter(states, Team)]]

    with fake() as llm:
        whole = [llm.decide(state, EXPLICIT) for state in states]
        alone = [llm.decide(state, EXPLICIT["team"]) for state in states]
        values = [llm.decide(state, Model).value for state in states]
        assert [one.value for one in llm.decide_many(states, Model)] == values
        assert [one.value for one in llm.decide_iter(states, Model, on_error="keep")] == values
        assert [one.answers for one in llm.decide_many(states, Model)] == [one.answers for one in whole]
        assert llm.decide_many(states, Team) == list(llm.decide_iter(states, Team)) == alone
        first, *rest = asyncio.run(awaited())
        assert (first.value, rest) == (values[0], alone)
        with llm.decision_scorer(Model) as scorer:
            assert [one.value for one in scorer.decisions(states)] == values
        params = DecisionParams(calibration=llm.fit_calibration(states, Team))
        assert params == DecisionParams(calibration=llm.fit_calibration(states, EXPLICIT["team"]))
        assert llm.decide(STATE, Team, params=params) == llm.decide(STATE, EXPLICIT["team"], params=params)
        assert llm.decision_prompts(STATE, Model) == llm.decision_prompts(STATE, EXPLICIT)
        assert llm.decision_prompts(STATE, Team)[""] == llm.decision_prompts(STATE, EXPLICIT["team"])[""]
        assert llm.decide(STATE, Grammar.from_choices(["a", "b"])).value in ("a", "b")


def test_a_calibration_is_fitted_to_the_batch_of_a_type():
    """`calibration="batch"` fits one to the states of a question alone, and of a class, as to those of questions."""
    states, params = [f"{STATE} {n}" for n in range(16)], DecisionParams(calibration="batch")
    with fake() as llm:
        alone = llm.decide_many(states, Team, params=params)
        assert alone == llm.decide_many(states, EXPLICIT["team"], params=params)
        typed = llm.decide_many(states, Address, params=params)
        plain = llm.decide_many(states, {"country": Choice("What is the country?", ["France", "Spain"])}, params=params)
    assert {one.signature.calibration for one in alone} != {""}
    assert [one.answers for one in typed] == [one.answers for one in plain]


def test_a_table_has_a_column_for_each_field():
    """Columns have the names of fields; a question without a name has no column."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"body": [STATE, "Thanks!"]})
    with fake() as llm:
        decided = llm.decide_table(table, Model, state="body")
        plain = llm.decide_table(table, EXPLICIT, state="body")
        with pytest.raises(SelectrieError, match="expected a mapping from names to questions, or a class with fields"):
            llm.decide_table(table, Team, state="body")
    assert decided.equals(plain)
    assert {"team", "plan_probability", "address.country"} <= set(decided.columns)


def test_errors_of_states_are_kept_in_decisions_only():
    """An answer has no place for an error, so one question alone must raise; `value` raises a kept error."""
    with fake() as llm:
        kept = llm.decide_many([STATE, ""], Model, on_error="keep")[1]
        with pytest.raises(SelectrieError, match="expected a state that is not blank"):
            _ = kept.value
        with pytest.raises(IncompatibleOptionsError, match="one question alone; give it a name"):
            llm.decide_many([STATE, ""], Team, on_error="keep")


@settings(max_examples=12)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{2,4}_[a-z]{2}", fullmatch=True),
        st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True),
        min_size=1,
        max_size=3,
    )
)
def test_any_literals_give_the_most_probable_values(fields):
    """Of any data class of literals, each field is the option of largest probability among explicit questions."""
    kind = make_dataclass("Made", [(name, Literal[tuple(options)]) for name, options in fields.items()])
    explicit = {name: Choice(f"What is the {name.replace('_', ' ')}?", options) for name, options in fields.items()}
    with fake() as llm:
        decision, answers = llm.decide(STATE, kind), llm.decide(STATE, explicit).answers
    assert decision.answers == answers
    assert vars(decision.value) == {name: answer.value for name, answer in answers.items()}
