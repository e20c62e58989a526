from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from selectrie.core.numerics import Interval
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_PATH
from selectrie.decoding.scoring.evaluation import auto_terminator, check_choices, row_needs
from selectrie.decoding.scoring.paths import path_scores
from selectrie.decoding.scoring.rules import (
    Lengths,
    coverage_of,
    duplicates,
    log_priors,
    mean_joint,
    posterior,
    score_choices,
    score_with,
)
from selectrie.decoding.scoring.tolerance import near_choices, near_margins, rows_of_paths, tolerance_of
from selectrie.decoding.trie.exhaustive import ScoreTask
from selectrie.errors import ChoiceError, NonFiniteLogitsError, OptionError
from selectrie.options import ScoringRule
from selectrie.testing import (
    HashModel,
    TableModel,
    enumerate_table,
    make_vocabulary,
    naive_joint,
    naive_local,
    naive_unless_continued,
    spell,
)
from selectrie.testing.oracles import run
from tests.support.n_examples import n_examples

FLOAT32_ROW = 1e-6
"""Nats: a row's float32 exponentials move its log-sum-exp by 1e-7, and paths here have at most six rows."""

PROMPT = np.array([0], dtype=np.int32)
path_sets = st.lists(st.lists(st.integers(2, 5), max_size=4).map(tuple), min_size=1, max_size=12)
seeds = st.integers(0, 2**31)


def evaluate(model, trie, terminator):
    needs = row_needs(trie, terminator, eog_ids=model.vocabulary.eog)
    return run(ScoreTask(PROMPT, trie, needs), model)


def scored(model, sequences, terminator):
    trie = TokenTrie.from_sequences(sequences)
    return trie, path_scores(trie, evaluate(model, trie, terminator), terminator)


def pieces(*choices):
    """Token paths of choices given as lists of pieces of the tiny vocabulary."""
    return [spell(make_vocabulary(), choice) for choice in choices]


@settings(max_examples=n_examples(40))
@given(paths=path_sets, seed=seeds)
def test_joint_equals_each_path_alone(paths, seed):
    """Sharing prefixes may save rows, never move a number."""
    trie, scores = scored(HashModel(seed), paths, "none")
    np.testing.assert_allclose(
        scores.logp.low[trie.path_of], naive_joint(HashModel(seed), PROMPT, paths), atol=FLOAT32_ROW
    )


@settings(max_examples=n_examples(40))
@given(paths=path_sets, seed=seeds)
def test_eog_adds_the_mass_of_all_end_tokens(paths, seed):
    """With several end-of-generation tokens the terminator is the sum over them."""
    vocabulary = replace(make_vocabulary(), eog=np.array([1, 9, 12], dtype=np.int32))
    model = HashModel(seed, vocabulary=vocabulary)
    trie, scores = scored(model, paths, "eog")
    closed = [naive_joint(model, PROMPT, [(*path, end) for end in (1, 9, 12)]) for path in paths]
    np.testing.assert_allclose(
        scores.logp.low[trie.path_of], [log(sum(map(exp, ends))) for ends in closed], atol=FLOAT32_ROW
    )


@settings(max_examples=n_examples(40))
@given(paths=path_sets, seed=seeds)
def test_unless_continued_equals_the_recursive_twin(paths, seed):
    """The log-probability that a choice is the longest one the text starts with, and its step-by-step twin."""
    trie, scores = scored(HashModel(seed), paths, "unless-continued")
    wanted = naive_unless_continued(HashModel(seed), PROMPT, paths)
    np.testing.assert_allclose(scores.logp.low[trie.path_of], wanted, atol=FLOAT32_ROW)
    local = naive_local(HashModel(seed), PROMPT, paths)
    np.testing.assert_allclose(scores.logp_local[trie.path_of], local, atol=FLOAT32_ROW)


def test_unless_continued_counts_texts():
    """Against every text of a table model written out: a, at, ats, b; where 'at' alone is no choice."""
    table = {
        (): {"a": 0.5, "b": 0.3, "c": 0.2},
        ("a",): {"t": 0.6, "b": 0.4},
        ("a", "t"): {"s": 0.7, "r": 0.3},
        ("a", "t", "s"): {"s": 1.0},
    }
    model = TableModel(table)
    paths = pieces(["a"], ["a", "t", "s"], ["b"])
    trie, scores = scored(model, paths, "unless-continued")
    exact = enumerate_table(model, PROMPT, paths)
    # a but not ats: 0.5 * (0.4 + 0.6 * 0.3) = 0.29; ats: 0.5 * 0.6 * 0.7 = 0.21; b: 0.3; none: c = 0.2
    assert exact.longest == pytest.approx((0.29, 0.21, 0.3))
    assert np.exp(scores.logp.low[trie.path_of]) == pytest.approx((0.29, 0.21, 0.3))


