"""Checkpoints and modules become models: what is opened, what is refused, and what memory they take."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import numpy as np
import torch

import selectrie
from selectrie.backends.table import backend_of
from selectrie.backends.transformers.cells import bytes_of
from selectrie.backends.transformers.checkpoint import digest, read_checkpoint
from selectrie.backends.transformers.module import cache_argument, cache_in
from selectrie.backends.transformers.options import TransformersOptions
from selectrie.backends.transformers.weights import memory_needed, memory_needs, name_of_folder, open_model
from selectrie.errors import ModelFileError, OptionError, UnsupportedModelError
from tests.support import checkpoints
from tests.support.fast_tokenizers import made
from tests.support.transformers_models import make_module, worst_of_random_tree

SMALL = {"n_ctx": 128, "n_batch": 32, "n_threads": 1}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A Llama in one file."""
    return checkpoints.write(tmp_path_factory.mktemp("whole") / "llama")


@pytest.fixture
def folder(whole, tmp_path) -> Path:
    """A copy of it to be changed."""
    return Path(shutil.copytree(whole, tmp_path / "llama"))


def opened(folder: Path, **options):
    return open_model(folder, TransformersOptions(**{**SMALL, **options}))


# What is opened


def test_a_checkpoint_is_opened_with_its_own_weights(whole):
    """In float32, named by its folder, with the digest of its files and a row for each embedding."""
    with opened(whole) as model:
        assert (model.identity.name, model.identity.backend) == ("llama", "transformers")
        assert model.identity.digest == digest(whole)
        assert model.vocabulary.n_tokens == len(made("prepend")) + 4
        assert model._prepared.dtype == torch.float32
        there = model._prepared.module.state_dict()
    for name, tensor in make_module("llama", vocab_size=len(made("prepend")) + 4).state_dict().items():
        assert torch.equal(there[name], tensor), name


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "float32"),
        ({"precision": "fast"}, "bfloat16"),
        ({"precision": "fast", "dtype": "float32"}, "float32"),
        ({"precision": "fast", "dtype": "torch.float16"}, "float16"),
    ],
)
def test_weights_have_the_type_that_was_asked_for(tmp_path, options, expected):
    """float32 for `exact`, the checkpoint's own for `fast`, unless another is named."""
    folder = checkpoints.write(tmp_path / "m", dtype="bfloat16")
    with opened(folder, **options) as model:
        assert model._prepared.dtype == getattr(torch, expected)


def test_a_split_checkpoint_is_the_same_model(whole, tmp_path):
    """With the same rows; its digest is another one, as its files are others."""
    split = checkpoints.write(tmp_path / "llama", max_shard_size="100KB")
    assert not (split / "model.safetensors").exists()
    with opened(whole) as one, opened(split) as other:
        for name, tensor in one._prepared.module.state_dict().items():
            assert torch.equal(tensor, other._prepared.module.state_dict()[name])
        assert one.identity.digest != other.identity.digest


def test_a_module_is_used_as_it_is_and_put_back():
    """Known by its class; its tokenizer is needed, its attention comes back with `close`."""
    module = make_module("llama", vocab_size=len(made("prepend")))
    assert backend_of(module).name == "transformers"
    before = module.config._attn_implementation
    with pytest.raises(OptionError, match=r"tokenizer is not given; give the tokenizer of the model"):
        selectrie.load(module, **SMALL)
    with selectrie.load(module, tokenizer=made("prepend"), **SMALL) as engine:
        assert module.config._attn_implementation != before
        assert engine.identity.digest.startswith("blake2b-sampled:")
        assert engine.vocabulary.chat_template is None
        digest_before = engine.identity.digest
    assert module.config._attn_implementation == before
    with torch.no_grad():
        module.lm_head.weight[3, 0] += 1
    with selectrie.load(module, tokenizer=made("prepend"), **SMALL) as engine:
        assert engine.identity.digest != digest_before


