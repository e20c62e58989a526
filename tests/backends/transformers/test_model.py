"""A Transformers module behind the port: its bits, failures, limits, and how it is put back."""

from __future__ import annotations

import gc
import resource
import sys
import weakref

import numpy as np
import pytest

for _name in ("torch", "transformers"):
    pytest.importorskip(_name)

import torch
from torch import nn

from selectrie.backends.transformers import cells, module
from selectrie.backends.transformers.attention import EXACT_BATCH_MULTIPLE
from selectrie.backends.transformers.cells import CellContexts
from selectrie.backends.transformers.model import open_module
from selectrie.core.model import chain
from selectrie.core.types import ROOT, Precision
from selectrie.errors import (
    CapacityError,
    ClosedError,
    DecodeError,
    DecodeInterrupted,
    ModelError,
    OptionError,
    ProtocolError,
    UnsupportedModelError,
)
from selectrie.testing import numbered_vocabulary
from tests.support.arrays import every, ints
from tests.support.transformers_models import (
    ARCHITECTURES,
    N_TOKENS,
    make_module,
    opened,
    plain_logp,
)


def run(model, parent, tokens):
    """A run of tokens below a node, all wanted, the last one kept."""
    n = len(tokens)
    return model.extend(chain(parent, n), ints(*tokens), every(n), np.arange(n) == n - 1)


def cut_rows(model, tokens, sizes):
    """float32[n, V]: the logits of a run that is cut into calls of these sizes, over and over."""
    rows, parent, start, turn = [], ROOT, 0, 0
    while start < len(tokens):
        part = tokens[start : start + sizes[turn % len(sizes)]]
        extension = run(model, parent, part)
        rows += [extension.rows.logits(i).copy() for i in range(len(part))]
        parent, start, turn = int(extension.nodes[-1]), start + len(part), turn + 1
    return np.stack(rows)


def solo_rows(model, tokens, sizes):
    solo = model.new_context(len(tokens))
    try:
        return cut_rows(solo, tokens, sizes)
    finally:
        solo.close()


# Bits


@pytest.mark.short("llama", "gpt_oss")
@pytest.mark.parametrize("name", ["llama", "gemma3_text", "gpt_oss", "mixtral", "falcon", "bloom"])
def test_bits_of_a_new_context_are_those_of_the_path_alone(name):
    """A run of 90 tokens in calls of 64, of 1 and 3, of 30, and of 64 and 7, before and after other work on the main model:
    the same bits; windows, sinks, soft caps, masks and mixtures of experts too."""
    tokens = np.random.default_rng(1).integers(3, N_TOKENS, 90).tolist()
    with opened(make_module(name), n_ctx=256, n_batch=64) as model:
        assert model.limits.batch_sizes.multiple == EXACT_BATCH_MULTIPLE
        expected = solo_rows(model, tokens, [64])
        run(model, int(run(model, ROOT, tokens[:40]).nodes[7]), tokens[50:70])
        for sizes in ([1, 3], [30], [64, 7]):
            np.testing.assert_array_equal(solo_rows(model, tokens, sizes), expected)


@pytest.mark.short("llama", "gpt_oss")
@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "deepseek_v3"])
def test_bits_of_a_new_context_do_not_depend_on_other_paths_in_it(name):
    """A run of 70 tokens between the calls and in the calls of another one: the bits are those of the run alone."""
    tokens, other = np.random.default_rng(2).integers(3, N_TOKENS, (2, 70)).tolist()
    with opened(make_module(name), n_ctx=256, n_batch=64) as model:
        expected = solo_rows(model, tokens, [64])
        crowded = model.new_context(140)
        rows, mine, foreign = [], ROOT, ROOT
        for start in range(0, 70, 14):
            parents = np.concatenate([chain(foreign, 14), chain(mine, 14)])
            parents[15:] -= 14
            both = crowded.extend(parents, ints(*other[start:][:14], *tokens[start:][:14]), every(28), every(28))
            rows += [both.rows.logits(14 + i).copy() for i in range(14)]
            foreign, mine = both.nodes[[13, 27]].tolist()
        crowded.close()
        np.testing.assert_array_equal(np.stack(rows), expected)


