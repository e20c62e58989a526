"""Decisions over HTTP: what `decide` answers, in the shapes of both clients, asked by the clients as released."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from dataclasses import replace

import selectrie
from selectrie import Choice, DecisionParams, Option, Predicate, Score, Thinking
from selectrie.engine.scheduler.job import Job
from selectrie.results import advice
from selectrie.server import ServerOptions, app
from selectrie.server.decisions import decisions, question_bodies
from tests.support.deciding import fake
from tests.support.serving import ask, running

STATE = "My parcel has not come."
QUESTIONS = [
    {
        "type": "choice",
        "name": "intent",
        "instructions": "What does the customer want?",
        "choices": [{"value": "track order"}, {"value": "refund", "description": "money back"}, {"value": True}],
    },
    {"type": "predicate", "instructions": "The customer is angry."},
    {
        "type": "score",
        "name": "urgency",
        "instructions": [{"type": "input_text", "text": "How urgent is it?"}],
        "levels": [{"label": "can wait"}, {"label": "today", "description": "somebody waits"}],
    },
]
SYSTEMONE = {
    "intent": {
        "type": "choice",
        "instructions": "What does the customer want?",
        "criteria": {"track order": None, "refund": {"when": "money back"}},
    },
    "angry": {"type": "noul", "instructions": "The customer is angry.", "criteria": {"true": "they shout"}},
    "urgency": {"type": "score", "criteria": ["can wait", {"means": "today"}]},
}
EXTENSIONS = {
    "scoring": "letters",
    "rule": "token_mean",
    "permutations": 2,
    "min_confidence": 0.0,
    "min_label_mass": 0.0,
}


def both():
    """The questions of `QUESTIONS` and `SYSTEMONE` as records, by the paths that the server gives them."""
    choice = [Option("track order"), Option("refund", description="money back"), Option(True)]
    levels = [Option("can wait"), Option("today", description="somebody waits")]
    asked = {
        "questions[0]": Choice("What does the customer want?", choice),
        "questions[1]": Predicate("The customer is angry."),
        "questions[2]": Score("How urgent is it?", levels),
    }
    described = [Option("track order"), Option("refund", description='{"when": "money back"}')]
    numbered = [Option("0", description="can wait"), Option("1", description='{"means": "today"}')]
    others = {
        "questions.intent": Choice("What does the customer want?", described),
        "questions.angry": Predicate("The customer is angry.", yes_when="they shout"),
        "questions.urgency": Score("", numbered),
    }
    return asked, others


@pytest.mark.parametrize(
    "params",
    [{}, {"rule": "pmi"}, EXTENSIONS, {"list_options": False}, {"layout": "questions first"}, {"permutations": "auto"}],
    ids=["plain", "pmi", "extensions", "options that are not listed", "layout", "orders"],
)
def test_decisions_are_those_of_decide(params):
    """To the last bit: JSON gives floats back as they were."""
    with fake() as llm:
        wanted = llm.decide(STATE, both()[0], params=DecisionParams(**params))
        llm.trim()
        reply = ask(app(llm), "POST", "/v1/decisions", {"model": "m", "input": STATE, "questions": QUESTIONS, **params})
    assert reply.status == 200
    choice, predicate, score = reply.json["answers"]
    assert [one["name"] for one in reply.json["answers"]] == ["intent", None, "urgency"]
    intent, angry, urgency = wanted.values()
    assert {repr(one["value"]): one["probability"] for one in choice["probabilities"]} == {
        repr(value): p for value, p in intent.probabilities.items()
    }
    assert (choice["choice"], choice["confidence"]) == (intent.value, intent.confidence)
    assert predicate["probability"] == angry.probability
    assert (score["score"], score["confidence"]) == (urgency.score, urgency.confidence)
    assert [(one["value"], one["label"], one["probability"]) for one in score["probabilities"]] == [
        (0, "can wait", urgency.probabilities[0]),
        (1, "today", urgency.probabilities[1]),
    ]
    for answer, own in zip(reply.json["answers"], wanted.values(), strict=True):
        shown = answer["diagnostics"]
        assert (shown["label_mass"], shown["first_token_fits"]) == (own.label_mass, own.first_token_fits)
        assert (shown["is_tie"], shown["spread"]) == (own.is_tie, own.spread)
        assert shown["order_dependent"] is own.order_dependent
        assert shown["margin"] == own.margin
        assert shown["proved"] is all(one.certificate.proved for one in own.selections)
        assert shown["top_tokens"][0]["logprob"] == own.selections[0].top_tokens[0].logp
        assert (shown["rows"], shown["rows_one_by_one"]) == (own.usage.cost.rows, own.usage.cost.rows_naive)
        assert [one["logprob"] for one in shown["logprobs"]] == own.selections[0].choices.logp.tolist()
    usage = reply.json["usage"]
    assert usage["input_tokens"] == usage["total_tokens"] == wanted.usage.input_tokens
    assert usage["output_tokens"] == 0


def test_answers_are_drawn_on_request():
    """A head for each question, with its answer, and a bar for each option below it."""
    body = {"input": STATE, "questions": QUESTIONS}
    with fake() as llm:
        reply = ask(app(llm), "POST", "/v1/decisions", {**body, "drawing": True})
        assert "drawing" not in ask(app(llm), "POST", "/v1/decisions", body).json
        named = {"state": STATE, "questions": {"intent": QUESTIONS[0]}, "drawing": True}
        other = ask(app(llm), "POST", "/v1/systemone", named).json["drawing"]
    heads = reply.json["drawing"]["bars"]["outline"]
    assert [one["label"] for one in other["bars"]["outline"]] == [heads[0]["label"]]
    assert [one["label"].partition(":")[0] for one in heads] == ["intent", "questions[1]", "urgency"]
    assert [len(one["children"]) for one in heads] == [3, 2, 2]
    choice, predicate, _ = reply.json["answers"]
    assert heads[0]["numbers"][0]["value"] == max(one["probability"] for one in choice["probabilities"])
    assert heads[1]["children"][0]["numbers"][0]["value"] == predicate["probability"]


def test_labels_of_one_name_are_drawn_apart():
    """Labels that two questions share have their questions before them."""
    questions = [{**LABELS, "name": name, "choices": ["price", "delay"]} for name in ("bought", "asked")]
    body = {
        "input": STATE,
        "questions": [*questions, {"type": "predicate", "name": "price", "instructions": "Is it dear?"}],
    }
    with fake() as llm:
        heads = ask(app(llm), "POST", "/v1/decisions", body | {"drawing": True}).json["drawing"]["bars"]["outline"]
        only = {"text": STATE, "labels": ["price", "delay"], "multi_label": True, "drawing": True}
        alone = ask(app(llm), "POST", "/v1/classify", only).json["drawing"]["bars"]["outline"]
    names = ["bought: price", "bought: delay", "asked: price", "asked: delay", "price"]
    assert [one["label"].rpartition(": ")[0] for one in heads] == names
    assert [one["label"].rpartition(": ")[0] for one in alone] == ["price", "delay"]


def test_a_request_may_bring_its_calibration():
    """As the object that was fitted, or as "content_free"; what a server would have to learn from requests is refused."""
    question = {"questions[0]": both()[0]["questions[0]"]}
    with fake() as llm:
        fitted = llm.fit_calibration([f"{STATE} {n}" for n in range(3)], question)
        for given, params in (
            (fitted.to_dict(), DecisionParams(calibration=fitted)),
            ("content_free", DecisionParams(calibration="content_free")),
        ):
            wanted = llm.decide(STATE, question, params=params)["questions[0]"]
            body = {"input": STATE, "questions": QUESTIONS[:1], "calibration": given}
            [answer] = ask(app(llm), "POST", "/v1/decisions", body).json["answers"]
            assert [one["probability"] for one in answer["probabilities"]] == list(wanted.probabilities.values())
        newer = fitted.to_dict()
        newer["questions"][0]["bound"]["added"] = "later"
        for given in ("batch", "auto", {"questions": 1}, [1], newer):
            body = {"input": STATE, "questions": QUESTIONS[:1], "calibration": given}
            assert ask(app(llm), "POST", "/v1/decisions", body).status == 400


def test_questions_may_bring_examples_and_a_cue():
    """As fields of the question, with the answer of the same question in Python; what is wrong in one is named."""
    shown = [{"state": "Where is it?", "answer": "x"}, {"state": {"text": "Pay me"}, "answer": "y"}]
    asked = {"type": "choice", "choices": ["x", "y"], "cue": "Intent:", "examples": shown}
    with fake() as llm:
        examples = [("Where is it?", "x"), ({"text": "Pay me"}, "y")]
        wanted = llm.decide(STATE, Choice("", ["x", "y"], cue="Intent:", examples=examples))
        llm.trim()
        [answer] = ask(app(llm), "POST", "/v1/decisions", {"input": STATE, "questions": [asked]}).json["answers"]
        assert [one["probability"] for one in answer["probabilities"]] == list(wanted.probabilities.values())
        asked["examples"] = [{"state": "a", "answer": "z"}]
        reply = ask(app(llm), "POST", "/v1/decisions", {"input": STATE, "questions": [asked]})
    assert reply.status == 400
    assert "examples[0].answer" in reply.error["message"]


def test_a_server_may_have_a_calibration():
    """For the questions that it holds for, unless the request has its own or a rule with a baseline; others are plain."""
    [first, second] = [
        {"type": "choice", "instructions": text, "choices": ["x", "y"]} for text in ("First?", "Second?")
    ]
    question = {"questions[0]": Choice("First?", ["x", "y"])}
    with fake() as llm:
        fitted = llm.fit_calibration([f"{STATE} {n}" for n in range(3)], question)
        server = app(llm, ServerOptions(calibration=fitted))
        own = DecisionParams(calibration="content_free")
        for asked, sent, params in (
            (first, {}, DecisionParams(calibration=fitted)),
            (second, {}, DecisionParams()),
            (first, {"calibration": "content_free"}, own),
            (first, {"rule": "pmi"}, DecisionParams(rule="pmi")),
        ):
            wanted = llm.decide(STATE, Choice(asked["instructions"], ["x", "y"]), params=params)
            body = {"input": STATE, "questions": [asked], **sent}
            [answer] = ask(server, "POST", "/v1/decisions", body).json["answers"]
            assert [one["probability"] for one in answer["probabilities"]] == list(wanted.probabilities.values())
        plain = llm.decide(STATE, question, params=DecisionParams(calibration=replace(fitted, is_default=True)))
        assert plain["questions[0]"].signature.calibration == fitted.digest


def test_systemone_is_decide():
    """The numbers of levels are scored as texts, with the criteria as descriptions; the legend comes back as it was."""
    with fake() as llm:
        wanted = llm.decide({"body": STATE}, both()[1])
        llm.trim()
        reply = ask(app(llm), "POST", "/v1/systemone", {"model": "m", "state": {"body": STATE}, "questions": SYSTEMONE})
    assert reply.status == 200
    intent, angry, urgency = wanted.values()
    answers = reply.json["answers"]
    assert answers["intent"]["probabilities"] == dict(intent.probabilities)
    assert (answers["intent"]["choice"], answers["intent"]["confidence"]) == (intent.value, intent.confidence)
    assert (answers["angry"]["type"], answers["angry"]["noul"]) == ("noul", angry.probability)
    assert answers["urgency"]["score"] == urgency.score
    assert answers["urgency"]["legend"] == {"0": "can wait", "1": {"means": "today"}}
    assert answers["urgency"]["probabilities"] == {"0": urgency.probabilities[0], "1": urgency.probabilities[1]}


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ({"levels": ["1", "2", "3"]}, [0, 1, 2]),
        ({"low": 1, "high": 3}, [1, 2, 3]),
        ({"levels": [{"label": "1", "value": 10}, {"label": "2", "value": 20}]}, [10, 20]),
    ],
    ids=["by the protocol", "bounds", "values"],
)
def test_levels_count_from_0_unless_the_request_has_numbers(given, numbers):
    """Both protocols count levels; `low`, `high` and `value` are of this server."""
    question = {"type": "score", "instructions": "How many stars?", **given}
    with fake() as llm:
        first = ask(app(llm), "POST", "/v1/decisions", {"input": STATE, "questions": [question]}).json["answers"][0]
        second = ask(app(llm), "POST", "/v1/systemone", {"state": STATE, "questions": {"q": question}}).json["answers"][
            "q"
        ]
    probabilities = [one["probability"] for one in first["probabilities"]]
    assert [one["value"] for one in first["probabilities"]] == numbers
    assert first["score"] == pytest.approx(sum(n * p for n, p in zip(numbers, probabilities, strict=True)))
    assert (second["score"], second["probabilities"]) == (
        first["score"],
        dict(zip(map(str, numbers), probabilities, strict=True)),
    )
    assert [*second["legend"]] == [str(one) for one in numbers]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no levels given"),
        ({"low": 1}, "high"),
        ({"low": 5, "high": 1}, "above low=5"),
        ({"low": 1, "high": 3, "levels": ["a", "b"]}, "cannot be combined"),
        ({"low": 0, "high": 1 << 60}, "at most 101 levels"),
        ({"low": "1", "high": 3}, "a whole number"),
    ],
)
def test_wrong_bounds_of_levels_are_named(given, message):
    """With the path of the question."""
    question = {"type": "score", "instructions": "How many stars?", **given}
    with fake() as llm:
        reply = ask(app(llm), "POST", "/v1/decisions", {"input": STATE, "questions": [question]})
    assert reply.status == 400
    assert "questions[0]" in reply.json["error"]["message"]
    assert message in reply.json["error"]["message"]


@pytest.mark.parametrize("state", ["", " \n", {}, []], ids=["empty", "blank", "object", "array"])
def test_a_blank_state_is_shown_as_json(state):
    """TypeSafe's API takes it."""
    with fake() as llm:
        wanted = llm.decide(json.dumps(state), Predicate("The customer is angry.", yes_when="they shout"))
        reply = ask(app(llm), "POST", "/v1/systemone", {"state": state, "questions": {"a": SYSTEMONE["angry"]}})
    assert reply.json["answers"]["a"]["noul"] == wanted.probability


