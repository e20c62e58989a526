"""List the tags and their arguments for parser, checks, docs and error messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


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
_HIDDEN = {"hidden": "true: decided, but no part of the page nor of what follows"}

TAGS: Mapping[str, Tag] = MappingProxyType(
    {
        tag.kind: tag
        for tag in (
            Tag(
                "select",
                {
                    **_WHAT,
                    "rule": "the name of a scoring rule",
                    "terminator": "what ends a choice",
                    "prior": "weights of the options: a list, or a mapping by text",
                    "k": "how many of the best must be certain",
                    "temperature": "draw one instead, by probability ** (1 / temperature)",
                    "seed": "of that draw",
                    "logprobs": "a name for the log-probabilities by text",
                    **_HIDDEN,
                },
                block=True,
            ),
            Tag(
                "gen",
                {
                    "max_tokens": "most tokens",
                    "stop": "a text that ends it, or a list of them",
                    "regex": _WHAT["regex"],
                    "grammar": _WHAT["grammar"],
                    "json": "true: the contents of a JSON string, up to its closing quote",
                    "temperature": "0: the most probable token (the default)",
                    "top_k": "so many most probable tokens",
                    "top_p": "the most probable that hold this together",
                    "min_p": "those of at least this share of the most probable one's probability",
                    "seed": "of the draws",
                    "n": "how many texts; the value is the list of them, the page has the first",
                    **_HIDDEN,
                },
            ),
            Tag(
                "beam",
                {
                    **_WHAT,
                    "width": "how many paths",
                    "k": "how many texts are kept in the record",
                    "max_tokens": "most tokens",
                    "length_penalty": "the joint is divided by length ** this",
                    "terminator": "what ends a text",
                    **_HIDDEN,
                },
            ),
            Tag(
                "geneach",
                {
                    "num": "how many items",
                    "min": "at least so many",
                    "max": "at most so many",
                    "join": "text between two",
                    "stop": "text after the last item: after `min` items the model decides whether it comes",
                    **_HIDDEN,
                },
                block=True,
            ),
            Tag("each", {"join": "text between two"}, block=True),
            Tag("if", block=True),
            Tag("unless", block=True),
            Tag("set"),
            Tag("include"),
            Tag("block", _HIDDEN, block=True),
            Tag(
                "joint",
                {"k": "how many of the best assignments must be certain", "budget": "most nodes to evaluate"},
                block=True,
            ),
            Tag("role", block=True),
            Tag("system", block=True),
            Tag("user", block=True),
            Tag("assistant", block=True),
            Tag("raw", block=True),
        )
    }
)
MIDDLE = ("or", "else", "elif")
"""Tags that divide a block; they may not appear elsewhere."""
RESERVED = frozenset({*TAGS, *MIDDLE, "this", "and", "not", "in", "as", "true", "false", "none"})
"""Words that cannot name a value, slot or variable.

`this` is the item of a loop.
"""
