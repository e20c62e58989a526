"""Common sense as yes and no: what can do what, what is a kind of what, which is bigger, what has and does what."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from embedded_model.forms import chat, question_answer
from embedded_model.phrases import Item, a, rounds
from embedded_model.phrasings import HELD_LAYOUTS, SelectRequest, items, sentence, sloppy
from embedded_model.tables import patterns, read

TABLES = read("yes_no")
PLURALS = dict(TABLES["plurals"].rows(2))
UNCLEAR = {tuple(pair) for pair in TABLES["unclear kinds"].rows(2)}


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that is true or not; fields for the patterns of its kind."""

    fields: dict[str, str]
    true: bool


@dataclass(frozen=True, slots=True)
class Wording:
    """How a kind of claim is asked (questions, held), said (yes, no: true sentences) and claimed (claims: true or not)."""

    questions: tuple[str, ...]
    claims: tuple[str, ...]
    yes: tuple[str, ...]
    no: tuple[str, ...]
    held: tuple[str, ...]


CAN = Wording(**patterns("yes_no", "can"))
HAS = Wording(**patterns("yes_no", "has"))
IS = Wording(**patterns("yes_no", "is"))
KIND = Wording(**patterns("yes_no", "kind"))
SIZE = Wording(**patterns("yes_no", "size"))


def _the(noun: str) -> str:
    """Return a noun of the tables with its article: "a dog", "an owl", "ice" (written
    "ice-"), "the sun".
    """
    if noun[-1] in "-~":
        return noun[:-1] if noun[-1] == "-" else f"being {a(noun[:-1])}"
    return noun if noun.startswith("the ") else a(noun)


def _many(noun: str) -> str:
    """Return the plural, or the noun itself if it has none."""
    if noun.endswith("-") or noun.startswith("the "):
        return _the(noun)
    if noun in PLURALS:
        return PLURALS[noun]
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeo" else f"{noun}s"


def _by_table(table: str) -> Callable[[random.Random], Iterator[Claim]]:
    """Return claims of a table of yes and no."""
    rows = [[cell.split(", ") for cell in row] for row in TABLES[table].rows(3)]

    def claims(rng: random.Random) -> Iterator[Claim]:
        weighted = [(row, true) for row in rows for true in (True, False) for _ in range(max(len(row[1]), len(row[2])))]
        streams = {(row[0][0], true): rounds(row[1] if true else row[2], rng) for row in rows for true in (True, False)}
        for row, true in rounds(weighted, rng):
            verb, noun = row[0][0], next(streams[row[0][0], true])
            fields = {"x": _the(noun), "xs": _many(noun), "v": verb}
            fields["y"] = _the(rng.choice([other for other in row[1] if other != noun]))
            yield Claim(fields, true)

    return claims


def _lists(table: str) -> dict[str, list[str]]:
    """Return a table of names and their members."""
    return {name: members.split(", ") for name, members in TABLES[table].rows(2)}


def _kinds(rng: random.Random) -> Iterator[Claim]:
    """Yield claims that something is of a kind: the right one, a wider one, or a wrong
    one.
    """
    members = _lists("kinds")
    kind_of = {noun: kind for kind, nouns in members.items() for noun in nouns}
    wider = _lists("wider kinds")
    narrow = {kind: [kind, *(wide for wide, parts in wider.items() if kind in parts)] for kind in members}
    unlike = {
        kind: sorted(k for k in {*members, *wider} - set(narrow[kind]) if (k, kind) not in UNCLEAR) for kind in members
    }
    alike = {**members, **{wide: [noun for part in parts for noun in members[part]] for wide, parts in wider.items()}}
    for noun, true in rounds([(noun, true) for noun in kind_of for true in (True, False)], rng):
        own = kind_of[noun]
        kind = rng.choice([own, *narrow[own]] if true else unlike[own])
        like = rng.choice([other for other in alike[kind] if other != noun])
        fields = {"x": _the(noun), "v": kind if kind == "food" else a(kind), "k": kind.removeprefix("piece of ")}
        yield Claim({**fields, "y": _the(like)}, true)


def _sizes(rng: random.Random) -> Iterator[Claim]:
    """Yield claims that one thing is bigger or smaller than another."""
    ranks = [(noun, i) for i, line in enumerate(TABLES["sizes"]) for noun in line.split(", ")]
    words = (("bigger", "smaller"), ("larger", "smaller"), ("bigger", "smaller"))
    others = {rank: [entry for entry in ranks if abs(entry[1] - rank) > 1] for _, rank in ranks}
    for noun, rank in rounds(ranks, rng):
        other, its_rank = rng.choice(others[rank])
        up, down = rng.choice(words)
        bigger = rng.random() < 0.5
        v, u = (up, down) if bigger else (down, up)
        yield Claim({"x": _the(noun), "y": _the(other), "v": v, "u": u}, (rank > its_rank) == bigger)


