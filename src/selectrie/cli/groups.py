"""The groups of options that commands share, as frozen records.

The first line of a record's docstring is the heading of its group in the help. Options
have the library's defaults and meanings.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, TypeVar

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
"""Marks an option, in its annotation, in which `--escapes` replaces escapes."""


@dataclass(frozen=True, slots=True)
class StdinAs:
    """Marks an option that takes a file, in its annotation: `-` is standard input.

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

    model: Annotated[
        str | None,
        Option(
            "--model",
            "-m",
            metavar="MODEL",
            envvar="SELECTRIE_MODEL",
            help="GGUF file, folder of a Transformers checkpoint, hf:owner/repo (a checkpoint), "
            "hf:owner/repo/file.gguf, hf:owner/repo:Q4_K_M, a server's http://host:8000, or a trace. "
            "[default: the embedded model]",
        ),
    ] = None
    backend: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="What opens the model: llama.cpp, transformers or xla. [default: found by the model's content]",
        ),
    ] = None
    precision: Annotated[
        str,
        Option(
            metavar="exact|fast",
            envvar="SELECTRIE_PRECISION",
            help="exact: numbers do not depend on how work is cut; fast: llama.cpp's own layout, "
            "a checkpoint's own type.",
        ),
    ] = "exact"
    n_ctx: Annotated[
        int | None,
        Option("--n-ctx", metavar="N", help="Tokens held at once. [default: training context, less if long]"),
    ] = None
    n_batch: Annotated[
        int | None, Option("--n-batch", metavar="N", help="At most N rows in a model call. [default: 512]")
    ] = None
    threads: Annotated[
        int | None,
        Option(metavar="N", envvar="SELECTRIE_THREADS", help="Threads. [default: one a core; one below 20 M weights]"),
    ] = None
    gpu_layers: Annotated[
        int | None, Option("--gpu-layers", metavar="N", help="llama.cpp: layers on the GPU, -1 for all. [default: 0]")
    ] = None
    device: Annotated[
        str | None,
        Option(metavar="NAME", help="transformers, xla: cpu, cuda, cuda:1 or tpu. [default: a GPU if there is one]"),
    ] = None
    dtype: Annotated[
        str | None,
        Option(
            metavar="TYPE",
            help="transformers: float32, bfloat16 or float16. [default: float32 for exact, the checkpoint's for fast]",
        ),
    ] = None
    untrusted: Annotated[
        bool | None,
        Option(
            "--untrusted/--trusted",
            help="Open a file that has not passed before in a child process first, which a damaged file may end. "
            "[default: trusted]",
        ),
    ] = None
    verbose: Annotated[bool, Option("--verbose", help="The back end's log and tracebacks on stderr.")] = False


@dataclass(frozen=True, slots=True)
class ConfigGroup:
    """Configuration.

    The option that names a file with values of the command's other options.
    """

    config: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Options from a file of TOML: `port = 9000`. A flag goes first, then an environment variable named "
            "for it, as SELECTRIE_SERVE_PORT for --port.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class FastModelGroup(ModelGroup):
    """Model.

    The options that name and load a model whose default precision is `fast`.
    """

    precision: Annotated[
        str,
        Option(
            metavar="exact|fast",
            envvar="SELECTRIE_PRECISION",
            help="fast: llama.cpp's own layout, a checkpoint's own type; exact: close draws are measured and reported.",
        ),
    ] = "fast"


CascadeConfidence = Annotated[
    str, Option(metavar="P|FILE", help="A cascade asks the next model below this confidence, or a fitted threshold.")
]


@dataclass(frozen=True, slots=True)
class CascadeGroup(ModelGroup):
    """Model.

    The options that name and load a model, and further ones behind it.
    """

    cascade: Annotated[
        list[str] | None,
        Option(metavar="MODEL", help="A larger model, asked what those before it are not sure of. Repeatable."),
    ] = None
    cascade_confidence: CascadeConfidence = "0.8"


