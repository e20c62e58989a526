"""Frozen records of the items of a benchmark, and of their log-likelihoods."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """A question of a benchmark, as text.

    Attributes:
        context: Text before every choice, without shots and description. With "", only
            the model's first token precedes a choice (whole sentences).
        choices: The alternatives as they are written after the delimiter.
        gold: Indices of the right choices; empty only for a text without alternatives.
        contexts: A context for each choice, if these differ; None means `context` for
            all. (WinoGrande: the sentence up to and including the option, where all
            choices are the same rest of it.)
        shared: Text before the context with which many items begin (description and
            shots). It is evaluated once.
        delimiter: Text between context and choice.
        premise: A context without the question, for the metric `pmi_dc`; None if the
            task has none.
        content_free: Contexts without content, such as the question "N/A" in the task's
            format (contextual calibration). `shared` precedes them too.
        id: Id of the item: that of the record, or "<task>-<index>".
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
        """Return the text before a choice, without the delimiter."""
        return self.shared + (self.context if self.contexts is None else self.contexts[choice])

    def continuation(self, choice: int) -> str:
        """Return the delimiter and the text of a choice."""
        return self.delimiter + self.choices[choice]


@dataclass(frozen=True, slots=True)
class ChoiceLoglikelihood:
    """The log-likelihoods of one choice, and its lengths.

    All log-likelihoods are natural logarithms, summed over the choice's tokens.

    Attributes:
        logp: Log-likelihood after the choice's context.
        n_tokens: Number of tokens that are scored.
        n_chars, n_bytes: Number of characters and UTF-8 bytes, without the delimiter.
        is_greedy: Whether each of its tokens was the most probable one.
        n_words: Number of words, separated by white space.
        logp_unconditional: Log-likelihood after the model's first token alone; None if
            not requested.
        logp_premise: Log-likelihood after the premise; None if not requested.
        logp_content_free: Log-likelihood after each content-free context.
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
    """An item of a run with the log-likelihoods of its choices.

    Attributes:
        task: Name of the task.
        index: Position in the task's data, from 0.
        id, subset, gold: The item's id, subset and right choices.
        choices: The choices in the item's order; empty if `problem` is set.
        unit: Number of the unit in which the item was measured.
        problem: Reason why the item could not be measured ("too long: 531 tokens, room
            for 512"), or None.
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
    """The contexts, besides the item's own, after which choices are measured.

    See `metrics.baseline_needs`.

    Attributes:
        unconditional: Whether to measure choices without any context.
        premise: Whether to measure choices after the premise.
        content_free: Whether to measure choices after the content-free contexts.
    """

    unconditional: bool = False
    premise: bool = False
    content_free: bool = False
