"""What an engine runs on: a model that runs here, or one that is asked for its rows."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from selectrie.core.completion import SupportsCompletion
from selectrie.core.model import Model, ModelDescription
from selectrie.core.path_model import REMOTE, PathModel
from selectrie.core.row_reader import RowStarter
from selectrie.core.types import Limits, ModelIdentity, ModelKind, Precision, SelfCheck
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.held_nodes import FILL_ROWS
from selectrie.engine.path_driver.path_thread import PathThread
from selectrie.engine.path_driver.query_reader import ROW_CACHE_BYTES, QueryReader
from selectrie.engine.precision_check import assumed, batch_multiple, measure
from selectrie.engine.requests import generate, served_generate
from selectrie.engine.requests.canonical_memory import KeptMemories
from selectrie.engine.requests.generate import GenerateRequest, Prompts
from selectrie.engine.requests.loglikelihood import LoglikelihoodScorer, PathScorer, ScoresSequences
from selectrie.engine.requests.served_generate import ServedTask
from selectrie.engine.requests.session import Prepared, Session
from selectrie.engine.scheduler.job import Job
from selectrie.engine.scheduler.model_thread import JobThread, ModelThread
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import IncompatibleOptionsError, WholeRowsError
from selectrie.results import Generation

if TYPE_CHECKING:
    from selectrie.engine.decision_scorer import ScoresDecisions
    from selectrie.engine.decisions import DecisionMaker

_ACTIVE_EACH = 2
"""Tasks that are under way for each query that may be, so that none is waited for."""
_ANY = 1 << 30
"""Branches of a model that holds none."""


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
        return generate.prepare(model, prompts, request)


class LocalRuntime(Runtime):
    """A model that runs here.

    Args:
        model: The model to run.
        check: The result of an earlier self-check; None for the assumed one.
        on_check: Called with the result of the self-check. If it is given and `check`
            is not, the check is made once the model has answered and nothing waits.
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
                work = _measured(weakref.ref(self), model, on_check)
        self._kept = KeptMemories()
        self.thread: ModelThread = ModelThread(
            model, max_waiting=max_waiting, idle_work=work, before_close=self._kept.close
        )

    def session(self, group: TaskGroup, model: ModelDescription) -> Session:
        return Session(group, model, self.check, self.thread.scheduler.read_rows, self._kept)

    def sequences_scorer(self, check: SelfCheck | None, nodes: int, *, keep: object) -> ScoresSequences:
        del check
        return LoglikelihoodScorer(self.thread, self._model, nodes, keep=keep)

    def decision_scorer(self, check: SelfCheck | None, maker: DecisionMaker, *, keep: object) -> ScoresDecisions:
        from selectrie.engine.decision_scorer import DecisionScorer  # imported on first use, as only tables need it

        return DecisionScorer(self.thread, self._model, check, maker, keep=keep)

    def require_whole_rows(self, what: str, *, instead: str = "") -> None:
        del what, instead


def _measured(
    runtime: weakref.ref[LocalRuntime], model: Model, on_check: Callable[[SelfCheck], None]
) -> Iterator[None]:
    """Measure the self-check in steps; it holds for later requests of the engine.

    Not while tasks are watched, since a trace states one check.
    """
    for check in measure(model):
        yield
        engine = runtime()
        if check is not None and check.n_rows and engine is not None:
            on_check(check)
            if engine.thread.observer is None:
                engine.check = check


@dataclass(frozen=True, slots=True)
class _DescribedPaths:
    """A `PathModel` as requests see it."""

    vocabulary: Vocabulary
    limits: Limits
    identity: ModelIdentity


class PathRuntime(Runtime):
    """A model that is asked for its rows by their token path, as a server is.

    Its rows are kept by their path, and queries of all tasks share requests. Text is
    drawn by the model itself, if it can do that. What reads whole rows is refused.

    Args:
        model: The model; it is closed with the thread.
        cache_bytes: Bytes of rows that are kept for later requests, roughly.
        max_waiting: Maximum number of tasks that wait to begin; None for no limit.
    """

    has_whole_rows = False

    def __init__(self, model: PathModel, *, cache_bytes: int = ROW_CACHE_BYTES, max_waiting: int | None = None) -> None:
        limits = model.limits
        n_together = max(1, limits.requests_in_flight) * max(1, limits.queries_per_request)
        self._n_together, self._max_named = min(FILL_ROWS, n_together), limits.named_ids
        # The last one that is told may be as probable as one that is not.
        is_whole = limits.top_ids >= len(model.vocabulary.pieces)
        self._max_top = None if is_whole else max(0, limits.top_ids - 1)
        described = Limits(
            nodes=limits.path_tokens,
            sequences=_ANY,
            rows_per_call=n_together,
            kind=ModelKind.ATTENTION,
            max_idle_rows=None,
            larger_context="ask a server whose context is longer",
        )
        self.model = _DescribedPaths(model.vocabulary, described, replace(model.identity, precision=REMOTE))
        self._completer = model if isinstance(model, SupportsCompletion) else None
        self.check = SelfCheck(0, model.tolerance, model.tolerance)
        reader = QueryReader(model, cache_bytes=cache_bytes)

        def reader_of(job: Job) -> RowStarter:  # holds no runtime, which would keep an abandoned engine alive
            return job.task if isinstance(job.task, ServedTask) else reader

        self.thread: PathThread = PathThread(
            reader,
            described,
            max_active=_ACTIVE_EACH * n_together,
            max_waiting=max_waiting,
            reader_of=reader_of,
        )

    def session(self, group: TaskGroup, model: ModelDescription) -> Session:
        return Session(
            group,
            model,
            self.check,
            n_together=self._n_together,
            max_named=self._max_named,
            max_top=self._max_top,
        )

    def sequences_scorer(self, check: SelfCheck | None, nodes: int, *, keep: object) -> ScoresSequences:
        del check
        return PathScorer(self.thread, self.model, nodes, keep=keep)

    def decision_scorer(self, check: SelfCheck | None, maker: DecisionMaker, *, keep: object) -> ScoresDecisions:
        from selectrie.engine.decision_scorer import PathDecisionScorer  # as in LocalRuntime

        del check
        return PathDecisionScorer(self.thread, self.session, maker, keep=keep)

    def prepare_generate(
        self, model: ModelDescription, prompts: Prompts, request: GenerateRequest
    ) -> Prepared[Generation]:
        if self._completer is None:
            raise WholeRowsError("`generate`")
        if self.thread.observer is not None:
            remedy = "the text is drawn by the server, and no rows of it are read; call it outside the block"
            raise IncompatibleOptionsError("generate", "recording a trace", remedy)
        return served_generate.prepare(self._completer, model, prompts, request)

    def require_whole_rows(self, what: str, *, instead: str = "") -> None:
        if instead and self._completer is not None:
            raise WholeRowsError(what, f"use {instead}, or load the model here")
        raise WholeRowsError(what)
