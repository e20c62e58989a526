"""`generate` on models that others serve: what is sent, what is refused before that, and what the answer says."""

from __future__ import annotations

import asyncio
import math
import threading
from contextlib import contextmanager

import pytest

pytest.importorskip("httpx2", reason="needs the extra 'remote'")
pytest.importorskip("fastapi", reason="needs the extra 'server'")

import selectrie
from selectrie import Engine, GenerationParams, Grammar, SamplingParams, StopParams
from selectrie.engine.connect import PathRuntime
from selectrie.errors import (
    ClosedError,
    DeadlineError,
    IncompatibleOptionsError,
    OptionError,
    PromptTooLongError,
    SelectrieError,
    ServerError,
    ServerOptionError,
    WholeRowsError,
)
from selectrie.options import PromptParams
from selectrie.server import app
from tests.support.deciding import BYTES, fake
from tests.support.fake_servers import STALL, EchoServer, LlamaServer, SglangServer, VllmServer
from tests.support.serving import ask

KINDS = {"vllm": VllmServer, "sglang": SglangServer, "llama-server": LlamaServer, "echo": EchoServer}
NAMES = {"vllm": "org/model", "sglang": "org/model", "llama-server": "m.gguf", "echo": "m"}
WORDS = Grammar.from_regex("[a-z]+")


def opened_on(application, vocabulary, **options):
    """The model of an ASGI application, asked in this process."""
    import httpx2

    from selectrie.backends.remote.opening import open_server
    from selectrie.backends.remote.transport import Server

    return open_server(
        Server("http://fake", **{"timeout_s": 20.0, **options}),
        read_tokenizer=None if vocabulary is None else lambda _: vocabulary,
        http_transport=httpx2.ASGITransport(application),
    )


@pytest.fixture(scope="module")
def engines():
    """Engines on fakes by kind and options, each opened once, since opening compares 200 texts."""
    made = {}
    yield made
    for llm, _ in made.values():
        llm.close()


@pytest.fixture
def serving(engines):
    """Give an engine on a fake of a kind, and the fake, whose log begins after `connect`."""

    @contextmanager
    def serve(kind, *quirks, **options):
        key = (kind, quirks, *options.items())
        if key not in engines or engines[key][0].closed:
            server = KINDS[kind](3, quirks=quirks)
            engines[key] = Engine(PathRuntime(opened_on(server, BYTES, **options))), server
        llm, server = engines[key]
        server.asked.clear()
        server.plans.clear()
        server.planted.clear()
        server.stalled.clear()
        server.left.clear()
        server.change = lambda _path, answer: answer
        yield llm, server

    return serve


@pytest.fixture(scope="module")
def own():
    """An engine on our own server of a fake model, and an engine on that model here."""
    with fake(3) as served, fake(3) as local, Engine(PathRuntime(opened_on(app(served), None))) as llm:
        yield llm, local


def ids(text: str) -> list[int]:
    """The tokens of a text after which nothing is."""
    return [2 + byte for byte in text.encode()]


@pytest.mark.parametrize(("options", "here"), [
    ({"n": 3}, {}),
    ({"sampling": SamplingParams.GREEDY}, {"temperature": 0.0}),
    ({"sampling": SamplingParams(temperature=1.3, top_p=0.9)}, {"temperature": 1.3, "top_p": 0.9}),
    (
        {"sampling": SamplingParams(presence_penalty=0.5, frequency_penalty=0.2, logit_bias={70: 3.0})},
        {"presence_penalty": 0.5, "frequency_penalty": 0.2, "logit_bias": {70: 3.0}},
    ),
    ({"stopping": StopParams(max_tokens=60, stop=["a", "qz"])}, {}),
])  # fmt: skip
def test_our_own_server_draws_what_an_engine_here_draws_by_its_defaults(own, options, here):
    """The texts are the same if the engine here has what was sent and, for the rest, the defaults of the server."""
    llm, local = own
    prompts = ["Hello", [0, *ids("ab")]]
    options = {"stopping": StopParams(max_tokens=12), **options}
    found = llm.generate(prompts, seed=5, **options)
    defaults = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "penalty_last_n": -1}
    same = local.generate(prompts, seed=5, **{**options, "sampling": SamplingParams(**{**defaults, **here})})
    assert found.sampled_by.startswith(f"selectrie {selectrie.__version__}, by its own options but max_tokens")
    assert (same.sampled_by, found.identity.precision) == (None, "remote")
    assert (found.n_drawn, found.prompt_tokens, found.n) == (same.n_drawn, same.prompt_tokens, same.n)
    for one, other in zip(found, same, strict=True):
        for name in ("prompt_index", "index", "text", "seed"):
            assert getattr(one, name) == getattr(other, name), name
        assert (one.tokens, one.logp, one.stop, one.ended_by, one.close_steps) == ((), None, None, None, None)
    assert (found.cost.model_calls, found.cost.rows) == (len(found), 0)


