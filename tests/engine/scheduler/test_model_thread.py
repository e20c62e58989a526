"""The thread that owns a model: calls from many threads, Ctrl-C, fork, close, and engines that are forgotten."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import final

import numpy as np
import pytest

from selectrie import Engine, SearchParams, Selection, load
from selectrie.backends.llama_cpp.context import Context
from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.scheduler.job import LOOK_AGAIN_S
from selectrie.engine.scheduler.model_thread import _INTERRUPT_AGAIN_S, ModelThread, _Call
from selectrie.engine.scheduler.turns import CallTimes
from selectrie.errors import CancelledError, ClosedError, OptionError
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE
from tests.support.measured import assert_same_logp
from tests.support.settling import forget_settled

PROMPT = "Once upon a time there was a little girl who"
LONG_S = 20
"""Seconds after which something that never happens is given up; nothing waits so long when all is well."""
WORDS = (" went", " had", " was", " liked", " saw", " the", " a big", " red", " dog", " box", " home", " and")


@pytest.fixture(scope="module")
def engine(any_model: Path) -> Iterator[Engine]:
    with load(any_model, n_threads=1, n_ctx=256) as opened:
        yield opened


def requests(n: int) -> list[tuple[str, list[str]]]:
    rng = np.random.default_rng(5)
    return [
        (
            PROMPT + "".join(rng.choice(WORDS, int(rng.integers(0, 6)))),
            ["".join(rng.choice(WORDS, int(rng.integers(1, 4)))) for _ in range(int(rng.integers(2, 9)))],
        )
        for _ in range(n)
    ]


def ask(engine: Engine, request: tuple[str, list[str]]) -> Selection:
    prompt, choices = request
    return engine.select(prompt, choices, terminator="eog", search=SearchParams(method="exhaustive"))


def assert_same(answers: list[Selection], expected: list[Selection]) -> None:
    for answer, other in zip(answers, expected, strict=True):
        assert_same_logp(answer, other.choices.logp)
        assert answer.index == other.index


# Many callers


def test_calls_from_many_threads_equal_calls_one_by_one(engine):
    """Eight threads at once, twenty-four requests: every caller gets the answer to its own."""
    asked = requests(24)
    expected = [ask(engine, request) for request in asked]
    engine.trim()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda request: ask(engine, request), asked))
    assert_same(answers, expected)
    with pytest.raises(AssertionError):
        assert_same(answers, expected[1:] + expected[:1])


def test_many_requests_in_one_call_equal_single_ones(engine):
    """`select_many` shares calls and prefixes and moves no number; results come in order."""
    asked = requests(16)
    expected = [ask(engine, request) for request in asked]
    engine.trim()
    answers = engine.select_many(asked, terminator="eog", search=SearchParams(method="exhaustive"))
    assert_same(answers, expected)
    engine.trim()
    calls = sum(ask(engine, request).cost.model_calls for request in asked)
    engine.trim()
    together = engine.select_many(asked, terminator="eog", search=SearchParams(method="exhaustive"))
    assert max(answer.cost.model_calls for answer in together) < calls / 2


def test_a_caller_that_fails_harms_no_other(engine):
    """While some requests are refused and some callbacks raise, others are answered."""
    asked = requests(12)
    expected = [ask(engine, request) for request in asked]

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    def use(i: int) -> Selection | str:
        prompt, choices = asked[i // 2]
        if i % 2 == 0:
            return ask(engine, asked[i // 2])
        try:
            engine.select(prompt, choices, terminator="eog", search=SearchParams(method="exhaustive", on_progress=fail))
        except ZeroDivisionError:
            return "refused"
        return "answered"

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(use, range(24)))
    assert_same([r for r in results if not isinstance(r, str)], expected)
    assert set(results[1::2]) == {"refused"}


# Ctrl-C


@final
class Interrupter:
    """Sends SIGINT to the thread that made it, out of a graph node of a decode that then waits to be told to stop.

    after: which graph node, counted from 1 when `n_jobs` tasks are under way; 0 for none. Where those share the decode, it
    waits for a task to be cancelled instead.
    """

    def __init__(self, engine: Engine, after: int, n_jobs: int = 1) -> None:
        self.engine, self.left, self.n_jobs = engine, after, n_jobs
        self.was_stopped = False
        self._target = threading.get_ident()
        self._pause = threading.Event()

    def __enter__(self) -> Interrupter:
        self.engine._model_thread.call(lambda: self.engine._model.set_abort_callback(self.node))
        return self

    def __exit__(self, *_: object) -> None:
        self.engine._model_thread.call(lambda: self.engine._model.set_abort_callback(None))

    def node(self) -> bool:
        if len(self.engine._model_thread.scheduler._active) < self.n_jobs:
            return False
        self.left -= 1
        if self.left == 0:
            # CPython cannot wake a thread whose signal comes between its last check and its wait: let it wait first.
            wait_until(lambda: sys._current_frames()[self._target].f_code.co_name == "wait")
            self._pause.wait(0.02)
            signal.pthread_kill(self._target, signal.SIGINT)
            flag, jobs = self.engine._model._context.stop, self.engine._model_thread.scheduler.calling
            if self.n_jobs > 1:
                assert wait_until(lambda: any(job.cancelled for job in jobs))
                self._pause.wait(0.02)
            self.was_stopped = flag.is_set if self.n_jobs > 1 else wait_until(lambda: flag.is_set)
        return False


def wait_until(condition: Callable[[], bool]) -> bool:
    """Look every millisecond; False where it did not come true in time."""
    pause = threading.Event()
    return any(condition() or pause.wait(0.001) for _ in range(LONG_S * 1000))


LONG = (PROMPT + " lived" * 60, [" in a house", " in a big red box", " in the sea"])


@final
class SoloDecodes:
    """Counts the decodes of `new_context` models of an engine, and does something before some of them.

    do: by number, counted from 1; what it returns is not looked at.
    """

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch, do: dict[int, Callable[[], object]]) -> None:
        self.n = 0
        decode, own = Context.decode, engine._model._context

        def counted(context: Context, *args: object, **options: object) -> object:
            if context is not own and context.stop is own.stop:
                self.n += 1
                do.get(self.n, lambda: None)()
            return decode(context, *args, **options)

        monkeypatch.setattr(Context, "decode", counted)


def interrupt_the_thread(target: int) -> None:
    """Send SIGINT to a thread that waits."""
    wait_until(lambda: sys._current_frames()[target].f_code.co_name == "wait")
    threading.Event().wait(0.02)
    signal.pthread_kill(target, signal.SIGINT)


def near_tie(engine: Engine) -> Selection:
    """A near tie that is settled anew: nothing is remembered of an earlier one."""
    forget_settled(engine)
    choices = [" a big dog", " the red box"]
    alone = engine.select(PROMPT, choices).choices.logp
    tied = engine.select(PROMPT, choices, prior=np.exp(alone.min() - alone).tolist())
    assert tied.certificate.n_rescored == 2
    return tied


LONG_CALLS: dict[str, Callable[[Engine], object]] = {"settling": near_tie}


@pytest.mark.parametrize("work", LONG_CALLS)
@pytest.mark.parametrize("at", ["in a decode", "between two"])
def test_ctrl_c_stops_work_on_solo_models(any_model, monkeypatch, work, at):
    """Told in its second decode, or between that and the third, whose start forgets it: the third is not finished."""
    with Engine(open_model(any_model, LlamaOptions(n_threads=1, n_ctx=256))) as engine:
        target, flag = threading.get_ident(), engine._model._context.stop
        stopped: list[bool] = []

        def second() -> None:
            interrupt_the_thread(target)
            wait_until(lambda: flag.is_set)
            if at == "between two":
                flag.clear()

        def third() -> None:
            stopped.append(wait_until(lambda: flag.is_set))

        decodes = SoloDecodes(engine, monkeypatch, {2: second, 3: third})
        with pytest.raises(KeyboardInterrupt):
            LONG_CALLS[work](engine)
        engine._model_thread.call(lambda: None)
        assert decodes.n <= 3
        assert all(stopped)
        monkeypatch.undo()
        LONG_CALLS[work](engine)


def test_a_stray_interrupt_costs_a_call_nothing_but_time(engine, monkeypatch):
    """What another caller's Ctrl-C hits by a hair is done again: settling and its answer are as ever."""
    expected = near_tie(engine)
    decodes = SoloDecodes(engine, monkeypatch, {2: engine._model.interrupt})
    answer = near_tie(engine)
    assert answer.choices == expected.choices
    monkeypatch.undo()
    plain = SoloDecodes(engine, monkeypatch, {})
    near_tie(engine)
    assert decodes.n == plain.n + 2


