"""Has the sampler of a server draw sequences after prompts.

The request is prepared as one that runs here (`generate.py`), so that prompts have the
same tokens. What the server cannot apply is refused before anything is sent, and what
it does not tell stays unknown.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.completion import CompletionRequest, SamplerSettings, ServedSequence, SupportsCompletion
from selectrie.core.model import ModelDescription
from selectrie.core.types import Cost, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.sampling.sequence import DrawnText
from selectrie.decoding.sampling.served_task import CompletionTask
from selectrie.engine.requests import generate
from selectrie.engine.requests.generate import GenerateRequest, PreparedGenerate, Prompts
from selectrie.engine.requests.session import Session
from selectrie.errors import GrammarError, ServerError, ServerOptionError, of_request
from selectrie.grammar import Grammar
from selectrie.results import Completion, Generation, TokenScore

_SEED_BYTES = 3
"""Bytes of a seed that is taken from the system; every server takes such seeds."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedServedGenerate:
    """A request that a server's sampler answers, checked and tokenized.

    Attributes:
        model: What draws.
        prepared: The request as one that runs here.
        settings: How the server is to draw.
        seed: Seed of the first sequence of each prompt; None for no seeds.
    """

    model: SupportsCompletion
    prepared: PreparedGenerate
    settings: SamplerSettings
    seed: int | None

    def run(self, session: Session) -> Generation:
        """Have all sequences drawn and return them."""
        n_each, specs = self.prepared.request.n_drawn, self.prepared.specs
        handles = []
        with session.group.together():
            for spec in specs[::n_each]:
                request = CompletionRequest(spec.prompt, n_each, self.seed, self.settings)
                handles.append(session.group.begin(CompletionTask(request)))
        completions, n_drawn = list[Completion](), 0
        for index, handle in enumerate(handles):
            with of_request(index if len(handles) > 1 else None):
                completed, spec = handle.result(), specs[index * n_each]
                read = [self._read(session.model.vocabulary, spec.prompt, one) for one in completed.sequences]
            seconds = handle.cost.decode_s / n_each
            for number, one in enumerate(read):
                cost = Cost(model_calls=int(number < completed.n_requests), decode_s=seconds)
                completions.append(self._completion(index, number, one, cost.with_rows_naive(one.n_rows)))
            n_drawn += sum(one.n_tokens for one in read)
        made = generate.generation(session, self.prepared, completions)
        return replace(made, n_drawn=n_drawn, sampled_by=self.model.sampler_name)

    def _read(self, vocabulary: Vocabulary, prompt: IntArray, sequence: ServedSequence) -> _ReadSequence:
        read = _ReadSequence(vocabulary, prompt, sequence, self.settings, self.model.sampler_address)
        self._check_grammar(read)
        return read

    def _completion(self, prompt_index: int, index: int, read: _ReadSequence, cost: Cost) -> Completion:
        return Completion(
            prompt_index=prompt_index,
            index=index,
            text=read.text,
            data=read.data,
            tokens=read.tokens(),
            alternatives=read.alternatives(),
            logp=read.logp(),
            healed=b"",
            log_heal=0.0,
            finish=read.finish,
            stop=read.stop,
            ended_by=read.ended_by,
            seed=None if self.seed is None else self.seed + index,
            close_steps=None,
            n_drafted=0,
            n_accepted=0,
            cost=cost,
        )

    def _check_grammar(self, read: _ReadSequence) -> None:
        """Raise `ServerError` for a text that the grammar does not allow.

        A server that does not know the option may have ignored it.
        """
        grammar = self.prepared.request.options.grammar
        if grammar is None:
            return
        verdict = grammar.accepts(read.data)
        if verdict.verdict == "no" or (read.finish in {"eog", "automaton"} and not verdict):
            shown = read.text[:80]
            reason = (
                f"it drew {shown!r}, which is no text of the grammar: it does not apply grammars, or cannot read it"
            )
            raise ServerError(self.model.sampler_address, reason)


