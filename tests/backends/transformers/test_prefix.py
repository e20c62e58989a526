"""A prefix of the caller stands before every context: its rows, bits, limits, digest, beginning, and what is refused."""

from __future__ import annotations

import copy
import inspect
from contextlib import closing

import numpy as np
import pytest

for _name in ("torch", "transformers"):
    pytest.importorskip(_name)

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers.cache_utils import DynamicCache, DynamicLayer, StaticCache

import selectrie
from selectrie.backends.transformers import module
from selectrie.backends.transformers.cells import cells_for
from selectrie.backends.transformers.module import cache_argument, cache_in
from selectrie.backends.transformers.options import TransformersOptions
from selectrie.backends.transformers.weights import memory_needs, open_model
from selectrie.backends.transformers_entry import TRANSFORMERS
from selectrie.core.model import chain
from selectrie.core.types import ROOT
from selectrie.errors import CapacityError, DecodeError, OptionError, PromptTooLongError, UnknownOptionError
from selectrie.grammar import Grammar
from selectrie.options import PromptParams
from selectrie.testing import check_model
from tests.support import checkpoints
from tests.support.arrays import every, ints
from tests.support.fast_tokenizers import made
from tests.support.n_examples import n_examples
from tests.support.transformers_models import (
    ARCHITECTURES,
    N_TOKENS,
    WINDOW,
    fail_next,
    make_module,
    opened,
    plain_logp,
)

NATS = 5e-5
"""Largest difference allowed in float32."""
BEFORE = tuple(range(5, 25))
"""Tokens of a prefix that is deeper than the windows."""
STATES = ("mamba", "mamba2", "rwkv", "jamba", "qwen3_5_text", "lfm2", "falcon_h1")
KINDS = ("llama", "mistral", "gemma2", "gpt_oss", "gpt2", "falcon", "bloom", "mpt", "deepseek_v3")
"""One of each: our attention function, windows, mixed with soft caps, sinks; learned positions; a mask; both kinds of
ALiBi; values of another width than keys."""


@pytest.fixture(autouse=True)
def _unprobed(request, monkeypatch):
    """Models are not compared with their own forward when they are opened: it is done here, and it takes most of the time."""
    if request.node.get_closest_marker("long") is None:
        for name in ("probe", "probe_behind"):
            monkeypatch.setattr(f"selectrie.backends.transformers.model.{name}", lambda *_: None)


def computed(tiny, tokens=BEFORE):
    """What the model itself remembers of these tokens."""
    with torch.no_grad():
        return cache_in(tiny(input_ids=torch.tensor([list(tokens)]), use_cache=True))


def learned(tiny, n_tokens, seed=0):
    """Random keys and values of the right shapes, as prefix tuning gives them."""
    generator = torch.Generator().manual_seed(seed)
    pairs = [(layer.keys, layer.values) for layer in computed(tiny, (3, 4)).layers]
    shapes = [[(1, one.shape[1], n_tokens, one.shape[3]) for one in pair] for pair in pairs]
    return tuple(tuple(torch.randn(shape, generator=generator) for shape in pair) for pair in shapes)


def own_logp(tiny, prefix, path):
    """float64[n, V]: the log-probabilities of the model's own forward on a copy of the prefix."""
    cache = copy.deepcopy(prefix) if isinstance(prefix, DynamicCache) else DynamicCache(prefix)
    given = {cache_argument(tiny): cache}
    if "position_ids" in inspect.signature(tiny.forward).parameters:
        n_before = cache.get_seq_length()
        given["position_ids"] = torch.arange(n_before, n_before + len(path))[None]
    with torch.no_grad():
        logits = tiny(input_ids=torch.tensor([list(path)]), **given).logits[0]
    return torch.log_softmax(logits.double(), -1).numpy()


