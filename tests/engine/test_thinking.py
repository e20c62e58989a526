"""Thinking first: an answer is the mean of what `select` says behind each rationale, to the last bit."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import selectrie
from selectrie import Choice, DecisionParams, Grammar, Option, SamplingParams, Thinking
from selectrie.decide.answers import mean_of
from selectrie.decide.thinking import MAX_RATIONALES
from selectrie.engine.connect import PathRuntime
from selectrie.engine.engine import Engine
from selectrie.errors import (
    IncompatibleOptionsError,
    OptionError,
    PromptTooLongError,
    UnknownArgumentError,
    WholeRowsError,
)
from selectrie.testing import HashModel, PathsOf
from tests.support.deciding import BYTES, DESCRIBED, LIMITS, QUESTIONS, STATE, fake, only
from tests.support.n_examples import n_examples

STOP = "\nAnswer: "
BRIEF = Thinking(n=3, max_tokens=5, stop=STOP, seed=7)


@pytest.fixture(scope="module")
def llm():
    """A fake with a chat template."""
    with fake(sharpness=0.1) as engine:
        yield engine


@pytest.fixture(scope="module")
def page_llm():
    """A fake without one."""
    with fake(sharpness=0.1, chat=False) as engine:
        yield engine


def behind(engine, question, inserted, state=STATE, **params):
    """The select behind a text that is written between the prompt and the answer."""
    prompt = only(engine.decision_prompts(state, {"q": question}, params=DecisionParams(**params)))
    at, prompting = prompt.prompt, prompt.prompting
    if isinstance(at, str):
        at += inserted
    else:
        prompting = replace(prompting, assistant_prefix=prompting.assistant_prefix + inserted)
    return engine.select(
        at,
        prompt.choices,
        terminator=prompt.terminator,
        following=prompt.following,
        prior=prompt.prior,
        search=prompt.search,
        prompting=prompting,
    )


@settings(max_examples=n_examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    asked=st.tuples(st.sampled_from(sorted(QUESTIONS)), st.booleans()),
    think=st.builds(
        Thinking,
        n=st.integers(1, 3),
        max_tokens=st.just(6),
        start=st.sampled_from([None, "", "Let me see. "]),
        stop=st.just(STOP),
        seed=st.integers(0, 99),
    ),
    prior=st.sampled_from([None, "rising"]),
)
def test_an_answer_is_the_mean_of_the_selects(llm, page_llm, asked, think, prior):
    """Of each kind of question, in a chat and on a page."""
    name, in_chat = asked
    engine, question = llm if in_chat else page_llm, QUESTIONS[name]
    weights = prior and [1.0 + at for at in range(len(question.options))]
    answer = engine.decide(STATE, question, params=DecisionParams(think=think, prior=weights))
    selects = [
        behind(engine, question, f"{think.start or ''}{text}{STOP}", prior=weights) for text in answer.rationales.texts
    ]
    by_rationale = [one.choices.probability.tolist() for one in selects]
    mean = dict(zip([one.value for one in question.options], mean_of(by_rationale), strict=True))
    if name == "angry":
        assert answer.probability == mean[True]
    else:
        assert dict(answer.probabilities) == mean
    assert [one.choices.logp.tolist() for one in answer.selections] == [one.choices.logp.tolist() for one in selects]
    winner = [one.value for one in question.options].index(answer.value)
    expected = statistics.stdev(row[winner] for row in by_rationale) if think.n > 1 else 0.0
    assert answer.rationales.spread == expected
    assert answer.order_dependent is None
    assert answer.usage.prompts == think.n


def test_rationales_are_those_of_generate(llm):
    """Rationale i has seed + i, alone and among other states; what is cut is counted."""
    question, params = QUESTIONS["intent"], DecisionParams(think=BRIEF)
    answer = llm.decide(STATE, question, params=params)
    prompt = only(llm.decision_prompts(STATE, {"q": question}))
    drawn = llm.generate(prompt.prompt, n=3, seed=7, max_tokens=5, stop=STOP, prompting=prompt.prompting)
    assert answer.rationales.texts == tuple(one.text for one in drawn)
    assert answer.rationales.n_cut == sum(one.finish == "length" for one in drawn) > 0
    assert answer.rationales.seed == 7
    assert answer.usage.cost.rows > llm.decide(STATE, question).usage.cost.rows
    both = llm.decide_many(["Hello.", STATE], question, params=params)
    assert both[1] == answer == next(llm.decide_iter([STATE], question, params=params))
    free = DecisionParams(think=replace(BRIEF, seed=None))
    assert llm.decide(STATE, question, params=free).rationales.seed is not None
    greedy = replace(BRIEF, sampling=SamplingParams.GREEDY)
    assert len(set(llm.decide(STATE, question, params=DecisionParams(think=greedy)).rationales.texts)) == 1
    data = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    assert data["rationales"]["texts"] == list(answer.rationales.texts)
    assert json.loads(answer.signature.thinking)["stop"] == STOP
    assert llm.decide(STATE, question).signature.thinking == ""


def test_shared_rationales_are_written_once_about_all_questions(llm):
    """Each question's answer is the mean behind them, in its own prompt."""
    questions = {"intent": QUESTIONS["intent"], "angry": QUESTIONS["angry"], "team": DESCRIBED}
    params = DecisionParams(think=replace(BRIEF, shared=True))
    decision = llm.decide(STATE, questions, params=params)
    [texts] = {one.rationales.texts for one in decision.values()}
    asked = (
        f"Text: {STATE}\n\nWhat does the customer want?\nOptions: track order, refund, re\n\n"
        "Is this true of the text? The customer is angry.\nOptions:\n- yes: they shout\n- no\n\n"
        "Which team?\nOptions:\n- sales: prices, offers\n- repairs\n- post"
    )
    drawn = llm.generate([{"role": "user", "content": asked}], n=3, seed=7, max_tokens=5, stop=STOP)
    assert texts == tuple(one.text for one in drawn)
    apart = llm.decide(STATE, questions, params=DecisionParams(think=BRIEF))
    assert len({one.rationales.texts for one in apart.values()}) > 1
    assert llm.decide_many(["Hello.", STATE], questions, params=params)[1] == decision
    alone = llm.decide(STATE, DESCRIBED, params=params)
    assert alone.rationales == llm.decide(STATE, DESCRIBED, params=DecisionParams(think=BRIEF)).rationales


