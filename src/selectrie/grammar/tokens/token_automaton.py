"""A compiled grammar and a vocabulary as an automaton over tokens."""

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
"""Memory of an entry of the cache beside its ids: most states allow few tokens, some none."""
_FEW = 16
"""Ids are kept as a list where they are at most one in so many of the vocabulary, else as a row of flags."""


class GrammarAutomaton:
    """Accepts the token paths whose bytes a machine accepts (see `automaton.Automaton`). States are its configurations.

    A token is allowed where its bytes go on with some accepted text, also where they end inside a character; tokens
    without bytes (control, unused) only where the grammar has a token terminal, end-of-generation tokens never. What was
    computed for a state is kept, the least recently used forgotten once that takes more than `cache_bytes`.

    Raises `GrammarError` for a token terminal that names what the vocabulary does not have.
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
        """As `Automaton.allowed`. Cost: a look-up, or a walk of the vocabulary the first time in a state."""
        return self.allowed_after(state, b"")

    def allowed_after(self, state: int, prefix: bytes) -> IntArray | BoolArray:
        """Tokens whose bytes are `prefix` and then, if it is not empty, at least one byte more that the state accepts.

        With b"": `allowed`, token terminals included. Same arrays, same cost.
        """
        found = self._kept.get((state, prefix))
        if found is not None:
            self._kept.move_to_end((state, prefix))
            return found
        found = self._computed(state, prefix)
        found.setflags(write=False)
        self._kept[state, prefix] = found
        self._kept_bytes += found.nbytes + _ENTRY_BYTES
        while self._kept_bytes > self._cache_bytes and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes + _ENTRY_BYTES
        return found

    def advance(self, state: int, token: int) -> int:
        """As `Automaton.advance`. Cost: a step for each byte of the token; allowed tokens need not be known for it."""
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
        """The state after bytes that need not be whole tokens; -1 where the grammar does not accept them."""
        return self._machine.walk(state, text)

    @property
    def n_bytes(self) -> int:
        """Memory held by the machine and by what was computed for states; the vocabulary's trie is not counted."""
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
        if refused:  # what all of them refuse
            others = ~self._is_eog
            others[list(frozenset.intersection(*refused))] = False
            flags |= others
        return _short(flags)


def _short(flags: BoolArray) -> IntArray | BoolArray:
    """bool[V], or where few are set their ids."""
    return np.flatnonzero(flags).astype(np.int32) if np.count_nonzero(flags) * _FEW <= len(flags) else flags


def _resolved(tokens: TokenSet, vocabulary: Vocabulary) -> frozenset[int]:
    """The tokens that a terminal names."""
    named = frozenset(_id_of(each, vocabulary) for each in tokens.tokens)
    ending = [] if tokens.negated else [token for token in vocabulary.eog.tolist() if token in named]
    if ending:
        raise GrammarError(
            f"{vocabulary.texts[ending[0]]} (token {ending[0]}) ends a generation in this vocabulary, so nothing can ask for "
            "it; let the grammar end where it stands"
        )
    return named


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    """The token of each spelling: a control token before others, else the first."""
    texts = vocabulary.texts
    found = dict(zip(reversed(texts), range(len(texts) - 1, -1, -1), strict=True))
    return found | {texts[token]: token for token in vocabulary.control.tolist()}


def _id_of(spelling: str | int, vocabulary: Vocabulary) -> int:
    """The token of a spelling, control tokens first; an id as it is."""
    if isinstance(spelling, int):
        if not 0 <= spelling < vocabulary.n_tokens:
            raise GrammarError(f"token {spelling} does not exist: ids run from 0 to {vocabulary.n_tokens - 1}")
        return spelling
    found = vocabulary.derived(_ids).get(spelling)
    if found is None:
        control = [vocabulary.texts[token] for token in vocabulary.control.tolist()]
        raise GrammarError(_unknown(spelling, list(dict.fromkeys(control))))
    return found


def _unknown(spelling: str, control: Sequence[str]) -> str:
    near = get_close_matches(spelling, control, n=3) or control[:8]
    return f"the vocabulary has no token {spelling}; its control tokens are such as {', '.join(near) or 'none'}"