@settings(max_examples=n_examples(40))
@given(paths=path_sets, seed=seeds)
def test_a_set_with_none_sums_to_one(paths, seed):
    """The empty choice under unless-continued is 'none of the others': with it, probabilities sum to one."""
    _, scores = scored(HashModel(seed), [*paths, ()], "unless-continued")
    assert coverage_of(scores.logp.low) == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=n_examples(40))
@given(paths=path_sets, seed=seeds, tail=st.lists(st.integers(2, 5), min_size=3, max_size=5))
def test_an_absurd_long_choice_never_changes_the_winner_among_the_others(paths, seed, tail):
    """A continuation that the model gives nearly no mass leaves the others' scores where they were."""
    base = [path for path in paths if path] or [(2,)]
    absurd = (*base[0], *tail)
    assume(all(path[: len(base[0]) + 1] != absurd[: len(base[0]) + 1] for path in base))
    planted = {(0, *base[0]): [0.0 if t != tail[0] else 3.0 for t in range(26)]}
    planted[(0, *base[0], tail[0])] = [0.0 if t != tail[1] else -60.0 for t in range(26)]
    before_trie, before = scored(HashModel(seed, planted=planted), base, "unless-continued")
    after_trie, after = scored(HashModel(seed, planted=planted), [*base, absurd], "unless-continued")
    np.testing.assert_allclose(
        after.logp.low[after_trie.path_of[: len(base)]], before.logp.low[before_trie.path_of], atol=FLOAT32_ROW
    )


def test_the_naive_complement_would_flip_that_winner():
    """1 - p(first token of the continuation) charges a choice for a continuation that never comes; positive terms do not."""
    table = {(): {"a": 0.5, "b": 0.4}, ("a",): {"t": 0.9}, ("a", "t"): {"s": 1e-6, "r": 0.9}}
    trie, scores = scored(TableModel(table), pieces(["a"], ["b"], ["a", "t", "s"]), "unless-continued")
    p = np.exp(scores.logp.low[trie.path_of])
    assert p[0] == pytest.approx(0.5, abs=1e-5)
    assert p[0] > p[1]
    assert p[1] > 0.5 * (1 - 0.9)


SKILL = {(): {"s": 0.6, "c": 0.1}, ("s",): {"u": 0.01, "t": 0.98}, ("c",): {"r": 1.0}}
"""skill = s u, sky = s t (not in the set), cloud = c r."""


def test_joint_and_step_by_step_choice_disagree_where_mass_is_masked_below():
    """P(sk) .6, P(cloud) .1, P(ill|sk) .01: joint prefers cloud .1 to skill .006, masked decoding skill with .857."""
    trie, scores = scored(TableModel(SKILL), pieces(["s", "u"], ["c", "r"]), "none")
    assert np.exp(scores.logp.low[trie.path_of]) == pytest.approx((0.006, 0.1))
    assert np.exp(scores.logp_local[trie.path_of]) == pytest.approx((0.6 / 0.7, 0.1 / 0.7))
    assert scores.greedy_path == trie.path_of[0]
    decision = posterior(Interval.point(scores.logp.low[trie.path_of]), trie.path_of)
    assert decision.winner == 1
    assert decision.probability == pytest.approx((0.006 / 0.106, 0.1 / 0.106))
    assert coverage_of(scores.logp.low) == pytest.approx(0.106)


def test_greedy_stops_where_ending_weighs_most_and_ties_go_to_the_smaller_token():
    """At 'a' the end weighs .5 against .4 for going on; of two equal tokens the smaller id is taken."""
    stops = TableModel({(): {"a": 0.6, "b": 0.3}, ("a",): {"t": 0.4, "<eos>": 0.5}})
    trie, scores = scored(stops, pieces(["a"], ["a", "t"], ["b"]), "eog")
    assert scores.greedy_path == trie.path_of[0]
    goes_on = TableModel({(): {"a": 0.6, "b": 0.3}, ("a",): {"t": 0.5, "<eos>": 0.4}})
    trie, scores = scored(goes_on, pieces(["a"], ["a", "t"], ["b"]), "eog")
    assert scores.greedy_path == trie.path_of[1]
    trie, scores = scored(TableModel({(): {"a": 0.4, "b": 0.4}}), pieces(["b"], ["a"]), "none")
    assert scores.greedy_path == trie.path_of[1]


