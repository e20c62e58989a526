"""Write `docs/cli.md`: the help of every command, between the words of the page.

Options that many commands share, such as those of the model, are written once.

`python tools/cli_docs.py` writes the page; a test compares the page with what `page()`
returns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from selectrie.cli import app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"

INTRODUCTION = """\
# The command line

`tools/cli_docs.py` generates this page; the help texts are the commands' own.

## Input

**Prompt.** It comes from one source: the first argument, `-p`, `--user`,
`--prompt-file`, `--token-ids`, `--chat`, or piped standard input. A chat model is asked
with `--user TEXT` (and `--system TEXT`), which applies its own template. A file or
standard input loses one line end at its end. `--prompts-file` has a JSON value on each
line: a text, `{"prompt": …}` with a text or an array of token ids, or
`{"messages": […]}`; errors count its prompts from 0.

**Choices.** They are the arguments after the prompt, `-c`, or `--choices`, which takes
texts with commas between them or a file (those of `-c` come first). Choices are taken
exactly as given: ` Paris` and `Paris` are different, and most models expect the space.
`--delimiter ' '` puts one before every choice. A file has one choice a line, and an
empty line is an error without `--allow-empty`; a `.json` file holds an array of texts.
Files are UTF-8, and a byte order mark is dropped.

**Texts** are taken as they are: `-p "a\\nb"` has a backslash and an n, and a shell writes
a line end as `$'a\\nb'`. `--escapes` reads `\\n`, `\\r`, `\\t` and `\\\\` in arguments and
texts of options, and refuses other escapes; patterns of `eval --context` are always read
so. Values of `--template-arg` are JSON: `enable_thinking=false`, `date='"today"'`.

**Model.** Without `-m` the small model that comes with selectrie answers. `-m`,
`--threads` and `--precision` have defaults in `SELECTRIE_MODEL`, `SELECTRIE_THREADS` and
`SELECTRIE_PRECISION`. A run that is resumed keeps its own model.

**Decisions.** `decide TEXT QUESTION` asks one question about a text: yes or no, with
`--choices A,B` which, with `--score A,B` how much. Several questions are given as
`--choice NAME=text`, `--predicate NAME=text` and `--score NAME=text`, with options as
`--option NAME=text` or `--choices NAME=A,B`, or `NAME=FILE`. They may also come from a
`.toml` or `.json` file, as the first argument, or from a class (`--type
models.py:Ticket`). The state is `--state`, `--state-file` or standard input. With
`--table`, `--state` is a column or a pattern of columns, and results go to `--out`. See
[Decide](decide.md).

**Classify.** `classify TEXT` labels one text; `classify -` labels each line of standard
input, which is a table instead if `--state` or `--gold` is given or it begins with `{`.
Without `--out`, rows go to standard output in the format of the table. Fields of CSV
have up to 16 M characters.

**Render.** `--var name=text` takes a text, `--var name:=JSON` a value: `level:=3`.
`--var-file` has one JSON object, `--table` a row for each page. Rows override `--var`,
which overrides files. See [Templates](templates.md).

**Standard input.** `-` in place of a file is standard input, for one option: CSV with a
header (or tabs), JSON Lines if it begins with `{`; a grammar is GBNF, or a JSON Schema
if it begins with `{`; questions are TOML or JSON.

`selectrie --install-completion` lets the shell complete commands and options. The
earlier names `--choices-file`, `--options` and `--rows` work in this version.

## Output

* Reports, `--json` and `--tsv` go to standard output in UTF-8; errors and progress go to
  standard error. After an error, standard output is empty but for what `--stream` has
  shown.
* Colour appears only on a terminal, and not if `NO_COLOR` is set. Nothing depends on it:
  in a trie `*` marks the winner's path, `~` that of masked greedy decoding, `×` what was
  pruned.
* No text can control the terminal: in reports, control characters are shown as pictures
  (`␛`), and DEL, C1 controls, direction marks and line separators as `�`. Texts written
  to files and pipes are unchanged. `--json` escapes such characters.
* `--json` prints one object with its `kind`. Infinite and missing numbers are `null`.
  `format` is raised when a field changes its meaning or is removed. `select` lists every
  choice in the given order, whatever `--top` says. One decision or label has `value`.
* `--tsv` prints the first `--top` places, with `\\\\`, `\\t`, `\\r`, `\\n` in texts.
* `generate` prints several sequences as `0.1<TAB>text`: the numbers of prompt and
  sequence, from 0. With `--stream` they come as they end.
