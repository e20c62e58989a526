"""A choice drawn at random from a scored set, by its probability."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.core.types import Cost
from selectrie.results.advice import Advice
from selectrie.results.plain import no_truth
from selectrie.results.selection import Selection


@dataclass(frozen=True, slots=True, repr=False)
class SampledChoice:
    """A choice drawn from softmax(score / temperature) over a fully scored set.

    Attributes:
        selection: The scored set. Its own `index` is the best choice, which need not be
            the one drawn.
        index: Index of the choice drawn.
        probability: Probability with which it was drawn.
        temperature: The temperature; 0 draws the best.
        seed: Seed that draws the same choice again.
        close: Whether the layout of calls could have changed which choice is drawn;
            None if the tolerance is not measured.
    """

    selection: Selection
    index: int
    probability: float
    temperature: float
    seed: int
    close: bool | None = None

    def __bool__(self) -> bool:
        """Raise `TypeError`: a selection is neither true nor false."""
        raise no_truth(self, "its `.text`")

    @property
    def text(self) -> str:
        """Return the text of the drawn choice, as given."""
        return self.selection.choices.texts[self.index]

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return what to know before relying on the selection."""
        return self.selection.warnings

    @property
    def logp(self) -> float:
        """Return the raw joint log-probability of the drawn choice."""
        return float(self.selection.choices.logp[self.index])

    @property
    def cost(self) -> Cost:
        """Return the cost of scoring the set; the draw itself takes no model call."""
        return self.selection.cost

    def to_dict(self) -> dict[str, object]:
        """Return the selection's dictionary, ready for JSON, as kind "sampled_choice".

        A field "drawn" has the index, text, probability, temperature, seed and `close`.
        """
        return {
            **self.selection.to_dict(),
            "kind": "sampled_choice",
            "drawn": {
                "index": self.index,
                "text": self.text,
                "probability": self.probability,
                "temperature": self.temperature,
                "seed": self.seed,
                "close": self.close,
            },
        }

    def __repr__(self) -> str:
        head = f"SampledChoice({self.text!r}, p={self.probability:.4g}, temperature={self.temperature:g})"
        return f"{head}\n{self.selection!r}"
