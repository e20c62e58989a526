"""Several models under one memory budget. Most engines are stand-ins that remember when they were opened and closed."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selectrie
from selectrie import ModelPool
from selectrie.backends.llama_cpp.context import memory_needed
from selectrie.backends.llama_cpp.gguf_header import read_header
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.types import Precision
from selectrie.engine import pool as model_pool
from selectrie.errors import (
    ClosedError,
    ForkedError,
    MemoryBudgetError,
    ModelFileError,
    OptionError,
    UnsupportedModelError,
)
from tests.support.n_examples import n_examples

ROOT = Path(__file__).resolve().parents[2]
LONG_S = 20
"""Seconds after which something that never happens is given up; nothing waits so long when all is well."""


class Engine:
    """A model that is either open or closed."""

    def __init__(self, source: str) -> None:
        self.source, self.closed = source, False

    def close(self) -> None:
        self.closed = True


class Shop:
    """Where stand-ins come from: what each takes, and what happened in which order.

    opening: called with the name before an engine is made; may block or raise.
    """

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes, self.log, self.options = sizes, [], {}
        self.opening = lambda _name: None
        self.open: list[Engine] = []

    def load(self, source: str, **options) -> Engine:
        self.options = options
        self.opening(source)
        self.log.append(f"+{source}")
        engine = Engine(source)
        close = engine.close

        def logged() -> None:
            if not engine.closed:
                self.log.append(f"-{source}")
            close()

        engine.close = logged
        self.open.append(engine)
        return engine

    def used(self) -> int:
        return sum(self.sizes[engine.source] for engine in self.open if not engine.closed)

    def needed(self, source: str, _backend: object, _options: object) -> int:
        return self.sizes[source]

    def models(self, budget: int | None, names: str = "") -> ModelPool:
        return ModelPool({name: name for name in names or self.sizes}, budget_bytes=budget)


@pytest.fixture
def shop(monkeypatch) -> Shop:
    """Models a, b, c, d of 1, 2, 3, 4 bytes."""
    made = Shop({"a": 1, "b": 2, "c": 3, "d": 4})
    monkeypatch.setattr(model_pool, "load", made.load)
    monkeypatch.setattr(model_pool, "memory_needed", made.needed)
    return made


def visit(models: ModelPool, names: str) -> None:
    for name in names:
        with models.use(name) as engine:
            assert (engine.source, engine.closed) == (name, False)


def loaded(models: ModelPool) -> str:
    """Names from the most to the least recently used."""
    return "".join(record.name for record in models.loaded())


def running(function) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def ended(thread: threading.Thread) -> bool:
    thread.join(LONG_S)
    return not thread.is_alive()


# What is loaded


def test_the_least_recently_used_idle_model_makes_room(shop):
    """Budget 6: a, b, c fit together; d (4) needs a and b away; a then needs c away."""
    models = shop.models(6)
    visit(models, "abc")
    assert (shop.log, loaded(models), models.used_bytes) == (["+a", "+b", "+c"], "cba", 6)
    visit(models, "d")
    assert (shop.log[3:], loaded(models)) == (["-a", "-b", "-c", "+d"], "d")
    visit(models, "ba")
    assert (shop.log[7:], loaded(models)) == (["+b", "-d", "+a"], "ab")


def test_a_use_makes_a_model_recent_again(shop):
    """Budget 3 with a and b loaded: after another use of a, it is b that goes for c."""
    shop.sizes = {"a": 1, "b": 1, "c": 1, "d": 1}
    models = shop.models(3)
    visit(models, "abcad")
    assert shop.log == ["+a", "+b", "+c", "-b", "+d"]


def test_without_a_budget_everything_stays(shop):
    """None is no limit."""
    models = shop.models(None)
    visit(models, "abcdabcd")
    assert (shop.log, models.budget_bytes) == (["+a", "+b", "+c", "+d"], None)


def test_a_model_in_use_stays_whatever_else_is_asked_for(shop):
    """Within its block a is held; the refusal names what is needed, what there is and who holds it, and changes nothing."""
    models = shop.models(4)
    visit(models, "b")
    with models.use("a"):
        with pytest.raises(MemoryBudgetError) as caught, models.use("d"):
            pass
        error = caught.value
        assert (error.required, error.available, error.budget, error.held) == (4, 3, 4, {"a": 1})
        assert "'d' needs" in str(error)
        assert "in use by 'a'" in str(error)
        assert (error.code, error.exit_code) == ("memory_budget", 3)
        assert (shop.log, loaded(models)) == (["+b", "+a"], "ba")
        visit(models, "c")
    assert shop.log == ["+b", "+a", "-b", "+c"]
    visit(models, "d")


def test_a_model_larger_than_the_budget_is_refused_before_anything_happens(shop):
    """It is not loaded, and nothing is unloaded for it; waiting would be in vain."""
    models = shop.models(3)
    visit(models, "c")

    def refused() -> MemoryBudgetError:
        with pytest.raises(MemoryBudgetError, match="more than all of it") as caught, models.use("d", wait_s=1e6):
            pass
        return caught.value

    assert refused().held == {}
    with models.use("c"):  # who holds what does not matter: it would not fit without them either
        assert refused().held == {}
    assert shop.log == ["+c"]


@settings(max_examples=n_examples(80))
@given(
    budget=st.integers(1, 10),
    steps=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=40),
)
def test_books_agree_with_a_list_in_order_of_use(budget, steps):
    """Law: against a twin that keeps a list of names, any order of entering and leaving loads, refuses and unloads the same."""
    shop = Shop({"a": 1, "b": 2, "c": 3, "d": 4})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_pool, "load", shop.load)
        patch.setattr(model_pool, "memory_needed", shop.needed)
        models = shop.models(budget)
        blocks: dict[str, list] = {name: [] for name in "abcd"}
        there: list[str] = []  # least recently used first
        for name, enters in steps:
            if enters:
                block = models.use(name)
                if twin_fits(there, blocks, shop.sizes, budget, name):
                    assert block.__enter__().source == name
                    blocks[name].append(block)
                else:
                    with pytest.raises(MemoryBudgetError):
                        block.__enter__()
            elif blocks[name]:
                blocks[name].pop().__exit__(None, None, None)
                there.remove(name)
                there.append(name)
            assert {record.name for record in models.loaded()} == set(there)
            assert shop.used() == models.used_bytes <= budget
            assert [models[name].n_uses for name in "abcd"] == [len(blocks[name]) for name in "abcd"]
        for block in (block for held in blocks.values() for block in held):
            block.__exit__(None, None, None)
        models.close()
        assert shop.used() == 0


def twin_fits(there: list[str], blocks: dict[str, list], sizes: dict[str, int], budget: int, name: str) -> bool:
    """Whether a model can be used; changes `there` as it would."""
    if name in there:
        return True
    held = sum(sizes[one] for one in there if blocks[one])
    if held + sizes[name] > budget:
        return False
    for one in list(there):
        if sum(sizes[x] for x in there) + sizes[name] > budget and not blocks[one]:
            there.remove(one)
    there.insert(0, name)
    return True


# Threads


def test_two_threads_that_ask_for_one_model_load_it_once(shop):
    """The second waits for the first one's load and gets the same engine."""
    models, begun, go = shop.models(6), threading.Event(), threading.Event()
    shop.opening = lambda _name: (begun.set(), go.wait(LONG_S))
    engines = []

    def use() -> None:
        with models.use("a") as engine:
            engines.append(engine)

    first = running(use)
    assert begun.wait(LONG_S)
    others = [running(use) for _ in range(4)]
    assert models["a"].is_loaded is False
    assert models.used_bytes == 1
    go.set()
    assert all(ended(thread) for thread in (first, *others))
    assert len(engines) == 5
    assert len({id(engine) for engine in engines}) == 1
    assert shop.log == ["+a"]


