"""Untrusted files, which may end the process: opened in a child first, and marked once
they came through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import gguf
import llama_cpp
import pytest

import selectrie
from selectrie.backends.llama_cpp_entry import LLAMA_CPP
from selectrie.core.types import Precision
from selectrie.engine import trial, trial_child
from selectrie.engine.trial import try_file
from selectrie.errors import ModelFileError, OptionError, UnsupportedModelError

NO_NUMBER = gguf.GGMLQuantizationType.I32


def marks() -> Path:
    return Path.home() / ".cache" / "selectrie" / "selfcheck.json"


@pytest.fixture(autouse=True)
def _own_marks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home without marks."""
    monkeypatch.setenv("HOME", str(tmp_path))


def with_another_type(source: Path, target: Path, tensor: str) -> Path:
    """A copy whose norm is said to be of whole numbers: as many bytes, and llama.cpp
    multiplies no such."""
    data = bytearray(source.read_bytes())
    place = data.index(tensor.encode()) + len(tensor)
    at = place + 4 + 8 * int.from_bytes(data[place : place + 4], "little")
    data[at : at + 4] = int(NO_NUMBER).to_bytes(4, "little")
    target.write_bytes(data)
    return target


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that a child was to open; every one of them comes through, and no
    process is started."""
    asked: list[Path] = []
    monkeypatch.setattr(trial, "_opens_in_child", lambda path, *_: asked.append(path) or True)
    return asked


def test_a_file_is_opened_in_a_child_once(tiny_model, tmp_path, monkeypatch):
    """The child imports nothing from the folder that the caller stands in, and opens a
    relative path there; its success is kept."""
    begun = []
    plain = trial._run
    monkeypatch.setattr(trial, "_run", lambda *args: begun.append(args) or plain(*args))
    (tmp_path / "numpy.py").write_text("raise SystemExit(7)")
    (tmp_path / "m.gguf").write_bytes(tiny_model("f32").read_bytes())
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with selectrie.load("m.gguf", n_threads=1, untrusted=True) as engine:
            assert engine.vocabulary.n_tokens == 512
    assert len(begun) == 1
    (entry,) = json.loads(marks().read_text()).items()
    assert "opened in a child process" in entry[0]
    assert entry[1] == {"opened": True}


@pytest.mark.parametrize(("options", "n"), [({}, 0), ({"untrusted": False}, 0), ({"untrusted": True}, 1)])
def test_who_is_tried_and_how_often(tiny_model, children, options, n):
    """Of two loads: untrusted files are tried once, others never."""
    for _ in range(2):
        selectrie.load(tiny_model("f32"), n_threads=1, **options).close()
    assert len(children) == n


def test_what_is_vouched_for_is_not_tried(tiny_model, children):
    """The embedded model and an open `Llama`, whatever is asked for."""
    import llama_cpp

    llama = llama_cpp.Llama(str(tiny_model("f32")), n_ctx=64, n_threads=1, verbose=False)
    for source in (None, llama):
        selectrie.load(source, n_threads=1, precision="fast", untrusted=True).close()
    llama.close()
    assert children == []


@pytest.mark.parametrize("value", [1, 0, "yes", None])
def test_trust_is_yes_or_no(value):
    """Numbers and words are no answer; nothing is opened."""
    with pytest.raises(OptionError, match="untrusted"):
        selectrie.load("nowhere.gguf", untrusted=value)


def test_another_file_under_a_name_is_a_new_file(tiny_model, tmp_path, children):
    """The mark is of what a file holds; a damaged or forged cache marks nothing."""
    path = tmp_path / "m.gguf"
    for seed in (1, 2, 1):
        path.write_bytes(tiny_model("f32", seed=seed).read_bytes())
        try_file(path, LLAMA_CPP, Precision.EXACT, marks())
    assert len(children) == 2
    kept = json.loads(marks().read_text())
    for value in (True, {}, {"opened": 1.5}, {"opened": False}, ["opened"], None):
        marks().write_text(json.dumps(dict.fromkeys(kept, value)))
        try_file(path, LLAMA_CPP, Precision.EXACT, marks())
    assert len(children) == 8


def test_all_parts_of_a_model_are_one_file(tiny_model, tmp_path, children):
    """A part that changes makes it a new one."""
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    first.write_bytes(tiny_model("f32").read_bytes())
    for content in (b"one", b"one", b"two"):
        second.write_bytes(content)
        try_file(first, LLAMA_CPP, Precision.EXACT, marks())
    assert len(children) == 2


def test_without_a_place_for_marks_every_load_is_tried(tiny_model, children, monkeypatch):
    """A cache that cannot be written is no error."""
    monkeypatch.setenv("HOME", os.devnull)
    for _ in range(2):
        selectrie.load(tiny_model("f32"), n_threads=1, untrusted=True).close()
    assert len(children) == 2


def test_a_file_that_ends_the_child_does_not_end_the_caller(tiny_model, tmp_path):
    """What nobody foresaw: the error quotes llama.cpp's last words, the file is not
    marked."""
    path = with_another_type(tiny_model("f32"), tmp_path / "m.gguf", "blk.0.attn_norm.weight")
    with pytest.raises(ModelFileError, match=r"ended a child process \(SIG[A-Z]+") as caught:
        selectrie.load(path, n_threads=1, untrusted=True)
    assert caught.value.path == str(path)
    assert not marks().exists()


def test_an_error_of_the_child_is_the_callers(tiny_model, tmp_path):
    """Class, path and reason are those that opening the file would have raised."""
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_model("f32").read_bytes()[:-1000])
    for untrusted in (True, False):
        with pytest.raises(ModelFileError, match="is corrupted or incomplete") as caught:
            selectrie.load(path, n_threads=1, untrusted=untrusted)
        assert caught.value.path == str(path)


def test_errors_are_told_and_raised_again():
    """Each class of a model's errors comes out of the child with its attributes;
    nonsense is no success."""
    for error in (ModelFileError("p", "r"), UnsupportedModelError("n", "r"), selectrie.errors.ModelError("all of it")):
        with pytest.raises(type(error)) as caught:
            trial._raise_reported(Path("p"), json.dumps(trial.report_of(error)))
        assert str(caught.value) == str(error)
    for said in ("", "[]", "{"):
        with pytest.raises(ModelFileError, match="ended without a report"):
            trial._raise_reported(Path("p"), said)
    trial._raise_reported(Path("p"), "{}\n")


def test_the_child_opens_a_file_as_the_caller_does(tiny_model, monkeypatch):
    """Repacked weights take as much memory again: the child repacks if the caller does."""
    path, repacks, plain = tiny_model("f32"), [], llama_cpp.llama_model_load_from_file
    for safely in (True, False):
        defaults = llama_cpp.llama_model_default_params()
        defaults.use_extra_bufts = True
        monkeypatch.setattr(llama_cpp, "llama_model_default_params", lambda defaults=defaults: defaults)
        monkeypatch.setattr("selectrie.backends.llama_cpp.weights.repacks_safely", lambda safely=safely: safely)
        monkeypatch.setattr(
            llama_cpp,
            "llama_model_load_from_file",
            lambda path, params: repacks.append(params.use_extra_bufts) or plain(path, params),
        )
        trial_child.open_and_decode(LLAMA_CPP, path, Precision.EXACT)
        selectrie.load(path, n_threads=1, n_ctx=32, precision="fast", untrusted=False).close()
    assert repacks == [True, True, False, False]


def test_a_child_that_takes_too_long_is_ended(tiny_model, monkeypatch):
    """The error says how long it was waited for, and how to do without."""
    monkeypatch.setattr(trial, "MIN_S", 0.0)
    monkeypatch.setattr(trial, "BYTES_PER_S", 1e30)
    with pytest.raises(ModelFileError, match=r"within 0 s; .*untrusted=False"):
        selectrie.load(tiny_model("f32"), n_threads=1, untrusted=True)


@pytest.mark.parametrize("executable", ["", "/bin/true", "/nowhere/python", None])
def test_where_no_child_can_be_started_an_untrusted_file_is_not_opened(tiny_model, monkeypatch, executable):
    """An embedded interpreter, another program, a frozen one: other files are opened."""
    if executable is None:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    else:
        monkeypatch.setattr(sys, "executable", executable)
    selectrie.load(tiny_model("f32"), n_threads=1).close()
    with pytest.raises(OptionError, match=r"untrusted=True: .*no child process"):
        selectrie.load(tiny_model("f32"), n_threads=1, untrusted=True)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_while_the_child_runs_ends_both(tiny_model, tmp_path, monkeypatch):
    """Ctrl-C is the caller's `KeyboardInterrupt`; the child is gone, and waited for."""
    hanging = tmp_path / "python"
    hanging.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nkill -INT $PPID\nexec sleep 600\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hanging))
    with pytest.raises(KeyboardInterrupt):
        selectrie.load(tiny_model("f32"), n_threads=1, untrusted=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_child_leaves_no_core_file_and_ends_in_time():
    """It sets its limits before it touches the file, whatever the caller's are."""
    pytest.importorskip("resource")
    code = (
        "import resource, signal; from selectrie.engine.trial_child import _limit_process; _limit_process(100.2);"
        "print(resource.getrlimit(resource.RLIMIT_CORE)[0], signal.alarm(0) > 0,"
        " signal.getsignal(signal.SIGINT) is signal.SIG_DFL)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["0", "True", "True"]


@pytest.mark.parametrize(
    ("code", "stderr", "words"),
    [
        (-6, "x\nops.cpp:4132: GGML_ASSERT(eps >= 0.0f) failed\nframe", "(SIGABRT: ops.cpp:4132: GGML_ASSERT"),
        (-6, "terminate called\n  what():  _Map_base::at\n", "what():  _Map_base::at)"),
        (-11, "", "(SIGSEGV); get the file again"),
        (-9, "", "(SIGKILL); free memory, get the file again, or open it without a child process (untrusted=False)"),
        (3, "bad \x1b[31mnews\n\n", "(exit 3: bad [31mnews)"),
    ],
)
def test_the_last_words_of_a_child(code, stderr, words):
    """The signal by its name, the assertion where there is one, nothing that moves a
    cursor."""
    assert words in trial._crash_message(code, stderr, "get the file again")


def test_a_child_starts_where_the_package_lies():
    """`python -m` looks there first: within the package, its `version` and `errors` would stand for those of others."""
    assert (trial._FOLDER / "selectrie" / "__init__.py").is_file()


def test_a_child_that_is_killed_before_it_says_anything_is_no_missing_child(tiny_model, tmp_path, monkeypatch):
    """Where memory ends while the child imports its modules, the file is not opened unguarded."""
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_model("f32").read_bytes())
    monkeypatch.setattr(trial, "_run", lambda *_: (-9, "", ""))
    with pytest.raises(ModelFileError, match=r"ended a child process \(SIGKILL\); free memory"):
        try_file(path, LLAMA_CPP, Precision.EXACT, tmp_path / "marks.json")
