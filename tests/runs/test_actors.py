"""Units in actors, on a cluster that is played by this process: order, window and deaths are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.errors import ClusterError
from selectrie.runs.actors import ActorJob, Cluster, _Crew

SIGNATURE = {"model": "square"}


@dataclass(frozen=True)
class Unit:
    """A number to square."""

    number: int


class ActorDiedError(Exception):
    """What the cluster raises for an actor that has died."""


class PlayedRay:
    """The calls of Ray that actors need; a drawn function picks what is ready and what dies."""

    exceptions = SimpleNamespace(
        RayActorError=ActorDiedError, RayTaskError=KeyError, GetTimeoutError=TimeoutError, RayError=ActorDiedError
    )

    def __init__(self, n_cpus, pick):
        self._n_cpus, self._pick, self.killed, self.n_made = n_cpus, pick, [], 0

    def cluster_resources(self):
        """CPUs of the cluster."""
        return {"CPU": float(self._n_cpus)}

    def remote(self, **resources):
        """A decorator of the class of actors."""
        return lambda worker: SimpleNamespace(remote=lambda *arguments: self._actor(worker(*arguments)))

    def _actor(self, worker):
        self.n_made += 1

        def method(name):
            return SimpleNamespace(remote=lambda *arguments: (self.n_made, name, arguments, worker, object()))

        return SimpleNamespace(signature=method("signature"), measure=method("measure"))

    def wait(self, references, num_returns):
        """One that is ready."""
        assert num_returns == 1
        return [references[self._pick(len(references))]], []

    def get(self, reference, timeout=None):
        """The result of a call, or the death of its actor."""
        _, name, arguments, worker, _ = reference
        if name == "measure" and self._pick(4) == 3:
            raise ActorDiedError("gone")
        return getattr(worker, name)(*arguments)

    def kill(self, actor):
        """End an actor."""
        self.killed.append(actor)


class Square:
    """The worker."""

    def __init__(self, source, options, offset):
        assert (source, options) == (None, {"n_threads": 1})
        self._offset = offset

    def signature(self):
        """The model's."""
        return SIGNATURE

    def measure(self, work):
        """A square."""
        return work * work + self._offset


@given(
    picks=st.lists(st.integers(0, 10), min_size=1, max_size=60),
    n_units=st.integers(0, 20),
    n_cpus=st.integers(1, 4),
    window=st.none() | st.integers(1, 5),
)
def test_every_unit_is_done_once_within_the_window(picks, n_units, n_cpus, window):
    """Whatever is ready first and whoever dies: the values are those of this process, no
    more actors than fit have a unit, no unit begins beyond the window, and units are
    taken as actors become free."""
    drawn = iter(picks)
    ray = PlayedRay(n_cpus, lambda n: next(drawn, 0) % n)
    taken = []

    def units():
        for number in range(n_units):
            taken.append(number)
            yield Unit(number)

    begun = []

    def data(unit):
        begun.append(unit.number)
        return unit.number

    job = ActorJob(Square, (7,), data, SIGNATURE, window)
    crew = _Crew(ray, Cluster(options={"n_threads": 1}, retries=100), job)
    done = {}
    for unit, value in crew.work(units()):
        assert unit.number not in done
        assert max(begun) < min(set(range(n_units)) - set(done)) + (window or n_units)
        done[unit.number] = value
        assert len(set(begun)) - len(done) < n_cpus
        assert len(taken) <= len(set(begun)) + 1
    crew.dismiss()
    assert done == {number: number * number + 7 for number in range(n_units)}
    assert len(ray.killed) <= n_cpus


def test_a_unit_that_kills_its_actors_ends_the_run():
    """After the retries that the caller allows; the error says how many actors it killed."""
    ray = PlayedRay(1, lambda n: n - 1)
    job = ActorJob(Square, (0,), lambda unit: unit.number, SIGNATURE)
    with pytest.raises(ClusterError, match="unit 0 killed 3 actors"):
        list(_Crew(ray, Cluster(options={"n_threads": 1}, retries=2), job).work(iter([Unit(0)])))
    assert ray.n_made == 3
