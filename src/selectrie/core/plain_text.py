"""How texts, bytes and numbers are written in reports."""

from __future__ import annotations


def quoted(text: str) -> str:
    """In quotes, so that spaces at the ends show; what does not print (controls, direction marks) is escaped."""
    return repr(text)


def quoted_bytes(value: bytes) -> str:
    r"""As text where it is UTF-8, else with `\xNN` for the bytes that are not."""
    return quoted(value.decode("utf-8", "surrogateescape")).replace("\\udc", "\\x")


def probability(p: float) -> str:
    """Four digits behind the point; powers of ten where those would all be zero."""
    return f"{p:.4f}" if p >= 0.00005 or p == 0 else f"{p:.0e}"


def interval(low: float, high: float) -> str:
    """One number where both ends are written alike."""
    ends = (probability(low), probability(high))
    return ends[0] if ends[0] == ends[1] else "–".join(ends)


def thousands(n: float) -> str:
    """A whole number with a space between thousands."""
    return f"{n:,.0f}".replace(",", " ")


def count(n: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{thousands(n)} {noun}{'' if n == 1 else 's'}"
