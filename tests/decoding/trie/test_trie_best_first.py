from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.numerics import Interval
from selectrie.core.rows import DenseRows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, Capacity, Limits, ModelKind
from selectrie.decoding.scoring.evaluation import row_needs
from selectrie.decoding.scoring.paths import path_scores
from selectrie.decoding.scoring.rules import (
    Lengths,
    log_priors,
    objective_of,
    posterior,
    score_choices,
)
from selectrie.decoding.scoring.tolerance import near_choices, tolerance_of
from selectrie.decoding.search_state import OpenList, RowChildren
from selectrie.decoding.trie.best_first import BestFirst
from selectrie.decoding.trie.exhaustive import ScoreTask
from selectrie.engine.scheduler.job import Job
from selectrie.engine.scheduler.scheduler import Scheduler
from selectrie.errors import ChoiceError, ProtocolError
from selectrie.options import ScoringRule, SearchParams
from selectrie.testing import FakeModel, HashModel, TableModel, make_vocabulary, spell
from selectrie.testing.oracles import run
from selectrie.tokenization.encoding import PromptText, encode_choices
from tests.support.n_examples import n_examples
from tests.support.objectives import plain_objective
from tests.support.task_driver import Driver

PROMPT = np.array([0, 3], dtype=np.int32)
EOG = np.array([1, 9], dtype=np.int32)
WIDE = Capacity(rows=512, nodes=4096, sequences=256)
CLOSE = 1.1e-4
"""Nats: an end counts as resolved when its bounds are within 1e-4; its middle is at most half of that off."""

RULES = ("joint", "token_mean", "char_mean", "byte_mean", "pmi", "calibrated")
TERMINATORS = ("none", "text", "eog", "unless-continued")
path_sets = st.lists(st.lists(st.integers(2, 6), min_size=1, max_size=5).map(tuple), min_size=1, max_size=25)
rooms = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 12), st.integers(1, 6)), min_size=1, max_size=4)


@dataclass(frozen=True)
class Case:
    """A set with everything its scores depend on. baseline belongs to the path; sharpness and zeros to the model.

    zeros: whether about half of the tokens that occur have probability 0.
    """

    paths: list
    terminator: str
    rule: str
    seed: int
    sharpness: float
    with_prior: bool
    zeros: bool = False

    @property
    def model(self):
        hashed = HashModel(self.seed, sharpness=self.sharpness)
        if not self.zeros:
            return hashed

        def row_of(path):
            row = hashed.row(path).copy()
            row[2:7][row[2:7] < 0.3 * self.sharpness] = -np.inf
            return row

        return FakeModel(row_of, vocabulary=hashed.vocabulary, limits=hashed.limits, name="zeros")

    @cached_property
    def trie(self):
        return TokenTrie.from_sequences(self.paths)

    @cached_property
    def needs(self):
        return row_needs(self.trie, self.terminator, (), EOG)

    @property
    def named_rule(self):
        return ScoringRule(self.rule, content_free=("N/A",) if self.rule == "calibrated" else ())

    @cached_property
    def lengths(self):
        return Lengths.of(["é" * (sum(path) % 3) + "x" * len(path) for path in self.paths], self.trie)

    @property
    def random(self):
        rng = np.random.default_rng(self.seed)
        baseline = -10 * rng.random(len(self.trie.path_node))[self.trie.path_of]
        weights = rng.choice([0.0, 0.2, 1.0, 1.0], size=len(self.trie.path_node))[self.trie.path_of]
        names = [str(path) for path in self.paths]
        prior = log_priors(weights.tolist(), names) if self.with_prior and weights.any() else None
        return {"baseline": baseline, "log_prior": prior}

    def objective(self, **more):
        return objective_of(self.named_rule, self.trie, self.lengths, **self.random, **more)

    def scores(self, logp):
        return score_choices(self.named_rule, logp[self.trie.path_of], self.lengths, **self.random)

    def search(self, rooms=(WIDE,), objective=None, heal=None, fill_rows=8, fills=True, **search):
        """Outcome, driver, and (scores, upper bounds) by choice."""
        task = BestFirst(
            PROMPT,
            self.trie,
            self.needs,
            self.terminator,
            objective=objective or self.objective(),
            search=SearchParams(**search),
            heal=heal,
            fill_rows=fill_rows,
        )
        task.fills = fills
        driver = Driver(self.model, list(rooms))
        outcome = driver.run(task)
        found = path_scores(self.trie, outcome.evaluation, self.terminator)
        return outcome, driver, self.scores(found.logp.low), self.scores(found.logp.high), found

    def exhaustive(self):
        found = path_scores(
            self.trie, Driver(self.model, [WIDE]).run(ScoreTask(PROMPT, self.trie, self.needs)), self.terminator
        )
        return self.scores(found.logp.low), found


