"""The result of sampling: texts of a grammar, drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

from selectrie.core.types import Cost
from selectrie.results.advice import Advice, advice_fields, notes_advice
from selectrie.results.beam import Hypothesis
from selectrie.results.cells import captioned
from selectrie.results.html import texts_html
from selectrie.results.plain import fields_of, listing
from selectrie.results.records import FORMAT_VERSION, Signature

_REPR_ROWS = 8


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Samples(Sequence[Hypothesis]):
    """Texts of a grammar after a prompt, in the order of their seeds.

    Equality ignores `cost`.

    Attributes:
        texts: The texts.
        exact: Whether each was drawn by its probability among all texts of the grammar.
            Else it was drawn token by token among the tokens that may follow, which is
            another distribution.
        about: "strings" if a text counts only with the tokenizer's own encoding, else
            "token paths".
        seed: Seed of the first text.
        max_tokens: Maximum number of tokens of a text; longer texts do not count.
        mass: Estimate of the probability of all texts of the grammar; None if draws are
            not exact.
        mass_low: Exact lower bound of mass; None if draws are not exact.
        mass_high: Exact upper bound of mass; None if draws are not exact.
        n_attempts: Number of walks from the prompt that were made, including those that
            were rejected.
        close_steps: For each text, the random numbers of its seed, counted from 0,
            whose outcome the layout of calls could have changed. A text without such
            numbers depends on its seed alone. None if the tolerance is not measured.
        healed: As in `Selection`.
        log_heal: As in `Selection`, and subtracted from every `logp`. Texts drawn token
            by token keep it in their `logp`, because each spells the healed bytes in
            its own steps; then it is 0.0.
        heal_gap: As in `Selection`.
        grammar: Name of the grammar.
        grammar_digest: Digest of the grammar.
        cost: The model work that the draws took.
        signature: Model, software and options that the scores depend on.
        reason: Why draws that should be exact are not, or "". Texts may be missing
            then.
        notes: As in `Selection`.
    """

    texts: tuple[Hypothesis, ...]
    exact: bool
    about: str
    seed: int
    max_tokens: int
    mass: float | None
    mass_low: float | None
    mass_high: float | None
    n_attempts: int
    close_steps: tuple[tuple[int, ...], ...] | None
    healed: bytes
    log_heal: float
    heal_gap: float
    grammar: str
    grammar_digest: str
    cost: Cost = field(compare=False)
    signature: Signature
    reason: str = ""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Hypothesis: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hypothesis, ...]: ...
    def __getitem__(self, index: int | slice) -> Hypothesis | tuple[Hypothesis, ...]:
        return self.texts[index]

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return what to know before relying on it."""
        return notes_advice(self.notes)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "samples".

        -inf becomes None.
        """
        return {
            "format": FORMAT_VERSION,
            "kind": "samples",
            **fields_of(self, "texts", "exact", "reason", "about", "seed", "max_tokens"),
            **fields_of(self, "mass", "mass_low", "mass_high", "n_attempts", "close_steps"),
            **fields_of(self, "healed", "log_heal", "heal_gap", "grammar", "grammar_digest", "cost", "signature"),
            **({"notes": list(self.notes)} if self.notes else {}),
            **advice_fields(self.warnings),
        }

    def _repr_html_(self) -> str:
        """Return a small table with bars, for notebooks."""
        shown = [(one.text, one.logp, one.complete) for one in self.texts[:_REPR_ROWS]]
        caption = f"{self.grammar} · {len(self)} {'exact' if self.exact else 'local'} draws"
        return texts_html(shown, caption=captioned(caption, self.warnings))

    def __repr__(self) -> str:
        shown = [f"  {one.text!r}  logp={one.logp:.3f}" for one in self.texts[:_REPR_ROWS]]
        head = f"Samples({self.grammar!r}, n={len(self)}, {'exact' if self.exact else 'local'})"
        return listing(head, shown, len(self))
