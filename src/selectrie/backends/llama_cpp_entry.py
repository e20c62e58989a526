"""The entry of llama.cpp in the table of back ends."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from selectrie.backends.entry import Backend, FileTrial, is_instance_of, read_sampling, self_check_key
from selectrie.core.files import file_digest
from selectrie.core.model import Model
from selectrie.errors import ModelFileError, remedies

if TYPE_CHECKING:
    from selectrie.backends.llama_cpp.model import LlamaModel
    from selectrie.backends.llama_cpp.options import LlamaOptions

_MAGIC = b"GGUF"


def _recognises(source: object) -> bool:
    """Return whether a source is a file that begins as GGUF does, or a `Llama`."""
    if isinstance(source, Path):
        try:
            if not os.path.isfile(source):  # noqa: PTH113 - `Path.is_file` raises for a name that is too long
                return False
            with source.open("rb") as file:
                return file.read(len(_MAGIC)) == _MAGIC
        except OSError:
            return False
    return is_instance_of(source, "llama_cpp", "Llama")


def _options_type() -> type[LlamaOptions]:
    from selectrie.backends.llama_cpp.options import LlamaOptions

    return LlamaOptions


def _open_model(source: Any, options: LlamaOptions) -> Model:
    from selectrie.backends.llama_cpp.model import open_model

    return open_model(source, options)


def _memory_needed(path: Path, options: LlamaOptions) -> int:
    from selectrie.backends.llama_cpp.context import memory_needed

    return memory_needed(path, options)


def _check_key(model: Model, source: Any, options: LlamaOptions) -> str:
    """Return the key of a self-check.

    It has the number of layers on a GPU, which a shared `Llama` has chosen itself, and
    the type of cells: f32 for weights of a float type, else f16.
    """
    layers = options.n_gpu_layers if isinstance(source, Path) else source.model_params.n_gpu_layers
    cells = "f16" if model.identity.weights == "quantised" else "f32"
    return self_check_key(model, f"{layers} layers on a GPU, {cells} cells")


_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
    "penalty_last_n": "penalty_last_n",
}
"""Fields of `SamplingParams` by the ends of GGUF's keys `general.sampling.…`."""


def _stored_sampling(model: LlamaModel, _source: Any) -> Mapping[str, float]:
    values = {name: model.metadata(f"general.sampling.{name}") for name in _SAMPLING}
    return read_sampling(values, _SAMPLING, model.identity.name)


def _parts(name: str) -> Sequence[str]:
    from selectrie.backends.llama_cpp.gguf_header import part_names

    return part_names(name)


def _identify(path: Path) -> tuple[str, int]:
    """Return (key, size in bytes) of a file, as `FileTrial.identify` does.

    A split model counts as one file.
    """
    from selectrie.backends.llama_cpp.gguf_header import parts_of, require_gguf
    from selectrie.backends.llama_cpp.library import build

    require_gguf(path)
    try:
        parts = parts_of(path)
        key = f"{'+'.join(file_digest(part) for part in parts)}|{build()}"
        return key, sum(part.stat().st_size for part in parts)
    except OSError as error:
        raise ModelFileError(str(path), f"cannot be read: {error.strerror}") from error


LLAMA_CPP = Backend(
    name="llama.cpp",
    opens="a GGUF file or an open llama_cpp.Llama",
    packages=MappingProxyType({"llama_cpp": "llama-cpp-python"}),
    extra=None,
    suffix=".gguf",
    recognises=_recognises,
    options_type=_options_type,
    open_model=_open_model,
    check_key=_check_key,
    memory_needed=_memory_needed,
    digest=file_digest,
    parts=_parts,
    folder_files=lambda _name, _names: [],
    less_memory=remedies(operator="lower `n_ctx` or `n_batch`"),
    trial=FileTrial(
        identify=_identify,
        options=lambda precision: _options_type()(n_ctx=32, n_batch=8, n_threads=1, precision=precision),
        remedy="get the file again, or a newer llama-cpp-python if the format is new",
    ),
    stored_sampling=_stored_sampling,
)
