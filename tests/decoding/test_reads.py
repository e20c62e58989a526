"""What a task says it will read is what it reads: rows that hold nothing else lead to the same asks and results."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from selectrie.core.partial_rows import SelectedRows
from selectrie.core.rows import DenseRows, Reads
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Capacity
from selectrie.decoding.automaton.automaton_search import AutomatonSearch
from selectrie.decoding.automaton.automaton_task import AutomatonSpec
from selectrie.decoding.automaton.exact_sampling import ExactSampleTask
from selectrie.decoding.beam.expansion import BeamSpec
from selectrie.decoding.beam.search import BeamTask
from selectrie.decoding.sampling.task import GuessTask, SampleSpec, SampleTask
from selectrie.decoding.scoring.evaluation import RowNeeds, row_needs
from selectrie.decoding.spelling import SpellingSearch
from selectrie.decoding.trie.best_first import BestFirst
from selectrie.decoding.trie.exhaustive import PromptReads, PromptValues, ReadRows, ScoreTask, path_keys, scoring_nodes
from selectrie.errors import ProtocolError, SelectrieError, UnreadRowError
from selectrie.options import BeamSearchParams, SamplingParams, SearchParams, StopParams
from selectrie.testing import HashModel
from selectrie.tokenization.healing import HealedBytes
from tests.support.bits import plain
from tests.support.objectives import plain_objective
from tests.support.small_automata import PROMPT, TINY, TableAutomaton
from tests.support.spellings import spec_of
from tests.support.task_driver import Driver

EOG = np.array([1, 9], dtype=np.int32)
HEALED = (b"", b"", b" c", b"ca", b"a")
N_CASES, N_LONG = 20, 1000


class Recording(Driver):
    """Keeps every ask."""

    def take(self, ask, capacity):
        self.asks = [*getattr(self, "asks", []), plain(ask)]
        return super().take(ask, capacity)


def automaton_of(rng):
    n = rng.randrange(1, 5)
    edges = [{rng.randrange(2, 26): rng.randrange(n) for _ in range(rng.randrange(6))} for _ in range(n)]
    return TableAutomaton(edges, set(rng.sample(range(n), rng.randrange(1, n + 1))), flags=rng.random() < 0.5)


def trie_of(rng):
    paths = [[rng.randrange(2, 7) for _ in range(rng.randrange(1, 6))] for _ in range(rng.randrange(1, 20))]
    trie = TokenTrie.from_sequences(paths)
    nodes = rng.sample(range(len(trie.token)), min(2, len(trie.token)))
    observe = [(node, np.array(rng.sample(range(26), 3), dtype=np.int32)) for node in nodes if rng.random() < 0.3]
    terminator = rng.choice(["none", "eog", "unless-continued", "text"])
    needs = row_needs(trie, terminator, observe, rng.choice([EOG, EOG[:1]]))
    best = np.array([rng.random() < 0.5 for _ in trie.token]) & needs.row
    return trie, replace(needs, best=best if rng.random() < 0.3 else None), terminator


def score_task(rng):
    trie, needs, _ = trie_of(rng)
    return ScoreTask(PROMPT, trie, needs)


def prompt_rows(rng):
    paths = [[rng.randrange(2, 7) for _ in range(rng.randrange(1, 7))] for _ in range(rng.randrange(1, 12))]
    trie = TokenTrie.from_sequences(paths)
    wanted = scoring_nodes(trie, np.array([rng.randrange(1, len(path) + 1) for path in paths]))
    named = tuple(rng.randrange(26) for _ in range(rng.choice([0, 0, 1, 4])))
    reads = PromptReads(rng.choice([0, 1, 3, 26]), named, 26, ReadRows())
    values = PromptValues(trie, path_keys(trie), reads)

    class WithValues(ScoreTask):
        def _result(self):
            return super()._result(), values.of_node

    return WithValues(PROMPT, trie, RowNeeds.of_edges(wanted), max_rows=values.max_rows, values=values)


def trie_search(rng):
    trie, needs, terminator = trie_of(rng)
    search = SearchParams(k=rng.randrange(1, 4), width=rng.choice([1, 3, 16]), stop=rng.choice(["best", "all"]))
    return BestFirst(PROMPT, trie, needs, terminator, objective=plain_objective(trie), search=search)


def automaton_spec(rng):
    modulus = rng.randrange(1, 4)
    search = SearchParams(
        k=rng.randrange(1, 4), width=rng.choice([1, 3, 16]), budget_nodes=rng.choice([None, None, 4, 20])
    )
    return AutomatonSpec(
        TINY,
        max_tokens=rng.randrange(2, 5),
        search=search,
        rule=rng.choice(["joint", "token_mean"]),
        merge_equal_text=False,
        healed=rng.choice(HEALED),
        canonical=None if modulus == 1 else lambda path: sum(path) % modulus != 0,
    )


def automaton_search(rng):
    return AutomatonSearch(PROMPT, automaton_of(rng), automaton_spec(rng))


def exact_sample(rng):
    spec = replace(automaton_spec(rng), rule="joint")
    return ExactSampleTask(
        PROMPT,
        automaton_of(rng),
        spec,
        n=rng.randrange(1, 4),
        seed=rng.randrange(99),
        tolerance=rng.choice([0.0, 0.01]),
        max_kept=rng.choice([1, 2, 2048]),
    )


def beam_task(rng):
    groups = rng.choice([1, 1, 2])
    beam = BeamSearchParams(
        width=groups * rng.randrange(1, 4),
        n=rng.randrange(1, 4),
        max_tokens=rng.randrange(2, 6),
        groups=groups,
        diversity=rng.choice([0.0, 0.5]) if groups > 1 else 0.0,
        length_penalty=rng.choice([0.0, 0.7]),
        budget_nodes=rng.choice([None, None, 5]),
        expand=rng.choice([None, None, None, lambda view, shown: [one.id for one in shown[::2]]]),
    )
    modulus = rng.randrange(1, 4)
    may_be_adjacent = None if modulus == 1 else lambda left, right: (left + right) % modulus != 0
    healed = rng.choice(HEALED)
    spec = BeamSpec(
        TINY,
        beam,
        terminator=rng.choice(["none", "eog"]),
        healed=healed,
        may_be_adjacent=may_be_adjacent,
        tolerance=0.01,
    )
    return BeamTask(PROMPT, automaton_of(rng), spec)


class Guesser:
    """Guesses some tokens below the last one, most of them those of an earlier place."""

    def propose(self, tokens, max_tokens):
        guesses = np.array(tokens[: min(3, max_tokens)][::-1], dtype=np.int32)
        return np.arange(-1, len(guesses) - 1, dtype=np.int32), guesses


def sample_task(rng):
    healed = rng.choice(HEALED)
    own = None if healed or rng.random() < 0.5 else automaton_of(rng)
    spec = SampleSpec(
        PROMPT,
        TINY.pieces,
        EOG,
        rng.randrange(99),
        rng.choice([SamplingParams(), SamplingParams.GREEDY, SamplingParams.UNCHANGED]),
        StopParams(
            max_tokens=rng.randrange(4, 9),
            ignore_eog=rng.random() < 0.3,
            min_tokens=rng.choice([0, 3]) if own is None and not healed else 0,
        ),
        n_alternatives=rng.choice([0, 3]),
        named=rng.choice([(), (3, 5, 3)]),
        automaton=HealedBytes(TINY, healed) if healed else own,
        drafter=rng.choice([None, Guesser()]),
        tolerance=rng.choice([0.0, 0.01]),
        healed=HealedBytes(TINY, healed) if healed else None,
    )
    return SampleTask(spec)


def guess_task(rng):
    barred = np.array(rng.sample(range(26), rng.randrange(3)), dtype=np.int32)
    return GuessTask(PROMPT, max_tokens=rng.randrange(1, 9), depth=3, branching=rng.randrange(1, 4), barred=barred)


def spelling_search(rng):
    texts = rng.sample([b"cat", b"cats", b"at", b" cat", b"bat", b"c at"], rng.randrange(1, 4))
    return SpellingSearch(
        PROMPT,
        spec_of(
            TINY,
            texts,
            rng,
            healed=rng.choice(HEALED),
            ends=rng.random() < 0.5,
            budget_nodes=rng.choice([None, 4, 20]),
        ),
    )


TASKS = (
    *(score_task, prompt_rows, trie_search, automaton_search, exact_sample, beam_task, sample_task, guess_task),
    spelling_search,
)


def outcome_of(make, seed, *, is_partial):
    """The result or the error of a case, and everything that was asked for."""
    rng = random.Random(seed)
    model = HashModel(rng.randrange(10**6), sharpness=rng.choice([0.5, 2.0]))
    rooms = [Capacity(rng.randrange(1, 6), rng.randrange(8, 30), rng.randrange(1, 8)) for _ in range(3)]
    try:
        task = make(rng)
        rooms = [
            room if all(a >= b for a, b in zip(of(room), of(task.floor), strict=True)) else task.floor for room in rooms
        ]
        driver = Recording(model, rooms, is_partial=is_partial, may_repeat=True)
        result = plain(driver.run(task))
    except UnreadRowError:
        raise
    except SelectrieError as error:
        return type(error).__name__, str(error)
    return result, getattr(driver, "asks", [])


def of(capacity):
    return capacity.rows, capacity.nodes, capacity.sequences


@pytest.mark.parametrize("make", TASKS, ids=[make.__name__ for make in TASKS])
def test_rows_that_hold_only_what_is_read_change_nothing(make):
    """Random cases of every task, in changing capacities: the same asks and results to the last bit."""
    check_cases(make, range(N_CASES))


@pytest.mark.long
@pytest.mark.parametrize("make", TASKS, ids=[make.__name__ for make in TASKS])
def test_a_thousand_cases_of_every_task(make, record_property):
    """The same law on 1 000 cases of every task."""
    check_cases(make, range(N_LONG))
    record_property("cases", N_LONG)


def check_cases(make, seeds):
    """Compare the cases with these seeds; more than half of them must end in a result."""
    n_results = 0
    for seed in seeds:
        partial = outcome_of(make, seed, is_partial=True)
        assert partial == outcome_of(make, seed, is_partial=False), seed
        n_results += not isinstance(partial[0], str)
    assert n_results > len(seeds) // 2


@pytest.mark.parametrize(
    ("sampling", "is_whole"),
    [
        (SamplingParams.GREEDY, False),
        (SamplingParams(temperature=0, top_k=3, top_p=0.5, min_p=0.1), False),
        (SamplingParams(temperature=0, typical_p=0.9), True),
        (SamplingParams(temperature=0, repeat_penalty=1.1), True),
        (SamplingParams(temperature=0, logit_bias={3: 1.0}), True),
        (SamplingParams(temperature=1e-6), True),
    ],
)
def test_a_greedy_sequence_reads_two_tokens_of_a_row(sampling, is_whole):
    """And its alternatives; rows are read whole where a token is not simply the most probable one that is allowed."""
    for n_alternatives in (0, 4):
        task = SampleTask(
            SampleSpec(PROMPT, TINY.pieces, EOG, 1, sampling, drafter=Guesser(), n_alternatives=n_alternatives)
        )
        task.tell(DenseRows(HashModel(3).row(tuple(PROMPT.tolist()))[None]))
        n = len(task.ask(Capacity(5, 200, 5)).tokens)
        reads = task.reads()
        assert reads.n_rows == n > 1
        assert len(reads.whole) == (n if is_whole else 0)
        if not is_whole:
            assert [one.k for one in reads.tops] == [2, 4][: 1 + bool(n_alternatives)] * n


class Prophet:
    """Guesses what is drawn."""

    def __init__(self, truth):
        self.truth = truth

    def propose(self, tokens, max_tokens):
        ahead = self.truth[len(tokens) - len(PROMPT) :][: min(3, max_tokens)]
        return np.arange(-1, len(ahead) - 1, dtype=np.int32), ahead


def test_a_greedy_sequence_whose_guesses_are_drawn_reads_what_it_says():
    """Also where an automaton or healed bytes allow other tokens after each guess; 100 sequences of which most have guesses."""
    n_accepted = 0
    for seed in range(100):
        rng = random.Random(seed)
        healed = rng.choice((b" c", b"ca", b"cat"))
        of_healed = {"healed": HealedBytes(TINY, healed), "automaton": HealedBytes(TINY, healed)}
        table = TableAutomaton(
            [{token: rng.randrange(3) for token in rng.sample(range(2, 26), 4)} for _ in range(3)], {0}
        )
        limits = rng.choice([{"automaton": table}, of_healed, {}])
        spec = SampleSpec(PROMPT, TINY.pieces, EOG, 1, SamplingParams.GREEDY, StopParams(max_tokens=6), **limits)
        model = HashModel(seed)
        expected = Driver(model, [Capacity(6, 30, 6)], may_repeat=True).run(SampleTask(spec))
        drafted = replace(spec, drafter=Prophet(expected.tokens))
        drawn = Driver(model, [Capacity(6, 30, 6)], is_partial=True, may_repeat=True).run(SampleTask(drafted))
        assert (drawn.tokens.tolist(), drawn.logp.tolist()) == (expected.tokens.tolist(), expected.logp.tolist())
        assert drawn.log_heal == expected.log_heal
        n_accepted += drawn.n_accepted > 0
    assert n_accepted > 50


def test_a_task_that_reads_more_than_it_says_is_caught():
    """The law above has teeth: a task that says it reads nothing cannot read."""

    class Silent(ScoreTask):
        def _reads(self, nodes):
            return Reads(len(nodes))

    trie, needs, _ = trie_of(random.Random(1))
    with pytest.raises(UnreadRowError, match="row 0"):
        Driver(HashModel(0), [Capacity(8, 64, 64)]).run(Silent(PROMPT, trie, needs))


def test_reads_are_known_while_a_row_is_expected():
    """Before the first ask and between ask and tell; at no other time."""
    task = score_task(random.Random(3))
    assert task.reads().n_rows == 1
    Driver(HashModel(0), [Capacity(8, 64, 64)]).run(task)
    with pytest.raises(ProtocolError, match="no row is expected"):
        task.reads()


def test_a_search_that_was_ended_reads_nothing():
    """The rows of its last ask may still arrive."""
    task = beam_task(random.Random(0))
    task.expire()
    reads = task.reads()
    assert (reads.n_rows, len(reads.ids), len(reads.whole)) == (1, 0, 0)
    task.tell(SelectedRows.of(Driver(HashModel(0), [Capacity(8, 64, 64)]).rows([tuple(PROMPT.tolist())]), reads))