def run(model, parent, tokens):
    """A run of tokens below a node: its last node, and the log-probabilities after each, float64[n, V]."""
    n = len(tokens)
    extension = model.extend(chain(parent, n), ints(*tokens), every(n), every(n))
    logits = np.stack([extension.rows.logits(i).astype(np.float64) for i in range(n)])
    return int(extension.nodes[-1]), torch.log_softmax(torch.from_numpy(logits), -1).numpy()


def bits(model, tokens, sizes):
    """float32[n, V]: the logits of a run in a new context, cut into calls of these sizes, over and over."""
    rows, parent, start, turn = [], ROOT, 0, 0
    with closing(model.new_context(len(tokens))) as solo:
        while start < len(tokens):
            part = tokens[start : start + sizes[turn % len(sizes)]]
            extension = solo.extend(chain(parent, len(part)), ints(*part), every(len(part)), every(len(part)))
            rows += [extension.rows.logits(i).copy() for i in range(len(part))]
            parent, start, turn = int(extension.nodes[-1]), start + len(part), turn + 1
    return np.stack(rows)


def check_rows(name, prefix_of, *, n_ctx=96):
    """Two branches of 26 tokens behind a prefix, and one of them in a new context, against the model's own forward.
    Returns how far the prefix has moved a row."""
    tiny = make_module(name)
    prefix = prefix_of(tiny)
    a, b = (path.tolist() for path in np.random.default_rng(1).integers(3, N_TOKENS, (2, 26)))
    b[:10] = a[:10]
    first, second = own_logp(tiny, prefix, a), own_logp(tiny, prefix, b)
    with opened(tiny, prefix=prefix, n_ctx=n_ctx) as model:
        fork, top = run(model, ROOT, a[:10])
        _, left = run(model, fork, a[10:])
        _, right = run(model, fork, b[10:])
        with closing(model.new_context(26)) as solo:
            _, alone = run(solo, ROOT, a)
    np.testing.assert_allclose(np.concatenate([top, left]), first, rtol=0, atol=NATS)
    np.testing.assert_allclose(right, second[10:], rtol=0, atol=NATS)
    np.testing.assert_allclose(alone, first, rtol=0, atol=NATS)
    return np.abs(first[0] - plain_logp(tiny, a[:1])).max()


# Rows and bits


@pytest.mark.short("llama", "gemma2", "bloom", "deepseek_v3")
@pytest.mark.parametrize("name", KINDS)
def test_rows_behind_a_prefix_are_those_of_the_own_forward(name):
    """20 computed tokens, of which windows of 7 keep the last 6; the rows are others than without them."""
    assert check_rows(name, computed) > 0.1


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in STATES])
@pytest.mark.parametrize("prefix_of", [computed, lambda tiny: learned(tiny, 9)], ids=["computed", "learned"])
def test_transformers_prefixes(name, prefix_of):
    """The same for every architecture, and the laws of the port with 100 steps."""
    check_rows(name, prefix_of)
    tiny = make_module(name)
    prefix = prefix_of(tiny)
    report = check_model(
        lambda: opened(tiny, prefix=prefix), seed=3, steps=100, tolerance_nats=NATS, longest=24, fail_next=fail_next
    )
    assert report.rows_compared >= 100


def test_layers_that_share_keys_have_none_of_their_own(monkeypatch):
    """The last two of four layers read those of earlier ones: a prefix has two layers, and the rows are right."""
    shared = {
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    }
    small = {"vocab_size_per_layer_input": N_TOKENS, "hidden_size_per_layer_input": 8, "laurel_rank": 4}
    lists = {"activation_sparsity_pattern": [0.0] * 4, "intermediate_size": [48] * 4, "sliding_window": WINDOW}
    monkeypatch.setitem(ARCHITECTURES, "gemma3n_text", {**ARCHITECTURES["qwen3"], **shared, **small, **lists})
    assert check_rows("gemma3n_text", computed) > 0.1


