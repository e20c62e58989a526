"""How a token is drawn, and when a sequence ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

from selectrie.errors import OptionError
from selectrie.options.checks import at_least, callback, flag, natural, number, texts, token_ids


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn: the sampler chain as data, applied in the order of llama.cpp's default chain.

    In that order:
    logit_bias: added to the logits of these tokens; -inf forbids one. A read-only copy, left out of the hash.
    repeat_penalty: logits of recent tokens are divided by it where positive, multiplied where not (1 = off).
    frequency_penalty, presence_penalty: taken off a recent token's logit, for each time it occurs and once (0 = off).
    penalty_last_n: tokens looked back for the three penalties, prompt included (-1 = all, 0 = none).
    top_k: so many most probable tokens stay (0 = all). typical_p: tokens nearest the entropy that together hold more
    than this stay (1 = all). top_p: the most probable that together hold this stay (1 = all).
    min_p: tokens of at least this share of the most probable one's probability stay (0 = all).
    temperature: divides the logits that are left; 0 = always the most probable of them (ties: the smaller id).
    Each filter leaves at least one token.
    """

    GREEDY: ClassVar[Sampling]
    """Always the most probable token."""
    UNCHANGED: ClassVar[Sampling]
    """The model's own distribution."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    def __post_init__(self) -> None:
        number("temperature", self.temperature, least=0, remedy="a number of at least 0 (0 = the most probable token)")
        at_least("top_k", self.top_k, 0, optional=False)
        number("top_p", self.top_p, least=0, most=1, remedy="a number from 0 to 1 (1 = all tokens)")
        number("min_p", self.min_p, least=0, most=1, remedy="a number from 0 to 1 (0 = all tokens)")
        number("typical_p", self.typical_p, least=0, most=1, remedy="a number from 0 to 1 (1 = all tokens)")
        least = math.ulp(0.0)
        number("repeat_penalty", self.repeat_penalty, least=least, remedy="a number above 0 (1 = no penalty)")
        for name in ("presence_penalty", "frequency_penalty"):
            number(name, getattr(self, name), least=-math.inf, remedy="a finite number (0 = no penalty)")
        at_least("penalty_last_n", self.penalty_last_n, -1, optional=False)
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))

    @property
    def penalises(self) -> bool:
        """Does what was drawn or given before change what is drawn next?"""
        neutral = self.repeat_penalty == 1 and self.presence_penalty == 0 and self.frequency_penalty == 0
        return self.penalty_last_n != 0 and not neutral

    def __reduce__(self) -> tuple[type[Sampling], tuple[object, ...]]:
        """Copied and pickled by its fields, since a `MappingProxyType` cannot be."""
        own = (self.temperature, self.top_k, self.top_p, self.min_p, self.typical_p, self.repeat_penalty)
        return Sampling, (
            *own,
            self.presence_penalty,
            self.frequency_penalty,
            self.penalty_last_n,
            dict(self.logit_bias),
        )


def _biases(value: object) -> Mapping[int, float]:
    """A read-only copy of a mapping from token ids to biases; `OptionError` where it is none."""
    if not isinstance(value, Mapping):
        raise OptionError("logit_bias", value, "a mapping from token ids to numbers")
    biases: dict[int, float] = {}
    for key, bias in value.items():
        token = natural("logit_bias", key, "token ids as keys, whole numbers of at least 0")
        is_number = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not is_number or math.isnan(bias) or bias == math.inf:
            raise OptionError(f"logit_bias[{token}]", bias, "a finite number, or -inf to forbid the token")
        biases[token] = bias
    return MappingProxyType(biases)


Sampling.GREEDY = Sampling(temperature=0.0)
Sampling.UNCHANGED = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


@dataclass(frozen=True, slots=True)
class Stopping:
    """When a sequence ends.

    max_tokens: most tokens drawn. stop: texts that end it where they first occur in what was generated, compared byte by
    byte; one str is one text. stop_tokens: token ids that end it. ignore_eog: go on after end-of-generation tokens.
    when: called with the text so far after each token, from the model's thread; true ends the sequence.
    """

    max_tokens: int = 128
    stop: Sequence[str] = ()
    stop_tokens: Sequence[int] = ()
    ignore_eog: bool = False
    when: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        at_least("max_tokens", self.max_tokens, 1, optional=False)
        several = "a text, or a list or tuple of them; leave it out for none"
        stops = (self.stop,) if isinstance(self.stop, str) else texts("stop", self.stop, allowed=several)
        for place, stop in enumerate(stops):
            if not stop:
                raise OptionError(f"stop[{place}]", stop, "a text that is not empty; leave `stop` out for none")
            if any("\ud800" <= c <= "\udfff" for c in stop):
                raise OptionError(f"stop[{place}]", stop, "a text without lone surrogates")
        object.__setattr__(self, "stop", stops)
        object.__setattr__(self, "stop_tokens", token_ids("stop_tokens", self.stop_tokens))
        flag("ignore_eog", self.ignore_eog)
        callback("when", self.when, "the text so far")


DEFAULT_SAMPLING = Sampling()
DEFAULT_STOPPING = Stopping()
