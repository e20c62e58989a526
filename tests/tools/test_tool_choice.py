"""`tools/tool_choice.py` on the model that comes with selectrie."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

import tool_choice


def test_the_lines(monkeypatch, capsys):
    """One for each message, with the decision; that model calls nothing of its own accord."""
    monkeypatch.setattr(tool_choice, "NEEDED", {"Wake me at 7 am.": "set_alarm"})
    monkeypatch.setattr(tool_choice, "NOT_NEEDED", ["Hello!"])
    monkeypatch.setattr(sys, "argv", ["tool_choice.py", "embedded", "--threads", "1"])
    tool_choice.main()
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [["set_alarm", "None", "1.000"], ["None", "None", "1.000"]]
    assert last == (
        "called where needed 0 of 1 (0 the right tool); no call where none is needed 1 of 1; "
        "there the model's own text begins as a call 0 times"
    )
