"""Sampling options that a checkpoint's publisher recommends."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="needs the extra 'transformers'")

import selectrie
from tests.support import checkpoints


def test_options_of_a_checkpoint_are_in_its_generation_config(tmp_path):
    """`generation_config.json`, where a null and fields of other kinds say nothing."""
    folder = checkpoints.write(tmp_path / "checkpoint")
    config = {
        "do_sample": True,
        "temperature": 0.25,
        "top_k": None,
        "typical_p": 0.5,
        "repetition_penalty": 1.5,
        "max_length": 9,
    }
    (folder / "generation_config.json").write_text(json.dumps(config))
    with selectrie.load(folder, n_ctx=64, n_threads=1) as llm:
        assert llm.stored_sampling == {"temperature": 0.25, "typical_p": 0.5, "repeat_penalty": 1.5}
    (folder / "generation_config.json").unlink()
    with selectrie.load(folder, n_ctx=64, n_threads=1) as llm:
        assert llm.stored_sampling == {}
