"""Questions check themselves when they are made; values come back as they came, texts are what is scored."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import fields
from enum import Enum

import numpy as np
import pytest

from selectrie import Choice, Grammar, Option, Predicate, Score
from selectrie.decide.question_data import data_of_questions, questions_of_data
from selectrie.errors import ChoiceError, OptionError, SelectrieError


class Team(Enum):
    """Members whose values are texts, a number and a boolean."""

    SALES = "sales"
    ROOM = 7
    OPEN = True


class Word(str, Enum):
    """Members that are texts."""

    YES = "yes"


@pytest.mark.parametrize(
    ("options", "texts", "values"),
    [
        (["refund", "track order"], ["refund", "track order"], ["refund", "track order"]),
        ([1, -20, 0], ["1", "-20", "0"], [1, -20, 0]),
        ([True, False], ["true", "false"], [True, False]),
        (Team, ["sales", "7", "true"], [Team.SALES, Team.ROOM, Team.OPEN]),
        ([Team.ROOM], ["7"], [Team.ROOM]),
        ({"refund": "money back", "order": None}, ["refund", "order"], ["refund", "order"]),
        ([Option(True, "yes"), Option("true")], ["yes", "true"], [True, "true"]),
        (["a", Option("b", "bee")], ["a", "bee"], ["a", "b"]),
        (("one",), ["one"], ["one"]),
    ],
)
def test_values_have_texts(options, texts, values):
    """A str is its own text, an Enum member has its value's, a bool is true or false, an int its digits; a mapping has texts."""
    made = Choice("q", options).options
    assert [one.scored for one in made] == texts
    assert [one.value for one in made] == values
    assert [type(one.value) for one in made] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ([], ChoiceError, "no options given; give at least one"),
        ({}, ChoiceError, "no options given"),
        (["a", "b", "a"], ChoiceError, "equals that of choice 0; give each label once, such as column.unique()"),
        ([True, "true"], ChoiceError, "('true'): its text equals that of choice 0; give each a text of its own"),
        ([1, "1"], ChoiceError, "its text equals"),
        ([Option(1, "one"), Option(1, "uno")], ChoiceError, "its value equals that of choice 0"),
        ([Option(True, "yes"), Option(1, "one")], ChoiceError, "True equals 1"),
        (["a", " "], ChoiceError, "choice 1 (' '): it has no text to score"),
        ([Option(1, texts=["a", " "])], ChoiceError, "it has no text to score"),
        ([1.5], OptionError, r"options[0]=1.5: expected a text, a truth value or a whole number, an Enum member"),
        ([None], OptionError, "options[0] is not given; give a text"),
        ("refund", OptionError, "options='refund': expected several texts, such as a list"),
        (7, OptionError, "options=7"),
        ({"a": 1}, OptionError, "options['a']=1: expected the description of this option"),
        *(
            ({key: "one"}, OptionError, "texts as the keys of the mapping; for other values, Option(value, text=…)")
            for key in (1, True, Team.SALES, Word.YES, 1.5, None)
        ),
    ],
)
def test_options_that_cannot_be_told_apart_are_refused(options, error, message):
    """One error for no options, equal texts of equal or unequal values, equal values, blank texts, and what is no option."""
    with pytest.raises(error) as caught:
        Choice("q", options)
    assert message in str(caught.value)


def test_an_option_may_have_several_texts():
    """The first is the one that is listed; each counts once, and an example may be answered with any of them."""
    with pytest.warns(UserWarning, match="no example has the answer 'no'"):
        made = Choice("q", [Option(True, texts=["yes", "Yes", "yes"]), Option(False, "no")], examples=[("x", "Yes")])
    assert [one.scored for one in made.options] == ["yes", "no"]
    assert [one.spellings for one in made.options] == [("yes", "Yes"), ("no",)]
    assert made.examples == (("x", "yes"),)
    levels = Score("q", [Option("low", texts=["low", "Low"]), "high"]).levels
    assert [(one.value, one.spellings) for one in levels] == [(0, ("low", "Low")), (1, ("high",))]


def test_a_text_of_two_options_is_scored_for_neither():
    """It is dropped from both, with a warning; an option that has no other text is an error that names it."""
    nations = [Option("Poland", texts=["Polish", "polish", "PL"]), Option("shine", texts=["polish", "gloss"])]
    with pytest.warns(UserWarning, match="several options have the text 'polish', so it is scored for none") as caught:
        made = Choice("q", nations)
    assert caught[0].filename == __file__
    assert [one.spellings for one in made.options] == [("Polish", "PL"), ("gloss",)]
    with pytest.raises(ChoiceError, match=r"choice 1 \('polish'\): other options have all its texts too"):
        Choice("q", [nations[0], "polish"])


