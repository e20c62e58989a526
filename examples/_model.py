"""Which model an example runs on: the GGUF given as its argument, or a small one with random weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def model_path() -> Path:
    """The argument, else `build/random-wide.gguf`, written once by `tools/make_model.py` (extra `test`)."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    path = ROOT / "build" / "random-wide.gguf"
    if not path.exists():
        command = [sys.executable, ROOT / "tools" / "make_model.py", path, "--shape", "wide"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own interpreter and script
    print(f"# {path.name} has random weights: the answers mean nothing. Give a GGUF file as argument.")
    return path
