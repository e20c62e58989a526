"""Damaged model files: refused by name, or opened; never the end of the process that
opens them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from selectrie.backends.llama_cpp.gguf_header import require_sound
from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.errors import ModelFileError, TextError, UnsupportedModelError
from tests.support.made_vocabularies import make_scored

ONE_THREAD = LlamaOptions(n_ctx=64, n_batch=8, n_threads=1)
KEY = gguf.GGUFValueType


def edited(source: Path, target: Path, values: dict[str, object]) -> Path:
    """A copy with other metadata, or more: a whole number, a float, a text, or a list
    of texts. Weights are not copied: no check needs them."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture" and name not in values:
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=field.types[-1])
    for name, value in values.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            kind = {int: KEY.UINT32, float: KEY.FLOAT32, str: KEY.STRING}[type(value)]
            writer.add_key_value(name, value, kind)
    writer.add_tensor("token_embd.weight", np.zeros((2, 2), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


TWICE = ["a", "b", "a"]
FAULTS: dict[str, tuple[dict[str, object], str]] = {
    "no layer": ({"llama.block_count": 0}, "llama.block_count is 0, expected 1 to 512"),
    "too many layers": ({"llama.block_count": 2**31 - 1}, "block_count is 2147483647"),
    "all layers ahead": ({"llama.nextn_predict_layers": 3}, "nextn_predict_layers is 3 of 2 layers"),
    "epsilon NaN": ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "rms_epsilon is nan"),
    "epsilon below 0": ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "expected a number of at least 0"),
    "epsilon of another norm": ({"llama.attention.group_norm_epsilon": -1.0}, "group_norm_epsilon is -1"),
    "experts without number": ({"llama.expert_used_count": 2}, "expert_used_count is 2, and llama.expert_count 0"),
    "no expert used": ({"llama.expert_count": 8}, "expert_used_count is 0, and llama.expert_count 8"),
    "too many experts": ({"llama.expert_count": 4096, "llama.expert_used_count": 2}, "expected at most 1024"),
    "groups of no experts": ({"llama.expert_group_count": 1}, "expert_group_count is 1"),
    "uneven groups": (
        {"llama.expert_count": 8, "llama.expert_used_count": 2, "llama.expert_group_count": 3},
        "0 of 3 groups of 8 experts",
    ),
    "an unknown scaling": ({"llama.rope.scaling.type": "cubic"}, "expected one of none, linear, yarn, longrope"),
    "uneven heads": ({"llama.attention.head_count_kv": 3}, "4 heads of attention do not share 3 of keys"),
    "an odd rotation": ({"llama.rope.dimension_count": 15}, "expected an even number of at most 16"),
    "a wide rotation": ({"llama.rope.dimension_count": 32}, "dimension_count is 32"),
    "a text as tokens": ({"tokenizer.ggml.tokens": "abc"}, "tokenizer.ggml.tokens is not a list of texts"),
    "one spelling twice": ({"tokenizer.ggml.tokens": TWICE}, "tokens 0 and 2 are both spelled 'a'"),
    "one spelling up to NUL": ({"tokenizer.ggml.tokens": ["a\0b", "b", "a"]}, "tokens 0 and 2 are both spelled"),
    "a spelling of none": ({"tokenizer.ggml.tokens": ["", "[EMPTY_0]"]}, "tokens 0 and 1"),
    "a part without a number": ({"split.no": "one"}, "split.no is not a 16-bit integer"),
    "no line end": (
        {"tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": ["\\n\\n", "a"]},
        "tokens begin with a line end, but no token is a line end",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_metadata_that_end_the_process_are_refused_before_llama_cpp_sees_them(tiny_model, tmp_path, name):
    """The key, its value and what it may be, in an error that names the file."""
    values, reason = FAULTS[name]
    path = edited(tiny_model("f32"), tmp_path / "m.gguf", values)
    with pytest.raises(ModelFileError) as caught:
        open_model(path, ONE_THREAD)
    assert reason in caught.value.reason
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"gemma3.rope.dimension_count": 0}, "expected an even number from 2 to 16"),
        ({"gemma3.attention.sliding_window_pattern": 1}, "is 1, which leaves no layer a window"),
    ],
)
def test_so_are_those_of_a_sliding_window(tiny_model, tmp_path, values, reason):
    """The first keeps a thread busy for ever, the second is asserted."""
    path = edited(tiny_model(shape="sliding-window"), tmp_path / "m.gguf", values)
    with pytest.raises(ModelFileError, match=reason):
        open_model(path, ONE_THREAD)


