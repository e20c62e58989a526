"""Chats over HTTP: what `generate` draws, in the objects of OpenAI's API, whole and as a stream."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from codecs import getincrementaldecoder
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie import SamplingParams, StopParams
from selectrie.engine.engine import Engine
from selectrie.errors import DecodeError
from selectrie.server import ServerOptions, app
from selectrie.server.transport.models import Models
from tests.support.chatting import BODY, MESSAGES, NEUTRAL, PATH, generated, put_together
from tests.support.deciding import fake, nothing_is_held, rests
from tests.support.serving import PATIENCE_S, Reply, SkippingLoop, ask, asked, run_skipping, within_patience

LETTERS = {str(byte + 2): 100 for byte in "aé".encode()}
"""A bias by which only the letters a and é are drawn, which has two bytes."""

ASKED: list[dict[str, Any]] = [
    {},
    {"logprobs": True},
    {"logprobs": True, "top_logprobs": 3, "n": 3},
    {"n": 2, "logit_bias": LETTERS, "temperature": 0.5, "logprobs": True, "top_logprobs": 1},
    {"logit_bias": LETTERS, "stop": ["éa", "aé"], "n": 4, "logprobs": True},
    {"logit_bias": LETTERS, "frequency_penalty": 1.5, "presence_penalty": -0.5, "ignore_eos": True},
]


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake."""
    with fake() as made:
        yield made


@pytest.mark.parametrize("changes", ASKED, ids=str)
def test_an_answer_is_what_the_engine_draws(llm, changes):
    """To the last bit, with the usage of the request; log-probabilities only where they are asked for."""
    wanted = generated(llm, changes)
    reply = ask(app(llm), "POST", PATH, {**BODY, **changes})
    assert reply.status == 200
    found = reply.json
    assert list(found) == ["id", "created", "model", "object", "choices", "usage"]
    assert (found["object"], found["model"]) == ("chat.completion", "hash-1")
    assert found["id"] == f"chatcmpl-{reply.headers['x-request-id']}"
    assert found["usage"] == wanted.to_openai(chat=True)["usage"]
    for choice, own in zip(found["choices"], wanted, strict=True):
        assert choice["message"] == {"role": "assistant", "content": own.text, "refusal": None}
        assert choice["finish_reason"] == ("length" if own.finish == "length" else "stop")
        if "logprobs" not in changes:
            assert choice["logprobs"] is None
            continue
        shown = choice["logprobs"]["content"]
        assert [(one["id"], one["logprob"]) for one in shown] == [(one.id, one.logp) for one in own.tokens]
        assert [bytes(one["bytes"]) for one in shown] == [one.piece for one in own.tokens]
        tops = own.alternatives or [()] * len(own.tokens)
        assert [[(one["id"], one["logprob"]) for one in each["top_logprobs"]] for each in shown] == [
            [(one.id, one.logp) for one in top] for top in tops
        ]


@pytest.mark.parametrize("changes", ASKED, ids=str)
def test_a_stream_adds_up_to_the_answer(llm, changes):
    """The same texts and numbers, to the last bit; the usage comes last and only where it is asked for."""
    body = {**BODY, **changes}
    llm.trim()
    whole = ask(app(llm), "POST", PATH, body).json
    llm.trim()
    reply = ask(app(llm), "POST", PATH, {**body, "stream": True, "stream_options": {"include_usage": True}})
    *chunks, last = reply.events
    assert put_together(chunks) == whole["choices"]
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    assert all(chunk["usage"] is None for chunk in chunks)
    assert {(one["object"], one["id"], one["model"], one["created"]) for one in reply.events} == {
        ("chat.completion.chunk", f"chatcmpl-{reply.headers['x-request-id']}", "hash-1", last["created"])
    }
    llm.trim()
    plain = ask(app(llm), "POST", PATH, {**body, "stream": True}).events
    assert put_together(plain) == whole["choices"]
    assert not any("usage" in chunk for chunk in plain)


