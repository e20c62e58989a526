"""The tokenizer and the vocabulary of a model.

`/tokenizer_info`, `/tokenize` and `/detokenize` have vLLM's shapes;
lm-evaluation-harness reads them in place of a tokenizer of Hugging Face. A client that
scores texts with this server's model needs its tokens: their bytes, the special ones,
and which of them a text becomes. `selectrie.connect` reads `/v1/vocabulary` and
`/v1/vocabulary/encode`.
"""

from __future__ import annotations

import base64
import binascii
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter
from pydantic import BeforeValidator, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from selectrie.backends.remote.vocabulary import BEGIN, INSIDE, NORMALIZE, to_base64, vocabulary_object
from selectrie.core.tracked_text import texts_in
from selectrie.core.vocabulary import Tokenize, Vocabulary, to_bytes
from selectrie.engine.aio import in_thread
from selectrie.engine.engine import Engine
from selectrie.engine.scheduler.task_group import check_cancelled
from selectrie.errors import Amount, OptionError, TextError
from selectrie.options import PromptParams
from selectrie.server.fields.messages import Conversation
from selectrie.server.fields.reading import check_tokenized, check_tokens, read, unknown_fields
from selectrie.server.fields.wire import Body, EncodableText, Items, NotOffered, one_of
from selectrie.server.generation.call_syntax import write_chat
from selectrie.server.options import ServerOptions
from selectrie.server.transport.request_context import encode_json, exchange_of, json_response
from selectrie.server.transport.state import state_of
from selectrie.tokenization.prompts import Prompt

MAX_TEXTS = 1_000
"""Maximum number of texts of a request to encode them."""


class _TokenizeBody(Body):
    add_special_tokens: bool | None = None
    """Whether BOS comes first: yes by default, or as a chat's template says."""
    return_token_strs: bool | None = None
    """Whether the spelling of each token is returned."""
    chat_template: Annotated[Any, NotOffered()] = None
    tools: Annotated[Any, NotOffered(([],))] = None
    mm_processor_kwargs: Annotated[Any, NotOffered(({},))] = None


class TokenizeTextBody(_TokenizeBody):
    """A text to tokenize."""

    prompt: EncodableText = Field(title="a text, or messages in the field 'messages'")
    """The text, in which control tokens are read."""


class TokenizeChatBody(Conversation, _TokenizeBody):
    """A chat to tokenize."""

    prompt: None = Field(None, title="a prompt or messages, not both")
    """None: a chat has messages instead."""


class DetokenizeBody(Body):
    """Tokens to turn into text."""

    tokens: Items[Annotated[int, Field(title="a token id", json_schema_extra={"minimum": 0})]] = Field(
        title="a list of token ids"
    )
    """The ids of the tokens."""


def _decode_base64(value: object) -> object:
    """Return the bytes of a base64 string; raise `ValueError` for anything else."""
    try:
        if isinstance(value, str):
            return base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        pass
    raise ValueError


class EncodeBody(Body):
    """Plain texts to tokenize."""

    texts: Items[
        Annotated[
            bytes,
            BeforeValidator(_decode_base64),
            WithJsonSchema({"type": "string", "format": "byte", "title": "a text as base64 of its UTF-8"}),
        ]
    ] = Field(
        title=f"a list of 1 to {MAX_TEXTS} texts, each as base64 of its UTF-8", min_length=1, max_length=MAX_TEXTS
    )
    """The texts, each as base64 of its UTF-8; control tokens are not recognised."""
    form: Annotated[str, one_of((BEGIN, INSIDE, NORMALIZE))] | None = Field(
        None,
        description=f"Whether a text begins ({BEGIN!r}, the default), goes on ({INSIDE!r}), or is normalised only.",
    )


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """A request of `/tokenize`.

    Attributes:
        prompt: The text, or the messages of a chat.
        prompting: Options of the chat template.
        add_bos: Whether BOS comes first; None leaves it to the chat template.
        wants_texts: Whether the answer also has the text of each token.
        warnings: Warnings about ignored fields.
    """

    prompt: str | tuple[Mapping[str, Any], ...]
    prompting: PromptParams
    add_bos: bool | None
    wants_texts: bool
    warnings: list[str]


