"""`selectrie render`: values and files in, pages, streams, JSON and explanations out, and how it ends."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from typer.testing import CliRunner, Result

import selectrie
from selectrie import Engine, RenderParams
from selectrie.cli import app, inputs, requests
from selectrie.cli.report import terminal
from selectrie.cli.report.results import page_report
from selectrie.core.notation import percent, write_logp, written_tolerance
from selectrie.errors import InputFileError, OptionError

SHEET = """\
Name: <<name>>
Class: <<#select 'class'>>ranger<<or>>knight<</select>>
Armor: <<select 'armor' options=armors>>
"""
ARMORS = '["leather", "plate"]'
LEAVES = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = ("--var", "name=Aria", "--var", f"armors:={ARMORS}")


@pytest.fixture(scope="module")
def llm() -> Iterator[Engine]:
    """The model that comes with selectrie."""
    with selectrie.load(n_threads=1) as engine:
        yield engine


@pytest.fixture
def opened(llm: Engine, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What commands ask to be opened; they get `llm`, which stays open."""
    groups: list[object] = []

    @contextmanager
    def open_engine(group: object) -> Iterator[Engine]:
        groups.append(group)
        yield llm

    monkeypatch.setattr(requests, "open_engine", open_engine)
    return groups


@pytest.fixture
def sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A template file in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sheet.tmpl").write_text(SHEET)
    return "sheet.tmpl"


def run(*args: str, stdin: str | None = None, code: int = 0) -> Result:
    """The result of the command, which ends with this exit code."""
    result = CliRunner().invoke(app, ["render", *args], input=stdin, prog_name="selectrie")
    assert result.exit_code == code, result.output
    return result


def test_a_page_is_printed(opened, sheet):
    """Standard output is the page, its last line ended once; nothing is written beside it."""
    result = run(sheet, *VALUES)
    assert result.stdout.startswith("Name: Aria\nClass: ")
    assert result.stdout.splitlines()[2] in {"Armor: leather", "Armor: plate"}
    assert result.stdout.count("\n") == 3
    assert result.stderr == ""
    assert len(opened) == 1


def test_the_page_is_that_of_the_library(opened, sheet, llm):
    """Values, seed and chat template's arguments reach the engine."""
    template = selectrie.Template.from_file(sheet)
    page = llm.render(template, name="Aria", armors=json.loads(ARMORS), rendering=RenderParams(seed=3))
    shown = json.loads(run(sheet, *VALUES, "--seed", "3", "--json").stdout)
    assert shown["text"] == page.text
    assert shown["kind"] == "page"
    assert shown["seed"] == 3
    assert shown["values"] == dict(page.values)
    assert [slot["name"] for slot in shown["slots"]] == ["class", "armor"]


@pytest.mark.parametrize(
    ("items", "values"),
    [
        (["a=b"], {"a": "b"}),
        (["a= b ", "b=", "c=x=y:=z"], {"a": " b ", "b": "", "c": "x=y:=z"}),
        (["a:=3", "b:=[1, null]", 'c:="x"', "d:= true"], {"a": 3, "b": [1, None], "c": "x", "d": True}),
        (["a=1", "a:=2"], {"a": 2}),
        (["größe=x\ny"], {"größe": "x\ny"}),
    ],
)
def test_values_are_texts_or_json(items, values):
    """`=` takes the text as it is, `:=` reads JSON; the later one wins."""
    assert inputs.parse_values(items) == values


@given(st.from_regex(r"[^\W\d]\w{0,8}", fullmatch=True), st.text(), st.recursive(LEAVES, st.lists, max_leaves=5))
def test_every_text_and_every_json_value_can_be_given(name, text, value):
    """What stands behind `=` comes back as it was, and what stands behind `:=` as JSON reads it."""
    assert inputs.parse_values([f"{name}={text}"]) == {name: text}
    assert inputs.parse_values([f"{name}:={json.dumps(value)}"]) == {name: value}


@pytest.mark.parametrize("item", ["", "a", "=b", "1=b", "a b=c", "a.b=c", "a:=", "a:=x", "a:={", "a:=NaN", "a :=1"])
def test_what_is_no_value_is_refused(item):
    """A name, `=` and a text, or `:=` and JSON; nothing else."""
    with pytest.raises(OptionError, match="var="):
        inputs.parse_values([item])


