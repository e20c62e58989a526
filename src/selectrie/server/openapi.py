"""OpenAPI's document: endpoints, bodies as their models declare them, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from selectrie.server.chat_wire import ChatBody
from selectrie.server.completion_wire import CompletionBody
from selectrie.server.decision_wire import DecisionsBody, SystemoneBody
from selectrie.server.gate import OPEN, READS, WORK
from selectrie.server.options import ServerOptions
from selectrie.server.tokenizer_wire import DetokenizeBody, EncodeBody, TokenizeChatBody, TokenizeTextBody
from selectrie.server.wire import REFERENCE, Body, WireModel, schemas_of

BODIES: Mapping[str, tuple[type[Body], ...]] = {
    "/v1/decisions": (DecisionsBody,),
    "/v1/systemone": (SystemoneBody,),
    "/v1/chat/completions": (ChatBody,),
    "/v1/completions": (CompletionBody,),
    "/tokenize": (TokenizeTextBody, TokenizeChatBody),
    "/detokenize": (DetokenizeBody,),
    "/v1/vocabulary/encode": (EncodeBody,),
}
"""The forms of the body that each path of `gate.WORK` takes."""
_CAUSES = {
    400: "The request is wrong; `param` is the path to the value.",
    401: "The API key is missing or wrong.",
    403: "The host is not one that the server answers to.",
    404: "There is no such model.",
    408: "Headers or body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON, or its encoding is not known.",
    429: "Too many requests are open; try again after `retry-after`.",
    431: "The headers are too large.",
    500: "The model or the server failed.",
    503: "Not now: the model is being loaded, memory is used, or the server ends.",
    504: "There was no answer in time.",
}
_ANY = {400, 408, 431}
"""Statuses of a connection, whatever is asked for."""
_GUARDED = _ANY | {401, 403, 500}
_QUEUED = _GUARDED | {404, 429, 503, 504}


class ErrorDetail(WireModel):
    """What an error says."""

    message: str
    """What is wrong, and what to do."""
    type: str
    """The kind of error, as OpenAI names it."""
    param: str | None
    """The path to the field of the request that is wrong."""
    code: str
    """Stable name of the error."""


class Error(WireModel):
    """An error in OpenAI's shape."""

    error: ErrorDetail
    """The error."""


def statuses_of(path: str) -> set[int]:
    """Return the statuses of errors that an endpoint may answer with."""
    if path in OPEN:
        return _ANY | ({503} if path == "/ready" else set())
    if path in WORK:
        return _QUEUED | {413, 415}
    if path in READS:
        return _QUEUED
    return _GUARDED | ({404} if "{" in path else set())


def document(api: FastAPI, options: ServerOptions) -> dict[str, Any]:
    """Return OpenAPI's document of an application with these options."""
    page = get_openapi(title=api.title, version=api.version, routes=api.routes)
    bodies = dict.fromkeys(one for kinds in BODIES.values() for one in kinds)
    page["components"] = {
        "schemas": schemas_of([*bodies, Error], options),
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        },
    }
    for path, methods in page["paths"].items():
        for one in methods.values():
            _describe(one, path, needs_key=bool(options.key_digests))
    return page


def _describe(one: dict[str, Any], path: str, *, needs_key: bool) -> None:
    """Add body, errors and keys to what FastAPI says about an endpoint."""
    if path in BODIES:
        kinds = [_reference(kind) for kind in BODIES[path]]
        one["requestBody"] = {"required": True, "content": _json(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}
    if path in READS:
        about = {"description": "Name of the model.", "schema": {"type": "string"}}
        one["parameters"] = [{"name": "model", "in": "query", "required": False, **about}]
    errors = {
        str(status): {"description": _CAUSES[status], "content": _json(_reference(Error))}
        for status in sorted(statuses_of(path))
    }
    one["responses"] = {"200": one["responses"]["200"], **errors}
    keys: list[dict[str, list[str]]] = [] if path in OPEN else [{"bearer": []}, {"key": []}]
    one["security"] = keys if needs_key or not keys else [*keys, {}]


def _reference(kind: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": REFERENCE.format(model=kind.__name__)}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
