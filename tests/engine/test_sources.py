"""From what a caller names to what a back end opens; and a second back end, which needs its entry and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import llama_cpp
import pytest

import selectrie
from selectrie import ModelPool
from selectrie.backends import table
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.backends.llama_cpp_entry import LLAMA_CPP
from selectrie.core.types import Precision
from selectrie.engine import sources
from selectrie.engine.load import load
from selectrie.engine.sources import OpenableSource, check_names, find_source, resolve
from selectrie.errors import (
    MemoryBudgetError,
    MissingExtraError,
    ModelFileError,
    OptionError,
    UnknownArgumentError,
    UnknownOptionError,
)
from selectrie.testing import HashModel
from tests.support import toy_backend


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file of the second back end of a table of two."""
    monkeypatch.setattr(table, "BACKENDS", toy_backend.TABLE)
    return toy_backend.file(tmp_path)


@pytest.mark.parametrize("as_written", [str, Path])
def test_a_path_is_opened_by_the_back_end_that_knows_the_file(tiny_model, as_written):
    """As text or as a path."""
    path = tiny_model("f32")
    expected = OpenableSource(path, LLAMA_CPP, LlamaOptions(n_ctx=64))
    assert resolve(as_written(path), None, {"n_ctx": 64}) == expected
    assert resolve(as_written(path), "llama.cpp", {"n_ctx": 64}) == expected
    assert expected.is_file


def test_no_source_is_the_embedded_model(monkeypatch, tmp_path, tiny_model):
    """Its file, opened as any other one; "embedded" names it too, unless there is such a file."""
    monkeypatch.setattr(sources, "PATH", tiny_model("f32"))
    monkeypatch.chdir(tmp_path)
    for named in (None, "embedded"):
        assert resolve(named, None, {}).opened == tiny_model("f32")
    (tmp_path / "embedded").touch()
    assert find_source("embedded") == "embedded"


