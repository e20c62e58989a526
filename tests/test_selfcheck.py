"""The self-check in contexts of every size, on every kind of model."""

from __future__ import annotations

import pytest

from selectrie.backends.llama_cpp import LlamaOptions, open_model
from selectrie.selfcheck import LEAST_MOVE, MARGIN, self_check


@pytest.mark.parametrize("size", [(8, 8), (64, 16), (512, 256)])
@pytest.mark.parametrize("shape", ["tiny", "sliding-window", "recurrent", "hybrid"])
def test_the_smallest_contexts_are_checked_too(tiny_model, monkeypatch, shape, size):
    """However few nodes, rows and states there are, the check fits, leaves the model empty, and finds f32 to move little."""
    monkeypatch.setattr("selectrie.selfcheck.MOST_ROWS", 80)
    n_ctx, n_batch = size
    with open_model(tiny_model("f32", shape=shape), LlamaOptions(n_ctx=n_ctx, n_batch=n_batch, n_threads=1)) as model:
        check = self_check(model)
        room, limits = model.room(), model.limits
        assert (room.nodes, room.branches) == (limits.nodes, limits.branches)
        assert check.granule == model.granule == (1 if limits.kind.forks else 8)
        assert check.tolerance == MARGIN * max(check.moved, LEAST_MOVE)
        assert check.moved < 1e-3


def test_rounding_of_half_precision_is_seen(tiny_model):
    """The check can tell: on f16 weights activations are rounded, and a last bit becomes thousandths of a nat."""
    with open_model(tiny_model("f16"), LlamaOptions(n_ctx=256, n_threads=1)) as model:
        assert self_check(model).moved > 100 * LEAST_MOVE