def read_tokenize(data: Mapping[str, Any], options: ServerOptions) -> TokenizeRequest:
    """Parse the body of `/tokenize`, which has a `prompt` or a chat's `messages`.

    Raises:
        HttpError, RequestError: If a field is wrong.
    """
    if data.get("messages") is None:
        body = read(TokenizeTextBody, data, options)
        check_tokenized("prompt", len(body.prompt.encode()))
        prompt, prompting = body.prompt, PromptParams(parse_special=True)
        adds_bos, warnings = body.add_special_tokens is not False, unknown_fields(data, TokenizeTextBody.model_fields)
        return TokenizeRequest(prompt, prompting, adds_bos, bool(body.return_token_strs), warnings)
    chat = read(TokenizeChatBody, data, options)
    messages, prompting = chat.conversation()
    check_tokenized("messages", sum(len(text.encode()) for one in messages for text in texts_in([*one.values()])))
    warnings = unknown_fields(data, TokenizeChatBody.model_fields)
    return TokenizeRequest(
        tuple(messages), prompting, chat.add_special_tokens or None, bool(chat.return_token_strs), warnings
    )


def adjust_bos(vocabulary: Vocabulary, request: TokenizeRequest, tokens: list[int]) -> list[int]:
    """Return a prompt's tokens with BOS added or removed, as the request asks.

    BOS is never there twice.

    Args:
        request: The request. Its `add_bos` of None leaves the tokens as they are.
        tokens: The encoded prompt. They begin with BOS if the model adds one, and are
            empty for an empty prompt.
    """
    bos = vocabulary.bos
    if bos is None or request.add_bos is None:
        return tokens
    if request.add_bos:
        return tokens if tokens[:1] == [bos] else [bos, *tokens]
    if not tokens or not isinstance(request.prompt, str):
        return tokens
    written, _ = vocabulary.encode_spans([(to_bytes(request.prompt, "prompt"), True)])
    return tokens if np.array_equal(written[:1], [bos]) else tokens[1:]


def special_token_name(vocabulary: Vocabulary, token: int | None) -> str | None:
    """Return the name of a special token if `/tokenize` turns it into this token.

    None without a token, or if the name is encoded as anything else.
    """
    if token is None:
        return None
    text = vocabulary.texts[token]
    tokens, rest = vocabulary.encode_spans(
        [(text.encode("utf-8", "replace"), text.encode() not in vocabulary.ambiguous)]
    )
    return text if [*tokens.tolist(), *vocabulary.encode_run(rest, after=None)] == [token] else None


router = APIRouter()

MAX_TEXT_BYTES = 1 << 23
"""Maximum size of the text of `/detokenize` in bytes. One token may have a thousand."""


@router.get("/tokenizer_info")
async def tokenizer_info(request: Request) -> Response:
    """Return a model's special tokens, chat template, context length and tolerance."""
    state, exchange = state_of(request), exchange_of(request)
    async with state.lease_model(exchange, request.query_params.get("model")) as lease:
        engine = lease.engine
        bos = engine.vocabulary.declared_bos if engine.vocabulary.bos is None else engine.vocabulary.bos
        info = {
            "tokenizer_class": "selectrie",
            "bos_token": special_token_name(engine.vocabulary, bos),
            "eos_token": special_token_name(engine.vocabulary, engine.vocabulary.eos),
            "pad_token": None,
            "unk_token": None,
            "add_bos_token": engine.vocabulary.bos is not None,
            "chat_template": engine.vocabulary.chat_source or None,
            "model_max_length": engine.limits.nodes,
        }
        return json_response({**info, "tolerance": await in_thread(lambda: engine.tolerance)})


@router.post("/tokenize")
async def tokenize(request: Request) -> Response:
    """Return the tokens of a text or a chat; names of control tokens are recognised."""
    state, exchange = state_of(request), exchange_of(request)
    tokenize_request = await exchange.run(lambda: read_tokenize(exchange.body, state.options))
    async with state.lease_model(exchange) as lease:
        exchange.n_prompt, response = await exchange.in_thread(
            lambda: _tokenize_response(lease.engine, tokenize_request)
        )
    return response


@router.post("/detokenize")
async def detokenize(request: Request) -> Response:
    """Return the text of tokens, in which control tokens are written by name."""
    state, exchange = state_of(request), exchange_of(request)
    tokens = (await exchange.run(lambda: read(DetokenizeBody, exchange.body, state.options))).tokens
    async with state.lease_model(exchange) as lease:
        response = await exchange.in_thread(lambda: _detokenize_response(exchange.body, lease.engine, tokens))
    exchange.n_prompt = len(tokens)
    return response


