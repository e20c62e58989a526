"""Defines results of generation, and converts them to OpenAI's completion objects."""

from __future__ import annotations

import math
import operator
from codecs import getincrementaldecoder
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, overload

from selectrie.core.notation import quoted, write_logp, written_tolerance
from selectrie.core.types import Cost, ModelIdentity
from selectrie.errors import IncompatibleOptionsError, OptionRef
from selectrie.options import SamplingParams, StopParams, at_least
from selectrie.results.advice import Advice, notes_advice
from selectrie.results.drawing.bars import draw_texts
from selectrie.results.drawing.plot import plot
from selectrie.results.drawing.shapes import to_html
from selectrie.results.drawing.tokens import TokenText, draw_tokens
from selectrie.results.plain import JsonRecord, fields_of, frame, listing, number, plain, text_fields
from selectrie.results.records import Signature, TokenScore, json_logprob, result_fields
from selectrie.version import __version__

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_OUT_OF_ROOM = ("length", "deadline")


class CompletionLike(Protocol):
    """The attributes of a `Completion` that completion objects need."""

    @property
    def text(self) -> str: ...
    @property
    def healed(self) -> bytes: ...
    @property
    def tokens(self) -> tuple[TokenScore, ...]: ...
    @property
    def alternatives(self) -> tuple[tuple[TokenScore, ...], ...]: ...
    @property
    def finish(self) -> str: ...


def finish_reason(finish: str) -> str:
    """Return the API's `finish_reason` for `Completion.finish`.

    It is "length" if tokens or time ran out, else "stop".
    """
    return "length" if finish in _OUT_OF_ROOM else "stop"


def text_completion(completions: Iterable[CompletionLike]) -> dict[str, object]:
    """Return the fields `object` and `choices` of a completion object."""
    return {
        "object": "text_completion",
        "choices": [
            {
                "text": completion.text,
                "index": index,
                "logprobs": _make_logprobs(completion),
                "finish_reason": finish_reason(completion.finish),
            }
            for index, completion in enumerate(completions)
        ],
    }


def chat_completion(completions: Iterable[CompletionLike], *, logprobs: bool = True) -> dict[str, object]:
    """Return the fields `object` and `choices` of a chat completion object.

    Without `logprobs`, the field of this name is None.
    """
    return {
        "object": "chat.completion",
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": completion.text, "refusal": None},
                "logprobs": chat_logprobs(completion.tokens, completion.alternatives) if logprobs else None,
                "finish_reason": finish_reason(completion.finish),
            }
            for index, completion in enumerate(completions)
        ],
    }


def _make_logprobs(one: CompletionLike) -> dict[str, object] | None:
    """Return the field `logprobs` of a completion object.

    It has a list over the tokens for each quantity. Returns None if a server did not
    return the tokens of the text.
    """
    if one.text and not one.tokens:
        return None
    top = [_make_top_logprobs(token, others) for token, others in zip(one.tokens, one.alternatives, strict=False)]
    return {
        "tokens": [token.label for token in one.tokens],
        "token_logprobs": [json_logprob(token.logp) for token in one.tokens],
        "top_logprobs": top or None,
        "text_offset": _count_offsets(one),
    }


def _make_top_logprobs(drawn: TokenScore, alternatives: Sequence[TokenScore]) -> dict[str, float | None]:
    """Return an entry of `top_logprobs`: log-probabilities by label, best first.

    The drawn token is included, because the API always lists it. Of several
    alternatives with the same label, the most probable one is listed.
    """
    top: dict[str, float | None] = {}
    for token in (*alternatives, drawn):
        top.setdefault(token.label, json_logprob(token.logp))
    return top


def _count_offsets(one: CompletionLike) -> list[int]:
    """Return, for each token, the number of characters of the text before the token.

    Healed bytes are not part of the text. Tokens of a stop string have the length of
    the text.
    """
    decoder = getincrementaldecoder("utf-8")("replace")
    left, lengths = len(one.healed), []
    for token in one.tokens:
        lengths.append(len(decoder.decode(token.piece[left:])))
        left = max(0, left - len(token.piece))
    return [min(before, len(one.text)) for before in accumulate(lengths[:-1], initial=0)] if lengths else []


