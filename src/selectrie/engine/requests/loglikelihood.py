"""Log-likelihoods of many token sequences.

One trie holds all sequences, and every distinct node is evaluated once, in a separate
empty memory. The layout is a function of the sequences alone: no bit depends on what
was measured before, at the same time, or in another order of the same unit. A run that
was killed and resumed is therefore equal to one that was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from selectrie.core.model import Model
from selectrie.core.rows import Reads, Rows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, BoolArray, Capacity, FloatArray, IntArray, Limits, OffsetArray
from selectrie.decoding.scoring import TrieReader, row_needs
from selectrie.decoding.task import Ask, extend_in_rounds
from selectrie.decoding.trie.batches import DepthFirstWindows
from selectrie.engine.scheduler.model_thread import ModelThread
from selectrie.engine.scheduler.task_group import task_group
from selectrie.errors import CapacityError, ClosedError, ForkedError, OptionError

Tokens = Sequence[int] | IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """C token sequences, each of which is scored from some token to its end.

    Attributes:
        tokens: int32[], the tokens of all sequences, one after the other.
        offsets: int64[C+1]; sequence c is tokens[offsets[c]:offsets[c+1]].
        first_scored: int64[C], position in its sequence of the first token that counts.
            It is at least 1 (else `OptionError`), since the very first token has no
            probability, and the length of a sequence in which no token counts.
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
        """Make sequences from pairs of a context and the continuation that counts.

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
        """Return the number of tokens that count in each sequence, int64[C]."""
        return np.diff(self.offsets) - self.first_scored

    @property
    def rows_naive(self) -> int:
        """Return the rows of evaluating each sequence alone.

        The last token of a sequence is read, not evaluated.
        """
        return int((np.diff(self.offsets) - 1).sum())


@dataclass(frozen=True, slots=True, eq=False)
class LogLikelihoods:
    """Log-likelihoods of C sequences.

    Attributes:
        logp: float64[C], natural log, summed over the tokens that count.
        is_greedy: bool[C], whether each of these tokens was the most probable one
            (ties: the smaller id).
        n_scored: int64[C], number of tokens that count.
        rows_evaluated: Distinct rows that the model computed.
        rows_naive: Rows of evaluating each sequence alone.
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


def loglikelihoods(model: Model, sequences: Sequences) -> LogLikelihoods:
    """Evaluate a unit of sequences on an empty model, and leave it empty.

    The rows are the distinct proper prefixes of the sequences that lead to a token that
    counts. Logits are computed only for rows that score a token.

    Raises:
        CapacityError: If a sequence does not fit.
        TokenRangeError: If a token is not in the vocabulary.
        NonFiniteLogitsError: If the model computes logits that are not finite.
        ModelError: If the model fails in another way.
    """
    evaluation = _Evaluation(model, sequences)
    try:
        while evaluation.step():
            pass
    finally:
        evaluation.leave()
    return evaluation.result()


class _Evaluation:
    """The evaluation of a unit on an empty model, one model call at a time."""

    def __init__(self, model: Model, sequences: Sequences) -> None:
        """Prepare a unit without a model call.

        Raises what `loglikelihoods` raises for invalid sequences.
        """
        model.vocabulary.check_tokens(sequences.tokens)
        self._model, self._sequences = model, sequences
        trie = TokenTrie.from_flat(sequences.tokens, sequences.offsets)
        self._scored = _ScoredNodes.of(trie, sequences)
        longest = int(trie.depth.max(initial=0))
        if longest - 1 > model.limits.nodes:
            raise CapacityError("nodes", required=longest - 1, available=model.limits.nodes)
        self._edges = _EdgeReader(trie)
        self._windows = DepthFirstWindows(trie, self._scored.marked, self._scored.wanted)
        self._pace = _Pace(model.limits, trie.depth[self._windows.nodes])
        n = int(np.count_nonzero(self._scored.marked))
        # Node of each local row; row 0 is the empty context.
        self._nodes: IntArray = np.zeros(n + 1, dtype=np.int32)
        self._next: tuple[Ask, IntArray] | None = None
        self._rows_evaluated = 0

    def step(self) -> bool:
        """Make the next call; return False if there is none.

        A call that failed is made again by the next step.
        """
        model, nodes, windows = self._model, self._nodes, self._windows
        if self._next is None:
            self._next = windows.next_window(self._pace.capacity_at(windows.at))
            if self._next is None:
                return False
            _forget(model, nodes, self._next[0].release)
        ask, scored = self._next
        parents = np.where(ask.parents >= 0, nodes[np.maximum(ask.parents, 0)], ask.parents).astype(np.int32)
        made, rows = extend_in_rounds(model, parents, ask.tokens, ask.wanted, ask.keep)
        nodes[windows.next_local - len(made) : windows.next_local] = made
        if model.limits.kind.is_recurrent:  # only the end of a long path needs a state
            _forget(model, nodes, windows.spent)
        self._edges.read(scored, rows.fetch(lambda: self._edges.reads(scored)))
        self._rows_evaluated += len(made)
        self._next = None
        return True

    def leave(self) -> None:
        """Release the nodes that the model holds for the unit."""
        self._model.release(self._nodes[self._nodes > 0], forget=True)
        self._nodes[:] = 0

    def result(self) -> LogLikelihoods:
        """Return the result, once no step is left."""
        logp, is_greedy = self._edges.along(self._scored)
        return LogLikelihoods(
            logp=logp,
            is_greedy=is_greedy,
            n_scored=self._sequences.n_scored,
            rows_evaluated=self._rows_evaluated,
            rows_naive=self._sequences.rows_naive,
        )


