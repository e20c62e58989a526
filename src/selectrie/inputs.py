r"""Files and arguments a caller hands over: choices, prompts, chats, priors, token ids.

Text is taken as it stands. Of a line or a file only the line end goes (`\n` or `\r\n`); spaces at either end are kept,
because ` Paris` and `Paris` are different choices.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selectrie.errors import InputFileError, OptionError

STDIN = "-"
"""Path that stands for standard input."""

_BOM = b"\xef\xbb\xbf"


def read_choices(path: str, *, allow_empty: bool = False) -> list[str]:
    """Choices of a file: one a line, or a `.json` array of strings.

    A CR before the line end and the file's last line end are dropped, nothing else. An empty line raises unless
    `allow_empty`; so do an empty file, bad UTF-8 and a byte order mark. Errors name the line.
    """
    text = _decode(path, _read_bytes(path))
    if path.lower().endswith(".json"):
        choices = _json_choices(path, text)
        empty = "element {0} is empty"
    else:
        choices = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
        empty = "the line is empty"
    if not choices:
        raise InputFileError(path, "holds no choices")
    if not allow_empty and "" in choices:
        at = choices.index("")
        line = None if path.lower().endswith(".json") else at + 1
        raise InputFileError(path, empty.format(at) + "; remove it, or allow the empty choice", line=line)
    return choices


def read_prompt(path: str) -> str:
    """A prompt file as it stands, less one line end at its end (editors and `echo` add it)."""
    return _decode(path, _read_bytes(path)).removesuffix("\n").removesuffix("\r")


def read_messages(path: str) -> list[dict[str, object]]:
    """Chat messages: a JSON array of objects with a text `role` and a text `content`; other keys go to the template."""
    messages = _json(path, _decode(path, _read_bytes(path)))
    if not isinstance(messages, list) or not messages:
        raise InputFileError(path, 'expected a JSON array of messages: [{"role": "user", "content": "…"}, …]')
    for at, message in enumerate(messages):
        if not isinstance(message, dict):
            raise InputFileError(path, f"message {at} is {_kind(message)}, expected an object with role and content")
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise InputFileError(path, f"message {at}: {key!r} is {_kind(message.get(key))}, expected text")
    return messages


def read_prior(path: str, choices: Sequence[str]) -> dict[str, float]:
    """Prior probabilities: a JSON object from choice to a number that is not negative.

    A key that is no choice raises: it is a choice misspelt (often its leading space).
    """
    prior = _json(path, _decode(path, _read_bytes(path)))
    if not isinstance(prior, dict):
        raise InputFileError(path, f"expected a JSON object from choice to probability, not {_kind(prior)}")
    known = set(choices)
    for choice, p in prior.items():
        if choice not in known:
            raise InputFileError(path, f"{choice!r} is none of the choices")
        if isinstance(p, bool) or not isinstance(p, int | float) or not math.isfinite(p) or p < 0:
            raise InputFileError(path, f"{choice!r}: {p!r} is no probability")
    return {choice: float(p) for choice, p in prior.items()}


def parse_token_ids(text: str) -> list[int]:
    """Token ids separated by commas or white space."""
    words = re.split(r"[,\s]+", text.strip().strip(","))
    if not all(word.isascii() and word.isdigit() for word in words):
        raise OptionError("token_ids", text, "token ids such as 1,2,3")
    return [int(word) for word in words]


def parse_template_args(items: Sequence[str]) -> dict[str, Any]:
    """`key=value` pairs whose values are JSON, so that `false` is not mistaken for a text (which counts as true)."""
    result: dict[str, Any] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise OptionError("template_arg", item, "key=value")
        if key in result:
            raise OptionError("template_arg", item, f"each key once; {key} was given before")
        try:
            result[key] = json.loads(value)
        except json.JSONDecodeError:
            expected = f"a JSON value: {key}=true, {key}=3, {key}='\"text\"'"
            raise OptionError("template_arg", item, expected) from None
    return result


def _read_bytes(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except OSError as error:
        raise InputFileError(path, error.strerror or str(error)) from error


def _decode(path: str, data: bytes) -> str:
    if data.startswith(_BOM):
        raise InputFileError(path, "begins with a byte order mark; save it as UTF-8 without one", line=1)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{data[error.start]:02x} is no UTF-8 ({error.reason}); save the file as UTF-8"
        raise InputFileError(path, found, line=line) from error


def _json(path: str, text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        twice = next((key for key in keys if keys.count(key) > 1), None) if len(set(keys)) < len(keys) else None
        if twice is not None:
            raise InputFileError(path, f"the key {twice!r} stands twice")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputFileError(path, f"no JSON: {error.msg}", line=error.lineno) from error
    except RecursionError as error:
        raise InputFileError(path, "nested too deeply") from error


def _json_choices(path: str, text: str) -> list[str]:
    choices = _json(path, text)
    if not isinstance(choices, list):
        raise InputFileError(path, f"expected a JSON array of texts, not {_kind(choices)}")
    for at, choice in enumerate(choices):
        if not isinstance(choice, str):
            raise InputFileError(path, f"element {at} is {_kind(choice)}, expected a text")
    return choices


def _kind(value: object) -> str:
    """What JSON calls it."""
    names = {
        dict: "an object",
        list: "an array",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "missing or null")
