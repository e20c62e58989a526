"""The table of back ends: who opens a source, by which options, and what is said where nobody does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType

import llama_cpp
import pytest

from selectrie.backends import table
from selectrie.backends.entry import Backend, is_instance_of, read_options, require_packages, versions_of
from selectrie.backends.llama_cpp.gguf_header import part_names
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.backends.llama_cpp_entry import LLAMA_CPP
from selectrie.backends.transformers.options import TransformersOptions
from selectrie.backends.transformers_entry import TRANSFORMERS
from selectrie.core.types import Precision
from selectrie.errors import (
    MissingExtraError,
    ModelFileError,
    OptionError,
    UnknownOptionError,
    UnsupportedModelError,
)
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE
from tests.support import toy_backend

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of two back ends."""
    monkeypatch.setattr(table, "BACKENDS", toy_backend.TABLE)


# Which back end


@pytest.mark.usefixtures("two")
def test_a_file_is_known_by_its_content(tmp_path):
    """Whatever it is called; a file that none knows goes to the first, whose errors say what is wrong."""
    gguf, toy, other = tmp_path / "a.toy", tmp_path / "b.gguf", tmp_path / "c.toy"
    gguf.write_bytes(b"GGUF\x03")
    toy.write_bytes(b"TOY")
    other.write_bytes(b"hello")
    paths = [gguf, toy, other, tmp_path / "missing", Path("x" * 5000), Path("a\0b")]
    assert [table.backend_of(path).name for path in paths] == ["llama.cpp", "toy", *["llama.cpp"] * 4]


