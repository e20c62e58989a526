"""Finds the file and the name of the model that comes with selectrie."""

from __future__ import annotations

from pathlib import Path

from selectrie.errors import ModelFileError

NAME = "embedded.gguf"
"""Name of the file, which signatures show as they do for any model."""

PATH = Path(__file__).resolve().parents[1] / "assets" / NAME
"""A path, not a resource: llama.cpp maps the file, so it must lie on disk."""


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
