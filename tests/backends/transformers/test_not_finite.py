"""Modules that compute NaN or infinite numbers for some texts: rows of all other texts are right, before, beside and after."""

from __future__ import annotations

import copy
import re
from dataclasses import replace

import numpy as np
import pytest

for _name in ("torch", "transformers"):
    pytest.importorskip(_name)

import torch

from selectrie.backends.transformers.model import open_module
from selectrie.backends.transformers.options import TransformersOptions
from selectrie.core.model import chain
from selectrie.core.types import ROOT
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck, assumed
from selectrie.errors import DecodeError, NonFiniteLogitsError
from selectrie.testing import numbered_vocabulary
from selectrie.testing.oracles import extend_in_rounds
from tests.support.arrays import every, ints
from tests.support.measured import self_check
from tests.support.transformers_models import N_TOKENS, fail_next, make_module, opened, plain_logp

BAD = 77
"""The token whose rows are not finite. It is none of those that a model is tried with when it is opened."""
ALLOWED_NATS = 5e-5


def spoil(tiny, token=BAD, value=float("nan")):
    """Put a number that is not finite into the embedding of a token, and leave the head as it is."""
    embeddings = copy.deepcopy(tiny.get_input_embeddings())
    with torch.no_grad():
        embeddings.weight[token] = value
    tiny.set_input_embeddings(embeddings)
    return tiny


def run(model, parent, tokens):
    """A run of tokens below a node, all wanted, the last one kept."""
    n = len(tokens)
    return model.extend(chain(parent, n), ints(*tokens), every(n), np.arange(n) == n - 1)


def is_right(twin, rows, i, path):
    """Whether row i is that of a path: no number if the path has `BAD`, else the one of the module alone."""
    if BAD in path:
        with pytest.raises(NonFiniteLogitsError):
            rows.logp(i, [0])
        return bool(np.isnan(rows.logits(i)).all())
    logp = rows.logits(i).astype(np.float64) - rows.logsumexp(i)
    return bool(np.abs(logp - plain_logp(twin, path)).max() <= ALLOWED_NATS)


def random_work(model, twin, *, seed, n_calls):
    """Trees of random paths, one in five tokens `BAD`, released between calls. Returns how many rows were right of each kind."""
    rng = np.random.default_rng(seed)
    known: dict[tuple[int, ...], int] = {(): ROOT}
    counts = [0, 0]
    for _ in range(n_calls):
        parents, paths = [], []
        for j in range(8):
            if len(known) > 1 and rng.random() < 0.2:
                base = list(known)[int(rng.integers(1, len(known)))]
                parents.append(known[base[:-1]])
                paths.append(base)
                continue
            if j and rng.random() < 0.5:
                above = int(rng.integers(j))
                parents.append(~above)
                base = paths[above]
            else:
                base = list(known)[int(rng.integers(len(known)))]
                parents.append(known[base])
            token = BAD if rng.random() < 0.2 else int(rng.integers(3, N_TOKENS))
            paths.append((*base, token))
        nodes, rows = extend_in_rounds(model, ints(*parents), ints(*(path[-1] for path in paths)), every(8), every(8))
        for i, path in enumerate(paths):
            assert is_right(twin, rows, i, path), path
            counts[BAD in path] += 1
        known |= zip(paths, nodes.tolist(), strict=True)
        for path in [path for path in known if path and rng.random() < 0.3]:
            gone = [known.pop(below) for below in sorted(known, reverse=True) if below[: len(path)] == path]
            model.release(ints(*gone), forget=bool(rng.random() < 0.7))
    return counts


ROUTES = ["llama", "mistral", "gemma2", "gpt_oss", "mixtral", "falcon", "bloom", "mamba", "jamba"]
"""Architectures of each route: our function with and without windows, soft caps, sinks and experts; masks; a bias; states."""


@pytest.mark.short("llama-fast", "mixtral-exact", "mamba-exact")
@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("name", ROUTES)
def test_a_text_that_gives_nan_spoils_no_other(name, precision):
    """In random work where every fifth token has an embedding of NaN, rows of paths with it are NaN, and all others right."""
    tiny = spoil(make_module(name))
    twin = copy.deepcopy(tiny)
    with opened(tiny, precision=precision, n_ctx=192) as model:
        assert min(random_work(model, twin, seed=1, n_calls=6)) > 5
        solo = model.new_context(192, sequences=64)
        assert min(random_work(solo, twin, seed=2, n_calls=4)) > 5
        solo.close()


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_infinite_numbers_are_kept_apart_as_well(value):
    """An infinite embedding is like one of NaN."""
    tiny = spoil(make_module("llama"), value=value)
    twin = copy.deepcopy(tiny)
    with opened(tiny) as model:
        assert min(random_work(model, twin, seed=2, n_calls=4)) > 5


def test_numbers_that_appear_behind_the_first_layers_are_kept_apart():
    """NaN that the first two blocks make, of different tokens, is found in the layers after them, and stays apart."""
    tiny = make_module("llama", num_hidden_layers=4)
    marks = {BAD: 0, BAD + 1: 1}
    with torch.no_grad():
        for token, at in marks.items():
            tiny.get_input_embeddings().weight[token] = 0
            tiny.get_input_embeddings().weight[token, at] = 50
    for at in marks.values():

        def overflow(_part, args, result, at=at):
            return torch.where(args[0][..., at : at + 1] > 5, torch.nan, result)

        tiny.model.layers[at].mlp.register_forward_hook(overflow)
    twin = copy.deepcopy(tiny)
    with opened(tiny) as model:
        both = model.extend(ints(ROOT, ~0, ROOT, ~2, ROOT, ~4), ints(5, BAD, 5, BAD + 1, 6, 7), every(6), every(6))
        assert both.n_programs == 1
        assert np.isnan(both.rows.logits(1)).all()
        assert np.isnan(both.rows.logits(3)).all()
        for i, path in [(0, [5]), (2, [5]), (4, [6]), (5, [6, 7])]:
            assert is_right(twin, both.rows, i, path)


