"""The sampler of SGLang, behind `/generate`."""

from __future__ import annotations

from typing import Any

from selectrie.backends.remote.answers import Answer
from selectrie.backends.remote.dialect import ServedModel
from selectrie.backends.remote.partial import check_length
from selectrie.backends.remote.sampling import (
    PENALTIES,
    Refusals,
    check_count,
    filters_after_temperature,
    seed_of,
)
from selectrie.backends.remote.transport import Transport
from selectrie.core.completion import Completed, CompletionRequest, SamplerSettings, ServedSequence
from selectrie.errors import ServerOptionError

_PATH = "/generate"
_BYTES_OF_TOKEN = 128
_LEAST_TEMPERATURE = 1e-6
"""SGLang takes lower temperatures as 0."""


class SglangSampler:
    """A server of SGLang.

    It divides by the temperature first, and takes `top_k` and `top_p` of the same
    probabilities. A seed counts where it was started with
    `--enable-deterministic-inference`.

    Args:
        transport: The connection.
        model: The model.
        is_deterministic: Whether it was started so.
    """

    def __init__(self, transport: Transport, model: ServedModel, *, is_deterministic: bool) -> None:
        self._transport, self._model = transport, model
        self._refusals = Refusals(model.server)
        self.repeats_seeds = is_deterministic

    def check(self, settings: SamplerSettings, seed: int | None) -> None:
        refusals = self._refusals
        refusals.require_neutral(settings, ["typical_p", "n_alternatives"])
        refusals.require_neutral(
            settings, ["ignore_eog"], reason="draws end-of-generation tokens all the same, and goes on after them"
        )
        refusals.require_neutral(settings, PENALTIES, reason="does not count the tokens of the prompt")
        refusals.require_order(settings, beside_top_p="top_k", reason="applies it beside top_p, not before")
        refusals.require_finite_biases(settings)
        if settings.min_tokens and settings.stop:
            remedy = "leave out `stop` or `min_tokens`"
            refusals.refuse(settings, "min_tokens", "lets stop texts end a sequence before that", remedy)
        if 0 < settings.temperature <= _LEAST_TEMPERATURE:
            refusals.refuse(settings, "temperature", "takes it as 0", "set temperature=0")
        if seed is not None and not self.repeats_seeds:
            raise ServerOptionError(
                "seed",
                seed,
                server=self._model.server,
                reason="ignores seeds",
                remedy="leave it out, or start the server with --enable-deterministic-inference",
            )
        refusals.require_seed_below(seed, 1 << 63)
        if settings.best_of is not None and not _tells_logp(settings):
            reason = "tells log-probabilities after other steps of its sampler"
            remedy = "leave out `best_of`, or set temperature=1 without biases, grammar and `min_tokens`"
            refusals.refuse(settings, "best_of", reason, remedy)

    async def complete(self, request: CompletionRequest) -> Completed:
        settings = request.settings
        ids = request.prompt.tolist()
        body = {
            "input_ids": [ids] * request.n,
            "sampling_params": [_fields(settings, seed_of(request, index)) for index in range(request.n)],
            "return_logprob": True,
            "logprob_start_len": [-1] * request.n,
        }
        max_bytes = (1 << 20) + request.n * (4096 + _BYTES_OF_TOKEN * settings.max_tokens)
        answer = await self._transport.post(_PATH, body, max_bytes=max_bytes)
        items = answer.sequence(request.n)
        for item in items:
            read = item["meta_info"]["prompt_tokens"]
            check_length(read.whole(), ids, read)
        return Completed(tuple(self._sequence(item["meta_info"], settings) for item in items), 1)

    def _sequence(self, meta: Answer, settings: SamplerSettings) -> ServedSequence:
        entries = [entry.sequence()[:2] for entry in meta["output_token_logprobs"].sequence()]
        if any(len(entry) < 2 for entry in entries):
            meta["output_token_logprobs"].wrong("has an item without a token")
        tokens = tuple(token.token(self._model.n_tokens) for _, token in entries)
        is_told = _tells_logp(settings)
        logp = tuple(value.logp() if is_told else None for value, _ in entries)
        finish, stop, stop_token = self._end(meta["finish_reason"])
        check_count(len(tokens), settings, finish, meta)
        return ServedSequence(None, tokens, logp, (), len(tokens), finish, stop, stop_token)

    def _end(self, reason: Answer) -> tuple[str, str | None, int | None]:
        kind, matched = reason["type"].text(), reason.get("matched")
        if kind == "length":
            return kind, None, None
        if kind != "stop":
            reason["type"].wrong(f"is {kind[:40]!r}: the sequence has no end")
        if matched is None:
            return "eog", None, None
        if isinstance(matched.value, str):
            return "stop", matched.text(), None
        return "stop", None, matched.token(self._model.n_tokens)


def _fields(settings: SamplerSettings, seed: int | None) -> dict[str, Any]:
    filters = filters_after_temperature(settings)
    biases = {str(token): bias for token, bias in settings.logit_bias.items()}
    return {
        **filters,
        "top_k": filters["top_k"] or -1,
        "max_new_tokens": settings.max_tokens,
        "repetition_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        **({} if seed is None else {"sampling_seed": seed}),
        **({"stop": list(settings.stop)} if settings.stop else {}),
        **({"stop_token_ids": list(settings.stop_tokens)} if settings.stop_tokens else {}),
        **({"min_new_tokens": settings.min_tokens} if settings.min_tokens else {}),
        **({"logit_bias": biases} if biases else {}),
        **({} if settings.grammar is None else {"ebnf": settings.grammar}),
    }


def _tells_logp(settings: SamplerSettings) -> bool:
    """Return whether the values that are told are those of the model itself.

    They are those after biases, masks and the temperature.
    """
    is_changed = settings.logit_bias or settings.grammar is not None or settings.min_tokens
    return settings.temperature in (0, 1) and not is_changed
