"""Decisions calibrated by labels, and thresholds: their numbers, winners and what they hold for."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import Calibration, Choice, DecisionParams, Option, Threshold, cascade
from selectrie.decide.asks import ask_of
from selectrie.decide.calibration import CHOSEN, METHODS
from selectrie.errors import IncompatibleOptionsError, OptionError, PromptTooLongError
from tests.support.deciding import QUESTIONS, STATE, fake

INTENT = {"intent": QUESTIONS["intent"]}
STATES = [f"{STATE} {n}" for n in range(12)]


def right(decisions, name, step=3):
    """Right values of which two in three are the answers'."""
    values = list(decisions[0][name].probabilities)
    return [one[name].value if at % step else values[at % len(values)] for at, one in enumerate(decisions)]


def fitted_of(calibration, answer):
    """The calibration of the question of an answer."""
    return calibration.of({name: value for name, value in answer.conditions.items() if name not in CHOSEN})


@settings(max_examples=8)
@given(
    rule=st.sampled_from(["joint", "char_mean"]),
    orders=st.sampled_from([None, 2]),
    method=st.sampled_from(METHODS),
    name=st.sampled_from([*QUESTIONS]),
    template=st.sampled_from(["base", "chat"]),
)
def test_an_answer_is_the_plain_one_rescaled(rule, orders, method, name, template):
    """For all kinds of questions: exp(scale · log p + offset), normalised, of the plain mean over orders."""
    question = {name: QUESTIONS[name]}
    params = DecisionParams(rule=rule, permutations=orders, template=template)
    with fake() as llm:
        plain = llm.decide_many(STATES, question, params=params)
        calibration = Calibration.fit(plain, right(plain, name), method=method)
        made = llm.decide_many(STATES, question, params=replace(params, calibration=calibration))
    for one, other in zip(plain, made, strict=True):
        before, after = one[name], other[name]
        wanted = fitted_of(calibration, before).apply(list(before.probabilities.values()))
        np.testing.assert_allclose(list(after.probabilities.values()), wanted, rtol=1e-9, atol=1e-12)
        assert after.confidence == pytest.approx((max(wanted) - 1 / len(wanted)) / (1 - 1 / len(wanted)))
        assert (after.signature.calibration, after.label_mass) == (calibration.digest, before.label_mass)
        if method == "temperature":
            assert (after.value, after.is_tie) == (before.value, before.is_tie)


def test_a_temperature_keeps_winners_ties_and_order():
    """A scale of 0.01 makes probabilities nearly equal; the winner is still that of the selection."""
    with fake() as llm:
        plain = llm.decide_many(STATES, INTENT)
        wrong = [min(one["intent"].probabilities, key=one["intent"].probabilities.get) for one in plain]
        calibration = Calibration.fit(plain, wrong)
        assert calibration.questions[0].scales == (0.01,) * 3
        for before, state in zip(plain, STATES, strict=True):
            after = llm.decide(state, INTENT, params=DecisionParams(calibration=calibration))["intent"]
            assert after.value == before["intent"].value == after.selection.text
            assert after.margin == pytest.approx(before["intent"].margin * 0.01)


def test_several_texts_of_an_option_are_scaled_as_their_sum():
    """The sum is one probability, for every method."""
    question = {
        "mood": Choice("Mood?", [Option("good", texts=["fine", "good"]), Option("bad", texts=["bad", "awful"])])
    }
    with fake() as llm:
        plain = llm.decide_many(STATES, question)
        for method in METHODS:
            calibration = Calibration.fit(plain, right(plain, "mood"), method=method)
            made = llm.decide(STATES[0], question, params=DecisionParams(calibration=calibration))["mood"]
            wanted = fitted_of(calibration, plain[0]["mood"]).apply(list(plain[0]["mood"].probabilities.values()))
            np.testing.assert_allclose(list(made.probabilities.values()), wanted, rtol=1e-9)


