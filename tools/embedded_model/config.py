"""Sizes and special tokens of the embedded model: what training, export and tests have in common."""

from __future__ import annotations

from dataclasses import dataclass

BEGIN, END_OF_TEXT, TURN_BEGIN, TURN_END = "<|begin|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (BEGIN, END_OF_TEXT, TURN_BEGIN, TURN_END)


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes. Embedding and output share one matrix; keys and values have as many heads as queries."""

    n_vocab: int = 3584
    n_embd: int = 256
    n_layer: int = 4
    n_head: int = 4
    n_ff: int = 512
    n_ctx: int = 1024
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5
