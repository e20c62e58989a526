"""Continuous batching: tasks of any kind come and go at any time, and no one harms another."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from contextvars import copy_context
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.core.model import Extension
from selectrie.core.rows import Reads, Rows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, BatchSizes, BoolArray, CallCost, Capacity, Cost, IntArray, Limits, ModelKind
from selectrie.decoding.sampling.task import SampleSpec, SampleTask
from selectrie.decoding.scoring.evaluation import row_needs
from selectrie.decoding.scoring.paths import path_scores
from selectrie.decoding.task import Ask
from selectrie.decoding.trie.best_first import BestFirst
from selectrie.decoding.trie.exhaustive import ScoreTask
from selectrie.engine.scheduler.batch import allocate_prefill
from selectrie.engine.scheduler.job import charge_to
from selectrie.engine.scheduler.model_thread import Handle, ModelThread
from selectrie.engine.scheduler.scheduler import Job, Load, Scheduler
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import (
    CancelledError,
    CapacityError,
    DeadlineError,
    DecodeError,
    DecodeInterrupted,
    OptionError,
    QueueFullError,
)
from selectrie.options import SamplingParams, SearchParams, StopParams
from selectrie.testing import HashModel, make_vocabulary
from selectrie.testing.fakes import WIDE
from selectrie.testing.oracles import run
from tests.support.objectives import plain_objective

VOCABULARY = make_vocabulary()
N_TOKENS = len(VOCABULARY.pieces)
LONG_S = 20
"""Seconds after which something that never happens is given up."""


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Line:
    """A task that asks for one row a step, `n` times; its result is the step of the model at which each row was told.

    expires: ends with what it has at its deadline.
    """

    def __init__(self, prompt: list[int], n: int, model: HashModel | None = None) -> None:
        self.prompt: IntArray = np.array(prompt, dtype=np.int32)
        self.floor = Capacity(rows=1, nodes=max(n, 1), sequences=1)
        self._n, self._model = n, model
        self.told: list[int] = []

    def ask(self, capacity: Capacity) -> Ask | None:
        if len(self.told) > self._n:
            return None
        one = np.ones(1, dtype=np.bool_)
        return Ask(as_ids([len(self.told) - 1]), as_ids([2 + len(self.told) % 20]), one, one)

    def reads(self) -> Reads:
        return Reads.everything(1)

    def tell(self, rows: Rows) -> None:
        assert len(rows) == 1
        self.told.append(self._model.calls if self._model else 0)

    def result(self) -> list[int]:
        return self.told


class Patient(Line):
    """A line that ends with what it has when its deadline passes."""

    def expire(self) -> None:
        self._n = -1


def as_ids(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int32)


def work(scheduler: Scheduler, most_steps: int = 2000) -> int:
    """Step until idle; how many steps that took."""
    for step in range(most_steps):
        if scheduler.idle:
            return step
        scheduler.step()
    pytest.fail("the scheduler does not finish")


def prompt_of(seed: int, n: int) -> list[int]:
    return np.random.default_rng(seed).integers(2, N_TOKENS, size=n).tolist()


# Long prompts and short requests


def test_a_short_request_waits_for_two_calls_at_most_beside_a_long_prompt() -> None:
    """2 000 tokens under way, 10 arrive: their row is told by the second call from then on, however far the long one is."""
    for head_start in range(1, 5):
        model = HashModel(1)
        scheduler = Scheduler(model)
        scheduler.submit(Job(Line(prompt_of(1, 2000), 3)))
        for _ in range(head_start):
            scheduler.step()
        assert model.call_sizes == [512] * min(head_start, 3) + [464] * (head_start == 4)
        short = Job(Line(prompt_of(2, 10), 3, model))
        scheduler.submit(short)
        before = model.calls
        work(scheduler)
        assert short.future.result(timeout=0)[0] + 1 - before <= 2


def test_a_running_sequence_gets_a_row_in_every_call_of_a_long_prefill() -> None:
    """Beside three long prompts it never misses a call, and no call is longer than its chunk."""
    model = HashModel(1)
    scheduler = Scheduler(model, prefill_rows=64)
    stream = Job(Line([5, 6, 7], 40, model))
    scheduler.submit(stream)
    scheduler.step()
    scheduler.step()
    for seed in range(3):
        scheduler.submit(Job(Line(prompt_of(seed, 700), 1)))
    work(scheduler)
    told = stream.future.result(timeout=0)
    assert told == list(range(told[0], told[0] + 41))
    assert max(model.call_sizes) <= 1 + 64 + 2  # two prompts that have ended ask for a row of their own
    assert sum(model.call_sizes[2:35]) > 33 * 64  # and the prompts have all of the rest


def test_chunks_fill_calls_to_whole_granules() -> None:
    """With one running row and a batch_multiple of 8 the prompt's chunk is 63 rows: none is padded."""
    model = HashModel(1)
    model.set_batch_multiple(8)
    scheduler = Scheduler(model, prefill_rows=63)
    scheduler.submit(Job(Line([5, 6, 7], 20)))
    scheduler.step()
    scheduler.submit(Job(Line(prompt_of(1, 400), 1)))
    for _ in range(4):
        scheduler.step()
    assert model.call_sizes[1:] == model.program_sizes[1:] == [64] * 4


