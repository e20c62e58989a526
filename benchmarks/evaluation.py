"""Does scoring a benchmark cost what the hardware asks for, and less than other ways? `python benchmarks/evaluation.py`.

HellaSwag, ARC-Easy, MMLU with 5 shots and BLiMP, on random weights of the 0.5B shape (q8_0), on the embedded model and on
stories260K, this one in both precisions; items a second of each way, timed in one run, one after the other:

- ours: from items to records, planning included (`selectrie eval` without reading the file)
- floor: bare `llama_decode` of the run's distinct rows in full batches, as many outputs as the run wanted, below as many cells as the
  run held on average
- naive: bare decodes of every context with every choice, from an empty memory
- loop: bare decodes, one question at a time: its context once, each choice below it (a prompt cache within the question)
- loop_kept: as loop, and what a question shares with the one before it stays (a prompt cache between questions)
- hf: lm-evaluation-harness' `hf` model in float32 (extra lm-eval, and torch), on the same shape, or on the same weights

The bare ways count seconds inside `llama_decode` alone; ours and hf count everything, probabilities included. At the 0.5B shape
the slow ways are timed on the first items and count for as many rows. MMLU is measured there alone: it does not fit the
others' context. Data come from the folder SELECTRIE_TEST_DATA names. `--quick` leaves the 0.5B shape out and checks nothing.

What stories260K misses, and why: its heads are 8 wide. llama.cpp's attention makes a call for every product of 8 numbers
and reads 256 cells at least, 88 microseconds a row on one core, where torch reads as many cells as there are tokens and
takes 43 for the rows of a batch of 8 sequences. hf then stays ahead although it evaluates up to three times as many rows.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import selectrie
from benchmarks._common import NO_TARGETS, Targets, arguments, refuse_under_load, report
from benchmarks.bare import N_BATCH, Bare, Call
from benchmarks.workload import data_file, generated_model
from selectrie.backends.llama_cpp.gguf_header import read_header
from selectrie.engine.engine import Engine
from selectrie.evaluation.dataset import NO_SHOTS, Shots, items_of, task_for
from selectrie.evaluation.evaluator import measure_units
from selectrie.evaluation.work_units import TaskItems, WorkUnit, plan
from selectrie.evaluation.dataset import read_data
from selectrie.core.model import Model

HALF_B = "0.5b"
EMBEDDED = Path(selectrie.__file__).parent / "assets" / "embedded.gguf"
SETS = {
    "hellaswag": "mc/hellaswag_val_1000.jsonl",
    "arc_easy": "mc/arc_easy_val.jsonl",
    "mmlu": "mc/mmlu_validation.jsonl",
    "blimp": "mc/blimp.jsonl",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Items of each set: measured by us, and by the slow ways."""

    ours: dict[str, int]
    slow: dict[str, int]


LARGE = Sizes(
    {"hellaswag": 10, "arc_easy": 20, "mmlu": 20, "blimp": 60}, {"hellaswag": 2, "arc_easy": 4, "mmlu": 1, "blimp": 10}
)
SMALL = Sizes({"hellaswag": 40, "arc_easy": 100, "blimp": 300}, {"hellaswag": 40, "arc_easy": 100, "blimp": 300})


