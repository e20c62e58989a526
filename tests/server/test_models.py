"""Which model answers: pools lend first come, first served, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import re
import threading
from itertools import permutations

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie import ModelPool, Predicate, cascade
from selectrie.engine import pool as pools
from selectrie.engine.pool import memory_needed
from selectrie.errors import MemoryBudgetError, ModelFileError, OptionError
from selectrie.server import ServerOptions, app
from selectrie.server.transport import models as server_models
from selectrie.server.transport.models import Models, name_of
from tests.support.serving import ask, asked

BODY = {"input": "x", "questions": [{"type": "predicate", "instructions": "It rains."}]}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/a/b/model-Q4.gguf", "model-Q4"),
        ("hf:owner/repo/file.gguf", "file"),
        ("hf:owner/repo", "repo"),
        ("/a/checkpoint/", "checkpoint"),
        ("embedded.gguf", "embedded"),
    ],
)
def test_a_model_is_called_by_its_file(source, name):
    """Without its folder and its ending; a checkpoint by the last part of its source."""
    assert name_of(source) == name


@pytest.fixture
def pool(tiny_model):
    """Two models of which one fits at a time."""
    path = str(tiny_model("f32"))
    options = {"n_ctx": 256, "n_threads": 1}
    with ModelPool({"a": path, "b": path}, budget_bytes=memory_needed(path, None, options) * 3 // 2, **options) as made:
        yield made


def test_a_pool_answers_by_name(pool):
    """Each model under its name; others are an error that lists the names, and so is none."""
    application = app(pool)
    for name in ("a", "b", "a"):
        reply = ask(application, "POST", "/v1/decisions", {**BODY, "model": name})
        assert (reply.status, reply.json["model"]) == (200, name)
    for name in ("c", None):
        reply = ask(application, "POST", "/v1/decisions", {**BODY, "model": name})
        assert (reply.status, reply.error["code"]) == (404, "model_not_found")
        assert "'a', 'b'" in reply.error["message"]
    assert [one["id"] for one in ask(application, "GET", "/v1/models").json["data"]] == ["a", "b"]


def test_requests_wait_in_the_order_in_which_they_came(pool, monkeypatch):
    """One that needs the memory of another waits for it; when enough have passed it, it holds up those behind it."""
    monkeypatch.setattr(server_models, "_MAX_PASSED", 0)
    order = []

    async def used(models, name, number, begun, hold):
        async with models.lease(name) as lease:
            order.append((number, lease.name))
            begun.set()
            await hold.wait()

    async def all_of_them():
        models, begun, hold = Models(pool, ServerOptions()), asyncio.Event(), asyncio.Event()
        first = asyncio.ensure_future(used(models, "a", 0, begun, hold))
        await begun.wait()
        names = enumerate(["b", "a", "b"], 1)
        rest = [asyncio.ensure_future(used(models, name, number, begun, hold)) for number, name in names]
        for _ in range(50):
            await asyncio.sleep(0)
        assert order == [(0, "a")], "the others wait"
        rest[1].cancel()  # one that leaves while it waits does not hold up those behind it
        hold.set()
        await asyncio.gather(first, rest[0], rest[2])

    asyncio.run(asyncio.wait_for(all_of_them(), 60))
    assert order == [(0, "a"), (1, "b"), (3, "b")]
    with pool.use("a"):
        assert pool.used_bytes > 0


def test_requests_for_models_that_are_loaded_pass_one_that_waits_for_memory(pool):
    """Eight of them; then it holds up the rest, so it gets the memory when they have ended."""
    begun = []

    async def used(models, name, hold):
        async with models.lease(name) as lease:
            begun.append(lease.name)
            await hold.wait()

    async def all_of_them():
        models, hold = Models(pool, ServerOptions()), asyncio.Event()
        tasks = [asyncio.ensure_future(used(models, "a", hold))]
        await until(lambda: begun)
        tasks += [asyncio.ensure_future(used(models, name, hold)) for name in ["b"] + ["a"] * 12]
        await until(lambda: len(begun) == 9)
        for _ in range(50):
            await asyncio.sleep(0)
        assert begun == ["a"] * 9
        hold.set()
        await asyncio.gather(*tasks)

    asyncio.run(asyncio.wait_for(all_of_them(), 60))
    assert begun == ["a"] * 9 + ["b"] + ["a"] * 4


async def until(holds):
    """Let others go on until something holds."""
    while not holds():  # noqa: ASYNC110 - nothing tells the event loop
        await asyncio.sleep(0)


class Loading:
    """Loads of the pool, each of which waits until it is let go; some fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go, self.error = threading.Event(), threading.Event(), None
        load = pools.load

        def slow(*args, **named):
            self.begun.set()
            assert self.go.wait(60)
            if self.error is not None:
                raise self.error
            return load(*args, **named)

        monkeypatch.setattr(pools, "load", slow)


