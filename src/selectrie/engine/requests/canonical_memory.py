"""Memories in which near ties are scored again, and the layout of contexts in them.

A context is evaluated in whole chunks, one in each call, at the first cells of an empty
memory, then in a call of as many whole multiples of 8 tokens as are left; the rest
comes with each path. So the beginning of a context has the same bits, whatever follows
it and whether it was evaluated before.

Where paths can be copied, the model takes the chunks of a long prompt over from such a
memory, and the memory takes them back when others had its place. A near tie then
evaluates no chunk of the prompt again, but those with tokens that the model had before.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Protocol, TypeVar, cast

import numpy as np

from selectrie.core.model import CopiesPaths, Extension, Model, chain
from selectrie.core.types import ROOT, Cost, IntArray
from selectrie.decoding.task import Task
from selectrie.engine.scheduler.job import Job, Observer, charge
from selectrie.engine.scheduler.scheduler import Scheduler
from selectrie.errors import CapacityError, DecodeInterrupted, InternalError, SelectrieError

R = TypeVar("R")

CHUNK = 64
"""Number of tokens in a chunk. The first one is cut in two halves, which short prompts
have in common.
"""
_CALL_ROWS = CHUNK
"""Maximum number of rows in a call, whatever the size of the memory."""
_LEAST_COPIED = CHUNK + CHUNK // 2
"""Number of tokens that the model lacks from which on chunks are copied.

