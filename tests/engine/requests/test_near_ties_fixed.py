"""Near ties on models with fixed batch sizes are scored in memories that such a model has programs for."""

from __future__ import annotations

import pytest

from selectrie.core.types import BatchSizes, Limits, ModelKind, SelfCheck
from selectrie.engine.engine import Engine
from selectrie.testing import HashModel, numbered_vocabulary

N_NODES = 400
ALL_TIES = SelfCheck(batch_multiple=0, moved=100.0, tolerance=400.0, n_rows=100)


class Recording(HashModel):
    """Remembers of how many nodes its new contexts are."""

    def __init__(self):
        limits = Limits(
            nodes=N_NODES,
            sequences=N_NODES,
            rows_per_call=32,
            kind=ModelKind.ATTENTION,
            max_idle_rows=None,
            batch_sizes=BatchSizes.fixed({1: 1.0, 32: 9.0}),
        )
        super().__init__(1, vocabulary=numbered_vocabulary(20), limits=limits)
        self.sizes = []

    def new_context(self, nodes, *args):
        self.sizes.append(nodes)
        return super().new_context(nodes, *args)


def spelt(n):
    return "".join(f"<{3 + i % 17}>" for i in range(n))


@pytest.mark.parametrize(
    ("n_prompt", "lengths", "sizes"),
    [
        (50, (2, 3), {50 + 256}),
        (50, (2, 260), {50 + 256, N_NODES}),
        (350, (2, 3), {N_NODES}),
        (390, (2, 8), {N_NODES}),
    ],
)
def test_a_memory_is_no_longer_than_the_models_own(n_prompt, lengths, sizes):
    """The nodes below the context are rounded up to 256, but to no more than the model holds; programs for more may be missing."""
    model = Recording()
    choices = [spelt(n) + "<19>" for n in lengths]
    with Engine(model, check=ALL_TIES) as engine:
        result = engine.select(spelt(n_prompt - 1), choices, terminator="none")
    assert result.certificate.n_rescored == len(choices)
    assert set(model.sizes) == sizes
