"""Random weights in the block formats of ggml, written directly: without a quantiser,
half a billion weights take seconds.

Every function returns uint8[rows, bytes] for float weights of shape [rows, columns],
mean 0 and the requested standard deviation. Block layouts: ggml-common.h of llama.cpp
(`block_q8_0`, `block_q4_0`, `block_q4_K`, `block_q6_K`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
UNIFORM_INT8 = np.sqrt((256**2 - 1) / 12)
UNIFORM_INT4 = np.sqrt((16**2 - 1) / 12)
UNIFORM_INT6 = np.sqrt((64**2 - 1) / 12)
SCALE_Q4_K, MINIMUM_Q4_K = 32, 48
SCALE_Q6_K = 64


def _half(value: float) -> Bytes:
    return np.array([value], dtype=np.float16).view(np.uint8)


def _random(rng: np.random.Generator, blocks: int, n_bytes: int) -> Bytes:
    return np.frombuffer(rng.bytes(blocks * n_bytes), dtype=np.uint8).reshape(blocks, n_bytes)


def f32(rng: np.random.Generator, rows: int, columns: int, deviation: float) -> NDArray[np.float32]:
    """Return normal weights."""
    return rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(deviation)


def f16(rng: np.random.Generator, rows: int, columns: int, deviation: float) -> NDArray[np.float16]:
    """Return normal weights, rounded."""
    return f32(rng, rows, columns, deviation).astype(np.float16)


def q8_0(rng: np.random.Generator, rows: int, columns: int, deviation: float) -> Bytes:
    """Blocks of 32: scale (half), 32 int8. Weight = scale * q."""
    blocks = np.empty((rows * columns // 32, 34), dtype=np.uint8)
    blocks[:, :2] = _half(deviation / UNIFORM_INT8)
    blocks[:, 2:] = _random(rng, len(blocks), 32)
    return blocks.reshape(rows, -1)


def q4_0(rng: np.random.Generator, rows: int, columns: int, deviation: float) -> Bytes:
    """Blocks of 32: scale (half), 16 bytes of two nibbles. Weight = scale * (q - 8).

    Every other scale is negative: q - 8 has mean -0.5, a tenth of the deviation, which would add up over a row.
    """
    blocks = np.empty((rows * columns // 32, 18), dtype=np.uint8)
    blocks[::2, :2] = _half(deviation / UNIFORM_INT4)
    blocks[1::2, :2] = _half(-deviation / UNIFORM_INT4)
    blocks[:, 2:] = _random(rng, len(blocks), 16)
    return blocks.reshape(rows, -1)


def q4_k(rng: np.random.Generator, rows: int, columns: int, deviation: float) -> Bytes:
    """Blocks of 256: scale and minimum (halves), eight 6-bit pairs of them in 12 bytes, 128 bytes of nibbles.

    Weight = d * 32 * q - dmin * 48, with dmin chosen for mean 0. Six-bit fields as `get_scale_min_k4` reads them.
    """
    d = deviation / UNIFORM_INT4 / SCALE_Q4_K
    blocks = np.empty((rows * columns // 256, 144), dtype=np.uint8)
    blocks[:, :2] = _half(d)
    blocks[:, 2:4] = _half(d * SCALE_Q4_K * 7.5 / MINIMUM_Q4_K)
    blocks[:, 4:8] = (SCALE_Q4_K & 63) | (SCALE_Q4_K >> 4 << 6)
    blocks[:, 8:12] = (MINIMUM_Q4_K & 63) | (MINIMUM_Q4_K >> 4 << 6)
    blocks[:, 12:16] = (SCALE_Q4_K & 15) | ((MINIMUM_Q4_K & 15) << 4)
    blocks[:, 16:] = _random(rng, len(blocks), 128)
    return blocks.reshape(rows, -1)


def q6_k(rng: np.random.Generator, rows: int, columns: int, deviation: float) -> Bytes:
    """Blocks of 256: low nibbles (128 bytes), high pairs of bits (64), sixteen int8 scales, scale (half).

    Weight = d * 64 * (q - 32).
    """
    blocks = np.empty((rows * columns // 256, 210), dtype=np.uint8)
    blocks[:, :192] = _random(rng, len(blocks), 192)
    blocks[:, 192:208] = SCALE_Q6_K
    blocks[:, 208:] = _half(deviation / UNIFORM_INT6 / SCALE_Q6_K)
    return blocks.reshape(rows, -1)


FORMATS: dict[str, Callable[[np.random.Generator, int, int, float], NDArray[Any]]] = {
    "F32": f32,
    "F16": f16,
    "Q8_0": q8_0,
    "Q4_0": q4_0,
    "Q4_K": q4_k,
    "Q6_K": q6_k,
}
