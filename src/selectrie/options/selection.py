"""Options of prompts, scoring, searches, spellings and pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef, words
from selectrie.options.arguments import named_fields
from selectrie.options.checks import (
    DEADLINE,
    Bounds,
    Names,
    ReadOnlyDict,
    callback,
    check_options,
    named,
    one_of,
    option,
    seed,
    text,
    texts,
)
from selectrie.options.keywords import SearchMethod, SearchStop, SpellingEvent, Tokenizations

GRAMMAR_NODES = 2_000
"""Nodes that a search of a grammar evaluates if no budget is given."""


@named_fields
@dataclass(frozen=True, slots=True)
class SearchParams:
    """Options for searching a set of choices or the texts of a grammar.

    `max_tokens`, `canonical_only` and `on_found` apply only to a grammar whose texts
    cannot be listed, so that it has to be searched.

    Attributes:
        method: Search method: "exhaustive", "best_first", or "auto", which is
            "best_first" for large sets if the rule has a bound, else "exhaustive".
        k: Number of first places that must be certain.
        stop: Event that ends the search: "best" (the first k are proved), "mass" (the
            finished choices hold `mass` of the set's probability) or "all" (everything
            is scored).
        mass: Share of the set's probability that ends the search with stop "mass".
        budget_nodes: Maximum number of trie nodes to evaluate; then the answer is the
            best so far, with `proved=False`. Rows of the masked-greedy
            path are not counted. Without a budget, a search of a grammar takes at most
            `GRAMMAR_NODES` nodes (`sample`: `max_tokens` more for each draw).
        width: Number of nodes that "best_first" evaluates in each model call. A search
            of a grammar takes fewer if the next ones are much less probable.
        on_progress: Called from the model's thread after each model call with (nodes
            evaluated, nodes in all; 0 if not known). For `select_many` it is called
            from the caller's thread, once for each request, with (requests evaluated,
            requests).
        max_tokens: Maximum number of tokens of a text.
        canonical_only: Count a text only with the tokenizer's own encoding, so that the
            best *text* is proved. Otherwise every token path counts, and a text is
            ranked by its best one.
        on_found: Called from the model's thread with (text, log-probability) when a
            better text is found.
    """

    method: SearchMethod = option("auto", Names(("auto", "exhaustive", "best_first")))
    k: int = option(1, Bounds(1))
    stop: SearchStop = option("best", Names(("best", "mass", "all")))
    mass: float = option(0.99, Bounds(math.ulp(0.0), 1, "a probability in (0, 1]"))
    budget_nodes: int | None = option(None, Bounds(1, optional=True))
    width: int = option(16, Bounds(1))
    on_progress: Callable[[int, int], None] | None = None
    max_tokens: int = option(128, Bounds(1))
    canonical_only: bool = True
    on_found: Callable[[str, float], None] | None = None

    def __post_init__(self) -> None:
        check_options(self)
        callback("on_progress", self.on_progress, "two numbers")
        callback("on_found", self.on_found, "a text and a number")


@named_fields
@dataclass(frozen=True, slots=True)
class PromptParams:
    """Options for turning a prompt and choices into tokens.

    Attributes:
        boundary: Method by which prompt and choices are joined: "heal", "split" or
            "harness".
        delimiter: Text added before every choice.
        truncate: Treatment of a prompt that is too long: "error", or "left" to drop its
            oldest tokens.
        system: A system message before the prompt; the model's chat template is used.
        assistant_prefix: Text with which the assistant turn begins.
        template_args: Arguments passed by name to the chat template
            (`{"enable_thinking": False}`). The mapping is copied and is not part of the
            hash, because its values may be lists.
        parse_special: Recognise control tokens such as `<|im_end|>` in a plain-text
            prompt; never in choices. The unknown token, `<unk>`, is none of them: its
            name is read as text, and only its id means it.
        add_bos: Put BOS before a prompt, if the model adds one and the prompt does not
            begin with it. With False nothing is put before a prompt: ids are evaluated
            as they are given, and so are the tokens of a text or chat.
    """

    boundary: str = option("heal", Names(("heal", "split", "harness")))
    delimiter: str = ""
    truncate: str = option("error", Names(("error", "left")))
    system: str | None = None
    assistant_prefix: str = ""
    template_args: Mapping[str, Any] = field(default_factory=ReadOnlyDict, hash=False)
    parse_special: bool = False
    add_bos: bool = True

    def __post_init__(self) -> None:
        check_options(self)
        text("delimiter", self.delimiter)
        text("system", self.system, optional=True)
        text("assistant_prefix", self.assistant_prefix)
        object.__setattr__(self, "template_args", named("template_args", self.template_args))


DEFAULT_SEARCH = SearchParams()
DEFAULT_PROMPTING = PromptParams()

MEAN_RULES = ("token_mean", "char_mean", "byte_mean")
"""Rules that divide the joint by a length."""
RULES_OF_ONE_PROMPT = ("joint", *MEAN_RULES, "pmi", "calibrated")
RULES = (*RULES_OF_ONE_PROMPT, "batch")
BASELINE_RULES = ("pmi", "calibrated", "batch")
"""Rules that subtract a baseline, which is a second evaluation."""
TERMINATOR_MEANINGS = {
    "none": "the choice itself, whatever follows it",
    "eog": "the end of the turn",
    "text": "what follows on the page",
    "unless-continued": "the text does not go on to a longer choice",
}
"""The terminators, which are events that end a text, and their meanings on a page."""
TERMINATORS = ("auto", *TERMINATOR_MEANINGS)
GRAMMAR_TERMINATORS = tuple(name for name in TERMINATOR_MEANINGS if name != "text")
"""Terminators for texts of a grammar. A text that follows is a part of the grammar."""


@dataclass(frozen=True, slots=True)
class ScoringRule:
    """The rule that turns token log-probabilities into a score.

    Where a rule is expected, "joint" stands for `ScoringRule("joint")`.

    Names of rules:

    - joint: sum of log-probabilities.
    - token_mean, char_mean, byte_mean: the joint divided by the number of path tokens,
      characters or UTF-8 bytes.
    - pmi: the joint, minus the joint of the same tokens after `premise`.
    - calibrated: the joint, minus its mean after each of `content_free`.
    - batch: the joint, minus its mean over all prompts of one `select_many`.

    Attributes:
        name: One of the names above.
        premise: For pmi; None means the BOS token, or EOS if there is none.
        content_free: For calibrated, a list or tuple of prompts.
    """

    name: str = "joint"
    premise: str | None = None
    content_free: Sequence[str] = ()

    def __post_init__(self) -> None:
        one_of("rule", self.name, RULES)
        text("premise", self.premise, optional=True)
        # A tuple, because a list could change later and cannot be hashed.
        object.__setattr__(self, "content_free", texts("content_free", self.content_free))
        if self.name == "calibrated" and not self.content_free:
            raise OptionError(
                "content_free", self.content_free, "at least one content-free prompt for rule 'calibrated'"
            )
        if self.premise is not None and self.name != "pmi":
            raise IncompatibleOptionsError("premise", OptionRef("rule", self.name), "only the rule 'pmi' has a premise")
        if self.content_free and self.name != "calibrated":
            remedy = "only the rule 'calibrated' has content-free prompts"
            raise IncompatibleOptionsError("content_free", OptionRef("rule", self.name), remedy)


TOKENIZATIONS = ("canonical", "all")
SPELLING_EVENTS = ("auto", "ends", "begins")
SPELLING_ROWS = 64
"""Rows that are read for each row of the canonical spelling if no budget is given."""
MAX_SPELLING_ROWS = 4096
"""Maximum number of rows that are read for the bounds of a text without a budget."""


@named_fields
@dataclass(frozen=True, slots=True)
class SpellingParams:
    """The spellings of a text that are counted, and how many rows that may take.

    Attributes:
        tokenizations: Paths counted: "canonical" for the tokenizer's own encoding, or
            "all" for every token sequence that spells the text.
        event: Event that counts with "all": "ends" (the tokens spell the text, and an
            end-of-generation token follows), "begins" (the bytes begin with the text)
            or "auto" ("ends" if the model has such a token).
        budget_nodes: Maximum number of rows to read for the bounds; by default 64 for
            each row of the canonical spelling, up to 4096. These are `SPELLING_ROWS`
            and `MAX_SPELLING_ROWS`. The canonical spelling is read in any case.
    """

    tokenizations: Tokenizations = option("canonical", Names(TOKENIZATIONS))
    event: SpellingEvent = option("auto", Names(SPELLING_EVENTS))
    budget_nodes: int | None = option(None, Bounds(1, optional=True))

    def __post_init__(self) -> None:
        check_options(self)
        for name, value, default in (("event", self.event, "auto"), ("budget_nodes", self.budget_nodes, None)):
            if self.tokenizations == "canonical" and value != default:
                remedy = words("only the sum over all spellings has it: set `tokenizations='all'`")
                raise IncompatibleOptionsError(name, OptionRef("tokenizations", "canonical"), remedy)


MAX_SEGMENTS = 2_000_000
"""Maximum number of segments that one page may pass.

