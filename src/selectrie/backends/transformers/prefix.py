"""A prefix: the caller's keys and values, which stand before every context of a model.

They were computed by the model, as `past_key_values` of a forward, or learned, as by
prefix tuning. They are copied when the model is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from threading import Event
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    StaticLayer,
)

from selectrie.backends.transformers.attention import CellCache, TreeCall
from selectrie.backends.transformers.module import PreparedModule, Route, full_precision
from selectrie.backends.transformers.options import PREFIXES
from selectrie.errors import OptionError

MIN_NODES = 8
"""Number of tokens that must fit behind a prefix; also the minimum of `n_ctx`."""
_NEAR = 2**-6
"""Distance of a key from the expected one, relative to its length, that is allowed.

Kernels differ by less, also those that round to TF32. Keys of different tokens are
about their own length apart.
"""

Pair: TypeAlias = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The keys and values of P tokens, on the devices of their layers.

    Attributes:
        layers: For each layer its keys, [1, heads, P, width], and its values; None for
            a layer that keeps none. They are 0 for tokens that have left a sliding
            window.
        length: Number of tokens, P.
        digest: Digest of all shapes, types and bytes.
        first_whole: Index of the first layer that has all P tokens, or None.
    """

    layers: tuple[Pair | None, ...]
    length: int
    digest: str
    first_whole: int | None

    def write(self, cache: CellCache) -> None:
        """Write the prefix into the first P cells of all layers."""
        with torch.inference_mode():
            for layer, pair in zip(cache.layers, self.layers, strict=True):
                if pair is not None:
                    layer.keys[:, :, : self.length] = pair[0]
                    layer.values[:, :, : self.length] = pair[1]

    def own_cache(self, config: Any, n_texts: int) -> DynamicCache:
        """Return a cache of the model's own kind that begins with the prefix.

        Args:
            config: The configuration of the model.
            n_texts: Number of texts that are evaluated with it at once.
        """
        cache = DynamicCache(config=config)
        for i, pair in enumerate(self.layers):
            if pair is not None:
                cache.update(*(one.expand(n_texts, -1, -1, -1) for one in pair), i)
        return cache


def begins_with(prefix: Prefix, prepared: PreparedModule, token: int) -> bool:
    """Return whether a prefix was computed from a text that begins with this token.

    The first token of a text sees only itself, so its key in a layer is known and is
    compared. If no layer has the beginning any more, returns True.
    """
    pair = None if prefix.first_whole is None else prefix.layers[prefix.first_whole]
    if pair is None:
        return True
    cache, at = prepared.new_cache(1), np.zeros(1, dtype=np.int64)
    call = TreeCall(Event(), at, np.ones((1, 1), dtype=np.bool_), at, at)
    zero = torch.zeros(1, dtype=torch.long, device=prepared.device)
    with full_precision():
        prepared.forward_tree(call, zero + token, zero, zero, cache)
    own, given = (one[:, :, 0].double() for one in (cache.layers[prefix.first_whole].keys, pair[0]))
    allowed = max(_NEAR, torch.finfo(pair[0].dtype).eps ** 0.5)
    return bool((given - own).norm() <= allowed * own.norm())


def length_of(value: Any) -> int:
    """Return the number of tokens of the caller's prefix, without checking its shapes.

    Raises `OptionError` if it is not a cache or a sequence of pairs.
    """
    return max((layer.length for layer in _read_layers(value) if layer is not None), default=0)


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """A layer of the caller's prefix: keys and values of the last n of P tokens.

    Attributes:
        keys: [1, heads, n, width]; not checked yet.
        values: [1, heads, n, width]; not checked yet.
        length: P, the number of tokens.
    """

    keys: Tensor
    values: Tensor
    length: int


