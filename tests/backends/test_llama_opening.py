"""Opening GGUF files and sharing a `Llama`: what is refused and why, sizes, identity, silence."""

from __future__ import annotations

import ctypes
import gc
import struct
import subprocess
import sys
import textwrap

import llama_cpp
import numpy as np
import pytest

from selectrie.backends.llama_cpp import context
from selectrie.backends.llama_cpp.library import StopFlag, log
from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.files import file_digest
from selectrie.core.types import ROOT, Precision
from selectrie.errors import ClosedError, ModelError, ModelFileError, OptionError, UnsupportedModelError
from tests.support.arrays import ints
from tests.support.gguf_files import with_metadata
from tests.support.llama_work import chain, logp

ONE_THREAD = LlamaOptions(n_threads=1)


def test_files_that_are_no_models_are_told_apart(tmp_path, tiny_model):
    """Missing, a directory, empty, something else, cut off in header, metadata and weights, and damaged."""
    whole = tiny_model().read_bytes()
    damaged = bytearray(whole)
    damaged[4] = 99
    cases = {
        "empty": (b"", "the file is empty"),
        "text": (b"hello there", "begins with b'hell'"),
        "header": (whole[:10], "cut off within its header"),
        "metadata": (whole[:3000], "failed to read key-value pairs"),
        "weights": (whole[:-100], "is corrupted or incomplete"),
        "version": (bytes(damaged), "version 99"),
    }
    for name, (content, reason) in cases.items():
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=reason) as caught:
            open_model(path)
        assert caught.value.path == str(path)
    with pytest.raises(ModelFileError, match="no such file"):
        open_model(str(tmp_path / "missing.gguf"))
    with pytest.raises(ModelFileError, match="a name alone is no model; write hf:owner/repo:Q4_K_M"):
        open_model("llama3")
    with pytest.raises(ModelFileError, match="is a directory"):
        open_model(tmp_path)
    with pytest.raises(OptionError, match="model=3"):
        open_model(3)


def test_a_reason_is_told_where_another_library_took_the_log(tmp_path, tiny_model):
    """llama.cpp has one callback: it is ours again for a load, and what is not ours goes to the other one, once."""
    cut = tmp_path / "m.gguf"
    cut.write_bytes(tiny_model("f32").read_bytes()[:-1000])
    heard = []
    other = llama_cpp.llama_log_callback(lambda level, text, data: heard.append(text))
    before, data = llama_cpp.llama_log_callback(), ctypes.c_void_p()
    llama_cpp.llama_log_get(ctypes.byref(before), ctypes.byref(data))
    llama_cpp.llama_log_set(other, None)
    try:
        with pytest.raises(ModelFileError, match="is corrupted or incomplete"):
            open_model(cut, LlamaOptions())
        assert not heard
    finally:
        llama_cpp.llama_log_set(before, None)
        log._previous = llama_cpp.llama_log_callback()


def test_models_that_predict_no_next_token_are_refused(tmp_path, tiny_model, monkeypatch):
    """A vocabulary without weights, embedding models by attention and by pooling, encoders, diffusion."""
    header = struct.Struct("<4sIQQ")
    whole = tiny_model().read_bytes()
    magic, version, _, n_pairs = header.unpack_from(whole)
    vocabulary = tmp_path / "vocabulary.gguf"
    vocabulary.write_bytes(header.pack(magic, version, 0, n_pairs) + whole[header.size :])
    with pytest.raises(UnsupportedModelError, match="vocabulary without weights"):
        open_model(vocabulary)
    for extra in ({"attention__causal": False}, {"pooling_type": 3}):
        path = with_metadata(tiny_model(), tmp_path / "embedding.gguf", **extra)
        with pytest.raises(UnsupportedModelError, match="embedding model"):
            open_model(path)
    for function, reason in (("has_encoder", "has an encoder"), ("is_diffusion", "diffusion")):
        with monkeypatch.context() as patch:
            patch.setattr(llama_cpp, f"llama_model_{function}", lambda _: True)
            with pytest.raises(UnsupportedModelError, match=reason):
                open_model(tiny_model())


def test_a_context_that_cannot_be_made_names_its_size_and_the_remedy(tiny_model, monkeypatch):
    """llama.cpp returns no context where memory is short."""
    monkeypatch.setattr(llama_cpp, "llama_init_from_model", lambda *_: None)
    with pytest.raises(
        ModelError, match=r"context of 900 tokens \(1536 cells, 512 rows a call\).*ask for a smaller `n_ctx`"
    ):
        open_model(tiny_model(), LlamaOptions(n_ctx=900))


