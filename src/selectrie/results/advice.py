"""What to know before a result is relied on: advice, with its remedy as data.

Every shell prints the same advice: a command, a notebook, a server and, once for each
code in a process, a Python warning.
"""

from __future__ import annotations

import math
import string
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from selectrie.core.output import probability, quoted
from selectrie.results.plain import jsonable

LOW_COVERAGE = 0.01
"""Coverage below which something is usually wrong with prompt or choices.

The set then holds very little of the model's belief.
"""
MAX_TOLD = 5
"""Maximum number of results of one call that are read for Python warnings."""


class _Token(Protocol):
    @property
    def label(self) -> str: ...
    @property
    def logp(self) -> float: ...


class AdviceWarning(UserWarning):
    """Advice on a result; each code is said once in a process."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to change in the request.

    Attributes:
        option: Name of the option, as in the records of options: "delimiter".
        value: Value to give it; None if that depends on the case.
    """

    option: str
    value: object = None


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to know about a result.

    Attributes:
        code: Stable name of the kind: "coverage" (the model expects something else than
            the choices), "label_mass" (the same of a decision), "not_proved", "tie",
            "bounds", "incomplete" and "stopped" (searches), "note".
        text: A sentence for people.
        remedy: What to change, if one option is known to help.
        where: Name of the question or slot that it is about; "" for the whole result.
    """

    code: str
    text: str
    remedy: Remedy | None = None
    where: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, without what is empty."""
        remedy = self.remedy
        return {
            "code": self.code,
            "text": self.text,
            **({} if remedy is None else {"remedy": {"option": remedy.option, "value": jsonable(remedy.value)}}),
            **({"where": self.where} if self.where else {}),
        }

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        if self.remedy is None:
            return where + self.text
        option, value = self.remedy.option, self.remedy.value
        return f"{where}{self.text} {f'See `{option}`' if value is None else f'Try {option}={value!r}'}."


def advice_fields(advice: Sequence[Advice]) -> dict[str, object]:
    """Return `{"warnings": [...]}`, ready for JSON; `{}` if there is no advice."""
    return {"warnings": [one.to_dict() for one in advice]} if advice else {}


def notes_advice(notes: Iterable[str]) -> tuple[Advice, ...]:
    """Return each note of a result as advice."""
    return tuple(Advice("note", note) for note in notes)


def expected_tokens(likeliest: Sequence[_Token]) -> str:
    """Return a sentence on the likeliest tokens, after a space; "" for none."""
    tokens = (f"{quoted(one.label)} {probability(math.exp(one.logp))}" for one in likeliest[:5])
    return f" It expects {', '.join(tokens)}." if likeliest else ""


_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)
_told: set[str] = set()
_NO_DIGITS = dict.fromkeys(map(ord, string.digits))


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Yield a list that gets the texts of this context's warnings in place of Python.

    Python writes a warning to stderr and keeps its text for good, so what clients send
    must not be in one. Advice on results is dropped: the results have it.
    """
    said: list[str] = []
    token = _collected.set(said)
    try:
        yield said
    finally:
        _collected.reset(token)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn the caller of the package, or what collects warnings.

    Python keeps the text, so it should be short whatever the caller gave.
    """
    if (said := _collected.get()) is not None:
        said.append(text)
    else:
        warnings.warn(text, category, stacklevel=caller_level())


def tell(result: Any) -> None:
    """Warn of the advice on a result, or on the first results of a list.

    Each code, and each note whatever its numbers, is said once in a process, as an
    `AdviceWarning`. Nothing is said where warnings are collected.
    """
    if _collected.get() is not None:
        return
    for advice in _advice_on(result):
        said = advice.text.translate(_NO_DIGITS) if advice.code == "note" else advice.code
        if said not in _told:
            _told.add(said)
            warn(str(advice), AdviceWarning)


def caller_level() -> int:
    """Return the `stacklevel` of the first frame outside of the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("selectrie."):
        frame, level = frame.f_back, level + 1
    return level


def _advice_on(result: Any) -> Iterator[Advice]:
    for one in result[:MAX_TOLD] if isinstance(result, list) else [result]:
        yield from getattr(one, "warnings", ())
