"""Reads requests of `/v1/completions`, with vLLM's fields; no model is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selectrie.core.vocabulary import to_bytes
from selectrie.errors import IncompatibleOptionsError, OptionError, TextError
from selectrie.options.checks import at_least, token_ids
from selectrie.results import Chunk
from selectrie.server.body import flag_of
from selectrie.server.generation_wire import (
    GenerationRequest,
    count_of_tokens,
    read_generation,
    refuse_unsupported,
)
from selectrie.server.http_errors import HttpError
from selectrie.server.options import ServerOptions

DEFAULT_MAX_TOKENS = 16
"""Number of tokens drawn if a request does not say, as OpenAI has it."""
MAX_NAMED = 128
"""Maximum number of tokens that a request may name, as vLLM has it."""

_OWN = (
    "prompt",
    "max_tokens",
    "echo",
    "logprobs",
    "prompt_logprobs",
    "logprob_token_ids",
    "return_tokens_as_token_ids",
    "return_token_ids",
    "add_special_tokens",
    "parse_special",
    "truncate_prompt_tokens",
)
_UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "suffix": ("",),
    "prompt_embeds": ([],),
}
"""Known fields of completions that are not offered, as `UNSUPPORTED`."""

PromptInput = str | tuple[int, ...]
"""A prompt as it came: a text, or token ids."""


@dataclass(frozen=True, slots=True, eq=False)
class CompletionRequest:
    """A request of `/v1/completions`.

    Attributes:
        prompts: The prompts.
        is_list: Whether the request has a list of them, so that errors name the item.
        generation: How text is drawn.
        max_tokens: Maximum number of tokens drawn; 0 for none.
        echo: Whether the text begins with the prompt.
        n_top: Number of most probable tokens at each position of the text; None for no
            log-probabilities.
        prompt_top: The same at each position of the prompt, in a field of their own.
        named: Ids of tokens whose log-probabilities are wanted at each position.
        as_ids: Whether tokens are shown by their ids.
        returns_ids: Whether the ids of prompt and text are wanted.
        adds_bos: Whether text gets the model's own BOS.
        parses_special: Whether control tokens are recognised in text; None for yes,
            which the request did not say.
        truncate: Number of last tokens of a prompt that are kept, -1 for as many as the
            context has room for; None for all.
    """

    prompts: Sequence[PromptInput]
    is_list: bool
    generation: GenerationRequest
    max_tokens: int
    echo: bool
    n_top: int | None
    prompt_top: int | None
    named: tuple[int, ...]
    as_ids: bool
    returns_ids: bool
    adds_bos: bool
    parses_special: bool | None
    truncate: int | None

    @property
    def scores_echo(self) -> bool:
        """Return whether the echoed prompt has log-probabilities."""
        return self.echo and self.n_top is not None

    @property
    def scores_prompts(self) -> bool:
        """Return whether log-probabilities of prompts are needed."""
        return self.scores_echo or self.prompt_top is not None

    def number_of(self, chunk: Chunk) -> int:
        """Return the number of the choice that a chunk belongs to."""
        return chunk.prompt_index * self.generation.n + chunk.index

    def name_of(self, index: int) -> str:
        """Return the path to a prompt in the request."""
        return f"prompt[{index}]" if self.is_list else "prompt"


def read_completion(body: Mapping[str, Any], options: ServerOptions) -> CompletionRequest:
    """Return a request of `/v1/completions`.

    Raises:
        HttpError, RequestError: For whatever can be found wrong without a model.
    """
    refuse_unsupported(body, _UNSUPPORTED)
    prompts, is_list = read_prompts(body.get("prompt"), options)
    n_top, named = _top(body, "logprobs", options), _named(body)
    limit = count_of_tokens(body, ("max_tokens",), min_value=0)
    max_tokens = DEFAULT_MAX_TOKENS if limit is None else limit
    generation = read_generation(
        body,
        options,
        max_tokens=max(1, max_tokens),
        n_alternatives=0 if named else n_top or 0,
        named=named,
        known=(*_OWN, *_UNSUPPORTED),
    )
    prompt_top = _top(body, "prompt_logprobs", options)
    if prompt_top is not None and generation.is_stream:
        raise IncompatibleOptionsError("prompt_logprobs", "stream", "set `echo` and `logprobs`")
    if named and n_top is None:
        raise OptionError("logprob_token_ids", list(named), "`logprobs` too, which may be 0")
    in_all = len(prompts) * (generation.options.best_of or generation.n) * max_tokens
    if in_all > options.max_rows:
        message = f"the request may draw {in_all} tokens: expected at most {options.max_rows} in all"
        raise HttpError(400, "too_many_rows", message, "max_tokens")
    return CompletionRequest(
        prompts=prompts,
        is_list=is_list,
        generation=generation,
        max_tokens=max_tokens,
        echo=flag_of(body, "echo"),
        n_top=n_top,
        prompt_top=prompt_top,
        named=named,
        as_ids=flag_of(body, "return_tokens_as_token_ids"),
        returns_ids=flag_of(body, "return_token_ids"),
        adds_bos=flag_of(body, "add_special_tokens", default=True),
        parses_special=None if body.get("parse_special") is None else flag_of(body, "parse_special"),
        truncate=_truncated(body.get("truncate_prompt_tokens")),
    )


def read_prompts(value: object, options: ServerOptions) -> tuple[list[PromptInput], bool]:
    """Return the prompts of a request, and whether it has a list of them.

    None is the empty text. A list of whole numbers is one prompt of token ids.

    Raises:
        RequestError: For anything but a text, token ids, or a list of these.
    """
    if value is None or isinstance(value, str):
        return [_text(value or "", "prompt")], False
    if not isinstance(value, list) or not value:
        raise OptionError("prompt", value, "a text, token ids, or a list of these that is not empty")
    if _is_id(value[0]):
        return [_ids(value, "prompt")], False
    if len(value) > options.max_prompts:
        raise OptionError("prompt", len(value), f"at most {options.max_prompts} prompts in a request")
    if len(value) > options.max_rows:  # each has a token at least
        message = f"the request has {len(value)} prompts: expected at most {options.max_rows} tokens in all"
        raise HttpError(400, "too_many_rows", message, "prompt")
    prompts: list[PromptInput] = []
    for index, one in enumerate(value):
        path = f"prompt[{index}]"
        if isinstance(one, str):
            prompts.append(_text(one, path))
        elif isinstance(one, list):
            prompts.append(_ids(one, path))
        else:
            raise OptionError(path, one, "a text or a list of token ids")
    return prompts, True


def _text(text: str, path: str) -> str:
    try:
        to_bytes(text, path)
    except TextError as error:
        raise HttpError(400, error.code, str(error), path) from error
    return text


def _ids(ids: Sequence[object], path: str) -> tuple[int, ...]:
    if not ids:
        raise OptionError(path, ids, "at least one token id")
    if set(map(type, ids)) == {int} and min(ids) >= 0:  # type: ignore[operator, type-var]  # they are numbers
        return tuple(ids)  # type: ignore[arg-type]
    for index, one in enumerate(ids):
        if not _is_id(one):
            raise OptionError(f"{path}[{index}]", one, "a token id, a whole number of at least 0")
    return tuple(ids)  # type: ignore[arg-type]  # they were checked


def _is_id(value: object) -> bool:
    return type(value) is int and value >= 0


def _top(body: Mapping[str, Any], name: str, options: ServerOptions) -> int | None:
    value: int | None = body.get(name)
    at_least(name, value, 0, max_value=options.max_logprobs)
    return value


def _named(body: Mapping[str, Any]) -> tuple[int, ...]:
    ids = body.get("logprob_token_ids")
    if ids is None:
        return ()
    if not isinstance(ids, list) or len(ids) > MAX_NAMED:
        shown = len(ids) if isinstance(ids, list) else ids
        raise OptionError("logprob_token_ids", shown, f"a list of at most {MAX_NAMED} token ids")
    return token_ids("logprob_token_ids", ids)


def _truncated(value: Any) -> int | None:
    if value is not None and value != -1:
        at_least("truncate_prompt_tokens", value, 1)
    limit: int | None = value
    return limit