@pytest.fixture
def roomy(tiny_model):
    """Two models that fit beside each other."""
    path = str(tiny_model("f32"))
    with ModelPool({"a": path, "b": path}, n_ctx=256, n_threads=1) as made:
        yield made


def test_a_request_to_a_pool_names_a_model(roomy):
    """The error of one that does not says so, with the names."""
    reply = ask(app(roomy), "POST", "/v1/decisions", BODY)
    assert (reply.status, reply.error["message"]) == (404, "model is not given; give one of 'a', 'b'")


def test_metrics_list_the_models_that_are_loaded(roomy):
    """From when they are loaded, whoever loaded them, until they are unloaded."""

    def listed() -> list[str]:
        text = ask(application, "GET", "/metrics").data.decode()
        return re.findall(r'^selectrie_max_nodes{model="(.*)"} [0-9.]+$', text, re.MULTILINE)

    application = app(roomy)
    assert listed() == []
    with roomy.use("b"):
        assert listed() == ["b"]
    assert ask(application, "POST", "/v1/decisions", {**BODY, "model": "a"}).status == 200
    assert listed() == ["a", "b"]
    roomy.close()
    assert listed() == []


def test_a_model_that_loads_holds_up_no_other(roomy, monkeypatch):
    """Only those that want the same one wait; a request whose model is there is answered meanwhile."""

    async def all_of_them():
        application = app(roomy)
        assert (await asked(application, "POST", "/v1/decisions", {**BODY, "model": "a"})).status == 200
        loading = Loading(monkeypatch)
        waiting = [
            asyncio.ensure_future(asked(application, "POST", "/v1/decisions", {**BODY, "model": "b"})) for _ in range(3)
        ]
        await asyncio.to_thread(loading.begun.wait)
        assert (await asked(application, "POST", "/v1/decisions", {**BODY, "model": "a"})).status == 200
        assert not any(one.done() for one in waiting)
        loading.go.set()
        assert [(await one).status for one in waiting] == [200] * 3

    asyncio.run(asyncio.wait_for(all_of_them(), 60))


@pytest.mark.parametrize("how", ["leaves", "is late"])
def test_a_request_does_not_wait_for_a_load_to_end(roomy, monkeypatch, how):
    """The client that leaves, or whose time is over, is let go at once; the model is given back when it is loaded."""
    loading = Loading(monkeypatch)

    async def all_of_them():
        application, leave = app(roomy, ServerOptions(deadline_s=60 if how == "leaves" else 0.05)), asyncio.Event()
        waiting = asyncio.ensure_future(
            asked(application, "POST", "/v1/decisions", {**BODY, "model": "b"}, leave=leave)
        )
        await asyncio.to_thread(loading.begun.wait)
        if how == "leaves":
            leave.set()
        reply = await waiting
        assert application.state.n_open == 0
        if how == "is late":
            assert (reply.status, reply.error["code"], reply.headers["retry-after"]) == (503, "memory_budget", "1")
            assert "x-should-retry" not in reply.headers
        loading.go.set()
        await until(lambda: roomy["b"].is_loaded and not roomy["b"].n_uses)
        assert (await asked(app(roomy), "POST", "/v1/decisions", {**BODY, "model": "b"})).status == 200

    asyncio.run(asyncio.wait_for(all_of_them(), 60))


