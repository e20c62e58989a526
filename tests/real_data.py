"""Where real weights, labels and texts lie: the only place that reads an environment variable."""

from __future__ import annotations

import os

TEST_DATA = os.environ.get("SELECTRIE_TEST_DATA", "")
"""A folder; "" where there is none. Tests that need it skip by name without it."""
REAL_VOCABULARIES = ("deepseek-coder", "falcon", "gpt-2", "llama-spm", "qwen2", "starcoder")
