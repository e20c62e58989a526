"""What the kinds of servers have in common, seen from here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from selectrie.core.path_model import PartialRow, PathLimits, RowQuery


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as its server describes it.

    Attributes:
        name: The name under which it is asked for.
        server: What the server calls itself: its kind and version.
        n_tokens: Number of tokens of the vocabulary.
        n_context: Number of tokens that its context holds; None if it does not say.
    """

    name: str
    server: str
    n_tokens: int
    n_context: int | None = None


class Dialect(Protocol):
    """A way in which servers are asked for rows.

    All methods but `limits` run on the event loop of the transport.
    """

    @property
    def limits(self) -> PathLimits:
        """Return what may be asked."""
        ...

    async def rows(self, queries: Sequence[RowQuery]) -> list[PartialRow]:
        """Return the rows that valid queries ask about, in their order."""
        ...

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:
        """Return log-probabilities after a path, read in another way than `rows` does.

        Where there is one way only, they are read with another layout of the work. The
        result may have other tokens than the named ones; it has one at least.
        """
        ...

    async def encode(self, text: str) -> list[int] | None:
        """Return the tokens of a text, control tokens included and without BOS.

        None if the server does not say.
        """
        ...


DEFAULT_CONTEXT = 1 << 20
"""Number of tokens of a path where a server does not say how many it takes."""