def test_warnings_quote_little_of_a_text():
    """Python keeps the text of a warning for good."""
    long, quoted = "Q" * 1_000, f"'{'Q' * 78}…"
    with pytest.warns(UserWarning, match=f"^no example has the answer {quoted};"):
        Choice("q", ["a", long], examples=[("s", "a")])
    with pytest.warns(UserWarning, match=f"^several options have the text {quoted},"):
        Choice("q", [Option(1, texts=["a", long]), Option(2, texts=["b", long])])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"texts": []}, "a sequence of at least one text"),
        ({"texts": "yes"}, "a sequence of at least one text"),
        ({"texts": ["a", 1]}, "texts[1]=1"),
        ({"texts": ["a"], "text": "b"}, "`text` cannot be combined with `texts`"),
    ],
)
def test_texts_are_some_texts(given, message):
    """A text alone, no texts, other values, and texts beside a text are refused."""
    with pytest.raises(OptionError) as caught:
        Option(1, **given)
    assert message in str(caught.value)


def test_a_mapping_has_descriptions():
    """Texts are scored, descriptions shown: for choices and levels, in Python as in the data of files and clients."""
    about = {"low": "can wait", "high": None}
    described = (Option("low", None, "can wait"), Option("high"))
    assert Choice("q", about).options == described
    assert Score("q", about) == Score("q", described)
    for kind, field, question in (("choice", "choices", Choice), ("score", "levels", Score)):
        data = {"q": {"type": kind, "instructions": "q", field: about}}
        made = questions_of_data(data)["q"]
        assert made == question("q", about)
        assert questions_of_data(data_of_questions({"q": made}))["q"] == made
    with pytest.raises(OptionError, match=r"levels=1: expected texts as the keys"):
        Score("q", {"low": "x", 1: "y"})
    with pytest.raises(OptionError, match=r"q.choices.low=1: expected a text"):
        questions_of_data({"q": {"type": "choice", "choices": {"low": 1}}}, "")


def test_old_data_keeps_its_meaning():
    """Values with texts of their own, as mappings were written before, are read and written with the same bytes."""
    old = {"q": {"type": "choice", "instructions": "", "choices": [{"value": 3, "text": "three"}]}}
    made = questions_of_data(old)
    assert made["q"].options == (Option(3, "three"),)
    assert data_of_questions(made) == old


