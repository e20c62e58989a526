"""Requests of `benchmarks/serving.py`, each with what its response must say, computed by
an engine of the client's process before any server is asked; and requests that are wrong.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.http_client import Reply, request_of
from selectrie import Choice, DecisionParams, Option, Predicate, Score
from selectrie.decide.answers import Answer, ChoiceAnswer, PredicateAnswer
from selectrie.engine.engine import Engine

OPTIONS = ("track order", "refund", "cancel the order", "complain about the service", "something else")
INSTRUCTIONS = "What does the customer want?"
_GOODS = ("parcel", "card", "lamp", "invoice", "phone", "bicycle", "coat", "book")
_COMPLAINTS = (
    "has not come, and I have waited {} days",
    "came broken; I want my {} pounds back",
    "is not what I ordered on day {}",
    "was sent to house {} of another street",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found when a response was compared with the engine's own answer.

    Attributes:
        problem: What is wrong; "" for nothing.
        share: The largest difference of a value, as a share of what is allowed.
    """

    problem: str = ""
    share: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A request and the check of its response.

    Attributes:
        kind: Name of the kind, for figures.
        path: The endpoint.
        body: The body.
        check: Compares a response of status 200 with the engine's answer.
    """

    kind: str
    path: str
    body: bytes
    check: Callable[[Reply], Verdict]


@dataclass(frozen=True, slots=True)
class Malformed:
    """A request that is wrong.

    Attributes:
        name: What is wrong.
        data: All of its bytes but the request id, which replaces `ID`.
        status: The status that it must get.
        path: Its endpoint for the metrics; "" if the request does not get so far.
        keeps: Whether the connection can be used again.
    """

    name: str
    data: bytes
    status: int
    path: str = "/v1/decisions"
    keeps: bool = True


COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
ID = "the-request-id"
"""Stands for the request id in the bytes of a request."""


def state(number: int) -> str:
    """Return a message of a customer; no two numbers give the same."""
    complaint = _COMPLAINTS[number % len(_COMPLAINTS)].format(2 + number)
    return f"Message {number}: my {_GOODS[number // 4 % len(_GOODS)]} {complaint}. Please answer soon."


def choice_of(options: Sequence[str] = OPTIONS, instructions: str = INSTRUCTIONS) -> tuple[Choice[str], dict[str, Any]]:
    """Return a question as the engine takes it and as `/v1/decisions` takes it."""
    data = {"type": "choice", "instructions": instructions, "choices": [{"value": one} for one in options]}
    return Choice(instructions, options), data


def decisions(engine: Engine, number: int) -> Asked:
    """Return a request of `/v1/decisions` of one to three questions."""
    choice, as_choice = choice_of(OPTIONS[: 2 + number % 4])
    angry, late = "The customer is angry.", "How urgent is it?"
    levels = ("not at all", "a little", "very", "now")
    questions = [choice, Predicate(angry), Score(late, levels)]
    data = [
        as_choice,
        {"type": "predicate", "instructions": angry, "name": "angry"},
        {"type": "score", "instructions": late, "levels": [{"label": one} for one in levels]},
    ]
    first = number % 3
    n = 1 + number // 3 % 3
    own = {"scoring": "letters"} if number % 5 == 4 else {"permutations": 2} if number % 7 == 6 else {}
    questions, data = (questions * 2)[first : first + n], (data * 2)[first : first + n]
    body = {"model": "embedded", "input": state(number), "questions": data, **own}
    named = {str(index): one for index, one in enumerate(questions)}
    decided = engine.decide(state(number), named, params=DecisionParams(**own))  # type: ignore[arg-type]
    tolerance = engine.tolerance or 0.0

    def check(reply: Reply) -> Verdict:
        answers = reply.json()["answers"]
        if len(answers) != len(decided):
            return Verdict(f"{len(answers)} answers to {len(decided)} questions")
        return worst(_decided(found, decided[name], tolerance) for name, found in zip(decided, answers, strict=True))

    return Asked("decisions", "/v1/decisions", json.dumps(body).encode(), check)


def systemone(engine: Engine, number: int) -> Asked:
    """Return a request of `/v1/systemone` about an object of JSON."""
    told = {"message": state(number), "customer": {"since": 1990 + number % 30, "orders": number}}
    criteria = {"refund": "money back", "repair": "the same thing, in order", "nothing": None}
    options = [Option(name, None, about) for name, about in criteria.items()]
    questions: dict[str, Any] = {
        "wish": Choice("What is asked for?", options),
        "late": Predicate("It is late."),
    }
    data = {
        "wish": {"type": "choice", "instructions": "What is asked for?", "criteria": criteria},
        "late": {"type": "noul", "instructions": "It is late."},
    }
    decided, tolerance = engine.decide(told, questions), engine.tolerance or 0.0
    body = {"model": "embedded", "state": told, "questions": data}

    def check(reply: Reply) -> Verdict:
        answers = reply.json()["answers"]
        if list(answers) != list(decided):
            return Verdict(f"answers to {list(answers)}")
        return worst(_decided(answers[name], decided[name], tolerance) for name in decided)

    return Asked("systemone", "/v1/systemone", json.dumps(body).encode(), check)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the first verdict with a problem, or the one with the largest share."""
    listed = list(verdicts)
    return next((one for one in listed if one.problem), max(listed, key=lambda one: one.share))


