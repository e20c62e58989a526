"""Sources of the Hugging Face hub: what is asked for, what is taken from the cache, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from selectrie.engine import sources
from selectrie.engine.sources import HubSource, download, download_tokenizer
from selectrie.errors import MissingExtraError, ModelFileError, OptionError, UnsupportedModelError

ROOT = Path(__file__).resolve().parents[2]
SPLIT = ["b/m-Q8_0-00001-of-00002.gguf", "b/m-Q8_0-00002-of-00002.gguf"]
NAMES = [
    "README.md",
    "m-Q4_K_M.gguf",
    "m-Q4_K_S.gguf",
    "m-IQ4_XS.gguf",
    "m.f16.gguf",
    "mmproj-m-f16.gguf",
    "q5_1/weights.gguf",
    *SPLIT,
]


class HubError(OSError):
    """The hub answered, and said no."""


class Hub:
    """A huggingface_hub that remembers what it was asked for.

    files: What the repository holds; in the cache lies what `cached` names.
    down: Raised where the hub is asked, or None.
    """

    def __init__(self, folder: Path, files: list[str], cached: list[str], down: Exception | None) -> None:
        self.folder, self.files, self.cached, self.down = folder, files, cached, down
        self.asked: list[tuple[str, bool]] = []
        self.snapshots: list[tuple[list[str], bool]] = []
        self.gone: set[str] = set()
        self.errors = SimpleNamespace(HfHubHTTPError=HubError, FileMetadataError=HubError)
        self.CacheNotFound = type("CacheNotFound", (Exception,), {})

    def hf_hub_url(self, repository: str, name: str) -> str:
        return f"{repository}/{name}"

    def get_hf_file_metadata(self, url: str, timeout: float) -> None:
        assert timeout <= 10
        if self.down is not None:
            raise self.down

    def model_info(self, repository: str, timeout: float) -> SimpleNamespace:
        assert (repository, timeout <= 10) == ("owner/repo", True)
        if self.down is not None:
            raise self.down
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in self.files])

    def hf_hub_download(self, repository: str, name: str, *, local_files_only: bool = False) -> str:
        assert repository == "owner/repo"
        self.asked.append((name, local_files_only))
        if name not in (self.cached if local_files_only else self.files):
            raise HubError(f"404: no {name}\nlong story")
        return str(self.folder / name)

    def snapshot_download(self, repository: str, *, allow_patterns: list[str], local_files_only: bool) -> str:
        assert repository == "owner/repo"
        self.snapshots.append((sorted(allow_patterns), local_files_only))
        for name in {*allow_patterns}.intersection(self.cached if local_files_only else self.files) - self.gone:
            (self.folder / name).touch()
        return str(self.folder)

    def scan_cache_dir(self) -> SimpleNamespace:
        if not self.cached:
            raise self.CacheNotFound
        other = SimpleNamespace(repo_type="dataset", repo_id="owner/repo", revisions=[])
        files = [SimpleNamespace(file_path=self.folder / name) for name in self.cached]
        revisions = [
            SimpleNamespace(refs={"main"}, snapshot_path=self.folder, files=files),
            SimpleNamespace(refs=set(), snapshot_path=None, files=None),
        ]
        return SimpleNamespace(
            repos=[other, SimpleNamespace(repo_type="model", repo_id="owner/repo", revisions=revisions)]
        )


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Puts a hub in place of huggingface_hub."""

    def make(files: list[str], cached: list[str] = [], down: Exception | None = None) -> Hub:  # noqa: B006
        made = Hub(tmp_path, files, cached, down)
        monkeypatch.setitem(sys.modules, "huggingface_hub", made)
        return made

    return make


# A file by its name


def test_a_hub_file_is_asked_for_by_repository_and_name(stand_in, tmp_path):
    """`hf:owner/repo/dir/file.gguf` is the file `dir/file.gguf` of `owner/repo`."""
    made = stand_in(["dir/file.gguf"])
    assert download("hf:owner/repo/dir/file.gguf") == tmp_path / "dir" / "file.gguf"
    assert made.asked == [("dir/file.gguf", False)]


