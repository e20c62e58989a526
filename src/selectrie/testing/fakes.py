"""Models without weights that satisfy the model port: every row is a known function of the token path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from selectrie.errors import ClosedError, DecodeInterrupted, OptionError, SelectrieError
from selectrie.model import Extension, Rows
from selectrie.testing.fake_tree import FakeTree
from selectrie.testing.tiny_vocabulary import make_vocabulary, spell
from selectrie.types import BoolArray, IntArray, Limits, LogitArray, ModelIdentity, ModelKind, Room
from selectrie.vocabulary import Vocabulary

Path = tuple[int, ...]

WIDE = Limits(nodes=4096, branches=256, rows_per_call=512, kind=ModelKind.ATTENTION, idle_rows=4096)
"""Limits that small tests never meet."""


class FakeModel:
    """A model whose row for a node is `row_of(token path)`; `HashModel` and `TableModel` say what that is.

    It keeps to the port strictly: limits and rounds are enforced, and the buffer of an extend is filled with NaN by the
    next, so that rows read too late are noticed.

    calls, rows: decodes and distinct rows evaluated so far. evaluations: how often each path was evaluated.
    call_sizes: rows of each decode. on_decode: called in the middle of every decode, before anything changed.
    """

    def __init__(
        self, row_of: Callable[[Path], LogitArray], *, vocabulary: Vocabulary, limits: Limits, name: str
    ) -> None:
        self._row_of, self._vocabulary, self._limits, self._name = row_of, vocabulary, limits, name
        self._tree = FakeTree(limits, len(vocabulary.pieces))
        self._last = np.empty((0, len(vocabulary.pieces)), dtype=np.float32)
        self._failure: SelectrieError | None = None
        self._is_decoding = self._is_interrupted = self._is_closed = False
        self.calls = 0
        self.rows = 0
        self.evaluations: Counter[Path] = Counter()
        self.call_sizes: list[int] = []
        self.on_decode: Callable[[], None] | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def identity(self) -> ModelIdentity:
        digest = self._vocabulary.digest
        return ModelIdentity(self._name, f"fake:{self._name}", digest, "selectrie.testing", "1", "none")

    @property
    def tree(self) -> FakeTree:
        """The bookkeeping, for tests that look inside."""
        return self._tree

    def row(self, path: Sequence[int]) -> LogitArray:
        """float32[V]: logits after a token path, straight from the definition; nothing is counted or kept."""
        return self._row_of(tuple(int(token) for token in path))

    def fail_next(self, error: SelectrieError) -> None:
        """Make the next decode (or refusal, for a `CapacityError`) raise `error`, after the checks and before any change."""
        self._failure = error

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        self._check_open()
        plan = self._tree.plan(parents, tokens, wanted, keep)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if plan.evaluated:
            self._decode(len(plan.evaluated))
        matrix = np.empty((len(plan.wanted_paths), len(self._vocabulary.pieces)), dtype=np.float32)
        for i, path in enumerate(plan.wanted_paths):
            matrix[i] = self._row_of(path)
        self._last.fill(np.nan)
        self._last = matrix
        self.evaluations.update(plan.evaluated)
        self.rows += len(plan.evaluated)
        nodes = self._tree.commit(plan)
        rows = Rows(matrix, np.asarray(plan.wanted_index, dtype=np.int64))
        return Extension(nodes, rows, len(plan.evaluated), plan.n_repeated, 0, 0.0)

    def _decode(self, n_rows: int) -> None:
        self._is_decoding = True
        try:
            if self.on_decode is not None:
                self.on_decode()
            if self._is_interrupted:
                raise DecodeInterrupted("the decode was interrupted")
        finally:
            self._is_decoding = self._is_interrupted = False
        self.calls += 1
        self.call_sizes.append(n_rows)

    def find(self, tokens: IntArray) -> tuple[int, int]:
        self._check_open()
        return self._tree.find(tuple(int(token) for token in tokens))

    def release(self, nodes: IntArray, *, forget: bool = False) -> None:
        self._check_open()
        self._tree.release([int(node) for node in nodes], forget=forget)

    def room(self) -> Room:
        self._check_open()
        return self._tree.room()

    def trim(self, idle_rows: int) -> int:
        self._check_open()
        return self._tree.trim(idle_rows)

    def solo(self, nodes: int) -> FakeModel:
        self._check_open()
        limits = replace(self._limits, nodes=max(nodes, 1), branches=max(2, min(self._limits.branches, 8)))
        return FakeModel(self._row_of, vocabulary=self._vocabulary, limits=limits, name=self._name)

    def interrupt(self) -> None:
        self._is_interrupted = self._is_decoding

    def close(self) -> None:
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the model")


class HashModel(FakeModel):
    """Logits hashed from (seed, whole token path): every context has its own row, and equal contexts equal ones.

    The logit of a token is `sharpness` times a standard Gumbel variate, so 1 gives rows of a few likely tokens, 0 uniform
    rows, and 3 rows that one token dominates. planted: logits to use instead after certain full token paths.
    """

    def __init__(
        self,
        seed: int,
        *,
        vocabulary: Vocabulary | None = None,
        limits: Limits = WIDE,
        sharpness: float = 1.0,
        planted: Mapping[Path, Sequence[float]] | None = None,
    ) -> None:
        vocabulary = vocabulary or make_vocabulary()
        size, known = len(vocabulary.pieces), dict(planted or {})

        def row_of(path: Path) -> LogitArray:
            if path in known:
                return np.asarray(known[path], dtype=np.float32)
            return hashed_logits(seed, path, size, sharpness)

        super().__init__(row_of, vocabulary=vocabulary, limits=limits, name=f"hash-{seed}")


class TableModel(FakeModel):
    """Probabilities written down by hand, by piece: `{(): {"a": 0.6, "b": 0.4}, ("a",): {"t": 0.9}}`.

    Keys are the pieces after `prompt` (a tuple of pieces; default: `<bos>`), values what may follow, control tokens by
    their spelling. What a row leaves of probability 1 is spread evenly over the tokens it does not name; contexts not
    named, and contexts not below the prompt, are uniform. Raises `OptionError` for a row that does not fit 1.
    """

    def __init__(
        self,
        table: Mapping[tuple[str, ...], Mapping[str, float]],
        *,
        vocabulary: Vocabulary | None = None,
        limits: Limits = WIDE,
        prompt: tuple[str, ...] = ("<bos>",),
    ) -> None:
        vocabulary = vocabulary or make_vocabulary()
        size = len(vocabulary.pieces)
        before = spell(vocabulary, prompt)
        logits = {before + spell(vocabulary, key): _table_row(vocabulary, key, row) for key, row in table.items()}

        def row_of(path: Path) -> LogitArray:
            return logits[path] if path in logits else np.zeros(size, dtype=np.float32)

        super().__init__(row_of, vocabulary=vocabulary, limits=limits, name="table")


def hashed_logits(seed: int, path: Path, size: int, sharpness: float) -> LogitArray:
    """float32[size]: `sharpness` times Gumbel variates from blake2b of seed and path."""
    digest = blake2b(np.array([seed, *path], dtype="<i8").tobytes(), digest_size=16).digest()
    bits = np.random.Philox(key=int.from_bytes(digest, "little")).random_raw(size)
    uniform = (np.asarray(bits >> np.uint64(11), dtype=np.float64) + 0.5) * 2.0**-53
    return (-sharpness * np.log(-np.log(uniform))).astype(np.float32)


def _table_row(vocabulary: Vocabulary, key: tuple[str, ...], row: Mapping[str, float]) -> LogitArray:
    named = list(spell(vocabulary, tuple(row)))
    p = np.array(list(row.values()), dtype=np.float64)
    rest, n_rest = 1.0 - float(p.sum()), len(vocabulary.pieces) - len(named)
    if (p < 0).any() or rest < -1e-9 or (n_rest == 0 and rest > 1e-9):
        raise OptionError("table", {key: dict(row)}, "probabilities that leave 0 to 1 to the tokens not named")
    full = np.full(len(vocabulary.pieces), 0.0 if rest < 1e-9 else rest / n_rest)
    full[named] = p
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(full), dtype=np.float32)
