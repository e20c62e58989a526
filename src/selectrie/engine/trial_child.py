"""Opens a model file in a separate process and reports the result.

It is run as `python -m selectrie.engine.trial_child BACKEND FILE PRECISION SECONDS` and
ends after that many seconds. It writes one line before it opens the file, and one
afterwards: `{}`, or the error that was raised. If the back end ends the process, there
is no second line, and the caller of `trial` lives on.
"""

from __future__ import annotations

import json
import math
import signal
import sys
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from selectrie.backends.entry import Backend
from selectrie.backends.table import backend_named
from selectrie.core.model import chain
from selectrie.core.types import ROOT, Precision
from selectrie.engine.trial import START_LINE, report_of, write_line
from selectrie.errors import SelectrieError, TextError

_TEXTS = (bytes(range(1, 128)), "é – 中 😀 \u00a0\ufb01\u2460".encode())
"""Texts to tokenize: ASCII, and characters that are normalised or have no token."""


def main() -> None:
    """Open the file, decode two rows, and report the result."""
    name, path, precision, timeout_s = sys.argv[1:]
    _limit_process(float(timeout_s))
    write_line(START_LINE)
    report: dict[str, object] = {}
    try:
        open_and_decode(backend_named(name), Path(path), Precision(precision))
    except SelectrieError as error:
        report = report_of(error)
    write_line(json.dumps(report))


def open_and_decode(backend: Backend, path: Path, precision: Precision) -> None:
    """Open a file, tokenize texts and decode two rows; raise the back end's errors."""
    if backend.trial is None:
        return
    with closing(backend.open_model(path, backend.trial.options(precision))) as model:
        for text in _TEXTS:
            with suppress(TextError):
                model.vocabulary.encode(text)
        tokens = np.array([0, model.vocabulary.n_tokens - 1], dtype=np.int32)
        wanted = np.ones(2, dtype=np.bool_)
        model.extend(chain(ROOT, 2), tokens, wanted, np.array([False, True]))


def _limit_process(timeout_s: float) -> None:
    """Limit the child process, so that it leaves nothing behind.

    It writes no core file, ends at once on Ctrl-C, and ends after `timeout_s` seconds
    even if the parent is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "alarm"):
        signal.alarm(math.ceil(timeout_s) + 1)
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


if __name__ == "__main__":
    main()
