"""Answers questions about the rows of a table, one unit of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from selectrie.core.model import Model
from selectrie.core.types import IntArray, SelfCheck
from selectrie.decide.answers import Decision
from selectrie.decide.states import State
from selectrie.engine.decision_prompts import DecisionMaker
from selectrie.engine.decisions import DecisionBatch
from selectrie.engine.requests.canonical_memory import CanonicalMemories, common_length, evaluate_and_hold
from selectrie.engine.requests.select import BaselineStore
from selectrie.engine.requests.session import Session
from selectrie.engine.scheduler.model_thread import ModelThread
from selectrie.engine.scheduler.task_group import SecondMemory, SecondMemoryPool, TaskGroup
from selectrie.errors import ClosedError

T = TypeVar("T")
_NODES_SHARE, _SEQUENCES_SHARE = 2, 4
"""Shared prefixes use at most 1/2 of the model's nodes, and 1/4 of its sequences."""


class DecisionScorer(AbstractContextManager["DecisionScorer"]):
    """Answers questions about units of states. `Engine.decision_scorer` returns one.

    A scorer is a context manager, and `decisions` may be called from any thread. On a
    local model, concurrent calls have separate key/value caches (`memories_of`).

    Args:
        maker: Makes the prompts of the questions.
        session: Opens the session in which a unit is evaluated.
        close: Frees the memory of all sessions.
        keep: An object that stays alive as long as the scorer.
    """

    def __init__(
        self,
        maker: DecisionMaker,
        session: Callable[[], AbstractContextManager[Session]],
        close: Callable[[], None] = lambda: None,
        *,
        keep: object = None,
    ) -> None:
        """Create a scorer; the class docstring describes the arguments."""
        self._maker, self._session, self._close, self._kept = maker, session, close, keep
        self._is_closed = False

    def __exit__(self, *_error: object) -> None:
        self.close()

    def decisions(self, states: Sequence[State]) -> list[Decision]:
        """Return the decision on each state of a unit, in order.

        A state that cannot be asked has a decision with an `error`. Ctrl-C stops the
        call in the middle of a decode. If the call fails, its memory is freed, and the
        next call uses a new one.

        Raises:
            ModelError: If the model fails.
            ClosedError: If the scorer or the engine was closed.
        """
        return self.run(self.prepare(states))

    def prepare(self, states: Sequence[State]) -> DecisionBatch:
        """Return the prompts of a unit, checked and tokenized."""
        if self._is_closed:
            raise ClosedError("the scorer")
        return DecisionBatch.of(self._maker, states, keep_errors=True, first_index=0)

    def run(self, batch: DecisionBatch) -> list[Decision]:
        """Return the decision on each state of a batch, as `decisions` does."""
        if self._is_closed:
            raise ClosedError("the scorer")
        with self._session() as session:
            return batch.run(session)

    def close(self) -> None:
        """Free the memory. May be called twice, and after the engine was closed."""
        self._is_closed = True
        self._close()


def memories_of(thread: ModelThread, model: Model, maker: DecisionMaker) -> SecondMemoryPool[DecisionMemory]:
    """Return a pool of key/value caches, one for each unit that is evaluated at a time.

    Prefixes that the prompts of all states share are evaluated once for each cache and
    stay in it. In the layout "questions first", these are the question and its list of
    options. After a unit, everything except the shared prefixes is dropped.
    """
    shared, limits = _find_shared_paths(model, maker), model.limits

    def open_memory() -> DecisionMemory:
        n_shared = sum(map(len, shared))  # nodes in addition to those of the model's own limit
        model_context = model.new_context(limits.nodes + n_shared, limits.sequences)
        try:
            for path in shared:
                evaluate_and_hold(model_context, path)
            model_context.trim(0)
        except BaseException:
            model_context.close()
            raise
        return DecisionMemory(model_context, CanonicalMemories(len(shared) + 1))

    return SecondMemoryPool(thread, open_memory)


class DecisionMemory(SecondMemory):
    """The key/value caches of a unit: its own, and those that settle near ties.

    It also keeps the baselines of the scoring rule, so each is evaluated only once for
    all units.

    Args:
        model: A model made by `Model.new_context`.
        kept: The caches in which near ties are evaluated again.
    """

    def __init__(self, model: Model, kept: CanonicalMemories) -> None:
        super().__init__(model)
        self._kept, self._baselines = kept, BaselineStore(self.clear)

    def session(self, group: TaskGroup, check: SelfCheck | None) -> Session:
        """Return the session in which a unit is evaluated."""
        return Session(group, self.model, check, kept=self._kept, baselines=self._baselines)

    def close(self) -> None:
        """Free the caches."""
        try:
            self._kept.close()
        finally:
            super().close()


def _find_shared_paths(model: Model, maker: DecisionMaker) -> tuple[IntArray, ...]:
    """Return the token prefixes that the prompts of all states share, longest first.

    A prefix is found by comparing the prompts of two different states. Each prompt of a
    question has one, as long as the model has room for it (`_NODES_SHARE`).
    """
    found: dict[bytes, IntArray] = {}
    for one, other in zip(maker.context_tokens("0"), maker.context_tokens("A b"), strict=True):
        path = one[: common_length(one, other)]
        if len(path):
            found.setdefault(path.tobytes(), path)
    limits = model.limits
    n_nodes, n_paths = limits.nodes // _NODES_SHARE, limits.sequences // _SEQUENCES_SHARE
    held: list[IntArray] = []
    for path in sorted(found.values(), key=len, reverse=True):
        if len(path) <= n_nodes and len(held) < n_paths:
            held.append(path)
            n_nodes -= len(path)
    return tuple(held)
