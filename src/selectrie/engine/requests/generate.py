"""Generation: from prompts to the sequences drawn after them and to a `Generation`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.automaton import Automaton, ChoiceAutomaton
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost, IntArray, Limits, ModelIdentity
from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.decoding.healed_bytes import Healed
from selectrie.decoding.sampling.task import Drafter, Sampled, SampleSpec, SampleTask
from selectrie.engine.scheduler.model_thread import Handle
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import IncompatibleOptionsError, OptionError, PromptTooLongError, SelectrieError
from selectrie.grammar import Grammar
from selectrie.options import (
    DEFAULT_PROMPTING,
    DEFAULT_SAMPLING,
    DEFAULT_STOPPING,
    MOST_TEXTS,
    PromptParams,
    SamplingParams,
    StopParams,
    at_least,
    flag,
    number,
    record,
    seed,
    texts,
)
from selectrie.results import Completion, Generation
from selectrie.tokenization.canonical import reopen
from selectrie.tokenization.choices import encode_choices
from selectrie.tokenization.healing_automaton import HealedBytes
from selectrie.tokenization.prompts import Prompt, read_prompt, truncate_left
from selectrie.tokenization.records import PromptText

Prompts = Prompt | Sequence[Prompt]


@dataclass(frozen=True, slots=True)
class GenerationParams:
    """How sequences are made, beside how they are drawn and when they stop.

    Attributes:
        best_of: Number of sequences drawn after each prompt, of which the `n` most
            probable are returned, best first.
        choices: The only texts that may be generated, chosen token by token among those
            that are left (`select` decides by the whole text).
        grammar: A grammar whose texts are the only ones that may be generated,
            likewise. A text that `max_tokens` breaks off ends with "length".
        heal: Whether prompt tokens that the continuation may change are taken back. The
            first tokens drawn then spell their bytes, so that the text may go on within
            the prompt's last word. They are drawn tokens but no part of the text; those
            that spell nothing else do not count for `max_tokens`.
        n_alternatives: Number of most probable tokens noted at every step.
        priority: Higher goes first.
        deadline_s: Seconds from now. A sequence that still runs then ends with the text
            it has.
    """

    best_of: int | None = None
    choices: Sequence[str] | None = None
    grammar: Grammar | None = None
    heal: bool = False
    n_alternatives: int = 0
    priority: int = 0
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        at_least("best_of", self.best_of, 1, most=MOST_TEXTS)
        if self.choices is not None:
            object.__setattr__(self, "choices", texts("choices", self.choices))
            if not self.choices:
                raise OptionError("choices", self.choices, "at least one text, or None")
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise OptionError("grammar", self.grammar, "a Grammar (Grammar.from_gbnf, from_regex, …), or None")
        if self.grammar is not None and self.choices is not None:
            raise IncompatibleOptionsError("choices", "a grammar", "give one of the two")
        flag("heal", self.heal)
        at_least("n_alternatives", self.n_alternatives, 0, optional=False)
        if type(self.priority) is not int:
            raise OptionError("priority", self.priority, "a whole number")
        if self.deadline_s is not None:
            number(
                "deadline_s", self.deadline_s, least=math.ulp(0.0), remedy="seconds above 0, or None for no deadline"
            )


DEFAULT_GENERATING = GenerationParams()


@dataclass(frozen=True, slots=True, eq=False)
class GenerateRequest:
    """The options of a request as the caller gave them (`Engine.generate`)."""

    n: int = 1
    seed: int | None = None
    sampling: SamplingParams = DEFAULT_SAMPLING
    stopping: StopParams = DEFAULT_STOPPING
    draft: Drafter | None = None
    prompting: PromptParams = DEFAULT_PROMPTING
    options: GenerationParams = DEFAULT_GENERATING

    def __post_init__(self) -> None:
        at_least("n", self.n, 1, most=MOST_TEXTS, optional=False)
        object.__setattr__(self, "seed", seed("seed", self.seed))
        record("sampling", self.sampling, SamplingParams)
        record("stopping", self.stopping, StopParams)
        record("prompting", self.prompting, PromptParams)
        record("options", self.options, GenerationParams)
        if self.options.best_of is not None and self.options.best_of < self.n:
            raise OptionError("best_of", self.options.best_of, f"at least n={self.n}: that many are given")
        if self.prompting.delimiter and self.options.choices is None and self.options.grammar is None:
            remedy = "it is added before choices or a grammar; give these, or leave it out"
            raise IncompatibleOptionsError("delimiter", "free text", remedy)

    @property
    def n_drawn(self) -> int:
        """Return the number of sequences drawn after each prompt."""
        return self.options.best_of or self.n


@dataclass(frozen=True, slots=True, eq=False)
class PreparedGenerate:
    """A request ready to be started.

    Attributes:
        wanted: The options of the request.
        vocabulary: The model's vocabulary.
        specs: One for each sequence, those of the first prompt first.
        prompt_tokens: Number of tokens of each prompt, healed ones included.
    """

    wanted: GenerateRequest
    vocabulary: Vocabulary
    specs: tuple[SampleSpec, ...]
    prompt_tokens: tuple[int, ...]

    @property
    def n_prompts(self) -> int:
        return len(self.specs) // self.wanted.n_drawn


def prepare(vocabulary: Vocabulary, limits: Limits, prompts: Prompts, wanted: GenerateRequest) -> PreparedGenerate:
    """Check and tokenize a request; sequence i of every prompt has the seed `seed` + i.

    Everything that can be refused without the model is refused here. The `request` of
    an error is the index of the prompt.
    """
    vocabulary.check_tokens(wanted.stopping.stop_tokens)
    given = _as_many(prompts)
    openings = [
        _opening(vocabulary, limits, prompt, wanted, at if len(given) > 1 else None) for at, prompt in enumerate(given)
    ]
    first = int.from_bytes(os.urandom(4), "little") if wanted.seed is None else wanted.seed
    common = [_spec(vocabulary, opening, wanted) for opening in openings]
    specs = [replace(spec, seed=first + i) for spec in common for i in range(wanted.n_drawn)]
    return PreparedGenerate(wanted, vocabulary, tuple(specs), tuple(one.n_prompt for one in openings))


def _as_many(prompts: Prompts) -> list[Prompt]:
    """Return the prompts as a list.

    A list of numbers is one prompt of token ids, and a list of mappings is one chat.
    """
    if isinstance(prompts, str | bytes | bytearray) or not isinstance(prompts, Sequence | np.ndarray):
        return [prompts]  # an invalid prompt is refused when it is read
    if isinstance(prompts, np.ndarray) and not prompts.ndim:
        return [prompts.item()]
    if not len(prompts):
        raise OptionError("prompts", prompts, "at least one prompt")
    is_one = isinstance(prompts[0], int | np.integer | Mapping)
    return [prompts] if is_one else list(prompts)  # type: ignore[list-item, arg-type]  # decided by its items


@dataclass(frozen=True, slots=True, eq=False)
class _Opening:
    """What all sequences of one prompt have in common.

    Attributes:
        context: int32[T], the tokens kept of the prompt.
        healed: The bytes that are spelt first, or None.
        n_prompt: Number of tokens of the prompt alone.
        automaton: What may follow, or None if anything may.
        stopping: When a sequence ends.
    """

    context: IntArray
    healed: HealedBytes | None
    n_prompt: int
    automaton: Automaton | None
    stopping: StopParams

    @property
    def n_healed(self) -> int:
        """Return the number of healed bytes, each spelt by one token at most."""
        return 0 if self.healed is None else len(self.healed.data)


def _opening(
    vocabulary: Vocabulary, limits: Limits, prompt: Prompt, wanted: GenerateRequest, place: int | None
) -> _Opening:
    """Return a tokenized prompt, truncated on the left if needed and allowed."""
    try:
        read = read_prompt(vocabulary, prompt, wanted.prompting)
        opening = _opened(vocabulary, read, wanted)
        most = limits.nodes - (opening.stopping.max_tokens - 1) - opening.n_healed
        if len(opening.context) > most >= 1 and wanted.prompting.truncate == "left":
            n_back = opening.n_prompt - len(opening.context)
            opening = _opened(vocabulary, truncate_left(vocabulary, read, most + n_back), wanted)
        if len(opening.context) > most:
            shorter = "shorten the prompt, set truncate='left', " if most >= 1 else ""
            raise PromptTooLongError(
                needed_tokens=len(opening.context) + opening.n_healed + opening.stopping.max_tokens - 1,
                available_tokens=limits.nodes,
                remedy=f"{shorter}lower max_tokens ({opening.stopping.max_tokens}), or load with a larger n_ctx",
            )
    except SelectrieError as error:
        error.request = place
        raise
    return opening


def _spec(vocabulary: Vocabulary, opening: _Opening, wanted: GenerateRequest) -> SampleSpec:
    return SampleSpec(
        prompt=opening.context,
        pieces=vocabulary.pieces,
        texts=vocabulary.texts,
        eog=vocabulary.eog,
        seed=0,
        sampling=wanted.sampling,
        stopping=opening.stopping,
        n_alternatives=wanted.options.n_alternatives,
        automaton=opening.automaton,
        drafter=wanted.draft,
        healed=opening.healed,
    )


def _opened(vocabulary: Vocabulary, read: PromptText, wanted: GenerateRequest) -> _Opening:
    """Return a prompt with the automaton of the choices or the grammar after it.

    With choices, `max_tokens` becomes the number of tokens of the longest. A lower
    `max_tokens` raises `OptionError`, since the beginning of a choice is not a choice.
    """
    choices, grammar = wanted.options.choices, wanted.options.grammar
    start = to_bytes(wanted.prompting.delimiter, "delimiter")
    if choices is None:
        opened = reopen(vocabulary, read, heal=wanted.options.heal)
        automaton = None if grammar is None else grammar.automaton(vocabulary, prefix=opened.healed + start)
        healed = HealedBytes(vocabulary, opened.healed) if opened.healed else None
        return _Opening(opened.context, healed, len(opened.prompt_tokens), automaton, wanted.stopping)
    written = [start + to_bytes(choice, f"choice {place}") for place, choice in enumerate(choices)]
    encoded = encode_choices(vocabulary, read, written, boundary="heal" if wanted.options.heal else "split")
    trie = TokenTrie.from_flat(encoded.tokens, encoded.offsets)
    healing = Healed(len(encoded.healed), vocabulary.lengths)
    longest = max(1, *(healing.n_text(path.tolist()) for path in np.split(encoded.tokens, encoded.offsets[1:-1])))
    if wanted.stopping.max_tokens < longest:
        raise OptionError(
            "max_tokens", wanted.stopping.max_tokens, f"at least {longest}, the tokens of the longest choice"
        )
    return _Opening(
        encoded.context,
        HealedBytes(vocabulary, encoded.healed) if encoded.healed else None,
        len(encoded.prompt_tokens),
        ChoiceAutomaton(trie),
        replace(wanted.stopping, max_tokens=longest),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """A sequence being drawn; `number` counts those of the whole request."""

    number: int
    prompt_index: int
    index: int
    task: SampleTask
    handle: Handle[Sampled]


Watch = Callable[[int, int, SampleTask], Callable[[], None]]
"""Maps a sequence's prompt index, index and task to a callback for its model calls."""


