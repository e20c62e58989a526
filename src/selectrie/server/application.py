"""Puts the application together."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache, partial
from types import MappingProxyType

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from selectrie.engine.engine import Engine
from selectrie.engine.pool import ModelPool
from selectrie.errors import OptionError, SelectrieError
from selectrie.options.checks import record
from selectrie.server.exchange import Exchange, exchange_of, id_of
from selectrie.server.gate import AsgiApp, Gate
from selectrie.server.http_errors import HttpError, error_of
from selectrie.server.models import Models
from selectrie.server.openapi import document
from selectrie.server.options import ServerOptions
from selectrie.server.routes import chat, completions, decisions, service, tokenizer, vocabulary
from selectrie.server.state import ServerState
from selectrie.version import __version__

logger = logging.getLogger("selectrie.server")

DEFAULT_SERVER = ServerOptions()


class _Cors(CORSMiddleware):
    """Answers browsers that ask whether a page may send a request.

    They send no key, so they are answered outside of the gate, with an id as all are.
    """

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code != 200:
            error = HttpError(
                403,
                "cors",
                "pages of this origin may not send it; the operator can start the server with --cors-origin",
            )
            response = _response(error, response.headers)
        response.raw_headers.extend(Exchange(id_of(request_headers.get("x-request-id", "")), "other").headers())
        return response


class App:
    """An ASGI application that answers requests with a model.

    Attributes:
        state: Its models, options and counts.
    """

    def __init__(self, state: ServerState) -> None:
        self.state = state
        inner: AsgiApp = Gate(_routes(state.options), state)
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
        """Answer one connection, as ASGI has it."""
        await self._inner(scope, receive, send)  # type: ignore[arg-type]


def app(source: Engine | ModelPool | None, options: ServerOptions = DEFAULT_SERVER) -> App:
    """Return an ASGI application, for any ASGI server.

    Any number of requests share the calls of the model. The application closes neither
    engine nor pool.

    Args:
        source: The engine or the pool that answers. With None, `app.state.models` gets
            one later, and requests are refused with 503 before.
        options: Names, keys and limits.
    """
    record("options", options, ServerOptions)
    if source is not None and not isinstance(source, Engine | ModelPool):
        raise OptionError("source", source, "an Engine or a ModelPool")
    return App(ServerState(Models(source, options), options))


def _routes(options: ServerOptions) -> FastAPI:
    api = FastAPI(title="selectrie", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    api.add_route("/docs", _docs, methods=["GET"], include_in_schema=False)
    for one in (decisions, chat, completions, tokenizer, vocabulary, service):
        api.include_router(one.router)
    api.openapi = cache(partial(document, api, options))  # type: ignore[method-assign]
    api.add_exception_handler(HTTPException, _http)
    for kind in (Exception, HttpError, SelectrieError):
        api.add_exception_handler(kind, _any)
    return api


async def _docs(request: Request) -> Response:
    """Show OpenAPI's description of the endpoints."""
    from selectrie.server.api_page import HEADERS, api_page

    return Response(api_page(request.app.openapi()), headers=HEADERS, media_type="text/html")


async def _http(request: Request, error: Exception) -> Response:
    """Answer for a path or method that there is not."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        message = f"{request.method} is not a method of {request.url.path[:80]}"
        found = HttpError(405, "method", message, headers=dict(getattr(error, "headers", None) or {}))
    else:
        message = f"there is no {request.url.path[:80]}; GET /docs lists what there is"
        found = HttpError(status, "not_found", message)
    return await _any(request, found)


async def _any(request: Request, error: Exception) -> Response:
    """Answer for an exception of an endpoint."""
    response = error_of(error, exchange_of(request).fields)
    if response.status == 500 and isinstance(error, SelectrieError):  # the gate sees all others
        logger.error("%s failed", exchange_of(request).id, exc_info=error)
    exchange_of(request).error = response.code
    return _response(response)


def _response(error: HttpError, further: Mapping[str, str] = MappingProxyType({})) -> Response:
    """Return an error as a response, with some of the headers of another one."""
    kept = {name: value for name, value in further.items() if name == "vary" or name.startswith("access-")}
    return Response(error.encoded(), error.status, {**kept, **error.headers}, "application/json")
