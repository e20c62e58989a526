"""Modules and checkpoints are compiled: options, what is refused, the seconds that are kept, and memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.xla_extra import require_packages

require_packages()

import torch
from transformers import LlamaForCausalLM
from transformers.modeling_outputs import CausalLMOutputWithPast

import selectrie
from selectrie.backends.table import backend_named
from selectrie.backends.transformers.module import cache_argument, cache_in
from selectrie.backends.xla import opening
from selectrie.backends.xla.opening import open_model, open_module
from selectrie.backends.xla.options import XlaOptions
from selectrie.core.types import ROOT, BatchSizes
from selectrie.errors import ModelFileError, OptionError, UnknownOptionError, UnsupportedModelError
from selectrie.testing import numbered_vocabulary
from tests.support import checkpoints
from tests.support.transformers_models import N_TOKENS, make_module, plain_logp
from tests.support.xla_models import opened

ONE = {4: 1.0}
"""One program, which compiles soon."""


def opened_as(digest: str, buckets: tuple[int, ...] = (4,)):
    """A model of these buckets and this digest, as it is measured."""
    options = XlaOptions(n_ctx=64, buckets=buckets)
    return open_module(make_module("llama"), numbered_vocabulary(N_TOKENS), options, name="tiny", digest=digest)


# Options


@pytest.mark.parametrize(
    "buckets",
    [{8: 1}, {8}, (), (0,), (-1,), (True,), (1.0,), ("8",), "512", 512, None, (8, 8), (8193,), tuple(range(1, 18))],
)
def test_buckets_are_different_whole_numbers(buckets):
    """Anything else is refused with what is expected, before a package is imported."""
    with pytest.raises(OptionError, match=r"buckets.*1 to 16 different whole numbers of rows from 1 to 8192"):
        XlaOptions(buckets=buckets)


@pytest.mark.parametrize("options", [{"n_ctx": 7}, {"precision": "high"}, {"verbose": 1}, {"device": 0}])
def test_other_options_have_their_bounds(options):
    """As those of the other back ends."""
    with pytest.raises(OptionError, match=next(iter(options))):
        XlaOptions(**options)


def test_options_are_kept_as_they_are_used():
    """Buckets in any order and any sequence, precision by its name."""
    options = XlaOptions(buckets=[1, 64, 8], precision="fast")
    assert (options.buckets, options.precision) == ((64, 8, 1), selectrie.core.types.Precision.FAST)
    assert XlaOptions().buckets == (512, 64, 8, 1)


def test_options_of_other_back_ends_are_refused_by_name(tmp_path):
    """`load` names those that there are."""
    with pytest.raises(
        UnknownOptionError, match="`n_batch` is not an option of the back end xla, which has `n_ctx`, `b"
    ):
        selectrie.load(tmp_path, backend="xla", n_batch=8)


@pytest.mark.parametrize("device", ["nonsense", "cpu:99", "cpu:x", "tpu"])
def test_a_device_that_jax_does_not_have_is_refused(device):
    """With those that are there."""
    with pytest.raises(OptionError, match=r"device.*a device that JAX has here: cpu:0"):
        opened(make_module("llama"), device=device)


# What is refused


def refused(module, match, vocabulary=None):
    vocabulary, options = vocabulary or numbered_vocabulary(N_TOKENS), XlaOptions(n_ctx=64, buckets=(4,))
    with pytest.raises(UnsupportedModelError, match=match) as caught:
        open_module(module, vocabulary, options, name="tiny")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["mamba", "rwkv", "jamba", "qwen3_5_text"])
def test_models_with_states_are_refused_by_name(name):
    """Recurrent and hybrid ones, with the back end that takes them."""
    refused(make_module(name), "tiny: keeps states, .*use backend='transformers'")


def test_modules_that_cannot_be_compiled_are_refused_by_name():
    """Quantised weights, other vocabularies, and what the other back end does not take either."""
    quantised = make_module("llama")
    quantised.hf_quantizer = object()
    refused(quantised, "tiny: has quantised weights, .*use backend='transformers'")
    refused(make_module("llama"), f"tiny: predicts {N_TOKENS} tokens, its vocabulary has 9", numbered_vocabulary(9))
    refused(torch.nn.Linear(2, 2), "tiny: is no Transformers model")
    refused(make_module("llama").to("meta"), "meta device")
    refused(make_module("falcon", alibi=True), "alibi=True")


def test_a_module_that_looks_at_its_numbers_is_refused():
    """What it computes depends on them, so it cannot be recorded; the user's module is as it was."""
    module = make_module("llama")
    hook = module.model.layers[1].mlp.register_forward_hook(lambda _m, _a, out: out * float(out.abs().max() > 0))
    refused(module, "tiny: cannot be compiled by XLA: .*use backend='transformers'")
    hook.remove()
    assert module.config._attn_implementation == "sdpa"
    assert np.isfinite(plain_logp(module, [5, 6])).all()


