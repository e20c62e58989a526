"""A browser without a window and without a network, for the tests of the server's page, its benchmark and its pictures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHROMIUM = os.environ.get("SELECTRIE_CHROMIUM", "/usr/bin/chromium")
"""Debian's browser, or another one."""
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""The last two block the network: no name is resolved, and only loopback is reached."""


@contextmanager
def launched() -> Iterator[Any]:
    """A browser of Playwright. Its event loop runs in this thread until it is closed, so no other one can meanwhile."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """The URL of `selectrie serve` with further arguments, on a free port and one thread, once its model is loaded."""
    command = [sys.executable, "-m", "selectrie", "serve", "--port", "0", "--threads", "1", *arguments]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        for line in server.stdout or ():
            found = re.match(r"http://127\.0\.0\.1:\d+", line)
            if found:
                yield found[0]
                return
        raise SystemExit(f"the server ended with {server.wait()}")
    finally:
        server.terminate()
        server.communicate()
