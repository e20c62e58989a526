"""Bounds on the probability of a text over all its spellings: against enumeration, by hand, and on adversarial rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.rows import DenseRows
from selectrie.core.types import Capacity
from selectrie.decoding.spelling import (
    ROW_ERROR,
    ByteEvent,
    CloseBounds,
    Lattice,
    OpenPrefixes,
    SpellingSearch,
    SpellingSpec,
    total_gap,
)
from selectrie.errors import ProtocolError
from selectrie.testing import HashModel, TableModel, make_vocabulary, naive_joint, naive_spelled
from tests.support.bits import plain
from tests.support.n_examples import n_examples
from tests.support.spellings import PROMPT, WIDE, searched, spec_of, vocabularies

AB = st.binary(min_size=1, max_size=5).map(lambda data: bytes(b"ab"[byte % 2] for byte in data))
NARROW = [Capacity(1, 12, 3), Capacity(2, 14, 2), Capacity(3, 12, 1)]
EXACT = CloseBounds(1.0 + 1e-12)


def log(p):
    return math.log(p) if p > 0 else -np.inf


@given(vocabularies(), st.lists(AB, min_size=1, max_size=3), st.sampled_from([b"", b"a", b"ba"]), st.data())
def test_bounds_contain_the_enumerated_probability_after_every_row(vocabulary, texts, healed, data):
    """For both events, several texts at once and healed bytes; they never widen, and meet when nothing is left open."""
    ends, sharpness = data.draw(st.booleans()), data.draw(st.sampled_from([0.3, 1.0, 4.0]))
    model = HashModel(data.draw(st.integers(0, 10**6)), vocabulary=vocabulary, sharpness=sharpness)
    spec = spec_of(vocabulary, texts, data.draw(st.randoms()), healed=healed, ends=ends, goal=EXACT)
    outcome, driver = searched(model, spec, [Capacity(1, 64, 64)])
    truth = np.array([log(naive_spelled(model, PROMPT, one.text, ends=one.ends)) for one in spec.events])
    before = np.full(len(truth), -np.inf), np.zeros(len(truth))
    for low, high in [*driver.bounds, (outcome.bounds.as_read.low, outcome.bounds.as_read.high)]:
        assert (low <= truth).all()
        assert (truth <= high).all()
        assert (low >= before[0]).all()
        assert (high <= before[1]).all()
        before = low, high
    for event, tokens in spec.canonical:
        path = [*tokens.tolist(), 1] if ends else tokens.tolist()  # 1 is the end-of-generation token
        [canonical] = naive_joint(model, PROMPT, [path])
        assert outcome.canonical.low[event] <= canonical <= outcome.canonical.high[event]
    n_rows = 1 + max(len(one.text) for one in spec.events)
    assert total_gap(outcome.bounds.as_read) <= 2.1 * ROW_ERROR * n_rows * len(truth)


@given(vocabularies(), st.lists(AB, min_size=1, max_size=2), st.sampled_from([b"", b"a"]), st.data())
def test_the_result_does_not_depend_on_the_capacity(vocabulary, texts, healed, data):
    """Bounds and the number of rows read have the same bits in one-row asks over scarce memory as in large ones."""
    model = HashModel(data.draw(st.integers(0, 10**6)), vocabulary=vocabulary)
    spec = spec_of(
        vocabulary,
        texts,
        data.draw(st.randoms()),
        healed=healed,
        ends=data.draw(st.booleans()),
        budget_nodes=data.draw(st.integers(1, 12)),
    )
    [wide, narrow] = [searched(model, spec, rooms)[0] for rooms in (WIDE, NARROW)]
    assert plain(wide, without=["n_repeated"]) == plain(narrow, without=["n_repeated"])


def test_the_bounds_of_cat_by_hand():
    """The text cat is ca+t, c+at and cat: 0.2 + 0.4 * 0.5 + 0.1 * 0.5, of which the canonical `cat` has 0.2; each ends with 0.5.

    The model may also write `c` and something else (0.1 * 0.5), which spells no cat.
    """
    vocabulary = make_vocabulary([b"c", b"ca", b"cat", b"at", b"t", b"x"])
    half = {"<eos>": 0.5, "x": 0.5}
    table = {
        (): {"cat": 0.2, "ca": 0.4, "c": 0.1, "x": 0.3},
        ("ca",): {"t": 0.5, "x": 0.5},
        ("c",): {"at": 0.5, "x": 0.5},
        **dict.fromkeys([("cat",), ("ca", "t"), ("c", "at")], half),
    }
    model = TableModel(table, vocabulary=vocabulary)
    cat = (0, np.array([4], dtype=np.int32))
    spec = SpellingSpec(vocabulary, (ByteEvent(b"cat", ends=True),), (cat,), EXACT)
    outcome, driver = searched(model, spec)
    assert np.exp(driver.bounds[0]) == pytest.approx(np.array([[0.0], [1.0]]))  # the prompt's row says nothing yet
    assert np.exp(driver.bounds[1]) == pytest.approx(np.array([[0.1], [0.1 + 0.4 + 0.1]]), rel=1e-5)
    assert np.exp([outcome.bounds.as_read.low, outcome.bounds.as_read.high]) == pytest.approx(
        (0.2 + 0.2 + 0.05) * 0.5, rel=1e-5
    )
    assert np.exp([outcome.canonical.low, outcome.canonical.high]) == pytest.approx(0.1, rel=1e-5)
    assert outcome.n_evaluated == 1 + 1 + 2 + 2  # prompt; cat; c, ca; c+at, ca+t
    begins = replace(spec, events=(ByteEvent(b"ca", ends=False),), canonical=((0, np.array([3], dtype=np.int32)),))
    outcome, _ = searched(model, begins)
    # `at` overruns `ca`, so c+at counts.
    assert np.exp([outcome.bounds.as_read.low, outcome.bounds.as_read.high]) == pytest.approx(
        0.2 + 0.4 + 0.05, rel=1e-5
    )
    assert np.exp(outcome.canonical.low) == pytest.approx(0.4, rel=1e-5)


def test_a_text_that_cannot_be_spelled_has_probability_zero():
    """Also the empty text with an end is an event: it is the end itself."""
    vocabulary = make_vocabulary([b"a", b"b"])
    model = TableModel({(): {"a": 0.0, "b": 0.5, "<eos>": 0.25}}, vocabulary=vocabulary)
    canonical = ((0, np.array([2], dtype=np.int32)),)
    spec = SpellingSpec(
        vocabulary, (ByteEvent(b"a", ends=True), ByteEvent(b"", ends=True)), canonical, CloseBounds(1.01)
    )
    outcome, _ = searched(model, spec)
    assert outcome.bounds.as_read.low[0] == outcome.bounds.as_read.high[0] == -np.inf
    assert np.exp([outcome.bounds.as_read.low[1], outcome.bounds.as_read.high[1]]) == pytest.approx(0.25, rel=1e-5)
    assert outcome.is_enough


def test_tokens_that_end_a_generation_spell_nothing():
    """An end-of-generation token may have bytes (id 0 of RWKV); they are no part of a text."""
    vocabulary = replace(make_vocabulary([b"a", b"b", b"ab"]), eog=np.array([1, 4], dtype=np.int32))
    model = HashModel(3, vocabulary=vocabulary)
    spelled = np.array([2, 3], dtype=np.int32)
    spec = SpellingSpec(vocabulary, (ByteEvent(b"ab", ends=True),), ((0, spelled),), EXACT)
    outcome, driver = searched(model, spec)
    assert all(4 not in path for path in driver.told)
    truth = log(naive_spelled(model, PROMPT, b"ab", ends=True))
    assert outcome.bounds.as_read.low[0] <= truth <= outcome.bounds.as_read.high[0]
    with pytest.raises(ProtocolError, match="token 4 after node 0"):
        SpellingSearch(PROMPT, replace(spec, canonical=((0, np.array([4], dtype=np.int32)),)))


@given(st.integers(1, 40), st.data())
def test_a_budget_bounds_the_rows_beyond_the_canonical_spelling(budget, data):
    """The rows read are at most the budget, or those of the canonical spelling; the bounds hold all the same."""
    vocabulary = make_vocabulary([b"a", b"b", b"ab", b"ba", b"aa"])
    model = HashModel(data.draw(st.integers(0, 99)), vocabulary=vocabulary)
    spec = spec_of(vocabulary, [b"abaab"], data.draw(st.randoms()), goal=EXACT, budget_nodes=budget)
    outcome, driver = searched(model, spec)
    n_canonical = 1 + len(spec.canonical[0][1])
    assert outcome.n_evaluated == sum(driver.told.values()) <= max(budget, n_canonical)
    truth = log(naive_spelled(model, PROMPT, b"abaab", ends=True))
    assert outcome.bounds.as_read.low[0] <= truth <= outcome.bounds.as_read.high[0]
    assert outcome.is_enough == (total_gap(outcome.bounds.as_read) <= math.log(1.0 + 1e-12))


def test_prefixes_that_do_not_fit_the_context_stay_open():
    """A search of at most 2 tokens leaves longer spellings in the upper bound."""
    vocabulary = make_vocabulary([b"a", b"aaa"])
    model = HashModel(1, vocabulary=vocabulary)
    canonical = ((0, np.array([3, 2], dtype=np.int32)),)
    spec = SpellingSpec(vocabulary, (ByteEvent(b"aaaa", ends=True),), canonical, EXACT, max_depth=2)
    outcome, driver = searched(model, spec, [Capacity(4, 2, 2), Capacity(4, 2, 2)])
    truth = log(naive_spelled(model, PROMPT, b"aaaa", ends=True))
    assert max(map(len, driver.told)) == 1 + 2
    assert outcome.bounds.as_read.low[0] < truth < outcome.bounds.as_read.high[0]
    assert not outcome.is_enough


def test_the_rounding_of_every_row_of_a_prefix_is_in_its_bound():
    """Two prefixes of e**-1 after two rows, each wrong by half a nat: log(2) above -1 + 2 * 0.5."""
    vocabulary = make_vocabulary([b"a", b"b"])
    lattice = Lattice(vocabulary, [ByteEvent(b"ab", ends=True), ByteEvent(b"b", ends=True)])
    states = np.full(2, lattice.step(0).states[0], dtype=np.int32)
    prefixes = OpenPrefixes(states, states, states, np.array([2, 2]), np.array([-1.0, -1.0]))
    assert prefixes.log_mass(lattice, 0.5).tolist() == [math.log(2), -np.inf]


@settings(max_examples=n_examples(40))
@given(st.floats(-20, 20, width=32), st.floats(-25, 0, width=32), st.integers(1, 19))
def test_rounding_of_a_row_stays_below_its_bound(peak, tail, log2_size):
    """Even where every term of a log-sum-exp is rounded in the same direction."""
    logits = np.full((1, 1 << log2_size), np.float32(peak) + np.float32(tail), dtype=np.float32)
    logits[0, 0] = peak
    logp = DenseRows(logits).logp(0, np.array([0, 1]))
    exact = logits[0].astype(np.float64)
    normaliser = exact.max() + math.log(math.fsum(np.exp(exact - exact.max()).tolist()))
    assert np.abs(logp - (exact[:2] - normaliser)).max() < 0.7 * ROW_ERROR


def test_misuse_is_refused():
    """An empty prompt, no events, an event that every text is, a canonical spelling of something else, too little room."""
    vocabulary = make_vocabulary([b"a", b"b"])
    text = ByteEvent(b"ab", ends=True)
    spec = SpellingSpec(vocabulary, (text,), ((0, np.array([2, 3], dtype=np.int32)),), EXACT)
    with pytest.raises(ProtocolError, match="at least one token"):
        SpellingSearch(PROMPT[:0], spec)
    with pytest.raises(ProtocolError, match="at least one event"):
        Lattice(vocabulary, [])
    with pytest.raises(ProtocolError, match="every text begins with"):
        Lattice(vocabulary, [ByteEvent(b"", ends=False)])
    with pytest.raises(ProtocolError, match="spells something else"):
        SpellingSearch(PROMPT, replace(spec, canonical=((0, np.array([2], dtype=np.int32)),)))
    task = SpellingSearch(PROMPT, spec)
    task.tell(DenseRows(HashModel(1, vocabulary=vocabulary).row((0,))[None]))
    with pytest.raises(ProtocolError, match="below the floor"):
        task.ask(Capacity(1, 1, 1))


@pytest.mark.parametrize("ends", [True, False])
def test_a_lattice_has_a_state_for_each_prefix(ends):
    """`ab` and `abc`: after `ab` the longer one is alive, and the shorter one only where its end has still to come."""
    vocabulary = make_vocabulary([b"a", b"b", b"c", b"ab", b"bcx"])
    lattice = Lattice(vocabulary, [ByteEvent(b"abc", ends), ByteEvent(b"ab", ends), ByteEvent(b"abc", ends)])
    assert [event.text for event in lattice.events] == [b"ab", b"abc"]
    assert lattice.index_of == (1, 0, 1)
    root = lattice.step(0)
    assert [vocabulary.pieces[token] for token in root.tokens] == [b"a", b"ab"]
    after_ab = lattice.step(int(root.states[1]))
    assert after_ab.alive == (slice(0, 2) if ends else slice(1, 2))
    assert after_ab.ended == (0 if ends else -1)
    assert [vocabulary.pieces[token] for token in after_ab.tokens] == ([b"c"] if ends else [])
    after_a = lattice.step(int(root.states[0]))
    covering = [(lattice.events[event].text, ids.tolist()) for event, ids in after_a.covering]
    # `b` and `bcx` go on with b; `bcx` goes on with bc.
    assert covering == ([] if ends else [(b"ab", [3, 6]), (b"abc", [6])])
    assert lattice.max_tokens == (3 if ends else 2)
