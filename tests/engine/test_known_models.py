"""Models known here: the embedded one, the history of what was loaded, and how both are listed."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import selectrie
from selectrie.backends.llama_cpp.identity import file_digest
from selectrie.cli.report.models import parameters_words, size_words
from selectrie.core.types import ModelIdentity
from selectrie.engine import bundled_model, history
from selectrie.engine.cache_dir import cache_folder, read_object, write_object
from selectrie.engine.history import History
from selectrie.errors import InputFileError, ModelFileError, OptionError

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home folder of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def stand_in(home: Path, tiny_model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of random weights in the place of the embedded one."""
    path = tmp_path / "installed" / bundled_model.NAME
    path.parent.mkdir()
    path.write_bytes(tiny_model("f16").read_bytes())
    monkeypatch.setattr(bundled_model, "PATH", path)
    return path


class Clock:
    """An hour passes between two looks."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> datetime:
        self.looks += 1
        return NOON + timedelta(hours=self.looks - 1)


@pytest.fixture
def kept(tmp_path: Path) -> History:
    return History(tmp_path / "models", Clock())


def loaded(kept: History, path: Path, content: bytes = b"weights") -> str:
    """A file that was loaded; its source."""
    path.write_bytes(content)
    kept.remember(str(path), path, identity(path.name, file_digest(path)))
    return str(path)


def identity(name: str, digest: str) -> ModelIdentity:
    return ModelIdentity(name, digest, "t", "llama.cpp", "1", "x86", n_parameters=7)


def test_what_was_loaded_is_listed_newest_first(kept: History, tmp_path: Path):
    """A model loaded again moves to the front, and stands there once."""
    a, b = (loaded(kept, tmp_path / name) for name in ("a.gguf", "b.gguf"))
    assert [record.source for record in kept.records()] == [b, a]
    loaded(kept, tmp_path / "a.gguf", b"other weights")
    first, second = kept.records()
    assert (first.source, second.source) == (a, b)
    assert first.to_dict() == {
        "source": a,
        "name": "a.gguf",
        "path": a,
        "size_bytes": 13,
        "n_parameters": 7,
        "digest": file_digest(tmp_path / "a.gguf"),
        "loaded": "2026-03-01T14:00:00.000000+00:00",
        "file": "present",
        "embedded": False,
    }


def test_a_file_that_changed_is_told_from_one_that_was_copied(kept: History, tmp_path: Path):
    """Other bytes or another size are a change; another time of change alone is none; gone is missing."""
    path = tmp_path / "a.gguf"
    loaded(kept, path)

    def state() -> str:
        (record,) = kept.records()
        return record.file

    os.utime(path, ns=(0, 0))
    assert state() == "present"
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(1, 1))
    assert state() == "changed"
    path.write_bytes(b"more weights")
    assert state() == "changed"
    path.unlink()
    assert state() == "missing"
    path.mkdir()
    assert state() in ("changed", "missing")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b"{}", b'{"source": 1}', b'{"source": "a", "name": "a"}'],
    ids=lambda content: repr(content[:20]),
)
def test_a_damaged_entry_costs_itself_alone(kept: History, tmp_path: Path, content: bytes):
    """It is passed over, others are listed, and loading the model again mends it."""
    a, b = (loaded(kept, tmp_path / name) for name in ("a.gguf", "b.gguf"))
    kept._entry(a).write_bytes(content)
    assert [record.source for record in kept.records()] == [b]
    loaded(kept, tmp_path / "a.gguf")
    assert [record.source for record in kept.records()] == [a, b]


def test_a_field_of_another_type_damages_an_entry(kept: History, tmp_path: Path):
    """`true` is no size, a number no time; a name that no file can have is that of a missing one."""
    source = loaded(kept, tmp_path / "a.gguf")
    whole = read_object(kept._entry(source))
    for field, value in (("size_bytes", True), ("loaded", 1), ("embedded", 0), ("digest", None)):
        write_object(kept._entry(source), whole | {field: value})
        assert kept.records() == []
    write_object(kept._entry(source), whole)
    assert len(kept.records()) == 1
    for path in ("a\0b", "\ud800"):
        write_object(kept._entry(source), whole | {"path": path})
        assert [record.file for record in kept.records()] == ["missing"]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path):
    """Loading goes on, nothing is remembered, no temporary file is left."""
    (tmp_path / "file").write_text("in the way")
    kept = History(tmp_path / "file" / "models")
    loaded(kept, tmp_path / "a.gguf")
    assert kept.records() == []
    (tmp_path / "models").mkdir()
    kept = History(tmp_path / "models")
    kept._entry(str(tmp_path / "a.gguf")).mkdir()
    loaded(kept, tmp_path / "a.gguf")
    assert list((tmp_path / "models").glob("*.tmp")) == []
    kept.remember("gone", tmp_path / "gone.gguf", identity("gone.gguf", "d"))
    assert kept.records() == []


def test_a_cache_that_cannot_be_read_is_an_empty_one(kept: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder of another user's hides its entries and is no error."""
    loaded(kept, tmp_path / "a.gguf")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "glob", refuse)
    assert kept.records() == []
    loaded(kept, tmp_path / "b.gguf")