def prepare(
    model: SupportsCompletion, described: ModelDescription, prompts: Prompts, request: GenerateRequest
) -> PreparedServedGenerate:
    """Check and tokenize a request, without asking the server to draw.

    Args:
        model: What draws.
        described: The model as requests see it.
        prompts, request: As `Engine.generate` gets them.

    Raises:
        ServerOptionError: For an option that the server cannot apply.
        RequestError: For whatever else is invalid.
    """
    _refuse_local(model, request)
    settings = _settings(model, request)
    model.check_sampler(settings, None if request.seed is None else request.seed + request.n_drawn - 1)
    # The server has the grammar; here it would only be compiled.
    local = replace(request, options=replace(request.options, grammar=None))
    prepared = generate.prepare(described, prompts, local)
    for spec in prepared.specs:
        if spec.healed is not None:
            raise _refused(
                model,
                "heal",
                True,  # noqa: FBT003 - the value of the option
                "cannot take back the last tokens of a prompt",
                "set heal=False, or end the prompt where its last token is certain",
            )
    seed = request.seed
    if seed is None and model.repeats_seeds:
        seed = int.from_bytes(os.urandom(_SEED_BYTES), "little")
    return PreparedServedGenerate(model, replace(prepared, request=request), settings, seed)


def _refuse_local(model: SupportsCompletion, request: GenerateRequest) -> None:
    """Raise `ServerOptionError` for what only a sampler here can do."""
    options, here = request.options, "load the model here"
    if request.draft is not None:
        raise _refused(model, "draft", type(request.draft).__name__, "takes no drafts", f"leave it out, or {here}")
    if options.choices is not None:
        remedy = "use `select`, or a grammar of them (Grammar.from_choices)"
        raise _refused(model, "choices", options.choices, "does not draw the tokenizer's own encodings alone", remedy)
    if request.prompting.delimiter:
        remedy = "write it at the end of the prompt"
        raise _refused(model, "delimiter", request.prompting.delimiter, "draws after the prompt alone", remedy)
    if options.named:
        remedy = "use `prompt_logprobs` on the text, or leave it out"
        raise _refused(model, "named", options.named, "does not tell them while it draws", remedy)
    if request.stopping.when is not None:
        remedy = "use `stop`, or leave it out"
        raise _refused(
            model, "when", getattr(request.stopping.when, "__name__", "a callable"), "calls no function", remedy
        )


def _settings(model: SupportsCompletion, request: GenerateRequest) -> SamplerSettings:
    sampling, stopping = request.sampling, request.stopping
    penalises = sampling.penalises
    return SamplerSettings(
        max_tokens=stopping.max_tokens,
        min_tokens=stopping.min_tokens,
        stop=tuple(stopping.stop),
        stop_tokens=tuple(stopping.stop_tokens),
        ignore_eog=stopping.ignore_eog,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        typical_p=sampling.typical_p,
        repeat_penalty=sampling.repeat_penalty if penalises else 1.0,
        presence_penalty=sampling.presence_penalty if penalises else 0.0,
        frequency_penalty=sampling.frequency_penalty if penalises else 0.0,
        penalty_last_n=sampling.penalty_last_n,
        logit_bias=sampling.logit_bias,
        grammar=_gbnf(model, request.options.grammar),
        n_alternatives=request.options.n_alternatives,
        best_of=request.options.best_of,
    )


def _gbnf(model: SupportsCompletion, grammar: Grammar | None) -> str | None:
    """Return a grammar as servers read it, whose first rule is named "root"."""
    if grammar is None:
        return None
    try:
        rules = dict(grammar.rules)
    except GrammarError as error:
        remedy = "write it in GBNF or Lark, or load the model here"
        raise _refused(model, "grammar", grammar.name, "reads GBNF, in which it cannot be written", remedy) from error
    root = next(iter(rules))
    lines = [f"{name} ::= {right}\n" for name, right in rules.items()]
    if root == "root":
        return "".join(lines)
    if "root" in rules:
        reason, remedy = "begins with the rule 'root', which here is not the first", "name the start rule 'root'"
        raise _refused(model, "grammar", grammar.name, reason, remedy)
    return "".join([f"root ::= {root}\n", *lines])


