"""Implements the model port of `selectrie.core.model` with a Transformers module.

Logits stay on an accelerator, which computes the values to read. Only these are copied
to the host; those of one `Reads` in one transfer.
"""

from __future__ import annotations

import platform
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, TypeVar, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from selectrie.backends.prefix_tree import (
    CallPlan,
    PrefixTree,
    context_rows,
    max_idle_rows,
    require_batch_multiple,
    require_one_round,
    require_rows,
)
from selectrie.backends.transformers.attention import EXACT_BATCH_MULTIPLE
from selectrie.backends.transformers.cells import (
    MIN_NODES,
    CallLogits,
    CellContexts,
    Contexts,
    Prefix,
    StateContexts,
    TorchContexts,
    begins_with,
    read_prefix,
    sequences_for,
)
from selectrie.backends.transformers.module import PreparedModule, Route, full_precision, prepare_module, threads
from selectrie.backends.transformers.options import TransformersOptions
from selectrie.backends.transformers.probe import probe, probe_behind
from selectrie.core import numerics
from selectrie.core.model import SOLO_SEQUENCES, Extension
from selectrie.core.partial_rows import SelectedRows
from selectrie.core.rows import DenseRows, KnownRows, Reads, Rows, TokenSet, TopTokens
from selectrie.core.types import (
    BatchSizes,
    BoolArray,
    Capacity,
    FloatArray,
    IntArray,
    Limits,
    LogitArray,
    ModelIdentity,
    Precision,
)
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import (
    CapacityError,
    ClosedError,
    MessageText,
    NonFiniteLogitsError,
    OptionError,
    PythonOnly,
    UnsupportedModelError,
    remedies,
    words,
)

_BLOCK_ROWS = 16
"""Number of rows normalised at once.

It is always the same, because the order of a sum depends on the shape. In float64 these
rows take 19 MB for a vocabulary of 152k tokens.
"""
_SMALL_SET = 256
"""Number of tokens up to which a set is added up on the host.

Larger sets are added up on the device, each by itself, so that no sum depends on other
sets.
"""
_MORE = 8
"""Number of tokens fetched beyond the k best, to notice ties."""


def rows_of(logits: torch.Tensor, index: ArrayLike | None = None) -> Rows:
    """Return the rows of a call: `DenseRows` for logits on the CPU, else `TorchRows`.

    Logits in the host's memory are not copied if they are float32.

    Args:
        logits: [M, V], of any floating type and on any device.
        index: int64[n], the row of `logits` for each wanted node (default: 0..M-1).
    """
    if logits.device.type == "cpu":
        return DenseRows(logits.detach().float().numpy(), index)
    return TorchRows(logits.detach(), index)


