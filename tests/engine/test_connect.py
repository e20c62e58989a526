"""`connect` and `load` of an address: engines on servers, what they answer, and what is refused."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("httpx2", reason="needs the extra 'remote'")
pytest.importorskip("fastapi", reason="needs the extra 'server'")

from typer.testing import CliRunner

import selectrie
from selectrie import Choice, DecisionParams, ModelPool, SamplingParams, StopParams, Thinking
from selectrie.cli import app as command
from selectrie.engine.pool import memory_needed
from selectrie.errors import (
    IncompatibleOptionsError,
    MissingExtraError,
    OptionError,
    ServerError,
    WholeRowsError,
)
from selectrie.server import ServerOptions, app
from tests.support.deciding import fake
from tests.support.serving import running

CHOICES = [" Paris", " London", " New York", " Newcastle", " New Zealand"]
PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def served(embedded):
    """The embedded model here, and the address of a server that evaluates it too."""
    with selectrie.load(embedded, n_ctx=256, n_threads=1) as local:
        local.self_check  # noqa: B018 - it is made once
        with running(app(local)) as url:
            yield local, url


def test_answers_are_those_of_the_engine(served):
    """On a real model, within the tolerance: scores, order and texts of every way of asking."""
    local, url = served
    with selectrie.connect(url) as llm:
        assert llm.tolerance >= local.tolerance
        for options in ({}, {"terminator": "eog"}, {"rule": "token_mean"}):
            found, own = (one.rank(PROMPT, CHOICES, **options) for one in (llm, local))
            assert [one.text for one in found.choices] == [one.text for one in own.choices]
            for mine, theirs in zip(found.choices, own.choices, strict=True):
                n_rows = 16
                assert mine.logp == pytest.approx(theirs.logp, abs=n_rows * llm.tolerance)
        state, question = "My parcel has not come!", Choice("What is wanted?", ["track order", "refund"])
        assert llm.decide(state, question).value == local.decide(state, question).value
        thought = llm.decide(
            state, question, params=DecisionParams(think=Thinking(n=2, max_tokens=8, stop="\nAnswer: "))
        )
        assert (thought.value, len(thought.rationales.texts)) == ("track order", 2)
        assert llm.score("The sky is", " blue").logp == pytest.approx(local.score("The sky is", " blue").logp, abs=1e-3)
        signature = llm.select(PROMPT, CHOICES).signature
        assert (signature.precision, signature.backend) == ("remote", "remote")
        assert signature.build == f"selectrie {selectrie.__version__}"


def test_an_address_is_loaded(served):
    """As by `connect` with its defaults; options of back ends are refused by name."""
    local, url = served
    with selectrie.load(url, precision="fast") as llm:
        assert llm.select(PROMPT, CHOICES).text == local.select(PROMPT, CHOICES).text
    for options in ({"n_ctx": 64}, {"precision": "exact"}, {"backend": "llama.cpp"}):
        with pytest.raises(IncompatibleOptionsError, match="`connect`"):
            selectrie.load(url, **options)


def test_threads_share_an_engine(served):
    """Each gets its own answer."""
    _, url = served
    with selectrie.connect(url, concurrency=3) as llm:
        expected = {n: llm.select(f"{n} and", CHOICES[:3]).logp for n in range(6)}
        found: dict[int, float] = {}
        threads = [
            threading.Thread(target=lambda n=n: found.update({n: llm.select(f"{n} and", CHOICES[:3]).logp}))
            for n in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert found == pytest.approx(expected, abs=1e-3)


def test_what_needs_whole_rows_is_refused(served):
    """Before a request is sent."""
    _, url = served
    with selectrie.connect(url) as llm, pytest.raises(WholeRowsError, match="use `generate`"):
        llm.stream("Hello")


@pytest.mark.parametrize(
    ("url", "options", "name"),
    [
        (7, {}, "url"),
        ("localhost:8000", {}, "url"),
        ("http://h", {"model": 3}, "model"),
        ("http://h", {"tokenizer": 3}, "tokenizer"),
        ("http://h", {"tokenizer": ""}, "tokenizer"),
        ("http://h", {"api_key": ""}, "api_key"),
        ("http://h", {"api_key": "a\nb"}, "api_key"),
        ("http://h", {"api_key": "é"}, "api_key"),
        ("http://h", {"concurrency": 0}, "concurrency"),
        ("http://h", {"concurrency": 1025}, "concurrency"),
        ("http://h", {"timeout_s": 0}, "timeout_s"),
        ("http://h", {"timeout_s": float("nan")}, "timeout_s"),
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_is_asked(url, options, name):
    """With the name of the argument, and without a key."""
    with pytest.raises(OptionError) as refused:
        selectrie.connect(url, **options)
    assert refused.value.name == name
    assert "b" not in str(refused.value.value) or name != "api_key"


def test_no_server_and_no_extra(monkeypatch):
    """A server that is not there, and a package that is not."""
    with pytest.raises(ServerError, match="check the address"):
        selectrie.connect("http://127.0.0.1:9")
    monkeypatch.setattr("selectrie.engine.connect.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"selectrie\[remote\]"):
        selectrie.connect("http://127.0.0.1:9")


def test_a_pool_opens_servers(served, embedded):
    """Beside a model that takes the whole budget; options of back ends are for that one alone."""
    local, url = served
    options = {"n_ctx": 256, "n_threads": 1}
    budget = memory_needed(embedded, None, options)
    sources = {"there": url, "here": embedded}
    with ModelPool(sources, budget_bytes=budget, backend="llama.cpp", **options) as pool:
        with pool.use("here") as own, pool.use("there") as llm:
            assert llm.select(PROMPT, CHOICES).text == own.select(PROMPT, CHOICES).text
            assert llm.identity.precision == "remote"
        assert {one.name: one.memory_bytes for one in pool.loaded()} == {"there": 0, "here": budget}
        assert pool.used_bytes == budget
    assert llm.closed
    assert not local.closed
    with ModelPool(["http://127.0.0.1:9"]) as pool:
        with pytest.raises(ServerError, match="check the address"), pool.use("http://127.0.0.1:9"):
            pass
        assert pool.loaded() == ()
    with pytest.raises(IncompatibleOptionsError, match="'there', the address of a server"):
        ModelPool(sources, backend={"there": "llama.cpp"})


def test_a_missing_tokenizer_is_named(tmp_path):
    """A path that is not there is no tokenizer; the server is asked first, and is there."""
    with (
        fake() as llm,
        running(app(llm, ServerOptions())) as url,
        pytest.raises(OptionError, match="a folder with a tokenizer"),
    ):
        selectrie.connect(url, tokenizer=tmp_path / "none")


def test_the_command_asks_a_server(served):
    """`-m` takes an address; an option of a back end is refused."""
    local, url = served
    asked = ["select", "-m", url, "-p", PROMPT, *(part for choice in CHOICES for part in ("-c", choice))]
    found = CliRunner().invoke(command, asked)
    assert found.exit_code == 0
    assert repr(local.select(PROMPT, CHOICES).text) in found.stdout
    assert CliRunner().invoke(command, [*asked, "--n-ctx", "64"]).exit_code != 0


def test_the_command_has_a_server_draw(served):
    """`generate` prints the text that is drawn here."""
    local, url = served
    asked = ["generate", "-m", url, "-p", PROMPT, "--max-tokens", "6", "--temperature", "0"]
    found = CliRunner().invoke(command, asked)
    own = local.generate(PROMPT, sampling=SamplingParams.GREEDY, stopping=StopParams(max_tokens=6))
    assert (found.exit_code, found.stdout) == (0, own[0].text + "\n")
