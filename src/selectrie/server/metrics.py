"""What the server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from selectrie.engine.engine import Engine
from selectrie.server.exchange import Exchange

REASONS = ("disconnected", "deadline", "shutdown")
"""Why an accepted request may be given up."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Counters of one application, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        names = ("endpoint", "status")
        self._requests = Counter("selectrie_requests", "Requests that were answered", names, registry=registry)
        self._seconds = Histogram(
            "selectrie_request_seconds", "Seconds of a request", ["endpoint"], buckets=_SECONDS, registry=registry
        )
        self._queue = Histogram(
            "selectrie_queue_seconds", "Seconds until the engine began", buckets=_SECONDS, registry=registry
        )
        self._first = Histogram(
            "selectrie_first_token_seconds",
            "Seconds to a stream's first event",
            buckets=_SECONDS,
            registry=registry,
        )
        self._rows = Counter("selectrie_rows", "Rows of the model for answers", ["kind"], registry=registry)
        self._one_by_one = Counter(
            "selectrie_rows_one_by_one", "Rows that one text after the other would have taken", registry=registry
        )
        self._calls = Counter("selectrie_model_calls", "Model calls for answers", registry=registry)
        self._decode = Counter("selectrie_decode_seconds", "Seconds inside the model for answers", registry=registry)
        self._accepted = Counter("selectrie_accepted", "Requests that took a place in the queue", registry=registry)
        self._answered = Counter("selectrie_answered", "Those that got a response, errors too", registry=registry)
        self._cancelled = Counter("selectrie_cancelled", "Those that were given up", ["reason"], registry=registry)
        self._open = Gauge("selectrie_open_requests", "Those that wait or are worked on", registry=registry)
        self._cached = Gauge(
            "selectrie_cached_nodes", "Tokens that the memory of a model holds", ["model"], registry=registry
        )
        self._tasks = Gauge(
            "selectrie_tasks", "Tasks of a model that run, or wait for memory", ["model", "state"], registry=registry
        )
        for reason in REASONS:
            self._cancelled.labels(reason)

    def accepted(self) -> None:
        """Count a request that took a place in the queue."""
        self._accepted.inc()
        self._open.inc()

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Count an exchange that ended after so many seconds.

        The accepted ones are those that were answered, were given up, or are open.
        """
        self._requests.labels(exchange.endpoint, str(exchange.status)).inc()
        self._seconds.labels(exchange.endpoint).observe(seconds)
        if exchange.is_accepted:
            self._open.dec()
            (self._cancelled.labels(exchange.cancelled) if exchange.cancelled else self._answered).inc()
        if exchange.model:
            cost = exchange.cost
            self._rows.labels("new").inc(cost.rows - cost.rows_repeated)
            self._rows.labels("repeated").inc(cost.rows_repeated)
            self._rows.labels("padding").inc(cost.rows_padded)
            self._one_by_one.inc(cost.rows_naive)
            self._calls.inc(cost.model_calls)
            self._decode.inc(cost.decode_s)
        if exchange.queue_s is not None:
            self._queue.observe(exchange.queue_s)
        if exchange.first_s is not None:
            self._first.observe(exchange.first_s)

    def text(self, engines: Mapping[str, Engine]) -> bytes:
        """Return all metrics in Prometheus' format. `engines` are the loaded models."""
        self._cached.clear()
        self._tasks.clear()
        for name, engine in engines.items():
            load = engine.load
            self._cached.labels(name).set(load.nodes_cached)
            self._tasks.labels(name, "running").set(load.n_active)
            self._tasks.labels(name, "waiting").set(load.n_waiting)
        return generate_latest(self._registry)
