"""Find out how a tokenizer of Transformers works: its kind, and what it alters.

A pre-tokenizer may be any pattern. How it splits text into words is therefore tried on
many texts, with characters of all kinds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise, product

from tokenizers import Tokenizer, normalizers

from selectrie.backends.byte_alphabet import BYTE_CHARACTERS, spans_words
from selectrie.backends.transformers.tokenizer_json import SIGN, WHITE_SPACE, TokenizerJson
from selectrie.core.vocabulary import TokenizerKind, Tokenizing, Vocabulary

_CHARACTERS = (
    *map(chr, range(32, 127)),
    *"\n\t\réßЖж日の한אก\u0301🤗“’…。\u3000\u00a0\u200b²½٣ǅ\u200dª",
)
"""Characters of every class that patterns distinguish."""
_PARTS = (
    *_CHARACTERS,
    *"aA1. ",
    " ",
    "\n",
    "'s",
    "'re",
    "'LL",
    "  ",
    "\n\n",
    "\r\n",
    "the",
    "ABC",
    "000",
    "日本",
    "!!",
)
_CASELESS = ("日", "の", "한", "א", "ก", "م", "ー", "語")
_RUNS = re.compile(r"(?<!['’A-Za-z])[A-Za-z]+")
_BEGINNING = re.compile(r"[ \t]*[A-Za-z0-9]", re.DOTALL)
"""The beginning of a text that follows a line end at a settled position."""
_N_TRIED = 4000
"""Number of texts that are cut at each kind of position."""
_COMPOSED = (range(0x80, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x20000), range(0x2F800, 0x30000))
_JAMO = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
"""Code points that Unicode's normal forms may change: all but ideographs, and Hangul's
vowels and final consonants, which compose with what precedes them."""

Split = Callable[[str], list[str]]


def examiner(json: TokenizerJson) -> Callable[[Vocabulary], Tokenizing]:
    """Return a function that finds out how the tokenizer works.

    It takes up to a second.
    """

    def examine(vocabulary: Vocabulary) -> Tokenizing:
        split = _splitter(json.splitter())
        kind, is_local = _kind(json, split)
        return Tokenizing(kind, _altered(json, vocabulary), is_local)

    return examine


def _rng(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same texts every time


def _splitter(tokenizer: Tokenizer) -> Split:
    """Return the function that splits a normalised text into words."""
    normalizer, pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer

    def split(text: str) -> list[str]:
        written = text if normalizer is None else normalizer.normalize_str(text)
        if pre_tokenizer is None:
            return [written] if written else []
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(written)]

    return split


def _kind(json: TokenizerJson, split: Split) -> tuple[TokenizerKind, bool]:
    """Return the kind, and whether texts split independently at settled positions."""
    is_local = all(_is_apart(split, *texts) for texts in _cuts(_rng(1), _ends_word))
    has_context = any(token.single_word for token in json.added)
    if not is_local or json.is_unigram or json.takes_words_whole or has_context:
        return TokenizerKind.UNKNOWN, is_local
    if all(_is_apart(split, *texts) for texts in _cuts(_rng(2), _is_inside)):
        return TokenizerKind.SCORES, is_local
    if json.is_byte_level and _keeps_runs(split) and _is_apart_between_caseless(split):
        return TokenizerKind.MERGES, is_local
    return TokenizerKind.UNKNOWN, is_local


def _cuts(rng: random.Random, is_kept: Callable[[str, str], bool]) -> Iterator[tuple[str, str]]:
    """Yield pairs of texts: random texts, cut at each position that is kept."""
    n = 0
    while n < _N_TRIED:
        text = "".join(rng.choices(_PARTS, k=rng.randrange(2, 9)))
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if is_kept(left, right):
                n += 1
                yield left, right


def _is_inside(_left: str, _right: str) -> bool:
    return True


def _ends_word(left: str, right: str) -> bool:
    """Return whether a word ends between two texts.

    This is so at all positions of `tokenization.settled_positions`, and at some others.
    """
    last, first = left[-1], right[0]
    if last == "\n":
        rest = right.lstrip(" \t")
        return rest[:1].isascii() and rest[:1].isalnum()
    if first == " ":
        return not last.isspace()
    is_word = last.isalpha() or (last.isascii() and last.isdigit())
    return is_word and first in '.,;:!?"-/()[]{}%&*@#“…。'


def _is_apart(split: Split, left: str, right: str) -> bool:
    """Return whether a text of two parts is split into words part by part.

    The right part has to be split as it is alone. The left part has to be split as it
    is if only the beginning of the right part follows. The last word of the left part
    and the first word of the right part may form one word.
    """
    least = _BEGINNING.match(right)
    beginning = right[:1] if least is None else least[0]
    before = _before(split(left + right), split(right))
    return before is not None and before == _before(split(left + beginning), split(beginning))


def _before(words: list[str], last: list[str]) -> list[str] | None:
    """Return the words before those of `last`, or None if `words` ends otherwise.

    The first word of `last` may be the end of a longer one, whose beginning is then
    returned as the last word.
    """
    n = len(words) - len(last)
    if not last or n < 0 or words[n + 1 :] != last[1:] or not words[n].endswith(last[0]):
        return None
    more = words[n][: len(words[n]) - len(last[0])]
    return [*words[:n], more] if more else words[:n]


def _keeps_runs(split: Split) -> bool:
    """Return whether ASCII letters without a break stay in one word.

    After an apostrophe they may be split, because contractions are.
    """
    rng = _rng(3)
    texts = ("".join(rng.choices((*"abAB1. \n'", "the", "ABC", "don't", "é"), k=6)) for _ in range(_N_TRIED))
    for text in texts:
        words, at, ends = split(text), 0, set()
        for word in words:
            at += sum(character in BYTE_CHARACTERS for character in word)
            ends.add(at)
        positions = [len(text[:n].encode()) for n in range(len(text) + 1)]
        for run in _RUNS.finditer(text):
            if any(positions[n] in ends for n in range(run.start() + 1, run.end())):
                return False
    return True


def _is_apart_between_caseless(split: Split) -> bool:
    rng = _rng(4)
    around = ["".join(rng.choices(_PARTS, k=rng.randrange(3))) for _ in range(20)]
    pairs = product(_CASELESS, repeat=2)
    return all(_is_apart(split, start + one, other + end) for one, other in pairs for start, end in pairwise(around))


def _altered(json: TokenizerJson, vocabulary: Vocabulary) -> frozenset[bytes] | None:
    """Return the texts of `Tokenizing.altered`."""
    if json.changes not in ((), ("NFC",)):
        return None
    if not json.is_byte_level and not json.has_every_byte:
        return None
    composed = composed_by_nfc() if json.changes else frozenset()
    own = _altered_bytes(json, vocabulary) if json.is_byte_level else _altered_pieces(json, vocabulary)
    return frozenset({*composed, *own, *_set_apart(json, vocabulary)})


def _altered_bytes(json: TokenizerJson, vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield the texts that a byte-level tokenizer alters.

    These are bytes without a token, and texts that become a token with other bytes, or
    with none.
    """
    yield from (bytes([byte]) for one, byte in BYTE_CHARACTERS.items() if one not in json.vocab)
    made = json.vocab if json.takes_words_whole or json.is_unigram else {*json.merge_results, *BYTE_CHARACTERS}
    for text in made:
        data, token = json.meaning(text), json.vocab.get(text)
        if not data or token is None or vocabulary.pieces[token] == data:
            continue
        if json.takes_words_whole or json.is_unigram or not spans_words(vocabulary, token, data):
            yield data


