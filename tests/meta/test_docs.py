"""Documentation is run: snippets execute, commands work, and everything a user can name is described."""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

import pytest
from typer.testing import CliRunner

from selectrie.cli import app
from selectrie.cli.groups import OLD_FLAGS
from tests.support import real_data

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
SOURCE = ROOT / "src" / "selectrie"
NOTES = sorted([ROOT / "CONTRIBUTING.md", *SOURCE.rglob("README.md")])
"""What those who change the code read; beside the pages, links of these are followed too."""
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
VARYING = re.compile(r"[\d.]+ s\b|\d+ padded|closer than \S+ nats(?:: \d+ choices scored again)?|[█▏▎▍▌▋▊▉]+")
"""What a machine decides: seconds, rows of padding, near ties; and bars, whose width is the terminal's."""

REAL_SOURCE = "hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M"
"""The model that blocks of `py` and `shell` ask, where those of `python` and `sh` ask the embedded one."""

WORDS = ["park", "store", "moon", "sword", "shower", "park to play"]


def snippets(text: str, *languages: str) -> Iterator[tuple[int, str]]:
    """The fenced blocks of these languages, each with the line it begins on."""
    for block in FENCE.finditer(text):
        if block[1] in languages:
            yield text.count("\n", 0, block.start()) + 2, block[2]


def printed(text: str) -> dict[int, str]:
    """By the line a block begins on, the output shown for it: a `text` block directly below."""
    outputs = {}
    for block in FENCE.finditer(text):
        if (shown := OUTPUT.match(text, block.end() + 1)) and block[1] != "text":
            outputs[text.count("\n", 0, block.start()) + 2] = shown[1]
    return outputs


def alike(shown: str, got: str, relative: float = 0.01, absolute: float = 0.002) -> bool:
    """The same words and the same numbers to the digits that processors agree on; white space aside."""
    flowing = [" ".join(text.split()) for text in (shown, got)]
    texts = [" ".join(VARYING.sub("", text).split()) for text in flowing]
    skeletons = [NUMBER.sub("#", text) for text in texts]
    numbers = [[float(x) for x in NUMBER.findall(text)] for text in texts]
    return skeletons[0] == skeletons[1] and all(
        math.isclose(x, y, rel_tol=relative, abs_tol=absolute) for x, y in zip(*numbers, strict=True)
    )


def test_outputs_are_compared_wherever_lines_break():
    """Seconds and padding may differ, also where a terminal breaks the line before the unit; words and numbers may
    not."""
    shown = "cost  23 rows in 2 calls, 9 padded;\n  0.011\n      s\nlogp  -37.594"
    assert alike(shown, "cost  23 rows in 2 calls,\n 11 padded; 0.007 s\nlogp  -37.59")
    assert not alike(shown, shown.replace("23 rows", "24 rows"))
    assert not alike(shown, shown.replace("calls", "steps"))
    assert not alike(shown, shown.replace("-37.594", "-36.594"))


def commands(text: str) -> Iterator[tuple[str, str | None]]:
    """The command lines of a page's shell blocks that call selectrie, continued lines joined, and the output shown for
    a block of one command."""
    outputs = printed(text)
    for start, block in snippets(text, "sh", "console", "bash"):
        lines = block.replace("\\\n", " ").splitlines()
        for line in lines:
            command = line.removeprefix("$ ")
            if re.search(r"(^|\| *)selectrie ", command):
                yield command, outputs.get(start) if len(lines) == 1 else None


def pages_with(*languages: str) -> list[Path]:
    """Pages that have a block of these languages."""
    return [page for page in PAGES if page.exists() and any(snippets(page.read_text(), *languages))]


def label(value: object) -> str:
    """A short name of a page or a command for pytest."""
    return value.stem if isinstance(value, Path) else str(value)[:40]


