"""Converts questions from and to the data of JSON and TOML: files and request bodies.

A question is an object with a `type` and the fields of OpenAI's `POST /v1/decisions` or
of TypeSafe's `POST /v1/systemone`; some fields are additions of this library. Errors
name the path to the value in the data.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from selectrie.decide.questions import Choice, Option, Predicate, Question, Score, is_finite_number, number_levels
from selectrie.decide.states import of_json, text_of_content
from selectrie.errors import OptionError, of_slot

TYPES = ("choice", "predicate", "score", "noul")
_FIELDS = {
    "choice": ("instructions", "choices", "cue", "examples"),
    "predicate": ("instructions", "yes", "no", "yes_when", "no_when", "examples"),
    "score": ("instructions", "levels", "low", "high", "cue", "examples"),
}
_ALLOWED_WITH_CRITERIA = ("instructions", "criteria")
_CRITERIA_FIELDS = {"statement": "instructions", "yes_when": "criteria.true", "no_when": "criteria.false"}
_OPTION_FIELDS = {name: name for name in ("value", "text", "description", "texts")}
_LEVEL_FIELDS = {"text": "label", "description": "description", "value": "value", "texts": "texts"}
"""The field of the data for each argument of a question, an option and a level."""


def questions_of_data(data: object, where: str = "questions") -> dict[str, Question]:
    """Return the questions of parsed JSON or TOML by name.

    The data is one of

    - a mapping from names to questions (`questions` of `/v1/systemone`, a TOML file),
    - a list of questions, each with a `name` (`questions` of `/v1/decisions`). Without
      a name, the first question is called `q1`, the second `q2`, and so on.
    - the body of a request: an object with such a mapping or list under `questions`.
      Its `instructions` come before those of each question. Other fields of a request,
      such as `model` and `state`, are ignored.

    Args:
        data: The data.
        where: The path to the questions, for errors; "" if `data` is the whole file.

    Raises:
        RequestError: For data of another form, an unknown field, or values that the
            classes of questions reject. `OptionError.name` or `slot` is the path.
    """
    if isinstance(data, Mapping) and isinstance(data.get("questions"), Mapping | list) and "type" not in data:
        given = data.get("instructions")
        lead = "" if given is None else _read_text(given, "instructions")
        return _read_questions(data["questions"], "questions", lead)
    return _read_questions(data, where, "")


def _read_questions(data: object, where: str, lead: str) -> dict[str, Question]:
    """Return the questions of a mapping or a list by name.

    `lead` is text that comes before the instructions of each question.
    """
    questions: dict[str, Question] = {}
    if isinstance(data, Mapping):
        for name, one in data.items():
            questions[name] = question_of_data(one, f"{where}.{name}" if where else str(name), lead)
    elif isinstance(data, list):
        for index, one in enumerate(data):
            path = f"{where}[{index}]"
            name = one.get("name") if isinstance(one, Mapping) else None
            name = f"q{index + 1}" if name is None else name
            if not isinstance(name, str) or not name or name in questions:
                raise OptionError(f"{path}.name", name, "a text that no other question has as its name")
            questions[name] = question_of_data(one, path, lead)
    else:
        raise OptionError(where or "questions", data, "a list of questions, or an object from names to questions")
    if not questions:
        raise OptionError(where or "questions", data, "at least one question")
    return questions


def question_of_data(data: object, where: str, lead: str = "") -> Question:
    """Return the question of an object of the data.

    Args:
        data: The object; its field `name` is ignored.
        where: The path to the object, for errors.
        lead: Text that comes before the question's instructions.

    Raises:
        RequestError: As `questions_of_data` does.
    """
    if not isinstance(data, Mapping):
        raise OptionError(where, data, "an object with a type")
    kind = data.get("type")
    if kind not in TYPES:
        raise OptionError(f"{where}.type", kind, "one of " + ", ".join(map(repr, TYPES)))
    has_criteria = kind == "noul" or "criteria" in data
    class_kind = "predicate" if kind == "noul" else str(kind)
    allowed = _ALLOWED_WITH_CRITERIA if has_criteria else _FIELDS[class_kind]
    for name in data:
        if name not in ("type", "name", *allowed):
            raise OptionError(f"{where}.{name}", data[name], f"one of the fields of a {kind}: {', '.join(allowed)}")
    given = data.get("instructions")
    instructions = "" if given is None else _read_text(given, f"{where}.instructions")
    instructions = "\n".join(part for part in (lead, instructions) if part)
    if has_criteria:
        return _read_criteria(class_kind, instructions, data.get("criteria"), where)
    examples = _read_examples(data.get("examples"), f"{where}.examples")
    field, names = allowed[1], {name: name for name in allowed} | {"statement": "instructions", "options": "choices"}
    if class_kind == "predicate":
        given_names = [name for name in allowed[1:-1] if data.get(name) is not None]
        words = {name: _read_text(data[name], f"{where}.{name}") for name in given_names}
        with of_slot(where, names):
            return Predicate(instructions, examples=examples, **words)
    cue, given = _read_optional_text(data.get("cue"), f"{where}.cue"), data.get(field)
    ends = {name: data[name] for name in ("low", "high") if data.get(name) is not None}
    if isinstance(given, Mapping):
        options = _read_descriptions(given, f"{where}.{field}")
    elif given is None and class_kind == "score":
        options = []
    else:
        read = _read_option if class_kind == "choice" else _read_level
        listed = enumerate(_check_list(given, f"{where}.{field}"))
        options = [read(one, f"{where}.{field}[{index}]") for index, one in listed]
    with of_slot(where, names):
        if class_kind == "choice":
            return Choice(instructions, _quote_bool_texts(options), cue=cue, examples=examples)
        levels = options if isinstance(given, Mapping) else _check_numbers(options)
        return Score(instructions, levels or (), cue=cue, examples=examples, **ends)


def _read_examples(data: object, where: str) -> list[tuple[Any, Any]]:
    """Return the pairs of a list of examples, objects with `state` and `answer`."""
    found = []
    for index, one in enumerate([] if data is None else _check_list(data, where)):
        path = f"{where}[{index}]"
        if not isinstance(one, Mapping):
            raise OptionError(path, one, "an object with a state and an answer")
        _check_fields(one, ("state", "answer"), path)
        found.append((of_json(one.get("state")), one.get("answer")))
    return found


def _read_criteria(kind: str, instructions: str, criteria: object, where: str) -> Question:
    """Return the question of an object with the field `criteria` of `/v1/systemone`.

    A level of a score is scored by its index, and its text becomes the description.
    """
    path = f"{where}.criteria"
    if kind == "score":
        texts = [_read_text(one, f"{path}[{index}]") for index, one in enumerate(_check_list(criteria, path))]
        levels = [Option(str(index), None, text) for index, text in enumerate(texts)]
        with of_slot(where, _CRITERIA_FIELDS):
            return Score(instructions, levels)
    if criteria is not None and not isinstance(criteria, Mapping):
        raise OptionError(path, criteria, "an object")
    if kind == "choice":
        described = _read_descriptions(criteria or {}, path)
        with of_slot(where, _CRITERIA_FIELDS):
            return Choice(instructions, described)
    about = {name: _read_optional_text(one, f"{path}.{name}") for name, one in (criteria or {}).items()}
    _check_fields(about, ("true", "false"), path)
    with of_slot(where, _CRITERIA_FIELDS):
        return Predicate(instructions, yes_when=about.get("true"), no_when=about.get("false"))


def _read_descriptions(data: Mapping[str, object], where: str) -> list[Option[str]]:
    """Return an option for each text of an object from texts to descriptions."""
    return [Option(name, None, _read_optional_text(one, f"{where}.{name}")) for name, one in data.items()]


def _read_option(data: object, where: str) -> Option[Any]:
    """Return the option of a value or an object of a choice.

    An object has the fields `value`, `text`, `description` and `texts`.
    """
    if not isinstance(data, Mapping):
        with of_slot(where, {}):
            return Option(data)
    _check_fields(data, _OPTION_FIELDS, where)
    if "value" not in data:
        raise OptionError(f"{where}.value", None, "the value that comes back for this option")
    description = _read_optional_text(data.get("description"), f"{where}.description")
    with of_slot(where, _OPTION_FIELDS):
        return Option(data["value"], data.get("text"), description, data.get("texts"))


def _quote_bool_texts(options: list[Option[Any]]) -> list[Option[Any]]:
    """Return the options, with quotes around texts that equal the text of a bool.

    Beside the value True, for example, the value "true" is scored as `"true"`.
    """
    words = {one.scored for one in options if isinstance(one.value, bool) and one.text is one.texts is None}
    return [
        replace(one, text=json.dumps(one.value))
        if isinstance(one.value, str) and one.text is one.texts is None and one.value in words
        else one
        for one in options
    ]


def _read_level(data: object, where: str) -> Option[Any]:
    """Return the option of a level; its value is the number, or None without one."""
    if isinstance(data, str):
        return Option(None, data)
    if not isinstance(data, Mapping):
        raise OptionError(where, data, "a text, or an object with a label")
    _check_fields(data, _LEVEL_FIELDS.values(), where)
    label, texts = data.get("label"), data.get("texts")
    if not isinstance(label, str) and texts is None:
        raise OptionError(f"{where}.label", label, "a text")
    description = _read_optional_text(data.get("description"), f"{where}.description")
    with of_slot(where, _LEVEL_FIELDS):
        return Option(data.get("value"), label, description, texts)


def _check_numbers(levels: list[Option[Any]]) -> list[Option[Any]]:
    """Return levels that were given as a list.

    Raises `OptionError` unless all or none of their values are finite numbers.
    """
    numbers = [one.value for one in levels if one.value is not None]
    if numbers and len(numbers) < len(levels):
        raise OptionError("levels", numbers, "a value for every level, or no values")
    for number in numbers:
        if not is_finite_number(number):
            raise OptionError("levels", number, "finite numbers as values")
    return levels


def _check_fields(data: Mapping[Any, Any], allowed: Collection[str], where: str) -> None:
    """Raise `OptionError` for the first field that is not allowed."""
    for name in data:
        if name not in allowed:
            raise OptionError(f"{where}.{name}", data[name], f"one of the fields {', '.join(allowed)}")


def _check_list(data: object, where: str) -> list[Any]:
    """Return the data; raise `OptionError` if it is not a list."""
    if not isinstance(data, list):
        raise OptionError(where, data, "a list")
    return data


def _read_optional_text(data: object, where: str) -> str | None:
    """Return the text of data (`_read_text`), or None for null."""
    return None if data is None else _read_text(data, where)


def _read_text(data: object, where: str) -> str:
    """Return a str itself, the joined text parts of a list, or other data as JSON."""
    if isinstance(data, str):
        return data
    if isinstance(data, Mapping | list):
        if isinstance(data, list) and data and all(isinstance(one, Mapping) and "type" in one for one in data):
            return text_of_content({"content": data}, "content", where)
        return json.dumps(data, ensure_ascii=False)
    raise OptionError(where, data, "a text, or an object or array of JSON")


def data_of_questions(questions: Mapping[str, Question]) -> dict[str, object]:
    """Return the data of questions, which `questions_of_data` reads.

    Grammars, and values other than str, bool and int, cannot be written as JSON. The
    field `python` describes them; `questions_of_data` rejects it.
    """
    data: dict[str, object] = {}
    for name, one in questions.items():
        examples = [{"state": state, "answer": answer} for state, answer in one.examples]
        head = {"type": one.kind, "instructions": one.instructions}
        data[name] = head | _write_kind_fields(one) | _drop_none({"cue": one.cue, "examples": examples or None})
    return data


def _write_kind_fields(question: Question) -> dict[str, Any]:
    """Return the fields of a question that depend on its kind."""
    if isinstance(question, Predicate):
        return _drop_none({name: getattr(question, name) for name in ("yes", "no", "yes_when", "no_when")})
    texts = [None if one.texts is None else [*one.texts] for one in question.options]
    if isinstance(question, Score):
        unnumbered: list[Option[Any]] = [Option(None, one.text, None, one.texts) for one in question.levels]
        implied = [one.value for one in number_levels(unnumbered)]
        are_implied = implied == [one.value for one in question.levels]
        levels = [
            {
                "label": one.scored if spellings is None else None,
                "description": one.description,
                "texts": spellings,
                "value": None if are_implied else one.value,
            }
            for one, spellings in zip(question.levels, texts, strict=True)
        ]
        return {"levels": [_drop_none(one) for one in levels]}
    if question.grammar is not None:
        return {"python": f"grammar {question.grammar.digest}"}
    if any(isinstance(one.value, Enum) or not isinstance(one.value, str | bool | int) for one in question.options):
        return {
            "python": [[repr(one.value), one.scored, one.description, *one.spellings[1:]] for one in question.options]
        }
    choices = [
        {"value": one.value, "text": one.text, "description": one.description, "texts": spellings}
        for one, spellings in zip(question.options, texts, strict=True)
    ]
    return {"choices": [_drop_none(one) for one in choices]}


def _drop_none(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields whose value is not None."""
    return {name: value for name, value in fields.items() if value is not None}
