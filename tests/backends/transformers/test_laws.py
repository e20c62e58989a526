"""Every kind of Transformers model keeps the laws of the port, and gives the rows of its own forward."""

from __future__ import annotations

import pytest

for _name in ("torch", "transformers"):
    pytest.importorskip(_name)

from selectrie.core.types import ModelKind
from selectrie.testing import check_model
from tests.support.transformers_models import (
    ARCHITECTURES,
    fail_next,
    interrupt_next,
    make_module,
    opened,
    worst_of_random_tree,
)

NATS = 5e-5
"""Largest difference allowed in float32."""

KINDS = {
    "llama": ModelKind.ATTENTION,
    "mistral": ModelKind.SLIDING_WINDOW,
    "gemma3_text": ModelKind.SLIDING_WINDOW,
    "gpt2": ModelKind.ATTENTION,
    "falcon": ModelKind.ATTENTION,
    "bloom": ModelKind.ATTENTION,
    "mamba": ModelKind.RECURRENT,
    "qwen3_5_text": ModelKind.HYBRID,
}
"""One of each: our attention function, with windows, mixed; learned positions; a mask; ALiBi; states, alone and mixed."""


def check(name: str, *, steps: int) -> int:
    """50 nodes against the model's own forward, and random steps against each path alone: the rows of these."""
    module = make_module(name)
    with opened(module, n_ctx=300) as model:
        plain = worst_of_random_tree(model, make_module(name, attn_implementation="eager"), seed=1)
        report = check_model(
            lambda: opened(module),
            seed=3,
            steps=steps,
            tolerance_nats=NATS,
            longest=24,
            fail_next=fail_next,
            interrupt_next=interrupt_next,
        )
    assert report.rows_compared >= steps
    assert plain <= NATS
    return report.rows_compared


@pytest.mark.short("llama", "mamba")
@pytest.mark.parametrize("name", KINDS)
def test_laws_and_own_forward(name):
    """60 random steps with failing calls, releases and evictions, and 50 nodes against a forward of each path."""
    check(name, steps=60)
    with opened(make_module(name)) as model:
        assert model.limits.kind is KINDS[name]


@pytest.mark.long
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_transformers_laws(name, record_property):
    """The same for every architecture, with 200 steps."""
    record_property("rows", check(name, steps=200))
