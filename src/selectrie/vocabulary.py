"""Token id <-> bytes, special ids, plain and chat text -> tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from selectrie.types import IntArray


class Tokenize(Protocol):
    """The back end's tokenizer: bytes of UTF-8 -> ids, plain text only: no BOS or EOS, no control token recognised."""

    def __call__(self, text: bytes) -> list[int]: ...


class ChatTemplate(Protocol):
    """The model's own chat template: messages -> one text, generation prompt included."""

    def __call__(self, messages: Sequence[Mapping[str, object]], **template_args: object) -> str: ...


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """What a model reads and writes.

    pieces: bytes of each token as text; b"" for control and unused tokens.
    texts: spelling of each token, control tokens included (`<|im_end|>`).
    bos: id put before a prompt, or None where the model says that none is added. eos: end-of-sequence id or None.
    eog: int32[], all end-of-generation ids. control: int32[], ids never made from user text.
    space_prefix: a space is put before text (SentencePiece); its piece is longer than the text by one byte.
    digest: of pieces, texts and specials.
    """

    pieces: tuple[bytes, ...]
    texts: tuple[str, ...]
    bos: int | None
    eos: int | None
    eog: IntArray
    control: IntArray
    space_prefix: bool
    tokenize: Tokenize = field(repr=False)
    chat_template: ChatTemplate | None = field(default=None, repr=False)
