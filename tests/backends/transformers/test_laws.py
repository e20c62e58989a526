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


def check(name: str, *, steps: int) -> tuple[float, float]:
    """The largest differences from the model's own forward, and between a tree and each path alone."""
    module = make_module(name)
    with opened(module, n_ctx=300) as model:
        plain = worst_of_random_tree(model, make_module(name, attn_implementation="eager"), seed=1)
        report = check_model(
            lambda: opened(module), seed=3, steps=steps, tolerance_nats=NATS, longest=24, fail_next=fail_next
        )
    assert report.rows_compared >= steps
    assert plain <= NATS
    return plain, report.worst_nats


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
    plain, laws = check(name, steps=200)
    record_property("plain_nats", plain)
    record_property("laws_nats", laws)
    print(f"{name}: plain {plain:.1e}, laws {laws:.1e}")  # noqa: T201 - the table of the sweep
