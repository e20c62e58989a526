"""Finds the file and the back end of a source; downloads and lists models."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard

from selectrie.backends.entry import TOKENIZER_FILES, Backend, read_options, require_packages
from selectrie.backends.table import (
    backend_named,
    backend_of,
    backend_of_file_name,
    check_options,
    describe_sources,
    folder_model,
    is_part_of_checkpoint,
    names_in_words,
)
from selectrie.errors import MissingExtraError, ModelFileError, OptionError, SelectrieError, UnsupportedModelError
from selectrie.results.models import MISSING, PRESENT, ModelRecord

logger = logging.getLogger(__name__)

EMBEDDED = "embedded"
"""The source that names the model which comes with selectrie, as None does."""
NAME = "embedded.gguf"
"""Name of the embedded model's file, which signatures show."""

PATH = Path(__file__).resolve().parents[1] / "assets" / NAME
"""Path of the embedded model's file; llama.cpp maps it, so it must lie on disk."""


def embedded_file() -> Path:
    """Return the path of the embedded model's file.

    Raises `ModelFileError` if this installation has none.
    """
    if not PATH.is_file():
        reason = (
            "the embedded model is missing from this installation; install selectrie again "
            "(in a source tree, `make model` makes it), or name a GGUF file"
        )
        raise ModelFileError(str(PATH), reason)
    return PATH


PREFIX = "hf:"
MAIN = "main"
"""The branch of a repository in which files are looked up."""

_FORMS = (
    "hf:owner/repo for a checkpoint, hf:owner/repo/file.gguf, or hf:owner/repo:QUANTISATION as in hf:owner/repo:Q4_K_M"
)
_ANSWER_S = 5.0
"""Seconds after which a hub that has not begun to answer counts as unreachable."""
_PROJECTOR = "mmproj"
"""Part of the name of GGUF files with a projector and no language model."""


@dataclass(frozen=True, slots=True)
class HubSource:
    """The parts of a source `hf:…` on the Hugging Face hub.

    Attributes:
        text: The source as it is written.
        repository: `owner/repo`.
        file: Name of a file in the repository, or None.
        quantisation: Quantisation of the wanted file if it is not named, or None.
    """

    text: str
    repository: str
    file: str | None = None
    quantisation: str | None = None

    @staticmethod
    def parse(text: str) -> HubSource:
        """Parse a source `hf:…`.

        Raises `OptionError` if it has another form, or names a part of a checkpoint.
        """
        owner, _, rest = text.removeprefix(PREFIX).partition("/")
        name, slash, file = rest.partition("/")
        name, colon, quantisation = name.partition(":")
        if not (owner and name) or bool(slash) != bool(file) or bool(colon) != bool(quantisation) or (file and colon):
            raise OptionError("model", text, _FORMS)
        if is_part_of_checkpoint(file):
            raise OptionError("model", text, f"{PREFIX}{owner}/{name}, as a checkpoint is opened with all its files")
        return HubSource(text, f"{owner}/{name}", file or None, quantisation or None)

    def source_of(self, file: str) -> str:
        """Return the source `hf:…` of a file in this repository."""
        return f"{PREFIX}{self.repository}/{file}"


@dataclass(frozen=True, slots=True)
class _Listing:
    """The files of a repository.

    Attributes:
        names: Their names, with folders.
        unreachable: Reason why the hub did not answer, if names are from the cache.
    """

    names: Sequence[str]
    unreachable: Exception | None = None

    def models(self) -> list[str]:
        """Return the files that a back end opens; of a split one, the first part."""
        result = []
        for name in sorted(self.names):
            backend = backend_of_file_name(name)
            is_projector = _PROJECTOR in PurePosixPath(name).name.lower()
            if backend is not None and not is_projector and backend.parts(name)[0] == name:
                result.append(name)
        return result

    def note(self) -> str:
        """Return a note for errors, if the names are only those in the cache."""
        return _cache_note(self.unreachable)


def _cache_note(unreachable: Exception | None) -> str:
    """Return a note that names come from the cache, if the hub was unreachable."""
    if unreachable is None:
        return ""
    return f" (these are in the cache; the hub gave no list: {_first_line(unreachable)})"


def find_source(source: object) -> object:
    """Return a source with `~` expanded and with `hf:` before `owner/repo:Q4_K_M`.

    "embedded" becomes None, the embedded model. A path that exists is left as it is.
    """
    if not isinstance(source, str):
        return source.expanduser() if isinstance(source, Path) else source
    if source == EMBEDDED and not Path(source).exists():
        return None
    if _WITHOUT_PREFIX.fullmatch(source) and not Path(source).exists():
        return PREFIX + source
    return str(Path(source).expanduser()) if source.startswith("~") else source


