"""Transformers modules for benchmarks: random weights of a shape, real small ones where there are any.

Nothing here imports torch or transformers before it is needed: a benchmark says by name that they are missing.
"""

from __future__ import annotations

import copy
import importlib.util
import os
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from benchmarks.workload import data_file
from selectrie.core.vocabulary import Vocabulary
from selectrie.testing import numbered_vocabulary

EXTRA = "transformers"
"""The extra of selectrie that installs the packages below."""
PACKAGES = ("torch", "transformers", "tokenizers")
SHAPES: dict[str, dict[str, int]] = {
    "tiny": {
        "vocab_size": 200,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "32m": {
        "vocab_size": 16_000,
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
    },
    "0.5b-4-layers": {
        "vocab_size": 32_000,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 4,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
}
"""Arguments of the config of a Qwen2 model, by name; the last is a 0.5B model with four of its 24 layers."""
STORIES = "stories260K"
_STORIES_FOLDER = "weights/stories260K-hf"


@dataclass(frozen=True, slots=True)
class Source:
    """A module as Transformers made it, and what its token ids mean."""

    module: Any
    vocabulary: Vocabulary

    def another(self) -> Any:
        """Return a copy of the module, weights included: one that is open cannot be called by others."""
        return copy.deepcopy(self.module)


def missing_packages() -> list[str]:
    """Return which packages of the extra are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def skipped() -> dict[str, str]:
    """Return the figure that a benchmark reports where packages are missing."""
    return {EXTRA: f"skipped: {', '.join(missing_packages())} not installed (extra {EXTRA})"}


def versions() -> dict[str, str]:
    """Return the versions that figures depend on."""
    return {name: version(name) for name in ("torch", "transformers")}


def set_threads(n_threads: int) -> None:
    """Let torch use so many threads, and Transformers say nothing of its own accord."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import torch

    torch.set_num_threads(n_threads)


def has_stories() -> bool:
    """Return whether the test data have stories260K as a folder of Transformers."""
    return data_file(_STORIES_FOLDER) is not None


def open_source(shape: str, dtype: str = "float32", n_positions: int = 4096) -> Source:
    """Return the module of a shape with random weights, or stories260K with its own.

    n_positions: positions of a random model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    if shape == STORIES:
        from selectrie.backends.transformers.vocabulary import read_vocabulary

        folder = data_file(_STORIES_FOLDER)
        if folder is None:
            raise SystemExit(f"{STORIES}: set SELECTRIE_TEST_DATA to a folder that has {_STORIES_FOLDER}")
        module = AutoModelForCausalLM.from_pretrained(str(folder), dtype=getattr(torch, dtype)).eval()
        tokenizer = AutoTokenizer.from_pretrained(str(folder))
        return Source(module, read_vocabulary(tokenizer, n_tokens=module.config.vocab_size, name=STORIES))
    config = AutoConfig.for_model(
        "qwen2",
        **SHAPES[shape],
        max_position_embeddings=n_positions,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval()
    return Source(module, numbered_vocabulary(config.vocab_size))
