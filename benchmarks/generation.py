"""Do sequences and requests that run together cost what the hardware asks for, and no more? `python benchmarks/generation.py`.

Random weights of the 0.5B shape (24 layers, width 896, q8_0) in `fast` precision. Each figure stands beside bare
`llama_decode` calls of the same row counts and outputs, timed in the same run:

- together: 8 sequences of one prompt at once, and one after the other; against decodes of 8 rows and of one
- selects: 16 selections of different prompts at once, and one after the other; against the calls that were made for each
- stream: one stream of a new prompt; against llama-cpp-python's own `create_completion` stream of it, with the same chain
- mixed: streams and selections that come at once; rows a second against the calls that were made
- first token: of a short request that comes when a long prompt is in the middle of its evaluation and a call has just
  begun; against that call, bare
- draft: a given text that repeats itself, with and without guesses from what was already said; calls saved

Figures are medians over interleaved repeats; a speed-up is a ratio of medians. `outside_decode` is the time that is not
spent inside llama.cpp, a token. `--quick` looks at a tiny model and checks nothing; with a model of your own nothing is
checked either. `--json` prints one object of figures and ratios as the last line.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import asyncio
import threading
import time
from collections.abc import Coroutine
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llama_cpp

from benchmarks._common import NO_TARGETS, Figures, Targets, arguments, refuse_under_load, report
from benchmarks.bare import Bare, Call, Recorder
from benchmarks.workload import generated_model, labels, prompt_text
from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.engine.requests.speculative import LookupDrafter
from selectrie.engine.engine import Engine
from selectrie.engine.requests.generate import GenerationParams
from selectrie.options import SamplingParams, StopParams
from selectrie.core.types import Precision

TARGETS = Targets(
    at_most={"first_token_over_chunk": 2},
    at_least={
        "together_of_bare_speed_up": 0.9,
        "selects_of_bare_speed_up": 0.9,
        "stream_over_llama_cpp_python": 0.95,
        "mixed_of_bare_rows_per_s": 0.9,
    },
)
PHRASE = "one two three four five six seven eight nine ten "
_PROMPTS = iter(range(1, 1_000_000))


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each to run: tokens of a sequence, sequences together, requests at
    once, tokens of prompts.
    """

    n_tokens: int = 32
    n_together: int = 8
    n_selects: int = 16
    n_choices: int = 16
    n_mixed: int = 8
    prompt: int = 64
    short_prompt: int = 16
    long_prompt: int = 2000
    n_ctx: int = 4096
    n_batch: int = 512


QUICK = Sizes(
    n_tokens=8, n_together=4, n_selects=4, n_choices=4, n_mixed=2, prompt=16, long_prompt=384, n_ctx=1024, n_batch=128
)


@dataclass(frozen=True, slots=True)
class Bench:
    """The three programs that are compared, on one model file, and the figures."""

    bare: Bare
    llm: Engine
    theirs: llama_cpp.Llama
    recorder: Recorder
    sizes: Sizes
    figures: Figures = field(default_factory=Figures)
    counts: dict[str, Any] = field(default_factory=dict)

    def prompt(self, n_tokens: int) -> str:
        """Return a prompt that shares no prefix with any before."""
        return prompt_text(self.bare, n_tokens, next(_PROMPTS))

    def stopping(self, n_tokens: int | None = None) -> StopParams:
        """Stop by the number of tokens; on random weights, a sequence of this length
        hardly ever ends before.
        """
        return StopParams(max_tokens=n_tokens or self.sizes.n_tokens)


def together(bench: Bench, prompt: str, seed: int) -> None:
    """Time many sequences at once and one after the other, and the decodes that both
    need, in seconds a token.
    """
    n, stopping, add = bench.sizes.n_together, bench.stopping(), bench.figures.add
    bench.llm.generate(prompt, stopping=bench.stopping(1))  # the prompt is in the cache from here on
    with bench.recorder.watching():
        start = time.perf_counter()
        one_by_one = [bench.llm.generate(prompt, seed=seed + i, stopping=stopping) for i in range(n)]
        seconds = time.perf_counter() - start
        n_drawn = sum(each.n_drawn for each in one_by_one)
        add("single", seconds / n_drawn)
        add("single_outside_decode", (seconds - bench.recorder.decode_s) / n_drawn)
    with bench.recorder.watching():
        start = time.perf_counter()
        at_once = bench.llm.generate(prompt, n=n, seed=seed, stopping=stopping)
        seconds = time.perf_counter() - start
        add("together", seconds / at_once.n_drawn)
        add("together_outside_decode", (seconds - bench.recorder.decode_s) / at_once.n_drawn)
    context = bench.bare.tokenize(prompt, bos=True)
    for name, width in (("bare_single", 1), ("bare_together", n)):
        calls = [Call(width, width, range(width))] * (bench.sizes.n_tokens - 1)
        add(name, sum(bench.bare.replay(calls, context)) / (width * bench.sizes.n_tokens))


