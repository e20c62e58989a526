"""Do lm-evaluation-harness's own `hf` model and ours say the same, and who is faster? `python benchmarks/lm_eval_hf.py`.

Both run the harness's own tasks over local files, 200 items a set, on one checkpoint in float32 on the processor: stories260K, and
random weights of a shape of 32 million with a tokenizer that is trained on the items. Nothing is downloaded. The sets:

- arc_easy: four short answers to a short question
- hellaswag: four long endings of one context
- labels: eight labels of a message, behind a description of 100 words that all items share
- blimp: two whole sentences without a context
- lambada: the last word of a passage (`loglikelihood`)
- paragraphs: whole texts (`loglikelihood_rolling`); the last is longer than the model's context
- continued: 16 tokens after the beginnings of these texts, greedily (`generate_until`)

The ways run in turn in one process: hf, and ours in `exact` and in `fast` precision. Seconds are those of answering the requests,
tokenization included; what the harness does before and after is the same. Figures are medians. For each set they are the seconds,
their ratio, the largest difference of a log-likelihood in nats (of whole texts, for each 100 tokens), the number of requests whose
`is_greedy` or text differs, and the number of metrics that differ. hf adds log-probabilities in float32, which by itself moves a text
of 1 500 nats by 1e-4; here it adds them in float64 (`softmax_dtype`), as ours does. `--quick` looks at a tiny model and few items
and checks nothing.

Data come from the folder SELECTRIE_TEST_DATA names. Without them, or without the packages of the extras `transformers` and `lm-eval`,
nothing is measured.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import csv
import importlib.util
import json
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._common import NO_TARGETS, Figures, Targets, arguments, refuse_under_load, report
from benchmarks.modules import SHAPES, STORIES, missing_packages, open_source, set_threads, skipped, versions
from benchmarks.workload import data_file

N_ITEMS, N_LABELS, N_NEW = 200, 8, 16
N_POSITIONS = 1024
"""Positions of a model of random weights."""
MAX_NATS = 1e-4
SHARED = ("hellaswag", "labels")
"""Sets whose requests share contexts: ours is to be ahead there."""
METHODS = ("loglikelihood", "loglikelihood_rolling", "generate_until")
TEXT = "text/english_books_sample.txt"
MESSAGES = "labels/banking77_test.csv"
FILES = (
    TEXT,
    MESSAGES,
    "mc/arc_easy_val.jsonl",
    "mc/hellaswag_val_1000.jsonl",
    "mc/blimp.jsonl",
    "mc/lambada_openai.jsonl",
)
CHOICES = {
    "output_type": "multiple_choice",
    "doc_to_text": "{{context}}",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "gold",
    "metric_list": [{"metric": name} for name in ("acc", "acc_norm", "acc_mutual_info")],
}


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Records, and the harness's configuration of a task over them."""

    name: str
    records: list[dict[str, Any]]
    config: dict[str, Any]

    def task(self, folder: Path) -> dict[str, Any]:
        """Write the records to a file, and return the configuration of the task."""
        path = folder / f"{self.name}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in self.records), encoding="utf-8")
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path)}}, "test_split": "test"}
        return {"task": self.name, **data, **self.config}


