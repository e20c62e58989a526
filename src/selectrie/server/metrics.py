"""What the server counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from selectrie.engine.engine import Engine
from selectrie.server.exchange import Exchange

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
            "selectrie_queue_seconds", "Seconds until a model was free", buckets=_SECONDS, registry=registry
        )
        self._first = Histogram(
            "selectrie_first_token_seconds",
            "Seconds to a stream's first event",
            buckets=_SECONDS,
            registry=registry,
        )
        self._rows = Counter("selectrie_rows", "Rows of the model for answers", ["kind"], registry=registry)
        self._calls = Counter("selectrie_model_calls", "Model calls for answers", registry=registry)
        self._decode = Counter("selectrie_decode_seconds", "Seconds inside the model for answers", registry=registry)
        self._cancelled = Counter("selectrie_cancelled", "Requests without an answer", ["reason"], registry=registry)
        self._open = Gauge("selectrie_open_requests", "Requests that wait or are worked on", registry=registry)
        self._cached = Gauge("selectrie_cached_nodes", "Tokens that the cache of the model holds", registry=registry)

    def opened(self, n: int) -> None:
        """Set the number of requests that wait or are worked on."""
        self._open.set(n)

    def cancelled(self, reason: str) -> None:
        """Count a request that was given up."""
        self._cancelled.labels(reason).inc()

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Count an exchange that ended after so many seconds."""
        self._requests.labels(exchange.endpoint, str(exchange.status)).inc()
        self._seconds.labels(exchange.endpoint).observe(seconds)
        if exchange.model:
            self._queue.observe(exchange.queue_s)
            self._rows.labels("evaluated").inc(exchange.rows)
            self._rows.labels("one_by_one").inc(exchange.rows_one_by_one)
            self._calls.inc(exchange.model_calls)
            self._decode.inc(exchange.decode_s)
        if exchange.first_s is not None:
            self._first.observe(exchange.first_s)

    def text(self, engine: Engine | None) -> bytes:
        """Return all metrics in Prometheus' format."""
        if engine is not None and not engine.closed:
            self._cached.set(engine.limits.nodes - engine.load.nodes_free)
        return generate_latest(self._registry)
