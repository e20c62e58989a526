"""Days, months, seasons (of the northern half) and times of day: order, position, length, and what belongs to them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from embedded_model.phrases import Fact, Item, expand, rounds
from embedded_model.phrases import a as article
from embedded_model.phrasings import Entry, Relation, asked, drawn, facts, items, mixed, reversed_statements
from embedded_model.tables import patterns, read

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TABLES = read("calendar")
LENGTHS = dict(TABLES["lengths"].rows(2))
MONTHS = tuple(LENGTHS)
SEASONS = ("winter", "spring", "summer", "autumn")
SEASON_OF = {month: SEASONS[(i + 1) % 12 // 3] for i, month in enumerate(MONTHS)}
ORDINALS = tuple(TABLES["ordinals"].words())

AFTER = Relation(**patterns("calendar", "after"))
BEFORE = Relation(**patterns("calendar", "before"))
TOMORROW = Relation(**patterns("calendar", "tomorrow"))
POSITION = Relation(**patterns("calendar", "position"))
NUMBER = Relation(**patterns("calendar", "number"))
KIND = Relation(**patterns("calendar", "kind"))
LENGTH = Relation(**patterns("calendar", "length"))
SEASON = Relation(**patterns("calendar", "season"))
COUNT = Relation(**patterns("calendar", "count"))
TIME = Relation(**patterns("calendar", "time"))
HAPPENS = Relation(**patterns("calendar", "happens"))


def _chain(names: Sequence[str], unit: str, step: int) -> list[Entry]:
    """Return each name and the one that follows (or precedes) it."""
    n = len(names)
    return [Entry({"x": x, "unit": unit}, names[(i + step) % n], tuple(names)) for i, x in enumerate(names)]


def _positions(names: Sequence[str], unit: str, whole: str) -> list[Entry]:
    """Return each place and the name at it; where the week begins with Sunday, the
    place is that of the name before.
    """
    fields = [{"nth": ORDINALS[i], "n": str(i + 1), "unit": unit, "whole": whole} for i in range(len(names))]
    return [
        Entry(f, name, tuple(set(names) - {names[i - 1]}))
        for i, (f, name) in enumerate(zip(fields, names, strict=True))
    ]


def _count_entries() -> list[Entry]:
    pool = ("7", "12", "24", "60", "4", "52", "2", "365", "100", "10", "30")
    return [
        Entry({"parts": parts, "whole": article(whole), "bare": whole}, n, pool)
        for parts, whole, n in TABLES["counts"].rows(3)
    ]


def _tomorrows() -> list[Entry]:
    """Return the days around every day."""
    near = (("tomorrow", 1, "is"), ("yesterday", -1, "was"), ("the day after tomorrow", 2, "is"))
    return [
        Entry({"x": day, "when": when, "When": when[0].upper() + when[1:], "is": is_}, DAYS[(i + step) % 7], DAYS)
        for i, day in enumerate(DAYS)
        for when, step, is_ in (*near, near[0], near[1], ("the day before yesterday", -2, "was"))
    ]


_SEASON_CHAIN = _chain(SEASONS, "season", 1)
RELATIONS = (
    (9.0, AFTER, _chain(DAYS, "day", 1) * 3 + _chain(MONTHS, "month", 1) * 3 + _SEASON_CHAIN),
    (9.0, BEFORE, _chain(DAYS, "day", -1) * 3 + _chain(MONTHS, "month", -1) * 3 + _chain(SEASONS, "season", -1)),
    (7.0, TOMORROW, _tomorrows()),
    (6.0, POSITION, _positions(DAYS, "day", "week") + _positions(MONTHS, "month", "year")),
    (
        5.0,
        NUMBER,
        [
            Entry(
                {"x": x, "unit": "day", "whole": "week"},
                ORDINALS[i],
                tuple(set(ORDINALS[:7]) - {ORDINALS[(i + 1) % 7]}),
            )
            for i, x in enumerate(DAYS)
        ]
        + [Entry({"x": x, "unit": "month", "whole": "year"}, ORDINALS[i], ORDINALS) for i, x in enumerate(MONTHS)],
    ),
    (3.0, KIND, [Entry({"x": x}, "weekend" if x[0] == "S" else "weekday", ("weekday", "weekend")) for x in DAYS]),
    (5.0, LENGTH, [Entry({"x": x}, n, ("28", "30", "31", "27")) for x, n in LENGTHS.items()]),
    (5.0, SEASON, [Entry({"x": x}, season, SEASONS) for x, season in SEASON_OF.items()]),
    (4.0, COUNT, _count_entries()),
    (
        4.0,
        TIME,
        [Entry({"x": x}, time, ("morning", "noon", "evening", "night")) for x, time in TABLES["times"].rows(2)],
    ),
    (4.0, HAPPENS, [Entry({"x": x}, season, SEASONS) for x, season in TABLES["weather"].rows(2)]),
)
HELD_COUNTS = (14, 14, 10, 9, 6, 5, 8, 8, 7, 6, 7)


def _rows(rng: random.Random) -> Iterator[str]:
    """Yield days, months and seasons in their order."""
    heads = {
        "day": ("Days of the week: ", "The days: "),
        "month": ("Months of the year: ", "The months: "),
        "season": ("Seasons: ",),
    }
    for names, unit in rounds(
        [(DAYS, "day"), (DAYS, "day"), (MONTHS, "month"), (MONTHS, "month"), (SEASONS, "season")], rng
    ):
        start, n = rng.randrange(len(names)), rng.randint(3, len(names) + 1)
        if rng.random() < 0.4:
            start, n = 0, len(names)
        row = [names[(start + i) % len(names)] for i in range(n)]
        text = rng.choice((", ", ", ", " ", "\n")).join(row)
        yield (rng.choice(heads[unit]) if start == 0 and n == len(names) and rng.random() < 0.7 else "") + text


def _portraits(rng: random.Random) -> Iterator[str]:
    """Yield what is to be said of one month or one day."""
    for i in rounds(range(19), rng):
        names, unit, whole = (MONTHS, "month", "year") if i < 12 else (DAYS, "day", "week")
        k = i if i < 12 else i - 12
        x, before, after = names[k], names[k - 1], names[(k + 1) % len(names)]
        lines = [
            f"{x} is the {ORDINALS[k]} {unit} of the {whole}.",
            f"It comes after {before} and before {after}.",
            f"The {unit} before it is {before}, and the next {unit} is {after}.",
            expand(f"[Before it comes|It follows] {before}. [After it comes|It is followed by] {after}.", rng),
        ]
        if unit == "month":
            lines += [f"{x} has {LENGTHS[x]} days.", f"{x} is in {SEASON_OF[x]}.", f"It has {LENGTHS[x]} days."]
            sheet = f"Month: {x}\nNumber: {k + 1}\nDays: {LENGTHS[x]}\nSeason: {SEASON_OF[x]}\nNext month: {after}"
        else:
            lines += [f"{x} is {'on the weekend' if k > 4 else 'a weekday'}.", f"If today is {x}, tomorrow is {after}."]
            lines += [f"If today is {x}, yesterday was {before}."]
            sheet = f"Day: {x}\nNumber: {k + 1}\nKind: {'weekend' if k > 4 else 'weekday'}\nTomorrow: {after}\nYesterday: {before}"
        chosen = rng.sample(lines[1:], rng.randint(2, len(lines) - 1))
        yield sheet if rng.random() < 0.3 else " ".join([lines[0], *chosen])


def _groups(rng: random.Random) -> Iterator[str]:
    """Yield sentences about several days or months at once."""
    for pattern in rounds(TABLES["several at once"], rng):
        yield expand(pattern, rng)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield training documents without end."""
    streams = [(weight, facts(relation, entries, rng)) for weight, relation, entries in RELATIONS]
    texts = [(weight / 6, reversed_statements(relation, entries, rng)) for weight, relation, entries in RELATIONS]
    return mixed(streams, [*texts, (3.0, _rows(rng)), (8.0, _portraits(rng)), (2.0, _groups(rng))], rng)


def known_facts(rng: random.Random) -> Iterator[Fact]:
    """Yield the facts of the documents, without end."""
    streams = [(weight, facts(relation, entries, rng)) for weight, relation, entries in RELATIONS]
    return drawn(streams, rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield questions in phrasings that no document uses."""
    questions = []
    for (_, relation, entries), n in zip(RELATIONS, HELD_COUNTS, strict=True):
        unique = list({(tuple(e.fields.items()), e.answer): e for e in entries}.values())
        questions += asked(relation, unique, n, rng)
    yield from items("calendar", questions)
