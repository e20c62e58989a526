"""Fields that `/v1/chat/completions` and `/v1/completions` share, and generation.

A field is one of four kinds: it sets an option of the engine (`_OPTIONS`), it does not
influence the answer (`Ignored`), it is known but not offered (`NotOffered`), or it is
unknown. Unknown fields are ignored with a warning; a known one that cannot be honoured
is refused. Text is drawn as a whole or as a stream.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from selectrie.core.path_model import REMOTE
from selectrie.core.vocabulary import Vocabulary
from selectrie.engine.aio import open_in_thread
from selectrie.engine.engine import Engine
from selectrie.engine.requests.generate import Prompts, Stream
from selectrie.engine.requests.generation_params import GenerationParams
from selectrie.engine.requests.session import fix_time
from selectrie.errors import IncompatibleOptionsError, OptionError, PromptTooLongError, of_value
from selectrie.options import DEFAULT_PROMPTING, PromptParams, SamplingParams, StopParams
from selectrie.options.checks import N_SEEDS, numbers_of
from selectrie.results import Chunk, Generation
from selectrie.server.fields.reading import check_tokens, unknown_fields
from selectrie.server.fields.structured import (
    STRUCTURED_OUTPUTS,
    StructuredFields,
    StructuredText,
    constraining_field,
    grammar_errors_at,
)
from selectrie.server.fields.wire import (
    BY_TYPE,
    Body,
    Items,
    Priority,
    TokenId,
    UnsupportedError,
    UpTo,
    WireModel,
    bounded,
    fields_of,
    fields_without_effect,
    with_options,
)
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import HttpError
from selectrie.server.transport.request_context import Exchange
from selectrie.tokenization.prompts import SHORTEN_PROMPT

_OTHER_NAMES = {"repetition_penalty": "repeat_penalty", "repeat_last_n": "penalty_last_n"}
"""Options of `SamplingParams` by the names that other servers have for them."""
_SAMPLING = _OTHER_NAMES | {name: name for name in (*numbers_of(SamplingParams), "logit_bias")}
"""Options of `SamplingParams` by the fields that set them."""
_STOPPING = {"stop": "stop", "stop_token_ids": "stop_tokens", "ignore_eos": "ignore_eog", "min_tokens": "min_tokens"}
"""Options of `StopParams` by the fields that set them."""
_LIMITS = dict.fromkeys(("max_output_tokens", "max_completion_tokens", "max_tokens"), "max_tokens")
_OPTIONS = {**_LIMITS, **_SAMPLING, **_STOPPING}
"""Options of the engine by the fields that set them."""
_MAX_STOP_CHARACTERS = 1 << 16
"""Maximum number of characters of all stop texts of a request together."""
_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_N_NEGATIVE = 1 << 63
"""Number of negative seeds, which stand for those from 0 on."""


def _parse_bias_keys(biases: dict[Any, Any]) -> dict[int, Any]:
    """Return biases by token id. In JSON the keys are texts."""
    for key in biases:
        if not _TOKEN_ID.fullmatch(key):
            raise OptionError("", key, "token ids as keys, whole numbers of at least 0")
    return {int(key): bias for key, bias in biases.items()}


def _check_stop_length(stop: str | list[str]) -> str | list[str]:
    """Return stop texts; raise `OptionError` if they are too long together."""
    n_characters = len(stop) if isinstance(stop, str) else sum(map(len, stop))
    if n_characters > _MAX_STOP_CHARACTERS:  # each of the sequences of a request has its own copy
        raise OptionError("", n_characters, f"texts of at most {_MAX_STOP_CHARACTERS} characters together")
    return stop


def _check_stream_options(options: object) -> object:
    """Return the options of a stream; raise an error for one that is not offered."""
    for name, value in options.items() if isinstance(options, Mapping) else ():
        if name != "include_usage" and value:
            raise UnsupportedError(f"{of_value(name[:40])} is not offered; leave it out")
    return options


_KEYS = {"propertyNames": {"pattern": f"^({_TOKEN_ID.pattern})$"}}
_BIASES = WithJsonSchema({"type": "object", "additionalProperties": {"type": "number"}, **_KEYS})


class StreamOptions(WireModel):
    """Options of a stream."""

    model_config = ConfigDict(
        title="an object with `include_usage`", json_schema_extra={"additionalProperties": {"enum": [None, False]}}
    )

    include_usage: bool | None = None
    """Whether the stream ends with the usage."""


_Stop = Annotated[str, Field(min_length=1, title="a text that is not empty")]


_NOT_OFFERED = """
use_beam_search=false length_penalty=1 bad_words=[] allowed_token_ids logits_processors=[]
include_stop_str_in_output=false skip_special_tokens=true mirostat=0 mirostat_mode=0 dry_multiplier=0
xtc_probability=0 dynatemp_range=0 top_n_sigma=-1 samplers n_probs=0 lora=[] truncation_side="left"
stream_interval=1 thinking_token_budget=-1 repetition_detection watermarking=false vllm_xargs={}
kv_transfer_params={} ec_transfer_params={}
"""
_IGNORED = """
user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_options prompt_cache_retention
cache_prompt cache_salt session_id spaces_between_special_tokens
"""


@with_options(SamplingParams, others=_OTHER_NAMES)
class GenerationBody(fields_without_effect(_NOT_OFFERED, _IGNORED), StructuredFields, Body):  # type: ignore[misc]
    """The fields of all endpoints that draw text.

    Known fields that cannot be honoured are refused; the first of them is reported.
    """

    top_k: int | None = bounded(numbers_of(SamplingParams)["top_k"].allowed, ge=-1)
    """Number of most probable tokens kept (0 or -1 = all)."""
    logit_bias: Annotated[dict[Any, Any], AfterValidator(_parse_bias_keys), _BIASES] | None = Field(
        None, title="a mapping from token ids to numbers"
    )
    """Added to logits, by token id."""
    stop: (
        Annotated[_Stop | Annotated[Items[_Stop], UpTo("max_stops")], BY_TYPE, AfterValidator(_check_stop_length)]
        | None
    ) = Field(None, title="a text that is not empty, or a list of these")
    """Texts that end the answer."""
    stop_token_ids: Annotated[Items[TokenId], UpTo("max_stops")] | None = Field(None, title="a list of token ids")
    """Tokens that end the answer."""
    ignore_eos: bool | None = None
    """Whether no end-of-generation token is drawn."""
    min_tokens: int | None = bounded(numbers_of(StopParams)["min_tokens"].allowed)
    """Number of tokens drawn before the answer may end."""
    n: Annotated[int, Field(ge=1), UpTo("max_n")] | None = None
    """Number of choices; 1 by default."""
    best_of: Annotated[int, Field(ge=1), UpTo("max_n")] | None = None
    """Number of texts drawn, of which the `n` most probable are returned."""
    seed: int | None = Field(None, title="a whole number from -2**63 to 2**64 - 1", ge=-_N_NEGATIVE, lt=N_SEEDS)
    """Seed of the first choice. -1 is random; other negative ones count modulo 2⁶³."""
    priority: Priority | None = None
    """A lower number goes first, where the server takes it."""
    stream: bool | None = None
    """Whether the answer is a stream of events."""
    stream_options: Annotated[StreamOptions, BeforeValidator(_check_stream_options)] | None = None
    """Options of a stream."""
    request_id: str | None = None
    """Id of the answer, and name of the request in headers and log."""


@dataclass(frozen=True, slots=True, eq=False)
class GenerationRequest:
    """The options with which a request draws text.

    Attributes:
        n: Number of sequences after each prompt.
        seed: Seed of the first sequence, or None.
        sampling, stopping, options: Options of `Engine.generate`.
        own_sampling: Only the sampling options that the request itself sets. A model on
            another server is sent these alone.
        defaulted: Names of the sampling options that the model's stored ones may set.
        structured: The grammar in `options` with its path in the request, or None.
        has_max_tokens: Whether the request itself limits the number of tokens.
        is_stream: Whether the answer is a stream.
        includes_usage: Whether the stream ends with the usage.
        warnings: Warnings for the client about fields without effect.
    """

    n: int
    seed: int | None
    sampling: SamplingParams
    own_sampling: SamplingParams
    defaulted: Collection[str]
    stopping: StopParams
    options: GenerationParams
    structured: StructuredText | None
    has_max_tokens: bool
    is_stream: bool
    includes_usage: bool
    warnings: Sequence[str]

    def sampling_on(self, engine: Engine) -> SamplingParams:
        """Return `sampling` with the options that are stored with a model."""
        stored: dict[str, Any] = {
            name: value for name, value in engine.stored_sampling.items() if name in self.defaulted
        }
        return replace(self.sampling, **stored)

    def arguments(self, engine: Engine) -> dict[str, Any]:
        """Return the keyword arguments of `Engine.generate` and `Engine.stream`."""
        is_remote = engine.identity.precision == REMOTE
        return {
            "n": self.n,
            "seed": self.seed,
            "sampling": self.own_sampling if is_remote else self.sampling_on(engine),
            "stopping": self.stopping,
            "options": self.options,
        }

    def shorten(self, error: PromptTooLongError) -> GenerationRequest:
        """Return the request with `max_tokens` reduced to the room in the context.

        Raises `error` if the request itself limits the tokens, or if there is no room.
        """
        if self.has_max_tokens:
            raise error
        n_left = self.stopping.max_tokens - (error.required_tokens - error.available_tokens)
        if n_left < 1:
            raise error.with_remedy(SHORTEN_PROMPT) from error
        return replace(self, stopping=replace(self.stopping, max_tokens=n_left))


def read_generation(
    body: GenerationBody,
    data: Mapping[str, Any],
    options: ServerOptions,
    *,
    max_tokens: int | None,
    n_alternatives: int = 0,
    named: Sequence[int] = (),
) -> GenerationRequest:
    """Check the shared fields of a body and return the options for drawing.

    Defaults are those of OpenAI's API, temperature 1 and no filter, where the model has
    none stored. The penalties look at the whole text, prompt included.

    Args:
        body: The request.
        data: The body before validation, which also has the unknown fields.
        options: The limits.
        max_tokens: Maximum number of tokens drawn; None for the server's default.
        n_alternatives: Number of most probable tokens reported at each step.
        named: Ids of tokens whose log-probabilities are reported at each step.

    Raises:
        RequestError: If values contradict each other.
        HttpError: If more than `ServerOptions.max_rows` tokens may be drawn.
    """
    n, best_of, is_stream = body.n or 1, body.best_of, bool(body.stream)
    if best_of is not None and best_of < n:
        raise OptionError("best_of", best_of, f"at least n={n}, the number of choices")
    if best_of is not None and best_of > n and is_stream:
        raise IncompatibleOptionsError("best_of", "stream", "which are the best is known only at the end")
    limit = max(options.default_max_tokens, body.min_tokens or 0) if max_tokens is None else max_tokens
    if (best_of or n) * limit > options.max_rows:
        message = f"the request may draw {best_of or n} x {limit} tokens: expected at most {options.max_rows} in all"
        raise HttpError(400, "too_many_rows", message, options_of(type(body), data)["max_tokens"])
    sampled = _collect_options(body, _SAMPLING)
    if sampled.get("top_k") == -1:  # vLLM's
        sampled["top_k"] = 0
    stopping = StopParams(max_tokens=limit, **_collect_options(body, _STOPPING))
    if body.stream_options is not None and not is_stream:
        raise IncompatibleOptionsError("stream_options", "an answer that is no stream", "set `stream`")
    structured = body.structured_text()
    warnings = unknown_fields(data, type(body).model_fields)
    return GenerationRequest(
        n=n,
        seed=None if body.seed in (None, -1) else body.seed % (_N_NEGATIVE if body.seed < 0 else N_SEEDS),
        sampling=replace(SamplingParams.UNCHANGED, **{"penalty_last_n": -1, **sampled}),
        own_sampling=SamplingParams(**sampled),
        defaulted=() if options.generation_config == "none" else numbers_of(SamplingParams).keys() - sampled.keys(),
        stopping=stopping,
        options=GenerationParams(
            best_of=None if best_of == n else best_of,
            grammar=None if structured is None else structured.grammar,
            n_alternatives=n_alternatives,
            named=named,
            priority=-(body.priority or 0),
        ),
        structured=structured,
        has_max_tokens=max_tokens is not None,
        is_stream=is_stream,
        includes_usage=body.stream_options is not None and bool(body.stream_options.include_usage),
        warnings=warnings if structured is None else [*warnings, *structured.warnings()],
    )


def _collect_options(body: GenerationBody, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the engine's options that the body sets, by name.

    Raises `IncompatibleOptionsError` if two fields for one option disagree.

    Args:
        fields: Names of options by the body's fields that set them.
    """
    options: dict[str, Any] = {}
    for field, option in fields.items():
        value = getattr(body, field)
        if value is None:
            continue
        if options.get(option, value) != value:
            other = next(name for name, same in fields.items() if same == option)
            raise IncompatibleOptionsError(field, other, "they are two names of one option; give one of them")
        options[option] = value
    return options