@pytest.mark.parametrize("path", ["decisions", "systemone"])
def test_a_question_in_the_form_of_typesafe_has_its_limits(path):
    """255 options and 10 levels, unless the operator says otherwise."""
    options = {"type": "choice", "criteria": {f"option {n}": None for n in range(256)}}
    levels = {"type": "score", "criteria": [f"level {n}" for n in range(11)]}
    with fake() as llm:
        larger = app(llm, ServerOptions(max_criteria=256, max_criteria_levels=11))
        for question, message in (
            (options, "criteria=256 items: expected at most 255"),
            (levels, "criteria=11 items: expected at most 10"),
        ):
            asked = {"input": STATE, "questions": [question]}
            if path == "systemone":
                asked = {"state": STATE, "questions": {"q": question}}
            assert message in ask(app(llm), "POST", f"/v1/{path}", asked).error["message"]
            assert ask(larger, "POST", f"/v1/{path}", asked).status == 200


def test_instructions_of_a_request_come_before_those_of_its_questions():
    """Of the same name, at the top of a systemone request."""
    with fake() as llm:
        wanted = llm.decide(STATE, Predicate("Read with care.\nIt rains."))
        questions = {"q": {"type": "noul", "instructions": "It rains."}}
        body = {"state": STATE, "questions": questions, "instructions": "Read with care."}
        assert ask(app(llm), "POST", "/v1/systemone", body).json["answers"]["q"]["noul"] == wanted.probability


