"""A compiled grammar and a vocabulary combined into an automaton over tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Protocol

import numpy as np

from selectrie.core.automaton import Automaton, allows, is_any
from selectrie.core.types import BoolArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import GrammarError, ProtocolError
from selectrie.grammar.machine.machine import DEAD, Recogniser
from selectrie.grammar.rules import TokenTerminal
from selectrie.grammar.token_mask import TrieWalk, byte_trie


class ByteAutomaton(Automaton, Protocol):
    """An automaton that can also be advanced by bytes."""

    def walk(self, state: int, text: bytes) -> int:
        """Return the state after the bytes `text` in any tokens; -1 if refused."""
        ...


class PrefixableAutomaton(ByteAutomaton, Protocol):
    """An automaton that a `PrefixedAutomaton` can wrap, and whose memory is known."""

    @property
    def n_bytes(self) -> int:
        """Return the memory of the automaton's tables, in bytes."""
        ...

    def allowed_after(self, state: int, prefix: bytes) -> BoolArray | IntArray:
        """Return the tokens that begin with `prefix` and continue as the state allows.

        Only the bytes after the prefix, at least one, are read from the state on. With
        b"", the result is that of `allowed`.
        """
        ...


_ENTRY_BYTES = 400
"""Memory of a cache entry beside its ids: most states allow few tokens, some none."""
_FEW = 16
"""Ids are stored as a list if at most 1/16 of the vocabulary is allowed.

Otherwise they are stored as a row of flags.
"""


class GrammarAutomaton:
    """Accepts the token paths whose bytes a machine accepts (see `Automaton`).

    States are the machine's configurations. A token is allowed if some accepted text
    continues with its bytes, even if they end inside a character. Tokens without bytes
    (control, unused) are allowed only where the grammar has a token terminal;
    end-of-generation tokens never are. The allowed tokens of a state are cached; the
    least recently used are dropped once the cache exceeds `cache_bytes`.

    Raises `GrammarError` for a token terminal that names a token which the vocabulary
    does not have.
    """

    def __init__(self, machine: Recogniser, vocabulary: Vocabulary, *, cache_bytes: int = 64 << 20) -> None:
        self._machine, self._vocabulary = machine, vocabulary
        self._trie = byte_trie(vocabulary)
        self._walk = TrieWalk(machine, self._trie)
        self._terminals = tuple([_resolve_terminal(tokens, vocabulary) for tokens in machine.token_sets])
        self._is_negated = tuple([tokens.negated for tokens in machine.token_sets])
        self._is_eog = np.zeros(vocabulary.n_tokens, dtype=np.bool_)
        self._is_eog[vocabulary.eog] = True
        self._kept: OrderedDict[tuple[int, bytes], IntArray | BoolArray] = OrderedDict()
        self._kept_bytes, self._cache_bytes = 0, cache_bytes

    def start(self) -> int:
        return self._machine.start

    def can_end(self, state: int) -> bool:
        return self._machine.can_end(state)

    def allowed(self, state: int) -> IntArray | BoolArray:
        """Return the allowed tokens (see `Automaton.allowed`).

        This takes a look-up, or a walk of the vocabulary's trie on the first visit of a
        state.
        """
        return self.allowed_after(state, b"")

    def allowed_after(self, state: int, prefix: bytes) -> IntArray | BoolArray:
        """Return the tokens that begin with `prefix` and continue as the state allows.

        Only the bytes after the prefix, at least one, are read from the state on. With
        b"", the result is that of `allowed`, token terminals included. Type and cost of
        the result are those of `allowed`.
        """
        allowed = self._kept.get((state, prefix))
        if allowed is not None:
            self._kept.move_to_end((state, prefix))
            return allowed
        allowed = self._compute_allowed(state, prefix)
        allowed.setflags(write=False)
        self._kept[state, prefix] = allowed
        self._kept_bytes += allowed.nbytes + _ENTRY_BYTES
        while self._kept_bytes > self._cache_bytes and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes + _ENTRY_BYTES
        return allowed

    def advance(self, state: int, token: int) -> int:
        """Return the state after a token (see `Automaton.advance`).

        This takes one step for each byte of the token. The allowed tokens need not be
        known.
        """
        if not 0 <= token < len(self._is_eog) or self._is_eog[token]:
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        machine = self._machine
        piece = self._vocabulary.pieces[token]
        after = machine.walk(state, piece) if piece else DEAD
        if self._terminals:
            taken = [
                machine.take_terminal(state, t)
                for t in machine.token_terminals(state)
                if (token in self._terminals[t]) != self._is_negated[t]
            ]
            reached = [each for each in (after, *taken) if each != DEAD]
            after = machine.union(reached) if len(reached) > 1 else reached[0] if reached else DEAD
        if after == DEAD:
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        return after

    def walk(self, state: int, text: bytes) -> int:
        """Return the state after the bytes `text` in any tokens; -1 if refused."""
        return self._machine.walk(state, text)

    @property
    def n_bytes(self) -> int:
        """Return the memory of the machine and of the cached results, in bytes.

        The vocabulary's trie is not counted.
        """
        return self._machine.n_bytes + self._kept_bytes + self._walk.n_bytes

    def _compute_allowed(self, state: int, prefix: bytes) -> IntArray | BoolArray:
        """Compute the result of `allowed_after` by a walk of the vocabulary's trie."""
        trie = self._trie
        node = trie.find(prefix)
        ranks, by_rank = self._walk.ranks(state, node) if node >= 0 else (np.empty(0, dtype=np.intp), None)
        terminals = () if prefix else self._machine.token_terminals(state)
        if by_rank is not None:
            flags = by_rank[trie.rank]
        else:
            ids: IntArray = np.sort(trie.token[ranks])
            if not terminals:
                return ids
            flags = np.zeros(len(trie.rank), dtype=np.bool_)
            flags[ids] = True
        flags[[token for t in terminals if not self._is_negated[t] for token in self._terminals[t]]] = True
        refused = [self._terminals[t] for t in terminals if self._is_negated[t]]
        if refused:  # all of them refuse the intersection
            others = ~self._is_eog
            others[list(frozenset.intersection(*refused))] = False
            flags |= others
        return _shorten_flags(flags)


