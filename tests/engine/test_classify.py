"""`classify` is `decide` with a choice of labels, or with a predicate for each label."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Literal

import numpy as np
import pytest

from selectrie import Calibration, Choice, Classification, DecisionParams, Json, Option, Predicate, Threshold, cascade
from selectrie.errors import ChoiceError, IncompatibleOptionsError, OptionError
from tests.support.deciding import fake

LABELS = ["refund", "track order", "reset password"]
TEXTS = ["Where is it?", "Pay me back!", "I cannot log in.", "Hello."]
NONE = "none of these"
SHOWN = [("Back, please.", "refund"), ("Where?", "track order"), ("I forgot it.", "reset password")]


class Team(Enum):
    """Labels with values of their own."""

    SALES = "sales"
    REPAIRS = "repairs"


@pytest.fixture(scope="module")
def llm():
    """A fake with a chat template."""
    with fake(sharpness=0.1) as engine:
        yield engine


def test_it_is_decide(llm):
    """The answer is that of a `Choice`, with the option of `none` as its last."""
    asked = Choice("What is wanted?", LABELS, examples=SHOWN)
    how = {"instructions": "What is wanted?", "examples": SHOWN}
    params = DecisionParams(permutations=2)
    assert llm.classify(TEXTS[0], LABELS, params=params, **how) == llm.decide(TEXTS[0], asked, params=params)
    described = {"refund": "they want money", "track order": None}
    options = [Option("refund", None, "they want money"), Option("track order"), Option(None, NONE)]
    answer = llm.classify(TEXTS[0], described, none=NONE)
    assert answer == llm.decide(TEXTS[0], Choice("", options))
    assert list(answer.probabilities) == ["refund", "track order", None]
    assert llm.classify(TEXTS[0], Team).value in Team
    assert llm.classify(TEXTS[0], Literal["a", "b"]) == llm.classify(TEXTS[0], np.array(["a", "b"]))
    assert llm.classify(TEXTS[0], LABELS, cue="Topic:").value in LABELS


@pytest.mark.parametrize("several", [["a", "b"], ["a", 42], ("a", None), [{"body": "a"}, {"body": "b"}]], ids=str)
def test_a_list_that_is_no_conversation_is_refused(llm, several):
    """It may mean several texts; `Json` makes it one."""
    for classify in (llm.classify, cascade([llm, llm], min_confidence=0.5).classify):
        with pytest.raises(OptionError, match=r"text=.*`classify_many`.*`Json\(\[…\]\)`"):
            classify(several, LABELS)
    assert llm.classify(Json(several), LABELS).value in LABELS
    assert llm.classify([{"role": "user", "content": "a"}], LABELS).value in LABELS


def test_the_value_is_none_where_no_label_fits(llm):
    """A prior decides it."""
    params = DecisionParams(prior=[1e-300, 1e-300, 1e-300, 1.0])
    many = llm.classify_many(TEXTS, LABELS, none=NONE, params=params)
    assert [one.value for one in many] == many.values == [None] * 4
    assert many[0].text == NONE
    assert np.asarray(many).tolist() == [None] * 4
    assert many.errors == (None,) * 4
    options = [*map(Option, LABELS), Option(None, NONE)]
    asked = Choice("", options, examples=[*SHOWN, ("Hi.", NONE)])
    assert llm.classify(TEXTS[0], LABELS, none=NONE, examples=[*SHOWN, ("Hi.", None)]) == llm.decide(TEXTS[0], asked)


def test_many_are_like_an_array(llm):
    """Length, indices, slices, iteration, labels and probabilities agree with the answers."""
    many = llm.classify_many(iter(TEXTS), LABELS)
    each = [llm.classify(text, LABELS) for text in TEXTS]
    assert isinstance(many, Classification)
    assert len(many) == len(TEXTS)
    assert list(many) == each == list(llm.classify_iter(TEXTS, LABELS))
    assert many[-1] == each[-1]
    assert list(many[1:3]) == each[1:3]
    assert np.asarray(many).tolist() == [one.value for one in each]
    assert np.asarray(many).dtype.kind == "U"
    assert many.classes == tuple(LABELS)
    assert many.probabilities.tolist() == [list(one.probabilities.values()) for one in each]
    assert many.usage.prompts == 4
    assert repr(many).startswith("Classification(4 texts: 'r") or "'track" in repr(many)
    assert many.to_dict()["classes"] == LABELS
    with pytest.raises(
        AttributeError, match="did you mean classes, the labels to choose from, or values, the label of"
    ):
        _ = many.labels
    empty = llm.classify_many([], LABELS)
    assert (len(empty), np.asarray(empty).shape, empty.probabilities.shape) == (0, (0,), (0, 3))


@pytest.mark.parametrize(
    ("labels", "dtype"), [([0, 1], int), ([True, False], bool), (list(Team), object), ([0, "a"], object)]
)
def test_labels_come_back_as_they_were(llm, labels, dtype):
    """Labels of one plain type make an array of it, others one of objects."""
    many = llm.classify_many(TEXTS[:2], labels)
    made = np.asarray(many)
    assert made.dtype == np.array([], dtype).dtype
    assert all(
        type(value) is type(one.value) and value == one.value for value, one in zip(many.values, many, strict=True)
    )
    assert made.tolist() == many.values


def test_a_text_without_an_answer(llm):
    """With "keep" it has its error, None as its label, and NaN as probabilities."""
    many = llm.classify_many([TEXTS[0], " "], LABELS, on_error="keep")
    assert many.values[1] is None
    assert many.errors[0] is None
    assert isinstance(many.errors[1], OptionError)
    assert np.asarray(many).tolist() == [many[0].value, None]
    assert np.isnan(many.probabilities[1]).all()
    with pytest.raises(OptionError, match="request 1: state=' '"):
        many[1]
    assert [*many] == [many[0], None]
    assert (many[0] in many, many.index(many[0]), many.count(many[0])) == (True, 0, 1)
    with pytest.raises(OptionError, match="request 1"):
        llm.classify_many([TEXTS[0], " "], LABELS)


def test_several_labels(llm):
    """Each label is a predicate; a prior of True calibrates all by one calibration."""
    asked = {
        one: Predicate(f"It is about {one}.", examples=[("Pay!", one == "refund"), ("Where?", one != "refund")])
        for one in LABELS
    }
    how = {
        "multi_label": True,
        "instructions": "It is about {label}.",
        "examples": [("Pay!", ["refund"]), ("Where?", LABELS[1:])],
    }
    assert llm.classify(TEXTS[0], LABELS, **how) == llm.decide(TEXTS[0], asked)
    many = llm.classify_many(TEXTS, LABELS, **how)
    decided = llm.decide_many(TEXTS, asked)
    assert list(many) == decided
    truths = [[one[label].value for label in LABELS] for one in decided]
    assert np.asarray(many).tolist() == truths
    assert many.values == [[label for label, true in zip(LABELS, row, strict=True) if true] for row in truths]
    assert many.probabilities.tolist() == [[one[label].probability for label in LABELS] for one in decided]
    kept = llm.classify_many([" ", *TEXTS], LABELS, on_error="keep", **how)
    assert np.asarray(kept).tolist() == [[None] * 3, *truths]
    with pytest.raises(OptionError, match="state=' '"):
        kept[0]
    assert [*kept] == [None, *decided]
    texts = [f"{text} {i}" for text in TEXTS for i in range(4)]
    params = DecisionParams(calibration="batch", prior={True: 0.25, False: 0.75})
    calibrated = llm.classify_many(texts, LABELS, params=params, **how)
    assert list(calibrated) == llm.decide_many(texts, asked, params=params)
    assert llm.classify(TEXTS[0], {"refund": "they want money"}, multi_label=True) == llm.decide(
        TEXTS[0], {"refund": Predicate("The text is about refund.", yes_when="they want money")}
    )


@pytest.mark.parametrize("multi_label", [False, True])
def test_examples_may_be_an_iterator(llm, multi_label):
    """Every label reads all of them."""
    shown = [(text, [label]) for text, label in SHOWN] if multi_label else SHOWN
    wanted = llm.classify(TEXTS[0], LABELS, multi_label=multi_label, examples=shown)
    assert llm.classify(TEXTS[0], LABELS, multi_label=multi_label, examples=iter(shown)) == wanted


def test_labels_of_examples_are_values_or_texts(llm):
    """A member of an Enum and its text are the same label, and True is not 1."""
    how = {"multi_label": True, "examples": [("x", [Team.SALES]), ("y", ["repairs"])]}
    asked = llm.classify(TEXTS[0], Team, **how)
    how["examples"] = [("x", ["sales"]), ("y", [Team.REPAIRS])]
    assert llm.classify(TEXTS[0], Team, **how) == asked
    with pytest.raises(OptionError, match=r"examples\[0\]\[1\]=True: expected labels among 1, 2"):
        llm.classify(TEXTS[0], [1, 2], multi_label=True, examples=[("x", [True]), ("y", [2])])


def test_awaitable_forms(llm):
    """They give what the others give."""

    async def run():
        one = await llm.aclassify(TEXTS[0], LABELS)
        many = await llm.aclassify_many(TEXTS, LABELS)
        return [one, *many], [answer async for answer in llm.aclassify_iter(TEXTS, LABELS)]

    first, streamed = asyncio.run(run())
    assert first[1:] == streamed == list(llm.classify_iter(TEXTS, LABELS))
    assert first[0] == first[1]


@pytest.mark.parametrize("multi_label", [False, True])
def test_to_pandas(llm, multi_label):
    """The columns are those of tables, and the index is that of a Series."""
    pandas = pytest.importorskip("pandas")
    series = pandas.Series([*TEXTS, " "], index=list("abcde"))
    many = llm.classify_many(series, LABELS, multi_label=multi_label, on_error="keep")
    frame = many.to_pandas(probabilities="wide")
    assert frame.index.tolist() == list("abcde")
    assert frame["error"].isna().tolist() == [True] * 4 + [False]
    if multi_label:
        assert frame[LABELS[0]].tolist()[:4] == [one[LABELS[0]].value for one in many[:4]]
        return
    assert [*frame][:2] == ["label", "probability"]
    assert frame["label"].cat.categories.tolist() == LABELS
    assert frame["label"].tolist()[:4] == many.values[:4]
    assert np.allclose(frame[[f"probability_{one}" for one in LABELS]], many.probabilities, equal_nan=True)
    frame["own"] = many
    assert frame["own"].tolist()[:4] == many.values[:4]
    assert many[1:3].to_pandas().index.tolist() == ["b", "c"]


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"labels": []}, ChoiceError, "no options given"),
        ({"labels": ["a", "a"]}, ChoiceError, "equals that of choice 0"),
        ({"labels": ["a", NONE], "none": NONE}, ChoiceError, "equals that of choice 1"),
        ({"labels": ["a", "a"], "multi_label": True}, ChoiceError, "equals that of choice 0"),
        ({"labels": {1: "a"}}, OptionError, "labels=1: expected texts as the keys"),
        ({"none": " "}, OptionError, "none=' ': expected a text such as"),
        ({"none": True}, OptionError, "none=True"),
        (
            {"none": NONE, "multi_label": True},
            IncompatibleOptionsError,
            "`none` cannot be combined with multi_label=True",
        ),
        (
            {"cue": "a:", "multi_label": True},
            IncompatibleOptionsError,
            "`cue` cannot be combined with multi_label=True",
        ),
        ({"multi_label": "yes"}, OptionError, "multi_label='yes'"),
        ({"instructions": "Which?", "multi_label": True}, OptionError, "a statement about each {label}"),
        ({"instructions": "Is it {label}?"}, OptionError, "with multi_label=True, {label} stands for each label"),
        ({"instructions": "Topic of {text}"}, OptionError, "words without {text}"),
        ({"instructions": "{text}: {label}", "multi_label": True}, OptionError, "words without {text}"),
        ({"cue": "{labels}:"}, OptionError, "words without {labels}"),
        (
            {"examples": [("x", "refund")], "multi_label": True},
            OptionError,
            r"examples\[0\]\[1\]='refund': expected a list",
        ),
        ({"examples": ["xy"], "multi_label": True}, OptionError, r"examples\[0\]='xy': expected a pair"),
        (
            {"examples": [("x", ["refund"]), ("y", ["refnud"])], "multi_label": True},
            OptionError,
            r"examples\[1\]\[1\]='refnud': expected labels among 'refund', 'track order', 'reset password'",
        ),
        (
            {"params": DecisionParams(calibration="content_free"), "multi_label": True},
            OptionError,
            "prior is not given",
        ),
    ],
)
def test_errors_name_the_argument(llm, how, error, message):
    """They come before any model call, from one text and from many."""
    how = {"labels": LABELS, **how}
    for call, about in ((llm.classify, TEXTS[0]), (llm.classify_many, TEXTS), (llm.classify_iter, TEXTS)):
        with pytest.raises(error, match=message):
            call(about, **how)


@pytest.mark.parametrize("texts", ["Where is it?", None, {"a": 1}])
def test_many_takes_several(llm, texts):
    """One text is refused."""
    with pytest.raises(OptionError, match=r"several texts, such as a list|texts is not given"):
        llm.classify_many(texts, LABELS)
    with pytest.raises(OptionError, match="`classify_many` take"):
        llm.classify(TEXTS, LABELS)


@pytest.mark.parametrize("fit", [Calibration.fit, Threshold.fit], ids=["calibration", "threshold"])
def test_labels_belong_to_several_answers(llm, fit):
    """A single answer, a single label and None are refused by name."""
    many = llm.classify_many(TEXTS, LABELS)
    decision = many.decisions[0]
    for answers, gold, meant in (
        (many[0], "refund", "(?s)answers=.*several answers"),
        (decision, ["refund"], "(?s)answers=.*several answers"),
        (None, None, "answers is not given"),
        (many, None, "gold is not given"),
        (many, "refund", "gold='refund'"),
        (many.decisions, {"label": "refund"}, r"gold\['label'\]='refund'"),
        (many.decisions, {"label": None}, r"gold\['label'\] is not given"),
    ):
        with pytest.raises(OptionError, match=meant):
            fit(answers, gold)


def test_labels_are_not_taken_for_answers(llm):
    """An array is compared label by label; what would be False for every label is refused."""
    pandas = pytest.importorskip("pandas")
    many = llm.classify_many(pandas.Series(TEXTS, index=list("abcd")), LABELS)
    gold = [many.values[0], "other", many.values[2], "other"]
    for array in (np.array(gold), pandas.Series(gold), pandas.Series(gold, dtype="string")):
        assert (many == array).tolist() == (array == many).tolist() == [True, False, True, False]
        assert (many != array).tolist() == (array != many).tolist() == [False, True, False, True]
    assert many == many  # noqa: PLR0124 - it is equal to itself alone
    assert many != many[:]
    assert many != 7
    assert len({many, many[:2]}) == 2
    assert (many.index(many[1]), many.count(many[1]), many[1] in many) == (1, 1, True)
    for look in (many.index, many.count, many.__contains__):
        with pytest.raises(OptionError, match=r"answer='refund'.*`\.values`"):
            look("refund")
    for other in (gold, "refund"):
        with pytest.raises(OptionError, match=r"`\.values` is the list of labels"):
            many == other  # noqa: B015
