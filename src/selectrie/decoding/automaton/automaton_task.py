"""Specification, outcome and base class of searches on an automaton."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from selectrie.core.automaton import Automaton, allowed_ids, allows, is_any
from selectrie.core.numerics import Interval
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import ROOT, FloatArray, IntArray
from selectrie.decoding.search_state import HeldNodes, PathSpec, PathTree
from selectrie.decoding.task import TaskBase
from selectrie.options import DEFAULT_SEARCH, SearchParams, at_least, one_of
from selectrie.tokenization.healing import HealedMass


@dataclass(frozen=True, slots=True, eq=False)
class FinishedPath:
    """A text that a search finished, with its best path.

    Attributes:
        data: The text's bytes, without those of the prompt.
        tokens: int32[n], including those that spell healed bytes.
        token_logp: float64[n], the log-probability of each token.
        logp_terminator: Log-probability of the terminator.
        logp: Log-probability of the text and its terminator, given the healed bytes. It
            is the sum over all `n_paths` token paths found for this text, of which
            `tokens` is the best.
        logp_path: Log-probability of `tokens` and terminator alone, given the healed
            bytes.
        score: The score of the best path by the search's rule.
        n_paths: Number of token paths of this text that were found.
    """

    data: bytes
    tokens: IntArray
    token_logp: FloatArray
    logp_terminator: float
    logp: float
    logp_path: float
    score: float
    n_paths: int = 1


class FinishedPaths:
    """The finished texts of a search, with the score of the k-th best.

    Args:
        k: Number of best texts that the search looks for.
        merges: Whether all paths of one text count as one text, with its best path.
            Otherwise each path counts separately.
    """

    def __init__(self, k: int, *, merges: bool) -> None:
        self._k, self._merges = k, merges
        self._groups: dict[tuple[bytes, ...], list[FinishedPath]] = {}
        # (minus best score, key), ascending.
        self._order: list[tuple[float, tuple[bytes, ...]]] = []

    def __len__(self) -> int:
        """Return how many texts there are so far."""
        return len(self._order)

    def add(self, path: FinishedPath) -> bool:
        """Add a path and return whether it is the best so far."""
        key = (path.data,) if self._merges else (path.data, path.tokens.tobytes())
        group = self._groups.setdefault(key, [])
        best = max((one.score for one in group), default=-np.inf)
        is_first = not self._order or path.score > -self._order[0][0]
        if path.score > best:
            if group:
                del self._order[bisect_left(self._order, (-best, key))]
            insort(self._order, (-path.score, key))
        group.append(path)
        return is_first

    def kth(self) -> float:
        """Return the score of the k-th best text; -inf if there are fewer.

        A text's score is that of its best path.
        """
        return -self._order[self._k - 1][0] if len(self._order) >= self._k else -np.inf

    def mass(self) -> float:
        """Return the summed probability of all finished paths."""
        return float(np.sum([np.exp(path.logp) for group in self._groups.values() for path in group]))

    def ranked(self) -> tuple[FinishedPath, ...]:
        """Return the texts by the score of their best path, best first, ties by bytes.

        The `logp` of a text with several paths is the log of their summed probability.
        """
        return tuple(_merge_paths(self._groups[key]) for _, key in self._order)


def _merge_paths(group: list[FinishedPath]) -> FinishedPath:
    """Return the best path of a text, with the probability of all its paths."""
    best = min(group, key=lambda path: (-path.score, path.tokens.tolist()))
    if len(group) == 1:
        return best
    return replace(best, logp=float(np.logaddexp.reduce([path.logp for path in group])), n_paths=len(group))


@dataclass(frozen=True, slots=True, eq=False)
class AutomatonSpec(PathSpec):
    """The specification of a search on an automaton, checked on construction.

    Attributes:
        max_tokens: Maximum number of tokens of a path, not counting those that spell
            only healed bytes.
        rule: "joint", or "token_mean" (the joint divided by the number of tokens, those
            that spell only healed bytes left out).
        search: Number of texts, stop rule, budget and width. The stop rule "all" goes
            on until no path is open.
        space_prefix: Bytes that every path spells after those (the space that a
            tokenizer adds before text, a delimiter). Scores are not conditional on
            them.
        canonical_path: Returns the canonical path of the text that these tokens spell,
            empty for none.
        last: The prompt's last token, before the first one of the path; None if not
            known.
        merge_equal_text: Whether finished paths of one text count as one, so that the k
            best texts are looked for.
        tolerance: Nats below the k-th best score down to which all texts are found.
        min_score: Score below which no text is looked for.
        max_children: Maximum number of tokens after a path of which all
            log-probabilities are read. Of more, only the most probable ones are, as far
            as they are certain; the others have bounds, and no text that begins with
            them is looked for. None for no maximum.
    """

    max_tokens: int = 128
    rule: str = "joint"
    search: SearchParams = DEFAULT_SEARCH
    space_prefix: bytes = b""
    canonical_path: Callable[[Sequence[int]], Sequence[int]] | None = None
    last: int | None = None
    merge_equal_text: bool = True
    min_score: float = -np.inf
    max_children: int | None = None

    def __post_init__(self) -> None:
        PathSpec.__post_init__(self)  # no `super()`: a class with slots is another one by now
        at_least("max_tokens", self.max_tokens, 1, optional=False)
        one_of("rule", self.rule, ("joint", "token_mean"))

    def finished_path(self, tree: PathTree, node: int, terminator: float, logp: float, score: float) -> FinishedPath:
        """Return the `FinishedPath` that ends at a node.

        Its `data` begins after the healed bytes and the space prefix.
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
        best_open: Best bound of an open (unfinished) path, -inf for none.
        best_unread: Best bound of an open path whose last token was not read, -inf for
            none.
        open_mass: Bound on the probability that text begins with an open path, or is a
            finished path that was not recorded.
        cut_bound: Best bound of the paths that were cut off at `max_tokens` tokens,
            -inf for none. If it is below the k-th score, the proof holds for any
            length.
        greedy: int32[], tokens of masked greedy decoding, as far as it was followed.
        greedy_ended: Whether it was followed to its end.
        strings: Whether the search looks for the tokenizer's own encoding of each text,
            rather than for any token path.
        heal: Log-probability of the healed bytes (`HealedMass.log_heal`), on which all
            scores are already conditional.
        top_tokens: The most probable tokens after the prompt, and their
            log-probabilities.
        n_evaluated: Number of rows read.
        n_steps: Number of tokens of the longest path that was looked at.
        n_repeated: Number of rows read again.
        n_dead_ends: Number of paths that can neither end nor go on.
        n_other: Number of finished paths that are not canonical, so do not count.
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
    heal: Interval[float]
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


