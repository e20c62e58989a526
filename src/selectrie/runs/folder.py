"""The folder of a run: its log, and the check whether a resumed run is the same one.

The log has one line for each unit, written before the next unit begins.
"""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from selectrie.backends.entry import versions_of
from selectrie.backends.table import BACKENDS
from selectrie.core.files import check_plain, is_temporary, write_whole, writing
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import assumed
from selectrie.errors import InputFileError, InternalError, OptionError
from selectrie.options import at_least
from selectrie.results import Signature
from selectrie.version import __version__

UnitT_contra = TypeVar("UnitT_contra", contravariant=True)
ValuesT = TypeVar("ValuesT")


class TornLineError(Exception):
    """The digest of a line of the log does not match the rest of the line.

    A process was killed while it wrote the line, or the disk is damaged.
    """


class LineFormat(Protocol[UnitT_contra, ValuesT]):
    """The form in which the lines of one kind of run hold the values of a unit."""

    def encode(self, values: ValuesT) -> Mapping[str, object]:
        """Return the values as fields of JSON, without NaN and infinities.

        No field is called `plan` or `unit`.
        """
        ...

    def decode(self, fields: Mapping[str, Any]) -> ValuesT:
        """Return the values from the fields that `encode` wrote.

        Raises `ValueError`, `KeyError`, `TypeError` or `AttributeError` for invalid
        fields. Extra fields need no check here: the caller compares the whole line with
        what `encode` writes for the values.
        """
        ...

    def check(self, unit: UnitT_contra, values: ValuesT) -> None:
        """Raise `ValueError` if decoded values cannot belong to this unit."""
        ...


@dataclass(frozen=True, slots=True)
class LogLine(Generic[ValuesT]):
    """A line of a log: the values of one finished unit.

    Attributes:
        plan: Digest of the plan that the unit belongs to.
        unit: The unit's number in the plan.
        values: The values of the unit.
    """

    plan: str
    unit: int
    values: ValuesT

    def to_json(self, lines: LineFormat[Any, ValuesT]) -> str:
        """Return the line as text, without its line end: a digest and the content.

        Floats are written to the last bit. `lines` is the form of the values.
        """
        own = {"plan": self.plan, "unit": self.unit, **lines.encode(self.values)}
        body = json.dumps(own, allow_nan=False, separators=(",", ":"))
        return f'{{"digest":"{_digest(body)}","body":{body}}}'

    @staticmethod
    def from_json(text: str, lines: LineFormat[Any, ValuesT]) -> LogLine[ValuesT]:
        """Parse the text of a line, without its line end.

        Raises `TornLineError` if the digest is wrong, and `ValueError` for any other
        text that `to_json` would not write.
        """
        start, end = text.find('"body":') + len('"body":'), len(text) - 1
        body = text[start:end]
        if not text.startswith('{"digest":"') or not text.endswith("}") or text[11:43] != _digest(body):
            raise TornLineError
        try:
            fields = json.loads(body)
            line = LogLine(fields["plan"], fields["unit"], lines.decode(fields))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it holds no unit ({error!r})") from error
        if type(line.plan) is not str or type(line.unit) is not int:
            raise ValueError("plan or unit has the wrong type")
        # Other keys, another order, or numbers that are not floats.
        if line.to_json(lines) != text:
            raise ValueError("it is not written as a run writes it")
        return line


def _digest(body: str) -> str:
    return blake2b(body.encode(), digest_size=16).hexdigest()


SYNC_S = 1.0
"""Seconds after an fsync of the log during which added lines cause no other one."""
_LONGEST_LINE = 64 << 20
"""Maximum line length in bytes; no unit needs more."""


class NumberedUnit(Protocol):
    """A unit of work; the units of a run are numbered from 0 in their order."""

    @property
    def number(self) -> int:
        """Return the unit's number among all units of the run."""
        ...


UnitT = TypeVar("UnitT", bound=NumberedUnit)


