"""The memory of a process that serves: the arenas of the C library, and what is given back."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from inspect import getsource

import pytest

pytest.importorskip("uvicorn", reason="needs the extra 'server'")

from selectrie.server import app, serve
from selectrie.server.transport import body
from tests.support.deciding import fake

N_THREADS = 12
ALLOCATING = f"""
import ctypes, os, sys, threading
MAX_ARENAS, _M_ARENA_MAX, _VARIABLES = {serve.MAX_ARENAS}, {serve._M_ARENA_MAX}, {serve._VARIABLES}
{getsource(serve.limit_arenas)}  # without the server, whose import takes a second
c = ctypes.CDLL(None)
c.malloc.restype, c.fopen.restype = ctypes.c_void_p, ctypes.c_void_p
c.malloc_info.argtypes, c.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
is_limited = "limited" in sys.argv and limit_arenas()
together, ended = threading.Barrier({N_THREADS}), threading.Barrier({N_THREADS} + 1)

def allocate():
    together.wait()
    c.malloc(100_000)
    ended.wait()
    ended.wait()

threads = [threading.Thread(target=allocate) for _ in range({N_THREADS})]
for thread in threads:
    thread.start()
ended.wait()
print(is_limited, flush=True)
out = c.fopen(b"/dev/stdout", b"w")
c.malloc_info(0, out)
c.fclose(out)
ended.wait()
"""


def n_arenas(*arguments: str, **variables: str) -> tuple[bool, int]:
    """Whether a process limited its arenas, and how many it has when many threads allocate at once."""
    own = {name: value for name, value in os.environ.items() if name not in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")}
    command = [sys.executable, "-c", ALLOCATING, *arguments]
    shown = subprocess.run(command, env={**own, **variables}, capture_output=True, text=True, check=True).stdout
    return shown.startswith("True"), len(re.findall(r"<heap nr=", shown))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are glibc's")
def test_threads_of_a_server_share_two_arenas():
    """Without the limit there are more; a variable of the environment decides alone."""
    assert n_arenas("limited") == (True, serve.MAX_ARENAS)
    assert n_arenas()[1] > serve.MAX_ARENAS
    assert n_arenas("limited", MALLOC_ARENA_MAX="1") == (False, 1)


@pytest.mark.parametrize("error", [OSError, AttributeError, TypeError])
def test_another_c_library_is_left_alone(monkeypatch, error):
    """Whatever is missing there, a server starts."""

    def missing(_name):
        raise error

    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(serve.ctypes, "CDLL", missing)
    assert serve.limit_arenas() is False
    assert body.release_memory() is False


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries decide themselves")
def test_memory_below_a_block_that_is_used_is_given_back():
    """A process that freed 64 MB below one block is as small as before."""
    code = f"""
import ctypes, gc
{getsource(body.release_memory)}
c = ctypes.CDLL(None)
c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
size = lambda: int(open("/proc/self/statm").read().split()[1]) >> 8  # pages of 4 KiB as MiB
blocks = [c.malloc(65_536) for _ in range(1_024)]
for block in blocks:
    ctypes.memset(block, 1, 65_536)
c.malloc(65_536)
for block in blocks:
    c.free(block)
before = size()
print(release_memory(), before - size())
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert shown[0] == "True"
    assert int(shown[1]) > 32


def test_a_server_limits_its_arenas_before_anything_else(monkeypatch):
    """Before it makes a thread: arenas that exist stay."""
    happened = []
    monkeypatch.setattr(serve, "limit_arenas", lambda: happened.append("limited"))

    def bound(_serving):
        happened.append("bound")
        raise KeyboardInterrupt

    monkeypatch.setattr(serve, "_bind", bound)
    with pytest.raises(KeyboardInterrupt):
        serve.serve(lambda: None, serve.Serving(port=0), None)
    assert happened == ["limited", "bound"]


def test_the_objects_of_a_model_are_collected_once(monkeypatch):
    """Before the server is ready, when nothing waits: a later collection would hold up every request for their time."""
    happened = []
    for name in ("collect", "freeze"):
        monkeypatch.setattr(serve.gc, name, partial(happened.append, name))
    monkeypatch.setattr(serve._Run, "_call_on_loop", lambda *_: happened.append("ready") or True)
    with fake() as llm, closing(serve._bind(serve.Serving(port=0))) as listening:
        run = serve._Run(app(None), listening, serve.Serving(), load=lambda: llm, on_ready=None, url="")
        run._load_in_thread(None)
        assert happened == ["collect", "freeze", "ready"]


def test_memory_is_given_back_off_the_event_loop(monkeypatch):
    """A second after a large request; the C library takes its time without Python's lock."""
    threads: list[int] = []

    async def main():
        given, loop = asyncio.Event(), asyncio.get_running_loop()

        def give_back():
            threads.append(threading.get_ident())
            loop.call_soon_threadsafe(given.set)

        monkeypatch.setattr(body, "_TRIM_S", 0)
        monkeypatch.setattr(body, "release_memory", give_back)
        with body.BodyBudget(1 << 20).share() as share:
            share.grow(1 << 19)
        await given.wait()

    asyncio.run(main())
    assert len(threads) == 1
    assert threads != [threading.get_ident()]
