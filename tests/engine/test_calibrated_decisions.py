"""Calibrated answers: a select with other weights, which depend on no other state."""

from __future__ import annotations

import random
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import Calibration, Choice, DecisionParams, Grammar, Option, Score
from selectrie.errors import IncompatibleOptionsError, OptionError
from tests.support.deciding import QUESTIONS, STATE, fake

INTENT = {"intent": QUESTIONS["intent"]}
STATES = [f"{STATE} {n}" for n in range(20)]
RULES = ["joint", "token_mean", "char_mean", "byte_mean"]


@settings(max_examples=12)
@given(rule=st.sampled_from(RULES), orders=st.sampled_from([None, 2]), prior=st.sampled_from([None, [1, 2, 3]]))
def test_an_answer_is_the_plain_one_over_the_means(rule, orders, prior):
    """P · prior / mean, normalised, with the mean of the plain probabilities shrunk by 16 states."""
    plain = DecisionParams(rule=rule, permutations=orders)
    with fake() as llm:
        calibration = llm.fit_calibration(STATES, INTENT, params=plain)
        params = replace(plain, calibration=calibration, prior=prior)
        answer = llm.decide(STATE, INTENT["intent"], params=params)
        rows = [list(one["intent"].probabilities.values()) for one in llm.decide_many(STATES, INTENT, params=plain)]
        mean = (np.sum(rows, axis=0) + 16 / 3) / (len(STATES) + 16)
        weights = np.array(prior or [1, 1, 1]) / mean
        before = llm.decide(STATE, INTENT["intent"], params=plain)
        pairs = zip(before.selections, answer.selections, strict=True)
        wanted = np.mean([_of(one, other, weights, INTENT["intent"]) for one, other in pairs], axis=0)
    np.testing.assert_allclose(list(answer.probabilities.values()), wanted, rtol=1e-9, atol=1e-12)
    assert answer.signature.calibration == calibration.digest
    assert answer.label_mass == before.label_mass


def _of(plain, calibrated, weights, question):
    """The probabilities of one order of the options, in the caller's order."""
    assert plain.choices.texts == calibrated.choices.texts
    by_text = dict(zip((one.scored for one in question.options), weights, strict=True))
    p = {text: p * by_text[text] for text, p in zip(plain.choices.texts, plain.choices.probability, strict=True)}
    return [p[one.scored] / sum(p.values()) for one in question.options]


def test_a_row_depends_on_no_other_row():
    """Alone, among others and in any order, calibrated answers are equal to the last bit, also to those of "batch"."""
    with fake() as llm:
        params = DecisionParams(calibration=llm.fit_calibration(STATES, INTENT))
        alone = [llm.decide(state, INTENT, params=params) for state in STATES]
        assert llm.decide_many(STATES, INTENT, params=params) == alone
        assert llm.decide_many(STATES, INTENT, params=DecisionParams(calibration="batch")) == alone
        shuffled = list(enumerate(STATES))
        random.Random(1).shuffle(shuffled)
        made = llm.decide_many([one for _, one in shuffled], INTENT, params=DecisionParams(calibration="batch"))
        assert made == [alone[at] for at, _ in shuffled]


def test_content_free_is_the_rule_calibrated():
    """For a choice; predicates and scores are asked plainly unless a prior is given."""
    params = DecisionParams(calibration="content_free")
    with fake() as llm:
        made = llm.decide(STATE, QUESTIONS, params=params)
        rule = llm.decide(STATE, QUESTIONS, params=DecisionParams(rule="calibrated"))
        plain = llm.decide(STATE, QUESTIONS)
        assert made["intent"] == rule["intent"]
        assert (made["angry"], made["urgency"]) == (plain["angry"], plain["urgency"])
        weighed = replace(params, prior=[1.0, 2.0])
        assert llm.decide(STATE, QUESTIONS["angry"], params=weighed).signature.rule == "calibrated"


def test_predicates_are_calibrated_with_a_prior_alone():
    """Without one, even classes would be supposed."""
    question = {"angry": QUESTIONS["angry"]}
    with fake() as llm:
        params = DecisionParams(calibration=llm.fit_calibration(STATES, question))
        plain = llm.decide(STATE, question["angry"])
        assert llm.decide(STATE, question["angry"], params=params) == plain
        weighed = llm.decide(STATE, question["angry"], params=replace(params, prior=[0.2, 0.8]))
        assert weighed.signature.calibration == params.calibration.digest
        assert (
            weighed.probability
            != llm.decide(STATE, question["angry"], params=DecisionParams(prior=[0.2, 0.8])).probability
        )


