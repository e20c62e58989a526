"""What the server lets in: keys, hosts, sizes, encodings, the queue; and what happens when a client leaves."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import platform
import random
import threading
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie import Predicate
from selectrie.engine.engine import Engine
from selectrie.engine.scheduler.model_thread import ModelThread
from selectrie.engine.scheduler.task_group import note_prepared
from selectrie.engine.scheduler.turns import Turn
from selectrie.errors import (
    CancelledError,
    ClosedError,
    DeadlineError,
    DecodeError,
    MemoryBudgetError,
    MissingExtraError,
    ModelFileError,
    NodeError,
    OptionError,
    QueueFullError,
)
from selectrie.server import ServerOptions, app
from selectrie.server.decisions import decisions
from selectrie.server.transport.body import BodyBudget, Disconnected, Uploads
from selectrie.server.transport.http_errors import draining_error, error_of
from selectrie.server.transport.state import CAUSES, REASONS
from selectrie.version import __version__
from tests.support.deciding import fake
from tests.support.serving import ask, asked

BODY = {"input": "x", "questions": [{"type": "predicate", "instructions": "It rains."}]}
PATH = "/v1/decisions"


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake."""
    with fake() as made:
        yield made


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/decisions", 405, "method"),
        ("POST", "/v1/models", 405, "method"),
        ("POST", "/v1/embeddings", 501, "not_offered"),
        ("POST", "/v1/audio/speech", 501, "not_offered"),
        ("POST", "/v1/images/generations", 501, "not_offered"),
        ("POST", "/v1/decisions/", 404, "not_found"),
        ("GET", "/v1/decisions/../models", 404, "not_found"),
        ("DELETE", "/health", 405, "method"),
    ],
)
def test_paths_that_there_are_not(llm, method, path, status, code):
    """Each has its status, in OpenAI's shape; what is never offered is not tried again."""
    reply = ask(app(llm), method, path, {} if method == "POST" else None)
    assert (reply.status, reply.error["code"]) == (status, code)
    assert (reply.headers.get("x-should-retry") == "false") == (status == 501)


def test_a_long_method_is_cut(llm, caplog):
    """In the error and in the log."""
    reply = ask(app(llm), "SECRETX" * 300, "/version")
    assert reply.status == 405
    assert "SECRETX" * 12 not in reply.error["message"] + caplog.text


@pytest.mark.parametrize(
    ("headers", "data", "status", "code"),
    [
        ({"content-type": "text/plain"}, b"{}", 415, "content_type"),
        ({"content-type": "multipart/form-data; boundary=x"}, b"{}", 415, "content_type"),
        ({"content-encoding": "br"}, b"{}", 415, "content_encoding"),
        ({"content-encoding": "gzip"}, b"{}", 400, "bad_encoding"),
        ({"content-encoding": "gzip"}, gzip.compress(b"{}")[:-4], 400, "bad_encoding"),
        ({"content-encoding": "gzip"}, gzip.compress(b"{}") + b"x", 400, "bad_encoding"),
        ({"content-encoding": "zstd"}, b"{}", 400, "bad_encoding"),
        ({"content-encoding": "gzip"}, gzip.compress(b"[" + b" " * 5_000 + b"]"), 413, "body_too_large"),
        ({"content-length": "5000"}, b"{}", 413, "body_too_large"),
        ({"content-length": "9" * 5_000}, b"{}", 413, "body_too_large"),
        ({}, b" " * 5_000, 413, "body_too_large"),
        ({}, b"", 400, "bad_json"),
        ({}, b"{", 400, "bad_json"),
        ({}, b"[]", 400, "bad_json"),
        ({}, b"\xff", 400, "bad_json"),
        ({}, b'{"input": NaN}', 400, "bad_json"),
        ({}, b'{"input": ' + b"9" * 4_500 + b"}", 413, "body_too_large"),
        ({}, b'{"a":' * 65 + b"1" + b"}" * 65, 400, "bad_json"),
        ({}, b"[" * 2_000, 400, "bad_json"),
    ],
)
def test_bodies_that_cannot_be_read(llm, headers, data, status, code):
    """One error each, before anything else is done; a body is never decoded beyond the limit."""
    reply = ask(app(llm, ServerOptions(max_body_bytes=4_000)), "POST", PATH, data=data, headers=headers)
    assert (reply.status, reply.error["code"]) == (status, code)


