"""Which token paths behind a prompt are the tokenizer's own: as encoding the whole says, on real vocabularies."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from selectrie.core.vocabulary import Tokenizing
from selectrie.errors import OptionError, PromptError
from selectrie.testing.fakes import make_vocabulary, spell
from selectrie.tokenization.canonical import open_prompt
from selectrie.tokenization.encoding import PromptText, encode_after
from tests.support import made_vocabularies
from tests.support.made_vocabularies import make_scored
from tests.support.vocabularies import start_of, vocabulary_of

TINY = make_vocabulary()
NOTHING = np.empty(0, dtype=np.int32)
PROMPTS = (
    "",
    "The answer is",
    "x = foo(",
    "say “",
    "\n\n",
    "a  ",
    "日本",
    "The year 19",
    "Once upon a time there was a lit",
)
TEXTS = (" Paris", "Paris", "tle dog", "'ll see", " 2024", ".", "本語", "\n", "  two", "🤗!", ' {"a": [1, 2]}', "")
MARKS = ("'", "’", "''", "'s", "'re", "'LL", "'Ve", '"', "-", "_", ".", ",", "/")
SPACES = (" ", "  ", "   ", "\n", "\t", "\r\n", " \n")
OTHERS = ("é", "日本", "🤗", "ß", "İ", "ﬁ", "\u0301", "的")


def whole(vocabulary, prompt, text):
    """All tokens of prompt and text, the prompt's fixed ones left out."""
    return encode_after(vocabulary, prompt.prefix, prompt.text + text)


def resegmented(vocabulary, path, rng):
    """The same bytes in other tokens: some token cut in two, or two joined."""
    path = list(path)
    place = rng.randrange(len(path))
    piece = vocabulary.pieces[path[place]]
    ids = {vocabulary.pieces[i]: i for i in vocabulary.with_prefix(piece[:1]).tolist()}
    for cut in range(1, len(piece)):
        tails = {vocabulary.pieces[i]: i for i in vocabulary.with_prefix(piece[cut : cut + 1]).tolist()}
        if piece[:cut] in ids and piece[cut:] in tails:
            return [*path[:place], ids[piece[:cut]], tails[piece[cut:]], *path[place + 1 :]]
    return None


def test_paths_are_judged_as_the_whole_is(real_vocabulary):
    """The encoding of prompt and text passes where it keeps the context, and the same bytes in other tokens never do."""
    vocabulary, rng = vocabulary_of(real_vocabulary), random.Random(1)
    n_passed = n_refused = 0
    for start in PROMPTS:
        prompt = PromptText(start_of(vocabulary), start.encode())
        opened = open_prompt(vocabulary, prompt)
        n_kept = len(opened.context) - len(prompt.prefix)
        for text in TEXTS:
            tokens = whole(vocabulary, prompt, text.encode())
            if tokens[:n_kept] != opened.context.tolist()[len(prompt.prefix) :] or len(tokens) == n_kept:
                continue
            path = tokens[n_kept:]
            if vocabulary.decode(path) != opened.prefix + text.encode():
                continue
            assert opened.paths.is_canonical(path), (start, text)
            n_passed += 1
            other = resegmented(vocabulary, path, rng)
            if other is not None:
                assert not opened.paths.is_canonical(other), (start, text, other)
                n_refused += 1
    assert n_passed > 30
    assert n_refused > 20


def test_no_neighbours_of_an_encoding_are_refused(real_vocabulary, test_data):
    """Over English, noise, contractions, white space and other scripts; and of parts of words put together many are."""
    vocabulary, rng = vocabulary_of(real_vocabulary), random.Random(2)
    text = test_data("text/english_books_sample.txt").read_text()[:6_000]
    words = text.split()

    def part():
        letters = "".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ") for _ in range(rng.randrange(1, 9)))
        kinds = (rng.choice(words), letters, rng.choice(MARKS), rng.choice(SPACES), rng.choice(OTHERS))
        return rng.choice((*kinds, str(rng.randrange(100_000))))

    paths = open_prompt(vocabulary, PromptText(start_of(vocabulary), b"")).paths
    for one in (text, *("".join(part() for _ in range(12)) for _ in range(30))):
        tokens = encode_after(vocabulary, start_of(vocabulary), one.encode())
        for left, right in set(pairwise(tokens)):
            assert paths.may_join(left, right), (vocabulary.pieces[left], vocabulary.pieces[right])
    parts = [i for i, piece in enumerate(vocabulary.pieces) if piece.isalpha() and piece.isascii() and len(piece) < 4]
    refused = sum(not paths.may_join(rng.choice(parts), rng.choice(parts)) for _ in range(300))
    assert refused > 30


def test_the_last_token_is_opened_again():
    """`a c` ends in ` c`, which `at` would make ` cat`: it is taken off, and both ways of going on can be judged."""
    opened = open_prompt(TINY, PromptText(np.array([0], dtype=np.int32), b"a c"))
    assert opened.context.tolist() == [0, *spell(TINY, ("a",))]
    assert (opened.healed, opened.space_prefix, opened.last) == (b" c", b"", spell(TINY, ("a",))[0])
    good = {" cat": True, " c|u": True, " c|at": False, " c|a|t": False, " |c|u": False, "c|u": False}
    for path, expected in good.items():
        assert opened.paths.is_canonical(spell(TINY, path.split("|"))) is expected, path
    [c, at, a, t] = spell(TINY, ("c", "at", "a", "t"))
    assert [opened.paths.may_join(*pair) for pair in ((c, at), (a, t), (at, a), (c, a))] == [False, False, True, False]


