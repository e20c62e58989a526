"""A model that a server evaluates, behind the port `PathModel`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selectrie.backends.remote.dialect import Dialect
from selectrie.backends.remote.sampler import draw
from selectrie.backends.remote.transport import Transport
from selectrie.core.completion import ServedText
from selectrie.core.path_model import Cancellation, PartialRow, PathLimits, RowQuery, check_queries
from selectrie.core.types import IntArray, ModelIdentity
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import CancelledError


class RemoteModel:
    """A model that a server evaluates (`PathModel`), and draws with as well.

    It satisfies `core.completion.SupportsCompletion`. `prompt_of` returns tokens as the
    server takes a prompt of text.

    Attributes:
        dialect: How the server is asked for rows.
        transport: The connection, which `close` closes.
    """

    def __init__(
        self,
        transport: Transport,
        dialect: Dialect,
        *,
        vocabulary: Vocabulary,
        identity: ModelIdentity,
        tolerance: float,
        prompt_of: Callable[[Sequence[int]], list[int] | str] = list,
    ) -> None:
        self.transport, self.dialect, self._prompt_of = transport, dialect, prompt_of
        # Requests that wait for one another do not wait within their timeout.
        self._places = asyncio.Semaphore(max(1, dialect.limits.requests_in_flight))
        self._vocabulary, self._identity, self._tolerance = vocabulary, identity, tolerance

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    @property
    def identity(self) -> ModelIdentity:
        return self._identity

    @property
    def limits(self) -> PathLimits:
        return self.dialect.limits

    @property
    def tolerance(self) -> float:
        return self._tolerance

    def rows(self, queries: Sequence[RowQuery], cancellation: Cancellation) -> list[PartialRow]:
        check_queries(queries, self.limits, len(self._vocabulary.pieces))
        self.transport.require_open()
        if cancellation.is_cancelled:
            raise CancelledError
        return self.transport.run(lambda: self.dialect.rows(queries), cancellation)

    @property
    def sampler_name(self) -> str:
        return self._identity.build

    def complete(
        self,
        prompt: IntArray,
        fields: Mapping[str, Any],
        done: Callable[[ServedText | BaseException], None],
        cancellation: Cancellation,
    ) -> None:
        ids = prompt.tolist()

        async def drawn() -> ServedText:
            async with self._places:
                return await draw(self.transport, self._identity.name, ids, self._prompt_of(ids), fields)

        self.transport.start(drawn, done, cancellation)

    def close(self) -> None:
        self.transport.close()