def _refused(model: SupportsCompletion, name: str, value: object, reason: str, remedy: str) -> ServerOptionError:
    return ServerOptionError(name, value, server=model.sampler_name, reason=reason, remedy=remedy)


class _ReadSequence:
    """What is known of a sequence that a server drew.

    Its text is made of its tokens, as of one that was drawn here, where they are told.

    Args:
        vocabulary: The vocabulary.
        prompt: int32[T], the tokens before it.
        sequence: What the server says.
        settings: How it was drawn.
        address: Address of the server, for errors.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        prompt: IntArray,
        sequence: ServedSequence,
        settings: SamplerSettings,
        address: str,
    ) -> None:
        self._vocabulary, self._sequence, self._address = vocabulary, sequence, address
        self.finish, self.stop, self.n_tokens = sequence.finish, sequence.stop, sequence.n_tokens
        self.ended_by = sequence.stop_token
        self._n_prompt = len(prompt)
        self._tokens: tuple[int, ...] = ()
        if sequence.tokens is None:
            self.text = sequence.text or ""
            self.data = self.text.encode()
        else:
            self._tokens = sequence.tokens
            self._read_end(settings)
            self._read_text(DrawnText(prompt, vocabulary.pieces, settings.stop), settings.min_tokens)

    @property
    def n_rows(self) -> int:
        """Return the number of rows that drawing it alone takes, nothing cached."""
        return self._n_prompt + max(0, self.n_tokens - 1)

    def _read_end(self, settings: SamplerSettings) -> None:
        """Find the token that ended the sequence, and whether it is an end of text."""
        last, eog = self._tokens[-1:], self._vocabulary.eog.tolist()
        if self.ended_by is None and self.finish == "eog":
            self.ended_by = next((token for token in last if token in eog), None)
            if self.ended_by is None and settings.grammar is not None:
                self.finish = "automaton"  # the grammar allowed nothing more
        elif self.ended_by is not None and self.ended_by in eog and self.ended_by not in settings.stop_tokens:
            self.finish = "eog"

    def _read_text(self, text: DrawnText, n_free: int) -> None:
        """Read the text up to a stop string; what comes after it was not asked for."""
        tokens, end = self._tokens, self.ended_by
        n_text = len(tokens) - (end is not None and tokens[-1:] == (end,))
        for number, token in enumerate(tokens[:n_text], 1):
            if text.feed(token, goes_on=number <= n_free):
                self._tokens, self.n_tokens = tokens[:number], number
                self.finish, self.stop, self.ended_by = "stop", text.stop, None
                break
        text.end()
        if self.stop is not None and text.stop is None:
            reason = f"it says that a sequence ended with {self.stop[:40]!r}, which its tokens do not spell"
            raise ServerError(self._address, reason)
        self.text, self.data = text.text, text.data

    def tokens(self) -> tuple[TokenScore, ...]:
        """Return the tokens; NaN stands for a log-probability that is not known."""
        pairs = zip(self._tokens, self._sequence.logp, strict=False)
        return tuple(
            TokenScore.of(self._vocabulary, token, math.nan if logp is None else logp) for token, logp in pairs
        )

    def logp(self) -> float | None:
        """Return the log-probability of all tokens; None if one is not known."""
        known = [logp for logp in self._sequence.logp[: len(self._tokens)] if logp is not None]
        is_known = bool(self._tokens) and len(known) == len(self._tokens)
        return float(np.array(known).sum()) if is_known else None

    def alternatives(self) -> tuple[tuple[TokenScore, ...], ...]:
        """Return the most probable tokens at each step, if they were requested."""
        rows = self._sequence.alternatives[: len(self._tokens)]
        return tuple(tuple(TokenScore.of(self._vocabulary, *pair) for pair in row) for row in rows)
