"""Where real weights, labels and texts lie: the only place that reads an environment variable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TEST_DATA = os.environ.get("SELECTRIE_TEST_DATA", "")
"""A folder; "" where there is none. Tests that need it skip by name without it."""
UNSET = "SELECTRIE_TEST_DATA is not set"
REAL_VOCABULARIES = ("deepseek-coder", "falcon", "gpt-2", "llama-spm", "qwen2", "starcoder")

MODELS = os.environ.get("SELECTRIE_REAL_MODELS", "")
"""A folder of GGUF files; "" where there is none. Tests that need one skip by name."""
REAL_MODELS = ("gemma-3-270m-q4_k_m", "qwen2.5-coder-0.5b-instruct-q4_k_m")


def real_model(name: str) -> Path:
    """Path of a real model, or skip the test by its name."""
    path = Path(MODELS) / f"{name}.gguf"
    if not MODELS or not path.exists():
        pytest.skip(f"{path.name} is not in the folder of SELECTRIE_REAL_MODELS")
    return path


def real_file(name: str) -> Path:
    """Path of a file of the test data, or skip the test by its name."""
    if not TEST_DATA:
        pytest.skip(f"{UNSET} ({name})")
    path = Path(TEST_DATA) / name
    if not path.exists():
        pytest.skip(f"{name} is not in the folder of SELECTRIE_TEST_DATA")
    return path
