r"""Says how tokens are shown in completions, and where they are in the text.

OpenAI's legacy log-probabilities show tokens as texts and places in characters, while
tokens are bytes. The rules here make both agree:

- The echoed prompt is what its tokens spell. A control token is spelled by its name, a
  space that the tokenizer adds before text is left out, and so is the BOS token that is
  put before a prompt of text.
- The place of a token is the character in which its first byte lies. Tokens that spell
  one character together have one place.
- A token that is no whole UTF-8 is shown by its bytes, as OpenAI does: `bytes:\xe2`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.sampling.sequence import n_incomplete
from selectrie.tokenization.encoding import spelled_pieces

Label = Callable[[int], str]
"""Returns how a token is shown."""


def labels_of(vocabulary: Vocabulary, *, as_ids: bool = False) -> Label:
    """Return how the tokens of a vocabulary are shown.

    With `as_ids` that is vLLM's `token_id:123`.
    """
    if as_ids:
        return "token_id:{}".format

    def label(token: int) -> str:
        piece = vocabulary.pieces[token]
        if not piece:
            return vocabulary.texts[token]
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)

    return label


@dataclass(frozen=True, slots=True)
class PromptSpelling:
    """The text of a prompt's tokens, and the place of each.

    Attributes:
        text: The text. An incomplete character at its end is U+FFFD.
        offsets: Place of each token in the text, in characters.
        tail: Bytes of that incomplete character.
    """

    text: str
    offsets: tuple[int, ...]
    tail: bytes


def spelling_of(vocabulary: Vocabulary, ids: Sequence[int], *, hides_first: bool) -> PromptSpelling:
    """Return the text of a prompt.

    Args:
        vocabulary: The vocabulary.
        ids: The prompt's tokens, which exist.
        hides_first: Whether the first token has no text, because the prompt was text
            and BOS was put before it.
    """
    pieces = spelled_pieces(vocabulary, np.asarray(ids, dtype=np.int32))
    if hides_first:
        pieces[0] = b""
    places = Places()
    offsets = tuple(map(places.add, pieces))
    return PromptSpelling(b"".join(pieces).decode("utf-8", "replace"), offsets, places.pending)


class Places:
    """Finds the place of each token of a growing text, in characters.

    Args:
        n: Number of characters before.
        tail: Bytes of an incomplete character before the text. The text begins with the
            whole character if it is completed.
        shows_broken: Whether the text begins with U+FFFD if that character is not
            completed. Otherwise it has nothing of it.
    """

    def __init__(self, n: int = 0, tail: bytes = b"", *, shows_broken: bool = False) -> None:
        self._n, self.pending, self._is_from_before = n, tail, bool(tail) and not shows_broken

    def add(self, piece: bytes) -> int:
        """Return the place of a token with these bytes, which the text gains."""
        if not piece:
            return self._n
        place = self._n
        if self.pending and not _continues(self.pending, piece[:1]):
            if self._is_from_before:
                self.pending, self._is_from_before = b"", False
            else:
                place += 1  # the incomplete character becomes U+FFFD
        data = self.pending + piece
        n_whole = len(data) - n_incomplete(data)
        self._n += len(data[:n_whole].decode("utf-8", "replace"))
        self.pending, self._is_from_before = data[n_whole:], self._is_from_before and not n_whole
        return place


class BegunCharacter:
    """Tells what drawn tokens make of a character that the prompt began.

    Args:
        tail: Bytes of the character, b"" for none.
    """

    def __init__(self, tail: bytes) -> None:
        self._data = tail

    def broken(self, pieces: Iterable[bytes], *, is_last: bool) -> str:
        """Return U+FFFD once, when the tokens with these bytes break the character off.

        With `is_last` the end of the text does too. Otherwise return "".
        """
        for piece in pieces:
            if self._data and piece:
                data = self._data + piece
                if n_incomplete(data) == len(data):
                    self._data = data
                    continue
                self._data = b""
                shown = data.decode("utf-8", "replace")[0]
                return shown if shown == "\ufffd" and not data.startswith(shown.encode()) else ""
        if self._data and is_last:
            self._data = b""
            return "\ufffd"
        return ""


def _continues(pending: bytes, byte: bytes) -> bool:
    """Return whether a byte belongs to the character that `pending` begins."""
    data = pending + byte
    if n_incomplete(data) == len(data):
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
