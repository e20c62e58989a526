"""Draws answers: each question with its answer, and a bar for each of its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from selectrie.results.drawing.bars import Bar, draw_bars, make_bar, more_words
from selectrie.results.drawing.numbers import HasTolerance, percent_between, written_tolerance
from selectrie.results.drawing.shapes import Drawing

_MAX_OPTIONS = 10
"""Maximum number of options drawn for each question."""


class WordsLike(Protocol):
    """The attributes of an `AnswerInWords`."""

    @property
    def text(self) -> str: ...
    @property
    def probability(self) -> float: ...
    @property
    def options(self) -> Sequence[tuple[str, float]]: ...


class SignatureLike(Protocol):
    """The attribute of a `DecisionSignature` that drawings read."""

    @property
    def selection(self) -> HasTolerance: ...


class AnswerLike(Protocol):
    """The attributes of an `Answer` that are drawn."""

    @property
    def abstained(self) -> str: ...
    @property
    def is_tie(self) -> bool: ...
    @property
    def label_mass(self) -> float: ...
    @property
    def signature(self) -> SignatureLike: ...
    def in_words(self) -> WordsLike: ...


def draw_answers(
    answers: Mapping[str, AnswerLike], bounds: Callable[[AnswerLike], tuple[float, float, float]]
) -> Drawing:
    """Return the drawing of answers by the names of their questions.

    Args:
        answers: The answers; a name that is "" is not shown.
        bounds: Returns the probability of an answer's value, and its bounds.
    """
    bars = [bar for name, answer in answers.items() for bar in _make_bars(name, answer, bounds(answer))]
    title = "The answers and the probabilities of their options"
    return draw_bars(bars, title=title, heads=("answer", "probability", ""))


def _make_bars(name: str, answer: AnswerLike, bounds: tuple[float, float, float]) -> list[Bar]:
    """Return the answer to a question as a head, and a bar for each of its options."""
    words, (p, low, high) = answer.in_words(), bounds
    options = list(words.options) or [("true", words.probability), ("false", 1 - words.probability)]
    notes = [answer.abstained] if answer.abstained else []
    notes += ["tie"] if answer.is_tie else []
    mass = f"{answer.label_mass:.3g}"
    tolerance = written_tolerance(answer.signature.selection)
    shown = percent_between(low, high, tolerance)
    numbers = (("probability", p, shown), ("label mass", answer.label_mass, mass))
    head = f"{name}: {words.text} {shown}" if name else f"{words.text} {shown}"
    bars = [Bar(head, None, None, "", "; ".join([*notes, f"label mass {mass}"]), numbers, "head")]
    best = max(share for _, share in options)
    for label, share in options[:_MAX_OPTIONS]:
        mark = ("win", ("★", "the answer")) if share == best else ("", ("", ""))
        bars.append(make_bar(label, share, None, *mark, tolerance=tolerance))
    if len(options) > _MAX_OPTIONS:
        bars.append(Bar(more_words(len(options) - _MAX_OPTIONS), None, None, "", kind="off"))
    return bars
