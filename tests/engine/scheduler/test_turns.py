"""Turns, places and states: nobody is left out, nothing that was reserved is lost."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest

from selectrie.core.rows import Reads, Rows
from selectrie.core.types import Capacity, IntArray, ModelKind
from selectrie.decoding.sampling.task import SampleSpec, SampleTask
from selectrie.decoding.task import Ask
from selectrie.engine.scheduler.model_thread import ModelThread
from selectrie.engine.scheduler.scheduler import Job, Load, Scheduler
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import DecodeInterrupted, QueueFullError
from selectrie.options import StopParams
from selectrie.testing import HashModel, make_vocabulary
from selectrie.testing.fakes import WIDE
from selectrie.testing.oracles import run

VOCABULARY = make_vocabulary()
LONG_S = 20
"""Seconds after which something that never happens is given up."""


def as_ids(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int32)


def sequence(prompt: list[int], seed: int, n: int) -> SampleTask:
    """A sequence of exactly n tokens."""
    return SampleTask(
        SampleSpec(
            prompt=as_ids(prompt),
            pieces=VOCABULARY.pieces,
            eog=VOCABULARY.eog,
            seed=seed,
            stopping=StopParams(max_tokens=n, ignore_eog=True),
        )
    )


class Wide:
    """A task that asks once, for as many rows below its prompt as it may; its result is their most probable tokens."""

    def __init__(self, prompt: list[int], n: int = 20, failing: BaseException | None = None) -> None:
        self.prompt, self.floor = as_ids(prompt), Capacity(1, n, n)
        self._n, self._failing, self.best = n, failing, None

    def ask(self, capacity: Capacity) -> Ask | None:
        if self.best is not None:
            return None
        n = min(self._n, capacity.rows)
        every = np.ones(n, dtype=np.bool_)
        return Ask(np.zeros(n, dtype=np.int32), np.arange(n, dtype=np.int32), every, every)

    def reads(self) -> Reads:
        return Reads.everything(self._n)

    def tell(self, rows: Rows) -> None:
        if self._failing is not None:
            raise self._failing
        self.best = [int(rows.top(i, 1)[0][0]) for i in range(len(rows))] if len(rows) > 1 else self.best

    def result(self) -> list[int] | None:
        return self.best


# States of a model that forks


def calls_for(states: int | None, *, frugal: bool = True) -> tuple[int, list[str]]:
    """Calls that four sequences of 40 tokens after two prompts take, and their texts. states: None = no forks."""
    kind = ModelKind.ATTENTION if states is None else ModelKind.HYBRID
    limits = replace(WIDE, nodes=400, sequences=states or 64, rows_per_call=64, kind=kind)
    model = HashModel(3, limits=limits)
    scheduler = Scheduler(model)
    jobs = [Job(sequence([1, 2, 3, 4 + i % 2], i, 40)) for i in range(4)]
    for job in jobs:
        if not frugal:
            job._states = None
        scheduler.submit(job)
    for _ in range(1000):
        if scheduler.idle:
            break
        scheduler.step()
    texts = [job.future.result(0).text for job in jobs]
    model.trim(0)
    assert model.capacity() == Capacity(64, 400, limits.sequences)
    return model.calls, texts


def test_sequences_share_calls_on_a_model_of_few_states() -> None:
    """A sequence holds two states however long it is, and two more during its prompt: four run side by side in fourteen."""
    _, texts = calls_for(None)
    assert calls_for(14) == (40, texts)
    assert calls_for(3) == (160, texts)
    n_before, same = calls_for(20, frugal=False)
    assert n_before > 150
    assert same == texts


@pytest.mark.short("3", "8")
@pytest.mark.parametrize("states", range(3, 14))
def test_however_few_the_states_the_texts_are_the_same(states: int) -> None:
    """Fewer states, more calls, nothing else."""
    _, texts = calls_for(None)
    n_calls, found = calls_for(states)
    assert found == texts
    assert 40 <= n_calls <= 160


# Turns


def test_a_large_ask_of_low_priority_goes_bit_by_bit_into_what_others_leave() -> None:
    """Three sequences that always go first leave five of eight rows; an ask of eight, whose call was stopped, gets on."""
    model = HashModel(1, limits=replace(WIDE, rows_per_call=8))
    scheduler = Scheduler(model)
    for i in range(3):  # their prompts are known, so nothing holds them back later
        scheduler.submit(Job(sequence([i, 2], i, 2)))
    while not scheduler.idle:
        scheduler.step()
    low = Job(Wide([9, 8], 8), priority=0)
    scheduler.submit(low)
    scheduler.step()
    model.fail_next(DecodeInterrupted("by somebody"))
    scheduler.step()
    assert low.part is not None
    assert len(low.part) == 8
    high = [Job(sequence([i, 2], i, 60), priority=1) for i in range(3)]
    for job in high:
        scheduler.submit(job)
    for n_rows in (5, 8):  # of the ask
        scheduler.step()
        assert low.cost.rows == len(low.prompt) + n_rows
    scheduler.step()
    assert low.future.result(0) == run(Wide([9, 8], 8), HashModel(1))
    assert not any(job.future.done() for job in high)


# Load


def test_load_is_told_after_the_last_task_failed() -> None:
    """Nobody comes by again, so the last step has to say that nothing is left."""
    model_thread = ModelThread(HashModel(1))
    try:
        with pytest.raises(ZeroDivisionError):
            model_thread.submit(Wide([1, 2], failing=ZeroDivisionError())).result()
        model_thread.call(lambda: None)
        assert model_thread.load() == Load(0, 0, WIDE.nodes, WIDE.sequences)
    finally:
        model_thread.close()


@pytest.mark.parametrize("kind", [ModelKind.ATTENTION, ModelKind.RECURRENT])
@pytest.mark.parametrize("takes_turns", [True, False])
def test_what_is_reserved_is_kept_up_to_date(kind, takes_turns, monkeypatch) -> None:
    """After every part that is planned and every task that ends, it is what counting all active tasks gives."""
    n_compared = 0
    planned = Scheduler._set_next_part

    def compared(scheduler: Scheduler, *args: Any) -> Capacity:
        nonlocal n_compared
        free = planned(scheduler, *args)
        kept, n_compared = scheduler._reserved, n_compared + 1
        scheduler._free_capacity()
        assert kept == scheduler._reserved
        return free

    monkeypatch.setattr(Scheduler, "_set_next_part", compared)
    scheduler = Scheduler(HashModel(1, limits=replace(WIDE, nodes=120, kind=kind)), takes_turns=takes_turns)
    failing = Wide([7, 7], 3, failing=ZeroDivisionError())
    jobs = [Job(task) for i in range(6) for task in (Wide([i, 1, 2], 3 + i), sequence([i, 5], i, 4))]
    for job in [*jobs, Job(failing)]:
        scheduler.submit(job)
    while not scheduler.idle:
        scheduler.step()
    assert all(job.future.done() for job in jobs)
    assert n_compared > 30


def test_a_task_without_a_prompt_begins_in_the_empty_context() -> None:
    """It is told no row before its first ask, which hangs from the root; and nothing stays cached."""
    model = HashModel(1)
    scheduler = Scheduler(model)
    job = Job(Wide([]))
    scheduler.submit(job)
    while not scheduler.idle:
        scheduler.step()
    assert job.future.result(0) == [int(model.row((token,)).argmax()) for token in range(20)]
    assert not model.capacity().nodes_cached


# Places


class Press:
    """Ctrl-C before the n-th line of some functions of a file."""

    def __init__(self, file: str, names: set[str], at: int) -> None:
        self._file, self._names, self._at = file, names, at
        self.n = 0

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        code = frame.f_code
        return self._line if code.co_filename.endswith(self._file) and code.co_name in self._names else None

    def _line(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            self.n += 1
            if self.n == self._at:
                raise KeyboardInterrupt
        return self._line


def test_no_place_in_the_queue_is_lost_to_ctrl_c() -> None:
    """Wherever it comes while a task is queued, as many may wait afterwards as before."""
    model_thread = ModelThread(HashModel(1), max_waiting=2)
    traced = sys.gettrace()
    n_pressed = 0
    try:
        for at in range(1, 200):
            press = Press("model_thread.py", {"submit", "queue", "_take_slots", "_put"}, at)
            sys.settrace(press)
            try:
                model_thread.submit(sequence([1, 2], 1, 3)).result()
            except KeyboardInterrupt:
                n_pressed += 1
            finally:
                sys.settrace(traced)
            for _ in range(10):  # the steps in which it notices what was cancelled
                model_thread.call(lambda: None)
            assert len(model_thread._free_slots) == 2, f"line {at}"
            if press.n < at:
                break
        assert n_pressed >= 10
    finally:
        sys.settrace(traced)
        model_thread.close()


def test_places_come_back_however_a_task_ends() -> None:
    """Answered, failed, refused, too large, closed under it: a place is taken for as long as it waits."""
    model_thread = ModelThread(HashModel(1, limits=replace(WIDE, nodes=30)), max_waiting=1)
    ends = {
        "answered": Wide([1, 2], 5),
        "failed": Wide([1, 2], 5, failing=SystemExit(1)),
        "too large": Wide([1, 2], 5000),
        "no prompt": Wide([], 5),
    }
    outcomes: dict[str, str] = {}
    for name, task in ends.items():
        try:
            model_thread.submit(task).result()
        except BaseException as error:  # noqa: BLE001 - whatever it is
            outcomes[name] = type(error).__name__
        assert len(model_thread._free_slots) == 1, name
    assert outcomes == {"failed": "SystemExit", "too large": "CapacityError"}
    model_thread._free_slots.clear()
    with pytest.raises(QueueFullError):
        model_thread.submit(Wide([1, 2], 5))
    assert not model_thread._free_slots
    model_thread.close()


# Without turns


def test_tasks_that_take_no_turns_fill_the_call_one_after_the_other() -> None:
    """A task asks once for all that fits, where turns would cut its ask; results and rows are the same."""

    class Counted(Wide):
        n_asked = 0

        def ask(self, capacity: Capacity) -> Ask | None:
            found = super().ask(capacity)
            self.n_asked += found is not None and len(found.tokens)
            return found

    limits = replace(WIDE, rows_per_call=40)
    found = {}
    for takes_turns in (True, False):
        model = HashModel(1, vocabulary=VOCABULARY, limits=limits)
        scheduler = Scheduler(model, prefill_rows=limits.rows_per_call, takes_turns=takes_turns)
        jobs = [Job(Counted([1, i], 20)) for i in range(2, 6)]
        for job in jobs:
            scheduler.submit(job)
        while not scheduler.idle:
            scheduler.step()
        found[takes_turns] = [job.task.n_asked for job in jobs]
        assert [job.future.result() is not None for job in jobs] == [True] * 4
    assert found[False] == [20] * 4
    assert sum(found[True]) < 80


# Deadlines


def test_a_deadline_counts_from_the_request_and_not_from_its_last_task() -> None:
    """What is measured first, a self-check say, takes of the time there is."""
    now = [100.0]
    model_thread = ModelThread(HashModel(1), clock=lambda: now[0])
    try:
        task_group = TaskGroup(model_thread, deadline_s=5)
        now[0] = 103.0
        assert task_group.begin(sequence([1, 2], 1, 2)).job.deadline == 105.0
        now[0] = 109.0
        late = task_group.begin(sequence([1, 2], 1, 2))
        now[0] = 110.0
        assert late.result().finish == "deadline"
    finally:
        model_thread.close()
