"""The cases of `benchmarks/serving.py` whose server runs in a thread of this process, so
that the calls of its model can be recorded and repeated bare.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from benchmarks._common import Figures
from benchmarks.bare import N_BATCH, Bare, Call, Recorder
from benchmarks.http_client import Connection, Reply, request_of
from benchmarks.servers import serving
from benchmarks.serving_common import Machine, Sizes, body_of
from benchmarks.serving_requests import INSTRUCTIONS, OPTIONS, choice_of, state
from benchmarks.workload import labels, prompt_text
from selectrie import SamplingParams, StopParams
from selectrie.backends.llama_cpp import LlamaOptions, open_model
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


def labels_case(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Ask for one of many labels about a new state, with an empty cache each time.

    The rows that are necessary are those of the search, or of the whole trie if these
    are fewer: then near ties were scored again.
    """
    figures, facts = Figures(), dict[str, Any]()
    source, texts = labels(sizes.n_labels)
    question, data = choice_of([text.strip() for text in texts], "What is the message about?")
    with closing(InThread(sizes, machine)) as both:
        for repeat in range(sizes.repeats):
            text = state(5000 + repeat)
            whole, _, shared = rows_needed(both.llm, text, [question])
            seconds, _, calls = both.asked([body_of(text, [data])])
            figures.add("labels", seconds)
            rows, wanted = (sum(column) for column in zip(*calls, strict=True))
            needed = min(rows, whole)
            figures.add("labels_floor", floor(both.bare, [(needed, round(wanted * needed / rows))], shared))
            facts |= {
                "labels": source,
                "labels_calls": len(calls),
                "labels_rows": rows,
                "labels_rows_whole_trie": whole,
            }
    at = figures.median
    return {
        **facts,
        "labels_s": at("labels"),
        "labels_floor_s": at("labels_floor"),
        "labels_over_floor": at("labels") / at("labels_floor"),
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


def streams(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Draw streams of different prompts at once, in the process and through HTTP."""
    figures, n_tokens = Figures(), sizes.n_streams * sizes.stream_tokens
    with closing(InThread(sizes, machine)) as both:
        for repeat in range(1 + sizes.repeats):
            prompts = [state(1000 * repeat + i) for i in range(sizes.n_streams)]
            ways = [("streams_in_process", _streamed_in_process), ("streams", _streamed_by_server)]
            for name, streamed in ways if repeat % 2 else reversed(ways):
                both.llm.trim()
                figures.add(name, streamed(both, prompts, sizes.stream_tokens))
    for seconds in figures.seconds.values():
        del seconds[0]  # the first repeat warms both up
    at = figures.median
    return {
        "streams_tokens": n_tokens,
        "streams_in_process_per_s": n_tokens / at("streams_in_process"),
        "streams_per_s": n_tokens / at("streams"),
        "streams_of_in_process": at("streams_in_process") / at("streams"),
    }


def _streamed_in_process(both: InThread, prompts: Sequence[str], n: int) -> float:
    """Return the seconds in which all prompts are continued by so many tokens each."""
    sampling = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, penalty_last_n=-1)
    stopping = StopParams(max_tokens=n, ignore_eog=True)

    async def one(seed: int, prompt: str) -> int:
        stream = both.llm.astream(prompt, seed=seed, sampling=sampling, stopping=stopping)
        return sum([len(chunk.tokens) async for chunk in stream])

    async def all_of() -> list[int]:
        return await asyncio.gather(*[one(seed, prompt) for seed, prompt in enumerate(prompts)])

    start = time.perf_counter()
    counts = asyncio.run(all_of())
    seconds = time.perf_counter() - start
    assert counts == [n] * len(prompts), counts
    return seconds


def _streamed_by_server(both: InThread, prompts: Sequence[str], n: int) -> float:
    """Return the seconds in which a server does the same, on open connections."""
    own = {"max_tokens": n, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}

    async def one(connection: Connection, seed: int, prompt: str) -> int:
        data = request_of("POST", "/v1/completions", json.dumps({"prompt": prompt, "seed": seed, **own}).encode())
        *_, usage, last = [event async for _, event in connection.events(data)]
        assert last == "[DONE]", last
        return int(json.loads(usage)["usage"]["completion_tokens"])

    async def all_of(address: tuple[str, int]) -> tuple[float, list[int]]:
        connections = [Connection(address, timeout_s=600) for _ in prompts]
        for connection in connections:
            await connection.request("GET", "/health")
        start = time.perf_counter()
        counts = await asyncio.gather(*[one(connections[i], i, prompt) for i, prompt in enumerate(prompts)])
        seconds = time.perf_counter() - start
        for connection in connections:
            connection.close()
        return seconds, counts

    with serving(both.llm, ServerOptions()) as address:
        seconds, counts = asyncio.run(all_of(address))
    assert counts == [n] * len(prompts), counts
    return seconds
