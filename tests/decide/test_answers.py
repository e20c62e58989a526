"""The arithmetic of answers, checked by hand."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import selectrie
from selectrie import Choice, DecisionParams, Option, Score, Template
from selectrie.decide.answers import abstention_reason, confidence_of, expected, margin_of, mean_of, spread_of
from selectrie.decide.questions import KINDS
from selectrie.errors import OptionError
from tests.support.deciding import QUESTIONS, STATE, fake


def test_confidence_by_hand():
    """0 for even, 1 for certain, 1 for one option; with two options it is |2p - 1|; without a number of options it is p."""
    assert confidence_of(1.0, 1) == 1.0
    assert confidence_of(0.25, 4) == 0.0
    assert confidence_of(1.0, 4) == 1.0
    assert confidence_of(0.7, 3) == pytest.approx((0.7 - 1 / 3) / (2 / 3))
    assert confidence_of(0.8, 2) == pytest.approx(abs(2 * 0.8 - 1))
    assert confidence_of(0.3, math.inf) == 0.3


def test_spread_and_mean_by_hand():
    """The standard deviation with n - 1, of the option that moves most; 0 for one order."""
    samples = [(0.5, 0.3, 0.2), (0.7, 0.1, 0.2), (0.6, 0.2, 0.2)]
    assert mean_of(samples) == pytest.approx((0.6, 0.2, 0.2))
    assert spread_of(samples) == pytest.approx(0.1)
    assert spread_of(samples[:1]) == 0.0
    assert spread_of([(1.0, 0.0), (0.0, 1.0)]) == pytest.approx(math.sqrt(0.5))


def test_expected_number_and_margin_by_hand():
    """The expected number is the sum of value times probability; the margin is a log of odds."""
    assert expected([0, 1, 2], [0.2, 0.3, 0.5]) == pytest.approx(1.3)
    assert expected([-1, 0.5], [0.5, 0.5]) == pytest.approx(-0.25)
    assert margin_of([0.1, 0.8, 0.1]) == pytest.approx(math.log(8))
    assert margin_of([1.0]) == math.inf
    assert margin_of([1.0, 0.0]) == math.inf
    assert margin_of([0.5, 0.5]) == 0.0


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6).filter(lambda weights: sum(weights) > 1e-3))
def test_confidence_stays_between_0_and_1(weights):
    """Whatever the probabilities, up to rounding."""
    total = sum(weights)
    confidence = confidence_of(max(weights) / total, len(weights))
    assert -1e-9 <= confidence <= 1 + 1e-9


class Colour(Enum):
    RED = "red"
    BLUE = "dark blue"


def test_reports_have_whole_texts_and_no_values_of_python():
    """Options that begin alike are told apart; a `repr` has the value, and of a long text the beginning."""
    long = ["the customer wants to know where the parcel is " + place for place in ("at night", "by day")]
    with fake() as llm:
        asked = {"where": Choice("Where?", long), "level": Score("How?", long)}
        asked |= {
            "colour": Choice("Which?", Colour),
            "n": Choice("How many?", [Option(3, text="three"), Option(4, text="four")]),
        }
        decision = llm.decide(STATE, asked)
    words = {name: answer.in_words() for name, answer in decision.items()}
    assert {label for label, *_ in words["where"].options} == {repr(text) for text in long}
    assert [label for label, *_ in words["level"].options] == [f"0 {long[0]!r}", f"1 {long[1]!r}"]
    assert words["where"].text == repr(decision["where"].text)
    assert words["level"].text.endswith(f", {decision.scores['level'].level!r}")
    assert {label for label, *_ in words["colour"].options} == {"'red'", "'dark blue'"}
    assert {label for label, *_ in words["n"].options} == {"'three'", "'four'"}
    assert words["n"].text == repr(decision["n"].text)
    assert repr(decision["n"]).startswith(f"ChoiceAnswer({decision['n'].value}, p ")
    assert repr(decision["where"]).startswith("ChoiceAnswer('the customer wants to know where the parcel is …', p ")


def test_an_answer_abstains_below_either_limit():
    """Each limit that is missed is named with its number; a number at the limit is enough."""
    assert abstention_reason(0.5, 0.5, 0.5, 0.5) == ""
    assert abstention_reason(0.4, 0.9, 0.5, 0.5) == "confidence 0.4 is below 0.5"
    assert abstention_reason(0.9, 0.1, 0.5, 0.25) == "label mass 0.1 is below 0.25"
    assert abstention_reason(0.4, 0.1, 0.5, 0.25) == "confidence 0.4 is below 0.5 and label mass 0.1 is below 0.25"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "jinja"}, "template='jinja': expected 'auto', 'chat', 'base', or a Template"),
        ({"template": 7}, "template=7"),
        ({"layout": "state"}, "layout='state'"),
        ({"scoring": "digits"}, "scoring='digits'"),
        ({"rule": "batch"}, "rule='batch': expected a rule for one prompt"),
        ({"rule": "sum"}, "rule='sum'"),
        ({"prior": "even"}, "prior='even'"),
        ({"prior": 1.0}, "prior=1.0"),
        ({"permutations": 0}, "permutations=0: expected a whole number of at least 1"),
        ({"permutations": 65}, "permutations=65: expected a whole number from 1 to 64"),
        ({"permutations": "some"}, "permutations='some': expected a number of orders, 'all' or 'auto'"),
        ({"permutations": 2.0}, "permutations=2.0"),
        ({"top": 0}, "top=0"),
        ({"top": 2, "permutations": 2}, "`top` cannot be combined with `permutations`"),
        ({"min_confidence": 1.1}, "min_confidence=1.1: expected a number from 0 to 1"),
        ({"min_label_mass": -0.1}, "min_label_mass=-0.1"),
        ({"min_label_mass": float("nan")}, "min_label_mass=nan"),
        ({"list_options": 1}, "list_options=1"),
        ({"scoring": "letters", "list_options": False}, "cannot be combined with list_options=False"),
    ],
)
def test_options_are_checked_when_they_are_made(options, message):
    """Each wrong value is one error that names it."""
    with pytest.raises(OptionError) as caught:
        DecisionParams(**options)
    assert message in str(caught.value)


def test_options_are_values():
    """They compare, can be hashed and copied; a prior is copied."""
    import copy
    import pickle

    weights = {"a": 1.0}
    params = DecisionParams(prior=weights, template=Template("<<select 'answer' options=answers>>"))
    weights["a"] = 2.0
    assert params.prior == {"a": 1.0}
    assert copy.deepcopy(params) == params == pickle.loads(pickle.dumps(params))  # noqa: S301 - our own bytes
    assert hash(params) == hash(copy.copy(params))
    assert DecisionParams(prior=[1, 2]).prior == (1, 2)


def test_the_probabilities_of_a_predicate_are_those_of_its_answers():
    """They sum to 1, in the order of the options, as those of the other kinds do."""
    with fake() as llm:
        answer = llm.decide(STATE, QUESTIONS["angry"])
    assert answer.probabilities == {True: answer.probability, False: 1 - answer.probability}
    assert list(answer.probabilities) == [True, False]
    assert not replace(answer, threshold=answer.probability).value  # true is what is above the threshold
    assert replace(answer, threshold=math.nextafter(answer.probability, 0.0)).value


def test_the_kinds_of_questions_are_known_to_their_own_modules():
    """Whatever else decides asks the question, so a new kind is a class, its answer, its data and the wire."""
    package = Path(selectrie.__file__).parent
    paths = [
        *(package / "decide").glob("*.py"),
        package / "engine" / "decisions.py",
        *(package / "tables").glob("*.py"),
    ]
    of_a_kind = re.compile(rf"isinstance\(.*\b({'|'.join(kind.__name__ for kind in KINDS)})(Answer)?\b")
    asking = {path.name for path in paths if of_a_kind.search(path.read_text(encoding="utf-8"))}
    assert asking == {"answers.py", "question_data.py"}
