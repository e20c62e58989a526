"""The groups of options that commands share, as frozen records.

The first line of a record's docstring is the heading of its group in the help. Options
have the library's defaults and meanings.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

from typer import Argument, Option

from selectrie.core.files import SHOWN_SUFFIXES
from selectrie.options import (
    DEFAULT_SEARCH,
    RULES,
    TERMINATORS,
    SamplingParams,
    SearchParams,
    SpellingParams,
    StopParams,
)
from selectrie.options.checks import Bounds, Names, OptionField, numbers_of, options_of

GroupT = TypeVar("GroupT", bound=type[Any])

OLD_FLAGS = frozenset({"--choices-file", "--options", "--rows", "--column", "--text-column"})
"""Names of flags that work and are not in the help.

The first three are earlier names, for one more version; others are those of other
programs.
"""
WITH_ESCAPES = "escapes"
"""Marks an option in which `--escapes` replaces escapes."""


@dataclass(frozen=True, slots=True)
class StdinAs:
    """Marks an option that takes a file: `-` is standard input.

    The content becomes a file, whose suffix goes by its beginning: there is one for a
    JSON object, one for other text, and `.json` for an array.
    """

    of_object: str
    of_text: str

    def suffix(self, data: bytes) -> str:
        """Return the suffix for a content; text with tabs and no commas is `.tsv`."""
        text = data.removeprefix(codecs.BOM_UTF8).lstrip()
        if text.startswith(b"{"):
            return self.of_object
        if re.match(rb'\[\s*["{\]]', text):  # not a heading of TOML
            return ".json"
        head = text.split(b"\n", 1)[0]
        return ".tsv" if self == STDIN_ROWS and b"\t" in head and b"," not in head else self.of_text


STDIN_ROWS = StdinAs(".jsonl", ".csv")
STDIN_GRAMMAR = StdinAs(".json", ".gbnf")
STDIN_QUESTIONS = StdinAs(".json", ".toml")
STDIN_JSON = StdinAs(".json", ".json")


_OPTION, _MARK = "option", "mark"
"""Keys of a field's metadata: how it is an option, and the mark of `setting`."""


def setting(
    metavar: str | None, help: str, default: Any = None, *, flags: str = "", mark: object = None, **further: Any
) -> Any:
    """Return the field of an option group for an option with a value.

    Args:
        metavar: What the help shows for the value.
        help: The help.
        default: The value of an option that is not given.
        flags: Its flags, separated by spaces; the field's name by default.
        mark: What is done with the value: `WITH_ESCAPES`, a `StdinAs` or a `TablesOf`.
        further: Further arguments of `typer.Option`.
    """
    option = Option(*flags.split(), metavar=metavar, help=help, **further)
    return field(default=default, metadata={_OPTION: option, _MARK: mark})


def switch(help: str) -> Any:
    """Return the field of an option group for a flag without a value."""
    return field(default=False, metadata={_OPTION: help, _MARK: None})


def argument(metavar: str, help: str, default: Any = None, *, mark: object = None) -> Any:
    """Return the field of an option group for an argument; `MISSING` requires one."""
    return field(default=default, metadata={_OPTION: Argument(metavar=metavar, help=help), _MARK: mark})


_HINTS: dict[type[Any], Mapping[str, Any]] = {}


def hints_of(group: type[Any]) -> Mapping[str, Any]:
    """Return the annotated type of each field of an option group (cached)."""
    if group not in _HINTS:
        hints = get_type_hints(group, include_extras=True)
        for one in fields(group):
            option = one.metadata.get(_OPTION)
            if isinstance(option, str):
                option = Option(f"--{one.name.replace('_', '-')}", help=option)
            if option is not None:
                hints[one.name] = Annotated[hints[one.name], option, one.metadata[_MARK]]
        _HINTS[group] = hints
    return _HINTS[group]


def with_options(record: Any, *names: str) -> Callable[[GroupT], GroupT]:
    """Return a decorator that adds an option record's fields to a group, as flags.

    Args:
        record: The record of library options.
        names: The fields to add; without names, all numeric fields.
    """

    def extend(group: GroupT) -> GroupT:
        options = options_of(record)
        added = [_make_field(options[name]) for name in names or numbers_of(record)]
        kind = make_dataclass(group.__name__, added, bases=(group,), frozen=True, slots=True)
        kind.__doc__ = group.__doc__
        return kind  # type: ignore[return-value]  # a subclass

    return extend


