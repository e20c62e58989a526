"""The columns that answers add: names, kinds, cells, and the errors of tables that have them already."""

from __future__ import annotations

import json
from enum import Enum

import pytest

from selectrie import Choice, DecisionParams, Option, Predicate, Score
from selectrie.decide.answers import Decision
from selectrie.decide.columns import Column, columns_of
from selectrie.errors import OptionError, PromptError
from selectrie.grammar import Grammar
from tests.support.deciding import QUESTIONS, STATE, fake


class Team(Enum):
    """Members whose values are texts."""

    SALES = "sales"
    REPAIRS = "repairs"


def test_names_and_kinds_of_each_kind_of_question():
    """A choice has labels, a predicate truth values, a score its number and level; one error column ends them."""
    columns = columns_of(QUESTIONS).columns
    trust = ("probability", "confidence", "label_mass", "margin")
    assert columns == (
        Column("intent", "label", ("track order", "refund", "re")),
        *(Column(f"intent_{name}", "float") for name in trust),
        Column("intent_abstained", "text"),
        Column("angry", "bool"),
        *(Column(f"angry_{name}", "float") for name in trust),
        Column("angry_abstained", "text"),
        Column("urgency", "float"),
        Column("urgency_level", "label", ("can wait", "this week", "today")),
        *(Column(f"urgency_{name}", "float") for name in trust),
        Column("urgency_abstained", "text"),
        Column("error", "text"),
    )


def test_cells_are_the_answers():
    """Every cell is a field of its answer, bit for bit, in the order of the columns."""
    decision = fake().decide(STATE, QUESTIONS, params=DecisionParams(min_confidence=1.0))
    cells = dict(zip(columns_of(QUESTIONS).names, columns_of(QUESTIONS).row(decision), strict=True))
    intent, angry, urgency = (decision[name] for name in QUESTIONS)
    assert cells["intent"] == intent.value
    assert cells["angry"] is angry.value
    assert (cells["urgency"], cells["urgency_level"]) == (urgency.score, urgency.level)
    assert cells["urgency_probability"] == urgency.probabilities[urgency.value]
    assert cells["angry_probability"] == angry.probability
    assert cells["error"] is None
    for name, answer in decision.answers.items():
        for part in ("confidence", "label_mass", "margin", "abstained"):
            assert cells[f"{name}_{part}"] == getattr(answer, part)
    assert cells["intent_abstained"]


def test_probabilities_as_json_and_wide():
    """JSON holds the probability of each text; wide has one column for each; a predicate has neither."""
    decision = fake().decide(STATE, QUESTIONS)
    for kind in ("json", "wide"):
        columns = columns_of(QUESTIONS, probabilities=kind)
        cells = dict(zip(columns.names, columns.row(decision), strict=True))
        intent, urgency = decision.choices["intent"], decision.scores["urgency"]
        levels = {urgency.legend[value]: p for value, p in urgency.probabilities.items()}
        assert not any(name.startswith("angry_probability_") or name == "angry_probabilities" for name in cells)
        if kind == "json":
            assert json.loads(cells["intent_probabilities"]) == dict(intent.probabilities)
            assert json.loads(cells["urgency_probabilities"]) == levels
        else:
            assert {text: cells[f"intent_probability_{text}"] for text in intent.probabilities} == intent.probabilities
            assert {text: cells[f"urgency_probability_{text}"] for text in levels} == levels


@pytest.mark.parametrize(
    ("options", "kind", "cells"),
    [
        ([True, False], "bool", {True, False}),
        ([1, 22], "int", {1, 22}),
        ([Option(1, "one"), Option(2, "two")], "int", {1, 2}),
        (Team, "label", {"sales", "repairs"}),
        ([Option("a", "alpha"), Option("b", "beta")], "label", {"a", "b"}),
        (["x", True], "label", {"x", "true"}),
        ([1 << 70, 2], "label", {str(1 << 70), "2"}),
        ([Option((1, 2), "pair"), Option((3,), "one")], "label", {"pair", "one"}),
    ],
)
def test_values_that_are_not_texts(options, kind, cells):
    """Truth values and whole numbers keep their kind; what has no kind in common has its scored text."""
    columns = columns_of({"q": Choice("Which?", options)})
    assert columns.columns[0].kind == kind
    if kind == "label":
        assert set(columns.columns[0].labels) == cells
    llm, seen = fake(), set()
    for prior in ([1.0, 1e-300], [1e-300, 1.0]):
        decision = llm.decide(STATE, {"q": Choice("Which?", options)}, params=DecisionParams(prior=prior))
        seen.add(columns.row(decision)[0])
    assert seen == cells
    assert {type(one) for one in seen} == {type(one) for one in cells}


def test_a_grammar_has_its_text():
    """The answer of a grammar is text; its probabilities cannot be wide, because its texts are not listed."""
    questions = {"q": Choice("Which?", Grammar.from_regex("a|b"))}
    columns = columns_of(questions, probabilities="json")
    cells = columns.row(fake().decide(STATE, questions))
    assert columns.columns[0] == Column("q", "text")
    assert cells[0] in ("a", "b")
    assert set(json.loads(cells[-2])) == {"a", "b"}
    with pytest.raises(OptionError, match="'json' for the choice 'q'"):
        columns_of(questions, probabilities="wide")


def test_columns_without_a_name():
    """The columns of one question may have no name before them, as `selectrie classify` writes them."""
    names = columns_of({"q": Choice("", ["a", "b"])}, bare=True).names
    assert names == ("label", "probability", "confidence", "label_mass", "margin", "abstained", "error")
    assert columns_of({"q": Predicate("x")}, prefix="my_", bare=True).names[:2] == ("my_value", "my_probability")
    scored = columns_of({"q": Score("", ["a", "b"])}, bare=True)
    assert scored.names[:3] == ("score", "level", "probability")
    assert scored.row(fake().decide(STATE, {"q": Score("", ["a", "b"])}))[1] in ("a", "b")
    with pytest.raises(OptionError, match="bare=True"):
        columns_of(QUESTIONS, bare=True)


def test_a_row_with_an_error_has_nothing_else():
    """All answers are missing, and the text does not say at which index the row was asked."""
    error = PromptError("it is empty")
    error.request = 17
    columns = columns_of(QUESTIONS)
    row = columns.row(Decision({}, error))
    assert row == (*[None] * (len(columns.names) - 1), "prompt: it is empty")


def test_names_that_are_taken():
    """A table that has a column, and two questions whose columns would be one, are errors; a prefix helps."""
    questions = {"q": Predicate("x")}
    with pytest.raises(OptionError, match="prefix='q_margin': expected a prefix"):
        columns_of(questions).check(["body", "q_margin"])
    with pytest.raises(OptionError, match="prefix='error'"):
        columns_of(questions).check(["error"])
    columns_of(questions, prefix="new_").check(["q", "error"])
    with pytest.raises(OptionError, match="questions='q_margin'"):
        columns_of({"q": Predicate("x"), "q_margin": Predicate("y")})
    with pytest.raises(OptionError, match="probabilities='all'"):
        columns_of(questions, probabilities="all")
