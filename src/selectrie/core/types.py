"""Defines small frozen records and enums shared by every layer.

All docstrings use these axis letters: N nodes, V vocabulary, C choices, P distinct
token paths, K beams, T tokens, B rows of one model call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from selectrie.errors import OptionError, PromptTooLongError

IntArray: TypeAlias = NDArray[np.int32]
OffsetArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
LogitArray: TypeAlias = NDArray[np.float32]
BoolArray: TypeAlias = NDArray[np.bool_]

NO_NODE = -1
NO_TOKEN = -1
NO_PATH = -1
ROOT = 0
"""Node 0 of every tree: the empty context, or the shared context of a trie."""


class ModelKind(str, Enum):
    """The kind of memory a model has, which decides how branches can be made."""

    ATTENTION = "attention"
    SLIDING_WINDOW = "sliding-window"
    RECURRENT = "recurrent"
    HYBRID = "hybrid"

    @property
    def is_recurrent(self) -> bool:
        """Return whether the model keeps state only at the tip of a sequence.

        Branching then copies the state (see `model.rounds`).
        """
        return self in (ModelKind.RECURRENT, ModelKind.HYBRID)


class Precision(str, Enum):
    """The choice whether results may depend on how work is divided into calls.

    `exact` arranges the work so that they do not, which costs time; `fast` does
    not.
    """

    EXACT = "exact"
    FAST = "fast"


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """The number of rows that a model computes for a call of n rows.

    A model whose shapes may vary runs each call as one program, whose rows are filled
    up to a multiple of some number. A model with fixed shapes has one program for each
    of a few sizes. It runs a call as the programs that hold its rows in the least time.

    Attributes:
        multiple: Number of rows of which every call is padded to a multiple; 1 = no
            padding. It is 1 where sizes are fixed.
        buckets: Pairs of the rows of a program and the seconds that one run of it
            takes, ascending by rows. Empty where sizes are not fixed.

    Raises:
        OptionError: If a number of rows is not a positive integer or comes twice, if
            seconds are not positive, or if both attributes are set.
    """

    multiple: int = 1
    buckets: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        if not _is_count(self.multiple):
            raise OptionError("multiple", self.multiple, "a whole number of at least 1")
        if self.buckets and self.multiple != 1:
            raise OptionError("multiple", self.multiple, "1 with fixed sizes, which are not padded to a multiple")
        for rows, seconds in self.buckets:
            if not _is_count(rows):
                raise OptionError("buckets", rows, "programs of whole numbers of rows, at least 1")
            if not (0 < seconds < math.inf):
                raise OptionError("buckets", seconds, f"the seconds that a program of {rows} rows takes, above 0")
        sizes = [rows for rows, _ in self.buckets]
        if sizes != sorted(set(sizes)):
            raise OptionError("buckets", sizes, "different numbers of rows, ascending")

    @staticmethod
    def fixed(seconds: Mapping[int, float]) -> BatchSizes:
        """Return fixed batch sizes from the seconds that one run of each program takes.

        Raises:
            OptionError: If there is no program, or a number is not as it must be.
        """
        if not seconds:
            raise OptionError("buckets", dict(seconds), "at least one program, as {rows: seconds}")
        return BatchSizes(buckets=tuple(sorted(seconds.items())))

    @property
    def is_fixed(self) -> bool:
        """Return whether there is one program for each of a few fixed sizes."""
        return bool(self.buckets)

    def programs(self, n_rows: int) -> tuple[int, ...]:
        """Return the rows of each program that a call of `n_rows` rows runs.

        The largest come first. Of fixed sizes, the programs take the least time in
        sum, compared in whole nanoseconds. Ties go to fewer programs, then to fewer
        rows. A call without rows runs no program.
        """
        if not self.is_fixed:
            return (-(-n_rows // self.multiple) * self.multiple,) if n_rows else ()
        first = _cheapest_programs(self.buckets, 1 << n_rows.bit_length())
        sizes, left = [], n_rows
        while left > 0:
            sizes.append(first[left])
            left -= first[left]
        return tuple(sizes)

    def padded(self, n_rows: int) -> int:
        """Return the number of rows that a call of `n_rows` rows occupies in all."""
        return sum(self.programs(n_rows))

    def least_padded(self, min_rows: int, max_rows: int) -> int:
        """Return the row count from `min_rows` to `max_rows` with the least padding.

        Ties go to the smaller number. Rows up to `padded(min_rows)` take no longer
        than `min_rows` do, so the answer is that number, or `max_rows` if that is
        smaller.
        """
        return min(self.padded(min_rows), max_rows)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@lru_cache(maxsize=64)
def _cheapest_programs(buckets: tuple[tuple[int, float], ...], n_rows: int) -> tuple[int, ...]:
    """Return, for each number of rows, the largest program of its cheapest set.

    A cheapest set for n rows is this program and a cheapest set for the rows that it
    leaves over, whose programs are no larger.

    Returns:
        int[n_rows + 1]. Element 0 is 0: no rows need no program.
    """
    # Total nanoseconds, programs and rows, in the order in which sets are compared. A
    # further program adds the same to each of them, so parts of best sets are best.
    best = [(0, 0, 0)]
    first = [0]
    programs = [(rows, round(seconds * 1e9)) for rows, seconds in reversed(buckets)]
    for n in range(1, n_rows + 1):
        totals = []
        for rows, nanoseconds in programs:
            rest = best[max(0, n - rows)]
            totals.append((rest[0] + nanoseconds, rest[1] + 1, rest[2] + rows))
        cheapest = min(totals)
        best.append(cheapest)
        first.append(programs[totals.index(cheapest)][0])
    return tuple(first)


@dataclass(frozen=True, slots=True)
class CallCost:
    """Numbers by which work is divided into calls.

    They change how long work takes, and the last bits of its results.

    Attributes:
        cells_per_read: Number of memory cells that attention reads at once, whether or
            not all of them are in use. With 1, calls are as large as the model takes.
        min_rows: Number of rows below which the fixed cost of a call matters. A call
            of fewer rows goes on even if attention then has to read more cells.
        min_short_rows: Minimum number of rows of a call that ends early because the
            rows after it read fewer cells.
        prefill_rows: Maximum number of prompt rows in a call that other tasks wait for.

    Raises:
        OptionError: If a number is not a positive integer.
    """

    cells_per_read: int = 1
    min_rows: int = 16
    min_short_rows: int = 1
    prefill_rows: int = 128

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not _is_count(getattr(self, name)):
                raise OptionError(name, getattr(self, name), "a whole number of at least 1")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a model, and the costs of its calls.

    They never change, except that `set_batch_multiple` changes `batch_sizes` and the
    values derived from the multiple.

    Attributes:
        nodes: Number of evaluated tokens that fit at once, padding already subtracted.
        sequences: Number of branches alive at once: leaves of the live tree or, in a
            recurrent-state model, nodes that own a state.
        rows_per_call: Maximum number of rows that one `extend` may evaluate; a multiple
            of `batch_sizes.multiple`.
        kind: The kind of the model's memory.
        max_idle_rows: Number of rows evaluated while a cached node is idle, after which
            holding the node has cost as much as evaluating it again. None where an idle
            node costs nothing, because calls read the whole memory in any case.
        batch_sizes: The numbers of rows that calls occupy, padding included.
        call_cost: Numbers by which work is divided into calls.
        can_interrupt: Whether `interrupt` can end a call that is running. Otherwise
            `interrupt` has no effect: a cancelled request and `close` wait for the end
            of the call.
        prefix_tokens: Number of tokens of the context that a prefix takes (keys and
            values before node 0, as in prefix tuning). They are not among `nodes`.
        larger_context: Advice on how to get a context of more nodes, as the end of a
            sentence: "load with a larger n_ctx".
        copies_paths: Whether the model is a `core.model.CopiesPaths`, and its rows
            depend on the layout of cells enough to make copies useful.
    """

    nodes: int
    sequences: int
    rows_per_call: int
    kind: ModelKind
    max_idle_rows: int | None
    batch_sizes: BatchSizes = BatchSizes()
    call_cost: CallCost = CallCost()
    can_interrupt: bool = True
    prefix_tokens: int = 0
    larger_context: str = "use a model with a larger context"
    copies_paths: bool = False

    def too_long(self, required_tokens: int, remedy: str, *, is_least: bool = False) -> PromptTooLongError:
        """Return the error for a path that has more tokens than `nodes`."""
        return PromptTooLongError(
            required_tokens=required_tokens,
            available_tokens=self.nodes,
            remedy=remedy,
            larger_context=self.larger_context,
            prefix_tokens=self.prefix_tokens,
            is_least=is_least,
        )


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a model that is available now.

    Attributes:
        rows: Number of rows that one call may evaluate.
        nodes: Number of nodes that may be held.
        sequences: Number of branches that may be alive at once.
        nodes_cached: Number of evaluated nodes in memory, held or not; not compared.
    """

    rows: int
    nodes: int
    sequences: int
    nodes_cached: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Cost:
    """The model work that one result took. Costs can be added with `+`.

    Attributes:
        model_calls: Number of model calls.
        rows: Rows evaluated for the result.
        rows_repeated: How many of these had been evaluated before and were lost or
            released since.
        rows_padded: Rows added to fill calls.
        rows_naive: Rows that evaluating prompt + choice one by one would have taken.
        decode_s: Seconds inside the model; not compared.
    """

    model_calls: int = 0
    rows: int = 0
    rows_repeated: int = 0
    rows_padded: int = 0
    rows_naive: int = 0
    decode_s: float = field(default=0.0, compare=False)

    def __add__(self, other: Cost) -> Cost:
        """Return the sum of both costs, field by field."""
        return Cost(
            self.model_calls + other.model_calls,
            self.rows + other.rows,
            self.rows_repeated + other.rows_repeated,
            self.rows_padded + other.rows_padded,
            self.rows_naive + other.rows_naive,
            self.decode_s + other.decode_s,
        )

    def with_rows_naive(self, rows_naive: int) -> Cost:
        """Return the same cost with `rows_naive` replaced."""
        return Cost(
            self.model_calls, self.rows, self.rows_repeated, self.rows_padded, rows_naive, decode_s=self.decode_s
        )


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Identifies the model, software and processor behind a score, for its signature.

    Attributes:
        name: Name of the model.
        digest: Digest of the weights file. Large files are sampled; the part before
            ":" names the method. The digest of a prefix of keys and values follows.
        tokenizer_digest: Digest of the vocabulary.
        backend: Name of the back end.
        build: Back end and version.
        processor: The processor that computed the score.
        precision: A value of `Precision`.
        n_parameters: Number of weights, 0 if there are none.
        weights: Type of the weights: "f32", "f16" (or bf16), or "quantised", where
            products are computed on activations rounded to 8 bits.
    """

    name: str
    digest: str
    tokenizer_digest: str
    backend: str
    build: str
    processor: str
    precision: str = Precision.EXACT.value
    n_parameters: int = 0
    weights: str = "f32"


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The nats by which the layout of calls moves a model's log-probabilities.

    Attributes:
        batch_multiple: Calls are padded to a multiple of this number of rows; 1 = no
            padding. 0 for a model whose batch sizes are fixed, which has no multiple.
        moved: Sigma in nats: a row that gives its token the probability p moves by
            sigma * (1 - p), as a root mean square over rows.
        tolerance: Nats for one row. The scores of two texts are a near tie if they
            differ by less than this times the root of the number of rows that both are
            read from, each counted as (1 - p) squared. For a served model it bounds
            the difference of two readings of a row, and rows add up.
        n_rows: Number of rows that `moved` was measured on; 0 if it is assumed by the
            type of the weights.

    Raises `OptionError` unless both numbers of nats are finite and at least 0. Every
    tolerance of the engine is in such a record. Comparisons with NaN are false, so NaN
    would prove what is not so.
    """

    batch_multiple: int
    moved: float
    tolerance: float
    n_rows: int = 0

    def __post_init__(self) -> None:
        for name in ("moved", "tolerance"):
            if not 0 <= getattr(self, name) < math.inf:
                raise OptionError(name, getattr(self, name), "a finite number of nats, at least 0")
