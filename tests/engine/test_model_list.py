"""The models at hand: the embedded one, those in the Hugging Face cache, and what loading writes."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest

import selectrie
from selectrie.backends import table
from selectrie.cli.report.lists import size_words
from selectrie.core.files import cache_folder, file_digest, read_object
from selectrie.engine import sources
from selectrie.errors import ModelFileError
from tests.support import toy_backend


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home folder of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def stand_in(home: Path, tiny_model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of random weights in the place of the embedded one."""
    path = tmp_path / "installed" / sources.NAME
    path.parent.mkdir()
    path.write_bytes(tiny_model("f16").read_bytes())
    monkeypatch.setattr(sources, "PATH", path)
    return path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The cache of huggingface_hub in a folder of the test's own; not made yet."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    folder = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub, "scan_cache_dir", partial(huggingface_hub.scan_cache_dir, folder))
    return folder


def cached(hub: Path, repository: str, commit: str, files: dict[str, bytes], *, branch: str | None = "main") -> Path:
    """A revision as a download leaves it: blobs, links to them, and the branch's name; its folder."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    for name, content in files.items():
        blob = folder / "blobs" / content.hex()
        link = folder / "snapshots" / commit / name
        for path in (blob, link):
            path.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link.symlink_to(blob)
    (folder / "refs").mkdir(exist_ok=True)
    if branch is not None:
        (folder / "refs" / branch).write_text(commit)
    return folder / "snapshots" / commit


def test_gguf_files_of_the_hub_s_cache_follow_the_embedded_model(stand_in: Path, hub: Path):
    """By the source that loads them, in its order; other files and data sets are no models."""
    b = cached(hub, "own/b", "1" * 40, {"q4/b.gguf": b"weights", "README.md": b"words"})
    a = cached(hub, "own/a", "2" * 40, {"a.gguf": b"other weights"})
    (hub / "datasets--own--c" / "snapshots" / ("3" * 40)).mkdir(parents=True)
    (hub / "datasets--own--c" / "snapshots" / ("3" * 40) / "c.gguf").write_bytes(b"rows")
    own, *rest = selectrie.models()
    assert own.embedded
    assert [record.source for record in rest] == ["hf:own/a/a.gguf", "hf:own/b/q4/b.gguf"]
    assert rest[0].path == str(a / "a.gguf")
    assert rest[1].to_dict() == {
        "source": "hf:own/b/q4/b.gguf",
        "name": "b.gguf",
        "path": str(b / "q4" / "b.gguf"),
        "size_bytes": 7,
        "digest": file_digest(b / "q4" / "b.gguf"),
        "file": "present",
        "embedded": False,
    }


def test_files_of_every_back_end_of_the_table_are_listed(stand_in: Path, hub: Path, monkeypatch: pytest.MonkeyPatch):
    """By how their names end, each with the digest of its own back end."""
    cached(hub, "own/a", "1" * 40, {"a.gguf": b"one", "b.toy": b"three", "c.bin": b"four"})
    assert [record.source for record in selectrie.models()[1:]] == ["hf:own/a/a.gguf"]
    monkeypatch.setattr(table, "BACKENDS", toy_backend.TABLE)
    digests = {record.source: record.digest for record in selectrie.models()[1:]}
    assert list(digests) == ["hf:own/a/a.gguf", "hf:own/a/b.toy"]
    assert digests["hf:own/a/b.toy"] == "toy:5"


def test_a_file_of_another_revision_is_loaded_by_its_path(stand_in: Path, hub: Path):
    """Its hub name would load the newer one; where that has the same bytes, it is listed once."""
    old = cached(hub, "own/a", "1" * 40, {"a.gguf": b"old", "same.gguf": b"same"}, branch=None)
    cached(hub, "own/a", "2" * 40, {"a.gguf": b"new", "same.gguf": b"same"})
    sources = [record.source for record in selectrie.models()[1:]]
    assert sources == sorted([str(old / "a.gguf"), "hf:own/a/a.gguf", "hf:own/a/same.gguf"])


def test_a_cache_that_is_not_there_or_damaged_is_an_empty_one(stand_in: Path, hub: Path):
    """No cache yet, a file in its place, a repository without revisions, a link to nothing."""
    assert len(selectrie.models()) == 1
    hub.write_text("in the way")
    assert len(selectrie.models()) == 1
    hub.unlink()
    cached(hub, "own/a", "1" * 40, {"a.gguf": b"weights"})
    (hub / "models--own--b").mkdir()
    link = cached(hub, "own/c", "2" * 40, {"c.gguf": b"gone"}) / "c.gguf"
    link.resolve().unlink()
    assert [record.source for record in selectrie.models()[1:]] == ["hf:own/a/a.gguf"]


def test_without_the_extra_the_embedded_model_stands_alone(stand_in: Path, monkeypatch: pytest.MonkeyPatch):
    """The list is no error; the command says which extra it wants."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    (record,) = selectrie.models()
    assert record.embedded


