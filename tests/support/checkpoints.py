"""Tiny Transformers checkpoints on disk: random weights, and a tokenizer of the suite."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from tests.support.fast_tokenizers import made
from tests.support.transformers_models import make_module

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def write(folder: Path, architecture: str = "llama", *, tokenizer: str = "prepend", **changes: Any) -> Path:
    """Save a model of random weights with a tokenizer of `fast_tokenizers` to a folder.

    `max_shard_size` and a dtype ("torch_dtype") may be among the changes of its configuration.
    """
    size = changes.pop("max_shard_size", "5GB")
    dtype = changes.pop("dtype", None)
    tokens = made(tokenizer)
    vocabulary = len(tokens) + 4
    if "bos_token_id" not in changes:
        changes |= {"bos_token_id": tokens.bos_token_id, "eos_token_id": tokens.eos_token_id}
    module = make_module(architecture, **{"vocab_size": vocabulary, **changes})
    if dtype is not None:
        import torch

        module = module.to(getattr(torch, dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.save_pretrained(folder, max_shard_size=size)
        tokens.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def change_config(folder: Path, **values: Any) -> None:
    """Write entries into its `config.json`; None takes one out."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