def test_the_laws_of_the_port_hold_behind_a_prefix():
    """30 random steps with failing calls, releases and evictions against each path alone behind it."""
    tiny = make_module("mistral")
    prefix = learned(tiny, 9)
    check_model(
        lambda: opened(tiny, prefix=prefix), seed=3, steps=30, tolerance_nats=NATS, longest=12, fail_next=fail_next
    )


@settings(max_examples=n_examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_computed_prefix_is_its_tokens_before_each_path(data):
    """Where it is cut changes nothing: the rows are those of the whole text by a forward without any cache."""
    name = data.draw(st.sampled_from(["mistral", "gpt2", "bloom"]))
    text = data.draw(st.lists(st.integers(3, N_TOKENS - 1), min_size=2, max_size=24))
    n_before = data.draw(st.integers(1, len(text) - 1))
    tiny = make_module(name)
    with opened(tiny, prefix=computed(tiny, text[:n_before])) as model:
        _, logp = run(model, ROOT, text[n_before:])
    np.testing.assert_allclose(logp[-1], plain_logp(tiny, text), rtol=0, atol=NATS)
    np.testing.assert_allclose(logp[0], plain_logp(tiny, text[: n_before + 1]), rtol=0, atol=NATS)


@pytest.mark.parametrize("name", ["gemma3_text", "mixtral", "falcon"])
def test_bits_behind_a_prefix_are_those_of_the_path_alone(name):
    """A run of 30 tokens in a new context, in calls of 30, of 1 and 7, and of 9, before and after other work: the same bits."""
    tiny = make_module(name)
    tokens = np.random.default_rng(2).integers(3, N_TOKENS, 30).tolist()
    with opened(tiny, prefix=computed(tiny), n_ctx=128, n_batch=64) as model:
        expected = bits(model, tokens, [30])
        node, _ = run(model, ROOT, tokens[:20])
        run(model, node, tokens[20:25])
        for sizes in ([1, 7], [9]):
            np.testing.assert_array_equal(bits(model, tokens, sizes), expected)


def test_a_failed_call_leaves_the_prefix_in_its_cells():
    """Contexts that are evaluated after a failure, in cells that were freed, see it as before."""
    tiny = make_module("llama")
    with opened(tiny, prefix=computed(tiny), n_ctx=40) as model:
        _, expected = run(model, ROOT, [30, 31, 32])
        fail_next(model)
        with pytest.raises(DecodeError):
            run(model, ROOT, range(40, 52))
        node, _ = run(model, ROOT, range(40, 52))
        model.release(ints(node), forget=True)
        _, again = run(model, ROOT, [30, 31, 32])
        np.testing.assert_allclose(again, expected, rtol=0, atol=NATS)


def test_fast_precision_takes_a_prefix_of_its_own_type():
    """In bfloat16 the rows are near those of the own forward, and a prefix in float32 is refused."""
    tiny = make_module("llama").to(torch.bfloat16)
    prefix = computed(tiny)
    with opened(tiny, prefix=prefix, precision="fast") as model:
        _, logp = run(model, ROOT, [30, 31, 32])
    np.testing.assert_allclose(logp, own_logp(tiny, prefix, [30, 31, 32]), rtol=0, atol=0.3)
    exact = [(layer.keys.float(), layer.values.float()) for layer in prefix.layers]
    with pytest.raises(OptionError, match=r"keys of torch.bfloat16, not torch.float32, in layer 0"):
        opened(tiny, prefix=exact, precision="fast")


# The caller's object


def test_the_caller_s_object_is_copied_and_not_written_to():
    """Its tensors and length are as before, and what is done to it later changes no row."""
    tiny = make_module("gemma3_text")
    prefix = computed(tiny)
    before = copy.deepcopy(prefix)
    with opened(tiny, prefix=prefix) as model:
        _, expected = run(model, ROOT, [30, 31, 32])
        for layer, old in zip(prefix.layers, before.layers, strict=True):
            assert torch.equal(layer.keys, old.keys)
            assert torch.equal(layer.values, old.values)
            assert layer.get_seq_length() == old.get_seq_length() == len(BEFORE)
            layer.keys.zero_()
            layer.values.fill_(9.0)
        np.testing.assert_allclose(run(model, ROOT, [30, 31, 32])[1], expected, rtol=0, atol=NATS)
        with closing(model.new_context(8)) as solo:
            np.testing.assert_allclose(run(solo, ROOT, [30, 31, 32])[1], expected, rtol=0, atol=NATS)


def test_every_form_of_a_prefix_is_the_same_prefix():
    """A cache, a static one, pairs, triples, stacked tensors, tensors with gradients and of inference mode: one digest."""
    tiny = make_module("llama")
    cache = computed(tiny)
    pairs = [(layer.keys, layer.values) for layer in cache.layers]
    static = StaticCache(config=tiny.config, max_cache_len=64)
    with torch.no_grad():
        tiny(input_ids=torch.tensor([list(BEFORE)]), use_cache=True, **{cache_argument(tiny): static})
    for layer, pair in zip(static.layers, pairs, strict=True):
        layer.keys[:, :, : len(BEFORE)], layer.values[:, :, : len(BEFORE)] = pair  # its own sums are in another order
    with torch.inference_mode():
        inferred = [(keys.clone(), values.clone()) for keys, values in pairs]
    graded = [tuple(one.clone().requires_grad_() * 1 for one in pair) for pair in pairs]
    stacked = tuple(torch.stack(pair) for pair in pairs)
    forms = [cache, static, pairs, tuple(cache), stacked, DynamicCache(stacked), inferred, graded]
    digests = set()
    for form in forms:
        with opened(tiny, prefix=form) as model:
            digests.add(model.identity.digest)
    assert len(digests) == 1


def test_a_prefix_beyond_the_window_may_be_whole_or_cut():
    """All 20 tokens, or the last 6 that a window of 7 sees: the same rows. Fewer are refused."""
    tiny = make_module("mistral")
    cut = computed(tiny)
    whole = DynamicCache()
    with torch.no_grad():
        tiny(input_ids=torch.tensor([list(BEFORE)]), use_cache=True, **{cache_argument(tiny): whole})
    assert (cut.layers[0].keys.shape[2], whole.layers[0].keys.shape[2]) == (WINDOW - 1, len(BEFORE))
    rows = []
    for prefix in (cut, whole):
        with opened(tiny, prefix=prefix) as model:
            rows.append(run(model, ROOT, [30, 31, 32])[1])
    np.testing.assert_allclose(rows[0], rows[1], rtol=0, atol=NATS)
    cut.layers[1].keys, cut.layers[1].values = cut.layers[1].keys[:, :, 1:], cut.layers[1].values[:, :, 1:]
    with pytest.raises(OptionError, match=r"the last 6 tokens or more, not of 5 and 5, in layer 1"):
        opened(tiny, prefix=cut)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT asks the model in an older way
def test_transformers_prefix_tuning():
    """The prompt of a PEFT model is taken as it is, and the rows are those of the PEFT model."""
    peft = pytest.importorskip("peft")
    tiny = make_module("llama")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tuned = peft.get_peft_model(tiny, peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=6))
    prefix = tuned.get_prompt(1)
    with torch.no_grad():
        expected = torch.log_softmax(tuned(input_ids=torch.tensor([[30, 31, 32]])).logits[0].double(), -1).numpy()
    with opened(tiny, prefix=prefix) as model:
        _, logp = run(model, ROOT, [30, 31, 32])
    np.testing.assert_allclose(logp, expected, rtol=0, atol=NATS)


