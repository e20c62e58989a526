"""The cases of `benchmarks/serving.py` that ask a server in a separate process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from typing import Any

import selectrie
from benchmarks._common import Figures
from benchmarks.http_client import Connection, Lost, request_of
from benchmarks.servers import ServerProcess, llama_cpp_server, llama_cpp_server_at, serve_process
from benchmarks.serving_common import MIN_PAIRS, Machine, Sizes, body_of, ms
from benchmarks.serving_requests import choice_of, state
from selectrie import SamplingParams, StopParams
from selectrie.engine.engine import Engine
from selectrie.engine.sources import embedded_file

ECHOED = (" It should be sent again.", " The money is returned.", " A new one is ordered.", " Nothing can be done.")
MAX_NATS = 0.5
"""Nats by which the two servers may differ; they lay rows out differently. One token too early or too late would make several.
"""
TRIES_S = 300.0
"""Seconds in which a server must be full, and all tries made."""


async def startup(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Start the command some times; the first time reads its files from disk."""
    del machine
    health, ready = [], []
    for _ in range(sizes.n_starts):
        with serve_process("--threads", "1") as server:
            health.append(await server.seconds_until("/health"))
            ready.append(await server.seconds_until("/ready"))
    first = int(sizes.n_starts > 1)
    return {"health_s": median(health[first:]), "health_max_s": max(health[first:]), "ready_s": median(ready[first:])}


