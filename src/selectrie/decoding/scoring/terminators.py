"""Tells which event ends a choice, and which nodes decide how likely that event is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, IntArray
from selectrie.errors import ChoiceError


def auto_terminator(choices: Sequence[bytes], following: bytes) -> str:
    """Return the terminator that "auto" selects.

    It is "text" if `following` is not empty, "unless-continued" if a choice is a proper
    byte prefix of another, and otherwise "none". Bytes are compared rather than tokens,
    because one string can be a prefix of another although its tokens are not.
    """
    if following:
        return "text"
    distinct = sorted(set(choices))
    # In byte order, every string that starts with a string directly follows it, so it
    # is enough to compare neighbours.
    continued = any(later.startswith(earlier) for earlier, later in itertools.pairwise(distinct))
    return "unless-continued" if continued else "none"


def check_choices(choices: Sequence[bytes], terminator: str) -> None:
    """Raise `ChoiceError` for no choices, or for an empty choice without a terminator.

    Without a terminator, the joint of an empty choice is an empty sum: it would have
    probability 1 and win against any choice.
    """
    if not choices:
        raise ChoiceError("no choices given; give at least one")
    if terminator == "none":
        for index, choice in enumerate(choices):
            if not choice:
                reason = (
                    "empty, so its probability is 1 without a terminator; "
                    "use 'eog' or 'unless-continued', or give following text"
                )
                raise ChoiceError(reason, index=index, choice="")


def longest_prefix_owner(trie: TokenTrie) -> IntArray:
    """Return the end that owns each node: the nearest one at or above it, int32[N].

    It is NO_NODE for nodes above all ends. The rows of the inner nodes that an end owns
    decide how likely its choice is to be continued to a longer one.
    """
    owner = np.full(len(trie.token), NO_NODE, dtype=np.int32)
    owner[trie.path_node] = trie.path_node
    for level in levels(trie)[1:]:
        orphans = level[owner[level] == NO_NODE]
        owner[orphans] = owner[trie.parent[orphans]]
    return owner


def levels(trie: TokenTrie) -> list[IntArray]:
    """Return the nodes by depth, the root's level first.

    Each level is int32[], in depth-first order.
    """
    order = np.argsort(trie.depth, kind="stable").astype(np.int32)
    return np.split(order, np.cumsum(np.bincount(trie.depth))[:-1])
