"""What a run of the suite left out, one line for each reason with the number of tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.real_data import UNSET

WITHOUT_DATA = f"{UNSET}; it would add tests on real weights, tokenizers, data sets and texts (CONTRIBUTING.md)"
"""What stands for all files of the test data, where there are none."""


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test or a file was skipped, without the place in the code."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = said.removeprefix("Skipped: ")
    return WITHOUT_DATA if reason.startswith(UNSET) else reason


def summed(reasons: Iterable[str]) -> list[str]:
    """A line for each reason, the most frequent first."""
    counts = Counter(reasons)
    return [f"{n:5} skipped: {reason}" for reason, n in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the lines above the last one."""
    lines = summed(reason_of(report) for report in terminalreporter.stats.get("skipped", []))
    if lines:
        terminalreporter.section("skipped, by reason")
        for line in lines:
            terminalreporter.write_line(line)