GROUPS: tuple[tuple[float, Wording, Callable[[random.Random], Iterator[Claim]], int], ...] = (
    (26.0, CAN, _by_table("abilities"), 34),
    (17.0, HAS, _by_table("parts"), 24),
    (17.0, IS, _by_table("qualities"), 22),
    (22.0, KIND, _kinds, 24),
    (22.0, SIZE, _sizes, 20),
)
CLAIM_LAYOUTS = (
    ("Is this right? <c>\nAnswer: ", "Yes", "No"),
    ("Is it true? <c> ", "Yes", "No"),
    ("Q: Is this true? <c>\nA: ", "Yes", "No"),
    ("Question: Is this right? <c>\nAnswer: ", "Yes", "No"),
    ("Claim: <c>\nTrue: ", "Yes", "No"),
    ("True or false: <c>\nAnswer: ", "True", "False"),
    ("Statement: <c>\nThis is ", "true", "false"),
    ("<c> True or false? ", "True", "False"),
    ("<c> Yes or no? ", "Yes", "No"),
    ("<c>\nRight or wrong? ", "Right", "Wrong"),
)


def phrased(patterns: Sequence[str], claim: Claim, rng: random.Random) -> str:
    """Return the claim in the words of one of the patterns."""
    return sentence(rng.choice(patterns), rng, claim.fields)


def _question(wording: Wording, claim: Claim, rng: random.Random) -> str:
    """Return the claim as a question."""
    return sloppy(phrased(wording.questions, claim, rng), rng)


def _fact(wording: Wording, claim: Claim, rng: random.Random) -> str:
    """Return a true sentence: the claim, or its negation."""
    return sentence(rng.choice(wording.yes if claim.true else wording.no), rng, claim.fields)


def _document(wording: Wording, claims: Iterator[Claim], rng: random.Random) -> str:
    """Return one document of one kind of claim: asked, said, claimed, or several at
    once.
    """
    form, claim = rng.random(), next(claims)
    answer = "Yes" if claim.true else "No"
    if form < 0.32:
        return question_answer(_question(wording, claim, rng), answer, rng)
    if form < 0.38:
        reason = _fact(wording, claim, rng).removeprefix("Yes, ").removeprefix("No, ")
        return question_answer(_question(wording, claim, rng), f"{answer}, {reason[0].lower()}{reason[1:]}", rng)
    if form < 0.52:
        return " ".join(
            _fact(wording, each, rng) for each in [claim, *(next(claims) for _ in range(rng.randint(0, 3)))]
        )
    if form < 0.66:
        layout, yes, no = rng.choice(CLAIM_LAYOUTS)
        text = sentence(rng.choice(wording.claims), rng, claim.fields)
        return layout.replace("<c>", text) + (yes if claim.true else no)
    several = [claim, *(next(claims) for _ in range(rng.randint(1, 9)))]
    pairs = [(_question(wording, each, rng), "Yes" if each.true else "No") for each in several]
    if form > 0.84:
        return chat(pairs[: rng.choice((1, 1, len(pairs)))], rng)
    return _below_each_other(pairs, rng)


def _below_each_other(pairs: Sequence[tuple[str, str]], rng: random.Random) -> str:
    """Return questions with their answers in one layout."""
    layout = question_answer("<q>", "<a>", rng)
    return rng.choice(("\n", "\n\n")).join(layout.replace("<q>", q).replace("<a>", answer) for q, answer in pairs)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield training documents without end."""
    streams = [(wording, claims(rng)) for _, wording, claims, _ in GROUPS]
    weights = [weight for weight, *_ in GROUPS]
    while True:
        yield _document(*rng.choices(streams, weights)[0], rng)


def _held_of(wording: Wording, claims: Iterator[Claim], n: int, rng: random.Random) -> Iterator[SelectRequest]:
    """Yield n questions, as many with Yes as with No, over different claims."""
    wanted = {True: n // 2, False: n - n // 2}
    seen: set[tuple[str, str]] = set()
    i = 0
    while any(wanted.values()):
        claim = next(claims)
        about = (claim.fields["x"], claim.fields["v"])
        if not wanted[claim.true] or about in seen:
            continue
        seen.add(about)
        wanted[claim.true] -= 1
        text = sentence(wording.held[i % len(wording.held)], rng, claim.fields)
        layout = HELD_LAYOUTS[(i + i // len(wording.held)) % len(HELD_LAYOUTS)]
        yield SelectRequest(text, layout, *(("Yes", ("No",)) if claim.true else ("No", ("Yes",))))
        i += 1


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield questions in phrasings that no document uses, half of them to be answered
    with Yes.
    """
    questions: list[SelectRequest] = []
    for _, wording, claims, n in GROUPS:
        questions += _held_of(wording, claims(rng), n, rng)
    yield from _spread(questions)


def _spread(questions: Sequence[SelectRequest]) -> Iterator[Item]:
    """Yield the items, with Yes first and No first equally often for either answer."""
    for answer in ("Yes", "No"):
        yield from items("yes or no", [question for question in questions if question.answer == answer])
