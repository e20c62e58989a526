"""The samplers of this project's server and of vLLM, behind `/v1/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selectrie.backends.remote.answers import Answer
from selectrie.backends.remote.completions import token_of_key
from selectrie.backends.remote.dialect import ServedModel
from selectrie.backends.remote.partial import check_length, together
from selectrie.backends.remote.sampling import Refusals, check_count, filters_after_temperature, seed_of
from selectrie.backends.remote.transport import Transport
from selectrie.core.completion import Completed, CompletionRequest, SamplerSettings, ServedSequence

_PATH = "/v1/completions"
_MAX_TOP = 20
"""Most probable tokens that a server tells by default."""
_MAX_N, _MAX_TOKENS = 32, 1 << 16
"""Sequences of one request, and tokens that they may have together."""
_BYTES_OF_TOKEN = 128
"""Size of what an answer says about a token and its value, at most."""
_LEAST_TEMPERATURE = 0.01
"""vLLM raises lower temperatures to this one, but for 0."""


class CompletionsSampler:
    """Servers that answer as vLLM's `/v1/completions` does.

    Args:
        transport: The connection.
        model: The model.
    """

    repeats_seeds = True

    def __init__(self, transport: Transport, model: ServedModel) -> None:
        self._transport, self._model = transport, model
        self._refusals = Refusals(model.server)

    def check(self, settings: SamplerSettings, seed: int | None) -> None:
        """Raise `ServerOptionError` for what both servers cannot apply."""
        refusals = self._refusals
        if settings.n_alternatives > _MAX_TOP:
            refusals.refuse(settings, "n_alternatives", f"tells at most {_MAX_TOP}", "ask for fewer")
        refusals.require_seed_below(seed, 1 << 63)

    def fields(self, settings: SamplerSettings) -> dict[str, Any]:
        """Return the options of the sampler under the names of the server."""
        raise NotImplementedError

    async def complete(self, request: CompletionRequest) -> Completed:
        most = min(_MAX_N, max(1, _MAX_TOKENS // request.settings.max_tokens))
        starts = range(0, request.n, most)
        parts = await together(self._drawn(request, start, min(most, request.n - start)) for start in starts)
        return Completed(tuple(one for part in parts for one in part), len(parts))

    async def _drawn(self, request: CompletionRequest, start: int, n: int) -> list[ServedSequence]:
        """Return n sequences from number `start` on, whose seeds the server counts."""
        settings, seed = request.settings, seed_of(request, start)
        body = {
            "model": self._model.name,
            "prompt": request.prompt.tolist(),
            "n": n,
            "max_tokens": settings.max_tokens,
            **({} if seed is None else {"seed": seed}),
            **({"stop": list(settings.stop)} if settings.stop else {}),
            **({"stop_token_ids": list(settings.stop_tokens)} if settings.stop_tokens else {}),
            **({"min_tokens": settings.min_tokens} if settings.min_tokens else {}),
            **({"logit_bias": _by_text(settings.logit_bias)} if settings.logit_bias else {}),
            **self.fields(settings),
            "logprobs": settings.n_alternatives,
            "return_tokens_as_token_ids": True,
            "add_special_tokens": False,
        }
        n_values = n * settings.max_tokens * (3 + settings.n_alternatives)
        answer = await self._transport.post(_PATH, body, max_bytes=(1 << 20) + _BYTES_OF_TOKEN * n_values)
        usage = answer["usage"]
        check_length(usage["prompt_tokens"].whole(), request.prompt.tolist(), usage["prompt_tokens"])
        choices = answer["choices"].sequence(n)
        return [self._sequence(choice, index, settings) for index, choice in enumerate(choices)]

    def _sequence(self, choice: Answer, index: int, settings: SamplerSettings) -> ServedSequence:
        if choice["index"].whole() != index:
            choice["index"].wrong(f"is not {index}, in whose place it is")
        lists = choice["logprobs"]
        tokens = tuple(token_of_key(one, self._model.n_tokens) for one in lists["tokens"].sequence())
        values = lists["token_logprobs"].sequence(len(tokens))
        rows = lists["top_logprobs"].sequence(len(tokens)) if settings.n_alternatives else []
        finish, stop, stop_token = self._end(choice)
        check_count(len(tokens), settings, finish, choice)
        return ServedSequence(
            text=None,
            tokens=tokens,
            logp=tuple(value.logp() for value in values),
            alternatives=tuple(self._top(row, settings.n_alternatives) for row in rows),
            n_tokens=len(tokens),
            finish=finish,
            stop=stop,
            stop_token=stop_token,
        )

    def _top(self, row: Answer, n: int) -> tuple[tuple[int, float], ...]:
        """Return the n most probable tokens; the drawn one may come beside them."""
        pairs = [(token_of_key(value, self._model.n_tokens, name), value.logp()) for name, value in row.items()]
        n_told = min(n, self._model.n_tokens)
        if len(pairs) < n_told:
            row.wrong(f"has {len(pairs)} of the most probable tokens: {n_told} were asked for")
        return tuple(sorted(pairs, key=lambda pair: -pair[1])[:n_told])

    def _end(self, choice: Answer) -> tuple[str, str | None, int | None]:
        """Return how a sequence ended, and by which text or token."""
        finish, reason = choice["finish_reason"].text(), choice.get("stop_reason")
        if finish == "length":
            return finish, None, None
        if finish != "stop":
            choice["finish_reason"].wrong(f"is {finish[:40]!r}: the sequence has no end")
        if reason is None:
            return "eog", None, None
        if isinstance(reason.value, str):
            return "stop", reason.text(), None
        return "stop", None, reason.token(self._model.n_tokens)


class OwnSampler(CompletionsSampler):
    """This project's server, which draws as an engine here does."""

    def check(self, settings: SamplerSettings, seed: int | None) -> None:
        super().check(settings, seed)
        self._refusals.require_finite_biases(settings)

    def fields(self, settings: SamplerSettings) -> dict[str, Any]:
        return {
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "min_p": settings.min_p,
            "typical_p": settings.typical_p,
            "repetition_penalty": settings.repeat_penalty,
            "presence_penalty": settings.presence_penalty,
            "frequency_penalty": settings.frequency_penalty,
            "penalty_last_n": settings.penalty_last_n,
            **({"ignore_eos": True} if settings.ignore_eog else {}),
            **_structured(settings),
        }


