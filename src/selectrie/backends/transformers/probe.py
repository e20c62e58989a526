"""Check the rows of a model over a small tree, when it is opened.

`testing.check_model` compares a model with itself, so it accepts a model whose rows are
wrong in the same way alone and in a batch. Here the rows of a tree are compared with
those of the module's own forward pass, without a cache and with its own attention.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from selectrie.backends.prefix_tree import PrefixTree
from selectrie.backends.transformers.attention import EXACT_BATCH_MULTIPLE
from selectrie.backends.transformers.cells import CellContexts, Prefix, StateContexts, TorchContexts
from selectrie.backends.transformers.module import PreparedModule, Route, full_precision
from selectrie.core.model import Model, chain
from selectrie.core.rows import Reads
from selectrie.core.types import ROOT, FloatArray, ModelKind
from selectrie.errors import DecodeError, MessageText, UnsupportedModelError, remedies

logger = logging.getLogger(__name__)

_PROMPT = 12
_TAIL = 4
"""Number of tokens of the shared prompt, and of each text below it.

The prompt is shorter where positions are few, and has at least 4 tokens.
"""
_NARROW_WINDOW = 5
_WIDE_WINDOW = 8
"""For the check, windows wider than `_WIDE_WINDOW` are set to `_NARROW_WINDOW`."""
_MARGIN = 4.0
"""The difference that is allowed, as a multiple of what rounding explains.

How far rounding moves the model's own rows is measured (`_add_rounding`). In float32
the multiple is larger by the square root of the number of terms of a sum, since sums
are rounded at every step. With 15 architectures of width 64 that work, the largest
difference was 1.7 times that movement in float32 and 0.6 times in bfloat16, on one
x86-64. With runs that ignore their state it was 36 000 times in float32, but only 1.7
to 7 times in bfloat16.
"""
_MAX_NAMES = 3
"""Maximum number of names that an error lists."""
_ATTEMPTS = 3
"""Number of trees tried.

If a mixture of experts is nearly undecided between two of them, rounding may choose the
other one and change a row by far.
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Tree:
    """A tree of four texts, and the rows of the module's own forward pass.

    Attributes:
        texts: int64[4, T]. The first three begin with the prompt, and the second shares
            two further tokens with the first. The last shares all but two tokens of the
            prompt.
        rows: float64[4, T, V], log-probabilities of the module's own forward pass.
        allowed_nats: Maximum difference from `rows` that is allowed.
        prefix: The prefix before the texts, or None.
    """

    texts: Any
    rows: FloatArray
    allowed_nats: float
    prefix: Prefix | None = None


def probe(prepared: PreparedModule) -> None:
    """Check a prepared module that is not in use yet.

    Sets `runs_below_states` and `max_positions` to the values that work. During the
    check, windows that are wider than the tree is deep are made narrower, both in the
    module's own forward pass and over the tree.

    Raises:
        UnsupportedModelError: The rows over a tree are not those of the module's own
            forward pass, or they are NaN. The weights that are not finite are named.
    """
    with full_precision(), _narrow_windows(prepared) as has_narrowed:
        failure = ""
        for seed in range(_ATTEMPTS):
            tree = _make_tree(prepared, seed)
            failure = _explain_nan(prepared) if np.isnan(tree.rows).any() else _describe_difference(prepared, tree)
            if not failure:
                break
        else:
            raise UnsupportedModelError(prepared.name, failure)
        narrow = tree.rows
    if has_narrowed and prepared.kind is ModelKind.SLIDING_WINDOW:
        # If narrower windows changed no row, the windows were not checked.
        moved = np.abs(_own_rows(prepared, tree.texts) - narrow).max()
        if moved <= tree.allowed_nats:
            bounds = [prepared.max_positions, *_windows(prepared)]
            prepared.max_positions = min(bound for bound in bounds if bound is not None)
            logger.debug("%s: positions are limited to %d", prepared.name, prepared.max_positions)


def probe_model(prepared: PreparedModule, model: Model) -> None:
    """Check the rows of a model against the forward pass of the module it was made of.

    It is for models that do not evaluate the module with `PreparedModule.forward_tree`.
    The model is empty again afterwards.

    Args:
        prepared: The module, already checked by `probe`.
        model: The model, which is empty.

    Raises:
        UnsupportedModelError: The rows differ by more than rounding explains.
    """
    failure = ""
    for seed in range(_ATTEMPTS):
        tree = _make_tree(prepared, seed)
        worst = _worst_difference_of_model(model, tree)
        model.trim(0)
        if worst <= tree.allowed_nats:
            return
        failure = _difference_sentence(worst, tree)
    raise UnsupportedModelError(prepared.name, failure)


