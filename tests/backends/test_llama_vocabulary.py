"""The vocabulary of a file, which is read in a few calls: what llama.cpp says token by token."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import llama_cpp
import pytest

from selectrie.backends.llama_cpp import vocabulary as reader
from selectrie.backends.llama_cpp.gguf_header import require_sound
from selectrie.backends.llama_cpp.vocabulary import read_vocabulary
from tests.support.real_data import REAL_VOCABULARIES, real_file
from tests.support.vocabularies import llama_tokens, open_model

FILES = (
    *(f"weights/random_real_vocab/random-{name}.gguf" for name in REAL_VOCABULARIES),
    *(
        f"weights/{name}.gguf"
        for name in ("stories260K", "tiny-rwkv-7v0-834K", "random-swa-gemma3", "random-hybrid-qwen35")
    ),
    *(str(path) for path in sorted(Path(os.environ.get("SELECTRIE_REAL_MODELS", "nowhere")).glob("*.gguf"))),
)


def token_by_token(vocab, n_tokens: int) -> tuple[list[bytes], list[str]]:
    """The bytes and the text of each token, from two calls for each."""
    buffer = ctypes.create_string_buffer(4096)
    pieces, texts = [], []
    for token in range(n_tokens):
        length = llama_cpp.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, False)
        assert length >= 0
        pieces.append(buffer.raw[:length])
        texts.append(llama_cpp.llama_vocab_get_text(vocab, token).decode("utf-8", "replace"))
    return pieces, texts


@pytest.mark.short("*gpt-2", "*llama-spm", "stories260K", "*gemma3", "tiny-rwkv*")
@pytest.mark.parametrize("name", FILES, ids=lambda name: Path(name).stem)
def test_what_is_read_at_once_is_what_each_token_says(name):
    """Pieces and texts of real vocabularies of all kinds; control tokens that text makes have bytes of their own."""
    path = real_file(name)
    model = open_model(path)
    vocabulary = read_vocabulary(model, path, require_sound(path))
    pieces, texts = token_by_token(llama_cpp.llama_model_get_vocab(model), vocabulary.n_tokens)
    assert list(vocabulary.texts) == texts
    differing = [token for token, piece in enumerate(vocabulary.pieces) if piece != pieces[token]]
    assert all(not pieces[token] and token not in vocabulary.control for token in differing)
    assert len(differing) <= 1
    asked = read_vocabulary(model, path)
    assert (asked.digest, asked.tokenizing) == (vocabulary.digest, vocabulary.tokenizing)
    assert asked.user_defined.tolist() == vocabulary.user_defined.tolist()


@pytest.mark.parametrize(("name", "works"), [("qwen2", True), ("llama-spm", True), ("gpt-2", False)])
def test_where_tokens_are_read_in_one_call(name, works):
    """Where the tokenizer removes spaces from what it decodes (GPT-2's), they are read one by one."""
    path = real_file(f"weights/random_real_vocab/random-{name}.gguf")
    vocab = llama_cpp.llama_model_get_vocab(open_model(path))
    tokens = require_sound(path)
    assert tokens is not None
    assert (reader._pieces_at_once(vocab, tokens.spellings) is not None) is works
    without = [b"-" if spelling in reader._LAST_BYTE else spelling for spelling in tokens.spellings]
    assert reader._pieces_at_once(vocab, without) is None


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_a_long_text_is_encoded_once(monkeypatch, name):
    """A call without room for all tokens encodes the whole text in vain; a megabyte takes seconds."""
    path, sizes, call = real_file(f"weights/random_real_vocab/random-{name}.gguf"), [], llama_cpp.llama_tokenize

    def counted(vocab, text, n_bytes, *further):
        sizes.append(n_bytes)
        return call(vocab, text, n_bytes, *further)

    monkeypatch.setattr(llama_cpp, "llama_tokenize", counted)
    tokenize = reader._tokenizer(llama_cpp.llama_model_get_vocab(open_model(path)))
    for text in (b"a", b"a b " * 2_000, "\u2581\u1234".encode() * 2_000, b" \x01" * 1_100, b"ab" * 100):
        sizes.clear()
        assert tokenize(text) == llama_tokens(path, text, parse_special=False)
        assert sizes == [len(text)] * 2  # ours, and the other's
