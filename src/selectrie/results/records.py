"""Plain frozen records of an answer: one token, one choice, what the scores depend on, how sure the answer is."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.core.types import Cost, ModelIdentity, SelfCheck
from selectrie.core.vocabulary import Vocabulary
from selectrie.results.cells import tokens_table
from selectrie.results.plain import bytes_fields, number, plain
from selectrie.version import __version__

FORMAT_VERSION = 1
"""Of `to_dict` and `--json`; raised when a field changes its meaning or goes."""

_REPR_ROWS = 12
_REPR_TEXT = 48


@dataclass(frozen=True, slots=True)
class TokenScore:
    """One token of a path. logp: natural log of its probability given everything before it.

    piece: its bytes as text; b"" for a control token, which `spelling` names instead (`<|im_end|>`, "" for others).
    """

    id: int
    piece: bytes
    logp: float
    spelling: str = ""

    @classmethod
    def of(cls, vocabulary: Vocabulary, token: int, logp: float) -> TokenScore:
        """The record of one token of a vocabulary."""
        piece = vocabulary.pieces[token]
        return cls(token, piece, logp, "" if piece else vocabulary.texts[token])

    @property
    def label(self) -> str:
        """The piece as text, bytes that are no UTF-8 replaced, or the spelling of a control token."""
        return self.piece.decode("utf-8", "replace") if self.piece or not self.spelling else self.spelling

    def to_dict(self) -> dict[str, object]:
        """JSON-ready: id, logp, piece; `bytes` where the piece is no UTF-8, `spelling` for a control token."""
        fields: dict[str, object] = {"id": self.id, "logp": number(self.logp), **bytes_fields("piece", self.piece)}
        return {**fields, "spelling": self.spelling} if self.spelling else fields


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """One choice, scored. Choices a search did not need to finish carry bounds instead of values.

    index: place in the list given. duplicate_of: first index with the same tokens, None for the first itself;
    probabilities sum to one over choices without it.
    logp: raw joint, terminator included, priors not; None where pruned, then logp_upper bounds it from above.
    logp_terminator: the terminator's part of it, None where pruned; where a near tie was settled, it and the tokens add up
    to logp within the tolerance only. score: by the rule, prior included; None where pruned.
    probability: of this choice in the set (softmax of scores); between probability_low and probability_high where a
    search left mass open, else equal to both; None where pruned.
    logp_local: log-probability under masked step-by-step choice (mask, renormalise, multiply); None where not evaluated.
    tokens: the path after the shared context, empty where pruned. n_chars, n_bytes: of the choice as given.
    boundary_shift: prompt tokens that its encoding changes.
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

    @property
    def pruned(self) -> bool:
        """Not finished: a bound stands for its score."""
        return self.score is None


@dataclass(frozen=True, slots=True)
class Signature:
    """What a score depends on: equal signatures, equal scores to within the tolerance.

    tolerance: nats a row by which layout moves a log-probability, as the self-check
    measured it; None = not measured. It is a measured bound, four or eight times
    largest_move: nats, of the rows compared. rows_compared: how many. support: the
    share of all rows that move no further than largest_move, at 95 % confidence.
    rule, terminator, boundary: as used, never "auto". premise: of the rule (pmi,
    calibrated), digests of its texts.
    """

    model: str
    model_digest: str
    tokenizer_digest: str
    backend: str
    build: str
    processor: str
    precision: str
    tolerance: float | None
    largest_move: float | None
    rows_compared: int | None
    support: float | None
    rule: str
    premise: str
    terminator: str
    following_bytes: int
    boundary: str
    version: str

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
    ) -> Signature:
        """Of scores of this model, by this version. check: of the model, None where
        nothing was measured."""
        return cls(
            model=identity.name,
            model_digest=identity.digest,
            tokenizer_digest=identity.tokenizer_digest,
            backend=identity.backend,
            build=identity.build,
            processor=identity.processor,
            precision=identity.precision,
            tolerance=None if check is None else check.tolerance,
            largest_move=None if check is None else check.moved,
            rows_compared=None if check is None else check.n_rows,
            support=None if check is None else check.support,
            rule=rule,
            premise=premise,
            terminator=terminator,
            following_bytes=following_bytes,
            boundary=boundary,
            version=__version__,
        )