def test_chunks_fill_programs_of_fixed_sizes() -> None:
    """With one running row the prompt's chunk is 40 rows, or what the programs for 41 rows hold beside it."""
    for seconds, n_rows in (({1: 0.002, 8: 0.004, 64: 0.02}, 64), ({1: 0.002, 8: 0.003, 64: 0.03}, 41)):
        limits = replace(WIDE, batch_sizes=BatchSizes.fixed(seconds), call_cost=CallCost(prefill_rows=40))
        model = HashModel(1, limits=limits)
        scheduler = Scheduler(model)
        scheduler.submit(Job(Line([5, 6, 7], 20)))
        scheduler.step()
        scheduler.submit(Job(Line(prompt_of(1, 400), 1)))
        for _ in range(4):
            scheduler.step()
        assert model.call_sizes[1:] == [n_rows] * 4


def test_idle_nodes_that_cost_nothing_stay() -> None:
    """Without a limit nothing is dropped for being idle, however many rows were evaluated since."""
    for max_idle_rows, is_kept in ((20, False), (None, True)):
        model = HashModel(1, limits=replace(WIDE, max_idle_rows=max_idle_rows))
        scheduler = Scheduler(model)
        for seed in range(2):
            scheduler.submit(Job(Line(prompt_of(seed, 50), 1)))
            while not scheduler.idle:
                scheduler.step()
        assert (tuple(prompt_of(0, 50)) in model.contexts.values()) is is_kept


def jobs_of(*prompts: list[int], priorities: tuple[int, ...] = ()) -> list[Job]:
    """Jobs whose prompts hang from the root, nothing of them evaluated."""
    jobs = [Job(Line(prompt, 1)) for prompt in prompts]
    for job in jobs:
        job.cursor = 0
    for job, priority in zip(jobs, priorities, strict=False):
        job.priority = priority
    return jobs


@pytest.mark.parametrize(
    ("lengths", "budget", "expected"),
    [
        ([100], 64, [64]),
        ([100, 100], 64, [32, 32]),
        ([10, 500, 500], 110, [10, 50, 50]),  # what one does not need goes to the others
        ([500, 10, 70], 200, [120, 10, 70]),
        ([50] * 5, 64, [32, 32, 0, 0, 0]),  # no crumbs: the others come next time
        ([50, 50], 1, [1, 0]),
        ([50], 0, [0]),
    ],
)
def test_prompts_share_a_call_fairly(lengths: list[int], budget: int, expected: list[int]) -> None:
    """Equal shares, of which nothing goes unused."""
    jobs = jobs_of(*(prompt_of(seed, n) for seed, n in enumerate(lengths)))
    given_rows = {id(job): n for job, n in allocate_prefill(jobs, budget, is_recurrent=True)}
    assert [given_rows.get(id(job), 0) for job in jobs] == expected


def test_a_shared_beginning_takes_rows_once() -> None:
    """Eight prompts of 300 equal tokens and 10 of their own: they fit 380 rows, but not in a forking model."""
    stem = prompt_of(1, 300)
    prompts = [[*stem, *prompt_of(seed, 10)] for seed in range(2, 10)]
    chunks = allocate_prefill(jobs_of(*prompts), 380, is_recurrent=False)
    assert [n for _, n in chunks] == [310] * 8
    assert sum(n for _, n in allocate_prefill(jobs_of(*prompts), 380, is_recurrent=True)) <= 380