class Headless(LlamaForCausalLM):
    """A Llama that multiplies by the weights of its head, without calling it."""

    def forward(self, input_ids=None, position_ids=None, use_cache=None, **given):
        found = self.model(input_ids=input_ids, position_ids=position_ids, use_cache=use_cache, **given)
        logits = torch.nn.functional.linear(found.last_hidden_state, self.lm_head.weight)
        return CausalLMOutputWithPast(logits=logits, **{cache_argument(self.model): cache_in(found)})


def test_a_module_that_does_not_call_its_head_is_refused():
    """Bodies and heads could not be told apart."""
    config = make_module("llama").config
    refused(Headless(config).eval(), "tiny: computes its logits without calling its language model head")


def test_exact_needs_float32():
    """Weights of a module are not converted; `fast` takes them."""
    rough = make_module("llama").to(torch.bfloat16)
    with pytest.raises(OptionError, match=r"precision='exact': expected fast, as the weights are bfloat16"):
        opened(rough)


def test_a_module_that_is_wrong_compiled_is_refused(monkeypatch):
    """Rows of the opened model are compared with the module's own forward; programs that are nats off do not pass."""
    head = opening.Programs.head
    monkeypatch.setattr(opening.Programs, "head", lambda self, at: head(self, at)[:, ::-1].copy())
    refused(make_module("llama"), "tiny: its rows over a tree of contexts differ from its own by")


# Seconds


@pytest.fixture
def kept(monkeypatch, tmp_path) -> Path:
    """The file of seconds, in a home of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".cache" / "selectrie" / "xla_seconds.json"


def test_seconds_are_measured_once_and_decide_how_calls_are_cut(kept):
    """They are read back from the cache folder, by digest, for the same buckets."""
    with opened_as("d", (8, 2)) as model:
        first = model.limits.batch_sizes
    (key,) = json.loads(kept.read_text())
    assert key.startswith("d|jax ")
    entry = json.loads(kept.read_text())[key]
    assert {int(size): seconds for size, seconds in entry["bodies"].items()} == dict(first.buckets)
    assert [size for size, _ in first.buckets] == [2, 8]
    for seconds, programs in (({"8": 9.0, "2": 0.5}, (2, 2, 2)), ({"8": 1.0, "2": 0.5}, (8,))):
        kept.write_text(json.dumps({key: {"bodies": seconds, "heads": entry["heads"]}}))
        with opened_as("d", (8, 2)) as model:
            assert dict(model.limits.batch_sizes.buckets) == {int(size): one for size, one in seconds.items()}
            every = np.ones(5, dtype=np.bool_)
            made = model.extend(np.full(5, ROOT, dtype=np.int32), np.arange(5, 10, dtype=np.int32), every, every)
            assert (model.limits.batch_sizes.programs(5), made.n_programs) == (programs, len(programs))
    before = kept.read_text()
    with opened_as("e") as model:
        assert model.limits.batch_sizes.buckets[0][0] == 4
    assert json.loads(kept.read_text()).items() > json.loads(before).items()


def test_seconds_of_a_model_without_a_digest_are_not_kept(kept):
    """Nothing would say which model it was."""
    opened_as("unknown:").close()
    assert not kept.exists()


@pytest.mark.parametrize("content", [b"{", None])
def test_a_damaged_file_of_seconds_is_measured_again(kept, content):
    """It is replaced by one that can be read; so is an entry that is none."""
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"{}" if content is None else content)
    opened_as("d").close()
    (key,) = json.loads(kept.read_text())
    if content is None:
        for entry in (3, {"bodies": {"4": 1.0}}, {"bodies": {"4": 0.0}, "heads": {"4": 1.0}}):
            kept.write_text(json.dumps({key: entry}))
            opened_as("d").close()
            found = json.loads(kept.read_text())[key]
            assert found != entry
            assert 0 < found["bodies"]["4"] < 60


@pytest.mark.parametrize(
    "values",
    [None, 3, [], {}, {"4": 1}, {"4": True}, {"4": "1"}, {"4": -1.0}, {"4": 0.0}, {"8": 1.0}, {"4": 1.0, "8": 1.0}],
)
def test_kept_seconds_that_cannot_be_are_not_taken(values):
    """Of other buckets, of other types, not positive, or not finite."""
    assert opening._read_seconds({"bodies": values}, "bodies", (4,)) is None
    for bad in (float("nan"), float("inf")):
        assert opening._read_seconds({"bodies": {"4": bad}}, "bodies", (4,)) is None
    assert opening._read_seconds({"bodies": {"4": 0.5}}, "bodies", (4,)) == {4: 0.5}


def test_a_self_check_depends_on_the_seconds_and_the_size():
    """Both decide how calls are cut, and so the last bits of scores."""
    entry = backend_named("xla")
    with opened(make_module("llama"), seconds=ONE) as model:
        keys = {entry.check_key(model, None, XlaOptions())}
        model.source.bodies = BatchSizes.fixed({4: 2.0})
        keys.add(entry.check_key(model, None, XlaOptions()))
        solo = model.new_context(20)
        keys.add(entry.check_key(solo, None, XlaOptions()))
        solo.close()
    assert len(keys) == 3


# What is shown


def test_compiling_is_reported_where_it_is_asked_for(capsys):
    """A line for each program with its name and its seconds; nothing without `verbose` where stderr is no terminal."""
    opened(make_module("llama"), seconds=ONE).close()
    assert capsys.readouterr() == ("", "")
    opened(make_module("llama"), seconds=ONE, verbose=True).close()
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(" in ")[0] for line in lines] == [
        "compiled the tiny: body of 4 rows over 128 cells",
        "compiled the tiny: head of 4 rows",
    ]


def test_a_name_is_shown_as_it_is(capsys):
    """The name of a folder may look like markup or hold what a terminal obeys."""
    with opening._status("compiling [/b] \x1b[31m", is_shown=True):
        pass
    shown = capsys.readouterr().err
    assert "[/b]" in shown or not shown
    assert "\x1b[31m" not in shown


# Checkpoints


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A Llama in one file."""
    return checkpoints.write(tmp_path_factory.mktemp("whole") / "llama", hidden_size=128, dtype="bfloat16")


