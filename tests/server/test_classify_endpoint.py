"""`POST /v1/classify` and `/classify`: the answers of `Engine.classify`, and what is refused."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie import Option
from selectrie.server import ServerOptions, app
from tests.support.deciding import fake
from tests.support.serving import ask

TEXT = "My parcel has not come."
LABELS = ["track order", "refund"]
BODY = {"text": TEXT, "labels": LABELS}


@pytest.mark.parametrize("path", ["/v1/classify", "/classify"])
@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ({}, {}),
        (
            {"instructions": "What is wanted?", "permutations": 2},
            {"instructions": "What is wanted?", "permutations": 2},
        ),
        ({"none": "none of these"}, {"none": "none of these"}),
        (
            {"cue": "Label:", "examples": [{"state": "x", "answer": "refund"}]},
            {"cue": "Label:", "examples": [("x", "refund")]},
        ),
        (
            {"labels": {"track order": "where it is", "refund": None}, "none": "else"},
            {"labels": {"track order": "where it is", "refund": None}, "none": "else"},
        ),
        (
            {"labels": [{"value": 2, "text": "refund"}, True]},
            {"labels": [Option(2, "refund"), Option(True)]},
        ),
    ],
    ids=["plain", "options", "none", "cue", "descriptions", "values"],
)
@pytest.mark.filterwarnings("ignore:no example has the answer")
def test_an_answer_is_that_of_classify(path, fields, arguments):
    """To the last bit; None is null."""
    with fake() as llm:
        wanted = llm.classify(TEXT, **{"labels": LABELS, **arguments})
        llm.trim()
        reply = ask(app(llm), "POST", path, BODY | fields)
    assert reply.status == 200
    found = reply.json
    assert (found["label"], found["probability"], found["confidence"]) == (
        wanted.value,
        wanted.probability,
        wanted.confidence,
    )
    assert {repr(one["value"]): one["probability"] for one in found["probabilities"]} == {
        repr(value): p for value, p in wanted.probabilities.items()
    }
    assert found["diagnostics"]["label_mass"] == wanted.label_mass
    assert found["usage"]["input_tokens"] == wanted.usage.input_tokens


def test_several_labels_are_predicates():
    """Each with a probability; `labels` are those that are true."""
    with fake() as llm:
        wanted = llm.classify(TEXT, LABELS, multi_label=True, instructions="It is about {label}.")
        llm.trim()
        fields = {"multi_label": True, "instructions": "It is about {label}."}
        found = ask(app(llm), "POST", "/v1/classify", BODY | fields).json
    assert found["labels"] == [
        label for label, answer in zip(LABELS, wanted.predicates.values(), strict=True) if answer.value
    ]
    assert [(one["value"], one["probability"]) for one in found["probabilities"]] == [
        (label, answer.probability) for label, answer in zip(LABELS, wanted.predicates.values(), strict=True)
    ]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"text": None}, "text", "a text, an object or an array"),
        ({"text": " "}, "text", "not blank"),
        ({"labels": None}, "labels", ""),
        ({"labels": []}, "labels", "expected at least one label"),
        ({"labels": ["a", "a"]}, "labels", "its text equals"),
        ({"labels": ["a"] * 6}, "labels", "at most 5 options"),
        ({"labels": [*"abcde"], "multi_label": True}, "labels", "at most 4, where each option"),
        ({"examples": [{"state": "x", "answer": "refund"}] * 1_001}, "examples", "at most 1000 examples"),
        ({"labels": [1.5]}, "labels[0]", "a text, a truth value or a whole number"),
        ({"instructions": "Is it {label}?"}, "instructions", "words without {label}"),
        ({"none": "x", "multi_label": True}, "none", "cannot be combined"),
        ({"label": "x"}, "label", "did you mean labels?"),
    ],
)
def test_what_is_wrong_is_named(fields, param, message):
    """Before the model is asked."""
    with fake() as llm:
        reply = ask(app(llm, ServerOptions(max_options=5, max_questions=4)), "POST", "/v1/classify", BODY | fields)
    assert (reply.status, reply.error["param"]) == (400, param)
    assert message in reply.error["message"]