def test_a_tokenizer_may_be_another_folder_s(whole, folder):
    """Or an object; what is neither is refused."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    for tokenizer in (made("prepend"), str(whole), whole):
        opened(folder, tokenizer=tokenizer).close()
    with pytest.raises(OptionError, match=r"tokenizer=.*a loaded tokenizer, or the path of a folder"):
        opened(folder, tokenizer="nowhere")
    with pytest.raises(UnsupportedModelError, match="its tokenizer is a int, not a fast one"):
        opened(folder, tokenizer=3)


@pytest.mark.parametrize("name", ["cuda", "cuda:7", "mps", "meta", "nonsense", "cpu:x"])
def test_a_device_that_is_not_there_is_refused(whole, name):
    """With those that are."""
    if name == "cuda" and torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    with pytest.raises(OptionError, match=rf"^device='{name}': expected a device that is here: cpu"):
        opened(whole, device=name)
    with pytest.raises(OptionError, match=r"^device="):
        memory_needed(whole, TransformersOptions(device=name))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_ctx": 7}, "n_ctx=7"),
        ({"n_batch": None}, "n_batch"),
        ({"n_threads": 0}, "n_threads=0"),
        ({"precision": "sloppy"}, "precision='sloppy'"),
        ({"device": -1}, "device=-1"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"dtype": "bfloat16"}, "dtype='bfloat16'.*precision='fast'"),
        ({"verbose": "yes"}, "verbose='yes'"),
    ],
)
def test_options_are_checked(options, message):
    """When the record is made."""
    with pytest.raises(OptionError, match=message):
        TransformersOptions(**options)


def test_torch_s_threads_are_set_for_calls_and_put_back(whole, monkeypatch):
    """The number is the process's, not the model's."""
    seen: list[int] = []
    torch.set_num_threads(2)
    with opened(whole, n_threads=1) as model:
        forward = model._prepared.forward_tree
        monkeypatch.setattr(
            model._prepared, "forward_tree", lambda *call: seen.append(torch.get_num_threads()) or forward(*call)
        )
        alone = np.array([0], dtype=np.int32), np.array([5], dtype=np.int32)
        model.extend(*alone, np.array([True]), np.array([False]))
    assert seen == [1]
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)  # as the package's fixture does


def test_nothing_is_written_unless_it_is_asked_for(whole, capfd):
    """Neither progress bars nor warnings; and Transformers is as verbose afterwards as it was."""
    from transformers.utils import logging as said

    before = said.get_verbosity(), said.is_progress_bar_enabled()
    said.enable_progress_bar()
    try:
        opened(whole).close()
        assert capfd.readouterr() == ("", "")
        opened(whole, verbose=True).close()
        assert "Loading weights" in capfd.readouterr().err
        assert said.is_progress_bar_enabled()
    finally:
        if not before[1]:
            said.disable_progress_bar()
    assert said.get_verbosity() == before[0]


# What is refused


def refused(folder: Path, kind: type[Exception], match: str, **options) -> None:
    """Opening it is one error that names the folder, and so is reckoning its memory."""
    for act in (open_model, memory_needed):
        with pytest.raises(kind, match=match) as caught:
            act(folder, TransformersOptions(**{**SMALL, **options}))
        assert str(folder) in str(caught.value)


def test_code_that_comes_with_a_model_is_never_run(folder):
    """A model that Transformers has not is refused by name; one that it has is opened by its own code."""
    code = "raise SystemExit('it ran')\n"
    (folder / "modeling_own.py").write_text(code)
    (folder / "configuration_own.py").write_text(code)
    auto = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnModel"}
    checkpoints.change_config(folder, auto_map=auto)
    opened(folder).close()
    checkpoints.change_config(folder, model_type="own")
    refused(folder, UnsupportedModelError, r"model_type 'own' needs code that comes with the model \(auto_map\)")
    checkpoints.change_config(folder, auto_map=None)
    refused(folder, UnsupportedModelError, "Transformers does not know model_type 'own'")


def test_pickles_are_never_opened(folder, tmp_path):
    """They are named, with what to do; beside safetensors they are ignored."""
    ran = tmp_path / "ran"
    evil = b"cos\nsystem\n(S'touch " + str(ran).encode() + b"'\ntR."
    for name in ("pytorch_model.bin", "model.pt"):
        (folder / name).write_bytes(evil)
    opened(folder).close()
    (folder / "model.safetensors").unlink()
    refused(
        folder, UnsupportedModelError, r"pickles \(model\.pt, pytorch_model\.bin\).*never opened; take a version with"
    )
    assert not ran.exists()


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"is_encoder_decoder": True}, UnsupportedModelError, "has an encoder"),
        ({"model_type": "t5"}, UnsupportedModelError, "has an encoder"),
        ({"model_type": "vit"}, UnsupportedModelError, "no causal language model of the kind 'vit'"),
        ({"model_type": None}, ModelFileError, "has no model_type"),
        ({"model_type": 3}, ModelFileError, "has no model_type"),
        ({"num_hidden_layers": 10**9}, ModelFileError, "says 1000000000 layers, the weights are"),
        ({"num_hidden_layers": 3}, ModelFileError, "describes .* weights, the files hold"),
        ({"hidden_size": "wide"}, ModelFileError, "get the file again"),
        ({"vocab_size": 10**12}, ModelFileError, "describes .* weights, the files hold"),
        ({"attn_implementation": "some/kernel"}, UnsupportedModelError, "asks for code of the hub"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(folder, changes, kind, message):
    """By one error that names the folder; nothing is allocated for what a file merely says."""
    checkpoints.change_config(folder, **changes)
    refused(folder, kind, message)


def test_an_attention_that_is_not_installed_is_not_needed(folder):
    """The configuration's own wish is not followed: the attention is ours."""
    checkpoints.change_config(folder, attn_implementation="flash_attention_2", _attn_implementation="flash_attention_2")
    opened(folder).close()


