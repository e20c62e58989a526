"""`selectrie grammar`: what comes out, and how it ends. No model is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from selectrie.cli import app
from selectrie.cli.grammar import count_words, grammar_lines, open_grammar
from selectrie.grammar import Grammar, installed_names
from selectrie.grammar.analysis import Report


def run(*args: str, stdin: str | bytes | None = None) -> Result:
    """One command in this process."""
    return CliRunner().invoke(app, ["grammar", *args], input=stdin, prog_name="selectrie")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A grammar with a bit of everything: `selectrie grammar check` has much to say."""
    path = tmp_path / "g.gbnf"
    path.write_text('root ::= a "x" | "y" | e\na ::= root "z" | b\nb ::= b\ne ::= ""\nc ::= "c"\n')
    return path


@pytest.mark.parametrize("command", ["check", "accepts", "expand", "show", "list"])
def test_every_command_has_an_example(command: str):
    """The help shows a line to copy."""
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"  selectrie grammar {command}" in result.stdout


def test_check_tells_what_it_found(file: Path):
    """A line for each thing, the samples at the end."""
    result = run("check", str(file))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[:7] == [
        "grammar    g.gbnf, 5 rules",
        "language   infinitely many texts",
        "unused     c (the root does not lead there)",
        "no text    b (nothing matches)",
        "empty      e (the empty text alone matches)",
        "recursion  root -> a -> root (left recursion, rewritten)",
        "recursion  b -> b (left recursion, rewritten)",
    ]
    samples = result.stdout.splitlines()[7:]
    assert samples[0].startswith("texts      '")
    assert result.stderr == ""


def test_check_as_json_is_the_report(file: Path):
    """The same fields, with the format and the grammar's name."""
    found = json.loads(run("check", str(file), "--json", "--seed", "4").stdout)
    assert (found.pop("format"), found.pop("kind"), found.pop("grammar")) == (2, "grammar_check", "g.gbnf")
    assert found == Grammar.from_file(file).check(seed=4).to_dict()


def test_strict_check_fails_on_problems(file: Path):
    """Exit 2 and a line on stderr; the report is there all the same."""
    result = run("check", str(file), "--strict")
    assert (result.exit_code, result.stderr) == (2, "error[unsound]: the grammar has problems (--strict)\n")
    assert result.stdout.startswith("grammar    g.gbnf")
    assert run("check", "json", "--strict").exit_code == 0


def test_a_grammar_without_texts_is_a_report_too(tmp_path: Path):
    """It says why; only what cannot be read is an error."""
    path = tmp_path / "n.gbnf"
    path.write_text('root ::= "a" root')
    result = run("check", str(path))
    assert result.exit_code == 0
    assert "refused    no text matches 'root'" in result.stdout


def test_a_mistake_in_a_grammar_is_shown_with_its_line(tmp_path: Path):
    """The message on one line, the line of the grammar, the caret; nothing on stdout."""
    path = tmp_path / "bad.gbnf"
    path.write_text('root ::= "a"\n  | "b"')
    result = run("check", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    message, line, caret = result.stderr.splitlines()
    assert message.startswith(f"error[grammar]: line 2, column 3: {path}: expected a rule's name or the end, found '|'")
    assert (line, caret) == ('    | "b"', "    ^")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("north 3", ["yes"]),
        ("north 0", ["no: character 7: '0' is not allowed here", "  north 0", "        ^ expected '1'…'9'"]),
        (
            "north",
            ["unfinished: the text is allowed so far, and something must follow", "  north", "       ^ expected ' '"],
        ),
        ("stop!", ["no: character 5: '!' is not allowed here", "  stop!", "      ^ expected the end"]),
        ("st\n", ["no: character 3: '\\n' is not allowed here", "  st␤", "    ^ expected 'o'"]),
    ],
)
def test_accepts_shows_the_place(text: str, expected: list[str]):
    """The verdict, the text with a caret, and what could stand there; exit 0 for yes, 1 for no and for unfinished."""
    code = 0 if expected == ["yes"] else 1
    result = run("accepts", "move", text)
    assert (result.exit_code, result.stdout.splitlines(), result.stderr) == (code, expected, "")
    assert run("accepts", "move", text, "--json").exit_code == code


def test_accepts_has_no_strict():
    """Its exit code always says what the verdict is."""
    assert "No such option: --strict" in run("accepts", "move", "stop", "--strict").stderr


def test_accepts_as_json():
    """Verdict, place and what is expected."""
    found = json.loads(run("accepts", "move", "go", "--json").stdout)
    assert found == {
        "format": 2,
        "kind": "verdict",
        "verdict": "no",
        "at": 0,
        "expected": ["'e'", "'n'", "'s'…'t'", "'w'"],
    }