@pytest.mark.parametrize("kind", ["top", "entropy", "label_mass"])
def test_confidence_is_computed_as_asked(kind):
    """By the server's option, and by the request's field before it; one option is certain."""
    with fake() as llm:
        body = {"input": STATE, "questions": [QUESTIONS[0], {**QUESTIONS[0], "name": "o", "choices": [{"value": "a"}]}]}
        by_option = ask(app(llm, ServerOptions(confidence=kind)), "POST", "/v1/decisions", body).json["answers"]
        llm.trim()
        by_field = ask(app(llm), "POST", "/v1/decisions", {**body, "confidence": kind}).json["answers"]
    assert by_option == by_field
    first, one = by_field
    p = [each["probability"] for each in first["probabilities"]]
    expected = {
        "top": (max(p) - 1 / 3) / (1 - 1 / 3),
        "entropy": 1 + sum(each * math.log(each) for each in p) / math.log(3),
        "label_mass": max(p) * first["diagnostics"]["label_mass"],
    }
    assert first["confidence"] == pytest.approx(expected[kind], abs=1e-12)
    assert one["confidence"] == (one["diagnostics"]["label_mass"] if kind == "label_mass" else 1.0)
    assert one["diagnostics"]["margin"] is None


def test_an_abstention_is_a_refusal_or_says_so():
    """`/v1/decisions` has a type for it; the client of `/v1/systemone` would drop that, so the answer stays."""
    with fake() as llm:
        body = {"input": STATE, "questions": QUESTIONS[1:2], "min_label_mass": 1.0}
        (refusal,) = ask(app(llm), "POST", "/v1/decisions", body).json["answers"]
        body = {"state": STATE, "questions": {"a": SYSTEMONE["angry"]}, "min_label_mass": 1.0}
        kept = ask(app(llm), "POST", "/v1/systemone", body).json["answers"]["a"]
    assert (refusal["type"], refusal["name"]) == ("refusal", None)
    assert "label mass" in refusal["diagnostics"]["abstained"]
    assert kept["type"] == "noul"
    assert "label mass" in kept["diagnostics"]["abstained"]


def test_a_text_and_a_truth_value_are_told_apart():
    """By texts of their own, which the prompt shows."""
    options = [{"value": "true"}, {"value": True}]
    with fake() as llm:
        body = {"input": STATE, "questions": [{"type": "choice", "instructions": "Which?", "choices": options}]}
        answer = ask(app(llm), "POST", "/v1/decisions", body).json["answers"][0]
    assert [one["text"] for one in answer["diagnostics"]["logprobs"]] == ['"true"', "true"]
    assert [one["value"] for one in answer["probabilities"]] == ["true", True]


def test_unknown_fields_are_warned_of_and_ignored_ones_are_not():
    """At the top of a request; fields that say nothing about the answer are taken."""
    with fake() as llm:
        body = {"input": STATE, "questions": QUESTIONS[1:2], "safety_identifier": "x", "stream": False}
        found = ask(app(llm), "POST", "/v1/decisions", body).json
        assert found["warnings"][0] == "the field 'stream' is unknown and was ignored"


