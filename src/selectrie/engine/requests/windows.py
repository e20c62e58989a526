"""Runs requests that are read as they are needed, a window of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from selectrie.errors import SelectrieError, of_request

T = TypeVar("T")
R = TypeVar("R")


def by_windows(items: Iterator[T], size: int, run: Callable[[list[T], int], list[R]]) -> Iterator[list[R]]:
    """Yield what `run` returns for `size` items at a time and the index of their first.

    If reading an item fails, the items before it are run first.
    """
    first = 0
    failed: Exception | None = None
    while failed is None:
        window: list[T] = []
        try:
            window.extend(islice(items, size))
        except Exception as error:  # noqa: BLE001 - whatever the caller's iterator raises
            failed = error
        if not window:
            break
        yield run(window, first)
        first += len(window)
    if failed is not None:
        raise failed


@contextmanager
def counted_from(first: int) -> Iterator[None]:
    """Add the index of a window's first item to the request index of errors."""
    try:
        with of_request(0):
            yield
    except SelectrieError as error:
        error.request = None if error.request is None else first + error.request
        raise


def flatten(windows: Iterator[list[T]]) -> Iterator[T]:
    """Yield the results of each window."""
    for window in windows:
        yield from window
