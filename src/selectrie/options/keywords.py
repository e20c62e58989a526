"""Keywords of calls in place of fields of their records of options.

A record declares an option: its default, check and help. The classes here name the
fields that a call takes as keywords too, and their types. `options.arguments` merges
the keywords into the records before the call, and passes those of no record on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

RuleName: TypeAlias = Literal["joint", "token_mean", "char_mean", "byte_mean", "pmi", "calibrated", "batch"]
GrammarTerminator: TypeAlias = Literal["auto", "none", "eog", "unless-continued"]
Terminator: TypeAlias = GrammarTerminator | Literal["text"]
Tokenizations: TypeAlias = Literal["canonical", "all"]
SpellingEvent: TypeAlias = Literal["auto", "ends", "begins"]
SearchMethod: TypeAlias = Literal["auto", "exhaustive", "best_first"]
SearchStop: TypeAlias = Literal["best", "mass", "all"]


class ChatKeywords(TypedDict, total=False):
    """Keywords of a call about one prompt.

    `user` is the message of a user, and `messages` a chat; each takes the place of the
    prompt. The others are fields of records.
    """

    user: str | None
    messages: Sequence[Mapping[str, object]] | None
    system: str | None


class PromptKeywords(ChatKeywords, total=False):
    """Keywords of a call about one prompt and what follows it."""

    delimiter: str | None


class RankKeywords(PromptKeywords, total=False):
    """Keywords of `Engine.rank`."""

    k: int | None


class SampleKeywords(PromptKeywords, total=False):
    """Keywords of `Engine.sample`. `regex` takes the place of the grammar."""

    regex: str | None
    max_tokens: int | None


class SelectKeywords(RankKeywords, SampleKeywords, total=False):
    """Keywords of `Engine.select`."""


class BeamKeywords(SampleKeywords, total=False):
    """Keywords of `Engine.beam_search`."""

    width: int | None
    n: int | None


class GenerateKeywords(SampleKeywords, total=False):
    """Keywords of `Engine.generate` and `Engine.stream`."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    stop: str | Sequence[str] | None
    grammar: Any
    choices: Any


class ManyKeywords(TypedDict, total=False):
    """Keywords of a call about pairs of prompts and choices."""

    delimiter: str | None
    system: str | None
    k: int | None


class DecisionKeywords(TypedDict, total=False):
    """Keywords of `Engine.decide`, `Engine.classify` and the calls like them."""

    template: Any
    layout: str | None
    scoring: str | None
    rule: str | None
    calibration: Any
    prior: Mapping[Any, float] | Sequence[float] | None
    permutations: int | str | None
    top: int | None
    min_confidence: Any
    min_label_mass: float | None
    threshold: float | None
    list_options: bool | str | None
    time: str | None
    think: Any
    template_args: Mapping[str, Any] | None


class LabelKeywords(DecisionKeywords, total=False):
    """Keywords of `Engine.classify` and the calls like it."""

    none: str | None
    instructions: str | None
    cue: str | None
    examples: Any


class ExtractKeywords(TypedDict, total=False):
    """Keywords of `Engine.extract` and `Engine.extract_many`."""

    instructions: str | None
    rescore: bool | None


KEYWORDS: Mapping[str, type[Any]] = {
    one.__name__: one
    for one in (
        *(ChatKeywords, PromptKeywords, RankKeywords, SampleKeywords),
        *(SelectKeywords, BeamKeywords, GenerateKeywords, ManyKeywords),
        *(DecisionKeywords, LabelKeywords, ExtractKeywords),
    )
}
"""The classes by name."""


class Regex(str):
    """A regular expression that is given in place of a grammar."""

    __slots__ = ()
