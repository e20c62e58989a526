"""Error messages that name flags such as `--max-tokens` instead of arguments."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from typer.models import ArgumentInfo, OptionInfo

from selectrie.cli.option_values import hints_of
from selectrie.errors import OptionRef, RefusedOption, SelectrieError, of_value

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
_SWITCHES = {"canonical_only": "any_path", "merge_equal_text": "best_path"}
"""Options whose value False has a flag of another name."""


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
            not replaced.
    """
    write = in_flags(flags)
    return error.worded(write, lambda remedy: remedy.worded(write)) if flags else str(error)


def in_flags(flags: Mapping[str, str]) -> Callable[[OptionRef], str]:
    """Return what writes an option as the flags of a command."""

    def written(option: OptionRef) -> str:
        name, _, key = option.name.partition("[")
        value = option.value
        on, slash, off = _flag(name, flags).partition("/")
        if name in _SWITCHES and value is False:
            on, value = _flag(_SWITCHES[name], flags), True
        if not on:
            return str(option)
        if slash or value is None or value is True:
            return off if slash and value is False else on
        if isinstance(option, RefusedOption):
            values = value if isinstance(value, tuple | list) else (value,)
            pair = f"{key.removesuffix(']')}=" if key and name == "logit_bias" else ""
            return f"{on} {pair}{', '.join(map(of_value, values))}"
        return f"leaving out {on}" if value is False else f"{on} {shlex.quote(str(value))}"

    return written


def _flag(name: str, flags: Mapping[str, str]) -> str:
    """Return the flag of an option, both flags of a switch, or "" if there is none."""
    return flags.get(name) or flags.get(_NAMED_OTHERWISE.get(name, name), "")
