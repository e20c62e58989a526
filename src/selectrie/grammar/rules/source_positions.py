"""Symbols of a grammar's text, and the lines and columns of errors about them."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.errors import GrammarError


@dataclass(frozen=True, slots=True)
class Source:
    """A grammar text and its name in messages, which is "" for the top-level text."""

    text: str
    name: str = ""

    def refused(self, offset: int, reason: str) -> GrammarError:
        """Return the error for a character of the text.

        It has the line and the column, counted from 1, and the line itself.
        """
        offset = min(offset, len(self.text))
        start = self.text.rfind("\n", 0, offset) + 1
        return GrammarError(
            f"{self.name}: {reason}" if self.name else reason,
            line=self.text.count("\n", 0, offset) + 1,
            column=offset - start + 1,
            excerpt=self.text[start:].partition("\n")[0],
        )
