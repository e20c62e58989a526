"""Requests on their way: repetitions, limits, keys, cancelling, and whatever a server may send instead of an answer."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import socket
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("httpx2", reason="needs the extra 'remote'")

import httpx2

from selectrie.backends.remote.transport import Server, Transport, base_url
from selectrie.core.path_model import Cancellation, RowQuery
from selectrie.errors import CancelledError, ClosedError, OptionError, ProtocolError, SelectrieError, ServerError
from tests.support.fake_servers import STALL, EchoServer, LlamaServer, SglangServer, VllmServer
from tests.support.n_examples import n_examples

QUERY = RowQuery(np.array([0, 5, 6], dtype=np.int32), np.array([7, 8], dtype=np.int32))
KEY = "sk-very-secret"


def rows(model, *queries: RowQuery, cancellation: Cancellation | None = None):
    """The rows of queries, of one where none is given."""
    return model.rows(list(queries) or [QUERY], cancellation or Cancellation())


@contextmanager
def raw_server(*answers: bytes):
    """A server that sends these bytes, one for each connection, and closes it; yields its address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            connection, _ = listening.accept()
            with connection:
                data = b""
                while b"\r\n\r\n" not in data:
                    data += connection.recv(65_536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()


def got(url: str, **options):
    """The answer of a GET at an address."""
    transport = Transport(Server(url, **{"timeout_s": 20.0, **options}))
    try:
        return transport.run(lambda: transport.get("/x"))
    finally:
        transport.close()


def sent(body: bytes, headers: str = "", status: str = "200 OK") -> bytes:
    """A response with its length."""
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}connection: close\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://host:8000", "http://host:8000"),
        ("https://host/api/v1/", "https://host/api"),
        ("HTTP://h", "HTTP://h"),
        ("http://[::1]:80/v1", "http://[::1]:80"),
    ],
)
def test_addresses(url, base):
    """Without a slash or /v1 at the end."""
    assert base_url(url) == base


@pytest.mark.parametrize(
    "url", ["", "host:8000", "ftp://host", "http://", "http://h:x", "http://h?a=1", "http://h/#x", "http://me:pw@h"]
)
def test_what_is_no_address(url):
    """One error; a password is not repeated in it."""
    with pytest.raises(OptionError) as refused:
        base_url(url)
    assert "pw" not in str(refused.value)


