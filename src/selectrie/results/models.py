"""What is known of a model that was loaded before."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.results.plain import plain

PRESENT, CHANGED, MISSING = "present", "changed", "missing"


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model as it was when it was loaded last, and what has become of its file since.

    source: what to load it by, an absolute path or `hf:owner/repo/file.gguf`. name, path: of the local file. digest: of
    the weights, as in a signature. loaded: when, UTC in ISO 8601; None for the embedded model where it was not loaded yet.
    file: "present", "changed" since it was loaded, or "missing". embedded: it came with this installation.

    Of an embedded model that is missing nothing is known: size_bytes and n_parameters are 0 and the digest is "".
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
        """Its fields, ready for JSON."""
        return plain(self)
