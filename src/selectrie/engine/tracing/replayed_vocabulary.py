"""The vocabulary of a trace, with the tokens of the texts that were recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat

from selectrie.core.tracked_text import TrackedText
from selectrie.core.vocabulary import ChatTemplate, Vocabulary
from selectrie.engine.tracing.journal import chat_key
from selectrie.errors import MissingTextError, OptionError, PromptError, TextError, TraceFileError
from selectrie.traces.payloads import PayloadError
from selectrie.traces.reader import Trace
from selectrie.traces.records import Rendered
from selectrie.traces.vocabulary import TextFunctions, vocabulary_of


def replayed_vocabulary(trace: Trace, tokenizer: Vocabulary | None) -> Vocabulary:
    """Return the vocabulary of a trace.

    Args:
        trace: The trace.
        tokenizer: The vocabulary of the same model, which reads any text. Without it,
            texts that were not recorded raise `MissingTextError`.

    Raises:
        OptionError: If the trace has no vocabulary and none is given, or if the one
            that is given is another one.
        TraceFileError: If the trace's own is damaged.
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
        made = vocabulary_of(trace.tokens, trace.specials, header.n_tokens, _functions(trace))
        if made.digest != header.vocabulary_digest:
            raise PayloadError("its vocabulary has another digest")  # noqa: TRY301 - as above
    except (PayloadError, UnicodeError) as error:
        raise TraceFileError(str(trace.path), str(error)) from error
    return made.at_time(_chat_time(trace))


def _chat_time(trace: Trace) -> str:
    """Return the time that chat templates were told; "" for traces without it."""
    try:
        versions = json.loads(trace.header.versions)
    except ValueError:
        return ""
    time = versions.get("chat_time") if isinstance(versions, dict) else None
    return time if isinstance(time, str) else ""


def _functions(trace: Trace) -> TextFunctions:
    return TextFunctions(
        tokenize=_encoder(trace, trace.encodings),
        encode_inside=_encoder(trace, trace.inside),
        normalize=_normalizer(trace),
        chat_template=_renderer(trace),
    )


def _encoder(trace: Trace, known: Mapping[bytes, list[int] | str]) -> Callable[[bytes], list[int]]:
    def encode(text: bytes, /) -> list[int]:
        found = known.get(text)
        if found is None:
            raise MissingTextError(text.decode("utf-8", "backslashreplace"), str(trace.path))
        if isinstance(found, str):
            raise TextError("text", found)
        return [*found]

    return encode


def _normalizer(trace: Trace) -> Callable[[str], str]:
    def normalize(text: str) -> str:
        found = trace.normalized.get(text.encode("utf-8", "surrogatepass"))
        if found is None:
            raise MissingTextError(text, str(trace.path))
        return found.decode("utf-8", "replace")

    return normalize


def _renderer(trace: Trace) -> ChatTemplate:
    def render(messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str:
        found = trace.chats.get(chat_key(messages, template_args))
        if found is None:
            raise MissingTextError("", str(trace.path))
        return rendered_text(found)

    return render


def rendered_text(chat: Rendered) -> str:
    """Return the text of a chat that was rendered, or raise its error."""
    if chat.error:
        raise PromptError(chat.error)
    text = chat.text.tobytes().decode("utf-8", "replace")
    if not chat.is_tracked:
        return text
    spans = zip(chat.origins.tolist(), chat.span_lengths.tolist(), strict=True)
    return TrackedText(text, b"".join(bytes(repeat(origin, length)) for origin, length in spans))