def options_of(kind: type[GenerationBody], data: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of a body's fields by the options that they set.

    Where several fields set one option, a field that `data` contains is preferred.
    """
    by_option = sorted(_OPTIONS.items(), key=lambda one: (data.get(one[0]) is not None, one[0] == one[1]))
    names = {
        "grammar": constraining_field(data) or STRUCTURED_OUTPUTS,
        "named": "logprob_token_ids",
        "generate": "stream=false",
    }
    offered = fields_of(kind)
    return offered | names | {option: field for field, option in by_option if field in offered}


def note_generation(generation: Generation, exchange: Exchange) -> dict[str, int]:
    """Return the numbers of tokens of a generation, and note them in the exchange."""
    n_prompt, n_drawn = sum(generation.prompt_tokens), generation.n_drawn
    exchange.n_prompt, exchange.n_drawn = n_prompt, n_drawn
    exchange.rows_naive = generation.cost.rows_naive
    return {"prompt_tokens": n_prompt, "completion_tokens": n_drawn, "total_tokens": n_prompt + n_drawn}


async def generate(
    exchange: Exchange,
    engine: Engine,
    prompts: Prompts,
    request: GenerationRequest,
    prompting: PromptParams = DEFAULT_PROMPTING,
) -> Generation:
    """Return the generation that a request asks for.

    If the request sets no limit of tokens and its prompts leave too little room, it is
    repeated with as many tokens as fit.
    """
    _check_tokens(engine.vocabulary, request)
    prompting = fix_time(engine.vocabulary, prompting, prompts)  # for both tries

    async def generation(one: GenerationRequest) -> Generation:
        return await engine.agenerate(prompts, prompting=prompting, **one.arguments(engine))

    with _grammar_errors_of(request):
        try:
            return await exchange.hold(lambda: generation(request))
        except PromptTooLongError as error:
            shorter = request.shorten(error)
        return await exchange.hold(lambda: generation(shorter))


@asynccontextmanager
async def open_stream(
    exchange: Exchange,
    engine: Engine,
    prompts: Prompts,
    request: GenerationRequest,
    prompting: PromptParams = DEFAULT_PROMPTING,
) -> AsyncGenerator[Stream, None]:
    """Yield the stream of a request; leaving the `async with` block stops its work."""
    _check_tokens(engine.vocabulary, request)

    def start() -> Stream:
        arguments = {"prompting": prompting, **request.arguments(engine)}
        try:
            return engine.stream(prompts, **arguments)
        except PromptTooLongError as error:
            shorter = request.shorten(error)
        return engine.stream(prompts, **{**arguments, **shorter.arguments(engine)})

    with _grammar_errors_of(request):
        async with open_in_thread(start, exchange.in_thread) as stream:
            yield stream


def _grammar_errors_of(request: GenerationRequest) -> AbstractContextManager[None]:
    """Return a context that reports errors of the request's grammar under its path."""
    return nullcontext() if request.structured is None else grammar_errors_at(request.structured.path)


def _check_tokens(vocabulary: Vocabulary, request: GenerationRequest) -> None:
    """Raise `HttpError` for an id in a field that is no token of the vocabulary."""
    check_tokens(vocabulary, request.stopping.stop_tokens, "stop_token_ids")
    check_tokens(vocabulary, request.sampling.logit_bias, "logit_bias")


def join_chunks(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Join the chunks of each sequence, ordered by the sequences' first chunks."""
    parts: dict[tuple[int, int], list[Chunk]] = {}
    for chunk in chunks:
        parts.setdefault((chunk.prompt_index, chunk.index), []).append(chunk)
    return [_join(one) for one in parts.values()]


def _join(parts: Sequence[Chunk]) -> Chunk:
    """Return one chunk with the texts and tokens of several, in order."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        text="".join(part.text for part in parts),
        tokens=tuple(chain.from_iterable(part.tokens for part in parts)),
        alternatives=tuple(chain.from_iterable(part.alternatives for part in parts)),
        named=tuple(chain.from_iterable(part.named for part in parts)),
        completion=parts[-1].completion,
    )
