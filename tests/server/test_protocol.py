"""Connections, byte by byte: requests that are refused, cut, late or not HTTP at all, and clients that read nothing."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

pytest.importorskip("uvicorn", reason="needs the extra 'server'")

from selectrie.server import ServerOptions, app
from selectrie.server.serve import HttpProtocol
from tests.support.deciding import fake
from tests.support.serving import running

BODY = json.dumps({"input": "x", "questions": [{"type": "predicate", "instructions": "It rains."}]}).encode()
SOON = 0.05
"""A limit that is waited for, in seconds."""


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake."""
    with fake() as made:
        yield made


class Wire:
    """One connection to a server."""

    def __init__(self, made: socket.socket) -> None:
        self._socket, self._data = made, b""

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def limit(self, seconds: float) -> None:
        """Wait for bytes no longer than that; `TimeoutError` says that none came."""
        self._socket.settimeout(seconds)

    def more(self) -> bytes:
        """What comes next; b"" when the server has closed the connection."""
        try:
            return self._socket.recv(1 << 16)
        except ConnectionResetError:
            return b""

    def response(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next response."""
        while b"\r\n\r\n" not in self._data:
            self._read()
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        while len(self._data) < int(headers["content-length"]):
            self._read()
        n = int(headers["content-length"])
        body, self._data = self._data[:n], self._data[n:]
        return int(first.split()[1]), headers, body

    def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        while data := self.more():
            self._data += data
        return self._data

    def _read(self) -> None:
        data = self.more()
        assert data, f"the connection was closed after {self._data!r}"
        self._data += data


@contextmanager
def connected(url: str) -> Iterator[Wire]:
    """A connection to a server."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as made:
        yield Wire(made)


def request(
    path: str = "/v1/decisions", body: bytes = BODY, *, method: str = "POST", length: int = -1, **headers: str
) -> bytes:
    """A request. length: what it says of its body, if not the truth."""
    given = {
        "host": "x",
        "content-type": "application/json",
        "content-length": str(len(body) if length < 0 else length),
    }
    lines = [
        f"{method} {path} HTTP/1.1",
        *(f"{k.replace('_', '-')}: {v}" for k, v in {**given, **headers}.items() if v),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def in_shape(body: bytes) -> str:
    """The code of an error in OpenAI's shape."""
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error["code"]


@pytest.mark.parametrize(
    ("first", "status", "code"),
    [
        (request(body=b"x" * 3_000_000), 413, "body_too_large"),
        (request(content_type="text/plain"), 415, "content_type"),
        (request(content_encoding="br"), 415, "content_encoding"),
        (request("/nothing", b"x" * 100_000), 404, "not_found"),
        (request(method="PUT"), 405, "method"),
        (request(x_api_key=""), 401, "api_key"),
        (request("/v1/embeddings"), 501, "not_offered"),
        (request(body=b"{"), 400, "bad_json"),
    ],
    ids=lambda one: str(one) if isinstance(one, int) else "",
)
def test_a_refused_request_leaves_the_connection_usable(llm, first, status, code):
    """Its body is read and dropped, and the next request on the connection is answered, sent behind it or later."""
    from hashlib import sha256

    keyed = code == "api_key"
    options = ServerOptions(max_body_bytes=1_000_000, key_digests=[sha256(b"k").digest()] if keyed else ())
    with running(app(llm, options)) as url, connected(url) as wire:
        good = request(x_api_key="k")
        wire.send(first + good)
        found, headers, body = wire.response()
        assert (found, in_shape(body)) == (status, code)
        assert headers["x-request-id"] == headers["x-typesafe-request-id"]
        for _ in range(2):
            found, _, body = wire.response()
            assert (found, list(json.loads(body))[:3]) == (200, ["model", "answers", "usage"])
            wire.send(good)


def test_a_client_that_wants_to_close_sees_why_its_body_is_refused(llm):
    """It sends all of its body before it reads, as Python's own client does; it would be reset otherwise."""
    body = b"x" * 12_000_000
    with running(app(llm)) as url:
        request = urllib.request.Request(f"{url}/v1/decisions", body, {"content-type": "application/json"})  # noqa: S310
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)  # noqa: S310 - a URL of our own
        assert refused.value.code == 413
        assert json.load(refused.value)["error"]["code"] == "body_too_large"


def test_a_full_server_answers_before_the_body(llm):
    """429 comes although no byte of the body was sent; when it has come after all, the connection is used again."""
    application = app(llm, ServerOptions(max_requests=1))
    application.state.n_open = 1
    with running(application) as url, connected(url) as wire:
        wire.send(request(body=b"", length=len(BODY)))
        status, headers, body = wire.response()
        assert (status, in_shape(body), headers["retry-after"]) == (429, "queue_full", "1")
        application.state.n_open = 0
        wire.send(BODY + request())
        assert wire.response()[0] == 200


def test_a_client_that_asks_first_sends_no_body_in_vain(llm):
    """`Expect: 100-continue` is answered by the error alone, or by 100 where the body is wanted."""
    with running(app(llm)) as url:
        with connected(url) as wire:
            wire.send(request("/nothing", b"", length=5, expect="100-continue"))
            assert wire.response()[0] == 404
        with connected(url) as wire:
            wire.send(request(body=b"", length=len(BODY), expect="100-continue"))
            assert wire.more().startswith(b"HTTP/1.1 100 ")
            wire.send(BODY)
            assert wire.response()[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"POST /v1/decisions HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/decisions HTTP/1.1\r\nhost: x\r\ncontent-length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /v1/decisions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=lambda one: repr(one[:24]),
)
def test_what_is_not_http(llm, data):
    """400 in OpenAI's shape with an id, and the connection is closed."""
    with running(app(llm)) as url, connected(url) as wire:
        wire.send(data)
        status, headers, body = wire.response()
        assert (status, in_shape(body), headers["connection"]) == (400, "bad_http", "close")
        assert headers["x-request-id"]
        assert wire.more() == b""


@pytest.mark.parametrize(
    "lengths", ["content-length: 4\r\ntransfer-encoding", "transfer-encoding"], ids=["first", "last"]
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_a_request_with_two_lengths_is_refused(llm, method, lengths):
    """Neither header decides where the body ends, and what a proxy may take for a second request is not answered."""
    last = "" if "length" in lengths else "content-length: 4\r\n"
    head = f"{method} /v1/decisions HTTP/1.1\r\nhost: x\r\n{lengths}: chunked\r\n{last}\r\n"
    with running(app(llm)) as url, connected(url) as wire:
        wire.send(head.encode() + b"0\r\n\r\n" + request("/health", b"", method="GET"))
        found = wire.rest()
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.count(b"HTTP/1.1 ") == 1
    assert b"connection: close\r\n" in found.lower()
    _, _, body = found.partition(b"\r\n\r\n")
    assert (body == b"") if method == "HEAD" else (in_shape(body) == "bad_http")


def test_what_is_not_http_behind_a_request_for_a_head(llm):
    """The first response has no body, the second one has: each is framed by its own request."""
    with running(app(llm)) as url, connected(url) as wire:
        wire.send(request("/health", b"", method="HEAD") + b"hello\r\n\r\n")
        found = wire.rest()
    first, second, body = found.split(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200 ")
    assert second.startswith(b"HTTP/1.1 400 ")
    assert in_shape(body) == "bad_http"
    assert json.loads(body)["error"]["message"] == "not a request of HTTP/1.1: illegal request line"


@pytest.mark.parametrize("is_whole", [False, True], ids=["cut", "whole"])
@pytest.mark.parametrize("size", [66_000, 4_000_000])
def test_headers_that_are_too_large(llm, is_whole, size):
    """431 in OpenAI's shape, which also a client sees that still sends."""
    with running(app(llm)) as url, connected(url) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nhost: x\r\nlong: " + b"x" * size + b"\r\n\r\n" * is_whole)
        status, headers, body = wire.response()
        assert (status, in_shape(body), headers["connection"]) == (431, "headers_too_large", "close")
        assert wire.more() == b""


def test_long_headers_and_chunks_are_none_of_these(llm):
    """64 KiB of headers are taken; an endless line between chunks is no header, and so is not HTTP."""
    with running(app(llm)) as url:
        with connected(url) as wire:
            wire.send(b"GET /health HTTP/1.1\r\nhost: x\r\nlong: " + b"x" * 65_000 + b"\r\n\r\n")
            assert wire.response()[0] == 200
        with connected(url) as wire:
            wire.send(request(body=b"", transfer_encoding="chunked", content_length="") + b"5;" + b"x" * 70_000)
            status, _, body = wire.response()
            assert (status, in_shape(body)) == (400, "bad_http")


def test_a_refused_connection_does_not_hold_up_the_end():
    """When the server ends, it waits for responses, and not for what a refused client still sends."""
    closed = []
    refused = SimpleNamespace(_is_refused=True, transport=SimpleNamespace(close=lambda: closed.append(1)))
    HttpProtocol.shutdown(refused)
    assert closed


def test_upgrades_are_ignored(llm):
    """A request that would rather speak WebSocket is answered as it stands."""
    with running(app(llm)) as url, connected(url) as wire:
        wire.send(request("/health", b"", method="GET", connection="upgrade", upgrade="websocket"))
        assert wire.response()[0] == 200


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nhost: "], ids=["nothing", "a part"])
@pytest.mark.parametrize("before", [b"", request("/health", b"", method="GET")], ids=["first", "second"])
def test_headers_that_never_end(llm, before, sent):
    """Whoever has begun a request gets 408, and the connection is closed; after a response it may rest."""
    with running(app(llm), header_s=1.0 if before or sent else SOON) as url, connected(url) as wire:
        wire.send(before)
        if before:
            assert wire.response()[0] == 200
        wire.send(sent)
        if sent:
            status, headers, body = wire.response()
            assert (status, in_shape(body), headers["connection"]) == (408, "header_timeout", "close")
        if sent or not before:
            assert wire.more() == b""
        else:  # an idle connection has the time of keep-alive
            wire.send(request("/health", b"", method="GET"))
            assert wire.response()[0] == 200


def test_every_byte_gains_no_time(llm):
    """A client that sends its headers byte by byte, each in time, is refused all the same."""
    with running(app(llm), header_s=SOON) as url, connected(url) as wire:
        wire.limit(0.01)
        found = None
        while not found:
            with suppress(TimeoutError):
                wire.send(b"x")
                found = wire.more()
        assert found.startswith(b"HTTP/1.1 408 ")


def test_a_rest_of_a_body_that_never_comes(llm):
    """After its response the connection is closed, however slowly the rest comes in."""
    with running(app(llm), rest_s=SOON) as url, connected(url) as wire:
        wire.send(request("/nothing", b"x", length=100))
        assert wire.response()[0] == 404
        assert wire.more() == b""


def test_a_body_that_is_wanted_and_does_not_come(llm):
    """408 by the time of a body, and then the connection is closed by that of a rest."""
    application = app(llm, ServerOptions(body_timeout_s=SOON))
    with running(application, rest_s=SOON) as url, connected(url) as wire:
        wire.send(request(body=b"{", length=100))
        status, _, body = wire.response()
        assert (status, in_shape(body)) == (408, "body_timeout")
        assert wire.more() == b""
        assert application.state.n_open == 0


def test_a_client_that_takes_nothing():
    """It is given up when nothing was taken for a while, so it does not hold a response for ever."""
    ended, n_taken = threading.Event(), []

    async def endless(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        leaving = asyncio.ensure_future(receive_until_left(receive))
        while not leaving.done():
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
            n_taken.append(1)
            await asyncio.sleep(0)
        ended.set()

    async def receive_until_left(receive):
        while (await receive())["type"] != "http.disconnect":
            pass

    with running(endless, stall_s=SOON) as url, connected(url) as wire:
        wire.send(request("/endless", b"", method="GET"))
        assert wire.more()
        assert ended.wait(60), "it was not given up"
    assert n_taken


@pytest.mark.parametrize(("unsent", "done"), [(0, []), (4, ["watch"]), (5, ["abort"]), (6, ["abort"])])
def test_a_client_that_takes_little_is_not_given_up(unsent, done):
    """Of 5 bytes that were not sent, one has to be taken before the next look."""
    calls = []
    transport = SimpleNamespace(get_write_buffer_size=lambda: unsent, abort=lambda: calls.append("abort"))
    HttpProtocol._check_stall(SimpleNamespace(transport=transport, _limit_writing=lambda: calls.append("watch")), 5)
    assert calls == done


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/v1/models", "localhost", 200),
        ("HTTP://localhost:80/v1/models?a=b", "localhost", 200),
        ("http://localhost/v1/models", "evil.example", 200),
        ("http://evil.example/v1/models", "localhost", 403),
        ("http://user@localhost/v1/models", "localhost", 403),
        ("http://localhost", "localhost", 404),
        ("http://localhost?a", "localhost", 404),
        ("http:///v1/models", "localhost", 404),
        ("ftp://localhost/v1/models", "localhost", 404),
    ],
)
def test_a_target_may_be_absolute(llm, target, host, status):
    """Its host counts in place of the header's (RFC 9112, 3.2.2)."""
    with running(app(llm, ServerOptions(hosts=("localhost",)))) as url, connected(url) as wire:
        wire.send(request(target, b"", method="GET", host=host))
        assert wire.response()[0] == status