def selects(bench: Bench, choices: list[str]) -> None:
    """Time many selections one after the other and at once, on an empty cache, and the
    decodes that were made for them.
    """
    prompts = [bench.prompt(bench.sizes.prompt) for _ in range(bench.sizes.n_selects)]
    bench.llm.trim()
    calls: list[Call] = []
    start = time.perf_counter()
    for i, prompt in enumerate(prompts):
        with bench.recorder.watching():
            bench.llm.select(prompt, choices, terminator="none")
            calls += bench.recorder.calls(range(i, i + 1))
    bench.figures.add("selects_one_by_one", time.perf_counter() - start)
    bench.llm.trim()
    with bench.recorder.watching():
        start = time.perf_counter()
        run_all([bench.llm.aselect(prompt, choices, terminator="none") for prompt in prompts])
        bench.figures.add("selects_at_once", time.perf_counter() - start)
        merged = bench.recorder.calls(range(len(prompts)))
    bench.figures.add("bare_selects_one_by_one", *bench.bare.replay(calls))
    bench.figures.add("bare_selects_at_once", *bench.bare.replay(merged))
    bench.counts.update({"selects_one_by_one_calls": len(calls), "selects_at_once_calls": len(merged)})


SAMPLING = {
    name: getattr(SamplingParams(), name) for name in ("temperature", "top_k", "top_p", "min_p", "typical_p")
} | {"repeat_penalty": 1.0}
"""The default chain by the names of `create_completion`, which has other defaults."""


def streams(bench: Bench, prompt: str, seed: int) -> None:
    """Time one stream here and one of llama-cpp-python, both on an empty cache, and the
    decodes they need, in seconds a token.
    """
    n = bench.sizes.n_tokens
    bench.theirs.reset()
    start = time.perf_counter()
    for _ in bench.theirs.create_completion(prompt, max_tokens=n, seed=seed, stream=True, **SAMPLING):
        pass
    bench.figures.add("stream_of_llama_cpp_python", (time.perf_counter() - start) / n)
    bench.llm.trim()
    with bench.recorder.watching():
        start = time.perf_counter()
        n_drawn = sum(len(chunk.tokens) for chunk in bench.llm.stream(prompt, seed=seed, stopping=bench.stopping()))
        seconds = time.perf_counter() - start
        bench.figures.add("stream", seconds / n_drawn)
        bench.figures.add("stream_outside_decode", (seconds - bench.recorder.decode_s) / n_drawn)
    context = bench.bare.tokenize(prompt, bos=True)
    prompt_s = bench.bare.prompt(context)
    bench.figures.add("bare_stream", (prompt_s + sum(bench.bare.replay([Call(1, 1)] * (n - 1), context))) / n)


def mixed(bench: Bench, choices: list[str], seed: int) -> None:
    """Measure streams and selections that arrive at once: rows a second, and those of
    the same calls bare.
    """
    n = bench.sizes.n_mixed
    prompts = [bench.prompt(bench.sizes.prompt) for _ in range(2 * n)]
    bench.llm.trim()

    async def stream(prompt: str) -> None:
        async for _ in bench.llm.astream(prompt, seed=seed, stopping=bench.stopping()):
            pass

    with bench.recorder.watching():
        start = time.perf_counter()
        run_all(
            [stream(prompt) for prompt in prompts[:n]]
            + [bench.llm.aselect(prompt, choices, terminator="none") for prompt in prompts[n:]]
        )
        seconds = time.perf_counter() - start
        calls = bench.recorder.calls(range(len(prompts)))
    n_rows = sum(call.n_rows for call in calls)
    bench.figures.add("mixed_row", seconds / n_rows)
    bench.figures.add("bare_mixed_row", sum(bench.bare.replay(calls)) / n_rows)
    bench.counts.update({"mixed_rows": n_rows, "mixed_calls": len(calls)})


def first_token(bench: Bench) -> None:
    """Time a short request that arrives just after the second call for a long prompt
    has begun, and that call bare.
    """
    long, short = bench.prompt(bench.sizes.long_prompt), bench.prompt(bench.sizes.short_prompt)
    bench.llm.trim()
    is_under_way = threading.Event()

    def notice(number: int) -> None:
        if number == 1:
            is_under_way.set()

    with bench.recorder.watching():
        bench.recorder.on_call = notice
        with bench.llm.stream(long, stopping=bench.stopping(1)) as under_way:
            is_under_way.wait()
            start = time.perf_counter()
            with bench.llm.stream(short, stopping=bench.stopping(2)) as stream:
                next(stream)
            bench.figures.add("first_token", time.perf_counter() - start)
            under_way.generation()
        calls = bench.recorder.calls(range(1))
    bench.figures.add("bare_chunk", bench.bare.replay(calls[:2])[1])
    bench.counts["chunk_rows"] = calls[1].n_rows


