"""The cases of `benchmarks/serving.py` whose server runs in a thread of this process, so
that the calls of its model can be recorded and repeated bare.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks._common import Figures
from benchmarks.bare import N_BATCH, Bare, Call, Recorder
from benchmarks.http_client import Connection, Reply
from benchmarks.servers import serving
from benchmarks.serving_common import Machine, Sizes, body_of
from benchmarks.serving_requests import INSTRUCTIONS, OPTIONS, choice_of, state
from benchmarks.workload import labels, prompt_text
from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.engine.engine import Engine
from selectrie.server import ServerOptions


class InThread:
    """A model served from a thread of this process, with its calls recorded, and the
    same model bare.
    """

    def __init__(self, sizes: Sizes, machine: Machine) -> None:
        settings = LlamaOptions(n_ctx=sizes.n_ctx, n_threads=machine.threads)
        model = open_model(machine.path(), settings)
        self.recorder = Recorder(model)
        self.llm = Engine(model, check=next(iter(machine.checks), None))
        self.bare = Bare(machine.path(), n_ctx=sizes.n_ctx, n_threads=machine.threads)
        self.llm.select("x", ["a", "b"])  # the first call reads the weights and checks the model
        if not machine.checks and self.llm.self_check is not None:
            machine.checks.append(self.llm.self_check)

    def close(self) -> None:
        """Close both."""
        self.llm.close()
        self.bare.close()

    def asked(self, bodies: Sequence[bytes]) -> Asked:
        """Return what requests took that are sent at once, on connections that are
        open, to a server whose cache is empty.
        """

        async def all_of(address: tuple[str, int]) -> tuple[float, float, list[Reply]]:
            connections = [Connection(address, timeout_s=600) for _ in bodies]
            for connection in connections:
                await connection.request("GET", "/health")
            self.llm.trim()
            work = [one.request("POST", "/v1/decisions", body) for one, body in zip(connections, bodies, strict=True)]
            start, start_cpu = time.perf_counter(), time.process_time()
            replies = await asyncio.gather(*work)
            seconds, cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
            for connection in connections:
                connection.close()
            return seconds, cpu_s, replies

        with serving(self.llm, ServerOptions()) as address, self.recorder.watching():
            seconds, cpu_s, replies = asyncio.run(all_of(address))
        for reply in replies:
            assert reply.status == 200, reply.body
        return Asked(seconds, cpu_s, replies, list(self.recorder.made), list(self.recorder.aside))


@dataclass(frozen=True, slots=True)
class Asked:
    """What requests took.

    Attributes:
        seconds, cpu_s: Seconds, and processor time of server and client together.
        replies: The responses.
        calls: Rows and outputs of each call of the model.
        aside: Those of calls in other contexts: prompts that are copied from there, and
            near ties.
    """

    seconds: float
    cpu_s: float
    replies: Sequence[Reply]
    calls: Sequence[tuple[int, int]]
    aside: Sequence[tuple[int, int]]

    @property
    def n_rows(self) -> int:
        """Return the number of rows evaluated."""
        return sum(n for n, _ in (*self.calls, *self.aside))


@dataclass(frozen=True, slots=True)
class Needed:
    """The rows that questions need.

    Attributes:
        n_rows: Rows of all of them together.
        n_wanted: Those whose logits are read.
        one_by_one: Rows of each alone, together.
        shared: Tokens that all prompts begin with.
    """

    n_rows: int
    n_wanted: int
    one_by_one: int
    shared: Sequence[int]


def rows_needed(llm: Engine, text: str, questions: Sequence[Any]) -> Needed:
    """Return the rows that questions about one state need."""
    paths, inner, one_by_one = [], 0, 0
    named = {str(index): question for index, question in enumerate(questions)}
    for (prompt,) in llm.decision_prompts(text, named).values():
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
    return Needed(len(prefixes) + inner, len(set(paths)) + inner, one_by_one, list(paths[0][:n]))


def state_case(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Ask many questions about one state in one request."""
    figures, facts = Figures(), dict[str, Any]()
    with closing(InThread(sizes, machine)) as both:
        for repeat in range(sizes.repeats):
            text = prompt_text(both.bare, sizes.state_tokens, 1 + repeat)
            asked = [choice_of(OPTIONS, f"Question {i}. {INSTRUCTIONS}") for i in range(sizes.n_questions)]
            needed = rows_needed(both.llm, text, [question for question, _ in asked])
            found = both.asked([body_of(text, [data for _, data in asked])])
            figures.add("state", found.seconds)
            answers = found.replies[0].json()["answers"]
            rows = sum(answer["diagnostics"]["rows"] for answer in answers)
            assert rows == found.n_rows, "the rows of the answers are not those of the calls"
            figures.add("state_floor", floor(both.bare, needed)[0])
            facts |= {
                "state_tokens": len(needed.shared),
                "state_calls": len(found.calls) + len(found.aside),
                "state_rows": rows,
                "state_rows_needed": needed.n_rows,
                "state_rows_by_questions": needed.one_by_one,
                "state_rows_by_options": sum(answer["diagnostics"]["rows_one_by_one"] for answer in answers),
                "state_rows_over_needed": rows / needed.n_rows,
            }
    at = figures.median
    return {
        **facts,
        "state_s": at("state"),
        "state_floor_s": at("state_floor"),
        "state_over_floor": at("state") / at("state_floor"),
    }


