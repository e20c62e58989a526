"""`select` and `generate` under a grammar, from the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from selectrie.cli.commands import app
from selectrie.grammar import Grammar


@pytest.fixture(scope="module")
def cli():
    return CliRunner()


def test_select_lists_a_finite_grammar(cli):
    """Its texts are the choices, and the certificate is that of a list."""
    done = cli.invoke(app, ["select", "-p", "Once upon a", "--regex", " (time|day)", "--json", "--threads", "1"])
    found = json.loads(done.output)
    assert [one["text"] for one in found["choices"]] == [" day", " time"]
    assert (found["text"], found["certificate"]["nodes_inner"], "grammar" in found) == (" time", 1, False)


def test_select_searches_an_infinite_one(cli):
    """The best of infinitely many, with what the proof is about."""
    arguments = ["--regex", " (time|day)+", "--max-tokens", "3", "--any-path", "--json", "--threads", "1"]
    found = json.loads(cli.invoke(app, ["select", "-p", "Once upon a", *arguments]).output)
    assert found["text"] == " time"
    assert found["certificate"]["proved"]
    assert (found["grammar"]["about"], found["grammar"]["max_tokens"]) == ("token paths", 3)


def test_generate_keeps_to_a_grammar(cli, tmp_path):
    """Every sequence that ended is one of its texts; a JSON Schema and a file do as well as a pattern."""
    path = tmp_path / "word.gbnf"
    path.write_text('root ::= " " ("cat" | "dog") "s"?')
    done = cli.invoke(
        app, ["generate", "-p", "A", "--grammar", str(path), "-n", "3", "--seed", "1", "--json", "--threads", "1"]
    )
    grammar = Grammar.from_file(path)
    completions = json.loads(done.output)["completions"]
    assert len(completions) == 3
    assert all(grammar.accepts(one["text"]) for one in completions)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["select", "-p", "x", "--regex", "a", "-c", "b"], "choice"),
        (["select", "-p", "x", "--regex", "a", "--grammar", "json"], "'--grammar, --regex': expected only one of"),
        (["select", "-p", "x", "--lark", "none.lark"], "error[input_file]: none.lark: No such file"),
        (["select", "-p", "x", "--json-schema", __file__], f"{__file__}: the schema is not JSON"),
        (["select", "-p", "x", "--regex", "("], "column"),
        (["generate", "-p", "x", "--regex", "a", "-c", "b"], "--choice cannot be combined with a grammar"),
    ],
)
def test_a_mistake_is_told(cli, arguments, named):
    """Before the model is loaded, naming what is wrong."""
    done = cli.invoke(app, arguments)
    assert done.exit_code != 0
    assert named in f"{done.output}{done.exception}"
