"""The beginning of a text becomes fixed tokens, and whatever comes after is encoded as if it had not."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.testing.fakes import make_vocabulary
from selectrie.tokenization.canonical import split_stable
from selectrie.tokenization.encoding import PromptText, encode_after, encode_choices, encode_prompt
from tests.support.n_examples import n_examples
from tests.support.vocabularies import start_of, vocabulary_of
from tests.tokenization.test_boundary import CHOICES, PARTS, random_text

SMALL = ("stories260K.gguf", "tiny-rwkv-7v0-834K.gguf")
AWKWARD = st.lists(
    st.sampled_from([*PARTS, "a", ".", " ", "\n\n  ", "'s", "2026", "ﬁ", "\u200d", "\ufeff"]), max_size=50
)


def encoded_after(vocabulary, prompt, rest):
    """Every token of a prompt and what follows it."""
    return [*prompt.prefix.tolist(), *encode_after(vocabulary, prompt.prefix, prompt.text + rest)]


def rests_that_differ(vocabulary, whole, rests):
    """Of these rests, those that are encoded otherwise behind what was kept; and the bytes of text that are left."""
    kept = split_stable(vocabulary, whole)
    differ = [rest for rest in rests if encoded_after(vocabulary, whole, rest) != encoded_after(vocabulary, kept, rest)]
    return differ, len(kept.text)


def random_pairs_that_differ(vocabulary, rng, n_pairs):
    """Of random (text, rest) pairs, those for which the law fails, and how many texts were made shorter."""
    different, n_shorter = [], 0
    for _ in range(n_pairs // 20):
        text = random_text(rng, rng.choice((60, 100, 200, 300)))
        text = text[: -rng.randrange(1, 8)] if rng.random() < 0.3 else text
        rests = [(rng.choice(("", " ")) + random_text(rng, rng.choice((1, 5, 20)))).encode() for _ in range(18)]
        whole = PromptText(start_of(vocabulary), text.encode())
        differ, n_left = rests_that_differ(vocabulary, whole, [*rests, b" ", b""])
        different += [(text, rest) for rest in differ]
        n_shorter += n_left < len(text.encode())
    return different, n_shorter


def test_what_follows_is_encoded_the_same(real_vocabulary):
    """Four hundred pairs on each real vocabulary, and nearly every text has a place to be cut at."""
    different, n_shorter = random_pairs_that_differ(vocabulary_of(real_vocabulary), random.Random(5), 400)
    assert different == []
    assert n_shorter >= 18, "hardly any text was cut: the law was not tried"


@pytest.mark.parametrize("name", SMALL)
def test_what_follows_is_encoded_the_same_by_small_models(name, weights):
    """The same on a SentencePiece vocabulary of 512 and on RWKV's."""
    different, n_shorter = random_pairs_that_differ(vocabulary_of(weights(name)), random.Random(6), 400)
    assert (different, n_shorter >= 18) == ([], True)


@pytest.mark.long
def test_what_follows_twenty_thousand_texts_is_encoded_the_same(real_vocabulary):
    """The law over twenty thousand pairs a vocabulary."""
    assert random_pairs_that_differ(vocabulary_of(real_vocabulary), random.Random(7), 20_000)[0] == []


@settings(max_examples=n_examples(40))
@given(parts=AWKWARD, rest=AWKWARD, blank=st.booleans())
def test_awkward_texts_go_on_the_same(parts, rest, blank, weights):
    """Blanks, digits, marks and scripts in any order: on a byte-level and on a SentencePiece vocabulary."""
    text = (" " if blank else "").join(parts).encode()
    for name in ("random_real_vocab/random-qwen2.gguf", "stories260K.gguf"):
        vocabulary = vocabulary_of(weights(name))
        for prefix in (start_of(vocabulary), np.asarray(vocabulary.tokenize(b" then"), dtype=np.int32)):
            whole = PromptText(prefix, text)
            assert rests_that_differ(vocabulary, whole, ["".join(rest).encode(), b" ", b"s"])[0] == []


@pytest.mark.parametrize(
    "text",
    [
        "東京都は日本の首都です。" * 30,
        "a" * 400,
        "0123456789" * 40,
        "-" * 300,
        "\n" * 200,
        " " * 200,
        "١٢٣" * 60,
        "word  \n" * 40,
    ],
    ids=["kanji", "letters", "digits", "dashes", "lines", "spaces", "arabic-digits", "blanks"],
)
def test_texts_without_words_go_on_the_same(real_vocabulary, text):
    """Where there is no good place, nothing is kept or what is kept is right."""
    vocabulary = vocabulary_of(real_vocabulary)
    rests = [choice.encode() for choice in (*CHOICES, "a", "0", "-", " a", "٤")]
    assert rests_that_differ(vocabulary, PromptText(start_of(vocabulary), text.encode()), rests)[0] == []