def labels_case(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Ask for one of many labels about a new state, with an empty cache each time.

    The rows that are necessary are those of the prompt, and those below it that the
    search read. Rows that settle near ties are not among them; their number is listed
    beside the ratios of each repeat, by the clock and by processor time.
    """
    figures, facts = Figures(), dict[str, Any]()
    source, texts = labels(sizes.n_labels)
    question, data = choice_of([text.strip() for text in texts], "What is the message about?")
    ratios, cpu_ratios, near_tie_rows = list[float](), list[float](), list[int]()
    with closing(InThread(sizes, machine)) as both:
        for repeat in range(sizes.repeats):
            text = state(5000 + repeat)
            whole = rows_needed(both.llm, text, [question])
            found = both.asked([body_of(text, [data])])
            n_wanted = sum(wanted for _, wanted in found.calls)
            needed = replace(whole, n_rows=len(whole.shared) + n_wanted - 1, n_wanted=n_wanted)
            assert needed.n_rows <= whole.n_rows, "the search read more than the whole trie"
            seconds, floor_cpu_s = floor(both.bare, needed)
            figures.add("labels", found.seconds)
            figures.add("labels_floor", seconds)
            ratios.append(found.seconds / seconds)
            cpu_ratios.append(found.cpu_s / floor_cpu_s)
            near_tie_rows.append(found.n_rows - needed.n_rows)
            facts |= {
                "labels": source,
                "labels_calls": len(found.calls) + len(found.aside),
                "labels_rows": found.n_rows,
                "labels_rows_needed": needed.n_rows,
                "labels_rows_whole_trie": whole.n_rows,
            }
    at = figures.median
    return {
        **facts,
        "labels_s": at("labels"),
        "labels_floor_s": at("labels_floor"),
        "labels_rows_of_near_ties": ", ".join(map(str, near_tie_rows)),
        "labels_ratios": ", ".join(f"{ratio:.2f}" for ratio in ratios),
        "labels_cpu_ratios": ", ".join(f"{ratio:.2f}" for ratio in cpu_ratios),
        "labels_over_floor": median(ratios),
        "labels_cpu_over_floor": median(cpu_ratios),
    }


def floor(bare: Bare, needed: Needed) -> tuple[float, float]:
    """Return the seconds of these rows bare, and the processor time: the shared tokens,
    and below them all other rows in calls that are full but for the last.
    """
    n_below = needed.n_rows - len(needed.shared)
    sizes = [min(N_BATCH, n_below - start) for start in range(0, n_below, N_BATCH)]
    below = [Call(size, min(size, round(size * needed.n_wanted / n_below)), range(1, 33)) for size in sizes]
    before_s, start_cpu = bare.decode_s, time.process_time()
    bare.replay(below, needed.shared)
    return bare.decode_s - before_s, time.process_time() - start_cpu


def concurrent(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Ask about different states at once, and repeat the calls bare."""
    figures, facts = Figures(), dict[str, Any]()
    _, data = choice_of()
    with closing(InThread(sizes, machine)) as both:
        for repeat in range(sizes.repeats):
            first = 1 + 1000 * repeat
            bodies = [body_of(state(first + i), [data]) for i in range(sizes.n_concurrent)]
            found = both.asked(bodies)
            figures.add("concurrent", found.seconds)
            again = [Call(n_rows, n_wanted, range(sizes.n_concurrent)) for n_rows, n_wanted in found.calls]
            figures.add("concurrent_bare", *both.bare.replay(again))
            facts |= {"concurrent_calls": len(found.calls), "concurrent_rows": sum(n for n, _ in found.calls)}
    at = figures.median
    return {
        **facts,
        "concurrent_s": at("concurrent"),
        "concurrent_bare_s": at("concurrent_bare"),
        "concurrent_per_s": sizes.n_concurrent / at("concurrent"),
        "concurrent_of_bare": at("concurrent_bare") / at("concurrent"),
    }
