"""A `PathModel` made of a model that runs here."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.model import Model, chain
from selectrie.core.path_model import REMOTE, Cancellation, PartialRow, PathLimits, RowQuery, check_queries
from selectrie.core.rows import DenseRows, Rows
from selectrie.core.types import IntArray, ModelIdentity
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import CancelledError, ClosedError

LIMITS = PathLimits(named_ids=1024, top_ids=64, queries_per_request=64, requests_in_flight=4, path_tokens=4096)
"""Limits that small tests never reach."""

SUMMED = 1e-6
"""Bound on the error of a rest that is 1 minus a sum of probabilities."""


class PathsOf:
    """A model that runs here, asked for rows by their token path.

    Args:
        model: The model. Nothing else may use it; `close` closes it.
        limits: What may be asked. A path can be no longer than the model's memory.
        hides_rest: Whether a row says only what follows from the probabilities in it,
            as a server's does: the rest is 1 minus their sum, and no other token is
            more probable than the last of the most probable ones. Otherwise both are
            exact.
        tolerance: Nats by which a log-probability may differ when it is asked again.
    """

    def __init__(
        self, model: Model, *, limits: PathLimits = LIMITS, hides_rest: bool = False, tolerance: float = 0.0
    ) -> None:
        self._model, self._hides_rest, self.tolerance = model, hides_rest, tolerance
        self.limits = replace(limits, path_tokens=min(limits.path_tokens, model.limits.nodes))
        self._lock, self._is_closed = threading.Lock(), False

    @property
    def vocabulary(self) -> Vocabulary:
        return self._model.vocabulary

    @property
    def identity(self) -> ModelIdentity:
        return replace(self._model.identity, precision=REMOTE)

    def rows(self, queries: Sequence[RowQuery], cancellation: Cancellation) -> list[PartialRow]:
        check_queries(queries, self.limits, len(self.vocabulary.pieces))
        return [self._row(query, cancellation) for query in queries]

    def _row(self, query: RowQuery, cancellation: Cancellation) -> PartialRow:
        with self._lock:
            if self._is_closed:
                raise ClosedError("the model")
            if cancellation.is_cancelled:
                raise CancelledError
            node, rows = _evaluated(self._model, query.path)
            row = self._said(rows, query)
            self._model.release(np.array([node], dtype=np.int32))
            return row

    def _said(self, rows: Rows, query: RowQuery) -> PartialRow:
        top, top_logp = rows.top(0, query.top)
        ids = np.unique(np.concatenate([query.named, top])).astype(np.int32)
        logp = rows.logp(0, ids)
        if not self._hides_rest:
            others = np.ones(len(self.vocabulary.pieces), dtype=np.bool_)
            others[ids] = False
            best = rows.top(0, 1, others)[1]
            return PartialRow(ids, logp, (rows.log_rest(0, ids),) * 2, float(best[0]) if len(best) else -np.inf)
        rest = 1.0 - float(numerics.exp(logp).sum())
        low, high = (float(np.log(p)) if p > 0 else -np.inf for p in (rest - SUMMED, rest + SUMMED))
        return PartialRow(ids, logp, (low, high), float(top_logp[-1]) if 0 < query.top == len(top) else high)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._model.close()


def _evaluated(model: Model, path: IntArray) -> tuple[int, Rows]:
    """Evaluate a path; return its last node, which is to be released, and its row."""
    node, depth = model.match_prefix(path[:-1])
    rows: Rows = DenseRows(np.empty((0, 0), dtype=np.float32))
    try:
        for start in range(depth, len(path), model.limits.rows_per_call):
            part = path[start : start + model.limits.rows_per_call]
            is_last = np.arange(len(part)) == len(part) - 1
            extension = model.extend(chain(node, len(part)), part, is_last, is_last)
            before, node, rows = node, int(extension.nodes[-1]), extension.rows
            model.release(extension.nodes[:-1])
            model.release(np.array([before], dtype=np.int32))
    except BaseException:
        model.release(np.array([node], dtype=np.int32))
        raise
    return node, rows
