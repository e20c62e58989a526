"""Settings of the C library's allocator for a process that serves.

Each request waits in a thread of its own (`engine/aio.py`), and glibc lets up to eight
arenas a core grow for threads that allocate at once. What one arena has free is not
used by the others, so the memory of a server would grow with the largest number of
requests that ever ran at once, although no object is kept.
"""

from __future__ import annotations

import ctypes
import gc
import os

MAX_ARENAS = 2
"""Arenas of a server: one for the model's thread and one for all others. Python's lock
lets only one thread allocate at a time where it is held."""
_M_ARENA_MAX = -8
"""Number of the option in glibc's <malloc.h>."""
_VARIABLES = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
"""Environment variables with which the operator configures the allocator."""


def limit_arenas() -> bool:
    """Limit the allocator's arenas of this process; return whether that was done.

    Nothing is done without glibc, or if an environment variable configures the
    allocator. Arenas that exist already stay.
    """
    if any(name in os.environ for name in _VARIABLES):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - raises where the library is another one
        return bool(library.mallopt(_M_ARENA_MAX, MAX_ARENAS))
    except (AttributeError, OSError, TypeError):
        return False


def freeze_objects() -> None:
    """Exclude all objects that exist now from later garbage collections.

    A collection holds Python's lock while it looks at every object: 0.14 s for the 110
    000 of a server with a model, and less than 0.1 ms for those made since.
    """
    gc.collect()
    gc.freeze()


def release_memory() -> bool:
    """Return free memory to the system; return whether there was any.

    Python keeps a large body that is part of a reference cycle, such as an error and
    its traceback, until enough new objects were made. glibc keeps memory that was freed
    below a block in use. Without this call the process would stay as large as its
    largest requests made it. After the largest, the call takes about 25 ms.
    """
    gc.collect()
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):
        return False
