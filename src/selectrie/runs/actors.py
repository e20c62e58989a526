"""Works on units in actors of a Ray cluster (extra `ray`).

Each actor has a model and works on one unit at a time; a unit whose actor died is
tried again. An actor's values have the same bits as those of a single machine of that
type, and results are written in a fixed order, so the files are the same.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from selectrie.errors import ClusterError, MissingExtraError, OptionError
from selectrie.options import at_least
from selectrie.runs.folder import UnitT

logger = logging.getLogger(__name__)

_ANSWER_S = 10
"""Seconds within which an address must answer."""
_START_S = 600
"""Seconds within which an actor must have loaded its model."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The Ray cluster that works on units, and the model of its actors.

    Attributes:
        source, options: Arguments of `selectrie.load` for each actor. A file must be at
            the same path on all machines.
        address: Address of a Ray cluster. None means a cluster on this machine, which
            is started for the run and stopped after it.
        n_actors: Number of actors that run at once. None means as many as the cluster
            has CPUs for.
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


class Worker(Protocol):
    """A model that an actor runs in a separate process, on any machine."""

    def signature(self) -> Mapping[str, object]:
        """Return the facts that the model's log-probabilities depend on."""
        ...

    def measure(self, work: Any) -> Any:
        """Return the values of one unit, from the data that `ActorJob.data` made."""
        ...


@dataclass(frozen=True, slots=True)
class ActorJob(Generic[UnitT]):
    """The work that a run gives to its actors.

    Attributes:
        worker: The class of the actors. It is called with the `source` and `options` of
            the cluster, followed by `arguments`.
        arguments: Further arguments of the worker.
        data: Returns the data of a unit that are sent to an actor, for
            `Worker.measure`.
        signature: Signature of the model that planned the run. An actor of another
            model, build or processor type is an error, because its log-probabilities
            would have other bits.
        window: Maximum distance between the number of the first unfinished unit and
            that of any unit given to an actor (see `unit_log.UnitLog`). None means no
            bound.
        on_actor: Called with Ray's handle of each new actor.
    """

    worker: Callable[..., Worker]
    arguments: tuple[Any, ...]
    data: Callable[[UnitT], Any]
    signature: Mapping[str, object]
    window: int | None = None
    on_actor: Callable[[Any], None] | None = None


def work_on(cluster: Cluster, job: ActorJob[UnitT], units: Iterable[UnitT]) -> Iterator[tuple[UnitT, Any]]:
    """Yield units with their values, in the order in which actors finish them.

    Units are taken from the iterable as actors become free.

    Raises:
        MissingExtraError: If Ray is not installed.
        OptionError: If the cluster does not answer or has too few CPUs.
        ClusterError: If an actor cannot start or has another signature, or if a unit
            ends more actors than `cluster.retries` allows.
    """
    with _connect(cluster) as ray:
        crew = _Crew(ray, cluster, job)
        try:
            yield from crew.work(iter(units))
        finally:
            crew.dismiss()


@contextmanager
def _connect(cluster: Cluster) -> Iterator[Any]:
    """Yield the module `ray`, connected to the cluster inside the `with` block.

    A connection that this process already has is used and stays.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("a run over a cluster", "ray") from error
    was_connected = ray.is_initialized()
    if not was_connected:
        _check_reachable(cluster.address)
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


def _check_reachable(address: str | None) -> None:
    """Raise `OptionError` if nothing listens at `host:port`; Ray would try for minutes.

    Other forms of addresses are not checked.
    """
    host, _, port = (address or "").rpartition(":")
    if not host or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise OptionError("ray", address, f"the address of a running cluster ({error})") from error


class _Crew(Generic[UnitT]):
    """The actors of a run, and the unit that each one works on."""

    def __init__(self, ray: Any, cluster: Cluster, job: ActorJob[UnitT]) -> None:
        self._ray, self._cluster, self._job = ray, cluster, job
        self._actors: list[Any] = []

    def work(self, units: Iterator[UnitT]) -> Iterator[tuple[UnitT, Any]]:
        """Yield each unit with its values when an actor has finished it.

        A unit whose actor died goes to a new actor, up to `retries` times.
        """
        size = self._n_actors()
        busy: dict[Any, tuple[Any, UnitT]] = {}
        idle: list[Any] = []
        tries: dict[int, int] = {}
        upcoming = next(units, None)
        while upcoming is not None or busy:
            while upcoming is not None and len(busy) < size and self._is_within_window(upcoming, busy):
                actor = idle.pop() if idle else self._hire()
                busy[self._start_unit(actor, upcoming)] = (actor, upcoming)
                upcoming = next(units, None)
            [ready], _ = self._ray.wait(list(busy), num_returns=1)
            actor, unit = busy.pop(ready)
            try:
                values = self._ray.get(ready)
            except self._ray.exceptions.RayActorError as error:
                tries[unit.number] = tries.get(unit.number, 0) + 1
                logger.warning("the actor of unit %d died: %s", unit.number, error)
                if tries[unit.number] > self._cluster.retries:
                    raise ClusterError(
                        f"unit {unit.number} killed {tries[unit.number]} actors; the last one: {error}"
                    ) from error
                self._actors.remove(actor)
                actor = self._hire()
                busy[self._start_unit(actor, unit)] = (actor, unit)
            except self._ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from error
            else:
                tries.pop(unit.number, None)
                idle.append(actor)
                yield unit, values

    def _start_unit(self, actor: Any, unit: UnitT) -> Any:
        """Send a unit to an actor, and return Ray's reference to the values."""
        return actor.measure.remote(self._job.data(unit))

    def _is_within_window(self, unit: UnitT, busy: Mapping[Any, tuple[Any, UnitT]]) -> bool:
        """Return whether the window allows starting a unit beside the busy ones.

        `busy` maps references of values to the actor and the unit.
        """
        first = min((other.number for _, other in busy.values()), default=unit.number)
        return self._job.window is None or unit.number < first + self._job.window

    def _n_actors(self) -> int:
        """Return the number of actors that run at once.

        Raises `OptionError` if the cluster has no room for the requested number.
        """
        room = int(self._ray.cluster_resources().get("CPU", 0)) // self._cluster.cpus
        if room < (self._cluster.n_actors or 1):
            expected = f"at most {room}, what the cluster has room for at {self._cluster.cpus} CPU each"
            raise OptionError("actors", self._cluster.n_actors, expected)
        return self._cluster.n_actors or room

    def _hire(self) -> Any:
        """Start an actor, check that its signature is that of the run, and return it.

        Raises `ClusterError` if it does not start or its signature differs.
        """
        worker = self._ray.remote(num_cpus=self._cluster.cpus, max_restarts=0)(self._job.worker)
        actor = worker.remote(self._cluster.source, dict(self._cluster.options), *self._job.arguments)
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
        for name, value in self._job.signature.items():
            if theirs[name] != value:
                raise ClusterError(
                    f"an actor's {name} is {theirs[name]!r}, here it is {value!r}: "
                    "its log-probabilities would have other bits"
                )
        if self._job.on_actor is not None:
            self._job.on_actor(actor)
        return actor

    def dismiss(self) -> None:
        """End every actor."""
        for actor in self._actors:
            self._ray.kill(actor)