def test_higher_priorities_take_what_they_can_use() -> None:
    """What they leave goes to the next."""
    jobs = jobs_of(prompt_of(1, 90), prompt_of(2, 90), prompt_of(3, 90), priorities=(1, 1, 0))
    assert [n for _, n in allocate_prefill(jobs, 200, is_recurrent=False)] == [90, 90, 20]
    assert [n for _, n in allocate_prefill(jobs, 100, is_recurrent=False)] == [50, 50]


def test_a_prompt_that_two_priorities_have_goes_with_the_higher() -> None:
    """A low one with the same prompt, or one between them, does not hold it back."""
    jobs = jobs_of(prompt_of(1, 60), prompt_of(2, 60), prompt_of(1, 60), priorities=(5, 3, 0))
    assert [(job, n) for job, n in allocate_prefill(jobs, 64, is_recurrent=False)] == [(jobs[0], 60), (jobs[1], 4)]


def n_common(one: list[int], other: list[int]) -> int:
    """How many first elements are equal."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def slowly_allocated(jobs: list[Job], budget: int) -> list[tuple[Job, int]]:
    """Twin of `allocate_prefill` for jobs of one priority: each prompt is compared with each other."""
    jobs = [job for i, job in enumerate(jobs) if job.key not in [other.key for other in jobs[:i]]]
    taking, left = [], budget
    for job in jobs:
        left -= min(job.n_prompt_left, 32)
        if taking and left < 0:
            break
        taking.append(job)
    taking.sort(key=lambda job: job.n_prompt_left)
    to_come = [job.prompt[job.depth :].tolist() for job in taking]
    n = [0] * len(taking)

    def shared(i: int, others: range) -> int:
        near = [j for j in others if j != i and taking[j].cursor == taking[i].cursor]
        return max((n_common(to_come[i], to_come[j][: n[j]]) for j in near), default=0)

    for i in range(len(taking)):
        n_shared = shared(i, range(i))
        n[i] = min(len(to_come[i]), n_shared + budget // (len(taking) - i))
        budget -= n[i] - n_shared
    for i in range(len(taking)):
        n_shared = max(n[i], shared(i, range(len(taking))))
        n[i] = min(len(to_come[i]), n_shared + budget)
        budget -= n[i] - n_shared
    return [(job, count) for job, count in zip(taking, n, strict=True) if count]


@given(
    stems=st.lists(st.lists(st.integers(0, 2), max_size=40), min_size=1, max_size=3),
    drawn=st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=50)), min_size=1, max_size=7),
    cursors=st.lists(st.integers(0, 1), min_size=7, max_size=7),
    budget=st.integers(0, 260),
)
def test_prompts_get_what_comparing_each_with_each_gives(stems, drawn, cursors, budget) -> None:
    """Whatever prompts share, and from wherever they go on."""
    jobs = jobs_of(*([*stems[stem % len(stems)], *rest, 3] for stem, rest in drawn))
    for job, cursor in zip(jobs, cursors, strict=False):
        job.cursor, job.depth = cursor, cursor  # one token is cached
    jobs = [job for job in jobs if job.n_prompt_left]
    assert allocate_prefill(jobs, budget, is_recurrent=False) == slowly_allocated(jobs, budget)


def test_equal_prompts_are_evaluated_by_one() -> None:
    """The others wait for its row and go on in the same call as it does."""
    model = HashModel(1)
    scheduler = Scheduler(model)
    jobs = [Job(Line(prompt_of(1, 40), 3, model)) for _ in range(8)]
    for job in jobs:
        scheduler.submit(job)
    work(scheduler)
    assert model.calls == 1 + 3
    assert model.rows == 40 + 3
    assert len({tuple(job.future.result(timeout=0)[1:]) for job in jobs}) == 1


def test_whoever_waits_for_an_equal_prompt_outlives_it() -> None:
    """The one that evaluates it is cancelled half-way: the next goes on from there."""
    model = HashModel(1)
    scheduler = Scheduler(model)
    first, second = (Job(Line(prompt_of(1, 400), 1)) for _ in range(2))
    for job in (first, second):
        scheduler.submit(job)
    scheduler.step()
    first.cancelled = True
    work(scheduler)
    assert second.future.exception(timeout=0) is None
    assert model.rows == 400 + 1


# Priorities and deadlines


def test_admission_goes_by_priority_then_by_order() -> None:
    """In the room of one: the highest waiting goes next; equals go in order."""
    model = HashModel(1, limits=replace(WIDE, nodes=12))
    scheduler = Scheduler(model)
    ended: list[int] = []
    priorities = [0, 0, 5, 0, 5, -1]
    for i, priority in enumerate(priorities):
        job = Job(Line(prompt_of(i, 4), 8), priority=priority)
        job.future.add_done_callback(lambda i=i: ended.append(i))
        scheduler.submit(job)
    work(scheduler)
    assert ended == [2, 4, 0, 1, 3, 5]


def test_the_lowest_priority_gives_way_first() -> None:
    """Where more was admitted than fits, the most urgent task is never evicted, though it came last."""

    class Boastful(HashModel):
        def capacity(self) -> Capacity:
            capacity = super().capacity()
            return Capacity(capacity.rows, capacity.nodes + 40, capacity.sequences)

    model = Boastful(1, limits=replace(WIDE, nodes=20))
    scheduler = Scheduler(model)
    jobs = [Job(Line(prompt_of(i, 4), 8), priority=i) for i in range(3)]
    for job in jobs:
        scheduler.submit(job)
    n_evicted = [0, 0, 0]
    for _ in range(200):
        held = [job.prompt_node for job in jobs]
        scheduler.step()
        for i, (job, node) in enumerate(zip(jobs, held, strict=True)):
            n_evicted[i] += node != NO_NODE and job.prompt_node == NO_NODE and not job.answered
    assert scheduler.idle
    assert [job.future.exception(timeout=0) for job in jobs] == [None] * 3
    assert n_evicted[2] == 0 < n_evicted[0]


@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_deadline_ends_a_task_with_what_it_has_or_with_an_error(at: int) -> None:
    """Waiting, at its prompt or under way; who needs no longer than it has hears nothing of it."""
    clock = Clock()
    model = HashModel(1)
    scheduler = Scheduler(model, clock=clock)
    lines = [Line(prompt_of(1, 4), 8), Patient(prompt_of(2, 4), 8), Line(prompt_of(3, 4), 8), Line(prompt_of(4, 4), 8)]
    jobs = [Job(line, deadline=deadline) for line, deadline in zip(lines, [5.0, 5.0, 99.0, None], strict=True)]
    for job in jobs:
        scheduler.submit(job)
    for _ in range(at):
        scheduler.step()
    clock.now = 6.5
    work(scheduler)
    error = jobs[0].future.exception(timeout=0)
    assert isinstance(error, DeadlineError)
    assert (error.code, error.late_s) == ("deadline", 1.5)
    assert len(jobs[1].future.result(timeout=0)) == at
    assert [len(job.future.result(timeout=0)) for job in jobs[2:]] == [9, 9]
    assert_empty(scheduler)


def test_a_task_that_cannot_expire_after_all_fails_alone() -> None:
    """What `expire` raises is its caller's."""

    class Clumsy(Patient):
        def expire(self) -> None:
            raise ZeroDivisionError

    clock = Clock()
    scheduler = Scheduler(HashModel(1), clock=clock)
    clumsy, other = Job(Clumsy([5, 6], 3), deadline=1.0), Job(Line([5, 7], 3))
    for job in (clumsy, other):
        scheduler.submit(job)
    scheduler.step()
    clock.now = 1.0
    work(scheduler)
    assert isinstance(clumsy.future.exception(timeout=0), ZeroDivisionError)
    assert len(other.future.result(timeout=0)) == 4
    assert_empty(scheduler)