@settings(max_examples=n_examples(40))
@given(paths=path_sets, seed=seeds, data=st.data())
def test_order_and_duplicates_do_not_matter(paths, seed, data):
    """A permuted list with repeats gives every choice the score it had."""
    again = data.draw(st.permutations([*paths, *paths[: len(paths) // 2]]))
    for terminator in ("none", "eog", "unless-continued"):
        trie, scores = scored(HashModel(seed), paths, terminator)
        other_trie, other = scored(HashModel(seed), again, terminator)
        known = dict(zip(paths, scores.logp.low[trie.path_of].tolist(), strict=True))
        assert [known[path] for path in again] == other.logp.low[other_trie.path_of].tolist()


def test_minus_infinity_is_a_result_and_nan_an_error():
    """A forbidden token gives probability 0 to what needs it and leaves the rest alone; NaN names the row."""
    logits = [0.0] * 26
    logits[3] = -np.inf
    trie, scores = scored(HashModel(1, planted={(0,): logits}), [(3, 4), (2, 4)], "none")
    assert np.isneginf(scores.logp.low[trie.path_of[0]])
    assert np.isfinite(scores.logp.low[trie.path_of[1]])
    assert posterior(Interval.point(scores.logp.low), trie.path_of).probability[trie.path_of[0]] == 0
    logits[5] = np.nan
    with pytest.raises(NonFiniteLogitsError):
        scored(HashModel(1, planted={(0,): logits}), [(3, 4), (2, 4)], "none")


@settings(max_examples=n_examples(40))
@given(paths=path_sets, seed=seeds, skip=st.integers(0, 3))
def test_tokens_before_first_scored_do_not_count(paths, seed, skip):
    """Equal paths may count from different tokens; the rest is a plain sum of the later edges."""
    twice = [*paths, *paths]
    first = np.array([0] * len(paths) + [skip] * len(paths), dtype=np.int32)
    trie = TokenTrie.from_sequences(twice)
    evaluation = evaluate(HashModel(seed), trie, "none")
    logp = path_scores(trie, evaluation, "none").first_scored(trie, evaluation, first)
    whole = naive_joint(HashModel(seed), PROMPT, twice)
    head = naive_joint(HashModel(seed), PROMPT, [path[:n] for path, n in zip(twice, first, strict=True)])
    np.testing.assert_allclose(logp.low, np.subtract(whole, head), atol=FLOAT32_ROW)
    assert (logp.high == logp.low).all()


def test_healed_bytes_are_taken_off_every_choice():
    """The joint becomes conditional on what was encoded again: the same shift for all."""
    trie = TokenTrie.from_sequences([(2, 3), (2, 4)])
    evaluation = evaluate(HashModel(3), trie, "none")
    plain, healed = (path_scores(trie, evaluation, "none", log_heal=x).logp.low for x in (0.0, -1.5))
    np.testing.assert_allclose(healed - plain, 1.5)


@pytest.mark.parametrize(
    ("choices", "following", "expected"),
    [
        ([b"cat", b"dog"], b"", "none"),
        ([b"cat", b"cats"], b"", "unless-continued"),
        ([b"9", b"x", b"90"], b"", "unless-continued"),
        ([b"cat", b"cat"], b"", "none"),
        ([b"a\x00", b"a"], b"", "unless-continued"),
        ([b"", b"a"], b"", "unless-continued"),
        ([b"cat", b"cats"], b".", "text"),
    ],
)
def test_auto_is_decided_on_bytes(choices, following, expected):
    """Following text wins; else a choice that continues another, tokens or not; duplicates continue nothing."""
    assert auto_terminator(choices, following) == expected


@given(st.lists(st.text("ab", max_size=4), min_size=1, max_size=8))
def test_auto_equals_comparing_all_pairs(choices):
    """Neighbours in byte order are enough."""
    encoded = [choice.encode() for choice in choices]
    pairs = any(a != b and b.startswith(a) for a in encoded for b in encoded)
    assert (auto_terminator(encoded, b"") == "unless-continued") == pairs


@settings(max_examples=n_examples(20))
@given(paths=path_sets, seed=seeds)
def test_edges_below_a_node_share_at_most_its_mass(paths, seed):
    """A row predicts the token after its node: children and rest of every inner node at or below an end sum to one."""
    trie = TokenTrie.from_sequences([*paths, ()])
    evaluation = evaluate(HashModel(seed), trie, "unless-continued")
    for node in np.flatnonzero(trie.inner).tolist():
        total = np.exp(evaluation.edge_logp[trie.children(node)]).sum() + np.exp(evaluation.rest.low[node])
        assert total == pytest.approx(1.0, abs=1e-6)


def test_the_default_rule_is_the_joint():
    """A token mean would reward predictable tails: nine sure tokens after a bad one beat a single fair one."""
    lengths = Lengths(np.array([10, 1]), np.array([28, 3]), np.array([28, 3]))
    logp = np.array([-5.0, -1.0])
    assert np.argmax(score_choices(ScoringRule(), logp, lengths)) == 1
    assert np.argmax(score_choices(ScoringRule("token_mean"), logp, lengths)) == 0


def test_an_empty_choice_is_refused_unless_a_terminator_weighs_it():
    """Its index is named; so is an empty list."""
    with pytest.raises(ChoiceError, match="choice 1") as error:
        check_choices([b"a", b""], "none")
    assert error.value.index == 1
    for terminator in ("eog", "text", "unless-continued"):
        check_choices([b"a", b""], terminator)
    with pytest.raises(ChoiceError, match="no choices"):
        check_choices([], "eog")


def test_eog_needs_an_end_token():
    """A model without any is refused instead of scoring every choice -inf."""
    with pytest.raises(OptionError, match="end-of-generation"):
        row_needs(TokenTrie.from_sequences([(2,)]), "eog")


TEXTS = ("ab", "é", "ab")
LENGTHS = Lengths(np.array([1, 2, 1]), np.array([2, 1, 2]), np.array([2, 2, 2]))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("joint", [-4.0, -6.0, -4.0]),
        ("token_mean", [-4.0, -3.0, -4.0]),
        ("char_mean", [-2.0, -6.0, -2.0]),
        ("byte_mean", [-2.0, -3.0, -2.0]),
        ("pmi", [-3.0, -1.0, -3.0]),
        ("calibrated", [-3.0, -1.0, -3.0]),
        ("batch", [-3.0, -1.0, -3.0]),
    ],
)
def test_each_rule_by_hand(rule, expected):
    """Divided by tokens, characters or bytes; or less a baseline."""
    named = ScoringRule(rule, content_free=("N/A",) if rule == "calibrated" else ())
    baseline = np.array([-1.0, -5.0, -1.0])
    assert score_choices(named, np.array([-4.0, -6.0, -4.0]), LENGTHS, baseline=baseline).tolist() == expected


def test_lengths_are_those_of_the_choice_as_given():
    """é is one character and two bytes; tokens that do not count are no part of the mean."""
    trie = TokenTrie.from_sequences([(3, 4), (25,), (3, 4)])
    lengths = Lengths.of(TEXTS, trie, np.array([1, 0, 0], dtype=np.int32))
    assert lengths.n_tokens.tolist() == [1, 1, 2]
    assert lengths.n_chars.tolist() == [2, 1, 2]
    assert lengths.n_bytes.tolist() == [2, 2, 2]


def test_a_mean_over_nothing_is_refused():
    """An empty choice has no characters; the joint does not mind."""
    lengths = Lengths(np.array([1, 0]), np.array([1, 0]), np.array([1, 0]))
    for rule in ("token_mean", "char_mean", "byte_mean"):
        with pytest.raises(ChoiceError, match="choice 1"):
            score_choices(ScoringRule(rule), np.zeros(2), lengths)
    assert score_choices(ScoringRule(), np.zeros(2), lengths).tolist() == [0, 0]


def test_minus_infinity_and_unfinished_pass_through_every_rule():
    """-inf stays -inf even over a baseline of -inf; NaN stays NaN; an infinite difference is refused."""
    logp = np.array([-np.inf, np.nan, -1.0])
    baseline = np.array([-np.inf, -1.0, -2.0])
    scores = score_choices(ScoringRule("pmi"), logp, LENGTHS, baseline=baseline)
    assert np.isneginf(scores[0])
    assert np.isnan(scores[1])
    assert scores[2] == 1.0
    with pytest.raises(ChoiceError, match="choice 2"):
        score_choices(ScoringRule("pmi"), logp, LENGTHS, baseline=np.array([-1.0, -1.0, -np.inf]))
    with pytest.raises(OptionError, match="baseline"):
        score_choices(ScoringRule("pmi"), logp, LENGTHS)


def test_priors_are_added_as_logarithms():
    """By name or in order; 0 excludes a choice; what is not finished has no score, whatever its prior."""
    prior = log_priors({"ab": 0.5, "é": 0.0}, TEXTS)
    scores = score_choices(ScoringRule(), np.array([-1.0, -2.0, np.nan]), LENGTHS, log_prior=prior)
    np.testing.assert_allclose(scores, [-1 + log(0.5), -np.inf, np.nan])
    assert np.isnan(score_choices(ScoringRule(), np.full(3, np.nan), LENGTHS, log_prior=prior)).all()
    np.testing.assert_array_equal(prior, log_priors([0.5, 0.0, 0.5], TEXTS))
    assert log_priors(None, TEXTS) is None


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ({"ab": 1.0, "é": 1.0, "x": 1.0}, "'x'"),
        ({"ab": 1.0}, "choice 1"),
        ([1.0, 1.0], "2 weights for 3"),
        ([1.0, -1.0, 1.0], "choice 1"),
        ([1.0, float("nan"), 1.0], "choice 1"),
        ([1.0, float("inf"), 1.0], "choice 1"),
        ([1.0, 1.0, 0.5], "choice 2"),
        ([0.0, 0.0, 0.0], "every prior is 0"),
    ],
)
def test_a_bad_prior_is_refused(prior, message):
    """Unknown, missing, negative, not finite, unequal for equal choices, or nothing left."""
    with pytest.raises(ChoiceError, match=message):
        log_priors(prior, TEXTS)


