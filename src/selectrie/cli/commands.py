"""Declares the commands of the command line."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperGroup

from selectrie.cli import requests, traces
from selectrie.cli.arguments import command, run_guarded, tell
from selectrie.cli.classify import classify
from selectrie.cli.decide import decide
from selectrie.cli.evaluation import eval_app
from selectrie.cli.extract import extract
from selectrie.cli.generation import beam, generate
from selectrie.cli.grammar import grammar_app, read_constraint
from selectrie.cli.groups import (
    ChoicesGroup,
    EndingGroup,
    JsonOutput,
    ModelGroup,
    PromptGroup,
    RankOutput,
    RuleGroup,
    ScoreOutput,
    SearchedGrammarGroup,
    SearchGroup,
    SelectOutput,
    SpellingsGroup,
    TextGroup,
    TokensOutput,
)
from selectrie.cli.render import render
from selectrie.cli.serve import serve
from selectrie.cli.show import announce, progress, show_json, show_report, to_tsv
from selectrie.cli.traces import ReplayGroup
from selectrie.core.output import write
from selectrie.errors import IncompatibleOptionsError, MissingExtraError, OptionError, OptionRef
from selectrie.options import TERMINATORS, one_of
from selectrie.options.keywords import Terminator
from selectrie.version import __version__

if TYPE_CHECKING:
    from selectrie.results import Selection

TIE = 2


class _WithWords(TyperGroup):
    """The commands, where the words `help` and `version` are `--help` and `--version`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; `help select` means `select --help`."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, ["--version"] if args == ["version"] else args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; for one of a group, name it with its group in the error."""
        within = [one.name for one in self.commands.values() if args[0] in getattr(one, "commands", ())]
        if within and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}. Did you mean '{within[0]} {args[0]}'?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="selectrie",
    cls=_WithWords,
    no_args_is_help=True,
    # Plain help: half the start-up time, and the same text in every terminal.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(grammar_app)
app.add_typer(eval_app)


def _show_version(value: bool) -> None:
    if value:
        write(f"selectrie {__version__}", sys.stdout)
        raise typer.Exit