class UnitLog(Generic[UnitT, ValuesT]):
    """The log of one run, open for appending and locked. A context manager.

    The system releases the lock when the process and the children it forked have ended,
    however they end. The file stays and does not say who holds it. Raises `OptionError`
    if another process holds the log, or if the file system has no locks.

    Args:
        path: The file, which is created if there is none.
        lines: The form of the lines.
        window: Maximum distance between the number of the first unit that is not
            logged and that of any logged unit. With 1, units are logged in their order.
            A caller can work on `window` units at once and look at the next one. Use
            one value for each kind of run: a log that was written with a larger window
            can be refused. None means no bound.
    """

    def __init__(self, path: Path, lines: LineFormat[UnitT, ValuesT], *, window: int | None = None) -> None:
        at_least("window", window, 1)
        self._path, self._lines, self._window = path, lines, window
        self._plan = ""
        self._open: set[int] = set()
        """Numbers of the units that `recover` handed out and that are not logged."""
        self._n_read = 0
        """Number of units read so far from the caller's iterable of units."""
        self._is_synced = False
        """Whether every line is on the disk; at first unknown, so False."""
        self._sync_due = -math.inf
        """Time from which the next line is put on the disk, by `monotonic`."""
        with writing(path.parent):
            check_plain(path)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        try:
            self._lock()
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        """Lock the file; raise `OptionError` if another process holds it."""
        folder = str(self._path.parent)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise OptionError("out", folder, "a folder that no other run is writing now") from error
        except OSError as error:
            expected = f"a folder on a file system with locks ({error.strerror}), for two runs could write it at once"
            raise OptionError("out", folder, expected) from error
        self._check_locked_file()

    def _check_locked_file(self) -> None:
        """Raise `OptionError` if the path no longer names the file that is locked.

        Another run may have begun in the folder.
        """
        try:
            is_same = os.path.samestat(os.fstat(self._file), self._path.lstat())
        except OSError:
            is_same = False
        if not is_same:
            expected = f"a folder whose {self._path.name} is not taken away while a run writes it"
            raise OptionError("out", str(self._path.parent), expected)

    def __enter__(self) -> UnitLog[UnitT, ValuesT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the log on the disk and close it.

        If the `with` block raised an error, a failure of the disk does not replace it.
        """
        try:
            if error is None:
                self._sync()
            else:
                with suppress(OptionError):
                    self._sync()
        finally:
            os.close(self._file)

    def _sync(self) -> None:
        """Put every line on the disk. Raises `OptionError` if the disk fails."""
        if not self._is_synced:
            with writing(self._path.parent):
                os.fsync(self._file)
            self._is_synced, self._sync_due = True, monotonic() + SYNC_S

    def is_empty(self) -> bool:
        """Return whether the log has no bytes."""
        return os.fstat(self._file).st_size == 0

    def recover(
        self, plan: str, units: Iterable[UnitT], on_logged: Callable[[UnitT, ValuesT], None]
    ) -> Iterator[UnitT]:
        """Read the log, and return an iterator over the units without a line, in order.

        The log is cut after the last complete line before the first damaged one. When
        this returns, `units` has been read up to the highest unit that is logged; the
        rest is read as the caller iterates.

        Args:
            plan: The digest of the run's plan, which its lines carry.
            units: The units of the run, numbered from 0 in this order.
            on_logged: Called with each unit that was logged and the values of its line,
                in the order of the lines, before the next line is read.

        Raises:
            InputFileError: With the number of a complete line that is not of this plan,
                repeats a unit, or is further ahead than `window` allows. Nothing is cut
                off then.
        """
        self._plan, self._open, self._n_read = plan, set(), 0
        source = iter(units)
        held: dict[int, UnitT] = {}
        end = 0
        for number, (text, stop) in enumerate(self._texts(), start=1):
            try:
                line = LogLine.from_json(text, self._lines)
                self._check_plan_and_window(line, number)
            except TornLineError:
                break
            except ValueError as error:
                raise self._line_error(number, str(error)) from error
            while self._n_read <= line.unit and (unit := next(source, None)) is not None:
                held[self._count_unit(unit)] = unit
            try:
                self._check_unit(line, number)
                self._lines.check(held[line.unit], line.values)
            except ValueError as error:
                raise self._line_error(number, str(error)) from error
            self._open.remove(line.unit)
            on_logged(held.pop(line.unit), line.values)
            end = stop
        with writing(self._path.parent):
            if end < os.fstat(self._file).st_size:
                os.ftruncate(self._file, end)
                self._is_synced = False
                self._sync()
        return chain(held.values(), self._hand_out(source))

    def _count_unit(self, unit: UnitT) -> int:
        """Record that the next unit was read and is not logged; return its number.

        Raises `InternalError` if the units are not numbered in their order.
        """
        if unit.number != self._n_read:
            raise InternalError(f"unit {unit.number} of a run comes as number {self._n_read}")
        self._open.add(unit.number)
        self._n_read += 1
        return unit.number

    def _hand_out(self, source: Iterator[UnitT]) -> Iterator[UnitT]:
        """Yield units; raise `InternalError` for one too far beyond the window."""
        for unit in source:
            self._count_unit(unit)
            if self._window is not None and len(self._open) > self._window + 1:
                raise InternalError(
                    f"unit {unit.number} was asked for while unit {self._first_unlogged()} is not logged"
                )
            yield unit

    def _first_unlogged(self) -> int:
        """Return the number of the first unit that is not logged."""
        return min(self._open, default=self._n_read)

    def _is_beyond(self, unit: int) -> bool:
        return self._window is not None and unit >= self._first_unlogged() + self._window

    def _check_plan_and_window(self, line: LogLine[ValuesT], number: int) -> None:
        """Raise an error if a line is of another plan or beyond the window.

        The errors are `ValueError` and `InputFileError`. `number` is the line's number.
        """
        if line.plan != self._plan:
            raise ValueError(f"its plan is {line.plan}, this run's is {self._plan}")
        if self._is_beyond(line.unit):
            reason = f"unit {line.unit} is in it, and no line before it has unit {self._first_unlogged()}"
            raise self._line_error(number, reason, what="this line and those after it")

    def _check_unit(self, line: LogLine[ValuesT], number: int) -> None:
        """Raise `ValueError` if a line's unit is not in the plan, or logged already."""
        if not 0 <= line.unit < self._n_read:
            raise ValueError(f"the plan has no unit {line.unit}")
        if line.unit not in self._open:
            texts = enumerate(self._texts(), start=1)
            units = ((n, LogLine.from_json(text, self._lines).unit) for n, (text, _) in texts if n < number)
            earlier = next(n for n, unit in units if unit == line.unit)
            raise ValueError(f"unit {line.unit} is already in line {earlier}")

    def _line_error(self, line: int, reason: str, *, what: str = "the line") -> InputFileError:
        """Return the error about a line; `what` is what its advice says to delete."""
        remedy = f"delete {what} and go on: what is missing then is measured again"
        return InputFileError(str(self._path), f"not a line of this run: {reason}; {remedy}", line=line)

    def add(self, unit: UnitT, values: ValuesT) -> None:
        """Append the line of a unit.

        When this returns, the line outlives the process. It outlives a loss of power
        once the log is synced to the disk: at once if the last sync was `SYNC_S` ago or
        earlier, otherwise with a later line, `finish` or the end of the `with` block.

        The unit must be one that `recover` returned and that has no line yet, less than
        `window` units after the first one without a line. Others raise `InternalError`.
        """
        if unit.number not in self._open:
            raise InternalError(f"unit {unit.number} is not one that the run still has to do")
        if self._is_beyond(unit.number):
            raise InternalError(f"unit {unit.number} was finished while unit {self._first_unlogged()} is not logged")
        data = (LogLine(self._plan, unit.number, values).to_json(self._lines) + "\n").encode()
        self._check_locked_file()
        with writing(self._path.parent):
            while data:
                self._is_synced = False
                data = data[os.write(self._file, data) :]
        if monotonic() >= self._sync_due:
            self._sync()
        self._open.remove(unit.number)

    def finish(self) -> None:
        """Put every line on the disk. Call it before the results are written.

        Raises `OptionError` if another run has begun in the folder, or if the disk
        fails.
        """
        self._check_locked_file()
        self._sync()

    def in_order(self, units: Iterable[UnitT]) -> Iterator[tuple[UnitT, ValuesT]]:
        """Yield every unit with the values of its line, in the order of the units.

        The log is read again from its beginning. At most `window` lines are held in
        memory.

        Args:
            units: All units of the run, as they were passed to `recover`.

        Raises:
            InputFileError: If the log and the units no longer fit: a line or a unit is
                missing, or values do not belong to their unit.
        """
        texts = enumerate(self._texts(), start=1)
        early: dict[int, tuple[int, ValuesT]] = {}
        for unit in units:
            while unit.number not in early:
                number, line = self._next_line(texts, unit.number)
                early[line.unit] = (number, line.values)
            number, values = early.pop(unit.number)
            try:
                self._lines.check(unit, values)
            except ValueError as error:
                raise self._line_error(number, str(error)) from error
            yield unit, values
        beyond = min(early, default=None)
        if beyond is None and (left := next(texts, None)) is not None:
            beyond = LogLine.from_json(left[1][0], self._lines).unit
        if beyond is not None:
            raise InputFileError(
                str(self._path), f"it has unit {beyond}, which the input no longer has: the input has changed meanwhile"
            )

    def _next_line(self, texts: Iterator[tuple[int, tuple[str, int]]], unit: int) -> tuple[int, LogLine[ValuesT]]:
        """Return (number, line) of the next line of the log, of `unit` or a later unit.

        Raises `InputFileError` if there is none, or if the log has changed.
        """
        if (numbered := next(texts, None)) is not None:
            number, (text, _) = numbered
            try:
                line = LogLine.from_json(text, self._lines)
            except (TornLineError, ValueError) as error:
                raise self._line_error(number, str(error) or "it is damaged") from error
            if line.plan != self._plan or line.unit < unit:
                raise self._line_error(number, "the log has been changed meanwhile")
            if self._window is None or line.unit < unit + self._window:
                return number, line
        raise InputFileError(str(self._path), f"it has no line of unit {unit}: the input has changed meanwhile")

    def _texts(self) -> Iterator[tuple[str, int]]:
        """Yield (text without line end, offset behind the line) of each complete line.

        Ends at the first line that is incomplete or not UTF-8.
        """
        stop = 0
        with io.BufferedReader(_FromStart(self._file)) as file:
            while True:
                with writing(self._path.parent):
                    data = file.readline(_LONGEST_LINE)
                stop += len(data)
                try:
                    text = data.removesuffix(b"\n").decode()
                except UnicodeDecodeError:
                    return
                if not data.endswith(b"\n"):
                    return
                yield text, stop


class _FromStart(io.RawIOBase):
    """A stream that reads an open file from its beginning.

    It has an offset of its own, so it does not disturb writes to the same descriptor.
    """

    def __init__(self, file: int) -> None:
        self._file, self._offset = file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._file, len(buffer), self._offset)
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)


