"""Tasks as data: how a record becomes a question. A TOML file says it; nothing in it is run.

Texts in a task are templates without slots over the fields of a record (`<<question>>`); where a text needs more than that, `prepare`
makes fields of fields by a few named steps.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from hashlib import blake2b
from importlib import resources
from pathlib import Path
from typing import Any

from selectrie.errors import InputFileError, TemplateError
from selectrie.evaluation.metrics import named
from selectrie.evaluation.planning import UNIT_ROWS
from selectrie.evaluation.steps import Preparation
from selectrie.template.program import Program
from selectrie.template.steps import Write
from selectrie.template.template import Template

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = ("multiple_choice", "continuation", "rolling")
GOLDS = ("place", "number", "label", "text", "flags")


@dataclass(frozen=True, slots=True)
class Format:
    """How records of one shape become items; a task may have several, the first whose `needs` a record has is taken.

    needs: fields a record must have. prepare: fields made of fields, in order. context: text before every choice; contexts: instead,
    one for each choice. choices: a field with a list (or a text, for a single one), or texts. gold: field that says which are right; "" where
    nothing is right or wrong. gold_as: "place" (from 0 on), "number" (from 1 on), "label" (one of `labels`: a field or texts), "text" (the
    choice itself), "flags" (a list, 1 where right). subset: text that names the group an item belongs to. id: field.
    content_free: fields in whose place these values stand for "nothing is asked".
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
    """A benchmark's rules.

    kind: "multiple_choice"; "continuation" (one text after a context: is it what the model would say?); "rolling" (a text of any length).
    description: text before everything, a template. delimiter: between context and choice. shot_delimiter: after each example. shots_by:
    field that an example has in common with the question it stands before. premise: context that stands for "no question".
    metrics: names. unit_rows: rows of a unit of work. source: where format and figures come from. digest: of the file.
    """

    name: str
    version: int
    kind: str
    source: str
    formats: tuple[Format, ...]
    metrics: tuple[str, ...]
    description: str = ""
    delimiter: str = " "
    shot_delimiter: str = "\n\n"
    shots_by: str = ""
    premise: str | None = None
    unit_rows: int = UNIT_ROWS
    digest: str = ""
    text: str = ""

    def format_of(self, record: Mapping[str, Any]) -> Format | None:
        """How a record of these fields is read; None where no format fits."""
        return next((one for one in self.formats if all(name in record for name in one.needs)), None)


def shipped() -> tuple[str, ...]:
    """Names of the tasks that come with selectrie."""
    folder = resources.files("selectrie.evaluation") / "tasks_data"
    return tuple(sorted(path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml")))


def load_task(name: str) -> Task:
    """A task by the name of a shipped one, or from a TOML file. Raises `InputFileError`."""
    if name in shipped():
        path = resources.files("selectrie.evaluation") / "tasks_data" / f"{name}.toml"
        return parse_task(path.read_text(encoding="utf-8"), f"{name}.toml")
    path = Path(name)
    if path.suffix != ".toml":
        raise InputFileError(name, f"no task of this name: a TOML file, or one of {', '.join(shipped())}")
    try:
        return parse_task(path.read_text(encoding="utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(name, str(error)) from error


def parse_task(text: str, name: str) -> Task:
    """The task of a TOML text. Raises `InputFileError` naming the file and what is wrong in it."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputFileError(name, f"not TOML: {error}") from None
    formats = given.pop("format", [])
    if not isinstance(formats, list) or not formats:
        raise InputFileError(name, "at least one [[format]] is wanted: how a record is read")
    own = _checked(name, "task", Task, given, leave=("formats", "digest", "text"))
    read = tuple(_format(name, one, i) for i, one in enumerate(formats))
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    task = Task(**own, formats=read, digest=digest, text=text)
    if task.kind not in KINDS:
        raise InputFileError(name, f"kind = {task.kind!r}: one of {', '.join(KINDS)}")
    named(task.metrics)
    for template in (task.description, task.premise or "", *_templates(read)):
        _template(template)
    return task


def _templates(formats: Sequence[Format]) -> list[str]:
    texts = []
    for one in formats:
        texts += [one.context, *one.contexts, one.subset, *(step.text for step in one.prepare if step.text)]
        texts += [] if isinstance(one.choices, str) else one.choices
    return texts


def _format(name: str, given: Any, place: int) -> Format:
    where = f"format[{place}]"
    if not isinstance(given, dict):
        raise InputFileError(name, f"{where}: a table is wanted")
    prepare = tuple(
        Preparation.of_table(name, f"{where}.prepare[{i}]", one) for i, one in enumerate(given.pop("prepare", []))
    )
    content_free = given.pop("content_free", None)
    own = _checked(name, where, Format, given, leave=("prepare", "content_free"))
    if content_free is not None:
        if not isinstance(content_free, dict):
            raise InputFileError(name, f"{where}.content_free: fields and the texts that stand for nothing are wanted")
        own["content_free"] = {key: tuple(value) for key, value in content_free.items()}
    found = Format(**own, prepare=prepare)
    if found.gold_as not in GOLDS:
        raise InputFileError(name, f"{where}.gold_as = {found.gold_as!r}: one of {', '.join(GOLDS)}")
    return found


def _checked(name: str, where: str, kind: type, given: Mapping[str, Any], leave: tuple[str, ...]) -> dict[str, Any]:
    """Values of a table by field, lists as tuples; `InputFileError` for one that is unknown, missing, or of another type."""
    known = {one.name: one for one in fields(kind) if one.name not in leave}
    found: dict[str, Any] = {}
    for key, said in given.items():
        if key not in known:
            raise InputFileError(name, f"{where}: {key!r} is unknown; known are {', '.join(known)}")
        value = tuple(said) if isinstance(said, list) else said
        wants = str(known[key].type)
        fits = (
            (isinstance(value, str) and "str" in wants.replace("tuple[str", ""))
            or (isinstance(value, int) and not isinstance(value, bool) and wants == "int")
            or (isinstance(value, tuple) and "tuple[str" in wants and all(isinstance(one, str) for one in value))
        )
        if not fits:
            raise InputFileError(
                name, f"{where}: {key} = {value!r}; {wants.replace('tuple[str, ...]', 'a list of texts')} is wanted"
            )
        found[key] = value
    needed = {"name", "version", "kind", "source", "metrics"} if kind is Task else set[str]()
    missing = sorted(needed - set(found))
    if missing:
        raise InputFileError(name, f"{where}: {missing[0]!r} is missing")
    return found


@cache
def _template(text: str) -> Template:
    return Template(text, name="task")


def written(text: str, values: Mapping[str, Any]) -> str:
    """A text of a task on the fields of a record. Raises `TemplateError`; a slot in it is one."""
    if "<<" not in text:
        return text
    program = Program(_template(text), values)
    parts = []
    while (step := program.step()) is not None:
        if not isinstance(step, Write):
            raise TemplateError("texts of tasks have no slots", name="task")
        parts.append(step.text)
    return "".join(parts)
