"""A check for metadata on which llama.cpp would end the process, before it is loaded.

llama.cpp rejects most damage by itself, with a reason, and that is left to it: magic,
sizes, alignment, texts and arrays cut off, shapes, types and offsets of tensors, ids of
special tokens. Checked here is what it asserts instead (`GGML_ASSERT`, `GGML_ABORT`,
exceptions that nothing catches), as of the version that the package was measured on:
`load_hparams` of llama-model.cpp, llama-vocab.cpp, llama-model-loader.cpp, and norms
and rotations of ggml-cpu/ops.cpp. Not all assertions of single architectures are known,
so `selectrie.load(untrusted=True)` opens a file in a child process first.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from selectrie.backends.llama_cpp.gguf_header import (
    TOKENS,
    UINT16,
    VERSIONS,
    Metadata,
    TokenTable,
    parts_of,
    read_metadata,
    token_table,
)
from selectrie.errors import ModelFileError

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
    """Raise `ModelFileError` for metadata on which llama.cpp ends the process.

    Returns the table of tokens, so that it need not be read again; None if there is
    none.
    """
    tokens = None
    for part in parts_of(path):
        with part.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                metadata = read_metadata(data)
                if metadata.version not in VERSIONS:
                    continue
                own = token_table(metadata, data)
            except (struct.error, KeyError, OverflowError):
                continue  # llama.cpp says why it cannot read it
        fault = next(_faults(metadata, own), None)
        if fault is not None:
            raise ModelFileError(str(part), f"its metadata is damaged: {fault}; get the file again")
        tokens = tokens or own
    return tokens


def _faults(metadata: Metadata, tokens: TokenTable | None) -> Iterator[str]:
    yield from _of_parts(metadata)
    yield from _of_layers(metadata)
    yield from _of_experts(metadata)
    yield from _of_numbers(metadata)
    yield from _of_heads(metadata)
    yield from _of_windows(metadata)
    yield from _of_vocabulary(metadata, tokens)


def _of_parts(metadata: Metadata) -> Iterator[str]:
    kind = metadata.kinds.get("split.no", (UINT16, None))
    if kind != (UINT16, None):
        yield "split.no is not a 16-bit integer"


def _of_layers(metadata: Metadata) -> Iterator[str]:
    n = _whole(metadata, "block_count")
    if n is None:
        return
    if not 0 < n <= MAX_LAYERS:
        yield f"{_name(metadata, 'block_count')} is {n}, expected 1 to {MAX_LAYERS}"
    ahead = _whole(metadata, "nextn_predict_layers") or 0
    if ahead > n:
        yield f"{_name(metadata, 'nextn_predict_layers')} is {ahead} of {n} layers"


def _of_experts(metadata: Metadata) -> Iterator[str]:
    n, groups = _whole(metadata, "expert_count") or 0, _whole(metadata, "expert_group_count") or 0
    used, groups_used = _largest(metadata, "expert_used_count"), _whole(metadata, "expert_group_used_count") or 0
    if metadata.values.get("general.architecture") in _DROPS_ONE_EXPERT and n <= 1:
        n = used = 0
    count = _name(metadata, "expert_count")
    if n > MAX_EXPERTS:
        yield f"{count} is {n}, expected at most {MAX_EXPERTS}"
    if used > n or (n and not used):
        yield f"{_name(metadata, 'expert_used_count')} is {used}, and {count} {n}"
    if groups and groups >= n:
        yield f"{_name(metadata, 'expert_group_count')} is {groups}, and {count} {n}"
    if n and groups > 1 and (n % groups or not 0 < groups_used < groups):
        yield f"{groups_used} of {groups} groups of {n} experts are said to be used"


def _of_numbers(metadata: Metadata) -> Iterator[str]:
    for key, value in metadata.values.items():
        if _EPSILONS.search(key) and isinstance(value, float) and not 0 <= value < math.inf:
            yield f"{key} is {value:g}, expected a number of at least 0"
    scaling = _value(metadata, "rope.scaling.type")
    if isinstance(scaling, str) and scaling not in _ROPE_SCALINGS:
        yield f"{_name(metadata, 'rope.scaling.type')} is {scaling[:40]!r}, expected one of {', '.join(_ROPE_SCALINGS)}"


def _of_heads(metadata: Metadata) -> Iterator[str]:
    heads, rotated = _whole(metadata, "attention.head_count"), _whole(metadata, "rope.dimension_count")
    kv = _whole(metadata, "attention.head_count_kv")
    if heads and kv and heads % kv:
        yield f"{heads} heads of attention do not share {kv} of keys evenly"
    if not heads:
        return
    width = _whole(metadata, "attention.key_length")
    if width is None:
        width = (_whole(metadata, "embedding_length") or 0) // heads
    if rotated is not None and (rotated % 2 or rotated > width):
        yield f"{_name(metadata, 'rope.dimension_count')} is {rotated}, expected an even number of at most {width}"
    if rotated == 0 and metadata.values.get("general.architecture") in _ALWAYS_ROTATE:
        yield f"{_name(metadata, 'rope.dimension_count')} is 0, expected an even number from 2 to {width}"


def _of_windows(metadata: Metadata) -> Iterator[str]:
    if _whole(metadata, "attention.sliding_window") and _whole(metadata, "attention.sliding_window_pattern") == 1:
        yield f"{_name(metadata, 'attention.sliding_window_pattern')} is 1, which leaves no layer a window"


def _of_vocabulary(metadata: Metadata, tokens: TokenTable | None) -> Iterator[str]:
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


def _name(metadata: Metadata, key: str) -> str:
    return f"{metadata.values.get('general.architecture', '')}.{key}"


def _value(metadata: Metadata, key: str) -> object:
    return metadata.values.get(_name(metadata, key))


def _whole(metadata: Metadata, key: str) -> int | None:
    """Return the integer `key` of the architecture's metadata.

    None if it is missing or of another type.
    """
    value = _value(metadata, key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _largest(metadata: Metadata, key: str) -> int:
    """Return the integer of `key`, or the largest one of an array; 0 if missing."""
    value = _value(metadata, key)
    if isinstance(value, tuple):
        return max((one for one in value if isinstance(one, int)), default=0)
    return _whole(metadata, key) or 0
