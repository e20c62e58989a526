"""Picks the part of a trie that reports show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, ROOT, BoolArray, FloatArray, IntArray, OffsetArray
from selectrie.errors import OptionError
from selectrie.results.drawing.trie import TrieView


def view_of(
    trie: TokenTrie,
    pieces: Sequence[bytes],
    *,
    limit: int,
    edge_logp: FloatArray | None = None,
    winner: int | None = None,
    greedy: int | None = None,
    probability: FloatArray | None = None,
    fold: Collection[int] = (),
) -> TrieView:
    """Return a view of the `limit` heaviest nodes of a trie and their ancestors.

    The heaviest nodes have the largest log-probability from the shared context. Nodes
    that were not evaluated come last, ordered by falling number of choices. All nodes
    of the winner's path and of the path of masked greedy decoding are included.

    Args:
        trie: The trie.
        pieces: Bytes of each token id.
        limit: Number of nodes to show.
        edge_logp: float64[N], NaN if not evaluated; None before any model call.
        winner: Index of the winner among the choices, or None.
        greedy: Index of the choice that masked greedy decoding picks, or None.
        probability: float64[C], probability of each choice in the set, NaN if it is
            pruned; None if nothing is known, and nothing pruned.
        fold: Numbers of nodes below which nothing is shown.
    """
    edge = np.full(len(trie.token), np.nan) if edge_logp is None else edge_logp.copy()
    edge[ROOT] = 0.0
    prefix = trie.accumulate(edge)
    on_path = np.bincount(trie.path_of, minlength=len(trie.path_node))
    first = np.zeros(len(trie.path_node), dtype=np.int64)
    first[trie.path_of[::-1]] = np.arange(len(trie.path_of) - 1, -1, -1)
    n_choices = _sum_below(trie, on_path)
    on_winner, on_greedy = _mark_path(trie, winner), _mark_path(trie, greedy)
    folded = _find_folded(trie, fold)
    heaviest = np.lexsort((-n_choices, -np.nan_to_num(prefix, nan=-np.inf)))
    shown = _pick_nodes(trie, heaviest[~folded[heaviest]], (on_winner | on_greedy) & ~folded, limit)
    row_of = np.full(len(trie.token), NO_NODE)
    row_of[shown] = np.arange(len(shown))
    tokens, ends = trie.token[shown].tolist(), trie.end_path[shown]
    hidden = n_choices[shown] - np.where(ends >= 0, on_path[ends], 0)
    np.subtract.at(hidden, row_of[trie.parent[shown[1:]]], n_choices[shown[1:]])
    return TrieView(
        parent=(NO_NODE, *row_of[trie.parent[shown[1:]]].tolist()),
        piece=(b"", *(pieces[token] for token in tokens[1:])),
        logp=(None, *_replace_nan(edge[shown[1:]])),
        logp_prefix=tuple(_replace_nan(prefix[shown])),
        choice=tuple(int(first[end]) if end >= 0 else None for end in ends.tolist()),
        n_choices=tuple(n_choices[shown].tolist()),
        n_hidden=tuple(hidden.tolist()),
        on_winner=tuple(on_winner[shown].tolist()),
        on_greedy=tuple(on_greedy[shown].tolist()),
        pruned=tuple(_find_pruned(trie, probability)[shown].tolist()),
        node=tuple(shown.tolist()),
        p_hidden=_sum_hidden(trie, row_of, None if probability is None else probability[first]),
    )


def _sum_hidden(trie: TokenTrie, row_of: NDArray[Any], probability: FloatArray | None) -> tuple[float | None, ...]:
    """Return for each shown node the probability of the paths in hidden children.

    Args:
        trie: The trie.
        row_of: int64[N], the row of each shown node, or NO_NODE.
        probability: float64[P], the probability of each path, or None.
    """
    sums = np.zeros(int(row_of.max()) + 1)
    if probability is None:
        return (None,) * len(sums)
    hidden = np.flatnonzero((row_of == NO_NODE) & (row_of[trie.parent] != NO_NODE))
    if len(hidden):
        ranges = np.stack([trie.first_path[hidden], trie.first_path[hidden] + trie.n_paths[hidden]], axis=1).ravel()
        below = np.add.reduceat(np.append(np.nan_to_num(probability), 0.0), ranges)[::2]
        np.add.at(sums, row_of[trie.parent[hidden]], below)
    return tuple(sums.tolist())


def _sum_below(trie: TokenTrie, values: NDArray[Any]) -> NDArray[Any]:
    """Return for each node the sum of the paths' values at or below it, [N]."""
    sums = np.concatenate(([0], np.cumsum(values)))
    return np.asarray(sums[trie.first_path + trie.n_paths] - sums[trie.first_path])


def _find_folded(trie: TokenTrie, fold: Collection[int]) -> BoolArray:
    """Return bool[N], the nodes below a folded one.

    Raises `OptionError` for a number of no node.
    """
    folded = np.zeros(len(trie.token), dtype=np.float64)
    for node in fold:
        if not 0 <= node < len(folded):
            raise OptionError("fold", node, f"numbers of the trie's nodes, 0 to {len(folded) - 1}")
        folded[node] = 1.0
    return np.asarray(trie.accumulate(folded) > folded)


def _mark_path(trie: TokenTrie, choice: int | None) -> BoolArray:
    """Return bool[N], True for the nodes of a choice's path; all False for None."""
    mask = np.zeros(len(trie.token), dtype=np.bool_)
    if choice is None:
        return mask
    node = int(trie.path_node[trie.path_of[choice]])
    while node != NO_NODE:
        mask[node] = True
        node = int(trie.parent[node])
    return mask


def _pick_nodes(trie: TokenTrie, heaviest: OffsetArray, always: BoolArray, limit: int) -> IntArray:
    """Return the nodes to show, in depth-first order, with all their ancestors.

    They are the nodes of the mask `always`, and the first others of `heaviest` up to
    `limit`.
    """
    chosen = always.copy()
    chosen[ROOT] = True
    free = max(0, limit - int(chosen.sum()))
    chosen[heaviest[~chosen[heaviest]][:free]] = True
    nodes = trie.parent[chosen]
    while len(nodes):  # rounding can rank a node before its parent
        nodes = np.unique(nodes[nodes != NO_NODE])
        chosen[nodes] = True
        nodes = trie.parent[nodes]
    return np.flatnonzero(chosen).astype(np.int32)


def _find_pruned(trie: TokenTrie, probability: FloatArray | None) -> BoolArray:
    """Return bool[N], True for nodes without a finished choice at or below them."""
    if probability is None:
        return np.zeros(len(trie.token), dtype=np.bool_)
    done = np.zeros(len(trie.path_node), dtype=np.int64)
    done[trie.path_of[~np.isnan(probability)]] = 1
    return np.asarray(_sum_below(trie, done) == 0)


def _replace_nan(x: Iterable[float]) -> list[float | None]:
    """Return the numbers as a list, with None for NaN."""
    return [None if np.isnan(value) else float(value) for value in x]
