"""Reads data files of benchmarks, and turns records into items by a task's rules."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from selectrie.core.files import DELIMITERS, ITEM_SUFFIXES, PARQUET
from selectrie.errors import InputFileError, OptionError, TemplateError
from selectrie.evaluation.metrics import Item
from selectrie.evaluation.tasks import FieldError, Format, Task, load_task, render_text, shipped, value_at
from selectrie.evaluation.work_units import TaskItems
from selectrie.options import at_least
from selectrie.runs.data_files import (
    data_file_status,
    decode_text,
    delimited_records,
    digest_of_bytes,
    json_objects,
    kind_of,
    parquet_file,
    parse_json,
    reading,
    require_object,
)

MAX_WHOLE_BYTES = 256 << 20
"""Maximum size in bytes of a file that is read as a whole (JSON, Parquet)."""


@dataclass(frozen=True, slots=True)
class DataRecord:
    """A record of a data file.

    Attributes:
        number: Line of the record, from 1, or its number in a file without lines.
        fields: The fields by name.
    """

    number: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Data:
    """The records of a data file.

    Attributes:
        path: Path of the file.
        records: The records.
        digest: blake2b digest of the file's bytes.
    """

    path: Path
    records: tuple[DataRecord, ...]
    digest: str


def read_data(path: Path) -> Data:
    """Return every record of a file.

    The suffix decides the format: .jsonl, .ndjson, .json (a list of objects), .csv
    (with a header), .tsv or .parquet.

    Raises:
        InputFileError: With file and line, if the file cannot be read, is empty, is not
            UTF-8 or ends too early, or if it has a duplicate key, an invalid number, a
            lone surrogate, a row of another width, or a field beyond
            `csv.field_size_limit`.
        MissingExtraError: For Parquet without pyarrow.
    """
    status = data_file_status(path, ITEM_SUFFIXES, "data file")
    if path.suffix.lower() in (".json", PARQUET) and status.st_size > MAX_WHOLE_BYTES:
        raise InputFileError(str(path), f"larger than {MAX_WHOLE_BYTES >> 20} MiB; cut it up, or make it .jsonl")
    with reading(path):
        records = tuple(DataRecord(number, fields) for number, fields in _read_records(path))
        digest = digest_of_bytes(path)
        later = path.stat()
    if (later.st_size, later.st_mtime_ns, later.st_ino) != (status.st_size, status.st_mtime_ns, status.st_ino):
        raise InputFileError(str(path), "it changed while it was read; try again when it is whole")
    if not records:
        raise InputFileError(str(path), "it has no records")
    return Data(path, records, digest)


def _read_records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the number and the fields of each record of a file."""
    suffix = path.suffix.lower()
    if suffix in DELIMITERS:
        rows = delimited_records(path, DELIMITERS[suffix])
        line, _, header = next(rows)
        if not all(header):
            raise InputFileError(str(path), "a column has no name", line=line)
        for line, _, row in rows:
            yield line, dict(zip(header, row, strict=True))
    elif suffix == PARQUET:
        with parquet_file(path) as file:
            values = file.read().to_pylist()
        yield from enumerate(values, start=1)
    elif suffix == ".json":
        value = parse_json(path, decode_text(path, path.read_bytes(), 1), None)
        if not isinstance(value, list):
            raise InputFileError(str(path), f"expected a list of objects, not {kind_of(value)}")
        for number, one in enumerate(value, start=1):
            yield number, require_object(path, one, number)
    else:
        yield from ((number, fields) for number, _, fields in json_objects(path))


GENERIC = "generic"
"""The task of records with context, choices and gold."""


@dataclass(frozen=True, slots=True)
class Shots:
    """The examples that are written before each question.

    Attributes:
        n: Number of examples.
        data: File of the examples. None takes them from the questions' own file, where
            a question is never its own example.
        seed: Seed with which they are drawn for each question. None takes the first n
            records, and the next n for questions among these, so that questions share
            them.
    """

    n: int = 0
    data: Data | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        at_least("shots", self.n, 0, optional=False)


NO_SHOTS = Shots()