def test_a_source_may_be_written_as_in_a_shell_or_on_the_hub(monkeypatch, tmp_path):
    """`~` is the home folder, and owner/repo:QUANTISATION a source of the hub unless there is such a file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert find_source("~/a.gguf") == str(tmp_path / "a.gguf")
    assert find_source(Path("~/a.gguf")) == tmp_path / "a.gguf"
    assert find_source("owner/repo:Q4_K_M") == "hf:owner/repo:Q4_K_M"
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "repo:Q4_K_M").touch()
    for same in ("owner/repo:Q4_K_M", "hf:owner/repo:Q4_K_M", "http://a/b:8000", "a/b/c:d", "a.gguf", None, 3):
        assert find_source(same) is same


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ("owner/repo", {}, ModelFileError, "or write hf:owner/repo for the hub"),
        ("owner/repo/a.gguf", {}, ModelFileError, "or write hf:owner/repo/a.gguf for the hub"),
        ("folder/a.gguf", {}, ModelFileError, "or write hf:owner/repo/file.gguf for the hub"),
        (None, {"model": "a.gguf"}, UnknownArgumentError, r"give the model first, as in load\('model.gguf'\)"),
        (None, {"model_path": "a.gguf"}, UnknownArgumentError, "load has no argument 'model_path'"),
        (None, {"threads": 1}, UnknownOptionError, "did you mean `n_threads`?"),
        (None, {"gpu": True}, UnknownOptionError, "did you mean `n_gpu_layers`?"),
        (None, {"device": "cuda"}, UnknownOptionError, "did you mean `n_gpu_layers`?"),
        (None, {"n_ctxx": 1}, UnknownOptionError, "did you mean `n_ctx`?"),
        (None, {"nothing": 1}, UnknownOptionError, "`verbose`$"),
    ],
)
def test_names_of_other_programs_are_answered_with_ours(source, options, error, message):
    """The error says what to write; nothing is opened."""
    with pytest.raises(error, match=message):
        load(source, **options)


def test_an_empty_text_is_no_source():
    """It is not the current directory."""
    with pytest.raises(OptionError, match=r"^model='': expected a path or an hf: source, or None"):
        selectrie.load("")


def test_an_open_model_is_no_file(tiny_model):
    """So it is not opened in a child process first."""
    llama = llama_cpp.Llama(str(tiny_model("f32")), n_ctx=64, n_threads=1, verbose=False)
    try:
        resolved = resolve(llama, None, {})
        assert resolved == OpenableSource(llama, LLAMA_CPP, LlamaOptions())
        assert not resolved.is_file
    finally:
        llama.close()


@pytest.mark.parametrize("source", ["http://localhost:8080/v1", "https://example.org/m.gguf", "HTTP://x"])
def test_servers_are_no_files(source):
    """A pool, whose budget is of memory, says what opens them; `load` takes no options of back ends with them."""
    with pytest.raises(OptionError, match=r"`selectrie\.connect` opens servers") as caught:
        resolve(source, None, {})
    assert (caught.value.name, caught.value.value) == ("model", source)


@pytest.mark.parametrize("backend", [None, "llama.cpp"])
@pytest.mark.parametrize(
    ("options", "message"),
    [({"n_ctx": 0}, "n_ctx=0"), ({"devise": "cpu"}, "`devise` is not an option of the back end")],
)
def test_options_are_checked_before_anything_is_downloaded(monkeypatch, backend, options, message):
    """Who mistypes does not wait for gigabytes first."""
    monkeypatch.setattr("selectrie.engine.sources.download", lambda _: pytest.fail("downloaded"))
    for source in ("hf:owner/repo/m.gguf", "hf:owner/repo:Q4_K_M"):
        with pytest.raises(OptionError) as caught:
            selectrie.load(source, backend=backend, **options)
        assert str(caught.value).startswith(message)


def test_a_file_of_the_hub_is_known_by_its_content(monkeypatch, tiny_model):
    """As any other file, once it is here."""
    monkeypatch.setattr("selectrie.engine.sources.download", lambda _: tiny_model("f32"))
    assert resolve("hf:owner/repo/m.gguf", None, {}).backend is LLAMA_CPP
    assert sources.is_hub_source("hf:")
    assert not sources.is_hub_source(Path("hf:owner/repo/m.gguf"))


def test_a_directory_without_a_model_is_an_error_of_load(tmp_path):
    """One clear error, with what is missing."""
    with pytest.raises(ModelFileError, match="is a directory without a config"):
        selectrie.load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelFileError, match="is a directory without weights"):
        selectrie.load(str(tmp_path))


def test_a_missing_extra_is_named_before_the_model_is_opened(toy, monkeypatch):
    """The entry says which packages it needs."""
    entry = replace(toy_backend.TOY, packages={"no_such_package": "x"}, extra="toys")
    monkeypatch.setattr(table, "BACKENDS", (LLAMA_CPP, entry))
    with pytest.raises(MissingExtraError, match=r"selectrie\[toys\]"):
        selectrie.load(toy)


# A second back end


def test_load_opens_what_the_second_back_end_knows(toy):
    """Its options are keywords, its model answers; an option of llama.cpp is not one of its own."""
    with selectrie.load(toy, precision="fast", seed=3) as engine:
        answer = engine.select([0], ["a", "b"])
    with selectrie.Engine(toy_backend.ToyModel(3)) as engine:
        assert answer.logp == engine.select([0], ["a", "b"]).logp
    assert answer.signature.backend == "toy"
    with pytest.raises(UnknownOptionError, match="`n_threads` is not an option of the back end toy, which has"):
        selectrie.load(toy, n_threads=1)
    with pytest.raises(OptionError, match="seed=-1"):
        selectrie.load(toy, seed=-1)


def test_a_back_end_that_is_named_opens_whatever_it_can(toy, tmp_path):
    """Its opener says what it cannot."""
    other = tmp_path / "other"
    other.write_bytes(b"anything")
    with selectrie.load(other, backend="toy") as engine:
        assert engine.identity.backend == "toy"
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        selectrie.load(toy, backend="llama.cpp")
    with pytest.raises(OptionError, match=r"backend='gguf': expected one of 'llama\.cpp', 'toy'"):
        selectrie.load(toy, backend="gguf")


def test_self_checks_of_the_second_back_end_are_kept_by_its_key(toy, monkeypatch, tmp_path, checked):
    """Made once, and found again, if the model has weights and can write the text."""
    monkeypatch.setenv("HOME", str(tmp_path))
    plain = HashModel.identity
    monkeypatch.setattr(HashModel, "identity", property(lambda self: replace(plain.fget(self), n_parameters=1_000)))
    monkeypatch.setattr("selectrie.engine.precision_check.TEXT", "a cat at a bat")
    with selectrie.load(toy) as engine:
        checked(engine)
    with selectrie.load(toy) as engine:
        assert engine.self_check.n_rows > 0
    kept = (tmp_path / ".cache" / "selectrie" / "selfcheck.json").read_text()
    assert "fake:hash-0|exact|check " in kept


def test_a_pool_holds_models_of_both(toy, tiny_model):
    """With options that both have; what only one has is refused when the other is used, and nonsense at once."""
    sources = {"toy": toy, "gguf": tiny_model("f32")}
    with ModelPool(sources, budget_bytes=1 << 30, precision="fast") as models:
        for name, backend in (("toy", "toy"), ("gguf", "llama.cpp")):
            with models.use(name) as engine:
                assert engine.identity.backend == backend
        assert models["toy"].memory_bytes == toy.stat().st_size
    with ModelPool(sources, n_ctx=64, n_threads=1) as models:
        with pytest.raises(UnknownOptionError, match="`n_ctx` is not an option of the back end toy"), models.use("toy"):
            pass
        with models.use("gguf") as engine:
            assert engine.limits.nodes == 64
    with pytest.raises(UnknownOptionError, match="`device`"):
        ModelPool(sources, device="cpu")
    with pytest.raises(OptionError, match="backend='gguf'"):
        ModelPool(sources, backend="gguf")


def test_a_budget_that_is_too_small_is_told_by_the_back_end_of_the_model(toy, tiny_model):
    """Each says how its models take less memory."""
    sources = {"toy": toy, "gguf": tiny_model("f32")}
    both = {
        "toy": ("open a smaller toy", "{}, or raise the budget"),
        "gguf": ("lower `n_ctx` or `n_batch`", "raise the budget, or {}"),
    }
    for name, (remedy, listed) in both.items():
        with ModelPool(sources, budget_bytes=1, precision="fast") as models:
            with pytest.raises(MemoryBudgetError) as caught, models.use(name):
                pass
            assert str(caught.value).endswith(f"more than all of it; {listed.format(remedy)}")
            assert caught.value.less_memory == remedy


def test_files_of_the_second_back_end_are_not_tried_in_a_child(toy, monkeypatch):
    """Its entry has no trial."""
    monkeypatch.setattr("selectrie.engine.trial._opens_in_child", lambda *_: pytest.fail("tried"))
    selectrie.load(toy, untrusted=True).close()


def test_names_are_checked_without_a_source():
    """As a pool does when it is made."""
    check_names(None, {"precision": Precision.FAST})
    for backend, options in ((None, {"n_ctx": 0}), ("llama.cpp", {"seed": 1}), ("x", {})):
        with pytest.raises(OptionError):
            check_names(backend, options)
