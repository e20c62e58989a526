"""Read the files of a Transformers checkpoint without loading its weights.

A checkpoint is a folder with `config.json`, weights as safetensors, and a tokenizer.
Nothing here needs torch, and no code of the folder is run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from selectrie.backends.entry import TOKENIZER_FILES
from selectrie.core.files import file_digest
from selectrie.errors import ModelFileError, UnsupportedModelError, clip

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
"""The file that says, for weights in several files, which tensor is in which."""
SAFETENSORS = ".safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
"""Suffixes of weights that are pickles. Reading a pickle may run code that is in it."""
GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
_ADAPTER = "adapter_config.json"
_BESIDE = (GENERATION, *TOKENIZER_FILES)
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "original_max_position_embeddings")
"""Entries of a configuration that are numbers of positions."""
_ROPES = ("rope_parameters", "rope_scaling")
"""Parts of a configuration in which there may be such numbers too."""
_MAX_POSITIONS = 2**31 - 1
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors", re.ASCII)
_MAX_JSON_BYTES = 64 << 20
_MAX_NAMES = 3
"""Maximum number of names that an error lists."""
_GET_AGAIN = "get the file again"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of a safetensors file.

    Attributes:
        dtype: Its type by the name in the file, such as "BF16".
        shape: Its shape.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def n_numbers(self) -> int:
        """Return the number of its elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The parts of a checkpoint.

    Attributes:
        folder: The folder.
        config: The content of its `config.json`.
        files: The files of weights.
        tensors: The tensors in these files, by name.
    """

    folder: Path
    config: Mapping[str, Any]
    files: tuple[Path, ...]
    tensors: Mapping[str, TensorEntry]


def is_checkpoint(names: Collection[str]) -> bool:
    """Return whether files of these names make a checkpoint, safe or pickled."""
    return CONFIG in names and any(name.endswith((SAFETENSORS, *PICKLES)) for name in names)


def checkpoint_files(names: Collection[str]) -> list[str]:
    """Return which of a folder's files belong to its checkpoint.

    These are the configuration, the tokenizer, the chat template, and the weights in
    safetensors files; never pickles or code. The result is empty if there is no
    checkpoint, or if its weights are pickles.
    """
    weights = [WEIGHTS] if WEIGHTS in names else sorted(name for name in names if _SHARD.fullmatch(name))
    if CONFIG not in names or not weights:
        return []
    index = [INDEX] if WEIGHTS not in names and INDEX in names else []
    return [CONFIG, *index, *weights, *(name for name in _BESIDE if name in names)]


def digest(folder: Path) -> str:
    """Return the digest of all files of a checkpoint, those of its tokenizer included.

    Large files are sampled as `file_digest` says, and the result then begins
    `blake2b-sampled:`. Raises `ModelFileError` if a file cannot be read.
    """
    with _as_file_errors(folder):
        digests = {name: file_digest(folder / name) for name in checkpoint_files(names_in(folder))}
    sampled = any(one.startswith("blake2b-sampled:") for one in digests.values())
    state = blake2b(json.dumps(digests, sort_keys=True).encode(), digest_size=16)
    return f"blake2b{'-sampled' if sampled else ''}:{state.hexdigest()}"


def names_in(folder: Path) -> list[str]:
    """Return the names of the files and folders in a folder. Raises `OSError`."""
    return [one.name for one in folder.iterdir()]


def read_checkpoint(folder: Path) -> Checkpoint:
    """Check a checkpoint as far as possible without loading it, and return its parts.

    Raises:
        ModelFileError: A file is missing, damaged, truncated or cannot be read.
        UnsupportedModelError: The weights are pickles; the model needs code from the
            hub; or the folder holds an adapter.
    """
    with _as_file_errors(folder):
        names = names_in(folder)
        if CONFIG not in names:
            raise ModelFileError(str(folder), f"has no {CONFIG}; pass the folder of a Transformers checkpoint")
        config = read_json(folder / CONFIG)
        if GENERATION in names:
            read_json(folder / GENERATION)
        _require_plain(folder, config, names)
        _require_lengths(folder / CONFIG, config)
        files = _weight_files(folder, names)
        tensors: dict[str, TensorEntry] = {}
        for path in files:
            tensors |= read_header(path)
    return Checkpoint(folder, config, tuple(files), tensors)


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises `ModelFileError` if it is too large or holds no object, and `OSError`.
    """
    if path.stat().st_size > _MAX_JSON_BYTES:
        raise ModelFileError(str(path), f"is larger than {_MAX_JSON_BYTES >> 20} MiB; {_GET_AGAIN}")
    return _parse_object(path, path.read_bytes())


def check_tokenizer(folder: Path) -> None:
    """Raise `ModelFileError` if a JSON file of a folder's tokenizer is damaged.

    It is called to explain why Transformers could not read a tokenizer. A folder
    without `tokenizer.json` is therefore an error too.
    """
    with _as_file_errors(folder):
        names = names_in(folder)
        for name in _BESIDE:
            if name in names and name.endswith(".json"):
                read_json(folder / name)
    if TOKENIZER not in names:
        reason = f"has no {TOKENIZER}; {_GET_AGAIN}, or pass tokenizer= with a tokenizer or its folder"
        raise ModelFileError(str(folder), reason)


