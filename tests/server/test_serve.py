"""The command `selectrie serve`, as a process: its start, its answers, and how a signal ends it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from datetime import datetime, timezone
from hashlib import sha256

import pytest
from typer.testing import CliRunner

pytest.importorskip("uvicorn", reason="needs the extra 'server'")

from selectrie import Engine, ModelPool, load
from selectrie.cli import app as cli
from selectrie.cli import serve as serve_command
from selectrie.cli.serve import JsonLines, _report_ready
from selectrie.errors import IncompatibleOptionsError, InputFileError, ModelFileError, OptionError
from selectrie.server import ServerOptions, app
from selectrie.server.serve import (
    Serving,
    _bind,
    _local_url,
    _Run,
    _warm_up,
    allowed_hosts,
    check_exposed,
    is_loopback,
    key_digests,
)
from tests.support.deciding import fake
from tests.support.serving import ask

EVERYWHERE = "0.0.0.0"  # noqa: S104 - said to be refused, never listened on
BODY = {"input": "My parcel has not come.", "questions": [{"type": "predicate", "instructions": "It is late."}]}


@pytest.fixture(autouse=True)
def _commands_here_write_no_log(monkeypatch):
    """Loggers of this process stay as they are, for other tests."""
    monkeypatch.setattr(serve_command, "_log_to_stderr", lambda: None)


def started(*arguments: str) -> subprocess.Popen:
    """A server on a free port."""
    command = [sys.executable, "-m", "selectrie", "serve", "--port", "0", "--threads", "1", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def posted(url: str, body: object) -> tuple[int, dict]:
    """The status and the JSON that a request gets."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - a URL of our own
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_server_from_start_to_end(tmp_path):
    """It prints an address and a request that works as it is; SIGTERM ends it with 0, and stderr has a line a request."""
    (tmp_path / "serve.toml").write_text('model-name = ["mine"]\nport = 1\n')  # the flag of the port goes first
    process = started("--config", str(tmp_path / "serve.toml"))
    try:
        first, curl = process.stdout.readline(), process.stdout.readline()
        url = re.match(
            r"(http://127\.0\.0\.1:\d+): model mine, precision exact, 1024 tokens for all requests \(--n-ctx\);", first
        )[1]
        shown = re.match(r"curl (\S+) -H 'Content-Type: application/json' -d '(.*)'\n", curl)
        assert posted(shown[1], json.loads(shown[2]))[0] == 200
        status, found = posted(f"{url}/v1/decisions", BODY)
        assert (status, found["model"]) == (200, "mine")
        assert 0 < found["answers"][0]["probability"] < 1
        assert posted(f"{url}/v1/decisions", {})[0] == 400
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    ready, *requests, signalled, ended = map(json.loads, errors.splitlines())
    assert (ready["message"], ready["url"], ready["models"]) == ("the server is ready", url, ["mine"])
    assert [(line["status"], line["level"], line["client"]) for line in requests] == [
        (status, "info", "127.0.0.1") for status in (200, 200, 400)
    ]
    assert requests[-1]["error"] == "option"
    assert (signalled["message"], signalled["open"]) == ("SIGTERM: draining", 0)
    assert (ended["message"], ended["code"]) == ("the server has ended", 0)
    times = [datetime.fromisoformat(line["time"]) for line in (ready, *requests, signalled, ended)]
    assert times == sorted(times)
    assert times[0].tzinfo == timezone.utc


@pytest.mark.parametrize("how", [{}, {"chat": False}, {"nodes": 8}])
def test_the_model_decides_once_before_the_server_is_ready(how):
    """What a first call reads is read then; a model that has no room for it is ready without."""
    with fake(**how) as llm:
        calls = []
        llm._model.on_decode = lambda: calls.append(llm.load.n_active)
        _warm_up(llm)
        assert bool(calls) == ("nodes" not in how)
        assert llm.load.nodes_cached == 0


