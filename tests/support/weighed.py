"""A fake that has weights, so that a self-check has something to measure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from selectrie.core.rows import DenseRows
from selectrie.testing import HashModel, make_vocabulary

LETTERS = make_vocabulary([bytes([code]) for code in range(32, 127)])
"""Each character is a token."""


class Weighed(HashModel):
    """A fake that has weights; `move(rows, n_rows)` is done to the rows of each call. Contexts are as small as asked."""

    weights = "f32"
    move = staticmethod(lambda rows, n_rows: rows)

    def __init__(self, seed, **how):
        super().__init__(seed, **{"vocabulary": LETTERS, **how})

    @property
    def identity(self):
        return replace(super().identity, n_parameters=1_000, weights=self.weights)

    def extend(self, *args):
        extension = super().extend(*args)
        if not len(extension.rows):
            return extension
        rows = np.stack([extension.rows.logits(i) for i in range(len(extension.rows))])
        return replace(extension, rows=DenseRows(self.move(rows, self.program_sizes[-1])))

    def new_context(self, nodes, sequences=16, rows=None):
        limits = self.limits
        rows = min(limits.rows_per_call, rows or limits.rows_per_call)
        made = type(self)(
            1,
            vocabulary=self.vocabulary,
            limits=replace(limits, nodes=nodes, sequences=min(limits.sequences, sequences), rows_per_call=rows),
        )
        made.weights, made.move = self.weights, self.move
        return made
