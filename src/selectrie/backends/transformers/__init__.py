"""Evaluate trees of contexts by Hugging Face Transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selectrie.backends.transformers.model import open_module

__all__ = ["open_module"]


def __getattr__(name: str) -> Any:
    """Import `open_module` when it is used, as options need no torch."""
    if name != "open_module":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from selectrie.backends.transformers.model import open_module

    return open_module
