"""From a source to an engine, and self-checks that are kept."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import threading
from dataclasses import asdict
from pathlib import Path

import llama_cpp
import pytest

import selectrie
from selectrie.core.types import SelfCheck
from selectrie.engine import load
from selectrie.engine.precision_check import assumed
from selectrie.errors import OptionError
from tests.support.weighed import Weighed


def test_a_self_check_is_made_once_for_a_model_and_a_size(tiny_model, tmp_path, monkeypatch, checked):
    """The second engine on the same file takes the check that the first one kept; another batch size has its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tiny_model("f32", seed=7)
    with selectrie.load(path, n_threads=1, n_ctx=256) as engine:
        checked(engine)
        assert engine.self_check == assumed(engine.identity, engine.limits)
    kept = Path.home() / ".cache" / "selectrie" / "selfcheck.json"
    entries = json.loads(kept.read_text())
    with selectrie.load(path, n_threads=1, n_ctx=256) as engine:
        assert asdict(engine.self_check) in entries.values()
        assert engine.self_check.n_rows > 0
    with selectrie.load(path, n_threads=1, n_ctx=256, n_batch=64) as engine:
        assert engine.self_check.n_rows == 0
    assert json.loads(kept.read_text()) == entries


GOOD = {"batch_multiple": 8, "moved": 1e-5, "tolerance": 4e-5, "n_rows": 514}
MODEL = Weighed(1)


@pytest.mark.parametrize(
    "change",
    [
        *({"batch_multiple": value} for value in (0, -8, 1, 7, 128, 2**70, 8.0, True, "8", None, float("inf"))),
        *({"tolerance": value} for value in (float("nan"), -1.0, 0.0, 1e9, 1e-5, float("inf"), "x", 1, [4e-5])),
        *({"moved": value} for value in (float("nan"), -1e-5, 1e9, float("inf"), 0, None)),
        {"moved": 1e9, "tolerance": 4e9},
        *({"n_rows": value} for value in (0, -1, 1.5, 1e400, None)),
        {"more": 1},
    ],
    ids=str,
)
def test_a_kept_check_that_none_could_have_made_counts_for_nothing(tmp_path, change):
    """Wrong types, numbers out of range, a tolerance that does not follow from the move: the check is made anew."""
    file = tmp_path / "selfcheck.json"
    file.write_text(json.dumps({"good": GOOD, "bad": GOOD | change, "short": {"batch_multiple": 8}, "no": 3}))
    kept = load.SelfCheckFile(file)
    assert kept.get("good", MODEL) == SelfCheck(**GOOD)
    assert [kept.get(key, MODEL) for key in ("bad", "short", "no", "missing")] == [None] * 4


def test_a_hostile_cache_breaks_no_load(tiny_model, tmp_path, monkeypatch, checked):
    """A batch_multiple of 0 and a tolerance that settles nothing: both are measured again, and kept."""
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = tmp_path / ".cache" / "selectrie" / "selfcheck.json"
    found = []
    for change in ({}, {"batch_multiple": 0}, {"tolerance": 1e9}):
        if change:
            kept.write_text(json.dumps({key: value | change for key, value in json.loads(kept.read_text()).items()}))
        with selectrie.load(tiny_model("f32"), n_threads=1, n_ctx=256) as engine:
            checked(engine)
        found.append(json.loads(kept.read_text()))
    assert found[0] == found[1] == found[2]


def test_an_engine_that_cannot_be_made_closes_its_model(tiny_model, monkeypatch):
    """Whatever fails after opening, the weights are freed."""
    from selectrie.backends.llama_cpp.model import LlamaModel

    closed = []
    close = LlamaModel.close
    monkeypatch.setattr(LlamaModel, "close", lambda self: (closed.append(True), close(self)))
    monkeypatch.setattr(load.SelfCheckFile, "get", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        selectrie.load(tiny_model("f32"), n_threads=1)
    assert closed == [True]


@pytest.mark.parametrize(
    "options", [{"precision": "sloppy"}, {"n_ctx": 0}, {"n_ctx": 2**32 + 8}, {"n_threads": 0}, {"n_batch": -1}]
)
def test_options_are_checked_before_the_file_is_opened(options):
    """A wrong option is the caller's mistake whether or not the file exists."""
    with pytest.raises(OptionError):
        selectrie.load("nowhere.gguf", **options)


def test_ctrl_c_while_a_model_loads_in_a_thread(tiny_model, monkeypatch):
    """`asyncio.run` ends in `KeyboardInterrupt` once the file is loaded; the engine that is left over is closed."""
    path, plain, before = tiny_model("f32"), llama_cpp.llama_model_load_from_file, set(threading.enumerate())

    def pressed(*args):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return plain(*args)

    async def main():
        await asyncio.to_thread(selectrie.load, path, n_threads=1, n_ctx=32, precision="fast")

    monkeypatch.setattr(llama_cpp, "llama_model_load_from_file", pressed)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(asyncio.wait_for(main(), 60))
    gc.collect()
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(20)
    assert not [thread.name for thread in left if thread.is_alive()]