@pytest.mark.parametrize(
    "source",
    [
        "hf:",
        "hf:owner",
        "hf:owner/",
        "hf:/repo",
        "hf:owner//file.gguf",
        "hf:owner/repo/",
        "hf:owner/repo:",
        "hf:owner/:Q4_0",
        "hf:owner/repo:Q4_0/file.gguf",
    ],
)
def test_a_source_of_another_form_is_refused(source):
    """The forms are named; nothing is downloaded."""
    with pytest.raises(
        OptionError, match=r"hf:owner/repo for a checkpoint, hf:owner/repo/file\.gguf, or hf:owner/repo:QUANTISATION"
    ):
        download(source)


@pytest.mark.parametrize(
    ("text", "repository", "file", "quantisation"),
    [
        ("hf:o/r/f.gguf", "o/r", "f.gguf", None),
        ("hf:o/r/d/f:1.gguf", "o/r", "d/f:1.gguf", None),
        ("hf:o/r:Q4_K_M", "o/r", None, "Q4_K_M"),
        ("hf:o/r", "o/r", None, None),
    ],
)
def test_forms_are_taken_apart(text, repository, file, quantisation):
    """Repository, then a file, a quantisation, or nothing."""
    assert HubSource.parse(text) == HubSource(text, repository, file, quantisation)


def test_being_offline_is_one_clear_error(stand_in):
    """The hub is asked once; the first line of the reason is kept, with what to do."""
    made = stand_in(["dir/file.gguf"], [], RuntimeError("Connection refused\nlong story"))
    with pytest.raises(ModelFileError) as caught:
        download("hf:owner/repo/dir/file.gguf")
    assert made.asked == [("dir/file.gguf", True)]
    assert "Connection refused" in str(caught.value)
    assert "long story" not in str(caught.value)
    assert "local file" in str(caught.value)


def test_what_is_in_the_cache_is_taken_without_a_network(stand_in, tmp_path):
    """Offline the cached file is the model's."""
    stand_in([], ["dir/file.gguf"], ConnectionError("offline"))
    assert download("hf:owner/repo/dir/file.gguf") == tmp_path / "dir" / "file.gguf"


