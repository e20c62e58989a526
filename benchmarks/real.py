"""What selectrie costs on real weights, beside plain `llama_decode`: `python benchmarks/real.py`.

For each GGUF file in the folder that SELECTRIE_REAL_MODELS names. Our side is the whole call, in the default precision.
The other is bare `llama_decode` of the rows that the request needs, filled up to a multiple of 8, with the same attention
and cells; or, named `flash`, with llama.cpp's own (flash attention). Both run in turn; figures are medians of ratios.

- first: the first answer of a new process whose cache folder knows the model, and of one with an empty folder (`ever`);
  against a process that loads the model with llama-cpp-python and evaluates the same rows
- warm: other choices behind a prompt that was just asked, four labels and 77; three questions of `decide`, again
- cold: nothing cached, behind prompts of 60, 290 and 2 000 tokens
- together, stream: 8 sequences of one prompt; one stream in `fast` precision, against llama-cpp-python's own loop
- table: 64 messages with 12 labels, against a full call, for as many rows as the distinct prefixes have
- idle: a warm selection beside 1 500 cells of other prompts, against the same on an empty cache
- room: rows of 77 labels where 512 tokens have room, against those that the certificate and the prompt need
- python: milliseconds of processor time of Python's threads outside `llama_decode`, in the fastest warm selection

With `--under-load` processor time is measured in place of wall time.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import llama_cpp

import selectrie
from benchmarks._common import NO_TARGETS, Targets, arguments, refuse_under_load, report
from benchmarks.bare import N_BATCH, Bare, Call
from benchmarks.decide import INSTRUCTIONS, QUESTIONS_FIRST, STATE_FIRST, ids, messages, n_common, plans
from benchmarks.generation import SAMPLING
from benchmarks.workload import labels
from selectrie import Choice, Predicate, Score, StopParams
from selectrie.backends.llama_cpp.library import repacks_safely

COLD_TOKENS, QUICK_TOKENS = (60, 290, 2000), (16, 48, 96)
N_FILLED, N_REQUESTS, N_TOKENS, N_IDLE, ROOM, USUAL_CELLS = 8, 4, 32, 1500, 512, 8192
GOALS = Targets(
    at_most={
        "first_over_plain": 1.3,
        "first_ever_over_plain": 1.5,
        "warm_select_over_bare": 1.1,
        "warm_decide_over_bare": 1.1,
        "warm_77_over_bare": 1.3,
        **{f"cold_{n}_over_bare": 1.05 for n in COLD_TOKENS},
        **{f"cold_{n}_over_flash": 1.15 for n in COLD_TOKENS},
        "warm_select_over_fast": 1.1,
        "cold_290_over_fast": 1.15,
        "table_over_floor": 1.1,
        "idle_over_empty": 1.2,
        "room_rows_over_necessary": 1.35,
        "python_ms": 0.5,
    },
    at_least={"together_of_bare": 0.9, "stream_of_llama_cpp_python": 0.95},
)
QUESTIONS = {
    "topic": Choice(INSTRUCTIONS, ("card", "transfer", "exchange rate", "account")),
    "angry": Predicate("Is the customer angry?"),
    "urgent": Score("How urgent is it?", ("can wait", "soon", "at once")),
}
FIRST = """
import json, sys, selectrie
path, threads, prompt, choices = json.loads(sys.argv[1])
with selectrie.load(path, n_threads=threads) as llm:
    llm.select(prompt, choices)
"""
PLAIN = """
import ctypes, json, sys
import llama_cpp as c
path, n_threads, use_extra_bufts, flash, cells, n_ctx, prompt, n_tail = json.loads(sys.argv[1])
quiet = c.llama_log_callback(lambda *_: None)
c.llama_log_set(quiet, ctypes.c_void_p(0))
settings, params = c.llama_model_default_params(), c.llama_context_default_params()
settings.use_extra_bufts = use_extra_bufts
model = c.llama_model_load_from_file(path.encode(), settings)
params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, 512, 512
params.n_threads, params.n_threads_batch = n_threads, n_threads
params.flash_attn_type, params.type_k, params.type_v = flash, cells, cells
context, batch = c.llama_init_from_model(model, params), c.llama_batch_init(512, 0, 1)
for first, tokens, wanted_from in ((0, prompt, len(prompt) - 1), (len(prompt), prompt[:n_tail], 0)):
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, first + i, 1, i >= wanted_from
        batch.seq_id[i][0] = 0
    assert c.llama_decode(context, batch) == 0
    c.llama_get_logits(context)[0]
