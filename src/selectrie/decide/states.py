"""Turns a state, or a row of a table, into the text that a prompt shows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias, final

import numpy as np

from selectrie.core.vocabulary import to_bytes
from selectrie.errors import OptionError, PromptError, RequestError, clip, of_value
from selectrie.options.checks import text as require_text


@final
@dataclass(frozen=True, slots=True)
class Json:
    """A value of JSON as one state, such as an array of texts.

    Attributes:
        value: What JSON can hold, the keys of objects in their order; not null, nor an
            empty text, array or object.
    """

    value: Any


State: TypeAlias = str | Mapping[str, Any] | Sequence[Any] | Json

ROLES = ("user", "assistant", "system", "developer", "tool")
_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
}
"""The field of each kind of tool call that holds what the tool is given."""
_CHAT_CALLS = "tool_calls"
"""The field of a chat's message with the tools that it calls."""
_OUTPUTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}
CALL_TYPES = (*_CALLS, *_OUTPUTS)
"""Types of items that call a tool, or are what it returned."""
_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The field of each kind of part that holds its text."""


def text_of_state(state: State, name: str = "state") -> str:
    """Return the text of a state. Errors call it by `name`.

    - str: itself.
    - A list of messages, each with a role and content, or with the type of a message, a
      tool call or its output: a transcript, one paragraph for each. The shapes are
      those of OpenAI's `POST /v1/decisions` and `POST /v1/chat/completions`.
    - Any other mapping or sequence, and `Json`: JSON with its keys in their order, in
      which characters beyond ASCII stay as they are. Some texts may be meant as several
      states, so as one they are given as `Json`.

    Raises:
        OptionError: If it is none of these, or is blank or empty, or JSON cannot hold
            it, such as an object with keys 1 and "1", or if it is a list of texts.
        PromptError: For a malformed message or an unknown role, with its index.
        TextError: For a lone surrogate.
    """
    if isinstance(state, str):
        text = state
    elif isinstance(state, list | tuple) and _are_messages(state):
        text = _transcript(state, name)
    elif isinstance(state, Json):
        is_empty = state.value is None or (isinstance(state.value, str | Mapping | list | tuple) and not state.value)
        text = "" if is_empty else _json(state.value, name)
    elif _are_texts(state):
        raise OptionError(name, state, "one text; `decide_many` takes several, and `Json([…])` is one state")
    elif isinstance(state, Mapping | list | tuple):
        text = _json(state, name) if state else ""
    else:
        raise OptionError(name, state, "a text, an object or array of JSON, or messages")
    if not text.strip():
        article = "an" if name[0] in "aeiou" else "a"
        raise OptionError(name, state, f"{article} {name} that is not blank")
    to_bytes(text, name)
    return text


def _json(value: object, name: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_mapping)
        json.loads(text, object_pairs_hook=_check_keys)
    except (TypeError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise OptionError(name, value, f"values that JSON can hold ({reason})") from error
    return text


def _check_keys(pairs: list[tuple[str, object]]) -> None:
    """Raise `ValueError` if an object has two equal keys, as written: 1 and "1" are."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"two keys of an object are {of_value(key)}")
        seen.add(key)


def _mapping(value: object) -> object:
    """Return a mapping as a dict and a sequence as a list, which `json` can write."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return list(value)
    raise TypeError(f"a {type(value).__name__} is not a value of JSON")


def _are_messages(items: Sequence[Any]) -> bool:
    """Return whether every item is a message, a tool call or the output of one."""
    return bool(items) and all(map(is_message, items))


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str) for one in value)


def of_json(value: Any) -> State:
    """Return a value that was read from JSON as a state, which it is as a whole."""
    return Json(value) if _are_texts(value) else value


def is_message(item: object) -> bool:
    """Return whether this is a message, a tool call or the output of one."""
    if not isinstance(item, Mapping):
        return False
    if "type" in item:
        return item["type"] in ("message", *CALL_TYPES)
    return isinstance(item.get("role"), str) and ("content" in item or _CHAT_CALLS in item)


def _transcript(items: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the transcript; "" if no message says anything."""
    names: dict[tuple[str, str], str] = {}  # by kind and id of a call
    lines: list[tuple[str, str]] = []
    for index, item in enumerate(items):
        where, kind = f"{name}[{index}]", item.get("type", "message")
        if kind in _CALLS:
            lines.append(_called(item, kind, where, names))
        elif kind in _OUTPUTS:
            tool = _name_of_call(_OUTPUTS[kind], _text(item, "call_id", where), where, names)
            lines.append((f"{tool} returns", text_of_content(item, "output", where)))
        else:
            lines += _message(item, where, names)
    return "\n\n".join(f"{who}: {said}" for who, said in lines) if any(said.strip() for _, said in lines) else ""


def _message(item: Mapping[str, Any], where: str, names: dict[tuple[str, str], str]) -> Iterator[tuple[str, str]]:
    """Yield who says what in a message, and which tools it calls."""
    role = item.get("role")
    if role not in ROLES:
        allowed = f"one of {', '.join(ROLES)}; a list that is no conversation can be given as a text of JSON"
        raise PromptError(f"has role {of_value(role)}: expected {allowed}", where=where)
    if role == "tool":
        name = _name_of_call("function_call", _text(item, "tool_call_id", where), where, names)
        yield f"{name} returns", text_of_content(item, "content", where)
        return
    calls = item.get(_CHAT_CALLS) or ()
    if item.get("content") is not None or not calls:
        yield str(role), text_of_content(item, "content", where)
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes | bytearray):
        raise PromptError(f"is {of_value(calls)}: expected a list of calls", where=f"{where}[{_CHAT_CALLS!r}]")
    for number, call in enumerate(calls):
        at = f"{where}[{_CHAT_CALLS!r}][{number}]"
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise PromptError(f"is {of_value(call)}: expected an object with the field 'function'", where=at)
        yield _called({**function, "call_id": call.get("id")}, "function_call", at, names)


