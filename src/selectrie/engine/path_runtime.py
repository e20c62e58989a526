"""A runtime whose model is asked for its rows by their token path, as a server is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from selectrie.core.completion import SupportsCompletion
from selectrie.core.model import ModelDescription
from selectrie.core.path_model import REMOTE, PathModel
from selectrie.core.row_reader import RowStarter
from selectrie.core.types import Limits, ModelIdentity, ModelKind, SelfCheck
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.held_nodes import FILL_ROWS
from selectrie.engine.path_driver.path_thread import PathThread
from selectrie.engine.path_driver.query_reader import ROW_CACHE_BYTES, QueryReader
from selectrie.engine.requests import served_generate
from selectrie.engine.requests.generate import GenerateRequest, Prompts
from selectrie.engine.requests.loglikelihood import PathScorer, ScoresSequences
from selectrie.engine.requests.served_generate import ServedTask
from selectrie.engine.requests.session import Prepared, Session
from selectrie.engine.runtimes import Runtime
from selectrie.engine.scheduler.job import Job
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import IncompatibleOptionsError, WholeRowsError, ways
from selectrie.results import Generation

if TYPE_CHECKING:
    from selectrie.engine.decision_scorer import ScoresDecisions
    from selectrie.engine.decisions import DecisionMaker

_ACTIVE_EACH = 2
"""Tasks that are under way for each query that may be, so that none is waited for."""
_ANY = 1 << 30
"""Branches of a model that holds none."""


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
            larger_context=ways(operator="ask a server whose context is longer"),
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
        from selectrie.engine.decision_scorer import PathDecisionScorer  # imported on first use, as only tables need it

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
            raise WholeRowsError(what, f"use {instead}")
        raise WholeRowsError(what)
