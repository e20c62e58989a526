"""Defines the result of `Engine.prompt_logprobs`."""

from __future__ import annotations

from dataclasses import dataclass, field

from selectrie.core.types import Cost
from selectrie.options import at_least
from selectrie.results.advice import Advice, notes_advice
from selectrie.results.plain import JsonRecord, listing, tokens_table
from selectrie.results.records import Signature, result_fields

_REPR_ROWS = 12


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
        return sum(one is not None for one in self.logp)

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
        for one in reversed(self.logp[start:stop]):
            total += 0.0 if one is None else one
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
        pairs = zip(self.labels[:_REPR_ROWS], self.logp, strict=False)
        shown = [f"  {label!r}" + ("" if logp is None else f"  logp={logp:.3f}") for label, logp in pairs]
        head = f"PromptLogprobs({len(self)} tokens, {self.n_rows} rows, total_logp={self.total_logp:.4f})"
        return listing(head, shown, len(self))

    def _repr_html_(self) -> str:
        """Return a small table with bars, for notebooks."""
        known = ((label, logp) for label, logp in zip(self.labels, self.logp, strict=True) if logp is not None)
        return tokens_table(known, f"logp {self.total_logp:.4f}")
