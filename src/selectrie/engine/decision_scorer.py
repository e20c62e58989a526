"""Answers questions about the rows of a table, one unit of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from selectrie.core.model import Model
from selectrie.core.types import IntArray, SelfCheck
from selectrie.decide.answers import Decision
from selectrie.decide.calibration import N_LEAST, Calibration, sample_of
from selectrie.decide.columns import Frame, columns_of
from selectrie.decide.params import DecisionParams, is_calibrated
from selectrie.decide.questions import Question
from selectrie.decide.states import State, readable_texts, row_states
from selectrie.engine.decisions import DecisionBatch, DecisionMaker
from selectrie.engine.requests.canonical_memory import CanonicalMemories, common_length, evaluate_and_hold
from selectrie.engine.requests.select import BaselineStore
from selectrie.engine.requests.session import Session
from selectrie.engine.scheduler.model_thread import ModelThread
from selectrie.engine.scheduler.task_group import SecondMemory, SecondMemoryPool, TaskGroup
from selectrie.errors import ClosedError, OptionError, RequestError
from selectrie.options.checks import at_least
from selectrie.results.advice import warn

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
        return self._maker.prepare_batch(states, keep_errors=True, first_index=0)

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


class CalibrationFitter(Protocol):
    """An engine that can fit a calibration."""

    def fit_calibration(
        self, states: Iterable[State], questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> Calibration: ...


class UnitScorer(Protocol):
    """A scorer of units of states, such as a `DecisionScorer`."""

    def __enter__(self: T) -> T: ...  # noqa: PYI019 - Self is not in typing before Python 3.11
    def __exit__(self, *error: object) -> None: ...
    def decisions(self, states: Sequence[State]) -> list[Decision]: ...


class UnitDecider(CalibrationFitter, Protocol):
    """An engine, or a cascade, that can answer questions about a table."""

    def decision_prompts(
        self, state: State, questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> object: ...

    def decision_scorer(
        self, questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> UnitScorer: ...


def decide_table(
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
    """Return the data frame with the columns of the answers (`Engine.decide_table`)."""
    at_least("unit_rows", unit_rows, 1, optional=False)
    frame = Frame(table)
    states = row_states(state, frame.columns)
    columns = columns_of(questions, probabilities=probabilities, prefix=prefix)
    columns.check(frame.columns)
    all_states = (one for unit in frame.units(states.columns, unit_rows) for one in states.of_each(unit))
    params = with_fitted_calibration(llm, all_states, questions, params)
    llm.decision_prompts("0", questions, params=params)  # raises if no row can be asked
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
    """Replace `calibration="batch"` by a calibration fitted to the states.

    States that cannot be asked are left out. With fewer than 16 states, the result has
    no calibration, and a warning is issued. Other options are returned unchanged.
    """
    if params.calibration != "batch":
        return params
    params = replace(params, calibration=None)
    if not any(is_calibrated(one, params) for one in questions.values()):
        return params
    calibration = Calibration(())
    if sample := sample_of(readable_texts(states)):
        with suppress(OptionError):  # no state can be asked
            calibration = llm.fit_calibration(sample, questions, params=params)
    n = min((one.n for one in calibration.questions), default=0)
    if n < N_LEAST:
        need = f"calibration 'batch' needs {N_LEAST} different states of which the question can be asked; there are {n}"
        warn(f"{need}, so the answers are not calibrated")
        return params
    return replace(params, calibration=calibration)
