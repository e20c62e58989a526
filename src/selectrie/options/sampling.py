"""Options of sampling, stopping and beams."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef, PythonOnly, words
from selectrie.options.arguments import named_fields
from selectrie.options.checks import (
    MAX_NUMBER,
    Bounds,
    Names,
    ReadOnlyDict,
    callback,
    check_options,
    natural,
    option,
    texts,
    token_ids,
)
from selectrie.options.keywords import GrammarTerminator
from selectrie.options.selection import GRAMMAR_TERMINATORS

_ALL = Bounds(0, 1, "a number from 0 to 1 (1 = all tokens)")
_PENALTY = Bounds(-math.inf, remedy="a finite number (0 = no penalty)")


@named_fields
@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Options for drawing a token, the steps of a sampler chain.

    The attributes are listed in the order of the steps, which is that of llama.cpp's
    default chain. Each filter leaves at least one token.

    Attributes:
        logit_bias: Added to the logits of these tokens; -inf forbids one. A token is
            given by its id, or as the text that it alone encodes. A read-only copy is
            made; it is not part of the hash.
        repeat_penalty: Divides the positive logits of recent tokens and multiplies the
            others (1 = off).
        frequency_penalty: Subtracted from a recent token's logit for each time it
            occurs (0 = off).
        presence_penalty: Subtracted from a recent token's logit once (0 = off).
        penalty_last_n: Number of tokens looked back for the three penalties, prompt
            included (-1 = all, 0 = none).
        top_k: Number of most probable tokens kept (0 or -1 = all).
        typical_p: Keep the tokens nearest the entropy that together hold more than this
            (1 = all).
        top_p: Keep the most probable tokens that together hold this (1 = all).
        min_p: Keep tokens with at least this share of the largest probability (0 =
            all).
        temperature: Divides the logits that are left; 0 always takes the most probable
            of them. Of equal ones it is the one with the smaller id.
    """

    GREEDY: ClassVar[SamplingParams]
    """Options that always take the most probable token."""
    UNCHANGED: ClassVar[SamplingParams]
    """Options that draw from the model's own distribution."""
    FILTERS: ClassVar[tuple[str, ...]] = ("top_k", "typical_p", "top_p", "min_p")
    """Names of the options that leave tokens out, in their order.

    All but `typical_p` keep the most probable token: at temperature 0 they do nothing.
    """

    temperature: float = option(0.8, Bounds(0, remedy="a number of at least 0 (0 = the most probable token)"))
    top_k: int = option(40, Bounds(-1))
    top_p: float = option(0.95, _ALL)
    min_p: float = option(0.05, Bounds(0, 1, "a number from 0 to 1 (0 = all tokens)"))
    typical_p: float = option(1.0, _ALL)
    repeat_penalty: float = option(1.0, Bounds(math.ulp(0.0), remedy="a number above 0 (1 = no penalty)"))
    presence_penalty: float = option(0.0, _PENALTY)
    frequency_penalty: float = option(0.0, _PENALTY)
    penalty_last_n: int = option(64, Bounds(-1))
    logit_bias: Mapping[Any, float] = field(default_factory=ReadOnlyDict, hash=False)

    def __post_init__(self) -> None:
        check_options(self)
        object.__setattr__(self, "top_k", max(0, self.top_k))
        object.__setattr__(self, "logit_bias", _copy_biases(self.logit_bias))

    @property
    def penalises(self) -> bool:
        """Return whether earlier tokens change what is drawn next."""
        neutral = self.repeat_penalty == 1 and self.presence_penalty == 0 and self.frequency_penalty == 0
        return self.penalty_last_n != 0 and not neutral


def _copy_biases(value: object) -> Mapping[int | str, float]:
    """Return a read-only copy of a mapping from tokens to biases.

    Raises `OptionError` for anything else.
    """
    if not isinstance(value, Mapping):
        raise OptionError("logit_bias", value, "a mapping from token ids to numbers")
    biases: dict[int | str, float] = {}
    for key, bias in value.items():
        if isinstance(key, str) and key.removeprefix("-").isdigit():
            both = "an int for the id of a token, since digits may be meant as an id or as a text"
            raise OptionError("logit_bias", key, words(both))
        token: int | str = key if isinstance(key, str) else natural("logit_bias", key, _BIAS_KEYS)
        is_number = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not is_number or not (bias == -math.inf or -MAX_NUMBER <= bias <= MAX_NUMBER):
            raise OptionError(f"logit_bias[{token}]", bias, "a finite number, or -inf to forbid the token")
        biases[token] = bias
    return ReadOnlyDict(biases)


_BIAS_KEYS = "token ids as keys, whole numbers of at least 0, or texts of one token"
SamplingParams.GREEDY = SamplingParams(temperature=0.0)
SamplingParams.UNCHANGED = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


