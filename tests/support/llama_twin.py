"""The slow twin of a llama.cpp model: each path alone, through plain llama_cpp calls on a context of one sequence."""

from __future__ import annotations

import ctypes
from pathlib import Path

import llama_cpp
import numpy as np

from selectrie.backends.llama_cpp.gguf_header import read_header
from selectrie.backends.llama_cpp.library import cell_type
from selectrie.core.types import FloatArray, Precision


class SinglePath:
    """Log-probabilities after every token of a path, evaluated in one decode on an empty context; nothing padded.

    Keys and values have the type of `exact` precision.
    """

    def __init__(self, path: Path, *, n_ctx: int = 1024) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = n_ctx, n_ctx, n_ctx, 1
        params.n_threads = params.n_threads_batch = 1
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.type_k = params.type_v = cell_type(read_header(path), Precision.EXACT)
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        self._n_vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._rows: dict[tuple[int, ...], FloatArray] = {}

    def row(self, path: tuple[int, ...]) -> FloatArray:
        """float64[V]: log-probabilities of what follows the path."""
        if path not in self._rows:
            logits = self._evaluate(path)
            peak = logits.max(axis=1, keepdims=True)
            logp = logits - peak - np.log(np.exp(logits - peak).sum(axis=1, keepdims=True))
            self._rows.update((path[: i + 1], row) for i, row in enumerate(logp))
        return self._rows[path]

    def _evaluate(self, path: tuple[int, ...]) -> FloatArray:
        n = len(path)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), False)
        batch = llama_cpp.llama_batch_init(n, 0, 1)
        batch.n_tokens = n
        for i, token in enumerate(path):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        code = llama_cpp.llama_decode(self._context, batch)
        llama_cpp.llama_batch_free(batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")
        pointer = llama_cpp.llama_get_logits(self._context)
        flat = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float * (n * self._n_vocabulary))).contents
        return np.frombuffer(flat, dtype=np.float32).reshape(n, -1).astype(np.float64)

    def close(self) -> None:
        """Free context and weights."""
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)
