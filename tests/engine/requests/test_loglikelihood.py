"""Log-likelihoods of many sequences: equal to one at a time, whatever stands beside them or was measured before."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.backends.llama_cpp.model import call_cost
from selectrie.core.numerics import logsumexp
from selectrie.core.types import BatchSizes, CallCost, ModelKind, SelfCheck
from selectrie.engine.engine import Engine
from selectrie.engine.load import load
from selectrie.engine.requests.loglikelihood import Sequences, SequenceScorer, _CallPlan
from selectrie.engine.scheduler.model_thread import ModelThread
from selectrie.engine.scheduler.task_group import SecondMemory, SecondMemoryPool
from selectrie.errors import CapacityError, ClosedError, OptionError, TokenRangeError
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE, hashed_logits
from tests.support.measured import measured

SIZE = len(HashModel(0).vocabulary.pieces)
one_sequence = st.lists(st.integers(0, 3), min_size=1, max_size=7).flatmap(
    lambda tokens: st.tuples(st.just(tokens), st.integers(1, len(tokens)))
)
many = st.lists(one_sequence, min_size=1, max_size=9)
narrow = replace(WIDE, nodes=8, sequences=2, rows_per_call=3)
forking = replace(narrow, kind=ModelKind.RECURRENT, sequences=4)


def pairs_of(given_sequences):
    """Sequences as pairs of context and what counts."""
    return [(tokens[:first], tokens[first:]) for tokens, first in given_sequences]


def loglikelihoods(model, sequences):
    """Those of sequences in the memory of the model itself, of which nothing is held afterwards."""
    thread = ModelThread(model)
    with closing(thread):
        memories = SecondMemoryPool(thread, lambda: SecondMemory(model))
        found = SequenceScorer(model, memories.group).loglikelihoods(sequences)
        assert model.capacity().nodes == model.limits.nodes
        return found


def alone(seed, tokens, first):
    """Sum and greediness of one sequence, a row at a time."""
    total, greedy = 0.0, True
    for i in range(len(tokens) - 1, first - 1, -1):
        logits = hashed_logits(seed, tuple(tokens[:i]), SIZE, 1.0)
        total += min(0.0, float(logits[tokens[i]]) - logsumexp(logits.astype(np.float64)))
        greedy &= int(np.argmax(logits)) == tokens[i]
    return total, greedy


@pytest.mark.parametrize("limits", [WIDE, narrow, forking], ids=["wide", "narrow", "forking"])
@given(given_sequences=many, seed=st.integers(0, 9))
def test_sharing_changes_no_log_likelihood(limits, given_sequences, seed):
    """Each sequence as if it stood alone, in any capacity_at; and nothing is held afterwards."""
    model = HashModel(seed, limits=limits)
    found = loglikelihoods(model, Sequences.of(pairs_of(given_sequences)))
    expected = [alone(seed, tokens, first) for tokens, first in given_sequences]
    assert np.allclose(found.logp, [logp for logp, _ in expected], rtol=0, atol=1e-5)
    assert found.is_greedy.tolist() == [greedy for _, greedy in expected]


@given(given_sequences=many)
def test_every_distinct_prefix_is_evaluated_once(given_sequences):
    """Those that something counted hangs from, and no other."""
    found = loglikelihoods(HashModel(1), Sequences.of(pairs_of(given_sequences)))
    needed = {tuple(t[:i]) for t, first in given_sequences if first < len(t) for i in range(1, len(t))}
    assert found.rows_evaluated == len(needed)
    assert found.rows_naive == sum(len(tokens) - 1 for tokens, _ in given_sequences)


@pytest.mark.parametrize(
    ("batch_multiple", "idle_rows", "carried", "after", "rows"),
    [
        (8, 400, 0, [], 256),  # up to the end of the first block
        (8, 400, 190, [], 64),  # the batch multiple's multiple below it
        (8, 400, 240, [], 16),
        (8, 400, 250, [251, 252, 253, 252], 256),  # no capacity_at in it for 16: the second one is begun,
        (8, 400, 250, [251, 252, 240, 241], 3),  # and left where the next row stands on 240 cells or fewer
        (1, 400, 190, [], 66),  # where calls are not padded, to its last cell
        (1, 9000, 190, [191] * 66, 66),  # where rows are dear, 64 rows at least
        (8, 9000, 200, [10] * 100, 64),
    ],
)
def test_calls_fill_memory_up_to_a_block(batch_multiple, idle_rows, carried, after, rows):
    """By what stands above the call's first node and the nodes after it."""
    limits = like_llama(batch_multiple, idle_rows)
    depth = np.array([0, carried + 1, *(cells + 1 for cells in after), *[carried + 1] * (400 - len(after))])
    assert _CallPlan(limits, depth).max_rows(1) == rows
    for other in (replace(limits, kind=ModelKind.RECURRENT), replace(limits, call_cost=CallCost())):
        assert _CallPlan(other, depth).max_rows(1) == limits.rows_per_call


