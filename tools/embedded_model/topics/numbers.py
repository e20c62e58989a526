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
    cells,
    facts,
    items,
    mixed,
    reversed_statements,
    sentence,
    sloppy,
    words,
)

NAMES = {
    int(number): name.replace("_", " ")
    for number, name in cells(
        """0|zero 1|one 2|two 3|three 4|four 5|five 6|six 7|seven 8|eight 9|nine 10|ten 11|eleven 12|twelve
        13|thirteen 14|fourteen 15|fifteen 16|sixteen 17|seventeen 18|eighteen 19|nineteen 20|twenty 30|thirty
        40|forty 50|fifty 60|sixty 70|seventy 80|eighty 90|ninety 100|one_hundred"""
    )
}
CHILDREN = ("Anna", "Mia", "Lisa", "Emma", "Sara", "Tom", "Ben", "Max", "Leo", "Paul")  # the first five are girls
THINGS = words(
    """apple|apples pear|pears egg|eggs book|books ball|balls coin|coins cookie|cookies flower|flowers pencil|pencils
    stone|stones cup|cups toy|toys"""
)

ADD = Relation(
    questions=(
        "What is {a} [plus|+] {b}?",
        "What is {a} [plus|+] {b}?",
        "How much is {a} [plus|+|and] {b}?",
        "[Add|Please add] {a} and {b}.",
        "[What is|What's|Find] the [sum|total] of {a} and {b}[?|, please.]",
        "What [do|would] {a} and {b} make[| together]?",
        "{a} [plus|+] {b} [is|equals|makes] what[| number]?",
        "What does {a} [plus|+] {b} [equal|give|make]?",
        "What [number |]do you get [if|when] you add {b} to {a}?",
        "{a} + {b} = ?",
        "[Calculate|Work out|Find] {a} [plus|+] {b}.",
        "If I have {a} and get {b} more, how many do I have[| together| in total]?",
        "Which number is {b} more than {a}?",
        "Can you [add {a} and {b}|tell me the sum of {a} and {b}]?",
        "[Please tell|Tell] me what {a} [plus|+] {b} is.",
    ),
    statements=(
        "{a} + {b} =",
        "{a} + {b} =",
        "{a} + {b} =",
        "{a} plus {b} [is|equals|makes]",
        "{a} plus {b} [is|equals|makes]",
        "{a} and {b} [make|are|is]",
        "The [sum|total] of {a} and {b} is",
        "[If|When] you add {b} to {a}, you get",
        "{a} and {b} more [make|makes|is]",
        "Together, {a} and {b} make",
        "Add {a} and {b} to get",
        "Adding {b} to {a} gives",
        "The result of {a} [plus|+] {b} is",
    ),
    keys=("{a} + {b}", "{a} plus {b}", "[Sum|Total] of {a} and {b}"),
    reverse=(
        "{answer} = {a} + {b}",
        "{answer} is {a} plus {b}.",
        "{answer} is the [sum|total] of {a} and {b}.",
        "{answer} is what you get when you add {b} to {a}.",
    ),
    held_questions=(
        "How much do you get when you add {a} and {b}?",
        "What number is {a} plus {b}?",
        "If you add {a} and {b}, what is the total?",
        "Please tell me the total of {a} plus {b}.",
        "Which number do {a} and {b} make together?",
    ),
    held_statements=(
        "If you add {a} and {b}, the sum is",
        "The total of {a} plus {b} equals",
        "Adding {a} and {b} makes",
    ),
)
TAKE = Relation(
    questions=(
        "What is {a} [minus|-] {b}?",
        "What is {a} [minus|-] {b}?",
        "How much is {a} [minus|-|less] {b}?",
        "[Take|Please take|Subtract] {b} from {a}.",
        "What is the difference between {a} and {b}?",
        "{a} [minus|-] {b} [is|equals|leaves] what[| number]?",
        "What does {a} [minus|-] {b} [equal|give|leave]?",
        "What [number |]do you get [if|when] you take {b} from {a}?",
        "{a} - {b} = ?",
        "[Calculate|Work out|Find] {a} [minus|-] {b}.",
        "If I have {a} and [lose|give away] {b}, how many [do I have left|are left]?",
        "Which number is {b} less than {a}?",
        "How much is left [if|when] you take {b} away from {a}?",
        "Can you [subtract|take] {b} from {a}?",
        "[Please tell|Tell] me what {a} [minus|-] {b} is.",
    ),
    statements=(
        "{a} - {b} =",
        "{a} - {b} =",
        "{a} - {b} =",
        "{a} minus {b} [is|equals|leaves]",
        "{a} minus {b} [is|equals|leaves]",
        "{a} less {b} is",
        "The difference between {a} and {b} is",
        "[If|When] you take {b} from {a}, you get",
        "{a} take away {b} [is|leaves]",
        "Take {b} away from {a} to get",
        "Subtract {b} from {a} and you have",
        "The result of {a} [minus|-] {b} is",
    ),
    keys=("{a} - {b}", "{a} minus {b}", "Difference between {a} and {b}"),
    reverse=(
        "{answer} = {a} - {b}",
        "{answer} is {a} minus {b}.",
        "{answer} is the difference between {a} and {b}.",
        "{answer} is what is left when you take {b} from {a}.",
    ),
    held_questions=(
        "How much do you get when you subtract {b} from {a}?",
        "What number is {a} minus {b}?",
        "If you take {b} from {a}, what is left?",
        "Please tell me the result of {a} minus {b}.",
        "How much is left of {a} when you take away {b}?",
    ),
    held_statements=("If you subtract {b} from {a}, you get", "The difference {a} minus {b} is", "{a} minus {b} gives"),
)
AFTER = Relation(
    questions=(
        "[What|Which] [number |]comes [right |just |]after {a}?",
        "What is the [next number|number] after {a}?",
        "What follows {a}[| when you count]?",
        "Which number follows {a}?",
        "What comes next after {a}?",
        "Count on: {a}, then what?",
        "If you count, what comes after {a}?",
        "What do you say after {a} when you count?",
        "Which number is [right|just] after {a}?",
        "Name the number that comes after {a}.",
    ),
    statements=(
        "After {a} comes",
        "The number [right |just |]after {a} is",
        "The [next number|number that comes] after {a} is",
        "{a} is followed by",
        "When you count, after {a} [comes|you say]",
        "Next after {a} [is|comes]",
        "{a} comes [right |just |]before",
        "{a} is the number before",
    ),
    keys=("After {a}", "Next after {a}", "Number after {a}"),
    reverse=("{answer} comes [right |just |]after {a}.", "{answer} follows {a}.", "{answer} is the number after {a}."),
    held_questions=(
        "When counting, which number comes after {a}?",
        "Which number do you say right after {a}?",
        "Tell me the number that follows {a}.",
        "I count to {a}. What is the next number?",
        "After {a}, which number is next?",
    ),
    held_statements=("When you count, {a} is followed by",),
)
BEFORE = Relation(
    questions=(
        "[What|Which] [number |]comes [right |just |]before {a}?",
        "What is the number before {a}?",
        "Which number is [right|just] before {a}?",
        "If you count, what comes before {a}?",
        "What do you say before {a} when you count?",
        "Name the number that comes before {a}.",
        "Which number is followed by {a}?",
        "Count back: {a}, then what?",
        "What comes after {a} if you count back?",
        "What number stands [right |]before {a}?",
    ),
    statements=(
        "Before {a} comes",
        "The number [right |just |]before {a} is",
        "The number that comes before {a} is",
        "When you count, before {a} [comes|you say]",
        "{a} comes [right |just |]after",
        "{a} follows",
        "{a} is the number after",
        "Counting back, after {a} comes",
    ),
    keys=("Before {a}", "Number before {a}"),
    reverse=(
        "{answer} comes [right |just |]before {a}.",
        "{answer} is the number before {a}.",
        "{answer} is followed by {a}.",
    ),
    held_questions=(
        "When counting, which number comes before {a}?",
        "Which number do you say right before {a}?",
        "Tell me the number that comes before {a}.",
        "What number do you say just before {a} when you count?",
        "Before {a}, which number comes?",
    ),
    held_statements=("When you count, {a} comes right after",),
)
DOUBLE = Relation(
    questions=(
        "What is [double|twice] {a}?",
        "What is the double of {a}?",
        "How much is [twice|double|two times] {a}?",
        "What is two times {a}?",
        "What do you get [if|when] you double {a}?",
        "Which number is [twice|double] {a}?",
        "[Please double|Double] {a}.",
        "[Calculate|Find|Work out] [twice|double] {a}.",
        "{a} [times two|doubled] is what?",
        "Tell me the double of {a}.",
    ),
    statements=(
        "[Double|Twice|Two times] {a} is",
        "The double of {a} is",
        "If you double {a}, you get",
        "Two times {a} [is|makes|equals]",
        "{a} doubled [is|makes]",
        "{a} is half of",
        "Half of a number is {a}; the number is",
        "{a} times two [is|equals]",
    ),
    keys=("Double of {a}", "Twice {a}", "Double {a}"),
    reverse=("{answer} is [double|twice] {a}.", "{answer} is the double of {a}.", "{answer} is two times {a}."),
    held_questions=(
        "How much do you get when you double {a}?",
        "What number is double {a}?",
        "If you double {a}, what is the result?",
        "Please tell me what twice {a} is.",
        "{a} times two makes what number?",
    ),
    held_statements=("The result of two times {a} is",),
)
HALF = Relation(
    questions=(
        "What is [half of|a half of|one half of] {a}?",
        "How much is half of {a}?",
        "What do you get [if|when] you [halve {a}|divide {a} by two]?",
        "Which number is half of {a}?",
        "[Please halve|Halve] {a}.",
        "[Calculate|Find|Work out] half of {a}.",
        "{a} divided by two is what?",
        "What is {a} divided by two?",
        "Tell me the half of {a}.",
        "What is the half of {a}?",
    ),
    statements=(
        "Half of {a} is",
        "The half of {a} is",
        "If you halve {a}, you get",
        "{a} divided by two [is|makes|equals]",
        "One half of {a} is",
        "{a} is [twice|double|two times]",
        "{a} is the double of",
        "When you divide {a} by two, you get",
    ),
    keys=("Half of {a}", "{a} divided by two"),
    reverse=("{answer} is half of {a}.", "{answer} is the half of {a}.", "{answer} is {a} divided by two."),
    held_questions=(
        "How much do you get when you halve {a}?",
        "What number is half of {a}?",
        "If you divide {a} by two, what is the result?",
        "Please tell me what half of {a} is.",
        "{a} divided by two makes what number?",
    ),
    held_statements=("The result of {a} divided by two is",),
)
PARITY = Relation(
    questions=(
        "Is {a} [even or odd|odd or even]?",
        "Is {a} an [even or an odd|odd or an even] number?",
        "Is the number {a} [even or odd|odd or even]?",
        "What is {a}, [even or odd|odd or even]?",
        "{a}: [even or odd|odd or even]?",
        "What kind of number is {a}, [even or odd|odd or even]?",
        "[Tell me|Say] if {a} is [even or odd|odd or even].",
        "Would you call {a} [even or odd|odd or even]?",
        "Even or odd: {a}?",
        "Odd or even: {a}?",
    ),
    statements=(
        "{a} is",
        "The number {a} is",
        "As a number, {a} is",
        "{a} is a number that is",
        "Even or odd? {a} is",
        "We call the number {a}",
        "We say that {a} is",
        "Of even and odd, {a} is",
    ),
    keys=("{a}, even or odd", "Even or odd, {a}", "{a}, odd or even"),
    reverse=("{a} is an {answer} number.", "One {answer} number is {a}.", "Among the {answer} numbers is {a}."),
    held_questions=(
        "Tell me, is {a} odd or even?",
        "Is {a} a number that is even or odd?",
        "Even or odd, what is {a}?",
        "Say if the number {a} is odd or even.",
        "Would you say {a} is even or odd?",
    ),
    held_statements=("Odd or even? The number {a} is",),
)
LARGER = Relation(
    questions=(
        "Which is [{large}|the {large} number], {a} or {b}?",
        "Which number is {large}, {a} or {b}?",
        "What is {large}, {a} or {b}?",
        "Which of {a} and {b} is {large}?",
        "{a} or {b}: which is {large}?",
        "Of {a} and {b}, which is {large}?",
        "Which one is {large}: {a} or {b}?",
        "Is {a} or {b} {large}?",
        "[Tell me|Name|Say] the {large} [number|one] of {a} and {b}.",
        "Between {a} and {b}, which number is {large}?",
        "Here are two numbers: {a} and {b}. Which is {large}?",
        "Compare {b} and {a}: which one is {large}?",
    ),
    statements=(
        "Of {a} and {b}, the {large} [number|one] is",
        "The {large} [number|one] of {a} and {b} is",
        "Between {a} and {b}, the {large} number is",
        "If you compare {a} and {b}, the {large} [number|one] is",
        "{a} or {b}: the {large} [number|one] is",
        "Compare {a} with {b}: the {large} one is",
        "Out of {a} and {b}, the {large} is",
        "The number that is {large}, {a} or {b}, is",
    ),
    keys=("{large} of {a} and {b}", "{large}, {a} or {b}"),
    reverse=(
        "{answer} is {large} than {other}.",
        "{other} is not {large} than {answer}.",
        "{answer} is the {large} one of {a} and {b}.",
    ),
    held_questions=(
        "Which number is the {large} one, {a} or {b}?",
        "Tell me which is {large}, {a} or {b}.",
        "Here are {a} and {b}. Which one is {large}?",
        "Compare {a} and {b}. Which number is {large}?",
        "If you compare {a} with {b}, which is {large}?",
    ),
    held_statements=("Compare {a} and {b}: the {large} number is",),
)
SPELL = Relation(
    questions=(
        "How do you [write|spell] {a} [in words|as a word|in letters]?",
        "What is {a} [in words|as a word]?",
        "[Write|Spell] {a} [in words|as a word|in letters].",
        "What is the [word|name] [for|of] {a}?",
        "Which word [means|stands for] {a}?",
        "{a} in words?",
        "How do you say {a}?",
        "What word do you write for {a}?",
        "How is {a} written [in words|as a word]?",
        "What is the number {a} called?",
    ),
    statements=(
        "{a} in words is",
        "The word for {a} is",
        "We write {a} in words as",
        "The name of the number {a} is",
        "{a} is called",
        "{a} is written as",
        "{a} as a word is",
        "You say {a} as",
    ),
    keys=("{a}", "{a} in words", "Word for {a}"),
    reverse=("{answer} is [{a}|the word for {a}|written {a}].", "{answer} ({a})", "{answer} = {a}"),
    held_questions=(
        "Which word do you write for {a}?",
        "Tell me the word for {a}.",
        "What is the number {a} in words?",
        "How would you write the number {a} as a word?",
        "What is the name of {a} in words?",
    ),
    held_statements=("The number {a} in words is",),
)
DIGITS = Relation(
    questions=(
        "How do you write {a} [in digits|as a number]?",
        "What is {a} [in digits|as a number]?",
        "Write {a} [in digits|as a number].",
        "Which number is {a}?",
        "Which [digits|number] [mean|stands for] {a}?",
        "{a} in digits?",
        "What [number|digits] do you write for {a}?",
        "How is {a} written in digits?",
        "What are the digits of {a}?",
        "Give {a} as a number.",
    ),
    statements=(
        "{a} in digits is",
        "The digits for {a} are",
        "We write {a} in digits as",
        "{a} is the number",
        "{a} is written",
        "{a} as a number is",
        "The word {a} means",
        "In digits, {a} is",
    ),
    keys=("{a}", "{a} in digits", "Number {a}"),
    reverse=("{answer} is [{a}|read as {a}|called {a}].", "{answer} ({a})", "{answer} = {a}"),
    held_questions=(
        "Which digits do you write for {a}?",
        "Tell me the digits for {a}.",
        "What is the number {a} in digits?",
        "How would you write the word {a} as a number?",
        "Please give me {a} in digits.",
    ),
    held_statements=("The number {a} in digits is",),
)

