"""Defines advice on results: a sentence for people, and a remedy as data.

The command line, notebooks and the server print all advice on a result. In Python, it
is also issued as a warning, once for each code in a process.
"""

from __future__ import annotations

import math
import string
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from selectrie.core.notation import percent, quoted
from selectrie.results.plain import JsonRecord, jsonable

LOW_COVERAGE = 0.01
"""Coverage below which something is usually wrong with the prompt or the choices."""
MAX_WARNED = 5
"""Maximum number of results of one call whose advice is issued as warnings."""


class _Token(Protocol):
    @property
    def label(self) -> str: ...
    @property
    def logp(self) -> float: ...


class AdviceWarning(UserWarning):
    """A warning with advice on a result; it is issued once for each code."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of the request that is known to help.

    Attributes:
        option: Name of the option to change, such as "delimiter".
        value: The new value of the option; None if it depends on the case.
    """

    option: str
    value: object = None


@dataclass(frozen=True, slots=True)
class Advice(JsonRecord):
    """A warning about a result, such as a tie or a missing proof.

    Attributes:
        code: Stable name of the kind of advice: "coverage" (the model expects other
            texts than the choices), "label_mass" (the same for a decision),
            "not_proved", "tie", "bounds", "incomplete" and "stopped" (for searches) or
            "note".
        text: A sentence for people.
        remedy: The option to change, if a change is known to help, else None.
        where: Name of the question or slot concerned; "" for the whole result.
        about: What the advice is issued once for, besides its code. Not compared.
    """

    code: str
    text: str
    remedy: Remedy | None = None
    where: str = ""
    about: str = field(default="", compare=False, repr=False)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, without empty fields."""
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
    return {"warnings": [piece.to_dict() for piece in advice]} if advice else {}


def notes_advice(notes: Iterable[str]) -> tuple[Advice, ...]:
    """Return an `Advice` with the code "note" for each note of a result."""
    return tuple(Advice("note", note) for note in notes)


def expected_tokens(likeliest: Sequence[_Token], tolerance: float) -> str:
    """Return a space and a sentence that lists the likeliest tokens; "" for none.

    `tolerance` is as for `percent`.
    """
    tokens = (f"{quoted(token.label)} {percent(math.exp(token.logp), tolerance)}" for token in likeliest[:5])
    return f" It expects {', '.join(tokens)}." if likeliest else ""


_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)
_warned: set[str] = set()
_MAX_ISSUED = 100
"""Maximum number of pieces of advice that a process issues."""
_NO_DIGITS = dict.fromkeys(map(ord, string.digits))


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the texts of warnings in the yielded list; Python issues none.

    Python writes warnings to stderr and keeps their texts forever, so a warning must
    not quote the data of clients. Advice on results is not collected, because results
    contain it.
    """
    texts: list[str] = []
    token = _collected.set(texts)
    try:
        yield texts
    finally:
        _collected.reset(token)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning, or append its text to the list of `collected_warnings`.

    Python keeps the text forever, so it should be short.
    """
    if (texts := _collected.get()) is not None:
        texts.append(text)
    else:
        warnings.warn(text, category, stacklevel=caller_level())


def warn_of_advice(result: Any) -> None:
    """Issue the advice on a result, or on the first results of a list, as warnings.

    Each code is issued once in a process, for a decision once for each model and
    question. Notes are issued once for each text, ignoring digits. Nothing is issued
    while `collected_warnings` is active, and nothing after `_MAX_ISSUED`.
    """
    if _collected.get() is not None:
        return
    for advice in _iter_advice(result):
        key = advice.text.translate(_NO_DIGITS) if advice.code == "note" else f"{advice.code} {advice.about}"
        if key not in _warned and len(_warned) < _MAX_ISSUED:
            _warned.add(key)
            warn(str(advice), AdviceWarning)


def caller_level() -> int:
    """Return the `stacklevel` of the first frame outside of the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("selectrie."):
        frame, level = frame.f_back, level + 1
    return level


def _iter_advice(result: Any) -> Iterator[Advice]:
    """Yield the advice on a result, or on the first results of a list."""
    for found in result[:MAX_WARNED] if isinstance(result, list) else [result]:
        yield from getattr(found, "warnings", ())
