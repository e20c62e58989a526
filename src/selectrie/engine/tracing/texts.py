"""Records and replays the results of a model's tokenizer and chat template.

Neither can be rebuilt from a vocabulary. So a trace holds each text with its tokens,
and each chat with the text that the template made of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import repeat

import numpy as np

from selectrie.core.tracked_text import TrackedText, spans_of
from selectrie.core.vocabulary import ChatTemplate, Tokenize, Vocabulary
from selectrie.errors import MissingTextError, OptionError, PromptError, TextError, TraceFileError
from selectrie.traces.reader import Trace
from selectrie.traces.records import Encoding, Normalized, PayloadError, Rendered, TraceRecord
from selectrie.traces.vocabulary import TextFunctions, vocabulary_of

_SHORT = 32
"""Maximum length in bytes of a text that is kept; of longer ones the digest is."""
_MAX_DEPTH = 32
_NO_IDS = np.empty(0, dtype=np.int32)


class Journal:
    """Adds each text to a trace, once, with its tokens or its rendering.

    Args:
        add: Adds a record to the trace; any thread may call it.
        chat_time: The current time that chat templates get in all requests, or "".
    """

    def __init__(self, add: Callable[[TraceRecord], None], chat_time: str) -> None:
        self._add, self._chat_time = add, chat_time
        self._seen: set[bytes] = set()

    def recording_vocabulary(self, vocabulary: Vocabulary) -> Vocabulary:
        """Return a vocabulary with the same tokens whose text functions add records."""
        spacing = vocabulary.spacing
        if spacing is not None:
            spacing = replace(spacing, encode_inside=self._recording_tokenizer(spacing.encode_inside, is_inside=True))
        chat, normalize = vocabulary.chat_template, vocabulary.normalize
        return vocabulary.with_functions(
            tokenize=self._recording_tokenizer(vocabulary.tokenize, is_inside=False),
            spacing=spacing,
            normalize=None if normalize is None else self._recording_normalizer(normalize),
            chat_template=None if chat is None else self._recording_template(chat),
            chat_time=self._chat_time,
            on_encoded=self._note_encoding,
        )

    def _is_new(self, kind: bytes, key: bytes) -> bool:
        """Return whether a text of a kind is seen for the first time, and note it."""
        known = kind + key if len(key) <= _SHORT else blake2b(kind + key, digest_size=_SHORT).digest()
        if known in self._seen:
            return False
        self._seen.add(known)
        return True

    def _note_encoding(self, text: bytes, ids: Sequence[int]) -> None:
        """Add a text with its tokens to the trace, unless it is there."""
        if self._is_new(b"b", text):
            self._add(Encoding(is_inside=False, text=_bytes(text), ids=np.array(ids, dtype=np.int32)))

    def _recording_tokenizer(self, tokenize: Tokenize, *, is_inside: bool) -> Tokenize:
        """Return `tokenize` with a record of each new text, its ids or its error."""

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

    def _recording_normalizer(self, normalize: Callable[[str], str]) -> Callable[[str], str]:
        """Return `normalize` with a record of each new text and its result."""

        def record_normalized(text: str) -> str:
            result = normalize(text)
            data = text.encode("utf-8", "surrogatepass")
            if self._is_new(b"n", data):
                self._add(Normalized(_bytes(data), _bytes(result.encode("utf-8", "surrogatepass"))))
            return result

        return record_normalized

    def _recording_template(self, chat: ChatTemplate) -> ChatTemplate:
        """Return a chat template with a record of each new chat, its text or error."""

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
    """Return the 16-byte digest of a chat's messages and template arguments."""
    known = json.dumps(_plain([[*messages], dict(sorted(template_args.items()))], 0))
    return blake2b(known.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _plain(value: object, depth: int) -> object:
    """Return a value as one of JSON, equal for equal values.

    An object that has no such form becomes the names of its type and of itself.
    """
    if depth > _MAX_DEPTH:
        return "deep"
    if isinstance(value, TrackedText):
        return [str.__str__(value), [[len(text), origin] for text, origin in spans_of(value)]]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {"pairs": [[_plain(key, depth + 1), _plain(one, depth + 1)] for key, one in value.items()]}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_plain(one, depth + 1) for one in value]
    return [type(value).__qualname__, getattr(value, "__qualname__", "")]


