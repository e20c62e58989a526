"""Paths of the files of the embedded model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build" / "embedded_model"
TOKENIZER = BUILD / "tokenizer.json"
CHECKPOINT = BUILD / "checkpoint.pt"
LAST_CHECKPOINT = BUILD / "checkpoint-last.pt"
EARLIER = BUILD / "three_courses.gguf"
"""The model before the last courses, which training goes on from."""
HELD_OUT = REPOSITORY / "tests" / "data" / "held_out"
EMBEDDED = REPOSITORY / "src" / "selectrie" / "assets" / "embedded.gguf"


def corpus_file(course: int) -> Path:
    """Return the path of the documents of a course, which NUL characters separate."""
    return BUILD / f"corpus-{course}.txt"


def token_files(course: int) -> tuple[Path, Path, Path]:
    """Return the paths of the tokens of a course.

    The files hold: uint16 tokens, document after document; bool, which of them belong
    to answers; int64, where each document begins among them, and where the last one
    ends.
    """
    return BUILD / f"tokens-{course}.npy", BUILD / f"answers-{course}.npy", BUILD / f"starts-{course}.npy"


def inputs_digest(courses: Iterable[int], start: Path | None = None) -> str:
    """Return the digest of what a training reads: the tokenizer, the tokens of its
    courses and the model that it starts from.
    """
    digest = hashlib.sha256(TOKENIZER.read_bytes())
    for path in [*sorted(path for course in courses for path in token_files(course)), *([start] if start else [])]:
        digest.update(path.read_bytes())
    return digest.hexdigest()
