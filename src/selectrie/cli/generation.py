"""The output of `selectrie generate`: whole texts, a stream, or one JSON object."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from selectrie.cli import requests
from selectrie.cli.groups import GenerateOutput, ModelGroup, SequencesGroup
from selectrie.cli.progress import announced
from selectrie.cli.show import show_json, show_stream
from selectrie.cli.text import tagged
from selectrie.core.output import flush, is_terminal, write
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef

if TYPE_CHECKING:
    from selectrie.engine.engine import Engine
    from selectrie.grammar import Grammar
    from selectrie.results import Completion, Generation

LOOKUP = "lookup"


def check(
    sequences: SequencesGroup,
    output: GenerateOutput,
    allowed: tuple[list[str] | None, Grammar | None],
    params: dict[str, Any],
) -> dict[str, Any]:
    """Return the arguments of `Engine.generate` and `Engine.stream`, except `draft`.

    Raises `OptionError` if the options are not valid or exclude each other.

    Args:
        allowed: The only allowed texts, as choices or a grammar.
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


def answer(
    model: ModelGroup,
    prompts: list[requests.Prompt],
    draft: str | None,
    output: GenerateOutput,
    request: dict[str, Any],
) -> None:
    """Load the model and the draft model, generate, and write the result.

    Args:
        draft: Name of the draft model or method; None for none.
        request: The result of `check`.
    """
    prompt_input: Any = prompts if len(prompts) > 1 else prompts[0]
    many = len(prompts) > 1 or request["n"] > 1
    with ExitStack() as stack:
        engine = stack.enter_context(requests.recorded_engine(model, output))
        drafter = _drafter(stack, model, draft)
        if output.stream:
            _stream(engine, prompt_input, {**request, "draft": drafter}, many=many)
            return
        with announced("generating …"):
            generation = engine.generate(prompt_input, **request, draft=drafter)
    _write(generation, output, many=many, chat=_is_chat(prompts, request))


def _drafter(stack: ExitStack, model: ModelGroup, draft: str | None) -> Any:
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


def _write(generation: Generation, output: GenerateOutput, *, many: bool, chat: bool) -> None:
    if output.json:
        show_json(generation.to_dict())
    elif output.openai:
        show_json(generation.to_openai(chat=chat))
    else:
        for completion in generation:
            write(_whole(completion, many=many), sys.stdout)


def _stream(engine: Engine, prompt_input: Any, request: dict[str, Any], *, many: bool) -> None:
    with engine.stream(prompt_input, **request) as chunks:
        if not many:
            if not show_stream(chunks):
                write("", sys.stdout)
        elif is_terminal(sys.stdout):
            from selectrie.cli.live_display import watch

            watch(chunks, lambda completion: _whole(completion, many=True))
        else:
            for chunk in chunks:
                if chunk.completion is not None:
                    write(_whole(chunk.completion, many=True), sys.stdout)
                    flush()


def _whole(completion: Completion, *, many: bool) -> str:
    text = completion.text
    return tagged(completion.prompt_index, completion.index, text) if many else text.removesuffix("\n")
