"""Draws sequences after prompts, and returns them whole or in chunks."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from selectrie.core.automaton import Automaton, ChoiceAutomaton
from selectrie.core.model import ModelDescription
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost
from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.decoding.sampling.task import Drafter, Sampled, SampleSpec, SampleTask
from selectrie.engine.aio import Outlet, QueueStream
from selectrie.engine.requests.constrained_prompt import list_bytes_after
from selectrie.engine.requests.generation_params import DEFAULT_GENERATING, GenerationParams
from selectrie.engine.requests.session import Session, fix_time
from selectrie.engine.requests.speculative import check_draft
from selectrie.engine.scheduler.model_thread import Handle
from selectrie.errors import CancelledError, IncompatibleOptionsError, OptionError, of_request, words
from selectrie.options import (
    DEFAULT_PROMPTING,
    DEFAULT_SAMPLING,
    DEFAULT_STOPPING,
    MAX_TEXTS,
    PromptParams,
    SamplingParams,
    StopParams,
    at_least,
    record,
    seed,
)
from selectrie.results import Chunk, Completion, Generation
from selectrie.tokenization.canonical import HealedPrompt, reopen
from selectrie.tokenization.encoding import EncodedChoices, PromptText, encode_choices, least_tokens
from selectrie.tokenization.healing import Healed, HealedBytes
from selectrie.tokenization.prompts import (
    SHORTEN_PROMPT,
    CheckLength,
    Prompt,
    length_advice,
    prompt_notes,
    read_prompt,
    require_normalized,
    truncate_left,
)

Prompts = Prompt | Sequence[Prompt]


@dataclass(frozen=True, slots=True, eq=False)
class GenerateRequest:
    """The options of a request, as the caller passed them to `Engine.generate`."""

    n: int = 1
    seed: int | None = None
    sampling: SamplingParams = DEFAULT_SAMPLING
    stopping: StopParams = DEFAULT_STOPPING
    draft: Drafter | None = None
    prompting: PromptParams = DEFAULT_PROMPTING
    options: GenerationParams = DEFAULT_GENERATING

    def __post_init__(self) -> None:
        at_least("n", self.n, 1, max_value=MAX_TEXTS, optional=False)
        record("sampling", self.sampling, SamplingParams)
        record("stopping", self.stopping, StopParams)
        record("prompting", self.prompting, PromptParams)
        if isinstance(self.options, list | tuple):
            raise OptionError("options", self.options, "a GenerationParams record; give the texts as `choices`")
        record("options", self.options, GenerationParams)
        object.__setattr__(self, "seed", seed("seed", self.seed, self.n_drawn))
        if self.options.best_of is not None and self.options.best_of < self.n:
            raise OptionError(
                "best_of", self.options.best_of, words("at least `n={}`, the number of sequences returned", self.n)
            )
        if self.prompting.delimiter and self.options.choices is None and self.options.grammar is None:
            remedy = "it is added before choices or a grammar; give these, or leave it out"
            raise IncompatibleOptionsError("delimiter", "free text", remedy)
        if self.stopping.min_tokens and (self.options.choices is not None or self.options.grammar is not None):
            raise IncompatibleOptionsError("min_tokens", "choices or a grammar", "they decide where a text ends")

    @property
    def n_drawn(self) -> int:
        """Return the number of sequences drawn after each prompt."""
        return self.options.best_of or self.n


@dataclass(frozen=True, slots=True, eq=False)
class PreparedGenerate:
    """A request to draw sequences, checked and tokenized.

    Attributes:
        request: The options of the request.
        specs: The specification of each sequence, those of the first prompt first.
        prompt_tokens: Number of tokens of each prompt, healed ones included.
        notes: Notes of the answer.
    """

    request: GenerateRequest
    specs: tuple[SampleSpec, ...]
    prompt_tokens: tuple[int, ...]
    notes: tuple[str, ...] = ()

    def run(self, session: Session) -> Generation:
        """Draw all sequences and return them."""
        completions = []
        for drawing in begin_drawing(session, self):
            with self.errors_of(drawing):
                completions.append(completion(session, drawing))
        return generation(session, self, completions)

    def errors_of(self, drawing: Drawing) -> AbstractContextManager[None]:
        """Return a context manager that adds the prompt's index to errors.

        It does nothing for a request with one prompt.
        """
        return of_request(drawing.prompt_index if len(self.prompt_tokens) > 1 else None)


def prepare_generate(model: ModelDescription, prompts: Prompts, request: GenerateRequest) -> PreparedGenerate:
    """Check and tokenize a request to draw sequences.

    Sequence i of every prompt gets the seed `seed` + i.

    Raises `RequestError` for everything that can be found invalid without a model call.
    The error's `request` is the index of the prompt.
    """
    if request.draft is not None:
        check_draft(request.draft, model)
    sampling = with_biased_ids(model.vocabulary, request.sampling)
    request = replace(request, sampling=sampling)
    model.vocabulary.check_tokens([*request.stopping.stop_tokens, *sampling.logit_bias, *request.options.named])
    several = _prompt_list(prompts)
    request = replace(request, prompting=fix_time(model.vocabulary, request.prompting, *several))
    specs, notes = [], dict[str, None]()
    for index, prompt in enumerate(several):
        with of_request(index if len(several) > 1 else None):
            read = read_prompt(model.vocabulary, prompt, request.prompting, check_length=_length_check(model, request))
            specs.append(_fit_prompt(model, read, request))
            notes.update(dict.fromkeys(prompt_notes(read)))
    first = int.from_bytes(os.urandom(4), "little") if request.seed is None else request.seed
    return PreparedGenerate(
        request,
        tuple(replace(spec, seed=first + i) for spec, _ in specs for i in range(request.n_drawn)),
        tuple(n_prompt for _, n_prompt in specs),
        tuple(notes),
    )


def with_biased_ids(vocabulary: Vocabulary, sampling: SamplingParams) -> SamplingParams:
    """Return the options with the ids of biased tokens in place of their texts.

    Raises `OptionError` for a text that is not one token, and for a token with two
    biases.
    """
    if not any(isinstance(token, str) for token in sampling.logit_bias):
        return sampling
    biases: dict[int, float] = {}
    for token, bias in sampling.logit_bias.items():
        number = _token_of(vocabulary, token) if isinstance(token, str) else token
        if number in biases:
            raise OptionError("logit_bias", token, f"each token once; token {number} has another bias already")
        biases[number] = bias
    return replace(sampling, logit_bias=biases)


def _token_of(vocabulary: Vocabulary, text: str) -> int:
    """Return the id of the token that the tokenizer makes of a text inside another."""
    data = to_bytes(text, "logit_bias")
    found = [token for token, piece in enumerate(vocabulary.pieces) if piece == data]
    own = vocabulary.encode(data).tolist()
    if len(own) == 1 and own[0] in found:
        return int(own[0])
    if len(found) == 1:
        # `encode` takes the text for a beginning, where this tokenizer adds a space.
        # Inside another text it is this token.
        return found[0]
    shown = ", ".join(f"{token} {vocabulary.show(token)!r}" for token in own)
    raise OptionError("logit_bias", text, f"a text that is one token; this one is {len(own)}: {shown}")


def _prompt_list(prompts: Prompts) -> list[Prompt]:
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


def _fit_prompt(model: ModelDescription, read: PromptText, request: GenerateRequest) -> tuple[SampleSpec, int]:
    """Return the specification of a sequence, and the prompt's token count.

    The prompt is truncated on the left if that is needed and allowed.
    """
    vocabulary, n_nodes = model.vocabulary, model.limits.nodes
    spec, n_prompt = _build_spec(vocabulary, read, request)
    available = n_nodes - _max_nodes_after(spec)
    if len(spec.prompt) > available >= 1 and request.prompting.truncate == "left":
        n_kept = available + n_prompt - len(spec.prompt)
        spec, n_prompt = _build_spec(vocabulary, truncate_left(vocabulary, read, n_kept), request)
    if len(spec.prompt) > available:
        remedy = length_advice(len(spec.prompt), spec.stopping.max_tokens, n_nodes, can_shorten=available >= 1)
        raise model.limits.too_long(len(spec.prompt) + _max_nodes_after(spec), remedy)
    return spec, n_prompt


def _length_check(model: ModelDescription, request: GenerateRequest) -> CheckLength | None:
    """Return a function that refuses a text whose tokens cannot fit, before encoding.

    Return None if the prompt may be truncated, since it then always fits.
    """
    if request.prompting.truncate == "left":
        return None

    limits = model.limits

    def check(text: bytes) -> None:
        n_least = least_tokens(model.vocabulary, text, limit=limits.nodes)
        if n_least > limits.nodes:  # the first token drawn takes no node
            n_more = request.stopping.max_tokens - 1 if request.options.choices is None else 0
            raise limits.too_long(n_least + n_more, SHORTEN_PROMPT, is_least=True)

    return check


def _max_nodes_after(spec: SampleSpec) -> int:
    """Return the maximum number of nodes that a sequence takes after its prompt.

    Each healed byte takes at most one node. The last token takes none.
    """
    return spec.stopping.max_tokens - 1 + (0 if spec.healed is None else len(spec.healed.data))


def _build_spec(vocabulary: Vocabulary, read: PromptText, request: GenerateRequest) -> tuple[SampleSpec, int]:
    """Return the specification of a sequence, and the prompt's token count.

    With choices, `max_tokens` becomes the number of tokens of the longest choice. A
    lower `max_tokens` raises `OptionError`, since it would cut a choice short.
    """
    options, stopping = request.options, request.stopping
    start = to_bytes(request.prompting.delimiter, "delimiter")
    automaton: Automaton | None = None
    opened: HealedPrompt | EncodedChoices
    if options.choices is None:
        grammar = options.grammar
        listing = (lambda: None) if grammar is None else (lambda: list_bytes_after(start, grammar))
        opened = reopen(vocabulary, read, heal=options.heal, listing=listing)
        if grammar is not None:
            automaton = grammar.automaton(vocabulary, prefix=opened.healed + start)
    else:
        written = [
            require_normalized(vocabulary, start + to_bytes(choice, f"choice {i}"), f"choice {i}")
            for i, choice in enumerate(options.choices)
        ]
        opened = encode_choices(vocabulary, read, written, boundary="heal" if options.heal else "split")
        automaton = ChoiceAutomaton(TokenTrie.from_flat(opened.tokens, opened.offsets))
        healing = Healed(len(opened.healed), vocabulary.lengths)
        longest = max(1, *(healing.n_text(path.tolist()) for path in np.split(opened.tokens, opened.offsets[1:-1])))
        if stopping.max_tokens < longest:
            raise OptionError(
                "max_tokens", stopping.max_tokens, f"at least {longest}, the tokens of the longest choice"
            )
        stopping = replace(stopping, max_tokens=longest)
    spec = SampleSpec(
        prompt=opened.context,
        pieces=vocabulary.pieces,
        texts=vocabulary.texts,
        eog=vocabulary.eog,
        seed=0,
        sampling=request.sampling,
        stopping=stopping,
        n_alternatives=options.n_alternatives,
        named=options.named,
        automaton=automaton,
        drafter=request.draft,
        healed=HealedBytes(vocabulary, opened.healed) if opened.healed else None,
    )
    return spec, len(opened.prompt_tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """A sequence that is being drawn.

    Attributes:
        number: Index of the sequence among all sequences of the request.
        prompt_index: Index of its prompt.
        index: Index of the sequence among those of its prompt.
        task: The task that draws it.
        handle: The handle of that task.
    """

    number: int
    prompt_index: int
    index: int
    task: SampleTask
    handle: Handle[Sampled]


Watch = Callable[[int, SampleTask], Callable[[], None]]
"""Maps the number and the task of a sequence to a callback for its model calls."""


def begin_drawing(session: Session, prepared: PreparedGenerate, watch: Watch | None = None) -> list[Drawing]:
    """Queue all sequences; `watch` makes the callback for each one's calls."""
    tasks = [SampleTask(replace(spec, tolerance=session.tolerance or 0.0)) for spec in prepared.specs]
    drawings = []
    with session.group.together():
        for i, task in enumerate(tasks):
            prompt_index, index = divmod(i, prepared.request.n_drawn)
            on_step = None if watch is None else watch(i, task)
            handle = session.group.begin(task, on_step)
            drawings.append(Drawing(i, prompt_index, index, task, handle))
    return drawings