def test_it_holds_for_what_it_was_fitted_to():
    """Another layout, model or question of the kind is refused by name; on a server such questions are asked plainly."""
    with fake() as llm:
        plain = llm.decide_many(STATES, QUESTIONS)
        gold = {name: right(plain, name) for name in QUESTIONS}
        calibration = Calibration.fit(plain, gold)
        params = DecisionParams(calibration=calibration)
        assert llm.decide(STATE, QUESTIONS, params=params)["angry"].signature.calibration
        with pytest.raises(OptionError, match="same layout"):
            llm.decide(STATE, QUESTIONS, params=replace(params, layout="questions first"))
        other = replace(QUESTIONS["angry"], statement="The customer is glad.")
        with pytest.raises(OptionError, match="of this question"):
            llm.decide(STATE, other, params=params)
        alone = replace(calibration, questions=calibration.questions[:1])
        texts = ["track order", "refund", "re"]
        for question, difference in (
            (Choice("What?", texts), "; the instructions: it has '.*', now it is 'What\\?'"),
            (Choice("What does the customer want?", texts[::-1]), r"; the options: it has \['.*'\], now it is \['"),
        ):
            with pytest.raises(OptionError, match=difference):
                llm.decide(STATE, question, params=replace(params, calibration=alone))
        default = DecisionParams(calibration=replace(calibration, is_default=True))
        assert llm.decide(STATE, other, params=default) == llm.decide(STATE, other)
        weighed = DecisionParams(prior=[1, 2, 3])
        assert llm.decide(STATE, INTENT, params=replace(default, prior=[1, 2, 3])) == llm.decide(
            STATE, INTENT, params=weighed
        )
    with fake(2) as llm, pytest.raises(OptionError, match="same model"):
        llm.decide(STATE, QUESTIONS, params=params)


def test_options_that_exclude_it():
    """A prior, fewer options than all, and orders until plain means are settled."""
    with fake() as llm:
        for changes, method in (
            ({"prior": [1, 2, 3]}, "bias"),
            ({"top": 1}, "temperature"),
            ({"permutations": "auto"}, "bias"),
        ):
            plain = llm.decide_many(STATES, INTENT, params=DecisionParams(permutations=changes.get("permutations")))
            calibration = Calibration.fit(plain, right(plain, "intent"), method=method)
            with pytest.raises(IncompatibleOptionsError, match="a calibration from labels"):
                llm.decide(STATE, INTENT, params=DecisionParams(calibration=calibration, **changes))
        plain = llm.decide_many(STATES, INTENT)
        params = DecisionParams(calibration=Calibration.fit(plain, right(plain, "intent"), method="bias"))
        whole, best = (llm.decide(STATE, INTENT, params=replace(params, top=top))["intent"] for top in (None, 1))
        assert best.value == whole.value


def test_right_values_that_cannot_be_used():
    """Each error names the value and what it should be; answers without one are left out."""
    with fake() as llm:
        plain = llm.decide_many(["", *STATES], INTENT, on_error="keep")
        gold = [None, *right(plain[1:], "intent")]
        assert Calibration.fit(plain, gold).questions[0].n == 12
        assert Calibration.fit(plain, [None, math.nan, *gold[2:]]).questions[0].n == 11
        assert Calibration.fit(plain, {"intent": gold}) == Calibration.fit(
            [one["intent"] for one in plain[1:]], gold[1:]
        )
        several = llm.decide_many(STATES, QUESTIONS)
        other = llm.decide_many(STATES, INTENT, params=DecisionParams(min_label_mass=0.5))
        extra = replace(plain[1]["intent"], conditions={**plain[1]["intent"].conditions, "thinking": "{}"})
        for answers, values, message in (
            ([plain[1]["intent"], extra], gold[1:3], r"thinking '\{\}'.*the first has None"),
            (plain, ["x"] * 13, r"gold\['intent'\]\[1\]='x': expected one of the values"),
            (plain, gold[1:], "one right value for each of the 13 answers"),
            (plain, [None] * 13, "at least one right value"),
            (plain, "track order", "in order"),
            (several, gold[1:], "a mapping from the names of questions"),
            (plain, {"x": gold}, "names of questions that were asked: intent"),
            ([*plain[1:], *other], [*gold[1:], *gold[1:]], "min_label_mass 0.5.*made alike"),
            (["x"], ["y"], "answers of decide"),
            (llm.decide_many(STATES, INTENT, params=DecisionParams(top=1)), gold[1:], "without `top`"),
        ):
            with pytest.raises(OptionError, match=message):
                Calibration.fit(answers, values)
        with pytest.raises(OptionError, match="one of 'temperature', 'bias', 'vector'"):
            Calibration.fit(plain, gold, method="isotonic")
        with pytest.raises(OptionError, match="ridge=0"):
            Calibration.fit(plain, gold, ridge=0)
        with pytest.raises(OptionError, match="a number, because 9 answers are too few"):
            Calibration.fit(plain[1:10], gold[1:10], ridge="auto")


def test_missing_values_of_pandas_are_left_out():
    """They are those of a column of a data frame: NA and NaT."""
    pandas = pytest.importorskip("pandas")
    with fake() as llm:
        plain = llm.decide_many(STATES, INTENT)
        gold = right(plain, "intent")
        missing = pandas.Series([pandas.NA, *gold[1:]], dtype="string")
        assert Calibration.fit(plain, missing) == Calibration.fit(plain, [None, *gold[1:]])
        assert Calibration.fit(plain, [pandas.NaT, *gold[1:]]).questions[0].n == 11