def test_without_a_home_nothing_is_kept_and_everything_works(stand_in: Path, monkeypatch: pytest.MonkeyPatch):
    """As a user without an account and without HOME, in some containers, one can load, ask and list."""

    def homeless(_path: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(homeless))
    with selectrie.load(n_threads=1) as engine:
        assert engine.select("He wears", [" leather", " plate"]).certificate.proved
    (record,) = selectrie.models()
    assert (record.source, record.loaded, record.file) == (str(stand_in), None, "present")
    assert not cache_folder().exists()


def test_many_writers_lose_nothing(tmp_path: Path):
    """While some load different models and some the same one, every look sees whole entries; in the end all are there."""
    path = tmp_path / "a.gguf"
    path.write_bytes(b"weights")

    def work(worker: int) -> bool:
        kept, seen = History(tmp_path / "models"), []
        for i in range(8):
            for source in ("hf:shared/one", f"hf:own/{worker}/{i}"):
                kept.remember(source, path, identity("a.gguf", file_digest(path)))
            seen.append({record.source for record in kept.records()})
        return all({"hf:shared/one", f"hf:own/{worker}/{i}"} <= sources for i, sources in enumerate(seen))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    expected = {f"hf:own/{worker}/{i}" for worker in range(4) for i in range(8)} | {"hf:shared/one"}
    assert {record.source for record in History(tmp_path / "models").records()} == expected


