"""Rows as a back end on another device has them: nothing can be read before it was fetched."""

from __future__ import annotations

from dataclasses import replace

from selectrie.core.partial_rows import SelectedRows
from selectrie.core.rows import DenseRows
from selectrie.errors import UnreadRowError


class FarRows:
    """Rows of which only what was fetched can be read."""

    def __init__(self, rows):
        self.rows = rows
        self.nbytes = rows.nbytes

    def __len__(self):
        return len(self.rows)

    def __getattr__(self, name):
        raise UnreadRowError(0, f"`{name}` before `fetch`")

    def slice(self, start, stop):
        return FarRows(self.rows.slice(start, stop))

    def take(self, order):
        return FarRows(self.rows.take(order))

    def copy(self):
        return FarRows(self.rows.copy())

    def stacked(self, others):
        return FarRows(self.rows.stacked([other.rows for other in others]))

    def fetch(self, reads):
        return SelectedRows.of(self.rows, reads())


class FarModel:
    """A model whose rows are far away, as are those of its contexts."""

    def __init__(self, model):
        self._model = model

    def __getattr__(self, name):
        return getattr(self._model, name)

    def extend(self, parents, tokens, wanted, keep):
        extension = self._model.extend(parents, tokens, wanted, keep)
        assert isinstance(extension.rows, DenseRows)
        return replace(extension, rows=FarRows(extension.rows))

    def new_context(self, *args, **options):
        return FarModel(self._model.new_context(*args, **options))
