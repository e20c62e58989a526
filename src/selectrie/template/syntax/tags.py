"""The tables of tags, arguments and dialects.

They are for the parser, checks, docs and error messages. The dialect "handlebars" is
that of guidance 0.0.x: tags `{{…}}`, helpers for comparisons, and guidance's names for
arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from selectrie.options import SamplingParams
from selectrie.options.checks import numbers_of


@dataclass(frozen=True, slots=True)
class Tag:
    """A kind of tag.

    Attributes:
        kind: Name of the tag.
        arguments: Description of each argument, by name.
        block: Whether it may have a body (`<<#kind>>…<</kind>>`).
    """

    kind: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    block: bool = False


_WHAT = {
    "options": "a list of texts, numbers, true/false, Enum members or (text, value) pairs",
    "grammar": "a Grammar, the file name of one in the search path, or the name of an installed one",
    "regex": "a regular expression",
}
_HIDDEN = {"hidden": "true: decide it, but leave it out of the page and of what follows"}

_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "select": {
        **_WHAT,
        "rule": "the name of a scoring rule",
        "terminator": "what ends a choice",
        "prior": "weights of the options: a list, or a mapping from texts to weights",
        "k": "how many of the best options must be certain",
        "temperature": "draw an option instead, by probability ** (1 / temperature)",
        "seed": "seed of that draw",
        "logprobs": "a name for the mapping from texts to log-probabilities",
        **_HIDDEN,
    },
    "gen": {
        "max_tokens": "maximum number of tokens",
        "stop": "a text that ends the slot, or a list of them",
        "regex": _WHAT["regex"],
        "grammar": _WHAT["grammar"],
        "json": "true: generate the contents of a JSON string, up to its closing quote",
        "temperature": "0 takes the most probable token (the default)",
        **{name: numbers_of(SamplingParams)[name].help for name in SamplingParams.FILTERS},
        "seed": "seed of the draws",
        "n": "number of texts; the value is the list of them, and the page has the first",
        **_HIDDEN,
    },
    "beam": {
        **_WHAT,
        "width": "number of paths kept at each step",
        "k": "number of texts kept in the record",
        "max_tokens": "maximum number of tokens",
        "length_penalty": "exponent of the length by which the log-probability is divided",
        "terminator": "what ends a text",
        **_HIDDEN,
    },
    "geneach": {
        "num": "number of items",
        "min": "minimum number of items",
        "max": "maximum number of items",
        "join": "text between two items",
        "stop": "text after the last item; from `min` items on, the model decides whether it comes next",
        **_HIDDEN,
    },
    "each": {"join": "text between two items"},
    "block": _HIDDEN,
    "joint": {
        "k": "how many of the best assignments must be certain",
        "budget": "maximum number of nodes to evaluate",
    },
}
_WITHOUT_BODY = frozenset({"gen", "beam", "set", "include"})
_KINDS = (
    *("select", "gen", "beam", "geneach", "each", "if", "unless", "set", "include", "block"),
    *("joint", "role", "system", "user", "assistant", "raw"),
)
TAGS: Mapping[str, Tag] = {
    kind: Tag(kind, _ARGUMENTS.get(kind, {}), block=kind not in _WITHOUT_BODY) for kind in _KINDS
}
MIDDLE = ("or", "else", "elif")
"""Tags that divide a block; they may not appear elsewhere."""
RESERVED = frozenset({*TAGS, *MIDDLE, "this", "and", "not", "in", "as", "true", "false", "none"})
"""Words that cannot name a value, slot or variable.

`this` is the item of a loop.
"""


NO_CALLS = "templates cannot call functions; pass the result as a value"
"""Advice for calls, which other languages have."""
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TemplateDialect:
    """A dialect of the template language.

    Attributes:
        name: Its name.
        opens: Opening delimiter, two equal characters.
        closes: Closing delimiter, two equal characters.
        partials: Whether `{{>file}}` includes a file.
        lenient: Whether a backslash in a string is kept if it begins no escape.
        helpers: Words that may come first inside parentheses, with the operators that
            they mean.
        aliases: Alternative names of arguments.
        commands: Commands of guidance programs that are not supported, with advice.
        arguments: Arguments of guidance programs that are not supported, with advice.
    """

    name: str
    opens: str
    closes: str
    partials: bool = False
    lenient: bool = False
    helpers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    aliases: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    commands: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    arguments: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    def tag(self, content: str) -> str:
        """Return `content` between the delimiters of a tag."""
        return f"{self.opens}{content}{self.closes}"

    @property
    def escaped(self) -> str:
        """Return advice on how to write an opening delimiter as text."""
        return f"write \\{self.opens} for the characters {self.opens}"


SELECTRIE = TemplateDialect("selectrie", "<<", ">>")


_LISTS = "collect values with geneach"

HANDLEBARS = TemplateDialect(
    "handlebars",
    "{{",
    "}}",
    partials=True,
    lenient=True,
    helpers={
        "equal": "==",
        "notequal": "!=",
        "greater": ">",
        "less": "<",
        "contains": "in",
        **{word: word for word in ("and", "or", "==", "!=", ">", ">=", "<", "<=")},
    },
    aliases={"pattern": "regex", "num_iterations": "num", "min_iterations": "min", "max_iterations": "max"},
    commands={
        "await": "a page is rendered in one pass; split the template in two, or pass the value",
        "parse": "include a template file instead",
        "break": "set num=, or stop= with min= and max=, on the geneach",
        "shell": NO_CALLS,
    },
    arguments={
        "list_append": _LISTS,
        "save_prompt": "the page contains the text before each slot",
        "save_stop_text": "the stop text is not part of the value; write it after the slot",
        "stop_regex": "use regex= to describe the whole text",
        "token_healing": "slots are always healed",
        "logprobs": "the record of the slot has them",
        "stream": "pages stream with llm.stream_render",
        "cache_seed": "use seed=",
        "filter": NO_CALLS,
        "parse": NO_CALLS,
        "parallel": "slots are decided one after the other",
        "unique": "use a grammar, or check the page afterwards",
        "function_call": NO_CALLS,
        "single_call": "items are generated one by one; leave it out",
    },
)
DIALECTS: Mapping[str, TemplateDialect] = {dialect.name: dialect for dialect in (SELECTRIE, HANDLEBARS)}
