"""Numbers from zero to twenty and the tens to a hundred: names, order, sums, differences, doubles, halves, word problems."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from embedded_model.phrases import Fact, Item, rounds, wrong_answers
from embedded_model.phrasings import (
    Entry,
    Relation,
    SelectRequest,
    asked,
    drawn,
    facts,
    items,
    mixed,
    reversed_statements,
    sentence,
    sloppy,
)
from embedded_model.tables import patterns, read

TABLES = read("numbers")
NAMES = {int(number): name for number, name in TABLES["names"].rows(2)}
CHILDREN = ("Anna", "Mia", "Lisa", "Emma", "Sara", "Tom", "Ben", "Max", "Leo", "Paul")  # the first five are girls
THINGS = TABLES["things"].rows(2)

ADD = Relation(**patterns("numbers", "add"))
TAKE = Relation(**patterns("numbers", "take"))
AFTER = Relation(**patterns("numbers", "after"))
BEFORE = Relation(**patterns("numbers", "before"))
DOUBLE = Relation(**patterns("numbers", "double"))
HALF = Relation(**patterns("numbers", "half"))
PARITY = Relation(**patterns("numbers", "parity"))
LARGER = Relation(**patterns("numbers", "larger"))
SPELL = Relation(**patterns("numbers", "spell"))
DIGITS = Relation(**patterns("numbers", "digits"))


def _near(n: int) -> list[int]:
    """Return the numbers that could be mistaken for n."""
    return (
        [k for k in (n - 3, n - 2, n - 1, n + 1, n + 2, n + 3) if 0 <= k <= 20]
        if n <= 20
        else [k for k in NAMES if k > 20]
    )


def _entries(rows: Sequence[tuple[dict[str, int], int]]) -> list[Entry]:
    """Return the entries of rows, every row once in digits and once in words."""
    made = [Entry({k: str(v) for k, v in f.items()}, str(n), tuple(map(str, _near(n)))) for f, n in rows]
    return made + [
        Entry({k: NAMES[v] for k, v in f.items()}, NAMES[n], tuple(NAMES[k] for k in _near(n))) for f, n in rows
    ]


def _compared() -> list[Entry]:
    """Return every two numbers with each word of comparison, in digits and in words."""
    made = []
    for a in NAMES:
        for b in NAMES:
            for larger, word in ((True, "larger"), (True, "bigger"), (True, "greater"), (False, "smaller")):
                if a != b:
                    answer, other = (a, b) if (a > b) == larger else (b, a)
                    for show in (NAMES, {n: str(n) for n in NAMES}):
                        fields = {"a": show[a], "b": show[b], "large": word, "other": show[other]}
                        made.append(Entry(fields, show[answer], (show[other],)))
    return made


def _parities() -> list[Entry]:
    rows = [(show, ("even", "odd")[n % 2]) for n in NAMES for show in (str(n), NAMES[n])]
    return [Entry({"a": show}, kind, ("odd" if kind == "even" else "even",)) for show, kind in rows]


SUMS = _entries([({"a": a, "b": b}, a + b) for a in range(21) for b in range(21 - a)])
DIFFERENCES = _entries([({"a": a, "b": b}, a - b) for a in range(21) for b in range(a + 1)])
RELATIONS = (
    (30.0, ADD, SUMS),
    (30.0, TAKE, DIFFERENCES),
    (5.0, AFTER, _entries([({"a": n}, n + 1) for n in range(20)])),
    (5.0, BEFORE, _entries([({"a": n}, n - 1) for n in range(1, 21)])),
    (3.0, DOUBLE, _entries([({"a": n}, 2 * n) for n in range(11)])),
    (3.0, HALF, _entries([({"a": 2 * n}, n) for n in range(11)])),
    (3.0, PARITY, _parities()),
    (8.0, LARGER, _compared()),
    (4.0, SPELL, [Entry({"a": str(n)}, NAMES[n], tuple(NAMES[k] for k in _near(n))) for n in NAMES]),
    (4.0, DIGITS, [Entry({"a": NAMES[n]}, str(n), tuple(map(str, _near(n)))) for n in NAMES]),
)
HELD_COUNTS = (24, 24, 9, 9, 7, 7, 8, 12, 8, 8)


def _counted(n: int, thing: list[str], *, spelled: bool) -> str:
    """Return a number of things: "3 apples", "one apple"."""
    singular, plural = thing
    return f"{NAMES[n] if spelled else n} {singular if n == 1 else plural}"


def _problem(patterns: Sequence[str], a: int, b: int, result: int, rng: random.Random) -> tuple[str, Entry]:
    """Return a word problem about two children and some things, and its entry."""
    thing, spelled = rng.choice(THINGS), rng.random() < 0.4
    n, m = rng.sample(CHILDREN, 2)
    she = CHILDREN.index(n) < 5
    fields = {"n": n, "m": m, "p": "She" if she else "He", "p2": "she" if she else "he", "o": "her" if she else "him"}
    fields |= {"a": _counted(a, thing, spelled=spelled), "things": thing[1]}
    fields["b"] = NAMES[b] if spelled else str(b)
    show = NAMES.__getitem__ if spelled else str
    wrong = tuple(show(k) for k in {*_near(result), a, b} - {result})
    return sentence(rng.choice(patterns), rng, fields), Entry(fields, show(result), wrong)


def _problem_rows() -> list[tuple[int, int, int]]:
    """Return numbers of word problems: (a, b, sum) and (a, b, difference)."""
    gains = [(a, b, a + b) for a in range(2, 20) for b in range(1, 21 - a)]
    return gains + [(a, b, a - b) for a in range(2, 21) for b in range(1, a)]


def _problems(rng: random.Random) -> Iterator[Fact]:
    """Yield word problems without end."""
    for a, b, result in rounds(_problem_rows(), rng):
        question, entry = _problem(TABLES["gains" if result > a else "losses"], a, b, result, rng)
        answer = entry.answer
        sign = "+" if result > a else "-"
        story = f"{question} {rng.choice(('The answer is', f'{a} {sign} {b} =' if answer.isdigit() else 'It is'))}"
        yield Fact(sloppy(question, rng), story, question, answer, wrong_answers(answer, entry.wrong, rng))


def _show(rng: random.Random) -> dict[int, str]:
    return NAMES if rng.random() < 0.4 else {n: str(n) for n in NAMES}


def _counting(rng: random.Random) -> Iterator[str]:
    """Yield rows of numbers: up, down, in twos, in tens; and the odd and even ones."""
    rows = (
        [range(low, high) for low in range(10) for high in range(low + 5, 22, 3)]
        + [range(high, low, -1) for low in range(-1, 9) for high in range(low + 5, 21, 3)]
        + [range(0, 21, 2), range(1, 20, 2), range(20, -1, -2), range(10, 101, 10), range(100, 9, -10)]
    )
    heads = {1: "Count [from {a} to {b}|up|on]: ", -1: "Count [back from {a} to {b}|back|down]: ", 2: "Numbers: "}
    for row in rounds(rows, rng):
        show = _show(rng)
        fields = {"a": show[row[0]], "b": show[row[-1]]}
        head = sentence(heads.get(row.step, "Count: "), rng, fields) if rng.random() < 0.6 else ""
        if row in {range(0, 21, 2), range(1, 20, 2)}:
            head = f"{'Odd' if row[0] else 'Even'} numbers: "
        text = rng.choice((", ", " ", ", ")).join(show[n] for n in row)
        yield head + text if head else text[0].upper() + text[1:]


def _families(rng: random.Random) -> Iterator[str]:
    """Yield the sums and differences of three numbers, in signs, in words, or in both."""
    for a, b in rounds([(x, y) for x in range(21) for y in range(21 - x)], rng):
        c, form = a + b, rng.random()
        signs = [f"{a} + {b} = {c}", f"{b} + {a} = {c}", f"{c} - {a} = {b}", f"{c} - {b} = {a}"]
        s = NAMES
        is_ = rng.choice(("is", "is", "equals", "makes"))
        spoken = [f"{s[a]} plus {s[b]} {is_} {s[c]}", f"{s[b]} plus {s[a]} {is_} {s[c]}"]
        spoken += [f"{s[c]} minus {s[a]} is {s[b]}", f"{s[c]} minus {s[b]} is {s[a]}"]
        spoken = [text.capitalize() for text in spoken]
        if form < 0.45:
            yield rng.choice(("\n", ", ", "\n")).join(rng.sample(signs, rng.randint(2, 4)))
        elif form < 0.75:
            yield ". ".join(rng.sample(spoken, rng.randint(2, 4))) + "."
        else:
            i = rng.randrange(4)
            yield f"{signs[i]}{rng.choice((': ', '. '))}{spoken[i]}."


def _tables(rng: random.Random) -> Iterator[str]:
    """Yield a run of sums or differences with one number fixed."""
    for n, plus in rounds([(n, plus) for n in range(21) for plus in (True, False)], rng):
        show = _show(rng)
        sign = ("+" if plus else "-") if show is not NAMES else ("plus" if plus else "minus")
        equals = "=" if show is not NAMES else "is"
        most = 20 - n if plus else n
        low = rng.randint(0, max(0, most - 3))
        rows = [(n, k, n + k if plus else n - k) for k in range(low, min(most, low + rng.randint(4, 9)) + 1)]
        if plus and rng.random() < 0.5:
            rows = [(k, n, c) for _, k, c in rows]
        if rng.random() < 0.3:
            rng.shuffle(rows)
        yield rng.choice(("\n", ", ", "; ")).join(f"{show[a]} {sign} {show[b]} {equals} {show[c]}" for a, b, c in rows)


def _portraits(rng: random.Random) -> Iterator[str]:
    """Yield what can be said about one number."""
    for n in rounds(range(1, 20), rng):
        show = _show(rng)
        lines = [
            f"{show[n]} is {'odd' if n % 2 else 'even'}.",
            f"{show[n]} comes after {show[n - 1]} and before {show[n + 1]}.",
            f"{show[n]} is larger than {show[rng.randrange(n)]} and smaller than {show[rng.randint(n + 1, 20)]}.",
            f"The number before {show[n]} is {show[n - 1]}, the number after {show[n]} is {show[n + 1]}.",
            f"The word for {n} is {NAMES[n]}." if rng.random() < 0.5 else f"{NAMES[n]} is written {n}.",
        ]
        if n <= 10:
            lines.append(f"Double {show[n]} is {show[2 * n]}, and half of {show[2 * n]} is {show[n]}.")
        chosen = rng.sample(lines, rng.randint(2, len(lines)))
        yield " ".join(line[0].upper() + line[1:] for line in chosen)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield training documents without end."""
    streams = [(weight, facts(relation, entries, rng)) for weight, relation, entries in RELATIONS]
    texts = [(weight / 12, reversed_statements(relation, entries, rng)) for weight, relation, entries in RELATIONS]
    texts += [(4.0, _counting(rng)), (12.0, _families(rng)), (10.0, _tables(rng)), (4.0, _portraits(rng))]
    return mixed([*streams, (16.0, _problems(rng))], texts, rng)


def known_facts(rng: random.Random) -> Iterator[Fact]:
    """Yield the facts of the documents, without end."""
    streams = [(weight, facts(relation, entries, rng)) for weight, relation, entries in RELATIONS]
    return drawn([*streams, (16.0, _problems(rng))], rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield questions in phrasings that no document uses."""
    questions = []
    for (_, relation, entries), n in zip(RELATIONS, HELD_COUNTS, strict=True):
        questions += asked(relation, entries, n, rng)
    layouts = ("Q: <q>\nA:", "Question: <q>\nAnswer:", "<q>\nAnswer:")
    for i, (a, b, result) in enumerate(rng.sample(_problem_rows(), 26)):
        patterns = TABLES["held-out gains" if result > a else "held-out losses"]
        text, entry = _problem((patterns[i % len(patterns)],), a, b, result, rng)
        questions.append(
            SelectRequest(text, layouts[i % 3], entry.answer, wrong_answers(entry.answer, entry.wrong, rng))
        )
    yield from items("numbers", questions)
