"""Where in a grammar's text something stands: offsets to the lines and columns that errors show."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.errors import GrammarError


def refused(text: str, place: int, reason: str) -> GrammarError:
    """The error for what stands at character `place` of a text: line and column from 1 on, and the line itself."""
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
    """A grammar text and its name in messages, "" for the one that was handed in."""

    text: str
    name: str = ""

    def refused(self, place: int, reason: str) -> GrammarError:
        """The error for a place in it."""
        return refused(self.text, place, f"{self.name}: {reason}" if self.name else reason)