_WITHOUT_PREFIX = re.compile(r"[\w.-]+/[\w.-]+:\w[\w.-]*")


def is_hub_source(source: object) -> TypeGuard[str]:
    """Return whether a source is written `hf:…`."""
    return isinstance(source, str) and source.startswith(PREFIX)


def _hub(what: str) -> Any:
    """Return `huggingface_hub`; raise `MissingExtraError` for `what` without it."""
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        raise MissingExtraError(what, "hf") from error
    return huggingface_hub


def _cached_repositories(hub: Any) -> Iterable[Any]:
    """Return the repositories of models in the Hugging Face cache."""
    try:
        return [one for one in hub.scan_cache_dir().repos if one.repo_type == "model"]
    except (hub.CacheNotFound, OSError, ValueError) as error:  # ValueError: a file lies there
        logger.debug("the Hugging Face cache cannot be listed: %s", error)
        return []


def download(text: str) -> Path:
    """Download a source of the hub, if necessary, and return its local path.

    The path is a file (of a split model, the first part), or the folder of a
    checkpoint, of which only configuration, tokenizer and safetensors are downloaded.

    Raises:
        OptionError: If the source has another form, or does not name one file.
        UnsupportedModelError: If the repository's weights are only pickles.
        ModelFileError: If a file cannot be downloaded and is not in the cache, or if no
            back end opens any file.
        MissingExtraError: If huggingface_hub, or a package for the checkpoint, is not
            installed.
    """
    source, hub = HubSource.parse(text), _hub(text)
    if source.file is not None:
        return _download_file(hub, source, source.file, _check_hub(hub, source.repository, source.file))
    listing = _list_files(hub, source)
    if source.quantisation is None:
        found = _find_checkpoint(source, listing)
        if found is not None:
            return _download_folder(hub, source, found, listing.unreachable)
    return _download_file(hub, source, _choose_file(source, listing), listing.unreachable)


_TOKENIZER_FILES = ("config.json", "generation_config.json", *TOKENIZER_FILES)


def download_tokenizer(text: str) -> Path:
    """Download the tokenizer of a source of the hub and return its local path.

    It is a GGUF file, which is downloaded whole, or the folder of a repository, of
    which only configuration and tokenizer are downloaded.

    Raises:
        OptionError, ModelFileError, MissingExtraError: As `download`.
    """
    source = HubSource.parse(text)
    if source.file is not None or source.quantisation is not None:
        return download(text)
    hub = _hub(text)
    listing = _list_files(hub, source)
    files = [name for name in _TOKENIZER_FILES if name in listing.names]
    if not any(name in TOKENIZER_FILES for name in files):
        raise ModelFileError(text, f"the repository has no tokenizer{listing.note()}; give another one")
    return _download_folder(hub, source, files, listing.unreachable)


def _download_file(hub: Any, source: HubSource, file: str, unreachable: Exception | None) -> Path:
    """Download a file and the other parts of its model; return the file's local path.

    Args:
        hub: The module `huggingface_hub`.
        source: The source, for errors.
        file: Name of the file in the repository.
        unreachable: Reason why the hub does not answer, so only the cache is used.
    """
    backend = backend_of_file_name(file)
    names = [file] if backend is None else backend.parts(file)
    how = {} if unreachable is None else {"local_files_only": True}
    try:
        paths = [Path(hub.hf_hub_download(source.repository, name, **how)) for name in names]
    except (OSError, ValueError) as error:  # hub errors derive from these: offline, not found, gated, bad name
        raise _unavailable_error(source, unreachable or error) from error
    return paths[0]


def _find_checkpoint(source: HubSource, listing: _Listing) -> Sequence[str] | None:
    """Return the files of the repository's checkpoint; None if it has none.

    An unsupported checkpoint is ignored if there are files that could be opened.
    """
    try:
        found = folder_model(source.text, listing.names)
    except UnsupportedModelError:
        if listing.models():
            return None
        raise
    if found is None:
        return None
    backend, files = found
    require_packages(backend)
    return files


def _download_folder(hub: Any, source: HubSource, files: Sequence[str], unreachable: Exception | None) -> Path:
    """Download files of a checkpoint and return their local folder."""
    try:
        folder = Path(
            hub.snapshot_download(
                source.repository, allow_patterns=list(files), local_files_only=unreachable is not None
            )
        )
        missing = [name for name in files if not (folder / name).is_file()]
    except Exception as error:  # from the HTTP library of the hub's client, which varies
        raise _unavailable_error(source, unreachable or error) from error
    if missing:
        raise ModelFileError(
            source.text, f"{names_in_words(missing)} cannot be had{_cache_note(unreachable)}; download it again"
        )
    return folder


