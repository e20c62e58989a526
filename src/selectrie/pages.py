"""A page of text that grows while a model decides parts of it: what stands there, as fixed tokens and a last stretch of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from selectrie.boundary import PromptText
from selectrie.errors import PromptError
from selectrie.types import IntArray
from selectrie.vocabulary import Vocabulary, to_bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Text:
    """Text in pieces, the last one first, so that any earlier state of a page can be kept at no cost."""

    last: str = ""
    before: _Text | None = field(default=None, repr=False)

    def __str__(self) -> str:
        pieces: list[str] = []
        part: _Text | None = self
        while part is not None:
            pieces.append(part.last)
            part = part.before
        return "".join(reversed(pieces))


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A state of a page, to go back to."""

    tokens: IntArray
    rest: bytes
    text: _Text


class GrowingPage:
    """One page under way over a vocabulary. No model call in it."""

    def __init__(
        self, vocabulary: Vocabulary, *, template_args: Mapping[str, Any] | None = None, parse_special: bool = False
    ) -> None:
        """template_args: for the model's chat template. parse_special: control tokens are recognised in literals."""
        self._vocabulary, self._parse_special = vocabulary, parse_special
        self._template_args = dict(template_args or {})
        start = () if vocabulary.bos is None else (vocabulary.bos,)
        self._at = Mark(np.array(start, dtype=np.int32), b"", _Text())

    @property
    def text(self) -> str:
        """What stands on the page."""
        return str(self._at.text)

    @property
    def prompt(self) -> PromptText:
        """What comes next is conditioned on this.

        Raises `PromptError` where nothing stands on the page yet and the model puts no BOS token there.
        """
        if not len(self._at.tokens) and not self._at.rest:
            raise PromptError(
                "nothing stands before the first slot of the page, and this model puts no BOS token there, so nothing "
                "predicts the first token; begin the page with text"
            )
        return PromptText(self._at.tokens, self._at.rest)

    def add(self, text: str, *, literal: bool = False) -> None:
        """Write text; it is never read as control tokens unless it is a literal and the page has `parse_special`."""
        has_control = literal and self._parse_special
        tokens, rest = self._vocabulary.encode_spans(
            [(self._at.rest, False), (to_bytes(text, "text of the page"), has_control)]
        )
        if len(tokens) and len(self._at.tokens) == 1 and tokens[0] == self._vocabulary.bos and not self._at.text.last:
            tokens = tokens[1:]
        self._at = Mark(np.concatenate([self._at.tokens, tokens]), rest, _Text(text, self._at.text))

    def mark(self) -> Mark:
        """The page as it stands now."""
        return self._at

    def back_to(self, mark: Mark) -> None:
        """Let the page be what it was."""
        self._at = mark
