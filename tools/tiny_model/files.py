"""Where the pieces of the embedded model lie."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build" / "tiny_model"
CORPUS = BUILD / "corpus.txt"
TOKENIZER = BUILD / "tokenizer.json"
TOKENS = BUILD / "tokens.npy"
CHECKPOINT = BUILD / "checkpoint.pt"
HELD_OUT = REPOSITORY / "tests" / "data" / "held_out"
EMBEDDED = REPOSITORY / "src" / "selectrie" / "assets" / "embedded.gguf"
