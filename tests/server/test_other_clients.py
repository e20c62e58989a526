"""Clients of OpenAI's API as released, each in a process of its own, in the environment that `make build/clients` installs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra 'server'")

from selectrie.engine.load import load
from selectrie.server import app
from tests.support.real_data import real_model
from tests.support.serving import running

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "clients" / "bin" / "python"
CLIENTS = sorted(path.stem.removeprefix("with_") for path in Path(__file__).with_name("clients").glob("with_*.py"))


ENVIRONMENT = os.environ | {
    **dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "DO_NOT_TRACK"), "1"),
    "OPENAI_API_KEY": "none",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # Nothing but the server is asked: whatever else a client looks for gets no connection.
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1",
}
CALLS_TOOLS = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
"""A model that calls a tool where it may as well answer."""


@pytest.fixture(scope="module")
def url(request):
    """A server of the embedded model, or of a real one."""
    path = None if request.param == "embedded" else real_model(request.param)
    with load(path, n_threads=1, precision="fast") as llm, running(app(llm)) as url:
        yield url


@pytest.mark.long
@pytest.mark.skipif(not PYTHON.exists(), reason="needs `make build/clients`")
@pytest.mark.parametrize(
    ("client", "url"), [*((client, "embedded") for client in CLIENTS), ("llm", CALLS_TOOLS)], indirect=["url"]
)
def test_a_client_works_unchanged(client, url):
    """Each case of its script is ok: what it asks for is answered in the form that it reads."""
    script = Path(__file__).with_name("clients") / f"with_{client}.py"
    done = subprocess.run(
        [PYTHON, script, url], capture_output=True, text=True, check=False, timeout=600, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert {name: result for name, result in results.items() if result != "ok"} == {}
    assert len(results) >= 3


def test_every_client_has_cases():
    """The scripts define what they run, and all clients of the environment have one."""
    assert CLIENTS == ["instructor", "langchain", "litellm", "llama_index", "llm", "lm_eval", "openai2", "pydantic_ai"]
    for client in CLIENTS:
        text = (Path(__file__).with_name("clients") / f"with_{client}.py").read_text(encoding="utf-8")
        assert text.count("def case_") >= 3
