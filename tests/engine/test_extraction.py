"""Extraction on fakes: equal to brute force over the listed values, bounds for open fields, errors by name."""

from __future__ import annotations

import asyncio
import json
import math
import pickle
from collections import namedtuple
from dataclasses import dataclass, make_dataclass, replace
from datetime import date
from enum import Enum
from itertools import product
from typing import Annotated, Literal, NamedTuple, TypedDict

import attrs
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import BeamSearchParams, DecisionParams, SearchParams
from selectrie.decide.extraction import ExtractionOptions, extracted_type, searched_marginals
from selectrie.engine.extraction import Extractor
from selectrie.errors import (
    GrammarError,
    IncompatibleOptionsError,
    NothingFoundError,
    OptionError,
    PromptTooLongError,
)
from selectrie.grammar import Grammar
from tests.support.deciding import STATE, fake
from tests.support.n_examples import n_examples

EXACT = SearchParams(stop="all")


class Team(Enum):
    POST = "post"
    SHOP = "shop"


@dataclass(frozen=True)
class Ticket:
    team: Team
    urgent: bool
    mood: Literal["good", "bad", "so-so"] | None


class Card(pydantic.BaseModel):
    kind: Literal["card"]
    digits: Annotated[int, pydantic.Field(ge=1, le=3)]


class Cash(pydantic.BaseModel):
    kind: Literal["cash"]


class Order(pydantic.BaseModel):
    paid: Annotated[Card | Cash, pydantic.Field(discriminator="kind")]
    open: bool = True


Name = Annotated[str, pydantic.Field(pattern="^[A-C][a-c]{1,3}$")]


class Note(TypedDict):
    name: Name
    urgent: bool


class Pair(NamedTuple):
    left: Literal[1, 2]
    right: bool


@pytest.fixture(scope="module")
def llm():
    """A fake with a chat template."""
    with fake() as engine:
        yield engine


def brute_force(llm, kind, state=STATE, texts=()):
    """The probability of each text among all, each scored alone after the prompt that `extract` writes."""
    asked = extracted_type(kind)
    options = ExtractionOptions.of("")
    maker = llm._prepare_only(lambda model: Extractor.of(model, asked, options)).maker
    prepared = maker.tokenize(state)[""][0]
    selections = [
        llm.select(prepared.prompt, [text], terminator="eog", prompting=prepared.request.prompting)
        for text in texts or asked.texts
    ]
    total = math.fsum(math.exp(one.logp) for one in selections)
    return {one.text: math.exp(one.logp) / total for one in selections}, total


@pytest.mark.parametrize(
    "kind", [Ticket, Order, Pair, list[Pair], Annotated[list[Team], pydantic.Field(max_length=2)]], ids=str
)
def test_listed_values_are_those_of_brute_force(llm, kind):
    """Each value has the share that its text has when every text is scored alone, and the best one wins."""
    if kind == list[Pair]:
        kind = Annotated[list[Pair], pydantic.Field(max_length=1)]
    found = llm.extract(STATE, kind, search=EXACT)
    shares, total = brute_force(llm, kind)
    assert found.coverage == pytest.approx(total)
    assert {one.text: one.probability for one in found.top(100)} == pytest.approx(shares)
    assert found.text == max(shares, key=shares.__getitem__)
    assert extracted_type(kind).value(found.text) == found.value
    for name, marginal in found.marginals.items():
        sums = {}
        for text, share in shares.items():
            fields = extracted_type(kind).fields(text)
            if name in fields:
                sums[fields[name]] = sums.get(fields[name], 0.0) + share
        assert dict(marginal) == pytest.approx(sums)
        assert marginal.is_exact
        assert marginal.value == max(sums, key=sums.__getitem__)


