"""The law of fields: the largest value of any field costs little memory.

Each field of each endpoint is sent to a process of `selectrie serve`, as large as the server takes it. How long the next
request waits once the client has left is recorded.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import re
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.engine.scheduler.job import ROW_CACHE_BYTES
from selectrie.server import ServerOptions, app
from selectrie.server.application import BODIES
from selectrie.server.calls import tokenizer
from selectrie.server.calls.call_bodies import MAX_SCORED_BYTES
from selectrie.server.decisions import question_bodies
from selectrie.server.fields import structured
from selectrie.server.fields.messages import MAX_MESSAGES
from selectrie.server.fields.reading import MAX_TOKENIZED_BYTES
from selectrie.server.fields.tools import MAX_TOOLS
from selectrie.server.fields.wire import MAX_ARGUMENTS
from selectrie.server.generation import completions
from selectrie.server.generation.completions import MAX_SCORES
from selectrie.server.transport.body import MAX_CONTAINERS, MAX_VALUES, parse_object
from selectrie.server.transport.http_errors import SYSTEMONE, HttpError
from selectrie.server.transport.request_context import id_of
from tests.support import calling
from tests.support.deciding import fake
from tests.support.serving import ask

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")

OPTIONS = ServerOptions()
ROOM = OPTIONS.max_body_bytes - 2_000
"""Bytes of a value that leave room for the rest of a body."""
MAX_MORE_BYTES = 200_000_000
"""What a request may take beside the logits of one call."""
LOGITS_BYTES = 512 * 4_096 * 4
"""Those of the embedded model, whose vocabulary has fewer tokens than that."""
SETTLED_BYTES = 64_000_000
"""What mostly stays of requests before, once the server has given back what it does not use."""
KEPT_BYTES = ROW_CACHE_BYTES + structured._MAX_KEPT_BYTES
"""What may stay: rows, and compiled grammars."""

PREDICATE = {"type": "predicate", "instructions": "It rains."}
BASES: Mapping[str, dict[str, Any]] = {
    "/v1/decisions": {"input": "x", "questions": [PREDICATE]},
    "/v1/systemone": {"state": "x", "questions": {"a": {"type": "noul", "instructions": "It rains."}}},
    "/v1/classify": {"text": "x", "labels": ["a", "b"]},
    "/classify": {"text": "x", "labels": ["a", "b"]},
    "/v1/extract": {"input": "x", "schema": {"type": "boolean"}},
    **{path: {"query": "x", "documents": ["a"]} for path in ("/v1/rerank", "/v2/rerank", "/rerank")},
    **calling.LEAST,
    "/v1/completions": {"prompt": "x", "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
    "/v1/responses": {"input": "x", "max_output_tokens": 1},
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [5]},
    "/v1/vocabulary/encode": {"texts": ["eA=="]},
}
"""A small request of each endpoint."""


def fields() -> list[tuple[str, str]]:
    """Each field of each endpoint that the models declare, and one unknown field for each."""
    assert set(BODIES) == set(BASES)
    return [
        (path, name)
        for path, forms in sorted(BODIES.items())
        for name in sorted(
            {one.alias or name for form in forms for name, one in form.model_fields.items()} | {"unknown"}
        )
    ]


def _numbers(n: int) -> list[int]:
    return [i % 250 for i in range(n)]


SHAPES: Mapping[str, Callable[[], Any]] = {
    "text": lambda: "ab " * (ROOM // 3),
    "wide text": lambda: "é" * (ROOM // 6),
    "texts": lambda: ["ab" * 12] * MAX_VALUES,
    "numbers": lambda: _numbers(MAX_VALUES),
    "lists": lambda: [[] for _ in range(MAX_CONTAINERS - 100)],
    "keys": lambda: {str(i): 1 for i in range(MAX_VALUES)},
    "objects": lambda: [{"role": "user", "content": "x"} for _ in range(MAX_VALUES // 2)],
}
"""Values of any field, as large as a body can hold."""


def _schema() -> dict[str, Any]:
    return {"type": "object", "properties": {f"k{i}": {"enum": [f"v{i}", i]} for i in range(20_000)}}


def _question(**fields: Any) -> dict[str, Any]:
    return {**PREDICATE, **fields}


def _choices(n: int) -> dict[str, Any]:
    return {"type": "choice", "instructions": "Which?", "choices": [{"value": f"v{i}"} for i in range(n)]}


def _function(name: str) -> dict[str, Any]:
    properties = {f"k{i}": {"enum": [f"v{i}", i]} for i in range(200)}
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": properties}}


def _structured(**kind: Any) -> dict[str, Any]:
    return {"structured_outputs": kind}


GENERATION: Mapping[str, Callable[[], dict[str, Any]]] = {
    "long stops": lambda: {"stop": ["ab" * 512] * OPTIONS.max_stops},
    "short stops": lambda: {"stop": [chr(97 + i % 26) + str(i) for i in range(OPTIONS.max_stops)], "max_tokens": 64},
    "stop tokens": lambda: {"stop_token_ids": _numbers(OPTIONS.max_stops)},
    "biases": lambda: {"logit_bias": {str(i): 1 for i in range(250)}},
    "choice": lambda: _structured(choice=[f"{i:05} " + "ab" * 490 for i in range(OPTIONS.max_options)]),
    "regex": lambda: _structured(regex="|".join(f"a{i}b" for i in range(100_000))),
    "repeats": lambda: _structured(regex="((a{1,30}){1,30}){1,30}"),
    "json": lambda: _structured(json=_schema()),
    "json text": lambda: _structured(json=json.dumps({"enum": ["a" * 30 + str(i) for i in range(25_000)]})),
    "grammar": lambda: _structured(grammar='root ::= "a" | ' + " | ".join(f'"b{i}"' for i in range(90_000))),
    "rules": lambda: _structured(grammar="root ::= r0\n" + "".join(f'r{i} ::= "a" r{i + 1} | "b"\n' for i in range(30_000)) + 'r30000 ::= "c"'),
    "copies": lambda: {"n": OPTIONS.max_n, "max_tokens": 4, "stop": ["ab" * 512] * OPTIONS.max_stops},
}  # fmt: skip
PROMPTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "prompt": lambda: {"prompt": "ab " * (ROOM // 3)},
    "ids": lambda: {"prompt": _numbers(MAX_VALUES - 100)},
    "messages": lambda: {"prompt": None, "messages": [{"role": "user", "content": "x" * 1_900}] * MAX_MESSAGES},
    "cut": lambda: {"prompt": "ab " * (MAX_TOKENIZED_BYTES // 3), "prompting": {"truncate": "left"}},
    "arguments": lambda: {"user": "x", "prompt": None, "prompting": {"template_args": {f"k{i}": "x" * 30_000 for i in range(MAX_ARGUMENTS)}}},
}  # fmt: skip
"""Fields of a prompt of our own calls."""
CHOICES: Mapping[str, Callable[[], dict[str, Any]]] = {
    **PROMPTS,
    "choices": lambda: {"choices": [f"{i:05} " + "ab" * 250 for i in range(OPTIONS.max_options)]},
    "long choices": lambda: {"choices": ["ab " * (MAX_SCORED_BYTES // 4), "ab"]},
    "short choices": lambda: {"choices": [{"value": i, "text": f"v{i}"} for i in range(OPTIONS.max_options)]},
    "delimiter": lambda: {"choices": [f"v{i}" for i in range(OPTIONS.max_options)], "delimiter": "ab " * 170},
    "following": lambda: {"choices": [f"v{i}" for i in range(OPTIONS.max_options)], "following": "ab " * 170},
    "content_free": lambda: {"rule": {"name": "calibrated", "content_free": ["ab " * 2_500] * OPTIONS.max_prompts}},
    "prior": lambda: {"choices": [f"v{i}" for i in range(1_000)], "prior": {f"v{i}": 1 for i in range(1_000)}},
}
"""Fields of a prompt and of choices."""
SOURCES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "regex": lambda: {"regex": "|".join(f"a{i}b" for i in range(100_000))},
    "repeats": lambda: {"regex": "((a{1,30}){1,30}){1,30}"},
    "grammar": lambda: {"regex": None, "grammar": 'root ::= "a" | ' + " | ".join(f'"b{i}"' for i in range(90_000))},
    "json_schema": lambda: {"regex": None, "json_schema": _schema()},
}
"""Sources of grammars of our own calls."""
CLASSIFY: Mapping[str, Callable[[], dict[str, Any]]] = {
    "labels": lambda: {"labels": [f"v{i}" for i in range(1_000)]},
    "descriptions": lambda: {"labels": {f"v{i}": "d" * 7_000 for i in range(1_000)}},
    "several": lambda: {"labels": [f"v{i}" for i in range(OPTIONS.max_questions)], "multi_label": True},
    "text": lambda: {"text": {f"k{i}": ["x"] for i in range(95_000)}},
    "examples": lambda: {"examples": [{"state": "x" * 50, "answer": "a"}, {"state": "y", "answer": "b"}] * 500},
}
"""Fields of labels of a text."""
RERANK = {
    "query": lambda: {"query": "ab " * (ROOM // 3)},
    "documents": lambda: {"documents": ["a"] * OPTIONS.max_prompts},
    "texts": lambda: {"documents": [{"text": "ab " * 100}] * OPTIONS.max_prompts},
}
"""Fields of a query and its documents."""
LARGEST: Mapping[str, Mapping[str, Callable[[], dict[str, Any]]]] = {
    "/v1/select": {
        **CHOICES,
        **{name: lambda case=case: {"choices": None, **case()} for name, case in SOURCES.items()},
        "listed": lambda: {"choices": None, "regex": "[0-9]{4}"},
        "all spellings": lambda: {"choices": [f"v{i}" for i in range(1_000)], "tokenizations": "all"},
    },
    "/v1/rank": CHOICES,
    "/v1/loglikelihood": {
        **PROMPTS,
        "text": lambda: {"text": "ab " * (ROOM // 3)},
        "following": lambda: {"following": "ab " * (ROOM // 3)},
    },
    "/v1/beam": {**PROMPTS, **SOURCES, "width": lambda: {"width": 256, "max_tokens": 30, "regex": "[a-z ]{20}"}},
    "/v1/sample": {**PROMPTS, **SOURCES, "n": lambda: {"n": OPTIONS.max_n, "exact": False, "regex": "[a-z ]{60}"}},
    "/v1/render": {
        "template": lambda: {"template": "<<x>>" * 20_000},
        "slots": lambda: {"template": "".join(f"<<gen 'y{i}' max_tokens=1>>" for i in range(3_000))},
        "values": lambda: {"values": {"x": "ab " * (ROOM // 3)}},
        "options": lambda: {"template": "<<select 'y' options=o>>", "values": {"o": [str(i) for i in range(OPTIONS.max_options_in_all)]}},
        "items": lambda: {"template": "<<#each o>>a<</each>>", "values": {"o": [0] * OPTIONS.max_options_in_all}},
        "texts": lambda: {"template": "<<gen 'y' n=128 temperature=1 max_tokens=500>>"},
    },
    "/v1/decisions": {
        "input": lambda: {"input": [{"role": "user", "content": "x"}] * 95_000},
        "parts": lambda: {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}] * 95_000}]},
        "questions": lambda: {"questions": [_question(instructions="a" * 15_000)] * OPTIONS.max_questions},
        "options": lambda: {"questions": [_choices(OPTIONS.max_options)] * 20},
        "option": lambda: {"questions": [{**_choices(2), "choices": [{"value": "a" * (ROOM // 2)}, {"value": "b"}]}]},
        "examples": lambda: {"questions": [_question(examples=[{"state": "a", "answer": True}] * question_bodies.MAX_EXAMPLES)]},
        "cue": lambda: {"questions": [_question(cue="a" * (ROOM - 100))]},
        "permutations": lambda: {"questions": [_choices(8)], "permutations": "all"},
        "letters": lambda: {"questions": [_choices(200)] * 100, "scoring": "letters", "permutations": 4},
        "calibration": lambda: {"calibration": {"version": 1, "questions": [[0.5] * 1_000] * 1_000}},
    },
    "/v1/systemone": {
        "state": lambda: {"state": {f"k{i}": ["x"] for i in range(95_000)}},
        "instructions": lambda: {
            "instructions": "a" * 20_000,
            "questions": {f"q{i}": {"type": "noul", "instructions": "x"} for i in range(OPTIONS.max_questions)},
        },
        "criteria": lambda: {
            "questions": {"a": {"type": "choice", "criteria": {f"v{i}": "d" * 7_000 for i in range(1_000)}}}
        },
    },
    "/v1/classify": CLASSIFY,
    "/classify": {"labels": CLASSIFY["labels"]},
    "/v1/extract": {
        "schema": lambda: {"schema": _schema()},
        "values": lambda: {"schema": {"type": "integer", "minimum": 1, "maximum": 20_000}, "marginals": False},
        "open": lambda: {"schema": {"enum": ["a" * 30 + str(i) for i in range(25_000)]}},
        "input": lambda: {"input": {f"k{i}": ["x"] for i in range(95_000)}},
        "instructions": lambda: {"instructions": "ab " * (ROOM // 3)},
        "max_tokens": lambda: {"schema": {"type": "string"}, "max_tokens": 1_024},
    },
    **dict.fromkeys(("/v1/rerank", "/v2/rerank", "/rerank"), RERANK),
    "/v1/completions": {
        **GENERATION,
        "prompts": lambda: {"prompt": ["a"] * OPTIONS.max_prompts},
        "long prompts": lambda: {"prompt": ["a" * 7_000] * OPTIONS.max_prompts},
        "token prompts": lambda: {"prompt": [_numbers(150)] * OPTIONS.max_prompts},
        "cut": lambda: {"prompt": "ab " * (MAX_TOKENIZED_BYTES // 3), "truncate_prompt_tokens": 4},
        "named": lambda: {"logprobs": 0, "echo": True, "logprob_token_ids": list(range(5, 5 + 128))},
        "scored": lambda: {"prompt": [_numbers(100)] * (MAX_SCORES // 2_100), "logprobs": 20, "echo": True, "max_tokens": 0},
        "prompt scores": lambda: {"prompt": [_numbers(100)] * (MAX_SCORES // 4_200), "prompt_logprobs": 20},
    },
    "/v1/chat/completions": {
        **GENERATION,
        "messages": lambda: {"messages": [{"role": "user", "content": "x" * 1_900}] * MAX_MESSAGES},
        "parts": lambda: {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 95_000}]},
        "names": lambda: {"messages": [{"role": "user", "content": "x", "name": "n" * 1_900}] * MAX_MESSAGES},
        "arguments": lambda: {"chat_template_kwargs": {f"k{i}": "x" * 30_000 for i in range(MAX_ARGUMENTS)}},
    },
    "/v1/responses": {
        "messages": lambda: {"input": [{"role": "user", "content": "x" * 1_900}] * MAX_MESSAGES},
        "parts": lambda: {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}] * 95_000}]},
        "calls": lambda: {"input": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": json.dumps({"x": "y" * 1_800})}] * MAX_MESSAGES},
        "schema": lambda: {"text": {"format": {"type": "json_schema", "schema": _schema()}}},
        "tools": lambda: {"tools": [_function(f"f{i}") for i in range(MAX_TOOLS)], "tool_choice": "required"},
        "metadata": lambda: {"metadata": {str(i): "x" for i in range(MAX_VALUES - 100)}, "stream": True},
    },
    "/tokenize": {
        "prompt": lambda: {"prompt": "ab " * (MAX_TOKENIZED_BYTES // 3), "return_token_strs": True},
        "bytes": lambda: {"prompt": "\x00" * MAX_TOKENIZED_BYTES, "return_token_strs": True},
        "messages": lambda: {"prompt": None, "messages": [{"role": "user", "content": "x" * 200}] * 4_096},
        "parts": lambda: {"prompt": None, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 95_000}]},
        "names": lambda: {"prompt": None, "messages": [{"role": "user", "content": "x", "name": "n" * 1_900}] * 4_096},
    },
    "/detokenize": {"tokens": lambda: {"tokens": _numbers(MAX_VALUES)}},
    "/v1/vocabulary/encode": {
        "texts": lambda: {"texts": [base64.b64encode(b"ab " * 349).decode()] * tokenizer.MAX_TEXTS},
        "form": lambda: {"texts": [base64.b64encode(b"\x00" * (MAX_TOKENIZED_BYTES - 1)).decode()], "form": "inside"},
    },
}  # fmt: skip
"""Fields of each endpoint at their own limits."""


class Server:
    """A process of `selectrie serve` with the embedded model."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process, self._port, self.idle = process, port, 0

    @contextmanager
    def sent(self, path: str, data: bytes, encoding: str = "identity") -> Iterator[http.client.HTTPConnection]:
        """A connection on which a request was sent; it is closed at the end."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        connection.request("POST", path, data, {"content-type": "application/json", "content-encoding": encoding})
        try:
            yield connection
        finally:
            connection.close()

    def answer(self, path: str, data: bytes, encoding: str = "identity") -> tuple[int, bytes]:
        """Status and body of a response."""
        with self.sent(path, data, encoding) as connection:
            reply = connection.getresponse()
            return reply.status, reply.read()

    def healthy(self) -> None:
        """Ask `/health`, then for one token."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
        assert self.answer("/v1/completions", json.dumps(BASES["/v1/completions"]).encode())[0] == 200

    def resident(self, name: str) -> int:
        """`VmRSS` or `VmHWM` in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        return 1024 * int(re.search(rf"{name}:\s*(\d+) kB", status)[1])

    def settle(self) -> None:
        """Wait until memory of the request before was given back, which the server does after a second."""
        until = monotonic() + 2
        while self.resident("VmRSS") > self.idle + SETTLED_BYTES and monotonic() < until:
            self.healthy()

    def forget_peak(self) -> None:
        """Let `VmHWM` begin again from what is resident now."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5", encoding="ascii")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The process, after a request of each endpoint."""
    command = [sys.executable, "-m", "selectrie", "serve", "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            port = int(re.match(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())[1])
            found = Server(process, port)
            for path, body in BASES.items():
                assert found.answer(path, json.dumps(body).encode())[0] == 200
            found.idle = found.resident("VmRSS")
            yield found
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def holds(server: Server, path: str, change: Mapping[str, Any], *, packed: bool = False) -> SimpleNamespace:
    """Check the law for one request, which is answered once, and left once while it is worked on."""
    body = {name: value for name, value in {**BASES[path], **change}.items() if value is not None}
    data = json.dumps(body, separators=(",", ":")).encode()
    assert len(data) <= OPTIONS.max_body_bytes, len(data)
    sent = (gzip.compress(data, 1), "gzip") if packed else (data, "identity")
    server.settle()
    before = server.resident("VmRSS")
    start = before - server.idle
    server.forget_peak()
    began = monotonic()
    status, answer = server.answer(path, *sent)
    seconds = monotonic() - began
    more = server.resident("VmHWM") - before
    with server.sent(path, *sent):
        pass
    began = monotonic()
    server.healthy()
    again = monotonic() - began
    found = SimpleNamespace(status=status, seconds=seconds, more=more, start=start, again=again, answer=answer[:300])
    assert status in {200, 422 if path == SYSTEMONE else 400, 413}, found
    assert start <= KEPT_BYTES, found
    assert more <= LOGITS_BYTES + MAX_MORE_BYTES, found
    if status != 200:
        assert json.loads(answer)["error"]["message"]
    return found


def test_every_field_is_in_the_law():
    """Whatever a page or a reader knows: each endpoint's lists, objects and texts have a case of their own, or any shape."""
    names = fields()
    assert len(names) == len(set(names)) > 200
    assert {path for path, _ in names} == set(LARGEST)