_OF_A_REQUEST = ("rule", "premise", "terminator", "following_bytes", "time")
"""Fields of a signature that describe one request, and that a run's leaves out."""


def signature_of(llm: Engine) -> dict[str, object]:
    """Return the facts that an engine's log-probabilities depend on, ready for JSON.

    `rows_per_call` is included because it decides how the work of a recurrent model is
    divided into calls, which changes the last bits. Threads and the size of the context
    do not. The self-check (the measured precision) is replaced by the assumed one,
    because a process that resumes the run may have measured another.
    """
    check = None if llm.self_check is None else assumed(llm.identity, llm.limits)
    signature = Signature.of(llm.identity, check, rule="joint", terminator="none", boundary="harness")
    facts = {name: value for name, value in asdict(signature).items() if name not in _OF_A_REQUEST}
    return {**facts, "rows_per_call": llm.limits.rows_per_call}


RUN, LOG = "run.json", "log.jsonl"

_OF_THE_MACHINE = ("processor", "build", "tolerance", "moved", "rows_compared")
"""Fields of a signature whose change moves log-probabilities within the tolerance."""


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """The content of the folders of one kind of run, and how it is checked.

    Attributes:
        kind: The kind of run, which `run.json` states.
        version: Format of `run.json` and of the log's lines. Only a run of this format
            can be resumed.
        parts: Names and types of the entries of `run.json` besides format, kind and
            environment. `plan` and `signature` are always among them.
        compared: The parts in which a resumed run must agree, in the order in which
            they are compared.
        results: Names of the files that a run writes into its folder at its end.
        earlier: Earlier formats whose finished runs can still be read.
        remedy: Advice for a run of an earlier format.
    """

    kind: str
    version: int = 1
    parts: Mapping[str, type] = field(
        default_factory=lambda: dict.fromkeys(("configuration", "model", "plan", "signature"), dict)
    )
    compared: tuple[str, ...] = ("configuration", "signature", "plan")
    results: tuple[str, ...] = ()
    earlier: tuple[int, ...] = ()
    remedy: str = ""

    def describe(self, parts: Mapping[str, object], backend: str) -> dict[str, Any]:
        """Return the content of `run.json` for a run that begins now.

        Args:
            parts: The values of `parts`, ready for JSON.
            backend: Name of the back end in use, for the environment.
        """
        own = {name: json.loads(json.dumps(parts[name])) for name in self.parts}
        return {"format": self.version, "kind": self.kind, **own, "environment": environment(backend)}