def test_a_longest_match_is_opened_as_far_as_a_token_reaches(tmp_path):
    """` awa` may become ` away`, and what precedes it stays, although a token of the vocabulary spans every position."""
    vocabulary = vocabulary_of(made_vocabularies.make("longest-match", tmp_path / "m.gguf"))
    opened = open_prompt(vocabulary, PromptText(NOTHING, b"payment the transaction awa"))
    assert [vocabulary.pieces[token] for token in opened.prompt_tokens[len(opened.context) :]] == [b" a", b"w", b"a"]
    assert (opened.healed, opened.doubt) == (b" awa", "")


@pytest.mark.parametrize("alphabet", ["ab", "a é"])
def test_a_longest_match_keeps_what_no_text_changes(alphabet):
    """On random vocabularies all tokens are kept but the last one, those that some text changes, and parts of a character."""
    rng = random.Random(alphabet)
    for _ in range(40):
        data = "".join(rng.choices(alphabet, k=60)).encode()
        starts = [rng.randrange(len(data) - 4) for _ in range(rng.randrange(2, 14))]
        pieces = [bytes([byte]) for byte in sorted(set(data))]
        pieces += [data[start : start + rng.randrange(2, 5)] for start in starts]
        vocabulary = replace(make_vocabulary(dict.fromkeys(pieces)), bos=None)
        text = "".join(rng.choices(alphabet, k=rng.randrange(1, 12))).encode()
        own = vocabulary.tokenize(text)
        n_kept = max(1, len(own) - 1)
        for rest in product(pieces[: len(set(data))], repeat=4):
            other = vocabulary.tokenize(text + b"".join(rest))
            n_kept = next((i for i in range(n_kept) if own[i] != other[i]), n_kept)
        while n_kept < len(own) and vocabulary.pieces[own[n_kept]][0] & 0xC0 == 0x80:
            n_kept -= 1
        opened = open_prompt(vocabulary, PromptText(NOTHING, text))
        assert (len(opened.context), bool(opened.doubt)) == (max(1, n_kept), n_kept == 0), (pieces, text)


@pytest.mark.parametrize(
    ("texts", "context", "healed"),
    [((b"r", b"s"), ["b", "ca"], b""), ((b"t", b"s"), ["b"], b"ca"), ((b"",), ["b", "ca"], b""), (None, ["b"], b"ca")],
)
def test_texts_that_are_listed_say_how_far_a_prompt_is_opened(texts, context, healed):
    """Where no position is settled, the context is that of choices; without a list as much is opened as a token may reach."""
    vocabulary = make_vocabulary((b"b", b"ca", b"cat", b"bcar", b"r", b"s", b"t"))
    unknown = replace(vocabulary, bos=None, examine=lambda _: Tokenizing())
    opened = open_prompt(unknown, PromptText(NOTHING, b"bca"), listing=lambda: texts)
    assert (opened.context.tolist(), opened.healed) == (list(spell(vocabulary, context)), healed)
    assert bool(opened.doubt) == (texts is None)


def test_a_text_is_encoded_apart_where_it_would_change_the_context(tmp_path):
    """`x ab` is one token. Behind `x`, which stays, ` ab` is one token too, though `x a` alone ends in ` a`."""
    sign = "\u2581"
    pieces = (sign, "x", "a", "b", f"{sign}x", f"{sign}a", f"{sign}ab", f"{sign}x{sign}ab")
    vocabulary = vocabulary_of(
        make_scored(tmp_path / "m.gguf", [(one, float(len(one)), 1) for one in pieces], space_prefix=True)
    )
    opened = open_prompt(vocabulary, PromptText(np.empty(0, dtype=np.int32), b"x a"))
    x, a, b, ab = (vocabulary.pieces.index(piece) for piece in (b" x", b" a", b"b", b" ab"))
    assert (opened.context.tolist(), opened.healed, bool(opened.doubt)) == ([x], b" a", True)
    assert opened.paths.canonical_path([a, b]) == [ab]
    assert opened.paths.is_canonical([ab])
    assert not opened.paths.is_canonical([a, b])


def test_control_tokens_stand_between_texts():
    """What stands behind a control token is a text of its own."""
    opened = open_prompt(TINY, PromptText(np.array([0], dtype=np.int32), b"a"), "split")
    assert opened.paths.is_canonical(spell(TINY, ("cat", "<eos>", "bat")))
    assert not opened.paths.is_canonical(spell(TINY, ("cat", "<eos>", "b", "at")))


def test_what_cannot_be_opened_stays():
    """Token ids, a single token and `split` keep the prompt whole; an empty prompt is refused, and so is lm-eval's rule."""
    for prompt, boundary in (
        (PromptText(np.array([0, 5], dtype=np.int32), b""), "heal"),
        (PromptText(np.empty(0, dtype=np.int32), b"a"), "heal"),
        (PromptText(np.array([0], dtype=np.int32), b"a"), "split"),
    ):
        opened = open_prompt(TINY, prompt, boundary)
        assert opened.context.tolist() == opened.prompt_tokens.tolist()
        assert (opened.prefix, opened.last) == (b"", None)
    with pytest.raises(PromptError, match="no tokens"):
        open_prompt(TINY, PromptText(np.empty(0, dtype=np.int32), b""))
    with pytest.raises(OptionError, match="'split'"):
        open_prompt(TINY, PromptText(np.array([0], dtype=np.int32), b"a"), "harness")