def completion(session: Session, drawing: Drawing) -> Completion:
    """Wait for a sequence and return it; raise the error that ended it, if any."""
    sampled = drawing.handle.result()
    n_naive = len(drawing.task.prompt) + max(0, len(sampled.tokens) - 1)
    return Completion(
        prompt_index=drawing.prompt_index,
        index=drawing.index,
        text=sampled.text,
        data=sampled.data,
        tokens=drawing.task.drawn(),
        alternatives=sampled.alternatives,
        named=sampled.named,
        logp=sampled.joint,
        log_heal=sampled.log_heal,
        healed=drawing.task.healed,
        finish=sampled.finish,
        stop=sampled.stop,
        ended_by=sampled.ended_by,
        seed=sampled.seed,
        close_steps=None if session.tolerance is None else sampled.close_steps,
        tolerance=session.tolerance,
        n_drafted=sampled.n_drafted,
        n_accepted=sampled.n_accepted,
        cost=replace(drawing.handle.cost, rows_naive=n_naive),
    )


def generation(session: Session, prepared: PreparedGenerate, drawn: Sequence[Completion]) -> Generation:
    """Return the record of all sequences, or of the best sequences of each prompt.

    Of equally probable sequences, the one with the smaller seed comes first.
    """
    request, size = prepared.request, prepared.request.n_drawn
    completions: list[Completion] = []
    for start in range(0, len(drawn), size):
        of_prompt = list(drawn[start : start + size])
        if request.options.best_of is not None:
            of_prompt.sort(key=lambda one: math.inf if one.logp is None else -one.logp)
            of_prompt = [replace(one, index=index) for index, one in enumerate(of_prompt[: request.n])]
        completions += of_prompt
    return Generation(
        completions=tuple(completions),
        n=request.n,
        prompt_tokens=prepared.prompt_tokens,
        n_drawn=sum(len(one.tokens) for one in drawn),
        sampling=request.sampling,
        stopping=request.stopping,
        identity=session.model.identity,
        tolerance=session.tolerance,
        cost=sum((one.cost for one in drawn), Cost()),
        id=os.urandom(12).hex(),
        created=int(time.time()),
        notes=prepared.notes,
    )


