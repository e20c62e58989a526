"""Records commands in traces, and runs recorded commands again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from typer import Argument, Option

from selectrie.cli import inputs
from selectrie.cli.arguments import NOTED, Groups, collect, flag_of, flags_of, hints_of, report
from selectrie.cli.groups import NOTATION_FLAGS, Json, ModelGroup, TraceGroup
from selectrie.core.output import visible, write
from selectrie.errors import SelectrieError, TraceFileError

if TYPE_CHECKING:
    from selectrie.engine.engine import Engine
    from selectrie.traces.reader import Trace

NOTE = "command"
"""The name of the note that holds the command."""
_ELSEWHERE = frozenset({"grammar", *NOTATION_FLAGS, "draft", "file", "table", "out", "labels", "ray"})
"""Options that name files which a trace does not hold, or that write some."""
_OF_RECORDING = frozenset({"trace", "full_rows"})
_TEMPLATES = ("auto", "chat", "base")
"""Values of `--template` that name no file."""


@contextmanager
def recorded(engine: Engine, group: TraceGroup) -> Iterator[Engine]:
    """Record what the block asks of an engine, if the options say so."""
    if group.trace is None:
        yield engine
        return
    from selectrie.engine.tracing.record import record

    told = f"trace: {group.trace} holds the prompt and all texts of this command; look at it before you share it"
    with record(engine, group.trace, full_rows=group.full_rows) as recording:
        write(visible(told), sys.stderr)
        try:
            yield engine
        finally:  # a command that failed is run again too
            command = NOTED.get()
            if command is not None:
                files = {path: data.decode("utf-8", "surrogateescape") for path, data in inputs.kept().items()}
                recording.note(NOTE, json.dumps({"name": command[0], "options": command[1], "files": files}))


@dataclass(frozen=True, slots=True)
class ReplayGroup:
    """Trace.

    The options of `selectrie replay`.
    """

    file: Annotated[str, Argument(metavar="FILE", help="The trace.")]
    list: Annotated[bool, Option("--list", help="Show what the trace holds; nothing is run.")] = False
    verbose: Annotated[bool, Option("--verbose", help="Tracebacks on stderr.")] = False


@dataclass(frozen=True, slots=True)
class ReplayOutput:
    """Output.

    The options of `selectrie replay` for its output.
    """

    json: Json = False


def replay(trace: ReplayGroup, output: ReplayOutput, commands: Sequence[Callable[..., int]]) -> int:
    """Run the command of a trace again, or show what the trace holds.

    A command that failed fails again, with the same error line and exit code.

    Args:
        commands: The commands that can be run again.
    """
    from selectrie.traces.reader import read_trace

    read = read_trace(Path(trace.file))
    if not read.tail.is_complete:
        write(visible(f"trace: {trace.file} is torn: its end is missing"), sys.stderr)
    if trace.list or NOTE not in read.notes:
        return _show(read, as_json=output.json)
    command = _recorded_command(read)
    function = next((one for one in commands if one.__name__ == command["name"]), None)
    if function is None:
        raise _not_run(read, f"its command {command['name']!r} cannot be run again; give it again, with -m")
    groups = {name: hint for name, hint in get_type_hints(function).items() if name != "return"}
    options = _checked(read, groups, command["options"]) | ({"json": True} if output.json else {})
    with inputs.given({path: text.encode("utf-8", "surrogateescape") for path, text in command["files"].items()}):
        try:
            return function(**{name: _group(group, options, trace.file) for name, group in groups.items()})
        except SelectrieError as error:  # it names the options of that command
            return report(error, verbose=trace.verbose, flags=flags_of(groups))


def _recorded_command(trace: Trace) -> dict[str, Any]:
    """Return the command of a trace: its name, options and the files that it read."""
    try:
        command = json.loads(trace.notes[NOTE])
        kinds = {name: type(value) for name, value in command.items()}
        are_texts = all(isinstance(text, str) for text in command["files"].values())
    except (ValueError, RecursionError, AttributeError, KeyError) as error:
        raise _not_run(trace, "its command is damaged") from error
    if kinds != {"name": str, "options": dict, "files": dict} or not are_texts:
        raise _not_run(trace, "its command is damaged")
    read: dict[str, Any] = command
    return read


def _checked(trace: Trace, groups: Groups, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a recorded command, which must not touch other files.

    Those of the model are left out: the trace takes its place.
    """
    kept: dict[str, Any] = {}
    for group in groups.values():
        hints = hints_of(group)
        for name, hint in hints.items():
            if name not in options or issubclass(group, ModelGroup) or name in _OF_RECORDING:
                continue
            kind, option = hint.__origin__, hint.__metadata__[0]
            if name in _ELSEWHERE or (name == "template" and options[name] not in _TEMPLATES):
                why = f"it read {flag_of(name, option)}, which is not in the trace; give the command again, with -m"
                raise _not_run(trace, why)
            if not _is_of(options[name], kind):
                raise _not_run(trace, f"its option {flag_of(name, option)} has the wrong type")
            kept[name] = options[name]
    return kept


def _is_of(value: Any, kind: Any) -> bool:
    """Return whether a value of JSON is of an option's type."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return any(_is_of(value, one) for one in get_args(kind))
    if origin is list:
        return isinstance(value, list) and all(_is_of(one, get_args(kind)[0]) for one in value)
    return type(value) in ((int, float) if kind is float else (type(None) if kind is None else kind,))


def _group(group: type[Any], options: Mapping[str, Any], trace: str) -> Any:
    """Return the record of a group, with the trace as the model."""
    if issubclass(group, ModelGroup):
        return group(model=trace)
    defaults = {field.name: None if field.default is MISSING else field.default for field in fields(group)}
    return collect(group, defaults | {"escapes": False} | dict(options))


def _not_run(trace: Trace, reason: str) -> TraceFileError:
    return TraceFileError(str(trace.path), reason)


def _show(trace: Trace, *, as_json: bool) -> int:
    """Write what a trace holds, and return the exit code 0."""
    from selectrie.cli.report.lists import trace_report, trace_summary
    from selectrie.cli.show import show_json, show_report

    summary = trace_summary(trace)
    return show_json(summary) if as_json else show_report(trace_report(summary))
