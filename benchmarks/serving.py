"""What does the HTTP server cost, and does it hold under load? `python benchmarks/serving.py`, or `make bench`.

Every case stands alone (`--case NAME`, repeatable):

- startup: seconds from the start of `selectrie serve` to the first `/health`, and to `/ready`
- overhead: what `/v1/decisions` adds to `Engine.decide`: one question of 5 options, a new state in each pair, the embedded
  model, one thread. The server is a process of its own with an engine of its own, so that neither side waits for the other's
  interpreter; the two are asked in turn. 1 000 pairs, or as many as two minutes have room for, but 30 at least
- reject: a full server, whose model runs on all cores but one: how soon one more client gets its 429
- state: 32 questions about one state of 1 000 tokens: rows, beside those of one request a question; seconds, beside bare
  `llama_decode` calls of these rows
- labels: one question of 77 options (Banking77) about a new state, nothing cached: seconds, beside bare `llama_decode` of the
  rows that are necessary
- concurrent: 16 decisions about different states at once, beside the same calls bare
- streams: eight streams of completions at once from a server in a process of its own, beside `Engine.astream` of the same
  prompts and seeds in this one, in turn; and the processor time of both
- echo: 4 choices scored by `echo` of `/v1/completions` after a context of 500 tokens, beside llama_cpp.server on the same
  file, one request a choice; then all of them in one request
- beside: a completion of 4 tokens and a decision, one after the other, beside one large request (many sequences, long texts,
  many prompts, many questions): times as long as alone
- load: many clients at once, of which some are wrong, hang up or read slowly; every answer is compared with that of an engine
  of this process; what the server counts, logs and holds in memory; SIGTERM while all of them ask

Where the calls of a model are repeated bare, the server runs in a thread of this process, which records them: the client then
takes time from the server, not the other way round. `reject`, `state`, `concurrent` and `streams` use random weights of the
0.5B shape (24 layers, width 896, q8_0), the other cases the embedded model; with `--model FILE`, all but `startup`, `echo` and
`load` use that file. `--quick` looks at tiny models and checks no
target. `--json` prints one object of all figures as the last line.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._common import NO_TARGETS, Targets, arguments, refuse_under_load, report
from benchmarks.serving_beside import beside
from benchmarks.serving_common import QUICK, Machine, Sizes
from benchmarks.serving_load import load
from benchmarks.serving_processes import echo, overhead, reject, startup, streams
from benchmarks.serving_threads import concurrent, labels_case, state_case

TARGETS = {
    "startup": Targets(at_most={"health_s": 1.5}),
    "overhead": Targets(at_most={"added_p50_ms": 2.0, "decisions_over_decide": 1.25}),
    "reject": Targets(at_most={"reject_p95_ms": 20.0}),
    "state": Targets(at_most={"state_rows_over_needed": 1.0, "state_over_floor": 1.10}),
    "labels": Targets(at_most={"labels_over_floor": 1.15}),
    "concurrent": Targets(at_least={"concurrent_of_bare": 0.9}),
    "streams": Targets(at_least={"streams_of_in_process": 0.97}),
    "echo": Targets(at_least={"llama_cpp_server_over_echo": 3.0}),
    "beside": Targets(
        at_most={
            f"{large}_{small}_over_alone": 6.0
            for large in ("sequences", "texts", "prompts", "questions")
            for small in ("completion", "decision")
        }
    ),
    "load": Targets(
        at_most={
            "load_wrong": 0,
            "load_unbalanced": 0,
            "load_lost": 0,
            "load_exit_code": 0,
            "load_second_over_first_bytes": 1.05,
        }
    ),
}


CASES: dict[str, Callable[[Sizes, Machine], Any]] = {
    "startup": startup,
    "overhead": overhead,
    "reject": reject,
    "state": state_case,
    "labels": labels_case,
    "concurrent": concurrent,
    "streams": streams,
    "echo": echo,
    "beside": beside,
    "load": load,
}


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--case", action="append", choices=tuple(CASES), help="run this case (repeatable; default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny models and few of everything, without targets")
    parser.add_argument("--seconds", type=float, help="of each phase of `load`")
    parser.add_argument("--clients", type=int, help="of `load`")
    parser.add_argument("--model", type=Path, metavar="FILE", help="a GGUF file (default: random weights, or embedded)")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--llama-cpp-server",
        type=Path,
        metavar="PYTHON",
        help="an interpreter that has llama_cpp.server (default: this, or build/guidance)",
    )
    options = parser.parse_args()
    given = {"seconds": options.seconds, "n_clients": options.clients, "repeats": options.repeats}
    sizes = replace(
        QUICK if options.quick else Sizes(), **{name: one for name, one in given.items() if one is not None}
    )
    machine = Machine(sizes.shape, options.threads, options.llama_cpp_server, options.model)
    refuse_under_load(allowed=options.under_load)
    figures: dict[str, Any] = {"shape": sizes.shape, "threads": machine.threads, "repeats": sizes.repeats}
    targets = NO_TARGETS
    for name in options.case or CASES:
        found = CASES[name](sizes, machine)
        figures |= asyncio.run(found) if asyncio.iscoroutine(found) else found
        targets = targets.joined(TARGETS[name])
    if "load_resident" in figures:
        targets = targets.without("bytes")
    if "llama_cpp_server" in figures:
        targets = targets.without("llama_cpp_server")
    return report("serving", figures, NO_TARGETS if options.quick else targets, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
