"""From records to items by the rules of a task: questions, choices, what is right, examples before them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selectrie.errors import InputFileError, OptionError, TemplateError
from selectrie.evaluation.items import Item
from selectrie.evaluation.planning import TaskItems
from selectrie.evaluation.readers import Data, Record
from selectrie.evaluation.tasks import Format, Task, load_task, shipped, written
from selectrie.options import at_least

GENERIC = "generic"
"""The task of records with context, choices and gold."""


@dataclass(frozen=True, slots=True)
class Shots:
    """Examples before each question. n: how many. data: where they come from (None: the questions' own file, never the
    question itself). seed: None: the first ones, so that questions share them; else drawn at random, for each question anew."""

    n: int = 0
    data: Data | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        at_least("shots", self.n, 0, optional=False)


NO_SHOTS = Shots()


def task_for(data: Data) -> Task:
    """The shipped task of a data file: the one its name begins with whose fields its records have, else the generic one.

    Raises `InputFileError` naming the fields found where none fits.
    """
    stem = data.path.stem.lower().replace("-", "_")
    first = data.records[0].fields
    by_length = sorted((name for name in shipped() if stem.startswith(name)), key=len, reverse=True)
    for name in [*by_length, GENERIC]:
        task = load_task(name)
        if task.format_of(first) is not None:
            return task
    raise InputFileError(
        str(data.path),
        f"no shipped task reads records of {', '.join(first)}; name one with --task ({', '.join(shipped())}), or write a TOML file",
        line=data.records[0].place,
    )


def items_of(task: Task, data: Data, *, shots: Shots = NO_SHOTS, limit: int | None = None) -> TaskItems:
    """The items of a data file, in its order. limit: the first so many.

    Raises `InputFileError` naming file and line for a record the task cannot read: a field missing or of another kind, no choices,
    nothing right, a right one that does not exist.
    """
    at_least("limit", limit, 1)
    read = _Reader(task, data.path)
    records = data.records[:limit]
    if task.kind == "rolling" and shots.n:
        raise OptionError("shots", shots.n, "0 for a task of whole texts")
    asked = [read.question(record) for record in records]
    examples = _Examples(task, shots, data, asked)
    items = tuple(read.item(i, one, examples) for i, one in enumerate(asked))
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
    """A record, read. fields: its own and the prepared ones. contexts: one, or one a choice."""

    record: Record
    form: Format
    fields: Mapping[str, Any]
    contexts: tuple[str, ...]
    choices: tuple[str, ...]
    gold: tuple[int, ...]


class _Reader:
    """Reads the records of one file."""

    def __init__(self, task: Task, path: Path) -> None:
        self._task, self._path = task, path

    def question(self, record: Record) -> _Question:
        form = self._task.format_of(record.fields)
        if form is None:
            wanted = " or ".join(f"({', '.join(one.needs)})" for one in self._task.formats)
            raise self._error(
                record, f"task {self._task.name!r} wants the fields {wanted}; there are {', '.join(record.fields)}"
            )
        try:
            values = _prepared(form, record.fields)
            contexts = tuple(written(text, values) for text in form.contexts or (form.context,))
            choices = _texts(form.choices, values)
            gold = _gold(form, values, choices)
        except TemplateError as error:
            raise self._error(record, error.reason) from error
        except _Wrong as error:
            raise self._error(record, str(error)) from None
        if not choices:
            raise self._error(record, "no choices")
        if form.contexts and len(contexts) != len(choices):
            raise self._error(record, f"{len(contexts)} contexts for {len(choices)} choices")
        wrong = [place for place in gold if not 0 <= place < len(choices)]
        if wrong or (form.gold and not gold):
            raise self._error(
                record,
                f"{form.gold} says {wrong or 'nothing'} of {len(choices)} choices: from 0 to {len(choices) - 1} is wanted",
            )
        return _Question(record, form, values, contexts, choices, gold)

    def item(self, index: int, asked: _Question, examples: _Examples) -> Item:
        task, form = self._task, asked.form
        try:
            shared = examples.before(index, asked)
            free = tuple(
                written(form.context, {**asked.fields, name: value})
                for name, values in (form.content_free or {}).items()
                for value in values
            )
            subset = written(form.subset, asked.fields)
        except TemplateError as error:
            raise self._error(asked.record, error.reason) from error
        given = asked.record.fields.get(form.id)
        return Item(
            context=asked.contexts[0] if not form.contexts else "",
            choices=asked.choices,
            gold=asked.gold,
            id=str(given) if given is not None else f"{task.name}-{index}",
            contexts=asked.contexts if form.contexts else None,
            shared=shared,
            delimiter=task.delimiter,
            premise=task.premise,
            content_free=free,
            subset=subset,
        )

    def _error(self, record: Record, reason: str) -> InputFileError:
        return InputFileError(str(self._path), reason, line=record.place)


class _Wrong(Exception):
    """What a record says cannot be read."""


def _prepared(form: Format, given: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(given)
    try:
        for one in form.prepare:
            source = written(one.text, values) if one.text else _at(values, one.of or one.field)
            values[one.field] = one.done_to(source)
    except TypeError as error:
        raise _Wrong(str(error)) from None
    return values


def _at(values: Mapping[str, Any], path: str) -> Any:
    """The value of a field, or of a field in a field ("choices.text")."""
    value: Any = values
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise _Wrong(f"no field {path!r}; there are {', '.join(map(str, values))}")
        value = value[name]
    return value


def _texts(said: str | tuple[str, ...], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Choices or labels: of a field, or templates."""
    if isinstance(said, tuple):
        return tuple(written(text, values) for text in said)
    found = _at(values, said)
    if isinstance(found, str):
        return (found,)
    if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
        raise _Wrong(f"{said} is {found!r}: a list of texts is wanted")
    return tuple(found)


