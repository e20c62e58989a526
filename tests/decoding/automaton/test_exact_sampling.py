"""Exact sampling: the law of what is drawn is the model's joint restricted to the automaton, and nothing else."""

from __future__ import annotations

from collections import Counter
from math import exp, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.numerics import uniform
from selectrie.core.rows import DenseRows
from selectrie.core.types import Capacity
from selectrie.decoding.automaton.automaton_task import AutomatonSpec
from selectrie.decoding.automaton.exact_sampling import END, REST, ExactSampleTask, KnownRow, RemainingMass
from selectrie.decoding.sampling.task import SampleSpec, SampleTask
from selectrie.errors import OptionError, ProtocolError
from selectrie.options import SamplingParams, SearchParams, StopParams
from selectrie.testing import HashModel, TableModel, spell
from selectrie.testing.fakes import FakeModel
from selectrie.testing.oracles import run
from tests.decoding.automaton.test_grammar_search import automata
from tests.support.n_examples import n_examples
from tests.support.small_automata import PROMPT, TINY, TableAutomaton, accepted, joint, mass
from tests.support.task_driver import Driver

CAT, C, AT, BAT, A = spell(TINY, ("cat", "c", "at", "bat", "a"))
SKEWED = TableModel(
    {
        (): {"cat": 0.9, "c": 0.06, "bat": 0.04},
        ("cat",): {"a": 0.99, "<eos>": 0.01},
        ("c",): {"at": 0.5, "a": 0.5},
        ("c", "at"): {"<eos>": 1.0},
        ("c", "a"): {"<eos>": 0.5, "a": 0.5},
        ("bat",): {"<eos>": 1.0},
    },
    prompt=("<bos>", "a"),
)
ANIMALS = TableAutomaton([{CAT: 1, C: 2, BAT: 1}, {}, {AT: 1, A: 1}], {1})
"""`cat` .009, `c at` .03, `c a` .015, `bat` .04. Token by token among those allowed, `cat` comes 9 times in 10."""
LAW = {(CAT,): 0.009, (C, AT): 0.03, (C, A): 0.015, (BAT,): 0.04}
RARE = 16.27
"""Chi-square of 3 degrees of freedom, exceeded by chance once in a thousand."""


def spec_of(**options):
    return AutomatonSpec(TINY, max_tokens=3, merge_equal_text=False, **options)


def draws(model, automaton, n, seed, *, max_kept=None, tolerance=0.0, **options):
    kept = {} if max_kept is None else {"max_kept": max_kept}
    return run(
        ExactSampleTask(PROMPT, automaton, spec_of(**options), n=n, seed=seed, tolerance=tolerance, **kept), model
    )


def paths_of(outcome):
    return [tuple(text.tokens.tolist()) for text in outcome.texts]


def chi_square(counts, law):
    """Pearson's statistic of counts against probabilities up to a factor."""
    n, total = sum(counts.values()), sum(law.values())
    assert set(counts) <= set(law)
    return sum((counts[path] - n * p / total) ** 2 / (n * p / total) for path, p in law.items())


@pytest.mark.short("7", "100")
@pytest.mark.parametrize("side_by_side", [1, 7, 100])
def test_the_law_is_the_joint(side_by_side):
    """Drawn alone, a few and many side by side, each from a fresh tree: 300 texts as probable as the joint says."""
    counts = Counter()
    for first in range(0, 300, side_by_side):
        counts.update(paths_of(draws(SKEWED, ANIMALS, side_by_side, 10_000 + first)))
    assert chi_square(counts, LAW) < RARE


def test_first_and_last_have_the_same_law():
    """Short texts are done sooner; still no place among those drawn together prefers them."""
    first, last = Counter(), Counter()
    for seed in range(0, 600, 5):
        outcome = paths_of(draws(SKEWED, ANIMALS, 5, seed))
        first[outcome[0]] += 1
        last[outcome[-1]] += 1
    assert chi_square(first, LAW) < RARE
    assert chi_square(last, LAW) < RARE


