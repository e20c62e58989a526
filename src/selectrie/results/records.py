"""Defines records of tokens, choices, spellings, signatures and certificates.

A row is partial if only some of its probabilities are known, as from a server that
returns the most probable tokens. Numbers that depend on partial rows have bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selectrie.core.notation import quoted, write_logp, written_tolerance
from selectrie.core.types import Cost, FloatArray, IntArray, ModelIdentity, SelfCheck
from selectrie.core.vocabulary import Vocabulary
from selectrie.results.advice import Advice, notes_advice
from selectrie.results.drawing.shapes import to_html
from selectrie.results.drawing.tokens import TokenText, draw_tokens
from selectrie.results.plain import (
    REPR_CELLS,
    JsonRecord,
    bytes_fields,
    fields_of,
    frame,
    listing,
    number,
    plain,
)
from selectrie.version import __version__

MIN_LOGP = -9999.0
"""Log-probability that the API uses for -inf, because JSON has no infinity."""


def json_logprob(logp: float | None) -> float | None:
    """Return a log-probability for JSON: at least `MIN_LOGP`, and None for NaN."""
    return None if logp is None or math.isnan(logp) else max(logp, MIN_LOGP)


if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Spellings(JsonRecord):
    """The probability of a text, summed over all token sequences that spell it.

    Attributes:
        event: "ends": the tokens spell exactly the text, and an end-of-generation token
            follows. "begins": the bytes of the tokens begin with the text.
        logp_low, logp_high: Proved bounds on the natural log of the probability, given
            the healed bytes, as for `TextScore.logp`. They are exact for the evaluated
            rows, each of which may be off by `Signature.tolerance`.
        canonical_share: Bounds (low, high) on the fraction of the probability that the
            tokenizer's own encoding has.
        proved: Whether the upper bound is at most twice the lower bound.
        reason: Why `proved` is False; "" if it is True.
        log_heal_low, log_heal_high: Bounds on the log-probability of the healed bytes
            over all their spellings; 0 if no bytes were healed.
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
        names = "event logp_low logp_high canonical_share proved reason log_heal_low log_heal_high n_rows"
        return fields_of(self, names)


@dataclass(frozen=True, slots=True)
class ChoiceSpellings(JsonRecord):
    """The probabilities of C choices, each summed over all its spellings.

    Bounds are as in `Spellings`, in the caller's order.

    Attributes:
        event: "ends" or "begins", as in `Spellings`.
        logp_low, logp_high: Bounds on the log-probability of each choice.
        canonical_share: Bounds (low, high) on the fraction of each choice's probability
            that its canonical encoding has.
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
        return fields_of(self, "event logp_low logp_high canonical_share log_heal_low log_heal_high n_rows")


FORMAT_VERSION = 2
"""Format number of `to_dict` and `--json`.