def json_lines(name: str, n: int, *fields: str) -> list[dict[str, Any]]:
    """Return some fields of n records of a file, evenly spread over it."""
    path = data_file(name)
    assert path is not None
    lines = path.read_text(encoding="utf-8").splitlines()
    records = [json.loads(lines[i * len(lines) // n]) for i in range(n)]
    return [{name: record[name] for name in fields} for record in records]


def messages(n: int) -> tuple[list[str], list[tuple[str, int]]]:
    """Return labels of Banking77, and n messages with the number of the label of each."""
    path = data_file(MESSAGES)
    assert path is not None
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(row["text"].strip(), row["category"]) for row in csv.DictReader(file)]
    labels = sorted({label for _, label in rows})[:: 77 // N_LABELS][:N_LABELS]
    known = [(text, labels.index(label)) for text, label in rows if label in labels and "\n" not in text]
    return [label.replace("_", " ") for label in labels], [known[i * len(known) // n] for i in range(n)]


def paragraphs(n: int) -> list[str]:
    """Return n - 1 paragraphs of a book, and a text of many of them."""
    path = data_file(TEXT)
    assert path is not None
    parts = [" ".join(part.split()) for part in path.read_text(encoding="utf-8").split("\n\n")]
    parts = [part for part in parts if 150 < len(part) < 600]
    return [*parts[: n - 1], " ".join(parts[n : n + 20])]


def task_sets(n: int) -> Iterator[TaskSet]:
    """Yield the sets, of n items each."""
    fields = ("context", "choices", "gold")
    yield TaskSet("arc_easy", json_lines("mc/arc_easy_val.jsonl", n, *fields), CHOICES)
    yield TaskSet("hellaswag", json_lines("mc/hellaswag_val_1000.jsonl", n, *fields), CHOICES)
    labels, asked = messages(n + N_LABELS)
    shown = {number: text for text, number in asked[:N_LABELS]}
    description = f"Every message to the bank is about one of these: {', '.join(labels)}.\n" + "".join(
        f"Message: {text}\nTopic: {labels[number]}\n" for number, text in sorted(shown.items())[:4]
    )
    records = [
        {"context": f"Message: {text}\nTopic:", "choices": labels, "gold": number} for text, number in asked[-n:]
    ]
    yield TaskSet("labels", records, {**CHOICES, "description": description})
    blimp = {**CHOICES, "target_delimiter": "", "metric_list": [{"metric": "acc"}]}
    yield TaskSet("blimp", json_lines("mc/blimp.jsonl", n, *fields), blimp)
    last = {
        "output_type": "loglikelihood",
        "doc_to_text": "{{context}}",
        "doc_to_target": "{{' ' + continuation}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}, {"metric": "perplexity"}],
    }
    yield TaskSet("lambada", json_lines("mc/lambada_openai.jsonl", n, "context", "continuation"), last)
    texts = paragraphs(n)
    whole = {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "word_perplexity"}, {"metric": "byte_perplexity"}],
    }
    yield TaskSet("paragraphs", [{"text": text} for text in texts], whole)
    continued = {
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{target}}",
        "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": N_NEW, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    }
    records = [{"text": " ".join(text.split()[:12]), "target": "x"} for text in texts]
    yield TaskSet("continued", records, continued)


def write_checkpoint(folder: Path, shape: str, sets: list[TaskSet]) -> None:
    """Save random weights of a shape, and a byte-level tokenizer that is trained on the items.

    The tokenizer has a BOS token, and does not put it before texts.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    n_tokens = max(SHAPES[shape]["vocab_size"], 512)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_tokens - 8,  # Transformers adds some of its own
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((json.dumps(one.records, ensure_ascii=False) for one in sets), trainer)
    named = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
    source = open_source(shape, n_positions=N_POSITIONS)
    if n_tokens > source.module.config.vocab_size:
        source.module.resize_token_embeddings(n_tokens)
    source.module.save_pretrained(folder)


@dataclass(slots=True)
class Answering:
    """A model of the harness, and what it answered in the last run.

    Attributes:
        texts: The first text of each request.
        answers: Log-likelihoods with `is_greedy`, log-likelihoods or texts.
        metrics: Value by name, as the harness reports them.
        seconds: Spent on answering.
    """

    model: Any
    before: Callable[[], object]
    texts: list[str] = field(default_factory=list, init=False)
    answers: list[Any] = field(default_factory=list, init=False)
    metrics: dict[str, float] = field(default_factory=dict, init=False)
    seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        for name in METHODS:
            setattr(self.model, name, self._timed(getattr(self.model, name)))

    def _timed(self, method: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def timed(requests: list[Any], disable_tqdm: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 - the harness's
            start = time.perf_counter()
            answers = method(requests, disable_tqdm=disable_tqdm)
            self.seconds += time.perf_counter() - start
            self.answers += answers
            self.texts += [request.args[0] for request in requests]
            return answers

        return timed

    def run(self, task: dict[str, Any], limit: int | None = None) -> float:
        """Run one task, or its first items, and return the seconds."""
        import lm_eval
        from lm_eval.tasks import TaskManager

        self.before()
        self.texts, self.answers, self.seconds = [], [], 0.0
        found = lm_eval.simple_evaluate(
            self.model,
            tasks=[dict(task)],
            task_manager=TaskManager(include_defaults=False),
            limit=limit,
            bootstrap_iters=0,
            log_samples=False,
        )
        figures = found["results"][task["task"]]
        self.metrics = {
            name.partition(",")[0]: float(value)
            for name, value in figures.items()
            if name.endswith(",none") and "_stderr" not in name
        }
        return self.seconds


def open_ways(folder: Path, options: Any) -> dict[str, Answering]:
    """Return the harness's own model and ours, on one checkpoint."""
    from lm_eval.models.huggingface import HFLM

    from selectrie.evaluation.lm_eval_model import SelectrieLM

    size = options.batch_size
    theirs = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=size, softmax_dtype="float64")
    ways = {"hf": Answering(theirs, before=lambda: None)}
    for precision in ("exact", "fast"):
        model = SelectrieLM(path=str(folder), precision=precision, dtype="float32", n_threads=options.threads)
        ways[precision] = Answering(model, before=model._engine.trim)
    return ways


def compared(text: str) -> str:
    """Return a text without what is written in two ways.

    Transformers drops a space that a text begins with. We leave out a character of which the last token has only the first bytes.
    """
    return text.lstrip().rstrip("\ufffd")


def differences(ours: Answering, theirs: Answering) -> dict[str, float]:
    """Return how far the answers of two models are apart."""
    assert len(ours.answers) == len(theirs.answers)
    nats, n_others = 0.0, 0
    for text, one, other in zip(ours.texts, ours.answers, theirs.answers, strict=True):
        if isinstance(one, str):
            n_others += compared(one) != compared(other)
        elif isinstance(one, tuple):
            nats = max(nats, abs(one[0] - other[0]))
            n_others += one[1] != other[1]
        else:
            nats = max(nats, abs(one - other) / max(1.0, len(ours.model.tok_encode(text)) / 100))
    n_metrics = sum(
        abs(value - theirs.metrics[name]) > 1e-6 * max(1.0, abs(value)) for name, value in ours.metrics.items()
    )
    return {"nats": nats, "answers_that_differ": n_others, "metrics_that_differ": n_metrics}


def measure(label: str, folder: Path, sets: list[TaskSet], options: Any) -> dict[str, Any]:
    """Return the figures of one checkpoint."""
    found: dict[str, Any] = {}
    ways = open_ways(folder, options)
    with tempfile.TemporaryDirectory() as place:
        for way in ways.values():  # the first run makes the self-check
            way.run(sets[0].task(Path(place)), limit=2)
        for one in sets:
            task, figures = one.task(Path(place)), Figures()
            for _ in range(options.repeats):
                for name, way in ways.items():
                    figures.add(name, way.run(task))
            hf, name = ways["hf"], f"{label}_{one.name}"
            found[f"{name}_requests"] = len(hf.answers)
            found |= {f"{name}_hf_{metric}": value for metric, value in hf.metrics.items()}
            found[f"{name}_hf_s"] = figures.median("hf")
            for precision in ("exact", "fast"):
                found[f"{name}_{precision}_s"] = figures.median(precision)
                found[f"{name}_hf_over_{precision}"] = figures.median("hf") / figures.median(precision)
                apart = differences(ways[precision], hf)
                found |= {f"{name}_{precision}_{what}": value for what, value in apart.items()}
            sys.stderr.write(f"{name}: {', '.join(f'{way} {figures.median(way):.3g} s' for way in ways)}\n")
    return found


def targets(figures: dict[str, Any]) -> Targets:
    """Return the bounds: equal metrics and answers, log-likelihoods to 1e-4; ahead where contexts are shared."""
    at_most = {name: MAX_NATS for name in figures if name.endswith("_nats")}
    at_most |= {name: 0 for name in figures if name.endswith("_that_differ")}
    ahead = {name: 1.0 for name in figures for one in SHARED if f"_{one}_hf_over_" in name}
    return Targets(at_most=at_most, at_least=ahead)


def missing() -> str | None:
    """Return why nothing can be measured, or None."""
    if importlib.util.find_spec("lm_eval") is None:
        return "skipped: lm_eval not installed (extra lm-eval)"
    absent = [name for name in FILES if data_file(name) is None]
    return f"skipped: SELECTRIE_TEST_DATA has no {absent[0]}" if absent else None


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=(*SHAPES, STORIES), help="this model alone")
    parser.add_argument("--sets", nargs="*", help="these sets alone")
    parser.add_argument("--items", type=int, default=N_ITEMS, help="of each set")
    parser.add_argument("--batch-size", type=int, default=8, help="of hf")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few items, without targets")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if missing_packages():
        return report("lm_eval_hf", skipped(), NO_TARGETS, as_json=options.json)
    reason = missing()
    if reason is not None:
        return report("lm_eval_hf", {"lm_eval": reason}, NO_TARGETS, as_json=options.json)
    refuse_under_load(allowed=options.under_load)
    set_threads(options.threads)
    os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    sets = [one for one in task_sets(8 if options.quick else options.items) if one.name in (options.sets or [one.name])]
    shapes = ("tiny",) if options.quick else (options.shape,) if options.shape else (STORIES, "32m")
    figures: dict[str, Any] = {**versions(), "threads": options.threads, "repeats": options.repeats}
    for shape in shapes:
        with tempfile.TemporaryDirectory() as made:
            folder = data_file(f"weights/{STORIES}-hf") if shape == STORIES else Path(made)
            if folder is None:
                raise SystemExit(f"{STORIES}: SELECTRIE_TEST_DATA has no weights/{STORIES}-hf")
            if shape != STORIES:
                write_checkpoint(folder, shape, sets)
            figures |= measure(shape.replace("-", "_").replace(".", "_"), folder, sets, options)
    return report("lm_eval_hf", figures, NO_TARGETS if options.quick else targets(figures), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
