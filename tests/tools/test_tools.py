"""The generated models are what the rest of the suite takes them for."""

from __future__ import annotations

import json

import llama_cpp
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, dequantize

import byte_bpe
import code_lines
import entered_modules
import random_blocks
from architectures import LOGIT_DEVIATION
from make_model import QUANTISATIONS, make_model
from selectrie.testing import HashModel

AWKWARD = ("card arrival", " Paris 🤗 é 漢字\n\n  x=1;\t42 1234 don't", "<|im_end|>", "a\x00b", "  ")


KINDS = ("sliding-window", "recurrent", "hybrid")


@pytest.fixture(scope="module", params=[*QUANTISATIONS, *KINDS])
def loaded(request, tiny_model):
    """Each generated model, opened by llama.cpp."""
    path = tiny_model(shape=request.param) if request.param in KINDS else tiny_model(request.param)
    model = llama_cpp.Llama(str(path), n_ctx=256, n_threads=1, logits_all=True, verbose=False)
    yield model
    model.close()


@pytest.mark.parametrize("text", AWKWARD)
def test_text_survives_tokenisation(loaded, text):
    """Any text comes back from its tokens byte for byte, control tokens in it stay text."""
    tokens = loaded.tokenize(text.encode(), add_bos=False, special=False)
    assert loaded.detokenize(tokens) == text.encode()
    assert max(tokens) < loaded.n_vocab() - len(byte_bpe.CONTROL)


def test_the_distribution_has_a_spread_of_a_few_nats(loaded):
    """Logits spread like a trained model's: neither flat nor certain, and repeating oneself is not favoured."""
    tokens = loaded.tokenize(b"Once upon a time there was a little girl", add_bos=True)
    loaded.reset()
    loaded.eval(tokens)
    logits = np.array(loaded.scores[: len(tokens)])
    assert 0.7 * LOGIT_DEVIATION < logits.std(axis=1).mean() < 1.3 * LOGIT_DEVIATION
    assert (logits.argmax(axis=1) == tokens).mean() < 0.5


def test_special_tokens_and_the_chat_template_are_there(loaded):
    """BOS is added once, two tokens end a generation, and the template is ChatML."""
    vocabulary = llama_cpp.llama_model_get_vocab(loaded._model.model)
    ends = [i for i in range(loaded.n_vocab()) if llama_cpp.llama_vocab_is_eog(vocabulary, i)]
    begin, end_of_text, start, end = range(loaded.n_vocab() - 4, loaded.n_vocab())
    assert ends == [end_of_text, end]
    assert loaded.tokenize(b"a")[0] == begin
    assert loaded.tokenize(b"<|im_start|>", add_bos=False, special=True) == [start]
    assert "<|im_start|>" in loaded.metadata["tokenizer.chat_template"]


@pytest.mark.parametrize(
    ("shape", "recurrent", "hybrid", "window"),
    [("tiny", 0, 0, 0), ("sliding-window", 0, 0, 16), ("recurrent", 1, 0, 0), ("hybrid", 0, 1, 0)],
)
def test_each_kind_is_what_llama_cpp_takes_it_for(tiny_model, shape, recurrent, hybrid, window):
    """The four ways a model remembers are each there."""
    loaded = llama_cpp.Llama(str(tiny_model(shape=shape)), n_ctx=64, n_threads=1, verbose=False)
    model = loaded._model.model
    assert llama_cpp.llama_model_is_recurrent(model) == recurrent
    assert llama_cpp.llama_model_is_hybrid(model) == hybrid
    assert llama_cpp.llama_model_n_swa(model) == window
    loaded.close()


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
def test_the_same_arguments_give_the_same_bytes(tmp_path, tiny_model, quantisation):
    """A model is reproducible; another seed is another model with the same tokenizer."""
    shape = "wide" if quantisation.startswith("q4") else "tiny"
    again = make_model(tmp_path / "again.gguf", shape=shape, quantisation=quantisation, seed=1)
    other = make_model(tmp_path / "other.gguf", shape=shape, quantisation=quantisation, seed=2)
    assert again.read_bytes() == tiny_model(quantisation).read_bytes()
    assert again.stat().st_size == other.stat().st_size
    assert again.read_bytes() != other.read_bytes()


def test_a_tokenizer_is_taken_over_whole(tmp_path, tiny_model):
    """Every field of it, and only where its tokens are as many as the shape's."""
    copied = make_model(tmp_path / "copied.gguf", tokenizer=tiny_model("f32"))
    assert copied.read_bytes() == tiny_model("f32").read_bytes()
    with pytest.raises(ValueError, match="has 512 tokens, the shape 768"):
        make_model(tmp_path / "other.gguf", shape="wide", tokenizer=copied)
    assert not (tmp_path / "other.gguf").exists()


