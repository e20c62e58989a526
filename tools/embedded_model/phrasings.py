"""Relations in words: patterns for questions and statements, the entries they speak of, and the documents made of both."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from embedded_model.forms import ASSISTANT, END, USER, ask, few_shot
from embedded_model.phrases import Fact, Item, expand, rounds, wrong_answers

HELD_LAYOUTS = (
    "Q: <q>\nA:",
    "Question: <q>\nAnswer:",
    "<q>\nAnswer:",
    f"{USER}<q>{END}{ASSISTANT}",
    "Q: <q> A:",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """The fields of one entry of a table for the patterns of its relation; wrong: the
    pool of wrong answers.
    """

    fields: Mapping[str, str]
    answer: str
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """The phrasings of one relation. Statements and keys end where the answer starts; reverse ones contain `{answer}`."""

    questions: tuple[str, ...]
    statements: tuple[str, ...]
    keys: tuple[str, ...]
    reverse: tuple[str, ...] = ()
    held_questions: tuple[str, ...] = ()
    held_statements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectRequest:
    """A question of the held-out set before its choices are in order; layout: contains
    `<q>` in the place of the text.
    """

    text: str
    layout: str
    answer: str
    wrong: tuple[str, ...]


def sentence(pattern: str, rng: random.Random, fields: Mapping[str, str]) -> str:
    """Return the pattern as a sentence: its first letter is a capital."""
    text = expand(pattern, rng, fields)
    return text[0].upper() + text[1:]


def sloppy(question: str, rng: random.Random) -> str:
    """Return the question as people type it: now and then in lower case, now and then
    without its mark.
    """
    form = rng.random()
    if form < 0.12:
        return question.lower()
    if form < 0.20:
        return question.lower().rstrip("?. ")
    return question.rstrip("?. ") if form < 0.24 else question


def facts(relation: Relation, entries: Sequence[Entry], rng: random.Random) -> Iterator[Fact]:
    """Yield the entries as facts, without end, each equally often."""
    for entry in rounds(entries, rng):
        yield Fact(
            sloppy(sentence(rng.choice(relation.questions), rng, entry.fields), rng),
            sentence(rng.choice(relation.statements), rng, entry.fields),
            sentence(rng.choice(relation.keys), rng, entry.fields),
            entry.answer,
            wrong_answers(entry.answer, entry.wrong, rng),
        )


def reversed_statements(relation: Relation, entries: Sequence[Entry], rng: random.Random) -> Iterator[str]:
    """Yield sentences that begin with the answer or hold it in the middle, without end."""
    for entry in rounds(entries, rng):
        yield sentence(rng.choice(relation.reverse), rng, {**entry.fields, "answer": entry.answer})


def drawn(streams: Sequence[tuple[float, Iterator[Fact]]], rng: random.Random) -> Iterator[Fact]:
    """Yield facts of weighted streams, without end."""
    weights = [weight for weight, _ in streams]
    while True:
        yield next(rng.choices(streams, weights)[0][1])


def mixed(
    streams: Sequence[tuple[float, Iterator[Fact]]], texts: Sequence[tuple[float, Iterator[str]]], rng: random.Random
) -> Iterator[str]:
    """Yield documents of weighted streams: facts asked in every form, every fourth time
    several at once; texts as they are.
    """
    weights = [weight for weight, _ in (*streams, *texts)]
    order = range(len(weights))
    while True:
        chosen = rng.choices(order, weights)[0]
        if chosen >= len(streams):
            yield next(texts[chosen - len(streams)][1])
            continue
        stream = streams[chosen][1]
        if rng.random() < 0.25:
            yield few_shot([next(stream) for _ in range(rng.randint(2, 6))], rng)
        else:
            yield ask(next(stream), rng)


def asked(relation: Relation, entries: Sequence[Entry], n: int, rng: random.Random) -> Iterator[SelectRequest]:
    """Yield n questions of the held-out set: each held-out phrasing in turn, each entry
    once before any comes again.
    """
    patterns = [(pattern, False) for pattern in relation.held_questions]
    patterns += [(pattern, True) for pattern in relation.held_statements]
    rng.shuffle(patterns)
    source = rounds(entries, rng)
    for i in range(n):
        pattern, is_statement = patterns[i % len(patterns)]
        entry = next(source)
        layout = "<q>" if is_statement else HELD_LAYOUTS[(i + i // len(patterns)) % len(HELD_LAYOUTS)]
        text = sentence(pattern, rng, entry.fields)
        yield SelectRequest(text, layout, entry.answer, wrong_answers(entry.answer, entry.wrong, rng))


def items(kind: str, questions: Sequence[SelectRequest]) -> Iterator[Item]:
    """Yield the questions as items, each text once; the right answers take every
    position in turn.
    """
    seen: set[str] = set()
    position: dict[int, int] = {}
    for question in questions:
        if question.text in seen:
            continue
        seen.add(question.text)
        size = len(question.wrong) + 1
        gold = position.get(size, 0)
        position[size] = (gold + 1) % size
        prompt = question.layout.replace("<q>", question.text)
        space = "" if prompt.endswith("\n") else " "
        ordered = (*question.wrong[:gold], question.answer, *question.wrong[gold:])
        yield Item(kind, prompt, tuple(space + choice for choice in ordered), gold, question.text)
