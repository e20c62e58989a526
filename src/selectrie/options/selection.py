"""How a set of texts is searched, how prompt and choices become tokens, and the rule that scores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from selectrie.errors import OptionError
from selectrie.options.checks import at_least, callback, flag, named, one_of, probability, text, texts

GRAMMAR_NODES = 2_000
"""Nodes evaluated by a search of a grammar for which no budget is given."""


@dataclass(frozen=True, slots=True)
class Search:
    """How the set is searched.

    method: "auto" (best_first for large sets where the rule has a bound, else exhaustive), "exhaustive", "best_first".
    k: how many of the best must be certain. stop: "best" (the first k are proved), "mass" (the finished choices hold
    `mass` of the set's probability), "all" (everything scored). budget_nodes: most trie nodes to evaluate; when it is used
    up the answer is the best so far with `proved=False` (rows of the masked-greedy path come on top). width: nodes per model call of best_first.
    on_progress: called with (nodes evaluated, nodes in all; 0 where nobody knows) after each model call, from the model's thread;
    of `select_many` with (requests evaluated, requests), once for each, from the caller's.

    Of a grammar that is searched, for its texts cannot be listed: max_tokens: most tokens of a text. canonical_only: a text
    counts with the tokenizer's own encoding alone, so that the best *text* is proved; else every token path counts.
    Without a budget such a search takes at most `GRAMMAR_NODES` nodes (`sample`: `max_tokens` more for each draw).
    on_found: called with (text, log-probability) when a better one is found, from the model's thread.
    """

    method: str = "auto"
    k: int = 1
    stop: str = "best"
    mass: float = 0.99
    budget_nodes: int | None = None
    width: int = 16
    on_progress: Callable[[int, int], None] | None = None
    max_tokens: int = 128
    canonical_only: bool = True
    on_found: Callable[[str, float], None] | None = None

    def __post_init__(self) -> None:
        one_of("method", self.method, ("auto", "exhaustive", "best_first"))
        one_of("stop", self.stop, ("best", "mass", "all"))
        at_least("k", self.k, 1, optional=False)
        at_least("budget_nodes", self.budget_nodes, 1)
        at_least("width", self.width, 1, optional=False)
        probability("mass", self.mass)
        callback("on_progress", self.on_progress, "two numbers")
        at_least("max_tokens", self.max_tokens, 1, optional=False)
        flag("canonical_only", self.canonical_only)
        callback("on_found", self.on_found, "a text and a number")


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
        flag("parse_special", self.parse_special)
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
