"""Where the pieces of the embedded model lie."""

from __future__ import annotations

import hashlib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build" / "tiny_model"
TOKENIZER = BUILD / "tokenizer.json"
CHECKPOINT = BUILD / "checkpoint.pt"
HELD_OUT = REPOSITORY / "tests" / "data" / "held_out"
EMBEDDED = REPOSITORY / "src" / "selectrie" / "assets" / "embedded.gguf"


def corpus_file(course: int) -> Path:
    """Documents of a course, between NUL characters."""
    return BUILD / f"corpus-{course}.txt"


def tokens_file(course: int) -> Path:
    """uint16: tokens of a course, document after document."""
    return BUILD / f"tokens-{course}.npy"


def starts_file(course: int) -> Path:
    """int64: where each document begins among the tokens, and where the last one ends."""
    return BUILD / f"starts-{course}.npy"


def inputs_digest() -> str:
    """Of what a training reads: the tokenizer and the tokens of every course."""
    digest = hashlib.sha256(TOKENIZER.read_bytes())
    for path in sorted([*BUILD.glob("tokens-*.npy"), *BUILD.glob("starts-*.npy")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()