@final
class TorchRows(KnownRows):
    """Rows whose logits are a tensor, [M, V], on any device with float64.

    The log-sum-exp of each row is computed on the device, in float64, when it is first
    needed, and kept there.
    """

    __slots__ = ("_counter", "_index", "_logits", "_normaliser")

    def __init__(self, logits: torch.Tensor, index: ArrayLike | None = None) -> None:
        n_rows = len(logits)
        self._logits = logits
        self._index = np.arange(n_rows) if index is None else np.asarray(index, dtype=np.int64)
        self._normaliser = _Normaliser(logits)
        self._counter = [0]

    def __len__(self) -> int:
        return len(self._index)

    @property
    def n_bytes_read(self) -> int:
        """Return the number of bytes copied to the host, by all views together."""
        return self._counter[0]

    @property
    def nbytes(self) -> int:
        return int(len(self._index) * self._logits.shape[1] * self._logits.element_size())

    def check(self) -> None:
        self._check(self._index)

    def logp(self, i: ArrayLike, token_ids: ArrayLike) -> FloatArray:
        rows, ids = np.broadcast_arrays(self._index[np.asarray(i, dtype=np.int64)], np.asarray(token_ids))
        self._check(rows)
        return self._to_host([self._pairs(rows.ravel(), ids.ravel())])[0].reshape(rows.shape)

    def log_mass(self, i: int, token_ids: ArrayLike) -> float:
        ids = np.asarray(token_ids, dtype=np.int32)
        if len(ids) <= _SMALL_SET:
            return numerics.logsumexp(self.logp(i, ids))
        return self._read_one(TokenSet(i, ids), self._mass)

    def log_rest(self, i: int, token_ids: ArrayLike) -> float:
        return self._read_one(TokenSet(i, np.asarray(token_ids, dtype=np.int32)), self._rest)

    def top(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> tuple[IntArray, FloatArray]:
        self._check(self._index[[i]])
        return self._tops([TopTokens(i, k, allowed)])[0]

    def best(self) -> IntArray:
        self.check()
        return self._to_host([self._best()])[0].astype(np.int32)

    def logits(self, i: int) -> LogitArray:
        row = self._logits[int(self._index[i])].float().cpu().numpy()
        self._counter[0] += row.nbytes
        return np.asarray(row, dtype=np.float32)

    def slice(self, start: int, stop: int) -> TorchRows:
        return self._view(self._index[start:stop])

    def take(self, order: ArrayLike) -> TorchRows:
        return self._view(self._index[np.asarray(order, dtype=np.int64)])

    def copy(self) -> TorchRows:
        return self.stacked([])

    def stacked(self, others: Sequence[TorchRows]) -> TorchRows:
        parts = [self, *others]
        return TorchRows(torch.cat([part._logits[part._on_device(part._index)] for part in parts]))

    def fetch(self, reads: Callable[[], Reads]) -> SelectedRows:
        """Return the values that `reads()` names, copied to the host together."""
        wanted = reads()
        self.check()
        masses = [one for one in wanted.masses if len(one.ids) <= _SMALL_SET]
        owner = np.concatenate([wanted.owner, *(np.full(len(one.ids), one.row, dtype=np.int64) for one in masses)])
        ids = np.concatenate([wanted.ids, *(one.ids for one in masses)])
        numbers = [self._pairs(self._index[owner], ids)]
        numbers += [self._mass(one) for one in wanted.masses if len(one.ids) > _SMALL_SET]
        numbers += [self._rest(one) for one in wanted.rests]
        if wanted.best:
            numbers.append(self._best())
        pairs, *found = self._to_host(numbers)
        logp, *small = np.split(pairs, np.cumsum([len(wanted.ids), *map(len, (one.ids for one in masses))])[:-1])
        sums, values = iter(small), iter(found)
        whole = self._logits[self._on_device(self._index[wanted.whole])].float().cpu().numpy()
        self._counter[0] += whole.nbytes
        return SelectedRows(
            wanted,
            logp=logp,
            masses=[
                numerics.logsumexp(next(sums)) if len(one.ids) <= _SMALL_SET else float(next(values)[0])
                for one in wanted.masses
            ],
            rests=[float(next(values)[0]) for _ in wanted.rests],
            tops=self._tops(wanted.tops),
            whole=DenseRows(whole),
            best=next(values).astype(np.int32) if wanted.best else None,
        )

    def _view(self, index: NDArray[np.int64]) -> TorchRows:
        """Return some of the rows as a view that shares logits and normalisers."""
        part = TorchRows(self._logits, index)
        part._normaliser, part._counter = self._normaliser, self._counter
        return part

    def _check(self, rows: NDArray[np.int64]) -> None:
        """Raise `NonFiniteLogitsError` for the first row that is not finite."""
        bad = self._normaliser.first_bad(np.unique(rows))
        if bad is not None:
            raise NonFiniteLogitsError(row=bad[0], value=bad[1])

    def _read_one(self, one: TokenSet, read: Callable[[TokenSet], torch.Tensor]) -> float:
        """Return one sum over a set of tokens, which `read` computes on the device."""
        self._check(self._index[[one.row]])
        return float(self._to_host([read(one)])[0][0])

    def _on_device(self, numbers: ArrayLike) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(numbers, dtype=np.int64), device=self._logits.device)

    def _to_host(self, parts: Sequence[torch.Tensor]) -> list[FloatArray]:
        """Return vectors as float64 arrays, copied to the host in one transfer."""
        flat = torch.cat([part.reshape(-1).double() for part in parts]).cpu().numpy()
        self._counter[0] += flat.nbytes
        return np.split(flat, np.cumsum([part.numel() for part in parts])[:-1])

    def _pairs(self, rows: NDArray[np.int64], ids: NDArray[np.integer]) -> torch.Tensor:
        """Return the log-probability of each pair of row and token, float64[m]."""
        at = self._on_device(rows)
        return self._logits[at, self._on_device(ids)].double() - self._normaliser.of(rows)

    def _mass(self, one: TokenSet) -> torch.Tensor:
        """Return the log of the summed probability of a set, float64[1]."""
        row = self._index[one.row]
        return torch.logsumexp(self._pairs(np.repeat(row, len(one.ids)), one.ids), 0, keepdim=True)

    def _rest(self, one: TokenSet) -> torch.Tensor:
        """Return the log of the summed probability of all tokens outside a set.

        Their probabilities are added, because 1 minus the sum of the set loses digits.
        """
        row = self._index[one.row]
        rest = self._logits[int(row)].double().index_fill(0, self._on_device(one.ids), -torch.inf)
        return torch.logsumexp(rest, 0, keepdim=True) - self._normaliser.of(np.array([row]))

    def _best(self) -> torch.Tensor:
        """Return the first token with the largest logit of each row, float64[n]."""
        return torch.argmax(self._logits[self._on_device(self._index)].float(), dim=1).double()

    def _tops(self, tops: Sequence[TopTokens]) -> list[tuple[IntArray, FloatArray]]:
        """Return the ids and log-probabilities of each of `tops`."""
        result: list[tuple[IntArray, FloatArray] | None] = [None] * len(tops)
        for numbers in _group_alike(tops):
            same = [tops[number] for number in numbers]
            for number, found in zip(numbers, self._tops_alike(same), strict=True):
                result[number] = found
        return [one for one in result if one is not None]

    def _tops_alike(self, tops: Sequence[TopTokens]) -> list[tuple[IntArray, FloatArray]]:
        """Return the best tokens of several rows, for one k and one allowed set."""
        k, allowed = tops[0].k, tops[0].allowed
        ids = None
        if allowed is not None:
            chosen = np.flatnonzero(allowed) if allowed.dtype == np.bool_ else np.unique(allowed)
            ids = self._on_device(chosen)
        rows = self._index[[one.row for one in tops]]
        values = self._logits[self._on_device(rows)].float()
        values = values if ids is None else values[:, ids]
        n = min(values.shape[1], k + _MORE)
        if k <= 0 or n == 0:
            return [(np.empty(0, dtype=np.int32), np.empty(0)) for _ in tops]
        best, places = torch.topk(values, n, dim=1)
        tokens = places if ids is None else ids[places]
        logits, numbers, normalisers = self._to_host([best, tokens, self._normaliser.of(rows)])
        found = []
        for i, (row_logits, row_ids) in enumerate(zip(logits.reshape(-1, n), numbers.reshape(-1, n), strict=True)):
            if n < values.shape[1] and row_logits[k - 1] == row_logits[-1] > -np.inf:
                # More tokens may be tied than were fetched.
                row_logits, row_ids = self._read_tied(values[i], float(row_logits[-1]), ids)  # noqa: PLW2901
            order = np.lexsort((row_ids, -row_logits))[:k]
            order = order[row_logits[order] > -np.inf]
            found.append((row_ids[order].astype(np.int32), row_logits[order] - normalisers[i]))
        return found

    def _read_tied(self, values: torch.Tensor, least: float, ids: torch.Tensor | None) -> tuple[FloatArray, FloatArray]:
        """Return logits and ids of all tokens with a logit of at least `least`."""
        places = torch.nonzero(values >= least)[:, 0]
        logits, numbers = self._to_host([values[places], places if ids is None else ids[places]])
        return logits, numbers