@pytest.mark.parametrize("share", [0.0, 0.4, 0.95])
def test_ctrl_c_stops_the_running_decode_and_the_engine_goes_on(engine, share):
    """KeyboardInterrupt reaches the caller, the decode under way is told to stop, later answers are those of before."""
    asked = requests(4)
    expected = [ask(engine, request) for request in asked]
    engine.trim()
    with Interrupter(engine, 0) as counter:
        ask(engine, LONG)
    engine.trim()
    with Interrupter(engine, 1 + int(-counter.left * share)) as interrupter, pytest.raises(KeyboardInterrupt):
        ask(engine, LONG)
    assert interrupter.was_stopped
    assert_same([ask(engine, request) for request in asked], expected)


def test_ctrl_c_of_one_caller_stops_no_other(engine, monkeypatch):
    """A decode that four callers share goes on for the three that still wait."""
    monkeypatch.setattr(CallTimes, "rows_for", lambda *_: math.inf)  # one call for all four
    asked = requests(3)
    expected = [ask(engine, request) for request in asked]
    engine.trim()
    model_thread, gate = engine._model_thread, threading.Event()
    with Interrupter(engine, 5, n_jobs=4) as interrupter, ThreadPoolExecutor(5) as pool:
        pool.submit(lambda: model_thread.call(lambda: gate.wait(LONG_S)))
        others = [pool.submit(ask, engine, request) for request in asked]
        pool.submit(lambda: wait_until(lambda: model_thread._inbox.qsize() == 4) and gate.set())
        with pytest.raises(KeyboardInterrupt):
            ask(engine, LONG)
        assert_same([other.result(LONG_S) for other in others], expected)
    assert not interrupter.was_stopped


