"""Records commands in traces, and runs recorded commands again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from selectrie.cli import inputs
from selectrie.cli.arguments import NOTED, Groups, collect, flag_of, flags_of, report
from selectrie.cli.groups import NOTATION_FLAGS, JsonOutput, ModelGroup, TraceGroup, argument, hints_of, switch
from selectrie.core.output import visible, write
from selectrie.errors import OptionError, SelectrieError, TraceFileError

if TYPE_CHECKING:
    from selectrie.engine.engine import Engine
    from selectrie.traces.reader import Trace

NOTE = "command"
"""Name of the note in a trace that holds the recorded command as JSON."""
_FILE_OPTIONS = frozenset({"grammar", *NOTATION_FLAGS, "draft", "file", "table", "out", "labels", "ray", "type"})
"""Options naming files or modules that a trace does not hold, or that are written."""
_RECORDING_OPTIONS = frozenset({"trace", "full_rows"})
_TEMPLATES = ("auto", "chat", "base")
"""Values of `--template` that are not file names."""


@contextmanager
def record_if_requested(engine: Engine, group: TraceGroup) -> Iterator[Engine]:
    """Record an engine's work in the `with` block if the options name a trace.

    The trace also gets the command and the files that it read.
    """
    if group.trace is None:
        yield engine
        return
    if group.trace == inputs.STDIN:
        raise OptionError("trace", group.trace, "a file; a trace is no text, so it is not written to stdout")
    from selectrie.engine.tracing.record import record

    notice = f"trace: {group.trace} holds the prompt and all texts of this command; look at it before you share it"
    with record(engine, group.trace, full_rows=group.full_rows) as recording:
        write(visible(notice), sys.stderr)
        try:
            yield engine
        finally:  # a command that failed is run again too
            command = NOTED.get()
            if command is not None:
                files = {path: data.decode("utf-8", "surrogateescape") for path, data in inputs.kept_files().items()}
                recording.note(NOTE, json.dumps({"name": command[0], "options": command[1], "files": files}))


@dataclass(frozen=True, slots=True)
class ReplayGroup:
    """Trace.

    The options of `selectrie replay`.
    """

    file: str = argument("FILE", "The trace.", MISSING)
    list: bool = switch("Show what the trace holds; nothing is run.")
    verbose: bool = switch("Tracebacks on stderr.")


def replay(trace: ReplayGroup, output: JsonOutput, commands: Sequence[Callable[..., int]]) -> int:
    """Run a trace's recorded command again, or show what the trace holds.

    A command that failed fails again, with the same error line and exit code.

    Args:
        trace: The options that name the trace.
        output: The options for the output.
        commands: The functions of commands that can be run again.
    """
    from selectrie.traces.reader import read_trace

    read = read_trace(Path(trace.file))
    if not read.tail.is_complete:
        write(visible(f"trace: {trace.file} is torn: its end is missing"), sys.stderr)
    if trace.list or NOTE not in read.notes:
        from selectrie.cli.report.lists import trace_report, trace_summary
        from selectrie.cli.show import show_json, show_report

        summary = trace_summary(read)
        return show_json(summary, "trace") if output.json else show_report(trace_report(summary))
    command = _recorded_command(read)
    function = next((one for one in commands if one.__name__ == command["name"]), None)
    if function is None:
        raise _replay_error(read, f"its command {command['name']!r} cannot be run again; give it again, with -m")
    groups = {name: hint for name, hint in get_type_hints(function).items() if name != "return"}
    options = _check_options(read, groups, command["options"]) | ({"json": True} if output.json else {})
    with inputs.replace_files(
        {path: text.encode("utf-8", "surrogateescape") for path, text in command["files"].items()}
    ):
        try:
            return function(**{name: _make_group(group, options, trace.file) for name, group in groups.items()})
        except SelectrieError as error:  # it names the options of that command
            return report(error, verbose=trace.verbose, flags=flags_of(groups))


def _recorded_command(trace: Trace) -> dict[str, Any]:
    """Return the recorded command: a dict of `name`, `options` and `files`.

    Raises `TraceFileError` if it is damaged.
    """
    try:
        command = json.loads(trace.notes[NOTE])
        kinds = {name: type(value) for name, value in command.items()}
        are_texts = all(isinstance(text, str) for text in command["files"].values())
    except (ValueError, RecursionError, AttributeError, KeyError) as error:
        raise _replay_error(trace, "its command is damaged") from error
    if kinds != {"name": str, "options": dict, "files": dict} or not are_texts:
        raise _replay_error(trace, "its command is damaged")
    read: dict[str, Any] = command
    return read


def _check_options(trace: Trace, groups: Groups, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded command's options, without options of model and recording.

    The trace takes the model's place. Raises `TraceFileError` for options that name
    other files or have a wrong type.
    """
    kept: dict[str, Any] = {}
    for group in groups.values():
        hints = hints_of(group)
        for name, hint in hints.items():
            if name not in options or issubclass(group, ModelGroup) or name in _RECORDING_OPTIONS:
                continue
            kind, option = hint.__origin__, hint.__metadata__[0]
            if name in _FILE_OPTIONS or (name == "template" and options[name] not in _TEMPLATES):
                why = f"it read {flag_of(name, option)}, which is not in the trace; give the command again, with -m"
                raise _replay_error(trace, why)
            if not _has_type(options[name], kind):
                raise _replay_error(trace, f"its option {flag_of(name, option)} has the wrong type")
            kept[name] = options[name]
    return kept


def _has_type(value: Any, kind: Any) -> bool:
    """Return whether a JSON value has the annotated type of an option."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return any(_has_type(value, one) for one in get_args(kind))
    if origin is list:
        return isinstance(value, list) and all(_has_type(one, get_args(kind)[0]) for one in value)
    return type(value) in ((int, float) if kind is float else (type(None) if kind is None else kind,))


def _make_group(group: type[Any], options: Mapping[str, Any], trace: str) -> Any:
    """Build an option group from the recorded options, with the trace as the model."""
    if issubclass(group, ModelGroup):
        return group(model=trace)
    defaults = {field.name: None if field.default is MISSING else field.default for field in fields(group)}
    return collect(group, defaults | {"escapes": False} | dict(options))


def _replay_error(trace: Trace, reason: str) -> TraceFileError:
    return TraceFileError(str(trace.path), reason)
