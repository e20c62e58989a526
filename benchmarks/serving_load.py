"""Many clients at once: what `benchmarks/serving.py --case load` runs and checks.

Every client asks one request after the other. Some are wrong, some hang up, some read
slowly. All else is compared with what an engine of this process answers alone.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import selectrie
from benchmarks.http_client import Connection, Lost, Pace, Reply, request_of
from benchmarks.servers import ServerProcess, serve_process
from benchmarks.serving_common import Machine, Sizes, ms
from benchmarks.serving_requests import ID, Asked, Malformed, Verdict, decisions, malformed, systemone
from benchmarks.serving_texts import KINDS
from selectrie.engine.sources import embedded_file

SHARE_MALFORMED, SHARE_HANGING_UP = 0.1, 0.1
SLOW_EVERY = 10
"""Of so many clients, one reads slowly."""
SLOW = Pace(64, 0.01)
SETTLE_S = 60.0
"""Seconds in which open requests must end after all clients have stopped."""
_UNCOUNTED = ("/health", "/ready", "/metrics")
"""Endpoints that are asked by this program beside the load."""


@dataclass(slots=True)
class Ledger:
    """What the clients saw.

    Attributes:
        answered: Endpoint and status of each request that got a whole response, by id.
        left: Ids of requests whose client hung up after their headers.
        lost: Why a response did not come, by id.
        problems: What was wrong with answers.
        seconds: Seconds of each well-formed request, by kind.
        share: The largest difference of a value, as a share of what is allowed.
    """

    answered: dict[str, tuple[str, int]] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    lost: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    share: float = 0.0


class Client:
    """One client.

    Args:
        address: The server.
        number: The number of the client, from which its choices are drawn.
        asked: What it may ask.
        wrong: Wrong requests that it may send.
        ledger: Where it writes down what it saw.
    """

    def __init__(
        self,
        address: tuple[str, int],
        number: int,
        *,
        asked: Sequence[Asked],
        wrong: Sequence[Malformed],
        ledger: Ledger,
    ) -> None:
        self._address, self._number, self._asked, self._wrong = address, number, asked, wrong
        self._ledger, self._random, self._count = ledger, random.Random(number), 0  # noqa: S311 - no secret
        self._connection = Connection(address, pace=SLOW if number % SLOW_EVERY == 0 else None)
        self.is_refused = False

    async def run(self, until_s: float) -> None:
        """Ask until a time of `time.perf_counter`, or until the server is gone."""
        try:
            while perf_counter() < until_s and not self.is_refused:
                self._count += 1
                drawn = self._random.random()
                try:
                    if drawn < SHARE_MALFORMED:
                        await self._malformed(self._random.choice(self._wrong))
                    elif drawn < SHARE_MALFORMED + SHARE_HANGING_UP:
                        await self._hanging_up(self._random.choice(self._asked))
                    else:
                        await self._well_formed(self._random.choice(self._asked))
                except OSError:
                    self.is_refused = True
        finally:
            self._connection.close()

    def _id(self) -> str:
        return f"client{self._number}-{self._count}"

    async def _well_formed(self, asked: Asked) -> None:
        own, ledger = self._id(), self._ledger
        began = perf_counter()
        reply = await self._replied(self._encoded(asked, own), own)
        if reply is None:
            return
        ledger.answered[own] = asked.path, reply.status
        if reply.status == 200:
            ledger.seconds.setdefault(asked.kind, []).append(perf_counter() - began)
            verdict = _verdict(asked, reply)
            ledger.share = max(ledger.share, verdict.share)
            if verdict.problem:
                ledger.problems.append(f"{own} {asked.kind}: {verdict.problem}")
        elif reply.status in (429, 503):
            self.is_refused = reply.status == 503
            await asyncio.sleep(0.1)
        else:
            ledger.problems.append(f"{own} {asked.kind}: {reply.status} {reply.body[:300]!r}")

    def _encoded(self, asked: Asked, own: str) -> bytes:
        """Return the bytes of a request: plain, compressed or in chunks."""
        headers, way = {"x-request-id": own}, self._random.randrange(4)
        if way == 0:
            return request_of("POST", asked.path, gzip.compress(asked.body), {**headers, "content-encoding": "gzip"})
        if way == 1:
            head = request_of(
                "POST",
                asked.path,
                None,
                {**headers, "content-type": "application/json", "transfer-encoding": "chunked"},
            )
            half = len(asked.body) // 2
            parts = (asked.body[:half], asked.body[half:], b"")
            return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
        return request_of("POST", asked.path, asked.body, headers)

    async def _replied(self, data: bytes, own: str) -> Reply | None:
        try:
            await self._connection.send(data)
            return await self._connection.reply()
        except Lost as error:
            self._ledger.lost[own] = str(error)
            return None

    async def _malformed(self, one: Malformed) -> None:
        own, ledger = self._id(), self._ledger
        reply = await self._replied(one.data.replace(ID.encode(), own.encode()), own)
        if not one.keeps:
            self._connection.close()
        if reply is None:
            return
        if one.path:
            ledger.answered[own] = one.path, reply.status
        if reply.status == 503:
            self.is_refused = True
        elif reply.status != one.status:
            ledger.problems.append(f"{own} {one.name}: {reply.status} instead of {one.status}")
        elif one.path and set(reply.json()["error"]) != {"message", "type", "param", "code"}:
            ledger.problems.append(f"{own} {one.name}: {reply.body[:300]!r}")

    async def _hanging_up(self, asked: Asked) -> None:
        """Leave somewhere: in the headers, in the body, before or in the response."""
        own, drawn = self._id(), self._random
        data = request_of("POST", asked.path, asked.body, {"x-request-id": own})
        n_head, where = data.index(b"\r\n\r\n") + 4, drawn.randrange(4)
        if where:
            self._ledger.left.add(own)
        with suppress(Lost):
            await self._connection.send(
                data[: n_head // 2]
                if where == 0
                else data[: drawn.randrange(n_head, len(data))]
                if where == 1
                else data
            )
            if where == 3:
                await self._connection.first_line()
            else:
                await asyncio.sleep(drawn.random() * 0.5)
        self._connection.hang_up(reset=drawn.random() < 0.5)


def _verdict(asked: Asked, reply: Reply) -> Verdict:
    try:
        return asked.check(reply)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        return Verdict(f"{type(error).__name__} {error} in {reply.body[:300]!r}")


class Load:
    """Runs clients against one server, and says what was wrong.

    Args:
        server: The server; it is ended by `terminated`.
        asked: What clients ask.
        wrong: What clients ask wrongly.
        n_clients: Number of clients at once.
    """

    def __init__(
        self, server: ServerProcess, asked: Sequence[Asked], wrong: Sequence[Malformed], n_clients: int
    ) -> None:
        self.server, self.ledger = server, Ledger()
        self._asked, self._wrong, self._n_clients, self._n_made = asked, wrong, n_clients, 0

    def _clients(self) -> list[Client]:
        numbers = range(self._n_made, self._n_made + self._n_clients)
        self._n_made += self._n_clients
        made = {"asked": self._asked, "wrong": self._wrong, "ledger": self.ledger}
        return [Client(self.server.address, number, **made) for number in numbers]  # type: ignore[arg-type]

    async def phase(self, seconds: float) -> None:
        """Run all clients for so many seconds, and wait until nothing is open."""
        until_s = perf_counter() + seconds
        await asyncio.gather(*[client.run(until_s) for client in self._clients()])
        until_s = perf_counter() + SETTLE_S
        while (await self.server.metrics())["selectrie_open_requests", ()]:
            if perf_counter() > until_s:
                self.ledger.problems.append(f"requests were open {SETTLE_S:g} s after the last client had left")
                return
            await asyncio.sleep(0.05)

    async def unbalanced(self) -> list[str]:
        """Return where the server's counts, its log and what clients saw disagree."""
        counted = {
            key: round(value)
            for (name, key), value in (await self.server.metrics()).items()
            if name == "selectrie_requests_total" and key[0] not in _UNCOUNTED
        }
        logged = [line for line in self.server.logged() if line["endpoint"] not in _UNCOUNTED]
        by_log = Counter((line["endpoint"], str(line["status"])) for line in logged)
        found = [
            f"{endpoint} {status}: {counted.get((endpoint, status), 0)} counted, {by_log[endpoint, status]} logged"
            for endpoint, status in {*counted, *by_log}
            if counted.get((endpoint, status), 0) != by_log[endpoint, status]
        ]
        return found + self._unlogged(logged)

    def _unlogged(self, logged: Sequence[dict[str, Any]]) -> list[str]:
        """Return where the log and what clients saw disagree, request by request."""
        ledger, lines = self.ledger, {line["request_id"]: line for line in logged}
        found = [f"{own} was logged {n} times" for own, n in Counter(x["request_id"] for x in logged).items() if n > 1]
        for own, (endpoint, status) in ledger.answered.items():
            line = lines.get(own)
            if line is None or (line["endpoint"], line["status"]) != (endpoint, status):
                found.append(f"{own} got {status} of {endpoint}, and was logged as {line}")
        known = {*ledger.answered, *ledger.left, *ledger.lost}
        return found + [f"{own} was logged, and no client sent it" for own in lines if own not in known]

    async def terminated(self, seconds: float, *, limit_s: float) -> int:
        """Run all clients, send SIGTERM after so many seconds, and return the exit
        code. Clients go on until they are refused.
        """
        clients = self._clients()
        work = asyncio.gather(*[client.run(perf_counter() + seconds + limit_s) for client in clients])
        await asyncio.sleep(seconds)
        self.server.terminate()
        await work
        return await asyncio.to_thread(self.server.wait, limit_s)

    def accepted_but_lost(self) -> list[str]:
        """Return the requests that the server took and whose clients, who stayed, got
        no whole response.
        """
        lines = {line["request_id"]: line for line in self.server.logged()}
        lost = {own: why for own, why in self.ledger.lost.items() if own in lines and lines[own]["status"] != 503}
        return [f"{own}: {why}; logged as {json.dumps(lines[own])}" for own, why in lost.items()]


async def load(sizes: Sizes, machine: Machine) -> dict[str, Any]:
    """Run all clients twice, then once more until SIGTERM has ended the server."""
    with selectrie.load(embedded_file(), n_threads=machine.threads) as llm:
        asked = [make(llm, number) for number in range(sizes.n_asked) for make in (decisions, systemone, *KINDS)]
    arguments = ["--threads", str(machine.spare_threads()), "--shutdown-timeout", "120", "--model-name", "embedded"]
    resident: list[int | None] = []
    with serve_process(*arguments) as server:
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
