"""The table of tags and arguments, for the parser, checks, docs and error messages."""

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
_HIDDEN = {"hidden": "true: decide it, but leave it out of the page and of what follows"}

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
                    "prior": "weights of the options: a list, or a mapping from texts to weights",
                    "k": "how many of the best options must be certain",
                    "temperature": "draw an option instead, by probability ** (1 / temperature)",
                    "seed": "seed of that draw",
                    "logprobs": "a name for the mapping from texts to log-probabilities",
                    **_HIDDEN,
                },
                block=True,
            ),
            Tag(
                "gen",
                {
                    "max_tokens": "maximum number of tokens",
                    "stop": "a text that ends the slot, or a list of them",
                    "regex": _WHAT["regex"],
                    "grammar": _WHAT["grammar"],
                    "json": "true: generate the contents of a JSON string, up to its closing quote",
                    "temperature": "0 takes the most probable token (the default)",
                    "top_k": "number of most probable tokens kept",
                    "top_p": "keep the most probable tokens that together hold this probability",
                    "min_p": "keep tokens with at least this share of the largest probability",
                    "seed": "seed of the draws",
                    "n": "number of texts; the value is the list of them, and the page has the first",
                    **_HIDDEN,
                },
            ),
            Tag(
                "beam",
                {
                    **_WHAT,
                    "width": "number of paths kept at each step",
                    "k": "number of texts kept in the record",
                    "max_tokens": "maximum number of tokens",
                    "length_penalty": "exponent of the length by which the log-probability is divided",
                    "terminator": "what ends a text",
                    **_HIDDEN,
                },
            ),
            Tag(
                "geneach",
                {
                    "num": "number of items",
                    "min": "minimum number of items",
                    "max": "maximum number of items",
                    "join": "text between two items",
                    "stop": "text after the last item; from `min` items on, the model decides whether it comes next",
                    **_HIDDEN,
                },
                block=True,
            ),
            Tag("each", {"join": "text between two items"}, block=True),
            Tag("if", block=True),
            Tag("unless", block=True),
            Tag("set"),
            Tag("include"),
            Tag("block", _HIDDEN, block=True),
            Tag(
                "joint",
                {
                    "k": "how many of the best assignments must be certain",
                    "budget": "maximum number of nodes to evaluate",
                },
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