REFUSED = [
    ("/v1/decisions", {"questions": [_question(examples=[{"state": "a", "answer": True}] * 500)] * 3}, "questions=1500"),
    (
        "/v1/systemone",
        {"instructions": "a" * 30_000, "questions": {str(i): {"type": "noul", "instructions": "x"} for i in range(400)}},
        "instructions=12000000",
    ),
    ("/v1/chat/completions", {"chat_template_kwargs": dict.fromkeys(map(str, range(257)))}, "chat_template_kwargs=257"),
    ("/tokenize", {"prompt": None, "messages": BASES["/v1/chat/completions"]["messages"]}
     | {"chat_template_kwargs": dict.fromkeys(map(str, range(257)))}, "chat_template_kwargs=257"),
    ("/v1/completions", {"prompt": [_numbers(100)] * 125, "prompt_logprobs": 20}, "525000 log-probabilities"),
    ("/v1/completions", {"prompt": [_numbers(100)] * 250, "logprobs": 20, "echo": True}, "525000 log-probabilities"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "change", "said"), REFUSED)
def test_what_is_bounded_in_sum_is_refused_before_work(path, change, said):
    """One error with the field and its limit, and no model call."""
    with fake() as llm:
        application = app(llm)
        reply = ask(application, "POST", path, BASES[path] | change)
        assert reply.status == (422 if path == "/v1/systemone" else 400), reply.data
        assert said in reply.error["message"]
        assert "at most" in reply.error["message"]
        assert b"selectrie_model_calls_total 0.0" in ask(application, "GET", "/metrics").data


