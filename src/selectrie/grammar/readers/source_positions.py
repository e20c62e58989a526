"""Convert offsets in a grammar's text to the lines and columns that errors show."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.errors import GrammarError


def refused(text: str, place: int, reason: str) -> GrammarError:
    """Return the error for character `place` of a text.

    It has the line and the column, counted from 1, and the line itself.
    """
    place = min(place, len(text))
    start = text.rfind("\n", 0, place) + 1
    stop = text.find("\n", place)
    return GrammarError(
        reason,
        line=text.count("\n", 0, place) + 1,
        column=place - start + 1,
        excerpt=text[start : len(text) if stop < 0 else stop],
    )


@dataclass(frozen=True, slots=True)
class Source:
    """A grammar text and its name in messages, which is "" for the top-level text."""

    text: str
    name: str = ""

    def refused(self, place: int, reason: str) -> GrammarError:
        """Return the error for a place in the text."""
        return refused(self.text, place, f"{self.name}: {reason}" if self.name else reason)
