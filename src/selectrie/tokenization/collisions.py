"""Choices that differ as given and are the same to the model, or to a reader."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from selectrie.tokenization.records import EncodedChoices


@dataclass(frozen=True, slots=True)
class Collision:
    """Two different choices that a caller may have meant to be one, or to be told apart.

    first, other: their indices, first < other. kind: "tokens" (the tokenizer makes the same tokens of both, so no score
    can tell them apart) or "canonical" (equal after Unicode's canonical composition: they look the same, their tokens differ).
    """

    first: int
    other: int
    kind: str


def collisions(choices: Sequence[str], encoded: EncodedChoices) -> tuple[Collision, ...]:
    """Pairs of different strings with equal tokens, or canonically equal (NFC), each with the first one like it.

    Equal strings are no collision. Choices are never normalised: this only tells.
    """
    tokens, offsets = encoded.tokens, encoded.offsets.tolist()
    by_path: dict[bytes, int] = {}
    by_form: dict[str, int] = {}
    found = []
    for i, choice in enumerate(choices):
        twin = by_path.setdefault(tokens[offsets[i] : offsets[i + 1]].tobytes(), i)
        form = choice if choice.isascii() else unicodedata.normalize("NFC", choice)
        likeness = by_form.setdefault(form, i)
        if choices[twin] != choice:
            found.append(Collision(twin, i, "tokens"))
        elif choices[likeness] != choice:
            found.append(Collision(likeness, i, "canonical"))
    return tuple(found)