def test_brackets_in_texts_do_not_nest(llm):
    """Only those outside of texts count, escaped quotes or not."""
    state = '[{"\\' * 200
    assert ask(app(llm), "POST", PATH, {**BODY, "input": state}).status == 200


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_bodies_may_be_compressed(llm, encoding):
    """With what clients send; the answer is that of the plain body."""
    data = json.dumps(BODY).encode()
    if encoding == "zstd":
        packed = pytest.importorskip("zstandard", reason="needs the extra 'server'").compress(data)
    else:
        packed = gzip.compress(data)
    reply = ask(app(llm), "POST", PATH, data=packed, headers={"content-encoding": encoding})
    assert reply.status == 200
    assert (
        reply.json["answers"][0]["probability"] == ask(app(llm), "POST", PATH, BODY).json["answers"][0]["probability"]
    )


def test_a_bomb_is_not_unpacked(llm):
    """100 MB of blanks in 100 kB: the limit holds while decoding."""
    reply = ask(app(llm), "POST", PATH, data=gzip.compress(b" " * 100_000_000), headers={"content-encoding": "gzip"})
    assert reply.status == 413


def test_a_body_that_does_not_arrive(llm):
    """408 after its time, and no open request is left."""
    application = app(llm, ServerOptions(body_timeout_s=0.01))
    reply = asyncio.run(asked(application, "POST", PATH, BODY, stall=True))
    assert (reply.status, reply.error["code"]) == (408, "body_timeout")
    assert application.state.n_open == 0


KEYS = ServerOptions(key_digests=[sha256(key).digest() for key in (b"first", b"second", "schlüssel".encode())])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer third"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "first"}, 401),
        ({"x-api-key": ""}, 401),
        ({"authorization": "Bearer first"}, 200),
        ({"authorization": "bearer second"}, 200),
        ({"x-api-key": "second"}, 200),
        ({"authorization": "Bearer third", "x-api-key": "second"}, 200),
        ({"authorization": "Basic Zm9v", "x-api-key": "second"}, 200),
        ({"authorization": "Bearer " + "schlüssel".encode().decode("latin-1")}, 200),
        ({"authorization": "Bearer schlüssel"}, 401),
    ],
)
def test_keys(llm, headers, status):
    """Either header; without a key only `/health` and `/ready` are open."""
    application = app(llm, KEYS)
    assert ask(application, "POST", PATH, BODY, headers=headers).status == status
    for path in ("/v1/models", "/metrics", "/docs", "/openapi.json"):
        assert ask(application, "GET", path, headers=headers).status == status
    for path in ("/health", "/ready", "/healthz", "/livez", "/readyz"):
        assert ask(application, "GET", path).status == 200


def test_requests_of_one_key_or_else_of_one_address_are_one_client(llm, monkeypatch):
    """Whichever header has the key; without keys the address counts. Each request has a turn of its own beside."""
    jobs, queue = [], ModelThread.queue

    def noted(self, *handles):
        jobs.extend(handle.job for handle in handles)
        queue(self, *handles)

    monkeypatch.setattr(ModelThread, "queue", noted)
    keyed, open_to_all = app(llm, KEYS), app(llm)
    for headers in ({"x-api-key": "first"}, {"authorization": "Bearer first"}, {"x-api-key": "second"}):
        assert ask(keyed, "POST", PATH, BODY, headers=headers).status == 200
    for _ in range(2):
        assert ask(open_to_all, "POST", PATH, BODY).status == 200
    client_of = {job.request: job.client for job in jobs}
    clients = [one.place for one in client_of.values()]
    assert [clients.index(one) for one in clients] == [0, 0, 2, 3, 3]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("[::1]:80", 200),
        ("[::1]", 200),
        ("evil.example", 403),
        ("localhost.evil.example:80", 403),
        ("", 403),
    ],
)
def test_hosts(llm, host, status):
    """A page that names the server by another host, as DNS rebinding does, is refused."""
    application = app(llm, ServerOptions(hosts=("localhost", "[::1]")))
    assert ask(application, "GET", "/v1/models", headers={"host": host}).status == status
    for path in ("/health", "/ready", "/livez", "/readyz"):  # a probe names a pod, or nothing
        for method in ("GET", "HEAD"):
            assert ask(application, method, path, headers={"host": host}).status == 200


def test_a_refused_host_is_in_the_log(llm, caplog):
    """And in the error, with the flag that allows it; other lines have no host."""
    application = app(llm, ServerOptions(hosts=("localhost",)))
    with caplog.at_level(logging.INFO, "selectrie.server"):
        reply = ask(application, "GET", "/v1/models", headers={"host": "models.example.org"})
        ask(application, "GET", "/v1/models", headers={"host": "localhost"})
    assert "'models.example.org'" in reply.error["message"]
    assert "--allowed-host" in reply.error["message"]
    assert [json.loads(record.message).get("host") for record in caplog.records] == ["models.example.org", None]