def _make_field(option: OptionField) -> tuple[str, Any, Any]:
    """Return name, annotated type and default of a group's field for an option."""
    allowed, metavar = option.allowed, None
    if isinstance(allowed, Names):
        metavar = "|".join(allowed.names) if len(allowed.names) < 4 else "NAME"
    elif isinstance(allowed, Bounds):
        metavar = "N" if option.kind is int else "P" if allowed.max_value == 1 else "X"
    flag = {"n": "-n", "budget_nodes": "--budget"}.get(option.name, "--" + option.name.replace("_", "-"))
    kind: Any = option.kind | None if option.default is None else option.kind
    return option.name, Annotated[kind, Option(flag, metavar=metavar, help=option.help)], option.default


TemplateArgs = Annotated[
    list[str] | None, Option(metavar="KEY=JSON", help="For the chat template: enable_thinking=false. Repeatable.")
]
Json = Annotated[bool, Option("--json", help="One JSON object.")]


@dataclass(frozen=True, slots=True)
class JsonOutput:
    """Output.

    The option of commands that write a report or JSON.
    """

    json: Json = False


@dataclass(frozen=True, slots=True)
class ModelGroup:
    """Model.

    The options that name and load a model. Options of a back end are None if they are
    not given, because another one may not have them. Every back end has `precision` and
    `verbose`.
    """

    model: str | None = setting(
        "MODEL",
        "GGUF file, folder of a Transformers checkpoint, hf:owner/repo (a checkpoint), "
        "hf:owner/repo/file.gguf, hf:owner/repo:Q4_K_M, a server's http://host:8000, or a trace. "
        "[default: the embedded model]",
        flags="--model -m",
        envvar="SELECTRIE_MODEL",
    )
    backend: str | None = setting(
        "NAME", "What opens the model: llama.cpp, transformers or xla. [default: found by the model's content]"
    )
    precision: str = setting(
        "exact|fast",
        "exact: numbers do not depend on how work is cut; fast: llama.cpp's own layout, a checkpoint's own type.",
        default="exact",
        envvar="SELECTRIE_PRECISION",
    )
    n_ctx: int | None = setting("N", "Tokens held at once. [default: training context, less if long]")
    n_batch: int | None = setting("N", "At most N rows in a model call. [default: 512]")
    threads: int | None = setting(
        "N", "Threads. [default: one a core; one below 20 M weights]", envvar="SELECTRIE_THREADS"
    )
    gpu_layers: int | None = setting("N", "llama.cpp: layers on the GPU, -1 for all. [default: 0]")
    device: str | None = setting(
        "NAME", "transformers, xla: cpu, cuda, cuda:1 or tpu. [default: a GPU if there is one]"
    )
    dtype: str | None = setting(
        "TYPE", "transformers: float32, bfloat16 or float16. [default: float32 for exact, the checkpoint's for fast]"
    )
    untrusted: bool | None = setting(
        None,
        "Open a file that has not passed before in a child process first, which a damaged file may end. "
        "[default: trusted]",
        flags="--untrusted/--trusted",
    )
    verbose: bool = switch("The back end's log and tracebacks on stderr.")


@dataclass(frozen=True, slots=True)
class ConfigGroup:
    """Configuration.

    The option that names a file with values of the command's other options.
    """

    config: str | None = setting(
        "FILE",
        "Options from a file of TOML: `port = 9000`. A flag goes first, then an environment variable named "
        "for it, as SELECTRIE_SERVE_PORT for --port.",
    )


@dataclass(frozen=True, slots=True)
class FastModelGroup(ModelGroup):
    """Model.

    The options that name and load a model whose default precision is `fast`.
    """

    precision: str = setting(
        "exact|fast",
        "fast: llama.cpp's own layout, a checkpoint's own type; exact: close draws are measured and reported.",
        default="fast",
        envvar="SELECTRIE_PRECISION",
    )


CascadeConfidence = Annotated[
    str, Option(metavar="P|FILE", help="A cascade asks the next model below this confidence, or a fitted threshold.")
]