def begin(
    group: TaskGroup, plan: PreparedGenerate, tolerance: float | None, watch: Watch | None = None
) -> list[Drawing]:
    """Queue every sequence."""
    tasks = [SampleTask(replace(spec, tolerance=tolerance or 0.0)) for spec in plan.specs]
    drawings = []
    for place, task in enumerate(tasks):
        prompt_index, index = divmod(place, plan.wanted.n_drawn)
        on_step = None if watch is None else watch(prompt_index, index, task)
        drawings.append(Drawing(place, prompt_index, index, task, group.begin(task, on_step)))
    return drawings


def completion(drawing: Drawing, tolerance: float | None) -> Completion:
    """Wait for one sequence; raise the error that ended it, if any."""
    sampled = drawing.handle.result()
    n_naive = len(drawing.task.prompt) + max(0, len(sampled.tokens) - 1)
    return Completion(
        prompt_index=drawing.prompt_index,
        index=drawing.index,
        text=sampled.text,
        data=sampled.data,
        tokens=drawing.task.drawn(),
        alternatives=sampled.alternatives,
        logp=sampled.joint,
        log_heal=sampled.log_heal,
        healed=drawing.task.healed,
        finish=sampled.finish,
        stop=sampled.stop,
        ended_by=sampled.ended_by,
        seed=sampled.seed,
        close_steps=None if tolerance is None else sampled.close_steps,
        n_drafted=sampled.n_drafted,
        n_accepted=sampled.n_accepted,
        cost=replace(drawing.handle.cost, rows_naive=n_naive),
    )


def generation(
    plan: PreparedGenerate, drawn: Sequence[Completion], identity: ModelIdentity, tolerance: float | None
) -> Generation:
    """Return all sequences of a request, or the best of each prompt.

    Of equally probable ones, the smaller seed comes first.
    """
    wanted, size = plan.wanted, plan.wanted.n_drawn
    given: list[Completion] = []
    for start in range(0, len(drawn), size):
        group = list(drawn[start : start + size])
        if wanted.options.best_of is not None:
            group.sort(key=lambda one: -one.logp)
            group = [replace(one, index=place) for place, one in enumerate(group[: wanted.n])]
        given += group
    return Generation(
        completions=tuple(given),
        n=wanted.n,
        prompt_tokens=plan.prompt_tokens,
        n_drawn=sum(len(one.tokens) for one in drawn),
        sampling=wanted.sampling,
        stopping=wanted.stopping,
        identity=identity,
        tolerance=tolerance,
        cost=sum((one.cost for one in drawn), Cost()),
        id=os.urandom(12).hex(),
        created=int(time.time()),
    )
