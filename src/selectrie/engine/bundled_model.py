"""The model that comes with selectrie: where its file is, and what it is called."""

from __future__ import annotations

from pathlib import Path

from selectrie.errors import ModelFileError

NAME = "embedded.gguf"
"""Name of the file, which stands in signatures as that of any model does."""

PATH = Path(__file__).resolve().parents[1] / "assets" / NAME
"""A path and not a resource: llama.cpp maps the file, so it has to lie in the file system."""


def embedded_file() -> Path:
    """The file of the embedded model.

    Raises `ModelFileError` where this installation has none.
    """
    if not PATH.is_file():
        reason = (
            "the embedded model is missing from this installation; install selectrie again "
            "(in a source tree, `make model` makes it), or name a GGUF file"
        )
        raise ModelFileError(str(PATH), reason)
    return PATH
