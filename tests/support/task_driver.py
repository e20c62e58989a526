"""Drives one task without a model tree, checking every ask against the room it was given."""

from __future__ import annotations

from collections import Counter
from itertools import chain, repeat

import numpy as np

from selectrie.core.partial_rows import SelectedRows
from selectrie.core.rows import DenseRows


class Driver:
    """Tells a task the rows of `model` (only `model.row(path)` is used) and holds it to its rooms.

    rooms: what each ask may use, the last one for ever. told: how often each path's row was told. carried: paths asked
    for without their rows. sizes: rows of each ask. most_held: most nodes held at once. Of each row the task gets what
    it said it would read; with `is_partial=False` it gets all of it. With `may_repeat` it may hold a path twice.
    """

    def __init__(self, model, rooms, *, is_partial=True, may_repeat=False):
        self.model, self.is_partial, self.may_repeat = model, is_partial, may_repeat
        self.rooms = chain(rooms[:-1], repeat(rooms[-1]))
        self.told, self.carried = Counter(), Counter()
        self.sizes = []
        self.most_held = 0
        self.live, self.live_paths = {}, Counter()
        self.parent = {0: -1}
        self.path = {}

    def run(self, task):
        self.path = {0: tuple(int(token) for token in task.prompt)}
        self.tell(task, [self.path[0]])
        for capacity in self.rooms:
            ask = task.ask(capacity)
            if ask is None:
                return task.result()
            self.tell(task, self.take(ask, capacity))
        raise AssertionError("rooms are endless")

    def rows(self, paths):
        """The rows of some paths."""
        size = len(self.model.row((0,)))
        return DenseRows(np.array([self.model.row(path) for path in paths], dtype=np.float32).reshape(len(paths), size))

    def tell(self, task, paths):
        rows = self.rows(paths)
        self.told.update(paths)
        task.tell(SelectedRows.of(rows, task.reads()) if self.is_partial else rows)
        for i in range(len(rows)):
            rows.logits(i).fill(np.nan)  # rows are valid during tell only

    def take(self, ask, capacity):
        """Check an ask, take its nodes in, and return the paths of the wanted ones."""
        for row in ask.release.tolist():
            self.live.pop(row)
            self.live_paths[self.path[row]] -= 1
        n, first = len(ask.tokens), len(self.path)
        assert n > 0
        assert n <= capacity.rows
        assert all(~parent < i for i, parent in enumerate(ask.parents.tolist()) if parent < 0)
        parents = np.where(ask.parents < 0, first + ~ask.parents, ask.parents).tolist()
        for i, (parent, token) in enumerate(zip(parents, ask.tokens.tolist(), strict=True)):
            assert parent == 0 or parent in self.live
            if 0 < parent < first:
                assert self.live[parent], "a node that was not kept has become a parent"
            path = (*self.path[parent], token)
            assert self.may_repeat or not self.live_paths[path]
            self.live_paths[path] += 1
            self.path[first + i], self.parent[first + i] = path, parent
            self.live[first + i] = bool(ask.keep[i])
        assert all(row == 0 or self.parent[row] == 0 or self.parent[row] in self.live for row in self.live)
        leaves = set(self.live) - {self.parent[row] for row in self.live}
        assert len(self.live) <= capacity.nodes
        assert len(leaves) <= capacity.sequences
        self.sizes.append(n)
        self.most_held = max(self.most_held, len(self.live))
        asked = [self.path[first + i] for i in range(n)]
        self.carried.update(path for path, wanted in zip(asked, ask.wanted, strict=True) if not wanted)
        return [path for path, wanted in zip(asked, ask.wanted, strict=True) if wanted]