def _worst_difference_of_model(model: Model, tree: _Tree) -> float:
    """Return the largest difference of a model's rows of the texts, in nats.

    The first text is evaluated in one call and the others in calls of one row, so that
    programs of several sizes are compared.
    """
    worst = 0.0
    for number, text in enumerate(tree.texts[:, : model.limits.nodes]):
        held: list[int] = []
        node, step = ROOT, min(len(text), model.limits.rows_per_call) if number == 0 else 1
        for start in range(0, len(text), step):
            part = text[start : start + step].astype(np.int32)
            every = np.ones(len(part), dtype=np.bool_)
            extension = model.extend(chain(node, len(part)), part, every, every)
            held += extension.nodes.tolist()
            node = int(extension.nodes[-1])
            rows = extension.rows.fetch(partial(Reads.everything, len(part)))
            found = _logp(torch.from_numpy(np.stack([rows.logits(i) for i in range(len(part))])))
            difference = np.abs(found - tree.rows[number, start : start + len(part)]).max()
            # NaN compares false, and must not be taken for equal.
            worst = max(worst, float(difference)) if difference < np.inf else np.inf
        model.release(np.array(held, dtype=np.int32), forget=True)
    return worst


def probe_behind(prepared: PreparedModule, prefix: Prefix) -> None:
    """Check a module's rows of contexts that begin with a prefix. `probe` comes first.

    It is compared with the module's own forward pass on its own cache, which begins
    with the prefix. Calls of other threads wait meanwhile.

    Raises:
        UnsupportedModelError: Rows over a tree are not those of the model itself.
    """
    failure = ""
    with prepared.alone(), full_precision(), _narrow_windows(prepared):
        for seed in range(_ATTEMPTS):
            try:
                failure = _describe_difference(prepared, _make_tree(prepared, seed, prefix))
            except DecodeError:
                raise
            except Exception as error:
                reason = f"cannot be called with a prefix of keys and values ({type(error).__name__}: {error})"
                raise UnsupportedModelError(prepared.name, reason) from error
            if not failure:
                return
    raise UnsupportedModelError(prepared.name, f"behind the prefix, {failure}")


def _make_tree(prepared: PreparedModule, seed: int, prefix: Prefix | None = None) -> _Tree:
    """Return random texts, with their rows and the difference that is allowed."""
    n_prompt = _PROMPT
    if prefix is not None and prepared.max_positions is not None:
        n_prompt = min(_PROMPT, prepared.max_positions - prefix.length - _TAIL)
    rng = np.random.default_rng(seed)
    n_embeddings = prepared.module.get_input_embeddings().weight.shape[0]
    texts = rng.integers(0, min(n_embeddings, prepared.n_vocabulary), size=(4, n_prompt + _TAIL))
    texts[1:3, :n_prompt] = texts[0, :n_prompt]
    texts[1, : n_prompt + 2] = texts[0, : n_prompt + 2]
    texts[3, : n_prompt - 2] = texts[0, : n_prompt - 2]
    rows = _own_rows(prepared, texts, prefix)
    with _add_rounding(prepared.module, seed):
        moved = np.abs(_own_rows(prepared, texts, prefix) - rows)
    # See `_MARGIN`.
    n_terms = int(prepared.config.hidden_size) if prepared.dtype == torch.float32 else 1
    return _Tree(texts, rows, _MARGIN * n_terms**0.5 * float(moved.max()), prefix)


def _explain_nan(prepared: PreparedModule) -> str:
    """Return the text of the error about a model whose own rows are NaN."""
    names = [
        name
        for name, weight in prepared.module.named_parameters()
        if weight.is_floating_point() and not bool(weight.detach().isfinite().all())
    ]
    if names:
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        where = ", ".join(names[:_MAX_NAMES]) + more
        return f"it computes NaN, as weights are NaN or infinite: {where}; get the model's files again, or take others"
    dtype = str(prepared.dtype).removeprefix("torch.")
    if prepared.dtype == torch.float32:
        return "it computes NaN although its weights are finite; get the model's files again, or take others"
    remedy = remedies(operator="load it with `dtype='float32'`")
    return MessageText(
        f"it computes NaN although its weights are finite; numbers may be too large for {dtype}: ", remedy
    )


