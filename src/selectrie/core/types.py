"""Small frozen records and enums shared by every layer.

Axis letters, used in all docstrings: N nodes, V vocabulary, C choices, P distinct token paths, K beams, T tokens,
B rows of one model call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int32]
OffsetArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
LogitArray: TypeAlias = NDArray[np.float32]
BoolArray: TypeAlias = NDArray[np.bool_]

NO_NODE = -1
NO_TOKEN = -1
NO_PATH = -1
ROOT = 0
"""Node 0 of every tree: the empty context of a context tree, the shared context of a trie."""


class ModelKind(str, Enum):
    """How a model remembers, which decides how branches can be made."""

    ATTENTION = "attention"
    SLIDING_WINDOW = "sliding-window"
    RECURRENT = "recurrent"
    HYBRID = "hybrid"

    @property
    def forks(self) -> bool:
        """State exists only at a sequence's tip: branching copies it (see `model.rounds`)."""
        return self in (ModelKind.RECURRENT, ModelKind.HYBRID)


class Precision(str, Enum):
    """`exact` lays work out so that numbers do not depend on how it was cut into calls; `fast` keeps the back end's defaults."""

    EXACT = "exact"
    FAST = "fast"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model can hold; fixed for its life.

    nodes: evaluated tokens that fit at once (padding already taken off).
    branches: branches alive at once (leaves of the live tree; in a forking model, nodes that own a state).
    rows_per_call: most rows one `extend` may evaluate.
    idle_rows: rows evaluated beside an idle cached node after which holding it has cost as much as evaluating it again.
    """

    nodes: int
    branches: int
    rows_per_call: int
    kind: ModelKind
    idle_rows: int


@dataclass(frozen=True, slots=True)
class Room:
    """What may be asked for now: rows of one call, nodes held, branches alive."""

    rows: int
    nodes: int
    branches: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What an answer took; sums with `+`.

    model_calls: decodes. rows: rows evaluated for it. rows_repeated: of these, rows
    evaluated before and lost or given up since.
    rows_padded: rows added to fill calls. rows_naive: what evaluating prompt + choice
    one by one would have taken.
    decode_s: seconds inside the model; no part of equality.
    """

    model_calls: int = 0
    rows: int = 0
    rows_repeated: int = 0
    rows_padded: int = 0
    rows_naive: int = 0
    decode_s: float = field(default=0.0, compare=False)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.model_calls + other.model_calls,
            self.rows + other.rows,
            self.rows_repeated + other.rows_repeated,
            self.rows_padded + other.rows_padded,
            self.rows_naive + other.rows_naive,
            self.decode_s + other.decode_s,
        )


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What a score depends on, for the score signature.

    digest: of the weights file (sampled for large files; the prefix names the method). build: back end and version.
    n_parameters: weights, 0 where there are none. quantised: products are computed on rounded activations.
    """

    name: str
    digest: str
    tokenizer_digest: str
    backend: str
    build: str
    processor: str
    precision: str = Precision.EXACT.value
    n_parameters: int = 0
    quantised: bool = False


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """How far the layout of the work moves a model's log-probabilities, as measured.

    granule: rows a call is padded to. moved: largest move of a row, in nats. tolerance:
    what is stated, nats a row. n_rows: rows compared, 0 where that is not known.
    """

    granule: int
    moved: float
    tolerance: float
    n_rows: int = 0

    @property
    def support(self) -> float:
        """The share of all rows that move no further than `moved`, at 95 % confidence.

        If a larger share moved further, that many random rows would have shown one with
        a probability above 95 %.
        """
        return 0.05 ** (1 / self.n_rows) if self.n_rows else 0.0