async def overhead(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Ask the engine and the server in turn, each with a new state in every pair."""
    question, data = choice_of()
    own, served, model = [], [], machine.small_path()
    own_cpu = list[float]()
    with selectrie.load(model, n_threads=1) as llm, serve_process("-m", str(model), "--threads", "1") as server:
        await server.seconds_until("/ready")
        connection = Connection(server.address, timeout_s=600)

        def by_engine(number: int) -> None:
            start, start_cpu = time.perf_counter(), time.process_time()
            llm.decide(state(number), {"q": question})
            own.append(time.perf_counter() - start)
            own_cpu.append(time.process_time() - start_cpu)

        async def by_server(number: int) -> None:
            body = body_of(state(number), [data])
            start = time.perf_counter()
            reply = await connection.request("POST", "/v1/decisions", body)
            served.append(time.perf_counter() - start)
            assert reply.status == 200, reply.body

        async def pairs(numbers: range) -> None:
            for number in numbers:
                if number % 2:
                    by_engine(number)
                    await by_server(number)
                else:
                    await by_server(number)
                    by_engine(number)

        await pairs(range(-10, 0))  # they make self-checks and plans
        n_pairs = int(sizes.pairs_s / (median(own) + median(served)))
        n_pairs = min(sizes.n_pairs, max(MIN_PAIRS, n_pairs))
        for values in (own, served, own_cpu):
            values.clear()
        start_cpu = server.cpu_s()
        await pairs(range(n_pairs))
        served_cpu_s = server.cpu_s() - start_cpu
        connection.close()
    added = [theirs - ours for theirs, ours in zip(served, own, strict=True)]
    figures = ms(own, "decide") | ms(served, "decisions")
    return {
        "pairs": n_pairs,
        **figures,
        "added_p50_ms": figures["decisions_p50_ms"] - figures["decide_p50_ms"],
        "added_in_pairs_p50_ms": 1000 * median(added),
        "added_cpu_ms": 1000 * (served_cpu_s - sum(own_cpu)) / n_pairs,
        "decisions_cpu_over_decide": served_cpu_s / sum(own_cpu),
        "decisions_over_decide": figures["decisions_p50_ms"] / figures["decide_p50_ms"],
    }


async def reject(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Fill the queue with long requests, and let one more client try."""
    arguments = ["-m", str(machine.path()), "--threads", str(machine.spare_threads()), "--n-ctx", str(sizes.n_ctx)]
    _, data = choice_of()
    text = " ".join(state(number) for number in range(sizes.state_tokens // 20))
    with serve_process(*arguments, "--max-requests", str(sizes.n_waiting)) as server:
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
        reply = await connection.request("POST", "/v1/decisions", body_of(f"{number}/{text}", questions))
        if reply.status == 429:
            await asyncio.sleep(0.05)


async def _tries(server: ServerProcess, sizes: Sizes, data: dict[str, Any]) -> tuple[list[float], int]:
    """Return the seconds of each 429, and how many tries were accepted.

    A try is accepted when it comes between an answer and the next request of that
    client. It hangs up then.
    """
    body, seconds, n_accepted = body_of(state(0), [data]), list[float](), 0
    until_s = time.perf_counter() + TRIES_S
    while (await server.metrics())["selectrie_open_requests", ()] < sizes.n_waiting:
        if time.perf_counter() > until_s:
            raise SystemExit(f"{sizes.n_waiting} requests did not fill the server within {TRIES_S:g} s")
        await asyncio.sleep(0.01)
    connection = Connection(server.address, timeout_s=5)
    while len(seconds) < sizes.n_tries and time.perf_counter() < until_s:
        start = time.perf_counter()
        try:
            is_refused = (await connection.request("POST", "/v1/decisions", body)).status == 429
        except Lost:
            is_refused = False
        if is_refused:
            seconds.append(time.perf_counter() - start)
        else:
            n_accepted += 1
    connection.close()
    return seconds, n_accepted


async def streams(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Draw streams of different prompts at once, in this process and from a server."""
    figures, n_tokens, path = Figures(), sizes.n_streams * sizes.stream_tokens, machine.path()
    arguments = ("-m", str(path), "--threads", str(machine.threads), "--n-ctx", str(sizes.n_ctx))
    with (
        selectrie.load(path, n_threads=machine.threads, n_ctx=sizes.n_ctx) as llm,
        serve_process(*arguments) as server,
    ):
        await server.seconds_until("/ready")
        connections = [Connection(server.address, timeout_s=600) for _ in range(sizes.n_streams)]
        for repeat in range(1 + sizes.repeats):
            prompts = [state(1000 * repeat + i) for i in range(sizes.n_streams)]
            for name in ("in_process", "server") if repeat % 2 else ("server", "in_process"):
                llm.trim()
                clock = time.process_time if name == "in_process" else server.cpu_s
                start, start_cpu = time.perf_counter(), clock()
                if name == "server":
                    work = [_stream_of_server(connections[i], i, one, sizes) for i, one in enumerate(prompts)]
                else:
                    work = [_stream_in_process(llm, i, one, sizes) for i, one in enumerate(prompts)]
                counts = await asyncio.gather(*work)
                figures.add(name, time.perf_counter() - start)
                figures.add(f"{name}_cpu", clock() - start_cpu)
                assert counts == [sizes.stream_tokens] * sizes.n_streams, counts
        for connection in connections:
            connection.close()
    for seconds in figures.seconds.values():
        del seconds[0]  # the first repeat warms both up
    at, pairs = figures.median, list(zip(figures.seconds["server"], figures.seconds["in_process"], strict=True))
    return {
        "streams_tokens": n_tokens,
        "streams_in_process_per_s": n_tokens / at("in_process"),
        "streams_per_s": n_tokens / at("server"),
        "streams_ratios": ", ".join(f"{ours / own:.2f}" for ours, own in pairs),
        # Other work on the machine only adds to processor time, so the least is compared.
        "streams_cpu_over_in_process": min(figures.seconds["server_cpu"]) / min(figures.seconds["in_process_cpu"]),
        "streams_of_in_process": median(own / ours for ours, own in pairs),
    }


async def _stream_in_process(llm: Engine, seed: int, prompt: str, sizes: Sizes) -> int:
    """Return the number of tokens with which an engine continues a prompt."""
    sampling = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, penalty_last_n=-1)
    stopping = StopParams(max_tokens=sizes.stream_tokens, ignore_eog=True)
    stream = llm.astream(prompt, seed=seed, sampling=sampling, stopping=stopping)
    return sum([len(chunk.tokens) async for chunk in stream])


async def _stream_of_server(connection: Connection, seed: int, prompt: str, sizes: Sizes) -> int:
    """Return the number of tokens with which a server continues a prompt."""
    own = {"max_tokens": sizes.stream_tokens, "ignore_eos": True, "stream_options": {"include_usage": True}}
    body = {"prompt": prompt, "seed": seed, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "stream": True, **own}
    data = request_of("POST", "/v1/completions", json.dumps(body).encode())
    *_, usage, last = [event async for _, event in connection.events(data)]
    assert last == "[DONE]", last
    return int(json.loads(usage)["usage"]["completion_tokens"])


async def echo(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Score choices after a context by `echo`, here and in llama_cpp.server: the same
    requests on the same file, each way with an empty cache.

    The file is the embedded model. With 152 k tokens, llama_cpp.server sorts the whole
    vocabulary in Python for each token of the prompt, which takes minutes.
    """
    python = llama_cpp_server_at(machine.python)
    if python is None:
        return {"llama_cpp_server": "skipped: it is not installed (make build/guidance)"}
    threads, figures, apart = machine.threads, Figures(), 0.0
    ours = serve_process("--threads", str(threads))
    with ours, llama_cpp_server(python, embedded_file(), n_ctx=2 * sizes.echo_tokens, n_threads=threads) as theirs:
        await ours.seconds_until("/ready")
        await theirs.seconds_until("/v1/models")
        for repeat in range(1 + sizes.repeats):  # the first reads the weights and checks the model
            context, together = [await _context(ours, sizes.echo_tokens, 2 * repeat + i) for i in range(2)]
            theirs_s, expected = await _scored(theirs, [[context + one] for one in ECHOED], len(context))
            ours_s, found = await _scored(ours, [[context + one] for one in ECHOED], len(context))
            together_s, _ = await _scored(ours, [[together + one for one in ECHOED]], len(together))
            if repeat:
                apart = max(apart, *(abs(a - b) for a, b in zip(found, expected, strict=True)))
                for name, seconds in (("llama_cpp_server", theirs_s), ("echo", ours_s), ("echo_together", together_s)):
                    figures.add(name, seconds)
    assert apart <= MAX_NATS, f"the two servers differ by {apart:.3g} nats"
    at = figures.median
    return {
        "echo_tokens": sizes.echo_tokens,
        **{f"{name}_s": at(name) for name in figures.seconds},
        "echo_nats_apart": apart,
        "llama_cpp_server_over_echo": at("llama_cpp_server") / at("echo"),
        "llama_cpp_server_over_echo_together": at("llama_cpp_server") / at("echo_together"),
    }


async def _context(server: ServerProcess, n_tokens: int, number: int) -> str:
    """Return a text of about so many tokens; no two numbers give the same beginning."""
    text = f"Case {number}."
    for count in range(n_tokens):
        reply = await server.asked("/tokenize", {"prompt": text})
        if reply["count"] >= n_tokens - 20:
            break
        text += f" {state(number + 7 * count)}"
    return text


async def _scored(server: ServerProcess, requests: Sequence[Sequence[str]], n_shared: int) -> tuple[float, list[float]]:
    """Return the seconds of requests that echo prompts, one after the other, and the
    log-probability of each prompt behind the shared characters.
    """
    connection, sums, start = Connection(server.address, timeout_s=600), list[float](), time.perf_counter()
    for prompts in requests:
        prompt = prompts[0] if len(prompts) == 1 else prompts
        body = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
        reply = await connection.request("POST", "/v1/completions", json.dumps(body).encode())
        assert reply.status == 200, reply.body
        for choice, text in zip(reply.json()["choices"], prompts, strict=True):
            told = choice["logprobs"]
            pairs = zip(told["text_offset"], told["token_logprobs"], strict=True)
            sums.append(sum(logp for place, logp in pairs if n_shared <= place < len(text)))
    seconds = time.perf_counter() - start
    connection.close()
    return seconds, sums
