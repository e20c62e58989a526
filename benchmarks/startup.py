"""Time to begin: a bare interpreter, `import selectrie`, `selectrie --help`, and the first
answer of a real model beside plain llama.cpp, each in a separate process.

Figures are medians over interleaved runs, after one that writes the compiled files and
reads them from disk. Those of the first answer are CPU seconds, in `fast` precision on
one thread, for each file in the folder that SELECTRIE_REAL_MODELS names.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import subprocess
import time
from pathlib import Path
from statistics import median

from benchmarks._common import Targets, arguments, refuse_under_load, report
from selectrie.backends.llama_cpp.library import repacks_safely

COMMANDS = {
    "bare": ("-c", "pass"),
    "import": ("-c", "import selectrie"),
    "help": ("-m", "selectrie.cli", "--help"),
    "select_help": ("-m", "selectrie.cli", "select", "--help"),
}
PROMPT = (
    "A customer of an online bank wrote this message: I ordered a new card more than two weeks ago and it still has "
    "not arrived. Could you tell me where it is and whether I need to do anything? The kind of request that this "
    "message is about, chosen from the list of the bank, is the following one:"
)
CHOICES = (" card arrival", " lost or stolen card", " card payment fee", " exchange rate")
OURS = f"""
import sys, selectrie
with selectrie.load(sys.argv[1], n_threads=1, precision="fast") as llm:
    llm.select({PROMPT!r}, {CHOICES!r})
"""
PLAIN = f"""
import ctypes, sys
import llama_cpp as lib
lib.llama_log_set(quiet := lib.llama_log_callback(lambda *_: None), ctypes.c_void_p())
lib.llama_backend_init()
params = lib.llama_model_default_params()
params.use_extra_bufts = params.use_extra_bufts and {repacks_safely()}
model = lib.llama_model_load_from_file(sys.argv[1].encode(), params)
vocab = lib.llama_model_get_vocab(model)
params = lib.llama_context_default_params()
params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max, params.kv_unified = 8192, 512, 512, 8, True
params.n_threads = params.n_threads_batch = 1
context = lib.llama_init_from_model(model, params)

def tokens_of(text):
    buffer = (lib.llama_token * 1024)()
    return buffer[:lib.llama_tokenize(vocab, text, len(text), buffer, 1024, True, False)]

def decode(rows):
    batch = lib.llama_batch_init(len(rows), 0, 1)
    batch.n_tokens = len(rows)
    for i, (token, position, sequence, wanted) in enumerate(rows):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
        batch.seq_id[i][0] = sequence
    assert lib.llama_decode(context, batch) == 0
    lib.llama_get_logits_ith(context, len(rows) - 1)[0]

prompt = tokens_of({PROMPT.encode()!r})
decode([(token, i, 0, i == len(prompt) - 1) for i, token in enumerate(prompt)])
rows = []
for number, choice in enumerate({[(PROMPT + choice).encode() for choice in CHOICES]!r}):
    lib.llama_memory_seq_cp(lib.llama_get_memory(context), 0, number + 1, -1, -1)
    behind = tokens_of(choice)[len(prompt):-1]
    rows += [(token, len(prompt) + i, number + 1, True) for i, token in enumerate(behind)]
decode(rows)
"""
TARGETS = Targets(at_most={"import_over_bare_s": 0.150, "help_s": 0.400})
"""Bounds: what an import adds to a bare interpreter; and how long a user waits for the
help, the interpreter included.
"""
FIRST_ANSWER = 1.3
"""Bound of the first answer in CPU seconds of plain llama.cpp: file, context, same rows."""


def seconds(arguments: tuple[str, ...]) -> float:
    """Return the wall time of one interpreter with these arguments, from start to end."""
    # Not in this folder: with `-m`, its `select.py` would replace the standard library's.
    root = Path(__file__).resolve().parent.parent
    start = time.perf_counter()
    # An installed package has compiled files, and so have these after the first run.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *arguments], cwd=root, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def cpu_seconds(code: str, path: Path) -> float:
    """Return the CPU time of one interpreter that runs this code on a model."""
    before = os.times()
    seconds(("-c", code, str(path)))
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


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
    targets = TARGETS
    folder = os.environ.get("SELECTRIE_REAL_MODELS")
    if not folder:
        sys.stderr.write("SELECTRIE_REAL_MODELS is not set: first answers of real models are not measured\n")
    for path in sorted(Path(folder).glob("*.gguf")) if folder else ():
        pairs = [(cpu_seconds(OURS, path), cpu_seconds(PLAIN, path)) for _ in range(1 + options.repeats // 2)][1:]
        ours, plain = (f"{path.stem}_{name}_cpu_s" for name in ("selectrie", "llama_cpp"))
        figures[ours], figures[plain] = (median(times) for times in zip(*pairs, strict=True))
        figures[f"{path.stem}_first_answer"] = figures[ours] / figures[plain]
        targets = targets.joined(Targets(at_most={f"{path.stem}_first_answer": FIRST_ANSWER}))
    return report("startup", {"repeats": options.repeats} | figures, targets, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
