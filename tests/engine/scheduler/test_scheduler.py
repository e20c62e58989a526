"""Many tasks on one model: merged calls, fair turns, failures that stay where they belong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.model import Extension
from selectrie.core.rows import DenseRows, Reads, Rows
from selectrie.core.sized_cache import SizedCache
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import BoolArray, Capacity, IntArray, Limits, ModelKind
from selectrie.decoding.scoring.evaluation import row_needs
from selectrie.decoding.task import Ask
from selectrie.decoding.trie.exhaustive import ScoreTask
from selectrie.engine.scheduler.job import wake
from selectrie.engine.scheduler.scheduler import Job, Scheduler
from selectrie.errors import (
    CancelledError,
    CapacityError,
    ClosedError,
    DecodeError,
    NodeError,
    NonFiniteLogitsError,
    ProtocolError,
)
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE
from selectrie.testing.oracles import run
from tests.support.n_examples import n_examples

N_TOKENS = len(HashModel(0).vocabulary.pieces)


class Walk:
    """A task that follows a script of random extensions and releases, and returns the path and argmax of every row told."""

    def __init__(self, seed: int, prompt: list[int], n_asks: int = 5, fail_at: int | None = None) -> None:
        self.prompt: IntArray = np.array(prompt, dtype=np.int32)
        self.floor = Capacity(rows=4, nodes=12, sequences=6)
        self._rng = np.random.default_rng(seed)
        self._left, self._fail_at = n_asks, fail_at
        self._paths: list[tuple[int, ...]] = [tuple(prompt)]
        self._parent = [-1]
        self._alive = [0]
        self._expected: list[int] = [0]
        self.log: list[tuple[tuple[int, ...], float]] = []
        self.rooms: list[Capacity] = []

    def ask(self, capacity: Capacity) -> Ask | None:
        self.rooms.append(capacity)
        if self._left == 0:
            return None
        self._left -= 1
        release = self._some_leaves()
        parents, tokens = [], []
        first = len(self._paths)
        for i in range(int(self._rng.integers(1, 5))):
            if i and self._rng.random() < 0.5:
                j = int(self._rng.integers(i))
                parents.append(~j)
                base = first + j
            else:
                base = int(self._rng.choice(self._alive))
                parents.append(base)
            tokens.append(int(self._rng.integers(N_TOKENS)))
            self._paths.append((*self._paths[base], tokens[-1]))
            self._parent.append(base)
        n = len(tokens)
        wanted = self._rng.random(n) < 0.7
        self._expected = [first + i for i in np.flatnonzero(wanted)]
        self._alive += range(first, first + n)
        return Ask(
            np.array(parents, dtype=np.int32),
            np.array(tokens, dtype=np.int32),
            wanted,
            np.ones(n, dtype=bool),
            np.array(release, dtype=np.int32),
        )

    def _some_leaves(self) -> list[int]:
        """Leaves to give back so that no more than eight nodes stay."""
        gone: list[int] = []
        while len(self._alive) > 9 or (len(self._alive) > 1 and self._rng.random() < 0.3):
            inner = {self._parent[i] for i in self._alive}
            leaves = [i for i in self._alive if i not in inner and i != 0]
            gone.append(int(self._rng.choice(leaves)))
            self._alive.remove(gone[-1])
        return gone

    def reads(self) -> Reads:
        return Reads.everything(len(self._expected))

    def tell(self, rows: Rows) -> None:
        assert len(rows) == len(self._expected)
        if self._fail_at is not None and self._left <= self._fail_at:
            raise ZeroDivisionError
        self.log += [(self._paths[local], float(rows.logp(i, 0))) for i, local in enumerate(self._expected)]

    def result(self) -> list[tuple[tuple[int, ...], float]]:
        return self.log


def work(scheduler: Scheduler, most_steps: int = 2000) -> None:
    for _ in range(most_steps):
        if scheduler.idle:
            return
        scheduler.step()
    pytest.fail("the scheduler does not finish")


def prompts(rng: np.random.Generator, n: int) -> list[list[int]]:
    """Prompts that share beginnings, some of them equal."""
    stem = rng.integers(N_TOKENS, size=6).tolist()
    return [
        stem[: int(rng.integers(1, 7))] + rng.integers(N_TOKENS, size=int(rng.integers(0, 3))).tolist()
        for _ in range(n)
    ]


KINDS = [ModelKind.ATTENTION, ModelKind.RECURRENT]


def make_task(rng: np.random.Generator, prompt: list[int]) -> Walk | ScoreTask:
    """A walk that keeps everything, or the scoring of a random trie with long shared beginnings."""
    if rng.random() < 0.4:
        return Walk(int(rng.integers(10_000)), prompt)
    paths = [rng.integers(1, 5, size=rng.integers(1, 7)).tolist() for _ in range(rng.integers(2, 20))]
    return score_task(prompt, paths)


def score_task(prompt: list[int], paths: list[list[int]]) -> ScoreTask:
    """Exhaustive scoring of token paths."""
    offsets = np.concatenate([[0], np.cumsum([len(path) for path in paths])])
    trie = TokenTrie.from_flat(np.array([token for path in paths for token in path], dtype=np.int32), offsets)
    return ScoreTask(np.array(prompt, dtype=np.int32), trie, row_needs(trie, "none"))


def is_same(one: Any, other: Any) -> bool:
    """The same log of a walk, or the same bits of an evaluation."""
    if isinstance(one, list):
        return bool(one == other)
    arrays = [(value.edge_logp, value.eog_logp, value.rest.low, value.rest.high) for value in (one, other)]
    return all(np.array_equal(*pair, equal_nan=True) for pair in zip(*arrays, strict=True))


class Boastful(HashModel):
    """A model that says it has more room than it has, so that the scheduler takes in more than fits."""

    extra = 0

    def capacity(self) -> Capacity:
        capacity = super().capacity()
        return Capacity(capacity.rows, capacity.nodes + self.extra, capacity.sequences + self.extra)


def check_all_alone(scheduler: Scheduler, rng: np.random.Generator, pool: list[list[int]], make: Any) -> list[Job]:
    """Three rounds of up to five tasks on prompts of the pool, each told what it would be told alone; nothing leaks."""
    model = scheduler.model
    kind = model.limits.kind
    finished = []
    for _ in range(3):  # from the second on, rows of prompts are cached and some of their nodes gone
        starts = [(int(rng.integers(1 << 30)), pool[rng.integers(len(pool))]) for _ in range(rng.integers(1, 6))]
        jobs = [Job(make(np.random.default_rng(seed), prompt)) for seed, prompt in starts]
        for job in jobs:
            scheduler.submit(job)
        work(scheduler)
        for job, (seed, prompt) in zip(jobs, starts, strict=True):
            alone = run(make(np.random.default_rng(seed), prompt), HashModel(1, limits=replace(WIDE, kind=kind)))
            assert is_same(job.future.result(timeout=0), alone)
        finished += jobs
    scheduler.forget_all()
    assert HashModel.capacity(model) == HashModel(1, limits=model.limits).capacity()
    return finished


@pytest.mark.short("attention", "recurrent")
@pytest.mark.parametrize("kind", ModelKind)
@settings(max_examples=n_examples(25))
@given(
    seed=st.integers(0, 10_000),
    limits=st.builds(
        Limits,
        nodes=st.integers(28, 60),
        sequences=st.integers(3, 30),
        rows_per_call=st.integers(4, 20),
        kind=st.none(),
        max_idle_rows=st.sampled_from([1, 30, 4096]),
    ),
)
def test_tasks_together_equal_each_alone(kind: ModelKind, seed: int, limits: Limits) -> None:
    """What runs beside a task, how little room there is, and what is cached change nothing that it is told; nothing leaks."""
    rng = np.random.default_rng(seed)
    few = limits.sequences if kind.is_recurrent else limits.sequences + 10
    limits = replace(limits, sequences=few, kind=kind)
    pool = [*prompts(rng, 3), rng.integers(N_TOKENS, size=rng.integers(2, 14)).tolist()]
    check_all_alone(Scheduler(HashModel(1, limits=limits)), rng, pool, make_task)


@pytest.mark.short("attention")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=n_examples(25))
@given(seed=st.integers(0, 10_000), nodes=st.integers(28, 34), extra=st.integers(10, 60), branches=st.integers(3, 30))
def test_evicted_tasks_go_on_where_they_were(kind: ModelKind, seed: int, nodes: int, extra: int, branches: int) -> None:
    """Where more was taken in than fits, tasks give way to older ones and still are told the same, and all end."""
    rng = np.random.default_rng(seed)
    few = branches if kind.is_recurrent else branches + 13
    model = Boastful(1, limits=Limits(nodes=nodes, sequences=few, rows_per_call=20, kind=kind, max_idle_rows=4096))
    model.extra = extra
    pool = [*prompts(rng, 3), rng.integers(N_TOKENS, size=rng.integers(2, 14)).tolist()]
    check_all_alone(Scheduler(model), rng, pool, lambda r, prompt: Walk(int(r.integers(10_000)), prompt))


def test_the_oldest_is_never_evicted_and_the_youngest_pays() -> None:
    """Three walks in the room of one: the first keeps its nodes to its end, the others' rows come again and are counted."""
    model = Boastful(1, limits=replace(WIDE, nodes=22, rows_per_call=20))
    model.extra = 60
    scheduler = Scheduler(model)
    starts = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    jobs = [Job(Walk(i, p, n_asks=12)) for i, p in enumerate(starts)]
    for job in jobs:
        scheduler.submit(job)
    n_evicted = 0
    for _ in range(500):
        held = [job.prompt_node for job in jobs]
        scheduler.step()
        lost = [job for job, node in zip(jobs, held, strict=True) if node != -1 and job.prompt_node == -1]
        evicted = [job for job in lost if not job.future.done()]
        n_evicted += len(evicted)
        assert next((job for job in jobs if not job.future.done()), None) not in evicted
    assert n_evicted > 0
    for i, job in enumerate(jobs):
        assert job.future.result(timeout=0) == run(Walk(i, starts[i], n_asks=12), HashModel(1))
    n_repeated = sum(n - 1 for n in model.evaluations.values())
    assert jobs[0].cost.rows_repeated == 0
    assert 0 < jobs[1].cost.rows_repeated + jobs[2].cost.rows_repeated <= n_repeated