def test_two_threads_that_find_it_missing_at_once_load_it_once(shop, monkeypatch):
    """Both see that it is not there and reckon what it takes; the second to come back finds it being loaded, and waits."""
    models, both, go = shop.models(6), threading.Barrier(2), threading.Event()
    monkeypatch.setattr(model_pool, "memory_needed", lambda *_: (both.wait(LONG_S), 1)[1])
    wait = models._changed.wait
    monkeypatch.setattr(models._changed, "wait", lambda *until: (go.set(), wait(*until)))
    opened = []
    shop.opening = lambda name: (opened.append(name), len(opened) > 1 and go.set(), go.wait(LONG_S))
    threads = [running(lambda: visit(models, "a")) for _ in range(2)]
    assert all(ended(thread) for thread in threads)
    assert shop.log == ["+a"]


def test_who_waits_gets_the_room_of_who_leaves(shop, monkeypatch):
    """With `wait_s` a thread sleeps until a model in use is left."""
    models, answered, asked = shop.models(4), [], threading.Semaphore(0)
    monkeypatch.setattr(model_pool, "monotonic", lambda: (asked.release(), 0.0)[1])

    def use() -> None:
        with models.use("d", wait_s=LONG_S) as engine:
            answered.append(engine.source)

    with models.use("a"):
        assert asked.acquire(timeout=LONG_S)  # the clock is asked once by `use`, and by who waits under the lock
        waiting = running(use)
        assert all(asked.acquire(timeout=LONG_S) for _ in range(2))
        assert answered == []
    assert ended(waiting)
    assert (answered, shop.log) == (["d"], ["+a", "-a", "+d"])


