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
"""Name of the file that every Transformers checkpoint has."""
_PARTS_OF_CHECKPOINTS = (".safetensors", ".safetensors.index.json")
"""Ends of names of files that can be opened only as parts of a checkpoint."""
_MAX_NAMES = 50
"""Maximum number of names that an error lists."""


def backend_named(name: object) -> Backend:
    """Return the back end with a name. Raises `OptionError` if there is none."""
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    raise OptionError("backend", name, "one of " + ", ".join(repr(backend.name) for backend in BACKENDS))


def backend_of_file_name(name: str) -> Backend | None:
    """Return the back end that opens single files with such a suffix, or None."""
    return next((one for one in BACKENDS if one.suffix is not None and name.lower().endswith(one.suffix)), None)


def is_part_of_checkpoint(name: str) -> bool:
    """Return whether a file is a part of a checkpoint, such as `config.json`."""
    return name.rpartition("/")[2] == CHECKPOINT or name.lower().endswith(_PARTS_OF_CHECKPOINTS)


def backend_of(source: object) -> Backend:
    """Return the back end that recognises the content of a source.

    A path that none recognises, unless it is a directory, is left to the first one.

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
        raise OptionError("model", source, f"what a back end opens: {describe_sources()}")
    if os.path.isdir(source):  # noqa: PTH112 - `Path.is_dir` raises for a name that is too long
        raise _directory_error(source)
    return BACKENDS[0]


def check_options(options: Mapping[str, Any]) -> None:
    """Raise `OptionError` if no back end accepts these keywords of `load`.

    If a back end has options of all these names, the error is about their values.
    """
    errors = []
    for backend in BACKENDS:
        error = _options_error(backend, options)
        if error is None:
            return
        errors.append(error)
    raise next((error for error in errors if not isinstance(error, UnknownOptionError)), errors[0])


def _options_error(backend: Backend, options: Mapping[str, Any]) -> OptionError | None:
    """Return the error of a back end about these keywords; None if it accepts them."""
    try:
        read_options(backend, options)
    except OptionError as error:
        return error
    return None


def describe_sources() -> str:
    """Return the kinds of sources that can be opened, in words for errors."""
    return " or ".join(backend.opens for backend in BACKENDS if backend.opens)


def names_in_words(names: Collection[str]) -> str:
    """Return sorted names for the message of an error, at most `_MAX_NAMES`."""
    shown = sorted(names)[:_MAX_NAMES]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more


def folder_model(name: str, names: Collection[str]) -> tuple[Backend, Sequence[str]] | None:
    """Return the back end that opens a folder of files, and the names it needs.

    Args:
        name: Name of the folder or repository, for errors.
        names: Names of the files in it.

    Returns None if no back end opens the folder. Raises `UnsupportedModelError` if it
    holds a model that cannot be opened, such as pickled weights.
    """
    for backend in BACKENDS:
        files = backend.folder_files(name, names)
        if files:
            return backend, files
    return None


def _directory_error(path: Path) -> ModelFileError:
    """Return the error about a directory that was given as a model."""
    try:
        names = [one.name for one in path.iterdir()]
    except OSError as error:
        return ModelFileError(str(path), f"is a directory that cannot be read: {error.strerror}")
    files = [name for name in names if backend_of_file_name(name) is not None]
    remedy = f"pass one of its files: {names_in_words(files)}" if files else f"pass {describe_sources()}"
    lack = "weights" if CHECKPOINT in names else f"a {CHECKPOINT}"
    return ModelFileError(str(path), f"is a directory without {lack}, so no model; {remedy}")
