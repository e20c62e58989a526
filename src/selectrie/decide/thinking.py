"""The options of thinking before an answer, and the record of what was thought."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from selectrie.errors import OptionError
from selectrie.options import DEFAULT_SAMPLING, SamplingParams
from selectrie.options import seed as as_seed
from selectrie.options.arguments import named_fields
from selectrie.options.checks import Bounds, at_least, check_options, flag, option, record, text

MAX_RATIONALES = 64
"""Maximum number of rationales of an answer."""


@named_fields
@dataclass(frozen=True, slots=True)
class Thinking:
    r"""Options of rationales that the model writes before its options are scored.

    The answer is the mean of the posteriors behind n rationales, which are drawn in
    parallel. Without `start` and `stop`, a rationale stands in the block of thinking of
    the model's chat template, such as `<think>`.

    Attributes:
        n: Number of rationales, at most 64.
        max_tokens: Maximum number of tokens of a rationale. A longer one is cut.
        start: Text before each rationale, with which the model's turn begins.
        stop: Text that ends a rationale and stands between it and the answer, such as
            "\nAnswer: ". It is written behind a rationale that ends without it, too.
        seed: Rationale i has seed + i, whatever the state and question. None takes one
            from the system.
        shared: Whether the rationales are written once for all questions of a call,
            behind a prompt that lists all of them.
        sampling: How tokens of a rationale are drawn.
    """

    n: int = 4
    max_tokens: int = option(300, Bounds(1))
    start: str | None = None
    stop: str | None = None
    seed: int | None = None
    shared: bool = False
    sampling: SamplingParams = DEFAULT_SAMPLING

    def __post_init__(self) -> None:
        at_least("n", self.n, 1, max_value=MAX_RATIONALES, optional=False)
        check_options(self)
        text("start", self.start, optional=True)
        text("stop", self.stop, optional=True)
        if self.stop == "" or (self.start is not None and self.stop is None):
            raise OptionError("stop", self.stop, "the text that ends a rationale, such as '\\nAnswer: '")
        object.__setattr__(self, "seed", as_seed("seed", self.seed, self.n))
        flag("shared", self.shared)
        record("sampling", self.sampling, SamplingParams)

    def describe(self) -> str:
        """Return the options that determine the distribution of answers, as JSON."""
        options = {name: value for name, value in self._plain().items() if name != "seed"}
        return json.dumps({**options, **self._changed_sampling()}, default=dict)

    def to_dict(self) -> dict[str, object]:
        """Return the options as JSON data, which `from_dict` reads."""
        sampling = self._changed_sampling()
        biases = {"logit_bias": [*self.sampling.logit_bias.items()]} if "logit_bias" in sampling else {}
        return {**self._plain(), "sampling": {**sampling, **biases}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Thinking:
        """Return the options that `to_dict` wrote."""
        sampling = {**data["sampling"], "logit_bias": dict(data["sampling"].get("logit_bias", ()))}
        return cls(**{**data, "sampling": SamplingParams(**sampling)})

    def _plain(self) -> dict[str, Any]:
        """Return the options except `sampling`, by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "sampling"}

    def _changed_sampling(self) -> dict[str, Any]:
        """Return the options of `sampling` that differ from the default, by name."""
        sampling = {one.name: getattr(self.sampling, one.name) for one in fields(SamplingParams)}
        return {name: value for name, value in sampling.items() if value != getattr(DEFAULT_SAMPLING, name)}


@dataclass(frozen=True, slots=True)
class Rationales:
    """What a model wrote before it answered.

    Attributes:
        texts: The rationales, without `start` and `stop`.
        n_cut: Number of rationales that `max_tokens` cut.
        spread: Standard deviation (ddof 1) of the probability of the answer's value
            over the rationales; 0 for one.
        seed: Seed of the first rationale; None if a server drew them without one.
    """

    texts: tuple[str, ...]
    n_cut: int
    spread: float
    seed: int | None


def spread_of_winner(probabilities: Sequence[float]) -> float:
    """Return the standard deviation (ddof 1) of probabilities; 0 for one."""
    return 0.0 if len(probabilities) == 1 else float(statistics.stdev(probabilities))
