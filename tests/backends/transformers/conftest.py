"""One thread for torch: the machine has few cores, and sums do not depend on how many."""

from __future__ import annotations

import pytest

from tests.support.torch_threads import one_torch_thread


@pytest.fixture(scope="package", autouse=True)
def _one_thread():
    with one_torch_thread():
        yield