class VllmSampler(CompletionsSampler):
    """vLLM, which divides by the temperature, then applies min_p, top_k and top_p."""

    def check(self, settings: SamplerSettings, seed: int | None) -> None:
        super().check(settings, seed)
        refusals = self._refusals
        refusals.require_neutral(settings, ["typical_p"])
        refusals.require_neutral(
            settings, ["ignore_eog"], reason="draws end-of-generation tokens all the same, and goes on after them"
        )
        refusals.require_neutral(
            settings, ["presence_penalty", "frequency_penalty"], reason="does not count the tokens of the prompt"
        )
        refusals.require_order(settings, beside_top_p="min_p", reason="applies it before top_p, not after")
        if settings.repeat_penalty != 1 and settings.penalty_last_n != -1:
            remedy = "set penalty_last_n=-1"
            refusals.refuse(settings, "penalty_last_n", "looks at all tokens for the penalty", remedy)
        if 0 < settings.temperature < _LEAST_TEMPERATURE:
            remedy = "set temperature=0 for the most probable token"
            refusals.refuse(settings, "temperature", f"raises it to {_LEAST_TEMPERATURE}", remedy)
        refusals.require_finite_biases(settings, 100.0)

    def fields(self, settings: SamplerSettings) -> dict[str, Any]:
        return {
            **filters_after_temperature(settings),
            "repetition_penalty": settings.repeat_penalty,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            **_structured(settings),
        }


def _structured(settings: SamplerSettings) -> dict[str, Any]:
    return {} if settings.grammar is None else {"structured_outputs": {"grammar": settings.grammar}}


def _by_text(biases: Mapping[int, float]) -> dict[str, float]:
    return {str(token): bias for token, bias in biases.items()}
