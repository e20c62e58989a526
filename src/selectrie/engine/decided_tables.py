"""Decides about every row of a data frame.

Files, whose runs go on after a crash, are decided about by the room `tables/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from selectrie.decide.columns import columns_of
from selectrie.decide.frames import Frame
from selectrie.decide.params import DecisionParams
from selectrie.decide.prompts import DecisionPrompt
from selectrie.decide.questions import Question
from selectrie.decide.row_states import row_states
from selectrie.decide.states import State
from selectrie.engine.decision_scorer import ScoresDecisions
from selectrie.options.checks import at_least


class DecidesUnits(Protocol):
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
    llm.decision_prompts("0", questions, params=params)  # what cannot be asked about any row
    rows = []
    with llm.decision_scorer(questions, params=params) as scorer:
        for unit in frame.units(states.columns, unit_rows):
            rows += columns.rows(scorer.decisions, states.of_each(unit))
    return frame.with_columns(columns.columns, rows)
