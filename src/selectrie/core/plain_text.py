"""The notation of texts, bytes and numbers in reports."""

from __future__ import annotations


def quoted(text: str) -> str:
    """Return the text in quotes, so that leading and trailing spaces can be seen.

    Characters that do not print (controls, direction marks) are escaped.
    """
    return repr(text)


def quoted_bytes(value: bytes) -> str:
    r"""Return the bytes as quoted text, with `\xNN` for bytes that are not UTF-8."""
    return quoted(value.decode("utf-8", "surrogateescape")).replace("\\udc", "\\x")


def probability(p: float) -> str:
    """Return `p` with four decimals, or as a power of ten if they would all be 0."""
    return f"{p:.4f}" if p >= 0.00005 or p == 0 else f"{p:.0e}"


def interval(low: float, high: float) -> str:
    """Return the interval as text, as one number if both ends are written alike."""
    ends = (probability(low), probability(high))
    return ends[0] if ends[0] == ends[1] else "–".join(ends)


def thousands(n: float) -> str:
    """Return `n` as a whole number with a space between thousands."""
    return f"{n:,.0f}".replace(",", " ")


def count(n: int, noun: str) -> str:
    """Return a number with its noun: `1 row`, `2 rows`."""
    return f"{thousands(n)} {noun}{'' if n == 1 else 's'}"


def escaped(text: str) -> str:
    r"""Return the text with `\x1b` and the like for characters that do not print."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