def test_later_values_win(opened, sheet, tmp_path):
    """A file is over an earlier file, --var over files, a row over both."""
    (tmp_path / "a.json").write_text(f'{{"name": "A", "armors": {ARMORS}}}')
    (tmp_path / "b.json").write_text('{"name": "B"}')
    (tmp_path / "rows.jsonl").write_text('{"name": "D"}\n{}\n')
    files = ("--var-file", "a.json", "--var-file", "b.json")
    assert run(sheet, *files).stdout.startswith("Name: B\n")
    assert run(sheet, "--var", "name=C", *files).stdout.startswith("Name: C\n")
    rows = run(sheet, "--var", "name=C", *files, "--table", "rows.jsonl").stdout
    assert [line for line in rows.splitlines() if line.startswith("Name")] == ["Name: D", "Name: C"]


def test_a_page_is_made_of_every_row_of_a_table(opened, sheet, tmp_path):
    """Values of CSV are texts; stdin has the form of its first line."""
    (tmp_path / "rows.csv").write_text("name,note\nD,1\nE,2\n")
    args = (sheet, "--var", f"armors:={ARMORS}", "--json")
    pages = run(*args, "--table", "rows.csv").stdout
    assert [json.loads(line)["text"].splitlines()[0] for line in pages.splitlines()] == ["Name: D", "Name: E"]
    for name, text in (("rows.csv", "name\nD\n"), ("rows.jsonl", '{"name": "D"}\n')):
        (tmp_path / name).write_text(text)
        piped = run(*args, "--rows", "-", stdin=text).stdout
        assert json.loads(piped)["text"] == json.loads(run(*args, "--table", name).stdout)["text"]


def test_rows_are_pages_in_their_order(opened, sheet, tmp_path):
    """Each page stands below a line with its number; with --json a line holds one."""
    names = ["Aria", "Bo", "Cid"]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"name": name}) + "\n" for name in names))
    args = (sheet, "--var", f"armors:={ARMORS}", "--table", "rows.jsonl")
    plain, lines = run(*args).stdout, run(*args, "--json").stdout.splitlines()
    pages = [json.loads(line) for line in lines]
    assert [page["values"]["class"] in {"ranger", "knight"} for page in pages] == [True] * 3
    assert plain == "".join(f"--- row {at}\n{page['text']}" for at, page in enumerate(pages))
    assert [page["text"].splitlines()[0] for page in pages] == [f"Name: {name}" for name in names]


def test_a_stream_is_the_page(opened, sheet):
    """--stream writes the same text as without it."""
    assert run(sheet, *VALUES, "--stream").stdout == run(sheet, *VALUES).stdout


def test_a_template_may_come_from_stdin(opened):
    """`-` is standard input, and its errors say so."""
    assert run("-", "--var", "a=b", stdin="x<<a>>\n").stdout == "xb\n"
    assert "<stdin>:1:2" in run("-", stdin="x<<a", code=2).stderr


def test_the_dialect_is_that_of_the_option_or_the_file(opened, tmp_path, monkeypatch):
    """`.hbs` files and --handlebars read `{{ }}`, anything else is text there."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.hbs", "a.tmpl"):
        (tmp_path / name).write_text("{{a}}<<a>>")
    assert run("a.hbs", "--var", "a=1").stdout == "1<<a>>\n"
    assert run("a.tmpl", "--var", "a=1").stdout == "{{a}}1\n"
    assert run("--handlebars", "a.tmpl", "--var", "a=1").stdout == "1<<a>>\n"


def test_included_files_come_from_the_search_path(opened, tmp_path, monkeypatch):
    """The template's folder, or another one that is named."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("one/a.tmpl", "<<include 'b.tmpl'>>"), ("one/b.tmpl", "one"), ("two/b.tmpl", "two")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert run("one/a.tmpl").stdout == "one\n"
    assert run("one/a.tmpl", "--search-path", "two").stdout == "two\n"
    assert "c.tmpl" in run("-", "--search-path", "two", stdin="<<include 'c.tmpl'>>", code=2).stderr


def test_check_says_what_a_template_needs_and_loads_nothing(opened, sheet):
    """Names that values must be given for, and each slot with its place."""
    result = run(sheet, "--check")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["needs", "name,", "armors"] in lines
    assert ["class", "select", "sheet.tmpl:2:8"] in lines
    assert ["armor", "select", "sheet.tmpl:3:8"] in lines
    assert opened == []
    fields = json.loads(run(sheet, "--check", "--json").stdout)
    assert fields["needs"] == ["name", "armors"]
    assert fields["slots"][1] == {"name": "armor", "kind": "select", "file": "sheet.tmpl", "line": 3, "column": 8}


