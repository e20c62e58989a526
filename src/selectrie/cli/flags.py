"""Error messages that name flags such as `--max-tokens` instead of arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from typer.models import ArgumentInfo, OptionInfo

from selectrie.cli.option_values import hints_of
from selectrie.errors import (
    DeadEndError,
    IncompatibleOptionsError,
    MemoryBudgetError,
    NothingFoundError,
    OptionError,
    PromptError,
    PromptTooLongError,
    SelectrieError,
    ServerOptionError,
    UnknownOptionError,
    WholeRowsError,
    of_value,
)

_NAMED_OTHERWISE = {
    "n_threads": "threads",
    "n_gpu_layers": "gpu_layers",
    "deadline_s": "deadline",
    "n_alternatives": "logprobs",
    "k": "top",
    "metrics": "metric",
    "choices": "choice",
    "template_args": "template_arg",
}
"""Library names whose options have different names."""
_SWITCHES = {
    ("canonical_only", "False"): "any_path",
    ("merge_equal_text", "False"): "best_path",
}
_WITH_TEXT = (
    IncompatibleOptionsError,
    UnknownOptionError,
    PromptTooLongError,
    DeadEndError,
    NothingFoundError,
    MemoryBudgetError,
    PromptError,
    ServerOptionError,
    WholeRowsError,
)
"""Errors whose remedies name arguments; only quoted parts are the caller's."""
_WORD = re.compile(
    r"""`?\b(?P<name>[a-z]\w*)=(?P<value>'[^']*'|[\w.+-]+)`?|(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|`(?P<code>[a-z]\w*)`|(?<![\w.-])(?P<word>[a-z]+(?:_[a-z]+)+)(?![\w-]|\.\w)"""
)


_NONE = re.compile(r", or None\b[^;,]*$")
"""Matches the end of a sentence that is meant for Python.

On the command line, leaving an option out does what None does.
"""


def long_flag(name: str) -> str:
    """Return the long flag that typer makes of a field's name."""
    return "--" + name.replace("_", "-")


def flag_of(name: str, option: OptionInfo | ArgumentInfo) -> str:
    """Return how the option or argument of a field is written on the command line.

    It is the long flag, else the only flag, or the name of a positional argument. A
    switch with a flag for either value is written with both, `--on/--off`.
    """
    if isinstance(option, ArgumentInfo):
        return str(option.metavar or name.upper())
    # Where typer keeps the first flag.
    first = option.default if isinstance(option.default, str) else ""
    declared = [word for word in (first, *(option.param_decls or ())) if word.startswith("-")]
    long = [word for word in declared if word.startswith("--")]
    return (long or declared or [long_flag(name)])[0]


def flags_of(groups: Mapping[str, type[Any]]) -> dict[str, str]:
    """Return the flag of each option of a command, by the name of its field.

    Args:
        groups: The records of options, by the names of the command's parameters.
    """
    flags: dict[str, str] = {}
    for group in groups.values():
        hints = hints_of(group)
        flags |= {field.name: flag_of(field.name, hints[field.name].__metadata__[0]) for field in fields(group)}
    return flags


def message_of(error: SelectrieError, flags: Mapping[str, str]) -> str:
    """Return the message of an error, in which flags replace argument names.

    Args:
        flags: Maps the name of each option of the command to its flag. Other names are
            not replaced, and a message about a slot of a template is not changed.
    """
    text = str(error)
    own = str(error.args[0]) if error.args else ""
    if error.slot is not None or not flags or not own or not text.endswith(own):
        return text
    if isinstance(error, _WITH_TEXT):
        message = re.sub(r"^no (?=--\S+ cannot be combined)", "leaving out ", _in_flags(own, flags))
    elif isinstance(error, OptionError):
        message = _option(error, flags)
    else:
        return text
    return text.removesuffix(own) + message


def _option(error: OptionError, flags: Mapping[str, str]) -> str:
    name, _, key = error.name.partition("[")
    flag = _flag(name, flags, error.value)
    if flag is None:
        return str(error.args[0])
    is_switch = error.value is True or flag != _flag(name, flags)
    allowed = _NONE.sub("", _in_flags(error.allowed, flags).replace("None unless", "nothing unless"))
    if error.value is None:
        return f"{flag} is not given; give {allowed}"
    is_pair = key and name == "logit_bias"
    values = error.value if isinstance(error.value, tuple | list) else (error.value,)
    value = f"{key.removesuffix(']')}={error.value!r}" if is_pair else ", ".join(map(of_value, values))
    return f"{flag}: expected {allowed}" if is_switch else f"{flag} {value}: expected {allowed}"


def _in_flags(text: str, flags: Mapping[str, str]) -> str:
    """Return one of selectrie's texts, in which flags replace argument names.

    Quoted parts are not changed.
    """

    def replacement(match: re.Match[str]) -> str:
        name: str | None = match["name"] or match["code"] or match["word"]
        if name is None:
            return match[0]
        value = match["value"]
        flag = _flag(_SWITCHES.get((name, value), name), flags, value)
        if flag is None:
            return match[0]
        if value is None or value == "True" or (name, value) in _SWITCHES or "/" in flags.get(name, ""):
            return flag
        return f"no {flag}" if value == "False" else f"{flag} {value.strip(chr(39))}"

    return _WORD.sub(replacement, text)


def _flag(name: str, flags: Mapping[str, str], value: object = None) -> str | None:
    """Return the flag of the option `name`.

    A switch with two flags gives the flag of `value`. None if there is no flag.
    """
    flag = flags.get(name) or flags.get(_NAMED_OTHERWISE.get(name, name))
    on, _, off = (flag or "").partition("/")
    return off if off and value in (False, "False") else on or None
