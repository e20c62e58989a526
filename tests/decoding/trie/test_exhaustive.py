from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.rows import DenseRows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_TOKEN, Capacity, Limits, ModelKind
from selectrie.decoding.scoring.evaluation import RowNeeds, TrieReader, row_needs
from selectrie.decoding.scoring.paths import path_scores
from selectrie.decoding.trie.exhaustive import ScoreTask
from selectrie.errors import NonFiniteLogitsError, ProtocolError
from selectrie.testing import HashModel, naive_joint
from selectrie.testing.oracles import run
from tests.support.n_examples import n_examples
from tests.support.task_driver import Driver

PROMPT = np.array([0, 3], dtype=np.int32)
WIDE = Capacity(rows=512, nodes=4096, sequences=256)
path_sets = st.lists(st.lists(st.integers(2, 6), max_size=5).map(tuple), min_size=1, max_size=25)
seeds = st.integers(0, 2**31)
slack = st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(1, 5))


def task_of(paths, terminator="none", observe=()):
    trie = TokenTrie.from_sequences(paths)
    needs = row_needs(trie, terminator, observe, np.array([1], dtype=np.int32))
    return ScoreTask(PROMPT, trie, needs), trie


def rooms_above(floor, extras):
    """Rooms at or above the floor."""
    return [Capacity(rows, floor.nodes + nodes, branches) for rows, nodes, branches in extras]


def proper_prefixes(paths):
    return {path[:n] for path in paths for n in range(len(path))} | {()}


@settings(max_examples=n_examples(60))
@given(paths=path_sets, seed=seeds, extras=st.lists(slack, min_size=1, max_size=4))
def test_every_needed_row_is_told_once_in_any_room(paths, seed, extras):
    """Distinct proper prefixes and nothing else, each once, whatever the rooms; scores do not move."""
    task, trie = task_of(paths)
    driver = Driver(HashModel(seed), rooms_above(task.floor, extras))
    evaluation = driver.run(task)
    assert driver.told == {(*PROMPT, *prefix): 1 for prefix in proper_prefixes(paths)}
    assert not driver.carried
    scores = path_scores(trie, evaluation, "none").logp.low[trie.path_of]
    np.testing.assert_allclose(scores, naive_joint(HashModel(seed), PROMPT, paths), atol=1e-6)


@settings(max_examples=n_examples(40))
@given(paths=path_sets, seed=seeds)
def test_terminators_need_what_they_say(paths, seed):
    """Eog adds the ends of paths; unless-continued adds no row at all."""
    for terminator, expected in (
        ("text", proper_prefixes(paths)),
        ("unless-continued", proper_prefixes(paths)),
        ("eog", proper_prefixes(paths) | set(paths)),
    ):
        task, _ = task_of(paths, terminator)
        driver = Driver(HashModel(seed), [WIDE])
        evaluation = driver.run(task)
        assert set(driver.told) == {(*PROMPT, *prefix) for prefix in expected}
        assert evaluation.n_evaluated == len(expected)


@settings(max_examples=n_examples(40))
@given(paths=path_sets, seed=seeds)
def test_the_floor_is_enough_and_nothing_less(paths, seed):
    """One row at a time along one path; a node less is refused before anything is asked."""
    task, _ = task_of(paths)
    driver = Driver(HashModel(seed), [task.floor])
    driver.run(task)
    assert driver.most_held <= task.floor.nodes
    task, _ = task_of(paths)
    task.tell(DenseRows(HashModel(seed).row(PROMPT)[None]))
    with pytest.raises(ProtocolError, match="below the floor"):
        task.ask(Capacity(1, task.floor.nodes - 1, 1))