def chat_logprobs(
    tokens: Sequence[TokenScore], alternatives: Sequence[Sequence[TokenScore]]
) -> dict[str, list[dict[str, object]] | None]:
    """Return the field `logprobs` of a choice of a chat completion object.

    In addition to the fields of the API, each token has its id, because several tokens
    may have the same text.
    """
    others = alternatives or ((),) * len(tokens)
    content = [
        {**_make_token_dict(token), "top_logprobs": [_make_token_dict(other) for other in top]}
        for token, top in zip(tokens, others, strict=True)
    ]
    return {"content": content, "refusal": None}


def _make_token_dict(token: TokenScore) -> dict[str, object]:
    """Return a token as an object of the API, with its id."""
    return {"id": token.id, "token": token.label, "logprob": json_logprob(token.logp), "bytes": list(token.piece)}


_REPR_ROWS = 8
_HTML_ROWS = 20
_HTML_TOKENS = 100
_TEXT_CELLS = 200


@dataclass(frozen=True, slots=True, repr=False)
class Completion(JsonRecord):
    """A generated sequence.

    Equality ignores `n_drafted`, `n_accepted` and `cost`, which depend on sharing and
    drafting.

    Attributes:
        prompt_index: Index of the prompt in the request.
        index: Index of the sequence among those of the same prompt. With `best_of`, the
            best sequence has index 0.
        text: The text, without the stop string.
        data: Bytes of the text, including an incomplete character at the end.
        tokens: All drawn tokens, including the tokens of `healed`, of a stop string and
            of the end. Each has the log-probability of the model itself, before any
            step of the sampler chain; NaN if a server did not return it. Empty if a
            server returned no tokens.
        alternatives: The most probable tokens at each position, if requested.
        logp: Joint log-probability of all tokens, given the healed bytes; None if a
            server did not return it.
        healed: Bytes of the prompt that the tokens spell before the text.
        log_heal: Log-probability of the healed bytes, already subtracted from `logp`:
            the sum over steps of the log-probability of all tokens that agree with the
            remaining bytes.
        finish: "eog", "stop" (a text or a token), "length", "callback", "automaton"
            (the grammar allows no further token) or "deadline".
        stop: The stop string at which the sequence ended, or None.
        ended_by: Id of the last token if the token has no text, else None.
        seed: Seed that reproduces this sequence alone, or the seed sent to a server;
            None if a server drew the sequence without a seed.
        close_steps: Steps whose draw the batching of calls could have changed
            (`Generation.tolerance`); None if the tolerance is not measured.
        n_drafted: Number of drafted tokens that were evaluated.
        n_accepted: Number of drafted tokens that were accepted.
        cost: The model work done for the sequence. For a server, only requests and
            seconds are known.
        named: Log-probabilities of the tokens of `GenerationParams.named` at each
            position, if requested.
        tolerance: As in `Generation`. Not compared.
    """

    prompt_index: int
    index: int
    text: str
    data: bytes
    tokens: tuple[TokenScore, ...]
    alternatives: tuple[tuple[TokenScore, ...], ...]
    logp: float | None
    healed: bytes
    log_heal: float
    finish: str
    stop: str | None
    ended_by: int | None
    seed: int | None
    close_steps: tuple[int, ...] | None
    n_drafted: int = field(compare=False)
    n_accepted: int = field(compare=False)
    cost: Cost = field(compare=False)
    named: tuple[tuple[float, ...], ...] = ()
    tolerance: float | None = field(default=None, compare=False)

    @property
    def n_close(self) -> int | None:
        """Return the number of `close_steps`; None if the tolerance is not measured."""
        return None if self.close_steps is None else len(self.close_steps)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON; -inf becomes None."""
        head = {**fields_of(self, "prompt=prompt_index index"), **text_fields(self.text, self.data)}
        names = "logp healed log_heal finish stop ended_by seed close_steps tokens alternatives n_drafted n_accepted"
        return {**head, **fields_of(self, f"{names} cost named?")}

    def __repr__(self) -> str:
        return f"Completion({self.in_words()})"

    def in_words(self) -> str:
        """Return the place, the beginning of the text, its end and its score."""
        logp = "" if self.logp is None else f", logp {write_logp(self.logp, written_tolerance(self))}"
        return f"{self.prompt_index}.{self.index} {quoted(self.text, _TEXT_CELLS)} ({self.finish}{logp})"

    def in_tokens(self) -> TokenText:
        """Return what a notebook shows: where it ended, and the text as tokens."""
        head = f"{self.prompt_index}.{self.index} · ends by {self.finish}"
        head += "" if self.logp is None else f" · logp {write_logp(self.logp, written_tolerance(self))}"
        tokens = self.tokens or (TokenScore(-1, self.data, math.nan),)
        return TokenText(tokens, head, self.alternatives)

    def _repr_html_(self) -> str:
        """Return the text as tokens, tinted by their probabilities, for notebooks."""
        return to_html(draw_tokens([self.in_tokens()], tolerance=written_tolerance(self)))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the text as tokens with matplotlib (extra `plot`), as in a notebook."""
        return plot(draw_tokens([self.in_tokens()], tolerance=written_tolerance(self)), ax)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The text and tokens added to a sequence of a stream since its last chunk.

    Attributes:
        prompt_index: Index of the prompt.
        index: Index of the sequence among those of the same prompt.
        text: Complete characters that cannot be part of a stop string. The joined texts
            of a sequence's chunks are the text of the sequence.
        tokens: Tokens drawn since the last chunk.
        completion: The finished sequence, on its last chunk only.
        alternatives: The most probable tokens at the position of each of `tokens`, if
            requested.
        named: Log-probabilities of the tokens of `GenerationParams.named` at the same
            positions, if requested.
    """

    prompt_index: int
    index: int
    text: str
    tokens: tuple[TokenScore, ...]
    completion: Completion | None = None
    alternatives: tuple[tuple[TokenScore, ...], ...] = ()
    named: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Generation(JsonRecord, Sequence[Completion]):
    """All sequences of a request, in the order of their prompts.

    Equality ignores `id`, `created` and `cost`. With the seeds, the result depends on
    `sampling`, `stopping`, `identity` and `tolerance`.

    Attributes:
        completions: The sequences.
        n: Number of sequences of each prompt.
        prompt_tokens: Number of tokens of each prompt.
        n_drawn: Number of drawn tokens, including those of sequences that `best_of`
            discarded.
        sampling: The sampling options of the request.
        stopping: The stopping options of the request.
        identity: The model.
        tolerance: Nats per row by which the batching of calls may change a
            log-probability; None if not measured.
        cost: The model work done for all sequences.
        id: Identifier of the result in OpenAI's format.
        created: Time of the result, in seconds since 1970.
        version: Version of selectrie.
        notes: As in `Selection`.
        sampled_by: The server that drew the sequences, and the options sent to it. None
            if the sequences were drawn locally.
    """

    completions: tuple[Completion, ...]
    n: int
    prompt_tokens: tuple[int, ...]
    n_drawn: int
    sampling: SamplingParams
    stopping: StopParams
    identity: ModelIdentity
    tolerance: float | None
    cost: Cost = field(compare=False)
    id: str = field(compare=False)
    created: int = field(compare=False)
    version: str = __version__
    notes: tuple[str, ...] = ()
    sampled_by: str | None = None

    def __len__(self) -> int:
        return len(self.completions)

    @overload
    def __getitem__(self, index: int) -> Completion: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Completion, ...]: ...
    def __getitem__(self, index: int | slice) -> Completion | tuple[Completion, ...]:
        return self.completions[index]

    @property
    def text(self) -> str:
        """Return the text of the only sequence; raise `OptionError` if several."""
        if len(self.completions) != 1:
            many, remedy = f"{len(self.completions)} sequences", "read `texts`, or the text of one, as in `[0].text`"
            raise IncompatibleOptionsError(OptionRef("text"), many, remedy)
        return self.completions[0].text

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the text of each sequence."""
        return tuple(completion.text for completion in self.completions)

    def of(self, prompt_index: int) -> tuple[Completion, ...]:
        """Return the sequences of one prompt.

        Raises `IndexError` if there is no such prompt.
        """
        n_prompts = len(self.prompt_tokens)
        if not -n_prompts <= operator.index(prompt_index) < n_prompts:
            raise IndexError(f"there is no prompt {prompt_index} among {n_prompts}")
        index = operator.index(prompt_index) % n_prompts
        return self.completions[index * self.n : (index + 1) * self.n]

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on this result."""
        return notes_advice(self.notes)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "generation"."""
        return {
            **result_fields(self, "generation", "id n prompt_tokens n_drawn"),
            "sampling": _make_options_dict(self.sampling, "logit_bias"),
            "stopping": {**_make_options_dict(self.stopping, "when"), "when": self.stopping.when is not None},
            **fields_of(self, "model=identity tolerance version cost completions notes? warnings? sampled_by?"),
        }

    def to_openai(self, model: str | None = None, *, chat: bool = False) -> dict[str, object]:
        """Return the completion object of OpenAI's API, ready for JSON.

        `choices` are numbered consecutively, prompt by prompt. `finish_reason` is
        "length" if tokens or time ran out, else "stop". In `usage`, each prompt counts
        once, and every drawn token counts. Log-probabilities have the API's form, with
        `top_logprobs` if alternatives were requested. Offsets count characters within
        the text of a choice.

        Args:
            model: The value of `model`; None means the name of the model.
            chat: Whether to return a chat completion object.
        """
        completion = chat_completion(self.completions) if chat else text_completion(self.completions)
        return {
            "id": ("chatcmpl-" if chat else "cmpl-") + self.id,
            "object": completion["object"],
            "created": self.created,
            "model": self.identity.name if model is None else model,
            "choices": completion["choices"],
            "usage": {
                "prompt_tokens": sum(self.prompt_tokens),
                "completion_tokens": self.n_drawn,
                "total_tokens": sum(self.prompt_tokens) + self.n_drawn,
            },
        }

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas data frame with a row for each sequence (extra `pandas`).

        The columns are prompt, index, text, finish, logp, n_tokens and seed.
        """
        rows = ((c.prompt_index, c.index, c.text, c.finish, c.logp, len(c.tokens), c.seed) for c in self.completions)
        return frame(rows, "prompt index text finish logp n_tokens seed")

    def _repr_html_(self) -> str:
        """Return the texts as tokens, tinted by their probabilities, for notebooks."""
        shown = self.completions[:_HTML_ROWS]
        caption = f"{len(self.prompt_tokens)} prompts, n={self.n}"
        more = [f"… {len(self) - len(shown)} more"] if len(self) > len(shown) else []
        lines = [caption, *(f"! {advice}" for advice in self.warnings), *more]
        texts = [completion.in_tokens() for completion in shown]
        return to_html(draw_tokens(texts, title=caption, tolerance=written_tolerance(self)), before=lines)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the first texts with matplotlib (extra `plot`), as in a notebook."""
        shown = [completion.in_tokens() for completion in self.completions[:_HTML_ROWS]]
        return plot(draw_tokens(shown, tolerance=written_tolerance(self)), ax)

    def __repr__(self) -> str:
        shown = [f"  {completion.in_words()}" for completion in self.completions[:_REPR_ROWS]]
        head = f"Generation({len(self.prompt_tokens)} prompts, n={self.n})"
        return listing(head, shown, len(self))


