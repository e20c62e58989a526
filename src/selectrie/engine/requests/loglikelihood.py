"""Reads given texts: log-likelihoods of sequences, and of every token of prompts.

The sequences of one call of `loglikelihood` are put into one trie, and every distinct
node is evaluated once, in a separate empty memory. The layout of calls depends on the
sequences alone, so no bit depends on other work, or on the order of the sequences. A
run that was killed and resumed therefore gives the same numbers.

The prompts of one call of `prompt_logprobs` are put into tries, one for each first
token, so that a shared prefix is evaluated once. Values that any call has read before
come from a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import pairwise
from types import TracebackType

import numpy as np

from selectrie.core.model import ModelDescription
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, BoolArray, Cost, FloatArray, IntArray, Limits, OffsetArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.scoring.evaluation import RowNeeds, TrieEvaluation
from selectrie.decoding.trie.exhaustive import (
    PromptReads,
    PromptValues,
    RowValues,
    ScorePlan,
    ScoreTask,
    mark_ancestors,
    path_keys,
    scoring_nodes,
)
from selectrie.engine.requests.session import Session, fix_time
from selectrie.engine.scheduler.model_thread import Handle
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import (
    THE_PROMPT,
    ClosedError,
    IncompatibleOptionsError,
    OptionError,
    OptionRef,
    of_request,
    words,
)
from selectrie.options import DEFAULT_PROMPTING, PromptParams, at_least, record, token_ids
from selectrie.options.checks import DEADLINE
from selectrie.results import PromptLogprobs, Signature, TokenScore
from selectrie.tokenization.prompts import Prompt, exact_tokens, time_of

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


_NO_COST = Cost()


@dataclass(frozen=True, slots=True)
class PromptLogprobsRequest:
    """The options of a request, as passed to `Engine.prompt_logprobs`."""

    top: int = 0
    named: Sequence[int] = ()
    first: int = 1
    prompting: PromptParams = DEFAULT_PROMPTING
    priority: int = 0
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        at_least("top", self.top, 0, optional=False)
        object.__setattr__(self, "named", token_ids("named", self.named))
        at_least("first", self.first, 1, optional=False)
        record("prompting", self.prompting, PromptParams)
        if self.prompting.delimiter:
            remedy = "it is added before choices, and here is nothing after the prompt"
            raise IncompatibleOptionsError("delimiter", "prompt_logprobs", remedy)
        if self.prompting.truncate != "error":
            remedy = "a token is predicted by all those before it; drop tokens from the prompt yourself"
            raise IncompatibleOptionsError(OptionRef("truncate", self.prompting.truncate), "prompt_logprobs", remedy)
        if type(self.priority) is not int:
            raise OptionError("priority", self.priority, "a whole number")
        if self.deadline_s is not None:
            DEADLINE.check("deadline_s", self.deadline_s)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """The prompts of a request that begin with the same token, as a trie.

    Attributes:
        members: Index of each prompt among all prompts of the request.
        trie: The trie of the prompts. The root, the empty context, has one child.
        wanted: bool[N], nodes of the trie whose rows must be read.
        keys: Cache key of each node (`path_keys`).
    """

    members: tuple[int, ...]
    trie: TokenTrie
    wanted: BoolArray
    keys: list[bytes]

    @staticmethod
    def of(members: Sequence[int], prompts: Sequence[IntArray], first: int) -> _Group:
        """Build the trie of some prompts, each of which has more than `first` tokens.

        Args:
            members: Indices into `prompts`.
            prompts: The tokens of all prompts of the request, int32[T] each.
            first: Index of the first token of a prompt whose log-probability is read.
        """
        tokens = [prompts[index] for index in members]
        offsets: OffsetArray = np.cumsum([0, *(len(one) for one in tokens)], dtype=np.int64)
        trie = TokenTrie.from_flat(np.concatenate(tokens), offsets)
        n_scored = np.array([len(one) - first for one in tokens], dtype=np.int64)
        return _Group(tuple(members), trie, scoring_nodes(trie, n_scored), path_keys(trie))

    def nodes_of(self, member: int) -> list[int]:
        """Return the trie nodes of a prompt's tokens; `member` indexes `members`."""
        nodes, node = [], int(self.trie.path_node[self.trie.path_of[member]])
        while node:
            nodes.append(node)
            node = int(self.trie.parent[node])
        return nodes[::-1]

    def begin(self, session: Session, reads: PromptReads) -> _GroupRead:
        """Start a task that reads the wanted rows which are not cached, if any."""
        trie, known, wanted = self.trie, {}, self.wanted.copy()
        for node in np.flatnonzero(wanted).tolist():
            found = reads.known_values(self.keys[node], trie.token[trie.children(node)].tolist())
            if found is not None:
                known[node] = found
                wanted[node] = False
        if not wanted.any():
            return _GroupRead(known, ROOT, wanted)
        start = _deepest_common_node(trie, wanted)
        stop = start + int(trie.n_nodes_below[start]) + 1
        context, rests = trie.path(start), [one[trie.depth[start] :] for one in self._paths_below(start)]
        offsets: OffsetArray = np.cumsum([0, *(len(rest) for rest in rests)], dtype=np.int64)
        # Nodes are numbered depth-first, so those below a node keep their order.
        below = TokenTrie.from_flat(np.concatenate(rests), offsets)
        values = PromptValues(below, self.keys[start:stop], reads)
        needs = RowNeeds.of_edges(wanted[start:stop])
        task = ScoreTask(context, below, needs, max_rows=values.max_rows, values=values)
        return _GroupRead(known, start, wanted, values, session.group.begin(task))

    def _paths_below(self, node: int) -> list[IntArray]:
        """Return the tokens of all prompts whose path goes through a node."""
        trie = self.trie
        first = int(trie.first_path[node])
        return [trie.path(int(end)) for end in trie.path_node[first : first + int(trie.n_paths[node])]]