def _list_files(hub: Any, source: HubSource) -> _Listing:
    """List the files of a repository; those in the cache if the hub gives no list."""
    try:
        files = hub.model_info(source.repository, timeout=_ANSWER_S).siblings
        return _Listing([file.rfilename for file in files or ()])
    except Exception as error:  # from the HTTP library of the hub's client, which varies
        names = _list_cached_files(hub, source.repository)
        if not names:
            raise _unavailable_error(source, error) from error
        return _Listing(names, error)


def _list_cached_files(hub: Any, repository: str) -> list[str]:
    """Return the names of a repository's cached files, of its main branch."""
    return [
        file.file_path.relative_to(revision.snapshot_path).as_posix()
        for one in _cached_repositories(hub)
        if one.repo_id == repository
        for revision in one.revisions
        if MAIN in revision.refs
        for file in revision.files
    ]


def _choose_file(source: HubSource, listing: _Listing) -> str:
    """Return the one file that a source means; raise an error if there is not one."""
    names = listing.models()
    if source.quantisation is None or not names:
        raise _not_one_file_error(source, listing)
    pattern = re.compile(rf"(?<![a-z0-9]){re.escape(source.quantisation)}(?![a-z0-9_])", re.IGNORECASE)
    matches = [name for name in names if pattern.search(PurePosixPath(name).name)]
    matches = matches or [name for name in names if pattern.search(name)]
    if len(matches) == 1:
        return matches[0]
    files = names_in_words([source.source_of(name) for name in matches or names])
    if matches:
        raise OptionError("model", source.text, f"a source that names one of these files: {files}")
    expected = f"a quantisation of this repository, or one of its files: {files}{listing.note()}"
    raise OptionError("model", source.text, expected)


def _not_one_file_error(source: HubSource, listing: _Listing) -> SelectrieError:
    """Return the error for a source that names a repository but no file in it."""
    files = [source.source_of(name) for name in listing.models()]
    if not files and folder_model(source.text, listing.names) is not None:
        checkpoint = f"{PREFIX}{source.repository}"
        return OptionError("model", source.text, f"{checkpoint}, as the repository is a checkpoint without other files")
    if files:
        return OptionError("model", source.text, f"one of its files: {names_in_words(files)}{listing.note()}")
    reason = f"the repository holds nothing that this version opens; it opens {describe_sources()}"
    return ModelFileError(source.text, reason + listing.note())


def _unavailable_error(source: HubSource, error: Exception) -> ModelFileError:
    """Return the error for a file that can neither be downloaded nor is cached."""
    return ModelFileError(
        source.text,
        f"cannot be downloaded and is not in the cache ({_first_line(error)}); "
        "check the name and the network, or pass a local file",
    )


def _first_line(error: Exception) -> str:
    message = str(error).strip()
    return message.splitlines()[0] if message else type(error).__name__


def _check_hub(hub: Any, repository: str, name: str) -> Exception | None:
    """Ask the hub for a file; return the error if the hub does not answer, else None.

    The hub is asked once and briefly, because a download retries for 23 s and logs each
    time.
    """
    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(repository, name), timeout=_ANSWER_S)
    except (hub.errors.HfHubHTTPError, hub.errors.FileMetadataError, ValueError):
        return None
    except Exception as error:  # noqa: BLE001 - from the HTTP library of the hub's client, which varies
        return error
    return None


_SERVERS = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class OpenableSource:
    """A source on this machine, with the back end that opens it.

    Attributes:
        opened: A `Path`, or the open model of a library.
        backend: The back end that opens it.
        options: The back end's options.
    """

    opened: Any
    backend: Backend
    options: Any

    @property
    def is_file(self) -> bool:
        """Return whether it is a path, not an open model."""
        return isinstance(self.opened, Path)


def resolve(source: object, backend: str | None, options: Mapping[str, Any]) -> OpenableSource:
    """Find the file or open model of a source, and the back end that opens it.

    Files of the hub are downloaded, after options are checked.

    Args:
        source: As for `load`.
        backend: Name of a back end; None to take the one that recognises the source.
        options: Keyword arguments: the fields of the back end's options.

    Raises:
        OptionError: If the source, the name or an option is invalid.
        ModelError: If the source cannot be downloaded, or is not supported.
    """
    if is_server(source):
        raise OptionError("model", source, f"{describe_sources()}, or an hf: source; `selectrie.connect` opens servers")
    check_names(backend, options)
    opened = _to_local(source)
    entry = backend_of(opened) if backend is None else backend_named(backend)
    require_packages(entry)
    return OpenableSource(opened, entry, read_options(entry, options))