Repeated ones count each time.
"""


@named_fields
@dataclass(frozen=True, slots=True)
class RenderParams:
    """Options for rendering a template.

    Attributes:
        seed: Seed of the page, from which the seed of each slot is derived. None takes
            one from the system for each page.
        max_tokens: Maximum number of tokens of a `gen` that does not set its own.
        template_args: Arguments passed by name to the model's chat template, for roles.
            The mapping is copied and is not part of the hash.
        parse_special: Recognise control tokens such as `<|im_end|>` in the template's
            own text; never in values.
        priority: Requests with a higher priority are served first.
        deadline_s: Seconds from now after which a page that is not finished raises
            `DeadlineError`.
        max_segments: Maximum number of segments (texts and tags) that the page passes.
            Those in loops count each time.
    """

    seed: int | None = None
    max_tokens: int = option(128, Bounds(1))
    template_args: Mapping[str, Any] = field(default_factory=ReadOnlyDict, hash=False)
    parse_special: bool = False
    priority: int = 0
    deadline_s: float | None = None
    max_segments: int = option(MAX_SEGMENTS, Bounds(1, MAX_SEGMENTS))

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", seed("seed", self.seed))
        check_options(self)
        object.__setattr__(self, "template_args", named("template_args", self.template_args))
        if type(self.priority) is not int:
            raise OptionError("priority", self.priority, "a whole number")
        if self.deadline_s is not None:
            DEADLINE.check("deadline_s", self.deadline_s)


DEFAULT_RENDERING = RenderParams()
