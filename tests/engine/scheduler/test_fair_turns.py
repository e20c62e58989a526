"""Turns of clients: a large request takes what others leave, and no more."""

from __future__ import annotations

from collections import Counter
from contextvars import copy_context
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.model import Extension
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import CallCost, Capacity, ModelKind
from selectrie.decoding.task import Ask
from selectrie.engine.scheduler.scheduler import Job, Scheduler
from selectrie.engine.scheduler.task_group import TaskGroup, set_client
from selectrie.engine.scheduler.turns import CallTimes, Turn, in_turns, move_to_end, shares_of
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE
from tests.support.n_examples import n_examples


class Timed(HashModel):
    """A model that says how long its calls take: `call_s` each, and `row_s` for a row."""

    call_s, row_s = 0.0, 0.01

    def extend(self, *args: Any) -> Extension:
        extension = super().extend(*args)
        return replace(extension, decode_s=self.call_s + self.row_s * extension.rows_evaluated)


class Line:
    """A task that asks for one row a step, `n` times; its result is what it was told."""

    def __init__(self, prompt: list[int], n: int) -> None:
        self.prompt = np.array(prompt, dtype=np.int32)
        self.floor = Capacity(rows=1, nodes=max(n, 1), sequences=1)
        self._n = n
        self.told: list[int] = []

    def ask(self, capacity: Capacity) -> Ask | None:
        if len(self.told) > self._n:
            return None
        one = np.ones(1, dtype=np.bool_)
        row, token = [len(self.told) - 1], [2 + len(self.told) % 20]
        return Ask(np.array(row, dtype=np.int32), np.array(token, dtype=np.int32), one, one)

    def reads(self) -> Reads:
        return Reads.everything(1)

    def tell(self, rows: Rows) -> None:
        self.told.append(int(rows.top(0, 1)[0][0]))

    def result(self) -> list[int]:
        return self.told


class Search(Line):
    """A line that reserves 129 nodes until it ends, as a search for texts of 128 tokens does."""

    def __init__(self, prompt: list[int], n: int) -> None:
        super().__init__(prompt, n)
        self.floor = replace(self.floor, nodes=129)


def prompt_of(seed: int, n: int) -> list[int]:
    """Return a prompt of n tokens."""
    return np.random.default_rng(seed).integers(2, 26, size=n).tolist()


def submit(scheduler: Scheduler, tasks: list[Line], client: Turn | None = None) -> list[Job]:
    """Queue tasks as one request, of this client or one of its own."""
    request = Turn()
    jobs = [Job(task) for task in tasks]
    for job in jobs:
        job.request, job.client = request, client or request
        scheduler.submit(job)
    return jobs


def finish(scheduler: Scheduler) -> None:
    """Step until all is done."""
    for _ in range(20_000):
        if scheduler.idle:
            return
        scheduler.step()
    pytest.fail("the scheduler does not finish")


def calls_until_done(scheduler: Scheduler, model: HashModel, jobs: list[Job]) -> int:
    """Step until these jobs are done; return the number of calls."""
    before = model.calls
    while not all(job.future.done() for job in jobs):
        scheduler.step()
    return model.calls - before


# Order


def test_the_first_of_each_client_comes_before_the_second_of_any() -> None:
    """Priority, then rounds over clients, in each of them rounds over requests, then the order of jobs."""
    a, b = Turn(), Turn()
    a1, a2, b1 = Turn(), Turn(), Turn()
    owners = {"a1.0": (a, a1), "a1.1": (a, a1), "a1.2": (a, a1), "a2.0": (a, a2), "b1.0": (b, b1), "b1.1": (b, b1)}
    jobs = {}
    for name, (client, request) in owners.items():
        job = jobs[name] = Job(Line([1], 1))
        job.client, job.request = client, request
    names = {job: name for name, job in jobs.items()}
    assert [names[job] for job in in_turns(jobs.values())] == ["a1.0", "b1.0", "a2.0", "b1.1", "a1.1", "a1.2"]
    shares = {name: shares_of(list(jobs.values()))[job] for name, job in jobs.items()}
    assert shares == pytest.approx({"a1.0": 1 / 6, "a1.1": 1 / 6, "a1.2": 1 / 6, "a2.0": 0.5, "b1.0": 0.5, "b1.1": 0.5})
    move_to_end([jobs["a1.0"]])
    assert [names[job] for job in in_turns(jobs.values())][:3] == ["b1.0", "a2.0", "b1.1"]
    jobs["a1.2"].priority = 1
    assert names[in_turns(jobs.values())[0]] == "a1.2"


