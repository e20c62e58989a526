"""A cache that is limited by the size of its entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _count_bytes(_key: object, value: Any) -> int:
    return int(value.nbytes)


class SizedCache(Generic[K, V]):
    """A cache of a maximum size, which drops the least recently used entries.

    Any thread may look entries up; one thread at a time may change them.

    Attributes:
        size: Size of all entries.
    """

    def __init__(self, max_size: int, size_of: Callable[[K, V], int] = _count_bytes) -> None:
        """Create an empty cache.

        Args:
            max_size: Maximum size of all entries.
            size_of: Returns the size of an entry, from its key and value. By default,
                that is the value's `nbytes`.
        """
        self._max_size, self._size_of = max_size, size_of
        self._entries: OrderedDict[K, V] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        value = self._entries.get(key)
        if value is not None:
            with suppress(KeyError):  # dropped by another thread meanwhile
                self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Set the value of a key. A value that is too large by itself is not kept."""
        size, before = self._size_of(key, value), self._entries.pop(key, None)
        self.size -= 0 if before is None else self._size_of(key, before)
        if size > self._max_size:
            return
        self.size += size
        self._entries[key] = value
        while self.size > self._max_size:
            self.size -= self._size_of(*self._entries.popitem(last=False))

    def clear(self) -> None:
        """Drop all entries."""
        self._entries.clear()
        self.size = 0