@settings(max_examples=n_examples(12))
@given(seed=st.integers(0, 1000), sharpness=st.sampled_from([0.5, 2.0, 4.0]), mass=st.sampled_from([None, 0.3, 0.9]))
def test_a_search_finds_the_best_and_bounds_the_rest(seed, sharpness, mass):
    """Whatever a search leaves open, its value is the best one, and every bound holds the exact number."""
    search = SearchParams(width=1) if mass is None else SearchParams(stop="mass", mass=mass, width=1)
    with fake(seed, sharpness=sharpness) as llm:
        exact, found = (llm.extract(STATE, Ticket, search=one) for one in (EXACT, search))
    assert (found.value, found.is_proved) == (exact.value, True)
    exactly = {one.text: one.probability for one in exact.top(100)}
    for one in found.top(100):
        assert one.probability_low * (1 - 1e-9) <= exactly[one.text] <= one.probability_high * (1 + 1e-9)
    for name, marginal in found.marginals.items():
        assert math.fsum(marginal.values()) == pytest.approx(1.0)
        for value, share in exact.marginals[name].items():
            assert marginal.low[value] - 1e-9 <= share <= marginal.high[value] + 1e-9
            assert marginal.low[value] <= marginal[value] <= marginal.high[value]
    if mass is not None:
        widths = [
            high - marginal.low[value] for marginal in found.marginals.values() for value, high in marginal.high.items()
        ]
        assert max(widths) <= 1 - mass + 1e-9


@settings(max_examples=n_examples(8))
@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3), optional=st.booleans(), seed=st.integers(0, 99))
def test_fields_keep_their_order_and_texts_their_values(sizes, optional, seed):
    """A made class of listed fields: all combinations in order, `json.dumps` layout, and a sum of one for each field."""
    names = ["zeta", "alpha", "mid"][: len(sizes)]
    kinds = {name: Literal[tuple(f"{name}{at}" for at in range(n))] for name, n in zip(names, sizes, strict=True)}
    kind = pydantic.create_model(
        "Made", **{name: (one | None if optional else one, ...) for name, one in kinds.items()}
    )
    with fake(seed) as llm:
        found = llm.extract(STATE, kind, search=EXACT)
    columns = [[f"{name}{at}" for at in range(n)] + [None] * optional for name, n in zip(names, sizes, strict=True)]
    values = [dict(zip(names, row, strict=True)) for row in product(*columns)]
    assert list(found.selection.choices.texts) == [json.dumps(one) for one in values]
    assert [one.model_dump() for one in found.values] == values
    assert list(found.marginals) == names
    for marginal in found.marginals.values():
        assert math.fsum(marginal.values()) == pytest.approx(1.0)


FIELDS = {"left": Literal[1, 2], "right": bool}
CLASSES = [
    Pair,
    namedtuple("Plain", "left right", defaults=(False,)),  # noqa: PYI024 - the untyped kind
    make_dataclass("Data", FIELDS.items()),
    attrs.make_class("Attrs", {name: attrs.field(type=kind) for name, kind in FIELDS.items()}),
    pydantic.create_model("Model", **FIELDS),
    pydantic.dataclasses.dataclass(make_dataclass("Checked", FIELDS.items())),
    TypedDict("Typed", FIELDS),
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_fields_of_every_kind_of_class_have_their_names(kind):
    """At the top, in another class, and as one of several types."""
    if kind.__name__ == "Plain":  # of any types
        assert extracted_type(kind).fields("[1, true]") == {"left": 1, "right": True}
        return
    asked = extracted_type(kind)
    assert {name: one.keys for name, one in asked.columns.items()} == {"left": (1, 2), "right": (True, False)}
    outer = extracted_type(make_dataclass("Outer", [("inner", kind | None), ("open", bool)]))
    assert {name: len(one.keys) for name, one in outer.columns.items()} == {
        "inner.left": 2,
        "inner.right": 2,
        "inner": 1,
        "open": 2,
    }


def test_arrays_that_are_no_named_tuples_are_values():
    """Of a union, the type that takes the array decides; arrays in arrays have no names."""
    either = extracted_type(Pair | tuple[Literal["x"], bool])
    assert either.fields("[2, true]") == {"left": 2, "right": True}
    assert either.fields('["x", true]') == {}
    assert extracted_type(make_dataclass("Outer", [("all", list[Pair])])).fields('{"all": [[1, true]]}') == {
        "all": ((1, True),)
    }


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        ([1, True, "é"], ["1", "true", "é"]),
        ([0, False, 0.5, "x"], ["0", "false", 0.5, "x"]),
        ([1, True, "1"], ["1", "true", '"1"']),
        ([[1], [True], [2]], ["[1]", "[true]", (2,)]),
        ([1, 2, "é"], [1, 2, "é"]),
    ],
    ids=str,
)
def test_values_that_are_equal_in_python_have_marginals_apart(llm, values, keys):
    """JSON texts take the place of equal keys, and of all keys if such a text is a key already."""
    schema = {
        "type": "object",
        "properties": {"x": {"enum": values}, "name": {"type": "string", "pattern": "^[ab]$"}},
        "required": ["x", "name"],
        "additionalProperties": False,
    }
    listed = extracted_type({**schema, "properties": {"x": schema["properties"]["x"]}, "required": ["x"]})
    assert list(listed.columns["x"].keys) == keys
    kind = extracted_type(schema)
    found = [(kind.field_values(json.dumps({"x": one, "name": "a"})), 0.5**at) for at, one in enumerate(values, 1)]
    assert searched_marginals([*found, *found[:1]])["x"].low == {
        key: 0.5**at * (1 + (at == 1)) for at, key in enumerate(keys, 1)
    }


