"""Turns items into units: groups of token sequences that are evaluated together.

The order and the sizes of units depend only on the task. Text becomes tokens as in
lm-evaluation-harness (`TemplateLM._encode_pair`): white space at the end of a context
moves to the continuation, context and continuation are encoded together, and the tokens
beyond the length of the context's own encoding count. An empty context is the model's
first token: BOS, or EOS if there is no BOS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.types import IntArray, Limits
from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.engine.requests.loglikelihood import LogLikelihoods, Sequences
from selectrie.errors import OptionError, PromptError
from selectrie.evaluation.metrics import (
    BaselineNeeds,
    ChoiceLoglikelihood,
    Item,
    ItemRecord,
    baseline_needs,
    find_metrics,
)
from selectrie.options import DEFAULT_PROMPTING
from selectrie.tokenization.canonical import split_stable
from selectrie.tokenization.encoding import PromptText, encode_choices, encode_prompt
from selectrie.tokenization.prompts import read_prompt

UNIT_ROWS = 4096
"""Maximum number of rows of a unit beyond what its items share."""

SHORT_UNIT_ROWS, UNIT_OVER_SHARED = 512, 4
"""A unit ends at the larger of 512 rows and four times the shared rows.

Interrupted units are lost, and each unit evaluates its shared rows again.
"""

_Pair = tuple[IntArray, IntArray]
"""The tokens of a context, and those after it that are scored, each int32[]."""


@dataclass(frozen=True, slots=True)
class TaskItems:
    """The items of one task, in the order of its data, and the metrics to compute.

    Attributes:
        task: Name of the task.
        items: The items.
        metrics: Names of metrics (`metrics.METRICS`).
        version: Version of the task.
        n_shots: Number of examples before each question.
        unit_rows: Number of rows of a unit, beyond those that its items share.
        is_rolling: Whether each item is a text of any length, measured in windows.
    """

    task: str
    items: tuple[Item, ...]
    metrics: tuple[str, ...]
    version: int = 1
    n_shots: int = 0
    unit_rows: int = UNIT_ROWS
    is_rolling: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class UnitEntry:
    """An item of a unit, and the position of its sequences in the unit.

    The sequences come in blocks with one sequence for each choice: after its context
    and, if requested, after no context, after the premise, and after each content-free
    context.

    Attributes:
        index: The item's position in the task.
        item: The item.
        first: Position of its first sequence in the unit.
        n_windows: Number of windows of a rolling text, else 0.
        baselines: The requested contexts besides the item's own.
        problem: Reason why the item has no sequences, or None.
    """

    index: int
    item: Item
    first: int
    n_windows: int
    baselines: BaselineNeeds
    problem: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WorkUnit:
    """A unit: items of a task that share their beginning, measured and logged together.

    Attributes:
        number: The unit's number among all units of a run.
        task: Name of the task.
        entries: The items, with the positions of their sequences.
        sequences: The token sequences to measure.
    """

    number: int
    task: str
    entries: tuple[UnitEntry, ...]
    sequences: Sequences

    @property
    def longest(self) -> int:
        """Return the number of tokens of the unit's longest sequence."""
        return int(np.diff(self.sequences.offsets).max(initial=0))

    def records(self, loglikelihoods: LogLikelihoods) -> tuple[ItemRecord, ...]:
        """Return the records of the unit's items.

        Args:
            loglikelihoods: The log-likelihoods of the unit's sequences.
        """
        return tuple(_make_record(self, entry, loglikelihoods) for entry in self.entries)


def plan(vocabulary: Vocabulary, limits: Limits, tasks: Sequence[TaskItems]) -> tuple[WorkUnit, ...]:
    """Divide the items of all tasks into units, in order.

    Items with the same `shared` text are grouped, in the order of the data. A unit ends
    where its own rows exceed the task's `unit_rows`, or the larger of 512 and four
    times the shared rows.

    Raises:
        OptionError: For an item without choices, without a premise or content-free
            contexts that a metric needs, or with a choice that adds no token.
    """
    units: list[WorkUnit] = []
    for task in tasks:
        encoder = _Encoder(vocabulary, limits, task)
        groups: dict[str, list[int]] = {}
        for index, item in enumerate(task.items):
            groups.setdefault(item.shared, []).append(index)
        for group in groups.values():
            for part in _split_into_units(encoder, task, group):
                units.append(_make_unit(len(units), task.task, part))
    return tuple(units)


