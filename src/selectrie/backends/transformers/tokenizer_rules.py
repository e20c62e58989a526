"""Finds out how a tokenizer of Transformers works, from its file and from trials."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise, product
from typing import Any

from tokenizers import Tokenizer, normalizers
from tokenizers.normalizers import Normalizer

from selectrie.core.vocabulary import BYTE_CHARACTERS, TokenizerKind, Tokenizing, Vocabulary, spans_words
from selectrie.errors import UnsupportedModelError

Part = dict[str, Any]

SIGN = "\u2581"
"""The character that SentencePiece writes for a space."""
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""The characters that a token removes around it if it strips white space."""
_UNMATCHABLE = "\U0010fffe"
"""A noncharacter of Unicode, which no ordinary text contains."""
_BYTE_TEXTS = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}
_MODELS = ("BPE", "Unigram")
_SPACE_DECODERS = frozenset({"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"})
_DECODERS = _SPACE_DECODERS | {"ByteLevel"}
_LISTS = ("normalizers", "pretokenizers", "decoders", "processors")


@dataclass(frozen=True, slots=True)
class AddedToken:
    """An entry of `added_tokens`, found in a text before that is split into words."""

    id: int
    content: str
    special: bool
    lstrip: bool
    rstrip: bool
    single_word: bool
    normalized: bool