@dataclass(slots=True)
class Watch:
    """Notes the calls of a run: rows, rows with outputs, cells held before the call."""

    calls: list[tuple[int, int, int]] = field(default_factory=list)

    def follow(self, model: Model) -> Model:
        """Note every call of a model."""
        extend = model.extend

        def noted(parents: Any, tokens: Any, wanted: Any, keep: Any) -> Any:
            held = model.limits.nodes - model.capacity().nodes
            extension = extend(parents, tokens, wanted, keep)
            self.calls.append((extension.rows_evaluated, int(wanted.sum()), held))
            return extension

        model.extend = noted  # type: ignore[method-assign]
        return model

    def full_batches(self) -> tuple[list[Call], int]:
        """Return the same rows and outputs in full batches, and the mean number of
        cells below them.
        """
        rows, wanted = (sum(call[i] for call in self.calls) for i in range(2))
        held = sum(call[0] * call[2] for call in self.calls) // max(1, rows)
        n = -(-rows // N_BATCH)
        sizes = [rows // n + (i < rows % n) for i in range(n)]
        outputs = [wanted // n + (i < wanted % n) for i in range(n)]
        return [Call(size, min(size, w), range(1, 9)) for size, w in zip(sizes, outputs, strict=True)], held


def ours(llm: Engine, task: TaskItems) -> tuple[float, tuple[WorkUnit, ...], Watch]:
    """Return the seconds from items to records, the units, and the calls that were
    made.
    """
    watch = Watch()
    model = llm._model
    solo = type(model).new_context

    def watched(self: Model, *sizes: int) -> Model:
        return watch.follow(solo(self, *sizes))

    type(model).new_context = watched  # type: ignore[method-assign]
    try:
        start = time.perf_counter()
        units = plan(llm.vocabulary, llm.limits, [task])
        n_records = sum(len(done.records) for done in measure_units(llm, units))
        seconds = time.perf_counter() - start
    finally:
        type(model).new_context = solo  # type: ignore[method-assign]
    assert n_records == len(task.items)
    return seconds, units, watch


def floor(bare: Bare, watch: Watch) -> float:
    """Return the seconds inside bare decodes of the rows of a run in full batches."""
    calls, held = watch.full_batches()
    context = [7919 * (1 + i) % bare.n_vocabulary for i in range(held)]
    return sum(sum(bare.replay([call], context)) for call in calls)


Pair = tuple[list[int], list[int]]


def n_rows(asked: Sequence[Sequence[Pair]]) -> int:
    """Return the number of rows for evaluating every context with every choice."""
    return sum(len(context) + len(rest) - 1 for pairs in asked for context, rest in pairs)


def questions(units: Sequence[WorkUnit]) -> list[list[Pair]]:
    """Return context and continuation of every choice of every item."""
    found: list[list[Pair]] = []
    for unit in units:
        sequences = unit.sequences
        for entry in unit.entries:
            pairs = []
            for i in range(entry.first, entry.first + len(entry.item.choices)):
                tokens = sequences.tokens[sequences.offsets[i] : sequences.offsets[i + 1]].tolist()
                first = int(sequences.first_scored[i])
                pairs.append((tokens[:first], tokens[first:]))
            found.append(pairs)
    return found


def naive(bare: Bare, asked: Sequence[Sequence[Pair]]) -> float:
    """Evaluate every context with every choice, each alone."""
    seconds = 0.0
    for pairs in asked:
        for context, rest in pairs:
            bare.clear()
            seconds += run(bare, [*context, *rest][:-1], 0, len(rest))
    return seconds


def run(bare: Bare, tokens: Sequence[int], start: int, n_wanted: int) -> float:
    """Decode a run of sequence 0 in batches, the last rows wanted."""
    seconds = 0.0
    for at in range(0, len(tokens), N_BATCH):
        part = tokens[at : at + N_BATCH]
        left = len(tokens) - at - len(part)
        bare.fill_run(part, start + at, 0, max(0, min(len(part), n_wanted - left)))
        seconds += bare.decode()
    return seconds


def loop(bare: Bare, asked: Sequence[Sequence[Pair]], *, kept: bool) -> float:
    """Evaluate one question at a time: what its choices share once, then each of them
    below it.

    kept: whether what it shares with the question before stays.
    """
    seconds, before = 0.0, list[int]()
    bare.clear()
    for pairs in asked:
        shared = common([[*context, *rest][:-1] for context, rest in pairs])
        n_same = len(common([before, shared])) if kept else 0
        n_same = min(n_same, len(shared) - 1)
        bare.cut(0, n_same) if kept and n_same else bare.clear()
        seconds += run(bare, shared[n_same:], n_same, 1)
        for context, rest in pairs:
            whole = [*context, *rest][:-1]
            own = whole[len(shared) :]
            if own:
                seconds += run(bare, own, len(shared), min(len(own), len(rest)))
                bare.cut(0, len(shared))
        before = shared
    return seconds


def common(sequences: Sequence[Sequence[int]]) -> list[int]:
    """Return the length of the longest common beginning."""
    result = []
    for column in zip(*sequences, strict=False):
        if len(set(column)) > 1:
            break
        result.append(column[0])
    return result


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Llama network."""

    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int


HALF_B_SHAPE = Shape(vocabulary=151_936, width=896, inner=4864, layers=24, heads=14, key_heads=2)


def shape_of(path: Path) -> Shape:
    """Return the shape of a Llama model in a GGUF file."""
    header = read_header(path)
    names = (
        "embedding_length",
        "feed_forward_length",
        "block_count",
        "attention.head_count",
        "attention.head_count_kv",
    )
    numbers = [header.metadata_int("{arch}." + name) or 0 for name in names]
    return Shape(header.lengths["tokenizer.ggml.tokens"], *numbers)


class Harness:
    """The `hf` model of lm-evaluation-harness in float32: from a folder, or with random
    weights of a shape.
    """

    def __init__(self, source: Path | Shape, threads: int) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import torch
        from lm_eval.models.huggingface import HFLM
        from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

        torch.set_num_threads(threads)
        if isinstance(source, Path):
            self.model = HFLM(pretrained=str(source), device="cpu", dtype="float32", batch_size=8)
            return
        config = LlamaConfig(
            vocab_size=source.vocabulary,
            hidden_size=source.width,
            intermediate_size=source.inner,
            num_hidden_layers=source.layers,
            num_attention_heads=source.heads,
            num_key_value_heads=source.key_heads,
            max_position_embeddings=32_768,
            tie_word_embeddings=True,
        )
        with torch.device("meta"):
            network = LlamaForCausalLM(config)
        network = network.to_empty(device="cpu")
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.02)
        network.tie_weights()
        tokenizer = AutoTokenizer.from_pretrained(str(data_file("weights/stories260K-hf")))
        self.model = HFLM(pretrained=network.eval(), tokenizer=tokenizer, batch_size=8)

    def seconds(self, asked: Sequence[Sequence[Pair]]) -> float:
        """Return the seconds for every choice of these items."""
        requests = [(("", ""), list(context), list(rest)) for pairs in asked for context, rest in pairs]
        start = time.perf_counter()
        self.model._loglikelihood_tokens(requests, disable_tqdm=True)
        return time.perf_counter() - start


def harness(source: Path | Shape | None, threads: int) -> Harness | None:
    """Return the harness if it is installed."""
    if source is None:
        return None
    try:
        return Harness(source, threads)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"hf is not measured: {error}\n")
        return None


def tasks(names: Sequence[str], sizes: Sizes, most: int | None = None) -> Iterator[tuple[str, TaskItems]]:
    """Yield the items of each set that is available; most: of a set."""
    for name in names:
        path = data_file(SETS[name])
        if path is None:
            sys.stderr.write(f"{name} is not measured: set SELECTRIE_TEST_DATA to a folder that has {SETS[name]}\n")
            continue
        data = read_data(path)
        shots = Shots(5, read_data(path.with_name("mmlu_dev.jsonl"))) if name == "mmlu" else NO_SHOTS
        limit = sizes.ours[name] if most is None else min(most, sizes.ours[name])
        yield name, items_of(task_for(data), data, shots=shots, limit=limit)


@dataclass(frozen=True, slots=True)
class Case:
    """One model. label: in the names of its figures. hf: folder or shape of the
    harness' model.
    """

    label: str
    path: Path
    sizes: Sizes
    hf: Path | Shape | None
    is_fast: bool = False


def measure(case: Case, options: Any) -> dict[str, Any]:
    """Return the items a second of each way on one model, and the ratios."""
    found: dict[str, Any] = {}
    label, sizes = case.label, case.sizes
    names = [name for name in SETS if name in sizes.ours]
    theirs = harness(case.hf, options.threads) if options.hf else None
    precision = "fast" if case.is_fast else "exact"
    with (
        closing(Bare(case.path, n_ctx=4096, n_threads=options.threads, fast=case.is_fast)) as bare,
        selectrie.load(case.path, n_ctx=options.context, n_threads=options.threads, precision=precision) as llm,
    ):
        for name, task in tasks(names, sizes, options.items):
            ours(llm, replace(task, items=task.items[:1]))  # the first run reads the weights and checks the model
            best: dict[str, list[float]] = {}
            n_items = len(task.items)
            n_slow = min(sizes.slow[name], n_items)
            for _ in range(options.repeats):
                seconds, units, watch = ours(llm, task)
                asked = questions(units)
                few, more = asked[:n_slow], asked[: 2 * n_slow]
                share = n_rows(few) / n_rows(asked)
                best.setdefault("ours", []).append(seconds / n_items)
                best.setdefault("floor", []).append(floor(bare, watch) / n_items)
                best.setdefault("naive", []).append(naive(bare, few) / share / n_items)
                best.setdefault("loop", []).append(loop(bare, few, kept=False) / share / n_items)
                kept_share = n_rows(more) / n_rows(asked)
                best.setdefault("loop_kept", []).append(loop(bare, more, kept=True) / kept_share / n_items)
                if theirs is not None:
                    best.setdefault("hf", []).append(theirs.seconds(few) / share / n_items)
            median = {way: float(np.median(values)) for way, values in best.items()}
            rows = sum(call[0] for call in watch.calls)
            sys.stderr.write(f"{label} {name}: {', '.join(f'{way} {1 / v:.4g}/s' for way, v in median.items())}\n")
            found |= {f"{label}_{name}_{way}_items_per_s": 1 / value for way, value in median.items()}
            found |= {f"{label}_{name}_over_floor": median["ours"] / median["floor"]}
            found |= {
                f"{label}_{name}_{way}_over_ours": value / median["ours"]
                for way, value in median.items()
                if way not in ("ours", "floor")
            }
            found |= {
                f"{label}_{name}_rows": rows,
                f"{label}_{name}_rows_naive": sum(int((np.diff(u.sequences.offsets) - 1).sum()) for u in units),
            }
    return found


def targets(figures: dict[str, Any]) -> Targets:
    """Return the targets: at most 1.10 of the floor; ahead of the naive way, the loop
    and hf on every set; on MMLU three times the loop.
    """
    at_most = {name: 1.10 for name in figures if name.endswith("_over_floor")}
    ahead = [name for name in figures if name.endswith(("_naive_over_ours", "_loop_over_ours", "_hf_over_ours"))]
    at_least = {name: 3.0 if "mmlu_loop" in name else 1.0 for name in ahead}
    return Targets(at_most=at_most, at_least=at_least)


def cases(*, half_b: bool) -> Iterator[Case]:
    """Yield the models that are available."""
    stories = data_file("weights/stories260K.gguf")
    if stories is not None:
        folder = data_file("weights/stories260K-hf")
        yield Case("stories", stories, SMALL, folder)
        yield Case("stories_fast", stories, SMALL, folder, is_fast=True)
    yield Case("embedded", EMBEDDED, SMALL, shape_of(EMBEDDED))
    if half_b:
        yield Case("half_b", generated_model(HALF_B, "q8_0"), LARGE, HALF_B_SHAPE)


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="real small weights alone, no targets")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--context", type=int, default=4096, help="tokens held at once, or less if the model says so")
    parser.add_argument("--only", nargs="*", default=(), help="these models alone, by the label of their figures")
    parser.add_argument("--items", type=int, help="at most so many of each set")
    parser.add_argument("--no-hf", dest="hf", action="store_false", help="leave the harness' own model out")
    options = parser.parse_args()
    refuse_under_load(allowed=options.under_load)
    figures: dict[str, Any] = {"threads": options.threads, "repeats": options.repeats}
    for case in cases(half_b=not options.quick):
        if not options.only or case.label in options.only:
            figures |= measure(case, options)
    return report("evaluation", figures, NO_TARGETS if options.quick else targets(figures), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
