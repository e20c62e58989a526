"""Cuts and compares many token paths, held as one flat array with offsets."""

from __future__ import annotations

from itertools import chain

import numpy as np

from selectrie.core.types import BoolArray, IntArray, OffsetArray
from selectrie.core.vocabulary import Vocabulary


def cut_following(
    vocabulary: Vocabulary, tokens: IntArray, offsets: OffsetArray, following_bytes: int
) -> tuple[IntArray, OffsetArray, int]:
    """Cut paths at the fewest following bytes where all have a token boundary.

    At least one following byte is kept. Returns the tokens, the offsets, and the number
    of following bytes kept.
    """
    lengths = vocabulary.lengths[tokens]
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    left = np.repeat(ends[offsets[1:]], np.diff(offsets)) - ends[1:]
    n_paths = np.bincount(left[(left < following_bytes) & (lengths > 0)], minlength=1)
    max_left = int(np.flatnonzero(n_paths == len(offsets) - 1)[-1])
    kept = left >= max_left
    return tokens[kept], _offsets_of(kept, offsets), following_bytes - max_left


def flatten(paths: list[list[int]]) -> tuple[IntArray, OffsetArray]:
    """Concatenate paths; return int32[] tokens and int64[C+1] offsets."""
    lengths = np.fromiter(map(len, paths), dtype=np.int64, count=len(paths))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return np.fromiter(chain.from_iterable(paths), dtype=np.int32, count=int(offsets[-1])), offsets


def _positions(offsets: OffsetArray) -> OffsetArray:
    """Return the position of each flat token within its path, as int64[]."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


def _offsets_of(kept: BoolArray, offsets: OffsetArray) -> OffsetArray:
    """Return the offsets of the paths when only the `kept` tokens are left."""
    return np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[offsets]


def without_first(tokens: IntArray, offsets: OffsetArray, n: int) -> tuple[IntArray, OffsetArray]:
    """Return every path without its first n tokens."""
    if n == 0:
        return tokens, offsets
    kept = _positions(offsets) >= n
    return tokens[kept], _offsets_of(kept, offsets)


def shared_prefix(tokens: IntArray, offsets: OffsetArray, own: IntArray) -> OffsetArray:
    """Return the length of the prefix that each path shares with `own`, int64[C]."""
    lengths = np.diff(offsets)
    position = _positions(offsets)
    differs = np.ones(len(tokens), dtype=np.bool_)
    inside = position < len(own)
    differs[inside] = tokens[inside] != own[position[inside]]
    result: OffsetArray = lengths.copy()
    filled = lengths > 0
    if filled.any():
        first = np.minimum.reduceat(np.where(differs, position, len(tokens)), offsets[:-1][filled])
        result[filled] = np.minimum(first, lengths[filled])
    return result