@pytest.fixture
def workplace(tmp_path, monkeypatch, embedded):
    """A folder with the files that the documentation names: a model and some texts."""
    (tmp_path / "model.gguf").symlink_to(embedded)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "p.txt").write_text("Once upon a time there was a little girl. She went to the\n")
    for name in ("labels.txt", "choices.txt", "100k.txt"):
        (tmp_path / name).write_text("".join(f" {word}\n" for word in WORDS))
    (tmp_path / "prompts.jsonl").write_text('"Once upon a time"\n{"prompt": "The sky is"}\n')
    (tmp_path / "choices.json").write_text(json.dumps([f" {word}" for word in WORDS]))
    (tmp_path / "messages.json").write_text(json.dumps([{"role": "user", "content": "Where to?"}]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_checkpoint(folder):
    """Save a Transformers model of random weights with a tokenizer; the rest of a page is skipped without its packages."""
    for name in ("torch", "transformers"):
        pytest.importorskip(name)
    from tests.support import checkpoints

    checkpoints.write(folder)


@pytest.mark.short("!backends", "!remote", "!grammars")
@pytest.mark.parametrize("page", pages_with("python"), ids=label)
def test_python_snippets_run(page, workplace):
    """The Python blocks of a page run from top to bottom, in one namespace, as a reader would paste them, and print
    what the page shows."""
    namespace: dict[str, object] = {"__name__": "snippet"}
    outputs = printed(page.read_text())
    for line, block in snippets(page.read_text(), "python"):
        if '"checkpoint/"' in block:
            write_checkpoint(workplace / "checkpoint")
        if "import pandas" in block:
            for name in ("pandas", "narwhals"):
                pytest.importorskip(name, reason="needs the extra 'tables' and pandas")
        if "selectrie.sklearn" in block:
            pytest.importorskip("sklearn", reason="needs the extra 'sklearn'")
        if "selectrie.connect(" in block:
            for name in ("httpx2", "fastapi", "uvicorn"):
                pytest.importorskip(name)
        source = "\n" * (line - 1) + block
        got = io.StringIO()
        with redirect_stdout(got):
            exec(compile(source, str(page), "exec", dont_inherit=True), namespace)  # noqa: S102
        if line in outputs:
            assert alike(outputs[line], got.getvalue()), f"{page.name}:{line} prints\n{got.getvalue()}"


def in_a_shell(command: str, selectrie: str = f"{sys.executable} -m selectrie.cli") -> tuple[int, str, str]:
    """Exit code and both streams of a command line, in which this is run for `selectrie`."""
    shell = f'selectrie() {{ {selectrie} "$@"; }}\nset -o pipefail\n{command}'
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(["/bin/bash", "-c", shell], capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout, done.stderr


def in_this_process(command: str) -> tuple[int, str, str]:
    """The same of a single command, whose words are the shell's; an interpreter's start takes longer than most."""
    words = in_a_shell(command, r"printf '%s\0'")[1].split("\0")[:-1]
    done = CliRunner().invoke(app, words, prog_name="selectrie")
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.short(
    "README-*",
    "grammars-selectrie grammar*",
    "decide-selectrie decide --state*",
    "evaluation-selectrie eval tasks*",
    "templates-selectrie render*",
)
@pytest.mark.parametrize(
    ("page", "command", "shown"),
    [(page, *command) for page in PAGES if page.exists() for command in commands(page.read_text())],
    ids=label,
)
def test_commands_run(page, command, shown, workplace, monkeypatch):
    """The command lines of a page work as printed, and print what the page shows."""
    monkeypatch.setenv("COLUMNS", "80")
    run = in_a_shell(command) if re.search(r" (\||&&|>) ?", command) else in_this_process(command)
    code, stdout, stderr = run
    refused = "grammar accepts" in command and not stdout.startswith("yes")
    assert code == (1 if refused else 0), stderr
    assert stdout
    if shown is not None:
        assert alike(shown, stdout), stdout


@pytest.mark.short("README")
@pytest.mark.parametrize("page", pages_with("py", "shell"), ids=label)
def test_snippets_that_ask_the_real_model_run(page, workplace, monkeypatch):
    """Blocks of `py` and `shell` print what the page shows, as far as 4-bit weights give the same on two processors."""
    path = real_data.real_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
    monkeypatch.setenv("COLUMNS", "80")
    namespace: dict[str, object] = {"__name__": "snippet"}
    outputs = printed(page.read_text())
    languages = ("python", "py") if any(snippets(page.read_text(), "py")) else ("shell",)
    for line, block in snippets(page.read_text(), *languages):
        if block.startswith("selectrie "):
            code, got, errors = in_this_process(block.replace(REAL_SOURCE, f"{path} --threads 1"))
            assert code == 0, errors
        else:
            source = "\n" * (line - 1) + block.replace(f'"{REAL_SOURCE}"', f'"{path}", n_threads=1')
            stream = io.StringIO()
            with redirect_stdout(stream):
                exec(compile(source, str(page), "exec", dont_inherit=True), namespace)  # noqa: S102
            got = stream.getvalue()
        assert str(path) not in got
        assert alike(outputs.get(line, got), got, 0.2, 0.1), f"{page.name}:{line} prints\n{got}"


def test_pages_list_the_extras():
    """The first page and that on installing have a row for each extra of a user."""
    extras = re.search(
        r"^\[project\.optional-dependencies\]\n(.*?)^\[",
        (ROOT / "pyproject.toml").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    named = set(re.findall(r"^([\w-]+) = \[", extras[1], re.MULTILINE)) - {"test", "dev", "test-clients"}
    for page in ("README.md", "docs/install.md"):
        rows = re.search(r"^\| extra \|.*?\n(?=\n)", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)[0]
        assert {name for row in rows.splitlines()[2:] for name in re.findall(r"`([\w-]+)`", row.split("|")[1])} == named


def documentation() -> str:
    """All pages as one text."""
    return "\n".join(page.read_text() for page in PAGES if page.exists())


def test_every_command_and_option_is_documented():
    """What `--help` lists stands in the documentation."""
    from typer.main import get_command

    text = documentation()
    group = get_command(app)
    missing = [name for name in group.commands if f"selectrie {name}" not in text]
    for name, command in group.commands.items():
        spelled = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        missing += [f"{name} {option}" for option in sorted(spelled - OLD_FLAGS) if not re.search(rf"{option}\b", text)]
    assert missing == []


def test_every_tag_and_argument_is_documented():
    """The page on templates has a row for each argument of each tag, and for each tag without one."""
    from selectrie.template.syntax.tags import TAGS

    text = (ROOT / "docs" / "templates.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\| [^|]*\|$", text, re.MULTILINE))
    assert rows == {(tag.kind, argument) for tag in TAGS.values() for argument in tag.arguments or [""]}


def test_templates_of_the_documentation_can_be_read():
    """Every block of template text parses, in the dialect it is fenced as."""
    from selectrie.template.syntax.parser import parse

    for dialect, fence in (("selectrie", "template"), ("handlebars", "handlebars")):
        blocks = [(page.name, *block) for page in PAGES for block in snippets(page.read_text(), fence)]
        assert blocks
        for page, line, source in blocks:
            parse(source, name=f"{page} from line {line}", dialect=dialect)


def test_every_error_code_is_documented():
    """A code that a program can meet is explained to its author."""
    from selectrie import errors

    def below(kind: type) -> Iterator[type]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    codes = {kind.code for kind in below(errors.SelectrieError) if kind.__module__ == errors.__name__}
    text = documentation()
    assert sorted(code for code in codes if f"`{code}`" not in text) == []


def test_errors_are_described_as_they_are():
    """The page on errors has a row for each: code, class, whether it is a ValueError, exit code, cause and remedy."""
    from selectrie import errors

    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.SelectrieError)]
    rows = re.findall(
        r"^\| `(\w+)` \| `(\w+)`( v)? \| (\d+) \| [^|]+ \| [^|]+ \|$",
        (ROOT / "docs" / "errors.md").read_text(),
        re.MULTILINE,
    )
    described = {(code, name, bool(v), int(number)) for code, name, v, number in rows}
    assert described == {(k.code, k.__name__, issubclass(k, ValueError), k.exit_code) for k in kinds}


def reference() -> str:
    """The pages that Sphinx fills with docstrings, as one text."""
    return "".join(page.read_text() for page in sorted((ROOT / "docs" / "reference").glob("*.md")))


def test_every_field_is_documented():
    """The reference has every record that a user fills in or reads, and the record's docstring every field."""
    import dataclasses

    import selectrie
    from selectrie import evaluation, options, results

    modules = (selectrie, results, options, evaluation)
    records = {
        getattr(module, name): f"{module.__name__}.{name}"
        for module in reversed(modules)
        for name in module.__all__
        if isinstance(getattr(module, name), type) and dataclasses.is_dataclass(getattr(module, name))
    }
    assert len(records) > 40
    missing = [
        f"{kind.__name__}.{field.name}"
        for kind in records
        for field in dataclasses.fields(kind)
        if not field.name.startswith("_")
        and not any(re.search(rf"[ ,]{field.name}(, \w+)*:\s", base.__doc__ or "") for base in kind.__mro__)
    ]
    assert missing == []
    text = reference()
    assert [name for name in records.values() if not re.search(rf"{name}\b", text)] == []


def test_the_error_of_an_end_that_is_not_resolved_is_documented():
    """A `logp` may be off by half the distance of bounds that count as one value: the page and the field name both figures."""
    from selectrie.decoding.scoring.paths import RESOLVED
    from selectrie.results import ChoiceScore

    for text in ((ROOT / "docs" / "scoring.md").read_text(), ChoiceScore.__doc__):
        numbers = [float(one) for one in NUMBER.findall(text)]
        assert {RESOLVED, RESOLVED / 2} <= set(numbers)


def test_links_lead_somewhere():
    """Links between pages name files and headings that exist."""
    broken = []
    for page in [*PAGES, *NOTES]:
        for target, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
            linked = page.parent / target if target else page
            titles = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE) if anchor else []
            anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            if not linked.exists() or (anchor and anchor not in anchors):
                broken.append(f"{page.name}: {target}#{anchor}")
    assert broken == []