@pytest.mark.filterwarnings("error")
def test_what_questions_lack_is_said_in_the_answer(monkeypatch):
    """A warning of Python would keep an option's text for good, and write it to the log, also of a request that is refused."""
    monkeypatch.setattr(advice, "_warned", set())
    long = "x" * 1_000
    shared = [{"value": 1, "texts": ["a", long]}, {"value": 2, "texts": ["b", long]}]
    questions = [
        {"type": "choice", "choices": ["a", long], "examples": [{"state": "s", "answer": "a"}]},
        {"type": "choice", "choices": shared},
        {"type": "predicate", "instructions": "It rains.", "examples": [{"state": "s", "answer": True}]},
    ]
    body = {"input": STATE, "questions": questions}
    with fake() as llm, fake(chat=False) as base:
        reply = ask(app(llm), "POST", "/v1/decisions", body)
        refused = ask(app(llm), "POST", "/v1/decisions", {**body, "calibration": {"x": 1}})
        letters = ask(app(base), "POST", "/v1/decisions", {**body, "questions": QUESTIONS, "scoring": "letters"})
    quoted = "'" + "x" * 78 + "…"
    assert reply.json["warnings"][:3] == [
        f"questions[0]: no example has the answer {quoted}; give each option some",
        f"questions[1]: several options have the text {quoted}, so it is scored for none",
        "questions[2]: no example has the answer 'no'; give each option some",
    ]
    assert (refused.status, refused.error["code"]) == (400, "option")
    assert letters.json["warnings"][0].startswith("letters on a model without a chat template")


LONG = "word " * 1_000


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"choices": ["a", LONG]}, "give shorter options, or fewer of them"),
        ({"choices": ["a", {"value": "b", "texts": ["b", LONG]}]}, "give shorter options, or fewer of them"),
        ({"choices": ["a", {"value": "b", "description": LONG}]}, "give shorter options, or fewer of them"),
        ({"choices": [f"option {n}" for n in range(90)]}, "give shorter options, or fewer of them"),
        ({"instructions": LONG}, "shorten the instructions"),
        ({"cue": LONG}, "shorten the cue"),
        ({"examples": [{"state": LONG, "answer": one} for one in "ab"]}, "give shorter examples, or fewer of them"),
    ],
    ids=["option", "texts", "description", "options", "instructions", "cue", "examples"],
)
def test_what_is_too_long_is_named(changes, remedy):
    """The part of the question that has most of the prompt, and not the input beside it."""
    question = {"type": "choice", "choices": ["a", "b"], **changes}
    with fake(nodes=600) as llm:
        body = {"input": "abcd", "questions": [question], "list_options": True}
        error = ask(app(llm), "POST", "/v1/decisions", body).error
    assert (error["code"], error["param"]) == ("prompt_too_long", "questions[0]")
    assert f"the context holds 600; {remedy}" in error["message"]


def test_a_list_of_options_that_does_not_fit_is_left_out():
    """The others of the request keep theirs; the response says so, and its numbers are those without a list."""
    many = {f"option {n}": "what it means" for n in range(60)}
    body = {"state": STATE, "questions": {"many": {"type": "choice", "criteria": many}, "angry": SYSTEMONE["angry"]}}
    with fake(nodes=600) as llm:
        reply = ask(app(llm), "POST", "/v1/systemone", body)
        llm.trim()
        questions = {
            "many": Choice("", [Option(one, description="what it means") for one in many]),
            "b": both()[1]["questions.angry"],
        }
        unlisted = llm.decide(
            STATE, {"many": questions["many"], "b": Predicate("x")}, params=DecisionParams(list_options=False)
        )
        listed = llm.decide(STATE, questions["b"])
    assert reply.json["answers"]["many"]["probabilities"] == dict(unlisted["many"].probabilities)
    assert reply.json["answers"]["angry"]["noul"] == listed.probability
    assert reply.json["warnings"][0].startswith("question 'questions.many': the list of its options does not fit")


def test_a_question_with_a_long_name():
    """It is answered under its name, and errors name it by its index: they quote little of a request."""
    long = "x" * 5_000
    with fake() as llm:
        body = {"state": STATE, "questions": {"a": SYSTEMONE["angry"], long: SYSTEMONE["angry"]}}
        assert list(ask(app(llm), "POST", "/v1/systemone", body).json["answers"]) == ["a", long]
        body["questions"][long] = {"type": "maybe"}
        error = ask(app(llm), "POST", "/v1/systemone", body).error
    assert error["param"] == "questions[1].type"
    assert len(error["message"]) < 250


def test_null_is_a_field_that_is_not_given():
    """As clients write options that they leave to the server."""
    nulls = dict.fromkeys(("model", "confidence", *EXTENSIONS))
    with fake() as llm:
        body = {"input": STATE, "questions": QUESTIONS}
        wanted = ask(app(llm), "POST", "/v1/decisions", body).json
        llm.trim()
        assert ask(app(llm), "POST", "/v1/decisions", {**body, **nulls}).json == wanted
        llm.trim()
        words = dict.fromkeys(("yes", "no", "yes_when", "no_when", "examples"))
        body["questions"] = [{**one, **words} if one["type"] == "predicate" else one for one in QUESTIONS]
        assert ask(app(llm), "POST", "/v1/decisions", body).json == wanted


@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/systemone"])
def test_fields_of_other_endpoints_work_or_are_refused(path):
    """None of them is ignored with a warning: a client that sends one means it."""
    with fake() as llm:
        asked = {"input": STATE, "questions": QUESTIONS[1:2]}
        if path == "/v1/systemone":
            asked = {"state": STATE, "questions": {"q": {"type": "noul", "instructions": "They are angry."}}}
        plain, base = (ask(app(llm), "POST", path, {**asked, **more}) for more in ({}, {"template": "base"}))
        assert plain.json["usage"]["input_tokens"] != base.json["usage"]["input_tokens"]
        named = ask(app(llm), "POST", path, {**asked, "request_id": "mine", "cache_salt": "x", "priority": 0})
        assert (named.status, named.headers["x-request-id"]) == (200, "mine")
        assert named.json.get("warnings") == plain.json.get("warnings")
        for name, value in (
            ("top", 1),
            ("chat_template_kwargs", {"chat_template": "x"}),
            ("priority", 1),
            ("template", "x"),
        ):
            reply = ask(app(llm), "POST", path, {**asked, name: value})
            assert reply.status == (400 if path == "/v1/decisions" else 422)
            assert reply.error["param"].partition(".")[0] == name
        assert int(named.headers["openai-processing-ms"]) >= 0


def test_a_request_of_a_lower_priority_goes_first():
    """As for chats: the tasks of a decision have its priority, if the operator allows it."""
    ranks = []
    with fake() as llm:
        begin = Job.__init__

        def note(job, *given, **named):
            begin(job, *given, **named)
            ranks.append(job.priority)

        body = {"input": STATE, "questions": QUESTIONS[1:2], "priority": -3}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Job, "__init__", note)
            assert ask(app(llm, ServerOptions(allow_priority=True)), "POST", "/v1/decisions", body).status == 200
            assert {*ranks} == {3}
            ranks.clear()
            assert ask(app(llm), "POST", "/v1/decisions", {**body, "priority": 0}).status == 200
            assert {*ranks} == {0}