def test_members_of_an_enum_stay_keys_beside_equal_ones(llm):
    """Only the keys that are equal become texts."""
    mixed = make_dataclass("Mixed", [("x", Literal[1, True] | Color)])
    found = llm.extract("it is red", mixed)
    assert set(found.marginals["x"]) == {"1", "true", Color.RED, Color.BLUE}


def test_each_alternative_of_a_named_tuple_is_searched_for(llm):
    """A field with few values is named, with all of them, beside an open one."""

    class Named(NamedTuple):
        name: Name
        urgent: bool

    found = llm.extract(STATE, Named, beam=BeamSearchParams(width=4, n=4, max_tokens=64))
    assert isinstance(found.value, Named)
    assert set(found.marginals["urgent"]) == {True, False}
    assert found.marginals["name"].value == found.value.name


def test_values_that_the_type_refuses_are_no_candidates(llm):
    """A validator leaves out its values, and the others share the probability."""

    class Even(pydantic.BaseModel):
        first: Annotated[int, pydantic.Field(ge=0, le=3)]
        second: Annotated[int, pydantic.Field(ge=0, le=3)]

        @pydantic.model_validator(mode="after")
        def is_even(self):
            if (self.first + self.second) % 2:
                raise ValueError("odd")
            return self

    found = llm.extract(STATE, Even, search=EXACT)
    assert len(found.values) == 8
    assert all((one.first + one.second) % 2 == 0 for one in found.values)
    assert math.fsum(one.probability for one in found.top(10)) == pytest.approx(1.0)


def test_many_states_are_one_call_and_each_its_own(llm):
    """The states of a call do not change each other's numbers, and an error may be kept in its place."""
    states = ["One.", {"two": 2}, "Three."]
    many = llm.extract_many(states, Ticket)
    assert [one.selection.choices for one in many] == [llm.extract(one, Ticket).selection.choices for one in states]
    kept = llm.extract_many(["One.", "", "Three."], Ticket, on_error="keep")
    assert [one.error is None for one in kept] == [True, False, True]
    assert kept[2].value == many[2].value
    assert kept[1].to_dict()["error"]["code"] == "option"
    assert kept[1].marginals == {}
    for read in ("value", "text", "probability", "coverage", "cost", "alternatives"):
        with pytest.raises(OptionError):
            getattr(kept[1], read)
    with pytest.raises(OptionError) as caught:
        llm.extract_many(["One.", ""], Ticket)
    assert caught.value.request == 1


def test_it_can_be_awaited(llm):
    """The awaitable forms return the same."""

    async def both():
        return await llm.aextract(STATE, Ticket), await llm.aextract_many([STATE], Ticket)

    one, [other] = asyncio.run(both())
    assert one.selection.choices == other.selection.choices == llm.extract(STATE, Ticket).selection.choices


def test_near_ties_are_scored_again_where_that_is_asked_for(llm):
    """They are not by default; the value and its numbers are the same on a model whose rows do not move."""
    plain, again = (llm.extract(STATE, Ticket, rescore=one) for one in (False, True))
    assert (plain.selection.certificate.rescored, again.selection.certificate.rescored) == (False, True)
    assert plain.selection.choices == again.selection.choices


