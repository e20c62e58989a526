"""Decides about every row of a data frame.

Files, whose runs go on after a crash, are decided about by the room `tables/`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

from selectrie.decide.columns import columns_of
from selectrie.decide.frames import Frame
from selectrie.decide.params import DecisionParams
from selectrie.decide.questions import Question
from selectrie.decide.row_states import row_states
from selectrie.engine.decision_scorer import ScoresDecisions
from selectrie.engine.row_estimate import CountsTokens, row_estimate
from selectrie.errors import RequestError
from selectrie.options.checks import at_least

logger = logging.getLogger(__name__)


class DecidesUnits(CountsTokens, Protocol):
    """What is needed of an engine."""

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
    units = frame.units(states.columns, unit_rows)
    rows = []
    first = next(units, [])
    if params.layout == "auto":
        asked = (one for one in states.of_each(first) if not isinstance(one, RequestError))
        found = row_estimate(llm, asked, len(frame), questions, params)
        params = replace(params, layout=params.first if found is None else found.layout)
        logger.info("%s, by the estimate: %s", params.layout, found)
    with llm.decision_scorer(questions, params=params) as scorer:
        for unit in chain([first] if first else [], units):
            rows += columns.rows(scorer.decisions, states.of_each(unit))
    return frame.with_columns(columns.columns, rows)
