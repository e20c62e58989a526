"""A model that a server evaluates, behind the port `PathModel`."""

from __future__ import annotations

from collections.abc import Sequence

from selectrie.backends.remote.dialect import Dialect
from selectrie.backends.remote.sampling import Sampler
from selectrie.backends.remote.transport import Transport
from selectrie.core.completion import Completed, CompletionRequest, SamplerSettings
from selectrie.core.path_model import Cancellation, PartialRow, PathLimits, RowQuery, check_queries
from selectrie.core.types import ModelIdentity
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import CancelledError


class RemoteModel:
    """A model that a server evaluates (`PathModel`), and draws with as well.

    It satisfies `core.completion.SupportsCompletion`.

    Attributes:
        dialect: How the server is asked for rows.
        sampler: How it is asked for text.
        transport: The connection, which `close` closes.
    """

    def __init__(
        self,
        transport: Transport,
        dialect: Dialect,
        sampler: Sampler,
        *,
        vocabulary: Vocabulary,
        identity: ModelIdentity,
        tolerance: float,
    ) -> None:
        self.transport, self.dialect, self.sampler = transport, dialect, sampler
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

    @property
    def sampler_address(self) -> str:
        return self.transport.server.url

    @property
    def repeats_seeds(self) -> bool:
        return self.sampler.repeats_seeds

    def check_sampler(self, settings: SamplerSettings, seed: int | None) -> None:
        self.sampler.check(settings, seed)

    def complete(self, request: CompletionRequest, cancellation: Cancellation) -> Completed:
        self.transport.require_open()
        if cancellation.is_cancelled:
            raise CancelledError
        return self.transport.run(lambda: self.sampler.complete(request), cancellation)

    def close(self) -> None:
        self.transport.close()
