"""Which model answers: pools lend first come, first served, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie import ModelPool
from selectrie.engine.pool import memory_needed
from selectrie.server import ServerOptions, app
from selectrie.server.models import Models, name_of
from tests.support.serving import ask

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


def test_requests_wait_in_the_order_in_which_they_came(pool):
    """One that needs the memory of another waits for it, and holds up those behind it, also those whose model is there."""
    order = []

    async def used(models, name, number, begun, hold):
        async with models.lend(name) as lent:
            order.append((number, lent.name))
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