def _forget(model: Model, nodes: IntArray, local: IntArray) -> None:
    """Release the nodes of local rows, unless that was done before."""
    held = nodes[local]
    model.release(held[held > 0], forget=True)
    nodes[local] = 0


class _Pace:
    """Decides how many rows the next call takes.

    This depends on the model's limits and the sequences alone.

    Attention may read the cells of a memory in whole blocks
    (`CallCost.cells_per_read`). A call then costs each of its rows the same however
    full its last block is, and a further block costs more than another call does. So a
    call fills memory up to the end of a block, and a call that has to begin a further
    block ends as soon as the path above the next row no longer reaches into that block.
    In llama.cpp, whose blocks have 256 cells, a model of 0.26 M takes 88 microseconds a
    row within 256 cells and 158 within 512; one of 0.5 B takes 9.4 ms and 10.1 ms. If a
    model's memory is not read in blocks, a call is as large as the model takes.
    """

    def __init__(self, limits: Limits, depth: IntArray) -> None:
        """Start before the first node.

        Args:
            limits: Limits of the model.
            depth: int[], depth of each node to evaluate, in order, without the root.
        """
        self._limits = limits
        self._carried = depth - 1

    def capacity_at(self, at: int) -> Capacity:
        """Return the capacity of a call that begins with node `at`.

        The memory then holds the path above that node and nothing else.
        """
        return Capacity(self._rows(at), self._limits.nodes, self._limits.sequences)

    def _rows(self, at: int) -> int:
        limits, cost = self._limits, self._limits.call_cost
        block, multiple = cost.cells_per_read, limits.batch_sizes.multiple
        if limits.kind.is_recurrent or block == 1 or at == len(self._carried):
            return limits.rows_per_call
        carried = int(self._carried[at])
        end = -(-(carried + cost.min_rows) // block) * block
        rows = min(limits.rows_per_call, (end - carried) // multiple * multiple)
        left = np.flatnonzero(self._carried[at + cost.min_short_rows : at + rows] <= end - block - cost.min_rows)
        return int(left[0]) + cost.min_short_rows if len(left) else rows


@dataclass(frozen=True, slots=True, eq=False)
class _ScoredNodes:
    """Where in a trie the sequences are scored.

    Attributes:
        end: int32[C], node of the last token.
        n_scored: int64[C], number of tokens that count.
        wanted: bool[N], nodes whose row scores a token that counts.
        marked: bool[N], wanted nodes and all their ancestors but the root.
    """

    end: IntArray
    n_scored: OffsetArray
    wanted: BoolArray
    marked: BoolArray

    @staticmethod
    def of(trie: TokenTrie, sequences: Sequences) -> _ScoredNodes:
        end: IntArray = trie.path_node[trie.path_of]
        n_scored = sequences.n_scored
        wanted = np.zeros(len(trie), dtype=np.bool_)
        node, left = end.copy(), n_scored.copy()
        while len(node):
            going = left > 0
            node, left = trie.parent[node[going]], left[going] - 1
            wanted[node] = True
        before = np.concatenate(([0], np.cumsum(wanted)))
        numbers = np.arange(len(trie))
        marked = before[numbers + trie.n_nodes_below + 1] > before[numbers]
        marked[ROOT] = False
        return _ScoredNodes(end, n_scored, wanted, marked)


class _EdgeReader:
    """Collects what rows say about the edges of a trie.

    Attributes:
        edge_logp: float64[N], log-probability of each edge; NaN where the parent's row
            was not read.
        greedy: bool[N], whether the edge's token was the most probable one after its
            parent; False where the parent's row was not read.
    """

    def __init__(self, trie: TokenTrie) -> None:
        self._trie, self._reader = trie, TrieReader(trie, row_needs(trie, "none"))
        self.edge_logp: FloatArray = np.full(len(trie), np.nan)
        self.greedy: BoolArray = np.zeros(len(trie), dtype=np.bool_)

    def reads(self, nodes: IntArray) -> Reads:
        """Return what `read` reads of the rows of `nodes`."""
        children, owner = self._reader.children(nodes)
        return Reads(len(nodes), owner, self._trie.token[children], best=True)

    def read(self, nodes: IntArray, rows: Rows) -> None:
        """Read the rows of `nodes`, in order."""
        if not len(nodes):
            return
        children, owner = self._reader.children(nodes)
        tokens = self._trie.token[children]
        self.edge_logp[children] = np.minimum(rows.logp(owner, tokens), 0.0)
        self.greedy[children] = rows.best()[owner] == tokens

    def along(self, scored: _ScoredNodes) -> tuple[FloatArray, BoolArray]:
        """Return the sum over each sequence's scored edges and whether all were greedy.

        The shapes are float64[C] and bool[C]. Edges are added from the last to the
        first.
        """
        logp = np.zeros(len(scored.end))
        is_greedy = np.ones(len(scored.end), dtype=np.bool_)
        going = np.flatnonzero(scored.n_scored > 0)
        node, left = scored.end[going], scored.n_scored[going]
        while len(going):
            logp[going] += self.edge_logp[node]
            is_greedy[going] &= self.greedy[node]
            stay = left > 1
            going, node, left = going[stay], self._trie.parent[node[stay]], left[stay] - 1
        return logp, is_greedy


class LoglikelihoodScorer:
    """Measures units on the model's thread, each in a separate memory.

    Made by `Engine.loglikelihood_scorer`; a context manager. Any thread may measure,
    and threads that do so at the same time have separate memories. Other work of the
    engine gets a turn after every model call, which changes no bit.

    Args:
        owner: The thread of the model.
        model: The model.
        nodes: Number of tokens of the longest sequence.
        keep: An object kept alive as long as the scorer.
    """

    def __init__(self, owner: ModelThread, model: Model, nodes: int, *, keep: object = None) -> None:
        """Start without a memory; `keep` is kept alive as long as the scorer."""
        self._model_thread, self._model, self._nodes, self._kept = owner, model, nodes, keep
        self._solos: list[Model] = []  # those not in use
        self._is_closed = False

    def __enter__(self) -> LoglikelihoodScorer:  # noqa: PYI034 - Self is not in typing before Python 3.11, and the class is final
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def loglikelihoods(self, sequences: Sequences) -> LogLikelihoods:
        """Measure one unit, as the function `loglikelihoods` does.

        Ctrl-C stops it in the middle of a decode. If it fails, its memory is freed, and
        the next unit gets a new one.
        """
        if self._is_closed:
            raise ClosedError("the scorer")
        with task_group(self._model_thread) as group:
            solo = group.call(self._take)
            evaluation = _Evaluation(solo, sequences)
            while group.call(evaluation.step):
                pass
            group.call(evaluation.leave)
            self._solos.append(solo)
            if self._is_closed:  # by another thread in the meantime
                self.close()
            return evaluation.result()

    def _take(self) -> Model:
        """Return a context without nodes: a spare one, or else a new one."""
        with suppress(IndexError):
            return self._solos.pop()
        limits = self._model.limits
        return self._model.new_context(self._nodes + limits.rows_per_call, limits.sequences)

    def close(self) -> None:
        """Free the memory. May be called twice, and after the engine was closed."""
        self._is_closed = True
        with suppress(ClosedError, ForkedError):  # the rest is freed by garbage collection
            while self._solos:
                self._model_thread.call(self._solos.pop().close)
