"""Reads the log-probability of every token of given prompts.

The prompts of one call are put into tries, one for each first token, so that a shared
prefix is evaluated once. Values that any call has read before come from a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from selectrie.core.model import ModelDescription
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, BoolArray, Cost, IntArray, Limits, OffsetArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.scoring import RowNeeds, TrieEvaluation
from selectrie.decoding.trie.exhaustive import (
    PromptReads,
    PromptValues,
    RowValues,
    ScoreTask,
    mark_ancestors,
    path_keys,
    scoring_nodes,
)
from selectrie.engine.requests.session import Session, fix_time
from selectrie.engine.scheduler.model_thread import Handle
from selectrie.errors import THE_PROMPT, IncompatibleOptionsError, OptionError, OptionRef, of_request, words
from selectrie.options import DEFAULT_PROMPTING, PromptParams, at_least, record, token_ids
from selectrie.options.checks import DEADLINE
from selectrie.results import PromptLogprobs, Signature, TokenScore
from selectrie.tokenization.prompts import Prompt, exact_tokens, time_of

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