def test_neighbours_are_independent():
    """Two texts drawn side by side: the pairs are as probable as the products say."""
    pairs = Counter(tuple(paths_of(draws(SKEWED, ANIMALS, 2, seed))) for seed in range(0, 500, 2))
    law = {(one, other): p * q for one, p in LAW.items() for other, q in LAW.items()}
    assert chi_square(pairs, law) < 37.7  # 15 degrees of freedom, once in a thousand


def test_a_local_sampler_fails():
    """The same test refuses masking each row and drawing from what is left."""
    counts = Counter()
    for seed in range(100):
        spec = SampleSpec(
            PROMPT, TINY.pieces, TINY.eog, seed, SamplingParams.UNCHANGED, StopParams(max_tokens=4), automaton=ANIMALS
        )
        counts[tuple(token for token in run(SampleTask(spec), SKEWED).tokens.tolist() if token not in TINY.eog)] += 1
    assert chi_square(counts, LAW) > 10 * RARE


def test_rows_that_were_cut_keep_the_law():
    """With one token kept a row, all others are drawn by reading it again."""
    flat = TableModel({(): {"cat": 0.3, "c": 0.3, "bat": 0.4}, ("c",): {"at": 0.4, "a": 0.6}}, prompt=("<bos>", "a"))
    loop = TableAutomaton([{C: 1}, {AT: 2, A: 2, CAT: 2, BAT: 2}, {}], {2})
    law = {path: exp(joint(flat, path)) for path in accepted(loop, 3) if joint(flat, path) > -inf}
    counts = Counter()
    for seed in range(0, 400, 8):
        counts.update(paths_of(draws(flat, loop, 8, seed, max_kept=1)))
    assert chi_square(counts, law) < RARE


def test_only_own_paths_are_drawn():
    """Paths that a test refuses are removed, and the others keep their ratios."""
    counts = Counter()
    for seed in range(0, 300, 6):
        outcome = draws(SKEWED, ANIMALS, 6, seed, canonical=lambda path: path != [BAT])
        counts.update(paths_of(outcome))
        assert outcome.strings
        assert outcome.mass.low <= 0.054 + 1e-6
        assert outcome.mass.high >= 0.054 - 1e-6
    law = {path: p for path, p in LAW.items() if path != (BAT,)}
    assert chi_square(counts, law) < 13.82  # 2 degrees of freedom


@settings(max_examples=n_examples(20))
@given(automata(), st.integers(0, 50), st.integers(1, 4))
def test_the_mass_lies_between_its_bounds(automaton, seed, n):
    """Whatever the automaton: every text is accepted, its log-probability its own, and the bounds hold the whole mass."""
    model = HashModel(seed)
    everything = {path: joint(model, path) for path in accepted(automaton, 3)}
    outcome = draws(model, automaton, n, seed)
    assert outcome.is_empty == (not everything)
    assert outcome.mass.low - 1e-6 <= mass(everything.values()) <= outcome.mass.high + 1e-6
    assert outcome.mass.low <= outcome.estimate <= outcome.mass.high
    if everything:
        assert outcome.is_complete
        assert all(
            text.logp == pytest.approx(everything[tuple(text.tokens.tolist())], abs=1e-5) for text in outcome.texts
        )


@settings(max_examples=n_examples(20))
@given(
    automata(),
    st.integers(0, 50),
    st.lists(st.tuples(st.integers(1, 3), st.integers(3, 9), st.integers(1, 4)), min_size=1, max_size=3),
)
def test_the_room_changes_nothing(automaton, seed, rooms):
    """The same texts in any room; every ask fits."""
    model = HashModel(seed)
    task = ExactSampleTask(PROMPT, automaton, spec_of(), n=4, seed=seed)
    small = Driver(model, [Capacity(*capacity) for capacity in rooms]).run(task)
    wide = draws(model, automaton, 4, seed)
    if not wide.is_empty:
        assert paths_of(small) == paths_of(wide)


def test_a_budget_gives_no_sample():
    """Used up, it leaves places empty and says so: what was drawn until then prefers the short."""
    loop = TableAutomaton([dict.fromkeys(range(2, 20), 0)], {0})
    outcome = draws(HashModel(1), loop, 50, 1, search=SearchParams(budget_nodes=3))
    assert not outcome.is_complete
    assert outcome.n_evaluated <= 3
    assert None in outcome.texts


