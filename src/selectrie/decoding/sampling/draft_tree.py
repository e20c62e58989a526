"""A draft's proposals: a small tree of tokens that may follow.

The tree is evaluated in one call with the token below which it begins.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from selectrie.core.types import NO_NODE, IntArray
from selectrie.errors import OptionError, TokenRangeError


class Drafter(Protocol):
    """Guesses what follows.

    A guess changes no number and no draw: right ones save calls, wrong ones cost rows.
    """

    def propose(self, tokens: IntArray, most: int) -> tuple[IntArray, IntArray]:
        """Return a tree of tokens below the last of `tokens`.

        Called on the thread that runs the model, before each of its calls. An exception
        ends only this sequence.

        Args:
            tokens: int32[T], prompt and text so far; read-only, valid during the call.
            most: Maximum number of proposals, at least 1. Proposals beyond it are
                dropped.

        Returns:
            int32[n] parents and int32[n] tokens; n may be 0. A parent is the index of
            an earlier proposal, or -1 for the last of `tokens`.
        """
        ...


@dataclass(frozen=True, slots=True)
class DraftRoom:
    """What a draft may use.

    Attributes:
        most: Maximum number of proposals.
        depth: Their maximum depth below the tip.
        branches: Maximum number of leaves alive.
        n_vocabulary: How many token ids exist.
    """

    most: int
    depth: int
    sequences: int
    n_vocabulary: int

    @property
    def is_empty(self) -> bool:
        return self.most < 1 or self.depth < 1 or self.sequences < 1


class DraftTree:
    """The proposals worth evaluating.

    Positions count the tip as 0 and the proposals from 1 on.

    Attributes:
        parents: int32[n], the position of each parent, which is smaller than the
            child's.
        tokens: int32[n].
    """

    def __init__(self) -> None:
        self._up: list[int] = []
        self._tokens: list[int] = []
        self._child: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def parents(self) -> IntArray:
        return np.array(self._up, dtype=np.int32)

    @property
    def tokens(self) -> IntArray:
        return np.array(self._tokens, dtype=np.int32)

    def child(self, place: int, token: int) -> int | None:
        """Return the position of `token` below `place`, None if not proposed."""
        return self._child.get((place, token))

    @staticmethod
    def of(proposed: tuple[IntArray, IntArray], room: DraftRoom, barred: Container[int]) -> DraftTree:
        """Return the part of a proposal that fits the room.

        Equal paths are kept once, and no path goes through a `barred` token (one that
        ends the sequence). Raises `OptionError` if the proposal is no tree and
        `TokenRangeError` for a token that does not exist, before anything is asked for.
        """
        parents, tokens = _checked(proposed, room.n_vocabulary)
        tree = DraftTree()
        place, depth = {NO_NODE: 0}, [0]
        n_leaves = 1
        carries: set[int] = set()
        for i, (parent, token) in enumerate(zip(parents, tokens, strict=True)):
            up = place.get(parent)
            if up is None or token in barred or depth[up] == room.depth:
                continue
            known = tree.child(up, token)
            if known is not None:
                place[i] = known
                continue
            if len(tree) == room.most or n_leaves + (up in carries) > room.sequences:
                continue
            n_leaves += up in carries
            carries.add(up)
            place[i] = len(depth)
            depth.append(depth[up] + 1)
            tree._append(up, token)
        return tree

    def _append(self, up: int, token: int) -> None:
        self._up.append(up)
        self._tokens.append(token)
        self._child[up, token] = len(self._tokens)


def _checked(proposed: tuple[IntArray, IntArray], n_vocabulary: int) -> tuple[list[int], list[int]]:
    """Return the parents and tokens of a proposal as plain numbers."""
    expected = (
        "a pair of integer arrays of one length from `propose`: parents (earlier places, -1 for the tip) and tokens"
    )
    try:
        parents, tokens = (np.asarray(part) for part in proposed)
    except (TypeError, ValueError):
        raise OptionError("draft", proposed, expected) from None
    for part in (parents, tokens):
        if part.ndim != 1 or len(part) != len(tokens) or (len(part) and part.dtype.kind not in "iu"):
            raise OptionError("draft", proposed, expected)
    for place, parent in enumerate(parents.tolist()):
        if not NO_NODE <= parent < place:
            raise OptionError("draft", proposed, f"{expected}; proposal {place} hangs from {parent}")
    for token in tokens.tolist():
        if not 0 <= token < n_vocabulary:
            raise TokenRangeError(token, n_vocabulary)
    return parents.tolist(), tokens.tolist()
