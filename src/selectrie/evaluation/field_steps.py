"""Computes fields of a record from other fields by named steps.

The steps express as data how published benchmark formats change their texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from selectrie.errors import InputFileError

Step = tuple[str, tuple[str, ...]]
"""Name and arguments."""


MAX_CHARACTERS = 1 << 24
"""Maximum number of characters in the texts of one field, after any step."""
SUB_SECONDS = 10.0
"""Time that one `sub` of one text may take; some patterns would take years."""
MAX_PATTERN = 10_000
"""Maximum number of characters of a regular expression with counted repeats expanded.

`regex` holds `(a{9}){9}` as 81 characters.
"""
_COUNT = re.compile(r"\{(\d*)(?:,(\d*))?\}")


class FieldError(Exception):
    """Raised for an invalid record; the code that reads it adds file and line."""


@dataclass(frozen=True, slots=True)
class TaskFile:
    """The name and text of a task's file, from which errors about the file are made."""

    name: str
    text: str

    def error(self, reason: str, key: str = "", format_index: int | None = None) -> InputFileError:
        """Return an error about the file, with the line of `key` if it is found.

        Args:
            reason: The message.
            key: The key that is wrong; "" if none is.
            format_index: Index of the format that the key is in; None for a key above
                all formats.
        """
        return InputFileError(
            self.name, reason, line=self._line(key, -1 if format_index is None else format_index) if key else None
        )

    def _line(self, key: str, format_index: int) -> int | None:
        pattern = re.compile(rf"""(?:^|[{{,])\s*["']?{re.escape(key)}["']?\s*=""")
        at = -1
        for number, line in enumerate(self.text.splitlines(), start=1):
            at += bool(re.match(r"\s*\[\[\s*format\s*\]\]", line))
            if at == format_index and pattern.search(line):
                return number
        return None


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value of a field, a nested field, or a field of each list element.

    A nested field is written "choices.text". Raises `FieldError` if it is missing.
    """
    value: Any = values
    try:
        for name in path.split("."):
            value = [one[name] for one in value] if isinstance(value, list) else value[name]
    except (KeyError, TypeError):
        raise FieldError(f"there is no field {path!r}; the fields are {', '.join(map(str, values))}") from None
    return value


def _halves(text: str, mark: str) -> tuple[str, str]:
    before, separator, after = text.partition(mark)
    if not separator:
        raise FieldError(f"there is no {mark!r} in {text!r}")
    return before, after


def _replace(text: str, old: str, new: str) -> str:
    bounded(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _sub(text: str, pattern: str, by: str) -> str:
    import regex  # `re` has no time limit

    room = MAX_CHARACTERS - len(text)

    def placed(_: object) -> str:
        nonlocal room
        room -= len(by)
        bounded(MAX_CHARACTERS - room)
        return by

    try:
        replaced: str = regex.sub(pattern, placed, text, timeout=SUB_SECONDS)
    except TimeoutError:
        raise FieldError(
            f"the regular expression {pattern!r} takes more than {SUB_SECONDS:.0f} s "
            f"on a text of {len(text)} characters; write it so that it has one way to match"
        ) from None
    return replaced


def bounded(n: int) -> int:
    """Return `n`, the number of characters that a field gets.

    Raises `FieldError` if it is more than a field may have.
    """
    if n > MAX_CHARACTERS:
        raise FieldError(
            f"a field would have more than {MAX_CHARACTERS} characters; its steps must not make it grow that much"
        )
    return n


def _map(text: str, *pairs: str) -> str:
    known = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if text not in known:
        raise FieldError(f"{text!r}: expected one of {', '.join(map(repr, known))}")
    return known[text]


STEPS: Mapping[str, tuple[Callable[..., str], int | None]] = MappingProxyType(
    {
        "strip": (str.strip, 0),
        "lstrip": (str.lstrip, 0),
        "rstrip": (str.rstrip, 0),
        "lower": (str.lower, 0),
        "capitalize": (str.capitalize, 0),
        "lower_first": (lambda text: text[:1].lower() + text[1:], 0),
        "cut": (lambda text, n: text[: -int(n)] if int(n) else text, 1),
        "before": (lambda text, mark: _halves(text, mark)[0], 1),
        "after": (lambda text, mark: _halves(text, mark)[1], 1),
        "replace": (_replace, 2),
        "sub": (_sub, 2),
        "map": (_map, None),
        "last_word": (lambda text: text.rsplit(" ", maxsplit=1)[-1], 0),
        "all_but_last_word": (lambda text: " ".join(text.split(" ")[:-1]), 0),
        "put_before": (lambda text, start: start + text, 1),
    }
)
"""Maps a step's name to its function and number of arguments (None means pairs).

