"""simonw's `llm`, as a command: chats, streams, completions, `--schema`, and tools (`-T`, `--functions`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from cases import MODEL, run

FUNCTIONS = (
    "def look_up(number: str) -> str:\n    'Look up an order.'\n    return 'Order ' + number + ' is in Paris.'\n"
)


def command(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command, on models of a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        chat = f"- model_id: chat\n  model_name: {MODEL}\n  api_base: {url}/v1\n  supports_schema: true\n  supports_tools: true\n"
        text = f"- model_id: text\n  model_name: {MODEL}\n  api_base: {url}/v1\n  completion: true\n"
        Path(folder, "extra-openai-models.yaml").write_text(chat + text)
        words = [
            sys.executable,
            "-m",
            "llm",
            *arguments,
            "--no-log",
            "-o",
            "max_tokens",
            "48",
            "-o",
            "temperature",
            "0",
            "--key",
            "none",
        ]
        environment = os.environ | {"LLM_USER_PATH": folder}
        return subprocess.run(
            words, capture_output=True, text=True, check=False, env=environment, stdin=subprocess.DEVNULL
        )


def llm(url: str, *arguments: str) -> str:
    """The output of a command that succeeds."""
    done = command(url, *arguments)
    assert done.returncode == 0, done.stderr[-800:]
    return done.stdout


def calls(url: str, name: str, *arguments: str) -> None:
    """Check that a tool is called, perhaps until the command's limit; the embedded model knows nothing of tools, and answers."""
    done = command(url, "-m", "chat", *arguments, "--td", "--cl", "2")
    assert done.returncode == 0 or "Chain limit of 2 exceeded" in done.stderr, done.stderr[-800:]
    assert f"Tool call: {name}(" in done.stderr or (done.stdout.strip() and is_embedded(url)), done.stdout[-800:]


def is_embedded(url: str) -> bool:
    """Whether the server has the embedded model."""
    with urllib.request.urlopen(f"{url}/v1/models") as reply:  # noqa: S310 - a URL of our own
        return json.load(reply)["data"][0]["id"] == MODEL


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
    calls(url, "look_up", "Where is order A1?", "--functions", FUNCTIONS, "--no-stream")
    calls(url, "look_up", "Where is order A1?", "--functions", FUNCTIONS)


def case_installed_tools(url: str) -> None:
    calls(url, "llm_time", "What time is it?", "-T", "llm_time")


if __name__ == "__main__":
    run(globals())