@pytest.mark.parametrize(("quantisation", "cells"), [("f16", "F32"), ("q8_0", "F16")])
def test_precision_decides_how_attention_is_computed(tiny_model, monkeypatch, quantisation, cells):
    """Exact: f32 cells on float weights, and no large call moved to a GPU where the weights are not. Neither has flash attention."""
    asked = {}
    create = llama_cpp.llama_init_from_model
    for precision in Precision:
        monkeypatch.setattr(
            llama_cpp,
            "llama_init_from_model",
            lambda model, params, precision=precision: asked.update({precision: params}) or create(model, params),
        )
        open_model(tiny_model(quantisation), LlamaOptions(n_ctx=8, n_threads=1, precision=precision)).close()
    exact, fast, plain = asked[Precision.EXACT], asked[Precision.FAST], llama_cpp.llama_context_default_params()
    assert exact.flash_attn_type == fast.flash_attn_type == llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    assert exact.type_k == exact.type_v == getattr(llama_cpp, f"GGML_TYPE_{cells}")
    assert (fast.type_k, fast.type_v, fast.op_offload) == (plain.type_k, plain.type_v, plain.op_offload)
    assert exact.op_offload is False


def test_fast_precision_leaves_flash_attention_on_a_gpu_to_llama_cpp(tiny_model, monkeypatch):
    """Where layers lie on a GPU that the build can use."""
    asked = []
    create = llama_cpp.llama_init_from_model
    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: True)
    monkeypatch.setattr(
        llama_cpp, "llama_init_from_model", lambda model, params: asked.append(params) or create(model, params)
    )
    for layers in (0, -1):
        options = LlamaOptions(n_ctx=8, n_threads=1, n_gpu_layers=layers, precision=Precision.FAST)
        open_model(tiny_model(), options).close()
    plain = llama_cpp.llama_context_default_params().flash_attn_type
    assert [one.flash_attn_type for one in asked] == [llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED, plain]


def test_layers_on_a_gpu_need_a_build_with_one(tiny_model, monkeypatch):
    """They would be evaluated on the CPU without a word."""
    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: False)
    with pytest.raises(OptionError, match="n_gpu_layers=-1: expected 0, because this build") as refused:
        open_model(tiny_model(), LlamaOptions(n_gpu_layers=-1))
    assert "CMAKE_ARGS" in refused.value.allowed


def test_options_that_cannot_be_are_refused():
    """Each by its name."""
    for name, value in (("n_ctx", 0), ("n_batch", 3), ("n_threads", 0), ("n_gpu_layers", -2)):
        with pytest.raises(OptionError, match=name):
            LlamaOptions(**{name: value})
    for name in ("n_ctx", "n_batch", "n_threads", "n_gpu_layers"):
        for value in (2**31, 2**32, 2**32 + 64, 2**40, 2**63):  # of which 32 bits would be zero, 64, or a sign
            with pytest.raises(OptionError, match=name):
                LlamaOptions(**{name: value})
    for name, value in (
        ("n_batch", None),
        ("n_gpu_layers", None),
        ("precision", "exactly"),
        ("precision", None),
        ("verbose", None),
        ("verbose", "yes"),
        ("verbose", 1),
    ):
        with pytest.raises(OptionError, match=name):
            LlamaOptions(**{name: value})
    assert LlamaOptions(precision="fast").precision is Precision.FAST


def test_sizes_follow_options_and_budgets(tiny_model, monkeypatch):
    """The training context by default; rows by the vocabulary's logits; ids by rows; the context by free memory."""
    with open_model(tiny_model(), ONE_THREAD) as model:
        limits = model.limits
        assert (limits.nodes, limits.rows_per_call, limits.sequences) == (1024, 512, 254)
        shape = llama_cpp.llama_model_n_params(model._weights.pointer) // (2 * 2 * 64)
        assert limits.max_idle_rows == shape
    monkeypatch.setattr(context, "_LOGITS_BUDGET_BYTES", 4 * 512 * 100)
    with open_model(tiny_model(), ONE_THREAD) as model:
        assert (model.limits.rows_per_call, model.limits.sequences) == (64, 62)
    monkeypatch.setattr(context, "_free_bytes", lambda: 2 * 700 * (2 * 2 * 32 * 4 + 2 * 64 * 4 * 4))
    with open_model(tiny_model(), ONE_THREAD) as model:
        assert model.limits.nodes == 700 - 64
    with open_model(tiny_model("f32", shape="recurrent"), ONE_THREAD) as model:
        assert model.limits.sequences == 63
    monkeypatch.setattr(context, "_STATES_BUDGET_BYTES", 1)
    with open_model(tiny_model("f32", shape="recurrent"), ONE_THREAD) as model:
        assert model.limits.sequences == 7