class _Normaliser:
    """The log-sum-exp of each row, computed when it is first needed."""

    def __init__(self, logits: torch.Tensor) -> None:
        self._logits = logits
        self._known = np.zeros(len(logits), dtype=np.bool_)
        self._values: torch.Tensor | None = None
        self._bad: dict[int, float] = {}

    def of(self, rows: NDArray[np.int64]) -> torch.Tensor:
        """Return the normaliser of each of these rows, float64[n] on the device."""
        self._compute(np.unique(rows))
        values = self._values
        if values is None:
            return self._logits.new_zeros(len(rows), dtype=torch.float64)
        return values[torch.as_tensor(np.ascontiguousarray(rows), device=values.device)]

    def first_bad(self, rows: NDArray[np.int64]) -> tuple[int, float] | None:
        """Return the first row that is not finite, and its largest logit, or None."""
        self._compute(rows)
        return next(((row, self._bad[row]) for row in rows.tolist() if row in self._bad), None)

    def _compute(self, rows: NDArray[np.int64]) -> None:
        """Compute the normalisers of distinct rows that are not known yet."""
        todo = rows[~self._known[rows]]
        if not len(todo):
            return
        if self._values is None:
            self._values = self._logits.new_zeros(len(self._logits), dtype=torch.float64)
        peaks = []
        for start in range(0, len(todo), _BLOCK_ROWS):
            part = todo[start : start + _BLOCK_ROWS]
            # Blocks of one size, so that the bits of a row do not depend on the others.
            filled = np.concatenate([part, np.repeat(part[-1:], _BLOCK_ROWS - len(part))])
            at = torch.as_tensor(filled, device=self._logits.device)
            block = self._logits[at].double()
            peak = block.amax(dim=1, keepdim=True)
            sums = torch.exp(block - peak).sum(dim=1, keepdim=True)
            self._values[at] = (peak + torch.log(sums))[:, 0]
            peaks.append(peak[: len(part), 0])
        largest = torch.cat(peaks).cpu().numpy()
        self._bad |= {int(row): float(peak) for row, peak in zip(todo, largest, strict=True) if not np.isfinite(peak)}
        self._known[todo] = True