@dataclass(frozen=True, slots=True)
class CascadeGroup(ModelGroup):
    """Model.

    The options that name and load a model, and further ones behind it.
    """

    cascade: list[str] | None = setting(
        "MODEL", "A larger model, asked what those before it are not sure of. Repeatable."
    )
    cascade_confidence: CascadeConfidence = "0.8"


@dataclass(frozen=True, slots=True)
class ThinkingGroup:
    """Thinking.

    The options for rationales that the model writes before it answers.
    """

    think: int | None = setting("N", "Write N rationales first; the answer is the mean of the answers behind them.")
    think_tokens: int = setting("N", "At most N tokens of a rationale.", 300)
    think_start: str | None = setting("TEXT", "Text before each rationale.")
    think_stop: str | None = setting(
        "TEXT", "Text that ends a rationale, as $'\\nAnswer: '. [default: the chat template's block of thinking]"
    )
    think_seed: int = setting("N", "Rationale i has seed N + i.", 0)
    think_shared: bool = switch("Write the rationales once for all questions about a text.")


@dataclass(frozen=True, slots=True)
class TraceGroup:
    """Trace.

    The options that record a command.
    """

    trace: str | None = setting(
        "FILE",
        "Record every row that is read, with the prompt and all texts. "
        "`selectrie replay FILE` shows the same again, and -m FILE answers from it, without the model.",
    )
    full_rows: bool = switch("With --trace: keep whole rows, which sampling reads. The file is large then.")


