"""The record of a model that was loaded before."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.results.plain import plain

PRESENT, CHANGED, MISSING = "present", "changed", "missing"


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model as it was when it was last loaded, and the present state of its file.

    Of an embedded model that is missing, or damaged and therefore "changed" since it
    was installed, nothing is known: size_bytes and n_parameters are 0 and the digest is
    "".

    Attributes:
        source: What to load it by: an absolute path or `hf:owner/repo/file.gguf`.
        name: Name of the local file.
        path: Path of the local file.
        size_bytes: Size of the file.
        n_parameters: Number of weights.
        digest: Digest of the weights, as in a signature.
        loaded: When it was loaded, in UTC and ISO 8601. None for the embedded model if
            it was not loaded yet.
        file: "present", "changed" since it was loaded, or "missing".
        embedded: Whether it came with this installation.
    """

    source: str
    name: str
    path: str
    size_bytes: int
    n_parameters: int
    digest: str
    loaded: str | None
    file: str
    embedded: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return its fields, ready for JSON."""
        return plain(self)
