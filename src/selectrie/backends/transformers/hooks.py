"""Hooks on parts of a prepared module: what they are given, or return, is changed."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from selectrie.backends.transformers.attention import EXACT_BATCH_MULTIPLE, TreeCall, require_tree_call, running_call
from selectrie.errors import DecodeInterrupted


def stop_if_asked(_block: nn.Module, _args: tuple[Any, ...]) -> None:
    """Raise `DecodeInterrupted` if the running call is to stop."""
    call = running_call()
    if call is not None and call.stop.is_set():
        raise DecodeInterrupted("the decode was interrupted")


def repeat_rows(_experts: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Repeat the rows that are given to experts, if the bits of a row matter.

    An expert evaluates its rows together. If their number is a multiple of
    `EXACT_BATCH_MULTIPLE`, the bits of a row do not depend on that number.
    """
    call = running_call()
    if not isinstance(call, TreeCall) or not call.in_path_order:
        return None
    return tuple(one.repeat_interleave(EXACT_BATCH_MULTIPLE, 0) if isinstance(one, Tensor) else one for one in args)


def first_of_each(_experts: nn.Module, _args: tuple[Any, ...], result: Any) -> Any:
    """Keep one of the copies of each row that `repeat_rows` made."""
    call = running_call()
    if not isinstance(call, TreeCall) or not call.in_path_order:
        return None
    return result[::EXACT_BATCH_MULTIPLE]


def _bloom_bias(config: Any) -> Any:
    from transformers.models.bloom.modeling_bloom import _get_alibi_slopes

    def add_bias(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        if running_call() is None:
            return None
        call, hidden = require_tree_call(), args[0]
        slopes = _get_alibi_slopes(config.n_head, hidden.device)[:, None, None]
        # A softmax stays the same if one number is added to all scores of a row. So the
        # position of a cell can be used instead of its distance.
        bias = (slopes * call.distance(hidden.device)).to(hidden.dtype)
        return args, {**kwargs, "alibi": bias, "attention_mask": call.bias(hidden.dtype, hidden.device)}

    return add_bias


def _mpt_bias(config: Any) -> Any:
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    two = build_mpt_alibi_tensor(config.n_heads, 2, config.attn_config.alibi_bias_max)
    slopes = (two[..., 1] - two[..., 0])[..., None]

    def add_bias(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        if running_call() is None:
            return None
        call, hidden = require_tree_call(), args[0]
        bias = (slopes.to(hidden.device) * call.distance(hidden.device)).to(hidden.dtype)
        return args, {**kwargs, "position_bias": bias, "attention_mask": ~call.mask(None, hidden.device)}

    return add_bias


ALIBI_BLOCKS = {"bloom": _bloom_bias, "mpt": _mpt_bias}