def test_notes_name_files_that_exist():
    """A file or folder that a room's page or CONTRIBUTING names lies in its room, in the package or in the repository."""
    missing = []
    for page in NOTES:
        room = SOURCE.joinpath(*page.relative_to(SOURCE).parts[:1]) if SOURCE in page.parents else page
        inside = "".join(f"{path.as_posix()}\n{path.as_posix()}/\n" for path in room.rglob("*"))
        missing += [
            f"{page.relative_to(ROOT)}: {name}"
            for name in re.findall(r"`([\w./-]+(?:/|\.(?:py|lark|md|toml|yml|yaml)))`", page.read_text())
            if f"/{name}\n" not in inside and not (SOURCE / name).exists() and not (ROOT / name).exists()
        ]
    assert missing == []


def test_figures_have_a_command_that_prints_them():
    """Each section of the page on speed names its script, which `make bench` runs; the sweeps that pages name exist."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    run = set(re.search(r"^BENCHMARKS := (.*)", makefile, re.MULTILINE)[1].split())
    _, *sections = re.split(r"^## ", (ROOT / "docs" / "speed.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for section in sections:
        named = set(re.findall(r"`python benchmarks/(\w+)\.py`", section))
        assert named, section.partition("\n")[0]
        assert named <= run
    sweeps = {
        name for page in (*PAGES, *NOTES) for name in re.findall(r"SWEEP=(\w+)", page.read_text(encoding="utf-8"))
    }
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in sweeps if f"def test_{name}(" not in tests} <= {"name"}


def test_every_room_has_a_page():
    """Each folder directly below the package says what lies in it, in at most 60 lines."""
    rooms = {path.parent for path in SOURCE.glob("*/__init__.py")}
    assert {page.parent for page in SOURCE.glob("*/README.md")} == rooms
    assert [page.parent.name for page in NOTES[1:] if len(page.read_text().splitlines()) > 60] == []


def test_every_error_has_a_code_of_its_own():
    """Two errors that a program cannot tell apart would be one; one alone is of the code of what it is a case of."""
    from selectrie import errors

    kinds = {k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.SelectrieError)}
    assert errors.IncompatibleOptionsError.code == errors.OptionError.code
    kinds.remove(errors.IncompatibleOptionsError)
    assert len({kind.code for kind in kinds}) == len(kinds) > 10


def test_no_page_speaks_of_what_is_to_come():
    """What exists is described; plans are in issues."""
    words = r"not (?:yet )?supported yet|not yet supported|will (?:serve|support)|are planned, not here|is planned\b"
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert {page.name: found for page in pages if (found := re.findall(words, page.read_text("utf-8")))} == {}


def test_every_public_name_is_documented():
    """What `selectrie` promises is in the reference."""
    import selectrie

    text = reference()
    names = {*selectrie.__all__} - {"__version__", "Question"}
    assert sorted(name for name in names if not re.search(rf"selectrie\.(?:errors\.)?{name}\b", text)) == [
        "SelectrieError"
    ]
    assert "automodule:: selectrie.errors" in text


def words_by_hand() -> dict[str, int]:
    """Words of each page outside code and generated text: `python -m pytest tests/meta/test_docs.py -k by_hand -s`."""
    pages = sorted({*(ROOT / "docs").rglob("*.md")} - {*(ROOT / "docs" / "reference").glob("*.md")})
    prose = {
        page.stem: re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for page in pages
    }
    return {name: len(re.findall(r"\S*\w\S*", text)) for name, text in prose.items()}


def test_the_pages_by_hand_have_at_most_35_000_words():
    """A page that grows is paid for by another one."""
    words = words_by_hand()
    print(words, "in all", sum(words.values()))  # noqa: T201 - the figure
    assert sum(words.values()) <= 35_000


def test_every_test_says_what_holds():
    """Each test has one sentence."""
    import ast

    ended = r":(?: +#[^\n]*)?\n"
    heads = re.compile(rf'^ *def test_\w+\((?:(?!{ended}).)*{ended}\s*(?!r?""")\S', re.MULTILINE | re.DOTALL)
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if heads.search(path.read_text())  # to parse all of them takes seconds
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert silent == []


