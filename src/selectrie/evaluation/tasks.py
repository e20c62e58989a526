"""Tasks as data: rules that turn records into questions by named steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import resources
from pathlib import Path
from typing import Any

from selectrie.errors import InputFileError, OptionError, TemplateError
from selectrie.evaluation.metrics import find_metrics
from selectrie.evaluation.work_units import UNIT_ROWS
from selectrie.runs.data_files import decode_text, parse_toml
from selectrie.template.analysis.template import Template
from selectrie.template.interpreter import Interpreter, Write

FieldStep = tuple[str, tuple[str, ...]]
"""Name of a step (`STEPS`) and its arguments."""


MAX_CHARACTERS = 1 << 24
"""Maximum number of characters in the texts of one field, after any step."""
SUB_SECONDS = 10.0
"""Seconds that one `sub` of one text may take; some patterns would take years."""
MAX_PATTERN = 10_000
"""Maximum number of characters of a regular expression with counted repeats expanded.

`regex` holds `(a{9}){9}` as 81 characters.
"""
_COUNT = re.compile(r"\{(\d*)(?:,(\d*))?\}")


class FieldError(Exception):
    """Raised for an invalid record; the reader of the file adds file and line."""


@dataclass(frozen=True, slots=True)
class TaskFile:
    """The name and text of a task's file, for errors that name a line."""

    name: str
    text: str

    def error(self, reason: str, key: str = "", format_index: int | None = None) -> InputFileError:
        """Return an error about the file, with the line of `key` if it is found.

        Args:
            reason: The message.
            key: The wrong key; "" if the error is about no key.
            format_index: Index of the format with the key; None for a key above all
                formats.
        """
        return InputFileError(
            self.name, reason, line=self._line(key, -1 if format_index is None else format_index) if key else None
        )

    def _line(self, key: str, format_index: int) -> int | None:
        """Return the number of the line that sets a key in a format, or None."""
        pattern = re.compile(rf"""(?:^|[{{,])\s*["']?{re.escape(key)}["']?\s*=""")
        at = -1
        for number, line in enumerate(self.text.splitlines(), start=1):
            at += bool(re.match(r"\s*\[\[\s*format\s*\]\]", line))
            if at == format_index and pattern.search(line):
                return number
        return None


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value of a field, a nested field, or a field of each list element.

    Raises `FieldError` if it is missing.

    Args:
        values: The fields by name.
        path: Name of the field; a nested field is written "choices.text".
    """
    if path in values:
        return values[path]
    value: Any = values
    try:
        for name in path.split("."):
            value = [one[name] for one in value] if isinstance(value, list) else value[name]
    except (KeyError, TypeError):
        raise FieldError(f"there is no field {path!r}; the fields are {', '.join(map(str, values))}") from None
    return value


def _split_at(text: str, mark: str) -> tuple[str, str]:
    """Return the text before and after the first `mark`; raise `FieldError` without."""
    before, separator, after = text.partition(mark)
    if not separator:
        raise FieldError(f"there is no {mark!r} in {text!r}")
    return before, after


def _replace(text: str, old: str, new: str) -> str:
    check_length(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _sub(text: str, pattern: str, by: str) -> str:
    """Replace matches of a regular expression by a plain text, with a time limit."""
    import regex  # `re` has no time limit

    room = MAX_CHARACTERS - len(text)

    def placed(_: object) -> str:
        nonlocal room
        room -= len(by)
        check_length(MAX_CHARACTERS - room)
        return by

    try:
        replaced: str = regex.sub(pattern, placed, text, timeout=SUB_SECONDS)
    except TimeoutError:
        raise FieldError(
            f"the regular expression {pattern!r} takes more than {SUB_SECONDS:.0f} s "
            f"on a text of {len(text)} characters; write it so that it has one way to match"
        ) from None
    return replaced


def check_length(n: int) -> int:
    """Return `n`; raise `FieldError` if a field may not have that many characters."""
    if n > MAX_CHARACTERS:
        raise FieldError(
            f"a field would have more than {MAX_CHARACTERS} characters; its steps must not make it grow that much"
        )
    return n


def _map_text(text: str, *pairs: str) -> str:
    known = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if text not in known:
        raise FieldError(f"{text!r}: expected one of {', '.join(map(repr, known))}")
    return known[text]


STEPS: Mapping[str, tuple[Callable[..., str], int | None]] = {
    "strip": (str.strip, 0),
    "lstrip": (str.lstrip, 0),
    "rstrip": (str.rstrip, 0),
    "lower": (str.lower, 0),
    "capitalize": (str.capitalize, 0),
    "lower_first": (lambda text: text[:1].lower() + text[1:], 0),
    "cut": (lambda text, n: text[: -int(n)] if int(n) else text, 1),
    "before": (lambda text, mark: _split_at(text, mark)[0], 1),
    "after": (lambda text, mark: _split_at(text, mark)[1], 1),
    "replace": (_replace, 2),
    "sub": (_sub, 2),
    "map": (_map_text, None),
    "last_word": (lambda text: text.rsplit(" ", maxsplit=1)[-1], 0),
    "all_but_last_word": (lambda text: " ".join(text.split(" ")[:-1]), 0),
    "put_before": (lambda text, start: start + text, 1),
}
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
    """The rule for computing one field of a record.

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
    steps: tuple[FieldStep, ...] = ()

    @staticmethod
    def of_table(file: TaskFile, where: str, format_index: int, table: Any) -> Preparation:
        """Return the preparation that a table in a task's file describes.

        Raises `InputFileError` if the table is invalid.

        Args:
            where: Name of the table, for errors.
            format_index: Index of the format that contains the table.
            table: The parsed table.
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
            steps = tuple(_parse_step(one) for one in table.get("steps", []))
        except FieldError as error:
            raise file.error(f"{where}: {error}", "steps", format_index) from None
        join = tuple(table.get("join", []))
        return Preparation(table["field"], table.get("of", ""), table.get("text"), join, steps)

    def join_lists(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the concatenated lists of the fields `join`, each text once.

        Raises `FieldError` if a field is missing or is no list of texts.
        """
        texts: list[Any] = []
        for name in self.join:
            part = value_at(values, name)
            if not isinstance(part, list) or not all(isinstance(one, str) for one in part):
                raise FieldError(f"{name} is {part!r}: expected a list of texts")
            texts += part
        return list(dict.fromkeys(texts))

    def apply(self, value: Any) -> Any:
        """Apply the steps to a text, or to each text of a list, and return the result.

        Raises `FieldError` for a value that is not a text, a step that fails, and a
        text that grows too much.
        """
        return self._apply(value, 0)[0] if self.steps else value

    def _apply(self, value: Any, n_before: int) -> tuple[Any, int]:
        """Return the result, and how many characters texts have gained so far."""
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
        return value, check_length(grown)