# What it is known by


def test_signatures_and_self_checks_tell_prefixes_apart():
    """Digest and key differ with the prefix and without it, and with each bit of it; equal prefixes have equal ones."""
    tiny = make_module("llama")
    prefix = learned(tiny, 5)
    other = tuple(tuple(one.clone() for one in pair) for pair in prefix)
    other[1][1].view(-1)[-1] = torch.nextafter(other[1][1].view(-1)[-1], torch.tensor(9.0))
    swapped = tuple((values, keys) for keys, values in prefix)
    identities, keys = [], []
    for given_ in (None, prefix, other, swapped, tuple(tuple(one.clone() for one in pair) for pair in prefix)):
        options = TransformersOptions(n_ctx=64, prefix=given_)
        with opened(tiny, n_ctx=64, prefix=given_) as model:
            identities.append(model.identity.digest)
            keys.append(TRANSFORMERS.check_key(model, tiny, options))
    for found in (identities, keys):
        assert found[1] == found[4]
        assert len(set(found)) == 4
    assert identities[1].startswith(f"{identities[0]}+prefix-blake2b:")


# Limits


def test_the_prefix_takes_its_part_of_the_context():
    """20 of 96 tokens are gone, and as many cells as without a prefix are made: what is left can be filled."""
    tiny = make_module("llama")
    with opened(tiny, prefix=computed(tiny), n_batch=40) as model:
        assert (model.limits.nodes, model.limits.prefix_tokens, model.capacity().nodes) == (76, 20, 76)
        assert len(model._contexts._is_used) == cells_for(96, 40) == 192
        end, _ = run(model, ROOT, range(38))
        with pytest.raises(CapacityError, match="needs 39 nodes, 38 available"):
            run(model, end, range(39))
        run(model, end, range(38))
        with closing(model.new_context(30)) as solo:
            assert (solo.limits.nodes, solo.limits.prefix_tokens) == (30, 20)


