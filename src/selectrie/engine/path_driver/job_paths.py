"""The token paths of the rows that a job asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from selectrie.core.types import IntArray
from selectrie.decoding.task import Ask
from selectrie.errors import ProtocolError


class JobPaths:
    """The local rows of a job, each as its parent's number and a token.

    Row 0 is the end of the prompt. A row that was released keeps its number.

    Args:
        prompt: int32[T], the prompt.
    """

    def __init__(self, prompt: IntArray) -> None:
        self._prompt = prompt
        self._up, self._token = [0], [0]

    def of_prompt(self) -> Sequence[IntArray]:
        """Return the path of row 0 alone."""
        return _Paths(self, [0])

    def add(self, ask: Ask) -> Sequence[IntArray]:
        """Add the rows of an ask, and return the paths of those that are wanted.

        Raises `ProtocolError` for a parent that does not exist.
        """
        first = len(self._up)
        parents = [parent if parent >= 0 else first + ~parent for parent in ask.parents.tolist()]
        for index, parent in enumerate(parents):
            if parent >= first + index:
                raise ProtocolError(f"asked for a child of row {parent}; there are {first + index}")
        self._up += parents
        self._token += ask.tokens.tolist()
        return _Paths(self, (first + np.flatnonzero(ask.wanted)).tolist())

    def path(self, row: int) -> IntArray:
        """Return the path of a row, int32[]."""
        below = []
        while row:
            below.append(self._token[row])
            row = self._up[row]
        return np.concatenate([self._prompt, np.array(below[::-1], dtype=np.int32)])


class _Paths(Sequence["IntArray"]):
    """The paths of some rows, each made when it is indexed."""

    def __init__(self, paths: JobPaths, rows: list[int]) -> None:
        self._paths, self._rows = paths, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> IntArray: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[IntArray]: ...
    def __getitem__(self, index: int | slice) -> IntArray | Sequence[IntArray]:
        if isinstance(index, slice):
            return _Paths(self._paths, self._rows[index])
        return self._paths.path(self._rows[index])
