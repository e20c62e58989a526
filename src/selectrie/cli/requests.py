"""Turns groups of options into the arguments of an engine."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from selectrie.cli import inputs
from selectrie.cli.arguments import long_flag
from selectrie.cli.groups import (
    BarePromptGroup,
    CascadeGroup,
    ChoicesGroup,
    ModelGroup,
    OnlyChoicesGroup,
    PromptGroup,
    PromptsGroup,
    RuleGroup,
    RunGroup,
    SamplingGroup,
    SearchGroup,
    StoppingGroup,
    TraceGroup,
    hints_of,
)
from selectrie.cli.show import announce
from selectrie.cli.traces import record_if_requested
from selectrie.core.output import visible, write
from selectrie.errors import (
    ChoiceError,
    IncompatibleOptionsError,
    MessageText,
    OptionError,
    OptionRef,
    PromptError,
    SelectrieError,
    of_value,
    words,
)
from selectrie.options import DEFAULT_PROMPTING, PromptParams, SamplingParams, ScoringRule, SearchParams, StopParams

if TYPE_CHECKING:
    from selectrie.decide.threshold import Threshold
    from selectrie.engine.cascade import Cascade
    from selectrie.engine.engine import Engine
    from selectrie.engine.pool import ModelPool
    from selectrie.runs.actors import Cluster

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=ModelGroup)
Prompt = str | list[int] | list[dict[str, object]]

LOCAL = "local"
"""Value of `--ray` for a cluster on this machine that is started for the run."""
_PROMPTS = ("bare_prompt", "prompt", "user", "prompt_file", "token_ids", "chat")
"""Fields of the argument and options that give one prompt, of which one may be set."""


_OF_CASCADE = ("cascade", "cascade_confidence")
"""Fields of `CascadeGroup` that are no options of a model."""
_LOAD_NAMES = {"threads": "n_threads", "gpu_layers": "n_gpu_layers"}
"""Arguments of `selectrie.load` whose fields in `ModelGroup` have other names.