@settings(max_examples=n_examples(15))
@given(data=st.data())
def test_nobody_under_way_waits_for_more_calls_than_there_are_clients(data: st.DataObject) -> None:
    """Whatever clients ask, each with a task admitted has rows in one of as many calls; answers are those given alone."""
    limits = replace(WIDE, rows_per_call=data.draw(st.integers(2, 24)), call_cost=CallCost(min_rows=1))
    model = Timed(1, limits=limits)
    model.call_s = data.draw(st.sampled_from([0.0, 0.05]))
    scheduler = Scheduler(model, clock=lambda: 0.0)
    clients = [Turn() for _ in range(data.draw(st.integers(2, 6)))]
    lines = st.tuples(st.integers(1, 12), st.integers(1, 4))
    owned: dict[Turn, list[Job]] = {client: [] for client in clients}
    tasks: list[tuple[Job, int, int]] = []
    waited: Counter[Turn] = Counter()
    for _ in range(25):
        if data.draw(st.integers(0, 3)) == 0:
            client = data.draw(st.sampled_from(clients))
            drawn = data.draw(st.lists(lines, min_size=1, max_size=4))
            jobs = submit(scheduler, [Line(prompt_of(n, n), steps) for n, steps in drawn], client)
            owned[client] += jobs
            tasks += [(job, *one) for job, one in zip(jobs, drawn, strict=True)]
        before = {client: sum(job.cost.rows for job in owned[client]) for client in clients}
        scheduler.step()
        for client in clients:
            is_served = sum(job.cost.rows for job in owned[client]) > before[client]
            is_active = any(job in scheduler._active for job in owned[client])
            waited[client] = waited[client] + 1 if is_active and not is_served else 0
            assert waited[client] <= len(clients)
    finish(scheduler)
    for job, n, steps in tasks:
        alone = Scheduler(HashModel(1))
        (same,) = submit(alone, [Line(prompt_of(n, n), steps)])
        finish(alone)
        assert job.future.result(0) == same.future.result(0)


def test_two_clients_have_equal_rows_although_one_has_sixty_four_requests() -> None:
    """In calls that are full each gets half, also while only one of them has prompts left."""
    scheduler = Scheduler(HashModel(1, limits=replace(WIDE, rows_per_call=16, nodes=50_000)))
    many, single = Turn(), Turn()
    of_many = [job for i in range(64) for job in submit(scheduler, [Line(prompt_of(i, 5), 40)], many)]
    of_single = submit(scheduler, [Line(prompt_of(100 + i, 5), 40) for i in range(16)], single)
    while not any(job.future.done() for job in of_single):
        scheduler.step()
    rows = [sum(job.cost.rows for job in jobs) for jobs in (of_many, of_single)]
    assert rows[1] > 250
    assert 0.8 < rows[0] / rows[1] < 1.25


def test_a_small_request_goes_on_in_every_call_beside_one_of_many_tasks() -> None:
    """128 tasks have begun; one of four rows begins in the next call and takes no more calls than alone."""
    model = HashModel(1, limits=replace(WIDE, rows_per_call=32, nodes=50_000))
    scheduler = Scheduler(model)
    submit(scheduler, [Line(prompt_of(i, 8), 60) for i in range(128)])
    for _ in range(40):
        scheduler.step()
    small = submit(scheduler, [Line(prompt_of(999, 8), 4)])
    assert calls_until_done(scheduler, model, small) <= 6


# Memory


@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.HYBRID])
def test_a_small_request_gets_its_share_of_a_full_memory(kind: ModelKind) -> None:
    """Eight tasks of 30 rows fill it, eight wait; a ninth, of another client, runs within a few calls, and nothing is lost."""
    limits = replace(WIDE, nodes=290, sequences=18 if kind is ModelKind.HYBRID else 64, kind=kind)
    model = HashModel(1, limits=limits)
    scheduler = Scheduler(model)
    large = submit(scheduler, [Line(prompt_of(i, 5), 30) for i in range(16)])
    for _ in range(10):
        scheduler.step()
    assert scheduler.load.n_waiting >= 8
    small = submit(scheduler, [Line(prompt_of(999, 8), 4)])
    assert calls_until_done(scheduler, model, small) <= 10
    finish(scheduler)
    assert [job.future.result(0) for job in large] == [_alone(Line(prompt_of(i, 5), 30)) for i in range(16)]


def _alone(task: Line) -> Any:
    scheduler = Scheduler(HashModel(1))
    (job,) = submit(scheduler, [task])
    finish(scheduler)
    return job.future.result(0)