@settings(max_examples=n_examples(30))
@given(paths=path_sets, seed=seeds, kind=st.sampled_from(list(ModelKind)), nodes=st.integers(8, 16))
def test_models_of_every_kind_give_the_same_numbers(paths, seed, kind, nodes):
    """In a small model, forking or not, the evaluation has the bits it has in a wide one."""
    small = Limits(nodes=nodes, sequences=nodes, rows_per_call=4, kind=kind, max_idle_rows=100)
    evaluations = []
    for limits in (small, Limits(4096, 256, 512, ModelKind.ATTENTION, 4096)):
        model = HashModel(seed, limits=limits)
        task, _ = task_of(paths)
        evaluations.append(run(task, model))
        assert max(model.evaluations.values()) == 1
    np.testing.assert_array_equal(evaluations[0].edge_logp, evaluations[1].edge_logp)


def test_windows_are_as_large_as_the_room():
    """A full ternary trie of 13 inner nodes: rows, nodes and branches each cut it where they say."""
    paths = [(a, b, c) for a in (2, 3, 4) for b in (2, 3, 4) for c in (2, 3)]
    #             1
    #      /      |      \
    #   2..4    5..7   8..10  of depth 2, under three nodes of depth 1: depth-first order 1 a b b b a b b b a b b b
    for capacity, sizes in (
        (Capacity(12, 12, 12), [12]),
        (Capacity(5, 12, 12), [5, 5, 2]),
        (Capacity(12, 12, 3), [4, 4, 4]),
        (Capacity(12, 6, 12), [6, 5, 1]),
    ):
        task, _ = task_of(paths)
        driver = Driver(HashModel(1), [capacity])
        driver.run(task)
        assert driver.sizes == sizes


def test_the_row_of_the_empty_context_cannot_be_needed():
    """A task without a prompt scores what follows first tokens, and not these; the others are refused."""
    trie = TokenTrie.from_sequences([(2, 3, 4), (5, 6)])
    after_first = np.array([False, *(trie.depth[1:] == 1)])
    evaluation = run(ScoreTask(PROMPT[:0], trie, RowNeeds.of_edges(after_first)), HashModel(3))
    alone = DenseRows(np.array([HashModel(3).row((token,)) for token in (2, 5)]))
    assert evaluation.edge_logp[trie.depth == 2].tolist() == [alone.logp(0, 3), alone.logp(1, 6)]
    assert evaluation.best_token[trie.depth == 1].tolist() == alone.best().tolist()
    assert np.isnan(evaluation.edge_logp[trie.depth == 1]).all()
    with pytest.raises(ProtocolError, match="the row of the empty context"):
        ScoreTask(PROMPT[:0], trie, row_needs(trie, "none"))


def test_the_mass_of_observed_tokens_is_read():
    """Two observations at the root, one of them of no token, and one below: a number for each."""
    paths = [(2, 3), (4,)]
    ids = [np.array([2, 9, 11], dtype=np.int32), np.array([], dtype=np.int32), np.array([5], dtype=np.int32)]
    task, trie = task_of(paths, observe=[(0, ids[0]), (0, ids[1]), (1, ids[2])])
    observed = Driver(HashModel(4), [WIDE]).run(task).observed.low
    at_root = np.logaddexp.reduce(naive_joint(HashModel(4), PROMPT, [(2,), (9,), (11,)]))
    expected = [at_root, -np.inf, *naive_joint(HashModel(4), (*PROMPT, 2), [(5,)])]
    assert trie.token[1] == 2
    np.testing.assert_allclose(observed, expected, atol=1e-6)


def test_an_observed_leaf_and_its_ancestors_are_evaluated():
    """A node that no path needs is evaluated because it is observed."""
    task, trie = task_of([(2, 3), (4, 5)], observe=[(2, np.array([7], dtype=np.int32))])
    driver = Driver(HashModel(4), [WIDE])
    evaluation = driver.run(task)
    assert (*PROMPT, 2, 3) in driver.told
    assert not trie.inner[2]
    assert np.isfinite(evaluation.observed.low).all()


def test_the_most_wanted_tokens_after_the_prompt_are_kept():
    """The ten most probable tokens of row 0, best first."""
    task, _ = task_of([(2, 3)])
    evaluation = Driver(HashModel(6), [WIDE]).run(task)
    logits = HashModel(6).row(PROMPT)
    assert evaluation.top_ids.tolist() == np.argsort(-logits, kind="stable")[:10].tolist()
    assert (np.diff(evaluation.top_logp) <= 0).all()


