"""The entry of Hugging Face Transformers in the table of back ends."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from selectrie.backends.entry import Backend, is_instance_of, read_sampling, self_check_key
from selectrie.core.model import Model
from selectrie.errors import remedies

if TYPE_CHECKING:
    from selectrie.backends.transformers.options import TransformersOptions


def _recognises(source: object) -> bool:
    """Return whether a source is a folder with a checkpoint, or a module of torch."""
    if isinstance(source, Path):
        if not os.path.isdir(source):  # noqa: PTH112 - `Path.is_dir` raises for a name that is too long
            return False
        from selectrie.backends.transformers.checkpoint import is_checkpoint, names_in

        try:
            return is_checkpoint(names_in(source))
        except (OSError, ValueError):
            return False
    return is_instance_of(source, "torch.nn", "Module")


def _options_type() -> type[TransformersOptions]:
    from selectrie.backends.transformers.options import TransformersOptions

    return TransformersOptions


def _open_model(source: Any, options: TransformersOptions) -> Model:
    from selectrie.backends.transformers.weights import open_model

    return open_model(source, options)


def _check_key(model: Model, _source: Any, options: TransformersOptions) -> str:
    return self_check_key(model, options.dtype or "own dtype")


def _memory_needed(path: Path, options: TransformersOptions) -> int:
    from selectrie.backends.transformers.weights import memory_needed

    return memory_needed(path, options)


def _digest(path: Path) -> str:
    from selectrie.backends.transformers.checkpoint import digest

    return digest(path)


_SAMPLING = {"repetition_penalty": "repeat_penalty"} | {
    name: name for name in ("temperature", "top_k", "top_p", "min_p", "typical_p")
}
"""Fields of `SamplingParams` by the names of `generation_config.json`."""


def _stored_sampling(_model: Model, source: Any) -> Mapping[str, float]:
    """Return the sampling options in a checkpoint's `generation_config.json`.

    {} without such a file, and for an open module.
    """
    from selectrie.backends.transformers.checkpoint import GENERATION, read_json

    if not isinstance(source, Path) or not (source / GENERATION).is_file():
        return {}
    return read_sampling(read_json(source / GENERATION), _SAMPLING, str(source))


def _folder_files(name: str, names: Collection[str]) -> Sequence[str]:
    """Return the files of a checkpoint; raise an error if its weights are pickles."""
    from selectrie.backends.transformers.checkpoint import checkpoint_files, is_checkpoint, require_safe

    files = checkpoint_files(names)
    if not files and is_checkpoint(names):
        require_safe(name, names)
    return files


TRANSFORMERS = Backend(
    name="transformers",
    opens="a folder with a Transformers checkpoint (config.json and *.safetensors) or an open AutoModelForCausalLM",
    packages=MappingProxyType(
        {"torch": "torch", "transformers": "transformers", "tokenizers": "tokenizers", "safetensors": "safetensors"}
    ),
    extra="transformers",
    suffix=None,
    recognises=_recognises,
    options_type=_options_type,
    open_model=_open_model,
    check_key=_check_key,
    memory_needed=_memory_needed,
    digest=_digest,
    parts=lambda name: [name],
    folder_files=_folder_files,
    less_memory=remedies(operator="lower `n_ctx` or `n_batch`"),
    trial=None,
    stored_sampling=_stored_sampling,
)
