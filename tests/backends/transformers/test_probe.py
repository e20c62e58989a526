"""Opening a module compares its rows over a tree with its own forward: models that are led wrongly are refused."""

from __future__ import annotations

import threading

import numpy as np
import pytest

for _name in ("torch", "transformers"):
    pytest.importorskip(_name)

import torch

from selectrie.backends.transformers import attention, module, probe
from selectrie.backends.transformers.cells import Prefix
from selectrie.backends.transformers.module import cache_in
from selectrie.core.model import chain
from selectrie.core.types import ROOT
from selectrie.errors import UnsupportedModelError
from selectrie.testing import check_model
from tests.support.transformers_models import ARCHITECTURES, N_TOKENS, make_module, opened, worst_of_random_tree

WRONG = r"tiny: its rows over a tree of contexts differ from its own by .* nats, where rounding explains"


def without(monkeypatch, argument):
    """Our attention function forgets one of its arguments."""
    right = attention.tree_attention

    def wrong(*args, **kwargs):
        kwargs.pop(argument, None)
        return right(*args, **kwargs)

    monkeypatch.setitem(attention.AttentionInterface._global_mapping, attention.ATTENTION, wrong)


@pytest.mark.parametrize(
    ("name", "argument", "changes"),
    [
        ("mistral", "sliding_window", {}),
        ("mistral", "sliding_window", {"sliding_window": 400}),
        ("gemma3_text", "sliding_window", {"sliding_window": 4096}),
        ("qwen2-window", "sliding_window", {"sliding_window": 400}),
        ("gemma2", "softcap", {"attn_logit_softcapping": 2.0}),
        ("gpt_oss", "s_aux", {}),
        ("gemma3_text", "scaling", {"query_pre_attn_scalar": 64}),
    ],
)
def test_an_argument_that_is_ignored_is_noticed(monkeypatch, name, argument, changes):
    """Windows, wide ones too, soft caps, sinks and scales; with them the same model is taken, and its windows are as before."""
    tiny = make_module(name, **changes)
    with torch.no_grad():
        for key, weight in tiny.named_parameters():
            if key.endswith("sinks"):
                weight.fill_(1.0)
    opened(tiny).close()
    without(monkeypatch, argument)
    with pytest.raises(UnsupportedModelError, match=WRONG):
        opened(tiny)
    width = ARCHITECTURES[name].get("sliding_window") if "sliding_window" not in changes else changes["sliding_window"]
    assert tiny.config.sliding_window == width
    assert {m.sliding_window for m in tiny.modules() if getattr(m, "sliding_window", None)} <= {width}
    assert tiny.config._attn_implementation != attention.ATTENTION


def test_the_laws_do_not_notice_a_window_that_is_ignored(monkeypatch):
    """A model that is wrong alone and in company alike keeps every law; only its own forward shows it."""
    tiny = make_module("mistral")
    without(monkeypatch, "sliding_window")
    monkeypatch.setattr("selectrie.backends.transformers.model.probe", lambda _prepared: None)
    assert check_model(lambda: opened(tiny), seed=3, steps=40, tolerance_nats=5e-5).worst_nats < 5e-5
    with opened(tiny, n_ctx=300) as model:
        assert worst_of_random_tree(model, make_module("mistral"), seed=1) > 0.5


def test_gpt_neo_is_refused_whatever_its_name(monkeypatch):
    """Its local layers hide tokens by their place in the cache."""
    from transformers import AutoConfig, AutoModelForCausalLM

    small = {"vocab_size": N_TOKENS, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 512}
    config = AutoConfig.for_model("gpt_neo", **small, attention_types=[[["global", "local"], 1]], window_size=7)
    tiny = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for weight in tiny.parameters():
            if weight.dim() == 2:
                weight.normal_(0, weight.shape[-1] ** -0.5)
    monkeypatch.setattr(module, "_require_supported", lambda *_: None)
    with pytest.raises(UnsupportedModelError, match=WRONG):
        opened(tiny)


@pytest.mark.parametrize("name", ["bloom", "mpt"])
def test_a_bias_by_place_is_noticed(monkeypatch, name):
    """ALiBi models whose bias is left as they make it are refused."""
    monkeypatch.setitem(module.ALIBI_BLOCKS, name, lambda _config: lambda _block, args, kwargs: (args, kwargs))
    with pytest.raises(UnsupportedModelError):
        opened(make_module(name))


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_runs_below_a_state_are_tried(monkeypatch, name):
    """Models that get them wrong without an error take one token at a time there, also if their names are not known."""
    monkeypatch.setattr(module, "_ONE_BY_ONE", ())
    tiny = make_module(name)
    with opened(tiny) as model:
        assert not model._prepared.runs_below_states
        assert worst_of_random_tree(model, tiny, seed=1, n_calls=1) < 5e-5
    with opened(make_module("mamba2")) as model:
        assert model._prepared.runs_below_states