@dataclass(frozen=True, slots=True, eq=False)
class _EncodedItem:
    """An item as pairs of context and continuation tokens, in the order of `UnitEntry`.

    Attributes:
        entry: The item's entry, with positions as if it were alone in a unit.
        pairs: The pairs.
        own_rows: Number of rows beyond those of the shared text.
    """

    entry: UnitEntry
    pairs: list[_Pair]
    own_rows: int


def _split_into_units(encoder: _Encoder, task: TaskItems, group: list[int]) -> Iterator[list[_EncodedItem]]:
    """Yield the encoded items of a group in parts that are small enough for a unit."""
    part: list[_EncodedItem] = []
    rows = 0
    n_shared = encoder.n_shared(task.items[group[0]].shared)
    most = min(task.unit_rows, max(SHORT_UNIT_ROWS, UNIT_OVER_SHARED * n_shared))
    for index in group:
        encoded = encoder.encode(index, task.items[index])
        if part and rows + encoded.own_rows > most:
            yield part
            part, rows = [], 0
        part.append(encoded)
        rows += encoded.own_rows
    yield part


def _make_unit(number: int, task: str, part: list[_EncodedItem]) -> WorkUnit:
    """Return a unit of encoded items, with their sequences one after the other."""
    entries: list[UnitEntry] = []
    pairs: list[_Pair] = []
    for one in part:
        entries.append(replace(one.entry, first=len(pairs)))
        pairs += one.pairs
    return WorkUnit(number, task, tuple(entries), Sequences.of(pairs))


