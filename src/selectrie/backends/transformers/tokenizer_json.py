"""The parts of a fast tokenizer, as its `tokenizer.json` lists them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer
from tokenizers.normalizers import Normalizer

from selectrie.backends.byte_alphabet import BYTE_CHARACTERS
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
    """A token that is searched for in a text before the text is split into words."""

    id: int
    content: str
    special: bool
    lstrip: bool
    rstrip: bool
    single_word: bool
    normalized: bool


@dataclass(frozen=True, eq=False)
class TokenizerJson:
    """A tokenizer's parts, from which copies with other parts can be made.

    Attributes:
        name: The name of the model in errors.
        spec: The content of `tokenizer.json`; it must not be written to.
    """

    name: str
    spec: Part

    @classmethod
    def of(cls, name: str, backend: Tokenizer) -> TokenizerJson:
        """Return the parts of a tokenizer.

        Raises `UnsupportedModelError` for a tokenizer with parts written in Python, and
        for one whose tokens have no fixed bytes or spellings.
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
        return dict(self.spec["model"])

    @property
    def is_unigram(self) -> bool:
        return bool(self.model["type"] == "Unigram")

    @property
    def takes_words_whole(self) -> bool:
        """Return whether a word that is a token is taken whole, without merges."""
        return bool(self.model.get("ignore_merges"))

    @cached_property
    def is_byte_level(self) -> bool:
        """Return whether tokens are spelled in the alphabet of bytes (GPT-2)."""
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
        names = AddedToken.__slots__
        return tuple(AddedToken(**{name: part[name] for name in names}) for part in self.spec["added_tokens"])

    @cached_property
    def unknown(self) -> int | None:
        """Return the id of the token for text that has no other, or None."""
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
        """Return the byte that a token of the byte fallback stands for, or b"".

        The model makes such a token of plain text, and the decoder reads it as its
        byte, even if the token is listed among the added ones.
        """
        byte = _BYTE_TEXTS.get(text, b"")
        is_made = byte and not self.is_byte_level and self.model.get("byte_fallback") and text in self.vocab
        return byte if is_made else b""

    def copy(self, *, adds_space: bool) -> Tokenizer:
        """Return a tokenizer that treats control tokens in a text as plain text.

        If `adds_space` is false, it does not add a space before a text either.
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
        """Return whether a part adds a space before text."""
        names = ("normalizer", "pre_tokenizer")
        return any(self.spec[name] != _without_space(self.spec[name]) for name in names)

    @property
    def adds_space_once(self) -> bool:
        """Return whether a space is added only at the very beginning of a text."""
        adding = [part for name in ("normalizer", "pre_tokenizer") for part in parts(self.spec[name]) if _adds(part)]
        return bool(adding) and all(part.get("prepend_scheme") == "first" for part in adding)

    @cached_property
    def hidden(self) -> frozenset[str]:
        """Return the special tokens that a Unigram model would find in plain text.

        Tokens of the byte fallback are not included, because text needs them.
        """
        if not self.is_unigram:
            return frozenset()
        special = (token.content for token in self.added if token.special)
        return frozenset(text for text in special if text in self.vocab and not self.fallback(text))

    @cached_property
    def changes(self) -> tuple[str, ...]:
        """Return the types of normalizers that change text apart from spaces."""
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
        model = {"type": "BPE", "vocab": {}, "merges": []}
        return Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model, **own_parts}))

    def _check(self) -> None:
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
        """Refuse a vocabulary with two texts of one id; `spec` has one of them."""
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
    """Yield a part of a tokenizer; of a sequence, the parts in it."""
    waiting = [part] if part else []
    while waiting:
        one = waiting.pop()
        inner = next((one[name] for name in _LISTS if name in one), None)
        if inner is None:
            yield one
        else:
            waiting += reversed(inner)


def _adds(part: Part) -> bool:
    kind = part["type"]
    if kind == "Metaspace":
        return bool(part.get("prepend_scheme", "always") != "never")
    return bool(kind == "Prepend" or (kind == "ByteLevel" and part.get("add_prefix_space")))


def _is_spacing(part: Part) -> bool:
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
