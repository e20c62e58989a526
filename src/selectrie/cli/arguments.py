"""Turns arguments into records of options, and errors into exit codes.

The options of a command are declared as frozen records, one record for each group.
Errors become one line on stderr, which names flags such as `--max-tokens` in place of
arguments.

A TOML file and environment variables give the same options, derived from the command's
flags. The key of `--max-requests` is `max-requests`, and its variable for `selectrie
serve` is `SELECTRIE_SERVE_MAX_REQUESTS`. A flag has precedence over the environment,
the environment over the file, and the file over the default.
"""

from __future__ import annotations

import inspect
import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import MISSING, dataclass, fields
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption
from typer.models import ArgumentInfo, OptionInfo

from selectrie.cli import inputs
from selectrie.cli.groups import OLD_FLAGS, WITH_ESCAPES, StdinAs, hints_of
from selectrie.cli.signals import exit_code_of, stoppable
from selectrie.core import output
from selectrie.errors import (
    GrammarError,
    InputFileError,
    OptionError,
    OptionRef,
    RefusedOption,
    SelectrieError,
    TemplateError,
    UnknownArgumentError,
    of_value,
    words,
)
from selectrie.options.arguments import SAME, meant_name

CONFIG = "config"
"""Field of the option that names the file; a command that has it takes the rest too."""
_PREFIX = "SELECTRIE_"
_KEY = "SELECTRIE_API_KEY"
"""Begins variables that no command has; ignoring one would serve without a key."""
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list[str]: "a list of texts"}
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


Groups = Mapping[str, type[Any]]
"""A command's option groups (dataclasses), by the names of its parameters."""

NOTED: ContextVar[tuple[str, Mapping[str, Any]] | None] = ContextVar("selectrie_command", default=None)
"""Name and given options of the running command, if a trace records it."""


def collect(group: type[Any], values: Mapping[str, Any], stdin: Callable[[StdinAs], str] | None = None) -> Any:
    """Build an option group from a command's option values.

    Lists become tuples. With `--escapes`, backslash escapes are replaced in the options
    that are marked `WITH_ESCAPES`.

    Args:
        group: The dataclass of the group.
        values: Values of all options of the command, by field name.
        stdin: Returns the path of a file with standard input, which takes the place of
            `-` in options that are marked `StdinAs`.
    """
    named = {field.name: values[field.name] for field in fields(group)}
    hints = hints_of(group)
    for name, value in named.items():
        marks = hints[name].__metadata__[1:]
        if values.get("escapes") and WITH_ESCAPES in marks:
            named[name] = _replace_escapes(name, value)
        for mark in marks:
            if stdin is not None and isinstance(mark, StdinAs):
                named[name] = _replace_stdin(value, partial(stdin, mark))
    return group(**{name: tuple(value) if isinstance(value, list) else value for name, value in named.items()})


def _replace_escapes(name: str, value: Any) -> Any:
    """Replace the backslash escapes in a text or a list of texts; None stays None.

    Raises `OptionError` for an unknown escape.
    """
    if isinstance(value, list):
        return [inputs.parse_escapes(name, text) for text in value]
    return None if value is None else inputs.parse_escapes(name, value)


def _replace_stdin(value: Any, path: Callable[[], str]) -> Any:
    """Replace `-`, and `-` after `NAME=`, by a path in a text or a list of texts."""
    if isinstance(value, list):
        return [_replace_stdin(one, path) for one in value]
    if value is None or (value != inputs.STDIN and not value.endswith(f"={inputs.STDIN}")):
        return value
    return value.removesuffix(inputs.STDIN) + path()


_NAMED_OTHERWISE = {
    "n_threads": "threads",
    "n_gpu_layers": "gpu_layers",
    "deadline_s": "deadline",
    "n_alternatives": "logprobs",
    "k": "top",
    "metrics": "metric",
    "choices": "choice",
    "template_args": "template_arg",
    "hosts": "allowed_host",
    "origins": "cors_origin",
}
"""Library names whose options have different names."""
_SWITCHES = {"canonical_only": "any_path", "merge_equal_text": "best_path"}
"""Options whose value False has a flag of another name."""


