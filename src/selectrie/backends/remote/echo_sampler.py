"""Samplers behind OpenAI's `/v1/completions`, with what is standard there."""

from __future__ import annotations

from selectrie.backends.remote.answers import Answer
from selectrie.backends.remote.dialect import ServedModel
from selectrie.backends.remote.echo import EchoDialect
from selectrie.backends.remote.partial import check_length, together
from selectrie.backends.remote.sampling import NEUTRAL, PENALTIES, Refusals, check_count, seed_of
from selectrie.backends.remote.transport import Transport
from selectrie.core.completion import Completed, CompletionRequest, SamplerSettings, ServedSequence

_PATH = "/v1/completions"
_BYTES_OF_TOKEN = 1024
_NOT_STANDARD = ("min_tokens", "stop_tokens", "ignore_eog", "typical_p", "logit_bias", "grammar", "n_alternatives")
_FILTERS = ("top_k", "min_p")


class EchoSampler:
    """A server of OpenAI's API.

    llama_cpp.server has `top_k` and `min_p` besides, in the order of our chain, and
    defaults for them, so they are always sent to it.

    Args:
        transport: The connection.
        model: The model.
        dialect: Knows how prompts are sent.
    """

    repeats_seeds = False

    def __init__(self, transport: Transport, model: ServedModel, dialect: EchoDialect) -> None:
        self._transport, self._model, self._dialect = transport, model, dialect
        self._refusals = Refusals(model.server)

    def check(self, settings: SamplerSettings, seed: int | None) -> None:
        refusals = self._refusals
        reason = "has no such option in OpenAI's API"
        refusals.require_neutral(settings, _NOT_STANDARD, reason=reason)
        refusals.require_neutral(settings, PENALTIES, reason="does not say which tokens it counts")
        refusals.require_seed_below(seed, 1 << 32 if self._dialect.is_llama_cpp else 1 << 63)
        if settings.best_of is not None:
            reason = "does not say at which step log-probabilities are taken"
            refusals.refuse(settings, "best_of", reason, "leave out `best_of`")
        if self._dialect.is_llama_cpp or settings.temperature == 0:
            return
        refusals.require_neutral(settings, _FILTERS, reason=reason)
        if settings.top_p != 1 and settings.temperature != 1:
            remedy = "set top_p=1, or temperature=1"
            refusals.refuse(settings, "top_p", "does not say whether it divides by the temperature first", remedy)

    async def complete(self, request: CompletionRequest) -> Completed:
        # A request each: llama_cpp.server ignores `n`.
        drawn = await together(self._drawn(request, index) for index in range(request.n))
        return Completed(tuple(drawn), len(drawn))

    async def _drawn(self, request: CompletionRequest, index: int) -> ServedSequence:
        settings, ids, seed = request.settings, request.prompt.tolist(), seed_of(request, index)
        filters = {name: getattr(settings, name) for name in _FILTERS} if self._dialect.is_llama_cpp else {}
        body = {
            "model": self._model.name,
            "prompt": self._dialect.prompt_of(ids),
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "top_p": NEUTRAL["top_p"] if settings.temperature == 0 else settings.top_p,
            **filters,
            **({} if seed is None else {"seed": seed}),
            **({"stop": list(settings.stop)} if settings.stop else {}),
        }
        max_bytes = (1 << 20) + _BYTES_OF_TOKEN * settings.max_tokens
        answer = await self._transport.post(_PATH, body, max_bytes=max_bytes)
        usage = answer["usage"]
        check_length(usage["prompt_tokens"].whole(), ids, usage["prompt_tokens"])
        (choice,) = answer["choices"].sequence(1)
        finish = _end(choice["finish_reason"], settings)
        n_drawn = usage["completion_tokens"].whole()
        if n_drawn > settings.max_tokens:
            check_count(n_drawn, settings, finish, choice)
        return ServedSequence(choice["text"].text(), None, (), (), n_drawn, finish, None, None)


def _end(reason: Answer, settings: SamplerSettings) -> str:
    """Return how a sequence ended.

    "stop" is the end of the text or a stop string; without stop strings it is the end.
    """
    name = reason.text()
    if name not in {"stop", "length"}:
        reason.wrong(f"is {name[:40]!r}: the sequence has no end")
    return name if name == "length" or settings.stop else "eog"