@dataclass(frozen=True, slots=True, eq=False)
class _GroupRead:
    """The cached values of a group, and the task that reads its other rows.

    Attributes:
        known: The cached values, by node.
        start: The node that is row 0 of the task.
        wanted: bool[N], the nodes whose rows the task reads.
        collector: Collects the values that the task reads, by the task's own node
            numbers. None if all values were cached.
        handle: The handle of the task; None if there is no task.
    """

    known: dict[int, RowValues]
    start: int
    wanted: BoolArray
    collector: PromptValues | None = None
    handle: Handle[TrieEvaluation] | None = None

    def values(self) -> dict[int, RowValues]:
        """Wait for the task, and return the values of every wanted node."""
        if self.handle is None or self.collector is None:
            return self.known
        self.handle.result()
        return self.known | {self.start + node: values for node, values in self.collector.of_node.items()}

    @property
    def cost(self) -> Cost:
        """Return the model work of the task."""
        return _NO_COST if self.handle is None else self.handle.cost


def _deepest_common_node(trie: TokenTrie, wanted: BoolArray) -> int:
    """Return the deepest node through which the paths to all wanted nodes go."""
    is_needed = mark_ancestors(trie, wanted)
    node = ROOT
    while node == ROOT or not wanted[node]:
        needed = [child for child in trie.children(node).tolist() if is_needed[child]]
        if len(needed) > 1:
            break
        node = needed[0]
    return node


@dataclass(frozen=True, slots=True, eq=False)
class PreparedPromptLogprobs:
    """A request for the log-probabilities of prompts, checked and tokenized.

    Attributes:
        request: The options of the request.
        vocabulary: The model's vocabulary.
        prompts: The tokens of each prompt, int32[T].
        notes: The notes of each result.
        groups: The prompts with at least one token to score, grouped by first token.
    """

    request: PromptLogprobsRequest
    vocabulary: Vocabulary
    prompts: tuple[IntArray, ...]
    notes: tuple[tuple[str, ...], ...]
    groups: tuple[_Group, ...]

    def run(self, session: Session) -> list[PromptLogprobs]:
        """Evaluate all prompts together and return a result for each, in order.

        Raises `OptionError` if `top` is more than the server reports for a row.
        """
        if session.max_top is not None and self.request.top > session.max_top:
            expected = f"at most {session.max_top}, as many as the server tells with certainty"
            raise OptionError("top", self.request.top, expected)
        named = tuple(self.request.named)
        reads = PromptReads(self.request.top, named, len(self.vocabulary.pieces), session.known_values)
        with session.group.together():
            readings = [group.begin(session, reads) for group in self.groups]
        signature = Signature.of(
            session.model.identity,
            session.check,
            rule="joint",
            terminator="none",
            boundary="split",
            time=time_of(self.request.prompting),
        )
        results: dict[int, PromptLogprobs] = {}
        for group, reading in zip(self.groups, readings, strict=True):
            with of_request(group.members[0] if len(group.members) == 1 < len(self.prompts) else None):
                values = reading.values()
            paths = [group.nodes_of(member) for member in range(len(group.members))]
            costs = _split_cost(reading, paths, group.trie)
            for index, path, cost in zip(group.members, paths, costs, strict=True):
                rows = [values[node] for node in path[self.request.first - 1 : -1]]
                results[index] = self._result(index, rows, cost, signature)
        return [
            results[index] if index in results else self._result(index, [], _NO_COST, signature)
            for index in range(len(self.prompts))
        ]

    def _result(self, index: int, rows: Sequence[RowValues], cost: Cost, signature: Signature) -> PromptLogprobs:
        """Return the result of a prompt; `rows` predict its last len(rows) tokens."""
        tokens, named, n_top = self.prompts[index].tolist(), self.request.named, self.request.top
        before: tuple[None, ...] = (None,) * (len(tokens) - len(rows))
        read = list(zip(tokens[len(before) :], rows, strict=True))
        labels = {token: TokenScore.of(self.vocabulary, token, 0.0).label for token in set(tokens)}
        return PromptLogprobs(
            tokens=tuple(tokens),
            labels=tuple(labels[token] for token in tokens),
            logp=before + tuple(row.logp[token] for token, row in read),
            is_greedy=before + tuple(row.best == token for token, row in read),
            top=before + tuple(row.top[:n_top] for row in rows),
            named=before + tuple(tuple(row.logp[one] for one in named) for row in rows),
            named_ids=tuple(named),
            cost=cost,
            signature=signature,
            notes=self.notes[index],
        )


