"""Questions as data: TOML tables, and the shapes that clients of `/v1/decisions` and `/v1/systemone` send."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import Choice, Option, Predicate, Score
from selectrie.decide.question_data import data_of_questions, questions_of_data
from selectrie.errors import InputFileError, SelectrieError
from selectrie.tables.table_questions import read_questions
from tests.support.n_examples import n_examples

TOML = """
[intent]
type = "choice"
instructions = "What does the customer want?"
choices = ["track order", { value = "refund", description = "money back" }, { value = 3, text = "three" }, true]

[angry]
type = "predicate"
instructions = "The customer is angry."
yes_when = "they shout"

[urgency]
type = "score"
instructions = "How urgent is this?"
levels = ["can wait", { label = "today", description = "at once" }]

[grade]
type = "score"
levels = [{ label = "poor", value = 1 }, { label = "good", value = 5.5 }]

[stars]
type = "score"
instructions = "How many stars?"
low = 1
high = 5

[counted]
type = "score"
levels = [{ label = "1", value = 0 }, { label = "2", value = 1 }]

[valued]
type = "score"
levels = [{ texts = ["one", "1"], value = 1, description = "bad" }, { label = "two", value = 2 }]

[spelled]
type = "choice"
choices = [{ value = true, texts = ["yes", "Yes"] }, { value = "no", texts = ["no", "No"], description = "else" }]

[level]
type = "score"
levels = [{ texts = ["low", "Low"], description = "can wait" }, "high"]
"""
MADE = {
    "intent": Choice(
        "What does the customer want?",
        [Option("track order"), Option("refund", None, "money back"), Option(3, "three"), Option(True)],
    ),
    "angry": Predicate("The customer is angry.", yes_when="they shout"),
    "urgency": Score("How urgent is this?", [Option("can wait"), Option("today", None, "at once")]),
    "grade": Score("", {1: "poor", 5.5: "good"}),
    "stars": Score("How many stars?", low=1, high=5),
    "counted": Score("", {0: "1", 1: "2"}),
    "valued": Score("", [Option(1, None, "bad", ["one", "1"]), Option(2, "two")]),
    "spelled": Choice("", [Option(True, texts=["yes", "Yes"]), Option("no", None, "else", ["no", "No"])]),
    "level": Score("", [Option("low", None, "can wait", ["low", "Low"]), Option("high")]),
}


def test_a_toml_file_has_a_table_for_each_question(tmp_path):
    """Fields are those of OpenAI's request and some of our own; the order is that of the file."""
    (tmp_path / "q.toml").write_text(TOML)
    questions = read_questions(tmp_path / "q.toml")
    assert questions == MADE
    assert list(questions) == list(MADE)


def test_the_body_of_decisions(tmp_path):
    """A list of questions, some without names, with parts of text; the rest of the body is not read."""
    body = {
        "model": "x",
        "input": "hello",
        "questions": [
            {"type": "predicate", "name": "angry", "instructions": [{"type": "input_text", "text": "They are angry."}]},
            {"type": "choice", "instructions": "Which?", "choices": [{"value": "a"}, {"value": False}]},
            {
                "type": "score",
                "instructions": "How?",
                "levels": [{"label": "low"}, {"label": "high", "description": "h"}],
            },
        ],
    }
    expected = {
        "angry": Predicate("They are angry."),
        "q2": Choice("Which?", ["a", False]),
        "q3": Score("How?", [Option("low"), Option("high", None, "h")]),
    }
    (tmp_path / "q.json").write_text(json.dumps(body))
    assert read_questions(tmp_path / "q.json") == expected
    assert questions_of_data(body["questions"]) == expected