def test_the_law_finds_a_wrong_place(weights, monkeypatch):
    """A text cut right before its end, believed settled, is found by the comparison above."""
    vocabulary = vocabulary_of(weights("stories260K.gguf"))
    whole = PromptText(start_of(vocabulary), b"a litt")  # " a‧ l‧itt", and with "le": " a‧ little"
    rests = [b".", b"le"]
    assert rests_that_differ(vocabulary, whole, rests)[0] == []
    monkeypatch.setattr(
        "selectrie.tokenization.canonical.settled_positions", lambda _, text, _n: iter(range(len(text) - 1, 0, -1))
    )
    assert rests_that_differ(vocabulary, whole, rests)[0] == [b"le"]


def test_choices_are_cut_the_same(real_vocabulary):
    """Contexts and paths of a select behind what was kept are those behind the whole text."""
    vocabulary, rng = vocabulary_of(real_vocabulary), random.Random(8)
    for _ in range(10):
        whole = PromptText(start_of(vocabulary), random_text(rng, 150).encode())
        choices = [(rng.choice(("", " ")) + random_text(rng, 8)).encode() for _ in range(6)]
        following = random_text(rng, 12).encode() if rng.random() < 0.5 else b""
        kept = split_stable(vocabulary, whole)
        assert len(kept.prefix) > len(whole.prefix)
        one, other = (encode_choices(vocabulary, prompt, choices, following) for prompt in (whole, kept))
        assert one.context.tolist() == other.context.tolist()
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.offsets.tolist() == other.offsets.tolist()
        assert (one.healed, one.prompt_tokens.tolist()) == (other.healed, other.prompt_tokens.tolist())


def test_little_is_left_of_ordinary_text(real_vocabulary):
    """Of English no more than a word beyond the sixteen bytes is left, and the tokens stay those of the whole."""
    vocabulary = vocabulary_of(real_vocabulary)
    whole = PromptText(start_of(vocabulary), b"The cat sat on the mat and looked at the dog, which slept. " * 40)
    kept = split_stable(vocabulary, whole)
    assert 16 <= len(kept.text) < 32
    assert encode_prompt(vocabulary, kept).tolist() == encode_prompt(vocabulary, whole).tolist()
    assert split_stable(vocabulary, kept) is kept, "too short to be cut again"


def test_tokens_that_spell_something_else_are_not_kept():
    """Where a tokenizer lower-cases or drops text, the prompt comes back as it is."""
    tiny = make_vocabulary()
    text = b"a cat. a bat. a cat. a bat. a cat. a bat. a cat. a bat."
    assert len(split_stable(tiny, PromptText(start_of(tiny), text)).text) < len(text)
    lowering = replace(tiny, tokenize=lambda text: tiny.tokenize(text.lower()))
    for given_text in (text.upper(), text.upper() + text, b""):
        prompt = PromptText(start_of(tiny), given_text)
        assert split_stable(lowering, prompt) is prompt


def test_kept_tokens_are_the_beginning_of_the_whole():
    """On the vocabulary drawn by hand: what is kept and what is left are the text."""
    tiny = make_vocabulary()
    whole = PromptText(start_of(tiny), b"a cat. a bat at a cat. a bat. a cat as a bat. a cat")
    kept = split_stable(tiny, whole)
    tokens = encode_prompt(tiny, whole).tolist()
    n = len(kept.prefix)
    assert kept.prefix.tolist() == tokens[:n]
    assert tiny.decode(kept.prefix[1:]) + kept.text == whole.text


def test_a_token_that_only_what_follows_completes_is_seen():
    """Twenty bytes and more of the text may belong to one long token: the place is before it."""
    words = [b" cat at the car at the bat.", *(bytes([byte]) for byte in range(256))]
    vocabulary = make_vocabulary(words)
    whole = PromptText(start_of(vocabulary), b"at a bat at a cat at the car at the")
    assert rests_that_differ(vocabulary, whole, [b" bat.", b" bat", b""])[0] == []
    assert split_stable(vocabulary, whole).text == b" cat at the car at the"


def test_the_line_end_put_before_a_text_joins_nothing():
    """A SentencePiece vocabulary with a token of a line end and seventy letters, which what follows completes."""
    pieces = [b"\n" + b"y" * 70, *(bytes([byte]) for byte in range(256))]
    plain = make_vocabulary(pieces)
    vocabulary = replace(plain, space_prefix=True, tokenize=lambda text: plain.tokenize(b" " + text))
    whole = PromptText(start_of(vocabulary), b"ab" + b"y" * 80)
    assert rests_that_differ(vocabulary, whole, [b"y" * n + b"." for n in range(8)])[0] == []


@pytest.mark.parametrize("boundary", ["heal", "split", "harness"])
def test_white_space_at_the_end_is_left_to_the_rules_of_the_boundary(boundary, weights):
    """Of a long run of it nothing is kept, for lm-eval's rule moves all of it to the choice."""
    vocabulary = vocabulary_of(weights("stories260K.gguf"))
    whole = PromptText(start_of(vocabulary), b"Once upon a time there was a girl who went out." + b" " * 90)
    one, other = (
        encode_choices(vocabulary, prompt, [b"Then", b" So"], b"", boundary)
        for prompt in (whole, split_stable(vocabulary, whole))
    )
    assert (one.context.tolist(), one.tokens.tolist()) == (other.context.tolist(), other.tokens.tolist())