def test_arguments_of_the_chat_template_reach_it():
    """The answers are those of `decide` with `template_args`; a page without a chat template has none."""
    args = {"note": "Think of the customer."}
    body = {"input": STATE, "questions": QUESTIONS[1:2], "chat_template_kwargs": args}
    with fake() as llm, fake(chat=False) as base:
        plain = llm.decide(STATE, both()[0]["questions[1]"])
        wanted = llm.decide(STATE, both()[0]["questions[1]"], template_args=args)
        [answer] = ask(app(llm), "POST", "/v1/decisions", body).json["answers"]
        refused = ask(app(base), "POST", "/v1/decisions", body)
    assert answer["probability"] == wanted.probability
    assert wanted.conditions["template_args"] == args
    assert "template_args" not in plain.conditions
    assert (refused.status, refused.error["param"]) == (400, "chat_template_kwargs")


@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/systemone"])
def test_a_body_of_the_other_form_is_answered_in_its_form(path):
    """A body with `state` alone has TypeSafe's form, one with `input` alone OpenAI's; errors are those of the path."""
    openai, typesafe = {"input": STATE, "questions": QUESTIONS}, {"state": STATE, "questions": SYSTEMONE}
    with fake() as llm:
        for body, own in ((openai, "/v1/decisions"), (typesafe, "/v1/systemone")):
            llm.trim()
            wanted = ask(app(llm), "POST", own, body).json
            llm.trim()
            assert ask(app(llm), "POST", path, body).json == wanted
            wrong = ask(app(llm), "POST", path, {**body, "questions": 7})
            assert (wrong.status, wrong.error["param"]) == (400 if path == "/v1/decisions" else 422, "questions")


LABELS = {"type": "choice", "instructions": "It is about {label}.", "multi_label": True}


def test_each_label_of_several_is_a_predicate():
    """The answers are those of `classify(multi_label=True)`, in the shape of each form."""
    labels = ["refund", Option("delay", description="it is late"), "praise"]
    choices = ["refund", {"value": "delay", "description": "it is late"}, "praise"]
    criteria = {"refund": None, "delay": "it is late", "praise": None}
    with fake() as llm:
        wanted = llm.classify(STATE, labels, multi_label=True, instructions="It is about {label}.")
        llm.trim()
        body = {"input": STATE, "questions": [QUESTIONS[1], {**LABELS, "name": "topics", "choices": choices}]}
        first, found = ask(app(llm), "POST", "/v1/decisions", body).json["answers"]
        llm.trim()
        asked = {"state": STATE, "questions": {"topics": {**LABELS, "criteria": criteria}}}
        other = ask(app(llm), "POST", "/v1/systemone", asked).json["answers"]["topics"]
        body["questions"][1] |= {"multi_label": False, "instructions": "What?"}
        assert ask(app(llm), "POST", "/v1/decisions", body).json["answers"][1]["type"] == "choice"
    p = {name: one.probability for name, one in wanted.predicates.items()}
    assert first["type"] == "predicate"
    assert (found["type"], found["name"]) == ("multi_label", "topics")
    assert {one["value"]: one["probability"] for one in found["probabilities"]} == p == other["probabilities"]
    assert found["choices"] == other["choices"] == [name for name, one in wanted.predicates.items() if one.value]
    assert found["probabilities"][1]["diagnostics"]["label_mass"] == other["diagnostics"]["delay"]["label_mass"]


@pytest.mark.parametrize(
    ("changes", "param", "message"),
    [
        ({"instructions": "Which?"}, "questions[0].instructions", "a statement about each {label}"),
        ({"cue": "Topic:", "instructions": None}, "questions[0].cue", "`cue` cannot be combined with multi_label"),
        ({"multi_label": 1}, "questions[0].multi_label", "expected true or false"),
        ({"choices": [str(n) for n in range(401)]}, "questions", "each option of a question with multi_label is one"),
        (
            {"examples": [{"state": "x", "answer": "a"}]},
            "questions[0].examples[0].answer",
            "a list of the labels that are true",
        ),
        ({"type": "score", "levels": ["a"], "choices": None}, "questions[0].multi_label", "one of the fields"),
    ],
)
def test_what_is_wrong_with_several_labels_is_named(changes, param, message):
    """Before any call of the model."""
    question = {**LABELS, "choices": ["a", "b"], **changes}
    with fake() as llm:
        reply = ask(app(llm), "POST", "/v1/decisions", {"input": STATE, "questions": [question]})
        assert llm._model.calls == 0
    assert (reply.status, reply.error["param"]) == (400, param)
    assert message in reply.error["message"]


def test_examples_of_several_labels():
    """Each has the list of its labels, as in `classify`."""
    shown = [("Pay me", ["refund"]), ("Late!", ["refund", "delay"]), ("Hello", [])]
    examples = [{"state": state, "answer": answer} for state, answer in shown]
    question = {**LABELS, "choices": ["refund", "delay"], "examples": examples}
    with fake() as llm:
        wanted = llm.classify(
            STATE, ["refund", "delay"], multi_label=True, instructions="It is about {label}.", examples=shown
        )
        [found] = ask(app(llm), "POST", "/v1/decisions", {"input": STATE, "questions": [question]}).json["answers"]
    assert [one["probability"] for one in found["probabilities"]] == [
        one.probability for one in wanted.predicates.values()
    ]


def test_levels_of_equal_labels_are_scored_by_their_numbers():
    """As those of TypeSafe's form, with the labels as descriptions, which the answer keeps."""
    levels = [{"label": "bad"}, {"label": "fair"}, {"label": "fair", "description": "after a wait"}]
    question = {"type": "score", "instructions": "How was it?", "levels": levels}
    by_number = {**question, "criteria": ["bad", "fair", levels[2]]}
    del by_number["levels"]
    with fake() as llm:
        body = {"input": STATE, "questions": [question]}
        [found] = ask(app(llm), "POST", "/v1/decisions", body).json["answers"]
        llm.trim()
        [wanted] = ask(app(llm), "POST", "/v1/decisions", {**body, "questions": [by_number]}).json["answers"]
    assert (found["score"], found["confidence"]) == (wanted["score"], wanted["confidence"])
    assert [one["label"] for one in found["probabilities"]] == ["bad", "fair", "fair"]
    assert [one["probability"] for one in found["probabilities"]] == [
        one["probability"] for one in wanted["probabilities"]
    ]


