"""What an engine runs on: a model that runs here, or one that is asked for its rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from selectrie.core.model import Model, ModelDescription
from selectrie.core.types import Precision, SelfCheck
from selectrie.engine.precision_check import self_check
from selectrie.engine.requests.session import Prepared, Session
from selectrie.engine.scheduler.model_thread import JobThread, ModelThread
from selectrie.engine.scheduler.task_group import TaskGroup

if TYPE_CHECKING:
    from selectrie.engine.decision_scorer import ScoresDecisions
    from selectrie.engine.decisions import DecisionMaker
    from selectrie.engine.requests.generate import GenerateRequest, Prompts
    from selectrie.engine.requests.loglikelihood import ScoresSequences
    from selectrie.results import Generation


class Runtime(ABC):
    """A model, the thread that runs tasks on it, and what requests need of it.

    Attributes:
        model: The model as requests see it.
        thread: The thread, which frees the model when it is closed.
        check: What is known of how far a log-probability may move; None before it is
            measured.
        has_whole_rows: Whether the probability of every token can be read.
    """

    model: ModelDescription
    thread: JobThread[Any]
    check: SelfCheck | None
    has_whole_rows: bool = True

    @abstractmethod
    def session(self, group: TaskGroup, model: ModelDescription) -> Session:
        """Return the `Session` of a task group, after what has to be measured.

        `model` describes the model to the request.
        """

    @abstractmethod
    def sequences_scorer(self, check: SelfCheck | None, nodes: int, *, keep: object) -> ScoresSequences:
        """Return a scorer of sequences of at most `nodes` tokens."""

    @abstractmethod
    def decision_scorer(self, check: SelfCheck | None, maker: DecisionMaker, *, keep: object) -> ScoresDecisions:
        """Return a scorer that decides about units of states."""

    @abstractmethod
    def require_whole_rows(self, what: str, *, instead: str = "") -> None:
        """Raise `WholeRowsError` unless the probability of every token can be read.

        Args:
            what: Begins a sentence about what reads it.
            instead: The method that does without where a server draws text itself.
        """

    def prepare_generate(
        self, model: ModelDescription, prompts: Prompts, request: GenerateRequest
    ) -> Prepared[Generation]:
        """Check and tokenize a request to draw sequences; nothing is drawn yet."""
        from selectrie.engine.requests import generate  # imported on first use, as drawing text needs much

        return generate.prepare(model, prompts, request)


class LocalRuntime(Runtime):
    """A model that runs here.

    Args:
        model: The model to run.
        check: The result of an earlier self-check; None to make it when needed.
        on_check: Called with the result of the self-check if it is made.
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
        self._model, self.check, self._on_check = model, check, on_check
        limits = model.limits
        if check is not None and not limits.batch_sizes.is_fixed and check.batch_multiple <= limits.rows_per_call:
            model.set_batch_multiple(check.batch_multiple)
        self.model = model
        self.thread: ModelThread = ModelThread(model, max_waiting=max_waiting)

    def session(self, group: TaskGroup, model: ModelDescription) -> Session:
        check = None
        if model.identity.precision == Precision.EXACT.value:
            check = self.check or group.call(self._make_check)
        return Session(group, model, check, self.thread.scheduler.read_rows)

    def _make_check(self) -> SelfCheck:
        """Return the result of the self-check, which is made if there is none yet.

        It runs on the model's thread, so a second caller finds the first one's result.
        """
        if self.check is None:
            self.check = self_check(self._model)
            if self._on_check is not None:
                self._on_check(self.check)
        return self.check

    def sequences_scorer(self, check: SelfCheck | None, nodes: int, *, keep: object) -> ScoresSequences:
        from selectrie.engine.requests.loglikelihood import LoglikelihoodScorer  # as for `generate`

        del check
        return LoglikelihoodScorer(self.thread, self._model, nodes, keep=keep)

    def decision_scorer(self, check: SelfCheck | None, maker: DecisionMaker, *, keep: object) -> ScoresDecisions:
        from selectrie.engine.decision_scorer import DecisionScorer  # imported on first use, as only tables need it

        return DecisionScorer(self.thread, self._model, check, maker, keep=keep)

    def require_whole_rows(self, what: str, *, instead: str = "") -> None:
        del what, instead