@named_fields
@dataclass(frozen=True, slots=True)
class StopParams:
    """Conditions that end a sequence.

    Attributes:
        max_tokens: Maximum number of tokens drawn.
        stop: Texts that end the sequence where they first occur in what was generated,
            compared byte by byte. A single str is one text.
        stop_tokens: Token ids that end the sequence.
        ignore_eog: Never draw end-of-generation tokens, so that none ends the sequence.
        when: Function called from the model's thread after each token with the text so
            far. A true result ends the sequence.
        min_tokens: Number of first tokens that do not end the sequence. Among them are
            no end-of-generation tokens and no `stop_tokens`, and texts of `stop` that
            they complete do not count.
    """

    max_tokens: int = option(128, Bounds(1))
    stop: Sequence[str] = ()
    stop_tokens: Sequence[int] = ()
    ignore_eog: bool = False
    when: Callable[[str], bool] | None = None
    min_tokens: int = option(0, Bounds(0))

    def __post_init__(self) -> None:
        if type(self.max_tokens) is int and self.max_tokens in (0, -1):
            raise OptionError("max_tokens", self.max_tokens, _NO_LIMIT)
        check_options(self)
        if self.min_tokens > self.max_tokens:
            raise OptionError("min_tokens", self.min_tokens, words("at most `max_tokens={}`", self.max_tokens))
        several = "a text, or a list or tuple of them; leave it out for none"
        stops = (self.stop,) if isinstance(self.stop, str) else texts("stop", self.stop, allowed=several)
        for index, stop in enumerate(stops):
            if not stop:
                raise OptionError(f"stop[{index}]", stop, words("a text that is not empty; leave `stop` out for none"))
            if any("\ud800" <= c <= "\udfff" for c in stop):
                raise OptionError(f"stop[{index}]", stop, "a text without lone surrogates")
        object.__setattr__(self, "stop", stops)
        object.__setattr__(self, "stop_tokens", token_ids("stop_tokens", self.stop_tokens))
        callback("when", self.when, "the text so far")


_NO_LIMIT = words(
    "a whole number of at least 1{}",
    PythonOnly(
        "; elsewhere it means no token, for which there is `prompt_logprobs`, or no limit, which is the context's size"
    ),
)
DEFAULT_SAMPLING = SamplingParams()
DEFAULT_STOPPING = StopParams()

BEAM_TERMINATORS = ("auto", *GRAMMAR_TERMINATORS)
MAX_PENALTY = 16
"""Largest exponent of the length.

The largest `max_tokens`, 2^63, to this power is still a float.
"""


@named_fields
@dataclass(frozen=True, slots=True)
class BeamSearchParams:
    """Options of a beam search.

    Attributes:
        width: Number of unfinished texts kept at every step. Finished texts do not
            count.
        n: Maximum number of texts returned, best first.
        max_tokens: Maximum number of tokens of a path.
        length_penalty: Exponent of the number of tokens, by which a log-probability is
            divided for the score; 0 is the joint itself. At most 16.
        diversity: Nats subtracted from a token's rank score in a group for each time
            that earlier groups chose it at the same step. This is the Hamming diversity
            of Vijayakumar et al. (2016).
        groups: Number of groups of equal width into which the beam is divided.
        canonical_only: Keep only the tokens that the tokenizer itself makes of a text;
            other spellings take no place. False allows any tokens.
        merge_equal_text: Add up the finished paths that spell one text. Otherwise the
            best of them represents it.
        exact: Find the n best for certain, by best-first search. Available for the
            joint only.
        budget_nodes: Maximum number of nodes evaluated; then the best so far are
            returned. None means as many as needed or, with `exact`, at most
            `GRAMMAR_NODES`.
        expand: Called from the model's thread for every kept path with a `PathView` and
            the most probable tokens that may follow, as `TokenScore`s, best first.
            Returns the ids to continue with, which the grammar must allow. With
            `canonical_only` they may have to be the tokenizer's own. None means all.
        terminator: Event that ends a text: "none", "eog" (the generation ends),
            "unless-continued" (no token follows that the grammar allows), or "auto". If
            a text of the grammar may continue to another one, "auto" is "eog" in a chat
            and "unless-continued" after other prompts; else it is "none".
        incomplete: Always return the paths that `max_tokens` or the budget broke off.
            Otherwise they are returned only if nothing was finished.
        on_progress: Called from the model's thread after each model call with (nodes
            evaluated, 0), since their number in all is not known.
        on_found: Called from the model's thread with (text, log-probability) when a
            text is finished that is better than those before it. With several groups
            or equal texts added up, the result may have other texts.
    """

    width: int = option(8, Bounds(1))
    n: int = option(1, Bounds(1))
    max_tokens: int = option(128, Bounds(1))
    length_penalty: float = option(
        0.0, Bounds(0, MAX_PENALTY, f"a number from 0 to {MAX_PENALTY} (0 = the joint itself)")
    )
    diversity: float = option(0.0, Bounds(0, remedy="nats, at least 0 (0 = groups are independent)"))
    groups: int = option(1, Bounds(1))
    canonical_only: bool = True
    merge_equal_text: bool = True
    exact: bool = False
    budget_nodes: int | None = option(None, Bounds(1, optional=True))
    expand: Callable[[Any, Any], Sequence[int]] | None = None
    terminator: GrammarTerminator = option("auto", Names(BEAM_TERMINATORS))
    incomplete: bool = False
    on_progress: Callable[[int, int], None] | None = None
    on_found: Callable[[str, float], None] | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.width % self.groups:
            raise OptionError(
                "groups", self.groups, words("a divisor of `width={}`: groups are of equal width", self.width)
            )
        if self.diversity and self.groups == 1:
            remedy = words("only groups can differ; increase `groups`, or leave out `diversity`")
            raise IncompatibleOptionsError("diversity", OptionRef("groups", 1), remedy)
        callback("expand", self.expand, "a path and its tokens")
        callback("on_progress", self.on_progress, "two numbers")
        callback("on_found", self.on_found, "a text and a number")
        if self.exact:
            self._check_exact()

    def _check_exact(self) -> None:
        """Raise an error for an option that an exact search does not support."""
        for name, neutral in (("length_penalty", 0.0), ("groups", 1), ("expand", None)):
            if getattr(self, name) != neutral:
                remedy = "an exact search ranks by the joint; leave out one of them"
                raise IncompatibleOptionsError(name, OptionRef("exact", value=True), remedy)


DEFAULT_BEAM = BeamSearchParams()