def test_few_states_are_not_enough():
    """Below 16 that can be asked, "batch" warns and the answers are plain."""
    states = ["", *STATES[:15], *STATES[:15]]
    with fake() as llm, pytest.warns(UserWarning, match="needs 16 different states .* there are 15"):
        made = llm.decide_many(states, INTENT, params=DecisionParams(calibration="batch"), on_error="keep")
    with fake() as llm:
        assert made[1:] == llm.decide_many(states[1:], INTENT)


def test_what_learns_from_no_states_needs_an_object():
    """One state, a stream and a scorer refuse "batch"; another model or layout refuses a calibration."""
    batch = DecisionParams(calibration="batch")
    with fake() as llm:
        for call in (
            lambda: llm.decide(STATE, INTENT, params=batch),
            lambda: list(llm.decide_iter(STATES, INTENT, params=batch)),
            lambda: llm.decision_scorer(INTENT, params=batch),
        ):
            with pytest.raises(OptionError, match="fit_calibration"):
                call()
        given_ = DecisionParams(calibration=llm.fit_calibration(STATES, INTENT))
        assert list(llm.decide_iter(STATES, INTENT, params=given_)) == llm.decide_many(STATES, INTENT, params=given_)
        with pytest.raises(OptionError, match=r"question 'intent'.*same layout"):
            llm.decide(STATE, INTENT, params=replace(given_, layout="state first"))
        with pytest.raises(OptionError, match="of this question"):
            llm.decide(STATE, Choice("Which?", ["a", "b"]), params=given_)
        assert Calibration(()) == llm.fit_calibration(STATES, {"q": Choice("q", Grammar.from_regex("a+"))})
    with fake(2) as other, pytest.raises(OptionError, match="same model"):
        other.decide(STATE, INTENT, params=given_)


def test_a_frame_is_calibrated_by_its_rows():
    """`decide_table` gives each row the answer of `decide` with the calibration of all rows."""
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra 'tables'")
    pytest.importorskip("narwhals", reason="needs the extra 'tables'")
    table = pyarrow.table({"body": [*STATES, None, " "]})
    with fake() as llm:
        batch = DecisionParams(calibration="batch")
        made = llm.decide_table(table, INTENT, state="body", params=batch, unit_rows=3)
        params = DecisionParams(calibration=llm.fit_calibration(STATES, INTENT))
        wanted = [llm.decide(one, INTENT["intent"], params=params).probability for one in STATES]
    assert made["intent_probability"].to_pylist() == [*wanted, None, None]


def test_a_threshold_moves_the_value_of_a_predicate_alone():
    """Its probability and confidence stay; in JSON it is named where it is not 0.5."""
    with fake() as llm:
        plain = llm.decide(STATE, QUESTIONS["angry"])
        for threshold in (0.0, plain.probability, 1.0):
            answer = llm.decide(STATE, QUESTIONS["angry"], params=DecisionParams(threshold=threshold))
            assert answer.value == (plain.probability > threshold)
            assert answer.to_dict()["threshold"] == threshold
            assert (answer.probability, answer.confidence) == (plain.probability, plain.confidence)
    assert "threshold" not in plain.to_dict()
    with pytest.raises(OptionError, match=r"threshold=1\.5"):
        DecisionParams(threshold=1.5)


def test_a_threshold_needs_a_predicate():
    """It is refused where no question is one, and taken where one of several is."""
    with fake() as llm:
        for asked in (INTENT, INTENT["intent"], ["a", "b"], Score("How well?", low=1, high=3)):
            with pytest.raises(OptionError, match=r"threshold=0\.99: .*`min_confidence`"):
                llm.decide(STATE, asked, threshold=0.99)
            assert llm.decide(STATE, asked, threshold=0.5) == llm.decide(STATE, asked)
        with pytest.raises(OptionError, match="`min_confidence`"):
            llm.classify(STATE, ["a", "b"], threshold=0.99)
        assert llm.decide(STATE, {**INTENT, "angry": QUESTIONS["angry"]}, threshold=1.0)["angry"].value is False
        assert not any(one.value for one in llm.classify(STATE, ["a", "b"], multi_label=True, threshold=1.0).values())


