"""Results as nested lists that are equal only if every bit is."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import numpy as np


def plain(value, *, without=()):
    """The same value as nested lists, with the bits of every number; fields named in `without` are left out."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if is_dataclass(value):
        return type(value).__name__, [
            plain(getattr(value, field.name), without=without) for field in fields(value) if field.name not in without
        ]
    if isinstance(value, dict):
        return [plain(one, without=without) for one in value.items()]
    if isinstance(value, tuple | list):
        return [plain(one, without=without) for one in value]
    return float(value).hex() if isinstance(value, float) else repr(value)
