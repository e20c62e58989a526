"""Several evaluations of one trie scored together: the bits of each alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.numerics import Interval
from selectrie.core.token_trie import TokenTrie
from selectrie.decoding.scoring.evaluation import row_needs
from selectrie.decoding.scoring.paths import coverages, path_scores, posteriors, stack_evaluations
from selectrie.decoding.scoring.rules import coverage_of, posterior
from selectrie.decoding.scoring.tolerance import are_clear, near_choices
from selectrie.decoding.trie.exhaustive import ScorePlan, ScoreTask
from selectrie.testing import HashModel
from selectrie.testing.oracles import run
from tests.support.n_examples import n_examples

path_sets = st.lists(st.lists(st.integers(2, 5), max_size=4).map(tuple), min_size=1, max_size=40)


def same(one, other):
    """Whether two arrays have the same bits."""
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()


@settings(max_examples=n_examples(60))
@given(path_sets, st.integers(0, 2**31), st.integers(2, 9), st.sampled_from(["none", "eog", "unless-continued"]))
def test_paths_have_the_scores_that_they_have_alone(paths, seed, n_prompts, terminator):
    """After several prompts, whatever ends a path; tasks share a plan."""
    model, trie = HashModel(seed, sharpness=3.0), TokenTrie.from_sequences(paths)
    needs = row_needs(trie, terminator, eog_ids=model.vocabulary.eog)
    plan = ScorePlan(trie, needs)
    prompts = [np.array([0, i], dtype=np.int32) for i in range(n_prompts)]
    evaluations = [run(ScoreTask(prompt, trie, needs, plan), model) for prompt in prompts]
    heals = np.linspace(-1.5, 0.0, n_prompts)
    together = stack_evaluations(evaluations)
    assert together is not None
    found = path_scores(trie, together, terminator, heals)
    found_coverages = coverages(found.logp.low)
    decisions = posteriors(np.ascontiguousarray(found.logp.low[:, trie.path_of]), trie.path_of)
    for i, (prompt, evaluation) in enumerate(zip(prompts, evaluations, strict=True)):
        fresh = run(ScoreTask(prompt, trie, needs), model)
        alone = path_scores(trie, fresh, terminator, float(heals[i]))
        assert same(found.logp_local[i], alone.logp_local)
        for one, other in ((found.logp, alone.logp), (found.terminator, alone.terminator)):
            assert one.low is one.high
            assert other.low is other.high
            assert same(one.low[i], other.low)
        assert found.greedy_path[i] == alone.greedy_path
        assert same(found_coverages[i], coverage_of(alone.logp.low))
        decided, expected = decisions[i], posterior(Interval.point(alone.logp.low[trie.path_of]), trie.path_of)
        assert same(decided.probability, expected.probability)
        assert (decided.winner, decided.is_tie, decided.margin) == (expected.winner, expected.is_tie, expected.margin)
        assert evaluation.n_evaluated == fresh.n_evaluated


numbers = st.sampled_from([-np.inf, -3.0, -1.0, -1.0 - 2**-30, -0.5, 0.0])


@given(st.data(), st.integers(1, 6), st.integers(1, 4))
def test_decisions_are_those_of_each_row(data, n_choices, n_rows):
    """With ties, impossible choices and choices of one path."""
    n_paths = data.draw(st.integers(1, n_choices))
    path_of = np.array([*range(n_paths), *(data.draw(st.integers(0, n_paths - 1)) for _ in range(n_choices - n_paths))])
    rows = data.draw(
        st.lists(st.lists(numbers, min_size=n_choices, max_size=n_choices), min_size=n_rows, max_size=n_rows)
    )
    scores, tolerances = (
        np.array(rows),
        np.array(data.draw(st.lists(st.sampled_from([0.0, 0.3]), min_size=n_choices, max_size=n_choices))),
    )
    decisions, clear = (
        posteriors(scores, path_of),
        are_clear(scores, np.broadcast_to(tolerances, scores.shape), path_of),
    )
    for i, row in enumerate(scores):
        expected = posterior(Interval.point(row), path_of)
        found = decisions[i]
        assert same(found.probability, expected.probability)
        assert (found.winner, found.is_tie, found.margin) == (expected.winner, expected.is_tie, expected.margin)
        if n_paths == n_choices:
            assert clear[i] == (len(near_choices(row, tolerances, path_of)) == 0)
        elif clear[i]:
            assert len(near_choices(row, tolerances, path_of)) == 0


def test_evaluations_of_other_nodes_are_not_scored_together():
    """What was not evaluated would count as known."""
    model, trie = HashModel(1), TokenTrie.from_sequences([(2, 3), (2, 4), (3,)])
    some = run(ScoreTask(np.array([0], dtype=np.int32), trie, row_needs(trie, "none")), model)
    more = run(
        ScoreTask(np.array([0], dtype=np.int32), trie, row_needs(trie, "eog", eog_ids=model.vocabulary.eog)), model
    )
    assert stack_evaluations([some, more]) is None
    with pytest.raises(IndexError):
        stack_evaluations([])
