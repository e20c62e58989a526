"""The records that describe a back end in the table of back ends."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from selectrie.core.model import Model
from selectrie.core.types import Precision
from selectrie.errors import MissingExtraError, OptionError, UnknownOptionError
from selectrie.options.arguments import meant_name
from selectrie.options.checks import numbers_of
from selectrie.options.sampling import SamplingParams

logger = logging.getLogger(__name__)

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
)
"""The files of a tokenizer of Transformers, of which a checkpoint has some."""


@dataclass(frozen=True, slots=True)
class FileTrial:
    """The functions with which a back end's files are first opened in a child process.

    Attributes:
        identify: Checks a file as far as possible without opening it. Returns the key
            under which a success is stored (of content and build), and the size of the
            file in bytes. Raises `ModelFileError` or `UnsupportedModelError`.
        options: Returns the options with which the child opens a file, for a precision.
        remedy: Advice for a file on which the child crashed.
    """

    identify: Callable[[Path], tuple[str, int]]
    options: Callable[[Precision], Any]
    remedy: str


@dataclass(frozen=True, slots=True)
class Backend:
    """A back end, with the functions that recognise and open its models.

    Its functions import what they need when they are called, so that an entry costs
    nothing before it is used.

    Attributes:
        name: Name in `load(backend=…)` and in `ModelIdentity.backend`.
        opens: The kinds of sources that it recognises, in words. Empty if it is only
            used when a caller names it.
        packages: Packages that it needs: name of the distribution by name of import.
        extra: The extra that installs them; None if selectrie always has them.
        suffix: The end of its files' names, in lower case; None if it opens no single
            files.
        recognises: Returns whether it opens a source, a `Path` or an object, by its
            content. Raises nothing.
        options_type: Returns the type of its options: a frozen dataclass with a default
            for each field, which checks itself. The fields are keywords of `load`.
            `precision` and `verbose` are among them. If there is an extra, importing
            the type does not need its packages.
        open_model: Opens a source with its options.
        check_key: Returns the key under which a self-check (measured precision) is
            stored, from model, source and options.
        memory_needed: Returns an upper bound on the bytes of memory that a model takes,
            from its path and options.
        digest: Returns the digest of a path, as in signatures.
        parts: Returns the names of all files of the model that a file belongs to. The
            first one is opened.
        folder_files: Returns the names of the files in a folder that make up a model;
            none if there is none. The arguments are the folder's name, for errors, and
            the names in it. Raises `UnsupportedModelError` for a model of its kind that
            it cannot open.
        less_memory: Advice on options with which a model takes less memory, as the end
            of a sentence.
        stored_sampling: Returns the sampling options that are stored with a model, from
            the model and its source, by fields of `SamplingParams`.
        trial: The `FileTrial` by which files are first opened in a child process; None
            if they are not.
    """

    name: str
    opens: str
    packages: Mapping[str, str]
    extra: str | None
    suffix: str | None
    recognises: Callable[[object], bool]
    options_type: Callable[[], type[Any]]
    open_model: Callable[[Any, Any], Model]
    check_key: Callable[[Model, Any, Any], str]
    memory_needed: Callable[[Path, Any], int]
    digest: Callable[[Path], str]
    parts: Callable[[str], Sequence[str]]
    folder_files: Callable[[str, Collection[str]], Sequence[str]]
    less_memory: str
    trial: FileTrial | None
    stored_sampling: Callable[[Any, Any], Mapping[str, float]] = lambda _model, _source: {}


def read_options(backend: Backend, options: Mapping[str, Any]) -> Any:
    """Return the options record of a back end, made from keywords.

    Raises:
        UnknownOptionError: If the back end has no option of a name.
        OptionError: If a value is invalid.
    """
    kind = backend.options_type()
    names = tuple(field.name for field in fields(kind))
    for name, value in options.items():
        if name not in names:
            raise UnknownOptionError(name, value, backend=backend.name, names=names, meant=meant_name(name, names))
    return kind(**options)


def read_sampling(values: Mapping[str, object], names: Mapping[str, str], where: str) -> dict[str, float]:
    """Return the sampling options among the values that are stored with a model.

    A value that is no valid option is left out, and named in the log.

    Args:
        values: The stored values; numbers may be texts.
        names: Fields of `SamplingParams` by the names that the values have.
        where: The model, for the log.
    """
    options = numbers_of(SamplingParams)
    found: dict[str, float] = {}
    for name, option in names.items():
        value = values.get(name)
        try:
            number = None if value is None else options[option].kind(value)
            if number is not None:
                SamplingParams(**{option: number})
                found[option] = number
        except (OptionError, TypeError, ValueError) as error:
            logger.warning("%s: the stored %s is not used: %s", where, name, error)
    return found


def require_packages(backend: Backend) -> None:
    """Raise `MissingExtraError` if a package of the back end's extra is missing."""
    if backend.extra is not None and any(find_spec(name) is None for name in backend.packages):
        raise MissingExtraError(f"the back end {backend.name}", backend.extra)


def is_instance_of(source: object, module: str, name: str) -> bool:
    """Return whether a source is an instance of a class, without importing anything.

    A source cannot be one if the module of the class has not been imported.

    Args:
        source: Any object.
        module: Name of the module that has the class.
        name: Name of the class in that module.
    """
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(source, kind)


def self_check_key(model: Model, detail: str) -> str:
    """Return the key under which the self-check (measured precision) is stored.

    Args:
        model: The opened model.
        detail: Further settings that change the last bits of its sums, besides its
            identity and the rows of a call, in words without "|".
    """
    identity = model.identity
    return (
        f"{identity.digest}|{identity.build}|{identity.processor}|{identity.precision}"
        f"|{detail}|{model.limits.rows_per_call} rows"
    )


def versions_of(backend: Backend) -> dict[str, str]:
    """Return the installed versions of a back end's packages, by distribution."""
    from importlib.metadata import version  # imported on first use, as it takes time

    return {distribution: version(distribution) for distribution in backend.packages.values()}
