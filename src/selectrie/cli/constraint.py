"""The options that name a grammar, and a function that reads the grammar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from typer import Option

from selectrie.cli.flags import long_flag
from selectrie.cli.grammar import open_grammar
from selectrie.errors import OptionError
from selectrie.options import DEFAULT_SEARCH

if TYPE_CHECKING:
    from selectrie.grammar import Grammar

_GRAMMAR_OPTIONS = ("grammar", "json_schema", "regex", "lark")


@dataclass(frozen=True, slots=True)
class ConstraintGroup:
    """Grammar (at most one of them).

    The options that restrict generated text to a grammar.
    """

    grammar: Annotated[
        str | None,
        Option(metavar="FILE|NAME", help="A .gbnf, .lark or .json (JSON Schema) file, or an installed name."),
    ] = None
    json_schema: Annotated[str | None, Option(metavar="FILE", help="JSON texts that a JSON Schema allows.")] = None
    regex: Annotated[str | None, Option(metavar="PATTERN", help="Texts that the pattern matches as a whole.")] = None
    lark: Annotated[str | None, Option(metavar="FILE", help="A grammar in Lark's notation.")] = None


@dataclass(frozen=True, slots=True)
class SearchedGrammarGroup(ConstraintGroup):
    """Grammar instead of choices (at most one of them).

    The options of `selectrie select` for a grammar whose texts are the choices.
    """

    max_tokens: Annotated[
        int, Option(metavar="N", help="At most N tokens in a text, where a grammar has too many texts to list.")
    ] = DEFAULT_SEARCH.max_tokens
    any_path: Annotated[
        bool, Option("--any-path", help="Count every token path there, not the tokenizer's own alone.")
    ] = False


def read_constraint(group: ConstraintGroup) -> Grammar | None:
    """Return the grammar that the options name, or None if they name none."""
    names = [name for name in _GRAMMAR_OPTIONS if getattr(group, name) is not None]
    if not names:
        return None
    if len(names) > 1:
        raise OptionError(
            "grammar", ", ".join(map(long_flag, names)), "only one of --grammar, --json-schema, --regex and --lark"
        )
    from selectrie.grammar import Grammar

    if group.grammar is not None:
        return open_grammar(group.grammar)
    if group.regex is not None:
        return Grammar.from_regex(group.regex)
    if group.json_schema is not None:
        return Grammar.from_file(group.json_schema, ending=".json")
    return Grammar.from_file(str(group.lark), ending=".lark")
