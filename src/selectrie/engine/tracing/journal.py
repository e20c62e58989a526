"""Keeps what a model's tokenizer and chat template are asked while a trace is recorded.

Neither can be rebuilt from a vocabulary. So a trace holds each text with its tokens,
and each chat with what the template made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from selectrie.core.tracked_text import TrackedText, spans_of
from selectrie.core.vocabulary import ChatTemplate, Tokenize, Vocabulary
from selectrie.engine.tracing.subjects import subject_digest
from selectrie.errors import PromptError, TextError
from selectrie.traces.records import Encoding, Normalized, Record, Rendered

_SHORT = 32
"""Number of bytes of a text above which its digest is kept, and of the digest."""
_NO_IDS = np.empty(0, dtype=np.int32)


class Journal:
    """Adds each text to a trace, once, with what became of it.

    Args:
        add: Adds a record to the trace; any thread may call it.
        chat_time: The time that the chat template is told in all requests.
    """

    def __init__(self, add: Callable[[Record], None], chat_time: str) -> None:
        self._add, self._chat_time = add, chat_time
        self._seen: set[bytes] = set()

    def kept(self, vocabulary: Vocabulary) -> Vocabulary:
        """Return the same vocabulary, whose text functions add to the trace."""
        spacing = vocabulary.spacing
        if spacing is not None:
            spacing = replace(spacing, encode_inside=self._encoding(spacing.encode_inside, is_inside=True))
        chat, normalize = vocabulary.chat_template, vocabulary.normalize
        return vocabulary.with_functions(
            tokenize=self._encoding(vocabulary.tokenize, is_inside=False),
            spacing=spacing,
            normalize=None if normalize is None else self._normalizing(normalize),
            chat_template=None if chat is None else self._rendering(chat),
            chat_time=self._chat_time,
            on_encoded=self._note_encoding,
        )

    def _is_new(self, kind: bytes, key: bytes) -> bool:
        known = kind + key if len(key) <= _SHORT else blake2b(kind + key, digest_size=_SHORT).digest()
        if known in self._seen:
            return False
        self._seen.add(known)
        return True

    def _note_encoding(self, text: bytes, ids: Sequence[int]) -> None:
        if self._is_new(b"b", text):
            self._add(Encoding(is_inside=False, text=_bytes(text), ids=np.array(ids, dtype=np.int32)))

    def _encoding(self, tokenize: Tokenize, *, is_inside: bool) -> Tokenize:
        def encode(text: bytes, /) -> list[int]:
            is_new = self._is_new(b"i" if is_inside else b"b", text)
            try:
                ids = tokenize(text)
            except TextError as error:
                if is_new:
                    self._add(Encoding(is_inside, _bytes(text), _NO_IDS, error.reason))
                raise
            if is_new:
                self._add(Encoding(is_inside, _bytes(text), np.array(ids, dtype=np.int32)))
            return ids

        return encode

    def _normalizing(self, normalize: Callable[[str], str]) -> Callable[[str], str]:
        def normalized(text: str) -> str:
            result = normalize(text)
            data = text.encode("utf-8", "surrogatepass")
            if self._is_new(b"n", data):
                self._add(Normalized(_bytes(data), _bytes(result.encode("utf-8", "surrogatepass"))))
            return result

        return normalized

    def _rendering(self, chat: ChatTemplate) -> ChatTemplate:
        def render(messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
            key = chat_key(messages, template_args)
            is_new = self._is_new(b"c", key)
            try:
                text = chat(messages, **template_args)
            except PromptError as error:
                if is_new:
                    self._add(Rendered(_bytes(key), _bytes(b""), _NO_IDS, _bytes(b""), str(error)))
                raise
            if is_new:
                self._add(rendered_record(key, text))
            return text

        return render


def chat_key(messages: Sequence[Mapping[str, object]], template_args: Mapping[str, object]) -> bytes:
    """Return the 16 bytes by which a chat is known: those of messages and arguments."""
    return bytes.fromhex(subject_digest(([*messages], dict(sorted(template_args.items())))))


def rendered_record(key: bytes, text: str) -> Rendered:
    """Return the record of a chat that was rendered."""
    data = _bytes(str.encode(text, "utf-8", "surrogatepass"))
    if not isinstance(text, TrackedText):
        return Rendered(_bytes(key), data, _NO_IDS, _bytes(b""))
    spans = spans_of(text)
    return Rendered(
        _bytes(key),
        data,
        np.array([len(part) for part, _ in spans], dtype=np.int32),
        np.array([origin for _, origin in spans], dtype=np.uint8),
        is_tracked=True,
    )


def _bytes(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, dtype=np.uint8)