def test_an_outcome_cannot_be_cancelled_past_the_scheduler() -> None:
    """A job is cancelled by its `cancelled`, so every outcome that is waited for is set."""
    assert not hasattr(Job(Line([5, 6], 3)).future, "cancel")


def assert_empty(scheduler: Scheduler) -> None:
    """Nothing is held: with the caches dropped, the context tree has the root alone."""
    scheduler.forget_all()
    assert scheduler.model.contexts == {0: ()}


# The model's thread


class Gated(HashModel):
    """A model whose decodes wait for a gate. begun: one is waiting."""

    def __init__(self, **options: Any) -> None:
        super().__init__(1, **options)
        self.gate, self.begun = threading.Event(), threading.Event()
        self.on_decode = self._wait

    def _wait(self) -> None:
        self.begun.set()
        assert self.gate.wait(LONG_S)


@pytest.fixture
def gated() -> Any:
    """A gated model and its thread, with room for two waiting tasks, on a clock of its own."""
    model = Gated(limits=replace(WIDE, nodes=12))
    clock = Clock()
    model_thread = ModelThread(model, max_waiting=2, clock=clock)
    yield model, model_thread, clock
    model.gate.set()
    model_thread.close()


def wait_until(condition: Any) -> bool:
    """Look every millisecond; False where it did not come true in time."""
    pause = threading.Event()
    return any(condition() or pause.wait(0.001) for _ in range(LONG_S * 1000))


