"""Decides about the rows of a table in actors of a Ray cluster (extra `ray`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from selectrie.decide.columns import AnswerColumns
from selectrie.decide.params import DecisionParams
from selectrie.decide.questions import Question
from selectrie.decide.states import State
from selectrie.engine.load import load
from selectrie.errors import RequestError
from selectrie.runs.actors import ActorJob, Cluster, work_on
from selectrie.runs.folder import signature_of
from selectrie.tables.formats import TableUnit
from selectrie.tables.table_run import WINDOW, DecidedRows, LoggedRow, TablePlan, Work, decided_rows


class DecisionActor:
    """A model that decides about states; actors are made of this class."""

    def __init__(
        self,
        source: str | None,
        options: Mapping[str, Any],
        questions: Mapping[str, Question],
        params: DecisionParams,
        columns: AnswerColumns,
    ) -> None:
        self._engine, self._columns = load(source, **options), columns
        self._scorer = self._engine.decision_scorer(questions, params=params)  # lives as long as the actor

    def signature(self) -> dict[str, object]:
        """Return the facts that the model's log-probabilities depend on."""
        return signature_of(self._engine)

    def measure(self, work: Sequence[State | RequestError]) -> tuple[LoggedRow, ...]:
        """Return what is logged for the rows of one unit."""
        return decided_rows(self._scorer.decisions, self._columns, work)


def decided_on(
    cluster: Cluster, signature: Mapping[str, object], on_actor: Callable[[Any], None] | None = None
) -> Work:
    """Return what decides about units for `run_table` on a cluster's actors.

    The function yields units in the order in which they finish.

    Args:
        cluster: The cluster.
        signature: `signature_of` the engine that begins the run, which that of every
            actor must equal.
        on_actor: Called with each actor when it is made.
    """

    def work(plan: TablePlan, units: Iterator[TableUnit]) -> Iterator[tuple[TableUnit, DecidedRows]]:
        arguments = (dict(plan.asked.questions), plan.params, plan.asked.columns())
        job: ActorJob[TableUnit] = ActorJob(
            DecisionActor, arguments, plan.states_of, signature, window=WINDOW, on_actor=on_actor
        )
        for unit, rows in work_on(cluster, job, units):
            yield unit, DecidedRows(unit.rows.digest, rows)

    return work