class Counting(HashModel):
    """A model that counts the calls that did not fit."""

    n_refused = 0

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        try:
            return super().extend(parents, tokens, wanted, keep)
        except CapacityError:
            self.n_refused += 1
            raise


def test_an_ask_that_waits_behind_its_prompt_is_reserved() -> None:
    """The prompt's row is cached, its nodes are gone: what is asked for before they are back is nobody else's."""
    model = Counting(1, limits=replace(WIDE, nodes=22, sequences=30, rows_per_call=5))
    scheduler = Scheduler(model)
    long_prompt = list(range(1, 13))
    few = [[i, j, 6] for i in (1, 2) for j in (4, 5)]
    many = [[i, j, k] for i in (1, 2, 3) for j in (4, 5, 6) for k in (6, 7)]
    scheduler.submit(Job(score_task(long_prompt, [[1]])))
    work(scheduler)
    model.trim(0)
    jobs = [Job(score_task(long_prompt, few)), Job(score_task([9, 8], many))]
    for job in jobs:
        scheduler.submit(job)
    work(scheduler)
    assert [job.future.exception(timeout=0) for job in jobs] == [None, None]
    assert [job.cost.rows_repeated for job in jobs] == [len(long_prompt), 0]
    assert model.n_refused == 0


def test_parts_share_rows_only_where_they_are_the_same_tree() -> None:
    """A chain and a star of the same tokens below one prompt are five rows, not three: they do not fit a call of four."""
    model = Counting(1, limits=replace(WIDE, rows_per_call=4))
    scheduler = Scheduler(model)
    for parents in ([0, ~0, ~1], [0, 0, 0]):
        scheduler.submit(Job(Stubborn(ask_for(parents))))
    work(scheduler)
    assert model.n_refused == 0
    assert scheduler.idle


