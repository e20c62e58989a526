"""Answers about the server itself: models, health, metrics."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from selectrie.server.exchange import json_response
from selectrie.server.http_errors import HttpError, busy, draining
from selectrie.server.models import Models
from selectrie.server.state import state_of
from selectrie.version import __version__

router = APIRouter()

NOT_OFFERED = (
    "/v1/embeddings",
    "/v1/audio/{rest:path}",
    "/v1/images/{rest:path}",
)


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health() -> Response:
    """Say that the process lives."""
    return json_response({"status": "ok", "version": __version__})


@router.head("/ready", include_in_schema=False)
@router.get("/ready")
async def ready(request: Request) -> Response:
    """Say whether requests are answered: not before a model is loaded."""
    state = state_of(request)
    if state.is_draining:
        raise draining()
    if not state.models.is_ready:
        raise busy("the model is being loaded", status=503, code="loading")
    return json_response({"status": "ready"})


@router.get("/version")
async def version() -> Response:
    """Return the version of the server, as vLLM has it."""
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
    return {"id": name, "object": "model", "created": models.created, "owned_by": "selectrie"}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return what the server counts, for Prometheus."""
    state = state_of(request)
    return PlainTextResponse(state.metrics.text(state.models.engines), media_type="text/plain; version=0.0.4")


async def _not_offered(request: Request) -> Response:
    """Say that an endpoint of OpenAI's API is not offered."""
    message = f"{request.url.path} is not offered: this server scores and generates text"
    raise HttpError(501, "not_offered", message, headers={"x-should-retry": "false"})


for _path in NOT_OFFERED:
    router.add_api_route(_path, _not_offered, methods=["GET", "POST"], include_in_schema=False)
