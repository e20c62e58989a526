"""What was generated: sequences, all of a request, and what a stream brings piece by piece."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from selectrie.core.types import Cost, ModelIdentity
from selectrie.options import Sampling, Stopping
from selectrie.results.openai import chat_completion, text_completion
from selectrie.results.plain import bytes_fields, number, plain
from selectrie.results.records import FORMAT_VERSION, TokenScore
from selectrie.version import __version__

_REPR_ROWS = 8


@dataclass(frozen=True, slots=True)
class Completion:
    """One sequence. Equality leaves out what sharing and drafting saved: `n_drafted`, `n_accepted`, `cost`.

    prompt_index: of the prompts given. index: among the sequences of its prompt; with `best_of` the best is 0.
    text: without the stop string. data: its bytes, an incomplete character at the end included.
    tokens: all that were drawn, those that spell `healed`, those of a stop string and one that ended it included, each with the log-probability that
    the model itself gives it, before any step of the sampler chain. alternatives: per token the most probable ones, if asked for.
    healed: bytes of the prompt that the tokens spell before the text. log_heal: their log-probability, already taken off `logp`:
    at each step that spelt them, of all tokens that agree with what was left of them.
    finish: "eog", "stop" (a text or a token), "length", "callback", "automaton" (nothing may follow) or "deadline".
    stop: the stop string found. ended_by: the last token where it is no text. seed: run it again alone by this.
    close_steps: steps whose draw the layout of the work could have changed (`tolerance`); None where that is not measured.
    """

    prompt_index: int
    index: int
    text: str
    data: bytes = field(repr=False)
    tokens: tuple[TokenScore, ...] = field(repr=False)
    alternatives: tuple[tuple[TokenScore, ...], ...] = field(repr=False)
    logp: float
    healed: bytes = field(repr=False)
    log_heal: float
    finish: str
    stop: str | None
    ended_by: int | None
    seed: int
    close_steps: tuple[int, ...] | None
    n_drafted: int = field(compare=False)
    n_accepted: int = field(compare=False)
    cost: Cost = field(compare=False)

    @property
    def n_close(self) -> int | None:
        """How many draws were close; None where that is not measured."""
        return None if self.close_steps is None else len(self.close_steps)

    def to_dict(self) -> dict[str, object]:
        """JSON-ready. -inf becomes None."""
        return {
            "prompt": self.prompt_index,
            "index": self.index,
            "text": self.text,
            **({} if self.text.encode() == self.data else {"text_bytes": list(self.data)}),
            "logp": number(self.logp),
            **bytes_fields("healed", self.healed),
            "log_heal": number(self.log_heal),
            "finish": self.finish,
            "stop": self.stop,
            "ended_by": self.ended_by,
            "seed": self.seed,
            "close_steps": None if self.close_steps is None else list(self.close_steps),
            "tokens": [token.to_dict() for token in self.tokens],
            "alternatives": [[token.to_dict() for token in place] for place in self.alternatives],
            "n_drafted": self.n_drafted,
            "n_accepted": self.n_accepted,
            "cost": plain(self.cost),
        }


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a stream brings: what one sequence has gained since its last chunk.

    text: whole characters that no stop string can take back; the texts of a sequence's chunks make up its text.
    tokens: drawn since. completion: on the last chunk of a sequence, and only there.
    """

    prompt_index: int
    index: int
    text: str
    tokens: tuple[TokenScore, ...]
    completion: Completion | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Generation(Sequence[Completion]):
    """All sequences of a request, those of the first prompt first. Equality leaves out `id`, `created` and `cost`.

    n: sequences of each prompt. prompt_tokens: how many tokens each prompt has. n_drawn: tokens drawn, those of sequences that
    `best_of` left out included. cost: of all. identity, tolerance, sampling, stopping: with the seeds, what it depends on.
    tolerance: nats a row, None where not measured. id, created: names it in OpenAI's format; seconds since 1970.
    """

    completions: tuple[Completion, ...]
    n: int
    prompt_tokens: tuple[int, ...]
    n_drawn: int
    sampling: Sampling
    stopping: Stopping
    identity: ModelIdentity
    tolerance: float | None
    cost: Cost = field(compare=False)
    id: str = field(compare=False)
    created: int = field(compare=False)
    version: str = __version__

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
        """The text of each sequence."""
        return tuple(completion.text for completion in self.completions)

    def of(self, prompt_index: int) -> tuple[Completion, ...]:
        """The sequences of one prompt; `IndexError` where there is no such prompt."""
        n_prompts = len(self.prompt_tokens)
        if not -n_prompts <= operator.index(prompt_index) < n_prompts:
            raise IndexError(f"there is no prompt {prompt_index} among {n_prompts}")
        place = operator.index(prompt_index) % n_prompts
        return self.completions[place * self.n : (place + 1) * self.n]

    def to_dict(self) -> dict[str, object]:
        """JSON-ready, with `format` and kind "generation"."""
        return {
            "format": FORMAT_VERSION,
            "kind": "generation",
            "id": self.id,
            "n": self.n,
            "prompt_tokens": list(self.prompt_tokens),
            "n_drawn": self.n_drawn,
            "sampling": _jsonable(self.sampling, "logit_bias"),
            "stopping": {**_jsonable(self.stopping, "when"), "when": self.stopping.when is not None},
            "model": plain(self.identity),
            "tolerance": self.tolerance,
            "version": self.version,
            "cost": plain(self.cost),
            "completions": [completion.to_dict() for completion in self.completions],
        }

    def to_openai(self, model: str | None = None, *, chat: bool = False) -> dict[str, object]:
        """The completion object of OpenAI's API, as a dictionary ready for JSON; with `chat`, the chat completion object.

        model: the name to state; None is the model's own. `choices` are numbered through, prompt by prompt.
        `finish_reason` is "length" where tokens or time ran out, else "stop". Each prompt counts once in `usage`, and so does
        every token drawn. Log-probabilities are given as the API has them, `top_logprobs` where alternatives were asked for;
        offsets count characters of the choice's own text.
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
        rest = len(self) - len(shown)
        head = f"Generation({len(self.prompt_tokens)} prompts, n={self.n})"
        return "\n".join([head, *shown, *([f"  … {rest} more"] if rest else [])])


def _jsonable(record: Sampling | Stopping, apart: str) -> dict[str, object]:
    """Fields of an options record; the one that JSON cannot hold is taken apart or left out."""
    fields = {name: value for name, value in plain(record).items() if name != apart}
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    found = getattr(record, apart)
    if isinstance(found, Mapping):  # -inf forbids; JSON has no infinity
        fields[apart] = {str(token): number(bias) for token, bias in found.items()}
    return fields