def plan_digest(run_json: Mapping[str, Any]) -> str:
    """Return the digest of a run's plan, which each line of its log carries.

    It covers the parts `plan` (the units of the run) and `signature` of `run.json`, so
    a line of a run with other data, tokens or another model is recognised.
    """
    text = json.dumps([run_json["plan"], run_json["signature"]], sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def environment(backend: str) -> dict[str, object]:
    """Return the machine and the versions of packages, ready for JSON.

    Args:
        backend: Name of the back end in use. A name that is not in the table of back
            ends adds no versions.
    """
    in_use = [versions_of(one) for one in BACKENDS if one.name == backend]
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "selectrie": __version__,
        "numpy": version("numpy"),
        **{name: number for versions in in_use for name, number in versions.items()},
    }


def open_log(out: Path, lines: LineFormat[UnitT, ValuesT], *, window: int | None = None) -> UnitLog[UnitT, ValuesT]:
    """Create the folder `out` if there is none, and return its log, locked.

    `lines` and `window` are as for `UnitLog`. Raises `OptionError` if another process
    holds the log or the folder cannot be used.
    """
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    return UnitLog(out / LOG, lines, window=window)


def begin(
    out: Path, form: FolderFormat, log: UnitLog[UnitT, ValuesT], described: dict[str, Any], *, other_machine: bool
) -> dict[str, Any]:
    """Begin or resume a run in a folder, and return the content of its `run.json`.

    A new run writes `described` as `run.json`; a resumed one must agree with it. Left
    over temporary files are deleted. The caller must hold `log`. Raises `OptionError`
    as `check_same` does, and for a log that has lines but no `run.json`.

    `other_machine` is as for `check_same`.
    """
    run_json = check_same(out, form, described, other_machine=other_machine)
    names = (RUN, *form.results)
    with writing(out):
        for name in names:
            check_plain(out / name)
        for path in out.iterdir():  # left by a process that was killed
            if is_temporary(path.name, names):
                path.unlink()
        if run_json is None:
            if not log.is_empty():
                raise _unusable_folder_error(out, f"there is a {LOG} but no {RUN}")
            write_whole(out / RUN, json.dumps(described, ensure_ascii=False, indent=1) + "\n")
    return run_json or described