@settings(max_examples=n_examples(10))
@given(seed=st.integers(0, 1000), sharpness=st.sampled_from([0.1, 0.5, 4.0]), marginals=st.booleans())
def test_a_near_tie_is_flagged(seed, sharpness, marginals):
    """Without `rescore`, `is_tie` says whether some value may be within the tolerance of the best, read or not."""
    with fake(seed, sharpness=sharpness, tolerance=0.02) as llm:
        found = llm.extract(STATE, Ticket, marginals=marginals)
        exact = [one.logp for one in llm.extract(STATE, Ticket, search=EXACT).top(2)]
    near = found.selection.certificate.near_margin
    assert near > 0.02
    assert found.is_tie or exact[0] - exact[1] >= near - 1e-9
    assert found.is_tie == (found.selection.margin < near) == found.to_dict()["is_tie"]


def test_an_open_field_is_searched_and_has_lower_bounds():
    """A name is found by a beam; nothing that is only a bound is shown as a number."""
    with fake(3, sharpness=3.0) as llm:
        found = llm.extract(STATE, Note, beam=BeamSearchParams(width=3, n=3, max_tokens=64))
        narrow = llm.extract(STATE, Note, marginals=False, beam=BeamSearchParams(width=1, max_tokens=64))
    assert set(found.value) == {"name", "urgent"}
    assert not found.is_listed
    assert found.probability is None
    assert 0 < found.probability_low <= found.probability_high <= 1
    assert found.beam.greedy is None or found.probability_low >= narrow.probability_low
    for name, marginal in found.marginals.items():
        assert set(marginal.values()) == {None}
        assert math.fsum(marginal.low.values()) <= 1
        assert found.value[name] in marginal
    assert [one.probability_low for one in found.top(9)] == sorted(
        (one.probability_low for one in found.top(9)), reverse=True
    )
    assert "p at least" in repr(found)
    assert found.to_dict()["probability"] is None


Lower = Annotated[str, pydantic.Field(pattern="^[aA][bBé]$"), pydantic.AfterValidator(str.lower)]


class Spelt(pydantic.BaseModel):
    name: Lower
    urgent: bool


@settings(max_examples=n_examples(8))
@given(seed=st.integers(0, 1000), sharpness=st.sampled_from([0.5, 2.0, 4.0]), width=st.integers(1, 6))
def test_bounds_of_an_open_type_hold_the_truth(seed, sharpness, width):
    """No lower bound is above, and no upper bound below, the probability of a value, which may have several texts."""
    spellings = ["".join(pair) for pair in product("aA", "bBé")]
    texts = [
        json.dumps({"name": name, "urgent": one}, ensure_ascii=False) for name in spellings for one in (True, False)
    ]
    with fake(seed, sharpness=sharpness) as llm:
        shares, total = brute_force(llm, Spelt, texts=texts)
        found = llm.extract(STATE, Spelt, beam=BeamSearchParams(width=width, n=width, max_tokens=64))
    truth, of_field = {}, {"name": {}, "urgent": {}}
    for text, share in shares.items():
        value = json.loads(text.lower())
        truth[str(value)] = truth.get(str(value), 0.0) + share
        for name, key in value.items():
            of_field[name][key] = of_field[name].get(key, 0.0) + share
    values = [str(one.value.model_dump()) for one in found]
    assert len(set(values)) == len(values)
    for one, value in zip(found, values, strict=True):
        assert one.logp == pytest.approx(math.log(shares[one.text] * total))
        assert one.probability_low <= truth[value] * (1 + 1e-9)
        assert truth[value] <= one.probability_high * (1 + 1e-9)
    for name, marginal in found.marginals.items():
        for key in marginal:
            assert marginal.low[key] <= of_field[name][key] * (1 + 1e-9)
            assert of_field[name][key] <= marginal.high[key] * (1 + 1e-9)


def test_numbers_that_are_equal_are_one_value():
    """1.5 and 1.50 are the same value, and so are a character and its escape; 1 and true are not."""
    kind = extracted_type(make_dataclass("Sale", [("price", float), ("name", str | bool | int)]))
    texts = ['{"price": 1.5, "name": "a"}', '{"price": 1.50, "name": "\\u0061"}', '{"price": 15e-1, "name": "a"}']
    assert len({kind.identity(text) for text in texts}) == 1
    assert len({kind.identity(f'{{"price": 1, "name": {name}}}') for name in ("1", "true", '"1"')}) == 3
    one, other = (
        extracted_type(make_dataclass("Empty", [("x", inner | None)])) for inner in (make_dataclass("E", []), int)
    )
    assert one.identity('{"x": {}}') != one.identity('{"x": null}')
    assert other.identity('{"x": 1}') != other.identity('{"x": 2}')


