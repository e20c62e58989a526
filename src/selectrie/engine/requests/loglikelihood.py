"""Computes log-likelihoods of many token sequences.

The sequences of one call are put into one trie, and every distinct node is evaluated
once, in a separate empty memory. The layout of calls depends on the sequences alone, so
no bit depends on other work, or on the order of the sequences. A run that was killed
and resumed therefore gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from selectrie.core.model import ModelDescription
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import BoolArray, FloatArray, IntArray, Limits, OffsetArray
from selectrie.decoding.scoring import RowNeeds, TrieEvaluation
from selectrie.decoding.trie.exhaustive import ScorePlan, ScoreTask, scoring_nodes
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import ClosedError, OptionError

Tokens = Sequence[int] | IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """C token sequences, and where the scored part of each begins.

    Attributes:
        tokens: int32[], the tokens of all sequences, one after the other.
        offsets: int64[C+1]; sequence c is tokens[offsets[c]:offsets[c+1]].
        first_scored: int64[C], position in each sequence of its first scored token, or
            its length if no token is scored. It is at least 1 (else `OptionError`),
            since the very first token has no probability.
    """

    tokens: IntArray
    offsets: OffsetArray
    first_scored: OffsetArray

    def __post_init__(self) -> None:
        lengths = np.diff(self.offsets)
        if len(self.first_scored) != len(lengths):
            raise OptionError(
                "first_scored", len(self.first_scored), f"one number for each of {len(lengths)} sequences"
            )
        wrong = np.flatnonzero((self.first_scored < 1) | (self.first_scored > lengths))
        if len(wrong):
            index = int(wrong[0])
            raise OptionError(
                f"first_scored[{index}]", int(self.first_scored[index]), f"from 1 to {int(lengths[index])}, its tokens"
            )

    @staticmethod
    def of(pairs: Sequence[tuple[Tokens, Tokens]]) -> Sequences:
        """Build sequences from pairs (context, continuation); continuations are scored.

        A context has at least one token.
        """
        lengths = [len(context) + len(continuation) for context, continuation in pairs]
        parts = [np.asarray(part, dtype=np.int32) for pair in pairs for part in pair]
        return Sequences(
            np.concatenate([np.empty(0, dtype=np.int32), *parts]),
            np.cumsum([0, *lengths], dtype=np.int64),
            np.array([len(context) for context, _ in pairs], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.first_scored)

    @property
    def n_scored(self) -> OffsetArray:
        """Return the number of scored tokens of each sequence, int64[C]."""
        return np.diff(self.offsets) - self.first_scored

    @property
    def rows_naive(self) -> int:
        """Return the number of rows for evaluating each sequence alone.

        The row after the last token of a sequence is not needed.
        """
        return int((np.diff(self.offsets) - 1).sum())


@dataclass(frozen=True, slots=True, eq=False)
class LogLikelihoods:
    """Log-likelihoods of C sequences.

    Attributes:
        logp: float64[C], natural log, summed over the scored tokens.
        is_greedy: bool[C], whether each scored token was the most probable one (ties:
            the smaller id).
        n_scored: int64[C], number of scored tokens.
        rows_evaluated: Distinct rows that the model computed.
        rows_naive: Number of rows for evaluating each sequence alone.
    """

    logp: FloatArray
    is_greedy: BoolArray
    n_scored: OffsetArray
    rows_evaluated: int
    rows_naive: int

    @staticmethod
    def none() -> LogLikelihoods:
        """Return the result for no sequences."""
        return LogLikelihoods(np.empty(0), np.empty(0, dtype=np.bool_), np.empty(0, dtype=np.int64), 0, 0)


class _CallPlan:
    """Plans how many rows each call takes, from the model's limits and the sequences.

    Attention may read the cells of a memory in whole blocks
    (`CallCost.cells_per_read`). The cost of a row then depends on the number of blocks
    in use, not on how full the last block is, and one more block costs more than one
    more call. So a call fills memory up to the end of a block. A call that has to begin
    a further block ends as soon as the path above the next row no longer reaches into
    that block. In llama.cpp, whose blocks have 256 cells, a model of 0.26 M takes 88
    microseconds a row within 256 cells and 158 within 512; one of 0.5 B takes 9.4 ms
    and 10.1 ms. If a model's memory is not read in blocks, a call is as large as the
    model takes.
    """

    def __init__(self, limits: Limits, depth: IntArray) -> None:
        """Plan the calls that evaluate the nodes of one trie of sequences.

        Args:
            limits: Limits of the model.
            depth: int[], depth of each node to evaluate, in order, without the root.
        """
        self._limits = limits
        self._carried = depth - 1

    def max_rows(self, at: int) -> int:
        """Return the maximum number of rows of a call that begins with node `at`.

        The memory then holds the path above that node and nothing else.
        """
        limits, cost = self._limits, self._limits.call_cost
        block, multiple = cost.cells_per_read, limits.batch_sizes.multiple
        if limits.kind.is_recurrent or block == 1 or at == len(self._carried):
            return limits.rows_per_call
        carried = int(self._carried[at])
        end = -(-(carried + cost.min_rows) // block) * block
        rows = min(limits.rows_per_call, (end - carried) // multiple * multiple)
        left = np.flatnonzero(self._carried[at + cost.min_short_rows : at + rows] <= end - block - cost.min_rows)
        return int(left[0]) + cost.min_short_rows if len(left) else rows


class SequenceScorer:
    """Computes log-likelihoods of sequences. Created by `Engine.loglikelihood_scorer`.

    It is a context manager. Any thread may call `loglikelihoods`. On a model in this
    process, each call uses an empty memory. A model that is read by token paths has no
    memory to separate, so calls share requests with all other tasks.

    Args:
        model: The description of the model.
        group: Opens the task group of a call.
        close: Frees the memories of earlier groups.
        keep: An object kept alive as long as the scorer.
    """

    def __init__(
        self,
        model: ModelDescription,
        group: Callable[[], AbstractContextManager[TaskGroup]],
        close: Callable[[], None] = lambda: None,
        *,
        keep: object = None,
    ) -> None:
        """Create a scorer; `keep` lives as long as the scorer."""
        self._model, self._group, self._close, self._kept = model, group, close, keep
        self._is_closed = False

    def __enter__(self) -> SequenceScorer:  # noqa: PYI034 - Self is not in typing before Python 3.11, and the class is final
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def loglikelihoods(self, sequences: Sequences) -> LogLikelihoods:
        """Return the log-likelihoods of sequences.

        A row is evaluated for each distinct prefix that leads to a scored token. Logits
        are computed only for rows that score a token. Ctrl-C stops the call in the
        middle of a decode. If the call fails, its memory is freed, and the next call
        gets a new one.

        Raises:
            CapacityError: If a sequence does not fit.
            TokenRangeError: If a token is not in the vocabulary.
            NonFiniteLogitsError: If the model computes logits that are not finite.
            ModelError: If the model fails in another way.
            ClosedError: If the scorer or the engine was closed.
        """
        if self._is_closed:
            raise ClosedError("the scorer")
        self._model.vocabulary.check_tokens(sequences.tokens)
        trie = TokenTrie.from_flat(sequences.tokens, sequences.offsets)
        needs = RowNeeds.of_edges(scoring_nodes(trie, sequences.n_scored))
        plan = ScorePlan(trie, needs)
        pace = _CallPlan(self._model.limits, plan.order.depth)
        with self._group() as group:
            handle = group.begin(ScoreTask(sequences.tokens[:0], trie, needs, plan, max_rows=pace.max_rows))
            logp, is_greedy = _sum_scored(trie, handle.result(), sequences.n_scored)
        n_rows = handle.cost.rows - handle.cost.rows_repeated
        return LogLikelihoods(logp, is_greedy, sequences.n_scored, n_rows, sequences.rows_naive)

    def close(self) -> None:
        """Free the memory. May be called twice, and after the engine was closed."""
        self._is_closed = True
        self._close()


def _sum_scored(trie: TokenTrie, evaluation: TrieEvaluation, n_scored: OffsetArray) -> tuple[FloatArray, BoolArray]:
    """Sum the log-probabilities of each sequence's scored tokens.

    Returns the sums, float64[C], and whether all scored tokens were the most probable
    ones, bool[C]. Tokens are added from the last to the first.
    """
    logp, is_greedy = np.zeros(len(n_scored)), np.ones(len(n_scored), dtype=np.bool_)
    going = np.flatnonzero(n_scored > 0)
    node, left = trie.path_node[trie.path_of][going], n_scored[going]
    while len(going):
        parent = trie.parent[node]
        logp[going] += evaluation.edge_logp[node]
        is_greedy[going] &= evaluation.best_token[parent] == trie.token[node]
        stay = left > 1
        going, node, left = going[stay], parent[stay], left[stay] - 1
    return logp, is_greedy
