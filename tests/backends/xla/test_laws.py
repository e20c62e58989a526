"""Compiled programs keep the laws of the port, and give the rows of the module's own forward and of the other back end."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.xla_extra import require_packages

require_packages()

import torch

from selectrie.core.model import chain
from selectrie.core.types import ROOT
from selectrie.testing import check_model
from tests.support import transformers_models
from tests.support.transformers_models import ARCHITECTURES, N_TOKENS, make_module, plain_logp, worst_of_random_tree
from tests.support.xla_models import SECONDS, fail_next, opened

NATS = 5e-5
"""Largest difference allowed in float32."""

KINDS = ("llama", "mistral", "gemma2", "gpt_oss", "bloom", "falcon", "mixtral", "deepseek_v3")
"""One of each: our attention function; with windows; soft caps; sinks; ALiBi; a mask; experts; keys unlike values."""

STATES = ("mamba", "mamba2", "rwkv", "jamba", "qwen3_5_text", "lfm2", "falcon_h1")
ATTENTION = tuple(name for name in ARCHITECTURES if name not in STATES)


def check(name: str, *, steps: int, seconds: dict[int, float]) -> int:
    """50 nodes against the model's own forward, and random steps against each path alone: the rows of these."""
    module = make_module(name)
    with opened(module, seconds=seconds) as model:
        assert worst_of_random_tree(model, make_module(name, attn_implementation="eager"), seed=1) <= NATS
    report = check_model(
        lambda: opened(module, seconds=seconds),
        seed=3,
        steps=steps,
        tolerance_nats=NATS,
        longest=24,
        fail_next=fail_next,
    )
    assert report.rows_compared >= steps
    return report.rows_compared


@pytest.mark.parametrize("name", KINDS)
def test_laws_and_own_forward(name):
    """60 random steps with failing programs, releases and evictions, and 50 nodes against a forward of each path."""
    check(name, steps=60, seconds={24: 9.0, 4: 2.5})


@pytest.mark.long
@pytest.mark.parametrize("name", ATTENTION)
def test_xla_laws(name, record_property):
    """The same for every architecture with cells, with 200 steps."""
    record_property("rows", check(name, steps=200, seconds=SECONDS))


def random_calls(seed: int, n_calls: int = 8):
    """Calls of 1 to 24 rows, each below the elements of the same call, an earlier one's, or the root."""
    rng = np.random.default_rng(seed)
    for _ in range(n_calls):
        n = int(rng.integers(1, 25))
        below = rng.random(n)
        yield rng.integers(3, 12, n).astype(np.int32), below, rng.random(n), rng.random(n) < 0.7


def rows_of_calls(model, calls):
    """The log-probabilities of all wanted rows, float64[R, V]."""
    known, found = [ROOT], []
    for tokens, below, which, wanted in calls:
        n = len(tokens)
        parents = [
            ~int(below[i] * 2 * i) if i and below[i] < 0.5 else known[int(which[i] * len(known))] for i in range(n)
        ]
        made = model.extend(np.array(parents, dtype=np.int32), tokens, wanted, np.ones(n, dtype=np.bool_))
        assert len(made.rows) == wanted.sum()
        found += [made.rows.logits(i).astype(np.float64) - made.rows.logsumexp(i) for i in range(len(made.rows))]
        # A few, so that what is held fits.
        known = [ROOT, *made.nodes.tolist()[-4:]]
        model.release(made.nodes[:-4])
        held = made.nodes[-4:]
        model.release(held)
    return np.stack(found)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_rows_are_those_of_the_back_end_on_transformers(name):
    """Both have the same module open, and are given the same random trees: 5e-5 nats, in float32."""
    module = make_module(name)
    with transformers_models.opened(module) as other, opened(module) as model:
        for seed in range(6):
            calls = list(random_calls(seed))
            assert np.abs(rows_of_calls(model, calls) - rows_of_calls(other, calls)).max() <= NATS
            model.trim(0)
            other.trim(0)


def test_bfloat16_is_as_near_to_float32_as_the_module_itself():
    """Rows of `fast` differ from the same weights in float32 at most twice as far as the module's own bfloat16 forward."""
    rough = make_module("llama").to(torch.bfloat16)
    exact = make_module("llama")
    exact.load_state_dict(rough.state_dict())
    paths = np.random.default_rng(5).integers(3, N_TOKENS, (8, 20))
    ours, own = 0.0, 0.0
    with opened(rough, precision="fast") as model:
        assert model.identity.precision == "fast"
        for path in paths:
            every = np.ones(len(path), dtype=np.bool_)
            made = model.extend(chain(ROOT, len(path)), path.astype(np.int32), every, every)
            model.release(made.nodes, forget=True)
            rows = made.rows
            logp = plain_logp(exact, path)
            assert rows.logits(19).dtype == np.float32
            ours = max(ours, float(np.abs(rows.logits(19) - rows.logsumexp(19) - logp).max()))
            own = max(own, float(np.abs(plain_logp(rough, path) - logp).max()))
    assert 0 < ours <= 2 * own
