"""Results of generation, and the same as completion objects of OpenAI's API."""

from __future__ import annotations

import operator
from codecs import getincrementaldecoder
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol, overload

from selectrie.core.types import Cost, ModelIdentity
from selectrie.options import SamplingParams, StopParams
from selectrie.results.advice import Advice, notes_advice
from selectrie.results.plain import fields_of, listing, number, plain, text_fields
from selectrie.results.records import TokenScore, json_logprob, result_fields
from selectrie.version import __version__

_OUT_OF_ROOM = ("length", "deadline")


class Drawn(Protocol):
    """The part of a `Completion` that is read here."""

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
    """Return "length" if tokens or time ran out, else "stop".

    These are the API's values of `finish_reason`.
    """
    return "length" if finish in _OUT_OF_ROOM else "stop"


def text_completion(completions: Iterable[Drawn]) -> dict[str, object]:
    """Return the fields `object` and `choices` of a completion object."""
    return {
        "object": "text_completion",
        "choices": [
            {
                "text": one.text,
                "index": index,
                "logprobs": _logprobs(one),
                "finish_reason": finish_reason(one.finish),
            }
            for index, one in enumerate(completions)
        ],
    }


def chat_completion(completions: Iterable[Drawn], *, logprobs: bool = True) -> dict[str, object]:
    """Return the fields `object` and `choices` of a chat completion object.

    Without `logprobs`, that field is None.
    """
    return {
        "object": "chat.completion",
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": one.text, "refusal": None},
                "logprobs": chat_logprobs(one.tokens, one.alternatives) if logprobs else None,
                "finish_reason": finish_reason(one.finish),
            }
            for index, one in enumerate(completions)
        ],
    }


def _logprobs(one: Drawn) -> dict[str, object] | None:
    """Return the field `logprobs` of a completion object, lists over the tokens.

    None if a server does not tell the tokens of a text.
    """
    if one.text and not one.tokens:
        return None
    top = [_top(token, others) for token, others in zip(one.tokens, one.alternatives, strict=False)]
    return {
        "tokens": [token.label for token in one.tokens],
        "token_logprobs": [json_logprob(token.logp) for token in one.tokens],
        "top_logprobs": top or None,
        "text_offset": _offsets(one),
    }


def _top(drawn: TokenScore, alternatives: Sequence[TokenScore]) -> dict[str, float | None]:
    """Return an entry of `top_logprobs`: log-probabilities by spelling, best first.

    The drawn token is included, because the API always lists it. If several
    alternatives have one spelling, the most probable one is listed.
    """
    top: dict[str, float | None] = {}
    for token in (*alternatives, drawn):
        top.setdefault(token.label, json_logprob(token.logp))
    return top


def _offsets(one: Drawn) -> list[int]:
    """Return the number of characters of the text before each token.

    Healed bytes are not part of the text. The offsets of a stop string are those of the
    end of the text.
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

    Each token has its id beside the fields of the API, because several tokens may have
    one text.
    """
    others = alternatives or ((),) * len(tokens)
    content = [
        {**_token(token), "top_logprobs": [_token(other) for other in top]}
        for token, top in zip(tokens, others, strict=True)
    ]
    return {"content": content, "refusal": None}


def _token(token: TokenScore) -> dict[str, object]:
    return {"id": token.id, "token": token.label, "logprob": json_logprob(token.logp), "bytes": list(token.piece)}


_REPR_ROWS = 8


