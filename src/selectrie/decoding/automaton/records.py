"""The specification and the outcome of a search on an automaton.

The functions answer questions about the automaton's paths that all searches ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from selectrie.core.automaton import Automaton, allows
from selectrie.core.types import ROOT, FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.automaton.finished import FinishedPath
from selectrie.decoding.healed_bytes import Healed
from selectrie.decoding.path_tree import PathTree
from selectrie.errors import OptionError
from selectrie.options import DEFAULT_SEARCH, SearchParams, at_least, one_of


@dataclass(frozen=True, slots=True, eq=False)
class AutomatonSpec:
    """The specification of a search on an automaton, checked on construction.

    Attributes:
        max_tokens: Maximum number of tokens of a path, not counting those that spell
            only healed bytes.
        terminator: "eog" (the end of generation is part of the event), "none", or
            "unless-continued" (no token that the automaton allows comes next).
        rule: "joint", or "token_mean" (the joint divided by the number of tokens that
            count).
        search: Number of texts, stop rule, budget and width. The stop rule "all" goes
            on until no path is open.
        healed: Bytes of the prompt that every path spells first. Every score is
            conditional on them.
        space_prefix: Bytes that every path spells after those (the space that a
            tokenizer adds before text, a delimiter). Scores are not conditional on
            them.
        canonical: Returns whether a finished path is canonical: the tokenizer's own
            encoding of its text. None means that every path counts.
        canonical_path: Returns the canonical path of the text that these tokens spell,
            empty for none.
        may_be_adjacent: Returns whether these two tokens may be neighbours in a
            canonical path.
        last: The prompt's last token, before the first one of the path; None if not
            known.
        merge_equal_text: Whether finished paths of one text count as one, so that the k
            best texts are looked for.
        tolerance: Nats below the k-th best score within which all texts are found too.
        min_score: A score known from elsewhere; no text below it is looked for.
        max_children: Maximum number of tokens after a path of which all
            log-probabilities are read. Of more, only the most probable ones are, as far
            as they are certain; the others have bounds, and no text that begins with
            them is looked for. None for no maximum.
    """

    vocabulary: Vocabulary = field(repr=False)
    max_tokens: int = 128
    terminator: str = "eog"
    rule: str = "joint"
    search: SearchParams = DEFAULT_SEARCH
    healed: bytes = b""
    space_prefix: bytes = b""
    canonical: Callable[[Sequence[int]], bool] | None = None
    canonical_path: Callable[[Sequence[int]], Sequence[int]] | None = None
    may_be_adjacent: Callable[[int, int], bool] | None = None
    last: int | None = None
    merge_equal_text: bool = True
    tolerance: float = 0.0
    min_score: float = -np.inf
    max_children: int | None = None

    def __post_init__(self) -> None:
        at_least("max_tokens", self.max_tokens, 1, optional=False)
        one_of("terminator", self.terminator, ("eog", "none", "unless-continued"))
        one_of("rule", self.rule, ("joint", "token_mean"))
        if not 0 <= self.tolerance < np.inf:
            raise OptionError("tolerance", self.tolerance, "a finite number of nats, at least 0")
        if self.terminator == "eog" and not len(self.vocabulary.eog):
            raise OptionError("terminator", "eog", "'none': this model has no end-of-generation token")

    @property
    def healing(self) -> Healed:
        """Return the record that tells which tokens spell only healed bytes."""
        return Healed(len(self.healed), self.vocabulary.lengths)

    def finished_path(self, tree: PathTree, node: int, terminator: float, logp: float, score: float) -> FinishedPath:
        """Return the `FinishedPath` of a node.

        Its `data` begins after the bytes that come before the text.
        """
        tokens = np.array(tree.tokens(node), dtype=np.int32)
        token_logp = np.array([tree.edge[step] for step in tree.path(node)], dtype=np.float64)
        data = self.vocabulary.decode(tokens)[len(self.healed) + len(self.space_prefix) :]
        return FinishedPath(data, tokens, token_logp, terminator, logp, logp, score)

    def may_follow(self, tree: PathTree, parent: int, token: int) -> bool:
        """Return whether the tokenizer may write `token` after the path of `parent`."""
        left = self.last if parent == ROOT else tree.token[parent]
        return self.may_be_adjacent is None or left is None or self.may_be_adjacent(left, token)


@dataclass(frozen=True, slots=True, eq=False)
class AutomatonOutcome:
    """The texts that a search on an automaton found, and the certificate for them.

    Attributes:
        paths: The texts found, best first, ties by bytes. The first k are the answer.
        proved: Whether no other text of at most `max_tokens` tokens scores more than
            the k-th.
        bound_gap: Score of the k-th minus `best_open`; inf where nothing is open, -inf
            where fewer than k texts were found and something is open.
        best_open: Best bound of an open path, -inf for none.
        best_unread: That of a path whose last token was not read, -inf for none; it is
            among the open ones.
        open_mass: Bound on the probability that text begins with an open path, or is a
            finished path that was not recorded.
        cut_bound: Best bound of the paths that were cut off at `max_tokens` tokens,
            -inf for none. If it is below the k-th score, the proof holds for any
            length.
        greedy: int32[], tokens of masked greedy decoding, as far as it was followed.
        greedy_ended: Whether it was followed to its end.
        strings: Whether the search looks for the tokenizer's own encoding of each text,
            rather than for any token path.
        log_heal, heal_gap: From `HealedMass.log_heal`; already taken into account.
        top_tokens: The most probable tokens after the prompt, and their
            log-probabilities.
        n_evaluated: How many rows were read.
        n_steps: Number of tokens of the longest path that was looked at.
        n_repeated: How many rows were asked for again.
        n_dead_ends: How many paths were met that can neither end nor go on.
        n_other: How many finished paths were not canonical and do not count.
    """

    paths: tuple[FinishedPath, ...]
    proved: bool
    bound_gap: float
    best_open: float
    best_unread: float
    open_mass: float
    cut_bound: float
    greedy: IntArray
    greedy_ended: bool
    strings: bool
    log_heal: float
    heal_gap: float
    top_tokens: tuple[IntArray, FloatArray]
    n_evaluated: int
    n_steps: int
    n_repeated: int
    n_dead_ends: int
    n_other: int


def canonical_paths(spec: AutomatonSpec, automaton: Automaton, paths: Iterable[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the canonical paths of the texts that `paths` spell.

    Each path comes once, and only if the automaton accepts it.
    """
    if spec.canonical is None or spec.canonical_path is None:
        return
    seen: set[tuple[int, ...]] = set()
    for path in paths:
        canonical = list(spec.canonical_path(path))
        if not canonical or tuple(canonical) in seen or spec.healing.n_text(canonical) > spec.max_tokens:
            continue
        seen.add(tuple(canonical))
        if accepts(automaton, canonical) and spec.canonical(canonical):
            yield canonical


def accepts(automaton: Automaton, path: Iterable[int]) -> bool:
    """Return whether the automaton accepts `path` as a complete path."""
    state = automaton.start()
    for token in path:
        if not allows(automaton.allowed(state), token):
            return False
        state = automaton.advance(state, token)
    return automaton.can_end(state)
