"""Converts a state, or a row of a table, to the text that a prompt shows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias, final

import numpy as np

from selectrie.core.strict_json import object_of_unique_keys
from selectrie.core.vocabulary import to_bytes
from selectrie.errors import (
    MessageText,
    OptionError,
    PromptError,
    PythonOnly,
    Quoted,
    RequestError,
    clip,
    words,
)
from selectrie.options.arguments import named_record
from selectrie.options.checks import text as require_text


@final
@named_record
@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value as one state, such as an array of texts.

    Attributes:
        value: A value that JSON can represent. Objects keep the order of their keys.
            It may not be null or an empty text, array or object.
    """

    value: Any

    def __post_init__(self) -> None:
        if isinstance(self.value, type):
            raise OptionError(
                "value", self.value, "a value of JSON; a class says what an answer is, as `kind` of extract"
            )


State: TypeAlias = str | Mapping[str, Any] | Sequence[Any] | Json

ROLES = ("user", "assistant", "system", "developer", "tool")
_CALL_INPUTS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The field with the input of the tool, for each type of tool call."""
_TOOL_CALLS = "tool_calls"
"""The field with the tool calls of a chat message."""
_CALL_OF_OUTPUT = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}
CALL_TYPES = (*_CALL_INPUTS, *_CALL_OF_OUTPUT)
"""Types of items that are a tool call or the output of one."""
_PART_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The field with the text, for each type of part."""


_SEVERAL = "`decide_many`, `classify_many` and `extract_many` take several"


def text_of_state(state: State, name: str = "state") -> str:
    """Return the text of a state, which errors call `name`.

    - A str is returned unchanged.
    - A list of messages becomes a transcript with one paragraph for each. A message is
      an object with a role and content, a tool call or the output of one, in the form
      of OpenAI's `POST /v1/decisions` and `POST /v1/chat/completions`.
    - `Json`, and any other mapping or sequence, is written as JSON. Keys keep their
      order, and non-ASCII characters are not escaped. A list of texts is rejected,
      because it may be meant as several states; `Json` makes it one.

    Raises:
        OptionError: For a list of texts, for a blank or empty state, and for anything
            else that JSON cannot represent, such as an object with keys 1 and "1".
        PromptError: For a malformed message or an unknown role, with the index of the
            message.
        TextError: For a lone surrogate.
    """
    if isinstance(state, str):
        text = state
    elif isinstance(state, list | tuple) and _are_messages(state):
        text = _write_transcript(state, name)
    elif isinstance(state, Json):
        is_empty = state.value is None or (isinstance(state.value, str | Mapping | list | tuple) and not state.value)
        text = "" if is_empty else _write_json(state.value, name)
    elif _are_texts(state):
        raise OptionError(name, state, f"one text; {_SEVERAL}, and `Json([…])` is one state")
    elif isinstance(state, Mapping | list | tuple):
        text = _write_json(state, name) if state else ""
    else:
        several = f"; {_SEVERAL}" if hasattr(state, "__iter__") else ""
        keep = PythonOnly("; among several, on_error='keep' keeps the others" if is_missing(state) else "")
        raise OptionError(name, state, MessageText(f"a text, an object or array of JSON, or messages{several}", keep))
    if not text.strip():
        article = "an" if name[0] in "aeiou" else "a"
        raise OptionError(name, state, f"{article} {name} that is not blank")
    to_bytes(text, name)
    return text


def readable_texts(states: Iterable[State | RequestError]) -> Iterator[str]:
    """Yield the texts of the states that have one; leave out the others and errors."""
    for one in states:
        if not isinstance(one, RequestError):
            with suppress(RequestError):
                yield text_of_state(one)


def check_one_text(text: State, name: str = "text") -> None:
    """Raise `OptionError` for a list that is no conversation: it may mean several."""
    if isinstance(text, list | tuple) and text and not _are_messages(text):
        raise OptionError(name, text, "one text; `classify_many` takes several, and `Json([…])` is one array")


def _write_json(value: object, name: str) -> str:
    """Return a value as JSON; raise `OptionError` if JSON cannot represent it."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_convert_container)
        json.loads(text, object_pairs_hook=object_of_unique_keys)
    except (TypeError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise OptionError(name, value, f"values that JSON can hold ({reason})") from error
    return text


def _convert_container(value: object) -> object:
    """Return a mapping as a dict and a sequence as a list, for `json.dumps`."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return list(value)
    raise TypeError(f"a {type(value).__name__} is not a value of JSON")


def _are_messages(items: Sequence[Any]) -> bool:
    """Return whether there are items and `is_message` holds for each."""
    return bool(items) and all(map(is_message, items))


