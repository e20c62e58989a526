"""The task that reads given texts: every wanted row once, in asks of bounded size, and nothing kept but values."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.core.rows import DenseRows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_TOKEN, Capacity, ModelKind, SelfCheck
from selectrie.decoding.trie import prompt_rows
from selectrie.decoding.trie.prompt_rows import PromptRowsTask
from selectrie.decoding.trie.scored_nodes import ScoredNodes
from selectrie.engine.engine import Engine
from selectrie.testing import FakeModel, HashModel, numbered_vocabulary
from selectrie.testing.driver import run
from selectrie.testing.fakes import WIDE
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


def task_of(given_paths, *, top=0, named=(), n_vocabulary=SIZE):
    trie = TokenTrie.from_sequences([path for path, _ in given_paths])
    scored = ScoredNodes.of(trie, np.array([n for _, n in given_paths]))
    ids = np.array(named, dtype=np.int32)
    return PromptRowsTask(PROMPT, trie, scored, top=top, named=ids, n_vocabulary=n_vocabulary)


@given(
    given_paths=paths_with_counts,
    rooms=st.lists(capacities, min_size=1, max_size=3),
    top=st.integers(0, SIZE),
    named=st.lists(st.integers(0, SIZE - 1), max_size=3),
)
def test_values_are_those_of_each_prefix_in_any_capacity(given_paths, rooms, top, named):
    """Node by node; what no scored token hangs from is neither asked for nor read."""
    model, task = HashModel(2), task_of(given_paths, top=top, named=named)
    driver = Driver(model, rooms)
    rows = driver.run(task)
    trie = TokenTrie.from_sequences([path for path, _ in given_paths])
    wanted = {tuple(path[:i]) for path, n in given_paths for i in range(len(path) - n, len(path))}
    for node in range(len(trie)):
        prefix = tuple(trie.path(node).tolist())
        children = trie.children(node).tolist()
        if prefix not in wanted:
            assert np.isnan(rows.edge_logp[children]).all()
            assert rows.best[node] == NO_TOKEN
            assert node not in rows.top
            assert node not in rows.named
            continue
        alone = DenseRows(model.row((*PROMPT.tolist(), *prefix))[None])
        for child in children:
            assert rows.edge_logp[child] == min(0.0, alone.logp(0, trie.token[child]))
        assert rows.best[node] == alone.best()[0]
        ids, logp = alone.top(0, top)
        assert rows.top.get(node, ()) == tuple(zip(ids.tolist(), np.minimum(logp, 0.0).tolist(), strict=True))
        assert rows.named.get(node, ()) == tuple(min(0.0, float(alone.logp(0, one))) for one in named)
    below = {path for path in wanted if path}
    assert set(driver.told) == {(*PROMPT.tolist(), *path) for path in below | {()}}
    assert set(driver.told.values()) == {1}
    leads = {path[:i] for path in below for i in range(1, len(path))} - below
    assert set(driver.carried) == {(*PROMPT.tolist(), *path) for path in leads}


@pytest.mark.parametrize(("n_vocabulary", "rows"), [(26, 512), (32_000, 512), (152_000, 110), (10**9, 1)])
def test_the_logits_of_one_ask_are_bounded(n_vocabulary, rows):
    """64 MiB of them: at 152k tokens 110 rows, where a whole call of 512 would be 311 MB."""
    task = task_of([([2] * 700, 700)], n_vocabulary=n_vocabulary)
    task.tell(DenseRows(HashModel(1).row(PROMPT.tolist())[None]))
    assert len(task.ask(Capacity(512, 4096, 16)).tokens) == rows


@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.RECURRENT])
def test_memory_stays_bounded(monkeypatch, kind):
    """600 rows of 16384 tokens (39 MB) with a top-5 of each, in asks of 1 MiB: never more than 8 MiB at once."""
    n_vocabulary, n_rows = 1 << 14, 600
    monkeypatch.setattr(prompt_rows, "WANTED_BYTES", 1 << 20)
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
        run(task_of(given_paths, top=2, named=[3]), HashModel(5, limits=replace(WIDE, kind=kind)))
        for kind in (ModelKind.ATTENTION, ModelKind.RECURRENT)
    ]
    assert np.array_equal(results[0].edge_logp, results[1].edge_logp, equal_nan=True)
    assert (results[0].top, results[0].named) == (results[1].top, results[1].named)
    assert np.array_equal(results[0].best, results[1].best)
