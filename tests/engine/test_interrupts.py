"""Ctrl-C at any instruction of a request: the engine still answers the next one, and closes."""

from __future__ import annotations

import random
import threading

import pytest

from selectrie import Engine, Grammar, RenderParams, StopParams, Template
from selectrie.engine.precision_check import SelfCheck
from selectrie.testing import HashModel
from tests.support.interrupts import Interrupter

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
WAITS_S = 20.0
"""Far more than a request takes; only one that hangs waits for so long."""
CHOICES = ["cat", "car", "bat"]
GRAMMAR = Grammar.from_regex("[abc]{1,3}")
PAGE = Template("a<<select 'x' options=['b', 'c']>><<gen 'y' max_tokens=4>>")
SEED = RenderParams(seed=1)


def generated(engine):
    return engine.generate("a", stopping=StopParams(max_tokens=4), seed=1)


REQUESTS = {
    "select": lambda engine: engine.select("a", CHOICES),
    "sample": lambda engine: engine.sample("a", GRAMMAR, n=3, seed=1),
    "generate": generated,
    "stream": lambda engine: list(engine.stream("a", stopping=StopParams(max_tokens=4), seed=1)),
    "render": lambda engine: engine.render(PAGE, rendering=SEED),
    "render_many": lambda engine: engine.render_many(PAGE, [{}, {}, {}], rendering=SEED),
    "stream_render": lambda engine: list(engine.stream_render(PAGE, rendering=SEED)),
}


def is_waited_in(file: str) -> bool:
    """Whether code of this file starts, waits for or ends work of another thread.

    Not `threading`: a tracer can interrupt the end of its `with lock` blocks, which would
    leave the lock held, while Python handles no signal there.
    """
    return "selectrie/engine/" in file or "contextlib.py" in file


def ends(function) -> bool:
    """Whether another thread gets an answer."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(WAITS_S)
    return not thread.is_alive()


def n_instructions(request) -> int:
    """Return how many instructions a request takes, about."""
    interrupter = Interrupter(1 << 40, is_waited_in)
    with Engine(HashModel(3), check=EXACT) as engine, interrupter.at_work():
        request(engine)
    return (1 << 40) - interrupter._n_left


def stays_usable(request, n: int) -> bool:
    """Interrupt a request at its n-th instruction; whether the engine answers and closes after it."""
    engine = Engine(HashModel(3), check=EXACT)
    try:
        with Interrupter(n, is_waited_in).at_work():
            request(engine)
    except BaseException as error:
        # `Thread.start` releases its lock twice if it is interrupted while it waits.
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__context__, KeyboardInterrupt):
            raise
    return ends(lambda: engine.select("b", CHOICES)) and ends(engine.close)


# Python reports an interrupt within a finalizer and goes on.
@pytest.mark.short("select", "stream_render")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", REQUESTS)
def test_ctrl_c_at_any_instruction_leaves_an_engine_that_answers(name):
    """Forty instructions of each kind of request, drawn with a fixed seed."""
    n_all = n_instructions(REQUESTS[name])
    for n in sorted(random.Random(7).sample(range(n_all), 40)):
        assert stays_usable(REQUESTS[name], n), f"{name} interrupted at instruction {n} of {n_all}"