The number is raised when the meaning of a field changes or a field is removed.
Format 1 had the keys `wanted`, `settled` and `n_settled`, now `top_tokens`, `rescored`
and `n_rescored`, and the kinds "draws" and "drawn_choice".
"""


def result_fields(record: object, kind: str, names: str) -> dict[str, object]:
    """Return `format`, `kind` and the fields `names` of a result (see `fields_of`)."""
    return {"format": FORMAT_VERSION, "kind": kind, **fields_of(record, names)}


_REPR_ROWS = 12


@dataclass(frozen=True, slots=True)
class TokenScore(JsonRecord):
    """A token of a path with its log-probability.

    Attributes:
        id: Id of the token.
        piece: The bytes of the token; b"" for a control token.
        logp: Natural log of the token's probability, given all tokens before it.
        spelling: Name of a control token (`<|im_end|>`); "" for others.
    """

    id: int
    piece: bytes
    logp: float
    spelling: str = ""

    @classmethod
    def of(cls, vocabulary: Vocabulary, token: int, logp: float) -> TokenScore:
        """Return the record of one token of a vocabulary."""
        piece = vocabulary.pieces[token]
        return cls(token, piece, logp, "" if piece else vocabulary.texts[token])

    @classmethod
    def along(cls, vocabulary: Vocabulary, tokens: IntArray, logp: FloatArray) -> tuple[TokenScore, ...]:
        """Return the records of several tokens, with their log-probabilities."""
        pieces, texts = vocabulary.pieces, vocabulary.texts
        pairs = zip(tokens.tolist(), logp.tolist(), strict=True)
        return tuple([cls(token, pieces[token], one, "" if pieces[token] else texts[token]) for token, one in pairs])

    @property
    def label(self) -> str:
        """Return the piece as text, or the spelling of a control token.

        Invalid UTF-8 is replaced.
        """
        return self.piece.decode("utf-8", "replace") if self.piece or not self.spelling else self.spelling

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON: id, logp and piece.

        It has `bytes` if the piece is not UTF-8, and `spelling` for a control token.
        """
        fields: dict[str, object] = {"id": self.id, "logp": number(self.logp), **bytes_fields("piece", self.piece)}
        return {**fields, "spelling": self.spelling} if self.spelling else fields


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """A choice with its score.

    A choice is pruned if a search skipped it. It then has bounds instead of values.

    Attributes:
        index: Index in the given list.
        text: The choice as given.
        duplicate_of: Lowest index of the choices with the same tokens; None if that is
            this choice. Probabilities sum to one over the choices with None.
        logp: Raw joint log-probability, with the terminator and without priors; None if
            pruned. A lower bound if rows are partial; otherwise too high by at most
            `heal_gap` of the result. In a best-first search with terminator
            "unless-continued", it may be off by up to 5e-5 nats, because bounds within
            1e-4 of each other count as one value.
        logp_upper: Upper bound of the log-probability; equal to logp if that is a
            value.
        logp_terminator: The terminator's part of logp; a lower bound if logp is one;
            None if pruned, or if logp is -inf and the end was not evaluated. If a near
            tie was rescored, the terminator and the tokens add up to logp only within
            the tolerance.
        score: Score by the rule, computed from `logp`, prior included; None if pruned.
        probability: Probability of this choice in the set (softmax of scores); None if
            pruned. The midpoint of its bounds if they differ.
        probability_low: Lower bound of the probability. It is below `probability` if a
            search left choices open, rows are partial, or the score is a mean that
            depends on `heal_gap`.
        probability_high: Upper bound of the probability, under the same conditions.
        logp_local: Log-probability of masked greedy decoding's distribution: at each
            token, mask and renormalise, then multiply. None if not evaluated or if rows
            are partial.
        tokens: The path after the shared context; empty if pruned.
        n_chars: Number of characters of the choice as given.
        n_bytes: Number of UTF-8 bytes of the choice as given.
        boundary_shift: Number of prompt tokens that the choice's encoding changes.
        logp_lower: Lower bound of the log-probability, with `heal_gap` subtracted, and
            what a search with terminator "unless-continued" leaves open; -inf if
            pruned.
    """

    index: int
    text: str
    duplicate_of: int | None
    logp: float | None
    logp_upper: float
    logp_terminator: float | None
    score: float | None
    probability: float | None
    probability_low: float
    probability_high: float
    logp_local: float | None
    tokens: tuple[TokenScore, ...]
    n_chars: int
    n_bytes: int
    boundary_shift: int
    logp_lower: float

    @property
    def pruned(self) -> bool:
        """Return whether a search skipped the choice, so that only bounds are known."""
        return self.score is None

    @property
    def is_known(self) -> bool:
        """Return whether the log-probability is known exactly."""
        return self.logp_lower == self.logp_upper


