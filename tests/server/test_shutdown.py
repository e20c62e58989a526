"""How a server ends: signals while it loads, while it works and while a client reads slowly; and what its exit code says."""

from __future__ import annotations

import http.client
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

pytest.importorskip("uvicorn", reason="needs the extra 'server'")

from selectrie.engine.engine import Engine
from selectrie.errors import ModelFileError, OutputError
from selectrie.server import ServerOptions
from selectrie.server.serve import LOST, Serving, serve
from tests.support.deciding import fake

BODY = json.dumps({"input": "x", "questions": [{"type": "predicate", "instructions": "It rains."}]})


class Client:
    """What a test does to a server from another thread."""

    def __init__(self, url: str) -> None:
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, dict]:
        """The status and the JSON of a response; 0 if the connection was closed instead."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request(method, path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (http.client.HTTPException, OSError):
            return 0, {}
        finally:
            connection.close()

    def waiting(self, cause: str) -> float:
        """How many open requests wait for something, as `/metrics` says."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return float(text.partition(f'selectrie_waiting_requests{{cause="{cause}"}} ')[2].split()[0])

    def ask_in_thread(self) -> tuple[threading.Thread, list[int]]:
        """A decision that is asked for in a thread, and the list that gets its status."""
        statuses: list[int] = []
        thread = threading.Thread(target=lambda: statuses.append(self.ask("POST", "/v1/decisions", BODY)[0]))
        thread.start()
        return thread, statuses


def stop() -> None:
    """Send this process, which is the server too, the signal that ends it."""
    os.kill(os.getpid(), signal.SIGTERM)


def run(script: Callable[[Client], None], *, timeout_s: float = 60.0, load=fake, key_file: str | None = None) -> int:
    """Serve until the script, which runs in a thread, has sent a signal; return the exit code."""
    failures: list[BaseException] = []

    def scripted(url: str) -> None:
        try:
            script(Client(url))
        except BaseException as error:  # noqa: BLE001 - raised where the test runs
            failures.append(error)
            stop()
            stop()

    threads: list[threading.Thread] = []

    def ready(url: str, _application: object) -> None:
        threads.append(threading.Thread(target=scripted, args=(url,)))
        threads[0].start()

    serving = Serving(port=0, shutdown_timeout_s=timeout_s, key_file=key_file)
    code = serve(load, serving, ServerOptions(), on_ready=ready)
    for thread in threads:
        thread.join(60)
    if failures:
        raise failures[0]
    return code


