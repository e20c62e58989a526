"""A cascade's answers are those of the first model that does not abstain, to the bit."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import selectrie
from selectrie import Choice, DecisionParams, Predicate, Threshold
from selectrie.errors import IncompatibleOptionsError, OptionError, PromptError, PromptTooLongError, TooManyRowsError
from tests.support.deciding import DESCRIBED, QUESTIONS, STATE, fake
from tests.support.n_examples import n_examples

LABELS = ["refund", "track order", "reset password"]
TEXTS = ["Where is it?", "Pay me back!", "I cannot log in.", "Hello."]


@pytest.fixture(scope="module")
def engines():
    """Three fakes that disagree, with chat templates."""
    with ExitStack() as stack:
        yield [stack.enter_context(fake(seed, sharpness=0.1)) for seed in (1, 2, 3)]


@settings(max_examples=n_examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    n=st.integers(1, 3),
    least=st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.8, 1.0]),
    names=st.sets(st.sampled_from(sorted(QUESTIONS)), min_size=1),
    how=st.sampled_from([{}, {"permutations": 2, "rule": "pmi", "min_label_mass": 1e-9}]),
)
def test_each_answer_is_that_of_the_first_model_that_is_sure(engines, n, least, names, how):
    """Whatever the others answered, and whichever questions a model was spared."""
    questions = {name: QUESTIONS[name] for name in sorted(names)}
    params = DecisionParams(min_confidence=0.4 if "rule" in how else 0.0, **how)
    llm = selectrie.cascade(engines[:n], min_confidence=least)
    alone = [one.decide_many(TEXTS, questions, params=params) for one in engines[:n]]
    for at, decision in enumerate(llm.decide_many(TEXTS, questions, params=params)):
        assert list(decision) == list(questions)
        for name, answer in decision.items():
            several = [one[at][name] for one in alone]
            first = next(
                (index for index, one in enumerate(several) if not one.abstained and one.confidence >= least), n - 1
            )
            assert answer.decided_by == selectrie.decide.answers.DecidedBy(first, engines[first].identity.name)
            assert answer == several[first]
            assert answer.to_dict()["decided_by"]["index"] == first


def test_zero_leaves_all_to_the_first_and_one_to_the_last(engines):
    """A confidence is 1 only where nothing else has a probability."""
    for least, index in ((0, 0), (1.0, 2)):
        answers = selectrie.cascade(iter(engines), min_confidence=least).decide_many(TEXTS, DESCRIBED)
        assert [one.decided_by.index for one in answers] == [index] * 4
    assert engines[0].decide(STATE, DESCRIBED).decided_by is None


def test_usage_has_the_rows_of_each_model():
    """Those that were evaluated, and those that the last model alone would have taken."""
    with fake(1, sharpness=0.1) as small, fake(2, sharpness=0.1) as large, fake(2, sharpness=0.1) as alone:
        least = sorted(one.confidence for one in small.classify_many(TEXTS, LABELS))[2]
        small.trim()
        n_before = small._model.rows
        llm = selectrie.cascade([small, large], min_confidence=least)
        many = llm.classify_many(TEXTS, LABELS)
        assert {one.decided_by.index for one in many} == {0, 1}
        assert many.usage.rows_by_model == (small._model.rows - n_before, large._model.rows)
        assert many.usage.cost.rows == sum(many.usage.rows_by_model)
        alone.classify_many(TEXTS, LABELS)
        assert many.usage.rows_alone == alone._model.rows > large._model.rows > 0
        sure = next(one for one in many if one.decided_by.index == 0)
        assert sure.usage.rows_by_model[1] == 0
        assert sure.usage.to_dict()["rows_alone"] == sure.usage.rows_alone
        assert "rows_alone" not in alone.decide(STATE, DESCRIBED).usage.to_dict()


def test_the_methods_are_those_of_an_engine(engines):
    """Iterators, labels, awaitable forms, one question alone, and types."""
    llm = selectrie.cascade(engines[:2], min_confidence=0.05)
    many = llm.decide_many(TEXTS, Choice("", LABELS))
    assert list(llm.decide_iter(iter(TEXTS), Choice("", LABELS))) == many
    assert list(llm.classify_many(TEXTS, LABELS)) == [llm.classify(text, LABELS) for text in TEXTS] == many
    assert asyncio.run(llm.adecide(TEXTS[0], Choice("", LABELS))) == many[0]
    assert asyncio.run(llm.aclassify_many(TEXTS, LABELS)).values == [one.value for one in many]
    several = llm.classify(TEXTS[0], LABELS, multi_label=True)
    assert list(several) == LABELS
    assert several["refund"] in [one.decide(TEXTS[0], several_questions())["refund"] for one in engines[:2]]
    assert [list(one) for one in llm.decision_prompts(STATE, QUESTIONS)] == [list(QUESTIONS)] * 2
    assert "min_confidence=0.05" in repr(llm)
    assert llm.engines == tuple(engines[:2])


def several_questions():
    """The predicates of `multi_label`."""
    return {label: Predicate(f"The text is about {label}.") for label in LABELS}


def test_tables_and_calibrations_ask_both(engines):
    """A row is decided as its state is; one object holds the calibrations of both models."""
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("narwhals")
    llm = selectrie.cascade(engines[:2], min_confidence=0.05)
    frame = pandas.DataFrame({"text": [*TEXTS, ""]})
    made = llm.decide_table(frame, {"label": Choice("", LABELS)}, state="text")
    many = llm.decide_many(TEXTS, Choice("", LABELS))
    assert made["label"].tolist()[:4] == [one.value for one in many]
    assert made["label_probability"].tolist()[:4] == [one.probability for one in many]
    assert "blank" in made["error"].tolist()[4]
    states = [f"Where is number {n}?" for n in range(20)]
    batch = DecisionParams(calibration="batch")
    fitted = DecisionParams(calibration=llm.fit_calibration(iter(states), Choice("", LABELS)))
    assert len(fitted.calibration.questions) == 2
    answers = llm.decide_many(states, Choice("", LABELS), params=batch)
    assert answers == llm.decide_many(states, Choice("", LABELS), params=fitted)
    alone = [one.decide_many(states, Choice("", LABELS), params=fitted) for one in engines[:2]]
    assert answers == [alone[one.decided_by.index][at] for at, one in enumerate(answers)]


def test_a_threshold_says_what_is_passed_on(engines):
    """It is that of the first model, and the last needs none; one of the call beside it is refused."""
    small, large = engines[:2]
    states = [f"Where is number {n}?" for n in range(12)]
    answers = small.decide_many(states, DESCRIBED)
    best = sorted(answers, key=lambda one: -one.confidence)[:6]
    gold = [one.value if one in best else 0 for one in answers]
    gold = [one if one in {1, 2, 3} else 1 + answers[at].value % 3 for at, one in enumerate(gold)]
    threshold = Threshold.fit(answers, gold, error=0.3, confidence=0.5)
    assert 0 < threshold.questions[0].n_answered < 12
    assert Threshold.fit(answers, gold, precision=0.7, confidence=0.5).value == threshold.value
    llm = selectrie.cascade([small, large], threshold=threshold)
    assert repr(llm) == repr(selectrie.cascade([small, large], min_confidence=threshold))
    decided = llm.decide_many(states, DESCRIBED)
    assert [one.probability < threshold.value for one in answers] == [one.decided_by.index == 1 for one in decided]
    sure = small.decide_many(states, DESCRIBED, params=DecisionParams(min_confidence=threshold))
    assert [one.decided_by.index for one in decided] == [int(bool(one.abstained)) for one in sure]
    assert {one.decided_by.index for one in decided} == {0, 1}
    with pytest.raises(IncompatibleOptionsError, match="min_confidence"):
        llm.decide(STATE, DESCRIBED, params=DecisionParams(min_confidence=0.5))
    with pytest.raises(OptionError, match="min_confidence"):
        llm.decide(STATE, QUESTIONS["intent"])


def test_what_one_model_cannot_be_asked_is_refused_before_any_call():
    """The error names the model; with "keep" only the state has it."""
    with fake(1) as chat, fake(2, chat=False) as page, fake(3, nodes=300) as narrow:
        with pytest.raises(PromptError, match=f"model '{page.identity.name}'"):
            selectrie.cascade([chat, page]).decide(STATE, DESCRIBED, params=DecisionParams(template="chat"))
        llm = selectrie.cascade([chat, narrow], min_confidence=0)
        with pytest.raises(PromptTooLongError) as caught:
            llm.decide_many(["Hello.", "long " * 100], {"q": DESCRIBED})
        assert caught.value.request == 1
        with pytest.raises(TooManyRowsError, match="model '"):
            llm.decide("Hello.", DESCRIBED, max_rows=5)
        assert chat._model.calls == narrow._model.calls == 0
        good, bad = llm.decide_many(["Hello.", "long " * 100], {"q": DESCRIBED}, on_error="keep")
        assert good["q"].decided_by.index == 0
        assert isinstance(bad.error, PromptTooLongError)
        assert str(bad.error) == str(caught.value)
        assert f"model '{narrow.identity.name}'" in str(bad.error)


@pytest.mark.parametrize("engines", [[], 5, ["small.gguf"], "small.gguf"])
def test_other_engines_are_refused(engines):
    """An empty list, no list, and names of models."""
    with pytest.raises(OptionError, match="engines"):
        selectrie.cascade(engines)


@pytest.mark.parametrize("least", [-0.1, 1.5, 80, float("nan"), "0.8", None])
def test_other_confidences_are_refused(engines, least):
    """They are those of `DecisionParams`, from 0 to 1."""
    with pytest.raises(OptionError, match="min_confidence"):
        selectrie.cascade(engines, min_confidence=least)
