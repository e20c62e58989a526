"""What a search of an automaton is given and what it found, as records; and what all of them ask of an automaton."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from selectrie.core.automaton import Automaton
from selectrie.core.types import BoolArray, FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.automaton.finished import FoundPath
from selectrie.decoding.healed_bytes import Healed
from selectrie.errors import OptionError, ProtocolError, TokenRangeError
from selectrie.options import DEFAULT_SEARCH, Search, at_least, one_of

DEAD = -1
"""State of a node that the automaton does not allow: only its row is of interest."""


@dataclass(frozen=True, slots=True, eq=False)
class AutomatonSpec:
    """What is searched for. Checked when it is made.

    max_tokens: most tokens of a path, those that spell healed bytes alone not counted.
    terminator: "eog" (the end of generation is part of the event) or "none".
    rule: "joint", or "token_mean" (joint / tokens of the path that count). search: k,
    stop, mass, budget_nodes, width; "all" goes on until nothing is open. healed: bytes
    of the prompt that the automaton spells first, which every score is conditional on;
    put: bytes that it spells after those without a condition (the space that a
    tokenizer puts before text, a delimiter).
    canonical: is this finished path the tokenizer's own encoding? None: every path
    counts. own: the tokenizer's own path of the text that these tokens spell, empty for
    none. viable: may these two tokens be neighbours in such an encoding? last: the
    token before the first, None: not known.
    merge_equal_text: finished paths of one text are one, and the k best texts are
    looked for. tolerance: nats below the k-th best score within which all texts are
    found too. least_score: below which no text is looked for, known from elsewhere.
    """

    vocabulary: Vocabulary = field(repr=False)
    max_tokens: int = 128
    terminator: str = "eog"
    rule: str = "joint"
    search: Search = DEFAULT_SEARCH
    healed: bytes = b""
    put: bytes = b""
    canonical: Callable[[Sequence[int]], bool] | None = None
    own: Callable[[Sequence[int]], Sequence[int]] | None = None
    viable: Callable[[int, int], bool] | None = None
    last: int | None = None
    merge_equal_text: bool = True
    tolerance: float = 0.0
    least_score: float = -np.inf

    def __post_init__(self) -> None:
        at_least("max_tokens", self.max_tokens, 1, optional=False)
        one_of("terminator", self.terminator, ("eog", "none"))
        one_of("rule", self.rule, ("joint", "token_mean"))
        if not 0 <= self.tolerance < np.inf:
            raise OptionError("tolerance", self.tolerance, "nats, not below 0")
        if self.terminator == "eog" and not len(self.vocabulary.eog):
            raise OptionError("terminator", "eog", "'none': this model has no end-of-generation token")

    @property
    def healing(self) -> Healed:
        """Which tokens spell healed bytes alone."""
        return Healed(len(self.healed), self.vocabulary.lengths)

    def text(self, tokens: IntArray) -> bytes:
        """The bytes of a path without those that stand before the text."""
        return self.vocabulary.decode(tokens)[len(self.healed) + len(self.put) :]


@dataclass(frozen=True, slots=True, eq=False)
class AutomatonOutcome:
    """What a search found, and what that proves.

    found: the first k texts (more where they tie), best first, ties by bytes; all that were found unless `search.stop` is "best".
    proved: nothing of at most `max_tokens` tokens that is not among them scores more. bound_gap: score of the k-th less the
    best bound left open (best_open, -inf for none), inf where nothing is open, -inf where fewer than k were found and something is.
    open_mass: bound on the probability that text begins with a path left open, or is one that was finished and not noted. cut_bound: best bound of what was left out
    for having more than `max_tokens` tokens, -inf for none: below the k-th score, the proof holds for any length.
    greedy: tokens of masked greedy decoding as far as they were followed; greedy_ended: up to its end.
    strings: whether what was looked for is the tokenizer's own encoding of each text (else any token path).
    log_heal, heal_gap: of the healed bytes, taken off already. wanted: the most probable tokens after the prompt, and their
    log-probabilities. n_dead_ends: paths that may neither end nor go on. n_other: finished paths that no tokenizer makes.
    n_repeated: rows asked for again.
    """

    found: tuple[FoundPath, ...]
    proved: bool
    bound_gap: float
    best_open: float
    open_mass: float
    cut_bound: float
    greedy: IntArray
    greedy_ended: bool
    strings: bool
    log_heal: float
    heal_gap: float
    wanted: tuple[IntArray, FloatArray]
    n_evaluated: int
    n_repeated: int
    n_dead_ends: int
    n_other: int


def check_prompt(prompt: IntArray, spec: AutomatonSpec) -> None:
    """Raise `ProtocolError` for no prompt, `TokenRangeError` for a token that the vocabulary has not."""
    if len(prompt) == 0:
        raise ProtocolError("a search needs a prompt of at least one token")
    wrong = prompt[(prompt < 0) | (prompt >= spec.vocabulary.n_tokens)]
    if len(wrong):
        raise TokenRangeError(int(wrong[0]), spec.vocabulary.n_tokens)


def is_any(allowed: BoolArray | IntArray) -> bool:
    """Is anything allowed?"""
    return bool(allowed.any()) if allowed.dtype == np.bool_ else len(allowed) > 0


def allowed_ids(allowed: BoolArray | IntArray) -> IntArray:
    """int32[]: what is allowed, ascending."""
    if allowed.dtype == np.bool_:
        return np.flatnonzero(allowed).astype(np.int32)
    return allowed.astype(np.int32)


def allows(allowed: BoolArray | IntArray, token: int) -> bool:
    """Is this token allowed?"""
    return bool(allowed[token]) if allowed.dtype == np.bool_ else bool((allowed == token).any())


def own_paths(spec: AutomatonSpec, automaton: Automaton, paths: Iterable[list[int]]) -> Iterator[list[int]]:
    """The tokenizer's own paths of the texts that these paths spell, each once: those
    that the automaton accepts."""
    if spec.canonical is None or spec.own is None:
        return
    seen: set[tuple[int, ...]] = set()
    for path in paths:
        own = list(spec.own(path))
        if not own or tuple(own) in seen or spec.healing.n_text(own) > spec.max_tokens:
            continue
        seen.add(tuple(own))
        if accepts(automaton, own) and spec.canonical(own):
            yield own


def accepts(automaton: Automaton, path: Iterable[int]) -> bool:
    """Is this a whole path of the automaton?"""
    state = automaton.start()
    for token in path:
        if not allows(automaton.allowed(state), token):
            return False
        state = automaton.advance(state, token)
    return automaton.can_end(state)