def test_walks_that_need_no_row_use_the_budget_up_too(monkeypatch):
    """Where every text is too long, nothing is left to ask for at the last tokens: the walks themselves are bounded."""
    monkeypatch.setattr("selectrie.decoding.automaton.exact_sampling.WALKS_A_NODE", 2)
    chain = TableAutomaton([{C: 1}, {AT: 2}, dict.fromkeys(range(2, 26), 3), {C: 4}, {}], {4})
    outcome = draws(HashModel(1), chain, 1, 1, search=SearchParams(budget_nodes=4))
    assert outcome.n_evaluated == 3  # and not the fourth: the walks ended it
    assert not outcome.is_complete
    assert not outcome.is_empty
    assert outcome.n_attempts == 2 * 4
    monkeypatch.setattr("selectrie.decoding.automaton.exact_sampling.WALKS_A_NODE", 1000)
    assert draws(HashModel(1), chain, 1, 1, search=SearchParams(budget_nodes=4)).is_empty


def test_the_first_number_of_a_seed_decides_the_first_step():
    """Without a rejection, draw t is number t of the seed: which of two tokens, then whether the text ends or goes on."""
    table = {(): {"cat": 0.5, "c": 0.5}, ("cat",): {"<eos>": 0.5, "a": 0.5}, ("cat", "a"): {"<eos>": 1.0}}
    table |= {("c",): table["cat",], ("c", "a"): table["cat", "a"]}
    automaton = TableAutomaton([dict.fromkeys((CAT, C), 1), {A: 2}, {}], {1, 2})
    for seed in range(16):
        first, second = uniform(seed, 0), uniform(seed, 1)
        expected = (min(CAT, C) if first < 0.5 else max(CAT, C), *([] if second < 0.5 else [A]))
        [path] = paths_of(draws(TableModel(table, prompt=("<bos>", "a")), automaton, 1, seed))
        assert path == expected


@settings(max_examples=n_examples(40))
@given(
    automata(),
    st.integers(0, 50),
    st.sampled_from([1, 2, 2048]),
    st.sampled_from(["none", "eog"]),
    st.sampled_from([None, 2, 3]),
)
def test_each_text_is_the_one_that_its_seed_draws_alone(automaton, seed, max_kept, terminator, modulus):
    """Texts drawn side by side share rows and nothing else: each is that of its own seed, bit for bit."""
    model = HashModel(seed, sharpness=1.0)
    options = {"max_kept": max_kept, "terminator": terminator}
    if modulus is not None:
        options["canonical"] = lambda path: sum(path) % modulus > 0
    together = draws(model, automaton, 7, seed, **options)
    for i, text in enumerate(together.texts):
        [alone] = draws(model, automaton, 1, seed + i, **options).texts
        assert (alone is None) == (text is None)
        if text is not None:
            assert (alone.tokens.tolist(), alone.logp) == (text.tokens.tolist(), text.logp)


@pytest.mark.short("3-*", "2048-0.01")
@pytest.mark.parametrize(("max_kept", "tolerance"), [(3, 0.01), (2048, 0.01), (2048, 0.05)])
def test_draws_that_are_not_close_are_those_of_every_layout(max_kept, tolerance):
    """With every log-probability moved by up to the tolerance, a text without a close draw stays what it was."""
    n_moved = n_certain = 0
    automaton = TableAutomaton([dict.fromkeys(range(2, 24), 1), dict.fromkeys(range(4, 26), 2), {}], {2})
    for seed in range(20):
        plain = HashModel(seed, sharpness=1.0)

        def moved(path, plain=plain, seed=seed):
            """Raw logits moved by half as much: what they are normalised by moves too."""
            rng = np.random.default_rng([seed, *path])
            return plain.row(path) + rng.uniform(-tolerance / 2, tolerance / 2, TINY.n_tokens).astype(np.float32)

        other = FakeModel(moved, vocabulary=plain.vocabulary, limits=plain.limits, name="moved")
        one, two = (
            draws(model, automaton, 30, 100 * seed, terminator="none", max_kept=max_kept, tolerance=tolerance)
            for model in (plain, other)
        )
        for before, after, close in zip(paths_of(one), paths_of(two), one.close_steps, strict=True):
            n_certain += not close
            n_moved += before != after
            assert before == after or close
    assert n_moved > 0
    assert n_certain > 100