def task_for(data: Data) -> Task:
    """Return the shipped task that reads a data file.

    A task fits if the file's name begins with the task's name (or with one of its
    `files`) and the records have its fields. The longest such name wins. If no task
    fits, the generic one is returned. Raises `InputFileError` if that task cannot read
    the records either; the error names the fields found, and the tasks that would read
    them under another file name.
    """
    first = data.records[0].fields
    tasks = [load_task(name) for name in shipped()]
    stem = _normalize_name(data.path.stem)
    begins = [
        (len(name), task)
        for task in tasks
        for name in (task.name, *task.files)
        if _names_task(stem, _normalize_name(name))
    ]
    named = [task for _, task in sorted(begins, key=lambda one: -one[0])]
    for task in [*named, load_task(GENERIC)]:
        if task.format_of(first) is not None:
            return task
    fitting = [task.name for task in tasks if task.format_of(first) is not None]
    if fitting:
        reason = f"say which task this is: records of {', '.join(first)} are read by {', '.join(fitting)}"
    else:
        reason = (
            f"no shipped task ({', '.join(shipped())}) reads records of {', '.join(first)}; name their columns "
            "(--context, --choices, --gold), or write a TOML file"
        )
    raise InputFileError(str(data.path), f"{reason} (--task NAME or NAME=FILE)", line=data.records[0].number)


def _normalize_name(name: str) -> str:
    """Return a name in lower case, with other characters as underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def _names_task(stem: str, name: str) -> bool:
    """Return whether a file's name begins with a task's name and no letter follows."""
    return stem.startswith(name) and not stem[len(name) : len(name) + 1].isalpha()


def items_of(task: Task, data: Data, *, shots: Shots = NO_SHOTS, limit: int | None = None) -> TaskItems:
    """Return the items of a data file, in its order.

    Args:
        task: The task.
        data: The data file.
        shots: The examples before each question.
        limit: Maximum number of items, from the first one.

    Raises:
        InputFileError: With file and line, for a record that the task cannot read: a
            field is missing or of another kind, there are no choices, no choice is
            right, or the right one does not exist.
    """
    at_least("limit", limit, 1)
    if task.kind == "rolling" and shots.n:
        raise OptionError("shots", shots.n, f"0, because task {task.name!r} has whole texts")
    read = RecordReader(task, data.path)
    questions = [read.read_question(record) for record in data.records[:limit]]
    examples = _Examples(task, shots, data, questions)
    items = tuple(read.make_item(i, one, examples) for i, one in enumerate(questions))
    return TaskItems(
        task.name,
        items,
        task.metrics,
        unit_rows=task.unit_rows,
        is_rolling=task.kind == "rolling",
        version=task.version,
        n_shots=shots.n,
    )


@dataclass(frozen=True, slots=True)
class _Question:
    """A record that a task has turned into a question.

    Attributes:
        record, form: The record, and the task's format that reads it.
        fields: The record's own fields and the prepared ones.
        contexts: One context, or one for each choice.
        choices, gold: The choices, and the indices of the right ones.
        group: The value of the field `Task.shots_by`, which examples must share.
    """

    record: DataRecord
    form: Format
    fields: Mapping[str, Any]
    contexts: tuple[str, ...]
    choices: tuple[str, ...]
    gold: tuple[int, ...]
    group: str


class RecordReader:
    """Reads the records of one file by a task's rules."""

    def __init__(self, task: Task, path: Path) -> None:
        self._task, self._path = task, path

    def read_question(self, record: DataRecord) -> _Question:
        """Return a record as a question; raise `InputFileError` if it is wrong."""
        form = self._task.format_of(record.fields)
        if form is None:
            needs = " or ".join(f"({', '.join(one.needs)})" for one in self._task.formats)
            raise self._error(
                record, f"task {self._task.name!r} needs the fields {needs}; the record has {', '.join(record.fields)}"
            )
        try:
            values = _prepare_fields(form, record.fields)
            contexts = tuple(render_text(text, values) for text in form.contexts or (form.context,))
            choices = _read_choices(self._task, form, values)
            self._check_choices(form, choices)
            gold = read_gold(form, values, choices)
            group = str(value_at(values, self._task.shots_by)) if self._task.shots_by else ""
        except TemplateError as error:
            raise self._error(record, error.reason) from error
        except FieldError as error:
            raise self._error(record, str(error)) from None
        return _Question(record, form, values, contexts, choices, gold, group)

    def _check_choices(self, form: Format, choices: tuple[str, ...]) -> None:
        """Raise `FieldError` for choices that are missing, empty, or too many."""
        if not choices:
            raise FieldError("there are no choices")
        empty = next((index for index, text in enumerate(choices) if not text), None)
        if empty is not None and self._task.kind != "rolling":
            raise FieldError(f"choice {empty} is empty")
        if form.contexts and len(form.contexts) != len(choices):
            raise FieldError(f"there are {len(form.contexts)} contexts for {len(choices)} choices")
        if self._task.kind != "multiple_choice" and len(choices) > 1:
            raise FieldError(f"{len(choices)} choices: a task of kind {self._task.kind!r} has one text")

    def make_item(self, index: int, question: _Question, examples: _Examples) -> Item:
        """Return the item of a question, with the examples before it."""
        task, form = self._task, question.form
        try:
            shared = examples.text_before(index, question)
            premise = None if task.premise is None else render_text(task.premise, question.fields)
            subset = render_text(form.subset, question.fields)
            free = _content_free_contexts(form, question.fields)
            value = question.record.fields.get(form.id)
            item_id = f"{task.name}-{index}" if value is None or value == "" else render_text("<<id>>", {"id": value})
        except TemplateError as error:
            raise self._error(question.record, error.reason) from error
        return Item(
            context=question.contexts[0] if not form.contexts else "",
            choices=question.choices,
            gold=question.gold,
            id=item_id,
            contexts=question.contexts if form.contexts else None,
            shared=shared,
            delimiter=task.delimiter,
            premise=premise,
            content_free=free,
            subset=subset,
        )

    def _error(self, record: DataRecord, reason: str) -> InputFileError:
        return InputFileError(str(self._path), reason, line=record.number)