def test_a_full_queue_refuses_before_anything_is_queued(gated: Any) -> None:
    """One under way, two waiting: the fourth is refused in its own thread; when one is done there is room again."""
    model, model_thread, _ = gated
    handles = [model_thread.submit(Line(prompt_of(0, 4), 8))]
    assert model.begun.wait(LONG_S)
    handles += [model_thread.submit(Line(prompt_of(i, 4), 8)) for i in (1, 2)]
    with pytest.raises(
        QueueFullError, match="at most 2 tasks may wait, which leaves no room for one more; try again later"
    ) as caught:
        model_thread.submit(Line(prompt_of(3, 4), 8))
    assert (caught.value.code, caught.value.max_waiting) == ("queue_full", 2)
    assert model_thread.load().n_waiting == 2
    handles[1].cancel()
    model.gate.set()
    with pytest.raises(CancelledError):
        handles[1].result()
    assert [len(handle.result()) for handle in (handles[0], handles[2])] == [9, 9]
    again = [model_thread.submit(Line(prompt_of(i, 4), 8)) for i in (1, 2)]  # no place was lost
    assert [len(handle.result()) for handle in again] == [9, 9]


def test_every_task_of_a_request_counts_as_waiting(gated: Any) -> None:
    """Also those that were queued at once while a call runs."""
    model, model_thread, _ = gated
    first = model_thread.submit(Line(prompt_of(0, 4), 8))
    assert model.begun.wait(LONG_S)
    handles = [model_thread.handle(Job(Line(prompt_of(i, 4), 8))) for i in (1, 2)]
    model_thread.queue(*handles)
    assert model_thread.load().n_waiting == 2
    model.gate.set()
    assert [len(handle.result()) for handle in (first, *handles)] == [9, 9, 9]
    assert model_thread.load().n_waiting == 0


def test_load_tells_what_is_free(gated: Any) -> None:
    """Idle, busy with what is reserved, and idle again."""
    model, model_thread, _ = gated
    assert model_thread.load() == Load(n_active=0, n_waiting=0, nodes_free=12, sequences_free=256)
    handles = [model_thread.submit(Line([5, 6], 4)), model_thread.submit(Line(prompt_of(1, 4), 8))]
    assert model.begun.wait(LONG_S)
    busy = model_thread.load()
    assert (busy.n_active, busy.n_waiting) == (1, 1)
    assert busy.nodes_free <= 12 - 6
    model.gate.set()
    for handle in handles:
        handle.result()
    assert wait_until(lambda: model_thread.load() == Load(0, 0, 12, 256))


class Told:
    """An account that keeps what it is told."""

    def __init__(self, name: str, told: list[str]) -> None:
        self.name, self.told, self.cost, self.n_reused = name, told, Cost(), []

    def note_admission(self) -> None:
        """Add its name to a list."""
        self.told.append(self.name)

    def add_cost(self, cost: Cost) -> None:
        """Add up costs."""
        self.cost += cost

    def add_reused(self, n_tokens: int) -> None:
        """Keep the numbers."""
        self.n_reused.append(n_tokens)


def test_admission_is_told_when_there_is_memory(gated: Any) -> None:
    """Of the first task at once, of one that waits when the first has ended; only in the context that asked."""
    model, model_thread, _ = gated
    told: list[str] = []

    def begun(name: str, line: Line) -> Any:
        charge_to(Told(name, told))
        return TaskGroup(model_thread).begin(line)

    first = copy_context().run(begun, "first", Line([5, 6], 4))
    second = copy_context().run(begun, "second", Line(prompt_of(1, 4), 8))
    assert model.begun.wait(LONG_S)
    assert (model_thread.load().n_waiting, told) == (1, ["first"])
    model.gate.set()
    assert [len(handle.result()) for handle in (first, second)] == [5, 9]
    assert told == ["first", "second"]
    model_thread.submit(Line([5, 6], 4)).result()
    assert told == ["first", "second"]