@pytest.mark.parametrize("name", ["k_proj", "v_proj"])
def test_keys_or_values_alone_may_overflow_in_one_layer(name):
    """Where only keys or only values of the first layer are not finite, and the sum that its rows read is, rows are NaN or right."""
    tiny = make_module("llama")
    with torch.no_grad():
        tiny.get_input_embeddings().weight[BAD] = 0
        tiny.get_input_embeddings().weight[BAD, 0] = 50
    attention = tiny.model.layers[0].self_attn
    getattr(attention, name).register_forward_hook(
        lambda _part, args, result: torch.where(args[0][..., :1] > 5, torch.inf, result)
    )
    attention.o_proj.register_forward_hook(lambda _part, _args, result: torch.nan_to_num(result))
    twin = copy.deepcopy(tiny)
    with opened(tiny) as model:
        assert min(random_work(model, twin, seed=3, n_calls=4)) > 5


def test_the_token_of_padding_may_be_the_one_that_is_damaged():
    """Calls are filled up with token 0; where its embedding is NaN, rows of other tokens are right all the same."""
    tiny = spoil(make_module("llama"), token=0)
    twin = copy.deepcopy(tiny)
    with opened(tiny) as model:
        extension = run(model, ROOT, [5, 6, 7])
        assert (extension.rows_padded, extension.n_programs) == (5, 1)
        assert all(is_right(twin, extension.rows, i, [5, 6, 7][: i + 1]) for i in range(3))
        assert is_right(twin, run(model, int(extension.nodes[-1]), [8]).rows, 0, [5, 6, 7, 8])


def test_what_is_not_finite_is_not_measured():
    """Where a token of the text gives NaN, or every one, the assumed check stays."""
    tiny = make_module("llama")
    with opened(tiny) as model:
        with torch.no_grad():
            tiny.get_input_embeddings().weight[:] = torch.nan
        assert self_check(model) == assumed(model.identity, model.limits)


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_a_call_of_nothing_else_leaves_nothing_behind(name):
    """A call of which all rows are NaN, and one below it, leave nothing behind for the next one."""
    tiny = spoil(make_module(name))
    twin = copy.deepcopy(tiny)
    with opened(tiny) as model:
        first = run(model, ROOT, [BAD, 5, 6])
        assert (first.n_programs, first.rows_evaluated) == (1, 3)
        assert all(is_right(twin, first.rows, i, [BAD]) for i in range(3))
        below = run(model, int(first.nodes[-1]), [7, 8])
        assert (below.n_programs, below.rows_evaluated) == (1, 2)
        assert all(is_right(twin, below.rows, i, [BAD]) for i in range(2))
        beside = model.extend(ints(int(first.nodes[-1]), ROOT), ints(BAD, 8), every(2), every(2))
        assert beside.n_programs == 1
        assert is_right(twin, beside.rows, 1, [8])
        again = model.extend(ints(ROOT, ROOT), ints(BAD, 9), every(2), every(2))
        assert again.nodes[0] == first.nodes[0]
        assert is_right(twin, again.rows, 0, [BAD])
        assert is_right(twin, again.rows, 1, [9])


@pytest.mark.parametrize("solo", [False, True])
def test_a_failed_call_leaves_nothing_behind(solo):
    """A call that fails in its last block has stored NaN in cells that are then free; the next call does not read it."""
    tiny = spoil(make_module("llama"))
    twin = copy.deepcopy(tiny)
    with opened(tiny) as opened_model:
        model = opened_model.new_context(64) if solo else opened_model
        prompt = run(model, ROOT, [5, 6])
        fail_next(model)
        with pytest.raises(DecodeError, match="told to fail"):
            run(model, int(prompt.nodes[-1]), [*range(20, 40), BAD])
        later = run(model, int(prompt.nodes[-1]), [11])
        assert is_right(twin, later.rows, 0, [5, 6, 11])
        assert later.n_programs == 1
        model.close()


def test_a_request_after_one_that_met_nan_is_answered_as_before():
    """An engine refuses the request whose prompt has the damaged token, and answers others as it did before."""

    def text(*tokens):
        return "".join(f"<{token}>" for token in tokens)

    def ask(engine, *prompt):
        chosen = engine.select(text(*prompt), [text(5, 6), text(7, 8), text(9)])
        return {choice.text: choice.score for choice in chosen.ranked}

    vocabulary = replace(
        numbered_vocabulary(N_TOKENS), tokenize=lambda data: [int(n) for n in re.findall(rb"<(\d+)>", data)]
    )
    options = TransformersOptions(n_ctx=192, n_batch=32, precision="fast")
    model = open_module(spoil(make_module("llama")), vocabulary, options, name="tiny")
    with Engine(model, check=SelfCheck(8, 0.0, 0.0)) as engine:
        expected = ask(engine, 10, 11, 12)
        for prompt in ([10, 11, BAD], [BAD, 12], [10, 11, BAD, 12]):
            with pytest.raises(NonFiniteLogitsError):
                ask(engine, *prompt)
            assert ask(engine, 10, 11, 12) == pytest.approx(expected, abs=ALLOWED_NATS)
            engine.trim()
            assert ask(engine, 10, 11, 12) == pytest.approx(expected, abs=ALLOWED_NATS)