def test_searches_of_an_open_type_share_calls():
    """Texts together get what each gets alone, in fewer calls; an error that is kept stops no other."""
    beam = BeamSearchParams(width=1, max_tokens=64)
    with fake(3, sharpness=3.0) as llm:
        many = llm.extract_many(["One.", "Two.", "", "Three."], Note, beam=beam, on_error="keep")
        n_calls = len(llm._model.call_sizes)
        alone = [llm.extract(text, Note, beam=beam) for text in ("One.", "Two.", "Three.")]
        assert n_calls < len(llm._model.call_sizes) - n_calls
        short = llm.extract_many(["One.", "Two."], Note, beam=replace(beam, max_tokens=4), on_error="keep")
    found = [one for one in many if one.error is None]
    assert [one.ranked for one in found] == [one.ranked for one in alone]
    assert many[2].error.code == "option"
    assert [one.error.code for one in short] == ["nothing_found"] * 2


class Wire(pydantic.BaseModel):
    kind: Literal["wire"]
    code: Name


class Payment(pydantic.BaseModel):
    urgent: bool
    by: Cash | Wire
    name: Name


def test_each_alternative_of_a_field_is_searched_for():
    """A field with few values, and a union by its tags, have a lower bound for every value, and sums stay below one."""
    options = {"beam": BeamSearchParams(width=1, max_tokens=120)}
    with fake(5, sharpness=4.0) as llm:
        found = llm.extract(STATE, Payment, **options)
        greedy = llm.extract(STATE, Payment, marginals=False, **options)
    assert set(found.marginals["urgent"]) == {True, False}
    assert set(found.marginals["by.kind"]) == {"cash", "wire"}
    assert {type(one.value.by) for one in found.top(99)} == {Cash, Wire}
    assert found.probability_low >= greedy.probability_low
    assert len(greedy.top(9)) == 1
    assert found.cost.rows > greedy.cost.rows
    for marginal in found.marginals.values():
        assert math.fsum(marginal.low.values()) <= 1
        assert all(marginal.low[value] <= high <= 1 for value, high in marginal.high.items())


class Sorted(TypedDict):
    name: Name
    kind: Literal["a", "b", "c", "d"]


def sorted_note(*, marginals=True, **options):
    """What a new engine extracts."""
    beam = BeamSearchParams(**{"width": 2, "n": 2, "max_tokens": 64, **options})
    with fake(3, sharpness=3.0) as llm:
        return llm.extract(STATE, Sorted, beam=beam, marginals=marginals)


@pytest.mark.parametrize("budget", [49, 50, 60, 80, 100])
def test_all_searches_share_one_budget(budget):
    """The searches of alternatives evaluate at most the nodes that the first one left over."""
    first, found = (sorted_note(budget_nodes=budget, marginals=one) for one in (False, True))
    n_left = budget - first.beam.certificate.nodes_evaluated
    assert n_left == budget - 49
    assert first.cost.rows <= found.cost.rows <= first.cost.rows + n_left
    assert set(found.marginals["kind"]) < {"a", "b", "c", "d"}


def test_a_large_budget_changes_nothing():
    """Every alternative is found, as without a budget."""
    free, found = sorted_note(), sorted_note(budget_nodes=10_000)
    assert set(free.marginals["kind"]) == {"a", "b", "c", "d"}
    assert (free.marginals, free.cost) == (found.marginals, found.cost)


def test_a_budget_that_is_too_small_is_named():
    """The error advises to raise it, not to widen the beam."""
    with pytest.raises(NothingFoundError, match=r"Sorted.*the budget ended after 19 nodes; raise `budget_nodes`$"):
        sorted_note(budget_nodes=20)


@pytest.mark.parametrize(
    "changes",
    [{"groups": 2, "diversity": 1.0}, {"exact": True, "budget_nodes": 3000}, {"canonical_only": False}],
    ids=str,
)
def test_options_of_the_beam_reach_the_searches_of_alternatives(changes):
    """Those that need more than one path, or the exact search, are left out."""
    assert set(sorted_note(**changes).marginals["kind"]) == {"a", "b", "c", "d"}


