"""What does the HTTP server cost, and does it hold under load? `python benchmarks/serving.py`, or `make bench`.

Every case stands alone (`--case NAME`, repeatable):

- startup: seconds from the start of `selectrie serve` to the first `/health`, and to `/ready`
- overhead: what `/v1/decisions` adds to `Engine.decide`: one question of 5 options, a new state in each pair, the embedded
  model, one thread. The server is a process of its own with an engine of its own, so that neither side waits for the other's
  interpreter; the two are asked in turn
- reject: a full server, whose model runs on all cores but one: how soon one more client gets its 429
- state: 32 questions about one state of 1 000 tokens: rows, beside those of one request a question; seconds, beside bare
  `llama_decode` calls of these rows
- concurrent: 16 decisions about different states at once, beside the same calls bare
- load: many clients at once, of which some are wrong, hang up or read slowly; every answer is compared with that of an engine
  of this process; what the server counts, logs and holds in memory; SIGTERM while all of them ask

Where the calls of a model are repeated bare, the server runs in a thread of this process, which records them: the client then
takes time from the server, not the other way round. `state` and `concurrent` use random weights of the 0.5B shape (24 layers,
width 896, q8_0). `--quick` looks at tiny models and checks no target. `--json` prints one object of all figures as the last line.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import selectrie
from benchmarks._common import NO_TARGETS, Figures, Targets, arguments, refuse_under_load, report
from benchmarks.bare import N_BATCH, Bare, Call, Recorder
from benchmarks.http_client import Connection, Reply
from benchmarks.servers import ServerProcess, serving
from benchmarks.serving_load import Load
from benchmarks.serving_requests import INSTRUCTIONS, OPTIONS, choice_of, decisions, malformed, state, systemone
from benchmarks.workload import generated_model, prompt_text
from selectrie.backends.llama_cpp import LlamaOptions, open_model
from selectrie.engine.bundled_model import embedded_file
from selectrie.engine.engine import Engine
from selectrie.server import ServerOptions

TARGETS = {
    "startup": Targets(at_most={"health_s": 1.5}),
    "overhead": Targets(at_most={"added_p50_ms": 2.0}),
    "reject": Targets(at_most={"reject_p95_ms": 20.0}),
    "state": Targets(at_most={"state_rows_over_needed": 1.0, "state_over_floor": 1.10}),
    "concurrent": Targets(at_least={"concurrent_of_bare": 0.9}),
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


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each to run.

    Attributes:
        shape: Shape of the random weights of `state`, `concurrent` and `reject`.
        repeats: Repeats of `state` and `concurrent`.
        n_starts: Starts of a server, of which the first is not counted if there are
            more.
        n_pairs: Pairs of `overhead`.
        n_waiting, n_tries: Requests that fill the server, and tries of one more.
        n_questions, state_tokens: Of `state`.
        n_concurrent: Decisions at once.
        n_clients, seconds: Of `load`, in each of its phases.
        n_asked: Different requests of `load`.
        n_ctx: Tokens that the memory of a model holds.
    """

    shape: str = "0.5b"
    repeats: int = 3
    n_starts: int = 6
    n_pairs: int = 1000
    n_waiting: int = 256
    n_tries: int = 500
    n_questions: int = 32
    state_tokens: int = 1000
    n_concurrent: int = 16
    n_clients: int = 200
    seconds: float = 60.0
    n_asked: int = 120
    n_ctx: int = 8192


QUICK = Sizes(
    shape="tiny",
    repeats=1,
    n_starts=1,
    n_pairs=5,
    n_waiting=6,
    n_tries=10,
    n_questions=4,
    state_tokens=100,
    n_concurrent=3,
    n_clients=8,
    seconds=0.5,
    n_asked=8,
    n_ctx=1024,
)


@dataclass(frozen=True, slots=True)
class Machine:
    """The shape of the model of `state`, `concurrent` and `reject`, and the threads to
    run it on.
    """

    shape: str
    threads: int

    def path(self) -> Path:
        """Return the model's file, made if it is missing."""
        return generated_model(self.shape, "q8_0")

    def spare_threads(self) -> int:
        """Return all threads but one, which the server and its clients have."""
        return max(1, self.threads - 1)


def p95(values: Sequence[float]) -> float:
    """Return the value that 95 % of these do not exceed."""
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def ms(values: Sequence[float], name: str) -> dict[str, float]:
    """Return median and 95 % of seconds in milliseconds, as figures."""
    return {f"{name}_p50_ms": 1000 * median(values), f"{name}_p95_ms": 1000 * p95(values)}


