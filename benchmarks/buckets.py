"""Does a prompt cost what its rows cost in programs of fixed sizes? `python benchmarks/buckets.py`.

A prompt of 1501 tokens is evaluated by compiled programs of 512, 64, 8 and 1 rows (float32, on the processor), in four ways
that share programs and weights, in turn; figures are medians:

- one: a program of 1 row for each token
- greedy: the largest programs that the rest fills
- padded: programs of 512 rows, the last one padded
- ours: the programs that take the least time in sum, by the seconds measured when the model was opened

Then 256 tokens are generated greedily after the prompt. After the self-check, 64 labels are scored after two prompts of other
lengths, for which nothing may be compiled. The factor of prompt and generation together stands beside that of pytorch-tpu/llama, whose buckets these are:
1756 programs became 272 there, and 30.13 s became 4.40 s.

Random weights of the 32M shape, and stories260K where the test data have it. `--quick` looks at a tiny model and checks
nothing. Without the packages of the extra `xla` nothing is measured; `make bench-xla` installs them apart.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import importlib.util
import re
import time
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._common import NO_TARGETS, Figures, Targets, arguments, refuse_under_load, report
from benchmarks.modules import STORIES, Source, has_stories, missing_packages, open_source, set_threads, versions
from selectrie.core.model import chain
from selectrie.core.rows import Reads
from selectrie.core.types import ROOT, BatchSizes, IntArray
from selectrie.engine.engine import Engine
from selectrie.engine import precision_check

if TYPE_CHECKING:
    from selectrie.backends.xla.model import XlaModel

PACKAGES = ("jax", "torchax")
MIN_OVER_ONE = 8.0
"""How many times as fast as one row at a time the prompt is at least, on the 32M shape."""
MAX_OVER_BEST = 1.05
"""The time of ours over that of the best other way."""
FOUNDING = 30.13 / 4.40
"""The factor of the whole in pytorch-tpu/llama, on another model and another machine."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is evaluated."""

    n_prompt: int = 1501
    n_generated: int = 256
    n_labels: int = 64
    n_second: int = 333
    buckets: tuple[int, ...] = (512, 64, 8, 1)

    @property
    def n_ctx(self) -> int:
        """Return the number of tokens that are held at once."""
        return self.n_prompt + self.n_generated

    @property
    def max_programs(self) -> int:
        """Return how many bodies run at most: those of the greedy way, and one for each token after the first."""
        rest, n = self.n_prompt, 0
        for size in sorted(self.buckets, reverse=True):
            n, rest = n + rest // size, rest % size
        return n + self.n_generated - 1


QUICK = Sizes(n_prompt=45, n_generated=8, n_labels=4, n_second=13, buckets=(16, 4, 1))


@dataclass(slots=True)
class Way:
    """A context whose calls are split in one way."""

    model: "XlaModel"
    end: int = ROOT
    n_programs: int = 0
    row: Any = None

    def extend(self, tokens: IntArray) -> None:
        """Evaluate tokens below the end, in calls as large as there are; the row of the last one is read."""
        step = self.model.limits.rows_per_call
        for start in range(0, len(tokens), step):
            part = tokens[start : start + step]
            n = len(part)
            is_last = np.arange(n) == n - 1
            made = self.model.extend(chain(self.end, n), part, is_last & (start + step >= len(tokens)), is_last)
            self.end, self.n_programs = int(made.nodes[-1]), self.n_programs + made.n_programs
        self.row = made.rows.fetch(lambda: Reads.everything(1)).logits(0)

    def clear(self) -> None:
        """Drop all that was evaluated."""
        self.model.close()
        self.model = context(self.model, self.model.limits.batch_sizes)
        self.end, self.n_programs = ROOT, 0


def context(model: "XlaModel", sizes: BatchSizes) -> "XlaModel":
    """Return an empty context on the programs of a model, whose calls are split by other sizes."""
    source, limits = replace(model.source, bodies=sizes), model.limits
    return type(model)(source, nodes=limits.nodes, rows=limits.rows_per_call, n_cells=source.lengths.long)


def ways(model: "XlaModel") -> dict[str, Way]:
    """Return the four ways by name."""
    sizes = model.limits.batch_sizes
    rows = [size for size, _ in sizes.buckets]
    splits = {
        "one": BatchSizes.fixed({1: 1.0}),
        # Seconds in proportion to rows: nothing is gained by padding, and few programs win.
        "greedy": BatchSizes.fixed({size: float(size) for size in rows}),
        "padded": BatchSizes.fixed({max(rows): 1.0}),
        "ours": sizes,
    }
    return {name: Way(context(model, split)) for name, split in splits.items()}


def spelled(text: str) -> list[int]:
    """Return the tokens of a text of `<number>`s; those of any other text, as the self-check's, are its bytes."""
    return [int(number) for number in re.findall(r"<(\d+)>", text)] or list(text.encode())


