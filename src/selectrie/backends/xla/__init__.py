"""Evaluate trees of contexts by programs that XLA compiles for fixed shapes.

Names are imported when they are used: options need no jax.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selectrie.backends.xla.model import XlaModel
    from selectrie.backends.xla.opening import open_model, open_module
    from selectrie.backends.xla.options import XlaOptions

__all__ = ["XlaModel", "XlaOptions", "open_model", "open_module"]

_MODULES = {"XlaModel": "model", "XlaOptions": "options", "open_model": "opening", "open_module": "opening"}
"""The module that each name is in."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