@pytest.mark.parametrize("name", sorted(random_blocks.FORMATS))
def test_blocks_have_the_deviation_asked_for(name):
    """Read back by the reference de-quantiser, weights have mean 0 and the standard deviation asked for."""
    data = random_blocks.FORMATS[name](np.random.default_rng(1), 64, 1024, 0.5)
    weights = dequantize(data, GGMLQuantizationType[name]).reshape(64, 1024)
    assert weights.shape == (64, 1024)
    assert weights.std() == pytest.approx(0.5, rel=0.02)
    assert abs(weights.mean()) < 0.02


def test_merges_build_every_token():
    """Each learned token is one merge of two earlier ones, and ids follow the ranks: what a BPE tokenizer relies on."""
    vocabulary = byte_bpe.build(2_000)
    known = set(byte_bpe.byte_characters())
    for merge, token in zip(vocabulary.merges, vocabulary.tokens[256:], strict=False):
        left, right = merge.split(" ")
        assert left in known
        assert right in known
        assert left + right == token
        known.add(token)
    assert len(vocabulary.tokens) == len(set(vocabulary.tokens)) == 2_000


def test_words_of_the_text_are_whole_tokens():
    """Common words are one token each, others are several."""
    tokens = set(byte_bpe.build(4_000).tokens)
    assert {byte_bpe.spell(word) for word in (" card", " payment", " exchange", " the")} <= tokens
    assert byte_bpe.spell(" leatherworking") not in tokens


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": "huge"}, "shape='huge': expected one of tiny"),
        ({"quantisation": "q3"}, "quantisation='q3': expected one of f32"),
        ({"quantisation": "q4_k_m"}, "needs rows of 256 weights"),
    ],
)
def test_arguments_are_checked(tmp_path, arguments, message):
    """What cannot be written is refused before a file is made."""
    with pytest.raises(ValueError, match=message):
        make_model(tmp_path / "x.gguf", **arguments)
    assert not (tmp_path / "x.gguf").exists()


def test_names_say_that_the_weights_are_random(tiny_model):
    """Nobody takes such a file for a trained model."""
    fields = GGUFReader(tiny_model("f32")).fields
    assert "random weights" in bytes(fields["general.description"].parts[-1]).decode()


def test_lines_of_code_are_neither_prose_nor_blank():
    """Strings that are values count on each of their lines; docstrings, comments and blank lines do not."""
    text = '"""Doc.\n\nMore."""\n\n# comment\nX = """a\nb"""\n\n\ndef f():  # said\n    "Doc."\n    return (\n        1\n    )\n'
    assert code_lines.code_lines(text) == 6


def test_lines_beside_python_are_neither_comments_nor_blank():
    """Each format's own comments do not count, and a comment of another format is code."""
    texts = {
        ".css": "/* said\nb { } */\n\na { x: 1 }\n// code\n",
        ".html": "<!-- said\n<p> -->\n<p>\n</p>\n",
        ".js": "// said\n/* said\n*/\nf();\n\ng();  // code\n",
        ".lark": "// said\na: b\n\n  // said\nb: /# code/\n",
        ".tmpl": "<<!-- <<x>> -->>\n<<! said\nmore >>\n\n<<x>>\n// code\n",
        ".toml": "# said\na = 1\n\n  # said\nb = '# code'\n",
    }
    assert {suffix: code_lines.other_lines(text, suffix) for suffix, text in texts.items()} == dict.fromkeys(texts, 2)
    assert texts.keys() == code_lines.COMMENTS.keys()


def test_statements_are_counted_at_every_depth():
    """A definition, its docstring and each statement in it count one each; lines do not matter."""
    assert (
        code_lines.statements('def f():\n    "Doc."\n    if x: return (\n        1\n    )\n\n\na = b = 1; c = 2\n') == 6
    )


def test_returns_are_changes_to_a_module_entered_before():
    """The first call changes no module, and a call within a module none; functions are told apart by full names."""
    names = {"a": str(entered_modules.HOME / "a.py"), "b": str(entered_modules.HOME / "room" / "b.py")}
    walk = [("a", "f"), ("b", "g"), ("b", "C.g"), ("a", "f"), ("b", "g"), ("b", "h")]
    calls = [(names[name], function) for name, function in walk]
    assert entered_modules.counts(calls) == (2, 4, 3, 2)
    assert entered_modules.modules(calls) == ["a", "room.b"]


def test_only_functions_of_selectrie_are_recorded():
    """Of two requests the second is recorded, without the calls of other packages."""
    recorder = entered_modules.Recorder()
    texts = []
    vocabulary = HashModel(7).vocabulary

    def ask(text):
        texts.append(text)
        vocabulary.piece(len(json.dumps(text)) % 2)

    [(file, name)] = recorder.calls_of(ask)
    assert entered_modules.modules([(file, name)]) == ["core.vocabulary"]
    assert name.endswith("piece")
    assert texts == list(entered_modules.TEXTS)
