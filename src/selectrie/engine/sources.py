"""From what a caller names to what a back end opens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from selectrie.backends.entry import Backend, read_options, require_packages
from selectrie.backends.table import backend_named, backend_of, check_options, what_is_opened
from selectrie.engine.bundled_model import embedded_file
from selectrie.engine.hub import download, is_hub_source
from selectrie.errors import OptionError

_SERVERS = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class OpenableSource:
    """A source that lies on this machine, and how it is opened.

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
    """Return what is opened and how; files of the hub are downloaded.

    Options are checked before anything is downloaded.

    Args:
        source: As for `load`.
        backend: Name of a back end; None to take the one that recognises the source.
        options: Keywords: the fields of the back end's options.

    Raises:
        OptionError: The source, the name or an option is invalid.
        ModelError: The source cannot be had, or is not supported.
    """
    if is_server(source):
        raise OptionError("model", source, f"{what_is_opened()}, or an hf: source; `selectrie.connect` opens servers")
    check_names(backend, options)
    opened = _local(source)
    entry = backend_of(opened) if backend is None else backend_named(backend)
    require_packages(entry)
    return OpenableSource(opened, entry, read_options(entry, options))


def is_server(source: object) -> TypeGuard[str]:
    """Return whether a source is the address of a server."""
    return isinstance(source, str) and source.lower().startswith(_SERVERS)


def check_names(backend: str | None, options: Mapping[str, Any]) -> None:
    """Check what can be checked of options before the source is known.

    Raises `OptionError` if there is no back end of this name, or none that takes the
    options.
    """
    if backend is None:
        check_options(options)
    else:
        read_options(backend_named(backend), options)


def _local(source: object) -> object:
    """Return the local path of a source, or the open model that it is.

    None stands for the embedded model. Raises `OptionError` for an empty text.
    """
    if source is None:
        return embedded_file()
    if is_hub_source(source):
        return download(source)
    if isinstance(source, str | os.PathLike) and isinstance(os.fspath(source), str):
        if not os.fspath(source):  # `Path("")` is the current directory
            raise OptionError("model", source, "a path or an hf: source, or None for the embedded model")
        return Path(source)
    return source
