"""Values of a command's options from a TOML file and from environment variables.

Both are derived from the command's flags. The key of `--max-requests` is
`max-requests`, and its variable for `selectrie serve` is
`SELECTRIE_SERVE_MAX_REQUESTS`. A flag has precedence over the environment, the
environment over the file, and the file over the default.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, get_args, get_origin

from selectrie.cli import inputs
from selectrie.errors import InputFileError, UnknownArgumentError
from selectrie.options.arguments import meant_name

CONFIG = "config"
"""Field of the option that names the file; a command that has it takes the rest too."""
_PREFIX = "SELECTRIE_"
_KEY = "SELECTRIE_API_KEY"
"""Begins variables that no command has; ignoring one would serve without a key."""
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list[str]: "a list of texts",
}
"""What a key expects, in words, by the type of its option."""


@dataclass(frozen=True, slots=True)
class TablesOf:
    """Marks an option, in its annotation, that the file gives as tables by name.

    Attributes:
        group: The option group whose options are the keys of such a table.
        leaves_out: Options of the group that are no keys.
    """

    group: type[Any]
    leaves_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Keys:
    """The options of a group or command, as keys of a table.

    Attributes:
        hints: Annotated types of the options, by field.
        flags: Flags of the options, by field; arguments without a flag are not keys.
    """

    hints: Mapping[str, Any]
    flags: Mapping[str, str]

    def fields(self) -> dict[str, str]:
        """Return the fields of the options by their keys."""
        flags = {name: flag.partition("/")[0] for name, flag in self.flags.items()}
        keys = {flag.lstrip("-"): name for name, flag in flags.items() if flag.startswith("-")}
        tables = {name: name for name, hint in self.hints.items() if _tables_of(hint) is not None}
        return {key: name for key, name in (keys | tables).items() if name != CONFIG}


def variable(command: str, flag: str) -> str:
    """Return the environment variable of a command's flag."""
    return (_PREFIX + f"{command}_{flag.partition('/')[0].lstrip('-')}".replace("-", "_")).upper()


def check_variables(command: str, flags: Iterable[str]) -> None:
    """Raise `UnknownArgumentError` for a variable of a command that has no such flag.

    So is `SELECTRIE_API_KEY`, without which a server would have no key at all. The
    value is not shown, because it may be a secret.
    """
    known = [variable(command, flag) for flag in flags if flag.startswith("-")]
    for name in sorted(os.environ):
        if name.startswith((variable(command, ""), _KEY)) and name not in known:
            own = variable(command, "")
            meant = meant_name(own + name.removeprefix(own).removeprefix(_PREFIX), known)
            advice = f"variables are named for the flags of `selectrie {command}`, such as {meant or known[0]}"
            raise UnknownArgumentError(name, "the environment", advice)


def read_config(path: str, keys: Keys, keys_of: Callable[[type[Any]], Keys]) -> dict[str, Any]:
    """Return the values of options in a file of TOML, by field.

    Args:
        path: The file.
        keys: The options of the command.
        keys_of: Returns the keys of an option group, for tables.

    Raises:
        InputFileError: If the file cannot be read or is not TOML, or for an unknown key
            or a value of another type.
    """
    from selectrie.runs.data_files import parse_toml  # not needed for --help

    return _read_table(parse_toml(inputs.read_text(path), path), path, "", keys, keys_of)


def _read_table(
    table: Mapping[str, Any], path: str, where: str, keys: Keys, keys_of: Callable[[type[Any]], Keys]
) -> dict[str, Any]:
    """Return the values of a table by field.

    `where` is the path to it, with a dot after each part.
    """
    known, values = keys.fields(), dict[str, Any]()
    for key, value in table.items():
        name = known.get(key.replace("_", "-"))
        if name is None or name in values:
            reason = "is given twice" if name is not None else f"is no option{_meant(key, list(known))}"
            raise InputFileError(path, f"{where}{key} {reason}")
        tables = _tables_of(keys.hints[name])
        if tables is None:
            _check_type(value, keys.hints[name].__origin__, path, where + key)
            values[name] = value
            continue
        inner = keys_of(tables.group)
        inner = Keys(inner.hints, {one: flag for one, flag in inner.flags.items() if one not in tables.leaves_out})
        if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
            values_of = value if isinstance(value, dict) else {}
            name, text = next(((one, text) for one, text in values_of.items() if isinstance(text, str)), ("NAME", ""))
            within = f" with {next(iter(inner.fields()))} = {json.dumps(text)}" if text else ""
            raise InputFileError(path, f"{where}{key}: expected tables, [{where}{key}.{name}]{within}")
        values[name] = {
            one: _read_table(rows, path, f"{where}{key}.{one}.", inner, keys_of) for one, rows in value.items()
        }
    return values


def _tables_of(hint: Any) -> TablesOf | None:
    """Return the mark of an option that is given as tables, or None."""
    return next((mark for mark in hint.__metadata__ if isinstance(mark, TablesOf)), None)


def _meant(key: str, known: list[str]) -> str:
    """Return a question after the key that is meant, or what there is."""
    meant = meant_name(key.replace("_", "-"), known)
    return f"; did you mean {meant}?" if meant else "; keys are the flags of the command without their dashes"


def _check_type(value: object, hint: Any, path: str, key: str) -> None:
    """Raise `InputFileError` unless a value has the type of its option."""
    kinds = [one for one in (get_args(hint) if get_origin(hint) is UnionType else (hint,)) if one in _KINDS]
    if any(_is_a(value, kind) for kind in kinds):
        return
    shown = "a table" if isinstance(value, dict) else repr(value)
    raise InputFileError(path, f"{key}: expected {' or '.join(_KINDS[one] for one in kinds)}, not {shown}")


def _is_a(value: object, kind: Any) -> bool:
    """Return whether a value of TOML has a type; a whole number is also a number."""
    if kind == list[str]:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