def _altered_pieces(json: TokenizerJson, vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield the texts that a tokenizer alters if it writes spaces as U+2581."""
    yield SIGN.encode()
    if SIGN not in json.vocab:
        yield b" "
    for text, token in json.vocab.items():
        if text in json.hidden:  # no text becomes one of these, see `TokenizerJson.copy`
            continue
        plain = text.replace(SIGN, " ").encode()
        is_made = json.is_unigram or json.takes_words_whole or len(text) == 1 or text in json.merge_results
        if is_made and vocabulary.pieces[token] != plain:
            yield plain


def _set_apart(json: TokenizerJson, vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield the texts of added tokens that alter the text around them.

    They remove white space beside them, or a space is added after them.
    """
    for token in json.added:
        text = token.content.encode()
        if token.special or not text:
            continue
        if vocabulary.space_prefix or text != vocabulary.pieces[token.id]:
            yield text
        if token.lstrip:
            yield from (white.encode() + text for white in WHITE_SPACE)
        if token.rstrip:
            yield from (text + white.encode() for white in WHITE_SPACE)


@cache
def composed_by_nfc() -> frozenset[bytes]:
    """Return characters such that NFC changes no text that has none of them.

    These are the characters that NFC replaces, those that compose with the character
    before them, and combining ones, whose order NFC may change. They are taken from the
    tokenizers library, whose tables may be older than Python's.
    """
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    characters = [chr(code) for codes in _COMPOSED for code in codes]

    def each(normalizer: normalizers.Normalizer, texts: list[str]) -> list[str]:
        written: str = normalizer.normalize_str("\n".join(texts))
        return written.split("\n")

    replaced = {one for one, other in zip(characters, each(nfc, characters), strict=True) if one != other}
    composing = {one for text in each(nfd, characters) for one in text[1:]}
    last = "\u0345"  # its combining class is the highest, so NFC puts all others before it
    after_last = [f"x{last}{one}" for one in characters]
    moved = {
        one for one, text, other in zip(characters, after_last, each(nfc, after_last), strict=True) if text != other
    }
    return frozenset(one.encode() for one in {*replaced, *composing, *moved, last, *map(chr, _JAMO)})