@dataclass(frozen=True, slots=True)
class ThinkingGroup:
    """Thinking.

    The options for rationales that the model writes before it answers.
    """

    think: Annotated[
        int | None,
        Option(metavar="N", help="Write N rationales first; the answer is the mean of the answers behind them."),
    ] = None
    think_tokens: Annotated[int, Option(metavar="N", help="At most N tokens of a rationale.")] = 300
    think_start: Annotated[str | None, Option(metavar="TEXT", help="Text before each rationale.")] = None
    think_stop: Annotated[
        str | None,
        Option(
            metavar="TEXT",
            help="Text that ends a rationale, as $'\\nAnswer: '. [default: the chat template's block of thinking]",
        ),
    ] = None
    think_seed: Annotated[int, Option(metavar="N", help="Rationale i has seed N + i.")] = 0
    think_shared: Annotated[
        bool, Option("--think-shared", help="Write the rationales once for all questions about a text.")
    ] = False


@dataclass(frozen=True, slots=True)
class TraceGroup:
    """Trace.

    The options that record a command.
    """

    trace: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Record every row that is read, with the prompt and all texts. "
            "`selectrie replay FILE` shows the same again, and -m FILE answers from it, without the model.",
        ),
    ] = None
    full_rows: Annotated[
        bool, Option("--full-rows", help="With --trace: keep whole rows, which sampling reads. The file is large then.")
    ] = False


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

    out: Annotated[
        str | None,
        Option("--out", "--output", "-o", metavar="FOLDER", help="Keep log and results there; what is there goes on."),
    ] = None
    resume: Annotated[
        str | None, Option(metavar="FOLDER", help="Go on with a run; nothing scored is scored again.")
    ] = None
    other_machine: OtherMachine = False
    ray: Annotated[str | None, Option(metavar="ADDRESS", help="Over a Ray cluster; `local`: one on this machine.")] = (
        None
    )
    actors: Annotated[int | None, Option(metavar="N", help="Models at once. [default: as many as fit]")] = None


