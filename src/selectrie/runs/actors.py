"""Measures units of an evaluation on a Ray cluster (extra `ray`).

Each actor has a model and measures one unit at a time; a unit whose actor died is
measured again. An actor's results have the same bits as those of a single machine of
that type, and results are written in a fixed order, so the files are the same.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from selectrie.engine.load import load
from selectrie.engine.requests.loglikelihood import LogLikelihoods, LoglikelihoodScorer, Sequences
from selectrie.errors import ClusterError, MissingExtraError, OptionError
from selectrie.evaluation.evaluator import Done, Measure, signature_of
from selectrie.evaluation.work_units import WorkUnit
from selectrie.options import at_least

logger = logging.getLogger(__name__)

_ANSWER_S = 10
"""Seconds within which an address must answer."""
_START_S = 600
"""Seconds within which an actor must have loaded its model."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The Ray cluster on which units are measured, and the model of its actors.

    Attributes:
        source, options: Arguments of `selectrie.load` for each actor. A file must be at
            the same path on all machines.
        address: Address of a Ray cluster. None means a cluster on this machine, made
            for the run and ended with it.
        n_actors: Number of models that run at once. None means as many as the cluster
            has room for.
        cpus: Number of CPUs of each actor.
        retries: Number of times that a unit whose actor died is tried again.
    """

    source: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    address: str | None = None
    n_actors: int | None = None
    cpus: int = 1
    retries: int = 3

    def __post_init__(self) -> None:
        at_least("n_actors", self.n_actors, 1)
        at_least("cpus", self.cpus, 1, optional=False)
        at_least("retries", self.retries, 0, optional=False)


class Worker:
    """A model in a separate process on any machine; actors are made of this class."""

    def __init__(self, source: str | None, options: Mapping[str, Any], longest: int) -> None:
        self._engine = load(source, **options)
        self._scorer: LoglikelihoodScorer = self._engine.loglikelihood_scorer(longest)

    def signature(self) -> dict[str, object]:
        """Return the facts that the model's log-probabilities depend on."""
        return signature_of(self._engine)

    def measure(self, sequences: Sequences) -> LogLikelihoods:
        """Return the log-likelihoods of one unit."""
        return self._scorer.loglikelihoods(sequences)


def measure_on(
    cluster: Cluster, signature: Mapping[str, object], on_actor: Callable[[Any], None] | None = None
) -> Measure:
    """Return a function that measures units for `runner.run` on a cluster's actors.

    The function yields units in the order in which they finish.

    Args:
        cluster: The cluster.
        signature: `signature_of` the engine that planned the run. An actor of another
            model, build or processor type raises an error, because its
            log-probabilities would have other bits.
        on_actor: Called with each actor when it is made.
    """

    def measure(units: Sequence[WorkUnit]) -> Iterator[Done]:
        if not units:
            return
        longest = max(1, *(unit.longest for unit in units))
        with _connected(cluster) as ray:
            crew = _Crew(ray, cluster, longest, signature, on_actor)
            try:
                yield from crew.work(units)
            finally:
                crew.dismiss()

    return measure


@contextmanager
def _connected(cluster: Cluster) -> Iterator[Any]:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("a run over a cluster", "ray") from error
    was_connected = ray.is_initialized()
    if not was_connected:
        _check_answers(cluster.address)
        where: dict[str, Any] = {"address": cluster.address}
        if cluster.address is None:
            where = {"include_dashboard": False}
            if cluster.n_actors is not None:
                where["num_cpus"] = cluster.n_actors * cluster.cpus
        try:
            ray.init(log_to_driver=False, **where)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise OptionError("ray", cluster.address, f"the address of a running cluster ({error})") from error
    try:
        yield ray
    finally:
        if not was_connected:
            ray.shutdown()


def _check_answers(address: str | None) -> None:
    """Raise `OptionError` if `host:port` does not answer; Ray would try for minutes."""
    host, _, port = (address or "").rpartition(":")
    if not host or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise OptionError("ray", address, f"the address of a running cluster ({error})") from error


class _Crew:
    """The actors of a run, and the unit that each one measures."""

    def __init__(
        self,
        ray: Any,
        cluster: Cluster,
        longest: int,
        signature: Mapping[str, object],
        on_actor: Callable[[Any], None] | None,
    ) -> None:
        self._ray, self._cluster, self._longest = ray, cluster, longest
        self._signature, self._on_actor = signature, on_actor
        self._actors: list[Any] = []

    def work(self, units: Sequence[WorkUnit]) -> Iterator[Done]:
        """Yield units as they are measured.

        A unit whose actor died goes to a new actor, up to `retries` times.
        """
        waiting, tries = deque(units), dict.fromkeys((unit.number for unit in units), 0)
        size = self._size()
        busy = {}
        for _ in range(min(size, len(waiting))):
            unit, actor = waiting.popleft(), self._hire()
            busy[actor.measure.remote(unit.sequences)] = (actor, unit)
        while busy:
            [ready], _ = self._ray.wait(list(busy), num_returns=1)
            actor, unit = busy.pop(ready)
            try:
                loglikelihoods = self._ray.get(ready)
            except self._ray.exceptions.RayActorError as error:
                tries[unit.number] += 1
                logger.warning("the actor of unit %d died: %s", unit.number, error)
                if tries[unit.number] > self._cluster.retries:
                    raise ClusterError(
                        f"unit {unit.number} killed {tries[unit.number]} actors; the last one: {error}"
                    ) from error
                self._actors.remove(actor)
                actor = self._hire()
                waiting.appendleft(unit)
            except self._ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from error
            else:
                yield Done(unit, loglikelihoods)
            if waiting:
                unit = waiting.popleft()
                busy[actor.measure.remote(unit.sequences)] = (actor, unit)

    def _size(self) -> int:
        """Return the number of actors that run at once.

        Raises `OptionError` if the cluster has no room for the requested number.
        """
        room = int(self._ray.cluster_resources().get("CPU", 0)) // self._cluster.cpus
        if room < (self._cluster.n_actors or 1):
            expected = f"at most {room}, what the cluster has room for at {self._cluster.cpus} CPU each"
            raise OptionError("actors", self._cluster.n_actors, expected)
        return self._cluster.n_actors or room

    def _hire(self) -> Any:
        """Return a new actor, after checking that its signature is that of the run."""
        worker = self._ray.remote(num_cpus=self._cluster.cpus, max_restarts=0)(Worker)
        actor = worker.remote(self._cluster.source, dict(self._cluster.options), self._longest)
        self._actors.append(actor)
        try:
            theirs = self._ray.get(actor.signature.remote(), timeout=_START_S)
        except self._ray.exceptions.GetTimeoutError as error:
            raise ClusterError(
                f"an actor did not start within {_START_S} s: "
                "the cluster has no CPU free, or the model loads too slowly"
            ) from error
        except self._ray.exceptions.RayError as error:
            raise ClusterError(
                f"an actor could not load {self._cluster.source or 'the embedded model'}: {error}"
            ) from error
        for name, value in self._signature.items():
            if theirs[name] != value:
                raise ClusterError(
                    f"an actor's {name} is {theirs[name]!r}, here it is {value!r}: "
                    "its log-probabilities would have other bits"
                )
        if self._on_actor is not None:
            self._on_actor(actor)
        return actor

    def dismiss(self) -> None:
        """End every actor."""
        for actor in self._actors:
            self._ray.kill(actor)