TableOut = Annotated[
    str | None,
    Option(
        "--out",
        "--output",
        "-o",
        metavar="FILE",
        help=f"The rows with new columns ({SHOWN_SUFFIXES}); the run is in FILE.run, and goes on there.",
    ),
]
ResumedTable = Annotated[str | None, Option(metavar="FOLDER", help="Go on with a run from its folder FILE.run alone.")]
OtherMachine = Annotated[
    bool, Option("--other-machine", help="Go on with one that began on another processor or build.")
]
ColumnPrefix = Annotated[str, Option(metavar="TEXT", help="Before the name of every new column.")]


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Run.

    The options for where a run is kept, and how it goes on and is distributed.
    """

    out: str | None = setting("FOLDER", "Keep log and results there; what is there goes on.", flags="--out --output -o")
    resume: str | None = setting("FOLDER", "Go on with a run; nothing scored is scored again.")
    other_machine: OtherMachine = False
    ray: str | None = setting("ADDRESS", "Over a Ray cluster; `local`: one on this machine.")
    actors: int | None = setting("N", "Models at once. [default: as many as fit]")


@dataclass(frozen=True, slots=True)
class BarePromptGroup:
    """Prompt (one of the first six, or text on stdin).

    The argument and the options that give a prompt.
    """

    bare_prompt: str | None = argument("PROMPT", "The prompt, exactly as given (- for stdin).", mark=WITH_ESCAPES)
    prompt: str | None = setting("TEXT", "The prompt, exactly as given.", flags="--prompt -p", mark=WITH_ESCAPES)
    user: str | None = setting(
        "TEXT", "Message to a chat model, which its own template makes a prompt.", mark=WITH_ESCAPES
    )
    prompt_file: str | None = setting("FILE", "Prompt from a file (- for stdin), less one line end at its end.")
    token_ids: str | None = setting("IDS", "Prompt as token ids: 1,2,3.")
    chat: str | None = setting("FILE", "Chat messages, a JSON array; the model's own template is used.")
    system: str | None = setting("TEXT", "System message before that of --user.")
    assistant_prefix: str = setting("TEXT", "What the assistant's turn begins with.", "")
    template_arg: TemplateArgs = None
    parse_special: bool = switch("Recognise control tokens in a raw prompt; choices stay plain text.")
    truncate: str = setting(
        "error|left", "What to do with a prompt that is too long; left drops its beginning.", "error"
    )
    escapes: bool = switch(
        "Read \\n, \\r, \\t and \\\\ in arguments, -p, --user, -c, -t, --delimiter, --following and texts of "
        "--stop as line ends, tab and backslash."
    )


@dataclass(frozen=True, slots=True)
class PromptGroup(BarePromptGroup):
    """Prompt (one of the first six, or text on stdin).

    The options that give a prompt, and how it is joined to choices.
    """

    boundary: str = setting("heal|split|harness", "How prompt and choice meet on tokens.", "heal")


@dataclass(frozen=True, slots=True)
class PromptsGroup(BarePromptGroup):
    """Prompt (one of the first six, --prompts-file, or text on stdin).

    The options that give one prompt or many.
    """

    prompts_file: str | None = setting(
        "FILE", 'Many prompts, a JSON text or {"prompt"|"messages": …} a line (- for stdin).'
    )


@dataclass(frozen=True, slots=True)
class OnlyChoicesGroup:
    """Choices, where only these texts may be generated.

    The options that give choices.
    """

    choice: list[str] | None = setting(
        "TEXT", "A choice, exactly as given. Repeatable.", flags="--choice -c", mark=WITH_ESCAPES
    )
    choices_file: str | None = setting(
        "A,B,…|FILE",
        "Choices with commas between them, or a file: one a line, or a .json array of texts (- for stdin).",
        flags="--choices --choices-file",
    )
    allow_empty: bool = switch("Let an empty line be the empty choice.")
    delimiter: str = setting("TEXT", "Text put before every choice.", "", mark=WITH_ESCAPES)

    @property
    def is_given(self) -> bool:
        """Return whether an argument or option gives choices."""
        return bool(self.choice) or self.choices_file is not None


@dataclass(frozen=True, slots=True)
class ChoicesGroup(OnlyChoicesGroup):
    """Choices.

    The arguments and the options that give the choices.
    """

    bare_choices: list[str] | None = argument(
        "CHOICE", "The choices after the prompt, each exactly as given.", mark=WITH_ESCAPES
    )

    @property
    def is_given(self) -> bool:
        """Return whether an argument or option gives choices."""
        return bool(self.bare_choices or self.choice) or self.choices_file is not None


@dataclass(frozen=True, slots=True)
class EndingGroup:
    """What ends a choice.

    The options for the terminator of a choice and the text after it.
    """

    terminator: str = setting("NAME", "What ends a choice: " + ", ".join(TERMINATORS) + ".", "auto")
    following: str = setting("TEXT", "Text that follows the choice.", "", mark=WITH_ESCAPES)


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Score.

    The options for the rule that turns log-probabilities into scores.
    """

    rule: str = setting("NAME", "From log-probabilities to a score: " + ", ".join(RULES) + ".", "joint")
    premise: str | None = setting("TEXT", "Premise of rule pmi. [default: the bare beginning of a text]")
    content_free: list[str] | None = setting("TEXT", "Content-free prompt of rule calibrated. Repeatable.")
    prior: str | None = setting("FILE", "JSON object from choice to prior probability.")


@with_options(SearchParams, "method", "stop", "mass", "budget_nodes", "width")
@dataclass(frozen=True, slots=True)
class SearchGroup:
    """Search.

    The options for searching the set of choices.
    """


@dataclass(frozen=True, slots=True)
class SelectOutput(TraceGroup):
    """Output.

    The options of `selectrie select` for its output.
    """

    top: int = setting("N", "Choices to show.", 10, min=1)
    explain: bool = switch("Show proof, cost and the trie of tokens.")
    json: bool = switch("One JSON object with every choice, in the given order.")
    tsv: bool = switch("Tab-separated rows, best first.")
    strict: bool = switch("Exit 2 when the first place is a tie or not proved.")


@dataclass(frozen=True, slots=True)
class RankOutput(SelectOutput):
    """Output.

    The options of `selectrie rank` for its output.
    """

    top: int = setting("N", "Places to make certain, and to show.", 10, min=1)


@dataclass(frozen=True, slots=True)
class TextGroup:
    """Text.

    The argument and the options of `selectrie score` that give the text.
    """

    bare_text: str | None = argument("TEXT", "The text to score, exactly as given.", mark=WITH_ESCAPES)
    text: str | None = setting("TEXT", "The text to score, exactly as given.", flags="--text -t", mark=WITH_ESCAPES)
    following: str = setting("TEXT", "Text that follows it, and is not scored.", "", mark=WITH_ESCAPES)


