"""The task that reads given texts: every wanted row once, in asks of bounded size, and nothing kept but values."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.core.rows import DenseRows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Capacity, ModelKind, SelfCheck
from selectrie.decoding.scoring.evaluation import RowNeeds
from selectrie.decoding.trie import exhaustive
from selectrie.decoding.trie.exhaustive import (
    PromptReads,
    PromptValues,
    ReadRows,
    RowValues,
    ScoreTask,
    path_keys,
    scoring_nodes,
)
from selectrie.engine.engine import Engine
from selectrie.testing import FakeModel, HashModel, numbered_vocabulary
from selectrie.testing.fakes import WIDE
from selectrie.testing.oracles import run
from tests.support.bits import plain
from tests.support.small_automata import PROMPT
from tests.support.task_driver import Driver

SIZE = 26
paths_with_counts = st.lists(
    st.lists(st.integers(2, 6), min_size=1, max_size=7).flatmap(
        lambda path: st.tuples(st.just(path), st.integers(1, len(path)))
    ),
    min_size=1,
    max_size=9,
)
capacities = st.builds(Capacity, rows=st.integers(1, 6), nodes=st.integers(7, 30), sequences=st.integers(1, 8))


def task_of(given_paths, *, top=0, named=(), n_vocabulary=SIZE, known=None):
    """The task, and the values that it finds and reads."""
    trie = TokenTrie.from_sequences([path for path, _ in given_paths])
    wanted = scoring_nodes(trie, np.array([n for _, n in given_paths]))
    reads = PromptReads(top, tuple(named), n_vocabulary, ReadRows() if known is None else known)
    values = PromptValues(trie, path_keys(trie), reads)
    return ScoreTask(PROMPT, trie, RowNeeds.of_edges(wanted), max_rows=values.max_rows, values=values), values


def values_of(run_task, *given, **how):
    """The values of every node, after the task was run."""
    task, values = task_of(*given, **how)
    run_task(task)
    return values.of_node


@given(
    given_paths=paths_with_counts,
    rooms=st.lists(capacities, min_size=1, max_size=3),
    top=st.integers(0, SIZE),
    named=st.lists(st.integers(0, SIZE - 1), max_size=3),
)
def test_values_are_those_of_each_prefix_in_any_capacity(given_paths, rooms, top, named):
    """Node by node; what no scored token hangs from is neither asked for nor read."""
    model = HashModel(2)
    driver = Driver(model, rooms)
    rows = values_of(driver.run, given_paths, top=top, named=named)
    trie = TokenTrie.from_sequences([path for path, _ in given_paths])
    wanted = {tuple(path[:i]) for path, n in given_paths for i in range(len(path) - n, len(path))}
    paths = {tuple(trie.path(node).tolist()): node for node in range(len(trie))}
    assert set(rows) == {paths[prefix] for prefix in wanted}
    for prefix in wanted:
        values, alone = rows[paths[prefix]], DenseRows(model.row((*PROMPT.tolist(), *prefix))[None])
        asked = {*trie.token[trie.children(paths[prefix])].tolist(), *named}
        assert values.logp == {token: min(0.0, float(alone.logp(0, token))) for token in asked}
        assert values.best == alone.best()[0]
        ids, logp = alone.top(0, top)
        assert values.top == tuple(zip(ids.tolist(), np.minimum(logp, 0.0).tolist(), strict=True))
    below = {path for path in wanted if path}
    assert set(driver.told) == {(*PROMPT.tolist(), *path) for path in below | {()}}
    assert set(driver.told.values()) == {1}
    leads = {path[:i] for path in below for i in range(1, len(path))} - below
    assert set(driver.carried) == {(*PROMPT.tolist(), *path) for path in leads}


@pytest.mark.parametrize(("n_vocabulary", "rows"), [(26, 512), (32_000, 512), (152_000, 110), (10**9, 1)])
def test_the_logits_of_one_ask_are_bounded(n_vocabulary, rows):
    """64 MiB of them: at 152k tokens 110 rows, where a whole call of 512 would be 311 MB."""
    task, _ = task_of([([2] * 700, 700)], n_vocabulary=n_vocabulary)
    task.tell(DenseRows(HashModel(1).row(PROMPT.tolist())[None]))
    assert len(task.ask(Capacity(512, 4096, 16)).tokens) == rows


@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.RECURRENT])
def test_memory_stays_bounded(monkeypatch, kind):
    """600 rows of 16384 tokens (39 MB) with a top-5 of each, in asks of 1 MiB: never more than 8 MiB at once."""
    n_vocabulary, n_rows = 1 << 14, 600
    monkeypatch.setattr(exhaustive, "WANTED_BYTES", 1 << 20)
    row = np.linspace(0, 1, n_vocabulary, dtype=np.float32)
    model = FakeModel(
        lambda path: row + len(path),
        vocabulary=numbered_vocabulary(n_vocabulary),
        limits=replace(WIDE, kind=kind, nodes=1024),
        name="ramp",
    )
    prompts = [[3, *range(4, 4 + n_rows)], [3, *range(4, 40), 9, 9, 9]]
    with Engine(model, check=SelfCheck(1, 0.0, 0.0)) as engine:
        engine.prompt_logprobs([[7, 8]], top=1)  # what is made once
        tracemalloc.start()
        try:
            results = engine.prompt_logprobs(prompts, top=5, named=[1])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert results[0].n_rows == n_rows
    assert max(model.call_sizes) == 16
    assert peak < 8 << 20


def test_a_task_runs_alone_on_every_kind_of_memory():
    """The short driver of `testing` agrees with itself on attention and on states."""
    given_paths = [([2, 3, 4, 5], 2), ([2, 3, 6], 3), ([2, 5, 5, 5], 1)]
    results = [
        values_of(partial(run, model=HashModel(5, limits=replace(WIDE, kind=kind))), given_paths, top=2, named=[3])
        for kind in (ModelKind.ATTENTION, ModelKind.RECURRENT)
    ]
    assert plain(results[0]) == plain(results[1])


def test_what_another_task_has_read_is_not_read_again():
    """Two tasks with one cache, one after the other: the second asks for no row that the first has read."""
    known, model = ReadRows(), HashModel(5)
    first = values_of(Driver(model, [Capacity(2, 30, 8)]).run, [([2, 3, 4, 5], 4)], top=2, known=known)
    driver = Driver(model, [Capacity(2, 30, 8)])
    second = values_of(driver.run, [([2, 3, 4, 5], 3), ([2, 3, 6], 1)], top=1, known=known)
    assert set(driver.told) == {tuple(PROMPT.tolist()), (*PROMPT.tolist(), 2, 3)}  # row 0 comes in any case
    assert [second[node] is first[node] for node in (1, 3)] == [True, True]
    assert plain(second[2]) == plain(
        values_of(Driver(model, [Capacity(9, 30, 8)]).run, [([2, 3, 4], 1), ([2, 3, 6], 1)], top=1)[2]
    )


def test_the_cache_of_values_is_bounded():
    """What was not used for the longest time goes first; an entry counts once, however often it is put."""
    values = RowValues(1, {2: -1.0}, 0, ())
    cache = ReadRows(3 * values.nbytes)
    for key in (b"a", b"b", b"c", b"c"):
        cache.put(key, values)
    assert cache.get(b"a") is values
    cache.put(b"d", values)
    assert [cache.get(key) is values for key in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    assert (len(cache), cache.size) == (3, 3 * values.nbytes)
    cache.put(b"e", RowValues(1, dict.fromkeys(range(1000), -1.0), 0, ()))  # more than there is room for: not kept
    assert (cache.get(b"e"), len(cache), cache.size) == (None, 3, 3 * values.nbytes)
    cache.put(b"a", values)
    cache.clear()
    assert (cache.get(b"a"), len(cache), cache.size) == (None, 0, 0)


@given(paths=st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=6))
def test_keys_are_those_of_paths(paths):
    """Equal for equal paths, in whichever trie, and for no others."""
    trie, other = TokenTrie.from_sequences(paths), TokenTrie.from_sequences([*paths, [3, 2, 1, 0]])
    by_path = {tuple(other.path(node).tolist()): key for node, key in enumerate(path_keys(other))}
    assert len(set(by_path.values())) == len(by_path)
    for node, key in enumerate(path_keys(trie)):
        assert by_path[tuple(trie.path(node).tolist())] == key
