"""Small frozen records and enums shared by every layer.

All docstrings use these axis letters: N nodes, V vocabulary, C choices, P distinct
token paths, K beams, T tokens, B rows of one model call.
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
"""Node 0 of every tree: the empty context, or the shared context of a trie."""


class ModelKind(str, Enum):
    """The kind of memory a model has, which decides how branches can be made."""

    ATTENTION = "attention"
    SLIDING_WINDOW = "sliding-window"
    RECURRENT = "recurrent"
    HYBRID = "hybrid"

    @property
    def is_recurrent(self) -> bool:
        """Return whether state exists only at a sequence's tip.

        Branching then copies the state (see `model.rounds`).
        """
        return self in (ModelKind.RECURRENT, ModelKind.HYBRID)


class Precision(str, Enum):
    """How work is divided into calls.

    `exact` arranges the work so that numbers do not depend on how it is divided into
    calls. `fast` keeps the back end's defaults.
    """

    EXACT = "exact"
    FAST = "fast"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model can hold; fixed for its life.

    Attributes:
        nodes: Number of evaluated tokens that fit at once, padding already subtracted.
        sequences: Number of branches alive at once: leaves of the live tree or, in a
            recurrent-state model, nodes that own a state.
        rows_per_call: Maximum number of rows that one `extend` may evaluate.
        kind: The kind of the model's memory.
        max_idle_rows: Number of rows evaluated while a cached node is idle, after which
            holding the node has cost as much as evaluating it again.
    """

    nodes: int
    sequences: int
    rows_per_call: int
    kind: ModelKind
    max_idle_rows: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """What may be requested now.

    Attributes:
        rows: Rows of one call.
        nodes: Nodes held.
        sequences: Branches alive.
    """

    rows: int
    nodes: int
    sequences: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What an answer took. Costs can be added with `+`.

    Attributes:
        model_calls: Number of decodes.
        rows: Rows evaluated for the answer.
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

    Attributes:
        name: Name of the model.
        digest: Digest of the weights file. Large files are sampled; the prefix names
            the method.
        tokenizer_digest: Digest of the vocabulary.
        backend: Name of the back end.
        build: Back end and version.
        processor: The processor that computed the score.
        precision: A value of `Precision`.
        n_parameters: Number of weights, 0 if there are none.
        quantised: Whether products are computed on rounded activations.
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

    Attributes:
        batch_multiple: Calls are padded to a multiple of this number of rows.
        moved: Largest move of a row, in nats.
        tolerance: The stated tolerance, in nats per row.
        n_rows: Number of rows compared; 0 if not known.
    """

    batch_multiple: int
    moved: float
    tolerance: float
    n_rows: int = 0

    @property
    def support(self) -> float:
        """Return the share of all rows that move no further than `moved`.

        It holds at 95 % confidence: if a larger share moved further, this many random
        rows would have shown one with a probability above 95 %.
        """
        return 0.05 ** (1 / self.n_rows) if self.n_rows else 0.0
