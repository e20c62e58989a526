"""The self-check in contexts of every size, on every kind of model."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from selectrie.backends.llama_cpp import LlamaOptions, open_model
from selectrie.core.rows import DenseRows
from selectrie.engine import precision_check
from selectrie.engine.precision_check import MARGIN, MARGIN_RARE, MIN_MOVE, self_check
from selectrie.testing import HashModel
from tests.support.measured import CEILING_NATS


@pytest.mark.parametrize("size", [(8, 8), (64, 16), (512, 256)])
@pytest.mark.parametrize("shape", ["tiny", "sliding-window", "recurrent", "hybrid"])
def test_the_smallest_contexts_are_checked_too(tiny_model, monkeypatch, shape, size):
    """However few nodes, rows and states there are, the check fits, leaves the model empty, and finds f32 to move little."""
    monkeypatch.setattr("selectrie.engine.precision_check.MAX_ROWS", 80)
    n_ctx, n_batch = size
    with open_model(tiny_model("f32", shape=shape), LlamaOptions(n_ctx=n_ctx, n_batch=n_batch, n_threads=1)) as model:
        check = self_check(model)
        room, limits = model.capacity(), model.limits
        assert (room.nodes, room.sequences) == (limits.nodes, limits.sequences)
        assert check.batch_multiple == model.batch_multiple == (1 if limits.kind.is_recurrent else 8)
        assert check.tolerance / max(check.moved, MIN_MOVE) in (MARGIN, MARGIN_RARE)
        assert check.moved <= CEILING_NATS.get(shape, CEILING_NATS["f32"])
        assert check.n_rows >= 80


@pytest.mark.parametrize(
    ("n_parameters", "quantised", "n_rows"),
    [
        (0, False, 2_000),
        (260_000, False, 2_000),
        (1_600_000, False, 1_250),
        (3_885_888, False, 514),
        (50_000_000, False, 160),
        (500_000_000, False, 80),
        (260_000, True, 10_000),
        (3_885_888, True, 2_573),
        (500_000_000, True, 80),
    ],
)
def test_small_and_quantised_models_are_checked_longest(n_parameters, quantised, n_rows):
    """Where few rows move, or rarely, many are compared; where every row moves, few show by how much."""
    identity = replace(HashModel(1).identity, n_parameters=n_parameters, quantised=quantised)
    assert precision_check._n_rows(SimpleNamespace(identity=identity)) == n_rows


@pytest.mark.parametrize(
    ("n_rows", "n_near", "margin"),
    [(500, 1, MARGIN_RARE), (500, 50, MARGIN_RARE), (500, 51, MARGIN), (500, 0, MARGIN), (10_000, 1, MARGIN)],
)
def test_a_rare_move_has_the_larger_margin(n_rows, n_near, margin):
    """Few rows move like the largest, few were compared: others may move further."""
    moves = np.full(n_rows, 1e-7)
    moves[:n_near] = 1e-3
    assert precision_check._margin(moves) == margin


@pytest.mark.parametrize(("sizes", "calls"), [((40,), [40]), ((8, 24), [8, 24, 8]), ((8, 16), [8, 16, 8, 8])])
def test_a_run_is_cut_into_calls_by_turns(sizes, calls):
    """Every row is there, in order, whatever the sizes of the calls."""
    model = HashModel(1)
    tokens = np.arange(40, dtype=np.int32) % 7
    rows = precision_check._run(model, tokens, sizes)
    assert model.call_sizes == calls
    assert [row.tolist() for row in rows] == [model.row(tuple(tokens[: i + 1].tolist())).tolist() for i in range(40)]


class TwoKernels(HashModel):
    """Calls of `odd` rows give other rows than calls of any other size."""

    odd, batch_multiple = 0, 1

    def extend(self, *args):
        extension = super().extend(*args)
        if len(args[0]) != self.odd or not len(extension.rows):
            return extension
        return replace(extension, rows=DenseRows(np.stack([extension.rows.logits(i) for i in range(self.odd)]) * 1.01))

    def new_context(self, nodes, *args):
        model = TwoKernels(1)
        model.odd, model.batch_multiple = self.odd, self.batch_multiple
        return model


@pytest.mark.parametrize(("odd", "batch_multiple"), [(0, 8), (8, 16), (24, 16), (16, 8)])
def test_a_call_of_other_kernels_is_seen(odd, batch_multiple):
    """Rows that move only in calls of one batch_multiple, or only in calls of three, make the check try the next batch_multiple."""
    model = TwoKernels(1)
    model.odd = odd
    assert self_check(model).batch_multiple == batch_multiple
