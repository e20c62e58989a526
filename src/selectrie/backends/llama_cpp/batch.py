"""Lay out the rows of one decode in a `llama_batch` over numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from selectrie.core.types import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class BatchRows:
    """The R rows of one decode, in the order in which llama.cpp gets them.

    Attributes:
        token: int32[R], the token of each row.
        position: int32[R], the position of each row, from 0.
        first_id: int32[R]; a row belongs to the sequences ids[first_id : first_id +
            n_ids].
        n_ids: int32[R], number of sequences that own the row.
        output: bool[R], whether the row's logits are needed.
        ids: int32[], sequence ids.
    """

    token: IntArray
    position: IntArray
    first_id: IntArray
    n_ids: IntArray
    output: BoolArray
    ids: IntArray


class Batch:
    """A `llama_batch` over numpy arrays.

    The pointers to the rows' ids are written as one array of addresses.
    """

    def __init__(self, rows: int) -> None:
        self._token = np.zeros(rows, dtype=np.int32)
        self._position = np.zeros(rows, dtype=np.int32)
        self._n_ids = np.zeros(rows, dtype=np.int32)
        self._address = np.zeros(rows, dtype=np.uint64)
        self._output = np.zeros(rows, dtype=np.int8)
        self._ids = np.zeros(rows + 1, dtype=np.int32)
        self.struct = llama_cpp.llama_batch()
        for name, array in (
            ("token", self._token),
            ("pos", self._position),
            ("n_seq_id", self._n_ids),
            ("seq_id", self._address),
            ("logits", self._output),
        ):
            field_type = dict(llama_cpp.llama_batch._fields_)[name]
            setattr(self.struct, name, array.ctypes.data_as(field_type))

    def fill(self, rows: BatchRows, padding: int, batch_multiple: int, padding_sequence: int) -> int:
        """Write `rows` and the padding, and return how many rows give logits.

        The number of rows and the number of those with logits are each filled up to a
        multiple of `batch_multiple`. The last layer and the output projection run only
        on the rows with logits, so their number affects the choice of kernels.
        """
        n, n_ids = len(rows.token), len(rows.ids)
        end = n + padding
        self._ids[:n_ids] = rows.ids
        self._ids[n_ids] = padding_sequence
        base = self._ids.ctypes.data
        self._token[:n], self._token[n:end] = rows.token, rows.token[0]
        self._position[:n], self._position[n:end] = rows.position, np.arange(padding)
        self._n_ids[:n], self._n_ids[n:end] = rows.n_ids, 1
        self._address[:n], self._address[n:end] = base + 4 * rows.first_id.astype(np.uint64), base + 4 * n_ids
        self._output[:n], self._output[n:end] = rows.output, 0
        n_outputs = int(np.count_nonzero(rows.output))
        if fill := -n_outputs % batch_multiple:
            self._output[np.flatnonzero(self._output[:end] == 0)[-fill:]] = 1
        self.struct.n_tokens = end
        return n_outputs + fill

    def output_index(self, n: int) -> NDArray[np.int64]:
        """Return int64[n], the index of each row among the rows with logits.

        It is meaningless for a row without logits.
        """
        return np.cumsum(self._output[:n], dtype=np.int64) - 1