@pytest.mark.parametrize("kind", [ModelKind.RECURRENT, ModelKind.HYBRID])
@pytest.mark.parametrize("states", [3, 4, 8])
def test_a_deep_comb_runs_in_three_states(kind: ModelKind, states: int) -> None:
    """Branches at every depth of a path that is longer than there are states: what does not fit is evaluated again."""
    comb = [[1] * depth + [2, 3] for depth in range(20)]
    limits = replace(WIDE, nodes=60, sequences=states, rows_per_call=64, kind=kind)
    model = HashModel(1, limits=limits)
    scheduler = Scheduler(model)
    job = Job(score_task([5, 6], comb))
    scheduler.submit(job)
    work(scheduler)
    assert is_same(job.future.result(timeout=0), run(score_task([5, 6], comb), HashModel(1)))
    assert job.cost.rows_repeated == sum(n - 1 for n in model.evaluations.values()) > 0
    scheduler.forget_all()
    assert model.capacity() == HashModel(1, limits=limits).capacity()


def test_a_comb_in_one_ask_keeps_no_state_longer_than_it_is_needed() -> None:
    """Carriers go with their last child's run: no row comes twice where the ask fits, however few states there are."""
    comb = [[1] * depth + [2, 3] for depth in range(6)]
    model = HashModel(1, limits=replace(WIDE, sequences=12, kind=ModelKind.RECURRENT))
    scheduler = Scheduler(model)
    job = Job(score_task([5, 6], comb))
    scheduler.submit(job)
    fewest = 12
    for _ in range(100):
        scheduler.step()
        fewest = min(fewest, model.capacity().sequences)
    assert job.future.exception(timeout=0) is None
    assert fewest >= 9  # the prompt and two more
    assert max(model.evaluations.values()) == 1