def test_alternatives_have_the_callback_of_the_beam():
    """`expand` chooses the tokens of every search."""
    seen = set()

    def expand(view, tokens):
        seen.add(view.data)
        return [one.id for one in tokens]

    found = sorted_note(width=1, n=1, expand=expand)
    assert len(found.marginals["kind"]) == 4
    for text in found.top(9):
        assert any(len(data) > len(text.text) - 3 and text.text.encode().startswith(data) for data in seen)


def test_alternatives_are_limited_and_made_when_needed(monkeypatch):
    """A wide type has no more than 64, none of which becomes a grammar before its search."""
    fields = {f"f{at}": {"enum": list(range(16))} for at in range(9)}
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, **fields},
        "required": ["name", *fields],
        "additionalProperties": False,
    }
    kind = extracted_type(schema)
    names, read = [], Grammar.from_json_schema
    monkeypatch.setattr(
        Grammar, "from_json_schema", lambda *args, **more: names.append(more.get("name")) or read(*args, **more)
    )
    assert len(kind.alternatives) == 64
    assert names == [None] * len(names), "only fields are read"
    assert len(names) <= 6, "the name, and four fields of 16 values"
    last = kind.alternatives[-1].grammar
    assert last.accepts(json.dumps({"name": "x", **dict.fromkeys(fields, 1), "f3": 15}))
    assert not last.accepts(json.dumps({"name": "x", **dict.fromkeys(fields, 1)}))


def test_too_many_values_are_searched(llm):
    """A type with more than 20 000 values takes the way of open types."""

    class Large(pydantic.BaseModel):
        number: Annotated[int, pydantic.Field(ge=0, le=30_000)]

    found = llm.extract(STATE, Large, beam=BeamSearchParams(width=2, n=2))
    assert not found.is_listed
    assert 0 <= found.value.number <= 30_000


def test_a_search_that_finds_nothing_says_so(llm):
    """A text that does not fit into the tokens allowed, and values that the type refuses, are named."""

    class Never(pydantic.BaseModel):
        name: Name

        @pydantic.field_validator("name")
        @classmethod
        def is_never(cls, value):
            raise ValueError("never")

    with pytest.raises(NothingFoundError, match="Note"):
        llm.extract(STATE, Note, beam=BeamSearchParams(width=1, max_tokens=4))
    with fake(3, sharpness=3.0) as sharp, pytest.raises(NothingFoundError, match=r"Never.*refuses"):
        sharp.extract(STATE, Never, beam=BeamSearchParams(width=2, n=2, max_tokens=64))


class Unsupported:
    """No type of a grammar."""


@dataclass
class Holder:
    inner: Unsupported


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (Holder, GrammarError, "Unsupported"),
        ("Ticket", OptionError, "kind"),
        (["a", "b"], OptionError, "kind"),
        (None, OptionError, "kind"),
        ({"type": "array", "uniqueItems": True}, GrammarError, "uniqueItems"),
    ],
    ids=str,
)
def test_what_is_no_type_is_refused_by_name(llm, kind, error, message):
    """A type that cannot be written as a grammar is named, before any model call."""
    with pytest.raises(error, match=message):
        llm.extract(STATE, kind)


def test_options_that_have_no_meaning_are_refused(llm):
    """Options of decisions that do not concern prompts, and a search beside `marginals=False`."""
    with pytest.raises(IncompatibleOptionsError, match="prior"):
        llm.extract(STATE, Ticket, params=DecisionParams(prior=[1.0]))
    with pytest.raises(IncompatibleOptionsError, match="marginals"):
        llm.extract(STATE, Ticket, marginals=False, search=EXACT)
    with fake(nodes=120) as small, pytest.raises(PromptTooLongError):
        small.extract(STATE, Ticket)


