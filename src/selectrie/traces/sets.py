"""Sets of tokens of which something is read, and what tells them apart."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from selectrie.core.types import BoolArray, IntArray

MAX_LISTED = 64
"""Sets of more tokens are kept as their digest, from which they are recognised."""
EVERY_TOKEN = b""
"""Digest of the set of all tokens, as of an allowed set that is None."""

_DIGEST_BYTES = 16


def ordered(ids: IntArray) -> tuple[bytes, IntArray]:
    """Return the bytes by which a set whose sum is read is known, and its tokens.

    The order of the tokens is part of it, because a sum has other bits in another.
    """
    tokens = np.ascontiguousarray(ids, dtype=np.int32)
    return b"s" + tokens.tobytes(), tokens


def allowed_key(allowed: BoolArray | IntArray) -> bytes:
    """Return the bytes by which an allowed set of `Rows.top` is known.

    They are a bit for each token up to the last one that is allowed, so a mask and an
    array of ids have the same.
    """
    mask = allowed
    if mask.dtype != np.bool_:
        mask = np.zeros(int(allowed.max(initial=-1)) + 1, dtype=np.bool_)
        mask[allowed] = True
    return b"a" + np.packbits(mask).tobytes().rstrip(b"\0")


def digest_of(key: bytes) -> bytes:
    """Return the digest of a set, from the bytes by which it is known."""
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