def test_waiting_ends_with_the_same_error(shop, monkeypatch):
    """After `wait_s` seconds in which nobody left, the refusal says who holds the room."""
    models, refused = shop.models(4), []

    def use() -> None:
        with pytest.raises(MemoryBudgetError) as caught, models.use("d", wait_s=0.01):
            pass
        refused.append(caught.value)

    with models.use("a"):
        assert ended(running(use))
    assert refused[0].held == {"a": 1}


def test_two_threads_that_want_what_the_other_holds_do_not_wait_for_ever(shop):
    """Each holds a model and asks for the other's room: both are refused at once, however long they would wait."""
    shop.sizes = {"a": 2, "b": 2, "c": 2, "d": 2}
    models, both = shop.models(4), threading.Barrier(2)

    def use(own: str, other: str) -> type[Exception] | None:
        with models.use(own):
            both.wait(LONG_S)
            try:
                with models.use(other, wait_s=1e6):
                    return None
            except MemoryBudgetError as error:
                return type(error)

    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(use, *pair) for pair in ("ac", "bd")]
        assert [answer.result(LONG_S) for answer in answers].count(MemoryBudgetError) >= 1


def test_many_threads_and_a_small_budget_end_well(shop):
    """Twelve threads use models in turn, waiting for room: never over budget, never a closed engine, no thread left."""
    models, over = shop.models(5), []

    def work(seed: int) -> None:
        for turn in range(25):
            with models.use("abcd"[(seed * 7 + turn * (seed + 1)) % 4], wait_s=LONG_S) as engine:
                over.append(shop.used() > 5 or engine.closed)

    threads = [running(lambda seed=seed: work(seed)) for seed in range(12)]
    assert all(ended(thread) for thread in threads)
    assert (len(over), any(over)) == (12 * 25, False)
    assert all(models[name].n_uses == 0 for name in models)


# Failures


def test_a_load_that_fails_leaves_the_others(shop):
    """The model that failed is tried again at its next use; one in use goes on; its room is free again."""
    models = shop.models(6)

    def fail(name: str) -> None:
        if name == "b":
            raise ModelFileError("b", "is broken")

    shop.opening = fail
    with models.use("a") as engine:
        for _ in range(2):
            with pytest.raises(ModelFileError, match="is broken"), models.use("b"):
                pass
        assert (engine.closed, loaded(models), models.used_bytes) == (False, "a", 1)
        shop.opening = lambda _name: None
        visit(models, "b")


