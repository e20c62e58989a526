"""Relations between a subject and an answer: one table, asked in training words and, for the held-out set, in others."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from embedded_model import forms
from embedded_model.phrases import Fact, Item, a, capital, expand, rounds

LAYOUTS = ("Q: <q>\nA:", "Question: <q>\nAnswer:", "<q>\nAnswer:", "chat", "User: <q>\nAssistant:", "system")


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a table: the fields its patterns use ({x} the subject, {y} the answer), the answer, all that is wrong."""

    fields: Mapping[str, str]
    answer: str
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """What can be asked of every entry, and how.

    questions, statements and keys make a `Fact`; whole are sentences with subject and answer (prose opens with one of the
    first two), about are sentences that go on about the subject, polar questions with the answer in them. label heads a
    line of a record, head its first line; groups introduce a list of the subjects with one answer. held are the patterns
    of the held-out set, which no document uses: questions, or sentences up to the answer.
    """

    label: str
    entries: tuple[Entry, ...]
    questions: tuple[str, ...]
    statements: tuple[str, ...]
    keys: tuple[str, ...]
    whole: tuple[str, ...]
    about: tuple[str, ...]
    polar: tuple[str, ...]
    held: tuple[str, ...]
    groups: tuple[str, ...] = ()
    head: str = "Name"


def entries(
    rows: Sequence[tuple[Mapping[str, str], str]], alike: Sequence[str] = (), kinds: Mapping[str, str] | None = None
) -> tuple[Entry, ...]:
    """Return the entries of (fields, answer) rows.

    The wrong answers of an entry are the answers of the other rows, except those that
    share a line of `alike` with the right one and, if `kinds` names the kind of each
    answer, those of another kind. Commas separate the answers in a line of `alike`.
    """
    groups = [set(line.split(", ")) for line in alike]
    right: dict[str, set[str]] = {}
    for fields, answer in rows:
        right.setdefault(fields["x"], set()).add(answer)
    result = []
    for fields, answer in rows:
        near = right[fields["x"]].union({fields["x"]}, *(group for group in groups if answer in group))
        pool = sorted({other for _, other in rows} - near)
        if kinds:
            pool = [other for other in pool if kinds[other] == kinds[answer]]
        result.append(Entry({**fields, "y": answer}, answer, tuple(pool)))
    return tuple(result)


def sloppy(question: str, rng: random.Random) -> str:
    """Return the question as typed: mostly well, sometimes without capitals or without
    its mark.
    """
    draw = rng.random()
    if draw < 0.14:
        question = question.lower()
    if 0.10 < draw < 0.18:
        question = question.rstrip("?")
    return question


def a_fact(entry: Entry, patterns: tuple[str, str, str], rng: random.Random) -> Fact:
    """Return the entry as a fact, by a pattern each for question, statement and key."""
    question, statement, key = (capital(expand(pattern, rng, entry.fields)) for pattern in patterns)
    wrong = tuple(rng.sample(entry.wrong, min(3, len(entry.wrong))))
    return Fact(sloppy(question, rng), statement, key, entry.answer, wrong)


def drawn(relation: Relation, rng: random.Random) -> tuple[str, str, str]:
    """Return a pattern each for question, statement and key."""
    return rng.choice(relation.questions), rng.choice(relation.statements), rng.choice(relation.keys)


def sentence(pattern: str, entry: Entry, rng: random.Random) -> str:
    """Return a whole sentence about the entry."""
    return capital(expand(pattern, rng, entry.fields))


def facts(relations: Sequence[Relation], rng: random.Random) -> Iterator[Fact]:
    """Yield all entries of the relations as facts, without end, each equally often."""
    every = [(relation, entry) for relation in relations for entry in relation.entries]
    for relation, entry in rounds(every, rng):
        yield a_fact(entry, drawn(relation, rng), rng)


def examples(relation: Relation, first: Entry, rng: random.Random) -> str:
    """Return two to six facts of a relation below one another, half of the time all in
    the same words.
    """
    chosen = [first, *rng.sample(relation.entries, rng.randint(1, 5))]
    if rng.random() < 0.12:
        mark = rng.choice((": ", " - ", " -> ", " = "))
        return "\n".join(f"{entry.fields['x']}{mark}{entry.answer}" for entry in chosen)
    patterns = drawn(relation, rng)
    same = rng.random() < 0.5
    return forms.few_shot([a_fact(entry, patterns if same else drawn(relation, rng), rng) for entry in chosen], rng)