def test_adapters_are_refused(folder):
    """Transformers would fetch their base model instead."""
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/repo", "peft_type": "LORA"}')
    refused(folder, UnsupportedModelError, "holds an adapter")


@pytest.mark.parametrize("value", [0, -1, True, 2.5, 2048.0, "512", [1], 2**31, 10**30, float("inf"), float("nan")])
@pytest.mark.parametrize("n_ctx", [None, 128])
def test_a_number_of_positions_that_is_none_is_refused(folder, value, n_ctx):
    """By its name and value, before the weights are read; with `n_ctx` too, which says how many are to be held."""
    (folder / "model.safetensors").write_bytes(b"")
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        before = (folder / "config.json").read_text()
        checkpoints.change_config(folder, **{name: value})
        with pytest.raises(ModelFileError) as caught:
            opened(folder, n_ctx=n_ctx)
        assert f"{name} is {value!r}: expected a whole number from 1 to 2147483647" in str(caught.value)
        (folder / "config.json").write_text(before)


@pytest.mark.parametrize("part", ["rope_parameters", "text_config"])
def test_a_number_of_positions_in_a_part_of_the_configuration_is_refused(folder, part):
    """Those that a rotary embedding was trained with, and those of the text model of several."""
    checkpoints.change_config(folder, **{part: {"original_max_position_embeddings": -4}})
    with pytest.raises(ModelFileError, match="original_max_position_embeddings is -4: expected a whole number"):
        opened(folder)


def test_a_number_of_positions_may_be_large_or_left_out(folder):
    """The largest that is taken, and none, which is Transformers' own: all are more than are held if nothing is said."""
    for value in (2**31 - 1, None):
        checkpoints.change_config(folder, max_position_embeddings=value)
        with opened(folder, n_ctx=None) as model:
            assert model.limits.nodes == (2048 if value is None else 8192)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"model_type": NaN}'])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_damaged_json_is_one_clear_error(folder, name, content):
    """Of the file that it is in."""
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-00001-of-00001.safetensors"}}')
    (folder / name).write_bytes(content)
    refused(folder, ModelFileError, f"{name}: .*get the file again")


