"""Reads the fields that `/v1/chat/completions` and `/v1/completions` share.

A field is one of four kinds: it becomes an option of the engine (`_SAMPLING` and the
tables after it), it says nothing about the answer (`IGNORED`), it is known but not
offered (`UNSUPPORTED`), or it is unknown. Unknown fields are ignored with a warning; a
known one that cannot be honoured is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from selectrie.engine.requests.generation_params import GenerationParams
from selectrie.errors import IncompatibleOptionsError, OptionError, PromptTooLongError, of_value
from selectrie.options import SamplingParams, StopParams
from selectrie.options.checks import at_least
from selectrie.results import Generation
from selectrie.server.body import flag_of
from selectrie.server.exchange import Exchange, id_of
from selectrie.server.fields import refuse_fields, unknown_fields
from selectrie.server.http_errors import HttpError, unsupported
from selectrie.server.options import ServerOptions
from selectrie.server.structured_outputs import FIELD as STRUCTURED_OUTPUTS
from selectrie.server.structured_outputs import StructuredText, read_structured_outputs

_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repeat_penalty",
    "repeat_penalty": "repeat_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "penalty_last_n": "penalty_last_n",
    "repeat_last_n": "penalty_last_n",
    "logit_bias": "logit_bias",
}
"""Fields of a request that are options of `SamplingParams`."""
_STOPPING = {
    "stop": "stop",
    "stop_token_ids": "stop_tokens",
    "ignore_eos": "ignore_eog",
    "min_tokens": "min_tokens",
}
"""Fields that are options of `StopParams`."""
_OWN = (STRUCTURED_OUTPUTS, "model", "n", "best_of", "seed", "priority", "stream", "stream_options", "request_id")
KNOWN = (*_SAMPLING, *_STOPPING, *_OWN)
"""Fields that both endpoints take."""

IGNORED = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "cache_prompt",
    "cache_salt",
    "session_id",
    "spaces_between_special_tokens",
)
"""Fields that say nothing about the answer."""

UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "response_format": ({"type": "text"},),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json_object": (False,),
    "guided_decoding_backend": (),
    "guided_whitespace_pattern": (),
    "grammar": ("",),
    "json_schema": (),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "logits_processors": ([],),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "mirostat": (0,),
    "mirostat_mode": (0,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "dynatemp_range": (0,),
    "top_n_sigma": (-1,),
    "samplers": (),
    "n_probs": (0,),
    "lora": ([],),
    "truncation_side": ("left",),
    "stream_interval": (1,),
    "thinking_token_budget": (-1,),
    "repetition_detection": (),
    "watermarking": (False,),
    "vllm_xargs": ({},),
    "kv_transfer_params": ({},),
    "ec_transfer_params": ({},),
}
"""Known fields that are not offered.

Each has the values, beside null, that ask for nothing.
"""
_REMEDIES = {
    **dict.fromkeys(("response_format", "guided_json", "json_schema"), "use `structured_outputs` with `json`"),
    "guided_regex": "use `structured_outputs` with `regex`",
    "guided_choice": "use `structured_outputs` with `choice`",
    **dict.fromkeys(("guided_grammar", "grammar"), "use `structured_outputs` with `grammar`"),
    "guided_json_object": "use `structured_outputs` with `json_object`",
}
"""What to do in place of some of them."""

_MAX_STOP_CHARACTERS = 1 << 16
"""Maximum number of characters of all stop texts of a request together."""
_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_SEEDS = 1 << 64


@dataclass(frozen=True, slots=True, eq=False)
class GenerationRequest:
    """The part of a request that says how to draw.

    Attributes:
        n: Number of sequences after each prompt.
        seed: Seed of the first of them, or None.
        sampling, stopping, options: Options of `Engine.generate`.
        structured: The grammar among the options with its path in the request, or None.
        has_max_tokens: Whether the request itself limits the tokens.
        is_stream: Whether the answer is a stream.
        includes_usage: Whether the stream ends with the usage.
        warnings: What was ignored.
    """

    n: int
    seed: int | None
    sampling: SamplingParams
    stopping: StopParams
    options: GenerationParams
    structured: StructuredText | None
    has_max_tokens: bool
    is_stream: bool
    includes_usage: bool
    warnings: Sequence[str]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Engine.generate` and `Engine.stream`."""
        return {
            "n": self.n,
            "seed": self.seed,
            "sampling": self.sampling,
            "stopping": self.stopping,
            "options": self.options,
        }

    def shortened(self, error: PromptTooLongError) -> GenerationRequest:
        """Return the request with as many tokens as the context has room for.

        Raises the error if the request itself limits the tokens, or without room.
        """
        n_left = self.stopping.max_tokens - (error.required_tokens - error.available_tokens)
        if self.has_max_tokens or n_left < 1:
            raise error
        return replace(self, stopping=replace(self.stopping, max_tokens=n_left))


