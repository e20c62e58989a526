"""Tokens and their bytes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.errors import PromptError, TextError, TokenRangeError
from selectrie.testing.fakes import make_vocabulary
from tests.support.vocabularies import llama_tokens, open_model, vocabulary_of

TINY = make_vocabulary()
TEXTS = (
    *(
        "Hello, world",
        " leading",
        "trailing ",
        "  two",
        "a\0b",
        "\0",
        "🤗",
        "👩‍👩‍👧",
        "e\u0301",
        "日本語",
        "\n\n\t",
        "<|im_end|>",
        "</s>",
    ),
    *("[PAD151646]", "<0x0A>", "Ġ", "x" * 300, " " * 70, "\u00a0\u3000", "١٢٣", "\ufffd", "don't", "\r\n"),
)


@pytest.mark.parametrize("text", TEXTS)
def test_the_bytes_of_tokens_are_the_texts(real_vocabulary, text):
    """Decoding gives the text back, byte for byte, with the space that the vocabulary puts before it."""
    vocabulary = vocabulary_of(real_vocabulary)
    tokens = vocabulary.encode(text.encode())
    assert tokens.dtype == np.int32
    assert vocabulary.decode(tokens) == (b" " if vocabulary.space_prefix else b"") + text.encode()
    assert tokens.tolist() == llama_tokens(real_vocabulary, text.encode(), parse_special=False)


@pytest.mark.parametrize("name", ["stories260K.gguf", "tiny-rwkv-7v0-834K.gguf", "random-swa-gemma3.gguf"])
def test_small_vocabularies_spell_every_byte(weights, name):
    """SentencePiece byte tokens and the byte vocabulary of RWKV give every text back, NUL included."""
    vocabulary = vocabulary_of(weights(name))
    for text in TEXTS:
        assert vocabulary.decode(vocabulary.encode(text.encode())) == b" " * vocabulary.space_prefix + text.encode()


def test_real_vocabularies_as_they_are(real_vocabularies):
    """Sizes, BOS policy, ends of generation and prefix space of six published tokenizers."""
    facts = {}
    for path in real_vocabularies:
        v = vocabulary_of(path)
        facts[path.stem.removeprefix("random-")] = (v.n_tokens, v.bos, v.eos, v.eog.tolist(), v.space_prefix)
    assert facts == {
        "deepseek-coder": (32256, 32013, 32014, [32014], False),
        "falcon": (65024, None, 11, [11], False),
        "gpt-2": (50257, None, 50256, [50256], False),
        "llama-spm": (32000, 1, 2, [2], True),
        "qwen2": (151936, None, 151643, [128247, 151643, 151645], False),
        "starcoder": (49152, None, 0, [0, 4], False),
    }


def test_control_tokens_have_no_bytes(real_vocabulary):
    """They are never made from text, so they spell nothing; their names are kept."""
    vocabulary = vocabulary_of(real_vocabulary)
    assert {vocabulary.piece(t) for t in vocabulary.control.tolist()} == {b""}
    assert all(vocabulary.show(t) == vocabulary.texts[t] for t in vocabulary.control.tolist())
    for token in vocabulary.control.tolist():
        assert token not in vocabulary.tokenize(vocabulary.texts[token].encode())


def test_a_control_id_that_text_makes_keeps_its_bytes(weights):
    """RWKV calls id 0 a control token, and plain text with a NUL byte still becomes it."""
    vocabulary = vocabulary_of(weights("tiny-rwkv-7v0-834K.gguf"))
    assert (vocabulary.piece(0), vocabulary.control.tolist(), vocabulary.tokenize(b"a\0b")) == (b"\0", [], [97, 0, 98])


def test_reading_twice_gives_equal_digests(weights, real_vocabularies):
    """The digest names the vocabulary: the same for two readings, another for each vocabulary."""
    from selectrie.backends.llama_cpp.vocabulary import read_vocabulary

    path = weights("stories260K.gguf")
    assert read_vocabulary(open_model(path), path).digest == vocabulary_of(path).digest
    assert len({vocabulary_of(p).digest for p in [path, *real_vocabularies]}) == 7


def test_the_tokenizer_grows_its_buffer_and_serves_threads(weights):
    """Texts of any length, from several threads at once, are encoded like alone."""
    vocabulary = vocabulary_of(weights("stories260K.gguf"))
    texts = [bytes([97 + i]) * (3_000 * (i + 1)) for i in range(4)]
    alone = [vocabulary.tokenize(text) for text in texts]
    found: dict[int, list[int]] = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: vocabulary.tokenize(texts[i])})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(4)] == alone
    assert all(len(tokens) > 1024 for tokens in alone)


def test_a_refusing_template_is_a_prompt_error(weights):
    """What the model's own template raises reaches the caller as a prompt error with its words."""
    vocabulary = vocabulary_of(weights("random_real_vocab/random-qwen2.gguf"))
    with pytest.raises(PromptError, match="chat template refuses these messages"):
        vocabulary.chat_template([{"role": "user", "content": "a"}], eos_token="a")
    with_prompt = vocabulary.chat_template([{"role": "user", "content": "a"}])
    assert with_prompt.endswith("a<|im_end|>\n<|im_start|>assistant\n")


def test_the_generation_prompt_can_be_left_out(weights):
    """`add_generation_prompt=False` gives the turns alone, whichever is asked for first."""
    vocabulary = vocabulary_of(weights("random_real_vocab/random-qwen2.gguf"))
    turns = vocabulary.chat_template([{"role": "user", "content": "a"}], add_generation_prompt=False)
    assert turns.endswith("a<|im_end|>\n")
    assert vocabulary.chat_template([{"role": "user", "content": "a"}]) == turns + "<|im_start|>assistant\n"