def _group_alike(tops: Sequence[TopTokens]) -> Iterable[list[int]]:
    """Return groups of indices of `tops` with the same k and the same allowed set."""
    groups: dict[tuple[int, bytes | None], list[int]] = {}
    for number, one in enumerate(tops):
        key = None if one.allowed is None else one.allowed.dtype.char.encode() + one.allowed.tobytes()
        groups.setdefault((one.k, key), []).append(number)
    return groups.values()


_Model = TypeVar("_Model", bound="ModuleModel")


class ModuleModel(ABC):
    """A model that evaluates trees of contexts with a prepared module.

    See `selectrie.core.model.Model` for the contracts of its methods. A subclass
    evaluates calls, and has the limits and the identity of the model.

    Only `interrupt` is thread-safe. If a call fails after nodes were evicted for it,
    they are not restored: they were cached and held by no caller.
    """

    def __init__(
        self,
        prepared: PreparedModule,
        vocabulary: Vocabulary,
        tree: PrefixTree,
        contexts: Contexts,
        *,
        stop: threading.Event,
        n_prefix: int = 0,
    ) -> None:
        """Hold the module until `close`.

        Args:
            prepared: The module.
            vocabulary: The vocabulary of its token ids.
            tree: The tree, which is empty.
            contexts: The memory of the nodes of the tree.
            stop: Set to interrupt a running call.
            n_prefix: Number of tokens that stand before all contexts.
        """
        self._prepared, self.vocabulary = prepared, vocabulary
        self._tree, self._contexts = tree, contexts
        self._stop, self._n_prefix = stop, n_prefix
        prepared.acquire()
        self._release = weakref.finalize(self, prepared.release)

    @abstractmethod
    def _evaluate(self, plan: CallPlan, rows: Any) -> CallLogits:
        """Evaluate a call; `rows` are those that `Contexts.plan_rows` returned."""

    @property
    @abstractmethod
    def limits(self) -> Limits: ...

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        self._require_open()
        self._stop.clear()
        plan = self._tree.plan(parents, tokens, wanted, keep)
        require_one_round(self._prepared.kind, parents, keep)
        row_plan, n_rows = self._contexts.plan_rows(plan)
        require_rows(n_rows, self.limits.rows_per_call)
        self._require_positions(plan)
        self._contexts.make_room(plan, row_plan)
        try:
            evaluated = self._evaluate(plan, row_plan)
            rows = _wanted_rows(evaluated, plan, wanted, self.vocabulary.n_tokens)
            nodes = self._tree.commit(plan, evaluated.n_rows)
            self._contexts.finish(plan, row_plan, plan.nodes_of_entries(nodes))
        except BaseException:
            self._tree.rollback(plan)
            self._contexts.restore()
            raise
        return Extension(
            nodes=nodes,
            rows=rows,
            rows_evaluated=evaluated.n_rows,
            rows_repeated=evaluated.n_rows - plan.n_new,
            rows_padded=evaluated.padding,
            decode_s=evaluated.seconds,
            n_programs=evaluated.n_programs,
        )

    def match_prefix(self, tokens: IntArray) -> tuple[int, int]:
        self._require_open()
        usable = self._contexts.can_extend if self._prepared.kind.is_recurrent else None
        node, depth = self._tree.match_prefix(tokens, usable)
        self._tree.inc_ref(node)
        return node, depth

    def release(self, nodes: IntArray, *, forget: bool = False) -> None:
        self._require_open()
        self._contexts.release(nodes, forget=forget)

    def capacity(self) -> Capacity:
        self._require_open()
        limits = self.limits
        nodes = limits.nodes - self._tree.n_held
        free, cached = self._contexts.free_sequences, self._tree.n_nodes
        return Capacity(rows=limits.rows_per_call, nodes=nodes, sequences=free, nodes_cached=cached)

    def trim(self, idle_rows: int) -> int:
        self._require_open()
        return self._contexts.trim(idle_rows)

    def interrupt(self) -> None:
        """Stop the running decode as `Model.interrupt` does.

        It stops at the next block of the module. A compiled model stops when the
        program that runs has ended.
        """
        self._stop.set()

    def close(self) -> None:
        if self._release.alive:
            self._release()
            self._contexts.close()

    def __enter__(self: _Model) -> _Model:  # noqa: PYI019 - Self is not in typing before Python 3.11
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _require_open(self) -> None:
        """Raise `ClosedError` if the model has been closed."""
        if not self._release.alive:
            raise ClosedError(f"the model {self._prepared.name}")

    def _require_positions(self, plan: CallPlan) -> None:
        """Raise `CapacityError` if a path is longer than the model's positions."""
        bound, required = self._prepared.max_positions, self._n_prefix + max(plan.depth, default=0)
        if bound is not None and required > bound:
            raise CapacityError("positions", required=required, available=bound)