def test_steps_out_of_order_raise_and_change_nothing():
    """Asking before telling, telling twice, a wrong count, a result too early."""
    model = HashModel(2)
    task, _ = task_of([(2, 3), (4, 5)])
    with pytest.raises(ProtocolError, match="called again"):
        task.ask(WIDE)
    with pytest.raises(ProtocolError, match="got 2 rows, expected 1"):
        task.tell(DenseRows(np.stack([model.row(PROMPT)] * 2)))
    with pytest.raises(ProtocolError, match="no result"):
        task.result()
    task.tell(DenseRows(model.row(PROMPT)[None]))
    with pytest.raises(ProtocolError, match="no row is expected"):
        task.tell(DenseRows(model.row(PROMPT)[None]))
    ask = task.ask(WIDE)
    assert ask.tokens.tolist() == [2, 4]


def test_a_broken_row_is_refused_and_can_be_told_again():
    """NaN raises; the task is as it was, so the same rows may be told once they are right."""
    model = HashModel(2)
    task, _ = task_of([(2, 3), (4, 5)])
    broken = model.row(PROMPT)[None].copy()
    broken[0, 5] = np.nan
    with pytest.raises(NonFiniteLogitsError):
        task.tell(DenseRows(broken))
    task.tell(DenseRows(model.row(PROMPT)[None]))
    assert len(task.ask(WIDE).tokens) == 2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_broken_row_among_others_changes_nothing(place):
    """A row with NaN is noticed before anything is read, also one that is read for the end of generation alone."""
    trie = TokenTrie.from_sequences([(2, 3), (4,)])
    needs = row_needs(trie, "eog", (), np.array([1], dtype=np.int32))
    nodes = np.flatnonzero(needs.row)[:3].astype(np.int32)
    model = HashModel(2)
    matrix = np.stack([model.row((*PROMPT, node)) for node in nodes.tolist()])
    reader = TrieReader(trie, needs)
    broken = matrix.copy()
    broken[place, 7] = np.nan
    with pytest.raises(NonFiniteLogitsError):
        reader.read(nodes, DenseRows(broken))
    assert np.isnan(reader.edge_logp[1:]).all()
    assert np.isnan(reader.eog_logp).all()
    assert not reader.evaluated.any()
    reader.read(nodes, DenseRows(matrix))
    assert reader.evaluated[nodes].all()


def test_the_most_probable_token_after_each_node_is_kept():
    """Where it is needed, the best token of a row; none where it is not."""
    trie = TokenTrie.from_sequences([(2, 3), (4, 5)])
    needs = row_needs(trie, "none")
    marked = replace(needs, best=needs.row & (trie.token != 4))
    evaluation = Driver(HashModel(3), [WIDE]).run(ScoreTask(PROMPT, trie, marked))
    for node in np.flatnonzero(needs.row).tolist():
        path = [] if node == 0 else [int(trie.token[node])]
        best = int(np.argmax(HashModel(3).row((*PROMPT, *path))))
        assert evaluation.best_token[node] == (best if marked.best[node] else NO_TOKEN)


def test_a_lone_empty_choice_needs_no_row_but_the_prompts():
    """Under eog its score is the terminator alone."""
    task, trie = task_of([()], "eog")
    driver = Driver(HashModel(8), [Capacity(1, 1, 1)])
    scores = path_scores(trie, driver.run(task), "eog")
    assert driver.sizes == []
    assert scores.logp.low == pytest.approx(naive_joint(HashModel(8), PROMPT, [(1,)]))


def test_the_driver_notices_a_task_that_asks_for_too_much():
    """A room smaller than the task believes is caught."""
    task, _ = task_of([(2, 3), (4, 5)])

    class Liar:
        prompt = PROMPT
        tell, reads = task.tell, task.reads

        @staticmethod
        def ask(_capacity):
            return task.ask(WIDE)

    with pytest.raises(AssertionError):
        Driver(HashModel(1), [Capacity(1, 1, 1)]).run(Liar)