def test_a_file_that_cannot_be_read_unloads_nothing(shop, monkeypatch):
    """What a model takes is reckoned before anything is unloaded for it."""
    models = shop.models(4)
    visit(models, "a")
    monkeypatch.setattr(model_pool, "memory_needed", lambda *_: (_ for _ in ()).throw(ModelFileError("d", "gone")))
    with pytest.raises(ModelFileError), models.use("d"):
        pass
    assert (shop.log, loaded(models)) == (["+a"], "a")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_change_leaves_the_books_right(shop, error):
    """Stopped while one of two idle models is unloaded: the other stays loaded, and all can be used again."""
    models = shop.models(6)
    visit(models, "abc")
    second = shop.open[1]
    close, second.close = second.close, lambda: (_ for _ in ()).throw(error)
    with pytest.raises(error), models.use("d"):
        pass
    assert shop.log == ["+a", "+b", "+c", "-a"]
    assert (loaded(models), models.used_bytes) == ("cb", 5)
    second.close = close
    visit(models, "da")
    assert shop.log[4:] == ["-b", "-c", "+d", "+a"]


def test_an_engine_that_was_closed_by_its_user_is_loaded_again(shop):
    """A block that closes the engine harms nobody but itself."""
    models = shop.models(6)
    with models.use("a") as engine:
        engine.close()
    visit(models, "a")
    assert shop.log == ["+a", "-a", "+a"]


def test_closing_closes_all(shop):
    """Also what is in use; afterwards nothing is lent, and closing twice is fine."""
    with shop.models(6) as models:
        visit(models, "b")
        with models.use("a") as engine:
            models.close()
            assert engine.closed
    assert shop.used() == 0
    models.close()
    with pytest.raises(ClosedError, match="the model pool is closed"), models.use("a"):
        pass


def test_closing_ends_waiting_and_closes_what_is_still_loading(shop):
    """A thread that waits for room hears of it; one that loads closes what it loaded."""
    models, begun, go, heard = shop.models(4), threading.Event(), threading.Event(), []

    def use(name: str) -> None:
        with pytest.raises(ClosedError), models.use(name, wait_s=LONG_S):
            pass
        heard.append(name)

    with models.use("a"):
        waiting = running(lambda: use("d"))
        shop.opening = lambda _name: (begun.set(), go.wait(LONG_S))
        loading = running(lambda: use("b"))
        assert begun.wait(LONG_S)
        models.close()
        assert ended(waiting)
        go.set()
        assert ended(loading)
    assert sorted(heard) == ["b", "d"]
    assert shop.used() == 0


def test_a_registry_that_is_forgotten_lets_its_engines_go(tiny_model):
    """Engines live no longer than the registry that holds them."""
    models = ModelPool([tiny_model()], n_threads=1, n_ctx=64)
    with models.use(str(tiny_model())) as engine:
        gone = weakref.ref(engine)
    del models, engine
    gc.collect()
    assert gone() is None


def test_engines_and_pools_stay_in_their_process():
    """Copies and pickles are refused, and so is `async with`; both say what to do."""
    with selectrie.load(n_threads=1) as llm, ModelPool({"a": None}) as models:
        for one in (llm, models, [selectrie.cascade([llm])]):
            for copied in (copy.deepcopy, pickle.dumps):
                with pytest.raises(UnsupportedModelError, match="cannot be copied or pickled; share it"):
                    copied(one)
        for one in (llm, models):
            with pytest.raises(UnsupportedModelError, match="no `async with`; write"):
                asyncio.run(_entered(one))
        assert llm.select("The sky is", [" blue", " red"]).text


async def _entered(one):
    """Enter a context manager as those of asyncio are."""
    async with one:
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_refused(shop):
    """The lock and the engines are the parent's."""
    models = shop.models(6)
    visit(models, "a")
    models._process = -1
    with pytest.raises(ForkedError), models.use("a"):
        pass
    with pytest.raises(ForkedError):
        models.loaded()
    models.close()
    assert shop.used() == 1


# What is said of models