@pytest.mark.parametrize("named", ["../other.safetensors", "/etc/passwd", "model.bin", "gone.safetensors", 3])
def test_an_index_names_only_files_beside_it(folder, named):
    """A path that leads elsewhere is no shard, and one that is missing is named."""
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": named}}))
    refused(folder, ModelFileError, "names .* no safetensors file beside it|gone.safetensors: is missing")


@pytest.mark.parametrize("size", [0, 4, 8, 100, 5000, -1])
def test_truncated_weights_are_one_clear_error(folder, size):
    """Wherever they end."""
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    refused(folder, ModelFileError, r"model\.safetensors: is damaged or truncated: .*get the file again")


def test_damaged_headers_are_one_clear_error(folder):
    """Flipped bytes, a length beyond the file, tensors that overlap."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    first = next(name for name in header if name != "__metadata__")
    header[first]["shape"] = [10**9, 10**9]
    wrong = json.dumps(header).encode()
    for content in (
        struct.pack("<Q", 1 << 62) + data[8:],
        data[:8] + b"\xff" * 40 + data[48:],
        struct.pack("<Q", len(wrong)) + wrong + data[8 + length :],
    ):
        path.write_bytes(content)
        refused(folder, ModelFileError, "is damaged or truncated")


def change_tensors(folder, change) -> None:
    """Write the weights of a folder again, as `change` returns them."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def test_a_tensor_that_is_missing_is_named(folder):
    """Transformers would fill it with random numbers and say so in a warning only."""
    name = "model.layers.1.mlp.up_proj.weight"
    change_tensors(folder, lambda all_: {("model.other" if key == name else key): one for key, one in all_.items()})
    with pytest.raises(
        ModelFileError, match=r"lack tensors of the model, .*: model\.layers\.1\.mlp\.up_proj\.weight; get"
    ):
        opened(folder)


def test_a_tensor_of_another_shape_is_an_error(folder):
    """As many numbers in all, in other places."""
    name = "model.layers.1.mlp.up_proj.weight"
    change_tensors(folder, lambda all_: {**all_, name: all_[name].T.contiguous()})
    with pytest.raises(ModelFileError, match=r"in another shape: model\.layers\.1\.mlp\.up_proj\.weight; get"):
        opened(folder)


