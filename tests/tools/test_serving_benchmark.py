"""The benchmark of the server: its client, and what its checks notice; how fast the server is, it says itself."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from math import isfinite
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra 'server'")

import selectrie
from selectrie.server import ServerOptions

ROOT = Path(__file__).resolve().parents[2]
client, servers, load, requests, texts = (
    importlib.import_module(f"benchmarks.{name}")
    for name in ("http_client", "servers", "serving_load", "serving_requests", "serving_texts")
)

WORK = "/v1/decisions"


def test_serving_measures_all_that_it_promises():
    """A quick look: every figure that has a target is there, nothing is wrong, lost or counted twice, and no row too many."""
    script = ROOT / "benchmarks" / "serving.py"
    command = [sys.executable, str(script), "--quick", "--threads", "1", "--json", "--under-load"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(shown.splitlines()[-1])
    figures, targets = found["figures"], importlib.import_module("benchmarks.serving").TARGETS
    assert found["targets"] == []
    for own in targets.values():
        known = own.without("bytes") if "load_resident" in figures else own
        known = known.without("llama_cpp_server") if "llama_cpp_server" in figures else known
        assert {verdict["name"] for verdict in known.verdicts(figures)} == {*known.at_most, *known.at_least}
    assert all(isfinite(value) for value in figures.values() if isinstance(value, float))
    assert figures["state_rows"] == figures["state_rows_needed"] < figures["state_rows_by_questions"]
    assert figures["load_compared"] > 0
    assert figures["load_largest_share"] <= 1
    wrong = ("load_wrong", "load_unbalanced", "load_lost", "load_exit_code")
    assert [figures[name] for name in wrong] == [0, 0, 0, 0]


async def answered(data: bytes, ask, *, pace=None, timeout_s=10.0):
    """What `ask` returns of a connection to a server that sends these bytes after a request, and closes."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        connection = client.Connection(server.sockets[0].getsockname()[:2], pace=pace, timeout_s=timeout_s)
        try:
            return await ask(connection)
        finally:
            connection.close()


def get(connection: client.Connection):
    """A response to a plain request."""
    return connection.request("GET", "/")


WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"


@pytest.mark.parametrize("data", [WHOLE, CHUNKED])
@pytest.mark.parametrize("pace", [None, client.Pace(2, 0)])
def test_a_response_is_read_with_and_without_chunks(data, pace):
    """Its body is the same, read at once or slowly."""
    reply = asyncio.run(answered(data, get, pace=pace))
    assert (reply.status, reply.body) == (200, b"hello")


@pytest.mark.parametrize("data", [WHOLE, CHUNKED])
def test_a_response_that_ends_early_is_lost(data):
    """Wherever it is cut, it is not taken for whole."""
    for n in range(len(data)):
        with pytest.raises(client.Lost):
            asyncio.run(answered(data[:n], get))


def test_events_come_one_by_one():
    """Whatever chunks cut them into; comments are left out, and a stream that ends early is lost."""
    text = b"data: {1}\n\n: ping\n\ndata: {2}\n\ndata: [DONE]\n\n"
    chunks = b"".join(b"1\r\n%c\r\n" % one for one in text)
    data = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + chunks

    async def listed(connection):
        return [event async for _, event in connection.events(client.request_of("GET", "/"))]

    assert asyncio.run(answered(data + b"0\r\n\r\n", listed)) == ["{1}", "{2}", "[DONE]"]
    with pytest.raises(client.Lost):
        asyncio.run(answered(data, listed))
    with pytest.raises(client.Lost, match="instead of a stream"):
        asyncio.run(answered(WHOLE, listed))


def test_the_client_stays_on_this_machine():
    """Other addresses are refused before anything is sent."""
    with pytest.raises(ValueError, match="loopback"):
        client.Connection(("192.0.2.1", 80))


@pytest.fixture(scope="module")
def served(embedded):
    """Requests with their checks, and the responses of a server that is asked in turn."""
    with selectrie.load(embedded, n_threads=1) as engine:
        asked = [make(engine, number) for number in (0, 4, 6, 15) for make in (requests.decisions, requests.systemone)]
        asked += [make(engine, number) for number in (2, 3, 7) for make in texts.KINDS]

        async def replies(address):
            connection = client.Connection(address)
            found = [await connection.request("POST", one.path, one.body) for one in asked]
            connection.close()
            return found

        with servers.serving(engine, ServerOptions()) as address:
            yield list(zip(asked, asyncio.run(replies(address)), strict=True))


def test_an_answer_of_the_engine_passes(served):
    """The same engine's values are far within what is allowed."""
    for asked, reply in served:
        verdict = asked.check(reply)
        assert verdict.problem == ""
        assert verdict.share < 1


def numbers(value, path=()):
    """The paths to the values of an answer that the check compares."""
    if isinstance(value, dict):
        for name, one in value.items():
            if name in ("logprob", "probability", "noul", "label_mass"):
                yield (*path, name)
            elif name != "top_tokens":
                yield from numbers(one, (*path, name))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from numbers(one, (*path, index))