def long_flag(name: str) -> str:
    """Return the long flag that typer derives from a field's name."""
    return "--" + name.replace("_", "-")


def flag_of(name: str, option: OptionInfo | ArgumentInfo) -> str:
    """Return a field's option or argument as it is written on the command line.

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


def keys_of(*groups: type[Any]) -> Keys:
    """Return the options of groups as keys of a configuration file."""
    hints = {name: hint for group in groups for name, hint in hints_of(group).items()}
    return Keys(hints, flags_of({group.__name__: group for group in groups}))


def message_of(error: SelectrieError, flags: Mapping[str, str]) -> str:
    """Return an error's message with flags in place of argument names.

    Args:
        flags: Maps the command's option names to flags. Other names are not replaced.
    """
    write = flag_writer(flags)
    return error.worded(write, lambda remedy: remedy.worded(write)) if flags else str(error)


def flag_writer(flags: Mapping[str, str]) -> Callable[[OptionRef], str]:
    """Return a function that writes an option of an error message as flags.

    Args:
        flags: Maps the command's option names to flags.
    """

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
    """Return an option's flag, both flags of a switch, or "" for an unknown name."""
    return flags.get(name) or flags.get(_NAMED_OTHERWISE.get(name, name), "")


SYSTEM_ERROR = 2
INTERNAL_ERROR = 70
_REPORT = "this is a fault of selectrie; please report it with the command and the output of --verbose"


def run_guarded(work: Callable[[], int], values: Mapping[str, Any], flags: Mapping[str, str] | None = None) -> None:
    """Run the command `work` and end the process with its exit code.

    An error becomes one line `error[code]: message` on stderr. For a grammar or a
    template, the source line and a caret follow. A closed pipe ends silently with 0,
    because there is no reader left.

    Args:
        work: Runs the command and returns its exit code.
        values: The command's options, to which `work` may add those of a file. With
            "verbose", the traceback is written as well.
        flags: Maps the name of each option of the command to its flag.
    """
    try:
        with stoppable():
            code = work()
            output.flush()
    except SelectrieError as error:
        code = report(error, verbose=bool(values.get("verbose")), flags=flags)
    except KeyboardInterrupt as stopped:
        code = exit_code_of(stopped)
        tell("interrupted", "stopped")
    except BrokenPipeError:
        code = 0
    except MemoryError:
        tell("memory", "there is not enough memory; ask for less at once", verbose=bool(values.get("verbose")))
        code = SYSTEM_ERROR
    except OSError as error:
        tell("system", str(error), verbose=bool(values.get("verbose")))
        code = SYSTEM_ERROR
    except Exception as error:  # noqa: BLE001 - the last line of defence: a fault of ours must not look like a result
        tell("internal", f"{type(error).__name__}: {error}; {_REPORT}", verbose=bool(values.get("verbose")))
        code = INTERNAL_ERROR
    raise typer.Exit(code)


def report(error: SelectrieError, *, verbose: bool = False, flags: Mapping[str, str] | None = None) -> int:
    """Write an error of selectrie to stderr and return its exit code.

    Args:
        verbose: Whether the traceback is written as well.
        flags: Maps the name of each option of the command to its flag.
    """
    message, marked = _split_excerpt(error, flags or {})
    tell(error.code, message if error.exit_code != INTERNAL_ERROR else f"{message}; {_REPORT}", verbose=verbose)
    if marked:
        output.write(output.visible(marked), sys.stderr)
    return error.exit_code


def tell(code: str, message: str, *, verbose: bool = False) -> None:
    """Write the line `error[code]: message` to stderr.

    With `verbose`, the traceback of the error that is being handled comes first.
    """
    if verbose:
        output.write(traceback.format_exc(), sys.stderr, end="")
    output.write(output.visible(f"error[{code}]: {' '.join(message.split())}"), sys.stderr)