def test_snippets_are_found():
    """Blocks are found with the line they begin on; other languages and indented fences are not."""
    text = "a\n```python\nx = 1\n```\n```sh\nselectrie tokens \\\n  -m m\nls\n$ cat p | selectrie rank\n```\n"
    assert list(snippets(text, "python")) == [(3, "x = 1\n")]
    assert list(commands(text)) == [("selectrie tokens    -m m", None), ("cat p | selectrie rank", None)]


def test_shown_outputs_are_found_and_compared():
    """The text block directly below a block is its output; words and numbers count, bars and seconds do not."""
    text = "```sh\nselectrie tokens -m m\n```\n\n```text\np 0.5 in 3 s\n```\nand\n```python\nx\n```\n\nso\n\n```text\ny\n```\n"
    assert list(commands(text)) == [("selectrie tokens -m m", "p 0.5 in 3 s\n")]
    assert printed(text) == {2: "p 0.5 in 3 s\n"}
    assert alike("p 0.5 in 3 s\n", "p ██  0.501 in 0.07 s")
    assert not alike("p 0.5 in 3 s", "p 0.6 in 3 s")
    assert not alike("p 0.5 in 3 s", "q 0.5 in 3 s")
    assert not alike("p 0.5 in 3 s", "p 0.5 0.5 in 3 s")


def is_there(name: str) -> bool:
    """Whether a name such as `selectrie.x.y` exists; nothing that it stands for is imported."""
    parent, _, last = name.rpartition(".")
    home = resolve_name(parent)
    return last in {*dir(home), *getattr(home, "__all__", ())} or find_spec(name) is not None


def test_names_of_the_library_in_the_text_exist():
    """What a page names as `selectrie.x.y`."""
    names = {name for page in PAGES for name in re.findall(r"`(selectrie(?:\.[A-Za-z_]\w*)+)\b", page.read_text())}
    assert [name for name in sorted(names) if not is_there(name)] == []
