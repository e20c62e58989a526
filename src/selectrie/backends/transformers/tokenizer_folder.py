"""The vocabulary of a folder with a tokenizer of Transformers, without its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selectrie.backends.transformers.checkpoint import CONFIG, GENERATION, read_json
from selectrie.backends.transformers.vocabulary import open_tokenizer, read_vocabulary
from selectrie.core.vocabulary import Vocabulary


def open_vocabulary(folder: Path, n_tokens: int | None = None) -> Vocabulary:
    """Return the vocabulary of a folder, which needs no weights.

    Args:
        folder: The folder.
        n_tokens: Number of logits of the model. None: what `config.json` says, or as
            many as the tokenizer has.

    Raises:
        ModelFileError: If a file is missing or damaged.
        UnsupportedModelError: If the tokenizer is not a fast one, or its tokens have
            no bytes that are known.
    """
    tokenizer = open_tokenizer(folder)
    config, generation = (_json(folder / name) for name in (CONFIG, GENERATION))
    inner = config.get("text_config")
    text: dict[str, Any] = inner if isinstance(inner, dict) else config
    if n_tokens is None:
        said = text.get("vocab_size")
        n_tokens = said if type(said) is int and said > 0 else len(tokenizer)
    ends = generation.get("eos_token_id", config.get("eos_token_id", text.get("eos_token_id")))
    return read_vocabulary(tokenizer, n_tokens=n_tokens, eos_token_ids=_ids(ends), name=str(folder))


def _json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _ids(value: object) -> list[int] | None:
    """Return the ids of a configuration, which has one, a list or none."""
    several = value if isinstance(value, list) else [value]
    return [one for one in several if type(one) is int] or None
