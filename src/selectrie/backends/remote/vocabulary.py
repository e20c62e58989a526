"""The vocabulary of a served model: sent as JSON, or read from the caller's files."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from selectrie.backends.chat.template import JinjaTemplate
from selectrie.backends.remote.transport import JsonValue, Transport
from selectrie.core.sized_cache import SizedCache
from selectrie.core.types import IntArray
from selectrie.core.vocabulary import ChatTemplate, Spacing, Tokenize, TokenizerKind, Tokenizing, Vocabulary
from selectrie.errors import MissingExtraError, OptionError, TextError

FORMAT = 1
"""Version of the JSON object. A reader accepts no other."""
BEGIN, INSIDE, NORMALIZE = "begin", "inside", "normalize"
"""The forms in which a text can be encoded: as the beginning of a context, as the
continuation of another text, and as the tokenizer's normalised text."""
_ID_SETS = ("eog", "control", "strips_left", "strips_right", "user_defined")
_SPECIAL = ("bos", "eos", "declared_bos")


def vocabulary_object(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return a vocabulary as a JSON object, which `read_vocabulary` reads.

    On first use this examines the tokenizer, which takes up to 0.5 s.
    """
    spacing, tokenizing = vocabulary.spacing, vocabulary.tokenizing
    return {
        "object": "vocabulary",
        "format": FORMAT,
        "digest": vocabulary.digest,
        "pieces": to_base64(b"".join(vocabulary.pieces)),
        "lengths": vocabulary.lengths.tolist(),
        "texts": list(vocabulary.texts),
        **{name: getattr(vocabulary, name) for name in _SPECIAL},
        **{name: getattr(vocabulary, name).tolist() for name in _ID_SETS},
        "space_prefix": vocabulary.space_prefix,
        "spacing": spacing and {"after_control": spacing.after_control, "before_space": spacing.before_space},
        "normalizes": vocabulary.normalize is not None,
        "bos_in_chats": vocabulary.bos_in_chats,
        "white_space": vocabulary.white_space,
        "ambiguous": sorted(map(to_base64, vocabulary.ambiguous)),
        "tokenizing": {
            "kind": tokenizing.kind.value,
            "altered": None if tokenizing.altered is None else sorted(map(to_base64, tokenizing.altered)),
            "splits_locally": tokenizing.splits_locally,
        },
        "chat": _chat_object(vocabulary.chat_template),
    }


def _chat_object(template: ChatTemplate | None) -> dict[str, Any] | None:
    """Return a chat template as a JSON object; None if it is no `JinjaTemplate`."""
    if not isinstance(template, JinjaTemplate):
        return None
    return {
        "source": template.source,
        "special_tokens": dict(template.special_tokens),
        "absent": list(template.absent),
        "aliases_reasoning": template.aliases_reasoning,
    }


def read_vocabulary(
    answer: JsonValue, *, begin: Tokenize, inside: Tokenize, normalize: Callable[[str], str]
) -> Vocabulary:
    """Return the vocabulary from the object of `vocabulary_object`.

    Args:
        answer: The object.
        begin: Returns the tokens of a text at the beginning of a context.
        inside: Returns the tokens of a text that continues another one.
        normalize: Returns a text as the tokenizer normalises it.

    Raises `ServerError` if a part is missing or wrong, or if its digest is not that of
    the parts.
    """
    if answer["format"].whole() != FORMAT:
        answer["format"].refuse(
            f"is {answer['format'].whole()}: expected {FORMAT}; use the same version here and there"
        )
    pieces = _read_pieces(answer)
    n_tokens = len(pieces)
    texts = answer["texts"].texts()
    if len(texts) != n_tokens:
        answer["texts"].refuse(f"has {len(texts)} items: expected {n_tokens}")
    chat, tokenizing = answer.get("chat"), _read_tokenizing(answer["tokenizing"])
    template = None if chat is None else _read_chat(chat)
    vocabulary = Vocabulary(
        pieces=pieces,
        texts=tuple(texts),
        **{name: _read_token(answer, name, n_tokens) for name in _SPECIAL},  # type: ignore[arg-type]
        **{name: _read_ids(answer[name], n_tokens) for name in _ID_SETS},  # type: ignore[arg-type]
        space_prefix=answer["space_prefix"].flag(),
        tokenize=begin,
        spacing=_read_spacing(answer.get("spacing"), inside),
        normalize=normalize if answer["normalizes"].flag() else None,
        bos_in_chats=answer["bos_in_chats"].flag(),
        white_space=answer["white_space"].text(),
        ambiguous=frozenset(from_base64(one) for one in answer["ambiguous"].sequence()),
        examine=lambda _: tokenizing,
        chat_template=template,
        chat_source="" if template is None else template.source,
    )
    if answer["digest"].text() != vocabulary.digest:
        answer["digest"].refuse("is not the digest of what was sent; use the same version here and there")
    return vocabulary


def to_base64(data: bytes) -> str:
    """Return bytes encoded as base64."""
    return base64.b64encode(data).decode("ascii")


def from_base64(answer: JsonValue) -> bytes:
    """Return the bytes of a base64 text; raise `ServerError` if it is not base64."""
    try:
        return base64.b64decode(answer.text().encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        answer.refuse("is not base64")


def _read_pieces(answer: JsonValue) -> tuple[bytes, ...]:
    """Return the bytes of each token."""
    data, lengths = from_base64(answer["pieces"]), answer["lengths"].whole_numbers()
    if not lengths or sum(lengths) != len(data):
        answer["lengths"].refuse(f"add up to {sum(lengths)}, the pieces have {len(data)} bytes")
    stops = np.cumsum(lengths).tolist()
    return tuple(data[stop - length : stop] for stop, length in zip(stops, lengths, strict=True))


def _read_token(answer: JsonValue, name: str, n_tokens: int) -> int | None:
    found = answer.get(name)
    return None if found is None else found.token(n_tokens)


def _read_ids(answer: JsonValue, n_tokens: int) -> IntArray:
    """Return a list of token ids; raise `ServerError` for one out of range."""
    ids = answer.whole_numbers()
    if ids and max(ids) >= n_tokens:
        answer.refuse(f"has token {max(ids)}: ids run from 0 to {n_tokens - 1}")
    return np.asarray(ids, dtype=np.int32)


def _read_spacing(answer: JsonValue | None, inside: Tokenize) -> Spacing | None:
    if answer is None:
        return None
    return Spacing(inside, after_control=answer["after_control"].flag(), before_space=answer["before_space"].flag())


def _read_tokenizing(answer: JsonValue) -> Tokenizing:
    """Return the facts about the tokenizer; raise `ServerError` for unknown kinds."""
    kinds = {kind.value: kind for kind in TokenizerKind}
    name, altered = answer["kind"].text(), answer.get("altered")
    if name not in kinds:
        answer["kind"].refuse(f"is {name[:40]!r}: expected one of {', '.join(kinds)}")
    return Tokenizing(
        kind=kinds[name],
        altered=None if altered is None else frozenset(from_base64(one) for one in altered.sequence()),
        splits_locally=answer["splits_locally"].flag(),
    )


def _read_chat(answer: JsonValue) -> JinjaTemplate:
    """Return the chat template that `_chat_object` wrote."""
    tokens: Mapping[str, object] = {name: _read_spelling(value) for name, value in answer["special_tokens"].items()}
    absent: Iterable[str] = answer["absent"].texts()
    return JinjaTemplate(
        answer["source"].text(), tokens, absent=tuple(absent), aliases_reasoning=answer["aliases_reasoning"].flag()
    )


def _read_spelling(answer: JsonValue) -> object:
    """Return the text of a special token, or a list of texts."""
    return answer.texts() if isinstance(answer.value, list) else answer.text()


_PATH = "/v1/vocabulary/encode"
_KEPT_BYTES = 64 << 20
_MAX_TEXTS = 1_000
_BYTES_OF_TOKEN = 16


class RemoteTokenizer:
    """Tokenizes plain texts by asking selectrie's server, and caches the answers.

    It may be called from any thread but that of the transport.

    Args:
        transport: The connection.
        model: Name of the model.
    """

    def __init__(self, transport: Transport, model: str) -> None:
        self._transport, self._model = transport, model
        self._lock = threading.Lock()
        # Roughly 200 bytes, and what the text and its tokens take.
        self._cache: SizedCache[tuple[str, bytes], list[int] | bytes | str] = SizedCache(
            _KEPT_BYTES, lambda key, found: 200 + len(key[1]) + 8 * len(found)
        )

    def begin(self, text: bytes, /) -> list[int]:
        """Return the tokens of a text at the beginning of a context.

        Raises `TextError` if it cannot be encoded.
        """
        return self._tokens(text, BEGIN)

    def inside(self, text: bytes, /) -> list[int]:
        """Return the tokens of a text that continues another one, as `begin` does."""
        return self._tokens(text, INSIDE)

    def normalize(self, text: str) -> str:
        """Return a text as the tokenizer normalises it."""
        found = self._encode(text.encode(), NORMALIZE)
        return found.decode() if isinstance(found, bytes) else text

    def prefetch(self, texts: Sequence[bytes]) -> None:
        """Cache the tokens of many texts, with few requests."""
        for start in range(0, len(texts), _MAX_TEXTS):
            part = list(dict.fromkeys(texts[start : start + _MAX_TEXTS]))
            answers = self._request(part, BEGIN)
            with self._lock:
                for text, found in zip(part, answers, strict=True):
                    self._cache.put((BEGIN, text), found)

    def _tokens(self, text: bytes, form: str) -> list[int]:
        """Return the tokens of a text; raise `TextError` if it cannot be encoded."""
        found = self._encode(text, form)
        if isinstance(found, list):
            return list(found)
        raise TextError("text", str(found))

    def _encode(self, text: bytes, form: str) -> list[int] | bytes | str:
        """Return the tokens of a text, its normalised form, or the reason of an error.

        The result depends on `form`, and is cached.
        """
        key = (form, text)
        found = self._cache.get(key)
        if found is None:
            (found,) = self._request([text], form)
            with self._lock:
                self._cache.put(key, found)
        return found

    def _request(self, texts: Sequence[bytes], form: str) -> list[list[int] | bytes | str]:
        """Return the result of each text, asked for in one request."""
        body = {"model": self._model, "texts": [to_base64(text) for text in texts], "form": form}
        max_bytes = (1 << 20) + _BYTES_OF_TOKEN * sum(map(len, texts))
        answer = self._transport.run(lambda: self._transport.post(_PATH, body, max_bytes=max_bytes))
        if form == NORMALIZE:
            return [from_base64(one) for one in answer["texts"].sequence(len(texts))]
        reasons = answer["reasons"].sequence(len(texts))
        tokens = answer["tokens"].sequence(len(texts))
        return [_read_tokens(found, reason) for found, reason in zip(tokens, reasons, strict=True)]


def _read_tokens(tokens: JsonValue, reason: JsonValue) -> list[int] | str:
    return reason.text() if tokens.value is None else tokens.whole_numbers()


def read_tokenizer(path: Path, n_tokens: int | None = None) -> Vocabulary:
    """Return the vocabulary of a GGUF file, or of a folder with a tokenizer.

    Args:
        path: A GGUF file, which needs no weights, or a folder with a tokenizer of
            Transformers (extra `transformers`).
        n_tokens: Number of tokens of the model; None if it is unknown.

    Raises:
        OptionError: If there is no such path.
        ModelFileError: If it cannot be read.
        UnsupportedModelError: If it is a tokenizer of a kind that is not supported.
        MissingExtraError: If a folder's extra is not installed.
    """
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError):
        is_folder = is_file = False
    if is_file:
        from selectrie.backends.llama_cpp.vocabulary import open_vocabulary as of_file

        return of_file(path)
    if not is_folder:
        raise OptionError("tokenizer", str(path), "a folder with a tokenizer, `hf:owner/repo`, or a GGUF file")
    if find_spec("transformers") is None or find_spec("tokenizers") is None:
        raise MissingExtraError(f"the tokenizer in {path}", "transformers")
    from selectrie.backends.transformers.vocabulary import open_vocabulary as of_folder

    return of_folder(path, n_tokens)
