"""Adds up the probabilities of listed values to those of the values of one field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from selectrie.core.types import ROOT, FloatArray, IntArray
from selectrie.decide.extraction import ABSENT, FieldColumn, FieldValue, distinct_keys
from selectrie.results import ChoiceTable, Marginal


def marginals_of(table: ChoiceTable, columns: Mapping[str, FieldColumn], log_heal: float) -> dict[str, Marginal]:
    """Return the marginal of each field over listed values.

    A search may have left values open. A node of the trie that was not evaluated holds
    at most the probability of its prefix, which is shared by the values below it. So
    each marginal has bounds, and the estimate between them gives equal parts of an open
    node to the values of the field below it. With nothing open, all three are the exact
    sum, divided by the coverage.

    Args:
        table: The scored texts of the values.
        columns: The fields of the values.
        log_heal: Log-probability of the healed bytes (`Selection.log_heal`).
    """
    finished = table.finished
    top = float(np.max(table.logp[finished], initial=-np.inf))
    top = 0.0 if top == -np.inf else top
    low, high = (np.where(finished, np.exp(one - top), 0.0) for one in (table.logp, table.logp_upper))
    left = _open_below(table, log_heal + top)
    return {name: _marginal(column, low, high, left) for name, column in columns.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """What a search left open: U values below M nodes of the trie.

    Attributes:
        values: int32[U], the values that are not finished.
        owner: int32[U], the index into `mass` of the open node above each value.
        mass: float64[M], the largest weight of all values below each open node.
    """

    values: IntArray
    owner: IntArray
    mass: FloatArray


def _open_below(table: ChoiceTable, log_unit: float) -> _Open:
    """Return what is open: below the last node of a path whose prefix is known.

    Masses are divided by exp(log_unit).
    """
    edges = table.edge_logp.copy()
    edges[ROOT] = 0.0
    prefix = table.trie.accumulate(edges)
    values = np.flatnonzero(~table.finished).astype(np.int32)
    node = table.trie.path_node[table.trie.path_of[values]]
    while (unknown := np.isnan(prefix[node])).any():
        node = np.where(unknown, table.trie.parent[node], node)
    nodes, owner = np.unique(node, return_inverse=True)
    return _Open(values, owner.reshape(-1).astype(np.int32), np.exp(prefix[nodes] - log_unit))


def _marginal(column: FieldColumn, low: FloatArray, high: FloatArray, left: _Open) -> Marginal:
    """Return the marginal of one field.

    Args:
        column: The field.
        low, high: float64[C], bounds on the weight of each finished value, else 0.
        left: What is open.
    """
    n, mass = len(column.keys) + 1, left.mass  # the last one is absence
    codes = np.where(column.codes == ABSENT, n - 1, column.codes)
    least, most = np.bincount(codes, low, n), np.bincount(codes, high, n)
    owner, code = np.unique(np.stack([left.owner, codes[left.values]]), axis=1)  # the field's values below each node
    n_values = np.bincount(owner, minlength=len(mass))
    possible = np.bincount(code, mass[owner], n)
    alone = np.bincount(code, np.where(n_values[owner] == 1, mass[owner], 0.0), n)
    estimate = np.bincount(code, mass[owner] / n_values[owner], n)
    others_least, others_most = least.sum() - least, most.sum() - most + mass.sum() - alone
    with np.errstate(invalid="ignore"):  # 0 / 0, where all weights are 0
        lower = np.nan_to_num(least / (least + others_most), nan=0.0)
        upper = np.nan_to_num((most + possible) / (most + possible + others_least), nan=1.0)
        weight = (least + most) / 2 + estimate
        share = np.nan_to_num(weight / weight.sum(), nan=0.0)
    share = np.clip(share, lower, np.maximum(lower, upper))
    return Marginal(*(dict(zip(column.keys, one.tolist(), strict=False)) for one in (share, lower, upper)))


def searched_marginals(found: Sequence[tuple[Mapping[str, FieldValue], float]]) -> dict[str, Marginal]:
    """Return the marginal of each field over values that a search found.

    A value of a field has at least the probability of the values found that have it,
    and at most what those with another one leave.

    Args:
        found: The fields of each value, and a lower bound on its probability.
    """
    total = math.fsum(low for _, low in found)
    sums: dict[str, dict[FieldValue, float]] = {}
    for fields, low in found:
        for name, value in fields.items():
            of_field = sums.setdefault(name, {})
            of_field[value] = of_field.get(value, 0.0) + low
    marginals = {}
    for name, of_field in sums.items():
        lows = dict(zip(distinct_keys(of_field), of_field.values(), strict=True))
        highs = {key: min(1.0, max(low, 1.0 - total + low)) for key, low in lows.items()}
        marginals[name] = Marginal(dict.fromkeys(lows), lows, highs)
    return marginals
