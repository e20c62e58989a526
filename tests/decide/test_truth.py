"""Answers and selections in an `if`, in `float` and beside their values."""

from __future__ import annotations

import pytest

from selectrie.decide.answers import Decision
from selectrie.decide.questions import Choice, Option, Predicate, Score
from selectrie.results.selection import SampledChoice
from tests.decide.test_bounded_answers import answered
from tests.results.test_joint_results import selection as joint


def decided(question, **params):
    """The answer to one question, from rows that were read in full."""
    return answered(question, 4, None, **params)


def test_a_predicate_in_an_if_is_its_value():
    """Swapping the two texts turns the value round, and `if` with it."""
    one, other = decided(Predicate("a", yes="b", no="cat")), decided(Predicate("a", yes="cat", no="b"))
    assert (bool(one), bool(other)) == (one.value, other.value)
    assert {one.value, other.value} == {True, False}


def test_a_predicate_that_abstained_is_neither():
    """The error says why it abstained; its value is still there."""
    answer = decided(Predicate("a", yes="b", no="cat"), min_label_mass=1.0)
    assert answer.abstained
    with pytest.raises(TypeError, match=r"abstained \(label mass .* is below 1\); read its `\.value`"):
        bool(answer)
    assert answer.value in (True, False)


def test_a_score_is_a_number():
    """`float` of the answer is the expected number, not that of the best level."""
    answer = decided(Score("a", {1: "b", 5: "cat"}))
    assert float(answer) == answer.score != answer.value


def test_no_answer_equals_its_value():
    """Answers compare with answers alone."""
    answer = decided(Choice("a", ["b", "cat"]))
    assert answer != answer.value
    assert decided(Predicate("a", yes="b", no="cat")) not in (True, False)


def drawn():
    """A selection, and a choice drawn of it."""
    selection = decided(Choice("a", ["b", "cat"])).selection
    return selection, SampledChoice(selection, 0, 0.5, 1.0, 0)


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: decided(Choice("a", ["b", "cat"])), "a ChoiceAnswer is neither true nor false; read its `.value`"),
        (lambda: decided(Choice("a", [Option(True, "b"), Option(False, "cat")])), "its `.value`"),
        (lambda: decided(Score("a", ["b", "cat"])), "a ScoreAnswer is neither true nor false; read its `.value`"),
        (
            lambda: Decision({"a": decided(Predicate("a", yes="b", no="cat"))}),
            "the `.value` of an answer, as in `decision[name].value`",
        ),
        (lambda: Decision({}), "decision[name].value"),
        (lambda: drawn()[0], "a Selection is neither true nor false; read its `.value`, or `.text`"),
        (lambda: drawn()[1], "a SampledChoice is neither true nor false; read its `.text`"),
        (joint, "a JointSelection is neither true nor false; read `.value(name)`"),
    ],
    ids=["choice", "choice of bools", "score", "decision", "empty decision", "selection", "sampled", "joint"],
)
def test_other_results_are_neither_true_nor_false(make, remedy):
    """An `if` on them would always run: it is an error that names what to read."""
    result = make()
    with pytest.raises(TypeError) as caught:
        bool(result)
    assert remedy in str(caught.value)
