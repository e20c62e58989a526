"""What an engine runs on, and the runtime of a model that runs here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from selectrie.core.model import Model, ModelDescription
from selectrie.core.types import Precision, SelfCheck
from selectrie.engine.precision_check import assumed, batch_multiple, measure
from selectrie.engine.requests.canonical_memory import CanonicalMemories
from selectrie.engine.requests.session import Prepared, Session
from selectrie.engine.scheduler.model_thread import JobThread, ModelThread
from selectrie.engine.scheduler.task_group import SecondMemory, SecondMemoryPool, TaskGroup, task_group
from selectrie.errors import CapacityError

if TYPE_CHECKING:
    from selectrie.engine.decision_prompts import DecisionMaker
    from selectrie.engine.decisions import DecisionScorer
    from selectrie.engine.requests.generate import GenerateRequest, Prompts
    from selectrie.engine.requests.loglikelihood import SequenceScorer
    from selectrie.results import Generation


class Runtime(ABC):
    """A model, the thread that runs tasks on it, and what requests need of it.

    Attributes:
        model: The model as requests see it.
        thread: The thread, which frees the model when it is closed.
        check: What is known of how far a log-probability may move; None in `fast`
            precision.
        has_whole_rows: Whether the probability of every token can be read.
    """

    model: ModelDescription
    thread: JobThread[Any]
    check: SelfCheck | None
    has_whole_rows: bool = True

    @abstractmethod
    def session(self, group: TaskGroup, model: ModelDescription) -> Session:
        """Return the `Session` of a task group; `model` describes the model to it."""

    def forget_all(self) -> None:
        """Drop every cached prompt, row and score, on the model's thread."""
        self.thread.scheduler.forget_all()

    def sequences_scorer(self, nodes: int, *, keep: object) -> SequenceScorer:
        """Return a scorer of sequences of at most `nodes` tokens.

        Raises `CapacityError` if the model has no room for so many.
        """
        from selectrie.engine.requests.loglikelihood import SequenceScorer  # as for `generate`

        if nodes > self.model.limits.nodes:
            raise CapacityError("nodes", required=nodes, available=self.model.limits.nodes)
        return SequenceScorer(self.model, lambda: task_group(self.thread), keep=keep)

    def decision_scorer(self, check: SelfCheck | None, maker: DecisionMaker, *, keep: object) -> DecisionScorer:
        """Return a scorer that decides about units of states.

        `check` is the self-check by which near ties are known, where these are scored.
        """
        from selectrie.engine.decisions import DecisionScorer  # imported on first use, as only tables need it
        from selectrie.engine.requests.select import BaselineStore

        baselines = BaselineStore(lambda: None)

        @contextmanager
        def session() -> Iterator[Session]:
            with task_group(self.thread) as group:
                yield replace(self.session(group, maker.model), check=check, baselines=baselines)

        return DecisionScorer(maker, session, keep=keep)

    @abstractmethod
    def require_whole_rows(self, what: str, *, instead: str = "") -> None:
        """Raise `WholeRowsError` if the probability of every token cannot be read.

        Args:
            what: Begins a sentence about what reads it.
            instead: The method that does without where a server draws text itself.
        """

    def prepare_generate(
        self, model: ModelDescription, prompts: Prompts, request: GenerateRequest
    ) -> Prepared[Generation]:
        """Check and tokenize a request to draw sequences; nothing is drawn yet."""
        from selectrie.engine.requests import generate  # imported on first use, as drawing text needs much

        return generate.prepare_generate(model, prompts, request)


class LocalRuntime(Runtime):
    """A model that runs here.

    Args:
        model: The model to run.
        check: The result of an earlier self-check; None for the assumed one.
        on_check: Called with the result of the self-check. If it is given and `check`
            is not, the check is made once the model has answered and nothing waits. It
            does not change what the engine does: equal requests have equal answers.
        max_waiting: Maximum number of tasks that wait to begin; None for no limit.
    """

    def __init__(
        self,
        model: Model,
        *,
        check: SelfCheck | None = None,
        on_check: Callable[[SelfCheck], None] | None = None,
        max_waiting: int | None = None,
    ) -> None:
        self._model, self.model = model, model
        self.check = None
        work: Iterator[None] | None = None
        if model.identity.precision == Precision.EXACT.value:
            self.check = check or assumed(model.identity, model.limits)
            if batch_multiple(model.limits) > 1:
                model.set_batch_multiple(batch_multiple(model.limits))
            if check is None and on_check is not None:
                work = _measured(model, on_check)
        self._kept = CanonicalMemories()
        self.thread: ModelThread = ModelThread(
            model, max_waiting=max_waiting, idle_work=work, before_close=self._kept.close
        )

    def session(self, group: TaskGroup, model: ModelDescription) -> Session:
        return Session(group, model, self.check, self.thread.scheduler.read_rows, self._kept, local=self._model)

    def forget_all(self) -> None:
        super().forget_all()
        self._kept.clear()

    def sequences_scorer(self, nodes: int, *, keep: object) -> SequenceScorer:
        from selectrie.engine.requests.loglikelihood import SequenceScorer  # as for `generate`

        model, limits = self._model, self._model.limits
        memories = SecondMemoryPool(
            self.thread, lambda: SecondMemory(model.new_context(nodes + limits.rows_per_call, limits.sequences))
        )
        return SequenceScorer(model, memories.group, memories.close, keep=keep)

    def decision_scorer(self, check: SelfCheck | None, maker: DecisionMaker, *, keep: object) -> DecisionScorer:
        from selectrie.engine.decisions import DecisionScorer, memories_of  # as above

        memories = memories_of(self.thread, self._model, maker)

        @contextmanager
        def session() -> Iterator[Session]:
            with memories.lend() as (memory, group):
                yield memory.session(group, check)

        return DecisionScorer(maker, session, memories.close, keep=keep)

    def require_whole_rows(self, what: str, *, instead: str = "") -> None:
        del what, instead


def _measured(model: Model, on_check: Callable[[SelfCheck], None]) -> Iterator[None]:
    """Measure the self-check in steps, and hand it over."""
    for check in measure(model):
        if check is not None and check.n_rows:
            on_check(check)
        yield
