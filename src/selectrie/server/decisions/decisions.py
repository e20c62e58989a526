"""Serves OpenAI's `POST /v1/decisions` and TypeSafe's `POST /v1/systemone`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from selectrie.decide.answers import (
    Answer,
    ChoiceAnswer,
    Decision,
    PredicateAnswer,
    ScoreAnswer,
    expected,
)
from selectrie.decide.drawn_answers import draw_answers
from selectrie.decide.states import CALL_TYPES, ROLES, is_message
from selectrie.engine.scheduler.task_group import set_priority
from selectrie.errors import MAX_QUOTED, THE_STATE, OptionError
from selectrie.results import plain
from selectrie.results.records import json_logprob
from selectrie.server.decisions.question_bodies import (
    AskedQuestion,
    DecisionBody,
    DecisionRequest,
    QuestionBody,
    check_size,
    make_request,
)
from selectrie.server.fields.reading import read, refuse_media
from selectrie.server.fields.wire import BY_TYPE, Ignored, Items, NotOffered, TextOrJson, UpTo, fields_of
from selectrie.server.options import ServerOptions
from selectrie.server.transport.request_context import exchange_of, json_response, read_request
from selectrie.server.transport.state import state_of


def confidence_of(answer: Answer, kind: str) -> float:
    """Return the confidence of an answer.

    Args:
        answer: The answer.
        kind: How to compute it: a value of `ServerOptions.confidence`.
    """
    if kind == "top":
        return answer.confidence
    probabilities = list(answer.probabilities.values())
    if kind == "label_mass":
        return max(probabilities) * answer.label_mass
    if len(probabilities) == 1:
        return 1.0
    entropy = -sum(p * math.log(p) for p in probabilities if p > 0)
    return max(0.0, 1 - entropy / math.log(len(probabilities)))


def score_of(data: Mapping[str, Any], answer: ScoreAnswer) -> tuple[float, list[float]]:
    """Return the score, and the number of each level.

    The numbers are those in the question `data`, or 0, 1, 2 …: both protocols count
    levels from 0, even if their texts are other numbers.
    """
    levels = data.get("levels")
    has_values = isinstance(levels, list) and any(
        isinstance(one, dict) and one.get("value") is not None for one in levels
    )
    is_given = has_values or data.get("low") is not None
    numbers = [*answer.probabilities] if is_given else [*range(len(answer.probabilities))]
    return expected(numbers, [*answer.probabilities.values()]), numbers


def labels_of(data: Mapping[str, Any], answer: ScoreAnswer) -> list[str]:
    """Return the label of each level: that in the question `data`, or its text."""
    levels, texts = data.get("levels"), [*answer.legend.values()]
    if not isinstance(levels, list):
        return texts
    given = [one if isinstance(one, str) else one.get("label") for one in levels]
    return [label or text for label, text in zip(given, texts, strict=True)]


def fitting_labels(labels: Mapping[str, Any], decision: Decision) -> list[Any]:
    """Return the labels of a question with `multi_label` that fit the text.

    Args:
        labels: The value of each label by the path of its question.
        decision: The answers.
    """
    answers = decision.predicates
    return [label for path, label in labels.items() if answers[path].value and not answers[path].abstained]


def make_diagnostics(answer: Answer) -> dict[str, Any]:
    """Return the field `diagnostics` of an answer: its reliability and its cost."""
    first = answer.selections[0]
    top_tokens = [
        {"token": one.piece.decode("utf-8", "replace") or one.spelling, "logprob": json_logprob(one.logp)}
        for one in first.top_tokens
    ]
    cost = answer.usage.cost
    return {
        "diagnostics": {
            "label_mass": answer.label_mass,
            "first_token_fits": answer.first_token_fits,
            "top_tokens": top_tokens,
            "margin": None if math.isinf(answer.margin) else answer.margin,
            "is_tie": answer.is_tie,
            "tolerance": first.signature.tolerance,
            "proved": all(one.certificate.proved for one in answer.selections),
            "abstained": answer.abstained or None,
            "spread": answer.spread,
            "order_dependent": answer.order_dependent,
            "logprobs": [
                {"text": text, "logprob": json_logprob(float(logp))}
                for text, logp in zip(first.choices.texts, first.choices.logp, strict=True)
            ],
            "rows": cost.rows,
            "rows_one_by_one": cost.rows_naive,
            **plain.fields_of(answer, "decided_by? rationales?"),
            **plain.fields_of(answer.usage, "rows_by_model? rows_alone?"),
        }
    }


def make_usage(decision: Decision) -> dict[str, int]:
    """Return the numbers of input tokens, of output tokens and of cached tokens."""
    usage = decision.usage
    n_cached = min(usage.input_tokens, usage.input_tokens + usage.output_tokens - usage.cost.rows)
    n_tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    return {**n_tokens, "cached_tokens": max(0, n_cached)}


def make_warnings(request: DecisionRequest, decision: Decision) -> dict[str, Any]:
    """Return the field `warnings` of a response; `{}` if there are none."""
    warnings = [*request.warnings, *map(str, decision.warnings)]
    return {"warnings": warnings} if warnings else {}


_MESSAGE = {"required": ["role", "content"], "properties": {"type": {"const": "message"}, "role": {"enum": [*ROLES]}}}
_CALL = {
    "required": ["type", "call_id"],
    "properties": {"type": {"enum": [*CALL_TYPES]}, "call_id": {"type": "string"}},
}
_Item = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "object", **one} for one in (_MESSAGE, _CALL)]})]
"""An item of a conversation; `text_of_state` validates it."""


class DecisionsBody(DecisionBody):
    """Questions about an input, in the form of OpenAI's API."""

    input: Annotated[str | Annotated[list[_Item], Field(min_length=1)], BY_TYPE] = Field(
        title="a text, or a list of messages"
    )
    """The text or messages that the questions are about."""
    questions: Annotated[Items[QuestionBody], UpTo("max_questions", "questions in a request")] = Field(
        title="a list of questions", min_length=1
    )
    """The questions."""
    prompt_cache_key: Ignored = None
    prompt_cache_options: Ignored = None
    safety_identifier: Ignored = None