def larger_context(nodes: int, max_positions: int | None) -> str:
    """Return advice for a larger context, for `Limits.larger_context`.

    Args:
        nodes: Maximum number of nodes of the context, those of a prefix included.
        max_positions: Number of positions of the model, or None.
    """
    if max_positions is not None and nodes >= max_positions:
        return f"use a model of more than {max_positions} positions"
    return remedies(operator="load with a larger `n_ctx`")


def _wanted_rows(evaluated: CallLogits, plan: CallPlan, wanted: BoolArray, n_vocabulary: int) -> Rows:
    """Return the rows of the wanted elements of a call."""
    if evaluated.logits is None:
        return DenseRows(np.empty((0, n_vocabulary), dtype=np.float32))
    order = [evaluated.row_of[e] for e in plan.entries_of_wanted(wanted)]
    if isinstance(evaluated.logits, np.ndarray):
        return DenseRows(evaluated.logits, np.array(order, dtype=np.int64))
    return rows_of(evaluated.logits, order)


_USUAL_NODES = 8192
_MAX_LOGIT_BYTES = 384 << 20


@dataclass(frozen=True, slots=True)
class _ModelLimits:
    """The limits of a model.

    Attributes:
        nodes: Maximum number of tokens held.
        rows: Maximum number of rows of one call.
        sequences: Maximum number of states of a recurrent-state model.
    """

    nodes: int
    rows: int
    sequences: int


@dataclass(frozen=True, slots=True)
class _SharedModule:
    """The parts that all models on one module share.

    Attributes:
        prepared: The module.
        vocabulary: Its vocabulary.
        options: The options it was opened with.
        digest: Digest of the weights.
        stop: Set to interrupt a running call.
        prefix: Keys and values that stand before node 0 of every context, or None.
    """

    prepared: PreparedModule
    vocabulary: Vocabulary
    options: TransformersOptions
    digest: str
    stop: threading.Event
    prefix: Prefix | None

    @property
    def n_prefix(self) -> int:
        """Return the number of tokens of the prefix."""
        return 0 if self.prefix is None else self.prefix.length


