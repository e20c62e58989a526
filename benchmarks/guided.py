"""The other side of `benchmarks/templates.py`: guidance in a separate process, under an
interpreter that has it installed.

guidance 0.3 requires exactly one old version of llguidance, which selectrie cannot work
with, so the two cannot share an environment. This module is imported by its path, and
imports nothing of selectrie.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def serve() -> None:
    """Answer orders, one JSON object a line on stdin: load a model, fill a page on an
    empty cache.
    """
    import guidance
    from guidance import models

    warnings.simplefilter("ignore")  # about chat templates that are not used
    out, sys.stdout = sys.stdout, sys.stderr
    model: Any = None
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "load":
            model = models.LlamaCpp(
                order["path"], echo=False, enable_monitoring=False, verbose=False, **order["options"]
            )
            answer: dict[str, Any] = {"version": guidance.__version__}
        else:
            answer = _filled(model, order["page"], order["end"])
        out.write(json.dumps(answer) + "\n")
        out.flush()


def _filled(model: Any, page: list[tuple[str, str, list[str]]], end: str) -> dict[str, Any]:
    """Return seconds, rows and calls of one page, and what was chosen. page: text, name
    and options of each slot.
    """
    from guidance import select

    engine = model._interpreter.engine
    engine._cached_token_ids, engine._cached_logits = [], None
    counts = []
    evaluate = engine.get_logits

    def counted(*args: Any, **named: Any) -> Any:
        found = evaluate(*args, **named)
        counts.append(found["n_tokens"] - found["n_cached"])
        return found

    engine.get_logits = counted
    try:
        start = time.perf_counter()
        state = model
        for text, name, options in page:
            state += text + select(options, name=name)
        state += end
        chosen = [state[name] for _, name, _ in page]
        seconds = time.perf_counter() - start
    finally:
        engine.get_logits = evaluate
    return {
        "seconds": seconds,
        "chosen": chosen,
        "text": str(state),
        "rows": sum(counts),
        "calls": sum(1 for rows in counts if rows),
    }


class Guided:
    """guidance under another interpreter. Orders go through its pipes, so that both
    sides can be timed in turn.
    """

    def __init__(self, python: Path) -> None:
        repository = str(Path(__file__).parent.parent)
        code = f"import sys; sys.path.insert(0, {repository!r}); from benchmarks.guided import serve; serve()"
        self._process = subprocess.Popen(
            [str(python), "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def load(self, path: Path, *, n_ctx: int, n_threads: int) -> str:
        """Load a model as selectrie's `fast` does; return the version of guidance."""
        options = {"n_ctx": n_ctx, "n_threads": n_threads, "n_threads_batch": n_threads}
        return str(self._ask({"do": "load", "path": str(path), "options": options})["version"])

    def fill(self, page: Sequence[tuple[str, str, Sequence[str]]], end: str) -> dict[str, Any]:
        """See `_filled`."""
        return self._ask({"do": "fill", "page": page, "end": end})

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one order. Raises `RuntimeError` if the process has
        ended instead.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin, stdout
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"guidance ended with {self._process.wait()} at {order['do']}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(20)
