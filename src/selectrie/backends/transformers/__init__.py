"""Evaluate trees of contexts by Hugging Face Transformers.

Names are imported when they are used, because options and the checks of files work
without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selectrie.backends.transformers.attention import EXACT_BATCH_MULTIPLE
    from selectrie.backends.transformers.model import TransformersModel, open_module
    from selectrie.backends.transformers.options import TransformersOptions
    from selectrie.backends.transformers.weights import open_model

__all__ = ["EXACT_BATCH_MULTIPLE", "TransformersModel", "TransformersOptions", "open_model", "open_module"]

_MODULES = {
    "EXACT_BATCH_MULTIPLE": "attention",
    "TransformersModel": "model",
    "TransformersOptions": "options",
    "open_model": "weights",
    "open_module": "model",
}
"""The module that each name is in."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