def test_the_comparison_can_fail(llm):
    """A chunk that is lost, sent twice or sent after the end is noticed."""
    body = {**BODY, "stream": True, "logprobs": True, "ignore_eos": True}
    events = ask(app(llm), "POST", PATH, body).events
    wanted = put_together(events)
    for wrong in ([*events[:2], *events[3:]], [events[0], events[1], *events[1:]]):
        assert put_together(wrong) != wanted
    for wrong in (events[1:], [*events, events[1]]):
        with pytest.raises(AssertionError):
            put_together(wrong)


def test_characters_are_whole_in_every_chunk(llm):
    """Tokens are bytes here, so é is two of them: no delta has a half of it, only whole ones and bytes that are none."""
    body = {**BODY, "max_tokens": 60, "n": 3, "logit_bias": LETTERS, "stream": True, "logprobs": True}
    events = ask(app(llm), "POST", PATH, body).events
    for choice in put_together(events):
        drawn = b"".join(bytes(one["bytes"]) for one in choice["logprobs"]["content"])
        assert choice["message"]["content"] == getincrementaldecoder("utf-8")("replace").decode(drawn)
        assert "é" in choice["message"]["content"]


def test_a_stop_text_is_never_seen(llm):
    """Not its beginning either: what was sent cannot be taken back, and adds up to the text before the stop."""
    body = {**BODY, "max_tokens": 200, "n": 4, "logit_bias": LETTERS, "stop": "aaa", "stream": True}
    found = put_together(ask(app(llm), "POST", PATH, body).events)
    stopping = StopParams(max_tokens=200, stop="aaa")
    sampling = SamplingParams(**NEUTRAL, logit_bias={int(token): bias for token, bias in LETTERS.items()})
    wanted = llm.generate(MESSAGES, n=4, seed=7, sampling=sampling, stopping=stopping)
    assert [one.stop for one in wanted] == ["aaa"] * 4
    assert [choice["message"]["content"] for choice in found] == list(wanted.texts)


# Work that ends early, and readers that are slow

ENDLESS = {"messages": MESSAGES, "max_tokens": 20_000, "ignore_eos": True, "stream": True}


def run(main: Any) -> Any:
    """The result of a coroutine, within `PATIENCE_S`."""
    return asyncio.run(within_patience(main))


class Held:
    """Holds the model in its calls after the first few until it is let go; `reached` is set when it stands."""

    def __init__(self, llm: Engine, n_free: int) -> None:
        self.reached, self._go, self._n_free = asyncio.Event(), threading.Event(), n_free
        self._loop, self._model = asyncio.get_running_loop(), llm._model
        self._model.on_decode = self._hold

    def _hold(self) -> None:
        self._n_free -= 1
        if self._n_free < 0:
            self._loop.call_soon_threadsafe(self.reached.set)
            assert self._go.wait(PATIENCE_S)

    def go(self) -> None:
        """Let the model go on, and hold no later call."""
        self._model.on_decode = None
        self._go.set()


CALLED = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "tool_choice": "required"}