def test_a_callable_scores_records():
    """It gets one record a choice; what it returns must be a number below inf."""
    assert score_with(lambda record: -record, [1.0, 2.0]).tolist() == [-1, -2]
    with pytest.raises(OptionError, match="choice 1"):
        score_with(lambda record: record, [0.0, float("nan")])


def test_a_mean_baseline_keeps_probability_zero():
    """The mean of -1 and -3 is -2; of -1 and -inf it is -inf."""
    means = mean_joint([np.array([-1.0, -1.0]), np.array([-3.0, -np.inf])])
    assert means.tolist() == [-2.0, -np.inf]


def test_duplicates_count_once():
    """Three choices on two paths: the shared path has one probability, shown at both indices."""
    path_of = np.array([0, 1, 0])
    decision = posterior(Interval.point(np.log([0.2, 0.6, 0.2])), path_of)
    assert decision.probability == pytest.approx([0.25, 0.75, 0.25])
    assert decision.winner == 1
    assert not decision.is_tie
    assert decision.margin == pytest.approx(log(3))
    assert duplicates(path_of).tolist() == [-1, -1, 0]


def test_exact_ties_go_to_the_lowest_index_and_are_flagged():
    """A tie is between paths; equal choices alone are no tie."""
    tied = posterior(Interval.point(np.log([0.2, 0.4, 0.4])), np.array([2, 1, 0]))
    assert tied.winner == 1
    assert tied.is_tie
    assert tied.margin == 0
    same = posterior(Interval.point(np.log([0.2, 0.4, 0.4])), np.array([0, 1, 1]))
    assert same.winner == 1
    assert not same.is_tie
    assert same.margin == pytest.approx(log(2))


