"""Puts the application together, describes it, and answers about the server itself.

The description is OpenAPI's document, also shown as the page `/docs`. It has the
endpoints, the bodies as their models declare them, and the errors. Endpoints about the
server itself list models, and report health and metrics.
"""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from functools import cache, partial
from types import MappingProxyType
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from selectrie.engine.engine import Engine
from selectrie.engine.pool import ModelPool
from selectrie.errors import OptionError, SelectrieError
from selectrie.options.checks import record
from selectrie.server.browser_page import add_page
from selectrie.server.calls import calls, extraction, rerank, tokenizer
from selectrie.server.calls.call_bodies import CALLS
from selectrie.server.calls.tokenizer import DetokenizeBody, EncodeBody, TokenizeChatBody, TokenizeTextBody
from selectrie.server.decisions import classify, decisions
from selectrie.server.decisions.decisions import DecisionsBody, SystemoneBody
from selectrie.server.fields.reading import REFERENCE, flat_union_members, schemas_of
from selectrie.server.fields.wire import Body, WireModel
from selectrie.server.generation import chat, completions, responses
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import SYSTEMONE, HttpError, draining_error, retry_error
from selectrie.server.transport.middleware import OPEN, READS, AsgiApp, Gate
from selectrie.server.transport.models import Models
from selectrie.server.transport.request_context import Exchange, exchange_of, id_of, json_response
from selectrie.server.transport.state import ServerState, state_of
from selectrie.version import __version__

BODIES: Mapping[str, tuple[type[Body], ...]] = {
    "/v1/decisions": (DecisionsBody, SystemoneBody),
    "/v1/systemone": (SystemoneBody, DecisionsBody),
    **dict.fromkeys(("/v1/classify", "/classify"), (classify.ClassifyBody,)),
    "/v1/extract": (extraction.ExtractBody,),
    **dict.fromkeys(("/v1/rerank", "/rerank", "/v2/rerank"), (rerank.RerankBody,)),
    **{path: (call.body,) for path, call in CALLS.items()},
    "/v1/chat/completions": (chat.ChatBody,),
    "/v1/responses": (responses.ResponsesBody,),
    "/v1/completions": (completions.CompletionBody,),
    "/tokenize": (TokenizeTextBody, TokenizeChatBody),
    "/detokenize": (DetokenizeBody,),
    "/v1/vocabulary/encode": (EncodeBody,),
}
"""The models of the body that each path with work for a model takes."""
_CAUSES = {
    400: "The request is wrong; `param` is the path to the value.",
    401: "The API key is missing or wrong.",
    403: "The host is not one that the server answers to.",
    404: "There is no such model.",
    408: "Headers or body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON, or its encoding is not known.",
    422: "The request is wrong; `detail` has the path to the value.",
    429: "Too many requests are open; try again after `retry-after`.",
    431: "The headers are too large.",
    500: "The model or the server failed.",
    503: "Not now: the model is being loaded, memory is used, or the server ends.",
    504: "There was no answer in time.",
}
_ANY = {400, 408, 431}
"""Statuses of errors with which any request may be answered."""
_GUARDED = _ANY | {401, 403, 500}
_QUEUED = _GUARDED | {404, 429, 503, 504}


class ErrorDetail(WireModel):
    """The content of an error."""

    message: str
    """The reason, and a remedy."""
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


class InvalidValue(WireModel):
    """An error of a body in TypeSafe's shape."""

    loc: list[str | int]
    """The path to the value: `body`, then keys and indices."""
    msg: str
    """The reason, and a remedy."""
    type: str
    """Stable name of the error."""


class OtherError(WireModel):
    """Any other error in TypeSafe's shape."""

    error_type: str
    """The kind of error, as OpenAI names it."""
    message: str
    """The reason, and a remedy."""


class SystemoneError(Error):
    """An error in the shapes of OpenAI and TypeSafe."""

    detail: list[InvalidValue] | OtherError
    """The error in TypeSafe's shape: a list with status 422, else an object."""