def cases(**fixed):
    parts = {
        "paths": path_sets,
        "terminator": st.sampled_from(TERMINATORS),
        "rule": st.sampled_from(RULES),
        "seed": st.integers(0, 2**31),
        "sharpness": st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        "with_prior": st.booleans(),
        "zeros": st.booleans(),
    }
    return st.builds(Case, **{**parts, **{name: st.just(value) for name, value in fixed.items()}})


def best(scores, path_of, k):
    """The k best scores over distinct paths; NaN counts as -inf."""
    by_path = [max((s for s, p in zip(scores, path_of, strict=True) if p == path), default=0) for path in set(path_of)]
    return sorted(np.nan_to_num(by_path, nan=-np.inf, neginf=-np.inf), reverse=True)[:k]


def check_against_exhaustive(case, found, k):
    """Raise unless a proved outcome has exhaustive scoring's k best, and every bound holds."""
    outcome, _, scores, upper, _ = found
    expected, _ = case.exhaustive()
    done = ~np.isnan(scores)
    np.testing.assert_allclose(scores[done], expected[done], atol=CLOSE)
    assert (upper >= expected - CLOSE).all(), "an upper bound is below the score"
    if outcome.proved:
        path_of = case.trie.path_of.tolist()
        np.testing.assert_allclose(best(scores, path_of, k), best(expected, path_of, k), atol=CLOSE)
        winner, *others = best(expected, path_of, 2)
        if all(winner > other + CLOSE for other in others):
            assert np.nanargmax(scores) == posterior(Interval.point(expected), case.trie.path_of).winner


@settings(max_examples=n_examples(120))
@given(case=cases(), extras=rooms, k=st.integers(1, 4), width=st.integers(1, 9))
def test_the_k_best_are_those_of_exhaustive_scoring(case, extras, k, width):
    """Every rule with a bound, every terminator, priors that exclude, rooms down to the floor: proved and equal."""
    floor = int(case.trie.depth[case.needs.row].max())
    found = case.search([Capacity(r, floor + n, b) for r, n, b in extras], k=k, width=width)
    assert found[0].proved
    check_against_exhaustive(case, found, k)


@settings(max_examples=n_examples(50))
@given(case=cases(), extras=rooms, width=st.integers(1, 9))
def test_no_row_is_told_twice_and_greedy_is_always_known(case, extras, width):
    """Rows lost are carried again without being read; the greedy path is that of exhaustive scoring."""
    floor = int(case.trie.depth[case.needs.row].max())
    outcome, driver, _, _, found = case.search([Capacity(r, floor + n, b) for r, n, b in extras], width=width)
    assert set(driver.told.values()) == {1}
    assert outcome.n_evaluated == len(driver.told) <= outcome.n_required
    assert outcome.n_repeated == driver.carried.total()
    assert found.greedy_path == case.exhaustive()[1].greedy_path