def body_of(text: str, questions: Sequence[dict[str, Any]]) -> bytes:
    """Return the body of a request of `/v1/decisions`."""
    return json.dumps({"input": text, "questions": questions}).encode()


async def startup(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Start the command some times; the first time reads its files from disk."""
    del machine
    health, ready = [], []
    for _ in range(sizes.n_starts):
        with ServerProcess("--threads", "1") as server:
            health.append(await server.seconds_until("/health"))
            ready.append(await server.seconds_until("/ready"))
    first = int(sizes.n_starts > 1)
    return {"health_s": median(health[first:]), "health_max_s": max(health[first:]), "ready_s": median(ready[first:])}


async def overhead(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Ask the engine and the server in turn, each with a new state in every pair."""
    del machine
    question, data = choice_of()
    own, served = [], []
    with selectrie.load(embedded_file(), n_threads=1) as llm, ServerProcess("--threads", "1") as server:
        await server.seconds_until("/ready")
        connection = Connection(server.address)

        def by_engine(number: int) -> None:
            start = time.perf_counter()
            llm.decide(state(number), {"q": question})
            own.append(time.perf_counter() - start)

        async def by_server(number: int) -> None:
            body = body_of(state(number), [data])
            start = time.perf_counter()
            reply = await connection.request("POST", "/v1/decisions", body)
            served.append(time.perf_counter() - start)
            assert reply.status == 200, reply.body

        for number in range(-10, sizes.n_pairs):  # the first ones make self-checks and plans
            if number % 2:
                by_engine(number)
                await by_server(number)
            else:
                await by_server(number)
                by_engine(number)
        connection.close()
    own, served = own[10:], served[10:]
    added = [theirs - ours for theirs, ours in zip(served, own, strict=True)]
    figures = ms(own, "decide") | ms(served, "decisions")
    return {
        "pairs": sizes.n_pairs,
        **figures,
        "added_p50_ms": figures["decisions_p50_ms"] - figures["decide_p50_ms"],
        "added_in_pairs_p50_ms": 1000 * median(added),
    }


async def reject(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Fill the queue with long requests, and let one more client try."""
    arguments = ["-m", str(machine.path()), "--threads", str(machine.spare_threads()), "--n-ctx", str(sizes.n_ctx)]
    _, data = choice_of()
    text = " ".join(state(number) for number in range(sizes.state_tokens // 20))
    with ServerProcess(*arguments, "--max-requests", str(sizes.n_waiting)) as server:
        await server.seconds_until("/ready")
        waiting = [Connection(server.address, timeout_s=600) for _ in range(sizes.n_waiting)]
        filled = asyncio.gather(*[_kept_full(one, f"{i}: {text}", [data]) for i, one in enumerate(waiting)])
        try:
            seconds, n_accepted = await _tries(server, sizes, data)
        finally:
            filled.cancel()
            with suppress(asyncio.CancelledError):
                await filled
            for one in waiting:
                one.hang_up()
    return {"reject_tries": len(seconds), "reject_accepted": n_accepted, **ms(seconds, "reject")}


async def _kept_full(connection: Connection, text: str, questions: Sequence[dict[str, Any]]) -> None:
    """Ask again whenever there is an answer, so that the queue stays full."""
    for number in range(1_000_000):
        await connection.request("POST", "/v1/decisions", body_of(f"{number}/{text}", questions))


async def _tries(server: ServerProcess, sizes: Sizes, data: dict[str, Any]) -> tuple[list[float], int]:
    """Return the seconds of each 429, and how many tries were accepted."""
    body, connection = body_of(state(0), [data]), Connection(server.address)
    seconds: list[float] = []
    n_accepted, until_s = 0, time.perf_counter() + 300
    while len(seconds) < sizes.n_tries and time.perf_counter() < until_s:
        start = time.perf_counter()
        reply = await connection.request("POST", "/v1/decisions", body)
        if reply.status == 429:
            seconds.append(time.perf_counter() - start)
        else:
            n_accepted += 1  # before the queue is full, and between an answer and the next request
            await asyncio.sleep(0.01)
    connection.close()
    return seconds, n_accepted


class InThread:
    """A model served from a thread of this process, with its calls recorded, and the
    same model bare.
    """

    def __init__(self, sizes: Sizes, machine: Machine) -> None:
        settings = LlamaOptions(n_ctx=sizes.n_ctx, n_threads=machine.threads)
        model = open_model(machine.path(), settings)
        self.recorder = Recorder(model)
        self.llm = Engine(model)
        self.bare = Bare(machine.path(), n_ctx=sizes.n_ctx, n_threads=machine.threads)
        self.llm.select("x", ["a", "b"])  # the first call reads the weights and checks the model

    def close(self) -> None:
        """Close both."""
        self.llm.close()
        self.bare.close()

    def asked(self, bodies: Sequence[bytes]) -> tuple[float, list[Reply], list[tuple[int, int]]]:
        """Return seconds, responses and calls of requests that are sent at once, on
        connections that are open, to a server whose cache is empty.
        """

        async def all_of(address: tuple[str, int]) -> tuple[float, list[Reply]]:
            connections = [Connection(address, timeout_s=600) for _ in bodies]
            for connection in connections:
                await connection.request("GET", "/health")
            self.llm.trim()
            work = [one.request("POST", "/v1/decisions", body) for one, body in zip(connections, bodies, strict=True)]
            start = time.perf_counter()
            replies = await asyncio.gather(*work)
            seconds = time.perf_counter() - start
            for connection in connections:
                connection.close()
            return seconds, replies

        with serving(self.llm, ServerOptions()) as address, self.recorder.watching():
            seconds, replies = asyncio.run(all_of(address))
        for reply in replies:
            assert reply.status == 200, reply.body
        return seconds, replies, list(self.recorder.made)


def rows_needed(llm: Engine, text: str, questions: Sequence[Any]) -> tuple[int, int, list[int]]:
    """Return the rows that all questions together need, those that they need one by one
    (a request each), and the tokens that their prompts share.
    """
    paths, inner, one_by_one = [], 0, 0
    for question in questions:
        (prompt,) = llm.decision_prompts(text, {"q": question})["q"]
        assert prompt.choices is not None
        plan = llm.tokens(
            prompt.prompt,
            prompt.choices,
            terminator=prompt.terminator,
            following=prompt.following,
            prompting=prompt.prompting,
        )
        paths.append(tuple(token for token, _ in plan.context))
        inner += plan.rows_inner
        one_by_one += len(plan.context) + plan.rows_inner
    prefixes = {path[: i + 1] for path in paths for i in range(len(path))}
    shared = [column[0] for column in zip(*paths, strict=False)]
    n = next((i for i in range(len(shared)) if len({path[i] for path in paths}) > 1), len(shared))
    return len(prefixes) + inner, one_by_one, list(paths[0][:n])


def state_case(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Ask many questions about one state in one request."""
    figures, facts = Figures(), dict[str, Any]()
    with closing(InThread(sizes, machine)) as both:
        for repeat in range(sizes.repeats):
            text = prompt_text(both.bare, sizes.state_tokens, 1 + repeat)
            asked = [choice_of(OPTIONS, f"Question {i}. {INSTRUCTIONS}") for i in range(sizes.n_questions)]
            needed, one_by_one, shared = rows_needed(both.llm, text, [question for question, _ in asked])
            seconds, replies, calls = both.asked([body_of(text, [data for _, data in asked])])
            figures.add("state", seconds)
            answers = replies[0].json()["answers"]
            rows = sum(answer["diagnostics"]["rows"] for answer in answers)
            assert rows == sum(n for n, _ in calls), "the rows of the answers are not those of the calls"
            figures.add("state_floor", floor(both.bare, calls, shared))
            facts |= {
                "state_tokens": len(shared),
                "state_calls": len(calls),
                "state_rows": rows,
                "state_rows_needed": needed,
                "state_rows_by_questions": one_by_one,
                "state_rows_by_options": sum(answer["diagnostics"]["rows_one_by_one"] for answer in answers),
                "state_rows_over_needed": rows / needed,
            }
    at = figures.median
    return {
        **facts,
        "state_s": at("state"),
        "state_floor_s": at("state_floor"),
        "state_over_floor": at("state") / at("state_floor"),
    }


def floor(bare: Bare, calls: Sequence[tuple[int, int]], shared: Sequence[int]) -> float:
    """Return the seconds of the same rows and outputs bare: the shared tokens, and below
    them all other rows in calls that are full but for the last.
    """
    n_rows, n_wanted = (sum(column) for column in zip(*calls, strict=True))
    n_below = n_rows - len(shared)
    sizes = [min(N_BATCH, n_below - start) for start in range(0, n_below, N_BATCH)]
    below = [Call(size, round(size * n_wanted / n_rows), range(1, 33)) for size in sizes]
    return bare.prompt(shared) + sum(bare.replay(below, shared))


def concurrent(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Ask about different states at once, and repeat the calls bare."""
    figures, facts = Figures(), dict[str, Any]()
    _, data = choice_of()
    with closing(InThread(sizes, machine)) as both:
        for repeat in range(sizes.repeats):
            first = 1 + 1000 * repeat
            bodies = [body_of(state(first + i), [data]) for i in range(sizes.n_concurrent)]
            seconds, _, calls = both.asked(bodies)
            figures.add("concurrent", seconds)
            again = [Call(n_rows, n_wanted, range(sizes.n_concurrent)) for n_rows, n_wanted in calls]
            figures.add("concurrent_bare", *both.bare.replay(again))
            facts |= {"concurrent_calls": len(calls), "concurrent_rows": sum(n for n, _ in calls)}
    at = figures.median
    return {
        **facts,
        "concurrent_s": at("concurrent"),
        "concurrent_bare_s": at("concurrent_bare"),
        "concurrent_per_s": sizes.n_concurrent / at("concurrent"),
        "concurrent_of_bare": at("concurrent_bare") / at("concurrent"),
    }


async def load(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Run all clients twice, then once more until SIGTERM has ended the server."""
    with selectrie.load(embedded_file(), n_threads=machine.threads) as llm:
        asked = [make(llm, number) for number in range(sizes.n_asked) for make in (decisions, systemone)]
    arguments = ["--threads", str(machine.spare_threads()), "--shutdown-timeout", "120", "--model-name", "embedded"]
    resident: list[int | None] = []
    with ServerProcess(*arguments) as server:
        await server.seconds_until("/ready")
        work = Load(server, asked, malformed(), sizes.n_clients)
        for _ in range(2):
            await work.phase(sizes.seconds)
            resident.append(server.resident_bytes())
        unbalanced = await work.unbalanced()
        code = await work.terminated(min(5.0, sizes.seconds), limit_s=150)
        lost = work.accepted_but_lost()
    for problem in [*work.ledger.problems, *unbalanced, *lost][:20]:
        sys.stderr.write(f"{problem}\n")
    return _load_figures(work, resident, sizes) | {
        "load_wrong": len(work.ledger.problems),
        "load_unbalanced": len(unbalanced),
        "load_lost": len(lost),
        "load_unread": len(work.ledger.lost) - len(lost),
        "load_exit_code": code,
    }


def _load_figures(work: Load, resident: Sequence[int | None], sizes: Sizes) -> dict[str, Any]:
    ledger = work.ledger
    n = sum(map(len, ledger.seconds.values()))
    figures: dict[str, Any] = {
        "load_clients": sizes.n_clients,
        "load_phase_s": sizes.seconds,
        "load_answered": len(ledger.answered),
        "load_compared": n,
        "load_left": len(ledger.left),
        "load_largest_share": ledger.share,
    }
    for kind, seconds in ledger.seconds.items():
        figures |= {f"load_{kind}": len(seconds), **ms(seconds, f"load_{kind}")}
    first, second = resident
    if first is None or second is None:
        return figures | {"load_resident": "skipped: this system does not say what a process holds"}
    return figures | {
        "load_first_bytes": first,
        "load_second_bytes": second,
        "load_second_over_first_bytes": second / first,
    }


CASES: dict[str, Callable[[Sizes, Machine], Any]] = {
    "startup": startup,
    "overhead": overhead,
    "reject": reject,
    "state": state_case,
    "concurrent": concurrent,
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
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    given = {"seconds": options.seconds, "n_clients": options.clients, "repeats": options.repeats}
    sizes = replace(
        QUICK if options.quick else Sizes(), **{name: one for name, one in given.items() if one is not None}
    )
    machine = Machine(sizes.shape, options.threads)
    refuse_under_load(allowed=options.under_load)
    figures: dict[str, Any] = {"shape": sizes.shape, "threads": machine.threads, "repeats": sizes.repeats}
    targets = NO_TARGETS
    for name in options.case or CASES:
        found = CASES[name](sizes, machine)
        figures |= asyncio.run(found) if asyncio.iscoroutine(found) else found
        targets = targets.joined(TARGETS[name])
    if "load_resident" in figures:
        targets = targets.without("bytes")
    return report("serving", figures, NO_TARGETS if options.quick else targets, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