def test_an_id_is_cut_before_it_is_read():
    """A client's is as large as a body may be, and one character of three is taken out."""
    text = "ab " * 100_000
    tracemalloc.start()
    try:
        assert id_of(text) == "ab" * 64
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_names_count_only_where_the_prompt_is_echoed(monkeypatch):
    """Without echo their log-probabilities are those of drawn tokens alone: 60 tokens have 120 values, not 600."""
    monkeypatch.setattr(completions, "MAX_SCORES", 200)
    body = {"prompt": [[5] * 20] * 3, "max_tokens": 1, "prompt_logprobs": 0, "logprobs": 0}
    with fake() as llm:
        few = ask(app(llm), "POST", "/v1/completions", {**body, "logprob_token_ids": list(range(4))})
    assert few.status == 200, few.data


@pytest.mark.parametrize("shape", ["keys", "numbers", "texts", "lists"])
def test_values_are_counted_before_they_are_made(shape):
    """One more than a body may have is refused, in any list or object."""
    value = SHAPES[shape]()
    parse_object(json.dumps({"a": value}).encode(), OPTIONS.max_depth)
    more = (
        value | {f"x{i}": 1 for i in range(2)}
        if isinstance(value, dict)
        else value + [[]] * (MAX_VALUES + 2 - len(value))
    )
    with pytest.raises(HttpError, match="expected at most 250000") as caught:
        parse_object(json.dumps({"a": more}).encode(), OPTIONS.max_depth)
    assert (caught.value.status, caught.value.code) == (413, "body_too_large")


CASES = [(path, name) for path, cases in LARGEST.items() for name in cases]


@pytest.mark.long
@pytest.mark.parametrize(("path", "name"), CASES)
def test_the_largest_of_each_field(server, path, name, record_property):
    """Each at the limit of its reader, plain and compressed."""
    for packed in (False, True):
        record_property(f"packed={packed}", vars(holds(server, path, LARGEST[path][name](), packed=packed)))


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("path", BASES)
def test_any_shape_in_any_field(server, path, shape, record_property):
    """As large as a body may be, in each field that OpenAPI's page or a reader knows, and in one that nobody does."""
    value = SHAPES[shape]()
    for one, name in fields():
        if one == path:
            record_property(name, vars(holds(server, path, {name: value})))
