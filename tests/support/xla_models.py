"""Tiny Transformers models with random weights, compiled by XLA, and programs that fail when they are told to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from selectrie.backends.xla.model import XlaModel
from selectrie.backends.xla.opening import open_module
from selectrie.backends.xla.options import XlaOptions
from selectrie.core.types import BatchSizes
from selectrie.testing import numbered_vocabulary
from tests.support.transformers_models import N_TOKENS

SECONDS = {24: 9.0, 4: 2.5, 1: 1.0}
"""Rows of the programs of `opened`, and what is said of their seconds: 20 rows are padded, 10 rows are split."""


def opened(module: Any, *, name: str = "tiny", seconds: dict[int, float] | None = None, **options: Any) -> XlaModel:
    """The module behind the port, with 96 nodes where nothing else is said.

    Its calls are split by `seconds`, or those of `SECONDS`: what is measured differs from run to run.
    """
    seconds = seconds or SECONDS
    chosen = XlaOptions(**{"n_ctx": 96, "buckets": tuple(seconds), **options})
    model = open_module(module, numbered_vocabulary(N_TOKENS), chosen, name=name)
    model.source.bodies = model.source.heads = BatchSizes.fixed(seconds)
    return model


@contextmanager
def programs_run(model: XlaModel, before: Callable[[int], None] = lambda _i: None) -> Iterator[list[tuple[str, int]]]:
    """The kind and size of each program that runs meanwhile; `before` is told its number, and may raise for it."""
    programs, seen = model.source.programs, []
    run = programs._run

    def watched(program: Any, arguments: tuple[Any, ...]) -> Any:
        kind, rows = ("head", arguments[1]) if len(arguments) == 2 else ("body", arguments[2])
        seen.append((kind, len(rows)))

        def told(*given: Any) -> Any:
            before(len(seen) - 1)
            return program(*given)

        return run(told, arguments)

    programs._run = watched  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        del programs._run


def fail_next(model: XlaModel) -> None:
    """Let the next program fail."""
    programs = model.source.programs

    def fail(*_given: Any) -> None:
        raise RuntimeError("told to fail")

    def once(_program: Any, arguments: tuple[Any, ...]) -> Any:
        del programs._run
        return programs._run(fail, arguments)

    programs._run = once  # type: ignore[method-assign]
