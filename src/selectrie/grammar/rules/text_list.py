"""A grammar that is a list of texts: nothing about it has to be compiled."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, final

from selectrie.core.vocabulary import to_bytes
from selectrie.grammar.rules.expressions import Alternatives, RuleSet, Text


@final
class TextList:
    """Exactly these texts, each once and at least one, in the order in which they are
    numbered as choices.

    Everything else is worked out when it is first asked for, and kept. The caller sees
    to it that no text has a lone surrogate.
    """

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts

    def __reduce__(self) -> tuple[Any, ...]:
        return TextList, (self.texts,)

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        """The texts in UTF-8, ascending."""
        return tuple(sorted(to_bytes(text, "text") for text in self.texts))

    @cached_property
    def expanded(self) -> tuple[str, ...]:
        """The texts, the shortest first, equally long ones by code points."""
        return tuple(sorted(self.texts, key=lambda text: (len(text), text)))

    @cached_property
    def is_prefix_free(self) -> bool:
        """Is no text the beginning of another? One that is stands right before such a
        one in the sorted list."""
        return not any(after.startswith(before) for before, after in pairwise(self.encoded))

    @cached_property
    def rules(self) -> RuleSet:
        """The list as one rule."""
        options = tuple(Text(to_bytes(text, "text")) for text in self.texts)
        whole = options[0] if len(options) == 1 else Alternatives(options)
        return RuleSet(MappingProxyType({"root": whole}))

    def followed_by(self, text: str) -> TextList:
        """Each with this text behind it."""
        return TextList(tuple(one + text for one in self.texts))
