"""simonw's `llm`, as a command: chats, streams, completions, `--schema`, and tools (`-T`, `--functions`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cases import MODEL, run

FUNCTIONS = (
    "def look_up(number: str) -> str:\n    'Look up an order.'\n    return 'Order ' + number + ' is in Paris.'\n"
)


def llm(url: str, *arguments: str) -> str:
    """The output of the command, on models of a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        chat = f"- model_id: chat\n  model_name: {MODEL}\n  api_base: {url}/v1\n  supports_schema: true\n  supports_tools: true\n"
        text = f"- model_id: text\n  model_name: {MODEL}\n  api_base: {url}/v1\n  completion: true\n"
        Path(folder, "extra-openai-models.yaml").write_text(chat + text)
        command = [sys.executable, "-m", "llm", *arguments, "--no-log", "-o", "max_tokens", "48", "--key", "none"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"LLM_USER_PATH": folder},
            stdin=subprocess.DEVNULL,
        )
    assert done.returncode == 0, done.stderr[-800:]
    return done.stdout


def case_chat(url: str) -> None:
    assert llm(url, "-m", "chat", "Say hello.", "--no-stream").strip()


def case_stream(url: str) -> None:
    assert llm(url, "-m", "chat", "Say hello.").strip()


def case_completion(url: str) -> None:
    assert llm(url, "-m", "text", "Once upon a time").strip()


def case_schema(url: str) -> None:
    schema = {"type": "object", "properties": {"urgent": {"type": "boolean"}}, "required": ["urgent"]}
    for how in ([], ["--no-stream"]):
        found = json.loads(llm(url, "-m", "chat", "My parcel is late.", "--schema", json.dumps(schema), *how))
        assert isinstance(found["urgent"], bool)


def case_tools(url: str) -> None:
    llm(url, "-m", "chat", "Where is order A1?", "--functions", FUNCTIONS, "--cl", "1", "--no-stream")


def case_installed_tools(url: str) -> None:
    llm(url, "-m", "chat", "What time is it?", "-T", "llm_time", "--cl", "1")


if __name__ == "__main__":
    run(globals())
