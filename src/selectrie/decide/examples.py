"""Examples of a question: texts with their answers, which the prompt shows first."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from selectrie.decide.states import State, text_of_state
from selectrie.errors import OptionError
from selectrie.options.checks import at_least

if TYPE_CHECKING:
    from selectrie.decide.questions import Option

A = TypeVar("A", bound=Hashable)

Examples: TypeAlias = Sequence[tuple[State, Any]]
"""Pairs of a state and the value, or the text, of the option that answers for it."""


def examples_of(given: object, options: Sequence[Option[Any]]) -> tuple[tuple[str, str], ...]:
    """Return the text of each example's state, and the text of its answer.

    Options that answer no example are warned about: models lean to answers that they
    were shown.

    Raises `OptionError` for anything that is not a pair of a state and an option.
    """
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise OptionError("examples", given, "a sequence of pairs of a state and its answer")
    found = []
    for index, one in enumerate(given):
        name = f"examples[{index}]"
        if not isinstance(one, Sequence) or isinstance(one, str | bytes) or len(one) != 2:
            raise OptionError(name, one, "a pair of a state and its answer")
        state, answer = one
        texts = [option.scored for option in options if answer in (option.value, option.scored)]
        if not texts:
            raise OptionError(f"{name}[1]", answer, "the value or the text of an option")
        found.append((text_of_state(state, f"{name}[0]"), texts[0]))
    missing = [option.scored for option in options if option.scored not in {text for _, text in found}]
    if found and missing:
        warnings.warn(f"no example has the answer {missing[0]!r}; give each option some", stacklevel=4)
    return tuple(found)


def balanced(examples: Iterable[tuple[str, A]], n_each: int, *, seed: int = 0) -> list[tuple[str, A]]:
    """Return some examples of each answer, mixed, for `examples=` of a question.

    Which ones depends on the texts and the seed alone, not on the order of `examples`.

    Args:
        examples: Pairs of a text and its answer.
        n_each: Maximum number of examples for each answer.
        seed: Another number draws others.
    """
    at_least("n_each", n_each, 1, optional=False)
    drawn: dict[A, list[tuple[str, A]]] = {}
    for text, answer in sorted(set(examples), key=lambda one: sha256(f"{seed}\0{one[0]}".encode()).digest()):
        if len(of_answer := drawn.setdefault(answer, [])) < n_each:
            of_answer.append((text, answer))
    return [ones[at] for at in range(n_each) for ones in drawn.values() if at < len(ones)]
