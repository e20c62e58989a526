"""Which event ends a choice, and which node's continuations it has to look at."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, IntArray
from selectrie.errors import ChoiceError


def auto_terminator(choices: Sequence[bytes], following: bytes) -> str:
    """The terminator that "auto" stands for, decided on bytes: strings can continue one another where tokens do not.

    "text" where following text is given; "unless-continued" if a choice is a proper byte-prefix of another; else "none".
    """
    if following:
        return "text"
    distinct = sorted(set(choices))
    # In byte order whatever starts with a string stands directly after it, so neighbours are enough.
    continued = any(later.startswith(earlier) for earlier, later in itertools.pairwise(distinct))
    return "unless-continued" if continued else "none"


def check_choices(choices: Sequence[bytes], terminator: str) -> None:
    """Raise `ChoiceError` for no choices at all, or an empty one that no terminator weighs.

    Alone, an empty choice is the sum over nothing: probability 1, and it would win every set.
    """
    if not choices:
        raise ChoiceError("no choices given; give at least one")
    if terminator == "none":
        for index, choice in enumerate(choices):
            if not choice:
                reason = "empty, so its probability is 1 without a terminator; use 'eog' or 'unless-continued', or give following text"
                raise ChoiceError(reason, index=index, choice="")


def owners(trie: TokenTrie) -> IntArray:
    """int32[N]: the nearest end at or above each node, NO_NODE above all ends.

    The inner nodes it owns are those whose rows decide how likely an end is continued to a longer choice.
    """
    owner = np.full(len(trie.token), NO_NODE, dtype=np.int32)
    owner[trie.path_node] = trie.path_node
    for level in levels(trie)[1:]:
        orphans = level[owner[level] == NO_NODE]
        owner[orphans] = owner[trie.parent[orphans]]
    return owner


def levels(trie: TokenTrie) -> list[IntArray]:
    """Nodes by depth, the root's level first; int32[] each, in depth-first order."""
    order = np.argsort(trie.depth, kind="stable").astype(np.int32)
    return np.split(order, np.cumsum(np.bincount(trie.depth))[:-1])
