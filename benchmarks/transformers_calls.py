"""Does a call for a tree cost what a plain forward of as many rows does? `python benchmarks/transformers_calls.py`.

Random weights of a 0.5B shape, four of its layers (float32), on the processor. Times of both ways are taken in turn in one
process, on copies of one module; figures are medians:

- plain: the module's own forward of a run of rows below a context, with a `DynamicCache`
- fast, exact: `TransformersModel.extend` of a tree of as many rows below the same context, in these precisions: half of them
  below its end, the rest below those

All compute the logits of the last 8 rows. Where fewer are wanted `exact` computes 8 all the same: with one wanted of 8 rows a
call took 1.23 times as long as a plain forward, since here a large vocabulary stands above four layers.

Python: what a call of 128 rows below 128 different nodes takes outside the module's forward, at depth 128 and at depth 4096.
`--quick` looks at a tiny model and checks nothing. Without the packages of the extra `transformers` nothing is measured.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks._common import NO_TARGETS, Figures, Targets, arguments, refuse_under_load, report
from benchmarks.modules import missing_packages, open_source, set_threads, skipped, versions
from selectrie.core.model import Model, chain
from selectrie.core.types import ROOT, IntArray, Precision

N_WANTED = 8
"""Rows of a call whose logits are computed, the last ones; `exact` fills them up to a multiple of this."""
PRECISIONS = (Precision.FAST.value, Precision.EXACT.value)
MAX_OVER_PLAIN = 1.15
MAX_PYTHON_MS = (2.0, 4.0)
"""Bounds of the milliseconds outside the forward, by the depth of `Sizes.python_depths`."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows of the calls, and tokens of the contexts below which they stand."""

    rows: tuple[int, ...] = (8, 32, 128)
    contexts: tuple[int, ...] = (128, 2048)
    python_rows: int = 128
    python_depths: tuple[int, ...] = (128, 4096)
    shape: str = "0.5b-4-layers"

    @property
    def n_ctx(self) -> int:
        """Return the number of tokens that the longest context and its rows take."""
        return max(*self.contexts, *self.python_depths) + 2 * max(*self.rows, self.python_rows)


QUICK = Sizes(rows=(8, 16), contexts=(16, 48), python_rows=16, python_depths=(16, 64), shape="tiny")


@dataclass(slots=True)
class Plain:
    """The module's own forward after a context that grows."""

    module: Any
    n_context: int = 0
    cache: Any = field(init=False)

    def __post_init__(self) -> None:
        from transformers import DynamicCache

        self.cache = DynamicCache(config=self.module.config)

    def extend_to(self, text: IntArray) -> None:
        """Evaluate what the context does not hold of a text."""
        while self.n_context < len(text):
            part = text[self.n_context : self.n_context + 512]
            self._forward(part)
            self.n_context += len(part)

    def call(self, tokens: IntArray) -> float:
        """Return the seconds of a forward of these tokens, which are then dropped."""
        start = time.perf_counter()
        self._forward(tokens)
        seconds = time.perf_counter() - start
        self.cache.crop(-len(tokens))
        return seconds

    def _forward(self, tokens: IntArray) -> None:
        import torch

        from selectrie.backends.transformers.module import cache_argument

        with torch.inference_mode():
            ids = torch.from_numpy(tokens.astype(np.int64))[None]
            given = {cache_argument(self.module): self.cache}
            self.module(input_ids=ids, use_cache=True, logits_to_keep=N_WANTED, **given)


@dataclass(slots=True)
class Tree:
    """A model of ours after a context that grows."""

    model: Model
    n_context: int = 0
    end: int = ROOT

    def extend_to(self, text: IntArray) -> None:
        """Evaluate what the context does not hold of a text."""
        while self.n_context < len(text):
            part = text[self.n_context : self.n_context + 512]
            n = len(part)
            made = self.model.extend(chain(self.end, n), part, np.zeros(n, dtype=np.bool_), np.ones(n, dtype=np.bool_))
            self.end, self.n_context = int(made.nodes[-1]), self.n_context + n

    def call(self, parents: IntArray, tokens: IntArray) -> tuple[float, float]:
        """Return the seconds of a call whose nodes are then dropped, and those of them outside the module's forward."""
        wanted = np.arange(len(tokens)) >= len(tokens) - N_WANTED
        start = time.perf_counter()
        made = self.model.extend(parents, tokens, wanted, np.ones(len(tokens), dtype=np.bool_))
        seconds = time.perf_counter() - start
        assert made.rows_evaluated == len(tokens)
        self.model.release(made.nodes, forget=True)
        return seconds, seconds - made.decode_s

    def below_the_end(self, tokens: IntArray) -> tuple[float, float]:
        """Time a tree of these tokens: half of them below the end of the context, the rest below those."""
        half = (len(tokens) + 1) // 2
        parents = [self.end if i < half else ~(i - half) for i in range(len(tokens))]
        return self.call(np.array(parents, dtype=np.int32), tokens)

    def below_many(self, tokens: IntArray, repeats: int) -> list[float]:
        """Return the seconds outside the forward of calls of rows that each have a parent of their own."""
        n = len(tokens)
        is_any, keep = np.zeros(n, dtype=np.bool_), np.ones(n, dtype=np.bool_)
        above = self.model.extend(np.full(n, self.end, dtype=np.int32), tokens, is_any, keep)
        seconds = [self.call(above.nodes, tokens)[1] for _ in range(1 + repeats)]
        self.model.release(above.nodes, forget=True)
        return seconds[1:]