def test_tokens_are_doubtful_where_they_may_change_places_with_the_last_one_kept():
    """By hand: of those within 0.1 nats of it, one is kept and one is not. None is where there is no tolerance, and where
    the last one kept is impossible, as all after it are then."""
    ids, p = np.arange(5, dtype=np.int32), np.array([0.4, 0.3, 0.1, 0.1, 0.05])
    assert KnownRow.of(ids, p, 0.05, max_kept=3, tolerance=0.05).doubtful == pytest.approx(0.2)
    assert KnownRow.of(ids, p, 0.05, max_kept=3).doubtful == 0
    assert KnownRow.of(ids, np.array([0.6, 0.4, 0, 0, 0]), 0.0, max_kept=3, tolerance=0.05).doubtful == 0


def test_ends_without_a_token():
    """With terminator "none" a text ends as soon as it may, and weighs its own tokens alone."""
    law = {(CAT,): 0.9, (C, AT): 0.03, (C, A): 0.03, (BAT,): 0.04}
    counts = Counter()
    for seed in range(0, 1000, 50):
        counts.update(paths_of(draws(SKEWED, ANIMALS, 50, seed, terminator="none")))
    assert chi_square(counts, law) < RARE


def test_a_mistake_is_refused():
    """Wrong numbers and calls out of turn are named."""
    with pytest.raises(OptionError, match="n"):
        ExactSampleTask(PROMPT, ANIMALS, spec_of(), n=0, seed=0)
    with pytest.raises(OptionError, match="seed"):
        ExactSampleTask(PROMPT, ANIMALS, spec_of(), n=2, seed=2**128 - 1)
    task = ExactSampleTask(PROMPT, ANIMALS, spec_of(), n=1, seed=0)
    with pytest.raises(ProtocolError, match="called again"):
        task.ask(Capacity(8, 8, 8))
    with pytest.raises(ProtocolError, match="got 0 rows"):
        task.tell(DenseRows(np.empty((0, TINY.n_tokens), dtype=np.float32)))
    with pytest.raises(ProtocolError, match="no result"):
        task.result()


def test_what_is_left_goes_up_to_the_root():
    """By hand: .3 and .5 allowed of which the second is read as .2, and an end of .1; removals add up on the way."""
    ids, p = np.array([2, 3, 4], dtype=np.int32), np.array([0.05, 0.1, 0.05])
    left = RemainingMass()
    left.read(0, KnownRow.of(np.array([7, 9], dtype=np.int32), np.array([0.3, 0.5]), 0.1))
    assert (left.left(0), left.token(0, 1), left.height(0)) == (pytest.approx(0.9), (9, 0.5), 1)
    left.set_parent(1, 0, 1)
    assert left.left(1) == 1
    left.read(1, KnownRow.of(ids, p, 0.0, max_kept=2))
    assert (left.left(1), left.left(0), left.n_kept(1)) == (pytest.approx(0.2), pytest.approx(0.5), 2)
    assert (left.height(1), left.height(0)) == (1, 2)
    assert [left.pick(1, x)[0] for x in (0.04, 0.12, 0.17)] == [0, 1, REST]
    assert left.pick(1, 0.12)[1:] == (pytest.approx(0.05), pytest.approx(0.15))
    place, *edges = left.pick_rest(1, ids, p, 2, 0.99)
    assert (left.token(1, place), edges) == ((4, 0.05), [0, 1])
    assert left.left(1) == pytest.approx(0.2)
    left.set_parent(2, 1, 1)
    left.remove(2)
    assert (left.left(1), left.left(0)) == (pytest.approx(0.1), pytest.approx(0.45))
    assert left.pick(0, 0.05) == (END, 0, 0.1)
    left.remove_end(0)
    assert left.left(0) == pytest.approx(0.35)