def _own_rows(prepared: PreparedModule, texts: Any, prefix: Prefix | None = None) -> FloatArray:
    """Return float64[4, T, V], log-probabilities of the module's own forward pass."""
    cache = None if prefix is None else prefix.own_cache(prepared.module.config, len(texts))
    return _logp(prepared.forward_plain(torch.from_numpy(texts), cache))


def _logp(logits: Tensor) -> FloatArray:
    """Return float64 log-probabilities of logits, on the CPU."""
    result: FloatArray = torch.log_softmax(logits.detach().double().cpu(), -1).numpy()
    return result


@contextmanager
def _add_rounding(module: nn.Module, seed: int) -> Iterator[None]:
    """Add random rounding errors to the results of every part in the `with` block.

    Each number changes by up to half a unit in the last place.
    """
    generator = torch.Generator().manual_seed(seed)

    def add_noise(_part: nn.Module, _args: Any, result: Any) -> Any:
        if not isinstance(result, Tensor) or not result.is_floating_point():
            return None
        noise = torch.rand(result.shape, generator=generator).to(result.device) - 0.5
        exact = result.float()
        return (exact + noise * exact.abs() * torch.finfo(result.dtype).eps).to(result.dtype)

    # Parts that contain others only pass their results on.
    hooks = [part.register_forward_hook(add_noise) for part in module.modules() if not list(part.children())]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _describe_difference(prepared: PreparedModule, tree: _Tree) -> str:
    """Compare rows over the tree; return a sentence about a difference, or ""."""
    if prepared.route is not Route.STATES:
        for solo in (False, True):
            worst = _worst_difference(prepared, tree, solo=solo)
            # Unlike `>`, this also refuses NaN.
            if not worst <= tree.allowed_nats:
                return _difference_sentence(worst, tree)
        return ""
    worst = np.inf
    # Some models ignore their state unless they are given one token at a time.
    for at_once in (True, False) if prepared.runs_below_states else (False,):
        prepared.runs_below_states = at_once
        try:
            worst = _worst_difference(prepared, tree, solo=False)
        except DecodeError:
            if not at_once:
                raise
            continue
        if worst <= tree.allowed_nats:
            return ""
    return _difference_sentence(worst, tree)


def _difference_sentence(worst: float, tree: _Tree) -> str:
    """Return the reason of an error about rows that differ by `worst` nats."""
    return (
        f"its rows over a tree of contexts differ from its own by {worst:.2g} nats, where rounding explains "
        f"{tree.allowed_nats:.2g}; this kind of model is not supported"
    )


def _worst_difference(prepared: PreparedModule, tree: _Tree, *, solo: bool) -> float:
    """Return the largest difference of a row over the tree, in nats.

    Before that, another context is evaluated and then dropped, so that its cells are
    used again, out of order. Every call has one round. After states, runs of one token
    and of several tokens are tried, because models have separate code for these. Behind
    a prefix, the prompt is compared too: with a window, only its rows see the prefix.
    `solo` is as for `CellContexts`.
    """
    walk = _Walk(prepared, tree, solo=solo)
    a, b, c, d = tree.texts
    n_prompt = len(a) - _TAIL
    foreign = walk.run(ROOT, 0, d[::-1][:5])
    stem = walk.run(ROOT, 0, a[: n_prompt - 2], text=None if tree.prefix is None else 0)
    walk.forget(foreign)
    end = walk.run(stem, n_prompt - 2, a[n_prompt - 2 : n_prompt])
    fork = walk.run(end, n_prompt, a[n_prompt : n_prompt + 2], text=0)
    single = walk.run(end, n_prompt, c[n_prompt : n_prompt + 1], text=2)
    walk.runs(
        [
            (fork, n_prompt + 2, a[n_prompt + 2 :], 0),
            (fork, n_prompt + 2, b[n_prompt + 2 :], 1),
            (single, n_prompt + 1, c[n_prompt + 1 :], 2),
            (stem, n_prompt - 2, d[n_prompt - 2 :], 3),
        ]
    )
    walk.run(end, n_prompt, a[n_prompt : n_prompt + 2], text=0)
    return walk.worst