def _gold(form: Format, values: Mapping[str, Any], choices: tuple[str, ...]) -> tuple[int, ...]:
    """Places of the right choices."""
    if not form.gold:
        return (0,)
    said = _at(values, form.gold)
    if form.gold_as == "flags":
        if not isinstance(said, list | tuple) or len(said) != len(choices) or not all(one in (0, 1) for one in said):
            raise _Wrong(f"{form.gold} is {said!r}: a list of {len(choices)} zeros and ones is wanted")
        return tuple(place for place, flag in enumerate(said) if flag)
    many = said if isinstance(said, list | tuple) else [said]
    return tuple(_place(form, one, values, choices) for one in many)


def _place(form: Format, said: Any, values: Mapping[str, Any], choices: tuple[str, ...]) -> int:
    if form.gold_as in ("label", "text"):
        names = choices if form.gold_as == "text" else _texts(form.labels, values)
        if not isinstance(said, str) or said.strip() not in names:
            raise _Wrong(f"{form.gold} is {said!r}: one of {', '.join(map(repr, names))} is wanted")
        return names.index(said.strip())
    if isinstance(said, bool):
        return int(said)
    try:
        place = int(said)
    except (TypeError, ValueError):
        raise _Wrong(f"{form.gold} is {said!r}: the place of a choice is wanted") from None
    if isinstance(said, float) and place != said:
        raise _Wrong(f"{form.gold} is {said!r}: the place of a choice is wanted")
    return place - (form.gold_as == "number")


class _Examples:
    """What stands before questions: the description and examples with their answers."""

    def __init__(self, task: Task, shots: Shots, data: Data, asked: Sequence[_Question]) -> None:
        self._task, self._shots, self._is_own = task, shots, shots.data is None
        self._pool: dict[Any, list[tuple[int, str]]] = {}
        self._made: dict[tuple[object, ...], str] = {}
        if not shots.n:
            return
        if shots.data is None:
            questions = (
                list(asked)
                if len(asked) == len(data.records)
                else [_Reader(task, data.path).question(r) for r in data.records]
            )
        else:
            reader = _Reader(task, shots.data.path)
            questions = [reader.question(record) for record in shots.data.records]
        for place, one in enumerate(questions):
            self._pool.setdefault(self._group(one), []).append((place, self._answered(one)))

    def _group(self, asked: _Question) -> Any:
        return _at(asked.fields, self._task.shots_by) if self._task.shots_by else None

    def _answered(self, one: _Question) -> str:
        right = one.gold[0] if one.gold else 0
        context = one.contexts[right if one.form.contexts else 0]
        return context + self._task.delimiter + one.choices[right] + self._task.shot_delimiter

    def before(self, index: int, asked: _Question) -> str:
        """The text before the question of this place."""
        description = written(self._task.description, asked.fields)
        n = self._shots.n
        if not n:
            return description
        pool = self._pool.get(self._group(asked), [])
        if self._shots.seed is None:
            chosen = [text for place, text in pool if not (self._is_own and place == index)][:n]
        else:
            others = [text for place, text in pool if not (self._is_own and place == index)]
            draw = random.Random(f"{self._shots.seed}/{index}")  # noqa: S311 - which examples, not a secret
            chosen = draw.sample(others, min(n, len(others)))
        if len(chosen) < n:
            raise OptionError("shots", n, f"at most {len(chosen)}: there are no more examples for {asked.record.place}")
        return description + "".join(chosen)
