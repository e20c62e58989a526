"""What is the caller's or the system's fault is not told as a fault of selectrie (exit code 70)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import selectrie
from selectrie.cli import app, inputs
from selectrie.errors import InputFileError, OptionError, SelectrieError
from selectrie.evaluation.dataset import read_data
from selectrie.evaluation.runner import check_folder, read_run
from selectrie.evaluation.tasks import load_task
from selectrie.options import BeamSearchParams
from selectrie.options.sampling import MAX_PENALTY
from selectrie.template.analysis.template import Template

ROOT = Path(__file__).resolve().parents[2]
LIST = ["grammar", "list"]
SELECT = ["select", "-p", "p", "-c", "a", "-c", "b"]
NINES, DEEP = "9" * 5_000, "[" * 100_000


def shell(command: str, *args: str) -> tuple[int, str]:
    """Exit code and standard error of the command with redirections; its standard error
    is kept apart from what it redirects."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = ["/bin/sh", "-c", f'exec "$@" {command}', "sh", sys.executable, "-m", "selectrie", *args]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, stdin=subprocess.DEVNULL)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("redirection", "args", "expected"),
    [
        (">/dev/full", ["--help"], (2, "error[output]: standard output cannot be written: No space left on device\n")),
        (">/dev/full", LIST, (2, "error[output]: standard output cannot be written: No space left on device\n")),
        (">&-", SELECT, (2, "error[output]: standard output cannot be written: it is closed\n")),
        (">&- 2>&-", SELECT, (2, "")),
        ("2>&- >/dev/null", LIST, (0, "")),
    ],
)
def test_streams_that_cannot_be_written(redirection: str, args: list[str], expected: tuple[int, str]):
    """Full and closed standard output are the system's; without standard error the answer is the same."""
    assert shell(redirection, *args) == expected


def test_closed_standard_input_holds_no_prompt():
    """As if nothing had been piped; where standard input is named, it is named."""
    code, said = shell("<&-", "select", "-c", "a")
    assert (code, said[:25]) == (2, "error[prompt]: no prompt:")
    expected = "error[input_file]: -: standard input is closed\n"
    assert shell("<&-", "select", "-p", "p", "--choices", "-") == (2, expected)


def test_a_help_text_that_nobody_reads_is_done():
    """A closed pipe is silent before a command begins, too."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "selectrie", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    try:
        done = subprocess.run(command, check=False, stdout=write, stderr=subprocess.PIPE, env=environment)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ([*SELECT, "--template-arg", f"k={DEEP}"], "option"),
        ([*SELECT, "--template-arg", f"k={NINES}"], "option"),
        (["select", "--token-ids", f"1,{NINES}", "-c", "a"], "option"),
        (["select", "--token-ids", "1,99999999999", "-c", "a"], "option"),
        ([*SELECT, "-m", "x" * 10_000], "model_file"),
        ([*SELECT, "--choices", "x" * 10_000], "input_file"),
        (["select", "-p", "p", "--grammar", "x" * 10_000 + ".gbnf"], "input_file"),
        (["beam", "-p", "p", "--regex", "a", "--length-penalty", "1e308"], "option"),
        (["render", "x" * 10_000], "input_file"),
        (["eval", "x" * 10_000 + ".csv"], "input_file"),
        (["eval", "report", "x" * 10_000], "input_file"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else value,
)
def test_values_of_options_are_the_callers(args: list[str], code: str):
    """Numbers of thousands of digits, JSON nested too deeply, names that are too long: one line, before a model is loaded."""
    result = CliRunner().invoke(app, args, prog_name="selectrie")
    assert (result.exit_code, result.stdout) == (3 if code == "model_file" else 2, "")
    assert result.stderr.startswith(f"error[{code}]: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e400", "-1", "true", '"1"'])
def test_a_prior_that_is_no_number_is_refused(tmp_path: Path, number: str):
    """Whole numbers beyond every float too."""
    path = tmp_path / "prior.json"
    path.write_text(f'{{"a": {number}}}')
    with pytest.raises(InputFileError, match="is not a probability"):
        inputs.read_prior(str(path), ["a"])


def test_a_length_penalty_is_bounded():
    """As many tokens as there may be, to this power, are a float."""
    assert BeamSearchParams(length_penalty=MAX_PENALTY).length_penalty == MAX_PENALTY
    assert float(sys.maxsize) ** MAX_PENALTY < float("inf")
    with pytest.raises(OptionError, match="length_penalty"):
        BeamSearchParams(length_penalty=MAX_PENALTY + 1)


@pytest.mark.parametrize("name", ["x" * 10_000, "a/" * 3_000, "a\0b", "\ud800", "/dev/null/x"], ids=ascii)
def test_no_file_name_is_an_error_of_ours(name: str):
    """Too long, with a null character, with half a character, below a file: errors of the tree, by every reader."""
    reads = [
        selectrie.load,
        selectrie.Grammar.from_file,
        lambda name: selectrie.Grammar.from_file(f"{name}.gbnf"),
        Template.from_file,
        lambda name: read_data(Path(f"{name}.jsonl")),
        lambda name: load_task(f"{name}.toml"),
        lambda name: read_run(Path(name)),
        lambda name: check_folder(Path(name), {}),
        inputs.read_choices,
    ]
    for read in reads:
        with pytest.raises(SelectrieError):
            read(name)


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("suffix", "content", "read", "expected"),
    [
        ("txt", b"a\nb\n", inputs.read_choices, ["a", "b"]),
        ("json", b'["a"]', inputs.read_choices, ["a"]),
        ("txt", b"a\n", inputs.read_prompt, "a"),
        ("jsonl", b'"a"\n"b"\n', inputs.read_prompts, ["a", "b"]),
        ("json", b'{"a": 1}', inputs.read_values, {"a": 1}),
        ("jsonl", b'{"a": 1}\n', inputs.read_rows, [{"a": 1}]),
        ("tmpl", b"a b", lambda path: Template.from_file(path).slots, ()),
        ("gbnf", b'root ::= "a"', lambda path: list(selectrie.Grammar.from_file(path).expand()), ["a"]),
        ("lark", b'start: "a"', lambda path: list(selectrie.Grammar.from_file(path).expand()), ["a"]),
        ("json", b'{"const": 1}', lambda path: list(selectrie.Grammar.from_file(path).expand()), ["1"]),
        ("tsv", b"a\tb\n1\t2\n", lambda path: dict(read_data(Path(path)).records[0].fields), {"a": "1", "b": "2"}),
        ("jsonl", b'{"a": 1}\n', lambda path: dict(read_data(Path(path)).records[0].fields), {"a": 1}),
    ],
)
def test_a_byte_order_mark_is_no_text(tmp_path: Path, suffix: str, content: bytes, read, expected):
    """Editors write one before files of every kind; what is read is the same with it."""
    for begin in (b"", BOM):
        path = tmp_path / f"file.{suffix}"
        path.write_bytes(begin + content)
        assert read(str(path)) == expected


def test_a_task_and_a_tried_text_may_begin_with_a_byte_order_mark(tmp_path: Path):
    """TOML files, and what `grammar accepts` is given."""
    task = tmp_path / "own.toml"
    shipped = (ROOT / "src/selectrie/evaluation/tasks_data/piqa.toml").read_bytes()
    task.write_bytes(BOM + shipped)
    assert load_task(str(task)).name == load_task("piqa").name
    text = tmp_path / "text"
    text.write_bytes(BOM + b"{}")
    result = CliRunner().invoke(app, ["grammar", "accepts", "json", "--text-file", str(text)])
    assert (result.exit_code, result.stdout) == (0, "yes\n")