def same_bytes(vocabulary: Vocabulary) -> tuple[tuple[int, ...], ...]:
    """The groups of two or more ids that spell the same bytes, by their first id."""
    texts, ids = vocabulary.by_bytes()
    groups: dict[bytes, list[int]] = {}
    for text, token in zip(texts, ids.tolist(), strict=True):
        groups.setdefault(text, []).append(token)
    return tuple(sorted(tuple(group) for group in groups.values() if len(group) > 1))


byte_strings = st.binary(max_size=4).map(lambda b: bytes(97 + x % 3 if x < 250 else 255 for x in b))


@given(pieces=st.lists(byte_strings, max_size=20), start=byte_strings)
def test_prefix_searches_equal_brute_force(pieces, start):
    """with_prefix, prefixes_of, begins_with, has_bytes, same_bytes and joins against a loop over all tokens."""
    none = np.empty(0, dtype=np.int32)
    vocabulary = Vocabulary(tuple(pieces), tuple(map(repr, pieces)), None, None, none, none, False, lambda _text: [])
    ids = range(len(pieces))
    assert vocabulary.with_prefix(start).tolist() == [i for i in ids if pieces[i] and pieces[i].startswith(start)]
    assert vocabulary.prefixes_of(start).tolist() == [
        i for i in ids if pieces[i] and start.startswith(pieces[i]) and pieces[i] != start
    ]
    assert vocabulary.begins_with(start) == any(p and p.startswith(start) for p in pieces)
    assert vocabulary.has_bytes(start) == (start in pieces and start != b"")
    groups = {tuple(j for j in ids if pieces[j] == pieces[i]) for i in ids if pieces[i]}
    assert same_bytes(vocabulary) == tuple(sorted(group for group in groups if len(group) > 1))
    for left in (97, 98, 255):
        for right in (97, 98, 255):
            assert vocabulary.joins(left, right) == any(bytes([left, right]) in p for p in pieces)


def test_one_byte_string_with_several_ids_is_found(weights):
    """Llama's SentencePiece vocabulary spells a space with a byte token and with `▁`."""
    vocabulary = vocabulary_of(weights("random_real_vocab/random-llama-spm.gguf"))
    groups = same_bytes(vocabulary)
    assert (35, 29871) in groups
    assert all(len({vocabulary.piece(t) for t in group}) == 1 for group in groups)


def test_two_strings_with_equal_tokens_are_known(weights):
    """SentencePiece writes a space as U+2581, so a text with that character has the tokens, and the bytes, of a space."""
    vocabulary = vocabulary_of(weights("random_real_vocab/random-llama-spm.gguf"))
    assert vocabulary.tokenize("a▁b".encode()) == vocabulary.tokenize(b"a b")


@pytest.mark.parametrize(
    ("token", "shown"), [("<eos>", "<eos>"), (" cat", " cat"), ("\n", "\\n"), ("é", "é"), ("\\xc3", "\\xc3")]
)
def test_tokens_are_shown_readably(token, shown):
    """Text as it is, line breaks and broken characters escaped, control tokens by name."""
    assert TINY.show(TINY.texts.index(token)) == shown


def test_tokens_that_do_not_exist_are_refused():
    """The message names the id and the range."""
    assert TINY.check_tokens(np.array([0, 25])).tolist() == [0, 25]
    for bad in (-1, 26, 2**40):
        with pytest.raises(TokenRangeError, match=f"token {bad} does not exist: ids run from 0 to 25"):
            TINY.check_tokens([3, bad])
    with pytest.raises(TokenRangeError):
        TINY.piece(-1)


def test_a_lone_surrogate_is_named_with_its_place():
    """Half a UTF-16 pair is no text; NUL and everything else is."""
    assert to_bytes("a\0é🤗", "choice 3") == b"a\0\xc3\xa9\xf0\x9f\xa4\x97"
    with pytest.raises(TextError, match=r"choice 3: character 2 is the lone surrogate U\+D83E"):
        to_bytes("ab\ud83e", "choice 3")


def test_spans_encode_plain_text_jointly():
    """Template and user text between two control tokens is one text; a control token's spelling in user text is text."""
    letters = make_vocabulary([*(bytes([c]) for c in range(9, 127)), b"ab"])
    a_b = letters.tokenize(b"ab")
    assert len(a_b) == 1
    tokens, rest = letters.encode_spans([(b"<bos>a", True), (b"b", False), (b"<eos>a", True), (b"<eos>", False)])
    assert (tokens.tolist(), rest) == ([0, *a_b, 1], b"a<eos>")


def test_control_tokens_swallow_white_space_as_marked(real_vocabulary):
    """A control token marked so takes the blanks before or after it, like llama.cpp's own partition."""
    vocabulary = make_vocabulary([bytes([c]) for c in range(9, 127)])
    object.__setattr__(vocabulary, "strips_right", np.array([0], dtype=np.int32))
    object.__setattr__(vocabulary, "strips_left", np.array([1], dtype=np.int32))
    tokens, rest = vocabulary.encode_spans([(b"<bos> \na b \n<eos> c<bos> \n", True)])
    assert (vocabulary.decode(tokens), rest) == (b"a b c", b"")
    real = vocabulary_of(real_vocabulary)
    name = real.texts[int(real.control[-1])]
    text = f"one {name}  two\n{name}".encode()
    tokens, rest = real.encode_spans([(text, True)])
    assert [*tokens.tolist(), *(real.tokenize(rest) if rest else [])] == llama_tokens(
        real_vocabulary, text, parse_special=True
    )
