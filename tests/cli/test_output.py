"""What reaches a terminal, a file and a pipe, and what happens where it cannot be written."""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from selectrie.cli import app
from selectrie.cli.show import to_json
from selectrie.core.output import flush, json_escaped, put, visible, write
from selectrie.errors import OutputError

SOURCE = Path(__file__).resolve().parents[2] / "src" / "selectrie"
EVIL = "\x1b]0;P\x07\x9b1m\u202ew\x08\x7f\u2066\u200f\u2028"
"""Sets a title, rings, begins a C1 sequence, turns the direction, deletes."""
STYLES = re.compile(r"\r?\x1b\[[0-9;?]*[mhlAK]")
"""What rich writes for colours and for a bar that moves; nothing in `EVIL` is like it."""


class Tty(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Full(io.StringIO):
    """A stream on a disk that is full."""

    def write(self, _: str) -> int:
        raise OSError(28, "No space left on device")


def at_terminal(monkeypatch: pytest.MonkeyPatch, *args: str) -> tuple[str, str]:
    """What a command writes on standard output and standard error where both are
    terminals, less the colours."""
    with monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm-256color")
        patch.delenv("NO_COLOR", raising=False)
        patch.setattr(sys, "stdout", Tty())
        patch.setattr(sys, "stderr", Tty())
        get_command(app)(list(args), prog_name="selectrie", standalone_mode=False)
        return STYLES.sub("", sys.stdout.getvalue()), STYLES.sub("", sys.stderr.getvalue())


def is_harmless(text: str) -> bool:
    """No control but line ends and tabs, no mark of direction."""
    return not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", text)


def test_a_terminal_sees_pictures_and_a_pipe_the_bytes():
    """One character for each, line ends and tabs kept; text that is not on its way to a terminal is unchanged."""
    assert visible("\x1b[2Ja\tb\n\x9b\x07é\r\u202e") == "␛[2Ja\tb\n\ufffd␇é␍\ufffd"
    assert len(visible(EVIL)) == len(EVIL)
    assert is_harmless(visible(EVIL))
    assert not is_harmless(EVIL)
    terminal, pipe = Tty(), io.StringIO()
    for stream in (terminal, pipe):
        write(EVIL, stream)
    assert (terminal.getvalue(), pipe.getvalue()) == (visible(EVIL) + "\n", EVIL + "\n")


def test_json_has_no_character_that_a_terminal_obeys():
    """C1 controls, DEL, direction marks and separators are escaped everywhere; what is read back is the same."""
    text = to_json({EVIL: ["é漢", EVIL]})
    assert is_harmless(text)
    assert json.loads(text) == {EVIL: ["é漢", EVIL]}
    assert json_escaped('"é\x9b\u202e"') == '"é\\u009b\\u202e"'


@pytest.fixture
def evil_files(tmp_path: Path) -> Path:
    """A folder of files whose names and contents would command a terminal."""
    (tmp_path / "t.tmpl").write_text(f"A {EVIL} <<select>>", encoding="utf-8")
    (tmp_path / "g.gbnf").write_text(f'root ::= "{EVIL}" oops', encoding="utf-8")
    (tmp_path / "c.txt").write_text(f"{EVIL}\nplain\n", encoding="utf-8")
    (tmp_path / "page.tmpl").write_text(f"A {EVIL}", encoding="utf-8")
    return tmp_path


def commands(folder: Path, model: Path) -> Iterator[list[str]]:
    """Commands that show a text of the caller's, in answers and in errors."""
    ask = ["-m", str(model), "--threads", "1", "-p", f"p{EVIL}", "--choices", str(folder / "c.txt")]
    for flag in ("--tsv", "--explain", "--json"):
        yield ["select", *ask, flag]
    yield ["tokens", *ask]
    yield ["score", "-m", str(model), "--threads", "1", "-p", "p", "-t", EVIL, "--per-token"]
    yield ["render", str(folder / "t.tmpl"), "--check"]
    yield ["render", str(folder / "page.tmpl"), "-m", str(model), "--threads", "1", "--var", "x=1"]
    yield ["grammar", "check", str(folder / "g.gbnf")]
    yield ["grammar", "accepts", "json", EVIL]
    yield ["select", "-m", str(folder / f"{EVIL}.gguf"), "-p", "p", "-c", "a"]
    yield ["select", "-p", "p", "--choices", EVIL]
    yield ["select", "-p", "p", "-c", "a", "--rule", EVIL]
    yield ["eval", EVIL]
    yield ["eval", "report", EVIL]


def test_no_command_commands_a_terminal(evil_files: Path, tiny_model, monkeypatch: pytest.MonkeyPatch):
    """Choices, excerpts of templates and grammars, file names and values in errors: all are made visible."""
    for args in commands(evil_files, tiny_model()):
        out, err = at_terminal(monkeypatch, *args)
        assert out or err, args
        assert is_harmless(out), args
        assert is_harmless(err), args


def test_wrong_usage_does_not_either(monkeypatch: pytest.MonkeyPatch):
    """What the reader of arguments complains of is written by the same function."""
    from selectrie.cli import entry

    monkeypatch.setattr(sys, "argv", ["selectrie", "select", f"--{EVIL}"])
    monkeypatch.setattr(sys, "stderr", Tty())
    with pytest.raises(SystemExit) as left:
        entry.run()
    assert left.value.code == 2
    assert "No such option" in sys.stderr.getvalue()
    assert is_harmless(sys.stderr.getvalue())


def test_a_pipe_has_every_byte_of_a_text(tmp_path: Path, evil_files: Path, tiny_model):
    """Escape sequences of a page reach a pipe as they are, colours too."""
    text = f"{EVIL}\x1b[31mred\x1b[0m"
    (tmp_path / "page.tmpl").write_text(text, encoding="utf-8")
    args = ["render", str(tmp_path / "page.tmpl"), "-m", str(tiny_model()), "--threads", "1"]
    assert CliRunner().invoke(app, args).stdout == text + "\n"


def test_no_color_is_no_style_at_all(monkeypatch: pytest.MonkeyPatch, tiny_model):
    """Bold is a style too; without the variable there are styles."""
    args = ["tokens", "-m", str(tiny_model()), "--threads", "1", "-p", "p", "-c", "a"]

    def written() -> str:
        monkeypatch.setattr(sys, "stdout", Tty())
        get_command(app)(args, prog_name="selectrie", standalone_mode=False)
        return sys.stdout.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1m" in written()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in written()


def printers(path: Path) -> list[str]:
    """Where a module writes past the one function: calls of print, echo, write on a
    stream, rich's own console, tracebacks."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        is_stream = isinstance(function, ast.Attribute) and ast.unparse(function.value) != "output"
        if (
            name in ("print", "echo", "secho", "Console", "print_exc", "print_exception", "get_console")
            or (name in ("write", "writelines") and is_stream)
        ) and not (name == "print" and ast.unparse(function) in ("screen.print", "console.print")):
            found.append(f"{path.stem}:{node.lineno} {ast.unparse(function)}")
    return found


def test_nothing_else_prints():
    """In the command only `selectrie.core.output` writes to a stream; screens of rich are made in one place."""
    modules = list((SOURCE / "cli").rglob("*.py"))
    assert len(modules) > 20
    assert [found for path in modules for found in printers(path)] == []
    assert "stream.write" in (SOURCE / "core" / "output.py").read_text()


@pytest.mark.parametrize(
    "line",
    ["print(1)", "typer.echo(1)", "sys.stdout.write('')", "file.writelines([])", "Console()", "traceback.print_exc()"],
)
def test_a_planted_print_is_found(tmp_path: Path, line: str):
    """The test above can fail."""
    (tmp_path / "planted.py").write_text(line)
    assert len(printers(tmp_path / "planted.py")) == 1


def test_output_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch):
    """Standard output raises; standard error has nobody left to tell; a closed stream takes nothing."""
    monkeypatch.setattr(sys, "stdout", Full())
    monkeypatch.setattr(sys, "stderr", Full())
    with pytest.raises(OutputError, match="standard output cannot be written: No space left on device"):
        put("a", sys.stdout)
    put("a", sys.stderr)
    monkeypatch.setattr(sys, "stdout", None)
    put("a", None)
    flush()
