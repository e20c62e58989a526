"""Does generating by a Transformers module cost more than the module's own `generate`? `python benchmarks/hf_generate.py`.

One prompt of 64 token ids, 100 new tokens, n = 1 and n = 10 samples of it, drawn from the model's own distribution
(temperature 1, no filter), on the processor. Random weights of a shape of 32 million, and stories260K where there are test
data. All ways run in turn in one process, on copies of one module:

- generate: `model.generate(do_sample=True, use_cache=True)`, which may not end before 100 tokens
- fast, exact: `Engine.generate` in these precisions, on an empty cache, going on after tokens that end a text

`exact` fills calls up to a multiple of 8 rows and says which draws rounding could change; `generate` does nothing of the kind,
so `fast` has the targets. Figures are medians. `outside` is the time of a step of ours that is not spent in the module's
forward. `--quick` looks at a tiny model and checks nothing, nor is anything checked with another `--shape` or `--dtype`.
Without the packages of the extra `transformers` nothing is measured.

What stories260K misses, and why: its weights take no time, so Python is compared with Python. A step of `generate` takes 1.2 to
1.5 ms for one sample, nearly all of it in the module's own layers. Ours takes 0.4 to 0.5 ms beside the forward: 0.12 to lay out
the call and keep its node, the rest to schedule, to draw and to record the token's log-probability. These are 0.15 ms for each
sample, where `generate` draws for all of them in one operation and returns tokens alone. With 10 samples attention reads the
cells of all, which is 0.6 ms more in five layers. At 32 million weights these costs are a few per cent of a step.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks._common import NO_TARGETS, Figures, Targets, arguments, refuse_under_load, report
from benchmarks.bare import Recorder
from benchmarks.modules import (
    SHAPES,
    STORIES,
    Source,
    has_stories,
    missing_packages,
    open_source,
    set_threads,
    skipped,
    versions,
)
from selectrie.core.types import Precision
from selectrie.engine.engine import Engine
from selectrie.options import SamplingParams, StopParams

SAMPLES = (1, 10)
MAX_OVER_GENERATE = {1: 1.05, 10: 1.0}
"""Bound of our time over that of `generate`, by the number of samples."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of the prompt and of each sample."""

    prompt: int = 64
    n_tokens: int = 100


QUICK = Sizes(prompt=8, n_tokens=6)


@dataclass(slots=True)
class Theirs:
    """The module's own `generate`."""

    module: Any

    def run(self, prompt: Sequence[int], n: int, seed: int, n_tokens: int) -> float:
        """Return the seconds for n samples of a prompt."""
        import torch

        torch.manual_seed(seed)
        ids = torch.tensor([list(prompt)])
        start = time.perf_counter()
        drawn = self.module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            use_cache=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            min_new_tokens=n_tokens,
            max_new_tokens=n_tokens,
            num_return_sequences=n,
            pad_token_id=0,
        )
        seconds = time.perf_counter() - start
        assert drawn.shape == (n, len(prompt) + n_tokens)
        return seconds


@dataclass(slots=True)
class Ours:
    """An engine on a copy of the module."""

    llm: Engine
    recorder: Recorder
    outside_s: float = field(default=0.0, init=False)

    def run(self, prompt: Sequence[int], n: int, seed: int, n_tokens: int) -> float:
        """Return the seconds for n samples of a prompt that is not cached."""
        self.llm.trim()
        with self.recorder.watching():
            start = time.perf_counter()
            drawn = self.llm.generate(
                list(prompt),
                n=n,
                seed=seed,
                sampling=SamplingParams.UNCHANGED,
                stopping=StopParams(max_tokens=n_tokens, ignore_eog=True),
            )
            seconds = time.perf_counter() - start
            self.outside_s = (seconds - self.recorder.decode_s) / len(self.recorder.made)
        assert drawn.n_drawn == n * n_tokens
        return seconds


def open_ours(source: Source, precision: str, n_ctx: int) -> Ours:
    """Return an engine on a copy of the module."""
    from selectrie.backends.transformers.model import open_module
    from selectrie.backends.transformers.options import TransformersOptions

    options = TransformersOptions(n_ctx=n_ctx, n_batch=128, precision=Precision(precision))
    model = open_module(source.another(), source.vocabulary, options, name="benchmark")
    recorder = Recorder(model)
    return Ours(Engine(model), recorder)


def measure(shape: str, dtype: str, sizes: Sizes, repeats: int) -> dict[str, Any]:
    """Return the figures of one shape."""
    source = open_source(shape, dtype)
    n_vocabulary = source.module.config.vocab_size
    prompt = [1, *(3 + (7919 * i) % (n_vocabulary - 3) for i in range(1, sizes.prompt))]
    figures, outside = Figures(), Figures()
    with ExitStack() as stack:
        ways: dict[str, Theirs | Ours] = {"generate": Theirs(source.module)}
        for precision in ("fast", "exact") if dtype == "float32" else ("fast",):
            n_ctx = sizes.prompt + max(SAMPLES) * sizes.n_tokens + 64
            ways[precision] = open_ours(source, precision, n_ctx)
            stack.callback(ways[precision].llm.close)
        for way in ways.values():  # the first run makes the self-check and reads all weights
            way.run(prompt, 2, 0, 4)
        for repeat in range(repeats):
            for n in SAMPLES:
                for name, way in ways.items():
                    figures.add(f"{name}_n{n}", way.run(prompt, n, 1000 * repeat, sizes.n_tokens))
                    if isinstance(way, Ours):
                        outside.add(f"{name}_n{n}", way.outside_s)
    found: dict[str, Any] = {"parameters": sum(each.numel() for each in source.module.parameters())}
    found |= {f"{name}_s": figures.median(name) for name in figures.seconds}
    found |= {f"{name}_outside_ms": 1000 * outside.median(name) for name in outside.seconds}
    found |= {
        f"{name}_over_generate": figures.median(name) / figures.median(f"generate_n{name.rpartition('_n')[2]}")
        for name in outside.seconds
    }
    label = shape.replace("-", "_").replace(".", "_")
    return {f"{label}_{name}": value for name, value in found.items()}


def targets(figures: dict[str, Any]) -> Targets:
    """Return the bounds of `fast` on every shape that was measured."""
    return Targets(
        at_most={
            name: bound
            for n, bound in MAX_OVER_GENERATE.items()
            for name in figures
            if name.endswith(f"fast_n{n}_over_generate")
        }
    )


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=(*SHAPES, STORIES), help="this model alone, without targets")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="of the weights")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few tokens, without targets")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if missing_packages():
        return report("hf_generate", skipped(), NO_TARGETS, as_json=options.json)
    refuse_under_load(allowed=options.under_load)
    set_threads(options.threads)
    usual = ("tiny",) if options.quick else ("32m", STORIES) if has_stories() else ("32m",)
    figures: dict[str, Any] = {**versions(), "threads": options.threads, "repeats": options.repeats}
    for shape in (options.shape,) if options.shape else usual:
        figures |= measure(shape, options.dtype, QUICK if options.quick else Sizes(), options.repeats)
    is_checked = not (options.quick or options.shape) and options.dtype == "float32"
    return report("hf_generate", figures, targets(figures) if is_checked else NO_TARGETS, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
