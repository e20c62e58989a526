"""The frozen records users hold. All logp are natural logs; probabilities are over the set given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from selectrie.types import Cost

FORMAT_VERSION = 1
"""Of `to_dict` and `--json`; raised when a field changes its meaning or goes."""


@dataclass(frozen=True, slots=True)
class TokenScore:
    """One token of a path. logp: natural log of its probability given everything before it."""

    id: int
    piece: bytes
    logp: float


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """One choice, scored. Choices a search did not need to finish carry bounds instead of values.

    index: place in the list given. duplicate_of: first index with the same tokens, None for the first itself;
    probabilities sum to one over choices without it.
    logp: raw joint, terminator included, priors not; None where pruned, then logp_upper bounds it from above.
    logp_terminator: the terminator's part of it. score: by the rule, prior included; None where pruned.
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
    logp_terminator: float
    score: float | None
    probability: float | None
    probability_low: float
    probability_high: float
    logp_local: float | None
    tokens: tuple[TokenScore, ...]
    n_chars: int
    n_bytes: int
    boundary_shift: int


@dataclass(frozen=True, slots=True)
class Signature:
    """What a score depends on: equal signatures, equal scores to within the tolerance.

    tolerance: nats a row by which layout can move a log-probability (measured by the self-check); None = not measured.
    rule, terminator, boundary: as used, never "auto". premise: of the rule (pmi, calibrated), digests of its texts.
    """

    model: str
    model_digest: str
    tokenizer_digest: str
    backend: str
    build: str
    processor: str
    precision: str
    tolerance: float | None
    rule: str
    premise: str
    terminator: str
    following_bytes: int
    boundary: str
    version: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """How sure the answer is. proved: no unevaluated choice can be among the first k (exhaustive scoring always proves).

    bound_gap: score of the k-th minus the best bound left open; inf when nothing is open.
    open_mass: upper bound on the probability mass, under the model, of the choices not finished.
    nodes_evaluated of nodes_inner: rows that scored edges, of those exhaustive scoring needs.
    settled: near ties among the first k were decided in the canonical layout (or there were none); False when more
    than 16 choices are within tolerance, or in `fast` precision. n_settled: choices scored again for it.
    method: "exhaustive" or "best_first".
    """

    proved: bool
    bound_gap: float
    open_mass: float
    nodes_evaluated: int
    nodes_inner: int
    settled: bool
    n_settled: int
    method: str


@dataclass(frozen=True, slots=True)
class TrieView:
    """The evaluated trie for reports, parallel tuples over the nodes shown, parents first.

    piece: bytes of the edge's token. logp: of the edge, None where not evaluated. logp_prefix: from the shared context.
    choice: index of the choice that ends here, or None. on_winner, on_greedy: on the joint winner's or the masked-greedy
    path. pruned: below a bound, never evaluated. n_choices: choices at or below; hidden nodes are counted in their ancestors.
    """

    parent: tuple[int, ...]
    piece: tuple[bytes, ...]
    logp: tuple[float | None, ...]
    logp_prefix: tuple[float | None, ...]
    choice: tuple[int | None, ...]
    n_choices: tuple[int, ...]
    on_winner: tuple[bool, ...]
    on_greedy: tuple[bool, ...]
    pruned: tuple[bool, ...]


class Selection:
    """A decision over a set of choices. Frozen; equal when everything but timing is equal.

    text, index: the winner (first by score; exact ties: lowest index, flagged by is_tie). logp, score, probability: its own.
    margin: score of the winner minus the runner-up's (inf with one choice). coverage: probability mass of the whole set
    under the model (a lower bound where a search left choices open). wanted: what the model wanted to say instead, top
    tokens after the shared context with log-probabilities.
    choices: `Sequence[ChoiceScore]` in the caller's order, made on demand. ranked: the same, best first, pruned ones last.
    greedy_index: what masked greedy decoding picks; agrees_with_greedy: is it the winner.
    healed: bytes of the prompt that were encoded again together with the choices.
    log_heal: log-probability of the healed bytes, already taken off every logp; heal_gap: bound on its error (0 = exact).
    trie(limit): a `TrieView` of the heaviest nodes.
    """

    text: str
    index: int
    logp: float
    score: float
    probability: float
    margin: float
    is_tie: bool
    coverage: float
    wanted: tuple[TokenScore, ...]
    greedy_index: int
    agrees_with_greedy: bool
    choices: Sequence[ChoiceScore]
    rule: str
    terminator: str
    healed: bytes
    log_heal: float
    heal_gap: float
    certificate: Certificate
    cost: Cost
    signature: Signature

    @property
    def ranked(self) -> tuple[ChoiceScore, ...]:
        """Best first."""
        raise NotImplementedError

    def top(self, k: int) -> tuple[ChoiceScore, ...]:
        """The first k of `ranked` without building the rest."""
        raise NotImplementedError

    def trie(self, limit: int = 60) -> TrieView:
        """The heaviest `limit` nodes of the evaluated trie."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, object]:
        """JSON-ready: format, winner, choices [{text, logp, score, probability, tokens: [{id, logp, piece}] ...}], rule,
        terminator, coverage, cost, certificate, signature. -inf and inf become None."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class TextScore:
    """A text scored after a prompt. logp: sum over tokens, less log_heal where the boundary was healed."""

    text: str
    logp: float
    tokens: tuple[TokenScore, ...]
    is_greedy: bool
    healed: bytes
    log_heal: float
    heal_gap: float
    cost: Cost
    signature: Signature


@dataclass(frozen=True, slots=True)
class TokenPlan:
    """How a request is cut into tokens, and what will be evaluated; no model call is made.

    context, prompt: tokens as (id, piece); control tokens have piece b"" and `text` spells them. choices: path per choice.
    """

    bos: int | None
    prompt: tuple[tuple[int, str], ...]
    context: tuple[tuple[int, str], ...]
    healed: bytes
    boundary: str
    terminator: str
    choices: tuple[tuple[tuple[int, str], ...], ...]
    boundary_shift: tuple[int, ...]
    n_trie_nodes: int
    rows_prompt: int
    rows_inner: int
    rows_naive: int
    trie: TrieView