@settings(max_examples=n_examples(40))
@given(case=cases(), budget=st.integers(1, 12), k=st.integers(1, 3), stop=st.sampled_from(["best", "mass", "all"]))
def test_a_budget_is_kept_and_nothing_is_proved_wrongly(case, budget, k, stop):
    """Whatever is left open, bounds hold, and `proved` stays an exact statement. Only the greedy path goes beyond, and
    the way to a first choice that has a value where that one has none."""
    found = case.search(k=k, stop=stop, budget_nodes=budget, width=4)
    outcome, driver, scores = found[:3]
    expected, exact = case.exhaustive()
    greedy = exact.greedy_path
    assert found[4].greedy_path == greedy
    assert np.nanmax(np.append(scores, -np.inf)) > -np.inf or np.isneginf(expected).all()
    if (scores[case.trie.path_of == greedy] > -np.inf).any():
        assert driver.told.total() <= budget + int(case.trie.depth[case.trie.path_node[greedy]]) + 1
    check_against_exhaustive(case, found, k)
    if not outcome.proved:
        assert outcome.n_evaluated >= budget or stop == "mass"


@settings(max_examples=n_examples(50))
@given(case=cases(), budget=st.integers(1, 12), mass=st.sampled_from([0.5, 0.9, 1.0]))
def test_posterior_intervals_hold_the_exhaustive_posterior(case, budget, mass):
    """Open mass bounds what pruned choices could weigh, for sums and, by their number, for means."""
    outcome, _, scores, upper, found = case.search(stop="mass", mass=mass, budget_nodes=budget, width=3)
    expected, exact = case.exhaustive()
    whole = posterior(Interval.point(expected), case.trie.path_of)
    part = posterior(Interval(scores, upper, is_known=True), case.trie.path_of, log_open=outcome.log_open)
    assert (part.bounds.low <= whole.probability + CLOSE).all()
    assert (part.bounds.high >= whole.probability - CLOSE).all()
    left = np.isnan(found.logp.low)
    assert np.exp(exact.logp.low[left]).sum() <= outcome.open_mass + CLOSE


@settings(max_examples=n_examples(40))
@given(case=cases(), mass=st.sampled_from([0.5, 0.9, 0.99]))
def test_stop_by_mass_finishes_that_much(case, mass):
    """The finished choices hold the mass asked for, of the posterior over the set."""
    _, _, scores, _, _ = case.search(stop="mass", mass=mass, width=2)
    expected, _ = case.exhaustive()
    probability = posterior(Interval.point(expected), case.trie.path_of).probability
    first = np.unique(case.trie.path_of, return_index=True)[1]
    finished = first[~np.isnan(scores[first])]
    if probability.any():
        assert probability[finished].sum() >= mass - CLOSE


@settings(max_examples=n_examples(40))
@given(case=cases(), extras=rooms)
def test_stop_all_is_exhaustive_scoring(case, extras):
    """Every needed row, each once, in any room."""
    floor = int(case.trie.depth[case.needs.row].max())
    outcome, driver, scores, _, _ = case.search([Capacity(r, floor + n, b) for r, n, b in extras], stop="all")
    assert outcome.n_evaluated == outcome.n_required
    assert not driver.carried
    np.testing.assert_array_equal(scores, case.exhaustive()[0])
    assert outcome.proved
    assert outcome.open_mass == 0.0


@settings(max_examples=n_examples(40))
@given(case=cases(with_prior=False), tolerance=st.sampled_from([0.01, 0.3]), k=st.integers(1, 3))
def test_all_finalists_are_known(case, tolerance, k):
    """With a tolerance a row, nothing pruned can be within tolerance of the k-th best: exhaustive finalists are finished."""
    tolerances = tolerance_of(case.named_rule.name, tolerance, case.trie, case.terminator, lengths=case.lengths)
    _, _, scores, _, _ = case.search(objective=case.objective(tolerances=tolerances), k=k, width=2)
    expected, _ = case.exhaustive()
    indices = near_choices(expected, tolerances, case.trie.path_of, k)
    assert not np.isnan(scores[indices]).any()


@settings(max_examples=n_examples(60))
@given(case=cases(), fill_rows=st.integers(1, 40), fills=st.booleans())
def test_what_asks_are_filled_up_to_changes_no_answer(case, fill_rows, fills):
    """Every rule and terminator, with asks filled up to any multiple: proved, and the best score is the right one."""
    outcome, _, scores, _, _ = case.search(fill_rows=fill_rows, fills=fills)
    expected, _ = case.exhaustive()
    assert outcome.proved
    best = int(np.argmax(expected))
    np.testing.assert_allclose(scores[best], expected[best], atol=1e-4)


