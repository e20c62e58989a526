"""Ctrl-C and SIGTERM: what the process says, and what it leaves. The signals are sent by the process itself, at an event."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = re.search(r'^selectrie = "([\w.]+):(\w+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
ENTRIES = {
    "script": ["-c", f"import sys\nfrom {SCRIPT[1]} import {SCRIPT[2]}\nsys.exit({SCRIPT[2]}())"],
    "module": ["-m", "selectrie"],
    "package": ["-m", "selectrie.cli"],
}
"""Ways to begin the command; the first is what an installer writes."""

PLANTED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["AT"]:
            os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))
sys.meta_path.insert(0, Finder())
"""
"""A signal at the import of the module that AT names."""

STAND_IN = """
import os, signal, sys
sys.path[:0] = [{src!r}]
from selectrie.cli import main, requests
from selectrie.results import Chunk
def send(name):
    os.kill(os.getpid(), getattr(signal, name))
class Engine:
    __enter__ = lambda self: self
    def __exit__(self, *_):
        {leaving}
    def stream(self, *args, **options):
        return self
    def __iter__(self):
        yield Chunk(0, 0, "once", ())
        {working}
        yield Chunk(0, 0, " upon", ())
requests.open_engine = lambda group: Engine()
main()
"""
"""A command at work that gets signals while it streams and while it closes its model."""


def stand_in(working: str, leaving: str = "pass") -> list[str]:
    source = textwrap.dedent(STAND_IN).format(src=str(ROOT / "src"), working=working, leaving=leaving)
    return ["-c", source, "generate", "-p", "p", "--stream"]


def run(*args: str, **environment: str) -> tuple[int, bytes]:
    """Exit code and what was written, of both streams together."""
    own = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    done = subprocess.run(
        [sys.executable, *args], check=False, env=own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("entry", "at", "signal", "code"),
    [
        ("script", "selectrie.cli.entry", "SIGINT", 130),
        ("script", "typer", "SIGTERM", 143),
        ("module", "typer", "SIGINT", 130),
        ("package", "selectrie.options", "SIGINT", 130),
        ("script", "numpy", "SIGINT", 130),
        ("module", "llama_cpp", "SIGTERM", 143),
    ],
)
def test_a_signal_within_an_import_ends_the_process_silently(
    tmp_path: Path, entry: str, at: str, signal: str, code: int
):
    """Before a command begins, and in the imports of one: no traceback, no ImportError that swallows it."""
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    path = f"{tmp_path}{os.pathsep}{ROOT / 'src'}"
    found = run(*ENTRIES[entry], "select", "-p", "p", "-c", "a", PYTHONPATH=path, AT=at, SIGNAL=signal)
    assert found == (code, b"")


def test_little_is_imported_before_the_signals_are_heard():
    """Of ours the two front pages, the version and the listener; of the standard library what signals and a context
    manager need; where a signal comes earlier it is Python that answers."""
    code = "import sys; a = set(sys.modules); import selectrie.cli.signals; print(*sorted(set(sys.modules) - a))"
    added = run("-S", "-c", code)[1].decode().split()
    assert [name for name in added if name.startswith("selectrie")] == [
        "selectrie",
        "selectrie.cli",
        "selectrie.cli.signals",
        "selectrie.version",
    ]
    assert len(added) <= 30  # 26 on Python 3.11


LOGGED = """
import os, signal, sys
from selectrie.backends.llama_cpp.library import LlamaLog, log
class Planted(LlamaLog):
    n_lines = 0
    @property
    def _level(self):
        return 0
    @_level.setter
    def _level(self, level):
        self.n_lines += 1
        if self.n_lines == 4:
            os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))
log.__class__ = Planted
"""
"""A signal while llama.cpp, which is loading a model, writes the fourth line of its log."""


@pytest.mark.short("SIGTERM-*")
@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_while_a_model_is_loaded_ends_the_process_silently(signal: str, code: int):
    """C calls us with its log, and what is raised there ctypes prints and drops."""
    command = LOGGED + "from selectrie.cli import main\nmain()"
    assert run("-c", command, "select", "-p", "p", "-c", "a", "-c", "b", SIGNAL=signal) == (code, b"")


def test_ctrl_c_while_a_program_loads_a_model_is_raised_when_that_is_over():
    """Python's own handler raises, and it is in its place again; the model can be loaded afterwards."""
    program = """
import selectrie
try:
    selectrie.load()
except KeyboardInterrupt:
    print("stopped", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
log.__class__ = LlamaLog
selectrie.load().close()
"""
    assert run("-c", LOGGED + program, SIGNAL="SIGINT") == (0, b"stopped True\n")


@pytest.mark.short("SIGINT-*")
@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_command_is_stopped_in_good_order(signal: str, code: int):
    """The line under way is ended, and the model closed."""
    closing = "sys.stdout.write('closed\\n')"  # once for the stream, once for the engine
    found = run(*stand_in(f'send("{signal}")', closing))
    assert found == (code, b"once\nclosed\nclosed\nerror[interrupted]: stopped\n")


@pytest.mark.short("SIGINT-SIGTERM-*")
@pytest.mark.parametrize(("first", "second", "code"), [("SIGINT", "SIGINT", 130), ("SIGINT", "SIGTERM", 143)])
def test_the_second_signal_ends_the_process_at_once(first: str, second: str, code: int):
    """While the first one is obeyed: no message, no traceback."""
    found = run(*stand_in(f'send("{first}")', f'send("{second}"); print("still here")'))
    assert found == (code, b"once\n")


def test_a_signal_that_is_to_be_ignored_is_ignored():
    """`nohup` and shells that start a command in the background say so before it begins."""
    code = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    found = run("-c", code, sys.executable, *stand_in('send("SIGINT")'))
    assert found == (0, b"once upon\n")


@pytest.mark.parametrize("working", ['send("SIGTERM")', "sys.path.insert(0, os.environ['PLANTED']); import planted"])
def test_the_cursor_is_shown_again(tmp_path: Path, working: str):
    """Many sequences growing on a terminal hide it; SIGTERM, also within an import, leaves it shown and exits with 143."""
    (tmp_path / "planted.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *stand_in(working), "-n", "2"],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "PLANTED": str(tmp_path)},
    )
    os.close(theirs)
    written = b""
    try:
        while block := os.read(ours, 4096):
            written += block
    except OSError:  # Linux says so where the other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait() == 143
    assert b"Traceback" not in written
    hidden, shown = written.rfind(b"\x1b[?25l"), written.rfind(b"\x1b[?25h")
    assert 0 <= hidden < shown
