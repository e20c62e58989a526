"""Runs the functions `case_…` of a client's script on a server, and prints what became of each as one line of JSON.

These scripts run in the environment of `make build/clients`, which has neither pytest nor selectrie.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

MODEL = "embedded"


def run(cases: Mapping[str, Any]) -> None:
    """Call each case with the server's URL; print "ok" or its error by its name."""
    url, results = sys.argv[1], {}
    for name, case in [(name, case) for name, case in cases.items() if name.startswith("case_")]:
        results[name.removeprefix("case_")] = outcome(case, url)
    sys.stdout.write(json.dumps(results) + "\n")


def outcome(case: Callable[[str], None], url: str) -> str:
    """Return "ok", or the last lines of the traceback."""
    try:
        case(url)
    except Exception as error:  # noqa: BLE001 - each failure is a result
        place = traceback.extract_tb(error.__traceback__)
        own = [one for one in place if one.filename == case.__code__.co_filename][-1]
        return f"line {own.lineno}: {type(error).__name__}: {error}"
    return "ok"