def test_a_pipe_is_not_waited_for(tmp_path):
    """What is no regular file is not opened to find out what it holds."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert not LLAMA_CPP.recognises(pipe)


def test_an_open_llama_is_known_by_its_class(tiny_model):
    """Another object, also one that looks alike, is refused with what is opened."""
    llama = llama_cpp.Llama(str(tiny_model("f32")), n_ctx=64, n_threads=1, verbose=False)
    try:
        assert table.backend_of(llama) is LLAMA_CPP
    finally:
        llama.close()
    for source in (42, b"model.gguf", ["model.gguf"], type("Llama", (), {})(), llama_cpp.Llama):
        with pytest.raises(OptionError, match=r"^model=.*expected what a back end opens: a GGUF file or an open"):
            table.backend_of(source)


def test_a_class_is_looked_up_where_it_was_imported():
    """A module that is not imported, a name that it lacks and one that is no class have no instances."""
    assert is_instance_of(Path(), "pathlib", "Path")
    assert not is_instance_of("a", "pathlib", "Path")
    assert "this_is_not_imported" not in sys.modules
    for module, name in (("this_is_not_imported", "Path"), ("pathlib", "Nothing"), ("pathlib", "os")):
        assert not is_instance_of(Path(), module, name)


def test_a_back_end_is_named_as_in_the_table():
    """Any other name gets the list."""
    assert table.backend_named("llama.cpp") is LLAMA_CPP
    for name in ("llama", "LLAMA.CPP", "", 3):
        with pytest.raises(OptionError, match=r"^backend=.*expected one of 'llama\.cpp', 'transformers', 'xla'$"):
            table.backend_named(name)


@pytest.mark.parametrize("weights", ["model.safetensors", "model-00001-of-00002.safetensors", "pytorch_model.bin"])
def test_a_checkpoint_is_known_by_its_files(tmp_path, weights):
    """A configuration and weights, whatever they hold; a configuration alone is none."""
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelFileError, match="is a directory without weights, so no model; pass a GGUF file"):
        table.backend_of(tmp_path)
    (tmp_path / "m-Q8_0.GGUF").touch()
    with pytest.raises(ModelFileError, match=r"pass one of its files: m-Q8_0\.GGUF$") as caught:
        table.backend_of(tmp_path)
    assert caught.value.path == str(tmp_path)
    (tmp_path / weights).touch()
    assert table.backend_of(tmp_path).name == "transformers"


def test_the_files_of_a_checkpoint_are_named_and_no_others():
    """Neither code nor pickles, nor weights that are there twice."""
    beside = ["README.md", "model.py", "pytorch_model.bin", "consolidated.safetensors", "onnx/model.onnx"]
    own = ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"]
    found = table.folder_model("hf:o/r", [*beside, *own])
    assert found is not None
    assert (found[0].name, sorted(found[1])) == ("transformers", sorted(own))
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    found = table.folder_model("hf:o/r", [*beside, *shards, "config.json"])
    assert found is not None
    assert sorted(found[1]) == sorted([*shards, "config.json"])
    assert table.folder_model("hf:o/r", ["config.json", "m.gguf"]) is None
    with pytest.raises(UnsupportedModelError, match=r"^hf:o/r.*pickles \(pytorch_model\.bin\).*never opened; take"):
        table.folder_model("hf:o/r", ["config.json", "pytorch_model.bin"])


def test_a_directory_that_is_no_model_says_what_to_pass(tmp_path):
    """Its GGUF files where there are some, at most fifty by name."""
    with pytest.raises(
        ModelFileError, match=r"is a directory without a config\.json, so no model; pass a GGUF file or"
    ):
        table.backend_of(tmp_path)
    for name in ("b.gguf", "a.gguf", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(ModelFileError, match=r"pass one of its files: a\.gguf, b\.gguf$") as caught:
        table.backend_of(tmp_path)
    assert caught.value.path == str(tmp_path)
    for i in range(60):
        (tmp_path / f"c{i:02}.gguf").touch()
    with pytest.raises(ModelFileError, match=r"c47\.gguf and 12 more$"):
        table.backend_of(tmp_path)


# Options


@pytest.mark.parametrize("backend", toy_backend.TABLE, ids=lambda backend: backend.name)
def test_options_are_a_frozen_record_with_defaults(backend: Backend):
    """Each field can be left out; `precision` and `verbose` are there, and `precision` is checked."""
    kind = backend.options_type()
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert {"precision", "verbose"} <= {field.name for field in fields(kind)}
    assert read_options(backend, {}) == kind()
    with pytest.raises(OptionError, match="precision='sloppy'"):
        read_options(backend, {"precision": "sloppy"})


def test_keywords_become_the_record():
    """With the values that were given, and the defaults for the rest."""
    expected = LlamaOptions(n_ctx=64, n_gpu_layers=-1, precision=Precision.FAST)
    assert read_options(LLAMA_CPP, {"n_ctx": 64, "n_gpu_layers": -1, "precision": "fast"}) == expected


def test_a_name_that_the_record_lacks_is_named_with_those_it_has():
    """Also where its value is None; the values of others are looked at later."""
    for value in ("cuda:0", None):
        with pytest.raises(UnknownOptionError) as caught:
            read_options(LLAMA_CPP, {"device": value, "n_ctx": 0})
        assert (caught.value.name, caught.value.value, caught.value.backend) == ("device", value, "llama.cpp")
        assert str(caught.value) == (
            "`device` is not an option of the back end llama.cpp, which has "
            "`n_ctx`, `n_batch`, `n_threads`, `n_gpu_layers`, `precision`, `verbose`; did you mean `n_gpu_layers`?"
        )


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1}, None),
        ({"n_ctx": 64}, None),
        ({"seed": -1}, "seed=-1"),
        ({"n_ctx": 0}, "n_ctx=0"),
        ({"n_ctx": 64, "seed": 1}, "`seed` is not an option of the back end llama.cpp"),
        ({"device": 1}, "`device` is not an option of the back end llama.cpp"),
    ],
    ids=str,
)
def test_options_of_an_unknown_source_have_to_suit_one_back_end(options, message):
    """The error is that of a value, where a back end has options of these names."""
    if message is None:
        table.check_options(options)
        return
    with pytest.raises(OptionError) as caught:
        table.check_options(options)
    assert str(caught.value).startswith(message)


# Packages


def test_a_missing_package_of_an_extra_is_named():
    """The extra is what to install; a back end without one needs nothing."""
    missing = MappingProxyType({"numpy": "numpy", "no_such_package": "no-such-package"})
    for extra in (None, "toys"):
        require_packages(replace(toy_backend.TOY, extra=extra))
    require_packages(replace(toy_backend.TOY, packages=missing))
    with pytest.raises(
        MissingExtraError,
        match=r"^the back end toy needs the extra 'toys': pip install 'selectrie\[toys\]( @ file:\S+)?'",
    ):
        require_packages(replace(toy_backend.TOY, packages=missing, extra="toys"))


def test_versions_are_those_that_are_installed():
    """By distribution, as in the environment of an evaluation."""
    assert versions_of(LLAMA_CPP) == {"llama-cpp-python": llama_cpp.__version__}
    assert list(versions_of(toy_backend.TOY)) == ["numpy", "pytest"]


def test_the_table_imports_no_back_end():
    """Looking a file up imports neither llama.cpp nor NumPy's neighbours of other back ends."""
    code = (
        "import sys, json; from pathlib import Path; from selectrie.backends import table\n"
        "table.backend_of(Path('no such file')); table.backend_named('llama.cpp'); table.backend_of_file_name('a.gguf')\n"
        "print(json.dumps(sorted(name for name in sys.modules if name.startswith(('llama_cpp', 'selectrie.backends')))))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout) == [
        "selectrie.backends",
        "selectrie.backends.entry",
        "selectrie.backends.llama_cpp_entry",
        "selectrie.backends.table",
        "selectrie.backends.transformers_entry",
        "selectrie.backends.xla_entry",
    ]


