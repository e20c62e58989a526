"""The record of a model that is at hand on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.results.plain import plain

PRESENT, MISSING = "present", "missing"


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model file that can be loaded without a download.

    Attributes:
        source: The argument for `load`: an absolute path or `hf:owner/repo/file.gguf`.
        name: Name of the local file.
        path: Path of the local file.
        size_bytes: Size of the file; 0 if it is missing.
        digest: Digest of the weights, as in a signature; "" if the file is missing.
        file: "present", or "missing" for an embedded model that is not installed.
        embedded: Whether the model came with this installation.
    """

    source: str
    name: str
    path: str
    size_bytes: int
    digest: str
    file: str
    embedded: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return the fields of the record, ready for JSON."""
        return plain(self)