DECISIONS_FIELDS = fields_of(DecisionsBody, state="input", template_args="chat_template_kwargs") | {
    THE_STATE.name: "input"
}


def read_decisions(data: Mapping[str, Any], options: ServerOptions) -> DecisionRequest:
    """Check the body of `/v1/decisions`, and return its request.

    Raises:
        HttpError, RequestError: For any error that can be found without a model.
    """
    questions = data.get("questions")
    listed = questions if isinstance(questions, list) else ()
    names = [question.get("name") if isinstance(question, dict) else None for question in listed]
    asked = [AskedQuestion(f"questions[{i}]", names[i], question) for i, question in enumerate(listed)]
    check_size(asked, options)
    body = read(DecisionsBody, data, options)
    refuse_media(body.input, "input")
    for index, item in enumerate(body.input if isinstance(body.input, list) else ()):
        if not is_message(item):
            allowed = "a message with `role` and `content`, since input is a text, or a list of messages"
            raise OptionError(f"input[{index}]", item, allowed)
    return make_request(body, "input", data, asked, options)


def decisions_response(request: DecisionRequest, decision: Decision, model: str) -> dict[str, Any]:
    """Return the response of `/v1/decisions`, ready for JSON."""
    answers = []
    for one in request.asked:
        if one.is_multi_label:
            answers.append({**labels_answer(request.labels[one.path], decision), "name": one.name})
            continue
        answer = decision[one.path]
        shown = _make_decisions_answer(one.data, answer, request.confidence)
        answers.append(shown | {"name": one.name, **make_diagnostics(answer)})
    usage = make_usage(decision)
    details = {
        "input_tokens_details": {"cached_tokens": usage["cached_tokens"], "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": usage["output_tokens"]},
    }
    tokens = {name: usage[name] for name in ("input_tokens", "output_tokens")}
    tokens["total_tokens"] = sum(tokens.values())
    return {
        "model": model,
        "answers": answers,
        "usage": {**tokens, **details},
        **make_warnings(request, decision),
    }