def _make_options_dict(record: SamplingParams | StopParams, excluded: str) -> dict[str, object]:
    """Return the fields of an options record, ready for JSON.

    The field `excluded` has no JSON form. It is converted if it is a mapping, else left
    out.
    """
    fields = {name: value for name, value in plain(record).items() if name != excluded}
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    content = getattr(record, excluded)
    if isinstance(content, Mapping):  # -inf forbids a token; JSON has no infinity
        fields[excluded] = {str(token): number(bias) for token, bias in content.items()}
    return fields


_REPR_TOKENS = 12


@dataclass(frozen=True, slots=True, repr=False)
class PromptLogprobs(JsonRecord):
    """The log-probability of every token of a prompt, given the tokens before it.

    The tuples have one entry for each of the T tokens. An entry is None if no row was
    read: for the first token, and for tokens before the first requested one. All values
    of one position come from the same row. A token's `logp` therefore equals its values
    in `top` and `named` exactly.

    Equality ignores `cost`, which depends on the cache.

    Attributes:
        tokens: Token ids of the prompt. For a text, they begin with BOS if the model
            adds it.
        labels: Text of each token, with invalid UTF-8 replaced, or the name of a
            control token.
        logp: Natural log of each token's probability; -inf if it is impossible.
        is_greedy: Whether each token is the most probable one (ties: the smaller id).
        top: The most probable tokens at each position, as pairs of id and
            log-probability, best first (ties: the smaller id first). Impossible tokens
            are omitted. Empty tuples if not requested.
        named: Log-probability of each of `named_ids` at each position.
        named_ids: The token ids whose log-probabilities were requested.
        cost: This prompt's share of the model work. A row that several prompts of a
            call share counts for the first of them.
        signature: Model, software and options that determine the values.
        notes: As in `Selection`.
    """

    tokens: tuple[int, ...]
    labels: tuple[str, ...]
    logp: tuple[float | None, ...]
    is_greedy: tuple[bool | None, ...]
    top: tuple[tuple[tuple[int, float], ...] | None, ...]
    named: tuple[tuple[float, ...] | None, ...]
    named_ids: tuple[int, ...]
    cost: Cost = field(compare=False)
    signature: Signature
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return T, the number of tokens."""
        return len(self.tokens)

    @property
    def n_rows(self) -> int:
        """Return the number of tokens that have a log-probability."""
        return sum(logp is not None for logp in self.logp)

    @property
    def tolerance(self) -> float | None:
        """Return the nats by which the batching of calls may change a log-probability.

        None if it was not measured.
        """
        return self.signature.tolerance

    @property
    def total_logp(self) -> float:
        """Return the sum of all known log-probabilities.

        The sum may be off by `n_rows` times the tolerance.
        """
        return self.loglikelihood()[0]

    def loglikelihood(self, start: int | None = None, stop: int | None = None) -> tuple[float, bool]:
        """Return the summed log-probability of tokens, and whether all are greedy.

        lm-evaluation-harness calls this the log-likelihood of a continuation. The sum
        is added from the last token to the first, as in `Engine.loglikelihood_scorer`,
        so both give exactly the same number.

        Args:
            start: Index of the first token; None for the first token with a value.
            stop: Index after the last token; None for the end of the prompt.

        Raises:
            OptionError: If a token in the range has no value, or the range is invalid.
        """
        first = len(self) - self.n_rows
        start, stop = first if start is None else start, len(self) if stop is None else stop
        at_least("start", start, first, max_value=len(self), optional=False)
        at_least("stop", stop, start, max_value=len(self), optional=False)
        total = 0.0
        for logp in reversed(self.logp[start:stop]):
            total += 0.0 if logp is None else logp
        return total, all(self.is_greedy[start:stop])

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on this result."""
        return notes_advice(self.notes)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "prompt_logprobs".

        -inf becomes None.
        """
        names = "tokens labels logp is_greedy top named named_ids n_rows total_logp cost signature notes? warnings?"
        return result_fields(self, "prompt_logprobs", names)

    def __repr__(self) -> str:
        pairs = zip(self.labels[:_REPR_TOKENS], self.logp, strict=False)
        tolerance = written_tolerance(self)
        shown = [
            f"  {label!r}" + ("" if logp is None else f"  logp {write_logp(logp, tolerance)}") for label, logp in pairs
        ]
        total = write_logp(self.total_logp, tolerance)
        head = f"PromptLogprobs({len(self)} tokens, {self.n_rows} rows, total logp {total})"
        return listing(head, shown, len(self))

    def _repr_html_(self) -> str:
        """Return a small table with bars, for notebooks."""
        known = [(label, logp, True) for label, logp in zip(self.labels, self.logp, strict=True) if logp is not None]
        shown = known[:_HTML_TOKENS]
        tolerance = written_tolerance(self)
        caption = f"total logp {write_logp(self.total_logp, tolerance)}"
        drawing = draw_texts(shown, title=caption, n=len(known), tolerance=tolerance)
        return to_html(drawing, before=[caption])