def test_a_hub_that_says_no_is_asked_to_the_end(stand_in):
    """A file that is not there, or gated, is the hub's own error."""
    stand_in([], [], HubError("403"))
    with pytest.raises(ModelFileError, match=r"\(404: no dir/file.gguf\)"):
        download("hf:owner/repo/dir/file.gguf")


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    """Without huggingface_hub the error says what to install."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for source in ("hf:owner/repo/file.gguf", "hf:owner/repo:Q4_K_M", "hf:owner/repo"):
        with pytest.raises(MissingExtraError, match=r"selectrie\[hf\]"):
            download(source)


@pytest.mark.parametrize("name", SPLIT)
def test_all_parts_of_a_split_model_are_downloaded_and_the_first_is_opened(stand_in, tmp_path, name):
    """Whichever is named."""
    made = stand_in(NAMES)
    assert download(f"hf:owner/repo/{name}") == tmp_path / SPLIT[0]
    assert made.asked == [(part, False) for part in SPLIT]


# A file by its quantisation


@pytest.mark.parametrize(
    ("quantisation", "name"),
    [
        ("Q4_K_M", "m-Q4_K_M.gguf"),
        ("q4_k_m", "m-Q4_K_M.gguf"),
        ("IQ4_XS", "m-IQ4_XS.gguf"),
        ("F16", "m.f16.gguf"),
        ("Q5_1", "q5_1/weights.gguf"),
        ("Q8_0", SPLIT[0]),
    ],
)
def test_a_quantisation_names_one_file(stand_in, tmp_path, quantisation, name):
    """In any case, in the file's name or else in its folder's; a projector is no model, parts are one."""
    made = stand_in(NAMES)
    assert download(f"hf:owner/repo:{quantisation}") == tmp_path / name
    assert made.asked == [(part, False) for part in (SPLIT if name == SPLIT[0] else [name])]


@pytest.mark.parametrize("quantisation", ["Q4_K", "Q4_XS", "4_K_M", "Q9", "Q4.K.M", "["])
def test_a_quantisation_that_no_file_has_lists_the_files(stand_in, quantisation):
    """As sources to paste; a part of a word is not the word, and no pattern."""
    made = stand_in(NAMES)
    with pytest.raises(OptionError) as caught:
        download(f"hf:owner/repo:{quantisation}")
    assert str(caught.value) == (
        f"model='hf:owner/repo:{quantisation}': expected a quantisation of this repository, or one of its files: "
        "hf:owner/repo/b/m-Q8_0-00001-of-00002.gguf, hf:owner/repo/m-IQ4_XS.gguf, hf:owner/repo/m-Q4_K_M.gguf, "
        "hf:owner/repo/m-Q4_K_S.gguf, hf:owner/repo/m.f16.gguf, hf:owner/repo/q5_1/weights.gguf"
    )
    assert made.asked == []


def test_a_quantisation_that_several_files_have_lists_them(stand_in):
    """And only them."""
    stand_in(["a-Q4_0.gguf", "b-q4_0.gguf", "a-Q8_0.gguf"])
    with pytest.raises(
        OptionError, match=r"one of these files: hf:owner/repo/a-Q4_0\.gguf, hf:owner/repo/b-q4_0\.gguf$"
    ):
        download("hf:owner/repo:Q4_0")


# A repository alone


CHECKPOINT = ["config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json"]


@pytest.fixture
def packages(monkeypatch):
    """The packages of every back end, as if they were here."""
    monkeypatch.setattr("selectrie.backends.entry.find_spec", lambda name: name)


@pytest.mark.usefixtures("packages")
def test_a_checkpoint_is_downloaded_without_code_or_pickles(stand_in, tmp_path):
    """Its own files and nothing else, also where GGUF files lie beside it; a quantisation still names one of those."""
    others = ["model.py", "pytorch_model.bin", "README.md", "onnx/model.safetensors", "m-Q8_0.gguf"]
    made = stand_in([*CHECKPOINT, *others])
    assert download("hf:owner/repo") == tmp_path
    assert made.snapshots == [(sorted(CHECKPOINT), False)]
    assert made.asked == []
    assert download("hf:owner/repo:Q8_0") == tmp_path / "m-Q8_0.gguf"


@pytest.mark.usefixtures("packages")
def test_a_checkpoint_has_no_quantisation(stand_in):
    """What names one where there is nothing else is told so."""
    made = stand_in(CHECKPOINT)
    with pytest.raises(OptionError, match=r"expected hf:owner/repo, as the repository is a checkpoint"):
        download("hf:owner/repo:Q4_K_M")
    assert made.snapshots == []


def test_of_a_tokenizer_no_weights_are_downloaded(stand_in, tmp_path):
    """Configuration and tokenizer alone; a file is downloaded as it is, and a repository without a tokenizer is named."""
    made = stand_in([*CHECKPOINT, "tokenizer_config.json", "pytorch_model.bin", "m-Q8_0.gguf"])
    assert download_tokenizer("hf:owner/repo") == tmp_path
    assert made.snapshots == [(["config.json", "tokenizer.json", "tokenizer_config.json"], False)]
    assert download_tokenizer("hf:owner/repo:Q8_0") == tmp_path / "m-Q8_0.gguf"
    made.files = ["config.json", "model.safetensors"]
    with pytest.raises(ModelFileError, match="has no tokenizer"):
        download_tokenizer("hf:owner/repo")


def test_pickles_are_refused_before_anything_is_downloaded(stand_in):
    """Files that can be opened are listed instead where there are some."""
    made = stand_in(["config.json", "pytorch_model.bin"])
    with pytest.raises(UnsupportedModelError, match=r"^hf:owner/repo.* pickles \(pytorch_model\.bin\)"):
        download("hf:owner/repo")
    made.files = [*made.files, "m-Q8_0.gguf"]
    with pytest.raises(OptionError, match=r"expected one of its files: hf:owner/repo/m-Q8_0\.gguf$"):
        download("hf:owner/repo")
    assert (made.asked, made.snapshots) == ([], [])


def test_a_missing_extra_is_named_before_a_checkpoint_is_downloaded(stand_in, monkeypatch):
    """Gigabytes that cannot be opened are not fetched."""
    monkeypatch.setattr("selectrie.backends.entry.find_spec", lambda _name: None)
    made = stand_in(CHECKPOINT)
    with pytest.raises(MissingExtraError, match=r"selectrie\[transformers\]"):
        download("hf:owner/repo")
    assert made.snapshots == []


@pytest.mark.usefixtures("packages")
def test_offline_a_checkpoint_comes_from_the_cache(stand_in, tmp_path):
    """A part of it that is not there is named."""
    made = stand_in([], CHECKPOINT, ConnectionError("offline"))
    assert download("hf:owner/repo") == tmp_path
    assert made.snapshots == [(sorted(CHECKPOINT), True)]
    (tmp_path / "tokenizer.json").unlink()
    made.gone = {"tokenizer.json"}
    with pytest.raises(ModelFileError, match=r"^hf:owner/repo: tokenizer\.json cannot be had \(these are in the cache"):
        download("hf:owner/repo")


def test_a_repository_of_gguf_files_lists_them(stand_in):
    """Also where a config.json without weights lies beside them."""
    stand_in(["config.json", "m-Q8_0.gguf", "m-Q4_0.gguf"])
    with pytest.raises(
        OptionError, match=r"expected one of its files: hf:owner/repo/m-Q4_0\.gguf, hf:owner/repo/m-Q8_0\.gguf$"
    ):
        download("hf:owner/repo")


@pytest.mark.parametrize("source", ["hf:owner/repo", "hf:owner/repo:Q4_K_M"])
def test_a_repository_without_a_model_says_what_is_opened(stand_in, source):
    """A projector alone is none."""
    stand_in(["README.md", "mmproj-f16.gguf"])
    with pytest.raises(ModelFileError, match="holds nothing that this version opens; it opens a GGUF file"):
        download(source)


# Offline


def test_offline_the_cache_is_the_repository(stand_in, tmp_path):
    """A quantisation, its parts, and the list of an error; the error says that there may be more."""
    down = ConnectionError("offline\nlong story")
    made = stand_in(NAMES, [*SPLIT, "m-Q4_0.gguf"], down)
    assert download("hf:owner/repo:Q8_0") == tmp_path / SPLIT[0]
    assert made.asked == [(part, True) for part in SPLIT]
    with pytest.raises(OptionError, match=r"m-Q4_0\.gguf \(these are in the cache; the hub gave no list: offline\)$"):
        download("hf:owner/repo:Q4_K_M")
    with pytest.raises(OptionError, match=r"one of its files: .*m-Q4_0\.gguf \(these are in the cache"):
        download("hf:owner/repo")


def test_offline_a_part_that_is_missing_is_an_error(stand_in):
    """Half a model is none."""
    stand_in(NAMES, SPLIT[:1], ConnectionError("offline"))
    with pytest.raises(ModelFileError, match=r"is not in the cache \(offline\)"):
        download("hf:owner/repo:Q8_0")


@pytest.mark.parametrize("source", ["hf:owner/repo", "hf:owner/repo:Q4_K_M"])
def test_offline_without_a_cache_is_one_clear_error(stand_in, source):
    """The reason is the hub's."""
    stand_in(NAMES, [], RuntimeError())
    with pytest.raises(ModelFileError, match=r"^hf:owner/repo.*not in the cache \(RuntimeError\); check the name"):
        download(source)