@pytest.mark.parametrize(("n_clients", "need"), [(1, 150), (2, 300), (3, 150), (4, 60)])
def test_a_large_request_gets_on_beside_small_ones_that_never_end(n_clients: int, need: int) -> None:
    """Whenever a small one has ended, the next one comes: the large one ends, and repeats no more than it evaluates."""
    model = HashModel(1, limits=replace(WIDE, nodes=1000, rows_per_call=64))
    scheduler = Scheduler(model)
    large = submit(scheduler, [Line(prompt_of(1, 700), 200)])[0]
    small: list[Job | None] = [None] * n_clients
    n_small = 0
    for _ in range(1000):
        for at, one in enumerate(small):
            if one is None or one.future.done():
                n_small += 1
                small[at] = submit(scheduler, [Line(prompt_of(1000 + n_small, need - 5), 5)])[0]
        scheduler.step()
        if large.future.done():
            break
    assert large.future.done()
    assert n_small > n_clients
    assert large.cost.rows_repeated <= large.cost.rows - large.cost.rows_repeated


def test_within_one_client_small_requests_do_not_wait_for_the_memory_of_large_ones() -> None:
    """Four that each reserve all of it would run one after the other before the small one."""
    model = HashModel(1, limits=replace(WIDE, nodes=1000))
    scheduler, key = Scheduler(model), Turn()
    large = [submit(scheduler, [Line(prompt_of(at, 10), 900)], client=key)[0] for at in range(4)]
    scheduler.step()
    small = submit(scheduler, [Line(prompt_of(9, 10), 4)], client=key)
    assert calls_until_done(scheduler, model, small) < 20
    assert not any(one.future.done() for one in large)


@pytest.mark.parametrize("n_clients", [1, 4, 8, 12])
def test_a_request_larger_than_its_share_waits_for_few_others(n_clients: int) -> None:
    """Whenever a search of another client ends, the next one comes: those that are there and eight more go before it."""
    model = HashModel(1, limits=replace(WIDE, nodes=1000, rows_per_call=64))
    scheduler = Scheduler(model)
    searches, lengths = list[Job](), np.random.default_rng(0)
    n_begun = n_ended = 0

    def step() -> None:
        nonlocal n_begun, n_ended
        n_ended += sum(job.future.done() for job in searches)
        searches[:] = [job for job in searches if not job.future.done()]
        while len(searches) < n_clients:
            n_begun += 1
            searches.append(submit(scheduler, [Search(prompt_of(n_begun, 4), int(lengths.integers(10, 60)))])[0])
        scheduler.step()

    for _ in range(100):
        step()
    (large,) = submit(scheduler, [Line(prompt_of(0, 480), 20)])
    n_before = n_ended
    while large.n_rows_evaluated == 0:
        assert n_ended - n_before <= n_clients + 8
        step()
    while not large.future.done():
        step()
    assert large.cost.rows_repeated == 0


@pytest.mark.parametrize("n_searches", [8, 12, 20])
def test_a_request_of_several_tasks_waits_once_for_the_memory_of_searches(n_searches: int) -> None:
    """Seven fit, and each that ends is replaced: the tasks after the first take no more calls than alone."""
    model = HashModel(1, limits=replace(WIDE, nodes=1000, rows_per_call=64))
    scheduler, key = Scheduler(model), Turn()
    searches: list[Job] = []
    n_begun, n_steps = 0, 60

    def step() -> None:
        nonlocal n_begun
        searches[:] = [job for job in searches if not job.future.done()]
        while len(searches) < n_searches:
            n_begun += 1  # of different lengths, so that they do not end together
            searches.append(submit(scheduler, [Search(prompt_of(n_begun, 4), n_steps - 7 * (n_begun % 7))], key)[0])
        scheduler.step()

    for _ in range(100):
        step()
    chat, waits = Turn(), list[int]()
    for part in range(8):
        job = Job(Line(prompt_of(0, 150 + part), 8))
        job.request, job.client = chat, key
        scheduler.submit(job)
        n_before = model.calls
        while not job.future.done():
            assert model.calls < 4000
            step()
        waits.append(model.calls - n_before)
    assert waits[0] <= n_steps * n_searches / 7 + 20
    assert max(waits[1:]) <= 10


