"""Reads the header of a GGUF file, and refuses metadata that would crash llama.cpp."""

from __future__ import annotations

import math
import mmap
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from selectrie.core.types import IntArray
from selectrie.errors import ModelFileError, UnsupportedModelError

Value: TypeAlias = int | float | bool | str | tuple[int, ...]

_GGUF_MAGIC = b"GGUF"
_GGUF_HEADER = struct.Struct("<4sIQQ")
"""Magic, version, number of tensors, number of metadata pairs (gguf.h)."""
_START, _U32, _U64 = struct.Struct("<4xIQQ"), struct.Struct("<I"), struct.Struct("<Q")
_SCALARS = {at: struct.Struct("<" + code) for at, code in enumerate("BbHhIif?")} | {
    at: struct.Struct("<" + code) for at, code in zip((10, 11, 12), "Qqd", strict=True)
}
UINT16, INT32, STRING, ARRAY = 2, 5, 8, 9
"""Types of values (`gguf_metadata_value_type`)."""
VERSIONS = (2, 3)
"""Versions of the format that llama.cpp reads."""
TOKENS, _TYPES, _PREFIX = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml."
NORMAL = 1
"""`LLAMA_TOKEN_TYPE_NORMAL`."""
_MAX_TEXTS = 1 << 24
"""Maximum number of texts of an array; vocabularies and merges have below a million."""
_MAX_WINDOW_BYTES = 1 << 26
"""Maximum number of bytes of an array in which lengths are looked for at once."""
_USUAL_TEXT_BYTES = 32
"""Bytes of a token or a merge with its length; fewer on average."""
_KEPT_ITEMS = 4096
"""Maximum length of an array of integers that is kept: values per layer, not token."""
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+(?<!\.gguf)(/[\w./-]+\.gguf)?")
"""A path that may be meant as a repository of the hub, or a file in it."""
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
"""Matches the end of a file name of a split model (`llama_split_path`)."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The metadata of a GGUF file.

    Attributes:
        values: Numbers, texts, and short arrays of integers, by key.
        lengths: Length of every array, by key.
        n_bytes: Size of the file together with the other parts of a split model.
    """

    values: Mapping[str, Value]
    lengths: Mapping[str, int]
    n_bytes: int

    def metadata_int(self, key: str) -> int | None:
        """Return the integer of `key`, or the largest one if the value is an array.

        None if the key is missing. `{arch}` in the key is replaced by the architecture.
        """
        value = self.values.get(key.replace("{arch}", str(self.values.get("general.architecture", ""))))
        if isinstance(value, tuple):
            return max(value, default=None)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_header(path: Path) -> GgufHeader:
    """Return the header of a GGUF file.

    Takes 0.1 s for a vocabulary of 150 000 tokens.

    Raises:
        ModelFileError: If the file is not a GGUF file, or damaged.
        UnsupportedModelError: If the file holds only a vocabulary.
    """
    require_gguf(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            metadata = read_metadata(data)
        except (struct.error, KeyError, OverflowError) as error:
            raise ModelFileError(str(path), "its header is damaged or cut off; get it again") from error
    return GgufHeader(metadata.values, metadata.lengths, sum(one.stat().st_size for one in parts_of(path)))


def require_gguf(path: Path) -> None:
    """Check that a file begins like a GGUF file and has weights.

    Its errors are plainer than llama.cpp's.

    Raises:
        ModelFileError: If the file is missing, unreadable, cut off, or not a GGUF file.
        UnsupportedModelError: If the file holds only a vocabulary.
    """
    _, version, n_tensors, _ = _GGUF_HEADER.unpack(require_magic(path))
    if version > 1 and n_tensors == 0:  # version 1 counted in 32 bits
        raise UnsupportedModelError(path.name, "holds a vocabulary without weights; a whole model is needed")


def require_magic(path: Path) -> bytes:
    """Return the first 24 bytes of a GGUF file.

    Raises `ModelFileError` if it is missing, unreadable, cut off, or no GGUF file.
    """
    if not os.path.exists(path):  # noqa: PTH110 - `Path.exists` raises for a name that is too long
        hub = f"hf:{path}" if _REPOSITORY.fullmatch(str(path)) else "hf:owner/repo/file.gguf"
        reason = f"no such file; check the path, or write {hub} for the hub"
        if path.suffix != ".gguf" and path.name == str(path):  # such as "llama3"
            reason = "no such file, and a name alone is no model; write hf:owner/repo:Q4_K_M for one of the hub"
        raise ModelFileError(str(path), reason)
    if not path.is_file():
        raise ModelFileError(str(path), "is a directory, not a GGUF file" if path.is_dir() else "is not a regular file")
    try:
        with path.open("rb") as file:
            header = file.read(_GGUF_HEADER.size)
    except OSError as error:
        raise ModelFileError(str(path), f"cannot be read: {error.strerror}") from error
    if not header:
        raise ModelFileError(str(path), "the file is empty; get it again")
    if not header.startswith(_GGUF_MAGIC):
        raise ModelFileError(str(path), f"not a GGUF file: it begins with {header[:4]!r} instead of {_GGUF_MAGIC!r}")
    if len(header) < _GGUF_HEADER.size:
        raise ModelFileError(str(path), "the file is cut off within its header; get it again")
    return header


def read_texts(path: Path, key: str) -> list[str]:
    """Return the texts of the array `key` in a GGUF header; [] if it is missing.

    Raises:
        ModelFileError: If the file is damaged.
        OSError: If the file cannot be opened.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            metadata = read_metadata(data)
        except (struct.error, KeyError, OverflowError) as error:
            raise ModelFileError(str(path), "its header is damaged or cut off; get it again") from error
        return [text.decode("utf-8", "replace") for text in metadata.texts(data, key)]


@dataclass(slots=True)
class GgufMetadata:
    """The part of a GGUF file before the descriptions of its tensors.

    Attributes:
        version: Version of the format.
        values: Numbers, texts, and short arrays of integers, by key.
        lengths: Length of every array, by key.
        kinds: Type of each value and, for an array, of its items.
        text_arrays: Offset of each text, and of the end of the last one, by array. A
            text begins with its length.
        number_arrays: Offset of the first item of each array of numbers.
    """

    version: int
    values: dict[str, Value] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    text_arrays: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    number_arrays: dict[str, int] = field(default_factory=dict)

    def texts(self, data: mmap.mmap, key: str) -> list[bytes]:
        """Return the texts of the array `key`; [] if there is no such array.

        `data` is the file that this was read from.
        """
        if key not in self.text_arrays:
            return []
        places = self.text_arrays[key]
        array = np.array(np.frombuffer(data[places[0] : places[-1]], dtype=np.uint8))
        starts = places[:-1] - places[0]
        is_kept = np.ones(len(array), dtype=np.bool_)
        for i in range(1, _U64.size):
            is_kept[starts + i] = False
        array[starts] = 0
        texts = array[is_kept].tobytes().split(b"\0")[1:]
        if len(texts) == len(starts):
            return texts
        return [data[start + _U64.size : end] for start, end in pairwise(places.tolist())]


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The tokens in a GGUF header.

    Attributes:
        spellings: The text of each token as llama.cpp reads it: up to the first NUL, or
            `[EMPTY_id]` if that leaves nothing.
        joined: These texts, with a NUL after each.
        spelled: The set of these texts.
        types: int32[V], the type of each token (`llama_token_type`).
        special: Ids of special tokens, such as BOS. They may be out of range.
    """

    spellings: list[bytes]
    joined: bytes
    spelled: frozenset[bytes]
    types: IntArray
    special: list[int]


def read_token_table(metadata: GgufMetadata, data: mmap.mmap) -> TokenTable | None:
    """Return the tokens in a file's metadata; None if it has no texts of tokens."""
    if TOKENS not in metadata.text_arrays:
        return None
    texts = metadata.texts(data, TOKENS)
    joined = b"\0".join([*texts, b""])
    if joined.count(b"\0") != len(texts) or b"\0\0" in joined or joined.startswith(b"\0"):
        texts = [text.partition(b"\0")[0] or b"[EMPTY_%d]" % token for token, text in enumerate(texts)]
        joined = b"\0".join([*texts, b""])
    types = np.full(len(texts), NORMAL, dtype=np.int32)
    if metadata.kinds.get(_TYPES) == (ARRAY, INT32) and metadata.lengths[_TYPES] >= len(texts):
        at = metadata.number_arrays[_TYPES]
        types = np.frombuffer(data[at : at + types.nbytes], dtype="<i4")
    named = [value for key, value in metadata.values.items() if key.startswith(_PREFIX) and key.endswith("_token_id")]
    return TokenTable(texts, joined, frozenset(texts), types, [value for value in named if isinstance(value, int)])


def read_metadata(data: mmap.mmap) -> GgufMetadata:
    """Return all metadata of a GGUF file.

    Raises `struct.error`, `KeyError` or `OverflowError` if it is damaged.
    """
    version, _, n_pairs = _START.unpack_from(data, 0)
    at = _START.size
    metadata = GgufMetadata(version)
    for _ in range(n_pairs):
        name, at = _read_text(data, at)
        key = name.decode("utf-8", "replace")
        (kind,) = _U32.unpack_from(data, at)
        at += _U32.size
        metadata.kinds[key] = kind, None
        if kind == STRING:
            text, at = _read_text(data, at)
            metadata.values[key] = text.decode("utf-8", "replace")
        elif kind == ARRAY:
            at = _read_array(data, at, key, metadata)
        else:
            (metadata.values[key],) = _SCALARS[kind].unpack_from(data, at)
            at += _SCALARS[kind].size
    return metadata


def _read_array(data: mmap.mmap, at: int, key: str, metadata: GgufMetadata) -> int:
    """Read the array at offset `at` into `metadata`; return the offset behind it."""
    (kind,) = _U32.unpack_from(data, at)
    (n,) = _U64.unpack_from(data, at + _U32.size)
    at += _U32.size + _U64.size
    metadata.kinds[key] = ARRAY, kind
    metadata.lengths[key] = n
    if kind == STRING:
        places = metadata.text_arrays[key] = _text_places(data, at, n)
        return int(places[-1])
    metadata.number_arrays[key] = at
    item = _SCALARS[kind]
    # Only short arrays of whole numbers are needed, such as heads of each layer.
    if n <= _KEPT_ITEMS and item.format[-1] not in "fd?":
        metadata.values[key] = tuple(item.unpack_from(data, at + i * item.size)[0] for i in range(n))
    return at + int(n) * item.size


def _read_text(data: mmap.mmap, at: int) -> tuple[bytes, int]:
    """Return the text at offset `at`, and the offset behind it."""
    (n,) = _U64.unpack_from(data, at)
    start = at + _U64.size
    if n > len(data) - start:
        raise struct.error(f"a text of {n} bytes")
    return data[start : start + n], start + n


def _text_places(data: mmap.mmap, at: int, n: int) -> NDArray[np.int64]:
    """Return int64[n + 1], the offsets of n texts and of the end of the last one.

    To be fast, all numbers below 256 are first taken for lengths. They are right if
    each text then ends where the next one begins; otherwise texts are read one by one.
    Raises `struct.error` for an impossible count, before anything is copied.
    """
    size = _U64.size
    if n > min(_MAX_TEXTS, (len(data) - at) // size):
        raise struct.error(f"{n} texts in {len(data) - at} bytes")
    window = np.frombuffer(data[at : at + min(n * _USUAL_TEXT_BYTES, _MAX_WINDOW_BYTES)], dtype=np.uint8)
    is_length = np.zeros(len(window), dtype=np.bool_)
    # A length is a number of 8 bytes, which may begin at any offset.
    for start in range(min(size, len(window) - size + 1)):
        whole = window[start : start + (len(window) - start) // size * size].view("<u8")
        is_length[start::size][: len(whole)] = whole < 1 << 8
    starts = np.flatnonzero(is_length)[:n]
    ends = starts + window[starts] + size
    if n and len(starts) == n and starts[0] == 0 and (ends[:-1] == starts[1:]).all() and at + ends[-1] <= len(data):
        return np.append(starts, ends[-1]) + at
    read, places = _U64.unpack_from, [at]
    for _ in range(n):
        at += size + read(data, at)[0]
        places.append(at)
    if at > len(data):
        raise struct.error(f"texts up to offset {at}")
    return np.asarray(places, dtype=np.int64)


def parts_of(path: Path) -> list[Path]:
    """Return the files of a split model that exist; for another model its one file."""
    names = part_names(path.name)
    if len(names) == 1:
        return [path]
    parts = [path.with_name(name) for name in names]
    return [one for one in parts if one.exists()]


def part_names(name: str) -> list[str]:
    """Return the names of all files of a split model; for another model its one name.

    The name may begin with folders.
    """
    part = _PART.search(name)
    if part is None:
        return [name]
    stem, n = name[: part.start()], int(part[1])
    return [f"{stem}-{i:05d}-of-{n:05d}.gguf" for i in range(1, n + 1)] or [name]


MAX_LAYERS, MAX_EXPERTS = 512, 1024
"""`LLAMA_MAX_LAYERS`, `LLAMA_MAX_EXPERTS` (llama-hparams.h)."""
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_EPSILONS = re.compile(r"\.attention\.(?:layer_norm(?:_rms)?|group_norm)_epsilon$")
_TOKENIZER = "tokenizer.ggml.model"
_LINE_END = (b"\n", b"\\n", b"\\x0a")
"""Spellings of a line end in RWKV's vocabularies."""
_DROPS_ONE_EXPERT = ("hunyuan-dense", "hunyuan_vl")
"""Architectures whose single expert counts as none."""
_ALWAYS_ROTATE = ("gemma", "gemma2", "gemma3", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "phi2", "phi3", "lfm2")
"""Architectures in which a rotation of no dimensions never ends.

In others 0 means that nothing is rotated.
"""


def require_sound(path: Path) -> TokenTable | None:
    """Raise `ModelFileError` for metadata on which llama.cpp would end the process.

    Returns the tokens of the header, which are read anyway; None if there are none.
    """
    tokens = None
    for part in parts_of(path):
        with part.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                metadata = read_metadata(data)
                if metadata.version not in VERSIONS:
                    continue
                own = read_token_table(metadata, data)
            except (struct.error, KeyError, OverflowError):
                continue  # llama.cpp says why it cannot read it
        fault = next(_faults(metadata, own), None)
        if fault is not None:
            raise ModelFileError(str(part), f"its metadata is damaged: {fault}; get the file again")
        tokens = tokens or own
    return tokens


def _faults(metadata: GgufMetadata, tokens: TokenTable | None) -> Iterator[str]:
    """Yield, in words, each fault on which llama.cpp would end the process."""
    yield from _part_faults(metadata)
    yield from _layer_faults(metadata)
    yield from _expert_faults(metadata)
    yield from _number_faults(metadata)
    yield from _head_faults(metadata)
    yield from _window_faults(metadata)
    yield from _vocabulary_faults(metadata, tokens)


def _part_faults(metadata: GgufMetadata) -> Iterator[str]:
    """Yield a fault of the number of a split model's file."""
    kind = metadata.kinds.get("split.no", (UINT16, None))
    if kind != (UINT16, None):
        yield "split.no is not a 16-bit integer"


def _layer_faults(metadata: GgufMetadata) -> Iterator[str]:
    """Yield faults of the numbers of layers."""
    n = _integer(metadata, "block_count")
    if n is None:
        return
    if not 0 < n <= MAX_LAYERS:
        yield f"{_full_key(metadata, 'block_count')} is {n}, expected 1 to {MAX_LAYERS}"
    ahead = _integer(metadata, "nextn_predict_layers") or 0
    if ahead > n:
        yield f"{_full_key(metadata, 'nextn_predict_layers')} is {ahead} of {n} layers"


def _expert_faults(metadata: GgufMetadata) -> Iterator[str]:
    """Yield faults of the numbers of experts and of their groups."""
    n, groups = _integer(metadata, "expert_count") or 0, _integer(metadata, "expert_group_count") or 0
    used, groups_used = (
        _largest_integer(metadata, "expert_used_count"),
        _integer(metadata, "expert_group_used_count") or 0,
    )
    if metadata.values.get("general.architecture") in _DROPS_ONE_EXPERT and n <= 1:
        # llama.cpp reads a single expert of these as none.
        n = used = 0
    count = _full_key(metadata, "expert_count")
    if n > MAX_EXPERTS:
        yield f"{count} is {n}, expected at most {MAX_EXPERTS}"
    if used > n or (n and not used):
        yield f"{_full_key(metadata, 'expert_used_count')} is {used}, and {count} {n}"
    if groups and groups >= n:
        yield f"{_full_key(metadata, 'expert_group_count')} is {groups}, and {count} {n}"
    if n and groups > 1 and (n % groups or not 0 < groups_used < groups):
        yield f"{groups_used} of {groups} groups of {n} experts are said to be used"


def _number_faults(metadata: GgufMetadata) -> Iterator[str]:
    """Yield faults of the epsilons of norms and of the kind of RoPE scaling."""
    for key, value in metadata.values.items():
        if _EPSILONS.search(key) and isinstance(value, float) and not 0 <= value < math.inf:
            yield f"{key} is {value:g}, expected a number of at least 0"
    scaling = _value(metadata, "rope.scaling.type")
    if isinstance(scaling, str) and scaling not in _ROPE_SCALINGS:
        key = _full_key(metadata, "rope.scaling.type")
        yield f"{key} is {scaling[:40]!r}, expected one of {', '.join(_ROPE_SCALINGS)}"


def _head_faults(metadata: GgufMetadata) -> Iterator[str]:
    """Yield faults of the numbers of heads and of their rotated dimensions."""
    heads, rotated = _integer(metadata, "attention.head_count"), _integer(metadata, "rope.dimension_count")
    kv = _integer(metadata, "attention.head_count_kv")
    if heads and kv and heads % kv:
        yield f"{heads} heads of attention do not share {kv} of keys evenly"
    if not heads:
        return
    width = _integer(metadata, "attention.key_length")
    if width is None:
        width = (_integer(metadata, "embedding_length") or 0) // heads
    if rotated is not None and (rotated % 2 or rotated > width):
        yield f"{_full_key(metadata, 'rope.dimension_count')} is {rotated}, expected an even number of at most {width}"
    if rotated == 0 and metadata.values.get("general.architecture") in _ALWAYS_ROTATE:
        yield f"{_full_key(metadata, 'rope.dimension_count')} is 0, expected an even number from 2 to {width}"


def _window_faults(metadata: GgufMetadata) -> Iterator[str]:
    """Yield a fault of the layers that a sliding window leaves out."""
    if _integer(metadata, "attention.sliding_window") and _integer(metadata, "attention.sliding_window_pattern") == 1:
        yield f"{_full_key(metadata, 'attention.sliding_window_pattern')} is 1, which leaves no layer a window"


def _vocabulary_faults(metadata: GgufMetadata, tokens: TokenTable | None) -> Iterator[str]:
    """Yield faults of the tokens: repeated texts, and line ends of RWKV."""
    if TOKENS in metadata.kinds and tokens is None:
        yield f"{TOKENS} is not a list of texts"
    if tokens is None:
        return
    seen = tokens.spelled
    if len(seen) < len(tokens.spellings):
        first: dict[bytes, int] = {}
        for token, spelling in enumerate(tokens.spellings):
            other = first.setdefault(spelling, token)
            if other != token:
                yield f"tokens {other} and {token} are both spelled {spelling[:40].decode('utf-8', 'replace')!r}"
    # RWKV's longest match would never get past a prefix that is not a token itself.
    is_longest = metadata.values.get(_TOKENIZER) == "rwkv" and seen.isdisjoint(_LINE_END)
    if is_longest and any(spelling.startswith(_LINE_END) for spelling in seen):
        yield "tokens begin with a line end, but no token is a line end"


def _full_key(metadata: GgufMetadata, key: str) -> str:
    return f"{metadata.values.get('general.architecture', '')}.{key}"


def _value(metadata: GgufMetadata, key: str) -> object:
    return metadata.values.get(_full_key(metadata, key))


def _integer(metadata: GgufMetadata, key: str) -> int | None:
    """Return the integer `key` of the architecture's metadata.

    None if it is missing or of another type.
    """
    value = _value(metadata, key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _largest_integer(metadata: GgufMetadata, key: str) -> int:
    """Return the integer of `key`, or the largest one of an array; 0 if missing."""
    value = _value(metadata, key)
    if isinstance(value, tuple):
        return max((one for one in value if isinstance(one, int)), default=0)
    return _integer(metadata, key) or 0
