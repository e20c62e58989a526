"""The port of models that draw text themselves, as servers do.

Whole rows of a server's model cannot be read, so text is not drawn here but by its own
sampler. `SupportsCompletion` is what a `PathModel` has beside its rows if it can do
that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from selectrie.core.path_model import Cancellation
from selectrie.core.types import IntArray


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """How tokens are drawn, and where a sequence ends.

    The options are those of `options.SamplingParams` and `options.StopParams`, under
    the same names. Penalties have no effect if `penalty_last_n` is 0.

    Attributes:
        grammar: A grammar in GBNF with the root "root"; None for free text.
        n_alternatives: Number of most probable tokens told at every step.
        best_of: Number of sequences of which the most probable are kept, so that the
            log-probability of every token must be told; None to keep all.
    """

    max_tokens: int
    min_tokens: int
    stop: tuple[str, ...]
    stop_tokens: tuple[int, ...]
    ignore_eog: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_last_n: int
    logit_bias: Mapping[int, float]
    grammar: str | None
    n_alternatives: int
    best_of: int | None


@dataclass(frozen=True, slots=True, eq=False)
class CompletionRequest:
    """Sequences to be drawn after one prompt.

    Attributes:
        prompt: int32[T], T >= 1, the tokens before the sequences.
        n: Number of sequences.
        seed: Seed of the first one; sequence i has `seed` + i. None for no seeds.
        settings: How they are drawn.
    """

    prompt: IntArray
    n: int
    seed: int | None
    settings: SamplerSettings


@dataclass(frozen=True, slots=True)
class ServedSequence:
    """A sequence that a server drew, as far as it tells it.

    Attributes:
        text: The text without a stop string; None if `tokens` say it.
        tokens: All drawn tokens, those of a stop string and of an end included; None if
            they are not told.
        logp: Log-probability of each token as the model gives it, before any step of
            the sampler; None for one that is not told.
        alternatives: The most probable tokens and their log-probabilities at each step,
            best first, if they were requested.
        n_tokens: Number of drawn tokens.
        finish: "eog", "stop" or "length".
        stop: The stop string that ended it, if it is told.
        stop_token: The token that ended it, if it is told.
    """

    text: str | None
    tokens: tuple[int, ...] | None
    logp: tuple[float | None, ...]
    alternatives: tuple[tuple[tuple[int, float], ...], ...]
    n_tokens: int
    finish: str
    stop: str | None
    stop_token: int | None


@dataclass(frozen=True, slots=True)
class Completed:
    """The sequences of a `CompletionRequest`.

    Attributes:
        sequences: The sequences, in the order of their seeds.
        n_requests: Number of requests that drew them, repetitions not counted.
    """

    sequences: tuple[ServedSequence, ...]
    n_requests: int


@runtime_checkable
class SupportsCompletion(Protocol):
    """A model that draws text with a sampler that is not ours."""

    @property
    def sampler_name(self) -> str:
        """Return what the sampler calls itself, with its version."""
        ...

    @property
    def sampler_address(self) -> str:
        """Return the address of the sampler, for errors."""
        ...

    @property
    def repeats_seeds(self) -> bool:
        """Return whether a seed is worth sending where the caller gave none."""
        ...

    def check_sampler(self, settings: SamplerSettings, seed: int | None) -> None:
        """Raise `ServerOptionError` for what the sampler cannot apply.

        Nothing is asked of the server. `seed` is the last one of the caller.
        """
        ...

    def complete(self, request: CompletionRequest, cancellation: Cancellation) -> Completed:
        """Return sequences that were drawn after a prompt.

        Any thread may call it. Cancelling ends a call that waits.

        Raises:
            DecodeError: If the server failed, after all retries, or its answer cannot
                be right.
            CancelledError: If the call was cancelled.
        """
        ...
