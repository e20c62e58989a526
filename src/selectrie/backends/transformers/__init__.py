"""Evaluate trees of contexts by Hugging Face Transformers."""

from __future__ import annotations

from selectrie.backends.transformers.attention import EXACT_BATCH_MULTIPLE
from selectrie.backends.transformers.model import TransformersModel, TransformersOptions, open_module

__all__ = ["EXACT_BATCH_MULTIPLE", "TransformersModel", "TransformersOptions", "open_module"]
