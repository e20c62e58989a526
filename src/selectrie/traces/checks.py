"""Checks of single records of a trace, which is a stranger's file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from selectrie.core.tracked_text import MIXED
from selectrie.traces.payloads import PayloadError
from selectrie.traces.records import NO_SET, Context, Ending, Header, Rendered, Step, WholeRow

FORMAT = 3
"""Version of the format that this version writes and reads."""
MAX_VOCABULARY = 1 << 22


def check_header(header: Header) -> None:
    """Raise `PayloadError` unless this version can read what follows."""
    if header.format != FORMAT:
        raise PayloadError(f"it has format {header.format}; this version of selectrie reads format {FORMAT}")
    require(1 <= header.n_tokens <= MAX_VOCABULARY, "it has an impossible number of tokens")


def require(is_right: object, what: str) -> None:
    """Raise `PayloadError` unless the condition holds."""
    if not is_right:
        raise PayloadError(what)


def check_ids(ids: NDArray[np.int32], n_tokens: int) -> None:
    """Raise `PayloadError` unless all ids are tokens."""
    require(_within(ids, 0, n_tokens), "a token does not exist")


def check_begin(context: int, prompt: NDArray[np.int32], n_tokens: int) -> None:
    """Raise `PayloadError` unless a task can begin so."""
    require(context in tuple(Context), "a task has an unknown context")
    require(len(prompt) or context == Context.LOGLIKELIHOOD, "a task has no prompt")
    check_ids(prompt, n_tokens)


def check_end(ending: int) -> None:
    """Raise `PayloadError` unless this is a way to end."""
    require(ending in tuple(Ending), "a task has an unknown ending")


def check_whole(row: WholeRow, n_tokens: int) -> None:
    """Raise `PayloadError` unless a whole row is one of the vocabulary's."""
    require(len(row.logits) == n_tokens, "a whole row has another number of tokens")
    require(np.isfinite(row.normaliser) and _are_logits(row.logits), "a whole row is not finite")


def check_rendered(chat: Rendered) -> None:
    """Raise `PayloadError` unless the origins are those of the text's characters."""
    text = chat.text.tobytes().decode("utf-8", "replace")
    require(len(chat.span_lengths) == len(chat.origins), "a chat's parts and origins do not match")
    require((chat.span_lengths >= 0).all() and (chat.origins <= MIXED).all(), "a chat has an impossible part")
    n = int(chat.span_lengths.sum(dtype=np.int64))
    require(n == (len(text) if chat.is_tracked else 0), "a chat's parts do not add up")


