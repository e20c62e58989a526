"""`--trace`, `-m TRACE` and `selectrie replay`, on a fake model that `-m` stands for."""

from __future__ import annotations

import json
import stat

import pytest
from typer.testing import CliRunner

from selectrie.cli import app, requests
from selectrie.traces.blocks import is_trace
from selectrie.traces.reader import read_trace
from selectrie.traces.records import Note
from tests.support.traced import engine_of, hash_model
from tests.traces.test_reader import written

SELECT = ["select", "-p", "a cat", "-c", " cat", "-c", " bat"]


@pytest.fixture(autouse=True)
def model(monkeypatch):
    """Commands open a fake in place of the default model; traces are opened as they are."""
    opened = requests.open_engine

    def open_engine(group):
        return engine_of(hash_model()) if group.model is None else opened(group)

    monkeypatch.setattr(requests, "open_engine", open_engine)


def run(*arguments, code=0, stdin=None):
    """The result of a command, which ends with this exit code."""
    result = CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


def plain(text):
    """A report without its cost and the name of the default model."""
    return [line for line in text.splitlines() if not line.startswith(("cost", "model", " " * 11))]


def fields(text):
    """The object that a command printed, without its cost and what the clock says."""
    return json.loads(
        text, object_hook=lambda one: {k: v for k, v in one.items() if k not in ("cost", "id", "created", "model")}
    )


