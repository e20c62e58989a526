"""Frozen records of a text's probability over all token sequences that spell it."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.results.plain import fields_of


@dataclass(frozen=True, slots=True)
class Spellings:
    """The probability of a text, summed over all token sequences that spell it.

    Attributes:
        event: "ends": the tokens spell exactly the text, and an end-of-generation token
            follows. "begins": the bytes of the tokens begin with the text.
        logp_low, logp_high: Proved bounds on the natural log of the probability,
            conditional on the healed bytes as `TextScore.logp` is. They hold for the
            rows as they were read; `Signature.tolerance` says by how much the layout of
            calls may move each.
        canonical_share: Bounds (low, high) on the share that the tokenizer's own
            encoding has of the probability.
        proved: Whether the upper bound is at most twice the lower one.
        reason: Why it is not; "" if it is.
        log_heal_low, log_heal_high: Bounds on the log-probability of the healed bytes
            over all their spellings; 0 if nothing was healed.
        n_rows: Number of rows that were read for the bounds.
    """

    event: str
    logp_low: float
    logp_high: float
    canonical_share: tuple[float, float]
    proved: bool
    reason: str
    log_heal_low: float
    log_heal_high: float
    n_rows: int

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON; infinities and NaN become None."""
        return {
            **fields_of(self, "event", "logp_low", "logp_high", "canonical_share", "proved", "reason"),
            **fields_of(self, "log_heal_low", "log_heal_high", "n_rows"),
        }


@dataclass(frozen=True, slots=True)
class ChoiceSpellings:
    """The probabilities of C choices, each summed over all its spellings.

    Bounds are as in `Spellings`, in the caller's order.

    Attributes:
        event: "ends" or "begins", as in `Spellings`.
        logp_low, logp_high: Bounds on the log-probability of each choice.
        canonical_share: Bounds (low, high) on the share of each choice's canonical
            encoding.
        log_heal_low, log_heal_high: Bounds on the log-probability of the healed bytes.
        n_rows: Number of rows that were read for the bounds.
    """

    event: str
    logp_low: tuple[float, ...]
    logp_high: tuple[float, ...]
    canonical_share: tuple[tuple[float, float], ...]
    log_heal_low: float
    log_heal_high: float
    n_rows: int

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON; infinities and NaN become None."""
        names = ("event", "logp_low", "logp_high", "canonical_share", "log_heal_low", "log_heal_high", "n_rows")
        return fields_of(self, *names)