def thinking_template(opening):
    """A chat template that writes `opening` after the last turn, by `enable_thinking`."""

    def chat(messages, /, *, add_generation_prompt=True, enable_thinking=True, **_):
        turns = "".join(f"{m['role'][0]}:{m['content']}<eos>\n" for m in messages)
        return turns + ("a:" + opening[enable_thinking] if add_generation_prompt else "")

    return chat


@pytest.mark.parametrize(
    ("opening", "start", "close"),
    [
        ({True: "", False: "<think>\n\n</think>\n\n"}, "<think>\n", "</think>\n\n"),
        ({True: "<think>\n", False: "<think>\n\n</think>\n\n"}, "<think>\n", "</think>\n\n"),
        ({True: "<thinking>", False: "<thinking>"}, "<thinking>", "</thinking>\n\n"),
    ],
)
def test_the_markers_of_the_chat_template_are_used(opening, start, close):
    """A template opens the block, or writes an empty one to switch thinking off."""
    with fake(chat_template=thinking_template(opening), sharpness=0.1) as engine:
        params = DecisionParams(think=Thinking(n=2, max_tokens=4, seed=1))
        prompt = only(engine.decision_prompts(STATE, {"q": DESCRIBED}, params=params))
        assert prompt.shown.endswith(f"a:{start}{close}")
        answer = engine.decide(STATE, DESCRIBED, params=params)
        assert answer.rationales.n_cut == 2
        before = prompt.shown.removesuffix(f"{start}{close}").replace("<|eos|>", "<eos>")
        assert before.endswith("a:")
        messages = list(prompt.prompt)
        for text, selection in zip(answer.rationales.texts, answer.selections, strict=True):
            prefix = f"{'' if opening[True] else start}{text}\n{close}"
            prompting = selectrie.PromptParams(assistant_prefix=prefix, template_args={"enable_thinking": True})
            mine = engine.select(messages, prompt.choices, terminator="eog", prompting=prompting)
            assert mine.choices.logp.tolist() == selection.choices.logp.tolist()