def test_a_single_choice_has_probability_one_and_its_own_joint():
    """The margin is infinite, the coverage what the model gave it."""
    decision = posterior(Interval.point(np.array([-5.0])), np.array([0]))
    assert decision.probability.tolist() == [1.0]
    assert decision.margin == np.inf
    assert not decision.is_tie
    assert coverage_of(np.array([-5.0])) == pytest.approx(exp(-5))


def test_nothing_possible_is_a_flagged_tie_without_probability():
    """Every score -inf: no division by zero, lowest index."""
    decision = posterior(Interval.point(np.array([-np.inf, -np.inf])), np.array([0, 1]))
    assert decision.probability.tolist() == [0, 0]
    assert decision.winner == 0
    assert decision.is_tie
    assert decision.margin == 0


def test_open_mass_gives_intervals():
    """Finished .6 and .2, at most .1 open, of which the third at most .05."""
    scores = Interval(*np.log([[0.6, 0.2, np.nan], [0.6, 0.2, 0.05]]), is_known=True)
    decision = posterior(scores, np.arange(3), log_open=log(0.1))
    assert decision.bounds.low == pytest.approx([0.6 / 0.9, 0.2 / 0.9, 0])
    assert decision.bounds.high == pytest.approx([0.6 / 0.8, 0.2 / 0.8, 0.05 / 0.85])
    assert np.isnan(decision.probability[2])
    assert decision.probability[0] == pytest.approx((0.6 / 0.9 + 0.6 / 0.8) / 2)


