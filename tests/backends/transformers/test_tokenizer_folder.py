"""The vocabulary of a folder with a tokenizer, without weights."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'transformers'")
pytest.importorskip("transformers", reason="needs the extra 'transformers'")

import selectrie
from selectrie.backends.remote.vocabulary import read_tokenizer
from tests.support import checkpoints


def test_a_folder_gives_the_vocabulary_of_its_checkpoint(tmp_path):
    """With the logits that its configuration says, or as many as a server has; the weights need not be there."""
    folder = checkpoints.write(tmp_path / "checkpoint")
    with selectrie.load(folder, n_ctx=64, n_threads=1) as llm:
        own = llm.vocabulary
    (folder / "model.safetensors").unlink()
    found = read_tokenizer(folder)
    assert (found.digest, found.n_tokens) == (own.digest, own.n_tokens)
    assert read_tokenizer(folder, own.n_tokens + 3).n_tokens == own.n_tokens + 3
    for name in ("config.json", "generation_config.json"):
        (folder / name).unlink(missing_ok=True)
    assert read_tokenizer(folder).n_tokens <= own.n_tokens
