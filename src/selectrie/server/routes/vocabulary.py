"""`GET /v1/vocabulary` and `POST /v1/vocabulary/encode`.

A client that scores texts with this server's model needs its tokens: their bytes, the
special ones, and which of them a text becomes. `selectrie.connect` reads both.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from selectrie.backends.remote.vocabulary import INSIDE, NORMALIZE, as_text, vocabulary_object
from selectrie.core.vocabulary import Tokenize, Vocabulary
from selectrie.engine.aio import in_thread
from selectrie.engine.scheduler.task_group import check_cancelled
from selectrie.errors import TextError
from selectrie.server.exchange import encoded_json, exchange_of, json_response
from selectrie.server.generation import lease_model
from selectrie.server.state import state_of
from selectrie.server.tokenizer_wire import EncodeBody
from selectrie.server.wire import check_tokenized, read, unknown_fields

router = APIRouter()


@dataclass(frozen=True, slots=True)
class _Written:
    """A vocabulary as JSON, plain and compressed."""

    plain: bytes
    compressed: bytes


@router.get("/v1/vocabulary")
async def vocabulary(request: Request) -> Response:
    """Return the vocabulary of a model: the bytes of its tokens, and special ids."""
    state, exchange = state_of(request), exchange_of(request)
    async with lease_model(state, exchange, request.query_params.get("model")) as lease:
        own = lease.engine.vocabulary
        written = await in_thread(lambda: own.derived(_written))
    headers = {"vary": "accept-encoding"}
    if not _takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(written.plain, 200, headers, "application/json")
    return Response(written.compressed, 200, {**headers, "content-encoding": "gzip"}, "application/json")


@router.post("/v1/vocabulary/encode")
async def encode(request: Request) -> Response:
    """Return the tokens of plain texts, in which no control token is read."""
    state, exchange = state_of(request), exchange_of(request)
    body = await exchange.run(lambda: read(EncodeBody, exchange.body, state.options))
    check_tokenized("texts", sum(map(len, body.texts)))
    async with lease_model(state, exchange) as lease:
        own = lease.engine.vocabulary
        exchange.n_prompt, response = await exchange.in_thread(lambda: _encoded_texts(exchange.body, own, body))
    return response


def _written(own: Vocabulary) -> _Written:
    plain = encoded_json(vocabulary_object(own))
    return _Written(plain, gzip.compress(plain, 6, mtime=0))


def _takes_gzip(accepted: str) -> bool:
    """Return whether a header `accept-encoding` names gzip, and not with weight 0."""
    for one in accepted.lower().split(","):
        name, _, weight = one.strip().partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _encoded_texts(data: Mapping[str, Any], own: Vocabulary, body: EncodeBody) -> tuple[int, Response]:
    """Return the number of tokens of texts, and the response."""
    answer = _answer(own, body.texts, body.form)
    n_tokens = sum(len(one) for one in answer.get("tokens", ()) if one is not None)
    return n_tokens, json_response(answer, unknown_fields(data, EncodeBody.model_fields))


def _answer(own: Vocabulary, texts: Sequence[bytes], form: str | None) -> dict[str, Any]:
    """Return what is answered about texts: tokens, or why there are none."""
    if form == NORMALIZE:
        return {"texts": [as_text(own.normalized(text)) for text in texts]}
    tokenize = own.spacing.encode_inside if form == INSIDE and own.spacing is not None else own.tokenize
    tokens = [_encoded(tokenize, text) for text in texts]
    return {"tokens": [tokens for tokens, _ in tokens], "reasons": [reason for _, reason in tokens]}


def _encoded(tokenize: Tokenize, text: bytes) -> tuple[list[int] | None, str | None]:
    """Return the tokens of a text, or why it has none."""
    check_cancelled()
    try:
        return list(map(int, tokenize(text))), None
    except TextError as error:
        return None, error.reason