@settings(max_examples=n_examples(20))
@given(seed=st.integers(0, 2**31), sharpness=st.sampled_from([1.0, 3.0]), terminator=st.sampled_from(["none", "eog"]))
def test_a_search_that_fills_nothing_up_evaluates_what_the_proof_needs(seed, sharpness, terminator):
    """These are the nodes that are at least as probable as the best path, and the path of greedy decoding."""
    case = Case(list(product(range(2, 7), repeat=3)), terminator, "joint", seed, sharpness, with_prior=False)
    (outcome, *_, found), (filled, *_) = (case.search(fills=fills, width=1) for fills in (False, True))
    edges = Driver(case.model, [WIDE]).run(ScoreTask(PROMPT, case.trie, case.needs)).edge_logp
    prefix = case.trie.accumulate(np.append(0.0, edges[1:]))
    needed = case.needs.row & (prefix >= np.nanmax(found.logp.low) - 1e-6)
    node = int(case.trie.path_node[found.greedy_path])
    while node != ROOT:
        needed[node] = case.needs.row[node]
        node = int(case.trie.parent[node])
    assert outcome.n_evaluated == np.count_nonzero(needed) <= filled.n_evaluated


@pytest.mark.short("0-*")
@pytest.mark.parametrize("rule", ["joint", "token_mean"])
@pytest.mark.parametrize("part", range(4))
def test_an_end_counts_once_whatever_is_read_below_it(part, rule):
    """Waves read nodes of probability 0 too, also below ends that are finished: those are not among the first k twice."""
    for seed in range(15 * part, 15 * part + 15):
        rng = np.random.default_rng(seed)
        paths = [tuple(rng.integers(2, 5, size=rng.integers(1, 7)).tolist()) for _ in range(25)]
        case = Case(paths, "unless-continued", rule, seed, sharpness=2.0, with_prior=False, zeros=True)
        floor = int(case.trie.depth[case.needs.row].max())
        found = case.search([Capacity(1, floor, 1)], k=3, width=1)
        assert found[0].proved
        check_against_exhaustive(case, found, 3)


def search_with_bounds_too_low(case, by):
    """A search whose bounds were tampered with."""
    task = BestFirst(PROMPT, case.trie, case.needs, "none", objective=case.objective(), search=SearchParams(width=1))
    bounds = task._frontier.bounds
    bounds._offset = bounds._cautious = bounds._offset - by
    outcome = Driver(case.model, [WIDE]).run(task)
    found = path_scores(case.trie, outcome.evaluation, "none")
    return outcome, None, case.scores(found.logp.low), case.scores(found.logp.high), found


def test_a_planted_wrong_bound_is_caught():
    """With a bound 50 nats too low the search proves too much, and the comparison says so on some of forty sets."""
    caught = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        paths = [tuple(rng.integers(2, 7, size=4).tolist()) for _ in range(25)]
        case = Case(paths, "none", "joint", seed, 1.0, with_prior=False)
        found = search_with_bounds_too_low(case, 50.0)
        assert found[0].proved
        try:
            check_against_exhaustive(case, found, 1)
        except AssertionError:
            caught += 1
    assert caught > 5


def test_means_are_bounded_by_the_longest_path_below():
    """A prefix that looks bad at once can have the best mean in the end: eight sure tokens after one of probability .18."""
    vocabulary = make_vocabulary()
    long, short = spell(vocabulary, ["a"] * 9), spell(vocabulary, ["b"])
    sure, start = [0.0] * 26, [-20.0] * 26
    sure[3], start[3], start[4] = 10.0, -1.5, 0.0
    rows = {(*PROMPT.tolist(), *long[:n]): sure for n in range(1, 9)}
    model = HashModel(1, planted={tuple(PROMPT.tolist()): start, **rows})
    trie = TokenTrie.from_sequences([long, short])
    lengths = Lengths.of(["a" * 9, "b"], trie)
    objective = objective_of(ScoringRule("token_mean"), trie, lengths)
    outcome = Driver(model, [WIDE]).run(
        BestFirst(PROMPT, trie, row_needs(trie, "none"), "none", objective=objective, search=SearchParams(width=1))
    )
    scores = score_choices(
        ScoringRule("token_mean"), path_scores(trie, outcome.evaluation, "none").logp.low[trie.path_of], lengths
    )
    assert outcome.proved
    assert np.argmax(scores) == 0
    # log .1824 + 8 log(e^10 / (e^10 + 25)) over nine tokens, against log .8176 over one
    assert scores == pytest.approx([(-1.7014 - 8 * 0.0011) / 9, -0.2014], abs=1e-3)


