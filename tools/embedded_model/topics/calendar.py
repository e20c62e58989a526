"""Days, months, seasons (of the northern half) and times of day: order, position, length, and what belongs to them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from embedded_model.phrases import Item, expand, rounds
from embedded_model.phrases import a as article
from embedded_model.phrasings import Entry, Relation, asked, cells, facts, items, mixed, reversed_statements, words

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
LENGTHS = dict(
    cells(
        """January|31 February|28 March|31 April|30 May|31 June|30 July|31 August|31 September|30 October|31
        November|30 December|31"""
    )
)
MONTHS = tuple(LENGTHS)
SEASONS = ("winter", "spring", "summer", "autumn")
SEASON_OF = {month: SEASONS[(i + 1) % 12 // 3] for i, month in enumerate(MONTHS)}
ORDINALS = words("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth")
COUNTS = """days|week|7  months|year|12  hours|day|24  minutes|hour|60  seconds|minute|60  seasons|year|4  weeks|year|52
    days|weekend|2  days|year|365  years|century|100  years|decade|10"""
TIMES = """eat breakfast|morning  wake up|morning  get out of bed|morning  see the sun rise|morning
    eat dinner|evening  see the sun set|evening  come home from work|evening
    eat lunch|noon  see the sun highest in the sky|noon
    sleep in bed|night  see the stars|night  see the moon and the stars|night  dream|night"""
WEATHER = """snow falls|winter  people ski|winter  it is coldest|winter  lakes freeze|winter  people build a snowman|winter
    it is hottest|summer  people swim in the lake|summer  days are longest|summer  people lie on the beach|summer
    leaves fall from the trees|autumn  leaves turn yellow and red|autumn  apples are picked|autumn
    the first flowers bloom|spring  birds build their nests|spring  trees get new leaves|spring  the snow melts|spring"""

AFTER = Relation(
    questions=(
        "[What|Which] {unit} [comes|is] [right |just |]after {x}?",
        "What {unit} follows {x}?",
        "What is the {unit} after {x}?",
        "What is the next {unit} after {x}?",
        "Which {unit} comes next after {x}?",
        "What comes [right |]after {x}?",
        "{x} is over. What {unit} [is|comes] next?",
        "If it is {x} now, what {unit} is next?",
        "Name the {unit} [right |]after {x}.",
        "[Tell me|Say] which {unit} comes after {x}.",
        "What {unit} begins when {x} ends?",
        "After {x} comes which {unit}?",
    ),
    statements=(
        "The {unit} [right |just |]after {x} is",
        "After {x} comes",
        "{x} is followed by",
        "The next {unit} after {x} is",
        "{x} comes [right |just |]before",
        "When {x} ends, the next {unit} is",
        "The {unit} that follows {x} is",
        "{x} is over, and now it is",
        "{x} is the {unit} before",
    ),
    keys=("{unit} after {x}", "After {x}", "Next {unit} after {x}"),
    reverse=(
        "{answer} [comes|is] [right |just |]after {x}.",
        "{answer} follows {x}.",
        "{answer} is the {unit} after {x}.",
    ),
    held_questions=(
        "Which {unit} begins right after {x}?",
        "When {x} is over, which {unit} comes?",
        "Tell me the {unit} that follows {x}.",
        "What is the {unit} that comes next after {x}?",
        "{x} ends. Which {unit} follows?",
    ),
    held_statements=("The {unit} that comes right after {x} is",),
)
BEFORE = Relation(
    questions=(
        "[What|Which] {unit} [comes|is] [right |just |]before {x}?",
        "What is the {unit} before {x}?",
        "Which {unit} is followed by {x}?",
        "What comes [right |]before {x}?",
        "If it is {x} now, what {unit} was before?",
        "Name the {unit} [right |]before {x}.",
        "[Tell me|Say] which {unit} comes before {x}.",
        "What {unit} ends when {x} begins?",
        "Before {x} comes which {unit}?",
        "What was the last {unit} before {x}?",
        "What {unit} was it before {x}?",
    ),
    statements=(
        "The {unit} [right |just |]before {x} is",
        "Before {x} comes",
        "{x} follows",
        "{x} comes [right |just |]after",
        "The last {unit} before {x} is",
        "When {x} begins, the {unit} that ends is",
        "The {unit} that comes before {x} is",
        "{x} is the {unit} after",
        "{x} is here, so the {unit} before was",
    ),
    keys=("{unit} before {x}", "Before {x}", "Last {unit} before {x}"),
    reverse=(
        "{answer} [comes|is] [right |just |]before {x}.",
        "{answer} is the {unit} before {x}.",
        "{answer} is followed by {x}.",
    ),
    held_questions=(
        "Which {unit} ends right before {x}?",
        "Which {unit} was just before {x}?",
        "Tell me the {unit} that comes before {x}.",
        "What is the last {unit} that comes before {x}?",
        "{x} begins. Which {unit} was before?",
    ),
    held_statements=("The {unit} that comes right before {x} is",),
)
TOMORROW = Relation(
    questions=(
        "Today is {x}. What day is {when}?",
        "Today is {x}. Which day {is} {when}?",
        "If today is {x}, what [day |]{is} {when}?",
        "If today is {x}, which day {is} {when}?",
        "It is {x} today. What day {is} {when}?",
        "What day {is} {when} if today is {x}?",
        "What day {is} {when} when today is {x}?",
        "Today it is {x}. Which day {is} {when}?",
        "Today is {x}, so what day {is} {when}?",
        "We have {x} today. What {is} {when}?",
    ),
    statements=(
        "If today is {x}, {when} {is}",
        "If today is {x}, then {when} {is}",
        "Today is {x}, so {when} {is}",
        "Today is {x}. {When} {is}",
        "When today is {x}, {when} {is}",
        "It is {x} today, so {when} {is}",
        "Today is {x} and {when} {is}",
        "It is {x}; {when} {is}",
    ),
    keys=("Today: {x}. {When}", "Today: {x}\n{When}"),
    reverse=("{When} {is} {answer} if today is {x}.", "{When} {is} {answer}, because today is {x}."),
    held_questions=(
        "Here it is {x}. Which day {is} {when}?",
        "Which day {is} {when} if it is {x} today?",
        "Tell me what day {is} {when} if today is {x}.",
        "We have {x} today. Which day {is} {when}?",
        "If it is {x} today, what day {is} {when}?",
    ),
    held_statements=("It is {x} today and {when} {is}",),
)
POSITION = Relation(
    questions=(
        "What is the {nth} {unit} of the {whole}?",
        "Which {unit} is the {nth} {unit} of the {whole}?",
        "Which {unit} [is|comes] {nth} in the {whole}?",
        "What {unit} is number {n} of the {whole}?",
        "Name the {nth} {unit} [of|in] the {whole}.",
        "The {nth} {unit} of the {whole} is what?",
        "What do we call the {nth} {unit} of the {whole}?",
        "[Tell me|Say] the {nth} {unit} of the {whole}.",
        "In [a|the] {whole}, which {unit} comes {nth}?",
        "What is {unit} number {n}?",
        "What is the name of the {nth} {unit} of the {whole}?",
    ),
    statements=(
        "The {nth} {unit} of the {whole} is",
        "The {nth} {unit} [in|of] a {whole} is",
        "{unit} number {n} is",
        "Number {n} of the {unit}s is",
        "The {whole}'s {nth} {unit} is",
        "As the {nth} {unit} of the {whole} comes",
        "The name of the {nth} {unit} is",
        "We call the {nth} {unit} of the {whole}",
        "In the {whole}, {unit} {n} is",
    ),
    keys=("{nth} {unit}", "{nth} {unit} of the {whole}", "{unit} {n}", "{unit} number {n}"),
    reverse=(
        "{answer} is the {nth} {unit} [of|in] the {whole}.",
        "{answer} is {unit} number {n}.",
        "{answer} comes {nth} in the {whole}.",
    ),
    held_questions=(
        "Which {unit} of the {whole} is the {nth}?",
        "Tell me which {unit} is the {nth} of the {whole}.",
        "What is the {nth} {unit} in a {whole} called?",
        "Which {unit} is number {n} in the {whole}?",
        "The {nth} {unit} of the {whole}: which one is it?",
    ),
    held_statements=("The {unit} that comes {nth} in the {whole} is",),
)
NUMBER = Relation(
    questions=(
        "What number is {x}?",
        "What number does {x} have in the {whole}?",
        "What is the number of the {unit} {x}?",
        "What is the position of {x} in the {whole}?",
        "Which place does {x} have in the {whole}?",
        "Is {x} the first, the second or which {unit} of the {whole}?",
        "Where does {x} stand in the {whole}?",
        "[Tell me|Say] the place of {x} in the {whole}.",
        "{x} is which {unit} of the {whole}?",
        "In the {whole}, which place has {x}?",
    ),
    statements=(
        "In the {whole}, {x} comes",
        "{x} comes",
        "Among the {unit}s of the {whole}, {x} is the",
        "The place of {x} in the {whole} is the",
        "The position of {x} in the {whole} is",
        "Of all {unit}s, {x} is the",
        "In the {whole}, {x} is the",
        "{x} stands at the place that is",
    ),
    keys=("Place of {x}", "Position of {x}", "{x}, place in the {whole}"),
    reverse=("The {answer} place in the {whole} is that of {x}.", "The {answer} {unit} is {x}."),
    held_questions=(
        "Which position does {x} have in the {whole}?",
        "Tell me which place {x} has in the {whole}.",
        "What place does {x} have among the {unit}s?",
        "At which place of the {whole} does {x} come?",
        "What is the place of the {unit} {x}?",
    ),
    held_statements=("The place that {x} has in the {whole} is the",),
)
KIND = Relation(
    questions=(
        "Is {x} a [weekday or a weekend day|weekday or part of the weekend]?",
        "Is {x} [on|part of] the weekend or a weekday?",
        "What is {x}, weekday or weekend?",
        "{x}: weekday or weekend?",
        "Does {x} belong to the weekend or is it a weekday?",
        "Weekday or weekend: {x}?",
        "What kind of day is {x}, weekday or weekend?",
        "[Say|Tell me] if {x} is weekday or weekend.",
        "Do people call {x} weekday or weekend?",
        "Is the day {x} weekday or weekend?",
        "Would you call {x} weekday or weekend?",
    ),
    statements=(
        "{x} is a day of the kind",
        "Weekday or weekend? {x} is",
        "{x}, weekday or weekend:",
        "The kind of day that {x} is:",
        "We call {x}",
        "People say that {x} is",
        "Of weekday and weekend, {x} is",
        "In the calendar, {x} is",
    ),
    keys=("{x}, weekday or weekend", "Kind of day, {x}", "Weekday or weekend, {x}"),
    reverse=("A {answer} day is {x}.", "One {answer} day is {x}."),
    held_questions=(
        "Weekday or weekend, what is {x}?",
        "Say if the day {x} is weekday or weekend.",
        "Tell me, is {x} weekday or weekend?",
        "Is {x} a day of the weekend or a weekday?",
        "Would people call {x} weekday or weekend?",
    ),
    held_statements=("Weekend or weekday? The day {x} is",),
)
LENGTH = Relation(
    questions=(
        "How many days are [there |]in {x}?",
        "How many days does {x} have?",
        "How many days [has|long is] {x}?",
        "How long is {x} in days?",
        "What is the number of days in {x}?",
        "How many days does the month of {x} have?",
        "{x} has how many days?",
        "Number of days in {x}?",
        "[Tell me|Say] how many days {x} has.",
        "How many days are there in the month of {x}?",
        "In days, how long is {x}?",
    ),
    statements=(
        "The number of days in {x} is",
        "The days of {x} are",
        "In {x}, the number of days is",
        "The month of {x} has a number of days that is",
        "How many days in {x}? It is",
        "{x} ends on day number",
        "The last day of {x} is day number",
        "The last day of {x} is number",
    ),
    keys=("Days in {x}", "Number of days in {x}", "{x}, days"),
    reverse=(
        "{x} has {answer} days.",
        "There are {answer} days in {x}.",
        "The month of {x} has {answer} days.",
        "{answer} days make {x}.",
    ),
    held_questions=(
        "How many days are in the month of {x}?",
        "Tell me the number of days in {x}.",
        "What number of days does {x} have?",
        "The month of {x} has how many days?",
        "How many days long is the month of {x}?",
    ),
    held_statements=("The number of days that {x} has is",),
)
SEASON = Relation(
    questions=(
        "[What|Which] season is {x} in?",
        "In [what|which] season is {x}?",
        "What season is it in {x}?",
        "Which season does {x} belong to?",
        "{x} is in which season?",
        "What is the season in {x}?",
        "Is {x} in winter, spring, summer or autumn?",
        "[Tell me|Say|Name] the season of {x}.",
        "What season do we have in {x}?",
        "What time of the year is {x}, winter, spring, summer or autumn?",
    ),
    statements=(
        "{x} is in",
        "{x} is a month of",
        "The season in {x} is",
        "In {x} it is",
        "{x} belongs to",
        "The season of {x} is",
        "The month of {x} is part of",
        "In {x} we have",
    ),
    keys=("Season in {x}", "Season of {x}", "{x}, season"),
    reverse=(
        "In {answer} comes {x}.",
        "One month of {answer} is {x}.",
        "To {answer} belongs {x}.",
        "It is {answer} in {x}.",
    ),
    held_questions=(
        "Which season do we have in {x}?",
        "Which season does the month of {x} belong to?",
        "Tell me the season that {x} is in.",
        "The month of {x} is in which season?",
        "What season is the month of {x} part of?",
    ),
    held_statements=("The season that {x} belongs to is",),
)
COUNT = Relation(
    questions=(
        "How many {parts} are [there |]in {whole}?",
        "How many {parts} does {whole} have?",
        "How many {parts} [make|are] {whole}?",
        "{whole} has how many {parts}?",
        "How long is {whole} in {parts}?",
        "What is the number of {parts} in {whole}?",
        "How many {parts} has {whole}?",
        "Count the {parts} in {whole}: how many are there?",
        "Number of {parts} in {whole}?",
        "[Tell me|Say] how many {parts} {whole} has.",
        "How many {parts} are there in {whole}?",
    ),
    statements=(
        "The number of {parts} in {whole} is",
        "In {whole}, the number of {parts} is",
        "How many {parts} in {whole}? It is",
        "The {parts} of {whole} are",
        "{whole} has a number of {parts} that is",
        "{whole}, counted in {parts}, is",
        "The number of {parts} that make {whole} is",
        "Counted in {parts}, {whole} is",
    ),
    keys=("{parts} in {whole}", "{parts} in {whole}", "Number of {parts} in {whole}"),
    reverse=(
        "{whole} has {answer} {parts}.",
        "There are {answer} {parts} in {whole}.",
        "{answer} {parts} make {whole}.",
    ),
    held_questions=(
        "How many {parts} do you count in {whole}?",
        "Tell me the number of {parts} in a {bare}.",
        "What number of {parts} does {whole} have?",
        "{whole}: how many {parts} does it have?",
        "In {whole}, how many {parts} are there?",
    ),
    held_statements=("The number of {parts} that {whole} has is",),
)
TIME = Relation(
    questions=(
        "When do people [usually |mostly |]{x}?",
        "At what time of [the |]day do people {x}?",
        "What time of [the |]day do you {x}?",
        "When do you [usually |]{x}, in the morning, at noon, in the evening or at night?",
        "When do we {x}?",
        "What is the time of day to {x}?",
        "What time of day is it when people {x}?",
        "Which time of day is the time to {x}?",
        "What time of day is it when we {x}?",
        "People {x} at which time of day?",
    ),
    statements=(
        "The time of day when people {x} is",
        "The time to {x} is",
        "When people {x}, it is",
        "People {x} when it is",
        "You {x} when it is",
        "We {x} at the time of day called",
        "It is time to {x} when it is",
        "When we {x}, the time of day is",
    ),
    keys=("Time to {x}", "Time of day to {x}", "{x}"),
    reverse=("The {answer} is the time to {x}.", "{answer} is when people {x}.", "It is {answer} when we {x}."),
    held_questions=(
        "At which time of day do we {x}?",
        "What time of day is the time to {x}?",
        "Tell me when people {x}.",
        "When is the time of day to {x}?",
        "At which time of day do people usually {x}?",
    ),
    held_statements=("The time of day when you {x} is",),
)
HAPPENS = Relation(
    questions=(
        "What season is it when {x}?",
        "In [what|which] season can you say that {x}?",
        "Which season is it [when|if] {x}?",
        "It is the season when {x}. What season is it?",
        "Name the season when {x}.",
        "When {x}, what season is it?",
        "When {x}, which season is it?",
        "{x}: which season is it?",
        "[Tell me|Say] the season when {x}.",
        "In winter, spring, summer or autumn: when is it that {x}?",
    ),
    statements=(
        "The season when {x} is",
        "When {x}, it is",
        "When {x}, the season is",
        "It is that {x} in",
        "If {x}, it is",
        "The time when {x} is",
        "The time of the year when {x} is",
        "We say that {x} in",
    ),
    keys=("Season when {x}", "When {x}", "{x}"),
    reverse=("In {answer}, {x}.", "{answer} is the season when {x}.", "It is {answer} when {x}.", "In {answer} {x}."),
    held_questions=(
        "What is the season when {x}?",
        "If {x}, what season is it?",
        "Tell me what season it is when {x}.",
        "In which season is it that {x}?",
        "Which is the season when {x}?",
    ),
    held_statements=("The season of the year when {x} is",),
)


def _chain(names: Sequence[str], unit: str, step: int) -> list[Entry]:
    """Each name and the one that follows (or precedes) it."""
    n = len(names)
    return [Entry({"x": x, "unit": unit}, names[(i + step) % n], tuple(names)) for i, x in enumerate(names)]


def _positions(names: Sequence[str], unit: str, whole: str) -> list[Entry]:
    """Each place and the name at it; where the week begins with Sunday, the place is that of the name before."""
    fields = [{"nth": ORDINALS[i], "n": str(i + 1), "unit": unit, "whole": whole} for i in range(len(names))]
    return [
        Entry(f, name, tuple(set(names) - {names[i - 1]}))
        for i, (f, name) in enumerate(zip(fields, names, strict=True))
    ]


def _table(text: str) -> list[list[str]]:
    """Rows of a literal: cells by bars, rows by lines or two blanks."""
    return [row.strip().split("|") for line in text.splitlines() for row in line.split("  ") if row.strip()]


def _count_entries() -> list[Entry]:
    pool = ("7", "12", "24", "60", "4", "52", "2", "365", "100", "10", "30")
    return [
        Entry({"parts": parts, "whole": article(whole), "bare": whole}, n, pool) for parts, whole, n in _table(COUNTS)
    ]


def _tomorrows() -> list[Entry]:
    """The days around every day."""
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
    (4.0, TIME, [Entry({"x": x}, time, ("morning", "noon", "evening", "night")) for x, time in _table(TIMES)]),
    (4.0, HAPPENS, [Entry({"x": x}, season, SEASONS) for x, season in _table(WEATHER)]),
)
HELD_COUNTS = (14, 14, 10, 9, 6, 5, 8, 8, 7, 6, 7)


def _rows(rng: random.Random) -> Iterator[str]:
    """Days, months and seasons in their order."""
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
    """What is to be said of one month or one day."""
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


GROUPS = (
    "The weekend [is|has two days:] Saturday and Sunday.",
    "Saturday and Sunday are [the weekend|on the weekend|days of the weekend].",
    "Monday, Tuesday, Wednesday, Thursday and Friday are [weekdays|the weekdays|days of work].",
    "The [winter months|months of winter] are December, January and February.",
    "The [spring months|months of spring] are March, April and May.",
    "The [summer months|months of summer] are June, July and August.",
    "The [autumn months|months of autumn] are September, October and November.",
    "April, June, September and November have 30 days[|, and February has 28].",
    "January, March, May, July, August, October and December have 31 days.",
    "February has 28 days[|, and 29 in a leap year].",
    "The seasons are [spring, summer, autumn and winter|winter, spring, summer and autumn].",
    "The day begins with the morning. [Then comes|After the morning comes] noon, then the evening, then the night.",
    "In the morning people [wake up|eat breakfast], at noon they eat lunch, in the evening they eat dinner, and at night they sleep.",
)


def _groups(rng: random.Random) -> Iterator[str]:
    """Sentences about several days or months at once."""
    for pattern in rounds(GROUPS, rng):
        yield expand(pattern, rng)


def documents(rng: random.Random) -> Iterator[str]:
    """Training documents without end."""
    streams = [(weight, facts(relation, entries, rng)) for weight, relation, entries in RELATIONS]
    texts = [(weight / 6, reversed_statements(relation, entries, rng)) for weight, relation, entries in RELATIONS]
    return mixed(streams, [*texts, (3.0, _rows(rng)), (8.0, _portraits(rng)), (2.0, _groups(rng))], rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Questions in phrasings that no document uses."""
    questions = []
    for (_, relation, entries), n in zip(RELATIONS, HELD_COUNTS, strict=True):
        unique = list({(tuple(e.fields.items()), e.answer): e for e in entries}.values())
        questions += asked(relation, unique, n, rng)
    yield from items("calendar", questions)
