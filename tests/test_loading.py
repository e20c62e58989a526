"""From a source to an engine: files, the hub, open models, and self-checks that are kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import selectrie
from selectrie import loading
from selectrie.errors import MissingExtraError, ModelFileError, OptionError


class HubError(OSError):
    """The hub answered, and said no."""


def hub(monkeypatch, download, answer=None):
    """A huggingface_hub that downloads so; answer: raised where the hub is asked about a file."""

    def metadata(url, timeout):
        assert (url, timeout <= 10) == ("owner/repo/dir/file.gguf", True)
        if answer is not None:
            raise answer

    stand_in = SimpleNamespace(
        hf_hub_download=download,
        hf_hub_url=lambda repository, name: f"{repository}/{name}",
        get_hf_file_metadata=metadata,
        errors=SimpleNamespace(HfHubHTTPError=HubError, FileMetadataError=HubError),
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", stand_in)


def test_a_hub_file_is_asked_for_by_repository_and_name(monkeypatch, tmp_path):
    """`hf:owner/repo/dir/file.gguf` is the file `dir/file.gguf` of `owner/repo`."""
    asked = []

    def download(repository, name):
        asked.append((repository, name))
        return str(tmp_path / name)

    hub(monkeypatch, download)
    assert loading.download("hf:owner/repo/dir/file.gguf") == tmp_path / "dir" / "file.gguf"
    assert asked == [("owner/repo", "dir/file.gguf")]


@pytest.mark.parametrize("source", ["hf:", "hf:owner", "hf:owner/repo", "hf:owner//file.gguf"])
def test_a_hub_name_without_a_file_is_refused(source):
    """The form is named; nothing is downloaded."""
    with pytest.raises(OptionError, match=r"hf:owner/repo/file\.gguf"):
        loading.download(source)


def test_being_offline_is_one_clear_error(monkeypatch):
    """The hub is asked once; the first line of the reason is kept, with what to do."""
    asked = []

    def offline(_repository, _name, **how):
        asked.append(how)
        raise OSError("not in the cache")

    hub(monkeypatch, offline, RuntimeError("Connection refused\nlong story"))
    with pytest.raises(ModelFileError) as caught:
        loading.download("hf:owner/repo/dir/file.gguf")
    assert asked == [{"local_files_only": True}]
    assert "Connection refused" in str(caught.value)
    assert "long story" not in str(caught.value)
    assert "local file" in str(caught.value)


def test_what_is_in_the_cache_is_taken_without_a_network(monkeypatch, tmp_path):
    """Offline the cached file is the model's."""
    hub(monkeypatch, lambda _repository, name, local_files_only: tmp_path / name, ConnectionError("offline"))
    assert loading.download("hf:owner/repo/dir/file.gguf") == tmp_path / "dir" / "file.gguf"


def test_a_hub_that_says_no_is_asked_to_the_end(monkeypatch):
    """A file that is not there, or gated, is the hub's own error."""

    def gated(_repository, _name):
        raise HubError("403: this model is gated")

    hub(monkeypatch, gated, HubError("403"))
    with pytest.raises(ModelFileError, match="this model is gated"):
        loading.download("hf:owner/repo/dir/file.gguf")


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    """Without huggingface_hub the error says what to install."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"selectrie\[hf\]"):
        loading.download("hf:owner/repo/file.gguf")


def test_a_self_check_is_made_once_for_a_model_and_a_size(tiny_model):
    """The second engine on the same file takes the check that the first one kept; another batch size has its own."""
    path = tiny_model("f32", seed=7)
    with selectrie.load(path, n_threads=1, n_ctx=256) as engine:
        tolerance = engine.tolerance
    kept = Path.home() / ".cache" / "selectrie" / "selfcheck.json"
    entries = json.loads(kept.read_text())
    with selectrie.load(path, n_threads=1, n_ctx=256) as engine:
        assert engine._check is not None
        assert engine.tolerance == tolerance
    with selectrie.load(path, n_threads=1, n_ctx=256, n_batch=64) as engine:
        assert engine._check is None
    assert json.loads(kept.read_text()) == entries


def test_an_engine_that_cannot_be_made_closes_its_model(tiny_model, monkeypatch):
    """Whatever fails after opening, the weights are freed."""
    from selectrie.backends.llama_cpp import LlamaModel

    closed = []
    close = LlamaModel.close
    monkeypatch.setattr(LlamaModel, "close", lambda self: (closed.append(True), close(self)))
    monkeypatch.setattr(loading.SelfCheckFile, "get", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        selectrie.load(tiny_model("f32"), n_threads=1)
    assert closed == [True]


@pytest.mark.parametrize("options", [{"precision": "sloppy"}, {"n_ctx": 0}, {"n_threads": 0}, {"n_batch": -1}])
def test_options_are_checked_before_the_file_is_opened(options):
    """A wrong option is the caller's mistake whether or not the file exists."""
    with pytest.raises(OptionError):
        selectrie.load("nowhere.gguf", **options)