def _split_excerpt(error: SelectrieError, flags: Mapping[str, str]) -> tuple[str, str]:
    """Return an error's message, and the source line with its caret or "".

    Only errors about a grammar or a template have such a line.
    """
    text = message_of(error, flags)
    if not isinstance(error, GrammarError | TemplateError) or not error.excerpt or text.count("\n") < 2:
        return text, ""
    message, line, caret = text.rsplit("\n", 2)
    return message, f"{line}\n{caret}"


UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""The usage error of the click that typer bundles, which has no public name."""
Command = Callable[..., int]
"""A command: takes one record for each option group and returns an exit code."""


class SectionedCommand(TyperCommand):
    """A typer command whose help shows options under the headings of their groups.

    An option that takes one value is refused if it is given twice.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments, and refuse an option that is given twice for one value."""
        try:
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        except UsageError as error:
            if hasattr(error, "possibilities"):
                error.possibilities = self._meant_flags(ctx, error.option_name)
            raise
        for option in given:
            takes_one = isinstance(option, TyperOption) and not (option.multiple or option.is_flag or option.count)
            if takes_one and given.count(option) > 1 and not ctx.resilient_parsing:
                several = [one.metavar for one in self.params if one.name == f"{option.name}s" and one.metavar]
                advice = "".join(f" Give several as arguments: {one} {one} …" for one in several)
                ctx.fail(f"Option {' / '.join(map(repr, option.opts))} is given twice, and takes one value.{advice}")
        return super().parse_args(ctx, args)

    def _meant_flags(self, ctx: Any, flag: str) -> list[str]:
        """Return the flag that is meant by an unknown one, with its command if another.

        Names of Python and of other programs are known too.
        """
        flags: dict[str, str] = {}
        for parameter in self.get_params(ctx):
            shown = f"{parameter.metavar}, without a flag"
            if isinstance(parameter, TyperOption):
                shown = next((one for one in parameter.opts if one.startswith("--")), parameter.opts[0])
            names = [one.lstrip("-").replace("-", "_") for one in parameter.opts]
            flags |= dict.fromkeys([str(parameter.name), *names], shown)
        otherwise = {**_NAMED_OTHERWISE, "format": "json"}
        flags = {name: flags[own] for name, own in otherwise.items() if own in flags} | flags
        name = flag.lstrip("-").replace("-", "_")
        long = long_flag(SAME.get(name, name))
        others = ctx.parent.command.commands.values() if ctx.parent else ()
        found = [f"{long} of {one.name}" for one in others if any(long in option.opts for option in one.params)]
        if found and SAME.get(name, name) not in flags:
            return found
        meant = meant_name(name, list(flags))
        return [] if meant is None else [flags[meant]]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options into the help, in sections by their groups' headings."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in map(copy, self.get_params(ctx)):
            if isinstance(parameter, TyperOption):
                parameter.opts = [one for one in parameter.opts if one not in OLD_FLAGS]
                names = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or []
                of_flags = variable(str(ctx.info_name), "")  # the help of `--config` says these
                parameter.envvar = [name for name in names if not name.startswith(of_flags)] or None
            record = parameter.get_help_record(ctx)
            if record is not None:
                heading = getattr(parameter, "rich_help_panel", None) or "Other"
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=26)


def command(app: typer.Typer) -> Callable[[Command], Command]:
    """Return a decorator that registers a function as a command of `app`.

    Each parameter's type is a frozen dataclass whose fields, `Annotated[type,
    typer.Option(...)]` with defaults, become the options. The first line of its
    docstring is the heading of the group in the help. Errors become exit codes
    (`run_guarded`).
    """

    def register(function: Command) -> Command:
        groups = {name: hint for name, hint in get_type_hints(function).items() if name != "return"}
        is_configured = CONFIG in flags_of(groups)
        named = function.__name__ if is_configured else None
        parameters = [parameter for group in groups.values() for parameter in _make_parameters(group, named)]
        if is_configured:
            parameters.append(inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

        def run(**values: Any) -> None:
            context: typer.Context | None = values.pop(_CONTEXT, None)

            def work() -> int:
                if context is not None:
                    values.update(_configured(context, groups, values[CONFIG]))
                return _run_noted(function, groups, values)

            run_guarded(work, values, flags_of(groups))

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {}
        # A "\\b" on a line of its own keeps the lines of its paragraph apart.
        shown = (inspect.getdoc(function) or "").replace("\\b\n", "\b\n")
        app.command(function.__name__, cls=SectionedCommand, help=shown)(run)
        return function

    return register


_CONTEXT = "_context"
"""The parameter for typer's context. `eval` has an option named context."""


def _configured(context: typer.Context, groups: Groups, path: str | None) -> dict[str, Any]:
    """Return the values in a configuration file of options that are not given.

    Args:
        context: The command with the sources of its values.
        groups: Its option groups.
        path: The file, or None for no values.

    Raises:
        UnknownArgumentError: For an environment variable that no option has.
        InputFileError: If the file is wrong.
    """
    check_variables(str(context.info_name), flags_of(groups).values())
    if path is None:
        return {}
    values = read_config(path, keys_of(*groups.values()), keys_of)
    sources = {name: context.get_parameter_source(name) for name in values}
    return {name: value for name, value in values.items() if getattr(sources[name], "name", "") == "DEFAULT"}


@contextmanager
def note_command(name: str, groups: Groups, values: Mapping[str, Any]) -> Iterator[None]:
    """Note the command in `NOTED` for the `with` block if `--trace` records it.

    Files that the block reads are kept for the trace too.

    Args:
        name: The name of the command.
        groups: Its option groups.
        values: The values of all of its options.

    Raises:
        OptionError: For `--full-rows` without `--trace`.
    """
    if not values.get("trace"):
        if values.get("full_rows"):
            raise OptionError("trace", None, words("a file that `full_rows` is for, or leave `full_rows` out"))
        yield
        return
    defaults = {field.name: field.default for group in groups.values() for field in fields(group)}
    given = {key: value for key, value in values.items() if value != defaults.get(key)}
    token = NOTED.set((name, given))
    try:
        with inputs.keep_files():
            yield
    finally:
        NOTED.reset(token)


def _run_noted(function: Command, groups: Mapping[str, type[Any]], values: Mapping[str, Any]) -> int:
    """Run a command's function with option groups built from `values`."""
    with note_command(function.__name__, groups, values), ExitStack() as opened:
        folder = cache(lambda: Path(opened.enter_context(TemporaryDirectory())))

        def stdin(mark: StdinAs) -> str:
            return str(inputs.save_stdin(folder(), mark.suffix))

        try:
            return function(**{name: collect(group, values, stdin) for name, group in groups.items()})
        except InputFileError as error:
            if not inputs.is_stdin(error.path):
                raise
            raise InputFileError(inputs.STDIN, error.reason, line=error.line) from error


def _make_parameters(group: type[Any], command: str | None = None) -> list[inspect.Parameter]:
    """Return keyword parameters for a group's options, as typer reads them.

    Args:
        group: The option group.
        command: The command whose options may be given as environment variables; None
            for only those that have a variable of their own.
    """
    hints = hints_of(group)
    heading = (inspect.getdoc(group) or group.__name__).splitlines()[0].rstrip(".")
    result = []
    for field in fields(group):
        # Groups that share an option may have different headings.
        option = copy(hints[field.name].__metadata__[0])
        option.rich_help_panel = heading
        if command is not None and isinstance(option, OptionInfo):
            own = variable(command, flag_of(field.name, option))
            option.envvar = own if option.envvar is None else [own, str(option.envvar)]
        hint = Annotated[hints[field.name].__origin__, option]  # type: ignore[valid-type]  # made as typer reads it
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        result.append(inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
    return result