Folders of runs record the fields' names.
"""


def open_engine(group: ModelGroup) -> Engine:
    """Return an engine for the model that the options name.

    Without a name it is the embedded model. The caller closes the engine.
    """
    from selectrie.engine import load  # the engine and numpy: not needed for --help
    from selectrie.results.advice import AdviceWarning

    warnings.simplefilter("ignore", AdviceWarning)  # reports and responses have it
    first = " in a child process first" if group.untrusted else ""
    with announce(f"opening {group.model or 'the embedded model'}{first} …"):
        return load.load(group.model, **load_options(group))


def open_pool(
    groups: Mapping[str, ModelGroup], budget_bytes: int | None, cascades: Mapping[str, Collection[str]]
) -> ModelPool:
    """Return a pool of models, whose files were looked for. The caller closes it.

    Args:
        groups: The options of each model by its name.
        budget_bytes: Memory of all loaded models together; None for no limit.
        cascades: Names of models that are used together.
    """
    from selectrie.engine.pool import ModelPool  # as in `open_engine`
    from selectrie.results.advice import AdviceWarning

    warnings.simplefilter("ignore", AdviceWarning)  # as in `open_engine`
    options = {name: load_options(group) for name, group in groups.items()}
    pool = ModelPool(
        {name: group.model for name, group in groups.items()},
        budget_bytes=budget_bytes,
        backend={name: given["backend"] for name, given in options.items() if "backend" in given},
        untrusted=any(group.untrusted for group in groups.values()),
        model_options={
            name: {key: value for key, value in given.items() if key not in {"backend", "untrusted"}}
            for name, given in options.items()
        },
    )
    pool.check_sources(cascades)
    return pool


@contextmanager
def recorded_engine(group: ModelGroup, trace: TraceGroup) -> Iterator[Engine]:
    """Yield an engine for the model of the options; with `--trace` it is recorded.

    Raises `OptionError` if a trace replaces the model and is to be recorded.
    """
    from selectrie.traces.blocks import is_trace  # as in `open_engine`

    if trace.trace is not None and group.model is not None and is_trace(Path(group.model)):
        remedy = words("what a trace answers is in it already; give the model itself with `model`")
        raise IncompatibleOptionsError("trace", f"the trace {of_value(group.model)} in place of a model", remedy)
    with open_engine(group) as engine, record_if_requested(engine, trace):
        yield engine


@contextmanager
def open_decider(group: CascadeGroup) -> Iterator[Engine | Cascade]:
    """Yield an engine for the model of the options, or a cascade of several."""
    from selectrie.decide.params import LEAST_CONFIDENCE  # as in `open_engine`
    from selectrie.engine.cascade import cascade

    if not group.cascade:
        if group.cascade_confidence != CascadeGroup().cascade_confidence:
            raise OptionError("cascade", None, "the larger models of --cascade-confidence")
        with open_engine(group) as engine:
            yield engine
        return
    least = least_confidence(group.cascade_confidence)
    LEAST_CONFIDENCE.check("cascade_confidence", least)
    with ExitStack() as stack:
        groups = [replace(group, model=source) for source in (group.model, *group.cascade)]
        yield cascade([stack.enter_context(open_engine(one)) for one in groups], min_confidence=least)


@contextmanager
def recorded_decider(group: CascadeGroup, trace: TraceGroup) -> Iterator[Engine | Cascade]:
    """Yield what `open_decider` does; with `--trace` an engine is recorded."""
    if group.cascade and trace.trace is not None:
        raise IncompatibleOptionsError("trace", OptionRef("cascade"), "record the decision of one model")
    with open_decider(group) if trace.trace is None else recorded_engine(group, trace) as decider:
        yield decider


def least_confidence(given: str) -> float | Threshold:
    """Return a number of an option for a confidence, or the threshold of its file."""
    from selectrie.decide.threshold import Threshold

    try:
        return float(given)
    except ValueError:
        return Threshold.load(given)


def load_options(group: ModelGroup) -> dict[str, Any]:
    """Return the arguments of `selectrie.load` that the options set, except the model.

    A server or a trace has no back end's options: those that differ from their default
    are passed on, and `load` refuses them.
    """
    from selectrie.engine.sources import is_server  # as in `open_engine`
    from selectrie.traces.blocks import is_trace

    given = {name: value for name, value in asdict(group).items() if name not in ("model", *_OF_CASCADE)}
    if group.model is not None and (is_server(group.model) or is_trace(Path(group.model))):
        plain = asdict(default_model(type(group))) | {"verbose": group.verbose}
        return {name: value for name, value in given.items() if value != plain[name]}
    return {_LOAD_NAMES.get(name, name): value for name, value in given.items() if value is not None}


def default_model(group: type[ModelT]) -> ModelT:
    """Return the options of a model that are not given: those of the environment."""
    options = hints_of(group)
    names = {name: hint.__metadata__[0].envvar for name, hint in options.items() if hint.__metadata__[0].envvar}
    given: dict[str, Any] = {name: os.environ[one] for name, one in names.items() if os.environ.get(one)}
    return group(**given | ({"threads": int(given["threads"])} if "threads" in given else {}))


def cluster(group: ModelGroup, address: str, n_actors: int | None) -> Cluster:
    """Return the Ray cluster of `--ray` and `--actors`, whose actors load the model.

    Args:
        group: The options of the model.
        address: The cluster's address, or `LOCAL`.
        n_actors: Number of actors; None for Ray's resources.
    """
    from selectrie.runs.actors import Cluster

    source = group.model
    if source is not None and os.path.exists(source):  # noqa: PTH110 - no error for any name
        source = str(Path(source).resolve())  # a file is the same in every process
    return Cluster(
        source=source, options=load_options(group), address=None if address == LOCAL else address, n_actors=n_actors
    )


def on_cluster(
    work: Callable[[Cluster, dict[str, Any]], T], engine: Engine, running: RunGroup, model: ModelGroup
) -> T | None:
    """Return the function that does the units of a run on a cluster.

    None without `--ray`: then this process does them.

    Args:
        work: Makes the function from the cluster and the engine's signature.
        engine: The engine that planned the run.
        running: The options of the run.
        model: The options of the model, which the cluster's actors load.
    """
    if running.ray is None:
        return None
    from selectrie.runs.folder import signature_of

    return work(cluster(model, running.ray, running.actors), signature_of(engine))


def check_run(running: RunGroup) -> None:
    """Raise `OptionError` for `--actors` without `--ray`."""
    if running.actors is not None and running.ray is None:
        raise OptionError("actors", running.actors, "--ray too, which starts the actors")


def resumed_model(model: ModelT, then: dict[str, Any], where: str) -> ModelT:
    """Return the options of the model of a run that is resumed.

    They are those with which the run began, unless an option of the model is given.

    Args:
        model: The options of the command.
        then: The options that the run's folder has.
        where: The folder, for errors.
    """
    from selectrie.evaluation.runner import check_kinds

    kind = type(model)
    check_kinds(then, get_type_hints(kind) | ({"cascade": list | None} if kind is CascadeGroup else {}), where)
    return kind(**then) if model == default_model(kind) else model


@contextmanager
def resumable(command: str) -> Iterator[None]:
    """Name the command that resumes the run if Ctrl-C ends the `with` block."""
    try:
        yield
    except KeyboardInterrupt:
        write(visible(f"interrupted; go on with: {command}"), sys.stderr)
        raise


def read_prompts(group: PromptsGroup) -> list[Prompt]:
    """Return the prompts from the one option that gives any."""
    if group.prompts_file is None:
        return [read_prompt(group)]
    sources = _sources(group)
    if sources:
        sources.append("--prompts-file")
        raise PromptError(f"prompts are given {len(sources)} times: {', '.join(sources)}; give them once")
    return list(inputs.read_prompts(group.prompts_file))


def unnamed_model(group: ModelGroup) -> str | None:
    """Return the default model's name if the options name no model, else None."""
    if group.model is not None:
        return None
    from selectrie.engine import sources

    return sources.NAME


