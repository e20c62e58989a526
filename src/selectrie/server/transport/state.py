"""The state that all parts of an application share, and its metrics for Prometheus."""

from __future__ import annotations

import platform
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from starlette.requests import Request

from selectrie.core.types import Cost
from selectrie.engine.engine import Engine
from selectrie.engine.scheduler.turns import Turn
from selectrie.server.options import ServerOptions
from selectrie.server.transport.body import BodyBudget, Uploads
from selectrie.server.transport.models import ModelLease, Models
from selectrie.server.transport.request_context import Exchange, Permits
from selectrie.version import __version__

REASONS = ("disconnected", "deadline", "shutdown")
"""Reasons for which an accepted request is given up (`Exchange.lost`)."""
CAUSES = ("body", "model", "engine")
"""Causes for which an open request waits (`Exchange.waits_for`)."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Upper ends of the buckets of histograms of seconds."""


class Metrics:
    """Prometheus counters of one application, in a separate registry."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, buckets=_SECONDS, registry=registry)
        self._requests = counter("selectrie_requests", "Requests that were answered", ("endpoint", "status"))
        self._seconds = histogram("selectrie_request_seconds", "Seconds of a request", ["endpoint"])
        self._queue = histogram("selectrie_queue_seconds", "Seconds until the engine began")
        self._first = histogram("selectrie_first_token_seconds", "Seconds to a stream's first event")
        rows = counter("selectrie_rows", "Rows of the model for requests", ["kind"])
        self._new, self._repeated, self._padding = map(rows.labels, ("new", "repeated", "padding"))
        one_by_one = "Rows that one text after the other would have taken"
        self._one_by_one = counter("selectrie_rows_one_by_one", one_by_one)
        self._calls = counter("selectrie_model_calls", "Model calls for requests")
        self._decode = counter("selectrie_decode_seconds", "Seconds inside the model for requests")
        self._tokens = counter("selectrie_tokens", "Tokens of prompts, and drawn", ["kind"])
        self._reused = counter("selectrie_cached_tokens", "Prompt tokens that needed no row")
        self._errors = counter("selectrie_errors", "Requests that ended with an error", ["code"])
        self._accepted = counter("selectrie_accepted", "Requests that took a place in the queue")
        self._answered = counter("selectrie_answered", "Those that got a response, errors too")
        self._cancelled = counter("selectrie_cancelled", "Those that were given up", ["reason"])
        self._open = gauge("selectrie_open_requests", "Those that wait or are worked on")
        self._waiting = gauge("selectrie_waiting_requests", "What open ones wait for", ["cause"])
        self._open_ones: set[Exchange] = set()
        self._cached, self._held, self._capacity = (
            gauge(f"selectrie_{name}_nodes", f"Tokens that the memory of a model {what}", ["model"])
            for name, what in (("cached", "holds"), ("held", "keeps for tasks under way"), ("max", "has room for"))
        )
        build = Info("selectrie_build", "Version of the server", registry=registry)
        build.info({"version": __version__, "python": platform.python_version()})
        labels = ["model", "backend", "build", "precision", "weights"]
        self._model = gauge("selectrie_model_info", "Back end and precision of a model", labels)
        tasks = "Tasks of a model that run, or wait for memory"
        self._tasks = gauge("selectrie_tasks", tasks, ["model", "state"])
        for reason in REASONS:
            self._cancelled.labels(reason)

    def count_accepted(self, exchange: Exchange) -> None:
        """Count a request that took a place in the queue."""
        self._accepted.inc()
        self._open_ones.add(exchange)

    def count_work(self, cost: Cost) -> None:
        """Count the model's work for a request. Any thread may call it."""
        for counter, amount in (
            (self._new, cost.rows - cost.rows_repeated),
            (self._repeated, cost.rows_repeated),
            (self._padding, cost.rows_padded),
            (self._calls, cost.model_calls),
            (self._decode, cost.decode_s),
        ):
            if amount:  # this is done for each task of each call
                counter.inc(amount)

    def count_ended(self, exchange: Exchange, seconds: float) -> None:
        """Count an exchange that ended `seconds` after it began.

        Each accepted request is counted as answered or given up once it has ended.
        """
        self._requests.labels(exchange.endpoint, str(exchange.status)).inc()
        self._seconds.labels(exchange.endpoint).observe(seconds)
        if exchange.is_accepted:
            self._open_ones.discard(exchange)
            (self._cancelled.labels(exchange.lost) if exchange.lost else self._answered).inc()
        if exchange.error:
            self._errors.labels(exchange.error).inc()
        if exchange.model:
            self._one_by_one.inc(exchange.rows_naive)
        if exchange.queue_s is not None:
            self._queue.observe(exchange.queue_s)
            self._tokens.labels("prompt").inc(exchange.n_prompt)
            self._tokens.labels("drawn").inc(exchange.n_drawn)
            self._reused.inc(exchange.n_reused)
        if exchange.first_s is not None:
            self._first.observe(exchange.first_s)

    def render(self, engines: Mapping[str, Engine]) -> bytes:
        """Return all metrics in Prometheus' text format.

        Args:
            engines: The engines of the loaded models, by name.
        """
        self._open.set(len(self._open_ones))
        for cause in CAUSES:
            self._waiting.labels(cause).set(sum(one.waits_for == cause for one in self._open_ones))
        for cleared in (self._cached, self._held, self._capacity, self._tasks, self._model):
            cleared.clear()
        for name, engine in engines.items():
            load, n_nodes, identity = engine.load, engine.limits.nodes, engine.identity
            self._cached.labels(name).set(load.nodes_cached)
            self._held.labels(name).set(n_nodes - load.nodes_free)
            self._capacity.labels(name).set(n_nodes)
            self._model.labels(name, identity.backend, identity.build, identity.precision, identity.weights).set(1)
            self._tasks.labels(name, "running").set(load.n_active)
            self._tasks.labels(name, "waiting").set(load.n_waiting)
        return generate_latest(self._registry)