def bound_of(answer: Answer, tolerance: float) -> float:
    """Return by how many nats a log-probability of an option may differ: the tolerance
    for each row that it is read from, with that of the end and of the healed bytes.
    """
    tables = [selection.choices for selection in answer.selections]
    return max(tolerance * (2 + int(table.trie.depth[table.trie.path_node].max())) for table in tables)


def _decided(found: Mapping[str, Any], answer: Answer, tolerance: float) -> Verdict:
    """Compare one answer of either endpoint with the engine's."""
    bound = bound_of(answer, tolerance)
    table = answer.selections[0].choices
    told = found["diagnostics"]
    texts = [one["text"] for one in told["logprobs"]]
    if texts != list(table.texts):
        return Verdict(f"options {texts} instead of {list(table.texts)}")
    moves = [abs(one["logprob"] - float(logp)) for one, logp in zip(told["logprobs"], table.logp, strict=True)]
    moves.append(abs(math.log(told["label_mass"] / answer.label_mass)))
    share = max(moves) / bound
    own = [answer.probability] if isinstance(answer, PredicateAnswer) else list(answer.probabilities.values())
    for theirs, p in zip(_probabilities(found), own, strict=True):
        share = max(share, abs(math.log(theirs / p)) / (2 * bound))
    if not share <= 1:
        return Verdict(f"a value differs by {share:.3g} times what is allowed", share)
    if isinstance(answer, ChoiceAnswer) and answer.margin > 2 * bound and found["choice"] != answer.value:
        return Verdict(f"{found['choice']!r} instead of {answer.value!r}", share)
    if not told["proved"]:
        return Verdict("not proved", share)
    return Verdict(share=share)


def _probabilities(found: Mapping[str, Any]) -> list[float]:
    """Return the probabilities of an answer of either endpoint."""
    if found["type"] in ("predicate", "noul"):
        return [found["probability" if found["type"] == "predicate" else "noul"]]
    listed = found["probabilities"]
    return list(listed.values()) if isinstance(listed, dict) else [one["probability"] for one in listed]


def malformed() -> list[Malformed]:
    """Return requests of which each is wrong in another way."""
    question = choice_of()[1]
    good = {"input": "x", "questions": [question]}

    def changed(**fields: Any) -> bytes:
        return json.dumps({**good, **fields}).encode()

    def post(body: bytes, path: str = "/v1/decisions", **headers: str) -> bytes:
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        return request_of("POST", path, body, {"x-request-id": ID, **own})

    many = [{"value": str(index)} for index in range(1001)]
    image = [{"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]
    deep = b'{"input": ' + b"[" * 100 + b"]" * 100 + b"}"
    named = {"x-request-id": ID}
    return [
        Malformed("no JSON", post(b'{"input": '), 400),
        Malformed("a list", post(b"[]"), 400),
        Malformed("nested too deeply", post(deep), 400),
        Malformed("no questions", post(changed(questions=[])), 400),
        Malformed("unknown type", post(changed(questions=[{**question, "type": "riddle"}])), 400),
        Malformed("unknown field", post(changed(questions=[{**question, "colour": 1}])), 400),
        Malformed("too many options", post(changed(questions=[{**question, "choices": many}])), 400),
        Malformed("too long", post(changed(input="word " * 20_000)), 400),
        Malformed("an image", post(changed(input=image)), 400),
        Malformed("a rule that there is not", post(changed(rule="guess")), 400),
        Malformed("broken gzip", post(gzip.compress(changed())[:-9], content_encoding="gzip"), 400),
        Malformed("unknown encoding", post(changed(), content_encoding="br"), 415, keeps=False),
        Malformed("a form", post(changed(), content_type="text/plain"), 415, keeps=False),
        Malformed("too large", post(b"", content_length=str(9 << 20)), 413, keeps=False),
        Malformed("another host", post(changed(), host="example.org"), 403, keeps=False),
        Malformed("another method", request_of("GET", "/v1/decisions", None, named), 405),
        Malformed("no such path", request_of("GET", "/v1/nothing", None, named), 404, "other"),
        Malformed("not offered", post(b"{}", "/v1/embeddings"), 501, "other", keeps=False),
        *[
            Malformed(name, post(json.dumps(body).encode(), path), 400, path)
            for name, path, body in (
                ("a number as the prompt", COMPLETIONS, {"prompt": 1.5}),
                ("ids that there are not", COMPLETIONS, {"prompt": [1 << 40]}),
                ("too many choices", COMPLETIONS, {"prompt": "x", "n": 100_000}),
                ("a negative temperature", COMPLETIONS, {"prompt": "x", "temperature": -1}),
                ("beam search", COMPLETIONS, {"prompt": "x", "use_beam_search": True}),
                ("no messages", CHAT, {"messages": []}),
                ("tools", CHAT, {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}),
                ("a text in place of tokens", "/detokenize", {"tokens": "x"}),
            )
        ],
        Malformed("no HTTP", b"HELLO\r\n\r\n", 400, "", keeps=False),
    ]