def test_a_node_wanted_again_does_not_move_what_is_below_it():
    """Repeated rows are evaluated in scratch cells: leaves below give the same bits before and after, and no cell is lost."""
    with opened(make_module("llama")) as model:
        prompt = run(model, ROOT, range(5, 25))
        run(model, ROOT, range(40, 47))
        nodes = [ROOT, *prompt.nodes.tolist()]
        capacity = model.capacity()
        before = run(model, nodes[-1], [30])
        first = before.rows.logits(0).copy()
        model.release(before.nodes, forget=True)
        again = model.extend(ints(*nodes[:-1]), ints(*range(5, 25)), every(20), every(20))
        assert again.nodes.tolist() == nodes[1:]
        assert (again.rows_evaluated, again.rows_repeated, again.rows_padded) == (20, 20, 4)
        model.release(again.nodes)
        assert model.capacity() == capacity
        np.testing.assert_array_equal(run(model, nodes[-1], [30]).rows.logits(0), first)


def test_fast_precision_takes_the_weights_as_they_are():
    """bfloat16 is refused by `exact` and taken by `fast`, without padding; the rows are float32 near the model's own."""
    tiny = make_module("llama").to(torch.bfloat16)
    with pytest.raises(OptionError, match=r"precision='exact': expected fast, as the weights are bfloat16"):
        opened(tiny)
    with opened(tiny, precision="fast") as model:
        assert (model.limits.batch_sizes.multiple, model.identity.precision) == (1, "fast")
        extension = run(model, ROOT, range(5, 25))
        assert (extension.rows_padded, extension.rows.logits(0).dtype) == (0, np.float32)
        logp = extension.rows.logits(19) - extension.rows.logsumexp(19)
        np.testing.assert_allclose(logp, plain_logp(make_module("llama"), range(5, 25)), rtol=0, atol=0.3)


# Failures


@pytest.mark.parametrize("name", ["llama", "mamba"])
def test_an_interrupt_stops_the_call_at_the_next_block(name):
    """Also on a `new_context` model; nothing has changed then, and an interrupt in idle time has no effect."""
    tiny = make_module(name)
    with opened(tiny) as model:
        prompt = run(model, ROOT, range(5, 25))
        model.interrupt()
        solo = model.new_context(20)
        for one, parent in ((model, int(prompt.nodes[-1])), (solo, ROOT)):
            capacity = one.capacity()
            hook = model._prepared.blocks()[0].register_forward_hook(lambda *_: model.interrupt())
            with pytest.raises(DecodeInterrupted):
                run(one, parent, [30, 31])
            hook.remove()
            assert one.capacity() == capacity
            run(one, parent, [30, 31])
        solo.close()


