"""Memories in which near ties are scored again, and the layout of contexts in them.

A context is evaluated in whole chunks, one in each call, at the first cells of an empty
memory. A last call takes as many whole multiples of 8 tokens as are left. The remaining
tokens are evaluated with each path. A prefix of a context therefore has the same bits
whatever follows it, and whether or not it was evaluated before.

Where paths can be copied, the model copies the chunks of a long prompt from such a
memory. If the memory is used for another context in between, it copies the chunks back.
A near tie then evaluates only those chunks of the prompt that the model had evaluated
itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Protocol, TypeVar, cast

import numpy as np

from selectrie.core.model import CopiesPaths, Extension, Model, chain
from selectrie.core.numerics import common_length
from selectrie.core.sized_cache import SizedCache
from selectrie.core.types import ROOT, Cost, IntArray
from selectrie.decoding.task import Task
from selectrie.engine.scheduler.job import Job, Observer, charge
from selectrie.engine.scheduler.scheduler import Scheduler
from selectrie.errors import CapacityError, DecodeInterrupted, InternalError, SelectrieError

R = TypeVar("R")

CHUNK = 64
"""Number of tokens in a chunk.

The first chunk is evaluated in two halves, so that short prompts can share the first
half.
"""
_CALL_ROWS = CHUNK
"""Maximum number of rows in a call, for memories of any size."""
_LEAST_COPIED = CHUNK + CHUNK // 2
"""Minimum number of tokens that the model lacks for which chunks are copied.

For fewer tokens, the extra calls cost more than they save for near ties.
"""
_MULTIPLE = 8
"""The number of tokens in the last call of a context is a multiple of this."""
_MAX_JOINTS = 10_000
"""Maximum number of cached scores."""
_ROOM = 512
"""The number of nodes of a reused memory is rounded up to a multiple of this."""
_AT_ONCE = 2
"""Maximum number of calls of a context between which no other work gets a turn."""


class CanonicalMemory(Protocol):
    """A memory in which paths are scored one by one after a context.

    Attributes:
        spent: The cost of evaluating the context.
    """

    spent: Cost

    def work(self, task: Task[R]) -> tuple[R, Cost]:
        """Run a task whose prompt is the context; return its result and cost.

        Raises `CancelledError` after an interrupt, instead of making the call again.
        """
        ...


@contextmanager
def evaluate_context(
    solo: Model, context: IntArray, observer: Observer | None, spent: Cost | None = None
) -> Iterator[CanonicalMemory]:
    """Evaluate a context in a memory, and yield the memory for the paths after it.

    Args:
        solo: The memory (`Model.new_context`). It is empty or holds a prefix of the
            context.
        context: int32[T], the context.
        observer: Watches the tasks that run; None for no observer.
        spent: The cost of the prefix that the memory holds.
    """
    held, cost = ROOT, Cost()
    if solo.limits.batch_sizes.is_fixed:
        cost = evaluate_and_hold(solo, context)
    elif uses_chunks(solo):
        held, cost = evaluate_chunks(solo, context)
    yield _ModelMemory(solo, observer, cost + (spent or Cost()))
    if held != ROOT:
        solo.release(np.array([held], dtype=np.int32))


class _ModelMemory:
    """A `CanonicalMemory` on a model context."""

    def __init__(self, solo: Model, observer: Observer | None, spent: Cost) -> None:
        self._solo, self._scheduler, self._observer, self.spent = solo, Scheduler(solo), observer, spent

    def work(self, task: Task[R]) -> tuple[R, Cost]:
        scheduler, job = self._scheduler, Job(task)
        job.account = None  # the prompt was evaluated for this task, so it is no cache hit
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


def uses_chunks(model: Model) -> bool:
    """Return whether a model evaluates contexts in chunks.

    A model with programs of fixed sizes does not (see `evaluate_and_hold`), nor does a
    recurrent-state model, which would need a state for each chunk.
    """
    return not (model.limits.batch_sizes.is_fixed or model.limits.kind.is_recurrent)


def call_ends(context: IntArray) -> list[int]:
    """Return the numbers of context tokens evaluated after each of its calls.

    The calls end before the last token, whose row is read with the paths.
    """
    n = len(context) - 1
    chunks = _chunk_ends(n)
    end = n // _MULTIPLE * _MULTIPLE
    return chunks if end in chunks or not end else [*chunks, end]


def _chunk_ends(n: int) -> list[int]:
    """Return the end positions of the chunks of n tokens."""
    return [CHUNK // 2, *range(CHUNK, n + 1, CHUNK)] if n >= CHUNK // 2 else []


def _calls_prefix(context: IntArray) -> IntArray:
    """Return the prefix of a context that `call_ends` covers."""
    return context[: max(call_ends(context), default=0)]


def evaluate_chunks(solo: Model, context: IntArray, max_calls: int | None = None) -> tuple[int, Cost]:
    """Make the calls of `call_ends` for what the memory `solo` does not hold yet.

    With `max_calls`, at most that many calls are made; the rest stays missing.

    Returns:
        The last node, with a reference that the caller must release, and the cost.
    """
    node, depth = solo.match_prefix(_calls_prefix(context))
    ends = [end for end in call_ends(context) if end > depth][:max_calls]
    cost = Cost()
    for start, end in pairwise([depth, *ends]):
        node, more = _evaluate_below(solo, node, context[start:end], min(end - start, solo.limits.rows_per_call))
        cost += more
    return node, cost


def evaluate_and_hold(solo: Model, context: IntArray) -> Cost:
    """Evaluate a context in separate calls, and hold it until the model is closed.

    Programs of different sizes round differently, and so do sums over cells in another
    order. If the context is held and everything else is dropped, a path is evaluated by
    the same programs in the same cells, whatever other paths are scored.
    """
    root, _ = solo.match_prefix(context[:0])
    return _evaluate_below(solo, root, context, solo.limits.rows_per_call)[1]


def _evaluate_below(solo: Model, node: int, tokens: IntArray, step: int) -> tuple[int, Cost]:
    """Evaluate tokens below a node, `step` of them in each call.

    The caller's reference to the node is replaced by one to the last node, which keeps
    the nodes above it alive. As these have no references, a recurrent-state model may
    drop their states.
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
        more = _call_cost(extension)
        charge(more)
        cost += more
    return node, cost


