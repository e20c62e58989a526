"""How many examples a law tries."""

from __future__ import annotations

from hypothesis import settings


def n_examples(number: int) -> int:
    """Return `max_examples` of a law for which `number` stands where others have 64.

    The profiles of `tests/conftest.py` scale it: `make test` tries half of the number,
    and 32 at most, `make test-long` twice as many.
    """
    usual = settings.default.max_examples
    return max(1, (number if usual > 64 else min(number, 64)) * usual // 64)
