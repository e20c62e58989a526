"""The specification and outcome of a beam search, and its finished texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from selectrie.core.numerics import Interval
from selectrie.core.types import NO_NODE, FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.healed_bytes import Healed
from selectrie.decoding.search_state import PathTree
from selectrie.errors import OptionError
from selectrie.options import DEFAULT_BEAM, BeamSearchParams, one_of
from selectrie.options.selection import GRAMMAR_TERMINATORS


@dataclass(frozen=True, slots=True, eq=False)
class BeamSpec:
    """The specification of a beam search, checked on construction.

    Attributes:
        beam: The options. This task ignores `beam.exact`, and uses the field
            `terminator` below in place of `beam.terminator`.
        terminator: "eog", "none" or "unless-continued", as in `AutomatonSpec`.
        healed: Bytes of the prompt that every path spells first. Every score is
            conditional on them.
        canonical: Returns whether the tokens of a finished path are the tokenizer's own
            encoding of their text. None means no check.
        may_be_adjacent: Returns whether two tokens may be neighbours in the tokenizer's
            encoding of any text.
        may_start: Returns whether the tokenizer's encoding of some text may begin with
            these tokens. It may err, so paths that it refuses are not followed and
            count in `BeamOutcome.lost`.
        tolerance: Nats per row by which the layout of calls may move a log-probability.
        reads_only_best: Whether only the most probable tokens that may follow are read.
            The others have bounds, and are not followed.
    """

    vocabulary: Vocabulary = field(repr=False)
    beam: BeamSearchParams = DEFAULT_BEAM
    terminator: str = "eog"
    healed: bytes = b""
    canonical: Callable[[Sequence[int]], bool] | None = None
    may_be_adjacent: Callable[[int, int], bool] | None = None
    may_start: Callable[[Sequence[int]], bool] | None = None
    tolerance: float = 0.0
    reads_only_best: bool = False

    def __post_init__(self) -> None:
        one_of("terminator", self.terminator, GRAMMAR_TERMINATORS)
        if self.terminator == "eog" and not len(self.vocabulary.eog):
            raise OptionError("terminator", "eog", "'none': this model has no end-of-generation token")
        if not 0 <= self.tolerance < np.inf:
            raise OptionError("tolerance", self.tolerance, "a finite number of nats, at least 0")

    @property
    def healing(self) -> Healed:
        """Return the record that tells which tokens spell only healed bytes."""
        return Healed(len(self.healed), self.vocabulary.lengths)


@dataclass(frozen=True, slots=True)
class PathView:
    """A path of the beam, as it is passed to the callback `BeamSearchParams.expand`.

    Attributes:
        tokens: The path's tokens, including those that spell healed bytes.
        data: The path's bytes, without healed ones.
        logp: Sum of the tokens' log-probabilities.
        can_end: Whether the path is already a text of the grammar.
    """

    tokens: tuple[int, ...]
    data: bytes
    logp: float
    can_end: bool


@dataclass(frozen=True, slots=True, eq=False)
class BeamPath:
    """A text that a beam search found.

    Attributes:
        tokens: int32[n], its best path, including tokens that spell healed bytes.
        token_logp: float64[n], the log-probability of each token.
        data: Its bytes, without healed ones.
        logp_end: Log-probability of the terminator, 0 if incomplete.
        logp: Log-probability of the text, conditional on the healed bytes. Where joints
            are added up, it covers all paths of the text.
        logp_path: Log-probability of this path alone.
        score: The score by which texts are ordered.
        n_paths: Number of its paths that were found.
        complete: Whether it is a text that the automaton accepts.
        group: Number of the group that found it (0 for greedy decoding).
    """

    tokens: IntArray
    token_logp: FloatArray
    data: bytes
    logp_end: float
    logp: float
    logp_path: float
    score: float
    n_paths: int
    complete: bool
    group: int


@dataclass(frozen=True, slots=True, eq=False)
class BeamOutcome:
    """The texts that a beam search found, with counts of its work.

    Attributes:
        finished: The n best texts, best first.
        broken: The n best of the paths that were left unfinished, best first.
        greedy: The text of masked greedy decoding. None if it does not end.
        agrees_with_greedy: Whether greedy decoding writes the winner; None if no text
            was finished, or if rows or the budget did not tell how greedy decoding goes
            on.
        stopped: "done" (no remaining path could be among the n best), "length" (as far
            as `max_tokens` goes), "budget" or "deadline".
        lost: The best score that a dropped or remaining path could have reached, -inf
            for none.
        unread: The best such score of a path whose last token was not read.
        n_merged: Number of finished paths beyond the first of each text.
        n_dead_ends: Number of paths that could neither end nor go on.
        n_refused: Paths that the automaton accepts and that are not the tokenizer's
            encoding of their text.
        n_evaluated: Number of rows read.
        n_repeated: Number of nodes evaluated again.
        n_steps: Number of tokens of the longest path.
        close_steps: Steps in which the tolerance, or a token that was not read, could
            have changed what was kept.
        heal: Log-probability of the healed bytes (`HealedMass.log_heal`), on which all
            scores are already conditional.
    """

    finished: tuple[BeamPath, ...]
    broken: tuple[BeamPath, ...]
    greedy: BeamPath | None
    agrees_with_greedy: bool | None
    stopped: str
    lost: float
    unread: float
    n_merged: int
    n_dead_ends: int
    n_refused: int
    n_evaluated: int
    n_repeated: int
    n_steps: int
    close_steps: tuple[int, ...]
    heal: Interval[float]


Key = tuple[bytes | int, ...]
"""Identifies the text of a path: its bytes, split at control tokens, and these."""


@dataclass(slots=True, eq=False)
class FinishedText:
    """A text that a beam search finished.

    Attributes:
        key: The text's bytes and control tokens, which identify it.
        paths: Log-probability of each of its paths, by the path's last node.
        logp: Log-probability of the text.
        best: The last node of its best path.
        score: The score by which texts are ordered.
    """

    key: Key
    paths: dict[int, float] = field(default_factory=dict)
    logp: float = -np.inf
    best: int = NO_NODE
    score: float = -np.inf


class FinishedHypotheses:
    """The texts finished so far; the n best of them are looked for.

    Ties are ordered by their tokens.

    Args:
        tree: The paths of the search.
        n: Number of best texts.
        length_penalty: Exponent of the number of tokens in scores.
        merges: Whether the probabilities of a text's paths are added up. Otherwise the
            best path represents the text.
    """

    def __init__(self, tree: PathTree, n: int, length_penalty: float, *, merges: bool) -> None:
        self._tree, self._n, self._penalty, self.merges = tree, n, length_penalty, merges
        self.texts: dict[Key, FinishedText] = {}
        self._kth: float | None = None

    def add(self, node: int, logp: float, key: Key) -> None:
        """Add a finished path to its text, unless it was added before.

        Args:
            node: The path's last node.
            logp: Its log-probability, terminator included.
            key: Identifies its text.
        """
        text = self.texts.setdefault(key, FinishedText(key))
        if node in text.paths:
            return
        text.paths[node] = logp
        if text.best == NO_NODE or self._rank_key(text, node) < self._rank_key(text, text.best):
            text.best = node
        # Sorted, so that the sum does not depend on the order in which paths were
        # finished.
        text.logp = add_up(sorted(text.paths.values())) if self.merges else text.paths[text.best]
        text.score = self.score(text.logp, self._tree.n_text[text.best])
        self._kth = None

    def _rank_key(self, text: FinishedText, node: int) -> tuple[float, tuple[int, ...]]:
        """Return the sort key of a text's path; the best path has the smallest.

        If probabilities are added up, the most probable path is the best, else the one
        with the best score.
        """
        logp = text.paths[node]
        return -(logp if self.merges else self.score(logp, self._tree.n_text[node])), self._tree.tokens(node)

    def score(self, logp: float, n_tokens: int) -> float:
        """Return the score of a text: logp / n_tokens ** length_penalty.

        A path without tokens counts as one token.
        """
        return logp / max(1, n_tokens) ** self._penalty if self._penalty else logp

    @property
    def kth(self) -> float:
        """Return the score of the n-th best text; -inf if there are fewer."""
        if self._kth is None:
            scores = sorted((text.score for text in self.texts.values()), reverse=True)
            self._kth = scores[self._n - 1] if len(scores) >= self._n else -np.inf
        return self._kth

    @property
    def n_paths(self) -> int:
        """Return the number of finished paths of all texts."""
        return sum(len(text.paths) for text in self.texts.values())

    def ranked(self) -> list[FinishedText]:
        """Return all texts, best first."""
        return sorted(self.texts.values(), key=lambda text: (-text.score, self._tree.tokens(text.best)))

    def is_decided(self, bound: float, log_open: float, longest: int) -> bool:
        """Return whether no unfinished path can change which texts are the first n.

        Args:
            bound: The best score that an unfinished path can reach.
            log_open: Log of the summed probability of all unfinished paths. If
                probabilities are added up, any text may gain all of it.
            longest: Maximum number of tokens of a path.
        """
        if self.kth == -np.inf:
            return bound == -np.inf
        if not self.merges:
            return self.kth >= bound
        rivals = [log_open, *(float(np.logaddexp(t.logp, log_open)) for t in self.ranked()[self._n :])]
        return self.kth >= max(self.bound(rival, 0, longest) for rival in rivals)

    def bound(self, logp: float, depth: int, longest: int) -> float:
        """Return the best score that an unfinished path can reach.

        It may grow to the longest length, but never becomes more probable.

        Args:
            logp: Its log-probability so far.
            depth: Its number of tokens so far.
            longest: Maximum number of tokens of a path.
        """
        return self.score(logp, longest if logp <= 0 else depth)


def add_up(logps: Iterable[float]) -> float:
    """Return the log of the summed probability of all `logps`; -inf for none."""
    total = -np.inf
    for logp in logps:
        total = float(np.logaddexp(total, logp))
    return total