def _shorten_flags(flags: BoolArray) -> IntArray | BoolArray:
    """Return the ids of the set flags if they are few, else the flags (bool[V])."""
    return np.flatnonzero(flags).astype(np.int32) if np.count_nonzero(flags) * _FEW <= len(flags) else flags


def _resolve_terminal(tokens: TokenTerminal, vocabulary: Vocabulary) -> frozenset[int]:
    """Return the ids of the tokens that a token terminal names."""
    named = frozenset(_id_of(each, vocabulary) for each in tokens.tokens)
    ending = [] if tokens.negated else [token for token in vocabulary.eog.tolist() if token in named]
    if ending:
        raise GrammarError(
            f"{vocabulary.texts[ending[0]]} (token {ending[0]}) ends generation in this vocabulary, "
            "so a grammar cannot require it; end the grammar there instead"
        )
    return named


def _ids_by_spelling(vocabulary: Vocabulary) -> dict[str, int]:
    """Map each spelling of a token to its id.

    If several tokens share a spelling, a control token wins, else the lowest id.
    """
    texts = vocabulary.texts
    ids = dict(zip(reversed(texts), range(len(texts) - 1, -1, -1), strict=True))
    return ids | {texts[token]: token for token in vocabulary.control.tolist()}


def _id_of(spelling: str | int, vocabulary: Vocabulary) -> int:
    """Return the id of the token with a spelling; a valid id is returned unchanged.

    If several tokens share the spelling, a control token wins.
    """
    if isinstance(spelling, int):
        if not 0 <= spelling < vocabulary.n_tokens:
            raise GrammarError(f"token {spelling} does not exist: ids run from 0 to {vocabulary.n_tokens - 1}")
        return spelling
    token_id = vocabulary.derived(_ids_by_spelling).get(spelling)
    if token_id is None:
        control = [vocabulary.texts[token] for token in vocabulary.control.tolist()]
        raise GrammarError(_unknown_token_message(spelling, list(dict.fromkeys(control))))
    return token_id


def _unknown_token_message(spelling: str, control: Sequence[str]) -> str:
    near = get_close_matches(spelling, control, n=3) or control[:8]
    return f"the vocabulary has no token {spelling}; its control tokens include {', '.join(near) or 'none'}"


