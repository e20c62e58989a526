"""The example with a sampler of its own: against every text of a fake, and on real models of both back ends."""

from __future__ import annotations

import math
import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from selectrie.backends.table import backend_of
from selectrie.core.types import Capacity
from selectrie.testing import FakeModel, make_vocabulary
from selectrie.testing.fakes import WIDE, hashed_logits
from tests.support.real_data import real_file

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "smc_sampler.py"
PROMPT = np.array([0, 3], dtype=np.int32)
N_TOKENS, N_RUNS, RISK = 3, 2000, 1e-9


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def fake():
    """Rows that depend on the whole path, each computed once."""
    row_of = cache(lambda path: hashed_logits(2, path, 26, 1.0))
    return FakeModel(row_of, vocabulary=make_vocabulary(), limits=WIDE, name="hash-2")


def every_text(model, allowed):
    """The probability of every text of allowed tokens, and a bound of the mean weight of particles."""
    found, bounds = {(): 1.0}, []
    for _ in range(N_TOKENS):
        longer, masses = {}, []
        for text, p in found.items():
            logits = model.row((*PROMPT, *text)).astype(np.float64)
            probability = np.exp(logits - logits.max())
            probability /= probability.sum()
            masses.append(probability[allowed].sum())
            longer |= {(*text, int(token)): p * probability[token] for token in allowed}
        found = longer
        bounds.append(max(masses))
    return found, math.prod(bounds)


@pytest.mark.parametrize("least_ess", [0.5, 1.0])
def test_estimates_are_unbiased(example, fake, least_ess):
    """Of the probability of the constraint, and of the texts that hold half of it; the mean of 2000 runs is as near as it must be.

    Estimates lie in [0, b]. By the bound of Maurer and Pontil (2009), the mean of independent ones with sample variance v is
    farther than sqrt(2 v L / n) + 7 b L / (3 (n - 1)) from the expectation with a probability of at most 4 exp(-L).
    """
    allowed = example["without_letters"](fake, b"at")
    texts, bound = every_text(fake, allowed)
    half, mass = set(), 0.0
    for text in sorted(texts, key=texts.get, reverse=True):
        if mass < sum(texts.values()) / 2:
            half.add(text)
            mass += texts[text]
    estimates, n_resampled = np.empty((N_RUNS, 2)), 0
    for run in range(N_RUNS):
        drawn = example["smc"](fake, PROMPT, allowed, n=4, n_tokens=N_TOKENS, seed=run, least_ess=least_ess)
        share = np.exp(drawn.log_weights - np.logaddexp.reduce(drawn.log_weights))
        in_half = [tuple(text) in half for text in drawn.texts.tolist()]
        estimates[run] = math.exp(drawn.log_z) * np.array([1.0, share[in_half].sum()])
        n_resampled += drawn.n_resampled
    assert n_resampled > N_RUNS if least_ess == 1.0 else n_resampled > 0
    assert estimates.max() <= bound * (1 + 1e-9)
    logs = math.log(4 / RISK)
    allowed_error = np.sqrt(2 * estimates.var(axis=0, ddof=1) * logs / N_RUNS) + 7 * bound * logs / (3 * (N_RUNS - 1))
    expected = np.array([sum(texts.values()), mass])
    assert (allowed_error < 0.3 * expected).all()
    assert (np.abs(estimates.mean(axis=0) - expected) <= allowed_error).all()


@pytest.mark.parametrize("weights", [[0.5, 0.25, 0.25], [0.02, 0.9, 0.08], [0.0, 1.0, 0.0], [1 / 3] * 3])
def test_particles_are_chosen_in_proportion_to_their_weights(example, weights):
    """On average over 600 offsets, evenly spread; each offset moves a count by one at most."""
    counts = [np.bincount(example["systematic"](np.array(weights), (k + 0.5) / 600), minlength=3) for k in range(600)]
    assert np.abs(np.mean(counts, axis=0) - 3 * np.array(weights)).max() < 2 / 600
    assert np.ptp(counts, axis=0).max() <= 1


def test_a_step_is_one_call_and_nothing_stays_held(example, fake):
    """Rows are those of the texts, also of copies; the last tokens are not evaluated; all references are given back."""
    allowed, before, calls = example["without_letters"](fake, b"at"), fake.capacity(), fake.calls
    fake.evaluations.clear()
    drawn = example["smc"](fake, PROMPT, allowed, n=8, n_tokens=5, seed=0, least_ess=1.0)
    assert drawn.n_resampled >= 4
    assert drawn.texts.shape == (8, 5)
    assert np.isin(drawn.texts, allowed).all()
    assert all((*PROMPT, *text[:4]) in fake.evaluations for text in drawn.texts.tolist())
    assert fake.calls - calls == 5
    assert fake.capacity() == before != Capacity(0, 0, 0)


def test_a_constraint_that_the_model_rules_out_has_probability_0(example):
    """Where no allowed token is possible the estimate is 0, not an error of arithmetic."""
    logits = np.where(np.arange(26) == 5, -np.inf, 0.0).astype(np.float32)
    model = FakeModel(lambda _path: logits, vocabulary=make_vocabulary(), limits=WIDE, name="never")
    drawn = example["smc"](model, PROMPT, np.array([5], dtype=np.int32), n=4, n_tokens=3, seed=0)
    assert drawn.log_z == -math.inf


def test_both_back_ends_draw_the_same(example):
    """The same weights as GGUF and as a checkpoint of Transformers: the same texts, and the same estimate to 0.001 nats."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    found = []
    for name in ("weights/stories260K.gguf", "weights/stories260K-hf"):
        source = real_file(name)
        backend = backend_of(source)
        model = backend.open_model(source, backend.options_type()(n_ctx=256, n_threads=1))
        prompt = np.array([1, *model.vocabulary.encode(b"Once upon a time")], dtype=np.int32)
        allowed = example["without_letters"](model, b"eE")
        found.append(example["smc"](model, prompt, allowed, n=8, n_tokens=8, seed=3))
        model.close()
    assert found[0].texts.tolist() == found[1].texts.tolist()
    assert abs(found[0].log_z - found[1].log_z) < 1e-3
    assert found[0].log_z < -0.5