@dataclass(frozen=True, slots=True)
class Signature(JsonRecord):
    """The model, the software and the options that determine a score.

    Scores with equal signatures are equal up to the tolerance, because the batching
    of model calls may change the last bits of a row.

    Attributes:
        model: Name of the model.
        model_digest: Digest of the model's weights.
        tokenizer_digest: Digest of the model's vocabulary.
        backend: Name of the back end.
        build: Back end and version.
        processor: The processor.
        precision: "exact" or "fast".
        tolerance: Tolerance of one row in nats. Two texts are a near tie if their
            scores differ by less than the tolerance times the square root of the number
            of rows read for both. None in "fast" precision.
        moved: Root mean square change of a row between batchings, in nats.
        rows_compared: Number of rows on which `moved` was measured; 0 if it is assumed
            from the type of the weights.
        rule: The rule used.
        premise: Digests of the baseline's prompts (rules "pmi" and "calibrated").
        terminator: The terminator used, never "auto".
        following_bytes: Number of bytes of the following text in the paths.
        boundary: The boundary used.
        version: Version of selectrie.
        time: The local time given to the chat template, in ISO 8601; "" if the prompt
            is not a chat or the template does not use the time.
    """

    model: str
    model_digest: str
    tokenizer_digest: str
    backend: str
    build: str
    processor: str
    precision: str
    tolerance: float | None
    moved: float | None
    rows_compared: int | None
    rule: str
    premise: str
    terminator: str
    following_bytes: int
    boundary: str
    version: str
    time: str = ""

    @classmethod
    def of(
        cls,
        identity: ModelIdentity,
        check: SelfCheck | None,
        *,
        rule: str,
        terminator: str,
        boundary: str,
        premise: str = "",
        following_bytes: int = 0,
        time: str = "",
    ) -> Signature:
        """Return the signature of a model's scores, with the installed version.

        `check` is the self-check of the model, or None without one.
        """
        return cls(
            model=identity.name,
            model_digest=identity.digest,
            tokenizer_digest=identity.tokenizer_digest,
            backend=identity.backend,
            build=identity.build,
            processor=identity.processor,
            precision=identity.precision,
            tolerance=None if check is None else check.tolerance,
            moved=None if check is None else check.moved,
            rows_compared=None if check is None else check.n_rows,
            rule=rule,
            premise=premise,
            terminator=terminator,
            following_bytes=following_bytes,
            boundary=boundary,
            version=__version__,
            time=time,
        )

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, without `time` if it is ""."""
        return {name: value for name, value in plain(self).items() if name != "time" or value}


@dataclass(frozen=True, slots=True)
class Certificate:
    """States whether the first k choices are proved to be the best.

    Attributes:
        proved: Whether no choice without a score can be among the first k. Exhaustive
            scoring always proves this on a local model. With a served model or partial
            rows, the scores' bounds and tolerance must also decide the order of the
            first k. The same holds for means that depend on `heal_gap`. A callable rule
            that may depend on `heal_gap` is never proved.
        bound_gap: Lowest score of the first k choices minus the best bound on a choice
            without a score, for every probability that the healed bytes may have. inf
            if all others have a score, no probability, or prior 0; -inf if fewer than k
            choices have a score.
        open_mass: Upper bound on the total probability of the choices without a score.
            For a searched grammar with terminator "none", it bounds the probability
            that the model writes any of them.
        nodes_evaluated: Number of rows read to score edges.
        nodes_inner: Number of rows that exhaustive scoring needs; None if not known
            (the texts of a grammar).
        rescored: Whether near ties among the first k were decided by scoring them again
            in a fixed batching, or there were none. False if scoring them again would
            take more rows than the request did, in "fast" precision, or if a served
            model or partial rows leave near ties.
        n_rescored: Number of choices that were scored again.
        near_margin: Margin between the best two choices below which they are scored
            again, because another batching might change their order. None if
            choices are never scored again, as in "fast" precision.
        method: "exhaustive", "best_first", or "spellings" for sums over all spellings.
        reason: Why the first k are not proved: the event that ended the search, or a
            doubt that even a longer search could not remove. "" if they are proved.
    """

    proved: bool
    bound_gap: float
    open_mass: float
    nodes_evaluated: int
    nodes_inner: int | None
    rescored: bool
    n_rescored: int
    method: str
    reason: str = ""
    near_margin: float | None = None

    @classmethod
    def exhaustive(cls, nodes_evaluated: int, nodes_inner: int) -> Certificate:
        """Return the certificate of choices that were all evaluated."""
        return cls(True, math.inf, 0.0, nodes_evaluated, nodes_inner, False, 0, "exhaustive")  # noqa: FBT003

    @classmethod
    def best_first(
        cls,
        bound_gap: float,
        open_mass: float,
        nodes_evaluated: int,
        nodes_inner: int | None = None,
        *,
        rescored: bool = False,
        reason: str = "",
    ) -> Certificate:
        """Return the certificate of a search; it is proved if `reason` is empty."""
        return cls(not reason, bound_gap, open_mass, nodes_evaluated, nodes_inner, rescored, 0, "best_first", reason)


@dataclass(frozen=True, slots=True)
class GrammarFacts:
    """Facts about the search for the best texts of a grammar.

    Attributes:
        name: Name of the grammar.
        digest: Digest of the grammar.
        about: The paths that were compared: "strings" (each text only by the
            tokenizer's own encoding) or "token paths" (every encoding).
        max_tokens: Maximum number of tokens of the texts that were compared.
        any_length: Whether longer texts are proved to be no better.
        n_dead_ends: Number of paths that can neither end nor continue.
        n_refused: Number of finished paths that are not the tokenizer's own encoding.
    """

    name: str
    digest: str
    about: str
    max_tokens: int
    any_length: bool
    n_dead_ends: int
    n_refused: int


@dataclass(frozen=True, slots=True, repr=False)
class TextScore(JsonRecord):
    """The score of a text after a prompt.

    Attributes:
        text: The text.
        logp: Sum of the tokens' log-probabilities, minus `log_heal`. A lower bound if
            rows are partial; otherwise too high by at most `heal_gap`.
        tokens: The path after the shared context. If `healed` is not empty, the first
            tokens also spell those bytes.
        is_greedy: Whether every token was the most probable one; None if partial rows
            do not show it.
        healed: As in `Selection`.
        log_heal: As in `Selection`.
        heal_gap: As in `Selection`.
        cost: The model work done for the score.
        signature: Model, software and options that determine the score.
        notes: As in `Selection`.
        spellings: The probability over all spellings, with `tokenizations="all"`, else
            None. All other fields are about the tokenizer's own encoding.
        logp_upper: Upper bound of the log-probability if rows are partial or `heal_gap`
            is not 0, else None.
        logp_lower: Lower bound of the log-probability; equal to logp if that is exact.
    """

    text: str
    logp: float
    tokens: tuple[TokenScore, ...]
    is_greedy: bool | None
    healed: bytes
    log_heal: float
    heal_gap: float
    cost: Cost
    signature: Signature
    notes: tuple[str, ...] = ()
    spellings: Spellings | None = None
    logp_upper: float | None = None
    logp_lower: float | None = None

    def __iter__(self) -> Iterator[TokenScore]:
        """Iterate over the tokens."""
        return iter(self.tokens)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "text_score".

        -inf, inf and NaN become None.
        """
        lower = "" if self.logp_lower == self.logp else "logp_lower?"
        names = "text logp is_greedy tokens healed log_heal heal_gap cost signature spellings? logp_upper?"
        return result_fields(self, "text_score", f"{names} {lower} notes? warnings?")

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas data frame with a row for each token (extra `pandas`).

        The columns are id, text and logp.
        """
        return frame(((token.id, token.label, token.logp) for token in self.tokens), "id text logp")

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on this result."""
        one, notes = self.spellings, notes_advice(self.notes)
        if one is None or one.proved:
            return notes
        text = f"the bounds of all spellings are further apart than a factor of 2: {one.reason}"
        return Advice("bounds", text), *notes

    def logp_words(self) -> str:
        """Return the log-probability as text, or its bounds."""
        low = self.logp if self.logp_lower is None else self.logp_lower
        return write_logp(low, written_tolerance(self.signature), self.logp_upper)

    def __repr__(self) -> str:
        tolerance = written_tolerance(self.signature)
        shown = [f"  {token.label!r}  logp {write_logp(token.logp, tolerance)}" for token in self.tokens[:_REPR_ROWS]]
        head = f"TextScore({quoted(self.text, REPR_CELLS)}, logp {self.logp_words()}, {len(self.tokens)} tokens"
        head += f"{', as greedy decoding' if self.is_greedy else ''}"
        if self.spellings is not None:
            logp = write_logp(self.spellings.logp_low, tolerance, self.spellings.logp_high)
            head += f", all spellings: logp {logp} ({self.spellings.event})"
        head += ")"
        return listing(head, shown, len(self.tokens))

    def _repr_html_(self) -> str:
        """Return the tokens, tinted by their probabilities, for notebooks."""
        lines = [f"logp {self.logp_words()}"]
        lines += ["what greedy decoding gives"] if self.is_greedy else []
        drawing = draw_tokens([TokenText(self.tokens)], tolerance=written_tolerance(self.signature))
        return to_html(drawing, before=[*lines, *(f"! {advice}" for advice in self.warnings)])
