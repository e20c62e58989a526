"""Computes log-likelihoods of many token sequences.

The sequences of one call are a unit. One trie holds all of them, and every distinct
node is evaluated once, in a separate empty memory. The layout of calls is a function of
the sequences alone: no bit depends on other work before or at the same time, or on the
order of the sequences. A run that was killed and resumed therefore gives the same
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from selectrie.core.model import Model, ModelDescription
from selectrie.core.rows import Reads, Rows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, BoolArray, Capacity, FloatArray, IntArray, Limits, OffsetArray
from selectrie.decoding.scoring import TrieReader, row_needs
from selectrie.decoding.task import Ask, TaskBase, extend_in_rounds
from selectrie.decoding.trie.exhaustive import DepthFirstOrder, DepthFirstWindows
from selectrie.decoding.trie.prompt_rows import ScoredNodes
from selectrie.engine.scheduler.job import Told
from selectrie.engine.scheduler.model_thread import JobThread, ModelThread
from selectrie.engine.scheduler.task_group import task_group
from selectrie.errors import CapacityError, ClosedError, ForkedError, OptionError

Tokens = Sequence[int] | IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """C token sequences, each with the first of its tokens that count.

    Attributes:
        tokens: int32[], the tokens of all sequences, one after the other.
        offsets: int64[C+1]; sequence c is tokens[offsets[c]:offsets[c+1]].
        first_scored: int64[C], the position in each sequence of the first token that
            counts; the length of a sequence in which none counts. It is at least 1
            (else `OptionError`), since the very first token has no probability.
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
        """Make sequences from pairs (context, continuation); the continuations count.

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
        """Return the number of rows that evaluating each sequence alone takes.

        The last token of a sequence needs no row of its own.
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
        rows_naive: Number of rows that evaluating each sequence alone takes.
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
    """Return the log-likelihoods of sequences, evaluated on an empty model.

    The model is left empty. A row is evaluated for each distinct prefix that leads to a
    token that counts. Logits are computed only for rows that score a token.

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
    """The evaluation of one unit of sequences on an empty model, call by call."""

    def __init__(self, model: Model, sequences: Sequences, observer: Told | None = None) -> None:
        """Prepare the evaluation without a model call.

        `observer` is told what is evaluated and read. Raises the errors of
        `loglikelihoods` for invalid sequences.
        """
        model.vocabulary.check_tokens(sequences.tokens)
        self._model, self._sequences, self._observer = model, sequences, observer
        trie = TokenTrie.from_flat(sequences.tokens, sequences.offsets)
        self._scored = ScoredNodes.of(trie, sequences.n_scored)
        longest = int(trie.depth.max(initial=0))
        if longest - 1 > model.limits.nodes:
            raise CapacityError("nodes", required=longest - 1, available=model.limits.nodes)
        self._edges = _EdgeReader(trie)
        self._windows = DepthFirstWindows(DepthFirstOrder(trie, self._scored.marked, self._scored.wanted))
        self._pace = _Pace(model.limits, trie.depth[self._windows.nodes])
        n = int(np.count_nonzero(self._scored.marked))
        # Node of each local row; row 0 is the empty context.
        self._nodes: IntArray = np.zeros(n + 1, dtype=np.int32)
        self._next: tuple[Ask, IntArray] | None = None
        self._rows_evaluated = 0

    def step(self) -> bool:
        """Make the next model call; return False if none is left.

        If a call fails, the next step makes it again.
        """
        model, nodes, windows = self._model, self._nodes, self._windows
        if self._next is None:
            capacity = self._pace.capacity_at(windows.at)
            self._next = windows.next_window(capacity)
            if self._next is None:
                return False
            _forget(model, nodes, self._next[0].release)
        ask, scored = self._next
        parents = np.where(ask.parents >= 0, nodes[np.maximum(ask.parents, 0)], ask.parents).astype(np.int32)
        made, rows = extend_in_rounds(model, parents, ask.tokens, ask.wanted, ask.keep)
        nodes[windows.next_local - len(made) : windows.next_local] = made
        if model.limits.kind.is_recurrent:  # only the end of a long path needs a state
            _forget(model, nodes, windows.spent)
        rows = rows.fetch(lambda: self._edges.reads(scored))
        if self._observer is not None:
            self._observer(ask, self._edges.reads(scored), rows)
        self._edges.read(scored, rows)
        self._rows_evaluated += len(made)
        self._next = None
        return True

    def leave(self) -> None:
        """Release the nodes that are still held."""
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
    """Release the nodes of local rows that were not released before."""
    held = nodes[local]
    model.release(held[held > 0], forget=True)
    nodes[local] = 0


class _Pace:
    """Decides how many rows the next call takes.

    The numbers depend on the model's limits and the sequences alone.

    Attention may read the cells of a memory in whole blocks
    (`CallCost.cells_per_read`). The cost of a row then depends on the number of blocks
    in use, not on how full the last one is, and one more block costs more than one more
    call. So a call fills memory up to the end of a block. A call that has to begin a
    further block ends as soon as the path above the next row no longer reaches into
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


