"""The port that a model satisfies whose rows are asked for by their token path.

A server shows neither its logits nor its memory. It says something about the row after
a token path: the log-probabilities of some tokens, and of the most probable ones.
`PathModel` is that port, as `core.model.Model` is the one of models that run here.

Laws (checked by `testing.check_path_model`):

1. A row depends only on its path: not on what else is asked, in which order, or in
   which request.
2. Every named token is in the row that comes back, and so are the `top` most probable
   ones, or all tokens if there are fewer. Ids are distinct and ascending.
3. The probabilities in a row and those that `log_rest` bounds sum to a range that
   contains 1, and no token outside the row is more probable than `rest_max`.
4. A query that breaks a limit raises before anything was asked.
5. `rows` may be called from several threads. Cancelling ends a call that waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from selectrie.core.types import FloatArray, IntArray, ModelIdentity
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import OptionError, TokenRangeError

REMOTE = "remote"
"""The `ModelIdentity.precision` of a model that is asked for its rows by their path."""


@dataclass(frozen=True, slots=True)
class PathLimits:
    """What may be asked of a `PathModel`.

    Attributes:
        named_ids: Maximum number of named tokens of a query.
        top_ids: Maximum number of most probable tokens of a query.
        queries_per_request: Number of queries that one request to the server can carry.
        requests_in_flight: Number of calls of `rows` that are worth making at once.
        path_tokens: Maximum number of tokens of a path.
    """

    named_ids: int
    top_ids: int
    queries_per_request: int
    requests_in_flight: int
    path_tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class RowQuery:
    """What is asked about the row after a path.

    Attributes:
        path: int32[T], T >= 1, the tokens before the row.
        named: int32[m], distinct tokens whose log-probabilities are asked for.
        top: How many of the most probable tokens are asked for.
    """

    path: IntArray
    named: IntArray
    top: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PartialRow:
    """What is known of the row after a path.

    Attributes:
        ids: int32[n], distinct tokens, ascending.
        logp: float64[n], their log-probabilities.
        log_rest: Lower and upper bound on the log of the summed probability of all
            other tokens; equal if it is known, -inf for both if there are none.
        rest_max: Upper bound on the log-probability of every other token.
    """

    ids: IntArray
    logp: FloatArray
    log_rest: tuple[float, float]
    rest_max: float


def check_queries(queries: Sequence[RowQuery], limits: PathLimits, n_tokens: int) -> None:
    """Raise unless every query keeps to the limits of a model of `n_tokens` tokens.

    Raises:
        OptionError: If a path is empty or too long, or more tokens are asked for than
            may be, or one of them twice.
        TokenRangeError: If a token does not exist.
    """
    for query in queries:
        for name, value, least, most in (
            ("path", len(query.path), 1, limits.path_tokens),
            ("named", len(query.named), 0, limits.named_ids),
            ("top", query.top, 0, limits.top_ids),
        ):
            if not least <= value <= most:
                raise OptionError(name, value, f"from {least} to {most} tokens")
        if len(np.unique(query.named)) < len(query.named):
            raise OptionError("named", query.named.tolist(), "distinct tokens")
        for ids in (query.path, query.named):
            wrong = np.flatnonzero((ids < 0) | (ids >= n_tokens))
            if len(wrong):
                raise TokenRangeError(int(ids[wrong[0]]), n_tokens)


class Cancellation:
    """Tells a call that its result is no longer wanted. Any thread may cancel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._is_cancelled = False

    @property
    def is_cancelled(self) -> bool:
        """Return whether `cancel` was called."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Call every callback, once."""
        with self._lock:
            self._is_cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_cancelled(self, callback: Callable[[], None]) -> None:
        """Have `callback` called on cancelling, or now if that has happened.

        It may be called in any thread, after the call has ended too, and must not
        raise.
        """
        with self._lock:
            if not self._is_cancelled:
                self._callbacks.append(callback)
                return
        callback()


class PathModel(Protocol):
    """A causal language model that is asked for rows by their token path."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def identity(self) -> ModelIdentity: ...

    @property
    def limits(self) -> PathLimits: ...

    @property
    def tolerance(self) -> float:
        """Return the nats by which a log-probability may differ when it is asked again.

        It is measured when the model is opened; 0 if every answer is the same.
        """
        ...

    def rows(self, queries: Sequence[RowQuery], cancellation: Cancellation) -> list[PartialRow]:
        """Return the rows that the queries ask about, in their order.

        Raises:
            OptionError: If a query breaks a limit, before anything was asked.
            TokenRangeError: If a token does not exist.
            DecodeError: If the model failed, after all retries.
            CancelledError: If the call was cancelled.
        """
        ...

    def close(self) -> None:
        """Free everything; later calls raise `ClosedError`. May be called twice."""
        ...
