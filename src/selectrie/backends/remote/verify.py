"""Reads paths in two ways before a server's values are believed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from selectrie.backends.remote.dialect import Dialect
from selectrie.core.path_model import RowQuery
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import TextError, UnsupportedModelError

MAX_NATS = 1.0
"""Difference above which a server is refused."""
FACTOR = 4.0
"""The stated tolerance, over the largest difference that was seen."""
_ALIKE = 0.1
"""Two readings that differ by less are of the same row, if those compared first differ
by more than `MAX_NATS`."""
_FLOOR = -40.0
"""Log-probabilities below this one are not compared; no row is known by them."""
_TEXTS = ("The capital of France is the city of", "1, 2, 3, 4, 5, 6, 7", "def main():\n    return")
_N_NAMED = 4
_N_EXPLAINED = 8
"""Number of values that a neighbouring row has to explain."""
_OFF_BY_ONE = "its values are off by one token: one of two readings is that of the row before or after"


@dataclass(frozen=True, slots=True)
class _Read:
    """The log-probability of a token after a path, in two readings."""

    path: list[int]
    token: int
    first: float
    second: float


async def measured_tolerance(
    name: str, dialect: Dialect, vocabulary: Vocabulary, paths: Sequence[Sequence[int]]
) -> float:
    """Return the tolerance of a server, in nats.

    The tolerance is four times the largest difference of two readings of a row.

    Args:
        name: What serves the model, for errors.
        dialect: How it is asked.
        vocabulary: The vocabulary.
        paths: The paths that are read, from `paths_of`.

    Raises `UnsupportedModelError` if it exceeds 1 nat; the error says so if the values
    are off by one token, or if the server puts BOS before the ids that it gets.
    """
    differences: list[float] = []
    compared: list[_Read] = []
    for path in paths:
        again = dict(await dialect.read_again(path, _named(vocabulary, path)))
        if not again:
            continue
        first = await _first(dialect, path, list(again))
        for token, value in again.items():
            if max(value, first[token]) > _FLOOR:
                differences.append(abs(value - first[token]))
                compared.append(_Read(list(path), token, first[token], value))
    if not differences:
        raise UnsupportedModelError(name, "none of its log-probabilities could be read in a second way, to check them")
    largest = max(differences)
    if not largest <= MAX_NATS:
        raise UnsupportedModelError(name, await _why(dialect, vocabulary, compared, largest))
    return FACTOR * largest


def paths_of(vocabulary: Vocabulary, max_tokens: int) -> list[list[int]]:
    """Return three paths: of texts, or of ids where the tokenizer cannot write them.

    It must not be called on the thread of the transport, which the tokenizer may ask.
    """
    start = [] if vocabulary.bos is None else [vocabulary.bos]
    paths = []
    for index, text in enumerate(_TEXTS):
        try:
            tokens = vocabulary.encode(text.encode()).tolist()
        except TextError:
            plain = np.setdiff1d(np.arange(len(vocabulary.pieces)), vocabulary.control)
            tokens = [int(plain[(7 * index + 11 * n) % len(plain)]) for n in range(6)]
        paths.append([*start, *tokens][: max(1, max_tokens - 2)])
    return paths


def _named(vocabulary: Vocabulary, path: Sequence[int]) -> list[int]:
    """Return tokens that are compared after a path."""
    n = len(vocabulary.pieces)
    return list(dict.fromkeys([path[-1], n // 3, n // 2, n - 1]))[:_N_NAMED]


async def _first(dialect: Dialect, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:
    (row,) = await dialect.rows([RowQuery(np.array(path, dtype=np.int32), np.array(sorted(named), dtype=np.int32))])
    return dict(zip(row.ids.tolist(), row.logp.tolist(), strict=True))


async def _why(dialect: Dialect, vocabulary: Vocabulary, compared: Sequence[_Read], largest: float) -> str:
    """Return what is wrong, as far as readings of neighbouring paths tell."""
    worst = sorted(compared, key=lambda one: -abs(one.first - one.second))[:_N_EXPLAINED]
    start = vocabulary.start
    ways: list[tuple[str, Callable[[_Read], list[int]]]] = [
        (_OFF_BY_ONE, lambda one: [*one.path, one.token]),
        (_OFF_BY_ONE, lambda one: one.path[:-1]),
    ]
    if start is not None:
        ways.insert(0, ("it puts BOS before the token ids of a prompt", lambda one: [start, *one.path]))
    for said, moved in ways:
        if await _explains(dialect, worst, [moved(one) for one in worst]):
            return f"{said} (two readings of one row differ by {largest:.3g} nats)"
    return (
        f"two readings of one row differ by {largest:.3g} nats, more than {MAX_NATS:g}: its values cannot be relied on"
    )


async def _explains(dialect: Dialect, compared: Sequence[_Read], paths: Sequence[list[int]]) -> bool:
    """Return whether one of two readings is, each time, that of another path."""
    is_first = is_second = True
    for one, path in zip(compared, paths, strict=True):
        if not path:
            return False
        first = (await _first(dialect, path, [one.token])).get(one.token, math.nan)
        second = (await dialect.read_again(path, [one.token])).get(one.token, math.nan)
        is_first &= abs(first - one.second) < _ALIKE
        is_second &= abs(second - one.first) < _ALIKE
    return is_first or is_second