def _tokenize_response(engine: Engine, request: TokenizeRequest) -> tuple[int, Response]:
    """Return the number of tokens of a text or chat, and the response listing them."""
    vocabulary, tokens = engine.vocabulary, list[int]()
    prompt: Prompt = request.prompt
    if not isinstance(request.prompt, str):
        prompt, _ = write_chat(vocabulary, request.prompt, request.prompting)
    if prompt:
        tokens = engine.encode(prompt, prompting=request.prompting).tolist()
    check_cancelled()
    tokens = adjust_bos(vocabulary, request, tokens)
    answer: dict[str, Any] = {"count": len(tokens), "max_model_len": engine.limits.nodes, "tokens": tokens}
    if request.wants_texts:
        answer["token_strs"] = [vocabulary.texts[token] for token in tokens]
    return len(tokens), json_response(answer, request.warnings)


def _detokenize_response(data: Mapping[str, Any], engine: Engine, tokens: Sequence[int]) -> Response:
    """Return the response with the text of tokens."""
    ids = check_tokens(engine.vocabulary, tokens, "tokens")
    n_bytes = int(engine.vocabulary.lengths[ids].sum())
    if n_bytes > MAX_TEXT_BYTES:
        expected = f"tokens of at most {MAX_TEXT_BYTES} bytes of text; send them in parts"
        raise OptionError("tokens", Amount(f"{n_bytes} bytes"), expected)
    answer = {"prompt": engine.decode(ids)}
    return json_response(answer, unknown_fields(data, DetokenizeBody.model_fields))


@router.get("/v1/vocabulary")
async def vocabulary(request: Request) -> Response:
    """Return the vocabulary of a model: the bytes of its tokens, and special ids."""
    state, exchange = state_of(request), exchange_of(request)
    async with state.lease_model(exchange, request.query_params.get("model")) as lease:
        own = lease.engine.vocabulary
        plain, compressed = await in_thread(lambda: own.derived(_serialize_vocabulary))
    headers = {"vary": "accept-encoding"}
    if not _accepts_gzip(request.headers.get("accept-encoding", "")):
        return Response(plain, 200, headers, "application/json")
    return Response(compressed, 200, {**headers, "content-encoding": "gzip"}, "application/json")


@router.post("/v1/vocabulary/encode")
async def encode(request: Request) -> Response:
    """Return the tokens of plain texts, in which control tokens are not recognised."""
    state, exchange = state_of(request), exchange_of(request)
    body = await exchange.run(lambda: read(EncodeBody, exchange.body, state.options))
    check_tokenized("texts", sum(map(len, body.texts)))
    async with state.lease_model(exchange) as lease:
        own = lease.engine.vocabulary
        exchange.n_prompt, response = await exchange.in_thread(lambda: _encode_response(exchange.body, own, body))
    return response


def _serialize_vocabulary(own: Vocabulary) -> tuple[bytes, bytes]:
    """Return the JSON of a vocabulary, plain and compressed with gzip."""
    plain = encode_json(vocabulary_object(own))
    return plain, gzip.compress(plain, 6, mtime=0)


def _accepts_gzip(accepted: str) -> bool:
    """Return whether an `accept-encoding` header names gzip with a weight above 0."""
    for one in accepted.lower().split(","):
        name, _, weight = one.strip().partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _encode_response(data: Mapping[str, Any], own: Vocabulary, body: EncodeBody) -> tuple[int, Response]:
    """Return the number of tokens of the body's texts, and a response listing them."""
    answer = _encode_texts(own, body.texts, body.form)
    n_tokens = sum(len(one) for one in answer.get("tokens", ()) if one is not None)
    return n_tokens, json_response(answer, unknown_fields(data, EncodeBody.model_fields))


def _encode_texts(own: Vocabulary, texts: Sequence[bytes], form: str | None) -> dict[str, Any]:
    """Return the fields of the answer: normalised texts, or tokens and reasons.

    A text that cannot be tokenized has None as its tokens, and a reason. `form` is
    `NORMALIZE`, `INSIDE` (the texts continue other text), or anything else.
    """
    if form == NORMALIZE:
        return {"texts": [to_base64(own.normalized(text)) for text in texts]}
    tokenize = own.spacing.encode_inside if form == INSIDE and own.spacing is not None else own.tokenize
    tokens = [_encode_text(tokenize, text) for text in texts]
    return {"tokens": [tokens for tokens, _ in tokens], "reasons": [reason for _, reason in tokens]}


def _encode_text(tokenize: Tokenize, text: bytes) -> tuple[list[int] | None, str | None]:
    """Return the tokens of a text and None, or None and the reason why it has none."""
    check_cancelled()
    try:
        return list(map(int, tokenize(text))), None
    except TextError as error:
        return None, error.reason