def test_records_say_what_is_loaded_and_since_when_it_idles(shop, monkeypatch):
    """A record is a snapshot; it loads nothing."""
    seconds = iter(range(100, 200))
    monkeypatch.setattr(model_pool, "monotonic", lambda: float(next(seconds)))
    models = shop.models(6)
    assert asdict(models["a"]) == {
        "name": "a",
        "source": "a",
        "memory_bytes": None,
        "is_loaded": False,
        "n_uses": 0,
        "idle_s": None,
    }
    with models.use("a"), models.use("a"):
        assert models["a"].to_dict() == {**asdict(models["a"]), "is_loaded": True, "n_uses": 2, "idle_s": 0.0}
        assert models["a"].memory_bytes == 1
    assert models["a"].idle_s > 0
    assert (list(models), len(models), "a" in models, "x" in models) == (["a", "b", "c", "d"], 4, True, False)
    assert repr(models) == "ModelPool(['a', 'b', 'c', 'd'], budget_bytes=6, loaded=['a'])"
    with pytest.raises(KeyError):
        models["x"]
    with pytest.raises(OptionError, match="expected one of 'a', 'b', 'c', 'd'"), models.use("x"):
        pass


@pytest.mark.parametrize(
    ("sources", "options"),
    [
        ({}, {}),
        ([], {}),
        ("a.gguf", {}),
        (b"a.gguf", {}),
        (None, {}),
        ({"a": 1}, {}),
        ({"a": ""}, {}),
        ([None, "embedded.gguf"], {}),
        ({"a": b"a.gguf"}, {}),
        ({1: "a.gguf"}, {}),
        ({"": "a.gguf"}, {}),
        (["a.gguf", Path("a.gguf")], {}),
        (["a.gguf"], {"budget_bytes": 0}),
        (["a.gguf"], {"budget_bytes": 1.5}),
        (["a.gguf"], {"n_ctx": 0}),
        (["a.gguf"], {"precision": "sloppy"}),
        (["a.gguf"], {"devise": "cpu"}),
        (["a.gguf"], {"backend": "llama"}),
    ],
    ids=repr,
)
def test_bad_arguments_are_refused_when_it_is_made(sources, options):
    """One clear error, before any file is looked for."""
    with pytest.raises(OptionError):
        ModelPool(sources, **options)


@pytest.mark.parametrize("wait_s", [-1, float("nan"), float("inf"), "1", None])
def test_a_wait_is_a_number_of_seconds(shop, wait_s):
    """Not for ever: nothing here waits without end for another's room."""
    with pytest.raises(OptionError, match="wait_s"), shop.models(6).use("a", wait_s=wait_s):
        pass
    assert shop.log == []


def test_a_list_is_named_as_it_is_written(shop):
    """Paths and hub names stand for themselves; options go to `load` as they are."""
    shop.sizes = {"a.gguf": 1, "hf:o/r/b.gguf": 1, "c.gguf": 1}
    models = ModelPool(["a.gguf", "hf:o/r/b.gguf", Path("c.gguf")], n_ctx=64, n_threads=1, precision="fast")
    assert list(models) == ["a.gguf", "hf:o/r/b.gguf", "c.gguf"]
    visit(models, ["a.gguf"])
    options = {"n_ctx": 64, "n_threads": 1, "precision": "fast"}
    assert shop.options == options | {"backend": None, "untrusted": False}
    with pytest.raises(OptionError, match="untrusted"):
        ModelPool(["a.gguf"], untrusted=1)


def test_the_embedded_model_is_one_of_them(shop, monkeypatch):
    """None stands for it, as for `load`; its record names its file."""
    shop.sizes = {None: 1, "a": 2}
    for models, name in ((ModelPool([None, "a"]), "embedded.gguf"), (ModelPool({"tiny": None, "big": "a"}), "tiny")):
        with models.use(name) as engine:
            assert engine.source is None
        assert Path(models[name].source).name == "embedded.gguf"
    monkeypatch.undo()
    monkeypatch.setattr("selectrie.engine.sources.embedded_file", lambda: Path("no such file.gguf"))
    with pytest.raises(ModelFileError, match="no such file"):
        model_pool.memory_needed(None, None, {"n_ctx": 64, "precision": "fast"})


