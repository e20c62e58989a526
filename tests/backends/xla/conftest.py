"""One thread and a cache of compiled programs of the session's own, both set before jax is imported."""

from __future__ import annotations

import os
import tempfile

import pytest

from tests.support.torch_threads import one_torch_thread

_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
_programs = tempfile.TemporaryDirectory(prefix="selectrie-xla-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = _programs.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
for _name, _value in _ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)


@pytest.fixture(scope="package", autouse=True)
def _one_thread():
    with one_torch_thread():
        yield
    _programs.cleanup()
