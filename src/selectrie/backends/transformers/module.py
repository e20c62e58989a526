"""Prepares a Transformers module to evaluate trees of contexts, and restores it."""

from __future__ import annotations

import copy
import inspect
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.cache_utils import DummyLayer, DynamicLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from selectrie.backends.transformers.attention import (
    ATTENTION,
    EXACT_BATCH_MULTIPLE,
    CellCache,
    ModuleCall,
    TreeCall,
    require_tree_call,
    running,
    running_call,
)
from selectrie.core.types import ModelKind
from selectrie.errors import (
    LESS_MEMORY,
    DecodeError,
    DecodeInterrupted,
    ModelError,
    SelectrieError,
    UnsupportedModelError,
    remedies,
    words,
)

_CACHES = ("cache", "past_key_values", "cache_params", "state")
"""The possible names of the cache in a model's arguments and output.

Transformers 5.24 renamed the second and the third to the first. A model whose code
comes with its weights may still take one of the old names and return the new one.
"""


def cache_argument(module: Any) -> str:
    """Return the name of the argument for the cache of a model.

    If its signature does not name one, returns the name that Transformers itself uses.
    """
    arguments = inspect.signature(module.forward).parameters
    own = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"
    return next((name for name in _CACHES if name in arguments), own)


def cache_in(result: Any) -> Any:
    """Return the cache in a model's output, or None."""
    found = (getattr(result, name, None) for name in _CACHES)
    return next((cache for cache in found if cache is not None), None)


def may_have_cells(module: Any, cache: Any) -> bool:
    """Return whether a model's cache has only keys and values, one pair per token.

    Such a cache can be replaced by cells.
    """
    layers = layers_of(cache)
    is_plain = bool(layers) and all(isinstance(layer, (DynamicLayer, DummyLayer)) for layer in layers)
    return is_plain and not getattr(module, "_is_stateful", False)


def layers_of(cache: Any) -> list[Any]:
    """Return the layers of a cache; [] if it is not made of layers."""
    return getattr(cache, "layers", None) or []


_BOUNDED_ROPE = ("dynamic", "longrope")
"""Rotary embeddings that depend, for all rows of a call, on its greatest position."""


def max_positions_of(config: Any) -> int | None:
    """Return the maximum length of a path whose rows depend on the path alone.

    None if the config sets no bound.
    """
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
    """Return the sizes of windows in a config whose names are not `sliding_window`.

    A row sees all of a path that is not longer than the window.
    """
    sizes = [
        size
        for key, size in config.to_dict().items()
        if "window" in key and key != "sliding_window" and "layers" not in key and "pattern" not in key
    ]
    return [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]


def raise_if_stopped(_block: nn.Module, _args: tuple[Any, ...]) -> None:
    """Raise `DecodeInterrupted` if the running call was interrupted.

    This is a forward hook of torch, set on each block of the module.
    """
    call = running_call()
    if call is not None and call.stop.is_set():
        raise DecodeInterrupted("the decode was interrupted")


