"""Requests and responses of OpenAI's `/v1/decisions` and TypeSafe's `/v1/systemone`.

Nothing here calls a model. Fields of ours beyond theirs are `PARAMS` and `confidence`
in requests, and `diagnostics` and `warnings` in responses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from selectrie.decide.answers import NO_USAGE, Answer, ChoiceAnswer, Decision, DecisionUsage, PredicateAnswer
from selectrie.decide.calibration import Calibration
from selectrie.decide.params import BASELINE_RULES, DecisionParams
from selectrie.decide.question_data import question_of_data
from selectrie.decide.questions import Question
from selectrie.decide.states import State, is_message, of_json, text_of_state
from selectrie.errors import MAX_QUOTED, OptionError, OptionRef, PromptError, PromptTooLongError, TextError, clip
from selectrie.results.openai import json_logprob
from selectrie.server.fields import refuse_fields, unknown_fields
from selectrie.server.http_errors import HttpError, message_of, unsupported
from selectrie.server.messages import refuse_media
from selectrie.server.options import CONFIDENCES, ServerOptions

PARAMS = (
    "template",
    "layout",
    "scoring",
    "rule",
    "calibration",
    "permutations",
    "min_confidence",
    "min_label_mass",
    "list_options",
)
"""Fields of a request that are options of `DecisionParams`."""
_IGNORED = {
    "/v1/decisions": ("prompt_cache_key", "prompt_cache_options", "safety_identifier", "cache_salt"),
    "/v1/systemone": ("cache_salt",),
}
"""Fields that say nothing about the answer."""
REFUSED: Mapping[str, tuple[object, ...]] = {"top": (), "chat_template_kwargs": ({},), "priority": (0,)}
"""Fields that would change it, and are offered elsewhere."""
_OWN = {
    "/v1/decisions": ("model", "input", "questions"),
    "/v1/systemone": ("model", "state", "questions", "instructions"),
}


@dataclass(frozen=True, slots=True, eq=False)
class DecisionRequest:
    """A request of either endpoint.

    Attributes:
        state: The text of what is asked about.
        field: The field of the request that has it.
        questions: The questions by the path to them in the request.
        names: The name of each, None if it has none.
        data: The questions as they came.
        params: Options of the decision.
        confidence: How confidence is computed (`ServerOptions.confidence`).
        warnings: What was ignored.
    """

    state: str
    field: str
    questions: Mapping[str, Question]
    names: Sequence[str | None]
    data: Sequence[Mapping[str, Any]]
    params: DecisionParams
    confidence: str
    warnings: Sequence[str]


def read_decisions(body: Mapping[str, Any], options: ServerOptions) -> DecisionRequest:
    """Return a request of `/v1/decisions`.

    Raises:
        HttpError, RequestError: For whatever can be found wrong without a model.
    """
    questions = body.get("questions")
    if not isinstance(questions, list) or not questions:
        raise OptionError("questions", questions, "a list of questions")
    state = body.get("input")
    if not isinstance(state, str | list):
        raise OptionError("input", state, "a text, or a list of messages")
    refuse_media(state, "input")
    for index, item in enumerate(state if isinstance(state, list) else ()):
        if not is_message(item):
            allowed = "a message with `role` and `content`, since input is a text, or a list of messages"
            raise OptionError(f"input[{index}]", item, allowed)
    _check_count(len(questions), options)
    named = [(f"questions[{index}]", data) for index, data in enumerate(questions)]
    return _request(body, "/v1/decisions", state, named, [_name(data, path) for path, data in named], "", options)


def read_systemone(body: Mapping[str, Any], options: ServerOptions) -> DecisionRequest:
    """Return a request of `/v1/systemone`.

    Raises:
        HttpError, RequestError: For whatever can be found wrong without a model.
    """
    if body.get("assets") is not None:
        raise unsupported("assets", "images are not read", code="unsupported_input")
    questions = body.get("questions")
    if not isinstance(questions, dict) or not questions:
        raise OptionError("questions", questions, "an object of questions by name")
    state = body.get("state")
    if not isinstance(state, str | list | dict):
        raise OptionError("state", state, "a text, an object or an array")
    refuse_media(state, "state")
    _check_count(len(questions), options)
    lead = body.get("instructions")
    if lead is not None and not isinstance(lead, str):
        raise OptionError("instructions", lead, "a text")
    named = [(_path(name, index), data) for index, (name, data) in enumerate(questions.items())]
    return _request(body, "/v1/systemone", state, named, list(questions), lead or "", options)


def _request(  # noqa: PLR0917 - the parts of a request that differ
    body: Mapping[str, Any],
    endpoint: str,
    state: State,
    named: Sequence[tuple[str, Any]],
    names: Sequence[str | None],
    lead: str,
    options: ServerOptions,
) -> DecisionRequest:
    questions: dict[str, Question] = {}
    for path, data in named:
        if isinstance(data, Mapping):
            if data.get("type") == "box":
                raise unsupported(f"{path}.type", "boxes in images are not found", code="unsupported_input")
            refuse_media(data.get("instructions"), f"{path}.instructions")
        questions[path] = question_of_data(data, path, lead)
    confidence = body.get("confidence")
    confidence = options.confidence if confidence is None else confidence
    if confidence not in CONFIDENCES:
        raise OptionError("confidence", confidence, "one of " + ", ".join(map(repr, CONFIDENCES)))
    refuse_fields(body, REFUSED)
    given = {name: body[name] for name in PARAMS if body.get(name) is not None}
    given.setdefault("min_label_mass", options.min_label_mass)
    if isinstance(given.get("calibration"), dict):
        given["calibration"] = Calibration.from_dict(given["calibration"])
    if options.calibration is not None and given.get("rule") not in BASELINE_RULES:
        given.setdefault("calibration", replace(options.calibration, is_default=True))
    params = DecisionParams(**given)
    field = "input" if endpoint == "/v1/decisions" else "state"
    with errors_about(field):
        text = text_of_state(of_json(state), field)
    request = DecisionRequest(
        text,
        field,
        questions,
        names,
        [data for _, data in named],
        params,
        confidence,
        unknown_fields(body, (*_OWN[endpoint], *_IGNORED[endpoint], *PARAMS, *REFUSED, "confidence", "request_id")),
    )
    _check_size(request, options)
    return request


@contextmanager
def errors_about(field: str) -> Iterator[None]:
    """Name the field of the request in errors about what is asked about."""
    try:
        yield
    except PromptTooLongError as error:
        message = message_of(error, {"state": OptionRef(field)})
        raise HttpError(400, error.code, message, field) from error
    except (PromptError, TextError) as error:
        place = error.where if isinstance(error, PromptError) else error.what
        if place.partition("[")[0] != field:
            raise
        path = place.replace("['", ".").replace("']", "")
        raise HttpError(400, error.code, message_of(error), clip(path, MAX_QUOTED)) from error


def _path(name: str, index: int) -> str:
    """Return the path to a question: by its name, or by its index if that is long."""
    return f"questions.{name}" if len(name) <= MAX_QUOTED else f"questions[{index}]"


def _name(data: object, path: str) -> str | None:
    name = data.get("name") if isinstance(data, Mapping) else None
    if name is not None and not isinstance(name, str):
        raise OptionError(f"{path}.name", name, "a text")
    return name


def _check_count(n_questions: int, options: ServerOptions) -> None:
    if n_questions > options.max_questions:
        raise OptionError("questions", n_questions, f"at most {options.max_questions} questions in a request")


def _check_size(request: DecisionRequest, options: ServerOptions) -> None:
    """Raise `OptionError` if a request has more options than it may."""
    in_all = 0
    for path, question in request.questions.items():
        k = sum(len(one.spellings) for one in question.options)
        in_all += k
        if k > options.max_options:
            raise OptionError(path, k, f"at most {options.max_options} options of a question")
    if in_all > options.max_options_in_all:
        raise OptionError("questions", in_all, f"at most {options.max_options_in_all} options in a request")


def decisions_response(request: DecisionRequest, decision: Decision, model: str) -> dict[str, Any]:
    """Return the response of `/v1/decisions`, ready for JSON."""
    answers = []
    for path, name in zip(request.questions, request.names, strict=True):
        answer = decision[path]
        answers.append(_decisions_answer(answer, request.confidence) | {"name": name, **_diagnosed(answer)})
    usage = _usage(decision)
    details = {
        "input_tokens_details": {"cached_tokens": usage["cached_tokens"], "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    tokens = {"input_tokens": usage["input_tokens"], "output_tokens": 0, "total_tokens": usage["input_tokens"]}
    return {"model": model, "answers": answers, "usage": {**tokens, **details}, **_warned(request, decision)}


def _decisions_answer(answer: Answer, confidence: str) -> dict[str, Any]:
    if answer.abstained:
        return {"type": "refusal"}
    if isinstance(answer, PredicateAnswer):
        return {"type": "predicate", "probability": answer.probability}
    sure = confidence_of(answer, confidence)
    if isinstance(answer, ChoiceAnswer):
        listed = [{"value": value, "probability": p} for value, p in answer.probabilities.items()]
        return {"type": "choice", "choice": answer.value, "confidence": sure, "probabilities": listed}
    levels = [
        {"value": index, "label": answer.legend[value], "probability": p}
        for index, (value, p) in enumerate(answer.probabilities.items())
    ]
    return {"type": "score", "score": answer.score, "confidence": sure, "probabilities": levels}


def systemone_response(request: DecisionRequest, decision: Decision, model: str) -> dict[str, Any]:
    """Return the response of `/v1/systemone`, ready for JSON."""
    answers = {}
    for path, name, data in zip(request.questions, request.names, request.data, strict=True):
        answer = decision[path]
        answers[str(name)] = _systemone_answer(data, answer, request.confidence) | _diagnosed(answer)
    usage = {"input_tokens": _usage(decision)["input_tokens"], "output_tokens": 0}
    return {"model": model, "answers": answers, "usage": usage, **_warned(request, decision)}


def _systemone_answer(data: Mapping[str, Any], answer: Answer, confidence: str) -> dict[str, Any]:
    if isinstance(answer, PredicateAnswer):
        return {"type": "noul", "noul": answer.probability}
    sure = confidence_of(answer, confidence)
    if isinstance(answer, ChoiceAnswer):
        return {
            "type": "choice",
            "choice": answer.value,
            "confidence": sure,
            "probabilities": {str(value): p for value, p in answer.probabilities.items()},
        }
    criteria = data.get("criteria") or [answer.legend[value] for value in answer.probabilities]
    return {
        "type": "score",
        "score": answer.score,
        "confidence": sure,
        "legend": {str(index): one for index, one in enumerate(criteria)},
        "probabilities": {str(index): p for index, p in enumerate(answer.probabilities.values())},
    }


def confidence_of(answer: Answer, kind: str) -> float:
    """Return the confidence of an answer, as one of the kinds of `ServerOptions`."""
    if kind == "top" or isinstance(answer, PredicateAnswer):
        return answer.confidence
    probabilities = list(answer.probabilities.values())
    if kind == "label_mass":
        return max(probabilities) * answer.label_mass
    if len(probabilities) == 1:
        return 1.0
    entropy = -sum(p * math.log(p) for p in probabilities if p > 0)
    return max(0.0, 1 - entropy / math.log(len(probabilities)))


def _diagnosed(answer: Answer) -> dict[str, Any]:
    """Return what says how far an answer can be trusted, and what it took."""
    first = answer.selections[0]
    wanted = [
        {"token": one.piece.decode("utf-8", "replace") or one.spelling, "logprob": json_logprob(one.logp)}
        for one in first.top_tokens
    ]
    cost = answer.usage.cost
    return {
        "diagnostics": {
            "label_mass": answer.label_mass,
            "first_token_fits": answer.first_token_fits,
            "top_tokens": wanted,
            "margin": None if math.isinf(answer.margin) else answer.margin,
            "is_tie": answer.is_tie,
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
        }
    }


def usage_of(decision: Decision) -> DecisionUsage:
    """Return the work that all answers took together."""
    return sum((answer.usage for answer in decision.values()), NO_USAGE)


def _usage(decision: Decision) -> dict[str, int]:
    usage = usage_of(decision)
    return {
        "input_tokens": usage.input_tokens,
        "cached_tokens": max(0, usage.input_tokens - usage.cost.rows),
    }


def _warned(request: DecisionRequest, decision: Decision) -> dict[str, Any]:
    warnings = [*request.warnings, *map(str, decision.warnings)]
    return {"warnings": warnings} if warnings else {}
