"""Token tries against dictionaries in dictionaries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, NO_PATH, NO_TOKEN
from selectrie.errors import OptionError
from selectrie.testing import NestedTrie

LARGEST = 2**31 - 1

few_tokens = st.lists(st.integers(0, 3), max_size=6)
any_tokens = st.lists(st.sampled_from([0, 1, 150_000, LARGEST]), max_size=40)
sequence_sets = st.lists(st.one_of(few_tokens, any_tokens), max_size=25)
seeds = st.integers(0, 2**32 - 1)


def check_against_twin(trie: TokenTrie, sequences: list[list[int]]) -> None:
    """Every array of the trie, value for value, against the nested dictionaries."""
    nodes = NestedTrie.of(sequences).walk()
    number = {path: i for i, (path, _) in enumerate(nodes)}
    ends = sorted({tuple(s) for s in sequences})
    paths = [path for path, _ in nodes]
    below = [[q for q in paths if q[: len(p)] == p] for p in paths]
    assert len(trie) == len(nodes)
    assert [tuple(trie.path(i)) for i in range(len(trie))] == paths
    assert trie.token.tolist() == [p[-1] if p else NO_TOKEN for p in paths]
    assert trie.parent.tolist() == [number[p[:-1]] if p else NO_NODE for p in paths]
    assert trie.depth.tolist() == [len(p) for p in paths]
    assert trie.end_path.tolist() == [ends.index(p) if p in ends else NO_PATH for p in paths]
    assert trie.n_nodes_below.tolist() == [len(b) - 1 for b in below]
    assert trie.n_paths.tolist() == [len(set(b) & set(ends)) for b in below]
    assert trie.first_path.tolist() == [sum(e < p for e in ends) for p in paths]
    children = [[number[(*p, t)] for t in sorted(node.children)] for p, node in nodes]
    assert [trie.children(i).tolist() for i in range(len(trie))] == children
    assert trie.inner.tolist() == [bool(c) for c in children]
    assert trie.path_node.tolist() == [number[e] for e in ends]
    assert trie.path_of.tolist() == [ends.index(tuple(s)) for s in sequences]
    for name in TokenTrie.__slots__:
        assert getattr(trie, name).dtype == np.int32, name


def test_a_small_trie_by_hand():
    """Five sequences, one empty, one twice, one continuing another.

    sequences        node  path    ends
    2 7              0     ()      path 0 (sequence 3)
    2 7 7            1     2       -
    5                2     2 7     path 1 (sequences 0, 4)
    (empty)          3     2 7 7   path 2 (sequence 1)
    2 7              4     5       path 3 (sequence 2)
    """
    trie = TokenTrie.from_sequences([[2, 7], [2, 7, 7], [5], [], [2, 7]])
    assert trie.token.tolist() == [NO_TOKEN, 2, 7, 7, 5]
    assert trie.parent.tolist() == [NO_NODE, 0, 1, 2, 0]
    assert trie.depth.tolist() == [0, 1, 2, 3, 1]
    assert trie.end_path.tolist() == [0, NO_PATH, 1, 2, 3]
    assert trie.n_nodes_below.tolist() == [4, 2, 1, 0, 0]
    assert trie.first_path.tolist() == [0, 1, 1, 2, 3]
    assert trie.n_paths.tolist() == [4, 2, 2, 1, 1]
    assert trie.child_start.tolist() == [0, 2, 3, 4, 4, 4]
    assert trie.child.tolist() == [1, 4, 2, 3]
    assert trie.path_node.tolist() == [0, 2, 3, 4]
    assert trie.path_of.tolist() == [1, 2, 3, 0, 1]
    assert repr(trie) == "TokenTrie(5 nodes, 4 paths, 5 sequences)"


@given(sequence_sets)
@example([])
@example([[]])
@example([[], []])
@example([[1, 1, 1], [1, 1], [1]])
@example([[LARGEST] * 3, [LARGEST] * 3, [0]])
def test_every_array_equals_the_twin(sequences):
    """Distinct prefixes are the nodes, depth-first by token id; every path is found; duplicates share."""
    check_against_twin(TokenTrie.from_sequences(sequences), sequences)


def test_the_comparison_can_fail():
    """The twin of another set is told apart in each array."""
    trie = TokenTrie.from_sequences([[1, 2], [1, 3]])
    for other in ([[1, 2], [1, 4]], [[1, 2]], [[1, 3], [1, 2]], [[1], [1, 2], [1, 3]]):
        with pytest.raises(AssertionError):
            check_against_twin(trie, other)


@given(sequence_sets, seeds)
def test_order_does_not_matter(sequences, seed):
    """Shuffling the sequences moves `path_of` and nothing else."""
    order = np.random.default_rng(seed).permutation(len(sequences))
    trie, shuffled = TokenTrie.from_sequences(sequences), TokenTrie.from_sequences([sequences[i] for i in order])
    for name in TokenTrie.__slots__:
        expected = trie.path_of[order] if name == "path_of" else getattr(trie, name)
        assert getattr(shuffled, name).tolist() == expected.tolist(), name


@given(sequence_sets, st.data())
def test_restrict_is_the_trie_of_what_remains(sequences, data):
    """Marking nodes keeps them and their ancestors, numbered as if only the paths to them had been given."""
    trie = TokenTrie.from_sequences(sequences)
    marked = np.array(data.draw(st.lists(st.booleans(), min_size=len(trie), max_size=len(trie))))
    part, old = trie.restrict(marked)
    kept = {tuple(trie.path(n))[:d] for n in np.flatnonzero(marked) for d in range(trie.depth[n] + 1)} | {()}
    assert {tuple(part.path(n)) for n in range(len(part))} == kept
    assert [part.path(n).tolist() for n in range(len(part))] == [trie.path(n).tolist() for n in old]
    ends = sorted({tuple(s) for s in sequences} & kept)
    assert [tuple(part.path(n)) for n in part.path_node] == ends
    assert part.path_of.tolist() == list(range(len(ends)))
    if {path for path in kept if not any(q[: len(path)] == path and q != path for q in kept)} <= set(ends):
        check_against_twin(part, [list(e) for e in ends])


def test_restrict_to_everything_changes_nothing():
    """All nodes marked: the same arrays, duplicates no longer counted."""
    trie = TokenTrie.from_sequences([[3], [1, 2], [3], [1]])
    part, old = trie.restrict(np.ones(len(trie), dtype=np.bool_))
    assert old.tolist() == list(range(len(trie)))
    for name in set(TokenTrie.__slots__) - {"path_of"}:
        assert getattr(part, name).tolist() == getattr(trie, name).tolist(), name


@given(sequence_sets, seeds)
def test_accumulate_adds_root_first(sequences, seed):
    """A node's total is the sum along its path, bit for bit as a loop from the root adds it; -inf stays."""
    trie = TokenTrie.from_sequences(sequences)
    edge = np.random.default_rng(seed).standard_normal(len(trie))
    edge[np.random.default_rng(seed).random(len(trie)) < 0.1] = -math.inf
    before = edge.copy()
    total = trie.accumulate(edge)
    for node in range(len(trie)):
        way = [node]
        while trie.parent[way[-1]] != NO_NODE:
            way.append(int(trie.parent[way[-1]]))
        expected = 0.0
        for step in reversed(way):
            expected += edge[step]
        assert total[node] == expected
    assert edge.tolist() == before.tolist()


