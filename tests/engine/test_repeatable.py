"""A request that is repeated alone makes the same calls, however fast its tasks arrive."""

from __future__ import annotations

import pytest

from selectrie import Grammar
from selectrie.core.types import SelfCheck
from selectrie.engine.engine import Engine
from selectrie.engine.scheduler.model_thread import _Call
from selectrie.errors import QueueFullError
from selectrie.options import SamplingParams, StopParams
from selectrie.testing import HashModel

REQUESTS = {
    "generate": lambda engine: engine.generate(["a", "b c"], n=3, seed=1, stopping=StopParams(max_tokens=5)),
    "sample": lambda engine: engine.sample("a", grammar=Grammar.from_regex(" [a-c]{1,3}t"), n=4, seed=2, exact=False),
    "select_many": lambda engine: engine.select_many([("a", [" b", " c"]), ("a b", [" cat", "t"]), ("b", ["at", "a"])]),
    "calibrated": lambda engine: engine.select("a", [" cat", " bat"], rule="pmi"),
}


def calls_of(request, monkeypatch, *, n_steps):
    """The rows of each call of a request whose thread lets the model take so many steps after each queued item."""
    model = HashModel(3)
    with Engine(model, check=SelfCheck(8, 0.0, 0.0)) as engine:
        put = engine._model_thread._inbox.put

        def slow(item):
            put(item)
            for _ in range(n_steps if isinstance(item, tuple) else 0):  # tasks; a step follows each call
                call = _Call(lambda: None)
                put(call)
                call.future.result()

        monkeypatch.setattr(engine._model_thread, "_inbox", _Slow(engine._model_thread._inbox, slow))
        request(engine)
    return model.call_sizes


class _Slow:
    """A queue with another way to put."""

    def __init__(self, queue, put):
        self._queue, self.put = queue, put

    def __getattr__(self, name):
        return getattr(self._queue, name)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_makes_the_same_calls_however_fast_its_tasks_arrive(name, monkeypatch):
    """All tasks that begin together are in the first call."""
    at_once = calls_of(REQUESTS[name], monkeypatch, n_steps=0)
    assert calls_of(REQUESTS[name], monkeypatch, n_steps=3) == at_once


def test_a_request_with_too_many_tasks_is_refused_whole():
    """Nothing of it runs, and the places that it had taken are free again."""
    model = HashModel(3)
    with Engine(model, check=SelfCheck(8, 0.0, 0.0), max_waiting=2) as engine:
        with pytest.raises(QueueFullError):
            engine.generate("a", n=3, seed=1, stopping=StopParams(max_tokens=2), sampling=SamplingParams())
        assert len(engine.generate("a", n=2, seed=1, stopping=StopParams(max_tokens=2))) == 2
        assert engine.load.n_waiting == 0