def test_bits_repeat_on_an_empty_cache(embedded):
    """The first answer of a server, and those after a `trim`, have the bits of a new engine."""
    body = {"prompt": "Tom had a", "text": " cat that sat on the mat and the dog ran away in the park"}

    def answer(llm: Engine) -> object:
        reply = ask(app(llm), "POST", "/v1/loglikelihood", body)
        return reply.json["logp"], reply.json["tokens"]

    with load(embedded, n_threads=1) as llm:
        new = answer(llm)
    with load(embedded, n_threads=1) as llm:
        _warm_up(llm)
        first = answer(llm)
        llm.generate("It was", seed=1, max_tokens=3)
        llm.trim()
        assert new == first == answer(llm)


def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path):
    """With the exit code and the one line of other commands."""
    process = started("-m", str(tmp_path / "no.gguf"))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 3
    assert errors.startswith("error[model_file]: ")


def test_a_port_that_is_taken_is_named():
    """The flag to change is that of the port, and the address is in the error."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(cli, ["serve", "--port", str(port)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error[option]: --port {port}: expected a free port of 127.0.0.1")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--host", EVERYWHERE], "option", "--host '0.0.0.0'"),
        (["--host", "300.0.0.1", "--no-auth"], "option", "an address that can be listened on"),
        (["--max-rows", "0"], "option", "--max-rows 0"),
        (["--deadline", "0"], "option", "--deadline"),
        (["--port", "999999"], "option", "--port 999999"),
        (["--max-body-mib", "nan"], "option", "--max-body-mib nan"),
        (["--header-timeout", "0"], "option", "--header-timeout 0"),
        (["--api-key-file", "/no/such/file"], "input_file", "/no/such/file"),
    ],
)
def test_mistakes_are_found_before_the_model_loads(arguments, code, said):
    """One line each, and exit code 2."""
    port = () if "--port" in arguments else ("--port", "0")
    done = CliRunner().invoke(cli, ["serve", *port, *arguments])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error[{code}]: ")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("address", "further", "hosts"),
    [
        ("127.0.0.1", [], ("localhost", "127.0.0.1", "[::1]")),
        ("::1", ["Mine"], ("localhost", "127.0.0.1", "[::1]", "mine")),
        ("127.8.8.8", [], ("localhost", "127.0.0.1", "[::1]", "127.8.8.8")),
        (EVERYWHERE, [], ()),
        (EVERYWHERE, ["mine"], ("localhost", "127.0.0.1", "[::1]", EVERYWHERE, "mine")),
    ],
)
def test_hosts_that_are_answered(address, further, hosts):
    """On loopback the address itself is one; beyond, only those that are named count, and any if none is."""
    assert allowed_hosts(address, further) == hosts


@pytest.mark.parametrize(
    ("address", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), (EVERYWHERE, "127.0.0.1"), ("::", "[::1]")]
)
def test_the_address_that_is_shown_can_be_asked(address, shown):
    """Also where the server listens on every address."""
    listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        listening.bind((address, 0))
    except OSError:
        pytest.skip(f"this machine has no address {address}")
    with listening:
        assert _local_url(listening) == f"http://{shown}:{listening.getsockname()[1]}"


def test_a_failure_is_a_line_of_json():
    """With its traceback; every line has a time and a level."""
    request = logging.makeLogRecord({"levelname": "INFO", "created": 0.5, "line": {"status": 200}})
    assert json.loads(JsonLines().format(request)) == {
        "time": "1970-01-01T00:00:00.500+00:00",
        "level": "info",
        "status": 200,
    }
    error = ValueError("a\nb")
    failed = logging.LogRecord("uvicorn.error", logging.ERROR, "", 1, "it %s", ("failed",), (ValueError, error, None))
    line = json.loads(JsonLines().format(failed))
    assert (line["level"], line["logger"], line["message"]) == ("error", "uvicorn.error", "it failed")
    assert line["traceback"].endswith("ValueError: a\nb")


def test_the_request_that_is_shown_is_read_by_a_shell(capsys):
    """Whatever the model is called."""
    with fake() as llm:
        _report_ready("http://127.0.0.1:1", app(llm, ServerOptions(model_names=["it's $HOME"])))
    line = capsys.readouterr().out.splitlines()[1]
    *_, flag, data = shlex.split(line)
    assert (flag, json.loads(data)["model"]) == ("-d", "it's $HOME")


def test_a_hangup_has_the_keys_read_again_and_drains_where_there_are_none(tmp_path, caplog):
    """A file that cannot be read leaves the keys as they were, and is an error in the log."""
    keys = tmp_path / "keys.txt"
    keys.write_text("first\n")
    with fake() as llm, closing(_bind(Serving(port=0))) as listening:
        application = app(llm, ServerOptions(key_digests=key_digests(str(keys))))

        def asked_with(key):
            return ask(application, "GET", "/v1/models", headers={"x-api-key": key}).status

        run = _Run(application, listening, Serving(key_file=str(keys)), load=lambda: llm, on_ready=None, url="")
        keys.write_text("second\n")
        assert (asked_with("first"), asked_with("second")) == (200, 401)
        run._handle_hangup()
        assert (asked_with("first"), asked_with("second")) == (401, 200)
        keys.write_text("# none\n")
        run._handle_hangup()
        assert (asked_with("first"), asked_with("second")) == (401, 200)
        assert "the keys stay as they were" in caplog.text
        assert not application.state.is_draining

        async def without_keys():
            _Run(application, listening, Serving(), load=lambda: llm, on_ready=None, url="")._handle_hangup()

        asyncio.run(without_keys())
        assert application.state.is_draining


def test_who_may_listen_where(tmp_path):
    """Beyond loopback keys are needed, or the word that none are wanted; never both."""
    keys = tmp_path / "keys.txt"
    keys.write_text("\ufeff# mine\nfirst\n\n second \n", encoding="utf-8")
    digests = key_digests(str(keys))
    assert digests == (sha256(b"first").digest(), sha256(b"second").digest())
    with_keys = ServerOptions(key_digests=digests)
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        assert is_loopback(host)
        check_exposed(host, ServerOptions(), without_keys=False)
    for host in (EVERYWHERE, "::", "192.168.0.1", "example.org"):
        assert not is_loopback(host)
        check_exposed(host, with_keys, without_keys=False)
        check_exposed(host, ServerOptions(), without_keys=True)
        with pytest.raises(OptionError, match="--api-key-file"):
            check_exposed(host, ServerOptions(), without_keys=False)
    with pytest.raises(IncompatibleOptionsError):
        check_exposed(EVERYWHERE, with_keys, without_keys=True)
    keys.write_text("# none\n")
    with pytest.raises(InputFileError, match="it has no key"):
        key_digests(str(keys))
    keys.write_bytes(b"\xff\n")
    with pytest.raises(InputFileError, match=r"it is not UTF-8: expected a text with one key a line$"):
        key_digests(str(keys))
    with pytest.raises(InputFileError, match=r"none\.txt: No such file or directory$"):
        key_digests(str(tmp_path / "none.txt"))


def test_a_pool_is_ready_when_its_first_model_is_loaded(tmp_path):
    """The others are loaded when they are asked for; a first model that cannot be loaded ends the server."""
    listening = _bind(Serving(port=0))
    ready = []
    pool = ModelPool({"a": "embedded", "b": "embedded"}, n_ctx=256, n_threads=1)

    def note(_url, application):
        ready.append([one.name for one in pool.loaded()])
        ready.append(application.state.models.is_ready)
        raise InputFileError("end", "the server ends")

    run = _Run(app(None, ServerOptions()), listening, Serving(port=0), load=lambda: pool, on_ready=note, url="")
    with pytest.raises(InputFileError, match="the server ends"):
        asyncio.run(run.serve())
    assert ready == [["a"], True]
    lost = ModelPool([str(tmp_path / "no.gguf")])
    run = _Run(
        app(None, ServerOptions()), _bind(Serving(port=0)), Serving(port=0), load=lambda: lost, on_ready=note, url=""
    )
    with pytest.raises(ModelFileError):
        asyncio.run(run.serve())
    assert len(ready) == 2