@app.callback(
    help="Choose among texts with a language model: the joint log-probability decides.\n\n"
    '\b\nselectrie select -p "The capital of France is" -c " Paris" -c " London"\n\n'
    "Without -m the small model that comes with selectrie answers."
)
def root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Accept the options of `selectrie` itself, such as `--version`."""


@command(app)
def select(
    model: ModelGroup,
    prompt: PromptGroup,
    choices: ChoicesGroup,
    grammar: SearchedGrammarGroup,
    ending: EndingGroup,
    rule: RuleGroup,
    search: SearchGroup,
    output: SelectOutput,
) -> int:
    r"""Choose one of several texts.

    The one that the model finds most probable after the prompt, as a whole. Choices and
    prompt are taken exactly as given: " Paris" and "Paris" are different.

    \b
    selectrie select -m model.gguf "The capital of France is" " Paris" " London"
    selectrie select -m model.gguf -p "The capital of France is" -c " Paris" -c " London"
    selectrie select -m model.gguf --prompt-file p.txt --choices labels.txt --rule pmi --json
    selectrie select -m model.gguf -p "He bought a" -c " cat" -c " cats" --following "."
    selectrie select -m model.gguf -p "Today is " --regex "[0-9]{4}-[0-9]{2}-[0-9]{2}"
    """
    return _run_selection(
        1, model, prompt, choices, ending=ending, rule=rule, search=search, output=output, grammar=grammar
    )


@command(app)
def rank(
    model: ModelGroup,
    prompt: PromptGroup,
    choices: ChoicesGroup,
    ending: EndingGroup,
    rule: RuleGroup,
    search: SearchGroup,
    output: RankOutput,
) -> int:
    r"""Rank texts, best first.

    The first --top places are made certain, the rest only as far as that needs.

    \b
    cat prompt.txt | selectrie rank -m model.gguf --choices 100k.txt --top 5 --explain
    selectrie rank -m model.gguf "I feel" --choices labels.txt --stop all --tsv
    """
    return _run_selection(output.top, model, prompt, choices, ending=ending, rule=rule, search=search, output=output)


@command(app)
def score(
    model: ModelGroup, prompt: PromptGroup, text: TextGroup, spellings: SpellingsGroup, output: ScoreOutput
) -> int:
    r"""Score one text after a prompt.

    Its log-probability is the sum over its tokens, each given all before it.

    \b
    selectrie score -m model.gguf "The sky is" " blue" --per-token
    selectrie score -m model.gguf -p "The sky is" -t " blue" --tokenizations all
    """
    prompt_input, scored = requests.read_all(partial(requests.read_prompt, prompt), partial(_text_of, text))
    how = requests.prompting(prompt)
    with requests.recorded_engine(model, output) as engine, announce("scoring …"):
        result = engine.score(prompt_input, scored, following=text.following, **asdict(spellings), prompting=how)
    if output.json:
        return show_json(result.to_dict())
    from selectrie.cli.report.results import text_score_report

    return show_report(text_score_report(result, per_token=output.per_token, unnamed=requests.unnamed_model(model)))


command(app)(generate)

command(app)(beam)

command(app)(render)

command(app)(decide)
command(app)(extract)

command(app)(classify)

command(app)(serve)


@command(app)
def replay(trace: ReplayGroup, output: JsonOutput) -> int:
    r"""Run a recorded command again, from its trace.

    Its output is the same, but for its cost. No model is needed, and no file but the
    trace is read. A trace that was recorded from Python shows what it holds.

    \b
    selectrie select -p "The capital of France is" -c " Paris" -c " Rome" --trace run.trace
    selectrie replay run.trace
    selectrie replay run.trace --list
    selectrie select -m run.trace -p "The capital of France is" -c " Paris" -c " Rome" --json
    """
    return traces.replay(trace, output, [select, rank, score, generate, beam, decide])


@command(app)
def tokens(
    model: ModelGroup, prompt: PromptGroup, choices: ChoicesGroup, ending: EndingGroup, output: TokensOutput
) -> int:
    r"""Show tokens and trie of a request.

    How the prompt is cut into tokens; with choices also these, and what would be
    evaluated. The model is not run.

    \b
    selectrie tokens -m model.gguf "The capital of France is" " Paris" " London"
    selectrie tokens -m model.gguf --user "What is the capital of France?"
    """
    prompt_input, how = requests.read_prompt(prompt), requests.prompting(prompt, choices.delimiter)
    texts = requests.read_choices(choices) if choices.is_given else []
    one_of("terminator", ending.terminator, TERMINATORS)
    with requests.open_engine(model) as engine:
        # Without choices, the prompt's tokens are those before an empty one.
        terminator = cast("Terminator", ending.terminator if texts else "eog")
        plan = engine.tokens(
            prompt_input, texts or [""], terminator=terminator, following=ending.following, prompting=how
        )
    if not texts:
        plan = replace(plan, choices=(), boundary_shift=())
    unnamed = requests.unnamed_model(model)
    if output.json:
        return show_json({**plan.to_dict(), **({} if unnamed is None else {"model": unnamed})})
    from selectrie.cli.report.results import token_plan_report

    return show_report(token_plan_report(plan, texts, top=output.top, unnamed=unnamed))


@command(app)
def models(output: JsonOutput) -> int:
    r"""List the models at hand.

    The embedded model, then the models in the Hugging Face cache (extra hf), with
    their sizes and digests.

    \b
    selectrie models --json
    """
    from selectrie.engine import sources

    records = [sources.embedded_record()]
    try:
        records += sources.hub_records()
    except MissingExtraError as error:
        write(f"note: {error}", sys.stderr)
    if output.json:
        return show_json({"models": [record.to_dict() for record in records]}, "models")
    from selectrie.cli.report.lists import models_report

    return show_report(models_report(records))


@app.command(
    "lm-eval",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    help="Run lm-evaluation-harness with our engine as its model (extra lm-eval).\n\n"
    "Everything is passed on to the harness's own command; --model_args are those of selectrie.load: "
    "path, n_ctx, n_threads, precision …\n\n"
    "\b\nselectrie lm-eval --model_args path=model.gguf --tasks hellaswag,arc_easy",
)
def lm_eval(context: typer.Context) -> None:
    """Run the command of lm-evaluation-harness."""

    def passed_on() -> int:
        from selectrie.evaluation import lm_eval_model

        lm_eval_model.main(list(context.args))
        return 0

    run_guarded(passed_on, {"verbose": "--verbose" in context.args})


def _text_of(group: TextGroup) -> str:
    if group.text is not None and group.bare_text is not None:
        raise IncompatibleOptionsError("text", OptionRef("bare_text"), "give the text once")
    text = group.bare_text if group.text is None else group.text
    if text is None:
        raise OptionError("text", None, "the text to score, also as the argument after the prompt")
    return text


def _check_output(output: SelectOutput) -> None:
    """Raise an error if more than one format of the output is requested."""
    formats = [name for name in ("json", "tsv", "explain") if getattr(output, name)]
    if len(formats) > 1:
        raise IncompatibleOptionsError(formats[0], OptionRef(formats[1]), "leave one of them out")


def _run_selection(
    k: int,
    model: ModelGroup,
    prompt: PromptGroup,
    choices: ChoicesGroup,
    *,
    ending: EndingGroup,
    rule: RuleGroup,
    search: SearchGroup,
    output: SelectOutput,
    grammar: SearchedGrammarGroup | None = None,
) -> int:
    """Show the `Selection` for the options of `select` or `rank`.

    All options and files are read first, so mistakes are reported before the model is
    loaded.

    Args:
        k: Number of first places that must be certain.
        grammar: The options of `select` that may name a grammar; None for `rank`.
    """
    constraint = None if grammar is None else read_constraint(grammar)
    if constraint is not None and choices.is_given:
        raise IncompatibleOptionsError("choice", "a grammar", "leave one of them out")
    _check_output(output)
    one_of("terminator", ending.terminator, TERMINATORS)
    texts: Any = None
    request: dict[str, Any] = {}
    read_prompt = partial(requests.read_prompt, prompt)
    if grammar is None or constraint is None:
        prompt_input, texts = requests.read_all(read_prompt, partial(requests.read_choices, choices))
        how = requests.search(search, min(k, len(texts)))
        request["prior"] = requests.prior(rule, texts)
    elif rule.prior is not None:
        raise IncompatibleOptionsError("prior", "a grammar", "a prior weighs choices that are listed, so leave it out")
    else:
        how = replace(requests.search(search, 1), max_tokens=grammar.max_tokens, canonical_only=not grammar.any_path)
        request["grammar"], prompt_input = constraint, read_prompt()
    request |= {
        "rule": requests.rule(rule),
        "terminator": ending.terminator,
        "following": ending.following,
        "prompting": requests.prompting(prompt, choices.delimiter),
    }
    with requests.recorded_engine(model, output) as engine, progress() as on_progress:
        if constraint is None:
            how = replace(how, on_progress=on_progress)
        ask = engine.rank if grammar is None else engine.select
        selection = ask(prompt_input, texts, search=how, **request)
    return _show_selection(selection, output, requests.unnamed_model(model))


def _show_selection(selection: Selection, output: SelectOutput, unnamed: str | None) -> int:
    """Write a selection in the requested format and return the exit code."""
    if output.json:
        show_json(selection.to_dict())
    elif output.tsv:
        write(to_tsv(selection.top(output.top)), sys.stdout)
    else:
        from selectrie.cli.report.results import selection_report

        show_report(selection_report(selection, top=output.top, explain=output.explain, unnamed=unnamed))
    uncertain = selection.is_tie or not selection.certificate.proved
    if output.strict and uncertain:
        reason = "the first place is a tie" if selection.is_tie else "the first place is not proved"
        tell("uncertain", f"{reason} (--strict)")
        return TIE
    return 0