def read_prompt(group: BarePromptGroup) -> Prompt:
    """Return the prompt from the one option that gives it, else from piped stdin.

    Raises `PromptError` for none or several.
    """
    sources = _sources(group)
    if len(sources) > 1:
        raise PromptError(f"the prompt is given {len(sources)} times: {', '.join(sources)}; give it once")
    if group.system is not None and sources and sources[0] in ("--chat", "--token-ids"):
        raise PromptError(f"--system goes with --user or a prompt as text, not with {sources[0]}")
    is_stdin = group.bare_prompt == inputs.STDIN
    text = group.prompt if is_stdin or group.bare_prompt is None else group.bare_prompt
    if text is not None:
        return text
    if group.user is not None:
        message: dict[str, object] = {"role": "user", "content": group.user}
        return [message]
    if group.token_ids is not None:
        return inputs.parse_token_ids(group.token_ids)
    if group.chat is not None:
        return inputs.read_messages(group.chat)
    path = inputs.STDIN if is_stdin else group.prompt_file
    if path is not None:
        return inputs.read_prompt(path)
    text = inputs.read_prompt(inputs.STDIN) if inputs.has_piped_text() else ""
    if not text:
        raise PromptError(
            "no prompt: give -p TEXT, a text as the first argument, --user TEXT (to a chat model), --prompt-file, "
            "--token-ids, --chat, or text on stdin (-p '' for an empty one)"
        )
    return text


def _sources(group: BarePromptGroup) -> list[str]:
    """Return the argument and options of the command line that give a prompt.

    The argument is written with its beginning, since a choice may be meant.
    """
    return [
        f"the argument {of_value(group.bare_prompt)}" if name == "bare_prompt" else long_flag(name)
        for name in _PROMPTS
        if getattr(group, name) is not None
    ]


def prompting(group: BarePromptGroup, delimiter: str = "") -> PromptParams:
    """Return the `PromptParams` of the options, with a delimiter before choices."""
    return PromptParams(
        boundary=group.boundary if isinstance(group, PromptGroup) else DEFAULT_PROMPTING.boundary,
        delimiter=delimiter,
        truncate=group.truncate,
        system=group.system,
        assistant_prefix=group.assistant_prefix,
        template_args=inputs.parse_template_args(group.template_arg or ()),
        parse_special=group.parse_special,
    )


def read_choices(group: OnlyChoicesGroup) -> list[str]:
    """Return the choices of the arguments; else those of `--choice` and `--choices`.

    Raises `ChoiceError` if there are none, or if both arguments and options give some.
    """
    bare = list(group.bare_choices or ()) if isinstance(group, ChoicesGroup) else []
    if bare and (group.choice or group.choices_file is not None):
        flag = "-c" if group.choice else "--choices"
        raise ChoiceError(f"choices are given as arguments (from {of_value(bare[0])}) and by {flag}; give them one way")
    if len(bare) == 1 and "," in bare[0]:
        raise ChoiceError(
            f"the argument {of_value(bare[0])} is one choice; write several with spaces between them, or as "
            "--choices A,B,…, and a single one with -c"
        )
    choices = bare or list(group.choice or ())
    if group.choices_file is not None:
        choices += inputs.read_listed("choices_file", group.choices_file, allow_empty=group.allow_empty)
    if not choices:
        raise ChoiceError(
            "no choices: give -c TEXT for each, --choices A,B,… or --choices FILE, or texts after the prompt"
        )
    return choices


def read_all(*readers: Callable[[], Any]) -> list[Any]:
    """Return what each of the functions returns; one error says what all of them miss.

    The functions read options.
    """
    found: list[Any] = []
    errors: list[SelectrieError] = []
    for read in readers:
        try:
            found.append(read())
        except (ChoiceError, OptionError, PromptError) as error:  # noqa: PERF203 - two or three functions
            errors.append(error)
    if errors:
        parts = [part for error in errors for part in ("; ", error.args[0])][1:]
        errors[0].args = (MessageText(*parts),)
        raise errors[0]
    return found


def sampling(group: SamplingGroup) -> SamplingParams:
    """Return the `SamplingParams` of the options."""
    return SamplingParams(**{**asdict(group), "logit_bias": inputs.parse_logit_bias(group.logit_bias or ())})


def stopping(group: StoppingGroup) -> StopParams:
    """Return the `StopParams` of the options."""
    return StopParams(
        **{**asdict(group), "stop": tuple(group.stop or ()), "stop_tokens": tuple(group.stop_tokens or ())}
    )


def rule(group: RuleGroup) -> ScoringRule:
    """Return the `ScoringRule` of the options."""
    if group.rule == "batch":
        raise OptionError("rule", "batch", "a rule for one prompt; batch needs many (select_many in Python)")
    return ScoringRule(group.rule, premise=group.premise, content_free=tuple(group.content_free or ()))


def prior(group: RuleGroup, choices: list[str]) -> Mapping[str, float] | None:
    """Return the prior probabilities of the choices; None if no file gives them."""
    return None if group.prior is None else inputs.read_prior(group.prior, choices)


def search(group: SearchGroup, k: int) -> SearchParams:
    """Return the `SearchParams` of the options, for `k` certain first places."""
    return SearchParams(**asdict(group), k=k)
