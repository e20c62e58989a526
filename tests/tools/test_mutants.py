"""The tool that changes the sources to see whether a test notices."""

from __future__ import annotations

import ast
import json
import signal
from pathlib import Path
from textwrap import dedent

import pytest

import selectrie.tokenization.healing
from coverage_map import Test as Reaching
from coverage_map import in_order
from mutant_places import Options, Place
from mutants import KILLED, SURVIVED, TIMEOUT, UNREACHED, main, verdict
from mutations import drawn, mutants_of

TOY = """\
def larger(a: int, b: int) -> int:
    return max(a, b)

def least(pair):
    return pair[0]

def forgotten():
    return None if least(()) else -least(())
"""
TESTS = """\
import pytest
from toy import larger, least

@pytest.fixture(scope="module")
def of_two():
    return larger(1, 2)

def test_first(of_two):
    assert least([1, 1]) == 1

def test_larger(of_two):
    assert of_two == 2
"""


def changes(text: str, *kinds: str) -> list[str]:
    """The mutants of a file as "before -> after"; of these kinds, where any is named."""
    found = mutants_of("a.py", dedent(text).encode())
    return [f"{one.before} -> {one.after}" for one in found if not kinds or one.kind in kinds]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a < b", ["a < b -> (a <= b)", "a < b -> (a >= b)"]),
        ("x = a == b != c", ["a == b != c -> (a != b != c)", "a == b != c -> (a == b == c)"]),
        ("x = a + b", ["a + b -> (a - b)"]),
        ("a -= b", ["a -= b -> pass", "a -= b -> a += b"]),
        ("x = a and b", ["a and b -> (a or b)", "a and b -> (b)", "a and b -> (a)"]),
        ("x = not a", ["not a -> (a)"]),
        ("x = 7", ["7 -> (8)", "7 -> (6)"]),
        ("x = True", ["True -> (False)"]),
        ("if a: b", ["a -> (not (a))"]),
        ("x = [a for a in b if a]", ["a -> (not (a))"]),
        ("while a: break", ["a -> (not (a))", "break -> continue"]),
        ("for a in b: continue", ["continue -> break", "continue -> pass"]),
        ("a(b)", ["a(b) -> pass"]),
        ("a.b = c", ["a.b = c -> pass"]),
        ("raise E(f'{n + 1}', 3)", ["raise E(f'{n + 1}', 3) -> pass"]),
        ("return a", ["a -> None"]),
        ("return a is b", ["a is b -> (not (a is b))", "a is b -> (a is not b)"]),
        ("x = f(a, b, c)", ["f(a, b, c) -> f(b, a, c)", "f(a, b, c) -> f(a, c, b)"]),
        ("x = a.argmin(b)", ["a.argmin -> (a).argmax"]),
        ("x = max(a, b)", ["max -> min"]),
        ("x = a[b:]", ["b: -> (b) + 1:", "b: -> b:-1"]),
        ("x = a[:b]", [":b -> 1:b", ":b -> :(b) - 1"]),
        ("x: tuple[A | B, 1] = a", []),
        ("x = isinstance(a, A | B)", []),
        ("x = zip(a, strict=True)", []),
        ("x = 'a' + f'{b + 1}'", []),
        ("logger.debug('a', 1)", []),
        ("'''text'''", []),
    ],
)
def test_a_function_is_changed_in_these_ways(body, expected):
    """Types, texts, logging and what a `raise` says stay as they are."""
    assert changes(f"def f(a: int = 1) -> A | B:\n    {body}\n") == expected


def test_nothing_outside_functions_is_changed():
    """Neither module, class body, decorator nor default; methods and nested functions are."""
    text = """\
        N = 1 + 1
        @decorated(1)
        class A:
            n: int = 1
            @decorated(2)
            def f(self, a=3):
                def g(b=4): x = 5
        """
    assert changes(text, "constant") == ["5 -> (6)", "5 -> (4)"]


def test_the_range_that_is_replaced_is_exact():
    """Behind characters of several bytes and over several lines, the rest stays as it is."""
    source = "def f(ö):\n    x = 'é', (ö  # é\n        + 1)\n    return x\n".encode()
    [mutant] = [one for one in mutants_of("a.py", source) if one.kind == "operator"]
    assert mutant.applied(source).decode() == "def f(ö):\n    x = 'é', ((ö - 1))\n    return x\n"


