"""The models that were loaded before, when, and the state of their files since.

There is one small file for each model, in `models` of the cache folder. Processes that
load different models at once do not conflict, those that load the same one leave the
entry of one of them, and a damaged entry affects no other.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from datetime import datetime, timezone
from hashlib import blake2b
from pathlib import Path
from typing import Any

from selectrie.core.types import ModelIdentity
from selectrie.engine import bundled_model
from selectrie.engine.cache_dir import cache_folder, read_object, write_object
from selectrie.errors import InputFileError, ModelError, OptionError
from selectrie.results.models import CHANGED, MISSING, PRESENT, ModelRecord

logger = logging.getLogger(__name__)

MOST_ENTRIES = 100
"""Maximum number of entries; the oldest beyond it are dropped when one is added."""

_KINDS = {"str": (str,), "int": (int,), "bool": (bool,), "str | None": (str, type(None))}
"""Types that a value of an entry may have, by the annotation of its field."""


def utc_now() -> datetime:
    """Return the current time, aware of its time zone."""
    return datetime.now(timezone.utc)


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path as entries hold it: absolute, without `..`, links unresolved."""
    return os.path.abspath(os.fspath(path))  # noqa: PTH100 - Path.absolute keeps `..`


class History:
    """The entries of one folder; `clock` returns the time in UTC."""

    def __init__(self, folder: Path | None = None, clock: Callable[[], datetime] = utc_now) -> None:
        """Use a folder, by default `models` of the cache folder."""
        self._folder = cache_folder() / "models" if folder is None else folder
        self._clock = clock

    def remember(self, source: str, path: Path, identity: ModelIdentity) -> None:
        """Record that a model was loaded now.

        Failing to write the entry is no error.
        """
        try:
            found = path.stat()
        except OSError as error:
            logger.debug("%s is not remembered: %s", path, error)
            return
        record = ModelRecord(
            source=source,
            name=identity.name,
            path=str(path),
            size_bytes=found.st_size,
            n_parameters=identity.n_parameters,
            digest=identity.digest,
            loaded=self._clock().isoformat(timespec="microseconds"),
            file=PRESENT,
        )
        if write_object(self._entry(source), asdict(record) | {"modified_ns": found.st_mtime_ns}):
            self._prune()

    def records(self) -> list[ModelRecord]:
        """Return what was loaded, newest first, with the current state of each file."""
        found = [record for record in map(_record, self._entries()) if record is not None]
        return sorted(found, key=lambda record: (record.loaded or "", record.source), reverse=True)

    def forget(self, source: str) -> None:
        """Drop an entry, by its source or by the path of its file.

        Raises `OptionError` if there is none, `InputFileError` if it cannot be removed.
        """
        path = absolute(source)
        named = [record for record in self.records() if source == record.source or path == record.path]
        if not named:
            raise OptionError("forget", source, "the path or the hf: source of a model loaded before")
        for record in named:
            self._drop(record)

    def forget_missing(self) -> None:
        """Drop the entries whose files are gone.

        Raises `InputFileError` if one cannot be removed.
        """
        for record in self.records():
            if record.file == MISSING:
                self._drop(record)

    def _drop(self, record: ModelRecord) -> None:
        entry = self._entry(record.source)
        try:
            entry.unlink(missing_ok=True)
        except OSError as error:
            raise InputFileError(str(entry), f"cannot be removed: {error.strerror}") from error

    def _entry(self, source: str) -> Path:
        name = blake2b(source.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        return self._folder / f"{name}.json"

    def _entries(self) -> list[dict[str, Any]]:
        try:
            return [read_object(path) for path in sorted(self._folder.glob("*.json"))]
        except OSError as error:
            logger.debug("cannot list %s: %s", self._folder, error)
            return []

    def _prune(self) -> None:
        """Drop the files written longest ago, damaged ones included."""
        try:
            files = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
            for path in files[:-MOST_ENTRIES]:
                path.unlink(missing_ok=True)
        except OSError as error:  # another process drops the same ones
            logger.debug("cannot prune %s: %s", self._folder, error)


def models() -> list[ModelRecord]:
    """Return the embedded model, then what was loaded before, newest first.

    No model is loaded, except to read the facts of the embedded one.

    There is an entry after `load` succeeded, until it is forgotten (`selectrie models
    --forget`) or is the oldest of more than a hundred.
    """
    known = History().records()
    own = str(bundled_model.PATH)
    before = next((record for record in known if record.source == own), None)
    return [_embedded(before), *(record for record in known if record.source != own)]


def _embedded(before: ModelRecord | None) -> ModelRecord:
    """Return the embedded model's record, as loaded before or read from its file."""
    if before is not None and before.file == PRESENT:
        return replace(before, embedded=True)
    loaded = None if before is None else before.loaded
    absent = ModelRecord(
        str(bundled_model.PATH), bundled_model.NAME, str(bundled_model.PATH), 0, 0, "", loaded, MISSING, embedded=True
    )
    if not bundled_model.PATH.is_file():
        return absent
    from selectrie.backends.llama_cpp import LlamaOptions, open_model

    try:
        with open_model(bundled_model.PATH, LlamaOptions(n_ctx=8, n_batch=8)) as model:
            identity = model.identity
    except ModelError as error:
        logger.debug("the embedded model cannot be opened: %s", error)
        return replace(absent, file=CHANGED)
    size = bundled_model.PATH.stat().st_size
    return replace(absent, size_bytes=size, n_parameters=identity.n_parameters, digest=identity.digest, file=PRESENT)


def _record(entry: dict[str, Any]) -> ModelRecord | None:
    """Return the record of an entry, or None if a field is missing or mistyped."""
    if any(type(entry.get(field.name)) not in _KINDS[str(field.type)] for field in fields(ModelRecord)):
        return None
    record = ModelRecord(**{field.name: entry[field.name] for field in fields(ModelRecord)})
    return replace(record, file=_state(record, entry.get("modified_ns")), embedded=False)


def _state(record: ModelRecord, modified_ns: object) -> str:
    """Return the state of a file, by size and time of change or else by digest.

    The digest decides if only the time differs: a copied file is not a changed one.
    """
    path = Path(record.path)
    try:
        found = path.stat()
        if found.st_size != record.size_bytes:
            return CHANGED
        if found.st_mtime_ns == modified_ns:
            return PRESENT
        from selectrie.backends.llama_cpp.identity import file_digest

        # A shared `Llama` adds to the digest, after a "+", what it changes.
        return PRESENT if file_digest(path) == record.digest.split("+")[0] else CHANGED
    except (OSError, ValueError):  # ValueError: no file can have such a name
        return MISSING
