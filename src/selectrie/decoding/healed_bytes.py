"""Which tokens of a path spell healed bytes of the prompt alone: those are no part of
its text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from selectrie.core.types import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Healed:
    """The healed bytes that every path spells first. n_bytes: how many. lengths:
    int32[V], bytes of each token."""

    n_bytes: int
    lengths: IntArray

    def after(self, left: int, token: int) -> tuple[int, bool]:
        """How many of them are left after a token, and whether it spells more than
        them."""
        if not left:
            return 0, True
        length = int(self.lengths[token])
        return max(0, left - length), not 0 < length <= left

    def n_text(self, tokens: Iterable[int]) -> int:
        """How many of a path's tokens spell more than healed bytes: what `max_tokens`
        bounds."""
        left, n = self.n_bytes, 0
        for token in tokens:
            left, counts = self.after(left, token)
            n += counts
        return n


NOTHING_HEALED = Healed(0, np.empty(0, dtype=np.int32))