def test_added_cells_do_not_carry_a_model_over_to_its_long_rope_factors(tmp_path, tiny_model):
    """Original context 1024 of 4096: asking for 1024 stays on the short side, asking for more is on the long one."""
    path = with_metadata(tiny_model(), tmp_path / "long.gguf", rope__scaling__original_context_length=1024)
    for n_ctx, nodes, cells in ((1024, 512, 1024), (1025, 1025, 1792), (512, 512, 1024), (400, 400, 1024)):
        with open_model(path, LlamaOptions(n_ctx=n_ctx, n_threads=1)) as model:
            assert (model.limits.nodes, model._context.size.cells) == (nodes, cells)
            with model.new_context(20) as solo:
                assert (solo._context.size.cells > 1024) == (cells > 1024)


def test_an_identity_names_what_a_score_depends_on(tmp_path, tiny_model):
    """Equal files have equal digests, other weights others; build and processor are named."""
    with open_model(tiny_model(), ONE_THREAD) as model:
        identity = model.identity
        assert identity == model.identity
        assert identity.name == tiny_model().name
        assert identity.digest == file_digest(tiny_model())
        assert identity.tokenizer_digest == model.vocabulary.digest
        assert (identity.backend, identity.precision) == ("llama.cpp", "exact")
        assert identity.build.startswith(f"llama-cpp-python {llama_cpp.__version__}, llama.cpp ")
        assert ": " in identity.processor
    assert file_digest(tiny_model(seed=2)) != identity.digest


def test_digests_of_large_files_are_sampled_from_end_to_end(tmp_path):
    """Size, first MiB and last block count; the method stands before the digest."""
    path = tmp_path / "large"
    n_bytes = 40 << 20
    digests = set()
    for place in (None, 5, n_bytes - 1):
        with path.open("wb") as file:
            file.truncate(n_bytes)
            if place is not None:
                file.seek(place)
                file.write(b"x")
        digests.add(file_digest(path))
    with path.open("ab") as file:
        file.write(b"\0")
    digests.add(file_digest(path))
    assert len(digests) == 4
    assert all(digest.startswith("blake2b-sampled:") for digest in digests)
    path.write_bytes(b"small")
    assert file_digest(path).startswith("blake2b:")


def test_a_shared_llama_gives_the_same_rows_and_is_not_disturbed(any_model):
    """Its weights and threads are used, its own context is not; closing the model leaves it open."""
    llama = llama_cpp.Llama(str(any_model), n_ctx=256, n_threads_batch=1, verbose=False)
    llama.eval([5, 6, 7])
    with open_model(llama) as model, open_model(any_model, ONE_THREAD) as own:
        assert model.identity == own.identity
        shared = chain(model, ROOT, range(5, 30)).rows
        np.testing.assert_array_equal(shared.logits(24), chain(own, ROOT, range(5, 30)).rows.logits(24))
    assert llama.n_tokens == 3
    llama.eval([8])
    llama.close()
    with pytest.raises(ClosedError):
        open_model(llama)


def test_rope_settings_of_a_shared_llama_are_taken_over(any_model):
    """A halved RoPE frequency scale moves the rows, as it does for a context of the Llama's own."""
    plain = llama_cpp.Llama(str(any_model), verbose=False)
    scaled = llama_cpp.Llama(str(any_model), rope_freq_scale=0.5, verbose=False)
    with open_model(plain, ONE_THREAD) as first, open_model(scaled, ONE_THREAD) as second:
        a = logp(chain(first, ROOT, range(5, 30)).rows, 24)
        b = logp(chain(second, ROOT, range(5, 30)).rows, 24)
        assert second.identity.digest == first.identity.digest + "+rope_freq_scale=0.5"
    assert np.abs(a - b).max() > 1e-3
    plain.close()
    scaled.close()


def test_a_closed_llama_closes_what_shares_it(any_model):
    """Its weights are gone, so every call says so and nothing crashes, whoever is freed first."""
    llama = llama_cpp.Llama(str(any_model), verbose=False)
    model = open_model(llama, ONE_THREAD)
    solo = model.new_context(8)
    chain(model, ROOT, [5])
    llama.close()
    for dead in (model, solo):
        with pytest.raises(ClosedError):
            chain(dead, ROOT, [5])
        dead.close()
    del llama, model, solo, dead
    gc.collect()


