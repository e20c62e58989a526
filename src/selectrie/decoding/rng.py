"""Random numbers that depend only on a seed and a step."""

from __future__ import annotations

import numpy as np

from selectrie.errors import OptionError


def uniform(seed: int, step: int) -> float:
    """Return a number in [0, 1), a multiple of 2**-53, for a seed and a step.

    It is made from the first word of block `step` + 1 of the counter-based generator
    Philox4x64-10 under the key `seed` (Salmon, Moraes, Dror and Shaw, "Parallel random
    numbers: as easy as 1, 2, 3", SC 2011). Any step can thus be drawn without those
    before it. Raises `OptionError` for a seed below 0 or of more than 128 bits.
    """
    if isinstance(seed, bool) or not 0 <= seed < 1 << 128:
        raise OptionError("seed", seed, "a whole number from 0 to 2**128 - 1")
    word = int(np.random.Philox(key=int(seed), counter=step).random_raw())
    return (word >> 11) * 2.0**-53
