"""The ports of models whose rows are asked for by their token path.

`PathModel` answers queries by path, `RowReader` reads rows of it in the background, and
`CompletionModel` draws text itself, as servers do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from selectrie.core.rows import Reads, Rows
from selectrie.core.types import Capacity, Cost, FloatArray, IntArray, ModelIdentity
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import OptionError, TokenRangeError

REMOTE = "remote"
"""The `ModelIdentity.precision` of a `PathModel`."""


@dataclass(frozen=True, slots=True)
class PathLimits:
    """The limits of the queries that a `PathModel` accepts.

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
    """The values that are requested of the row after a token path.

    Attributes:
        path: int32[T], T >= 1, the tokens before the row.
        named: int32[m], distinct tokens whose log-probabilities are asked for.
        top: Number of most probable tokens that are asked for.
    """

    path: IntArray
    named: IntArray
    top: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RowBounds:
    """Some log-probabilities of the row after a path, and bounds on all others.

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
    """Tells a call in progress that its result is no longer wanted.

    Any thread may cancel.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._is_cancelled = False

    @property
    def is_cancelled(self) -> bool:
        """Return whether `cancel` was called."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Cancel, and call each registered callback once."""
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
        """Return by how many nats two readings of a log-probability may differ.

        It is measured when the model is opened; 0 if every answer is the same.
        """
        ...

    def rows(self, queries: Sequence[RowQuery], cancellation: Cancellation) -> list[RowBounds]:
        """Return one answer to each query, in their order.

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


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The rows after the requested paths, and what reading them cost.

    Attributes:
        rows: One row for each path, in their order, ready to be read. They stay valid.
            Only the values of the `Reads` can be relied on.
        cost: The model work that they took.
    """

    rows: Rows
    cost: Cost


class RowStarter(Protocol):
    """Starts to read the rows after token paths in the background.

    One thread calls the methods.
    """

    def capacity(self, floor: Capacity) -> Capacity:
        """Return the capacity that a task of this floor is offered for its next ask.

        It is called once before each ask, and is at least `floor`.
        """
        ...

    def start(
        self,
        paths: Sequence[IntArray],
        reads: Reads,
        done: Callable[[Answer | BaseException], None],
        cancellation: Cancellation,
        *,
        priority: int = 0,
    ) -> None:
        """Start to read the rows after some paths, without waiting for them.

        Args:
            paths: int32[T_i], T_i >= 1, each a whole path from the first token of the
                context. A path is made when the sequence is indexed: index it when it
                is needed, and keep it no longer than that.
            reads: The values that will be read, of `len(paths)` rows.
            done: Called exactly once, in any thread, possibly before `start` returns:
                with the rows, or with the error that made reading them impossible. It
                returns at once and does not raise.
            cancellation: When it is cancelled, the rows are no longer wanted: work that
                serves nothing else ends, and `done` gets `CancelledError`, unless it
                was called before.
            priority: Rows of a higher priority go first.
        """
        ...


class RowReader(RowStarter, Protocol):
    """Reads the rows after token paths.

    A row depends only on its path, so reading it twice gives the same values.
    """

    def flush(self) -> None:
        """Begin to read all rows that were started so far.

        The caller will start no others for now, so these can share requests.
        """
        ...

    def clear(self) -> None:
        """Drop all rows that are cached for later reads."""
        ...

    def close(self) -> None:
        """Free everything; unfinished reads end with `ClosedError`.

        May be called twice.
        """
        ...


@dataclass(frozen=True, slots=True)
class ServedText:
    """A text that a server generated.

    Attributes:
        text: The text without a stop string.
        n_tokens: Number of drawn tokens.
        finish: "stop" (also the end of the text) or "length".
        decode_s: Seconds from the request to its answer.
    """

    text: str
    n_tokens: int
    finish: str
    decode_s: float


@runtime_checkable
class SupportsCompletion(Protocol):
    """A model that draws text itself, with its sampler, as a server does."""

    @property
    def sampler_name(self) -> str:
        """Return the name and version of the sampler."""
        ...

    def complete(
        self,
        prompt: IntArray,
        fields: Mapping[str, Any],
        done: Callable[[ServedText | BaseException], None],
        cancellation: Cancellation,
    ) -> None:
        """Request one text after a prompt, and return without waiting for it.

        Args:
            prompt: int32[T], T >= 1, the tokens before the text.
            fields: Fields of OpenAI's `/v1/completions`; `max_tokens` is one of them.
            done: Called exactly once, in any thread, with the text or an error:
                `ServerError` if the server failed after all retries or its answer
                cannot be right, `CancelledError`, or `ClosedError`.
            cancellation: Ends the request.

        Raises `ClosedError` or `ForkedError` if it cannot begin; `done` is not called
        then.
        """
        ...
