"""Reads what servers answer. Whatever is not as it must be is one `ServerError`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NoReturn

from selectrie.errors import ServerError, of_value

_NO_MODEL = -9999.0
"""Log-probabilities down to this one stand for -inf, which JSON does not have.

vLLM and this project's server write -9999; llama-server writes the least float32 where
its softmax, in float32, rounds to zero.
"""
_ABOVE_ONE = 1e-3
"""A log-probability may be above 0 by this much, by rounding; it is then 0."""


class Answer:
    """A value of a JSON answer, with its place in it for errors.

    Args:
        value: The value.
        url: The address that answered, without a key.
        place: Where it is in the answer: "choices[0].logprobs".
    """

    def __init__(self, value: object, url: str, place: str = "") -> None:
        self._value, self._url, self._place = value, url, place

    @staticmethod
    def parse(data: bytes, url: str) -> Answer:
        """Return a body of JSON. Names that come twice, NaN and inf are errors."""
        try:
            return Answer(json.loads(data, object_pairs_hook=_object, parse_constant=_no_constant), url)
        except (ValueError, RecursionError) as error:
            raise ServerError(url, f"its answer is not the JSON that was expected: {_said(error)}") from error

    @property
    def value(self) -> object:
        """Return the value itself."""
        return self._value

    def wrong(self, reason: str) -> NoReturn:
        """Raise `ServerError` about this value."""
        raise ServerError(self._url, f"{self._place or 'the answer'} {reason}")

    def _unlike(self, expected: str) -> NoReturn:
        self.wrong(f"is {of_value(self._value)}: expected {expected}")

    def get(self, name: str) -> Answer | None:
        """Return a field of an object, None if it is missing or null."""
        if not isinstance(self._value, dict):
            self._unlike("an object")
        found = self._value.get(name)
        return None if found is None else Answer(found, self._url, f"{self._place}.{name}" if self._place else name)

    def __getitem__(self, name: str) -> Answer:
        """Return a field of an object that must be there."""
        found = self.get(name)
        if found is None:
            self.wrong(f"has no {name!r}")
        return found

    def items(self) -> list[tuple[str, Answer]]:
        """Return the fields of an object."""
        if not isinstance(self._value, dict):
            self._unlike("an object")
        return [(name, Answer(value, self._url, f"{self._place}[{name!r}]")) for name, value in self._value.items()]

    def sequence(self, n: int | None = None) -> list[Answer]:
        """Return the items of a list, which must have `n` of them."""
        if not isinstance(self._value, list):
            self._unlike("a list")
        if n is not None and len(self._value) != n:
            self.wrong(f"has {len(self._value)} items: expected {n}")
        return [Answer(one, self._url, f"{self._place}[{index}]") for index, one in enumerate(self._value)]

    def text(self) -> str:
        """Return a text."""
        if not isinstance(self._value, str):
            self._unlike("a text")
        return self._value

    def flag(self) -> bool:
        """Return a truth value."""
        if not isinstance(self._value, bool):
            self._unlike("true or false")
        return self._value

    def whole(self) -> int:
        """Return a whole number of at least 0."""
        if isinstance(self._value, bool) or not isinstance(self._value, int) or self._value < 0:
            self._unlike("a whole number of at least 0")
        return self._value

    def whole_numbers(self) -> list[int]:
        """Return a list of whole numbers of at least 0."""
        if not isinstance(self._value, list) or any(type(one) is not int or one < 0 for one in self._value):
            self._unlike("a list of whole numbers")
        return list(self._value)

    def texts(self) -> list[str]:
        """Return a list of texts."""
        if not isinstance(self._value, list) or any(type(one) is not str for one in self._value):
            self._unlike("a list of texts")
        return list(self._value)

    def logp(self) -> float:
        """Return a log-probability; -inf for what stands for it.

        Raises `ServerError` for anything but a finite number of at most 0.
        """
        value = self._value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._unlike("a log-probability")
        if not _is_finite(value) or value > _ABOVE_ONE:
            self._unlike("a log-probability")
        return -math.inf if value <= _NO_MODEL else min(float(value), 0.0)

    def nats(self) -> float:
        """Return a finite number of nats of at least 0."""
        value = self._value
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value) or value < 0:
            self._unlike("a number of nats")
        return float(value)

    def token(self, n_tokens: int) -> int:
        """Return the id of a token that exists."""
        token = self.whole()
        if token >= n_tokens:
            self.wrong(f"is token {of_value(token)}: ids run from 0 to {n_tokens - 1}")
        return token


def refuse_duplicates(ids: Sequence[int], answer: Answer) -> None:
    """Raise `ServerError` if a token comes twice."""
    if len(set(ids)) < len(ids):
        seen: set[int] = set()
        twice = next(one for one in ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
        answer.wrong(f"has token {twice} twice")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {of_value(twice)} comes twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _said(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