def _are_texts(value: object) -> bool:
    """Return whether a value is a non-empty list or tuple of str."""
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str) for one in value)


def of_json(value: Any) -> State:
    """Return a parsed JSON value as one state; a list of texts becomes `Json`."""
    return Json(value) if _are_texts(value) else value


def is_message(item: object) -> bool:
    """Return whether an item of a list is a message, a tool call or its output."""
    if not isinstance(item, Mapping):
        return False
    if "type" in item:
        return item["type"] in ("message", *CALL_TYPES)
    return isinstance(item.get("role"), str) and ("content" in item or _TOOL_CALLS in item)


_ToolNames: TypeAlias = dict[tuple[str, str], str]
"""The name of the called tool, by the kind and id of the call."""


def _write_transcript(items: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the transcript of messages; "" if all of them are blank."""
    names: _ToolNames = {}
    lines: list[tuple[str, str]] = []
    for index, item in enumerate(items):
        where, kind = f"{name}[{index}]", item.get("type", "message")
        if kind in _CALL_INPUTS:
            lines.append(_transcribe_call(item, kind, where, names))
        elif kind in _CALL_OF_OUTPUT:
            tool = _find_tool_name(_CALL_OF_OUTPUT[kind], _check_text(item, "call_id", where), where, names)
            lines.append((f"{tool} returns", text_of_content(item, "output", where)))
        else:
            lines += _transcribe_message(item, where, names)
    return "\n\n".join(f"{who}: {said}" for who, said in lines) if any(said.strip() for _, said in lines) else ""


def _transcribe_message(item: Mapping[str, Any], where: str, names: _ToolNames) -> Iterator[tuple[str, str]]:
    """Yield a pair of speaker and text for a message and for each of its tool calls."""
    role = item.get("role")
    if role not in ROLES:
        allowed = f"one of {', '.join(ROLES)}; a list that is no conversation can be given as a text of JSON"
        raise PromptError(words("has role {}: expected {}", Quoted(role), allowed), where=where)
    if role == "tool":
        name = _find_tool_name("function_call", _check_text(item, "tool_call_id", where), where, names)
        yield f"{name} returns", text_of_content(item, "content", where)
        return
    calls = item.get(_TOOL_CALLS) or ()
    if item.get("content") is not None or not calls:
        yield str(role), text_of_content(item, "content", where)
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes | bytearray):
        raise PromptError(words("is {}: expected a list of calls", Quoted(calls)), where=f"{where}[{_TOOL_CALLS!r}]")
    for number, call in enumerate(calls):
        at = f"{where}[{_TOOL_CALLS!r}][{number}]"
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise PromptError(words("is {}: expected an object with the field 'function'", Quoted(call)), where=at)
        yield _transcribe_call({**function, "call_id": call.get("id")}, "function_call", at, names)


def _transcribe_call(item: Mapping[str, Any], kind: str, where: str, names: _ToolNames) -> tuple[str, str]:
    """Return the speaker and text of a tool call, and add its tool to `names`."""
    name = _check_text(item, "name", where)
    names[kind, _check_text(item, "call_id", where)] = name
    return f"assistant calls {name}", _check_text(item, _CALL_INPUTS[kind], where)


def _find_tool_name(kind: str, call_id: str, where: str, names: _ToolNames) -> str:
    """Return the name of a call's tool; raise `PromptError` for an unknown call."""
    if (kind, call_id) not in names:
        reason = words("is the output of a call {}, which no item before it makes", Quoted(call_id))
        raise PromptError(reason, where=where)
    return names[kind, call_id]


def _check_text(item: Mapping[str, Any], key: str, where: str) -> str:
    """Return the text of a field; raise `PromptError` if it is not a str."""
    if not isinstance(item.get(key), str):
        raise PromptError(words("is {}: expected text", Quoted(item.get(key))), where=f"{where}[{key!r}]")
    return str(item[key])


def text_of_content(item: Mapping[str, Any], key: str, where: str) -> str:
    """Return the text of the field `key`: a str, or parts joined by line breaks.

    Raises `PromptError` for a field of another form or a part that is not text.
    """
    content = item.get(key)
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        raise PromptError(words("is {}: expected text, or a list of parts", Quoted(content)), where=f"{where}[{key!r}]")
    return "\n".join(_read_part(part, f"{where}[{key!r}][{index}]") for index, part in enumerate(content))


def _read_part(part: object, where: str) -> str:
    """Return the text of a part of content; raise `PromptError` if it has none."""
    if isinstance(part, Mapping):
        kind = part.get("type")
        if isinstance(kind, str) and kind in _PART_FIELDS:
            return _check_text(part, _PART_FIELDS[kind], where)
        if kind == "input_json" and "data" in part:
            return _write_json(part["data"], f"{where}['data']")
    allowed = ", ".join([*_PART_FIELDS, "input_json"])
    raise PromptError(words("is {}: expected a part of a type that is text: {}", Quoted(part), allowed), where=where)


UNIT_ROWS = 64
"""Default number of rows that are evaluated together."""
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
"""Matches a doubled brace, a column in braces, a single brace, or text."""
_MAX_SHOWN = 20
"""Maximum number of columns that an error lists."""
_MISSING_TYPES = ("NAType", "NaTType")
"""Names of pandas's types of missing values. Names avoid an import of pandas."""


@dataclass(frozen=True, slots=True)
class RowStates:
    """Converts the values of a table's row to the row's state.

    Attributes:
        columns: Names of the columns whose values the state needs, without duplicates.
        parts: The parts of the pattern: literal text, or an index into `columns`. () if
            the state is the value of a single column.
    """

    columns: tuple[str, ...]
    parts: tuple[str | int, ...] = ()

    def of(self, values: Sequence[object]) -> State:
        """Return the state of a row.

        A single column may have text, a JSON object or array, or messages. In a
        pattern, these are converted to text by `text_of_state`. Numbers, truth values
        and dates always become text.

        Args:
            values: The values of `columns`, in their order.

        Raises:
            OptionError: For a value that is missing (None, NaN), blank, or of another
                type. The error names the column.
            PromptError: For malformed messages.
        """
        states = [_read_value(name, value) for name, value in zip(self.columns, values, strict=True)]
        if not self.parts:
            return states[0]
        texts = [one if isinstance(one, str) else text_of_state(one) for one in states]
        return "".join(part if isinstance(part, str) else texts[part] for part in self.parts)

    def of_each(self, rows: Iterable[Sequence[object]]) -> list[State | RequestError]:
        """Return the state of each row, or the error of a row without one."""
        return [self._read_state_or_error(values) for values in rows]

    def _read_state_or_error(self, values: Sequence[object]) -> State | RequestError:
        """Return the state of a row, or the `RequestError` that `of` raises."""
        try:
            return self.of(values)
        except RequestError as error:
            return error


def row_states(state: str, columns: Sequence[str], option: str = "state") -> RowStates:
    """Return the converter from rows of a table to states.

    Args:
        state: The name of a column, or a pattern in which `{column}` is replaced by a
            value and `{{` and `}}` by single braces.
        columns: The names of the table's columns.
        option: Name of the option that gives `state`, for errors.

    Raises:
        OptionError: For a column that is not in the table, and for a pattern without a
            column or with an unpaired brace.
    """
    require_text(option, state)
    if state in columns:
        return RowStates((state,))
    parts: list[str | int] = []
    used: list[str] = []
    for token in _TOKEN.finditer(state):
        name = token[1]
        if name is None:
            if token[0] in "{}":
                raise OptionError(option, state, f"braces in pairs; {token[0] * 2} stands for {token[0]!r}")
            parts.append(token[0][:1] if token[0] in ("{{", "}}") else token[0])
            continue
        if name not in columns:
            raise OptionError(option, name, f"a column of the table; it has {list_columns(columns)}")
        if name not in used:
            used.append(name)
        parts.append(used.index(name))
    if not used:
        allowed = "the name of a column, or a pattern with columns in braces; the table has"
        raise OptionError(option, state, f"{allowed} {list_columns(columns)}")
    return RowStates(tuple(used), tuple(parts))


def list_columns(columns: Sequence[str]) -> str:
    """Return the names of at most 20 columns, for an error."""
    more = f" and {len(columns) - _MAX_SHOWN} more" if len(columns) > _MAX_SHOWN else ""
    return (", ".join(repr(clip(name, 48)) for name in columns[:_MAX_SHOWN]) or "none") + more


def _read_value(name: str, value: Any) -> State:
    """Return a value of the column `name` as a state; raise if it cannot be one."""
    if isinstance(value, str):
        if not value.strip():
            raise OptionError(name, value, "a value that is not blank in this row")
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if is_missing(value):
        raise OptionError(name, value, "a value in this row")
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, date | time | timedelta | Decimal):
        return str(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping | list | tuple):
        return of_json(value)
    raise OptionError(name, value, "a text, a number, a date, or an object or array of JSON")


def is_missing(value: object) -> bool:
    """Return whether a cell of a table is None, NaN, or a missing value of pandas."""
    if isinstance(value, Decimal):
        return value.is_nan()
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in _MISSING_TYPES