class Held:
    """Decisions that wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        extend = Engine.decide

        def decide(engine: Engine, *args, **named):
            self.begun.set()
            assert self.go.wait(60)
            return extend(engine, *args, **named)

        from selectrie.engine.aio import awaitable

        monkeypatch.setattr(Engine, "adecide", awaitable(decide))


def test_accepted_work_is_finished(monkeypatch):
    """After the first signal new work is refused, `/health` still answers, and what was accepted is answered; then 0."""
    held = Held(monkeypatch)

    def script(client: Client) -> None:
        assert client.ask("GET", "/ready")[0] == 200
        thread, statuses = client.ask_in_thread()
        assert held.begun.wait(60)
        stop()
        while client.ask("GET", "/ready")[0] == 200:
            pass
        status, found = client.ask("POST", "/v1/decisions", BODY)
        assert (status, found["error"]["code"]) == (503, "draining")
        assert client.ask("GET", "/health")[0] == 200
        held.go.set()
        thread.join(60)
        assert statuses == [200]

    assert run(script) == 0


def test_a_body_that_has_not_come_is_refused(monkeypatch):
    """It is new work, for another server: the server waits neither for the rest, nor for headers, nor for the client to close."""
    ended, close = threading.Event(), Engine.close

    def closed(llm: Engine) -> None:
        ended.set()
        close(llm)

    monkeypatch.setattr(Engine, "close", closed)
    head = "POST /v1/decisions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 99\r\n"

    def script(client: Client) -> None:
        address = (client.host, client.port)
        with (
            socket.create_connection(address, timeout=20) as slow,
            socket.create_connection(address, timeout=20) as idle,
        ):
            idle.sendall(head.encode())
            slow.sendall(f"{head}\r\n{{".encode())
            while client.waiting("body") == 0:
                pass
            stop()
            answer = b""
            while part := slow.recv(1 << 16):
                answer += part
            assert answer.startswith(b"HTTP/1.1 503")
            assert b'"draining"' in answer
            assert idle.recv(1) == b""
            assert ended.wait(20)

    assert run(script) == 0


def test_a_hangup_that_is_ignored_reads_keys_all_the_same(tmp_path):
    """`nohup` has it ignored, which stays so where there is no file to read."""
    keys = tmp_path / "keys.txt"
    keys.write_text("first\n")
    before = signal.getsignal(signal.SIGHUP)
    ignored: list[bool] = []

    def script(_: Client) -> None:
        ignored.append(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)
        stop()

    try:
        for key_file in (None, str(keys)):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            assert run(script, key_file=key_file) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert ignored == [True, False]


@pytest.mark.parametrize("how", ["a second signal", "a timeout"])
def test_what_is_lost_is_said(monkeypatch, caplog, how):
    """Whether a second signal or the time ends the server, its clients' connections are closed, and the code is 1.

    The log has the request as lost by the server, the signals, how many were lost and the end, in this order.
    """
    held = Held(monkeypatch)

    def script(client: Client) -> None:
        thread, statuses = client.ask_in_thread()
        assert held.begun.wait(60)
        stop()
        if how == "a second signal":
            while client.ask("GET", "/ready")[0] == 200:
                pass
            stop()
        thread.join(60)
        held.go.set()
        assert statuses in ([0], [503])

    with caplog.at_level(logging.INFO, "selectrie.server"):
        assert run(script, timeout_s=60.0 if how == "a second signal" else 0.05) == LOST
    check_log(caplog, n_signals=1 + (how == "a second signal"))


def check_log(caplog: pytest.LogCaptureFixture, *, n_signals: int = 1) -> None:
    """One request was lost with the server, and nothing else."""
    lines = [record.line for record in caplog.records]
    assert [(line["status"], line["lost"]) for line in lines if line.get("lost") and "status" in line] == [
        (503, "shutdown")
    ]
    signals = ["SIGTERM: draining", "SIGTERM: ending"][:n_signals]
    said = [line["message"] for line in lines if "message" in line]
    assert said == ["the server is ready", *signals, "1 requests lost", "the server has ended"]
    assert lines[-1]["code"] == LOST


def test_a_stream_that_the_server_cuts_is_no_success(caplog):
    """It began with 200, and it is logged as lost with the server, with what it took."""
    go = threading.Event()

    def load() -> Engine:
        llm = fake()
        llm._model.on_decode = lambda: None if llm._model.calls < 3 else go.wait(60)
        return llm

    def script(client: Client) -> None:
        body = json.dumps({"messages": [{"role": "user", "content": "x"}], "stream": True, "ignore_eos": True})
        with socket.create_connection((client.host, client.port), timeout=60) as made:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {client.host}\r\ncontent-type: application/json\r\n"
            made.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
            assert made.recv(1 << 16).startswith(b"HTTP/1.1 200")
            stop()
            while client.ask("GET", "/ready")[0] == 200:
                pass
            stop()
            with suppress(ConnectionError):
                while made.recv(1 << 16):
                    pass
            go.set()

    with caplog.at_level(logging.INFO, "selectrie.server"):
        assert run(script, load=load) == LOST
    check_log(caplog, n_signals=2)
    [line] = [record.line for record in caplog.records if record.line.get("endpoint") == "/v1/chat/completions"]
    assert line["rows"] > 0
    assert line["tokens"] > 0


def test_a_response_that_is_not_taken_is_lost(caplog):
    """The work is done, but the client has not got its answer: the server waits as long as it may, and says so."""

    def script(client: Client) -> None:
        body = json.dumps(
            {"prompt": "\x01" * 1_000_000, "return_token_strs": True}
        )  # each is written with ten characters
        with socket.create_connection((client.host, client.port), timeout=60) as made:
            head = f"POST /tokenize HTTP/1.1\r\nhost: {client.host}\r\ncontent-type: application/json\r\n"
            made.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
            assert made.recv(1).startswith(b"H")
            stop()
            ended.wait(60)

    ended = threading.Event()
    finished: list[int] = []

    def waiting(client: Client) -> None:
        thread = threading.Thread(target=script, args=(client,), daemon=True)
        thread.start()
        finished.append(1)

    with caplog.at_level(logging.INFO, "selectrie.server"):
        assert run(waiting, timeout_s=0.3) == LOST
    check_log(caplog)
    ended.set()
    assert finished == [1]


def test_idle_connections_do_not_hold_it():
    """One that was kept alive, one that has sent nothing and one in the middle of its headers."""

    def script(client: Client) -> None:
        for data in (b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n", b"", b"GET /heal"):
            made = socket.create_connection((client.host, client.port), timeout=60)
            made.sendall(data)
            if data.endswith(b"\r\n\r\n"):
                assert made.recv(1)
            opened.append(made)
        stop()

    opened: list[socket.socket] = []
    assert run(script) == 0
    for made in opened:
        made.close()


def test_a_signal_while_the_model_loads(monkeypatch):
    """Nothing was accepted, so the code is 0; a model that comes too late is closed."""
    go, loaded = threading.Event(), []

    def load() -> Engine:
        stop()
        assert go.wait(60)
        loaded.append(fake())
        return loaded[0]

    assert serve(load, Serving(port=0), ServerOptions()) == 0
    go.set()
    loader = next((one for one in threading.enumerate() if one.name == "selectrie-load"), None)
    if loader is not None:
        loader.join(60)
    assert loaded[0].closed


def test_a_model_that_cannot_be_loaded():
    """Its error ends the server, also if it could not be told where the server listens."""

    def load() -> Engine:
        raise ModelFileError("/a/model.gguf", "it is damaged")

    def unsaid(_url: str, _application: object) -> None:
        raise OutputError("closed")

    with pytest.raises(ModelFileError):
        serve(load, Serving(port=0), ServerOptions())
    with pytest.raises(OutputError):
        serve(fake, Serving(port=0), ServerOptions(), on_ready=unsaid)