* `render --table` puts each page below a line `--- row 0`, or on one line with `--json`.
  `--explain` adds a block for each decision (to standard error with `--json`).
* `--html -` prints only the page. A plain file is replaced as a whole, and links to it
  are followed; anything else (`/dev/stdout`) is written to.

## Exit codes

| code | meaning |
|---|---|
| 0 | done; also when the reader of the output has closed the pipe |
| 1 | `grammar accepts`: the verdict is no or unfinished |
| 2 | the caller's mistake: options, files, choices, a prompt too long; output that cannot be written; too little memory; with `--strict` also a tie, an answer not proved, or a grammar with problems |
| 3 | the model or its back end |
| 70 | a fault of selectrie; `--verbose` shows where |
| 130 | interrupted by Ctrl-C; a second one ends the process at once |
| 143 | ended by SIGTERM, in the same way |

An error is one line, `error[code]: message`, with options as they are written here. For a
grammar or a template, the line in question follows with a caret.
"""


SHARED = """\
A command below names a group where it has all of it. Every command has `-h` and `--help`,
which prints all its options."""

OF_OTHERS: dict[tuple[str, ...], str] = {
    ("lm-eval",): "Its options are those of [lm-evaluation-harness]"
    "(https://github.com/EleutherAI/lm-evaluation-harness/blob/main/docs/interface.md);\nwhat `--model_args` takes here "
    "is described under\n[Benchmarks](evaluation.md#lm-evaluation-harness).",
}
"""Replaces the help of commands whose help another program prints: it may have any
version, or not be installed.
"""


HELP = "Other:\n  -h, --help  Show this message and exit."
N_OPTIONS = 4
"""Options of a heading that most commands with this heading have are shown once, if
they are at least this many.
"""


def help_of(*command: str) -> str:
    """Return what `selectrie COMMAND --help` prints at 80 columns."""
    result = CliRunner().invoke(app, [*command, "--help"], prog_name="selectrie", terminal_width=80)
    lines = (line.rstrip() for line in result.output.splitlines())
    return "\n".join(lines).strip()


def _below(group: object) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command of a group, and of those below it."""
    for name, inner in getattr(group, "commands", {}).items():
        yield (name,)
        yield from ((name, *words) for words in _below(inner))


def _sections(text: str) -> dict[str, list[str]]:
    """Return the options of a help text by heading, each with its lines."""
    sections: dict[str, list[str]] = {}
    for section in text.split("\n\n"):
        heading, _, body = section.partition("\n")
        if heading.endswith(":") and not heading.startswith(" "):
            sections[heading] = re.split(r"\n(?=  \S)", body)
    return sections


def _shared(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the options that many commands have, by heading and by their words."""
    counts: dict[str, Counter[str]] = {}
    n_commands: Counter[str] = Counter()
    lines: dict[tuple[str, str], str] = {}
    for text in texts:
        for heading, options in _sections(text).items():
            n_commands[heading] += 1
            for option in options:
                words = " ".join(option.split())
                counts.setdefault(heading, Counter())[words] += 1
                lines.setdefault((heading, words), option)
    found = {
        heading: {words: lines[heading, words] for words, n in counted.items() if n >= max(2, n_commands[heading] / 2)}
        for heading, counted in counts.items()
    }
    return {heading: options for heading, options in found.items() if len(options) >= N_OPTIONS}


def _shortened(text: str, shared: Mapping[str, Mapping[str, str]]) -> str:
    """Return a help text in which a heading names the shared options."""
    for heading, options in _sections(text).items():
        common, all_words = shared.get(heading, {}), {" ".join(option.split()): option for option in options}
        if common and common.keys() <= all_words.keys():
            rest = [option for words, option in all_words.items() if words not in common]
            lines = (f"  … the {len(common)} options of many commands (above)", *rest)
            text = text.replace("\n".join((heading, *options)), "\n".join((heading, *lines)))
    return text.removesuffix(HELP).rstrip()


def page() -> str:
    """Return the whole page."""
    texts = {names: help_of(*names) for names in ((), *_below(get_command(app))) if names not in OF_OTHERS}
    shared = _shared(texts.values())
    common = "\n\n".join("\n".join((heading, *options.values())) for heading, options in shared.items())
    parts = [INTRODUCTION, f"## Options of many commands\n\n{SHARED}\n\n```\n{common}\n```\n"]
    for names in ((), *_below(get_command(app))):
        said = OF_OTHERS.get(names) or f"```\n{_shortened(texts[names], shared)}\n```"
        parts.append(f"## {' '.join(('selectrie', *names))}\n\n{said}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