R = TypeVar("R")


class AutomatonTask(TaskBase[list[int], R]):
    """A task that grows a `PathTree` over an automaton and reads its rows one by one.

    Raises `ProtocolError` for an empty prompt, and `TokenRangeError` for an unknown
    token in it.

    Args:
        prompt: int32[T], the tokens before the paths.
        spec: The limits and the kind of texts.
    """

    def __init__(self, prompt: IntArray, automaton: Automaton, spec: AutomatonSpec) -> None:
        super().__init__(prompt, spec.floor(prompt, spec.max_tokens), [ROOT])
        self._automaton, self._spec = automaton, spec
        self._tree = PathTree(automaton.start(), spec.healing)
        self._set_ends(ROOT)
        self._live = HeldNodes(self._tree)
        self._healing = HealedMass(spec.vocabulary, spec.healed)

    def _reads(self, nodes: list[int]) -> Reads:
        return Reads.concatenated([self._row_reads(node) for node in nodes])

    def _read(self, nodes: list[int], rows: Rows) -> None:
        """Read the rows of `nodes` one after the other."""
        for i, node in enumerate(nodes):
            self._tree.evaluated[node] = True
            self._read_row(node, rows, i)

    @abstractmethod
    def _row_reads(self, node: int) -> Reads:
        """Return the `Reads` that `_read_row` needs from a node's row."""

    @abstractmethod
    def _read_row(self, node: int, rows: Rows, i: int) -> None:
        """Read row `i` of `rows`, which is the row of `node`."""

    def _add_child(self, parent: int, token: int, logp: float) -> int:
        """Add the node of an allowed token after its parent, and return its number."""
        tree = self._tree
        node = tree.add(parent, token, logp, self._automaton.advance(tree.state[parent], token))
        self._set_ends(node)
        return node

    def _set_ends(self, node: int) -> None:
        """Note whether a text may end at a node, and whether a path may go on."""
        tree, automaton = self._tree, self._automaton
        tree.can_end[node] = automaton.can_end(tree.state[node])
        tree.goes_on[node] = is_any(automaton.allowed(tree.state[node]))

    def _ends_by_row(self, node: int) -> bool:
        """Return whether a text ends at the node with a probability from its row."""
        tree, terminator = self._tree, self._spec.terminator
        return tree.can_end[node] and (terminator == "eog" or (terminator != "none" and tree.goes_on[node]))

    def _ends_at_once(self, node: int) -> bool:
        """Return whether a text ends at the node whatever comes next."""
        return self._tree.can_end[node] and not self._ends_by_row(node)

    def _end_reads(self, node: int) -> Reads:
        """Return the `Reads` of the row of a node for `_end_logp`."""
        allowed = self._tokens_past(node)
        return Reads.of_row(masses=[self._spec.vocabulary.eog]) if allowed is None else Reads.of_row(rests=[allowed])

    def _end_logp(self, node: int, rows: Rows, i: int) -> float:
        """Return the log-probability that a text ends at the node, from its row."""
        allowed = self._tokens_past(node)
        return float(rows.log_mass(i, self._spec.vocabulary.eog) if allowed is None else rows.log_rest(i, allowed))

    def _tokens_past(self, node: int) -> IntArray | None:
        """Return the tokens that continue the text of a node.

        None if an end-of-generation token ends it.
        """
        if self._spec.terminator != "unless-continued" or not self._ends_by_row(node):
            return None
        return allowed_ids(self._automaton.allowed(self._tree.state[node]))

    def _may_go_on(self, node: int) -> bool:
        """Return whether automaton and `max_tokens` allow a token after the node."""
        return self._tree.goes_on[node] and self._tree.n_text[node] < self._spec.max_tokens

    def _ids_after(self, node: int) -> IntArray:
        """Return the tokens that may come after the node, int32[], ascending."""
        if not self._may_go_on(node):
            return np.empty(0, dtype=np.int32)
        return allowed_ids(self._automaton.allowed(self._tree.state[node]))