def read_prefix(value: Any, prepared: PreparedModule) -> Prefix:
    """Check a caller's prefix, and return a copy of it for a prepared module.

    Args:
        value: A `DynamicCache` or `StaticCache` of Transformers, or a sequence with a
            (key, value) of each layer. Nothing is written to it.
        prepared: The module.

    Raises:
        OptionError: The model is recurrent, the value is of another kind, or it does
            not fit the model: number of layers, shapes, type, lengths that differ
            between layers, numbers that are not finite.
    """
    kind, name = type(value).__name__, prepared.name
    if prepared.route is Route.STATES:
        remedy = f"None, as {name} is recurrent or hybrid: nothing can be put before the states that it keeps"
        raise OptionError("prefix", kind, remedy)
    given, expected = _read_layers(value), prepared.cache_like
    n_given, n_expected = (sum(one is not None for one in layers) for layers in (given, expected))
    if n_given != n_expected:
        raise OptionError("prefix", kind, f"keys and values of {n_expected} layers, as {name} has them, not {n_given}")
    given = [*given, *[None] * len(expected)][: len(expected)]
    length = next((one.length for one in given if one is not None), 0)
    if not length:
        raise OptionError("prefix", kind, "one token or more; it holds none, so leave it out")
    state = blake2b(digest_size=16)
    made: list[Pair | None] = []
    for i, (layer, own) in enumerate(zip(given, expected, strict=True)):
        if layer is None or own is None:
            if own is not None or layer is not None:
                raise OptionError("prefix", kind, f"keys and values in the layers where {name} keeps them, unlike {i}")
            made.append(None)
            continue
        wrong = _describe_mismatch(layer, own, length, prepared.cache_windows[i])
        if wrong:
            raise OptionError("prefix", kind, f"{wrong} in layer {i}, as {name} has it")
        pair = (layer.keys.detach(), layer.values.detach())
        for tensor in pair:
            state.update(f"{i} {length} {tuple(tensor.shape)} {tensor.dtype} ".encode())
            state.update(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        made.append((_copy_padded(pair[0], own[0], length), _copy_padded(pair[1], own[1], length)))
    whole = (i for i, layer in enumerate(given) if layer is not None and layer.keys.shape[2] == length)
    return Prefix(tuple(made), length, f"blake2b:{state.hexdigest()}", next(whole, None))


def _read_layers(value: Any) -> list[_Layer | None]:
    """Return the layers of a caller's prefix; None for a layer without keys.

    Raises `OptionError` if it is neither a cache nor a sequence of pairs.
    """
    if isinstance(value, Cache) and isinstance(getattr(value, "layers", None), list):
        return [_read_layer(i, layer) for i, layer in enumerate(value.layers)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_read_pair(i, pair) for i, pair in enumerate(value)]
    raise OptionError("prefix", type(value).__name__, PREFIXES)


def _read_layer(i: int, layer: Any) -> _Layer | None:
    """Return layer i of a cache of Transformers; None if it has no keys.

    Only known classes are read. Others may keep more than keys and values, or keep
    them in another form, as quantised caches do; they raise `OptionError`.
    """
    if type(layer) not in (DummyLayer, DynamicLayer, DynamicSlidingWindowLayer, StaticLayer):
        raise OptionError("prefix", type(layer).__name__, f"{PREFIXES}; layer {i} cannot be read, so copy it into one")
    if layer.keys is None or not layer.is_initialized:
        return None
    length = int(layer.get_seq_length())
    if type(layer) is StaticLayer:
        return _Layer(layer.keys[:, :, :length], layer.values[:, :, :length], length)
    return _Layer(layer.keys, layer.values, length)


def _read_pair(i: int, pair: Any) -> _Layer | None:
    """Return layer i from a pair (key, value), or a tensor of both; None if empty.

    A `DynamicCache` that is turned into a tuple has a third item, the window's size.
    """
    parts = list(pair) if isinstance(pair, Tensor | Sequence) and not isinstance(pair, str) else []
    if len(parts) in (2, 3) and parts[0] is None and parts[1] is None:
        return None
    if len(parts) not in (2, 3) or not all(isinstance(one, Tensor) and one.dim() == 4 for one in parts[:2]):
        raise OptionError("prefix", type(pair).__name__, f"{PREFIXES}: tensors of 4 dimensions each, also in layer {i}")
    return _Layer(parts[0], parts[1], int(parts[0].shape[2]))


def _describe_mismatch(layer: _Layer, own: Pair, length: int, window: int | None) -> str:
    """Return, in words, how a layer differs from what is expected; "" if it does not.

    Args:
        layer: The layer.
        own: Keys and values that the model itself has made in this layer.
        length: Number of tokens of the first layer.
        window: Size of the sliding window of the model's own cache, or None.
    """
    for what, tensor, mine in (("keys", layer.keys, own[0]), ("values", layer.values, own[1])):
        shape, right = tuple(tensor.shape), tuple(mine.shape)
        if len(shape) != len(right) or (shape[0], shape[1], shape[3]) != (1, right[1], right[3]):
            return f"{what} of shape (1, {right[1]}, tokens, {right[3]}), not {shape},"
        if tensor.dtype != mine.dtype or tensor.is_meta:
            return f"{what} of {mine.dtype}, not {'without numbers' if tensor.is_meta else tensor.dtype},"
        if not torch.isfinite(tensor).all():
            return f"finite {what}, not NaN or inf,"
    if layer.length != length:
        return f"as many tokens as in the first layer, {length}, not {layer.length},"
    n_keys, n_values = layer.keys.shape[2], layer.values.shape[2]
    # A model with this window never reads more tokens.
    required = length if window is None else min(length, window - 1)
    if n_keys != n_values or not required <= n_keys <= length:
        return f"keys and values of the last {required} tokens or more, not of {n_keys} and {n_values},"
    return ""


def _copy_padded(tensor: Tensor, own: Tensor, length: int) -> Tensor:
    """Return a copy on the device of `own`, [1, heads, length, width].

    It has zeros for the first tokens if `tensor` lacks them.
    """
    result = own.new_zeros((1, own.shape[1], length, own.shape[3]))
    result[:, :, length - tensor.shape[2] :] = tensor
    return result
