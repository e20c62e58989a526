"""Guesses a small tree of the tokens that a draft model thinks most probable next.

The main model verifies the guesses.
"""

from __future__ import annotations

import numpy as np

from selectrie.core.reads import Reads, TopTokens
from selectrie.core.rows import Rows
from selectrie.core.types import NO_NODE, Capacity, IntArray
from selectrie.decoding.task import Ask, TaskBase


class GuessTask(TaskBase[list[int], tuple[IntArray, IntArray]]):
    """Grows a tree of guesses level by level.

    Each level holds the `branching` most probable continuations of the level before.
    The result is int32[n] parents (index of an earlier guess, -1 for the prompt's end)
    and int32[n] tokens, with n <= max_tokens and no guess deeper than `depth`. Guess j
    is local row j + 1. The last level is not evaluated, so the task takes depth - 1
    asks. `barred` tokens are not guessed.
    """

    def __init__(self, prompt: IntArray, *, max_tokens: int, depth: int, branching: int, barred: IntArray) -> None:
        self._max_tokens, self._branching, self._barred = max_tokens, min(branching, max_tokens), barred
        self._depth = min(depth, -(-max_tokens // self._branching))
        floor = Capacity(rows=self._branching, nodes=self._branching * (self._depth - 1), sequences=self._branching)
        super().__init__(prompt, floor, [NO_NODE])
        self._n_tops = self._branching + len(barred)
        self._parents: list[int] = []
        self._tokens: list[int] = []
        self._joint: list[float] = []
        self._frontier: list[int] = []
        self._live: set[int] = set()
        self._n_levels = 0

    def _plan(self, _capacity: Capacity) -> tuple[Ask, list[int]] | None:
        if self._n_levels == self._depth or not self._frontier or len(self._tokens) == self._max_tokens:
            return None
        everyone = np.ones(len(self._frontier), dtype=np.bool_)
        carries = {self._parents[index] for index in self._frontier}
        # Parents come before their children.
        for index in range(len(self._parents) - 1, -1, -1):
            if index in carries:
                carries.add(self._parents[index])
        gone = self._live - carries
        self._live = (self._live - gone) | set(self._frontier)
        ask = Ask(
            parents=np.array([self._parents[index] + 1 for index in self._frontier], dtype=np.int32),
            tokens=np.array([self._tokens[index] for index in self._frontier], dtype=np.int32),
            wanted=everyone,
            keep=everyone.copy(),
            release=np.array(sorted(gone), dtype=np.int32) + np.int32(1),
        )
        return ask, self._frontier

    def _reads(self, guesses: list[int]) -> Reads:
        return Reads(len(guesses), tops=tuple(TopTokens(i, self._n_tops) for i in range(len(guesses))))

    def _read(self, guesses: list[int], rows: Rows) -> None:
        candidates: list[tuple[float, int, int]] = []
        for i, parent in enumerate(guesses):
            ids, logp = rows.top(i, self._n_tops)
            so_far = 0.0 if parent == NO_NODE else self._joint[parent]
            free = ~np.isin(ids, self._barred)
            candidates += [
                (-so_far - more, parent, token)
                for token, more in zip(ids[free].tolist(), logp[free].tolist(), strict=True)
            ]
        candidates = sorted(candidates)[: min(self._branching, self._max_tokens - len(self._tokens))]
        first = len(self._tokens)
        for joint, parent, token in candidates:
            self._parents.append(parent)
            self._tokens.append(token)
            self._joint.append(-joint)
        self._frontier = list(range(first, len(self._tokens)))
        self._n_levels += 1

    def _result(self) -> tuple[IntArray, IntArray]:
        return np.array(self._parents, dtype=np.int32), np.array(self._tokens, dtype=np.int32)