@pytest.mark.parametrize(("precision", "expected"), [("exact", "float32"), ("fast", "bfloat16")])
def test_a_checkpoint_is_compiled_in_the_type_of_its_precision(whole, precision, expected):
    """With the digest of its files; weights and pools are on the device once, and memory was reckoned within a tenth."""
    options = XlaOptions(n_ctx=512, buckets=(32,), precision=precision)
    with open_model(whole, options) as model:
        assert (model.identity.name, model.identity.backend, model.identity.precision) == ("llama", "xla", precision)
        assert model.identity.digest == backend_named("xla").digest(whole)
        programs, pool, lengths = model.source.programs, model._cells._pool, model.source.lengths
        assert {str(one.dtype) for one in programs._state.values() if one.ndim == 2} == {expected}
        assert {p.device.type for p in model.source.prepared.module.parameters()} == {"meta"}
        assert (
            model.identity.n_parameters
            == make_module("llama", vocab_size=model.vocabulary.n_tokens, hidden_size=128).num_parameters()
        )
        weights = sum(one.nbytes for one in programs._state.values())
        cells = sum(one.nbytes for pair in pool for one in pair) + model._cells._visible.nbytes
        hidden = programs._hidden.nbytes
        n_vocabulary = model.vocabulary.n_tokens
    # For a call: its logits twice, and two products of attention of four heads, in float32.
    bounds = 8 * 32 * n_vocabulary + 2 * 4 * 4 * 32 * lengths.long
    reckoned = opening.memory_needed(whole, options) - bounds
    assert abs(reckoned - weights - cells) <= 0.1 * (weights + cells)
    assert hidden <= bounds


def test_damaged_checkpoints_are_one_clear_error(whole, tmp_path):
    """As with the back end on Transformers, before anything is compiled; memory is not reckoned of them either."""
    folder = Path(shutil.copytree(whole, tmp_path / "llama"))
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    for call in (open_model, opening.memory_needed):
        with pytest.raises(ModelFileError, match=r"model\.safetensors: is damaged or truncated"):
            call(folder, XlaOptions())
    with pytest.raises(ModelFileError, match=r"has no config\.json"):
        open_model(tmp_path, XlaOptions())


def test_a_recurrent_checkpoint_is_refused_before_it_is_loaded(tmp_path):
    """By name, with the back end that takes it."""
    folder = checkpoints.write(tmp_path / "m", "mamba")
    with pytest.raises(UnsupportedModelError, match=r"m: keeps states.*use backend='transformers'"):
        open_model(folder, XlaOptions())
