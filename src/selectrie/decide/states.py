"""Turns a state into the text that a prompt shows.

A state is text, a JSON object or array, or messages of a conversation. Messages become
a transcript within the text, never turns of the prompt's own chat: a system message in
the data must not outrank the question.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from selectrie.core.vocabulary import to_bytes
from selectrie.errors import OptionError, PromptError, of_value

State: TypeAlias = str | Mapping[str, Any] | Sequence[Any]

ROLES = ("user", "assistant", "system", "developer")
_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
}
"""The field of each kind of tool call that holds what the tool is given."""
_OUTPUTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}
_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The field of each kind of part that holds its text."""


def text_of_state(state: State) -> str:
    """Return the text of a state.

    - str: itself.
    - A list of messages, each with a role and content, or with the type of a message, a
      tool call or its output: a transcript, one paragraph for each. The shapes are
      those of OpenAI's `POST /v1/decisions` and of chats.
    - Any other mapping or sequence: JSON with its keys in their order, in which
      characters beyond ASCII stay as they are.

    Raises:
        OptionError: If it is none of these, or is blank, or JSON cannot hold it.
        PromptError: For a malformed message, with its index.
        TextError: For a lone surrogate.
    """
    if isinstance(state, str):
        text = state
    elif isinstance(state, list | tuple) and _are_messages(state):
        text = _transcript(state)
    elif isinstance(state, Mapping | list | tuple):
        text = _json(state, "state")
    else:
        raise OptionError("state", state, "a text, an object or array of JSON, or messages")
    if not text.strip():
        raise OptionError("state", state, "a state that is not blank")
    to_bytes(text, "state")
    return text


def _json(value: object, name: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_mapping)
    except (TypeError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise OptionError(name, value, f"values that JSON can hold ({reason})") from error


def _mapping(value: object) -> object:
    """Return a mapping as a dict and a sequence as a list, which `json` can write."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return list(value)
    raise TypeError(f"a {type(value).__name__} is not a value of JSON")


def _are_messages(items: Sequence[Any]) -> bool:
    """Return whether every item is a message, a tool call or the output of one."""
    kinds = ("message", *_CALLS, *_OUTPUTS)
    return bool(items) and all(
        isinstance(item, Mapping)
        and (item.get("type") in kinds or ("type" not in item and item.get("role") in ROLES and "content" in item))
        for item in items
    )


def _transcript(items: Sequence[Mapping[str, Any]]) -> str:
    names: dict[tuple[str, str], str] = {}  # by kind and id of a call
    lines = []
    for index, item in enumerate(items):
        where, kind = f"state[{index}]", item.get("type", "message")
        if kind in _CALLS:
            name = _text(item, "name", where)
            names[kind, _text(item, "call_id", where)] = name
            lines.append(f"assistant calls {name}: {_text(item, _CALLS[kind], where)}")
        elif kind in _OUTPUTS:
            call = (_OUTPUTS[kind], _text(item, "call_id", where))
            if call not in names:
                raise PromptError(f"{where} is the output of a call {call[1]!r}, which no item before it makes")
            lines.append(f"{names[call]} returns: {text_of_content(item, 'output', where)}")
        else:
            role = item.get("role")
            if role not in ROLES:
                raise PromptError(f"{where} has role {of_value(role)}: expected one of {', '.join(ROLES)}")
            lines.append(f"{role}: {text_of_content(item, 'content', where)}")
    return "\n\n".join(lines)


def _text(item: Mapping[str, Any], key: str, where: str) -> str:
    if not isinstance(item.get(key), str):
        raise PromptError(f"{where}[{key!r}] is {of_value(item.get(key))}: expected text")
    return str(item[key])


def text_of_content(item: Mapping[str, Any], key: str, where: str) -> str:
    """Return the text of content: a text, or parts that are joined by line ends."""
    content = item.get(key)
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        raise PromptError(f"{where}[{key!r}] is {of_value(content)}: expected text, or a list of parts")
    return "\n".join(_part(part, f"{where}[{key!r}][{index}]") for index, part in enumerate(content))


def _part(part: object, where: str) -> str:
    if isinstance(part, Mapping):
        kind = part.get("type")
        if kind in _PARTS:
            return _text(part, _PARTS[kind], where)
        if kind == "input_json" and "data" in part:
            return _json(part["data"], f"{where}['data']")
    allowed = ", ".join([*_PARTS, "input_json"])
    raise PromptError(f"{where} is {of_value(part)}: expected a part of a type that is text: {allowed}")
