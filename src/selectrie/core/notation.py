"""Writes numbers and texts for people: one notation for each kind, everywhere.

Terminals, `repr`s, notebooks and drawings use these functions. The page has `percent`,
`percentBetween`, `score` (`write_logp`) and `visible` (`show_text`) in `format.js`.
JSON has all digits.

`tolerance` is by how many nats the batching of calls may move a row of the model. A
number has the digits that it leaves.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Protocol

_LEAST = 0.001
"""Least probability, and least distance from 1, that is written as a number."""
_TWO_DIGITS = 0.05
"""Largest tolerance, in nats, that leaves two digits of a number."""
_THREE_DECIMALS = 0.0005
"""Largest tolerance, in nats, that leaves three decimals of a log-probability."""
_LARGE_RATIO = 10_000
"""Largest ratio of probabilities that is written as a number."""
_BARELY = 1.1
"""Least ratio of probabilities that is written as a number."""
_NEAREST, _DOWN, _UP = 0.5, 1e-9, 1 - 1e-9
"""What is added to a number before its fraction is cut, which rounds it."""
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
"""The tolerance by which numbers of a model are written if none is known."""


def written_tolerance(source: HasTolerance) -> float:
    """Return the tolerance, in nats, by which numbers of a model are written.

    It is above 0, since a model's probability that rounds to 0 or 1 is neither.
    """
    return max(source.tolerance or 0.0, UNKNOWN)


def percent(p: float, tolerance: float) -> str:
    """Return a probability as a percentage, such as "12 %", "≈ 30 %" or "< 0.1 %".

    The digits of a number are those that the tolerance leaves:

    - Up to 0.05 nats: whole per cent from 10 % to 99 %, and tenths outside of that.
      Such a tolerance moves the last digit by at most five.
    - Above 0.05 nats: "≈" and one digit of the probability or, above 50 %, of the rest
      to 100 %. Examples are "≈ 0.3 %", "≈ 30 %" and "≈ 97 %".
    - Below 0.1 % and above 99.9 %: "< 0.1 %" and "> 99.9 %". There are no other bounds.
    - "0 %" and "100 %" only for exactly 0 and 1 with a tolerance of 0.

    The digits depend on nothing else. At one tolerance, therefore, a part never reads
    larger than its whole. NaN is "not known".
    """
    return _round_percent(p, tolerance, _NEAREST)


def _round_percent(p: float, tolerance: float, direction: float) -> str:
    """Return `percent` with its last digit rounded in a direction."""
    if math.isnan(p):
        return "not known"
    if p in (0.0, 1.0) and not tolerance:
        return f"{100 * p:.0f} %"
    if p < _LEAST or p > 1 - _LEAST:
        return "< 0.1 %" if p < _LEAST else "> 99.9 %"
    if tolerance <= _TWO_DIGITS:
        parts = 100 if 100 <= math.floor(p * 1000 + direction) <= 990 else 1000
        return _write_parts(math.floor(p * parts + direction), parts)
    rest, direction = (p, direction) if p <= 0.5 else (1 - p, 1 - direction)
    parts = next((parts for parts in (10, 100) if math.floor(rest * parts * 10 + direction) >= 10), 1000)
    n = math.floor(rest * parts + direction)
    return f"≈ {_write_parts(n if p <= 0.5 else parts - n, parts)}"


def _write_parts(n: int, parts: int) -> str:
    """Return `n` tenths, hundredths or thousandths as a percentage."""
    return f"{n / 10:.1f} %" if parts == 1000 else f"{n * 100 // parts} %"


def percent_between(low: float, high: float, tolerance: float) -> str:
    """Return an interval of probabilities as percentages, such as "12 % to 15 %".

    One number is returned if both ends look alike, and "not known" if no other bounds
    than 0 % and 100 % do. Otherwise the lower end is rounded down and the upper one up.
    `tolerance` is as for `percent`.
    """
    low, high = max(0.0, low), min(1.0, high)
    nearest = percent(low, tolerance)
    if nearest == percent(high, tolerance):
        return nearest
    first, last = _round_percent(low, tolerance, _DOWN), _round_percent(high, tolerance, _UP)
    if not low:
        return "not known" if last.startswith(">") or high == 1.0 else f"at most {last.removeprefix('< ')}"
    if high == 1.0:
        return first if first.startswith(">") else "not known" if first.startswith("<") else f"at least {first}"
    return f"{first} to {last.removeprefix('≈ ') if first.startswith('≈') else last}"


def percent_at_least(low: float, tolerance: float) -> str:
    """Return a lower bound of a probability, such as "at least 12 %".

    Below 0.1 % it has one digit, rounded down, so that several bounds can be compared.
    """
    if not 0 < low < _LEAST:
        return percent_between(low, 1.0, tolerance)
    step = 10.0 ** math.floor(math.log10(100 * low))
    return f"at least {math.floor(100 * low / step * (1 + 1e-9)) * step:.1g} %"


def write_logp(logp: float, tolerance: float, high: float | None = None) -> str:
    """Return a log-probability, or another number in nats, such as "-1.234".

    It has three decimals up to a tolerance of 0.0005 nats (f32 weights), two up to 0.05
    (f16), and one above (quantised weights). Up to 0.5 nats, the tolerance of one row
    therefore moves the last digit by at most five, and a sum of n rows by √n as much.
    Most rows move by far less, so there is always one decimal.

    Args:
        logp: The number; NaN if it is not known.
        tolerance: By how many nats a row of it may be wrong.
        high: Its upper bound, if `logp` is a lower one. Then the result is such as
            "-1.24 to -1.20", or "≤ -1.2" if `logp` is -inf; one number if both ends
            look alike. Otherwise the lower end is rounded down and the upper one up.
    """
    nearest = _round_nats(logp, tolerance, _NEAREST)
    if high is None or nearest == _round_nats(high, tolerance, _NEAREST):
        return nearest
    last = _round_nats(high, tolerance, _UP)
    return f"≤ {last}" if logp == -math.inf else f"{_round_nats(logp, tolerance, _DOWN)} to {last}"


def _round_nats(x: float, tolerance: float, direction: float) -> str:
    """Return a number in nats with its last digit rounded in a direction."""
    if not math.isfinite(x):
        return "not known" if math.isnan(x) else str(x)
    decimals = 3 if tolerance <= _THREE_DECIMALS else 2 if tolerance <= _TWO_DIGITS else 1
    unit = 10**decimals
    rounded = round(x, decimals) if direction == _NEAREST else math.floor(x * unit + direction) / unit
    return f"{rounded + 0.0:.{decimals}f}"  # -0.0 + 0.0 has no sign


def nats(x: float, error: float = 0.0, *, is_least: bool = False) -> str:
    """Return a number of nats that may be off by `error`, such as "0.47 nats".

    A lower bound is rounded down, and follows "at least".
    """
    return f"at least {_round_nats(x, error, _DOWN)} nats" if is_least else f"{write_logp(x, error)} nats"


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


def thousands(n: float) -> str:
    """Return a number as a whole number with a space between thousands."""
    return f"{n:,.0f}".replace(",", " ")


def rate(share: float) -> str:
    """Return a share of counted items or rows, which has no tolerance, as "83.3 %".

    Only 0 and 1 read "0.0 %" and "100.0 %".
    """
    is_near = 0 < share < 0.0005 or 0.9995 < share < 1
    return percent(share, 0.0) if is_near else f"{100 * share:.1f} %"


def count(n: int, noun: str) -> str:
    """Return a number with its noun: `1 row`, `2 rows`."""
    return f"{thousands(n)} {noun}{'' if n == 1 else 's'}"


def quoted(text: str, cells: float = math.inf) -> str:
    """Return the text in quotes as Python writes it, so that spaces are visible.

    Characters that do not print (controls, direction marks) are escaped. A text that is
    wider than `cells` is cut.
    """
    return repr(cut(text, cells))


def quoted_bytes(value: bytes) -> str:
    r"""Return the bytes as quoted text, with `\xNN` for bytes that are not UTF-8."""
    return quoted(value.decode("utf-8", "surrogateescape")).replace("\\udc", "\\x")


def escaped(text: str) -> str:
    r"""Return the text on one line: what does not print is escaped, such as `\x1b`."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def show_text(text: str) -> str:
    """Return a text in which nothing is invisible, for drawings, which have no quotes.

    Spaces at the ends and beside other spaces become ␣, line ends ⏎ and tabs ⇥. Other
    characters that do not print become their code, such as ‹U+202E›.
    """
    last = len(text) - 1
    return "".join(
        character
        if character == " " and 0 < at < last and text[at - 1] != " " and text[at + 1] != " "
        else _PICTURES.get(character) or _show_character(character)
        for at, character in enumerate(text)
    )