def test_positions_are_counted_from_the_prefix():
    """A GPT-2 of 32 positions with 20 tokens before it: 12 are left, and depth 13 is refused; with 25, too few are."""
    tiny = make_module("gpt2", n_positions=32)
    prefix = computed(tiny)
    path = list(range(30, 42))
    with opened(tiny, prefix=prefix) as model:
        end, logp = run(model, ROOT, path)
        with pytest.raises(CapacityError, match="needs 33 positions, 32 available"):
            run(model, end, [5])
    np.testing.assert_allclose(logp, own_logp(tiny, prefix, path), rtol=0, atol=NATS)
    with pytest.raises(OptionError, match=r"prefix='25 tokens': expected at most 24, .*, as tiny has 32 positions"):
        opened(tiny, prefix=learned(tiny, 25))


# The beginning


@pytest.fixture(scope="module")
def spoken():
    """A Llama with a tokenizer that puts BOS first."""
    tokenizer = made("prepend")
    return make_module("llama", vocab_size=len(tokenizer) + 4), tokenizer


SMALL = {"n_ctx": 96, "n_batch": 32, "n_threads": 1, "precision": "fast"}
CHOICES = [" sister", " brother", " sword"]


def scores(llm, prompt):
    """Log-probabilities of the choices behind exactly the prompt's tokens."""
    result = llm.select(prompt, CHOICES, terminator="none", prompting=PromptParams(boundary="harness"))
    return [choice.logp for choice in result.choices]


def test_a_computed_prefix_that_begins_with_bos_is_continued(spoken):
    """A prompt gets no second BOS: scores are those of the ids of both texts without a prefix."""
    tiny, tokenizer = spoken
    before, after = tokenizer("She said to her").input_ids, tokenizer("that her", add_special_tokens=False).input_ids
    assert before[0] == tokenizer.bos_token_id
    with selectrie.load(tiny, tokenizer=tokenizer, prefix=computed(tiny, before), **SMALL) as llm:
        assert llm.vocabulary.bos is None
        with_prefix = scores(llm, "that her")
        np.testing.assert_array_equal(scores(llm, after), with_prefix)
    with selectrie.load(tiny, tokenizer=tokenizer, **SMALL) as llm:
        assert llm.vocabulary.bos == tokenizer.bos_token_id
        np.testing.assert_allclose(scores(llm, [*before, *after]), with_prefix, rtol=0, atol=NATS)


