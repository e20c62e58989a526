"""A value of a model's metadata, as llama.cpp has read it."""

from __future__ import annotations

import ctypes

import llama_cpp

_MOST_BYTES = 256


def metadata_of(model: llama_cpp.llama_model_p, key: str) -> str | None:
    """The value in text, cut to 255 bytes; None where there is none, or a list."""
    buffer = ctypes.create_string_buffer(_MOST_BYTES)
    length = llama_cpp.llama_model_meta_val_str(model, key.encode(), buffer, _MOST_BYTES)
    return buffer.value.decode("utf-8", "replace") if length >= 0 else None
