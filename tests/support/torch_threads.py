"""One thread for torch: the machine has few cores, and sums do not depend on how many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch use one thread meanwhile; the tests are skipped without torch."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