def test_an_account_is_told_of_work_that_is_cancelled(gated: Any) -> None:
    """It has the rows and calls of a task that never ends; of one whose prompt is in memory, how much of it."""
    model, model_thread, _ = gated
    model.gate.set()
    account, stepped, go, settled = Told("", []), threading.Event(), threading.Event(), threading.Event()

    def on_step() -> None:
        stepped.set()
        assert go.wait(LONG_S)

    def begun(line: Line) -> Any:
        charge_to(account)
        return TaskGroup(model_thread).begin(line, on_step)

    handle = copy_context().run(begun, Line([5, 6, 7], 4))
    assert stepped.wait(LONG_S)
    handle.cancel()
    model_thread.after_step(settled.set)
    assert not settled.is_set()
    go.set()
    with pytest.raises(CancelledError):
        handle.result()
    assert settled.wait(LONG_S)
    assert account.cost == handle.cost
    assert (account.cost.rows, account.cost.model_calls, account.n_reused) == (3, 1, [0])
    assert len(copy_context().run(begun, Line([5, 6, 7], 2)).result()) == 3
    assert account.n_reused == [0, 3]
    model_thread.close()
    late: list[int] = []
    model_thread.after_step(lambda: late.append(1))
    assert late == [1]


def test_an_interrupted_call_is_paid_for_by_its_seconds() -> None:
    """Its rows are evaluated again, and count once."""
    scheduler = Scheduler(HashModel(1))
    job = Job(Line([5, 6], 2))
    job.account = account = Told("", [])
    scheduler.submit(job)
    scheduler.model.fail_next(DecodeInterrupted("planted"))
    scheduler.step()
    assert (account.cost.rows, account.cost.model_calls) == (0, 0)
    assert account.cost.decode_s > 0
    while not scheduler.idle:
        scheduler.step()
    assert account.cost == job.cost
    assert account.cost.rows == scheduler.model.rows


def test_a_deadline_counts_from_when_it_was_asked_for(gated: Any) -> None:
    """On the clock of the model's thread; a deadline that is none is refused."""
    model, model_thread, clock = gated
    clock.now = 100.0
    late, early = (
        model_thread.submit(Line([5, 6], 4), deadline_s=2.0),
        model_thread.submit(Line([5, 7], 4), deadline_s=50.0),
    )
    assert model.begun.wait(LONG_S)
    clock.now = 103.0
    model.gate.set()
    with pytest.raises(DeadlineError, match="1 s ago"):
        late.result()
    assert len(early.result()) == 5
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(OptionError, match="deadline_s"):
            model_thread.submit(Line([5, 6], 4), deadline_s=wrong)


def test_a_forgotten_handle_cancels_its_task_and_frees_its_nodes(gated: Any) -> None:
    """Collected while its decode runs, or while it waits: nobody hears of it, nothing is held; who is kept is answered."""
    model, model_thread, _ = gated
    kept = model_thread.submit(Line([5, 6, 7], 2))
    assert model.begun.wait(LONG_S)
    lines = [Line([5, 6, 8], 4), Line(prompt_of(1, 4), 8)]
    handles = [model_thread.submit(line) for line in lines]
    handles[0].me = handles  # a cycle: only the collector finds it
    del handles
    gc.collect()
    model.gate.set()
    assert len(kept.result()) == 3
    assert wait_until(lambda: model_thread.load() == Load(0, 0, 12, 256))
    assert [len(line.told) for line in lines] == [0, 0]
    model_thread.call(model_thread.scheduler.forget_all)
    assert model.contexts == {0: ()}


def test_a_forgotten_handle_of_a_finished_task_stops_nobody(gated: Any) -> None:
    """The decode that runs for others goes on."""
    model, model_thread, _ = gated
    model.gate.set()
    handle: Handle[list[int]] = model_thread.submit(Line([5, 6, 7], 2))
    handle.result()
    model.gate.clear()
    model.begun.clear()
    other = model_thread.submit(Line([5, 6, 8], 2))
    assert model.begun.wait(LONG_S)
    del handle
    gc.collect()
    assert not model._is_interrupted
    model.gate.set()
    assert len(other.result()) == 3


