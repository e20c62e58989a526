"""Join the parts of many jobs into one model call and split the result again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from selectrie.core.model import Extension, Model, Rows
from selectrie.core.types import Cost
from selectrie.engine.scheduler.job import BatchPart
from selectrie.engine.scheduler.node_table import as_ids


def extend(model: Model, parts: Sequence[BatchPart]) -> Extension:
    """Evaluate all parts, one after the other, in one `Model.extend`."""
    parents: list[int] = []
    tokens: list[int] = []
    wanted: list[bool] = []
    keep: list[bool] = []
    for part in parts:
        start = len(parents)
        parents += [parent if parent >= 0 else parent - start for parent in part.parents]
        tokens += part.tokens
        wanted += part.wanted
        keep += part.keep
    return model.extend(
        as_ids(parents), as_ids(tokens), np.array(wanted, dtype=np.bool_), np.array(keep, dtype=np.bool_)
    )


def shares(parts: Sequence[BatchPart], extension: Extension) -> Iterator[tuple[BatchPart, list[int], Rows, Cost]]:
    """Yield each part with its nodes, its wanted rows and its share of the cost.

    The cost is divided by the sizes of the parts, which is exact for a call of one
    part.
    """
    nodes = extension.nodes.tolist()
    node = row = 0
    for part in parts:
        n, n_rows = len(part), sum(part.wanted)
        rows = extension.rows if len(parts) == 1 else extension.rows.slice(row, row + n_rows)
        yield part, nodes[node : node + n], rows, _cost(extension, n / len(nodes) if n else 0.0, n - part.n_again)
        node, row = node + n, row + n_rows


def _cost(extension: Extension, share: float, n_new: int) -> Cost:
    """Return the cost of a part that has this share of the call.

    Args:
        extension: The result of the whole call.
        share: Fraction of the call's rows that belong to the part, 0 to 1.
        n_new: Rows of the part that were never evaluated for its job.
    """
    rows = round(extension.rows_evaluated * share)
    n_again = max(0, rows - n_new)  # rows that stayed cached were not evaluated
    return Cost(
        model_calls=1 if extension.rows_evaluated else 0,
        rows=rows,
        rows_repeated=min(rows, n_again + round(extension.rows_repeated * share)),
        rows_padded=round(extension.rows_padded * share),
        decode_s=extension.decode_s * share,
    )
