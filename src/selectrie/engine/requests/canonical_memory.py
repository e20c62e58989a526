"""Memories in which near ties are scored again, and the layout of contexts in them.

A context is evaluated in whole chunks, one in each call, at the first cells of an empty
memory; what is left of it comes after them. So the beginning of a context has the same
bits, whatever follows it and whether it was evaluated before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np

from selectrie.core.model import Extension, Model, chain
from selectrie.core.types import ROOT, Cost, IntArray
from selectrie.decoding.task import Task
from selectrie.engine.scheduler.job import Job
from selectrie.engine.scheduler.observer import Observer
from selectrie.engine.scheduler.scheduler import Scheduler

R = TypeVar("R")

CHUNK = 32
"""Number of tokens in a chunk."""
_ROOM = 256
"""The nodes of a memory that is kept are rounded up to a multiple."""


class CanonicalMemory(Protocol):
    """A memory in which paths are scored one by one after a context."""

    def evaluate(self, context: IntArray) -> Cost:
        """Evaluate the context, in the layout that it always has, and return the cost.

        It is called once, before the first task.
        """
        ...

    def work(self, task: Task[R]) -> tuple[R, Cost]:
        """Run a task whose prompt is the context; return its result and cost.

        Raises `CancelledError` after an interrupt, instead of making the call again.
        """
        ...

    def leave(self) -> None:
        """Release what `evaluate` held."""
        ...


class ModelMemory:
    """A `CanonicalMemory` that is an empty model.

    Args:
        solo: The model (`Model.new_context`).
        observer: What watches its tasks, or None.
        subject: Their subject.
    """

    def __init__(self, solo: Model, observer: Observer | None, subject: object) -> None:
        self._solo, self._scheduler = solo, Scheduler(solo)
        self._observer, self._subject = observer, subject
        self._held = ROOT

    def evaluate(self, context: IntArray) -> Cost:
        cost = Cost()
        if self._solo.limits.batch_sizes.is_fixed:
            cost = evaluate_apart(self._solo, context)
        elif in_chunks(self._solo):
            self._held, cost = evaluate_chunks(self._solo, whole_chunks(context))
        if self._observer is not None:
            self._observer.context_cost(self._subject, context, cost)
        return cost

    def work(self, task: Task[R]) -> tuple[R, Cost]:
        scheduler, job = self._scheduler, Job(task)
        if self._solo.limits.batch_sizes.is_fixed:
            self._solo.trim(0)
        if self._observer is not None:
            job.observer = self._observer.begin(task, self._subject, is_canonical=True)
        scheduler.submit(job)
        while not job.future.done():
            scheduler.step()
            job.cancelled = scheduler.n_interrupted > 0
        answer: R = job.future.result()
        return answer, job.cost

    def leave(self) -> None:
        self._solo.release(np.array([self._held] if self._held != ROOT else [], dtype=np.int32))


def in_chunks(model: Model) -> bool:
    """Return whether a model evaluates contexts in chunks.

    Programs of fixed sizes have a way of their own (`evaluate_apart`). A
    recurrent-state model would need a state for every chunk.
    """
    return not (model.limits.batch_sizes.is_fixed or model.limits.kind.is_recurrent)


def whole_chunks(context: IntArray) -> IntArray:
    """Return the whole chunks of a context that end before its last token."""
    return context[: max(0, len(context) - 1) // CHUNK * CHUNK]


def evaluate_chunks(solo: Model, beginning: IntArray) -> tuple[int, Cost]:
    """Evaluate the beginning of a context, as far as the memory does not have it.

    Returns:
        The last node, with a reference that the caller must release, and the cost.
    """
    node, depth = solo.match_prefix(beginning)
    return _evaluate_below(solo, node, beginning[depth:], min(CHUNK, solo.limits.rows_per_call))


def evaluate_apart(solo: Model, context: IntArray) -> Cost:
    """Evaluate a context in calls of its own, and hold it until the model is closed.

    Programs of different sizes round differently, and so do sums over cells in another
    order. If the context is held and everything else is dropped, a path is evaluated by
    the same programs in the same cells, whatever other paths are scored.
    """
    root, _ = solo.match_prefix(context[:0])
    return _evaluate_below(solo, root, context, solo.limits.rows_per_call)[1]


def _evaluate_below(solo: Model, node: int, tokens: IntArray, step: int) -> tuple[int, Cost]:
    """Evaluate tokens below a node, `step` of them in each call.

    A reference to the node is given up for one to the last node, which holds the nodes
    above it. They have none, so a recurrent-state model may drop their states.
    """
    cost = Cost()
    for start in range(0, len(tokens), step):
        part = tokens[start : start + step]
        is_last = np.arange(len(part)) == len(part) - 1
        extension = solo.extend(chain(node, len(part)), part, np.zeros_like(is_last), is_last)
        solo.release(np.append(extension.nodes[:-1], node).astype(np.int32))
        node = int(extension.nodes[-1])
        cost += _cost(extension)
    return node, cost


def _cost(extension: Extension) -> Cost:
    return Cost(
        model_calls=1,
        rows=extension.rows_evaluated,
        rows_padded=extension.rows_padded,
        decode_s=extension.decode_s,
    )


@contextmanager
def new_memory(model: Model, context: IntArray, n_nodes: int) -> Iterator[Model]:
    """Yield an empty memory with room for some nodes, and close it afterwards."""
    del context
    solo = model.new_context(n_nodes)
    try:
        yield solo
    finally:
        solo.close()


class HeldBeginnings:
    """Memories that keep the beginnings of contexts between two uses.

    The scores in them have the bits that they have in a new memory. All methods are
    called on the model's thread.

    Args:
        beginnings: Token paths with which many contexts begin, longest first.
    """

    def __init__(self, beginnings: Sequence[IntArray]) -> None:
        whole = [one[: len(one) // CHUNK * CHUNK] for one in beginnings]
        self._beginnings = tuple({one.tobytes(): one for one in whole if len(one)}.values())
        self._held: dict[int, tuple[Model, int]] = {}

    @contextmanager
    def opened(self, model: Model, context: IntArray, n_nodes: int) -> Iterator[Model]:
        """Yield a memory that holds the longest beginning of a context, and no more.

        It is an empty one if the context has none of them.
        """
        own = whole_chunks(context)
        found = (i for i, one in enumerate(self._beginnings) if np.array_equal(own[: len(one)], one))
        index = next(found, None) if in_chunks(model) else None
        if index is None:
            with new_memory(model, context, n_nodes) as solo:
                yield solo
            return
        solo = self._memory(model, index, n_nodes)
        try:
            yield solo
            solo.trim(0)
        except BaseException:
            self._drop(index)
            raise

    def _memory(self, model: Model, index: int, n_nodes: int) -> Model:
        held = self._held.get(index)
        if held is not None and held[1] >= n_nodes:
            return held[0]
        self._drop(index)
        n_nodes += -n_nodes % _ROOM  # most later contexts fit as well
        solo = model.new_context(n_nodes)
        self._held[index] = solo, n_nodes
        try:
            evaluate_chunks(solo, self._beginnings[index])  # held until the memory is closed
        except BaseException:
            self._drop(index)
            raise
        return solo

    def _drop(self, index: int) -> None:
        if index in self._held:
            self._held.pop(index)[0].close()

    def close(self) -> None:
        """Free the memories."""
        for index in tuple(self._held):
            self._drop(index)
