"""`GET /tokenizer_info`, `POST /tokenize` and `POST /detokenize`.

Their shapes are vLLM's. lm-evaluation-harness reads them in place of a tokenizer of
Hugging Face.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from selectrie.core.vocabulary import Vocabulary
from selectrie.engine.aio import in_thread
from selectrie.engine.engine import Engine
from selectrie.engine.scheduler.task_group import check_cancelled
from selectrie.errors import OptionError
from selectrie.server.exchange import exchange_of, json_response
from selectrie.server.generation import lease_model
from selectrie.server.http_errors import errors_at
from selectrie.server.messages import with_roles_of
from selectrie.server.state import state_of
from selectrie.server.tokenizer_wire import DetokenizeBody, TokenizeRequest, read_tokenize, spelling, with_bos
from selectrie.server.wire import read, unknown_fields

router = APIRouter()

MAX_TEXT_BYTES = 1 << 23
"""Maximum size of the text of `/detokenize`. A token may spell a thousand bytes."""


@router.get("/tokenizer_info")
async def tokenizer_info(request: Request) -> Response:
    """Return the special tokens and the chat template of a model, and its tolerance."""
    state, exchange = state_of(request), exchange_of(request)
    async with lease_model(state, exchange, request.query_params.get("model")) as lease:
        engine = lease.engine
        info = _info(engine.vocabulary, engine.limits.nodes)
        return json_response({**info, "tolerance": await in_thread(lambda: engine.tolerance)})


@router.post("/tokenize")
async def tokenize(request: Request) -> Response:
    """Return the tokens of a text or a chat; control tokens are read in it."""
    state, exchange = state_of(request), exchange_of(request)
    tokenize_request = await exchange.run(lambda: read_tokenize(exchange.body, state.options))
    async with lease_model(state, exchange) as lease:
        exchange.n_prompt, response = await exchange.in_thread(lambda: _tokenized(lease.engine, tokenize_request))
    return response


@router.post("/detokenize")
async def detokenize(request: Request) -> Response:
    """Return the text of tokens, with control tokens by their names."""
    state, exchange = state_of(request), exchange_of(request)
    tokens = (await exchange.run(lambda: read(DetokenizeBody, exchange.body, state.options))).tokens
    async with lease_model(state, exchange) as lease:
        response = await exchange.in_thread(lambda: _detokenized(exchange.body, lease.engine, tokens))
    exchange.n_prompt = len(tokens)
    return response


def _tokenized(engine: Engine, request: TokenizeRequest) -> tuple[int, Response]:
    """Return the number of tokens of a text or a chat, and the response."""
    vocabulary, prompt, tokens = engine.vocabulary, request.prompt, list[int]()
    if prompt:
        messages = prompt if isinstance(prompt, str) else with_roles_of(vocabulary, prompt)
        tokens = engine.encode(messages, prompting=request.prompting).tolist()
    check_cancelled()
    tokens = with_bos(vocabulary, request, tokens)
    answer: dict[str, Any] = {"count": len(tokens), "max_model_len": engine.limits.nodes, "tokens": tokens}
    if request.wants_texts:
        answer["token_strs"] = [vocabulary.texts[token] for token in tokens]
    return len(tokens), json_response(answer, request.warnings)


def _detokenized(data: Mapping[str, Any], engine: Engine, tokens: Sequence[int]) -> Response:
    """Return the response with the text of tokens."""
    with errors_at("tokens"):
        ids = engine.vocabulary.check_tokens(tokens)
    n_bytes = int(engine.vocabulary.lengths[ids].sum())
    if n_bytes > MAX_TEXT_BYTES:
        expected = f"tokens of at most {MAX_TEXT_BYTES} bytes of text; send them in parts"
        raise OptionError("tokens", f"{n_bytes} bytes", expected)
    answer = {"prompt": engine.decode(ids)}
    return json_response(answer, unknown_fields(data, DetokenizeBody.model_fields))


def _info(vocabulary: Vocabulary, n_nodes: int) -> dict[str, Any]:
    bos = vocabulary.declared_bos if vocabulary.bos is None else vocabulary.bos
    return {
        "tokenizer_class": "selectrie",
        "bos_token": spelling(vocabulary, bos),
        "eos_token": spelling(vocabulary, vocabulary.eos),
        "pad_token": None,
        "unk_token": None,
        "add_bos_token": vocabulary.bos is not None,
        "chat_template": vocabulary.chat_source or None,
        "model_max_length": n_nodes,
    }
