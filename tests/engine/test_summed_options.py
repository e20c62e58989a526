"""Options with several texts: their probabilities add up to what scoring each text alone gives."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie import Choice, DecisionParams, Option, Score, Template
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import IncompatibleOptionsError, OptionError
from selectrie.testing import HashModel
from tests.support.deciding import BYTES, LIMITS, STATE, fake, prompt_of

TEXTS = st.text("abc", min_size=1, max_size=3)
OPTIONS = st.lists(TEXTS, min_size=2, max_size=8, unique=True).flatmap(
    lambda texts: st.lists(st.integers(0, 2), min_size=len(texts), max_size=len(texts)).map(
        lambda owners: [
            [text for text, own in zip(texts, owners, strict=True) if own == i] for i in sorted(set(owners))
        ]
    )
)
"""Disjoint lists of texts, one list for each option. Some texts begin others."""
MANY = Choice("q", [Option(1, texts=["a", "ab", "c"]), Option(2, "b"), Option(3, texts=["abc", "cc"])])


@pytest.fixture(scope="module", params=[True, False], ids=["chat", "page"])
def llm(request):
    """A fake whose texts end with a turn, and one whose texts end with the line."""
    with fake(chat=request.param, sharpness=3.0) as engine:
        yield engine


def alone(llm, prompt, text):
    """The joint of one text after a prompt, the only one of a select."""
    options = {"terminator": prompt.terminator, "following": prompt.following, "prompting": prompt.prompting}
    return llm.select(prompt.prompt, [text], **options).logp


def masses(llm, question, prompt):
    """The probability of each option: those of its texts, each scored alone, added up."""
    return [math.fsum(math.exp(alone(llm, prompt, text)) for text in one.spellings) for one in question.options]


@given(texts=OPTIONS)
def test_the_probability_of_an_option_is_the_sum_over_its_texts(llm, texts):
    """Scoring each text alone and adding up gives the same numbers, and no more than 1 altogether."""
    question = Choice("q", [Option(i, texts=own) for i, own in enumerate(texts)])
    answer, twin = llm.decide("x", question), masses(llm, question, prompt_of(llm, question, "x"))
    total = math.fsum(twin)
    assert answer.label_mass == pytest.approx(total, rel=1e-12)
    assert 0 < total <= 1 + 1e-12
    np.testing.assert_allclose(list(answer.probabilities.values()), np.array(twin) / total, rtol=0, atol=1e-12)
    assert answer.value == int(np.argmax(twin))
    assert answer.text == texts[answer.value][0]
    assert abs(math.fsum(answer.probabilities.values()) - 1) < 1e-9
    ahead = sorted(twin)[::-1]
    assert answer.margin == pytest.approx(math.log(ahead[0] / ahead[1]) if len(twin) > 1 else math.inf, abs=1e-9)


def planted(question, state, after, *, chat=True):
    """Rows after the prompt about a state: `after` has what follows the prompt and each text, with weights; "" is the end."""
    with fake(chat=chat) as probe:
        prompt = prompt_of(probe, question, state)
        context = tuple(token for token, _ in probe.tokens(prompt.prompt, prompt.choices).context)
    end = int(BYTES.eog[0]) if chat else BYTES.pieces.index(b"\n")
    token = {"": end} | {letter: BYTES.pieces.index(letter.encode()) for letter in "abc"}
    rows = {}
    for path, weights in after.items():
        row = [-1e4] * len(BYTES.pieces)
        for letter, weight in weights.items():
            row[token[letter]] = math.log(weight)
        rows[(*context, *(token[letter] for letter in path))] = row
    return rows


@pytest.mark.parametrize("chat", [True, False])
def test_nothing_is_counted_twice_where_one_text_begins_another(chat):
    """Half of what begins with "a" ends there and half goes on to "ab": the three texts hold 1/4, 1/4 and 1/2, which is all."""
    question = Choice("q", [Option(0, texts=["a", "b"]), Option(1, "ab")])
    after = {"": {"a": 1, "b": 1}, "a": {"": 1, "b": 1}, "ab": {"": 1}, "b": {"": 1}}
    with fake(chat=chat, planted=planted(question, "x", after, chat=chat)) as llm:
        answer = llm.decide("x", question)
        assert answer.label_mass == pytest.approx(1, abs=1e-12)
        assert answer.probabilities == pytest.approx({0: 0.75, 1: 0.25}, abs=1e-12)
        assert (answer.value, answer.text, answer.margin) == (0, "a", pytest.approx(math.log(3)))


def test_one_text_is_the_plain_option(llm):
    """An option with one text in `texts` has the bits of the option with that `text`."""
    one = llm.decide(STATE, Choice("q", [Option(1, texts=["a", "a"]), Option(2, "b")]))
    other = llm.decide(STATE, Choice("q", [Option(1, "a"), Option(2, "b")]))
    assert one == other
    assert one.selection.choices == other.selection.choices


@pytest.mark.parametrize("rule", ["pmi", "calibrated"])
def test_baselines_add_up_too(llm, rule):
    """Rules with a baseline compare the sum after the prompt with the sum after each of the baseline's prompts."""
    answer = llm.decide("x", MANY, params=DecisionParams(rule=rule, layout="state first"))
    prompt = prompt_of(llm, MANY, "x", layout="state first")
    texts = {"pmi": [""], "calibrated": ["Text: \n\n", "Text: N/A\n\n", "Text: [MASK]\n\n"]}[rule]
    baselines = [masses(llm, MANY, replace(prompt, prompt=_with_text(prompt.prompt, text))) for text in texts]
    p = np.exp(np.log(masses(llm, MANY, prompt)) - np.mean(np.log(baselines), axis=0))
    np.testing.assert_allclose(list(answer.probabilities.values()), p / p.sum(), rtol=0, atol=1e-9)