def test_a_shared_decode_is_stopped_when_the_last_sharer_is_cancelled(gated: Any) -> None:
    """Two share it: the first cancellation leaves it, the second stops it."""
    model, model_thread, _ = gated
    model.gate.set()
    gate = threading.Event()
    holder = threading.Thread(target=lambda: model_thread.call(lambda: gate.wait(LONG_S)))
    holder.start()
    assert wait_until(lambda: model_thread._running is not None)
    model.gate.clear()
    model.begun.clear()
    handles = [model_thread.submit(Line([5, 6, i], 1)) for i in (7, 8)]
    gate.set()
    holder.join()
    assert model.begun.wait(LONG_S)
    assert len(model_thread.scheduler.calling) == 2
    handles[0].cancel()
    assert not model._is_interrupted
    handles[1].cancel()
    assert model._is_interrupted
    model.gate.set()
    for handle in handles:
        with pytest.raises(CancelledError):
            handle.result()
    assert model.calls == 0


# Everything at once


@pytest.fixture(scope="module")
def tries() -> list[TokenTrie]:
    """Sets of token paths for the tasks to score."""
    rng = np.random.default_rng(3)
    return [
        TokenTrie.from_sequences(
            [rng.integers(2, 6, size=rng.integers(1, 5)).tolist() for _ in range(rng.integers(2, 9))]
        )
        for _ in range(12)
    ]


N_RECIPES = 400
"""Different tasks; some come more than once, at times together."""
Fact = tuple[Any, ...]
STEM = prompt_of(7, 6)


def random_task(rng: np.random.Generator, tries: list[TokenTrie]) -> tuple[str, Any]:
    """A task of some kind on one of many prompts, a third of which are long."""
    n_shared = int(rng.integers(1, 7))
    prompt = as_ids([*STEM[:n_shared], *rng.integers(2, 5, size=rng.integers(0, 24 if rng.random() < 0.3 else 3))])
    trie = tries[rng.integers(len(tries))]
    kind = ("score", "best", "sample", "sample")[rng.integers(4)]
    if kind == "score":
        return kind, ScoreTask(prompt, trie, row_needs(trie, "none"))
    if kind == "best":
        needs = row_needs(trie, "none")
        search = SearchParams(width=int(rng.integers(1, 5)))
        task = BestFirst(prompt, trie, needs, "none", objective=plain_objective(trie), search=search)
        task.known_trie = trie
        return kind, task
    sampling = (SamplingParams(), SamplingParams.UNCHANGED, SamplingParams.GREEDY)[rng.integers(3)]
    stopping = StopParams(max_tokens=int(rng.integers(1, 10)), ignore_eog=bool(rng.random() < 0.5))
    spec = SampleSpec(
        prompt=prompt,
        pieces=VOCABULARY.pieces,
        eog=VOCABULARY.eog,
        seed=int(rng.integers(6)),
        sampling=sampling,
        stopping=stopping,
    )
    return kind, SampleTask(spec)


def facts_of(kind: str, task: Any, answer: Any) -> Fact:
    """What of an answer may not depend on what ran beside it, to the last bit."""
    if kind == "sample":
        return answer.text, answer.tokens.tolist(), answer.logp.tolist(), answer.finish
    if kind == "score":
        return answer.edge_logp.tobytes(), answer.rest.low.tobytes()
    logp = path_scores(task.known_trie, answer.evaluation, "none").logp.low
    best = int(np.nanargmax(logp))
    return answer.proved, best, float(logp[best])


@cache
def known_row(path: tuple[int, ...]) -> Any:
    """The row of a path in the model of all these tests, hashed once."""
    return HashModel(1).row(path)


