"""The record of a model in a `ModelPool`."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.results.plain import plain


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """The state of a model in a `ModelPool` at one moment.

    Attributes:
        name: Name in the pool.
        source: The source from which it is loaded, as text.
        memory_bytes: Upper estimate of its memory, computed from its file, 0 for a
            server; None before it was first requested.
        is_loaded: Whether it is loaded.
        n_uses: Number of `use` blocks that hold it now.
        idle_s: Seconds since the last of these blocks ended, 0 within one; None if it
            is not loaded.
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