GAINS = (
    "{n} has {a}. {p} [gets|finds|buys] {b} more. How many {things} does {p2} have now?",
    "{n} has {a}. {m} gives {o} {b}. How many {things} does {n} have[| now]?",
    "{n} has {a} and {m} has {b}. How many {things} do they have [together|in total]?",
    "There are {a} on the table. {n} puts {b} more on the table. How many {things} are there[| now]?",
    "There are {a} in a box and {b} in a bag. How many {things} are there [in total|together]?",
    "{n} [buys|finds] {a} today and {b} [tomorrow|the next day]. How many {things} is that [in total|together]?",
    "{n} had {a}. Then {p2} [found|got|bought] {b} more. How many {things} did {p2} have then?",
    "How many {things} do {n} and {m} have if {n} has {a} and {m} has {b}?",
)
LOSSES = (
    "{n} has {a}. {p} [loses|gives away|sells] {b}. How many {things} does {p2} have [now|left]?",
    "{n} has {a}. {p} gives {b} to {m}. How many {things} does {n} have[| left| now]?",
    "There are {a} on the table. {n} takes {b} away. How many {things} are [left|on the table now]?",
    "There are {a} in a [box|bag]. {n} takes {b} out. How many {things} are [left|still in it]?",
    "{n} had {a}. Then {p2} [lost|sold|gave away] {b}. How many {things} [were left|did {p2} have then]?",
    "{n} has {a} and {m} takes {b} of them. How many {things} are left?",
    "How many {things} does {n} have left if {p2} has {a} and gives away {b}?",
    "Of {a}, {n} loses {b}. How many {things} are left?",
)
HELD_GAINS = (
    "{n} has {a} and then gets {b} more. How many {things} does {p2} have in total?",
    "{n} finds {a} and {m} finds {b}. How many {things} do they have together now?",
    "In a box there are {a}. {n} puts {b} more in it. How many {things} are in the box now?",
    "{m} has {a}. {n} gives {m} {b} more. How many {things} does {m} have now?",
    "{n} buys {a}, and then {b} more. How many {things} is that now?",
)
HELD_LOSSES = (
    "{n} has {a} and then loses {b}. How many {things} are left now?",
    "{n} finds {a} and gives {m} {b} of them. How many {things} does {n} still have?",
    "In a box there are {a}. {n} takes {b} of them away. How many {things} are in the box now?",
    "{n} buys {a} and sells {b}. How many {things} does {p2} have left?",
    "{m} had {a}. Then {m} gave {b} away. How many {things} were left?",
)


