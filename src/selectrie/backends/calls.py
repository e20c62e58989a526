"""Checks and sizes of calls that several back ends need."""

from __future__ import annotations

from selectrie.backends.prefix_tree import PrefixTree
from selectrie.core.model import rounds
from selectrie.core.types import BoolArray, IntArray, ModelKind
from selectrie.errors import CapacityError, OptionError, ProtocolError

_CONTEXT_ROWS = 64
"""Rows of one call of a new context come in multiples of at least this."""


def require_batch_multiple(value: int, *, max_rows: int, tree: PrefixTree) -> None:
    """Raise unless a batch multiple can be set, see `Model.set_batch_multiple`.

    Raises:
        OptionError: If the value is not from 1 to `max_rows`.
        ProtocolError: If the tree is not empty.
    """
    if not 1 <= value <= max_rows:
        raise OptionError("batch_multiple", value, f"1 to {max_rows}")
    if tree.n_nodes:
        raise ProtocolError(f"the batch multiple is set while the tree is empty; it holds {tree.n_nodes} nodes")


def require_one_round(kind: ModelKind, parents: IntArray, keep: BoolArray) -> None:
    """Raise `ProtocolError` if a recurrent or hybrid model is given several rounds.

    Such models take calls of one round, see `core.model.rounds`.
    """
    if kind.is_recurrent and len(parents) and rounds(parents, keep).any():
        raise ProtocolError(
            "a recurrent or hybrid model takes calls of one round; cut them with selectrie.core.model.rounds"
        )


def require_rows(n_rows: int, rows_per_call: int) -> None:
    """Raise `CapacityError` if a call has more rows than the model takes."""
    if n_rows > rows_per_call:
        raise CapacityError("rows in one call", required=n_rows, available=rows_per_call)


def context_rows(nodes: int, rows: int | None, *, max_rows: int, multiple: int) -> int:
    """Return the maximum number of rows of one call of a new context.

    Args:
        nodes: Number of tokens that the context holds.
        rows: Number of rows that are asked for; None means `nodes`.
        max_rows: Maximum number of rows of the model that makes the context.
        multiple: Number of rows to a multiple of which calls are padded.
    """
    step = max(_CONTEXT_ROWS, multiple)
    return min(max_rows, -(-min(nodes, rows or nodes) // step) * step)


def max_idle_rows(*, n_parameters: int, n_layers: int, width: int) -> int:
    """Return after how many rows an idle cell has cost as much as its evaluation.

    Evaluating a row again costs 2 flops a parameter. An idle cell costs each row 4
    flops a layer and channel, for its score and its share of the sum. As in the ski
    rental problem, a cell is dropped after as many rows as make both costs equal. A
    0.5B shape gives 11 486; measured: 10 000.
    """
    return max(1, n_parameters // max(1, 2 * n_layers * width))
