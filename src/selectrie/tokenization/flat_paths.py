"""Many token paths as one flat array and offsets: cutting and comparing them without a Python loop."""

from __future__ import annotations

from itertools import chain

import numpy as np

from selectrie.core.types import BoolArray, IntArray, OffsetArray
from selectrie.core.vocabulary import Vocabulary


def cut_following(
    vocabulary: Vocabulary, tokens: IntArray, offsets: OffsetArray, following_bytes: int
) -> tuple[IntArray, OffsetArray, int]:
    """Paths up to the fewest following bytes, at least one, at which each has a token boundary; and how many those are."""
    lengths = vocabulary.lengths[tokens]
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    left = np.repeat(ends[offsets[1:]], np.diff(offsets)) - ends[1:]
    n_paths = np.bincount(left[(left < following_bytes) & (lengths > 0)], minlength=1)
    most_left = int(np.flatnonzero(n_paths == len(offsets) - 1)[-1])
    kept = left >= most_left
    return tokens[kept], _offsets_of(kept, offsets), following_bytes - most_left


def flatten(paths: list[list[int]]) -> tuple[IntArray, OffsetArray]:
    """Paths one after the other, and where each begins: int32[], int64[C+1]."""
    lengths = np.fromiter(map(len, paths), dtype=np.int64, count=len(paths))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return np.fromiter(chain.from_iterable(paths), dtype=np.int32, count=int(offsets[-1])), offsets


def _positions(offsets: OffsetArray) -> OffsetArray:
    """int64[]: place of each flat token in its own path."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


def _offsets_of(kept: BoolArray, offsets: OffsetArray) -> OffsetArray:
    """Offsets once only the kept tokens are left."""
    return np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[offsets]


def without_first(tokens: IntArray, offsets: OffsetArray, n: int) -> tuple[IntArray, OffsetArray]:
    """Every path without its first n tokens."""
    if n == 0:
        return tokens, offsets
    kept = _positions(offsets) >= n
    return tokens[kept], _offsets_of(kept, offsets)


def shared_prefix(tokens: IntArray, offsets: OffsetArray, own: IntArray) -> OffsetArray:
    """int64[C]: first tokens that each path shares with `own`."""
    lengths = np.diff(offsets)
    place = _positions(offsets)
    differs = np.ones(len(tokens), dtype=np.bool_)
    inside = place < len(own)
    differs[inside] = tokens[inside] != own[place[inside]]
    result: OffsetArray = lengths.copy()
    filled = lengths > 0
    if filled.any():
        first = np.minimum.reduceat(np.where(differs, place, len(tokens)), offsets[:-1][filled])
        result[filled] = np.minimum(first, lengths[filled])
    return result
