"""Bodies of `/tokenize`, `/detokenize` and `/v1/vocabulary/encode`.

The first two have vLLM's shapes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, WithJsonSchema

from selectrie.backends.remote.vocabulary import BEGIN, INSIDE, NORMALIZE
from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.options import PromptParams
from selectrie.server.messages import Conversation
from selectrie.server.options import ServerOptions
from selectrie.server.wire import Body, Items, NotOffered, Text, check_tokenized, one_of, read, unknown_fields

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

    prompt: Text = Field(title="a text, or messages in the field 'messages'")
    """The text, in which control tokens are read."""


class TokenizeChatBody(Conversation, _TokenizeBody):
    """A chat to tokenize."""

    prompt: None = Field(None, title="a prompt or messages, not both")
    """There is none beside messages."""


class DetokenizeBody(Body):
    """Tokens whose text is wanted."""

    tokens: Items[Annotated[int, Field(title="a token id", json_schema_extra={"minimum": 0})]] = Field(
        title="a list of token ids"
    )
    """The ids of the tokens."""


def _decoded(value: object) -> object:
    try:
        if isinstance(value, str):
            return base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        pass
    raise ValueError


class EncodeBody(Body):
    """Plain texts to encode."""

    texts: Items[
        Annotated[
            bytes,
            BeforeValidator(_decoded),
            WithJsonSchema({"type": "string", "format": "byte", "title": "a text as base64 of its UTF-8"}),
        ]
    ] = Field(
        title=f"a list of 1 to {MAX_TEXTS} texts, each as base64 of its UTF-8", min_length=1, max_length=MAX_TEXTS
    )
    """The texts, each as base64 of its UTF-8; no control token is read in them."""
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
        add_bos: Whether BOS comes first; None for what the chat template writes.
        wants_texts: Whether the spelling of each token is wanted.
        warnings: What was ignored.
    """

    prompt: str | tuple[Mapping[str, str], ...]
    prompting: PromptParams
    add_bos: bool | None
    wants_texts: bool
    warnings: list[str]


def read_tokenize(data: Mapping[str, Any], options: ServerOptions) -> TokenizeRequest:
    """Return a request of `/tokenize`: a `prompt`, or a chat's `messages`.

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
    check_tokenized("messages", sum(len(one["content"].encode()) for one in messages))
    warnings = unknown_fields(data, TokenizeChatBody.model_fields)
    return TokenizeRequest(
        tuple(messages), prompting, chat.add_special_tokens or None, bool(chat.return_token_strs), warnings
    )


def with_bos(vocabulary: Vocabulary, request: TokenizeRequest, tokens: list[int]) -> list[int]:
    """Return the tokens of a request with BOS as it asks for, never twice.

    `tokens` begin with BOS if the model adds one, and are empty for an empty prompt.
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


def spelling(vocabulary: Vocabulary, token: int | None) -> str | None:
    """Return the name of a special token if `/tokenize` makes this token of it."""
    if token is None:
        return None
    text = vocabulary.texts[token]
    tokens, rest = vocabulary.encode_spans(
        [(text.encode("utf-8", "replace"), text.encode() not in vocabulary.ambiguous)]
    )
    return text if [*tokens.tolist(), *vocabulary.encode_run(rest, after=None)] == [token] else None