def like_llama(batch_multiple, idle_rows, rows_per_call=512):
    """Limits of a llama.cpp model that pads calls to this multiple."""
    sizes = BatchSizes(batch_multiple)
    cost = call_cost(idle_rows)
    return replace(WIDE, rows_per_call=rows_per_call, max_idle_rows=idle_rows, batch_sizes=sizes, call_cost=cost)


def former_rows(batch_multiple, idle_rows, max_rows, carried, at):
    """Rows of the call that begins with node `at`, when the numbers of llama.cpp were written into the formula."""
    min_rows, shortest = (16, 1) if idle_rows < 8192 else (64, 64)
    if at == len(carried):
        return max_rows
    end = -(-(int(carried[at]) + min_rows) // 256) * 256
    rows = min(max_rows, (end - int(carried[at])) // batch_multiple * batch_multiple)
    left = np.flatnonzero(carried[at + shortest : at + rows] <= end - 256 - min_rows)
    return int(left[0]) + shortest if len(left) else rows


@given(
    batch_multiple=st.sampled_from([1, 8, 16, 32, 64]),
    idle_rows=st.one_of(st.integers(1, 20_000), st.sampled_from([8191, 8192])),
    n_multiples=st.integers(1, 8),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_calls_of_llama_are_what_they_were(batch_multiple, idle_rows, n_multiples, seed):
    """Its numbers come out of the model's limits; every call of random walks through a trie is as large as before."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random(600) < 0.95, 1, -rng.integers(0, 400, 600))
    depth = [1 + int(rng.integers(0, 600))]
    for step in steps.tolist():
        depth.append(max(1, depth[-1] + step))
    carried = np.array(depth) - 1
    max_rows = n_multiples * max(64, batch_multiple)
    pace = _CallPlan(like_llama(batch_multiple, idle_rows, max_rows), np.array(depth))
    for at in range(len(depth) + 1):
        expected = former_rows(batch_multiple, idle_rows, max_rows, carried, at)
        assert pace.max_rows(at) == expected


@pytest.mark.parametrize("batch_multiple", [1, 8])
def test_blocks_change_no_log_likelihood(batch_multiple):
    """Sequences longer than a block, short ones between them: each as if it stood alone."""
    rng = np.random.default_rng(2)
    shared = rng.integers(0, 4, 230).tolist()
    pairs = [(shared[: 230 - 60 * (i % 3)], rng.integers(0, 4, 1 + 23 * i % 70).tolist()) for i in range(9)]
    model = HashModel(5, limits=like_llama(batch_multiple, 400))
    found = loglikelihoods(model, Sequences.of(pairs))
    expected = [alone(5, [*context, *rest], len(context)) for context, rest in pairs]
    assert np.allclose(found.logp, [logp for logp, _ in expected], rtol=0, atol=1e-4)
    assert found.is_greedy.tolist() == [greedy for _, greedy in expected]


def test_the_twin_can_fail():
    """Another seed gives another sum."""
    found = loglikelihoods(HashModel(1), Sequences.of([([0], [1, 2])]))
    assert abs(found.logp[0] - alone(2, [0, 1, 2], 1)[0]) > 1e-3


def test_what_cannot_be_measured_is_refused():
    """A first token that counts, a token that does not exist, a sequence without capacity_at; before any call."""
    with pytest.raises(OptionError, match=r"first_scored\[1\]"):
        Sequences.of([([0], [1]), ([], [1])])
    with pytest.raises(TokenRangeError):
        loglikelihoods(HashModel(0), Sequences.of([([0], [SIZE])]))
    model = HashModel(0, limits=narrow)
    with pytest.raises(CapacityError):
        loglikelihoods(model, Sequences.of([([0], [1] * 9)]))
    assert not model.calls


def test_a_measurer_is_closed_once_and_for_all():
    """Closing twice is fine; measuring after it is not."""
    with Engine(HashModel(3)) as llm:
        with llm.loglikelihood_scorer(9) as scorer:
            assert scorer.loglikelihoods(Sequences.of([([0], [1])])).n_scored.tolist() == [1]
        scorer.close()
        with pytest.raises(ClosedError):
            scorer.loglikelihoods(Sequences.of([([0], [1])]))


@pytest.mark.short("stories260K", "*hybrid*")
@pytest.mark.parametrize("name", ["stories260K", "tiny-rwkv-7v0-834K", "random-hybrid-qwen35", "random-swa-gemma3"])
def test_real_weights_agree_with_one_at_a_time(name, weights):
    """In every architecture; and the same bits after something else was measured."""
    rng = np.random.default_rng(5)
    with load(weights(f"{name}.gguf"), n_threads=1, n_ctx=256) as llm:
        size = min(200, len(llm.vocabulary.pieces))
        shared = rng.integers(3, size, 12).tolist()
        pairs = [
            (shared + rng.integers(3, size, i % 3).tolist(), rng.integers(3, size, 1 + i % 5).tolist())
            for i in range(24)
        ]
        other = [(rng.integers(3, size, 9).tolist(), rng.integers(3, size, 4).tolist()) for _ in range(9)]
        with llm.loglikelihood_scorer(64) as scorer:
            found = scorer.loglikelihoods(Sequences.of(pairs))
            single = [scorer.loglikelihoods(Sequences.of([pair])) for pair in pairs]
            scorer.loglikelihoods(Sequences.of(other))
            again = scorer.loglikelihoods(Sequences.of(pairs))
        with llm.loglikelihood_scorer(64) as fresh:
            anew = fresh.loglikelihoods(Sequences.of(pairs))
    tolerance = measured(weights(f"{name}.gguf")).tolerance
    moved = np.abs(found.logp - [one.logp[0] for one in single])
    assert (moved <= 2 * tolerance * found.n_scored + 1e-6).all()
    assert found.is_greedy.tolist() == [bool(one.is_greedy[0]) for one in single]
    assert np.array_equal(found.logp, again.logp)
    assert np.array_equal(found.logp, anew.logp)


def test_a_long_path_needs_one_state_in_a_forking_model():
    """Of 40 calls one below the other, with capacity_at for four states: only the end of the path is kept."""
    rng = np.random.default_rng(2)
    tokens = rng.integers(0, 4, 40).tolist()
    pairs = [(tokens, [1]), (tokens[:20], [2, 3]), (tokens, [3, 2])]
    limits = replace(forking, nodes=60, rows_per_call=1, sequences=4)
    model = HashModel(1, limits=limits)
    assert np.array_equal(
        loglikelihoods(model, Sequences.of(pairs)).logp, loglikelihoods(HashModel(1), Sequences.of(pairs)).logp
    )


def unit(n=30, length=40, seed=3):
    """So many long sequences of a fake's vocabulary."""
    rng = np.random.default_rng(seed)
    return Sequences.of([(rng.integers(0, 4, length).tolist(), [1, 2]) for _ in range(n)])


class Told(HashModel):
    """A fake whose solo models tell before each decode."""

    def __init__(self, *given, tell=lambda: None, **how):
        super().__init__(*given, **how)
        self.tell, self.solos = tell, []

    def new_context(self, nodes, sequences=8, rows=None):
        made = super().new_context(nodes, sequences, rows)
        made.on_decode = lambda: self.tell()  # noqa: PLW0108 - whatever it is by then
        self.solos.append(made)
        return made


def test_others_have_their_turn_within_a_unit(monkeypatch):
    """Between two calls of a unit a question of somebody else is answered, and the unit has the same bits."""
    model, turns, thread = Told(3, limits=replace(WIDE, rows_per_call=16)), [], []
    queued = threading.Event()
    with Engine(model, check=SelfCheck(1, 0.0, 0.0)) as llm, llm.loglikelihood_scorer(64) as scorer:
        queue = llm._model_thread.queue
        monkeypatch.setattr(llm._model_thread, "queue", lambda handle: (queue(handle), queued.set()))
        alone = scorer.loglikelihoods(unit())
        n_calls = model.solos[0].calls

        def ask():
            turns.append(None)
            if len(turns) == 2:
                thread.append(threading.Thread(target=lambda: turns.append(llm.select("a", ["b", "c"]))))
                thread[0].start()
                assert queued.wait(20)  # the unit goes on once the question is there

        model.tell = ask
        again = scorer.loglikelihoods(unit())
        thread[0].join()
    answered = next(i for i, turn in enumerate(turns) if turn is not None)
    assert answered < n_calls
    assert np.array_equal(alone.logp, again.logp)


def test_threads_measure_side_by_side():
    """Each in a memory of its own: the bits of one after the other."""
    with Engine(HashModel(3, limits=replace(WIDE, rows_per_call=16))) as llm, llm.loglikelihood_scorer(64) as scorer:
        expected = [scorer.loglikelihoods(unit(seed=seed)).logp for seed in range(4)]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda seed: scorer.loglikelihoods(unit(seed=seed)).logp, range(4)))
    assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))


