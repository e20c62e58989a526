"""The back end that loads GGUF models through llama.cpp.

A model gets a new context, either on the weights of a file or on those of a
`llama_cpp.Llama`.
"""

from __future__ import annotations

from selectrie.backends.llama_cpp.context import memory_needed
from selectrie.backends.llama_cpp.gguf_header import part_names, parts_of, require_gguf
from selectrie.backends.llama_cpp.library import build
from selectrie.backends.llama_cpp.model import EXACT_BATCH_MULTIPLE, LlamaModel, open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.files import file_digest

__all__ = [
    "EXACT_BATCH_MULTIPLE",
    "LlamaModel",
    "LlamaOptions",
    "build",
    "file_digest",
    "memory_needed",
    "open_model",
    "part_names",
    "parts_of",
    "require_gguf",
]