"""


def filled(n_rows: int) -> int:
    """Return a number of rows, filled up as calls are."""
    return -(-n_rows // N_FILLED) * N_FILLED


def processor_s() -> float:
    """Return the processor time of ended child processes."""
    times = os.times()
    return times.children_user + times.children_system


def outside_decode_s(function: Callable[[], Any]) -> float:
    """Return the processor time of Python's threads during a call, but for that inside `llama_decode`."""
    decode, inside = llama_cpp.llama_decode, []

    def counted(*args: Any) -> int:
        start = time.thread_time()
        code = decode(*args)
        inside.append(time.thread_time() - start)
        return code

    def spent() -> float:
        clocks = [time.pthread_getcpuclockid(one.ident) for one in threading.enumerate() if one.ident]
        return sum(map(time.clock_gettime, clocks))

    llama_cpp.llama_decode = counted
    try:
        start = spent()
        function()
        return spent() - start - sum(inside)
    finally:
        llama_cpp.llama_decode = decode


@dataclass
class Bench:
    """One real model, opened by each side, and the ratios measured so far.

    clock: what seconds are measured by. number: prompts so far, of which none comes twice.
    """

    path: Path
    threads: int
    clock: Callable[[], float]
    llm: selectrie.Engine
    fast: selectrie.Engine
    same: Bare
    flash: Bare
    theirs: llama_cpp.Llama
    ratios: dict[str, list[float]] = field(default_factory=dict)
    number: int = 0

    def add(self, name: str, ours: float, theirs: float) -> None:
        """Note a ratio of one repeat."""
        self.ratios.setdefault(name, []).append(ours / theirs)

    def timed(self, function: Callable[..., Any], *args: Any, **named: Any) -> float:
        """Return the seconds that a call takes."""
        start = self.clock()
        function(*args, **named)
        return self.clock() - start

    def prompt(self, n_tokens: int) -> str:
        """Return messages with their labels, and a message without one: at least n
        tokens, and others each time.
        """
        self.number += 1
        asked = messages(200)[1]
        shown = [f"Message: {text}\nIntent: {label}\n\n" for text, label in asked]
        text, end = "", f"Message: {asked[-self.number][0]}\nIntent:"
        for example in islice(cycle(shown), 7 * self.number, None):
            if len(self.llm.encode(text + end)) >= n_tokens:
                break
            text += example
        return text + end

    def bare_s(self, bare: Bare, context: Sequence[int], rows: Sequence[int]) -> tuple[float, list[float]]:
        """Return the seconds of bare calls: of the context, and of so many rows below it each."""
        context, bare.decode_s = [*context, *context[: filled(len(context)) - len(context)]], 0.0
        calls = [Call(filled(n), filled(n), range(min(64, n))) for n in rows]
        below = bare.replay(calls, context)
        return bare.decode_s - sum(below), below

    def first(self) -> None:
        """Compare new processes, of which the first has an empty cache folder."""
        prompt, choices = self.prompt(60), labels(4)[1]
        plan, params = self.llm.tokens(prompt, choices), self.same.params
        ours = ["-c", FIRST, json.dumps([str(self.path), self.threads, prompt, choices])]
        facts = [repacks_safely(), params.flash_attn_type, params.type_k, USUAL_CELLS + 512]
        work = [str(self.path), self.threads, *facts, ids(plan.context), filled(plan.rows_inner)]
        clock = self.clock if self.clock is time.perf_counter else processor_s
        with tempfile.TemporaryDirectory() as home:
            seconds = []
            for command in (ours, ours, ["-c", PLAIN, json.dumps(work)]):
                start, root = clock(), Path(__file__).resolve().parent.parent
                environment = os.environ | {"HOME": home, "PYTHONPATH": str(root / "src")}
                subprocess.run([sys.executable, *command], check=True, env=environment, cwd=root)
                seconds.append(clock() - start)
        self.add("first_ever_over_plain", seconds[0], seconds[2])
        self.add("first_over_plain", seconds[1], seconds[2])

    def warm(self) -> None:
        """Compare requests about a prompt that is cached."""
        prompt, names = self.prompt(290), labels(77)[1]
        sets = [names[4 * i : 4 * i + 4] for i in range(N_REQUESTS)]
        both = (self.llm, self.fast)
        for llm in both:
            llm.select(prompt, names[-7:])
        in_turn = [[self.timed(llm.select, prompt, choices) for llm in both] for choices in sets]
        ours, fast = (sum(seconds) for seconds in zip(*in_turn, strict=True))
        all_s = self.timed(self.llm.select, prompt, names)
        planned = [self.llm.tokens(prompt, choices) for choices in (*sets, names)]
        *below, all_below = self.bare_s(self.same, ids(planned[0].context), [one.rows_inner for one in planned])[1]
        self.add("warm_select_over_bare", ours, sum(below))
        self.add("warm_select_over_fast", ours, fast)
        self.add("warm_77_over_bare", all_s, all_below)
        for choices in sets:
            self.add("python_ms", 1000 * outside_decode_s(lambda choices=choices: self.llm.select(prompt, choices)), 1)
        state = self.prompt(60)
        self.llm.decide(state, QUESTIONS, params=STATE_FIRST)
        decide_s = self.timed(self.llm.decide, state, QUESTIONS, params=STATE_FIRST)
        planned = [plans(self.llm, [state], one, STATE_FIRST)[0] for one in QUESTIONS.values()]
        below = self.bare_s(self.same, ids(planned[0].context), [sum(one.rows_inner for one in planned)])[1]
        self.add("warm_decide_over_bare", decide_s, sum(below))

    def cold(self, sizes: Sequence[int]) -> None:
        """Compare requests on an empty cache, behind prompts of these sizes."""
        for n_tokens, name in zip(sizes, COLD_TOKENS, strict=True):
            prompt, choices = self.prompt(n_tokens), labels(4)[1]
            plan = self.llm.tokens(prompt, choices)
            self.llm.trim()
            ours = self.timed(self.llm.select, prompt, choices)
            for bare, side in ((self.same, "bare"), (self.flash, "flash")):
                context_s, below = self.bare_s(bare, ids(plan.context), [plan.rows_inner])
                self.add(f"cold_{name}_over_{side}", ours, context_s + sum(below))
            if name == 290:
                self.fast.trim()
                self.add("cold_290_over_fast", ours, self.timed(self.fast.select, prompt, choices))

    def generated(self) -> None:
        """Compare sequences drawn together, and one stream, each token by token."""
        prompt, seed, stopping = self.prompt(60), self.number, StopParams(max_tokens=N_TOKENS, min_tokens=N_TOKENS)
        self.llm.generate(prompt, stopping=StopParams(max_tokens=1))  # the prompt is cached from here on
        seconds = self.timed(self.llm.generate, prompt, n=8, seed=seed, stopping=stopping)
        calls, context = [Call(8, 8, range(8))] * (N_TOKENS - 1), self.llm.encode(prompt).tolist()
        self.add("together_of_bare", sum(self.same.replay(calls, context)), seconds)
        self.fast.trim()
        self.theirs.reset()
        ours = self.timed(lambda: list(self.fast.stream(prompt, seed=seed, stopping=stopping)))
        options = {"max_tokens": N_TOKENS, "seed": seed, "stream": True, **SAMPLING}
        theirs = self.timed(lambda: list(self.theirs.create_completion(prompt, **options)))
        n_drawn = 1 + self.theirs.n_tokens - len(self.theirs.tokenize(prompt.encode()))
        self.add("stream_of_llama_cpp_python", theirs / n_drawn, ours / N_TOKENS)

    def table(self, n_messages: int) -> None:
        """Compare a table with a full call, for as many rows as its distinct prefixes have."""
        states = [text for text, _ in messages(n_messages)[1]]
        question = Choice(INSTRUCTIONS, [name.strip() for name in labels(12)[1]])

        def decided() -> None:
            with self.llm.decision_scorer({"q": question}, params=QUESTIONS_FIRST) as scorer:
                scorer.decisions(states)

        ours = self.timed(decided)
        planned = plans(self.llm, states, question, QUESTIONS_FIRST)
        contexts = [ids(one.context) for one in planned]
        n_shared = min(n_common(contexts[0], other) for other in contexts[1:])
        n_inner = sum(one.rows_inner for one in planned)
        n_below = sum(len(one) - n_shared for one in contexts) + n_inner
        full = Call(N_BATCH, round(N_BATCH * (n_inner + n_messages) / n_below), range(64))
        below_s = sum(self.same.replay([full], contexts[0][:n_shared])) * n_below / N_BATCH
        needed = self.same.prompt(contexts[0][:n_shared]) + below_s
        self.add("table_over_floor", ours, needed)

    def idle(self) -> None:
        """Compare a warm selection beside cells of other prompts with one on an empty cache."""
        prompt, names, seconds = self.prompt(60), labels(77)[1], []
        self.llm.trim()
        for others in ([], [self.prompt(N_IDLE // 5) for _ in range(5)]):
            self.llm.select(prompt, names[40:44])
            for other in others:
                self.llm.select(other, names[40:44])
            seconds.append(
                sum(self.timed(self.llm.select, prompt, names[4 * i : 4 * i + 4]) for i in range(N_REQUESTS))
            )
        self.add("idle_over_empty", seconds[1], seconds[0])

    def room(self) -> None:
        """Count the rows of 77 labels where few tokens have room."""
        prompt, names = self.prompt(60), labels(77)[1]
        with selectrie.load(self.path, n_ctx=ROOM, n_threads=self.threads, untrusted=False) as llm:
            found = llm.select(prompt, names)
            needed = filled(llm.tokens(prompt, names).rows_prompt) + filled(found.certificate.nodes_evaluated)
        self.add("room_rows_over_necessary", found.cost.rows, needed)


def measured(path: Path, options: Any, clock: Callable[[], float]) -> dict[str, float]:
    """Return the median ratios of one model."""
    n_ctx, threads, quick = 4096, options.threads, options.quick
    with ExitStack() as stack:
        opened = [
            stack.enter_context(selectrie.load(path, n_ctx=n_ctx, n_threads=threads, precision=one, untrusted=False))
            for one in ("exact", "fast")
        ]
        bare = [
            stack.enter_context(closing(Bare(path, n_ctx=n_ctx, n_threads=threads, flash=one, clock=clock)))
            for one in (False, True)
        ]
        theirs = llama_cpp.Llama(str(path), n_ctx=n_ctx, n_threads=threads, n_threads_batch=threads, verbose=False)
        stack.enter_context(closing(theirs))
        bench = Bench(path, threads, clock, *opened, *bare, theirs)
        opened[0].select("The weather is", [" good", " bad"])  # the first call reads the weights and checks the model
        for _ in range(options.repeats):
            bench.first()
            bench.warm()
            bench.cold(QUICK_TOKENS if quick else COLD_TOKENS)
            bench.generated()
            bench.table(8 if quick else 64)
            bench.idle()
        bench.room()
    found = {name: median(values) for name, values in bench.ratios.items()}
    return found | {"python_ms": min(bench.ratios["python_ms"])}


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short prompts and one repeat, without targets")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    folder = os.environ.get("SELECTRIE_REAL_MODELS", "")
    files = sorted(Path(folder).glob("*.gguf")) if folder else []
    if not files:
        skipped = "skipped: SELECTRIE_REAL_MODELS names no folder with GGUF files"
        return report("real", {"models": skipped}, NO_TARGETS, as_json=options.json)
    refuse_under_load(allowed=options.under_load)
    options.repeats = 1 if options.quick else options.repeats
    clock = time.process_time if options.under_load else time.perf_counter
    figures: dict[str, Any] = {"threads": options.threads, "repeats": options.repeats, "clock": clock.__name__}
    goals = Targets()
    for path in files:
        name = path.stem.partition("-")[0]
        figures |= {f"{name}_{row}": value for row, value in measured(path, options, clock).items()}
        at_most, at_least = (
            {f"{name}_{row}": bound for row, bound in one.items()} for one in (GOALS.at_most, GOALS.at_least)
        )
        goals = goals.joined(Targets(at_most, at_least))
    return report("real", figures, NO_TARGETS if options.quick else goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