def _content_free_contexts(form: Format, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the content-free contexts of a question, for contextual calibration.

    Each is its context with fields replaced as `Format.content_free` says, for example
    by "N/A".
    """
    columns = form.content_free or {}
    rows = zip(*columns.values(), strict=True)
    return tuple(render_text(form.context, {**values, **dict(zip(columns, row, strict=True))}) for row in rows)


def _prepare_fields(form: Format, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record, and those that the format computes from them."""
    values = dict(fields)
    for one in form.prepare:
        if one.join:
            source: Any = one.join_lists(values)
        elif one.text is not None:
            source = render_text(one.text, values)
        else:
            source = value_at(values, one.of or one.field)
        values[one.field] = one.apply(source)
    return values


def _read_choices(task: Task, form: Format, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the choices of a record, or its one text for other kinds of tasks."""
    if task.kind == "multiple_choice" or isinstance(form.choices, tuple):
        return _read_texts(form.choices, values)
    value = value_at(values, form.choices)
    if not isinstance(value, str):
        raise FieldError(f"{form.choices} is {value!r}: expected a text")
    return (value,)


def _read_texts(source: str | tuple[str, ...], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the texts of choices or labels, from a field or from templates."""
    if isinstance(source, tuple):
        return tuple(render_text(text, values) for text in source)
    value: Any = value_at(values, source)
    if isinstance(value, str) and value.startswith("["):
        value = _parse_list(value)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise FieldError(f"{source} is {value!r}: expected a list of texts (as JSON in a field that is a text)")
    return tuple(value)


def _parse_list(text: str) -> Any:
    """Return the JSON value of a text, or the text itself.

    It is the text if that is not JSON or contains a lone surrogate.
    """
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    return value


def read_gold(form: Format, values: Mapping[str, Any], choices: tuple[str, ...]) -> tuple[int, ...]:
    """Return the indices of the right choices, each once.

    Raises `FieldError` if there are none, or for a choice that does not exist.
    """
    if not form.gold:
        return (0,)
    value = value_at(values, form.gold)
    many = value if isinstance(value, list) else [value]
    if form.gold_as == "flags":
        if len(many) != len(choices) or not all(isinstance(one, int) and one in (0, 1) for one in many):
            raise FieldError(f"{form.gold} is {value!r}: expected a list of {len(choices)} zeros and ones")
        indices = [index for index, flag in enumerate(many) if flag]
    else:
        indices = [_gold_index(form, one, values, choices) for one in many]
    if not indices:
        raise FieldError(f"{form.gold} is {value!r}: expected at least one right choice")
    return tuple(dict.fromkeys(indices))


_BOOLEAN_INDICES = {"true": 1, "false": 0}
"""Indices into two choices by the Boolean words of JSON and CSV."""


def _gold_index(form: Format, value: Any, values: Mapping[str, Any], choices: tuple[str, ...]) -> int:
    """Return the index of the right choice that one value of the gold field names."""
    text = text_of_value(value)
    if form.gold_as in ("label", "text"):
        names = choices if form.gold_as == "text" else _read_texts(form.labels, values)
        for one in (value, text):
            if one in names[: len(choices)]:
                return names.index(one)
        raise FieldError(f"{form.gold} is {value!r}: expected one of {', '.join(map(repr, names))}")
    from_ = int(form.gold_as == "number")
    last = len(choices) - 1 + from_
    if len(choices) == 2 and not from_ and text.lower() in _BOOLEAN_INDICES:
        return _BOOLEAN_INDICES[text.lower()]
    is_number = not isinstance(value, bool | list | dict) and re.fullmatch(r"[0-9]{1,9}(\.0+)?", text)
    if not is_number or not from_ <= int(text.split(".")[0]) <= last:
        raise FieldError(f"{form.gold} is {value!r}: expected an integer from {from_} to {last}")
    return int(text.split(".")[0]) - from_


def text_of_value(value: Any) -> str:
    """Return a value of a field as templates write it, without white space around."""
    return (json.dumps(value) if isinstance(value, bool) else str(value)).strip()


class _Examples:
    """Writes the text before questions: the description, and examples with answers.

    Args:
        shots: Number and source of the examples.
        data: File of the questions.
        own: All questions read so far from that file.
    """

    def __init__(self, task: Task, shots: Shots, data: Data, own: Sequence[_Question]) -> None:
        self._task, self._shots, self._file = task, shots, data if shots.data is None else shots.data
        self._is_own = self._file.digest == data.digest
        self._pool: dict[str, list[str]] = {}
        self._pool_index: dict[int, int] = {}
        self._copies: Counter[tuple[str, str]] = Counter()
        self._made: dict[tuple[str, str, tuple[int, ...]], str] = {}
        if not shots.n:
            return
        reader = RecordReader(task, self._file.path)
        known = own if shots.data is None else ()
        rest = self._file.records[len(known) :]
        questions = [*known, *(reader.read_question(record) for record in rest)]
        for index, one in enumerate(questions):
            group, text = one.group, self._write_example(one)
            pool = self._pool.setdefault(group, [])
            self._pool_index[index] = len(pool)
            self._copies[group, text] += 1
            pool.append(text)

    def _write_example(self, one: _Question) -> str:
        """Return a question with its first right answer, as the text of an example."""
        task, right = self._task, one.gold[0]
        context = one.contexts[right if one.form.contexts else 0]
        delimiter = task.delimiter if task.answer_delimiter is None else task.answer_delimiter
        return context + delimiter + one.choices[right] + task.shot_delimiter

    def text_before(self, index: int, question: _Question) -> str:
        """Return the text before a question: the description and its examples.

        Raises `TemplateError`, and `OptionError` if there are too few examples.

        Args:
            index: Index of the question in its file.
        """
        description = render_text(self._task.description, question.fields)
        if not self._shots.n:
            return description
        group = question.group
        chosen = self._choose_examples(index, group)
        if len(chosen) < self._shots.n:
            about = f" of {self._task.shots_by} {group!r}" if self._task.shots_by else ""
            where = f"{self._file.path} has no more examples{about} for the question in line {question.record.number}"
            raise OptionError("shots", self._shots.n, f"at most {len(chosen)}: {where}")
        key = description, group, chosen
        if key not in self._made:
            self._made[key] = description + "".join(self._pool[group][index] for index in chosen)
        return self._made[key]

    def _choose_examples(self, index: int, group: str) -> tuple[int, ...]:
        """Return the indices, in the pool of a group, of a question's examples.

        Neither the question itself nor one with the same words and answer is chosen.
        The questions that are examples for the others share the next ones.
        """
        n, pool = self._shots.n, self._pool.get(group, [])
        own = pool[self._pool_index[index]] if self._is_own else None
        indices: Iterable[int] = range(len(pool))
        if own in pool[:n]:
            indices = [*range(len(pool))[n:], *range(len(pool))[:n]]
        if self._shots.seed is not None:
            draw = random.Random(f"{self._shots.seed}/{index}")  # noqa: S311 - which examples, not a secret
            n_drawn = n if own is None else n + self._copies[group, own]
            indices = draw.sample(range(len(pool)), min(n_drawn, len(pool)))
        return tuple(islice((index for index in indices if own is None or pool[index] != own), n))
