"""Measures units of an evaluation in actors of a Ray cluster (extra `ray`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from selectrie.engine.load import load
from selectrie.engine.requests.loglikelihood import LogLikelihoods, ScoresSequences, Sequences
from selectrie.evaluation.evaluator import Done, Measure
from selectrie.evaluation.work_units import WorkUnit
from selectrie.runs.actors import ActorJob, Cluster, work_on
from selectrie.runs.folder import signature_of


class ScorerActor:
    """A model that measures sequences; actors are made of this class."""

    def __init__(self, source: str | None, options: Mapping[str, Any], longest: int) -> None:
        self._engine = load(source, **options)
        self._scorer: ScoresSequences = self._engine.loglikelihood_scorer(longest)

    def signature(self) -> dict[str, object]:
        """Return the facts that the model's log-probabilities depend on."""
        return signature_of(self._engine)

    def measure(self, work: Sequences) -> LogLikelihoods:
        """Return the log-likelihoods of one unit."""
        return self._scorer.loglikelihoods(work)


def measure_on(
    cluster: Cluster, signature: Mapping[str, object], on_actor: Callable[[Any], None] | None = None
) -> Measure:
    """Return a function that measures units for `runner.run` on a cluster's actors.

    The function yields units in the order in which they finish.

    Args:
        cluster: The cluster.
        signature: `signature_of` the engine that planned the run, which that of every
            actor must equal.
        on_actor: Called with each actor when it is made.
    """

    def measure(units: Sequence[WorkUnit]) -> Iterator[Done]:
        if not units:
            return
        longest = max(1, *(unit.longest for unit in units))
        job: ActorJob[WorkUnit] = ActorJob(
            ScorerActor, (longest,), lambda unit: unit.sequences, signature, on_actor=on_actor
        )
        for unit, loglikelihoods in work_on(cluster, job, units):
            yield Done(unit, loglikelihoods)

    return measure
