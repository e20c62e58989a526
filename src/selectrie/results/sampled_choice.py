"""One of a set of choices, drawn at random by its probability."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.core.types import Cost
from selectrie.results.selection import Selection


@dataclass(frozen=True, slots=True, repr=False)
class DrawnChoice:
    """A choice drawn from softmax(score / temperature) over a set of which every choice
    was scored.

    selection: the whole set; its own `index` is the best, which need not be the one
    drawn. index: the choice drawn.
    probability: by which this one was drawn. temperature: 0 draws the best. seed: draws
    the same one again.
    close: the layout of the work could have changed which one is drawn; None where the
    tolerance is not measured.
    """

    selection: Selection
    index: int
    probability: float
    temperature: float
    seed: int
    close: bool | None = None

    @property
    def text(self) -> str:
        """The choice drawn, as given."""
        return self.selection.choices.texts[self.index]

    @property
    def logp(self) -> float:
        """Raw joint log-probability of the choice drawn."""
        return float(self.selection.choices.logp[self.index])

    @property
    def cost(self) -> Cost:
        """Of scoring the set; the draw itself takes no model call."""
        return self.selection.cost

    def to_dict(self) -> dict[str, object]:
        """JSON-ready: that of the selection, with kind "drawn_choice" and a field
        "drawn": index, text, probability, temperature, seed, close."""
        return {
            **self.selection.to_dict(),
            "kind": "drawn_choice",
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
        head = f"DrawnChoice({self.text!r}, p={self.probability:.4g}, temperature={self.temperature:g})"
        return f"{head}\n{self.selection!r}"
