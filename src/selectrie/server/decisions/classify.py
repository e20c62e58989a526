"""`POST /v1/classify`: which of some labels a text has, as `Engine.classify` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from selectrie.decide.answers import Decision
from selectrie.decide.classification import check_places
from selectrie.errors import THE_STATE, IncompatibleOptionsError, OptionError, OptionRef
from selectrie.server.decisions.decisions import (
    Form,
    answer_by,
    confidence_of,
    labels_answer,
    make_diagnostics,
    make_usage,
    make_warnings,
)
from selectrie.server.decisions.question_bodies import (
    AskedQuestion,
    DecisionBody,
    DecisionRequest,
    OptionsBody,
    QuestionExample,
    check_size,
    make_request,
)
from selectrie.server.fields.reading import read, refuse_media
from selectrie.server.fields.wire import Items, TextOrJson, fields_of
from selectrie.server.options import ServerOptions


def _require_labels(labels: Any) -> Any:
    """Return the labels; raise `OptionError` if there are none."""
    if not labels:
        raise OptionError("", labels, "at least one label")
    return labels


class ClassifyBody(DecisionBody):
    """A text, and the labels that it may have."""

    text: TextOrJson = Field(title="a text, an object or an array")
    """The text, data or messages."""
    labels: Annotated[OptionsBody, AfterValidator(_require_labels)]
    """The labels, or an object from labels to descriptions."""
    multi_label: bool | None = None
    """Whether any number of labels may be true."""
    none: str | None = None
    """One more label for what no other fits; its value is null."""
    instructions: str | None = None
    """The question; with `multi_label` a statement with `{label}` in it."""
    cue: str | None = None
    """A text before the answer, in place of a question."""
    examples: Items[QuestionExample] | None = None
    """Examples, shown before the text."""


FIELDS = fields_of(ClassifyBody, state="text", questions="labels", template_args="chat_template_kwargs") | {
    THE_STATE.name: "text"
}
_PATH = "labels"
"""The path of the question."""


def read_classify(data: Mapping[str, Any], options: ServerOptions) -> DecisionRequest:
    """Check the body of `/v1/classify`, and return its request.

    Raises:
        HttpError, RequestError: For any error that can be found without a model.
    """
    body = read(ClassifyBody, data, options)
    refuse_media(body.text, "text")
    labels = data["labels"]
    if body.none is not None:
        if body.multi_label:
            remedy = "a text that no label fits has none that is true"
            raise IncompatibleOptionsError("none", OptionRef("multi_label", value=True), remedy)
        listed = labels if isinstance(labels, list) else [{"value": one, "description": labels[one]} for one in labels]
        labels = [*listed, {"value": None, "text": body.none}]
    given = {name: data.get(name) for name in ("instructions", "cue", "examples", "multi_label")}
    asked = AskedQuestion(_PATH, None, {"type": "choice", "choices": labels, **given})
    check_size([asked], options)
    for name in ("instructions", "cue"):
        check_places(name, given[name], multi_label=body.multi_label is True)
    return make_request(body, "text", data, [asked], options)


def classify_response(request: DecisionRequest, decision: Decision, model: str) -> dict[str, Any]:
    """Return the response of `/v1/classify`, ready for JSON."""
    ends = {"usage": make_usage(decision), **make_warnings(request, decision)}
    if request.asked[0].is_multi_label:
        shown = labels_answer(request.labels[_PATH], decision)
        return {"model": model, "labels": shown["choices"], "probabilities": shown["probabilities"], **ends}
    answer = decision.choices[_PATH]
    return {
        "model": model,
        "label": answer.value,
        "probability": answer.probability,
        "confidence": confidence_of(answer, request.confidence),
        "probabilities": [{"value": value, "probability": p} for value, p in answer.probabilities.items()],
        **make_diagnostics(answer),
        **ends,
    }


router = APIRouter()
_FORM = Form(FIELDS, read_classify, classify_response)


@router.post("/classify")
@router.post("/v1/classify")
async def classify(request: Request) -> Response:
    """Say which of some labels a text has, and how probable each is."""
    return await answer_by(_FORM, request)
