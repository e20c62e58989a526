"""Defines records of models on this machine, and of models in a `ModelPool`."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.results.plain import JsonRecord, plain

PRESENT, MISSING = "present", "missing"


@dataclass(frozen=True, slots=True)
class ModelRecord(JsonRecord):
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


@dataclass(frozen=True, slots=True)
class RegisteredModel(JsonRecord):
    """The state of a model in a `ModelPool` at one moment.

    Attributes:
        name: Name in the pool.
        source: The source from which it is loaded, as text.
        memory_bytes: Upper estimate of the model's memory, computed from its file; 0
            for a server; None before the first request.
        is_loaded: Whether the model is loaded.
        n_uses: Number of active `use` blocks of the model.
        idle_s: Seconds since the last `use` block ended, 0 if one is active; None if
            the model is not loaded.
    """

    name: str
    source: str
    memory_bytes: int | None
    is_loaded: bool
    n_uses: int
    idle_s: float | None

    def to_dict(self) -> dict[str, object]:
        """Return the fields of the record, ready for JSON."""
        return plain(self)
