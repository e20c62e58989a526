"""Time and memory of building token tries from 10^4 to 10^6 label-like sequences."""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import time
import tracemalloc
from typing import Any

import numpy as np

from benchmarks._common import Targets, arguments, refuse_under_load, report
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import IntArray, OffsetArray

N_VOCABULARY = 151_936
SIZES = (10_000, 100_000, 1_000_000)
MOST_BUILD_S = {100_000: 1.0, 1_000_000: 15.0}
MOST_BYTES_PER_NODE = 64


def targets(sizes: list[int]) -> Targets:
    """Return the bounds of the sizes measured. `accumulate` and `restrict` have none,
    because they are a part of a selection's time.
    """
    build = {f"n{n}_build_s": MOST_BUILD_S[n] for n in sizes if n in MOST_BUILD_S}
    return Targets(at_most=build | {f"n{n}_bytes_per_node": MOST_BYTES_PER_NODE for n in sizes})


def labels(n: int, rng: np.random.Generator) -> tuple[IntArray, OffsetArray]:
    """Return n sequences of 1 to 8 tokens, token frequencies by Zipf's law, like the
    labels of a large catalogue.
    """
    lengths = rng.integers(1, 9, size=n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return (rng.zipf(1.2, size=int(offsets[-1])) % N_VOCABULARY).astype(np.int32), offsets


def measure(tokens: IntArray, offsets: OffsetArray) -> tuple[TokenTrie, float, int]:
    """Return the trie, the best of three build times in seconds, and the peak of the
    memory a build takes, in bytes.
    """
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        trie = TokenTrie.from_flat(tokens, offsets)
        best = min(best, time.perf_counter() - start)
    tracemalloc.start()
    trie = TokenTrie.from_flat(tokens, offsets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return trie, float(best), peak


def main() -> int:
    """Run and report; return the exit code."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="leave larger sets out: a quick look")
    options = parser.parse_args()
    refuse_under_load(allowed=options.under_load)
    rng = np.random.default_rng(0)
    figures: dict[str, Any] = {}
    sizes = [n for n in SIZES if n <= options.most]
    for n in sizes:
        trie, build_s, peak_bytes = measure(*labels(n, rng))
        start = time.perf_counter()
        trie.accumulate(np.zeros(len(trie)))
        accumulate_s = time.perf_counter() - start
        start = time.perf_counter()
        trie.restrict(rng.random(len(trie)) < 0.01)
        restrict_s = time.perf_counter() - start
        figures |= {
            f"n{n}_nodes": len(trie),
            f"n{n}_build_s": build_s,
            f"n{n}_bytes_per_node": trie.n_bytes / len(trie),
            f"n{n}_peak_bytes_per_node": peak_bytes / len(trie),
            f"n{n}_accumulate_s": accumulate_s,
            f"n{n}_restrict_s": restrict_s,
        }
    lengths = np.full(10_000, 3)
    lengths[0] = 1_000_000
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.integers(0, N_VOCABULARY, size=int(offsets[-1])).astype(np.int32)
    trie, figures["one_long_build_s"], peak_bytes = measure(tokens, offsets)
    figures["one_long_peak_bytes_per_node"] = peak_bytes / len(trie)
    return report("trie", figures, targets(sizes), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
