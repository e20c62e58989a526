"""A compiled grammar and a vocabulary combined into an automaton over tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np

from selectrie.core.types import BoolArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import GrammarError, ProtocolError
from selectrie.grammar.machine.machine import DEAD
from selectrie.grammar.machine.recogniser import Recogniser
from selectrie.grammar.rules.expressions import TokenSet
from selectrie.grammar.tokens.byte_trie import byte_trie
from selectrie.grammar.tokens.token_mask import TrieWalk

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
        self._terminals = tuple([_resolved(tokens, vocabulary) for tokens in machine.token_sets])
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
        allowed = self._computed(state, prefix)
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

    def _computed(self, state: int, prefix: bytes) -> IntArray | BoolArray:
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
        return _short(flags)


def _short(flags: BoolArray) -> IntArray | BoolArray:
    """Return the ids of the set flags if they are few, else the flags (bool[V])."""
    return np.flatnonzero(flags).astype(np.int32) if np.count_nonzero(flags) * _FEW <= len(flags) else flags


def _resolved(tokens: TokenSet, vocabulary: Vocabulary) -> frozenset[int]:
    """Return the ids of the tokens that a token terminal names."""
    named = frozenset(_id_of(each, vocabulary) for each in tokens.tokens)
    ending = [] if tokens.negated else [token for token in vocabulary.eog.tolist() if token in named]
    if ending:
        raise GrammarError(
            f"{vocabulary.texts[ending[0]]} (token {ending[0]}) ends generation in this vocabulary, "
            "so a grammar cannot require it; end the grammar there instead"
        )
    return named


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Return the token id of each spelling.

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
    token_id = vocabulary.derived(_ids).get(spelling)
    if token_id is None:
        control = [vocabulary.texts[token] for token in vocabulary.control.tolist()]
        raise GrammarError(_unknown(spelling, list(dict.fromkeys(control))))
    return token_id


def _unknown(spelling: str, control: Sequence[str]) -> str:
    near = get_close_matches(spelling, control, n=3) or control[:8]
    return f"the vocabulary has no token {spelling}; its control tokens include {', '.join(near) or 'none'}"