def test_what_does_not_fit_alone_fails_alone() -> None:
    """Prompt, base and tip need three states: in two the deep task fails, named by its own error; the flat one is answered."""
    model = HashModel(1, limits=replace(WIDE, sequences=2, kind=ModelKind.RECURRENT))
    scheduler = Scheduler(model)
    deep = Job(score_task([5, 6], [[1] * depth + [2, 3] for depth in range(6)]))
    flat = Job(score_task([5, 6], [[1], [2], [3]]))
    for job in (deep, flat):
        scheduler.submit(job)
    work(scheduler)
    assert isinstance(deep.future.exception(timeout=0), CapacityError)
    assert is_same(flat.future.result(timeout=0), run(score_task([5, 6], [[1], [2], [3]]), HashModel(1)))


def ask_for(parents: list[int], release: list[int] | None = None) -> Ask:
    """Tokens 3, 4, ... below these parents."""
    n = len(parents)
    all_true = np.ones(n, dtype=np.bool_)
    tokens = np.arange(3, 3 + n, dtype=np.int32)
    return Ask(np.array(parents, dtype=np.int32), tokens, all_true, all_true, np.array(release or [], dtype=np.int32))


class Stubborn(Walk):
    """A task that asks for what it was given, whatever room there is."""

    def __init__(self, *asks: Ask) -> None:
        super().__init__(1, [1, 2])
        self._asks = list(asks)

    def ask(self, capacity: Capacity) -> Ask | None:
        return self._asks.pop(0) if self._asks else None

    def reads(self) -> Reads:
        return Reads.everything(1)

    def tell(self, rows: Rows) -> None:
        pass


@pytest.mark.parametrize(
    ("parents", "release", "words"),
    [([0], [1], "has children"), ([7], [], "never asked for"), ([1], [1, 2], "released"), ([0] * 9, [], "offered")],
)
def test_an_ask_that_breaks_the_contract_ends_its_own_job(parents: list[int], release: list[int], words: str) -> None:
    """A parent that is not held, a released row that carries others, more rows than offered; nothing leaks."""
    model = HashModel(1, limits=replace(WIDE, rows_per_call=8))
    scheduler = Scheduler(model)
    rude, fine = Job(Stubborn(ask_for([0, ~0]), ask_for(parents, release))), Job(Walk(1, [3, 4]))
    for job in (rude, fine):
        scheduler.submit(job)
    work(scheduler)
    with pytest.raises(ProtocolError, match=words):
        rude.future.result(timeout=0)
    assert fine.future.result(timeout=0) == run(Walk(1, [3, 4]), HashModel(1))
    scheduler.forget_all()
    assert model.capacity() == HashModel(1, limits=model.limits).capacity()


@given(seed=st.integers(0, 10_000), failing=st.integers(0, 3), at=st.integers(0, 4))
def test_a_failing_task_ends_alone(seed: int, failing: int, at: int) -> None:
    """An exception inside one task reaches its own caller; the others get the answers they would have had."""
    starts = prompts(np.random.default_rng(seed), 4)
    alone = [run(Walk(seed + i, p), HashModel(seed)) for i, p in enumerate(starts)]
    model = HashModel(seed)
    scheduler = Scheduler(model)
    jobs = [Job(Walk(seed + i, p, fail_at=at if i == failing else None)) for i, p in enumerate(starts)]
    for job in jobs:
        scheduler.submit(job)
    work(scheduler)
    for i, job in enumerate(jobs):
        if i == failing:
            with pytest.raises(ZeroDivisionError):
                job.future.result()
        else:
            assert job.future.result() == alone[i]
    scheduler.forget_all()
    assert model.capacity() == HashModel(seed).capacity()


