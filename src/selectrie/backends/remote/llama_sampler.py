"""The sampler of llama-server, behind `/completion`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from selectrie.backends.remote.answers import Answer
from selectrie.backends.remote.dialect import ServedModel
from selectrie.backends.remote.partial import check_length, together
from selectrie.backends.remote.sampling import NEUTRAL, Refusals, check_count, seed_of
from selectrie.backends.remote.transport import Transport
from selectrie.core.completion import Completed, CompletionRequest, SamplerSettings, ServedSequence

_PATH = "/completion"
_CHAIN = ("penalties", "top_k", "typ_p", "top_p", "min_p", "temperature")
"""The steps of `SamplingParams` by llama-server's names, in the order of both."""
_RANDOM_SEED = (1 << 32) - 1
"""The seed that llama-server replaces by a random one."""
_BYTES_OF_TOKEN = 2048
"""Maximum size of what an answer says about one token; its bytes are listed."""


class LlamaSampler:
    """A llama-server, whose chain of samplers is ours.

    Args:
        transport: The connection.
        model: The model.
        places: Limits how many requests it works on at once.
        is_whole: Whether the bytes of each token are whole characters.
    """

    repeats_seeds = True

    def __init__(
        self, transport: Transport, model: ServedModel, *, places: asyncio.Semaphore, is_whole: Sequence[bool]
    ) -> None:
        self._transport, self._model, self._places, self._is_whole = transport, model, places, is_whole
        self._refusals = Refusals(model.server)

    def check(self, settings: SamplerSettings, seed: int | None) -> None:
        refusals = self._refusals
        refusals.require_neutral(settings, ["min_tokens", "stop_tokens"])
        refusals.require_neutral(
            settings, ["n_alternatives"], reason="does not tell those of a token that ends within a character"
        )
        refusals.require_seed_below(seed, _RANDOM_SEED)
        if settings.best_of is not None:
            reason = "does not tell the log-probability of every token"
            refusals.refuse(settings, "best_of", reason, "leave out `best_of`")
        for bias in settings.logit_bias.values():
            if bias != -math.inf and not math.isfinite(bias):
                refusals.refuse(settings, "logit_bias", "takes no infinite biases")
        if settings.grammar is not None and settings.temperature != 0 and settings.top_k != 1:
            names = ("top_k", "typical_p", "top_p", "min_p")
            reason = "filters before it asks whether the grammar allows a token, not after"
            remedy = "switch the filters off (SamplingParams.UNCHANGED), or set temperature=0"
            for name in names:
                if getattr(settings, name) != NEUTRAL[name]:
                    refusals.refuse(settings, name, reason, remedy)

    async def complete(self, request: CompletionRequest) -> Completed:
        drawn = await together(self._drawn(request, index) for index in range(request.n))
        return Completed(tuple(drawn), len(drawn))

    async def _drawn(self, request: CompletionRequest, index: int) -> ServedSequence:
        settings, ids = request.settings, request.prompt.tolist()
        seed = seed_of(request, index)
        body = {"prompt": ids, **({} if seed is None else {"seed": seed}), **_fields(settings, len(ids))}
        max_bytes = (1 << 20) + 64 * len(ids) + _BYTES_OF_TOKEN * settings.max_tokens
        async with self._places:
            answer = await self._transport.post(_PATH, body, max_bytes=max_bytes)
        check_length(answer["tokens_evaluated"].whole(), ids, answer["tokens_evaluated"])
        tokens = tuple(one.token(self._model.n_tokens) for one in answer["tokens"].sequence())
        finish, stop = _end(answer)
        check_count(len(tokens), settings, finish, answer)
        return ServedSequence(None, tokens, self._logp(answer, tokens), (), len(tokens), finish, stop, None)

    def _logp(self, answer: Answer, tokens: tuple[int, ...]) -> tuple[float | None, ...]:
        """Return the log-probability of each token that it tells.

        It leaves out those of tokens that end within a character, and as many at the
        end as a stop string has. So they are known up to the first that may be missing.
        Tokens that it drew by speculation have no list of others beside them, and no
        value.
        """
        told = answer.get("completion_probabilities")
        entries = [] if told is None else told.sequence()
        logp: list[float | None] = [None] * len(tokens)
        whole = takewhile(lambda token: self._is_whole[token], tokens)
        for number, (token, entry) in enumerate(zip(whole, entries, strict=False)):
            if entry["id"].token(self._model.n_tokens) != token:
                entry["id"].wrong(f"is another token than {token}, which was drawn there")
            if entry["top_logprobs"].sequence():
                logp[number] = entry["logprob"].logp()
        return tuple(logp)


def _fields(settings: SamplerSettings, n_prompt: int) -> dict[str, Any]:
    n_all = n_prompt + settings.max_tokens  # it keeps room for as many as it is told
    last_n = n_all if settings.penalty_last_n == -1 else min(settings.penalty_last_n, n_all)
    biases = [[token, False if bias == -math.inf else bias] for token, bias in settings.logit_bias.items()]
    return {
        "n_predict": settings.max_tokens,
        "samplers": list(_CHAIN),
        "temperature": settings.temperature,
        "top_k": settings.top_k,
        "top_p": settings.top_p,
        "min_p": settings.min_p,
        "typical_p": settings.typical_p,
        "repeat_penalty": settings.repeat_penalty,
        "presence_penalty": settings.presence_penalty,
        "frequency_penalty": settings.frequency_penalty,
        "repeat_last_n": last_n,
        # What the server may have been started with.
        "dynatemp_range": 0,
        "mirostat": 0,
        "min_keep": 0,
        "backend_sampling": False,
        **({"logit_bias": biases} if biases else {}),
        "ignore_eos": settings.ignore_eog,
        **({"stop": list(settings.stop)} if settings.stop else {}),
        **({} if settings.grammar is None else {"grammar": settings.grammar}),
        "n_probs": 1,
        "post_sampling_probs": False,
        "return_tokens": True,
        "cache_prompt": True,
    }


def _end(answer: Answer) -> tuple[str, str | None]:
    kind = answer["stop_type"]
    name = kind.text()
    if name == "word":
        return "stop", answer["stopping_word"].text()
    if name not in {"eos", "limit"}:
        kind.wrong(f"is {name[:40]!r}: the sequence has no end")
    return ("eog" if name == "eos" else "length"), None