def test_a_cancelled_task_says_so(engine):
    """Cancelling is an answer to whoever waits for it, not a hang."""
    from selectrie.decoding.trie.exhaustive import ScoreTask
    from selectrie.engine.requests.selection import SelectRequest, prepare_selection

    question = prepare_selection(engine._model, PROMPT, [" a b c", " the d"], SelectRequest())
    gate = threading.Event()
    holding = ThreadPoolExecutor(1)
    held = holding.submit(lambda: engine._model_thread.call(lambda: gate.wait(LONG_S)))
    handle = engine._model_thread.submit(ScoreTask(question.encoded.context, question.trie, question.needs))
    handle.cancel()
    gate.set()
    with pytest.raises(CancelledError, match="cancelled"):
        handle.result()
    assert held.result(LONG_S)
    holding.shutdown()


# Close, forget, fork


def test_closing_ends_what_is_under_way(any_model):
    """Callers that wait hear that the engine was closed; the thread ends; closing twice is fine."""
    engine = load(any_model, n_threads=1, n_ctx=256)
    ask(engine, requests(1)[0])
    started, go_on = threading.Event(), threading.Event()

    def callback() -> bool:
        started.set()
        go_on.wait(LONG_S)
        return False

    engine.trim()
    engine._model_thread.call(lambda: engine._model.set_abort_callback(callback))
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(ask, engine, request) for request in requests(2)]
        assert started.wait(LONG_S)
        closing = threading.Thread(target=engine.close)
        closing.start()
        assert wait_until(lambda: engine._model_thread.closed)
        go_on.set()
        for one in waiting:
            with pytest.raises(ClosedError, match="closed"):
                one.result(LONG_S)
        closing.join(LONG_S)
    assert not engine._model_thread._thread.is_alive()
    engine.close()


def test_closing_waits_for_a_decode_that_cannot_be_interrupted(monkeypatch):
    """It looks now and then whether the thread has ended, and the decode under way is not made again."""
    model = HashModel(1, limits=replace(WIDE, can_interrupt=False))
    started, go_on, looks = threading.Event(), threading.Event(), []

    def hold() -> None:
        started.set()
        assert go_on.wait(LONG_S)

    model.on_decode = hold
    engine = Engine(model, check=SelfCheck(1, 0.0, 0.0))
    thread, ended = engine._model_thread._thread, engine._model_thread._ended
    wait = ended.wait

    def look(timeout_s: float) -> None:
        looks.append(timeout_s)
        go_on.set()
        wait(timeout_s)

    monkeypatch.setattr(ended, "wait", look)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine.select, "a", ["cat", "bat"])
        assert started.wait(LONG_S)
        engine.close()
        with pytest.raises(ClosedError, match="engine is closed"):
            waiting.result(LONG_S)
    assert not thread.is_alive()
    assert set(looks) == {LOOK_AGAIN_S}
    assert (engine._model_thread.scheduler.n_interrupted, model.calls) == (0, 1)