class _Walk:
    """Evaluates runs of tokens on a tree, and compares their rows with the texts'."""

    def __init__(self, prepared: PreparedModule, tree: _Tree, *, solo: bool) -> None:
        self._texts = tree
        self._multiple = EXACT_BATCH_MULTIPLE if solo else 1
        self._tree = PrefixTree(prepared.n_vocabulary)
        size, stop = 64, threading.Event()
        self._contexts: TorchContexts
        if prepared.route is Route.STATES:
            self._contexts = StateContexts(self._tree, prepared, nodes=size, sequences=size, stop=stop)
        else:
            self._contexts = CellContexts(
                self._tree, prepared, nodes=size, rows=size, stop=stop, solo=solo, prefix=tree.prefix
            )
        self.worst = 0.0

    def run(self, base: int, depth: int, tokens: Any, text: int | None = None) -> int:
        """Evaluate tokens below the node `base` of this depth; return the last node.

        Their rows are compared with those of the text with index `text`, unless that is
        None.
        """
        return self.runs([(base, depth, tokens, text)])[0]

    def runs(self, runs: list[tuple[int, int, Any, int | None]]) -> list[int]:
        """Evaluate runs in one call, and return the last node of each.

        A run is (parent node, its depth, tokens, index of the text). The rows of a run
        are compared with those of its text, unless that is None.
        """
        parents: list[int] = []
        expected: list[tuple[int, int] | None] = []
        for base, depth, tokens, text in runs:
            first = len(parents)
            parents += [base, *(~i for i in range(first, first + len(tokens) - 1))]
            expected += [None if text is None else (text, depth + i) for i in range(len(tokens))]
        last = np.cumsum([len(tokens) for _, _, tokens, _ in runs]) - 1
        keep = np.zeros(len(parents), dtype=np.bool_)
        keep[last] = True
        wanted = np.array([one is not None for one in expected])
        ids = np.concatenate([tokens for _, _, tokens, _ in runs])
        nodes = self._evaluate(np.array(parents, dtype=np.int32), ids, wanted, keep, expected)
        return [nodes[i] for i in last]

    def _evaluate(
        self, parents: Any, ids: Any, wanted: Any, keep: Any, expected: list[tuple[int, int] | None]
    ) -> list[int]:
        """Make one call, compare its rows, and return its nodes.

        Args:
            parents, ids, wanted, keep: The arguments of `Model.extend`.
            expected: For each row, the text and the position whose row it must equal,
                or None.
        """
        plan = self._tree.plan(parents, ids, wanted, keep)
        rows, _ = self._contexts.plan_rows(plan)
        evaluated = self._contexts.evaluate(plan, rows, self._multiple)
        nodes: list[int] = self._tree.commit(plan, evaluated.n_rows).tolist()
        self._contexts.finish(plan, rows, nodes)
        if evaluated.logits is not None:
            logp = _logp(evaluated.logits)
            for e, place in enumerate(expected):
                if place is not None:
                    difference = np.abs(logp[evaluated.row_of[e]] - self._texts.rows[place]).max()
                    # NaN compares false, and must count as a difference.
                    self.worst = max(self.worst, float(difference)) if difference < np.inf else np.inf
        return nodes

    def forget(self, node: int) -> None:
        """Drop a node and its ancestors."""
        nodes = []
        while node != ROOT:
            nodes.append(node)
            node = self._tree.parent[node]
        self._contexts.release(np.array(nodes, dtype=np.int32), forget=True)


@contextmanager
def _narrow_windows(prepared: PreparedModule) -> Iterator[bool]:
    """Make sliding windows narrower than the tree is deep, in the `with` block.

    The width is set in configs and in layers. Yields whether there were any wide ones.
    """
    places = [] if prepared.route is Route.STATES else _wide_windows(prepared)
    before = [place.sliding_window for place in places]
    for place in places:
        place.sliding_window = _NARROW_WINDOW
    try:
        yield bool(places)
    finally:
        for place, window in zip(places, before, strict=True):
            place.sliding_window = window


def _wide_windows(prepared: PreparedModule) -> list[Any]:
    """Return the configs and layers with a sliding window wider than `_WIDE_WINDOW`."""
    places = [*prepared.configs(), *prepared.module.modules()]
    computed = [isinstance(getattr(type(place), "sliding_window", None), property) for place in places]
    return [p for p, is_computed in zip(places, computed, strict=True) if _window(p) > _WIDE_WINDOW and not is_computed]


def _windows(prepared: PreparedModule) -> list[int]:
    return [_window(place) for place in _wide_windows(prepared)]


def _window(place: Any) -> int:
    """Return the size of the sliding window of a config or layer; 0 without one."""
    window = getattr(place, "sliding_window", None)
    return window if isinstance(window, int) and not isinstance(window, bool) else 0
