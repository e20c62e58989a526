"""`tools/same_code.py`: what a table of names allows to differ, and what is a difference all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

import same_code
from same_code import Table

OLD = '''
"""About `ScoringRule`."""
from a import Rule, other
import b

__all__ = ["Rule", "Zoo"]


def f(tau, rest=0):
    """Of tau."""
    return Rule(tau, wanted=rest).settled + other
'''
NEW = '''
"""About `ScoringRule`."""
import b
from a import (
    other,
    ScoringRule,
)

__all__ = ["Zoo", "ScoringRule"]


def f(tolerance, rest=0):
    """Of tolerance."""
    return (ScoringRule(tolerance, top_tokens=rest).rescored
            + other)
'''
NAMES = """
Rule ScoringRule          # a class
tau tolerance src/*
wanted top_tokens
settled rescored
"""


def differences(tmp_path, new, *, names=NAMES, file="src/x.py", old=OLD):
    """What is found between two trees of one file."""
    for root, text in (("old", old), ("new", new)):
        path = tmp_path / root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    n, found = same_code.compare(tmp_path / "old", tmp_path / "new", Table(names))
    assert n == 1
    return found


def test_what_the_table_allows_is_the_same(tmp_path):
    """Classes, parameters, keywords, attributes, words of strings; imports and `__all__` in another order."""
    assert differences(tmp_path, NEW) == []


def test_a_name_holds_in_its_files_alone(tmp_path):
    """A pattern of another folder: the parameter, its use and its docstring are differences."""
    found = differences(tmp_path, NEW, file="tests/x.py")
    assert len(found) == 3
    assert all("tau" in one for one in found)


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("rest=0", "rest=1"),
        ("+ other", "- other"),
        ("top_tokens=rest", "top_tokens=tolerance"),
        (").rescored", ").resolved"),
        ("    other,\n", "    another,\n"),
        ('"Zoo", ', ""),
        ("Of tolerance.", "Of a tolerance."),
        ("import b\n", ""),
        ("from a", "from c"),
    ],
)
def test_anything_else_is_a_difference(part, other, tmp_path):
    """A value, an operator, a name that is not in the table, an entry, prose, an import."""
    assert part in NEW
    assert differences(tmp_path, NEW.replace(part, other))


def test_two_names_do_not_become_one(tmp_path):
    """`tau` becomes `tolerance` where there was one already: each use is allowed, the function is another one."""
    old = "def f(tau, tolerance):\n    return tau\n"
    new = "def f(tolerance, tolerance_2):\n    return tolerance\n"
    names = "tau tolerance\ntolerance tolerance_2\n"
    assert differences(tmp_path, new, old=old, names=names) == []
    old = "def f(tau):\n    tolerance = 1\n    return tau + tolerance\n"
    new = "def f(tolerance):\n    tolerance = 1\n    return tolerance + tolerance\n"
    assert any("are both 'tolerance'" in one for one in differences(tmp_path, new, old=old))


def test_the_homes_of_names_may_be_in_another_order(tmp_path):
    """Pairs stay pairs: a name that has the home of another one is a difference."""
    old = '_HOME = {"Rule": "a", "Zoo": "b"}\n'
    assert differences(tmp_path, '_HOME = {"Zoo": "b", "ScoringRule": "a"}\n', old=old) == []
    assert differences(tmp_path, '_HOME = {"Zoo": "a", "ScoringRule": "b"}\n', old=old)


def test_the_command_says_what_it_found(tmp_path):
    """The exit code is 0 for equal trees and 1 for others; a file that is on one side only is named."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "old" / "x.py").write_text("x = 1\n")
    command = [sys.executable, same_code.__file__, str(tmp_path / "old"), str(tmp_path / "new")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "0 files, 1 differences")
    assert done.stdout.startswith("x.py: only in")
    (tmp_path / "new" / "x.py").write_text("x = 1\n")
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 0
    with pytest.raises(ValueError, match="line 2: expected `old new`"):
        Table("a b\nc\n")