class _EdgeReader:
    """Reads the log-probabilities of a trie's edges from rows.

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
        """Return the `Reads` that `read` needs from the rows of `nodes`."""
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

    def along(self, scored: ScoredNodes) -> tuple[FloatArray, BoolArray]:
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


class ScoresSequences(Protocol):
    """Computes log-likelihoods of sequences, and is a context manager.

    Made by `Engine.loglikelihood_scorer`.
    """

    def __enter__(self) -> ScoresSequences: ...  # noqa: PYI034 - Self is not in typing before Python 3.11

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def loglikelihoods(self, sequences: Sequences) -> LogLikelihoods:
        """Return the log-likelihoods of sequences, as the function of this name does.

        Raises its errors, and `ClosedError` if the scorer or the engine was closed.
        """
        ...

    def close(self) -> None:
        """Free the memory. May be called twice, and after the engine was closed."""
        ...


class LoglikelihoodScorer:
    """Computes log-likelihoods of sequences on the model's thread.

    Made by `Engine.loglikelihood_scorer`; a context manager. Any thread may call
    `loglikelihoods`, and calls at the same time have separate memories. Other work of
    the engine gets a turn after every model call, which changes no bit.

    Args:
        owner: The thread of the model.
        model: The model.
        nodes: Number of tokens of the longest sequence.
        keep: An object kept alive as long as the scorer.
    """

    def __init__(self, owner: ModelThread, model: Model, nodes: int, *, keep: object = None) -> None:
        """Create a scorer without memory; `keep` lives as long as the scorer."""
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
        """Return the log-likelihoods of sequences, as the function of this name does.

        Ctrl-C stops it in the middle of a decode. If the call fails, its memory is
        freed, and the next call gets a new one.
        """
        if self._is_closed:
            raise ClosedError("the scorer")
        with task_group(self._model_thread) as group:
            solo = group.call(self._take)
            observer = None if group.observer is None else group.observer.begin_sequences()
            evaluation = _Evaluation(solo, sequences, observer)
            while group.call(evaluation.step):
                pass
            group.call(evaluation.leave)
            self._solos.append(solo)
            if self._is_closed:  # by another thread in the meantime
                self.close()
            return evaluation.result()

    def _take(self) -> Model:
        """Return an empty context of the model: a spare one, or else a new one."""
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


class SequencesTask(TaskBase[IntArray, tuple[FloatArray, BoolArray]]):
    """Reads the rows that score tokens of sequences which begin with the same tokens.

    The result has the sum over each sequence's tokens that count, float64[C], and
    whether all of these were greedy, bool[C].

    Args:
        prompt: int32[T], T >= 1, the tokens with which all sequences begin.
        trie: The rests of the sequences.
        n_scored: int64[C], the number of last tokens of each rest that count.
    """

    def __init__(self, prompt: IntArray, trie: TokenTrie, n_scored: OffsetArray) -> None:
        self._scored, self._edges = ScoredNodes.of(trie, n_scored), _EdgeReader(trie)
        self._windows = DepthFirstWindows(DepthFirstOrder(trie, self._scored.marked, self._scored.wanted))
        super().__init__(prompt, self._windows.floor, np.array([ROOT], dtype=np.int32))

    def _plan(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        return self._windows.next_window(capacity)

    def _is_unread(self, nodes: IntArray) -> bool:
        """Return whether the row of the prompt comes, and scores nothing."""
        return not len(nodes) or (nodes[0] == ROOT and not self._scored.wanted[ROOT])

    def _reads(self, nodes: IntArray) -> Reads:
        return Reads(len(nodes)) if self._is_unread(nodes) else self._edges.reads(nodes)

    def _read(self, nodes: IntArray, rows: Rows) -> None:
        if not self._is_unread(nodes):
            rows.check()
            self._edges.read(nodes, rows)

    def _result(self) -> tuple[FloatArray, BoolArray]:
        return self._edges.along(self._scored)


class PathScorer:
    """Computes log-likelihoods of sequences whose rows are read by their path.

    Args:
        thread: The thread that runs tasks.
        model: The model as requests see it.
        nodes: Number of tokens of the longest sequence.
        keep: An object kept alive as long as the scorer.

    Raises:
        CapacityError: If a path of the model cannot be as long.
    """

    def __init__(self, thread: JobThread[Any], model: ModelDescription, nodes: int, *, keep: object = None) -> None:
        """Create a scorer; `keep` lives as long as the scorer."""
        if nodes > model.limits.nodes:
            raise CapacityError("nodes", required=nodes, available=model.limits.nodes)
        self._thread, self._model, self._kept = thread, model, keep
        self._is_closed = False

    def __enter__(self) -> PathScorer:  # noqa: PYI034 - Self is not in typing before Python 3.11, and the class is final
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def loglikelihoods(self, sequences: Sequences) -> LogLikelihoods:
        """See `ScoresSequences`. Ctrl-C ends the requests that are under way."""
        if self._is_closed:
            raise ClosedError("the scorer")
        self._model.vocabulary.check_tokens(sequences.tokens)
        paths, n_scored = np.split(sequences.tokens, sequences.offsets[1:-1]), sequences.n_scored
        logp, is_greedy = np.zeros(len(sequences)), np.ones(len(sequences), dtype=np.bool_)
        by_first: dict[int, list[int]] = {}
        for index in np.flatnonzero(n_scored).tolist():
            by_first.setdefault(int(paths[index][0]), []).append(index)
        n_rows = 0
        with task_group(self._thread) as group:
            with group.together():
                handles = [
                    (
                        members,
                        group.begin(_task([paths[index] for index in members], n_scored[members])),
                    )
                    for members in by_first.values()
                ]
            for members, handle in handles:
                logp[members], is_greedy[members] = handle.result()
                n_rows += handle.cost.rows
        return LogLikelihoods(logp, is_greedy, n_scored, n_rows, sequences.rows_naive)

    def close(self) -> None:
        """Refuse further sequences. May be called twice."""
        self._is_closed = True


def _task(paths: Sequence[IntArray], n_scored: OffsetArray) -> SequencesTask:
    """Return the task of sequences with the same first token."""
    rests = [path[1:] for path in paths]
    trie = TokenTrie.from_flat(np.concatenate(rests), np.cumsum([0, *map(len, rests)], dtype=np.int64))
    return SequencesTask(paths[0][:1], trie, n_scored)
