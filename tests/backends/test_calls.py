"""Checks and sizes that back ends share."""

from __future__ import annotations

import numpy as np
import pytest

from selectrie.backends.prefix_tree import (
    PrefixTree,
    context_rows,
    max_idle_rows,
    require_batch_multiple,
    require_one_round,
    require_rows,
)
from selectrie.core.types import ROOT, ModelKind
from selectrie.errors import CapacityError, OptionError, ProtocolError


def call(*parents: int):
    return np.array(parents, dtype=np.int32), np.zeros(len(parents), dtype=bool)


def test_a_batch_multiple_fits_one_call_and_is_set_before_nodes():
    """Multiples from 1 to the rows of a call are taken while the tree is empty."""
    tree = PrefixTree(3)
    for value in (1, 16):
        require_batch_multiple(value, max_rows=16, tree=tree)
    for value in (0, 17):
        with pytest.raises(OptionError, match=f"batch_multiple={value}: expected 1 to 16"):
            require_batch_multiple(value, max_rows=16, tree=tree)
    parents, flags = call(ROOT)
    tree.commit(tree.plan(parents, parents, flags, flags), 1)
    with pytest.raises(ProtocolError, match="while the tree is empty; it holds 1 nodes"):
        require_batch_multiple(1, max_rows=16, tree=tree)


def test_a_recurrent_model_takes_one_round():
    """Two children of one element of a call need its state twice, which only attention models have."""
    for kind in ModelKind:
        require_one_round(kind, *call(ROOT, ~0))
        require_one_round(kind, *call())
        if kind.is_recurrent:
            with pytest.raises(ProtocolError, match="calls of one round"):
                require_one_round(kind, *call(ROOT, ~0, ~0))
        else:
            require_one_round(kind, *call(ROOT, ~0, ~0))


def test_rows_of_a_call_are_limited():
    """A call may fill the model's rows, and not exceed them."""
    require_rows(8, 8)
    with pytest.raises(CapacityError) as caught:
        require_rows(9, 8)
    assert (caught.value.what, caught.value.required, caught.value.available) == ("rows in one call", 9, 8)


@pytest.mark.parametrize(
    ("nodes", "rows", "max_rows", "multiple", "expected"),
    [
        (100, None, 512, 8, 128),
        (100, 10, 512, 8, 64),
        (100, 200, 512, 8, 128),
        (100, None, 512, 96, 192),
        (1000, None, 512, 8, 512),
    ],
)
def test_rows_of_a_new_context(nodes, rows, max_rows, multiple, expected):
    """A context takes as many rows as it has nodes or as are asked for, rounded up to 64 or the batch multiple."""
    assert context_rows(nodes, rows, max_rows=max_rows, multiple=multiple) == expected


def test_idle_rows_of_a_known_shape():
    """A model of 494 million parameters, 24 layers and 896 channels holds a cell for 11 486 rows."""
    assert max_idle_rows(n_parameters=494_032_768, n_layers=24, width=896) == 11_486
    assert max_idle_rows(n_parameters=10, n_layers=24, width=896) == 1
    assert max_idle_rows(n_parameters=10, n_layers=0, width=0) == 10