@dataclass(frozen=True, slots=True)
class BarePromptGroup:
    """Prompt (one of the first six, or text on stdin).

    The argument and the options that give a prompt.
    """

    bare_prompt: Annotated[
        str | None, Argument(metavar="PROMPT", help="The prompt, exactly as given (- for stdin)."), WITH_ESCAPES
    ] = None
    prompt: Annotated[
        str | None, Option("--prompt", "-p", metavar="TEXT", help="The prompt, exactly as given."), WITH_ESCAPES
    ] = None
    user: Annotated[
        str | None,
        Option(metavar="TEXT", help="Message to a chat model, which its own template makes a prompt."),
        WITH_ESCAPES,
    ] = None
    prompt_file: Annotated[
        str | None, Option(metavar="FILE", help="Prompt from a file (- for stdin), less one line end at its end.")
    ] = None
    token_ids: Annotated[str | None, Option(metavar="IDS", help="Prompt as token ids: 1,2,3.")] = None
    chat: Annotated[
        str | None, Option(metavar="FILE", help="Chat messages, a JSON array; the model's own template is used.")
    ] = None
    system: Annotated[str | None, Option(metavar="TEXT", help="System message before that of --user.")] = None
    assistant_prefix: Annotated[str, Option(metavar="TEXT", help="What the assistant's turn begins with.")] = ""
    template_arg: TemplateArgs = None
    parse_special: Annotated[
        bool,
        Option("--parse-special", help="Recognise control tokens in a raw prompt; choices stay plain text."),
    ] = False
    truncate: Annotated[
        str, Option(metavar="error|left", help="What to do with a prompt that is too long; left drops its beginning.")
    ] = "error"
    escapes: Annotated[
        bool,
        Option(
            "--escapes",
            help="Read \\n, \\r, \\t and \\\\ in arguments, -p, --user, -c, -t, --delimiter, --following and texts of "
            "--stop as line ends, tab and backslash.",
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class PromptGroup(BarePromptGroup):
    """Prompt (one of the first six, or text on stdin).

    The options that give a prompt, and how it is joined to choices.
    """

    boundary: Annotated[str, Option(metavar="heal|split|harness", help="How prompt and choice meet on tokens.")] = (
        "heal"
    )


@dataclass(frozen=True, slots=True)
class PromptsGroup(BarePromptGroup):
    """Prompt (one of the first six, --prompts-file, or text on stdin).

    The options that give one prompt or many.
    """

    prompts_file: Annotated[
        str | None,
        Option(metavar="FILE", help='Many prompts, a JSON text or {"prompt"|"messages": …} a line (- for stdin).'),
    ] = None


@dataclass(frozen=True, slots=True)
class OnlyChoicesGroup:
    """Choices, where only these texts may be generated.

    The options that give choices.
    """

    choice: Annotated[
        list[str] | None,
        Option("--choice", "-c", metavar="TEXT", help="A choice, exactly as given. Repeatable."),
        WITH_ESCAPES,
    ] = None
    choices_file: Annotated[
        str | None,
        Option(
            "--choices",
            "--choices-file",
            metavar="A,B,…|FILE",
            help="Choices with commas between them, or a file: one a line, or a .json array of texts (- for stdin).",
        ),
    ] = None
    allow_empty: Annotated[bool, Option("--allow-empty", help="Let an empty line be the empty choice.")] = False
    delimiter: Annotated[str, Option(metavar="TEXT", help="Text put before every choice."), WITH_ESCAPES] = ""

    @property
    def is_given(self) -> bool:
        """Return whether an argument or option gives choices."""
        return bool(self.choice) or self.choices_file is not None


@dataclass(frozen=True, slots=True)
class ChoicesGroup(OnlyChoicesGroup):
    """Choices.

    The arguments and the options that give the choices.
    """

    bare_choices: Annotated[
        list[str] | None,
        Argument(metavar="CHOICE", help="The choices after the prompt, each exactly as given."),
        WITH_ESCAPES,
    ] = None

    @property
    def is_given(self) -> bool:
        """Return whether an argument or option gives choices."""
        return bool(self.bare_choices or self.choice) or self.choices_file is not None


@dataclass(frozen=True, slots=True)
class EndingGroup:
    """What ends a choice.

    The options for the terminator of a choice and the text after it.
    """

    terminator: Annotated[str, Option(metavar="NAME", help="What ends a choice: " + ", ".join(TERMINATORS) + ".")] = (
        "auto"
    )
    following: Annotated[str, Option(metavar="TEXT", help="Text that follows the choice."), WITH_ESCAPES] = ""


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Score.

    The options for the rule that turns log-probabilities into scores.
    """

    rule: Annotated[
        str, Option(metavar="NAME", help="From log-probabilities to a score: " + ", ".join(RULES) + ".")
    ] = "joint"
    premise: Annotated[
        str | None, Option(metavar="TEXT", help="Premise of rule pmi. [default: the bare beginning of a text]")
    ] = None
    content_free: Annotated[
        list[str] | None, Option(metavar="TEXT", help="Content-free prompt of rule calibrated. Repeatable.")
    ] = None
    prior: Annotated[str | None, Option(metavar="FILE", help="JSON object from choice to prior probability.")] = None


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

    top: Annotated[int, Option(metavar="N", min=1, help="Choices to show.")] = 10
    explain: Annotated[bool, Option("--explain", help="Show proof, cost and the trie of tokens.")] = False
    json: Annotated[bool, Option("--json", help="One JSON object with every choice, in the given order.")] = False
    tsv: Annotated[bool, Option("--tsv", help="Tab-separated rows, best first.")] = False
    strict: Annotated[bool, Option("--strict", help="Exit 2 when the first place is a tie or not proved.")] = False


@dataclass(frozen=True, slots=True)
class RankOutput(SelectOutput):
    """Output.

    The options of `selectrie rank` for its output.
    """

    top: Annotated[int, Option(metavar="N", min=1, help="Places to make certain, and to show.")] = 10


@dataclass(frozen=True, slots=True)
class TextGroup:
    """Text.

    The argument and the options of `selectrie score` that give the text.
    """

    bare_text: Annotated[
        str | None, Argument(metavar="TEXT", help="The text to score, exactly as given."), WITH_ESCAPES
    ] = None
    text: Annotated[
        str | None, Option("--text", "-t", metavar="TEXT", help="The text to score, exactly as given."), WITH_ESCAPES
    ] = None
    following: Annotated[str, Option(metavar="TEXT", help="Text that follows it, and is not scored."), WITH_ESCAPES] = (
        ""
    )


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

    per_token: Annotated[bool, Option("--per-token", help="A row per token.")] = False
    json: Json = False


@dataclass(frozen=True, slots=True)
class TokensOutput:
    """Output.

    The options of `selectrie tokens` for its output.
    """

    top: Annotated[int, Option(metavar="N", min=1, help="Choices to show.")] = 10
    json: Annotated[bool, Option("--json", help="One JSON object with every choice.")] = False


@dataclass(frozen=True, slots=True)
class SequencesGroup:
    """Sequences.

    The options for the number of generated sequences and their seeds.
    """

    n: Annotated[int, Option("-n", metavar="N", help="Sequences of each prompt.")] = 1
    best_of: Annotated[int | None, Option(metavar="N", help="Draw N sequences, give the -n most probable.")] = None
    seed: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Sequence i of every prompt has seed N + i, and does not depend on what else runs, except for draws "
            "closer than logits move between layouts. [default: random]",
        ),
    ] = None
    draft: Annotated[
        str | None,
        Option(
            metavar="MODEL|lookup", help="What guesses ahead: a smaller model, or repetitions. The text is the same."
        ),
    ] = None
    deadline: Annotated[
        float | None, Option(metavar="SECONDS", help="Stop after this time and give what there is. [default: none]")
    ] = None
    heal: Annotated[
        bool,
        Option(
            "--heal", help="Take the tokens of the prompt's last word back; what is drawn spells their bytes first."
        ),
    ] = False


@with_options(SamplingParams)
@dataclass(frozen=True, slots=True)
class SamplingGroup:
    """Sampling (in the order applied).

    The options for drawing a token.
    """

    logit_bias: Annotated[
        list[str] | None, Option(metavar="ID=NUMBER", help="Added to a token's logit; -inf forbids it. Repeatable.")
    ] = None


@with_options(StopParams, "ignore_eog", "max_tokens", "min_tokens")
@dataclass(frozen=True, slots=True)
class StoppingGroup:
    """What ends a sequence.

    The options for ending a sequence.
    """

    stop: Annotated[list[str] | None, Option(metavar="TEXT", help="Text that ends it. Repeatable."), WITH_ESCAPES] = (
        None
    )
    stop_tokens: Annotated[
        list[int] | None, Option("--stop-token", metavar="ID", help="Token that ends it. Repeatable.")
    ] = None


GRAMMAR_FILES = ".gbnf, .lark, .json for a JSON Schema"
NOTATION_FLAGS = {"json_schema": ".json", "lark": ".lark"}
"""Maps each flag for one notation to the ending of that notation's files."""


@dataclass(frozen=True, slots=True)
class ConstraintGroup:
    """Grammar (at most one of them).

    The options that restrict generated text to a grammar.
    """

    grammar: Annotated[
        str | None,
        Option(metavar="FILE|NAME", help=f"A file ({GRAMMAR_FILES}; - for stdin), or an installed name."),
        STDIN_GRAMMAR,
    ] = None
    json_schema: Annotated[
        str | None, Option(metavar="FILE", help="JSON texts that a JSON Schema allows."), STDIN_GRAMMAR
    ] = None
    regex: Annotated[str | None, Option(metavar="PATTERN", help="Texts that the pattern matches as a whole.")] = None
    lark: Annotated[str | None, Option(metavar="FILE", help="A grammar in Lark's notation."), STDIN_GRAMMAR] = None


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


@dataclass(frozen=True, slots=True)
class GenerateOutput(TraceGroup):
    """Output.

    The options of `selectrie generate` for its output.
    """

    stream: Annotated[
        bool, Option("--stream", help="Write text as it comes, many sequences each when it has ended.")
    ] = False
    json: Annotated[bool, Option("--json", help="One JSON object with every sequence and its tokens.")] = False
    openai: Annotated[bool, Option("--openai", help="One JSON object in the format of OpenAI's API.")] = False
    logprobs: Annotated[
        int | None, Option(metavar="K", help="With --json or --openai: the K most probable tokens at every step.")
    ] = None