def rendered_record(key: bytes, text: str) -> Rendered:
    """Return the record of a chat, from its `chat_key` and its rendered text."""
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


def replayed_vocabulary(trace: Trace, tokenizer: Vocabulary | None) -> Vocabulary:
    """Return the vocabulary with which a trace is replayed.

    Args:
        trace: The trace.
        tokenizer: The vocabulary of the same model, which tokenizes any text. None
            means the recorded one, with which texts that were not recorded raise
            `MissingTextError`.

    Raises:
        OptionError: If the trace has no vocabulary and none is given, or if
            `tokenizer` differs from the one that was recorded.
        TraceFileError: If the recorded vocabulary is damaged.
    """
    header = trace.header
    if tokenizer is not None:
        if tokenizer.digest != header.vocabulary_digest:
            expected = f"that of the model that was recorded, whose digest is {header.vocabulary_digest}"
            raise OptionError("tokenizer", tokenizer.digest, expected)
        return tokenizer.at_time(_chat_time(trace))
    if not header.has_vocabulary:
        expected = "the model's tokenizer, because the trace was recorded without its vocabulary"
        raise OptionError("tokenizer", None, expected)
    try:
        if trace.specials is None:
            raise PayloadError("it ends before its vocabulary")  # noqa: TRY301 - as the checks
        vocabulary = vocabulary_of(trace.tokens, trace.specials, header.n_tokens, _replayed_functions(trace))
        if vocabulary.digest != header.vocabulary_digest:
            raise PayloadError("its vocabulary has another digest")  # noqa: TRY301 - as above
    except (PayloadError, UnicodeError) as error:
        raise TraceFileError(str(trace.path), str(error)) from error
    return vocabulary.at_time(_chat_time(trace))


def _chat_time(trace: Trace) -> str:
    """Return the current time that chat templates got; "" for traces without it."""
    try:
        versions = json.loads(trace.header.versions)
    except ValueError:
        return ""
    time = versions.get("chat_time") if isinstance(versions, dict) else None
    return time if isinstance(time, str) else ""


def _replayed_functions(trace: Trace) -> TextFunctions:
    """Return functions of a vocabulary that look their results up in a trace."""
    return TextFunctions(
        tokenize=_replayed_tokenizer(trace, trace.encodings),
        encode_inside=_replayed_tokenizer(trace, trace.inside),
        normalize=_replayed_normalizer(trace),
        chat_template=_replayed_template(trace),
    )


def _replayed_tokenizer(trace: Trace, known: Mapping[bytes, list[int] | str]) -> Callable[[bytes], list[int]]:
    """Return a tokenizer that looks up ids, or the message of an error, in `known`.

    It raises `MissingTextError` for other texts.
    """

    def encode(text: bytes, /) -> list[int]:
        found = known.get(text)
        if found is None:
            raise MissingTextError(text.decode("utf-8", "backslashreplace"), str(trace.path))
        if isinstance(found, str):
            raise TextError("text", found)
        return [*found]

    return encode


def _replayed_normalizer(trace: Trace) -> Callable[[str], str]:
    """Return a normaliser that looks texts up in the trace."""

    def normalize(text: str) -> str:
        found = trace.normalized.get(text.encode("utf-8", "surrogatepass"))
        if found is None:
            raise MissingTextError(text, str(trace.path))
        return found.decode("utf-8", "replace")

    return normalize


def _replayed_template(trace: Trace) -> ChatTemplate:
    """Return a chat template that looks chats up in the trace."""

    def render(messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
        found = trace.chats.get(chat_key(messages, template_args))
        if found is None:
            raise MissingTextError("", str(trace.path))
        return rendered_text(found)

    return render


def rendered_text(chat: Rendered) -> str:
    """Return the text of a recorded chat, or raise the recorded `PromptError`."""
    if chat.error:
        raise PromptError(chat.error)
    text = chat.text.tobytes().decode("utf-8", "replace")
    if not chat.is_tracked:
        return text
    spans = zip(chat.origins.tolist(), chat.span_lengths.tolist(), strict=True)
    return TrackedText(text, b"".join(bytes(repeat(origin, length)) for origin, length in spans))
