"""Fields made of fields, by named steps: what the published formats do to their texts, as data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from selectrie.errors import InputFileError

Step = tuple[str, tuple[str, ...]]
"""Name and arguments."""


def _capitalize(text: str) -> str:
    return text.capitalize()


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _cut(text: str, n: str) -> str:
    return text[: -int(n)] if int(n) else text


def _before(text: str, mark: str) -> str:
    return text.split(mark, 1)[0]


def _after(text: str, mark: str) -> str:
    return text.split(mark, 1)[1] if mark in text else ""


def _sub(text: str, pattern: str, by: str) -> str:
    return re.sub(pattern, by, text)


def _last_word(text: str) -> str:
    return text.rsplit(" ", maxsplit=1)[-1]


def _all_but_last_word(text: str) -> str:
    return " ".join(text.split(" ")[:-1])


def _put_before(text: str, start: str) -> str:
    return start + text


STEPS: Mapping[str, tuple[Callable[..., str], int]] = MappingProxyType(
    {
        "strip": (str.strip, 0),
        "lstrip": (str.lstrip, 0),
        "rstrip": (str.rstrip, 0),
        "lower": (str.lower, 0),
        "capitalize": (_capitalize, 0),
        "lower_first": (_lower_first, 0),
        "cut": (_cut, 1),
        "before": (_before, 1),
        "after": (_after, 1),
        "replace": (str.replace, 2),
        "sub": (_sub, 2),
        "last_word": (_last_word, 0),
        "all_but_last_word": (_all_but_last_word, 0),
        "put_before": (_put_before, 1),
    }
)
"""Name -> (what it does to a text, how many arguments it takes). cut: so many characters off the end. before, after: the first mark.
sub: a regular expression, and what stands in its place."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """field: what is made. of: the field it is made of (default: `field`), or text: a template. steps: done one after the other, to
    each text of a list."""

    field: str
    of: str = ""
    text: str = ""
    steps: tuple[Step, ...] = ()

    @staticmethod
    def of_table(name: str, where: str, given: Any) -> Preparation:
        """From a table of a task's file. Raises `InputFileError` naming what is wrong."""
        if not isinstance(given, dict) or not isinstance(given.get("field"), str):
            raise InputFileError(name, f"{where}: a table with a `field` is wanted")
        unknown = sorted(set(given) - {"field", "of", "text", "steps"})
        if unknown:
            raise InputFileError(name, f"{where}: {unknown[0]!r} is unknown; known are field, of, text, steps")
        steps = tuple(_step(name, f"{where}.steps[{i}]", one) for i, one in enumerate(given.get("steps", [])))
        return Preparation(given["field"], str(given.get("of", "")), str(given.get("text", "")), steps)

    def done_to(self, value: Any) -> Any:
        """The value after its steps. Raises `TypeError` for what is no text."""
        if isinstance(value, list | tuple):
            return [self.done_to(one) for one in value]
        if not isinstance(value, str):
            if not self.steps:
                return value
            raise TypeError(f"{self.field} is {value!r}: a text is wanted")
        for step, arguments in self.steps:
            value = STEPS[step][0](value, *arguments)
        return value


def _step(name: str, where: str, given: Any) -> Step:
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        raise InputFileError(name, f"{where}: a list of texts is wanted, the name of a step first")
    step, *arguments = given
    if step not in STEPS:
        raise InputFileError(name, f"{where}: no step is called {step!r}; there are {', '.join(STEPS)}")
    if len(arguments) != STEPS[step][1]:
        raise InputFileError(name, f"{where}: {step} takes {STEPS[step][1]} arguments, not {len(arguments)}")
    if step == "cut" and not arguments[0].isdecimal():
        raise InputFileError(name, f"{where}: cut takes a number of characters, not {arguments[0]!r}")
    if step == "sub":
        try:
            re.compile(arguments[0])
        except re.error as error:
            raise InputFileError(name, f"{where}: not a regular expression: {error}") from None
    return step, tuple(arguments)
