"""The case `beside` of `benchmarks/serving.py`: how long a small request waits beside a large one."""

from __future__ import annotations

import asyncio
import json
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.http_client import Connection
from benchmarks.servers import serve_process
from benchmarks.serving_common import Machine, Sizes, body_of
from benchmarks.serving_requests import COMPLETIONS, choice_of, state

LEAD_S = 0.3
"""Seconds that a large request has before the small ones begin."""
_DECISIONS = "/v1/decisions"


def _completion(prompt: object, n_tokens: int, **fields: object) -> tuple[str, bytes]:
    body = {"prompt": prompt, "max_tokens": n_tokens, "ignore_eos": True, "seed": 1, **fields}
    return COMPLETIONS, json.dumps(body).encode()


def _larges(sizes: Sizes) -> dict[str, tuple[str, bytes]]:
    """Return the large requests by name, each within the limits of a server."""
    share = sizes.n_large
    options = [f"label number {i}" for i in range(50)]
    questions = [choice_of(options, f"Question {i}: what is it?")[1] for i in range(4 * share)]
    return {
        "sequences": _completion(state(1), 100, n=share),
        "texts": _completion(state(2), 900, n=8) if share > 8 else _completion(state(2), 90, n=8),
        "prompts": _completion([state(100 + i) for i in range(8 * share)], 10),
        "questions": (_DECISIONS, body_of(state(3), questions)),
    }


def _small(number: int) -> tuple[tuple[str, bytes], ...]:
    """Return two small requests: a completion of 4 tokens, and a decision."""
    return _completion(state(10_000 + number), 4), (_DECISIONS, body_of(state(20_000 + number), [choice_of()[1]]))


async def _asked(connection: Connection, request: tuple[str, bytes]) -> float:
    """Return the seconds of a request."""
    start = perf_counter()
    reply = await connection.request("POST", *request)
    assert reply.status == 200, reply.body
    return perf_counter() - start


async def beside(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Ask small requests alone, then beside one large request of each kind."""
    del machine
    with serve_process("--threads", "1") as server:
        await server.seconds_until("/ready")
        return await measured(server.address, _larges(sizes), n_alone=sizes.n_large)


async def measured(
    address: tuple[str, int], larges: dict[str, tuple[str, bytes]], *, n_alone: int, n_beside: int = 500
) -> dict[str, Any]:
    """Return the seconds of small requests alone, and beside each of these requests."""
    connection, other = Connection(address, timeout_s=900), Connection(address, timeout_s=900)
    numbers = iter(range(1_000_000))
    alone: tuple[list[float], list[float]] = [], []
    for _ in range(n_alone + 5):
        for seconds, small in zip(alone, _small(next(numbers)), strict=True):
            seconds.append(await _asked(connection, small))
    at = [median(seconds[5:]) for seconds in alone]
    figures: dict[str, Any] = {"alone_completion_ms": 1000 * at[0], "alone_decision_ms": 1000 * at[1]}
    for name, large in larges.items():
        figures[f"{name}_alone_s"] = await _asked(other, large)
        work = asyncio.ensure_future(_asked(other, large))
        await asyncio.sleep(LEAD_S)
        found: tuple[list[float], list[float]] = [], []
        while not found[0] or (not work.done() and len(found[0]) < n_beside):
            for seconds, small in zip(found, _small(next(numbers)), strict=True):
                seconds.append(await _asked(connection, small))
        figures[f"{name}_beside_s"] = await work
        for kind, seconds, own in zip(("completion", "decision"), found, at, strict=True):
            figures[f"{name}_{kind}_first_ms"] = 1000 * seconds[0]
            figures[f"{name}_{kind}_over_alone"] = median(seconds) / own
            figures[f"{name}_{kind}_max_over_alone"] = max(seconds) / own
        figures[f"{name}_n"] = len(found[0])
    connection.close()
    other.close()
    return figures