def _call_cost(extension: Extension) -> Cost:
    """Return the cost of one call."""
    return Cost(
        model_calls=1,
        rows=extension.rows_evaluated,
        rows_padded=extension.rows_padded,
        decode_s=extension.decode_s,
    )


@contextmanager
def new_memory(model: Model, n_nodes: int) -> Iterator[Model]:
    """Yield an empty memory with room for `n_nodes` nodes, and close it afterwards."""
    solo = model.new_context(n_nodes, rows=_CALL_ROWS) if uses_chunks(model) else model.new_context(n_nodes)
    try:
        yield solo
    finally:
        solo.close()


class JointCache(SizedCache[bytes, "tuple[float, float]"]):
    """A cache of canonical scores by key.

    A value is a pair: the joint from the first scored token on, and the whole joint.
    """

    def __init__(self) -> None:
        super().__init__(_MAX_JOINTS, lambda _key, _joints: 1)


class Claim:
    """Reserves a memory for a request while the request keeps this object alive."""


class CanonicalMemories:
    """Memories that keep the most recent contexts, and the scores computed in them.

    The scores have the same bits as in a new memory. All methods are called on the
    model's thread.

    Attributes:
        settled: The cache of scores.

    Args:
        n_memories: Maximum number of memories. A context takes the memory with the
            longest common prefix, a new one, or the least recently used one.
    """

    def __init__(self, n_memories: int = 1) -> None:
        self._n_memories, self.cached_joints = n_memories, JointCache()
        self._kept: list[_HeldContext] = []  # least recently used first
        self._claim: tuple[weakref.ref[Claim], _HeldContext] | None = None

    def advance(self, model: Model, context: IntArray, n_nodes: int, claim: Claim) -> Cost | None:
        """Make the next call of a long context, so that others get a turn after it.

        Args:
            model: The model whose memory is used.
            context: int32[T], the context.
            n_nodes: Number of nodes for which the memory will have room.
            claim: Reserves the memory for this context. Only one context at a time is
                evaluated in this way.

        Returns:
            The cost. None if few calls are left, or another context is being evaluated.
        """
        if not uses_chunks(model) or self._claimed_by_others(claim) is not None:
            return None
        held = max((one.reusable_length(context) for one in self._kept), default=0)
        left = [end for end in call_ends(context) if end > held]
        if len(left) <= _AT_ONCE:
            return None
        kept = self._take(context, claim)
        try:
            cost = kept.hold_prefix(model, context, n_nodes)
            cost += kept.advance(context)
        except DecodeInterrupted:  # by another request; the repeated call continues from here
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
            model: The model whose memory is used.
            context: int32[T], the prompt.
            claim: The claim of the request.

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
        with self.open_memory(model, context, n_nodes, claim) as (solo, spent):
            node, cost = evaluate_chunks(solo, context)
            cost += spent
            solo.release(np.array([node], dtype=np.int32))
            with suppress(CapacityError):  # the model then evaluates the prompt itself
                model.copy_path(cast("CopiesPaths", solo), context[:n])
        return True, cost

    def _claimed_by_others(self, claim: Claim | None) -> _HeldContext | None:
        """Return the memory that another request has reserved, or None."""
        owner, kept = (None, None) if self._claim is None else (self._claim[0](), self._claim[1])
        return None if owner is None or owner is claim else kept

    @contextmanager
    def open_memory(
        self, model: Model, context: IntArray, n_nodes: int, claim: Claim | None = None
    ) -> Iterator[tuple[Model, Cost]]:
        """Yield a memory that holds only a prefix of the context, and its cost."""
        if not uses_chunks(model):
            with new_memory(model, n_nodes) as solo:
                yield solo, Cost()
            return
        kept = self._take(context, claim)
        try:
            spent = kept.hold_prefix(model, context, n_nodes)
            yield kept.model, spent
            kept.hold(context)
        except BaseException:
            kept.close()
            raise
        if len(self._kept) < self._n_memories:
            self._kept.append(kept)
        else:
            kept.close()  # another request has filled the cache

    def _take(self, context: IntArray, claim: Claim | None) -> _HeldContext:
        """Remove the memory to use for a context from the list, or create one."""
        reserved = self._claimed_by_others(claim)
        free = [one for one in self._kept if one is not reserved]
        lengths = [one.reusable_length(context) for one in free]
        if not any(lengths) and (not free or len(self._kept) < self._n_memories):
            return _HeldContext()
        taken = free[int(np.argmax(lengths))]  # the least recently used of those that hold most
        self._kept.remove(taken)
        return taken

    def clear(self) -> None:
        """Free the memories and drop all scores."""
        self.close()
        self.cached_joints.clear()

    def close(self) -> None:
        """Free the memories."""
        while self._kept:
            self._kept.pop().close()


