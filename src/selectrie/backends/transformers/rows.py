"""Rows whose logits stay on an accelerator, which computes the values to read.

Only these values are copied to the host; those of one `Reads` in one transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from selectrie.core import numerics
from selectrie.core.partial_rows import SelectedRows
from selectrie.core.rows import DenseRows, KnownRows, Reads, Rows, TokenSet, TopTokens
from selectrie.core.types import BoolArray, FloatArray, IntArray, LogitArray
from selectrie.errors import NonFiniteLogitsError

_BLOCK_ROWS = 16
"""Number of rows normalised at once.

It is always the same, because the order of a sum depends on the shape. In float64 these
rows take 19 MB for a vocabulary of 152k tokens.
"""
_SMALL_SET = 256
"""Number of tokens up to which a set is added up on the host.

Larger sets are added up on the device, each by itself, so that no sum depends on other
sets.
"""
_MORE = 8
"""Number of tokens fetched beyond the k best, to notice ties."""


def rows_of(logits: torch.Tensor, index: ArrayLike | None = None) -> Rows:
    """Return the rows of a call: `DenseRows` for logits on the CPU, else `TorchRows`.

    Logits in the host's memory are not copied if they are float32.

    Args:
        logits: [M, V], of any floating type and on any device.
        index: int64[n], the row of `logits` for each wanted node (default: 0..M-1).
    """
    if logits.device.type == "cpu":
        return DenseRows(logits.detach().float().numpy(), index)
    return TorchRows(logits.detach(), index)


@final
class TorchRows(KnownRows):
    """Rows whose logits are a tensor, [M, V], on any device with float64.

    The log-sum-exp of each row is computed on the device, in float64, when it is first
    needed, and kept there.
    """

    __slots__ = ("_counter", "_index", "_logits", "_normaliser")

    def __init__(self, logits: torch.Tensor, index: ArrayLike | None = None) -> None:
        n_rows = len(logits)
        self._logits = logits
        self._index = np.arange(n_rows) if index is None else np.asarray(index, dtype=np.int64)
        self._normaliser = _Normaliser(logits)
        self._counter = [0]

    def __len__(self) -> int:
        return len(self._index)

    @property
    def n_bytes_read(self) -> int:
        """Return the number of bytes copied to the host, by all views together."""
        return self._counter[0]

    @property
    def nbytes(self) -> int:
        return int(len(self._index) * self._logits.shape[1] * self._logits.element_size())

    def check(self) -> None:
        self._check(self._index)

    def logp(self, i: ArrayLike, token_ids: ArrayLike) -> FloatArray:
        rows, ids = np.broadcast_arrays(self._index[np.asarray(i, dtype=np.int64)], np.asarray(token_ids))
        self._check(rows)
        return self._to_host([self._pairs(rows.ravel(), ids.ravel())])[0].reshape(rows.shape)

    def log_mass(self, i: int, token_ids: ArrayLike) -> float:
        ids = np.asarray(token_ids, dtype=np.int32)
        if len(ids) <= _SMALL_SET:
            return numerics.logsumexp(self.logp(i, ids))
        return self._read_one(TokenSet(i, ids), self._mass)

    def log_rest(self, i: int, token_ids: ArrayLike) -> float:
        return self._read_one(TokenSet(i, np.asarray(token_ids, dtype=np.int32)), self._rest)

    def top(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> tuple[IntArray, FloatArray]:
        self._check(self._index[[i]])
        return self._tops([TopTokens(i, k, allowed)])[0]

    def best(self) -> IntArray:
        self.check()
        return self._to_host([self._best()])[0].astype(np.int32)

    def logits(self, i: int) -> LogitArray:
        row = self._logits[int(self._index[i])].float().cpu().numpy()
        self._counter[0] += row.nbytes
        return np.asarray(row, dtype=np.float32)

    def slice(self, start: int, stop: int) -> TorchRows:
        return self._view(self._index[start:stop])

    def take(self, order: ArrayLike) -> TorchRows:
        return self._view(self._index[np.asarray(order, dtype=np.int64)])

    def copy(self) -> TorchRows:
        return self.stacked([])

    def stacked(self, others: Sequence[TorchRows]) -> TorchRows:
        parts = [self, *others]
        return TorchRows(torch.cat([part._logits[part._on_device(part._index)] for part in parts]))

    def fetch(self, reads: Callable[[], Reads]) -> SelectedRows:
        """Return the values that `reads()` names, copied to the host together."""
        wanted = reads()
        self.check()
        masses = [one for one in wanted.masses if len(one.ids) <= _SMALL_SET]
        owner = np.concatenate([wanted.owner, *(np.full(len(one.ids), one.row, dtype=np.int64) for one in masses)])
        ids = np.concatenate([wanted.ids, *(one.ids for one in masses)])
        numbers = [self._pairs(self._index[owner], ids)]
        numbers += [self._mass(one) for one in wanted.masses if len(one.ids) > _SMALL_SET]
        numbers += [self._rest(one) for one in wanted.rests]
        if wanted.best:
            numbers.append(self._best())
        pairs, *found = self._to_host(numbers)
        logp, *small = np.split(pairs, np.cumsum([len(wanted.ids), *map(len, (one.ids for one in masses))])[:-1])
        sums, values = iter(small), iter(found)
        whole = self._logits[self._on_device(self._index[wanted.whole])].float().cpu().numpy()
        self._counter[0] += whole.nbytes
        return SelectedRows(
            wanted,
            logp=logp,
            masses=[
                numerics.logsumexp(next(sums)) if len(one.ids) <= _SMALL_SET else float(next(values)[0])
                for one in wanted.masses
            ],
            rests=[float(next(values)[0]) for _ in wanted.rests],
            tops=self._tops(wanted.tops),
            whole=DenseRows(whole),
            best=next(values).astype(np.int32) if wanted.best else None,
        )

    def _view(self, index: NDArray[np.int64]) -> TorchRows:
        """Return some of the rows as a view that shares logits and normalisers."""
        part = TorchRows(self._logits, index)
        part._normaliser, part._counter = self._normaliser, self._counter
        return part

    def _check(self, rows: NDArray[np.int64]) -> None:
        """Raise `NonFiniteLogitsError` for the first row that is not finite."""
        bad = self._normaliser.first_bad(np.unique(rows))
        if bad is not None:
            raise NonFiniteLogitsError(row=bad[0], value=bad[1])

    def _read_one(self, one: TokenSet, read: Callable[[TokenSet], torch.Tensor]) -> float:
        """Return one sum over a set of tokens, which `read` computes on the device."""
        self._check(self._index[[one.row]])
        return float(self._to_host([read(one)])[0][0])

    def _on_device(self, numbers: ArrayLike) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(numbers, dtype=np.int64), device=self._logits.device)

    def _to_host(self, parts: Sequence[torch.Tensor]) -> list[FloatArray]:
        """Return vectors as float64 arrays, copied to the host in one transfer."""
        flat = torch.cat([part.reshape(-1).double() for part in parts]).cpu().numpy()
        self._counter[0] += flat.nbytes
        return np.split(flat, np.cumsum([part.numel() for part in parts])[:-1])

    def _pairs(self, rows: NDArray[np.int64], ids: NDArray[np.integer]) -> torch.Tensor:
        """Return the log-probability of each pair of row and token, float64[m]."""
        at = self._on_device(rows)
        return self._logits[at, self._on_device(ids)].double() - self._normaliser.of(rows)

    def _mass(self, one: TokenSet) -> torch.Tensor:
        """Return the log of the summed probability of a set, float64[1]."""
        row = self._index[one.row]
        return torch.logsumexp(self._pairs(np.repeat(row, len(one.ids)), one.ids), 0, keepdim=True)

    def _rest(self, one: TokenSet) -> torch.Tensor:
        """Return the log of the summed probability of all tokens outside a set.

        Their probabilities are added, because 1 minus the sum of the set loses digits.
        """
        row = self._index[one.row]
        rest = self._logits[int(row)].double().index_fill(0, self._on_device(one.ids), -torch.inf)
        return torch.logsumexp(rest, 0, keepdim=True) - self._normaliser.of(np.array([row]))

    def _best(self) -> torch.Tensor:
        """Return the first token with the largest logit of each row, float64[n]."""
        return torch.argmax(self._logits[self._on_device(self._index)].float(), dim=1).double()

    def _tops(self, tops: Sequence[TopTokens]) -> list[tuple[IntArray, FloatArray]]:
        """Return the ids and log-probabilities of each of `tops`."""
        result: list[tuple[IntArray, FloatArray] | None] = [None] * len(tops)
        for numbers in _group_alike(tops):
            same = [tops[number] for number in numbers]
            for number, found in zip(numbers, self._tops_alike(same), strict=True):
                result[number] = found
        return [one for one in result if one is not None]

    def _tops_alike(self, tops: Sequence[TopTokens]) -> list[tuple[IntArray, FloatArray]]:
        """Return the best tokens of several rows, for one k and one allowed set."""
        k, allowed = tops[0].k, tops[0].allowed
        ids = None
        if allowed is not None:
            chosen = np.flatnonzero(allowed) if allowed.dtype == np.bool_ else np.unique(allowed)
            ids = self._on_device(chosen)
        rows = self._index[[one.row for one in tops]]
        values = self._logits[self._on_device(rows)].float()
        values = values if ids is None else values[:, ids]
        n = min(values.shape[1], k + _MORE)
        if k <= 0 or n == 0:
            return [(np.empty(0, dtype=np.int32), np.empty(0)) for _ in tops]
        best, places = torch.topk(values, n, dim=1)
        tokens = places if ids is None else ids[places]
        logits, numbers, normalisers = self._to_host([best, tokens, self._normaliser.of(rows)])
        found = []
        for i, (row_logits, row_ids) in enumerate(zip(logits.reshape(-1, n), numbers.reshape(-1, n), strict=True)):
            if n < values.shape[1] and row_logits[k - 1] == row_logits[-1] > -np.inf:
                # More tokens may be tied than were fetched.
                row_logits, row_ids = self._read_tied(values[i], float(row_logits[-1]), ids)  # noqa: PLW2901
            order = np.lexsort((row_ids, -row_logits))[:k]
            order = order[row_logits[order] > -np.inf]
            found.append((row_ids[order].astype(np.int32), row_logits[order] - normalisers[i]))
        return found

    def _read_tied(self, values: torch.Tensor, least: float, ids: torch.Tensor | None) -> tuple[FloatArray, FloatArray]:
        """Return logits and ids of all tokens with a logit of at least `least`."""
        places = torch.nonzero(values >= least)[:, 0]
        logits, numbers = self._to_host([values[places], places if ids is None else ids[places]])
        return logits, numbers


class _Normaliser:
    """The log-sum-exp of each row, computed when it is first needed."""

    def __init__(self, logits: torch.Tensor) -> None:
        self._logits = logits
        self._known = np.zeros(len(logits), dtype=np.bool_)
        self._values: torch.Tensor | None = None
        self._bad: dict[int, float] = {}

    def of(self, rows: NDArray[np.int64]) -> torch.Tensor:
        """Return the normaliser of each of these rows, float64[n] on the device."""
        self._compute(np.unique(rows))
        values = self._values
        if values is None:
            return self._logits.new_zeros(len(rows), dtype=torch.float64)
        return values[torch.as_tensor(np.ascontiguousarray(rows), device=values.device)]

    def first_bad(self, rows: NDArray[np.int64]) -> tuple[int, float] | None:
        """Return the first row that is not finite, and its largest logit, or None."""
        self._compute(rows)
        return next(((row, self._bad[row]) for row in rows.tolist() if row in self._bad), None)

    def _compute(self, rows: NDArray[np.int64]) -> None:
        """Compute the normalisers of distinct rows that are not known yet."""
        todo = rows[~self._known[rows]]
        if not len(todo):
            return
        if self._values is None:
            self._values = self._logits.new_zeros(len(self._logits), dtype=torch.float64)
        peaks = []
        for start in range(0, len(todo), _BLOCK_ROWS):
            part = todo[start : start + _BLOCK_ROWS]
            # Blocks of one size, so that the bits of a row do not depend on the others.
            filled = np.concatenate([part, np.repeat(part[-1:], _BLOCK_ROWS - len(part))])
            at = torch.as_tensor(filled, device=self._logits.device)
            block = self._logits[at].double()
            peak = block.amax(dim=1, keepdim=True)
            sums = torch.exp(block - peak).sum(dim=1, keepdim=True)
            self._values[at] = (peak + torch.log(sums))[:, 0]
            peaks.append(peak[: len(part), 0])
        largest = torch.cat(peaks).cpu().numpy()
        self._bad |= {int(row): float(peak) for row, peak in zip(todo, largest, strict=True) if not np.isfinite(peak)}
        self._known[todo] = True


def _group_alike(tops: Sequence[TopTokens]) -> Iterable[list[int]]:
    """Return groups of indices of `tops` with the same k and the same allowed set."""
    groups: dict[tuple[int, bytes | None], list[int]] = {}
    for number, one in enumerate(tops):
        key = None if one.allowed is None else one.allowed.dtype.char.encode() + one.allowed.tobytes()
        groups.setdefault((one.k, key), []).append(number)
    return groups.values()