def test_a_server_may_let_decisions_abstain():
    """Below `--min-label-mass`, unless the request has a mass of its own."""
    with fake() as llm:
        application = app(llm, ServerOptions(min_label_mass=1.0))
        asked = {"input": STATE, "questions": QUESTIONS[1:2]}
        assert ask(application, "POST", "/v1/decisions", asked).json["answers"][0]["type"] == "refusal"
        found = ask(application, "POST", "/v1/decisions", {**asked, "min_label_mass": 0.0}).json
        assert found["answers"][0]["type"] != "refusal"


def test_large_requests_are_answered_as_small_ones_are():
    """They are read, and their answers written, in a thread; so are their errors."""
    with fake() as llm:
        small = {"input": STATE, "questions": QUESTIONS}
        large = small | {"unknown": "x" * 70_000}
        wanted = ask(app(llm), "POST", "/v1/decisions", small).json
        llm.trim()
        found = ask(app(llm), "POST", "/v1/decisions", large).json
        assert found.pop("warnings") == ["the field 'unknown' is unknown and was ignored", *wanted.pop("warnings")]
        assert [one["probabilities"] for one in found["answers"][::2]] == [
            one["probabilities"] for one in wanted["answers"][::2]
        ]
        reply = ask(app(llm), "POST", "/v1/decisions", {**large, "rule": "x"})
        assert (reply.status, reply.error["param"]) == (400, "rule")


IMAGE = [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]


@pytest.mark.parametrize(
    ("path", "changes", "code", "param"),
    [
        ("decisions", {"input": None}, "option", "input"),
        ("decisions", {"input": {"a": 1}}, "option", "input"),
        ("decisions", {"input": " "}, "option", "input"),
        ("decisions", {"input": []}, "option", "input"),
        ("decisions", {"input": [1, 2]}, "option", "input[0]"),
        ("decisions", {"input": [[]]}, "option", "input[0]"),
        ("decisions", {"input": ["a"]}, "option", "input[0]"),
        ("decisions", {"input": [{"role": "user", "content": "x"}, {"role": "user"}]}, "option", "input[1]"),
        ("decisions", {"input": [{"role": "user", "content": [7]}]}, "prompt", "input[0].content[0]"),
        ("decisions", {"input": "a\ud800"}, "text", "input"),
        ("decisions", {"input": "x" * 40_000}, "prompt_too_long", "input"),
        ("decisions", {"list_options": 1}, "option", "list_options"),
        ("decisions", {"list_options": False, "scoring": "letters"}, "option", "scoring"),
        ("decisions", {"input": IMAGE}, "unsupported_input", "input[0].content[0]"),
        ("decisions", {"input": [{"role": "cook", "content": "x"}]}, "prompt", "input[0]"),
        ("decisions", {"questions": []}, "option", "questions"),
        ("decisions", {"questions": {}}, "option", "questions"),
        ("decisions", {"questions": ["x"]}, "option", "questions[0]"),
        ("decisions", {"questions": [{"type": "box"}]}, "unsupported_input", "questions[0].type"),
        ("decisions", {"questions": [{"type": "maybe"}]}, "option", "questions[0].type"),
        ("decisions", {"questions": [{**QUESTIONS[0], "x": 1}]}, "option", "questions[0].x"),
        ("decisions", {"questions": [{**QUESTIONS[0], "name": 7}]}, "option", "questions[0].name"),
        ("decisions", {"questions": [{**QUESTIONS[0], "choices": []}]}, "choice", "questions[0]"),
        ("decisions", {"questions": [{**QUESTIONS[0], "choices": [{"value": "a"}] * 2}]}, "choice", "questions[0]"),
        ("decisions", {"questions": [{**QUESTIONS[0], "choices": [{"value": "a\ud800"}]}]}, "text", "questions[0]"),
        ("decisions", {"rule": "batch"}, "option", "rule"),
        ("decisions", {"scoring": 7}, "option", "scoring"),
        ("decisions", {"permutations": 65}, "option", "permutations"),
        ("decisions", {"min_confidence": "x"}, "option", "min_confidence"),
        ("decisions", {"confidence": "x"}, "option", "confidence"),
        ("decisions", {"model": 7}, "option", "model"),
        ("systemone", {"state": 7}, "option", "state"),
        ("systemone", {"state": "x" * 40_000}, "prompt_too_long", "state"),
        ("systemone", {"state": [{"role": "cook", "content": "x"}]}, "prompt", "state[0]"),
        ("systemone", {"instructions": "x" * 40_000}, "prompt_too_long", "questions.intent"),
        ("systemone", {"assets": {"x": {}}}, "unsupported_input", "assets"),
        ("systemone", {"questions": {"a": {"type": "box"}}}, "unsupported_input", "questions.a.type"),
        ("systemone", {"questions": {"a": {"type": "choice", "criteria": {}}}}, "choice", "questions.a"),
        ("systemone", {"questions": {"a": {"type": "noul"}}}, "option", "questions.a"),
        (
            "decisions",
            {"questions": [{"type": "choice", "choices": ["a", "b"], "cue": "a\ud800"}]},
            "text",
            "questions[0].cue",
        ),
        ("systemone", {"instructions": 7}, "option", "instructions"),
        ("systemone", {"questions": {"a": {**SYSTEMONE["angry"], "x": 1}}}, "option", "questions.a.x"),
        ("systemone", {"questions": {"it's": {"type": "noul"}}}, "option", "questions.it's"),
        ("systemone", {"state": [IMAGE[0]["content"][0]]}, "unsupported_input", "state[0]"),
    ],
)
def test_what_is_wrong_is_named(path, changes, code, param):
    """In the shapes of each API, with our code and the path to the value, and no call of the model."""
    own = {"input": STATE, "questions": QUESTIONS} if path == "decisions" else {"state": STATE, "questions": SYSTEMONE}
    with fake() as llm:
        reply = ask(app(llm), "POST", f"/v1/{path}", {**own, **changes})
        assert reply.status == (400 if path == "decisions" else 422)
        if path == "systemone":
            [detail] = reply.json["detail"]
            assert (detail["loc"][0], detail["type"], detail["msg"]) == ("body", code, reply.error["message"])
            assert (
                "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in detail["loc"][1:]) == f".{param}"
            )
        assert (reply.error["code"], reply.error["param"]) == (code, param)
        assert reply.error["type"] == "invalid_request_error"
        assert path == "systemone" or "state" not in reply.error["message"]
        assert llm._model.calls == 0


