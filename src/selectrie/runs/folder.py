"""The folder of a run, and the check whether a resumed run is the same one."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from selectrie.backends.entry import versions_of
from selectrie.backends.table import BACKENDS
from selectrie.core.files import check_plain, is_temporary, write_whole, writing
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import assumed
from selectrie.errors import InputFileError, OptionError
from selectrie.results import Signature
from selectrie.runs.unit_log import LineFormat, UnitLog, UnitT, ValuesT
from selectrie.version import __version__

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
    version: int
    parts: Mapping[str, type]
    compared: tuple[str, ...]
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