@contextmanager
def _as_file_errors(folder: Path) -> Iterator[None]:
    """Turn an `OSError` in the `with` block into a `ModelFileError` about the file."""
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else str(folder)
        raise ModelFileError(where, f"cannot be read: {error.strerror}; check the file and its permissions") from error


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Return the tensors of a safetensors file by name, without reading them.

    Raises `ModelFileError` if the file is damaged or truncated, and `OSError`.
    """
    from safetensors import SafetensorError, safe_open

    path.open("rb").close()  # raises `OSError`, which safetensors would hide
    try:
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
            return {name: TensorEntry(one.get_dtype(), tuple(one.get_shape())) for name, one in slices.items()}
    except SafetensorError as error:
        raise ModelFileError(str(path), f"is damaged or truncated: {clip(str(error))}; {_GET_AGAIN}") from error


def _parse_object(path: Path, data: bytes) -> dict[str, Any]:
    """Return the object in JSON data, or raise `ModelFileError` about its file."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ModelFileError(str(path), f"is not valid JSON: {reason}; {_GET_AGAIN}") from error
    if not isinstance(value, dict):
        raise ModelFileError(str(path), f"is a JSON {type(value).__name__}, not an object; {_GET_AGAIN}")
    return value


def _require_plain(folder: Path, config: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise `UnsupportedModelError` for adapters, encoders, and code of the hub."""
    if _ADAPTER in names:
        raise UnsupportedModelError(
            str(folder), f"holds an adapter ({_ADAPTER}); merge it by PEFT's merge_and_unload, and save the result"
        )
    if config.get("is_encoder_decoder"):
        raise UnsupportedModelError(str(folder), "has an encoder; a decoder-only language model is needed")
    for name, value in config.items():
        if name.endswith("_implementation") and "/" in str(value):
            raise UnsupportedModelError(
                str(folder), f"{CONFIG} asks for code of the hub ({name}={clip(repr(value), 60)}); remove that entry"
            )


def _require_lengths(path: Path, config: Mapping[str, Any]) -> None:
    """Raise `ModelFileError` for a number of positions that no model can have.

    A missing number, or null, is allowed.
    """
    text = config.get("text_config")
    parts = [config, text, *(one.get(name) for one in (config, text) if isinstance(one, dict) for name in _ROPES)]
    for part in (one for one in parts if isinstance(one, dict)):
        for name in _LENGTHS:
            value = part.get(name)
            if value is not None and not (type(value) is int and 1 <= value <= _MAX_POSITIONS):
                reason = (
                    f"{name} is {clip(repr(value), 60)}: expected a whole number from 1 to {_MAX_POSITIONS}, or null"
                )
                raise ModelFileError(str(path), f"{reason}; {_GET_AGAIN}, or correct it as the model's page says")


def _weight_files(folder: Path, names: Collection[str]) -> list[Path]:
    """Return the files of weights: one, or those that the index names."""
    if WEIGHTS in names:
        return [folder / WEIGHTS]
    if INDEX in names:
        return [folder / name for name in _files_in_index(folder / INDEX, names)]
    require_safe(str(folder), names)
    raise ModelFileError(str(folder), f"has no weights: neither {WEIGHTS} nor {INDEX}; {_GET_AGAIN}")


def require_safe(name: str, names: Iterable[str]) -> None:
    """Raise `UnsupportedModelError` if the weights of a checkpoint are pickles.

    Call it for a folder without weights in safetensors files.

    Args:
        name: Name of the folder or repository, for errors.
        names: Names of the files in it.
    """
    pickles = sorted(one for one in names if one.endswith(PICKLES))
    if pickles:
        shown = ", ".join(pickles[:_MAX_NAMES])
        raise UnsupportedModelError(
            name,
            f"its weights are pickles ({shown}), which run code when they are read, so they are never opened; "
            "take a version with *.safetensors, or convert it where you trust it: "
            "AutoModelForCausalLM.from_pretrained(…).save_pretrained(folder)",
        )


def _files_in_index(path: Path, names: Collection[str]) -> list[str]:
    """Return the names of the files that an index lists, sorted."""
    by_tensor = read_json(path).get("weight_map")
    if not isinstance(by_tensor, dict) or not by_tensor:
        raise ModelFileError(str(path), f"has no weight_map; {_GET_AGAIN}")
    files = {str(name) for name in by_tensor.values()}
    for name in sorted(files):
        if not name.endswith(SAFETENSORS) or "/" in name or "\\" in name:
            raise ModelFileError(str(path), f"names {clip(repr(name), 80)}, which is no safetensors file beside it")
        if name not in names:
            raise ModelFileError(str(path.parent / name), f"is missing, but {INDEX} names it; {_GET_AGAIN}")
    return sorted(files)
