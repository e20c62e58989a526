"""What does recording cost, and how large is a trace? Side by side in one run: `python benchmarks/tracing.py`.

On the embedded model (or `--model`), each way on an engine of its own, interleaved, with an empty cache before each request:

- plain: requests without a recording
- recorded: the same under `record`. Every answer is compared with the plain one, to the last bit

The requests: a select among 64 labels (`select`), a best-first select among 1000 (`search`), a decision about 16 states
(`decide`), and a greedy text of 64 tokens (`generate`). `…_recorded_over_plain` is the median over repeats of the ratio of
neighbours, and `…_processor_over_plain` that of the sums of processor time, of all threads. `replay_over_plain` is all of them from their trace. `select_64_bytes` is the size of the trace of one select of 64
labels without the vocabulary, `vocabulary_bytes` what the vocabulary adds. `--json` prints one object of figures as the last
line.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import selectrie
from benchmarks._common import Targets, arguments, refuse_under_load, report

TARGETS = Targets(
    at_most={
        "select_recorded_over_plain": 1.05,
        "search_recorded_over_plain": 1.05,
        "decide_recorded_over_plain": 1.05,
        "generate_recorded_over_plain": 1.05,
        "select_64_bytes": 50_000,
    },
    at_least={"recorded_as_plain": 1, "replayed_as_plain": 1},
)
REPEATS = 15
WORDS = ("order", "card", "money", "refund", "phone", "letter", "account", "parcel")
LABELS = [f" {one} {other}" for one in WORDS for other in WORDS]
MANY = [f"{label} {word}" for label in LABELS for word in WORDS] + [
    f"{label} twice {word}" for label in LABELS for word in WORDS
]
PROMPT = "The customer wrote that the card had not come and asked where it was. The message is about"
STATES = [f"Message {n}: my {word} has not come" for n, word in enumerate(WORDS * 2)]

Ask = Callable[[selectrie.Engine], Any]
ASKS: dict[str, Ask] = {
    "select": lambda llm: llm.select(PROMPT, LABELS),
    "search": lambda llm: llm.select(PROMPT, MANY[:1000], search=selectrie.SearchParams(method="best_first")),
    "decide": lambda llm: llm.decide_many(STATES, {"about": selectrie.Choice("What is it about?", list(WORDS))}),
    "generate": lambda llm: llm.generate(
        PROMPT,
        seed=1,
        sampling=selectrie.SamplingParams(temperature=0),
        stopping=selectrie.StopParams(max_tokens=64, ignore_eog=True),
    ),
}


def answer(made: Any) -> Any:
    """Return what must be equal of an answer, without what the clock says."""
    if isinstance(made, list):
        return [answer(one) for one in made]
    if isinstance(made, selectrie.Generation):
        return [[(one.id, one.logp) for one in sequence.tokens] for sequence in made.completions]
    if isinstance(made, selectrie.Selection):
        return [(one.text, one.logp, one.score) for one in made.choices], made.certificate
    return made["about"].value, made["about"].confidence, made["about"].label_mass


def timed(llm: selectrie.Engine, ask: Ask) -> tuple[float, float, Any]:
    """Run a request on an empty cache; return its seconds, those of the processor, and its answer."""
    llm.trim()
    start, start_processor = time.perf_counter(), time.process_time()
    made = ask(llm)
    return time.perf_counter() - start, time.process_time() - start_processor, answer(made)


def size(llm: selectrie.Engine, path: Path, *, vocabulary: bool) -> int:
    """Return the bytes of the trace of one select."""
    llm.trim()
    with selectrie.record(llm, path, vocabulary=vocabulary):
        ASKS["select"](llm)
    return path.stat().st_size


def figures(model: str | None, repeats: int) -> dict[str, Any]:
    """Return all figures."""
    made: dict[str, Any] = {}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ASKS}
    processor: dict[str, list[tuple[float, float]]] = {name: [] for name in ASKS}
    plain_answers: dict[str, Any] = {}
    is_equal = True
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plain, recorded = (stack.enter_context(selectrie.load(model, n_ctx=4096)) for _ in range(2))
        bare = size(plain, folder / "bare", vocabulary=False)
        made |= {"select_64_bytes": bare, "vocabulary_bytes": size(plain, folder / "whole", vocabulary=True) - bare}
        with selectrie.record(recorded, folder / "trace"):
            for repeat in range(repeats + 1):
                for name, ask in ASKS.items():
                    ways = [timed(llm, ask) for llm in ((plain, recorded) if repeat % 2 else (recorded, plain))]
                    (plain_s, plain_cpu_s, expected), (recorded_s, recorded_cpu_s, found) = (
                        ways if repeat % 2 else reversed(ways)
                    )
                    is_equal &= expected == found
                    plain_answers[name] = expected
                    if repeat:  # the first warms up
                        seconds[name].append((plain_s, recorded_s))
                        processor[name].append((plain_cpu_s, recorded_cpu_s))
        with selectrie.load(folder / "trace") as replayed:
            answers = {name: timed(replayed, ask) for name, ask in ASKS.items()}
        made["trace_bytes"] = (folder / "trace").stat().st_size
    for name, pairs in seconds.items():
        made[f"{name}_plain_s"] = median(one for one, _ in pairs)
        made[f"{name}_recorded_s"] = median(other for _, other in pairs)
        made[f"{name}_recorded_over_plain"] = median(other / one for one, other in pairs)
        plain_cpu_s, recorded_cpu_s = map(sum, zip(*processor[name], strict=True))
        made[f"{name}_processor_over_plain"] = recorded_cpu_s / plain_cpu_s
    made["replay_over_plain"] = sum(one for one, _, _ in answers.values()) / sum(
        made[f"{name}_plain_s"] for name in ASKS
    )
    made["recorded_as_plain"] = is_equal
    made["replayed_as_plain"] = all(answers[name][2] == plain_answers[name] for name in ASKS)
    return made


def main() -> int:
    """Run the benchmark and return its exit code."""
    parser = arguments("What recording a trace costs.")
    parser.add_argument("--model", help="a GGUF file or a checkpoint (default: the embedded model)")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"repeats of each request ({REPEATS})")
    given = parser.parse_args()
    refuse_under_load(allowed=given.under_load)
    return report("tracing", figures(given.model, given.repeats), TARGETS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