_SPACE = b" "
_FRESH = -2
"""The state in which only the added space was spelled.

It is the start state of `inner`, but the text must not be empty or begin with a space.
"""


class LeadingSpaceAutomaton:
    """Accepts token paths of a tokenizer that writes a space before each text.

    A path spells a space and a text of `inner`, or the text alone if that begins
    with a space. The empty text has no path. If `inner` accepts both `a` and ` a`,
    they share the path ` a`.

    So a path is read in two ways: its first space was added, or it belongs to the
    text. State 0 is the start. Every other state stands for a pair of states of
    `inner`, one for each way; -1 in a pair means that the path cannot be read in
    that way. As a state of this automaton, -1 accepts nothing.
    """

    def __init__(self, inner: PrefixableAutomaton, vocabulary: Vocabulary) -> None:
        self._inner, self._vocabulary = inner, vocabulary
        self._spaced = self._to_flags(vocabulary.with_prefix(_SPACE))
        self._twice_spaced = self._to_flags(vocabulary.with_prefix(_SPACE * 2))
        self._spaced[vocabulary.eog] = False
        self._pairs: list[tuple[int, int]] = []
        self._state_of: dict[tuple[int, int], int] = {}
        self._flags_of: dict[int, BoolArray] = {}

    def start(self) -> int:
        return 0

    def allowed(self, state: int) -> BoolArray | IntArray:
        """Return the tokens that may come next (see `Automaton.allowed`)."""
        added, own = self._pairs[state - 1] if state else (_FRESH, DEAD)
        if state and added >= 0 and own in (DEAD, added):
            return self._inner.allowed(added)
        if state and added == DEAD:
            return self._inner.allowed(own)
        flags = self._flags_of.get(state)
        if flags is None:
            flags = self._flags_of[state] = self._allowed_by_either(added, own) if state else self._allowed_at_start()
            flags.setflags(write=False)
        return flags

    def advance(self, state: int, token: int) -> int:
        """Return the state after a token (see `Automaton.advance`)."""
        if not allows(self.allowed(state), token):
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        piece = self._vocabulary.pieces[token]
        if state:
            added, own = self._pairs[state - 1]
            if added == _FRESH:
                added = DEAD if piece[:1] == _SPACE else self._inner.start()
            return self._intern_pair(self._advance_inner(added, token), self._advance_inner(own, token))
        added = self._walk_inner(_FRESH, piece[1:]) if len(piece) > 1 else _FRESH
        return self._intern_pair(added, self._advance_inner(self._inner.start(), token))

    def can_end(self, state: int) -> bool:
        return bool(state) and any(one >= 0 and self._inner.can_end(one) for one in self._pairs[state - 1])

    def walk(self, state: int, text: bytes) -> int:
        """Return the state after the bytes `text` in any tokens; -1 if refused."""
        if not text:
            return state
        if state:
            added, own = self._pairs[state - 1]
        elif text[:1] != _SPACE:
            return DEAD
        else:
            added, own, text = _FRESH, self._inner.walk(self._inner.start(), _SPACE), text[1:]
        return self._intern_pair(self._walk_inner(added, text), self._walk_inner(own, text))

    def _walk_inner(self, state: int, text: bytes) -> int:
        """Return the state of `inner` after more bytes; `state` may be `_FRESH`."""
        if state == DEAD or not text:
            return state
        if state == _FRESH:
            # A text with a space in front has no other space added, so this way ends.
            return DEAD if text[:1] == _SPACE else self._inner.walk(self._inner.start(), text)
        return self._inner.walk(state, text)

    def _advance_inner(self, state: int, token: int) -> int:
        """Return the state of `inner` after a token, or `DEAD` if it is not allowed."""
        is_open = state != DEAD and allows(self._inner.allowed(state), token)
        return self._inner.advance(state, token) if is_open else DEAD

    def _intern_pair(self, added: int, own: int) -> int:
        """Return the state that stands for a pair of states of `inner`."""
        if added == own == DEAD:
            return DEAD
        pair = added, own
        if pair not in self._state_of:
            self._pairs.append(pair)
            self._state_of[pair] = len(self._pairs)
        return self._state_of[pair]

    def _allowed_at_start(self) -> BoolArray:
        """Return the tokens with which a path may begin, all with a leading space."""
        start = self._inner.start()
        plain = self._to_flags(self._inner.allowed(start))
        goes_on: BoolArray = self._to_flags(self._inner.allowed_after(start, _SPACE)) & ~self._twice_spaced
        flags: BoolArray = self._spaced & (plain | goes_on)
        others = (bytes([byte]) for byte in range(256) if byte != _SPACE[0])
        if is_any(plain & ~self._spaced) or any(self._inner.walk(start, other) != DEAD for other in others):
            lone = [token for token in np.flatnonzero(self._spaced) if self._vocabulary.pieces[token] == _SPACE]
            flags[lone] = True
        return flags

    def _allowed_by_either(self, added: int, own: int) -> BoolArray:
        """Return the tokens that one of the two states of a pair allows."""
        if added == _FRESH:
            flags: BoolArray = self._to_flags(self._inner.allowed(self._inner.start())) & ~self._spaced
        else:
            flags = self._to_flags(self._inner.allowed(added))
        return flags if own == DEAD else flags | self._to_flags(self._inner.allowed(own))

    def _to_flags(self, allowed: BoolArray | IntArray) -> BoolArray:
        """Return the tokens as a new bool[V]."""
        flags = np.zeros(self._vocabulary.n_tokens, dtype=np.bool_)
        flags[allowed] = True
        return flags