def test_a_load_that_fails_is_an_error_of_its_request(roomy, monkeypatch):
    """500 for that request alone, and nothing of the file's place; the next one tries again."""
    loading = Loading(monkeypatch)
    loading.error = ModelFileError("/a/place/m.gguf", "it is damaged")
    loading.go.set()
    application = app(roomy)
    reply = ask(application, "POST", "/v1/decisions", {**BODY, "model": "a"})
    assert (reply.status, reply.error["code"], reply.headers["x-should-retry"]) == (500, "model_file", "false")
    assert b"/a/place" not in reply.data
    loading.error = None
    assert ask(application, "POST", "/v1/decisions", {**BODY, "model": "a"}).status == 200


def test_a_model_that_never_fits_is_not_tried_again(tiny_model):
    """It is larger than the whole budget: 500 that clients do not repeat."""
    with ModelPool({"a": str(tiny_model("f32"))}, budget_bytes=1_000, n_ctx=256, n_threads=1) as pool:
        reply = ask(app(pool), "POST", "/v1/decisions", {**BODY, "model": "a"})
    assert (reply.status, reply.error["code"], reply.headers["x-should-retry"]) == (500, "memory_budget", "false")


@pytest.mark.parametrize("how", ["leaves", "is late"])
def test_who_waits_for_memory_frees_its_place(pool, how, monkeypatch):
    """By leaving, or by its deadline, after which it may try again; those behind it go on."""
    monkeypatch.setattr(server_models, "_MAX_PASSED", 0)

    async def all_of_them():
        application, leave = app(pool, ServerOptions(deadline_s=60 if how == "leaves" else 0.1)), asyncio.Event()
        models = application.state.models
        async with models.lease("a"):
            waiting = asyncio.ensure_future(
                asked(application, "POST", "/v1/decisions", {**BODY, "model": "b"}, leave=leave)
            )
            await until(lambda: models._queue)
            behind = asyncio.ensure_future(models.lease("a").__aenter__())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not behind.done()
            if how == "leaves":
                leave.set()
            reply = await waiting
            if how == "is late":
                assert (reply.status, reply.error["code"], reply.headers["retry-after"]) == (503, "memory_budget", "1")
            assert (await behind).name == "a"
            assert not models._queue

    asyncio.run(asyncio.wait_for(all_of_them(), 60))


def test_memory_that_others_free_is_seen(pool, monkeypatch):
    """A pool may serve more than this server."""
    monkeypatch.setattr(server_models, "_LOOK_S", 0.01)

    async def all_of_them():
        models = Models(pool, ServerOptions())
        with pool.use("a"):
            waiting = asyncio.ensure_future(models.lease("b").__aenter__())
            await until(lambda: models._queue)
        assert (await waiting).name == "b"

    asyncio.run(asyncio.wait_for(all_of_them(), 60))


def test_an_alias_is_a_further_name(pool):
    """It is in the answer and in the list, with the name of its model; aliases of nothing are refused."""
    application = app(pool, ServerOptions(aliases={"gpt-4o": "b", "o": "a"}))
    for name in ("b", "gpt-4o", "o"):
        reply = ask(application, "POST", "/v1/decisions", {**BODY, "model": name})
        assert (reply.status, reply.json["model"]) == (200, name)
    assert [model.name for model in pool.loaded()] == ["a"]
    listed = ask(application, "GET", "/v1/models").json["data"]
    assert [(one["id"], one.get("root")) for one in listed] == [("a", None), ("b", None), ("gpt-4o", "b"), ("o", "a")]
    assert ask(application, "GET", "/v1/models/o").json["root"] == "a"
    for aliases, message in (
        ({"x": "c"}, r"alias\[x\]='c': expected one of the models: 'a', 'b'"),
        ({"a": "b"}, "alias='a'"),
    ):
        with pytest.raises(OptionError, match=message):
            app(pool, ServerOptions(aliases=aliases))


