"""The form of TypeSafe's `POST /v1/systemone`: its body and its response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from selectrie.decide.answers import Answer, ChoiceAnswer, Decision, PredicateAnswer
from selectrie.decide.states import of_json, text_of_state
from selectrie.errors import MAX_QUOTED, THE_STATE
from selectrie.server.decisions.answers import (
    confidence_of,
    fitting_labels,
    labels_of,
    make_diagnostics,
    make_usage,
    make_warnings,
    score_of,
)
from selectrie.server.decisions.bodies import (
    AskedQuestion,
    DecisionBody,
    DecisionRequest,
    QuestionBody,
    check_size,
    make_request,
)
from selectrie.server.fields.reading import read, refuse_media, unknown_fields
from selectrie.server.fields.wire import NotOffered, TextOrJson, UpTo, fields_of
from selectrie.server.options import ServerOptions


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
    asked = [AskedQuestion(_make_path(name, index), name, one) for index, (name, one) in enumerate(items)]
    check_size(asked, options)
    body = read(SystemoneBody, data, options)
    refuse_media(body.state, "state")
    state = text_of_state(of_json(_show_blank(data["state"])), "state")
    warnings = unknown_fields(data, SystemoneBody.model_fields)
    return make_request(body, state, asked, options, warnings=warnings, lead=body.instructions or "")


def _show_blank(state: object) -> object:
    """Return a state; a blank one, which has no text, as JSON writes it."""
    return json.dumps(state) if not state or (isinstance(state, str) and not state.strip()) else state


def _make_path(name: str, index: int) -> str:
    """Return the path to a question: its name, or its index if the name is long."""
    return f"questions.{name}" if len(name) <= MAX_QUOTED else f"questions[{index}]"


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
