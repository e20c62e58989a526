"""Reads the log-probability of every token of given prompts.

The prompts of one call are put into tries, one for each first token, so that every
prefix that they share is evaluated once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.model import Model
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost, IntArray, Limits, OffsetArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.trie.prompt_rows import PromptRows, PromptRowsTask
from selectrie.decoding.trie.scored_nodes import ScoredNodes
from selectrie.engine.requests.session import Session
from selectrie.errors import IncompatibleOptionsError, OptionError, PromptTooLongError, of_request
from selectrie.options import DEFAULT_PROMPTING, PromptParams, at_least, number, record, token_ids
from selectrie.results import PromptLogprobs, Signature, TokenScore
from selectrie.tokenization.prompts import Prompt, exact_tokens, prompt_notes

_NO_COST = Cost()


@dataclass(frozen=True, slots=True)
class PromptLogprobsRequest:
    """The options of a request as the caller gave them (`Engine.prompt_logprobs`)."""

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
            raise IncompatibleOptionsError(f"truncate={self.prompting.truncate!r}", "prompt_logprobs", remedy)
        if type(self.priority) is not int:
            raise OptionError("priority", self.priority, "a whole number")
        if self.deadline_s is not None:
            remedy = "seconds above 0, or None for no deadline"
            number("deadline_s", self.deadline_s, min_value=math.ulp(0.0), remedy=remedy)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Prompts with the same first token.

    Attributes:
        members: Indices of the prompts among all of the request.
        context: int32[T], T >= 1, the tokens that all of them begin with. No row before
            that of the last of them is read.
        trie: The trie of the rest of each prompt.
        scored: The nodes of the trie whose rows are read.
    """

    members: tuple[int, ...]
    context: IntArray
    trie: TokenTrie
    scored: ScoredNodes

    @staticmethod
    def of(members: Sequence[int], prompts: Sequence[IntArray], first: int) -> _Group:
        """Return the group of some of the prompts.

        Each of them has more than `first` tokens.
        """
        tokens = [prompts[index] for index in members]
        n_shared = min(first, *(_common_start(tokens[0], other) for other in tokens))
        rests = [one[n_shared:] for one in tokens]
        offsets: OffsetArray = np.cumsum([0, *(len(rest) for rest in rests)], dtype=np.int64)
        trie = TokenTrie.from_flat(np.concatenate(rests), offsets)
        n_scored = np.array([len(one) - first for one in tokens], dtype=np.int64)
        return _Group(tuple(members), tokens[0][:n_shared], trie, ScoredNodes.of(trie, n_scored))

    def path(self, member: int) -> list[int]:
        """Return the nodes of the rest of a prompt, in order, behind the root."""
        nodes, node = [], int(self.scored.end[member])
        while node >= 0:
            nodes.append(node)
            node = int(self.trie.parent[node])
        return nodes[::-1]