@pytest.mark.short("*-attention", "best-recurrent")
@pytest.mark.parametrize("kind", list(ModelKind))
@pytest.mark.parametrize("stop", ["best", "all"])
def test_rows_evaluated_again_are_counted(kind, stop):
    """In a small room paths are given up and evaluated again, best first and in waves: the cost says how many rows."""
    case = Case(flat_set(400, 6, 12), "none", "joint", 0, 0.0, with_prior=False)
    limits = Limits(nodes=30, sequences=8, rows_per_call=8, kind=kind, max_idle_rows=64)
    model = HashModel(case.seed, sharpness=case.sharpness, limits=limits)
    scheduler = Scheduler(model)
    task = BestFirst(
        PROMPT,
        case.trie,
        case.needs,
        case.terminator,
        objective=case.objective(),
        search=SearchParams(stop=stop, width=4, k=16),
    )
    job = Job(task)
    scheduler.submit(job)
    while not scheduler.idle:
        scheduler.step()
    outcome = job.future.result(timeout=0)
    assert job.cost.rows == model.evaluations.total()
    assert job.cost.rows_repeated == sum(n - 1 for n in model.evaluations.values())
    assert outcome.n_repeated > 0 or stop == "all"


@settings(max_examples=n_examples(40))
@given(case=cases(terminator="none", rule="token_mean", with_prior=False), log_heal=st.sampled_from([-0.1, -3.0, -9.0]))
def test_healed_bytes_count_in_means(case, log_heal):
    """What healing takes off moves means of different lengths differently, so the observed rows come first."""
    observe = [(0, np.array([4], dtype=np.int32))]
    needs = replace(case.needs, observe=tuple(observe))
    task = BestFirst(
        PROMPT,
        case.trie,
        needs,
        "none",
        objective=case.objective(),
        search=SearchParams(width=1),
        heal=lambda *_: Interval.point(log_heal),
    )
    outcome = Driver(case.model, [WIDE]).run(task)
    assert outcome.proved
    expected = case.scores(case.exhaustive()[1].logp.low - log_heal)
    scores = case.scores(path_scores(case.trie, outcome.evaluation, "none", log_heal).logp.low)
    path_of = case.trie.path_of.tolist()
    np.testing.assert_allclose(best(scores, path_of, 1), best(expected, path_of, 1), atol=CLOSE)


def test_observed_nodes_are_always_evaluated():
    """Even where no bound asks for them."""
    paths = [(2, 3, 4), (2, 4, 4), (5, 3), (5, 4)]
    case = Case(paths, "none", "joint", 3, 3.0, with_prior=False)
    for node in np.flatnonzero(case.trie.inner).tolist():
        needs = replace(case.needs, observe=((node, np.array([6], dtype=np.int32)),))
        task = BestFirst(
            PROMPT, case.trie, needs, "none", objective=plain_objective(case.trie), search=SearchParams(width=1)
        )
        outcome = Driver(case.model, [Capacity(1, 2, 1)]).run(task)
        assert outcome.evaluation.evaluated[node]
        assert np.isfinite(outcome.evaluation.observed.low).all()