@dataclass(frozen=True, slots=True)
class Bench:
    """Both ways on copies of one module, and the figures.

    trees: by precision.
    tokens: different ones, of which rows are made.
    """

    plain: Plain
    trees: dict[str, Tree]
    tokens: IntArray
    repeats: int
    figures: Figures = field(default_factory=Figures)

    def calls(self, n: int) -> None:
        """Time calls of n rows below the context, in turn; the first of each is not counted."""
        for repeat in range(1 + self.repeats):
            seconds = {"plain": self.plain.call(self.tokens[:n])}
            seconds |= {name: tree.below_the_end(self.tokens[:n])[0] for name, tree in self.trees.items()}
            if repeat:
                for name, value in seconds.items():
                    self.figures.add(f"{name}_{n}_rows_at_{self.plain.n_context}", value)

    def python(self, n: int) -> None:
        """Time what calls of n rows below as many nodes take outside the forward."""
        for name, tree in self.trees.items():
            for value in tree.below_many(self.tokens[:n], self.repeats):
                self.figures.add(f"{name}_python_at_{tree.n_context}", value)


def measure(sizes: Sizes, repeats: int) -> dict[str, Any]:
    """Return all figures."""
    from selectrie.backends.transformers.model import open_module
    from selectrie.backends.transformers.options import TransformersOptions

    source = open_source(sizes.shape, n_positions=sizes.n_ctx)
    n_vocabulary = source.module.config.vocab_size
    rng = np.random.default_rng(0)
    text = rng.integers(3, n_vocabulary, sizes.n_ctx).astype(np.int32)
    with ExitStack() as stack:
        trees = {}
        for precision in PRECISIONS:
            options = TransformersOptions(n_ctx=sizes.n_ctx, precision=Precision(precision))
            model = open_module(source.another(), source.vocabulary, options, name="benchmark")
            trees[precision] = Tree(stack.enter_context(closing(model)))
        tokens = (3 + rng.permutation(n_vocabulary - 3)).astype(np.int32)
        bench = Bench(Plain(source.module), trees, tokens, repeats)
        for depth in sorted({*sizes.contexts, *sizes.python_depths}):
            for tree in trees.values():
                tree.extend_to(text[:depth])
            if depth in sizes.contexts:
                bench.plain.extend_to(text[:depth])
                for n in sizes.rows:
                    bench.calls(n)
            if depth in sizes.python_depths:
                bench.python(sizes.python_rows)
    return found(sizes, bench.figures)


def found(sizes: Sizes, figures: Figures) -> dict[str, Any]:
    """Return the medians in milliseconds, and the ratios."""
    result = {f"{name}_ms": 1000 * figures.median(name) for name in figures.seconds}
    for key in (f"{n}_rows_at_{depth}" for depth in sizes.contexts for n in sizes.rows):
        for name in PRECISIONS:
            result[f"{name}_{key}_over_plain"] = figures.median(f"{name}_{key}") / figures.median(f"plain_{key}")
    return result


def targets(sizes: Sizes) -> Targets:
    """Return the bounds of both precisions."""
    ratios = [f"{n}_rows_at_{depth}_over_plain" for depth in sizes.contexts for n in sizes.rows]
    python = dict(zip(sizes.python_depths, MAX_PYTHON_MS, strict=True))
    return Targets(
        at_most={f"{name}_{ratio}": MAX_OVER_PLAIN for name in PRECISIONS for ratio in ratios}
        | {f"{name}_python_at_{depth}_ms": bound for name in PRECISIONS for depth, bound in python.items()}
    )


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tiny model and few rows, without targets")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if missing_packages():
        return report("transformers_calls", skipped(), NO_TARGETS, as_json=options.json)
    refuse_under_load(allowed=options.under_load)
    set_threads(options.threads)
    sizes = QUICK if options.quick else Sizes()
    facts: dict[str, Any] = {**versions(), "shape": sizes.shape, "threads": options.threads, "repeats": options.repeats}
    measured = measure(sizes, options.repeats)
    bounds = NO_TARGETS if options.quick else targets(sizes)
    return report("transformers_calls", facts | measured, bounds, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