def test_examples_and_cue_belong_to_what_was_asked():
    """A calibration of a question with other examples, another cue or other options shown is refused by name."""
    options = ["a", "b"]
    with fake() as llm:
        params = DecisionParams(template="base")
        plain = llm.fit_calibration(STATES, {"q": Choice("", options)}, params=params)
        shown = Choice("", options, examples=[("x", "a"), ("y", "b")])
        for question, own in (
            (shown, params),
            (Choice("", options, cue="Q:"), params),
            (Choice("", options), replace(params, list_options=True)),
        ):
            with pytest.raises(OptionError, match=r"one of the same (listed|layout|examples)"):
                llm.decide(STATE, question, params=replace(own, calibration=plain))
        fitted = llm.fit_calibration(STATES, {"q": shown}, params=params)
        assert llm.decide(STATE, shown, params=replace(params, calibration=fitted)).signature.calibration


@pytest.mark.parametrize("template", ["base", "chat"])
def test_a_page_lists_no_options_where_they_are_compared_with_means(template):
    """In a chat, with descriptions, and where a server's calibration does not hold, the options are listed."""
    plain, described = (
        Choice("", ["apple", "plum"]),
        Choice("", [Option("apple", description="a fruit"), Option("plum")]),
    )
    params = DecisionParams(template=template)
    with fake() as llm:

        def lists(question, **changes):
            prompts = llm.decision_prompts("a", {"q": question}, params=replace(params, **changes))["q"]
            return any("apple" in str(one.prompt) for one in prompts)

        fitted = llm.fit_calibration(STATES, {"q": plain}, params=params)
        assert lists(plain)
        for calibration in (fitted, replace(fitted, is_default=True), "content_free"):
            assert lists(plain, calibration=calibration) == (template == "chat")
        assert lists(plain, calibration="content_free", list_options=True)
        assert lists(described, calibration="content_free")
        other = llm.fit_calibration(STATES, {"q": described}, params=params)
        assert lists(plain, calibration=replace(other, is_default=True))


def test_nothing_is_fitted_before_all_states_are_valid():
    """With "batch" as without: one that is invalid stops all, before a row is evaluated."""
    with fake() as llm:
        with pytest.raises(OptionError, match="request 3"):
            llm.decide_many([*STATES[:3], " "], INTENT, params=DecisionParams(calibration="batch"))
        assert llm._model.calls == 0


def test_nothing_is_asked_where_nothing_is_calibrated():
    """Predicates without a prior, and grammars: the answers are the plain ones, with their rows and no warning."""
    texts = Choice("Which?", Grammar.from_regex("[ab]"))
    with fake() as llm:
        params = DecisionParams(calibration="batch")
        wanted = llm.decide_many(STATES, {"a": QUESTIONS["angry"], "b": texts})
        calls = llm._model.calls
        llm.trim()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert llm.decide_many(STATES, {"a": QUESTIONS["angry"], "b": texts}, params=params) == wanted
        assert llm._model.calls == 2 * calls


def test_states_that_cannot_be_asked_are_left_out():
    """They are blank, empty, or no state at all; the others are the sample."""
    with fake() as llm:
        wanted = llm.fit_calibration(STATES, INTENT)
        assert llm.fit_calibration([STATES[0], "", " ", {}, None, *STATES[1:]], INTENT) == wanted
        with pytest.raises(OptionError, match="at least one state that can be asked"):
            llm.fit_calibration(["", None], INTENT)


def test_a_calibration_of_nothing_is_refused():
    """No state that can be asked, or a rule with a baseline of its own."""
    with fake() as llm:
        with pytest.raises(OptionError, match="at least one state that can be asked"):
            llm.fit_calibration([], INTENT)
        with pytest.raises(IncompatibleOptionsError, match="rule='pmi'"):
            llm.fit_calibration(STATES, INTENT, params=DecisionParams(rule="pmi"))


def test_letters_are_warned_about_on_a_base_model():
    """Where a model has no chat template, and only there."""
    params = DecisionParams(scoring="letters")
    with fake(chat=False) as base, fake() as chat:
        with pytest.warns(UserWarning, match="letters on a model without a chat template"):
            base.decide(STATE, INTENT, params=params)
        chat.decide(STATE, INTENT, params=params)