def _draw(request: DecisionRequest, decision: Decision) -> dict[str, Any]:
    """Return the field `drawing` of a response: the answers as bars."""
    names = {one.path: one.name or one.path for one in request.asked}
    for question, labels in request.labels.items():
        lead = f"{names[question]}: " if len(request.asked) > 1 else ""
        names |= {path: f"{lead}{label}" for path, label in labels.items()}
    shown = [(names.get(path, path), answer) for path, answer in decision.items()]
    return {"drawing": {"bars": draw_answers(shown).to_dict()}}


def labels_answer(labels: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
    """Return the answer to a question with `multi_label`, whose labels are given."""
    predicates = decision.predicates
    answers = [(label, predicates[path]) for path, label in labels.items()]
    return {
        "type": "multi_label",
        "choices": fitting_labels(labels, decision),
        "probabilities": [
            {"value": label, "probability": answer.probability, **make_diagnostics(answer)} for label, answer in answers
        ],
    }


def _make_decisions_answer(data: Mapping[str, Any], answer: Answer, confidence: str) -> dict[str, Any]:
    """Return an answer in the form of `/v1/decisions`; a refusal if it abstained.

    `data` is its question.
    """
    if answer.abstained:
        return {"type": "refusal"}
    if isinstance(answer, PredicateAnswer):
        return {"type": "predicate", "probability": answer.probability}
    certainty = confidence_of(answer, confidence)
    if isinstance(answer, ChoiceAnswer):
        probabilities = [{"value": value, "probability": p} for value, p in answer.probabilities.items()]
        return {"type": "choice", "choice": answer.value, "confidence": certainty, "probabilities": probabilities}
    score, numbers = score_of(data, answer)
    levels = [
        {"value": number, "label": label, "probability": p}
        for number, label, p in zip(numbers, labels_of(data, answer), answer.probabilities.values(), strict=True)
    ]
    return {"type": "score", "score": score, "confidence": certainty, "probabilities": levels}


class SystemoneBody(DecisionBody):
    """Questions about a state, in the form of TypeSafe's API."""

    state: TextOrJson = Field(title="a text, an object or an array")
    """The text or data that the questions are about."""
    questions: Annotated[dict[Any, QuestionBody], UpTo("max_questions", "questions in a request")] = Field(
        title="an object of questions by name", min_length=1
    )
    """The questions by name."""
    instructions: str | None = None
    """Text that comes before the instructions of each question."""
    assets: Annotated[Any, NotOffered((), "images are not read", "unsupported_input")] = None


SYSTEMONE_FIELDS = fields_of(SystemoneBody, template_args="chat_template_kwargs") | {THE_STATE.name: "state"}


def read_systemone(data: Mapping[str, Any], options: ServerOptions) -> DecisionRequest:
    """Check the body of `/v1/systemone`, and return its request.

    Raises:
        HttpError, RequestError: For any error that can be found without a model.
    """
    questions = data.get("questions")
    items = questions.items() if isinstance(questions, dict) else ()
    asked = [
        AskedQuestion(f"questions.{name}" if len(name) <= MAX_QUOTED else f"questions[{index}]", name, question)
        for index, (name, question) in enumerate(items)
    ]
    check_size(asked, options)
    body = read(SystemoneBody, data, options)
    refuse_media(body.state, "state")
    state = data["state"]
    if not state or (isinstance(state, str) and not state.strip()):  # a blank one has no text but that of JSON
        data = {**data, "state": json.dumps(state)}
    return make_request(body, "state", data, asked, options, lead=body.instructions or "")


def systemone_response(request: DecisionRequest, decision: Decision, model: str) -> dict[str, Any]:
    """Return the response of `/v1/systemone`, ready for JSON."""
    answers = {}
    for one in request.asked:
        if one.is_multi_label:
            answers[str(one.name)] = _make_labels_answer(request.labels[one.path], decision)
            continue
        answer = decision[one.path]
        answers[str(one.name)] = _make_systemone_answer(one.data, answer, request.confidence) | make_diagnostics(answer)
    usage = {name: n for name, n in make_usage(decision).items() if name != "cached_tokens"}
    return {"model": model, "answers": answers, "usage": usage, **make_warnings(request, decision)}


def _make_labels_answer(labels: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
    """Return the answer to a question with `multi_label`, whose labels are given."""
    predicates = decision.predicates
    answers = {str(label): predicates[path] for path, label in labels.items()}
    return {
        "type": "multi_label",
        "choices": fitting_labels(labels, decision),
        "probabilities": {label: answer.probability for label, answer in answers.items()},
        "diagnostics": {label: make_diagnostics(answer)["diagnostics"] for label, answer in answers.items()},
    }


def _make_systemone_answer(data: Mapping[str, Any], answer: Answer, confidence: str) -> dict[str, Any]:
    """Return an answer in the form of `/v1/systemone`; `data` is its question."""
    if isinstance(answer, PredicateAnswer):
        return {"type": "noul", "noul": answer.probability}
    certainty = confidence_of(answer, confidence)
    if isinstance(answer, ChoiceAnswer):
        return {
            "type": "choice",
            "choice": answer.value,
            "confidence": certainty,
            "probabilities": {str(value): p for value, p in answer.probabilities.items()},
        }
    score, numbers = score_of(data, answer)
    criteria = data.get("criteria") or labels_of(data, answer)
    return {
        "type": "score",
        "score": score,
        "confidence": certainty,
        "legend": dict(zip(map(str, numbers), criteria, strict=True)),
        "probabilities": dict(zip(map(str, numbers), answer.probabilities.values(), strict=True)),
    }


router = APIRouter()


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which an API asks about a text.

    Attributes:
        fields: The names of its fields, for errors.
        read: Reads a request from a body.
        write: Makes the body of the response.
    """

    fields: Mapping[str, str]
    read: Callable[[Mapping[str, Any], ServerOptions], DecisionRequest]
    write: Callable[[DecisionRequest, Decision, str], dict[str, Any]]


_OPENAI = Form(DECISIONS_FIELDS, read_decisions, decisions_response)
_TYPESAFE = Form(SYSTEMONE_FIELDS, read_systemone, systemone_response)


@router.post("/v1/decisions")
async def decisions(request: Request) -> Response:
    """Answer typed questions about an input, in the form of OpenAI's API."""
    return await _decide(request, _OPENAI)


@router.post("/v1/systemone")
async def systemone(request: Request) -> Response:
    """Answer typed questions about a state, in the form of TypeSafe's API."""
    return await _decide(request, _TYPESAFE)


async def _decide(request: Request, own: Form) -> Response:
    """Answer a request of either endpoint, in the form of its body.

    That is the form of the endpoint, unless the body has the other form's text alone.
    """
    body = exchange_of(request).body
    has_input, has_state = (body.get(name) is not None for name in ("input", "state"))
    return await answer_by(own if has_input == has_state else _OPENAI if has_input else _TYPESAFE, request)


async def answer_by(form: Form, request: Request) -> Response:
    """Answer a request in a form."""
    state, exchange = state_of(request), exchange_of(request)
    exchange.fields = form.fields
    decision_request = await read_request(exchange, form.read, state.options)
    set_priority(-decision_request.priority)
    async with state.lease_model(exchange, decides=True) as lease:
        questions, max_rows = decision_request.questions, state.options.max_rows
        decision = await exchange.hold(
            lambda: lease.decider.adecide(
                decision_request.state, questions, params=decision_request.params, max_rows=max_rows
            )
        )
    decision_request = replace(decision_request, warnings=[*decision_request.warnings, *exchange.notices])
    usage = decision.usage
    exchange.n_prompt, exchange.n_drawn = usage.input_tokens, usage.output_tokens
    exchange.rows_naive = usage.cost.rows_naive

    def respond() -> Response:
        drawn = _draw(decision_request, decision) if decision_request.is_drawn else {}
        return json_response({**form.write(decision_request, decision, lease.name), **drawn})

    return await exchange.run(respond)