@pytest.mark.parametrize(
    ("n_free", "changes"),
    [(0, {}), (3, {}), (0, CALLED), (9, CALLED)],
    ids=["before the first token", "between tokens", "in the choice of a tool", "in its arguments"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_leaves_frees_the_model(n_free, changes, stream):
    """In the middle of a call: after it, nothing of the request is left."""

    async def left(llm: Engine) -> None:
        held, leave = Held(llm, n_free), asyncio.Event()
        application = app(llm)
        waiting = asyncio.ensure_future(
            asked(application, "POST", PATH, {**ENDLESS, **changes, "stream": stream, "n": 3}, leave=leave)
        )
        await held.reached.wait()
        leave.set()
        reply = await waiting
        assert reply.status == (200 if stream and n_free else 0)
        assert application.state.n_open == 0
        held.go()

    with fake() as llm:
        run(left(llm))
        assert nothing_is_held(llm)
        assert llm._model.calls <= n_free + 2
        wanted = generated(llm, {})
        assert ask(app(llm), "POST", PATH, BODY).json["choices"][0]["message"]["content"] == wanted.texts[0]


@pytest.mark.parametrize("n_free", [0, 3], ids=["in the prompt", "between tokens"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("why", ["disconnected", "deadline"])
def test_work_that_is_lost_is_counted_and_logged(n_free, stream, why, caplog):
    """Rows and calls are those of the model, the one in flight too, and the line says why and with what status."""

    async def lost(llm: Engine, loop: SkippingLoop) -> None:
        held, leave = Held(llm, n_free), asyncio.Event()
        application = app(llm, ServerOptions(deadline_s=PATIENCE_S / 2))
        waiting = asyncio.ensure_future(asked(application, "POST", PATH, {**ENDLESS, "stream": stream}, leave=leave))
        await held.reached.wait()
        leave.set() if why == "disconnected" else loop.skip(PATIENCE_S / 2)
        await waiting
        assert not caplog.records
        held.go()
        assert await asyncio.to_thread(rests, llm, 50)
        [line] = [json.loads(record.message) for record in caplog.records]
        status = 499 if why == "disconnected" else 504
        assert (line["status"], line["lost"], line["client"]) == (status, why, "127.0.0.1")
        assert (line["rows"], line["model_calls"]) == (llm._model.rows, llm._model.calls)
        assert line["decode_seconds"] > 0  # also of a call that was interrupted, whose rows are nobody's
        assert (line["rows"] > n_free) == (n_free > 0)
        assert (line["tokens"] > 0) == (stream and n_free > 0)
        counted = (await asked(application, "GET", "/metrics")).data.decode()
        for shown in (
            f'rows_total{{kind="new"}} {line["rows"]}.0',
            f"model_calls_total {line['model_calls']}.0",
            f'cancelled_total{{reason="{why}"}} 1.0',
            f'requests_total{{endpoint="{PATH}",status="{status}"}} 1.0',
        ):
            assert f"selectrie_{shown}" in counted, counted

    with caplog.at_level(logging.INFO, "selectrie.server"), fake() as llm:
        run_skipping(lambda loop: within_patience(lost(llm, loop)))


def test_a_client_that_leaves_while_it_waits_for_a_model(monkeypatch):
    """The place in the queue is given up, and nothing was begun."""
    ended = []

    @asynccontextmanager
    async def lease(_self, _name, **_options):
        waits.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        yield

    async def left(llm: Engine) -> Reply:
        nonlocal waits
        waits, leave = asyncio.Event(), asyncio.Event()
        waiting = asyncio.ensure_future(asked(app(llm), "POST", PATH, ENDLESS, leave=leave))
        await waits.wait()
        leave.set()
        return await waiting

    waits = asyncio.Event()
    monkeypatch.setattr(Models, "lease", lease)
    with fake() as llm:
        assert run(left(llm)).status == 0
        assert ended == [True]
        assert llm._model.calls == 0


def test_the_deadline_of_a_stream():
    """An error is its last event, and the model is free after the call that it was in."""

    async def late(llm: Engine, loop: SkippingLoop) -> Reply:
        held, begun = Held(llm, 3), asyncio.Event()
        application = app(llm, ServerOptions(deadline_s=PATIENCE_S / 2))

        async def on_send(_reply: Reply, message) -> None:
            if message["type"] == "http.response.body":
                begun.set()

        waiting = asyncio.ensure_future(asked(application, "POST", PATH, ENDLESS, on_send=on_send))
        await begun.wait()
        await held.reached.wait()
        loop.skip(PATIENCE_S / 2)
        reply = await waiting
        assert application.state.n_open == 0
        held.go()
        return reply

    with fake() as llm:
        events = run_skipping(lambda loop: within_patience(late(llm, loop))).events
        assert events[0]["choices"][0]["delta"]["role"] == "assistant"
        assert events[-1]["error"]["code"] == "deadline"
        assert nothing_is_held(llm)


def test_an_error_of_the_model_in_a_stream():
    """An event in the shape of errors; before the first token it is the status of the response."""

    async def failing(llm: Engine) -> Reply:
        held = Held(llm, 3)
        waiting = asyncio.ensure_future(asked(app(llm), "POST", PATH, ENDLESS))
        await held.reached.wait()
        llm._model.fail_next(DecodeError("the card fell off the bus"))
        held.go()
        return await waiting

    with fake() as llm:
        llm._model.fail_next(DecodeError("the card fell off the bus"))
        reply = ask(app(llm), "POST", PATH, ENDLESS)
        assert (reply.status, reply.error["code"], reply.headers["x-should-retry"]) == (500, "decode", "false")
        late = run(failing(llm))
        assert (late.status, late.events[-1]) == (200, reply.json)
        assert nothing_is_held(llm)


def test_a_slow_reader_gets_fewer_and_larger_chunks():
    """The model does not wait: what it draws meanwhile is one chunk of each choice, and nothing else piles up."""
    sizes = []

    async def slow(llm: Engine) -> Reply:
        async def late(_reply: Reply, message: Mapping[str, Any]) -> None:
            if message.get("body"):
                sizes.append(message["body"].count(b"data: {"))
                if len(sizes) == 1:  # the reader takes the first event when all is drawn
                    await asyncio.to_thread(rests, llm, 5_000)

        return await asked(app(llm), "POST", PATH, {**ENDLESS, "max_tokens": 100, "n": 2, "seed": 7}, on_send=late)

    with fake() as llm:
        events = run(slow(llm)).events
        wanted = ask(app(llm), "POST", PATH, {**ENDLESS, "max_tokens": 100, "n": 2, "seed": 7, "stream": False}).json
    assert put_together(events) == wanted["choices"]
    assert len(sizes) == 3, "the first, the rest, and the end"
    assert sizes[1] <= 2 * 3


def test_streams_beside_each_other_are_what_they_are_alone():
    """Sixteen at once share calls, and each gets its own tokens and texts."""
    bodies = [{**BODY, "seed": seed, "n": 2, "stream": True, "logprobs": True} for seed in range(16)]

    async def all_at_once(llm: Engine) -> list[Reply]:
        held, application = Held(llm, 0), app(llm)
        first = asyncio.ensure_future(asked(application, "POST", PATH, {**BODY, "max_tokens": 1}))
        await held.reached.wait()
        waiting = asyncio.gather(*(asked(application, "POST", PATH, body) for body in bodies))
        while llm.load.n_waiting < 2 * len(bodies):  # noqa: ASYNC110 - the engine tells no one when they are there
            await asyncio.sleep(0)
        held.go()
        await first
        return await waiting

    with fake() as llm:
        together = run(all_at_once(llm))
        n_calls = llm._model.calls
        for reply, body in zip(together, bodies, strict=True):
            llm.trim()
            alone = ask(app(llm), "POST", PATH, {**body, "stream": False}).json
            assert put_together(reply.events) == alone["choices"]
        assert n_calls < (llm._model.calls - n_calls) / 2


def test_the_log_and_the_metrics_of_a_stream(caplog):
    """Tokens, rows and seconds as of a whole answer, and the seconds to the first token."""
    with fake() as llm, caplog.at_level(logging.INFO, "selectrie.server"):
        application = app(llm)
        whole = ask(application, "POST", PATH, BODY).json["usage"]
        llm.trim()
        ask(application, "POST", PATH, {**BODY, "stream": True})
        text = ask(application, "GET", "/metrics").data.decode()
    first, second = [json.loads(record.message) for record in caplog.records[:2]]
    assert first["tokens"] == second["tokens"] == whole["total_tokens"]
    assert first["rows"] == second["rows"] > 0
    assert first["model"] == second["model"] == "hash-1"
    assert "selectrie_first_token_seconds_count 1.0" in text
    assert "selectrie_queue_seconds_count 2.0" in text