def test_check_looks_into_blocks_and_included_files(opened, tmp_path, monkeypatch):
    """Slots of branches, loops, turns, joint blocks and of what is included are told."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.tmpl").write_text("\n<<gen 'd'>>")
    source = "x<<#if n>><<gen 'a'>><<else>><<#joint>><<select 'b' options=n>><</joint>><</if>>"
    source += "<<#geneach 'c' num=2>><<gen 'this'>><</geneach>><<include 'more.tmpl'>>"
    (tmp_path / "all.tmpl").write_text(source)
    slots = json.loads(run("all.tmpl", "--check", "--json").stdout)["slots"]
    assert [(slot["name"], slot["kind"]) for slot in slots] == [
        ("a", "gen"),
        ("b", "select"),
        ("c", "geneach"),
        ("this", "gen"),
        ("d", "gen"),
    ]
    assert (slots[-1]["line"], slots[-1]["column"]) == (2, 1)


@pytest.mark.parametrize(
    ("source", "args", "place", "words"),
    [
        ("a\n<<#if x>>", (), ":2:1", "if"),
        ("a <<nmae>>", ("--var", "name=x"), ":1:5", "nmae"),
        ("a <<select 'x' options=n>>", ("--var", "n:=[]"), ":1:", "empty"),
        ("a <<#selct 'x'>>", (), ":1:", "selct"),
    ],
)
def test_a_mistake_in_a_template_is_shown_with_its_place(opened, source, args, place, words):
    """One line with file, line and column, then the line and a caret; no model is loaded, and stdout is empty."""
    for more in ((), ("--check",)):
        result = run("-", *args, *more, stdin=source, code=2)
        first, line, caret = [line for line in result.stderr.splitlines() if not line.startswith("warning")]
        assert first.startswith(f"error[template]: <stdin>{place}")
        assert words in first
        assert line.strip() in source
        assert caret.strip() == "^"
        assert result.stdout == ""
    assert opened == []


def test_a_row_that_is_wrong_is_named(opened, sheet, tmp_path):
    """A value that a row lacks is told with the number of the row, before a model is loaded."""
    (tmp_path / "rows.jsonl").write_text('{"name": "A"}\n{"nam": "B"}\n')
    result = run(sheet, "--var", f"armors:={ARMORS}", "--table", "rows.jsonl", code=2)
    assert "warning: the template reads no value called 'nam'" in result.stderr
    assert "error[template]: request 1: sheet.tmpl:1:" in result.stderr
    assert opened == []


def test_a_value_that_nobody_reads_is_a_warning(opened, sheet):
    """It is named on stderr, with what may have been meant; the page is made all the same."""
    result = run(sheet, *VALUES, "--var", "shield=round")
    assert result.stderr == "warning: the template reads no value called 'shield'\n"
    assert result.stdout.startswith("Name: Aria\n")
    assert (
        "'class' is decided here, but a value of that name was passed too"
        in run(sheet, *VALUES, "--var", "class=x", code=2).stderr
    )
    Path("sheet.hbs").write_text("A {{gen 'class' max_tokens=1}}")
    assert "'class'; the model decides it" in run("sheet.hbs", "--var", "class=x").stderr
    near = run(sheet, "--var", "nmae=Aria", code=2).stderr
    assert "'nmae'; did you mean 'name'?" in near


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no rows"),
        ("{}\n\n", ":2: the line is empty"),
        ("[1]\n", ":1: expected a JSON object"),
        ("{", "JSON"),
    ],
)
def test_rows_are_objects(tmp_path, content, words):
    """Anything else is told with its line."""
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(InputFileError, match=words):
        inputs.read_rows(str(path))


@pytest.mark.parametrize(
    "args",
    [
        ("--stream", "--json"),
        ("--stream", "--table", "r.jsonl"),
        ("--stream", "--check"),
        ("--check", "--explain"),
        ("--var-file", "-", "--table", "-"),
        ("--var", "x"),
        ("--max-tokens", "0"),
    ],
)
def test_what_does_not_go_together_is_refused(opened, sheet, args):
    """Before a model is loaded."""
    assert run(sheet, *args, code=2).stderr.startswith(("error[option]: ", "error[input_file]: -: "))
    assert opened == []


def test_a_closed_pipe_ends_quietly(sheet):
    """Nobody reads on: no traceback, exit code 0."""
    command = (
        f"{sys.executable} -m selectrie.cli render {sheet} --var name=A --var 'armors:={ARMORS}' --stream | head -0"
    )
    where = os.environ | {"PYTHONPATH": str(Path(selectrie.__file__).parents[1])}
    done = subprocess.run(
        ["/bin/bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, env=where, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_file_is_named(opened):
    """The path is told."""
    assert "error[input_file]: nowhere.tmpl: " in run("nowhere.tmpl", code=2).stderr


EVERYTHING = """\
Class: ranger
<<#joint>>Armor: <<select 'armor' options=["leather", "plate"]>>
Weapon: <<select 'weapon' options=["bow", "sword"]>><</joint>>
Level: <<gen 'level' regex='[0-9]'>>
Items: <<beam 'item' regex='(arrows|lute|map)'>>
Kind: <<select 'kind' options=["elf", "orc", "human", "dwarf"] hidden=true>>.
"""


def test_explain_has_a_block_for_each_decision(opened):
    """Chosen, runner-ups with bars, margin, masked greedy, terminator and rows; the selects of a joint block share one."""
    text = run("-", "--explain", "--seed", "1", stdin=EVERYTHING).stdout
    page, _, blocks = text.partition("\n\n")
    assert page.startswith("Class: ranger\nArmor: leather\nWeapon: bow\n")
    heads = [line for line in blocks.splitlines() if "<stdin>:" in line]
    assert [head.split(" (")[0] for head in heads] == ["armor + weapon", "level", "item", "kind"]
    assert heads[-1].endswith(", hidden)")
    kind = blocks[blocks.index("kind (") :]
    for words in ("chosen", "times as likely as the next", "greedy", "ended by    text", "one by one", "█", "\n3  '"):
        assert words in kind
    assert "… 1 more choice" in kind
    assert "embedded.gguf, which comes with selectrie" in blocks


def test_text_that_the_model_does_not_expect_is_told(opened):
    """Low coverage names what the model wanted, and that the text behind the choices counts too."""
    source = "Q: What is the capital of France? A: <<select 'city' options=['Paris', 'Rome']>> qqqq zzzz"
    told = " ".join(run("-", "--explain", stdin=source).stdout.split())
    assert "! coverage the model expects something else than these choices with the text after them. It expects" in told
    assert "! coverage" not in run("-", "--explain", stdin=source.replace(" qqqq zzzz", "\n")).stdout


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_an_explanation_fits_its_terminal(llm, width):
    """No line is wider than the terminal, and no number is cut."""
    page = llm.render(selectrie.Template(EVERYTHING), rendering=RenderParams(seed=1))
    file = io.StringIO()
    terminal.show(page_report(page), file, width=width)
    lines = file.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= width
    best, tolerance = page.selections["armor"].best, written_tolerance(page)
    words = [*percent(best.probability, tolerance).split(), write_logp(best.logp, tolerance)]
    assert any(line.split()[-len(words) :] == words for line in lines)


def test_explain_beside_json_goes_to_stderr(opened, sheet):
    """Standard output stays one object."""
    result = run(sheet, *VALUES, "--json", "--explain")
    assert json.loads(result.stdout)["kind"] == "page"
    assert "class (select, sheet.tmpl:2:8)" in result.stderr


def test_every_slot_of_the_language_can_be_explained(opened):
    """Draws, loops that the model ends, and several texts of one gen have blocks too."""
    source = "Items: <<#geneach 'items' min=1 max=2 stop='.' join=', '>><<select 'this' options=['map', 'lute']>><</geneach>>."
    source += " A <<select 'x' options=['bow', 'axe'] temperature=1>> B <<gen 'y' n=2 temperature=1 max_tokens=3>>"
    source += " C <<select 'z' regex='[a-z]+' temperature=1>>."
    blocks = run("-", "--explain", "--seed", "1", stdin=source).stdout
    for head in ("items[0] (select", "items (geneach", "x (select", "y (gen", "z (select"):
        assert head in blocks


def test_help_imports_nothing_heavy():
    """Neither numpy nor lark nor rich, so that help comes at once."""
    code = "import sys; from selectrie.cli import app; app(['render', '--help'], standalone_mode=False)"
    code += "\nassert not {'numpy', 'lark', 'rich', 'llama_cpp'} & set(sys.modules), sorted(sys.modules)"
    source = Path(selectrie.__file__).parents[1]
    command, where = [sys.executable, "-c", code], {"PYTHONPATH": str(source)}
    done = subprocess.run(command, capture_output=True, text=True, env=where, check=False)
    assert done.returncode == 0, done.stderr
    assert "--var-file FILE" in done.stdout


def test_an_interrupted_stream_keeps_what_was_shown(opened, sheet, llm, monkeypatch):
    """The line begun is ended, and the exit code is 130."""

    class Interrupted:
        def __enter__(self) -> Iterator[object]:
            return self.events()

        def __exit__(self, *_: object) -> None: ...

        def events(self) -> Iterator[object]:
            yield selectrie.results.TextEvent("Name: A")
            raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "stream_render", lambda *_, **__: Interrupted())
    result = run(sheet, *VALUES, "--stream", code=130)
    assert result.stdout == "Name: A\n"
    assert result.stderr == "error[interrupted]: stopped\n"