def test_loading_writes_nothing_but_checks_and_marks(stand_in: Path, hub: Path, tiny_model, checked):
    """A path, the embedded model and an open `Llama` leave one file; listing leaves none."""
    import llama_cpp

    selectrie.models()
    assert not cache_folder().exists()
    with selectrie.load(tiny_model("f32"), n_threads=1) as engine:
        checked(engine)
    selectrie.load(n_threads=1).close()
    llama = llama_cpp.Llama(str(tiny_model("f16")), n_ctx=64, n_threads=1, verbose=False)
    selectrie.load(llama, n_threads=1).close()
    llama.close()
    assert [path.name for path in cache_folder().rglob("*")] == ["selfcheck.json"]
    assert len(selectrie.models()) == 1


def test_without_a_home_nothing_is_kept_and_everything_works(
    stand_in: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
):
    """As a user without an account and without HOME, in some containers, one can load, ask and list."""

    def homeless(_path: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(homeless))
    with selectrie.load(n_threads=1) as engine:
        assert engine.select("He wears", [" leather", " plate"]).certificate.proved
    record = selectrie.models()[0]
    assert (record.source, record.file) == (str(stand_in), "present")
    assert not cache_folder().exists()


def test_the_embedded_model_is_listed_as_its_file_is(stand_in: Path, hub: Path, tiny_model):
    """Read off the file each time: whole, replaced by an update, damaged, and missing."""
    (record,) = selectrie.models()
    assert (record.source, record.name, record.path) == (str(stand_in), "embedded.gguf", str(stand_in))
    assert (record.size_bytes, record.digest) == (stand_in.stat().st_size, file_digest(stand_in))
    assert (record.file, record.embedded) == ("present", True)
    with selectrie.load(stand_in, n_threads=1) as engine:
        assert record.digest == engine._model.identity.digest
    stand_in.write_bytes(tiny_model("f32", seed=3).read_bytes())
    assert [record.digest for record in selectrie.models()] == [file_digest(stand_in)]
    for n_bytes in (40_000, 3, 0):
        stand_in.write_bytes(stand_in.read_bytes()[:n_bytes])
        assert [(r.file, r.embedded, r.size_bytes) for r in selectrie.models()] == [("present", True, n_bytes)]
    stand_in.unlink()
    assert [(r.file, r.embedded, r.size_bytes, r.digest) for r in selectrie.models()] == [("missing", True, 0, "")]


def test_load_without_a_source_is_the_embedded_model(stand_in: Path, checked):
    """Its name stands in the signature, and its self-check is kept."""
    with selectrie.load(n_threads=1) as engine:
        checked(engine)
        answer = engine.select("He wears", [" leather", " plate"])
    assert answer.signature.model == sources.NAME
    assert answer.signature.model_digest == file_digest(stand_in)
    assert len(read_object(cache_folder() / "selfcheck.json")) == 1
    with selectrie.load(n_threads=1, precision="fast") as engine:
        assert engine.tolerance is None


def test_a_missing_embedded_model_says_what_to_do(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package without its file is no mystery."""
    monkeypatch.setattr(sources, "PATH", tmp_path / sources.NAME)
    with pytest.raises(ModelFileError, match="missing from this installation; install selectrie again") as caught:
        selectrie.load()
    assert caught.value.path == str(tmp_path / sources.NAME)
    assert not cache_folder().exists()


def test_the_embedded_model_of_this_installation_answers(home: Path):
    """The file that ships: at most 8 MB, without quantisation, and at home in signatures."""
    if not sources.PATH.is_file():
        pytest.skip("the embedded model is not there: `make model` makes it")
    assert sources.PATH.stat().st_size <= 8_000_000
    with selectrie.load(n_threads=1) as engine:
        answer = engine.select("The capital of France is", [" Paris", " London"])
    assert (answer.text, answer.signature.model) == (" Paris", sources.NAME)
    assert json.loads(json.dumps(answer.to_dict()))["signature"]["model"] == sources.NAME


@pytest.mark.parametrize(
    ("n", "size"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (7_922_368, "7.9 MB"),
        (494_032_768, "494 MB"),
        (999_600_000, "1.0 GB"),
        (7_615_616_512, "7.6 GB"),
        (9_960_000, "10 MB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_are_written_with_two_digits(n: int, size: str):
    """Bytes in the largest unit that fits."""
    assert size_words(n) == size
