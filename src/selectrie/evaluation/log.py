"""The log of a run: one line for each unit, on the disk before the next unit begins.

A line holds a unit's log-likelihoods, the digest of the run's plan, and a digest of the
line itself. A process may be killed at any byte. Lines up to the first one that is
incomplete or damaged count; the rest is cut off and measured again. A complete line
that does not belong to the plan raises an error, because it comes from another run or
from an editor. One process at a time holds a log.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from selectrie.core.whole_files import check_plain
from selectrie.engine.requests.loglikelihood import LogLikelihoods
from selectrie.errors import InputFileError, OptionError
from selectrie.evaluation.evaluator import Done
from selectrie.evaluation.files import writing
from selectrie.evaluation.work_units import WorkUnit

_LONGEST_LINE = 64 << 20
"""Maximum line length in bytes; no unit needs more."""


class TornLineError(Exception):
    """Raised for a line whose digest does not match its body.

    A process was killed while it wrote the line, or the disk is damaged.
    """


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A line of the log: the log-likelihoods of a unit's sequences, in their order.

    Attributes:
        plan: Digest of the plan that the unit belongs to.
        unit: The unit's number in the plan.
    """

    plan: str
    unit: int
    rows_evaluated: int
    logp: tuple[float, ...]
    is_greedy: tuple[bool, ...]

    @staticmethod
    def of(plan: str, done: Done) -> LogRecord:
        """Return the log line of a unit that was measured."""
        loglikelihoods = done.loglikelihoods
        return LogRecord(
            plan,
            done.unit.number,
            loglikelihoods.rows_evaluated,
            tuple(loglikelihoods.logp.tolist()),
            tuple(loglikelihoods.is_greedy.tolist()),
        )

    def to_json(self) -> str:
        """Return the line as text, without its line end: digest and body.

        Floats are written to the last bit, -inf as a text.
        """
        logp = ["-inf" if value == -math.inf else value for value in self.logp]
        own = {
            "plan": self.plan,
            "unit": self.unit,
            "rows_evaluated": self.rows_evaluated,
            "logp": logp,
            "is_greedy": self.is_greedy,
        }
        body = json.dumps(own, allow_nan=False, separators=(",", ":"))
        return f'{{"digest":"{_digest(body)}","body":{body}}}'

    @staticmethod
    def from_json(text: str) -> LogRecord:
        """Return the line from the text that `to_json` wrote.

        Raises `TornLineError` if the digest is wrong, and `ValueError` for any other
        text that no run writes.
        """
        start, end = text.find('"body":') + len('"body":'), len(text) - 1
        body = text[start:end]
        if not text.startswith('{"digest":"') or not text.endswith("}") or text[11:43] != _digest(body):
            raise TornLineError
        try:
            line = _line_of(json.loads(body))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it holds no unit ({error!r})") from error
        # Other keys, another order, or numbers that are not floats.
        if line.to_json() != text:
            raise ValueError("it is not written as a run writes it")
        return line

    def measured(self, unit: WorkUnit) -> Done:
        """Return `unit` with the log-likelihoods of this line.

        Raises `ValueError` if the line cannot belong to the unit.
        """
        sequences = unit.sequences
        for name, values in (("logp", self.logp), ("is_greedy", self.is_greedy)):
            if len(values) != len(sequences):
                raise ValueError(
                    f"{name} has {len(values)} values for the {len(sequences)} sequences of unit {self.unit}"
                )
        if not 0 <= self.rows_evaluated <= sequences.rows_naive:
            raise ValueError(
                f"rows_evaluated is {self.rows_evaluated}, and unit {self.unit} has {sequences.rows_naive}"
            )
        loglikelihoods = LogLikelihoods(
            logp=np.array(self.logp, dtype=np.float64),
            is_greedy=np.array(self.is_greedy, dtype=np.bool_),
            n_scored=sequences.n_scored,
            rows_evaluated=self.rows_evaluated,
            rows_naive=sequences.rows_naive,
        )
        return Done(unit, loglikelihoods)


def _line_of(own: dict[str, Any]) -> LogRecord:
    """Return the line of a parsed object.

    Raises `ValueError` or another of Python's errors if the object has another form.
    """
    logp = tuple(-math.inf if value == "-inf" else value for value in own["logp"])
    line = LogRecord(own["plan"], own["unit"], own["rows_evaluated"], logp, tuple(own["is_greedy"]))
    whole = type(line.plan) is str and type(line.unit) is int and type(line.rows_evaluated) is int
    if not whole or not all(type(value) is float and value <= 0 for value in logp):
        raise ValueError("plan, unit, rows_evaluated or a value of logp has the wrong type")
    if not all(type(value) is bool for value in line.is_greedy):
        raise ValueError("is_greedy has a value that is neither true nor false")
    return line