def test_the_groups_of_a_context_are_one_request_of_its_client() -> None:
    """A server's request calls the engine several times, which begins a group each time."""
    jobs: list[Job] = []

    def handle(job: Job) -> Any:
        jobs.append(job)
        return SimpleNamespace(is_done=False)

    runner: Any = SimpleNamespace(observer=None, handle=handle, queue=lambda _: None)
    key = Turn()

    def serve() -> None:
        set_client(key)
        for _ in range(2):
            TaskGroup(runner).begin(Line([1], 1))

    for _ in range(2):
        copy_context().run(serve)
    assert {job.client for job in jobs} == {key}
    first, second, third, fourth = (job.request for job in jobs)
    assert first is second
    assert third is fourth
    assert first is not third
    TaskGroup(runner).begin(Line([1], 1))
    assert jobs[-1].request is jobs[-1].client is not key


def test_a_small_request_passes_one_that_does_not_fit() -> None:
    """A large one waits for memory that another holds; the small one behind it fits, and does not wait for either."""
    model = HashModel(1, limits=replace(WIDE, nodes=1000))
    scheduler = Scheduler(model)
    first, second = (submit(scheduler, [Line(prompt_of(at, 500), 100)])[0] for at in (1, 2))
    scheduler.step()
    small = submit(scheduler, [Line(prompt_of(3, 20), 4)])
    assert calls_until_done(scheduler, model, small) < 10
    assert not first.future.done()
    assert not second.future.done()


def test_priorities_come_before_turns() -> None:
    """A client's job of high priority is its first, whatever it has of a lower one."""
    low, high, other = (SimpleNamespace(priority=p, request=Turn(), client=Turn()) for p in (0, 1, 1))
    low.client = high.client
    assert in_turns([low, high, other])[:2] == [high, other]


def test_calls_are_short_while_several_clients_are_under_way() -> None:
    """Of 0.01 s a row: a prompt alone has calls of 512 rows; beside a second one 0.25 s; beside a stream that of 4 rows."""
    model = Timed(1, limits=replace(WIDE, nodes=50_000, call_cost=CallCost(min_rows=8)))
    scheduler = Scheduler(model, clock=lambda: 0.0)
    submit(scheduler, [Line(prompt_of(1, 3000), 1)])
    scheduler.step()
    submit(scheduler, [Line(prompt_of(2, 2000), 1)])
    for _ in range(5):
        scheduler.step()
    stream = submit(scheduler, [Line(prompt_of(3, 4), 20)])
    for _ in range(5):
        scheduler.step()
    assert model.call_sizes == [512, 25, 25, 25, 25, 25, 16, 16, 4, 4, 4]
    assert stream[0].cost.model_calls == 3


def test_alone_a_request_has_calls_of_full_size() -> None:
    """A request of many tasks makes the calls that it makes on a model whose calls take no time."""
    sizes = []
    for row_s in (0.0, 1.0):
        model = Timed(1)
        model.row_s = row_s
        scheduler = Scheduler(model, clock=lambda: 0.0)
        submit(scheduler, [Line(prompt_of(i, 60), 6) for i in range(12)])
        finish(scheduler)
        sizes.append(model.call_sizes)
    assert sizes[0] == sizes[1]


def test_times_of_calls_are_a_line_through_the_recent_ones() -> None:
    """0.1 s a call and 0.01 s a row are found from calls of two sizes, also where tasks take as long again later."""
    times = CallTimes()
    assert times.rows_for(1, 2, 4) == float("inf")
    for n in (1, 100) * 20:
        times.add(n, 0.1 + 0.01 * n, 0.0)
    assert times.rows_for(10_000, 2, 4) == pytest.approx(15)
    assert times.rows_for(10_000, 2, 64) == pytest.approx(64)
    assert times.rows_for(1, 2, 64) == pytest.approx(2 * 10 + 3)
    for n in (1, 100) * 100:
        times.add(n, 0.1 + 0.01 * n, 0.1 + 0.02 * n)
    assert times.rows_for(10_000, 2, 4) == pytest.approx(7.5, rel=0.02)


def test_calls_are_short_where_tasks_take_longer_than_the_model() -> None:
    """Drawing takes 0.1 s a row, ten times as long as the model: as many rows as the model would take 0.25 s for would
    then be calls of seconds. What a small request waits for goes by the model's own time."""
    times = CallTimes()
    for n in (1, 100) * 40:
        times.add(n, 0.1 + 0.01 * n, 0.1 + 0.11 * n)
    assert times.rows_for(10_000, 2, 32) == pytest.approx(0.32 / 0.11, rel=0.02)
    assert times.rows_for(1, 2, 32) == pytest.approx((3 * 0.11 - 0.1) / 0.11, rel=0.02)