@pytest.mark.short("*-vllm", "options0-*")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("options", "sent"), [
    ({}, {"max_tokens": 128}),
    ({"sampling": SamplingParams(), "stopping": StopParams(max_tokens=9)}, {"max_tokens": 9}),
    (
        {
            "sampling": SamplingParams(0.5, top_p=1.0, presence_penalty=0.1, frequency_penalty=0.2, logit_bias={7: 2.5}),
            "stopping": StopParams(max_tokens=9, stop="q"),
            "options": GenerationParams(priority=1, deadline_s=60.0),
        },
        {
            "max_tokens": 9,
            "temperature": 0.5,
            "top_p": 1.0,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.2,
            "logit_bias": {"7": 2.5},
            "stop": ["q"],
        },
    ),
    (
        {"sampling": SamplingParams(0.0, 0, 1.0, 0.0), "stopping": StopParams(max_tokens=2)},
        {"max_tokens": 2, "temperature": 0.0},
    ),
])  # fmt: skip
def test_only_what_was_set_is_sent(serving, kind, options, sent):
    """Whole bodies, so that nothing else is sent; the result names what was, and all else is the server's own."""
    with serving(kind) as (llm, server):
        prompt = "ab" if kind == "echo" else [0, *ids("ab")]  # llama_cpp.server takes texts alone
        found = llm.generate("ab", **options)
        assert server.asked == [("/v1/completions", {"model": NAMES[kind], "prompt": prompt, **sent})]
        assert found.sampled_by == f"{llm.identity.build}, by its own options but {', '.join(sent)}"
        assert found.to_dict()["sampled_by"] == found.sampled_by
        assert (found[0].seed, found[0].tokens, found[0].logp) == (None, (), None)


def test_every_text_is_a_request_with_its_seed(serving):
    """Not all servers know `n`, nor which seeds its texts have."""
    with serving("echo", "takes ids") as (llm, server):
        found = llm.generate(["a", "b"], n=2, seed=7, stopping=StopParams(max_tokens=3))
        asked = sorted((body["prompt"], body["seed"]) for _, body in server.asked)
        assert asked == [([0, *ids(text)], seed) for text in "ab" for seed in (7, 8)]
        assert [(one.prompt_index, one.index, one.seed) for one in found] == [
            (0, 0, 7),
            (0, 1, 8),
            (1, 0, 7),
            (1, 1, 8),
        ]
        assert found.sampled_by.endswith("but max_tokens, seed")
        assert found.cost.model_calls == 4


