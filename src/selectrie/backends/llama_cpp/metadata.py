"""Access to single values of a model's metadata through llama.cpp."""

from __future__ import annotations

import ctypes

import llama_cpp

_MAX_BYTES = 256


def metadata_of(model: llama_cpp.llama_model_p, key: str) -> str | None:
    """Return the value of `key` as text, cut to 255 bytes.

    None if it is missing or a list.
    """
    buffer = ctypes.create_string_buffer(_MAX_BYTES)
    length = llama_cpp.llama_model_meta_val_str(model, key.encode(), buffer, _MAX_BYTES)
    return buffer.value.decode("utf-8", "replace") if length >= 0 else None