@pytest.mark.parametrize("is_learned", [True, False])
def test_a_prefix_that_does_not_begin_with_bos_stands_before_it(spoken, is_learned):
    """A learned one, and one that was computed without BOS: the prompt is what its tokenizer gives, BOS included."""
    tiny, tokenizer = spoken
    prefix = (
        learned(tiny, 4) if is_learned else computed(tiny, tokenizer("She said", add_special_tokens=False).input_ids)
    )
    with selectrie.load(tiny, tokenizer=tokenizer, prefix=prefix, **SMALL) as llm:
        assert llm.vocabulary.bos == tokenizer.bos_token_id
        got = scores(llm, "that her")
    context, expected = tokenizer("that her").input_ids, []
    for choice in CHOICES:
        path = tokenizer("that her" + choice).input_ids
        logp = own_logp(tiny, prefix, path)
        expected.append(sum(logp[i - 1, path[i]] for i in range(len(context), len(path))))
    np.testing.assert_allclose(got, expected, rtol=0, atol=NATS)


def test_a_prefix_whose_beginning_has_left_the_windows_is_continued():
    """Nothing of its first token is kept, so it was computed, and BOS is not put before prompts."""
    tiny = make_module("mistral")
    for tokens, bos in (((1, *BEFORE), None), (BEFORE, None), ((1, 5, 6), None), ((5, 6), 1)):
        with opened(tiny, prefix=computed(tiny, tokens)) as model:
            assert model.vocabulary.bos == bos, tokens


def test_a_prompt_that_is_too_long_is_told_of_the_prefix(spoken):
    """The error counts what is left, and names what the prefix takes."""
    tiny, tokenizer = spoken
    with selectrie.load(tiny, tokenizer=tokenizer, prefix=learned(tiny, 50), **SMALL) as llm:
        for request in (
            lambda: llm.select("and so on " * 50, CHOICES),
            lambda: llm.generate("and so on " * 50),
            lambda: llm.select("and so on " * 50, grammar=Grammar.from_gbnf('root ::= "a"')),
        ):
            with pytest.raises(PromptTooLongError, match="the context holds 46 behind its prefix of 50;") as caught:
                request()
            assert (caught.value.available_tokens, caught.value.prefix_tokens) == (46, 50)


def test_a_folder_takes_a_prefix_too(tmp_path):
    """A checkpoint that is loaded from disk has the rows of the open model, and its memory covers the copy of the prefix."""
    folder = checkpoints.write(tmp_path / "llama")
    tiny = make_module("llama", vocab_size=len(made("prepend")) + 4)
    prefix = computed(tiny)
    with open_model(folder, TransformersOptions(**SMALL, prefix=prefix)) as model:
        _, logp = run(model, ROOT, [30, 31, 32])
    np.testing.assert_allclose(logp, own_logp(tiny, prefix, [30, 31, 32]), rtol=0, atol=NATS)
    needed = [memory_needs(folder, TransformersOptions(**SMALL, prefix=one)).contexts for one in (None, prefix)]
    assert needed[1] - needed[0] == sum(
        4 * one.numel() for layer in prefix.layers for one in (layer.keys, layer.values)
    )


# What is refused


def set_to(pairs, layer, part, value):
    pairs[layer][part] = value(pairs[layer][part])
    return pairs


