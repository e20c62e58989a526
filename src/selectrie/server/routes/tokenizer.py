"""`GET /tokenizer_info`, `POST /tokenize` and `POST /detokenize`.

Their shapes are vLLM's. lm-evaluation-harness reads them in place of a tokenizer of
Hugging Face.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from selectrie.core.vocabulary import Vocabulary
from selectrie.engine.aio import in_thread
from selectrie.server.exchange import exchange_of, json_response
from selectrie.server.generation import lease_model
from selectrie.server.http_errors import errors_at
from selectrie.server.messages import with_roles_of
from selectrie.server.state import state_of
from selectrie.server.tokenizer_wire import DetokenizeBody, read_tokenize, spelling, with_bos
from selectrie.server.wire import read, unknown_fields

router = APIRouter()


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
    tokenize_request = read_tokenize(exchange.body, state.options)
    async with lease_model(state, exchange) as lease:
        engine = lease.engine
        tokens_of_prompt: list[int] = []
        if tokenize_request.prompt:
            vocabulary, prompt = engine.vocabulary, tokenize_request.prompt
            messages = prompt if isinstance(prompt, str) else await in_thread(lambda: with_roles_of(vocabulary, prompt))
            tokens_of_prompt = (await engine.aencode(messages, prompting=tokenize_request.prompting)).tolist()
        tokens = with_bos(engine.vocabulary, tokenize_request, tokens_of_prompt)
        answer: dict[str, Any] = {"count": len(tokens), "max_model_len": engine.limits.nodes, "tokens": tokens}
        if tokenize_request.wants_texts:
            answer["token_strs"] = [engine.vocabulary.texts[token] for token in tokens]
    exchange.n_prompt = len(tokens)
    return json_response(answer, tokenize_request.warnings)


@router.post("/detokenize")
async def detokenize(request: Request) -> Response:
    """Return the text of tokens, with control tokens by their names."""
    state, exchange = state_of(request), exchange_of(request)
    tokens = read(DetokenizeBody, exchange.body, state.options).tokens
    async with lease_model(state, exchange) as lease:
        engine = lease.engine
        with errors_at("tokens"):
            answer: dict[str, Any] = {"prompt": await engine.adecode(tokens)}
    exchange.n_prompt = len(tokens)
    return json_response(answer, unknown_fields(exchange.body, DetokenizeBody.model_fields))


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
