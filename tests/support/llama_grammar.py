"""llama.cpp's own grammar sampler, asked over a whole vocabulary."""

from __future__ import annotations

from contextlib import contextmanager

import llama_cpp
import numpy as np

from selectrie.backends.llama_cpp.library import log
from tests.support.vocabularies import open_model

TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class LlamaGrammar:
    """The tokens llama.cpp allows after those it was given."""

    def __init__(self, path, text):
        vocab = llama_cpp.llama_model_get_vocab(open_model(path))
        with log.our_calls():
            self.sampler = llama_cpp.llama_sampler_init_grammar(vocab, text.encode(), b"root")
        assert self.sampler, text
        self.data = np.zeros(llama_cpp.llama_vocab_n_tokens(vocab), dtype=TOKEN_DATA)
        self.data["id"] = np.arange(len(self.data))
        self.array = llama_cpp.llama_token_data_array(
            data=self.data.ctypes.data_as(llama_cpp.llama_token_data_p), size=len(self.data), selected=-1, sorted=False
        )

    def allowed(self):
        """bool[V]: what may come next, end-of-generation tokens where the grammar can end."""
        self.data["logit"] = 0
        llama_cpp.llama_sampler_apply(self.sampler, self.array)
        return self.data["logit"] == 0

    def accept(self, token):
        llama_cpp.llama_sampler_accept(self.sampler, token)

    def close(self):
        llama_cpp.llama_sampler_free(self.sampler)


@contextmanager
def llama_grammar(path, text):
    """A sampler that is freed afterwards."""
    grammar = LlamaGrammar(path, text)
    try:
        yield grammar
    finally:
        grammar.close()
