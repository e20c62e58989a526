"""One thread for torch: the machine has few cores, and sums do not depend on how many."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="package", autouse=True)
def _one_thread():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
