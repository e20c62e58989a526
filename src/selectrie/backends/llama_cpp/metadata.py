"""Access to single values of a model's metadata, and what is decided by them."""

from __future__ import annotations

import ctypes
from typing import Protocol

import llama_cpp

from selectrie.core.types import Precision

_MAX_BYTES = 256
_FLOAT_FILE_TYPES: dict[int | None, str] = {0: "f32", 1: "f16", 32: "f16"}
"""`ModelIdentity.weights` by `general.file_type` (llama_ftype; 32 is bf16)."""


class Metadata(Protocol):
    """Access to the integers of a model's metadata, in a file or in loaded weights."""

    def metadata_int(self, key: str) -> int | None:
        """Return the integer of `key`; None if it is missing.

        `{arch}` in the key is replaced by the architecture.
        """


def weights_type(model: Metadata) -> str:
    """Return the `ModelIdentity.weights` of a model."""
    return _FLOAT_FILE_TYPES.get(model.metadata_int("general.file_type"), "quantised")


def cell_type(model: Metadata, precision: Precision) -> int:
    """Return the ggml type in which the cells of a context hold keys and values.

    It is f32 for the weights of a float type in `exact` precision, and else f16. On
    quantised weights f32 doubles the memory and makes no number more accurate: rounded
    activations move a row by 0.1 nats.
    """
    is_f32 = precision is Precision.EXACT and weights_type(model) != "quantised"
    return int(llama_cpp.GGML_TYPE_F32 if is_f32 else llama_cpp.GGML_TYPE_F16)


def cell_item_bytes(model: Metadata, precision: Precision) -> int:
    """Return the bytes of one number of a key or value."""
    return 4 if cell_type(model, precision) == llama_cpp.GGML_TYPE_F32 else 2


def metadata_of(model: llama_cpp.llama_model_p, key: str) -> str | None:
    """Return the value of `key` as text, cut to 255 bytes.

    None if it is missing or a list.
    """
    buffer = ctypes.create_string_buffer(_MAX_BYTES)
    length = llama_cpp.llama_model_meta_val_str(model, key.encode(), buffer, _MAX_BYTES)
    return buffer.value.decode("utf-8", "replace") if length >= 0 else None