class Stream(QueueStream[Chunk]):
    """An iterator over the chunks of all sequences of a request; see `Engine.stream`.

    The sequences are drawn whether or not the stream is read. Unfinished sequences are
    cancelled by `close`, at the end of a `with` block, by an error, and when the stream
    is garbage-collected. An error of one sequence is raised to the reader and cancels
    the others. Only one thread may read at a time.
    """

    def __init__(
        self,
        session: Session,
        prepared: PreparedGenerate,
        *,
        keep: object = None,
    ) -> None:
        """Queue every sequence; `keep` is kept alive as long as the stream."""
        outlet: Outlet[Chunk] = Outlet()
        super().__init__(outlet, len(prepared.specs), session.group.model_thread.check_process, session.group.cancel)
        self._kept, self._session, self._prepared = keep, session, prepared
        self._n_sent = [0] * len(prepared.specs)
        self._completions: dict[int, Completion] = {}
        watch = partial(_chunk_sender, outlet, self._n_sent, prepared.request.n_drawn)
        self._drawings = begin_drawing(session, prepared, watch)
        for drawing in self._drawings:
            drawing.handle.when_done(partial(outlet.put, drawing.number))

    def generation(self) -> Generation:
        """Return all sequences, as `Engine.generate` does.

        Reads the rest of the stream first. Raises `CancelledError` if the stream was
        closed before its end.
        """
        for _ in self:
            pass
        if self._n_running:
            raise CancelledError
        completions = [self._completions[number] for number in range(len(self._drawings))]
        return generation(self._session, self._prepared, completions)

    def _end_producer(self, number: int) -> Chunk:
        """Return a sequence's last chunk, with the rest of its text."""
        drawing = self._drawings[number]
        with self._prepared.errors_of(drawing):
            whole = completion(self._session, drawing)
        self._completions[number] = whole
        self._n_running -= 1
        n_sent = self._n_sent[number]
        text, rest = drawing.task.new_text(), whole.tokens[n_sent:]
        alternatives, named = whole.alternatives[n_sent:], whole.named[n_sent:]
        return Chunk(drawing.prompt_index, drawing.index, text, rest, whole, alternatives, named)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedStream:
    """A prepared request whose sequences are streamed.

    Attributes:
        generate: The request.
        keep: An object kept alive as long as the stream.
    """

    generate: PreparedGenerate
    keep: object

    def run(self, session: Session) -> Stream:
        """Start the sequences and return their stream."""
        return Stream(session, self.generate, keep=self.keep)


def _chunk_sender(
    outlet: Outlet[Chunk], n_sent: list[int], n_drawn: int, number: int, task: SampleTask
) -> Callable[[], None]:
    """Return a callback that sends a chunk after each model call of a sequence.

    The chunk has the new text and tokens; `n_sent` counts the tokens sent. The last
    chunk of a sequence is sent separately, with the rest of its text.
    """
    prompt_index, index = divmod(number, n_drawn)

    def send() -> None:
        if task.n_tokens > n_sent[number] and task.finish is None:
            start = n_sent[number]
            tokens, alternatives, named = task.drawn(start), task.alternatives(start), task.named(start)
            n_sent[number] += len(tokens)
            outlet.put(Chunk(prompt_index, index, task.new_text(), tokens, alternatives=alternatives, named=named))

    return send
