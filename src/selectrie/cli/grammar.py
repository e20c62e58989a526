"""The command `selectrie grammar`, and the options that name a grammar elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from selectrie.cli import inputs
from selectrie.cli.arguments import command, long_flag, tell
from selectrie.cli.groups import (
    GRAMMAR_FILES,
    NOTATION_FLAGS,
    STDIN_GRAMMAR,
    ConstraintGroup,
    Json,
    JsonOutput,
    argument,
    setting,
    switch,
)
from selectrie.cli.show import escape_line, show_json
from selectrie.core.output import write
from selectrie.errors import OptionError

if TYPE_CHECKING:
    from selectrie.grammar import Grammar
    from selectrie.grammar.acceptance import Verdict
    from selectrie.grammar.analysis import Report


_FLAGS = [long_flag(field.name) for field in fields(ConstraintGroup)]
ONE_OF_CONSTRAINTS = f"one of {', '.join(_FLAGS[:-1])} and {_FLAGS[-1]}"
"""The flags of `ConstraintGroup`, in words for errors."""
NOT_ACCEPTED = 1
UNSOUND = 2

grammar_app = typer.Typer(
    name="grammar",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Grammars: check one, try texts on it, list its texts.\n\n"
    f"A GRAMMAR is a file ({GRAMMAR_FILES}) or the name of one that comes with selectrie.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True, slots=True)
class GrammarGroup:
    """Grammar.

    The argument of `selectrie grammar` that names a grammar.
    """

    grammar: str = argument(
        "GRAMMAR", "A file (- for stdin), or an installed grammar's name.", MISSING, mark=STDIN_GRAMMAR
    )


@dataclass(frozen=True, slots=True)
class TriedTextGroup:
    """Text.

    The options of `selectrie grammar accepts` that give a text.
    """

    text: str | None = argument("TEXT", "The text, exactly as given; - for stdin.")
    text_file: str | None = setting("FILE", "The text from a file (- for stdin), less one line end at its end.")


@dataclass(frozen=True, slots=True)
class CheckOutput:
    """Output.

    The options of `selectrie grammar check` for its output.
    """

    seed: int = setting("N", "Draws other texts.", 0)
    json: bool = switch("One JSON object.")
    strict: bool = switch("Exit 2 if the check finds problems.")


@dataclass(frozen=True, slots=True)
class ExpandOutput:
    """Output.

    The options of `selectrie grammar expand` for its output.
    """

    limit: int | None = setting("N", "List at most N texts. [default: all of them]", min=0)
    json: Json = False


def open_grammar(source: str) -> Grammar:
    """Return the grammar of a file, or the installed grammar with this name.

    Raises `OptionError` for an unknown name.

    Args:
        source: A file name (`_is_file`) or the name of an installed grammar.
    """
    from selectrie.grammar import Grammar
    from selectrie.grammar.grammar import ENDINGS, installed_names

    if "::=" in source:
        raise OptionError(
            "grammar", source, "a file or a name, and this is the text of a grammar: put it in a .gbnf file"
        )
    if source and _is_file(source):
        return Grammar.from_file(source)
    if source not in installed_names():
        names = ", ".join(installed_names())
        raise OptionError(
            "grammar", source, f"a file ({', '.join(ENDINGS)}), or the name of an installed grammar: {names}"
        )
    return Grammar.load(source)


def _is_file(source: str) -> bool:
    """Return whether `source` names a file and not an installed grammar.

    A name without ending and folder names an installed grammar, even if a file has that
    name.
    """
    from selectrie.grammar.grammar import ENDINGS, installed_names

    path = Path(source)
    is_named_so = path.suffix.lower() in ENDINGS or len(path.parts) != 1
    return is_named_so or (source not in installed_names() and os.path.exists(source))  # noqa: PTH110 - no error for any name


@command(grammar_app)
def check(grammar: GrammarGroup, output: CheckOutput) -> int:
    r"""Tell what is wrong or remarkable about a grammar.

    Rules that are unused, match nothing or only the empty text; left recursion; a text
    that is made in two ways, if a short one is; how many texts there are, and some of
    them.

    \b
    selectrie grammar check json
    """
    rules = open_grammar(grammar.grammar)
    report = rules.check(seed=output.seed)
    if output.json:
        show_json({"grammar": rules.name, **report.to_dict()}, "grammar_check")
    else:
        write("\n".join(grammar_lines(rules.name, report)), sys.stdout)
    if output.strict and not report.sound:
        tell("unsound", "the grammar has problems (--strict)")
        return UNSOUND
    return 0


@command(grammar_app)
def accepts(grammar: GrammarGroup, text: TriedTextGroup, output: JsonOutput) -> int:
    r"""Tell whether a text is one of a grammar's.

    yes (exit code 0); no, with the position and what is allowed there; or unfinished: a
    text of the grammar begins with it (both 1).

    \b
    selectrie grammar accepts json '{"a": 1}'
    """
    if (text.text is None) == (text.text_file is None):
        raise OptionError("text", text.text, "either TEXT or --text-file")
    path = inputs.STDIN if text.text == inputs.STDIN else text.text_file
    candidate = text.text or "" if path is None else inputs.read_prompt(path)
    verdict = open_grammar(grammar.grammar).accepts(candidate)
    if output.json:
        show_json({"verdict": verdict.verdict, "at": verdict.at, "expected": [*verdict.expected]}, "verdict")
    else:
        write("\n".join(verdict_lines(candidate, verdict)), sys.stdout)
    return 0 if verdict else NOT_ACCEPTED


@command(grammar_app)
def expand(grammar: GrammarGroup, output: ExpandOutput) -> int:
    r"""List the texts of a grammar.

    The shortest first, equally long ones by code points. In the lines a backslash, tab,
    CR and LF are written \\, \t, \r, \n; --json gives the texts as they are.

    \b
    selectrie grammar expand move --limit 50
    """
    rules = open_grammar(grammar.grammar)
    texts = rules.expand(output.limit)
    if output.json:
        return show_json({"grammar": rules.name, "texts": [*texts]}, "texts")
    for text in texts:
        write(escape_line(text), sys.stdout)
    return 0


@command(grammar_app)
def show(grammar: GrammarGroup) -> int:
    r"""Print a grammar in GBNF.

    One that comes with selectrie as it is, to copy from; others rule by rule, whatever
    they were written in.

    \b
    selectrie grammar show iso-date
    """
    from selectrie.grammar.grammar import installed_grammar

    source = grammar.grammar
    text = open_grammar(source).to_gbnf() if _is_file(source) else installed_grammar(source)
    write(text, sys.stdout, end="")
    return 0


@command(grammar_app)
def list(output: JsonOutput) -> int:
    r"""List the grammars that come with selectrie.

    \b
    selectrie grammar list
    """
    from selectrie.grammar.grammar import installed_names, installed_summary

    summaries = {name: installed_summary(name) for name in installed_names()}
    if output.json:
        grammars = [{"name": name, "accepts": summary} for name, summary in summaries.items()]
        return show_json({"grammars": grammars}, "grammars")
    width = max(map(len, summaries), default=0)
    for name, summary in summaries.items():
        write(f"{name.ljust(width)}  {summary}", sys.stdout)
    return 0


def read_constraint(group: ConstraintGroup) -> Grammar | None:
    """Return the grammar that the options name, or None if they name none."""
    names = [field.name for field in fields(ConstraintGroup) if getattr(group, field.name) is not None]
    if not names:
        return None
    if len(names) > 1:
        raise OptionError("grammar", ", ".join(map(long_flag, names)), f"only {ONE_OF_CONSTRAINTS}")
    from selectrie.grammar import Grammar

    if group.grammar is not None:
        return open_grammar(group.grammar)
    if group.regex is not None:
        return Grammar.from_regex(group.regex)
    return Grammar.from_file(getattr(group, names[0]), ending=NOTATION_FLAGS[names[0]])


_LABEL_CELLS = 11
_MAX_NAMES = 12
_MAX_EXPECTED = 16
_CONTEXT = 60
_COUNTED = 10**12
"""Smallest number that `count_words` rounds."""


def grammar_lines(name: str, report: Report) -> Sequence[str]:
    """Return the lines of a grammar's report, one for each fact.

    Texts are quoted as in Python.
    """
    lines = [_label_line("grammar", f"{name}, {report.n_rules} rule{'s' * (report.n_rules != 1)}")]
    if report.error is not None:
        lines.append(_label_line("refused", report.error.reason))
    elif report.finite is not None:
        lines.append(_label_line("language", _describe_size(report)))
    for label, names, why in (
        ("undefined", report.undefined, "named, never defined"),
        ("unused", report.unreachable, "the root does not lead there"),
        ("no text", report.unproductive, "nothing matches"),
        ("empty", report.empty, "the empty text alone matches"),
    ):
        if names:
            lines.append(_label_line(label, f"{_list_names(names)} ({why})"))
    rewritten = "" if report.error else " (left recursion, rewritten)"
    lines += [_label_line("recursion", " -> ".join([*cycle, cycle[0]]) + rewritten) for cycle in report.left_recursion]
    if report.has_tokens:
        lines.append(_label_line("tokens", "it asks for tokens by name, so it has no texts to show"))
    if report.ambiguous is not None:
        lines.append(_label_line("ambiguous", f"the rules make {report.ambiguous!r} in two ways"))
    lines += [_label_line("texts" if i == 0 else "", repr(text)) for i, text in enumerate(report.samples)]
    return lines


def verdict_lines(text: str, verdict: Verdict) -> Sequence[str]:
    """Return a verdict as lines of text.

    Unless the text is accepted, they give the position, the line with a caret, and the
    characters that are allowed there.
    """
    if verdict:
        return ["yes"]
    expected = " ".join(verdict.expected[:_MAX_EXPECTED]) + (" …" if len(verdict.expected) > _MAX_EXPECTED else "")
    if verdict.verdict == "unfinished":
        return [
            "unfinished: the text is allowed so far, and something must follow",
            *_mark_position(text, verdict.at, expected),
        ]
    refused = "the text should end here" if verdict.at == len(text) else f"{text[verdict.at]!r} is not allowed here"
    return [f"no: character {verdict.at + 1}: {refused}", *_mark_position(text, verdict.at, expected)]


def count_words(n: int) -> str:
    """Return a number in words such as `39`, `3 652 059` or `about 2.9e+151`.

    It may have any size, although Python refuses to write numbers of more than 4300
    digits.
    """
    if n < _COUNTED:
        return f"{n:,}".replace(",", " ")
    exponent = int((n.bit_length() - 1) * log10(2))
    while (tenths := (n + 10 ** (exponent - 1) // 2) // 10 ** (exponent - 1)) >= 100:
        exponent += 1
    return f"about {tenths / 10:.1f}e+{exponent}"


def _describe_size(report: Report) -> str:
    """Return the number of a grammar's texts in words."""
    if not report.finite:
        return "infinitely many texts"
    if report.n_texts is None:
        return "finite" if report.has_tokens else "finite, too various to be counted here"
    return f"{count_words(report.n_texts)} text{'s' * (report.n_texts != 1)}"


def _mark_position(text: str, at: int, expected: str) -> Sequence[str]:
    """Return the text around a position, and a line with a caret below it."""
    start = max(0, at - _CONTEXT)
    shown = "".join(
        c if c.isprintable() else "\N{SYMBOL FOR NEWLINE}" if c == "\n" else "·" for c in text[start : at + _CONTEXT]
    )
    return [f"  {shown}", f"  {' ' * (at - start)}^ expected {expected}"]


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")


def _label_line(label: str, value: str) -> str:
    return label.ljust(_LABEL_CELLS) + value