@given(seed=st.integers(0, 10_000), n_failures=st.integers(1, 6))
def test_failing_calls_are_split_until_they_pass(seed: int, n_failures: int) -> None:
    """A decode that fails once is tried again in halves; only a part that fails alone ends its job."""
    rng = np.random.default_rng(seed)
    starts = prompts(rng, 4)
    model = HashModel(seed)
    scheduler = Scheduler(model)
    jobs = [Job(Walk(seed + i, p)) for i, p in enumerate(starts)]
    for job in jobs:
        scheduler.submit(job)
    failures = 0
    for _ in range(500):
        if scheduler.idle:
            break
        if failures < n_failures and rng.random() < 0.5:
            model.fail_next(
                DecodeError("planted") if rng.random() < 0.5 else CapacityError("nodes", required=2, available=1)
            )
            failures += 1
        scheduler.step()
    assert scheduler.idle
    for i, job in enumerate(jobs):
        if (error := job.future.exception()) is None:
            assert job.future.result() == run(Walk(seed + i, starts[i]), HashModel(seed))
        else:
            assert isinstance(error, DecodeError | CapacityError)
    scheduler.forget_all()
    assert model.capacity() == HashModel(seed).capacity()


@given(seed=st.integers(0, 10_000), victim=st.integers(0, 3), at=st.integers(0, 6))
def test_cancelling_one_changes_no_other(seed: int, victim: int, at: int) -> None:
    """A cancelled task gives its nodes back at once and the rest finish as if it had never been."""
    starts = prompts(np.random.default_rng(seed), 4)
    model = HashModel(seed)
    scheduler = Scheduler(model)
    jobs = [Job(Walk(seed + i, p)) for i, p in enumerate(starts)]
    for job in jobs:
        scheduler.submit(job)
    for _ in range(at):
        scheduler.step()
    jobs[victim].cancelled = True
    work(scheduler)
    for i, job in enumerate(jobs):
        if i == victim and isinstance(job.future.exception(), CancelledError):
            continue
        assert job.future.result() == run(Walk(seed + i, starts[i]), HashModel(seed))
    scheduler.forget_all()
    assert model.capacity() == HashModel(seed).capacity()


def test_a_second_task_on_the_same_prompt_evaluates_no_prompt_row_again() -> None:
    """The prompt's nodes and its last row are cached."""
    model = HashModel(1)
    scheduler = Scheduler(model)
    first, second = Job(Walk(3, [5, 6, 7, 8])), Job(Walk(3, [5, 6, 7, 8]))
    scheduler.submit(first)
    work(scheduler)
    rows = model.rows
    scheduler.submit(second)
    work(scheduler)
    assert model.rows - rows == rows - 4
    assert first.future.result() == second.future.result()


def test_equal_prompts_at_once_are_evaluated_once() -> None:
    """Sixteen tasks that start together on one prompt share its rows in one call."""
    model = HashModel(1)
    scheduler = Scheduler(model)
    prompt = list(range(20))
    for seed in range(16):
        scheduler.submit(Job(Walk(seed, prompt, n_asks=0)))
    work(scheduler)
    assert model.rows == 20
    assert model.calls == 1


def test_a_task_that_can_never_fit_is_refused_at_once() -> None:
    """Needed and available are named; nothing is evaluated."""
    model = HashModel(1, limits=replace(WIDE, nodes=15))
    scheduler = Scheduler(model)
    job = Job(Walk(1, [1, 2, 3, 4]))
    scheduler.submit(job)
    error = job.future.exception()
    assert isinstance(error, CapacityError)
    assert (error.required, error.available, model.calls) == (16, 15, 0)


def test_a_broken_row_ends_the_job_that_wanted_it() -> None:
    """NaN in one task's row is an error for that task, not for the one that shares the call."""
    bad = [np.nan] * N_TOKENS
    model = HashModel(1, planted={(1, 2): bad})
    scheduler = Scheduler(model)
    broken, fine = Job(Walk(1, [1, 2])), Job(Walk(1, [3, 4]))
    scheduler.submit(broken)
    scheduler.submit(fine)
    work(scheduler)
    assert isinstance(broken.future.exception(), NonFiniteLogitsError)
    assert fine.future.result() == run(Walk(1, [3, 4]), HashModel(1))