def _near(n: int) -> list[int]:
    """Numbers that could be taken for n."""
    return (
        [k for k in (n - 3, n - 2, n - 1, n + 1, n + 2, n + 3) if 0 <= k <= 20]
        if n <= 20
        else [k for k in NAMES if k > 20]
    )


def _entries(rows: Sequence[tuple[dict[str, int], int]]) -> list[Entry]:
    """Numbers into numerals: every row once in digits and once in words."""
    made = [Entry({k: str(v) for k, v in f.items()}, str(n), tuple(map(str, _near(n)))) for f, n in rows]
    return made + [
        Entry({k: NAMES[v] for k, v in f.items()}, NAMES[n], tuple(NAMES[k] for k in _near(n))) for f, n in rows
    ]


def _compared() -> list[Entry]:
    """Every two numbers with each word of comparison, in digits and in words."""
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


def _counted(n: int, thing: str, *, spelled: bool) -> str:
    """A number of things: "3 apples", "one apple"."""
    singular, plural = thing.split("|")
    return f"{NAMES[n] if spelled else n} {singular if n == 1 else plural}"


def _problem(patterns: Sequence[str], a: int, b: int, result: int, rng: random.Random) -> tuple[str, Entry]:
    """A word problem about two children and some things, and its entry."""
    thing, spelled = rng.choice(THINGS), rng.random() < 0.4
    n, m = rng.sample(CHILDREN, 2)
    she = CHILDREN.index(n) < 5
    fields = {"n": n, "m": m, "p": "She" if she else "He", "p2": "she" if she else "he", "o": "her" if she else "him"}
    fields |= {"a": _counted(a, thing, spelled=spelled), "things": thing.split("|")[1]}
    fields["b"] = NAMES[b] if spelled else str(b)
    show = NAMES.__getitem__ if spelled else str
    wrong = tuple(show(k) for k in {*_near(result), a, b} - {result})
    return sentence(rng.choice(patterns), rng, fields), Entry(fields, show(result), wrong)