def with_number(pairs, layer, part, number):
    pairs[layer][part].view(-1)[-1] = number
    return pairs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pairs: pairs[:1], "keys and values of 2 layers, as tiny has them, not 1"),
        (lambda pairs: [*pairs, pairs[0]], "of 2 layers, as tiny has them, not 3"),
        (lambda _: (), "of 2 layers, as tiny has them, not 0"),
        (lambda pairs: [pairs[0], (None, None), pairs[1]], "in the layers where tiny keeps them, unlike 1"),
        (lambda pairs: set_to(pairs, 0, 0, lambda one: one[:, :1]), r"keys of shape \(1, 2, tokens, 8\), not \(1, 1, 5, 8\), in layer 0"),
        (lambda pairs: set_to(pairs, 1, 1, lambda one: one[..., :4]), r"values of shape .*, not \(1, 2, 5, 4\), in layer 1"),
        (lambda pairs: [[one.repeat(2, 1, 1, 1) for one in pair] for pair in pairs], r"not \(2, 2, 5, 8\), in layer 0"),
        (lambda pairs: [pairs[0], [one[:, :, 1:] for one in pairs[1]]], "as many tokens as in the first layer, 5, not 4, in layer 1"),
        (lambda pairs: set_to(pairs, 1, 1, lambda one: one[:, :, 1:]), "of the last 5 tokens or more, not of 5 and 4, in layer 1"),
        (lambda pairs: [[one[:, :, :0] for one in pair] for pair in pairs], "one token or more; it holds none"),
        (lambda pairs: set_to(pairs, 1, 0, torch.Tensor.double), "keys of torch.float32, not torch.float64, in layer 1"),
        (lambda pairs: set_to(pairs, 1, 0, lambda one: one.to("meta")), "not without numbers, in layer 1"),
        (lambda pairs: with_number(pairs, 1, 1, float("nan")), "finite values, not NaN or inf, in layer 1"),
        (lambda pairs: with_number(pairs, 0, 0, float("-inf")), "finite keys, not NaN or inf, in layer 0"),
        (lambda pairs: [pairs[0], pairs[1][0]], r"prefix='Tensor': expected a DynamicCache .* in layer 1"),
        (lambda pairs: [pairs[0], 7], r"prefix='int': expected a DynamicCache .* in layer 1"),
        (lambda _: "a prefix", r"prefix='a prefix': expected a DynamicCache of Transformers"),
        (lambda pairs: pairs[0][0], r"prefix='Tensor': expected a DynamicCache of Transformers"),
        (lambda _: make_module("llama").model, r"prefix='LlamaModel': expected a DynamicCache of Transformers"),
        (lambda pairs: [[one.expand(1, 2, 5, 8).repeat(1, 1, 18, 1) for one in pair] for pair in pairs], "prefix='90 tokens': expected at most 88, so that 8 fit behind, or load with a larger `n_ctx`"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(change, message):
    """Other kinds, numbers of layers, shapes, batches, lengths, types and numbers: one error, and the module is put back."""
    tiny = make_module("llama")
    prefix = change([[one.clone() for one in pair] for pair in learned(tiny, 5)])
    with pytest.raises(OptionError, match=message):
        opened(tiny, prefix=prefix)
    assert tiny.config._attn_implementation == "sdpa"
    assert not module._prepared


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_recurrent_and_hybrid_models_are_refused(name):
    """Nothing can stand before a state: the error names the model."""
    with pytest.raises(OptionError, match="expected None, as tiny is recurrent or hybrid"):
        opened(make_module(name), prefix=learned(make_module("llama"), 3))


def test_layers_of_other_kinds_are_refused():
    """Such as those that quantise, of whose tokens only the last are kept as they are."""
    tiny = make_module("llama")
    cache = computed(tiny)
    cache.layers[1].__class__ = type("QuantizedLayer", (DynamicLayer,), {})
    with pytest.raises(OptionError, match=r"prefix='QuantizedLayer': .*; layer 1 cannot be read, so copy it into one"):
        opened(tiny, prefix=cache)


def test_other_back_ends_have_no_prefix():
    """llama.cpp lists the options that it has."""
    with pytest.raises(UnknownOptionError, match="prefix"):
        selectrie.load(prefix=learned(make_module("llama"), 3))
