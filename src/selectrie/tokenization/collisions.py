"""Finds choices that differ as given but are the same to the model, or a reader."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from selectrie.tokenization.records import EncodedChoices


@dataclass(frozen=True, slots=True)
class Collision:
    """Two different choices that the model, or a reader, cannot tell apart.

    Attributes:
        first: Index of the first choice.
        other: Index of the other choice; first < other.
        kind: "tokens" (the tokenizer makes the same tokens of both, so no score can
            distinguish them) or "canonical" (equal after Unicode's canonical
            composition: they look the same, but their tokens differ).
    """

    first: int
    other: int
    kind: str


def collisions(choices: Sequence[str], encoded: EncodedChoices) -> tuple[Collision, ...]:
    """Return pairs of different strings with equal tokens or equal NFC forms.

    Each choice is paired with the first one like it. Equal strings do not collide. This
    only reports; the choices themselves are never normalised.
    """
    tokens, offsets = encoded.tokens, encoded.offsets.tolist()
    by_path: dict[bytes, int] = {}
    by_form: dict[str, int] = {}
    pairs = []
    for i, choice in enumerate(choices):
        twin = by_path.setdefault(tokens[offsets[i] : offsets[i + 1]].tobytes(), i)
        form = choice if choice.isascii() else unicodedata.normalize("NFC", choice)
        likeness = by_form.setdefault(form, i)
        if choices[twin] != choice:
            pairs.append(Collision(twin, i, "tokens"))
        elif choices[likeness] != choice:
            pairs.append(Collision(likeness, i, "canonical"))
    return tuple(pairs)
