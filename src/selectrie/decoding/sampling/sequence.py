"""The state of a sequence while it is drawn.

It consists of the drawn tokens, their text, and the tokens that may come next.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence

import numpy as np

from selectrie.core.automaton import Automaton, is_any
from selectrie.core.rows import Rows
from selectrie.core.types import BoolArray, IntArray
from selectrie.decoding.sampling.detokenizer import IncrementalDetokenizer
from selectrie.errors import ProtocolError
from selectrie.results import TokenScore
from selectrie.tokenization.healing_automaton import HealedBytes

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST_BEGINNING = 3
"""Bytes of the longest UTF-8 character, minus one."""


class DrawnTokens:
    """The drawn tokens, with log-probabilities, alternatives and close draws.

    Attributes:
        logp: Log-probability of each token.
        alternatives: The most probable tokens at each step, if recorded.
        named: Log-probability of each of `named_ids` at each step, if there are any.
        close_steps: Steps whose draw the tolerance could change.
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
        return int(self._context[self._n - 1])

    def add(self, rows: Rows, i: int, token: int, *, close: bool, logp: float | None = None) -> None:
        """Record the token drawn from row i, where its log-probability may be known."""
        if close:
            self.close_steps.append(len(self))
        self.logp.append(float(rows.logp(i, token)) if logp is None else logp)
        if self._n_alternatives:
            ids, values = rows.top(i, self._n_alternatives)
            self.alternatives.append(tuple(map(self._scored, ids.tolist(), values.tolist())))
        if len(self._named_ids):
            self.named.append(tuple(rows.logp(i, self._named_ids).tolist()))
        if self._n == len(self._context):
            self._context = np.concatenate([self._context, np.zeros(max(64, self._n), dtype=np.int32)])
        self._context[self._n] = token
        self._n += 1

    def scored(self, start: int) -> tuple[TokenScore, ...]:
        """Return the tokens from step `start` on with their log-probabilities."""
        return tuple(map(self._scored, self.drawn[start:].tolist(), self.logp[start:]))

    def _scored(self, token: int, logp: float) -> TokenScore:
        piece = self._pieces[token]
        return TokenScore(token, piece, logp, "" if piece or not self._texts else self._texts[token])


class DrawnText:
    """The text of a sequence while it is drawn.

    If the prompt ends inside a UTF-8 character, the text begins with that character
    whole.

    Args:
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
        """Return whether `token`, as the next one, spells only healed bytes."""
        return 0 < len(self._pieces[token]) <= self._n_healed

    def feed(self, token: int, *, goes_on: bool = False) -> bool:
        """Add a token's bytes, and return whether they complete a stop string.

        With `goes_on`, none that is complete so far counts.
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

    An automaton gives the tokens, and end-of-generation tokens are added where it can
    end. Without an automaton, every token is allowed. `ignore_eog` excludes
    end-of-generation tokens. `HealedBytes` in place of an automaton restrict the tokens
    until they are spelt; from then on every token is allowed. Where every token is, the
    ids `late` and end-of-generation tokens are excluded until `admit_late` is called.

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
        self._look()

    def advance(self, token: int) -> None:
        """Go to the next state by a token that was allowed."""
        if self._automaton is not None:
            self._state = self._automaton.advance(self._state, token)
            if isinstance(self._automaton, HealedBytes) and self._automaton.is_spelt(self._state):
                self._automaton = None
            self._look()

    def admit_late(self) -> None:
        """Allow the ids that were excluded at first."""
        if self._early is not None:
            self._early = None
            self._look()

    def _look(self) -> None:
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
