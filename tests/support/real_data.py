"""Where real weights, labels and texts lie: the only place that reads an environment variable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

TEST_DATA = os.environ.get("SELECTRIE_TEST_DATA", "")
"""A folder; "" where there is none. Tests that need it skip by name without it."""
REAL_MODELS = os.environ.get("SELECTRIE_REAL_MODELS", "")
"""A folder with the two GGUF files of `REAL_FILES`; "" where there is none."""
REAL_FILES = ("gemma-3-270m-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
UNSET = "SELECTRIE_TEST_DATA is not set"
REAL_VOCABULARIES = ("deepseek-coder", "falcon", "gpt-2", "llama-spm", "qwen2", "starcoder")
MOST_DIFFERENT = ("gpt-2", "llama-spm")
"""A byte-level BPE and a SentencePiece with byte fallback: what tests of every vocabulary
run on in `make test`; the others wait for `make test-long`."""


def most_different(vocabularies: tuple[str, ...]) -> list[Any]:
    """Return the parameters of a test on vocabularies, all but `MOST_DIFFERENT` long."""
    return [pytest.param(one, marks=() if one in MOST_DIFFERENT else pytest.mark.long) for one in vocabularies]


def real_file(name: str) -> Path:
    """Path of a file of the test data, or skip the test by its name."""
    if not TEST_DATA:
        pytest.skip(f"{UNSET} ({name})")
    path = Path(TEST_DATA) / name
    if not path.exists():
        pytest.skip(f"{name} is not in the folder of SELECTRIE_TEST_DATA")
    return path


def real_model(name: str) -> Path:
    """Path of a real model, or skip the test by its name."""
    path = Path(REAL_MODELS, name)
    if not REAL_MODELS or not path.exists():
        pytest.skip(f"{name} is not in a folder that SELECTRIE_REAL_MODELS names")
    return path
