"""How many large requests are worked on at once, and who is next."""

from __future__ import annotations

import asyncio
import gzip
import threading
from functools import partial

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.engine.aio import in_thread
from selectrie.engine.scheduler.model_thread import ModelThread
from selectrie.engine.scheduler.task_group import note_prepared
from selectrie.engine.scheduler.turns import Turn
from selectrie.server import ServerOptions, app
from selectrie.server.calls import tokenizer
from selectrie.server.generation import completions
from selectrie.server.transport import body, request_context
from selectrie.server.transport.request_context import LARGE_AT_ONCE, Permits, _Permit
from tests.support.deciding import fake
from tests.support.serving import ask, asked, within_patience

LARGE = {"unknown": "x" * 70_000}
BODIES = {
    "/v1/decisions": {"input": "x", "questions": [{"type": "predicate", "instructions": "It rains."}]},
    "/v1/completions": {"prompt": "x", "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [5]},
    "/v1/vocabulary/encode": {"texts": ["eA=="]},
}


class Gated:
    """A function that waits in its thread until it is let go, and counts its calls."""

    def __init__(self) -> None:
        self.begun, self.go, self.n_begun = threading.Semaphore(0), threading.Event(), 0

    def __call__(self) -> None:
        self.n_begun += 1
        self.begun.release()
        assert self.go.wait(60)

    async def until_begun(self, n: int) -> None:
        """Wait until it was called so often."""
        for _ in range(n):
            assert await asyncio.to_thread(self.begun.acquire, timeout=60)


async def settled() -> None:
    """Let everything that can go on do so."""
    for _ in range(30):
        await asyncio.sleep(0)


def test_so_many_are_worked_on_at_once():
    """The others wait without a thread; one that is given up meanwhile never begins."""

    async def main():
        permits, work, turn = Permits(2), Gated(), Turn()
        held = [asyncio.ensure_future(permits.hold(turn, lambda: in_thread(work))) for _ in range(5)]
        await work.until_begun(2)
        await settled()
        assert work.n_begun == 2
        for one in held[2:4]:
            one.cancel()
        await settled()
        assert [one.cancelled() for one in held] == [False, False, True, True, False]
        work.go.set()
        await asyncio.gather(*held, return_exceptions=True)
        assert work.n_begun == 3
        assert (permits._n_free, permits._waiting) == (2, {})

    asyncio.run(within_patience(main()))


def test_clients_get_permits_alternately():
    """However many requests of one wait before the first of another."""

    async def main():
        permits, work, order = Permits(1), Gated(), []
        first, second, third = Turn(), Turn(), Turn()
        held = [asyncio.ensure_future(permits.hold(first, lambda: in_thread(work)))]
        await work.until_begun(1)
        for turn, name in ((first, "a"), (first, "b"), (first, "c"), (second, "d"), (second, "e"), (third, "f")):
            held.append(asyncio.ensure_future(permits.hold(turn, partial(in_thread, partial(order.append, name)))))
        await settled()
        work.go.set()
        await asyncio.gather(*held)
        assert order == ["a", "d", "f", "b", "e", "c"]

    asyncio.run(within_patience(main()))


def test_of_a_client_the_first_request_goes_on_first():
    """Its next piece comes before the first pieces of later requests, so they are not all answered at the end."""

    async def main():
        permits, work, order, turn = Permits(1), Gated(), [], Turn()
        held = [asyncio.ensure_future(permits.hold(turn, lambda: in_thread(work)))]
        await work.until_begun(1)
        for began_s, name in ((2.0, "second"), (3.0, "third"), (1.0, "first"), (2.0, "second again")):
            start = partial(in_thread, partial(order.append, name))
            held.append(asyncio.ensure_future(permits.hold(turn, start, began_s)))
        await settled()
        work.go.set()
        await asyncio.gather(*held)
        assert order == ["first", "second", "second again", "third"]

    asyncio.run(within_patience(main()))


def test_a_request_that_waits_for_its_model_needs_no_permit():
    """It leaves it when it was prepared, and who waited gets it."""

    async def main():
        permits, model, turn = Permits(1), Gated(), Turn()

        def prepared_work():
            note_prepared()
            model()

        held = [asyncio.ensure_future(permits.hold(turn, lambda: in_thread(prepared_work))) for _ in range(3)]
        await model.until_begun(3)
        assert permits._n_free == 1
        model.go.set()
        await asyncio.gather(*held)
        assert permits._n_free == 1

    asyncio.run(within_patience(main()))


def test_a_permit_is_held_until_its_thread_ends():
    """Although who waited for it was cancelled, so there are never more threads."""

    async def main():
        permits, work, turn = Permits(1), Gated(), Turn()
        held = [asyncio.ensure_future(permits.hold(turn, lambda: in_thread(work))) for _ in range(2)]
        await work.until_begun(1)
        held[0].cancel()
        await settled()
        assert (held[0].done(), work.n_begun, permits._n_free) == (False, 1, 0)
        work.go.set()
        await asyncio.gather(*held, return_exceptions=True)
        assert [one.cancelled() for one in held] == [True, False]
        assert (work.n_begun, permits._n_free) == (2, 1)

    asyncio.run(within_patience(main()))


def test_a_permit_that_was_got_in_vain_is_passed_on():
    """It was given to a request that is cancelled before it goes on."""

    async def main():
        permits, turn, ran = Permits(1), Turn(), []
        first = await permits._permit(turn)
        held = [
            asyncio.ensure_future(permits.hold(turn, partial(in_thread, partial(ran.append, name)))) for name in "ab"
        ]
        await settled()
        first.leave()
        held[0].cancel()
        await held[1]
        assert (held[0].cancelled(), ran, permits._n_free) == (True, ["b"], 1)

    asyncio.run(within_patience(main()))


def test_an_error_frees_the_permit():
    """Whether the work fails, or no thread can be started."""

    async def main():
        permits = Permits(1)

        def failing():
            raise ZeroDivisionError

        async def not_started():
            raise RuntimeError("can't start new thread")

        for start, error in ((partial(in_thread, failing), ZeroDivisionError), (not_started, RuntimeError)):
            with pytest.raises(error):
                await permits.hold(Turn(), start)
            assert permits._n_free == 1

    asyncio.run(within_patience(main()))


def test_who_waited_in_a_loop_that_was_closed_is_passed_over():
    """An application may be asked by several loops, one after the other."""
    permits, turn = Permits(1), Turn()

    async def made():
        return await permits._permit(turn), _Permit(permits, 0.0)

    first, waiting = asyncio.run(made())
    permits._waiting[turn] = [waiting]
    first.leave()
    assert (permits._n_free, permits._waiting) == (1, {})


@pytest.mark.parametrize("path", BODIES)
def test_large_bodies_are_parsed_and_read_in_the_permits(monkeypatch, path):
    """Small requests are answered meanwhile, and a client that leaves the line takes no thread."""
    parsing, parsed = Gated(), body.parse_object

    def gated(data, max_depth):
        if len(data) > len(LARGE["unknown"]):
            parsing()
        return parsed(data, max_depth)

    monkeypatch.setattr(body, "parse_object", gated)

    async def main(llm):
        application, leave = app(llm), asyncio.Event()
        large = [asyncio.ensure_future(asked(application, "POST", path, BODIES[path] | LARGE)) for _ in range(4)]
        await parsing.until_begun(LARGE_AT_ONCE)
        gone = [
            asyncio.ensure_future(asked(application, "POST", path, BODIES[path] | LARGE, leave=leave)) for _ in range(3)
        ]
        await settled()
        assert application.state.n_open == 7
        assert (await asked(application, "POST", path, BODIES[path])).status == 200
        leave.set()
        assert [(await one).status for one in gone] == [0, 0, 0]
        assert (application.state.n_open, parsing.n_begun) == (4, LARGE_AT_ONCE)
        parsing.go.set()
        assert [(await one).status for one in large] == [200] * 4
        assert parsing.n_begun == 4
        assert application.state.permits._n_free == LARGE_AT_ONCE

    with fake() as llm:
        asyncio.run(within_patience(main(llm)))


@pytest.mark.parametrize("path", BODIES)
def test_what_a_large_request_takes_is_done_in_a_permit(monkeypatch, path):
    """Its tokens and its answer too; nothing of it is done on the event loop, where a small one is answered at once."""
    n_held, written = [], request_context.encode_json
    hold = Permits.hold

    async def counted(self, turn, *given):
        n_held.append(turn)
        return await hold(self, turn, *given)

    def encoded(content):
        threads.append(threading.current_thread())
        return written(content)

    threads: list[threading.Thread] = []
    monkeypatch.setattr(Permits, "hold", counted)
    monkeypatch.setattr(request_context, "encode_json", encoded)
    with fake() as llm:
        application = app(llm)
        assert ask(application, "POST", path, BODIES[path]).status == 200
        assert n_held == []
        assert ask(application, "POST", path, BODIES[path] | LARGE).status == 200
    assert len(n_held) >= 3  # parsed, read, and encoded or decided
    if path != "/v1/chat/completions":  # whose answer is as short as what was drawn
        assert threads[1] is not threading.main_thread()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/decisions"])
def test_a_large_request_gives_up_its_permit_before_the_model_works(monkeypatch, path, stream):
    """So many as there are permits may wait for the model while others are prepared."""
    if path == "/v1/decisions" and stream:
        pytest.skip("decisions are not streamed")
    n_free, queue = [], ModelThread.queue

    def noted(self, *handles):
        n_free.append(application.state.permits._n_free)
        queue(self, *handles)

    monkeypatch.setattr(ModelThread, "queue", noted)
    with fake() as llm:
        application = app(llm)
        sent = BODIES[path] | LARGE | ({"stream": True} if stream else {})
        assert ask(application, "POST", path, sent).status == 200
    assert set(n_free) == {LARGE_AT_ONCE}


def test_prompts_after_the_client_left_are_not_encoded(monkeypatch):
    """The thread ends between two prompts of the request."""
    work, read = Gated(), completions.spell_prompt
    monkeypatch.setattr(completions, "spell_prompt", lambda *given, **named: [work(), read(*given, **named)][1])

    async def main(llm):
        application, leave = app(llm), asyncio.Event()
        sent = {"prompt": ["a", "b", "c"], "max_tokens": 1} | LARGE
        waiting = asyncio.ensure_future(asked(application, "POST", "/v1/completions", sent, leave=leave))
        await work.until_begun(1)
        leave.set()
        await settled()
        work.go.set()
        assert (await waiting).status == 0
        assert (work.n_begun, application.state.permits._n_free) == (1, LARGE_AT_ONCE)

    with fake() as llm:
        asyncio.run(within_patience(main(llm)))


def test_a_small_body_that_becomes_large_waits_too(monkeypatch):
    """What counts is its size once it is decoded: 1 KB may be a megabyte of spaces."""
    n_held, hold = [], Permits.hold

    async def counted(self, turn, *given):
        n_held.append(turn)
        return await hold(self, turn, *given)

    monkeypatch.setattr(Permits, "hold", counted)
    data = gzip.compress(b'{"prompt": "x"' + b" " * 100_000 + b"}")
    with fake() as llm:
        reply = ask(app(llm), "POST", "/tokenize", data=data, headers={"content-encoding": "gzip"})
    assert (reply.status, len(data) < 1_000, len(n_held) > 0) == (200, True, True)


def test_a_text_of_tokens_has_a_largest_size(monkeypatch):
    """A token may spell a thousand bytes, so a body's size is no bound."""
    with fake() as llm:
        application = app(llm, ServerOptions())
        token = int(llm.vocabulary.lengths.argmax())
        size = int(llm.vocabulary.lengths[token])
        monkeypatch.setattr(tokenizer, "MAX_TEXT_BYTES", 3 * size)
        assert ask(application, "POST", "/detokenize", {"tokens": [token] * 3}).status == 200
        refused = ask(application, "POST", "/detokenize", {"tokens": [token] * 4})
    assert (refused.status, refused.error["param"]) == (400, "tokens")
    assert refused.error["message"] == (
        f"tokens={4 * size} bytes: expected tokens of at most {3 * size} bytes of text; send them in parts"
    )
