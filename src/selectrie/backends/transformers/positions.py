"""Up to which position the rows of a model depend on their path alone."""

from __future__ import annotations

from typing import Any

_BOUNDED_ROPE = ("dynamic", "longrope")
"""Rotary embeddings that depend, for all rows of a call, on its greatest position."""


def max_positions_of(config: Any) -> int | None:
    """Return up to how many positions a row depends on its path alone, or None."""
    bounds = []
    rope = getattr(config, "rope_parameters", None)
    if not rope:
        # Learned positions, or a table of angles.
        bounds.append(getattr(config, "max_position_embeddings", None))
    else:
        for one in [rope] if "rope_type" in rope else [one for one in rope.values() if isinstance(one, dict)]:
            if one.get("rope_type") in _BOUNDED_ROPE:
                bounds.append(one.get("original_max_position_embeddings"))
                bounds.append(getattr(config, "original_max_position_embeddings", None))
                bounds.append(getattr(config, "max_position_embeddings", None))
    bounds.append(getattr(config, "attention_chunk_size", None))
    known = [int(bound) for bound in bounds if bound]
    return min(known) if known else None


def other_windows(config: Any) -> list[int]:
    """Return the sizes of windows that a config has under other names.

    The usual name is `sliding_window`. A row sees all of a path that is no longer than
    the window.
    """
    sizes = [
        size
        for key, size in config.to_dict().items()
        if "window" in key and key != "sliding_window" and "layers" not in key and "pattern" not in key
    ]
    return [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