def draft(bench: Bench) -> None:
    """Generate a text that repeats itself, with and without guesses; note model calls
    and seconds of both.

    No other text is allowed, so how often a guess is right does not depend on the
    weights.
    """
    prompt, only = f"{next(_PROMPTS)} " + PHRASE * 2, GenerationParams(choices=[PHRASE * 6])
    for name, drafter in (("undrafted", None), ("drafted", LookupDrafter())):
        bench.llm.trim()
        with bench.recorder.watching():
            start = time.perf_counter()
            drawn = bench.llm.generate(prompt, seed=1, stopping=StopParams(max_tokens=512), draft=drafter, options=only)
            bench.figures.add(name, time.perf_counter() - start)
            bench.counts[f"{name}_calls"] = len(bench.recorder.made)
        bench.counts.update({"draft_proposed": drawn[0].n_drafted, "draft_accepted": drawn[0].n_accepted})
    bench.counts["draft_calls_saved"] = 1 - bench.counts["drafted_calls"] / bench.counts["undrafted_calls"]


def run_all(work: list[Coroutine[Any, Any, Any]]) -> None:
    """Start all of them at once, and wait until all are done."""

    async def gathered() -> None:
        await asyncio.gather(*work)

    asyncio.run(gathered())


def lasting_seed(bench: Bench, prompt: str, n: int) -> int:
    """Return the first seed from which n sequences reach their full length; if n = 1,
    also that of llama-cpp-python.
    """
    for seed in range(0, 100 * n, n):
        drawn = bench.llm.generate(prompt, n=n, seed=seed, stopping=bench.stopping())
        if any(each.finish != "length" for each in drawn):
            continue
        if n > 1:
            return seed
        theirs = bench.theirs.create_completion(prompt, max_tokens=bench.sizes.n_tokens, seed=seed, **SAMPLING)
        if theirs["choices"][0]["finish_reason"] == "length":
            return seed
    raise SystemExit("no seed of 100 gives sequences that last: this model ends its texts early")


def ratios(figures: Figures) -> dict[str, float]:
    """Compare each way with what the hardware allows, in the same run."""
    at = figures.median
    found = {
        "together_speed_up": at("single") / at("together"),
        "bare_together_speed_up": at("bare_single") / at("bare_together"),
        "selects_speed_up": at("selects_one_by_one") / at("selects_at_once"),
        "bare_selects_speed_up": at("bare_selects_one_by_one") / at("bare_selects_at_once"),
        "stream_over_llama_cpp_python": at("stream_of_llama_cpp_python") / at("stream"),
        "stream_of_bare": at("bare_stream") / at("stream"),
        "mixed_rows_per_s": 1 / at("mixed_row"),
        "mixed_of_bare_rows_per_s": at("bare_mixed_row") / at("mixed_row"),
        "first_token_over_chunk": at("first_token") / at("bare_chunk"),
        "drafted_over_undrafted": at("drafted") / at("undrafted"),
    }
    for name in ("together", "selects"):
        found[f"{name}_of_bare_speed_up"] = found[f"{name}_speed_up"] / found[f"bare_{name}_speed_up"]
    return found


def measure(bench: Bench, repeats: int) -> None:
    """Run every case in turn, `repeats` times; finding seeds reads the weights from
    disk before anything is timed.
    """
    choices = labels(bench.sizes.n_choices)[1]
    many, one = bench.prompt(bench.sizes.prompt), bench.prompt(bench.sizes.short_prompt)
    many_seed = lasting_seed(bench, many, bench.sizes.n_together)
    one_seed = lasting_seed(bench, one, 1)
    for _ in range(repeats):
        together(bench, many, many_seed)
        streams(bench, one, one_seed)
        selects(bench, choices)
        mixed(bench, choices, one_seed)
        first_token(bench)
        draft(bench)


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GGUF file (default: random weights of the 0.5B shape, in build/)")
    parser.add_argument("--quantisation", default="q8_0", help="of the random weights")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few of everything, without targets")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    path = options.model or generated_model("tiny" if options.quick else "0.5b", options.quantisation)
    refuse_under_load(allowed=options.under_load)
    sizes, threads = QUICK if options.quick else Sizes(), options.threads
    with ExitStack() as stack:
        bare = stack.enter_context(closing(Bare(path, n_ctx=sizes.n_ctx, n_threads=threads, fast=True)))
        settings = LlamaOptions(n_ctx=sizes.n_ctx, n_batch=sizes.n_batch, n_threads=threads, precision=Precision.FAST)
        model = open_model(path, settings)
        recorder = Recorder(model)
        llm = stack.enter_context(Engine(model))
        theirs = llama_cpp.Llama(
            str(path),
            n_ctx=sizes.n_ctx,
            n_batch=sizes.n_batch,
            n_threads=threads,
            n_threads_batch=threads,  # and no flash attention, as in the other two
            verbose=False,
        )
        stack.enter_context(closing(theirs))
        bench = Bench(bare, llm, theirs, recorder, sizes)
        measure(bench, options.repeats)
    facts = {"model": path.name, "threads": threads, "repeats": options.repeats}
    seconds = {f"{name}_s": bench.figures.median(name) for name in bench.figures.seconds}
    targets = NO_TARGETS if options.quick or options.model else TARGETS
    return report("generation", facts | seconds | bench.counts | ratios(bench.figures), targets, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
