"""What may come next, for messages to people."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.grammar.expressions import Characters, TokenSet
from selectrie.grammar.machine.machine import DEAD, Machine

LEADS = ((0xC0, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF7, 3))
"""First bytes, and how many continuation bytes follow them (RFC 3629)."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What may follow a configuration.

    characters: whole ones. byte_ranges: (first, last) bytes that are no beginning of one: inside a character, or where the
    grammar has bytes that are no UTF-8. token_sets: tokens that are read as such. can_end: nothing need follow.
    """

    characters: Characters
    byte_ranges: tuple[tuple[int, int], ...]
    token_sets: tuple[TokenSet, ...]
    can_end: bool


def expected(machine: Machine, configuration: int) -> Expected:
    """Exact. Looks ahead up to three bytes, so it may compute entries of the machine's table."""
    after = [machine.step(configuration, byte) for byte in range(256)]
    characters = [(byte, byte) for byte in range(0x80) if after[byte] != DEAD]
    others = [(byte, byte) for byte in range(0x80, 256) if after[byte] != DEAD]
    known: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for low, high, n_more in LEADS:
        for byte in range(low, high + 1):
            if after[byte] != DEAD:
                found = _tails(machine, after[byte], n_more, known)
                base = byte - low << 6 * n_more
                characters += [(base + first, base + last) for first, last in found]
                others = [one for one in others if one[0] != byte or not found]
    return Expected(
        Characters.of(characters),
        _joined(others),
        tuple(machine.token_sets[index] for index in machine.token_terminals(configuration)),
        machine.can_end(configuration),
    )


def _tails(
    machine: Machine, configuration: int, n_more: int, known: dict[tuple[int, int], list[tuple[int, int]]]
) -> list[tuple[int, int]]:
    """Numbers of n_more times six bits that continuation bytes may spell from here, as ranges."""
    if n_more == 0:
        return [(0, 0)]
    found = known.get((configuration, n_more))
    if found is None:
        found = []
        for digit in range(64):
            after = machine.step(configuration, 0x80 + digit)
            if after != DEAD:
                base = digit << 6 * (n_more - 1)
                inner = _tails(machine, after, n_more - 1, known)
                found += [(base + first, base + last) for first, last in inner]
        found = known[configuration, n_more] = list(_joined(found))
    return found


def _joined(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ascending ranges, neighbours as one."""
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and joined[-1][1] == first - 1:
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    return tuple(joined)