def test_accepts_reads_files_as_they_are(tmp_path: Path):
    """Less one line end; from stdin too; exactly one place is given."""
    path = tmp_path / "text"
    path.write_text("stop\n\n")
    assert run("accepts", "move", "--text-file", str(path)).stdout.startswith("no: character 5: '\\n' is not allowed")
    for words in (["--text-file", "-"], ["-"]):
        assert run("accepts", "move", *words, stdin="stop\n").stdout == "yes\n"
    assert run("accepts", "move", "").stdout.startswith("unfinished")
    for words in ([], ["stop", "--text-file", str(path)]):
        result = run("accepts", "move", *words)
        assert result.exit_code == 2
        assert "either TEXT or --text-file" in result.stderr
    assert "byte 0xff is not UTF-8" in run("accepts", "move", "--text-file", "-", stdin=b"a\xff").stderr
    assert "No such file" in run("accepts", "move", "--text-file", str(tmp_path / "none")).stderr


def test_a_grammar_comes_from_stdin():
    """GBNF, or a JSON Schema by its first character; also where it is an option."""
    assert run("expand", "-", stdin='root ::= "a" | "b"').stdout == "a\nb\n"
    assert run("expand", "-", stdin='{"type": "boolean"}').stdout == "true\nfalse\n"
    beam = ["beam", "-p", "p", "-n", "1", "--json", "--grammar", "-"]
    result = CliRunner().invoke(app, beam, input='root ::= "no"', prog_name="selectrie")
    assert json.loads(result.stdout)["hypotheses"][0]["text"] == "no"


def test_expand_writes_a_text_a_line(tmp_path: Path):
    """Shortest first; line ends inside a text are escaped, in JSON they are what JSON has for them."""
    assert run("expand", "move", "--limit", "3").stdout.splitlines() == ["stop", "east 1", "east 2"]
    assert len(run("expand", "move").stdout.splitlines()) == 39
    path = tmp_path / "lines.gbnf"
    path.write_text(r'root ::= "a\n" | "\t\\"')
    assert run("expand", str(path)).stdout == "\\t\\\\\na\\n\n"
    assert json.loads(run("expand", str(path), "--json").stdout)["texts"] == ["\t\\", "a\n"]


def test_expand_of_an_infinite_grammar_needs_a_limit():
    """The mistake names what to give."""
    result = run("expand", "json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "limit is not given; give a number, as json has infinitely many texts" in result.stderr


def test_list_and_show_bring_the_installed_ones():
    """Name and what it accepts; shown with its header, and that parses."""
    lines = run("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(installed_names())
    assert all(len(line.split(maxsplit=1)[1]) > 10 for line in lines)
    names = [entry["name"] for entry in json.loads(run("list", "--json").stdout)["grammars"]]
    assert names == list(installed_names())
    shown = run("show", "iso-date").stdout
    assert shown.startswith("# iso-date: ")
    assert Grammar.from_gbnf(shown).digest == Grammar.load("iso-date").digest


def test_show_prints_files_as_gbnf(file: Path):
    """Rule by rule, the root first."""
    assert run("show", str(file)).stdout.splitlines()[0] == 'root ::= a "x" | "y" | e'


def test_what_looks_like_a_file_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By its ending or a folder in it; a bare name is an installed grammar's, whatever else is called so."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json").mkdir()
    (tmp_path / "move").write_text("root ::= ")
    (tmp_path / "mine").write_text("root ::= ")
    assert [open_grammar(name).name for name in ("json", "move")] == ["json", "move"]
    assert "No such file" in run("check", "json.gbnf").stderr
    assert "No such file" in run("check", "x/json").stderr
    assert (
        "mine: unknown file extension; a grammar file ends in one of .gbnf, .lark, .json" in run("check", "mine").stderr
    )
    assert ".: Is a directory" in run("check", ".").stderr


@pytest.mark.parametrize("name", ["nothing", "", "a" * 5000])
def test_a_name_of_nothing_is_told_what_could_stand_there(name: str):
    """Files by their endings, and the installed grammars."""
    result = run("check", name)
    assert result.exit_code == 2
    assert "expected a file (.gbnf, .lark, .json), or the name of an installed grammar: arithmetic" in result.stderr


def test_the_text_of_a_grammar_is_no_file():
    """However long it is, and whatever is in it."""
    result = run("check", 'root ::= "a/b"' + " # so" * 1000)
    assert result.exit_code == 2
    assert "this is the text of a grammar: put it in a .gbnf file" in result.stderr


@pytest.mark.parametrize(
    ("base", "power", "less", "words"),
    [
        (0, 1, 0, "0"),
        (39, 1, 0, "39"),
        (3_652_059, 1, 0, "3 652 059"),
        (10, 12, 1, "999 999 999 999"),
        (10, 12, 0, "about 1.0e+12"),
        (26, 4_000, 0, "about 7.8e+5659"),
        (10, 5_000, 0, "about 1.0e+5000"),
        (10, 5_000, 1, "about 1.0e+5000"),
        (2, 50, 0, "about 1.1e+15"),
    ],
)
def test_numbers_of_texts_are_written_at_any_size(base: int, power: int, less: int, words: str):
    """Exactly as far as somebody would read it, then rounded; Python itself refuses to write more than 4 300 digits."""
    assert count_words(base**power - less) == words


def test_long_lists_of_rules_are_cut():
    """Twelve names, and how many more."""
    names = tuple(f"r{i}" for i in range(20))
    assert "r11 and 8 more (the root" in "\n".join(grammar_lines("g", Report(n_rules=20, unreachable=names)))