@pytest.mark.parametrize("name", ["llama", "mamba"])
def test_an_interrupt_of_the_bookkeeping_takes_everything_back(name, monkeypatch):
    """Ctrl-C after the new nodes were remembered: none is left, and the next call works."""
    with opened(make_module(name)) as model:
        prompt = run(model, ROOT, range(5, 25))
        capacity, contexts = model.capacity(), model._contexts
        finish = type(contexts).finish

        def interrupted(*args):
            finish(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr(type(contexts), "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(model, int(prompt.nodes[-1]), [30, 31])
        monkeypatch.undo()
        assert model.capacity() == capacity
        node, depth = model.match_prefix(ints(*range(5, 25), 30, 31))
        assert (node, depth) == (int(prompt.nodes[-1]), 20)
        model.release(ints(node))
        logp = run(model, node, [30, 31]).rows
        expected = plain_logp(make_module(name), [*range(5, 25), 30, 31])
        np.testing.assert_allclose(logp.logits(1) - logp.logsumexp(1), expected, rtol=0, atol=5e-5)
        if isinstance(contexts, CellContexts):
            assert int(contexts._is_used.sum()) == 22


def test_an_error_inside_the_model_is_a_decode_error():
    """It names the model and the cause, and leaves the capacity as it was."""
    with opened(make_module("llama"), name="a model") as model:
        capacity = model.capacity()
        hook = model._prepared.blocks()[1].register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(DecodeError, match="a model: ZeroDivisionError: division by zero"):
            run(model, ROOT, [5, 6])
        hook.remove()
        assert model.capacity() == capacity


# Limits


def test_learned_positions_are_a_limit_of_depth():
    """A GPT-2 of 24 positions holds 96 nodes in branches; a path of 25 is refused before anything has changed."""
    with opened(make_module("gpt2", n_positions=24)) as model:
        end = int(run(model, ROOT, range(5, 29)).nodes[-1])
        capacity = model.capacity()
        with pytest.raises(CapacityError, match="needs 25 positions, 24 available"):
            run(model, end, [5])
        assert model.capacity() == capacity
        run(model, ROOT, range(50, 74))


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotary_embeddings_that_change_with_depth_are_limited(kind):
    """Rows stay those of the model's own forward up to the original context; deeper ones, which would change others, are refused."""
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4}
    tiny = make_module("llama", rope_parameters=rope, max_position_embeddings=32 if kind == "dynamic" else 128)
    with opened(tiny) as model:
        deepest = run(model, ROOT, range(5, 37))
        logp = deepest.rows.logits(31) - deepest.rows.logsumexp(31)
        with pytest.raises(CapacityError, match="33 positions, 32 available"):
            run(model, int(deepest.nodes[-1]), [5])
    np.testing.assert_allclose(logp, plain_logp(tiny, range(5, 37)), rtol=0, atol=5e-5)


def test_sizes_follow_the_options_and_the_model():
    """512 positions are held where `n_ctx` is open; more nodes than positions may be; rows come in whole multiples."""
    tiny = make_module("llama")
    with open_module(tiny, numbered_vocabulary(N_TOKENS), name="tiny") as model:
        assert (model.limits.nodes, model.limits.rows_per_call) == (512, 512)
        model.set_batch_multiple(24)
        assert model.limits.rows_per_call == 504
        run(model, ROOT, [5])
        with pytest.raises(ProtocolError, match="it holds 1 nodes"):
            model.set_batch_multiple(8)
        with pytest.raises(OptionError):
            model.set_batch_multiple(513)
        solo = model.new_context(100)
        assert (solo.limits.batch_sizes.multiple, solo.limits.nodes, solo.limits.rows_per_call) == (24, 100, 120)
        solo.close()
    with opened(tiny, n_ctx=600) as model:
        assert model.limits.nodes == 600


def test_states_are_as_many_as_memory_holds(monkeypatch):
    """The size of one at the full context decides; where not two fit, the error says what to ask for."""
    tiny = make_module("jamba")
    with opened(tiny, n_ctx=96) as model:
        assert model.limits.sequences == 256
        run(model, ROOT, range(5, 36))
        (state,) = model._contexts._state.values()
        run(model, model.match_prefix(ints(*range(5, 36)))[0], range(5, 36))
        size = max(map(cells.bytes_of, model._contexts._state.values()))
        assert size > cells.bytes_of(state)
        full = size + (size - cells.bytes_of(state)) * 34 // 31
    monkeypatch.setattr(cells, "_free_bytes", lambda _device: 3 * full + 8)
    with opened(tiny, n_ctx=96) as model:
        assert model.limits.sequences == 3
    monkeypatch.setattr(cells, "_free_bytes", lambda _device: 2 * full - 1)
    with pytest.raises(ModelError, match="a context of 96 tokens takes"):
        opened(tiny, n_ctx=96)


def test_states_do_not_copy_the_config():
    """A copy of a state refers to the model's own config, which would take longer to copy than the state."""
    tiny = make_module("qwen3_5_text")
    with opened(tiny) as model:
        run(model, ROOT, range(5, 25))
        (state,) = model._contexts._state.values()
        state.some_config = tiny.config
        assert model._contexts._copy(state).some_config is tiny.config
        assert model._contexts._copy(state).layers[1].keys is not state.layers[1].keys


# The user's own module


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "falcon", "bloom", "mamba"])
def test_the_module_is_put_back(name):
    """Configs, hooks and modes are as they were after the last of two models and a `new_context` is closed, and its own
    forward gives the same bits."""
    tiny = make_module(name)
    tiny.train()
    tiny.lm_head.eval()
    before = (
        [m.training for m in tiny.modules()],
        [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in tiny.modules()],
        {key: repr(value) for key, value in vars(tiny.config).items()},
    )
    first, second = opened(tiny), opened(tiny, n_ctx=64)
    assert not tiny.training
    solo = first.new_context(20)
    first.close()
    for model in (second, solo):
        run(model, ROOT, [5, 6])
        model.close()
    assert before == (
        [m.training for m in tiny.modules()],
        [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in tiny.modules()],
        {key: repr(value) for key, value in vars(tiny.config).items()},
    )
    if name != "mamba":  # it was left in training mode, in which RWKV-like models differ
        np.testing.assert_array_equal(
            plain_logp(tiny.eval(), range(5, 25)), plain_logp(make_module(name), range(5, 25))
        )


