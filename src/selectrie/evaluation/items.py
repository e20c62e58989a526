"""What is asked of a model in a benchmark, and what was measured: plain frozen records, no model in them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """One question of a benchmark, as text.

    context: what every choice stands behind, shots and description not included; "" = nothing but the model's first token
    (whole sentences). choices: the alternatives as they are written behind the delimiter. gold: places of the right ones, at
    least one, but for a text that is only measured. contexts: of each choice its own context, where that is what differs
    (WinoGrande: the sentence up to and with the option; the choices are then all the same rest); None = `context`.
    shared: text before the context that many items begin with (description and shots); evaluated once. delimiter: between context and
    choice. premise: the context that stands for "no question" in `pmi_dc`; None where the task has none.
    content_free: contexts that say nothing, such as the question "N/A" in the task's format (contextual calibration); `shared`
    stands before them too. id: of the record, or "<task>-<index>". subset: group that is reported on its own (a subject, a paradigm), "" for none.
    """

    context: str
    choices: tuple[str, ...]
    gold: tuple[int, ...] = ()
    id: str = ""
    contexts: tuple[str, ...] | None = None
    shared: str = ""
    delimiter: str = " "
    premise: str | None = None
    content_free: tuple[str, ...] = ()
    subset: str = ""

    def context_of(self, choice: int) -> str:
        """Text before a choice, its delimiter not included."""
        return self.shared + (self.context if self.contexts is None else self.contexts[choice])

    def continuation(self, choice: int) -> str:
        """Text of a choice behind its context, delimiter first."""
        return self.delimiter + self.choices[choice]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one choice. All log-probabilities are natural and sums over its tokens.

    logp: after its context. n_tokens, n_chars, n_bytes: tokens that count, characters and UTF-8 bytes of the choice, delimiter
    not included. is_greedy: each of its tokens was the most probable one. n_words: parts of it between stretches of
    white space. logp_unconditional: after the model's first
    token alone (None: not asked for). logp_premise: after the premise. logp_content_free: after each content-free context.
    """

    logp: float
    n_tokens: int
    n_chars: int
    n_bytes: int
    is_greedy: bool
    n_words: int = 0
    logp_unconditional: float | None = None
    logp_premise: float | None = None
    logp_content_free: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """One item of a run. index: place in the task's data, from 0 on. choices: in the item's order; empty where `problem` says why it
    could not be measured ("too long: 531 tokens, room for 512"). unit: number of the unit of work it was measured in.
    """

    task: str
    index: int
    id: str
    subset: str
    gold: tuple[int, ...]
    choices: tuple[Measured, ...]
    unit: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured beside the log-probability after the context (`metrics.wanted`): without any context, after the
    premise, after the content-free contexts."""

    unconditional: bool = False
    premise: bool = False
    content_free: bool = False
