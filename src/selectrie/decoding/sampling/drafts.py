"""Small trees of tokens that may follow a text, proposed by a drafter."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from selectrie.core.rows import Reads, Rows, TopTokens
from selectrie.core.types import NO_NODE, Capacity, IntArray
from selectrie.decoding.task import Ask, TaskBase
from selectrie.errors import OptionError, TokenRangeError


class Drafter(Protocol):
    """Guesses the tokens that may follow a text (speculative decoding).

    A guess changes no number and no draw: a right one saves calls, a wrong one costs
    rows.
    """

    def propose(self, tokens: IntArray, max_tokens: int) -> tuple[IntArray, IntArray]:
        """Return a tree of tokens below the last of `tokens`.

        Called on the thread that runs the model, before each of its calls. An exception
        ends only this sequence.

        Args:
            tokens: int32[T], prompt and text so far; read-only, valid during the call.
            max_tokens: Maximum number of proposals, at least 1. Proposals beyond it are
                dropped.

        Returns:
            int32[n] parents and int32[n] tokens; n may be 0. A parent is the index of
            an earlier proposal, or -1 for the last of `tokens`.
        """
        ...


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """Limits on the size of a draft.

    Attributes:
        max_tokens: Maximum number of proposals.
        depth: Maximum depth of a proposal below the last token of the text.
        sequences: Maximum number of leaves.
        n_vocabulary: Number of token ids.
    """

    max_tokens: int
    depth: int
    sequences: int
    n_vocabulary: int

    @property
    def is_empty(self) -> bool:
        """Return whether the limits leave no room for a proposal."""
        return self.max_tokens < 1 or self.depth < 1 or self.sequences < 1


class DraftTree:
    """A tree of proposed tokens below the tip, the last token of the text.

    Position 0 is the tip; the proposals have the positions from 1 on.

    Attributes:
        parents: The position of each parent, which is smaller than the child's.
        tokens: The token of each proposal.
    """

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.tokens: list[int] = []
        self._child: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def child(self, position: int, token: int) -> int | None:
        """Return the position of `token` below `position`, None if not proposed."""
        return self._child.get((position, token))

    @staticmethod
    def of(proposed: tuple[IntArray, IntArray], limits: DraftLimits, barred: Container[int]) -> DraftTree:
        """Return the part of a drafter's tree that fits the limits.

        Equal paths are kept once. Raises `OptionError` if `proposed` is not a tree, and
        `TokenRangeError` for an unknown token.

        Args:
            proposed: Result of `Drafter.propose`.
            barred: Tokens that end the sequence; no path goes through them.
        """
        tree = DraftTree()
        position, depth = {NO_NODE: 0}, [0]
        n_leaves = 1
        carries: set[int] = set()
        for i, (parent, token) in enumerate(zip(*_check_proposal(proposed, limits.n_vocabulary), strict=True)):
            up = position.get(parent)
            if up is None or token in barred or depth[up] == limits.depth:
                continue
            known = tree.child(up, token)
            if known is not None:
                position[i] = known
                continue
            new_leaf = up in carries
            if len(tree) == limits.max_tokens or n_leaves + new_leaf > limits.sequences:
                continue
            n_leaves += new_leaf
            carries.add(up)
            tree.parents.append(up)
            tree.tokens.append(token)
            position[i] = tree._child[up, token] = len(tree)
            depth.append(depth[up] + 1)
        return tree


def _check_proposal(proposed: tuple[IntArray, IntArray], n_vocabulary: int) -> tuple[list[int], list[int]]:
    """Return the parents and tokens of a drafter's tree as lists.

    Raises `OptionError` or `TokenRangeError` if they are no tree of tokens.
    """
    expected = (
        "two integer arrays of equal length from `propose`: parents (indices of earlier proposals, -1 for the tip) "
        "and tokens"
    )
    try:
        parents, tokens = (np.asarray(part) for part in proposed)
    except (TypeError, ValueError):
        raise OptionError("draft", proposed, expected) from None
    for part in (parents, tokens):
        if part.ndim != 1 or len(part) != len(tokens) or (len(part) and part.dtype.kind not in "iu"):
            raise OptionError("draft", proposed, expected)
    for index, parent in enumerate(parents.tolist()):
        if not NO_NODE <= parent < index:
            raise OptionError("draft", proposed, f"{expected}; the parent of proposal {index} is {parent}")
    for token in tokens.tolist():
        if not 0 <= token < n_vocabulary:
            raise TokenRangeError(token, n_vocabulary)
    return parents.tolist(), tokens.tolist()


class GuessTask(TaskBase[list[int], tuple[IntArray, IntArray]]):
    """Grows a tree of guesses, level by level, on a draft model.

    Each level holds the `branching` most probable continuations of the level before.
    The result is int32[n] parents (index of an earlier guess, -1 for the prompt's end)
    and int32[n] tokens. Guess j is local row j + 1. The last level is not evaluated, so
    the task takes depth - 1 asks.

    Args:
        prompt: int32[T], the tokens before the guesses.
        max_tokens: Maximum number of guesses.
        depth: Maximum depth of a guess.
        branching: Number of guesses on each level.
        barred: int32[], tokens that are not guessed.
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

    def _next_ask(self, _capacity: Capacity) -> tuple[Ask, list[int]] | None:
        """Return the ask for the last level of guesses; None if no level follows."""
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
        """Add the most probable continuations of a level as the next level."""
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