def _parse_step(table: Any) -> FieldStep:
    """Return a step from its list in a task's file; raise `FieldError` if wrong."""
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
    """Raise `FieldError` for a regular expression that is invalid or too long."""
    import regex

    if len(pattern) > MAX_PATTERN or _expanded_length(pattern) > MAX_PATTERN:
        raise FieldError(f"the regular expression has more than {MAX_PATTERN} characters with its repeats written out")
    try:
        regex.compile(pattern)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise FieldError(f"not a regular expression: {error}") from None


def _expanded_length(pattern: str) -> int:
    """Return the length of a regular expression with counted repeats expanded.

    The compiled pattern of `regex` is not longer than that.
    """
    # Of the open groups, and of the part that a count would repeat.
    sizes, at, last = [0], 0, 0
    while at < len(pattern):
        character, count = pattern[at], _COUNT.match(pattern, at)
        if count is not None:
            times = max(
                [int(number) if len(number) < 7 else MAX_PATTERN + 1 for number in count.groups() if number], default=1
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


MAX_FILE_BYTES = 1 << 20
KINDS = ("multiple_choice", "continuation", "rolling")
GOLDS = ("place", "number", "label", "text", "flags")


@dataclass(frozen=True, slots=True)
class Format:
    """Describes how records with the same fields become items.

    A task may have several formats; the first one whose `needs` a record has is used.

    Attributes:
        needs: Fields that a record must have ("choices.text" is a nested field).
        prepare: Fields that are computed from other fields, in order.
        context: Text before every choice.
        contexts: Instead of `context`, one text for each choice.
        choices: A field with a list (or a text, for a single choice), or texts.
        gold: Field that names the right choices; "" if the first choice is right.
        gold_as: Meaning of that field: "place" (from 0), "number" (from 1), "label"
            (one of `labels`), "text" (the choice itself) or "flags" (a list, 1 where
            right).
        labels: Labels of the choices: a field, or texts.
        subset: Text that names the group of an item.
        id: Field with the item's id.
        content_free: Fields, each with texts that replace it in content-free contexts.
            One context has the first text of all fields, another the second ones, and
            so on.
    """

    needs: tuple[str, ...] = ()
    prepare: tuple[Preparation, ...] = ()
    context: str = ""
    contexts: tuple[str, ...] = ()
    choices: str | tuple[str, ...] = "choices"
    gold: str = "gold"
    gold_as: str = "place"
    labels: str | tuple[str, ...] = ()
    subset: str = ""
    id: str = "id"
    content_free: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The rules of a benchmark.

    Attributes:
        name, version: The task's name and version.
        kind: "multiple_choice", "continuation" (one text after a context) or "rolling"
            (a text of any length).
        source: Source of the format and of the metrics.
        formats: Descriptions of how records become items.
        metrics: Names of metrics.
        description: Text before examples and question, a template.
        delimiter: Text between context and choice.
        answer_delimiter: The delimiter in examples, if it differs; else None.
        shot_delimiter: Text after each example.
        shots_by: Field that an example has in common with its question.
        premise: Context without a question, a template; None if the task has none.
        unit_rows: Approximate maximum number of rows of a unit (`TaskItems`).
        files: Beginnings of the names of its data files, besides the task's name.
        digest, text: Digest and text of the task's file.
    """

    name: str
    version: int
    kind: str
    source: str
    formats: tuple[Format, ...]
    metrics: tuple[str, ...]
    description: str = ""
    delimiter: str = " "
    answer_delimiter: str | None = None
    shot_delimiter: str = "\n\n"
    shots_by: str = ""
    premise: str | None = None
    unit_rows: int = UNIT_ROWS
    files: tuple[str, ...] = ()
    digest: str = ""
    text: str = ""

    def format_of(self, record: Mapping[str, Any]) -> Format | None:
        """Return the first format that reads a record with these fields, or None."""
        return next((one for one in self.formats if all(_has_field(record, path) for path in one.needs)), None)


def _has_field(record: Mapping[str, Any], path: str) -> bool:
    """Return whether a record has a field, perhaps a nested one."""
    try:
        value_at(record, path)
    except FieldError:
        return False
    return True


@cache
def shipped() -> tuple[str, ...]:
    """Return the names of the tasks that come with selectrie."""
    folder = resources.files("selectrie.evaluation") / "tasks_data"
    return tuple(sorted(path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml")))


def load_task(name: str) -> Task:
    """Return a task by the name of a shipped one or the path of a TOML file.

    Raises `InputFileError` if neither exists or the file is invalid.
    """
    if name in shipped():
        return _load_shipped(name)
    if not name.endswith(".toml") or "\0" in name:
        raise InputFileError(name, f"there is no task of this name; give a TOML file or one of {', '.join(shipped())}")
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    # UnicodeEncodeError: the name has half a character.
    except (OSError, UnicodeEncodeError) as error:
        raise InputFileError(name, getattr(error, "strerror", None) or str(error)) from error
    if len(data) > MAX_FILE_BYTES:
        raise InputFileError(name, f"the file has more than {MAX_FILE_BYTES >> 20} MiB, so it is not a task")
    return parse_task(decode_text(name, data, 1).replace("\r\n", "\n"), name)


@cache
def _load_shipped(name: str) -> Task:
    path = resources.files("selectrie.evaluation") / "tasks_data" / f"{name}.toml"
    return parse_task(path.read_text(encoding="utf-8"), f"{name}.toml")


def parse_task(text: str, name: str) -> Task:
    """Return the task that a TOML text describes.

    Raises `InputFileError` with the file, the key and, if known, the line.

    Args:
        text: The TOML.
        name: Name of the file, for errors.
    """
    table = parse_toml(text, name)
    file = TaskFile(name, text)
    formats = table.pop("format", [])
    if not isinstance(formats, list) or not formats:
        raise InputFileError(name, "expected at least one [[format]], which says how a record is read")
    own = _check_table(file, Task, table, leave=("formats", "digest", "text"))
    read = tuple(_parse_format(file, one, i) for i, one in enumerate(formats))
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    task = Task(**own, formats=read, digest=digest, text=text)
    _check_task(file, task)
    return task


def _check_task(file: TaskFile, task: Task) -> None:
    """Raise `InputFileError` for values that have the right type but no meaning."""
    if task.kind not in KINDS:
        raise file.error(f"kind = {task.kind!r}; expected one of {', '.join(KINDS)}", "kind")
    for key in ("version", "unit_rows"):
        if getattr(task, key) < 1:
            raise file.error(f"{key} = {getattr(task, key)}; expected at least 1", key)
    for key in ("name", "metrics"):
        if not getattr(task, key):
            raise file.error(f"{key} is empty", key)
    try:
        find_metrics(task.metrics)
    except OptionError as error:
        raise file.error(f"metrics: {error}", "metrics") from None
    _check_templates(file, task)


def _check_templates(file: TaskFile, task: Task) -> None:
    """Raise `InputFileError` for an invalid template.

    A template is invalid if it cannot be parsed, if it has slots, or if it is a context
    that lacks a field of `content_free`.
    """
    for key, index, text in _list_templates(task):
        try:
            slots = _parse_template(text).slots
        except TemplateError as error:
            raise file.error(f"{key}: {error.reason} in {text!r}", key, index) from None
        if slots:
            raise file.error(f"{key}: expected a text without slots, not {text!r}", key, index)
    for index, one in enumerate(task.formats):
        asking = _parse_template(one.context).needs
        lost = next((field for field in one.content_free or {} if field not in asking), None)
        if lost is not None:
            raise file.error(f"content_free: the context has no field {lost!r}", "content_free", index)


def _list_templates(task: Task) -> Iterator[tuple[str, int | None, str]]:
    """Yield each template's key, the index of its format or None, and its text."""
    yield "description", None, task.description
    yield "premise", None, task.premise or ""
    for index, one in enumerate(task.formats):
        yield "context", index, one.context
        yield "subset", index, one.subset
        for key, texts in (("contexts", one.contexts), ("choices", one.choices), ("labels", one.labels)):
            for text in texts if isinstance(texts, tuple) else ():
                yield key, index, text
        for step in one.prepare:
            yield "prepare", index, step.text or ""


def _parse_format(file: TaskFile, table: Any, index: int) -> Format:
    """Return the format that a table in a task's file describes."""
    where = f"format[{index}]"
    if not isinstance(table, dict):
        raise file.error(f"{where}: expected a table")
    steps = table.pop("prepare", [])
    if not isinstance(steps, list):
        raise file.error(f"{where}: prepare = {steps!r}; expected a list of tables", "prepare", index)
    prepare = tuple(Preparation.of_table(file, f"{where}.prepare[{i}]", index, one) for i, one in enumerate(steps))
    content_free = _parse_content_free(file, where, index, table.pop("content_free", None))
    own = _check_table(file, Format, table, leave=("prepare", "content_free"), index=index)
    result = Format(**own, prepare=prepare, content_free=content_free)
    if result.gold_as not in GOLDS:
        raise file.error(f"{where}: gold_as = {result.gold_as!r}; expected one of {', '.join(GOLDS)}", "gold_as", index)
    if result.gold_as == "label" and not result.labels:
        raise file.error(f"{where}: gold_as = 'label' needs `labels`", "gold_as", index)
    if result.contexts and (result.context or content_free):
        other = "context" if result.context else "content_free"
        raise file.error(f"{where}: expected `contexts` or `{other}`, not both", "contexts", index)
    if not result.choices:
        raise file.error(f"{where}: choices is empty", "choices", index)
    return result


def _parse_content_free(file: TaskFile, where: str, index: int, table: Any) -> Mapping[str, tuple[str, ...]] | None:
    """Return `Format.content_free` from its table, or None without a table."""
    if table is None:
        return None
    reason = f"{where}: content_free = {table!r}; expected fields, each with the same number of texts that say nothing"
    if not isinstance(table, dict) or not table:
        raise file.error(reason, "content_free", index)
    for texts in table.values():
        if not isinstance(texts, list) or not texts or not all(isinstance(one, str) for one in texts):
            raise file.error(reason, "content_free", index)
    if len({len(texts) for texts in table.values()}) > 1:
        raise file.error(reason, "content_free", index)
    return {key: tuple(value) for key, value in table.items()}


def _check_table(
    file: TaskFile, kind: type, table: Mapping[str, Any], leave: tuple[str, ...], index: int | None = None
) -> dict[str, Any]:
    """Return the values of a TOML table by field of `kind`, with lists as tuples.

    Raises `InputFileError` for a value that is unknown, missing, or of another type.

    Args:
        file: The task's file, for errors.
        kind: The dataclass with the known fields.
        leave: Fields that the table must not have.
        index: Index of the format that the table is; None for the task's own table.
    """
    where = "task" if index is None else f"format[{index}]"
    known = {one.name: str(one.type) for one in fields(kind) if one.name not in leave}
    result: dict[str, Any] = {}
    for key, entry in table.items():
        if key not in known:
            raise file.error(f"{where}: {key!r} is unknown; known are {', '.join(known)}", key, index)
        value = tuple(entry) if isinstance(entry, list) else entry
        if not _has_kind(value, known[key]):
            expected = known[key].replace("int", "an integer").replace("tuple[str, ...]", "a list of texts")
            expected = expected.replace("str", "a text").replace(" | None", "").replace("|", "or")
            raise file.error(f"{where}: {key} = {entry!r}; expected {expected}", key, index)
        result[key] = value
    required = ("name", "version", "kind", "source", "metrics") if kind is Task else ()
    missing = next((key for key in required if key not in result), None)
    if missing is not None:
        raise file.error(f"{where}: {missing!r} is missing")
    return result


def _has_kind(value: Any, kind_name: str) -> bool:
    """Return whether a value fits a field's annotated type, given as text."""
    if isinstance(value, tuple):
        return "tuple[str" in kind_name and all(isinstance(one, str) for one in value)
    if isinstance(value, str):
        return "str" in kind_name.replace("tuple[str", "")
    return isinstance(value, int) and not isinstance(value, bool) and kind_name == "int"


@lru_cache(maxsize=256)
def _parse_template(text: str) -> Template:
    return Template(text, name="task")


def render_text(text: str, values: Mapping[str, Any]) -> str:
    """Return a task's template, rendered with the fields of a record.

    Raises `TemplateError` if that fails, if the template has a slot, or if the text
    gets too long.
    """
    if "<<" not in text:
        return text
    program = Interpreter(_parse_template(text), values)
    parts, n = [], 0
    while (step := program.step()) is not None:
        if not isinstance(step, Write):
            raise TemplateError("texts of tasks have no slots", name="task")
        parts.append(step.text)
        n += len(step.text)
        if n > MAX_CHARACTERS:
            raise TemplateError(f"the text gets longer than {MAX_CHARACTERS} characters", name="task")
    return "".join(parts)
