"""What the cases of `benchmarks/serving.py` have in common: sizes, the model, percentiles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.workload import generated_model
from selectrie.core.types import SelfCheck
from selectrie.engine.sources import embedded_file


MIN_PAIRS = 30
"""Pairs of `overhead` that even the slowest model has."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each to run.

    Attributes:
        shape: Shape of the random weights, where the model is not the embedded one.
        repeats: Repeats of `state`, `concurrent`, `streams` and `echo`.
        n_starts: Starts of a server, of which the first is not counted if there are
            more.
        n_pairs, pairs_s: Pairs of `overhead` at most, and the seconds that they may
            take. A slow model has fewer, but `MIN_PAIRS` at least.
        n_waiting, n_tries: Requests that fill the server, and tries of one more.
        n_questions, state_tokens: Of `state`.
        n_labels: Options of `labels`.
        n_concurrent, n_streams: Decisions and streams at once.
        stream_tokens: Tokens of a stream.
        echo_tokens: Tokens of the context of `echo`.
        n_clients, seconds: Of `load`, in each of its phases.
        n_asked: Different requests of `load`.
        n_large: Sequences of the large request of `beside`.
        n_ctx: Tokens that the memory of a model holds.
    """

    shape: str = "0.5b"
    repeats: int = 3
    n_starts: int = 6
    n_pairs: int = 1000
    pairs_s: float = 120.0
    n_waiting: int = 256
    n_tries: int = 500
    n_questions: int = 32
    state_tokens: int = 1000
    n_labels: int = 77
    n_concurrent: int = 16
    n_streams: int = 8
    stream_tokens: int = 32
    echo_tokens: int = 500
    n_clients: int = 200
    seconds: float = 60.0
    n_asked: int = 60
    n_large: int = 100
    n_ctx: int = 8192


QUICK = Sizes(
    shape="tiny",
    repeats=1,
    n_starts=1,
    n_pairs=5,
    n_waiting=6,
    n_tries=10,
    n_questions=4,
    state_tokens=100,
    n_labels=8,
    n_concurrent=3,
    n_streams=2,
    stream_tokens=4,
    echo_tokens=60,
    n_clients=8,
    seconds=0.5,
    n_asked=4,
    n_large=4,
    n_ctx=1024,
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the cases run on.

    Attributes:
        shape: Shape of the random weights.
        threads: Threads of the model.
        python: An interpreter that has `llama_cpp.server`; None to look for one.
        model: A GGUF file that is asked in place of random weights and of the embedded
            model.
        checks: The self-check of the model, once it was made in this process.
    """

    shape: str
    threads: int
    python: Path | None = None
    model: Path | None = None
    checks: list[SelfCheck] = field(default_factory=list)

    def path(self) -> Path:
        """Return the model's file; random weights are made if they are missing."""
        return self.model or generated_model(self.shape, "q8_0")

    def small_path(self) -> Path:
        """Return the file of the model that is asked in place of the embedded one."""
        return self.model or embedded_file()

    def spare_threads(self) -> int:
        """Return all threads but one, which the server and its clients have."""
        return max(1, self.threads - 1)


def p95(values: Sequence[float]) -> float:
    """Return the value that 95 % of these do not exceed."""
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def ms(values: Sequence[float], name: str) -> dict[str, float]:
    """Return median and 95 % of seconds in milliseconds, as figures."""
    return {f"{name}_p50_ms": 1000 * median(values), f"{name}_p95_ms": 1000 * p95(values)}


def body_of(text: str, questions: Sequence[dict[str, Any]]) -> bytes:
    """Return the body of a request of `/v1/decisions`."""
    return json.dumps({"input": text, "questions": questions}).encode()
