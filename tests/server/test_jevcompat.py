"""The suite jevcompat, unchanged, against `/v1/systemone` with the embedded model."""

from __future__ import annotations

from hashlib import sha256

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")
pytest.importorskip("jevcompat", reason="needs the extra 'test-clients'")

from jevcompat import runner

import selectrie
from selectrie.server import ServerOptions, app
from tests.support.serving import running

KEY = "sesame"


def report_of(engine, options: ServerOptions, **arguments):
    """What the suite says of a server."""
    with running(app(engine, options)) as url:
        return runner.run(url, **arguments)


def failed(report) -> set[str]:
    """The requirements that are not met."""
    return {one.id for one in report.results if one.status == "fail"}


@pytest.fixture(scope="module")
def llm():
    """The embedded model."""
    with selectrie.load(n_threads=1) as engine:
        yield engine


def test_every_requirement_but_the_names_of_extensions(llm):
    """32 of 32 MUST, 13 of 14 SHOULD; fields that this server adds have no prefix `x_`, as those of vLLM have none."""
    report = report_of(llm, ServerOptions(key_digests=[sha256(KEY.encode()).digest()]), key=KEY)
    assert failed(report) == {"response.extensions"}
    assert report.verdict == "conformant"
    assert (report.count("MUST", "pass"), report.count("SHOULD", "pass")) == (32, 13)
    assert failed(report) == {"response.extensions"}
    assert {one.id for one in report.results if one.status == "skip"} == {"auth.ignored-when-off", "errors.shape"}


def test_what_only_a_server_without_keys_or_with_strict_names_shows(llm):
    """A key that nobody asked for is accepted, and an unknown model has TypeSafe's shape of errors."""
    cases = {"noul-basic", "unknown-model"}
    report = report_of(llm, ServerOptions(strict_model=True), model="embedded", only=cases)
    assert failed(report) == {"response.extensions"}
    assert {"auth.ignored-when-off", "errors.shape"} <= {one.id for one in report.results if one.status == "pass"}


def test_a_server_that_takes_fewer_options_is_noticed(llm):
    """So the suite can fail."""
    report = report_of(llm, ServerOptions(max_criteria=30), only={"choice-basic", "choice-options"})
    assert report.verdict == "not conformant"
    assert "choice.options" in failed(report)