def test_a_close_that_ctrl_c_interrupts_is_made_whole_by_the_next():
    """The thread still runs, and the second call waits for it."""
    model, started, go_on = (
        HashModel(1, limits=replace(WIDE, can_interrupt=False)),
        threading.Event(),
        threading.Event(),
    )

    def hold() -> None:
        started.set()
        assert go_on.wait(LONG_S)

    model.on_decode = hold
    engine = Engine(model, check=SelfCheck(1, 0.0, 0.0))
    thread, target = engine._model_thread._thread, threading.get_ident()

    def waits() -> bool:
        return sys._current_frames()[target].f_code.co_name in {"wait", "_wait_for_tstate_lock"}

    def interrupt() -> None:
        assert wait_until(lambda: engine.closed and waits())
        signal.pthread_kill(target, signal.SIGINT)

    def release() -> None:
        assert wait_until(waits)
        go_on.set()

    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(engine.select, "a", ["cat", "bat"])
        assert started.wait(LONG_S)
        pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.close()
        assert not go_on.is_set()
        pool.submit(release)
        engine.close()
        assert thread not in threading.enumerate()
        with pytest.raises(ClosedError, match="engine is closed"):
            waiting.result(LONG_S)


@pytest.mark.parametrize(("can_interrupt", "wait_s"), [(True, _INTERRUPT_AGAIN_S), (False, LOOK_AGAIN_S)])
def test_running_calls_are_looked_after_as_often_as_it_helps(monkeypatch, can_interrupt, wait_s):
    """Interrupts may have to be repeated soon; where they have no effect, the wait for the end takes longer."""
    owner = ModelThread(HashModel(1, limits=replace(WIDE, can_interrupt=can_interrupt)))
    call, waits = _Call(lambda: None), []
    assert call.claim()

    def wait(timeout_s: float) -> None:
        waits.append(timeout_s)
        if len(waits) == 2:
            call.future.set_result(None)

    monkeypatch.setattr(call.future, "wait", wait)
    owner._stop_call(call)
    owner.close()
    assert waits == [wait_s] * 2


@pytest.mark.parametrize("work", LONG_CALLS)
def test_closing_does_not_wait_for_work_on_solo_models(any_model, monkeypatch, work):
    """A settling under way ends in the decode in which the engine is closed; its caller hears of it."""
    engine = Engine(open_model(any_model, LlamaOptions(n_threads=1, n_ctx=256)))
    flag, started = engine._model._context.stop, threading.Event()

    def second() -> None:
        started.set()
        assert wait_until(lambda: flag.is_set)

    decodes = SoloDecodes(engine, monkeypatch, {2: second})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(LONG_CALLS[work], engine)
        assert started.wait(LONG_S)
        engine.close()
        with pytest.raises(ClosedError, match="engine is closed"):
            waiting.result(LONG_S)
    assert decodes.n == 2
    assert not engine._model_thread._thread.is_alive()


def close_by_signal(engine: Engine) -> None:
    """A handler closes the engine while this thread waits for an answer."""
    target, flag = threading.get_ident(), threading.Event()

    def handle(*_: object) -> None:
        engine.close()
        flag.set()

    def tell(*_: object) -> None:
        wait_until(lambda: sys._current_frames()[target].f_code.co_name == "wait")
        threading.Event().wait(0.02)
        signal.pthread_kill(target, signal.SIGUSR1)
        assert flag.wait(LONG_S)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        engine.select(PROMPT, [" a dog", " the dog"], search=SearchParams(on_progress=tell))
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("method", ["exhaustive", "best_first"])
def test_progress_of_many_requests_counts_requests(engine, method):
    """Once for each, in order, up to all of them; a list of one is one request too."""
    told: list[tuple[int, int]] = []
    search = SearchParams(method=method, on_progress=lambda *numbers: told.append(numbers))
    requests = [(f"{PROMPT} {word}", [" a dog", " the dog", " a cat"]) for word in ("one", "two", "red")]
    engine.select_many(requests, search=search)
    engine.select_many(requests[:1], search=search)
    assert told == [(1, 3), (2, 3), (3, 3), (1, 1)]


