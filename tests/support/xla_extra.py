"""Skips a module of tests where the packages of the extra `xla` are missing, without importing any of them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

PACKAGES = ("jax", "torchax", "torch", "transformers")


def missing() -> list[str]:
    """The packages that are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def require_packages() -> None:
    """Skip the module that is being imported if any of them is missing."""
    if missing():
        pytest.skip(f"{', '.join(missing())} not installed (extra xla)", allow_module_level=True)
