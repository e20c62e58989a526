"""What is known of a model in a registry."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.results.plain import plain


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """A model of a registry at one moment.

    source: what it is loaded by. memory_bytes: what it takes at most, reckoned from its file; None before it was first
    asked for. n_uses: `use` blocks that hold it now. idle_s: seconds since the last of them ended, 0 within one; None where
    it is not loaded.
    """

    name: str
    source: str
    memory_bytes: int | None
    is_loaded: bool
    n_uses: int
    idle_s: float | None

    def to_dict(self) -> dict[str, object]:
        """Its fields, ready for JSON."""
        return plain(self)
