"""Short forms of the arrays that calls of the model port take."""

from __future__ import annotations

import numpy as np

from selectrie.core.types import BoolArray, IntArray


def ints(*values: int) -> IntArray:
    """These numbers as int32."""
    return np.array(values, dtype=np.int32)


def every(n: int) -> BoolArray:
    """True for each of n elements."""
    return np.ones(n, dtype=np.bool_)
