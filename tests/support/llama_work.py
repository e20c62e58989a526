"""Random work on a llama.cpp model, every row compared with its path alone; and short ways to say a call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selectrie.core.model import Extension, Model, rounds
from selectrie.core.rows import Rows
from selectrie.core.types import ROOT, BoolArray, FloatArray
from selectrie.errors import CapacityError, DecodeError
from tests.support.arrays import ints
from tests.support.llama_twin import SinglePath

Path = tuple[int, ...]


@dataclass(frozen=True)
class Kind:
    """A file of the test data, the shape of a generated one, and tokens that both have."""

    file: str
    shape: str
    tokens: range


KINDS = {
    "attention": Kind("stories260K.gguf", "tiny", range(3, 500)),
    "sliding-window": Kind("random-swa-gemma3.gguf", "sliding-window", range(3, 500)),
    "recurrent": Kind("tiny-rwkv-7v0-834K.gguf", "recurrent", range(3, 250)),  # ids from 256 on do not exist
    "hybrid": Kind("random-hybrid-qwen35.gguf", "hybrid", range(3, 500)),
}


def flags(n: int, *true: int) -> BoolArray:
    result = np.zeros(n, dtype=np.bool_)
    result[list(true)] = True
    return result


def logp(rows: Rows, i: int) -> FloatArray:
    """float64[V]: all log-probabilities of row i."""
    return rows.logits(i).astype(np.float64) - rows.logsumexp(i)


def chain(model: Model, parent: int, tokens: Iterable[int]) -> Extension:
    """A run below a node, every row wanted, the last node kept."""
    tokens = ints(*tokens)
    n = len(tokens)
    return model.extend(ints(parent, *(~i for i in range(n - 1))), tokens, flags(n, *range(n)), flags(n, n - 1))


def fan(model: Model, parent: int, tokens: Iterable[int], *, keep: bool = False) -> Extension:
    """Leaves below a node, every row wanted."""
    tokens = ints(*tokens)
    n = len(tokens)
    return model.extend(np.full(n, parent, dtype=np.int32), tokens, flags(n, *range(n)), np.full(n, keep))


class Work:
    """Holds references by path, makes calls, and compares every row that comes back with the twin's."""

    def __init__(self, model: Model, twin: SinglePath, rng: np.random.Generator, tokens: Sequence[int]) -> None:
        self.model, self.twin, self.rng, self.tokens = model, twin, rng, tokens
        self.is_recurrent = model.limits.kind.is_recurrent
        self.held: list[tuple[int, Path, bool]] = []  # node, path, may be a parent; one entry a reference
        self.refusals = self.failures = 0
        self.moved_nats: list[float] = []

    @property
    def rows_compared(self) -> int:
        return len(self.moved_nats)

    @property
    def worst_nats(self) -> float:
        return max(self.moved_nats)

    def extend(self, parents: list[int], paths: list[Path], wanted: BoolArray, keep: BoolArray) -> None:
        """One call, or as many rounds as a forking model needs. Parents below zero name earlier elements."""
        if not self.is_recurrent:
            return self._extend(parents, paths, wanted, keep)
        turn = rounds(np.array(parents, dtype=np.int32), keep)
        carries = keep.copy()
        for i, parent in enumerate(parents):
            if parent < 0 and turn[i] != turn[~parent]:
                carries[~parent] = True
        node: dict[Path, int] = {}
        for k in range(int(turn.max()) + 1):
            part = np.flatnonzero(turn == k).tolist()
            place = {j: i for i, j in enumerate(part)}
            up = [p if p >= 0 else ~place[~p] if ~p in place else node[paths[~p]] for p in (parents[j] for j in part)]
            before = len(self.held)
            self._extend(up, [paths[j] for j in part], wanted[part], carries[part])
            if len(self.held) == before:
                return None
            node.update((path, n) for n, path, _ in self.held[before:])
        return None

    def _extend(self, parents: list[int], paths: list[Path], wanted: BoolArray, keep: BoolArray) -> None:
        tokens = ints(*(path[-1] for path in paths))
        room = self.model.capacity()
        try:
            got = self.model.extend(np.array(parents, dtype=np.int32), tokens, wanted, keep)
        except CapacityError:
            self.refusals += 1
            assert self.model.capacity() == room
            return
        except DecodeError:
            self.failures += 1
            assert self.model.capacity() == room
            return
        self.held += [
            (int(n), p, bool(k) or not self.is_recurrent) for n, p, k in zip(got.nodes, paths, keep, strict=True)
        ]
        assert len(got.rows) == int(wanted.sum())
        for i, j in enumerate(np.flatnonzero(wanted).tolist()):
            self.moved_nats.append(float(np.abs(logp(got.rows, i) - self.twin.row(paths[j])).max()))

    def run(self, start: Path, n: int) -> Path:
        """A run of n random tokens below a held path; its path."""
        path = (*start, *self._random(n))
        paths = [path[: len(start) + i + 1] for i in range(n)]
        self.extend([self._node(start), *(~i for i in range(n - 1))], paths, flags(n, n - 1), flags(n, n - 1))
        return path

    def tree(self, start: Path, n: int) -> None:
        """N random nodes below a path, deep and wide, all wanted."""
        if self.is_recurrent and not any(p == start and k for _, p, k in self.held):
            self._find(start)
        parents, paths = [], []
        for i in range(n):
            j = int(self.rng.integers(-1, i)) if i else -1
            above = start if j < 0 else paths[j]
            parents.append(~j if j >= 0 else self._node(start))
            paths.append((*above, *self._random(1)))
        self.extend(parents, paths, flags(n, *range(n)), self.rng.random(n) < 0.5)

    def step(self) -> None:
        """One random operation."""
        choice = self.rng.random()
        if not self.held or choice < 0.12:
            self.run((), int(self.rng.integers(1, 30)))
        elif choice < 0.55:
            self._grow()
        elif choice < 0.65:
            self._again()
        elif choice < 0.9:
            self._give_back(forget=bool(self.rng.random() < 0.5))
        elif choice < 0.95:
            self.model.trim(int(self.rng.choice([0, 5, 50])))
        else:
            self._find((*self.held[int(self.rng.integers(len(self.held)))][1], 5))

    def finish(self) -> None:
        """Give everything back; nothing is left."""
        if not self.held:
            self.run((), 1)
        self.model.release(ints(*(node for node, _, _ in self.held)))
        self.model.trim(0)
        room, limits = self.model.capacity(), self.model.limits
        assert (room.nodes, room.sequences) == (limits.nodes, limits.sequences)
        assert self.model.match_prefix(ints(*self.held[0][1])) == (ROOT, 0)

    def _grow(self) -> None:
        """Nodes below held ones, inner ones as likely as leaves, and below each other."""
        starts = [(n, p) for n, p, k in self.held if k] or [(ROOT, ())]
        parents, paths = [], []
        for i in range(int(self.rng.integers(1, 8))):
            if i and self.rng.random() < 0.5:
                j = int(self.rng.integers(i))
                parents.append(~j)
                above = paths[j]
            else:
                node, above = starts[int(self.rng.integers(len(starts)))]
                parents.append(node)
            paths.append((*above, *self._random(1)))
        n = len(paths)
        self.extend(parents, paths, self.rng.random(n) < 0.8, self.rng.random(n) < 0.5)

    def _again(self) -> None:
        """A held node asked for once more, its row wanted."""
        nodes = {p: n for n, p, k in self.held if k} | {(): ROOT}
        known = [p for _, p, _ in self.held if p[:-1] in nodes]
        if known:
            path = known[int(self.rng.integers(len(known)))]
            self.extend([nodes[path[:-1]]], [path], flags(1, 0), self.rng.random(1) < 0.5)

    def _give_back(self, *, forget: bool) -> None:
        count = int(self.rng.integers(1, min(len(self.held), 20) + 1))
        picked = set(self.rng.choice(len(self.held), count, replace=False).tolist())
        self.model.release(ints(*(self.held[i][0] for i in picked)), forget=forget)
        self.held = [entry for i, entry in enumerate(self.held) if i not in picked]

    def _find(self, path: Path) -> None:
        node, depth = self.model.match_prefix(ints(*path))
        if node != ROOT:
            self.held.append((node, path[:depth], True))
        else:
            self.model.release(ints(node))

    def _node(self, path: Path) -> int:
        if not path:
            return ROOT
        if found := [n for n, p, k in self.held if p == path and k]:
            return found[-1]
        return next(n for n, p, _ in self.held if p == path)

    def _random(self, n: int) -> list[int]:
        picked: NDArray[np.int64] = self.rng.choice(np.array(self.tokens), n)
        return picked.tolist()