def test_a_page_may_ask_whether_it_may_ask(llm):
    """Without a key, since browsers send none; other pages are refused in OpenAI's shape. Both have an id."""
    options = ServerOptions(origins=("https://a.example",), key_digests=KEYS.key_digests)
    headers = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    reply = ask(app(llm, options), "OPTIONS", PATH, headers={**headers, "origin": "https://a.example"})
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, "https://a.example")
    assert "authorization" in reply.headers["access-control-allow-headers"]
    assert reply.headers["x-request-id"] == reply.headers["x-typesafe-request-id"]
    reply = ask(app(llm, options), "OPTIONS", PATH, headers={**headers, "origin": "https://b.example"})
    assert (reply.status, reply.error["code"]) == (403, "cors")
    assert "access-control-allow-origin" not in reply.headers
    assert len(reply.headers["x-request-id"]) == 32
    # an error can be read by the page, too
    reply = ask(app(llm, options), "POST", PATH, BODY, headers={"origin": "https://a.example"})
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (401, "https://a.example")
    assert "x-request-id" in reply.headers["access-control-expose-headers"].lower()


def test_pages_may_read_answers_only_where_named(llm):
    """CORS is off unless origins are named."""
    headers = {"origin": "https://a.example"}
    assert "access-control-allow-origin" not in ask(app(llm), "GET", "/v1/models", headers=headers).headers
    application = app(llm, ServerOptions(origins=("https://a.example",)))
    reply = ask(application, "GET", "/v1/models", headers=headers)
    assert reply.headers["access-control-allow-origin"] == "https://a.example"
    asking = {**headers, "access-control-request-method": "PUT"}
    assert "method is not allowed" in ask(application, "OPTIONS", "/v1/models", headers=asking).error["message"]
    asking |= {"origin": "https://b.example"}
    assert "--cors-origin" in ask(application, "OPTIONS", "/v1/models", headers=asking).error["message"]
    other = ask(application, "GET", "/v1/models", headers={"origin": "https://b.example"})
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(
    ("given", "back"),
    [("abc-1.2_3", "abc-1.2_3"), ("a b\r\nc", "abc"), ("x" * 300, "x" * 128), ("é☃", None), ("", None)],
)
def test_ids(llm, given, back):
    """A client's id is cut to what a header can hold; else there is a new one. Both headers have it."""
    reply = ask(app(llm), "GET", "/health", headers={"x-request-id": given.encode("utf-8").decode("latin-1")})
    found = reply.headers["x-request-id"]
    assert reply.headers["x-typesafe-request-id"] == found
    assert found == back if back else len(found) == 32


def test_a_warning_fits_a_header(llm):
    """A name of the model is shown there as far as a header can hold it."""
    application = app(llm, ServerOptions(model_names=("modèle\r\nx-evil: 1",)))
    reply = ask(application, "POST", PATH, {**BODY, "model": "other"})
    assert reply.headers["x-selectrie-warning"] == "unknown model; mod?le??x-evil: 1 answers"


def test_seconds_in_the_queue_end_when_work_begins(monkeypatch):
    """The engine's work comes after them; what needs no model has none."""
    ended = []
    with fake() as llm:
        application = app(llm)
        monkeypatch.setattr(
            application.state.metrics, "count_ended", lambda exchange, s: ended.append((exchange.queue_s, s))
        )
        ask(application, "POST", PATH, BODY)
        ask(application, "POST", "/tokenize", {"prompt": "a"})
    (queue_s, seconds), (no_queue, _) = ended
    assert 0 < queue_s < seconds
    assert no_queue is None


def test_an_endpoint_that_fails(llm, caplog, monkeypatch):
    """500 without a word of the cause, which the log has once."""
    for error, code in ((ZeroDivisionError("secret"), "internal"), (DecodeError("bad"), "decode")):
        caplog.clear()
        monkeypatch.setattr(Engine, "adecide", failing(error))
        reply = ask(app(llm), "POST", PATH, BODY)
        assert (reply.status, reply.error["code"], reply.headers["x-should-retry"]) == (500, code, "false")
        assert b"secret" not in reply.data
        assert [one.exc_info[1] for one in caplog.records if one.exc_info] == [error]


def failing(error):
    """A method that raises an error."""

    async def adecide(*args, **named):
        raise error

    return adecide