@pytest.mark.parametrize("n_layers", [0, 1])
def test_layers_that_the_configuration_does_not_have_are_an_error(folder, n_layers):
    """Transformers would leave them out, say so in a warning only, and give the rows of another model."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": n_layers}))
    with pytest.raises(
        ModelFileError, match=r"config\.json: describes fewer layers than the files hold: model\.layers\.\d\..* more"
    ):
        opened(folder)


def test_tensors_that_are_of_no_layer_may_be_left_out(folder):
    """Such as buffers of older versions; layers that predict further tokens are left out too."""
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    change_tensors(folder, lambda all_: {**all_, **buffer})
    opened(folder).close()
    name = "model.layers.{}.mlp.up_proj.weight"
    change_tensors(folder, lambda all_: {**all_, name.format(2): all_[name.format(1)].clone()})
    with pytest.raises(ModelFileError, match="describes fewer layers"):
        opened(folder)
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "num_nextn_predict_layers": 1}))
    opened(folder).close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_damaged_json_beside_the_weights_is_one_clear_error(folder, name, content):
    """It names the file, not the folder. Transformers leaves damaged end tokens out without an error."""
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=rf"{name}: is .*get the file again"):
        opened(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_a_folder_in_place_of_a_file_is_one_clear_error(folder, name):
    """Transformers passes over some of them, whose digest cannot be made either."""
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    with pytest.raises(ModelFileError, match=rf"{name}: cannot be read: Is a directory"):
        opened(folder)


def test_a_tokenizer_that_is_missing_is_one_clear_error(folder):
    """In one line, with what may be passed instead."""
    (folder / "tokenizer.json").unlink()
    with pytest.raises(
        ModelFileError, match=r"has no tokenizer\.json; get the file again, or pass tokenizer="
    ) as caught:
        opened(folder)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_of_another_format_is_one_clear_error(folder):
    """Files that Transformers refuses in many lines are refused in one, by name."""
    (folder / "tokenizer.json").write_bytes(b'{"version": "1.0"}')
    with pytest.raises(UnsupportedModelError, match=r"cannot read its tokenizer: .*; get tokenizer\.json again"):
        opened(folder)


def test_a_quantised_checkpoint_without_its_package_says_what_it_needs(folder):
    """By the name of the package."""
    pytest.importorskip("transformers")
    checkpoints.change_config(folder, quantization_config={"quant_method": "awq", "bits": 4, "group_size": 32})
    with pytest.raises(UnsupportedModelError, match=r"is quantised by 'awq' and needs a package that is not installed"):
        opened(folder)


def test_a_quantisation_that_nobody_knows_is_refused(folder):
    """Transformers would take its weights for plain ones."""
    checkpoints.change_config(folder, quantization_config={"quant_method": "nosuch", "bits": 4})
    with pytest.raises(UnsupportedModelError, match=r"is quantised by 'nosuch', which Transformers does not know"):
        opened(folder)


def test_a_quantised_checkpoint_that_cannot_be_loaded_is_not_called_damaged(folder, monkeypatch):
    """The error names the method and what Transformers says."""
    from transformers import AutoModelForCausalLM

    def fail(*_args, **_more):
        raise RuntimeError("no kernel for this processor")

    checkpoints.change_config(folder, quantization_config={"quant_method": "hqq"})
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(UnsupportedModelError, match=r"is quantised by 'hqq', .* no kernel for this processor; take a"):
        opened(folder)


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_weights_in_fp8_are_unpacked(tmp_path, precision):
    """Blocks of 8-bit floats with a scale each: rows are those of the products, and the memory is that of float32."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM

    block = 128
    sizes = {"hidden_size": block, "intermediate_size": 2 * block, "num_attention_heads": 4}
    folder = checkpoints.write(tmp_path / "m", **sizes)
    path = folder / "model.safetensors"
    packed, unpacked = {}, {}
    for name, weight in load_file(path).items():
        packed[name] = unpacked[name] = weight
        if name.endswith("proj.weight"):
            rows, columns = (-(-size // block) for size in weight.shape)
            scales = torch.rand(rows, columns) / 100 + 0.001
            spread = scales.repeat_interleave(block, 0).repeat_interleave(block, 1)[
                : weight.shape[0], : weight.shape[1]
            ]
            packed[name] = (weight / spread).clamp(-440, 440).to(torch.float8_e4m3fn)
            packed[f"{name}_scale_inv"] = scales
            unpacked[name] = packed[name].float() * spread
    save_file(unpacked, path, metadata={"format": "pt"})
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    save_file(packed, path, metadata={"format": "pt"})
    changes = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [block, block]}
    checkpoints.change_config(folder, quantization_config=changes)
    options = {"n_ctx": 96, "n_batch": 32, "n_threads": 1, "precision": precision, "dtype": "float32"}
    needed = memory_needs(folder, TransformersOptions(**options))
    with opened(folder, **options) as model:
        assert worst_of_random_tree(model, plain, seed=1) < 5e-5
        held = sum(weight.numel() * weight.element_size() for weight in model._prepared.module.parameters())
        assert held <= needed.weights <= 1.1 * held


def test_a_folder_that_is_none_is_a_file_error(tmp_path):
    """Named as it was given."""
    refused(tmp_path / "gone", ModelFileError, "cannot be read|has no")
    with pytest.raises(ModelFileError, match=r"has no config\.json"):
        opened(tmp_path)


# Digest


def test_the_digest_is_that_of_every_file_that_matters(folder):
    """Configuration, weights, tokenizer, template; what is not read does not count."""
    before = digest(folder)
    (folder / "README.md").write_text("words")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    assert digest(folder) == before
    seen = {before}
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        path = folder / name
        kept = path.read_bytes()
        path.write_bytes(kept[:-2] + bytes([kept[-2] ^ 1]) + kept[-1:])
        seen.add(digest(folder))
        path.write_bytes(kept)
    assert len(seen) == 6
    assert digest(folder) == before
    assert before.startswith("blake2b:")


def test_large_files_are_sampled(folder):
    """As GGUF files are; the digest says so."""
    with (folder / "model.safetensors").open("ab") as file:
        file.truncate(17 << 20)
    assert digest(folder).startswith("blake2b-sampled:")


# Memory

MIDDLE = {
    "llama": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4},
    "gpt2": {"n_embd": 256, "n_layer": 4},
    "deepseek_v3": {"hidden_size": 128},
    "mixtral": {"hidden_size": 128, "intermediate_size": 256},
    "falcon": {"hidden_size": 128},
    "mamba": {"hidden_size": 128},
    "qwen3_5_text": {"hidden_size": 64},
}