@dataclass(frozen=True, slots=True)
class Completion:
    """A generated sequence.

    Equality ignores `n_drafted`, `n_accepted` and `cost`, which depend on sharing and
    drafting.

    Attributes:
        prompt_index: Index of the prompt among those given.
        index: Index among the sequences of its prompt; with `best_of` the best has 0.
        text: The text, without the stop string.
        data: Bytes of the text, including an incomplete character at the end.
        tokens: All drawn tokens, including those that spell `healed`, those of a stop
            string, and one that ended the sequence. Each has the log-probability that
            the model itself gives it, before any step of the sampler chain. NaN stands
            for one that a server does not tell; without any token, it tells none.
        alternatives: The most probable tokens at each position, if requested.
        logp: Joint log-probability of all tokens, conditional on the healed bytes; None
            if a server does not tell it.
        healed: Bytes of the prompt that the tokens spell before the text.
        log_heal: Log-probability of the healed bytes, already subtracted from `logp`.
            Each step that spelled them counts all tokens that agree with the bytes then
            left.
        finish: "eog", "stop" (a text or a token), "length", "callback", "automaton"
            (the grammar allows no further token) or "deadline".
        stop: The stop string found, or None.
        ended_by: The last token, if it has no text.
        seed: Seed that reproduces this sequence alone, or that a server was sent; None
            if a server drew it without one.
        close_steps: Steps whose draw the layout of calls could have changed
            (`Generation.tolerance`); None if the tolerance is not measured.
        n_drafted: Number of drafted tokens that were evaluated.
        n_accepted: Number of these that were drawn.
        cost: The model work that the sequence took. Of a server, requests and seconds
            are known, and no rows.
        named: Log-probabilities of the tokens of `GenerationParams.named` at each
            position, if requested.
    """

    prompt_index: int
    index: int
    text: str
    data: bytes = field(repr=False)
    tokens: tuple[TokenScore, ...] = field(repr=False)
    alternatives: tuple[tuple[TokenScore, ...], ...] = field(repr=False)
    logp: float | None
    healed: bytes = field(repr=False)
    log_heal: float
    finish: str
    stop: str | None
    ended_by: int | None
    seed: int | None
    close_steps: tuple[int, ...] | None
    n_drafted: int = field(compare=False)
    n_accepted: int = field(compare=False)
    cost: Cost = field(compare=False)
    named: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    @property
    def n_close(self) -> int | None:
        """Return the number of `close_steps`; None if the tolerance is not measured."""
        return None if self.close_steps is None else len(self.close_steps)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON; -inf becomes None."""
        head = {**fields_of(self, "prompt=prompt_index index"), **text_fields(self.text, self.data)}
        names = "logp healed log_heal finish stop ended_by seed close_steps tokens alternatives n_drafted n_accepted"
        return {**head, **fields_of(self, f"{names} cost named?")}


@dataclass(frozen=True, slots=True)
class Chunk:
    """The text and tokens that a sequence of a stream has gained since its last chunk.

    Attributes:
        prompt_index: Index of the prompt.
        index: Index among the sequences of its prompt.
        text: Whole characters that cannot be part of a stop string. The texts of a
            sequence's chunks make up its text.
        tokens: Tokens drawn since the last chunk.
        completion: The finished sequence, on its last chunk only.
        alternatives: The most probable tokens at the position of each of `tokens`, if
            requested.
        named: Log-probabilities of the tokens of `GenerationParams.named` there, if
            requested.
    """

    prompt_index: int
    index: int
    text: str
    tokens: tuple[TokenScore, ...]
    completion: Completion | None = None
    alternatives: tuple[tuple[TokenScore, ...], ...] = ()
    named: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Generation(Sequence[Completion]):
    """All sequences of a request, in the order of their prompts.

    Equality ignores `id`, `created` and `cost`. With the seeds, the result depends on
    `sampling`, `stopping`, `identity` and `tolerance`.

    Attributes:
        completions: The sequences.
        n: Number of sequences of each prompt.
        prompt_tokens: Number of tokens of each prompt.
        n_drawn: Number of drawn tokens, including those of sequences that `best_of`
            left out.
        sampling: The sampling options, as they were given.
        stopping: The stopping options, as they were given.
        identity: The model.
        tolerance: Nats per row by which the layout of calls may change a
            log-probability; None if not measured.
        cost: The model work that all sequences took.
        id: Name of the result in OpenAI's format.
        created: Seconds since 1970.
        version: Version of selectrie.
        notes: As in `Selection`.
        sampled_by: The server that drew the sequences, and the options that it was
            sent; all others were its own. None if they were drawn here.
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
        """Return what to know before relying on it."""
        return notes_advice(self.notes)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "generation"."""
        return {
            **result_fields(self, "generation", "id n prompt_tokens n_drawn"),
            "sampling": _jsonable(self.sampling, "logit_bias"),
            "stopping": {**_jsonable(self.stopping, "when"), "when": self.stopping.when is not None},
            **fields_of(self, "model=identity tolerance version cost completions notes? warnings? sampled_by?"),
        }

    def to_openai(self, model: str | None = None, *, chat: bool = False) -> dict[str, object]:
        """Return the completion object of OpenAI's API, ready for JSON.

        With `chat`, it is the chat completion object. `choices` are numbered
        consecutively, prompt by prompt. `finish_reason` is "length" if tokens or time
        ran out, else "stop". In `usage`, each prompt counts once, and so does every
        drawn token. Log-probabilities have the API's form, with `top_logprobs` if
        alternatives were requested. Offsets count characters of the choice's own text.

        Args:
            model: The name to state; None means the model's own.
            chat: Whether to return a chat completion object.
        """
        made = chat_completion(self.completions) if chat else text_completion(self.completions)
        return {
            "id": ("chatcmpl-" if chat else "cmpl-") + self.id,
            "object": made["object"],
            "created": self.created,
            "model": self.identity.name if model is None else model,
            "choices": made["choices"],
            "usage": {
                "prompt_tokens": sum(self.prompt_tokens),
                "completion_tokens": self.n_drawn,
                "total_tokens": sum(self.prompt_tokens) + self.n_drawn,
            },
        }

    def __repr__(self) -> str:
        shown = [f"  {c.prompt_index}.{c.index} {c.text!r} ({c.finish})" for c in self.completions[:_REPR_ROWS]]
        head = f"Generation({len(self.prompt_tokens)} prompts, n={self.n})"
        return listing(head, shown, len(self))


def _jsonable(record: SamplingParams | StopParams, apart: str) -> dict[str, object]:
    """Return the fields of an options record, ready for JSON.

    JSON cannot hold the field named `apart`. It is converted if it is a mapping, else
    left out.
    """
    fields = {name: value for name, value in plain(record).items() if name != apart}
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    content = getattr(record, apart)
    if isinstance(content, Mapping):  # -inf forbids a token; JSON has no infinity
        fields[apart] = {str(token): number(bias) for token, bias in content.items()}
    return fields
