"""Tasks as data, which describe how a record becomes a question.

A task is a TOML file, and nothing in it is executed. Its texts are templates without
slots over the fields of a record (`<<question>>`). If a text needs more than that,
`prepare` computes fields from other fields by a few named steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import resources
from pathlib import Path
from typing import Any

from selectrie.errors import InputFileError, OptionError, TemplateError
from selectrie.evaluation.field_steps import MAX_CHARACTERS, FieldError, Preparation, TaskFile, value_at
from selectrie.evaluation.metrics import named
from selectrie.evaluation.work_units import UNIT_ROWS
from selectrie.runs.data_lines import decoded
from selectrie.runs.toml_text import parsed_toml
from selectrie.template.analysis.template import Template
from selectrie.template.runtime.interpreter import Interpreter
from selectrie.template.runtime.steps import Write

MAX_FILE_BYTES = 1 << 20
KINDS = ("multiple_choice", "continuation", "rolling")
GOLDS = ("place", "number", "label", "text", "flags")


@dataclass(frozen=True, slots=True)
class Format:
    """Describes how records with the same fields become items.

    A task may have several formats; the first one whose `needs` a record has is used.

    Attributes:
        needs: Fields that a record must have ("choices.text" is a field in a field).
        prepare: Fields that are computed from other fields, in order.
        context: Text before every choice.
        contexts: Instead of `context`, one text for each choice.
        choices: A field with a list (or a text, for a single choice), or texts.
        gold: Field that names the right choices; "" if the first choice is right.
        gold_as: "place" (from 0), "number" (from 1), "label" (one of `labels`), "text"
            (the choice itself) or "flags" (a list, 1 where right).
        labels: A field, or texts.
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
        unit_rows: Approximate number of rows of a unit.
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
        """Return the format that reads a record with these fields, or None."""
        return next((one for one in self.formats if all(_has(record, path) for path in one.needs)), None)


def _has(record: Mapping[str, Any], path: str) -> bool:
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

    Raises `InputFileError` if there is none or the file is invalid.
    """
    if name in shipped():
        return _shipped(name)
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
    return parse_task(decoded(name, data, 1).replace("\r\n", "\n"), name)


@cache
def _shipped(name: str) -> Task:
    path = resources.files("selectrie.evaluation") / "tasks_data" / f"{name}.toml"
    return parse_task(path.read_text(encoding="utf-8"), f"{name}.toml")


def parse_task(text: str, name: str) -> Task:
    """Return the task of a TOML text.

    Raises `InputFileError` with the file, the key and, if known, the line.
    """
    table = parsed_toml(text, name)
    file = TaskFile(name, text)
    formats = table.pop("format", [])
    if not isinstance(formats, list) or not formats:
        raise InputFileError(name, "expected at least one [[format]], which says how a record is read")
    own = _checked(file, Task, table, leave=("formats", "digest", "text"))
    read = tuple(_format(file, one, i) for i, one in enumerate(formats))
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
        named(task.metrics)
    except OptionError as error:
        raise file.error(f"metrics: {error}", "metrics") from None
    _check_templates(file, task)


def _check_templates(file: TaskFile, task: Task) -> None:
    """Raise `InputFileError` for an invalid template.

    A template is invalid if it cannot be parsed, if it has slots, or if it is a context
    that lacks a field of `content_free`.
    """
    for key, index, text in _templates(task):
        try:
            slots = _template(text).slots
        except TemplateError as error:
            raise file.error(f"{key}: {error.reason} in {text!r}", key, index) from None
        if slots:
            raise file.error(f"{key}: expected a text without slots, not {text!r}", key, index)
    for index, one in enumerate(task.formats):
        asking = _template(one.context).needs
        lost = next((field for field in one.content_free or {} if field not in asking), None)
        if lost is not None:
            raise file.error(f"content_free: the context has no field {lost!r}", "content_free", index)


def _templates(task: Task) -> Iterator[tuple[str, int | None, str]]:
    """Yield every template: its key, the index of its format or None, and its text."""
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


def _format(file: TaskFile, table: Any, index: int) -> Format:
    where = f"format[{index}]"
    if not isinstance(table, dict):
        raise file.error(f"{where}: expected a table")
    steps = table.pop("prepare", [])
    if not isinstance(steps, list):
        raise file.error(f"{where}: prepare = {steps!r}; expected a list of tables", "prepare", index)
    prepare = tuple(Preparation.of_table(file, f"{where}.prepare[{i}]", index, one) for i, one in enumerate(steps))
    content_free = _content_free(file, where, index, table.pop("content_free", None))
    own = _checked(file, Format, table, leave=("prepare", "content_free"), index=index)
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


def _content_free(file: TaskFile, where: str, index: int, table: Any) -> Mapping[str, tuple[str, ...]] | None:
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


def _checked(
    file: TaskFile, kind: type, table: Mapping[str, Any], leave: tuple[str, ...], index: int | None = None
) -> dict[str, Any]:
    """Return the values of a TOML table by field of `kind`, with lists as tuples.

    Raises `InputFileError` for a value that is unknown, missing, or of another type.
    """
    where = "task" if index is None else f"format[{index}]"
    known = {one.name: str(one.type) for one in fields(kind) if one.name not in leave}
    result: dict[str, Any] = {}
    for key, entry in table.items():
        if key not in known:
            raise file.error(f"{where}: {key!r} is unknown; known are {', '.join(known)}", key, index)
        value = tuple(entry) if isinstance(entry, list) else entry
        if not _fits(value, known[key]):
            expected = known[key].replace("int", "an integer").replace("tuple[str, ...]", "a list of texts")
            expected = expected.replace("str", "a text").replace(" | None", "").replace("|", "or")
            raise file.error(f"{where}: {key} = {entry!r}; expected {expected}", key, index)
        result[key] = value
    required = ("name", "version", "kind", "source", "metrics") if kind is Task else ()
    missing = next((key for key in required if key not in result), None)
    if missing is not None:
        raise file.error(f"{where}: {missing!r} is missing")
    return result


def _fits(value: Any, kind_name: str) -> bool:
    if isinstance(value, tuple):
        return "tuple[str" in kind_name and all(isinstance(one, str) for one in value)
    if isinstance(value, str):
        return "str" in kind_name.replace("tuple[str", "")
    return isinstance(value, int) and not isinstance(value, bool) and kind_name == "int"


@lru_cache(maxsize=256)
def _template(text: str) -> Template:
    return Template(text, name="task")


def written(text: str, values: Mapping[str, Any]) -> str:
    """Return a text of a task, rendered with the fields of a record.

    Raises `TemplateError` if that fails, or if the text has a slot.
    """
    if "<<" not in text:
        return text
    program = Interpreter(_template(text), values)
    parts, n = [], 0
    while (step := program.step()) is not None:
        if not isinstance(step, Write):
            raise TemplateError("texts of tasks have no slots", name="task")
        parts.append(step.text)
        n += len(step.text)
        if n > MAX_CHARACTERS:
            raise TemplateError(f"the text gets longer than {MAX_CHARACTERS} characters", name="task")
    return "".join(parts)