def _problem_rows() -> list[tuple[int, int, int]]:
    """Numbers of word problems: (a, b, sum) and (a, b, difference)."""
    gains = [(a, b, a + b) for a in range(2, 20) for b in range(1, 21 - a)]
    return gains + [(a, b, a - b) for a in range(2, 21) for b in range(1, a)]


def _problems(rng: random.Random) -> Iterator[Fact]:
    """Word problems without end."""
    for a, b, result in rounds(_problem_rows(), rng):
        question, entry = _problem(GAINS if result > a else LOSSES, a, b, result, rng)
        answer = entry.answer
        sign = "+" if result > a else "-"
        story = f"{question} {rng.choice(('The answer is', f'{a} {sign} {b} =' if answer.isdigit() else 'It is'))}"
        yield Fact(sloppy(question, rng), story, question, answer, wrong_answers(answer, entry.wrong, rng))


def _show(rng: random.Random) -> dict[int, str]:
    return NAMES if rng.random() < 0.4 else {n: str(n) for n in NAMES}


def _counting(rng: random.Random) -> Iterator[str]:
    """Rows of numbers: up, down, in twos, in tens; and the odd and even ones."""
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
    """The sums and differences of three numbers, in signs, in words, or in both."""
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
    """A run of sums or differences with one number fixed."""
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
    """What is to be said of one number."""
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
    """Training documents without end."""
    streams = [(weight, facts(relation, entries, rng)) for weight, relation, entries in RELATIONS]
    texts = [(weight / 12, reversed_statements(relation, entries, rng)) for weight, relation, entries in RELATIONS]
    texts += [(4.0, _counting(rng)), (12.0, _families(rng)), (10.0, _tables(rng)), (4.0, _portraits(rng))]
    return mixed([*streams, (16.0, _problems(rng))], texts, rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Questions in phrasings that no document uses."""
    questions = []
    for (_, relation, entries), n in zip(RELATIONS, HELD_COUNTS, strict=True):
        questions += asked(relation, entries, n, rng)
    layouts = ("Q: <q>\nA:", "Question: <q>\nAnswer:", "<q>\nAnswer:")
    for i, (a, b, result) in enumerate(rng.sample(_problem_rows(), 26)):
        patterns = HELD_GAINS if result > a else HELD_LOSSES
        text, entry = _problem((patterns[i % len(patterns)],), a, b, result, rng)
        questions.append(
            SelectRequest(text, layouts[i % 3], entry.answer, wrong_answers(entry.answer, entry.wrong, rng))
        )
    yield from items("numbers", questions)
