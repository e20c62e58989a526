"""Requests that leave sampling options out get those that are stored with the model, unless the operator says no."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie import SamplingParams
from selectrie.server import ServerOptions, app
from tests.support.deciding import fake
from tests.support.serving import ask

STORED = {"temperature": 0.25, "top_k": 5, "top_p": 0.5, "repeat_penalty": 1.5}
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "penalty_last_n": -1}
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
TEXT = {"prompt": "a", "max_tokens": 4}


def noting(call, used):
    """A call that also notes its sampling."""

    def noted(*arguments, sampling, **named):
        used.append(sampling)
        return call(*arguments, sampling=sampling, **named)

    return noted


@pytest.fixture
def served(monkeypatch):
    """An engine with stored options, and the options with which it generates."""
    used = []
    with fake() as llm:
        monkeypatch.setattr(llm, "_stored_sampling", STORED)
        for name in ("agenerate", "stream"):
            monkeypatch.setattr(llm, name, noting(getattr(llm, name), used))
        yield llm, used


@pytest.mark.parametrize("asked", [CHAT, CHAT | {"stream": True}, TEXT, TEXT | {"stream": True}])
@pytest.mark.parametrize(
    ("source", "given", "expected"),
    [
        ("model", {}, STORED),
        ("model", {"temperature": 0.5, "repetition_penalty": 1}, STORED | {"temperature": 0.5, "repeat_penalty": 1}),
        ("model", {"temperature": 1, "top_k": -1, "top_p": 1, "repeat_penalty": 1}, {}),
        ("model", {"temperature": None, "min_p": 0.1}, STORED | {"min_p": 0.1}),
        ("none", {}, {}),
        ("none", {"top_p": 0.5}, {"top_p": 0.5}),
    ],
)
def test_what_a_request_leaves_out_is_the_models(served, asked, source, given, expected):
    """A field that is null is left out; each that is given counts, also where it is neutral."""
    llm, used = served
    path = "/v1/completions" if "prompt" in asked else "/v1/chat/completions"
    reply = ask(app(llm, ServerOptions(generation_config=source)), "POST", path, asked | given)
    assert reply.status == 200, reply.data
    assert used == [SamplingParams(**(NEUTRAL | expected))]


def test_a_response_says_with_what_it_was_drawn(served):
    """`/v1/responses` has the options of sampling in its answer: those of the request, else the model's."""
    llm, used = served
    reply = ask(app(llm), "POST", "/v1/responses", {"input": "Hello", "top_p": 0.75, "max_output_tokens": 16})
    assert reply.status == 200, reply.data
    assert (reply.json["temperature"], reply.json["top_p"]) == (0.25, 0.75) == (used[0].temperature, used[0].top_p)