HERE = "load the model here"
REFUSED = [
    ({"options": GenerationParams(choices=["a"])}, "choices", "use `select`"),
    ({"options": GenerationParams(grammar=WORDS)}, "grammar", "use `select` or `beam_search`"),
    ({"options": GenerationParams(grammar=WORDS), "prompting": PromptParams(delimiter=" ")}, "grammar", HERE),
    ({"options": GenerationParams(heal=True)}, "heal", "leave it out"),
    ({"options": GenerationParams(named=[5])}, "named", "`prompt_logprobs`"),
    ({"options": GenerationParams(n_alternatives=1)}, "n_alternatives", "`prompt_logprobs`"),
    ({"options": GenerationParams(best_of=2)}, "best_of", "draw `n` texts"),
    ({"draft": lambda: None}, "draft", HERE),
    ({"stopping": StopParams(when=lambda _: True)}, "when", "use `stop`"),
    ({"stopping": StopParams(min_tokens=2)}, "min_tokens", HERE),
    ({"stopping": StopParams(stop_tokens=[5])}, "stop_tokens", HERE),
    ({"stopping": StopParams(ignore_eog=True)}, "ignore_eog", HERE),
    ({"sampling": SamplingParams.UNCHANGED}, "top_k", "leave it out"),
    ({"sampling": SamplingParams(top_k=5)}, "top_k", HERE),
    ({"sampling": SamplingParams(min_p=0.1)}, "min_p", HERE),
    ({"sampling": SamplingParams(typical_p=0.9)}, "typical_p", HERE),
    ({"sampling": SamplingParams(temperature=0, typical_p=0.9)}, "typical_p", HERE),  # it may drop the best token
    ({"sampling": SamplingParams(repeat_penalty=1.1)}, "repeat_penalty", HERE),
    ({"sampling": SamplingParams(0.0, repeat_penalty=1.1)}, "repeat_penalty", HERE),
    ({"sampling": SamplingParams(presence_penalty=0.5, penalty_last_n=9)}, "penalty_last_n", HERE),
    ({"sampling": SamplingParams(logit_bias={5: -math.inf})}, "logit_bias", "give -100"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[1])
@pytest.mark.parametrize("kind", ["own", "vllm"])
def test_what_openais_api_does_not_have_is_refused_before_anything_is_sent(serving, own, kind, case):
    """One error with the option, the server and the remedy, on every kind of server."""
    options, name, remedy = case
    with serving("vllm") as (served, server):
        llm = own[0] if kind == "own" else served
        transport = llm._runtime._completer.transport
        n = transport.n_requests
        with pytest.raises(ServerOptionError) as refused:
            llm.generate([0, *ids("ab")], **options)
        assert (refused.value.name, refused.value.server) == (name, llm.identity.build)
        assert remedy in refused.value.allowed
        assert all(part in str(refused.value) for part in (name, llm.identity.build, refused.value.allowed))
        assert (transport.n_requests, server.asked) == (n, [])


@pytest.mark.parametrize(("path", "own"), [
    ("/v1/completions", {"prompt": "ab"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "ab"}]}),
])  # fmt: skip
def test_over_http_a_request_asks_for_what_it_has(serving, path, own):
    """Not for what an engine's own model is asked without being told; what cannot be sent is named as the request has it."""
    with serving("vllm") as (llm, server):
        server.plans.append(ids("xyz"))
        reply = ask(app(llm), "POST", path, {**own, "max_tokens": 3, "temperature": 0.5})
        assert (reply.status, reply.json["usage"]["completion_tokens"]) == (200, 3)
        drawn = [body for asked, body in server.asked if asked == "/v1/completions"]
        assert {"top_k", "min_p", "repetition_penalty"}.isdisjoint(drawn[-1])
        assert drawn[-1]["temperature"] == 0.5
        logprobs = "logprobs" if "prompt" in own else "top_logprobs"
        for options, name, remedies in (
            ({"top_k": 0}, "top_k", "leave it out, or "),
            ({"ignore_eos": True}, "ignore_eos", "leave it out, or "),
            ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs", ""),
            (
                {logprobs: 1} | ({} if "prompt" in own else {"logprobs": True}),
                logprobs,
                "use `prompt_logprobs` on the text, or " if "prompt" in own else "",
            ),
            ({"stream": True}, None, "use stream=false, or "),
        ):
            error = ask(app(llm), "POST", path, {**own, **options, "max_tokens": 3}).error
            assert error["param"] == name
            assert error["message"].endswith(f"; {remedies}the operator can load the model here")


def test_every_option_is_sent_counts_here_or_is_refused():
    """So that an option that is added later is refused until it is listed."""
    from dataclasses import fields

    from selectrie.engine.requests import served_generate

    known = {*served_generate._SENT, *served_generate._HERE, *(name for _, name, _ in REFUSED)}
    options = {field.name for record in (SamplingParams, StopParams, GenerationParams) for field in fields(record)}
    assert options == known - {"draft"}


def test_a_prompt_that_a_server_of_texts_would_read_as_other_tokens(serving):
    """It is refused before a request, and the engine goes on."""
    with serving("echo") as (llm, server):
        with pytest.raises(OptionError, match="this server takes texts alone"):
            llm.generate([0, *ids("ab"), 2 + 0xC3], stopping=StopParams(max_tokens=2))
        assert server.asked == []
        assert len(llm.generate("ab", stopping=StopParams(max_tokens=2))) == 1