# What a model takes


OPENED = """
import sys
from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
with open_model(sys.argv[1], LlamaOptions(n_ctx=1024, n_threads=1, precision=sys.argv[2], verbose=True)) as model:
    print(4 * model._context.size.rows * model._context.n_vocabulary)
"""
"""Opens a model, which makes llama.cpp say what it reserves; prints the bytes of a whole call's logits."""


def log_bytes(text: str) -> float:
    """Sum of the buffers, but for the output's, that llama.cpp says it made for the last context."""
    lines = [line for line in text.splitlines() if "buffer size =" in line and "output" not in line]
    buffers = [float(line.split("=")[1].split()[0]) for line in lines]
    return sum(buffers) * (1 << 20)


@pytest.mark.short("tiny-fast", "hybrid-exact")
@pytest.mark.parametrize("precision", list(Precision), ids=lambda precision: precision.value)
@pytest.mark.parametrize("shape", ["tiny", "sliding-window", "recurrent", "hybrid"])
def test_the_reckoning_is_what_llama_cpp_reserves(tiny_model, shape, precision):
    """Of each kind of model, the buffers that llama.cpp reports fit, and are at least half of what was reckoned."""
    path = tiny_model("f32", shape=shape)
    needed = memory_needed(path, LlamaOptions(n_ctx=1024, n_threads=1, precision=precision))
    # In a process of its own: the log is one for a whole process, and other tests have had to do with it.
    run = subprocess.run(
        [sys.executable, "-c", OPENED, path, precision.value], capture_output=True, text=True, check=True
    )
    reported = log_bytes(run.stderr.rpartition("constructing llama_context")[2])
    reported += int(run.stdout) + path.stat().st_size  # the output's buffer grows to a whole call's rows with use
    assert 0.5 * needed <= reported <= needed


def test_a_hybrid_that_names_heads_by_layer_is_read(tmp_path, tiny_model):
    """Of an array of numbers the largest counts; arrays of texts have a length only."""
    header = read_header(tiny_model("f32", shape="hybrid"))
    assert isinstance(header.values["lfm2.attention.head_count_kv"], tuple)
    assert header.metadata_int("{arch}.attention.head_count_kv") == max(header.values["lfm2.attention.head_count_kv"])
    assert header.lengths["tokenizer.ggml.tokens"] > 500
    assert header.metadata_int("tokenizer.ggml.tokens") is None
    assert header.metadata_int("general.architecture") is None


def test_more_context_rows_and_precision_take_more(tiny_model):
    """Each option that makes a context larger makes the reckoning larger."""
    needed = [
        memory_needed(tiny_model(), LlamaOptions(n_ctx=n_ctx, n_batch=n_batch, precision=precision))
        for n_ctx, n_batch, precision in (
            (256, 64, Precision.FAST),
            (1024, 64, Precision.FAST),
            (1024, 512, Precision.FAST),
            (1024, 512, Precision.EXACT),
        )
    ]
    assert needed == sorted(set(needed))


@pytest.mark.parametrize("keep", [4, 20, 24, 100, 2000])
def test_a_damaged_header_is_a_model_file_error(tmp_path, tiny_model, keep):
    """A file cut anywhere within its header is refused by its path."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_model().read_bytes()[:keep])
    with pytest.raises(ModelFileError, match=r"cut\.gguf"):
        memory_needed(path, LlamaOptions())


@settings(max_examples=n_examples(40))
@given(at=st.integers(24, 3000), value=st.binary(min_size=1, max_size=8))
def test_garbage_in_a_header_never_escapes_the_tree(tiny_model, tmp_path_factory, at, value):
    """Whatever bytes are written over, the answer is a number or an error of the model's file."""
    data = bytearray(tiny_model().read_bytes()[:60_000])
    data[at : at + len(value)] = value
    path = tmp_path_factory.mktemp("garbage") / "m.gguf"
    path.write_bytes(data)
    with suppress(ModelFileError, UnsupportedModelError):
        assert memory_needed(path, LlamaOptions()) > 0