def test_what_progress_of_many_requests_raises_ends_them(engine):
    """The engine goes on working."""

    def fail(_done: int, _total: int) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError):
        engine.select_many([(PROMPT, [" a dog", " the dog"])] * 2, search=SearchParams(on_progress=fail))
    assert engine.select(PROMPT, [" a dog", " the dog"]).text in {" a dog", " the dog"}


def close_in_use(engine: Engine) -> None:
    with engine._model_thread.using():
        engine.close()
        assert engine._model._context.is_open
    assert not engine._model_thread._thread.is_alive()


CLOSED_FROM: dict[str, Callable[[Engine], object]] = {
    "a rule": lambda engine: engine.select(PROMPT, [" a", " the"], rule=lambda _: engine.close() or 0.0),
    "a progress callback": lambda engine: engine.select(
        PROMPT, [" a dog", " the dog"], search=SearchParams(on_progress=lambda *_: engine.close())
    ),
    "a signal handler": close_by_signal,
    "a block that keeps the model": close_in_use,
}


@pytest.mark.parametrize("place", CLOSED_FROM)
def test_closing_from_within_a_request_ends_it_without_a_hang(any_model, place):
    """Where the closing thread is one that the model's thread waits for, the close is complete when the request is."""
    engine = load(any_model, n_threads=1, n_ctx=256)
    with suppress(ClosedError):
        CLOSED_FROM[place](engine)
    with pytest.raises(ClosedError):
        engine.select(PROMPT, [" a"])
    gc.collect()
    engine._model_thread._thread.join(LONG_S)
    assert not engine._model_thread._thread.is_alive()
    assert not engine._model._context.is_open


def test_asking_the_engine_from_its_own_thread_is_refused(engine):
    """A progress callback runs on the model's thread: it would wait for itself."""
    for ask_more in (engine.trim, lambda: ask(engine, requests(1)[0])):
        with pytest.raises(OptionError, match="on_progress"):
            engine.select(PROMPT, [" a dog", " the"], search=SearchParams(on_progress=lambda *_, use=ask_more: use()))
    ask(engine, requests(1)[0])


LAST_USES = {
    "none": lambda engine: None,
    "an answer": lambda engine: ask(engine, (PROMPT, [" a", " the dog"])),
    "a text's score": lambda engine: engine.score(PROMPT, " a"),
    "settling": near_tie,
    "trimming": lambda engine: engine.trim(),
}


@pytest.mark.parametrize("last", LAST_USES)
def test_a_forgotten_engine_ends_its_thread(tiny_model, last):
    """No `close`, no `with`: whatever it did last, when the last reference goes, so do the thread and the weights."""
    engine = Engine(open_model(tiny_model("f32"), LlamaOptions(n_ctx=64, n_threads=1)))
    LAST_USES[last](engine)
    thread, known = engine._model_thread._thread, weakref.ref(engine)
    del engine
    gc.collect()
    assert known() is None
    thread.join(LONG_S)
    assert not thread.is_alive()


EXITS = {
    "an answer": "engine.select('Once upon', [' a', ' the dog'])",
    "nothing": "",
    "an engine forgotten in a cycle": "me = [engine]; me.append(me); del engine",
    "an uncaught error": "engine.select('Once upon', [' a']); raise SystemExit(5)",
    "a request under way on another thread": """
import threading
started, never = threading.Event(), threading.Event()
def wait(*_):
    started.set()
    never.wait(0.2)
def ask():
    try:
        engine.select('Once upon a time', [' a dog', ' the dog'], search=selectrie.SearchParams(on_progress=wait))
    except selectrie.errors.ClosedError:
        pass
threading.Thread(target=ask, daemon=True).start()
started.wait()
""",
    "an engine closed by a rule": "engine.select('Once upon', [' a', ' the'], rule=lambda _: engine.close() or 0.0)",
}


@pytest.mark.short("!nothing", "!an engine closed by a rule")
@pytest.mark.parametrize("last", EXITS)
def test_a_process_ends_cleanly_with_an_open_engine(any_model, last):
    """No close: exit code as it should be, nothing on stderr, no hang."""
    opening = "import sys, selectrie; engine = selectrie.load(sys.argv[1], n_threads=1, n_ctx=64)"
    ran = run(f"{opening}\n{EXITS[last]}", any_model)
    assert (ran.returncode, ran.stderr) == (5 if "SystemExit" in EXITS[last] else 0, "")


