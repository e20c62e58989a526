"""The state of a sequence while it is drawn, and its text so far."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence

import numpy as np

from selectrie.core.automaton import Automaton, is_any
from selectrie.core.rows import Rows
from selectrie.core.types import BoolArray, IntArray
from selectrie.errors import OptionError, ProtocolError
from selectrie.results import TokenScore
from selectrie.tokenization.healing import HealedBytes

_CHARACTER_LENGTHS = {0xC: 2, 0xD: 2, 0xE: 3, 0xF: 4}
"""Number of bytes of a UTF-8 character, by the upper half of its first byte."""
_SECOND_BYTES = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}
"""Range of the second byte where it is narrower than 80..BF (Unicode 15, table 3-7)."""


class IncrementalDetokenizer:
    """Turns a byte stream into text, and ends it before the first stop string.

    The emitted text depends only on the bytes fed so far, never on how they were cut
    into pieces:

    * The stream ends where a stop string is first **complete** (of "abcd" and "bc" in
      `abcd`, that is "bc"). If several are complete at that byte, the longest one
      counts. Neither that stop string nor anything after it is text. A stop string that
      is complete within bytes that were fed with `goes_on` is text.
    * Held back are the longest end of the stream that begins a stop string and, before
      it, an incomplete UTF-8 character.
    * Bytes that are not UTF-8 become U+FFFD as in `bytes.decode("utf-8", "replace")`:
      one for each maximal part of a character (Unicode 15, section 3.9, "U+FFFD
      substitution of maximal subparts").
    * An incomplete character before the stop string, or at the end, is not text.

    A byte costs a step for each stop string that may begin or go on there, whatever the
    length of the strings.

    Args:
        stop: Byte strings; an empty one raises `OptionError`.
    """

    def __init__(self, stop: Sequence[bytes]) -> None:
        self._stops = tuple(dict.fromkeys(stop))
        if b"" in self._stops:
            raise OptionError("stop", b"", "stop strings that are not empty")
        self._matchers = [_Matcher(one) for one in self._stops]
        self._data = bytearray()
        self._n_passed = 0
        self._finished = False
        self._stopped: bytes | None = None

    @property
    def stopped(self) -> bytes | None:
        """Return the stop string that ended the stream, or None."""
        return self._stopped

    @property
    def data(self) -> bytes:
        """Return all bytes before the stop string, including those held back."""
        return bytes(self._data)

    def feed(self, piece: bytes, *, goes_on: bool = False) -> str:
        """Add bytes and return the text that is certain now, often "".

        Raises `ProtocolError` after the end.

        Args:
            piece: The bytes.
            goes_on: Whether stop strings that are complete now do not end the stream.
        """
        if self._finished:
            raise ProtocolError("fed bytes after the end of the text")
        self._data += piece
        matchers = [one for one in self._matchers if one.n or one.stop[0] in piece]
        for end, byte in enumerate(piece if matchers else b"", len(self._data) - len(piece) + 1):
            complete = [one.stop for one in matchers if one.feed(byte)]
            if complete and not goes_on:
                self._stopped = max(complete, key=len)
                del self._data[end - len(self._stopped) :]
                return self.finish()
        return self._emit(len(self._data) - max((one.n for one in matchers), default=0))

    def finish(self) -> str:
        """End the stream and return the text held back for a possible stop string.

        Returns "" if the stream has already ended.
        """
        self._finished = True
        return self._emit(len(self._data))

    def _emit(self, end: int) -> str:
        """Return the bytes up to `end` that were not returned before, as text.

        An incomplete character at the end is left out.
        """
        new = bytes(self._data[self._n_passed : end])
        new = new[: len(new) - n_incomplete(new)]
        self._n_passed += len(new)
        return new.decode("utf-8", "replace")


class _Matcher:
    """Finds a stop string in a stream (Knuth, Morris and Pratt 1977).

    Borders of prefixes are computed when the prefixes are reached, so a long stop
    string that does not occur costs nothing.

    Attributes:
        stop: The stop string.
        n: Length of the longest proper prefix of it with which the stream ends.
    """

    def __init__(self, stop: bytes) -> None:
        self.stop, self.n = stop, 0
        self._borders = [0, 0]  # of each beginning: its longest proper end that begins it

    def feed(self, byte: int) -> bool:
        """Add a byte; return whether the stop string is complete with it."""
        n = self._matched_length(self.n, byte)
        if n == len(self._borders):
            self._borders.append(self._matched_length(self._borders[n - 1], byte))
        is_complete = n == len(self.stop)
        self.n = self._borders[n] if is_complete else n
        return is_complete

    def _matched_length(self, n: int, byte: int) -> int:
        """Return the length of the match after a byte, if it was n before."""
        while n and self.stop[n] != byte:
            n = self._borders[n]
        return n + (self.stop[n] == byte)


def n_incomplete(data: bytes) -> int:
    """Return the number of bytes at the end of `data` that begin a UTF-8 character.

    They lack the rest of the character. Python's incremental decoder would also keep
    the beginning of a surrogate, which cannot become a character.
    """
    for n in range(1, min(3, len(data)) + 1):
        lead = data[-n]
        if lead >= 0xC0:
            lacks = n < (_CHARACTER_LENGTHS[lead >> 4] if 0xC2 <= lead <= 0xF4 else 0)
            low, high = _SECOND_BYTES.get(lead, (0x80, 0xBF))
            return n if lacks and (n == 1 or low <= data[1 - n] <= high) else 0
        if lead < 0x80:
            return 0
    return 0


_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST_BEGINNING = 3
"""Maximum number of bytes of an incomplete UTF-8 character."""


class DrawnTokens:
    """The drawn tokens of a sequence, with log-probabilities and alternatives.

    Attributes:
        logp: Log-probability of each token.
        alternatives: The most probable tokens at each step, if recorded.
        named: Log-probability of each of `named_ids` at each step, if there are any.
        close_steps: Steps whose draw a change within the tolerance could change.

    Args:
        prompt: int32[T], the tokens before the sequence.
        pieces, texts: Bytes and spelling of every token of the vocabulary.
        n_alternatives: Number of most probable tokens to record at each step.
        named_ids: Tokens whose log-probabilities are recorded at each step.
    """

    def __init__(
        self,
        prompt: IntArray,
        pieces: Sequence[bytes],
        texts: Sequence[str],
        n_alternatives: int,
        named_ids: Sequence[int] = (),
    ) -> None:
        self._pieces, self._texts, self._n_alternatives = pieces, texts, n_alternatives
        self._named_ids: IntArray = np.asarray(named_ids, dtype=np.int32)
        self._n_prompt = self._n = len(prompt)
        self._context: IntArray = np.array(prompt, dtype=np.int32)
        self.logp: list[float] = []
        self.alternatives: list[tuple[TokenScore, ...]] = []
        self.named: list[tuple[float, ...]] = []
        self.close_steps: list[int] = []

    def __len__(self) -> int:
        return self._n - self._n_prompt

    @property
    def context(self) -> IntArray:
        """Return the prompt and the tokens drawn so far, int32[T], read-only."""
        view = self._context[: self._n]
        view.flags.writeable = False
        return view

    @property
    def drawn(self) -> IntArray:
        """Return the drawn tokens without the prompt, int32[n], as a view."""
        return self._context[self._n_prompt : self._n]

    @property
    def last(self) -> int:
        """Return the last token, of the prompt if none was drawn."""
        return int(self._context[self._n - 1])

    def add(self, rows: Rows, i: int, token: int, *, close: bool, logp: float | None = None) -> None:
        """Record a token drawn from row i.

        Args:
            rows, i: The row.
            close: Whether a change within the tolerance could change the draw.
            logp: Its log-probability; None to read it from the row.
        """
        if close:
            self.close_steps.append(len(self))
        self.logp.append(float(rows.logp(i, token)) if logp is None else logp)
        if self._n_alternatives:
            ids, values = rows.top(i, self._n_alternatives)
            self.alternatives.append(tuple(map(self._token_score, ids.tolist(), values.tolist())))
        if len(self._named_ids):
            self.named.append(tuple(rows.logp(i, self._named_ids).tolist()))
        if self._n == len(self._context):
            self._context = np.concatenate([self._context, np.zeros(max(64, self._n), dtype=np.int32)])
        self._context[self._n] = token
        self._n += 1

    def token_scores(self, start: int) -> tuple[TokenScore, ...]:
        """Return the tokens from step `start` on with their log-probabilities."""
        return tuple(map(self._token_score, self.drawn[start:].tolist(), self.logp[start:]))

    def _token_score(self, token: int, logp: float) -> TokenScore:
        """Return a token with its probability; its spelling only if it has no bytes."""
        piece = self._pieces[token]
        return TokenScore(token, piece, logp, "" if piece or not self._texts else self._texts[token])


class DrawnText:
    """The text of a sequence while it is drawn.

    If the prompt ends inside a UTF-8 character, the text begins with that character
    whole.

    Args:
        prompt: int32[T], the prompt's tokens.
        pieces: Bytes of every token.
        stop: Stop strings.
        healed: Bytes of the prompt that the first tokens spell again; they are not part
            of the text.
    """

    def __init__(self, prompt: IntArray, pieces: Sequence[bytes], stop: Sequence[str], healed: bytes = b"") -> None:
        self._pieces = pieces
        self._n_healed = len(healed)
        self._prompt_bytes = _incomplete_character(prompt, pieces, healed)
        self._emitter = IncrementalDetokenizer([text.encode() for text in stop])
        self._emitter.feed(self._prompt_bytes)
        self._is_inside = len(self._prompt_bytes) > 0
        self.text = ""
        self._n_read = 0

    @property
    def data(self) -> bytes:
        """Return the drawn bytes, up to a stop string."""
        return self._emitter.data[len(self._prompt_bytes) :]

    @property
    def stop(self) -> str | None:
        """Return the stop string that was found, or None."""
        return None if self._emitter.stopped is None else self._emitter.stopped.decode()

    def only_heals(self, token: int) -> bool:
        """Return whether `token`, if it comes next, spells only healed bytes."""
        return 0 < len(self._pieces[token]) <= self._n_healed

    def feed(self, token: int, *, goes_on: bool = False) -> bool:
        """Add a token's bytes, and return whether a stop string has ended the text.

        With `goes_on`, stop strings that are complete now do not end it.
        """
        piece = self._pieces[token]
        new, self._n_healed = piece[self._n_healed :], max(0, self._n_healed - len(piece))
        self._add(self._emitter.feed(new, goes_on=goes_on))
        return self._emitter.stopped is not None

    def end(self) -> None:
        """Add the text that was held back for a possible stop string."""
        self._add(self._emitter.finish())

    def new(self) -> str:
        """Return the text that was added since the last call."""
        new, self._n_read = self.text[self._n_read :], len(self.text)
        return new

    def _add(self, text: str) -> None:
        """Add text, without U+FFFD for a broken character that the prompt began."""
        if self._is_inside and text:
            self._is_inside = False
            if text.startswith(_REPLACEMENT) and not self._emitter.data.startswith(_REPLACEMENT.encode()):
                text = text[1:]
        self.text += text


def _incomplete_character(prompt: IntArray, pieces: Sequence[bytes], healed: bytes) -> bytes:
    """Return the bytes of an incomplete UTF-8 character at the end of a prompt.

    Healed bytes are included. b"" if the prompt ends with a control token.
    """
    tail = healed
    for token in reversed(prompt.tolist()):
        if len(tail) >= _LONGEST_BEGINNING:
            break
        piece = pieces[token]
        tail = piece + tail
        if not piece or len(tail) >= _LONGEST_BEGINNING:
            break
    decoder = getincrementaldecoder("utf-8")("replace")
    decoder.decode(tail[-_LONGEST_BEGINNING:])
    return decoder.getstate()[0]


class AllowedTokens:
    """Tells which tokens may be drawn next.

    With an automaton, they are the tokens that it allows, and end-of-generation tokens
    where it can end. Without one, every token is allowed.

    Args:
        n_vocabulary: Number of token ids.
        eog: int32[], end-of-generation tokens.
        automaton: The automaton. `HealedBytes` restrict the tokens until they are
            spelt; from then on every token is allowed.
        ignore_eog: Whether end-of-generation tokens are excluded.
        late: Ids that are excluded, with end-of-generation tokens, until `admit_late`
            is called; only without an automaton.

    Attributes:
        allowed: bool[V] or int32[] ids, the tokens that may be drawn next; None for
            all.
        is_over: Whether the sequence ends here.
        is_constant: Whether `allowed` stays as it is, whatever is drawn.
    """

    def __init__(
        self,
        n_vocabulary: int,
        eog: IntArray,
        automaton: Automaton | HealedBytes | None,
        *,
        ignore_eog: bool,
        late: Sequence[int] | None = None,
    ) -> None:
        self._automaton, self._eog = automaton, np.unique(eog).astype(np.int32)
        self._ignores_eog = ignore_eog
        self._no_eog: BoolArray = np.ones(n_vocabulary, dtype=np.bool_)
        self._no_eog[self._eog] = False
        self._early: BoolArray | None = None
        if late is not None:
            self._early = self._no_eog.copy()
            self._early[np.asarray(late, dtype=np.int32)] = False
        self._state = 0
        if self._automaton is not None:
            self._state = self._automaton.start()
        self._update_allowed()

    def advance(self, token: int) -> None:
        """Go to the next state by a token that was allowed."""
        if self._automaton is not None:
            self._state = self._automaton.advance(self._state, token)
            if isinstance(self._automaton, HealedBytes) and self._automaton.is_spelt(self._state):
                self._automaton = None
            self._update_allowed()

    def admit_late(self) -> None:
        """Allow the tokens that were excluded by `late`."""
        if self._early is not None:
            self._early = None
            self._update_allowed()

    def _update_allowed(self) -> None:
        """Set `allowed` and `is_over` for the automaton's current state."""
        self.is_over, self.is_constant = False, self._automaton is None and self._early is None
        self.allowed: BoolArray | IntArray | None = self._no_eog if self._ignores_eog and len(self._eog) else None
        if self._automaton is None:
            self.allowed = self.allowed if self._early is None else self._early
            return
        allowed, can_end = self._automaton.allowed(self._state), self._automaton.can_end(self._state)
        is_row = allowed.dtype == np.bool_
        if self._ignores_eog:
            allowed = allowed & self._no_eog if is_row else allowed[self._no_eog[allowed]]
        self.is_over = not is_any(allowed)
        if self.is_over and not can_end:
            raise ProtocolError(f"the automaton allows nothing in state {self._state} and cannot end there")
        if can_end and not self._ignores_eog:
            allowed = allowed | ~self._no_eog if is_row else np.union1d(allowed, self._eog).astype(np.int32)
        self.allowed = allowed