`cut` removes that many characters from the end. `before` and `after` split at the first
mark, which must be present. `sub` replaces a regular expression with a plain text.
`map` replaces a text with the one paired with it; other texts are errors. Words are
separated by single spaces.
"""

_SOURCES = ("of", "text", "join")
_TYPES = (("of", str, "a text"), ("text", str, "a text"), ("join", list, "a list of fields"), ("steps", list, "a list"))


@dataclass(frozen=True, slots=True)
class Preparation:
    """The computation of one field of a record.

    Attributes:
        field: The field that is computed.
        of: The field from which it is computed; "" means `field` itself.
        text: A template to compute it from instead, or None.
        join: Fields whose lists are concatenated instead, each text once.
        steps: The steps, applied in order; to each text if the value is a list.
    """

    field: str
    of: str = ""
    text: str | None = None
    join: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()

    @staticmethod
    def of_table(file: TaskFile, where: str, format_index: int, table: Any) -> Preparation:
        """Return the preparation that a table in a task's file describes.

        `format_index` is the index of the format that contains the table, and `where`
        names the table in errors. Raises `InputFileError` if the table is invalid.
        """
        if not isinstance(table, dict) or not isinstance(table.get("field"), str) or not table["field"]:
            raise file.error(f"{where}: expected a table with a `field`", "prepare", format_index)
        unknown = sorted(set(table) - {"field", "steps", *_SOURCES})
        if unknown:
            known = ", ".join(("field", *_SOURCES, "steps"))
            raise file.error(f"{where}: {unknown[0]!r} is unknown; known are {known}", unknown[0], format_index)
        if sum(name in table for name in _SOURCES) > 1:
            raise file.error(f"{where}: expected only one of {', '.join(_SOURCES)}", "prepare", format_index)
        for name, kind, wants in _TYPES:
            value = table.get(name, kind())
            if not isinstance(value, kind) or (name == "join" and not all(isinstance(one, str) for one in value)):
                raise file.error(f"{where}: {name} = {value!r}; expected {wants}", name, format_index)
        try:
            steps = tuple(_step(one) for one in table.get("steps", []))
        except FieldError as error:
            raise file.error(f"{where}: {error}", "steps", format_index) from None
        join = tuple(table.get("join", []))
        return Preparation(table["field"], table.get("of", ""), table.get("text"), join, steps)

    def joined(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the concatenated lists of the fields `join`, each text once.

        Raises `FieldError` if one is missing or no list.
        """
        texts: list[Any] = []
        for name in self.join:
            part = value_at(values, name)
            if not isinstance(part, list) or not all(isinstance(one, str) for one in part):
                raise FieldError(f"{name} is {part!r}: expected a list of texts")
            texts += part
        return list(dict.fromkeys(texts))

    def apply(self, value: Any) -> Any:
        """Return the value after its steps.

        Raises `FieldError` for a value that is not a text, a step that fails, and a
        text that grows too much.
        """
        return self._apply(value, 0)[0] if self.steps else value

    def _apply(self, value: Any, n_before: int) -> tuple[Any, int]:
        """Return the value after its steps, and the growth of its texts so far."""
        if isinstance(value, list | tuple):
            results = []
            for one in value:
                result, n_before = self._apply(one, n_before)
                results.append(result)
            return results, n_before
        if not isinstance(value, str):
            raise FieldError(f"{self.field} is {value!r}: expected a text")
        n_characters = len(value)
        for step, arguments in self.steps:
            value = STEPS[step][0](value, *arguments)
        grown = n_before + max(len(value) - n_characters, 0)
        return value, bounded(grown)


def _step(table: Any) -> Step:
    if not isinstance(table, list) or not table or not all(isinstance(one, str) for one in table):
        raise FieldError(f"{table!r}: expected a list of texts that begins with the name of a step")
    step, *arguments = table
    if step not in STEPS:
        raise FieldError(f"no step is called {step!r}; there are {', '.join(STEPS)}")
    n = STEPS[step][1]
    if n is None and (not arguments or len(arguments) % 2):
        raise FieldError(f"{step} takes pairs of texts, not {len(arguments)} arguments")
    if n is not None and len(arguments) != n:
        raise FieldError(f"{step} takes {n} arguments, not {len(arguments)}")
    if step in ("before", "after") and not arguments[0]:
        raise FieldError(f"{step} takes a mark, not an empty text")
    if step == "cut" and not (arguments[0].isascii() and arguments[0].isdecimal() and len(arguments[0]) < 10):
        raise FieldError(f"cut takes a number of characters, not {arguments[0]!r}")
    if step == "sub":
        _check_pattern(arguments[0])
    return step, tuple(arguments)


def _check_pattern(pattern: str) -> None:
    import regex

    if len(pattern) > MAX_PATTERN or _written_out(pattern) > MAX_PATTERN:
        raise FieldError(f"the regular expression has more than {MAX_PATTERN} characters with its repeats written out")
    try:
        regex.compile(pattern)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise FieldError(f"not a regular expression: {error}") from None


def _written_out(pattern: str) -> int:
    """Return the length of a regular expression with its counted repeats expanded.

    The compiled pattern of `regex` is not longer than that.
    """
    # Of the open groups, and of the part that a count would repeat.
    sizes, at, last = [0], 0, 0
    while at < len(pattern):
        character, count = pattern[at], _COUNT.match(pattern, at)
        if count is not None:
            times = max(
                [int(number) if len(number) < 7 else MAX_PATTERN + 1 for number in count.groups() if number],
                default=1,
            )
            sizes[-1] += last * max(times - 1, 0)
            last *= max(times, 1)
            at = count.end()
            continue
        at += 2 if character == "\\" else 1
        if character == "(":
            sizes.append(0)
        elif character == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        else:
            last = 1
            sizes[-1] += 1
        if sizes[-1] > MAX_PATTERN:
            break
    return max(sizes)