def repeat_rows(_experts: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Repeat the rows that experts get, if the call is `in_path_order` (a torch hook).

    An expert evaluates its rows together. If their number is a multiple of
    `EXACT_BATCH_MULTIPLE`, the bits of a row do not depend on that number.
    """
    call = running_call()
    if not isinstance(call, TreeCall) or not call.in_path_order:
        return None
    return tuple(one.repeat_interleave(EXACT_BATCH_MULTIPLE, 0) if isinstance(one, Tensor) else one for one in args)


def keep_first_of_each(_experts: nn.Module, _args: tuple[Any, ...], result: Any) -> Any:
    """Keep one of the copies of each row that `repeat_rows` made (a torch hook)."""
    call = running_call()
    if not isinstance(call, TreeCall) or not call.in_path_order:
        return None
    return result[::EXACT_BATCH_MULTIPLE]


def _make_bloom_hook(config: Any) -> Any:
    """Return a hook that gives the blocks of a Bloom model a mask and an ALiBi bias."""
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


def _make_mpt_hook(config: Any) -> Any:
    """Return a hook that gives the blocks of an MPT model a mask and its ALiBi bias."""
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


ALIBI_BLOCKS = {"bloom": _make_bloom_hook, "mpt": _make_mpt_hook}

logger = logging.getLogger(__name__)

_ONE_BY_ONE = ("falcon_mamba", "jamba", "mamba", "zamba")
"""Models that ignore the state they are given if they evaluate several tokens at once.

`probe` would find them too, but not in bfloat16, whose rows are too coarse.
"""


class Route(Enum):
    """The way in which a model evaluates a tree of contexts.

    Attributes:
        FUNCTION: Its layers call `tree_attention`.
        MASK: Its layers attend with their own code, and get a mask [1, 1, R, C].
        ALIBI: Its blocks get a mask, and a bias that depends on positions.
        STATES: It is called without changes, and each context has a copy of the model's
            cache.
    """

    FUNCTION = "function"
    MASK = "mask"
    ALIBI = "alibi"
    STATES = "states"


_prepared: weakref.WeakValueDictionary[int, PreparedModule] = weakref.WeakValueDictionary()
"""The modules in use, by their `id`. Several models may use the same module."""
_lock = threading.RLock()


@dataclass(eq=False)
class PreparedModule:
    """A causal language model of Transformers, prepared to evaluate trees.

    Until the last `release`, the module is in evaluation mode, its blocks have hooks,
    and its parts have copies of their configs, in which our attention function may be
    set.

    Attributes:
        module: The module.
        name: Name for messages.
        n_vocabulary: Number of logits of a row.
        route: The way in which it evaluates a tree.
        kind: The kind of its memory.
        runs_below_states: Whether several tokens can be evaluated at once after a
            state. Some recurrent models then compute wrong rows without an error.
        max_positions: Number of positions up to which a row depends on its path alone;
            None if there is no bound.
        cache_windows: The size of the sliding window of each layer of the model's own
            cache, or None.
    """

    module: Any
    name: str
    n_vocabulary: int = 0
    route: Route = Route.FUNCTION
    kind: ModelKind = ModelKind.ATTENTION
    runs_below_states: bool = True
    max_positions: int | None = None
    cache_windows: list[int | None] = field(default_factory=list)
    _n_users: int = 0
    _stored: list[tuple[Tensor, Tensor] | None] = field(default_factory=list)
    _hooks: list[Any] = field(default_factory=list)
    _trained: list[nn.Module] = field(default_factory=list)
    _configs: list[tuple[Any, Any]] = field(default_factory=list)
    _attention_before: list[tuple[Any, Any]] = field(default_factory=list)
    _callers_changed: threading.Condition = field(default_factory=threading.Condition)
    _callers: set[int] = field(default_factory=set)
    _claimants: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.config = self.module.config.get_text_config()
        self._arguments = frozenset(inspect.signature(self.module.forward).parameters)
        self._cache_argument = cache_argument(self.module)
        self.n_layers = int(self.config.num_hidden_layers)

    # What it is

    @property
    def device(self) -> torch.device:
        """Return the device that token ids are moved to."""
        device: torch.device = self.module.get_input_embeddings().weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the module's weights."""
        dtype: torch.dtype = self.module.dtype
        return dtype

    @property
    def n_parameters(self) -> int:
        """Return the number of weights, unpacked; shared ones count once."""
        return int(self.module.num_parameters())

    @property
    def is_quantised(self) -> bool:
        """Return whether the weights are kept in a quantised form."""
        return getattr(self.module, "hf_quantizer", None) is not None

    @property
    def weights(self) -> str:
        """Return the `ModelIdentity.weights` of the module."""
        if self.is_quantised:
            return "quantised"
        return "f32" if self.dtype in {torch.float32, torch.float64} else "f16"

    def configs(self) -> list[Any]:
        """Return every config object in the module, each once."""
        found = {id(m.config): m.config for m in self.module.modules() if hasattr(m, "config")}
        return list(found.values())

    @property
    def cache_like(self) -> list[tuple[Tensor, Tensor] | None]:
        """Return the keys and values of two tokens in each layer, to copy shapes from.

        None for a layer that keeps none.
        """
        return list(self._stored)

    # Use

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Make calls of other threads wait until the `with` block ends.

        Waits first for calls that are running. This thread can call the module.
        """
        thread = threading.get_ident()
        with self._callers_changed:
            try:
                self._claimants.add(thread)
                self._callers_changed.wait_for(lambda: not self._callers)
                yield
            finally:
                self._claimants.discard(thread)
                self._callers_changed.notify_all()

    def new_cache(self, n_cells: int) -> CellCache:
        """Return a new cache of `n_cells` cells in all layers.

        Raises `ModelError` if there is no memory for it.
        """
        cache = CellCache(self.n_layers, n_cells)
        try:
            for layer, states in zip(cache.layers, self._stored, strict=False):
                if states is not None:
                    layer.lazy_initialization(*states)
        except RuntimeError as error:
            lacking = "{}: no memory for {} cells; {} ({})"
            raise ModelError(words(lacking, self.name, n_cells, LESS_MEMORY, error)) from error
        return cache

    def forward_tree(self, call: TreeCall, ids: Tensor, positions: Tensor, outputs: Tensor, cache: CellCache) -> Tensor:
        """Evaluate the rows of a tree call.

        Args:
            call: The cells that the rows write, and those that they see.
            ids: int64[R], the token of each row.
            positions: int64[R], the position of each row.
            outputs: int64[M], the indices of the rows whose logits are computed.
            cache: The cells.

        Returns:
            The logits, [M, V].
        """
        mask = call.bias(self.dtype, self.device) if self.route is Route.MASK else None
        result = self._forward(call, ids, positions, outputs, cache, attention_mask=mask)
        expected = call.n_stored if self.route is Route.FUNCTION else 0
        if not call.n_stored or call.n_attended < expected:
            raise DecodeError(
                f"{self.name} did not attend by selectrie's function: its attention implementation was changed "
                "while it was in use; close the engine first"
            )
        return self._logits(result, outputs)

    def forward_run(
        self, call: ModuleCall, ids: Tensor, positions: Tensor, outputs: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        """Evaluate a run of tokens after a state, and change the state in place.

        Args:
            call: The call, whose `stop` interrupts it.
            ids: int64[R], the token of each row.
            positions: int64[R], the position of each row.
            outputs: int64[M], the indices of the rows whose logits are computed.
            state: The model's cache, or None for the empty context.

        Returns:
            The logits, [M, V], and the state after the run.
        """
        result = self._forward(call, ids, positions, outputs, state)
        return self._logits(result, outputs), cache_in(result)

    def forward_plain(self, ids: Tensor, cache: Any = None) -> Tensor:
        """Evaluate texts with the model's own attention.

        Args:
            ids: int64[B, T], the tokens of B texts.
            cache: The model's own cache with the tokens before the texts, which is
                changed. None evaluates the texts alone, without any cache.

        Returns:
            The logits, [B, T, V].
        """
        given: dict[str, Any] = {"use_cache": False}
        if cache is not None:
            given = {"use_cache": True, self._cache_argument: cache}
            if "position_ids" in self._arguments:
                at = torch.arange(ids.shape[1], device=self.device) + cache.get_seq_length()
                given["position_ids"] = at.expand(len(ids), -1)
        with torch.no_grad(), self._own_attention():
            logits: Tensor = self.module(input_ids=ids.to(self.device), **given).logits
            return logits

    def _forward(
        self, call: ModuleCall, ids: Tensor, positions: Tensor, outputs: Tensor, cache: Any, **given: Any
    ) -> Any:
        """Call the module for one call, and turn its errors into `DecodeError`.

        `given` are further arguments of the module. Returns the module's output.
        """
        if cache is not None:
            given[self._cache_argument] = cache
        if "position_ids" in self._arguments:
            given["position_ids"] = positions[None]
        if "logits_to_keep" in self._arguments:
            given["logits_to_keep"] = outputs
        # In inference mode, operations are not taken apart into those a compiler knows.
        mode = torch.no_grad() if call.is_traced else torch.inference_mode()
        with mode, self._count_caller(), running(call):
            try:
                return self.module(input_ids=ids[None], use_cache=True, **given)
            except SelectrieError:
                raise
            except torch.OutOfMemoryError as error:
                remedy = remedies(operator="ask for a smaller `n_ctx` or `n_batch`")
                raise DecodeError(words("{}: out of memory; {}", self.name, remedy)) from error
            except Exception as error:
                raise DecodeError(f"{self.name}: {type(error).__name__}: {error}") from error

    @contextmanager
    def _count_caller(self) -> Iterator[None]:
        """Count this thread among the module's callers until the `with` block ends.

        Waits first while another thread is in `alone`.
        """
        thread = threading.get_ident()
        try:
            with self._callers_changed:
                self._callers_changed.wait_for(lambda: thread in self._claimants or not self._claimants)
                self._callers.add(thread)
            yield
        finally:
            with self._callers_changed:
                self._callers.discard(thread)
                self._callers_changed.notify_all()

    def _logits(self, result: Any, outputs: Tensor) -> Tensor:
        """Return the logits of the wanted rows, [M, V], from the module's output."""
        logits: Tensor = result.logits[0]
        return logits if "logits_to_keep" in self._arguments else logits[outputs]

    # Preparing and putting back

    def acquire(self) -> None:
        """Count one more user."""
        with _lock:
            self._n_users += 1

    def release(self) -> None:
        """Count one user fewer; after the last one, restore the module."""
        with _lock:
            self._n_users -= 1
            if self._n_users == 0:
                self._restore()

    def _prepare(self) -> None:
        """Put the module into evaluation mode, add hooks, and choose how rows are made.

        Parts that were in training mode are kept, so that `_restore` sets them alone.
        """
        self._trained = [m for m in self.module.modules() if m.training]
        for part in self._trained:
            part.training = False
        self._hooks = [block.register_forward_pre_hook(raise_if_stopped) for block in self.blocks()]
        for experts in (m for m in self.module.modules() if hasattr(m, "_is_expert_parallel")):
            self._hooks.append(experts.register_forward_pre_hook(repeat_rows))
            self._hooks.append(experts.register_forward_hook(keep_first_of_each))
        self._copy_configs()
        self._examine()

    def _restore(self) -> None:
        """Undo all changes of the module."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._return_configs()
        self._return_tensors()
        for part in self._trained:
            part.training = True
        self._trained = []
        _prepared.pop(id(self.module), None)

    def blocks(self) -> list[Any]:
        """Return the model's blocks: the largest list of modules in it."""
        lists: list[Any] = [m for m in self.module.modules() if isinstance(m, nn.ModuleList)]
        lists = [one for one in lists if len(one) == self.n_layers]
        if not lists:
            return []
        largest: Any = max(lists, key=lambda one: sum(p.numel() for p in one.parameters()))
        return list(largest)

    def _copy_configs(self) -> None:
        """Give every part a copy of its config.

        The attention function is set in config objects, which other modules may share.
        """
        memo: dict[int, Any] = {}
        for part in self.module.modules():
            config = vars(part).get("config")
            if hasattr(config, "_attn_implementation_internal"):
                self._configs.append((part, config))
                part.config = copy.deepcopy(config, memo)
        self._attention_before = [(config, config._attn_implementation_internal) for config in self.configs()]

    def _set_attention(self) -> None:
        """Set our attention function in every config."""
        for config, _ in self._attention_before:
            config._attn_implementation_internal = ATTENTION

    def _reset_attention(self) -> None:
        """Set the attention function that every config had before."""
        for config, before in self._attention_before:
            config._attn_implementation_internal = before

    def _return_configs(self) -> None:
        """Give every part its original config back.

        If another attention function was chosen since the module was prepared, that
        choice is kept.
        """
        before = {id(config): name for config, name in self._attention_before}
        for part, config in self._configs:
            chosen = part.config._attn_implementation_internal
            if chosen not in (ATTENTION, before.get(id(part.config))):
                config._attn_implementation_internal = chosen
            part.config = config
        self._configs, self._attention_before = [], []

    def _return_tensors(self) -> None:
        """Replace tensors that the module has kept from our calls by ordinary ones.

        Ours were made in inference mode, so no gradients could be computed with them.
        """
        with torch.inference_mode(mode=False):
            for part in self.module.modules():
                for kept in (part._buffers, vars(part)):
                    for key, value in list(kept.items()):
                        if isinstance(value, Tensor) and value.is_inference():
                            kept[key] = value.clone()

    @contextmanager
    def _own_attention(self) -> Iterator[None]:
        """Set the model's own attention function until the `with` block ends.

        No other call of the model may run meanwhile.
        """
        is_set = any(config._attn_implementation_internal == ATTENTION for config, _ in self._attention_before)
        self._reset_attention()
        try:
            yield
        finally:
            if is_set:
                self._set_attention()

    def _examine(self) -> None:
        """Call the model once to find the kind of its cache, and choose its route.

        Raises `UnsupportedModelError` if it cannot be called or returns no cache.
        """
        ids = torch.zeros((1, 2), dtype=torch.long, device=self.device)
        try:
            with torch.no_grad(), self._own_attention():
                result = self.module(input_ids=ids, use_cache=True)
        except Exception as error:
            raise UnsupportedModelError(
                self.name, f"cannot be called with token ids alone ({type(error).__name__}: {error})"
            ) from error
        self.n_vocabulary = int(result.logits.shape[-1])
        cache = cache_in(result)
        if cache is None:
            raise UnsupportedModelError(self.name, "returns no cache, so its contexts cannot be kept")
        self.max_positions = max_positions_of(self.config)
        layers = layers_of(cache)
        self.cache_windows = [getattr(layer, "sliding_window", None) for layer in layers]
        self.cache_windows += [None] * (self.n_layers - len(layers))
        if may_have_cells(self.module, cache) and self._choose_route():
            # On these routes, layers apply no window but `sliding_window`.
            bounds = [self.max_positions, *other_windows(self.config)]
            self.max_positions = min((bound for bound in bounds if bound is not None), default=None)
            return
        self.route = Route.STATES
        self.runs_below_states = self.config.model_type not in _ONE_BY_ONE
        is_hybrid = any(isinstance(layer, DynamicLayer) for layer in layers)
        self.kind = ModelKind.HYBRID if is_hybrid else ModelKind.RECURRENT

    def _choose_route(self) -> bool:
        """Set the route by which the model can attend to cells, found by trying.

        Returns whether there is one. A model without one can still evaluate trees with
        copies of its own cache (`Route.STATES`).
        """
        if self.config.model_type in ALIBI_BLOCKS:
            self.route = Route.ALIBI
            add_bias = ALIBI_BLOCKS[self.config.model_type](self.config)
            self._hooks += [block.register_forward_pre_hook(add_bias, with_kwargs=True) for block in self.blocks()]
            self._evaluate_two_rows()
            return True
        self._set_attention()
        for route in (Route.FUNCTION, Route.MASK):
            self.route = route
            if route is Route.MASK:
                self._reset_attention()
            try:
                windows = self._evaluate_two_rows()
            except DecodeError as error:
                logger.debug("%s cannot be evaluated by the route %r: %s", self.name, route.value, error)
                continue
            self.kind = ModelKind.SLIDING_WINDOW if windows else ModelKind.ATTENTION
            return True
        return False

    def _evaluate_two_rows(self) -> set[int]:
        """Evaluate two rows by the current route, and keep their keys and values.

        Returns the sizes of the sliding windows that layers asked for.
        """
        visible = np.tril(np.ones((2, 2), dtype=np.bool_))
        at = np.arange(2)
        call = TreeCall(threading.Event(), at, visible, at, at)
        index = torch.arange(2, device=self.device)
        cache = CellCache(self.n_layers, 2)
        self.forward_tree(call, index, index, index[:1], cache)
        self._stored = [(one.keys, one.values) if one.is_initialized else None for one in cache.layers]
        return call.windows


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute products of float32 matrices in full precision in the `with` block.

    By default, a GPU may round their elements to fewer bits.
    """
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Set the number of torch's threads on the CPU until the `with` block ends.

    None leaves the number unchanged.
    """
    before = torch.get_num_threads()
    if number is not None and number != before:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        if number is not None and number != before:
            torch.set_num_threads(before)


def prepare_module(module: Any, name: str, check: Callable[[PreparedModule], None]) -> PreparedModule:
    """Prepare a module to evaluate trees, and count one user of it.

    A module that is in use already is neither prepared nor checked again.

    Args:
        module: The module.
        name: Its name for messages.
        check: Called with the prepared module before it is used.

    Raises:
        UnsupportedModelError: The model predicts no next token, or cannot evaluate a
            tree.
    """
    with _lock:
        known = _prepared.get(id(module))
        if known is not None:
            known.acquire()
            return known
        _require_supported(module, name)
        made = PreparedModule(module, name)
        made.acquire()
        try:
            made._prepare()
            check(made)
        except BaseException:
            made.release()
            raise
        _prepared[id(module)] = made
        return made


def copy_sharing_weights(module: nn.Module) -> nn.Module:
    """Return a copy of a module that shares its weights and buffers.

    If the module is prepared, the copy is in the state before that.
    """
    shared: dict[int, Any] = {id(one): one for one in [*module.parameters(), *module.buffers()]}
    with _lock:
        known = _prepared.get(id(module))
        if known is None:
            return copy.deepcopy(module, shared)
        known.acquire()  # it then stays prepared while it is copied
    try:
        shared[id(known._callers_changed)] = known._callers_changed  # locks cannot be copied
        with known.alone():  # `probe_behind` changes the module for a while
            twin = copy.deepcopy(known, shared)
    finally:
        known.release()
    twin._restore()
    module_copy: nn.Module = twin.module
    return module_copy


def _require_supported(module: Any, name: str) -> None:
    """Raise `UnsupportedModelError` for models that are known not to work."""
    config: Any = getattr(module, "config", None)
    if not isinstance(module, nn.Module) or not hasattr(config, "get_text_config"):
        raise UnsupportedModelError(name, "is no Transformers model; give an AutoModelForCausalLM")
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(name, "has an encoder; a decoder-only language model is needed")
    if module.get_output_embeddings() is None:
        raise UnsupportedModelError(name, "has no language model head; load it by AutoModelForCausalLM")
    text = config.get_text_config()
    if text.model_type == "gpt_neo":
        raise UnsupportedModelError(name, "GPT-Neo hides tokens by their place in the cache, not by position")
    if text.model_type == "falcon" and getattr(text, "alibi", False):
        raise UnsupportedModelError(name, "this Falcon biases attention by place in the cache (alibi=True)")
    places = {str(place) for place in (getattr(module, "hf_device_map", None) or {}).values()}
    if places & {"disk", "meta"} or ("cpu" in places and len(places) > 1):
        raise UnsupportedModelError(name, "has weights that are offloaded; load all of it on its devices")
    if any(p.device.type == "meta" for p in module.parameters()):
        raise UnsupportedModelError(name, "has weights that are not in memory (meta device); load all of it")


def pad_outputs(outputs: Sequence[int], multiple: int) -> list[int]:
    """Return `outputs` padded to a multiple of this length, with row 0."""
    return [*outputs, *([0] * (-len(outputs) % multiple))]