def _with_text(prompt, text):
    """The prompt with other words in place of those that show the state."""
    if isinstance(prompt, str):
        return prompt.replace("Text: x\n\n", text)
    return ({**prompt[0], "content": prompt[0]["content"].replace("Text: x\n\n", text)},)


def test_prior_orders_and_calibration_know_options(llm):
    """A weight is that of an option, orders are averaged over options, and a calibration holds for their texts alone."""
    bare = np.array(list(llm.decide(STATE, MANY).probabilities.values()))
    weighed = llm.decide(STATE, MANY, params=DecisionParams(prior={1: 1, 2: 4, 3: 2})).probabilities
    p = bare * [1, 4, 2]
    np.testing.assert_allclose(list(weighed.values()), p / p.sum(), atol=1e-12)
    averaged = llm.decide(STATE, MANY, params=DecisionParams(permutations="all"))
    assert len(averaged.selections) == 6
    other = Choice("q", [MANY.options[i] for i in (2, 0, 1)])
    same = llm.decide(STATE, other, params=DecisionParams(permutations="all"))
    assert same.probabilities == pytest.approx(averaged.probabilities, abs=1e-12)
    fitted = llm.fit_calibration([f"{i}" for i in range(3)], {"q": MANY})
    calibrated = llm.decide(STATE, MANY, params=DecisionParams(calibration=fitted)).probabilities
    if llm.vocabulary.chat_template is None:  # a page lists no options that are compared with means
        bare = np.array(list(llm.decide(STATE, MANY, params=DecisionParams(list_options=False)).probabilities.values()))
    p = bare * fitted.questions[0].weights(None)
    np.testing.assert_allclose(list(calibrated.values()), p / p.sum(), atol=1e-12)
    fewer = Choice("q", [Option(1, texts=["a", "ab"]), *MANY.options[1:]])
    with pytest.raises(OptionError, match="one of this question"):
        llm.decide(STATE, fewer, params=DecisionParams(calibration=fitted))
    assert type(fitted).from_dict(fitted.to_dict()) == fitted


def test_levels_of_a_score_may_have_several_texts(llm):
    """A score sums over the numbers of levels, whichever of a level's texts is written."""
    scale = Score("q", [Option("a", texts=["a", "aa"]), Option("b", texts=["b", "bb"])])
    answer = llm.decide(STATE, scale)
    twin = masses(llm, scale, prompt_of(llm, scale))
    assert answer.score == pytest.approx(twin[1] / sum(twin), abs=1e-12)
    assert answer.legend == {0: "a", 1: "b"}


def tolerant(tolerance, rows=None):
    """An engine that takes scores within a tolerance for near ties; its rows are the same bits in every layout."""
    model = HashModel(1, vocabulary=BYTES, limits=LIMITS, sharpness=0.5, planted=rows)
    return Engine(model, check=SelfCheck(batch_multiple=1, moved=tolerance, tolerance=tolerance))


@pytest.mark.parametrize("rule", ["joint", "pmi"])
def test_near_ties_scored_again_have_the_same_sums(rule):
    """All texts of near options are scored again, after the prompts of the baseline too, and add up to the same bits."""
    params = DecisionParams(rule=rule)
    with fake() as exact, tolerant(50.0) as llm:
        answer = llm.decide(STATE, MANY, params=params)
        assert answer.selection.certificate.n_rescored == 6
        assert answer.probabilities == pytest.approx(exact.decide(STATE, MANY, params=params).probabilities, abs=1e-12)


@pytest.mark.parametrize(("weights", "n"), [({"a": 2, "b": 1, "c": 1}, 3), ({"a": 9, "b": 0.1, "c": 0.1}, 0)])
def test_near_ties_are_those_of_options(weights, n):
    """Options whose sums are near are a near tie though no two of their texts are, and near texts of one option are none."""
    question, after = Choice("q", [Option(1, "a"), Option(2, texts=["b", "c"])]), {one: {"": 1} for one in "abc"}
    rows = planted(question, "x", {"": weights} | after) | planted(question, "y", {"": weights} | after)
    with tolerant(0.2, rows) as llm:
        together = [one["q"] for one in llm.decide_many(["x", "y"], {"q": question})]
        for answer in (llm.decide("x", question), *together):
            assert answer.selection.certificate.n_rescored == n


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"scoring": "letters"}, "scoring='letters' cannot be combined with an option with several texts"),
        ({"rule": "token_mean"}, "no length to divide by"),
        ({"top": 1}, "every text is needed"),
        ({"template": Template("<<state>> <<select 'answer' options=answers>>")}, "write text after the slot"),
    ],
)
def test_what_does_not_add_up_is_refused(llm, params, message):
    """Letters, means, searches for the best, and pages on which answers do not end have one clear error."""
    with pytest.raises(IncompatibleOptionsError, match=message):
        llm.decide(STATE, MANY, params=DecisionParams(**params))