def check_same(
    out: Path, form: FolderFormat, described: dict[str, Any], *, other_machine: bool
) -> dict[str, Any] | None:
    """Return the `run.json` of a folder; None if no run has begun in it.

    Args:
        out: The folder.
        form: The format of its files.
        described: The `run.json` that this process would write.
        other_machine: Whether fields of the signature that only name the processor,
            the build and the precision measured with them may differ.

    Raises `OptionError` if the folder holds other files, or a run that differs from
    `described` in a part of `form.compared`.
    """
    run_json = resumable_or_none(out, form)
    if run_json is None:
        return None
    for part in form.compared:
        if part == "signature":
            _check_signature(out, run_json["signature"], described["signature"], other_machine=other_machine)
        elif run_json[part] != described[part]:
            raise other_run_error(out, part, run_json[part], described[part])
    return run_json


def _check_signature(out: Path, before: Mapping[str, Any], now: Mapping[str, Any], *, other_machine: bool) -> None:
    """Raise `OptionError` for a field in which two signatures differ and may not."""
    for name, value in now.items():
        was = before.get(name)
        if was == value or (name in _OF_THE_MACHINE and other_machine):
            continue
        remedy = "; --other-machine goes on all the same" if name in _OF_THE_MACHINE else ""
        raise OptionError("out", str(out), f"a folder of the same run: {name} was {was!r}, now {value!r}{remedy}")


