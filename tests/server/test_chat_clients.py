"""Chats asked by OpenAI's client as released, with its own validation of every response switched on."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Literal

import pytest

pytest.importorskip("uvicorn", reason="needs the extra 'server'")
pytest.importorskip("openai", reason="needs the extra 'test-clients'")

import openai
import pydantic
from openai.lib._pydantic import to_strict_json_schema

import selectrie
from selectrie import GenerationParams, Grammar, SamplingParams, StopParams
from selectrie.server import app
from tests.support.deciding import fake
from tests.support.serving import PATIENCE_S, running, within_patience

MESSAGES = [{"role": "user", "content": "Once upon a time there was a"}]
ENDLESS = {"model": "m", "messages": MESSAGES, "max_tokens": 20_000, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def served():
    """A server with the embedded model, its engine, and a client of it."""
    with selectrie.load(n_threads=1) as llm, running(app(llm)) as url:
        yield llm, openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0, _strict_response_validation=True)


def drawn(llm, **changes):
    """What the engine draws, on an empty cache before and after."""
    options = {"seed": 3, "sampling": SamplingParams.UNCHANGED, "stopping": StopParams(max_tokens=12), **changes}
    llm.trim()
    found = llm.generate(MESSAGES, **options)
    llm.trim()
    return found


def test_an_answer(served):
    """Texts, log-probabilities and usage of the engine, to the last bit, in the client's own types."""
    llm, client = served
    wanted = drawn(llm, n=2, options=GenerationParams(n_alternatives=2))
    found = client.chat.completions.create(
        model="embedded", messages=MESSAGES, seed=3, max_completion_tokens=12, n=2, logprobs=True, top_logprobs=2
    )
    assert [choice.message.content for choice in found.choices] == list(wanted.texts)
    for choice, own in zip(found.choices, wanted, strict=True):
        assert [one.logprob for one in choice.logprobs.content] == [one.logp for one in own.tokens]
        assert b"".join(bytes(one.bytes) for one in choice.logprobs.content).startswith(own.data)
        for shown, top in zip(choice.logprobs.content, own.alternatives, strict=True):
            assert [(one.token, one.logprob) for one in shown.top_logprobs] == [(one.label, one.logp) for one in top]
    assert found.usage.total_tokens == wanted.prompt_tokens[0] + wanted.n_drawn
    assert (found.model, found.object) == ("embedded", "chat.completion")


def test_a_stream(served):
    """Its deltas are the engine's text, its usage comes last, and the raw response has the request's id."""
    llm, client = served
    wanted = drawn(llm, n=2, stopping=StopParams(max_tokens=30, stop=[".", " the"]))
    raw = client.chat.completions.with_raw_response.create(
        model="embedded",
        messages=MESSAGES,
        seed=3,
        max_tokens=30,
        n=2,
        stop=[".", " the"],
        stream=True,
        stream_options={"include_usage": True},
    )
    texts, reasons, usage = ["", ""], ["", ""], None
    for chunk in raw.parse():
        assert usage is None, "the usage comes last"
        assert chunk.id == f"chatcmpl-{raw.headers['x-request-id']}"
        usage = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason
    assert texts == list(wanted.texts)
    assert reasons == ["length" if one.finish == "length" else "stop" for one in wanted]
    assert usage.completion_tokens == wanted.n_drawn


def test_the_helper_for_streams(served):
    """`client.chat.completions.stream` gathers the chunks into one completion."""
    llm, client = served
    wanted = drawn(llm, stopping=StopParams(max_tokens=200, stop=" "))
    assert wanted[0].finish == "stop", "the helper raises an error for a text that was cut"
    with client.chat.completions.stream(
        model="embedded", messages=MESSAGES, seed=3, max_tokens=200, stop=" ", logprobs=True
    ) as stream:
        found = stream.get_final_completion()
    assert found.choices[0].message.content == wanted.texts[0]
    assert [one.logprob for one in found.choices[0].logprobs.content] == [one.logp for one in wanted[0].tokens]


class Visit(pydantic.BaseModel):
    """What is asked of the model."""

    name: Literal["Ann", "Bo"]
    rooms: list[Annotated[int, pydantic.Field(ge=1, le=20)]] = pydantic.Field(max_length=2)
    late: bool | None


def test_an_answer_of_a_given_form(served):
    """`parse` returns the client's own class; with `json_object` an object, and with a choice one of them."""
    llm, client = served
    grammar = Grammar.from_json_schema(to_strict_json_schema(Visit))
    wanted = drawn(llm, stopping=StopParams(max_tokens=60), options=GenerationParams(grammar=grammar))
    for fields in ({"response_format": Visit}, {"response_format": Visit, "n": 2}):
        found = client.chat.completions.parse(
            model="embedded", messages=MESSAGES, seed=3, max_completion_tokens=60, **fields
        )
        assert found.choices[0].message.content == wanted.texts[0]
        assert all(isinstance(one.message.parsed, Visit) for one in found.choices)
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="embedded", messages=MESSAGES, max_tokens=2, response_format=Visit)
    found = client.chat.completions.create(
        model="embedded", messages=MESSAGES, max_tokens=8, seed=3, response_format={"type": "json_object"}
    )
    assert found.choices[0].message.content.startswith("{")
    assert found.choices[0].finish_reason == "length"


