"""Questions as data: what a TOML or JSON file holds, and what clients send.

A question is an object with a `type` and the fields of OpenAI's `POST /v1/decisions` or
of TypeSafe's `POST /v1/systemone`, and a few of our own. Errors name the path to the
value in the data.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from selectrie.decide.questions import Choice, Option, Predicate, Question, Score
from selectrie.decide.states import of_json, text_of_content
from selectrie.errors import OptionError, of_slot

TYPES = ("choice", "predicate", "score", "noul")
_FIELDS = {
    "choice": ("instructions", "choices", "cue", "examples"),
    "predicate": ("instructions", "yes", "no", "yes_when", "no_when", "examples"),
    "score": ("instructions", "levels", "cue", "examples"),
}
_WITH_CRITERIA = ("instructions", "criteria")
_OF_CRITERIA = {"statement": "instructions", "yes_when": "criteria.true", "no_when": "criteria.false"}
_OPTION = {name: name for name in ("value", "text", "description", "texts")}
_LEVEL = {"text": "label", "description": "description", "value": "value", "texts": "texts"}
"""Fields by the names of the arguments that they become."""


def questions_of_data(data: object, where: str = "questions") -> dict[str, Question]:
    """Return the questions of parsed JSON or TOML by name.

    The data is one of

    - a mapping from names to questions (`questions` of `/v1/systemone`, a TOML file),
    - a list of questions, each with a `name` (`questions` of `/v1/decisions`); one
      without a name is called `q` and its number from 1,
    - an object with one of these under `questions`, as a request has it. Its
      `instructions` come before those of each question. Other fields of a request, such
      as `model` and `state`, are not read.

    Args:
        data: The data.
        where: The path to the questions, for errors; "" for the data itself.

    Raises:
        RequestError: For data of another form, an unknown field, and whatever the
            records of `questions` refuse. `OptionError.name` or `slot` is the path.
    """
    if isinstance(data, Mapping) and isinstance(data.get("questions"), Mapping | list) and "type" not in data:
        given = data.get("instructions")
        lead = "" if given is None else _text(given, "instructions")
        return _named(data["questions"], "questions", lead)
    return _named(data, where, "")


def _named(data: object, where: str, lead: str) -> dict[str, Question]:
    made: dict[str, Question] = {}
    if isinstance(data, Mapping):
        for name, one in data.items():
            made[name] = question_of_data(one, f"{where}.{name}" if where else str(name), lead)
    elif isinstance(data, list):
        for index, one in enumerate(data):
            path = f"{where}[{index}]"
            name = one.get("name") if isinstance(one, Mapping) else None
            name = f"q{index + 1}" if name is None else name
            if not isinstance(name, str) or not name or name in made:
                raise OptionError(f"{path}.name", name, "a text that no other question has as its name")
            made[name] = question_of_data(one, path, lead)
    else:
        raise OptionError(where or "questions", data, "a list of questions, or an object from names to questions")
    if not made:
        raise OptionError(where or "questions", data, "at least one question")
    return made


def question_of_data(data: object, where: str, lead: str = "") -> Question:
    """Return one question.

    Args:
        data: The question; a `name` in it is not read.
        where: The path to it, for errors.
        lead: Instructions that come before its own.

    Raises:
        RequestError: As `questions_of_data` does.
    """
    if not isinstance(data, Mapping):
        raise OptionError(where, data, "an object with a type")
    kind = data.get("type")
    if kind not in TYPES:
        raise OptionError(f"{where}.type", kind, "one of " + ", ".join(map(repr, TYPES)))
    of_criteria = kind == "noul" or "criteria" in data
    own = "predicate" if kind == "noul" else str(kind)
    allowed = _WITH_CRITERIA if of_criteria else _FIELDS[own]
    for name in data:
        if name not in ("type", "name", *allowed):
            raise OptionError(f"{where}.{name}", data[name], f"one of the fields of a {kind}: {', '.join(allowed)}")
    given = data.get("instructions")
    instructions = "" if given is None else _text(given, f"{where}.instructions")
    instructions = "\n".join(part for part in (lead, instructions) if part)
    if of_criteria:
        return _of_criteria(own, instructions, data.get("criteria"), where)
    examples = _examples(data.get("examples"), f"{where}.examples")
    field, names = allowed[1], {name: name for name in allowed} | {"statement": "instructions", "options": "choices"}
    if own == "predicate":
        words = {name: _text(data[name], f"{where}.{name}") for name in allowed[1:-1] if data.get(name) is not None}
        with of_slot(where, names):
            return Predicate(instructions, examples=examples, **words)
    cue, given = _optional(data.get("cue"), f"{where}.cue"), data.get(field)
    if isinstance(given, Mapping):
        numbered = [(None, one) for one in _described(given, f"{where}.{field}")]
    else:
        read = _option if own == "choice" else _level
        listed = enumerate(_list(given, f"{where}.{field}"))
        numbered = [read(one, f"{where}.{field}[{index}]") for index, one in listed]
    with of_slot(where, names):
        if own == "choice":
            return Choice(instructions, _told_apart([one for _, one in numbered]), cue=cue, examples=examples)
        return Score(instructions, _levels(numbered), cue=cue, examples=examples)


def _examples(data: object, where: str) -> list[tuple[Any, Any]]:
    """Return the examples of a question: objects with `state` and `answer`."""
    found = []
    for index, one in enumerate([] if data is None else _list(data, where)):
        path = f"{where}[{index}]"
        if not isinstance(one, Mapping):
            raise OptionError(path, one, "an object with a state and an answer")
        _check_fields(one, ("state", "answer"), path)
        found.append((of_json(one.get("state")), one.get("answer")))
    return found


def _of_criteria(kind: str, instructions: str, criteria: object, where: str) -> Question:
    """Return a question in the shape of `/v1/systemone`.

    What is scored of a level is its number; its text describes it.
    """
    path = f"{where}.criteria"
    if kind == "score":
        levels = [
            Option(str(index), None, _text(one, f"{path}[{index}]")) for index, one in enumerate(_list(criteria, path))
        ]
        with of_slot(where, _OF_CRITERIA):
            return Score(instructions, levels)
    if criteria is not None and not isinstance(criteria, Mapping):
        raise OptionError(path, criteria, "an object")
    if kind == "choice":
        described = _described(criteria or {}, path)
        with of_slot(where, _OF_CRITERIA):
            return Choice(instructions, described)
    about = {name: _optional(one, f"{path}.{name}") for name, one in (criteria or {}).items()}
    _check_fields(about, ("true", "false"), path)
    with of_slot(where, _OF_CRITERIA):
        return Predicate(instructions, yes_when=about.get("true"), no_when=about.get("false"))


def _described(data: Mapping[str, object], where: str) -> list[Option[str]]:
    """Return the options of an object from texts to descriptions."""
    return [Option(name, None, _optional(one, f"{where}.{name}")) for name, one in data.items()]


def _option(data: object, where: str) -> tuple[None, Option[Any]]:
    """Return an option: a value, or an object with value, texts and description."""
    if not isinstance(data, Mapping):
        with of_slot(where, {}):
            return None, Option(data)
    _check_fields(data, _OPTION, where)
    if "value" not in data:
        raise OptionError(f"{where}.value", None, "the value that comes back for this option")
    description = _optional(data.get("description"), f"{where}.description")
    with of_slot(where, _OPTION):
        return None, Option(data["value"], data.get("text"), description, data.get("texts"))


def _told_apart(options: list[Option[Any]]) -> list[Option[Any]]:
    """Return the options; a text like "true" beside the truth value gets quotes."""
    words = {one.scored for one in options if isinstance(one.value, bool) and one.text is one.texts is None}
    return [
        replace(one, text=json.dumps(one.value))
        if isinstance(one.value, str) and one.text is one.texts is None and one.value in words
        else one
        for one in options
    ]


def _level(data: object, where: str) -> tuple[Any, Option[Any]]:
    """Return the number of a level, None for its place, and its option."""
    if isinstance(data, str):
        return None, Option(data)
    if not isinstance(data, Mapping):
        raise OptionError(where, data, "a text, or an object with a label")
    _check_fields(data, _LEVEL.values(), where)
    label, texts = data.get("label"), data.get("texts")
    if not isinstance(label, str) and texts is None:
        raise OptionError(f"{where}.label", label, "a text")
    description = _optional(data.get("description"), f"{where}.description")
    with of_slot(where, _LEVEL):
        return data.get("value"), Option(None, label, description, texts)


def _levels(levels: Sequence[tuple[Any, Option[Any]]]) -> list[Option[Any]] | dict[Any, str]:
    """Return the levels as `Score` takes them: options, or texts by their number."""
    numbers = [number for number, _ in levels if number is not None]
    if not numbers:
        return [one for _, one in levels]
    if len(numbers) < len(levels) or any(one.description is not None or one.texts for _, one in levels):
        raise OptionError("levels", numbers, "a value for every level, without descriptions and texts, or no values")
    if len(set(map(repr, numbers))) < len(numbers):
        raise OptionError("levels", numbers, "values that differ")
    texts = [number for number in numbers if isinstance(number, str)]
    if texts:
        raise OptionError("levels", texts[0], "finite numbers as values")
    return {number: one.scored for number, one in levels}


def _check_fields(data: Mapping[Any, Any], allowed: Collection[str], where: str) -> None:
    for name in data:
        if name not in allowed:
            raise OptionError(f"{where}.{name}", data[name], f"one of the fields {', '.join(allowed)}")


def _list(data: object, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise OptionError(where, data, "a list")
    return data


def _optional(data: object, where: str) -> str | None:
    return None if data is None else _text(data, where)


def _text(data: object, where: str) -> str:
    """Return instructions or a description: text, parts of text, or JSON as text."""
    if isinstance(data, str):
        return data
    if isinstance(data, Mapping | list):
        if isinstance(data, list) and data and all(isinstance(one, Mapping) and "type" in one for one in data):
            return text_of_content({"content": data}, "content", where)
        return json.dumps(data, ensure_ascii=False)
    raise OptionError(where, data, "a text, or an object or array of JSON")


def data_of_questions(questions: Mapping[str, Question]) -> dict[str, object]:
    """Return the data of questions, from which `questions_of_data` makes them again.

    What JSON cannot hold (a grammar, or a value that is no text, truth value or whole
    number) is described under `python`, a field that `questions_of_data` refuses.
    """
    data: dict[str, object] = {}
    for name, one in questions.items():
        examples = [{"state": state, "answer": answer} for state, answer in one.examples]
        head = {"type": one.kind, "instructions": one.instructions}
        data[name] = head | _own_data(one) | _without_none({"cue": one.cue, "examples": examples or None})
    return data


def _own_data(question: Question) -> dict[str, Any]:
    """Return the fields that a kind of question has of its own."""
    if isinstance(question, Predicate):
        return _without_none({name: getattr(question, name) for name in ("yes", "no", "yes_when", "no_when")})
    texts = [None if one.texts is None else [*one.texts] for one in question.options]
    if isinstance(question, Score):
        counts = [one.value for one in question.levels] == list(range(len(texts)))
        levels = [
            {
                "label": one.scored if own is None else None,
                "description": one.description,
                "texts": own,
                "value": None if counts else one.value,
            }
            for one, own in zip(question.levels, texts, strict=True)
        ]
        return {"levels": [_without_none(one) for one in levels]}
    if question.grammar is not None:
        return {"python": f"grammar {question.grammar.digest}"}
    if any(isinstance(one.value, Enum) or not isinstance(one.value, str | bool | int) for one in question.options):
        return {
            "python": [[repr(one.value), one.scored, one.description, *one.spellings[1:]] for one in question.options]
        }
    choices = [
        {"value": one.value, "text": one.text, "description": one.description, "texts": own}
        for one, own in zip(question.options, texts, strict=True)
    ]
    return {"choices": [_without_none(one) for one in choices]}


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
