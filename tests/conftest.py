"""Fixtures: real data where it is there, generated models always.

`real_data` says where real weights, labels and texts lie. Tests that need them skip by name without them.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import llama_cpp
import pytest
from hypothesis import HealthCheck, settings
from typer.main import get_command

from make_model import make_model
from selectrie.backends.llama_cpp.library import repacks_safely
from selectrie.core.files import cache_folder
from selectrie.core.types import SelfCheck
from selectrie.engine.engine import Engine
from selectrie.engine.load import SelfCheckFile
from selectrie.engine.sources import embedded_file
from tests.support.real_data import REAL_VOCABULARIES, TEST_DATA, most_different, real_file
from tests.support.skip_summary import pytest_terminal_summary  # noqa: F401 - pytest finds hooks by their names here
from tests.support.sweep_plugin import (  # noqa: F401 - as above
    pytest_addoption,
    pytest_configure,
    pytest_pycollect_makeitem,
)

# Images of containers often forbid bytecode. Then each command that a test starts compiles every module it imports, which
# is most of its time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile(
    "selectrie",
    derandomize=True,
    max_examples=32,  # `make test-long` tries four times as many; `explore` looks further, and elsewhere each time
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("long", settings.get_profile("selectrie"), max_examples=128)
settings.register_profile("explore", settings.get_profile("selectrie"), derandomize=False, max_examples=1_000)
settings.load_profile("selectrie")


def pytest_collection_finish() -> None:
    """What the modules of all tests brought stays: no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def test_data() -> Callable[[str], Path]:
    """`test_data("labels/countries.txt")`: the path, or a skip that names the file."""
    return real_file


@pytest.fixture(scope="session")
def weights() -> Callable[[str], Path]:
    """`weights("stories260K.gguf")`: the path of real weights, or a skip that names them."""
    return lambda name: real_file(f"weights/{name}")


@pytest.fixture(scope="session", params=most_different(REAL_VOCABULARIES))
def real_vocabulary(request: pytest.FixtureRequest) -> Path:
    """One after the other, a model with a real tokenizer on random weights."""
    return real_file(f"weights/random_real_vocab/random-{request.param}.gguf")


@pytest.fixture(scope="session")
def real_vocabularies() -> list[Path]:
    """Every model with a real tokenizer; skips where one is not there."""
    return [real_file(f"weights/random_real_vocab/random-{name}.gguf") for name in REAL_VOCABULARIES]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_model("q8_0")`: path of a generated model with random weights and a byte-level tokenizer, made once a session.

    f32, f16, q8_0: 2 layers, width 64, 512 tokens; q4_0, q4_k_m: width 256, 768 tokens (`shape="wide"`, for any of them).
    Other shapes: "sliding-window" (16 tokens, layout of Gemma 3), "recurrent" (Mamba), "hybrid" (LFM2), each in f32.
    BOS `<|begin|>` is added, `<|endoftext|>` and `<|im_end|>` end a generation, the chat template is ChatML; context 1024.
    """
    folder = tmp_path_factory.mktemp("models")

    def make(quantisation: str = "f32", *, shape: str | None = None, seed: int = 1) -> Path:
        shape = shape or ("wide" if quantisation.startswith("q4") else "tiny")
        path = folder / f"{shape}-{quantisation}-{seed}.gguf"
        return path if path.exists() else make_model(path, shape=shape, quantisation=quantisation, seed=seed)

    return make


@pytest.fixture(scope="session")
def embedded() -> Path:
    """The model that comes with selectrie: trained, 3.5 M weights in f16, context 1024, ChatML."""
    return embedded_file()


@pytest.fixture(scope="session")
def any_model(tiny_model: Callable[..., Path]) -> Path:
    """A small attention model in f32, in which layout moves a score by less than 1e-4: trained where there is one, else random."""
    path = Path(TEST_DATA, "weights", "stories260K.gguf")
    return path if TEST_DATA and path.exists() else tiny_model("f32", shape="wide")


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A home of the session's own: what selectrie remembers between runs (`~/.cache`) is neither read nor written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in ("MODEL", "PRECISION", "THREADS"):
            patch.delenv(f"SELECTRIE_{name}", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _interrupts_are_heard() -> Iterator[None]:
    """A shell that starts the tests in the background lets them ignore Ctrl-C, and their child processes too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def _no_kernels_that_end_the_process() -> Iterator[None]:
    """Where weights cannot be repacked safely, plain llama.cpp does not do so either."""
    plain = llama_cpp.llama_model_default_params

    def safe() -> object:
        params = plain()
        params.use_extra_bufts = params.use_extra_bufts and repacks_safely()
        return params

    with pytest.MonkeyPatch.context() as patch:
        for module in (llama_cpp, llama_cpp.llama_cpp):
            patch.setattr(module, "llama_model_default_params", safe)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_tree_of_commands() -> Iterator[None]:
    """Typer's runner makes all commands anew for each call, which takes longer than most calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Engine], None]:
    """`checked(engine)` lets an engine answer once and leaves it alone until it has made and kept its self-check."""
    arrived, put, awaited = threading.Event(), SelfCheckFile.put, [""]

    def note(file: SelfCheckFile, key: str, check: SelfCheck) -> None:
        put(file, key, check)
        if awaited[0] in key and file._path == cache_folder() / "selfcheck.json":  # an idle engine may keep its own
            arrived.set()

    monkeypatch.setattr("selectrie.engine.scheduler.model_thread._IDLE_S", 0.0)
    monkeypatch.setattr(SelfCheckFile, "put", note)

    def of(engine: Engine) -> None:
        arrived.clear()
        awaited[0] = engine.identity.digest
        engine.score("a", "b")
        assert arrived.wait(60)

    return of
