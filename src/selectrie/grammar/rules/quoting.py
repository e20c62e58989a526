"""How messages quote a part of a grammar."""

from __future__ import annotations


def clipped(text: str, limit: int = 40) -> str:
    """A text as a message quotes it."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")