def test_the_body_of_systemone():
    """A mapping of questions with criteria; instructions of the body come first, and what is no text is JSON."""
    body = {
        "state": "hello",
        "instructions": "Read with care.",
        "questions": {
            "angry": {"type": "noul", "instructions": "Angry?", "criteria": {"true": "they shout", "false": None}},
            "calm": {"type": "noul", "criteria": {"false": "they shout"}},
            "team": {"type": "choice", "criteria": {"sales": "prices", "post": None, "it": {"a": ["é"]}}},
            "mood": {"type": "score", "instructions": {"k": 1}, "criteria": ["bad", "good"]},
        },
    }
    assert questions_of_data(body) == {
        "angry": Predicate("Read with care.\nAngry?", yes_when="they shout"),
        "calm": Predicate("Read with care.", no_when="they shout"),
        "team": Choice(
            "Read with care.", [Option("sales", None, "prices"), Option("post"), Option("it", None, '{"a": ["é"]}')]
        ),
        "mood": Score('Read with care.\n{"k": 1}', [Option("0", None, "bad"), Option("1", None, "good")]),
    }


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5).filter(str.strip)
OPTIONS = st.lists(st.builds(Option, WORDS, WORDS, st.none() | WORDS), min_size=1, max_size=3)
NAMED = st.dictionaries(
    WORDS,
    st.one_of(
        OPTIONS.filter(
            lambda some: len({one.text for one in some}) == len({one.value for one in some}) == len(some)
        ).map(lambda some: Choice("?", some)),
        st.builds(Predicate, WORDS, yes_when=st.none() | WORDS),
        st.lists(WORDS, min_size=1, max_size=3, unique=True).map(lambda some: Score("?", some)),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=n_examples(40), deadline=None)
@given(questions=NAMED)
def test_questions_read_back_from_their_data(questions):
    """Data of questions gives the same questions, through JSON too."""
    assert questions_of_data({"questions": json.loads(json.dumps(data_of_questions(questions)))}) == questions


def test_made_questions_read_back():
    """Numbers of levels, texts of values and truth values too."""
    assert questions_of_data(json.loads(json.dumps(data_of_questions(MADE)))) == MADE


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "questions=3: expected a list of questions, or an object"),
        ({}, "questions={}: expected at least one question"),
        ([{"type": "box", "name": "a"}], r"questions\[0\].type='box': expected one of 'choice', 'predicate'"),
        ({"a": 3}, "questions.a=3: expected an object with a type"),
        ({"a": {"type": "choice", "choises": []}}, "questions.a.choises=.*one of the fields of a choice: instructions"),
        ({"a": {"type": "choice"}}, "questions.a.choices is not given; give a list"),
        ({"a": {"type": "choice", "choices": []}}, "questions.a: no options given"),
        (
            {"a": {"type": "choice", "choices": ["x", {"value": "x"}]}},
            "questions.a: choice 1 .* equals that of choice 0",
        ),
        ({"a": {"type": "choice", "choices": [{"text": "x"}]}}, r"questions.a.choices\[0\].value is not given"),
        ({"a": {"type": "choice", "choices": [1.5]}}, r"questions.a.choices\[0\]: value=1.5"),
        (
            {"a": {"type": "predicate"}},
            "questions.a: instructions='': expected a statement, or what `yes_when` or `no_when` says",
        ),
        ({"a": {"type": "predicate", "instructions": 3}}, "questions.a.instructions=3: expected a text"),
        ({"a": {"type": "noul", "criteria": {"yes": "x"}}}, "questions.a.criteria.yes='x': .*the fields true, false"),
        ({"a": {"type": "noul", "choices": []}}, "questions.a.choices=.*fields of a noul: instructions, criteria"),
        ({"a": {"type": "score", "levels": [{"lable": "x"}]}}, r"questions.a.levels\[0\].lable='x'"),
        (
            {"a": {"type": "score", "levels": [{"label": "x", "value": 1}, "y"]}},
            "questions.a: levels=.*value for every",
        ),
        (
            {"a": {"type": "score", "levels": [{"label": "x", "value": "1"}]}},
            "questions.a: levels='1': .*finite numbers",
        ),
        (
            [{"type": "predicate", "name": "a", "instructions": "x"}] * 2,
            r"questions\[1\].name='a': expected a text that",
        ),
    ],
)
def test_mistakes_name_their_place(data, message):
    """The error has the path to the value, and what is allowed there."""
    with pytest.raises(SelectrieError, match=message):
        questions_of_data(data)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("q.toml", "[a\n", r"q.toml.*not TOML"),
        ("q.toml", '[a]\ntype = "x"\n', r"q.toml: a.type='x'"),
        ("q.json", "[", r"q.json:1: not JSON"),
        ("q.json", '[{"type": "x"}]', r"q.json: questions\[0\].type='x'"),
        ("q.yaml", "", r"must end in .toml or .json"),
        ("none/q.toml", None, r"No such file"),
    ],
)
def test_files_that_cannot_be_read(name, text, message, tmp_path):
    """The error names the file, and the line where that is known."""
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputFileError, match=message):
        read_questions(tmp_path / name)