ENDED = [
    ([*ids("abc"), 1], "abc", "stop"),
    (ids("abcq!"), "abc", "stop"),
    (ids("abcdef"), "abcdef", "length"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ended", ENDED, ids=["eog", "stop", "length"])
def test_an_end_is_what_openais_api_says_of_it(serving, kind, ended):
    """With stop strings, "stop" is one of them or the end of the text; which one is not told."""
    tokens, text, finish = ended
    with serving(kind) as (llm, server):
        server.plans.append(tokens)
        found = llm.generate("x", stopping=StopParams(max_tokens=6, stop=["q!"]))
        assert (found[0].text, found[0].data, found[0].finish) == (text, text.encode(), finish)
        assert (found[0].stop, found[0].ended_by, found.n_drawn) == (None, None, len(tokens))


def test_without_stop_strings_the_end_of_a_text_is_certain(serving):
    """OpenAI's API says "stop" for both."""
    with serving("echo") as (llm, server):
        server.plans.append([*ids("abc"), 1])
        found = llm.generate("x")
        assert (found[0].finish, found.n_drawn) == ("eog", 4)
        assert found.to_openai()["choices"][0]["logprobs"] is None


def spoil(path, value):
    """A change of an answer: `value` in place of what is at the path."""

    def change(_, answer):
        one = answer
        for step in path[:-1]:
            one = one[step]
        one[path[-1]] = value
        return answer

    return change


@pytest.mark.parametrize(("path", "value"), [
    (["choices"], []),
    (["choices"], [{}]),
    (["choices", 0, "finish_reason"], "content_filter"),
    (["choices", 0, "finish_reason"], None),
    (["choices", 0, "text"], None),
    (["choices", 0, "text"], "\ud800"),
    (["usage"], None),
    (["usage", "completion_tokens"], 4),
    (["usage", "prompt_tokens"], 3),
])  # fmt: skip
def test_an_answer_that_cannot_be_right(serving, path, value):
    """It is one `ServerError`, never a text."""
    with serving("vllm") as (llm, server):
        server.plans.append(ids("abc"))
        server.change = spoil(path, value)
        with pytest.raises(ServerError):
            llm.generate("x", stopping=StopParams(max_tokens=3))


FEW = {"stopping": StopParams(max_tokens=1)}


def test_requests_are_repeated_and_limited(serving):
    """As those of rows: again after 503, at most as many at once as may be, each counted once."""
    with serving("vllm", concurrency=2) as (llm, server):
        server.most_in_flight = 0
        server.planted += [(503, {"retry-after-ms": "1"}, {}), None, None]
        found = llm.generate(["a"] * 9, **FEW)
        assert (len(found), len(server.asked), found.cost.model_calls) == (9, 10, 9)
        assert server.most_in_flight <= 2


def test_an_error_names_its_prompt(serving):
    """The request fails as a whole, and the engine goes on."""
    with serving("vllm", concurrency=1) as (llm, server):
        server.planted += [None, (400, {}, {"error": {"message": "no such thing"}})]
        with pytest.raises(ServerError, match="no such thing") as failed:
            llm.generate(["a", "b", "c"], **FEW)
        assert failed.value.request == 1
        server.planted.clear()
        assert len(llm.generate("a", **FEW)) == 1
        assert llm.select("a", ["b", "c"]).text in "bc"


@pytest.mark.parametrize("how", ["deadline", "cancel", "close"])
def test_what_ends_a_call_closes_its_connection(serving, how):
    """So the server sees that its client has left."""
    with serving("vllm") as (llm, server):
        transport = llm._runtime._completer.transport
        server.planted.append(STALL)
        server.cancelled = 0
        if how == "deadline":
            with pytest.raises(DeadlineError):
                llm.generate("a", **FEW, options=GenerationParams(deadline_s=0.02))
            transport.run(lambda: asyncio.wait_for(server.left.wait(), 10))
        elif how == "cancel":

            async def cancel():
                asking = asyncio.create_task(llm.agenerate("a", **FEW))
                await asyncio.to_thread(transport.run, server.stalled.wait)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                await asyncio.to_thread(transport.run, lambda: asyncio.wait_for(server.left.wait(), 10))

            asyncio.run(cancel())
        else:
            errors = []

            def ask():
                try:
                    llm.generate("a", **FEW)
                except SelectrieError as error:
                    errors.append(type(error))

            thread = threading.Thread(target=ask)
            thread.start()
            transport.run(server.stalled.wait)
            llm.close()
            thread.join(20)
            assert errors == [ClosedError]
        assert server.cancelled == 1


def test_a_recording_has_no_text_of_a_server(serving, tmp_path):
    """No rows are read, so nothing could be replayed; it is refused before anything is sent."""
    with serving("vllm") as (llm, server):
        with selectrie.record(llm, tmp_path / "t"), pytest.raises(IncompatibleOptionsError, match="outside the block"):
            llm.generate("a", **FEW)
        assert server.asked == []
        assert len(llm.generate("a", **FEW)) == 1


def test_streams_are_refused_with_what_to_do_instead(serving):
    """And so is what reads rows."""
    with serving("vllm") as (llm, server):
        with pytest.raises(WholeRowsError, match=r"`stream` .*use `generate`, or"):
            llm.stream("a", **FEW)
        with pytest.raises(WholeRowsError, match=r"`sample` .*use `select`"):
            llm.sample("a", WORDS)
        assert server.asked == []


def test_a_prompt_that_does_not_fit(serving):
    """With as many tokens as may be drawn, as here."""
    with serving("llama-server") as (llm, server):
        with pytest.raises(PromptTooLongError, match="lower `max_tokens`"):
            llm.generate("a" * 250, stopping=StopParams(max_tokens=20))
        assert server.asked == []