# What llama.cpp's entry says


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("m.gguf", ["m.gguf"]),
        ("q4/m-00001-of-00002.gguf", ["q4/m-00001-of-00002.gguf", "q4/m-00002-of-00002.gguf"]),
        ("m-00002-of-00002.gguf", ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]),
        ("m-00001-of-00001.gguf", ["m-00001-of-00001.gguf"]),
        ("m-00001-of-00000.gguf", ["m-00001-of-00000.gguf"]),
        ("m-1-of-2.gguf", ["m-1-of-2.gguf"]),
        ("m-00001-of-00002.bin", ["m-00001-of-00002.bin"]),
    ],
)
def test_names_of_a_split_model(name, parts):
    """All parts, the first one first, whichever is named."""
    assert part_names(name) == LLAMA_CPP.parts(name) == parts


def test_a_self_check_is_kept_by_identity_layers_cells_and_rows(tiny_model):
    """Of a file by what is asked for, of a shared `Llama` by what it has, and by the type of keys and values; the form is that of kept checks."""
    path = tiny_model("f32")
    llama = llama_cpp.Llama(str(path), n_ctx=64, n_threads=1, n_gpu_layers=3, verbose=False)
    try:
        for source, layers, cells in ((path, 0, "f32"), (llama, 3, "f32"), (tiny_model("q8_0"), 0, "f16")):
            options = LlamaOptions(n_ctx=64, n_batch=64, n_threads=1)
            with LLAMA_CPP.open_model(source, options) as model:
                one = model.identity
                assert LLAMA_CPP.check_key(model, source, options) == (
                    f"{one.digest}|{one.build}|{one.processor}|exact|{layers} layers on a GPU, {cells} cells|64 rows"
                )
                assert one.backend == LLAMA_CPP.name
    finally:
        llama.close()


@pytest.mark.parametrize(("dtype", "words"), [(None, "own dtype"), ("float32", "float32")])
def test_a_self_check_of_transformers_is_kept_by_identity_type_and_rows(dtype, words):
    """The form is that of kept checks, with the type that weights were converted to."""
    model = HashModel(seed=1, limits=replace(WIDE, rows_per_call=48))
    key = TRANSFORMERS.check_key(model, None, TransformersOptions(dtype=dtype))
    assert key == f"fake:hash-1|1|none|{model.identity.precision}|{words}|48 rows"
