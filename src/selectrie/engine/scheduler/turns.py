"""Decides whose turn it is, and how long a call may take while others wait.

Clients take turns, then the requests of a client, then the jobs of a request. So a
client with many requests, or a request with many jobs, gets no larger share of the
model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import count
from typing import Protocol, TypeVar

import numpy as np

WAIT_S = 0.25
"""Maximum seconds of a call while several requests are under way."""
ROUNDING = 1e-9
"""Allowance for rounding when a share of rows is cut to a whole number."""
_FORGOTTEN = 0.05
"""Weight of each new call in the averages of call times."""
_PLACES = count()


class Turn:
    """The place in line of a client or a request.

    Attributes:
        place: The lowest place is served first. It changes after each turn.
        arrival: The first place, which does not change.
    """

    __slots__ = ("__weakref__", "arrival", "place")

    def __init__(self) -> None:
        self.place = self.arrival = next(_PLACES)


class TakesTurns(Protocol):
    """What a job must have to be put in line: its request, its client, a priority."""

    request: Turn
    client: Turn

    @property
    def priority(self) -> int: ...


JobT = TypeVar("JobT", bound=TakesTurns)


def in_turns(jobs: Iterable[JobT]) -> list[JobT]:
    """Return jobs in the order in which they go into a call.

    Higher priorities go first. Then comes one job of each client, then a second of
    each, and so on; the jobs of a client come from its requests in the same way. Jobs
    of one request stay in the order given.
    """
    by_request = sorted(
        _number_within(jobs, "request"), key=lambda one: (-one[1].priority, one[0], one[1].request.place)
    )
    by_client = _number_within((job for _, job in by_request), "client")
    ordered = sorted(by_client, key=lambda one: (-one[1].priority, one[0], one[1].client.place))
    return [job for _, job in ordered]


def _number_within(jobs: Iterable[JobT], owner: str) -> list[tuple[int, JobT]]:
    """Return each job with the number of earlier jobs of the same owner.

    `owner` is "request" or "client".
    """
    n_before: Counter[Hashable] = Counter()
    numbered = []
    for job in jobs:
        turn = getattr(job, owner)
        numbered.append((n_before[turn], job))
        n_before[turn] += 1
    return numbered


def shares_of(jobs: Sequence[JobT]) -> dict[JobT, float]:
    """Return the share of each job: equal for clients and for a client's requests.

    The shares of a client's jobs add up to 1.
    """
    n_jobs = Counter(job.request for job in jobs)
    n_requests = Counter({job.request: job.client for job in jobs}.values())
    return {job: 1 / (n_jobs[job.request] * n_requests[job.client]) for job in jobs}


def move_to_end(jobs: Sequence[TakesTurns]) -> None:
    """Move the clients and the requests of these jobs to the end of the line.

    The jobs are those of the last call. Among them, the first in `jobs` comes last and
    the others keep their order.
    """
    for turns in ([job.client for job in jobs], [job.request for job in jobs]):
        first, *others = dict.fromkeys(turns)
        for turn in (*others, first):
            turn.place = next(_PLACES)


class CallTimes:
    """Estimates the time of a call from recent calls.

    The model's seconds are fitted by a line in the number of rows, with the least
    squares of relative errors. The seconds of a row also include the work of tasks,
    which may take longer than the model; drawing from a large vocabulary does.
    """

    def __init__(self) -> None:
        # Weighted sums over calls of 1, x, y, x², xy, rows and all seconds, where x is
        # 1 / rows and y the model's seconds of a row.
        self._sums = np.zeros(7)

    def add(self, n_rows: int, decode_s: float, seconds: float) -> None:
        """Add a call that took `seconds`, of which `decode_s` were in the model."""
        if n_rows < 1 or decode_s <= 0:
            return
        x, y = 1 / n_rows, decode_s / n_rows
        self._sums = (1 - _FORGOTTEN) * self._sums + (1, x, y, x * x, x * y, n_rows, max(seconds, decode_s))

    def _fit_line(self) -> tuple[float, float, float]:
        """Return the model's seconds of a call and a row, and all seconds of a row."""
        n, x, y, xx, xy, rows, seconds = self._sums.tolist()
        spread, call_s = n * xx - x * x, 0.0
        if spread > 1e-9 * n * xx:  # else all calls had the same size
            call_s = min(max((n * xy - x * y) / spread, 0.0), y / x)
        return call_s, max((y - call_s * x) / n, 0.0), max((seconds - n * call_s) / rows, 1e-9)

    def rows_for(self, least: int, n_requests: int, min_rows: int) -> float:
        """Return the maximum number of rows of a call while several requests wait.

        The call takes `WAIT_S` at most, or as long as the model takes for `min_rows`.
        It also takes at most as long as `n_requests` + 1 calls of `least` rows, so that
        a request with many rows does not delay one with few.

        Args:
            least: Number of rows that the request with the fewest needs next.
            n_requests: Number of requests under way.
            min_rows: Number of rows below which the fixed time of a call dominates.
        """
        if not self._sums.any():
            return float("inf")
        call_s, model_row_s, row_s = self._fit_line()
        usual_s = max(WAIT_S, call_s + min_rows * model_row_s)
        seconds = min(usual_s, (n_requests + 1) * (call_s + least * model_row_s))
        return max(1.0, (seconds - call_s) / row_s)