class Cleared(HashModel):
    """A model that loses every node in the middle of a call, as llama.cpp's memory may after an aborted decode."""

    def lose_at(self, call: int) -> None:
        """Lose everything in the decode with this number."""

        def lose() -> None:
            if self.calls >= call:
                self.on_decode = None
                self._tree.clear()
                raise DecodeError("memory lost")

        self.on_decode = lose


@given(seed=st.integers(0, 10_000), call=st.integers(0, 4), n=st.integers(1, 4))
def test_nodes_lost_under_way_end_the_jobs_that_held_them(seed: int, call: int, n: int) -> None:
    """Nodes that cannot be given back keep nobody waiting, and the next task is answered."""
    model = Cleared(seed)
    scheduler = Scheduler(model)
    starts = prompts(np.random.default_rng(seed), n)
    jobs = [Job(Walk(seed + i, p)) for i, p in enumerate(starts)]
    for job in jobs:
        scheduler.submit(job)
    model.lose_at(call)
    work(scheduler)
    for i, job in enumerate(jobs):
        if (error := job.future.exception(timeout=0)) is None:
            assert job.future.result() == run(Walk(seed + i, starts[i]), HashModel(seed))
        else:
            assert isinstance(error, DecodeError | NodeError)
    again = Job(Walk(seed, [1, 2]))
    scheduler.submit(again)
    work(scheduler)
    assert again.future.result() == run(Walk(seed, [1, 2]), HashModel(seed))


def test_a_model_closed_under_way_keeps_nobody_waiting() -> None:
    """`fail_all` answers every job, started or not, though nothing can be given back any more."""
    model = HashModel(1)
    scheduler = Scheduler(model)
    jobs = [Job(Walk(i, [5, 6, 7])) for i in range(3)]
    for job in jobs[:2]:
        scheduler.submit(job)
    scheduler.step()
    scheduler.step()
    scheduler.submit(jobs[2])
    model.close()
    with pytest.raises(ClosedError):
        scheduler.step()
    scheduler.fail_all(ClosedError("the model"))
    assert scheduler.idle
    assert [type(job.future.exception(timeout=0)) for job in jobs] == [ClosedError] * 3


def test_fail_all_never_raises() -> None:
    """Not even where giving nodes back fails in a way that nobody foresaw."""
    model = HashModel(1)
    scheduler = Scheduler(model)
    jobs = [Job(Walk(i, [5, 6, 7])) for i in range(3)]
    for job in jobs:
        scheduler.submit(job)
    scheduler.step()

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    model.release = broken  # type: ignore[method-assign]
    scheduler.fail_all(DecodeError("planted"))
    assert scheduler.idle
    assert [type(job.future.exception(timeout=0)) for job in jobs] == [DecodeError] * 3


def test_row_cache_forgets_the_least_recently_used() -> None:
    """Bytes bound the cache."""
    cache: SizedCache[bytes, DenseRows] = SizedCache(3 * 4 * 4)
    for name in "abc":
        cache.put(name.encode(), DenseRows(np.full((1, 4), ord(name), dtype=np.float32)))
    assert cache.get(b"a") is not None
    cache.put(b"d", DenseRows(np.zeros((1, 4), dtype=np.float32)))
    assert [cache.get(name.encode()) is None for name in "abcd"] == [False, True, False, False]
    cache.put(b"e", DenseRows(np.zeros((4, 4), dtype=np.float32)))  # larger than the cache
    cache.put(b"a", DenseRows(np.zeros((4, 4), dtype=np.float32)))
    assert [cache.get(name.encode()) is None for name in "acde"] == [True, False, False, True]
    assert cache.size == 2 * 4 * 4


def test_what_jobs_wake_is_woken_once_a_call():
    """When all of them have their rows; a callback that fails ends its own job alone."""
    scheduler, woken = Scheduler(HashModel(0, limits=WIDE)), []

    def waking() -> None:
        woken.append(len(waiting))

    def fail() -> None:
        raise ZeroDivisionError

    steps: list[Any] = [lambda: wake(waking), lambda: waiting.append(1), fail, lambda: wake(waking)]
    waiting: list[int] = []
    jobs = [Job(score_task([number], [[1, 2]]), step) for number, step in enumerate(steps)]
    for job in jobs:
        scheduler.submit(job)
    scheduler.step()
    assert woken == [1]
    while not scheduler.idle:
        scheduler.step()
    assert [job.future.exception() is None for job in jobs] == [True, True, False, True]