# huggingface_hub itself


COMMIT = "c0ffee" + "0" * 34


class Handler(BaseHTTPRequestHandler):
    """A hub of one repository."""

    def __init__(self, files: dict[str, bytes], *args: object) -> None:
        self.files = files
        super().__init__(*args)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.split("?")[0]
        resolved = f"/owner/repo/resolve/{COMMIT if COMMIT in path else 'main'}/"
        if path.removesuffix("/revision/main") == "/api/models/owner/repo":
            names = [{"rfilename": name} for name in self.files]
            body = json.dumps({"id": "owner/repo", "sha": COMMIT, "siblings": names}).encode()
        elif path == f"/api/models/owner/repo/tree/{COMMIT}":
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": sha256(data).hexdigest()}
                for name, data in self.files.items()
            ]
            body = json.dumps(tree).encode()
        elif path.startswith(resolved) and path.removeprefix(resolved) in self.files:
            body = self.files[path.removeprefix(resolved)]
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@contextmanager
def served(files: dict[str, bytes]) -> Iterator[str]:
    """The address of a hub that serves these files of owner/repo."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, files)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


ASK = """
import sys
from selectrie.engine.sources import download
from selectrie.errors import SelectrieError
for source in sys.argv[1:]:
    try:
        print(download(source).read_bytes().decode())
    except SelectrieError as error:
        print(type(error).__name__, error)