def is_server(source: object) -> TypeGuard[str]:
    """Return whether a source is the address of a server."""
    return isinstance(source, str) and source.lower().startswith(_SERVERS)


def check_names(backend: str | None, options: Mapping[str, Any]) -> None:
    """Check a back end's name and options, as far as possible without the source.

    Raises `OptionError` if there is no back end of this name, or none that takes the
    options.
    """
    if backend is None:
        check_options(options)
    else:
        read_options(backend_named(backend), options)


def _to_local(source: object) -> object:
    """Return the local path of a source, or the source if it is an open model.

    None is the embedded model. Raises `OptionError` for an empty text.
    """
    source = find_source(source)
    if source is None:
        return embedded_file()
    if is_hub_source(source):
        return download(source)
    if isinstance(source, str | os.PathLike) and isinstance(os.fspath(source), str):
        if not os.fspath(source):  # `Path("")` is the current directory
            raise OptionError("model", source, "a path or an hf: source, or None for the embedded model")
        return Path(source)
    return source


def models() -> list[ModelRecord]:
    """List the embedded model, then the usable models in the Hugging Face cache.

    Without the extra `hf` only the embedded model is listed.
    """
    try:
        return [embedded_record(), *hub_records()]
    except MissingExtraError:
        return [embedded_record()]


def embedded_record() -> ModelRecord:
    """Return the record of the embedded model, whose file may be missing."""
    path = PATH
    return _file_record(str(path), path, embedded=True) or ModelRecord(
        str(path), path.name, str(path), 0, "", MISSING, embedded=True
    )


def hub_records() -> list[ModelRecord]:
    """List the models in the Hugging Face cache that a back end opens, by source.

    They are files and folders of checkpoints. Raises `MissingExtraError` without
    huggingface_hub.
    """
    repositories = _cached_repositories(_hub("listing the Hugging Face cache"))
    records = [_file_record(*one) for one in _list_hub_files(repositories)]
    records += [_folder_record(*one) for one in _list_hub_folders(repositories)]
    return sorted((record for record in records if record is not None), key=lambda record: record.source)


def _list_hub_files(repositories: Any) -> Iterator[tuple[str, Path]]:
    """Yield the source and the path of every cached file that a back end opens.

    A file of an older revision is listed by its path, and only if no newer revision has
    the same content.
    """
    for repository in repositories:
        seen = set()
        for revision in sorted(repository.revisions, key=lambda one: (MAIN not in one.refs, -one.last_modified)):
            for file in revision.files:
                name = file.file_path.relative_to(revision.snapshot_path).as_posix()
                if backend_of_file_name(name) is None or (name, file.blob_path) in seen:
                    continue
                seen.add((name, file.blob_path))
                is_main = MAIN in revision.refs
                yield (
                    f"{PREFIX}{repository.repo_id}/{name}" if is_main else str(file.file_path),
                    file.file_path,
                )


def _list_hub_folders(repositories: Any) -> Iterator[tuple[str, Path, list[str]]]:
    """Yield the source, the folder and the file names of every cached repository.

    Only the newest revision of the main branch is looked at.
    """
    for repository in repositories:
        for revision in repository.revisions:
            if MAIN in revision.refs:
                folder = revision.snapshot_path
                names = [file.file_path.relative_to(folder).as_posix() for file in revision.files]
                yield f"{PREFIX}{repository.repo_id}", folder, names


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
    return _record(source, source.rsplit("/", 1)[-1], folder, backend, [folder / name for name in files])


def _file_record(source: str, path: Path, *, embedded: bool = False) -> ModelRecord | None:
    """Return the record of a model file.

    None if no back end opens files of this name, or if it cannot be read.
    """
    backend = backend_of_file_name(path.name)
    return None if backend is None else _record(source, path.name, path, backend, [path], embedded=embedded)


def _record(
    source: str, name: str, path: Path, backend: Backend, files: Sequence[Path], *, embedded: bool = False
) -> ModelRecord | None:
    """Return the record of a model, or None if a file of it cannot be read."""
    try:
        size, digest = sum(file.stat().st_size for file in files), backend.digest(path)
    except OSError as error:
        logger.debug("%s cannot be read: %s", path, error)
        return None
    return ModelRecord(source, name, str(path), size, digest, PRESENT, embedded)