def _common_start(a: IntArray, b: IntArray) -> int:
    """Return the number of tokens that both begin with."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n


@dataclass(frozen=True, slots=True, eq=False)
class PreparedPromptLogprobs:
    """A request for the log-probabilities of prompts, checked and tokenized.

    Attributes:
        request: The options of the request.
        vocabulary: The model's vocabulary.
        prompts: The tokens of each prompt, int32[T].
        notes: The notes of each result.
        groups: The prompts of which a row is read, by their first token.
    """

    request: PromptLogprobsRequest
    vocabulary: Vocabulary
    prompts: tuple[IntArray, ...]
    notes: tuple[tuple[str, ...], ...]
    groups: tuple[_Group, ...]

    def run(self, session: Session) -> list[PromptLogprobs]:
        """Evaluate all prompts together and return a result for each, in order."""
        with session.group.together():
            handles = [session.group.begin(self._task(group)) for group in self.groups]
        signature = Signature.of(
            session.model.identity, session.check, rule="joint", terminator="none", boundary="split"
        )
        results: list[PromptLogprobs | None] = [None] * len(self.prompts)
        for group, handle in zip(self.groups, handles, strict=True):
            only = group.members[0] if len(group.members) == 1 < len(self.prompts) else None
            with of_request(only):
                rows = handle.result()
            for index, result in self._results(group, rows, handle.cost, signature):
                results[index] = result
        return [
            self._result(index, [], PromptRows.none(), _NO_COST, signature) if result is None else result
            for index, result in enumerate(results)
        ]

    def _task(self, group: _Group) -> PromptRowsTask:
        return PromptRowsTask(
            group.context,
            group.trie,
            group.scored,
            top=self.request.top,
            named=np.array(self.request.named, dtype=np.int32),
            n_vocabulary=len(self.vocabulary.pieces),
        )

    def _results(
        self, group: _Group, rows: PromptRows, cost: Cost, signature: Signature
    ) -> Iterable[tuple[int, PromptLogprobs]]:
        """Yield the result of each prompt of a group, with its index."""
        paths = [group.path(member) for member in range(len(group.members))]
        n_new = _first_needs(paths, len(group.trie), len(group.context))
        n_all, n_before = sum(n_new), 0
        for index, path, n in zip(group.members, paths, n_new, strict=True):
            share = _share(cost, n_before, n_before + n, n_all)
            n_before += n
            yield index, self._result(index, path, rows, replace(share, rows_naive=self._n_naive(index)), signature)

    def _n_naive(self, index: int) -> int:
        return len(self.prompts[index]) - 1

    def _result(
        self, index: int, path: list[int], rows: PromptRows, cost: Cost, signature: Signature
    ) -> PromptLogprobs:
        """Return the result of a prompt.

        The nodes of `path` behind the first, the root, are those of its last tokens.
        """
        tokens = self.prompts[index].tolist()
        n_read = max(0, len(tokens) - self.request.first)
        before: tuple[None, ...] = (None,) * (len(tokens) - n_read)
        nodes = path[len(path) - n_read :]
        parents = path[len(path) - n_read - 1 : -1]
        labels = {token: TokenScore.of(self.vocabulary, token, 0.0).label for token in set(tokens)}
        return PromptLogprobs(
            tokens=tuple(tokens),
            labels=tuple(labels[token] for token in tokens),
            logp=before + tuple(rows.edge_logp[nodes].tolist()),
            is_greedy=before + tuple((rows.best[parents] == tokens[len(tokens) - n_read :]).tolist()),
            top=before + tuple(rows.top.get(node, ()) for node in parents),
            named=before + tuple(rows.named.get(node, ()) for node in parents),
            named_ids=tuple(self.request.named),
            cost=cost,
            signature=signature,
            notes=self.notes[index],
        )


def prepare(model: Model, prompts: Iterable[Prompt], request: PromptLogprobsRequest) -> PreparedPromptLogprobs:
    """Check and tokenize prompts that are evaluated together.

    Raises `RequestError` for everything that can be found invalid without a model call.
    The error's `request` is the index of the prompt.
    """
    vocabulary, limits = model.vocabulary, model.limits
    n_vocabulary = len(vocabulary.pieces)
    at_least("top", request.top, 0, max_value=n_vocabulary, optional=False)
    vocabulary.check_tokens(request.named)
    several = _as_list(prompts)
    tokens, notes = [], []
    for index, prompt in enumerate(several):
        with of_request(index if len(several) > 1 else None):
            read, is_normalized = exact_tokens(vocabulary, prompt, request.prompting)
            _check_fits(len(read), limits)
            tokens.append(read)
            notes.append(prompt_notes(is_normalized=is_normalized))
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
        raise PromptTooLongError(
            required_tokens=n_tokens - 1,
            available_tokens=limits.nodes,
            prefix_tokens=limits.prefix_tokens,
            remedy="shorten the prompt",
            larger_context=limits.larger_context,
        )


def _first_needs(paths: Sequence[Sequence[int]], n_nodes: int, n_context: int) -> list[int]:
    """Return how many rows each prompt is the first to need, the context's included."""
    is_new = np.ones(n_nodes, dtype=np.bool_)
    is_new[0] = False
    counts: list[int] = []
    for path in paths:
        inner = np.array(path[1:-1], dtype=np.int64)
        counts.append(int(np.count_nonzero(is_new[inner])) + (0 if counts else n_context))
        is_new[inner] = False
    return counts


def _share(cost: Cost, start: int, stop: int, n: int) -> Cost:
    """Return the part of a cost that belongs to the rows start..stop of n.

    The parts of consecutive ranges add up to the whole; `model_calls` counts for each
    that has a row.
    """
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
