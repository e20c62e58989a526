"""Finds settled positions of a text, whose two sides are encoded separately.

At a settled position no token lies on both sides, in this text or in any text that
continues it. The words into which a tokenizer splits text are also independent of the
other side: those on the left do not depend on how the text continues, and those on the
right do not depend on the text before the position.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from selectrie.core.vocabulary import TokenizerKind, Vocabulary
from selectrie.tokenization.encoding import SPACE_SIGN, is_spanned, separator_of

_SPACE = " "
_LINE_END = "\n"
MAX_HEALED_BYTES = 1024
"""Maximum number of bytes after a position: how far back one is searched."""
_BLANKS = " \t"
_WORD_SIGNS = "'’_"
"""Punctuation that may be part of a word.

Contractions have apostrophes, and patterns count the underscore among the letters.
"""
_WORDLESS = frozenset({TokenizerKind.SCORES, TokenizerKind.LONGEST})
"""Kinds that look for tokens in the whole text."""


def settled_positions(vocabulary: Vocabulary, text: bytes, min_behind: int = 1) -> Iterator[int]:
    """Yield settled positions of a text after its beginning, nearest the end first.

    SentencePiece merges anywhere in a text, and the longest match needs no words. For
    these, every position between characters that no token spans is settled.

    Other tokenizers first split the text into words, with patterns that look to both
    sides. All of llama.cpp's patterns agree on how words are split at these positions,
    whatever follows the text:

    - before a space that follows no white space;
    - between a letter or a digit and a punctuation mark that is not an apostrophe;
    - after a line end, before blanks and then an ASCII letter or digit of this text.

    If the tokenizer works by merges alone, the position between two letters of a script
    without case is settled too.

    Args:
        vocabulary: The vocabulary.
        text: The text as its tokens spell it, including an added space.
        min_behind: Minimum number of bytes after a position.
    """
    if not vocabulary.tokenizing.splits_locally:
        return
    size = len(text)
    first = max(0, size - MAX_HEALED_BYTES)
    while first < size and text[first] & 0xC0 == 0x80:
        first += 1
    characters = text[first:].decode("utf-8", "surrogateescape")
    certain_to = _user_defined_from(vocabulary, text)
    last = _first_beginning(text, vocabulary.derived(_other_beginnings))
    position = size
    for i in range(len(characters) - 1, 0, -1):
        position -= len(characters[i].encode("utf-8", "surrogateescape"))
        if (
            position > last
            or size - position < min_behind
            or not _ends_word(vocabulary.kind, characters, i, certain_to - position)
        ):
            continue
        if not is_spanned(vocabulary, text, position) and _begins_apart(vocabulary, text[position:]):
            yield position


def _ends_word(kind: TokenizerKind, characters: str, i: int, n_certain: int) -> bool:
    """Return whether words are certainly split before character `i`.

    `n_certain` is the number of bytes from there on that cannot belong to a
    user-defined token, which would be looked up before the text is split into words.
    """
    left, right = characters[i - 1], characters[i]
    if _is_broken(left) or _is_broken(right):
        return False
    if kind in _WORDLESS:
        return True
    if left == _LINE_END:
        behind = characters[i:].lstrip(_BLANKS)
        n_blanks = len(characters) - i - len(behind)
        return n_certain > n_blanks and behind[:1].isascii() and behind[:1].isalnum()
    if right == _SPACE:
        return not left.isspace()
    if not left.isalpha() and not (left.isascii() and left.isdigit()):
        return False
    is_inside = kind is TokenizerKind.MERGES and n_certain > 0 and _is_caseless(left) and _is_caseless(right)
    return is_inside or (unicodedata.category(right)[0] == "P" and right not in _WORD_SIGNS)


def _begins_apart(vocabulary: Vocabulary, rest: bytes) -> bool:
    """Return whether `rest` can be encoded after a separator without merging with it.

    The separator is the byte that `encode_after` puts before text.
    """
    if not vocabulary.space_prefix or vocabulary.spacing is not None:
        return True
    return not is_spanned(vocabulary, separator_of(vocabulary) + rest, 1)


def _user_defined_from(vocabulary: Vocabulary, text: bytes) -> int:
    """Return the first position where the end of the text may begin a special token.

    User-defined tokens are looked up before the text is split into words.
    """
    return _first_beginning(text, vocabulary.derived(_beginnings))


def _first_beginning(text: bytes, beginnings: frozenset[bytes]) -> int:
    """Return the first position from which the text is one of `beginnings`.

    The length of the text is returned if there is none.
    """
    longest = max(map(len, beginnings), default=0)
    positions = range(max(0, len(text) - longest), len(text))
    return next((position for position in positions if text[position:] in beginnings), len(text))


def _beginnings(vocabulary: Vocabulary) -> frozenset[bytes]:
    """Return the proper prefixes of user-defined tokens."""
    pieces = [vocabulary.pieces[token] for token in vocabulary.user_defined.tolist()]
    return frozenset(piece[:n] for piece in pieces for n in range(1, len(piece)))


def _other_beginnings(vocabulary: Vocabulary) -> frozenset[bytes]:
    """Return the beginnings of user-defined tokens that text names otherwise.

    These are looked up by a name that is not what they spell, as `<0x0A>` where a byte
    token is listed among the added tokens. Their bytes do not show which positions they
    span.
    """
    tokens = vocabulary.user_defined.tolist()
    names = (
        (vocabulary.texts[token].replace(SPACE_SIGN, _SPACE).encode(), vocabulary.pieces[token]) for token in tokens
    )
    return frozenset(name[:n] for name, piece in names if name != piece for n in range(1, len(name)))


def _is_broken(character: str) -> bool:
    """Return whether this is a byte of an incomplete character (a lone surrogate)."""
    return "\udc80" <= character <= "\udcff"


def _is_caseless(character: str) -> bool:
    return unicodedata.category(character) == "Lo"