KEY = "selectrie.server"
"""Name of the state in the scope of a request."""


@dataclass(slots=True, eq=False)
class ServerState:
    """The state of an application.

    Attributes:
        models: The models that answer.
        options: The options.
        metrics: Counters for Prometheus.
        is_draining: Whether new work is refused.
        is_dropping: Whether unsent responses are dropped because the server ends.
        n_open: Number of requests that wait or are worked on.
        uploads: Open requests whose bodies have not arrived yet.
        bodies: Budget of bytes for the bodies of open requests.
        permits: Permits for work on large requests.
        turns: The scheduler's turn of each client with an open request, by key or
            address.
    """

    models: Models
    options: ServerOptions
    metrics: Metrics = field(default_factory=Metrics)
    is_draining: bool = False
    is_dropping: bool = False
    n_open: int = 0
    uploads: Uploads = field(default_factory=Uploads)
    permits: Permits = field(default_factory=Permits)
    turns: WeakValueDictionary[bytes | str, Turn] = field(default_factory=WeakValueDictionary)
    bodies: BodyBudget = field(init=False)

    def __post_init__(self) -> None:
        self.bodies = BodyBudget(self.options.max_body_bytes)

    def turn_of(self, client: bytes | str) -> Turn:
        """Return a client's turn, by which the scheduler alternates between clients.

        All open requests of the client share it.
        """
        return self.turns.setdefault(client, Turn())

    @asynccontextmanager
    async def lease_model(
        self, exchange: Exchange, name: str | None = None, *, decides: bool = False
    ) -> AsyncGenerator[ModelLease, None]:
        """Yield the model that a request names, and note its name in the exchange.

        Args:
            exchange: The request; the field `model` of its body names the model.
            name: The model's name if the request has no body.
            decides: Whether a cascade can answer the request.
        """
        exchange.waits_for = "model"
        async with self.models.lease(exchange.body.get("model", name), decides=decides) as lease:
            exchange.waits_for, exchange.model = "engine", lease.name
            if lease.warning:
                exchange.warnings.append(lease.warning)
            yield lease


def state_of(request: Request) -> ServerState:
    """Return the state of the application that answers a request."""
    state: ServerState = request.scope[KEY]
    return state