def prompts(found: dict[str, Way], tokens: IntArray, repeats: int) -> tuple[Figures, float]:
    """Time the prompt in all ways, in turn; return the figures and the largest difference of a log-probability."""
    figures, rows = Figures(), []
    for _ in range(repeats):
        for name, way in found.items():
            way.clear()
            begin = time.perf_counter()
            way.extend(tokens)
            figures.add(name, time.perf_counter() - begin)
            rows.append(way.row.astype(np.float64))
    logp = [row - row.max() - np.log(np.exp(row - row.max()).sum()) for row in rows]
    return figures, float(max(np.abs(one - logp[0]).max() for one in logp))


def generated(way: Way, n: int) -> float:
    """Return the seconds in which n tokens are generated greedily; the row of the first is there."""
    begin = time.perf_counter()
    for _ in range(n - 1):
        way.extend(np.array([int(np.argmax(way.row))], dtype=np.int32))
    return time.perf_counter() - begin


def measure(source: Source, sizes: Sizes, repeats: int, name: str) -> dict[str, Any]:
    """Return all figures of one model."""
    from selectrie.backends.xla.opening import open_module
    from selectrie.backends.xla.options import XlaOptions

    is_random = name != STORIES
    vocabulary = (
        replace(source.vocabulary, tokenize=lambda text: spelled(text.decode())) if is_random else source.vocabulary
    )
    options = XlaOptions(n_ctx=sizes.n_ctx, buckets=sizes.buckets)
    rng = np.random.default_rng(0)
    draw = lambda n: rng.integers(3, source.module.config.vocab_size, n).astype(np.int32)  # noqa: E731 - used four times
    begin = time.perf_counter()
    model = open_module(source.module, vocabulary, options, name=name)
    result: dict[str, Any] = {"open_s": time.perf_counter() - begin}
    result |= {f"body_of_{size}_ms": 1000 * s for size, s in model.limits.batch_sizes.buckets}
    found = ways(model)
    figures, moved = prompts(found, draw(sizes.n_prompt), repeats)
    ours = found["ours"]
    result |= {f"prompt_{way}_s": figures.median(way) for way in found}
    result |= {f"prompt_{way}_programs": one.n_programs for way, one in found.items()}
    result |= {"bodies": model.n_compiled[0], "heads": model.n_compiled[1], "moved_nats": moved}
    result["prompt_over_one"] = figures.median("one") / figures.median("ours")
    result["prompt_over_best"] = figures.median("ours") / min(figures.median(way) for way in ("greedy", "padded"))
    seconds = generated(ours, sizes.n_generated)
    result |= {"generated_s": seconds, "whole_programs": ours.n_programs}
    result["whole_factor"] = (figures.median("one") + seconds) / (figures.median("ours") + seconds)
    result["founding_factor"] = FOUNDING
    for way in found.values():
        way.model.close()
    with closing(Engine(model)) as engine:
        engine._model_thread.call(lambda: list(precision_check.measure(model)))
        before = model.n_compiled
        result["bodies_after_self_check"] = before[0]
        text = lambda n: "".join(f"<{t}>" for t in draw(n)) if is_random else "once upon a time " * (n // 4)  # noqa: E731
        labels = [f"{text(4)}<{i}>" if is_random else f" label {i}" for i in range(sizes.n_labels)]
        engine.select(text(9), labels)
        engine.select(text(sizes.n_second), labels)
    result["compiled_later"] = sum(model.n_compiled) - sum(before)
    return result


def targets(name: str, sizes: Sizes) -> Targets:
    """Return the bounds of one model's figures."""
    most = {"prompt_over_best": MAX_OVER_BEST, "bodies": len(sizes.buckets), "compiled_later": 0}
    most["bodies_after_self_check"] = 2 * len(sizes.buckets)
    most["whole_programs"] = sizes.max_programs
    least = {} if name == STORIES else {"prompt_over_one": MIN_OVER_ONE}
    return Targets(
        at_most={f"{name}_{key}": bound for key, bound in most.items()},
        at_least={f"{name}_{key}": bound for key, bound in least.items()},
    )


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tiny model and a short prompt, without targets")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    missing = [*missing_packages(), *(name for name in PACKAGES if importlib.util.find_spec(name) is None)]
    if missing:
        return report(
            "buckets",
            {"xla": f"skipped: {', '.join(missing)} not installed (extra xla)"},
            NO_TARGETS,
            as_json=options.json,
        )
    refuse_under_load(allowed=options.under_load)
    # JAX reads it once, and its threads would wait for each other on a busy machine.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    set_threads(1)
    sizes = QUICK if options.quick else Sizes()
    names = ["tiny"] if options.quick else ["32m", *([STORIES] if has_stories() else [])]
    facts: dict[str, Any] = {**versions(), **{name: version(name) for name in PACKAGES}, "repeats": options.repeats}
    bounds = NO_TARGETS
    for name in names:
        found = measure(open_source(name), sizes, options.repeats, name)
        facts |= {f"{name}_{key}": value for key, value in found.items()}
        bounds = bounds if options.quick else bounds.joined(targets(name, sizes))
    return report("buckets", facts, bounds, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