@pytest.fixture
def three(tiny_model):
    """Three models of which two fit at a time."""
    path = str(tiny_model("f32"))
    options = {"n_ctx": 256, "n_threads": 1}
    budget = memory_needed(path, None, options) * 5 // 2
    with ModelPool(dict.fromkeys("abc", path), budget_bytes=budget, **options) as made:
        yield made


def test_a_cascade_is_a_further_name(three):
    """It decides as in Python, and the answers say who decided; it does nothing else."""
    application = app(three, ServerOptions(cascades={"ab": ("a", "b")}, aliases={"x": "ab"}, cascade_confidence=1.0))
    with three.use("a") as small:
        expected = cascade([small, small], min_confidence=1.0).decide("x", Predicate("It rains."))
    for name in ("ab", "x"):
        reply = ask(application, "POST", "/v1/decisions", {**BODY, "model": name}).json
        [answer] = reply["answers"]
        assert (reply["model"], answer["probability"]) == (name, expected.probability)
        assert answer["diagnostics"]["decided_by"] == {"index": 1, "model": "b"}
        assert answer["diagnostics"]["rows_alone"] == expected.usage.rows_alone
        assert len(answer["diagnostics"]["rows_by_model"]) == 2
    reply = ask(application, "POST", "/v1/classify", {"model": "ab", "text": "x", "labels": ["b", "c"]})
    assert reply.json["diagnostics"]["decided_by"]["index"] == 1
    reply = ask(application, "POST", "/v1/decisions", {**BODY, "model": "ab", "think": {"n": 1}})
    assert (reply.status, reply.error["param"]) == (400, "think.stop")
    assert "model 'a': think.stop" in reply.error["message"]
    assert "ab" in [one["id"] for one in ask(application, "GET", "/v1/models").json["data"]]
    reply = ask(application, "POST", "/v1/completions", {"model": "ab", "prompt": "x", "max_tokens": 1})
    assert (reply.status, reply.error["param"]) == (400, "model")
    assert "expected one of a, b; a cascade answers decisions" in reply.error["message"]


@pytest.mark.parametrize(
    ("cascades", "message"),
    [
        ({"x": ("a", "d")}, r"cascade\[x\]='a,d': expected two or more different models: 'a', 'b', 'c'"),
        ({"x": ("a",)}, "two or more different models"),
        ({"x": ("a", "a")}, "two or more different models"),
        ({"a": ("b", "c")}, "cascade='a': expected a further name"),
        ({"x": ("a", "b", "c")}, "the model 'x' needs"),
    ],
)
def test_a_cascade_that_could_never_answer_is_refused(three, cascades, message):
    """When the server begins: members that are no models, and more of them than fit into the memory."""
    with pytest.raises((OptionError, MemoryBudgetError), match=message):
        app(three, ServerOptions(cascades=cascades))


def test_cascades_that_want_what_others_hold_all_end(three):
    """Each two of three models, in every order, where two fit: no request waits for one that waits for it."""
    cascades = {one + other: (one, other) for one, other in permutations("abc", 2)}

    async def all_of_them():
        application = app(three, ServerOptions(cascades=cascades))
        names = [*cascades, "a", "b", "c", *cascades]
        return await asyncio.gather(
            *(asked(application, "POST", "/v1/decisions", {**BODY, "model": name}) for name in names)
        )

    replies = asyncio.run(asyncio.wait_for(all_of_them(), 60))
    assert {one.status for one in replies} == {200}
    assert not any(one.n_uses for one in three.loaded())
