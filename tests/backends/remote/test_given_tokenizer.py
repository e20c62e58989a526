"""Tokenizers that are given for servers that hand none over: GGUF files without weights. Folders are in the room of Transformers."""

from __future__ import annotations

import gc
import shutil

import gguf
import numpy as np
import pytest

from selectrie.backends.remote.vocabulary import read_tokenizer
from selectrie.errors import ModelFileError, OptionError
from tests.support.vocabularies import vocabulary_of

TEXTS = (b"Hello there", b" a", b"", "é🤗".encode(), b"<|im_end|> plain", b"two  spaces\n\n", b"x" * 3000)


def only_vocabulary(source, target):
    """A copy of a GGUF file without its tensors, as llama.cpp's own `ggml-vocab-*.gguf` are."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind = field.types[0]
            writer.add_key_value(name, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def test_a_file_gives_the_vocabulary_of_its_model(tiny_model, tmp_path):
    """With its weights or without: the same digest, tokens, chat and rules; memory is freed and opened again."""
    path = tiny_model("f32")
    own, alone = vocabulary_of(path), tmp_path / "vocab.gguf"
    only_vocabulary(path, alone)
    for file in (path, alone, path):
        found = read_tokenizer(file)
        assert found.digest == own.digest
        assert found.tokenizing == own.tokenizing
        assert found.chat_template([{"role": "user", "content": "Hi"}]) == own.chat_template(
            [{"role": "user", "content": "Hi"}]
        )
        for text in TEXTS:
            assert np.array_equal(found.encode(text), own.encode(text))
        del found
        gc.collect()


def test_what_is_no_tokenizer(tmp_path, tiny_model):
    """A path that is not there, another file, a file that is cut off."""
    with pytest.raises(OptionError, match="a folder with a tokenizer"):
        read_tokenizer(tmp_path / "none")
    with pytest.raises(OptionError, match="a folder with a tokenizer"):
        read_tokenizer(tmp_path / ("x" * 5000))
    (tmp_path / "text").write_text("no GGUF file at all, but a text")
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        read_tokenizer(tmp_path / "text")
    cut = tmp_path / "cut.gguf"
    shutil.copy(tiny_model("f32"), cut)
    with cut.open("r+b") as file:
        file.truncate(2000)
    with pytest.raises(ModelFileError):
        read_tokenizer(cut)
