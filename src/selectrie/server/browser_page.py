"""The page at `/`, which asks this server from a browser.

Its files lie in the folder `page` and hold no data, so they are sent without a key. The
page loads nothing from elsewhere, and its policy lets a browser load nothing else. The
options of each call, with their defaults, are in `options.json`, made here from the
models of the bodies. The styles that all drawings share come before `page.css`.
"""

from __future__ import annotations

import gzip
import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from selectrie.decide.params import DecisionParams
from selectrie.engine.engine import Engine
from selectrie.results.drawing.shapes import style
from selectrie.server.calls.call_bodies import CALLS
from selectrie.server.decisions.decisions import DecisionsBody
from selectrie.server.fields.reading import flat_union_members, schemas_of
from selectrie.server.generation.completions import DEFAULT_MAX_TOKENS, CompletionBody
from selectrie.server.options import ServerOptions
from selectrie.server.transport.middleware import PAGE_FILES, wants_page

FOLDER = Path(__file__).parent / "page"
"""Where the files of the page are."""
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
_INDEX, _STYLES = "index.html", "page.css"
_NO_FILES = {"jsconfig.json"}
"""Files in the folder that a browser does not need."""
_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
    "vary": "accept, accept-encoding",
}
_APART = {
    *("model", "stream", "request_id", "priority", "prompt", "user", "messages", "choices", "text", "template"),
    *("values", "grammar", "regex", "json_schema", "input", "questions", "prior", "drawing", "fold"),
}
"""Fields that the page has inputs of another kind for, or that are no options."""
_OF_TEXTS = (
    *("n", "max_tokens", "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "stop", "min_tokens"),
    *("best_of", "ignore_eos", "repetition_penalty", "presence_penalty", "frequency_penalty"),
)
"""Fields of completions and of chats that the page has inputs for."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, as it is sent.

    Attributes:
        kind: Its content type.
        data: Its bytes.
        packed: Its bytes, compressed with gzip.
        tag: Its entity tag, by which a browser asks whether it has changed.
    """

    kind: str
    data: bytes
    packed: bytes
    tag: str

    @classmethod
    def of(cls, kind: str, data: bytes) -> PageFile:
        """Return a file with its compressed form and its tag."""
        tag = blake2b(data, digest_size=12).hexdigest()
        return cls(kind, data, gzip.compress(data, 9, mtime=0), f'"{tag}"')


def add_page(api: FastAPI, options: ServerOptions) -> None:
    """Add the routes of the page to an application.

    The files are read and compressed when the first of them is asked for, since most
    applications never show the page.
    """
    load_files = cache(partial(_load_files, options))

    async def send(request: Request) -> Response:
        path = request.url.path
        if not wants_page(request.method, path, request.headers.get("accept", "")):
            raise HTTPException(404)
        files = await run_in_threadpool(load_files)
        file = files.get(_INDEX if path == "/" else path.removeprefix(PAGE_FILES))
        if file is None:
            raise HTTPException(404)
        headers = {**_HEADERS, "etag": file.tag}
        if file.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, headers={**headers, "content-encoding": "gzip"}, media_type=file.kind)
        return Response(file.data, headers=headers, media_type=file.kind)

    for path in ("/", PAGE_FILES + "{name}"):
        api.add_api_route(path, send, methods=["GET", "HEAD"], include_in_schema=False)


def _load_files(options: ServerOptions) -> Mapping[str, PageFile]:
    """Return the files of the page by their names."""
    files = {
        path.name: PageFile.of(_TYPES[path.suffix], path.read_bytes())
        for path in sorted(FOLDER.iterdir())
        if path.suffix in _TYPES and path.name not in _NO_FILES
    }
    files["drawing.css"] = PageFile.of(_TYPES[".css"], style().encode())  # for pictures that are saved
    files[_STYLES] = PageFile.of(_TYPES[".css"], style().encode() + files[_STYLES].data)
    described = json.dumps(dict(_describe_calls(options)), separators=(",", ":"))
    files["options.json"] = PageFile.of(_TYPES[".json"], described.encode())
    return files


def _describe_calls(options: ServerOptions) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the path of each call that the page has a form for, and its options."""
    for path, call in CALLS.items():
        parameters = inspect.signature(getattr(Engine, call.method)).parameters
        defaults = {name: one.default for name, one in parameters.items()}
        for record in call.records.values():
            defaults |= _defaults_of(record())
        yield path, list(_describe_fields(call.body, defaults, options))
    yield "/v1/decisions", list(_describe_fields(DecisionsBody, _defaults_of(DecisionParams()), options))
    defaults = {"n": 1, "max_tokens": DEFAULT_MAX_TOKENS, "min_tokens": 0}
    described = {one["path"]: one for one in _describe_fields(CompletionBody, defaults, options)}
    yield "/v1/completions", [described[name] for name in _OF_TEXTS]


def _defaults_of(record: object) -> dict[str, Any]:
    """Return the values of a record's fields, by their names."""
    return {name: getattr(record, name) for name in getattr(record, "__dataclass_fields__", {})}


def _describe_fields(
    body: type[BaseModel], defaults: Mapping[str, Any], options: ServerOptions
) -> Iterator[dict[str, Any]]:
    """Yield the options among the fields of a body.

    Each has its `path` in the body, its `kind`, its `help`, and its `default` where
    that is a value of JSON. An option that can be given twice is described once.
    """
    schemas = schemas_of([body], options)
    own = schemas[body.__name__]["properties"]
    for name, field in own.items():
        members = list(flat_union_members(field, schemas))
        if name in _APART and not any("enum" in one for one in members):
            continue
        inner = next((one["properties"] for one in members if "properties" in one), None)
        if inner is None:
            yield from _describe_field(name, members, field, defaults)
            continue
        for key, part in inner.items():
            if key not in own:
                kinds = list(flat_union_members(part, schemas))
                # The name of a rule is an option itself, whose default is the method's.
                known = {key: defaults.get(name)} if (name, key) == ("rule", "name") else defaults
                yield from _describe_field(f"{name}.{key}", kinds, part, known)


def _describe_field(
    path: str, members: list[Mapping[str, Any]], field: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the description of a field, unless it is one that has no effect.

    Args:
        path: Its path in the body.
        members: The schemas that its value may have.
        field: Its own schema.
        defaults: Defaults by the last part of a path.
    """
    typed = [one for one in members if "type" in one and one["type"] != "null"]
    if not typed:
        return
    values = [value for one in members for value in one.get("enum", [one["const"]] if "const" in one else [])]
    takes_texts = any(one["type"] == "array" and one.get("items", {}).get("type") == "string" for one in typed)
    kind = "texts" if takes_texts else typed[0]["type"]
    described = {"path": path, "kind": kind, "help": field.get("description", "")}
    if values:
        described["values"] = values
    for bound in ("minimum", "exclusiveMinimum", "maximum"):
        if bound in typed[0]:
            described[bound] = typed[0][bound]
    default = defaults.get(path.rpartition(".")[2])
    if isinstance(default, str | int | float | bool):
        described["default"] = default
    yield described