@dataclass(frozen=True, eq=False)
class TokenizerJson:
    """The content of a `tokenizer.json`, from which changed copies can be made.

    Attributes:
        name: The name of the model in errors.
        spec: The parsed content. It must not be changed.
    """

    name: str
    spec: Part

    @classmethod
    def of(cls, name: str, backend: Tokenizer) -> TokenizerJson:
        """Return the content of a loaded tokenizer.

        Raises `UnsupportedModelError` for a tokenizer with parts written in Python, and
        for one whose tokens have no fixed bytes or texts.
        """
        try:
            spec = json.loads(backend.to_str())
        except Exception as error:
            raise UnsupportedModelError(name, f"its tokenizer cannot be written as tokenizer.json: {error}") from error
        made = cls(name, {**spec, "truncation": None, "padding": None})
        made._check()
        made._check_texts(backend)
        return made

    @property
    def model(self) -> Part:
        """Return a copy of the part `model`."""
        return dict(self.spec["model"])

    @property
    def is_unigram(self) -> bool:
        """Return whether the model is of type Unigram."""
        return bool(self.model["type"] == "Unigram")

    @property
    def takes_words_whole(self) -> bool:
        """Return whether a word that is a token becomes it directly, without merges."""
        return bool(self.model.get("ignore_merges"))

    @cached_property
    def is_byte_level(self) -> bool:
        """Return whether tokens are written in GPT-2's alphabet of bytes."""
        return any(part["type"] == "ByteLevel" for part in parts(self.spec["decoder"]))

    @cached_property
    def vocab(self) -> dict[str, int]:
        """Return the ids of the model's own tokens, without added ones."""
        vocab = self.model["vocab"]
        if isinstance(vocab, dict):
            return vocab
        return {text: token for token, (text, _) in enumerate(vocab)}

    @cached_property
    def added(self) -> tuple[AddedToken, ...]:
        """Return the added tokens."""
        names = AddedToken.__slots__
        return tuple(AddedToken(**{name: part[name] for name in names}) for part in self.spec["added_tokens"])

    @cached_property
    def unknown(self) -> int | None:
        """Return the id of the token for unknown text, or None."""
        if self.is_unigram:
            token: int | None = self.model.get("unk_id")
            return token
        return self.vocab.get(self.model.get("unk_token") or "")

    @cached_property
    def merge_results(self) -> frozenset[str]:
        """Return the results of all merges."""
        merges = self.model.get("merges") or ()
        return frozenset("".join(merge.split(" ", 1)) if isinstance(merge, str) else "".join(merge) for merge in merges)

    @cached_property
    def has_every_byte(self) -> bool:
        """Return whether a character without a token becomes tokens of its bytes."""
        return bool(self.model.get("byte_fallback")) and self.vocab.keys() >= _BYTE_TEXTS.keys()

    def meaning(self, text: str) -> bytes | None:
        """Return the bytes that a token of the model stands for.

        Args:
            text: The token as it is written in `vocab`.

        Returns:
            The bytes. None if the tokenizer is byte-level and the text is not in the
            alphabet of bytes.
        """
        if self.is_byte_level:
            try:
                return bytes([BYTE_CHARACTERS[character] for character in text])
            except KeyError:
                return None
        return self.fallback(text) or text.replace(SIGN, " ").encode()

    def fallback(self, text: str) -> bytes:
        """Return the byte of a token of the byte fallback, such as `<0x0A>`, or b"".

        The model turns plain text into such a token, and the decoder reads it as its
        byte, even if the token is listed among the added ones.
        """
        byte = _BYTE_TEXTS.get(text, b"")
        is_made = byte and not self.is_byte_level and self.model.get("byte_fallback") and text in self.vocab
        return byte if is_made else b""

    def copy(self, *, adds_space: bool) -> Tokenizer:
        """Return a tokenizer that treats special tokens in a text as plain text.

        If `adds_space` is false, it does not add a space before a text either. Raises
        `UnsupportedModelError` if an added token gets another id in it.
        """
        spec = dict(self.spec)
        if self.is_unigram:
            special = self.hidden
            kept = [token for token in spec["added_tokens"] if token["content"] not in special]
            spec["added_tokens"] = kept  # with another text they would get other ids
            vocab = [[_UNMATCHABLE + text if text in special else text, score] for text, score in self.model["vocab"]]
            spec["model"] = {**self.model, "vocab": vocab}
        if not adds_space:
            spec["normalizer"] = _without_space(spec["normalizer"])
            spec["pre_tokenizer"] = _without_space(spec["pre_tokenizer"])
        made = Tokenizer.from_str(json.dumps(spec, ensure_ascii=False))
        made.encode_special_tokens = True
        moved = [
            token.content for token in self.added if not token.special and made.token_to_id(token.content) != token.id
        ]
        if moved:
            raise self._refusal(f"the id of its added token {moved[0]!r} is not the one in its tokenizer.json")
        return made

    @property
    def may_add_space(self) -> bool:
        """Return whether the normalizer or pre-tokenizer adds a space before text."""
        names = ("normalizer", "pre_tokenizer")
        return any(self.spec[name] != _without_space(self.spec[name]) for name in names)

    @property
    def adds_space_once(self) -> bool:
        """Return whether a space is added only at the very beginning of a text."""
        adding = [
            part for name in ("normalizer", "pre_tokenizer") for part in parts(self.spec[name]) if _adds_space(part)
        ]
        return bool(adding) and all(part.get("prepend_scheme") == "first" for part in adding)

    @cached_property
    def hidden(self) -> frozenset[str]:
        """Return the texts of special tokens that a Unigram model finds in plain text.

        Those of the byte fallback are left out, because text needs them.
        """
        if not self.is_unigram:
            return frozenset()
        special = (token.content for token in self.added if token.special)
        return frozenset(text for text in special if text in self.vocab and not self.fallback(text))

    @cached_property
    def changes(self) -> tuple[str, ...]:
        """Return the types of the normalizers that do more than change spaces."""
        return tuple(part["type"] for part in parts(self.spec["normalizer"]) if not _is_spacing(part))

    def normalizer(self) -> Normalizer | None:
        """Return the normalizer without the parts that change spaces.

        The result is None if there are no other parts.
        """
        kept = [part for part in parts(self.spec["normalizer"]) if not _is_spacing(part)]
        return self._empty(normalizer={"type": "Sequence", "normalizers": kept}).normalizer if kept else None

    def splitter(self) -> Tokenizer:
        """Return a tokenizer that only splits text into words, and adds no space."""
        names = ("normalizer", "pre_tokenizer")
        return self._empty(**{name: _without_space(self.spec[name]) for name in names})

    @staticmethod
    def _empty(**own_parts: Part | None) -> Tokenizer:
        """Return a tokenizer without tokens that has only these parts."""
        model = {"type": "BPE", "vocab": {}, "merges": []}
        return Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model, **own_parts}))

    def _check(self) -> None:
        """Raise `UnsupportedModelError` for parts whose tokens have no fixed bytes."""
        model, decoders = self.model, [part["type"] for part in parts(self.spec["decoder"])]
        if model["type"] not in _MODELS:
            raise self._refusal(
                f"its tokenizer is of type {model['type']}, whose tokens do not spell the text: what a token stands "
                "for depends on its neighbours"
            )
        other = next((name for name in decoders if name not in _DECODERS), None)
        if other is not None or not decoders:
            shown = f"decoder is of type {other}" if other else "tokenizer has no decoder"
            raise self._refusal(f"its {shown}, so the bytes of a token are not known")
        if any(model.get(name) for name in ("continuing_subword_prefix", "end_of_word_suffix")):
            raise self._refusal("its tokens are spelled differently at the ends of words, so their bytes are not known")
        if model.get("dropout"):
            raise self._refusal("its tokenizer drops merges at random (dropout), so that a text has no fixed tokens")
        unnamed = self._template_names()
        if unnamed:  # encoding would panic
            raise self._refusal(f"the post-processor of its tokenizer.json does not define its token {unnamed[0]!r}")
        types = [part["type"] for part in parts(self.spec["pre_tokenizer"])]
        if self.is_byte_level and "ByteLevel" not in types:
            raise self._refusal("its decoder reads bytes that its pre-tokenizer does not write")
        signs = [
            part["replacement"]
            for name in ("pre_tokenizer", "decoder")
            for part in parts(self.spec[name])
            if part["type"] == "Metaspace"
        ]
        if any(sign != SIGN for sign in signs):
            raise self._refusal(f"its tokenizer writes {signs[0]!r} for a space; only {SIGN!r} is supported")
        can_drop = not self.is_byte_level and not self.is_unigram and not self.has_every_byte
        if can_drop and self.unknown is None:
            raise self._refusal("its tokenizer leaves out characters without a token, and has no token for the unknown")

    def _check_texts(self, backend: Tokenizer) -> None:
        """Raise `UnsupportedModelError` if two texts of the vocabulary have one id."""
        for text, token in backend.get_vocab(with_added_tokens=False).items():
            if text not in self.vocab:
                other = backend.id_to_token(token)
                raise self._refusal(f"its vocabulary has two tokens of id {token}, {other!r} and {text!r}")

    def _template_names(self) -> list[str]:
        """Return the tokens that the post-processor uses without defining them."""
        return [
            item["SpecialToken"]["id"]
            for part in parts(self.spec.get("post_processor"))
            if part["type"] == "TemplateProcessing"
            for item in part["single"]
            if "SpecialToken" in item and item["SpecialToken"]["id"] not in part["special_tokens"]
        ]

    def _refusal(self, reason: str) -> UnsupportedModelError:
        return UnsupportedModelError(self.name, reason)