class _HeldContext:
    """A memory and the context that it holds."""

    def __init__(self) -> None:
        self._solo: Model | None = None
        self._n_nodes = 0
        self._node, self._context = ROOT, np.empty(0, dtype=np.int32)

    @property
    def model(self) -> Model:
        """Return the open memory; `hold_prefix` opens it."""
        if self._solo is None:
            raise InternalError("the memory is closed")
        return self._solo

    def reusable_length(self, context: IntArray) -> int:
        """Return how many tokens of a context are held and can be reused.

        If the contexts differ, only whole chunks can be reused, since the last call of
        the held context may have been shorter.
        """
        n = common_length(context, self._context)
        if n == len(self._context) and n in call_ends(context):
            return n
        return max(_chunk_ends(min(n, len(_calls_prefix(context)))), default=0)

    def hold_prefix(self, model: Model, context: IntArray, n_nodes: int) -> Cost:
        """Drop all nodes except a prefix of the context; make the memory large enough.

        Chunks that the model copied from such a memory are copied back. Chunks above
        them that the model evaluated itself (with BOS, for example) are evaluated here
        if that takes few calls. Otherwise nothing is copied. Returns the cost.
        """
        if self._solo is not None and n_nodes > self._n_nodes:
            self.close()
        if self._solo is None:
            room = min(n_nodes + -n_nodes % _ROOM, max(n_nodes, model.limits.nodes))
            self._solo, self._n_nodes = model.new_context(room, rows=_CALL_ROWS), room
        solo, n = self._solo, self.reusable_length(context)
        node, n = solo.match_prefix(context[:n])
        self._replace(node)
        self._context = context[:n].copy()  # now, in case the code below is interrupted
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
        """Make the next call of a context, hold its nodes and return its cost."""
        node, cost = evaluate_chunks(self.model, context, max_calls=1)
        self.hold(context)
        self.model.release(np.array([node], dtype=np.int32))
        return cost

    def hold(self, context: IntArray) -> None:
        """Drop all nodes except those of the context's calls."""
        node, depth = self.model.match_prefix(_calls_prefix(context))
        self._replace(node)
        self._context = context[:depth].copy()

    def _replace(self, node: int) -> None:
        """Hold a node instead of the previous one, and drop all other nodes."""
        self._hold(node)
        self.model.trim(0)

    def _hold(self, node: int) -> None:
        """Release the held node and take over the caller's reference to a new one."""
        self.model.release(np.array([self._node] if self._node != ROOT else [], dtype=np.int32))
        self._node = node

    def close(self) -> None:
        """Free the memory, if it is open."""
        solo, self._solo = self._solo, None
        self._node, self._context = ROOT, np.empty(0, dtype=np.int32)
        if solo is not None:
            solo.close()