def _digest(body: str) -> str:
    return blake2b(body.encode(), digest_size=16).hexdigest()


class Log:
    """The log of one run, open for appending and locked. A context manager.

    The system releases the lock when the process and the children it forked have ended,
    however they end. The file stays and does not say who holds it. Raises `OptionError`
    if another process holds the log, or if the file system has no locks.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path.parent):
            check_plain(path)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        try:
            self._lock()
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        folder = str(self._path.parent)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise OptionError("out", folder, "a folder that no other run is writing now") from error
        except OSError as error:
            expected = f"a folder on a file system with locks ({error.strerror}), for two runs could write it at once"
            raise OptionError("out", folder, expected) from error
        self.check_held()

    def check_held(self) -> None:
        """Raise `OptionError` if the folder's log is no longer the file that is locked.

        Another run may have begun in the folder.
        """
        try:
            is_there = os.path.samestat(os.fstat(self._file), self._path.lstat())
        except OSError:
            is_there = False
        if not is_there:
            expected = f"a folder whose {self._path.name} is not taken away while a run writes it"
            raise OptionError("out", str(self._path.parent), expected)

    def __enter__(self) -> Log:  # noqa: PYI034 - Self is not in typing before Python 3.11, and the class is final
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def is_empty(self) -> bool:
        """Return whether the log has no bytes."""
        return os.fstat(self._file).st_size == 0

    def recover(self, plan: str, units: Sequence[WorkUnit]) -> dict[int, Done]:
        """Return the units that were logged, by number, and cut off incomplete lines.

        The log is cut after the last complete line before the first damaged one.

        Args:
            plan: The digest of the run's plan, which its lines carry.
            units: The units of the run.

        Raises:
            InputFileError: With the number of a complete line that is not of this plan,
                or that repeats a unit. Nothing is cut off then.
        """
        known = {unit.number: unit for unit in units}
        done: dict[int, Done] = {}
        line_of_unit: dict[int, int] = {}
        end = 0
        with writing(self._path.parent):
            for number, (text, stop) in enumerate(self._lines(), start=1):
                try:
                    line = LogRecord.from_json(text)
                    _check_belongs(line, plan, known, line_of_unit)
                    done[line.unit] = line.measured(known[line.unit])
                except TornLineError:
                    break
                except ValueError as error:
                    raise self._refused(number, str(error)) from error
                line_of_unit[line.unit] = number
                end = stop
            if end < os.fstat(self._file).st_size:
                os.ftruncate(self._file, end)
                os.fsync(self._file)
        return done

    def _refused(self, line: int, reason: str) -> InputFileError:
        remedy = "delete the line and go on: what is missing then is measured again"
        return InputFileError(str(self._path), f"not a line of this run: {reason}; {remedy}", line=line)

    def add(self, plan: str, done: Done) -> None:
        """Append the line of a unit; it is on the disk when this returns."""
        data = (LogRecord.of(plan, done).to_json() + "\n").encode()
        self.check_held()
        with writing(self._path.parent):
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)

    def _lines(self) -> Iterator[tuple[str, int]]:
        """Yield (line, offset after it) up to the first incomplete line.

        A line that is not text counts as incomplete.
        """
        stop = 0
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            while data := file.readline(_LONGEST_LINE):
                stop += len(data)
                try:
                    text = data.removesuffix(b"\n").decode()
                except UnicodeDecodeError:
                    return
                if not data.endswith(b"\n"):
                    return
                yield text, stop


def _check_belongs(line: LogRecord, plan: str, known: dict[int, WorkUnit], line_of_unit: dict[int, int]) -> None:
    """Raise `ValueError` for a line that does not belong to the log.

    Such a line has another plan, a unit that the plan does not have, or the unit of an
    earlier line.
    """
    if line.plan != plan:
        raise ValueError(f"its plan is {line.plan}, this run's is {plan}")
    if line.unit not in known:
        raise ValueError(f"the plan has no unit {line.unit}")
    if line.unit in line_of_unit:
        raise ValueError(f"unit {line.unit} is already in line {line_of_unit[line.unit]}")
