"""The result of `Engine.prompt_logprobs`: what the model makes of a given text."""

from __future__ import annotations

from dataclasses import dataclass, field

from selectrie.core.types import Cost
from selectrie.options import at_least
from selectrie.results.advice import Advice, notes_advice
from selectrie.results.plain import listing, tokens_table
from selectrie.results.records import Signature, result_fields

_REPR_ROWS = 12


@dataclass(frozen=True, slots=True, repr=False)
class PromptLogprobs:
    """The log-probability of every token of a prompt, given those before it.

    The tuples have one entry for each of the T tokens. `None` stands where no row was
    read: for the first token, which nothing predicts, and for those before the first
    token asked for. The values of one entry come from one row, so a token's own value
    equals its entry in `top` and in `named` bit for bit.

    Equality ignores `cost`, which depends on what is cached.

    Attributes:
        tokens: Ids of the evaluated tokens: ids as they were given, and those of a text
            with BOS before them if the model adds one.
        labels: Text of each token: its bytes, with those that are not UTF-8 replaced,
            or the name of a control token.
        logp: Natural log of each token's probability; -inf if it is impossible.
        is_greedy: Whether each token is the most probable one (ties: the smaller id).
        top: The most probable tokens in place of each token, as pairs of id and
            log-probability, best first (ties: the smaller id first). Impossible tokens
            are left out. Empty tuples if none were asked for.
        named: Log-probability of each of `named_ids` in place of each token.
        named_ids: Ids for which log-probabilities were asked for by name.
        cost: This prompt's share of the model work. A row that prompts of one call
            share counts for the first of them.
        signature: Model, software and options that the values depend on.
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
        """Return the nats by which the layout of calls may move each log-probability.

        None if it was not measured.
        """
        return self.signature.tolerance

    @property
    def total_logp(self) -> float:
        """Return the sum of the log-probabilities that are known.

        It may move by `n_rows` times the tolerance.
        """
        return self.loglikelihood()[0]

    def loglikelihood(self, start: int | None = None, stop: int | None = None) -> tuple[float, bool]:
        """Return the summed log-probability of tokens, and whether all are greedy.

        This is what lm-evaluation-harness calls the log-likelihood of a continuation.
        The sum has the bits of `Engine.loglikelihood_scorer`: it is added from the last
        token to the first.

        Args:
            start: Index of the first token; None for the first that has a value.
            stop: Index behind the last token; None for the end of the prompt.

        Raises:
            OptionError: If one of the tokens has no value, or there is no such token.
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
        """Return what to know before relying on it."""
        return notes_advice(self.notes)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "prompt_logprobs".

        -inf becomes None too.
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