@dataclass(frozen=True, slots=True)
class Certificate:
    """How sure the answer is. proved: no unevaluated choice can be among the first k
    (exhaustive scoring always proves).

    bound_gap: score of the k-th minus the best bound left open; inf when nothing is
    open.
    open_mass: upper bound on the probability mass, under the model, of the choices not
    finished. nodes_evaluated of nodes_inner: rows that scored edges, of those
    exhaustive scoring needs; None where that is not known (the texts of a grammar).
    settled: near ties among the first k were decided in the canonical layout (or there
    were none); False when scoring them again would take more rows than the request did,
    or in `fast` precision. n_settled: choices scored again for it.
    method: "exhaustive" or "best_first". reason: why the first k are not proved (what
    stays doubtful however long is searched, else what ended the search); "" where they
    are.
    """

    proved: bool
    bound_gap: float
    open_mass: float
    nodes_evaluated: int
    nodes_inner: int | None
    settled: bool
    n_settled: int
    method: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GrammarFacts:
    """What a certificate says of a grammar that was searched, for its texts cannot be listed.

    name, digest: of the grammar. about: what the winner is the best of: "strings" (each text counts with the tokenizer's own
    encoding alone) or "token paths". max_tokens: longest text looked at; any_length: longer ones are proved to be no better.
    n_dead_ends: paths that may neither end nor go on. n_refused: finished paths that are not the tokenizer's own.
    """

    name: str
    digest: str
    about: str
    max_tokens: int
    any_length: bool
    n_dead_ends: int
    n_refused: int


@dataclass(frozen=True, slots=True, repr=False)
class TextScore:
    """A text scored after a prompt. logp: sum over tokens, less log_heal where the boundary was healed.

    tokens: the path after the shared context; the first ones spell `healed` too where it is not empty.
    is_greedy: every token was the most probable one. notes: as of a `Selection`.
    """

    text: str
    logp: float
    tokens: tuple[TokenScore, ...]
    is_greedy: bool
    healed: bytes
    log_heal: float
    heal_gap: float
    cost: Cost
    signature: Signature
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """JSON-ready, with `format` and kind "text_score". -inf, inf and NaN become None."""
        return {
            "format": FORMAT_VERSION,
            "kind": "text_score",
            "text": self.text,
            "logp": number(self.logp),
            "is_greedy": self.is_greedy,
            "tokens": [token.to_dict() for token in self.tokens],
            **bytes_fields("healed", self.healed),
            "log_heal": number(self.log_heal),
            "heal_gap": number(self.heal_gap),
            "cost": plain(self.cost),
            "signature": plain(self.signature),
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    def __repr__(self) -> str:
        shown = [f"  {one.label!r}  logp={one.logp:.3f}" for one in self.tokens[:_REPR_ROWS]]
        rest = len(self.tokens) - len(shown)
        text = self.text if len(self.text) <= _REPR_TEXT else self.text[: _REPR_TEXT - 1] + "…"
        head = f"TextScore({text!r}, logp={self.logp:.4f}, {len(self.tokens)} tokens"
        head += f"{', as greedy decoding' if self.is_greedy else ''})"
        return "\n".join([head, *shown, *([f"  … {rest} more"] if rest else [])])

    def _repr_html_(self) -> str:
        """A small table with bars, for notebooks."""
        greedy = " · what greedy decoding gives" if self.is_greedy else ""
        return tokens_table(((one.label, one.logp) for one in self.tokens), f"logp {self.logp:.4f}{greedy}")
