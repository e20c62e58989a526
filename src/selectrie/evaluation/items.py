"""What a benchmark asks of a model, and what was measured, as plain frozen records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """One question of a benchmark, as text.

    Attributes:
        context: Text before every choice, without shots and description. With "", only
            the model's first token precedes a choice (whole sentences).
        choices: The alternatives as they are written after the delimiter.
        gold: Indices of the right choices; empty only for a text that is merely
            measured.
        contexts: A context for each choice, where these differ (WinoGrande: the
            sentence up to and including the option, while the choices are all the same
            rest); None means `context`.
        shared: Text before the context with which many items begin (description and
            shots). It is evaluated once.
        delimiter: Text between context and choice.
        premise: The context that means "no question" in `pmi_dc`; None if the task has
            none.
        content_free: Contexts that say nothing, such as the question "N/A" in the
            task's format (contextual calibration). `shared` precedes them too.
        id: That of the record, or "<task>-<index>".
        subset: Group that is reported separately (a subject, a paradigm), "" for none.
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
        """Return the text before a choice, without its delimiter."""
        return self.shared + (self.context if self.contexts is None else self.contexts[choice])

    def continuation(self, choice: int) -> str:
        """Return the text of a choice after its context, delimiter first."""
        return self.delimiter + self.choices[choice]


@dataclass(frozen=True, slots=True)
class ChoiceLoglikelihood:
    """What was measured of one choice.

    All log-probabilities are natural, and sums over the choice's tokens.

    Attributes:
        logp: After its context.
        n_tokens: How many of its tokens count.
        n_chars, n_bytes: Characters and UTF-8 bytes, without the delimiter.
        is_greedy: Whether each of its tokens was the most probable one.
        n_words: Its parts between stretches of white space.
        logp_unconditional: After the model's first token alone; None if not requested.
        logp_premise: After the premise; None if not requested.
        logp_content_free: After each content-free context.
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
    """One item of a run.

    Attributes:
        index: Position in the task's data, from 0.
        choices: In the item's order; empty if `problem` is set.
        unit: Number of the unit of work in which the item was measured.
        problem: Why the item could not be measured ("too long: 531 tokens, room for
            512"), or None.
    """

    task: str
    index: int
    id: str
    subset: str
    gold: tuple[int, ...]
    choices: tuple[ChoiceLoglikelihood, ...]
    unit: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class BaselineNeeds:
    """What to measure besides the log-probability after the context.

    See `metrics.baseline_needs`.

    Attributes:
        unconditional: Without any context.
        premise: After the premise.
        content_free: After the content-free contexts.
    """

    unconditional: bool = False
    premise: bool = False
    content_free: bool = False