class _Encoder:
    """Tokenizes the items of a task into pairs of context and continuation."""

    def __init__(self, vocabulary: Vocabulary, limits: Limits, task: TaskItems) -> None:
        self._vocabulary, self._task, self._baselines = vocabulary, task, baseline_needs(find_metrics(task.metrics))
        # The last token of a sequence is read, not evaluated.
        self._max_length = limits.nodes + 1
        start = vocabulary.start
        if start is None:
            raise PromptError("this model has neither BOS nor EOS, so an empty context has no token")
        self._start = np.array([start], dtype=np.int32)
        self._n_shared: dict[str, int] = {}
        self._settled: dict[str, tuple[bytes, PromptText]] = {}

    def encode(self, index: int, item: Item) -> _EncodedItem:
        """Return an item as tokens; one that is too long has a problem instead."""
        name = f"{self._task.task}[{index}]"
        if not item.choices:
            raise OptionError(f"{name}.choices", item.choices, "at least one choice")
        if self._task.is_rolling:
            pairs, needs = self._windows(item.choices[0]), BaselineNeeds()
        else:
            pairs, needs = self._choice_pairs(name, item), self._baselines
        longest = max(len(context) + len(rest) for context, rest in pairs)
        if longest > self._max_length:
            problem = f"too long: {longest} tokens, room for {self._max_length}"
            return _EncodedItem(UnitEntry(index, item, 0, 0, needs, problem), [], 0)
        n_shared = self.n_shared(item.shared)
        own = sum(len(rest) for _, rest in pairs) + max(len(context) for context, _ in pairs) - n_shared
        n_windows = len(pairs) if self._task.is_rolling else 0
        return _EncodedItem(UnitEntry(index, item, 0, n_windows, needs), pairs, own)

    def n_shared(self, shared: str) -> int:
        """Return about how many tokens the shared text has; it is encoded once."""
        if shared not in self._n_shared:
            n = len(encode_prompt(self._vocabulary, self._prompt(shared))) if shared else 0
            self._n_shared[shared] = n
        return self._n_shared[shared]

    def _prompt(self, text: str, shared: str = "") -> PromptText:
        """Return a text as a prompt.

        `shared`, with which many texts may begin, is encoded only once.
        """
        whole = read_prompt(self._vocabulary, text, DEFAULT_PROMPTING)
        if not shared or not text.startswith(shared):
            return whole
        if shared not in self._settled:
            beginning = read_prompt(self._vocabulary, shared, DEFAULT_PROMPTING)
            self._settled[shared] = beginning.text, split_stable(self._vocabulary, beginning)
        begins, settled = self._settled[shared]
        if not whole.text.startswith(begins):
            return whole
        return replace(settled, text=settled.text + whole.text[len(begins) :], is_normalized=whole.is_normalized)

    def _choice_pairs(self, name: str, item: Item) -> list[_Pair]:
        """Return the pairs of all choices: after contexts, then after baselines."""
        n = len(item.choices)
        continuations = [item.continuation(c) for c in range(n)]
        if item.contexts is None:
            pairs = self._pairs_after(item.context_of(0), continuations, item.shared)
        else:
            pairs = [self._pairs_after(item.context_of(c), [continuations[c]], item.shared)[0] for c in range(n)]
        for c, (_, rest) in enumerate(pairs):
            if not len(rest):
                raise OptionError(f"{name}.choices[{c}]", item.choices[c], "a choice that adds at least one token")
        conditional = list(pairs)
        if self._baselines.unconditional:
            pairs += self._pairs_after("", continuations)
        if self._baselines.premise:
            if item.premise is None:
                raise OptionError(f"{name}.premise", None, "a premise in the task, for the metric 'pmi_dc'")
            pairs += self._replace_contexts(item.premise, conditional)
        if self._baselines.content_free:
            if not item.content_free:
                raise OptionError(f"{name}.content_free", (), "content-free contexts in the task, for 'calibrated'")
            for context in item.content_free:
                pairs += self._replace_contexts(item.shared + context, conditional, item.shared)
        return pairs

    def _pairs_after(self, context: str, continuations: list[str], shared: str = "") -> list[_Pair]:
        """Return the pair of each continuation after a context, by the harness's rule.

        Context and continuation are encoded together. The tokens beyond the length of
        the context's own encoding are scored. The context is encoded alone.
        """
        if not context.strip():  # white space moves to the continuation
            return [self._pair_after_start(context + text) for text in continuations]
        written = [to_bytes(text, "choice") for text in continuations]
        try:
            encoded = encode_choices(self._vocabulary, self._prompt(context, shared), written, boundary="harness")
        # No token of the context stays the same before every choice.
        except PromptError:
            return [self._pair_encoded_apart(context, text) for text in continuations]
        pairs = []
        for c in range(len(written)):
            path = encoded.tokens[encoded.offsets[c] : encoded.offsets[c + 1]]
            pairs.append((encoded.prompt_tokens, path[int(encoded.first_scored[c]) :]))
        return pairs

    def _pair_encoded_apart(self, context: str, continuation: str) -> _Pair:
        """Return the pair of a choice whose encoding keeps no token of the context.

        The context, without white space at its end, is encoded alone. The tokens of the
        whole text's encoding beyond that number of tokens are scored.
        """
        kept = context.rstrip()
        own = encode_prompt(self._vocabulary, self._prompt(kept))
        whole = encode_prompt(self._vocabulary, self._prompt(context + continuation))
        return own, whole[len(own) :]

    def _pair_after_start(self, text: str) -> _Pair:
        """Return a text's tokens after the model's first token (`Vocabulary.start`)."""
        tokens = np.asarray(self._vocabulary.tokenize(to_bytes(text, "choice")), dtype=np.int32)
        if len(tokens) and tokens[0] == self._start[0]:
            return tokens[:1], tokens[1:]
        return self._start, tokens

    def _replace_contexts(self, context: str, conditional: list[_Pair], shared: str = "") -> list[_Pair]:
        """Return pairs with another context and the same scored tokens.

        Encoding the continuations anew could give other tokens, and so a difference
        that comes from segmentation. White space at the end of the context is left out:
        the tokens begin with it if the item's own context ended with it.
        """
        context = context.rstrip()
        before = encode_prompt(self._vocabulary, self._prompt(context, shared)) if context else self._start
        return [(before, rest) for _, rest in conditional]

    def _windows(self, text: str) -> list[_Pair]:
        """Return the windows of a text, which together score each token once."""
        tokens = np.asarray(self._vocabulary.tokenize(to_bytes(text, "text")), dtype=np.int32)
        return rolling_windows(tokens, int(self._start[0]), self._max_length - 1)


