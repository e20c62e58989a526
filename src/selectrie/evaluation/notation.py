"""The notation of figures and items in reports: digits, intervals, texts cut short."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MAX_CONTEXT, MAX_CHOICE, MAX_CHOICES = 200, 80, 8
"""Maximum characters of a context and of a choice, and number of choices, shown."""


def number(value: float | None, sign: str = "") -> str:
    """Return a number with four decimals, or with one decimal from 100 on.

    Args:
        sign: "+" to write the sign of positive numbers too.
    """
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:{sign}.4f}" if abs(value) < 100 else f"{value:{sign}.1f}"


def signed(value: float | None) -> str:
    """Return a number as text with its sign, + or -."""
    return number(value, "+")


def between(low: float | None, high: float | None) -> str:
    """Return an interval as text; "" if an end is missing."""
    if low is None or high is None or not math.isfinite(low + high):
        return ""
    return f"{number(low)} {'to' if low < 0 else '–'} {number(high)}"


def p_value(p: float | None) -> str:
    """Return a p-value with three digits."""
    return "" if p is None else f"{p:.3g}"


def signed_interval(interval: Mapping[str, float | None]) -> str:
    """Return the interval of a difference as text, given its JSON form."""
    return " to ".join(filter(None, map(signed, interval.values())))


def position(run: int) -> str:
    """Return the position of a run in words: 0 is "first"."""
    words = ("first", "second", "third")
    return words[run] if run < len(words) else f"{run + 1}th"


def shorten(text: str, limit: int) -> str:
    """Return a text on one line, with … in its middle if it is longer than `limit`.

    Names and questions often differ at their end.
    """
    line = " ".join(text.split())
    half = limit // 2
    return line if len(line) <= limit else f"{line[:half]}…{line[1 - half :]}"


def choices_line(flip: Mapping[str, Any], other: str) -> str:
    """Return the choices of an item on one line, with who chose them.

    Right and chosen ones are always shown, others up to `MAX_CHOICES`.

    Args:
        flip: The item, ready for JSON, with its texts.
        other: Position in words of the run that is compared with the first.
    """
    marks: dict[int, list[str]] = {}
    for index, mark in (
        *((index, "right") for index in flip["gold"]),
        (flip["first"], "first"),
        (flip["second"], other),
    ):
        marks.setdefault(index, []).append(mark)
    shown = [index for index in range(len(flip["choices"])) if index < MAX_CHOICES or index in marks]
    parts = [
        f"{index} {shorten(flip['choices'][index], MAX_CHOICE)}"
        + (f" ({', '.join(marks[index])})" if index in marks else "")
        for index in shown
    ]
    more = len(flip["choices"]) - len(shown)
    return " · ".join(parts) + (f" · {more} more" if more else "")


def shown_flips(task: Mapping[str, Any], max_shown: int) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the items of a comparison that only one run gets right, with signs.

    `+` marks an item that is right only in the other run, `-` one that is right only in
    the first. Both kinds share `max_shown`.
    """
    gained, lost = task["gained"], task["lost"]
    n_gained = min(len(gained), max(max_shown - len(lost), (max_shown + 1) // 2))
    return [*(("+", one) for one in gained[:n_gained]), *(("-", one) for one in lost[: max_shown - n_gained])]
