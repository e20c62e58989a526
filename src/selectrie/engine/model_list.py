"""The models at hand: the embedded one and those in the Hugging Face cache.

Listing reads file sizes and digests. It loads no model and writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selectrie.backends.llama_cpp.identity import file_digest
from selectrie.engine import bundled_model
from selectrie.engine.load import HUB_PREFIX
from selectrie.errors import MissingExtraError
from selectrie.results.models import MISSING, PRESENT, ModelRecord

logger = logging.getLogger(__name__)

_SUFFIX = ".gguf"
_MAIN = "main"
"""The branch that `hf:owner/repo/file.gguf` is looked up on."""


def models() -> list[ModelRecord]:
    """List the embedded model, then the GGUF files in the Hugging Face cache.

    Without the extra `hf` the cache is not read, and the embedded model stands alone.
    """
    try:
        return [embedded_record(), *hub_records()]
    except MissingExtraError:
        return [embedded_record()]


def embedded_record() -> ModelRecord:
    """Describe the embedded model; its file may be missing."""
    path = bundled_model.PATH
    return _record(str(path), path, embedded=True) or ModelRecord(
        str(path), path.name, str(path), 0, "", MISSING, embedded=True
    )


def hub_records() -> list[ModelRecord]:
    """List the GGUF files in the Hugging Face cache, by source.

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
    records = (_record(*one) for one in sorted(_hub_files(repositories)))
    return [record for record in records if record is not None]


def _hub_files(repositories: Any) -> Iterator[tuple[str, Path]]:
    """Yield the source and the path of every cached GGUF file.

    A file of an older revision is loaded by its path, and only if no newer revision
    has the same content.
    """
    for repository in repositories:
        if repository.repo_type != "model":
            continue
        seen = set()
        for revision in sorted(repository.revisions, key=lambda one: (_MAIN not in one.refs, -one.last_modified)):
            for file in revision.files:
                name = file.file_path.relative_to(revision.snapshot_path).as_posix()
                if not name.endswith(_SUFFIX) or (name, file.blob_path) in seen:
                    continue
                seen.add((name, file.blob_path))
                is_main = _MAIN in revision.refs
                yield (
                    f"{HUB_PREFIX}{repository.repo_id}/{name}" if is_main else str(file.file_path),
                    file.file_path,
                )


def _record(source: str, path: Path, *, embedded: bool = False) -> ModelRecord | None:
    """Describe a file, or return None if it cannot be read."""
    try:
        size, digest = path.stat().st_size, file_digest(path)
    except OSError as error:
        logger.debug("%s cannot be read: %s", path, error)
        return None
    return ModelRecord(source, path.name, str(path), size, digest, PRESENT, embedded)
