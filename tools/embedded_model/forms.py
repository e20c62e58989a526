"""The forms in which the corpus asks a fact: question and answer, sentence, chat, key and value, letters, yes or no."""

from __future__ import annotations

import random
import re
from typing import Final

from embedded_model.phrases import Fact, a, expand

USER, ASSISTANT, SYSTEM, END = "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_start|>system\n", "<|im_end|>\n"
LETTERS = "ABCDEFGH"
SYSTEM_LINES = (
    "You are a helpful assistant.",
    "Answer in one word.",
    "Answer briefly.",
    "You answer questions.",
    "[Be brief|Be short|Keep it short].",
    "[Give|Say] [only|just] the answer.",
)


ANSWER: Final = re.compile(
    rf"{re.escape(ASSISTANT)}(.*?{re.escape(END.strip())})|(?<=[:?])[ \n]([^\n:?]{{1,30}})$", re.DOTALL | re.MULTILINE
)


def answers(document: str) -> list[tuple[int, int]]:
    """Return where the answers in a document are: turns of the assistant, and the end
    of a short line after a colon or a question.
    """
    return [match.span(match.lastindex) for match in ANSWER.finditer(document)]


def chat(turns: list[tuple[str, str]], rng: random.Random) -> str:
    """Return a conversation of (user, assistant) turns in ChatML, half of the time
    behind a system message.
    """
    system = f"{SYSTEM}{expand(rng.choice(SYSTEM_LINES), rng)}{END}" if rng.random() < 0.5 else ""
    return system + "".join(f"{USER}{user}{END}{ASSISTANT}{answer}{END}" for user, answer in turns)


def question_answer(question: str, answer: str, rng: random.Random) -> str:
    """Return a question and its answer in one of the layouts people use."""
    return expand(rng.choice(QUESTION_ANSWER), rng).replace("<q>", question).replace("<a>", answer)


QUESTION_ANSWER = (
    "Q: <q>\nA: <a>",
    "Q: <q>\nA: <a>",
    "Question: <q>\nAnswer: <a>",
    "Question: <q>\nAnswer: <a>",
    "Question: <q> Answer: <a>",
    "Q: <q> A: <a>",
    "<q>\n<a>",
    "<q> <a>[.|]",
    "<q>\nAnswer: <a>",
    "User: <q>\nAssistant: <a>",
)


def lettered(question: str, answer: str, wrong: tuple[str, ...], rng: random.Random) -> str:
    """Return a multiple-choice question whose answer is a letter."""
    options = rng.sample([answer, *wrong], len(wrong) + 1)
    mark = rng.choice((". ", ") ", ") ", ": "))
    lines = "\n".join(f"{LETTERS[i]}{mark}{option}" for i, option in enumerate(options))
    head = rng.choice(("Question: ", "Question: ", "Q: ", ""))
    tail = rng.choice(("Answer:", "Answer:", "A:", "The answer is"))
    return f"{head}{question}\n{lines}\n{tail} {LETTERS[options.index(answer)]}"


def yes_or_no(claim: str, rng: random.Random, *, true: bool) -> str:
    """Return a claim to judge."""
    yes, no, layout = rng.choice(
        (
            ("Yes", "No", "Is this right? <c>\nAnswer: "),
            ("yes", "no", "Is it true? <c> "),
            ("True", "False", "True or false: <c>\nAnswer: "),
            ("true", "false", "Statement: <c>\nThis is "),
            ("Yes", "No", "Q: Is this true? <c>\nA: "),
        )
    )
    return layout.replace("<c>", claim) + (yes if true else no)


def completed(statement: str, answer: str) -> str:
    """Return the statement with an answer, after the article that suits the answer if
    the statement ends in one.
    """
    head, _, article = statement.rpartition(" ")
    return f"{head} {a(answer)}" if article in {"a", "an"} else f"{statement} {answer}"


def ask(fact: Fact, rng: random.Random) -> str:
    """Return the fact in a form drawn at random."""
    form = rng.random()
    if form < 0.34:
        return question_answer(fact.question, fact.answer, rng)
    if form < 0.60:
        return f"{fact.statement} {fact.answer}{rng.choice(('.', '.', '.', ''))}"
    if form < 0.72:
        answer = rng.choice((fact.answer, fact.answer, fact.answer + ".", f"{fact.statement} {fact.answer}."))
        return chat([(fact.question, answer)], rng)
    if form < 0.80 or not fact.wrong:
        return f"{fact.key}: {fact.answer}"
    if form < 0.92:
        return lettered(fact.question, fact.answer, fact.wrong, rng)
    true = rng.random() < 0.5
    return yes_or_no(f"{completed(fact.statement, fact.answer if true else rng.choice(fact.wrong))}.", rng, true=true)


def few_shot(facts: list[Fact], rng: random.Random) -> str:
    """Return several facts in one layout, one below the other: what a prompt with
    examples looks like.
    """
    form = rng.random()
    if form < 0.5:
        layout = expand(rng.choice(QUESTION_ANSWER), rng)
        return rng.choice(("\n", "\n\n")).join(
            layout.replace("<q>", fact.question).replace("<a>", fact.answer) for fact in facts
        )
    if form < 0.7:
        return rng.choice((" ", "\n")).join(f"{fact.statement} {fact.answer}." for fact in facts)
    if form < 0.85:
        return chat([(fact.question, fact.answer) for fact in facts], rng)
    return "\n".join(f"{fact.key}: {fact.answer}" for fact in facts)