def test_names_of_models(llm):
    """With one model any name is answered, with a warning; strictly, another one is an error that lists the names."""
    options = {"model_names": ("one", "alias")}
    for name, answers in (("one", "one"), ("alias", "alias"), (None, "one")):
        reply = ask(app(llm, ServerOptions(**options)), "POST", PATH, {**BODY, "model": name})
        assert (reply.json["model"], reply.headers.get("x-selectrie-warning")) == (answers, None)
    reply = ask(app(llm, ServerOptions(**options)), "POST", PATH, {**BODY, "model": "other"})
    assert (reply.status, reply.json["model"]) == (200, "one")
    assert "unknown model" in reply.headers["x-selectrie-warning"]
    reply = ask(app(llm, ServerOptions(**options, strict_model=True)), "POST", PATH, {**BODY, "model": "other"})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (404, "model_not_found", "model")
    assert "'one', 'alias'" in reply.error["message"]
    listed = ask(app(llm, ServerOptions(**options)), "GET", "/v1/models").json
    assert [one["id"] for one in listed["data"]] == [one["name"] for one in listed["models"]] == ["one", "alias"]
    own = app(llm, ServerOptions(model_names=("one", "a/b c")))
    found = ask(own, "GET", "/v1/models/a/b c")
    assert (found.status, found.json["id"], found.json["object"]) == (200, "a/b c", "model")
    for path in ("/v1/models/other", "/v1/models/"):
        missing = ask(own, "GET", path)
        assert (missing.status, missing.error["code"]) == (404, "model_not_found"), path
    assert ask(own, "POST", "/v1/models/one", {}).status == 405


def test_before_the_model_is_loaded():
    """`/health` answers, `/ready` and work get 503 and may come again."""
    application = app(None)
    for path in ("/health", "/healthz", "/livez"):
        assert ask(application, "GET", path).status == 200
    assert ask(application, "GET", "/readyz").status == 503
    for reply in (ask(application, "GET", "/ready"), ask(application, "POST", PATH, BODY)):
        assert (reply.status, reply.error["code"], reply.headers["retry-after"]) == (503, "loading", "1")
    with fake() as llm:
        application.state.models.set_source(llm)
        assert ask(application, "POST", PATH, BODY).status == 200


