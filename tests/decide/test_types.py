"""What a type checker finds in calls of `decide`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CALLS = ROOT / "tests" / "data" / "types" / "decide_calls.txt"


def test_a_checker_finds_the_type_of_every_answer(tmp_path):
    """`mypy --strict` reveals for each call the type that its comment names, and finds no error.

    It reads a copy, because the file calls `reveal_type`, which only a checker knows.
    """
    copy = tmp_path / "calls.py"
    copy.write_text(CALLS.read_text())
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(copy)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    found = {
        int(line): re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", kind).replace("builtins.", "")
        for line, kind in re.findall(r':(\d+): note: Revealed type is "(.*)"', done.stdout)
    }
    lines = CALLS.read_text().splitlines()
    expected = {at: line.split("  # ")[1] for at, line in enumerate(lines, 1) if "reveal_type(" in line}
    assert len(expected) >= 20
    assert found == expected, done.stdout + done.stderr
    assert ": error: " not in done.stdout, done.stdout
