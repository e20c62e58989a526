"""Bookkeeping of a fake model: paths in a dictionary, limits, references and eviction, as plainly as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from selectrie.errors import CapacityError, NodeError, ProtocolError, TokenRangeError
from selectrie.model import rounds
from selectrie.types import ROOT, BoolArray, IntArray, Limits, Room

Path = tuple[int, ...]


@dataclass(slots=True)
class FakeNode:
    """One evaluated context. last_used: rows evaluated in all when it was last used."""

    number: int
    path: Path
    references: int = 0
    last_used: int = 0
    has_state: bool = False
    is_forgotten: bool = False
    children: set[Path] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class FakePlan:
    """What one extend will do. paths: of each element. evaluated: distinct paths computed, n_repeated of them again.
    wanted_paths: distinct paths whose rows are wanted; wanted_index: place of each wanted element in it.
    kept: paths that get a state. evicted: paths dropped to make room. stripped: paths that lose their state for it."""

    paths: list[Path]
    evaluated: list[Path]
    n_repeated: int
    wanted_paths: list[Path]
    wanted_index: list[int]
    kept: set[Path]
    evicted: list[Path]
    stripped: list[Path]


class FakeTree:
    """All contexts a fake model holds: `plan` checks and changes nothing, `commit` changes and cannot fail."""

    def __init__(self, limits: Limits, n_vocabulary: int) -> None:
        self._limits, self._n_vocabulary = limits, n_vocabulary
        root = FakeNode(ROOT, (), has_state=True)
        self._by_path: dict[Path, FakeNode] = {(): root}
        self._by_number: dict[int, FakeNode] = {ROOT: root}
        self._next_number = ROOT + 1
        self._rows = 0

    @property
    def paths(self) -> set[Path]:
        """Every context held, the empty one included."""
        return set(self._by_path)

    def path_of(self, number: int) -> Path:
        """Token path of a node; `NodeError` where it does not exist."""
        if number not in self._by_number:
            raise NodeError(number, "does not exist")
        return self._by_number[number].path

    def references(self, number: int) -> int:
        """References to a node."""
        return self._by_number[number].references

    def plan(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> FakePlan:
        """Check a call whole and work out what it does; see `Model.extend` for what is raised."""
        if not len(parents) == len(tokens) == len(wanted) == len(keep):
            raise ProtocolError("parents, tokens, wanted and keep differ in length")
        paths = self._paths(parents, tokens)
        inner = {paths[~int(p)] for p in parents if p < 0}
        kept = {path for path, stays in zip(paths, keep, strict=True) if stays}
        wanted_all = [path for path, is_wanted in zip(paths, wanted, strict=True) if is_wanted]
        wanted_paths = list(dict.fromkeys(wanted_all))
        again = set(wanted_paths) | {path for path in kept | inner if self._lacks_state(path)}
        evaluated = [path for path in dict.fromkeys(paths) if path not in self._by_path or path in again]
        if len(evaluated) > self._limits.rows_per_call:
            raise CapacityError("rows in one call", needed=len(evaluated), available=self._limits.rows_per_call)
        if self._limits.kind.forks and len(parents):
            n_rounds = int(rounds(np.asarray(parents), np.asarray(keep)).max()) + 1
            if n_rounds > 1:
                raise CapacityError("rounds in one call", needed=n_rounds, available=1)
        evicted, stripped = self._make_room(set(paths), kept)
        place = {path: i for i, path in enumerate(wanted_paths)}
        return FakePlan(
            paths=paths,
            evaluated=evaluated,
            n_repeated=sum(path in self._by_path for path in evaluated),
            wanted_paths=wanted_paths,
            wanted_index=[place[path] for path in wanted_all],
            kept=kept,
            evicted=evicted,
            stripped=stripped,
        )

    def _lacks_state(self, path: Path) -> bool:
        node = self._by_path.get(path)
        return self._limits.kind.forks and node is not None and not node.has_state

    def _paths(self, parents: IntArray, tokens: IntArray) -> list[Path]:
        paths: list[Path] = []
        for i, (parent, token) in enumerate(zip(parents.tolist(), tokens.tolist(), strict=True)):
            if not 0 <= token < self._n_vocabulary:
                raise TokenRangeError(token, self._n_vocabulary)
            if parent < 0:
                if ~parent >= i:
                    raise NodeError(parent, f"element {~parent} of the call does not stand before element {i}")
                paths.append((*paths[~parent], token))
                continue
            path = self.path_of(parent)
            if self._lacks_state(path):
                raise NodeError(parent, "was not kept and cannot be extended in a forking model")
            paths.append((*path, token))
        return paths

    def _make_room(self, call: set[Path], kept: set[Path]) -> tuple[list[Path], list[Path]]:
        """Paths to evict and paths to strip of their state, least recently used first; `CapacityError` where that is not enough."""
        safe = {path[:n] for path in call for n in range(len(path) + 1)}
        held = set(self._by_path) | call
        states = {path for path in self._by_path if self._by_path[path].has_state} | kept
        evicted: list[Path] = []
        stripped: list[Path] = []
        while True:
            excess_nodes = len(held) - 1 - self._limits.nodes
            excess_branches = self._n_branches(held, states) - self._limits.branches
            if excess_nodes <= 0 and excess_branches <= 0:
                return evicted, stripped
            forks = self._limits.kind.forks and excess_nodes <= 0
            victim = self._oldest(states - call - {p[:-1] for p in call} if forks else _leaves(held) - safe)
            if victim is None:
                if excess_nodes > 0:
                    raise CapacityError("nodes", needed=len(held) - 1, available=self._limits.nodes)
                n_branches = excess_branches + self._limits.branches
                raise CapacityError("branches", needed=n_branches, available=self._limits.branches)
            states.discard(victim)
            if forks:
                stripped.append(victim)
            else:
                held.discard(victim)
                evicted.append(victim)

    def _n_branches(self, held: set[Path], states: set[Path]) -> int:
        return len(states & held - {()}) if self._limits.kind.forks else len(_leaves(held))

    def _oldest(self, among: Iterable[Path]) -> Path | None:
        unused = [self._by_path[path] for path in among if path and self._by_path[path].references == 0]
        if not unused:
            return None
        return min(unused, key=lambda node: (node.last_used, -len(node.path), node.number)).path

    def commit(self, plan: FakePlan) -> IntArray:
        """Do what was planned; int32[B] node numbers, one reference each."""
        for path in plan.evicted:
            self._drop(self._by_path[path])
        for path in plan.stripped:
            self._by_path[path].has_state = False
        self._rows += len(plan.evaluated)
        for path in plan.paths:
            if path not in self._by_path:
                node = FakeNode(self._next_number, path, has_state=not self._limits.kind.forks)
                self._next_number += 1
                self._by_path[path] = self._by_number[node.number] = node
                self._by_path[path[:-1]].children.add(path)
            node = self._by_path[path]
            node.references += 1
            node.is_forgotten = False
            self._touch(path)
        for path in plan.kept:
            self._by_path[path].has_state = True
        return np.array([self._by_path[path].number for path in plan.paths], dtype=np.int32)

    def find(self, path: Path) -> tuple[int, int]:
        """See `Model.find`."""
        depth = max(n for n in range(len(path) + 1) if path[:n] in self._by_path and self._by_path[path[:n]].has_state)
        node = self._by_path[path[:depth]]
        node.references += 1
        node.is_forgotten = False
        self._touch(node.path)
        return node.number, depth

    def release(self, numbers: Sequence[int], *, forget: bool) -> None:
        """See `Model.release`; `NodeError` for a node without that many references, before anything changed."""
        for number, n in Counter(numbers).items():
            if number != ROOT and (number not in self._by_number or self._by_number[number].references < n):
                raise NodeError(number, "released more often than it was given out")
        nodes = [self._by_number[number] for number in numbers if number != ROOT]
        for node in nodes:
            node.references -= 1
            self._touch(node.path)
        if forget:
            for node in nodes:
                node.is_forgotten = node.references == 0
            for node in sorted(nodes, key=lambda node: -len(node.path)):
                self._drop_forgotten(node)

    def _drop_forgotten(self, node: FakeNode) -> None:
        while node.number in self._by_number and node.is_forgotten and not node.children and node.references == 0:
            parent = self._by_path[node.path[:-1]]
            self._drop(node)
            node = parent

    def trim(self, idle_rows: int) -> int:
        """See `Model.trim`."""
        dropped = 0
        while True:
            idle = [
                node
                for path, node in self._by_path.items()
                if path and not node.children and node.references == 0 and self._rows - node.last_used >= idle_rows
            ]
            if not idle:
                return dropped
            for node in idle:
                self._drop(node)
            dropped += len(idle)

    def room(self) -> Room:
        """See `Model.room`."""
        live = {node.path[:n] for node in self._by_path.values() if node.references for n in range(len(node.path) + 1)}
        states = {path for path, node in self._by_path.items() if node.has_state and node.references}
        branches = self._limits.branches - self._n_branches(live | {()}, states)
        nodes = self._limits.nodes - max(0, len(live | {()}) - 1)
        return Room(rows=self._limits.rows_per_call, nodes=nodes, branches=branches)

    def _touch(self, path: Path) -> None:
        for n in range(len(path) + 1):
            self._by_path[path[:n]].last_used = self._rows

    def _drop(self, node: FakeNode) -> None:
        del self._by_path[node.path], self._by_number[node.number]
        self._by_path[node.path[:-1]].children.discard(node.path)


def _leaves(held: set[Path]) -> set[Path]:
    return held - {path[:-1] for path in held if path} - {()}