def test_a_damaged_part_is_named(tiny_model, tmp_path):
    """Of a model cut into files llama.cpp asserts the type of the number of each but
    the first."""
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    first.write_bytes(tiny_model("f32").read_bytes())
    edited(tiny_model("f32"), second, {"split.no": 1})
    with pytest.raises(ModelFileError, match="16-bit") as caught:
        require_sound(first)
    assert caught.value.path == str(second)


@pytest.mark.parametrize(
    "values",
    [
        {"tokenizer.ggml.bos_token_id": 10**6, "tokenizer.ggml.padding_token_id": 2**32 - 1},
        {"llama.attention.layer_norm_rms_epsilon": 0.0},
        {"llama.rope.scaling.type": "none", "llama.expert_count": 4, "llama.expert_used_count": 4},
        {"llama.rope.dimension_count": 8, "llama.attention.key_length": 8},
        {"tokenizer.ggml.tokens": ["", "a\0", "b"]},
    ],
)
def test_what_llama_cpp_takes_or_refuses_by_itself_is_left_to_it(tiny_model, tmp_path, values):
    """Ids out of range get a warning there, sizes that do not fit the weights a
    reason."""
    require_sound(edited(tiny_model("f32"), tmp_path / "m.gguf", values))


# Vocabularies that cannot spell every text


def with_vocabulary(source: Path, target: Path, **changes: object) -> Path:
    """A copy of a model, weights and all, with other values of `tokenizer.ggml`; a list
    of texts has as many as before."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            value = changes.get(name.removeprefix("tokenizer.ggml."), field.contents())
            writer.add_key_value(name, value, field.types[0], sub_type=field.types[-1])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def test_a_text_of_which_a_character_has_no_token_is_refused(tiny_model, tmp_path):
    """A byte-level vocabulary that says it is SentencePiece's: there llama.cpp ends the
    process on a space."""
    path = with_vocabulary(tiny_model("f32"), tmp_path / "m.gguf", model="llama", add_space_prefix=False)
    with open_model(path, ONE_THREAD) as model:
        assert model.vocabulary.decode(model.vocabulary.encode(b"cat")) == b"cat"
        for text, shown in ((b"a cat", "' '"), ("a–b".encode(), "'–'"), (b"\0", r"'\x00'"), (b"a\xff", r"'\\xff'")):
            with pytest.raises(TextError) as caught:
                model.vocabulary.encode(text)
            assert f"no token for {shown}" in str(caught.value)


def test_a_vocabulary_that_spells_nothing_is_refused(tiny_model, tmp_path):
    """With a space before every text, and no token for it, there is no text left."""
    path = with_vocabulary(tiny_model("f32"), tmp_path / "m.gguf", model="llama", add_space_prefix=True)
    with open_model(path, ONE_THREAD) as model, pytest.raises(UnsupportedModelError, match="no token for any letter"):
        _ = model.vocabulary


def test_a_beginning_that_is_no_token_is_refused(tiny_model, tmp_path):
    """There RWKV's longest match, which has read nothing it can keep, begins with the
    text's first byte again, for ever."""
    tokens = [f"x{i:03d}" for i in range(509)] + ["a", "\\n", "b"]
    path = with_vocabulary(tiny_model("f32"), tmp_path / "m.gguf", model="rwkv", tokens=tokens)
    with open_model(path, ONE_THREAD) as model:
        assert len(model.vocabulary.encode(b"ab\nba")) == 5
        for text, reason in ((b"ax", "no token for 'x'"), (b"ac", "no token for a part of it")):
            with pytest.raises(TextError, match=reason):
                model.vocabulary.encode(text)


def test_a_vocabulary_with_every_byte_takes_every_text(tmp_path):
    """Nothing is refused where SentencePiece has its byte tokens."""
    import llama_cpp

    path = make_scored(tmp_path / "v.gguf", [("a", -1.0, 1), ("\u2581", -1.0, 1)], space_prefix=True)
    llama = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    from selectrie.backends.llama_cpp.vocabulary import read_vocabulary

    vocabulary = read_vocabulary(llama._model.model, path)
    for text in (b"a \xff\0", "é–😀".encode()):
        assert vocabulary.decode(vocabulary.encode(text)) == b" " + text
    llama.close()
