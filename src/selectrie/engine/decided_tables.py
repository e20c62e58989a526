"""Decides about every row of a data frame.

Files, whose runs go on after a crash, are decided about by the room `tables/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from selectrie.decide.asks import is_calibrated
from selectrie.decide.calibration import N_LEAST, Calibration, sample_of
from selectrie.decide.columns import columns_of
from selectrie.decide.frames import Frame
from selectrie.decide.params import DecisionParams
from selectrie.decide.prompts import DecisionPrompt
from selectrie.decide.questions import Question
from selectrie.decide.row_states import row_states
from selectrie.decide.states import State, text_of_state
from selectrie.engine.decision_scorer import ScoresDecisions
from selectrie.errors import OptionError, RequestError
from selectrie.options.checks import at_least
from selectrie.results.advice import warn


class CalibrationFitter(Protocol):
    """What fits a calibration: an engine."""

    def fit_calibration(
        self, states: Iterable[State], questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> Calibration: ...


class DecidesUnits(CalibrationFitter, Protocol):
    """What is needed of an engine."""

    def decision_prompts(
        self, state: State, questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> dict[str, tuple[DecisionPrompt, ...]]: ...

    def decision_scorer(
        self, questions: Mapping[str, Question], *, params: DecisionParams | None = None
    ) -> ScoresDecisions: ...


def decided_table(
    llm: DecidesUnits,
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
