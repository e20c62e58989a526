"""The table of back ends, and functions that find the one that opens a source.

A back end that is in `BACKENDS` is found by `load`, pools, the command, evaluations and
the list of models; none of these modules names a back end.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from selectrie.backends.entry import Backend, read_options
from selectrie.backends.llama_cpp_entry import LLAMA_CPP
from selectrie.backends.transformers_entry import TRANSFORMERS
from selectrie.backends.xla_entry import XLA
from selectrie.errors import ModelFileError, OptionError, UnknownOptionError

BACKENDS: tuple[Backend, ...] = (LLAMA_CPP, TRANSFORMERS, XLA)
"""All back ends.

A file that none recognises is opened by the first, whose errors say what is wrong.
"""

CHECKPOINT = "config.json"
"""The file by which a folder or a repository is known as a Transformers checkpoint."""
_PARTS_OF_CHECKPOINTS = (".safetensors", ".safetensors.index.json")
"""How names of files end that are opened only with the other files of a checkpoint."""
_MAX_NAMES = 50
"""Maximum number of names that an error lists."""


def backend_named(name: object) -> Backend:
    """Return the back end with a name. Raises `OptionError` if there is none."""
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    raise OptionError("backend", name, "one of " + ", ".join(repr(backend.name) for backend in BACKENDS))


def backend_of_file_name(name: str) -> Backend | None:
    """Return the back end whose files end like this name, or None."""
    return next((one for one in BACKENDS if one.suffix is not None and name.lower().endswith(one.suffix)), None)


def is_part_of_checkpoint(name: str) -> bool:
    """Return whether a file of this name is opened only as a part of its checkpoint."""
    return name.rpartition("/")[2] == CHECKPOINT or name.lower().endswith(_PARTS_OF_CHECKPOINTS)


def backend_of(source: object) -> Backend:
    """Return the back end that opens a source, by its content.

    Args:
        source: A `Path`, or an open model of a library.

    Raises:
        OptionError: If no back end opens an object of this kind.
        ModelFileError: If the path is a directory without a model.
    """
    for backend in BACKENDS:
        if backend.recognises(source):
            return backend
    if not isinstance(source, Path):
        raise OptionError("model", source, f"what a back end opens: {what_is_opened()}")
    if os.path.isdir(source):  # noqa: PTH112 - `Path.is_dir` raises for a name that is too long
        raise _of_directory(source)
    return BACKENDS[0]


def check_options(options: Mapping[str, Any]) -> None:
    """Raise `OptionError` if no back end takes these keywords.

    If a back end has options of all these names, the error is about a value.
    """
    errors = []
    for backend in BACKENDS:
        error = _refusal(backend, options)
        if error is None:
            return
        errors.append(error)
    raise next((error for error in errors if not isinstance(error, UnknownOptionError)), errors[0])


def _refusal(backend: Backend, options: Mapping[str, Any]) -> OptionError | None:
    """Return the error with which a back end rejects these keywords.

    None if it takes them.
    """
    try:
        read_options(backend, options)
    except OptionError as error:
        return error
    return None


def what_is_opened() -> str:
    """Return the kinds of sources that this version opens, in words."""
    return " or ".join(backend.opens for backend in BACKENDS if backend.opens)


def names_in_words(names: Collection[str]) -> str:
    """Return names in words for the message of an error, in their order."""
    shown = sorted(names)[:_MAX_NAMES]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more


def folder_model(name: str, names: Collection[str]) -> tuple[Backend, Sequence[str]] | None:
    """Return the back end that opens a folder of these files, and the files it needs.

    Args:
        name: Name of the folder or repository, for errors.
        names: Names of the files in it.

    Returns None if no back end opens it. Raises `UnsupportedModelError` if they are a
    model that cannot be opened.
    """
    for backend in BACKENDS:
        files = backend.folder_files(name, names)
        if files:
            return backend, files
    return None


def _of_directory(path: Path) -> ModelFileError:
    """Return the error about a directory that was given as a model."""
    try:
        names = [one.name for one in path.iterdir()]
    except OSError as error:
        return ModelFileError(str(path), f"is a directory that cannot be read: {error.strerror}")
    files = [name for name in names if backend_of_file_name(name) is not None]
    remedy = f"pass one of its files: {names_in_words(files)}" if files else f"pass {what_is_opened()}"
    lack = "weights" if CHECKPOINT in names else f"a {CHECKPOINT}"
    return ModelFileError(str(path), f"is a directory without {lack}, so no model; {remedy}")
