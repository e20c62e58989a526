"""Reads prompts that differ in one text; the rest is rendered and encoded once.

The tokens are those of `read_prompt`. The fixed tokens and the text after them may be
cut elsewhere, at a position where both sides are encoded separately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from selectrie.core.tracked_text import VALUE, spans_of
from selectrie.core.types import IntArray
from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.options import DEFAULT_PROMPTING, PromptParams
from selectrie.tokenization.canonical import settled_positions
from selectrie.tokenization.encoding import PromptText, encode_after, encode_prompt
from selectrie.tokenization.prompts import render_chat, template_spans, time_of, with_bos

_MIN_FIXED = 64
"""Bytes before the text from which it is worthwhile to encode them once."""
_SAMPLES = ("0", "A b.", "\n", "é ")
"""Texts with which a frame must read what `read_prompt` reads."""

Read = Callable[[str], PromptText]


@dataclass(frozen=True, slots=True, eq=False)
class PromptFrame:
    """A prompt around a text that varies; everything else is rendered and encoded once.

    Attributes:
        vocabulary: The vocabulary.
        head: int32[], the tokens before `before`.
        before, behind: Bytes around the text, encoded with it.
        tail: int32[], the tokens after `behind`.
        rest: The text after these, which is encoded with the choices.
        continues: As in `PromptText`.
        renders: Returns whether the chat with a text is rendered as the frame expects;
            None for a page.
        time: As in `PromptText`.
        page: The bytes of a page around the text; None for a chat.
    """

    vocabulary: Vocabulary
    head: IntArray
    before: bytes
    behind: bytes
    tail: IntArray
    rest: bytes
    continues: bool
    renders: Callable[[str], bool] | None
    time: str = ""
    page: tuple[bytes, bytes] | None = None

    def read(self, text: str) -> PromptText | None:
        """Return the prompt with this text; None if the frame is not valid for it."""
        if self.renders is not None and not self.renders(text):
            return None
        data = to_bytes(text, "prompt")
        own = self.vocabulary.encode(self.before + data + self.behind)
        spelled = () if self.page is None else self.vocabulary.controls_spelled(data.join(self.page))
        tokens = np.concatenate([self.head, own, self.tail])
        return PromptText(tokens, self.rest, self.continues, time=self.time, spelled=spelled)


def page_frame(vocabulary: Vocabulary, before: str, behind: str, read: Read) -> PromptFrame | None:
    """Return the frame of a page: a text between two fixed ones.

    None if the end of the page cannot be encoded apart from the text.

    Args:
        vocabulary: The vocabulary.
        before, behind: The page around the text.
        read: Reads the page about a text, as `read_prompt` does.
    """
    if _is_difficult(vocabulary):
        return None
    first, last = to_bytes(before, "prompt"), to_bytes(behind, "prompt")
    cuts = [at for at in settled_positions(vocabulary, last) if not vocabulary.joins(last[at - 1], last[at])]
    if not cuts:
        return None
    head, start = _encode_start(vocabulary, first)
    cut = cuts[0]
    frame = PromptFrame(
        vocabulary,
        head=with_bos(vocabulary, head, DEFAULT_PROMPTING),
        before=start,
        behind=last[:cut],
        tail=head[:0],
        rest=last[cut:],
        continues=False,
        renders=None,
        page=(first, last),
    )
    return frame if _agrees(frame, read) else None


def chat_frame(
    vocabulary: Vocabulary,
    messages: Callable[[str], Sequence[Mapping[str, str]]],
    prompting: PromptParams,
    mark: str,
    read: Read,
) -> PromptFrame | None:
    """Return the frame of a chat in which a text occurs once.

    The chat template is rendered for each text, without the origins of characters. If
    it does anything else with a text than to write it, `PromptFrame.read` returns None.

    Args:
        vocabulary: The vocabulary.
        messages: Returns the chat about a text.
        prompting: Options of the chat template.
        mark: A text that occurs nowhere else in the chat.
        read: Reads the chat about a text, as `read_prompt` does.
    """
    template = vocabulary.chat_template
    if _is_difficult(vocabulary) or template is None or prompting.system is not None:
        return None
    args, sign = dict(prompting.template_args), mark.encode()
    rendered = render_chat(template, [dict(one) for one in messages(mark)], args)
    if rendered.count(mark) != 1 or not any(mark in text and kind == VALUE for text, kind in spans_of(rendered)):
        return None
    spans = [*template_spans(vocabulary, rendered), (prompting.assistant_prefix.encode(), False)]
    at = next(at for at, (text, _) in enumerate(spans) if sign in text)
    left, right = spans[at][0].split(sign)
    head, before = vocabulary.encode_spans([*spans[:at], (left, False)])
    behind, rest = vocabulary.encode_spans([(right, False), *spans[at + 1 :]])
    controls = np.flatnonzero(np.isin(behind, vocabulary.control))
    if not len(controls):
        return None
    expected = read(mark).text
    if rest != expected and rest.endswith(expected):
        fixed = np.asarray(encode_after(vocabulary, behind, rest.removesuffix(expected)), dtype=np.int32)
        behind = np.concatenate([behind, fixed])
        rest = expected
    n = int(controls[0])
    start, before = _encode_start(vocabulary, before)
    head = np.concatenate([head, start])
    whole = str(rendered)
    begins, ends = whole.split(mark)

    def renders(text: str) -> bool:
        return template([dict(one) for one in messages(text)], **args) == f"{begins}{text}{ends}"

    frame = PromptFrame(
        vocabulary,
        head=with_bos(vocabulary, head, prompting) if vocabulary.bos_in_chats else head,
        before=before,
        behind=vocabulary.decode(behind[:n]),
        tail=behind[n:],
        rest=rest,
        continues=True,
        renders=renders,
        time=time_of(prompting),
    )
    return frame if _agrees(frame, read) else None


def _is_difficult(vocabulary: Vocabulary) -> bool:
    """Return whether text may have other tokens between texts than by itself."""
    strips = len(vocabulary.strips_left) + len(vocabulary.strips_right)
    return vocabulary.space_prefix or vocabulary.normalize is not None or strips > 0


def _encode_start(vocabulary: Vocabulary, text: bytes) -> tuple[IntArray, bytes]:
    """Encode the beginning of a text up to a settled position.

    Returns the tokens and the rest of the text.
    """
    if len(text) >= _MIN_FIXED:
        for position in settled_positions(vocabulary, text):
            return vocabulary.encode(text[:position]), text[position:]
    return vocabulary.encode(b""), text


def _agrees(frame: PromptFrame, read: Read) -> bool:
    """Return whether a frame gives the tokens that `read` gives, for sample texts.

    A text that the frame does not handle (None) is left to `read` and does not count.
    """
    for text in _SAMPLES:
        found, expected = frame.read(text), read(text)
        if found is not None and not np.array_equal(
            encode_prompt(frame.vocabulary, found), encode_prompt(frame.vocabulary, expected)
        ):
            return False
    return True