def test_a_value_that_is_not_the_engines_is_noticed(served):
    """Each compared value, moved beyond the tolerance, makes a problem."""
    n = 0
    for asked, reply in served:
        if asked.path not in (WORK, "/v1/systemone"):
            continue
        for path in numbers(reply.json()["answers"]):
            found = reply.json()
            place = found["answers"]
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = place[path[-1]] - 2 if path[-1] == "logprob" else place[path[-1]] / 8
            assert asked.check(replace(reply, body=json.dumps(found).encode())).problem, path
            n += 1
    assert n > 50


def test_another_choice_is_noticed(served):
    """Where the margin is beyond what rounding could turn."""
    asked, reply = served[1]  # its two questions are about a choice with a clear answer, and a predicate
    found = reply.json()
    others = [name for name in found["answers"]["wish"]["probabilities"] if name != found["answers"]["wish"]["choice"]]
    verdicts = []
    for name in others:
        found["answers"]["wish"]["choice"] = name
        verdicts.append(asked.check(replace(reply, body=json.dumps(found).encode())).problem)
    margin = found["answers"]["wish"]["diagnostics"]["margin"]
    assert all("instead of" in one for one in verdicts) or margin < 1


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        (r'"logprob":(-?[\d.e-]+),', r'"logprob":-77.0,'),
        (r'"token_logprobs":\[(?:null,)?[^]]+\]', r'"token_logprobs":[-77.0]'),
        (r'"(?:id":|tokens":\["token_id:)(\d+)', None),
        (r'"tokens":\[(\d+),', r'"tokens":[1\1,'),
        (r"\[DONE\]", "[GONE]"),
        (r'"index":0', r'"index":7'),
    ],
)
def test_a_text_that_is_not_the_engines_is_noticed(served, pattern, other):
    """Changed log-probabilities and tokens, a missing choice, and a stream without its end."""
    n = 0
    for asked, reply in served:
        if asked.path in (WORK, "/v1/systemone"):
            continue
        body = reply.body.decode()
        changed = re.sub(pattern, other or (lambda found: found[0] + "9"), body, count=1)
        if changed != body:
            assert load._verdict(asked, replace(reply, body=changed.encode())).problem, (asked.kind, changed)
            n += 1
    assert n


class FakeServer:
    """A server with a log and counts, made by hand."""

    address = ("127.0.0.1", 9)

    def __init__(self, lines, counts=None):
        self.lines, self.counts = lines, counts or {}

    def logged(self):
        return [{"request_id": own, "endpoint": path, "status": status} for own, path, status in self.lines]

    async def metrics(self):
        return {("selectrie_requests_total", key): value for key, value in self.counts.items()}


def loaded(server, **saw):
    """A load of this server, in which clients saw this."""
    made = load.Load(server, [], [], 1)
    made.ledger = load.Ledger(**saw)
    return made


@pytest.mark.parametrize(
    ("lines", "counts", "n_problems"),
    [
        ([("a", WORK, 200), ("b", WORK, 499)], {(WORK, "200"): 1, (WORK, "499"): 1}, 0),
        ([("a", WORK, 200), ("b", WORK, 499)], {(WORK, "200"): 2, (WORK, "499"): 1}, 1),
        ([("a", WORK, 200)], {(WORK, "200"): 1, (WORK, "500"): 1}, 1),
        ([("a", WORK, 400)], {(WORK, "400"): 1}, 1),
        ([], {}, 1),
        ([("a", WORK, 200), ("a", WORK, 200)], {(WORK, "200"): 2}, 1),
        ([("a", WORK, 200), ("c", WORK, 200)], {(WORK, "200"): 2}, 1),
        ([("a", WORK, 200)], {(WORK, "200"): 1, ("/metrics", "200"): 7}, 0),
    ],
)
def test_counts_that_do_not_balance_are_noticed(lines, counts, n_problems):
    """What is counted, what is logged and what clients saw must agree request by request."""
    counted = loaded(FakeServer(lines, counts), answered={"a": (WORK, 200)}, left={"b"})
    assert len(asyncio.run(counted.unbalanced())) == n_problems


def test_an_accepted_request_without_a_response_is_lost():
    """One that was refused, or that the server never read, is not."""
    server = FakeServer([("a", WORK, 200), ("b", WORK, 503), ("d", WORK, 499)])
    counted = loaded(server, lost=dict.fromkeys("abcd", "closed"))
    assert [one[0] for one in counted.accepted_but_lost()] == ["a", "d"]


def test_samples_of_metrics_are_read():
    """With and without labels; comments are none."""
    text = '# HELP a_total x\na_total{endpoint="/v1",status="200"} 3.0\nb 0.5\n'
    assert servers.metrics_of(text) == {("a_total", ("/v1", "200")): 3.0, ("b", ()): 0.5}


def test_wrong_requests_are_different():
    """No name stands twice, and each says which response it gets."""
    listed = requests.malformed()
    assert len({one.name for one in listed}) == len(listed)
    assert all(400 <= one.status < 500 or one.status == 501 for one in listed)


def test_a_check_that_fails_is_a_problem_and_no_crash():
    """An answer of another shape is reported with its body."""
    asked = requests.Asked("x", WORK, b"", lambda reply: reply.json()["answers"])
    assert "KeyError" in load._verdict(asked, client.Reply(200, {}, b"{}")).problem
