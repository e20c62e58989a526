"""Options of a request, as frozen records: what a dozen keyword arguments would be otherwise.

Every record checks each field's type and value when it is made and raises `OptionError`: true and false are no numbers,
NaN is no probability, one text is no list of texts. Records compare by value and can be hashed, copied and pickled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from numbers import Integral
from types import MappingProxyType
from typing import Any, ClassVar

from selectrie.errors import OptionError


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise `OptionError` unless value is one of those allowed."""
    if not isinstance(value, str) or value not in allowed:
        raise OptionError(name, value, "one of " + ", ".join(repr(a) for a in allowed))


def at_least(name: str, value: object, least: int, *, optional: bool = True) -> None:
    """Raise `OptionError` unless value is an integer not below `least`, or None where it is optional."""
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise OptionError(name, value, f"a whole number of at least {least}")


def text(name: str, value: object, *, optional: bool = False) -> None:
    """Raise `OptionError` unless value is a str, or None where it is optional."""
    if not isinstance(value, str) and not (optional and value is None):
        raise OptionError(name, value, "a str or None" if optional else "a str")


def probability(name: str, value: object) -> None:
    """Raise `OptionError` unless value is a number above 0 and not above 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise OptionError(name, value, "a probability in (0, 1]")


def number(name: str, value: object, *, least: float, most: float = math.inf, remedy: str) -> None:
    """Raise `OptionError` unless value is a finite number from `least` to `most`; remedy: what to give instead."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most or math.isinf(value):  # type: ignore[operator, arg-type]
        raise OptionError(name, value, remedy)


def texts(name: str, value: object, *, allowed: str = "a list or tuple of texts, each a str") -> tuple[str, ...]:
    """The texts of a list, a tuple or another sequence; `OptionError` where it is none, or one text itself."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        raise OptionError(name, value, allowed)
    for place, one in enumerate(value):
        text(f"{name}[{place}]", one)
    return tuple(value)


def token_ids(name: str, value: object) -> tuple[int, ...]:
    """The ids of a list, a tuple, an array (`Vocabulary.eog`); `OptionError` where it is none, or one is no id."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | bytearray | Mapping | AbstractSet | Iterator):
        raise OptionError(name, value, "a list, tuple or array of token ids")
    try:
        given = tuple(value)
    except TypeError:  # an array without axes
        raise OptionError(name, value, "a list, tuple or array of token ids") from None
    return tuple(_natural(f"{name}[{place}]", token, _TOKEN_ID) for place, token in enumerate(given))


_TOKEN_ID = "a whole number of at least 0, the id of a token"  # noqa: S105 - of a vocabulary


def seed(name: str, value: object) -> int | None:
    """A seed as an int, or None; `OptionError` for what is neither."""
    return None if value is None else _natural(name, value, "a whole number of at least 0; leave it out for any")


def _natural(name: str, value: object, allowed: str) -> int:
    """A whole number of at least 0 as an int, numpy's integers included."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise OptionError(name, value, allowed)
    return int(value)


def named(name: str, value: object) -> Mapping[str, Any]:
    """A read-only copy of a mapping from names to values; `OptionError` where it is none."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(name, value, "a mapping from names to values")
    return MappingProxyType(dict(value))


@dataclass(frozen=True, slots=True)
class Search:
    """How the set is searched.

    method: "auto" (best_first for large sets where the rule has a bound, else exhaustive), "exhaustive", "best_first".
    k: how many of the best must be certain. stop: "best" (the first k are proved), "mass" (the finished choices hold
    `mass` of the set's probability), "all" (everything scored). budget_nodes: most trie nodes to evaluate; when it is used
    up the answer is the best so far with `proved=False` (rows of the masked-greedy path come on top). width: nodes per model call of best_first.
    on_progress: called with (nodes evaluated, nodes in all) after each model call, from the model's thread.
    """

    method: str = "auto"
    k: int = 1
    stop: str = "best"
    mass: float = 0.99
    budget_nodes: int | None = None
    width: int = 16
    on_progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        one_of("method", self.method, ("auto", "exhaustive", "best_first"))
        one_of("stop", self.stop, ("best", "mass", "all"))
        at_least("k", self.k, 1, optional=False)
        at_least("budget_nodes", self.budget_nodes, 1)
        at_least("width", self.width, 1, optional=False)
        probability("mass", self.mass)
        if self.on_progress is not None and not callable(self.on_progress):
            raise OptionError("on_progress", self.on_progress, "a callable of two numbers, or None")


