"""The entry of XLA in the table of back ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from selectrie.backends.entry import self_check_key
from selectrie.backends.transformers_entry import TRANSFORMERS
from selectrie.core.model import Model
from selectrie.errors import remedies

if TYPE_CHECKING:
    from selectrie.backends.xla.options import XlaOptions


def _options_type() -> type[XlaOptions]:
    from selectrie.backends.xla.options import XlaOptions

    return XlaOptions


def _open_model(source: Any, options: XlaOptions) -> Model:
    from selectrie.backends.xla.opening import open_model

    return open_model(source, options)


def _check_key(model: Model, _source: Any, _options: XlaOptions) -> str:
    """Return the key of a self-check.

    The seconds of programs are part of it, because they decide how calls are split.
    """
    return self_check_key(model, f"{model.limits.batch_sizes.buckets}, {model.limits.nodes} nodes")


def _memory_needed(path: Path, options: XlaOptions) -> int:
    from selectrie.backends.xla.opening import memory_needed

    return memory_needed(path, options)


XLA = replace(
    TRANSFORMERS,
    name="xla",
    opens="",
    packages=MappingProxyType({"jax": "jax", "torchax": "torchax", "torch": "torch", "transformers": "transformers"}),
    extra="xla",
    recognises=lambda _source: False,
    options_type=_options_type,
    open_model=_open_model,
    check_key=_check_key,
    memory_needed=_memory_needed,
    folder_files=lambda _name, _names: (),
    less_memory=remedies(operator="lower `n_ctx`, or name smaller buckets"),
)