def _called(item: Mapping[str, Any], kind: str, where: str, names: dict[tuple[str, str], str]) -> tuple[str, str]:
    """Return which tool is called with what, and keep its name under the call's id."""
    name = _text(item, "name", where)
    names[kind, _text(item, "call_id", where)] = name
    return f"assistant calls {name}", _text(item, _CALLS[kind], where)


def _name_of_call(kind: str, call_id: str, where: str, names: Mapping[tuple[str, str], str]) -> str:
    if (kind, call_id) not in names:
        raise PromptError(f"is the output of a call {of_value(call_id)}, which no item before it makes", where=where)
    return names[kind, call_id]


def _text(item: Mapping[str, Any], key: str, where: str) -> str:
    if not isinstance(item.get(key), str):
        raise PromptError(f"is {of_value(item.get(key))}: expected text", where=f"{where}[{key!r}]")
    return str(item[key])


def text_of_content(item: Mapping[str, Any], key: str, where: str) -> str:
    """Return the text of content: a text, or parts that are joined by line ends."""
    content = item.get(key)
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        raise PromptError(f"is {of_value(content)}: expected text, or a list of parts", where=f"{where}[{key!r}]")
    return "\n".join(_part(part, f"{where}[{key!r}][{index}]") for index, part in enumerate(content))


def _part(part: object, where: str) -> str:
    if isinstance(part, Mapping):
        kind = part.get("type")
        if isinstance(kind, str) and kind in _PARTS:
            return _text(part, _PARTS[kind], where)
        if kind == "input_json" and "data" in part:
            return _json(part["data"], f"{where}['data']")
    allowed = ", ".join([*_PARTS, "input_json"])
    raise PromptError(f"is {of_value(part)}: expected a part of a type that is text: {allowed}", where=where)


UNIT_ROWS = 64
"""Number of rows that are decided together, unless the caller says otherwise."""
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
"""A doubled brace, a column in braces, a brace alone, or text."""
_MAX_SHOWN = 20
"""Maximum number of columns that an error names."""
_MISSING = ("NAType", "NaTType")
"""Types of pandas for a value that is missing; pandas is not imported for them."""


@dataclass(frozen=True, slots=True)
class RowStates:
    """Makes the state of a row from the row's values.

    Attributes:
        columns: Names of the columns that are read, each once.
        _parts: Text, or the index into `columns` of a value. () if the value of the one
            column is the state.
    """

    columns: tuple[str, ...]
    _parts: tuple[str | int, ...] = ()

    def of(self, values: Sequence[object]) -> State:
        """Return the state of a row.

        A column alone may hold text, an object or array of JSON, or messages. In a
        pattern, these are written as text: arrays and objects as JSON, or as a
        transcript. Numbers, truth values and dates are written as text everywhere.

        Args:
            values: The values of `columns`, in their order.

        Raises:
            OptionError: For a value that is missing (None, NaN), blank, or of another
                type. It names the column.
            PromptError: For malformed messages.
        """
        states = [_value(name, value) for name, value in zip(self.columns, values, strict=True)]
        if not self._parts:
            return states[0]
        texts = [one if isinstance(one, str) else text_of_state(one) for one in states]
        return "".join(part if isinstance(part, str) else texts[part] for part in self._parts)

    def of_each(self, rows: Iterable[Sequence[object]]) -> list[State | RequestError]:
        """Return the state of each row, or why it has none."""
        return [self._or_error(values) for values in rows]

    def _or_error(self, values: Sequence[object]) -> State | RequestError:
        try:
            return self.of(values)
        except RequestError as error:
            return error


def row_states(state: str, columns: Sequence[str]) -> RowStates:
    """Return what makes the states of a table's rows.

    Args:
        state: The name of a column, or a pattern in which `{column}` stands for a value
            and `{{` and `}}` for braces.
        columns: The names of the table's columns.

    Raises:
        OptionError: For a column that the table does not have, with those it has, and
            for a pattern without a column or with a single brace.
    """
    require_text("state", state)
    if state in columns:
        return RowStates((state,))
    parts: list[str | int] = []
    used: list[str] = []
    for token in _TOKEN.finditer(state):
        name = token[1]
        if name is None:
            if token[0] in "{}":
                raise OptionError("state", state, f"braces in pairs; {token[0] * 2} stands for {token[0]!r}")
            parts.append(token[0][:1] if token[0] in ("{{", "}}") else token[0])
            continue
        if name not in columns:
            raise OptionError("state", name, f"a column of the table; it has {_listed(columns)}")
        if name not in used:
            used.append(name)
        parts.append(used.index(name))
    if not used:
        allowed = "the name of a column, or a pattern with columns in braces; the table has"
        raise OptionError("state", state, f"{allowed} {_listed(columns)}")
    return RowStates(tuple(used), tuple(parts))


def _listed(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - _MAX_SHOWN} more" if len(columns) > _MAX_SHOWN else ""
    return (", ".join(repr(clip(name, 48)) for name in columns[:_MAX_SHOWN]) or "none") + more


def _value(name: str, value: Any) -> State:
    """Return a value of a row as a state; raise `OptionError` if it cannot be one."""
    if isinstance(value, str):
        if not value.strip():
            raise OptionError(name, value, "a value that is not blank in this row")
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or _is_nan(value) or type(value).__name__ in _MISSING:
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


def _is_nan(value: object) -> bool:
    return value.is_nan() if isinstance(value, Decimal) else isinstance(value, float) and math.isnan(value)
