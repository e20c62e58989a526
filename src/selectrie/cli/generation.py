"""The commands `selectrie generate` and `selectrie beam`, which write text."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from selectrie.cli import requests
from selectrie.cli.grammar import ONE_OF_CONSTRAINTS, read_constraint
from selectrie.cli.groups import (
    WITH_ESCAPES,
    ConstraintGroup,
    FastModelGroup,
    GenerateOutput,
    Json,
    ModelGroup,
    OnlyChoicesGroup,
    PromptGroup,
    PromptsGroup,
    SamplingGroup,
    SequencesGroup,
    StoppingGroup,
    TraceGroup,
    setting,
    switch,
    with_options,
)
from selectrie.cli.show import announce, show_json, show_report, show_stream, tag_lines
from selectrie.core.output import flush, is_terminal, write
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef
from selectrie.options import BeamSearchParams
from selectrie.options.checks import numbers_of

if TYPE_CHECKING:
    from selectrie.engine.engine import Engine
    from selectrie.grammar import Grammar
    from selectrie.results import Completion


LOOKUP = "lookup"


def generate(
    model: FastModelGroup,
    prompt: PromptsGroup,
    sequences: SequencesGroup,
    stopping: StoppingGroup,
    sampling: SamplingGroup,
    choices: OnlyChoicesGroup,
    grammar: ConstraintGroup,
    output: GenerateOutput,
) -> int:
    r"""Generate text.

    One sequence or many, after one prompt or many, all at once. The same seed gives the
    same text, whatever else runs, except for draws closer than logits move between
    layouts: with --precision exact, --json names them.

    \b
    selectrie generate -m model.gguf "Once upon a time" -n 4 --temperature 0.8 --stop "\n\n" --escapes --stream
    selectrie generate -m model.gguf --prompts-file prompts.jsonl -n 2 --json
    selectrie generate -m model.gguf -p "Yes or no? I say" -c " yes" -c " no" --seed 1
    selectrie generate -m model.gguf -p "As JSON: " --grammar json --max-tokens 64
    """
    params = {
        "sampling": requests.sampling(sampling),
        "stopping": requests.stopping(stopping),
        "prompting": requests.prompting(prompt, choices.delimiter),
    }
    only = requests.read_choices(choices) if choices.is_given else None
    request = make_request(sequences, output, (only, read_constraint(grammar)), params)
    run_request(model, requests.read_prompts(prompt), sequences.draft, output, request)
    return 0


def make_request(
    sequences: SequencesGroup,
    output: GenerateOutput,
    allowed: tuple[list[str] | None, Grammar | None],
    params: dict[str, Any],
) -> dict[str, Any]:
    """Check the options, and return the arguments of `Engine.generate` except `draft`.

    `Engine.stream` takes the same. Raises `OptionError` for invalid options or options
    that exclude each other.

    Args:
        sequences: The options for the number of sequences.
        output: The options for the output.
        allowed: The only allowed texts, as choices or as a grammar; None for any.
        params: Records such as `SamplingParams` and `StopParams`, by argument name.
    """
    formats = [name for name in ("stream", "json", "openai") if getattr(output, name)]
    if len(formats) > 1:
        raise IncompatibleOptionsError(formats[1], OptionRef(formats[0]), "leave one of them out")
    if output.logprobs is not None and not (output.json or output.openai):
        raise OptionError("logprobs", output.logprobs, "--json or --openai too, which show them")
    if output.stream and sequences.best_of is not None:
        raise IncompatibleOptionsError("best_of", OptionRef("stream"), "which are the best is known only at the end")
    # numpy: not needed for --help
    from selectrie.engine.requests.generate import GenerateRequest
    from selectrie.engine.requests.generation_params import GenerationParams

    options = GenerationParams(
        best_of=sequences.best_of,
        choices=allowed[0],
        grammar=allowed[1],
        heal=sequences.heal,
        n_alternatives=output.logprobs or 0,
        deadline_s=sequences.deadline,
    )
    request = {**params, "n": sequences.n, "seed": sequences.seed, "options": options}
    GenerateRequest(**request)
    return request


def run_request(
    model: ModelGroup,
    prompts: list[requests.Prompt],
    draft: str | None,
    output: GenerateOutput,
    request: dict[str, Any],
) -> None:
    """Load the model and the draft model, generate, and write the result.

    Args:
        model: The options of the model.
        draft: Name of the draft model, or `LOOKUP`; None for none.
        output: The options for the output.
        request: The result of `make_request`.
    """
    prompt_input: Any = prompts if len(prompts) > 1 else prompts[0]
    many = len(prompts) > 1 or request["n"] > 1
    with ExitStack() as stack:
        engine = stack.enter_context(requests.recorded_engine(model, output))
        drafter = _open_drafter(stack, model, draft)
        if output.stream:
            _write_stream(engine, prompt_input, {**request, "draft": drafter}, many=many)
            return
        with announce("generating …"):
            generation = engine.generate(prompt_input, **request, draft=drafter)
    if output.json:
        show_json(generation.to_dict())
    elif output.openai:
        show_json(generation.to_openai(chat=_is_chat(prompts, request)))
    else:
        for completion in generation:
            write(_completion_text(completion, many=many), sys.stdout)


def _open_drafter(stack: ExitStack, model: ModelGroup, draft: str | None) -> Any:
    """Return the drafter of `--draft`; the stack closes a draft model."""
    if draft is None:
        return None
    if draft == LOOKUP:
        from selectrie.engine.requests.speculative import LookupDrafter

        return LookupDrafter()
    return stack.enter_context(requests.open_engine(replace(model, model=draft, backend=None)))


def _is_chat(prompts: list[requests.Prompt], request: dict[str, Any]) -> bool:
    """Return whether every prompt is rendered by the chat template."""
    is_system = request["prompting"].system is not None
    return is_system or all(isinstance(prompt, list) and isinstance(prompt[0], dict) for prompt in prompts)


def _write_stream(engine: Engine, prompt_input: Any, request: dict[str, Any], *, many: bool) -> None:
    """Write text as it comes; of several sequences, each once it has ended.

    On a terminal, sequences that still grow are shown below.
    """
    with engine.stream(prompt_input, **request) as chunks:
        if not many:
            if not show_stream(chunks):
                write("", sys.stdout)
        elif is_terminal(sys.stdout):
            from selectrie.cli.report.terminal import watch

            watch(chunks, lambda completion: _completion_text(completion, many=True))
        else:
            for chunk in chunks:
                if chunk.completion is not None:
                    write(_completion_text(chunk.completion, many=True), sys.stdout)
                    flush()


def _completion_text(completion: Completion, *, many: bool) -> str:
    """Return a sequence's text as it is written, tagged if there are many."""
    text = completion.text
    return tag_lines(completion.prompt_index, completion.index, text) if many else text.removesuffix("\n")