def test_observed_nodes_are_evaluated_beyond_the_budget():
    """A budget of the root alone: the observed node and its ancestors are read, and nothing else."""
    case = Case([(2, 3, 4), (5, 3, 4)], "none", "joint", 3, 1.0, with_prior=False)
    needs = replace(case.needs, observe=((2, np.array([6], dtype=np.int32)),))
    search = SearchParams(budget_nodes=1)
    task = BestFirst(PROMPT, case.trie, needs, "none", objective=plain_objective(case.trie), search=search)
    driver = Driver(case.model, [WIDE])
    outcome = driver.run(task)
    assert list(driver.told) == [(*PROMPT, *prefix) for prefix in [(), (2,), (2, 3)]]
    assert not outcome.proved
    assert np.isfinite(outcome.open_mass)


def searched_by_hand(rows, paths, rule="joint", prior=None, **search):
    """A search of paths written as pieces on a table: outcome, driver and trie."""
    vocabulary = make_vocabulary()
    spelt = [spell(vocabulary, path) for path in paths]
    trie = TokenTrie.from_sequences(spelt)
    lengths = Lengths.of(["".join(path) for path in paths], trie)
    log_prior = None if prior is None else log_priors(prior, ["".join(path) for path in paths])
    objective = objective_of(ScoringRule(rule), trie, lengths, log_prior=log_prior)
    task = BestFirst(PROMPT, trie, row_needs(trie, "none"), "none", objective=objective, search=SearchParams(**search))
    driver = Driver(TableModel(rows, prompt=("<bos>", "a")), [WIDE])
    return driver.run(task), driver, trie


def test_after_the_budget_one_path_is_followed_to_its_end():
    """The prior excludes what greedy decoding picks, and `bstu` comes next: its three rows and none of the others'."""
    paths = ["a", "bstu", "cstu", "rstu"]
    rows = {(): {"a": 0.5, "b": 0.2, "c": 0.1, "r": 0.1}}
    _, driver, _ = searched_by_hand(rows, paths, prior=[0.0, 1.0, 1.0, 1.0], budget_nodes=1)
    b, s, t = spell(make_vocabulary(), "bst")
    assert list(driver.told) == [(*PROMPT, *prefix) for prefix in [(), (b,), (b, s), (b, s, t)]]


def test_nodes_without_a_choice_are_evaluated_in_one_call():
    """Below `b` there is one way, so its three rows take one call."""
    rows = {(): {"b": 0.9, "c": 0.01}, ("b",): {"s": 0.9}, ("b", "s"): {"t": 0.9}, ("b", "s", "t"): {"u": 0.9}}
    outcome, driver, _ = searched_by_hand(rows, ["bstu", "c"], width=1)
    assert outcome.proved
    assert driver.sizes == [3]


def test_open_means_weigh_what_their_paths_may_weigh_together():
    """Below `a` lie three paths of mean (log .3 - log 3) / 2 each: together more than one at the bound, (log .3) / 2."""
    rows = {(): {"b": 0.6, "a": 0.3}, ("a",): {"c": 1 / 3, "r": 1 / 3, "s": 1 / 3}}
    outcome, *_ = searched_by_hand(rows, ["b", "ac", "ar", "as"], rule="token_mean", budget_nodes=1)
    assert outcome.n_evaluated == 1
    assert outcome.log_open >= np.log(3) + (np.log(0.3) - np.log(3)) / 2


def flat_set(n, depth, vocabulary):
    rng = np.random.default_rng(n)
    return [tuple(rng.integers(2, vocabulary, size=rng.integers(1, depth + 1)).tolist()) for _ in range(n)]


@pytest.mark.parametrize("terminator", TERMINATORS)
@pytest.mark.parametrize("capacity", [Capacity(8, 40, 8), Capacity(64, 200, 64), Capacity(64, 4096, 4096)])
def test_a_set_that_the_model_knows_nothing_about_costs_at_most_a_fifth_more(terminator, capacity):
    """Uniform rows prune nothing: waves take over before rows are repeated in earnest."""
    case = Case(flat_set(400, 6, 12), terminator, "joint", 0, 0.0, with_prior=False)
    outcome, driver, *_ = case.search([capacity])
    assert driver.told.total() + driver.carried.total() <= 1.2 * outcome.n_required
    assert outcome.proved


