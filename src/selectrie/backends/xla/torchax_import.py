"""Import torchax beside a newer torch, and set up JAX's compilation cache.

torchax 0.0.13 names overloads of operators, for tensors with named dimensions, that
torch 2.13 no longer has. They are never called, so each is given an empty object.
"""

from __future__ import annotations

import importlib.util
import os
import re
import threading
from pathlib import Path
from typing import Any

import torch

from selectrie.core.cache_dir import cache_folder

_OVERLOAD = re.compile(r"\baten\.(\w+)\.(\w+)")
_MIN_COMPILE_S = 0.1
"""Seconds of compiling from which on a program is kept on disk."""
_lock = threading.Lock()
_loaded: list[Any] = []


class _Removed:
    """Stands for an overload that torch no longer has."""


def load_torchax() -> Any:
    """Return the module `torchax`, imported once in a process."""
    with _lock:
        if not _loaded:
            _loaded.append(_import())
        return _loaded[0]


def _import() -> Any:
    spec = importlib.util.find_spec("torchax")
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        for path in Path(folder).rglob("*.py"):
            for operator, overload in _OVERLOAD.findall(path.read_text(encoding="utf-8")):
                packet = getattr(torch.ops.aten, operator, None)
                if packet is not None and not hasattr(packet, overload):
                    setattr(packet, overload, _Removed())
    import jax
    import torchax

    if jax.config.jax_compilation_cache_dir is None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_COMPILE_S)
    # `torch.random.fork_rng` names the device, which this function does not take.
    torchax.device_module.get_rng_state = lambda *_device: []
    torchax.default_env()
    return torchax