def _show_character(character: str) -> str:
    """Return a character, or its code if it does not print."""
    is_hidden = unicodedata.category(character) in _HIDDEN and character not in _JOINERS
    return f"‹U+{ord(character):04X}›" if is_hidden else character


def show_bytes(piece: bytes) -> str:
    """Return bytes as a visible text; those of no character as ‹e2 96›."""
    text = piece.decode("utf-8", "surrogateescape")
    return show_text(_BROKEN.sub(lambda run: f"‹{run[0].encode('utf-8', 'surrogateescape').hex(' ')}›", text))


def cells_of(text: str) -> float:
    """Return the width of a text in cells of a fixed-width font, rather too large."""
    return sum(map(_cells, text))


def _cells(character: str) -> float:
    """Return the width of a character in cells: 0 if it combines, 2 if it is wide."""
    if unicodedata.combining(character) or character in _JOINERS or unicodedata.category(character) == "Mn":
        return 0.0
    return 2.1 if unicodedata.east_asian_width(character) in "WF" or ord(character) >= 0x1F000 else 1.0


def cut(text: str, cells: float) -> str:
    """Return a text that fits a number of cells; if it is cut, it ends in "…"."""
    if 2.1 * len(text) <= cells or cells_of(text) <= cells:
        return text
    used, kept = 1.0, []
    for character in text:
        used += _cells(character)
        if used > cells:
            break
        kept.append(character)
    return "".join(kept).rstrip(_JOINERS) + "…" if cells >= 1 else ""