def test_the_oldest_are_dropped_beyond_a_number(kept: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A hundred runs on temporary files do not make a list of a hundred thousand."""
    monkeypatch.setattr(history, "MOST_ENTRIES", 3)
    sources = []
    for i in range(5):
        sources.append(loaded(kept, tmp_path / f"{i}.gguf"))
        os.utime(kept._entry(sources[-1]), ns=(i, i))
    assert [record.source for record in kept.records()] == sources[:1:-1]


def test_entries_are_forgotten_by_source_path_or_absence(
    kept: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """By what the list shows, by a relative path, or all whose files are gone; an unknown name is the caller's mistake."""
    a, b, c = (loaded(kept, tmp_path / name) for name in ("a.gguf", "b.gguf", "c.gguf"))
    kept.remember("hf:own/er/c.gguf", Path(c), identity("c.gguf", file_digest(Path(c))))
    monkeypatch.chdir(tmp_path)
    kept.forget("./a.gguf")
    assert [record.source for record in kept.records()] == ["hf:own/er/c.gguf", c, b]
    kept.forget("hf:own/er/c.gguf")
    with pytest.raises(OptionError, match="a model loaded before"):
        kept.forget(a)
    Path(b).unlink()
    kept.forget_missing()
    assert [record.source for record in kept.records()] == [c]


def test_an_entry_that_cannot_be_removed_is_said(kept: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Who asks to forget must not be told that it was done."""
    source = loaded(kept, tmp_path / "a.gguf")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(InputFileError, match="cannot be removed: Permission denied"):
        kept.forget(source)


def test_the_embedded_model_is_known_before_it_is_loaded(stand_in: Path):
    """Its facts are read off the file; nothing is remembered by looking."""
    (record,) = selectrie.models()
    assert (record.source, record.name, record.path) == (str(stand_in), "embedded.gguf", str(stand_in))
    assert (record.size_bytes, record.digest) == (stand_in.stat().st_size, file_digest(stand_in))
    assert (record.loaded, record.file, record.embedded) == (None, "present", True)
    with selectrie.load(stand_in, n_threads=1) as engine:
        assert record.n_parameters == engine._model.identity.n_parameters > 0
    (after,) = selectrie.models()
    assert after.loaded is not None
    assert (after.n_parameters, after.digest, after.embedded) == (record.n_parameters, record.digest, True)
    stand_in.unlink()
    assert [(r.file, r.embedded, r.size_bytes) for r in selectrie.models()] == [("missing", True, 0)]


def test_an_embedded_model_of_another_version_is_read_anew(stand_in: Path, tiny_model):
    """After an update the list tells of the file that is there now."""
    with selectrie.load(n_threads=1):
        pass
    stand_in.write_bytes(tiny_model("f32", seed=3).read_bytes())
    (record,) = selectrie.models()
    assert (record.file, record.digest) == ("present", file_digest(stand_in))


@pytest.mark.parametrize("n_bytes", [0, 3, 40_000])
def test_an_embedded_model_that_is_damaged_does_not_hide_the_others(stand_in: Path, tiny_model, n_bytes: int):
    """It is listed as changed since it was installed, and what was loaded before follows."""
    with selectrie.load(tiny_model("f32"), n_threads=1):
        pass
    stand_in.write_bytes(stand_in.read_bytes()[:n_bytes])
    own, other = selectrie.models()
    assert (own.file, own.embedded, own.size_bytes, own.digest) == ("changed", True, 0, "")
    assert (other.path, other.file) == (str(tiny_model("f32")), "present")


def test_load_without_a_source_is_the_embedded_model(stand_in: Path):
    """Its name stands in the signature, its self-check is made while it is loaded, and kept."""
    with selectrie.load(n_threads=1) as engine:
        assert engine._check is not None
        answer = engine.select("He wears", [" leather", " plate"])
    assert answer.signature.model == bundled_model.NAME
    assert answer.signature.model_digest == file_digest(stand_in)
    assert len(read_object(cache_folder() / "selfcheck.json")) == 1
    with selectrie.load(n_threads=1, precision="fast") as engine:
        assert engine.tolerance is None


def test_a_missing_embedded_model_says_what_to_do(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package without its file is no mystery."""
    monkeypatch.setattr(bundled_model, "PATH", tmp_path / bundled_model.NAME)
    with pytest.raises(ModelFileError, match="missing from this installation; install selectrie again") as caught:
        selectrie.load()
    assert caught.value.path == str(tmp_path / bundled_model.NAME)
    assert not cache_folder().exists()


def test_every_way_to_load_is_remembered(stand_in: Path, tiny_model, monkeypatch: pytest.MonkeyPatch):
    """A path as it is from the root, a hub file by its name there, a shared `Llama` by its file; a failed load is not."""
    import llama_cpp

    file = tiny_model("f32")
    monkeypatch.chdir(file.parent)
    selectrie.load(file.name, n_threads=1).close()
    monkeypatch.setattr("selectrie.engine.load.download", lambda _source: file)
    selectrie.load("hf:own/er/tiny.gguf", n_threads=1).close()
    llama = llama_cpp.Llama(str(tiny_model("f16")), n_ctx=64, n_threads=1, verbose=False)
    selectrie.load(llama, n_threads=1).close()
    llama.close()
    with pytest.raises(ModelFileError):
        selectrie.load("gone.gguf")
    assert [(record.source, record.path) for record in selectrie.models()[1:]] == [
        (str(tiny_model("f16")), str(tiny_model("f16"))),
        ("hf:own/er/tiny.gguf", str(file)),
        (str(file), str(file)),
    ]


def test_the_embedded_model_of_this_installation_answers(home: Path):
    """The file that ships: at most 8 MB, without quantisation, and at home in signatures."""
    if not bundled_model.PATH.is_file():
        pytest.skip("the embedded model is not there: `make model` makes it")
    assert bundled_model.PATH.stat().st_size <= 8_000_000
    with selectrie.load(n_threads=1) as engine:
        answer = engine.select("The capital of France is", [" Paris", " London"])
    assert (answer.text, answer.signature.model) == (" Paris", bundled_model.NAME)
    assert json.loads(json.dumps(answer.to_dict()))["signature"]["model"] == bundled_model.NAME


@pytest.mark.parametrize(
    ("n", "size", "parameters"),
    [
        (0, "0 B", "0"),
        (999, "999 B", "999"),
        (1_000, "1.0 kB", "1.0 k"),
        (7_922_368, "7.9 MB", "7.9 M"),
        (494_032_768, "494 MB", "494 M"),
        (999_600_000, "1.0 GB", "1.0 B"),
        (7_615_616_512, "7.6 GB", "7.6 B"),
        (9_960_000, "10 MB", "10 M"),
        (5 * 10**15, "5000 TB", "5000 T"),
    ],
)
def test_sizes_are_written_with_two_digits(n: int, size: str, parameters: str):
    """Bytes and parameters in the largest unit that fits."""
    assert (size_words(n), parameters_words(n)) == (size, parameters)
