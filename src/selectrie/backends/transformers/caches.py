"""The caches of Transformers models: their names, and what they are made of."""

from __future__ import annotations

import inspect
from typing import Any

from transformers.cache_utils import DummyLayer, DynamicLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

_CACHES = ("cache", "past_key_values", "cache_params", "state")
"""The possible names of the cache, among a model's arguments and in its output.

Transformers 5.24 renamed the second and the third to the first. A model whose code
comes with its weights may still take one of the old names and return the new one.
"""


def cache_argument(module: Any) -> str:
    """Return the name of the argument by which a model takes its cache.

    If it is among keywords that the model passes on, the name is that of Transformers.
    """
    arguments = inspect.signature(module.forward).parameters
    own = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"
    return next((name for name in _CACHES if name in arguments), own)


def cache_in(result: Any) -> Any:
    """Return the cache in a model's output, or None."""
    found = (getattr(result, name, None) for name in _CACHES)
    return next((cache for cache in found if cache is not None), None)


def may_have_cells(module: Any, cache: Any) -> bool:
    """Return whether a model's cache has only keys and values, one pair a token."""
    layers = layers_of(cache)
    is_plain = bool(layers) and all(isinstance(layer, (DynamicLayer, DummyLayer)) for layer in layers)
    return is_plain and not getattr(module, "_is_stateful", False)


def layers_of(cache: Any) -> list[Any]:
    """Return the layers of a cache; [] if it is not made of layers."""
    return getattr(cache, "layers", None) or []
