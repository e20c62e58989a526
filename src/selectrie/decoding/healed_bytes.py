"""Tells which tokens of a path spell only healed bytes of the prompt.

Such tokens are not part of the path's text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from selectrie.core.types import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Healed:
    """The number of healed bytes, which every path spells first, and token lengths.

    Attributes:
        n_bytes: The number of healed bytes.
        lengths: int32[V], the number of bytes of each token.
    """

    n_bytes: int
    lengths: IntArray

    def after(self, left: int, token: int) -> tuple[int, bool]:
        """Return the number of healed bytes left after `token`, and whether it is text.

        `left` are left before it. A token counts as text unless it spells only such
        bytes.
        """
        if not left:
            return 0, True
        length = int(self.lengths[token])
        return max(0, left - length), not 0 < length <= left

    def n_text(self, tokens: Iterable[int]) -> int:
        """Return how many tokens of a path spell more than healed bytes.

        This is the number that `max_tokens` bounds.
        """
        left, n = self.n_bytes, 0
        for token in tokens:
            left, counts = self.after(left, token)
            n += counts
        return n


NOTHING_HEALED = Healed(0, np.empty(0, dtype=np.int32))
