"""The command `selectrie beam`, which finds the most probable texts of a grammar."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from typer import Option

from selectrie.cli import requests
from selectrie.cli.constraint import ConstraintGroup, read_constraint
from selectrie.cli.groups import WITH_ESCAPES, Json, ModelGroup, PromptGroup, TraceGroup, with_numbers
from selectrie.cli.progress import announced
from selectrie.cli.show import show_json, show_report
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef
from selectrie.options import DEFAULT_BEAM, BeamSearchParams
from selectrie.options.beam import BEAM_TERMINATORS

if TYPE_CHECKING:
    from selectrie.grammar import Grammar


@dataclass(frozen=True, slots=True)
class GrammarsGroup(ConstraintGroup):
    """Grammar (one of them).

    The options of `selectrie beam` that name its grammar.
    """

    delimiter: Annotated[
        str, Option(metavar="TEXT", help="Text put before every text of the grammar."), WITH_ESCAPES
    ] = ""


@with_numbers(BeamSearchParams)
@dataclass(frozen=True, slots=True)
class BeamGroup:
    """Beam.

    The options of `selectrie beam` for its search.
    """

    any_path: Annotated[bool, Option("--any-path", help="Count every token path, not the tokenizer's own alone.")] = (
        False
    )
    best_path: Annotated[
        bool, Option("--best-path", help="A text counts with its best path, not with all of them added up.")
    ] = False
    terminator: Annotated[
        str, Option(metavar="NAME", help="What ends a text: " + ", ".join(BEAM_TERMINATORS) + ".")
    ] = DEFAULT_BEAM.terminator
    exact: Annotated[bool, Option("--exact", help="The best ones for certain, by best-first search.")] = False
    budget_nodes: Annotated[
        int | None, Option("--budget", metavar="N", help="Evaluate at most N nodes, then give the best so far.")
    ] = None
    incomplete: Annotated[bool, Option("--incomplete", help="Give what was broken off too.")] = False


@dataclass(frozen=True, slots=True)
class BeamOutput(TraceGroup):
    """Output.

    The options of `selectrie beam` for its output.
    """

    explain: Annotated[bool, Option("--explain", help="Show cost, scoring and the tree of tokens.")] = False
    json: Json = False


def beam(model: ModelGroup, prompt: PromptGroup, grammar: GrammarsGroup, search: BeamGroup, output: BeamOutput) -> int:
    r"""Find the most probable texts of a grammar.

    Paths are kept by their joint log-probability, so that a text which begins badly may
    still win. --exact proves the winner.

    \b
    selectrie beam -p "The capital of France is" --regex " (Paris|London|Rome)" -n 3
    selectrie beam -m model.gguf -p "As JSON: " --grammar json --max-tokens 24 --explain
    """
    if output.json and output.explain:
        raise IncompatibleOptionsError("json", OptionRef("explain"), "leave one of them out")
    params = _search_params(search)
    how = requests.prompting(prompt, grammar.delimiter)
    prompt_input = requests.read_prompt(prompt)
    constraint = _grammar(grammar)
    with requests.recorded_engine(model, output) as engine, announced("searching …"):
        result = engine.beam_search(prompt_input, constraint, beam=params, prompting=how)
    if output.json:
        return show_json(result.to_dict())
    from selectrie.cli.report.beam import beam_report

    return show_report(beam_report(result, explain=output.explain, unnamed=requests.unnamed_model(model)))


def _search_params(group: BeamGroup) -> BeamSearchParams:
    options = asdict(group)
    canonical_only, merge_equal_text = not options.pop("any_path"), not options.pop("best_path")
    return BeamSearchParams(**options, canonical_only=canonical_only, merge_equal_text=merge_equal_text)


def _grammar(group: GrammarsGroup) -> Grammar:
    constraint = read_constraint(group)
    if constraint is None:
        raise OptionError("grammar", None, "one of --grammar, --json-schema, --regex and --lark")
    return constraint
