"""Options of a request, as frozen records: what a dozen keyword arguments would be otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from selectrie.errors import OptionError


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise `OptionError` unless value is one of those allowed."""
    if value not in allowed:
        raise OptionError(name, value, "one of " + ", ".join(repr(a) for a in allowed))


def at_least(name: str, value: int | None, least: int) -> None:
    """Raise `OptionError` unless value is None or an integer not below `least`."""
    if value is not None and (type(value) is not int or value < least):
        raise OptionError(name, value, f"a whole number of at least {least}")


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
        at_least("k", self.k, 1)
        at_least("budget_nodes", self.budget_nodes, 1)
        at_least("width", self.width, 1)
        if not 0 < self.mass <= 1:
            raise OptionError("mass", self.mass, "a probability in (0, 1]")


@dataclass(frozen=True, slots=True)
class Prompting:
    """How prompt and choices become tokens.

    boundary: "heal", "split" or "harness" (`boundary`). delimiter: text put before every choice. truncate: "error", or
    "left" to drop the oldest prompt tokens. system: a system message before the prompt (the model's chat template is used).
    assistant_prefix: text the assistant turn begins with. template_args: passed to the chat template (`enable_thinking=False`).
    parse_special: read control tokens such as `<|im_end|>` in a plain-text prompt as such (never in choices).
    """

    boundary: str = "heal"
    delimiter: str = ""
    truncate: str = "error"
    system: str | None = None
    assistant_prefix: str = ""
    template_args: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    parse_special: bool = False

    def __post_init__(self) -> None:
        one_of("boundary", self.boundary, ("heal", "split", "harness"))
        one_of("truncate", self.truncate, ("error", "left"))


DEFAULT_SEARCH = Search()
DEFAULT_PROMPTING = Prompting()

RULES = ("joint", "token_mean", "char_mean", "byte_mean", "pmi", "calibrated", "batch")
TERMINATORS = ("auto", "none", "eog", "text", "unless-continued")


@dataclass(frozen=True, slots=True)
class Rule:
    """From token log-probabilities to a score. A plain name such as "joint" stands for `Rule("joint")`.

    joint: sum of log-probabilities. token_mean, char_mean, byte_mean: divided by path tokens, characters, UTF-8 bytes.
    pmi: minus the joint of the same tokens after `premise` (None: the BOS token, EOS where there is none).
    calibrated: minus the mean joint of the same tokens after each of `content_free`.
    batch: minus the mean joint of the choice over all prompts of one `select_many`.
    """

    name: str = "joint"
    premise: str | None = None
    content_free: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        one_of("rule", self.name, RULES)
        if self.name == "calibrated" and not self.content_free:
            raise OptionError(
                "content_free", self.content_free, "at least one content-free prompt for rule 'calibrated'"
            )
        if self.premise is not None and self.name != "pmi":
            raise OptionError("premise", self.premise, "None unless the rule is 'pmi'")
        if self.content_free and self.name != "calibrated":
            raise OptionError("content_free", self.content_free, "nothing unless the rule is 'calibrated'")