def test_a_module_is_put_back_when_its_model_is_forgotten():
    """A model that nobody closed gives the module back when it is collected."""
    tiny = make_module("llama")
    model = opened(tiny)
    gone = weakref.ref(model)
    assert tiny.config._attn_implementation == "selectrie"
    del model
    gc.collect()
    assert gone() is None
    assert tiny.config._attn_implementation == "sdpa"
    assert not module._prepared


def test_a_config_that_modules_share_is_not_written_into():
    """Each open module has a copy; the shared object names the model's own attention throughout, and is given back."""
    one = make_module("llama")
    shared = one.config
    other = type(one)(shared).eval()
    first, second = opened(one), opened(other)
    assert (shared._attn_implementation, one.config._attn_implementation) == ("sdpa", "selectrie")
    first.close()
    run(second, ROOT, [5, 6])
    second.close()
    for tiny in (one, other):
        assert all(m.config is shared for m in tiny.modules() if hasattr(m, "config"))


def test_somebody_elses_use_of_an_open_module_is_noticed():
    """Calling it raises, as its attention reads our cells; another attention chosen for it fails our next call and stays."""
    tiny = make_module("llama")
    with opened(tiny) as model:
        with pytest.raises(ModelError, match="in use by selectrie"):
            tiny(input_ids=torch.tensor([[5, 6]]))
        tiny.set_attn_implementation("eager")
        with pytest.raises(DecodeError, match="attention implementation was changed"):
            run(model, ROOT, [5, 6])
        assert model.capacity().nodes == model.limits.nodes
    assert tiny.config._attn_implementation == "eager"
    tiny(input_ids=torch.tensor([[5, 6]]))


@pytest.mark.short("llama", "mamba", "mixtral", "falcon_h1")
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if "-" not in name])
def test_gradients_can_be_had_after_closing(name):
    """Nothing that the module keeps was made under inference mode."""
    tiny = make_module(name)
    with opened(tiny) as model:
        run(model, ROOT, range(5, 30))
    tiny.train()(input_ids=torch.tensor([[5, 6, 7]])).logits.sum().backward()


@pytest.mark.parametrize("keep", [nn.Module.register_buffer, setattr])
def test_what_a_module_keeps_of_a_call_is_an_ordinary_tensor_after_closing(keep):
    """A table that grows with the calls, as rotary embeddings of older models do, can be trained with, also where the
    model was closed under inference mode."""
    tiny = make_module("llama")
    embeddings = tiny.get_input_embeddings()

    def look_up(_module, _arguments, output):
        if output.shape[1] > len(getattr(embeddings, "table", ())):
            keep(embeddings, "table", torch.ones(output.shape[1:]))
        return output * embeddings.table[: output.shape[1]]

    embeddings.register_forward_hook(look_up)
    with torch.inference_mode(), opened(tiny) as model:
        run(model, ROOT, range(5, 30))
        assert embeddings.table.is_inference()
    assert len(embeddings.table) >= 25
    assert torch.equal(embeddings.table, torch.ones_like(embeddings.table))
    tiny(input_ids=torch.tensor([[5, 6, 7]])).logits.sum().backward()


def test_a_closed_model_says_so():
    """Every verb raises `ClosedError`; closing twice is allowed."""
    model = opened(make_module("llama"))
    model.close()
    model.close()
    for call in (model.capacity, lambda: run(model, ROOT, [5]), lambda: model.new_context(8), lambda: model.trim(0)):
        with pytest.raises(ClosedError, match="the model tiny"):
            call()


