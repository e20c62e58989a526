"""Writes texts, probabilities and ratios for drawings.

The largest error of a number moves its last digit by at most two.
"""

from __future__ import annotations

import math
import re
import unicodedata

from selectrie.core.output import thousands

_UNITS = (0.001, 0.01, 0.1)
"""Last digits of a percentage: a tenth, one and ten per cent."""
_LARGE_RATIO = 10_000
"""Largest ratio of probabilities that is written as a number."""
_PICTURES = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn")
"""Unicode categories of characters that do not print or that move others."""
_JOINERS = "\u200c\u200d"
"""Joiners belong to the shape of the characters beside them."""
_BROKEN = re.compile("[\udc80-\udcff]+")
"""Bytes that are not UTF-8, as Python decodes them by "surrogateescape"."""


def percent(p: float, error: float = 0.0) -> str:
    """Return a probability as a percentage, such as "12 %", "0.4 %" or "< 0.1 %".

    It reads 0 % or 100 % only if that is exact. `error` is the largest error of `p`.
    """
    if p in (0.0, 1.0) and not error:
        return f"{100 * p:.0f} %"
    unit = next((one for one in _UNITS if one >= error / 2), 0.1)
    if p < unit:
        return f"< {_trim(100 * unit)} %"
    if p > 1 - unit:
        return f"> {_trim(100 - 100 * unit)} %"
    if 0.1 <= p <= 0.99:
        unit = max(unit, 0.01)
    rounded = min(max(round(p / unit) * unit, unit), 1 - unit)
    return f"{100 * rounded:.{1 if unit < 0.01 else 0}f} %"


def percent_between(low: float, high: float, error: float = 0.0) -> str:
    """Return an interval of probabilities as percentages, such as "12 % to 15 %".

    One number is returned if both ends look alike.
    """
    low, high = max(0.0, low), min(1.0, high)
    ends = percent(low, error if low else 0.0), percent(high, error if high < 1 else 0.0)
    if ends[0] == ends[1]:
        return ends[0]
    if high == 1.0:
        return f"at least {ends[0]}" if low else "not known"
    return f"{ends[0]} to {ends[1]}" if low else f"at most {ends[1].removeprefix('< ')}"


def ratio_words(ratio: float, error: float = 0.0) -> str:
    """Return a ratio of probabilities in words: "27 times", "over 10 000 times".

    `error` is the relative error of the ratio.
    """
    if ratio >= _LARGE_RATIO:
        return f"over {thousands(_LARGE_RATIO)} times"
    digits = max(0, math.ceil(math.log10(max(error * ratio / 2, 1e-9))))
    if ratio < 10 and error * ratio <= 0.2:
        return f"{max(ratio, 1.1):.1f} times"
    return f"{thousands(max(2, round(ratio, -digits)))} times"


def nats(x: float, error: float = 0.0) -> str:
    """Return a number of nats with those of three decimals that `error` allows."""
    decimals = 3 if not error else min(3, max(0, math.floor(-math.log10(error / 2))))
    return f"{x:.{decimals}f} nats"


def _trim(x: float) -> str:
    """Return a number with at most one decimal, and none for a whole number."""
    return f"{x:.1f}".removesuffix(".0")


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