def read_generation(
    body: Mapping[str, Any],
    options: ServerOptions,
    *,
    max_tokens: int | None,
    n_alternatives: int = 0,
    named: Sequence[int] = (),
    known: Sequence[str] = (),
) -> GenerationRequest:
    """Return the options with which a request draws text.

    Defaults are those of OpenAI's API: temperature 1 and no filter. The penalties look
    at the whole text, prompt included. A negative seed counts modulo 2⁶⁴.

    Args:
        body: The request.
        options: The limits.
        max_tokens: Maximum number of tokens drawn, None if the request does not say.
        n_alternatives: Number of most probable tokens wanted at each step.
        named: Ids of tokens whose log-probabilities are wanted at each step.
        known: Fields of the endpoint that it reads itself.

    Raises:
        RequestError: For a value outside its range, under the name of its field.
        HttpError: For more tokens than `ServerOptions.max_rows`.
    """
    is_stream = flag_of(body, "stream")
    n = _count(body, "n", options.max_n) or 1
    best_of = _count(body, "best_of", options.max_n)
    if best_of is not None and best_of < n:
        raise OptionError("best_of", best_of, f"at least n={n}, the number of choices")
    if best_of is not None and best_of > n and is_stream:
        raise IncompatibleOptionsError("best_of", "stream", "which are the best is known only at the end")
    if best_of == n:
        best_of = None
    sampled, stopped = _options_of(body, _SAMPLING, _converted), _stopping(body, options)
    limit = _limit(max_tokens, stopped, options)
    if (best_of or n) * limit > options.max_rows:
        message = f"the request may draw {best_of or n} x {limit} tokens: expected at most {options.max_rows} in all"
        raise HttpError(400, "too_many_rows", message, "max_tokens")
    neutral = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "penalty_last_n": -1}
    with _fields_of(_SAMPLING, body):
        sampling = SamplingParams(**{**neutral, **sampled})
    with _fields_of(_STOPPING, body):
        stopping = StopParams(max_tokens=limit, **stopped)
    priority = body.get("priority")
    if priority is not None and type(priority) is not int:
        raise OptionError("priority", priority, "a whole number; a lower one goes first")
    if priority and not options.allow_priority:
        raise HttpError(400, "unsupported", "priority: this server does not take it (--allow-priority)", "priority")
    structured = read_structured_outputs(body, options)
    warnings = unknown_fields(body, {*KNOWN, *IGNORED, *UNSUPPORTED, *known})
    return GenerationRequest(
        n=n,
        seed=_seed(body),
        sampling=sampling,
        stopping=stopping,
        options=GenerationParams(
            best_of=best_of,
            grammar=None if structured is None else structured.grammar,
            n_alternatives=n_alternatives,
            named=named,
            priority=-(priority or 0),
        ),
        structured=structured,
        has_max_tokens=max_tokens is not None,
        is_stream=is_stream,
        includes_usage=_includes_usage(body, is_stream=is_stream),
        warnings=warnings if structured is None else [*warnings, *structured.warnings()],
    )


def refuse_unsupported(body: Mapping[str, Any], further: Mapping[str, tuple[object, ...]]) -> None:
    """Raise `HttpError` for the first known field that is not offered.

    The order is that of `UNSUPPORTED` and `further`, whatever that of the request is.

    Args:
        body: The request.
        further: Fields of the endpoint beside `UNSUPPORTED`, in the same form.
    """
    refuse_fields(body, {**UNSUPPORTED, **further}, _REMEDIES)


def _count(body: Mapping[str, Any], name: str, max_value: int) -> int | None:
    value: int | None = body.get(name)
    at_least(name, value, 1, max_value=max_value)
    return value


def count_of_tokens(body: Mapping[str, Any], names: Sequence[str], *, min_value: int = 1) -> int | None:
    """Return the maximum number of tokens of the first field that gives it, or None."""
    limit = None
    for name in names:
        value: int | None = body.get(name)
        at_least(name, value, min_value)
        if limit is not None and value is not None and value != limit:
            raise IncompatibleOptionsError(name, names[0], "give one of the two")
        limit = value if limit is None else limit
    return limit


