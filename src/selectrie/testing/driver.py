"""A driver that runs one task on a model that nothing else uses."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from selectrie.core.model import Model, chain
from selectrie.core.rows import DenseRows, Rows
from selectrie.core.types import NO_NODE, Capacity, IntArray
from selectrie.decoding.task import Task, extend_in_rounds
from selectrie.errors import ProtocolError

R = TypeVar("R")


def run(task: Task[R], model: Model) -> R:
    """Run one task to its end, release its nodes, and return its result.

    Nothing else may use the model. This is a short version of the scheduler, for tests.
    Raises the errors of the model, and `ProtocolError` if the task asks for parents
    that it does not hold.
    """
    limits = model.limits
    n_states = 1 if limits.kind.is_recurrent else 0  # a recurrent-state model keeps the prompt's state too
    capacity = Capacity(limits.rows_per_call, limits.nodes - len(task.prompt), limits.sequences - n_states)
    held, rows = _prefill(task.prompt, model)
    local = held[-1:]  # node of each local row
    try:
        task.tell(rows.fetch(task.reads))
        while (ask := task.ask(capacity)) is not None:
            _give_back(ask.release, local, model)
            nodes, rows = extend_in_rounds(model, _to_nodes(ask.parents, local), ask.tokens, ask.wanted, ask.keep)
            local.extend(nodes.tolist())
            _give_back(ask.spent, local, model)
            task.tell(rows.fetch(task.reads))
        return task.result()
    finally:
        model.release(np.array([*held[:-1], *(node for node in local if node != NO_NODE)], dtype=np.int32), forget=True)


def _give_back(rows: IntArray, local: list[int], model: Model) -> None:
    """Release the nodes of the given local rows that were not released before.

    A node with children stays until these are dropped.
    """
    leaving = [local[row] for row in rows.tolist() if local[row] != NO_NODE]
    for row in rows.tolist():
        local[row] = NO_NODE
    model.release(np.array(leaving, dtype=np.int32), forget=True)


def _to_nodes(parents: IntArray, local: list[int]) -> IntArray:
    """Return `parents` with local rows replaced by their nodes; `~j` stays."""
    result: IntArray = parents.copy()
    outside = parents >= 0
    if outside.any() and int(parents.max()) >= len(local):
        raise ProtocolError(f"asked for a child of row {int(parents.max())}; there are {len(local)}")
    result[outside] = np.array(local, dtype=np.int32)[parents[outside]]
    if (result[outside] == NO_NODE).any():
        raise ProtocolError("asked for a child of a row that was released")
    return result


def _prefill(prompt: IntArray, model: Model) -> tuple[list[int], Rows]:
    """Evaluate the prompt in calls of at most the model's rows per call.

    Returns the nodes held, of which the last is the end of the prompt, and the row of
    that node.
    """
    if len(prompt) == 0:
        raise ProtocolError("a task needs a prompt of at least one token")
    node, depth = model.match_prefix(prompt[:-1])
    held = [node]
    rows_per_call = model.limits.rows_per_call
    rows: Rows = DenseRows(np.empty((0, 0), dtype=np.float32))
    try:
        for start in range(depth, len(prompt), rows_per_call):
            part = prompt[start : start + rows_per_call]
            parents = chain(held[-1], len(part))
            is_last = np.arange(len(part)) == len(part) - 1
            extension = model.extend(parents, part, is_last & (start + len(part) == len(prompt)), is_last)
            held.extend(extension.nodes.tolist())
            rows = extension.rows
    except BaseException:
        model.release(np.array(held, dtype=np.int32), forget=True)
        raise
    return held, rows