@pytest.mark.short("*-llama", "exact-False-mamba", "exact-False-deepseek_v3")
@pytest.mark.parametrize("architecture", MIDDLE)
@pytest.mark.parametrize(("precision", "is_middle"), [("exact", False), ("fast", True)])
def test_memory_is_what_tensors_take(tmp_path, architecture, precision, is_middle):
    """Weights and cells, those of the kept context too, against the tensors of the opened model; states are bounded from above."""
    dtype = {"dtype": "bfloat16"} if precision == "fast" else {}
    folder = checkpoints.write(tmp_path / "m", architecture, **(MIDDLE[architecture] if is_middle else {}), **dtype)
    options = TransformersOptions(n_ctx=512, n_batch=32, precision=precision)
    needs = memory_needs(folder, options)
    n_contexts = 2 if precision == "exact" and needs.n_cells else 1
    assert memory_needed(folder, options) == needs.weights + n_contexts * needs.contexts + needs.call
    with open_model(folder, options) as model:
        module, contexts = model._prepared.module, model._contexts
        weights = sum(t.numel() * t.element_size() for t in [*module.parameters(), *module.buffers()])
        if model.limits.kind.is_recurrent:
            state = None
            for position in range(2):
                ids = torch.tensor([[position]])
                given = {} if state is None else {cache_argument(module): state}
                result = module(input_ids=ids, use_cache=True, **given)
                state = cache_in(result)
            assert needs.contexts >= model.limits.sequences * bytes_of(state)
            measured = needs.contexts
        else:
            measured = bytes_of(contexts._cache) + contexts._visible.nbytes
    assert abs(needs.weights - weights) <= 0.1 * weights
    assert abs(needs.contexts - measured) <= 0.1 * measured
    assert needs.call >= 32 * model.vocabulary.n_tokens * 4


def test_reading_the_headers_reads_no_weights(folder):
    """Names, types and shapes are known without them."""
    found = read_checkpoint(folder)
    module = make_module("llama", vocab_size=len(made("prepend")) + 4)
    assert {name: entry.shape for name, entry in found.tensors.items()} == {
        name: tuple(tensor.shape) for name, tensor in module.state_dict().items()
    }
    assert {entry.dtype for entry in found.tensors.values()} == {"F32"}


def test_tensors_of_one_memory_count_once():
    """A view and its base are the same bytes, and so is an object that is met twice; on `meta`, each tensor counts."""
    base = torch.zeros(4)
    assert bytes_of({"a": base, "b": [base.view(2, 2), base], "c": (torch.zeros(3, dtype=torch.int64),)}) == 16 + 24
    one, other = torch.zeros(4, device="meta"), torch.zeros(5, device="meta")
    assert bytes_of([one, {"a": (one, other)}]) == 16 + 20


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/a/Qwen3-0.6B", "Qwen3-0.6B"),
        ("/hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de289a04d12100db370d81485cdf75e47ca", "Qwen3-0.6B"),
        ("/hub/models--gpt2/snapshots/607a30d7", "gpt2"),
        ("/a/snapshots/b", "b"),
    ],
)
def test_a_checkpoint_of_the_hub_has_the_name_of_its_repository(folder, name):
    """Not that of the folder, which is a revision's hash."""
    assert name_of_folder(Path(folder)) == name