@dataclass(frozen=True, slots=True)
class Prompting:
    """How prompt and choices become tokens.

    boundary: "heal", "split" or "harness" (`boundary`). delimiter: text put before every choice. truncate: "error", or
    "left" to drop the oldest prompt tokens. system: a system message before the prompt (the model's chat template is used).
    assistant_prefix: text the assistant turn begins with. template_args: passed to the chat template
    (`{"enable_thinking": False}`), by name; the mapping is copied, and left out of the hash, for its values may be lists.
    parse_special: read control tokens such as `<|im_end|>` in a plain-text prompt as such (never in choices).
    """

    boundary: str = "heal"
    delimiter: str = ""
    truncate: str = "error"
    system: str | None = None
    assistant_prefix: str = ""
    template_args: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    parse_special: bool = False

    def __post_init__(self) -> None:
        one_of("boundary", self.boundary, ("heal", "split", "harness"))
        one_of("truncate", self.truncate, ("error", "left"))
        text("delimiter", self.delimiter)
        text("system", self.system, optional=True)
        text("assistant_prefix", self.assistant_prefix)
        if type(self.parse_special) is not bool:
            raise OptionError("parse_special", self.parse_special, "True or False")
        object.__setattr__(self, "template_args", named("template_args", self.template_args))

    def __reduce__(self) -> tuple[type[Prompting], tuple[object, ...]]:
        """Copied and pickled by its fields, since a `MappingProxyType` cannot be."""
        own = (self.boundary, self.delimiter, self.truncate, self.system, self.assistant_prefix)
        return Prompting, (*own, dict(self.template_args), self.parse_special)


DEFAULT_SEARCH = Search()
DEFAULT_PROMPTING = Prompting()

RULES = ("joint", "token_mean", "char_mean", "byte_mean", "pmi", "calibrated", "batch")
TERMINATORS = ("auto", "none", "eog", "text", "unless-continued")


@dataclass(frozen=True, slots=True)
class Rule:
    """From token log-probabilities to a score. A plain name such as "joint" stands for `Rule("joint")`.

    joint: sum of log-probabilities. token_mean, char_mean, byte_mean: divided by path tokens, characters, UTF-8 bytes.
    pmi: minus the joint of the same tokens after `premise` (None: the BOS token, EOS where there is none).
    calibrated: minus the mean joint of the same tokens after each of `content_free`, a list or tuple of prompts.
    batch: minus the mean joint of the choice over all prompts of one `select_many`.
    """

    name: str = "joint"
    premise: str | None = None
    content_free: Sequence[str] = ()

    def __post_init__(self) -> None:
        one_of("rule", self.name, RULES)
        text("premise", self.premise, optional=True)
        # A tuple: a list would change under the record, and has no hash.
        object.__setattr__(self, "content_free", texts("content_free", self.content_free))
        if self.name == "calibrated" and not self.content_free:
            raise OptionError(
                "content_free", self.content_free, "at least one content-free prompt for rule 'calibrated'"
            )
        if self.premise is not None and self.name != "pmi":
            raise OptionError("premise", self.premise, "None unless the rule is 'pmi'")
        if self.content_free and self.name != "calibrated":
            raise OptionError("content_free", self.content_free, "nothing unless the rule is 'calibrated'")


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
        token = _natural("logit_bias", key, "token ids as keys, whole numbers of at least 0")
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
        if type(self.ignore_eog) is not bool:
            raise OptionError("ignore_eog", self.ignore_eog, "True or False")
        if self.when is not None and not callable(self.when):
            raise OptionError("when", self.when, "a callable of the text so far, or None")


DEFAULT_SAMPLING = Sampling()
DEFAULT_STOPPING = Stopping()
