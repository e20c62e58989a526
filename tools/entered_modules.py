"""Count the modules of selectrie that one warm `select` of two choices enters.

    python tools/entered_modules.py

A module is entered when a function of it is called, on the caller's thread or on the
model's. The call that counts is the second of two that are equal, so that everything is
imported and checked before.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

import selectrie

HOME = Path(selectrie.__file__).parent


def entered() -> list[str]:
    """Return the names of the modules that the second call enters."""
    names: set[str] = set()
    is_counted = False

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if is_counted and event == "call":
            names.add(frame.f_code.co_filename)

    threading.setprofile(note)  # before the model's thread begins
    with selectrie.load(n_threads=1, n_ctx=512) as llm:
        llm.select("The capital of France is", [" Paris", " London"])
        sys.setprofile(note)
        is_counted = True
        llm.select("The capital of France is", [" Paris", " London"])
        is_counted = False
        sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]  # typeshed forgets None
    paths = [Path(name) for name in names if Path(name).is_relative_to(HOME)]
    return sorted(".".join(path.relative_to(HOME).with_suffix("").parts) for path in paths)


if __name__ == "__main__":
    modules = entered()
    print("\n".join([*modules, f"{len(modules)} modules"]))
