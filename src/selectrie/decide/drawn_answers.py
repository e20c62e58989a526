"""Draws answers: each question with its answer, and a bar for each of its options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from selectrie.core.notation import written_tolerance
from selectrie.results.drawing.bars import Bar, draw_bars, make_bar, more_words
from selectrie.results.drawing.shapes import Drawing

_MAX_OPTIONS = 10
"""Maximum number of options drawn for each question."""


class AnswerInWords(NamedTuple):
    """The words of all reports for an answer.

    Attributes:
        text: The answer.
        probability: The probability of the answer, or its bounds.
        confidence: The confidence.
        label_mass: The label mass, or its bounds.
        notes: What else to know: an abstention, a tie.
        options: Tuples of an option, its probability, and whether it is the answer.
    """

    text: str
    probability: str
    confidence: str
    label_mass: str
    notes: Sequence[str]
    options: Sequence[tuple[str, float, bool]]


class AnswerLike(Protocol):
    """The attributes of an `Answer` that are drawn."""

    @property
    def confidence(self) -> float: ...
    @property
    def label_mass(self) -> float: ...
    @property
    def tolerance(self) -> float | None: ...
    def in_words(self) -> AnswerInWords: ...


def draw_answers(answers: Iterable[tuple[str, AnswerLike]]) -> Drawing:
    """Return the drawing of answers, after the names of their questions; "" is none."""
    bars = [bar for name, answer in answers for bar in _make_bars(name, answer)]
    title = "The answers and the probabilities of their options"
    return draw_bars(bars, title=title, heads=("answer", "probability", ""))


def _make_bars(name: str, answer: AnswerLike) -> list[Bar]:
    """Return the answer to a question as a head, and a bar for each of its options."""
    words, tolerance = answer.in_words(), written_tolerance(answer)
    p = next((share for _, share, is_answer in words.options if is_answer), None)
    head = f"{name}: {words.text} {words.probability}" if name else f"{words.text} {words.probability}"
    numbers = (
        ("probability", p, words.probability),
        ("confidence", answer.confidence, words.confidence),
        ("label mass", answer.label_mass, words.label_mass),
    )
    bars = [Bar(head, None, None, "", "; ".join([*words.notes, f"label mass {words.label_mass}"]), numbers, "head")]
    for label, share, is_answer in words.options[:_MAX_OPTIONS]:
        mark = ("win", ("★", "the answer")) if is_answer else ("", ("", ""))
        bars.append(make_bar(label, share, None, *mark, tolerance=tolerance))
    if len(words.options) > _MAX_OPTIONS:
        bars.append(Bar(more_words(len(words.options) - _MAX_OPTIONS), None, None, "", kind="off"))
    return bars
