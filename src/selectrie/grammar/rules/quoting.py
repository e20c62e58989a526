"""How messages quote a part of a grammar."""

from __future__ import annotations


def clipped(text: str, limit: int = 40) -> str:
    """Return the `repr` of a text, shortened to at most `limit` characters."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")
