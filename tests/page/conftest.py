"""Fixtures for the page: one browser and one server for the folder, a context for each test.

Playwright's own event loop runs in the thread of the tests as long as it is started, so it ends with this folder: other
tests run loops of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from page_browser import CHROMIUM, launched
from tests.page.double import Double
from tests.page.visitor import INIT_SCRIPT, Visitor
from tests.support.serving import PATIENCE_S, running

REQUIRED = "SELECTRIE_REQUIRE_PAGE"
"""An environment variable; where it is 1, a test of this folder that would be skipped fails."""

PATIENCE_MS = 1000 * PATIENCE_S


def _as_failure(report: Any) -> Any:
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(REQUIRED) == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"{REQUIRED}=1, and it was skipped: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Let a skipped test fail where the page must be tested."""
    return _as_failure((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """Let a skipped file fail where the page must be tested."""
    return _as_failure((yield))


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Debian's Chromium, or the one that SELECTRIE_CHROMIUM names, without a window."""
    pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no browser {CHROMIUM}: SELECTRIE_CHROMIUM names another one")
    with launched() as found:
        yield found


@pytest.fixture(scope="package")
def engine() -> Iterator[Any]:
    """The embedded model, on one thread."""
    import selectrie

    with selectrie.load(n_threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="package")
def _served(engine) -> Iterator[tuple[Double, str]]:
    pytest.importorskip("fastapi", reason="needs the extra 'server'")
    from selectrie.server import app

    application = Double(app(engine))
    with running(application) as url:
        yield application, url


@pytest.fixture
def double(_served) -> Iterator[Double]:
    """The server whose answers a test may write; it is the real one for all calls that no test expects."""
    yield _served[0]
    _served[0].reset()


@pytest.fixture
def url(_served, double) -> str:
    """Where the page is served."""
    return _served[1]


@pytest.fixture
def visit(browser, url) -> Iterator[Callable[..., Visitor]]:
    """`visit()` opens the page in a browser without memory; options are those of a context of Playwright."""
    contexts: list[Any] = []
    visitors: list[Visitor] = []

    def of(path: str = "/", **options: Any) -> Visitor:
        context = browser.new_context(base_url=url, **{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(INIT_SCRIPT)
        visitor = Visitor(context.new_page(), url)
        visitors.append(visitor)
        visitor.page.goto(path)
        return visitor if path == "/health" else visitor.ready()

    yield of
    problems = [problem for visitor in visitors for problem in visitor.problems]
    for context in contexts:
        context.close()
    assert problems == []
