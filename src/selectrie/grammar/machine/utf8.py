"""Sets of characters as minimal automata over the bytes of UTF-8 (RFC 3629).

Only encodings of the characters themselves are spelled: overlong forms, surrogates and
anything beyond U+10FFFF have no path. They are refused at the first byte that cannot
continue a character of the set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LENGTHS = ((0x00, 0x7F, 0x00), (0x80, 0x7FF, 0xC0), (0x800, 0xFFFF, 0xE0), (0x10000, 0x10FFFF, 0xF0))
"""Code points encoded in one, two, three and four bytes.

Each entry holds the first and last code point and the bits that mark the first byte.
"""
END = -1

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ByteTree:
    """An automaton over bytes without cycles, which reads one character.

    Nodes come before the nodes they lead to; node 0 is the start.

    Attributes:
        edges: For each node, triples (first byte, last byte, next node), disjoint and
            ascending. The next node `END` completes the character.
    """

    edges: tuple[tuple[tuple[int, int, int], ...], ...]


def byte_tree(ranges: Ranges) -> ByteTree:
    """Return the smallest automaton of a set of characters.

    Args:
        ranges: As in `expressions.Characters`: ascending, disjoint, without surrogates.
    """
    nodes: dict[tuple[tuple[int, int, int], ...], int] = {}
    start: list[tuple[int, int, int]] = []
    for n_more, (low, high, marker) in enumerate(LENGTHS):
        parts = tuple((max(first, low), min(last, high)) for first, last in ranges if first <= high and last >= low)
        if parts:
            start += [(marker + first, marker + last, after) for first, last, after in _branches(parts, n_more, nodes)]
    made = [*nodes, tuple(start)]
    number = {old: len(made) - 1 - old for old in range(len(made))} | {END: END}
    return ByteTree(
        tuple(tuple((first, last, number[after]) for first, last, after in edges) for edges in reversed(made))
    )


def _branches(
    ranges: Ranges, n_more: int, nodes: dict[tuple[tuple[int, int, int], ...], int]
) -> list[tuple[int, int, int]]:
    """Return the edges for the leading digit of each number.

    The last `n_more` digits have six bits each. The nodes that follow are added to
    `nodes`.
    """
    if n_more == 0:
        return [(first, last, END) for first, last in ranges]
    shift = 6 * n_more
    full = (0, (1 << shift) - 1)
    below: dict[int, list[tuple[int, int]]] = {}
    spans: list[tuple[int, int, int]] = []
    for first, last in ranges:
        top, stop = first >> shift, last >> shift
        if top == stop:
            below.setdefault(top, []).append((first & full[1], last & full[1]))
            continue
        if first & full[1]:
            below.setdefault(top, []).append((first & full[1], full[1]))
            top += 1
        if last & full[1] != full[1]:
            below.setdefault(stop, []).append((0, last & full[1]))
            stop -= 1
        if top <= stop:
            spans.append((top, stop, _tail((full,), n_more, nodes)))
    spans += [(digit, digit, _tail(tuple(parts), n_more, nodes)) for digit, parts in below.items()]
    return joined_runs(sorted(spans))


def joined_runs(runs: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Join neighbouring runs (first, last, target) that lead to the same target."""
    joined: list[tuple[int, int, int]] = []
    for first, last, target in runs:
        if joined and joined[-1][1] == first - 1 and joined[-1][2] == target:
            joined[-1] = joined[-1][0], last, target
        else:
            joined.append((first, last, target))
    return joined


def _tail(ranges: Ranges, n_more: int, nodes: dict[tuple[tuple[int, int, int], ...], int]) -> int:
    """Return the node that spells numbers of `n_more` digits in continuation bytes.

    Equal nodes are shared.
    """
    edges = tuple((0x80 + low, 0x80 + high, after) for low, high, after in _branches(ranges, n_more - 1, nodes))
    return nodes.setdefault(edges, len(nodes))