def test_a_clear_winner_takes_few_calls_and_rows():
    """On a sharp model the winner of depth 6 is proved in at most twelve calls and a twentieth of the rows."""
    case = Case(flat_set(3000, 6, 26), "eog", "joint", 5, 4.0, with_prior=False)
    outcome, driver, scores, _, _ = case.search()
    depth = case.trie.depth[case.trie.path_node[case.trie.path_of[np.nanargmax(scores)]]]
    assert outcome.proved
    assert len(driver.sizes) <= 2 * depth + 2
    assert outcome.n_evaluated <= outcome.n_required / 20


def test_calls_are_filled_up_to_the_granule():
    """A call of nine rows costs what sixteen do: but for the last ones, which may find nothing more to ask, sizes are multiples of 8."""
    case = Case(flat_set(500, 5, 20), "none", "joint", 2, 2.0, with_prior=False)
    _, driver, *_ = case.search(width=5)
    assert all(size % 8 == 0 for size in driver.sizes)


@settings(max_examples=n_examples(30))
@given(case=cases(zeros=False), kind=st.sampled_from(list(ModelKind)))
def test_models_of_every_kind_give_the_same_winner(case, kind):
    """Through a real context tree, forking or not."""
    limits = Limits(nodes=400, sequences=200, rows_per_call=16, kind=kind, max_idle_rows=400)
    model = HashModel(case.seed, sharpness=case.sharpness, limits=limits)
    task = BestFirst(
        PROMPT, case.trie, case.needs, case.terminator, objective=case.objective(), search=SearchParams(width=3)
    )
    outcome = run(task, model)
    found = path_scores(case.trie, outcome.evaluation, case.terminator)
    upper = case.scores(found.logp.high)
    check_against_exhaustive(case, (outcome, None, case.scores(found.logp.low), upper, found), 1)


@settings(max_examples=n_examples(40))
@given(case=cases(), data=st.data())
def test_order_and_duplicates_of_choices_do_not_matter(case, data):
    """The same rows are asked for in the same order, and the same paths win."""
    plain = replace(case, with_prior=False, rule="joint")
    again = replace(plain, paths=data.draw(st.permutations([*plain.paths, *plain.paths[:3]])))
    first, second = plain.search(width=2), again.search(width=2)
    assert list(first[1].told) == list(second[1].told)
    np.testing.assert_array_equal(first[4].logp.low, second[4].logp.low)


def test_no_objective_where_no_prefix_bounds_what_is_below():
    """Rule batch, equal paths of different lengths, tokens that count in one choice only."""
    trie = TokenTrie.from_sequences([(2, 3), (2, 3), (4,)])
    lengths = Lengths.of(["ab", "abc", "d"], trie)
    assert objective_of(ScoringRule("batch"), trie, lengths, baseline=np.zeros(3)) is None
    assert objective_of(ScoringRule("char_mean"), trie, lengths) is None
    assert objective_of(ScoringRule(), trie, lengths, first_scored=np.array([0, 1, 0])) is None
    assert objective_of(ScoringRule("token_mean"), trie, lengths) is not None
    with pytest.raises(ChoiceError, match="choice 2"):
        objective_of(ScoringRule("pmi"), trie, lengths, baseline=np.array([-1.0, -1.0, -np.inf]))


@settings(max_examples=n_examples(40))
@given(case=cases(rule="joint", with_prior=False), skip=st.integers(0, 2), budget=st.integers(1, 30))
def test_tokens_that_do_not_count_are_left_out_of_bounds(case, skip, budget):
    """lm-eval's boundary: the first tokens of every path are free."""
    paths = [path for path in case.paths if len(path) > skip] or [(2, 3, 4)]
    case = replace(case, paths=paths)
    first = np.full(len(paths), skip, dtype=np.int32)
    objective = objective_of(ScoringRule(), case.trie, case.lengths, first_scored=first)
    outcome, *_ = case.search(objective=objective, width=2, budget_nodes=budget)
    exact = case.exhaustive()[1]
    whole = Driver(case.model, [WIDE]).run(ScoreTask(PROMPT, case.trie, case.needs))
    expected = exact.first_scored(case.trie, whole, first).low
    found = path_scores(case.trie, outcome.evaluation, case.terminator)
    logp = found.first_scored(case.trie, outcome.evaluation, first)
    assert (logp.high >= expected - CLOSE).all()
    if outcome.proved:
        np.testing.assert_allclose(np.nanmax(logp.low), expected.max(), atol=CLOSE)