def test_windows_of_other_names_limit_positions():
    """Doge keeps only some keys beyond `keep_window_size`; up to there its rows are right, and deeper ones are refused."""
    ARCHITECTURES["doge"] = {**ARCHITECTURES["llama"], "keep_window_size": 30}
    try:
        tiny = make_module("doge")
        with opened(tiny) as model:
            assert model._prepared.max_positions == 30
            assert worst_of_random_tree(model, tiny, seed=1, n_calls=1) < 5e-5
    finally:
        del ARCHITECTURES["doge"]


def test_single_tokens_below_a_state_are_tried():
    """Nemotron-H steps by one token with other arithmetic than by several: 0.005 nats in float32, which is refused."""
    mixed = {"layer_types": ["linear_attention", "mlp", "full_attention", "mlp"], "ssm_state_size": 8, "n_groups": 1}
    mamba = {"mamba_num_heads": 8, "mamba_head_dim": 8, "chunk_size": 16, "head_dim": 8}
    ARCHITECTURES["nemotron_h"] = {**ARCHITECTURES["llama"], **mixed, **mamba, "num_hidden_layers": 4}
    try:
        tiny = make_module("nemotron_h")
    finally:
        del ARCHITECTURES["nemotron_h"]
    with pytest.raises(UnsupportedModelError, match=WRONG):
        opened(tiny)


def test_a_model_whose_attention_cannot_be_led_is_branched_by_copies():
    """MiniMax takes only a cache of its own class; copies of that give the right rows."""
    ARCHITECTURES["minimax"] = {**ARCHITECTURES["mixtral"], "head_dim": 8}
    try:
        tiny = make_module("minimax")
        with opened(tiny) as model:
            assert model._prepared.route is module.Route.STATES
            assert worst_of_random_tree(model, tiny, seed=1, n_calls=1) < 5e-5
    finally:
        del ARCHITECTURES["minimax"]


def test_a_window_that_could_not_be_tried_limits_positions(monkeypatch):
    """Where narrowing a window changes nothing in the model's own forward, it is not known to work at its own width."""
    narrowed = probe._narrow_windows

    def nothing_narrowed(prepared):
        places, before = probe._wide_windows(prepared), []
        before += [place.sliding_window for place in places]
        context = narrowed(prepared)
        monkeypatch.setattr(probe, "_NARROW_WINDOW", before[0])
        return context

    tiny = make_module("mistral", sliding_window=40)
    with opened(tiny) as model:
        assert model._prepared.max_positions is None
    monkeypatch.setattr(probe, "_narrow_windows", nothing_narrowed)
    with opened(tiny) as model:
        assert model._prepared.max_positions == 40


@pytest.mark.short("dtype0")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_rounding_explains_follows_the_arithmetic(dtype):
    """The allowance is below what a wrong model differs by, and in float32 three times what a right one differs by. In fewer
    digits a mixture of experts is undecided too often to tell."""
    for name in ("llama", "mistral", "mamba2", *(["mixtral"] if dtype is torch.float32 else [])):
        seen = []

        def check(prepared, seen=seen):
            for seed in range(2):
                tree = probe._make_tree(prepared, seed)
                solo = prepared.route is not module.Route.STATES
                seen.append(
                    (max(probe._worst_difference(prepared, tree, solo=s) for s in {False, solo}), tree.allowed_nats)
                )

        module.prepare_module(make_module(name).to(dtype), name, check).release()
        worst, allowed = np.array(seen).T
        assert (worst * (3 if dtype is torch.float32 else 1) < allowed).all(), seen
        assert (allowed < (1e-3 if dtype is torch.float32 else 1.0)).all(), seen


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_named(value):
    """A model whose weights hold NaN or an infinite number is refused with their names, three of them."""
    tiny = make_module("llama")
    with torch.no_grad():
        tiny.model.layers[1].mlp.down_proj.weight[3, 4] = value
    reason = (
        "tiny: it computes NaN, as weights are NaN or infinite: model.layers.1.mlp.down_proj.weight; "
        "get the model's files again, or take others"
    )
    with pytest.raises(UnsupportedModelError) as caught:
        opened(tiny)
    assert str(caught.value) == reason
    with torch.no_grad():
        for weight in tiny.model.layers[0].parameters():
            weight.fill_(value)
    with pytest.raises(
        UnsupportedModelError, match=r"infinite: model\.layers\.0\.[^,;]*, [^,;]*, [^,;]* and 7 more; get"
    ):
        opened(tiny)