def test_a_rationale_that_ends_itself_is_not_cut():
    """What the model writes up to `stop` is the rationale, and `stop` is written once."""
    with fake(sharpness=0.1) as engine:
        prompt = only(engine.decision_prompts(STATE, {"q": DESCRIBED}))
        context = tuple(engine.encode(prompt.prompt, prompting=prompt.prompting).tolist())
    planted = {}
    for token in BYTES.encode(b"So.|").tolist():
        planted[context] = [50.0 if at == token else 0.0 for at in range(BYTES.n_tokens)]
        context += (token,)
    with fake(sharpness=0.1, planted=planted) as engine:
        think = Thinking(n=2, max_tokens=10, stop="|", seed=0)
        answer = engine.decide(STATE, DESCRIBED, params=DecisionParams(think=think))
        assert answer.rationales.texts == ("So.", "So.")
        assert (answer.rationales.n_cut, answer.rationales.spread) == (0, 0.0)
        mine = behind(engine, DESCRIBED, "So.|")
        assert answer.selections[0].choices.logp.tolist() == mine.choices.logp.tolist()


def test_tables_and_cascades_think(llm):
    """A row is decided as its state is, and so is what a cascade hands on."""
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("narwhals")
    params = DecisionParams(think=BRIEF)
    made = llm.decide_table(
        pandas.DataFrame({"text": [STATE, "Hello."]}), {"q": DESCRIBED}, state="text", params=params
    )
    many = llm.decide_many([STATE, "Hello."], DESCRIBED, params=params)
    assert made["q_probability"].tolist() == [one.probability for one in many]
    assert (
        selectrie.cascade([llm, llm], min_confidence=1.0).decide_many([STATE, "Hello."], DESCRIBED, params=params)
        == many
    )


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"n": 0}, "n"),
        ({"n": MAX_RATIONALES + 1}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ""}, "stop"),
        ({"start": "Hm."}, "stop"),
        ({"seed": 1.5}, "seed"),
        ({"shared": 1}, "shared"),
        ({"sampling": 0.5}, "sampling"),
    ],
)
def test_other_options_are_refused(values, name):
    """The error names the option."""
    with pytest.raises(OptionError, match=name):
        Thinking(**values)


@pytest.mark.parametrize(
    "params",
    [
        {"permutations": 2},
        {"scoring": "letters"},
        {"rule": "pmi"},
        {"calibration": "batch"},
        {"top": 1},
    ],
)
def test_what_cannot_be_combined_is_refused(params):
    """The error names both."""
    with pytest.raises(IncompatibleOptionsError, match="think"):
        DecisionParams(think=BRIEF, **params)


def test_what_a_model_cannot_think_about_is_refused(llm, page_llm):
    """Without markers, with a grammar, without room, or where a server draws no text; before any model call."""
    calls = llm._model.calls
    for engine in (llm, page_llm):
        with pytest.raises(OptionError, match="no block of thinking"):
            engine.decide(STATE, DESCRIBED, params=DecisionParams(think=Thinking()))
    with pytest.raises(IncompatibleOptionsError, match="a grammar"):
        llm.decide(STATE, Choice("?", Grammar.from_regex("a+")), params=DecisionParams(think=BRIEF))
    with pytest.raises(IncompatibleOptionsError, match="fit_calibration"):
        llm.fit_calibration([STATE], Choice("?", ["a", "b"]), params=DecisionParams(think=BRIEF))
    with pytest.raises(OptionError, match="think"):
        DecisionParams(think=4)
    with pytest.raises(UnknownArgumentError):
        Thinking(temperature=1.0)
    long = DecisionParams(think=replace(BRIEF, max_tokens=LIMITS.nodes - 60))
    with pytest.raises(PromptTooLongError, match="max_tokens"):
        llm.decide(STATE, DESCRIBED, params=long)
    kept = llm.decide_many([STATE], {"q": DESCRIBED}, params=long, on_error="keep")
    assert isinstance(kept[0].error, PromptTooLongError)
    assert llm._model.calls == calls
    model = HashModel(1, vocabulary=BYTES, limits=LIMITS)
    with Engine(PathRuntime(PathsOf(model))) as served, pytest.raises(WholeRowsError, match="think"):
        served.decide(STATE, Choice("?", [Option("a")]), params=DecisionParams(think=BRIEF))