def test_one_long_sequence_costs_its_length():
    """A sequence of 200 000 tokens among 20 000 short ones: no array is larger than nodes times 64 bytes in all."""
    rng = np.random.default_rng(0)
    lengths = np.full(20_000, 3)
    lengths[777] = 200_000
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    trie = TokenTrie.from_flat(rng.integers(0, 1_000, int(offsets[-1])).astype(np.int32), offsets)
    assert trie.n_bytes <= 64 * len(trie)
    assert trie.depth.max() == 200_000
    end = trie.path_node[trie.path_of[777]]
    assert trie.depth[end] == 200_000


def test_a_large_random_set_stays_under_64_bytes_a_node():
    """30 000 label-like sequences: memory as promised, every path found again."""
    rng = np.random.default_rng(1)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 7, 30_000))])
    tokens = (rng.zipf(1.3, int(offsets[-1])) % 32_000).astype(np.int32)
    trie = TokenTrie.from_flat(tokens, offsets)
    assert trie.n_bytes <= 64 * len(trie)
    for c in rng.integers(0, 30_000, 300):
        assert trie.path(trie.path_node[trie.path_of[c]]).tolist() == tokens[offsets[c] : offsets[c + 1]].tolist()
    prefixes = {tuple(tokens[offsets[c] : end]) for c in range(2_000) for end in range(offsets[c], offsets[c + 1] + 1)}
    first = TokenTrie.from_flat(tokens[: offsets[2_000]], offsets[:2_001])
    assert len(first) == len(prefixes)


@pytest.mark.parametrize(
    ("tokens", "offsets"),
    [
        ([1, 2], [0, 1]),  # does not reach the end
        ([1, 2], [1, 2]),  # does not begin at 0
        ([1, 2], [0, 2, 1, 2]),  # falls
        ([1, 2], []),  # not even one
        ([1, -1], [0, 2]),  # no token
    ],
)
def test_wrong_arrays_are_refused(tokens, offsets):
    """Offsets that do not cut up the tokens, and negative tokens, are the caller's mistake."""
    with pytest.raises(OptionError):
        TokenTrie.from_flat(np.array(tokens, dtype=np.int32), np.array(offsets, dtype=np.int64))