class Recalled(HashModel):
    """`HashModel(1)`, faster."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(1, limits=limits, vocabulary=VOCABULARY)
        self._row_of = known_row


class Unreliable(Recalled):
    """A model whose calls fail at random, often several in a row: decodes, room, and interrupts."""

    def __init__(self, limits: Limits, rng: np.random.Generator, rate: float) -> None:
        super().__init__(limits)
        self._rng, self._rate = rng, rate
        self._is_failing, self.n_failed = False, 0

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        self._is_failing = self._rng.random() < (0.5 if self._is_failing else self._rate)
        if self._is_failing:
            self.n_failed += 1
            errors = (
                DecodeError("planted"),
                CapacityError("nodes", required=9, available=1),
                DecodeInterrupted("planted"),
            )
            self.fail_next(errors[self._rng.integers(3)])
        return super().extend(parents, tokens, wanted, keep)


class Storm:
    """Many tasks that come and go on an unreliable model; `weather` steps it, `check` holds every answer to its solo one."""

    def __init__(self, seed: int, n_tasks: int, kind: ModelKind, tries: list[TokenTrie]) -> None:
        self.rng, self.tries = np.random.default_rng(seed), tries
        limits = Limits(nodes=120, sequences=40, rows_per_call=48, kind=kind, max_idle_rows=60)
        self.model = Unreliable(limits, np.random.default_rng(seed + 1), rate=0.06)
        self.clock = Clock()
        self.scheduler = Scheduler(self.model, 26 * 4 * 12, prefill_rows=16, clock=self.clock)
        self.n_left, self.n_steps = n_tasks, 0
        self.jobs: list[tuple[Job, str, Any, int]] = []
        self._answers: dict[int, Any] = {}

    def weather(self) -> None:
        """A step, with whatever comes and goes before it."""
        for _ in range(int(self.rng.poisson(0.9))):
            if self.n_left:
                self.n_left -= 1
                self._arrive()
        if self.jobs and self.rng.random() < 0.06:
            self.jobs[-int(self.rng.integers(1, min(len(self.jobs), 8) + 1))][0].cancelled = True
        self.clock.now += float(self.rng.random())
        self.scheduler.step()
        self.n_steps += 1

    def _arrive(self) -> None:
        recipe = int(self.rng.integers(N_RECIPES))
        kind, task = random_task(np.random.default_rng(recipe), self.tries)
        deadline = self.clock.now + float(self.rng.exponential(12)) if self.rng.random() < 0.2 else None
        job = Job(task, priority=int(self.rng.integers(-1, 2)), deadline=deadline)
        self.jobs.append((job, kind, task, recipe))
        self.scheduler.submit(job)

    def _alone(self, recipe: int) -> Any:
        """What such a task answers on a model of its own with all the room there is."""
        if recipe not in self._answers:
            _, task = random_task(np.random.default_rng(recipe), self.tries)
            self._answers[recipe] = run(task, Recalled(replace(WIDE, kind=self.model.limits.kind)))
        return self._answers[recipe]

    def check(self) -> Counter[str]:
        """How the tasks ended; every one that has an answer has the one that it has alone."""
        ends: Counter[str] = Counter()
        for job, kind, task, recipe in self.jobs:
            error = job.future.exception(timeout=0)
            if error is not None:
                assert isinstance(error, CancelledError | DeadlineError | DecodeError | CapacityError), error
                ends[type(error).__name__] += 1
                continue
            answer = job.future.result(timeout=0)
            expected = self._alone(recipe)
            if kind == "sample" and answer.finish == "deadline":
                assert answer.tokens.tolist() == expected.tokens[: len(answer.tokens)].tolist()
                ends["deadline"] += 1
                continue
            assert facts_of(kind, task, answer) == facts_of(kind, task, expected)
            ends[kind] += 1
        return ends


@pytest.mark.parametrize(
    ("kind", "n_tasks"),
    [
        (ModelKind.ATTENTION, 500),
        pytest.param(ModelKind.ATTENTION, 2000, marks=pytest.mark.long),
        (ModelKind.RECURRENT, 300),
    ],
)
def test_two_thousand_tasks_come_and_go(kind: ModelKind, n_tasks: int, tries: list[TokenTrie]) -> None:
    """Random arrival, cancellation, priorities, deadlines, failing calls: every survivor's answer is the one it has alone,
    to the last bit; all end in a bounded number of steps; no node is left."""
    storm = Storm(5, n_tasks, kind, tries)
    most = 4 * n_tasks
    while storm.n_left or not storm.scheduler.idle:
        storm.weather()
        assert storm.n_steps < most
    ends = storm.check()
    assert sum(ends.values()) == n_tasks
    assert min(ends[name] for name in ("score", "best", "sample")) > n_tasks / 20, ends
    assert {"CancelledError", "DeadlineError", "DecodeError", "deadline"} <= set(ends), ends
    assert storm.model.n_failed > n_tasks / 50
    assert sum(job.cost.rows_repeated for job, *_ in storm.jobs) > 0  # some gave way and came back
    assert_empty(storm.scheduler)


def test_mixed_up_rows_are_caught(tries: list[TokenTrie]) -> None:
    """The comparison fails where every prompt passes for the same, so that tasks are told their neighbours' rows."""
    storm = Storm(5, 40, ModelKind.ATTENTION, tries)
    while storm.n_left or not storm.scheduler.idle:
        storm.weather()
        for job, *_ in storm.jobs:
            job.key = b"the same"
    with pytest.raises(AssertionError):
        storm.check()