@with_options(SpellingParams, "tokenizations", "event", "budget_nodes")
@dataclass(frozen=True, slots=True)
class SpellingsGroup:
    """Spellings.

    The options of `selectrie score` that sum over token sequences.
    """


@dataclass(frozen=True, slots=True)
class ScoreOutput(TraceGroup):
    """Output.

    The options of `selectrie score` for its output.
    """

    per_token: bool = switch("A row per token.")
    json: Json = False


@dataclass(frozen=True, slots=True)
class TokensOutput:
    """Output.

    The options of `selectrie tokens` for its output.
    """

    top: int = setting("N", "Choices to show.", 10, min=1)
    json: bool = switch("One JSON object with every choice.")


@dataclass(frozen=True, slots=True)
class SequencesGroup:
    """Sequences.

    The options for the number of generated sequences and their seeds.
    """

    n: int = setting("N", "Sequences of each prompt.", 1, flags="-n")
    best_of: int | None = setting("N", "Draw N sequences, give the -n most probable.")
    seed: int | None = setting(
        "N",
        "Sequence i of every prompt has seed N + i, and does not depend on what else runs, except for draws "
        "closer than logits move between layouts. [default: random]",
    )
    draft: str | None = setting(
        "MODEL|lookup", "What guesses ahead: a smaller model, or repetitions. The text is the same."
    )
    deadline: float | None = setting("SECONDS", "Stop after this time and give what there is. [default: none]")
    heal: bool = switch("Take the tokens of the prompt's last word back; what is drawn spells their bytes first.")


@with_options(SamplingParams)
@dataclass(frozen=True, slots=True)
class SamplingGroup:
    """Sampling (in the order applied).

    The options for drawing a token.
    """

    logit_bias: list[str] | None = setting("ID=NUMBER", "Added to a token's logit; -inf forbids it. Repeatable.")


@with_options(StopParams, "ignore_eog", "max_tokens", "min_tokens")
@dataclass(frozen=True, slots=True)
class StoppingGroup:
    """What ends a sequence.

    The options for ending a sequence.
    """

    stop: list[str] | None = setting("TEXT", "Text that ends it. Repeatable.", mark=WITH_ESCAPES)
    stop_tokens: list[int] | None = setting("ID", "Token that ends it. Repeatable.", flags="--stop-token")


GRAMMAR_FILES = ".gbnf, .lark, .json for a JSON Schema"
NOTATION_FLAGS = {"json_schema": ".json", "lark": ".lark"}
"""Maps each flag for one notation to the ending of that notation's files."""


@dataclass(frozen=True, slots=True)
class ConstraintGroup:
    """Grammar (at most one of them).

    The options that restrict generated text to a grammar.
    """

    grammar: str | None = setting(
        "FILE|NAME", f"A file ({GRAMMAR_FILES}; - for stdin), or an installed name.", mark=STDIN_GRAMMAR
    )
    json_schema: str | None = setting("FILE", "JSON texts that a JSON Schema allows.", mark=STDIN_GRAMMAR)
    regex: str | None = setting("PATTERN", "Texts that the pattern matches as a whole.")
    lark: str | None = setting("FILE", "A grammar in Lark's notation.", mark=STDIN_GRAMMAR)


@dataclass(frozen=True, slots=True)
class SearchedGrammarGroup(ConstraintGroup):
    """Grammar instead of choices (at most one of them).

    The options of `selectrie select` for a grammar whose texts are the choices.
    """

    max_tokens: int = setting(
        "N",
        "At most N tokens in a text, where a grammar has too many texts to list.",
        default=DEFAULT_SEARCH.max_tokens,
    )
    any_path: bool = switch("Count every token path there, not the tokenizer's own alone.")


@dataclass(frozen=True, slots=True)
class GenerateOutput(TraceGroup):
    """Output.

    The options of `selectrie generate` for its output.
    """

    stream: bool = switch("Write text as it comes, many sequences each when it has ended.")
    json: bool = switch("One JSON object with every sequence and its tokens.")
    openai: bool = switch("One JSON object in the format of OpenAI's API.")
    logprobs: int | None = setting("K", "With --json or --openai: the K most probable tokens at every step.")