def parts(part: Part | None) -> Iterator[Part]:
    """Yield the single parts of a tokenizer's part, which may be a nested sequence."""
    waiting = [part] if part else []
    while waiting:
        one = waiting.pop()
        inner = next((one[name] for name in _LISTS if name in one), None)
        if inner is None:
            yield one
        else:
            waiting += reversed(inner)


def _adds_space(part: Part) -> bool:
    """Return whether a single part adds a space before text."""
    kind = part["type"]
    if kind == "Metaspace":
        return bool(part.get("prepend_scheme", "always") != "never")
    return bool(kind == "Prepend" or (kind == "ByteLevel" and part.get("add_prefix_space")))


def _is_spacing(part: Part) -> bool:
    """Return whether a normalizer only writes spaces as U+2581, or adds one."""
    is_sign = part["type"] == "Replace" and part["pattern"] == {"String": " "} and part["content"] == SIGN
    return bool(is_sign or (part["type"] == "Prepend" and part["prepend"] == SIGN))


def _without_space(part: Part | None) -> Part | None:
    """Return the part, changed so that it adds no space before a text."""
    if part is None or part["type"] == "Prepend":
        return None
    inner = next((name for name in _LISTS if name in part), None)
    if inner is not None:
        kept = [one for one in map(_without_space, part[inner]) if one is not None]
        return {**part, inner: kept} if kept else None
    if part["type"] == "Metaspace":
        return {**part, "prepend_scheme": "never"}
    if part["type"] == "ByteLevel":
        return {**part, "add_prefix_space": False}
    return part