@pytest.mark.short("503", "429")
@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_a_request_is_repeated_as_the_server_asks(opened, status):
    """After what passes, by the time that it names in seconds or milliseconds, or by a date."""
    server = VllmServer()
    model = opened(server)
    error = {"error": {"message": "busy"}}
    past = "Mon, 01 Jan 2024 00:00:00 GMT"
    headers = [{"retry-after": "0"}, {"retry-after-ms": "1"}, {"retry-after": past}, {"retry-after": "soon"}]
    server.planted.extend((status, one, error) for one in headers)
    expected = rows(opened(VllmServer()))[0]
    (row,) = rows(model)
    assert np.array_equal(row.logp, expected.logp)
    assert not server.planted


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((503, {"retry-after": "3600"}, {}), "asks to wait 3600 s, more than is left of timeout_s=20"),
        ((429, {"x-should-retry": "false"}, {"error": {"message": "never"}}), "it answered 429: never"),
        ((400, {}, {"error": {"message": "bad"}}), "it answered 400: bad"),
        ((500, {}, b"<html>\n oops"), "it answered 500: <html> oops"),
        ((500, {}, {"detail": ["a"]}), "it answered 500: ['a']"),
        ((302, {"location": "http://elsewhere"}, b""), "it answered 302"),
        ((200, {}, b"{"), "not the JSON that was expected"),
        ((200, {}, b""), "not the JSON that was expected"),
        ((200, {}, b"[" * 100_000), "nested too deeply"),
        ((200, {}, b'{"choices": 1' + b"0" * 5_000 + b"}"), "not the JSON"),
        ((200, {}, b'{"a": NaN}'), "NaN is not a finite number"),
        ((200, {}, b'{"a": 1, "a": 2}'), "the key 'a' occurs twice"),
        ((200, {}, b" " * (5 << 20)), "larger than 4194304 bytes"),
        ((200, {"content-encoding": "br"}, b"{}"), "encoded as 'br'"),
        ((200, {"content-encoding": "gzip"}, b"{}"), "not the gzip"),
        ((200, {"content-encoding": "gzip"}, gzip.compress(b"{}")[:-9]), "cut off"),
        ((200, {"content-encoding": "gzip"}, gzip.compress(b" " * (64 << 20))), "larger than 4194304 bytes"),
        ((200, {}, {"choices": []}), "choices has 0 items: expected 1"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_is_no_answer(opened, answer, said):
    """One error that names the address and what came, without a second request."""
    server = VllmServer()
    model = opened(server)
    before = len(server.asked)
    server.planted.append(answer)
    with pytest.raises(ServerError, match="http://fake/v1/completions") as refused:
        rows(model)
    assert said in str(refused.value)
    assert len(server.asked) == before + 1
    assert refused.value.status == (None if answer[0] == 200 else answer[0])
    assert rows(model)  # it goes on working


def test_gzip_is_read(opened):
    """The same row."""
    server = VllmServer()
    model = opened(server)
    (expected,) = rows(model)
    plain = json.dumps(server.completions(server.asked[-1][1])).encode()
    server.planted.append((200, {"content-encoding": "gzip"}, gzip.compress(plain)))
    assert np.array_equal(rows(model)[0].logp, expected.logp)


def test_a_stall_ends_in_time(opened):
    """By the time that a request has, with its name."""
    server = VllmServer()
    model = opened(server, timeout_s=0.5)
    server.planted.append(STALL)
    with pytest.raises(ServerError, match=r"did not answer in time \(timeout_s=0.5\)"):
        rows(model)
    assert server.cancelled == 1


def test_cancelling_aborts_the_request(opened):
    """The server sees that the client has left; the connection goes on working."""
    server = VllmServer()
    model, cancellation = opened(server), Cancellation()
    server.planted.append(STALL)
    errors = []

    def ask() -> None:
        try:
            rows(model, cancellation=cancellation)
        except SelectrieError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.stalled.wait(), model.transport._loop).result(20)
    cancellation.cancel()
    thread.join(20)
    assert isinstance(errors[0], CancelledError)
    asyncio.run_coroutine_threadsafe(server.left.wait(), model.transport._loop).result(20)
    assert rows(model)


def test_closing_aborts_what_is_under_way(opened):
    """Calls that wait, and later ones, say that it is closed."""
    server = VllmServer()
    model = opened(server)
    server.planted.append(STALL)
    errors = []

    def ask() -> None:
        try:
            rows(model)
        except SelectrieError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.stalled.wait(), model.transport._loop).result(20)
    model.close()
    thread.join(20)
    assert isinstance(errors[0], ClosedError)
    with pytest.raises(ClosedError):
        rows(model)
    model.close()
    assert not model.transport._thread.is_alive()


def test_no_more_requests_are_under_way_than_may_be(opened):
    """Fifty rows at once, three at a time."""
    server = VllmServer()
    model = opened(server, concurrency=3)
    server.most_in_flight = 0
    rows(model, *(RowQuery(np.array([0, n], dtype=np.int32), QUERY.named) for n in range(50)))
    assert server.most_in_flight == 3


def test_the_first_failure_ends_the_others(opened):
    """Of many rows one cannot be had: the rest is not waited for."""
    server = VllmServer()
    model = opened(server, concurrency=4)
    before = len(server.asked)
    server.planted.extend([STALL, (400, {}, {}), STALL, STALL])
    with pytest.raises(ServerError):
        rows(model, *(RowQuery(np.array([0, n], dtype=np.int32), QUERY.named) for n in range(40)))
    assert len(server.asked) <= before + 8
    server.planted.clear()
    assert rows(model)


