"""How fast is a selection? Side by side in one run: `make bench`, or `python benchmarks/select.py`.

A prompt of about 200 tokens and 64 labels on random weights of the 0.5B shape (24 layers, width 896, q8_0), so that a row
costs what it costs in practice. Every way computes every label's log-probability in the same precision:

- naive: prompt + label, one `llama_decode` each (timed on every eighth label, times 8)
- loop: the prompt once, then one `llama_decode` a label with all its tokens; padded to multiples of 8 rows, and not
- one batch: the prompt once, then all labels in one `llama_decode`, no prefix shared among them
- selectrie: exhaustive and best-first; cold (nothing cached) and warm (the prompt is)
- floor: the same two `llama_decode` calls (prompt; inner nodes of the trie with their outputs), bare and unpadded

Figures are medians over interleaved repeats. Then the same selection beside a cache full of other prompts, and after
trimming. `--json` prints one object of figures and ratios as the last line. The targets are those of the 0.5B shape; with
another model nothing is checked.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import selectrie
from benchmarks._common import NO_TARGETS, Figures, Targets, arguments, refuse_under_load, report
from benchmarks.bare import PADDING, Bare
from benchmarks.workload import Workload, generated_model, labels, prompt_text, workload

BATCH_MULTIPLE = 8
"""In `precision="exact"`, rows of a call are padded to a multiple of this."""
NAIVE_STEP = 8
TOLERANCE = 0.15
"""Nats by which two ways may differ on random q8_0 weights: they lay rows and cells out
differently, which moves a row by 0.02, and a label has up to 7 tokens.
"""
TARGETS = Targets(
    at_most={
        "cold_over_floor": 1.10,
        "cold_share_outside_decode": 0.10,
        "warm_share_outside_decode": 0.10,
        "trimmed_over_empty": 1.15,
    },
    at_least={"naive_over_cold": 25, "loop_padded_over_cold": 3.5, "loop_padded_over_warm": 6},
)
EXHAUSTIVE = selectrie.SearchParams(method="exhaustive")
BEST_FIRST = selectrie.SearchParams(method="best_first")

Scores = dict[int, float]


def naive(bare: Bare, work: Workload, offset: int) -> tuple[float, Scores]:
    """Evaluate prompt and label in one decode, label after label; return the seconds
    for all, scaled up from every eighth.
    """
    n_shared, scores = len(work.context), {}
    start = time.perf_counter()
    for i in range(offset % NAIVE_STEP, len(work.paths), NAIVE_STEP):
        path = work.paths[i]
        bare.clear()
        bare.fill_run([*work.context, *path], 0, 0, len(path) + 1)
        bare.decode()
        scores[i] = sum(float(bare.logp(n_shared - 1 + j)[token]) for j, token in enumerate(path))
    return (time.perf_counter() - start) * len(work.paths) / len(scores), scores


def cached_loop(bare: Bare, work: Workload, batch_multiple: int) -> tuple[float, float, Scores]:
    """Evaluate the prompt once, then decode each label with all its tokens; return the
    seconds of the prompt and of the loop.
    """
    n_shared, scores = len(work.context), {}
    start = time.perf_counter()
    bare.prompt(work.context, batch_multiple)
    first = bare.logp(n_shared - 1)
    middle = time.perf_counter()
    for i, path in enumerate(work.paths):
        bare.fill_run(path, n_shared, 0, len(path), batch_multiple)
        bare.decode()
        scores[i] = float(first[path[0]]) + sum(float(bare.logp(j)[token]) for j, token in enumerate(path[1:]))
        bare.cut(0, n_shared)
        bare.cut(PADDING, 0)
    return middle - start, time.perf_counter() - middle, scores


def one_batch(bare: Bare, work: Workload) -> tuple[float, float, Scores]:
    """Evaluate the prompt once, then the labels side by side in one decode, all tokens
    but each last; return the seconds of both.
    """
    n_shared, scores = len(work.context), {}
    start = time.perf_counter()
    bare.prompt(work.context)
    first = bare.logp(n_shared - 1)
    middle = time.perf_counter()
    bare.copy(0, range(1, len(work.paths) + 1), n_shared)
    tokens = [token for path in work.paths for token in path[:-1]]
    positions = [n_shared + j for path in work.paths for j in range(len(path) - 1)]
    sequences = [[i] for i, path in enumerate(work.paths, start=1) for _ in path[:-1]]
    bare.fill(tokens, positions, sequences, [True] * len(tokens))
    bare.decode()
    row = 0
    for i, path in enumerate(work.paths):
        scores[i] = float(first[path[0]])
        for token in path[1:]:
            scores[i] += float(bare.logp(row)[token])
            row += 1
    return middle - start, time.perf_counter() - middle, scores


def floor(bare: Bare, work: Workload) -> tuple[float, float]:
    """Return the seconds inside the two `llama_decode` calls that every way of scoring
    the labels needs.
    """
    prompt_s = bare.prompt(work.context)
    tokens, positions, branches = work.inner()
    bare.copy(0, range(1, 1 + max(map(max, branches))), len(work.context))
    bare.fill(tokens, positions, branches, [True] * len(tokens))
    return prompt_s, bare.decode()


def selection(
    llm: selectrie.Engine, work: Workload, search: selectrie.SearchParams, *, cold: bool
) -> tuple[float, selectrie.Selection]:
    """Run one select, on an empty cache or on the cache as it is; return its seconds."""
    if cold:
        llm.trim()
    start = time.perf_counter()
    chosen = llm.select(work.prompt, work.choices, terminator="none", search=search)
    return time.perf_counter() - start, chosen


def check(scores: Scores, expected: Scores, name: str) -> None:
    """Check that the ways compute the same numbers: otherwise their times cannot be
    compared.
    """
    worst = max(abs(score - expected[i]) for i, score in scores.items())
    assert worst <= TOLERANCE, f"{name} differs by {worst:.3f} nats"


def side_by_side(bare: Bare, llm: selectrie.Engine, work: Workload, repeats: int) -> tuple[Figures, dict[str, int]]:
    """Run every way in turn, `repeats` times; return the figures and what selectrie
    says it cost.
    """
    figures, cost = Figures(), dict[str, int]()
    for repeat in range(repeats):
        prompt_s, loop_s, expected = cached_loop(bare, work, BATCH_MULTIPLE)
        figures.add("prompt", prompt_s)
        figures.add("loop_padded_cold", prompt_s, loop_s)
        figures.add("loop_padded_warm", loop_s)
        prompt_s, loop_s, scores = cached_loop(bare, work, 1)
        check(scores, expected, "loop unpadded")
        figures.add("loop_unpadded_cold", prompt_s, loop_s)
        figures.add("loop_unpadded_warm", loop_s)
        seconds, scores = naive(bare, work, repeat)
        check(scores, expected, "naive")
        figures.add("naive", seconds)
        prompt_s, batch_s, scores = one_batch(bare, work)
        check(scores, expected, "one batch")
        figures.add("one_batch_cold", prompt_s, batch_s)
        figures.add("one_batch_warm", batch_s)
        prompt_s, inner_s = floor(bare, work)
        figures.add("floor_cold", prompt_s, inner_s)
        figures.add("floor_warm", inner_s)
        for name, search in (("exhaustive", EXHAUSTIVE), ("best_first", BEST_FIRST)):
            for cold in (True, False):
                key = f"{name}_{'cold' if cold else 'warm'}"
                seconds, chosen = selection(llm, work, search, cold=cold)
                figures.add(key, seconds)
                figures.add(f"{key}_outside_decode", seconds - chosen.cost.decode_s)
                cost |= {f"{key}_rows": chosen.cost.rows, f"{key}_calls": chosen.cost.model_calls}
                finished = {choice.index: choice.logp for choice in chosen.choices if choice.logp is not None}
                check(finished, expected, key)
                assert expected[chosen.index] >= max(expected.values()) - TOLERANCE, f"{key} chose {chosen.text!r}"
    return figures, cost


def full_cache(
    bare: Bare, llm: selectrie.Engine, work: Workload, figures: Figures, *, n_ctx: int, repeats: int
) -> None:
    """Time the warm selection alone in the cache, beside a cache full of other prompts,
    and after trimming.
    """
    long = max(256, min(1024, n_ctx // 4))
    others = [prompt_text(bare, long, number) for number in range(1, 1 + (n_ctx - 1024) // long)]
    for _ in range(repeats):
        selection(llm, work, EXHAUSTIVE, cold=True)
        figures.add("beside_nothing", selection(llm, work, EXHAUSTIVE, cold=False)[0])
        for prompt in others:
            llm.select(prompt, work.choices[:2], terminator="none", search=EXHAUSTIVE)
        selection(llm, work, EXHAUSTIVE, cold=False)
        figures.add("beside_full_cache", selection(llm, work, EXHAUSTIVE, cold=False)[0])
        selection(llm, work, EXHAUSTIVE, cold=True)
        figures.add("after_trimming", selection(llm, work, EXHAUSTIVE, cold=False)[0])


def ratios(figures: Figures) -> dict[str, float]:
    """Compare each way with selectrie, in the same run."""
    at = figures.median
    cold, warm = at("exhaustive_cold"), at("exhaustive_warm")
    return {
        "cold_over_floor": cold / at("floor_cold"),
        "warm_over_floor": warm / at("floor_warm"),
        "naive_over_cold": at("naive") / cold,
        "loop_padded_over_cold": at("loop_padded_cold") / cold,
        "loop_padded_over_warm": at("loop_padded_warm") / warm,
        "loop_unpadded_over_cold": at("loop_unpadded_cold") / cold,
        "loop_unpadded_over_warm": at("loop_unpadded_warm") / warm,
        "one_batch_over_cold": at("one_batch_cold") / cold,
        "one_batch_over_warm": at("one_batch_warm") / warm,
        "best_first_over_exhaustive_cold": at("best_first_cold") / cold,
        "best_first_over_exhaustive_warm": at("best_first_warm") / warm,
        "cold_share_outside_decode": at("exhaustive_cold_outside_decode") / cold,
        "warm_share_outside_decode": at("exhaustive_warm_outside_decode") / warm,
        "full_cache_over_empty": at("beside_full_cache") / at("beside_nothing"),
        "trimmed_over_empty": at("after_trimming") / at("beside_nothing"),
    }


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GGUF file (default: random weights of --shape, made in build/)")
    parser.add_argument("--shape", default="0.5b", choices=("tiny", "wide", "0.5b"), help="tiny: a quick look")
    parser.add_argument("--quantisation", default="q8_0", help="of the random weights")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--context", type=int, default=4096, help="tokens the cache holds, or less if the model says so"
    )
    options = parser.parse_args()
    path = options.model or generated_model(options.shape, options.quantisation)
    refuse_under_load(allowed=options.under_load)
    source, choices = labels()
    with (
        closing(Bare(path, n_ctx=1024, n_threads=options.threads)) as bare,
        selectrie.load(path, n_ctx=options.context, n_threads=options.threads) as llm,
    ):
        work = workload(bare, choices, n_tokens=200)
        selection(llm, work, EXHAUSTIVE, cold=True)  # the first call reads the weights from disk and checks the model
        figures, cost = side_by_side(bare, llm, work, options.repeats)
        full_cache(bare, llm, work, figures, n_ctx=options.context, repeats=min(2, options.repeats))
    facts: dict[str, Any] = {
        "model": path.name,
        "threads": options.threads,
        "repeats": options.repeats,
        "labels": source,
        "prompt_tokens": len(work.context),
        "label_tokens": sum(map(len, work.paths)),
        "inner_nodes": len(work.inner()[0]),
    }
    seconds = {f"{name}_s": figures.median(name) for name in figures.seconds}
    targets = TARGETS if options.shape == "0.5b" and not options.model else NO_TARGETS
    return report("select", facts | seconds | cost | ratios(figures), targets, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
