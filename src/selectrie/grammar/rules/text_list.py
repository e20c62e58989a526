"""Grammars that are lists of texts, which need no compilation."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, final

from selectrie.core.vocabulary import to_bytes
from selectrie.grammar.rules.expressions import Alternatives, RuleSet, Text


@final
class TextList:
    """A grammar of a list of distinct texts, of which there is at least one.

    The texts are numbered as choices in this order. Other forms of the list are
    computed on first use and kept. The caller makes sure that no text contains a lone
    surrogate.
    """

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts

    def __reduce__(self) -> tuple[Any, ...]:
        return TextList, (self.texts,)

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        """Return the texts in UTF-8, in ascending order."""
        return tuple(sorted(to_bytes(text, "text") for text in self.texts))

    @cached_property
    def expanded(self) -> tuple[str, ...]:
        """Return the texts, shortest first, texts of equal length by code points."""
        return tuple(sorted(self.texts, key=lambda text: (len(text), text)))

    @cached_property
    def is_prefix_free(self) -> bool:
        """Return whether no text is a prefix of another.

        In the sorted list, a text that is a prefix of another comes right before such a
        text.
        """
        return not any(after.startswith(before) for before, after in pairwise(self.encoded))

    @cached_property
    def rules(self) -> RuleSet:
        """Return the list as one rule."""
        options = tuple(Text(to_bytes(text, "text")) for text in self.texts)
        whole = options[0] if len(options) == 1 else Alternatives(options)
        return RuleSet(MappingProxyType({"root": whole}))

    def followed_by(self, text: str) -> TextList:
        """Return the list with `text` appended to each of its texts."""
        return TextList(tuple(one + text for one in self.texts))