def test_errors_of_systemone_that_are_not_of_the_body_have_an_object():
    """As TypeSafe's: the kind of error and the message. Its clients send images as several parts."""
    with fake() as llm:
        parts = ask(app(llm), "POST", "/v1/systemone", data=b"x", headers={"content-type": "multipart/form-data"})
        other = ask(app(llm), "GET", "/v1/systemone")
        full = app(llm, ServerOptions(max_requests=1))
        full.state.n_open = 1
        busy = ask(full, "POST", "/v1/systemone", {"state": STATE, "questions": SYSTEMONE})
    for reply, status, kind in (
        (parts, 415, "invalid_request_error"),
        (other, 405, "invalid_request_error"),
        (busy, 429, "rate_limit_error"),
    ):
        assert reply.status == status
        assert reply.json["detail"] == {"error_type": kind, "message": reply.error["message"]}
    assert "images and files are not read" in parts.error["message"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_questions": 2}, "at most 2 questions"),
        ({"max_options": 2}, "at most 2 options of a question"),
        ({"max_options_in_all": 6}, "at most 6 options in a request"),
        ({"max_rows": 100}, "expected at most 100"),
    ],
)
def test_limits_are_checked_before_the_model(options, message):
    """All of them are options of the server."""
    with fake() as llm:
        body = {"input": STATE, "questions": QUESTIONS}
        reply = ask(app(llm, ServerOptions(**options)), "POST", "/v1/decisions", body)
        assert reply.status == 400
        assert message in reply.error["message"]
        assert llm._model.calls == 0
        assert ask(app(llm), "POST", "/v1/decisions", body).status == 200


@pytest.mark.parametrize(
    ("path", "questions"),
    [
        ("decisions", [{"type": "choice", "choices": ["a", {"value": "b", "texts": ["b", "B"]}]}, QUESTIONS[1]] * 2),
        ("systemone", {f"q{i}": {"type": "score", "criteria": ["low", "high", "higher"]} for i in range(4)}),
    ],
)
def test_options_are_counted_before_other_work(path, questions, monkeypatch):
    """What a request has too many of is not read by models and made into records first."""
    monkeypatch.setattr(decisions, "read", None)
    monkeypatch.setattr(question_bodies, "question_of_data", None)
    body = {"input": STATE, "state": STATE, "questions": questions}
    with fake() as llm:
        error = ask(app(llm, ServerOptions(max_options_in_all=9)), "POST", f"/v1/{path}", body).error
    assert error["param"] == "questions"
    assert error["message"].startswith(
        ("questions=10 options: expected at most 9", "questions=12 options: expected at most 9")
    )


def test_options_have_several_texts_over_http():
    """`texts` of an option or a level add up as in `decide`, and each counts towards the limit of options."""
    choices = [{"value": True, "texts": ["yes", "Yes"]}, {"value": "no"}]
    levels = [{"texts": ["low", "Low"]}, {"label": "high"}]
    questions = [{"type": "choice", "choices": choices}, {"type": "score", "levels": levels}]
    same = {
        "questions[0]": Choice("", [Option(True, texts=["yes", "Yes"]), "no"]),
        "questions[1]": Score("", [Option("low", texts=["low", "Low"]), "high"]),
    }
    with fake() as llm:
        choice, score = llm.decide(STATE, same).values()
        llm.trim()
        body = {"input": STATE, "questions": questions}
        first, second = ask(app(llm), "POST", "/v1/decisions", body).json["answers"]
        assert [one["probability"] for one in first["probabilities"]] == list(choice.probabilities.values())
        assert second["score"] == score.score
        assert [one["text"] for one in first["diagnostics"]["logprobs"]] == ["yes", "Yes", "no"]
        refused = ask(app(llm, ServerOptions(max_options=2)), "POST", "/v1/decisions", body)
        assert "at most 2 options" in refused.error["message"]


# The real clients, unchanged


@pytest.fixture(scope="module")
def served():
    """A server with the embedded model, and its engine."""
    pytest.importorskip("uvicorn", reason="needs the extra 'server'")
    with selectrie.load(n_threads=1) as llm, running(app(llm)) as url:
        yield llm, url


def test_the_client_of_openai(served):
    """Its own validation of the response is switched on; extensions go through `extra_body`."""
    openai = pytest.importorskip("openai", reason="needs the extra 'test-clients'")
    llm, url = served
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0, _strict_response_validation=True)
    llm.trim()
    wanted = llm.decide(STATE, both()[0])
    llm.trim()
    found = client.decisions.create(model="embedded", input=STATE, questions=QUESTIONS)
    assert found.answers[0].choice == wanted["questions[0]"].value
    for answer, own in zip(found.answers, wanted.values(), strict=True):
        shown = [answer] if answer.type == "predicate" else answer.probabilities
        own_p = [own.probability] if answer.type == "predicate" else list(own.probabilities.values())
        assert [one.probability for one in shown] == own_p, "to the last bit, on the same state of the cache"
    assert found.model == "embedded"
    lettered = client.decisions.create(model="embedded", input=STATE, questions=QUESTIONS, extra_body=EXTENSIONS)
    assert {one["text"] for one in lettered.answers[0].diagnostics["logprobs"]} == {"A", "B", "C"}
    llm.trim()
    unlisted = llm.decide(STATE, both()[0], params=DecisionParams(list_options=False))
    llm.trim()
    extra = {"list_options": False}
    found = client.decisions.create(model="embedded", input=STATE, questions=QUESTIONS, extra_body=extra)
    assert [one.probability for one in found.answers[0].probabilities] == list(
        unlisted["questions[0]"].probabilities.values()
    )
    assert client.models.list().data[0].id == "embedded"
    assert client.models.retrieve("embedded").id == "embedded"
    with pytest.raises(openai.NotFoundError, match="expected one of 'embedded'"):
        client.models.retrieve("other/model")
    with pytest.raises(openai.BadRequestError, match=r"questions\[0\]\.type") as caught:
        client.decisions.create(model="embedded", input=STATE, questions=[{"type": "maybe"}])
    assert caught.value.request_id
    assert caught.value.code == "option"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scoring", "letters"),
        ("rule", "pmi"),
        ("permutations", 2),
        ("min_confidence", 0.99),
        ("min_label_mass", 0.999999),
    ],
)
def test_each_extension_through_the_client_of_openai(served, field, value):
    """By `extra_body`, each alone: the answers are those of `decide` with that option."""
    openai = pytest.importorskip("openai", reason="needs the extra 'test-clients'")
    llm, url = served
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)
    llm.trim()
    wanted = llm.decide(STATE, both()[0], params=DecisionParams(**{field: value}))
    llm.trim()
    found = client.decisions.create(model="m", input=STATE, questions=QUESTIONS, extra_body={field: value})
    for answer, own in zip(found.answers, wanted.values(), strict=True):
        assert (answer.type == "refusal") == bool(own.abstained)
        assert answer.diagnostics["abstained"] == (own.abstained or None)
        assert answer.diagnostics["label_mass"] == own.label_mass
        assert answer.diagnostics["spread"] == own.spread
        logp = own.selections[0].choices.logp.tolist()
        assert [one["logprob"] for one in answer.diagnostics["logprobs"]] == logp
        if answer.type != "refusal":
            shown = [answer] if answer.type == "predicate" else answer.probabilities
            own_p = [own.probability] if answer.type == "predicate" else list(own.probabilities.values())
            assert [one.probability for one in shown] == own_p
    if field.startswith("min"):
        assert any(answer.type == "refusal" for answer in found.answers)