_CHARACTERS = (
    *map(chr, range(32, 127)),
    *"\n\t\réßЖж日の한אก\u0301🤗“’…。\u3000\u00a0\u200b²½٣ǅ\u200dª",
)
"""Characters of every class that the patterns of pre-tokenizers distinguish."""
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
"""Matches the beginning of a text that `_ends_word` allows after a line end."""
_N_TRIED = 4000
"""Number of pairs of texts tried for each kind of position."""
_COMPOSED = (range(0x80, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x20000), range(0x2F800, 0x30000))
_JAMO = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
"""Code points that Unicode's normal forms may change: all but ideographs, and Hangul's
vowels and final consonants, which compose with what precedes them."""

Split = Callable[[str], list[str]]


def examiner(json: TokenizerJson) -> Callable[[Vocabulary], Tokenizing]:
    """Return a function that finds out how the tokenizer works (`Vocabulary.examine`).

    It takes up to a second.
    """

    def examine(vocabulary: Vocabulary) -> Tokenizing:
        split = _splitter(json.splitter())
        kind, is_local = _examine_kind(json, split)
        return Tokenizing(kind, _altered_texts(json, vocabulary), is_local)

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


def _examine_kind(json: TokenizerJson, split: Split) -> tuple[TokenizerKind, bool]:
    """Return the tokenizer's kind, and whether `Tokenizing.splits_locally` holds."""
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
    """Yield pairs (left, right) of random texts, cut where `is_kept(left, right)`."""
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

    This holds at all positions at which `tokenization.canonical` cuts a text, and at
    some others.
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
    """Return whether a run of ASCII letters always stays in one word.

    After an apostrophe they may be split, because contractions are.
    """
    rng = _rng(3)
    texts = ("".join(rng.choices((*"abAB1. \n'", "the", "ABC", "don't", "é"), k=6)) for _ in range(_N_TRIED))
    for text in texts:
        words, at, ends = split(text), 0, set()
        for word in words:
            # Byte-level words are in GPT-2's alphabet, with one character for each
            # byte.
            at += sum(character in BYTE_CHARACTERS for character in word)
            ends.add(at)
        positions = [len(text[:n].encode()) for n in range(len(text) + 1)]
        for run in _RUNS.finditer(text):
            if any(positions[n] in ends for n in range(run.start() + 1, run.end())):
                return False
    return True


def _is_apart_between_caseless(split: Split) -> bool:
    """Return whether texts split part by part between letters without case."""
    rng = _rng(4)
    around = ["".join(rng.choices(_PARTS, k=rng.randrange(3))) for _ in range(20)]
    pairs = product(_CASELESS, repeat=2)
    return all(_is_apart(split, start + one, other + end) for one, other in pairs for start, end in pairwise(around))


def _altered_texts(json: TokenizerJson, vocabulary: Vocabulary) -> frozenset[bytes] | None:
    """Return the texts that the tokenizer may alter; None if they are not known."""
    if json.changes not in ((), ("NFC",)):
        return None
    if not json.is_byte_level and not json.has_every_byte:
        return None
    composed = composed_by_nfc() if json.changes else frozenset()
    own = _altered_by_byte_level(json, vocabulary) if json.is_byte_level else _altered_by_sign(json, vocabulary)
    return frozenset({*composed, *own, *_texts_set_apart(json, vocabulary)})


def _altered_by_byte_level(json: TokenizerJson, vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield the texts that a byte-level tokenizer alters.

    These are bytes without a token, and texts that become a token with other bytes, or
    with none.
    """
    yield from (bytes([byte]) for one, byte in BYTE_CHARACTERS.items() if one not in json.vocab)
    made = json.vocab if json.takes_words_whole or json.is_unigram else {*json.merge_results, *BYTE_CHARACTERS}
    # `made` are the texts that merges, or words looked up whole, may become.
    for text in made:
        data, token = json.meaning(text), json.vocab.get(text)
        if not data or token is None or vocabulary.pieces[token] == data:
            continue
        if json.takes_words_whole or json.is_unigram or not spans_words(vocabulary, token, data):
            yield data


def _altered_by_sign(json: TokenizerJson, vocabulary: Vocabulary) -> Iterator[bytes]:
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


def _texts_set_apart(json: TokenizerJson, vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield the texts of added tokens, if these alter the text beside them.

    White space beside such a token is removed, or a space is added after it. Texts with
    such white space are yielded too.
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
    """Return characters, as UTF-8; NFC changes no text that has none of them.

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
