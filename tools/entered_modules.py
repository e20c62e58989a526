"""Count what one warm request enters: modules and functions of selectrie, and returns.

    python tools/entered_modules.py [--list]

A module is entered when a function of it is called, on any thread. Each kind of request
is made twice with different texts, and the second is counted, so everything is imported
and checked by then. Functions are counted by their qualified names, which Python 3.11
is the first to know. A change is a call of a function in another module than the call
before. It is a return if that module was entered before. `--list` names the modules.

Longer texts and other options give other numbers: compare only what this file prints.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import selectrie

HOME = Path(selectrie.__file__).parent
TEXTS = ("It was great.", "It was awful, I want my money back.")
"""What the request that is not counted is about, and the one that is."""

QUESTION = "Is the review positive or negative?"
OPTIONS = ("positive", "negative")

Call = tuple[str, str]
"""The file and the qualified name of a function."""


def main(arguments: list[str] | None = None) -> None:
    """Print the counts of each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the modules too")
    options = parser.parse_args(arguments)
    recorder = Recorder()
    sys.setswitchinterval(60)  # otherwise calls of two threads alternate by chance
    threading.setprofile(recorder)  # before the model's thread begins
    print(f"{'modules':>9} {'functions':>9} {'changes':>9} {'returns':>9}")
    with closing(asyncio.new_event_loop()) as loop, selectrie.load(n_threads=1) as llm:
        for name, ask in requests(llm, loop).items():
            calls = recorder.calls_of(ask)
            print("".join(f"{n:9,} " for n in counts(calls)), name)
            if options.list:
                print("\n".join(f"    {name}" for name in modules(calls)))
    threading.setprofile(None)  # type: ignore[arg-type]  # typeshed forgets None


class Recorder:
    """A profile function that records calls of functions of selectrie on all threads."""

    def __init__(self) -> None:
        self.calls: list[Call] | None = None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if self.calls is not None and event == "call" and code.co_filename.startswith(f"{HOME}/"):
            name = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has only the bare one
            self.calls.append((code.co_filename, name))

    def calls_of(self, ask: Callable[[str], object]) -> list[Call]:
        """Return the calls of the second of two requests."""
        ask(TEXTS[0])
        self.calls = calls = []
        sys.setprofile(self)
        ask(TEXTS[1])
        sys.setprofile(None)
        self.calls = None
        return calls


def requests(llm: selectrie.Engine, loop: asyncio.AbstractEventLoop) -> dict[str, Callable[[str], object]]:
    """Return the kinds of requests by name, without those whose extra is missing.

    loop: Runs requests of the server.
    """
    kinds: dict[str, Callable[[str], object]] = {
        "select, 2 choices": lambda text: llm.select(f"Review: {text}\nSentiment:", [f" {one}" for one in OPTIONS]),
        "decide, one Choice": lambda text: llm.decide(text, selectrie.Choice(QUESTION, OPTIONS)),
    }
    if find_spec("fastapi") is None:
        print("# without POST /v1/decisions: needs the extra 'server'")
        return kinds
    from selectrie import server

    application = server.app(llm)
    question = {"type": "choice", "instructions": QUESTION, "choices": [{"value": one} for one in OPTIONS]}
    kinds["POST /v1/decisions"] = lambda text: loop.run_until_complete(
        post(application, "/v1/decisions", {"model": "m", "input": text, "questions": [question]})
    )
    return kinds


async def post(application: Any, path: str, body: object) -> None:
    """Make one request of an ASGI application; fail unless it is answered with 200."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Mapping[str, object]:
        if not messages:
            await asyncio.get_running_loop().create_future()  # the client stays
        return messages.pop()

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise SystemExit(f"{path} was answered with status {message['status']}")

    await application(scope, receive, send)


def counts(calls: list[Call]) -> tuple[int, int, int, int]:
    """Return the number of modules, functions, changes of module, and returns."""
    files = [file for file, _ in calls]
    n_changes = sum(one != other for one, other in pairwise(files))
    n_modules = len(set(files))
    return n_modules, len(set(calls)), n_changes, n_changes - (n_modules - 1)


def modules(calls: list[Call]) -> list[str]:
    """Return the names of the modules that were entered."""
    paths = {Path(file).relative_to(HOME).with_suffix("") for file, _ in calls}
    return sorted(".".join(path.parts) for path in paths)


if __name__ == "__main__":
    main()