FORK = """
import os, sys, selectrie
engine = selectrie.load(sys.argv[1], n_threads=1, n_ctx=64)
before = engine.select("Once upon", [" a", " the dog"])
child = os.fork()
if child == 0:
    for use in (lambda: engine.select("Once", [" a"]), engine.trim, lambda: engine.score("Once", " a")):
        try:
            use()
        except selectrie.errors.ForkedError as error:
            print(error.code, flush=True)
    engine.close()
    sys.exit(7)
_, status = os.waitpid(child, 0)
again = engine.select("Once upon", [" a", " the dog"])
print(os.waitstatus_to_exitcode(status), again.choices == before.choices, flush=True)

def fork_within(_):
    if os.fork() == 0:
        return 1.0
    _, status = os.wait()
    print(os.waitstatus_to_exitcode(status), flush=True)
    return 0.0

parent = os.getpid()
try:
    engine.select("Once upon", [" a"], rule=fork_within)
    if os.getpid() != parent:
        engine.trim()
except selectrie.errors.ForkedError as error:
    print(error.code, flush=True)
    sys.exit(8)
engine.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_is_refused_and_leaves_its_parent_alone(any_model):
    """The child hears `ForkedError` each time and ends, also one that was forked in the middle of a request; the parent's
    engine gives the same bits as before."""
    ran = run(FORK, any_model)
    assert ran.stdout.split() == ["forked", "forked", "forked", "7", "True", "forked", "8"], ran.stderr


CTRL_C = """
import os, signal, sys, threading, selectrie
engine = selectrie.load(sys.argv[1], n_threads=1, n_ctx=512)
prompt = "Once upon a time there was a dog. " * 40
once = []
def progress(done, total):
    if not once:
        once.append(os.kill(os.getpid(), signal.SIGINT))
choices = [f" {a} {b}" for a in ("the", "a", "my", "his") for b in ("dog", "cat", "box", "red house", "big tree")]
try:
    engine.select(prompt, choices, prompting=selectrie.PromptParams(truncate="left"), search=selectrie.SearchParams(on_progress=progress))
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(engine.select("Once upon", [" a", " the dog"]).text, flush=True)
os.kill(os.getpid(), signal.SIGINT)
"""


def test_an_interrupted_process_ends_without_a_hang(any_model):
    """Ctrl-C once: caught, and the next request is answered; once more: the process ends as Python does, with no close."""
    ran = run(CTRL_C, any_model)
    assert ran.stdout.splitlines() == ["interrupted", " a"], ran.stderr
    assert ran.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in ran.stderr


def run(script: str, model: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(model)],  # advice on answers is written to stderr
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
        env=environment,
    )


# Memory


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown_bytes(engine: Engine, first: int, last: int) -> int:
    """Growth of resident memory from the `first` to the `last` select of different prompts and sets."""
    rng = np.random.default_rng(11)
    start = 0
    for i in range(last):
        if i == first:
            gc.collect()
            start = resident_bytes()
        prompt = "".join(rng.choice(WORDS, 12))
        ask(engine, (prompt, ["".join(rng.choice(WORDS, 2)) for _ in range(4)]))
    gc.collect()
    return resident_bytes() - start


ON_LINUX = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


@ON_LINUX
def test_memory_settles(engine):
    """Rough sanity: fifty selects after fifty others take less than 5 MB."""
    assert grown_bytes(engine, 50, 100) < 5e6


@ON_LINUX
@pytest.mark.long
def test_memory_stays_flat_over_a_thousand_selects(engine):
    """Less than 5 MB from select 100 to select 1 000."""
    assert grown_bytes(engine, 100, 1000) < 5e6


@pytest.mark.long
def test_engines_come_and_go_without_a_trace(tiny_model: Callable[..., Path]):
    """Fifty engines opened, used and forgotten leave neither threads nor memory."""
    path = tiny_model("f32")
    for i in range(60):
        if i == 10:
            gc.collect()
            start, threads = resident_bytes(), threading.active_count()
        ask(load(path, n_threads=1, n_ctx=64), (PROMPT, [" a", " the dog"]))
    gc.collect()
    assert threading.active_count() <= threads + 1
    assert resident_bytes() - start < 20e6