def test_a_schema_gives_values_of_json(llm):
    """A JSON Schema in place of a type has dictionaries for values, and its title for a name."""
    schema = {
        "title": "Case",
        "type": "object",
        "properties": {"size": {"enum": [1, 2.5, "big"]}, "sure": {"type": "boolean"}},
        "required": ["size", "sure"],
        "additionalProperties": False,
    }
    found = llm.extract(STATE, schema, search=EXACT)
    assert found.value == json.loads(found.text)
    assert list(found.marginals["size"]) == [1, 2.5, "big"]


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        (int, "integer"),
        (float | None, "number | null"),
        (Annotated[int, pydantic.Field(ge=1, le=1000)], "integer from 1 to 1000"),
        (list[int], "[integer, …]"),
        (tuple[str, bool], '["…", true | false]'),
        ({"type": ["integer", "null"], "minimum": -2, "maximum": 2}, "integer from -2 to 2 | null"),
        (date, '"YYYY-MM-DD"'),
    ],
    ids=str,
)
def test_a_prompt_shows_types_and_no_value_of_them(kind, layout):
    """A number in the prompt, such as 0, would draw answers to itself."""
    assert extracted_type(kind).layout == layout


@pytest.mark.parametrize(
    "kind",
    [
        Annotated[int, "The age  of the person."],
        Annotated[int, pydantic.Field(description="The age of the person.", ge=0)],
        Annotated[Ticket, "The age of the person."],
        {"type": "integer", "description": "The age of\n the person."},
    ],
    ids=str,
)
def test_a_prompt_has_the_description_of_the_type_itself(kind):
    """It stands before those of the fields."""
    lines = extracted_type(kind).instructions("Who?").splitlines()
    assert lines[:2] == ["Who?", "- The age of the person."]
    assert len(lines) == 3


def test_prompts_are_those_of_decisions(llm):
    """The prompt names the fields, their descriptions and values, and a template of the caller is taken."""
    text = extracted_type(Order).instructions("What was ordered?")
    assert text.splitlines()[0] == "What was ordered?"
    assert '{"paid": {"kind": "card", "digits": integer from 1 to 3} | {"kind": "cash"}, "open": true | false}' in text
    with fake(chat=False) as plain:
        found = plain.extract(STATE, Ticket)
        assert found.selection.terminator == "text"
        state_first = plain.extract(STATE, Ticket, params=DecisionParams(layout="state first"))
    assert state_first.selection.choices != found.selection.choices


def test_results_are_values(llm):
    """They can be pickled and written as JSON, have no truth value, and show bounds as bounds."""
    found = llm.extract(STATE, Ticket)
    assert pickle.loads(pickle.dumps(found)).value == found.value  # noqa: S301 - of our own
    made = json.loads(json.dumps(found.to_dict()))
    assert made["value"] == json.loads(found.text)
    assert set(made["marginals"]) == {"team", "urgent", "mood"}
    assert made["is_proved"] is True
    with pytest.raises(TypeError, match="value"):
        bool(found)
    assert repr(found).startswith(f"Extraction({found.value!r}, p ")


@pytest.mark.parametrize(
    ("schema", "meant"),
    [
        ({"name": "string"}, "'name' is no keyword"),
        ({"type": "object", "propertys": {"a": {"type": "boolean"}}}, "did you mean 'properties'"),
        ({"title": "Any"}, '"properties"'),
        ({}, '"properties"'),
    ],
)
def test_a_mapping_that_is_no_json_schema_is_refused(llm, schema, meant):
    """Without a keyword that restricts the values, any JSON would be a value."""
    with pytest.raises(OptionError, match=meant) as caught:
        llm.extract(STATE, schema)
    assert 'write {"type": "object", "properties": {…}}' in str(caught.value)
    whole = {"title": "T", "x-made": 1, "enum": [1, 2]}
    assert llm.extract(STATE, whole).value in {1, 2}


def test_an_open_type_has_advice_as_a_listed_one():
    """It is given if the model does not expect the first token or the end, and not for a long text alone."""
    with fake(sharpness=2.0) as llm:
        found = llm.extract(STATE, Note, beam=BeamSearchParams(width=2, n=2, max_tokens=64))
        assert [one.code for one in found.warnings] == [one.code for one in llm.extract(STATE, Ticket).warnings]
    assert found.to_dict()["warnings"][0]["code"] == "coverage"
    best = found.beam.best
    begun = (replace(best.tokens[0], logp=-0.1), *best.tokens[1:])
    for tokens, logp_end, n_warned in ((begun, -0.1, 0), (best.tokens, -0.1, 1), (begun, best.logp_end, 1)):
        beam = replace(found.beam, hypotheses=(replace(best, tokens=tokens, logp_end=logp_end),), greedy=None)
        assert len(replace(found, beam=beam).warnings) == n_warned
