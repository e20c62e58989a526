"""Servers for `benchmarks/serving.py`: processes of `selectrie serve`, and threads of this
process, whose model calls can be recorded.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from benchmarks.http_client import Connection, Lost
from selectrie.engine.engine import Engine
from selectrie.server import ServerOptions, app
from selectrie.server.serve import uvicorn_config

HOST = "127.0.0.1"
START_S = 120.0
"""Seconds in which a server must have its model."""
_ROOT = Path(__file__).resolve().parent.parent
OWN_PLACE = _ROOT / "build" / "guidance" / "bin" / "python"
"""Where `make build/guidance` installs what benchmarks compare with."""
_TRIMMING = """
import ctypes, gc, os, signal, sys
def trim(*_):
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(open("/proc/self/statm").read().split()[1])
    os.write(1, b"resident %d\\n" % (pages * os.sysconf("SC_PAGE_SIZE")))
signal.signal(signal.SIGUSR1, trim)
from selectrie.cli import main
sys.exit(main())
"""
"""The command, which at SIGUSR1 gives free memory back and writes what it still holds."""


def free_port() -> int:
    """Return a port that was free just now."""
    with socket.create_server((HOST, 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def llama_cpp_server_at(python: Path | None) -> Path | None:
    """Return an interpreter that has `llama_cpp.server`: the one named, this one, or
    that of `build/guidance`; None if there is none.
    """
    for one in (python,) if python is not None else (Path(sys.executable), OWN_PLACE):
        command = [one, "-c", "import llama_cpp.server.app"]
        if one.exists() and not subprocess.run(command, check=False, capture_output=True).returncode:
            return one
    return None


def llama_cpp_server(python: Path, model: Path, *, n_ctx: int, n_threads: int) -> ServerProcess:
    """Start `llama_cpp.server` with a model, so that it can echo log-probabilities."""
    port = free_port()
    options = {"model": model, "host": HOST, "port": port, "n_ctx": n_ctx, "logits_all": True, "verbose": False}
    options |= {"n_threads": n_threads, "n_threads_batch": n_threads}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return ServerProcess([str(python), "-m", "llama_cpp.server", *words], port)


def serve_process(*arguments: str) -> ServerProcess:
    """Start `selectrie serve` with further arguments, on a free port."""
    port = free_port()
    return ServerProcess([sys.executable, "-c", _TRIMMING, "serve", "--port", str(port), *arguments], port)


class ServerProcess:
    """A server in a separate process.

    Args:
        command: The command.
        port: The port that it listens on.
    """

    def __init__(self, command: Sequence[str], port: int) -> None:
        self.address = (HOST, port)
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed by `close`
        self.began_s = time.perf_counter()
        # Not in the folder of the benchmarks, whose `select.py` would replace the standard library's.
        self._process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=self._log)

    def __enter__(self) -> ServerProcess:  # noqa: PYI034 - as in `Engine`
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def seconds_until(self, path: str, *, step_s: float = 0.002) -> float:
        """Return the seconds from the start until a path is answered with 200."""
        while (seconds := time.perf_counter() - self.began_s) < START_S:
            connection = Connection(self.address)
            try:
                if (await connection.request("GET", path)).status == 200:
                    return time.perf_counter() - self.began_s
            except (OSError, Lost):
                pass
            finally:
                connection.close()
            if self._process.poll() is not None:
                raise SystemExit(f"the server ended with {self._process.returncode}:\n{self.log()}")
            await asyncio.sleep(step_s)
        raise SystemExit(f"{path} was not answered within {seconds:.0f} s:\n{self.log()}")

    async def metrics(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """Return what the server counts."""
        connection = Connection(self.address)
        try:
            return metrics_of((await connection.request("GET", "/metrics")).body.decode())
        finally:
            connection.close()

    async def asked(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the JSON of the answer to one request."""
        connection = Connection(self.address)
        try:
            reply = await connection.request("POST", path, json.dumps(body).encode())
        finally:
            connection.close()
        assert reply.status == 200, reply.body
        return reply.json()

    def resident_bytes(self) -> int | None:
        """Return the memory that the process holds after it gave back what is free, or
        None where that cannot be read.
        """
        if not Path("/proc/self/statm").exists() or self._process.stdout is None:
            return None
        self._process.send_signal(signal.SIGUSR1)
        for line in self._process.stdout:
            found = re.match(rb"resident (\d+)", line)
            if found:
                return int(found[1])
        raise SystemExit(f"the server ended:\n{self.log()}")

    def cpu_s(self) -> float:
        """Return the processor time that the process has spent; NaN where it cannot be
        read.
        """
        path = Path(f"/proc/{self._process.pid}/stat")
        if not path.exists():
            return float("nan")
        fields = path.read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def is_running(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> int:
        """Return the exit code, after at most so many seconds; -9 if it had to be
        killed.
        """
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def log(self) -> str:
        """Return what the process wrote to stderr."""
        self._log.seek(0)
        return self._log.read()

    def logged(self) -> list[dict[str, Any]]:
        """Return the lines of the log that tell of requests."""
        lines = (json.loads(line) for line in self.log().splitlines() if line.startswith("{"))
        return [line for line in lines if "endpoint" in line]

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


@contextmanager
def serving(engine: Engine, options: ServerOptions) -> Iterator[tuple[str, int]]:
    """Serve an engine of this process from a thread; yield the address."""
    server = uvicorn.Server(uvicorn_config(app(engine, options)))
    # With the protocol named, asyncio turns off Nagle's algorithm, as for the command's socket.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind((HOST, 0))
        listening.listen(1024)
        thread = threading.Thread(target=server.run, args=([listening],), name="uvicorn", daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join(30)


def metrics_of(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the samples of Prometheus' text format by name and values of labels."""
    found = {}
    for line in text.splitlines():
        sample = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if sample and not line.startswith("#"):
            found[sample[1], tuple(re.findall(r'="([^"]*)"', sample[2] or ""))] = float(sample[3])
    return found