def parts(lengths: NDArray[np.int32], data: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the parts of an array of the given lengths; they make up all of it."""
    require(_within(lengths, 0, len(data) + 1), "a list has an impossible length")
    ends = np.cumsum(lengths, dtype=np.int64)
    require((int(ends[-1]) if len(ends) else 0) == len(data), "the lengths of lists do not add up")
    return [data[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]


def check_step(step: Step, *, n_local: int, n_tokens: int, n_sets: int, n_whole: int) -> None:
    """Raise `PayloadError` unless a step is whole and refers to what there is.

    Args:
        step: The step.
        n_local: Rows that the task has so far, row 0 included; 0 for step 0.
        n_tokens: Number of tokens of the vocabulary.
        n_sets, n_whole: Number of sets and of whole rows so far.
    """
    _check_ask(step, n_local, n_tokens)
    n = step.n_rows
    _check_rows(n, len(step.ids), step.owner, step.mass_rows, step.rest_rows, step.top_rows, step.whole_rows)
    check_ids(step.ids, n_tokens)
    check_ids(step.top_ids, n_tokens)
    check_ids(step.best, n_tokens)
    for sets, rows, values in (
        (step.mass_sets, step.mass_rows, step.masses),
        (step.rest_sets, step.rest_rows, step.rests),
    ):
        require(len(rows) == len(sets) == len(values), "sums and their sets do not match")
        require(_within(sets, 0, n_sets) and _are_log(values), "a sum is no sum over a set")
    require(len(step.best) == (n if step.has_best else 0), "the most probable tokens do not match the rows")
    tops = (step.top_rows, step.top_counts, step.top_sets, step.top_lengths)
    require(len({len(column) for column in tops}) == 1, "lists of most probable tokens do not match")
    require(_within(step.top_sets, NO_SET, n_sets), "an allowed set does not exist")
    parts(step.top_lengths, step.top_ids)
    require((step.top_lengths <= step.top_counts).all(), "there are more most probable tokens than asked for")
    require(len(step.whole_rows) == len(step.whole) and _within(step.whole, 0, n_whole), "a whole row is missing")
    _check_values(step)
    _check_known(step, n_tokens)


def _check_ask(step: Step, n_local: int, n_tokens: int) -> None:
    n = len(step.tokens)
    if not n_local:
        require(not n and not len(step.capacity) and step.n_rows <= 1, "row 0 is not asked for")
    else:
        require(len(step.capacity) == 3 and (step.capacity >= 0).all(), "an ask was offered no capacity")
    require(len(step.parents) == len(step.wanted) == n, "the columns of an ask do not match")
    require(_within(step.parents, -n, n_local), "a row has no parent")
    inside = step.parents < 0
    require((~step.parents[inside] < np.flatnonzero(inside)).all(), "a row comes before its parent")
    require((step.wanted <= 1).all(), "a row is neither wanted nor unwanted")
    require(not n_local or int(step.wanted.sum()) == step.n_rows, "other rows were told than asked for")
    check_ids(step.tokens, n_tokens)


def _check_rows(n: int, n_pairs: int, owner: NDArray[np.int32], *others: NDArray[np.int32]) -> None:
    require(len(owner) == n_pairs, "pairs of row and token do not match")
    require(all(_within(rows, 0, n) for rows in (owner, *others)), "a value belongs to no row")


def _check_values(step: Step) -> None:
    """Raise `PayloadError` unless there is a value for all that was read."""
    has_logits = len(step.normaliser) > 0
    require(not has_logits or len(step.normaliser) == step.n_rows, "rows and normalisers do not match")
    for ids, logits, logp in ((step.ids, step.logits, step.logp), (step.top_ids, step.top_logits, step.top_logp)):
        expected = (len(ids), 0) if has_logits else (0, len(ids))
        require((len(logits), len(logp)) == expected, "tokens and values do not match")
        require(_are_logits(logits) and _are_log(logp), "a value is not finite")
    require(np.isfinite(step.normaliser).all(), "a value is not finite")


def _check_known(step: Step, n_tokens: int) -> None:
    """Raise `PayloadError` unless partly known rows are what `PartialRow` may hold."""
    columns = (step.known_lengths, step.rest_low, step.rest_high, step.rest_max)
    n = len(step.known_lengths)
    require(n in (0, step.n_rows) and all(len(one) == n for one in columns), "bounds and rows do not match")
    require(len(step.known_ids) == len(step.known_logp), "known tokens and values do not match")
    check_ids(step.known_ids, n_tokens)
    for ids in parts(step.known_lengths, step.known_ids):
        require((np.diff(ids) > 0).all(), "known tokens do not ascend")
    require(all(map(_are_log, (step.known_logp, *columns[1:]))), "a bound is no log-probability")
    require((step.rest_low <= step.rest_high).all(), "a bound is above the other")


def _within(values: NDArray[np.int32], low: int, high: int) -> bool:
    """Return whether all values are at least `low` and below `high`."""
    return not len(values) or bool(values.min() >= low and values.max() < high)


def _are_logits(values: NDArray[np.float32]) -> bool:
    return bool((values < np.inf).all())  # neither NaN nor +inf


def _are_log(values: NDArray[np.float64]) -> bool:
    return bool((values < 1.0).all())  # of a probability, which rounding may bring above 1
