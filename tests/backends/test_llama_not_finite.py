"""A GGUF model that computes NaN for some texts: once these are released, rows of other texts are right again."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from selectrie.backends.llama_cpp.model import LlamaModel, open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.types import ROOT
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import NonFiniteLogitsError
from tests.support.llama_work import chain, fan, logp

SHAPES = ["tiny", "sliding-window", "recurrent", "hybrid"]
BAD = 77
"""The token whose embedding is NaN."""
ALLOWED_NATS = 1e-4
LONG = range(100, 130)
"""More tokens than the next call has rows, so that it does not write over all of their cells."""


@pytest.fixture(scope="module")
def spoiled(tiny_model, tmp_path_factory):
    """`spoiled("tiny")`: a copy of a generated model in which the embedding of `BAD` is NaN."""

    def path(shape):
        source = tiny_model("f32", shape=shape)
        target = tmp_path_factory.mktemp("spoiled") / source.name
        target.write_bytes(source.read_bytes())
        tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(target, "r+").tensors}
        tensors["token_embd.weight"].data[BAD] = np.nan
        return target

    return path


def opened(path, **options) -> LlamaModel:
    return open_model(path, LlamaOptions(n_threads=1, n_ctx=256, n_batch=64, **options))


def is_nan(rows, i):
    with pytest.raises(NonFiniteLogitsError):
        rows.logsumexp(i)
    return True


@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_text_that_gives_nan_spoils_none_after_it(tiny_model, spoiled, shape, precision):
    """Rows are those of the undamaged model once all nodes are released, however they are, on the model and on a new context."""
    healthy = tiny_model("f32", shape=shape)
    with opened(healthy, precision=precision) as twin, opened(spoiled(shape), precision=precision) as model:
        expected = logp(chain(twin, ROOT, [5, 6, 7]).rows, 2).copy()
        solo = model.new_context(128)
        for one in (model, solo):
            for forget in (False, True):
                first = chain(one, ROOT, [5, 6])
                spoilt = chain(one, int(first.nodes[-1]), [BAD, *LONG])
                assert is_nan(spoilt.rows, len(LONG))
                one.release(spoilt.nodes, forget=forget)
                one.release(first.nodes, forget=forget)
                after = chain(one, ROOT, [5, 6, 7])
                assert np.abs(logp(after.rows, 2) - expected).max() <= ALLOWED_NATS
                one.release(after.nodes)
        solo.close()


def test_what_is_held_stays(spoiled):
    """Nodes that somebody holds are kept while memory is spoiled, and the cache is as well; it is dropped with the last."""
    with opened(spoiled("tiny")) as model:
        held = chain(model, ROOT, [5, 6])
        cached = fan(model, int(held.nodes[-1]), [7, 8])
        model.release(cached.nodes)
        spoilt = chain(model, ROOT, [BAD])
        assert is_nan(spoilt.rows, 0)
        model.release(spoilt.nodes)
        assert model.match_prefix(np.array([5, 6, 8], dtype=np.int32)) == (int(cached.nodes[1]), 3)
        model.release(cached.nodes[1:])
        model.release(held.nodes)
        assert model.match_prefix(np.array([5, 6, 8], dtype=np.int32)) == (ROOT, 0)


def test_rows_that_are_finite_keep_the_cache(spoiled):
    """Without NaN, released nodes stay cached."""
    with opened(spoiled("tiny")) as model:
        model.release(chain(model, ROOT, [5, 6]).nodes)
        assert model.match_prefix(np.array([5, 6], dtype=np.int32))[1] == 2


def test_a_request_after_one_that_met_nan_is_answered_as_before(spoiled):
    """An engine refuses the request whose prompt has the damaged token, and answers others as it did before."""
    model = opened(spoiled("tiny"))
    damaged = model.vocabulary.pieces[BAD].decode()

    def ask(engine, prompt):
        return {choice.text: choice.score for choice in engine.select(prompt, ["one", "two", "three"]).ranked}

    with Engine(model, check=SelfCheck(8, 0.0, 0.0)) as engine:
        prompt = "the cat sat on the mat: "
        expected = ask(engine, prompt)
        for _ in range(3):
            with pytest.raises(NonFiniteLogitsError):
                ask(engine, damaged + prompt * 4)
            assert ask(engine, prompt) == pytest.approx(expected, abs=ALLOWED_NATS)