def polar(relation: Relation, entry: Entry, rng: random.Random) -> str:
    """Return a question that yes or no answers."""
    true = rng.random() < 0.5
    y = entry.answer if true else rng.choice(entry.wrong)
    fields = {**entry.fields, "y": y} | ({"n": a(y).split()[0]} if "n" in entry.fields else {})
    question = capital(expand(rng.choice(relation.polar), rng, fields))
    return forms.question_answer(sloppy(question, rng), "yes" if true else "no", rng)


def portrait(facts: Sequence[tuple[Relation, Entry]], rng: random.Random) -> str:
    """Return all the facts of one subject: as lines of a record or as prose."""
    facts = rng.sample(facts, len(facts))
    subject, name = facts[0][1].fields["x"], facts[0][0].head
    form = rng.random()
    if form < 0.4:
        head = rng.choice((f"Name: {subject}", f"{name}: {subject}", f"{name}: {subject}", subject, capital(subject)))
        gap = rng.choice(("\n", "\n", "; "))
        return gap.join((head, *(f"{relation.label}: {entry.answer}" for relation, entry in facts)))
    parts = [sentence(rng.choice(relation.whole[:2]), entry, rng) for relation, entry in facts[:1]]
    parts += [sentence(rng.choice(relation.about), entry, rng) for relation, entry in facts[1:]]
    return rng.choice((" ", " ", "\n")).join(parts)


def group(relation: Relation, answer: str, rng: random.Random) -> str:
    """Return a list of subjects with the same answer."""
    same = [entry for entry in relation.entries if entry.answer == answer]
    chosen = rng.sample(same, min(len(same), rng.randint(2, 5)))
    names = ", ".join(entry.fields.get("ax", entry.fields["x"]) for entry in chosen)
    return f"{sentence(rng.choice(relation.groups), chosen[0], rng)} {names}"


def documents(relations: Sequence[Relation], rng: random.Random) -> Iterator[str]:
    """Yield documents without end on all entries of the relations, each equally often."""
    facts = [(relation, entry) for relation in relations for entry in relation.entries]
    subjects: dict[str, list[tuple[Relation, Entry]]] = {}
    for relation, entry in facts:
        subjects.setdefault(entry.fields["x"], []).append((relation, entry))
    for relation, entry in rounds(facts, rng):
        form = rng.random()
        if form < 0.54:
            yield forms.ask(a_fact(entry, drawn(relation, rng), rng), rng).rstrip()
        elif form < 0.70:
            yield examples(relation, entry, rng).rstrip()
        elif form < 0.82:
            yield sentence(rng.choice(relation.whole), entry, rng)
        elif form < 0.88:
            yield polar(relation, entry, rng)
        elif form < 0.97 or not relation.groups:
            yield portrait(subjects[entry.fields["x"]], rng)
        else:
            yield group(relation, entry.answer, rng)


def in_layout(layout: str, question: str, rng: random.Random) -> str:
    """Return the question laid out as a prompt that its answer ends."""
    if layout == "chat":
        return f"{forms.USER}{question}{forms.END}{forms.ASSISTANT}"
    if layout == "system":
        system = f"{forms.SYSTEM}{expand(rng.choice(forms.SYSTEM_LINES), rng)}{forms.END}"
        return f"{system}{forms.USER}{question}{forms.END}{forms.ASSISTANT}"
    return layout.replace("<q>", question)


def held_out(kind: str, relations: Sequence[Relation], each: int, rng: random.Random) -> Iterator[Item]:
    """Yield `each` items of every relation, over all its held-out patterns, the layouts
    and the positions of the right choice.
    """
    positions = cycle(range(4))
    layouts = cycle(LAYOUTS)
    for relation in relations:
        patterns = rounds(relation.held, rng)
        chosen = rounds(relation.entries, rng)
        for _ in range(each):
            entry, pattern, gold = next(chosen), next(patterns), next(positions)
            phrase = sentence(pattern, entry, rng)
            asked = phrase[-1] in "?."
            prompt = in_layout(next(layouts), phrase, rng) if asked else phrase
            choices = rng.sample(entry.wrong, 3)
            choices.insert(gold, entry.answer)
            space = "" if prompt.endswith("\n") else " "
            yield Item(kind, prompt, tuple(space + choice for choice in choices), gold, phrase)
