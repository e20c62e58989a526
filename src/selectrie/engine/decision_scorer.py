"""Decides about the states of a table, unit by unit, in a memory of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, Protocol

from selectrie.core.model import Model
from selectrie.core.types import IntArray, SelfCheck
from selectrie.decide.answers import Decision
from selectrie.decide.calibration import N_LEAST, Calibration, sample_of
from selectrie.decide.columns import Frame, columns_of
from selectrie.decide.params import DecisionParams, is_calibrated
from selectrie.decide.questions import Question
from selectrie.decide.states import State, row_states, text_of_state
from selectrie.decide.templates import DecisionPrompt
from selectrie.engine.decisions import DecisionMaker
from selectrie.engine.requests.canonical_memory import CanonicalMemories, common_length, evaluate_and_hold
from selectrie.engine.requests.select import BaselineStore
from selectrie.engine.requests.session import Session
from selectrie.engine.scheduler.model_thread import ModelThread
from selectrie.engine.scheduler.task_group import MemoriesApart, MemoryApart, TaskGroup
from selectrie.errors import ClosedError, OptionError, RequestError
from selectrie.options.checks import at_least
from selectrie.results.advice import warn

_NODES_HELD, _BRANCHES_HELD = 2, 4
"""The shared beginnings take at most one in so many nodes, and in so many branches."""


class DecisionScorer(AbstractContextManager["DecisionScorer"]):
    """Decides about units of states. Made by `Engine.decision_scorer`.

    It is a context manager. Any thread may call `decisions`. On a model that runs here,
    calls at the same time have separate memories (`memories_of`).

    Args:
        maker: Makes the prompts of the questions.
        session: Opens the session of a unit.
        close: Frees what sessions leave behind.
        keep: An object kept alive as long as the scorer.
    """

    def __init__(
        self,
        maker: DecisionMaker,
        session: Callable[[], AbstractContextManager[Session]],
        close: Callable[[], None] = lambda: None,
        *,
        keep: object = None,
    ) -> None:
        """Create a scorer; `keep` lives as long as the scorer."""
        self._maker, self._session, self._close, self._kept = maker, session, close, keep
        self._is_closed = False

    def __exit__(self, *_error: object) -> None:
        self.close()

    def decisions(self, states: Sequence[State]) -> list[Decision]:
        """Return the decision on each state of a unit, in order.

        The decision on a state that cannot be asked holds its error. Ctrl-C stops the
        call in the middle of a decode. If the call fails, its memory is freed, and the
        next call gets a new one.

        Raises:
            ModelError: If the model fails.
            ClosedError: If the scorer or the engine was closed.
        """
        if self._is_closed:
            raise ClosedError("the scorer")
        with self._session() as session:
            return self._maker.decisions(states, keeps=True, first=0).run(session)

    def close(self) -> None:
        """Free what it holds. May be called twice, and after the engine was closed."""
        self._is_closed = True
        self._close()


def memories_of(thread: ModelThread, model: Model, maker: DecisionMaker) -> MemoriesApart[DecisionMemory]:
    """Return memories for units of states.

    The beginnings that the prompts of all states share are evaluated once for each
    memory, and held: with questions first, the question and its list of options. A unit
    begins with all its prompts queued. Afterwards everything but the shared beginnings
    is dropped.
    """
    shared, limits = _shared_paths(model, maker), model.limits

    def opened() -> DecisionMemory:
        held = sum(map(len, shared))  # the rest of the memory is as large as the model's own
        solo = model.new_context(limits.nodes + held, limits.sequences)
        try:
            for path in shared:
                evaluate_and_hold(solo, path)
            solo.trim(0)
        except BaseException:
            solo.close()
            raise
        return DecisionMemory(solo, CanonicalMemories(len(shared) + 1))

    return MemoriesApart(thread, opened)


class DecisionMemory(MemoryApart):
    """The memory of a unit, and those of its near ties.

    The baselines of the rule are kept too, so each is evaluated once for all units.

    Args:
        model: A model made by `Model.new_context`.
        kept: Memories for near ties.
    """

    def __init__(self, model: Model, kept: CanonicalMemories) -> None:
        super().__init__(model)
        self._kept, self._baselines = kept, BaselineStore(self.clear)

    def session(self, group: TaskGroup, check: SelfCheck | None) -> Session:
        """Return the session of a unit."""
        return Session(group, self.model, check, kept=self._kept, baselines=self._baselines)

    def close(self) -> None:
        """Free the memories."""
        try:
            self._kept.close()
        finally:
            super().close()


def _shared_paths(model: Model, maker: DecisionMaker) -> tuple[IntArray, ...]:
    """Return the token paths with which the prompts of all states begin, longest first.

    There is one for each prompt of each question, as far as the model has room to hold
    them. They are what the prompts of two states have in common.
    """
    found: dict[bytes, IntArray] = {}
    for one, other in zip(maker.contexts("0"), maker.contexts("A b"), strict=True):
        path = one[: common_length(one, other)]
        if len(path):
            found.setdefault(path.tobytes(), path)
    limits = model.limits
    n_nodes, n_paths = limits.nodes // _NODES_HELD, limits.sequences // _BRANCHES_HELD
    held: list[IntArray] = []
    for path in sorted(found.values(), key=len, reverse=True):
        if len(path) <= n_nodes and len(held) < n_paths:
            held.append(path)
            n_nodes -= len(path)
    return tuple(held)


class CalibrationFitter(Protocol):
    """What fits a calibration: an engine."""

    def fit_calibration(
        self, states: Iterable[State], questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> Calibration: ...


class UnitDecider(CalibrationFitter, Protocol):
    """What is needed of an engine."""

    def decision_prompts(
        self, state: State, questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> dict[str, tuple[DecisionPrompt, ...]]: ...

    def decision_scorer(
        self, questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> DecisionScorer: ...


def decided_table(
    llm: UnitDecider,
    table: object,
    questions: Mapping[str, Question],
    *,
    state: str,
    params: DecisionParams,
    probabilities: str,
    prefix: str,
    unit_rows: int,
) -> Any:
    """Return the data frame with the columns of the answers: `Engine.decide_table`."""
    at_least("unit_rows", unit_rows, 1, optional=False)
    frame = Frame(table)
    states = row_states(state, frame.columns)
    columns = columns_of(questions, probabilities=probabilities, prefix=prefix)
    columns.check(frame.columns)
    all_states = (one for unit in frame.units(states.columns, unit_rows) for one in states.of_each(unit))
    params = with_fitted_calibration(llm, all_states, questions, params)
    llm.decision_prompts("0", questions, params=params)  # what cannot be asked about any row
    rows = []
    with llm.decision_scorer(questions, params=params) as scorer:
        for unit in frame.units(states.columns, unit_rows):
            rows += columns.rows(scorer.decisions, states.of_each(unit))
    return frame.with_columns(columns.columns, rows)


def with_fitted_calibration(
    llm: CalibrationFitter,
    states: Iterable[State | RequestError],
    questions: Mapping[str, Question],
    params: DecisionParams,
) -> DecisionParams:
    """Return the options with a calibration fitted to states in place of "batch".

    From fewer than 16 states none is fitted, with a warning. States that cannot be
    asked are left out.
    """
    if params.calibration != "batch":
        return params
    params = replace(params, calibration=None)
    if not any(is_calibrated(one, params) for one in questions.values()):
        return params
    calibration = Calibration(())
    if sample := sample_of(_texts(states)):
        with suppress(OptionError):  # none of them can be asked
            calibration = llm.fit_calibration(sample, questions, params=params)
    n = min((one.n for one in calibration.questions), default=0)
    if n < N_LEAST:
        said = f"calibration 'batch' needs {N_LEAST} different states of which the question can be asked; there are {n}"
        warn(f"{said}, so the answers are not calibrated")
        return params
    return replace(params, calibration=calibration)


def _texts(states: Iterable[State | RequestError]) -> Iterator[str]:
    for one in states:
        if not isinstance(one, RequestError):
            with suppress(RequestError):
                yield text_of_state(one)