def statuses_of(path: str) -> set[int]:
    """Return the HTTP statuses of errors with which a path may answer."""
    if path in OPEN:
        return _ANY | ({503} if path == "/ready" else set())
    if path in BODIES:
        return _QUEUED | {413, 415} | ({422} if path == SYSTEMONE else set())
    if path in READS:
        return _QUEUED
    return _GUARDED | ({404} if "{" in path else set())


def openapi_document(api: FastAPI, options: ServerOptions) -> dict[str, Any]:
    """Return OpenAPI's description of an application, with the limits in `options`."""
    page = get_openapi(title=api.title, version=api.version, routes=api.routes)
    bodies = dict.fromkeys(one for kinds in BODIES.values() for one in kinds)
    page["components"] = {
        "schemas": schemas_of([*bodies, Error, SystemoneError], options),
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        },
    }
    for path, methods in page["paths"].items():
        for one in methods.values():
            _complete_operation(one, path, needs_key=bool(options.key_digests))
    return page


def _complete_operation(one: dict[str, Any], path: str, *, needs_key: bool) -> None:
    """Add body, parameters, errors and keys to FastAPI's description of an endpoint.

    Args:
        one: OpenAPI's operation object, which is changed.
        needs_key: Whether every request needs an API key.
    """
    if path in BODIES:
        kinds = [_reference(kind) for kind in BODIES[path]]
        one["requestBody"] = {"required": True, "content": _json(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}
    if path in READS:
        about = {"description": "Name of the model.", "schema": {"type": "string"}}
        one["parameters"] = [{"name": "model", "in": "query", "required": False, **about}]
    kind = SystemoneError if path == SYSTEMONE else Error
    errors = {
        str(status): {"description": _CAUSES[status], "content": _json(_reference(kind))}
        for status in sorted(statuses_of(path))
    }
    one["responses"] = {"200": one["responses"]["200"], **errors}
    if any("stream" in kind.model_fields for kind in BODIES.get(path, ())):
        one["responses"]["200"]["content"]["text/event-stream"] = {"schema": {}}
    keys: list[dict[str, list[str]]] = [] if path in OPEN else [{"bearer": []}, {"key": []}]
    one["security"] = keys if needs_key or not keys else [*keys, {}]


def _reference(kind: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": REFERENCE.format(model=kind.__name__)}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


router = APIRouter()

NOT_OFFERED = ("/v1/embeddings", "/v1/audio/{rest:path}", "/v1/images/{rest:path}")


@router.api_route("/healthz", methods=["GET", "HEAD"], include_in_schema=False)
@router.api_route("/livez", methods=["GET", "HEAD"], include_in_schema=False)
@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health() -> Response:
    """Return "ok" as long as the process lives."""
    return json_response({"status": "ok", "version": __version__})


@router.api_route("/readyz", methods=["GET", "HEAD"], include_in_schema=False)
@router.head("/ready", include_in_schema=False)
@router.get("/ready")
async def ready(request: Request) -> Response:
    """Return "ready" once a model is loaded; 503 before, and while the server ends."""
    state = state_of(request)
    if state.is_draining:
        raise draining_error()
    if not state.models.is_ready:
        raise retry_error("the model is being loaded", status=503, code="loading")
    return json_response({"status": "ready"})


@router.get("/version")
async def version() -> Response:
    """Return the version of the server in vLLM's shape."""
    return json_response({"version": __version__})


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """List the models in the shapes of OpenAI (`data`) and TypeSafe (`models`)."""
    own = state_of(request).models
    released = datetime.fromtimestamp(own.created, tz=timezone.utc).strftime("%Y-%m-%d")
    described = [
        {"name": name, "description": f"{name}, served by selectrie", "release_date": released} for name in own.names
    ]
    return json_response({"object": "list", "data": [_model(own, name) for name in own.names], "models": described})


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> Response:
    """Return one model in the shape of OpenAI."""
    own = state_of(request).models
    own.check_name(name)
    return json_response(_model(own, name))


def _model(models: Models, name: str) -> dict[str, Any]:
    root = models.resolve(name)
    described = {"id": name, "object": "model", "created": models.created, "owned_by": "selectrie"}
    return described if root == name else {**described, "root": root}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return the server's counters for Prometheus."""
    state = state_of(request)
    return PlainTextResponse(state.metrics.render(state.models.engines), media_type="text/plain; version=0.0.4")


async def _not_offered(request: Request) -> Response:
    """Answer with an error (501) for an endpoint of OpenAI's API that is not here."""
    message = f"{request.url.path} is not offered: this server scores and generates text"
    raise HttpError(501, "not_offered", message, headers={"x-should-retry": "false"})


for _path in NOT_OFFERED:
    router.add_api_route(_path, _not_offered, methods=["GET", "POST"], include_in_schema=False)


logger = logging.getLogger("selectrie.server")

DEFAULT_SERVER = ServerOptions()


class _Cors(CORSMiddleware):
    """Answers browsers that ask whether a web page may send a request.

    They send no key, so they are answered outside of the `Gate`, with an id as all are.
    """

    def preflight_response(self, request_headers: Headers) -> Response:
        """Return the response to a preflight request, with an id and our error body."""
        response = super().preflight_response(request_headers)
        if response.status_code != 200:
            failed = bytes(response.body).decode().removeprefix("Disallowed CORS ")
            remedy = "the operator can start the server with --cors-origin"
            reason = remedy if "origin" in failed else f"of what it says, {failed} is not allowed"
            error = HttpError(403, "cors", f"pages of this origin may not send it; {reason}")
            response = _response(error, response.headers)
        response.raw_headers.extend(Exchange(id_of(request_headers.get("x-request-id", "")), "other").headers())
        return response


class App:
    """An ASGI application that answers requests with a model.

    Attributes:
        state: Its models, options and metrics.
    """

    def __init__(self, state: ServerState) -> None:
        self.state = state
        inner: AsgiApp = Gate(_make_routes(state.options), state, BODIES)
        if state.options.origins:
            inner = _Cors(
                inner,
                allow_origins=list(state.options.origins),
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=["x-request-id", "x-selectrie-warning", "retry-after", "x-should-retry"],
            )
        self._inner = inner

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        """Answer one ASGI connection."""
        await self._inner(scope, receive, send)  # type: ignore[arg-type]


def app(source: Engine | ModelPool | None, options: ServerOptions = DEFAULT_SERVER) -> App:
    """Return an ASGI application that serves an engine or a pool.

    Concurrent requests share the calls of the model. The application closes neither
    engine nor pool.

    Args:
        source: The engine or the pool that answers. With None,
            `app.state.models.set_source` sets it later, and requests before that are
            refused with 503.
        options: Names, keys and limits.
    """
    record("options", options, ServerOptions)
    if source is not None and not isinstance(source, Engine | ModelPool):
        raise OptionError("source", source, "an Engine or a ModelPool")
    return App(ServerState(Models(source, options), options))


def _make_routes(options: ServerOptions) -> FastAPI:
    """Return the application with all endpoints, which the `Gate` wraps."""
    api = FastAPI(title="selectrie", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    api.add_route("/docs", _docs, methods=["GET"], include_in_schema=False)
    if options.page:
        add_page(api, options)
    for part in (decisions, classify, extraction, rerank, calls, chat, completions, responses, tokenizer):
        api.include_router(part.router)
    api.include_router(router)
    api.openapi = cache(partial(openapi_document, api, options))  # type: ignore[method-assign]
    api.add_exception_handler(HTTPException, _answer_not_found)
    for kind in (Exception, HttpError, SelectrieError):
        api.add_exception_handler(kind, _answer_error)
    return api


async def _docs(request: Request) -> Response:
    """Return the HTML page with the description of the endpoints."""
    return Response(api_page(request.app.openapi()), headers=_PAGE_HEADERS, media_type="text/html")


async def _answer_not_found(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown path or a method that the path does not have."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        message = f"{request.method[:80]} is not a method of {request.url.path[:80]}"
        found = HttpError(405, "method", message, headers=dict(getattr(error, "headers", None) or {}))
    else:
        message = f"there is no {request.url.path[:80]}; GET /docs lists what there is"
        found = HttpError(status, "not_found", message)
    return await _answer_error(request, found)


async def _answer_error(request: Request, error: Exception) -> Response:
    """Return the response for an exception that an endpoint raised."""
    response = exchange_of(request).response_of(error)
    if response.status == 500 and isinstance(error, SelectrieError):  # the gate sees all others
        logger.error("%s failed", exchange_of(request).id, exc_info=error)
    exchange_of(request).error = response.code
    return _response(response)


def _response(error: HttpError, further: Mapping[str, str] = MappingProxyType({})) -> Response:
    """Return an error as a response, with the CORS headers of `further`."""
    kept = {name: value for name, value in further.items() if name == "vary" or name.startswith("access-")}
    return Response(error.to_json(), error.status, {**kept, **error.headers}, "application/json")


_PAGE_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
}
"""Headers of the page that keep a browser from loading anything else for it."""

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{ title }} {{ version }}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin: 2rem 0 0; font-size: 1.1rem; }
p { margin: 0.25rem 0; }
td { padding: 0 1.5rem 0 0; vertical-align: top; }
</style>
<h1>{{ title }} {{ version }}</h1>
<p><a href="openapi.json">openapi.json</a> describes the same for programs.</p>
{% for one in endpoints %}
<h2><code>{{ one.method }} {{ one.path }}</code></h2>
<p>{{ one.description }}</p>
{% if one.fields %}
<table>
{% for field in one.fields %}
<tr><td><code>{{ field.name }}</code></td><td>{{ field.type }}</td><td>{{ field.note }}</td></tr>
{% endfor %}
</table>
{% endif %}
{% endfor %}
</html>
"""


def api_page(schema: Mapping[str, Any]) -> str:
    """Return an HTML page that shows an OpenAPI document.

    FastAPI's own page loads scripts from another host: a server without internet would
    show nothing, and a user's browser would call a third party. This one has none.

    Args:
        schema: The document.
    """
    from jinja2 import Environment, StrictUndefined  # only who reads the page needs it

    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(_PAGE)
    info, schemas = schema["info"], schema.get("components", {}).get("schemas", {})
    endpoints = list(_list_endpoints(schema["paths"], schemas))
    return template.render(title=info["title"], version=info["version"], endpoints=endpoints)


def _list_endpoints(paths: Mapping[str, Mapping[str, Any]], schemas: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield method, path, description and fields of each endpoint, for the page."""
    for path, methods in paths.items():
        for method, one in methods.items():
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            forms = [] if body is None else list(flat_union_members(body, schemas))
            fields = ChainMap(*(form["properties"] for form in forms))
            yield {
                "method": method.upper(),
                "path": path,
                "description": one.get("description", ""),
                "fields": [
                    _describe_field(
                        name, value, schemas, is_required=any(name in form.get("required", ()) for form in forms)
                    )
                    for name, value in fields.items()
                ],
            }


def _describe_field(
    name: str, schema: Mapping[str, Any], schemas: Mapping[str, Any], *, is_required: bool
) -> dict[str, str]:
    """Return name, type and notes of a field, for the page."""
    members = list(flat_union_members(schema, schemas))
    values = " or ".join(repr(value) for one in members for value in one.get("enum", ()))
    notes = ["required" if is_required else "", values, schema.get("description", "")]
    kinds = " or ".join(dict.fromkeys(_name_type(one, schemas) for one in members))
    return {"name": name, "type": kinds or "null", "note": "; ".join(filter(None, notes))}


def _name_type(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return the type that a schema allows, in JSON's words: `array of integer`."""
    name = str(schema.get("type", "any"))
    if "items" not in schema:
        return name
    return " or ".join(
        dict.fromkeys(f"{name} of {_name_type(one, schemas)}" for one in flat_union_members(schema["items"], schemas))
    )
