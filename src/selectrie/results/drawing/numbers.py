"""Writes texts, probabilities and ratios for drawings, with the digits that hold."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Protocol

from selectrie.core.output import thousands

_LEAST = 0.001
"""Least probability, and least distance from 1, that is written as a number."""
_TWO_DIGITS = 0.05
"""Largest tolerance, in nats, that leaves two digits of a probability."""
_LARGE_RATIO = 10_000
"""Largest ratio of probabilities that is written as a number."""
_BARELY = 1.1
"""Least ratio of probabilities that is written as a number."""
_PICTURES = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn")
"""Unicode categories of characters that do not print or that move others."""
_JOINERS = "\u200c\u200d"
"""Joiners belong to the shape of the characters beside them."""
_BROKEN = re.compile("[\udc80-\udcff]+")
"""Bytes that are not UTF-8, as Python decodes them by "surrogateescape"."""


class HasTolerance(Protocol):
    """A `Signature`, or a result, that has the tolerance of one row."""

    @property
    def tolerance(self) -> float | None: ...


UNKNOWN = math.ulp(0.0)
"""The tolerance by which probabilities of a model are written if none is known."""


def written_tolerance(source: HasTolerance) -> float:
    """Return the tolerance, in nats, by which probabilities of a model are written.

    It is above 0, since a model's probability that rounds to 0 or 1 is neither.
    """
    return max(source.tolerance or 0.0, UNKNOWN)


def percent(p: float, tolerance: float) -> str:
    """Return a probability as a percentage, such as "12 %", "≈ 30 %" or "< 0.1 %".

    All drawings, sentences and tables write probabilities by this rule, which the page
    has as `percent` in `format.js`. `tolerance` is by how many nats the batching of
    calls may move a row. The digits of a number are those that the tolerance leaves:

    - Up to 0.05 nats: whole per cent from 10 % to 99 %, and tenths outside of that.
      Such a tolerance moves the last digit by at most five.
    - Above 0.05 nats: "≈" and one digit of the probability or, above 50 %, of the rest
      to 100 %. Examples are "≈ 0.3 %", "≈ 30 %" and "≈ 97 %".
    - Below 0.1 % and above 99.9 %: "< 0.1 %" and "> 99.9 %". There are no other bounds.
    - "0 %" and "100 %" only for exactly 0 and 1 with a tolerance of 0.

    The digits depend on nothing else. At one tolerance, therefore, a part never reads
    larger than its whole.
    """
    if p in (0.0, 1.0) and not tolerance:
        return f"{100 * p:.0f} %"
    if p < _LEAST or p > 1 - _LEAST:
        return "< 0.1 %" if p < _LEAST else "> 99.9 %"
    if tolerance <= _TWO_DIGITS:
        parts = 100 if 0.0995 <= p <= 0.9905 else 1000
        return _write_parts(math.floor(p * parts + 0.5), parts)
    rest = min(p, 1 - p)
    parts = 10 if rest >= 0.095 else 100 if rest >= 0.0095 else 1000
    n = math.floor(rest * parts + 0.5)
    return f"≈ {_write_parts(n if p <= 0.5 else parts - n, parts)}"


def _write_parts(n: int, parts: int) -> str:
    """Return `n` tenths, hundredths or thousandths as a percentage."""
    return f"{n / 10:.1f} %" if parts == 1000 else f"{n * 100 // parts} %"


def percent_between(low: float, high: float, tolerance: float) -> str:
    """Return an interval of probabilities as percentages, such as "12 % to 15 %".

    One number is returned if both ends look alike. `tolerance` is as for `percent`.
    """
    low, high = max(0.0, low), min(1.0, high)
    first, last = percent(low, tolerance), percent(high, tolerance)
    if first == last:
        return first
    if not low:
        return "not known" if high == 1.0 else f"at most {last.removeprefix('< ')}"
    if high == 1.0:
        return first if first.startswith(">") else f"at least {first}"
    return f"{first} to {last.removeprefix('≈ ') if first.startswith('≈') else last}"


def ratio_words(ratio: float, error: float = 0.0, *, is_least: bool = False) -> str:
    """Return how two probabilities compare, such as "27 times as likely as".

    The number is rounded down to a digit that the error leaves, at most to its first
    one, which then follows "about". Below 1.1 the words are "barely more likely than".

    Args:
        ratio: The ratio of the larger probability to the other one.
        error: By how many nats the ratio may be wrong.
        is_least: Whether the ratio is a lower bound.
    """
    if ratio < _BARELY:
        return "more likely than" if is_least else "barely more likely than"
    if ratio >= _LARGE_RATIO * math.exp(error):
        return f"over {thousands(_LARGE_RATIO)} times as likely as"
    least, first = (-1, 0) if ratio < 10 else (0, math.floor(math.log10(ratio)))
    first = -1 if ratio < 2 else first
    known = max(least, math.ceil(math.log10(max(error * ratio / 2, 1e-9))))
    step = min(known, first)
    n = math.floor(ratio / 10.0**step * (1 + 1e-9))
    number = f"{n / 10:.1f}" if step < 0 else thousands(n * 10**step)
    return f"{'at least ' if is_least else ''}{'about ' if known > first else ''}{number} times as likely as"


def nats(x: float, error: float = 0.0) -> str:
    """Return a number of nats with three decimals or fewer, all that `error` allows."""
    decimals = 3 if not error else min(3, max(0, math.floor(-math.log10(error / 2))))
    decimals += decimals < 3 and abs(round(x, decimals) - x) > error > 0
    return f"{x:.{decimals}f} nats"


def show_text(text: str) -> str:
    """Return a text in which nothing is invisible.

    Spaces at the ends and beside other spaces become ␣, line ends ⏎ and tabs ⇥. Other
    characters that do not print become their code, such as ‹U+202E›.
    """
    last = len(text) - 1
    return "".join(
        one
        if one == " " and 0 < at < last and text[at - 1] != " " and text[at + 1] != " "
        else _PICTURES.get(one) or _show_character(one)
        for at, one in enumerate(text)
    )


def _show_character(one: str) -> str:
    """Return a character, or its code if it does not print."""
    is_hidden = unicodedata.category(one) in _HIDDEN and one not in _JOINERS
    return f"‹U+{ord(one):04X}›" if is_hidden else one


def show_bytes(piece: bytes) -> str:
    """Return bytes as a visible text; those of no character as ‹e2 96›."""
    text = piece.decode("utf-8", "surrogateescape")
    return show_text(_BROKEN.sub(lambda run: f"‹{run[0].encode('utf-8', 'surrogateescape').hex(' ')}›", text))


def cells_of(text: str) -> float:
    """Return the width of a text in cells of a fixed-width font, rather too large."""
    return sum(_cells(one) for one in text)


def _cells(one: str) -> float:
    """Return the width of a character in cells: 0 if it combines, 2 if it is wide."""
    if unicodedata.combining(one) or one in _JOINERS or unicodedata.category(one) == "Mn":
        return 0.0
    return 2.1 if unicodedata.east_asian_width(one) in "WF" or ord(one) >= 0x1F000 else 1.0


def cut(text: str, cells: float) -> str:
    """Return a text that fits a number of cells; if it is cut, it ends in "…"."""
    if cells_of(text) <= cells:
        return text
    used, kept = 1.0, []
    for one in text:
        used += _cells(one)
        if used > cells:
            break
        kept.append(one)
    return "".join(kept).rstrip(_JOINERS) + "…" if cells >= 1 else ""