def other_run_error(out: Path, part: str, was: Any, now: Any) -> OptionError:
    """Return the error about a folder whose run differs in a part of `run.json`.

    `was` is the part in the folder, `now` that of the run to begin.
    """
    return OptionError("out", str(out), f"a folder of the same run: {_describe_difference(part, was, now)}")


def resumable_or_none(out: Path, form: FolderFormat) -> dict[str, Any] | None:
    """Return the `run.json` of a run that can be resumed; None if no run has begun.

    No run has begun if there is no folder, or if it holds only a log and temporary
    files of killed processes. Raises `OptionError` if it holds other files.
    """
    try:
        with writing(out):
            names = [path.name for path in out.iterdir()]
    except OptionError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        if isinstance(error.__cause__, NotADirectoryError):
            raise _unusable_folder_error(out, "Not a directory") from error
        raise
    if RUN in names:
        return read_resumable(out, form)
    for name in names:
        if name != LOG and not is_temporary(name, (RUN,)):
            raise _unusable_folder_error(out, f"there is {name!r}")
    return None


def _unusable_folder_error(out: Path, reason: str) -> OptionError:
    return OptionError("out", str(out), f"a new folder, an empty one, or that of a run to go on with ({reason})")


def read_resumable(out: Path, form: FolderFormat) -> dict[str, Any]:
    """Return the `run.json` of a run that can be resumed.

    Raises `InputFileError` if the folder holds no run, or one of an earlier format.
    """
    run_json = read_described(out, form)
    if run_json["format"] != form.version:
        raise InputFileError(str(out / RUN), f"a run of format {run_json['format']}, {form.remedy}")
    return run_json


def read_described(out: Path, form: FolderFormat) -> dict[str, Any]:
    """Return the `run.json` of a run of the current or an earlier format.

    Raises `InputFileError` if the folder holds no such run, or a damaged one.
    """
    path = out / RUN
    try:
        check_plain(path)
        described: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        formats = (*form.earlier, form.version)
        if described["format"] not in formats or described["kind"] != form.kind:
            read = " and ".join(map(str, formats))
            raise InputFileError(str(path), f"a run of format {described['format']}; this version reads {read}")
        for name, kind in form.parts.items():
            if name not in described:
                raise InputFileError(str(path), f"not the description of a run: it has no {name!r}")
            if not isinstance(described[name], kind):
                raise InputFileError(str(path), f"not the description of a run: {name!r} has the wrong type")
    except FileNotFoundError:
        raise InputFileError(str(out), f"it holds no run: there is no {RUN}") from None
    except OSError as error:
        raise InputFileError(str(path), f"not the description of a run: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputFileError(str(path), f"not the description of a run: {error}") from error
    return described


def _describe_difference(part: str, was: Any, now: Any) -> str:
    """Return the first difference between two values of JSON, in words.

    `part` names the place of both, such as `plan.tasks[0]`.
    """
    if isinstance(was, dict) and isinstance(now, dict):
        for name in [*was, *(name for name in now if name not in was)]:
            if was.get(name) != now.get(name):
                return _describe_difference(f"{part}.{name}", was.get(name), now.get(name))
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for i, (one, other) in enumerate(zip(was, now, strict=True)):
            if one != other:
                return _describe_difference(f"{part}[{i}]", one, other)
    return f"{part} was {_short(was)}, now {_short(now)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"