def rolling_windows(tokens: IntArray, start: int, max_length: int) -> list[_Pair]:
    """Divide a text into windows that score each of its tokens once.

    Returns pairs (context, scored tokens). As in lm-evaluation-harness
    (`get_rolling_token_windows` with `make_disjoint_window`), the first window scores
    up to `max_length` tokens after `start`, each later window the next `max_length`,
    and the last one the rest. Each window has as much context as fits; a context never
    has tokens that its window scores.

    Args:
        tokens: int32[], the tokens of the text.
        start: The token before the text.
        max_length: Maximum number of tokens of a sequence.
    """
    if max_length < 1:
        raise OptionError("max_length", max_length, "at least 1")
    # whole[i + 1] is token i
    whole = np.concatenate([np.array([start], dtype=np.int32), tokens])
    pairs: list[_Pair] = []
    n_counted = 0
    while n_counted < len(tokens):
        end = min(n_counted + max_length, len(tokens))
        first = 0 if n_counted == 0 else max(0, end - max_length)
        pairs.append((whole[first : n_counted + 1], tokens[n_counted:end]))
        n_counted = end
    return pairs or [(whole[:1], tokens)]


def _make_record(unit: WorkUnit, entry: UnitEntry, loglikelihoods: LogLikelihoods) -> ItemRecord:
    """Return the record of an item, from the log-likelihoods of its unit."""
    item = entry.item
    choices: tuple[ChoiceLoglikelihood, ...] = ()
    if entry.problem is None:
        choices = (
            (_sum_windows(entry, loglikelihoods),) if entry.n_windows else _choice_loglikelihoods(entry, loglikelihoods)
        )
    return ItemRecord(unit.task, entry.index, item.id, item.subset, item.gold, choices, unit.number, entry.problem)


def _n_words(text: str) -> int:
    """Return the number of words as the harness counts them (`tasks/wikitext`).

    White space at either end counts as if a word were beyond it.
    """
    return len(re.split(r"\s+", text))


def _sum_windows(entry: UnitEntry, loglikelihoods: LogLikelihoods) -> ChoiceLoglikelihood:
    """Return the log-likelihood of a whole text, summed over its windows."""
    rows, text = slice(entry.first, entry.first + entry.n_windows), entry.item.choices[0]
    return ChoiceLoglikelihood(
        logp=float(loglikelihoods.logp[rows].sum()),
        n_tokens=int(loglikelihoods.n_scored[rows].sum()),
        n_chars=len(text),
        n_bytes=len(text.encode()),
        n_words=_n_words(text),
        is_greedy=bool(loglikelihoods.is_greedy[rows].all()),
    )


def _choice_loglikelihoods(entry: UnitEntry, loglikelihoods: LogLikelihoods) -> tuple[ChoiceLoglikelihood, ...]:
    """Return the log-likelihoods of an item's choices after each of its contexts."""
    item, baselines, n = entry.item, entry.baselines, len(entry.item.choices)
    n_blocks = 1 + baselines.unconditional + baselines.premise + baselines.content_free * len(item.content_free)
    blocks = loglikelihoods.logp[entry.first : entry.first + n_blocks * n].reshape(n_blocks, n)
    at = 1
    unconditional = premise = None
    if baselines.unconditional:
        unconditional, at = blocks[at], at + 1
    if baselines.premise:
        premise, at = blocks[at], at + 1
    free = blocks[at:]
    return tuple(
        ChoiceLoglikelihood(
            logp=float(blocks[0][c]),
            n_tokens=int(loglikelihoods.n_scored[entry.first + c]),
            is_greedy=bool(loglikelihoods.is_greedy[entry.first + c]),
            logp_unconditional=None if unconditional is None else float(unconditional[c]),
            logp_premise=None if premise is None else float(premise[c]),
            logp_content_free=tuple(float(block[c]) for block in free),
            n_chars=len(item.choices[c]),
            n_bytes=len(item.choices[c].encode()),
            n_words=_n_words(item.choices[c]),
        )
        for c in range(n)
    )
