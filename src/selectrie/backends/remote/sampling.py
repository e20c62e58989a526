"""What the samplers of servers have in common: which options they take, what they tell.

An option that a server cannot apply as it is meant here is refused, and never left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from selectrie.backends.remote.answers import Answer
from selectrie.core.completion import Completed, CompletionRequest, SamplerSettings
from selectrie.errors import ServerOptionError

NEUTRAL: Mapping[str, object] = {
    "min_tokens": 0,
    "stop_tokens": (),
    "ignore_eog": False,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": {},
    "grammar": None,
    "n_alternatives": 0,
}
"""Values of options that ask for nothing."""
PENALTIES = ("repeat_penalty", "presence_penalty", "frequency_penalty")
_LOCALLY = "leave it out, or load the model here"


class Sampler(Protocol):
    """The sampler of one kind of server.

    Attributes:
        repeats_seeds: As in `core.completion.SupportsCompletion`.
    """

    @property
    def repeats_seeds(self) -> bool: ...

    def check(self, settings: SamplerSettings, seed: int | None) -> None:
        """Raise `ServerOptionError` for what the server cannot apply."""
        ...

    async def complete(self, request: CompletionRequest) -> Completed:
        """Return sequences; the settings were checked. Runs on the transport's loop."""
        ...


class Refusals:
    """Refuses options in the name of one server.

    Args:
        server: What it calls itself.
    """

    def __init__(self, server: str) -> None:
        self._server = server

    def refuse(self, settings: SamplerSettings, name: str, reason: str, remedy: str = _LOCALLY) -> None:
        """Raise `ServerOptionError` about an option."""
        value = getattr(settings, name)
        shown = dict(value) if isinstance(value, Mapping) else value
        raise ServerOptionError(name, shown, server=self._server, reason=reason, remedy=remedy)

    def require_neutral(self, settings: SamplerSettings, names: Iterable[str], *, reason: str = "") -> None:
        """Raise `ServerOptionError` if one of the options asks for something."""
        for name in names:
            if getattr(settings, name) != NEUTRAL[name]:
                self.refuse(settings, name, reason or "has no such option")

    def require_seed_below(self, seed: int | None, end: int) -> None:
        """Raise `ServerOptionError` for a seed that the server cannot take."""
        if seed is not None and seed >= end:
            reason = f"takes seeds below {end}"
            raise ServerOptionError("seed", seed, server=self._server, reason=reason, remedy="give a smaller one")

    def require_finite_biases(self, settings: SamplerSettings, most: float = math.inf) -> None:
        """Raise `ServerOptionError` for a bias that cannot be sent, or is cut there."""
        for bias in settings.logit_bias.values():
            if not math.isfinite(bias) or abs(bias) > most:
                reason = "takes no infinite biases" if math.isinf(most) else f"cuts biases to {most:g} and {-most:g}"
                self.refuse(settings, "logit_bias", reason, "give smaller ones, or load the model here")

    def require_order(self, settings: SamplerSettings, *, beside_top_p: str, reason: str) -> None:
        """Check filters of a server that divides by the temperature before it filters.

        `top_k` and a converted `min_p` keep the same tokens there. `top_p` does so at
        temperature 1, and without the option `beside_top_p`, which `reason` explains.
        """
        if settings.temperature == 0 or settings.top_p == 1:
            return
        if settings.top_p == 0:
            self.refuse(settings, "top_p", "takes values above 0", "set top_k=1, which is the same")
        if settings.temperature != 1:
            self.refuse(
                settings,
                "top_p",
                f"divides by the temperature ({settings.temperature:g}) before it filters, not after",
                "set top_p=1 and filter by `min_p` and `top_k`, or set temperature=1",
            )
        if getattr(settings, beside_top_p) != NEUTRAL[beside_top_p]:
            remedy = f"set top_p=1, or {beside_top_p}={NEUTRAL[beside_top_p]:g}"
            self.refuse(settings, beside_top_p, reason, remedy)


def filters_after_temperature(settings: SamplerSettings) -> dict[str, Any]:
    """Return the filters for a server that divides by the temperature first.

    A token is kept by `min_p` if its logit is at most ln(1/min_p) below the largest.
    After the division that is the same as `min_p` to the power of 1/temperature.
    """
    if settings.temperature == 0:
        return {"temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0}
    min_p = settings.min_p ** (1 / settings.temperature) if settings.min_p else 0
    return {
        "temperature": settings.temperature,
        "top_k": settings.top_k,
        "top_p": settings.top_p,
        "min_p": min_p,
    }


def check_count(n_drawn: int, settings: SamplerSettings, finish: str, answer: Answer) -> None:
    """Raise `ServerError` if the number of drawn tokens is not what the end says."""
    most = settings.max_tokens
    if n_drawn > most or (finish == "length" and n_drawn < most):
        answer.wrong(f"ends with {finish!r} after {n_drawn} tokens: {most} was the maximum that was asked for")


def seed_of(request: CompletionRequest, index: int) -> int | None:
    """Return the seed of one sequence of a request, None for none."""
    return None if request.seed is None else request.seed + index
