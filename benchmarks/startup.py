"""Time to begin: a bare interpreter, `import selectrie`, and `selectrie --help`, each
in a separate process.

Figures are medians over interleaved runs, after one that writes the compiled files and
reads them from disk.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import subprocess
import time
from pathlib import Path
from statistics import median

from benchmarks._common import Targets, arguments, refuse_under_load, report

COMMANDS = {
    "bare": ("-c", "pass"),
    "import": ("-c", "import selectrie"),
    "help": ("-m", "selectrie.cli", "--help"),
    "select_help": ("-m", "selectrie.cli", "select", "--help"),
}
TARGETS = Targets(at_most={"import_over_bare_s": 0.150, "help_s": 0.400})
"""Bounds: what an import adds to a bare interpreter; and how long a user waits for the
help, the interpreter included.
"""


def seconds(arguments: tuple[str, ...]) -> float:
    """Return the wall time of one interpreter with these arguments, from start to end."""
    # Not in this folder: with `-m`, its `select.py` would replace the standard library's.
    root = Path(__file__).resolve().parent.parent
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=root, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Run and report; return the exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    refuse_under_load(allowed=options.under_load)
    runs: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():
        seconds(command)
    for _ in range(options.repeats):
        for name, command in COMMANDS.items():
            runs[name].append(seconds(command))
    figures = {f"{name}_s": median(times) for name, times in runs.items()}
    figures["import_over_bare_s"] = figures["import_s"] - figures["bare_s"]
    return report("startup", {"repeats": options.repeats} | figures, TARGETS, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
