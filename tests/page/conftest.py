"""Fixtures for the page: one browser, one server and a few windows for the folder, emptied after each test.

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
from tests.page.visitor import Visitor, Windows
from tests.support.serving import running

REQUIRED = "SELECTRIE_REQUIRE_PAGE"
"""An environment variable; where it is 1, a test of this folder that would be skipped fails."""

FAILED = pytest.StashKey[bool]()
"""Whether a test has failed, so that its windows are closed with whatever is in them."""


def _as_failure(report: Any) -> Any:
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(REQUIRED) == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"{REQUIRED}=1, and it was skipped: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a skipped test fail where the page must be tested, and note for `visit` that a test failed."""
    report = _as_failure((yield))
    item.stash[FAILED] = report.failed
    return report


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


@pytest.fixture(scope="package")
def windows(browser, _served) -> Iterator[Windows]:
    """The windows that tests use one after the other."""
    found = Windows(browser, _served[1])
    yield found
    found.close()


@pytest.fixture
def visit(request, windows, url) -> Iterator[Callable[..., Visitor]]:
    """`visit()` opens the page in an empty window; options are those of `Windows.open`."""
    yield windows.open
    assert windows.empty(are_kept=not request.node.stash.get(FAILED, False)) == []