def test_a_stream_of_a_given_form(served):
    """The helper parses what has come, and the whole; its text is that of `parse`."""
    llm, client = served
    llm.trim()
    asked = {"model": "embedded", "messages": MESSAGES, "seed": 4, "max_tokens": 60, "response_format": Visit}
    with client.chat.completions.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        found = stream.get_final_completion().choices[0].message
    llm.trim()
    assert kinds.count("content.done") == 1
    assert isinstance(found.parsed, Visit)
    assert found.content == client.chat.completions.parse(**asked).choices[0].message.content


def test_the_asynchronous_client_parses(served):
    """Three at once, each into its class."""
    _, client = served

    async def parse_three() -> list[object]:
        async with openai.AsyncOpenAI(
            base_url=client.base_url, api_key="-", max_retries=0, _strict_response_validation=True
        ) as other:
            asked = {"model": "embedded", "messages": MESSAGES, "max_tokens": 60, "response_format": Visit}
            found = await asyncio.gather(*(other.chat.completions.parse(seed=seed, **asked) for seed in range(3)))
            return [one.choices[0].message.parsed for one in found]

    assert all(isinstance(one, Visit) for one in asyncio.run(parse_three()))


def test_an_answer_goes_back_as_a_message(served):
    """With all the fields that the client's record of it has."""
    _, client = served
    first = client.chat.completions.create(model="embedded", messages=MESSAGES, seed=3, max_tokens=5)
    said = first.choices[0].message
    for message in (said, said.model_dump()):
        messages = [*MESSAGES, message, {"role": "user", "content": "And then?"}]
        again = client.chat.completions.create(model="embedded", messages=messages, seed=3, max_tokens=5)
        assert again.usage.prompt_tokens > first.usage.total_tokens - 2
        assert not (again.model_extra or {}).get("warnings")


def test_errors_are_the_clients_own(served):
    """A bad request is not tried again and has our code; a field that is not offered is named."""
    _, client = served
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="embedded", messages=MESSAGES, top_p=2)
    assert (caught.value.code, caught.value.param) == ("option", "top_p")
    assert caught.value.request_id
    tools = [{"type": "custom", "custom": {"name": "f"}}]
    with pytest.raises(openai.BadRequestError, match=r"tools\[0\].type"):
        client.chat.completions.create(model="embedded", messages=MESSAGES, tools=tools, stream=True)


def test_many_streams_of_the_asynchronous_client(served):
    """Eight at once: each has the text that it has alone, but for draws as close as the tolerance."""
    llm, client = served
    base_url = client.base_url

    async def text_of(other, seed: int) -> str:
        stream = await other.chat.completions.create(
            model="embedded", messages=MESSAGES, seed=seed, max_tokens=12, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_at_once() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=base_url, api_key="-", max_retries=0, _strict_response_validation=True
        ) as other:
            return await asyncio.gather(*(text_of(other, seed) for seed in range(8)))

    for seed, found in enumerate(asyncio.run(all_at_once())):
        (wanted,) = drawn(llm, seed=seed)
        assert found == wanted.text or wanted.close_steps


class Watched:
    """An application that tells when a request has begun and ended."""

    def __init__(self, inner) -> None:
        self.inner, self.n_begun, self.ended = inner, 0, threading.Semaphore(0)

    async def __call__(self, scope, receive, send) -> None:
        self.n_begun += 1
        try:
            await self.inner(scope, receive, send)
        finally:
            self.ended.release()


@pytest.fixture
def endless():
    """A server on a fake that draws without end, its engine, and what tells when a request has ended."""
    with fake() as llm:
        watched = Watched(app(llm))
        with running(watched) as url:
            yield llm, watched, f"{url}/v1"


def check_free(llm, watched) -> None:
    """Wait until the request has ended; then nothing of it is left in server and model."""
    assert watched.ended.acquire(timeout=PATIENCE_S)
    assert watched.inner.state.n_open == 0
    thread = llm._model_thread
    assert any(thread.call(lambda: thread.scheduler.idle) for _ in range(50))
    assert (llm.load.n_active, llm.load.n_waiting) == (0, 0)
    llm.trim()
    assert llm._model.contexts == {0: ()}
    assert llm.load.nodes_free == llm.limits.nodes


def test_closing_a_stream_ends_its_work(endless):
    """After a few chunks: the model rests and all its nodes are free."""
    llm, watched, url = endless
    with openai.OpenAI(base_url=url, api_key="-", max_retries=0) as client:
        stream = client.chat.completions.create(stream=True, n=3, **ENDLESS)
        for _ in range(5):
            next(stream)
        stream.close()
        check_free(llm, watched)


def test_closing_an_asynchronous_stream_ends_its_work(endless):
    """By `close`, and by cancelling the task that reads."""
    llm, watched, url = endless

    async def read(other, begun: asyncio.Event, *, closes: bool) -> None:
        stream = await other.chat.completions.create(stream=True, **ENDLESS)
        async for _ in stream:
            begun.set()
            if closes:
                await stream.close()
                return

    async def both() -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="-", max_retries=0) as other:
            await read(other, asyncio.Event(), closes=True)
            await asyncio.to_thread(check_free, llm, watched)
            begun = asyncio.Event()
            task = asyncio.ensure_future(read(other, begun, closes=False))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(check_free, llm, watched)

    asyncio.run(within_patience(both()))


def test_a_client_that_gives_up_waiting_ends_its_work(endless):
    """A whole answer that takes longer than the client's timeout."""
    llm, watched, url = endless
    timeout_s = 0.3
    while not watched.n_begun:  # a slow machine may not have taken the request in that time
        client = openai.OpenAI(base_url=url, api_key="-", max_retries=0, timeout=timeout_s)
        with client, pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(**ENDLESS)
        timeout_s *= 2
    check_free(llm, watched)
