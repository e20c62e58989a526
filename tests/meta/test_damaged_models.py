"""Model files damaged at random: refused, or opened; none ends the process that loads
it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import gguf
import pytest

OPENS = """
import sys
from pathlib import Path
from selectrie.errors import SelectrieError
from selectrie.engine.trial_child import _limit_process, open_and_decode
from selectrie.core.types import Precision
from selectrie.backends.table import backend_named
_limit_process(600)
for path in sys.argv[1:]:
    try:
        open_and_decode(backend_named("llama.cpp"), Path(path), Precision.EXACT)
        print("opened", flush=True)
    except SelectrieError:
        print("refused", flush=True)
"""


def damaged(source: Path, folder: Path, seeds: range) -> list[Path]:
    """Copies of a model: three of four with one bit of the header flipped, the fourth
    cut off."""
    whole = source.read_bytes()
    n_header = int(gguf.GGUFReader(source).data_offset)
    paths = []
    for seed in seeds:
        rng = random.Random(seed)
        data = bytearray(whole)
        if seed % 4 == 3:
            del data[rng.randrange(len(data)) :]
        else:
            bit = rng.randrange(8 * n_header)
            data[bit // 8] ^= 1 << bit % 8
        paths.append(folder / f"{source.stem}-{seed}.gguf")
        paths[-1].write_bytes(data)
    return paths


def outcomes(paths: list[Path]) -> list[str]:
    """What became of each: "opened", "refused", or "ended" where it ended a process
    that had opened those before it."""
    found: list[str] = []
    while len(found) < len(paths):
        done = subprocess.run(
            [sys.executable, "-c", OPENS, *map(str, paths[len(found) :])],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"GGML_NO_BACKTRACE": "1"},
        )
        found += done.stdout.split()
        if done.returncode:
            found.append("ended")
    return found


def test_damaged_headers_and_files_cut_off_end_no_process(tiny_model, tmp_path):
    """One process opens sixty of them, and lives."""
    found = outcomes(damaged(tiny_model("f32"), tmp_path, range(60)))
    assert "ended" not in found
    assert len(found) == 60
    assert found.count("opened") > 10
    assert found.count("refused") > 20


@pytest.mark.parametrize("shape", ["tiny", "sliding-window", "recurrent", "hybrid"])
@pytest.mark.parametrize("untrusted", [False, True])
@pytest.mark.long
def test_damaged_models(tiny_model, tmp_path, record_property, shape, untrusted):
    """By `selectrie.load` none ends the caller: 300 bit flips in headers and 100 files
    cut off, over four kinds of model."""
    code = (
        "import sys, selectrie\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        f"        with selectrie.load(path, n_ctx=64, n_threads=1, precision='fast', untrusted={untrusted}) as llm:\n"
        "            llm.select('The sky is', [' blue', ' green'])\n"
        "        print('answered', flush=True)\n"
        "    except selectrie.SelectrieError as error:\n"
        "        print('ended' if 'ended a child process' in str(error) else 'refused', flush=True)\n"
    )
    paths = damaged(tiny_model(shape=shape), tmp_path, range(100))
    done = subprocess.run([sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=False)
    found = done.stdout.split()
    record_property("aborts_of_the_caller", int(done.returncode != 0))
    for name in ("answered", "refused", "ended"):
        record_property({"ended": "ended_a_child"}.get(name, name), found.count(name))
    assert done.returncode == 0, done.stderr[-2_000:]
    assert len(found) == len(paths)