def test_an_interrupted_unit_leaves_nothing_behind():
    """Ctrl-C in the middle of a decode is raised, its memory is freed, and the next unit has the bits of an undisturbed one."""
    model = Told(3, limits=replace(WIDE, rows_per_call=16))
    with Engine(model) as llm, llm.loglikelihood_scorer(64) as scorer:
        alone = scorer.loglikelihoods(unit())
        solo = model.solos.pop()
        left = [3]

        def interrupt():
            left[0] -= 1
            if not left[0]:
                signal.raise_signal(signal.SIGINT)

        model.tell = interrupt
        with pytest.raises(KeyboardInterrupt):
            scorer.loglikelihoods(unit())
        assert solo._is_closed
        assert np.array_equal(scorer.loglikelihoods(unit()).logp, alone.logp)


def test_an_engine_may_be_closed_first():
    """Closing the scorer after it is fine; measuring is told."""
    llm = Engine(HashModel(3))
    with llm.loglikelihood_scorer(64) as scorer:
        scorer.loglikelihoods(unit())
        llm.close()
        with pytest.raises(ClosedError, match="engine"):
            scorer.loglikelihoods(unit())


def test_a_measurer_that_is_forgotten_frees_its_memory():
    """Without any close."""
    model = Told(3)
    with Engine(model) as llm:
        scorer = llm.loglikelihood_scorer(64)
        scorer.loglikelihoods(unit())
        freed = weakref.ref(model.solos.pop())
        del scorer
        gc.collect()
        assert freed() is None
