"""Path models whose answers wait until a test lets them go, and that note what they are asked."""

from __future__ import annotations

import threading

from selectrie.core.path_model import Cancellation, PathLimits
from selectrie.errors import CancelledError
from selectrie.testing import PathsOf

LONG_S = 30.0
"""Seconds that nothing takes; a test that waits so long fails."""


class NotedPaths(PathsOf):
    """`PathsOf` that notes each call and how many calls run at once; `limits` may be narrow.

    Attributes:
        requests: The paths of the queries of each call.
        queries: All queries.
        n_at_once: The largest number of calls that ran at the same time.
        failures: Errors to raise, by a token of the path; each is raised while it is there.
    """

    def __init__(self, model, **options):
        super().__init__(model, **options)
        self.requests: list[list[tuple[int, ...]]] = []
        self.queries = []
        self.n_at_once = self._n_now = 0
        self.failures: dict[int, BaseException] = {}
        self._noting = threading.Lock()

    def rows(self, queries, cancellation):
        with self._noting:
            self.requests.append([tuple(query.path.tolist()) for query in queries])
            self.queries += queries
            self._n_now += 1
            self.n_at_once = max(self.n_at_once, self._n_now)
        try:
            for query in queries:
                for token, error in self.failures.items():
                    if token in query.path.tolist():
                        raise error
            return self.answer(queries, cancellation)
        finally:
            with self._noting:
                self._n_now -= 1

    def answer(self, queries, cancellation):
        return super().rows(queries, cancellation)


class GatedPaths(NotedPaths):
    """A path model whose calls wait until `let_go`, or until they are cancelled.

    Attributes:
        cancelled: The paths of the queries of each call that was cancelled while it waited.
    """

    def __init__(self, model, **options):
        super().__init__(model, **options)
        self._changed = threading.Condition()
        self._n_waiting, self._n_free, self._is_open = 0, 0, False
        self.cancelled: list[list[tuple[int, ...]]] = []

    def answer(self, queries, cancellation):
        cancellation.when_cancelled(self._notify)
        with self._changed:
            self._n_waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_open or self._n_free or cancellation.is_cancelled, LONG_S)
            self._n_waiting -= 1
            if cancellation.is_cancelled:
                self.cancelled.append([tuple(query.path.tolist()) for query in queries])
                self._changed.notify_all()
                raise CancelledError
            self._n_free -= not self._is_open
        return super().answer(queries, Cancellation())

    def _notify(self):
        with self._changed:
            self._changed.notify_all()

    def let_go(self, n=1):
        """Let n calls go on, now or later."""
        with self._changed:
            self._n_free += n
            self._changed.notify_all()

    def open(self):
        """Let every call go on."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def wait_for(self, n):
        """Wait until n calls wait."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._n_waiting == n, LONG_S), f"{self._n_waiting} calls wait"

    def wait_for_cancelled(self, n):
        """Wait until n calls were cancelled."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.cancelled) == n, LONG_S), f"{len(self.cancelled)} cancelled"


def limits(named_ids=1024, top_ids=64, queries_per_request=4, requests_in_flight=2, path_tokens=4096):
    """Return narrow limits."""
    return PathLimits(named_ids, top_ids, queries_per_request, requests_in_flight, path_tokens)