def test_a_draw_moves_with_the_file_that_changes_alone(tmp_path):
    """Another seed draws others; lines above a mutant do not change whether it is drawn."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(
            f"def {name}(x):\n    return [x + n for n in range(10) if n < 5 or n > 7]\n"
        )
    before = [one.name for one in drawn(tmp_path, [], 8, 1)]
    assert before != [one.name for one in drawn(tmp_path, [], 8, 2)]
    (tmp_path / "a.py").write_text("# a line\n\n" + (tmp_path / "a.py").read_text())
    assert before == [one.name for one in drawn(tmp_path, [], 8, 1)]
    assert {one.path for one in drawn(tmp_path, ["a"], 8, 1)} == {"b.py"}
    assert {one.path for one in drawn(tmp_path, [], 8, 1, "a")} == {"a.py"}


def test_every_mutant_of_a_module_of_ours_is_another_program():
    """Each changed file is Python, and says something else."""
    source = Path(selectrie.tokenization.healing.__file__).read_bytes()
    found = list(mutants_of("healing.py", source))
    original = ast.dump(ast.parse(source))
    assert len(found) > 50
    assert [one.name for one in found if ast.dump(ast.parse(one.applied(source))) == original] == []


def test_cheap_tests_go_first_and_dear_ones_are_left_out():
    """What a file's import and a shared fixture cost is paid once."""
    tests = [
        Reaching("dear", "a", 9.0, 1.0),
        Reaching("two", "a", 0.02, 1.0, {"model": 3.0}),
        Reaching("one", "a", 0.01, 1.0, {"model": 3.0}),
        Reaching("cheap", "b", 0.1, 0.5),
    ]
    assert [test.name for test in in_order(tests, 5.0)] == ["cheap", "one", "two"]
    assert [test.name for test in in_order(tests, 4.5)] == ["cheap"]


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [
        ([{"test": "a", "cpu_s": 1.0}, {"failed": "a", "why": "no", "cpu_s": 1.0}], 1, (KILLED, "a")),
        ([{"test": "a", "cpu_s": 1.0}, {"finished": True, "cpu_s": 2.0}], 0, (SURVIVED, None)),
        ([{"test": "a", "cpu_s": 1.0}], -signal.SIGABRT, (KILLED, "a")),
        ([], 4, (KILLED, "collecting")),
        ([{"test": "a", "cpu_s": 1.0}], -signal.SIGXCPU, (TIMEOUT, "a")),
        ([{"test": "a", "cpu_s": 9.0}], -signal.SIGXCPU, (SURVIVED, None)),
        ([{"test": "a", "cpu_s": 9.0}], None, (TIMEOUT, "a")),
    ],
    ids=["failed", "passed", "aborted", "not imported", "hangs", "begun late", "waits"],
)
def test_what_the_end_of_a_process_means(said, status, expected):
    """A test that the CPU limit ends hangs if it took much longer than usual: here one
    second, with a limit of ten."""
    found = verdict(said, status, {"a": 1.0}, 10.0)
    assert (found["verdict"], found.get("by")) == expected


def test_a_process_that_waits_for_ever_is_ended(tmp_path):
    """It uses no CPU time, so its waiting is counted."""
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("import threading\ndef test_a(): threading.Event().wait()\n")
    place = Place(Options(tmp_path, 1, 30.0, 1.0), tmp_path / "place")
    progress = tmp_path / "progress"
    request = {"tests": ["tests/test_a.py::test_a"], "soft_s": 30.0, "progress": str(progress)}
    status = place.run("run", {**request, "pytest": [*place.pytest_arguments(), "tests/test_a.py"]}, 30.0, 1.0)
    assert status is None
    assert json.loads(progress.read_text().splitlines()[0])["test"] == "tests/test_a.py::test_a"


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A toy project after a run, and what the run printed."""
    pytest.importorskip("coverage")
    root = tmp_path_factory.mktemp("toy")
    for name, text in {
        "src/toy.py": TOY,
        "tests/test_toy.py": TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


def run(root, capsys, *arguments: str) -> list[str]:
    """Lines that the tool prints."""
    assert main(["--root", str(root), "--seed", "2", "--count", "4", "--jobs", "1", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_mutant_that_a_test_notices_is_killed_and_another_survives(judged, capsys):
    """Of a toy package; what a fixture reaches, every test that uses it reaches. Verdicts are
    kept, and what is missing or torn is judged anew."""
    printed = run(judged, capsys)
    assert printed[-3:] == [
        "# 4 mutants: 2 killed, 1 survived, 1 no test reaches it",
        "src/toy.py:5 constant: 0 → (-1)  [1 of 1 tests]",
        "src/toy.py:8 condition: least(()) → (not (least(())))  [no test reaches it]",
    ]
    record = judged / "build/mutants/results.jsonl"
    said = [json.loads(line) for line in record.read_text().splitlines() if line]
    by = "tests/test_toy.py::test_larger"
    assert {(one["after"], one["verdict"], one.get("by")) for one in said} == {
        ("min", KILLED, by),
        ("None", KILLED, by),
        ("(-1)", SURVIVED, None),
        ("(not (least(())))", UNREACHED, None),
    }
    assert (judged / "src/toy.py").read_text() == TOY
    assert run(judged, capsys)[1:] == printed[-3:]
    lines = [line for line in record.read_text().splitlines() if UNREACHED not in line]
    record.write_text("\n".join(lines) + '\n{"key": "to')
    assert run(judged, capsys)[1:] == [f"4/4 {UNREACHED}: {printed[-1].split('  [')[0]}", *printed[-3:]]