@pytest.mark.parametrize("kind", ["top", "entropy", "label_mass"])
def test_the_confidence_through_the_client_of_openai(served, kind):
    """By `extra_body`, as each request asks for it."""
    openai = pytest.importorskip("openai", reason="needs the extra 'test-clients'")
    _, url = served
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)
    found = client.decisions.create(model="m", input=STATE, questions=QUESTIONS[:1], extra_body={"confidence": kind})
    answer = found.answers[0]
    p = [one.probability for one in answer.probabilities]
    expected = {
        "top": (max(p) - 1 / 3) / (1 - 1 / 3),
        "entropy": 1 + sum(each * math.log(each) for each in p) / math.log(3),
        "label_mass": max(p) * answer.diagnostics["label_mass"],
    }
    assert answer.confidence == pytest.approx(expected[kind], abs=1e-12)


def moved(llm, text):
    """By how many nats an option's score may differ: the tolerance of each row, at most one for a byte and for the end."""
    return (len(text.encode()) + 1) * llm.tolerance


def test_the_asynchronous_client_of_openai(served):
    """Many requests at once are answered as one alone is, within the tolerance."""
    openai = pytest.importorskip("openai", reason="needs the extra 'test-clients'")
    import asyncio

    llm, url = served

    async def all_at_once():
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0) as client:
            requests = [client.decisions.create(model="m", input=f"{STATE} {n}", questions=QUESTIONS) for n in range(8)]
            return await asyncio.gather(*requests)

    for n, found in enumerate(asyncio.run(all_at_once())):
        wanted = llm.decide(f"{STATE} {n}", both()[0])
        logp = [one["logprob"] for one in found.answers[0].diagnostics["logprobs"]]
        own = wanted["questions[0]"].selection.choices.logp
        texts = wanted["questions[0]"].selection.choices.texts
        assert np.all(np.abs(np.subtract(logp, own)) <= [moved(llm, text) for text in texts])


@pytest.mark.parametrize("compression", ["zstd", False])
def test_the_client_of_typesafe(served, compression):
    """It validates every response; large bodies come with zstd."""
    typesafe_sdk = pytest.importorskip("typesafe_sdk", reason="needs the extra 'test-clients'")
    llm, url = served
    state = {"body": STATE, "history": ["Hello."] * 200}
    with typesafe_sdk.TypeSafeClient(api_key="key", base_url=url, compression=compression) as client:
        found = client.system_one(state, SYSTEMONE)
        listed = client.models.list()
    wanted = llm.decide(state, both()[1])
    assert found.answers["intent"].choice == wanted["questions.intent"].value
    own = wanted["questions.angry"]
    by = sum(moved(llm, text) for text in own.selection.choices.texts)  # the slope of a logistic is 1/4 at most
    assert found.answers["angry"].noul == pytest.approx(own.probability, abs=by / 4)
    assert found.answers["urgency"].legend == {0: "can wait", 1: {"means": "today"}}
    assert [one.name for one in listed.models] == ["embedded"]
    with typesafe_sdk.TypeSafeClient(api_key="key", base_url=url) as client:
        with pytest.raises(typesafe_sdk.TypeSafeUnprocessableEntityError, match=r"questions\.a\.b") as caught:
            client.system_one("x", {"a.b": {"type": "choice", "criteria": {str(n): None for n in range(256)}}})
        assert caught.value.body["detail"][0]["loc"] == ["body", "questions", "a.b", "criteria"]


@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/systemone"])
def test_a_request_may_ask_for_rationales(path):
    """The answers are those behind the rationales, which are counted as output; limits are those of all requests."""
    question = {"type": "noul", "instructions": "The customer is angry."}
    options = {"n": 2, "max_tokens": 6, "stop": "|", "seed": 3}
    if path == "/v1/decisions":
        body = {"input": STATE, "questions": [{**question, "type": "predicate", "name": "q"}], "think": options}
    else:
        body = {"state": STATE, "questions": {"q": question}, "think": options}
    with fake() as llm:
        answer = llm.decide(STATE, Predicate("The customer is angry."), think=Thinking(**options))
        llm.trim()
        server = app(llm, ServerOptions(calibration=llm.fit_calibration(["a", "b"], Choice("?", ["c", "d"]))))
        reply = ask(server, "POST", path, body).json
        [found] = reply["answers"].values() if path == "/v1/systemone" else reply["answers"]
        assert found.get("noul", found.get("probability")) == answer.probability
        assert found["diagnostics"]["rationales"]["texts"] == list(answer.rationales.texts)
        assert reply["usage"]["output_tokens"] == answer.usage.output_tokens == 12
        for changes, param, message in (
            ({"n": 65}, "think.n", "from 1 to 64"),
            ({"start": "a", "stop": None}, "think.stop", "the text that ends a rationale"),
            ({"stop": None}, "think.stop", "has no block of thinking"),
            ({"n": 64, "max_tokens": 2_000}, None, "expected at most 200000"),
        ):
            reply = ask(server, "POST", path, {**body, "think": {**options, **changes}})
            assert (reply.status, reply.json["error"]["param"]) == (422 if "system" in path else 400, param)
            assert message in reply.json["error"]["message"]
        reply = ask(server, "POST", path, {**body, "permutations": 2})
        assert "`permutations` cannot be combined with `think`" in reply.json["error"]["message"]
