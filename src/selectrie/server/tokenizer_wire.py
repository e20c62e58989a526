"""Reads requests of `/tokenize` and `/detokenize`, which have vLLM's shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.errors import OptionError
from selectrie.options import PromptParams
from selectrie.server.body import flag_of
from selectrie.server.fields import check_tokenized, refuse_fields
from selectrie.server.messages import FIELDS_OF_CHATS, read_conversation

_REFUSED: Mapping[str, tuple[object, ...]] = {"chat_template": (), "tools": ([],), "mm_processor_kwargs": ({},)}
"""Known fields that are not offered, as `fields.refuse_fields` has them."""
TEXT_FIELDS = ("model", "prompt", "add_special_tokens", "return_token_strs", *_REFUSED)
CHAT_FIELDS = ("model", *FIELDS_OF_CHATS, "add_special_tokens", "return_token_strs", *_REFUSED)
TOKENS_FIELDS = ("model", "tokens")


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """A request of `/tokenize`.

    Attributes:
        prompt: The text, or the messages of a chat.
        prompting: Options of the chat template.
        add_bos: Whether BOS comes first; None for what the chat template writes.
        wants_texts: Whether the spelling of each token is wanted.
        known: The fields that have a meaning in a request of this form.
    """

    prompt: str | tuple[Mapping[str, str], ...]
    prompting: PromptParams
    add_bos: bool | None
    wants_texts: bool
    known: Sequence[str]


def read_tokenize(body: Mapping[str, Any]) -> TokenizeRequest:
    """Return a request of `/tokenize`: a `prompt`, or a chat's `messages`.

    Raises:
        HttpError, RequestError: If a field is wrong.
    """
    refuse_fields(body, _REFUSED)
    if body.get("messages") is not None:
        return _read_chat(body)
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        raise OptionError("prompt", prompt, "a text, or messages in the field 'messages'")
    check_tokenized("prompt", len(to_bytes(prompt, "prompt")))
    adds = flag_of(body, "add_special_tokens", default=True)
    wants_texts = flag_of(body, "return_token_strs", default=False)
    return TokenizeRequest(prompt, PromptParams(parse_special=True), adds, wants_texts, TEXT_FIELDS)


def _read_chat(body: Mapping[str, Any]) -> TokenizeRequest:
    if body.get("prompt") is not None:
        raise OptionError("prompt", body["prompt"], "a prompt or messages, not both")
    messages, prompting = read_conversation(body)
    check_tokenized("messages", sum(len(to_bytes(one["content"], "messages")) for one in messages))
    adds = flag_of(body, "add_special_tokens", default=False)
    wants_texts = flag_of(body, "return_token_strs", default=False)
    return TokenizeRequest(tuple(messages), prompting, adds or None, wants_texts, CHAT_FIELDS)


def read_tokens(body: Mapping[str, Any]) -> list[int]:
    """Return the tokens of a request of `/detokenize`."""
    tokens = body.get("tokens")
    if not isinstance(tokens, list):
        raise OptionError("tokens", tokens, "a list of token ids")
    for index, token in enumerate(tokens):
        if isinstance(token, bool) or not isinstance(token, int):
            raise OptionError(f"tokens[{index}]", token, "a token id")
    return tokens


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