class Held:
    """An engine whose decisions are prepared, and wait until they are let go."""

    def __init__(self, llm: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = asyncio.Event()
        self.begun = asyncio.Semaphore(0)
        self.n_cancelled = 0
        decide = llm.adecide

        async def adecide(*args, **named):
            note_prepared()
            self.begun.release()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.n_cancelled += 1
                raise
            return await decide(*args, **named)

        monkeypatch.setattr(Engine, "adecide", lambda _self, *args, **named: adecide(*args, **named))


def test_the_queue_counts_open_requests(monkeypatch):
    """One more than may wait gets 429 before its body is read; the others are answered."""

    async def many(llm):
        held = Held(llm, monkeypatch)
        application = app(llm, ServerOptions(max_requests=3))
        waiting = [asyncio.ensure_future(asked(application, "POST", PATH, BODY)) for _ in range(3)]
        for _ in waiting:
            await held.begun.acquire()
        refused = await asked(application, "POST", PATH, data=b"never read", stall=True)
        assert (refused.status, refused.error["code"], refused.headers["retry-after"]) == (429, "queue_full", "1")
        assert refused.error["message"] == (
            "3 requests wait or are worked on, and no more are taken: "
            "send fewer at once, or the operator can start the server with a larger --max-requests"
        )
        assert (await asked(application, "GET", "/health")).status == 200
        held.go.set()
        assert [(await one).status for one in waiting] == [200] * 3
        assert application.state.n_open == 0

    with fake() as llm:
        asyncio.run(many(llm))


def test_slow_bodies_of_one_client_do_not_lock_out_others():
    """When all places are taken, the newest upload of the client that has most gives way to a client with fewer; never to its own."""
    keys = [b"one", b"two", b"three"]

    async def many(llm):
        options = ServerOptions(max_requests=4, key_digests=tuple(sha256(key).digest() for key in keys))
        application = app(llm, options)

        async def slow(key):
            """A request whose body does not end; it has its place, or was refused."""
            request = asyncio.ensure_future(asked(application, "POST", PATH, BODY, {"x-api-key": key}, stall=True))
            await asyncio.sleep(0)
            return request

        ones = [await slow("one") for _ in range(4)]
        refused = await slow("one")
        assert (refused.result().status, refused.result().error["code"]) == (429, "queue_full")
        answered = await asked(application, "POST", PATH, BODY, {"x-api-key": "two"})
        assert answered.status == 200
        given = await ones[3]
        assert (given.status, given.error["code"], given.headers["retry-after"]) == (429, "queue_full", "1")
        assert given.error["message"].startswith("another client needs the place")
        twos = [await slow("two") for _ in range(3)]
        assert [(await one).status for one in (ones[2], twos[2])] == [429, 429]
        assert (await asked(application, "POST", PATH, BODY, {"x-api-key": "three"})).status == 200
        application.state.uploads.refuse(draining_error())
        rest = [(await one).error["code"] for one in (*ones[:2], *twos[:2])]
        assert rest == ["draining", "queue_full", "draining", "draining"]
        assert application.state.n_open == 0

    with fake() as llm:
        asyncio.run(many(llm))


def test_who_has_more_requests_takes_no_place_of_an_upload():
    """A client with many requests that are worked on is refused, whatever others upload."""

    async def counted():
        uploads, busy, light = Uploads(), Turn(), Turn()
        with ExitStack() as stack:
            for client in (busy, busy, busy, light, light):
                stack.enter_context(uploads.count_request(client))
            for _ in range(2):
                stack.enter_context(uploads.permit(light, asyncio.Queue().get))
            assert not uploads.give_way_to(busy)
            assert uploads.give_way_to(Turn())
        assert not uploads._n_open

    asyncio.run(counted())


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_large_bodies_have_a_budget_together(monkeypatch, encoding):
    """Four of the largest are open at once; a fifth may come again, and all is given back.

    A small one is answered, and one in between that fits, whatever its encoding would let it become.
    """

    async def many(llm):
        held = Held(llm, monkeypatch)
        application = app(llm, ServerOptions(max_body_bytes=1 << 20))
        data = json.dumps({**BODY, "unknown": "x" * ((1 << 20) - 1_000)}).encode()
        packed = data if encoding == "identity" else gzip.compress(data)
        large = {"data": packed, "headers": {"content-encoding": encoding}}
        waiting = [asyncio.ensure_future(asked(application, "POST", PATH, **large)) for _ in range(4)]
        for _ in waiting:
            await held.begun.acquire()
        refused = await asked(application, "POST", PATH, **large)
        assert (refused.status, refused.error["code"], refused.headers["retry-after"]) == (503, "bodies_full", "1")
        small = asyncio.ensure_future(asked(application, "POST", PATH, BODY))
        between = json.dumps({**BODY, "unknown": random.Random(0).randbytes(45_000).hex()}).encode()
        packed = {"data": gzip.compress(between), "headers": {"content-encoding": "gzip"}}
        further = [small, asyncio.ensure_future(asked(application, "POST", PATH, **packed))]
        for _ in further:
            await held.begun.acquire()
        held.go.set()
        assert [(await one).status for one in (*waiting, *further)] == [200] * 6
        assert (await asked(application, "POST", PATH, **large)).status == 200
        assert application.state.bodies._left == 4 << 20

    with fake() as llm:
        asyncio.run(many(llm))


def test_a_client_that_leaves_cancels_its_work(monkeypatch):
    """While it waits for the engine, and while its body is read; the counters say so."""

    async def left(llm):
        held = Held(llm, monkeypatch)
        application, leave = app(llm), asyncio.Event()
        waiting = asyncio.ensure_future(asked(application, "POST", PATH, BODY, leave=leave))
        await held.begun.acquire()
        leave.set()
        reply = await waiting
        assert (reply.status, reply.data, held.n_cancelled, application.state.n_open) == (0, b"", 1, 0)
        gone = asyncio.Event()
        gone.set()
        reply = await asked(application, "POST", PATH, BODY, stall=True, leave=gone)
        assert (reply.status, application.state.n_open) == (0, 0)
        text = (await asked(application, "GET", "/metrics")).data.decode()
        assert 'selectrie_cancelled_total{reason="disconnected"} 2.0' in text
        assert "selectrie_open_requests 0.0" in text

    with fake() as llm:
        asyncio.run(left(llm))


def test_leaving_stops_the_model(monkeypatch):
    """The engine's own work ends within one model call, and its nodes are free again."""

    async def left(llm):
        application, leave = app(llm), asyncio.Event()
        began, go = threading.Event(), threading.Event()
        extend = llm._model.extend

        def slow(*args):
            began.set()
            go.wait()
            return extend(*args)

        monkeypatch.setattr(llm._model, "extend", slow)
        options = [{"value": f"a long option {n}" * 9} for n in range(60)]
        body = {"input": "x", "questions": [{"type": "choice", "instructions": "?", "choices": options}]}
        waiting = asyncio.ensure_future(asked(application, "POST", PATH, body, leave=leave))
        await asyncio.to_thread(began.wait)
        calls = llm._model.calls
        leave.set()
        await waiting
        go.set()
        monkeypatch.setattr(llm._model, "extend", extend)
        assert (await llm.adecide("y", {"q": Predicate("It rains.")}))["q"].value in {
            True,
            False,
        }
        assert llm._model.calls <= calls + 4
        assert llm.load.n_active == llm.load.n_waiting == 0

    with fake() as llm:
        asyncio.run(left(llm))


def test_a_deadline_ends_a_request(monkeypatch):
    """504, which clients do not repeat, and its work is cancelled."""

    async def late(llm):
        held = Held(llm, monkeypatch)
        application = app(llm, ServerOptions(deadline_s=0.01))
        reply = await asked(application, "POST", PATH, BODY)
        assert (reply.status, reply.error["code"], reply.headers["x-should-retry"]) == (504, "deadline", "false")
        assert held.n_cancelled == 1

    with fake() as llm:
        asyncio.run(late(llm))


def test_a_server_that_drains_takes_no_new_work(llm):
    """503 for work and `/ready`; `/health` and what is asked about the server are answered."""
    application = app(llm)
    application.state.is_draining = True
    for reply in (ask(application, "POST", PATH, BODY), ask(application, "GET", "/ready")):
        assert (reply.status, reply.error["code"]) == (503, "draining")
    assert ask(application, "GET", "/health").status == 200


@pytest.mark.parametrize(
    ("error", "status", "code", "retry"),
    [
        (OptionError("a", 1, "b"), 400, "option", None),
        (DeadlineError(0.1), 504, "deadline", "false"),
        (QueueFullError(2, n_tasks=1), 429, "queue_full", None),
        (DecodeError("x"), 500, "decode", "false"),
        (MemoryBudgetError("m", required=2, available=1, budget=1, held={"n": 1}), 503, "memory_budget", None),
        (MemoryBudgetError("m", required=2, available=1, budget=1, held={}), 500, "memory_budget", "false"),
        (ModelFileError("/home/secret/m.gguf", "secret"), 500, "model_file", "false"),
        (MissingExtraError("secret", "x"), 500, "missing_extra", "false"),
        (CancelledError(), 503, "cancelled", None),
        (ClosedError("the engine"), 503, "closed", None),
        (NodeError(3, "a"), 500, "node", "false"),
        (ZeroDivisionError("secret"), 500, "internal", "false"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else None,
)
def test_errors_of_the_engine(error, status, code, retry):
    """Each has its status; what a stranger's exception says stays in the log."""
    found = error_of(error)
    assert (found.status, found.code, found.headers.get("x-should-retry")) == (status, code, retry)
    assert ("retry-after" in found.headers) == (status in (429, 503))
    assert "secret" not in found.message


def test_one_line_of_json_for_each_request(llm, caplog):
    """Ids, tokens, rows and seconds; the text of a prompt only where that is asked for."""
    with caplog.at_level(logging.INFO, "selectrie.server"):
        ask(app(llm), "POST", PATH, {**BODY, "input": "a secret"}, headers={"x-request-id": "mine"})
        ask(app(llm, ServerOptions(log_prompts=True)), "POST", PATH, {**BODY, "input": "a secret"})
        ask(app(llm), "GET", "/health")
        ask(app(llm, KEYS), "POST", PATH, {}, headers={"x-api-key": "second"})
        ask(app(llm, KEYS), "GET", "/nothing", headers={"x-api-key": "wrong"})
    first, second, keyed, refused = [json.loads(record.message) for record in caplog.records]
    assert (first["request_id"], first["endpoint"], first["status"]) == ("mine", PATH, 200)
    assert first["rows"] > 0
    assert first["tokens"] > first["seconds"] > 0
    assert "secret" not in json.dumps(first)
    assert second["body"]["input"] == "a secret"
    assert (first["client"], first["key"], first["error"], first["lost"]) == ("127.0.0.1", "", "", "")
    assert (keyed["key"], keyed["error"]) == (sha256(b"second").hexdigest()[:8], "option")
    assert (refused["key"], refused["status"], refused["error"]) == ("", 401, "api_key")


def counts(text: str) -> dict[str, float]:
    """The values of all metrics, by name and labels."""
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_what_is_accepted_ends_or_is_open(monkeypatch):
    """Answered, given up by the client, late, ended with the server, or open: each accepted request is one of them."""

    async def many(llm):
        held, leave = Held(llm, monkeypatch), asyncio.Event()
        application = app(llm, ServerOptions(max_requests=5, deadline_s=60.0))
        left, killed, answered, still = [
            asyncio.ensure_future(asked(application, "POST", PATH, BODY, leave=leave if n == 0 else None))
            for n in range(4)
        ]
        for _ in range(4):
            await held.begun.acquire()
        late = asked(app_of(application, deadline_s=0.01), "POST", PATH, BODY)
        assert (await late).status == 504
        leave.set()
        await left
        killed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await killed
        assert (await asked(application, "POST", PATH, data=b"{")).status == 400
        counted = counts((await asked(application, "GET", "/metrics")).data.decode())
        assert [counted[f'selectrie_cancelled_total{{reason="{one}"}}'] for one in REASONS] == [1, 1, 1]
        assert (counted["selectrie_accepted_total"], counted["selectrie_answered_total"]) == (6, 1)
        assert counted["selectrie_open_requests"] == 2
        waiting = [counted[f'selectrie_waiting_requests{{cause="{one}"}}'] for one in CAUSES]
        assert waiting == [0, 0, 2]
        held.go.set()
        assert [(await one).status for one in (answered, still)] == [200, 200]
        counted = counts((await asked(application, "GET", "/metrics")).data.decode())
        assert (counted["selectrie_answered_total"], counted["selectrie_open_requests"]) == (3, 0)

    def app_of(application, **changes):
        """The same application with other options."""
        other = app(None, replace(application.state.options, **changes))
        other.state.models, other.state.metrics = application.state.models, application.state.metrics
        return other

    with fake() as llm:
        asyncio.run(many(llm))


@pytest.mark.parametrize(
    ("path", "body", "n_drawn"),
    [
        ("/v1/extract", {"input": "x", "schema": {"type": "boolean"}}, 0),
        ("/v1/render", {"template": "<<gen 'x' max_tokens=3>> <<select 'y' options=['b', 'c']>>"}, 3),
        ("/v1/select", {"prompt": "a", "choices": ["b", "cd"]}, 0),
        ("/v1/completions", {"prompt": "a", "max_tokens": 3, "ignore_eos": True}, 3),
    ],
)  # fmt: skip
def test_tokens_are_counted_where_they_are_read_and_drawn(path, body, n_drawn):
    """In the metrics, and in the log their sum; an answer that has `usage` says the same."""
    with fake() as llm:
        application, ended = app(llm), []
        application.state.metrics.count_ended, count = (
            lambda exchange, s: (ended.append(exchange.n_prompt + exchange.n_drawn), count(exchange, s)),
            application.state.metrics.count_ended,
        )
        reply = ask(application, "POST", path, body)
        counted = counts(ask(application, "GET", "/metrics").data.decode())
    read, drawn = (counted[f'selectrie_tokens_total{{kind="{kind}"}}'] for kind in ("prompt", "drawn"))
    assert (read > 0, drawn, ended[0]) == (True, n_drawn, read + drawn)
    assert reply.json.get("usage", {}).get("total_tokens", read + drawn) == read + drawn


def test_metrics_add_up():
    """Requests by endpoint and status, rows, calls and seconds inside the model."""
    with fake() as llm:
        application = app(llm)
        found = [ask(application, "POST", PATH, BODY).json for _ in range(3)]
        ask(application, "POST", PATH, {})
        ask(application, "GET", "/nowhere")
        text = ask(application, "GET", "/metrics").data.decode()
    assert f'selectrie_requests_total{{endpoint="{PATH}",status="200"}} 3.0' in text
    assert f'selectrie_requests_total{{endpoint="{PATH}",status="400"}} 1.0' in text
    assert 'selectrie_requests_total{endpoint="other",status="404"} 1.0' in text
    shown = [one["answers"][0]["diagnostics"] for one in found]
    counted = counts(text)
    by_kind = {name: counted[f'selectrie_rows_total{{kind="{name}"}}'] for name in ("new", "repeated", "padding")}
    assert by_kind["new"] + by_kind["repeated"] == sum(one["rows"] for one in shown)
    assert counted["selectrie_rows_one_by_one_total"] == sum(one["rows_one_by_one"] for one in shown)
    assert counted["selectrie_model_calls_total"] > 0
    assert counted["selectrie_queue_seconds_count"] == 3
    assert counted[f'selectrie_request_seconds_count{{endpoint="{PATH}"}}'] == 4
    assert counted["selectrie_accepted_total"] == counted["selectrie_answered_total"] == 4
    assert counted['selectrie_tokens_total{kind="prompt"}'] == sum(one["usage"]["input_tokens"] for one in found)
    assert counted["selectrie_cached_tokens_total"] == sum(one["usage"]["input_tokens"] for one in found[1:])
    codes = {name: value for name, value in counted.items() if name.startswith("selectrie_errors_total")}
    assert codes == {'selectrie_errors_total{code="option"}': 1, 'selectrie_errors_total{code="not_found"}': 1}
    assert f'selectrie_build_info{{python="{platform.python_version()}",version="{__version__}"}} 1.0' in text
    assert 'selectrie_model_info{backend="selectrie.testing",build="1",model="hash-1",precision="exact"' in text
    assert counted['selectrie_max_nodes{model="hash-1"}'] == llm.limits.nodes
    assert counted['selectrie_held_nodes{model="hash-1"}'] == 0
    assert 0 < counted['selectrie_cached_nodes{model="hash-1"}'] < llm.limits.nodes
    assert counted['selectrie_tasks{model="hash-1",state="waiting"}'] == 0


@pytest.mark.parametrize(
    "options",
    [
        {"max_requests": 0},
        {"max_rows": "x"},
        {"deadline_s": 0},
        {"confidence": "x"},
        {"strict_model": 1},
        {"key_digests": [b"short"]},
        {"max_depth": 129},
        *({"hosts": [one]} for one in ("http://a", "a:80", "a/b", "A.example", "")),
        *({"origins": [one]} for one in ("a.example", "http://a/path", "https://a/", "https://A.example", "")),
    ],
    ids=str,
)
def test_options_are_checked(options):
    """An option outside its range is an error when it is given."""
    with pytest.raises(OptionError):
        ServerOptions(**options)


def test_the_source_is_checked():
    """An engine or a pool."""
    with pytest.raises(OptionError, match="an Engine or a ModelPool"):
        app("model.gguf")


def test_a_form_with_files_is_told_that_they_are_not_read(llm):
    """The content type alone would not say it to somebody who sends an image."""
    reply = ask(app(llm), "POST", PATH, data=b"--x--", headers={"content-type": "multipart/form-data; boundary=x"})
    assert reply.status == 415
    assert reply.error["message"].endswith("expected application/json; images and files are not read")


def test_the_version(llm):
    """It is that of vLLM's path, too."""
    assert ask(app(llm), "GET", "/version").json == {"version": __version__}


def test_a_body_that_is_unpacked_after_its_request_ended_holds_nothing():
    """Its thread goes on until the next part, and what it takes then would never be given back."""
    budget = BodyBudget(1 << 20)

    async def ended():
        with budget.share() as share:
            share.grow(1 << 20)
        with pytest.raises(Disconnected):
            share.grow(1 << 20)

    asyncio.run(ended())
    assert budget._left == 4 << 20


@pytest.mark.parametrize(
    ("route", "reader", "path"),
    [
        ("chat", "read_chat", "/v1/chat/completions"),
        ("completions", "read_completion", "/v1/completions"),
        ("decisions", "read_decisions", "/v1/decisions"),
    ],
)
def test_a_client_that_leaves_while_its_request_is_read_keeps_its_place(llm, monkeypatch, route, reader, path):
    """A large request is read in a thread, which cannot be stopped; its place and its bytes are free when it ends."""
    begun, go, threads = threading.Event(), threading.Event(), []

    def read(*_):
        threads.append(threading.current_thread())
        begun.set()
        assert go.wait(60)
        raise OptionError("a", 1, "what nobody reads")

    if route == "decisions":
        monkeypatch.setattr(decisions, "_OPENAI", replace(decisions._OPENAI, read=read))
    else:
        monkeypatch.setattr(f"selectrie.server.generation.{route}.{reader}", read)

    async def left():
        application, leave = app(llm), asyncio.Event()
        whole = application.state.bodies._left
        work = asyncio.ensure_future(asked(application, "POST", path, {"unknown": "x" * 100_000}, leave=leave))
        await asyncio.to_thread(begun.wait, 60)
        leave.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert (application.state.n_open, application.state.bodies._left < whole) == (1, True)
        go.set()
        await work
        assert (application.state.n_open, application.state.bodies._left) == (0, whole)
        assert threads != [threading.main_thread()]

    try:
        asyncio.run(left())
    finally:
        go.set()


def test_a_body_is_given_up_at_the_end(llm, monkeypatch):
    """An exchange may live on until Python's collector finds it; its body does not."""
    application, ended = app(llm), []
    monkeypatch.setattr(application.state.metrics, "count_ended", lambda exchange, _: ended.append(exchange))
    for body in (BODY, {"input": 1}):
        ask(application, "POST", PATH, body)
    assert [one.body for one in ended] == [{}, {}]