def prepare_prompt_logprobs(
    model: ModelDescription, prompts: Iterable[Prompt], request: PromptLogprobsRequest
) -> PreparedPromptLogprobs:
    """Check and tokenize prompts that are evaluated together.

    Raises `RequestError` for everything that can be found invalid without a model call.
    The error's `request` is the index of the prompt.
    """
    vocabulary, limits = model.vocabulary, model.limits
    n_vocabulary = len(vocabulary.pieces)
    at_least("top", request.top, 0, max_value=n_vocabulary, optional=False)
    vocabulary.check_tokens(request.named)
    several = _as_list(prompts)
    request = replace(request, prompting=fix_time(vocabulary, request.prompting, *several))
    tokens, notes = [], []
    for index, prompt in enumerate(several):
        with of_request(index if len(several) > 1 else None):
            read, noted = exact_tokens(vocabulary, prompt, request.prompting)
            _check_fits(len(read), limits)
            tokens.append(read)
            notes.append(noted)
    by_first: dict[int, list[int]] = {}
    for index, one in enumerate(tokens):
        if len(one) > request.first:
            by_first.setdefault(int(one[0]), []).append(index)
    groups = tuple(_Group.of(members, tokens, request.first) for members in by_first.values())
    return PreparedPromptLogprobs(request, vocabulary, tuple(tokens), tuple(notes), groups)


def _as_list(prompts: Iterable[Prompt]) -> list[Prompt]:
    """Return the prompts as a list; raise `OptionError` for a single prompt."""
    allowed = "a list of prompts, each text, token ids or messages; a single prompt is a list of one"
    if isinstance(prompts, str | bytes | bytearray | Mapping) or not isinstance(prompts, Iterable):
        raise OptionError("prompts", prompts, allowed)
    several = list(prompts)
    if several and isinstance(several[0], int | np.integer | Mapping):
        raise OptionError("prompts", several, allowed)
    return several


def _check_fits(n_tokens: int, limits: Limits) -> None:
    """Raise `PromptTooLongError` if a prompt does not fit.

    The last token takes no node, because its row is not read.
    """
    if n_tokens - 1 > limits.nodes:
        raise limits.too_long(n_tokens - 1, words("shorten {}", THE_PROMPT))


def _split_cost(reading: _GroupRead, paths: Sequence[Sequence[int]], trie: TokenTrie) -> list[Cost]:
    """Split the cost of a group among its prompts.

    A row counts for the first prompt that needs it, or needs a row below it. The rows
    of all prompts add up to the total. Each prompt with a row counts all `model_calls`.
    """
    is_new = mark_ancestors(trie, reading.wanted)
    counts = []
    for path in paths:
        counts.append(int(np.count_nonzero(is_new[path])))
        is_new[path] = False
    bounds = np.cumsum([0, *counts]).tolist()
    return [
        replace(_cost_share(reading.cost, start, stop, bounds[-1]), rows_naive=len(path) - 1)
        for path, (start, stop) in zip(paths, pairwise(bounds), strict=True)
    ]


def _cost_share(cost: Cost, start: int, stop: int, n: int) -> Cost:
    """Return the share of a cost that belongs to rows start..stop of n."""
    if stop == start:
        return _NO_COST

    def part(value: int) -> int:
        return round(value * stop / n) - round(value * start / n)

    return Cost(
        model_calls=cost.model_calls,
        rows=part(cost.rows),
        rows_repeated=part(cost.rows_repeated),
        rows_padded=part(cost.rows_padded),
        decode_s=cost.decode_s * (stop - start) / n,
    )