COMMANDS = {
    "select": SELECT,
    "rank": ["rank", *SELECT[1:], "--top", "2", "--rule", "token_mean"],
    "regex": ["select", "-p", "a cat", "--regex", " (cat|bat)s?"],
    "escapes": ["select", "-p", r"a\ncat", "--escapes", "-c", r"\tcat", "-c", "bat"],
    "score": ["score", "-p", "a cat", "-t", " bat", "--per-token"],
    "generate": ["generate", "-p", "a cat", "-n", "2", "--seed", "1", "--max-tokens", "4", "--full-rows"],
    "greedy": ["generate", "-p", "a cat", "--temperature", "0", "--max-tokens", "4", "--seed", "1"],
    "beam": ["beam", "-p", "a cat", "--regex", " (cat|bat)", "--full-rows"],
    "decide": ["decide", "--state", "It broke!", "--predicate", "angry=They are angry."],
    "arguments": ["decide", "It broke!", "What?", "--choices", "a,b"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_recorded_command_runs_again(name, tmp_path):
    """The report is the same, but for seconds, and so is the JSON."""
    trace = tmp_path / "run.trace"
    first = run(*COMMANDS[name], "--trace", trace)
    assert (
        first.stderr
        == f"trace: {trace} holds the prompt and all texts of this command; look at it before you share it\n"
    )
    again = run("replay", trace)
    assert plain(again.stdout) == plain(first.stdout)
    assert again.stderr == ""
    as_json = [one for one in COMMANDS[name] if one != "--per-token"]
    assert fields(run("replay", trace, "--json").stdout) == fields(run(*[*as_json, "--json", "--trace", trace]).stdout)


def test_arguments_are_standard_input_or_a_file_of_questions(tmp_path):
    """A text on standard input is in the trace; a file of questions is not, and is not read again."""
    trace, questions = tmp_path / "run.trace", tmp_path / "q.toml"
    first = run("decide", "-", "Is it broken?", "--trace", trace, stdin="It broke!\n")
    assert plain(run("replay", trace).stdout) == plain(first.stdout)
    questions.write_text('[angry]\ntype = "predicate"\ninstructions = "They are angry."\n')
    run("decide", "It broke!", questions, "--trace", trace)
    assert "is not in the trace" in run("replay", trace, code=2).stderr


def test_questions_on_standard_input_are_in_the_trace(tmp_path):
    """A replay asks them, whatever its own standard input has."""
    trace = tmp_path / "run.trace"
    questions = '{"angry": {"type": "predicate", "instructions": "They are angry."}}'
    first = run("decide", "It broke!", "-", "--trace", trace, stdin=questions)
    assert plain(run("replay", trace, stdin=questions.replace("angry", "happy")).stdout) == plain(first.stdout)


def test_recording_is_off_unless_it_is_asked_for(tmp_path):
    """The output of a command is the same with a trace; without one there is no file."""
    assert plain(run(*SELECT).stdout) == plain(run(*SELECT, "--trace", tmp_path / "t").stdout)
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
    assert stat.S_IMODE((tmp_path / "t").stat().st_mode) == 0o600


def test_files_and_standard_input_are_in_the_trace(tmp_path):
    """A replay reads them from there, also if they are gone."""
    choices, trace = tmp_path / "choices.txt", tmp_path / "run.trace"
    choices.write_text(" cat\n bat\n")
    first = run("select", "--choices", choices, "--trace", trace, stdin="a cat\n")
    choices.unlink()
    assert plain(run("replay", trace, stdin="something else").stdout) == plain(first.stdout)


def test_a_trace_takes_the_place_of_a_model(tmp_path):
    """`-m` names it; options of a model are refused, and what is missing is named."""
    trace = tmp_path / "run.trace"
    first = run(*SELECT, "--trace", trace)
    assert plain(run(*SELECT, "-m", trace).stdout) == plain(first.stdout)
    assert (
        "--precision is not an option of the back end trace"
        in run(*SELECT, "-m", trace, "--precision", "fast", code=2).stderr
    )
    assert "error[missing_text]" in run("select", "-p", "the", "-c", "a", "-c", "b", "-m", trace, code=3).stderr
    refused = run(*SELECT, "-m", trace, "--trace", tmp_path / "t", code=2).stderr
    assert "--trace cannot be combined with the trace" in refused
    assert "give the model itself with --model" in refused
    assert not (tmp_path / "t").exists()


def test_sampling_asks_for_whole_rows(tmp_path):
    """The error names the option; nothing was run."""
    result = run("generate", "-p", "a cat", "--seed", "1", "--trace", tmp_path / "t", code=2)
    assert "leaving out --full-rows cannot be combined with a request" in result.stderr
    assert "record with --full-rows" in result.stderr
    run(*SELECT, "--trace", tmp_path / "few")
    refused = run("generate", "-p", "a cat", "--seed", "1", "-m", tmp_path / "few", code=2)
    assert "record the trace with --full-rows" in refused.stderr


def test_whole_rows_are_for_a_trace(tmp_path):
    """`--full-rows` alone is refused, and nothing is said of a trace."""
    result = run(*SELECT, "--full-rows", code=2)
    assert "--trace is not given; give a file that --full-rows is for, or leave --full-rows out" in result.stderr


def test_nothing_is_said_of_a_trace_that_is_not_written(tmp_path):
    """Another file of that name is refused, and keeps what it holds."""
    (tmp_path / "mine.txt").write_text("mine")
    result = run(*SELECT, "--trace", tmp_path / "mine.txt", code=2)
    assert "holds the prompt" not in result.stderr
    assert (tmp_path / "mine.txt").read_text() == "mine"


FAILING = {
    "an option": ["select", "-p", "a cat", "-c", ""],
    "a token": ["select", "--token-ids", "1,999999", "-c", " cat", "-c", " bat"],
    "a flag": ["generate", "-p", "a cat", "--temperature", "0", "--logit-bias", "999999=1"],
}


@pytest.mark.parametrize("name", FAILING)
def test_a_command_that_failed_fails_again(name, tmp_path):
    """A replay ends with the same line and exit code, and shows no listing."""
    trace = tmp_path / "run.trace"
    result = CliRunner().invoke(app, [*FAILING[name], "--trace", str(trace)])
    said, *error = result.stderr.splitlines(keepends=True)
    assert "holds the prompt" in said
    assert result.exit_code > 0
    again = run("replay", trace, code=result.exit_code)
    assert (again.stderr, again.stdout) == ("".join(error), "")


def test_what_a_trace_holds_is_listed(tmp_path):
    """Model, requests and prompts; also of a trace without a command, or a torn one."""
    trace = tmp_path / "run.trace"
    run(*SELECT, "--trace", trace)
    listed = run("replay", trace, "--list").stdout
    assert "hash-7" in listed
    assert "<bos>" not in listed
    assert "a cat" in listed
    summary = json.loads(run("replay", trace, "--list", "--json").stdout)
    assert [(one["kind"], one["rows_from"]) for one in summary["tasks"]] == [("ScoreTask", "main")]
    assert summary["is_complete"]
    torn = tmp_path / "torn.trace"
    torn.write_bytes(trace.read_bytes()[:-1])
    result = run("replay", torn, "--list")
    assert result.stderr == f"trace: {torn} is torn: its end is missing\n"
    read = read_trace(trace)
    bare = written(tmp_path / "bare.trace", [read.header, *read.tokens, read.specials])
    assert "hash-7" in run("replay", bare).stdout


def test_files_that_are_no_trace_are_refused(tmp_path):
    """A missing file, and one that is something else."""
    (tmp_path / "other").write_text("text")
    for name in ("missing", "other"):
        assert "error[trace_file]" in run("replay", tmp_path / name, code=3).stderr
        assert not is_trace(tmp_path / name)


def noted(tmp_path, command):
    """A trace whose command is this text."""
    run(*SELECT, "--trace", tmp_path / "run.trace")
    read = read_trace(tmp_path / "run.trace")
    return written(tmp_path / "noted.trace", [read.header, *read.tokens, read.specials, Note("command", command)])


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("[", "its command is damaged"),
        ("[" * 100_000, "its command is damaged"),
        ("[]", "its command is damaged"),
        ('{"name": "select"}', "its command is damaged"),
        ('{"name": "select", "options": {}, "files": {"-": 1}}', "its command is damaged"),
        (
            '{"name": "serve", "options": {}, "files": {}}',
            "its command 'serve' cannot be run again; give it again, with -m",
        ),
        ('{"name": "select", "options": {"prompt": 1}, "files": {}}', "--prompt has the wrong type"),
        ('{"name": "select", "options": {"choice": [1]}, "files": {}}', "--choice has the wrong type"),
        ('{"name": "select", "options": {"top": true}, "files": {}}', "--top has the wrong type"),
        ('{"name": "select", "options": {"grammar": "/etc/passwd"}, "files": {}}', "it read --grammar"),
        ('{"name": "generate", "options": {"draft": "x.gguf"}, "files": {}}', "it read --draft"),
        ('{"name": "decide", "options": {"out": "x"}, "files": {}}', "it read --out"),
        ('{"name": "decide", "options": {"template": "/etc/passwd"}, "files": {}}', "it read --template"),
        ('{"name": "decide", "options": {"type": "/tmp/code.py:Class"}, "files": {}}', "it read --type"),
    ],
)
def test_a_strangers_command_touches_no_file(command, reason, tmp_path):
    """What could read or write another file, or is no command, is refused."""
    assert reason in run("replay", noted(tmp_path, command), code=3).stderr


def test_a_strangers_command_reads_no_file(tmp_path):
    """A file that is not in the trace is not read, although it is there."""
    secret = tmp_path / "secret"
    secret.write_text("a cat")
    command = {"name": "select", "options": {"prompt_file": str(secret), "choice": [" cat"]}, "files": {}}
    assert "is not in the trace" in run("replay", noted(tmp_path, json.dumps(command)), code=2).stderr
    command["options"]["trace"] = str(tmp_path / "new")
    command["files"] = {str(secret): "a cat"}
    run("replay", noted(tmp_path, json.dumps(command)), code=3)
    assert not (tmp_path / "new").exists()