def test_a_model_in_parts_is_the_sum_of_its_parts(tmp_path, tiny_model):
    """`…-00001-of-00002.gguf` goes on in the second file."""
    whole = tiny_model().read_bytes()
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(whole)
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(whole)
    (tmp_path / "m.gguf").write_bytes(whole)
    parts, one = (memory_needed(tmp_path / name, LlamaOptions()) for name in ("m-00001-of-00002.gguf", "m.gguf"))
    assert parts - one == len(whole)


def test_a_header_without_a_vocabulary_is_reckoned_too(tmp_path, tiny_model):
    """Whatever is missing counts as little as it can."""
    path = tmp_path / "m.gguf"
    path.write_bytes(
        tiny_model().read_bytes().replace(b"ggml.tokens", b"ggml.nothin").replace(b"vocab_size", b"nothing_is")
    )
    assert 0 < memory_needed(path, LlamaOptions()) < memory_needed(tiny_model(), LlamaOptions())


MEASURE = """
import sys
from pathlib import Path
import selectrie
from selectrie.backends.llama_cpp.context import memory_needed
from selectrie.backends.llama_cpp.options import LlamaOptions

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

path, n_ctx = Path(sys.argv[1]), int(sys.argv[2])
options = dict(n_ctx=n_ctx, n_threads=1)
selectrie.load(path, n_ctx=64, n_batch=64, n_threads=1).close()
needed, before = memory_needed(path, LlamaOptions(**options)), resident()
engine = selectrie.load(path, **options)
engine.select([1 + i % 200 for i in range(n_ctx - 40)], ["a", "b c"])
print(needed, resident() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_the_reckoning_is_what_a_process_grows_by(tiny_model):
    """A context of 1 500 tokens, filled: resident memory grows by what was reckoned, within a factor of two."""
    command = [sys.executable, "-c", MEASURE, str(tiny_model("f32")), "1500"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    needed, grown = map(int, done.stdout.split())
    assert 0.5 * needed <= grown <= 2 * needed


def test_real_models_take_turns(tiny_model):
    """Two models of which one fits: each answers as it does alone, and the other is unloaded meanwhile."""
    paths = {"one": tiny_model("f32", seed=1), "two": tiny_model("f32", seed=2)}
    options = {"n_ctx": 128, "n_batch": 64, "n_threads": 1}
    needed = memory_needed(paths["one"], LlamaOptions(**options))

    def ask(engine: selectrie.Engine) -> float:
        return engine.select("Once upon a", [" time", " car"]).logp

    with ExitStack() as stack:
        alone = {name: ask(stack.enter_context(selectrie.load(path, **options))) for name, path in paths.items()}
    with ModelPool(paths, budget_bytes=needed + needed // 2, **options) as models:
        for name in ("one", "two", "one"):
            with models.use(name) as engine:
                assert ask(engine) == pytest.approx(alone[name], abs=16 * engine.tolerance)
            assert loaded(models) == name
    with pytest.raises(ClosedError):
        ask(engine)


def test_back_ends_may_be_named_by_model(tiny_model):
    """Others are known by their content; names of no model or of no back end, and what is no name, are refused."""
    sources = {"one": tiny_model("f32"), "other": tiny_model("f32")}
    with ModelPool(sources, backend={"one": "llama.cpp"}, n_ctx=64, n_threads=1) as models:
        for name in sources:
            with models.use(name) as engine:
                assert engine.identity.backend == "llama.cpp"
    for backend, message in (
        ({"two": "xla"}, "'two': expected models of this pool: 'one', 'other'"),
        ({"one": "nothing"}, "'nothing': expected one of 'llama.cpp'"),
        ({"one": None}, "backend is not given; give one of 'llama.cpp'"),
        (["xla"], "the name of a back end, or such names by model, or None"),
    ):
        with pytest.raises(OptionError, match=message):
            ModelPool(sources, backend=backend)
    with pytest.raises(OptionError, match="`n_threads` is not an option of the back end xla"):
        ModelPool(sources, backend={"one": "xla"}, n_threads=1)
