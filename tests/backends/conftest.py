"""Models of every kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.llama_work import KINDS


@pytest.fixture(scope="session")
def model_of(weights: Callable[[str], Path], tiny_model: Callable[..., Path]) -> Callable[[str], Path]:
    """`model_of("hybrid")`: a file of this kind, from the test data where they are there, generated where not."""

    def path(kind: str) -> Path:
        try:
            return weights(KINDS[kind].file)
        except pytest.skip.Exception:
            return tiny_model("f32", shape=KINDS[kind].shape)

    return path