"""


def test_the_hubs_own_client_gives_the_same(tmp_path):
    """Each form against a server on this machine, then with the server gone and with the client told to be offline."""
    pytest.importorskip("huggingface_hub")
    sources = ["hf:owner/repo/m-Q4_0.gguf", "hf:owner/repo:q8_0", "hf:owner/repo", "hf:owner/repo:Q2_K"]
    files = {"m-Q4_0.gguf": b"four", SPLIT[0]: b"eight", SPLIT[1]: b"more", "config.json": b"{}", "x-F16.gguf": b"x"}

    def ask(address: str, **more: str) -> list[str]:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "HF_ENDPOINT": address, "HF_HOME": str(tmp_path)}
        environment.pop("HF_HUB_OFFLINE", None)  # which other tests set for this process
        command = [sys.executable, "-c", ASK, *sources]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment | more)
        return done.stdout.splitlines()

    with served(files) as address:
        lines = ask(address)
        assert lines[:2] == ["four", "eight"]
        assert lines[2].startswith("OptionError model='hf:owner/repo': expected one of its files: ")
        assert lines[3].endswith("hf:owner/repo/x-F16.gguf")
    for more in ({}, {"HF_HUB_OFFLINE": "1"}):
        lines = ask(address, **more)
        assert lines[:2] == ["four", "eight"]
        for line in lines[2:]:
            assert "hf:owner/repo/m-Q4_0.gguf (these are in the cache; the hub gave no list: " in line
            assert "F16" not in line


def test_the_branch_is_that_of_the_list():
    """What `models` lists under a source of the hub is what that source loads."""
    assert (sources.PREFIX, sources.MAIN) == ("hf:", "main")


@pytest.mark.parametrize(
    "file",
    ["model.safetensors", "part/model-00001-of-00002.SAFETENSORS", "model.safetensors.index.json", "config.json"],
)
def test_a_part_of_a_checkpoint_is_refused_before_anything_is_downloaded(monkeypatch, file):
    """With the source that opens the checkpoint; the hub's client is not even imported."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(OptionError) as caught:
        download(f"hf:owner/repo/{file}")
    expected = "expected hf:owner/repo, as a checkpoint is opened with all its files"
    assert str(caught.value) == f"model={f'hf:owner/repo/{file}'!r}: {expected}"