def test_a_lora_adapter_of_a_shared_llama_is_applied_or_refused(any_model, monkeypatch):
    """Adapters live in the Llama's context: ours gets them as well; one that cannot be reached is refused."""
    llama = llama_cpp.Llama(str(any_model), verbose=False)
    llama.lora_path = str(any_model)
    with pytest.raises(UnsupportedModelError, match="LoRA"):
        open_model(llama, ONE_THREAD)
    given = []
    monkeypatch.setattr(llama_cpp, "llama_set_adapters_lora", lambda *args: given.append(args) or 0)
    llama._lora_adapter, llama.lora_scale = llama_cpp.llama_adapter_lora_p_ctypes(), 0.5
    with open_model(llama, ONE_THREAD) as model:
        assert given[0][2] == 1
        assert given[0][3][0] == 0.5
        assert "+lora:0.5:" in model.identity.digest
    llama._lora_adapter = None
    llama.close()


def test_weights_are_freed_with_the_last_context(tiny_model, monkeypatch):
    """The solo model keeps them alive; a model that is forgotten without close frees them, too."""
    freed = []
    free = llama_cpp.llama_model_free
    monkeypatch.setattr(llama_cpp, "llama_model_free", lambda pointer: (freed.append(pointer), free(pointer)))
    model = open_model(tiny_model(), ONE_THREAD)
    solo = model.new_context(8)
    model.close()
    assert not freed
    chain(solo, ROOT, [5])
    solo.close()
    assert len(freed) == 1
    forgotten = open_model(tiny_model(), ONE_THREAD)
    del forgotten
    gc.collect()
    assert len(freed) == 2


def test_nothing_is_printed_unless_asked_for(any_model):
    """A process that opens, decodes, fails to open and closes writes nothing; verbose shows llama.cpp's log."""
    program = textwrap.dedent("""
        import sys
        from selectrie.backends.llama_cpp.model import open_model
        from selectrie.backends.llama_cpp.options import LlamaOptions
        from selectrie.errors import ModelFileError
        import numpy as np
        options = LlamaOptions(n_threads=1, verbose=sys.argv[2] == "loud")
        one = np.ones(1, dtype=bool)
        with open_model(sys.argv[1], options) as model:
            model.extend(np.zeros(1, dtype=np.int32), np.full(1, 5, dtype=np.int32), one, one)
        try:
            open_model(__file__ if "__file__" in globals() else "/dev/null", options)
        except ModelFileError:
            pass
    """)
    for how in ("silent", "loud"):
        arguments = [sys.executable, "-c", program, str(any_model), how]
        done = subprocess.run(
            arguments, capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
        )
        assert done.stdout == ""
        assert ("llama_model_loader" in done.stderr) == (how == "loud")
        assert how == "loud" or done.stderr == ""


def test_the_stop_flag_is_a_byte():
    """Set, cleared, and set again."""
    flag = StopFlag()
    assert not flag.is_set
    flag.set()
    assert flag.is_set
    flag.clear()
    assert not flag.is_set


def test_a_prompt_longer_than_a_call_is_the_callers_to_cut(any_model):
    """Two calls of 64 rows and the same run found as one path."""
    with open_model(any_model, LlamaOptions(n_threads=1, n_batch=64)) as model:
        first = chain(model, ROOT, range(5, 69))
        second = chain(model, int(first.nodes[-1]), range(69, 133))
        assert model.match_prefix(ints(*range(5, 133))) == (second.nodes[-1], 128)


@pytest.mark.parametrize(("feature", "repacked"), [("AMX_INT8 = 1 | ", False), ("REPACK = 1 | ", True)])
def test_kernels_that_end_the_process_are_not_used(tiny_model, monkeypatch, feature, repacked):
    """A build with AMX is asked not to repack weights (llama.cpp #20824); any other one may."""
    asked = []
    load = llama_cpp.llama_model_load_from_file
    monkeypatch.setattr(llama_cpp, "llama_print_system_info", lambda: b"CPU : AVX2 = 1 | " + feature.encode())
    monkeypatch.setattr(
        llama_cpp,
        "llama_model_load_from_file",
        lambda path, params: asked.append(params.use_extra_bufts) or load(path, params),
    )
    plain = llama_cpp.llama_model_default_params()
    plain.use_extra_bufts = True
    monkeypatch.setattr(llama_cpp, "llama_model_default_params", lambda: plain)
    open_model(tiny_model("q8_0" if not repacked else "f32"), LlamaOptions(n_ctx=8)).close()
    assert asked == [repacked]
