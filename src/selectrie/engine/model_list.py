"""Lists the models at hand: the embedded one and those in the Hugging Face cache.

Listing reads file sizes and digests. It loads no model and writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selectrie.backends.table import backend_of_file_name, folder_model
from selectrie.engine import sources
from selectrie.errors import MissingExtraError, UnsupportedModelError
from selectrie.results.models import MISSING, PRESENT, ModelRecord

logger = logging.getLogger(__name__)


def models() -> list[ModelRecord]:
    """List the embedded model, then the models in the Hugging Face cache that open.

    Without the extra `hf` the cache is not read, and only the embedded model is listed.
    """
    try:
        return [embedded_record(), *hub_records()]
    except MissingExtraError:
        return [embedded_record()]


def embedded_record() -> ModelRecord:
    """Return the record of the embedded model, whose file may be missing."""
    path = sources.PATH
    return _record(str(path), path, embedded=True) or ModelRecord(
        str(path), path.name, str(path), 0, "", MISSING, embedded=True
    )


def hub_records() -> list[ModelRecord]:
    """List what a back end opens in the Hugging Face cache, by source.

    These are files, and the folders of checkpoints.

    Raises `MissingExtraError` without huggingface_hub.
    """
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        raise MissingExtraError("listing the Hugging Face cache", "hf") from error
    try:
        repositories = huggingface_hub.scan_cache_dir().repos
    except (huggingface_hub.CacheNotFound, OSError, ValueError) as error:  # ValueError: a file lies there
        logger.debug("the Hugging Face cache cannot be listed: %s", error)
        return []
    records = [_record(*one) for one in _hub_files(repositories)]
    records += [_folder_record(*one) for one in _hub_folders(repositories)]
    return sorted((record for record in records if record is not None), key=lambda record: record.source)


def _hub_files(repositories: Any) -> Iterator[tuple[str, Path]]:
    """Yield the source and the path of every cached file that a back end opens.

    A file of an older revision is loaded by its path, and only if no newer revision
    has the same content.
    """
    for repository in repositories:
        if repository.repo_type != "model":
            continue
        seen = set()
        for revision in sorted(
            repository.revisions, key=lambda one: (sources.MAIN not in one.refs, -one.last_modified)
        ):
            for file in revision.files:
                name = file.file_path.relative_to(revision.snapshot_path).as_posix()
                if backend_of_file_name(name) is None or (name, file.blob_path) in seen:
                    continue
                seen.add((name, file.blob_path))
                is_main = sources.MAIN in revision.refs
                yield (
                    f"{sources.PREFIX}{repository.repo_id}/{name}" if is_main else str(file.file_path),
                    file.file_path,
                )


def _hub_folders(repositories: Any) -> Iterator[tuple[str, Path, list[str]]]:
    """Yield the source, the folder and the file names of every cached repository.

    Only the newest revision of the main branch is looked at.
    """
    for repository in repositories:
        for revision in repository.revisions if repository.repo_type == "model" else ():
            if sources.MAIN in revision.refs:
                folder = revision.snapshot_path
                names = [file.file_path.relative_to(folder).as_posix() for file in revision.files]
                yield f"{sources.PREFIX}{repository.repo_id}", folder, names


def _folder_record(source: str, folder: Path, names: list[str]) -> ModelRecord | None:
    """Return the record of a checkpoint's folder; None if no back end opens it."""
    try:
        found = folder_model(source, names)
    except UnsupportedModelError as error:
        logger.debug("%s", error)
        return None
    if found is None:
        return None
    backend, files = found
    try:
        size, digest = sum((folder / name).stat().st_size for name in files), backend.digest(folder)
    except OSError as error:
        logger.debug("%s cannot be read: %s", folder, error)
        return None
    return ModelRecord(source, source.rsplit("/", 1)[-1], str(folder), size, digest, PRESENT, embedded=False)


def _record(source: str, path: Path, *, embedded: bool = False) -> ModelRecord | None:
    """Return the record of a model file.

    None if no back end opens files of this name, or if the file cannot be read.
    """
    backend = backend_of_file_name(path.name)
    if backend is None:
        return None
    try:
        size, digest = path.stat().st_size, backend.digest(path)
    except OSError as error:
        logger.debug("%s cannot be read: %s", path, error)
        return None
    return ModelRecord(source, path.name, str(path), size, digest, PRESENT, embedded)