def test_rows_that_a_path_is_read_from():
    """a, a t s, b: two rows of a's terminator (at a and at a t), none for leaves; eog adds the end's own row."""
    trie = TokenTrie.from_sequences(pieces(["a"], ["a", "t", "s"], ["b"]))
    for terminator, expected in {"none": [1, 3, 1], "eog": [2, 4, 2], "unless-continued": [3, 3, 1]}.items():
        assert rows_of_paths(trie, terminator)[trie.path_of].tolist() == expected


def test_tolerance_follows_the_rule():
    """The root of the rows; both sides for pmi; divided like the score for means; the sum of rows where it bounds each."""
    trie = TokenTrie.from_sequences([(2,), (3, 4)])
    lengths = Lengths.of(["a", "bcde"], trie)
    for rule, expected in {"joint": [1, 2], "pmi": [2, 4], "char_mean": [1, 0.5]}.items():
        assert tolerance_of(rule, 0.1, trie, "none", lengths=lengths, adds_up=True) == pytest.approx(
            0.1 * np.array(expected)
        )
    for rule, expected in {"joint": [1, 2], "pmi": [2, 4], "char_mean": [1, 2 / 16]}.items():
        assert tolerance_of(rule, 0.1, trie, "none", lengths=lengths) == pytest.approx(0.1 * np.sqrt(expected))
    skipped = tolerance_of("joint", 0.1, trie, "none", lengths=lengths, first_scored=np.array([0, 1]))
    assert skipped == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize("terminator", ["none", "eog"])
def test_sure_tokens_do_not_move(terminator):
    """A row that gives its token the probability p counts (1 - p) squared; an unread one counts whole; stacked as alone."""
    trie = TokenTrie.from_sequences([(2,), (3, 4), (3, 5)])
    lengths, ends = Lengths.of(["a", "b", "c"], trie), trie.path_node[trie.path_of]
    edges = np.full(len(trie), np.nan)
    edges[[0, ends[0], trie.parent[ends[1]], ends[1]]] = [0.0, log(0.9), log(0.5), log(1.0)]
    read = replace(evaluate(HashModel(2), trie, "eog"), edge_logp=edges, eog_logp=np.full(len(trie), log(0.75)))
    rows = np.array([0.1**2, 0.5**2, 0.5**2 + 1.0]) + (0.25**2 if terminator == "eog" else 0.0)
    found = tolerance_of("joint", 0.1, trie, terminator, lengths=lengths, evaluation=read)
    assert found == pytest.approx(0.1 * np.sqrt(rows))
    late = tolerance_of(
        "joint", 0.1, trie, terminator, lengths=lengths, evaluation=read, first_scored=np.array([0, 1, 1])
    )
    assert late[1:] == pytest.approx(0.1 * np.sqrt(rows[1:] - 0.5**2))
    both = replace(read, edge_logp=np.stack([edges, edges]), eog_logp=np.stack([read.eog_logp] * 2))
    together = tolerance_of("joint", 0.1, trie, terminator, lengths=lengths, evaluation=both)
    assert together.tobytes() == np.stack([found, found]).tobytes()


def test_the_margin_of_near_ties_is_that_of_the_best_two():
    """Of the winner and the best choice on another path: 3 and 4 make 5. A single path has none."""
    scores, path_of = np.array([[-1.0, -1.0, -2.0, -9.0], [-9.0, -9.0, -1.0, np.nan]]), np.array([0, 0, 1, 2])
    tolerances = np.array([[3.0, 3.0, 4.0, 9.0], [1.0, 1.0, 0.0, 9.0]])
    assert near_margins(scores, tolerances, path_of).tolist() == [5.0, 1.0]
    assert near_margins(np.zeros((1, 2)), np.ones((1, 2)), np.zeros(2, dtype=np.int32)).tolist() == [0.0]