def test_a_key_is_in_headers_alone(opened, caplog):
    """It is sent with each request, and stands in no error, log, name or repr, although the server repeats it."""
    caplog.set_level(logging.DEBUG)
    server = VllmServer()
    server.key = KEY
    model = opened(server, api_key=KEY)
    assert {one["authorization"] for one in server.headers} == {f"Bearer {KEY}"}
    server.planted.append((401, {}, {"error": {"message": f"wrong key: Bearer {KEY}"}}))
    with pytest.raises(ServerError, match="401") as refused:
        rows(model)
    texts = [str(refused.value), repr(refused.value), repr(model.transport.server), repr(model), repr(model.identity)]
    texts += [record.getMessage() for record in caplog.records]
    assert KEY not in "".join(texts)
    with pytest.raises(ServerError, match="401") as refused:
        opened(server, api_key="another")
    assert "another" not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (sent(b'{"a": 1}')[:-3], "the connection failed"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{}", "the connection failed"),
        (b"nonsense\r\n\r\n", "the connection failed"),
        (b"", "the connection failed"),
    ],
)
def test_connections_that_break(answer, said):
    """They are tried three times; a body that is cut off is never an answer."""
    with raw_server(answer, answer, answer) as url, pytest.raises(ServerError, match="3 times") as refused:
        got(url)
    assert said in str(refused.value)
    with raw_server(answer, sent(b'{"a": 1}')) as url:
        assert got(url)["a"].whole() == 1


def test_where_nothing_listens():
    """The error comes at once, not when the time is over."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with pytest.raises(ServerError, match="check the address"):
        got(url, timeout_s=600.0)


def test_its_own_thread_does_not_wait_for_itself(opened):
    """Which would last for ever."""
    transport = opened(VllmServer()).transport

    async def ask() -> None:
        transport.run(lambda: transport.get("/v1/models"))

    with pytest.raises(ProtocolError):
        transport.run(ask)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told(opened, monkeypatch):
    """It has no thread that could send anything."""
    model = opened(VllmServer())
    monkeypatch.setattr("selectrie.backends.remote.transport.os.getpid", lambda: -1)
    with pytest.raises(SelectrieError, match="parent process"):
        rows(model)
    monkeypatch.undo()


_ODD = st.sampled_from([None, True, "x", [], {}, [None], 10**6, 1.5, 10**400, 1e308])


def places(value, place=()):
    """Every place of a value in an answer."""
    yield place
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        yield from places(child, (*place, name))


def spoiled(answer, place, value, *, is_removed: bool):
    """An answer with another value in one place, or without it."""
    if not place:
        return value
    answer = json.loads(json.dumps(answer))
    parent = answer
    for name in place[:-1]:
        parent = parent[name]
    if is_removed:
        del parent[place[-1]]
    else:
        parent[place[-1]] = value
    return answer


@pytest.mark.parametrize("kind", [VllmServer, SglangServer, LlamaServer, EchoServer])
def test_a_spoiled_answer_is_an_error_or_changes_nothing(kind):
    """Whatever is taken out of an answer, or put in the place of a value, the row is the right one or there is none."""
    from selectrie.backends.remote.opening import open_server
    from tests.support.deciding import BYTES

    server = kind()
    model = open_server(
        Server("http://fake", timeout_s=20.0),
        read_tokenizer=lambda _: BYTES,
        http_transport=httpx2.ASGITransport(server),
    )
    query = RowQuery(np.array([0, 70, 71], dtype=np.int32), np.array([72, 73], dtype=np.int32))
    (right,) = rows(model, query)

    @settings(max_examples=n_examples(60))
    @given(where=st.integers(0, 10_000), value=_ODD, is_removed=st.booleans())
    def check(where, value, is_removed):
        def change(_path, answer):
            every = list(places(answer))
            return spoiled(answer, every[where % len(every)], value, is_removed=is_removed)

        server.change = change
        try:
            (row,) = rows(model, query)
        except ServerError:
            return
        known = dict(zip(right.ids.tolist(), right.logp.tolist(), strict=True))
        assert all(
            known.get(token, logp) == logp for token, logp in zip(row.ids.tolist(), row.logp.tolist(), strict=True)
        )

    try:
        check()
    finally:
        model.close()