def test_numbers_that_overflow_are_not_taken_for_damaged_weights():
    """Finite weights that give NaN are said to be finite; in float16 the remedy is float32."""
    tiny = make_module("llama")
    with torch.no_grad():
        tiny.model.layers[1].mlp.down_proj.weight.fill_(6e4)
    opened(tiny).close()
    with pytest.raises(
        UnsupportedModelError, match="weights are finite; numbers may be too large for float16: load it"
    ):
        opened(tiny.half(), precision="fast")
    with torch.no_grad():
        tiny.float().model.layers[1].mlp.down_proj.weight.fill_(3e38)
    with pytest.raises(UnsupportedModelError, match="weights are finite; get the model's files again"):
        opened(tiny)


STATES = ("mamba", "mamba2", "rwkv", "jamba", "qwen3_5_text", "lfm2", "falcon_h1")
ROUTES = {
    **dict.fromkeys(STATES, module.Route.STATES),
    "falcon": module.Route.MASK,
    "bloom": module.Route.ALIBI,
    "mpt": module.Route.ALIBI,
}


@pytest.mark.short("llama", "falcon", "bloom", "mamba")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_of_the_sweep_is_led_by_the_expected_route(name):
    """Most call our function; Falcon takes masks, Bloom and MPT a bias, the others are branched by copies of states.

    GPT-J takes masks up to Transformers 5.23, and calls our function from 5.24 on.
    """
    with opened(make_module(name)) as model:
        route = model._prepared.route
    expected = ROUTES.get(name, module.Route.FUNCTION)
    assert route is expected or (name, route) == ("gptj", module.Route.MASK)


# Behind a prefix


def remembered(tiny):
    """What the model itself remembers of 20 tokens."""
    with torch.no_grad():
        return cache_in(tiny(input_ids=torch.arange(5, 25)[None], use_cache=True))


@pytest.mark.parametrize(("name", "changes"), [("mistral", {"num_hidden_layers": 1}), ("bloom", {})])
def test_a_prefix_that_is_not_read_is_noticed(monkeypatch, name, changes):
    """Also where the prompt's first rows alone see it through a window. Where it is read, the model is taken."""
    tiny = make_module(name, **changes)
    opened(tiny, prefix=remembered(tiny)).close()
    monkeypatch.setattr(Prefix, "write", lambda *_: None)
    with pytest.raises(UnsupportedModelError, match="tiny: behind the prefix, its rows over a tree"):
        opened(tiny, prefix=remembered(tiny))
    assert tiny.config._attn_implementation != attention.ATTENTION


def test_positions_that_do_not_begin_behind_the_prefix_are_noticed(monkeypatch):
    """Rotations of keys show it."""
    tiny = make_module("llama")
    prefix, right = remembered(tiny), module.PreparedModule.forward_tree
    monkeypatch.setattr(
        module.PreparedModule, "forward_tree", lambda self, call, ids, at, *rest: right(self, call, ids, at % 20, *rest)
    )
    with pytest.raises(UnsupportedModelError, match="tiny: behind the prefix, its rows over a tree"):
        opened(tiny, prefix=prefix)


def test_a_prefix_near_the_last_position_is_tried_with_fewer_tokens():
    """A GPT-2 of 28 positions has 8 left behind 20 tokens."""
    tiny = make_module("gpt2", n_positions=28)
    with opened(tiny, prefix=remembered(tiny), n_ctx=28) as model:
        assert model.limits.nodes == 8


def test_other_models_of_the_module_wait_for_the_probe(monkeypatch):
    """One that is at work on another thread has no call running meanwhile, and keeps its rows."""
    tiny = make_module("mistral")
    prefix = remembered(tiny)
    tokens = np.arange(30, 45, dtype=np.int32)
    rows, errors, callers, is_done = [], [], [], threading.Event()
    difference = probe._describe_difference

    def observed(prepared, tree):
        callers.append(set(prepared._callers))
        failure = difference(prepared, tree)
        callers.append(set(prepared._callers))
        return failure

    def work():
        try:
            while not (is_done.is_set() and rows):
                extension = model.extend(chain(ROOT, 15), tokens, tokens == tokens[-1], tokens > 0)
                rows.append(extension.rows.logits(0).copy())
                model.release(extension.nodes, forget=True)
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            errors.append(error)

    with opened(tiny) as model:
        monkeypatch.setattr(probe, "_describe_difference", observed)
        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(3):
                opened(tiny, prefix=prefix).close()
        finally:
            is_done.set()
            thread.join()
    assert not errors
    assert callers == [set()] * 6
    np.testing.assert_allclose(rows, rows[:1] * len(rows), rtol=0, atol=1e-4)