def open_module(
    module: Any,
    vocabulary: Vocabulary,
    options: TransformersOptions | None = None,
    *,
    name: str,
    digest: str = "unknown:",
) -> TransformersModel:
    """Make a model of a Transformers module with a language model head.

    The module is used as it is, on its device. Until `close` it is in evaluation mode,
    and must not be called by other code or changed. `close` restores it.

    Args:
        module: An `AutoModelForCausalLM`.
        vocabulary: The vocabulary of its token ids.
        options: See `TransformersOptions`.
        name: Name of the model, for messages and signatures.
        digest: Digest of its weights, for signatures.

    Raises:
        UnsupportedModelError: The model is of a kind that is not supported.
        OptionError: An option is invalid or does not fit the module.
    """
    options = options or TransformersOptions()
    prepared = prepare_module(module, name, probe)
    try:
        if prepared.n_vocabulary != vocabulary.n_tokens:
            raise UnsupportedModelError(
                name, f"predicts {prepared.n_vocabulary} tokens, its vocabulary has {vocabulary.n_tokens}"
            )
        _require_fit(prepared, options)
        prefix = None if options.prefix is None else read_prefix(options.prefix, prepared)
        options = replace(options, prefix=None)  # it has been copied
        if prefix is not None:
            digest = f"{digest}+prefix-{prefix.digest}"
            if vocabulary.bos is not None and begins_with(prefix, prepared, vocabulary.bos):
                vocabulary = replace(vocabulary, bos=None)  # it stands there already
        source = _SharedModule(prepared, vocabulary, options, digest, threading.Event(), prefix)
        size = _fit_limits(source)
        if prefix is not None:
            probe_behind(prepared, prefix)
        return TransformersModel(source, size, solo=False)
    finally:
        # By now the model itself counts as a user.
        prepared.release()


def _require_fit(prepared: PreparedModule, options: TransformersOptions) -> None:
    """Raise `OptionError` for an option that does not agree with the module."""
    dtype, device = str(prepared.dtype).removeprefix("torch."), prepared.device
    if options.precision is Precision.EXACT and prepared.dtype != torch.float32:
        raise OptionError("precision", "exact", f"fast, as the weights are {dtype}; or convert them by model.float()")
    if options.dtype is not None and options.dtype.removeprefix("torch.") != dtype:
        raise OptionError(
            "dtype", options.dtype, MessageText(f"{dtype}, which this module has", PythonOnly(", or None"))
        )
    if options.device is not None and torch.device(options.device).type != device.type:
        raise OptionError(
            "device", options.device, MessageText(f"{device}, where this module is", PythonOnly(", or None"))
        )


def _fit_limits(source: _SharedModule) -> _ModelLimits:
    """Return the limits of a new model, from its options and the free memory."""
    prepared = source.prepared
    nodes, rows = nodes_and_rows(source.options, prepared.config, prepared.n_vocabulary, prepared.max_positions)
    if source.prefix is not None:
        _require_room(source, nodes)
        nodes -= source.n_prefix
    sequences = sequences_for(prepared, nodes) if prepared.route is Route.STATES else nodes
    return _ModelLimits(nodes, rows, sequences)


def _require_room(source: _SharedModule, nodes: int) -> None:
    """Raise `OptionError` if the prefix leaves less than `MIN_NODES` of `nodes`."""
    n_prefix, bound = source.n_prefix, source.prepared.max_positions
    is_bound = bound is not None and bound <= nodes
    most = (bound if bound is not None and is_bound else nodes) - MIN_NODES
    if n_prefix > most:
        bounded = f"as {source.prepared.name} has {bound} positions"
        remedy = bounded if is_bound else MessageText("or ", remedies(operator="load with a larger `n_ctx`"))
        allowed = words("at most {}, so that {} fit behind, {}", most, MIN_NODES, remedy)
        raise OptionError("prefix", f"{n_prefix} tokens", allowed)