@dataclass(frozen=True, slots=True)
class GrammarsGroup(ConstraintGroup):
    """Grammar (one of them).

    The options of `selectrie beam` that name its grammar.
    """

    delimiter: str = setting("TEXT", "Text put before every text of the grammar.", "", mark=WITH_ESCAPES)


@with_options(BeamSearchParams, *numbers_of(BeamSearchParams), "terminator", "exact", "incomplete")
@dataclass(frozen=True, slots=True)
class BeamGroup:
    """Beam.

    The options of `selectrie beam` for its search.
    """

    any_path: bool = switch("Count every token path, not the tokenizer's own alone.")
    best_path: bool = switch("A text counts with its best path, not with all of them added up.")


@dataclass(frozen=True, slots=True)
class BeamOutput(TraceGroup):
    """Output.

    The options of `selectrie beam` for its output.
    """

    explain: bool = switch("Show cost, scoring and the tree of tokens.")
    json: Json = False


def beam(model: ModelGroup, prompt: PromptGroup, grammar: GrammarsGroup, search: BeamGroup, output: BeamOutput) -> int:
    r"""Find the most probable texts of a grammar.

    Paths are kept by their joint log-probability, so that a text which begins badly may
    still win. --exact proves the winner.

    \b
    selectrie beam "The capital of France is" --regex " (Paris|London|Rome)" -n 3
    selectrie beam -m model.gguf -p "As JSON: " --grammar json --max-tokens 24 --explain
    """
    if output.json and output.explain:
        raise IncompatibleOptionsError("json", OptionRef("explain"), "leave one of them out")
    options = asdict(search)
    canonical_only, merge_equal_text = not options.pop("any_path"), not options.pop("best_path")
    params = BeamSearchParams(**options, canonical_only=canonical_only, merge_equal_text=merge_equal_text)
    how = requests.prompting(prompt, grammar.delimiter)
    prompt_input, constraint = requests.read_all(
        partial(requests.read_prompt, prompt), partial(_require_grammar, grammar)
    )
    with requests.recorded_engine(model, output) as engine, announce("searching …"):
        result = engine.beam_search(prompt_input, constraint, beam=params, prompting=how)
    if output.json:
        return show_json(result.to_dict())
    from selectrie.cli.report.results import beam_report

    return show_report(beam_report(result, explain=output.explain, unnamed=requests.unnamed_model(model)))


def _require_grammar(group: GrammarsGroup) -> Grammar:
    """Return the grammar of the options; raise `OptionError` without one."""
    constraint = read_constraint(group)
    if constraint is None:
        raise OptionError("grammar", None, ONE_OF_CONSTRAINTS)
    return constraint