def _seed(body: Mapping[str, Any]) -> int | None:
    value = body.get("seed")
    if value is None:
        return None
    if type(value) is not int or not -_SEEDS < value < _SEEDS:
        raise OptionError("seed", value, "a whole number of at most 64 bits")
    return value % _SEEDS


def _options_of(
    body: Mapping[str, Any], fields: Mapping[str, str], convert: Callable[[str, Any], Any]
) -> dict[str, Any]:
    """Return the options that a request gives, by their names in the engine."""
    options: dict[str, Any] = {}
    for field, option in fields.items():
        value = body.get(field)
        if value is None:
            continue
        value = convert(field, value)
        if options.get(option, value) != value:
            other = next(name for name, same in fields.items() if same == option)
            raise IncompatibleOptionsError(field, other, "they are two names of one option; give one of them")
        options[option] = value
    return options


def _converted(field: str, value: Any) -> Any:
    """Return a value as the engine has it: vLLM's `top_k` of -1 is 0, keys are ids."""
    if field == "top_k" and value == -1:
        return 0
    if field == "logit_bias" and isinstance(value, Mapping):
        for key in value:
            if not _TOKEN_ID.fullmatch(key):
                raise OptionError("logit_bias", key, "token ids as keys, whole numbers of at least 0")
        return {int(key): bias for key, bias in value.items()}
    return value


def _stopping(body: Mapping[str, Any], options: ServerOptions) -> dict[str, Any]:
    stopping = _options_of(body, _STOPPING, lambda _, value: value)
    for field, option in (("stop", "stop"), ("stop_token_ids", "stop_tokens")):
        value = stopping.get(option)
        if isinstance(value, list) and len(value) > options.max_stops:
            raise OptionError(field, len(value), f"at most {options.max_stops} of them")
    stop = stopping.get("stop")
    n_characters = sum(len(one) for one in (stop if isinstance(stop, list) else [stop]) if isinstance(one, str))
    if n_characters > _MAX_STOP_CHARACTERS:  # each of the sequences of a request has its own copy
        raise OptionError("stop", n_characters, f"texts of at most {_MAX_STOP_CHARACTERS} characters together")
    return stopping


def _limit(max_tokens: int | None, stopped: Mapping[str, Any], options: ServerOptions) -> int:
    """Return the maximum number of tokens; without one, at least `min_tokens`."""
    least = stopped.get("min_tokens", 0)
    at_least("min_tokens", least, 0)
    return max(options.default_max_tokens, least) if max_tokens is None else max_tokens


def _includes_usage(body: Mapping[str, Any], *, is_stream: bool) -> bool:
    stream_options = body.get("stream_options")
    if stream_options is None:
        return False
    if not isinstance(stream_options, Mapping):
        raise OptionError("stream_options", stream_options, "an object with `include_usage`")
    if not is_stream:
        raise IncompatibleOptionsError("stream_options", "an answer that is no stream", "set `stream`")
    for name, value in stream_options.items():
        if name != "include_usage" and value:
            raise unsupported("stream_options", f"{of_value(name[:40])} is not offered; leave it out")
    return flag_of(stream_options, "include_usage", "stream_options.")


@contextmanager
def _fields_of(fields: Mapping[str, str], body: Mapping[str, Any]) -> Iterator[None]:
    """Raise errors about options under the names that the request has for them."""
    try:
        yield
    except OptionError as error:
        option, bracket, rest = error.name.partition("[")
        field = next((name for name, same in fields.items() if same == option and body.get(name) is not None), option)
        if field == option:
            raise
        raise OptionError(field + bracket + rest, error.value, error.allowed) from error


def take_id(body: Mapping[str, Any], exchange: Exchange) -> None:
    """Name an exchange by the field `request_id`, if there is one."""
    name = body.get("request_id")
    if name is not None and not isinstance(name, str):
        raise OptionError("request_id", name, "a text")
    if name:
        exchange.id = id_of(name)


def note_generation(generation: Generation, exchange: Exchange) -> dict[str, int]:
    """Return the usage of a generation, and keep what it took for log and metrics."""
    n_prompt, n_drawn = sum(generation.prompt_tokens), generation.n_drawn
    exchange.n_prompt, exchange.n_drawn = n_prompt, n_drawn
    exchange.rows_naive = generation.cost.rows_naive
    return {"prompt_tokens": n_prompt, "completion_tokens": n_drawn, "total_tokens": n_prompt + n_drawn}