@pytest.mark.parametrize("kind", [Calibration, Threshold])
def test_equal_questions_of_two_names_need_one_fit(kind):
    """Later answers could have only one of two fits; equal fits are no conflict."""
    with fake() as llm:
        plain = llm.decide_many(STATES, {"first": QUESTIONS["intent"], "second": QUESTIONS["intent"]})
        gold = [one["first"].value for one in plain]
        wrong = ["track order" if value == "refund" else "refund" for value in gold]
        assert len(kind.fit(plain, {"first": gold, "second": gold}).questions) == 2
        options = {"error": 0.3, "confidence": 0.5} if kind is Threshold else {}
        with pytest.raises(OptionError, match=r"'first' and 'second'.*different questions"):
            kind.fit(plain, {"first": gold, "second": wrong}, **options)


def test_conditions_are_the_same_when_they_were_saved():
    """Arguments of the chat template, too, are compared as JSON has them."""
    ask = ask_of(QUESTIONS["intent"], DecisionParams(template_args={"names": ("a", "b"), "deep": {1: None}}))
    with fake() as llm:
        bound = ask.bound("digest", llm.identity)
    assert json.loads(json.dumps(bound)) == bound


def test_answers_below_a_threshold_abstain():
    """Those above do not; another calibration, or a question without one, is refused by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fake() as llm:
            plain = llm.decide_many(STATES, INTENT)
            gold = [one["intent"].value for one in plain]
            threshold = Threshold.fit(plain, gold, error=0.3, confidence=0.5)
            least = threshold.questions[0].min_confidence
            assert least < 1
            params = DecisionParams(min_confidence=threshold)
            made = llm.decide_many(STATES, INTENT, params=params)
            for one in made:
                assert bool(one["intent"].abstained) == (one["intent"].confidence < least)
            none = Threshold.fit(plain, gold)
            answer = llm.decide(STATE, INTENT, params=DecisionParams(min_confidence=none))["intent"]
            assert answer.abstained == "no confidence is enough for the threshold"
            with fake(2) as larger:
                made = cascade([llm, larger], min_confidence=none).decide(STATE, INTENT)["intent"]
                assert made.probabilities == larger.decide(STATE, INTENT)["intent"].probabilities
            calibration = Calibration.fit(plain, gold)
            with pytest.raises(OptionError, match=r"min_confidence.*same calibration: it has ''"):
                llm.decide(STATE, INTENT, params=replace(params, calibration=calibration))
            with pytest.raises(OptionError, match="of this question"):
                llm.decide(STATE, QUESTIONS["angry"], params=params)
            calibrated = llm.decide_many(STATES, INTENT, params=DecisionParams(calibration=calibration))
            both = DecisionParams(
                calibration=calibration, min_confidence=Threshold.fit(calibrated, gold, error=0.3, confidence=0.5)
            )
            assert llm.decide(STATE, INTENT, params=both)["intent"].signature.calibration == calibration.digest


def test_a_threshold_of_listed_options_holds_for_no_prompt_without_the_list():
    """What does not fit with its list is an error, since "if they fit" would ask something else."""
    question = {"q": Choice("q", [f"option {i}" for i in range(20)])}
    with warnings.catch_warnings(), fake(nodes=600) as llm:
        warnings.simplefilter("ignore")
        fitting, long_state = DecisionParams(list_options="if they fit"), "x" * 400
        plain = llm.decide_many(STATES, question, params=fitting)
        assert all(one["q"].signature.listed for one in plain)
        assert not llm.decide(long_state, question, params=fitting)["q"].signature.listed
        threshold = Threshold.fit(plain, [one["q"].value for one in plain], error=0.3, confidence=0.5)
        with pytest.raises(PromptTooLongError):
            llm.decide(long_state, question, params=replace(fitting, min_confidence=threshold))


def test_classifications_are_answers_too():
    """One label whose value may be None, and several labels as predicates, which need no prior then."""
    texts, labels = STATES, ["a", "b"]
    with fake() as llm:
        one = llm.classify_many(texts, labels, none="none of these")
        calibration = Calibration.fit(one, ["a", "b", None] * 4, method="bias")
        assert calibration.questions[0].n == 12
        params = DecisionParams(calibration=calibration)
        assert llm.classify(texts[0], labels, none="none of these", params=params).signature.calibration
        several = llm.classify_many(texts, labels, multi_label=True)
        calibration = Calibration.fit(several, {"a": [True, False] * 6, "b": [False] * 12})
        made = llm.classify(texts[0], labels, multi_label=True, params=DecisionParams(calibration=calibration))
        assert [answer.signature.calibration for answer in made.values()] == [calibration.digest] * 2
