"""How many examples a law tries."""

from __future__ import annotations

from hypothesis import settings


def n_examples(number: int) -> int:
    """Return `max_examples` of a law for which `number` stands where others have 64.

    The profiles of `tests/conftest.py` scale it: `make test` tries half of the number,
    `make test-long` twice as many.
    """
    return max(1, number * settings.default.max_examples // 64)
