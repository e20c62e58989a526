"""`selectrie beam`: what reaches the engine, and what comes out. The engine runs on a fake model."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from selectrie.cli import app, requests
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.options import BeamSearchParams
from selectrie.testing import HashModel, TableModel

PETS = 'root ::= "cat" | "bat"'


@pytest.fixture
def asked(monkeypatch):
    """What commands ask of an engine that they open instead of a model: (prompt, grammar, options)."""
    calls = []

    class Remembering(Engine):
        def beam_search(self, prompt, grammar, **options):
            calls.append((prompt, grammar, options))
            return super().beam_search(prompt, grammar, **options)

    def open_engine(_group):
        return Remembering(HashModel(3), check=SelfCheck(8, 0.0, 0.0))

    monkeypatch.setattr(requests, "open_engine", open_engine)
    return calls


def run(*arguments, code=0):
    """The result of the command, which ends with this exit code."""
    result = CliRunner().invoke(app, ["beam", "-p", "a ", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_options_reach_the_engine(asked, tmp_path):
    """Every option stands in the record that the engine gets."""
    path = tmp_path / "pets.gbnf"
    path.write_text(PETS)
    flags = "--width 6 -n 2 --max-tokens 9 --length-penalty 0.5 --groups 2 --diversity 0.25 --any-path --best-path"
    run("--grammar", str(path), *flags.split(), *["--terminator", "eog", "--budget", "50", "--incomplete"])
    [(prompt, grammar, options)] = asked
    assert (prompt, grammar.name) == ("a ", "pets.gbnf")
    assert options["beam"] == BeamSearchParams(
        width=6,
        n=2,
        max_tokens=9,
        length_penalty=0.5,
        groups=2,
        diversity=0.25,
        canonical_only=False,
        merge_equal_text=False,
        terminator="eog",
        budget_nodes=50,
        incomplete=True,
    )


@pytest.mark.parametrize(
    ("flag", "name", "text"),
    [
        ("--grammar", "pets.gbnf", PETS),
        ("--regex", None, "(cat|bat)"),
        ("--lark", "pets.lark", 'start: "cat" | "bat"'),
        ("--json-schema", "one.json", '{"const": 1}'),
    ],
)
def test_grammars_in_every_notation(asked, tmp_path, flag, name, text):
    """Each way of giving a grammar gives one that accepts its texts."""
    if name is not None:
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(
        app, ["beam", "-p", "a ", flag, str(tmp_path / name) if name else text, "--max-tokens", "6"]
    )
    if flag == "--json-schema":  # the fake has no digits
        assert (result.exit_code, "no text" in result.output) == (2, True)
    else:
        assert result.exit_code == 0, result.output
        assert "'cat'" in result.output or "'bat'" in result.output
    [(_, grammar, _)] = asked
    assert grammar.name == (name or "regex")


def test_the_table_and_the_tree(asked):
    """Facts, a row for each text, and with --explain the tree of their tokens."""
    shown = run("--regex", "(cat|bat)", "-n", "2", "--max-tokens", "6", "--best-path").output
    assert "best" in shown
    assert "1  '" in shown
    assert "2  '" in shown
    assert "(context)" not in shown
    assert "(context)" in run("--regex", "(cat|bat)", "--max-tokens", "6", "--explain").output


def test_what_was_broken_off_is_told(asked):
    """An incomplete answer is marked as such."""
    shown = run("--regex", "catcatcatcat", "--max-tokens", "2").output
    assert "! incomplete" in shown
    assert "…" in shown


def test_json_is_one_object(asked):
    """--json writes the fields of the result."""
    fields = json.loads(run("--regex", "(cat|bat)", "--max-tokens", "6", "--json").output)
    assert fields["kind"] == "beam"
    assert fields["hypotheses"][0]["text"] in ("cat", "bat")


def test_exact_proves(monkeypatch):
    """--exact names the proof."""
    model = TableModel({(): {"cat": 0.6, "bat": 0.3}}, prompt=("<bos>", "a"))
    monkeypatch.setattr(requests, "open_engine", lambda _group: Engine(model, check=SelfCheck(8, 0.0, 0.0)))
    arguments = ["beam", "-p", "a", "--regex", "(cat|bat)", "--boundary", "split", "--exact", "--max-tokens", "6"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "proved with" in result.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--grammar, --json-schema, --regex and --lark"),
        (["--regex", "a", "--grammar", "json"], "--grammar, --regex"),
        (["--regex", "a", "--width", "0"], "--width 0"),
        (["--regex", "a", "--json", "--explain"], "--json cannot be combined with --explain"),
        (["--regex", "a", "--exact", "--length-penalty", "1"], "--length-penalty cannot be combined with --exact"),
        (["--regex", "("], "error"),
        (["--lark", "missing.lark"], "missing.lark"),
        (["--grammar", "nonesuch"], "nonesuch"),
    ],
)
def test_mistakes_are_told_before_the_model_is_loaded(asked, arguments, told):
    """Exit 2, the value named, and no engine was asked."""
    assert told in run(*arguments, code=2).output
    assert asked == []
