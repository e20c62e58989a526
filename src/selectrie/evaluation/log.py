"""What a line of an evaluation's log holds: the log-likelihoods of a unit's sequences.

`runs.unit_log` reads and writes the lines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from selectrie.engine.requests.loglikelihood import LogLikelihoods
from selectrie.evaluation.evaluator import Done
from selectrie.evaluation.work_units import WorkUnit


@dataclass(frozen=True, slots=True)
class LoggedUnit:
    """The values of a line: log-likelihoods of a unit's sequences, in their order."""

    rows_evaluated: int
    logp: tuple[float, ...]
    is_greedy: tuple[bool, ...]

    @staticmethod
    def of(done: Done) -> LoggedUnit:
        """Return the values of a unit that was measured."""
        loglikelihoods = done.loglikelihoods
        return LoggedUnit(
            loglikelihoods.rows_evaluated,
            tuple(loglikelihoods.logp.tolist()),
            tuple(loglikelihoods.is_greedy.tolist()),
        )

    def measured(self, unit: WorkUnit) -> Done:
        """Return `unit` with the log-likelihoods of this line, which fit it."""
        loglikelihoods = LogLikelihoods(
            logp=np.array(self.logp, dtype=np.float64),
            is_greedy=np.array(self.is_greedy, dtype=np.bool_),
            n_scored=unit.sequences.n_scored,
            rows_evaluated=self.rows_evaluated,
            rows_naive=unit.sequences.rows_naive,
        )
        return Done(unit, loglikelihoods)


class UnitLines:
    """The format of these lines, a `runs.log_lines.LineFormat`."""

    def encode(self, values: LoggedUnit) -> dict[str, object]:
        """Return the fields of a line; -inf is written as a text."""
        logp = ["-inf" if value == -math.inf else value for value in values.logp]
        return {"rows_evaluated": values.rows_evaluated, "logp": logp, "is_greedy": values.is_greedy}

    def decode(self, fields: Mapping[str, Any]) -> LoggedUnit:
        """Return the values of a line.

        Raises `ValueError` or another of Python's errors for fields of another form.
        """
        logp = tuple(-math.inf if value == "-inf" else value for value in fields["logp"])
        line = LoggedUnit(fields["rows_evaluated"], logp, tuple(fields["is_greedy"]))
        if type(line.rows_evaluated) is not int or not all(type(value) is float and value <= 0 for value in logp):
            raise ValueError("rows_evaluated or a value of logp has the wrong type")
        if not all(type(value) is bool for value in line.is_greedy):
            raise ValueError("is_greedy has a value that is neither true nor false")
        return line

    def check(self, unit: WorkUnit, values: LoggedUnit) -> None:
        """Raise `ValueError` if the values cannot belong to the unit."""
        sequences = unit.sequences
        for name, column in (("logp", values.logp), ("is_greedy", values.is_greedy)):
            if len(column) != len(sequences):
                raise ValueError(
                    f"{name} has {len(column)} values for the {len(sequences)} sequences of unit {unit.number}"
                )
        if not 0 <= values.rows_evaluated <= sequences.rows_naive:
            raise ValueError(
                f"rows_evaluated is {values.rows_evaluated}, and unit {unit.number} has {sequences.rows_naive}"
            )


UNIT_LINES = UnitLines()