For fewer, calls apart would cost more than the near ties that they make cheap.
"""
_MULTIPLE = 8
"""The tokens of the last call of a context are a multiple of this number."""
_MAX_SETTLED = 10_000
"""Maximum number of scores that are remembered."""
_ROOM = 512
"""The nodes of a memory that is kept are rounded up to a multiple."""
_AT_ONCE = 2
"""Maximum number of calls of a context that are made without a turn for other work."""


class CanonicalMemory(Protocol):
    """A memory in which paths are scored one by one after a context.

    Attributes:
        spent: The cost of the context, which was evaluated in its layout.
    """

    spent: Cost

    def work(self, task: Task[R]) -> tuple[R, Cost]:
        """Run a task whose prompt is the context; return its result and cost.

        Raises `CancelledError` after an interrupt, instead of making the call again.
        """
        ...


@contextmanager
def evaluated(
    solo: Model, context: IntArray, observer: Observer | None, spent: Cost | None = None
) -> Iterator[CanonicalMemory]:
    """Evaluate a context in a memory, and yield this for the paths after it.

    Args:
        solo: The memory (`Model.new_context`). It holds a beginning of the context, or
            nothing.
        context: int32[T], the context.
        observer: What watches the tasks, or None.
        spent: The cost of what the memory holds.
    """
    held, cost = ROOT, Cost()
    if solo.limits.batch_sizes.is_fixed:
        cost = evaluate_apart(solo, context)
    elif in_chunks(solo):
        held, cost = evaluate_chunks(solo, context)
    yield _ModelMemory(solo, observer, cost + (spent or Cost()))
    if held != ROOT:
        solo.release(np.array([held], dtype=np.int32))


class _ModelMemory:
    """A `CanonicalMemory` that is a model."""

    def __init__(self, solo: Model, observer: Observer | None, spent: Cost) -> None:
        self._solo, self._scheduler, self._observer, self.spent = solo, Scheduler(solo), observer, spent

    def work(self, task: Task[R]) -> tuple[R, Cost]:
        scheduler, job = self._scheduler, Job(task)
        job.account = None  # its prompt was evaluated for it, and is no cache hit
        if self._solo.limits.batch_sizes.is_fixed:
            self._solo.trim(0)
        if self._observer is not None:
            job.observer = self._observer.begin(task, is_canonical=True)
        scheduler.submit(job)
        try:
            while not job.future.done():
                scheduler.step()
                job.cancelled = scheduler.n_interrupted > 0
        finally:
            charge(job.cost)
        answer: R = job.future.result()
        return answer, job.cost


def n_common(one: IntArray, other: IntArray) -> int:
    """Return with how many equal tokens two paths begin."""
    n = min(len(one), len(other))
    differs = np.flatnonzero(one[:n] != other[:n])
    return int(differs[0]) if len(differs) else n


def in_chunks(model: Model) -> bool:
    """Return whether a model evaluates contexts in chunks.

    Programs of fixed sizes have a way of their own (`evaluate_apart`). A
    recurrent-state model would need a state for every chunk.
    """
    return not (model.limits.batch_sizes.is_fixed or model.limits.kind.is_recurrent)


def call_ends(context: IntArray) -> list[int]:
    """Return the lengths of a context after each call that evaluates it.

    The calls end before its last token, whose row is read with the paths.
    """
    n = len(context) - 1
    chunks = _chunk_ends(n)
    end = n // _MULTIPLE * _MULTIPLE
    return chunks if end in chunks or not end else [*chunks, end]


def _chunk_ends(n: int) -> list[int]:
    """Return where the chunks of n tokens end."""
    return [CHUNK // 2, *range(CHUNK, n + 1, CHUNK)] if n >= CHUNK // 2 else []


def _in_calls(context: IntArray) -> IntArray:
    """Return the beginning of a context that its calls evaluate."""
    return context[: max(call_ends(context), default=0)]


def evaluate_chunks(solo: Model, context: IntArray, max_calls: int | None = None) -> tuple[int, Cost]:
    """Evaluate what a memory lacks of a context, but for the last tokens.

    With `max_calls`, no more calls are made, and more of the context may be missing.

    Returns:
        The last node, with a reference that the caller must release, and the cost.
    """
    node, depth = solo.match_prefix(_in_calls(context))
    ends = [end for end in call_ends(context) if end > depth][:max_calls]
    cost = Cost()
    for start, end in pairwise([depth, *ends]):
        node, more = _evaluate_below(solo, node, context[start:end], min(end - start, solo.limits.rows_per_call))
        cost += more
    return node, cost


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
        try:
            extension = solo.extend(chain(node, len(part)), part, np.zeros_like(is_last), is_last)
        except BaseException:
            with suppress(SelectrieError):  # a failure may have dropped all nodes
                solo.release(np.array([node], dtype=np.int32))
            raise
        solo.release(np.append(extension.nodes[:-1], node).astype(np.int32))
        node = int(extension.nodes[-1])
        more = _cost(extension)
        charge(more)
        cost += more
    return node, cost


def _cost(extension: Extension) -> Cost:
    return Cost(
        model_calls=1,
        rows=extension.rows_evaluated,
        rows_padded=extension.rows_padded,
        decode_s=extension.decode_s,
    )


@contextmanager
def new_memory(model: Model, n_nodes: int) -> Iterator[Model]:
    """Yield an empty memory with room for some nodes, and close it afterwards."""
    solo = model.new_context(n_nodes, rows=_CALL_ROWS) if in_chunks(model) else model.new_context(n_nodes)
    try:
        yield solo
    finally:
        solo.close()


class SettledJoints:
    """Canonical scores of near ties by key, of which the last ones are remembered.

    A value is a pair: the joint from the first token that counts, and the whole joint.
    """

    def __init__(self) -> None:
        self._values: dict[bytes, tuple[float, float]] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def __getitem__(self, key: bytes) -> tuple[float, float]:
        value = self._values[key] = self._values.pop(key)
        return value

    def put(self, values: Mapping[bytes, tuple[float, float]]) -> None:
        """Add values; those that were used least recently make room for them."""
        for key, value in values.items():
            self._values.pop(key, None)
            self._values[key] = value
        while len(self._values) > max(_MAX_SETTLED, len(values)):
            del self._values[next(iter(self._values))]


class Claim:
    """What a request holds as long as it evaluates a context for its near ties."""


class KeptMemories:
    """Memories that keep the contexts that were evaluated last, and what was scored.

    The scores in them have the bits that they have in a new memory. All methods are
    called on the model's thread.

    Attributes:
        settled: The scores.

    Args:
        n_memories: Maximum number of memories. A context takes the one that holds most
            of it, a new one, or the one that was used least recently.
    """

    def __init__(self, n_memories: int = 1) -> None:
        self._n_memories, self.settled = n_memories, SettledJoints()
        self._kept: list[_Kept] = []  # least recently used first
        self._claim: tuple[weakref.ref[Claim], _Kept] | None = None

    def advance(self, model: Model, context: IntArray, n_nodes: int, claim: Claim) -> Cost | None:
        """Make the next call of a long context and keep it, so that others get a turn.

        Args:
            model: The model of which the memory is.
            context: int32[T], the context.
            n_nodes: Number of nodes for which the memory will have room.
            claim: Keeps the memory for this context as long as it lives. One context at
                a time is evaluated in this way.

        Returns:
            The cost. None if few calls are left, or another context is being evaluated.
        """
        if not in_chunks(model) or self._claimed_by_others(claim) is not None:
            return None
        held = max((one.n_common(context) for one in self._kept), default=0)
        left = [end for end in call_ends(context) if end > held]
        if len(left) <= _AT_ONCE:
            return None
        kept = self._taken(context, claim)
        try:
            cost = kept.hold_beginning(model, context, n_nodes)
            cost += kept.advance(context)
        except DecodeInterrupted:  # by others; the call is made again, and goes on from here
            self._kept.append(kept)
            raise
        except BaseException:
            kept.close()
            raise
        self._kept.append(kept)
        self._claim = weakref.ref(claim), kept
        return cost

    def copy_chunks(self, model: CopiesPaths, context: IntArray, claim: Claim) -> tuple[bool, Cost]:
        """Evaluate chunks that the model lacks in a memory, and copy them to the model.

        Args:
            model: The model of which the memory is.
            context: int32[T], the prompt.
            claim: That of the request.

        Returns:
            Whether no further call is needed, and the cost of this one.
        """
        n = max(_chunk_ends(len(context)), default=0)
        node, depth = model.match_prefix(context[:n])
        model.release(np.array([node] if node != ROOT else [], dtype=np.int32))
        lacking = n - depth
        has_room = lacking <= model.capacity().nodes
        if lacking < _LEAST_COPIED or not has_room or self._claimed_by_others(claim) is not None:
            return True, Cost()
        n_nodes = min(len(context) + _ROOM, model.limits.nodes)
        context = context[: n + 1]
        cost = self.advance(model, context, n_nodes, claim)
        if cost is not None:
            return False, cost
        with self.opened(model, context, n_nodes, claim) as (solo, spent):
            node, cost = evaluate_chunks(solo, context)
            cost += spent
            solo.release(np.array([node], dtype=np.int32))
            with suppress(CapacityError):  # the model then evaluates the prompt itself
                model.copy_path(cast("CopiesPaths", solo), context[:n])
        return True, cost

    def _claimed_by_others(self, claim: Claim | None) -> _Kept | None:
        """Return the memory that is kept for another request, or None."""
        owner, kept = (None, None) if self._claim is None else (self._claim[0](), self._claim[1])
        return None if owner is None or owner is claim else kept

    @contextmanager
    def opened(
        self, model: Model, context: IntArray, n_nodes: int, claim: Claim | None = None
    ) -> Iterator[tuple[Model, Cost]]:
        """Yield a memory that holds a beginning of the context alone, and the cost."""
        if not in_chunks(model):
            with new_memory(model, n_nodes) as solo:
                yield solo, Cost()
            return
        kept = self._taken(context, claim)
        try:
            spent = kept.hold_beginning(model, context, n_nodes)
            yield kept.model, spent
            kept.hold(context)
        except BaseException:
            kept.close()
            raise
        if len(self._kept) < self._n_memories:
            self._kept.append(kept)
        else:
            kept.close()  # another request has the last place

    def _taken(self, context: IntArray, claim: Claim | None) -> _Kept:
        """Return the memory for a context, which is no longer among those kept."""
        reserved = self._claimed_by_others(claim)
        free = [one for one in self._kept if one is not reserved]
        n_common = [one.n_common(context) for one in free]
        if not any(n_common) and (not free or len(self._kept) < self._n_memories):
            return _Kept()
        taken = free[int(np.argmax(n_common))]  # the least recently used of those that hold most
        self._kept.remove(taken)
        return taken

    def close(self) -> None:
        """Free the memories."""
        while self._kept:
            self._kept.pop().close()


class _Kept:
    """A memory with the context that it holds."""

    def __init__(self) -> None:
        self._solo: Model | None = None
        self._n_nodes = 0
        self._node, self._context = ROOT, np.empty(0, dtype=np.int32)

    @property
    def model(self) -> Model:
        """Return the model, which `hold_beginning` has opened."""
        if self._solo is None:
            raise InternalError("the memory is closed")
        return self._solo

    def n_common(self, context: IntArray) -> int:
        """Return how many tokens of a context are held and can stay.

        Of another context only whole chunks can, since its last call was shorter.
        """
        n = n_common(context, self._context)
        if n == len(self._context) and n in call_ends(context):
            return n
        return max(_chunk_ends(min(n, len(_in_calls(context)))), default=0)

    def hold_beginning(self, model: Model, context: IntArray, n_nodes: int) -> Cost:
        """Drop all but a beginning of the context; make the memory large enough.

        Chunks that the model has from such a memory are copied. What the model has
        above them of another path, such as BOS, is evaluated here, in few calls or not
        at all. Returns the cost.
        """
        if self._solo is not None and n_nodes > self._n_nodes:
            self.close()
        if self._solo is None:
            room = min(n_nodes + -n_nodes % _ROOM, max(n_nodes, model.limits.nodes))
            self._solo, self._n_nodes = model.new_context(room, rows=_CALL_ROWS), room
        solo, n = self._solo, self.n_common(context)
        node, n = solo.match_prefix(context[:n])
        self._replace(node)
        self._context = context[:n].copy()  # also if what follows is interrupted
        if not model.limits.copies_paths:
            return Cost()
        source = cast("CopiesPaths", model)
        first, last = source.copied_part(context[:-1])
        ends = [0, *_chunk_ends(last)]
        begins = next((end for end in ends if end >= first), last)
        n_calls = sum(n < end <= begins for end in ends)
        cost = Cost()
        if ends[-1] > max(n, begins) and n_calls <= _AT_ONCE:
            if n_calls:
                node, cost = evaluate_chunks(solo, context[: begins + 1])
                self._hold(node)
            cast("CopiesPaths", solo).copy_path(source, context[: ends[-1]])
            node, _ = solo.match_prefix(context[: ends[-1]])
            self._hold(node)
        return cost

    def advance(self, context: IntArray) -> Cost:
        """Make and hold the next call of a context; return its cost."""
        node, cost = evaluate_chunks(self.model, context, max_calls=1)
        self.hold(context)
        self.model.release(np.array([node], dtype=np.int32))
        return cost

    def hold(self, context: IntArray) -> None:
        """Drop all but the calls of a context that was evaluated."""
        node, depth = self.model.match_prefix(_in_calls(context))
        self._replace(node)
        self._context = context[:depth].copy()

    def _replace(self, node: int) -> None:
        """Hold a node instead of the one before, and drop all others."""
        self._hold(node)
        self.model.trim(0)

    def _hold(self, node: int) -> None:
        """Hold a node, with the caller's reference to it, instead of the one before."""
        self.model.release(np.array([self._node] if self._node != ROOT else [], dtype=np.int32))
        self._node = node

    def close(self) -> None:
        """Free the memory, if it is open."""
        solo, self._solo = self._solo, None
        self._node, self._context = ROOT, np.empty(0, dtype=np.int32)
        if solo is not None:
            solo.close()
