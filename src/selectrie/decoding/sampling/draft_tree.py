"""Proposals of a draft: a small tree of tokens that may follow, evaluated in one call with the token they hang from."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from selectrie.core.types import NO_NODE, IntArray
from selectrie.errors import OptionError, TokenRangeError


class Drafter(Protocol):
    """Guesses what follows. A guess moves no number and no draw: right ones save calls, wrong ones cost rows."""

    def propose(self, tokens: IntArray, most: int) -> tuple[IntArray, IntArray]:
        """A tree of at most `most` >= 1 tokens below the last of `tokens`: int32[n] parents and int32[n] tokens.

        tokens: int32[T], prompt and text so far; read-only, valid during the call. A parent is the place of an earlier
        proposal, or -1 for the last of `tokens` itself. More than `most` are cut; n = 0 is fine. Called on the thread that
        works the model, before each of its calls; whatever it raises ends the one sequence.
        """
        ...


@dataclass(frozen=True, slots=True)
class DraftRoom:
    """What a draft may use: proposals, their depth below the tip, leaves alive; n_vocabulary: ids that exist."""

    most: int
    depth: int
    branches: int
    n_vocabulary: int

    @property
    def is_empty(self) -> bool:
        return self.most < 1 or self.depth < 1 or self.branches < 1


class DraftTree:
    """The proposals worth evaluating. Places run over the tip, which is 0, and the proposals, from 1 on.

    parents: int32[n], place of the parent, smaller than the own one. tokens: int32[n].
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
        """The place where `token` follows a place; None where it was not proposed."""
        return self._child.get((place, token))

    @staticmethod
    def of(proposed: tuple[IntArray, IntArray], room: DraftRoom, barred: Container[int]) -> DraftTree:
        """What of a proposal fits the room: equal paths once, none through a `barred` token (one that ends the sequence).

        Raises `OptionError` for what is no tree and `TokenRangeError` for a token that does not exist, before anything is
        asked for.
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
            if len(tree) == room.most or n_leaves + (up in carries) > room.branches:
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
    """The parents and tokens of a proposal as plain numbers."""
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