def test_the_identity_names_what_computes():
    """Back end, versions, processor, precision and the number of weights, of which shared ones count once."""
    tiny = make_module("gpt2")
    with open_module(tiny, numbered_vocabulary(N_TOKENS), name="tiny", digest="abc") as model:
        identity = model.identity
        assert (identity.name, identity.digest, identity.backend) == ("tiny", "abc", "transformers")
        assert identity.build.startswith("transformers ")
        assert ", torch " in identity.build
        assert identity.n_parameters == tiny.num_parameters()
        assert identity.weights == "f32"
        assert model._source.options.precision is Precision.EXACT


# What is refused


def refused(broken, match, vocabulary=None):
    with pytest.raises(UnsupportedModelError, match=match):
        open_module(broken, vocabulary or numbered_vocabulary(N_TOKENS), name="tiny")


def test_models_that_do_not_work_are_refused_by_name():
    """GPT-Neo, Falcon with ALiBi, encoder-decoders, models without a head, weights that are elsewhere, other vocabularies."""
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    small = {"vocab_size": N_TOKENS, "hidden_size": 32, "num_layers": 2, "num_heads": 4}
    neo = AutoConfig.for_model("gpt_neo", **small, attention_types=[[["global", "local"], 1]], window_size=7)
    refused(AutoModelForCausalLM.from_config(neo), "tiny: GPT-Neo")
    refused(make_module("falcon", alibi=True), "alibi=True")
    t5 = AutoConfig.for_model("t5", vocab_size=N_TOKENS, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4)
    refused(AutoModelForSeq2SeqLM.from_config(t5), "has an encoder")
    llama = make_module("llama")
    refused(AutoModel.from_config(llama.config), "no language model head")
    refused(torch.nn.Linear(2, 2), "no Transformers model")
    refused(llama, f"predicts {N_TOKENS} tokens, its vocabulary has 9", numbered_vocabulary(9))
    llama.hf_device_map = {"": "disk"}
    refused(llama, "offloaded")
    refused(make_module("llama").to("meta"), "meta device")


def test_options_that_contradict_the_module_are_refused():
    """Type and device are those of the module; sizes have bounds."""
    tiny = make_module("llama")
    for options in ({"dtype": "bfloat16"}, {"device": "cuda"}, {"n_ctx": 7}, {"n_batch": 0}, {"precision": "high"}):
        with pytest.raises(OptionError, match=next(iter(options))):
            opened(tiny, **options)
    opened(tiny, dtype="float32", device="cpu").close()
    assert tiny.config._attn_implementation == "sdpa"


# Memory


def check_flat(name, n_rounds):
    """Calls that add, repeat, forget and evict, and small contexts: the process grows by less than 1 MB after as many before."""

    def work(model, seed):
        rng = np.random.default_rng(seed)
        for i in range(n_rounds):
            solo = model.new_context(16) if i % 25 == seed else None
            for _ in range(5):
                first = run(model, ROOT, rng.integers(3, 9, 4)).nodes
                last = run(model, int(first[-1]), rng.integers(3, 9, 2)).nodes
                model.release(np.concatenate([first, last]), forget=bool(rng.integers(2)))
            if solo is not None:
                solo.close()
        model.trim(0)

    with opened(make_module(name)) as model:
        work(model, 0)
        before = resident_bytes()
        work(model, 1)
        assert resident_bytes() - before < 1 << 20


ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the resident set from Linux")


@pytest.mark.short("llama")
@ON_LINUX
@pytest.mark.parametrize("name", ["llama", "mamba"])
def test_memory_stays_flat(name):
    """Over 150 calls and a small context."""
    check_flat(name, 15)


@ON_LINUX
@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "mamba"])
def test_memory_stays_flat_for_long(name):
    """Over 1 000 calls and four small contexts."""
    check_flat(name, 100)


def resident_bytes():
    gc.collect()
    with open("/proc/self/statm") as file:  # noqa: PTH123 - no file to be kept
        return int(file.read().split()[1]) * resource.getpagesize()


def test_the_way_to_a_larger_context_is_what_this_model_can_do():
    """A larger `n_ctx`, unless all positions of the model are held already; rotary positions have no end."""
    learned, rotary = make_module("gpt2"), make_module("llama")
    for module_, n_ctx, expected in (
        (learned, 96, "load with a larger `n_ctx`"),
        (learned, 512, "use a model of more than 512 positions"),
        (rotary, 512, "load with a larger `n_ctx`"),
    ):
        with opened(module_, n_ctx=n_ctx) as model:
            assert model.limits.larger_context == expected