def test_a_mapping_is_no_reason_for_a_warning():
    """Its descriptions are what it says in files and requests too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Choice("q", {"a": "what a is"}).options == (Option("a", description="what a is"),)


def test_an_option_needs_a_text_and_a_value_to_look_up():
    """A value without a text of its own needs one, and it must be hashable."""
    assert Option(1.5, "one and a half").scored == "one and a half"
    for value, text, message in ((1.5, None, "value=1.5"), ([], "x", "hashable"), (1, 2, "text=2")):
        with pytest.raises(OptionError, match=message):
            Option(value, text)


def test_instructions_are_text():
    """Anything else is an error that names them."""
    for make in (lambda: Choice(7, ["a"]), lambda: Score(7, ["a"])):
        with pytest.raises(OptionError, match="instructions=7: expected a str"):
            make()
    with pytest.raises(OptionError, match="statement=7: expected a str"):
        Predicate(7)


def test_a_grammar_takes_the_place_of_options():
    """A question with a grammar has no options of its own."""
    digits = Grammar.from_regex("[0-9]+")
    question = Choice("How many?", digits)
    assert (question.options, question.grammar) == ((), digits)


def test_a_predicate_needs_something_to_be_true():
    """One of statement, yes_when and no_when is given; the two words differ."""
    assert [one.scored for one in Predicate(no_when="nobody complains", yes="ja", no="nein").options] == ["ja", "nein"]
    with pytest.raises(OptionError, match="statement=''"):
        Predicate()
    with pytest.raises(OptionError, match="statement=' '"):
        Predicate(" ", yes_when="")
    with pytest.raises(ChoiceError, match="its text equals"):
        Predicate("x", yes="no")
    with pytest.raises(ChoiceError, match="no text to score"):
        Predicate("x", yes="")
    with pytest.raises(OptionError, match="yes_when=1"):
        Predicate("x", yes_when=1)


def test_a_predicate_that_asks_for_more_than_yes_or_no_is_warned_about():
    """As a question that begins so; statements and other questions are not."""
    for text in ("What does the customer want?", " who wrote this? ", 'How bad is it?"'):
        with pytest.warns(UserWarning, match="neither yes nor no answers .* a Choice asks it"):
            Predicate(text)
    for text in ("Is it late?", "What they say is true.", "Whatever?", "Do they ask how?"):
        Predicate(text)


def test_levels_are_worth_their_places_or_their_numbers():
    """Texts in order are worth 0, 1, 2; a mapping names numbers, which may be negative or fractions."""
    assert [(one.value, one.scored) for one in Score("q", ["low", Option("mid", "middle", "so-so")]).levels] == [
        (0, "low"),
        (1, "middle"),
    ]
    assert Score("q", ["low", Option("mid", "middle", "so-so")]).levels[1].description == "so-so"
    assert [(one.value, one.scored) for one in Score("q", {-1: "bad", 0.5: "good"}).levels] == [
        (-1, "bad"),
        (0.5, "good"),
    ]
    for levels, message in (
        ([], "no levels given"),
        (["a", "a"], "its text equals"),
        ({float("nan"): "a"}, "finite numbers"),
        ({True: "a"}, "finite numbers"),
        ([3, "a"], r"levels\[0\]=3"),
        ([True], r"levels\[0\]=True"),
        ([10**400], r"levels\[0\]=1000"),
        ([3, 3], "its text equals"),
        (5, "the whole numbers from 1 to 5 are low=1, high=5"),
        ("low", "levels='low'"),
    ):
        with pytest.raises((ChoiceError, OptionError), match=message):
            Score("q", levels)


def test_whole_numbers_are_levels():
    """Between two bounds, or listed: the texts are their digits."""
    found = Score("q", low=-1, high=1)
    assert [(one.value, one.scored) for one in found.levels] == [(-1, "-1"), (0, "0"), (1, "1")]
    assert found == Score("q", range(-1, 2)) == Score("q", np.arange(-1, 2)) == Score("q", {-1: "-1", 0: "0", 1: "1"})
    assert found == Score("q", -1, 1) == Score("q", -1, high=1)
    assert len(Score("q", low=0, high=100).levels) == 101


@pytest.mark.parametrize(
    ("levels", "numbers"),
    [
        (["1", "2", "3"], [1, 2, 3]),
        (["5", "4"], [5, 4]),
        (["0", "50", "100"], [0, 50, 100]),
        (["-1", "0.5"], [-1, 0.5]),
        ({"1": "awful", "2": "great"}, [1, 2]),
        ([Option("1", description="awful"), Option("2")], [1, 2]),
        ([Option(3, "low"), Option(5, "high", "at once")], [3, 5]),
        (["1", "2", "many"], [0, 1, 2]),
        (["1st", "2nd"], [0, 1]),
        ([Option(3, "low"), "high"], [0, 1]),
        ([Option(True, "low"), Option(5, "high")], [0, 1]),
    ],
)
def test_levels_have_the_numbers_that_were_given(levels, numbers):
    """As values or as digits; they count from 0 unless all have one."""
    assert [one.value for one in Score("q", levels).levels] == numbers


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Score("q"),
            "no levels given; give their texts, lowest first, .*, or whole numbers by .low. and .high., as low=1, high=5",
        ),
        (lambda: Score("q", low=1), "high is not given; give a whole number"),
        (lambda: Score("q", high=5), "low is not given; give a whole number"),
        (lambda: Score("q", low=1.5, high=5), "low=1.5: expected a whole number"),
        (lambda: Score("q", low=True, high=5), "low=True: expected a whole number"),
        (lambda: Score("q", low=5, high=1), "high=1: expected a whole number above low=5, at most 101 levels"),
        (lambda: Score("q", low=0, high=101), "high=101: expected a whole number above low=0, at most 101 levels"),
        (lambda: Score("q", ["a", "b"], low=1, high=2), "`levels` cannot be combined with `low`"),
        (lambda: Score("q", choices=["a", "b"]), "Score has no argument 'choices'; give it as levels"),
        (lambda: Score("q", options=["a", "b"]), "Score has no argument 'options'; give it as levels"),
        (lambda: Predicate("q", yes_if="b"), "Predicate has no argument 'yes_if'; give it as yes"),
    ],
)
def test_questions_say_what_to_write(make, message):
    """For levels that are missing or could be misread, and for names that are near."""
    with pytest.raises(SelectrieError, match=message):
        make()


def test_questions_are_values():
    """Questions compare by value, can be hashed, copied and pickled, and take type arguments."""
    for make in (
        lambda: Choice[int]("q", [Option[int](1, "one")]),
        lambda: Predicate("p", yes_when="x"),
        lambda: Score("s", ["a", "b"]),
    ):
        question = make()
        assert question == make()
        assert hash(question) == hash(make())
        assert copy.deepcopy(question) == pickle.loads(pickle.dumps(question)) == question  # noqa: S301 - our own bytes
        with pytest.raises(AttributeError):
            setattr(question, fields(question)[0].name, "other")


def test_whole_numbers_that_are_too_large_are_refused_in_words():
    """A level beyond the largest float, and a value of more digits than Python writes, are one error each."""
    with pytest.raises(OptionError, match="finite numbers, or texts, as the keys"):
        Score("x", {10**400: "a", 1: "b"})
    with pytest.raises(SelectrieError):
        Choice("Q", [10**5000, 1])