def nodes_and_rows(
    options: TransformersOptions, config: Any, n_vocabulary: int, max_positions: int | None
) -> tuple[int, int]:
    """Return the maximum numbers of tokens held and of rows of one call.

    Args:
        options: The options of the model.
        config: Its text configuration.
        n_vocabulary: Number of logits of a row.
        max_positions: Number of positions that it can evaluate, or None.
    """
    usual = min(_USUAL_NODES, max_positions or _trained_positions(config) or _USUAL_NODES)
    nodes = options.n_ctx if options.n_ctx is not None else max(8, usual)
    rows = min(options.n_batch, max(EXACT_BATCH_MULTIPLE, _MAX_LOGIT_BYTES // (4 * n_vocabulary)))
    return nodes, rows


def _trained_positions(config: Any) -> int | None:
    """Return the training context that a configuration states, or None."""
    value = getattr(config, "max_position_embeddings", None)
    return value if isinstance(value, int) and value > 0 else None


@final
class TransformersModel(ModuleModel):
    """A model that evaluates trees of contexts with a Transformers module."""

    def __init__(self, source: _SharedModule, size: _ModelLimits, *, solo: bool) -> None:
        self._source, self._size = source, size
        self._is_exact = is_exact = source.options.precision is Precision.EXACT
        prepared, tree = source.prepared, PrefixTree(source.vocabulary.n_tokens)
        pads = is_exact and prepared.route is not Route.STATES
        self._batch_multiple = EXACT_BATCH_MULTIPLE if pads else 1
        contexts: TorchContexts
        if prepared.route is Route.STATES:
            contexts = StateContexts(tree, prepared, nodes=size.nodes, sequences=size.sequences, stop=source.stop)
        else:
            contexts = CellContexts(
                tree,
                prepared,
                nodes=size.nodes,
                rows=size.rows,
                stop=source.stop,
                solo=solo and is_exact,
                prefix=source.prefix,
            )
        super().__init__(prepared, source.vocabulary, tree, contexts, stop=source.stop, n_prefix=source.n_prefix)
        self._torch_contexts = contexts
        self._limits: Limits | None = None

    # What it is

    @property
    def limits(self) -> Limits:
        if self._limits is None:
            prepared = self._prepared
            self._limits = Limits(
                nodes=self._size.nodes,
                sequences=self._contexts.sequences,
                rows_per_call=self._rows_per_call,
                kind=prepared.kind,
                max_idle_rows=max_idle_rows(
                    n_parameters=prepared.n_parameters,
                    n_layers=prepared.n_layers,
                    width=int(prepared.config.hidden_size),
                ),
                batch_sizes=BatchSizes(self._batch_multiple),
                prefix_tokens=self._n_prefix,
                larger_context=larger_context(self._n_prefix + self._size.nodes, prepared.max_positions),
            )
        return self._limits

    @property
    def identity(self) -> ModelIdentity:
        prepared, options = self._prepared, self._source.options
        return ModelIdentity(
            name=prepared.name,
            digest=self._source.digest,
            tokenizer_digest=self.vocabulary.digest,
            backend="transformers",
            build=f"transformers {version('transformers')}, torch {torch.__version__}",
            processor=processor_name(prepared.device),
            precision=options.precision.value,
            n_parameters=prepared.n_parameters,
            weights=prepared.weights,
        )

    def set_batch_multiple(self, value: int) -> None:
        """Set the multiple to which the rows of a call are padded.

        See `Model.set_batch_multiple`.

        The rows whose logits are computed are padded in the same way. With 1 there is
        no padding. That is the default in `fast` precision, and for recurrent and
        hybrid models, whose runs are evaluated one by one.
        """
        self._require_open()
        require_batch_multiple(value, max_rows=self._size.rows, tree=self._tree)
        self._batch_multiple, self._limits = value, None

    def new_context(self, nodes: int, sequences: int = SOLO_SEQUENCES, rows: int | None = None) -> TransformersModel:
        self._require_open()
        rows = context_rows(nodes, rows, max_rows=self._size.rows, multiple=self._batch_multiple)
        size = _ModelLimits(max(nodes, 8), rows, min(self._size.sequences, sequences))
        model = TransformersModel(self._source, size, solo=True)
        model._batch_multiple = self._batch_multiple
        return model

    # How it is done

    def _evaluate(self, plan: CallPlan, rows: Any) -> CallLogits:
        with full_precision() if self._is_exact else nullcontext(), threads(self._source.options.n_threads):
            return self._torch_contexts.evaluate(plan, rows, self._batch_multiple)

    @property
    def _rows_per_call(self) -> int:
        return self._size.rows // self._batch_multiple * self._batch_multiple


def processor_name(device: torch.device) -> str:
    """Return the name of a device's processor, which decides which kernels run."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    if device.type == "cpu":
        return f"{platform.machine()}: {torch.backends.cpu.get_cpu_capability()}"
    return str(device.type)