class PrefixedAutomaton:
    """Accepts the token paths that spell `prefix` and then a text of `inner`.

    Until the prefix is spelled, a token may be a beginning of the bytes that are left
    of it, or these bytes followed by the beginning of a text of `inner`. The prefix is
    plain text without control tokens. If no token fits, no token is allowed.

    A state is a position in the prefix (0 to its length - 1), or the length of the
    prefix plus a state of `inner`.
    """

    def __init__(self, inner: PrefixableAutomaton, vocabulary: Vocabulary, prefix: bytes) -> None:
        self._inner, self._vocabulary, self._prefix = inner, vocabulary, prefix
        self._is_eog = np.zeros(vocabulary.n_tokens, dtype=np.bool_)
        self._is_eog[vocabulary.eog] = True
        self._kept: dict[int, IntArray | BoolArray] = {}

    def start(self) -> int:
        return 0 if self._prefix else self._inner.start()

    def allowed(self, state: int) -> BoolArray | IntArray:
        """Return the tokens that may come next (see `Automaton.allowed`)."""
        if state >= len(self._prefix):
            return self._inner.allowed(state - len(self._prefix))
        allowed = self._kept.get(state)
        if allowed is None:
            allowed = self._kept[state] = self._compute_allowed(self._prefix[state:])
            allowed.setflags(write=False)
        return allowed

    def advance(self, state: int, token: int) -> int:
        """Return the state after a token (see `Automaton.advance`)."""
        n = len(self._prefix)
        if state >= n:
            return self._inner.advance(state - n, token) + n
        piece = b""
        if 0 <= token < len(self._is_eog) and not self._is_eog[token]:
            piece = self._vocabulary.pieces[token]
        after = self.walk(state, piece) if piece else DEAD
        if after == DEAD:
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        return after

    def can_end(self, state: int) -> bool:
        n = len(self._prefix)
        return state >= n and self._inner.can_end(state - n)

    def walk(self, state: int, text: bytes) -> int:
        """Return the state after the bytes `text` in any tokens; -1 if refused."""
        rest, n = self._prefix[state:], len(self._prefix)
        if state < n:
            if len(text) < len(rest):
                return state + len(text) if rest.startswith(text) else DEAD
            if not text.startswith(rest):
                return DEAD
            state, text = self._inner.start() + n, text[len(rest) :]
        after = self._inner.walk(state - n, text)
        return after + n if after != DEAD else DEAD

    def _compute_allowed(self, rest: bytes) -> IntArray | BoolArray:
        """Return the tokens that fit before `rest` of the prefix is spelled."""
        beyond = self._inner.allowed_after(self._inner.start(), rest)
        within = self._vocabulary.prefixes_of(rest + b"\0")  # includes the rest itself
        within = within[~self._is_eog[within]]
        if beyond.dtype == np.bool_:
            flags: BoolArray = beyond.astype(np.bool_)
            flags[within] = True
            return flags
        return np.union1d(within, beyond).astype(np.int32)