def test_finalists_are_the_choices_that_layout_could_reorder():
    """Tolerance .1 each, .1414 for two: 0 and -.14 are near, -1 is not; with k = 3 the pair -1, -1.1 is near too."""
    scores = np.array([-1.0, 0.0, -0.14, -1.1, np.nan, -np.inf])
    tolerances, path_of = np.full(6, 0.1), np.arange(6)
    assert near_choices(scores, tolerances, path_of).tolist() == [1, 2]
    assert near_choices(scores, tolerances, path_of, k=3).tolist() == [1, 2, 0, 3]
    uneven = near_choices(np.array([1.0, 0.9, 0.5]), np.array([1.0, 0.001, 0.001]), np.arange(3), k=2)
    assert uneven.tolist() == [0, 1, 2]  # the third is near the first, though not near the second


def test_nothing_close_needs_no_settling():
    """A clear winner, equal choices of one path, a single choice."""
    clear = near_choices(np.array([0.0, -1.0]), np.full(2, 0.1), np.arange(2))
    equal = near_choices(np.array([0.0, 0.0]), np.full(2, 0.1), np.zeros(2, dtype=np.int32))
    single = near_choices(np.zeros(1), np.ones(1), np.zeros(1, dtype=np.int32))
    for indices in (clear, equal, single):
        assert indices.tolist() == []


@settings(max_examples=n_examples(50))
@given(
    scores=st.lists(st.integers(-8, 0), min_size=1, max_size=9),
    width=st.integers(0, 2),
    k=st.integers(1, 4),
)
def test_finalists_equal_comparing_all_pairs(scores, width, k):
    """Candidates reach the k-th best by the widest of the first k; of those, every one that another candidate reaches."""
    values = np.array(scores, dtype=np.float64)
    widths = np.array([width + i % 3 for i in range(len(scores))], dtype=np.float64)

    def near(i, j):
        return scores[i] - scores[j] >= -np.sqrt(widths[i] ** 2 + widths[j] ** 2)

    first = sorted(range(len(scores)), key=lambda i: -scores[i])[:k]
    widest = max(widths[i] for i in first)
    reach = [np.sqrt(widths[i] ** 2 + widest**2) for i in range(len(scores))]
    candidates = [i for i in range(len(scores)) if scores[i] - scores[first[-1]] >= -reach[i]]
    expected = {i for i in candidates if any(j != i and near(i, j) and near(j, i) for j in candidates)}
    indices = near_choices(values, widths, np.arange(len(scores)), k)
    assert set(indices.tolist()) == expected


def test_a_missing_row_leaves_bounds_and_no_value():
    """Without the row of a's child the two long paths have their prefix as a bound; greedy cannot be known."""
    trie = TokenTrie.from_sequences([(3, 4), (3, 5), (4,)])
    evaluation = evaluate(HashModel(2), trie, "none")
    edges = evaluation.edge_logp.copy()
    inner = int(trie.children(0)[0])
    edges[trie.children(inner)] = np.nan
    edges[inner] = 0.0
    partial = replace(evaluation, edge_logp=edges, evaluated=np.arange(len(trie)) == 0)
    scores = path_scores(trie, partial, "none")
    assert np.isnan(scores.logp.low[trie.path_of[:2]]).all()
    assert scores.logp.high[trie.path_of[:2]].tolist() == [edges[inner]] * 2
    assert scores.logp.low[trie.path_of[2]] == edges[trie.path_node[trie.path_of[2]]]
    assert scores.greedy_path == NO_PATH
    assert np.isnan(scores.logp_local[trie.path_of[0]])


def test_the_comparison_with_the_twins_can_fail():
    """A row shifted by one position is far outside the tolerance."""
    paths = [(2, 3), (3, 2)]
    trie, scores = scored(HashModel(5), paths, "none")
    shifted = naive_joint(HashModel(5), [*PROMPT, 2], paths)
    assert np.abs(scores.logp.low[trie.path_of] - shifted).max() > 1000 * FLOAT32_ROW