@example(batches=[[(3, -1.0), (1, -1.0)], [(2, -1.0)], [(4, -0.5)]], closed={4})
@given(
    batches=st.lists(st.lists(st.tuples(st.integers(0, 30), st.sampled_from([-3.0, -2.0, -1.0, -np.inf])), max_size=5)),
    closed=st.sets(st.integers(0, 30)),
)
def test_open_nodes_come_by_bound_then_by_number(batches, closed):
    """However they were filed; closed ones and those of -inf never."""
    seen, marked = set(), np.zeros(31, dtype=np.bool_)
    queue = OpenList(marked)
    expected = []
    for batch in batches:
        fresh = [(node, bound) for node, bound in dict(batch).items() if node not in seen]
        seen.update(node for node, _ in fresh)
        expected += fresh
        nodes, bounds = np.array([n for n, _ in fresh], dtype=np.int32), np.array([b for _, b in fresh])
        queue.add(RowChildren(ROOT, 0.0, nodes, bounds, bounds))
    marked[list(closed)] = True
    popped = []
    while queue.best() > -np.inf:
        entry = queue.pop()
        popped.append((entry.token, entry.bound))
    wanted = sorted((-bound, node) for node, bound in expected if node not in closed and bound > -np.inf)
    assert popped == [(node, -bound) for bound, node in wanted]


def test_steps_out_of_order_raise():
    """Asking before telling, a wrong count, a result too early, a room below the floor."""
    case = Case([(2, 3), (4, 5, 6)], "none", "joint", 1, 1.0, with_prior=False)
    task = BestFirst(PROMPT, case.trie, case.needs, "none", objective=case.objective(), search=SearchParams())
    row = case.model.row(PROMPT)
    with pytest.raises(ProtocolError, match="called again"):
        task.ask(WIDE)
    with pytest.raises(ProtocolError, match="got 2 rows"):
        task.tell(DenseRows(np.stack([row, row])))
    with pytest.raises(ProtocolError, match="no result"):
        task.result()
    task.tell(DenseRows(row[None]))
    with pytest.raises(ProtocolError, match="no row is expected"):
        task.tell(DenseRows(row[None]))
    with pytest.raises(ProtocolError, match="below the floor"):
        task.ask(Capacity(1, 1, 1))


def test_real_weights_choose_as_exhaustive_scoring_does(weights, test_data):
    """640 lemmas and a full stop on a trained model: the same winner, from under a tenth of the rows."""
    options = LlamaOptions(n_threads=1)
    path = weights("stories260K.gguf")
    lemmas = [*test_data("labels/wordnet_lemmas.txt").read_text(encoding="utf-8").splitlines()[::200], "ball"]
    with closing(open_model(path, options)) as model:
        prompt = PromptText(np.array([model.vocabulary.bos]), b"Lily and her mom went to the park to play with a")
        encoded = encode_choices(model.vocabulary, prompt, [f" {lemma}".encode() for lemma in lemmas], following=b".")
        trie = TokenTrie.from_flat(encoded.tokens, encoded.offsets)
        needs = row_needs(trie, "text")
        exhaustive = run(ScoreTask(encoded.context, trie, needs), model)
        searched = run(
            BestFirst(encoded.context, trie, needs, "text", objective=plain_objective(trie), search=SearchParams()),
            model,
        )
    expected = path_scores(trie, exhaustive, "text").logp.low
    found = path_scores(trie, searched.evaluation, "text").logp.low
    assert searched.proved
    assert np.nanargmax(found) == np.argmax(expected) == trie.path_of[-1]
    assert searched.n_evaluated < needs.n_rows / 10
