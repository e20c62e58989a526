"""Best first on an automaton: the best texts are those of an enumeration, whatever the widths, rooms and budgets."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, repeat
from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.rows import DenseRows
from selectrie.core.types import Capacity, Limits, ModelKind
from selectrie.decoding.automaton.automaton_search import AutomatonSearch
from selectrie.decoding.automaton.automaton_task import AutomatonSpec, FinishedPath, FinishedPaths, canonical_paths
from selectrie.decoding.automaton.exact_sampling import ExactSampleTask
from selectrie.decoding.search_state import OpenList, RowChildren
from selectrie.errors import OptionError, ProtocolError, TokenRangeError
from selectrie.grammar import Grammar
from selectrie.options import SearchParams
from selectrie.testing import FakeModel, HashModel, TableModel, make_vocabulary, spell
from selectrie.testing.oracles import run
from tests.support.n_examples import n_examples
from tests.support.small_automata import PROMPT, TINY, TableAutomaton, accepted, joint, mass, row_of
from tests.support.task_driver import Driver

CLOSE = 1e-5
"""Nats: rows are float32, paths add up a few of them."""


@st.composite
def automata(draw):
    """Up to four states over a few tokens; they may loop, and some lead nowhere."""
    n = draw(st.integers(1, 4))
    edges = [draw(st.dictionaries(st.integers(2, 7), st.integers(0, n - 1), max_size=3)) for _ in range(n)]
    ends = draw(st.sets(st.integers(0, n - 1), min_size=1))
    return TableAutomaton(edges, ends, flags=draw(st.booleans()))


def spec_of(*, most=3, **options):
    names = {"k", "stop", "mass", "budget_nodes", "width"}
    search = SearchParams(**{name: value for name, value in options.items() if name in names})
    rest = {name: value for name, value in options.items() if name not in names}
    return AutomatonSpec(TINY, max_tokens=most, search=search, **{"merge_equal_text": False, **rest})


def found_by(outcome):
    return {tuple(path.tokens.tolist()): path.logp for path in outcome.paths}


def best_of(model, automaton, k, *, most=3, accepts=lambda path: True, rule="joint"):
    """The k best accepted paths by enumeration: (score, path)."""
    paths = [path for path in accepted(automaton, most) if accepts(path)]
    scored = [(joint(model, path) / (1 if rule == "joint" else max(1, len(path))), path) for path in paths]
    return sorted(scored, key=lambda entry: -entry[0])[:k]


def assert_same(outcome, expected, k):
    """The same scores in the same places; equal ones may stand in either order."""
    scores = [path.score for path in outcome.paths[:k]]
    assert len(scores) == len(expected)
    assert scores == pytest.approx([score for score, _ in expected], abs=CLOSE)


@settings(max_examples=n_examples(20))
@given(
    automata(),
    st.integers(0, 99),
    st.integers(1, 6),
    st.sampled_from([1, 3, 16]),
    st.sampled_from(["joint", "token_mean"]),
)
def test_the_best_are_those_of_an_enumeration(automaton, seed, k, width, rule):
    """Finite or not, any width, for sums and means: the k best of all texts of at most three tokens, proved."""
    model = HashModel(seed, sharpness=2.0)
    outcome = run(AutomatonSearch(PROMPT, automaton, spec_of(k=k, width=width, rule=rule)), model)
    assert_same(outcome, best_of(model, automaton, k, rule=rule), k)
    assert outcome.proved
    everything = {path: joint(model, path) for path in accepted(automaton, 3)}
    assert all(logp == pytest.approx(everything[path], abs=CLOSE) for path, logp in found_by(outcome).items())


def ended(model, automaton, path):
    """Log-probability of a path and of no allowed token after it, each row on its own."""
    state = automaton.start()
    for token in path:
        state = automaton.advance(state, token)
    goes_on = sum(row_of(model, tuple(path))[token] for token in automaton.edges[state])
    return joint(model, path, eog=False) + log(1 - goes_on)


@settings(max_examples=20)
@given(automata(), st.integers(0, 99), st.integers(1, 4), st.sampled_from([1, 16]))
def test_texts_that_are_not_continued_are_those_of_an_enumeration(automaton, seed, k, width):
    """Their events exclude each other, so that all of them have at most probability 1; the k best are proved."""
    model = HashModel(seed, sharpness=2.0)
    everything = {path: ended(model, automaton, path) for path in accepted(automaton, 3)}
    if () in everything and not automaton.edges[automaton.start()]:
        return  # of probability 1, and refused
    spec = spec_of(k=k, width=width, terminator="unless-continued")
    outcome = run(AutomatonSearch(PROMPT, automaton, spec), model)
    expected = sorted(((logp, path) for path, logp in everything.items()), reverse=True)[:k]
    assert_same(outcome, expected, k)
    assert outcome.proved
    assert mass(everything.values()) <= 1 + CLOSE
    assert all(logp == pytest.approx(everything[path], abs=CLOSE) for path, logp in found_by(outcome).items())


def test_a_long_text_takes_one_filled_call_a_token():
    """A call takes more nodes than fill it only of paths nearly as probable as the best, so the nodes do not grow by a
    quarter with each token: a text of 60 tokens, of which each is nearly certain."""
    n, sure = 60, np.full(TINY.n_tokens, -7.0, dtype=np.float32)
    sure[3] = 0.0
    model = FakeModel(lambda path: sure, vocabulary=TINY, limits=HashModel(0).limits, name="sure")
    automaton = TableAutomaton([dict.fromkeys(range(2, 8), i + 1) for i in range(n)] + [{}], {n})
    search = AutomatonSearch(PROMPT, automaton, spec_of(most=n, budget_nodes=2_000, terminator="none"), fill_rows=8)
    outcome = run(search, model)
    assert outcome.proved
    assert outcome.paths[0].tokens.tolist() == [3] * n
    assert outcome.n_evaluated <= 8 * n


@settings(max_examples=n_examples(30))
@given(automata(), st.integers(0, 99), st.integers(1, 4), st.sampled_from(["joint", "token_mean"]))
def test_merged_texts_come_by_their_best_path(automaton, seed, k, rule):
    """With paths of one text as one text, the k best texts by their best paths, proved, each with the logp of that path alone."""
    model = HashModel(seed, sharpness=2.0)
    outcome = run(AutomatonSearch(PROMPT, automaton, spec_of(k=k, rule=rule, merge_equal_text=True)), model)
    best: dict[bytes, tuple[float, float]] = {}
    for score, path in best_of(model, automaton, None, rule=rule):
        best.setdefault(TINY.decode(path), (score, joint(model, path)))
    assert outcome.proved
    assert_same(outcome, list(best.values())[:k], k)
    assert len({path.data for path in outcome.paths}) == len(outcome.paths)
    for path in outcome.paths[:k]:
        assert (path.score, path.logp_path) == pytest.approx(best[path.data], abs=CLOSE)
        assert path.logp_path == pytest.approx(path.token_logp.sum() + path.logp_terminator, abs=1e-12)
        assert path.logp_path <= path.logp


def random_automaton(rng: random.Random) -> TableAutomaton:
    """As `automata`, drawn without a record of how."""
    n = rng.randrange(1, 5)
    edges = [{rng.randrange(2, 8): rng.randrange(n) for _ in range(rng.randrange(4))} for _ in range(n)]
    return TableAutomaton(edges, set(rng.sample(range(n), rng.randrange(1, n + 1))), flags=rng.random() < 0.5)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_exact_search_is_enumeration(part, record_property):
    """100 000 automata in parts: the k best, proved, and every path that a tokenizer refuses left out."""
    rng, n = random.Random(part), 5_000
    for _ in range(n):
        automaton, model = random_automaton(rng), HashModel(rng.randrange(10**6), sharpness=rng.choice((0.5, 2.0)))
        k, modulus = rng.randrange(1, 6), rng.randrange(1, 4)

        def is_own(path, modulus=modulus):
            return modulus == 1 or sum(path) % modulus != 0

        rule, width = rng.choice(("joint", "token_mean")), rng.choice((1, 3, 16))
        spec = spec_of(k=k, width=width, rule=rule, canonical=is_own)
        outcome = run(AutomatonSearch(PROMPT, automaton, spec), model)
        assert_same(outcome, best_of(model, automaton, k, rule=rule, accepts=is_own), k)
        assert outcome.proved
    record_property("searches", n)


@settings(max_examples=n_examples(20))
@given(automata(), st.integers(0, 99), st.integers(1, 12))
def test_a_budget_leaves_true_bounds(automaton, seed, budget):
    """Stopped early: nothing that was not found scores more than the best bound, or weighs more than what is open."""
    model = HashModel(seed)
    outcome = run(AutomatonSearch(PROMPT, automaton, spec_of(k=2, budget_nodes=budget)), model)
    assert outcome.n_evaluated <= budget
    missing = [joint(model, path) for path in accepted(automaton, 3) if path not in found_by(outcome)]
    assert (
        max(missing, default=-inf)
        <= max(outcome.best_open, outcome.paths[1].score if len(outcome.paths) > 1 else -inf) + CLOSE
    )
    assert mass(missing) <= outcome.open_mass + 1e-7
    if len(outcome.paths) < 2:
        assert outcome.proved == (outcome.best_open == -inf)
    if outcome.proved:
        assert_same(outcome, best_of(model, automaton, 2), 2)


@settings(max_examples=n_examples(30))
@given(automata(), st.integers(0, 99), st.integers(1, 3), st.sampled_from(["joint", "token_mean"]))
def test_nothing_left_out_scores_more_than_the_open_bound(automaton, seed, k, rule):
    """Texts that ended below the k-th best and were refused too: what is given is ahead of all others by `bound_gap`."""
    model = HashModel(seed)
    outcome = run(AutomatonSearch(PROMPT, automaton, spec_of(k=k, rule=rule)), model)
    given_paths = found_by(outcome)
    missing = [
        score for score, path in best_of(model, automaton, None, rule=rule) if path not in given_paths and score > -inf
    ]
    assert max(missing, default=-inf) <= outcome.best_open + CLOSE


@settings(max_examples=n_examples(60))
@given(
    automata(),
    st.integers(0, 99),
    st.sampled_from([0.5, 0.9, 1.0]),
    st.tuples(st.integers(1, 3), st.booleans()),
    st.sampled_from([1, 2, 512]),
)
def test_the_open_mass_holds_what_was_not_found(automaton, seed, share, refused, n_rows):
    """With `stop="mass"` all that was finished is given, the rest weighs no more than `open_mass`, and the share is reached;
    also where greedy decoding goes through tokens that may not be neighbours, and where a call takes few rows."""
    modulus, early = refused

    def may_join(left, right):
        return modulus == 1 or (left + right) % modulus != 0

    def accepts(path):
        return all(may_join(left, right) for left, right in pairwise(path))

    model = HashModel(seed, limits=replace(HashModel(seed).limits, rows_per_call=n_rows))
    spec = spec_of(stop="mass", mass=share, canonical=accepts, may_be_adjacent=may_join if early else None)
    outcome = run(AutomatonSearch(PROMPT, automaton, spec), model)
    everything = {path: joint(model, path) for path in accepted(automaton, 3) if accepts(path)}
    missing = mass(logp for path, logp in everything.items() if path not in found_by(outcome))
    assert missing <= outcome.open_mass * (1 + CLOSE)
    assert mass(found_by(outcome).values()) >= share * mass(everything.values()) - 1e-7


def test_greedy_steps_that_the_tokenizer_would_not_make_hide_nothing():
    """Greedy decoding writes `c`+`at`, which may not be neighbours: what they had in the queue was taken out and refused, and
    what they spell stands for nothing else that is open."""
    cat, c, at, bat, t = spell(TINY, ("cat", "c", "at", "bat", "t"))
    limits = replace(HashModel(0).limits, rows_per_call=1)
    table = {(): {"c": 0.55, "cat": 0.05, "bat": 0.3, "t": 0.1}, ("c",): {"at": 0.9, "<eos>": 0.0}}
    ends = {path: {"<eos>": 1.0} for path in [("c", "at"), ("cat",), ("bat",), ("t",)]}
    model = TableModel({**table, **ends}, prompt=("<bos>", "a"), limits=limits)
    automaton = TableAutomaton([{c: 1, cat: 2, bat: 2, t: 2}, {at: 2}, {}], {2})
    spec = spec_of(
        stop="mass",
        mass=1.0,
        canonical=lambda path: path != [c, at],
        may_be_adjacent=lambda left, right: (left, right) != (c, at),
    )
    outcome = run(AutomatonSearch(PROMPT, automaton, spec), model)
    assert {path.data: round(exp(path.logp), 3) for path in outcome.paths} == {b"bat": 0.3, b"t": 0.1, b"cat": 0.05}


def test_what_was_read_early_hides_nothing():
    """Greedy decoding goes a way of nearly all probability that hardly ends. The other text has less than the rounding of that
    way, and yet all but nothing of the mass."""
    a, b = spell(TINY, ("a", "b"))
    limits = replace(HashModel(0).limits, rows_per_call=1)
    peak, no_end = np.zeros(TINY.n_tokens), np.zeros(TINY.n_tokens)
    peak[a], no_end[TINY.eog] = 45.0, -80.0
    path = tuple(PROMPT.tolist())
    model = HashModel(0, planted={path: peak, (*path, a): no_end, (*path, b): np.zeros(TINY.n_tokens)}, limits=limits)
    automaton = TableAutomaton([{a: 1, b: 1}, {}], {1})
    outcome = run(AutomatonSearch(PROMPT, automaton, spec_of(stop="mass", mass=0.5)), model)
    assert {path.data for path in outcome.paths} == {b"a", b"b"}


@pytest.mark.parametrize("canonical_only", [False, True])
def test_equal_bounds_do_not_take_turns_for_ever(canonical_only):
    """Where a call takes one row and one path is held at a time, a node that waits for its path keeps its turn."""
    wide = TableAutomaton([{2: depth + 1, 3: depth + 1} for depth in range(5)] + [{}], {5})
    room = Capacity(rows=1, nodes=5, sequences=1)
    driver = Driver(HashModel(1, sharpness=0.0), [room])
    driver.rooms = repeat(room, 2000)
    spec = spec_of(most=5, k=3, canonical=(lambda path: path[-1] == 3) if canonical_only else None)
    outcome = driver.run(AutomatonSearch(PROMPT, wide, spec))
    assert (len(outcome.paths), outcome.proved) == (16 if canonical_only else 32, True)


@settings(max_examples=n_examples(20))
@given(
    automata(),
    st.integers(0, 99),
    st.lists(st.tuples(st.integers(1, 5), st.integers(4, 9), st.integers(1, 4)), min_size=1, max_size=3),
)
def test_small_rooms_change_nothing(automaton, seed, rooms):
    """Whatever room there is, every ask fits and the answer is the same."""
    model = HashModel(seed)
    outcome = Driver(model, [Capacity(*capacity) for capacity in rooms]).run(
        AutomatonSearch(PROMPT, automaton, spec_of(k=2, width=4))
    )
    assert_same(outcome, best_of(model, automaton, 2), 2)


@settings(max_examples=n_examples(20))
@given(automata(), st.integers(0, 99), st.integers(1, 40))
def test_what_asks_are_filled_up_to_changes_no_answer(automaton, seed, fill_rows):
    """Asks of any width find the same texts, with the same proof."""
    model = HashModel(seed)
    outcome = run(AutomatonSearch(PROMPT, automaton, spec_of(k=2, width=4), fill_rows=fill_rows), model)
    assert_same(outcome, best_of(model, automaton, 2), 2)


@pytest.mark.parametrize("fill_rows", [1, 3, 8, 20])
def test_the_width_of_asks_is_a_multiple(fill_rows):
    """Where enough is open, asks have as many rows as the width, rounded up to a multiple."""
    wide = TableAutomaton([dict.fromkeys(range(2, 12), depth + 1) for depth in range(6)] + [{}], {6})
    driver = Driver(HashModel(2, sharpness=0.0), [Capacity(512, 4096, 256)])
    driver.run(AutomatonSearch(PROMPT, wide, spec_of(most=6, width=4, budget_nodes=200), fill_rows=fill_rows))
    widths = driver.sizes[2:5]
    assert len(widths) == 3
    assert all(n >= 4 and n % fill_rows == 0 for n in widths)


@settings(max_examples=n_examples(20))
@given(automata(), st.integers(0, 99), st.integers(2, 5))
def test_only_own_paths_count(automaton, seed, modulus):
    """With a test of finished paths, the best of those that pass; neighbours that never pass may be left out early."""
    model = HashModel(seed)

    def accepts(path):
        return all((left + right) % modulus for left, right in pairwise(path))

    expected = best_of(model, automaton, 3, accepts=accepts)
    plain = run(AutomatonSearch(PROMPT, automaton, spec_of(k=3, canonical=accepts)), model)
    early = run(
        AutomatonSearch(
            PROMPT,
            automaton,
            spec_of(k=3, canonical=accepts, may_be_adjacent=lambda left, right: bool((left + right) % modulus)),
        ),
        model,
    )
    assert plain.strings
    for outcome in (plain, early):
        assert_same(outcome, expected, 3)
        assert outcome.proved


@settings(max_examples=n_examples(40))
@given(automata(), st.integers(0, 20), st.sampled_from([(32, 64, 8), (4, 6, 2), (1, 3, 1)]))
def test_rows_that_were_cut_are_read_again(automaton, seed, capacity):
    """With one child kept a row, the others come from reading it again, and the answer is the same in any room."""
    rows, nodes, sequences = capacity
    limits = Limits(
        nodes=len(PROMPT) + nodes, sequences=sequences, rows_per_call=rows, kind=ModelKind.ATTENTION, max_idle_rows=64
    )
    model = HashModel(seed, sharpness=0.2, limits=limits)
    task = AutomatonSearch(PROMPT, automaton, spec_of(k=5))
    task._open = OpenList(max_kept=1)
    assert_same(run(task, model), best_of(model, automaton, 5), 5)


@settings(max_examples=n_examples(20))
@given(automata(), st.integers(0, 99))
def test_the_greedy_path_is_followed(automaton, seed):
    """Where it was followed to its end, it is what masked greedy decoding writes."""
    model = HashModel(seed, sharpness=2.0)
    outcome = run(AutomatonSearch(PROMPT, automaton, spec_of(stop="all")), model)
    path, state = (), 0
    while True:
        p = row_of(model, path)
        end = sum(p[int(e)] for e in TINY.eog) if automaton.can_end(state) else -1.0
        ids = sorted(automaton.edges[state])
        best = max(ids, key=lambda token: (p[token], -token), default=None)
        if len(path) == 3 or best is None or end >= p[best]:
            break
        path, state = (*path, best), automaton.advance(state, best)
    assert tuple(outcome.greedy.tolist()) == path
    if outcome.greedy_ended:
        assert automaton.can_end(state)


def test_what_came_too_late_counts_as_open():
    """Of `""`, `b` and `bb` only the first is given; that `b` ends as a text is part of what the others may hold."""
    loop = TableAutomaton([{4: 0}], {0})
    outcome = run(AutomatonSearch(PROMPT, loop, spec_of(most=2)), HashModel(1, sharpness=0.0))
    assert [len(path.tokens) for path in outcome.paths] == [0]
    n = TINY.n_tokens
    assert outcome.open_mass >= n**-2 + n**-3 - 1e-9


@pytest.mark.parametrize("budget", [7, 9])
def test_a_budget_finds_the_greedy_text_first(budget):
    """Every path has six tokens of ten and the frontier never gets so deep: what a path still needs is kept for greedy."""
    wide = TableAutomaton([dict.fromkeys(range(2, 12), depth + 1) for depth in range(6)] + [{}], {6})
    outcome = run(AutomatonSearch(PROMPT, wide, spec_of(most=6, budget_nodes=budget)), HashModel(2, sharpness=0.1))
    assert [path.tokens.tolist() for path in outcome.paths] == [outcome.greedy.tolist()]
    assert (outcome.greedy_ended, outcome.proved, outcome.n_evaluated) == (True, False, budget)


def test_the_own_tokens_of_the_greedy_text_come_next():
    """Greedy writes `c`+`at`, which does not count; `cat`, the same text in tokens that do, is found within the budget."""
    model = TableModel({(): {"c": 0.6, "cat": 0.1, "bat": 0.3}, ("c",): {"at": 0.9}}, prompt=("<bos>", "a"))
    cat, c, at, bat = spell(TINY, ("cat", "c", "at", "bat"))
    automaton = TableAutomaton([{cat: 2, c: 1, bat: 3}, {at: 2}, {}, {bat: 2}], {2})
    spec = spec_of(
        canonical=lambda path: path == [cat],
        canonical_path=lambda path: [cat] if path == [c, at] else [],
        budget_nodes=5,
    )
    outcome = run(AutomatonSearch(PROMPT, automaton, spec), model)
    assert [path.data for path in outcome.paths] == [b"cat"]
    assert outcome.greedy.tolist() == [c, at]


def test_a_table_by_hand():
    """`cat` .5 x .2, `c`+`at` .3 x .9, `bat` .2 x .4: the best path is `c`+`at`; with equal texts added up `cat` has .37."""
    model = TableModel(
        {
            (): {"cat": 0.5, "c": 0.3, "bat": 0.2},
            ("cat",): {"<eos>": 0.2, "a": 0.8},
            ("c",): {"at": 1.0},
            ("c", "at"): {"<eos>": 0.9, "a": 0.1},
            ("bat",): {"<eos>": 0.4, "a": 0.6},
        },
        prompt=("<bos>", "a"),
    )
    cat, c, at, bat = spell(TINY, ("cat", "c", "at", "bat"))
    automaton = TableAutomaton([{cat: 2, c: 1, bat: 2}, {at: 2}, {}], {2})
    paths = run(AutomatonSearch(PROMPT, automaton, spec_of(k=3)), model).paths
    assert [(path.data, round(exp(path.logp), 4)) for path in paths] == [(b"cat", 0.27), (b"cat", 0.1), (b"bat", 0.08)]
    texts = run(AutomatonSearch(PROMPT, automaton, spec_of(k=2, merge_equal_text=True)), model).paths
    assert [(text.data, round(exp(text.logp), 4), text.n_paths) for text in texts] == [
        (b"cat", 0.37, 2),
        (b"bat", 0.08, 1),
    ]
    none = run(AutomatonSearch(PROMPT, automaton, spec_of(terminator="none")), model)
    assert [round(exp(path.logp), 4) for path in none.paths] == [0.5]
    assert (none.n_evaluated, none.proved) == (1, True)


def test_longer_texts_are_told():
    """Texts of more than `max_tokens` tokens are not looked at; `cut_bound` says what they could have scored."""
    model = HashModel(3, sharpness=0.0)
    loop = TableAutomaton([{3: 1}, {3: 1}], {1})
    outcome = run(AutomatonSearch(PROMPT, loop, spec_of(most=3, stop="all")), model)
    assert [len(path.tokens) for path in outcome.paths] == [1, 2, 3]
    assert outcome.cut_bound == pytest.approx(3 * -np.log(TINY.n_tokens), abs=CLOSE)
    assert outcome.cut_bound < outcome.paths[0].score


@pytest.mark.parametrize("healed", [b" c", b"ca", b" ca", b"a"])
def test_scores_are_conditional_on_the_healed_bytes(healed):
    """Every log-probability is that of the path less that of all token paths that spell the healed bytes."""
    model = HashModel(5)
    grammar = Grammar.from_gbnf('root ::= "t" | "r" | "at" "s"*')
    spec = spec_of(k=3, healed=healed, most=5)
    outcome = run(AutomatonSearch(PROMPT, grammar.automaton(TINY, prefix=healed), spec), model)
    spelt, level = 0.0, [((), healed, 1.0)]
    while level:
        path, left, p_path = level.pop()
        p = row_of(model, path)
        for token, piece in enumerate(TINY.pieces):
            if piece and piece.startswith(left):
                spelt += p_path * p[token]
            elif piece and left.startswith(piece):
                level.append(((*path, token), left[len(piece) :], p_path * p[token]))
    assert outcome.heal.low == pytest.approx(np.log(spelt), abs=CLOSE)
    assert outcome.heal.width <= 1e-6
    for path in outcome.paths:
        assert path.logp == pytest.approx(joint(model, path.tokens.tolist()) - np.log(spelt), abs=CLOSE)
        assert grammar.accepts(path.data)
    expected = sorted(
        (joint(model, path) for path in accepted(grammar.automaton(TINY, prefix=healed), 5)), reverse=True
    )
    assert [path.logp + np.log(spelt) for path in outcome.paths[:3]] == pytest.approx(expected[:3], abs=CLOSE)


def test_healed_bytes_that_the_model_does_not_expect_are_followed_to_their_end():
    """Twenty letters have one path, longer than the rows that are read for their probability otherwise."""
    vocabulary, healed = make_vocabulary([b"a", b"b"]), b"a" * 20
    model = HashModel(3, vocabulary=vocabulary)
    automaton = Grammar.from_regex("[ab]{1,4}").automaton(vocabulary, prefix=healed)
    spec = AutomatonSpec(
        vocabulary, max_tokens=4, terminator="none", search=SearchParams(budget_nodes=400), healed=healed
    )
    outcome = run(AutomatonSearch(PROMPT, automaton, spec), model)
    letters = spell(vocabulary, "a" * 20)
    logp = sum(np.log(row_of(model, tuple(letters[:i]))[letter]) for i, letter in enumerate(letters))
    assert outcome.heal.low == pytest.approx(logp, abs=CLOSE)
    assert outcome.heal.is_known
    assert {len(path.data) for path in outcome.paths} == {1}
    drawn = run(ExactSampleTask(PROMPT, automaton, spec, n=2, seed=1), model)
    assert drawn.heal.low == outcome.heal.low
    assert 0 < drawn.mass.low <= drawn.mass.high <= 1


def test_rows_of_the_healed_bytes_take_nothing_off_the_open_mass():
    """The row after ` ` only says how probable ` c` is: no text begins so, and what ` car` holds stays open."""
    model = TableModel(
        {(): {" cat": 0.4, " car": 0.2, " ": 0.3}, (" cat",): {"<eos>": 0.9}, (" car",): {"<eos>": 0.5}},
        prompt=("<bos>", "a"),
    )
    cat, car = spell(TINY, (" cat", " car"))
    outcome = run(AutomatonSearch(PROMPT, TableAutomaton([{cat: 1, car: 1}, {}], {1}), spec_of(healed=b" c")), model)
    assert [path.data for path in outcome.paths] == [b"at"]
    assert outcome.heal.low < log(0.7)
    assert outcome.open_mass >= 0.2 * 0.5 / exp(outcome.heal.low)


def test_incumbents_are_told_as_they_improve():
    """Each text that `on_found` hears of is better than the one before, and the last is the winner."""
    told = []
    automaton = TableAutomaton([dict.fromkeys(range(2, 20), 0)], {0})
    task = AutomatonSearch(PROMPT, automaton, spec_of(width=1), on_found=told.append)
    outcome = run(task, HashModel(8, sharpness=2.0))
    scores = [path.score for path in told]
    assert scores == sorted(scores)
    assert told[-1] is outcome.paths[0]


def test_a_mistake_is_refused():
    """Wrong prompts, specs, and asks out of turn are named before anything changes."""
    automaton = TableAutomaton([{3: 0}], {0})
    with pytest.raises(ProtocolError, match="at least one token"):
        AutomatonSearch(PROMPT[:0], automaton, spec_of())
    with pytest.raises(TokenRangeError):
        AutomatonSearch(np.array([99], dtype=np.int32), automaton, spec_of())
    with pytest.raises(OptionError, match="empty text"):
        AutomatonSearch(PROMPT, automaton, spec_of(terminator="none"))
    with pytest.raises(OptionError, match="end-of-generation"):
        AutomatonSpec(replace(TINY, eog=np.empty(0, dtype=np.int32)))
    task = AutomatonSearch(PROMPT, automaton, spec_of())
    with pytest.raises(ProtocolError, match="called again"):
        task.ask(Capacity(8, 8, 8))
    with pytest.raises(ProtocolError, match="got 0 rows"):
        task.tell(DenseRows(np.empty((0, TINY.n_tokens), dtype=np.float32)))
    with pytest.raises(ProtocolError, match="no result"):
        task.result()


def test_nothing_to_find_is_told():
    """An automaton that ends nowhere within the limit: nothing found, nothing open."""
    outcome = run(AutomatonSearch(PROMPT, TableAutomaton([{3: 1}, {}], set()), spec_of()), HashModel(0))
    assert (outcome.paths, outcome.proved, outcome.n_dead_ends) == ((), True, 1)


@given(st.lists(st.floats(-9, -0.1), min_size=1, max_size=12), st.integers(1, 3), st.floats(-6, -0.1))
def test_children_come_out_best_first(logp, max_kept, at_least):
    """All that reach the limit, by probability, the cut ones as one rest; what was dropped is counted."""
    queue = OpenList(max_kept=max_kept)
    values = np.array(logp)
    ids = np.arange(len(values), dtype=np.int32)
    queue.add(RowChildren(1, 0.0, ids, values, values), at_least)
    out = []
    while queue.best() > -inf:
        found = queue.pop()
        if found.rest is None:
            out.append(found.logp)
        else:
            queue.add(RowChildren(1, 0.0, ids, values, values, found.rest), at_least)
    assert out == sorted((value for value in logp if value >= at_least), reverse=True)
    dropped = [value for value in logp if value < at_least]
    assert queue.open_mass() == pytest.approx(mass(dropped))
    assert queue.dropped_best == max(dropped, default=-inf)


def test_a_node_read_early_weighs_nothing():
    """What lies below it is counted by its children; the others keep their weight to the last bit, whatever it is."""
    queue = OpenList()
    values = np.log([0.9, 1e-30])
    queue.add(RowChildren(0, 0.0, np.array([4, 7], dtype=np.int32), values, values))
    queue.discount(5, 0, 4)
    assert queue.open_mass() == pytest.approx(1e-30)
    assert queue.pop().token == 4
    queue.put_back(5, log(0.9), log(0.9))
    assert queue.open_mass() == pytest.approx(0.9)
    queue.discount(5, 0, 4)
    assert queue.open_mass() == pytest.approx(1e-30)
    queue.discount(6, 3, 4)
    assert (queue.pop().node, queue.pop().token) == (5, 7)


def test_nodes_put_back_come_first_among_equals():
    """They keep their turn: the last one put back is the next one out."""
    queue = OpenList()
    queue.add(RowChildren(0, 0.0, np.array([4, 7], dtype=np.int32), np.zeros(2), np.array([-1.0, -2.0])))
    for node in (8, 9):
        queue.put_back(node, -1.0, -1.0)
    queue.put_back(10, -3.0, -3.0)
    out = [queue.pop() for _ in range(5)]
    assert [(entry.node, entry.token) for entry in out] == [(9, -1), (8, -1), (0, 4), (0, 7), (10, -1)]


def test_the_kth_counts_texts():
    """Two paths of one text are one where they are merged, and two where not."""

    def path(data, score):
        return FinishedPath(data, np.array([int(-score)], dtype=np.int32), np.array([score]), 0.0, score, score, score)

    for merges, kth in ((True, -3.0), (False, -2.0)):
        found = FinishedPaths(2, merges=merges)
        assert [found.add(path(b"x", -2.0)), found.add(path(b"x", -1.0)), found.add(path(b"y", -3.0))] == [
            True,
            True,
            False,
        ]
        assert found.kth() == kth


WORD_LISTS = st.builds(
    lambda words, endless: [*words, endless],
    st.lists(
        st.lists(st.sampled_from(["cat", "bat"]), min_size=2, max_size=3).map("".join),
        min_size=1,
        max_size=4,
        unique=True,
    ),
    st.sampled_from("su").map(lambda letter: letter * 9),
)
"""Words that can be spelled in many ways, their own paths of at most three tokens, and one that has more than six in any."""


def own_path(path):
    """What the tokenizer writes for the text of a path."""
    return TINY.tokenize(TINY.decode(path))


@settings(max_examples=n_examples(120))
@given(WORD_LISTS, st.integers(0, 9999), st.integers(4, 16), st.sampled_from(["eog", "none"]), st.integers(1, 3))
def test_a_budget_never_ends_with_nothing_where_texts_were_met(words, seed, budget, terminator, k):
    """A text met in other tokens than its own counts with its own, within `max_tokens` rows more, by the joint of its own path;
    every bound stays true."""
    model, automaton = HashModel(seed, sharpness=4.0), Grammar.from_choices(words).automaton(TINY)
    spec = spec_of(
        most=6,
        k=k,
        budget_nodes=budget,
        width=1,
        terminator=terminator,
        canonical=lambda path: list(path) == own_path(path),
        canonical_path=own_path,
    )
    outcome = run(AutomatonSearch(PROMPT, automaton, spec), model)
    assert outcome.n_evaluated <= budget + 6
    assert outcome.paths or not outcome.n_other
    joints = {word: joint(model, TINY.tokenize(word.encode()), eog=terminator == "eog") for word in words}
    for path in outcome.paths:
        assert path.tokens.tolist() == TINY.tokenize(path.data)
        assert path.logp == pytest.approx(joints[path.data.decode()], abs=CLOSE)
    given_texts = {path.data.decode() for path in outcome.paths}
    missing = [joints[word] for word in words[:-1] if word not in given_texts]
    kth = outcome.paths[k - 1].score if len(outcome.paths) >= k else -inf
    assert max(missing, default=-inf) <= max(outcome.best_open, kth) + CLOSE
    assert terminator == "none" or mass(missing) <= outcome.open_mass + 1e-7
    assert outcome.paths or outcome.n_evaluated <= budget


@pytest.mark.parametrize(("terminator", "n_more"), [("none", 0), ("eog", 1)])
def test_the_own_path_of_the_most_probable_text_is_evaluated_behind_the_budget(terminator, n_more):
    """Greedy decoding was broken off in `ssss…`, and `c`+`at` has ended in tokens that do not count, as `b`+`at` may have: `cat` is
    given with the probability of its own token. Where an end is part of it, that takes a row behind the budget."""
    model = TableModel(
        {
            (): {"s": 0.4, "c": 0.3, "b": 0.2, "cat": 0.0005, "bat": 0.001},
            ("c",): {"at": 0.9},
            ("b",): {"at": 0.9},
            **{("s",) * n: {"s": 0.9} for n in range(1, 8)},
        },
        prompt=("<bos>", "a"),
    )
    automaton = Grammar.from_choices(["cat", "bat", "s" * 9]).automaton(TINY)
    spec = spec_of(
        most=8,
        budget_nodes=11,
        width=1,
        terminator=terminator,
        canonical=lambda path: list(path) == own_path(path),
        canonical_path=own_path,
    )
    outcome = run(AutomatonSearch(PROMPT, automaton, spec), model)
    assert [path.data for path in outcome.paths] == [b"cat"]
    assert exp(float(outcome.paths[0].token_logp.sum())) == pytest.approx(0.0005)
    assert outcome.n_evaluated == 11 + n_more
    assert not outcome.proved


def test_only_paths_that_count_are_followed_behind_the_budget():
    """Own paths that are empty, too long, not of the automaton, known already, or not the tokenizer's after all are left out."""
    cat, c, at, bat, space = spell(TINY, ("cat", "c", "at", "bat", " "))
    automaton = TableAutomaton([{cat: 1, c: 2}, {}, {at: 1}], {1})
    own = {(1,): [], (2,): [cat] * 4, (3,): [bat], (4,): [c], (5,): [c, at], (6,): [cat], (7,): [cat], (8,): [space]}
    spec = spec_of(canonical=lambda path: path == [cat], canonical_path=lambda path: own[tuple(path)])
    assert list(canonical_paths(spec, automaton, [list(path) for path in own])) == [[cat]]
    assert not list(canonical_paths(spec_of(), automaton, [[c, at]]))
    behind = TableAutomaton(
        [{c: 1}, {cat: 2}, {cat: 3}, {cat: 4}, {}], {4}
    )  # what spells healed bytes alone is not counted
    longest = [c, cat, cat, cat]
    for healed, expected in ((b"c", [longest]), (b"", [])):
        spec = spec_of(canonical=lambda _: True, canonical_path=lambda path: path, healed=healed)
        assert list(canonical_paths(spec, behind, [longest])) == expected
